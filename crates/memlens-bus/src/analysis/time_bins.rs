//! Reads and writes over time in a bounded number of bins.

use serde::{Deserialize, Serialize};

const BINS: usize = 1024;

/// Counts by time. The width of a bin doubles whenever there would be more than 1,024.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeBins {
    /// Width of a bin in clock cycles.
    pub width_cycles: u64,
    /// Reads and writes, by bin.
    pub bins: Vec<[u64; 2]>,
    /// End of the bin counted last, and its number: nearly every record falls into the same one.
    #[serde(skip)]
    last: (u64, usize),
}

impl Default for TimeBins {
    fn default() -> Self {
        Self { width_cycles: 1024, bins: Vec::new(), last: (0, 0) }
    }
}

impl TimeBins {
    /// Counts records in order, each so many cycles after the one before.
    pub fn add_all(&mut self, start_cycles: u64, durations: &[u64], writes: &[bool]) {
        let cycles = durations.iter().fold(start_cycles, |sum, duration| sum.wrapping_add(*duration));
        // No sum of so few overflows on the way, so that all lie between the first and the last.
        let is_small = durations.len() < 1 << 16
            && start_cycles < 1 << 62
            && durations.iter().fold(0, |all, duration| all | duration) < 1 << 40;
        let (end, bin) = self.last;
        if is_small && cycles < end && end - start_cycles <= self.width_cycles {
            let written = writes.iter().filter(|write| **write).count() as u64;
            self.bins[bin][0] += writes.len() as u64 - written;
            self.bins[bin][1] += written;
            return;
        }
        let mut cycles = start_cycles;
        for (&duration, &write) in durations.iter().zip(writes) {
            cycles = cycles.wrapping_add(duration);
            self.add(cycles, write);
        }
    }

    /// Counts a record.
    #[inline]
    pub fn add(&mut self, cycles: u64, write: bool) {
        let (end, bin) = self.last;
        let bin = match cycles >= end || end - cycles > self.width_cycles {
            true => self.find(cycles),
            false => bin,
        };
        self.bins[bin][usize::from(write)] += 1;
    }

    /// The bin of a time.
    #[cold]
    fn find(&mut self, cycles: u64) -> usize {
        while cycles / self.width_cycles >= BINS as u64 {
            self.double();
        }
        let bin = (cycles / self.width_cycles) as usize;
        if self.bins.len() <= bin {
            self.bins.resize(bin + 1, [0, 0]);
        }
        self.last = ((bin as u64 + 1).saturating_mul(self.width_cycles), bin);
        bin
    }

    fn double(&mut self) {
        self.width_cycles = self.width_cycles.saturating_mul(2);
        let pairs = self
            .bins
            .chunks(2)
            .map(|pair| pair.iter().fold([0, 0], |sum: [u64; 2], bin| [sum[0] + bin[0], sum[1] + bin[1]]));
        self.bins = pairs.collect();
        self.last = (0, 0);
    }

    /// Adds another's counts, and takes them from it.
    pub fn absorb(&mut self, other: &mut Self) {
        while self.width_cycles < other.width_cycles {
            self.double();
        }
        while other.width_cycles < self.width_cycles {
            other.double();
        }
        if self.bins.len() < other.bins.len() {
            self.bins.resize(other.bins.len(), [0, 0]);
        }
        for (mine, theirs) in self.bins.iter_mut().zip(other.bins.drain(..)) {
            mine[0] += theirs[0];
            mine[1] += theirs[1];
        }
        other.last = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_double_and_keep_every_record_at_its_time() {
        let times: Vec<u64> = (0..100_000_u64).map(|at| at * at / 7).collect();
        let mut bins = TimeBins::default();
        times.iter().for_each(|&time| bins.add(time, time % 3 == 0));
        assert!(bins.bins.len() <= BINS && bins.bins.len() > BINS / 2);
        for (bin, &[reads, writes]) in bins.bins.iter().enumerate() {
            let inside = |time: &&u64| **time / bins.width_cycles == bin as u64;
            let expected = times.iter().filter(inside).filter(|time| *time % 3 == 0).count() as u64;
            assert_eq!((writes, reads + writes), (expected, times.iter().filter(inside).count() as u64));
        }
    }

    /// Whoever counts what, and in however large groups.
    #[test]
    fn counts_of_several_add_up() {
        let durations: Vec<u64> = (0..50_000_u64).map(|at| at * 37 % 900 * (at / 500)).collect();
        let writes: Vec<bool> = (0..50_000).map(|at| at % 7 < 2).collect();
        let mut plain = TimeBins::default();
        let mut parts = [const { TimeBins { width_cycles: 1024, bins: Vec::new(), last: (0, 0) } }; 3];
        let (mut cycles, mut start) = (0, 0);
        for (at, group) in durations.chunks(300).enumerate() {
            let writes = &writes[at * 300..at * 300 + group.len()];
            parts[at * at % 3].add_all(start, group, writes);
            for (duration, write) in group.iter().zip(writes) {
                cycles += duration;
                plain.add(cycles, *write);
            }
            start = cycles;
        }
        let mut sum = TimeBins::default();
        parts.iter_mut().for_each(|part| sum.absorb(part));
        assert!(plain.width_cycles > 4096);
        assert_eq!((sum.width_cycles, sum.bins), (plain.width_cycles, plain.bins));
        assert!(parts.iter().all(|part| part.bins.is_empty()));
    }

    #[test]
    fn time_may_go_back() {
        let mut bins = TimeBins::default();
        [5000, 10, 5000].into_iter().for_each(|time| bins.add(time, false));
        assert_eq!((bins.bins[0][0], bins.bins[4][0]), (1, 2));
    }
}

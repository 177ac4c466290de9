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
    /// Counts a record.
    #[inline]
    pub fn add(&mut self, cycles: u64, write: bool) {
        let (end, bin) = self.last;
        if cycles >= end || end - cycles > self.width_cycles {
            self.find(cycles, write);
        } else {
            self.bins[bin][usize::from(write)] += 1;
        }
    }

    #[cold]
    fn find(&mut self, cycles: u64, write: bool) {
        while cycles / self.width_cycles >= BINS as u64 {
            self.width_cycles = self.width_cycles.saturating_mul(2);
            let pairs = self.bins.chunks(2).map(|pair| {
                pair.iter().fold([0, 0], |sum: [u64; 2], bin| [sum[0] + bin[0], sum[1] + bin[1]])
            });
            self.bins = pairs.collect();
        }
        let bin = (cycles / self.width_cycles) as usize;
        if self.bins.len() <= bin {
            self.bins.resize(bin + 1, [0, 0]);
        }
        self.last = ((bin as u64 + 1).saturating_mul(self.width_cycles), bin);
        self.bins[bin][usize::from(write)] += 1;
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

    #[test]
    fn time_may_go_back() {
        let mut bins = TimeBins::default();
        [5000, 10, 5000].into_iter().for_each(|time| bins.add(time, false));
        assert_eq!((bins.bins[0][0], bins.bins[4][0]), (1, 2));
    }
}

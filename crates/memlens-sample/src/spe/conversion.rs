//! From the generic timer's counter to the clock of perf's records.
//!
//! Source: linux/perf_event.h, `struct perf_event_mmap_page`, `time_shift` and what follows (Linux 6.12), which perf copies
//! into `PERF_RECORD_TIME_CONV`.

use crate::spe::words::Words;

/// The two clocks, as the kernel describes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeConversion {
    shift: u32,
    mult: u64,
    zero: u64,
    /// Where the counter has fewer bits than a word: the counter at a time near those that are converted, and its bits.
    short: Option<(u64, u64)>,
}

impl TimeConversion {
    /// That of a `PERF_RECORD_TIME_CONV`, from what follows its header; None: it is cut off, or means nothing.
    pub fn read(body: &[u8]) -> Option<Self> {
        let mut words = Words(body);
        let (shift, mult, zero) = (words.u64()?, words.u64()?, words.u64()?);
        let shift = u32::try_from(shift).ok().filter(|&shift| shift < u64::BITS)?;
        // Before Linux 5.10 the record ended here.
        let short = || Some((words.u64()?, words.u64()?, words.u64()?.to_le_bytes()));
        let short = { short }().filter(|(.., [_, is_short, ..])| *is_short != 0);
        let short = short.map(|(cycles, mask, _)| (cycles, mask));
        (mult != 0).then_some(Self { shift, mult, zero, short })
    }

    /// Nanoseconds of perf's clock when the counter was so.
    pub fn nanoseconds(&self, counter: u64) -> u64 {
        let counter = match self.short {
            Some((cycles, mask)) => cycles.wrapping_add(counter.wrapping_sub(cycles) & mask),
            None => counter,
        };
        let passed = (u128::from(counter) * u128::from(self.mult)) >> self.shift;
        self.zero.wrapping_add(passed as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_counter_of_40_ns_is_nanoseconds() {
        // 25 MHz: 40 ns a tick.
        let conversion = TimeConversion::read(&body(&[8, 40 << 8, 1000])).expect("whole");
        assert_eq!((conversion.nanoseconds(0), conversion.nanoseconds(5)), (1000, 1200));
        // No overflow on the way: 2^60 × 10,240.
        assert_eq!(conversion.nanoseconds(1 << 60), 1000u64.wrapping_add(40 << 60));
        // 8 bits of the counter, which was 0x1f0 not long ago.
        let flags = u64::from_le_bytes([1, 1, 0, 0, 0, 0, 0, 0]);
        let short = TimeConversion::read(&body(&[0, 1, 0, 0x1f0, 0xff, flags])).expect("whole");
        assert_eq!((short.nanoseconds(0xf1), short.nanoseconds(0x02)), (0x1f1, 0x202));
        assert_eq!(TimeConversion::read(&body(&[0, 1])), None);
        assert_eq!(TimeConversion::read(&body(&[64, 1, 0])), None);
        assert_eq!(TimeConversion::read(&body(&[0, 0, 0])), None);
    }
}

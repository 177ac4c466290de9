//! Which of a burst's lines a hardware prefetcher would have asked for before they were used.
//!
//! It looks at first-level misses, which a burst does not have. Uses of lines that were not used lately stand in for them:
//! the part of these that is covered is taken for the part of the misses.

use memlens_locality::Lately;
use memlens_sim::Prefetcher;

/// As many lines as a first level of 32 KiB has.
const LATELY: usize = 512;

/// The lines that a core used lately, and its prefetcher, during a burst.
#[derive(Debug)]
pub struct Prefetching {
    lately: Lately,
    /// None: the machine has none.
    prefetcher: Option<Prefetcher>,
}

/// Uses of lines that were not used lately.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lines {
    used: u64,
    covered: u64,
}

impl Lines {
    /// Counts one. `is_covered`: it was asked for before.
    pub fn add(&mut self, is_covered: bool) {
        self.used += 1;
        self.covered += u64::from(is_covered);
    }

    /// The part of them that was asked for before.
    pub fn covered_part(&self) -> f64 {
        self.covered as f64 / self.used.max(1) as f64
    }
}

impl Prefetching {
    /// Of a machine with so many streams, 0 if it has no prefetcher, and lines of so many bytes, a power of two.
    pub fn new(streams: u32, line_bytes: u32) -> Self {
        Self {
            lately: Lately::new(LATELY, line_bytes),
            prefetcher: (streams > 0).then(|| Prefetcher::new(streams, line_bytes)),
        }
    }

    /// A burst begins: what happened since the one before is not known.
    pub fn begin(&mut self) {
        self.lately.clear();
        self.prefetcher.iter_mut().for_each(Prefetcher::clear);
    }

    /// An access. Whether its line was asked for before; None: it was used lately.
    #[inline]
    pub fn access(&mut self, address: u64) -> Option<bool> {
        let ask = || self.prefetcher.as_mut().is_some_and(|prefetcher| prefetcher.miss(address));
        self.lately.is_new(address).then(ask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_covered_and_leaps_are_not() {
        let mut none = Prefetching::new(0, 64);
        assert_eq!(
            [0, 8, 64, 128, 192].map(|at| none.access(at)),
            [Some(false), None, Some(false), Some(false), Some(false)]
        );
        let mut prefetching = Prefetching::new(32, 64);
        let mut part = |addresses: &mut dyn Iterator<Item = u64>| {
            prefetching.begin();
            let mut lines = Lines::default();
            addresses.filter_map(|address| prefetching.access(address)).for_each(|is| lines.add(is));
            lines.covered_part()
        };
        // Words in order, with a counter of the same page written at each: two of a page's 64 lines are not covered.
        let mut stream = (0..64 * 1024).flat_map(|at| [0x10_0000 + 8 * at, 0x10_0000]);
        assert!((part(&mut stream) - 62.0 / 64.0).abs() < 0.01);
        // Four arrays side by side.
        let mut arrays = (0..64 * 1024).flat_map(|at| [1, 2, 3, 4].map(|array| (array << 21) + 8 * at));
        assert!((part(&mut arrays) - 62.0 / 64.0).abs() < 0.02);
        let mut leaps = (0..10_000u64).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20);
        assert!(part(&mut leaps) < 0.01);
        assert_eq!(part(&mut std::iter::empty()), 0.0);
    }
}

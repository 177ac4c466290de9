//! What is asked about: caches and TLBs.

/// A cache or TLB: `blocks` lines (or pages) of `block_bytes`, in sets of `ways`, replaced by LRU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a line, or of a page; a power of two.
    pub block_bytes: u32,
    /// Lines or entries in all.
    pub blocks: u64,
    /// Lines of a set; `blocks` or more: fully associative.
    pub ways: u32,
}

impl Geometry {
    /// A cache of so many bytes.
    pub fn cache(bytes: u64, ways: u32, line_bytes: u32) -> Self {
        Self { block_bytes: line_bytes, blocks: bytes / u64::from(line_bytes), ways }
    }

    /// A TLB of so many entries.
    pub fn tlb(entries: u32, ways: u32, page_bytes: u32) -> Self {
        Self { block_bytes: page_bytes, blocks: u64::from(entries), ways }
    }

    /// What makes the geometry unusable, in words that read after "the geometry has".
    pub(crate) fn fault(&self) -> Option<&'static str> {
        if !self.block_bytes.is_power_of_two() {
            Some("blocks whose size is no power of two")
        } else if self.blocks == 0 || self.ways == 0 {
            Some("no blocks")
        } else {
            None
        }
    }

    /// Number of sets; not whole where the ways do not divide the blocks.
    pub(crate) fn sets(&self) -> f64 {
        if u64::from(self.ways) >= self.blocks { 1.0 } else { self.blocks as f64 / f64::from(self.ways) }
    }

    /// Sets, as far as a block's lowest bits decide between them: a power of two.
    pub(crate) fn even_sets(&self) -> u64 {
        let ways = u64::from(self.ways);
        if ways >= self.blocks || !self.blocks.is_multiple_of(ways) {
            return 1;
        }
        1 << (self.blocks / ways).trailing_zeros()
    }

    /// The probability that a block is gone when `distance` other blocks were used since its last use.
    ///
    /// Fully associative: 0 or 1. Else the others are taken to fall into sets independently and uniformly, so that
    /// the number in the block's own set is Poisson with mean distance ÷ sets, and the block is gone if it is at
    /// least `ways` (A. J. Smith, A Comparative Study of Set Associative Memory Mapping Algorithms and Their Use
    /// for Cache and Main Memory, IEEE TSE 4(2), 1978; M. D. Hill, A. J. Smith, Evaluating Associativity in CPU
    /// Caches, IEEE TC 38(12), 1989, section 4; there binomial, which for the numbers of sets of caches differs in
    /// the third digit).
    pub(crate) fn miss_probability(&self, distance: f64) -> f64 {
        if u64::from(self.ways) >= self.blocks {
            return f64::from(u8::from(distance >= self.blocks as f64));
        }
        let mean = distance.max(0.0) / self.sets();
        if mean > f64::from(self.ways) * 4.0 + 50.0 {
            return 1.0;
        }
        let mut term = (-mean).exp();
        let mut fewer = term;
        for others in 1..self.ways {
            term *= mean / f64::from(others);
            fewer += term;
        }
        (1.0 - fewer).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_soften_the_edge_of_a_cache() {
        let full = Geometry { block_bytes: 64, blocks: 512, ways: 512 };
        assert_eq!((full.miss_probability(511.0), full.miss_probability(512.0)), (0.0, 1.0));
        let sets = Geometry { ways: 8, ..full };
        // Poisson with mean 8: P(X >= 8) = 0.5470 (any table); with mean 4: 0.0511; with mean 16: 0.9900.
        for (distance, probability) in [(512.0, 0.5470), (256.0, 0.0511), (1024.0, 0.9900)] {
            assert!((sets.miss_probability(distance) - probability).abs() < 1e-4, "{distance}");
        }
        assert!(sets.miss_probability(1e9) == 1.0 && sets.miss_probability(0.0) < 1e-12);
    }
}

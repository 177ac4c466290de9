//! Which lines and pages were used lately: what stands in for caches and TLBs where some accesses are seen and none of them is modelled.

/// As many blocks in a set as a first level has.
const WAYS: usize = 8;
/// No block has this number.
const NONE: u64 = u64::MAX;

/// The blocks that were used last. Which set one is in is drawn by its number: by the lowest bits of it, arrays that lie multiples of 2 MiB apart would
/// have the same.
#[derive(Clone, Debug)]
pub struct Lately {
    block_shift: u32,
    /// The most recent block of a set comes first; as many sets as a power of two has.
    sets: Vec<[u64; WAYS]>,
}

impl Lately {
    /// None yet, with room for about so many of so many bytes each, a power of two.
    pub fn new(blocks: usize, block_bytes: u32) -> Self {
        let sets = (blocks / WAYS).max(1).next_power_of_two();
        Self { block_shift: block_bytes.max(1).trailing_zeros(), sets: vec![[NONE; WAYS]; sets] }
    }

    /// What was used is not known any more.
    pub fn clear(&mut self) {
        self.sets.fill([NONE; WAYS]);
    }

    /// An access. Whether its block was not used lately.
    #[inline]
    pub fn is_new(&mut self, address: u64) -> bool {
        let block = address >> self.block_shift;
        // Multiplicative hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
        let set = (block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (self.sets.len() - 1);
        let blocks = &mut self.sets[set];
        if blocks[0] == block {
            return false;
        }
        let found = blocks.iter().position(|&used| used == block);
        // The one that goes is that which was not used for longest.
        blocks[..=found.unwrap_or(WAYS - 1)].rotate_right(1);
        blocks[0] = block;
        found.is_none()
    }
}

/// Of how much stand-ins have room, up to a quarter of a million in each level. Units: blocks; 0: there is no such level.
#[derive(Clone, Copy, Debug, Default)]
pub struct StandInSizes {
    /// Bytes of a line, a power of two.
    pub line_bytes: u32,
    /// Bytes of a page, a power of two.
    pub page_bytes: u32,
    /// Lines of the first level …
    pub l1: u64,
    /// … the second …
    pub l2: u64,
    /// … and the last.
    pub llc: u64,
    /// Pages of the first TLB …
    pub dtlb: u64,
    /// … and the second.
    pub stlb: u64,
}

/// Blocks of a level that are remembered: 2 MB.
const MOST_BLOCKS: u64 = 1 << 18;

/// Levels of [`StandIns`]: three caches, two TLBs.
pub const STAND_INS: usize = 5;

/// What stands in for the levels of a machine, to tell which accesses miss more than others. They see a part of the accesses, and hold longer for that what
/// no other takes the place of: so what is told is which are likely to miss, and not how many.
#[derive(Clone, Debug)]
pub struct StandIns {
    caches: [Option<Lately>; 3],
    tlbs: [Option<Lately>; 2],
}

/// What an access that hits counts in a level beside one that misses: where nothing misses there, those that miss in the level before decide, else all.
const OF_A_HIT: f64 = 1.0 / 1024.0;

impl StandIns {
    /// Nothing was used yet.
    pub fn new(sizes: &StandInSizes) -> Self {
        let of = |blocks: u64, bytes: u32| {
            (blocks > 0).then(|| Lately::new(blocks.min(MOST_BLOCKS) as usize, bytes))
        };
        Self {
            caches: [sizes.l1, sizes.l2, sizes.llc].map(|lines| of(lines, sizes.line_bytes)),
            tlbs: [sizes.dtlb, sizes.stlb].map(|pages| of(pages, sizes.page_bytes)),
        }
    }

    /// An access: how likely it is beside others to miss in each level, 0 to 1.
    #[inline]
    pub fn access(&mut self, address: u64) -> [f64; STAND_INS] {
        let mut likely = [OF_A_HIT; STAND_INS];
        let (of_caches, of_tlbs) = likely.split_at_mut(3);
        miss(&mut self.caches, of_caches, address);
        miss(&mut self.tlbs, of_tlbs, address);
        likely
    }
}

/// An access to the levels of a hierarchy, each of which is asked for what the one before does not have.
#[inline]
fn miss(levels: &mut [Option<Lately>], likely: &mut [f64], address: u64) {
    let mut has_missed = true;
    let mut of_a_hit = OF_A_HIT;
    for (level, likely) in levels.iter_mut().zip(likely) {
        has_missed = has_missed && level.as_mut().is_none_or(|level| level.is_new(address));
        *likely = if has_missed { 1.0 } else { of_a_hit };
        // Nearer to missing in the next than what has hit before.
        of_a_hit = if has_missed { OF_A_HIT } else { of_a_hit * OF_A_HIT };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_new_when_others_have_come_between() {
        let mut lately = Lately::new(512, 64);
        let mut new = |addresses: &mut dyn Iterator<Item = u64>| {
            addresses.filter(|&address| lately.is_new(address)).count()
        };
        assert_eq!(new(&mut [0, 8, 63, 64, 0].into_iter()), 2);
        // A hundred lines stay, thousands do not.
        let mut rounds = |lines: u64| new(&mut (0..10 * lines).map(|at| 0x10_0000 + at % lines * 64));
        assert!(rounds(100) <= 110);
        assert!(rounds(10_000) > 90_000);
        lately.clear();
        assert!(lately.is_new(0));
    }

    #[test]
    fn what_one_level_holds_misses_before_it() {
        let sizes = StandInSizes {
            line_bytes: 64,
            page_bytes: 4096,
            l1: 512,
            l2: 16_384,
            llc: 0,
            dtlb: 64,
            stlb: 2048,
        };
        let mut levels = StandIns::new(&sizes);
        // 256 KiB at random, a part of it in each round.
        let mut random = 1_u64;
        let mut last = [0.0; STAND_INS];
        for at in 0..100_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let likely = levels.access(0x100_0000 + (random >> 40) % (256 << 10));
            if at >= 90_000 {
                last.iter_mut().zip(likely).for_each(|(sum, likely)| *sum += likely / 10_000.0);
            }
        }
        let [l1, l2, llc, dtlb, stlb] = last;
        assert!(l1 > 0.8 && l2 < 0.01 && llc < l2, "{last:?}");
        assert!(dtlb < 0.1 && stlb < 0.01, "{last:?}");
        // Lines that nobody has used, of pages that nobody has.
        assert_eq!(levels.access(0x8000_0000), [1.0; STAND_INS]);
    }
}

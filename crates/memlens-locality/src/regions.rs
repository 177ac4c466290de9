//! Since when there has been data at a place, as far as bursts tell.
//!
//! A block that no burst had before was not used in all of the time seen, if it was there. Data that a program makes as it
//! goes on was not: of a tree that grows, the youngest nodes would seem to be used the most seldom. Blocks that lie side
//! by side mostly came together, so that one is taken to be as old as the first use of any around it.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

/// Blocks of a region, as a power of two: the lines of a page, or the pages of 256 KB.
const SHIFT: u32 = 6;
/// Regions known of each size of block, at most, in a table of 4.5 MB. Others are taken to have been there from the beginning.
const MOST: usize = (1 << 18) / 8 * 7;

/// When each region was seen first.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    first_seen: FxHashMap<u64, u64>,
}

impl Regions {
    /// No burst had the block with this key before, which is used `now`: since when it has not been used, of the time
    /// seen. Since its begin, if nothing around it was used before the present window, which began at `window`: it may have been
    /// there for long, and to be new counts as a miss.
    pub(crate) fn unused_since(&mut self, key: u64, now: u64, window: u64) -> u64 {
        let is_full = self.first_seen.len() >= MOST;
        match self.first_seen.entry(key >> SHIFT) {
            Entry::Occupied(first) if *first.get() < window => *first.get(),
            Entry::Vacant(region) if !is_full => {
                region.insert(now);
                0
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_as_old_as_what_lies_around_it() {
        let mut regions = Regions::default();
        assert_eq!(regions.unused_since(64, 1000, 900), 0, "nothing is known around it");
        assert_eq!(regions.unused_since(65, 1010, 900), 0, "that was in the same window");
        assert_eq!(regions.unused_since(66, 5000, 4900), 1000, "since a neighbour was used first");
        assert_eq!(regions.unused_since(67, 5010, 4900), 1000);
        assert_eq!(regions.unused_since(128, 5020, 4900), 0, "another region");
    }
}

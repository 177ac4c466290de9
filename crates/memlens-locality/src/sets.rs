//! What a set of a cache holds, inside a window.
//!
//! Smith's rule ([`Geometry::miss_probability`]) has blocks fall into sets at random. Walks by columns do not: steps of a page come back to
//! one set of a first level. Reuses inside of a burst need no rule: what else fell into the set in the meantime has been seen.

use crate::geometry::Geometry;

/// A set's last blocks, as many as it has ways, and when they were used last, as far as that is known here.
#[derive(Clone, Debug)]
pub(crate) struct Sets {
    ways: usize,
    sets: u64,
    /// Of each block so many bits that two of a set hardly agree in them: what is compared first.
    tags: Vec<u32>,
    blocks: Vec<u64>,
    times: Vec<u64>,
    /// In which window each set was used last.
    windows: Vec<u32>,
    window: u32,
}

const NONE: u64 = u64::MAX;

impl Sets {
    /// Levels with more blocks than this hold all of a burst.
    const MOST_BLOCKS: u64 = 1 << 15;
    /// Of a set. More are as good as all.
    const MOST_WAYS: u32 = 32;

    /// None of a level that is fully associative, or as good as that.
    pub(crate) fn of(geometry: &Geometry) -> Option<Self> {
        let sets = geometry.blocks / u64::from(geometry.ways);
        if sets < 2 || geometry.ways > Self::MOST_WAYS || geometry.blocks > Self::MOST_BLOCKS {
            return None;
        }
        let ways = geometry.ways as usize;
        let places = sets as usize * ways;
        Some(Self {
            ways,
            sets,
            tags: vec![0; places],
            blocks: vec![NONE; places],
            times: vec![0; places],
            windows: vec![0; sets as usize],
            window: 1,
        })
    }

    /// Whether what a set of this level holds, one of the other does, too.
    pub(crate) fn are_within(&self, other: &Self) -> bool {
        other.sets.is_multiple_of(self.sets) && other.ways >= self.ways
    }

    /// A window begins: nothing has been used in it.
    pub(crate) fn begin_window(&mut self) {
        match self.window.checked_add(1) {
            Some(next) => self.window = next,
            None => {
                self.windows.fill(0);
                self.window = 1;
            }
        }
    }

    /// Takes in that a block is used now, and tells whether its set did not hold it. `last_use`: when a block was used last, if it was
    /// a moment ago: uses behind others of the same block are not all told here.
    #[inline]
    pub(crate) fn misses(&mut self, block: u64, now: u64, last_use: impl Fn(u64) -> Option<u64>) -> bool {
        let set =
            if self.sets.is_power_of_two() { block & (self.sets - 1) } else { block % self.sets } as usize;
        let places = set * self.ways..(set + 1) * self.ways;
        let (tags, times) = (&mut self.tags[places.clone()], &mut self.times[places.clone()]);
        let blocks = &mut self.blocks[places];
        if self.windows[set] != self.window {
            self.windows[set] = self.window;
            tags.fill(0);
            blocks.fill(NONE);
            times.fill(0);
        }
        // Never 0.
        let tag = (block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 | 1;
        let found = tags.iter().enumerate().fold(0u32, |found, (at, &it)| found | u32::from(it == tag) << at);
        if found != 0 {
            times[found.trailing_zeros() as usize] = now;
            return false;
        }
        // The one used longest ago by what is known here goes, if that is all.
        let mut oldest = 0;
        for _ in 0..=blocks.len() {
            oldest = (0..times.len()).min_by_key(|&at| times[at]).unwrap_or(0);
            let known = times[oldest];
            if blocks[oldest] == NONE {
                break;
            }
            match last_use(blocks[oldest]).filter(|&time| time > known) {
                Some(time) => times[oldest] = time,
                None => break,
            }
        }
        (tags[oldest], blocks[oldest], times[oldest]) = (tag, block, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(ways: u32) -> Sets {
        Sets::of(&Geometry { block_bytes: 64, blocks: 64 * u64::from(ways), ways }).expect("sets")
    }

    #[test]
    fn a_set_holds_as_many_as_it_has_ways() {
        let mut sets = watched(4);
        let mut uses = std::collections::HashMap::new();
        let mut round = |blocks: u64, step: u64, begins: u64| {
            let mut used = |block: u64, now| {
                let misses = sets.misses(block, now, |block| uses.get(&block).copied());
                uses.insert(block, now);
                misses
            };
            (0..blocks).filter(|&block| used(block * step, begins + block + 1)).count()
        };
        // All into set 0: four of them stay, and of five none.
        assert_eq!((round(4, 64, 0), round(4, 64, 100), round(5, 64, 200), round(5, 64, 300)), (4, 0, 1, 5));
        // One set behind the other.
        sets.begin_window();
        let mut round = |begins: u64| {
            (0..256u64).filter(|&block| sets.misses(block * 65, begins + block + 1, |_| None)).count()
        };
        assert_eq!((round(1000), round(2000)), (256, 0));
    }

    #[test]
    fn what_is_used_all_the_time_stays_though_nobody_tells() {
        let mut sets = watched(2);
        let of_hot = |now: u64| move |block| (block == 64).then_some(2 * now - 1);
        assert!(sets.misses(64, 1, |_| None));
        // Block 64 is used in between, again and again: the others push out each other.
        for now in 2..100 {
            assert!(sets.misses(128 * now, 2 * now, of_hot(now)));
        }
        assert!(!sets.misses(64, 200, |_| None));
    }

    #[test]
    fn levels_without_sets_are_not_watched() {
        assert!(Sets::of(&Geometry { block_bytes: 64, blocks: 512, ways: 512 }).is_none());
        assert!(Sets::of(&Geometry { block_bytes: 64, blocks: 1 << 20, ways: 16 }).is_none());
    }

    #[test]
    fn a_level_of_more_sets_and_ways_holds_what_one_of_fewer_does() {
        let sets =
            |sets: u64, ways| Sets::of(&Geometry { block_bytes: 64, blocks: sets * u64::from(ways), ways });
        let within = |one, other| Some(sets(one, 8)?.are_within(&sets(other, 8)?));
        assert_eq!(
            (within(64, 1024), within(1024, 64), within(64, 96)),
            (Some(true), Some(false), Some(false))
        );
        let fewer = sets(64, 8).zip(sets(1024, 4)).map(|(one, other)| one.are_within(&other));
        assert_eq!(fewer, Some(false));
    }
}

//! How evenly a program's blocks fall into sets.
//!
//! Smith's rule ([`Geometry::miss_probability`]) has blocks fall into sets at random. Structures of 128 bytes of which only the first 64 are
//! used leave every second set empty, and find half of a cache. A block's lowest bits tell: within a page they are the same in virtual and
//! in physical addresses. Counted are blocks by these bits, once each: when they are seen first, or not since long.

use std::collections::BTreeMap;

use crate::geometry::Geometry;
use crate::phases::Phases;

/// Lines of a page of 4 KiB. Levels with more sets have so many of them with the same lowest bits.
const GROUPS: usize = 64;
/// Blocks that are taken to be spread evenly, besides all that are seen: some dozens are uneven by chance.
const EVEN: f64 = 1024.0;
/// Blocks of a phase that are taken to be as all phases' are.
const USUAL: f64 = 256.0;
/// References seen since its last use after which a block counts again: what is used all the time is little, and would count in each burst.
const LONG: u64 = 1 << 17;

/// Blocks of one window by their lowest bits.
#[derive(Clone, Debug)]
pub(crate) struct Counts([u32; GROUPS]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; GROUPS])
    }
}

impl Counts {
    /// A block is the first of its window, and was used `unused_for` references ago; None: no window had it.
    #[inline]
    pub(crate) fn add(&mut self, block: u64, unused_for: Option<u64>) {
        if unused_for.is_none_or(|time| time >= LONG) {
            self.0[block as usize % GROUPS] += 1;
        }
    }
}

/// Blocks of one size, by phase.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    of: Box<[[f64; GROUPS]; Phases::MOST]>,
}

impl Default for Groups {
    fn default() -> Self {
        Self { of: Box::new([[0.0; GROUPS]; Phases::MOST]) }
    }
}

impl Groups {
    /// Counts those of a window.
    pub(crate) fn add(&mut self, phase: usize, window: &Counts) {
        self.of[phase].iter_mut().zip(window.0).for_each(|(sum, count)| *sum += f64::from(count));
    }

    /// Of all phases together.
    pub(crate) fn all(&self) -> Evenness {
        let mut sums = [0.0; GROUPS];
        for phase in self.of.iter() {
            sums.iter_mut().zip(phase).for_each(|(sum, count)| *sum += count);
        }
        Evenness::of(&sums, &Evenness::default(), EVEN)
    }

    /// Of one phase. `all`: of all.
    pub(crate) fn of(&self, phase: usize, all: &Evenness) -> Evenness {
        Evenness::of(&self.of[phase], all, USUAL)
    }
}

/// Parts of the blocks by their lowest bits, 1 in all.
#[derive(Clone, Debug)]
pub(crate) struct Evenness {
    parts: [f64; GROUPS],
}

impl Default for Evenness {
    /// All alike.
    fn default() -> Self {
        Self { parts: [1.0 / GROUPS as f64; GROUPS] }
    }
}

impl Evenness {
    fn of(counts: &[f64; GROUPS], usual: &Self, usual_blocks: f64) -> Self {
        let all = counts.iter().sum::<f64>() + usual_blocks;
        let part = |group: usize| (counts[group] + usual_blocks * usual.parts[group]) / all;
        Self { parts: std::array::from_fn(part) }
    }

    /// Which sets of a level they go to.
    pub(crate) fn among(&self, geometry: &Geometry) -> Crowding {
        let groups = (geometry.even_sets() as usize).min(GROUPS);
        let mut parts = vec![0.0; groups];
        self.parts.iter().enumerate().for_each(|(group, part)| parts[group % groups] += part);
        // Half octaves of crowding: 16 of them for each of 64 groups would only take time.
        let step = |density: f64| (2.0 * density.max(1.0 / 16.0).log2()).round() as i32;
        let mut by_step: BTreeMap<i32, (f64, f64)> = BTreeMap::new();
        for part in parts {
            let density = part * groups as f64;
            let sums = by_step.entry(step(density)).or_default();
            *sums = (sums.0 + part, sums.1 + part * density);
        }
        let classes = by_step.into_values().filter(|(part, _)| *part > 0.0);
        Crowding { classes: classes.map(|(part, weighted)| (part, weighted / part)).collect() }
    }
}

/// How crowded the sets of a level are that blocks go to: parts of the blocks, and how many times as many others their sets get as if
/// all were alike.
#[derive(Clone, Debug)]
pub(crate) struct Crowding {
    classes: Vec<(f64, f64)>,
}

impl Crowding {
    /// As [`Geometry::miss_probability`].
    pub(crate) fn miss_probability(&self, geometry: &Geometry, distance: f64) -> f64 {
        let parts = self.classes.iter();
        let sum: f64 = parts.map(|&(part, times)| part * geometry.miss_probability(times * distance)).sum();
        // The parts are 1 but for rounding.
        sum.min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(blocks: impl Iterator<Item = u64>) -> Groups {
        let (mut counts, mut groups) = (Counts::default(), Groups::default());
        blocks.for_each(|block| counts.add(block, None));
        groups.add(0, &counts);
        groups
    }

    const LEVEL: Geometry = Geometry { block_bytes: 64, blocks: 16 << 10, ways: 16 };

    #[test]
    fn every_second_block_finds_half_of_a_cache() {
        let miss = |groups: &Groups, distance| groups.all().among(&LEVEL).miss_probability(&LEVEL, distance);
        let (all, second) = (groups(0..200_000), groups((0..200_000).map(|block| 2 * block)));
        for distance in [4000.0, 8000.0, 12_000.0, 16_000.0, 24_000.0] {
            let half = Geometry { blocks: LEVEL.blocks / 2, ..LEVEL };
            let [even, uneven] = [&all, &second].map(|groups| miss(groups, distance));
            assert!((even - LEVEL.miss_probability(distance)).abs() < 0.01, "{distance} {even}");
            assert!((uneven - half.miss_probability(distance)).abs() < 0.02, "{distance} {uneven}");
        }
    }

    #[test]
    fn few_blocks_say_nothing() {
        let few = groups((0..30).map(|block| 4 * block));
        let miss = few.all().among(&LEVEL).miss_probability(&LEVEL, 12_000.0);
        assert!((miss - LEVEL.miss_probability(12_000.0)).abs() < 0.04, "{miss}");
        // A phase of which little is known is as all are.
        let second = groups((0..200_000).map(|block| 2 * block));
        let all = second.all();
        assert!((second.of(1, &all).parts[2] - all.parts[2]).abs() < 1e-9);
    }

    #[test]
    fn what_is_used_all_the_time_counts_once() {
        let mut counts = Counts::default();
        [None, Some(1000), Some(LONG), Some(5)].into_iter().for_each(|before| counts.add(3, before));
        assert_eq!(counts.0[3], 2);
    }

    #[test]
    fn levels_of_fewer_sets_have_fewer_groups() {
        let sets = |sets: u64| Geometry { block_bytes: 4096, blocks: sets * 12, ways: 12 };
        // Numbers that end in 0000: all in one of 16 sets, and in four of 64.
        let groups = groups((0..400_000).map(|block| 16 * block));
        let times = |level: &Geometry| {
            groups.all().among(level).classes.iter().map(|&(part, times)| part * times).sum::<f64>()
        };
        assert!((15.5..16.0).contains(&times(&sets(16))), "{}", times(&sets(16)));
        assert!((15.5..16.0).contains(&times(&sets(64))));
        // Of 48 sets the sixteen groups that all multiples share.
        assert!((15.5..16.0).contains(&times(&sets(48))));
        let whole = Geometry { block_bytes: 4096, blocks: 72, ways: 72 };
        assert!((0.999..1.001).contains(&times(&whole)));
    }
}

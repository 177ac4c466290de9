//! One cache: sets of full line addresses in recency order.

use crate::machine::CacheDescription;
use crate::simd::{Kernel, LANE_FLAGS, Lanes, NO_WORD};
use alloc::vec;
use alloc::vec::Vec;

/// The line differs from the next level.
pub(super) const DIRTY: u64 = 1;
/// No other core has the line: a write needs to ask nobody. Of no meaning in the last level.
pub(super) const SOLE: u64 = 2;
const FLAGS: u32 = LANE_FLAGS.count_ones();

/// A line address of a word.
#[inline(always)]
pub(super) fn line_of(word: u64) -> u64 {
    word >> FLAGS
}

/// Words are `line address << 2 | flags`, most recent first; empty ways ([`NO_WORD`]) come last. A set
/// is a whole number of groups of eight words, so that it never shares a cache line of the host with
/// another one; lanes beyond the ways stay empty.
#[derive(Clone, Debug)]
pub(super) struct Sets {
    groups: Vec<Lanes>,
    groups_per_set: usize,
    /// The last way's lane in the last group of its set.
    last_lane: u32,
    sets: u64,
    /// Number of sets − 1 where that is a mask.
    mask: Option<u64>,
}

impl Sets {
    pub(super) fn new(cache: &CacheDescription) -> Self {
        let (sets, ways) = (cache.sets(), cache.ways as usize);
        let groups_per_set = ways.div_ceil(8);
        Self {
            groups: vec![Lanes([NO_WORD; 8]); sets as usize * groups_per_set],
            groups_per_set,
            last_lane: (ways as u32 - 1) % 8,
            sets,
            mask: sets.is_power_of_two().then(|| sets - 1),
        }
    }

    #[inline(always)]
    fn first_group(&self, line: u64) -> usize {
        let set = match self.mask {
            Some(mask) => line & mask,
            None => line % self.sets,
        };
        set as usize * self.groups_per_set
    }

    #[inline(always)]
    fn set(&mut self, line: u64) -> &mut [Lanes] {
        let first = self.first_group(line);
        &mut self.groups[first..first + self.groups_per_set]
    }

    /// The word of the line that was used last in the set of `line`, or [`NO_WORD`].
    #[inline(always)]
    pub(super) fn most_recent(&mut self, line: u64) -> &mut u64 {
        let first = self.first_group(line);
        &mut self.groups[first].0[0]
    }

    /// Uses a line that is there and adds flags to it. Returns its word before.
    #[inline(always)]
    pub(super) fn lookup<K: Kernel>(&mut self, kernel: K, line: u64, flags: u64) -> Option<u64> {
        let set = self.set(line);
        let (group, lane) = find(kernel, set, line)?;
        let word = set[group].0[lane as usize & 7];
        to_front(kernel, set, group, lane, word | flags);
        Some(word)
    }

    /// Uses a line if it is there and a write, if it is one, needs to ask no other core. Returns whether
    /// it did.
    #[inline(always)]
    pub(super) fn use_here<K: Kernel>(&mut self, kernel: K, line: u64, write: bool) -> bool {
        let set = self.set(line);
        let Some((group, lane)) = find(kernel, set, line) else { return false };
        let word = set[group].0[lane as usize & 7];
        if write && word & (DIRTY | SOLE) == 0 {
            return false;
        }
        to_front(kernel, set, group, lane, word | if write { DIRTY | SOLE } else { 0 });
        true
    }

    /// Puts a line in that is not there. Returns the word that it replaced, if any.
    #[inline(always)]
    pub(super) fn fill<K: Kernel>(&mut self, kernel: K, line: u64, flags: u64) -> Option<u64> {
        let last_lane = self.last_lane;
        let mut moving = line << FLAGS | flags;
        let (last, above) = self.set(line).split_last_mut()?;
        for group in above {
            moving = kernel.push_front(group, 7, moving);
        }
        let replaced = kernel.push_front(last, last_lane, moving);
        (replaced != NO_WORD).then_some(replaced)
    }

    /// Looks at a line without using it.
    #[inline(always)]
    pub(super) fn peek<K: Kernel>(&mut self, kernel: K, line: u64) -> Option<&mut u64> {
        let set = self.set(line);
        let (group, lane) = find(kernel, set, line)?;
        Some(&mut set[group].0[lane as usize & 7])
    }

    /// Takes a line out. Returns its word.
    #[inline(always)]
    pub(super) fn remove<K: Kernel>(&mut self, kernel: K, line: u64) -> Option<u64> {
        let set = self.set(line);
        let (group, lane) = find(kernel, set, line)?;
        let word = set[group].0[lane as usize & 7];
        for at in group..set.len() {
            let first = if at == group { lane } else { 0 };
            let next = set.get(at + 1).map_or(NO_WORD, |group| group.0[0]);
            kernel.close_gap(&mut set[at], first, next);
        }
        Some(word)
    }

    /// All lines, in no order.
    pub(super) fn lines(&self) -> impl Iterator<Item = u64> {
        self.groups.iter().flat_map(|group| group.0).filter(|&word| word != NO_WORD).map(line_of)
    }

    /// Calls `found` for all dirty lines and makes them clean.
    pub(super) fn clean(&mut self, mut found: impl FnMut(u64)) {
        for word in self.groups.iter_mut().flat_map(|group| &mut group.0) {
            if *word != NO_WORD && *word & DIRTY != 0 {
                found(line_of(*word));
                *word &= !DIRTY;
            }
        }
    }
}

/// Group and lane of a line.
#[inline(always)]
fn find<K: Kernel>(kernel: K, set: &[Lanes], line: u64) -> Option<(usize, u32)> {
    for (group, lanes) in set.iter().enumerate() {
        let found = kernel.lanes_of(lanes, line << FLAGS);
        if found != 0 {
            return Some((group, found.trailing_zeros()));
        }
    }
    None
}

/// Makes the line in a lane the most recent one, with a new word.
#[inline(always)]
fn to_front<K: Kernel>(kernel: K, set: &mut [Lanes], group: usize, lane: u32, word: u64) {
    let mut moving = word;
    for above in &mut set[..group] {
        moving = kernel.push_front(above, 7, moving);
    }
    kernel.push_front(&mut set[group], lane, moving);
}

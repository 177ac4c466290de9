//! One cache of the staged engine: sets of 32-bit words in recency order.

use crate::machine::CacheDescription;
use crate::simd::{EMPTY, Kernel, Set8, Set16, Touch, prefetch, touch_slice};
use alloc::vec;
use alloc::vec::Vec;

/// The sets, by the number of lanes that their ways need.
#[derive(Clone, Debug)]
enum Sets {
    Lanes8(Vec<Set8>),
    Lanes16(Vec<Set16>),
    /// More than 16 ways: one after another, without vector instructions.
    Wide(Vec<u32>),
}

#[derive(Clone, Debug)]
pub(super) struct Level {
    sets: Sets,
    number: u64,
    /// log2 of the number of sets where that is a power of two.
    shift: Option<u32>,
    ways: usize,
}

impl Level {
    pub(super) fn new(cache: &CacheDescription) -> Self {
        let number = cache.sets();
        let ways = cache.ways as usize;
        let sets = match ways {
            0..=8 => Sets::Lanes8(vec![Set8([EMPTY; 8]); number as usize]),
            9..=16 => Sets::Lanes16(vec![Set16([EMPTY; 16]); number as usize]),
            _ => Sets::Wide(vec![EMPTY; number as usize * ways]),
        };
        Self { sets, number, shift: number.is_power_of_two().then(|| number.trailing_zeros()), ways }
    }

    /// Set and tag of a compact line address.
    #[inline(always)]
    fn locate(&self, line: u64) -> (usize, u32) {
        match self.shift {
            Some(shift) => ((line & (self.number - 1)) as usize, (line >> shift) as u32),
            None => ((line % self.number) as usize, (line / self.number) as u32),
        }
    }

    /// Uses a line. The replaced dirty line, if any, comes back as its compact address.
    #[inline(always)]
    pub(super) fn touch<K: Kernel>(
        &mut self,
        kernel: K,
        line: u64,
        dirty: u32,
        first_dirty: u32,
    ) -> (bool, Option<u64>) {
        let (set, tag) = self.locate(line);
        let word = tag << 1 | dirty;
        let last_way = self.ways as u32 - 1;
        let Touch { hit, word: old } = match &mut self.sets {
            Sets::Lanes8(sets) => kernel.touch8(&mut sets[set], last_way, word, first_dirty),
            Sets::Lanes16(sets) => kernel.touch16(&mut sets[set], last_way, word, first_dirty),
            Sets::Wide(words) => touch_slice(&mut words[set * self.ways..][..self.ways], word, first_dirty),
        };
        // Empty ways are clean.
        let written = !hit && old & 1 == 1;
        (hit, written.then(|| u64::from(old >> 1) * self.number + set as u64))
    }

    /// Fetches the set of a line that will be touched soon.
    #[inline(always)]
    pub(super) fn prefetch(&self, line: u64) {
        let (set, _) = self.locate(line);
        match &self.sets {
            Sets::Lanes8(sets) => prefetch(&sets[set]),
            Sets::Lanes16(sets) => prefetch(&sets[set]),
            Sets::Wide(words) => prefetch(&words[set * self.ways]),
        }
    }

    /// A set's words, most recent first, empty ways included.
    fn words(&self, set: usize) -> &[u32] {
        match &self.sets {
            Sets::Lanes8(sets) => &sets[set].0[..self.ways],
            Sets::Lanes16(sets) => &sets[set].0[..self.ways],
            Sets::Wide(words) => &words[set * self.ways..][..self.ways],
        }
    }

    fn words_mut(&mut self, set: usize) -> &mut [u32] {
        match &mut self.sets {
            Sets::Lanes8(sets) => &mut sets[set].0[..self.ways],
            Sets::Lanes16(sets) => &mut sets[set].0[..self.ways],
            Sets::Wide(words) => &mut words[set * self.ways..][..self.ways],
        }
    }

    /// Compact addresses and dirty bits of all lines; least recent first within a set.
    pub(super) fn lines(&self) -> impl Iterator<Item = (u64, bool)> {
        (0..self.number as usize).flat_map(move |set| {
            let words = self.words(set).iter().rev().filter(|&&word| word & !1 != EMPTY);
            words.map(move |&word| (u64::from(word >> 1) * self.number + set as u64, word & 1 == 1))
        })
    }

    /// Makes all lines clean.
    pub(super) fn clean(&mut self) {
        for set in 0..self.number as usize {
            self.words_mut(set).iter_mut().for_each(|word| *word &= !1);
        }
    }
}

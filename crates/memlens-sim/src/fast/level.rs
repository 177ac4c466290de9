//! One cache of the staged engine: sets of 32-bit words in recency order.

use crate::simd::{EMPTY, Kernel, Scalar, Set8, Set16, Touch, prefetch, touch_slice};
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

/// Sets of one kind.
pub(super) trait SetArray {
    fn touch<K: Kernel>(
        &mut self,
        kernel: K,
        set: usize,
        last_way: u32,
        word: u32,
        first_dirty: u32,
    ) -> Touch;
    fn prefetch(&self, set: usize);
}

impl SetArray for &mut [Set8] {
    #[inline(always)]
    fn touch<K: Kernel>(
        &mut self,
        kernel: K,
        set: usize,
        last_way: u32,
        word: u32,
        first_dirty: u32,
    ) -> Touch {
        kernel.touch8(&mut self[set], last_way, word, first_dirty)
    }

    #[inline(always)]
    fn prefetch(&self, set: usize) {
        prefetch(&self[set]);
    }
}

impl SetArray for &mut [Set16] {
    #[inline(always)]
    fn touch<K: Kernel>(
        &mut self,
        kernel: K,
        set: usize,
        last_way: u32,
        word: u32,
        first_dirty: u32,
    ) -> Touch {
        kernel.touch16(&mut self[set], last_way, word, first_dirty)
    }

    #[inline(always)]
    fn prefetch(&self, set: usize) {
        prefetch(&self[set]);
    }
}

pub(super) struct WideSets<'a> {
    words: &'a mut [u32],
    ways: usize,
}

impl SetArray for WideSets<'_> {
    #[inline(always)]
    fn touch<K: Kernel>(&mut self, _: K, set: usize, _: u32, word: u32, first_dirty: u32) -> Touch {
        touch_slice(&mut self.words[set * self.ways..][..self.ways], word, first_dirty)
    }

    #[inline(always)]
    fn prefetch(&self, set: usize) {
        prefetch(&self.words[set * self.ways]);
    }
}

/// A level with its numbers at hand, for a loop.
pub(super) struct View<S> {
    sets: S,
    number: u64,
    shift: Option<u32>,
    last_way: u32,
}

impl<S: SetArray> View<S> {
    /// Set and tag of a compact line address.
    #[inline(always)]
    fn locate(&self, line: u64) -> (usize, u32) {
        match self.shift {
            Some(shift) => ((line & (self.number - 1)) as usize, (line >> shift) as u32),
            None => ((line % self.number) as usize, (line / self.number) as u32),
        }
    }

    /// Uses a line: whether it was there, the line whose place it took (meaningless if it was there
    /// or the place was empty), and whether that one must be written back.
    #[inline(always)]
    pub(super) fn touch<K: Kernel>(
        &mut self,
        kernel: K,
        line: u64,
        dirty: u32,
        first_dirty: u32,
    ) -> (bool, u64, bool) {
        let (set, tag) = self.locate(line);
        let Touch { hit, word: old } =
            self.sets.touch(kernel, set, self.last_way, tag << 1 | dirty, first_dirty);
        // Empty ways are clean.
        let written = !hit & (old & 1 == 1);
        (hit, u64::from(old >> 1) * self.number + set as u64, written)
    }

    /// Fetches the set of a line that will be touched soon.
    #[inline(always)]
    pub(super) fn prefetch(&self, line: u64) {
        self.sets.prefetch(self.locate(line).0);
    }
}

/// A loop that is generic over the kind of sets.
pub(super) trait Loop {
    type Output;
    /// Must be `#[inline(always)]`, so that it is compiled for the kernel's instructions.
    fn run<S: SetArray>(self, level: View<S>) -> Self::Output;
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
    pub(super) fn new(number: u64, ways: u32) -> Self {
        let ways = ways as usize;
        let sets = match ways {
            0..=8 => Sets::Lanes8(vec![Set8([EMPTY; 8]); number as usize]),
            9..=16 => Sets::Lanes16(vec![Set16([EMPTY; 16]); number as usize]),
            _ => Sets::Wide(vec![EMPTY; number as usize * ways]),
        };
        Self { sets, number, shift: number.is_power_of_two().then(|| number.trailing_zeros()), ways }
    }

    pub(super) fn sets(&self) -> u64 {
        self.number
    }

    pub(super) fn ways(&self) -> u64 {
        self.ways as u64
    }

    /// Uses a line, and says whether it was there.
    pub(super) fn touch(&mut self, line: u64) -> bool {
        let Self { number, shift, ways, .. } = *self;
        let last_way = ways as u32 - 1;
        match &mut self.sets {
            Sets::Lanes8(sets) => {
                View { sets: &mut sets[..], number, shift, last_way }.touch(Scalar, line, 0, 0).0
            }
            Sets::Lanes16(sets) => {
                View { sets: &mut sets[..], number, shift, last_way }.touch(Scalar, line, 0, 0).0
            }
            Sets::Wide(words) => {
                View { sets: WideSets { words, ways }, number, shift, last_way }.touch(Scalar, line, 0, 0).0
            }
        }
    }

    /// Runs a loop over uses of the level, compiled for the kind of its sets.
    #[inline(always)]
    pub(super) fn run<L: Loop>(&mut self, work: L) -> L::Output {
        let Self { number, shift, ways, .. } = *self;
        let last_way = ways as u32 - 1;
        match &mut self.sets {
            Sets::Lanes8(sets) => work.run(View { sets: &mut sets[..], number, shift, last_way }),
            Sets::Lanes16(sets) => work.run(View { sets: &mut sets[..], number, shift, last_way }),
            Sets::Wide(words) => work.run(View { sets: WideSets { words, ways }, number, shift, last_way }),
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

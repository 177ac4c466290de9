//! One cache of the staged engine: sets of 32-bit words in recency order.

use crate::machine::CacheDescription;
use crate::simd::{EMPTY, Kernel, Scalar, Set8, Set16, Set32, Touch, prefetch, touch_slice};
use alloc::vec;
use alloc::vec::Vec;

/// The sets, by the number of lanes that their ways need.
#[derive(Clone, Debug)]
enum Sets {
    Lanes8(Vec<Set8>),
    Lanes16(Vec<Set16>),
    Lanes32(Vec<Set32>),
    /// More than 32 ways: one after another, without vector instructions.
    Wide(Vec<u32>),
}

/// Sets of one kind.
pub(super) trait SetArray {
    fn touch<K: Kernel>(&mut self, kernel: K, set: usize, last_way: u32, word: u32) -> Touch;
    /// The most recent line's word.
    fn first(&self, set: usize) -> u32;
    fn prefetch(&self, set: usize);
}

/// Sets of vectors, by the operation that uses one. An array's length is known to the loop.
macro_rules! vector_sets {
    ($sets:ty, $touch:ident) => {
        impl SetArray for &mut $sets {
            #[inline(always)]
            fn first(&self, set: usize) -> u32 {
                self[set].0[0]
            }

            #[inline(always)]
            fn touch<K: Kernel>(&mut self, kernel: K, set: usize, last_way: u32, word: u32) -> Touch {
                kernel.$touch(&mut self[set], last_way, word)
            }

            #[inline(always)]
            fn prefetch(&self, set: usize) {
                // A set may be two of the host's lines.
                self[set].0.chunks(16).for_each(|words| prefetch(&words[0]));
            }
        }
    };
}

vector_sets!([Set8], touch8);
vector_sets!([Set8; 64], touch8);
vector_sets!([Set16], touch16);
vector_sets!([Set16; 64], touch16);
vector_sets!([Set32], touch32);

pub(super) struct WideSets<'a> {
    words: &'a mut [u32],
    ways: usize,
}

impl SetArray for WideSets<'_> {
    #[inline(always)]
    fn first(&self, set: usize) -> u32 {
        self.words[set * self.ways]
    }

    #[inline(always)]
    fn touch<K: Kernel>(&mut self, _: K, set: usize, _: u32, word: u32) -> Touch {
        touch_slice(&mut self.words[set * self.ways..][..self.ways], word)
    }

    #[inline(always)]
    fn prefetch(&self, set: usize) {
        prefetch(&self.words[set * self.ways]);
    }
}

/// Where a line belongs, by the number of sets.
pub(super) trait Geometry: Copy {
    /// Set and tag of a compact line address.
    fn locate(self, line: u64) -> (usize, u32);
    /// The line of a set with this tag.
    fn line(self, set: usize, tag: u32) -> u64;
}

/// 64 sets, as most first levels have: constants leave the loop registers.
#[derive(Clone, Copy)]
struct SixtyFour;

/// A power of two of sets, here its logarithm.
#[derive(Clone, Copy)]
struct PowerOfTwo(u32);

/// Any number of sets up to [`MOST_SETS`].
#[derive(Clone, Copy)]
struct AnyNumber {
    sets: u64,
    /// 2^64 divided by it, and one more: a multiplication takes a third of a division's time.
    reciprocal: u64,
}

/// So that compact lines, which have 39 bits, times the error of a reciprocal stay below 2^64.
pub(super) const MOST_SETS: u64 = 1 << 25;

impl AnyNumber {
    fn new(sets: u64) -> Self {
        Self { sets, reciprocal: (u64::MAX / sets).wrapping_add(1) }
    }
}

impl Geometry for SixtyFour {
    #[inline(always)]
    fn locate(self, line: u64) -> (usize, u32) {
        PowerOfTwo(6).locate(line)
    }

    #[inline(always)]
    fn line(self, set: usize, tag: u32) -> u64 {
        PowerOfTwo(6).line(set, tag)
    }
}

impl Geometry for PowerOfTwo {
    #[inline(always)]
    fn locate(self, line: u64) -> (usize, u32) {
        let Self(shift) = self;
        ((line & ((1 << shift) - 1)) as usize, (line >> shift) as u32)
    }

    #[inline(always)]
    fn line(self, set: usize, tag: u32) -> u64 {
        u64::from(tag) << self.0 | set as u64
    }
}

impl Geometry for AnyNumber {
    #[inline(always)]
    fn locate(self, line: u64) -> (usize, u32) {
        let Self { sets, reciprocal } = self;
        // One set has no reciprocal in 64 bits.
        let tag = if sets == 1 { line } else { ((u128::from(line) * u128::from(reciprocal)) >> 64) as u64 };
        ((line - tag * sets) as usize, tag as u32)
    }

    #[inline(always)]
    fn line(self, set: usize, tag: u32) -> u64 {
        u64::from(tag) * self.sets + set as u64
    }
}

/// A level with its numbers at hand, for a loop.
pub(super) struct View<S, G> {
    sets: S,
    geometry: G,
    last_way: u32,
}

impl<S: SetArray, G: Geometry> View<S, G> {
    /// Uses a line: whether it was there, the line whose place it took (meaningless if it was there
    /// or the place was empty), and whether that one must be written back.
    #[inline(always)]
    pub(super) fn touch<K: Kernel>(&mut self, kernel: K, line: u64, dirty: u32) -> (bool, u64, bool) {
        let Touch { hit, word } = self.touch_word(kernel, line, dirty);
        let (victim, is_dirty) = self.victim(line, word);
        (hit, victim, !hit & is_dirty)
    }

    /// As [`Self::touch`]; [`Self::victim`] tells what it replaced.
    #[inline(always)]
    pub(super) fn touch_word<K: Kernel>(&mut self, kernel: K, line: u64, dirty: u32) -> Touch {
        let (set, tag) = self.geometry.locate(line);
        self.sets.touch(kernel, set, self.last_way, tag << 1 | dirty)
    }

    /// The line of a word that stood in the set of `line`, and whether it must be written back. Empty ways are
    /// clean.
    #[inline(always)]
    pub(super) fn victim(&self, line: u64, word: u32) -> (u64, bool) {
        (self.geometry.line(self.geometry.locate(line).0, word >> 1), word & 1 == 1)
    }

    /// Whether using a line changes nothing: it is the most recent one of its set, and dirty if `dirty`.
    #[inline(always)]
    pub(super) fn is_idle(&self, line: u64, dirty: u32) -> bool {
        let (set, tag) = self.geometry.locate(line);
        let first = self.sets.first(set);
        // The difference is 0, or 1 for another dirty bit: that is none if it is the line that is dirty.
        first ^ (tag << 1 | dirty) <= first & 1
    }

    /// Fetches the set of a line that will be touched soon.
    #[inline(always)]
    pub(super) fn prefetch(&self, line: u64) {
        self.sets.prefetch(self.geometry.locate(line).0);
    }
}

/// A loop that is generic over the kind of sets.
pub(super) trait Loop {
    type Output;
    /// Must be `#[inline(always)]`, so that it is compiled for the kernel's instructions.
    fn run<S: SetArray, G: Geometry>(self, level: View<S, G>) -> Self::Output;
}

#[derive(Clone, Debug)]
pub(super) struct Level {
    sets: Sets,
    number: u64,
    ways: usize,
}

/// One use of a line.
struct TouchOne(u64);

impl Loop for TouchOne {
    type Output = bool;

    #[inline(always)]
    fn run<S: SetArray, G: Geometry>(self, mut level: View<S, G>) -> bool {
        level.touch(Scalar, self.0, 0).0
    }
}

impl Level {
    pub(super) fn new(number: u64, ways: u32) -> Self {
        let ways = ways as usize;
        let sets = match ways {
            0..=8 => Sets::Lanes8(vec![Set8([EMPTY; 8]); number as usize]),
            9..=16 => Sets::Lanes16(vec![Set16([EMPTY; 16]); number as usize]),
            17..=32 => Sets::Lanes32(vec![Set32([EMPTY; 32]); number as usize]),
            _ => Sets::Wide(vec![EMPTY; number as usize * ways]),
        };
        Self { sets, number, ways }
    }

    /// A cache's.
    pub(super) fn of(cache: &CacheDescription) -> Self {
        Self::new(cache.sets(), cache.ways)
    }

    pub(super) fn sets(&self) -> u64 {
        self.number
    }

    pub(super) fn ways(&self) -> u64 {
        self.ways as u64
    }

    /// Uses a line, and says whether it was there.
    pub(super) fn touch(&mut self, line: u64) -> bool {
        self.run(TouchOne(line))
    }

    /// Runs a loop over uses of the level, compiled for the kind of its sets.
    #[inline(always)]
    pub(super) fn run<L: Loop>(&mut self, work: L) -> L::Output {
        let last_way = self.ways as u32 - 1;
        match &mut self.sets {
            Sets::Lanes8(sets) => match <&mut [_; 64]>::try_from(&mut sets[..]) {
                Ok(sets) => work.run(View { sets, geometry: SixtyFour, last_way }),
                Err(_) => Self::run_in(&mut sets[..], self.number, last_way, work),
            },
            Sets::Lanes16(sets) => match <&mut [_; 64]>::try_from(&mut sets[..]) {
                Ok(sets) => work.run(View { sets, geometry: SixtyFour, last_way }),
                Err(_) => Self::run_in(&mut sets[..], self.number, last_way, work),
            },
            Sets::Lanes32(sets) => Self::run_in(&mut sets[..], self.number, last_way, work),
            Sets::Wide(words) => {
                let sets = WideSets { words, ways: self.ways };
                work.run(View { sets, geometry: AnyNumber::new(self.number), last_way })
            }
        }
    }

    #[inline(always)]
    fn run_in<S: SetArray, L: Loop>(sets: S, number: u64, last_way: u32, work: L) -> L::Output {
        if number.is_power_of_two() {
            work.run(View { sets, geometry: PowerOfTwo(number.trailing_zeros()), last_way })
        } else {
            work.run(View { sets, geometry: AnyNumber::new(number), last_way })
        }
    }

    /// A set's words, most recent first, empty ways included.
    fn words(&self, set: usize) -> &[u32] {
        match &self.sets {
            Sets::Lanes8(sets) => &sets[set].0[..self.ways],
            Sets::Lanes16(sets) => &sets[set].0[..self.ways],
            Sets::Lanes32(sets) => &sets[set].0[..self.ways],
            Sets::Wide(words) => &words[set * self.ways..][..self.ways],
        }
    }

    fn words_mut(&mut self, set: usize) -> &mut [u32] {
        match &mut self.sets {
            Sets::Lanes8(sets) => &mut sets[set].0[..self.ways],
            Sets::Lanes16(sets) => &mut sets[set].0[..self.ways],
            Sets::Lanes32(sets) => &mut sets[set].0[..self.ways],
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multiplication_finds_the_set_as_a_division_does() {
        for sets in [1, 2, 3, 384, 509 << 5, (1 << 24) - 3, MOST_SETS - 1, MOST_SETS] {
            let geometry = AnyNumber::new(sets);
            let last_line = (1 << 39) - 1;
            let multiples = (0..64).map(|bit| last_line >> bit).flat_map(|line| [line, line / sets * sets]);
            for line in multiples.flat_map(|line| [line, line.saturating_sub(1)]) {
                let (set, tag) = geometry.locate(line);
                assert_eq!(
                    (set as u64, tag),
                    (line % sets, (line / sets) as u32),
                    "line {line} of {sets} sets"
                );
                if line / sets <= u64::from(u32::MAX) {
                    assert_eq!(geometry.line(set, tag), line);
                }
            }
        }
    }
}

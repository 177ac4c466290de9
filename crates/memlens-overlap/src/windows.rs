//! Some hundred windows of accesses, kept to be looked at when the run's counts are known.

use std::ops::Range;

use memlens_locality::Reference;
use memlens_types::AccessKind;
use rustc_hash::FxHashMap;

use crate::paths::Place;

/// Bytes of a line. What is near enough to come together; whether a machine has others matters little here.
const LINE_BITS: u32 = 6;
/// Sets of the first level, of 64: as nearly all have whose ways are as long as a page.
pub(crate) const SETS: usize = 1 << SET_BITS;
const SET_BITS: u32 = 6;
/// Prefetchers know no larger pages than those of 4 KB.
const PAGE_BITS: u32 = 12;
/// Accesses kept of a window: some ten times what a core has under way.
const LENGTH: usize = 1024;
/// What is kept of a window at most, marks of blocks included.
const MOST_KEPT: usize = 8 * LENGTH;
const _: () = assert!(LENGTH << SET_BITS <= 1 << u16::BITS, "a line's number and set fit 16 bits");

/// What a window keeps, in 8 bytes: an access, or that a block began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The operand's number; the block's.
    pub(crate) number: u32,
    /// Its line's number in the window, and behind that the line's set.
    pub(crate) line: u16,
    /// Which 8 bytes of the line.
    pub(crate) word: u8,
    pub(crate) what: What,
}

impl Kept {
    /// The set of the first level that its line falls into, below [`SETS`].
    pub(crate) fn set(self) -> usize {
        usize::from(self.line) % SETS
    }
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct What(u8);

impl What {
    const BLOCK: Self = Self(1 << 5);

    fn new(kind: AccessKind, [is_first, is_beside]: [bool; 2], expected: Option<Expected>) -> Self {
        let (by_page, within) = (expected == Some(Expected::InNextPage), expected == Some(Expected::InPage));
        let flags = [kind.reads(), kind.writes(), is_first, by_page, within, false, is_beside];
        Self(flags.iter().rev().fold(0, |all, &flag| all << 1 | u8::from(flag)))
    }

    /// Whether it is no access, but a block's beginning.
    pub(crate) fn is_block(self) -> bool {
        self == Self::BLOCK
    }

    pub(crate) fn reads(self) -> bool {
        self.0 & 1 != 0
    }

    pub(crate) fn writes(self) -> bool {
        self.0 & 2 != 0
    }

    /// Whether it is the first one in the window that touches its line.
    pub(crate) fn is_first(self) -> bool {
        self.0 & 4 != 0
    }

    /// Whether the other line of its pair, an even and an odd one, is in the window before it.
    pub(crate) fn is_beside(self) -> bool {
        self.0 & 1 << 6 != 0
    }

    /// Whether a prefetcher that goes by instructions has asked for it; None: it knows no more of the operand than others.
    pub(crate) fn is_prefetched(self) -> Option<bool> {
        match self.0 >> 3 & 3 {
            0 => None,
            flags => Some(flags & 2 != 0),
        }
    }
}

/// That an access is as far from the one before as that was from its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    InPage,
    InNextPage,
}

/// The last accesses of an operand, as a prefetcher by instruction sees them: it expects the distance that it has seen twice in a
/// row, and goes no further than the end of the page (Intel 64 and IA-32 Architectures Optimization Reference Manual, 248966-050,
/// section E.2.5.4, the data cache's; Software Optimization Guide for the AMD Zen4 Microarchitecture, 57647, the stride
/// prefetcher).
#[derive(Clone, Copy, Debug)]
struct Strides {
    last: u64,
    distance: u64,
    in_a_row: u8,
}

impl Strides {
    /// The longest that such a prefetcher follows, in bytes.
    const LONGEST: u64 = 2048;

    fn expected(&mut self, address: u64) -> Option<Expected> {
        let distance = address.wrapping_sub(self.last);
        let is_same_page = address >> PAGE_BITS == self.last >> PAGE_BITS;
        self.last = address;
        let bytes = (distance as i64).unsigned_abs();
        if distance != self.distance || bytes == 0 || bytes > Self::LONGEST {
            (self.distance, self.in_a_row) = (distance, 0);
            return None;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        let expected = if is_same_page { Expected::InPage } else { Expected::InNextPage };
        (self.in_a_row > 1).then_some(expected)
    }
}

/// How long the code around a window took by itself, and what it did.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    /// Cycles of the core an access.
    pub(crate) access_cycles: f64,
    /// Accesses by operand's number: of all that were fed, of which the window is a part.
    pub(crate) operands: Box<[(u32, u32)]>,
}

/// One that is kept.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) accesses: Box<[Kept]>,
    /// None: how long it took was not measured.
    pub(crate) stretch: Option<Stretch>,
}

/// Windows, each as likely to be kept as any other.
///
/// Memory: some 12 KB each, 64 at most, and 8 bytes for each operand of those whose time was measured.
#[derive(Clone, Debug)]
pub struct Windows {
    kept: Vec<Window>,
    most: usize,
    seen: u64,
    random: u64,
    /// Where blocks begin that are in windows, by number.
    blocks: Vec<Place>,
    numbers: FxHashMap<Place, u32>,
    lines: FxHashMap<u64, u16>,
    strides: FxHashMap<u32, Strides>,
}

impl Windows {
    /// Keeps so many.
    pub fn new(most: usize) -> Self {
        Self {
            kept: Vec::new(),
            most,
            seen: 0,
            random: 1,
            blocks: Vec::new(),
            numbers: FxHashMap::default(),
            lines: FxHashMap::default(),
            strides: FxHashMap::default(),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.kept.len()
    }

    /// Takes in a window: all accesses of one thread, one after another, and the blocks of code that made them: for each how many
    /// accesses came before it began, rising, and its first instruction. `place_of` tells where that is; what is in no module has
    /// a place, too, of which no code is known. Of a long window a stretch is taken. `access_cycles`: how many cycles of the core
    /// an access took there while nobody looked, if that was measured on the machine whose misses are asked for.
    pub fn feed(
        &mut self,
        references: &[Reference],
        blocks: &[(u32, u64)],
        access_cycles: Option<f64>,
        mut place_of: impl FnMut(u64) -> Place,
    ) {
        if references.is_empty() || self.most == 0 {
            return;
        }
        self.seen += 1;
        // J. S. Vitter, Random Sampling with a Reservoir, ACM TOMS 11, 1985: algorithm R.
        let slot = match self.kept.len() {
            kept if kept < self.most => kept,
            _ => self.random_below(self.seen) as usize,
        };
        if slot >= self.most {
            return;
        }
        let begins = match references.len().saturating_sub(LENGTH) {
            0 => 0,
            more => self.random_below(more as u64) as usize,
        };
        let ends = references.len().min(begins + LENGTH);
        let accesses = self.window(references, begins..ends, blocks, &mut place_of);
        let stretch =
            access_cycles.map(|access_cycles| Stretch { access_cycles, operands: by_operand(references) });
        let window = Window { accesses, stretch };
        match self.kept.get_mut(slot) {
            Some(kept) => *kept = window,
            None => self.kept.push(window),
        }
    }

    fn window(
        &mut self,
        references: &[Reference],
        range: Range<usize>,
        blocks: &[(u32, u64)],
        place_of: &mut impl FnMut(u64) -> Place,
    ) -> Box<[Kept]> {
        self.lines.clear();
        self.strides.clear();
        let mut kept = Vec::with_capacity(2 * range.len());
        let first = blocks.partition_point(|&(before, _)| (before as usize) < range.start);
        let mut blocks = blocks[first..].iter().peekable();
        for at in range {
            // Loops that touch no memory have a mark for each round, and may have any number of them.
            while let Some(&(_, pc)) = blocks.next_if(|&&(before, _)| before as usize <= at) {
                if kept.len() >= MOST_KEPT {
                    return kept.into();
                }
                let place = place_of(pc);
                let next = self.blocks.len() as u32;
                let number = *self.numbers.entry(place).or_insert(next);
                if number == next {
                    self.blocks.push(place);
                }
                kept.push(Kept { number, line: 0, word: 0, what: What::BLOCK });
            }
            let reference = &references[at];
            if reference.kind != AccessKind::Fetch {
                kept.push(self.access(reference));
            }
        }
        kept.into()
    }

    fn access(&mut self, reference: &Reference) -> Kept {
        let &Reference { address, instruction, kind, .. } = reference;
        let line = address >> LINE_BITS;
        let is_beside = self.lines.contains_key(&(line ^ 1));
        let next = (self.lines.len() << SET_BITS) as u16 | (line % SETS as u64) as u16;
        let line = *self.lines.entry(line).or_insert(next);
        let unknown = Strides { last: address, distance: 0, in_a_row: 0 };
        let expected = self.strides.entry(instruction).or_insert(unknown).expected(address);
        let what = What::new(kind, [line == next, is_beside], expected);
        Kept { number: instruction, line, word: (address >> 3 & 7) as u8, what }
    }

    /// Where blocks begin, by number.
    pub(crate) fn blocks(&self) -> &[Place] {
        &self.blocks
    }

    /// Any number below `end`, which is not 0 (G. Marsaglia, Xorshift RNGs, 2003).
    fn random_below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % end
    }

    /// The numbers of the operands that are in windows, each as often as it is there.
    pub fn operands(&self) -> impl Iterator<Item = u32> {
        let accesses = self.kept.iter().flat_map(|window| &window.accesses);
        accesses.filter(|kept| !kept.what.is_block()).map(|kept| kept.number)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Window> {
        self.kept.iter()
    }
}

/// How many accesses each operand has, in the order of their numbers.
fn by_operand(references: &[Reference]) -> Box<[(u32, u32)]> {
    let mut counts: FxHashMap<u32, u32> = FxHashMap::default();
    for reference in references.iter().filter(|reference| reference.kind != AccessKind::Fetch) {
        *counts.entry(reference.instruction).or_default() += 1;
    }
    let mut counts: Vec<(u32, u32)> = counts.into_iter().collect();
    counts.sort_unstable();
    counts.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(first: u64, length: u64) -> Vec<Reference> {
        let at = |address| Reference { address, instruction: 0, owner: 0, size: 8, kind: AccessKind::Load };
        (0..length).map(|n| at(first + n * 32)).collect()
    }

    fn nowhere(svma: u64) -> Place {
        Place { module: 0, svma }
    }

    #[test]
    fn they_are_8_bytes() {
        assert_eq!(size_of::<Kept>(), 8);
    }

    #[test]
    fn lines_are_numbered_as_they_come() {
        let mut windows = Windows::new(4);
        windows.feed(&window(0x1000, 4), &[(0, 0x70), (2, 0x80), (2, 0x70), (4, 0x90)], Some(2.5), nowhere);
        let Window { accesses: kept, stretch } = windows.iter().next().expect("fed");
        let stretch = stretch.as_ref().expect("measured");
        assert_eq!((stretch.access_cycles, &stretch.operands[..]), (2.5, &[(0, 4)][..]));
        let numbers: Vec<_> = kept.iter().filter(|it| it.what.is_block()).map(|it| it.number).collect();
        assert_eq!(numbers, [0, 1, 0]);
        assert!(kept[0].what.is_block() && kept[3].what.is_block() && kept[4].what.is_block());
        let kept: Vec<_> = kept.iter().filter(|it| !it.what.is_block()).collect();
        let seen: Vec<_> = kept.iter().map(|it| (it.line >> SET_BITS, it.word, it.what.is_first())).collect();
        let prefetched: Vec<_> = kept.iter().map(|it| it.what.is_prefetched()).collect();
        assert_eq!(prefetched, [None, None, None, Some(true)]);
        assert_eq!(seen, [(0, 0, true), (0, 4, false), (1, 0, true), (1, 4, false)]);
        assert_eq!(kept.iter().map(|it| it.what.is_beside()).collect::<Vec<_>>(), [false, false, true, true]);
        // 0x1000 is the first line of a page.
        assert_eq!(kept.iter().map(|it| it.set()).collect::<Vec<_>>(), [0, 0, 1, 1]);
    }

    #[test]
    fn no_more_are_kept_than_asked_for_and_late_ones_are_among_them() {
        let mut windows = Windows::new(10);
        for n in 1..=1000 {
            windows.feed(&window(0, n), &[], None, nowhere);
        }
        let lengths: Vec<usize> = windows.iter().map(|kept| kept.accesses.len()).collect();
        assert_eq!(lengths.len(), 10);
        // The chance that none of ten is of the second half is 1 in 1024.
        assert!(lengths.iter().any(|&length| length > 500), "{lengths:?}");
        windows.feed(&window(0, 100_000), &[], None, nowhere);
        assert!(windows.iter().all(|kept| kept.accesses.len() <= LENGTH));
    }
}

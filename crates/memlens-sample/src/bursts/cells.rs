//! Where an instruction, a thread and a spot meet, and what bursts saw there.

use memlens_locality::CostSpread;
use memlens_types::AccessKind;
use rustc_hash::FxHashMap;

use super::prefetching::Lines;
use crate::distinct_pages::DistinctPages;
use crate::recording::TallyKey;

/// Where an instruction, a thread and a spot meet.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Which.
    pub key: TallyKey,
    /// The first burst that saw it, and the last.
    pub seen: Seen,
    /// Of a watched block: what its accesses stand for on blocks like it that were not watched, besides their own.
    pub unseen_part: f64,
    /// What it waits in bursts.
    pub spread: CostSpread,
    /// Its own number.
    pub number: u32,
    /// The number of its instruction and operand.
    pub(super) instruction: u32,
    /// What its accesses do, and the bytes of each.
    pub kind: AccessKind,
    pub size_bytes: u32,
    /// Where on the heap they go, if to no block that was watched.
    pub pages: DistinctPages,
    pub(super) tally: Tally,
}

/// Bursts that saw something, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    first: u64,
    last: u64,
}

impl Seen {
    fn by(burst: u64) -> Self {
        Self { first: burst, last: burst }
    }

    /// By either.
    pub fn or(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    /// How many, 2 for two and more.
    pub fn bursts(self) -> u64 {
        1 + u64::from(self.last > self.first)
    }
}

/// What each access of a cell adds to: one line of the cache, because most accesses are another cell's than the one before.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub struct Tally {
    pub accesses: u64,
    /// Its accesses as the estimator sees them, and as they count: each element of a repeated string instruction is one.
    pub steps: u64,
    /// Elements that these steps are of: of repeated instructions with very many the rest is counted only.
    pub told_elements: f64,
    pub elements: u64,
    /// What they stand for on blocks that were not watched.
    pub unseen: f64,
    /// The last burst that saw it.
    pub last_burst: u64,
    /// The lines that it used.
    pub lines: Lines,
}

/// What tells cells apart: the numbers of the instruction and operand, of the thread, and of the spot.
pub type Meeting = (u32, u32, u32);

/// All cells, by number.
#[derive(Debug, Default)]
pub struct Cells {
    known: Vec<Cell>,
    tallies: Vec<Tally>,
    /// Numbers of spots.
    spots: Vec<u32>,
    numbers: FxHashMap<Meeting, u32>,
}

impl Cells {
    /// The number of the cell where these meet; `new` tells what is kept of it if this is the first time, in `burst`.
    pub fn number(
        &mut self,
        meeting: Meeting,
        burst: u64,
        new: impl FnOnce() -> (TallyKey, AccessKind, u32),
    ) -> u32 {
        let number = self.known.len() as u32;
        *self.numbers.entry(meeting).or_insert_with(|| {
            let (key, kind, size_bytes) = new();
            self.known.push(Cell {
                key,
                seen: Seen::by(burst),
                unseen_part: 0.0,
                spread: CostSpread::default(),
                number,
                instruction: meeting.0,
                kind,
                size_bytes,
                pages: DistinctPages::default(),
                tally: Tally::default(),
            });
            self.tallies.push(Tally::default());
            self.spots.push(meeting.2);
            number
        })
    }

    /// What the accesses of the cell with a number add to.
    #[inline]
    pub fn tally(&mut self, number: u32) -> &mut Tally {
        &mut self.tallies[number as usize]
    }

    /// The cell with a number is on this page, in no block that was watched.
    pub fn add_page(&mut self, number: u32, address: u64) {
        self.known[number as usize].pages.add(address);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.known.len() as u64
    }

    /// Those with this number and higher ones.
    pub fn from(&self, first: u32) -> impl Iterator<Item = Cell> {
        (first..self.known.len() as u32).filter_map(|number| self.get(number))
    }

    /// Which cell has a number.
    pub fn key(&self, number: u32) -> &TallyKey {
        &self.known[number as usize].key
    }

    /// The number of a cell's spot.
    pub fn spot(&self, number: u32) -> u32 {
        self.spots[number as usize]
    }

    /// A cell with what was added up.
    pub fn get(&self, number: u32) -> Option<Cell> {
        let tally = *self.tallies.get(number as usize)?;
        let mut cell = self.known.get(number as usize)?.clone();
        cell.seen.last = cell.seen.last.max(tally.last_burst);
        cell.unseen_part = tally.unseen / tally.accesses.max(1) as f64;
        cell.tally = tally;
        Some(cell)
    }
}

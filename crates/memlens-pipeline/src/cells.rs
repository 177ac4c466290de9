//! Cells: what one reference (operand, or run of instructions fetched) did to one object, in one thread.

use crate::batch::{Finding, Stretch};
use crate::misses::{MissTable, Misses, Usual};
use hashbrown::hash_table::{Entry, HashTable};
use memlens_types::{AccessKind, Counts, Fetched};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::BuildHasher;

/// Places for cells asked for lately; a power of two.
const RECENT: usize = 4096;

/// Accesses whose cell this is are not collected.
pub const DISCARD: u32 = 0;

/// Where in the object a cell's first access was is not known.
const NO_OFFSET: u32 = u32::MAX;

/// A thread's cells.
#[derive(Debug)]
pub struct Cells {
    /// Cells by reference and object, which stand in `keys`.
    index: HashTable<u32>,
    /// Cells asked for lately, by a hash of reference and object.
    recent: Vec<((u32, u32), u32)>,
    keys: Vec<(u32, u32)>,
    counts: Vec<u64>,
    /// Bytes beyond count × size (masked accesses; may be negative).
    extra_bytes: FxHashMap<u32, i64>,
    /// Elements of string instructions: see [`Counts::followers`].
    followers: FxHashMap<u32, u64>,
    /// Which row of `misses` a cell's are; 0: it has none, as most cells of large programs.
    rows_of_misses: Vec<u32>,
    misses: MissTable,
    /// Where in the object the first access was, in bytes from its block's beginning.
    offsets: Vec<u32>,
}

impl Cells {
    /// Only the cell to discard.
    pub fn new() -> Self {
        Self {
            index: HashTable::new(),
            recent: vec![((u32::MAX, 0), DISCARD); RECENT],
            keys: vec![(u32::MAX, 0)],
            counts: vec![0],
            extra_bytes: FxHashMap::default(),
            followers: FxHashMap::default(),
            rows_of_misses: vec![0],
            misses: MissTable::new(),
            offsets: vec![NO_OFFSET],
        }
    }

    /// The cell of a reference and an object. `offset` is asked of the first access only: where in the object it is,
    /// in bytes from its block's beginning, if that is known.
    #[inline]
    pub fn of(&mut self, reference: u32, object: u32, offset: impl FnOnce() -> Option<u64>) -> u32 {
        let hash = (reference.wrapping_mul(0x9e37_79b9) ^ object.wrapping_mul(0x85eb_ca6b)) >> 16;
        let at = hash as usize % RECENT;
        if self.recent[at].0 == (reference, object) {
            return self.recent[at].1;
        }
        let cell = self.find(reference, object, offset);
        self.recent[at] = ((reference, object), cell);
        cell
    }

    fn find(&mut self, reference: u32, object: u32, offset: impl FnOnce() -> Option<u64>) -> u32 {
        let (key, keys) = ((reference, object), &self.keys);
        let is_it = |&cell: &u32| keys[cell as usize] == key;
        match self.index.entry(hash(key), is_it, |&cell| hash(keys[cell as usize])) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let cell = self.keys.len() as u32;
                new.insert(cell);
                let offset = offset().and_then(|offset| u32::try_from(offset).ok());
                self.offsets.push(offset.unwrap_or(NO_OFFSET));
                self.keys.push(key);
                self.counts.push(0);
                self.rows_of_misses.push(0);
                cell
            }
        }
    }

    /// The object of a cell; 0 of the one to discard.
    #[inline(always)]
    pub fn object_of(&self, cell: u32) -> u32 {
        self.keys[cell as usize].1
    }

    /// The reference of a cell, not the one to discard.
    pub fn reference_of(&self, cell: u32) -> Option<u32> {
        (cell != DISCARD).then(|| self.keys[cell as usize].0)
    }

    /// Adds accesses to a cell.
    #[inline]
    pub fn add(&mut self, cell: u32, accesses: u64) {
        self.counts[cell as usize] += accesses;
    }

    /// Adds bytes to a cell beyond what its accesses' size says.
    pub fn add_bytes(&mut self, cell: u32, bytes: i64) {
        *self.extra_bytes.entry(cell).or_default() += bytes;
    }

    /// So many of a cell's accesses came with the one before: see [`Counts::followers`].
    pub fn add_followers(&mut self, cell: u32, followers: u64) {
        *self.followers.entry(cell).or_default() += followers;
    }

    /// Books what the model found in a slice of time. `first` gets each cell before its first finding in that slice, with what it has until then.
    pub fn book(
        &mut self,
        finding: Finding,
        found: Stretch<'_>,
        slice: u32,
        mut first: impl FnMut(&Self, u32, &Misses),
    ) {
        let first = &mut first;
        // Each in a loop of its own.
        match finding {
            Finding::L1 => self.book_usual(found, slice, first, |it| &mut it.l1, |it| &mut it.l1),
            Finding::L2 => self.book_usual(found, slice, first, |it| &mut it.l2, |it| &mut it.l2),
            Finding::Llc => self.book_usual(found, slice, first, |it| &mut it.llc, |it| &mut it.llc),
            Finding::L2Prefetched => {
                self.book_usual(found, slice, first, |it| &mut it.l2_prefetched, |it| &mut it.l2_prefetched);
            }
            Finding::LlcPrefetched => {
                self.book_usual(
                    found,
                    slice,
                    first,
                    |it| &mut it.llc_prefetched,
                    |it| &mut it.llc_prefetched,
                );
            }
            Finding::Dtlb => self.book_usual(found, slice, first, |it| &mut it.dtlb, |it| &mut it.dtlb),
            // Lines of page tables are not the object's: its DRAM reads are lines of its own.
            Finding::Walk => found.for_each_walk(|cell, walk| {
                let row = self.row_of_misses(cell, slice, first);
                let misses = self.misses.rest_mut(row);
                misses.walk_accesses += u64::from(walk.entries_read);
                misses.walk_cycles += u64::from(walk.cycles);
            }),
            Finding::Stlb => self.book_rest(found, slice, first, |it| &mut it.stlb),
            Finding::Invalidation => self.book_rest(found, slice, first, |it| &mut it.invalidations),
            Finding::Coherence => self.book_rest(found, slice, first, |it| &mut it.coherence),
            Finding::FalseSharing => self.book_rest(found, slice, first, |it| &mut it.false_sharing),
            Finding::UnclearSharing => self.book_rest(found, slice, first, |it| &mut it.unclear_sharing),
            Finding::Remote => self.book_rest(found, slice, first, |it| &mut it.numa.remote_misses),
            Finding::RemotePrefetched => {
                self.book_rest(found, slice, first, |it| &mut it.numa.remote_prefetched);
            }
            Finding::Misplaced => self.book_rest(found, slice, first, |it| &mut it.numa.misplaced),
            Finding::FirstTouch => self.book_rest(found, slice, first, |it| &mut it.numa.first_touches),
        }
    }

    #[inline(always)]
    fn book_usual(
        &mut self,
        found: Stretch<'_>,
        slice: u32,
        first: &mut impl FnMut(&Self, u32, &Misses),
        of_usual: impl Fn(&mut Usual) -> &mut u32,
        of_rest: impl Fn(&mut Misses) -> &mut u64,
    ) {
        found.for_each(|cell, times| {
            let row = self.row_of_misses(cell, slice, first);
            self.misses.count(row, times, &of_usual, &of_rest);
        });
    }

    #[inline(always)]
    fn book_rest(
        &mut self,
        found: Stretch<'_>,
        slice: u32,
        first: &mut impl FnMut(&Self, u32, &Misses),
        counter: impl Fn(&mut Misses) -> &mut u64,
    ) {
        found.for_each(|cell, times| {
            let row = self.row_of_misses(cell, slice, first);
            *counter(self.misses.rest_mut(row)) += times;
        });
    }

    /// What the model found for a cell so far.
    pub fn misses_of(&self, cell: u32) -> Misses {
        self.misses.get(self.rows_of_misses[cell as usize])
    }

    /// The row of a cell's misses, to count one in a slice of time.
    #[inline(always)]
    fn row_of_misses(&mut self, cell: u32, slice: u32, first: &mut impl FnMut(&Self, u32, &Misses)) -> u32 {
        let row = &mut self.rows_of_misses[cell as usize];
        if *row == 0 {
            *row = self.misses.add_row();
        }
        let row = *row;
        if self.misses.is_first_of(slice, row) {
            first(self, cell, &self.misses.get(row));
        }
        row
    }

    /// Forgets all counts, not the cells.
    pub fn zero(&mut self) {
        self.counts.fill(0);
        self.misses.zero();
        self.extra_bytes.clear();
        self.followers.clear();
    }

    /// How many cells there are, the one to discard left out.
    pub fn count(&self) -> usize {
        self.keys.len() - 1
    }

    /// Lets go what only look-ups need.
    pub fn without_index(mut self) -> Self {
        self.index = HashTable::new();
        self.recent = Vec::new();
        self
    }

    /// Where in their objects the first accesses of cells were: reference, object, bytes from the block's beginning.
    pub fn offsets(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        let known = self.keys.iter().zip(&self.offsets).filter(|&(_, &offset)| offset != NO_OFFSET);
        known.map(|(&(reference, object), &offset)| (reference, object, offset.into()))
    }

    /// All cells that counted something: reference, object, counts. `attr_of` gives kind and size of a
    /// reference.
    pub fn iter<'a>(
        &'a self,
        attr_of: impl Fn(u32) -> (AccessKind, u32) + 'a,
    ) -> impl Iterator<Item = (u32, u32, Counts)> + 'a {
        (1..self.keys.len()).filter_map(move |cell| {
            let (reference, object) = self.keys[cell];
            let (kind, size_bytes) = attr_of(reference);
            let extra = self.extra_bytes.get(&(cell as u32)).copied().unwrap_or(0);
            let misses = self.misses.get(self.rows_of_misses[cell]);
            let counts = Counts {
                followers: self.followers.get(&(cell as u32)).copied().unwrap_or(0),
                ..counts(kind, size_bytes, self.counts[cell], extra, &misses)
            };
            (counts != Counts::default()).then_some((reference, object, counts))
        })
    }
}

fn hash(key: (u32, u32)) -> u64 {
    FxBuildHasher.hash_one(key)
}

/// The counters of `accesses` accesses of one kind and size.
fn counts(kind: AccessKind, size_bytes: u32, accesses: u64, extra_bytes: i64, misses: &Misses) -> Counts {
    let bytes = (accesses * u64::from(size_bytes)).saturating_add_signed(extra_bytes);
    let mut counts = Counts {
        dram_reads: misses.llc,
        dtlb_misses: misses.dtlb,
        stlb_misses: misses.stlb,
        page_walk_accesses: misses.walk_accesses,
        walk_cycles: misses.walk_cycles,
        invalidations: misses.invalidations,
        shared: misses.shared(),
        ..Counts::default()
    };
    if kind.reads() || kind.writes() {
        counts.l2_prefetched = misses.l2_prefetched;
        counts.llc_prefetched = misses.llc_prefetched;
        counts.numa = misses.numa;
    }
    if kind.reads() {
        counts.loads = accesses;
        counts.load_bytes = bytes;
    }
    if kind.writes() {
        counts.stores = accesses;
        counts.store_bytes = bytes;
        counts.l1_store_misses = misses.l1;
        counts.l2_store_misses = misses.l2;
        counts.llc_store_misses = misses.llc;
    } else if kind.reads() {
        counts.l1_load_misses = misses.l1;
        counts.l2_load_misses = misses.l2;
        counts.llc_load_misses = misses.llc;
    }
    if kind == AccessKind::Fetch {
        counts.fetched = Fetched {
            fetches: accesses,
            l1i_misses: misses.l1,
            l2i_misses: misses.l2,
            llci_misses: misses.llc,
        };
    }
    if kind == AccessKind::Modify {
        counts.modifies = accesses;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modify_is_a_load_and_a_store_and_its_misses_are_stores() {
        let mut cells = Cells::new();
        let cell = cells.of(7, 3, || Some(16));
        assert_eq!(cells.of(7, 3, || Some(24)), cell);
        cells.of(7, 4, || None);
        assert_eq!(cells.offsets().collect::<Vec<_>>(), [(7, 3, 16)]);
        cells.add(cell, 5);
        cells.add_followers(cell, 2);
        cells.add_followers(cell, 1);
        let mut entered = Vec::new();
        let row = cells.row_of_misses(cell, 1, &mut |_, cell, misses| entered.push((cell, *misses)));
        cells.row_of_misses(cell, 1, &mut |_, _, _| panic!("it is not the first"));
        assert_eq!(entered, [(cell, Misses::default())]);
        cells.misses.count(row, 2, |usual| &mut usual.l1, |rest| &mut rest.l1);
        let all: Vec<_> = cells.iter(|_| (AccessKind::Modify, 4)).collect();
        let expected = Counts {
            loads: 5,
            stores: 5,
            modifies: 5,
            followers: 3,
            load_bytes: 20,
            store_bytes: 20,
            l1_store_misses: 2,
            ..Counts::default()
        };
        assert_eq!(all, [(7, 3, expected)]);
        cells.zero();
        assert_eq!(cells.iter(|_| (AccessKind::Load, 4)).count(), 0);
    }
}

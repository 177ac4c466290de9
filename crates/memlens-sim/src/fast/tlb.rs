//! An LRU TLB that finds entries by a hash and orders them by time stamps.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// No page has this number.
pub(super) const NO_PAGE: u64 = u64::MAX;

/// A TLB as the loop over all references needs it.
pub(crate) trait Tlb1 {
    /// Looks a page up and uses it if it is there.
    fn lookup(&mut self, page: u64) -> bool;
    /// Puts a page in that is not there.
    fn fill(&mut self, page: u64);
}

/// A time stamp is `time << STAMP_SHIFT | entry`, so that the smallest names the oldest entry.
const STAMP_SHIFT: u32 = 16;

/// `SLOTS` and `ENTRIES` are powers of two: of the hash, and the most entries that fit.
///
/// A hit costs the same for 4 ways and for 96: hash, compare, store the time. Only misses look at
/// the set for the oldest entry.
#[derive(Clone, Debug)]
pub(crate) struct StampTlb<const SLOTS: usize, const ENTRIES: usize> {
    pages: Box<[u64; ENTRIES]>,
    stamps: Box<[u64; ENTRIES]>,
    /// Where a page of this hash was last. A stale slot costs a search, nothing else.
    slots: Box<[u16; SLOTS]>,
    /// How many resident pages have this hash: none means no search.
    residents: Box<[u16; SLOTS]>,
    /// Time, shifted as in the stamps.
    clock: u64,
    sets: u64,
    ways: usize,
}

#[inline(always)]
pub(super) fn slot_of<const SLOTS: usize>(page: u64) -> usize {
    // Fibonacci hashing (Knuth, The Art of Computer Programming volume 3, section 6.4).
    (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS.trailing_zeros())) as usize % SLOTS
}

impl<const SLOTS: usize, const ENTRIES: usize> StampTlb<SLOTS, ENTRIES> {
    /// None if there are more entries than fit.
    pub(crate) fn new(entries: u32, ways: u32) -> Option<Self> {
        if entries as usize > ENTRIES {
            return None;
        }
        let stamps: Vec<u64> = (0..ENTRIES as u64).collect();
        Some(Self {
            pages: vec![NO_PAGE; ENTRIES].into_boxed_slice().try_into().ok()?,
            stamps: stamps.into_boxed_slice().try_into().ok()?,
            slots: vec![0; SLOTS].into_boxed_slice().try_into().ok()?,
            residents: vec![0; SLOTS].into_boxed_slice().try_into().ok()?,
            clock: 1 << STAMP_SHIFT,
            sets: u64::from(entries / ways),
            ways: ways as usize,
        })
    }

    fn first_of_set(&self, page: u64) -> usize {
        let set = if self.sets.is_power_of_two() { page & (self.sets - 1) } else { page % self.sets };
        set as usize * self.ways
    }

    /// Resident pages, oldest first.
    pub(super) fn pages(&self) -> Vec<u64> {
        let resident = self.stamps.iter().zip(self.pages.iter()).filter(|&(_, &page)| page != NO_PAGE);
        let mut used: Vec<(u64, u64)> = resident.map(|(&stamp, &page)| (stamp, page)).collect();
        used.sort_unstable();
        used.into_iter().map(|(_, page)| page).collect()
    }
}

impl<const SLOTS: usize, const ENTRIES: usize> Tlb1 for StampTlb<SLOTS, ENTRIES> {
    #[inline(always)]
    fn lookup(&mut self, page: u64) -> bool {
        let slot = slot_of::<SLOTS>(page);
        let mut entry = usize::from(self.slots[slot]) % ENTRIES;
        if self.pages[entry] != page {
            if self.residents[slot] == 0 {
                return false;
            }
            let first = self.first_of_set(page);
            let Some(way) = self.pages[first..first + self.ways].iter().position(|&other| other == page)
            else {
                return false;
            };
            entry = first + way;
            self.slots[slot] = entry as u16;
        }
        self.clock += 1 << STAMP_SHIFT;
        self.stamps[entry] = self.clock | entry as u64;
        true
    }

    /// In place of the set's oldest.
    #[inline(always)]
    fn fill(&mut self, page: u64) {
        self.clock += 1 << STAMP_SHIFT;
        let first = self.first_of_set(page);
        let set = &self.stamps[first..first + self.ways];
        let oldest = set.iter().fold(u64::MAX, |oldest, &stamp| oldest.min(stamp));
        let entry = (oldest & ((1 << STAMP_SHIFT) - 1)) as usize % ENTRIES;
        let replaced = self.pages[entry];
        if replaced != NO_PAGE {
            self.residents[slot_of::<SLOTS>(replaced)] -= 1;
        }
        let slot = slot_of::<SLOTS>(page);
        self.residents[slot] += 1;
        self.slots[slot] = entry as u16;
        self.pages[entry] = page;
        self.stamps[entry] = self.clock | entry as u64;
    }
}

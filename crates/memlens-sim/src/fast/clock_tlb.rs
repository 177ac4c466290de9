//! A fully associative TLB with second-chance replacement, found by a hash.

use super::tlb::{NO_PAGE, Tlb1, slot_of};
use alloc::boxed::Box;

/// The most entries: reference bits fit two words.
const CAPACITY: usize = 128;
const SLOTS: usize = 4096;

/// The reference bit of each entry, as the two words have it.
static BITS: [[u64; 2]; CAPACITY] = {
    let mut bits = [[0; 2]; CAPACITY];
    let mut entry = 0;
    while entry < CAPACITY {
        bits[entry][entry / 64] = 1 << (entry % 64);
        entry += 1;
    }
    bits
};

/// Entries stand still; a hit sets a bit, a miss looks for the next clear bit from the hand on.
///
/// ```text
/// referenced   1 1 0 1 0 … 1 1 1      entries that do not exist count as referenced
///                ▲ hand: clears 1, 1 and replaces the entry of the first 0
/// ```
///
/// Empty entries are clear and lie ahead of the hand until the first round is over, so they are
/// filled first and in order without being told apart.
#[derive(Clone, Debug)]
pub(crate) struct ClockTlb {
    tables: Box<Tables>,
    referenced: [u64; 2],
    hand: usize,
    entries: usize,
}

/// In one block, which takes one register.
#[derive(Clone, Debug)]
struct Tables {
    pages: [u64; CAPACITY],
    /// Where a page of this hash was last. A stale slot costs a search, nothing else.
    slots: [u8; SLOTS],
    /// How many resident pages have this hash: none means no search.
    residents: [u8; SLOTS],
}

impl ClockTlb {
    /// None if there are more entries than fit.
    pub(crate) fn new(entries: u32) -> Option<Self> {
        let entries = entries as usize;
        if entries > CAPACITY {
            return None;
        }
        let mut residents = [0; SLOTS];
        // So that replacing an empty entry needs no test.
        residents[slot_of::<SLOTS>(NO_PAGE)] = entries as u8;
        let missing = !existing(entries);
        Some(Self {
            tables: Box::new(Tables { pages: [NO_PAGE; CAPACITY], slots: [0; SLOTS], residents }),
            referenced: [missing as u64, (missing >> 64) as u64],
            hand: 0,
            entries,
        })
    }

    /// Whether one word of reference bits is enough.
    pub(crate) fn is_narrow(&self) -> bool {
        self.entries <= 64
    }

    /// The state in registers, for a loop; [`ClockTlb::keep`] takes it back. `WIDE` unless
    /// [`ClockTlb::is_narrow`].
    #[inline(always)]
    pub(crate) fn cursor<const WIDE: bool>(&mut self) -> Cursor<'_, WIDE> {
        Cursor {
            tables: &mut self.tables,
            low: self.referenced[0],
            high: self.referenced[1],
            hand: self.hand,
            entries: self.entries,
        }
    }

    /// Takes the registers of a cursor back.
    #[inline(always)]
    pub(crate) fn keep(&mut self, (low, high, hand): (u64, u64, usize)) {
        self.referenced = [low, high];
        self.hand = hand;
    }

    /// Uses a page, and says whether it was there.
    pub(crate) fn touch(&mut self, page: u64) -> bool {
        let mut cursor = self.cursor::<true>();
        let hit = cursor.lookup(page);
        if !hit {
            cursor.fill(page);
        }
        let registers = cursor.registers();
        self.keep(registers);
        hit
    }

    /// Takes a state as [`ClockTlb::state`] gives it, into an empty TLB.
    pub(crate) fn restore(&mut self, state: &[(u64, bool)], hand: usize) {
        for &(page, _) in state {
            self.touch(page);
        }
        for (entry, _) in state.iter().enumerate().filter(|(_, (_, referenced))| !referenced) {
            self.referenced[entry / 64 % 2] &= !(1 << (entry % 64));
        }
        if state.len() == self.entries {
            self.hand = hand;
        }
    }

    /// Resident pages with their reference bits, in the order of the entries, and the hand of the
    /// obvious model, which stands still until all entries are filled.
    pub(super) fn state(&self) -> (impl Iterator<Item = (u64, bool)>, usize) {
        let bits = u128::from(self.referenced[1]) << 64 | u128::from(self.referenced[0]);
        let pages = &self.tables.pages[..self.entries];
        let hand = if pages.contains(&NO_PAGE) { 0 } else { self.hand };
        let resident = pages.iter().take_while(|&&page| page != NO_PAGE);
        (resident.enumerate().map(move |(at, &page)| (page, bits >> at & 1 == 1)), hand)
    }
}

/// Bits of the entries that exist.
fn existing(entries: usize) -> u128 {
    u128::MAX >> (CAPACITY - entries)
}

pub(crate) struct Cursor<'a, const WIDE: bool> {
    tables: &'a mut Tables,
    low: u64,
    high: u64,
    hand: usize,
    entries: usize,
}

impl<const WIDE: bool> Cursor<'_, WIDE> {
    #[inline(always)]
    pub(crate) fn registers(&self) -> (u64, u64, usize) {
        (self.low, self.high, self.hand)
    }

    #[inline(always)]
    fn refer(&mut self, entry: usize) {
        if WIDE {
            let [low, high] = BITS[entry % CAPACITY];
            self.low |= low;
            self.high |= high;
        } else {
            self.low |= 1 << (entry % 64);
        }
    }
}

impl<const WIDE: bool> Tlb1 for Cursor<'_, WIDE> {
    #[inline(always)]
    fn lookup(&mut self, page: u64) -> bool {
        let slot = slot_of::<SLOTS>(page);
        let mut entry = usize::from(self.tables.slots[slot]) % CAPACITY;
        if self.tables.pages[entry] != page {
            if self.tables.residents[slot] == 0 {
                return false;
            }
            let Some(found) = search(&self.tables.pages, page) else { return false };
            entry = found;
            self.tables.slots[slot] = entry as u8;
        }
        self.refer(entry);
        true
    }

    #[inline(always)]
    fn fill(&mut self, page: u64) {
        let first = self.hand & 63;
        let is_high = WIDE && self.hand >= 64;
        let bits = if is_high { self.high } else { self.low };
        let ahead = u64::MAX << first;
        let clear = !bits & ahead;
        let entry = if clear != 0 {
            let bit = clear & clear.wrapping_neg();
            // Those passed become clear, the new page's bit is set.
            let passed = (bit - 1) & ahead;
            let bits = bits & !passed | bit;
            (self.low, self.high) = if is_high { (self.low, bits) } else { (bits, self.high) };
            self.hand & 64 | bit.trailing_zeros() as usize
        } else {
            let (low, high, entry) = sweep(self.low, self.high, self.hand, self.entries);
            (self.low, self.high) = (low, high);
            entry
        };
        let entry = entry % CAPACITY;
        self.hand = if entry + 1 == self.entries { 0 } else { entry + 1 };
        let slot = slot_of::<SLOTS>(page);
        let replaced = core::mem::replace(&mut self.tables.pages[entry], page);
        self.tables.residents[slot_of::<SLOTS>(replaced)] -= 1;
        self.tables.residents[slot] += 1;
        self.tables.slots[slot] = entry as u8;
    }
}

/// As the fast case of `fill`, for a hand that goes on to the other word or round to the start:
/// the bits afterwards and the entry.
#[inline(never)]
fn sweep(low: u64, high: u64, hand: usize, entries: usize) -> (u64, u64, usize) {
    let all = existing(entries);
    let bits = u128::from(high) << 64 | u128::from(low);
    let ahead = u128::MAX << hand;
    let clear = !bits & all;
    let (kept, entry) = if clear == 0 {
        (0, hand)
    } else if clear & ahead != 0 {
        let entry = (clear & ahead).trailing_zeros() as usize;
        (bits & !(((1 << entry) - 1) & ahead), entry)
    } else {
        let entry = clear.trailing_zeros() as usize;
        (bits & !ahead & !((1 << entry) - 1), entry)
    };
    let bits = kept | !all | 1 << entry;
    (bits as u64, (bits >> 64) as u64, entry)
}

#[inline(never)]
fn search(pages: &[u64; CAPACITY], page: u64) -> Option<usize> {
    pages.iter().position(|&other| other == page)
}

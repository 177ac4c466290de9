//! Which cores may have a private copy of a line.

use alloc::vec;
use alloc::vec::Vec;

/// Entries of the smallest table.
const SMALLEST: usize = 4096;
/// No line has this address.
const NO_LINE: u64 = u64::MAX;

/// In an entry's cores: a core fetched instructions from the line, so that L1Is are to be looked at too.
pub(super) const FETCHED: u64 = 1 << 63;
/// The other bits: core n is bit n modulo this.
pub(super) const CORE_BITS: usize = 63;

/// An entry: a line, its cores and whether it was fetched.
#[derive(Clone, Copy, Debug)]
struct Entry {
    line: u64,
    cores: u64,
}

/// A hash table with linear probing from line addresses to sets of cores.
///
/// Invariant: a core that has a copy of a line in its L1I, L1D or L2 has its bit set. The reverse need
/// not hold: replacements in private caches are not reported, as most lines go unasked. A bit without a
/// copy costs one look at that core when the line is asked for next, and is cleared then.
///
/// Entries are never taken out one by one. When the table is half full, it is made anew from what the
/// caches hold, with room for four times as many lines: memory is bounded by the caches, not by the
/// program, and each insertion pays for the copying of at most one line.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    entries: Vec<Entry>,
    used: usize,
    /// Entries that may be used before the table is made anew.
    limit: usize,
    shift: u32,
}

impl Directory {
    /// An empty table with room for `lines`.
    pub(super) fn with_room_for(lines: usize) -> Self {
        let length = (4 * lines).next_power_of_two().max(SMALLEST);
        Self {
            entries: vec![Entry { line: NO_LINE, cores: 0 }; length],
            used: 0,
            limit: length / 2,
            shift: 64 - length.trailing_zeros(),
        }
    }

    /// Whether it must be made anew before the next insertion.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.used >= self.limit
    }

    #[inline(always)]
    fn slot_of(&self, line: u64) -> usize {
        // Fibonacci hashing (Knuth, The Art of Computer Programming volume 3, section 6.4).
        (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// Position of a line's entry, or of the free one where it belongs.
    #[inline(always)]
    fn position(&self, line: u64) -> usize {
        let mask = self.entries.len() - 1;
        let mut at = self.slot_of(line) & mask;
        // Ends: at least half of the entries are free.
        while self.entries[at].line != line && self.entries[at].line != NO_LINE {
            at = (at + 1) & mask;
        }
        at
    }

    /// The cores that may have a line.
    #[inline(always)]
    pub(super) fn cores(&self, line: u64) -> u64 {
        // A free entry has none.
        self.entries[self.position(line)].cores
    }

    /// The same, to be changed; the line is entered if it is not there.
    #[inline(always)]
    pub(super) fn cores_mut(&mut self, line: u64) -> &mut u64 {
        let at = self.position(line);
        let entry = &mut self.entries[at];
        self.used += usize::from(entry.line == NO_LINE);
        entry.line = line;
        &mut entry.cores
    }
}

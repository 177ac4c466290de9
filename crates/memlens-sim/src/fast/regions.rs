//! Short numbers for 64-bit line addresses.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Bytes a region, as a power of two.
const REGION_SHIFT: u32 = 32;
const SLOTS: usize = 256;

/// Maps line addresses to compact ones that fit the sets' 31-bit tags, and back.
///
/// The address space is cut into regions of 4 GiB; each one touched gets a number, in place of the
/// address's upper half. Numbers are chosen congruent to the upper half modulo `modulus`, the odd
/// part of the levels' numbers of sets, so that a compact address has the set of the true one in
/// every level: with sets = odd · 2^k, the low 32 bits decide modulo 2^k and the numbers modulo odd.
#[derive(Clone, Debug)]
pub(super) struct Regions {
    line_bits: u32,
    limit: u64,
    modulus: u64,
    /// How many numbers each residue has given out.
    given: Vec<u64>,
    numbers: BTreeMap<u64, u64>,
    /// By number; numbers not given out are 0.
    uppers: Vec<u64>,
    /// Direct-mapped copies of `numbers`.
    slots: Box<[(u64, u64); SLOTS]>,
}

impl Regions {
    /// `limit`: how many numbers the tags can hold.
    pub(super) fn new(line_shift: u32, modulus: u64, limit: u64) -> Self {
        Self {
            line_bits: REGION_SHIFT - line_shift,
            limit,
            modulus,
            given: vec![0; modulus as usize],
            numbers: BTreeMap::new(),
            uppers: Vec::new(),
            slots: Box::new([(u64::MAX, 0); SLOTS]),
        }
    }

    /// The compact line address, or none if the numbers are used up.
    #[inline(always)]
    pub(super) fn compact(&mut self, line: u64) -> Option<u64> {
        let upper = line >> self.line_bits;
        let slot = self.slots[slot_of(upper)];
        let number = if slot.0 == upper { slot.1 } else { self.find(upper)? };
        Some(number << self.line_bits | line & ((1 << self.line_bits) - 1))
    }

    #[cold]
    #[inline(never)]
    fn find(&mut self, upper: u64) -> Option<u64> {
        let number = match self.numbers.get(&upper) {
            Some(&number) => number,
            None => {
                let residue = upper % self.modulus;
                let given = &mut self.given[residue as usize];
                let number = *given * self.modulus + residue;
                if number >= self.limit {
                    return None;
                }
                *given += 1;
                self.numbers.insert(upper, number);
                let at = number as usize;
                self.uppers.resize(self.uppers.len().max(at + 1), 0);
                self.uppers[at] = upper;
                number
            }
        };
        self.slots[slot_of(upper)] = (upper, number);
        Some(number)
    }

    /// The line address of a compact one.
    pub(super) fn expand(&self, compact: u64) -> u64 {
        let number = compact >> self.line_bits;
        let upper = self.uppers.get(number as usize).copied().unwrap_or_default();
        upper << self.line_bits | compact & ((1 << self.line_bits) - 1)
    }

    /// How many regions of 4 GiB fit compact line addresses of so many bits.
    pub(super) fn limit_of_bits(bits: u32, line_shift: u32) -> u64 {
        1 << (bits - (REGION_SHIFT - line_shift))
    }

    /// How many regions of 4 GiB fit tags of 31 bits in a level of this many sets. The largest tag
    /// is kept free for empty ways.
    pub(super) fn limit_for(sets: u64, line_shift: u32) -> u64 {
        let lines = u128::from(sets) * ((1 << 31) - 1);
        u64::try_from(lines >> (REGION_SHIFT - line_shift)).unwrap_or(u64::MAX)
    }
}

#[inline(always)]
fn slot_of(upper: u64) -> usize {
    (upper ^ upper >> 8 ^ upper >> 16) as usize % SLOTS
}

//! Short numbers for 64-bit line addresses.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Bytes a region, as a power of two.
const REGION_SHIFT: u32 = 32;
/// By the low bits of the upper half: a program's few regions hardly ever share one.
const SLOTS: usize = 4096;

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
    uppers: Uppers,
    /// Whether `uppers` grew since they were asked for.
    has_grown: bool,
    /// Direct-mapped copies of `numbers`, with the compact address of the first line.
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
            uppers: Uppers::new(line_shift),
            has_grown: false,
            slots: vec![(u64::MAX, 0); SLOTS].try_into().unwrap_or_else(|_| unreachable!()),
        }
    }

    /// The compact line address, or none if the numbers are used up.
    #[inline(always)]
    pub(super) fn compact(&mut self, line: u64) -> Option<u64> {
        let line_bits = self.line_bits;
        Some(self.first_line(line >> line_bits)? | line & ((1 << line_bits) - 1))
    }

    /// The compact address of the line that a byte address is in, for lines of `2^line_shift` bytes, which
    /// must be those of [`Self::new`].
    #[inline(always)]
    pub(super) fn compact_byte(&mut self, addr: u64, line_shift: u32) -> Option<u64> {
        Some(self.first_line(addr >> REGION_SHIFT)? | u64::from(addr as u32 >> line_shift))
    }

    /// The compact address of a region's first line.
    #[inline(always)]
    fn first_line(&mut self, upper: u64) -> Option<u64> {
        if self.slots[upper as usize % SLOTS].0 != upper {
            self.find(upper)?;
        }
        Some(self.slots[upper as usize % SLOTS].1)
    }

    #[cold]
    #[inline(never)]
    fn find(&mut self, upper: u64) -> Option<()> {
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
                self.uppers.set(number as usize, upper);
                self.has_grown = true;
                number
            }
        };
        self.slots[upper as usize % SLOTS] = (upper, number << self.line_bits);
        Some(())
    }

    /// The way back, if it changed since this was asked the last time.
    pub(super) fn news(&mut self) -> Option<Uppers> {
        core::mem::take(&mut self.has_grown).then(|| self.uppers.clone())
    }

    /// The way back.
    pub(super) fn uppers(&self) -> &Uppers {
        &self.uppers
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

/// The way back from compact line addresses: what the regions' numbers stand for.
#[derive(Clone, Debug)]
pub(super) struct Uppers {
    line_bits: u32,
    /// By number; numbers not given out are 0.
    by_number: Vec<u64>,
}

impl Uppers {
    /// No region.
    pub(super) fn new(line_shift: u32) -> Self {
        Self { line_bits: REGION_SHIFT - line_shift, by_number: Vec::new() }
    }

    fn set(&mut self, number: usize, upper: u64) {
        self.by_number.resize(self.by_number.len().max(number + 1), 0);
        self.by_number[number] = upper;
    }

    /// The line address of a compact one.
    pub(super) fn expand(&self, compact: u64) -> u64 {
        let number = compact >> self.line_bits;
        let upper = self.by_number.get(number as usize).copied().unwrap_or_default();
        upper << self.line_bits | compact & ((1 << self.line_bits) - 1)
    }
}

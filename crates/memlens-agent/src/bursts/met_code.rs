//! Which code bursts have met, by places of 16 bytes: a bit for each, at a hash of its address.
//!
//! Two places may have the same bit. Then code seems to be known that is not, and a burst in it comes no sooner than others; of large programs
//! nearly all code does in the end.
//!
//! # Signal safety
//! Atomic operations on static memory alone.

use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a place, as a power of two: a loop that another one follows begins behind it.
const PLACE_SHIFT: u32 = 4;
const WORDS: usize = 1 << 10;

/// A set of places.
pub struct MetCode {
    bits: [AtomicU64; WORDS],
}

impl MetCode {
    /// Of none.
    pub const fn new() -> Self {
        Self { bits: [const { AtomicU64::new(0) }; WORDS] }
    }

    /// There was none.
    pub fn clear(&self) {
        self.bits.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// A burst was there.
    pub fn add(&self, pc: u64) {
        let (word, bit) = self.place(pc);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Whether a burst was there.
    pub fn has(&self, pc: u64) -> bool {
        let (word, bit) = self.place(pc);
        word.load(Ordering::Relaxed) & bit != 0
    }

    fn place(&self, pc: u64) -> (&AtomicU64, u64) {
        let hash = (pc >> PLACE_SHIFT).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        (&self.bits[hash as usize >> 6], 1 << (hash & 63))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_known_where_a_burst_was() {
        let met = MetCode::new();
        assert!(!met.has(0x40_1010));
        met.add(0x40_1010);
        for (pc, is_known) in [(0x40_1010, true), (0x40_101f, true), (0x40_100f, false), (0x40_1020, false)] {
            assert_eq!(met.has(pc), is_known, "{pc:#x}");
        }
        met.clear();
        assert!(!met.has(0x40_1010));
    }

    #[test]
    fn of_a_program_that_is_not_large_other_code_is_new() {
        let met = MetCode::new();
        // 64 KiB of code.
        (0..4096).for_each(|place| met.add(0x40_0000 + 16 * place));
        let known = (0..10_000).filter(|place| met.has(0x7f00_0000_0000 + 4096 * place)).count();
        assert!(known < 1000, "{known}");
    }
}

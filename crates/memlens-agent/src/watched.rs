//! The addresses of watched blocks, so that their end is seen.
//!
//! ```text
//!  address ── bits 6..22 ──► FILTER: watched blocks with these bits, as far as a byte counts
//!          ── hash ────────► table: 32 places, in one of which it is
//! ```
//!
//! Of the blocks that a program frees nearly none is watched. The filter tells that with one byte, which lies in
//! one cache line for all blocks of a page. The table decides.
//!
//! # Signal safety
//! Lock-free: an address is put in by the thread that allocated it before the program has it, and taken out by
//! the one that frees it; two calls for one address do not overlap. Memory is the kernel's.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use crate::arch::{number, syscall};

/// Address bits below those that choose the filter's byte.
pub const FILTER_SHIFT: u32 = 6;
/// Which bits then.
pub const FILTER_MASK: usize = FILTER_BYTES - 1;
const FILTER_BYTES: usize = 1 << 16;
/// A byte that has come so far stays: it can no longer count down.
const STUCK: u8 = u8::MAX;
/// Places that an address may be at.
const WINDOW: usize = 32;

/// Read by the entry points.
pub static FILTER: [AtomicU8; FILTER_BYTES] = [const { AtomicU8::new(0) }; FILTER_BYTES];

static TABLE: Table = Table::new();

struct Table {
    places: AtomicPtr<AtomicU64>,
    /// A power of two.
    capacity: AtomicUsize,
}

impl Table {
    const fn new() -> Self {
        Self { places: AtomicPtr::new(ptr::null_mut()), capacity: AtomicUsize::new(0) }
    }

    fn window(&self, address: u64) -> &[AtomicU64] {
        let places = self.places.load(Ordering::Acquire);
        // 0 is no block's address: it marks a free place.
        if places.is_null() || address == 0 {
            return &[];
        }
        let windows = self.capacity.load(Ordering::Relaxed) / WINDOW;
        let hash = (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        // SAFETY: `use_memory` was promised zeroed memory for `capacity` words that stays; a window of them.
        unsafe { core::slice::from_raw_parts(places.add(hash as usize % windows * WINDOW), WINDOW) }
    }

    fn insert(&self, address: u64) -> bool {
        let window = self.window(address);
        loop {
            let mut free = None;
            for place in window {
                match place.load(Ordering::Relaxed) {
                    // Its end was not seen; it is the same place again.
                    known if known == address => return true,
                    0 => free = free.or(Some(place)),
                    _ => {}
                }
            }
            let Some(place) = free else { return false };
            if place.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                count(address, 1);
                return true;
            }
        }
    }

    fn remove(&self, address: u64) -> bool {
        let place = self.window(address).iter().find(|place| place.load(Ordering::Relaxed) == address);
        let Some(place) = place else { return false };
        place.store(0, Ordering::Relaxed);
        count(address, -1);
        true
    }
}

fn byte_of(address: u64) -> &'static AtomicU8 {
    &FILTER[(address >> FILTER_SHIFT) as usize & FILTER_MASK]
}

fn count(address: u64, by: i8) {
    let step = |value: u8| match value {
        STUCK => None,
        value => Some(value.wrapping_add_signed(by)),
    };
    let _ = byte_of(address).fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
}

/// Gives the table its memory: `capacity` zeroed words, a power of two of at least [`WINDOW`].
///
/// # Safety
/// The memory stays for good and is nobody else's.
pub unsafe fn use_memory(places: *mut AtomicU64, capacity: usize) {
    TABLE.capacity.store(capacity, Ordering::Relaxed);
    TABLE.places.store(places, Ordering::Release);
}

/// How many words the table has.
pub fn capacity() -> usize {
    TABLE.capacity.load(Ordering::Relaxed)
}

/// Forgets all blocks. Nobody else may use the table meanwhile.
pub fn forget_all() {
    let places = TABLE.places.load(Ordering::Relaxed);
    if places.is_null() {
        return;
    }
    const DONT_NEED: usize = 4;
    // SAFETY: whole pages of the table's private memory, which are zeros after that (madvise(2)).
    unsafe { syscall(number::MADVISE, [places as usize, capacity() * 8, DONT_NEED, 0, 0, 0]) };
    for byte in &FILTER {
        // Those may be the arena's.
        if byte.load(Ordering::Relaxed) != STUCK {
            byte.store(0, Ordering::Relaxed);
        }
    }
}

/// Watches a block. False: there is no room.
pub fn insert(address: u64) -> bool {
    TABLE.insert(address)
}

/// Watches it no longer. Whether it was watched.
pub fn remove(address: u64) -> bool {
    TABLE.remove(address)
}

/// From now on blocks at these addresses always take the slow path.
pub fn always_look(start: u64, end: u64) {
    let mut address = start;
    while address < end {
        byte_of(address).store(STUCK, Ordering::Relaxed);
        address += 1 << FILTER_SHIFT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_found_once_and_the_filter_never_denies_it() {
        let memory: &'static mut [AtomicU64] =
            Box::leak((0..1024).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().into_boxed_slice());
        let table = Table::new();
        table.places.store(memory.as_mut_ptr(), Ordering::Relaxed);
        table.capacity.store(1024, Ordering::Relaxed);
        assert!(!table.remove(0) && !table.insert(0));
        // The slow twin: a set.
        let mut live = std::collections::BTreeSet::new();
        let (mut state, mut refused) = (1u64, 0);
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let address = 0x7000_0000_0000 + (state >> 40) % 4096 * 16;
            if (state >> 20).is_multiple_of(3) {
                assert_eq!(table.remove(address), live.remove(&address));
            } else if table.insert(address) {
                live.insert(address);
            } else {
                refused += 1;
            }
            for address in live.iter().take(3) {
                assert_ne!(byte_of(*address).load(Ordering::Relaxed), 0);
            }
        }
        // 4,096 addresses, 1,024 places: full windows do occur.
        assert!(refused > 0);
        for address in live {
            assert!(table.remove(address) && !table.remove(address));
        }
        assert!(FILTER.iter().all(|byte| [0, STUCK].contains(&byte.load(Ordering::Relaxed))));
    }
}

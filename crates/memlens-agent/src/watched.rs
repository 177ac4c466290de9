//! The addresses of watched blocks, so that their end is seen.
//!
//! ```text
//!  address ── bits 6..22 ──► FILTER: watched blocks with these bits, as far as a byte counts
//!          ── window ──────► table: 31 places, in one of which it is: the 7 of a cache line, or 24 behind it
//! ```
//!
//! Of the blocks that a program frees nearly none is watched. The filter tells that with one byte, which lies in
//! one cache line for all blocks of a page. The table decides; its lines' eighth words say how many addresses are
//! behind them.
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
/// Words among which an address may be, and of those the ones in the first cache line.
const WINDOW: usize = 32;
const LINE: usize = 8;
/// A window is for blocks that begin in the same 512 bytes, which are 16 of glibc's smallest. Neighbours have neighbouring
/// windows, so that a heap touches no more of the table than it is large itself: with a hash of the whole address
/// 300,000 blocks in the same 12 MiB touched all of its 64 MiB, and each missed caches and TLBs.
const WINDOW_SHIFT: u32 = 9;
/// Regions of 64 MiB, as large as glibc's arenas, which fill from their starts: those lie anywhere in the table.
const REGION_SHIFT: u32 = 26;

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

    fn window(&self, address: u64) -> Option<Window<'_>> {
        let places = self.places.load(Ordering::Acquire);
        // 0 is no block's address: it marks a free place.
        if places.is_null() || address == 0 {
            return None;
        }
        let windows = self.capacity.load(Ordering::Relaxed) / WINDOW;
        let hash = (address >> REGION_SHIFT).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let number = (hash + (address >> WINDOW_SHIFT)) as usize % windows;
        // SAFETY: `use_memory` was promised zeroed memory for `capacity` words that stays; a window of them.
        let words = unsafe { &*places.add(number * WINDOW).cast::<[AtomicU64; WINDOW]>() };
        let (line, rest) = words.split_at(LINE);
        let (spilled, first) = line.split_last()?;
        Some(Window { first, spilled, rest })
    }

    fn insert(&self, address: u64) -> bool {
        let Some(window) = self.window(address) else { return false };
        // Known: its end was not seen; it is the same place again.
        if window.find(address).is_some() {
            return true;
        }
        if !put(window.first, address) {
            window.spilled.fetch_add(1, Ordering::Relaxed);
            if !put(window.rest, address) {
                window.spilled.fetch_sub(1, Ordering::Relaxed);
                return false;
            }
        }
        count(address, 1);
        true
    }

    fn remove(&self, address: u64) -> bool {
        let Some(window) = self.window(address) else { return false };
        let Some((place, has_spilled)) = window.find(address) else { return false };
        place.store(0, Ordering::Relaxed);
        if has_spilled {
            window.spilled.fetch_sub(1, Ordering::Relaxed);
        }
        count(address, -1);
        true
    }
}

/// The places where an address may be. Nearly always the first cache line says all: what found no room there is
/// counted.
struct Window<'a> {
    first: &'a [AtomicU64],
    /// Addresses in `rest`, or on their way there.
    spilled: &'a AtomicU64,
    rest: &'a [AtomicU64],
}

impl<'a> Window<'a> {
    /// Where an address is, and whether that is in `rest`.
    fn find(&self, address: u64) -> Option<(&'a AtomicU64, bool)> {
        let find_in =
            |places: &'a [AtomicU64]| places.iter().find(|place| place.load(Ordering::Relaxed) == address);
        let first = find_in(self.first).map(|place| (place, false));
        if first.is_some() || self.spilled.load(Ordering::Relaxed) == 0 {
            return first;
        }
        find_in(self.rest).map(|place| (place, true))
    }
}

/// Puts an address into a free place, if there is one.
fn put(places: &[AtomicU64], address: u64) -> bool {
    let is_free = |place: &AtomicU64| place.load(Ordering::Relaxed) == 0;
    let take = |place: &AtomicU64| {
        is_free(place) && place.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    places.iter().any(take)
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

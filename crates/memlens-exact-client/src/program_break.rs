//! The program's break (`brk(2)`).
//!
//! DynamoRIO maps a position-independent program among the libraries, and moves its break in the 64 MiB that it left free
//! behind it (its `core/unix/loader.c`, `APP_BRK_GAP`); natively there are terabytes. An allocator that knows nothing but
//! `sbrk` would run out of memory here and not there. DynamoRIO also rounds the break up to pages, which the kernel does
//! not: `sbrk(100)` would move it by 4096 bytes.
//!
//! So the call is answered here. Where there is no room behind DynamoRIO's break, it lies in address space that was reserved
//! before the program's first instruction. Two threads that move the break at once natively get an order from the kernel;
//! here each gets memory, and the break is where the later one put it.

use crate::sys;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};
use dynamorio_sys::{dr_flush_region_ex, dr_raw_brk};

/// Address space for the break to move in: none of it is memory before the break is moved.
const RESERVED_BYTES: u64 = 64 << 30;
/// What DynamoRIO maps for its break at start (`core/unix/os.c`, `BRK_INITIAL_SIZE`).
const MAPPED_BYTES: u64 = 4 << 20;
const PAGE: u64 = 4096;

/// The one break.
pub static BREAK: ProgramBreak =
    ProgramBreak { start: AtomicU64::new(0), now: AtomicU64::new(0), limit: AtomicU64::new(0) };

/// Where the break is, and how it is moved.
pub struct ProgramBreak {
    start: AtomicU64,
    now: AtomicU64,
    /// The end of our reservation; 0: DynamoRIO's break moves.
    limit: AtomicU64,
}

impl ProgramBreak {
    /// Before the program's first instruction.
    pub fn initialise(&self) {
        // SAFETY: null only asks.
        let engine = unsafe { dr_raw_brk(core::ptr::null_mut()) } as u64;
        let (start, limit) = match reservation(engine + MAPPED_BYTES) {
            Some(start) => (start, start + RESERVED_BYTES),
            None => (engine, 0),
        };
        self.start.store(start, Ordering::Relaxed);
        self.now.store(start, Ordering::Relaxed);
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// The system call: moves the break to an address if that can be done, and tells where it is.
    ///
    /// # Safety
    /// Called from a pre-system-call event, with no lock held.
    pub unsafe fn move_to(&self, asked: u64) -> u64 {
        let now = self.now.load(Ordering::Relaxed);
        if asked < self.start.load(Ordering::Relaxed) {
            return now;
        }
        // SAFETY: the caller's promise.
        let is_moved = unsafe {
            match self.limit.load(Ordering::Relaxed) {
                0 => move_engines(asked),
                limit => {
                    asked <= limit && move_ours(now.next_multiple_of(PAGE), asked.next_multiple_of(PAGE))
                }
            }
        };
        if !is_moved {
            return now;
        }
        self.now.store(asked, Ordering::Relaxed);
        asked
    }
}

/// Reserves address space, unless there is as much behind `end`, or the process may not have as much.
fn reservation(end: u64) -> Option<u64> {
    if sys::address_space_limit().is_some() {
        return None;
    }
    let length = RESERVED_BYTES as usize;
    if let Some(behind) = sys::reserve(Some(end), length) {
        // SAFETY: nobody has used it.
        unsafe { sys::unmap(behind, length) };
        return None;
    }
    sys::reserve(None, length).map(|start| start as u64)
}

/// # Safety
/// As [`ProgramBreak::move_to`].
unsafe fn move_engines(asked: u64) -> bool {
    let Some(end) = asked.checked_next_multiple_of(PAGE) else { return false };
    // SAFETY: DynamoRIO answers where its break is, rounded to a page.
    unsafe { dr_raw_brk(end as *mut c_void) as u64 == end }
}

/// # Safety
/// As [`ProgramBreak::move_to`]; both are multiples of pages inside the reservation.
unsafe fn move_ours(from: u64, to: u64) -> bool {
    if to >= from {
        return to == from || sys::make_writable(from, to - from);
    }
    // SAFETY: the program has given these pages back; code of theirs must not run on.
    unsafe {
        dr_flush_region_ex(to as *mut u8, (from - to) as usize, Some(flushed), core::ptr::null_mut());
        sys::reserve_again(to, from - to)
    }
}

/// DynamoRIO 11.90 calls what [`dr_flush_region_ex`] is given even where it is nothing, if nothing was to be flushed.
unsafe extern "C" fn flushed(_user_data: *mut c_void) {}

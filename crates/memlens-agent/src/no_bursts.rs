//! What stands for `bursts/` where there is no translator of the architecture's code: there are none, and memlens is told so.
//!
//! Ticks come by themselves then. Nobody is prompted, and the program's handlers of signals are its own.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use memlens_events::agent::{Control, NOT_HERE};

#[cfg(not(test))]
use crate::hooks;
use crate::ring::Segment;
use crate::signal_action::SignalAction;
use crate::thread_area::ThreadArea;

/// What bursts need of a thread: nothing.
pub struct Area;

/// Functions that lead through the agent for the sake of bursts alone.
#[cfg(not(test))]
pub static HOOKED: [hooks::Row; 0] = [];

/// Signals that come besides the ticks', in a signal mask.
pub const SIGNALS: usize = 0;

/// Nothing in the agent allocates without a decoder of instructions. A crate that could has to be linked with an allocator all the same.
#[cfg(all(panic = "abort", not(test)))]
mod no_heap {
    use core::alloc::{GlobalAlloc, Layout};
    use core::ptr;

    struct NoHeap;

    // SAFETY: it gives out nothing.
    unsafe impl GlobalAlloc for NoHeap {
        unsafe fn alloc(&self, _: Layout) -> *mut u8 {
            ptr::null_mut()
        }

        unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
    }

    #[global_allocator]
    static ALLOCATOR: NoHeap = NoHeap;
}

/// If bursts are wanted, says that there are none.
pub fn prepare(control: &Control, _: &SignalAction) {
    if control.burst_words.load(Ordering::Relaxed) != 0 {
        control.no_bursts.store(NOT_HERE, Ordering::Relaxed);
    }
}

/// Nobody has prompts.
pub fn end_prompts(_: usize) {}

/// No signal is one.
pub fn is_prompt(_: c_int) -> bool {
    false
}

/// Nothing was changed.
pub fn end() {}

/// There is nothing to forget.
pub fn forget_after_fork(_: &ThreadArea) {}

/// Nobody looks.
///
/// # Safety
/// None is needed.
pub unsafe fn is_waiting(_: u64) -> bool {
    false
}

/// Only bursts ask.
pub fn set_looked_at(_: u32) {}

/// There are none anyway.
pub fn stop() {}

/// No thread is in one.
pub fn are_active() -> bool {
    false
}

/// There are none, with or without time between them.
pub fn are_apart() -> bool {
    false
}

/// Ticks come as often as they should.
pub fn hurry(_: &Control) -> u64 {
    1
}

/// From the first on.
pub fn eagerness() -> u64 {
    1
}

/// Nothing begins.
pub fn begin_early(_: u64, _: u64, _: u64) -> bool {
    false
}

/// Nothing does.
///
/// # Safety
/// None is needed.
pub unsafe fn begin(_: *mut c_void, _: Segment, _: &ThreadArea, _: u64) -> bool {
    false
}

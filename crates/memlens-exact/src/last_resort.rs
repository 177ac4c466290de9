//! What is left to do when memlens itself must abort, for want of memory for instance: the program goes
//! on unrecorded, and whoever called memlens in its place still gets its exit code.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use memlens_child::{ExitOutcome, wait_for_end};
use memlens_events::segment::Control;

/// The first page of the segment that is being read; null: none.
static CONTROL: AtomicPtr<Control> = AtomicPtr::new(ptr::null_mut());
/// The program's process id.
static PROGRAM: AtomicU32 = AtomicU32::new(0);
/// Nobody reads any more.
static RELEASED: AtomicBool = AtomicBool::new(false);

/// As long as it lives, [`release_program`] knows the program.
pub(crate) struct LastResort;

impl LastResort {
    /// `control` must outlive the result.
    pub fn prepare(control: &Control, program: u32) -> Self {
        PROGRAM.store(program, Ordering::Relaxed);
        CONTROL.store(ptr::from_ref(control).cast_mut(), Ordering::Release);
        Self
    }
}

impl Drop for LastResort {
    fn drop(&mut self) {
        CONTROL.store(ptr::null_mut(), Ordering::Release);
    }
}

/// Keeps a thread that reads records from getting in the way of [`release_program`] in another one.
pub(crate) fn stop_if_released() {
    if RELEASED.load(Ordering::Relaxed) {
        loop {
            std::thread::park();
        }
    }
}

/// Whether a program is being recorded, which [`release_program`] would let go on.
///
/// Async-signal-safe.
pub fn is_recording() -> bool {
    !CONTROL.load(Ordering::Acquire).is_null()
}

/// Lets the program go on without being recorded, waits until it has ended and says how. `None` when
/// none is being recorded.
///
/// Async-signal-safe: it makes system calls and touches atomics, nothing else.
pub fn release_program() -> Option<ExitOutcome> {
    // SAFETY: null or a segment's first page, which `LastResort` keeps from being unmapped.
    let control = unsafe { CONTROL.load(Ordering::Acquire).as_ref() }?;
    RELEASED.store(true, Ordering::Relaxed);
    // The client looks at this whenever it waits for room.
    control.closed.store(1, Ordering::Relaxed);
    wait_for_end(PROGRAM.load(Ordering::Relaxed)).ok()
}

//! The signal by which memlens prompts a process's first thread to look where it is: SIGURG.
//!
//! Unlike the ticks' signal it is one that a process without a handler ignores: whatever comes when the agent has left, or when another program
//! was executed, does no harm. It needs no room in the queue of signals, and is pending once. Programs seldom use it (for urgent data of
//! sockets). Where one has a handler for it there are no prompts, and where it asks for one they end. Until then it is told that the signal is at
//! its default.
//!
//! # Signal safety
//! Atomic operations, and system calls for the handler.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};

use memlens_events::agent::Control;

use crate::arch::{number, syscall};
use crate::session;
use crate::signal_action::SignalAction;

/// `SIGURG` (signal(7)).
pub const SIGNAL: usize = 23;
/// `SIG_DFL`.
const DEFAULT: usize = 0;

/// Whether the handler is ours.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// Takes the signal if nobody has it. `action`: with the handler.
pub fn prepare(control: &Control, pid: u32, action: &SignalAction) {
    let is_free = SignalAction::of(SIGNAL).is_some_and(|before| before.handler == DEFAULT);
    if is_free && SignalAction::set(SIGNAL, action) {
        IS_OURS.store(true, Ordering::Relaxed);
        // The first process, also when it has executed another program; not its children.
        let _ = control.promptable.compare_exchange(0, pid, Ordering::Release, Ordering::Relaxed);
    }
}

/// Gives the signal back: what still comes is ignored.
pub fn end(handler: usize) {
    IS_OURS.store(false, Ordering::Relaxed);
    if let Some(action) = SignalAction::of(SIGNAL).filter(|action| action.handler == handler) {
        SignalAction::set(SIGNAL, &SignalAction { handler: DEFAULT, ..action });
    }
}

/// Whether the program's question for a signal's handler would have ours as the answer.
pub fn is_ours(signal: c_int) -> bool {
    signal == SIGNAL as c_int && IS_OURS.load(Ordering::Relaxed)
}

/// The program will have a handler of its own: waits until no more prompts can come to it. Cost: up to 20 ms, until memlens looks, once in a
/// program.
pub fn let_go() {
    /// In ms: memlens may have been killed, and its event with it.
    const MOST: u32 = 200;
    IS_OURS.store(false, Ordering::Relaxed);
    let Some(segment) = session::segment() else { return };
    let control = segment.control();
    // Either memlens sees that, or we see that it prompts.
    let pid = control.promptable.swap(0, Ordering::SeqCst);
    for _ in 0..MOST {
        if pid == 0 || control.prompted.load(Ordering::SeqCst) != pid {
            return;
        }
        let ms = [0usize, 1_000_000];
        // SAFETY: reads the time.
        unsafe { syscall(number::NANOSLEEP, [ms.as_ptr() as usize, 0, 0, 0, 0, 0]) };
    }
}

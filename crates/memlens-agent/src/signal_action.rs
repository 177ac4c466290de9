//! What the kernel does about a signal: asked and set by system calls, so that it can be done for signals that libc keeps for itself.
//!
//! # Signal safety
//! System calls.

use core::ptr;

use crate::arch::{number, syscall};

/// The kernel's `struct sigaction`, alike on x86-64 and AArch64 (`include/linux/signal_types.h`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct SignalAction {
    /// 0: the default, 1: ignored, else a function.
    pub handler: usize,
    /// See sigaction(2).
    pub flags: usize,
    /// What the handler returns to.
    pub restorer: usize,
    /// Signals that are blocked meanwhile.
    pub mask: usize,
}

impl SignalAction {
    /// What the kernel does about a signal.
    pub fn of(signal: usize) -> Option<Self> {
        let mut action = Self::default();
        call(signal, ptr::null(), &raw mut action).then_some(action)
    }

    /// Changes that. Whether the kernel did so.
    pub fn set(signal: usize, action: &Self) -> bool {
        call(signal, action, ptr::null_mut())
    }
}

fn call(signal: usize, new: *const SignalAction, old: *mut SignalAction) -> bool {
    let arguments = [signal, new as usize, old as usize, size_of::<usize>(), 0, 0];
    // SAFETY: both are null or whole structures; handlers keep the rules of handlers.
    unsafe { syscall(number::RT_SIGACTION, arguments) == 0 }
}

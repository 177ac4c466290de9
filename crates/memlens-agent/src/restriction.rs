//! Programs that restrict their own system calls (seccomp(2)).
//!
//! The kernel may kill a program for a system call that its filter does not know, and the agent's are such. So the functions
//! through which a program asks for a filter lead through here, and the agent leaves the process first, as at memlens's
//! end. Nothing of it makes a system call of its own in that process afterwards, and what it executes runs without.
//!
//! Not seen: filters that a program asks for by a system call instruction of its own.

use core::ffi::c_void;

use memlens_events::restriction::{SECCOMP, by_prctl, by_seccomp};

use crate::real;
use crate::session;

/// Before syscall(2): the function to go on in.
pub extern "C" fn before_syscall(
    number: usize,
    operation: usize,
    flags: usize,
    arguments: usize,
) -> *mut c_void {
    if number == SECCOMP && by_seccomp(operation, flags, arguments) {
        session::leave();
    }
    real::at_any_time(&real::SYSCALL, c"syscall")
}

/// Before prctl(2): the function to go on in.
pub extern "C" fn before_prctl(option: usize, mode: usize, filter: usize) -> *mut c_void {
    if by_prctl(option, mode, filter) {
        session::leave();
    }
    real::at_any_time(&real::PRCTL, c"prctl")
}

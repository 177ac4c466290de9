//! What this process was given at its start, before Rust's runtime changed it.
//!
//! Rust ignores SIGPIPE and opens `/dev/null` in place of closed standard streams before `main`
//! (`library/std/src/sys/pal/unix/mod.rs`, `init`). Who ignores SIGCHLD, as some services do, is not told how its children
//! end (wait(2)), so that is undone here. A program started by memlens must find all three as memlens itself found them; so they
//! are looked at earlier still, by a constructor of the ELF image.

use std::sync::atomic::{AtomicBool, Ordering};

/// Signals that this process treats otherwise than it was given them.
const CHANGED: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGCHLD];
static IGNORED: [AtomicBool; CHANGED.len()] = [const { AtomicBool::new(false) }; CHANGED.len()];
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Called by the loader, before Rust's runtime. Makes system calls only.
extern "C" fn remember() {
    // SAFETY: the calls ask, or set a default action; a zeroed sigaction is valid.
    unsafe {
        for (signal, ignored) in CHANGED.into_iter().zip(&IGNORED) {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0 {
                ignored.store(action.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
            }
        }
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        for (fd, closed) in (0..).zip(&CLOSED) {
            closed.store(libc::fcntl(fd, libc::F_GETFD) < 0, Ordering::Relaxed);
        }
    }
}

// SAFETY: an entry of `.init_array` is a function without needed arguments (System V gABI, "Initialization and
// Termination Functions"); this one neither needs nor touches what Rust's runtime sets up.
#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = remember;

/// The signals that this process treats otherwise than it was given them, and whether they were ignored.
pub fn changed_signals() -> [(libc::c_int, bool); CHANGED.len()] {
    std::array::from_fn(|at| (CHANGED[at], IGNORED[at].load(Ordering::Relaxed)))
}

/// Which of the three standard streams were closed.
pub fn closed_streams() -> [bool; 3] {
    [0, 1, 2].map(|fd: usize| CLOSED[fd].load(Ordering::Relaxed))
}

/// The signals that a program started now inherits as ignored: bit *n* - 1 for signal *n*.
pub fn ignored_signals() -> u64 {
    (1..=64).fold(0, |set, signal| {
        // SAFETY: the call only asks; a zeroed sigaction is valid.
        let ignored = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let known = libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0;
            known && action.sa_sigaction == libc::SIG_IGN
        };
        let changed = changed_signals().into_iter().find(|&(other, _)| other == signal);
        let ignored = changed.map_or(ignored, |(_, was_ignored)| was_ignored);
        set | u64::from(ignored) << (signal - 1)
    })
}

/// The signals that a program started by this thread inherits as blocked.
pub fn blocked_signals() -> u64 {
    // SAFETY: a zeroed set is valid; the calls only ask.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
        (1..=64).fold(0, |bits, signal| {
            bits | u64::from(libc::sigismember(&raw const set, signal) == 1) << (signal - 1)
        })
    }
}

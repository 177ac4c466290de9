//! What this process was given at its start, before Rust's runtime changed it.
//!
//! Rust ignores SIGPIPE and opens `/dev/null` in place of closed standard streams before `main`
//! (`library/std/src/sys/pal/unix/mod.rs`, `init`). A program started by memlens must find both as
//! memlens itself found them; so they are looked at earlier still, by a constructor of the ELF image.

use std::sync::atomic::{AtomicBool, Ordering};

static PIPE_SIGNAL_IGNORED: AtomicBool = AtomicBool::new(false);
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Called by the loader, before Rust's runtime. Makes system calls only.
extern "C" fn remember() {
    // SAFETY: the calls only ask; a zeroed sigaction is valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) == 0 {
            PIPE_SIGNAL_IGNORED.store(action.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
        }
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

/// Whether SIGPIPE was ignored.
pub fn pipe_signal_ignored() -> bool {
    PIPE_SIGNAL_IGNORED.load(Ordering::Relaxed)
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
        let ignored = if signal == libc::SIGPIPE { pipe_signal_ignored() } else { ignored };
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

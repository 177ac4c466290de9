//! What this process was given at its start, before Rust's runtime changed it.
//!
//! Rust ignores SIGPIPE and opens `/dev/null` in place of closed standard streams before `main`
//! (`library/std/src/sys/pal/unix/mod.rs`, `init`). A program started by memlens must find both as
//! memlens itself found them; so they are looked at earlier still, by a constructor of the ELF image.
#![allow(unsafe_code)]

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

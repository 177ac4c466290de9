//! Signals passed on to the program.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::handlers::Handlers;

/// What somebody may send to memlens and mean the program: the ways to end one, the two that programs give
/// a meaning of their own, going on after the program has stopped itself, and SIGWINCH, which servers take
/// as a request (Apache httpd: finish and end).
const FORWARDED: [libc::c_int; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGCONT,
    libc::SIGWINCH,
];

/// The process to which signals are passed on; 0: none.
static FORWARD_TO: AtomicI32 = AtomicI32::new(0);

/// As long as it lives, one process gets the signals that are sent to this one.
#[derive(Debug)]
pub(crate) struct Forwarding {
    handlers: Handlers,
}

impl Forwarding {
    /// `None` while another process gets them: handlers belong to the whole process, so there is one at
    /// a time, the first.
    pub fn to(pid: libc::pid_t) -> Option<Self> {
        FORWARD_TO.compare_exchange(0, pid, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        // SAFETY: `forward` makes one async-signal-safe call and puts `errno` back.
        let handlers = unsafe { Handlers::install(&FORWARDED, forward, 0) };
        Some(Self { handlers })
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        // In this order: the next one must find the handlers that were there before this one's.
        self.handlers.restore();
        FORWARD_TO.store(0, Ordering::Relaxed);
    }
}

/// Passes on what somebody sent to memlens alone. What the kernel sends (the terminal's keys) goes to the whole process
/// group, so the program has it already; but that a terminal has hung up is told to the session's leader only (setsid(2)), which would
/// be the program if it had been started in our place.
extern "C" fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel's structure; the calls are async-signal-safe, and errno is put back.
    unsafe {
        let pid = FORWARD_TO.load(Ordering::Relaxed);
        let is_leaders = signal == libc::SIGHUP && libc::getsid(0) == libc::getpid();
        if pid > 0 && ((*info).si_code <= 0 || is_leaders) {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::kill(pid, signal);
            *errno = before;
        }
    }
}

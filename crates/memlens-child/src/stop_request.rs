//! Requests to stop, noted instead of obeyed.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::handlers::Handlers;

static HAS_COME: AtomicBool = AtomicBool::new(false);

/// As long as it lives, the first of the keys and signals that mean "stop" (SIGINT, SIGTERM, SIGHUP) sets
/// a flag instead of ending this process; the same once more ends it. One at a time: the flag is one.
#[derive(Debug)]
pub struct StopRequest {
    _handlers: Handlers,
}

impl StopRequest {
    /// Listens from now on, to those of the signals that are not ignored.
    pub fn listen() -> Self {
        HAS_COME.store(false, Ordering::Relaxed);
        let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
        // SAFETY: the handler stores to an atomic, nothing else.
        Self { _handlers: unsafe { Handlers::install(&signals, note, libc::SA_RESETHAND) } }
    }

    /// Whether one came.
    pub fn has_come(&self) -> bool {
        HAS_COME.load(Ordering::Relaxed)
    }
}

extern "C" fn note(_signal: libc::c_int, _info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    HAS_COME.store(true, Ordering::Relaxed);
}

//! Handlers of signals for a time.

use std::{mem, ptr};

/// A handler as sigaction(2) takes it with `SA_SIGINFO`.
pub(crate) type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Handlers that are installed as long as it lives; then what was there before comes back.
#[derive(Debug)]
pub(crate) struct Handlers {
    replaced: Vec<(libc::c_int, libc::sigaction)>,
}

impl Handlers {
    /// Installs `handler` for each of `signals` that is not ignored: who started memlens so (`nohup`, a
    /// shell's background jobs) means that nothing shall happen. `flags` are further ones of sigaction(2).
    ///
    /// # Safety
    /// `handler` must be async-signal-safe (signal-safety(7)).
    pub unsafe fn install(signals: &[libc::c_int], handler: Handler, flags: libc::c_int) -> Self {
        let mut replaced = Vec::new();
        for &signal in signals {
            // SAFETY: zeroed is a valid sigaction; the handler is of the kind that SA_SIGINFO says, and the
            // caller promises that it may be called at any time.
            unsafe {
                let mut before: libc::sigaction = mem::zeroed();
                let mut action: libc::sigaction = mem::zeroed();
                action.sa_sigaction = handler as libc::sighandler_t;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | flags;
                let known = libc::sigaction(signal, ptr::null(), &raw mut before) == 0;
                if known
                    && before.sa_sigaction != libc::SIG_IGN
                    && libc::sigaction(signal, &raw const action, ptr::null_mut()) == 0
                {
                    replaced.push((signal, before));
                }
            }
        }
        Self { replaced }
    }

    /// Puts back what was there before.
    pub fn restore(&mut self) {
        for (signal, action) in self.replaced.drain(..) {
            // SAFETY: what the kernel gave us before.
            unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
        }
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        self.restore();
    }
}

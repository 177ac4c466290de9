//! How a process ended.

use std::{io, mem};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitOutcome {
    /// It returned or called `exit`, with this code: 0 to 255.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

/// Waits until the child process `pid` has ended and says how. It stays a zombie, so that somebody else who
/// waits for it is not deceived.
///
/// Async-signal-safe: system calls only, no memory.
///
/// # Errors
/// `ECHILD`: it is no child of this process, or no longer.
pub fn wait_for_end(pid: u32) -> io::Result<ExitOutcome> {
    loop {
        match end_of(pid, 0) {
            Ok(Some(outcome)) => return Ok(outcome),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            Ok(None) | Err(_) => {}
        }
    }
}

/// How a child ended, if it has; leaves it a zombie. `options` are further ones of waitid(2).
pub(crate) fn end_of(pid: u32, options: libc::c_int) -> io::Result<Option<ExitOutcome>> {
    // SAFETY: zeroed is a valid siginfo; the call writes to it, and what it wrote are a child's fields.
    unsafe {
        let mut info: libc::siginfo_t = mem::zeroed();
        let options = options | libc::WEXITED | libc::WNOWAIT;
        if libc::waitid(libc::P_PID, pid, &raw mut info, options) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((info.si_pid() != 0).then(|| match info.si_code {
            libc::CLD_EXITED => ExitOutcome::Code(info.si_status()),
            _ => ExitOutcome::Signal(info.si_status()),
        }))
    }
}

/// Whether a process runs, or will run again. One that has ended is there until somebody has waited for it (proc_pid_stat(5): its
/// state is behind its name).
pub fn process_runs(pid: u32) -> bool {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}

//! Why samples cannot be taken.

use std::io;

use thiserror::Error;

/// An error of this crate; reads after "failed to".
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SampleError {
    /// The kernel does not let this user open events.
    #[error(
        "open a performance event: {0}; perf_event_paranoid is {level}: allow it with `sudo sysctl \
         kernel.perf_event_paranoid=2`, in a container with --cap-add PERFMON and a seccomp profile that \
         allows perf_event_open; `memlens run --mode exact` needs neither",
        level = paranoid_level()
    )]
    Forbidden(io::Error),
    /// The kernel has no such events.
    #[error("open a performance event: {0}; `memlens doctor` says what this machine allows")]
    Unavailable(io::Error),
    /// The agent, which was to take the samples, cannot be in the program.
    #[error("sample the program by timers of its own: {0}; use another --event")]
    NoTimers(String),
    /// The process to watch is not there.
    #[error("watch process {0}: there is no such process")]
    NoProcess(u32),
    /// The process belongs to somebody else.
    #[error("watch process {0}: {1}; run memlens as its owner or as root")]
    NotOurs(u32, io::Error),
    /// The program cannot be started.
    #[error("start the program: {0}")]
    Start(io::Error),
    /// Waiting for it failed.
    #[error("wait for the program: {0}")]
    Wait(io::Error),
}

impl SampleError {
    /// What an error of perf_event_open(2) or of mapping its ring means.
    pub(crate) fn of_event(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => Self::Forbidden(error),
            _ => Self::Unavailable(error),
        }
    }
}

/// What `/proc/sys/kernel/perf_event_paranoid` says.
pub fn paranoid_level() -> String {
    match std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid") {
        Ok(level) => level.trim().to_owned(),
        Err(_) => "unknown".to_owned(),
    }
}

//! Why samples cannot be taken.

use std::io;

use memlens_agent_host::AgentError;
use thiserror::Error;

/// Whether there is exact mode, which needs no events.
const HAS_EXACT: bool = cfg!(target_arch = "x86_64");
const INSTEAD: &str = if HAS_EXACT { "; `memlens run --mode exact` needs no permission" } else { "" };
const FOR_ALL: &str = if HAS_EXACT { " and for all with --mode exact" } else { "" };

/// An error of this crate; reads after "failed to".
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SampleError {
    /// The kernel, or a container around it, does not let this user open events.
    #[error(
        "open a performance event: {0} (perf_event_paranoid is {level}); allow it: {advice}{INSTEAD}",
        level = paranoid_level(),
        advice = permission_advice(.0)
    )]
    Forbidden(io::Error),
    /// There is no such system call, or it knows not even the clock.
    #[error(
        "open a performance event: this kernel has no perf_event_open ({0}): a sandbox such as gVisor, or built \
         without CONFIG_PERF_EVENTS; `memlens run` needs none for programs that are linked dynamically \
         (--mode sample){FOR_ALL}"
    )]
    NoEvents(io::Error),
    /// The kernel has no such events.
    #[error("open a performance event: {0}; `memlens doctor` says what this machine allows")]
    Unavailable(io::Error),
    /// No source of events with data addresses.
    #[error(
        "sample memory accesses: this kernel offers no mem-loads, ibs_op or arm_spe_0 here (virtual machines rarely do); \
         --event time samples the processor clock, and `memlens doctor` says what this machine allows"
    )]
    NoMemoryEvents,
    /// The agent, which was to take the samples, cannot be in the program.
    #[error("sample the program by timers of its own: {0}; use another --event")]
    NoTimers(String),
    /// The agent, which was to record bursts, cannot be in the program.
    #[error("record bursts: {0}; --mode sample and --mode exact do without what that needs")]
    NoBursts(String),
    /// The agent, which was to take the samples, cannot be brought into a running process.
    #[error(transparent)]
    Attach(AgentError),
    /// The process to watch is not there.
    #[error("watch process {0}: there is no such process")]
    NoProcess(u32),
    /// The process belongs to somebody else.
    #[error("watch process {0}: {1}; run memlens as its owner or as root")]
    NotOurs(u32, io::Error),
    /// Each thread takes an event on each processor.
    #[error(
        "watch process {0}: {1}; each thread takes a file descriptor on each processor, and the hard limit \
         (`ulimit -Hn`) is too low"
    )]
    TooManyThreads(u32, io::Error),
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
            // ENODEV is the answer of gVisor (pkg/sentry/syscalls/linux/linux64.go).
            Some(libc::ENOSYS | libc::ENODEV) => Self::NoEvents(error),
            _ => Self::Unavailable(error),
        }
    }

    /// The kernel's part of it, in a few words.
    pub(crate) fn of_the_kernel(&self) -> String {
        match self {
            Self::NoEvents(error) => format!("this kernel has no perf_event_open ({error})"),
            Self::Forbidden(error) | Self::Unavailable(error) => error.to_string(),
            other => other.to_string(),
        }
    }
}

/// What makes the kernel allow events after it answered with this error.
///
/// `EACCES` is the answer of `kernel.perf_event_paranoid` (perf_event_open(2); levels above 2 are Debian's
/// and Android's), `EPERM` that of a seccomp filter as container runtimes install it, or of a missing capability.
pub fn permission_advice(error: &io::Error) -> String {
    if error.raw_os_error() == Some(libc::EPERM) {
        return "in a container, --cap-add PERFMON and a seccomp profile that allows perf_event_open; \
                elsewhere, run it as root"
            .to_owned();
    }
    // 2 allows what happens in user mode; a lower level, also what needs more.
    let level = paranoid_level().parse::<i32>().map_or(2, |level| (level - 1).clamp(-1, 2));
    format!("sudo sysctl kernel.perf_event_paranoid={level}")
}

/// What `/proc/sys/kernel/perf_event_paranoid` says.
pub fn paranoid_level() -> String {
    match std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid") {
        Ok(level) => level.trim().to_owned(),
        Err(_) => "unknown".to_owned(),
    }
}

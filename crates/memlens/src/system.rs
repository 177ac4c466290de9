//! The system calls that Rust's library has no words for. All unsafe code of this crate is here and in `large_blocks.rs`.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

use memlens_child::ExitOutcome;

use crate::failure::FailureKind;

/// Columns of the terminal at a descriptor; `None` if it is no terminal or does not know.
pub fn terminal_columns(descriptor: i32) -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ fills the structure that the pointer is valid for.
    let answer = unsafe { libc::ioctl(descriptor, libc::TIOCGWINSZ, &raw mut size) };
    (answer == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Ends this process by `signal`, as the program was ended, but without a second core file. Returns
/// only where the system does not let a process kill itself.
pub fn die_of(signal: i32) {
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structures outlive the calls; the default action needs no handler; the signal set is
    // initialised by sigemptyset.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        // The limit does not hold for core files that go through a pipe (core(5)).
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::signal(signal, libc::SIG_DFL);
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::kill(libc::getpid(), signal);
    }
}

/// As long as this lives, this process's stdout, and that of programs that it starts, goes nowhere.
pub struct SilentStdout(OwnedFd);

impl SilentStdout {
    /// From now on.
    ///
    /// # Errors
    /// When there is no descriptor left, or no `/dev/null`.
    pub fn begin() -> io::Result<Self> {
        io::stdout().flush()?;
        let nowhere = File::options().write(true).open("/dev/null")?;
        // SAFETY: duplicates a descriptor number; a descriptor that comes back is ours to close.
        let kept = unsafe {
            let kept = libc::fcntl(libc::STDOUT_FILENO, libc::F_DUPFD_CLOEXEC, 3);
            if kept < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(kept)
        };
        // SAFETY: both are open; what was stdout stays open as `kept`.
        match unsafe { libc::dup2(nowhere.as_raw_fd(), libc::STDOUT_FILENO) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(Self(kept)),
        }
    }
}

impl Drop for SilentStdout {
    fn drop(&mut self) {
        // SAFETY: both are open.
        unsafe { libc::dup2(self.0.as_raw_fd(), libc::STDOUT_FILENO) };
    }
}

/// What ends memlens at once: `abort`, Rust's for want of memory or for a panic while panicking, and SIGSEGV, of a stack that is too
/// small or cannot grow. A program that is being recorded goes on, and memlens then ends as it does. Said once: where one
/// thread finds no memory, others soon find none, either.
pub fn outlive_failures() {
    /// The thread that came first; 0: none so far.
    static FIRST: AtomicI32 = AtomicI32::new(0);
    extern "C" fn aborted(_: libc::c_int) {
        // SAFETY: async-signal-safe.
        let own = unsafe { libc::gettid() };
        match FIRST.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {}
            // What follows has failed, too. SAFETY: async-signal-safe.
            Err(first) if first == own => unsafe { libc::_exit(FailureKind::Internal.exit_code().into()) },
            // The first one ends the process.
            Err(_) => loop {
                // SAFETY: async-signal-safe.
                unsafe { libc::pause() };
            },
        }
        let message = match memlens_exact::is_recording() {
            true => {
                "memlens: stopped by a failure (named above, if it could be): a limit of memory (ulimit -v, a container's), \
                 or a fault to report; a program being recorded goes on unrecorded, its last partial profile stays\n"
            }
            false => {
                "memlens: stopped by a failure (named above, if it could be): a limit of memory (ulimit -v, a container's), \
                 or a fault to report\n"
            }
        };
        // SAFETY: a constant of that length; `write` and `_exit` are async-signal-safe, as are
        // `release_program` and `die_of`.
        unsafe {
            libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len());
            match memlens_exact::release_program() {
                Some(ExitOutcome::Code(code)) => libc::_exit(code),
                Some(ExitOutcome::Signal(signal)) => {
                    die_of(signal);
                    libc::_exit(128 + signal)
                }
                None => libc::_exit(FailureKind::Internal.exit_code().into()),
            }
        }
    }
    // A limit of addresses ends in SIGSEGV where the main thread's stack cannot grow: handled on the stack that Rust has for that.
    for signal in [libc::SIGABRT, libc::SIGSEGV] {
        // SAFETY: a zeroed sigaction is valid; the handler is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = aborted as extern "C" fn(_) as libc::sighandler_t;
            action.sa_flags = libc::SA_ONSTACK;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// From now on writing beyond the limit of file sizes (`ulimit -f`) is an error like a full disk, and not
/// the end of this process. A handler, not `SIG_IGN`: programs started from here do not inherit it.
pub fn outlive_file_limits() {
    extern "C" fn beyond(_: libc::c_int) {}
    // SAFETY: a zeroed sigaction is valid; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        let known = libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &raw mut action) == 0;
        if known && action.sa_sigaction != libc::SIG_IGN {
            action.sa_sigaction = beyond as extern "C" fn(_) as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGXFSZ, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Addresses that a recorded program takes: some 10 GiB that the engine reserves and the shared segment.
/// Measured: with 10 GB the client cannot map the segment, with 12 GB all is well.
const NEEDED_ADDRESSES: u64 = 12_000_000_000;
/// The shared segment's size, which counts as a file's.
const NEEDED_FILE_BYTES: u64 = memlens_events::segment::SEGMENT_BYTES as u64;
/// Measured: 7 are enough for a shell.
const NEEDED_DESCRIPTORS: u64 = 16;

/// The limits of this process (getrlimit(2)) that are too low for a recording, each with the command
/// that lifts it.
pub fn low_limits() -> Vec<String> {
    let limits = [
        (libc::RLIMIT_AS, NEEDED_ADDRESSES, "bytes of addresses", "-v unlimited"),
        (libc::RLIMIT_FSIZE, NEEDED_FILE_BYTES, "bytes in a file", "-f unlimited"),
        (libc::RLIMIT_NOFILE, NEEDED_DESCRIPTORS, "open files", "-n 1024"),
    ];
    let mut low = Vec::new();
    for (resource, needed, what, option) in limits {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the call fills the structure.
        let known = unsafe { libc::getrlimit(resource, &raw mut limit) } == 0;
        if known && limit.rlim_cur != libc::RLIM_INFINITY && limit.rlim_cur < needed {
            let is = limit.rlim_cur;
            low.push(format!("only {is} {what} are allowed, {needed} needed: ulimit {option}"));
        }
    }
    low
}

/// Memory that the system can still give, and all of it, in KiB; `None` where it does not say.
pub fn available_memory_kib() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').trim().strip_suffix(" kB")?.parse().ok()
    };
    Some((value("MemAvailable")?, value("MemTotal")?))
}

/// Gives memory that was freed back to the system, where the C library keeps it.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call has no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Blocks from this size on have mappings of their own. Units: bytes.
#[cfg(target_env = "gnu")]
const APART_FROM: libc::c_int = 512 << 10;

/// Keeps large blocks out of the heap, where what is freed of them stays between others. The C library does so by
/// itself, until a large one has been freed.
pub fn keep_large_blocks_apart() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call has no preconditions.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, APART_FROM);
    }
}

/// Whether an anonymous shared file can be made.
pub fn memfd_create() -> io::Result<()> {
    // SAFETY: a terminated name; a descriptor that the call returns is ours to close.
    unsafe {
        let descriptor = libc::memfd_create(c"memlens-doctor".as_ptr(), libc::MFD_CLOEXEC);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        drop(OwnedFd::from_raw_fd(descriptor));
    }
    Ok(())
}

/// Whether the file system at `path` forbids execution (`noexec`).
pub fn forbids_execution(path: &Path) -> io::Result<bool> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a terminated path, and a structure for which all zero is a value.
    unsafe {
        let mut status: libc::statvfs = mem::zeroed();
        if libc::statvfs(path.as_ptr(), &raw mut status) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(status.f_flag & libc::ST_NOEXEC != 0)
    }
}

/// A counter of the kernel or the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// CPU time, counted by the kernel.
    TaskClock,
    /// Cycles, counted by the processor.
    Cycles,
    /// Instructions, counted by the processor.
    Instructions,
}

/// `struct perf_event_attr` in its first version (`PERF_ATTR_SIZE_VER0`, linux/perf_event.h), which
/// every kernel takes.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

/// Opens and closes a counter for this process, user mode only (perf_event_open(2)).
pub fn try_counter(counter: Counter) -> io::Result<()> {
    const TYPE_HARDWARE: u32 = 0;
    const TYPE_SOFTWARE: u32 = 1;
    const DISABLED: u64 = 1;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
    // PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS, PERF_COUNT_SW_TASK_CLOCK.
    let (kind, config) = match counter {
        Counter::TaskClock => (TYPE_SOFTWARE, 1),
        Counter::Cycles => (TYPE_HARDWARE, 0),
        Counter::Instructions => (TYPE_HARDWARE, 1),
    };
    let attributes = PerfEventAttr {
        kind,
        size: mem::size_of::<PerfEventAttr>() as u32,
        config,
        flags: DISABLED | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR,
        ..PerfEventAttr::default()
    };
    let (this_process, any_cpu, no_group, no_flags) = (0, -1, -1, 0_u64);
    // SAFETY: the structure has the size that it names; a descriptor that comes back is ours to close.
    unsafe {
        let descriptor = libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            this_process,
            any_cpu,
            no_group,
            no_flags,
        );
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        drop(OwnedFd::from_raw_fd(descriptor as i32));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attribute_structure_has_its_published_size() {
        // PERF_ATTR_SIZE_VER0.
        assert_eq!(mem::size_of::<PerfEventAttr>(), 64);
    }

    #[test]
    fn shared_files_and_mounts_can_be_asked_about() {
        memfd_create().expect("Linux has had it since 3.17");
        assert!(!forbids_execution(Path::new("/bin")).expect("it is mounted"));
        assert!(forbids_execution(Path::new("/no/such/place")).is_err());
    }
}

//! The program: started, held until the events are open, then let go. It runs as it would without
//! memlens: nothing is preloaded, and its environment, descriptors and signals are its own.
#![allow(unsafe_code)]

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::inherited;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitOutcome {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// Signals that somebody may send to memlens and mean the program.
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

static FORWARD_TO: AtomicI32 = AtomicI32::new(0);
static STOP: AtomicBool = AtomicBool::new(false);

/// A program that waits to be let go, or runs.
#[derive(Debug)]
pub struct Child {
    pid: libc::pid_t,
    gate: Option<File>,
    failure: File,
    outcome: Option<ExitOutcome>,
    replaced: Vec<(libc::c_int, libc::sigaction)>,
}

impl Child {
    /// Starts a process that will execute `file` once [`Self::release`] is called.
    ///
    /// # Errors
    /// Those of fork(2) and pipe(2), and words with a zero in them.
    pub fn hold(file: &Path, arguments: &[OsString]) -> io::Result<Self> {
        let file = CString::new(file.as_os_str().as_bytes())?;
        let words =
            arguments.iter().map(|word| CString::new(word.as_bytes())).collect::<Result<Vec<_>, _>>()?;
        let argv: Vec<_> = words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect();
        let environment = std::env::vars_os()
            .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect::<Result<Vec<_>, _>>()?;
        let envp: Vec<_> = environment.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect();
        let (ignores_pipe, closed) = (inherited::pipe_signal_ignored(), inherited::closed_streams());
        let (gate_out, gate_in) = pipe()?;
        let (failure_out, failure_in) = pipe()?;
        // SAFETY: the child makes async-signal-safe system calls with
        // memory prepared above until it is replaced or ends.
        let pid = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                // Rust ignores SIGPIPE and opens closed streams; the program gets what memlens was
                // started with.
                libc::signal(libc::SIGPIPE, if ignores_pipe { libc::SIG_IGN } else { libc::SIG_DFL });
                for (fd, _) in (0..).zip(closed).filter(|(_, closed)| *closed) {
                    libc::close(fd);
                }
                libc::close(gate_in.as_raw_fd());
                let mut byte = 0u8;
                let got = loop {
                    let got = libc::read(gate_out.as_raw_fd(), (&raw mut byte).cast(), 1);
                    if got >= 0 || *libc::__errno_location() != libc::EINTR {
                        break got;
                    }
                };
                if got == 1 {
                    libc::execve(file.as_ptr(), argv.as_ptr(), envp.as_ptr());
                    let code = *libc::__errno_location();
                    libc::write(failure_in.as_raw_fd(), (&raw const code).cast(), mem::size_of_val(&code));
                }
                libc::_exit(127);
            }
            pid
        };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        drop((gate_out, failure_in));
        FORWARD_TO.store(pid, Ordering::Relaxed);
        let replaced = handle(&FORWARDED, forward as *const () as libc::sighandler_t);
        Ok(Self { pid, gate: Some(gate_in), failure: failure_out, outcome: None, replaced })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Lets it execute the program.
    ///
    /// # Errors
    /// Why the program cannot be executed.
    pub fn release(&mut self) -> io::Result<()> {
        if let Some(mut gate) = self.gate.take() {
            gate.write_all(b"x")?;
        }
        let mut code = [0; 4];
        if self.failure.read_exact(&mut code).is_ok() {
            return Err(io::Error::from_raw_os_error(i32::from_ne_bytes(code)));
        }
        Ok(())
    }

    /// How it ended, if it has. Does not wait.
    ///
    /// # Errors
    /// Those of waitpid(2).
    pub fn try_wait(&mut self) -> io::Result<Option<ExitOutcome>> {
        if self.outcome.is_some() {
            return Ok(self.outcome);
        }
        let mut status = 0;
        // SAFETY: zeroed is a valid siginfo; the calls write to our variables.
        unsafe {
            let mut info: libc::siginfo_t = mem::zeroed();
            // Leaves it a zombie: as long as it is one, nobody else gets its id and our signals.
            let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            if libc::waitid(libc::P_PID, self.id(), &raw mut info, options) < 0 {
                return Err(io::Error::last_os_error());
            }
            if info.si_pid() == 0 {
                return Ok(None);
            }
            self.stop_forwarding();
            if libc::waitpid(self.pid, &raw mut status, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        self.outcome = Some(match libc::WIFSIGNALED(status) {
            true => ExitOutcome::Signal(libc::WTERMSIG(status)),
            false => ExitOutcome::Code(libc::WEXITSTATUS(status)),
        });
        Ok(self.outcome)
    }

    fn stop_forwarding(&mut self) {
        FORWARD_TO.store(0, Ordering::Relaxed);
        restore(&mut self.replaced);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Not yet let go: it ends by itself when the gate closes, and is taken away here.
        if self.gate.take().is_some() && self.outcome.is_none() {
            // SAFETY: our child; its status is not wanted.
            unsafe { libc::waitpid(self.pid, ptr::null_mut(), 0) };
        }
        self.stop_forwarding();
    }
}

/// As long as it lives, the keys and signals that mean "stop" set a flag instead of ending memlens.
#[derive(Debug)]
pub struct StopRequest {
    replaced: Vec<(libc::c_int, libc::sigaction)>,
}

impl StopRequest {
    /// Installs the handlers.
    pub fn listen() -> Self {
        STOP.store(false, Ordering::Relaxed);
        let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
        Self { replaced: handle(&signals, stop as *const () as libc::sighandler_t) }
    }

    /// Whether one came.
    pub fn has_come(&self) -> bool {
        STOP.load(Ordering::Relaxed)
    }
}

impl Drop for StopRequest {
    fn drop(&mut self) {
        restore(&mut self.replaced);
    }
}

extern "C" fn stop(_signal: libc::c_int, _info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    STOP.store(true, Ordering::Relaxed);
}

/// Passes on what somebody sent to memlens alone. What the kernel sends (the terminal's keys, its
/// hanging up) goes to the whole process group, so the program has it already.
extern "C" fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel's structure; kill is async-signal-safe, and errno is put back.
    unsafe {
        let pid = FORWARD_TO.load(Ordering::Relaxed);
        if pid > 0 && (*info).si_code <= 0 {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::kill(pid, signal);
            *errno = before;
        }
    }
}

/// Installs a handler, except where signals are ignored (`nohup`, background jobs). Returns what was
/// there.
fn handle(signals: &[libc::c_int], handler: libc::sighandler_t) -> Vec<(libc::c_int, libc::sigaction)> {
    let mut replaced = Vec::new();
    for &signal in signals {
        // SAFETY: zeroed is a valid sigaction; the handlers are async-signal-safe.
        unsafe {
            let mut before: libc::sigaction = mem::zeroed();
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = handler;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            let known = libc::sigaction(signal, ptr::null(), &raw mut before) == 0;
            if known
                && before.sa_sigaction != libc::SIG_IGN
                && libc::sigaction(signal, &raw const action, ptr::null_mut()) == 0
            {
                replaced.push((signal, before));
            }
        }
    }
    replaced
}

fn restore(replaced: &mut Vec<(libc::c_int, libc::sigaction)>) {
    for (signal, action) in replaced.drain(..) {
        // SAFETY: what the kernel gave us before.
        unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    }
}

/// Reading and writing end; neither survives an `execve`.
fn pipe() -> io::Result<(File, File)> {
    let mut ends = [-1; 2];
    // SAFETY: room for two descriptors; they are owned from here on.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])))
    }
}

/// A descriptor that becomes readable when a process ends.
///
/// # Errors
/// `ESRCH`: there is no such process.
pub fn open_process(pid: u32) -> io::Result<File> {
    // SAFETY: a descriptor that comes back is ours.
    unsafe {
        let descriptor = libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0 as libc::c_long);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(File::from_raw_fd(descriptor as libc::c_int))
    }
}

/// Whether the process behind a descriptor of [`open_process`] has ended.
pub fn has_ended(process: &File) -> bool {
    let mut polled = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, as the length says.
    unsafe { libc::poll(&raw mut polled, 1, 0) > 0 }
}

/// Processor time that this process has used, in seconds.
pub fn own_cpu_seconds() -> f64 {
    // SAFETY: zeroed is a valid rusage; the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

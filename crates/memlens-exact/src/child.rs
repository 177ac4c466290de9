//! The process under the engine: started, waited for, and sent the signals that memlens gets.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::{mem, ptr};

use crate::inherited;
use crate::session::ExitOutcome;

/// The process to which signals are passed on; 0: none.
static FORWARD_TO: AtomicI32 = AtomicI32::new(0);

/// Signals that memlens passes on.
const FORWARDED: [libc::c_int; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// A program that can be executed at once: nothing of it needs memory between fork and exec.
pub struct Image {
    file: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Image {
    /// What `execve` will be given.
    pub fn new(file: CString, arguments: Vec<CString>, environment: Vec<CString>) -> Self {
        Self { file, arguments, environment }
    }
}

/// A child process.
pub struct Child {
    pid: libc::pid_t,
    outcome: Option<ExitOutcome>,
    /// What memlens did with signals before.
    replaced: Vec<(libc::c_int, libc::sigaction)>,
}

impl Child {
    /// Starts `image`, which inherits the descriptor `kept` besides what it would inherit anyway.
    ///
    /// The process finds signals, their mask and the standard streams as memlens found them:
    /// `std::process::Command` would reset the first two.
    pub fn spawn(image: &Image, kept: RawFd) -> io::Result<Self> {
        let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
            strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
        };
        let (argv, envp) = (pointers(&image.arguments), pointers(&image.environment));
        let (ignores_pipe, closed) = (inherited::pipe_signal_ignored(), inherited::closed_streams());
        let mut pipe = [-1; 2];
        // SAFETY: room for two descriptors; they are owned from here on.
        let (mut reading, writing) = unsafe {
            if libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
                return Err(io::Error::last_os_error());
            }
            (File::from_raw_fd(pipe[0]), File::from_raw_fd(pipe[1]))
        };
        // SAFETY: the child makes system calls only, with memory prepared above, until it is replaced
        // or ends.
        let pid = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::signal(libc::SIGPIPE, if ignores_pipe { libc::SIG_IGN } else { libc::SIG_DFL });
                for (fd, _) in (0..).zip(closed).filter(|(_, closed)| *closed) {
                    libc::close(fd);
                }
                libc::fcntl(kept, libc::F_SETFD, 0);
                libc::execve(image.file.as_ptr(), argv.as_ptr(), envp.as_ptr());
                let code = *libc::__errno_location();
                libc::write(pipe[1], (&raw const code).cast(), mem::size_of_val(&code));
                libc::_exit(127);
            }
            pid
        };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        drop(writing);
        let mut code = [0; 4];
        if reading.read_exact(&mut code).is_ok() {
            // SAFETY: our child, which has ended.
            unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
            return Err(io::Error::from_raw_os_error(i32::from_ne_bytes(code)));
        }
        FORWARD_TO.store(pid, Ordering::Relaxed);
        Ok(Self { pid, outcome: None, replaced: forward_signals() })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// How it ended, if it has. Does not wait.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitOutcome>> {
        if self.outcome.is_some() {
            return Ok(self.outcome);
        }
        // SAFETY: zeroed is a valid siginfo; the calls write to our variables.
        unsafe {
            let mut info: libc::siginfo_t = mem::zeroed();
            // Leaves it a zombie: as long as it is one, nobody else gets its id.
            let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            if libc::waitid(libc::P_PID, self.id(), &raw mut info, options) < 0 {
                return Err(io::Error::last_os_error());
            }
            if info.si_pid() == 0 {
                return Ok(None);
            }
            self.stop_forwarding();
            let mut status = 0;
            if libc::waitpid(self.pid, &raw mut status, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
            self.outcome = Some(if libc::WIFSIGNALED(status) {
                ExitOutcome::Signal(libc::WTERMSIG(status))
            } else {
                ExitOutcome::Code(libc::WEXITSTATUS(status))
            });
        }
        Ok(self.outcome)
    }

    fn stop_forwarding(&mut self) {
        FORWARD_TO.store(0, Ordering::Relaxed);
        for (signal, action) in self.replaced.drain(..) {
            // SAFETY: what the kernel gave us before.
            unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.stop_forwarding();
    }
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

/// Installs `forward`, except where signals are ignored (`nohup`, background jobs). Returns what was
/// there.
fn forward_signals() -> Vec<(libc::c_int, libc::sigaction)> {
    let mut replaced = Vec::new();
    for signal in FORWARDED {
        // SAFETY: zeroed is a valid sigaction; the handler is async-signal-safe.
        unsafe {
            let mut before: libc::sigaction = mem::zeroed();
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = forward as extern "C" fn(_, _, _) as libc::sighandler_t;
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

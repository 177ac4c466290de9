//! A process before and after it executes its program.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::mem::{self, ManuallyDrop};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;

use crate::exit_outcome::{ExitOutcome, end_of};
use crate::forwarding::Forwarding;
use crate::image::Image;
use crate::inherited;

/// A process that waits at its gate: it has an id, and its program has not begun.
///
/// Dropped, it ends without executing anything and is waited for. It ends as well when this process dies.
#[derive(Debug)]
pub struct Held {
    // Dropped in this order: the gate before the process that waits at it is waited for.
    /// A byte lets the process execute its program; the end of the pipe ends it.
    gate: PipeWriter,
    /// The process's `errno` if it cannot execute its program; else nothing.
    failure: PipeReader,
    process: Reaped,
}

impl Held {
    /// Starts a process that will execute `image`. It inherits the descriptors `kept` besides those that it
    /// would inherit anyway.
    ///
    /// Signals, their mask and the standard streams are as this process itself found them, see
    /// [`inherited`].
    ///
    /// # Errors
    /// Those of fork(2) and pipe(2).
    pub fn start(image: &Image, kept: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let [argv, envp] = image.argv_and_envp();
        let kept: Vec<RawFd> = kept.iter().map(BorrowedFd::as_raw_fd).collect();
        let (signals, closed) = (inherited::changed_signals(), inherited::closed_streams());
        let (gate_out, gate_in) = io::pipe()?;
        let (failure_out, failure_in) = io::pipe()?;
        // SAFETY: the child makes async-signal-safe system calls, with memory prepared above, until it is
        // replaced or ends.
        let pid = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                for (signal, was_ignored) in signals {
                    libc::signal(signal, if was_ignored { libc::SIG_IGN } else { libc::SIG_DFL });
                }
                for (fd, _) in (0..).zip(closed).filter(|(_, closed)| *closed) {
                    libc::close(fd);
                }
                // With an end of its own open it would never see the pipe's end.
                libc::close(gate_in.as_raw_fd());
                if is_let_through(gate_out.as_raw_fd()) {
                    for &kept in &kept {
                        libc::fcntl(kept, libc::F_SETFD, 0);
                    }
                    libc::execve(image.file.as_ptr(), argv.as_ptr(), envp.as_ptr());
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
        Ok(Self { gate: gate_in, failure: failure_out, process: Reaped { pid } })
    }

    /// The process's id, which stays the same.
    pub fn id(&self) -> u32 {
        self.process.pid.unsigned_abs()
    }

    /// Lets it execute its program, and waits until it has. From then on the signals that are sent to this
    /// process are passed on, unless another child gets them already.
    ///
    /// # Errors
    /// Why the program cannot be executed; the process is gone then.
    pub fn release(mut self) -> io::Result<Child> {
        let forwarding = Forwarding::to(self.process.pid);
        self.gate.write_all(b"x")?;
        let mut code = [0; 4];
        if self.failure.read_exact(&mut code).is_ok() {
            return Err(io::Error::from_raw_os_error(i32::from_ne_bytes(code)));
        }
        Ok(Child { pid: self.process.keep(), outcome: None, forwarding })
    }
}

/// In the child: waits for the byte that lets it through; false when the pipe ends without one.
/// Async-signal-safe.
fn is_let_through(gate: RawFd) -> bool {
    let mut byte = 0_u8;
    loop {
        // SAFETY: room for one byte.
        let got = unsafe { libc::read(gate, (&raw mut byte).cast(), 1) };
        // SAFETY: the address of this thread's `errno`.
        if got >= 0 || unsafe { *libc::__errno_location() } != libc::EINTR {
            return got == 1;
        }
    }
}

/// A process that ends by itself and is waited for when this is dropped.
#[derive(Debug)]
struct Reaped {
    pid: libc::pid_t,
}

impl Reaped {
    /// Its id; whoever takes it waits for the process.
    fn keep(self) -> libc::pid_t {
        ManuallyDrop::new(self).pid
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        // Its status is not wanted, and there is nobody to tell of an error.
        let _ = reap(self.pid);
    }
}

/// Waits for a child and lets its id go.
fn reap(pid: libc::pid_t) -> io::Result<()> {
    loop {
        // SAFETY: waitpid takes a null pointer for a status that is not wanted.
        if unsafe { libc::waitpid(pid, ptr::null_mut(), 0) } >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A process that executes its program, or did.
#[derive(Debug)]
pub struct Child {
    pid: libc::pid_t,
    outcome: Option<ExitOutcome>,
    forwarding: Option<Forwarding>,
}

impl Child {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// How it ended, if it has. Does not wait.
    ///
    /// # Errors
    /// Those of waitid(2).
    pub fn try_wait(&mut self) -> io::Result<Option<ExitOutcome>> {
        if self.outcome.is_some() {
            return Ok(self.outcome);
        }
        let Some(outcome) = end_of(self.id(), libc::WNOHANG)? else { return Ok(None) };
        // As long as it is a zombie, nobody else gets its id, and with it our signals.
        self.forwarding = None;
        reap(self.pid)?;
        self.outcome = Some(outcome);
        Ok(self.outcome)
    }
}

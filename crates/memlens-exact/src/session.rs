//! One run of a program, from start to end.

use crate::launch;
use crate::payload::{Payload, PayloadError};
use crate::program::{Program, ProgramError};
use crate::reader::{Reader, ReaderStatistics};
use crate::segment::Segment;
use memlens_events::RecordSink;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long the reader sleeps when there is nothing to read.
const NAP_MS: u64 = 2;
/// How often it looks again before it sleeps.
const LOOKS_BEFORE_NAP: u32 = 200;

/// What to run.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Program and arguments.
    pub command: Vec<OsString>,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitOutcome {
    /// It returned or called `exit`.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

/// Why a run could not begin or go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The command is no program we can run.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The engine could not be unpacked.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// No shared memory.
    #[error("cannot set up shared memory: {0}")]
    Segment(io::Error),
    /// The process could not be started.
    #[error("cannot start {0:?}: {1}")]
    Spawn(OsString, io::Error),
    /// Waiting for it failed.
    #[error("cannot wait for the program: {0}")]
    Wait(io::Error),
}

/// A running program.
pub struct Session {
    segment: Segment,
    child: Child,
    reader: Reader,
    started: Instant,
}

/// The process to which signals that end memlens are passed on.
static FORWARD_TO: AtomicI32 = AtomicI32::new(0);

extern "C" fn forward(signal: libc::c_int) {
    let pid = FORWARD_TO.load(Ordering::Relaxed);
    if pid > 0 {
        // SAFETY: kill is async-signal-safe.
        unsafe { libc::kill(pid, signal) };
    }
}

impl Session {
    /// Starts the program.
    pub fn start(options: &SessionOptions) -> Result<Self, SessionError> {
        let program = Program::find(&options.command)?;
        let payload = Payload::unpack()?;
        let segment = Segment::create().map_err(SessionError::Segment)?;
        let child = launch::spawn(&program, &payload, launch::descriptor(&segment.file))
            .map_err(|error| SessionError::Spawn(program.arguments[0].clone(), error))?;
        FORWARD_TO.store(child.id() as i32, Ordering::Relaxed);
        // SAFETY: the handler is async-signal-safe. What the terminal sends goes to the program as
        // well, so we only ignore it; what is sent to us alone is passed on.
        unsafe {
            for signal in [libc::SIGINT, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_IGN);
            }
            for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2] {
                libc::signal(signal, forward as extern "C" fn(libc::c_int) as libc::sighandler_t);
            }
        }
        Ok(Self { segment, child, reader: Reader::new(), started: Instant::now() })
    }

    /// The program's process id.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Delivers records to `sink` until the program has ended and all it published is read.
    pub fn run(&mut self, sink: &mut impl RecordSink) -> Result<ExitOutcome, SessionError> {
        let mut looks = 0;
        let mut ended = None;
        loop {
            if self.reader.deliver(&self.segment, sink) {
                looks = 0;
                continue;
            }
            if let Some(status) = ended {
                return Ok(outcome(status));
            }
            looks += 1;
            if looks < LOOKS_BEFORE_NAP {
                std::hint::spin_loop();
                continue;
            }
            sink.idle();
            self.segment.wait(NAP_MS);
            // What is published before the process ends is read once more after this.
            ended = self.child.try_wait().map_err(SessionError::Wait)?;
        }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// What reading met.
    pub fn statistics(&self) -> ReaderStatistics {
        self.reader.statistics(&self.segment)
    }

    /// Whether the client took part at all: a program that never connected was not recorded.
    pub fn was_recorded(&self) -> bool {
        self.segment.control().state.load(Ordering::Acquire) != 0
    }

    /// Whether the process announced its end. If not (SIGKILL, exec), up to a chunk of each thread's
    /// last records is missing.
    pub fn ended_normally(&self) -> bool {
        self.segment.control().state.load(Ordering::Acquire) == 2
    }
}

fn outcome(status: std::process::ExitStatus) -> ExitOutcome {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitOutcome::Code(code),
        (None, Some(signal)) => ExitOutcome::Signal(signal),
        (None, None) => ExitOutcome::Code(0),
    }
}

//! One run of a program, from start to end.

use crate::child::Child;
use crate::last_resort::{self, LastResort};
use crate::launch;
use crate::payload::{Payload, PayloadError};
use crate::program::{Program, ProgramError};
use crate::reader::{Reader, ReaderStatistics};
use crate::segment::Segment;
use memlens_events::RecordSink;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
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
    /// Dropped before the segment that it points into.
    _last_resort: LastResort,
    segment: Segment,
    child: Child,
    reader: Reader,
    started: Instant,
}

impl Session {
    /// Starts the program.
    pub fn start(options: &SessionOptions) -> Result<Self, SessionError> {
        let program = Program::find(&options.command)?;
        let payload = Payload::unpack()?;
        let segment = Segment::create().map_err(SessionError::Segment)?;
        let child = launch::spawn(&program, &payload, segment.file.as_raw_fd())
            .map_err(|error| SessionError::Spawn(program.arguments[0].clone(), error))?;
        let _last_resort = LastResort::prepare(segment.control(), child.id());
        Ok(Self { _last_resort, segment, child, reader: Reader::new(), started: Instant::now() })
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
            last_resort::stop_if_released();
            if self.reader.deliver(&self.segment, sink) {
                looks = 0;
                continue;
            }
            if let Some(outcome) = ended {
                return Ok(outcome);
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
        launch::records_nothing() || self.segment.control().state.load(Ordering::Acquire) != 0
    }

    /// Whether the process announced its end. If not (SIGKILL, exec), up to a chunk of each thread's
    /// last records is missing.
    pub fn ended_normally(&self) -> bool {
        self.segment.control().state.load(Ordering::Acquire) == 2
    }
}

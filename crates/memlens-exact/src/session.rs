//! One run of a program, from start to end.

use crate::follower::{Follower, Replacement};
use crate::last_resort::{self, LastResort};
use crate::launch::{self, Extras, Following};
use crate::payload::Payload;
use crate::program::{Program, ProgramError};
use crate::reader::{Reader, ReaderStatistics};
use crate::segment::Segment;
use memlens_child::{Child, ExitOutcome};
use memlens_events::RecordSink;
use memlens_payload::PayloadError;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use std::{fs, io};
use thiserror::Error;

/// How long the reader sleeps when there is nothing to read.
const NAP_MS: u64 = 2;
/// The same when the program has executed another one, which has a reader of its own.
const REPLACED_NAP_MS: u64 = 20;
/// How often it looks again before it sleeps.
const LOOKS_BEFORE_NAP: u32 = 200;

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Which programs are recorded, too: see [`Session::take_follower`].
    pub following: Following,
    /// What it gets besides what this process has.
    pub extras: Extras,
}

/// Why a run could not begin or go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The command is no program we can run.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// There is no engine for this processor.
    #[error("exact mode needs an x86-64 processor; --mode sample says which data waits on this one")]
    NoEngine,
    /// The engine could not be unpacked.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The engine finds its way in a process by `/proc`, and waits for ever where there is none.
    #[error("the engine needs /proc, which cannot be read here: {0}")]
    NoProc(io::Error),
    /// No shared memory.
    #[error("cannot set up shared memory: {0}")]
    Segment(io::Error),
    /// No socket for the program's children.
    #[error("cannot listen for the program's children: {0}")]
    Listen(io::Error),
    /// The process could not be started.
    #[error("cannot start {0:?}: {1}")]
    Spawn(OsString, io::Error),
    /// Waiting for it failed.
    #[error("cannot wait for the program: {0}")]
    Wait(io::Error),
}

/// Whether this memlens carries an engine: only for x86-64 does it.
const HAS_ENGINE: bool = cfg!(target_arch = "x86_64");

/// A running program.
pub struct Session {
    /// Dropped before the segment that it points into.
    _last_resort: LastResort,
    segment: Segment,
    child: Child,
    reader: Reader,
    started: Instant,
    follower: Option<Follower>,
    replacement: Replacement,
}

impl Session {
    /// Starts the program.
    pub fn start(options: &SessionOptions) -> Result<Self, SessionError> {
        let program = Program::find(&options.command)?;
        if !HAS_ENGINE {
            return Err(SessionError::NoEngine);
        }
        fs::read("/proc/self/maps").map_err(SessionError::NoProc)?;
        let payload = Payload::unpack()?;
        let segment = Segment::create().map_err(SessionError::Segment)?;
        segment.control().number.store(1, Ordering::Relaxed);
        let follows = options.following != Following::Nothing;
        let follower = match follows.then(Follower::listen).transpose() {
            // Few programs execute another one: where there can be no socket, those that do are cut there.
            Err(_) if options.following == Following::Executed => None,
            follower => follower.map_err(SessionError::Listen)?,
        };
        let socket = follower.as_ref().map(|follower| (follower.name(), options.following));
        let child = launch::spawn(&program, &payload, segment.file.as_fd(), socket, &options.extras)
            .map_err(|error| SessionError::Spawn(program.arguments[0].clone(), error))?;
        let (reader, started, replacement) = (Reader::new(), Instant::now(), Replacement::default());
        let _last_resort = LastResort::prepare(segment.control(), child.id());
        Ok(Self { _last_resort, segment, child, reader, started, follower, replacement })
    }

    /// Where programs ask that are followed. They wait until they are answered: from [`Session::start`] on, somebody
    /// must look for them.
    pub fn take_follower(&mut self) -> Option<Follower> {
        self.follower.take()
    }

    /// For telling that the program has executed another one: [`Self::run`] then only waits for its end, and
    /// [`Self::run_image`] is over.
    pub fn replacement(&self) -> Replacement {
        self.replacement.clone()
    }

    /// The program's process id.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Delivers records to `sink` until the program has ended and all it published is read.
    pub fn run(&mut self, sink: &mut impl RecordSink) -> Result<ExitOutcome, SessionError> {
        match self.deliver(sink, false)? {
            Some(outcome) => Ok(outcome),
            None => self.wait(),
        }
    }

    /// As [`Self::run`], but also ends where the program has executed another one that is recorded apart: `None`. Then
    /// [`Self::wait`] says how that one ended.
    pub fn run_image(&mut self, sink: &mut impl RecordSink) -> Result<Option<ExitOutcome>, SessionError> {
        self.deliver(sink, true)
    }

    /// Waits for the process's end.
    pub fn wait(&mut self) -> Result<ExitOutcome, SessionError> {
        loop {
            last_resort::stop_if_released();
            if let Some(outcome) = self.child.try_wait().map_err(SessionError::Wait)? {
                return Ok(outcome);
            }
            self.segment.wait(REPLACED_NAP_MS);
        }
    }

    /// Delivers records until the process has ended, or, if `only_image`, the program has executed another one (`None`).
    fn deliver(
        &mut self,
        sink: &mut impl RecordSink,
        only_image: bool,
    ) -> Result<Option<ExitOutcome>, SessionError> {
        let (mut looks, mut ended, mut is_image_over) = (0, None, false);
        loop {
            last_resort::stop_if_released();
            if self.reader.deliver(&self.segment, sink) {
                looks = 0;
                continue;
            }
            if ended.is_some() || is_image_over {
                return Ok(ended);
            }
            // What the program published before it was told is read once more.
            is_image_over = only_image && self.replacement.is_told();
            if is_image_over {
                continue;
            }
            looks += 1;
            if looks < LOOKS_BEFORE_NAP && !self.replacement.is_told() {
                std::hint::spin_loop();
                continue;
            }
            sink.idle();
            self.segment.wait(if self.replacement.is_told() { REPLACED_NAP_MS } else { NAP_MS });
            // What is published before the process ends is read once more after this.
            ended = self.child.try_wait().map_err(SessionError::Wait)?;
        }
    }

    /// Whether the program has executed another one that is recorded apart.
    pub fn was_replaced(&self) -> bool {
        self.replacement.is_told()
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

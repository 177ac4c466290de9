//! Programs that are followed (`--follow`): a thread, a pipeline and a profile for each, and one profile of all.
//!
//! ```text
//!  memlens-exact: Follower ──► Family::arrive ──► a thread: ProcessStream ──► Recorder ──► processes/N-PID
//!                                  ▲                                            │
//!                                  └── state of the parent at its fork ◄────────┘
//! ```
//!
//! A process that forks waits until its pipeline has come as far; then the child's pipeline starts from
//! the parent's state. Processes beyond [`MAX_PROCESSES`] at a time, or when memory is short, programs that
//! cannot be run under the engine, and processes that never reported are counted and named in the merged
//! profile's notes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use memlens_child::{StopRequest, process_runs};
use memlens_events::ExecHow;
use memlens_exact::{Arrival, ArrivedBy, Follower, ProcessStream, Replacement};
use memlens_pipeline::{FamilyEvent, ForkedProcess, Process, ProcessOptions};
use memlens_profile::{Merger, ProcessFolder, Profile, RunInfo};

use crate::failure::{Failure, FailureKind};
use crate::internal_error;
use crate::output::Output;
use crate::recorder::{Ending, Pipeline, Recorder, RecorderOptions};
use crate::run;
use crate::streams::say;
use crate::system;

/// So many processes are recorded at a time; each takes some tens of megabytes here.
const MAX_PROCESSES: usize = 256;
/// With less than this part of the memory available no further process is recorded.
const MEMORY_KEPT_FREE: u64 = 10;
/// How long to wait at the end for processes that were announced and have not reported.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often to look whether something has happened.
const LOOK: Duration = Duration::from_millis(50);
/// Programs that ran unrecorded are named up to this number.
const NAMED: usize = 5;

/// Makes of a process's pipeline what its records go to: given its process id and, for a forked process,
/// the parent's process id and the fork's token.
pub type Wrapper = Box<dyn Fn(Process, u32, Option<(u32, u64)>) -> Box<dyn Pipeline> + Send + Sync>;

/// What is needed to record a process.
pub struct Family {
    /// The folder of the merged profile.
    profile: PathBuf,
    options: ProcessOptions,
    recorder: RecorderOptions,
    /// What is known of every process.
    run: RunInfo,
    /// Where records go, if not to the pipeline alone.
    wrapper: Option<Wrapper>,
    state: Mutex<State>,
    changed: Condvar,
    /// Recording ends now.
    stop: AtomicBool,
    /// No process will come any more.
    is_over: AtomicBool,
}

#[derive(Default)]
struct State {
    /// What forked children start from, by the parent's number and its token, until they arrive.
    nursery: HashMap<(u32, u64), Box<ForkedProcess>>,
    /// By process id: how to tell its reader that it has executed another program.
    images: HashMap<u32, Replacement>,
    /// Process ids, by the number of the process image.
    process_ids: HashMap<u32, u32>,
    /// Processes announced less those that have arrived.
    expected: i64,
    /// Processes being recorded, but for the first.
    running: usize,
    /// Their ids, and those of others that were recorded before.
    recorded: BTreeSet<u32>,
    /// What each process image was about to execute last.
    last_execution: HashMap<u32, (ExecHow, String)>,
    /// Executions of programs that run unrecorded, by program and reason.
    native: BTreeMap<(String, &'static str), u64>,
    /// Processes that were not recorded because there were too many.
    refused: u64,
    /// What else went wrong.
    problems: Vec<String>,
    last_change: Option<Instant>,
}

impl Family {
    /// For the program whose merged profile goes to `profile`.
    pub fn new(
        profile: &Path,
        options: ProcessOptions,
        recorder: RecorderOptions,
        run: RunInfo,
        wrapper: Option<Wrapper>,
    ) -> Arc<Self> {
        Arc::new(Self {
            wrapper,
            profile: profile.to_owned(),
            options,
            recorder: RecorderOptions { shows_progress: false, ..recorder },
            run,
            state: Mutex::default(),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that broke under the lock leaves numbers that are still numbers.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        state.last_change = Some(Instant::now());
        self.changed.notify_all();
    }

    /// The first process, which is read elsewhere.
    pub fn first(&self, process_id: u32, replacement: Replacement) {
        self.change(|state| {
            state.images.insert(process_id, replacement);
            state.process_ids.insert(1, process_id);
        });
    }

    /// Answers processes until [`Self::wait`] is over.
    pub fn answer(self: &Arc<Self>, follower: Follower) -> thread::JoinHandle<()> {
        let family = self.clone();
        thread::spawn(move || {
            while !family.is_over.load(Ordering::Relaxed) {
                if let Some(arrival) = follower.next_arrival(LOOK) {
                    family.arrive(arrival);
                }
            }
        })
    }

    fn arrive(self: &Arc<Self>, arrival: Arrival) {
        let (by, number, process_id) = (arrival.by, arrival.number, arrival.process_id);
        tracing::debug!(?by, number, process_id, "a process has arrived");
        let mut seed = None;
        let mut is_accepted = true;
        let mut forked = None;
        self.change(|state| {
            state.expected -= 1;
            state.process_ids.insert(number, process_id);
            match by {
                ArrivedBy::Fork { parent, token } => {
                    forked = state.process_ids.get(&parent).map(|&parent| (parent, token));
                    seed = state.nursery.remove(&(parent, token));
                    // Without its parent's state nothing of it could be understood.
                    is_accepted = seed.is_some();
                }
                ArrivedBy::Exec => {
                    if let Some(former) = state.images.remove(&process_id) {
                        former.tell();
                    }
                }
            }
            if state.running >= MAX_PROCESSES || is_memory_short() || self.stop.load(Ordering::Relaxed) {
                is_accepted = false;
            }
            match is_accepted {
                true => {
                    state.running += 1;
                    state.recorded.insert(process_id);
                }
                false => state.refused += 1,
            }
        });
        if !is_accepted {
            arrival.refuse();
            return;
        }
        let run = describe(&self.run, process_id);
        let stream = match arrival.accept() {
            Ok(stream) => stream,
            Err(error) => {
                let problem = format!("process {process_id} was not recorded: {error}");
                self.change(|state| {
                    state.running -= 1;
                    state.problems.push(problem);
                });
                return;
            }
        };
        self.change(|state| {
            state.images.insert(process_id, stream.replacement());
        });
        let family = self.clone();
        let spawned = thread::Builder::new().name(format!("process {process_id}")).spawn(move || {
            let recorded = internal_error::catch(|| family.record(stream, number, run, (seed, forked)));
            let problem = match recorded {
                Ok(Ok(())) => None,
                Ok(Err(failure)) => Some(failure.to_string()),
                Err(message) => Some(message),
            };
            family.change(|state| {
                state.running -= 1;
                state.problems.extend(problem.map(|problem| format!("process {process_id}: {problem}")));
            });
        });
        if let Err(error) = spawned {
            // The stream was dropped: the process runs on unrecorded.
            self.change(|state| {
                state.running -= 1;
                state.problems.push(format!("process {process_id} was not recorded: {error}"));
            });
        }
    }

    /// Records a process from its arrival to its end.
    fn record(
        self: &Arc<Self>,
        stream: ProcessStream,
        number: u32,
        run: RunInfo,
        (seed, forked): (Option<Box<ForkedProcess>>, Option<(u32, u64)>),
    ) -> Result<(), Failure> {
        let process_id = run.pid.unwrap_or_default();
        let process = match seed {
            Some(seed) => seed.begin(),
            None => Process::new(self.options.clone()),
        };
        let mut process = process.map_err(|error| Failure::new(FailureKind::Internal, error.to_string()))?;
        process.set_process_id(process_id);
        process.follow_children();
        match &self.wrapper {
            Some(wrap) => self.record_with(wrap(process, process_id, forked), stream, number, run),
            None => self.record_with(process, stream, number, run),
        }
    }

    fn record_with<P: Pipeline>(
        self: &Arc<Self>,
        process: P,
        mut stream: ProcessStream,
        number: u32,
        run: RunInfo,
    ) -> Result<(), Failure> {
        let output = Output::of_process(&self.profile, number, run.pid.unwrap_or_default())?;
        let mut recorder = Recorder::new(process, output, run, self.recorder).in_family(self.clone(), number);
        stream.run(&mut recorder, &self.stop);
        let is_cut = !stream.ended_normally() && !stream.was_replaced();
        let mut ending = Ending {
            exit_code: recorder.exit_status().filter(|_| !is_cut),
            signal: if is_cut { stream.signal() } else { None },
            wall: stream.elapsed(),
            is_truncated: is_cut,
            ..Ending::default()
        };
        run::add_losses(&mut ending, &stream.statistics());
        if is_cut {
            ending.notes.push(match self.stop.load(Ordering::Relaxed) {
                true => "Recording was ended before the process.".to_owned(),
                false => "A process was killed, or executed a program that was not recorded: its threads' \
                          last records are missing."
                    .to_owned(),
            });
        }
        // It may go on, unrecorded, while the profile is written.
        drop(stream);
        let written = recorder.finish(&ending).2;
        system::give_memory_back();
        written
    }

    /// What the process image with this number did that concerns others.
    pub fn hear(&self, number: u32, event: FamilyEvent) {
        self.change(|state| match event {
            FamilyEvent::Forking { token, child } => {
                state.nursery.insert((number, token), child);
                state.expected += 1;
            }
            FamilyEvent::Forked { token, pid: 0 } => {
                if state.nursery.remove(&(number, token)).is_some() {
                    state.expected -= 1;
                }
            }
            FamilyEvent::Forked { .. } => {}
            FamilyEvent::Executing { how: ExecHow::Failed, .. } => {
                match state.last_execution.remove(&number) {
                    Some((ExecHow::Recorded, _)) => state.expected -= 1,
                    Some((how, program)) => {
                        if let Some(reason) = reason(how) {
                            state.native.remove(&(program, reason));
                        }
                    }
                    None => {}
                }
            }
            FamilyEvent::Executing { how, program } => {
                if how == ExecHow::Recorded {
                    state.expected += 1;
                }
                if let Some(reason) = reason(how) {
                    *state.native.entry((program.clone(), reason)).or_default() += 1;
                }
                state.last_execution.insert(number, (how, program));
            }
        });
    }

    /// The first process has ended: waits for the others. An interrupt ends their recording, not them.
    pub fn wait(&self, quiet: bool) {
        let started = Instant::now();
        let (mut interrupt, mut has_said) = (None, false);
        let mut state = self.state();
        loop {
            let last_change = state.last_change.map_or(started, |change| change.max(started));
            let all_here = state.expected <= 0 || last_change.elapsed() > PATIENCE;
            if state.running == 0 && (all_here || self.stop.load(Ordering::Relaxed)) {
                break;
            }
            let is_late = started.elapsed() > Duration::from_secs(1) && state.running > 0;
            if interrupt.is_none() && is_late {
                interrupt = Some(StopRequest::listen());
            }
            if is_late && !quiet && !has_said {
                // Others have ended, and what they did is read still.
                state.recorded.retain(|&process_id| process_runs(process_id));
                if !state.recorded.is_empty() {
                    has_said = true;
                    let many = if state.recorded.len() == 1 { "" } else { "es" };
                    say(&format!(
                        "waiting for {} process{many} that the program left behind; ctrl-C ends the recording, \
                         not them",
                        state.recorded.len()
                    ));
                }
            }
            if interrupt.as_ref().is_some_and(StopRequest::has_come) {
                self.stop.store(true, Ordering::Relaxed);
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// One profile of all processes.
    ///
    /// # Errors
    /// When not even the first one can be read.
    pub fn merged(&self) -> Result<Profile, Failure> {
        let mut profile = merge_processes(&self.profile)?;
        let (notes, lost) = self.notes();
        profile.attribution.notes.extend(notes);
        profile.attribution.lost_events += lost;
        Ok(profile)
    }

    /// What a reader has to know of processes that were not recorded, and how many they are.
    pub fn notes(&self) -> (Vec<String>, u64) {
        let state = self.state();
        let mut notes = Vec::new();
        let missing = state.expected.max(0) as u64;
        let losses = [
            (state.refused, "processes were not recorded: too many at a time, or too little memory"),
            (missing, "processes never reported, so they were not recorded"),
        ];
        for (count, what) in losses {
            if count > 0 {
                notes.push(format!("{count} {what}."));
            }
        }
        for ((program, reason), count) in state.native.iter().take(NAMED) {
            let times = if *count == 1 { "once".to_owned() } else { format!("{count} times") };
            notes.push(format!("{program} ran unrecorded {times}: {reason}."));
        }
        if state.native.len() > NAMED {
            notes.push(format!("{} more programs ran unrecorded.", state.native.len() - NAMED));
        }
        notes.extend(state.problems.iter().cloned());
        let native: u64 = state.native.values().sum();
        (notes, state.refused + missing + native + state.problems.len() as u64)
    }
}

fn is_memory_short() -> bool {
    system::available_memory_kib().is_some_and(|(available, total)| available < total / MEMORY_KEPT_FREE)
}

/// Why a program runs unrecorded.
fn reason(how: ExecHow) -> Option<&'static str> {
    match how {
        ExecHow::Privileged => Some("it would lose its setuid or setgid rights or capabilities"),
        ExecHow::Unreadable => Some("its file may be executed but not read"),
        ExecHow::OtherArchitecture => Some("it is not for 64-bit x86"),
        ExecHow::NoProgram => Some("it is neither an ELF file nor a script"),
        ExecHow::Deleted => Some("its file has no name any more"),
        ExecHow::NoEngine => Some("the engine's files were removed while it ran"),
        _ => None,
    }
}

/// What is known of a process that has just arrived.
fn describe(of_all: &RunInfo, process_id: u32) -> RunInfo {
    let command = fs::read(format!("/proc/{process_id}/cmdline")).unwrap_or_default();
    let words = command.strip_suffix(b"\0").unwrap_or(&command).split(|&byte| byte == 0);
    let command =
        words.map(|word| OsString::from_vec(word.to_vec()).to_string_lossy().into_owned()).collect();
    let status = fs::read_to_string(format!("/proc/{process_id}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
    RunInfo {
        command,
        pid: Some(process_id),
        parent_pid: parent,
        started_unix_seconds: run::now_unix_seconds(),
        ..of_all.clone()
    }
}

/// Merges the profiles of single processes in the profile at `path`. Those that cannot be read are
/// counted in its notes.
///
/// # Errors
/// When none can be read.
pub fn merge_processes(path: &Path) -> Result<Profile, Failure> {
    let mut merger: Option<Merger> = None;
    let (mut first_problem, mut unread) = (None, 0_u64);
    for folder in ProcessFolder::list(path)? {
        let profile = match Profile::open(&folder.path) {
            Ok(profile) => profile,
            Err(error) => {
                unread += 1;
                first_problem.get_or_insert(Failure::from(error));
                continue;
            }
        };
        let added = merger.get_or_insert_with(|| Merger::new(&profile)).add(&profile);
        if let Err(error) = added {
            return Err(Failure::new(FailureKind::BadData, error.to_string()));
        }
    }
    let Some(merger) = merger else {
        let nothing = || Failure::new(FailureKind::NoInput, format!("{} has no profiles", path.display()));
        return Err(first_problem.unwrap_or_else(nothing));
    };
    let mut profile = merger.finish();
    if unread > 0 {
        profile.attribution.notes.push(format!("{unread} processes' profiles cannot be read."));
        profile.attribution.truncated = true;
    }
    Ok(profile)
}

/// The profile at `path`: of all processes together, where children were followed. A recording that was
/// cut off has no merged profile; then the processes' last ones are merged now.
///
/// # Errors
/// When there is no profile, or it cannot be read.
pub fn open_profile(path: &Path) -> Result<Profile, Failure> {
    let is_unmerged = !path.join("profile.json").exists() && !ProcessFolder::list(path)?.is_empty();
    if !is_unmerged {
        return Ok(Profile::open(path)?);
    }
    let mut profile = merge_processes(path)?;
    profile.attribution.truncated = true;
    Ok(profile)
}

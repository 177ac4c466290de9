//! Stands between collector and pipeline: writes partial profiles, shows progress, and keeps the
//! program going when something of ours breaks.
//!
//! The collector must be read until the program ends, whatever happens here: a program whose records
//! nobody takes would stop. So a panic below is caught, what was recorded until then is written, and
//! from then on records are thrown away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use memlens_events::{Definition, ModuleAnswer, RecordSink};
use memlens_pipeline::{FamilyEvent, Process};
use memlens_profile::{Profile, RunInfo};
use memlens_trace::TraceWriter;

use crate::backing_looks::{self, BackingLooks};
use crate::failure::Failure;
use crate::family::Family;
use crate::internal_error;
use crate::output::Output;
use crate::streams::{self, Stream, say};
use crate::system;

/// The first partial profile comes early, so that short runs leave one, too; not so early that a start-up
/// with many symbols pays for it twice; later where there is much to write.
pub const FIRST_FLUSH: Duration = Duration::from_secs(5);
/// By then it comes in any case …
const LATEST_FIRST_FLUSH: Duration = Duration::from_secs(30);
/// … though it may take more than its part of the time: what a cell is taken to need (CPython: 1.4 s for 300,000).
const FLUSH_OF_CELL: Duration = Duration::from_micros(4);
/// A partial profile may take this part of the time: flushes that take long become rare.
const FLUSH_SHARE: u32 = 20;
/// Words between two looks at the clock: some milliseconds of records.
const WORDS_PER_LOOK: usize = 1 << 18;
/// How often progress is shown.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// How a recording is to be kept.
#[derive(Clone, Copy, Debug)]
pub struct RecorderOptions {
    /// Time between partial profiles; `None`: only at the end.
    pub flush_every: Option<Duration>,
    /// Whether progress is shown on stderr.
    pub shows_progress: bool,
}

/// What makes a profile of records. The pipeline; something that breaks, in tests.
pub trait Pipeline: RecordSink {
    /// The profile as it stands.
    fn profile(&mut self) -> Profile;
    /// The profile when nothing follows; asked for once.
    fn last_profile(&mut self) -> Profile {
        self.profile()
    }
    /// Accesses so far.
    fn accesses(&self) -> u64;
    /// Rows that a profile would have now, about.
    fn cell_count(&self) -> usize {
        0
    }
    /// The trace, if one is written: nothing more is added to it.
    fn take_trace(&mut self) -> Option<TraceWriter> {
        None
    }
    /// What the process did that concerns other processes, since the last call.
    fn take_family_events(&mut self) -> Vec<FamilyEvent> {
        Vec::new()
    }
    /// What the process returned.
    fn exit_status(&self) -> Option<i32> {
        None
    }
    /// Looks at how the kernel backs the process's objects now.
    fn look_at_backing(&mut self) {}
}

impl Pipeline for Process {
    fn profile(&mut self) -> Profile {
        Process::profile(self)
    }

    fn last_profile(&mut self) -> Profile {
        Process::last_profile(self)
    }

    fn accesses(&self) -> u64 {
        Process::accesses(self)
    }

    fn cell_count(&self) -> usize {
        Process::cell_count(self)
    }

    fn take_trace(&mut self) -> Option<TraceWriter> {
        Process::take_trace(self)
    }

    fn take_family_events(&mut self) -> Vec<FamilyEvent> {
        Process::take_family_events(self)
    }

    fn exit_status(&self) -> Option<i32> {
        Process::exit_status(self)
    }

    fn look_at_backing(&mut self) {
        backing_looks::look(self);
    }
}

impl RecordSink for Box<dyn Pipeline> {
    fn define(&mut self, definition: Definition) -> ModuleAnswer {
        (**self).define(definition)
    }

    fn records(&mut self, slot: usize, words: &[u64]) {
        (**self).records(slot, words);
    }

    fn fork_answer(&mut self) -> Option<u64> {
        (**self).fork_answer()
    }

    fn idle(&mut self) {
        (**self).idle();
    }
}

impl Pipeline for Box<dyn Pipeline> {
    fn profile(&mut self) -> Profile {
        (**self).profile()
    }

    fn last_profile(&mut self) -> Profile {
        (**self).last_profile()
    }

    fn accesses(&self) -> u64 {
        (**self).accesses()
    }

    fn cell_count(&self) -> usize {
        (**self).cell_count()
    }

    fn take_trace(&mut self) -> Option<TraceWriter> {
        (**self).take_trace()
    }

    fn take_family_events(&mut self) -> Vec<FamilyEvent> {
        (**self).take_family_events()
    }

    fn exit_status(&self) -> Option<i32> {
        (**self).exit_status()
    }

    fn look_at_backing(&mut self) {
        (**self).look_at_backing();
    }
}

/// The sink of a run.
pub struct Recorder<P> {
    process: P,
    output: Output,
    run: RunInfo,
    options: RecorderOptions,
    started: Instant,
    next_flush: Option<Instant>,
    next_progress: Option<Instant>,
    backing: BackingLooks,
    words_since_look: usize,
    /// Whether there was a partial profile.
    has_flushed: bool,
    /// A fault of ours; nothing is recorded after it.
    fault: Option<String>,
    has_complained: bool,
    /// The other processes, if they are recorded, and this one's number.
    family: Option<(Arc<Family>, u32)>,
}

/// How the program ended.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// What it returned.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// How long it ran.
    pub wall: Duration,
    /// Its last records are missing.
    pub is_truncated: bool,
    /// Events that could not be recorded.
    pub lost_events: u64,
    /// What else a reader has to know, one sentence each.
    pub notes: Vec<String>,
}

impl<P: Pipeline> Recorder<P> {
    /// A recorder for a program that has just been started. `run` has what is known already.
    pub fn new(process: P, output: Output, run: RunInfo, options: RecorderOptions) -> Self {
        let started = Instant::now();
        // The tables of a recording grow to megabytes, and what a partial profile takes comes and goes.
        system::keep_large_blocks_apart();
        Self {
            process,
            output,
            run,
            options,
            started,
            next_flush: options.flush_every.map(|every| started + every.min(FIRST_FLUSH)),
            next_progress: options.shows_progress.then_some(started + PROGRESS_EVERY),
            backing: BackingLooks::new(),
            words_since_look: 0,
            has_flushed: false,
            fault: None,
            has_complained: false,
            family: None,
        }
    }

    /// Where it writes to.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Writes to another place from now on. Returns the one before.
    pub fn move_to(&mut self, output: Output) -> Output {
        std::mem::replace(&mut self.output, output)
    }

    /// The process is one of several: `number` is its own.
    pub fn in_family(mut self, family: Arc<Family>, number: u32) -> Self {
        self.family = Some((family, number));
        self
    }

    /// What the process returned, if it has ended by itself.
    pub fn exit_status(&mut self) -> Option<i32> {
        self.guarded(|process| process.exit_status())
    }

    /// Lets the pipeline work, unless it has broken before.
    fn guarded<T: Default>(&mut self, work: impl FnOnce(&mut P) -> T) -> T {
        if self.fault.is_some() {
            return T::default();
        }
        let process = &mut self.process;
        match internal_error::catch(|| work(process)) {
            Ok(result) => result,
            Err(message) => {
                say(&format!("{message}\nthe program goes on; the profile ends here"));
                self.fault = Some(message);
                self.flush_partial();
                T::default()
            }
        }
    }

    fn look_at_the_clock(&mut self) {
        self.words_since_look = 0;
        let now = Instant::now();
        if self.fault.is_none() && self.next_flush.is_some_and(|due| now >= due) && !self.is_too_early(now) {
            self.has_flushed = true;
            self.flush_partial();
            let took = now.elapsed();
            let pause = self.options.flush_every.map(|every| every.max(took * FLUSH_SHARE));
            self.next_flush = pause.map(|pause| Instant::now() + pause);
        }
        if self.backing.are_due(now) {
            self.guarded(P::look_at_backing);
            self.backing.done(now);
        }
        if self.next_progress.is_some_and(|due| now >= due) {
            self.next_progress = Some(now + PROGRESS_EVERY);
            self.show_progress();
        }
    }

    /// Whether the first partial profile would take more than its part of the time until now.
    fn is_too_early(&self, now: Instant) -> bool {
        let cells = u32::try_from(self.process.cell_count()).unwrap_or(u32::MAX);
        let due = FLUSH_OF_CELL.saturating_mul(cells).saturating_mul(FLUSH_SHARE).min(LATEST_FIRST_FLUSH);
        !self.has_flushed && now - self.started < due
    }

    /// Writes what there is. Trouble is reported once; the program goes on unharmed.
    fn flush_partial(&mut self) {
        let Some(mut profile) = self.snapshot(P::profile) else { return };
        profile.run.wall_seconds = Some(self.started.elapsed().as_secs_f64());
        profile.attribution.truncated = true;
        if self.fault.is_some() && profile.validate().is_err() {
            // The fault struck between two tables. The last partial profile is the better one.
            return;
        }
        // What making it took is free again, and encoding takes other sizes of blocks.
        system::give_memory_back();
        let written = self.output.writer().flush_and_drop(profile, false);
        // What a profile takes for a moment would stay with the allocator: of CPython's, more than all that is recorded.
        system::give_memory_back();
        match written {
            Ok(()) => tracing::debug!("wrote a partial profile"),
            Err(error) if !self.has_complained => {
                self.has_complained = true;
                say(&format!("{}; the program goes on", Failure::from(error)));
            }
            Err(_) => {}
        }
    }

    /// What `profile` says, with what is known of the run. `None`: not even that works any more.
    fn snapshot(&mut self, profile: fn(&mut P) -> Profile) -> Option<Profile> {
        let process = &mut self.process;
        let mut profile = match internal_error::catch(|| profile(process)) {
            Ok(profile) => profile,
            Err(message) => {
                if self.fault.is_none() {
                    say(&format!("{message}\nthe program goes on; the profile ends here"));
                    self.fault = Some(message);
                }
                return None;
            }
        };
        let pipeline = std::mem::replace(&mut profile.run, self.run.clone());
        // What only the pipeline knows.
        profile.run.instructions = pipeline.instructions;
        profile.run.threads = pipeline.threads;
        profile.run.set_modelled(&pipeline);
        profile.run.notes.splice(..0, pipeline.notes);
        Some(profile)
    }

    fn show_progress(&mut self) {
        let seconds = self.started.elapsed().as_secs_f64();
        let accesses = self.guarded(|process| process.accesses()) as f64 / 1e6;
        let text = format!(
            "memlens: {seconds:.0} s, {accesses:.0} million accesses, {:.0} million/s",
            accesses / seconds
        );
        match Stream::Stderr.is_terminal() {
            true => streams::write_to_stderr(&format!("\r{text} ")),
            false => streams::write_to_stderr(&format!("{text}\n")),
        }
    }

    /// The trace, to be ended.
    pub fn take_trace(&mut self) -> Option<TraceWriter> {
        self.process.take_trace()
    }

    /// Writes the whole profile. The second part says whether that worked.
    pub fn finish(mut self, ending: &Ending) -> (Option<Profile>, Output, Result<(), Failure>) {
        if self.options.shows_progress && Stream::Stderr.is_terminal() {
            streams::write_to_stderr("\r\x1b[K");
        }
        if self.fault.is_some() {
            return (None, self.output, Ok(()));
        }
        let Some(mut profile) = self.snapshot(P::last_profile) else {
            return (None, self.output, Ok(()));
        };
        profile.run.exit_code = ending.exit_code;
        profile.run.signal = ending.signal;
        profile.run.wall_seconds = Some(ending.wall.as_secs_f64());
        profile.attribution.truncated |= ending.is_truncated;
        profile.attribution.lost_events += ending.lost_events;
        profile.attribution.notes.extend(ending.notes.iter().cloned());
        let Self { process, mut output, .. } = self;
        // Encoding needs room, and nobody asks the pipeline any more.
        drop(process);
        system::give_memory_back();
        let written = output.writer().flush(&profile, true).map_err(Failure::from);
        (Some(profile), output, written)
    }

    /// The collector failed: writes what there is, as an unfinished profile.
    pub fn abandon(mut self) {
        self.flush_partial();
    }

    /// Nothing was recorded: leaves nothing behind.
    pub fn discard(self) {
        self.output.discard();
    }
}

impl<P: Pipeline> RecordSink for Recorder<P> {
    fn define(&mut self, definition: Definition) -> ModuleAnswer {
        self.guarded(|process| process.define(definition))
    }

    fn fork_answer(&mut self) -> Option<u64> {
        match self.fault {
            // Whoever wants to fork must not wait.
            Some(_) => Some(u64::MAX),
            None => self.guarded(RecordSink::fork_answer),
        }
    }

    fn records(&mut self, slot: usize, words: &[u64]) {
        self.guarded(|process| process.records(slot, words));
        if self.family.is_some() {
            let events = self.guarded(|process| process.take_family_events());
            if let Some((family, number)) = &self.family {
                events.into_iter().for_each(|event| family.hear(*number, event));
            }
        }
        self.words_since_look += words.len();
        if self.words_since_look >= WORDS_PER_LOOK {
            self.look_at_the_clock();
        }
    }

    fn idle(&mut self) {
        self.guarded(RecordSink::idle);
        self.look_at_the_clock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_profile::Existing;
    use std::ffi::OsStr;

    /// Counts calls of `records`, and breaks at one of them.
    struct Fragile {
        calls: u64,
        breaks_at: u64,
    }

    impl RecordSink for Fragile {
        fn define(&mut self, _: Definition) -> ModuleAnswer {
            ModuleAnswer::new()
        }

        fn records(&mut self, _: usize, _: &[u64]) {
            self.calls += 1;
            assert!(self.calls != self.breaks_at, "broken at {}", self.calls);
        }
    }

    impl Pipeline for Fragile {
        fn profile(&mut self) -> Profile {
            let mut profile = Profile::default();
            profile.run.instructions = Some(self.calls);
            profile
        }

        fn accesses(&self) -> u64 {
            self.calls
        }
    }

    fn recorder(folder: &std::path::Path, breaks_at: u64) -> Recorder<Fragile> {
        let path = folder.join("p");
        let output = Output::create(Some(&path), OsStr::new("x"), Existing::Refuse).expect("created");
        let run = RunInfo { mode: "exact".into(), ..RunInfo::default() };
        let options = RecorderOptions { flush_every: Some(Duration::ZERO), shows_progress: false };
        Recorder::new(Fragile { calls: 0, breaks_at }, output, run, options)
    }

    #[test]
    fn a_fault_leaves_what_was_recorded_and_takes_further_records() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut recorder = recorder(folder.path(), 3);
        for _ in 0..10 {
            recorder.records(0, &[1, 2]);
        }
        // Calls 4 to 10 did not reach the pipeline.
        assert_eq!(recorder.process.calls, 3);
        let (profile, _, written) = recorder.finish(&Ending::default());
        assert_eq!((profile, written), (None, Ok(())));
        let profile = Profile::open(&folder.path().join("p")).expect("readable");
        assert_eq!(profile.run.instructions, Some(3));
        assert!(profile.attribution.truncated);
    }

    #[test]
    fn partial_profiles_come_while_the_program_runs_and_the_whole_one_at_the_end() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut recorder = recorder(folder.path(), u64::MAX);
        recorder.records(0, &[1]);
        recorder.idle();
        let partial = Profile::open(&folder.path().join("p")).expect("readable");
        assert_eq!((partial.run.instructions, partial.attribution.truncated), (Some(1), true));
        recorder.records(0, &[1]);
        let ending = Ending { exit_code: Some(4), lost_events: 2, ..Ending::default() };
        let (_, _, written) = recorder.finish(&ending);
        assert_eq!(written, Ok(()));
        let whole = Profile::open(&folder.path().join("p")).expect("readable");
        assert_eq!((whole.run.instructions, whole.attribution.truncated), (Some(2), false));
        assert_eq!((whole.run.exit_code, whole.run.mode.as_str()), (Some(4), "exact"));
        assert_eq!(whole.attribution.lost_events, 2);
    }
}

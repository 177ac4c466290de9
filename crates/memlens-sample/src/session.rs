//! A recording from start to end: a program that is started, or a process that runs.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use memlens_agent_host::check_preloadable;
use memlens_child::{Child, ExitOutcome, Held, Image, StopRequest};
use memlens_profile::{Profile, SamplingInfo};

use crate::address_space::running_mappings;
use crate::allocations::{AllocationSource, Watch};
use crate::builder::ProfileBuilder;
use crate::collector::Collector;
use crate::error::SampleError;
use crate::event::{EventChoice, Refusal, SampleEvent, first_that_opens};
use crate::process::{has_ended, open_process, own_cpu_seconds};
use crate::record::TimedRecord;
use crate::recording::Recording;

/// Between two looks at the rings, if none fills up.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a program's dynamic linker is given before its first look-up of mappings.
const START_TAKES: Duration = Duration::from_millis(500);
/// Rounds in which new threads are looked for when attaching. Each round watches what the last one
/// found; threads of watched threads are inherited, so few rounds are enough.
const ATTACH_ROUNDS: usize = 16;

/// Cost of one sample to the program: interrupt, registers, stack copy, and, in a virtual machine,
/// leaving and entering it. See docs/modes.md for the measurement.
const SAMPLE_COST_SECONDS: f64 = 25e-6;
/// Bounds of the frequency that a budget leads to, in Hz.
const FREQUENCIES: (f64, f64) = (20.0, 4000.0);

/// How to sample.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleOptions {
    /// What samples are of.
    pub choice: EventChoice,
    /// Samples a second and processor; None: as `overhead` allows.
    pub frequency_hz: Option<u64>,
    /// The part of the program's time that sampling may cost, 0 to 1.
    pub overhead: f64,
    /// Bytes of the stack that are copied with each sample (a multiple of 8, at most 65,528).
    pub stack_bytes: u32,
    /// Which allocations of a program that is started are watched.
    pub watch: Watch,
}

impl Default for SampleOptions {
    /// 1 %, 8 KiB, allocations sampled.
    fn default() -> Self {
        Self {
            choice: EventChoice::Best,
            frequency_hz: None,
            overhead: 0.01,
            stack_bytes: 8192,
            watch: Watch::Sampled,
        }
    }
}

impl SampleOptions {
    /// The frequency that keeps the budget. A little off the round number, so that no program's own
    /// rhythm stays in step with it.
    pub fn frequency(&self) -> u64 {
        self.frequency_hz.unwrap_or_else(|| {
            let wanted = (self.overhead / SAMPLE_COST_SECONDS).clamp(FREQUENCIES.0, FREQUENCIES.1);
            (wanted.round() as u64).saturating_sub(3).max(1)
        })
    }
}

/// What is sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A program to start: its file, and its arguments with its own name first.
    Program {
        /// The file.
        file: PathBuf,
        /// The arguments.
        arguments: Vec<OsString>,
    },
    /// A process that runs.
    Process(u32),
}

enum Watched {
    Child(Child),
    Process(File),
}

/// Samples being taken.
pub struct SampleSession {
    collector: Collector,
    recording: Recording,
    builder: ProfileBuilder,
    allocations: AllocationSource,
    watched: Watched,
    pid: u32,
    refused: Vec<Refusal>,
    started: Instant,
    own_cpu_at_start: f64,
    ended: Option<Duration>,
}

impl std::fmt::Debug for SampleSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SampleSession").field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// How a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleOutcome {
    /// The program that was started has ended.
    Ended(ExitOutcome),
    /// The process that was watched has ended; its exit code is its parent's to know.
    Gone,
    /// Time was up, or somebody asked to stop; the process runs on.
    Detached,
}

impl SampleSession {
    /// Opens the events and starts the program, or finds the threads of the process.
    ///
    /// # Errors
    /// If the kernel allows no event, or there is nothing to watch. A program that cannot be executed
    /// is not left behind.
    pub fn start(target: &Target, options: &SampleOptions) -> Result<Self, SampleError> {
        let (event, refused) = event_for(target, options)?;
        let tick = event.agents_tick();
        let mut collector = Collector::new(event).map_err(SampleError::Unavailable)?;
        let mut recording = Recording::new(true);
        let own_cpu_at_start = own_cpu_seconds();
        let mut allocations = AllocationSource::none();
        let (watched, pid) = match target {
            Target::Program { file, arguments } => {
                allocations = AllocationSource::preloaded(file, options.watch, tick);
                if let (Some(_), Some(why)) = (tick, allocations.why_not()) {
                    return Err(SampleError::NoTimers(why.to_owned()));
                }
                let mut image = Image::new(file, arguments).map_err(SampleError::Start)?;
                for (name, value) in allocations.variables() {
                    image.set_variable(name.as_ref(), &value).map_err(SampleError::Start)?;
                }
                let held = Held::start(&image, allocations.descriptor()).map_err(SampleError::Start)?;
                let pid = held.id();
                collector.watch(pid, true).map_err(SampleError::of_event)?;
                let child = held.release().map_err(SampleError::Start)?;
                if tick.is_some() {
                    allocations.wait_until_inside(START_TAKES);
                }
                (Watched::Child(child), pid)
            }
            Target::Process(pid) => {
                let process = open_process(*pid).map_err(|error| of_process(*pid, error))?;
                attach(*pid, &mut collector, &mut recording)?;
                (Watched::Process(process), *pid)
            }
        };
        Ok(Self {
            collector,
            recording,
            builder: ProfileBuilder::default(),
            allocations,
            watched,
            pid,
            refused,
            started: Instant::now(),
            own_cpu_at_start,
            ended: None,
        })
    }

    /// The process.
    pub fn process_id(&self) -> u32 {
        self.pid
    }

    /// The event that is sampled, and those that are not, with the reasons.
    pub fn event(&self) -> (&SampleEvent, &[Refusal]) {
        (self.collector.event(), &self.refused)
    }

    /// Samples until the program ends, `duration` is over or (for a process that ran before) a signal
    /// asks to stop. `each_look` is called a few times a second with what there is.
    ///
    /// # Errors
    /// If the program's end cannot be waited for.
    pub fn run(
        &mut self,
        duration: Option<Duration>,
        mut each_look: impl FnMut(&mut Self),
    ) -> Result<SampleOutcome, SampleError> {
        // A program's keys are its own: they are passed on, and it ends or not.
        let stop = matches!(self.watched, Watched::Process(_)).then(StopRequest::listen);
        let outcome = loop {
            self.collector.wait(LOOK_EVERY);
            let ended = match &mut self.watched {
                Watched::Child(child) => {
                    child.try_wait().map_err(SampleError::Wait)?.map(SampleOutcome::Ended)
                }
                Watched::Process(process) => has_ended(process).then_some(SampleOutcome::Gone),
            };
            self.take(false);
            if let Some(outcome) = ended {
                break outcome;
            }
            let is_over = duration.is_some_and(|duration| self.started.elapsed() >= duration);
            if is_over || stop.as_ref().is_some_and(StopRequest::has_come) {
                break SampleOutcome::Detached;
            }
            each_look(self);
        };
        self.collector.disable();
        self.ended = Some(self.started.elapsed());
        self.take(true);
        Ok(outcome)
    }

    fn take(&mut self, all: bool) {
        let Self { collector, recording, builder, allocations, pid, .. } = self;
        let is_stale = allocations.drain(|record| collector.add(record));
        if collector.event().agents_tick().is_some() {
            // The kernel reports no mappings to the agent.
            recording.refresh_mappings(*pid);
        }
        let mut is_full = false;
        collector.drain(all, |record: TimedRecord| is_full |= recording.take(record));
        if is_full {
            builder.fold(recording);
        }
        if is_stale {
            recording.forget_blocks();
        }
    }

    /// How long it has been sampled.
    pub fn elapsed(&self) -> Duration {
        self.ended.unwrap_or_else(|| self.started.elapsed())
    }

    /// Samples so far.
    pub fn samples(&self) -> u64 {
        self.recording.counts().samples
    }

    /// The profile as of now. Command, exit code and the like are left to the caller. Cost: names of
    /// what is new since the last call.
    pub fn profile(&mut self) -> Profile {
        let own_cpu = own_cpu_seconds() - self.own_cpu_at_start;
        self.builder.fold(&mut self.recording);
        let event = self.collector.event();
        let losses = self.collector.losses();
        let mut profile = self.builder.profile(
            &self.recording,
            SamplingInfo {
                event: event.name.clone(),
                unit: event.unit,
                frequency_hz: Some(event.frequency_hz),
                lost: losses.lost,
                throttled: losses.throttled,
                own_cpu_seconds: Some(own_cpu),
                ..SamplingInfo::default()
            },
        );
        profile.attribution.lost_events = losses.lost + losses.damaged + self.allocations.lost();
        let counts = self.recording.counts();
        profile.run.notes.extend(self.allocations.notes(counts.watched_blocks, counts.programs));
        let counted = [
            (losses.doubled, "samples were seen twice and counted once"),
            (losses.late, "records came too late to be put in order"),
            (losses.damaged, "records could not be read"),
        ];
        for (count, what) in counted {
            if count > 0 {
                profile.attribution.notes.push(format!("{count} {what}."));
            }
        }
        for (name, why) in &self.refused {
            profile.run.notes.push(format!("{name} cannot be sampled here: {why}."));
        }
        profile
    }
}

/// The event to sample: the best that opens, or, where the kernel allows none, the agent's timers.
fn event_for(target: &Target, options: &SampleOptions) -> Result<(SampleEvent, Vec<Refusal>), SampleError> {
    let agents = || SampleEvent::agent_clock(options.frequency(), options.stack_bytes);
    if options.choice == EventChoice::AgentClock {
        return Ok((agents(), Vec::new()));
    }
    let candidates = SampleEvent::candidates(options.choice, options.frequency(), options.stack_bytes);
    match first_that_opens(candidates) {
        Ok(found) => Ok(found),
        Err(error) => match (SampleError::of_event(error), target) {
            // A last-level miss cannot be had from a timer.
            (SampleError::Forbidden(why), Target::Program { file, .. })
                if options.choice != EventChoice::CacheMisses && check_preloadable(file).is_ok() =>
            {
                Ok((agents(), vec![("cpu-clock".to_owned(), why.to_string())]))
            }
            (error, _) => Err(error),
        },
    }
}

/// Watches every thread of a running process.
fn attach(pid: u32, collector: &mut Collector, recording: &mut Recording) -> Result<(), SampleError> {
    let mut watched = std::collections::BTreeSet::new();
    for _ in 0..ATTACH_ROUNDS {
        let mut is_new = false;
        for tid in threads_of(pid).map_err(|error| of_process(pid, error))? {
            if !watched.insert(tid) {
                continue;
            }
            is_new = true;
            if let Ok(name) = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")) {
                recording.name_thread(tid, name.trim_end_matches('\n').to_owned());
            }
            match collector.watch(tid, false) {
                Ok(()) => {}
                // A thread that has ended meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) if error.raw_os_error() == Some(libc::EACCES) && watched.len() == 1 => {
                    return Err(SampleError::NotOurs(pid, error));
                }
                Err(error) => return Err(SampleError::of_event(error)),
            }
        }
        if !is_new {
            break;
        }
    }
    // Before the mappings are read: what comes later is reported.
    collector.enable();
    let mappings = running_mappings(pid).map_err(|error| of_process(pid, error))?;
    recording.add_running(pid, &mappings);
    Ok(())
}

fn threads_of(pid: u32) -> io::Result<Vec<u32>> {
    let mut list = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        if let Some(tid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
            list.push(tid);
        }
    }
    Ok(list)
}

fn of_process(pid: u32, error: io::Error) -> SampleError {
    match error.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => SampleError::NoProcess(pid),
        Some(libc::EINVAL) => SampleError::NoProcess(pid),
        _ => SampleError::NotOurs(pid, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_sets_the_frequency() {
        let options = |overhead| SampleOptions { overhead, ..SampleOptions::default() };
        // 1 % of a second is 10 ms: 400 samples of 25 µs.
        assert_eq!(options(0.01).frequency(), 397);
        assert_eq!(options(0.0).frequency(), 17);
        assert_eq!(options(1.0).frequency(), 3997);
        let fixed = SampleOptions { frequency_hz: Some(100), ..options(0.5) };
        assert_eq!(fixed.frequency(), 100);
    }
}

//! A recording from start to end: a program that is started, or a process that runs.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memlens_agent_host::{BurstOptions, check_attachable, check_preloadable};
use memlens_child::{Child, ExitOutcome, Held, Image, StopRequest, process_runs};
use memlens_code::SampleSkid;
use memlens_profile::{MachineInfo, ObjectBacking, Profile, SampleUnit, SamplingInfo};

use crate::address_space::running_mappings;
use crate::allocations::{AllocationSource, Watch};
use crate::builder::ProfileBuilder;
use crate::burst_pacing::BurstPacing;
use crate::bursts::{BurstCounts, BurstModel, Bursts};
use crate::collector::{Collector, threads_of};
use crate::coverage::Coverage;
use crate::error::SampleError;
use crate::event::{EventChoice, Refusal, SampleEvent, first_that_opens};
use crate::glances::{self, Glances};
use crate::overhead_budget::OverheadBudget;
use crate::pacing::Pacing;
use crate::process::{
    children_cpu_seconds, children_of, cpu_seconds_of, has_ended, open_process, own_cpu_seconds, processors,
};
use crate::prompts::Prompts;
use crate::record::{Record, TimedRecord};
use crate::recording::{AttributionWay, Recording};
use crate::sample_cost::measure_sample_cost;

/// Between two looks at the rings, if none fills up and the program does not end.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The same where the agent's rings are to be read, or the kernel does not tell the program's end by itself
/// (before Linux 5.3).
const LOOK_OFTEN: Duration = Duration::from_millis(20);
/// How long a program's dynamic linker is given before its first look-up of mappings.
const START_TAKES: Duration = Duration::from_millis(500);

/// Why neither allocations nor bursts of a program can be had, as the end of a sentence; None: they can. Reads the head of
/// its file, and of the interpreters of a script.
pub fn why_not_preloadable(file: &Path) -> Option<String> {
    check_preloadable(file).err().map(|why| why.to_string())
}

/// What bursts are, and whose misses are estimated from them.
#[derive(Clone, Debug, PartialEq)]
pub struct BurstSettings {
    /// Accesses of a burst, or some more.
    pub accesses: u32,
    /// Bursts a second of a thread's processor time at most.
    pub frequency_hz: u64,
    /// So many of a process's come up to twice as often.
    pub often: u32,
    /// The machine.
    pub machine: MachineInfo,
    /// Nanoseconds of a cycle of the core, if it is this machine: stalls are held against the time that bursts took.
    pub core_cycle_ns: Option<f64>,
    /// How misses follow from bursts.
    pub model: BurstModel,
    /// Whether accesses by a register of the stack alone and at fixed addresses are left out of the bursts.
    pub filter: bool,
}
/// What becomes of the heap of a process that the agent cannot be brought into.
const WITHOUT_AGENT: &str = "its heap, and that of programs it executes, is named by the pointers that lead there; for \
    allocation sites, start it with `memlens run --mode sample`";

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
    /// How far behind what waits samples land on this machine.
    pub skid: SampleSkid,
    /// What samples are attributed by.
    pub way: AttributionWay,
    /// Which allocations of a program that is started are watched.
    pub watch: Watch,
    /// Bursts instead of samples alone: the program is started with the agent in it, whose ticks begin them.
    pub bursts: Option<BurstSettings>,
}

impl Default for SampleOptions {
    /// 1 %, 8 KiB, allocations sampled.
    fn default() -> Self {
        Self {
            choice: EventChoice::Best,
            frequency_hz: None,
            overhead: 0.01,
            stack_bytes: 8192,
            skid: SampleSkid::default(),
            way: AttributionWay::default(),
            watch: Watch::Sampled,
            bursts: None,
        }
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
    /// The second is readable when it has ended.
    Child(Child, Option<File>),
    Process(File),
}

impl Watched {
    fn outcome(&mut self) -> Result<Option<SampleOutcome>, SampleError> {
        match self {
            Self::Child(child, _) => {
                Ok(child.try_wait().map_err(SampleError::Wait)?.map(SampleOutcome::Ended))
            }
            Self::Process(process) => Ok(has_ended(process).then_some(SampleOutcome::Gone)),
        }
    }

    /// Waits until it ends, a ring is half full, or it is time to look.
    fn wait(&self, collector: &Collector, has_agent: bool) {
        match self {
            Self::Child(_, Some(process)) | Self::Process(process) => {
                let most = if has_agent { LOOK_OFTEN } else { LOOK_EVERY };
                collector.wait(process.as_raw_fd(), most);
            }
            // poll(2) passes over negative descriptors.
            Self::Child(_, None) => collector.wait(-1, LOOK_OFTEN),
        }
    }
}

/// Samples being taken.
pub struct SampleSession {
    collector: Collector,
    /// None: there are no bursts to be.
    glances: Option<Glances>,
    /// The same.
    prompts: Option<Prompts>,
    recording: Recording,
    builder: ProfileBuilder,
    allocations: AllocationSource,
    watched: Watched,
    pid: u32,
    refused: Vec<Refusal>,
    without_events: Option<SampleError>,
    pacing: Pacing,
    /// Why the rate could not be adapted.
    pacing_problem: Option<io::Error>,
    /// None: there are no bursts to be.
    burst_pacing: Option<BurstPacing>,
    started: Instant,
    own_cpu_at_start: f64,
    children_cpu_at_start: f64,
    /// Processor time of a program that has ended, or of a process since memlens came, in seconds.
    program_cpu: Option<f64>,
    /// Of a process that ran before: what it had used then.
    cpu_before: Option<f64>,
    /// Its children then.
    children_before: Vec<u32>,
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
        let own_cpu_at_start = own_cpu_seconds();
        let children_cpu_at_start = children_cpu_seconds();
        let Choice { event, refused, without_events, budget } = choose(target, options)?;
        let tick = event.agents_tick();
        let mut collector = match tick {
            Some(_) => Collector::without_rings(event),
            None => Collector::new(event).map_err(SampleError::of_event)?,
        };
        let mut recording = Recording::new(true, options.skid, options.way);
        if let Some(settings) = &options.bursts
            && let Some(bursts) = Bursts::new(settings.machine.clone(), settings.model, settings.filter)
        {
            let bursts = bursts.on_core(settings.core_cycle_ns);
            recording = recording.with_bursts(match target {
                Target::Program { .. } => bursts,
                Target::Process(_) => bursts.of_running(),
            });
        }
        let bursts = options.bursts.as_ref().map(|settings| BurstOptions {
            words: settings.accesses,
            share: options.overhead,
            often: settings.often,
            filter: settings.filter,
        });
        let mut allocations = AllocationSource::none();
        let glanced_each_ns = options.bursts.as_ref().and_then(|_| glances::period_ns(options.overhead));
        let mut glances = options.bursts.is_some().then(|| Glances::new(glanced_each_ns));
        let mut children_before = Vec::new();
        let (watched, pid) = match target {
            Target::Program { file, arguments } => {
                allocations = AllocationSource::preloaded(file, options.watch, tick, bursts);
                if let (Some(_), Some(why)) = (tick, allocations.why_not()) {
                    let why = why.to_owned();
                    return Err(match options.bursts {
                        Some(_) => SampleError::NoBursts(why),
                        None => SampleError::NoTimers(why),
                    });
                }
                let mut image = Image::new(file, arguments).map_err(SampleError::Start)?;
                for (name, value) in allocations.variables() {
                    image.set_variable(name.as_ref(), &value).map_err(SampleError::Start)?;
                }
                let held =
                    Held::start(&image, allocations.descriptor().as_slice()).map_err(SampleError::Start)?;
                let pid = held.id();
                if tick.is_none() {
                    collector.watch_program(pid).map_err(SampleError::of_event)?;
                }
                if let Some(glances) = &mut glances {
                    glances.watch_program(pid);
                }
                let child = held.release().map_err(SampleError::Start)?;
                if tick.is_some() {
                    allocations.wait_until_inside(START_TAKES);
                }
                (Watched::Child(child, open_process(pid).ok()), pid)
            }
            Target::Process(pid) => {
                let process = open_process(*pid).map_err(|error| of_process(*pid, error))?;
                // Those that begin from now on may be recorded.
                children_before = children_of(*pid);
                if tick.is_none() {
                    attach(*pid, &mut collector, &mut recording)?;
                }
                if tick.is_some() || options.watch != Watch::Nothing {
                    match AllocationSource::attached(*pid, options.watch, tick, bursts) {
                        Ok(source) => allocations = source,
                        Err(error) if tick.is_some() => return Err(SampleError::Attach(error)),
                        Err(error) => {
                            let why = format!("failed to {error}; {WITHOUT_AGENT}");
                            allocations = AllocationSource::impossible(why);
                        }
                    }
                }
                if tick.is_some() {
                    name_threads(*pid, &mut recording);
                    let mappings = running_mappings(*pid).map_err(|error| of_process(*pid, error))?;
                    recording.add_running(*pid, &mappings);
                }
                if let Some(glances) = &mut glances {
                    glances.watch_process(*pid);
                }
                (Watched::Process(process), *pid)
            }
        };
        // Whose bursts go on for ever needs none.
        let prompted_each_ns = glanced_each_ns.filter(|_| options.overhead < 1.0);
        let prompts = options.bursts.is_some().then(|| Prompts::begin(pid, prompted_each_ns, &allocations));
        let running = if let Target::Process(pid) = target { Some(*pid) } else { None };
        // The agent keeps the interval that it began with, and so do samples that the processor writes by itself.
        let is_fixed =
            options.frequency_hz.is_some() || tick.is_some() || collector.event().aux_period().is_some();
        let pacing = Pacing::start(budget, options.stack_bytes, is_fixed, collector.processes());
        Ok(Self {
            collector,
            glances,
            prompts,
            recording,
            builder: ProfileBuilder::default(),
            allocations,
            watched,
            pid,
            refused,
            without_events,
            pacing,
            pacing_problem: None,
            burst_pacing: options.bursts.as_ref().map(|_| BurstPacing::start(options.overhead)),
            started: Instant::now(),
            own_cpu_at_start,
            children_cpu_at_start,
            program_cpu: None,
            cpu_before: running.and_then(cpu_seconds_of),
            children_before,
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

    /// Why the kernel gives no event, if the agent samples for that reason.
    pub fn without_events(&self) -> Option<&SampleError> {
        self.without_events.as_ref()
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
            self.watched.wait(&self.collector, self.allocations.has_agent());
            if let Some(outcome) = self.watched.outcome()? {
                break outcome;
            }
            self.take(false);
            self.note_cpu();
            self.pace();
            self.allocations.follow_libraries();
            let is_over = duration.is_some_and(|duration| self.started.elapsed() >= duration);
            if is_over || stop.as_ref().is_some_and(StopRequest::has_come) {
                break SampleOutcome::Detached;
            }
            each_look(self);
        };
        self.collector.disable();
        // One that was just about to end is nothing to speak of.
        self.children_before.retain(|child| cpu_seconds_of(*child).is_some());
        self.ended = Some(self.started.elapsed());
        if matches!(outcome, SampleOutcome::Ended(_)) {
            self.program_cpu = Some(children_cpu_seconds() - self.children_cpu_at_start);
        }
        self.take_prompts();
        if let Some(prompts) = &mut self.prompts {
            prompts.end(&self.allocations);
        }
        self.allocations.leave(outcome == SampleOutcome::Detached);
        self.take(true);
        Ok(outcome)
    }

    /// What prompts told since the last call.
    fn take_prompts(&mut self) {
        if let (Some(prompts), Some(glances)) = (&mut self.prompts, &mut self.glances) {
            prompts.drain(|record| glances.add(record, |glance| self.collector.add(glance)));
        }
    }

    fn take(&mut self, all: bool) {
        self.take_prompts();
        let Self { collector, glances, prompts, recording, builder, allocations, pid, .. } = self;
        let is_agents = collector.event().agents_tick().is_some();
        let is_stale = allocations.drain(|record| {
            // Else the kernel reports that, and what is mapped.
            if is_agents
                || !matches!(
                    record.record,
                    Record::Started { .. } | Record::Forked { .. } | Record::Mapped { .. }
                )
            {
                collector.add(record);
            }
        });
        if let Some(glances) = glances {
            glances.drain(all, |record| collector.add(record));
            if let Some(prompts) = prompts {
                match glances.are_over() {
                    true => prompts.end(allocations),
                    false => prompts.look(allocations),
                }
                let is_alone =
                    || recording.processes().all(|process| process == *pid) && has_one_thread(*pid);
                glances.rest(prompts.are_glances() && is_alone());
            }
        }
        if is_agents {
            // The kernel reports no mappings to the agent.
            match all {
                true => recording.refresh_mappings(*pid),
                false => recording.follow_mappings(*pid),
            }
        }
        let mut is_full = false;
        collector.drain(all, |record: TimedRecord| is_full |= recording.take(record));
        if is_agents {
            recording.forget_gone();
        }
        if is_full {
            builder.fold(recording);
        }
        if is_stale {
            recording.forget_blocks();
        }
    }

    /// Notes what a process that ran before has used since: when it has ended, nobody says it any more.
    fn note_cpu(&mut self) {
        let Some(before) = self.cpu_before else { return };
        if let Some(now) = cpu_seconds_of(self.pid) {
            // What children that began before have used stands there as a whole when they end.
            let processors = processors();
            let most = self.started.elapsed().as_secs_f64() * processors as f64;
            self.program_cpu = Some((now - before).min(most));
        }
    }

    fn pace(&mut self) {
        let counts = self.recording.bursts().map(Bursts::counts);
        if let (Some(pacing), Some(counts)) = (&mut self.burst_pacing, counts)
            && let Some(share) = pacing.look(counts, self.allocations.lost_bursts())
        {
            self.allocations.set_burst_share(share);
        }
        let present = self.collector.event().frequency_hz;
        let samples = self.samples();
        let Some(frequency) = self.pacing.look(present, samples, self.collector.processes()) else { return };
        match self.collector.change_frequency(frequency) {
            Ok(()) => self.pacing.note_change(),
            Err(error) => {
                self.pacing.give_up();
                self.pacing_problem = Some(error);
            }
        }
    }

    /// The part of the program's processor time that being sampled has cost it, 0 to 1, and one sample in seconds; None: samples that the
    /// processor itself writes cost other than those that were measured.
    fn costs(&self) -> Option<(f64, f64)> {
        let is_measured = self.collector.event().aux_period().is_none();
        is_measured.then(|| (self.overhead(), self.pacing.sample_cost_seconds()))
    }

    /// The first of them, of samples that cost what was measured.
    fn overhead(&self) -> f64 {
        let counts = self.recording.counts();
        let spent = self.pacing.spent();
        let seconds = self.sampled_seconds();
        let paid = counts.samples as f64 * self.pacing.sample_cost_seconds() + spent.switch_seconds;
        if seconds > 0.0 { paid / seconds } else { 0.0 }
    }

    /// The program's processor time that was sampled, in seconds.
    fn sampled_seconds(&self) -> f64 {
        let counts = self.recording.counts();
        let event = self.collector.event();
        // Every second of it has so many samples; those of a clock say themselves how long it was.
        let seconds = match event.unit {
            SampleUnit::Nanoseconds => counts.cost as f64 / 1e9,
            SampleUnit::Events => counts.samples as f64 / event.frequency_hz.max(1) as f64,
        };
        seconds.max(self.pacing.spent().cpu_seconds)
    }

    /// Of how much of the program its agent tells; None: that is not known, or the kernel samples.
    fn coverage_note(&self) -> Option<String> {
        let used = self.program_cpu?;
        self.collector.event().agents_tick()?;
        match self.bursts() {
            Some(bursts) => {
                let told = (bursts.own_ns + bursts.period_ns) as f64 / 1e9;
                Coverage { told, used }.note("bursts")
            }
            None => Coverage { told: self.recording.counts().cost as f64 / 1e9, used }.note("samples"),
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

    /// What was counted of bursts so far; None: there are none to be.
    pub fn bursts(&self) -> Option<&BurstCounts> {
        self.recording.bursts().map(Bursts::counts)
    }

    /// Where watched blocks of the heap of at least `least_bytes` bytes lie now: process, place, number of the site.
    pub fn live_memory(&self, least_bytes: u64) -> Vec<(u32, Range<u64>, u32)> {
        self.recording.heap().live_blocks(least_bytes)
    }

    /// The blocks of a site, by its number, were backed like this; see [`ObjectBacking::keep_larger`].
    pub fn note_backing(&mut self, site: u32, backing: ObjectBacking) {
        self.recording.note_backing(site, backing);
    }

    /// The profile as of now. Command, exit code and the like are left to the caller. Cost: names of
    /// what is new since the last call.
    pub fn profile(&mut self) -> Profile {
        let own_cpu = own_cpu_seconds() - self.own_cpu_at_start;
        self.builder.fold(&mut self.recording);
        self.recording.settle();
        let event = self.collector.event();
        let losses = self.collector.losses();
        let costs = self.costs();
        let mut profile = self.builder.profile(
            &self.recording,
            SamplingInfo {
                event: event.name.clone(),
                unit: event.unit,
                frequency_hz: Some(event.frequency_hz),
                lost: losses.lost,
                throttled: losses.throttled,
                own_cpu_seconds: Some(own_cpu),
                sample_cost_seconds: costs.map(|(_, sample_seconds)| sample_seconds),
                overhead: costs.map(|(overhead, _)| overhead),
                allocations_overhead: self
                    .allocations
                    .drawing_seconds()
                    .map(|cost| cost / self.sampled_seconds().max(1e-9)),
                frequency_changes: self.pacing.changes(),
                ..SamplingInfo::default()
            },
        );
        profile.run.bursts = self.bursts().map(|counts| counts.info(self.allocations.drawing_seconds()));
        profile.attribution.lost_events = losses.lost + losses.damaged + self.allocations.lost();
        let counts = self.recording.counts();
        profile.run.notes.extend(self.allocations.notes(counts.watched_blocks, counts.programs));
        if let Some(note) = self.burst_pacing.as_ref().and_then(BurstPacing::note) {
            let are_few = self.burst_pacing.as_ref().is_some_and(BurstPacing::left_few);
            // Behind what comes of it.
            let first = usize::from(profile.run.too_few_bursts().is_some());
            let place = if are_few { first } else { profile.run.notes.len() }.min(profile.run.notes.len());
            profile.run.notes.insert(place, note);
        }
        let is_running = matches!(self.watched, Watched::Process(_));
        if counts.samples == 0 && self.bursts().is_none() {
            let note = no_sample_note(self.program_cpu, event.frequency_hz);
            profile.run.notes.splice(0..0, note.or_else(|| {
                let note = "No sample was taken: while memlens looked, the process did not run, or only in the kernel.";
                is_running.then(|| note.to_owned())
            }));
        }
        let left: Vec<u32> = match self.watched {
            Watched::Child(ref child, _) if !process_runs(child.id()) => {
                self.recording.processes().filter(|&pid| process_runs(pid)).collect()
            }
            _ => Vec::new(),
        };
        // Who has nothing is told first where it may be.
        let is_nothing = self.bursts().map_or(counts.samples, |bursts| bursts.bursts) == 0;
        for note in [children_note(&self.children_before), left_note(&left)].into_iter().flatten() {
            let place = if is_nothing { 0 } else { profile.run.notes.len() };
            profile.run.notes.insert(place, note);
        }
        // What changes every number comes first.
        profile.run.notes.splice(0..0, self.coverage_note());
        let taken = self.bursts().map_or(0, |counts| counts.bursts);
        if let Some(note) = many_lost(taken, self.allocations.lost_bursts()) {
            profile.run.notes.insert(0, note);
        }
        profile.run.notes.splice(0..0, self.bursts().and_then(BurstCounts::filter_note));
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
        if let Some(error) = &self.pacing_problem {
            profile.run.notes.push(format!("The rate could not be adapted to the budget: {error}."));
        }
        profile.run.notes.extend(processors_note(&event.name, self.collector.processors()));
        for (name, why) in &self.refused {
            profile.run.notes.push(format!("{name} cannot be sampled here: {why}."));
        }
        profile
    }
}

/// What is sampled, what cannot be, and what that pays for.
struct Choice {
    event: SampleEvent,
    refused: Vec<Refusal>,
    /// Why the kernel gives no event.
    without_events: Option<SampleError>,
    budget: OverheadBudget,
}

impl Choice {
    /// The agent's timers. What one of their signals costs is not known.
    fn agents(options: &SampleOptions, without_events: Option<SampleError>) -> Self {
        let budget = OverheadBudget::new(options.overhead, None);
        let frequency = options.frequency_hz.unwrap_or_else(|| budget.frequency());
        let refused =
            without_events.iter().map(|why| ("cpu-clock".to_owned(), why.of_the_kernel())).collect();
        Self {
            event: SampleEvent::agent_clock(frequency, options.stack_bytes),
            refused,
            without_events,
            budget,
        }
    }

    /// The best of the kernel's events that opens.
    fn kernels(options: &SampleOptions) -> Result<Self, SampleError> {
        let cost = measure_sample_cost(options.stack_bytes).map_err(SampleError::of_event)?;
        let budget = OverheadBudget::new(options.overhead, cost);
        let frequency = options.frequency_hz.unwrap_or_else(|| budget.frequency());
        let candidates = SampleEvent::candidates(options.choice, frequency, options.stack_bytes);
        if candidates.is_empty() {
            // There is always time and misses, as far as the kernel's list of sources goes.
            return Err(SampleError::NoMemoryEvents);
        }
        let (event, refused) = first_that_opens(candidates).map_err(SampleError::of_event)?;
        Ok(Self { event, refused, without_events: None, budget })
    }
}

/// The event to sample: the best that opens, or, where the kernel forbids or has none, the agent's timers.
fn choose(target: &Target, options: &SampleOptions) -> Result<Choice, SampleError> {
    if let Some(bursts) = &options.bursts {
        let options = SampleOptions { frequency_hz: Some(bursts.frequency_hz), ..options.clone() };
        return Ok(Choice::agents(&options, None));
    }
    if options.choice == EventChoice::AgentClock {
        return Ok(Choice::agents(options, None));
    }
    match (Choice::kernels(options), target) {
        // A miss, or an access as the processor tells it, cannot be had from a timer.
        (Err(why @ (SampleError::Forbidden(_) | SampleError::NoEvents(_))), Target::Program { file, .. })
            if options.choice.is_of_time() && check_preloadable(file).is_ok() =>
        {
            Ok(Choice::agents(options, Some(why)))
        }
        (Err(why @ (SampleError::Forbidden(_) | SampleError::NoEvents(_))), Target::Process(pid))
            if options.choice.is_of_time() && check_attachable(*pid).is_ok() =>
        {
            Ok(Choice::agents(options, Some(why)))
        }
        (found, _) => found,
    }
}

/// Watches every thread of a running process.
fn attach(pid: u32, collector: &mut Collector, recording: &mut Recording) -> Result<(), SampleError> {
    collector
        .watch_process(pid, |pid, tid| {
            if let Ok(name) = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")) {
                recording.name_thread(tid, name.trim_end_matches('\n').to_owned());
            }
        })
        .map_err(|error| match error.raw_os_error() {
            Some(libc::EMFILE) => SampleError::TooManyThreads(pid, error),
            // Events as such can be opened: the cost of one was measured.
            Some(libc::EACCES | libc::EPERM | libc::ESRCH) => of_process(pid, error),
            _ => SampleError::of_event(error),
        })?;
    // What is mapped while they are read is reported, too.
    let mappings = running_mappings(pid).map_err(|error| of_process(pid, error))?;
    recording.add_running(pid, &mappings);
    Ok(())
}

fn has_one_thread(pid: u32) -> bool {
    threads_of(pid).is_ok_and(|threads| threads.len() == 1)
}

fn name_threads(pid: u32, recording: &mut Recording) {
    for entry in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        if let Some(tid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            && let Ok(name) = fs::read_to_string(entry.path().join("comm"))
        {
            recording.name_thread(tid, name.trim_end_matches('\n').to_owned());
        }
    }
}

fn of_process(pid: u32, error: io::Error) -> SampleError {
    match error.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => SampleError::NoProcess(pid),
        Some(libc::EINVAL) => SampleError::NoProcess(pid),
        _ => SampleError::NotOurs(pid, error),
    }
}

/// What a reader has to know of a machine some of whose processors cannot sample the event: how many there are, and how many of those.
fn processors_note(event: &str, (all, without): (usize, usize)) -> Option<String> {
    (without > 0).then(|| {
        format!(
            "{without} of {all} processors have no {event}: what threads did there has no samples, and is missing in every number."
        )
    })
}

/// What a reader of the profile has to know of a process's children that began before memlens came.
fn children_note(children: &[u32]) -> Option<String> {
    let what = match children.len() {
        0 => return None,
        1 => "1 child of the process began before memlens came and is".to_owned(),
        count => format!("{count} children of the process began before memlens came and are"),
    };
    Some(format!("{what} not recorded; --pid takes one of them: {}.", named(children)))
}

/// Why a program that did run may have no sample; None: it did not run. A thread's first one comes when a whole period has passed.
fn no_sample_note(cpu_seconds: Option<f64>, frequency_hz: u64) -> Option<String> {
    /// Of less nobody would wonder.
    const LEAST_SECONDS: f64 = 0.1;
    let seconds = cpu_seconds.filter(|&seconds| seconds >= LEAST_SECONDS)?;
    Some(format!(
        "No sample was taken of {seconds:.2} s of processor time: it went by in the kernel, or in threads that each ran for less than the \
         {} ms between two samples, which get none; --frequency sets how many come a second.",
        1000 / frequency_hz.max(1)
    ))
}

/// The same of processes that go on when the program has ended.
fn left_note(left: &[u32]) -> Option<String> {
    let what = match left.len() {
        0 => return None,
        1 => "1 process that the program left behind, as a daemon, goes".to_owned(),
        count => format!("{count} processes that the program left behind, as daemons, go"),
    };
    Some(format!(
        "{what} on without being recorded; --mode exact --follow children records them to their end, --pid takes one of them: {}.",
        named(left)
    ))
}

/// Processes by their numbers.
fn named(processes: &[u32]) -> String {
    const NAMED: usize = 8;
    let mut named = processes.to_vec();
    named.sort_unstable();
    let numbers: Vec<String> = named.iter().take(NAMED).map(u32::to_string).collect();
    let more = if named.len() > NAMED { " …" } else { "" };
    format!("{}{more}", numbers.join(" "))
}

/// What a reader of the profile has to know where memlens did not keep up.
fn many_lost(taken: u64, lost: u64) -> Option<String> {
    /// Of all bursts.
    const MANY: f64 = 0.1;
    let part = lost as f64 / (taken + lost).max(1) as f64;
    (part > MANY).then(|| {
        format!(
            "{:.0} % of the bursts were lost: memlens did not keep up. Threads that ended before they could tell of another \
             one count for too little, or nothing, and totals are too low; fewer bursts (--overhead) lose less.",
            100.0 * part
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_that_were_there_are_named() {
        assert_eq!(children_note(&[]), None);
        let note = children_note(&[31, 7]).expect("a note");
        assert!(note.starts_with("2 children") && note.ends_with("them: 7 31."), "{note}");
        let many: Vec<u32> = (1..=20).collect();
        assert!(children_note(&many).is_some_and(|note| note.ends_with("7 8 ….")));
        assert!(
            left_note(&[9]).is_some_and(|note| note.starts_with("1 process") && note.ends_with("them: 9."))
        );
    }

    #[test]
    fn processors_without_the_hardware_are_told() {
        assert_eq!(processors_note("arm_spe_0", (8, 0)), None);
        let note = processors_note("arm_spe_0", (8, 4)).expect("a note");
        assert!(note.starts_with("4 of 8 processors have no arm_spe_0"), "{note}");
    }

    #[test]
    fn where_no_source_has_addresses_that_is_said() {
        if !SampleEvent::candidates(EventChoice::Memory, 1000, 0).is_empty() {
            return;
        }
        let options = SampleOptions { choice: EventChoice::Memory, ..SampleOptions::default() };
        match choose(&Target::Process(std::process::id()), &options).map(|_| ()) {
            Err(why @ SampleError::NoMemoryEvents) => {
                assert!(why.to_string().contains("--event time"), "{why}");
            }
            // Nor events at all.
            Err(SampleError::Forbidden(_) | SampleError::NoEvents(_)) => {}
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn some_bursts_may_be_lost_and_many_are_told() {
        assert_eq!((many_lost(0, 0), many_lost(90, 10)), (None, None));
        assert!(many_lost(30, 90).is_some_and(|note| note.starts_with("75 % of the bursts were lost")));
    }
}

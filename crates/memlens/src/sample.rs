//! `memlens run --mode sample`, `memlens record --pid PID`.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use memlens_exact::Program;
use memlens_profile::{Existing, Profile, RunInfo};
use memlens_sample::{
    AgentError, AttributionWay, BurstModel, BurstSettings, EventChoice, InjectError, SampleError,
    SampleOptions, SampleOutcome, SampleSession, Target, Watch,
};

use crate::backing_looks::{self, BackingLooks};
use crate::failure::{Failure, FailureKind};
use crate::internal_error;
use crate::output::Output;
use crate::processor::needs_x86_64;
use crate::recorder::FIRST_FLUSH;
use crate::run::{Mode, RecordArgs, describe, end_as, end_of, engine_failure, show};
use crate::streams::say;
use crate::system;
use crate::view_args::ViewArgs;

/// Words of a burst.
const BURST_LENGTH: u32 = 12_500;
/// What makes a block a large one, in bytes.
const LARGE_BYTES: u64 = 4096;
/// Bursts a second of a thread's processor time, at most.
const BURSTS_A_SECOND: u64 = 100;
/// The first bursts come up to twice as often: what a short run's profile lacks most is more of them.
const BURSTS_OFTEN: u32 = 500;

/// A partial profile may take this part of the time: flushes that take long become rare.
const FLUSH_SHARE: u32 = 20;

/// Arguments of sample mode.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sampling")]
pub struct SampleArgs {
    /// Record a process that runs already, all its threads, with --mode sample (the default) or burst: the agent is let
    /// into it and leaves at the end; SIGINT (Ctrl-C) ends the recording, not the process
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub pid: Option<u32>,

    /// End the recording of --pid after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub duration: Option<Duration>,

    /// What part of the program's time sampling may cost, memlens's own work included where no processor is idle; it sets
    /// the frequency; 1% if not given
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub overhead: Option<f64>,

    /// Samples a second and processor, instead of --overhead
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub frequency: Option<u64>,

    /// Which allocations of the program are watched, so that samples of the heap name where a block was allocated;
    /// sampled if not given
    #[arg(long, value_name = "WHICH")]
    pub allocations: Option<Allocations>,

    /// The least size of blocks that --allocations large watches; 4096 if not given
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub allocation_threshold: Option<u64>,

    /// What is sampled; auto if not given
    #[arg(long, value_name = "EVENT")]
    pub event: Option<Event>,

    /// Words that a burst of --mode burst records, each an access or more; 12500 if not given. One burst in twelve may
    /// have sixteen times as many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub burst_length: Option<u32>,

    /// How misses follow from the bursts of --mode burst; reuse if not given
    #[arg(long, value_name = "MODEL")]
    pub model: Option<Model>,

    /// Bursts that begin in a function until those that do are simulated by --model umi; 1 if not given. The paper has 64, and
    /// 100 ticks a second (--frequency 100)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub region_hits: Option<u32>,

    /// Leave out of the bursts of --mode burst what seldom misses: accesses relative to the stack pointer or the frame pointer
    /// alone, and at fixed addresses. No number counts them then; a note says how many they were
    #[arg(long)]
    pub filter_operations: bool,

    /// What a sample's data is found by; addresses if not given
    #[arg(long, value_name = "WAY")]
    pub attribution: Option<Attribution>,
}

impl SampleArgs {
    /// The first of these options that was given and means something in sample mode only: bursts have no use for it.
    pub fn first_of_samples(&self) -> Option<&'static str> {
        let given = [(self.event.is_some(), "--event"), (self.attribution.is_some(), "--attribution")];
        given.into_iter().find_map(|(is_given, option)| is_given.then_some(option))
    }

    /// The first of these options that was given and means something in burst mode only.
    pub fn first_of_bursts(&self) -> Option<&'static str> {
        let given = [
            (self.burst_length.is_some(), "--burst-length"),
            (self.model.is_some(), "--model"),
            (self.region_hits.is_some(), "--region-hits"),
            (self.filter_operations, "--filter-operations"),
        ];
        given.into_iter().find_map(|(is_given, option)| is_given.then_some(option))
    }

    /// The first of these options that was given and means nothing in exact mode.
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            (self.overhead.is_some(), "--overhead"),
            (self.frequency.is_some(), "--frequency"),
            (self.allocations.is_some(), "--allocations"),
            (self.allocation_threshold.is_some(), "--allocation-threshold"),
        ];
        let given = given.into_iter().find_map(|(is_given, option)| is_given.then_some(option));
        given.or_else(|| self.first_of_samples()).or_else(|| self.first_of_bursts())
    }

    /// How misses follow from bursts. `None`: the options contradict each other.
    fn burst_model(&self) -> Option<BurstModel> {
        match (self.model.unwrap_or(Model::Reuse), self.region_hits) {
            (Model::Reuse, None) => Some(BurstModel::Reuse),
            (Model::Reuse, Some(_)) => None,
            (Model::Umi, hits) => Some(BurstModel::Umi { region_hits: hits.unwrap_or(1) }),
        }
    }
}

/// How misses follow from bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Model {
    /// From the times between uses of a line, inside bursts and across them; all levels.
    Reuse,
    /// The mini-simulation of Ubiquitous Memory Introspection (Zhao et al. 2007); the last level only.
    Umi,
}

/// What a sample's data is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Attribution {
    /// The address that the sampled registers give; static analysis of the code where they give none.
    Addresses,
    /// The sampled instruction and static analysis of the code alone.
    Static,
}

/// Which allocations are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Allocations {
    /// Those of bytes drawn at random, some 2,000 a second at most, and 0.4 % of the time: large blocks nearly all, small ones seldom.
    Sampled,
    /// All blocks of --allocation-threshold bytes and more.
    Large,
    /// All, at some microseconds each.
    All,
    /// None: the heap is named by the pointers through which it is reached.
    Off,
}

/// What samples are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Event {
    /// Loads and stores with their addresses, registers and stacks if the processor tells them, else time.
    Auto,
    /// Loads and stores with their addresses, also without registers and stacks, as Arm's SPE has them.
    Memory,
    /// Processor time in user mode.
    Time,
    /// Last-level cache misses.
    CacheMisses,
    /// Processor time, by timers inside of the program: where the kernel allows no events.
    AgentClock,
}

impl From<Event> for EventChoice {
    fn from(event: Event) -> Self {
        match event {
            Event::Auto => Self::Best,
            Event::Memory => Self::Memory,
            Event::Time => Self::Time,
            Event::CacheMisses => Self::CacheMisses,
            Event::AgentClock => Self::AgentClock,
        }
    }
}

/// A time in seconds, as options have it.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.trim_end_matches('s').parse().map_err(|_| format!("‘{text}’ is no number"))?;
    // Years: longer times cannot be added to others.
    const MOST: Duration = Duration::from_secs(1_000_000_000);
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() && duration <= MOST => Ok(duration),
        _ => Err("it takes more than 0 and at most 1000000000 seconds".to_owned()),
    }
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent: f64 =
        text.trim_end_matches('%').parse().map_err(|_| format!("‘{text}’ is no percentage"))?;
    match percent > 0.0 && percent <= 100.0 {
        true => Ok(percent / 100.0),
        false => Err("the overhead is between 0 and 100 percent".to_owned()),
    }
}

/// Samples what the arguments say, and shows what `view` asks for. `reason`: why this mode, if the user left that to us.
/// The exit code is the program's.
pub fn run(args: &RecordArgs, reason: Option<&str>, view: Option<&ViewArgs>) -> Result<u8, Failure> {
    if !matches!(args.mode, Mode::Sample | Mode::Burst) {
        let message = "--pid records a running process with --mode sample (the default) or --mode burst";
        return Err(Failure::new(FailureKind::Usage, message));
    }
    if matches!(args.sample.attribution, Some(Attribution::Static)) {
        needs_x86_64("--attribution static", "without it addresses are computed from registers")?;
    }
    if args.mode == Mode::Burst && args.sample.event.is_some() {
        let message = "--event is sample mode's: bursts begin at ticks of the processor's time";
        return Err(Failure::new(FailureKind::Usage, message));
    }
    if args.mode == Mode::Sample
        && let Some(option) = args.sample.first_of_bursts()
    {
        let message = format!("{option} is burst mode's: samples are no bursts");
        return Err(Failure::new(FailureKind::Usage, message));
    }
    if args.sample.allocation_threshold.is_some() && args.sample.allocations != Some(Allocations::Large) {
        let message = "--allocation-threshold goes with --allocations large: the others have no least size";
        return Err(Failure::new(FailureKind::Usage, message));
    }
    let Some(model) = args.sample.burst_model() else {
        let message = "--region-hits goes with --model umi: the other model takes every burst";
        return Err(Failure::new(FailureKind::Usage, message));
    };
    if let Some(option) = args.first_of_exact() {
        let what = if args.mode == Mode::Burst { "bursts" } else { "samples" };
        let message = format!("{option} does not go with {what}; --mode exact sees every access");
        return Err(Failure::new(FailureKind::Usage, message));
    }
    let defaults = SampleOptions::default();
    let options = SampleOptions {
        choice: EventChoice::from(args.sample.event.unwrap_or(Event::Auto)),
        frequency_hz: args.sample.frequency,
        overhead: args.sample.overhead.unwrap_or(defaults.overhead),
        skid: args.machine.skid()?,
        way: match args.sample.attribution {
            None | Some(Attribution::Addresses) => AttributionWay::Addresses,
            Some(Attribution::Static) => AttributionWay::Static,
        },
        watch: match (args.sample.attribution, args.sample.allocations) {
            // By the code alone: nothing is watched unless that is asked for.
            (Some(Attribution::Static), None) | (_, Some(Allocations::Off)) => Watch::Nothing,
            (_, None | Some(Allocations::Sampled)) => Watch::Sampled,
            (_, Some(Allocations::Large)) => {
                Watch::From(args.sample.allocation_threshold.unwrap_or(LARGE_BYTES))
            }
            (_, Some(Allocations::All)) => Watch::All,
        },
        bursts: match args.mode {
            Mode::Burst => Some(BurstSettings {
                core_cycle_ns: args.machine.is_this_one().then(memlens_calibrate::core_cycle_ns),
                accesses: args.sample.burst_length.unwrap_or(BURST_LENGTH),
                frequency_hz: args.sample.frequency.unwrap_or(BURSTS_A_SECOND),
                often: if args.sample.frequency.is_some() { 0 } else { BURSTS_OFTEN },
                machine: memlens_pipeline::machine_info(&args.machine.description()?),
                model,
                filter: args.sample.filter_operations,
            }),
            _ => None,
        },
        ..defaults
    };
    let (target, command) = match args.sample.pid {
        Some(pid) => (Target::Process(pid), command_of(pid)),
        None => (program(&args.command)?, args.command.clone()),
    };
    let name = command.first().cloned().unwrap_or_else(|| OsString::from("program"));
    let mut output = Output::create(args.out.as_deref(), &name, Existing::replace_if(args.force))?;
    let mut session = match SampleSession::start(&target, &options) {
        Ok(session) => session,
        Err(error) => {
            output.discard();
            return Err(error.into());
        }
    };
    if let Some(reason) = reason.filter(|_| !args.quiet) {
        say(reason);
    }
    output.name_after(session.process_id());
    let mut run = describe(&command);
    run.pid = Some(session.process_id());

    let mut flushes = Flushes::new(args.flush_every);
    let mut looks = BackingLooks::new();
    let outcome = session.run(args.sample.duration, |session| {
        let now = Instant::now();
        if looks.are_due(now) {
            // A fault of ours is no reason to stop.
            let _ = internal_error::catch(|| backing_looks::look_at_heap(session));
            looks.done(now);
        }
        flushes.look(session, &run, &mut output);
    })?;
    let exit = match outcome {
        SampleOutcome::Ended(exit) => Some(exit),
        SampleOutcome::Gone | SampleOutcome::Detached => None,
    };
    // A fault of ours must not change the program's exit.
    match internal_error::catch(|| session.profile()) {
        Ok(profile) => {
            let mut profile = completed(profile, &run, session.elapsed());
            if let Some(exit) = exit {
                (profile.run.exit_code, profile.run.signal) = end_of(exit);
            }
            match output.writer().flush(&profile, true) {
                Ok(()) if !args.quiet => show(&profile, &output, view),
                Ok(()) => {}
                Err(error) if exit.is_some() => say(&Failure::from(error).to_string()),
                Err(error) => return Err(error.into()),
            }
        }
        Err(message) => say(&message),
    }
    Ok(exit.map_or(0, end_as))
}

/// Partial profiles, so that there is one when memlens is killed.
struct Flushes {
    every: Option<Duration>,
    next: Option<Instant>,
    has_complained: bool,
}

impl Flushes {
    fn new(seconds: u64) -> Self {
        let every = (seconds > 0).then(|| Duration::from_secs(seconds));
        let next = every.map(|every| Instant::now() + every.min(FIRST_FLUSH));
        Self { every, next, has_complained: false }
    }

    fn look(&mut self, session: &mut SampleSession, run: &RunInfo, output: &mut Output) {
        let now = Instant::now();
        if self.next.is_none_or(|due| now < due) {
            return;
        }
        let Ok(profile) = internal_error::catch(|| session.profile()) else { return };
        let mut profile = completed(profile, run, session.elapsed());
        profile.attribution.truncated = true;
        if let Err(error) = output.writer().flush(&profile, false)
            && !self.has_complained
        {
            self.has_complained = true;
            say(&format!("{}; the program goes on", Failure::from(error)));
        }
        let pause = self.every.map(|every| every.max(now.elapsed() * FLUSH_SHARE));
        self.next = pause.map(|pause| Instant::now() + pause);
    }
}

/// The profile with what is known of the run.
fn completed(mut profile: Profile, run: &RunInfo, elapsed: Duration) -> Profile {
    let made = std::mem::replace(&mut profile.run, run.clone());
    profile.run.set_modelled(&made);
    profile.run.mode = made.mode;
    profile.run.estimated = made.estimated;
    profile.run.primary_cost = made.primary_cost;
    profile.run.sampling = made.sampling;
    profile.run.bursts = made.bursts;
    profile.run.spin_waits = made.spin_waits;
    profile.run.effective_bursts = made.effective_bursts;
    profile.run.threads = made.threads;
    profile.run.notes.splice(..0, made.notes);
    profile.run.wall_seconds = Some(elapsed.as_secs_f64());
    profile
}

/// The file that a command names. A script is executed as such, so that it sees its own name.
fn program(command: &[OsString]) -> Result<Target, Failure> {
    let found =
        Program::find(command).map_err(|error| Failure::from(memlens_exact::SessionError::from(error)))?;
    let is_script = found.arguments.len() > command.len();
    let file = match found.arguments.get(found.arguments.len() - command.len()) {
        Some(script) if is_script => PathBuf::from(script),
        _ => found.file,
    };
    Ok(Target::Program { file, arguments: command.to_vec() })
}

/// What a running process was started as (proc_pid_cmdline(5)).
fn command_of(pid: u32) -> Vec<OsString> {
    use std::os::unix::ffi::OsStringExt;
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    bytes
        .split(|&byte| byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect()
}

/// Not the program's fault: this process may not open, map or start more.
fn is_limit(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN))
}

/// What it means that a process cannot be let do something.
pub fn kind_of_injection(error: &InjectError) -> FailureKind {
    match error {
        error if error.is_gone() => FailureKind::NoInput,
        error if error.is_of_permission() => FailureKind::Permission,
        error if error.is_for_good() => FailureKind::Unavailable,
        _ => FailureKind::Engine,
    }
}

impl From<SampleError> for Failure {
    fn from(error: SampleError) -> Self {
        let kind = match &error {
            SampleError::Start(why) if is_limit(why) => {
                return engine_failure(&format!("failed to {error}"));
            }
            SampleError::NoTimers(_) | SampleError::NoBursts(_) if !system::low_limits().is_empty() => {
                return engine_failure(&format!("failed to {error}"));
            }
            SampleError::NoProcess(_) => FailureKind::NoInput,
            SampleError::NotOurs(..) => FailureKind::Permission,
            SampleError::Attach(AgentError::Inject(error)) => kind_of_injection(error),
            SampleError::Start(_) => FailureKind::NotExecutable,
            SampleError::Wait(_) => FailureKind::Io,
            _ => FailureKind::Engine,
        };
        Self::new(kind, format!("failed to {error}"))
    }
}

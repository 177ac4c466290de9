//! `memlens run` and `memlens record`.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use memlens_child::ExitOutcome;
use memlens_exact::{Following, Program, ReaderStatistics, Session, SessionError, SessionOptions};
use memlens_pipeline::{Process, ProcessOptions};
use memlens_profile::{Existing, Profile, RunInfo};
use memlens_report::table;

use crate::failure::{Failure, FailureKind, plain};
use crate::family::Family;
use crate::machine_args::MachineArgs;
use crate::mode_choice::{Choice, choose};
use crate::out_name;
use crate::output::Output;
use crate::processor::{IS_X86_64, needs_x86_64};
use crate::recorder::{Ending, Recorder, RecorderOptions};
use crate::sample::{self, SampleArgs};
use crate::shell;
use crate::streams::{self, Stream, say};
use crate::system;
use crate::trace_args::{TraceArgs, TracePlan};
use crate::view_args::ViewArgs;

/// Of what this processor can do.
const RUN_EXAMPLES: &str = if IS_X86_64 {
    "\
Examples:
  memlens run -- ./server                           the 20 objects that cost most, at nearly native speed
  memlens run --mode exact -- ls -lR /usr/share     every access counted, at the price of a simulator
  memlens run --mode sample -- ./server             samples of time instead: shares with intervals
  memlens run --by line --top 40 -- ./server        lines of code instead of objects
  memlens run --follow children -- make             the compiler, too: one profile a process, and all merged
  memlens run --machine e5504 --cache llc=2M,16,64 -- ls    on another machine's caches"
} else {
    "\
Examples:
  memlens run -- ./server                           the 20 objects that cost most, at nearly native speed
  memlens run --mode sample -- ./server             samples of time instead: shares with intervals
  memlens run --by line --top 40 -- ./server        lines of code instead of objects
  memlens run --event agent-clock -- ./server       where the kernel allows no events: by timers in the program"
};

/// Arguments of `memlens run`.
#[derive(Args, Debug)]
#[command(
    override_usage = "memlens run [OPTIONS] [--] PROGRAM [ARGUMENTS]...",
    before_help = RUN_EXAMPLES
)]
pub struct RunArgs {
    #[command(flatten)]
    pub record: RecordArgs,

    #[command(flatten)]
    pub view: ViewArgs,
}

/// Arguments of `memlens record`.
#[derive(Args, Debug)]
#[command(
    override_usage = "memlens record [OPTIONS] [--] PROGRAM [ARGUMENTS]...\n       \
                      memlens record [OPTIONS] --pid PID",
    before_help = "\
Examples:
  memlens record --out ls.memlens -- ls -lR /usr/share    to be shown later: memlens report ls.memlens
  memlens record --start-on work --stop-on done -- ./app  a part of the run
  memlens record --pid 4711 --duration 10                 samples of a process that runs already
  memlens record --pid 4711 --mode burst --duration 10    bursts of all its accesses, with modelled misses"
)]
pub struct RecordArgs {
    // Before those with headings of their own: it would be listed below the last of them.
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required_unless_present = "pid", trailing_var_arg = true)]
    pub command: Vec<OsString>,

    /// How accesses are collected
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub mode: Mode,

    /// Where the profile goes; memlens.PROGRAM.PID in the current folder if not given. %p is memlens's process id, %q{NAME} a variable of the environment
    #[arg(long, short, value_name = "PROFILE", value_parser = out_name::parser())]
    pub out: Option<PathBuf>,

    /// Replace the profile if it exists
    #[arg(long)]
    pub force: bool,

    /// Say nothing but errors, and show no table
    #[arg(long, short)]
    pub quiet: bool,

    /// Show on stderr how far the recording is, once a second
    #[arg(long, conflicts_with = "quiet")]
    pub progress: bool,

    /// Which programs are recorded besides the one given (exact mode): each has a profile of its own, and all are merged.
    /// Executed if not given
    #[arg(long, value_name = "WHOM")]
    pub follow: Option<Follow>,

    /// Write a partial profile every so many seconds, so that there is one when memlens is killed; 0: never. It may take a twentieth of the
    /// time: where making one takes 0.4 s, they come every 8 s at most. The first comes after 5 s, or as long as 20 times what it is taken to need
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub flush_every: u64,

    /// A function that allocates, as reports or its symbol name it: NAME (its first argument is the size), NAME=N (argument N
    /// is, counted from 0, a method's object being 0), or NAME=free (it frees); may be repeated
    #[arg(
        long = "alloc-fn",
        value_name = "NAME[=N|=free]",
        value_parser = parse_alloc_function,
        help_heading = "Objects"
    )]
    pub alloc_fn: Vec<String>,

    /// Keep each block of memory as an object of its own, instead of one for all blocks of a place
    #[arg(long, help_heading = "Objects")]
    pub no_merge: bool,

    /// Start counting when this function, as reports or its symbol name it, is entered; may be repeated
    #[arg(long, value_name = "FUNCTION", help_heading = "What is counted")]
    pub start_on: Vec<String>,

    /// Stop counting when this function is entered; may be repeated
    #[arg(long, value_name = "FUNCTION", help_heading = "What is counted")]
    pub stop_on: Vec<String>,

    /// Start counting when this function is entered and it is off, stop when it is on; may be repeated
    #[arg(long, value_name = "FUNCTION", help_heading = "What is counted")]
    pub toggle_on: Vec<String>,

    /// Whether to count from the program's start; yes, unless --start-on or --toggle-on is given
    #[arg(
        long = "collect-atstart",
        value_name = "yes|no",
        hide_possible_values = true,
        help_heading = "What is counted"
    )]
    pub collect_at_start: Option<YesNo>,

    /// Model instruction fetches, too: code goes through the first-level instruction cache and shares the further
    /// levels with data. Exact mode only; takes longer
    #[arg(long, help_heading = "What is counted")]
    pub fetches: bool,

    #[command(flatten)]
    pub trace: TraceArgs,

    #[command(flatten)]
    pub machine: MachineArgs,

    #[command(flatten)]
    pub sample: SampleArgs,
}

impl RecordArgs {
    /// The first option given that means something only where every access is seen.
    pub fn first_of_exact(&self) -> Option<&'static str> {
        let given = [
            (self.progress, "--progress"),
            (self.follow.is_some(), "--follow"),
            (!self.alloc_fn.is_empty(), "--alloc-fn"),
            (self.no_merge, "--no-merge"),
            (!self.start_on.is_empty(), "--start-on"),
            (!self.stop_on.is_empty(), "--stop-on"),
            (!self.toggle_on.is_empty(), "--toggle-on"),
            (self.collect_at_start.is_some(), "--collect-atstart"),
            (self.fetches, "--fetches"),
            (self.trace.trace.is_some(), "--trace"),
            // Bursts are of a machine's caches, too.
            (
                self.machine.is_given() && !matches!(self.mode, Mode::Burst | Mode::Auto),
                "--machine or --cache",
            ),
        ];
        given.iter().find(|(is_given, _)| *is_given).map(|(_, option)| *option)
    }
}

/// Where accesses come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Burst where the program allows it, else exact; on AArch64 else sample; says which and why.
    Auto,
    /// Every access of every thread, under DynamoRIO.
    Exact,
    /// Every access for a moment now and then, at nearly native speed: misses are estimated from that.
    Burst,
    /// Samples of the processor's time or memory events, at native speed.
    Sample,
}

/// Which other programs are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Follow {
    /// None.
    None,
    /// Those that the program executes in its own place, as wrapper scripts do.
    Executed,
    /// Those, and all processes that the program starts, and those that they start.
    Children,
}

/// A yes or no, as valgrind's options take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum YesNo {
    /// Yes.
    Yes,
    /// No.
    No,
}

/// Everything that a run needs, checked.
struct Config {
    command: Vec<OsString>,
    process: ProcessOptions,
    out: Option<PathBuf>,
    existing: Existing,
    trace: Option<TracePlan>,
    recorder: RecorderOptions,
    following: Following,
    quiet: bool,
}

/// Said where an option of ours stands behind the program, which gets it, and no `--` in front of it tells that this was meant.
/// `words`: what followed `memlens`, the subcommand first.
fn given_to_the_program(mut words: impl Iterator<Item = OsString>, command: &[OsString]) -> Option<String> {
    let subcommand = words.next()?;
    if words.any(|word| word == "--") {
        return None;
    }
    let definition = crate::cli::definition();
    let subcommand = definition.find_subcommand(&subcommand)?;
    let is_ours = |word: &&str| {
        let name = word.strip_prefix("--").map(|option| option.split('=').next().unwrap_or(option));
        // Programs have help of their own.
        name.is_some_and(|name| {
            name != "help" && subcommand.get_arguments().any(|it| it.get_long() == Some(name))
        })
    };
    let option = command.iter().skip(1).filter_map(|word| word.to_str()).find(is_ours)?;
    let program = command.first()?.to_string_lossy();
    Some(format!(
        "{option} stands behind {program}, so that {program} gets it; memlens's own options stand in front of the program (-- in front of it says \
         that this was meant)"
    ))
}

/// Runs a program, records it and shows what `view` asks for. The exit code is the program's.
pub fn run(mut args: RecordArgs, view: Option<&ViewArgs>) -> Result<u8, Failure> {
    // clap's `requires` says nothing here, because --pid does not go with a program.
    if args.sample.duration.is_some() && args.sample.pid.is_none() {
        let message = "--duration goes with --pid; a program that memlens starts is recorded to its end";
        return Err(Failure::new(FailureKind::Usage, message));
    }
    if let Some(hint) =
        given_to_the_program(std::env::args_os().skip(1), &args.command).filter(|_| !args.quiet)
    {
        say(&hint);
    }
    let Choice { mode, reason } = choose(&args);
    args.mode = mode;
    if matches!(mode, Mode::Sample | Mode::Burst) || args.sample.pid.is_some() {
        return sample::run(&args, reason.as_deref(), view);
    }
    needs_x86_64("exact mode", "--mode burst estimates the same counts here")?;
    let config = check(args)?;
    let (quiet, following) = (config.quiet, config.following);
    // What can be known to fail must fail before anything is created.
    Program::find(&config.command).map_err(|error| Failure::from(SessionError::from(error)))?;
    let options = config.process.clone();
    let mut process = Process::new(config.process)
        .map_err(|error| Failure::new(FailureKind::Usage, format!("cannot set up the recording: {error}")))?;
    let name = config.command.first().cloned().unwrap_or_default();
    let mut output = Output::create(config.out.as_deref(), &name, config.existing)?;

    let mut trace = match config.trace.map(|plan| plan.create(&name, config.existing)).transpose() {
        Ok(trace) => trace,
        Err(failure) => {
            output.discard();
            return Err(failure);
        }
    };

    if let Some(reason) = reason.filter(|_| !quiet) {
        say(&reason);
    }
    let mut run = describe(&config.command);
    let session_options = SessionOptions { command: config.command, following, ..SessionOptions::default() };
    let mut session = match Session::start(&session_options) {
        Ok(session) => session,
        Err(error) => {
            output.discard();
            if let Some((writer, _)) = trace {
                writer.discard();
            }
            return Err(error.into());
        }
    };
    let process_id = session.process_id();
    run.pid = Some(process_id);
    process.set_process_id(process_id);
    output.name_after(process_id);
    if let Some((writer, place)) = &mut trace {
        place.name_after(writer, &name, process_id);
    }
    let trace_place = trace.map(|(writer, place)| {
        process.trace_to(writer);
        place
    });

    if following == Following::Children {
        process.follow_children();
    }
    // From here on programs are answered; without an answer they would wait.
    let answered = (following != Following::Nothing).then(|| {
        let family = Family::new(output.path(), options, config.recorder, run.clone(), None);
        family.first(process_id, session.replacement());
        let answering = session.take_follower().map(|follower| family.answer(follower));
        Answered { family, answering }
    });
    let mut recorder = Recorder::new(process, output, run, config.recorder);
    let family = answered.as_ref().map(|answered| answered.family.clone());
    if let Some(family) = &family {
        recorder = recorder.in_family(family.clone(), 1);
    }
    if following == Following::Children
        && let Some(answered) = answered
    {
        return run_children(session, answered, recorder, (quiet, view));
    }
    let outcome = session.run_image(&mut recorder);
    let trace = recorder.take_trace();
    let outcome = match (outcome, answered) {
        (Ok(None), Some(answered)) => return run_executed(session, answered, recorder, (quiet, view)),
        // Nobody tells of another program then.
        (Ok(None), None) => session.wait(),
        (Ok(Some(outcome)), _) => Ok(outcome),
        (Err(error), _) => Err(error),
    };
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            recorder.abandon();
            if let (Some(writer), Some(place)) = (trace, trace_place) {
                place.finish(writer, quiet);
            }
            return Err(error.into());
        }
    };
    tracing::debug!(?outcome, statistics = ?session.statistics(), "the program has ended");
    if !session.was_recorded() && matches!(outcome, ExitOutcome::Code(_)) {
        recorder.discard();
        if let Some(writer) = trace {
            writer.discard();
        }
        let name = name.to_string_lossy();
        let message = format!("the recording engine did not start in {name}");
        return Err(engine_failure(&message));
    }
    let mut ending = ending(&session, outcome);
    if let Some(family) = family {
        // Which program could not be recorded in its place, and why.
        let (notes, lost) = family.notes();
        ending.notes.extend(notes);
        ending.lost_events += lost;
    }
    let (profile, output, written) = recorder.finish(&ending);
    match (&profile, written) {
        // The program has run: its exit code goes before ours.
        (_, Err(failure)) => say(&failure.to_string()),
        (Some(profile), Ok(())) if !quiet => show(profile, &output, view),
        _ => {}
    }
    // Freeing its many parts one by one takes long; the process ends soon.
    std::mem::forget(profile);
    if let (Some(writer), Some(place)) = (trace, trace_place) {
        place.finish(writer, quiet);
    }
    Ok(end_as(outcome))
}

/// A family, and the thread that answers its processes.
struct Answered {
    family: Arc<Family>,
    answering: Option<thread::JoinHandle<()>>,
}

/// What the first process's recorder writes goes to a place among those that are merged; what is merged goes where it wrote
/// until now.
fn make_room(recorder: &mut Recorder<Process>, process_id: u32) -> Result<Output, Failure> {
    match Output::of_process(recorder.output().path(), 1, process_id) {
        Ok(own) => Ok(recorder.move_to(own)),
        // The merged profile's place then holds the first process's, which is better than nothing.
        Err(failure) => {
            say(&format!("{failure}; the program goes on"));
            recorder.output().same_place()
        }
    }
}

/// Records the program and the processes that it makes.
fn run_children(
    mut session: Session,
    answered: Answered,
    mut recorder: Recorder<Process>,
    shown: (bool, Option<&ViewArgs>),
) -> Result<u8, Failure> {
    let merged = make_room(&mut recorder, session.process_id())?;
    let outcome = match session.run(&mut recorder) {
        Ok(outcome) => outcome,
        Err(error) => {
            recorder.abandon();
            return Err(error.into());
        }
    };
    let ending = if session.was_replaced() { replaced(&session) } else { ending(&session, outcome) };
    let (_, own, written) = recorder.finish(&ending);
    end_family(session, answered, (own, written), merged, outcome, shown)
}

/// The program has executed another one, which is recorded: writes what was recorded of it, and waits for the other.
fn run_executed(
    mut session: Session,
    answered: Answered,
    mut recorder: Recorder<Process>,
    shown: (bool, Option<&ViewArgs>),
) -> Result<u8, Failure> {
    // Only now: the profile of a program that executes nothing is the whole.
    let mut merged = make_room(&mut recorder, session.process_id())?;
    if merged.path() != recorder.output().path() {
        // What was flushed of the first program is no profile of all.
        merged.writer().withdraw();
    }
    let (_, own, written) = recorder.finish(&replaced(&session));
    system::give_memory_back();
    let outcome = session.wait()?;
    end_family(session, answered, (own, written), merged, outcome, shown)
}

/// The end of a program that has executed another one: what the process returns is that one's.
fn replaced(session: &Session) -> Ending {
    let mut ending = Ending { wall: session.elapsed(), ..Ending::default() };
    add_losses(&mut ending, &session.statistics());
    ending
}

/// The first process has ended, and its profile is written, or not: waits for others, and writes the profile of all.
fn end_family(
    session: Session,
    Answered { family, answering }: Answered,
    (own, written): (Output, Result<(), Failure>),
    mut merged: Output,
    outcome: ExitOutcome,
    (quiet, view): (bool, Option<&ViewArgs>),
) -> Result<u8, Failure> {
    let was_recorded = session.was_recorded();
    drop(session);
    family.wait(quiet);
    if let Some(Err(_)) = answering.map(thread::JoinHandle::join) {
        say("a fault of memlens: the program's last processes were not recorded");
    }
    if !was_recorded && matches!(outcome, ExitOutcome::Code(_)) {
        own.discard();
        let message = "the recording engine did not start in the program; `memlens doctor` may say why";
        return Err(Failure::new(FailureKind::Engine, message));
    }
    let whole = written.and_then(|()| family.merged()).map(|mut profile| {
        let (exit_code, signal) = end_of(outcome);
        (profile.run.exit_code, profile.run.signal) = (exit_code, signal);
        profile
    });
    let flushed = whole.and_then(|profile| {
        merged.writer().flush(&profile, !profile.attribution.truncated)?;
        Ok(profile)
    });
    match flushed {
        // The program has run: its exit code goes before ours.
        Err(failure) => say(&failure.to_string()),
        Ok(profile) if !quiet => show(&profile, &merged, view),
        Ok(_) => {}
    }
    Ok(end_as(outcome))
}

fn check(args: RecordArgs) -> Result<Config, Failure> {
    if let Some(option) = args.sample.first_given() {
        let message = format!("{option} does not go with --mode exact, which sees every access");
        return Err(Failure::new(FailureKind::Usage, message));
    }
    let trace = args.trace.plan()?;
    let following = match (args.follow, &trace) {
        // A trace is of one program.
        (None | Some(Follow::None | Follow::Executed), Some(_)) | (Some(Follow::None), None) => {
            Following::Nothing
        }
        (Some(Follow::Children), Some(_)) => {
            let message = "--trace writes one process's accesses: it does not go with --follow children";
            return Err(Failure::new(FailureKind::Usage, message));
        }
        (None | Some(Follow::Executed), None) => Following::Executed,
        (Some(Follow::Children), None) => Following::Children,
    };
    let mut process = ProcessOptions::new(args.machine.description()?);
    process.collect_at_start = match args.collect_at_start {
        Some(word) => word == YesNo::Yes,
        None => args.start_on.is_empty() && args.toggle_on.is_empty(),
    };
    process.merge_sites = !args.no_merge;
    process.alloc_functions = args.alloc_fn;
    process.start_on = args.start_on;
    process.stop_on = args.stop_on;
    process.toggle_on = args.toggle_on;
    process.fetches = args.fetches;
    Ok(Config {
        command: args.command,
        process,
        out: args.out,
        existing: Existing::replace_if(args.force),
        trace,
        following,
        recorder: RecorderOptions {
            flush_every: (args.flush_every > 0).then(|| Duration::from_secs(args.flush_every)),
            shows_progress: args.progress,
        },
        quiet: args.quiet,
    })
}

/// Arguments of allocation functions that the collector passes on.
const ALLOC_ARGUMENTS: u32 = 4;

pub(crate) fn parse_alloc_function(text: &str) -> Result<String, String> {
    let (name, what) = text.split_once('=').unwrap_or((text, "0"));
    let is_argument = what.parse::<u32>().is_ok_and(|argument| argument < ALLOC_ARGUMENTS);
    match name.is_empty() {
        true => Err("a function's name is missing".to_owned()),
        false if is_argument || what == "free" => Ok(text.to_owned()),
        false => Err(format!("‘{what}’ is neither ‘free’ nor the number of an argument, 0 to 3")),
    }
}

/// What is known of a run before it starts.
pub(crate) fn describe(command: &[OsString]) -> RunInfo {
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    RunInfo {
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        mode: "exact".to_owned(),
        started_unix_seconds: now_unix_seconds(),
        hostname: hostname.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()),
        memlens_version: env!("CARGO_PKG_VERSION").to_owned(),
        estimated: false,
        primary_cost: "wait_cycles".to_owned(),
        ..RunInfo::default()
    }
}

/// The time now.
pub fn now_unix_seconds() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs())
}

/// Exit code and signal of which one is known.
pub(crate) fn end_of(outcome: ExitOutcome) -> (Option<i32>, Option<i32>) {
    match outcome {
        ExitOutcome::Code(code) => (Some(code), None),
        ExitOutcome::Signal(signal) => (None, Some(signal)),
    }
}

/// The notes of a profile that ends before the program did: by a signal, or by a program in its place, whose exit code
/// is then the process's.
const KILLED: &str = "The program was killed: its threads' last records are missing.";
const REPLACED: &str = "The program executed another one in its place (exec), of which nothing was recorded.";

pub(crate) fn ending(session: &Session, outcome: ExitOutcome) -> Ending {
    let (exit_code, signal) = end_of(outcome);
    let is_truncated = session.was_recorded() && !session.ended_normally();
    let cut = if exit_code.is_some() { REPLACED } else { KILLED };
    let notes = if is_truncated { vec![cut.to_owned()] } else { Vec::new() };
    let wall = session.elapsed();
    let mut ending = Ending { exit_code, signal, wall, is_truncated, lost_events: 0, notes };
    add_losses(&mut ending, &session.statistics());
    ending
}

/// Adds what reading a process's records met.
pub fn add_losses(ending: &mut Ending, statistics: &ReaderStatistics) {
    let losses = [
        (statistics.damaged_definitions, "definitions of code could not be read"),
        (statistics.threads_without_slot, "threads were not recorded: too many at a time"),
        (statistics.blocks_without_id, "blocks of code were not recorded: too many"),
        (statistics.references_unrecorded, "memory operands in the code could not be recorded"),
        (
            statistics.filters_withheld,
            "filters of system calls (seccomp) were withheld from the program, which they would have ended under the engine: \
             what they forbid was allowed",
        ),
        (
            statistics.children_unrecorded,
            "forked processes ran by themselves, and nothing of them was recorded: --follow children records them",
        ),
        (statistics.order_breaks, "times the order between threads was not certain"),
    ];
    for (count, what) in losses {
        if count > 0 {
            ending.notes.push(format!("{count} {what}."));
        }
    }
    ending.lost_events +=
        statistics.damaged_definitions + statistics.threads_without_slot + statistics.blocks_without_id;
}

pub(crate) fn show(profile: &Profile, output: &Output, view: Option<&ViewArgs>) {
    if let Some(view) = view {
        streams::write_to_stderr(&format!("\n{}\n", table(profile, &view.view(Stream::Stderr))));
    }
    let (place, word) = (output.path().display(), shell::path(output.path()));
    say(&format!("the profile is in {place}; look closer with: memlens report {word}"));
}

/// Ends as the program did: dies of the same signal, or says which exit code to take.
pub(crate) fn end_as(outcome: ExitOutcome) -> u8 {
    match outcome {
        // The kernel keeps the low 8 bits.
        ExitOutcome::Code(code) => (code & 0xff) as u8,
        ExitOutcome::Signal(signal) => {
            system::die_of(signal);
            // Still here: process 1 of a container is not killed by its own signals. Shells put it so.
            (128 + (signal & 0x7f)) as u8
        }
    }
}

/// Says what may be behind it: a limit of this process, else whatever the doctor finds.
pub(crate) fn engine_failure(message: &str) -> Failure {
    let why = match system::low_limits() {
        limits if limits.is_empty() => "`memlens doctor` may say why".to_owned(),
        limits => limits.join("; "),
    };
    Failure::new(FailureKind::Engine, format!("{message}; {why}"))
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let kind = match &error {
            SessionError::Program(program) if program.exit_code() == 127 => FailureKind::NotFound,
            SessionError::Program(_) => FailureKind::NotExecutable,
            SessionError::Wait(_) => FailureKind::Io,
            SessionError::NoEngine => FailureKind::Unavailable,
            SessionError::NoProc(error) => {
                let message = format!(
                    "exact mode needs /proc, which cannot be read here ({}); mount it (mount -t proc proc /proc), or use --mode burst",
                    plain(error)
                );
                return Self::new(FailureKind::Engine, message);
            }
            SessionError::Segment(error) => {
                return engine_failure(&format!("cannot set up shared memory: {}", plain(error)));
            }
            SessionError::Spawn(program, error) => {
                let program = program.to_string_lossy();
                return engine_failure(&format!("cannot start {program}: {}", plain(error)));
            }
            _ => FailureKind::Engine,
        };
        Self::new(kind, error.to_string())
    }
}

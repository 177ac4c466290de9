//! `memlens apply --prefetch --pid`: prefetches put into a process that runs, tried there, and kept only where they gain.

use std::fmt::Write;
use std::time::{Duration, Instant};

use clap::Parser;
use memlens_apply::{
    Applied, Group, Left, Online, OnlineError, PrefetchChoice, Trying, choose_prefetches, program_of,
    withdraw_all,
};
use memlens_child::StopRequest;
use memlens_profile::Profile;
use memlens_sample::{AgentError, stack_walk};
use serde_json::{Value, json};

use crate::apply::{ApplyArgs, ApplyFormat};
use crate::apply_measured::percent;
use crate::apply_prefetch::{DISTANCES, IN_SOURCE, choice_document, loads_table, nothing_to_do};
use crate::cli::{Cli, Command};
use crate::failure::{Failure, FailureKind};
use crate::family::open_profile;
use crate::sample::kind_of_injection;
use crate::streams;

/// Detours that are put into a process, at most: those whose loads have the largest shares.
const MOST_GROUPS: usize = 16;
/// How long a process is recorded, and prefetches are tried, if the user does not say.
const RECORD: Duration = Duration::from_secs(5);
const DURATION: Duration = Duration::from_secs(10);

/// All that was found out.
struct Found {
    pid: u32,
    choice: PrefetchChoice,
    applied: Vec<Applied>,
    trying: Trying,
    left: Left,
    is_interrupted: bool,
}

/// Puts prefetches into a running process, or takes them out of it.
pub fn apply(args: &ApplyArgs, pid: u32) -> Result<u8, Failure> {
    if args.withdraw {
        return withdraw(args, pid);
    }
    memlens_apply::check_attachable(pid).map_err(|error| Failure::from(OnlineError::from(error)))?;
    let program = program_of(pid)?;
    let profile = match &args.profile {
        Some(path) => open_profile(path)?,
        None => {
            let (profile, is_interrupted) = record(pid, args.record.unwrap_or(RECORD))?;
            if is_interrupted {
                return Err(Failure::new(
                    FailureKind::Unavailable,
                    "interrupted: nothing was put into the process",
                ));
            }
            profile
        }
    };
    let mut choice = choose_prefetches(&profile, &program);
    choice.groups.truncate(MOST_GROUPS);
    if choice.groups.is_empty() {
        return Err(Failure::new(FailureKind::Unavailable, nothing_to_do(&choice)));
    }
    let found = measure(args, pid, choice)?;
    match args.format {
        ApplyFormat::Table => streams::write_result(|out| out.write_all(table(&found).as_bytes()))?,
        ApplyFormat::Json => streams::write_json(&document(&found))?,
    }
    Ok(0)
}

/// Records bursts of the process. Whether that was interrupted.
fn record(pid: u32, time: Duration) -> Result<(Profile, bool), Failure> {
    let folder = tempfile::tempdir().map_err(|error| {
        Failure::new(FailureKind::Io, format!("cannot make a folder for a profile of the process: {error}"))
    })?;
    let out = folder.path().join("process.memlens");
    let (pid, seconds) = (pid.to_string(), time.as_secs_f64().to_string());
    let words = ["memlens", "record", "--quiet", "--mode", "burst", "--pid", &pid, "--duration", &seconds];
    let words = words.iter().map(std::ffi::OsString::from).chain(["--out".into(), out.clone().into()]);
    let begun = Instant::now();
    match Cli::try_parse_from(words).map(|cli| cli.command) {
        Ok(Command::Record(record)) => crate::sample::run(&record, None, None)?,
        _ => return Err(Failure::new(FailureKind::Internal, "its own words for a recording are wrong")),
    };
    // Nothing else ends a recording of a process that lives.
    let is_interrupted =
        begun.elapsed() < time && memlens_apply::check_attachable(pid.parse().unwrap_or(0)).is_ok();
    Ok((open_profile(&out)?, is_interrupted))
}

fn measure(args: &ApplyArgs, pid: u32, choice: PrefetchChoice) -> Result<Found, Failure> {
    let distances = if args.distance.is_empty() { &DISTANCES[..] } else { &args.distance };
    let stop = StopRequest::listen();
    let online = Online::insert(pid, &choice.groups, distances, &mut *stack_walk(pid))?;
    let applied = online.applied().to_vec();
    let trying = online.measure(args.duration.unwrap_or(DURATION), || stop.has_come());
    let is_interrupted = stop.has_come();
    let left = match trying.is_gain() && !trying.has_ended && !is_interrupted {
        true => online.keep(&trying)?,
        false => online.withdraw()?,
    };
    Ok(Found { pid, choice, applied, trying, left, is_interrupted })
}

/// Takes out what an earlier call has left.
fn withdraw(args: &ApplyArgs, pid: u32) -> Result<u8, Failure> {
    let count = withdraw_all(pid)?;
    match args.format {
        ApplyFormat::Table => {
            let text = match count {
                0 => format!("Process {pid} has no prefetches of memlens."),
                1 => format!("Taken out of process {pid}: 1 detour."),
                _ => format!("Taken out of process {pid}: {count} detours."),
            };
            streams::write_result(|out| writeln!(out, "{text}"))?;
        }
        ApplyFormat::Json => streams::write_json(&json!({
            "schema": "memlens-apply-prefetch-withdrawn/1", "pid": pid, "detours": count,
        }))?,
    }
    Ok(0)
}

impl From<OnlineError> for Failure {
    fn from(error: OnlineError) -> Self {
        let kind = match &error {
            OnlineError::Agent(AgentError::Inject(error))
            | OnlineError::Inject(error)
            | OnlineError::Left(_, error) => kind_of_injection(error),
            OnlineError::Processor => FailureKind::Unavailable,
            OnlineError::Look(_, why) => match why.raw_os_error() {
                // ENOENT, ESRCH
                Some(2 | 3) => FailureKind::NoInput,
                _ if why.kind() == std::io::ErrorKind::PermissionDenied => FailureKind::Permission,
                _ => FailureKind::Io,
            },
            _ => FailureKind::Engine,
        };
        Self::new(kind, format!("failed to {error}"))
    }
}

impl Found {
    fn is_kept(&self) -> bool {
        self.trying.is_gain() && !self.trying.has_ended && !self.is_interrupted && self.left.missing == 0
    }

    fn group(&self, at: usize) -> &Group {
        &self.choice.groups[at]
    }

    fn state(&self, at: usize) -> String {
        let distance = self.trying.distance.min(self.group(at).detour.max_distance);
        match self.applied[at].reason() {
            Some(reason) => format!("not in place: {reason}"),
            None if self.trying.left_out.contains(&at) => {
                "withdrawn: the process is faster without it".to_owned()
            }
            None if self.trying.executions[at] == 0 => "withdrawn: its loop did not run meanwhile".to_owned(),
            None if self.is_kept() => format!("{distance} iterations ahead"),
            None => "withdrawn: no gain that is sure".to_owned(),
        }
    }
}

fn table(found: &Found) -> String {
    let mut text = loads_table(&found.choice, |at| found.state(at));
    let trying = &found.trying;
    if !trying.tried.is_empty() {
        let list: Vec<String> = trying
            .tried
            .iter()
            .map(|(distance, ratio)| format!("{distance} ahead {:+.1} %", (ratio - 1.0) * 100.0))
            .collect();
        let _ = writeln!(text, "processor time when tried: {}\n", list.join(", "));
    }
    for line in sentences(found) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// What counting took of the time from which on the difference tells more of it than of prefetches.
const MUCH_OWN_COST: f64 = 0.2;

/// What it comes to.
fn sentences(found: &Found) -> Vec<String> {
    let (pid, trying) = (found.pid, &found.trying);
    let change = trying.change.as_ref().map_or_else(String::new, percent);
    let mut lines = vec![match trying.change {
        _ if trying.has_ended => format!("Process {pid} ended meanwhile."),
        _ if found.is_interrupted => "Interrupted: the prefetches are withdrawn.".to_owned(),
        _ if nothing_in(found) => "No prefetch got into the process.".to_owned(),
        _ if found.left.missing > 0 => {
            format!("The code of process {pid} is another one than before: nothing of it was kept.")
        }
        Some(estimate) if found.is_kept() => format!(
            "With prefetches process {pid} takes {:.1} % less processor time for the same work ({:.2} times the speed).",
            -estimate.change * 100.0,
            1.0 / (1.0 + estimate.change)
        ),
        Some(_) if trying.own_cost >= MUCH_OWN_COST => format!(
            "These loops do so little in an iteration that counting it took up to {:.0} % of the time. That is taken from the time without \
             prefetches, and no gain is left that could be told: they are withdrawn. Without --pid, memlens apply --prefetch compares whole runs.",
            trying.own_cost * 100.0
        ),
        Some(estimate) if estimate.coverage >= 0.95 && estimate.low > 0.0 => {
            format!("The process takes longer with them ({change}): the prefetches are withdrawn. {IN_SOURCE}")
        }
        Some(estimate) if estimate.coverage >= 0.95 => {
            format!("No gain that could be told from chance ({change}): the prefetches are withdrawn. {IN_SOURCE}")
        }
        _ if trying.own_cost >= 1.0 => "These loops do so little in an iteration that counting it costs more: no gain can be told from that, and \
              the prefetches are withdrawn."
            .to_owned(),
        _ if trying.executions.iter().all(|&count| count == 0) => {
            "These loops did not run meanwhile: the prefetches are withdrawn.".to_owned()
        }
        _ => "The loops ran too little to tell a gain from chance: the prefetches are withdrawn. --duration SECONDS \
              waits longer."
            .to_owned(),
    }];
    if found.is_kept() {
        lines.push(format!(
            "{change}, from {} rounds. Counting took up to {:.1} % of the time meanwhile, which is taken from that without \
             prefetches: the gain is rather larger.",
            trying.rounds,
            trying.own_cost * 100.0
        ));
        lines.push(format!(
            "They stay in process {pid} until it ends, or: memlens apply --prefetch --pid {pid} --withdraw"
        ));
    }
    if !nothing_in(found) {
        let stops = &found.left.stops;
        lines.push(format!(
            "All of its threads were stopped {} times for that, for {:.1} ms at most.",
            stops.count,
            stops.longest.as_secs_f64() * 1e3
        ));
    }
    lines
}

fn nothing_in(found: &Found) -> bool {
    found.applied.iter().all(|&applied| applied != Applied::Yes)
}

fn document(found: &Found) -> Value {
    let trying = &found.trying;
    let (mut groups, refused) =
        choice_document(&found.choice, &found.applied, |at| trying.kept.contains(&at), |at| found.state(at));
    for (group, &executions) in groups.iter_mut().zip(&trying.executions) {
        group["executions"] = executions.into();
    }
    let tried = trying.tried.iter().map(|(distance, ratio)| json!({"distance": distance, "ratio": ratio}));
    let change = trying.change.map(|change| {
        json!({"estimate": change.change, "low": change.low, "high": change.high, "coverage": change.coverage})
    });
    json!({
        "schema": "memlens-apply-prefetch-online/1",
        "pid": found.pid,
        "groups": groups,
        "refused": refused,
        "tried": tried.collect::<Vec<_>>(),
        "distance": trying.distance,
        "cpu_change": change,
        "rounds": trying.rounds,
        "own_cost": trying.own_cost,
        "cpu_seconds": trying.cpu_seconds,
        "stops": found.left.stops.count,
        "longest_stop_seconds": found.left.stops.longest.as_secs_f64(),
        "is_gain": trying.is_gain(),
        "is_kept": found.is_kept(),
        "has_ended": trying.has_ended,
        "verdict": sentences(found),
    })
}

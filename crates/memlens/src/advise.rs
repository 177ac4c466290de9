//! `memlens advise`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use memlens_analysis::{Advice, Finding, Remedy, advice as advice_for};
use memlens_apply::RefusedLoad;
use memlens_exact::{Program, SessionError};
use memlens_profile::{CodeIx, Prediction, Profile};
use memlens_report::{advice_json, advice_text, comes_by_steps, prediction_table};
use serde_json::json;

use crate::failure::{Failure, FailureKind};
use crate::family::open_profile;
use crate::machine_args::MachineArgs;
use crate::processor::IS_X86_64;
use crate::resimulate::{self, resimulate};
use crate::shell;
use crate::streams;

/// Findings shown if the user does not say how many.
const SHOWN: u64 = 5;

/// Arguments of `memlens advise`.
#[derive(Args, Debug)]
#[command(
    override_usage = "memlens advise [OPTIONS] PROFILE [-- PROGRAM [ARGUMENTS]...]",
    before_help = "\
Examples:
  memlens advise app.memlens                   what to do about which data, the largest possible gain first
  memlens advise app.memlens --top 20          more of it
  memlens advise app.memlens -- ./app 18       and what page walks would be left, by running the program once more
  memlens advise app.memlens --format json     for programs"
)]
pub struct AdviseArgs {
    /// A profile that counts misses: of exact or burst mode, or of a bus trace
    #[arg(value_name = "PROFILE")]
    pub profile: PathBuf,

    /// Text for people, or everything for programs
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,

    /// How many findings at most
    #[arg(long, value_name = "N", default_value_t = SHOWN, value_parser = clap::value_parser!(u64).range(1..))]
    pub top: u64,

    #[command(flatten)]
    pub machine: MachineArgs,

    /// Run this program in exact mode and model its page walks with the objects to blame in huge pages: on the machine
    /// of the profile, if --machine names no other. Its output goes nowhere; the prediction is kept with the profile
    #[arg(value_name = "PROGRAM", last = true)]
    pub command: Vec<OsString>,
}

/// How advice is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs: everything.
    Json,
}

/// Says what to do about the data of a profile.
pub fn advise(args: &AdviseArgs) -> Result<u8, Failure> {
    let profile = open_profile(&args.profile)?;
    if profile.run.sampling.is_some() {
        let place = if IS_X86_64 { "" } else { ", on an x86-64 processor" };
        let message = format!(
            "samples of time count no misses, so there is nothing to advise from {}; record the program in burst mode (memlens run -- PROGRAM, or memlens record --pid PID --mode burst), or in exact mode{place}",
            args.profile.display()
        );
        return Err(Failure::new(FailureKind::Usage, message));
    }
    let found = advice_for(&profile);
    let prediction = prediction(&profile, args)?;
    match args.format {
        Format::Json => {
            let mut document = advice_json(&profile, &found);
            document["resimulation"] = json!(prediction);
            streams::write_json(&document)?;
        }
        Format::Text => {
            let top = usize::try_from(args.top).unwrap_or(usize::MAX);
            let means = Means::new(&profile, &found, &args.profile);
            let mut text = advice_text(&profile, &found, top, &|finding| means.of(finding));
            if let Some(prediction) = prediction {
                text = text + "\n" + &prediction_table(&prediction);
            }
            streams::write_result(|out| out.write_all(text.as_bytes()))?;
        }
    }
    Ok(0)
}

/// Whether `memlens apply --prefetch` might do what a finding says.
fn is_for_apply(profile: &Profile, finding: &Finding) -> bool {
    matches!(finding.remedy, Remedy::Prefetch { .. }) && comes_by_steps(profile, finding)
}

/// Loads that `memlens apply --prefetch` would do nothing for, in the program's files as they are now; none where no finding is for it. Cost: reads
/// the debug information of the files with such loads.
fn refused_prefetches(profile: &Profile, advice: &Advice) -> Vec<RefusedLoad> {
    let Some(program) = profile.run.command.first() else { return Vec::new() };
    if !advice.findings.iter().any(|finding| is_for_apply(profile, finding)) {
        return Vec::new();
    }
    let words: Vec<OsString> = profile.run.command.iter().map(Into::into).collect();
    let file = Program::find(&words).map_or_else(|_| program.into(), |program| program.file);
    memlens_apply::choose_prefetches(profile, &file).refused
}

/// Why `memlens apply` would prefetch none of a finding's loads; None: it would, or it is not known.
fn refusal<'r>(profile: &Profile, finding: &Finding, refused: &'r [RefusedLoad]) -> Option<&'r str> {
    // An instruction with two operands has two rows.
    let place = |code: CodeIx| profile.code.get(code.index()).map(|code| (code.module, code.offset));
    let reason = |&code: &CodeIx| refused.iter().find(|load| place(load.code) == place(code));
    let all: Option<Vec<&RefusedLoad>> = finding.code.iter().map(reason).collect();
    let first = all.filter(|_| is_for_apply(profile, finding))?.first().copied()?;
    Some(&first.reason)
}

/// What huge pages would do to the program that is named, if one is.
fn prediction(profile: &Profile, args: &AdviseArgs) -> Result<Option<Prediction>, Failure> {
    if args.command.is_empty() {
        return match args.machine.is_given() {
            true => {
                let message =
                    "--machine and --cache are for a program that is modelled once more: -- PROGRAM";
                Err(Failure::new(FailureKind::Usage, message))
            }
            false => Ok(None),
        };
    }
    let program = Program::find(&args.command).map_err(|error| Failure::from(SessionError::from(error)))?;
    let choice = memlens_apply::choose(profile, &[], &program.file);
    let machine = args.machine.or_of(&profile.machine.name)?;
    let prediction = resimulate(&choice, &machine, &args.command)?;
    resimulate::keep(&args.profile, &prediction);
    Ok(Some(prediction))
}

/// What memlens itself can do about findings.
pub struct Means<'a> {
    profile: &'a Profile,
    path: &'a Path,
    /// Loads that it would not prefetch.
    refused: Vec<RefusedLoad>,
}

impl<'a> Means<'a> {
    /// About those of a profile that lies at `path`. Cost: that of [`refused_prefetches`].
    pub fn new(profile: &'a Profile, advice: &Advice, path: &'a Path) -> Self {
        Self { profile, path, refused: refused_prefetches(profile, advice) }
    }

    /// The command, or why there is none; None: there is nothing that it could do.
    pub fn of(&self, finding: &Finding) -> Option<String> {
        match refusal(self.profile, finding, &self.refused) {
            Some(reason) => Some(format!("memlens apply cannot do it: {reason}")),
            None => command(self.profile, finding, self.path),
        }
    }
}

/// What memlens itself can do about it.
fn command(profile: &Profile, finding: &Finding, path: &Path) -> Option<String> {
    let option = match finding.remedy {
        Remedy::HugePages { .. } => "",
        Remedy::Prefetch { .. } if is_for_apply(profile, finding) => "--prefetch ",
        _ => return None,
    };
    let run = &profile.run;
    // Its end was not seen: it was recorded while it ran, and may run still.
    if let (Remedy::Prefetch { .. }, Some(pid), None, None) =
        (&finding.remedy, run.pid, run.exit_code, run.signal)
    {
        return Some(format!("memlens apply {option}--pid {pid} {}", shell::path(path)));
    }
    let is_title = run.command.first().is_some_and(|word| is_title(word));
    let command = if is_title { "PROGRAM".to_owned() } else { shell::command(&run.command) };
    Some(format!("memlens apply {option}{} -- {command}", shell::path(path)))
}

/// Whether what a process is called is a title that it gave itself, and not what it was started as: `redis-server *:6379`.
fn is_title(first_word: &str) -> bool {
    first_word.contains(' ') && !Path::new(first_word).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_no_program() {
        assert!(is_title("redis-server *:6379") && is_title("postgres: checkpointer"));
        assert!(!is_title("./server") && !is_title("python3"));
    }
}

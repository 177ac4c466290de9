//! `memlens check`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, ValueEnum};
use memlens_profile::Profile;
use memlens_report::{Check, CheckError, Condition, check_json, check_junit, check_text};

use crate::failure::{Failure, FailureKind};
use crate::family::open_profile;
use crate::streams::{self, Stream};
use crate::view_args::column_list;

/// What `memlens check` ends with when a condition is met.
pub const FAILS: u8 = 1;

/// How conditions are written.
const CONDITIONS: &str = "\
Conditions: [OBJECT:]COLUMN > LIMIT
  OBJECT  a name, or the only part of one that fits: all objects of that name together; with * or ? each
          name that fits, by itself (\\* is the sign); not given: the whole program. Growth and ratios of
          each object are looked at from 1 % of the whole
  >       or >=, <, <=
  LIMIT   1000, 1.5M, 64KiB; 30% of shares and ratios; against --baseline: +5% (times 1.05), -5%, +100k,
          and of shares and ratios +5pp (5 of a hundred more)
Shares of samples and bursts fail only beyond their 95 % intervals; counts of samples and bursts are refused.
";

/// Arguments of `memlens check`.
#[derive(Args, Debug)]
#[command(
    group = ArgGroup::new("some").args(["fail_if", "conditions"]).required(true).multiple(true),
    after_help = "Returns 0 if the profile meets none of the conditions, 1 if it meets one.",
    after_long_help = after_long_help(),
    before_help = "\
Examples:
  memlens check new.memlens --fail-if 'llc_misses > 10M'
  memlens check new.memlens --baseline old.memlens --fail-if 'graph->column:llc_misses > +5%'
  memlens check new.memlens --baseline old.memlens --fail-if '*:stall_share > +10pp' --format junit"
)]
pub struct CheckArgs {
    /// The profile to check
    #[arg(value_name = "PROFILE")]
    pub profile: PathBuf,

    /// A condition that the profile must not meet, as ‘table:llc_misses > +5%’ (`--help` says how they are written); may be given
    /// several times
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<Condition>,

    /// A file of conditions, one a line; lines that begin with `#` are comments
    #[arg(long, value_name = "FILE")]
    pub conditions: Option<PathBuf>,

    /// The profile that limits like +5% are against: the same program before, recorded alike
    #[arg(long, value_name = "PROFILE")]
    pub baseline: Option<PathBuf>,

    /// Lines for people, or everything for programs (json), or a report of tests for build servers (junit)
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: CheckFormat,
}

/// How a check is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckFormat {
    /// Lines for people.
    Text,
    /// Everything for programs.
    Json,
    /// JUnit's XML, for build servers.
    Junit,
}

fn after_long_help() -> String {
    format!(
        "{CONDITIONS}\n{}\nReturns 0 if the profile meets none of the conditions, {FAILS} if it meets one.",
        column_list("conditions (those with a number)")
    )
}

/// Holds a profile against conditions; [`FAILS`] if it meets one.
pub fn check(args: &CheckArgs) -> Result<u8, Failure> {
    let mut conditions = args.fail_if.clone();
    if let Some(path) = &args.conditions {
        conditions.extend(read_conditions(path)?);
    }
    let profile = open_profile(&args.profile)?;
    let baseline = args.baseline.as_deref().map(open_profile).transpose()?;
    let found = memlens_report::check(&profile, baseline.as_ref(), &conditions).map_err(|error| {
        let kind = match error {
            CheckError::Truncated(_) => FailureKind::BadData,
            _ => FailureKind::Usage,
        };
        let against = args.baseline.as_ref().map_or(String::new(), |it| format!(" against {}", it.display()));
        Failure::new(kind, format!("cannot check {}{against}: {error}", args.profile.display()))
    })?;
    let arguments = |profile: &Profile| profile.run.command.get(1..).map(<[String]>::to_vec);
    if baseline.as_ref().is_some_and(|baseline| arguments(baseline) != arguments(&profile)) {
        streams::say("the baseline's program had other arguments");
    }
    for (profile, path) in
        [(Some(&profile), Some(&args.profile)), (baseline.as_ref(), args.baseline.as_ref())]
    {
        if let (Some(profile), Some(path)) = (profile, path) {
            warn(profile, path);
        }
    }
    show(args.format, &profile, baseline.as_ref(), &found)?;
    Ok(if found.passes() { 0 } else { FAILS })
}

/// What a reader of the result has to know of a profile.
fn warn(profile: &Profile, path: &Path) {
    if let Some(signal) = profile.run.signal {
        streams::say(&format!("{}: the program was ended by signal {signal}", path.display()));
    }
    let lost = profile.attribution.lost_events;
    if lost > 0 {
        streams::say(&format!("{}: {lost} events were lost; counts are too small", path.display()));
    }
}

fn show(
    format: CheckFormat,
    profile: &Profile,
    baseline: Option<&Profile>,
    found: &Check,
) -> Result<(), Failure> {
    let text = match format {
        CheckFormat::Json => return streams::write_json(&check_json(profile, baseline, found)),
        CheckFormat::Text => check_text(found, Stream::Stdout.columns(), Stream::Stdout.wants_colour()),
        CheckFormat::Junit => {
            check_junit(profile, found).map_err(|error| Failure::new(FailureKind::Internal, error))?
        }
    };
    streams::write_result(|out| out.write_all(text.as_bytes()))
}

fn read_conditions(path: &Path) -> Result<Vec<Condition>, Failure> {
    let place = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => Failure::new(FailureKind::BadData, format!("{place} is no text")),
        _ => Failure::of_io("read", &place, &error),
    })?;
    let conditions = parse_conditions(&text);
    let conditions = conditions.map_err(|(line, error)| {
        Failure::new(FailureKind::BadData, format!("{place}, line {line}: {error}"))
    })?;
    match conditions.is_empty() {
        true => Err(Failure::new(FailureKind::BadData, format!("{place} has no condition in it"))),
        false => Ok(conditions),
    }
}

/// The conditions of a file; else the number of the first wrong line, and what is wrong.
fn parse_conditions(text: &str) -> Result<Vec<Condition>, (usize, String)> {
    let mut conditions = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            conditions.push(line.parse().map_err(|error| (number, format!("{error}")))?);
        }
    }
    Ok(conditions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_condition_a_line() {
        // Names have `#` in them, too.
        let parsed = parse_conditions("# budgets\n\nllc_misses > 10M\r\n rows #1:share > 30% \n");
        let texts: Vec<String> = parsed.expect("they are right").iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["llc_misses > 10M", "rows #1:share > 30%"]);
        assert_eq!(parse_conditions("llc_misses > 1\nllc_misses").map_err(|(line, _)| line), Err(2));
        assert_eq!(parse_conditions("\n"), Ok(Vec::new()));
    }
}

//! The runs of a series: a program captured with one value after the other in its arguments.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use tempfile::TempDir;

use crate::bus::CaptureArgs;
use crate::bus_capture::capture;
use crate::bus_series::SeriesArgs;
use crate::failure::{Failure, FailureKind};
use crate::streams::say;
use crate::system::SilentStdout;

/// What stands for the value.
const PLACE: &[u8] = b"{}";

/// The words that the runs differ by; none if traces are given.
///
/// # Errors
/// When a program is to run and there is nothing that differs, or no place for it.
pub fn values(args: &SeriesArgs) -> Result<Vec<String>, Failure> {
    if args.command.is_empty() {
        return Ok(Vec::new());
    }
    let usage = |message: &str| Err(Failure::new(FailureKind::Usage, message));
    let values = match args.values.is_empty() {
        true => args.threads.iter().map(u32::to_string).collect(),
        false => args.values.clone(),
    };
    if values.is_empty() {
        return usage("--values or --threads must say by what the runs differ");
    }
    if !args.command.iter().any(|word| with_value(word, "") != *word) {
        return usage("the program's arguments have no {} for the values");
    }
    let option = if args.values.is_empty() { "--threads" } else { "--values" };
    if let Some((_, value)) = values.iter().enumerate().find(|(at, value)| values[..*at].contains(value)) {
        return usage(&format!("{option} names {value} twice: its two runs would be the same"));
    }
    // Each is the name of a trace, too.
    if let Some(value) = values.iter().find(|value| value.contains('/')) {
        return usage(&format!("the value {value} has a slash in it"));
    }
    Ok(values)
}

/// A word of the command with the value in place of each `{}`.
fn with_value(word: &OsStr, value: &str) -> OsString {
    let (mut rest, mut out) = (word.as_bytes(), Vec::new());
    while let Some(at) = rest.windows(PLACE.len()).position(|bytes| bytes == PLACE) {
        out.extend(&rest[..at]);
        out.extend(value.as_bytes());
        rest = &rest[at + PLACE.len()..];
    }
    out.extend(rest);
    OsString::from_vec(out)
}

/// Traces of a program's runs.
#[derive(Debug, Default)]
pub struct Runs {
    /// One a value, in their order.
    pub traces: Vec<PathBuf>,
    /// Where they are if nobody wants to keep them; removed when this is dropped.
    scratch: Option<TempDir>,
}

impl Runs {
    /// Captures the program once for each value. Each run must end with exit code 0: what failed is no run to compare.
    pub fn capture(args: &SeriesArgs, values: &[String]) -> Result<Self, Failure> {
        let mut runs = Self::default();
        if values.is_empty() {
            return Ok(runs);
        }
        let folder = match &args.out {
            Some(folder) => folder.clone(),
            None => {
                let scratch = tempfile::Builder::new().prefix("memlens-series.").tempdir();
                let scratch = scratch.map_err(|error| {
                    Failure::of_io("make a folder in", &std::env::temp_dir().display().to_string(), &error)
                })?;
                runs.scratch.insert(scratch).path().to_owned()
            }
        };
        fs::create_dir_all(&folder)
            .map_err(|error| Failure::of_io("make the folder", &folder.display().to_string(), &error))?;
        for value in values {
            let command: Vec<OsString> = args.command.iter().map(|word| with_value(word, value)).collect();
            let out = folder.join(format!("{value}.bus"));
            say(&format!("captures the run with {value}"));
            let silence = SilentStdout::begin().map_err(|error| {
                Failure::new(FailureKind::Io, format!("cannot keep the program's output apart: {error}"))
            })?;
            let options = args.options.clone();
            let exit_code =
                capture(CaptureArgs { out: out.clone(), force: args.force, quiet: true, options, command })?;
            drop(silence);
            if exit_code != 0 {
                let message = format!("the run with {value} ended with exit code {exit_code}");
                return Err(Failure::new(FailureKind::Unavailable, message));
            }
            runs.traces.push(out);
        }
        Ok(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_take_the_place_of_braces() {
        let with = |word: &str| with_value(word.as_ref(), "16").into_string().expect("text");
        assert_eq!(["{}", "-n{}", "a{}b{}", "{", "{ }"].map(with), ["16", "-n16", "a16b16", "{", "{ }"]);
    }
}

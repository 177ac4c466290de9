//! What `--mode auto` chooses, and why.
//!
//! | asked for, or found | mode |
//! |---|---|
//! | an option that only one mode has | that one |
//! | a processor without burst and exact mode: not x86-64 | sample |
//! | a program that the agent can be preloaded into | burst |
//! | any other: static, another C library, setuid, Go without cgo | exact |
//!
//! How long the program will run is not known beforehand. A profile of a program too short for bursts says so, and
//! which mode to take.

use memlens_exact::Program;
use memlens_sample::why_not_preloadable;

use crate::processor::IS_X86_64;
use crate::run::{Mode, RecordArgs};

/// A mode, and what the user is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Never [`Mode::Auto`].
    pub mode: Mode,
    /// One sentence; None where nothing was chosen.
    pub reason: Option<String>,
}

/// The mode that the arguments ask for. Reads the head of the program's file.
pub fn choose(args: &RecordArgs) -> Choice {
    if args.mode != Mode::Auto {
        return Choice { mode: args.mode, reason: None };
    }
    if args.sample.pid.is_some() {
        return Choice { mode: Mode::Sample, reason: None };
    }
    let because = |mode, reason: String| Choice { mode, reason: Some(reason) };
    if let Some(option) = args.first_of_exact() {
        return because(Mode::Exact, format!("exact mode, because {option} needs to see every access"));
    }
    if let Some(option) = args.sample.first_of_samples() {
        return because(Mode::Sample, format!("sample mode, because {option} is of samples"));
    }
    if !IS_X86_64 {
        let reason = "sample mode: burst and exact mode, which count accesses, need an x86-64 processor";
        return because(Mode::Sample, reason.into());
    }
    // Whoever runs it says what is wrong with a program that is not there, and takes these options.
    let Ok(found) = Program::find(&args.command) else {
        let mode = if args.sample.first_given().is_some() { Mode::Burst } else { Mode::Exact };
        return Choice { mode, reason: None };
    };
    match why_not_preloadable(&found.file) {
        None => because(
            Mode::Burst,
            "burst mode: counts are estimates, at nearly native speed; --mode exact sees every access".into(),
        ),
        Some(why) => because(
            Mode::Exact,
            format!(
                "exact mode: it sees every access, and takes its time for that; burst mode would be faster, but {why}; \
                 --mode sample costs about 1 %"
            ),
        ),
    }
}

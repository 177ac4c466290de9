//! What `--mode auto` chooses, and why.
//!
//! | asked for, or found | mode |
//! |---|---|
//! | an option that only one mode has | that one |
//! | a processor with vectors of any length (SVE of AArch64) | sample |
//! | a program that the agent can be preloaded into | burst |
//! | any other: static, another C library, setuid, Go without cgo | exact; on AArch64 sample |
//!
//! How long the program will run is not known beforehand. A profile of a program too short for bursts says so, and
//! which mode to take.

use memlens_exact::Program;
use memlens_sample::why_not_preloadable;

use crate::processor::{IS_X86_64, has_scalable_vectors};
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
    if has_scalable_vectors() {
        let reason = "sample mode: the processor has SVE, before whose instructions bursts end; --mode burst counts accesses of other code";
        return because(Mode::Sample, reason.into());
    }
    // Whoever runs it says what is wrong with a program that is not there, and takes these options.
    let Ok(found) = Program::find(&args.command) else {
        let mode = if args.sample.first_given().is_some() || !IS_X86_64 { Mode::Burst } else { Mode::Exact };
        return Choice { mode, reason: None };
    };
    match why_not_preloadable(&found.file) {
        None => {
            let exact = if IS_X86_64 { "; --mode exact sees every access" } else { "" };
            because(Mode::Burst, format!("burst mode: counts are estimates, at nearly native speed{exact}"))
        }
        Some(why) if !IS_X86_64 => because(
            Mode::Sample,
            format!("sample mode: shares of time with intervals; burst mode would count accesses, but {why}"),
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

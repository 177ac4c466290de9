//! `memlens doctor`: what this machine, kernel, container and program allow, why not, and the command
//! that lifts a limit.

mod finding;
mod machine;
mod program;
mod trial;

use std::ffi::OsString;

use clap::Args;

use crate::failure::{Failure, FailureKind};
use crate::streams::{self, Stream};
use finding::{Finding, Mark};

/// Arguments of `memlens doctor`.
#[derive(Args, Debug)]
#[command(
    before_help = "\
Examples:
  memlens doctor             this machine
  memlens doctor ls          and whether `ls` can be recorded, and its data named
  memlens doctor libz.so.1   and whether a library's data will have names",
    after_help = "\
Each line says ✓ (as it should be), ! (works, with a limit) or ✗ (does not work), and → a command that \
helps.\nThe exit code is 0 if programs can be recorded, and PROGRAM if one is given; else that of the \
failure."
)]
pub struct DoctorArgs {
    /// A program, or a library's file, to look at as well: can it be recorded, will its data have names?
    pub program: Option<OsString>,
    /// Its arguments, which make no difference
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub args: Vec<OsString>,
}

/// Looks and reports.
pub fn doctor(args: &DoctorArgs) -> Result<u8, Failure> {
    let colour = Stream::Stdout.wants_colour();
    let mut text = String::new();
    let mut section = |title: &str, findings: &[Finding]| {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &format!("{title}\n");
        for finding in findings {
            text += &finding.render(colour);
        }
    };
    section("Machine", &machine::findings());
    let modes = trial::findings();
    section("Modes", &modes);
    let mut exit_code = 0;
    if modes.iter().any(|finding| finding.mark == Mark::Bad) {
        exit_code = FailureKind::Engine.exit_code();
    }
    if let Some(program) = &args.program {
        let (findings, code) = program::findings(program);
        section("Program", &findings);
        if exit_code == 0 {
            exit_code = code;
        }
    }
    streams::write_result(|out| out.write_all(text.as_bytes()))?;
    Ok(exit_code)
}

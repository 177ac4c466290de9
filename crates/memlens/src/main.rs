//! The command line: parses arguments, checks them, and lets the other crates work.
//!
//! This crate knows words, exit codes and where output goes. It deliberately does not know how
//! anything is done: how programs are recorded (`memlens-exact`), how accesses become a profile
//! (`memlens-pipeline`), how a profile is stored or shown.
//!
//! ```text
//! cli.rs           all words, and the table of exit codes      failure.rs    what ends memlens early
//! run.rs           run, record     output.rs, recorder.rs         report.rs     report
//! family.rs        programs followed                               backing_looks.rs how the kernel backs objects
//! sample.rs        run and record in sample and burst mode         mode_choice.rs   --mode auto
//! import.rs        import lackey                               export.rs     export callgrind …
//! compare.rs, diff.rs   compare, diff       check.rs   check        advise.rs     advise
//! apply.rs         apply: apply_pages.rs, apply_prefetch.rs
//! captured_process.rs   programs as a model of memory sees them: bus_capture.rs, resimulate.rs (what huge pages would do)
//! bus.rs           bus …: bus_capture.rs, bus_analyze.rs, bus_series.rs, bus_series_svg.rs, bus_table.rs, bus_tools.rs (verify, check, dump, damage)
//! doctor/          what this machine allows                    completions.rs, man.rs
//! view.rs          view                                        query.rs      query
//! machine_args.rs  --machine, --cache     view_args.rs  --by, --sort, --top     words.rs
//! streams.rs       stderr and stdout      shell.rs      commands to type        system.rs, large_blocks.rs, internal_error.rs
//! ```
//!
//! Results go to stdout, everything else to stderr; a closed pipe is no error. Each command's
//! arguments are parsed into a struct, then checked, and only then does anything happen.
#![deny(unsafe_code)]

mod advise;
mod apply;
mod apply_measured;
mod apply_online;
mod apply_pages;
mod apply_prefetch;
mod backing_looks;
mod brief_calibration;
mod bus;
mod bus_analyze;
mod bus_capture;
mod bus_series;
mod bus_series_runs;
mod bus_series_svg;
mod bus_table;
mod bus_tools;
mod calibrate;
mod captured_process;
mod check;
mod cli;
mod compare;
mod completions;
mod diff;
mod doctor;
mod export;
mod failure;
mod family;
mod import;
mod internal_error;
mod large_blocks;
mod machine_args;
mod man;
mod merge;
mod mode_choice;
mod observe;
mod out_name;
mod output;
mod processor;
mod query;
mod recorder;
mod report;
mod resimulate;
mod result_file;
mod run;
mod run_progress;
mod sample;
mod shell;
mod streams;
mod system;
mod trace_args;
mod view;
mod view_args;
mod words;

use std::env;
use std::io;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use cli::{Cli, Command};
use failure::{Failure, FailureKind};
use large_blocks::LargeBlocksInHugePages;

#[global_allocator]
static ALLOCATOR: LargeBlocksInHugePages = LargeBlocksInHugePages;

fn main() -> ExitCode {
    start_log();
    system::outlive_failures();
    system::outlive_file_limits();
    internal_error::install_hook();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return answer_parser(&error),
    };
    let result = internal_error::catch(|| execute(cli.command));
    match result {
        Ok(Ok(code)) => ExitCode::from(code),
        Ok(Err(failure)) => {
            streams::say(&failure.to_string());
            ExitCode::from(failure.exit_code())
        }
        Err(message) => {
            streams::say(&message);
            ExitCode::from(FailureKind::Internal.exit_code())
        }
    }
}

/// Does what a command says; the number is the exit code.
fn execute(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Run(args) => run::run(args.record, Some(&args.view)),
        Command::Record(args) => run::run(args, None),
        Command::Report(args) => report::report(&args),
        Command::View(args) => view::view(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Diff(args) => diff::diff(&args),
        Command::Check(args) => check::check(&args),
        Command::Merge(args) => merge::merge(&args),
        Command::Import(args) => import::import(args),
        Command::Advise(args) => advise::advise(&args),
        Command::Apply(args) => apply::apply(&args),
        Command::Bus(args) => bus::bus(args),
        Command::Series(args) => bus_series::series(&args),
        Command::Query(args) => query::query(&args),
        Command::Export(args) => export::export(&args),
        Command::Calibrate(args) => calibrate::calibrate(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Completions(args) => completions::completions(&args),
        Command::Man(args) => man::man(&args),
    }
}

/// Help and version are results; everything else that the parser has to say is a usage error.
fn answer_parser(error: &clap::Error) -> ExitCode {
    let is_result = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    match error.print() {
        _ if !is_result => ExitCode::from(FailureKind::Usage.exit_code()),
        // A reader that has gone away needs no answer.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let failure = streams::cannot_write(&error);
            streams::say(&failure.to_string());
            ExitCode::from(failure.exit_code())
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Logging for those who look for a fault: `MEMLENS_LOG=debug`, or `memlens=debug,memlens_exact=trace`.
/// Quiet without the variable, and when it makes no sense.
fn start_log() {
    use tracing_subscriber::filter::Targets;
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;

    let Some(targets) = env::var("MEMLENS_LOG").ok().and_then(|text| text.parse::<Targets>().ok()) else {
        return;
    };
    let format = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    tracing_subscriber::registry().with(targets).with(format).init();
}

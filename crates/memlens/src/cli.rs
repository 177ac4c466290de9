//! All words of the command line. Help, man pages and completions come from here.

use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::FailureKind;
use crate::{
    advise, apply, bus, bus_series, calibrate, check, compare, completions, diff, doctor, export, import,
    man, merge, query, report, run, view,
};

/// Three commands that work, at the head of the help.
const EXAMPLES: &str = "\
Examples:
  memlens run -- ./server                  run a program, then show its data by cost
  memlens record --out ls.memlens -- ls    the same without the table
  memlens report ls.memlens --by line      look closer at what was recorded";

/// Says which data makes a program wait for memory
#[derive(Parser, Debug)]
#[command(
    name = "memlens",
    version,
    before_help = EXAMPLES,
    after_long_help = exit_codes(),
    after_help = "Exit codes, and more: memlens --help",
    max_term_width = 110,
    disable_help_subcommand = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a program, record its memory accesses, show a table of its data
    Run(run::RunArgs),
    /// Run a program and record its memory accesses, without the table
    Record(run::RecordArgs),
    /// Show a profile
    Report(report::ReportArgs),
    /// Look around in a profile: tables, and what is behind their rows, in the terminal
    View(view::ViewCommandArgs),
    /// Ask a profile in SQL: what no report shows, or in what form you want it
    Query(query::QueryArgs),
    /// Hold two profiles of one program against each other
    Compare(compare::CompareArgs),
    /// Show what a change did: what has become more and less between two profiles
    Diff(diff::DiffArgs),
    /// Fail if a profile meets a condition, alone or against a baseline: a gate for changes
    Check(check::CheckArgs),
    /// Make one profile of several: the ranks of a job, or runs of one program
    Merge(merge::MergeArgs),
    /// Say what to do about the data of a profile, and what it could gain
    Advise(advise::AdviseArgs),
    /// Put the data that a profile blames into huge pages, or prefetch it, and measure the gain
    Apply(apply::ApplyArgs),
    /// Make a profile from another tool's trace
    Import(import::ImportArgs),
    /// Capture and analyse physical bus traces: objects, page walks, TLB misses
    Bus(bus::BusArgs),
    /// Hold runs of a program (thread counts, sizes) against the first, by object
    Series(bus_series::SeriesArgs),
    /// Write a profile in another tool's format
    Export(export::ExportArgs),
    /// Say what this machine, kernel and container allow, and how to allow more
    Doctor(doctor::DoctorArgs),
    /// Measure what memory costs on this machine, and where its samples land
    Calibrate(calibrate::CalibrateArgs),
    /// Print the completions for a shell
    Completions(completions::CompletionsArgs),
    /// Print or write the man pages
    Man(man::ManArgs),
}

/// The definition that completions and man pages are made from.
pub fn definition() -> clap::Command {
    Cli::command()
}

fn exit_codes() -> String {
    let mut text = String::from(
        "Exit codes:\n  run and record end as the program did: with its exit code, or by the same signal.\n  \
         check returns 1 if the profile meets a condition, query --fail-if-rows if there is a row.\n  \
         Codes of memlens itself:\n",
    );
    for kind in FailureKind::ALL {
        text += &format!("  {:>4}  {}\n", kind.exit_code(), kind.meaning());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        definition().debug_assert();
    }

    /// Parses the examples at the head of a command's help and of those below it; returns how many.
    fn parse_examples(command: &clap::Command) -> usize {
        let text = command.get_before_help().map(ToString::to_string).unwrap_or_default();
        let examples = text.lines().filter(|line| line.trim_start().starts_with("memlens "));
        let own = examples.map(|line| {
            // The explanation is set off by several spaces.
            let example = line.trim_start().split("  ").next().unwrap_or_default();
            // Every second part is quoted: one word.
            let parts = example.split('\'').enumerate();
            let words = parts.flat_map(|(at, part)| match at % 2 {
                0 => part.split_whitespace().collect(),
                _ => vec![part],
            });
            let parsed = Cli::try_parse_from(words);
            assert!(parsed.is_ok(), "{example}: {parsed:?}");
        });
        own.count() + command.get_subcommands().map(parse_examples).sum::<usize>()
    }

    #[test]
    fn the_examples_parse() {
        let definition = definition();
        assert!(parse_examples(&definition) > 15);
        for name in [
            "run", "record", "report", "view", "query", "compare", "diff", "check", "merge", "advise",
            "apply", "series",
        ] {
            let command = definition.find_subcommand(name).expect("a command");
            assert!(parse_examples(command) >= 3, "{name} has three examples");
        }
    }
}

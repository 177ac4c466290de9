//! `memlens compare`.

use std::path::{Path, PathBuf};

use clap::Args;
use memlens_profile::Profile;
use memlens_report::{Column, CompareError, compare_csv, compare_json, compare_table, leading_column};

use crate::failure::{Failure, FailureKind};
use crate::family::open_profile;
use crate::report::Format;
use crate::streams::{self, Stream};
use crate::view_args::{Top, ViewArgs, column_list, column_words, parse_top};

/// Arguments of `memlens compare`.
#[derive(Args, Debug)]
#[command(
    after_long_help = column_list("--by"),
    before_help = "\
Examples:
  memlens compare before.memlens after.memlens                  which objects cost another share now
  memlens compare exact.memlens sampled.memlens --top 5         how near samples come to every access
  memlens compare a.memlens b.memlens --by llc_misses --format json"
)]
pub struct CompareArgs {
    /// The profile to hold the other one against
    #[arg(value_name = "A")]
    pub a: PathBuf,

    /// Another profile of the same program, in any mode
    #[arg(value_name = "B")]
    pub b: PathBuf,

    /// What to compare: a column that counts something (`--help` lists them), or `share`, the wait; if not given, what reports of both are
    /// ranked by: the stalls, else the wait
    #[arg(long, value_name = "COLUMN", value_parser = column_words(), hide_possible_values = true)]
    pub by: Option<Column>,

    /// A table for people, or everything for programs (json), or the rows for spreadsheets (csv)
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: Format,

    /// How many rows at most: a number, or `all`; 20 in a table if not given
    #[arg(long, value_name = "N", value_parser = parse_top)]
    pub top: Option<Top>,
}

/// Shows how close two profiles are.
pub fn compare(args: &CompareArgs) -> Result<u8, Failure> {
    args.format.refuse_top(args.top)?;
    let (a, b) = (open_profile(&args.a)?, open_profile(&args.b)?);
    let by = args.by.unwrap_or_else(|| leading_column(&a, &b));
    let comparison = memlens_report::compare(&a, &b, by).map_err(|error| {
        let kind = match error {
            CompareError::NoAmount(_) | CompareError::Unknown { .. } | CompareError::Empty(_) => {
                FailureKind::Usage
            }
            _ => FailureKind::BadData,
        };
        let (place_a, place_b) = (args.a.display(), args.b.display());
        Failure::new(kind, format!("cannot compare {place_a} (A) with {place_b} (B): {error}"))
    })?;
    if let (Some(program_a), Some(program_b)) = (program(&a), program(&b))
        && program_a != program_b
    {
        streams::say(&format!(
            "A is of {program_a}, B of {program_b}; objects of the same name and place are taken for the same"
        ));
    }
    let view = ViewArgs { top: args.top, ..ViewArgs::default() }.view(Stream::Stdout);
    match args.format {
        Format::Table => {
            let text = compare_table(&a, &b, &comparison, &view);
            streams::write_result(|out| out.write_all(text.as_bytes()))?;
        }
        Format::Json => {
            streams::write_json(&compare_json(&a, &b, &comparison))?;
        }
        Format::Csv => {
            let top = view.top.filter(|_| args.top.is_some());
            streams::write_result(|mut out| compare_csv(&comparison, top, &mut out))?;
        }
    }
    Ok(0)
}

/// The name of the program that a profile is of.
fn program(profile: &Profile) -> Option<&str> {
    Path::new(profile.run.command.first()?).file_name()?.to_str()
}

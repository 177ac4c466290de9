//! `memlens diff`.

use std::path::PathBuf;
use std::slice;

use clap::Args;
use memlens_report::{By, Column, Runs, diff_csv, diff_json, diff_table, leading_amount};

use crate::failure::{Failure, FailureKind};
use crate::family::open_profile;
use crate::report::Format;
use crate::streams::{self, Stream};
use crate::view_args::{Top, ViewArgs, amount_list, by_words, column_words, parse_top};

/// Arguments of `memlens diff`.
#[derive(Args, Debug)]
#[command(
    after_long_help = amount_list("--of"),
    before_help = "\
Examples:
  memlens diff before.memlens after.memlens                      what stalls more, what less, what is gone, what is new
  memlens diff before.memlens after.memlens --by line            the same by line of code, where lines have moved, too
  memlens diff before.memlens after.memlens --of bytes --top all   memory that is allocated
  memlens diff before.1 before.2 before.3 -- after.1 after.2 after.3   means, and which changes are more than runs differ anyway"
)]
pub struct DiffArgs {
    /// The profiles from before and from after the change, A and B; or several runs from before it, with those from after it behind `--`
    #[arg(value_name = "A", required = true, num_args = 1..)]
    pub profiles: Vec<PathBuf>,

    /// Runs from after the change, in the same mode
    #[arg(value_name = "B", last = true)]
    pub after: Vec<PathBuf>,

    /// What a row stands for
    #[arg(long, value_name = "WHAT", value_parser = by_words(), default_value = "object")]
    pub by: By,

    /// What there is more or less of: a column that is an amount (`--help` lists them), or `wait`; if not given, the stalls, else the
    /// wait, time or reads that the profiles are of
    #[arg(long, value_name = "COLUMN", value_parser = column_words(), hide_possible_values = true)]
    pub of: Option<Column>,

    /// A table for people, or everything for programs (json), or the rows for spreadsheets (csv)
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: Format,

    /// How many rows at most: a number, or `all`; if not given, 20 of at least 0.05 %
    #[arg(long, value_name = "N", value_parser = parse_top)]
    pub top: Option<Top>,
}

/// Shows what has become more and less.
pub fn diff(args: &DiffArgs) -> Result<u8, Failure> {
    args.format.refuse_top(args.top)?;
    let (places_a, places_b) = sides(args)?;
    let (a, b) = (runs(args, places_a)?, runs(args, places_b)?);
    let of = args.of.unwrap_or_else(|| leading_amount(&a, &b));
    let diff = memlens_report::diff(&a, &b, args.by, of).map_err(|error| {
        let (a, b) = (listed(places_a), listed(places_b));
        Failure::new(FailureKind::Usage, format!("cannot hold {b} (B) against {a} (A): {error}"))
    })?;
    let view = ViewArgs { top: args.top, ..ViewArgs::default() }.view(Stream::Stdout);
    match args.format {
        Format::Table => {
            let text = diff_table(&a, &b, &diff, &view);
            streams::write_result(|out| out.write_all(text.as_bytes()))?;
        }
        Format::Json => {
            streams::write_json(&diff_json(&a, &b, &diff))?;
        }
        Format::Csv => {
            let top = view.top.filter(|_| args.top.is_some());
            streams::write_result(|mut out| diff_csv(&diff, top, &mut out))?;
        }
    }
    Ok(0)
}

/// The profiles of A and of B.
fn sides(args: &DiffArgs) -> Result<(&[PathBuf], &[PathBuf]), Failure> {
    match (&args.profiles[..], &args.after[..]) {
        ([a, b], []) => Ok((slice::from_ref(a), slice::from_ref(b))),
        (_, []) => {
            let message = "give one profile from before the change and one from after it, or several of each: \
                           memlens diff BEFORE… -- AFTER…";
            Err(Failure::new(FailureKind::Usage, message))
        }
        (before, after) => Ok((before, after)),
    }
}

/// The runs of one side.
fn runs(args: &DiffArgs, places: &[PathBuf]) -> Result<Runs, Failure> {
    let mut profiles = Vec::new();
    for (at, place) in places.iter().enumerate() {
        if places[..at].contains(place) {
            let message = format!("{} is given twice: it is one run", place.display());
            return Err(Failure::new(FailureKind::Usage, message));
        }
        if place.as_os_str().as_encoded_bytes().starts_with(b"-") && !place.exists() {
            let message =
                format!("{} stands behind ‘--’, where profiles do: options come before it", place.display());
            return Err(Failure::new(FailureKind::Usage, message));
        }
        let profile = open_profile(place)?;
        if let Some(why) = args.by.missing_in(&profile) {
            let message = format!("--by {} of {}: {why}", args.by.as_str(), place.display());
            return Err(Failure::new(FailureKind::Usage, message));
        }
        profiles.push(profile);
    }
    Runs::new(profiles).map_err(|error| {
        Failure::new(FailureKind::BadData, format!("{} are no runs of one side: {error}", listed(places)))
    })
}

/// The places in words.
fn listed(places: &[PathBuf]) -> String {
    places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
}

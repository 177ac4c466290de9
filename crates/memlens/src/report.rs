//! `memlens report`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use memlens_profile::Profile;
use memlens_report::{UnknownWord, code_detail, csv, json, object_detail, table};

use crate::failure::{Failure, FailureKind};
use crate::streams::{self, Stream};
use crate::view_args::{ViewArgs, column_list};

/// Arguments of `memlens report`.
#[derive(Args, Debug)]
#[command(after_long_help = column_list("--sort"))]
pub struct ReportArgs {
    /// The profile, as `memlens run` or `memlens record` left it
    pub profile: PathBuf,

    /// A table for people, or everything for programs (json), or the rows for spreadsheets (csv)
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: Format,

    /// Show one object and the code that touches it; the number is in the table's # column
    #[arg(long, value_name = "ID", conflicts_with_all = ["code", "by"])]
    pub object: Option<u32>,

    /// Show one function's code and the objects it touches
    #[arg(long, value_name = "FUNCTION", conflicts_with = "by")]
    pub code: Option<String>,

    #[command(flatten)]
    pub view: ViewArgs,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table, as wide as the terminal.
    Table,
    /// The whole profile; its schema is `memlens-report/1`.
    Json,
    /// The table's rows with all columns; all rows unless `--top` is given.
    Csv,
}

/// Shows a profile.
pub fn report(args: &ReportArgs) -> Result<u8, Failure> {
    refuse_options_without_effect(args)?;
    let profile = Profile::open(&args.profile)?;
    let mut view = args.view.view(Stream::Stdout);
    match args.format {
        Format::Table => {
            let text = match (args.object, &args.code) {
                (Some(id), _) => object_detail(&profile, id, &view).map_err(not_there)?,
                (None, Some(function)) => code_detail(&profile, function, &view).map_err(not_there)?,
                (None, None) => table(&profile, &view),
            };
            streams::write_result(|out| out.write_all(text.as_bytes()))?;
        }
        Format::Json => {
            let document = json(&profile);
            streams::write_result(|out| {
                serde_json::to_writer_pretty(&mut *out, &document)?;
                out.write_all(b"\n")
            })?;
        }
        Format::Csv => {
            if args.view.top.is_none() {
                view.top = None;
            }
            streams::write_result(|mut out| csv(&profile, &view, &mut out))?;
        }
    }
    Ok(0)
}

/// An option that would do nothing is a misunderstanding.
fn refuse_options_without_effect(args: &ReportArgs) -> Result<(), Failure> {
    let detail = args.object.map(|_| "--object").or(args.code.as_ref().map(|_| "--code"));
    let (option, format) = match (args.format, detail, args.view.first_given()) {
        (Format::Json, _, Some(option)) => (option, "json, which has everything"),
        (Format::Json, Some(option), None) => (option, "json, which has everything"),
        (Format::Csv, Some(option), _) => (option, "csv"),
        _ => return Ok(()),
    };
    Err(Failure::new(FailureKind::Usage, format!("{option} does not go with --format {format}")))
}

fn not_there(word: UnknownWord) -> Failure {
    Failure::new(FailureKind::Usage, word.to_string())
}

//! `memlens export`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use memlens_report::callgrind;

use crate::failure::{Failure, FailureKind};
use crate::family::open_profile;
use crate::{result_file, streams};

/// Arguments of `memlens export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// Into which format.
    #[command(subcommand)]
    pub format: ExportFormat,
}

/// The formats.
#[derive(Subcommand, Debug)]
pub enum ExportFormat {
    /// For callgrind_annotate and KCachegrind: data objects as entries, functions as their callers
    Callgrind(CallgrindArgs),
}

/// Arguments of `memlens export callgrind`.
#[derive(Args, Debug)]
#[command(before_help = "\
Examples:
  memlens export callgrind ls.memlens --out callgrind.out.ls    then: kcachegrind callgrind.out.ls")]
pub struct CallgrindArgs {
    /// The profile
    pub profile: PathBuf,

    /// File to write; standard output if not given
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Replace the file if it exists
    #[arg(long, requires = "out")]
    pub force: bool,
}

/// Writes the export.
pub fn export(args: &ExportArgs) -> Result<u8, Failure> {
    let ExportFormat::Callgrind(args) = &args.format;
    let profile = open_profile(&args.profile)?;
    if profile.run.sampling.is_some() {
        let message = "callgrind's format has counts of accesses and misses, and samples have none: record the program in burst mode \
                       (memlens record) or in exact mode";
        return Err(Failure::new(FailureKind::Usage, message));
    }
    match &args.out {
        None => streams::write_result(|mut out| callgrind::write(&profile, &mut out))?,
        Some(path) => result_file::write(path, args.force, |mut out| callgrind::write(&profile, &mut out))?,
    }
    Ok(0)
}

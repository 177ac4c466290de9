//! `memlens merge`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;
use memlens_profile::{Existing, Merger};

use crate::failure::{Failure, FailureKind};
use crate::family::open_profile;
use crate::output::Output;
use crate::streams::say;

/// Arguments of `memlens merge`.
#[derive(Args, Debug)]
#[command(before_help = "\
Examples:
  memlens merge rank.0 rank.1 rank.2 --out job.memlens       one profile of an MPI job's ranks
  memlens merge run1 run2 run3 --out all.memlens             of several runs: more bursts, narrower intervals
  memlens report --processes job.memlens                     each of them in a line; --process N shows one")]
pub struct MergeArgs {
    /// The profiles: of one mode, modelled on one machine
    #[arg(value_name = "PROFILE", required = true)]
    pub profiles: Vec<PathBuf>,

    /// Where the merged profile goes; it has copies of the single ones
    #[arg(long, value_name = "PROFILE")]
    pub out: PathBuf,

    /// Replace the profile if it exists
    #[arg(long)]
    pub force: bool,

    /// Say nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// Makes one profile of several. One of them is in memory at a time, and nothing is written before all have been read.
pub fn merge(args: &MergeArgs) -> Result<u8, Failure> {
    refuse_same_places(args)?;
    let mut merger: Option<Merger> = None;
    for place in &args.profiles {
        let profile = open_profile(place)?;
        let added = merger.get_or_insert_with(|| Merger::new(&profile)).add(&profile);
        added.map_err(|error| {
            let message = format!("cannot merge {}: {error}; nothing is written", place.display());
            Failure::new(FailureKind::BadData, message)
        })?;
    }
    let merged = merger.map(Merger::finish).unwrap_or_default();

    let mut output = Output::create(Some(&args.out), OsStr::new(""), Existing::replace_if(args.force))?;
    // First the whole: without copies it is still right.
    if let Err(error) = output.writer().flush(&merged, !merged.attribution.truncated) {
        output.discard();
        return Err(error.into());
    }
    for (number, place) in (1..).zip(&args.profiles) {
        copy(place, output.path(), number).map_err(|failure| {
            let message = format!("{failure}; {} is whole, but not all copies are in it", args.out.display());
            failure.with_message(message)
        })?;
    }
    if !args.quiet {
        let (count, out) = (args.profiles.len(), args.out.display());
        say(&format!("{count} profiles are one: memlens report {out}"));
    }
    Ok(0)
}

/// Puts a profile among those of single processes in `merged`.
fn copy(profile: &Path, merged: &Path, number: u32) -> Result<(), Failure> {
    let profile = open_profile(profile)?;
    let mut place = Output::of_process(merged, number, profile.run.pid.unwrap_or(0))?;
    place.writer().flush(&profile, !profile.attribution.truncated)?;
    Ok(())
}

/// A profile counted twice, and one that would be replaced by what it is a part of, are misunderstandings.
fn refuse_same_places(args: &MergeArgs) -> Result<(), Failure> {
    let refuse = |message: String| Err(Failure::new(FailureKind::Usage, message));
    // What is not there is told when it is read.
    let real = |place: &PathBuf| place.canonicalize().unwrap_or_else(|_| place.clone());
    let places: Vec<PathBuf> = args.profiles.iter().map(real).collect();
    for (at, place) in places.iter().enumerate() {
        let shown = args.profiles[at].display();
        if places[..at].contains(place) {
            return refuse(format!("{shown} is given twice: what it counts would count twice"));
        }
        if *place == real(&args.out) {
            return refuse(format!("--out {shown} is one of the profiles to merge; choose another place"));
        }
    }
    Ok(())
}

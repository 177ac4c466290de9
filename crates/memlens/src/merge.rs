//! `memlens merge`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use memlens_profile::{Existing, MERGED_FROM, Merger, ProcessFolder, Profile, RunInfo, WriteError};
use memlens_types::Counts;

use crate::failure::{Failure, FailureKind};
use crate::family::open_profile;
use crate::out_name;
use crate::output::Output;
use crate::streams::say;

/// Arguments of `memlens merge`.
#[derive(Args, Debug)]
#[command(before_help = "\
Examples:
  memlens merge rank.0 rank.1 rank.2 --out job.memlens       one profile of an MPI job's ranks
  memlens merge run1 run2 run3 --out all.memlens             of several runs: the bursts of all
  memlens report --processes job.memlens                     each of them in a line; --process N shows one")]
pub struct MergeArgs {
    /// The profiles: of one mode, modelled on one machine
    #[arg(value_name = "PROFILE", required = true)]
    pub profiles: Vec<PathBuf>,

    /// Where the merged profile goes; it has copies of the single ones
    #[arg(long, short, value_name = "PROFILE", value_parser = out_name::parser())]
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
    let mut parts: Vec<Part> = Vec::new();
    for (input, place) in args.profiles.iter().enumerate() {
        let profile = open_profile(place)?;
        let added = merger.get_or_insert_with(|| Merger::new(&profile).apart()).add(&profile);
        added.map_err(|error| {
            let message = format!("cannot merge {}: {error}; nothing is written", place.display());
            Failure::new(FailureKind::BadData, message)
        })?;
        for part in parts_of((input, place), profile)? {
            if let Some(same) = parts.iter().find(|known| known.is_copy_of(&part)) {
                let message = format!(
                    "{} and {} are of the same run: what it counts would count twice; nothing is written",
                    same.name, part.name
                );
                return Err(Failure::new(FailureKind::Usage, message));
            }
            parts.push(part);
        }
    }
    let mut merged = merger.map(Merger::finish).unwrap_or_default();
    merged.run.notes.insert(0, format!("{MERGED_FROM} {} runs", parts.len()));
    merged.attribution.notes.extend(notes(&parts));
    if let Some(note) = other_programs(&parts).filter(|_| !args.quiet) {
        say(&note);
    }

    let mut output = Output::create(Some(&args.out), OsStr::new(""), Existing::replace_if(args.force))?;
    // First the whole: without copies it is still right.
    if let Err(error) = output.writer().flush(&merged, !merged.attribution.truncated) {
        output.discard();
        return Err(error.into());
    }
    for (number, part) in (1..).zip(&parts) {
        part.copy(output.path(), number).map_err(|failure| {
            let message = format!("{failure}; {} is whole, but not all copies are in it", args.out.display());
            failure.with_message(message)
        })?;
    }
    if !args.quiet {
        let count = if parts.len() == 1 { "1 run".to_owned() } else { format!("{} runs", parts.len()) };
        say(&format!("{count} in one profile: memlens report {}", args.out.display()));
    }
    Ok(0)
}

/// One run, or one program of several that were followed.
struct Part {
    /// Which of the profiles to merge it is of.
    input: usize,
    place: PathBuf,
    /// The profile that it was before anything was merged.
    name: String,
    run: RunInfo,
    totals: Counts,
    is_truncated: bool,
}

/// The single runs of a profile: itself, or what it was merged from.
fn parts_of((input, place): (usize, &Path), profile: Profile) -> Result<Vec<Part>, Failure> {
    let part = |place: PathBuf, name: String, profile: Profile| Part {
        input,
        name: profile.run.merged_as.clone().unwrap_or(name),
        totals: profile.totals(),
        is_truncated: profile.attribution.truncated,
        run: profile.run,
        place,
    };
    let shown = place.display();
    let folders = ProcessFolder::list(place)?;
    if folders.is_empty() {
        return Ok(vec![part(place.to_owned(), shown.to_string(), profile)]);
    }
    let read = |folder: ProcessFolder| {
        let profile = Profile::open(&folder.path)?;
        Ok(part(folder.path, format!("{shown} {}", folder.number), profile))
    };
    folders.into_iter().map(read).collect()
}

impl Part {
    /// Whether both are copies of one profile. Two recordings of one process that went on are not: they counted different things.
    fn is_copy_of(&self, other: &Self) -> bool {
        let identity = |part: &Self| {
            let run = part.run.clone();
            (run.pid, run.started_unix_seconds, run.hostname, run.command, run.wall_seconds, part.totals)
        };
        self.run.pid.is_some() && identity(self) == identity(other)
    }

    /// Puts it among the profiles of single processes in `merged`.
    fn copy(&self, merged: &Path, number: u32) -> Result<(), Failure> {
        let mut profile = open_profile(&self.place)?;
        profile.run.merged_as = Some(self.name.clone());
        let mut place = Output::of_process(merged, number, self.run.pid.unwrap_or(0))?;
        if let Err(error) = place.writer().flush(&profile, !self.is_truncated) {
            place.discard();
            return Err(error.into());
        }
        Ok(())
    }

    /// The program's name, as it was called.
    fn program(&self) -> Option<&OsStr> {
        Path::new(self.run.command.first()?).file_name()
    }

    fn ending(&self) -> (Option<i32>, Option<i32>) {
        (self.run.exit_code, self.run.signal)
    }
}

/// The names of some, if there are any.
fn named(parts: Vec<&Part>) -> Option<String> {
    /// At most.
    const NAMED: usize = 5;
    let names: Vec<_> = parts.iter().take(NAMED).map(|part| part.name.as_str()).collect();
    let more = if parts.len() > NAMED { format!(" and {} more", parts.len() - NAMED) } else { String::new() };
    (!parts.is_empty()).then(|| format!("{}{more}", names.join(", ")))
}

/// Whether some are of other programs than the first: a slip, mostly.
fn other_programs(parts: &[Part]) -> Option<String> {
    let first = parts.first()?;
    // What one input executed is its own.
    let programs_of = |input: usize| parts.iter().filter(move |part| part.input == input).map(Part::program);
    let is_other =
        |part: &&Part| !programs_of(part.input).any(|name| programs_of(first.input).any(|own| own == name));
    let names = named(parts.iter().filter(is_other).collect())?;
    let program = first.program()?.to_string_lossy();
    Some(format!(
        "Of other programs than {program}: {names}. Their objects are one row where kind, name, type and line are the same."
    ))
}

/// What a reader of the whole would not see of its parts.
fn notes(parts: &[Part]) -> Vec<String> {
    let mut notes = Vec::from_iter(other_programs(parts));
    let differ = |part: &&Part| parts.first().is_some_and(|first| first.ending() != part.ending());
    if let Some(names) = named(parts.iter().filter(differ).collect()) {
        notes
            .push(format!("Not all ended as the first did: {names}; memlens report --processes shows each."));
    }
    if let Some(names) = named(parts.iter().filter(|part| part.is_truncated).collect()) {
        notes.push(format!("Profiles that end before their programs did: {names}."));
    }
    let has_namesake = |part: &&Part| {
        // Those of one input executed each other.
        let is_same = |other: &&Part| other.run.pid == part.run.pid && other.input != part.input;
        part.run.pid.is_some() && parts.iter().any(|other| is_same(&other))
    };
    if let Some(names) = named(parts.iter().filter(has_namesake).collect()) {
        notes.push(format!(
            "Processes of one id, which --by process shows as one: {names}; memlens report --process N shows each by its number."
        ));
    }
    notes
}

/// A profile counted twice, and one that would be replaced by what it is a part of, are misunderstandings.
fn refuse_same_places(args: &MergeArgs) -> Result<(), Failure> {
    let refuse = |message: String| Err(Failure::new(FailureKind::Usage, message));
    // What is not there is told when it is read.
    let real = |place: &PathBuf| place.canonicalize().unwrap_or_else(|_| place.clone());
    let places: Vec<PathBuf> = args.profiles.iter().map(real).collect();
    // It may not be there yet; what it is in is.
    let out = match (args.out.parent(), args.out.file_name()) {
        (Some(parent), Some(name)) if !args.out.exists() => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            parent.canonicalize().map_or_else(|_| args.out.clone(), |parent| parent.join(name))
        }
        _ => real(&args.out),
    };
    let is_empty = |folder: &Path| fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    if !args.force && args.out.exists() && !is_empty(&args.out) {
        // Before long reading; whoever comes meanwhile is met when it is written.
        return Err(WriteError::Exists { path: args.out.clone() }.into());
    }
    for (at, place) in places.iter().enumerate() {
        let shown = args.profiles[at].display();
        if places[..at].contains(place) {
            return refuse(format!("{shown} is given twice: what it counts would count twice"));
        }
        if *place == out {
            return refuse(format!("--out {shown} is one of the profiles to merge; choose another place"));
        }
        // Replacing a merged profile removes what is in it; a profile with strange things in it is none.
        if place.starts_with(&out) || out.starts_with(place) {
            return refuse(format!(
                "{shown} and --out {} are one in the other; choose another place",
                args.out.display()
            ));
        }
    }
    Ok(())
}

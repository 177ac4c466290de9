//! `memlens view`.

use std::env;
use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use memlens_analysis::advice as advice_for;
use memlens_profile::{ProcessFolder, Profile};
use memlens_report::{By, Column, advice_text, groupings};
use memlens_view::{App, AppOptions, Recorded, Source, show};

use crate::advise::Means;
use crate::failure::{Failure, FailureKind, plain};
use crate::family::open_profile;
use crate::output;
use crate::report::process_folder;
use crate::streams::Stream;
use crate::view_args::{by_words, column_list, column_words};

/// Arguments of `memlens view`.
#[derive(Args, Debug)]
#[command(
    after_long_help = column_list("--sort"),
    before_help = "\
Examples:
  memlens view ls.memlens                 objects by cost; Enter opens one, ? lists the keys
  memlens view ls.memlens --by line       lines of code first
  memlens view app.memlens --process 2    of several processes one; while they run: what there is so far"
)]
pub struct ViewCommandArgs {
    /// The profile, as `memlens run` or `memlens record` left it, or is writing it
    pub profile: PathBuf,

    /// Show one process of a profile recorded with --follow children or merged: its number or process id
    #[arg(long, value_name = "N|PID")]
    pub process: Option<u32>,

    /// What a row stands for at first; object if not given
    #[arg(long, value_name = "WHAT", value_parser = by_words())]
    pub by: Option<By>,

    /// Column to sort by at first; if not given, the share of the stalls where they are 1 % of the time or more, else of the wait
    #[arg(long, value_name = "COLUMN", value_parser = column_words(), hide_possible_values = true)]
    pub sort: Option<Column>,
}

/// Shows a profile in the terminal, until the reader has seen enough.
pub fn view(args: &ViewCommandArgs) -> Result<u8, Failure> {
    refuse_without_terminal(&args.profile)?;
    let path = match args.process {
        Some(wanted) => process_folder(&args.profile, wanted)?.path,
        None => args.profile.clone(),
    };
    let (mut files, recorded) = Files::open(path)?;
    let by = args.by.unwrap_or_default();
    if !groupings(&recorded.profile).contains(&by) {
        let why = by.missing_in(&recorded.profile).unwrap_or("the profile has nothing of that kind");
        return Err(Failure::new(FailureKind::Usage, format!("--by {}: {why}", by.as_str())));
    }
    let options = AppOptions { by, sort: args.sort, colour: Stream::Stdout.wants_colour() };
    let mut app = App::new(recorded, &options);
    show(&mut app, &mut files).map_err(|error| {
        Failure::new(FailureKind::Io, format!("cannot use the terminal: {}", plain(&error)))
    })?;
    Ok(0)
}

/// Keys come from a terminal, and pictures go to one.
fn refuse_without_terminal(profile: &Path) -> Result<(), Failure> {
    let is_dumb = env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let what = match () {
        _ if !io::stdin().is_terminal() => "stdin is none",
        _ if !Stream::Stdout.is_terminal() => "stdout is none",
        _ if is_dumb => "TERM names none that can be drawn on",
        _ => return Ok(()),
    };
    let message = format!(
        "view needs a terminal, and {what}; the same as text: memlens report {}",
        crate::shell::path(profile)
    );
    Err(Failure::new(FailureKind::Usage, message))
}

/// The profile's files, which a recording that is under way replaces now and then.
struct Files {
    path: PathBuf,
    /// Those that were read last.
    read: Vec<Stamp>,
    is_running: bool,
}

/// What another state of a file differs in: a new generation is another file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    inode: u64,
    changed: (i64, i64),
    size_bytes: u64,
}

impl Files {
    /// The profile as it is now.
    fn open(path: PathBuf) -> Result<(Self, Recorded), Failure> {
        let mut files = Self { path, read: Vec::new(), is_running: false };
        let recorded = files.load()?;
        Ok((files, recorded))
    }

    fn load(&mut self) -> Result<Recorded, Failure> {
        // Before the files themselves: what is written meanwhile is read next time.
        let stamps = stamps(&self.path);
        let is_locked = output::is_recorded_into(&self.path);
        let profile = open_profile(&self.path)?;
        self.read = stamps;
        self.is_running = is_locked && profile.attribution.truncated;
        Ok(Recorded { profile, is_running: self.is_running })
    }
}

impl Source for Files {
    fn renewed(&mut self) -> Option<Recorded> {
        let has_stopped = self.is_running && !output::is_recorded_into(&self.path);
        if !has_stopped && stamps(&self.path) == self.read {
            return None;
        }
        // Half of it may have been replaced while it was read.
        self.load().ok()
    }

    fn read(&mut self) -> Result<Recorded, String> {
        self.load().map_err(|failure| failure.to_string())
    }

    fn advice(&mut self, profile: &Profile) -> String {
        if profile.run.sampling.is_some() {
            return "Samples of time count no misses, so there is nothing to advise from them.\n\
                    Record the program in burst mode (memlens run) or in exact mode."
                .to_owned();
        }
        let found = advice_for(profile);
        let means = Means::new(profile, &found, &self.path);
        advice_text(profile, &found, usize::MAX, &|finding| means.of(finding))
    }
}

/// The files that name a profile's generation: its own, or as long as there is none those of its processes.
fn stamps(profile: &Path) -> Vec<Stamp> {
    let of = |folder: &Path| {
        let path = folder.join("profile.json");
        let found = fs::metadata(&path).ok()?;
        let changed = (found.mtime(), found.mtime_nsec());
        Some(Stamp { inode: found.ino(), changed, size_bytes: found.len(), path })
    };
    if let Some(own) = of(profile) {
        return vec![own];
    }
    let processes = ProcessFolder::list(profile).unwrap_or_default();
    processes.iter().filter_map(|folder| of(&folder.path)).collect()
}

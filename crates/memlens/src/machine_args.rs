//! `--machine` and `--cache`: which caches are modelled.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use memlens_sample::SampleSkid;
use memlens_sim::{MachineDescription, MachineError};

use crate::brief_calibration::{self, Brief};
use crate::calibrate;
use crate::failure::{Failure, FailureKind};

/// The machine if none is named.
const DEFAULT_MACHINE: &str = "host";
/// The word for latencies that nobody measured.
const NO_CALIBRATION: &str = "none";
/// What `--calibration` is if it is not given.
const VARIABLE: &str = "MEMLENS_CALIBRATION";

/// Which machine is modelled.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Machine")]
pub struct MachineArgs {
    /// Machine to model: host (this CPU), cachegrind, e5504, e5-2620v2, intel-sapphire-rapids, amd-zen4,
    /// arm-neoverse-v2, or a TOML file
    #[arg(long, value_name = "NAME|FILE.toml", default_value = DEFAULT_MACHINE)]
    pub machine: String,

    /// Change a cache or TLB of the machine, for instance `l1d=48K,12,64` (bytes, ways, line);
    /// also l1i, l2, llc, dtlb, stlb, walker=off, prefetcher=0, cores=8, nodes=2; may be repeated
    #[arg(long = "cache", value_name = "LEVEL=BYTES,WAYS,LINE")]
    pub caches: Vec<String>,

    /// What `memlens calibrate` measured, instead of the user's own file: latencies that accesses are
    /// weighted by, and where samples land. `none`: assumed latencies, the same on every machine. For
    /// this CPU (host) also as MEMLENS_CALIBRATION in the environment. Without either, the first run
    /// measures latencies briefly and keeps them in the cache folder
    #[arg(long, value_name = "FILE|none")]
    pub calibration: Option<PathBuf>,
}

impl MachineArgs {
    /// Whether it is another one than the default.
    pub fn is_given(&self) -> bool {
        self.machine != DEFAULT_MACHINE || !self.caches.is_empty()
    }

    /// Whether it is the one that memlens runs on, as it is.
    pub fn is_this_one(&self) -> bool {
        !self.is_given()
    }

    /// The machine meant.
    ///
    /// # Errors
    /// When there is no such machine, its file is not readable or wrong, or a change makes no sense.
    pub fn description(&self) -> Result<MachineDescription, Failure> {
        let mut machine = if is_file(&self.machine) { read(&self.machine)? } else { named(&self.machine)? };
        // Latencies of this machine say nothing of another, unless the user says so.
        let is_host = self.machine == DEFAULT_MACHINE;
        let wanted = self.wanted(is_host);
        let own = match &wanted {
            Wanted::File(file) => Some(calibrate::named(file)?),
            Wanted::Own if is_host => calibrate::own(),
            _ => None,
        };
        let is_brief = is_host && own.is_none() && wanted == Wanted::Own;
        let (calibration, assumed) = match is_brief.then(|| brief_calibration::measured(&machine)).flatten() {
            Some(Brief { calibration, assumed }) => (Some(calibration), assumed),
            None => (own, None),
        };
        if is_host && wanted != Wanted::None {
            // What was measured takes its place.
            machine.assume_walks();
        }
        let is_llc_given = self.caches.iter().any(|change| change.starts_with("llc="));
        match &calibration {
            _ if !is_host || is_llc_given => {}
            Some(calibration) => calibrate::take_had_llc(calibration, &mut machine),
            None => machine.assume_llc_share(),
        }
        for change in &self.caches {
            machine
                .apply_override(change)
                .map_err(|error| Failure::new(FailureKind::Usage, format!("--cache {change}: {error}")))?;
        }
        if let Some(calibration) = &calibration {
            calibrate::apply(calibration, is_brief, &mut machine);
        }
        machine.notes.extend(assumed.map(|what| {
            format!(
                "what {what} takes is assumed: it varied when the rest was measured, as the machine was busy"
            )
        }));
        machine.validate().map_err(|error| {
            Failure::new(FailureKind::Usage, format!("machine {} with these changes: {error}", machine.name))
        })?;
        Ok(machine)
    }

    /// The machine meant; if none is named and a profile's machine is one of ours, that.
    ///
    /// # Errors
    /// As [`Self::description`].
    pub fn or_of(&self, profiles: &str) -> Result<MachineDescription, Failure> {
        if !self.is_given() && MachineDescription::names().any(|name| name == profiles) {
            return Self { machine: profiles.to_owned(), ..self.clone() }.description();
        }
        self.description()
    }

    /// What the option says, else the environment.
    fn wanted(&self, is_host: bool) -> Wanted {
        let set = || env::var_os(VARIABLE).map(PathBuf::from).filter(|_| is_host);
        match self.calibration.clone().or_else(set) {
            Some(word) if word.as_os_str() == NO_CALIBRATION => Wanted::None,
            Some(word) if !word.as_os_str().is_empty() => Wanted::File(word),
            _ => Wanted::Own,
        }
    }

    /// How far behind what waits samples land, where that was measured.
    ///
    /// # Errors
    /// When `--calibration` names a file that is none.
    pub fn skid(&self) -> Result<SampleSkid, Failure> {
        let measured = match self.wanted(true) {
            Wanted::File(file) => Some(calibrate::named(&file)?),
            Wanted::Own => calibrate::own(),
            Wanted::None => None,
        };
        let usual = measured.and_then(|calibration| calibration.usual_skid());
        Ok(usual.map_or_else(SampleSkid::default, |(loads, stores)| SampleSkid { loads, stores }))
    }
}

/// Which measurements count.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// Those of this file.
    File(PathBuf),
    /// The user's own, else what is measured now.
    Own,
    None,
}

/// Names never look like paths.
fn is_file(word: &str) -> bool {
    word.contains('/') || word.ends_with(".toml")
}

fn named(name: &str) -> Result<MachineDescription, Failure> {
    MachineDescription::named(name).map_err(|error| {
        let names: Vec<&str> = MachineDescription::names().collect();
        let hint = match &error {
            MachineError::UnknownName { nearest: None, .. } => {
                format!("; valid are {}, or the path of a TOML file", names.join(", "))
            }
            _ => String::new(),
        };
        Failure::new(FailureKind::Usage, format!("--machine {name}: {error}{hint}"))
    })
}

fn read(path: &str) -> Result<MachineDescription, Failure> {
    let text = fs::read_to_string(Path::new(path))
        .map_err(|error| Failure::of_io("read the machine file", path, &error))?;
    MachineDescription::from_toml(&text).map_err(|error| {
        let place = match &error {
            MachineError::Toml { line, column, .. } => excerpt(&text, *line, *column),
            _ => String::new(),
        };
        Failure::new(FailureKind::BadData, format!("machine file {path}: {error}{place}"))
    })
}

/// The line that is wrong, and a mark below the place. Line and column count from 1.
fn excerpt(text: &str, line: usize, column: usize) -> String {
    let Some(content) = text.lines().nth(line - 1) else { return String::new() };
    // A tab before the mark keeps its width.
    let indent: String =
        content.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    format!("\n  {content}\n  {indent}^")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(machine: &str, caches: &[&str]) -> MachineArgs {
        MachineArgs {
            machine: machine.into(),
            caches: caches.iter().map(ToString::to_string).collect(),
            calibration: Some(NO_CALIBRATION.into()),
        }
    }

    #[test]
    fn every_name_is_a_machine() {
        for name in MachineDescription::names() {
            assert!(args(name, &[]).description().is_ok(), "{name}");
        }
    }

    #[test]
    fn the_help_lists_every_name() {
        use clap::Args as _;
        let command = MachineArgs::augment_args(clap::Command::new("test"));
        let argument = command.get_arguments().find(|arg| arg.get_id() == "machine").expect("--machine");
        let help = argument.get_help().expect("it has a help text").to_string();
        for name in MachineDescription::names() {
            assert!(help.contains(name), "{name} is not in: {help}");
        }
    }

    #[test]
    fn changes_apply_in_order() {
        let machine = args("e5504", &["l1d=4096,4,64", "l1d=8192,4,64"]).description().expect("valid");
        assert_eq!((machine.l1d.bytes, machine.l1d.ways), (8192, 4));
    }

    #[test]
    fn wrong_words_name_the_place_and_the_nearest_word() {
        let message = |machine, caches| args(machine, caches).description().expect_err("wrong").to_string();
        assert_eq!(
            message("e5540", &[]),
            "--machine e5540: no machine is called \"e5540\"; did you mean \"e5504\"?"
        );
        assert!(message("vax", &[]).contains("valid are host, cachegrind"));
        assert!(message("host", &["l1x=1,1,64"]).contains("did you mean \"l1i\"?"));
        assert!(message("host", &["l1d=100,8,64"]).contains("l1d"));
        assert!(message("./none.toml", &[]).contains("no such file"));
        let other = message("cachegrind", &["l1d=256,4,64,random"]);
        assert!(other.contains("cachegrind's rules replace by lru, not by random"), "{other}");
    }

    #[test]
    fn the_mark_stands_below_the_place() {
        assert_eq!(excerpt("a = 1\nwais = 8\n", 2, 1), "\n  wais = 8\n  ^");
        assert_eq!(excerpt("x = y", 1, 5), "\n  x = y\n      ^");
        assert_eq!(excerpt("", 1, 1), "");
    }
}

//! What huge pages would do to a program's page walks: it runs once more under the exact collector, and the walks are
//! modelled with small pages, with each object in huge pages, with all of them, and with all that can be.

use std::ffi::OsString;
use std::fmt::Write as _;

use memlens_apply::{Choice, Chosen, Method};
use memlens_bus::analysis::ObjectInfo;
use memlens_bus::resimulation::{Candidate, Resimulation, TrialOutcome, WalkCounts};
use memlens_report::short_count;
use memlens_sim::MachineDescription;
use serde_json::{Value, json};

use crate::bus_capture;
use crate::captured_process::{Watched, watch};
use crate::failure::{Failure, FailureKind};
use crate::system::SilentStdout;

/// Objects that get a trial of their own.
const ALONE: usize = 4;
/// Causes that are named in the JSON.
const CAUSES: usize = 10;

/// What came of it.
pub struct Prediction {
    machine: String,
    /// What the program returned.
    exit_code: u8,
    /// All memory in small pages.
    small: TrialOutcome,
    /// Objects (names and numbers) in huge pages, and what came of that; the last one has all that were chosen.
    trials: Vec<(Vec<(String, u32)>, TrialOutcome)>,
    /// Everything in huge pages that can be.
    all: TrialOutcome,
}

/// Runs a program once more. Its output goes nowhere.
pub fn resimulate(
    choice: &Choice,
    machine: &MachineDescription,
    command: &[OsString],
) -> Result<Prediction, Failure> {
    bus_capture::check(machine)?;
    let chosen = &choice.chosen;
    let mut sets: Vec<Vec<usize>> = Vec::new();
    if chosen.len() > 1 {
        sets.extend((0..chosen.len().min(ALONE)).map(|at| vec![at]));
    }
    if !chosen.is_empty() {
        sets.push((0..chosen.len()).collect());
    }
    let trials: Vec<Option<Vec<usize>>> =
        [Some(Vec::new()), None].into_iter().chain(sets.iter().cloned().map(Some)).collect();
    let system = Resimulation::new(machine, chosen.iter().map(candidate).collect(), &trials)
        .map_err(|error| Failure::new(FailureKind::Usage, format!("machine {}: {error}", machine.name)))?;
    let scratch = std::env::temp_dir().join(format!("memlens-resimulation.{}", std::process::id()));
    let watched = Watched::new(command, scratch)?;
    let silence = SilentStdout::begin().map_err(|error| {
        Failure::new(FailureKind::Io, format!("cannot keep the program's output apart: {error}"))
    })?;
    let (outcome, system) = watch(&watched, machine, system);
    drop(silence);
    let exit_code = outcome?;
    let mut found = system.map_or_else(Vec::new, Resimulation::finish).into_iter();
    let (Some(small), Some(all)) = (found.next(), found.next()) else {
        return Err(Failure::new(FailureKind::Internal, "the page walks were not modelled".to_owned()));
    };
    let name = |&at: &usize| (chosen[at].name.clone(), chosen[at].id);
    let trials = sets.iter().map(|set| set.iter().map(name).collect()).zip(found).collect();
    Ok(Prediction { machine: machine.name.clone(), exit_code, small, trials, all })
}

fn candidate(object: &Chosen) -> Candidate {
    match &object.method {
        Method::Blocks => {
            let frame = |(path, offset): &(std::path::PathBuf, u64)| (path.display().to_string(), *offset);
            Candidate::Site(object.frames.iter().map(frame).collect())
        }
        Method::Heap => Candidate::Heap,
        Method::Variable { bytes, .. } => Candidate::Variable { name: object.name.clone(), bytes: *bytes },
    }
}

impl Prediction {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let before = self.small.total;
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "The program once more, modelled on {}: in 4-KiB pages {} page walks read {} entries.",
            self.machine,
            short_count(before.walks),
            short_count(before.entries)
        );
        let _ = writeln!(
            text,
            "{:<32} {:>12} {:>9} {:>13} {:>12}",
            "in 2-MiB pages", "page walks", "change", "entries read", "memory"
        );
        for (names, outcome) in &self.trials {
            let names: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
            text += &self.line(&names.join(", "), outcome);
        }
        text += &self.line("all that can be", &self.all);
        if let Some((names, outcome)) = self.trials.last() {
            let names: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
            text += &match outcome.objects.first() {
                Some((cause, counts)) => format!(
                    "With {} in huge pages, {} ({}) causes most page walks: {} of {}.\n",
                    names.join(", "),
                    cause.name,
                    cause.kind,
                    percent(counts.walks, outcome.total.walks),
                    short_count(outcome.total.walks)
                ),
                None => format!("With {} in huge pages there are no page walks left.\n", names.join(", ")),
            };
        }
        if self.exit_code != 0 {
            let _ = writeln!(text, "The program ended with exit code {} in this run.", self.exit_code);
        }
        text
    }

    fn line(&self, names: &str, outcome: &TrialOutcome) -> String {
        let change = match self.small.total.walks {
            0 => String::new(),
            before => format!("{:+.1} %", (outcome.total.walks as f64 / before as f64 - 1.0) * 100.0),
        };
        let mib = outcome.extra_bytes as f64 / f64::from(1 << 20);
        format!(
            "{names:<32} {:>12} {change:>9} {:>13} {:>12}\n",
            short_count(outcome.total.walks),
            short_count(outcome.total.entries),
            format!("{mib:+.1} MiB")
        )
    }

    /// For programs.
    pub fn document(&self) -> Value {
        let outcome = |outcome: &TrialOutcome| {
            let cause = |(object, counts): &(ObjectInfo, WalkCounts)| {
                json!({"name": object.name, "kind": object.kind.to_string(), "page_walks": counts.walks,
                       "page_walk_accesses": counts.entries})
            };
            json!({
                "page_walks": outcome.total.walks,
                "page_walk_accesses": outcome.total.entries,
                "extra_memory_bytes": outcome.extra_bytes,
                "causes": outcome.objects.iter().take(CAUSES).map(cause).collect::<Vec<_>>(),
            })
        };
        let trial = |(names, found): &(Vec<(String, u32)>, TrialOutcome)| {
            let mut trial = outcome(found);
            trial["objects"] = names.iter().map(|(_, id)| *id).collect();
            trial["names"] = names.iter().map(|(name, _)| name.as_str()).collect();
            trial
        };
        json!({
            "machine": self.machine,
            "exit_code": self.exit_code,
            "small_pages": outcome(&self.small),
            "huge_pages": self.trials.iter().map(trial).collect::<Vec<_>>(),
            "all_huge_pages": outcome(&self.all),
        })
    }
}

fn percent(part: u64, of: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / of.max(1) as f64)
}

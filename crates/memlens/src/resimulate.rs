//! What huge pages would do to a program's page walks: it runs once more under the exact collector, and the walks are
//! modelled with small pages, with each object in huge pages, with all of them, and with all that can be.

use std::ffi::OsString;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use memlens_apply::{Choice, Chosen, Method};
use memlens_bus::MemorySystem;
use memlens_bus::analysis::ObjectInfo;
use memlens_bus::resimulation::{Candidate, Resimulation, TrialOutcome, WalkCounts};
use memlens_exact::Extras;
use memlens_profile::{PredictedCause, PredictedPlacement, PredictedWalks, Prediction, keep_prediction};
use memlens_sim::{MachineDescription, ModelError};

use crate::bus_capture;
use crate::captured_process::{Watched, watch};
use crate::failure::{Failure, FailureKind};
use crate::streams::say;
use crate::system::SilentStdout;

/// Objects that get a trial of their own.
const ALONE: usize = 4;
/// Causes that are kept.
const CAUSES: usize = 10;

/// Runs a program under the exact collector and lets a model of memory know what it does; its output goes nowhere. The
/// model, and the program's exit code.
pub fn run_once_more<M: MemorySystem + 'static>(
    machine: &MachineDescription,
    command: &[OsString],
    extras: Extras,
    system: M,
) -> Result<(M, u8), Failure> {
    let scratch = std::env::temp_dir().join(format!("memlens-resimulation.{}", std::process::id()));
    let watched = Watched { extras, ..Watched::new(command, scratch)? };
    let silence = SilentStdout::begin().map_err(|error| {
        Failure::new(FailureKind::Io, format!("cannot keep the program's output apart: {error}"))
    })?;
    let (outcome, system) = watch(&watched, machine, system);
    drop(silence);
    let exit_code = outcome?;
    let lost = || Failure::new(FailureKind::Internal, "the page walks were not modelled".to_owned());
    Ok((system.ok_or_else(lost)?, exit_code))
}

/// A machine that cannot be modelled.
pub fn invalid(machine: &MachineDescription, error: &ModelError) -> Failure {
    Failure::new(FailureKind::Usage, format!("machine {}: {error}", machine.name))
}

/// Predicts a program's page walks by running it once more.
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
        .map_err(|error| invalid(machine, &error))?;
    let (system, exit_code) = run_once_more(machine, command, Extras::default(), system)?;
    let mut found = system.finish().into_iter();
    let (Some(small), Some(all)) = (found.next(), found.next()) else {
        return Err(Failure::new(FailureKind::Internal, "the page walks were not modelled".to_owned()));
    };
    let placement = |(set, outcome): (&Vec<usize>, TrialOutcome)| PredictedPlacement {
        objects: set.iter().map(|&at| chosen[at].id).collect(),
        names: set.iter().map(|&at| chosen[at].name.clone()).collect(),
        walks: walks(&outcome),
    };
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).ok();
    Ok(Prediction {
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        machine: machine.name.clone(),
        memlens_version: env!("CARGO_PKG_VERSION").to_owned(),
        made_unix_seconds: since_1970.map(|time| time.as_secs()),
        exit_code,
        small_pages: walks(&small),
        huge_pages: sets.iter().zip(found).map(placement).collect(),
        all_huge_pages: walks(&all),
    })
}

/// Keeps a prediction with the profile that it was made for; that it cannot be kept is no failure.
pub fn keep(profile: &Path, prediction: &Prediction) {
    if let Err(error) = keep_prediction(profile, prediction) {
        say(&format!("the prediction is not kept with the profile: {error}"));
    }
}

fn walks(outcome: &TrialOutcome) -> PredictedWalks {
    let cause = |(object, counts): &(ObjectInfo, WalkCounts)| PredictedCause {
        name: object.name.clone(),
        kind: object.kind.to_string(),
        page_walks: counts.walks,
        page_walk_accesses: counts.entries,
    };
    PredictedWalks {
        page_walks: outcome.walks.total.walks,
        page_walk_accesses: outcome.walks.total.entries,
        extra_memory_bytes: outcome.extra_bytes,
        causes: outcome.walks.objects.iter().take(CAUSES).map(cause).collect(),
    }
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

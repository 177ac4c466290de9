//! `memlens apply --prefetch`: prefetches put into a program, tried, measured, and withdrawn where they gain nothing.

use std::collections::BTreeMap;
use std::fmt::Write;

use memlens_apply::{
    Applied, Command, Estimate, Group, Pairs, PrefetchChoice, Prefetching, Trial, Variant, choose_prefetches,
    cpu, median, wall,
};
use memlens_profile::Profile;
use serde_json::{Value, json};

use crate::apply::{ApplyArgs, ApplyFormat, cannot_run, did_not_start};
use crate::apply_measured::{is_sure, must_be_same, percent, sameness, times, times_document, too_few_runs};
use crate::failure::{Failure, FailureKind};
use crate::run_progress::RunProgress;
use crate::streams;

/// Iterations ahead that are tried.
pub const DISTANCES: [u32; 4] = [8, 16, 32, 64];
/// Rounds of runs in which distances, then groups, are compared.
const ROUNDS: usize = 3;
/// Groups that are tried without, one at a time, at most.
const MAX_LEFT_OUT: usize = 6;
/// A group without which the program is faster by more is left out.
const LEAST_GAIN: f64 = 0.01;
/// What no gain here does not say.
pub const IN_SOURCE: &str =
    "In the source a prefetch costs less than the jumps that put one here, and may gain all the same.";

/// All that was found out.
struct Found {
    choice: PrefetchChoice,
    /// What became of each group in a run.
    applied: Vec<Applied>,
    /// Median processor time in seconds by distance; 0: without.
    distances: BTreeMap<u32, f64>,
    distance: u32,
    /// Which groups were measured.
    kept: Vec<usize>,
    /// Those left out because the program was faster without them.
    left_out: Vec<usize>,
    pairs: Pairs,
    /// Jumps to detours in the measured runs.
    jumps_written: u32,
}

/// Puts prefetches into a program, and measures what they gain.
pub fn apply(args: &ApplyArgs, profile: &Profile, command: &Command) -> Result<u8, Failure> {
    let choice = choose_prefetches(profile, &command.file);
    if choice.groups.is_empty() {
        return Err(Failure::new(FailureKind::Unavailable, nothing_to_do(&choice)));
    }
    let found = measure(choice, command, &args.distance, args.runs)?;
    match args.format {
        ApplyFormat::Table => streams::write_result(|out| out.write_all(table(&found).as_bytes()))?,
        ApplyFormat::Json => streams::write_json(&document(&found))?,
    }
    must_be_same(&found.pairs, "prefetches")
}

/// Why nothing is prefetched.
pub fn nothing_to_do(choice: &PrefetchChoice) -> String {
    let mut text = "no load to prefetch: the profile blames none that can be".to_owned();
    for load in &choice.refused {
        let _ = write!(text, "\n  {} ({:.1} %): {}", load.place, load.share * 100.0, load.reason);
    }
    text
}

/// One run more with each of some variants, [`ROUNDS`] times, in turns. Medians of processor time.
fn compare(
    command: &Command,
    variants: &[Variant],
    others: &mut Pairs,
    progress: &mut RunProgress,
) -> Result<Vec<f64>, Failure> {
    let mut seconds = vec![Vec::new(); variants.len()];
    for round in 0..ROUNDS {
        for at in 0..variants.len() {
            // Each is first once in a while.
            let at = (at + round) % variants.len();
            progress.next();
            let trial = memlens_apply::run(command, &variants[at], None)
                .map_err(|error| cannot_run(command, &error))?;
            seconds[at].push(cpu(&trial));
            let is_with = usize::from(!variants[at].environment.is_empty());
            others.others[is_with].push(trial);
        }
    }
    Ok(seconds.iter().map(|seconds| median(seconds).unwrap_or(0.0)).collect())
}

/// Looks whether prefetches get in, chooses distance and groups, measures.
fn measure(choice: PrefetchChoice, command: &Command, wanted: &[u32], runs: u32) -> Result<Found, Failure> {
    let all: Vec<&Group> = choice.groups.iter().collect();
    let plain = Variant::default();
    let mut pairs = Pairs::default();
    let tried = if wanted.is_empty() { &DISTANCES[..] } else { wanted };
    let tries = if runs > 0 && tried.len() > 1 { ROUNDS * (1 + tried.len()) } else { 0 };
    // With all groups, and without each, if there are several.
    let left_out_tries = |groups: usize| match groups {
        2..=MAX_LEFT_OUT if runs > 0 => ROUNDS * (1 + groups),
        _ => 0,
    };
    let most_left_out = left_out_tries(all.len().min(MAX_LEFT_OUT));
    let mut progress = RunProgress::new(1 + tries + most_left_out + 2 * runs as usize);
    progress.next();
    let first = Prefetching::new(&all, wanted.first().copied().unwrap_or(DISTANCES[1]))?;
    let trial =
        memlens_apply::run(command, &first.variant(), None).map_err(|error| cannot_run(command, &error))?;
    pairs.others[1].push(trial);
    if first.processes() == 0 {
        return Err(did_not_start());
    }
    let applied = first.applied();
    let in_place: Vec<usize> = (0..all.len()).filter(|&at| applied[at] == Applied::Yes).collect();
    let groups = |kept: &[usize]| kept.iter().map(|&at| &choice.groups[at]).collect::<Vec<&Group>>();
    let mut distances = BTreeMap::new();
    let mut distance = wanted.first().copied().unwrap_or(DISTANCES[1]);
    if tries > 0 && !in_place.is_empty() {
        let kept = groups(&in_place);
        let plans: Vec<Prefetching> =
            tried.iter().map(|&distance| Prefetching::new(&kept, distance)).collect::<Result<_, _>>()?;
        let variants: Vec<Variant> =
            std::iter::once(plain.clone()).chain(plans.iter().map(Prefetching::variant)).collect();
        let seconds = compare(command, &variants, &mut pairs, &mut progress)?;
        distances = std::iter::once(0).chain(tried.iter().copied()).zip(seconds.iter().copied()).collect();
        let best = tried.iter().zip(&seconds[1..]).min_by(|first, second| first.1.total_cmp(second.1));
        distance = best.map_or(distance, |(&distance, _)| distance);
    } else {
        progress.spare(tries);
    }
    let (mut kept, mut left_out) = (in_place.clone(), Vec::new());
    let left_out_runs = left_out_tries(in_place.len());
    progress.spare(most_left_out - left_out_runs);
    if left_out_runs > 0 {
        let without = |at: usize| in_place.iter().copied().filter(|&other| other != at).collect::<Vec<_>>();
        let mut plans = vec![Prefetching::new(&groups(&in_place), distance)?];
        for &at in &in_place {
            plans.push(Prefetching::new(&groups(&without(at)), distance)?);
        }
        let variants: Vec<Variant> = plans.iter().map(Prefetching::variant).collect();
        let seconds = compare(command, &variants, &mut pairs, &mut progress)?;
        for (&at, &without) in in_place.iter().zip(&seconds[1..]) {
            if without < seconds[0] * (1.0 - LEAST_GAIN) {
                left_out.push(at);
            }
        }
        // Each was the worse one of two that do the same: keep the one with the larger share.
        if left_out.len() == in_place.len() {
            left_out.remove(0);
        }
        kept.retain(|at| !left_out.contains(at));
    }
    let mut jumps_written = 0;
    if !kept.is_empty() {
        let plan = Prefetching::new(&groups(&kept), distance)?;
        pairs
            .run(command, [&plain, &plan.variant()], runs, || progress.next())
            .map_err(|error| cannot_run(command, &error))?;
        jumps_written = plan.jumps_written();
    }
    Ok(Found { choice, applied, distances, distance, kept, left_out, pairs, jumps_written })
}

/// What the measurement says.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    /// Faster: by time, or by processor time where the time itself is not sure.
    Gain(Estimate, &'static str),
    /// Not surely.
    Withdrawn,
    TooFewRuns,
}

fn verdict(pairs: &Pairs) -> Verdict {
    let (Some(time), Some(processor)) = (pairs.change(wall), pairs.change(cpu)) else {
        return Verdict::TooFewRuns;
    };
    if !is_sure(&time) {
        return Verdict::TooFewRuns;
    }
    if time.high < 0.0 {
        return Verdict::Gain(time, "time");
    }
    if processor.high < 0.0 && time.change < 0.0 {
        return Verdict::Gain(processor, "processor time");
    }
    Verdict::Withdrawn
}

fn state(found: &Found, at: usize) -> String {
    match found.applied[at].reason() {
        Some(reason) => format!("not in place: {reason}"),
        None if found.left_out.contains(&at) => "withdrawn: the program is faster without it".to_owned(),
        None => match verdict(&found.pairs) {
            Verdict::Withdrawn => "withdrawn: no gain that is sure".to_owned(),
            _ => format!(
                "{} iterations ahead",
                found.distance.min(found.choice.groups[at].detour.max_distance)
            ),
        },
    }
}

/// The loads of a choice, with what became of each group.
pub fn loads_table(choice: &PrefetchChoice, state: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{:<34} {:>7}  {:<34} {:<28}", "load", "share", "pattern", "loop");
    for (at, group) in choice.groups.iter().enumerate() {
        for load in &group.loads {
            let _ = writeln!(
                text,
                "{:<34} {:>5.1} %  {:<34} {}",
                load.place,
                load.share * 100.0,
                load.pattern,
                load.looped
            );
        }
        let _ = writeln!(text, "    {}", state(at));
    }
    for load in &choice.refused {
        let _ = writeln!(text, "not {} ({:.1} %): {}", load.place, load.share * 100.0, load.reason);
    }
    text.push('\n');
    text
}

fn table(found: &Found) -> String {
    let mut text = loads_table(&found.choice, |at| state(found, at));
    if !found.distances.is_empty() {
        let list: Vec<String> = found
            .distances
            .iter()
            .map(|(distance, seconds)| match distance {
                0 => format!("without {seconds:.3} s"),
                _ => format!("{distance} ahead {seconds:.3} s"),
            })
            .collect();
        let _ = writeln!(text, "processor time when tried: {}\n", list.join(", "));
    }
    if !found.pairs.pairs.is_empty() {
        text += &times(&found.pairs);
        text.push('\n');
    }
    for line in sentences(found) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// What it comes to.
fn sentences(found: &Found) -> Vec<String> {
    let mut lines = vec![match verdict(&found.pairs) {
        _ if found.kept.is_empty() => "No prefetch got into the program.".to_owned(),
        Verdict::Gain(estimate, what) => format!(
            "With prefetches the program takes {:.1} % less {what} ({:.2} times the speed).",
            -estimate.change * 100.0,
            1.0 / (1.0 + estimate.change)
        ),
        Verdict::TooFewRuns => too_few_runs(),
        Verdict::Withdrawn => {
            let change = found.pairs.change(wall);
            let percents = change.as_ref().map_or_else(String::new, percent);
            match change.is_some_and(|estimate| estimate.low > 0.0) {
                true => {
                    format!(
                        "The program takes longer with them ({percents}): the prefetches are withdrawn. {IN_SOURCE}"
                    )
                }
                false => format!(
                    "No gain that could be told from chance ({percents}): the prefetches are withdrawn. {IN_SOURCE}"
                ),
            }
        }
    }];
    lines.extend(sameness(&found.pairs, "prefetches"));
    lines
}

/// The groups of a choice with their loads, and the loads that are refused, for programs. `is_measured` by group.
pub fn choice_document(
    choice: &PrefetchChoice,
    applied: &[Applied],
    is_measured: impl Fn(usize) -> bool,
    state: impl Fn(usize) -> String,
) -> (Vec<Value>, Vec<Value>) {
    let groups = choice.groups.iter().enumerate().map(|(at, group)| {
        let loads: Vec<Value> = group
            .loads
            .iter()
            .map(|load| {
                json!({
                    "offset": format!("{:#x}", load.svma), "share": load.share, "place": load.place,
                    "pattern": load.pattern, "loop": load.looped,
                    "kind": match &load.kind {
                        memlens_apply::Pattern::Strided { .. } => "strided",
                        memlens_apply::Pattern::Indirect { .. } => "indirect",
                    },
                })
            })
            .collect();
        json!({
            "module": group.module.display().to_string(),
            "offset": format!("{:#x}", group.detour.address),
            "displaced_bytes": group.detour.displaced.len(),
            "saved_registers": group.detour.saved,
            "loads": loads,
            "in_place": applied[at] == Applied::Yes,
            "measured": is_measured(at),
            "state": state(at),
        })
    });
    let refused = choice.refused.iter().map(|load| {
        json!({
            "offset": format!("{:#x}", load.svma), "share": load.share, "place": load.place,
            "reason": load.reason,
        })
    });
    (groups.collect(), refused.collect())
}

fn document(found: &Found) -> Value {
    let (groups, refused) =
        choice_document(&found.choice, &found.applied, |at| found.kept.contains(&at), |at| state(found, at));
    let tried = found
        .distances
        .iter()
        .map(|(distance, seconds)| json!({"distance": distance, "cpu_seconds": seconds}));
    let memory = |which| found.pairs.values(which, |trial: &Trial| trial.max_resident_bytes as f64);
    json!({
        "schema": "memlens-apply-prefetch/1",
        "groups": groups,
        "refused": refused,
        "tried": tried.collect::<Vec<_>>(),
        "distance": found.distance,
        "jumps_written": found.jumps_written,
        "wall_seconds": times_document(&found.pairs, wall),
        "cpu_seconds": times_document(&found.pairs, cpu),
        "max_resident_bytes": {"without": memory(0), "with": memory(1)},
        "is_gain": matches!(verdict(&found.pairs), Verdict::Gain(..)),
        "same_output": found.pairs.is_deterministic().then(|| found.pairs.is_same()),
        "verdict": sentences(found),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_apply::{End, Output};
    use std::time::Duration;

    fn trial(wall: u64, cpu: u64) -> Trial {
        Trial {
            wall: Duration::from_millis(wall),
            cpu: Duration::from_millis(cpu),
            max_resident_bytes: 1 << 20,
            page_walks: None,
            end: End::Code(0),
            output: [Some(Output::default()); 2],
        }
    }

    fn pairs(with: [(u64, u64); 6]) -> Pairs {
        let pairs = with.map(|(wall, cpu)| [trial(1000, 900), trial(wall, cpu)]);
        Pairs { pairs: pairs.to_vec(), ..Pairs::default() }
    }

    #[test]
    fn only_what_is_sure_is_kept() {
        let faster = pairs([(700, 600), (710, 610), (690, 600), (800, 700), (750, 650), (720, 620)]);
        assert!(matches!(verdict(&faster), Verdict::Gain(_, "time")));
        let busy = pairs([(1100, 600), (900, 610), (800, 600), (990, 700), (950, 650), (980, 620)]);
        assert!(matches!(verdict(&busy), Verdict::Gain(_, "processor time")));
        let none = pairs([(1100, 910), (900, 890), (800, 900), (990, 910), (950, 890), (980, 900)]);
        assert_eq!(verdict(&none), Verdict::Withdrawn);
        let slower = pairs([(1100, 600); 6]);
        assert_eq!(verdict(&slower), Verdict::Withdrawn, "less processor time, but later");
        let few = Pairs { pairs: vec![[trial(1000, 900), trial(500, 400)]], ..Pairs::default() };
        assert_eq!(verdict(&few), Verdict::TooFewRuns);
    }
}

//! What a reader of two profiles has to know before their figures: of what they are, what makes them unlike, what is different in all.

use memlens_profile::{MERGED_FROM, Profile};
use serde_json::{Value, json};

use crate::grid::wrap;
use crate::header::command;
use crate::known::Known;
use crate::number::{UNKNOWN, count, seconds};
use crate::unlike::{is_modelled, machine_differences};
use crate::{Column, View};

/// What is held against each other.
pub(crate) struct Compared {
    /// What is told of besides the totals, and how much there is of it in A and in B.
    pub(crate) amount: Option<(Column, [f64; 2])>,
    /// What makes the profiles unlike.
    pub(crate) unlike: Vec<String>,
    /// Of how many runs, of which the mean is told, A's and B's counts are.
    pub(crate) runs: [usize; 2],
}

/// Lines with labels, which take `indent` columns; `labels`: those of A and B.
pub(crate) fn pair_header(
    labels: [&str; 2],
    a: &Profile,
    b: &Profile,
    compared: &Compared,
    indent: usize,
    view: &View,
) -> String {
    let (width, colour) = (view.width, view.colour);
    let mut out = String::new();
    for ((label, profile), runs) in labels.into_iter().zip([a, b]).zip(compared.runs) {
        let estimated = if profile.run.estimated { "estimated" } else { "counted" };
        let mut pieces = vec![command(profile), format!("{} mode", profile.run.mode), estimated.to_owned()];
        pieces.extend((runs > 1).then(|| format!("mean of {runs} runs")));
        // Their counts are added up.
        pieces.extend(profile.run.notes.iter().filter(|note| note.starts_with(MERGED_FROM)).cloned());
        out += &wrap(label, indent, &pieces, width, colour);
    }
    let (totals, mut estimated) = (total_pieces(a, b, compared), estimate_pieces(a, b));
    if totals.is_empty() {
        estimated.clear();
    }
    let lines = [
        ("unlike", compared.unlike.clone()),
        ("machines", machine_pieces(a, b)),
        ("A → B", totals),
        ("estimated", estimated),
    ];
    for (label, pieces) in lines {
        if !pieces.is_empty() {
            out += &wrap(label, indent, &pieces, width, colour);
        }
    }
    out
}

/// What is different of the machines that were modelled, and what that does; whether latencies are assumed.
fn machine_pieces(a: &Profile, b: &Profile) -> Vec<String> {
    if !is_modelled(a) || !is_modelled(b) {
        return Vec::new();
    }
    let mut pieces = machine_differences(a, b);
    if !pieces.is_empty() {
        pieces.push("so the same misses wait differently".to_owned());
    }
    let whose = match [a, b].map(|profile| profile.machine.has_assumed_latencies) {
        [true, true] => "",
        [true, false] => " in A",
        [false, true] => " in B",
        [false, false] => return pieces,
    };
    pieces.push(format!("latencies are assumed{whose} (memlens calibrate measures them)"));
    pieces
}

/// What is different in all: of two profiles of one mode how long they took, of those that count accesses how many.
fn total_pieces(a: &Profile, b: &Profile, compared: &Compared) -> Vec<String> {
    let mut pieces = Vec::new();
    if let (true, Some(of_a), Some(of_b)) = (a.run.mode == b.run.mode, a.run.wall_seconds, b.run.wall_seconds)
    {
        // An exact run is mostly recording.
        let recorded = if a.run.mode == "exact" { " while recorded" } else { "" };
        pieces.push(format!("{} → {}{}{recorded}", seconds(of_a), seconds(of_b), factor(of_a, of_b)));
    }
    let totals = totals(a, b, compared.runs);
    let piece = |word: &str, of_a: u64, of_b: u64| {
        format!("{word} {} → {}{}", count(of_a), count(of_b), factor(of_a as f64, of_b as f64))
    };
    // What is compared is counted, or samples.
    if let Some((by, [sum_a, sum_b])) = compared.amount
        && !matches!(by, Column::Share | Column::StallCycles)
    {
        let by = by.in_words();
        if !totals.iter().any(|(word, ..)| *word == by) {
            pieces.push(piece(&by, sum_a.round() as u64, sum_b.round() as u64));
        }
    }
    let some = totals.into_iter().filter(|&(_, of_a, of_b)| of_a > 0 || of_b > 0);
    pieces.extend(some.map(|(word, of_a, of_b)| piece(word, of_a, of_b)));
    pieces.extend(core_piece(a, b));
    pieces
}

/// How many times as much, where both have it.
pub(crate) fn times(of_a: f64, of_b: f64) -> String {
    match of_b / of_a {
        _ if of_a <= 0.0 || of_b <= 0.0 => UNKNOWN.to_owned(),
        times if times < 0.01 => "<0.01".to_owned(),
        times if times < 100.0 => format!("{times:.2}"),
        times => count(times.round() as u64),
    }
}

/// Whose core cycles are the model's alone, where the other's are bounded by what was measured: they are not alike.
fn core_piece(a: &Profile, b: &Profile) -> Option<String> {
    let is_measured = |profile: &Profile| {
        let run = &profile.run;
        run.core_cycles.filter(|_| profile.has_stalls()).map(|_| run.measured_cycles.is_some())
    };
    let (modelled, measured) = match (is_measured(a)?, is_measured(b)?) {
        (false, true) => ("A", "B"),
        (true, false) => ("B", "A"),
        _ => return None,
    };
    Some(format!("of these {modelled}'s as modelled, {measured}'s no more than were measured"))
}

/// What both profiles know of all accesses: each total's word, and its value in A and in B, the mean of so many `runs`.
fn totals(a: &Profile, b: &Profile, runs: [usize; 2]) -> Vec<(&'static str, u64, u64)> {
    // A bus sees the walks that caches do not hold.
    if [a, b].iter().any(|profile| profile.run.sampling.is_some()) || a.is_of_bus() != b.is_of_bus() {
        return Vec::new();
    }
    type Total = (&'static str, fn(&Known, &Profile) -> Option<u64>);
    const TOTALS: [Total; 11] = [
        ("accesses", |known, profile| known.loads.map(|_| profile.totals().accesses())),
        ("L1 misses", |known, profile| known.l1_load_misses.map(|_| profile.totals().l1_misses())),
        ("LLC misses", |known, profile| known.llc_load_misses.map(|_| profile.totals().llc_misses())),
        ("coherence misses", |known, _| known.coherence_misses),
        ("false sharing", |known, _| known.false_sharing),
        ("remote misses", |known, _| known.remote_misses),
        ("page walks", |known, _| known.stlb_misses),
        ("wait cycles", |_, profile| (!profile.is_of_bus()).then(|| profile.wait_cycles(&profile.totals()))),
        ("stall cycles", |_, profile| profile.has_stalls().then(|| profile.totals().stall_cycles)),
        // Of the whole program, work that waits for nothing included: what comes nearest to time.
        ("core cycles", |_, profile| profile.run.core_cycles.filter(|_| profile.has_stalls())),
        // What bursts measured of it, which no model stands between.
        ("measured cycles", |_, profile| profile.run.measured_cycles),
    ];
    let [of_a, of_b] = [a, b].map(|profile| Known::new(profile, &profile.totals(), true));
    let [runs_a, runs_b] = runs.map(|runs| runs as u64);
    let both = |(word, of): Total| Some((word, of(&of_a, a)? / runs_a, of(&of_b, b)? / runs_b));
    TOTALS.into_iter().filter_map(both).collect()
}

/// The same for programs.
pub(crate) fn totals_json(a: &Profile, b: &Profile, runs: [usize; 2]) -> Value {
    let one = |(word, of_a, of_b): (&str, u64, u64)| json!({"of": word.replace(' ', "_").to_lowercase(), "a": of_a, "b": of_b});
    totals(a, b, runs).into_iter().map(one).collect()
}

/// ` (× 0.25)`, where it is a change.
pub(crate) fn factor(of_a: f64, of_b: f64) -> String {
    let factor = of_b / of_a;
    match factor {
        _ if of_a <= 0.0 || (factor - 1.0).abs() < 0.005 => String::new(),
        factor if factor < 0.01 => " (× <0.01)".to_owned(),
        factor if factor < 10.0 => format!(" (× {factor:.2})"),
        factor => format!(" (× {})", count(factor.round() as u64)),
    }
}

/// How far totals of single runs in burst mode are off; nothing where neither profile is of one, or no totals are shown.
fn estimate_pieces(a: &Profile, b: &Profile) -> Vec<String> {
    let whose = match [a, b].map(|profile| profile.run.mode == "burst") {
        [false, false] => return Vec::new(),
        [true, false] => "A's totals come",
        [false, true] => "B's totals come",
        [true, true] => "totals come",
    };
    vec![
        format!("{whose} from bursts: typically off by a factor of 1.3"),
        "those of short runs, misses and cycles by more".to_owned(),
        "shares are surer".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_core_was_measured_is_told() {
        let of = |core_cycles, measured_cycles| {
            let mut profile = Profile::default();
            profile.machine.core = Some(memlens_profile::CoreInfo::default());
            (profile.run.core_cycles, profile.run.measured_cycles) = (core_cycles, measured_cycles);
            profile
        };
        let (modelled, measured, neither) = (of(Some(9), None), of(Some(9), Some(9)), of(None, None));
        let piece = core_piece(&modelled, &measured).expect("they differ");
        assert_eq!(piece, "of these A's as modelled, B's no more than were measured");
        assert!(core_piece(&measured, &modelled).expect("they differ").contains("B's as modelled"));
        assert_eq!(core_piece(&measured, &measured), None);
        assert_eq!(core_piece(&modelled, &neither), None);
    }
}

//! What pairs of runs come to, whatever was done to the program.

use std::fmt::Write;

use memlens_apply::{Estimate, Pairs, Trial, cpu, walks, wall};
use memlens_report::short_count;
use serde_json::{Value, json};

use crate::apply_pages::bytes;
use crate::failure::{Failure, FailureKind};

/// Fails if the program did something else with `what` than without.
pub fn must_be_same(pairs: &Pairs, what: &str) -> Result<u8, Failure> {
    if pairs.is_deterministic() && !pairs.is_same() {
        let message = format!(
            "the program did something else with {what} than without: do not use them for it, and report this as a \
             fault of memlens"
        );
        return Err(Failure::new(FailureKind::Internal, message));
    }
    Ok(0)
}

/// What the runs took.
pub fn times(pairs: &Pairs) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "median of {} pairs of runs    without       with     change in pairs",
        pairs.pairs.len()
    );
    for (name, of) in [("time", wall as fn(&Trial) -> f64), ("processor time", cpu)] {
        let _ = writeln!(
            text,
            "{name:<24} {:>10.3} s {:>8.3} s  {}",
            pairs.median(0, of),
            pairs.median(1, of),
            pairs.change(of).map_or_else(String::new, |estimate| percent(&estimate))
        );
    }
    if pairs.are_walks_counted() {
        let counted = [0, 1].map(|which| short_count(pairs.median(which, walks) as u64));
        let change = pairs.change(walks).map_or_else(String::new, |estimate| percent(&estimate));
        let _ =
            writeln!(text, "{:<24} {:>12} {:>10}  {change}", "page walks, counted", counted[0], counted[1]);
    }
    let memory = [0, 1].map(|which| pairs.median(which, |trial| trial.max_resident_bytes as f64) as u64);
    let _ = writeln!(text, "{:<24} {:>12} {:>10}", "most memory", bytes(memory[0]), bytes(memory[1]));
    text
}

/// A change with its interval.
pub fn percent(estimate: &Estimate) -> String {
    let value = |value: f64| value * 100.0;
    let (change, low, high) = (value(estimate.change), value(estimate.low), value(estimate.high));
    let coverage = value(estimate.coverage);
    format!("{change:+.1} % ({low:+.1} to {high:+.1} %, {coverage:.0} % interval)")
}

/// Whether the program did the same with and without `what`.
pub fn sameness(pairs: &Pairs, what: &str) -> Vec<String> {
    let mut lines = vec![match (pairs.is_same(), pairs.is_deterministic()) {
        (true, _) => "Output and exit code were the same in all runs.".to_owned(),
        (false, true) => format!("OUTPUT OR EXIT CODE DIFFER WITH {}.", what.to_uppercase()),
        (false, false) => {
            format!("Output or exit code differ from run to run without {what}, too: they were not compared.")
        }
    }];
    if !pairs.succeeded() {
        lines.push("Some runs did not end with exit code 0.".to_owned());
    }
    lines
}

/// So many pairs of runs are enough for [`is_sure`]: all of fewer may go the same way by chance in more than one of twenty programs (2 × 2⁻⁵).
pub const FEWEST_RUNS: u32 = 6;

/// What is said of fewer.
pub fn too_few_runs() -> String {
    format!("Too few runs to tell a gain from chance: --runs {FEWEST_RUNS} or more.")
}

/// Whether there were enough runs to tell a gain from chance.
pub fn is_sure(estimate: &Estimate) -> bool {
    estimate.coverage >= 0.95
}

/// All values and the change, for programs.
pub fn times_document(pairs: &Pairs, of: fn(&Trial) -> f64) -> Value {
    let estimate = pairs.change(of).map(|estimate| {
        json!({"estimate": estimate.change, "low": estimate.low, "high": estimate.high, "coverage": estimate.coverage})
    });
    json!({"without": pairs.values(0, of), "with": pairs.values(1, of), "change": estimate})
}

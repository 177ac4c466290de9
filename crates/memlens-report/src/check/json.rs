//! A check for programs.

use memlens_profile::Profile;
use serde_json::{Value, json};

use super::hold::{Check, Held, Verdict};

/// What the first key of the JSON says.
pub const CHECK_SCHEMA: &str = "memlens-check/1";

/// The whole check; schema [`CHECK_SCHEMA`]. Unknown is `null`.
pub fn check_json(profile: &Profile, baseline: Option<&Profile>, check: &Check) -> Value {
    let run = |profile: &Profile| {
        json!({
            "command": profile.run.command,
            "mode": profile.run.mode,
            "estimated": profile.run.estimated,
            "lost_events": profile.attribution.lost_events,
        })
    };
    let held = |held: &Held| {
        json!({
            "name": held.name,
            "kind": held.kind.map(|kind| kind.as_str()),
            "where": held.place,
            "ids": held.ids,
            "value": held.value,
            "baseline": held.baseline,
            "limit": held.limit,
            "excess": held.excess(),
            "excess_ci95": held.excess_interval.map(|(low, high)| [low, high]),
            "verdict": held.verdict.as_str(),
        })
    };
    json!({
        "schema": CHECK_SCHEMA,
        "passes": check.passes(),
        "failing": check.count(Verdict::Fails),
        "unsure": check.count(Verdict::Unsure),
        "profile": run(profile),
        "baseline": baseline.map(run),
        "conditions": check.conditions.iter().map(|condition| json!({
            "fail_if": condition.condition.to_string(),
            "verdict": condition.verdict().as_str(),
            "held": condition.held.iter().map(held).collect::<Vec<_>>(),
            "left_out": condition.left_out,
        })).collect::<Vec<_>>(),
    })
}

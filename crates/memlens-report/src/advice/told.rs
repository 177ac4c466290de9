//! All that is said of a profile's findings, before it is text or a page.

use memlens_analysis::{Advice, Finding, LEAST_GAIN, LEAST_TIME_GAIN, Remedy};
use memlens_profile::{ObjectIx, Profile};
use serde::Serialize;

use super::remedy::{comes_by_steps, in_same_loops, to_do, together};
use super::words::{at_most, evidence, name, object, percent, title};
use crate::zero_pages::never_written;

/// From this part of the core's time on stalls are much.
const MUCH_STALLED: f64 = 0.05;
/// Titles of hidden findings that are named.
const MOST_HIDDEN: usize = 3;

/// What is said, in this order.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Told {
    /// Paragraphs in front of the findings.
    pub(crate) before: Vec<String>,
    /// The findings, the largest gain first; of those that one exchange of loops is for, the first one with the others' names.
    pub(crate) findings: Vec<ToldFinding>,
    /// Paragraphs behind them.
    pub(crate) after: Vec<String>,
    /// How gains are to be read; None where there are none.
    pub(crate) caveat: Option<String>,
}

/// One finding.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ToldFinding {
    /// What it is about.
    pub(crate) title: String,
    /// What it could gain.
    pub(crate) gain: String,
    /// What shows it, a line each.
    pub(crate) evidence: Vec<String>,
    /// What to do.
    pub(crate) to_do: String,
    /// What memlens itself can do about it, or why it cannot.
    pub(crate) how: Option<String>,
    /// The number of the costliest object that it is about …
    pub(crate) object: Option<u32>,
    /// … and of those that it names beside it: a page has them, too.
    #[serde(skip)]
    pub(crate) others: Vec<u32>,
}

impl Told {
    /// What `advice` says of a profile. `how` has the line of a finding that says what memlens can do about it.
    pub(crate) fn new(profile: &Profile, advice: &Advice, how: &dyn Fn(&Finding) -> Option<String>) -> Self {
        let Advice { findings, hidden, without_remedy } = advice;
        if profile.totals().accesses() == 0 {
            let nothing = "The profile holds no accesses: there is nothing to advise on.".to_owned();
            let notes = profile.run.notes.iter().chain(&profile.attribution.notes).cloned();
            return Self { before: std::iter::once(nothing).chain(notes).collect(), ..Self::default() };
        }
        let without = without_words(profile, without_remedy);
        if findings.is_empty() && hidden.is_empty() {
            let least = percent(LEAST_GAIN);
            let nothing = format!(
                "Nothing that memlens knows a remedy for makes {least} of the wait. memlens report shows what there is."
            );
            return Self { before: std::iter::once(nothing).chain(without).collect(), ..Self::default() };
        }
        let mut told = Self { before: never_written(profile).into_iter().collect(), ..Self::default() };
        // Where nothing else is to be done, they are told in full.
        let found = if findings.is_empty() { hidden } else { findings };
        if findings.is_empty() {
            told.before.push(all_is_hidden(profile, hidden));
        }
        let mut with_others: Vec<&Finding> = Vec::new();
        for finding in found {
            if with_others.iter().any(|told| std::ptr::eq(*told, finding)) {
                continue;
            }
            let mut others = in_same_loops(profile, finding, found);
            others.retain(|other| !with_others.iter().any(|told| std::ptr::eq(*told, *other)));
            told.findings.push(told_finding(profile, finding, &others, how));
            with_others.extend(others);
        }
        if !findings.is_empty() && !hidden.is_empty() {
            told.after.push(left_out(profile, hidden));
        }
        told.after.extend(without);
        told.caveat = Some(caveat(profile, found));
        told
    }
}

fn told_finding(
    profile: &Profile,
    finding: &Finding,
    others: &[&Finding],
    how: &dyn Fn(&Finding) -> Option<String>,
) -> ToldFinding {
    let of_time = finding.time_gain.map(|gain| {
        let of_measured = profile.of_measured_time(gain);
        let of_measured =
            of_measured.map_or_else(String::new, |part| format!(" ({} of the measured)", percent(part)));
        format!(", about {} of the modelled time{of_measured}", percent(gain))
    });
    let gain =
        format!("{} {} of the wait{}", at_most(finding), percent(finding.gain), of_time.unwrap_or_default());
    let mut lines = evidence(profile, finding);
    lines.extend(together(profile, finding, others));
    ToldFinding {
        title: title(profile, finding),
        gain,
        evidence: lines,
        to_do: to_do(profile, finding),
        how: how(finding),
        object: object(profile, finding).map(|object| object.id),
        others: others.iter().filter_map(|other| object(profile, other)).map(|object| object.id).collect(),
    }
}

/// Said where the modelled core hides all that there would be a remedy for.
fn all_is_hidden(profile: &Profile, hidden: &[Finding]) -> String {
    let hides = match stall_part(profile) {
        Some(part) if part >= MUCH_STALLED => {
            format!(
                "what follows is behind other work there, and the {} that it stalls are something else's",
                percent(part)
            )
        }
        _ => "it hides nearly all of what follows behind other work".to_owned(),
    };
    let of_time = percent(LEAST_TIME_GAIN);
    format!(
        "Nothing that is known here makes {of_time} of the modelled core's time: {hides}.\n{}",
        caution(profile, hidden)
    )
}

/// What was not told in full since the modelled core hides it.
fn left_out(profile: &Profile, hidden: &[Finding]) -> String {
    let shown = hidden.iter().take(MOST_HIDDEN);
    let mut titles: Vec<String> = shown
        .map(|finding| format!("{} ({} of the wait)", title(profile, finding), percent(finding.gain)))
        .collect();
    if hidden.len() > MOST_HIDDEN {
        titles.push(format!("{} more", hidden.len() - MOST_HIDDEN));
    }
    format!(
        "Left out, since the modelled core hides all but {} of its time: {}.\n{}",
        percent(LEAST_TIME_GAIN),
        titles.join(", "),
        caution(profile, hidden)
    )
}

/// How to see whether what is hidden is.
fn caution(profile: &Profile, hidden: &[Finding]) -> String {
    let is_prefetch = |finding: &Finding| matches!(finding.remedy, Remedy::Prefetch { .. });
    let measured = match hidden.iter().any(|finding| is_prefetch(finding) && comes_by_steps(profile, finding))
    {
        true => ", memlens apply --prefetch what a prefetch gains",
        false => "",
    };
    format!(
        "The model may hide too much: memlens run --mode sample shows whether the program spends time there{measured}."
    )
}

/// How the gains of these findings are to be read.
fn caveat(profile: &Profile, found: &[Finding]) -> String {
    let estimated = match profile.run.too_few_bursts() {
        Some(few) => format!(
            " Counts are estimates from bursts that tell as much as {:.0} of equal parts of the run: another run may say otherwise, \
             and a longer one or --overhead says more.",
            few.max(1.0)
        ),
        None if profile.run.estimated => " Counts are estimates.".to_owned(),
        None => String::new(),
    };
    let is_shared =
        |finding: &Finding| matches!(finding.remedy, Remedy::Separate { .. } | Remedy::PerThread { .. });
    let shared = match found.iter().any(is_shared) {
        true => format!(
            " A line from another core takes {} cycles here, more between sockets.",
            profile.machine.transfer_cycles()
        ),
        false => String::new(),
    };
    let time = match found.iter().any(|finding| finding.time_gain.is_some()) {
        true if profile.has_more_stalls_than_time() => {
            " Of the time they are what a modelled core saves, which stalls more by itself than the measured time has room for; real ones have saved \
             more and less."
        }
        true => " Of the time they are what a modelled core saves; real ones have saved more and less.",
        false => "",
    };
    let unexplained = profile.unexplained_part().map_or_else(String::new, |part| {
        format!(
            " The model has nothing for {} of the time that the code took by itself: what it says of the time is said of the rest, and remedies may \
             gain more than that, or nothing.",
            percent(part)
        )
    });
    let assumed = match profile.machine.has_assumed_latencies {
        true => {
            " Latencies are assumed: `memlens calibrate` measures this machine's, and runs after it go by them."
        }
        false => "",
    };
    format!(
        "Gains are at most so much of the modelled wait, where each access waits by itself; they do not add up, and what other objects gain by room \
         in caches and TLBs is not in them.{shared}{time}{unexplained}{estimated}{assumed}"
    )
}

/// The part of the modelled core's time that is stalls; None: no core was modelled.
fn stall_part(profile: &Profile) -> Option<f64> {
    let cycles = profile.run.core_cycles.filter(|&cycles| cycles > 0 && profile.has_stalls())?;
    Some(profile.totals().stall_cycles as f64 / cycles as f64)
}

/// What waits much and has no remedy here.
fn without_words(profile: &Profile, rows: &[(Vec<ObjectIx>, f64)]) -> Option<String> {
    let what = if profile.has_stalls() { "the stalls" } else { "the wait" };
    let word = |(row, share): &(Vec<ObjectIx>, f64)| {
        Some(format!("{} ({} of {what})", name(profile, *row.first()?), percent(*share)))
    };
    let words: Vec<String> = rows.iter().take(MOST_HIDDEN).filter_map(word).collect();
    let more = "memlens report --object NAME shows the code that touches it";
    (!words.is_empty()).then(|| {
        format!(
            "No remedy that gains {:.0} % is known here for {}; {more}.",
            100.0 * LEAST_GAIN,
            words.join(", ")
        )
    })
}

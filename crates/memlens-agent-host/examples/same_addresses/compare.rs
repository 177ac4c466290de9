//! Finds each burst in what exact mode recorded.

use std::collections::HashSet;
use std::fmt::Write;

use crate::bursts::Bursts;
use crate::exact::{Exact, Thread};
use crate::sequence::{Codes, Sequence};
use crate::shifts::Shifts;

/// Differences that are described; bursts behind so many are not looked at.
const MOST_DESCRIBED: usize = 5;

/// Places of a burst that are no farther apart are told apart.
const NEAR: usize = 5_000_000;

/// What came out. Units: accesses, unless the name says otherwise.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Recorded by exact mode.
    exact: u64,
    /// Bursts that were found, and accesses of theirs.
    bursts: u64,
    compared: u64,
    /// Bursts that were not found, and accesses of theirs behind the first that differs.
    different_bursts: u64,
    different: u64,
    /// In bursts behind those.
    not_looked_at: u64,
    /// In bursts whose place is not certain: they are compared with nothing.
    unplaced: u64,
    /// Left out, by bursts.
    agents: u64,
    unknown: u64,
    /// Bursts that could not be reported or decoded.
    lost: u64,
    /// Pages with a shift, and different shifts.
    pages: usize,
    shifts: usize,
    /// Whether both runs ended in the same way.
    ended_alike: bool,
    descriptions: Vec<String>,
}

impl Outcome {
    pub fn is_same(&self) -> bool {
        self.compared > 0 && self.different_bursts == 0 && self.ended_alike
    }

    pub fn json(&self) -> String {
        let numbers = [
            ("exact", self.exact),
            ("bursts", self.bursts),
            ("compared", self.compared),
            ("different_bursts", self.different_bursts),
            ("different", self.different),
            ("not_looked_at", self.not_looked_at),
            ("unplaced", self.unplaced),
            ("agents", self.agents),
            ("unknown", self.unknown),
            ("lost", self.lost),
            ("pages", self.pages as u64),
            ("shifts", self.shifts as u64),
        ];
        let mut text = String::from("{");
        for (name, number) in numbers {
            let _ = write!(text, "\"{name}\": {number}, ");
        }
        let _ = write!(text, "\"ended_alike\": {}, \"descriptions\": [", self.ended_alike);
        let quoted: Vec<String> =
            self.descriptions.iter().map(|line| format!("\"{}\"", line.replace(['"', '\\'], "?"))).collect();
        let _ = writeln!(text, "{}]}}", quoted.join(", "));
        text
    }
}

pub fn compare(exact: &Exact, bursts: &Bursts, codes: &Codes) -> Outcome {
    let mut outcome = Outcome {
        agents: bursts.agents_accesses,
        unknown: bursts.unknown_accesses,
        lost: bursts.lost + bursts.undecoded,
        ended_alike: exact.outcome == bursts.outcome,
        ..Outcome::default()
    };
    let mut shifts = Shifts::new((bursts.strings_start, exact.strings_start));
    // Threads have numbers in the order in which they began, in both runs.
    for (thread, list) in exact.threads.iter().zip(bursts.threads.values()) {
        let without_unknown;
        let known = match bursts.unknown.is_empty() {
            true => thread,
            false => {
                without_unknown = without(thread, &bursts.unknown);
                &without_unknown
            }
        };
        outcome.exact += known.sequence.len() as u64;
        let mut search = Search { exact: known, from: 0, changes: 0, shifts: &mut shifts };
        for burst in list {
            if outcome.descriptions.len() == MOST_DESCRIBED {
                outcome.not_looked_at += burst.len() as u64;
                continue;
            }
            match search.find(burst) {
                Found::Here => {
                    outcome.bursts += 1;
                    outcome.compared += burst.len() as u64;
                }
                Found::InSeveralPlaces => outcome.unplaced += burst.len() as u64,
                Found::Nowhere(nearest) => {
                    outcome.different_bursts += 1;
                    outcome.different += (burst.len() - nearest.length) as u64;
                    outcome.descriptions.push(description(burst, &known.sequence, nearest, codes));
                }
            }
        }
    }
    (outcome.pages, outcome.shifts) = (shifts.pages(), shifts.distinct());
    outcome
}

/// Where a burst leaves what it fits best.
fn description(burst: &Sequence, exact: &Sequence, nearest: Nearest, codes: &Codes) -> String {
    let access = |sequence: &Sequence, at: usize| {
        sequence.operands.get(at).map_or("the end".to_owned(), |&operand| {
            let what = if operand.is_count() { "elements " } else { "" };
            format!("{} {what}{:#x}", codes.name(operand.code()), sequence.addresses[at])
        })
    };
    let Nearest { at, length } = nearest;
    format!(
        "access {length} of a burst of {}: {}; exact mode's access {}: {}; before it: {}",
        burst.len(),
        access(burst, length),
        at + length,
        access(exact, at + length),
        access(burst, length.saturating_sub(1)),
    )
}

/// A thread's accesses but for those of some instructions.
fn without(thread: &Thread, unknown: &HashSet<u32>) -> Thread {
    let Thread { sequence, changes } = thread;
    let mut kept = Thread::default();
    let mut changes = changes.iter().peekable();
    for (at, (&operand, &address)) in sequence.operands.iter().zip(&sequence.addresses).enumerate() {
        while let Some(&&(behind, start, end)) = changes.peek()
            && behind <= at
        {
            kept.changes.push((kept.sequence.len(), start, end));
            changes.next();
        }
        if !unknown.contains(&operand.code()) {
            kept.sequence.operands.push(operand);
            kept.sequence.addresses.push(address);
        }
    }
    kept
}

/// Where a burst fits best: behind `at` accesses of exact mode, for so many.
struct Nearest {
    at: usize,
    length: usize,
}

/// What became of the search for a burst.
enum Found {
    Here,
    /// There are several places, with different shifts of new pages.
    InSeveralPlaces,
    Nowhere(Nearest),
}

struct Search<'a> {
    exact: &'a Thread,
    /// Where the next burst can begin.
    from: usize,
    /// Changes of mappings that have happened before that.
    changes: usize,
    shifts: &'a mut Shifts,
}

impl Search<'_> {
    /// Finds the first place for a burst. If it takes shifts of new pages, these must be the only ones with which the burst
    /// is anywhere near: a piece of a loop over new pages is in many places.
    fn find(&mut self, burst: &Sequence) -> Found {
        let mut nearest = Nearest { at: self.from, length: 0 };
        let mut found: Option<(usize, HashSet<(u64, u64)>)> = None;
        let last = self.exact.sequence.len().saturating_sub(burst.len());
        for takes_new in [false, true] {
            for at in self.from..=last {
                if found.as_ref().is_some_and(|(first, _)| at - first > NEAR) {
                    break;
                }
                if self.exact.sequence.operands[at] != burst.operands[0] {
                    continue;
                }
                self.apply_changes(at);
                let length = self.common(burst, at, takes_new);
                if length < burst.len() {
                    self.shifts.take_back();
                    if length > nearest.length {
                        nearest = Nearest { at, length };
                    }
                    continue;
                }
                if !takes_new {
                    self.shifts.settle();
                    self.from = at + length;
                    return Found::Here;
                }
                let new = self.shifts.noted();
                self.shifts.take_back();
                match &found {
                    Some((_, known)) if *known != new => return Found::InSeveralPlaces,
                    Some(_) => {}
                    None => found = Some((at, new)),
                }
            }
        }
        let Some((at, _)) = found else { return Found::Nowhere(nearest) };
        self.common(burst, at, true);
        self.shifts.settle();
        self.from = at + burst.len();
        Found::Here
    }

    /// How many accesses of a burst are those of exact mode from `at` on.
    fn common(&mut self, burst: &Sequence, at: usize, takes_new: bool) -> usize {
        let operands = &self.exact.sequence.operands[at..at + burst.len()];
        let addresses = &self.exact.sequence.addresses[at..];
        // Most places differ in their first instructions, or in an address's place in its page somewhere.
        let same = operands.iter().zip(&burst.operands).take(64).take_while(|(a, b)| a == b).count();
        let is_possible = |index: usize| {
            operands[index] == burst.operands[index]
                && (operands[index].is_count()
                    || self.shifts.is_possible(burst.addresses[index], addresses[index]))
        };
        if same < burst.len().min(64) || !(0..burst.len()).step_by(burst.len() / 64 + 1).all(is_possible) {
            return 0;
        }
        for index in 0..burst.len() {
            let is_same = operands[index] == burst.operands[index]
                && match operands[index].is_count() {
                    true => addresses[index] == burst.addresses[index],
                    false => self.shifts.are_same(burst.addresses[index], addresses[index], takes_new),
                };
            if !is_same {
                return index;
            }
        }
        burst.len()
    }

    /// Forgets the shifts of mappings that changed before the accesses from `at` on.
    fn apply_changes(&mut self, at: usize) {
        while let Some(&(behind, start, end)) = self.exact.changes.get(self.changes)
            && behind <= at
        {
            self.shifts.forget(start, end);
            self.changes += 1;
        }
    }
}

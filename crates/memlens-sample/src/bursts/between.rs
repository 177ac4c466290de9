//! Whose the processor time between two bursts of a thread is.
//!
//! ```text
//!  … ───── burst ─────┬──────┬─────┬───────── burst ───── …
//!             look: its code │     look: its code
//!                      look: a system call
//! ```
//!
//! Where in the time between two bursts the program went from what the one saw to what the other saw, looks tell: ticks in between, of
//! which nothing is known but the instruction, and the kernel's glances between ticks (`glances.rs`). That of the two whose code it is
//! (`known_code.rs`) has the look's time; if it is the code of both, the one nearer in time. If it is the code of neither, the time is
//! that of the latest burst that met it (`waiting.rs`). A look in a system call has no burst, and no accesses; nor has one in a loop that waits for other threads, which stands for a call in all of this. Half of the time between two of
//! them all (bursts and looks) is the one's, half the other's: where between them the program went on, nobody knows, and at the middle
//! it is on average, whatever that time's length depends on. It does: a burst where memory is slow or code new costs more, so that the
//! next comes later. If all of that time were the later one's, a short phase behind a slow one would count for many times what it is.
//! That is so for the program's own code. Glances see no time in the kernel, where page faults are served: as long as there are glances,
//! what is longer between two of them all than from glance to glance is the slower code's, which has the faults.

use super::glances::Position;
use super::known_code::{KnownCode, Met};
use super::waiting::Waiting;
use crate::address_space::Code;

/// Code is a large part of a burst if it is no less than this of the largest part that it is of one.
const LARGE_PART: f64 = 0.5;
/// Of the usual length of a burst, short ones have less than one in so many.
const SHORT: f64 = 4.0;

/// A time by the clock, which goes on while a thread does not. Unit: ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Where it begins.
    pub from_ns: u64,
    /// Where it ends.
    pub to_ns: u64,
}

/// A tick between bursts.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Processor time since the burst or look before, in ns …
    pub period_ns: f64,
    /// … and how much of it the program's code may have had: the rest is the kernel's.
    pub most_code_ns: f64,
    /// Where the thread was then.
    pub at: Position,
}

/// Whose time it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Owner {
    /// The burst before.
    Before,
    /// The next burst.
    Next,
    /// Nobody's: of a system call, or of the loop here that waits.
    Call(Option<Code>),
    /// Code that other bursts have met; the latest of these that waits, by when it was reported.
    Elsewhere(Met, Option<u64>),
}

/// Processor time in ns, by whose it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// The burst's before.
    pub before: f64,
    /// The next burst's.
    pub next: f64,
    /// Nobody's: in system calls and loops that wait.
    pub calls: f64,
    /// Of that, the time in such loops, and where.
    pub spins: Vec<(Code, f64)>,
    /// In code that other bursts have met.
    pub elsewhere: Vec<Foreign>,
    /// Of the first two, what is in code that no burst has met.
    pub unmet: Vec<Foreign>,
    /// Accesses in the time elsewhere, as fast as when that was met.
    pub accesses_elsewhere: f64,
    /// Looks in code.
    pub looks: u32,
}

/// Time in code of none of the bursts around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Foreign {
    /// An instruction there.
    pub pc: u64,
    /// Processor time in ns.
    pub time_ns: f64,
    /// When that was.
    pub when: Span,
    /// When the burst was reported that has it, if one has.
    pub whose_ns: Option<u64>,
    /// Bursts that have come since.
    pub age: u32,
}

impl Times {
    /// Whether the thread was in code of neither burst, if there were looks.
    pub fn was_elsewhere(&self) -> Option<bool> {
        (self.looks > 0).then_some(!self.elsewhere.is_empty())
    }

    fn add(&mut self, owner: Owner, time_ns: f64, when: Span) {
        match owner {
            Owner::Before => self.before += time_ns,
            Owner::Next => self.next += time_ns,
            Owner::Call(code) => {
                self.calls += time_ns;
                self.spins.extend(code.map(|code| (code, time_ns)));
            }
            Owner::Elsewhere(met, whose_ns) => {
                self.accesses_elsewhere += time_ns / met.access_ns;
                self.elsewhere.push(Foreign { pc: met.address, time_ns, when, whose_ns, age: 0 });
            }
        }
    }
}

/// From which part on code is a large one, of those that it is of the bursts. Those that ended early tell little: a round of a loop is all of them.
pub fn least_part<'a>(bursts: impl Iterator<Item = &'a Waiting>, address: u64) -> f64 {
    let whole = bursts.filter(|burst| SHORT * burst.references.len() as f64 >= burst.usual_length);
    whole.map(|burst| burst.part(address)).fold(0.0, f64::max) * LARGE_PART
}

/// What is known of a thread's code: its bursts that wait, in the order of time.
pub struct Around<'a> {
    /// All of them.
    pub bursts: Vec<&'a Waiting>,
    /// The one before the looks, among them.
    pub before: Option<&'a Waiting>,
    /// The one behind them, among them.
    pub next: Option<&'a Waiting>,
    /// The thread's process.
    pub process: u32,
    /// What of its code any burst met.
    pub known: &'a KnownCode,
    /// From the one before to the one behind.
    pub when: Span,
}

impl<'a> Around<'a> {
    /// If nothing is known.
    pub fn nothing(before: Option<&'a Waiting>, known: &'a KnownCode) -> Self {
        Self { bursts: Vec::new(), before, next: None, process: 0, known, when: Span::default() }
    }

    /// Those of which the code there is a large part; a burst in which it only begins or ends is of something else as well. Nor, of
    /// three and more, those that are much faster than most: what was measured behind them is other code.
    fn of(&self, met: Met) -> Vec<&'a Waiting> {
        let least = least_part(self.bursts.iter().copied(), met.address);
        let is_of = |burst: &&&Waiting| {
            let part = burst.part(met.address);
            part > 0.0 && part >= least
        };
        let mut found: Vec<&Waiting> = self.bursts.iter().filter(is_of).copied().collect();
        if found.len() > 2 {
            let mut times: Vec<f64> = found.iter().map(|burst| burst.timing.access_ns).collect();
            times.sort_unstable_by(f64::total_cmp);
            let least_ns = times[times.len() / 2] * LARGE_PART;
            found.retain(|burst| burst.timing.access_ns >= least_ns);
        }
        found
    }

    /// Whether the burst before and the next one executed that.
    fn have_both(&self, met: Met) -> bool {
        [self.before, self.next]
            .iter()
            .all(|burst| burst.is_some_and(|burst| burst.executions(met.address) > 0))
    }

    /// How long an access takes in someone's code, in ns. None: there is none.
    fn access_ns(&self, of: Owner) -> Option<f64> {
        match of {
            Owner::Before => self.before.map(|burst| burst.timing.access_ns),
            Owner::Next => self.next.map(|burst| burst.timing.access_ns),
            Owner::Call(_) => None,
            Owner::Elsewhere(met, _) => Some(met.access_ns),
        }
    }

    /// Time from one look to another: half of it is the one's, half the other's, but for what no code had.
    fn share(&self, times: &mut Times, one: Owner, other: Owner, time_ns: f64, most_code_ns: f64) {
        let (even_ns, slower) = match (self.access_ns(one), self.access_ns(other)) {
            (Some(one_ns), Some(other_ns)) if time_ns > most_code_ns => {
                (most_code_ns, if one_ns > other_ns { one } else { other })
            }
            _ => (time_ns, other),
        };
        times.add(one, 0.5 * even_ns, self.when);
        times.add(other, 0.5 * even_ns, self.when);
        if time_ns > even_ns {
            times.add(slower, time_ns - even_ns, self.when);
        }
    }

    /// Whose a look's time is; None: nobody's, and that of who is nearer in time.
    fn owner(&self, pc: u64, nearer_in_time: Owner) -> Option<Owner> {
        let met = self.known.met(self.process, pc)?;
        let found = self.of(met);
        let is_of = |burst: Option<&Waiting>| {
            burst.is_some_and(|burst| found.iter().any(|found| std::ptr::eq(*found, burst)))
        };
        Some(match (is_of(self.before), is_of(self.next)) {
            (true, true) => nearer_in_time,
            (true, false) => Owner::Before,
            (false, true) => Owner::Next,
            // What many phases call, as a copy, is no reason to go far.
            (false, false) if self.have_both(met) => nearer_in_time,
            (false, false) => Owner::Elsewhere(met, found.last().map(|burst| burst.timing.at_ns)),
        })
    }
}

/// Divides the time from one burst to the next, of it behind the last look `last_ns`, and of that in code no more than `most_code_ns`. A
/// thread's first burst has none before, and what follows its last one has none behind it.
pub fn divide(around: &Around<'_>, looks: &[Look], last_ns: f64, most_code_ns: f64) -> Times {
    let Around { before, next, when, .. } = *around;
    let whole_ns = looks.iter().map(|look| look.period_ns).sum::<f64>() + last_ns;
    let mut times = Times::default();
    let mut passed_ns = 0.0;
    // What came before the first look of a thread without a burst before is that look's.
    let mut last = before.map(|_| Owner::Before);
    let mut last_unmet = None;
    // Half of the time before a look, and half of that behind it.
    let add_unmet = |times: &mut Times, unmet: Option<(u64, Option<u64>)>, time_ns: f64| {
        if let Some((pc, whose_ns)) = unmet {
            times.unmet.push(Foreign { pc, time_ns: 0.5 * time_ns, when, whose_ns, age: 0 });
        }
    };
    for look in looks {
        passed_ns += look.period_ns;
        times.looks += u32::from(matches!(look.at, Position::Code(_)));
        let in_code_ns = look.period_ns.min(look.most_code_ns);
        add_unmet(&mut times, last_unmet.take(), in_code_ns);
        let nearer_in_time = match (before, next) {
            (None, _) => Owner::Next,
            (Some(_), None) => Owner::Before,
            (Some(_), Some(_)) if 2.0 * passed_ns < whole_ns => Owner::Before,
            (Some(_), Some(_)) => Owner::Next,
        };
        let owner = match look.at {
            Position::Waiting => Owner::Call(None),
            Position::Spinning(code) => Owner::Call(Some(code)),
            Position::Code(pc) => around.owner(pc, nearer_in_time).unwrap_or_else(|| {
                let who = if nearer_in_time == Owner::Before { before } else { next };
                last_unmet = Some((pc, who.map(|burst| burst.timing.at_ns)));
                nearer_in_time
            }),
        };
        add_unmet(&mut times, last_unmet, in_code_ns);
        around.share(&mut times, last.unwrap_or(owner), owner, look.period_ns, look.most_code_ns);
        last = Some(owner);
    }
    add_unmet(&mut times, last_unmet, last_ns.min(most_code_ns));
    around.share(&mut times, last.unwrap_or(Owner::Next), Owner::Next, last_ns, most_code_ns);
    times
}

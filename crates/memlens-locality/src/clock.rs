//! The time of a thread, in references that bursts saw of it.
//!
//! Some code is seen more often than other code: by a clock, that whose references take long. How many of all references were
//! seen since a block was last used then says little of how many were made: a phase that is seen ten times as often as the rest has
//! most of those seen, and may have few of those made. Each phase therefore has a time of its own, in which a reference of any code
//! counts as many as stand for as much in that phase. Times are told in that of the code that used the block: it is found again at
//! the rate at which that code is seen.

use crate::phases::Phases;

/// More knots than this are thinned out.
const MOST_KNOTS: usize = 1 << 14;

/// A thread's clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// Where windows began, the present one's at the end.
    knots: Vec<Knot>,
    now: Mark,
    /// The knot before the place that was asked for last: in sweeps, the next one's as well.
    last: usize,
}

/// A place on a thread's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Mark {
    /// References seen before.
    pub(crate) seen: u64,
    /// The same as each phase counts.
    by_phase: [f64; Phases::MOST],
}

impl Mark {
    /// Where so many references were seen, all of one phase.
    #[cfg(test)]
    pub(crate) fn after(seen: u64) -> Self {
        Self { seen, by_phase: [seen as f64; Phases::MOST] }
    }

    /// The time of a phase, or for [`Phases::MOST`] references seen.
    fn of(&self, phase: usize) -> f64 {
        self.by_phase.get(phase).copied().unwrap_or(self.seen as f64)
    }
}

#[derive(Clone, Copy, Debug)]
struct Knot {
    begin: Mark,
    /// The window's.
    phase: usize,
}

/// How long ago something was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Age {
    /// References seen before then.
    pub(crate) then: u64,
    /// References of the present window since.
    position: u64,
    /// Whose time it is told in, and what it was then and when the present window began.
    phase: usize,
    times: [f64; 2],
}

impl Clock {
    /// The present.
    pub(crate) fn now(&self) -> Mark {
        self.now
    }

    /// A window begins.
    pub(crate) fn begin_window(&mut self) {
        if self.knots.len() >= MOST_KNOTS {
            let mut number = 0;
            self.knots.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        self.knots.push(Knot { begin: self.now, phase: 0 });
    }

    /// It is over, had so many references, and was in that phase.
    pub(crate) fn end_window(&mut self, references: u64, phase: usize, phases: &Phases) {
        self.now.seen += references;
        for (other, time) in self.now.by_phase.iter_mut().enumerate() {
            *time += references as f64 * phases.stands_for(phase, other);
        }
        if let Some(knot) = self.knots.last_mut() {
            knot.phase = phase;
        }
    }

    /// The place where so many references had been seen, if that was before the present window: its window, and which part of that was over.
    fn place(&mut self, seen: u64) -> Option<(usize, f64)> {
        let around = |knots: &[Knot], at: usize| {
            let (from, to) = (knots.get(at)?.begin.seen, knots.get(at + 1)?.begin.seen);
            (from..to).contains(&seen).then(|| (at, (seen - from) as f64 / (to - from) as f64))
        };
        around(&self.knots, self.last).or_else(|| {
            self.last = self.knots.partition_point(|knot| knot.begin.seen <= seen).saturating_sub(1);
            around(&self.knots, self.last)
        })
    }

    /// How long ago `then` was, before the present window, which began at `window` and has had `position` references since. `phase`: whose
    /// time to tell it in, given the window's of then; None: in references seen.
    pub(crate) fn age(
        &mut self,
        position: u64,
        window: &Mark,
        then: u64,
        phase: impl FnOnce(usize) -> Option<usize>,
    ) -> Age {
        let Some((at, part)) = self.place(then) else {
            // No window is before the first.
            return Age { then, position, phase: Phases::MOST, times: [then as f64, window.seen as f64] };
        };
        let phase = phase(self.knots[at].phase).unwrap_or(Phases::MOST);
        let [from, to] = [at, at + 1].map(|at| self.knots[at].begin.of(phase));
        Age { then, position, phase, times: [from + (to - from) * part, window.of(phase)] }
    }
}

impl Age {
    /// In references.
    pub(crate) fn time(&self) -> u64 {
        self.position + (self.times[1] - self.times[0]).round() as u64
    }

    /// From another moment on until now, in references.
    pub(crate) fn since(&self, then: &Mark) -> u64 {
        self.position + (self.times[1] - then.of(self.phase)).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::burst::Reference;
    use crate::phases::{Position, Signature};

    /// Two phases in turn, windows of 1,000 references each, of which one of the second stands for four of the first.
    fn clock_of(windows: usize) -> Clock {
        let (mut clock, mut phases) = (Clock::default(), Phases::default());
        for window in 0..windows {
            let (instruction, weight) = [(1, 10.0), (2, 40.0)][window % 2];
            let kind = memlens_types::AccessKind::Load;
            let reference = Reference { address: 0, size: 8, kind, instruction, owner: 0 };
            let at = Position { before: None, unseen: None };
            clock.begin_window();
            let phase = phases.of(4, &Signature::of(&[reference]), at, 1_000, weight);
            clock.end_window(1_000, phase, &phases);
        }
        clock.begin_window();
        clock
    }

    #[test]
    fn each_phase_has_a_time_of_its_own() {
        let mut clock = clock_of(10);
        let now = clock.now();
        assert_eq!(now.seen, 10_000);
        let ages = |clock: &mut Clock, then, phase| clock.age(5, &now, then, |_| phase).time();
        // From the middle of the last window of the first phase: 500 of it, 1,000 of the second, 5 of the present window.
        assert_eq!(ages(&mut clock, 8_500, Some(0)), 500 + 4_000 + 5);
        assert_eq!(ages(&mut clock, 8_500, Some(1)), 125 + 1_000 + 5);
        assert_eq!(ages(&mut clock, 8_500, None), 1_505, "those seen");
        let mut phase_then = None;
        clock.age(5, &now, 9_000, |then| {
            phase_then = Some(then);
            None
        });
        assert_eq!(phase_then, Some(1));
        let age = clock.age(5, &now, 100, |_| Some(0));
        assert_eq!((age.then, age.since(&now)), (100, 5));
    }

    #[test]
    fn a_long_run_is_remembered_in_less_detail() {
        let mut clock = clock_of(2 * MOST_KNOTS + 100);
        assert!(clock.knots.len() <= MOST_KNOTS);
        let now = clock.now();
        for then in [0, 1_234_567, now.seen / 2, now.seen - 1] {
            let age = clock.age(0, &now, then, |_| Some(1)).time() as f64;
            let all = (now.seen - then) as f64 * (1.0 + 0.25) / 2.0;
            assert!((age - all).abs() < 4_000.0, "{then}: {age} for {all}");
        }
    }
}

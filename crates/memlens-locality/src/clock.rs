//! The time of a thread, in references that bursts saw of it.
//!
//! Some code is seen more often than other code: by a clock, that whose references take long. How many of all references were
//! seen since a block was last used then says little of how many were made: a phase that is seen ten times as often as the rest has
//! most of those seen, and may have few of those made. Each phase therefore has a time of its own, in which a reference of any code
//! counts as many as stand for as much in that phase. Times are told in that of the code that used the block: it is found again at
//! the rate at which that code is seen.

use crate::phases::Phases;

/// More knots than this are thinned out: 2 MB.
const MOST_KNOTS: usize = 1 << 14;
/// About as many references as in a burst, as a power of two.
const STEP: u32 = 12;

/// A thread's clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// Where windows began, the present one's at the end: references seen by then …
    begins: Vec<u64>,
    /// … and the rest.
    knots: Vec<Knot>,
    now: Mark,
    /// The window of each reference seen whose number is a multiple of 2^[`STEP`].
    index: Vec<u32>,
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

/// Where a window begins.
#[derive(Clone, Copy, Debug)]
struct Knot {
    /// As [`Mark::by_phase`].
    by_phase: [f64; Phases::MOST],
    /// The window's.
    phase: usize,
}

/// How long ago something was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Age {
    /// References seen before then.
    pub(crate) then: u64,
    /// How many were made since, as far as that can be told.
    pub(crate) time: u64,
    /// References of the present window so far.
    position: u64,
    /// Whose time it is told in, and what it was when the present window began.
    phase: usize,
    begin: f64,
}

impl Clock {
    /// The present.
    pub(crate) fn now(&self) -> Mark {
        self.now
    }

    /// A window begins.
    pub(crate) fn begin_window(&mut self) {
        if self.knots.len() >= MOST_KNOTS {
            self.begins = self.begins.iter().step_by(2).copied().collect();
            self.knots = self.knots.iter().step_by(2).copied().collect();
            self.index.iter_mut().for_each(|window| *window /= 2);
        }
        self.begins.push(self.now.seen);
        self.knots.push(Knot { by_phase: self.now.by_phase, phase: 0 });
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
        let steps = self.now.seen.div_ceil(1 << STEP);
        self.index.resize(steps as usize, self.knots.len() as u32 - 1);
    }

    /// The place where so many references had been seen, if that was before the present window: its window, and which part of that was over.
    fn place(&self, seen: u64) -> Option<(usize, f64)> {
        let step = (seen >> STEP) as usize;
        let first = *self.index.get(step)? as usize;
        let last = self.index.get(step + 1).map_or(self.begins.len() - 1, |&window| window as usize);
        let at = first + self.begins[first + 1..=last].partition_point(|&begin| begin <= seen);
        let (from, to) = (self.begins[at], *self.begins.get(at + 1)?);
        Some((at, (seen - from) as f64 / (to - from) as f64))
    }

    /// How long ago `then` was, before the present window, which began at `window` and has had `position` references since. `phase`: whose
    /// time to tell it in, given the window's of then; None: in references seen.
    pub(crate) fn age(
        &self,
        position: u64,
        window: &Mark,
        then: u64,
        phase: impl FnOnce(usize) -> Option<usize>,
    ) -> Age {
        let found = self.place(then).and_then(|(at, part)| Some((at, part, phase(self.knots[at].phase)?)));
        let Some((at, part, phase)) = found else {
            let time = position + window.seen - then;
            return Age { then, time, position, phase: Phases::MOST, begin: window.seen as f64 };
        };
        let [from, to] = [at, at + 1].map(|at| self.knots[at].by_phase[phase]);
        let (was, begin) = (from + (to - from) * part, window.by_phase[phase]);
        Age { then, time: position + whole(begin - was), position, phase, begin }
    }
}

/// Rounded. Without the instruction for that, [`f64::round`] takes longer than all else here.
fn whole(time: f64) -> u64 {
    (time + 0.5) as u64
}

impl Age {
    /// From another moment on until now, in references.
    pub(crate) fn since(&self, then: &Mark) -> u64 {
        self.position + whole(self.begin - then.of(self.phase))
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
        let clock = clock_of(10);
        let now = clock.now();
        assert_eq!(now.seen, 10_000);
        let ages = |clock: &Clock, then, phase| clock.age(5, &now, then, |_| phase).time;
        // From the middle of the last window of the first phase: 500 of it, 1,000 of the second, 5 of the present window.
        assert_eq!(ages(&clock, 8_500, Some(0)), 500 + 4_000 + 5);
        assert_eq!(ages(&clock, 8_500, Some(1)), 125 + 1_000 + 5);
        assert_eq!(ages(&clock, 8_500, None), 1_505, "those seen");
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
        let clock = clock_of(2 * MOST_KNOTS + 100);
        assert!(clock.knots.len() <= MOST_KNOTS);
        let now = clock.now();
        for then in [0, 1_234_567, now.seen / 2, now.seen - 1] {
            let age = clock.age(0, &now, then, |_| Some(1)).time as f64;
            let all = (now.seen - then) as f64 * (1.0 + 0.25) / 2.0;
            assert!((age - all).abs() < 4_000.0, "{then}: {age} for {all}");
        }
    }
}

//! Keeps a recording within its budget: looks at what it costs, and says at which rate to go on.

use std::time::{Duration, Instant};

use crate::contention::ContentionMeter;
use crate::overhead_budget::{Interval, OverheadBudget};
use crate::process::own_cpu_seconds;
use crate::run_meter::{Ran, RunMeter};
use crate::switch_cost::{SwitchCost, measure_switch_cost};

/// The first look comes early: how the program runs is not known before. What memlens does at the begin is much, and not
/// what it will do: so the time to the next look doubles each time,
const FIRST_LOOK: Duration = Duration::from_millis(300);
/// up to this.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// With fewer switches a second of processor time, what one costs does not matter: 1,000 of 5 µs are
/// half a percent.
const MANY_SWITCHES: f64 = 500.0;

/// The rate of a recording.
#[derive(Debug)]
pub struct Pacing {
    budget: OverheadBudget,
    stack_bytes: u32,
    /// None: the rate was given, and stays.
    contention: Option<ContentionMeter>,
    runs: RunMeter,
    /// None: it has not mattered so far.
    switch_cost: Option<SwitchCost>,
    next: Instant,
    /// From the last look to the next.
    every: Duration,
    samples: u64,
    own_cpu_seconds: f64,
    spent: Spent,
    changes: u64,
}

/// What the program has done, and paid for switches, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Its processor time, in seconds.
    pub cpu_seconds: f64,
    /// The part of it that switches took, in seconds.
    pub switch_seconds: f64,
}

impl Pacing {
    /// Begins now. `is_fixed`: the rate was given. `processes`: those that run already.
    pub fn start(
        budget: OverheadBudget,
        stack_bytes: u32,
        is_fixed: bool,
        processes: impl Iterator<Item = u32>,
    ) -> Self {
        let mut runs = RunMeter::default();
        // What they did before is not ours.
        runs.look(processes);
        Self {
            budget,
            stack_bytes,
            contention: (!is_fixed).then(ContentionMeter::start),
            runs,
            switch_cost: None,
            next: Instant::now() + FIRST_LOOK,
            every: FIRST_LOOK,
            samples: 0,
            own_cpu_seconds: own_cpu_seconds(),
            spent: Spent::default(),
            changes: 0,
        }
    }

    /// The frequency to go on with, in Hz, if it should be another than `present`. `samples`: all so far;
    /// `processes`: those that are watched.
    pub fn look(&mut self, present: u64, samples: u64, processes: impl Iterator<Item = u32>) -> Option<u64> {
        let contention = self.contention.as_mut()?;
        let now = Instant::now();
        if now < self.next {
            return None;
        }
        self.every = after(self.every);
        self.next = now + self.every;
        let own_cpu_seconds = own_cpu_seconds();
        let own_seconds = own_cpu_seconds - self.own_cpu_seconds;
        let ran = self.runs.look(processes);
        let cpu_seconds = ran.nanoseconds as f64 / 1e9;
        let switches_per_second = per_second(ran);
        if switches_per_second > MANY_SWITCHES && self.switch_cost.is_none() {
            // Where it cannot be measured, only samples count.
            self.switch_cost = measure_switch_cost(present, self.stack_bytes).ok();
            tracing::debug!(?self.switch_cost, switches_per_second, "many switches");
        }
        let switch_cost = self.switch_cost.unwrap_or_default();
        self.spent.cpu_seconds += cpu_seconds;
        self.spent.switch_seconds += ran.times as f64 * switch_cost.at(present);
        let mut meter = *contention;
        let interval = Interval {
            samples: samples.saturating_sub(self.samples),
            own_cpu: Duration::try_from_secs_f64(own_seconds).unwrap_or_default(),
            contention: meter.look(own_seconds),
            switches_per_second,
            switch_cost,
        };
        let adapted = self.budget.adapted(present, &interval);
        // One that is too short goes on: what it has seen tells more at the next look.
        if adapted.is_some() || interval.is_telling() {
            *contention = meter;
            (self.samples, self.own_cpu_seconds) = (samples, own_cpu_seconds);
        }
        tracing::debug!(?interval, present, ?adapted, "samples paced");
        adapted
    }

    /// The rate was changed.
    pub fn note_change(&mut self) {
        self.changes += 1;
    }

    /// The rate cannot be changed: it stays.
    pub fn give_up(&mut self) {
        self.contention = None;
    }

    /// How often it was changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// What a sample costs the program, in seconds.
    pub fn sample_cost_seconds(&self) -> f64 {
        self.budget.sample_cost_seconds()
    }

    /// What the program did and paid until the last look.
    pub fn spent(&self) -> Spent {
        self.spent
    }
}

/// The time from one look to the next, where it was `every` before.
fn after(every: Duration) -> Duration {
    (every * 2).min(LOOK_EVERY)
}

/// Switches a second of processor time.
fn per_second(ran: Ran) -> f64 {
    match ran.nanoseconds {
        0 => 0.0,
        nanoseconds => ran.times as f64 / (nanoseconds as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_rarer() {
        let times = std::iter::successors(Some(FIRST_LOOK), |&every| Some(after(every)));
        let milliseconds: Vec<u128> = times.take(7).map(|every| every.as_millis()).collect();
        assert_eq!(milliseconds, [300, 600, 1200, 2400, 4800, 5000, 5000]);
    }

    #[test]
    fn switches_are_counted_by_processor_time() {
        assert_eq!(per_second(Ran { nanoseconds: 500_000_000, times: 1000 }), 2000.0);
        assert_eq!(per_second(Ran::default()), 0.0);
    }
}

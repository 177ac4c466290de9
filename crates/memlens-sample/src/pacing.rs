//! Keeps a recording within its budget: looks at what it costs, and says at which rate to go on.

use std::time::{Duration, Instant};

use crate::contention::ContentionMeter;
use crate::overhead_budget::{Interval, OverheadBudget};
use crate::process::own_cpu_seconds;

/// The first look comes early: what memlens needs for a sample is not known before.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// Between two others.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The rate of a recording.
#[derive(Debug)]
pub struct Pacing {
    budget: OverheadBudget,
    /// None: the rate was given, and stays.
    meter: Option<ContentionMeter>,
    next: Instant,
    samples: u64,
    own_cpu_seconds: f64,
    changes: u64,
}

impl Pacing {
    /// Begins now. `is_fixed`: the rate was given.
    pub fn start(budget: OverheadBudget, is_fixed: bool) -> Self {
        Self {
            budget,
            meter: (!is_fixed).then(ContentionMeter::start),
            next: Instant::now() + FIRST_LOOK,
            samples: 0,
            own_cpu_seconds: own_cpu_seconds(),
            changes: 0,
        }
    }

    /// The frequency to go on with, in Hz, if it should be another than `present`. `samples`: all so
    /// far.
    pub fn look(&mut self, present: u64, samples: u64) -> Option<u64> {
        let meter = self.meter.as_mut()?;
        let now = Instant::now();
        if now < self.next {
            return None;
        }
        self.next = now + LOOK_EVERY;
        let own_cpu_seconds = own_cpu_seconds();
        let interval = Interval {
            samples: samples.saturating_sub(self.samples),
            own_cpu: Duration::try_from_secs_f64(own_cpu_seconds - self.own_cpu_seconds).unwrap_or_default(),
            contention: meter.look(),
        };
        (self.samples, self.own_cpu_seconds) = (samples, own_cpu_seconds);
        self.budget.adapted(present, &interval)
    }

    /// The rate was changed.
    pub fn note_change(&mut self) {
        self.changes += 1;
    }

    /// The rate cannot be changed: it stays.
    pub fn give_up(&mut self) {
        self.meter = None;
    }

    /// How often it was changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// What a sample costs the program, in seconds.
    pub fn sample_cost_seconds(&self) -> f64 {
        self.budget.sample_cost_seconds()
    }
}

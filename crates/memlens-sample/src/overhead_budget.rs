//! How many samples a second a part of the program's time pays for.
//!
//! Of each second of the program's processor time, sampling takes
//!
//! ```text
//! frequency × (cost of a sample to the program + memlens's own time for it × contention)
//!   + switches × cost of a switch at that frequency
//! ```
//!
//! The first cost is [measured](crate::sample_cost) before the recording. The second is what memlens
//! used of the processor lately, and counts as far as no processor was idle: where one is, memlens takes nothing
//! from the program. The [third](crate::switch_cost) matters to programs that wait for others all the time.

use std::time::Duration;

use crate::switch_cost::{LOWEST_FREQUENCY, SwitchCost};

/// Cost of a sample where it cannot be measured: what a virtual machine with an emulated timer takes.
const USUAL_COST: Duration = Duration::from_micros(25);
/// What a sample drives out of caches, TLBs and the processor's other memories costs on top of the measured
/// time, as a part of it. Measured in a virtual machine (Zen 3): gaps of 19 to 28 µs, while random updates of
/// 32 MiB took 38 µs longer for each sample, a matrix multiplication in the caches 32, a sweep 31.
const INDIRECT_COST: f64 = 0.5;
/// Bounds of the frequency that a budget leads to, in Hz.
const FREQUENCIES: (f64, f64) = (LOWEST_FREQUENCY as f64, 4000.0);
/// Changes smaller than this are not worth opening all events again.
const WORTHWHILE_CHANGE: f64 = 1.25;
/// Fewer samples say too little about memlens's own time for one.
const MIN_SAMPLES: u64 = 50;
/// memlens's own time lowers the frequency by this factor at most at a time: part of what it has done lately, as reading
/// a library's tables, is done once.
const MOST_STEP: u64 = 4;

/// What happened in some seconds of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// Samples that were taken.
    pub samples: u64,
    /// Processor time of memlens itself.
    pub own_cpu: Duration,
    /// From 0, a processor was idle or memlens's all the time, to 1, none was.
    pub contention: f64,
    /// How often the program's threads were put on a processor, a second of its processor time.
    pub switches_per_second: f64,
    /// What each of those costs.
    pub switch_cost: SwitchCost,
}

impl Interval {
    /// Whether it says what a sample costs memlens.
    pub fn is_telling(&self) -> bool {
        self.samples >= MIN_SAMPLES
    }
}

/// A part of the program's time, and what it pays for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverheadBudget {
    share: f64,
    sample_cost: Duration,
}

impl OverheadBudget {
    /// `share` of the program's time, 0 to 1. `measured`: the cost of a sample, if known.
    pub fn new(share: f64, measured: Option<Duration>) -> Self {
        Self { share, sample_cost: measured.unwrap_or(USUAL_COST) }
    }

    /// What a sample costs the program, in seconds.
    pub fn sample_cost_seconds(&self) -> f64 {
        self.sample_cost.as_secs_f64() * (1.0 + INDIRECT_COST)
    }

    /// The frequency to begin with, in Hz.
    pub fn frequency(&self) -> u64 {
        self.frequency_for(self.sample_cost_seconds(), 0.0, SwitchCost::default())
    }

    /// The frequency to go on with, in Hz, if it should be another than `present`.
    pub fn adapted(&self, present: u64, interval: &Interval) -> Option<u64> {
        let own = match interval.is_telling() {
            false => 0.0,
            true => {
                interval.own_cpu.as_secs_f64() / interval.samples as f64 * interval.contention.clamp(0.0, 1.0)
            }
        };
        let frequency_for =
            |cost| self.frequency_for(cost, interval.switches_per_second, interval.switch_cost);
        let without_own = frequency_for(self.sample_cost_seconds());
        let wanted = frequency_for(self.sample_cost_seconds() + own)
            .max(without_own.min(off_round(present / MOST_STEP)));
        let ratio = wanted as f64 / present.max(1) as f64;
        // Few samples say nothing for a higher rate.
        let is_known = interval.is_telling() || wanted < present;
        (is_known && !(WORTHWHILE_CHANGE.recip()..=WORTHWHILE_CHANGE).contains(&ratio)).then_some(wanted)
    }

    /// Solves `share = frequency × cost + switches × switch_cost.at(frequency)`.
    fn frequency_for(&self, cost_seconds: f64, switches: f64, switch_cost: SwitchCost) -> u64 {
        let slope = switches * switch_cost.seconds_per_hz;
        let fixed = switches * switch_cost.lowest_seconds - slope * FREQUENCIES.0;
        let wanted = ((self.share - fixed) / (cost_seconds + slope)).clamp(FREQUENCIES.0, FREQUENCIES.1);
        off_round(wanted.round() as u64)
    }
}

/// A little off a round number, so that no program's own rhythm stays in step with it.
fn off_round(frequency: u64) -> u64 {
    frequency.saturating_sub(3).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(share: f64, microseconds: u64) -> OverheadBudget {
        OverheadBudget::new(share, Some(Duration::from_micros(microseconds)))
    }

    #[test]
    fn the_budget_and_the_cost_set_the_frequency() {
        // 1 % of a second is 10 ms: 400 samples of 16.67 µs and half of it on top.
        assert_eq!(OverheadBudget::new(0.01, Some(Duration::from_nanos(16_667))).frequency(), 397);
        assert_eq!(budget(0.01, 20).frequency(), 330);
        assert_eq!(budget(0.01, 40).frequency(), 164);
        assert_eq!(budget(0.0, 20).frequency(), 17);
        assert_eq!(budget(1.0, 20).frequency(), 3997);
        // Not measured: 25 µs, so 267.
        assert_eq!(OverheadBudget::new(0.01, None).frequency(), 264);
    }

    #[test]
    fn memlenss_own_time_counts_where_it_takes_some_from_the_program() {
        let budget = budget(0.01, 20);
        // 30 µs of ours a sample on top of 30.
        let own_cpu = Duration::from_micros(30 * 400);
        let interval = |contention| Interval { samples: 400, own_cpu, contention, ..Interval::default() };
        assert_eq!(budget.adapted(330, &interval(0.0)), None);
        // 10 ms ÷ 60 µs.
        assert_eq!(budget.adapted(330, &interval(1.0)), Some(164));
        // 10 ms ÷ 33 µs: not far enough from 330 to begin anew.
        assert_eq!(budget.adapted(330, &interval(0.1)), None);
        // And back.
        assert_eq!(budget.adapted(164, &interval(0.0)), Some(330));
        let few = Interval { samples: MIN_SAMPLES - 1, ..interval(1.0) };
        assert_eq!(budget.adapted(397, &few), None);
        // 1 ms of ours a sample, as when the program has just begun: not at once to the lowest, but further next time.
        let own_cpu = Duration::from_millis(400);
        let much = Interval { samples: 400, own_cpu, contention: 1.0, ..Interval::default() };
        assert_eq!(budget.adapted(330, &much), Some(79));
        assert_eq!(budget.adapted(79, &much), Some(17));
    }

    #[test]
    fn a_program_that_is_switched_often_is_sampled_more_seldom() {
        let budget = budget(0.01, 20);
        let interval = |switches_per_second, lowest_seconds, seconds_per_hz| Interval {
            samples: 400,
            switches_per_second,
            switch_cost: SwitchCost { lowest_seconds, seconds_per_hz },
            ..Interval::default()
        };
        // 1,000 switches of 1 µs take 1 ms of the 10; at each Hz above 20 they take 10 µs more, a sample 30:
        // (10 ms - 1 ms + 0.2 ms) ÷ 40 µs.
        assert_eq!(budget.adapted(330, &interval(1000.0, 1e-6, 1e-8)), Some(227));
        // 30,000 of them leave nothing: the lowest.
        assert_eq!(budget.adapted(330, &interval(30_000.0, 1e-6, 1e-8)), Some(17));
        assert_eq!(budget.adapted(330, &interval(30_000.0, 0.0, 0.0)), None);
    }
}

//! How a profile came to be: the program, the collector, the quality of the attribution.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Clock;

/// The program that ran and how it was watched. `None` always means unknown, never zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Program and arguments; bytes that are no UTF-8 are replaced.
    pub command: Vec<String>,
    /// Where the accesses came from: `exact`, `burst`, `sample`, `bus`, or an importer's name.
    pub mode: String,
    /// What the program returned, when it exited by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Seconds from start to end.
    pub wall_seconds: Option<f64>,
    /// Instructions executed by all threads while collection was on.
    pub instructions: Option<u64>,
    /// Threads that ever ran.
    pub threads: u32,
    /// When the program was started, seconds since 1970-01-01 UTC.
    pub started_unix_seconds: Option<u64>,
    /// Name of the computer it ran on.
    pub hostname: Option<String>,
    /// Process id of the program.
    pub pid: Option<u32>,
    /// Process id of the process that made it, where several processes are recorded.
    #[serde(default)]
    pub parent_pid: Option<u32>,
    /// The profile that it was, of one of several that were merged: a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_as: Option<String>,
    /// Version of the memlens that collected.
    pub memlens_version: String,
    /// Whether counts are estimates (`burst`, `sample`) and not counted one by one.
    pub estimated: bool,
    /// What shares are of: `wait_cycles` in exact and burst mode.
    pub primary_cost: String,
    /// What a reader has to know about the collection, one sentence each.
    pub notes: Vec<String>,
    /// How samples were taken; `None` in modes that see every access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplingInfo>,
    /// In mode `burst`: how much was recorded, and what that cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bursts: Option<BurstInfo>,
    /// In mode `burst`: where threads waited for others without giving the processor back, longest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spin_waits: Vec<SpinWait>,
    /// In mode `burst`: how many bursts that stand for equally much wait tell as much (Kish's effective sample size, as
    /// in [`SamplingInfo::effective_samples`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_bursts: Option<f64>,
    /// Cycles that the modelled core takes for the run's code, the stalls of [`memlens_types::Counts::stall_cycles`] among them; no more
    /// than was measured, where bursts tell. None: no core was modelled, nothing was looked at, or nothing of that missed while other
    /// accesses did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_cycles: Option<u64>,
    /// Cycles that the code took for itself, as bursts measured it; None: they did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_cycles: Option<u64>,
    /// The stalls of the modelled core alone, where [`memlens_types::Counts::stall_cycles`] have been held against the time that bursts measured, which
    /// may have no room for all of them. None: they have not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modelled_stall_cycles: Option<u64>,
    /// The most bytes of heap blocks that were live at one time; `None`: not known. In merged profiles the sum of the processes' own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heap_peak_bytes: Option<u64>,
    /// What [`Profile::slices`](crate::Profile::slices) are counted in; `None`: there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    /// Whether it was modelled which stalls there would be without translation of addresses
    /// ([`memlens_types::Counts::translation_stall_cycles`]): older versions did not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_translation_stalls: bool,
}

impl RunInfo {
    /// Takes over what was found out with the counts, which whoever knows the run otherwise does not know: what a model of the core says,
    /// in what slices are counted, and how large the heap was.
    pub fn set_modelled(&mut self, made: &Self) {
        self.clock = made.clock;
        self.heap_peak_bytes = made.heap_peak_bytes;
        self.core_cycles = made.core_cycles;
        self.measured_cycles = made.measured_cycles;
        self.modelled_stall_cycles = made.modelled_stall_cycles;
        self.has_translation_stalls = made.has_translation_stalls;
    }

    /// How the note begins that says what numbers from bursts are.
    pub const RECORDED: &str = "Counts are estimates ";

    /// In mode `burst`: if bursts tell less than as many that stand for equal parts of the run, even what comes first may be chance.
    pub const RELIABLE_BURSTS: f64 = 5.0;

    /// The part of the program's processor time that recording cost it, 0 to 1: an estimate. `None`: not known, as in exact mode.
    pub fn overhead(&self) -> Option<f64> {
        let of_samples =
            |sampling: &SamplingInfo| Some(sampling.overhead? + sampling.allocations_overhead.unwrap_or(0.0));
        self.bursts.map(|bursts| bursts.overhead()).or_else(|| of_samples(self.sampling.as_ref()?))
    }

    /// In mode `burst`: as how many bursts that stand for equal parts of the run those tell that there are, where that is
    /// so few that a phase of a tenth of the run may be missing.
    pub fn too_few_bursts(&self) -> Option<f64> {
        const FEW: f64 = 15.0;
        self.effective_bursts.filter(|&bursts| bursts < FEW)
    }
}

/// What a sample's cost is counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SampleUnit {
    /// Nanoseconds of processor time in user mode: where time goes, waiting or not.
    #[default]
    Nanoseconds,
    /// Events of the processor: loads, cache misses.
    Events,
}

impl SampleUnit {
    /// The word in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nanoseconds => "nanoseconds",
            Self::Events => "events",
        }
    }
}

/// How samples were taken, and how many. Units: samples, unless the name says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SamplingInfo {
    /// The event as `perf list` calls it: `cpu-clock`, `mem-loads`, `cache-misses` …
    pub event: String,
    /// What a sample's cost is counted in.
    pub unit: SampleUnit,
    /// Samples a second and processor that were asked for last; `None`: by period.
    pub frequency_hz: Option<u64>,
    /// All samples of the profile.
    pub samples: u64,
    /// Their cost, in `unit`.
    pub cost: u64,
    /// Sum of the squares of their costs: with `cost` it gives the effective number of samples.
    pub squared_cost: f64,
    /// Samples that the kernel dropped because nobody took them in time.
    pub lost: u64,
    /// Times the kernel slowed the sampling down.
    pub throttled: u64,
    /// Call stacks that could be followed to their outermost frame.
    pub whole_stacks: u64,
    /// Call stacks that could not.
    pub cut_stacks: u64,
    /// Processor time that memlens itself used while it recorded, in seconds.
    pub own_cpu_seconds: Option<f64>,
    /// What a sample cost the program, in seconds, as measured on the machine.
    #[serde(default)]
    pub sample_cost_seconds: Option<f64>,
    /// The part of the program's processor time that samples cost it, 0 to 1; an estimate from
    /// `sample_cost_seconds`.
    #[serde(default)]
    pub overhead: Option<f64>,
    /// The part that watching allocations cost it besides, likewise, but for the few instructions of each call that is not watched; `None`:
    /// none are watched, or that is not known.
    #[serde(default)]
    pub allocations_overhead: Option<f64>,
    /// How often the frequency was changed to stay within the budget.
    #[serde(default)]
    pub frequency_changes: u64,
}

/// How much bursts recorded, and what that cost the program. Times: seconds of its processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BurstInfo {
    /// How many bursts there were.
    pub bursts: u64,
    /// Accesses in them.
    pub references: u64,
    /// All that was seen of the program's time.
    pub program_seconds: f64,
    /// What bursts took of that. The program goes on in them, …
    pub inside_seconds: f64,
    /// … so that they cost it less: all but what it would have taken natively.
    pub cost_seconds: f64,
    /// What reports of watched allocations cost it, as measured in it; not the few instructions of each call that is not watched. `None`: none
    /// are watched.
    pub allocations_seconds: Option<f64>,
}

/// Processor time that threads spent in a loop that looks at data until another thread changes it: no accesses stand for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpinWait {
    /// The name of the object that the loop reads, as rows of objects have it. None: not known.
    pub object: Option<String>,
    /// Function, file and line of the loop. None: not known.
    pub function: Option<String>,
    /// The file.
    pub file: Option<String>,
    /// Its line, where most of the time went by.
    pub line: Option<u32>,
    /// Processor time.
    pub seconds: f64,
}

impl SpinWait {
    /// Those of several profiles together, longest first.
    pub fn together(all: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut sums: Vec<Self> = Vec::new();
        for wait in all {
            let is_same = |sum: &&mut Self| {
                (&sum.object, &sum.function, &sum.file) == (&wait.object, &wait.function, &wait.file)
            };
            match sums.iter_mut().find(is_same) {
                Some(sum) => sum.seconds += wait.seconds,
                None => sums.push(wait),
            }
        }
        sums.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        sums
    }
}

impl BurstInfo {
    /// The part of the program's processor time that it was recorded in, 0 to 1.
    pub fn inside(&self) -> f64 {
        self.inside_seconds / self.program_seconds.max(1e-9)
    }

    /// The part that recording cost it, 0 to 1.
    pub fn overhead(&self) -> f64 {
        (self.cost_seconds + self.allocations_seconds.unwrap_or(0.0)) / self.program_seconds.max(1e-9)
    }

    fn add(&mut self, other: &Self) {
        self.bursts += other.bursts;
        self.references += other.references;
        self.program_seconds += other.program_seconds;
        self.inside_seconds += other.inside_seconds;
        self.cost_seconds += other.cost_seconds;
        let allocations = [self.allocations_seconds, other.allocations_seconds].into_iter().flatten();
        self.allocations_seconds = allocations.reduce(|a, b| a + b);
    }

    /// Those of two profiles together.
    pub fn together(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        let mut sum = a.or(b)?;
        if let (Some(_), Some(b)) = (a, b) {
            sum.add(&b);
        }
        Some(sum)
    }
}

impl SamplingInfo {
    /// How many samples of equal cost tell as much (Kish's effective sample size: L. Kish, Survey
    /// Sampling, 1965, section 11.7): (Σ cost)² ÷ Σ cost².
    pub fn effective_samples(&self) -> f64 {
        let cost = self.cost as f64;
        if self.squared_cost > 0.0 { cost * cost / self.squared_cost } else { 0.0 }
    }
}

/// How good the attribution is: silent losses would be wrong answers. Units: events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribution {
    /// Accesses that belong to an object of a kind other than unknown.
    pub attributed_accesses: u64,
    /// Accesses of objects of the kind unknown.
    pub unknown_accesses: u64,
    /// `unknown_accesses`, split by reason.
    pub unknown_reasons: BTreeMap<String, u64>,
    /// Events that the collector had to drop.
    pub lost_events: u64,
    /// Allocation stacks that were cut before the outermost frame.
    pub truncated_stacks: u64,
    /// Code addresses for which no function was found.
    pub unresolved_code: u64,
    /// Whether the profile ends before the program did.
    pub truncated: bool,
    /// Further remarks, one sentence each.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_few_by_what_they_tell() {
        let run = |effective_bursts| RunInfo { effective_bursts, ..RunInfo::default() };
        assert_eq!(run(Some(4.6)).too_few_bursts(), Some(4.6));
        assert_eq!([run(Some(15.0)), run(None)].map(|it| it.too_few_bursts()), [None, None]);
    }
}

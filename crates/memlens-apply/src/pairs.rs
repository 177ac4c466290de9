//! Runs without and with a change, in pairs, one directly after the other.

use std::io;

use crate::statistics::{Estimate, median};
use crate::trial::{Command, End, Trial, Variant, run};

/// What a run is measured by: seconds from its start to its end.
pub fn wall(trial: &Trial) -> f64 {
    trial.wall.as_secs_f64()
}

/// Seconds of processor time.
pub fn cpu(trial: &Trial) -> f64 {
    trial.cpu.as_secs_f64()
}

/// Page walks as counted; 0 of runs without a counter, see [`Pairs::are_walks_counted`].
pub fn walks(trial: &Trial) -> f64 {
    trial.page_walks.unwrap_or(0) as f64
}

/// Pairs of runs: without, with.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    /// The runs.
    pub pairs: Vec<[Trial; 2]>,
    /// Other runs without and with, that took longer because they were looked at.
    pub others: [Vec<Trial>; 2],
}

impl Pairs {
    /// Runs `command` so many times each way. `begins` is called before each run.
    ///
    /// # Errors
    /// When it cannot be started or waited for.
    pub fn run(
        &mut self,
        command: &Command,
        variants: [&Variant; 2],
        count: u32,
        mut begins: impl FnMut(),
    ) -> io::Result<()> {
        let mut next = |variant: &Variant| {
            begins();
            run(command, variant, None)
        };
        for pair in 0..count {
            // Who goes first alternates, so that a trend favours neither.
            let first_is_plain = pair % 2 == 0;
            let order = if first_is_plain { [0, 1] } else { [1, 0] };
            let first = next(variants[order[0]])?;
            let second = next(variants[order[1]])?;
            self.pairs.push(if first_is_plain { [first, second] } else { [second, first] });
        }
        Ok(())
    }

    /// Values of the runs without (0) or with (1).
    pub fn values(&self, which: usize, of: impl Fn(&Trial) -> f64) -> Vec<f64> {
        self.pairs.iter().map(|pair| of(&pair[which])).collect()
    }

    /// The median of [`Self::values`]; 0 of no runs.
    pub fn median(&self, which: usize, of: impl Fn(&Trial) -> f64) -> f64 {
        median(&self.values(which, of)).unwrap_or(0.0)
    }

    /// Change of some time, as a share of that without: out of the pairs, with its interval.
    pub fn change(&self, of: impl Fn(&Trial) -> f64) -> Option<Estimate> {
        let ratios: Vec<f64> = self
            .pairs
            .iter()
            .filter(|pair| of(&pair[0]) > 0.0 && of(&pair[1]) > 0.0)
            .map(|pair| of(&pair[1]) / of(&pair[0]))
            .collect();
        Estimate::of_ratios(&ratios)
    }

    /// Whether the processor counted the page walks of all runs.
    pub fn are_walks_counted(&self) -> bool {
        !self.pairs.is_empty() && self.pairs.iter().flatten().all(|trial| trial.page_walks.is_some())
    }

    fn without(&self) -> impl Iterator<Item = &Trial> {
        self.pairs.iter().map(|pair| &pair[0]).chain(&self.others[0])
    }

    /// Whether all runs without wrote the same and ended alike.
    pub fn is_deterministic(&self) -> bool {
        let first = self.without().next();
        first.is_none_or(|first| self.without().all(|trial| trial.did_the_same_as(first)))
    }

    /// Whether all runs did, with or without.
    pub fn is_same(&self) -> bool {
        let mut all = self.without().chain(self.pairs.iter().map(|pair| &pair[1])).chain(&self.others[1]);
        all.next().is_none_or(|first| all.all(|trial| trial.did_the_same_as(first)))
    }

    /// Whether all measured runs ended with exit code 0.
    pub fn succeeded(&self) -> bool {
        self.pairs.iter().flatten().all(|trial| trial.end == End::Code(0))
    }
}

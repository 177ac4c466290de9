//! How much a side has of a column, and how sure that is.

use std::collections::HashMap;

use memlens_profile::Profile;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::DiffError;
use super::pairs::pairs;
use super::runs::Runs;
use crate::column::{Column, Content};
use crate::interval::{Certainties, Certainty, of_difference};
use crate::row::{By, Row, Whole, rows};

/// The 97.5 % point of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// By how much the logarithm of a whole program's stalls differs from one run in burst mode to the next besides what its bursts do, as a
/// standard deviation: which misses the core and the prefetcher hide is modelled from some whole bursts, and the stalls are held against
/// measured time. Fitted, see `docs/accuracy.md`, "Two runs against each other".
const SPREAD_OF_STALLS: f64 = 0.4;

/// The same of processor time, on machines that have something else to do, too: samples are as many as there is time, but that differs.
const SPREAD_OF_TIME: f64 = 0.1;

/// An amount, and what is known of its error.
pub(super) struct Estimate {
    /// The mean of the runs.
    pub(super) value: f64,
    /// 95 % interval of one run's, where it is estimated.
    interval: Option<(f64, f64)>,
    /// What each run has, if there are several.
    runs: Vec<f64>,
}

/// The 95 % interval of what `b` is more than `a`; `None`: nothing is known of chance. Of several runs each it is what the runs tell
/// (B. L. Welch, The Generalization of ‘Student's’ Problem when Several Different Population Variances are Involved, Biometrika 34, 1947),
/// else what bursts and samples tell of themselves.
pub(super) fn difference(a: &Estimate, b: &Estimate) -> Option<(f64, f64)> {
    if a.runs.len() > 1 && b.runs.len() > 1 {
        return Some(welch(&a.runs, &b.runs));
    }
    let interval = |it: &Estimate| if it.runs.len() > 1 { Some(welch(&[], &it.runs)) } else { it.interval };
    let (of_a, of_b) = (interval(a), interval(b));
    (of_a.is_some() || of_b.is_some()).then(|| of_difference((a.value, of_a), (b.value, of_b)))
}

/// The 95 % interval of the mean of `b` less that of `a`; without `a`, of `b`'s mean.
fn welch(a: &[f64], b: &[f64]) -> (f64, f64) {
    /// Mean, its variance, and the degrees of freedom of that.
    fn mean(of: &[f64]) -> (f64, f64, f64) {
        let count = of.len() as f64;
        if of.len() < 2 {
            return (of.iter().sum(), 0.0, 1.0);
        }
        let mean = of.iter().sum::<f64>() / count;
        let squares: f64 = of.iter().map(|value| (value - mean).powi(2)).sum();
        (mean, squares / (count - 1.0) / count, count - 1.0)
    }
    let ((mean_a, of_a, free_a), (mean_b, of_b, free_b)) = (mean(a), mean(b));
    let (change, variance) = (mean_b - mean_a, of_a + of_b);
    if variance <= 0.0 {
        return (change, change);
    }
    let freedom = variance * variance / (of_a * of_a / free_a + of_b * of_b / free_b);
    let quantile = StudentsT::new(0.0, 1.0, freedom).map_or(Z, |student| student.inverse_cdf(0.975));
    let half = quantile * variance.sqrt();
    (change - half, change + half)
}

/// One of both.
pub(super) struct Side<'a> {
    profile: &'a Profile,
    of: Column,
    pub(super) whole: Whole,
    /// The whole program's amount in all runs, where it has one, and what each run has.
    total: Option<f64>,
    run_totals: Vec<f64>,
    /// What each run has of a row.
    run_rows: HashMap<RowKey, Vec<f64>>,
    count: f64,
}

/// What tells rows of one profile apart.
#[derive(PartialEq, Eq, Hash)]
struct RowKey {
    /// The first object's number, of objects; else …
    object: Option<u32>,
    /// … the row's name, place and kind.
    words: [Option<String>; 3],
}

impl RowKey {
    fn of(row: &Row) -> Self {
        match row.ids.first() {
            Some(&object) => Self { object: Some(object), words: [None, None, None] },
            None => {
                Self { object: None, words: [Some(row.name.clone()), row.place.clone(), row.kind.clone()] }
            }
        }
    }
}

impl<'a> Side<'a> {
    pub(super) fn of(runs: &'a Runs, of: Column, name: char, by: By) -> Result<Self, DiffError> {
        let profile = runs.whole();
        let whole = Whole::of(profile, &profile.totals());
        let total = amount(of, &program(profile, whole));
        if total.is_none() && !rows(profile, by, Column::Share).iter().any(|row| amount(of, row).is_some()) {
            return Err(DiffError::Unknown { profile: name, column: of.as_str(), by: by.as_str() });
        }
        let mut run_rows: HashMap<RowKey, Vec<f64>> = HashMap::new();
        let mut run_totals = Vec::new();
        for (number, run) in runs.each().iter().enumerate() {
            let of_run = Whole::of(run, &run.totals());
            run_totals.extend(amount(of, &program(run, of_run)));
            for (of_all, of_one) in pairs(profile, run, by, [whole, of_run]) {
                let (Some(of_all), Some(of_one)) = (of_all, of_one) else { continue };
                let amounts = run_rows.entry(RowKey::of(&of_all)).or_insert_with(|| vec![0.0; runs.count()]);
                amounts[number] += amount(of, &of_one).unwrap_or(0.0);
            }
        }
        Ok(Self { profile, of, whole, total, run_totals, run_rows, count: runs.count() as f64 })
    }

    /// What a row has; 0 without one.
    pub(super) fn estimate(&self, row: Option<&Row>, same_model: bool) -> Estimate {
        let value = row.and_then(|row| amount(self.of, row)).unwrap_or(0.0);
        if self.count > 1.0 {
            let runs = row.and_then(|row| self.run_rows.get(&RowKey::of(row)).cloned());
            let runs = runs.unwrap_or_else(|| vec![0.0; self.count as usize]);
            return Estimate { value: value / self.count, interval: None, runs };
        }
        let certainties = match row {
            Some(row) => row.certainties,
            None => Certainties::of_part(self.profile, self.whole),
        };
        let certainty = match self.of {
            Column::Share => certainties.share,
            Column::StallCycles => certainties.stall,
            _ => None,
        };
        let of_model = |it: Certainty| if same_model { it.of_same_model() } else { it };
        let interval = certainty.zip(self.total).filter(|(_, total)| *total > 0.0).and_then(|(it, total)| {
            let (low, high) = of_model(it).interval(value / total)?;
            Some(with_total(value, (low * total, high * total), self.spread()))
        });
        Estimate { value, interval, runs: Vec::new() }
    }

    /// What the whole program has.
    pub(super) fn total_estimate(&self) -> Option<Estimate> {
        let total = self.total?;
        let is_estimated = matches!(self.of, Column::Share | Column::StallCycles) && self.spread() > 0.0;
        let interval = is_estimated.then(|| with_total(total, (total, total), self.spread()));
        Some(Estimate { value: total / self.count, interval, runs: self.run_totals.clone() })
    }

    /// Standard deviation of the logarithm of a run's total; 0: it is counted. A sum over so many independent parts of like size differs
    /// by the root of their number.
    fn spread(&self) -> f64 {
        let run = &self.profile.run;
        match (run.effective_bursts, self.of) {
            (Some(bursts), Column::StallCycles) => bursts.max(1.0).sqrt().recip().hypot(SPREAD_OF_STALLS),
            (Some(bursts), _) => bursts.max(1.0).sqrt().recip(),
            (None, _) if run.sampling.is_some() => SPREAD_OF_TIME,
            (None, _) => 0.0,
        }
    }
}

/// The whole program as a row.
fn program(profile: &Profile, whole: Whole) -> Row {
    let objects = || profile.objects.iter();
    Row {
        blocks: Some(objects().fold(0, |sum, object| sum.saturating_add(object.blocks))),
        bytes: Some(objects().filter_map(|object| object.bytes).fold(0, u64::saturating_add)),
        ..Row::new(profile, String::new(), &profile.totals(), true, whole)
    }
}

/// How much of a column a row has.
fn amount(of: Column, row: &Row) -> Option<f64> {
    match of.content(row) {
        _ if of == Column::Share => Some(row.cost as f64),
        Content::Count(value) | Content::Bytes(value) => value.map(|value| value as f64),
        Content::Ratio(_) | Content::Text(_) => None,
    }
}

/// The interval of a part of a total that is itself known to a factor: both errors are of the logarithm, and independent.
fn with_total(value: f64, (low, high): (f64, f64), spread: f64) -> (f64, f64) {
    let of_total = Z * spread;
    if value <= 0.0 {
        return (0.0, high * of_total.exp());
    }
    let down = (value / low).ln().hypot(of_total);
    let up = (high / value).ln().hypot(of_total);
    (value * (-down).exp(), value * up.exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_errors_are_in_it() {
        let near = |(a, b): (f64, f64), (c, d): (f64, f64)| (a - c).abs() < 1e-9 && (b - d).abs() < 1e-9;
        assert!(near(with_total(10.0, (5.0, 20.0), 0.0), (5.0, 20.0)), "the share's alone");
        let factor = (Z * 0.1).exp();
        assert!(
            near(with_total(10.0, (10.0, 10.0), 0.1), (10.0 / factor, 10.0 * factor)),
            "the total's alone"
        );
        let (low, high) = with_total(10.0, (5.0, 20.0), 0.1);
        let both = 2.0_f64.ln().hypot(Z * 0.1).exp();
        assert!(near((low, high), (10.0 / both, 10.0 * both)), "{low} {high}");
        assert!(with_total(10.0, (0.0, 20.0), 0.1).0 < 1e-9, "it may be nothing");
        assert_eq!(with_total(0.0, (0.0, 2.0), 0.0), (0.0, 2.0));
    }

    #[test]
    fn runs_tell_how_sure_their_means_are() {
        // Variances of the means 1/3 and 4/3, means 2 and 6: 4 ± t √(5/3), with (5/3)² ÷ ((1/9 + 16/9) ÷ 2) = 2.941 degrees of freedom, for which
        // t is between 3.182 (of 3) and 4.303 (of 2).
        let (low, high) = welch(&[1.0, 2.0, 3.0], &[4.0, 6.0, 8.0]);
        let half = (high - low) / 2.0;
        assert!(((low + high) / 2.0 - 4.0).abs() < 1e-9);
        assert!(half > 3.182 * (5.0_f64 / 3.0).sqrt() && half < 3.3 * (5.0_f64 / 3.0).sqrt(), "{half}");
        // The mean of one side: 6 ± 4.303 √(4/3).
        let (low, high) = welch(&[], &[4.0, 6.0, 8.0]);
        assert!((low - (6.0 - 4.3027 * (4.0_f64 / 3.0).sqrt())).abs() < 1e-3 && high > 10.9, "{low} {high}");
        assert_eq!(welch(&[5.0, 5.0], &[7.0, 7.0]), (2.0, 2.0), "counted, and always the same");
    }
}

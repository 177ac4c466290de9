//! How much a side has of a column, and how sure that is.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::groups::{Amounts, amount};
use super::runs::Runs;
use crate::column::Column;
use crate::interval::{Certainties, Certainty, Z, of_difference};
use crate::row::{Row, Whole};

/// By how much the logarithm of a whole program's stalls differs from one run in burst mode to the next besides what its bursts do, as a
/// standard deviation: which misses the core and the prefetcher hide is modelled from some whole bursts, and the stalls are held against
/// measured time. Fitted, see `docs/accuracy-bursts.md`, "Amounts of two runs".
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

/// The 95 % interval of what `b` is more than `a`; `None`: nothing is known of chance. Of several runs it is what the runs tell
/// (B. L. Welch, The Generalization of ‘Student's’ Problem when Several Different Population Variances are Involved, Biometrika 34, 1947),
/// else what bursts and samples tell of themselves. A single run that was counted is taken to be one of those of the other side.
pub(super) fn difference(a: &Estimate, b: &Estimate) -> Option<(f64, f64)> {
    let are_several = |it: &Estimate| it.runs.len() > 1;
    let (of_a, of_b) = (Spread::of(&a.runs), Spread::of(&b.runs));
    let spread = match (are_several(a), are_several(b)) {
        (true, true) => of_a.and(of_b),
        (true, false) if b.interval.is_none() => of_a.and_one_more(a.runs.len()),
        (false, true) if a.interval.is_none() => of_b.and_one_more(b.runs.len()),
        _ => {
            let interval = |it: &Estimate, spread: Spread| match are_several(it) {
                true => Some(spread.around(it.value)),
                false => it.interval,
            };
            let (of_a, of_b) = (interval(a, of_a), interval(b, of_b));
            return (of_a.is_some() || of_b.is_some())
                .then(|| of_difference((a.value, of_a), (b.value, of_b)));
        }
    };
    Some(spread.around(b.value - a.value))
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len().max(1) as f64
}

/// The variance of a mean, and the degrees of freedom of that.
#[derive(Clone, Copy, Debug)]
struct Spread {
    variance: f64,
    freedom: f64,
}

impl Spread {
    fn of(runs: &[f64]) -> Self {
        let (count, mean) = (runs.len() as f64, mean(runs));
        let squares: f64 = runs.iter().map(|value| (value - mean).powi(2)).sum();
        let freedom = (count - 1.0).max(1.0);
        Self { variance: squares / freedom / count.max(1.0), freedom }
    }

    /// Of the difference to another mean.
    fn and(self, other: Self) -> Self {
        let variance = self.variance + other.variance;
        let parts = |it: Self| it.variance * it.variance / it.freedom;
        Self { variance, freedom: variance * variance / (parts(self) + parts(other)) }
    }

    /// Of the difference to one more run, of which this is the mean of `count`.
    fn and_one_more(self, count: usize) -> Self {
        Self { variance: self.variance * (count as f64 + 1.0), ..self }
    }

    /// The 95 % interval around a value.
    fn around(self, value: f64) -> (f64, f64) {
        if self.variance <= 0.0 {
            return (value, value);
        }
        let quantile = StudentsT::new(0.0, 1.0, self.freedom).map_or(Z, |student| student.inverse_cdf(0.975));
        let half = quantile * self.variance.sqrt();
        (value - half, value + half)
    }
}

/// One of both.
pub(super) struct Side<'a> {
    runs: &'a Runs,
    of: Column,
    whole: Whole,
    /// The whole program's amount in each run, where it has one.
    totals: Option<Vec<f64>>,
}

impl<'a> Side<'a> {
    pub(super) fn of(runs: &'a Runs, of: Column) -> Self {
        let totals = runs.each().iter().map(|run| amount(of, &Row::of_program(run, &run.totals()))).collect();
        let whole = Whole::of(runs.whole(), &runs.whole().totals());
        Self { runs, of, whole, totals }
    }

    /// What a row has; 0 without one.
    pub(super) fn estimate(&self, row: Option<&Row>, amounts: &Amounts, same_model: bool) -> Estimate {
        let value = mean(&amounts.runs);
        if self.runs.count() > 1 {
            return Estimate { value, interval: None, runs: amounts.runs.clone() };
        }
        let certainties = match row {
            Some(row) => row.certainties,
            None => Certainties::of_part(self.runs.whole(), self.whole),
        };
        let certainty = match self.of {
            Column::Share => certainties.share,
            Column::StallCycles => certainties.stall,
            _ => None,
        };
        let of_model = |it: Certainty| if same_model { it.of_same_model() } else { it };
        let total = self.totals.as_deref().map(mean).filter(|total| *total > 0.0);
        let interval = certainty.zip(total).and_then(|(it, total)| {
            let (low, high) = of_model(it).interval(value / total)?;
            Some(with_total(value, (low * total, high * total), self.spread()))
        });
        Estimate { value, interval, runs: Vec::new() }
    }

    /// What the whole program has.
    pub(super) fn total_estimate(&self) -> Option<Estimate> {
        let totals = self.totals.as_ref()?;
        let value = mean(totals);
        if self.runs.count() > 1 {
            return Some(Estimate { value, interval: None, runs: totals.clone() });
        }
        let is_estimated = matches!(self.of, Column::Share | Column::StallCycles) && self.spread() > 0.0;
        let interval = is_estimated.then(|| with_total(value, (value, value), self.spread()));
        Some(Estimate { value, interval, runs: Vec::new() })
    }

    /// Standard deviation of the logarithm of a run's total; 0: it is counted. A sum over so many independent parts of like size differs
    /// by the root of their number.
    fn spread(&self) -> f64 {
        let run = &self.runs.whole().run;
        match (run.effective_bursts, self.of) {
            (Some(bursts), Column::StallCycles) => bursts.max(1.0).sqrt().recip().hypot(SPREAD_OF_STALLS),
            (Some(bursts), _) => bursts.max(1.0).sqrt().recip(),
            (None, _) if run.sampling.is_some() => SPREAD_OF_TIME,
            (None, _) => 0.0,
        }
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
        let of = |runs: &[f64]| Estimate { value: mean(runs), interval: None, runs: runs.to_vec() };
        let (three, others) = (of(&[1.0, 2.0, 3.0]), of(&[4.0, 6.0, 8.0]));
        // Variances of the means 1/3 and 4/3, means 2 and 6: 4 ± t √(5/3), with (5/3)² ÷ ((1/9 + 16/9) ÷ 2) = 2.941 degrees of freedom, for which
        // t is a little more than 3.182 (of 3).
        let (low, high) = difference(&three, &others).expect("runs differ");
        let half = (high - low) / 2.0;
        assert!(((low + high) / 2.0 - 4.0).abs() < 1e-9);
        let deviation = (5.0_f64 / 3.0).sqrt();
        assert!(half > 3.182 * deviation && half < 3.3 * deviation, "{half}");
        // One more run like the three: its variance 1 and that of their mean, 1/3, with 2 degrees of freedom: 4.303.
        let one = Estimate { value: 5.0, interval: None, runs: Vec::new() };
        let (low, high) = difference(&three, &one).expect("runs differ");
        let half = 4.3027 * (4.0_f64 / 3.0).sqrt();
        assert!((low - (3.0 - half)).abs() < 1e-3 && (high - (3.0 + half)).abs() < 1e-3, "{low} {high}");
        // One that knows its error: Newcombe's difference of 2 ± 4.303 √(1/3) and 5 ± 1.
        let one = Estimate { value: 5.0, interval: Some((4.0, 6.0)), runs: Vec::new() };
        let (low, high) = difference(&three, &one).expect("runs differ");
        let half = 1.0_f64.hypot(4.3027 / 3.0_f64.sqrt());
        assert!((low - (3.0 - half)).abs() < 1e-3 && (high - (3.0 + half)).abs() < 1e-3, "{low} {high}");
        let (same, counted) = (of(&[5.0, 5.0]), of(&[7.0, 7.0]));
        assert_eq!(difference(&same, &counted), Some((2.0, 2.0)), "always as many");
        let one = |value| Estimate { value, interval: None, runs: Vec::new() };
        assert_eq!(difference(&one(1.0), &one(2.0)), None, "one run each says nothing");
    }
}

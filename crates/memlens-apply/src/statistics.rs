//! Medians and distribution-free intervals of few, noisy measurements.
//!
//! Runs with and without a change are made in pairs, one directly after the other, so that what slows the machine
//! down for a while slows both. The estimate is the median of the pairs' ratios; its interval is bounded by two of the
//! sorted ratios, which holds whatever their distribution: the sign test's interval (Conover: Practical
//! nonparametric statistics, 3rd edition, 1999, section 3.2).

/// A median with an interval for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability that the interval covers the true median: 0.95 or more from 6 values on.
    pub coverage: f64,
}

impl Estimate {
    /// Of some values; None of no values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let median = median(values)?;
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        // How many values are left out at each end: as many as leave 95 %.
        let mut cut = 0;
        while 2 * (cut + 2) <= count && 1.0 - 2.0 * at_most(cut + 1, count) >= 0.95 {
            cut += 1;
        }
        Some(Self {
            median,
            low: sorted[cut],
            high: sorted[count - 1 - cut],
            coverage: 1.0 - 2.0 * at_most(cut, count),
        })
    }
}

/// The probability of at most `successes` in `trials` throws of a coin.
fn at_most(successes: usize, trials: usize) -> f64 {
    let mut term = 0.5_f64.powi(trials as i32);
    let mut sum = term;
    for k in 0..successes {
        term *= (trials - k) as f64 / (k + 1) as f64;
        sum += term;
    }
    sum
}

/// The median; None of no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The ratio of two lists' medians; None if one is empty or the second is 0.
pub fn ratio_of_medians(first: &[f64], second: &[f64]) -> Option<f64> {
    let (first, second) = (median(first)?, median(second)?);
    (second > 0.0).then(|| first / second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_sign_test() {
        // Conover's table A3 for p = 1/2: n = 9 leaves one value out at each end, n = 6 none, n = 20 five.
        let nine: Vec<f64> = (1..=9).map(f64::from).collect();
        let estimate = Estimate::of(&nine).expect("values");
        assert_eq!((estimate.median, estimate.low, estimate.high), (5.0, 2.0, 8.0));
        assert!((estimate.coverage - (1.0 - 20.0 / 512.0)).abs() < 1e-12);
        let six = Estimate::of(&[3.0, 1.0, 2.0, 6.0, 5.0, 4.0]).expect("values");
        assert_eq!((six.median, six.low, six.high), (3.5, 1.0, 6.0));
        assert!((six.coverage - (1.0 - 2.0 / 64.0)).abs() < 1e-12);
        let twenty: Vec<f64> = (1..=20).map(f64::from).collect();
        let estimate = Estimate::of(&twenty).expect("values");
        assert_eq!((estimate.low, estimate.high), (6.0, 15.0));
        let one = Estimate::of(&[7.0]).expect("a value");
        assert_eq!((one.low, one.high, one.coverage), (7.0, 7.0, 0.0), "one value says nothing");
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn an_interval_covers_as_often_as_it_says() {
        // Medians of a skewed distribution, by a generator with a fixed seed (splitmix64).
        let mut state = 1_u64;
        let mut draw = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let unit = ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
            -(1.0 - unit).ln()
        };
        let covered = (0..2000)
            .filter(|_| {
                let values: Vec<f64> = (0..9).map(|_| draw()).collect();
                let estimate = Estimate::of(&values).expect("values");
                (estimate.low..=estimate.high).contains(&std::f64::consts::LN_2)
            })
            .count();
        // 96.1 % expected; 4 standard deviations of 0.43 %.
        assert!((1887..=1957).contains(&covered), "{covered}");
    }
}

//! Changes and their intervals out of few, noisy measurements.
//!
//! Runs with and without a change are made in pairs, one directly after the other, so that what slows the machine
//! down for a while slows both. What remains disturbs each run by a factor of its own: which frames it gets, who else
//! is there. A pair's logarithm of with ÷ without is then the change's, plus the difference of two alike draws, and a
//! difference of alike draws lies symmetrically around zero, however the draws are distributed. So the signed-rank
//! test's interval holds, which is narrower than the sign test's (by 1.22 for normal disturbances): the estimate is
//! Hodges and Lehmann's, the median of the means of any two logarithms, each with itself included, and the interval
//! lies between two of these means (Hodges & Lehmann: Estimates of location based on rank tests, Ann. Math. Stat. 34,
//! 1963; Conover: Practical nonparametric statistics, 3rd edition, 1999, section 5.7).

/// The smallest coverage that an interval is made for.
const COVERAGE: f64 = 0.95;

/// A relative change with an interval for it: -0.2 is a fifth less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The change.
    pub change: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability that the interval covers the true change: 0.95 or more from 6 pairs on.
    pub coverage: f64,
}

impl Estimate {
    /// Of the ratios, with ÷ without, of some pairs; None of no pairs, and if a ratio is not positive.
    ///
    /// Cost: the square of their number.
    pub fn of_ratios(ratios: &[f64]) -> Option<Self> {
        if ratios.is_empty() || ratios.iter().any(|&ratio| !(ratio > 0.0 && ratio.is_finite())) {
            return None;
        }
        let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let mut means: Vec<f64> = Vec::with_capacity(logs.len() * (logs.len() + 1) / 2);
        for (at, first) in logs.iter().enumerate() {
            means.extend(logs[at..].iter().map(|second| (first + second) / 2.0));
        }
        means.sort_by(f64::total_cmp);
        let (cut, coverage) = cut(logs.len());
        let change = |log: f64| log.exp_m1();
        Some(Self {
            change: change(median(&means)?),
            low: change(means[cut]),
            high: change(means[means.len() - 1 - cut]),
            coverage,
        })
    }
}

/// How many of the sorted means of `count` values lie outside of the interval at each end: as many as leave 95 %; and
/// what is left then.
fn cut(count: usize) -> (usize, f64) {
    // The rank sum is at most so many in so many of the 2^count ways to give signs to the ranks: each rank in turn
    // is in the sum or is not.
    let most = count * (count + 1) / 2;
    let mut ways = vec![0.0; most + 1];
    ways[0] = 1.0;
    for rank in 1..=count {
        for sum in (0..=most).rev() {
            let with = if sum >= rank { ways[sum - rank] } else { 0.0 };
            ways[sum] = (ways[sum] + with) / 2.0;
        }
    }
    let mut outside = ways[0];
    let mut cut = 0;
    while cut + 1 < most.div_ceil(2) && 1.0 - 2.0 * (outside + ways[cut + 1]) >= COVERAGE {
        cut += 1;
        outside += ways[cut];
    }
    (cut, (1.0 - 2.0 * outside).max(0.0))
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
    fn intervals_are_those_of_the_signed_rank_test() {
        // Conover's table A12, quantile 0.025 of the rank sum: 6 for 9 pairs, 1 for 6, 53 for 20, 138 for 30. So many
        // means are left out.
        for (count, quantile) in [(6, 1), (7, 3), (9, 6), (12, 14), (20, 53), (30, 138)] {
            let (cut, coverage) = cut(count);
            assert_eq!(cut + 1, quantile, "{count} pairs");
            assert!((0.95..0.975).contains(&coverage), "{count} pairs: {coverage}");
        }
        // Of 9 pairs 10 of the 512 ways give a rank sum below 6: 1, 1, 1, 2, 2 and 3 for 0 to 5.
        assert!((cut(9).1 - (1.0 - 20.0 / 512.0)).abs() < 1e-12);
    }

    #[test]
    fn the_estimate_is_the_median_of_the_means_of_two() {
        // Logarithms 0, 1, 5: means 0, 0.5, 1, 2.5, 3, 5.
        let estimate = Estimate::of_ratios(&[1.0, 1_f64.exp(), 5_f64.exp()]).expect("ratios");
        assert!((estimate.change - 1.75_f64.exp_m1()).abs() < 1e-12);
        assert!(estimate.low.abs() < 1e-12 && (estimate.high - 5_f64.exp_m1()).abs() < 1e-9);
        assert!((estimate.coverage - 0.75).abs() < 1e-12, "of eight ways two have all signs alike");
        let one = Estimate::of_ratios(&[0.5]).expect("a ratio");
        assert_eq!(
            (one.change, one.low, one.high, one.coverage),
            (-0.5, -0.5, -0.5, 0.0),
            "one says nothing"
        );
        assert_eq!(Estimate::of_ratios(&[]), None);
        assert_eq!(Estimate::of_ratios(&[1.0, 0.0]), None, "no logarithm");
    }

    #[test]
    fn an_interval_covers_as_often_as_it_says() {
        // Runs that are mostly alike and now and then take far longer, in pairs with a change of -20 %, by a generator
        // with a fixed seed (splitmix64).
        let mut state = 1_u64;
        let mut unit = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut run = || 1.0 - 0.4 * (1.0 - unit()).ln();
        let covered = (0..2000)
            .filter(|_| {
                let ratios: Vec<f64> = (0..9).map(|_| 0.8 * run() / run()).collect();
                let estimate = Estimate::of_ratios(&ratios).expect("ratios");
                (estimate.low..=estimate.high).contains(&-0.2)
            })
            .count();
        // 96.1 % expected; 4 standard deviations of 0.43 %.
        assert!((1887..=1957).contains(&covered), "{covered}");
    }
}

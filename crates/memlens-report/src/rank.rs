//! How alike two rankings are: Spearman's and Kendall's coefficients, both with ties.
//!
//! Slices hold one value for each item, the same item at the same position. Coefficients go from −1
//! (reversed) to 1 (the same order). They are `None` where they say nothing: with fewer than two
//! items, or where all values of one side are equal.

/// Ranks from 1, the largest value first; equal values share the mean of their ranks. n log n.
///
/// ```
/// assert_eq!(memlens_report::rank::ranks(&[5.0, 9.0, 5.0]), [2.5, 1.0, 2.5]);
/// ```
pub fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let value = values[order[start]];
        let end = start + order[start..].iter().take_while(|&&item| values[item] == value).count().max(1);
        // The mean of start + 1 ..= end.
        let rank = (start + 1 + end) as f64 / 2.0;
        order[start..end].iter().for_each(|&item| ranks[item] = rank);
        start = end;
    }
    ranks
}

/// Spearman's ρ: Pearson's coefficient of the ranks. n log n.
///
/// Source: C. Spearman, "The Proof and Measurement of Association between Two Things", American
/// Journal of Psychology 15 (1904), with mean ranks for ties as in M. G. Kendall, *Rank Correlation
/// Methods* (1948), chapter 3.
pub fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    pearson(&ranks(a), &ranks(b))
}

fn pearson(a: &[f64], b: &[f64]) -> Option<f64> {
    let n = a.len().min(b.len());
    if n < 2 {
        return None;
    }
    let mean = |values: &[f64]| values[..n].iter().sum::<f64>() / n as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        ab += (x - mean_a) * (y - mean_b);
        aa += (x - mean_a).powi(2);
        bb += (y - mean_b).powi(2);
    }
    (aa > 0.0 && bb > 0.0).then(|| ab / (aa * bb).sqrt())
}

/// Kendall's τ-b: pairs in the same order less pairs in opposite order, over the geometric mean of
/// the pairs that either side can tell apart. Quadratic.
///
/// Source: M. G. Kendall, "The Treatment of Ties in Ranking Problems", Biometrika 33 (1945).
pub fn kendall(a: &[f64], b: &[f64]) -> Option<f64> {
    let n = a.len().min(b.len());
    let (mut difference, mut in_a, mut in_b) = (0i64, 0i64, 0i64);
    for i in 0..n {
        for j in i + 1..n {
            let order = |values: &[f64]| match values[i].partial_cmp(&values[j]) {
                Some(std::cmp::Ordering::Less) => -1,
                Some(std::cmp::Ordering::Greater) => 1,
                _ => 0,
            };
            let (x, y) = (order(a), order(b));
            difference += x * y;
            in_a += x.abs();
            in_b += y.abs();
        }
    }
    (in_a > 0 && in_b > 0).then(|| difference as f64 / (in_a as f64 * in_b as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: Option<f64>, expected: f64) {
        let value = value.expect("defined");
        assert!((value - expected).abs() < 1e-12, "{value} is not {expected}");
    }

    #[test]
    fn ties_share_their_mean_rank() {
        // 7 is first; the 5s would be 2, 3 and 4; 1 is last.
        assert_eq!(ranks(&[5.0, 7.0, 5.0, 1.0, 5.0]), [3.0, 1.0, 3.0, 5.0, 3.0]);
        assert_eq!(ranks(&[]), Vec::<f64>::new());
    }

    #[test]
    fn the_same_and_the_reversed_order() {
        let rising = [1.0, 2.0, 30.0, 400.0];
        let falling = [9.0, 8.0, 2.0, 1.0];
        near(spearman(&rising, &rising), 1.0);
        near(kendall(&rising, &rising), 1.0);
        near(spearman(&rising, &falling), -1.0);
        near(kendall(&rising, &falling), -1.0);
    }

    #[test]
    fn without_ties_by_the_textbook_formula() {
        // Ranks 1 2 3 4 5 against 2 1 4 3 5: d = 1 1 1 1 0, ρ = 1 − 6·4/(5·24) = 0.8.
        // Pairs: 10, of which (1,2) and (3,4) are reversed: τ = (8 − 2)/10 = 0.6.
        let a = [50.0, 40.0, 30.0, 20.0, 10.0];
        let b = [4.0, 5.0, 2.0, 3.0, 1.0];
        near(spearman(&a, &b), 0.8);
        near(kendall(&a, &b), 0.6);
    }

    #[test]
    fn with_ties_by_hand() {
        // Ranks of a: 1, 2.5, 2.5, 4. Ranks of b: 1, 2, 3, 4; means 2.5.
        // Σab = 2.25 + 0 + 0 + 2.25 = 4.5; Σaa = 4.5; Σbb = 5; ρ = 4.5/√22.5.
        // Pairs: a tells 5 of 6 apart, b 6, all 5 in the same order: τ-b = 5/√30.
        let a = [4.0, 2.0, 2.0, 1.0];
        let b = [9.0, 8.0, 7.0, 6.0];
        near(spearman(&a, &b), 4.5 / 22.5f64.sqrt());
        near(kendall(&a, &b), 5.0 / 30f64.sqrt());
    }

    #[test]
    fn nothing_to_rank_is_no_coefficient() {
        assert_eq!(spearman(&[1.0], &[1.0]), None);
        assert_eq!(kendall(&[1.0], &[1.0]), None);
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(kendall(&[1.0, 1.0], &[1.0, 2.0]), None);
    }
}

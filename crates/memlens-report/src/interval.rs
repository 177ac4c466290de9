//! How certain a share is that was estimated from samples.

use memlens_profile::Profile;

/// The 97.5 % point of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// By how much the variance of a share is taken to be larger than that of independent samples. Samples of one
/// timer in one run are not independent: the run has its own placement in memory, and program and timer
/// have rhythms. Measured over 100 runs with a known share (`bench/unbiased.py`): the square of the error was
/// 1.05 times that of independent samples, which with 95 % confidence is 1.35 at most (χ² with 100 degrees of
/// freedom); rounded up.
const DESIGN_EFFECT: f64 = 1.4;

/// The 95 % interval of a share of `whole` (a cost, the whole program's or a part's); `None` if the
/// profile holds no samples. The samples behind `whole` are taken in proportion to its cost.
///
/// Bursts are few, and what happens inside of one hangs together: a whole burst counts as one observation, and one that
/// costs much for more than one that costs little. An object's share of a burst lies between 0 and 1, so that its variance from
/// burst to burst is at most that of one that has all or nothing of each, share × (1 − share): intervals are too wide where
/// objects are used evenly.
pub(crate) fn of_share(profile: &Profile, share: f64, whole: u64) -> Option<(f64, f64)> {
    if let Some(bursts) = profile.run.effective_bursts {
        return wilson(share, bursts);
    }
    let sampling = profile.run.sampling.as_ref()?;
    if sampling.cost == 0 {
        return None;
    }
    let samples = sampling.effective_samples() / DESIGN_EFFECT * (whole as f64 / sampling.cost as f64);
    wilson(share, samples)
}

/// The same of data. What only one burst saw (`in_one_burst`) may be anywhere below: one observation tells nothing of how much they
/// differ, and of many objects that are hardly used some are in a burst by chance.
pub(crate) fn of_data(profile: &Profile, in_one_burst: bool, share: f64, whole: u64) -> Option<(f64, f64)> {
    let (low, high) = of_share(profile, share, whole)?;
    Some((if in_one_burst { 0.0 } else { low }, high))
}

/// The score interval for a proportion `share` seen in `samples` independent samples (E. B. Wilson,
/// Probable Inference, the Law of Succession, and Statistical Inference, JASA 22, 1927, pp. 209–212).
/// `samples` need not be whole: an effective number.
pub(crate) fn wilson(share: f64, samples: f64) -> Option<(f64, f64)> {
    if samples.is_nan() || samples <= 0.0 {
        return None;
    }
    let share = share.clamp(0.0, 1.0);
    let z2 = Z * Z;
    let middle = share + z2 / (2.0 * samples);
    let half = Z * (share * (1.0 - share) / samples + z2 / (4.0 * samples * samples)).sqrt();
    let scale = 1.0 + z2 / samples;
    let (low, high) = ((middle - half) / scale, (middle + half) / scale);
    // Rounding must not put an end that is 0 or 1, or the share itself, outside.
    Some((low.clamp(0.0, share), high.clamp(share, 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_the_published_one() {
        // R. G. Newcombe, Two-sided confidence intervals for the single proportion, Statistics in Medicine
        // 17, 1998, table I, method 3: 15 of 148 gives 0.0624 to 0.1605.
        let (low, high) = wilson(15.0 / 148.0, 148.0).expect("there are samples");
        assert!((low - 0.0624).abs() < 0.00005 && (high - 0.1605).abs() < 0.00005, "{low} {high}");
        // The same table: 0 of 20 gives 0.0000 to 0.1611.
        let (low, high) = wilson(0.0, 20.0).expect("there are samples");
        assert!(low == 0.0 && (high - 0.1611).abs() < 0.00005, "{low} {high}");
        assert_eq!(wilson(0.5, 0.0), None);
    }

    #[test]
    fn what_one_burst_saw_may_be_next_to_nothing() {
        let mut profile = Profile::default();
        profile.run.effective_bursts = Some(40.0);
        let plain = of_share(&profile, 0.05, 100).expect("there are bursts");
        assert!(plain.0 > 0.01, "{plain:?}");
        assert_eq!(of_data(&profile, false, 0.05, 100), Some(plain));
        assert_eq!(of_data(&profile, true, 0.05, 100), Some((0.0, plain.1)));
    }

    #[test]
    fn it_covers_the_truth_as_often_as_it_says() {
        // All outcomes of 200 throws with p = 0.1, each with its probability: no dice needed.
        let (n, p) = (200u32, 0.1f64);
        let mut probability = (1.0 - p).powi(n as i32);
        let mut covered = 0.0;
        for hits in 0..=n {
            if hits > 0 {
                probability *= f64::from(n - hits + 1) / f64::from(hits) * p / (1.0 - p);
            }
            let (low, high) = wilson(f64::from(hits) / f64::from(n), f64::from(n)).expect("samples");
            if (low..=high).contains(&p) {
                covered += probability;
            }
        }
        // The score interval oscillates by some percent around its level (Newcombe, table II).
        assert!((0.93..0.97).contains(&covered), "{covered}");
    }
}

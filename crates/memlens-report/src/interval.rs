//! How certain is what was estimated from samples and bursts: shares, and how often a level misses.

use memlens_locality::CostSpread;
use memlens_profile::{Object, Profile, RunInfo};
use memlens_types::Counts;
use statrs::distribution::{Beta, ContinuousCDF, StudentsT};

use crate::known::Known;
use crate::row::Whole;

/// The 97.5 % point of the normal distribution.
pub(crate) const Z: f64 = 1.959_963_984_540_054;

/// By how much the variance of a share is taken to be larger than that of independent samples. Samples of one
/// timer in one run are not independent: the run has its own placement in memory, and program and timer
/// have rhythms. Measured over 100 runs with a known share (`bench/unbiased.py`): the square of the error was
/// 1.05 times that of independent samples, which with 95 % confidence is 1.35 at most (χ² with 100 degrees of
/// freedom); rounded up.
const DESIGN_EFFECT: f64 = 1.4;

/// What bursts say of misses is a model's answer, which is wrong in its own way however many bursts there are: by so much as that many
/// independent observations would be. Fitted: with it 96 to 98 % of exact mode's shares of 24 programs lie in their intervals
/// (`docs/accuracy-bursts.md`).
const OBSERVATIONS_OF_WAITS: f64 = 50.0;

/// The same of stalls, for which how much of a wait is hidden is modelled, too, from some whole bursts.
const OBSERVATIONS_OF_STALLS: f64 = 25.0;

/// The same of waits and stalls where two runs of one program are held against each other: then a model's constant errors are gone, and
/// what is left is what a run hits upon, as where its memory lies. Fitted: of 330 differences of shares between two of five runs of one program
/// each, of eleven programs, 9 are beyond what is then taken for chance.
const OBSERVATIONS_OF_RUNS: f64 = 200.0;

/// A level of which bursts say how often it misses, by how much they are off there: in nine of ten runs less than so many times the true
/// part of the accesses, or their part of it, besides [`MissedLevel::LEAST`].
///
/// Fitted: with these factors 93, 97 and 100 % of 29 runs of 15 programs, and of 124 sets of bursts that were cut out of the traces of 18
/// programs 92, 91 and 99 %, are in their ranges (in this order; `docs/accuracy-bursts.md`). What misses often is known better than what a tail of
/// long reuse times is extrapolated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissedLevel {
    L2,
    Llc,
    /// All TLBs: page walks.
    Stlb,
}

impl MissedLevel {
    /// What may be missing of the accesses, or too much, whatever the factor: the first uses of data, and what was met by chance.
    const LEAST: f64 = 0.0003;
    /// What misses less often is off by the whole factor; what misses more often by less, with this power of how often.
    const OFTEN: f64 = 0.01;
    const POWER: f64 = 0.6;
    /// So many times the misses of the level above are more than there are: these are known within less.
    const OF_ABOVE: f64 = 1.25;

    /// As reports call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::L2 => "L2 misses",
            Self::Llc => "LLC misses",
            Self::Stlb => "page walks",
        }
    }

    /// By how much it is off at most where it misses seldom.
    fn most_factor(self) -> f64 {
        match self {
            Self::L2 => 3.0,
            Self::Llc => 4.0,
            Self::Stlb => 2.5,
        }
    }

    /// Where the true part of the accesses is that miss, nine times of ten, if it is estimated as `ratio`; at the level above there are `most`.
    fn range(self, ratio: f64, most: f64) -> (f64, f64) {
        let ratio = ratio.clamp(0.0, 1.0);
        let factor = 1.0 + (self.most_factor() - 1.0) * (Self::OFTEN / ratio).powf(Self::POWER).min(1.0);
        let high = (ratio * factor + Self::LEAST).min(most).clamp(ratio, 1.0);
        ((ratio / factor - Self::LEAST).max(0.0), high)
    }
}

/// The ranges in which the true parts of the accesses that miss are nine times of ten, 0 to 1, by level. Empty unless the profile is of
/// bursts, with all levels estimated from them, and enough of these ([`RunInfo::RELIABLE_BURSTS`]): the ranges were not fitted with profiles
/// that lack whole phases.
pub(crate) fn of_misses(profile: &Profile, totals: &Known) -> Vec<(MissedLevel, (f64, f64))> {
    let is_of_bursts = profile.run.effective_bursts.is_some_and(|bursts| bursts >= RunInfo::RELIABLE_BURSTS);
    let accesses = totals.accesses().filter(|&accesses| is_of_bursts && accesses > 0);
    let (Some(accesses), Some(l1)) = (accesses, totals.l1_misses()) else { return Vec::new() };
    let part = |count: u64| count as f64 / accesses as f64;
    let range = |level: MissedLevel, misses: Option<u64>, most: f64| {
        misses.map(|misses| (level, level.range(part(misses), most)))
    };
    let l2 = range(MissedLevel::L2, totals.l2_misses(), MissedLevel::OF_ABOVE * part(l1));
    let most = l2.map_or(1.0, |(_, (_, high))| high);
    let dtlb = totals.dtlb_misses.map_or(1.0, part);
    let others = [
        range(MissedLevel::Llc, totals.llc_misses(), most),
        range(MissedLevel::Stlb, totals.stlb_misses, MissedLevel::OF_ABOVE * dtlb),
    ];
    l2.into_iter().chain(others.into_iter().flatten()).collect()
}

/// What a share rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Certainty {
    /// As many independent observations tell as much.
    observations: f64,
    /// As many tell as much as the model that counted in them; infinitely many where nothing was modelled.
    model: f64,
    /// One burst saw it: the share may be anywhere below. One observation tells nothing of how much they differ, and of many objects that
    /// are hardly used some are in a burst by chance.
    may_be_nothing: bool,
}

impl Certainty {
    /// Of a part of `whole` (a cost, the whole program's or a part's); `None` if the profile is not of samples or bursts. The samples behind
    /// `whole` are taken in proportion to its cost.
    ///
    /// Bursts are few, and what happens inside of one hangs together: a whole burst counts as one observation, and one that
    /// costs much for more than one that costs little. A part is taken to have all or nothing of each, whatever that costs.
    /// `model`: as many observations tell as much as the model of this share does.
    fn of_part(profile: &Profile, model: f64, whole: u64) -> Option<Self> {
        if let Some(bursts) = profile.run.effective_bursts {
            return Some(Self { observations: bursts, model, may_be_nothing: false });
        }
        let sampling = profile.run.sampling.as_ref().filter(|sampling| sampling.cost > 0)?;
        let samples = sampling.effective_samples() / DESIGN_EFFECT * (whole as f64 / sampling.cost as f64);
        Some(Self { observations: samples, model: f64::INFINITY, may_be_nothing: false })
    }

    /// Of objects that have this share of `whole` together: as many observations as give it the variance that it has from burst to
    /// burst, where that is known. `error` says it of one. The errors of several objects are added up, as if they had them in the same
    /// bursts.
    fn of_objects<'a>(
        profile: &Profile,
        mut objects: impl Iterator<Item = &'a Object> + Clone,
        model: f64,
        error: impl Fn(&Object) -> Option<u64>,
        share: f64,
        whole: u64,
    ) -> Option<Self> {
        let of_part = Self::of_part(profile, model, whole)?;
        let accessed = objects.clone().filter(|object| object.counts.accesses() > 0);
        let errors = accessed.map(error);
        let error = errors.reduce(|sum, error| Some(sum?.saturating_add(error?))).flatten();
        let observations = match (profile.run.effective_bursts, error) {
            (Some(bursts), Some(error)) if whole > 0 => {
                observations(bursts, share, error as f64 / whole as f64)
            }
            _ => of_part.observations,
        };
        Some(Self { observations, may_be_nothing: objects.all(|object| object.bursts == Some(1)), ..of_part })
    }

    /// For shares held against those of another run that the same model counted: what it does wrong, it does in both.
    pub(crate) fn of_same_model(self) -> Self {
        Self { model: self.model.max(OBSERVATIONS_OF_RUNS), ..self }
    }

    /// The 95 % interval of a share of anything in the same samples or bursts.
    pub(crate) fn interval(self, share: f64) -> Option<(f64, f64)> {
        // With what the model may be wrong.
        let observations = 1.0 / (1.0 / self.observations + 1.0 / self.model);
        let (low, high) = proportion(share, observations)?;
        Some((if self.may_be_nothing { 0.0 } else { low }, high))
    }
}

/// What a part's two shares rest on; `None` of each: nothing is estimated, or nothing is there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Certainties {
    /// That of the cost.
    pub(crate) share: Option<Certainty>,
    /// That of the stalls, in bursts.
    pub(crate) stall: Option<Certainty>,
}

impl Certainties {
    /// Of a part of the whole of which no more is known; see [`Certainty::of_part`].
    pub(crate) fn of_part(profile: &Profile, whole: Whole) -> Self {
        let of = |model, whole| Certainty::of_part(profile, model, whole);
        let is_of_bursts = profile.run.effective_bursts.is_some();
        Self {
            share: of(OBSERVATIONS_OF_WAITS, whole.cost),
            stall: of(OBSERVATIONS_OF_STALLS, whole.stall).filter(|_| is_of_bursts && whole.stall > 0),
        }
    }

    /// Of objects, together.
    pub(crate) fn of_objects<'a>(
        profile: &Profile,
        objects: impl Iterator<Item = &'a Object> + Clone,
        whole: Whole,
    ) -> Self {
        let mut counts = Counts::default();
        objects.clone().for_each(|object| counts += &object.counts);
        let is_of_bursts = profile.run.effective_bursts.is_some();
        let part = |of: u64, whole: u64| (whole > 0).then(|| of as f64 / whole as f64);
        Self {
            share: part(profile.cost(&counts), whole.cost).and_then(|share| {
                let (objects, model) = (objects.clone(), OBSERVATIONS_OF_WAITS);
                Certainty::of_objects(profile, objects, model, |it| it.wait_error_cycles, share, whole.cost)
            }),
            stall: part(profile.stall_cycles(&counts), whole.stall).filter(|_| is_of_bursts).and_then(
                |share| {
                    let model = OBSERVATIONS_OF_STALLS;
                    Certainty::of_objects(
                        profile,
                        objects,
                        model,
                        |it| it.stall_error_cycles,
                        share,
                        whole.stall,
                    )
                },
            ),
        }
    }
}

/// As how many independent observations a share with this standard error counts.
///
/// The error rests on half as many differences as there are bursts, seen in [`CostSpread::CONTRASTS`] sums: as many fewer observations as Student's
/// distribution of so many degrees of freedom is wider than the normal one. That alone makes no fewer of them than there are bursts.
fn observations(bursts: f64, share: f64, error: f64) -> f64 {
    let freedom = 1.0 / (2.0 / bursts.max(2.0) + 1.0 / CostSpread::CONTRASTS as f64);
    let wider = StudentsT::new(0.0, 1.0, freedom).map_or(1.0, |student| student.inverse_cdf(0.975) / Z);
    let seen = |error: f64| share * (1.0 - share) / (error * error);
    // Less than a cycle.
    if error <= 0.0 || seen(error).is_nan() {
        return bursts;
    }
    seen(error).min(bursts).max(seen(error * wider))
}

/// The 95 % interval for a proportion `share` of independent observations. `observations` need not be whole: an effective number (E. L. Korn,
/// B. I. Graubard, Confidence Intervals for Proportions with Small Expected Number of Positive Counts Estimated from Survey Data, Survey
/// Methodology 24, 1998).
///
/// Of few observations it is the one that has the proportion in it as often as it says, or more often (C. J. Clopper, E. S. Pearson, The Use of
/// Confidence or Fiducial Limits Illustrated in the Case of the Binomial, Biometrika 26, 1934); of many the score interval (E. B. Wilson,
/// Probable Inference, the Law of Succession, and Statistical Inference, JASA 22, 1927), which then is nearly the same.
fn proportion(share: f64, observations: f64) -> Option<(f64, f64)> {
    const MANY: f64 = 1000.0;
    if observations.is_nan() || observations <= 0.0 {
        return None;
    }
    let share = share.clamp(0.0, 1.0);
    let (low, high) =
        if observations < MANY { clopper_pearson(share, observations)? } else { wilson(share, observations) };
    // Rounding must not put an end that is 0 or 1, or the share itself, outside.
    Some((low.clamp(0.0, share), high.clamp(share, 1.0)))
}

fn clopper_pearson(share: f64, observations: f64) -> Option<(f64, f64)> {
    /// Of fewer the lower end is below 10⁻¹⁵.
    const FEWEST: f64 = 0.1;
    let (hits, others) = (share * observations, (1.0 - share) * observations);
    let quantile = |part, a, b| Beta::new(a, b).ok().map(|beta| beta.inverse_cdf(part));
    let low = if hits > FEWEST { quantile(0.025, hits, others + 1.0)? } else { 0.0 };
    let high = if others > FEWEST { quantile(0.975, hits + 1.0, others)? } else { 1.0 };
    Some((low, high))
}

fn wilson(share: f64, observations: f64) -> (f64, f64) {
    let z2 = Z * Z;
    let middle = share + z2 / (2.0 * observations);
    let half = Z * (share * (1.0 - share) / observations + z2 / (4.0 * observations * observations)).sqrt();
    let scale = 1.0 + z2 / observations;
    ((middle - half) / scale, (middle + half) / scale)
}

/// The 95 % interval of *b* − *a*, each with its own interval or exact: R. G. Newcombe, Interval Estimation for the Difference between
/// Independent Proportions: Comparison of Eleven Methods, Statistics in Medicine 17 (1998), method 10, whatever the intervals are from.
pub(crate) fn of_difference(
    (a, of_a): (f64, Option<(f64, f64)>),
    (b, of_b): (f64, Option<(f64, f64)>),
) -> (f64, f64) {
    let ((low_a, high_a), (low_b, high_b)) = (of_a.unwrap_or((a, a)), of_b.unwrap_or((b, b)));
    let down = (b - low_b).hypot(high_a - a);
    let up = (high_b - b).hypot(a - low_a);
    (b - a - down, b - a + up)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Column;

    #[test]
    fn the_interval_is_the_published_one() {
        // R. G. Newcombe, Two-sided confidence intervals for the single proportion, Statistics in Medicine 17, 1998, table I, method 5.
        for (hits, of, low, high) in [
            (81.0, 263.0, 0.2527, 0.3676),
            (15.0, 148.0, 0.0578, 0.1617),
            (0.0, 20.0, 0.0, 0.1684),
            (1.0, 29.0, 0.0009, 0.1776),
        ] {
            let found = proportion(hits / of, of).expect("there are samples");
            assert!(
                (found.0 - low).abs() < 0.00005 && (found.1 - high).abs() < 0.00005,
                "{hits} of {of}: {found:?}"
            );
        }
        assert_eq!(proportion(0.5, 0.0), None);
        assert_eq!(proportion(1.0, 3.0).map(|(_, high)| high), Some(1.0));
        // A part of an observation says that there is something, and no more.
        let (low, high) = proportion(0.01, 10.0).expect("there are samples");
        assert!(low < 1e-9 && (0.3..0.35).contains(&high), "{low} {high}");
        // Of many, the score interval: Newcombe's method 3 for 15 of 148 is 0.0624 to 0.1605.
        let (low, high) = wilson(15.0 / 148.0, 148.0);
        assert!((low - 0.0624).abs() < 0.00005 && (high - 0.1605).abs() < 0.00005, "{low} {high}");
        let ends = |observations| proportion(0.3, observations).expect("there are samples");
        let (few, many) = (ends(999.0), ends(1001.0));
        assert!((few.0 - many.0).abs() < 0.001 && (few.1 - many.1).abs() < 0.001, "{few:?} {many:?}");
        for observations in [1e-3, 1.0, 50.0, 999.9, 1e7, 1e9, 1e30] {
            for share in [0.0, 1e-12, 1e-9, 1e-4, 0.5, 1.0 - 1e-9, 1.0] {
                let (low, high) = proportion(share, observations).expect("there are samples");
                assert!(
                    (0.0..=share).contains(&low) && (share..=1.0).contains(&high),
                    "{share} of {observations}"
                );
            }
        }
    }

    #[test]
    fn often_missed_levels_are_known_better() {
        let width = |ratio: f64| {
            let (low, high) = MissedLevel::Llc.range(ratio, 1.0);
            assert!((0.0..=ratio).contains(&low) && (ratio..=1.0).contains(&high), "{ratio}");
            (low / ratio, high / ratio)
        };
        let [seldom, often, mostly] = [0.005, 0.1, 0.9].map(width);
        assert!(seldom.0 < 0.2 && seldom.1 > 4.0, "{seldom:?}");
        assert!((0.5..0.65).contains(&often.0) && (1.6..1.9).contains(&often.1), "{often:?}");
        assert!(mostly.0 > 0.8, "{mostly:?}");
        assert_eq!(MissedLevel::Stlb.range(0.0, 1.0), (0.0, MissedLevel::LEAST));
        // Repeated instructions and prefetches have more walks than accesses.
        let (low, high) = MissedLevel::Stlb.range(1.5, 1.0);
        assert!(low < high && high == 1.0);
        assert_eq!(MissedLevel::L2.range(0.01, 0.012).1, 0.012);
        assert_eq!(MissedLevel::L2.range(0.01, 0.005).1, 0.01);
    }

    #[test]
    fn ranges_are_of_bursts_alone() {
        let mut profile = Profile::default();
        let cache = memlens_profile::CacheInfo { bytes: 1 << 20, ..Default::default() };
        let tlb = memlens_profile::TlbInfo::default();
        let machine = &mut profile.machine;
        (machine.l1d, machine.l2, machine.llc) = (Some(cache.clone()), Some(cache.clone()), Some(cache));
        (machine.dtlb, machine.stlb) = (Some(tlb), Some(tlb));
        let mut counts = Counts { loads: 10_000, dtlb_misses: 100, stlb_misses: 50, ..Counts::default() };
        (counts.l1_load_misses, counts.l2_load_misses, counts.llc_load_misses) = (200, 100, 100);
        let ranges =
            |profile: &Profile, counts: &Counts| of_misses(profile, &Known::new(profile, counts, true));
        assert_eq!(ranges(&profile, &counts), []);
        profile.run.effective_bursts = Some(5.0);
        let found = ranges(&profile, &counts);
        let levels: Vec<MissedLevel> = found.iter().map(|(level, _)| *level).collect();
        assert_eq!(levels, [MissedLevel::L2, MissedLevel::Llc, MissedLevel::Stlb]);
        // A quarter more than the level above has, or as the second level.
        let highs: Vec<f64> = found.iter().map(|(_, (_, high))| *high).collect();
        assert!((highs[0] - 0.025).abs() < 1e-12 && highs[1] == highs[0] && highs[2] <= 0.0125, "{highs:?}");
        assert_eq!(ranges(&profile, &Counts::default()), [], "nothing was accessed");
        profile.machine.l1d = None;
        assert_eq!(ranges(&profile, &counts), [], "a last level alone is of the mini-simulation");
    }

    #[test]
    fn few_bursts_tell_little_of_their_differences() {
        // Student's 97.5 % point for one degree of freedom is 12.71, for 16 2.12 (two and 64 bursts, 32 sums).
        let wider = |bursts: f64| (0.25 / 0.05_f64.powi(2) / observations(bursts, 0.5, 0.05)).sqrt() * Z;
        assert!((wider(64.0) - 2.12).abs() < 0.01, "{}", wider(64.0));
        assert!((observations(2.0, 0.5, 0.05) - 2.2).abs() < 0.3, "{}", observations(2.0, 0.5, 0.05));
        assert_eq!(observations(2.0, 0.5, 0.1), 2.0, "no fewer than bursts by that alone");
        assert!(
            (observations(60.0, 0.15, 0.075) - 0.15 * 0.85 / 0.075_f64.powi(2)).abs() < 1e-9,
            "what was seen counts"
        );
    }

    #[test]
    fn what_one_burst_saw_may_be_next_to_nothing() {
        let mut profile = Profile::default();
        profile.run.effective_bursts = Some(40.0);
        let plain = Certainty::of_part(&profile, OBSERVATIONS_OF_WAITS, 100)
            .and_then(|it| it.interval(0.05))
            .expect("there are bursts");
        assert!(plain.0 > 0.001, "{plain:?}");
        let of_seen = |bursts| {
            let object = Object { bursts: Some(bursts), ..Object::default() };
            let both = [&object, &object].into_iter();
            Certainty::of_objects(
                &profile,
                both,
                OBSERVATIONS_OF_WAITS,
                |it| it.wait_error_cycles,
                0.05,
                100,
            )?
            .interval(0.05)
        };
        assert_eq!(of_seen(2), Some(plain));
        assert_eq!(of_seen(1), Some((0.0, plain.1)));
    }

    #[test]
    fn what_differs_less_from_burst_to_burst_is_surer() {
        let mut profile = Profile::default();
        profile.run.effective_bursts = Some(40.0);
        let width = |errors: &[Option<u64>]| {
            let counts = Counts { loads: 1, ..Counts::default() };
            let object = |&it| Object { wait_error_cycles: it, counts, ..Object::default() };
            let objects: Vec<Object> = errors.iter().map(object).collect();
            let error = |it: &Object| it.wait_error_cycles;
            let certainty =
                Certainty::of_objects(&profile, objects.iter(), OBSERVATIONS_OF_WAITS, error, 0.3, 1_000_000);
            let (low, high) = certainty.and_then(|it| it.interval(0.3)).expect("there are bursts");
            assert!(low <= 0.3 && 0.3 <= high);
            high - low
        };
        let none = width(&[None]);
        // All or nothing of each burst: √(0.3 × 0.7 ÷ 40). More there is where it has the dear ones.
        let [most, more, some, little] = [72_450, 300_000, 30_000, 0].map(|error| width(&[Some(error)]));
        assert!(most == none && more > none && little == none, "{most} {more} {little} {none}");
        // The model may be wrong all the same.
        let of_model = proportion(0.3, OBSERVATIONS_OF_WAITS).expect("a number");
        let least = width(&[Some(1)]);
        assert!(least < some && some < most, "{least} {some} {most}");
        assert!((least - (of_model.1 - of_model.0)).abs() < 0.001, "{least} {of_model:?}");
        // Together, as if they were high and low in the same bursts; one that is not known is anything.
        assert_eq!(width(&[Some(10_000), Some(20_000)]), some);
        assert_eq!(width(&[Some(10_000), None]), none);
    }

    #[test]
    fn waits_and_stalls_have_errors_of_their_own() {
        let mut profile = Profile::default();
        profile.run.mode = "burst".to_owned();
        profile.run.core_cycles = Some(1000);
        profile.machine.core = Some(memlens_profile::CoreInfo::default());
        let counts = Counts { loads: 1, stall_cycles: 300, ..Counts::default() };
        let surer_stall =
            Object { wait_error_cycles: Some(450), stall_error_cycles: Some(1), counts, ..Object::default() };
        let whole = Whole { cost: 1000, stall: 1000, leading: Column::StallShare };
        let of = |profile: &Profile| {
            let found = Certainties::of_objects(profile, std::iter::once(&surer_stall), whole);
            [found.share, found.stall]
                .map(|it| it.and_then(|it| it.interval(0.3)).map(|(low, high)| high - low))
        };
        assert_eq!(of(&profile), [None, None], "all is counted");
        profile.run.effective_bursts = Some(40.0);
        let [Some(wait), Some(stall)] = of(&profile) else { panic!("there are bursts: {:?}", of(&profile)) };
        assert!(stall < wait, "{stall} {wait}");
        let of_part = Certainties::of_part(&profile, whole);
        let width = |it: Option<Certainty>| it.and_then(|it| it.interval(0.3)).map(|(low, high)| high - low);
        assert!(width(of_part.stall) > width(of_part.share), "more is modelled of stalls: {of_part:?}");
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
            let share = f64::from(hits) / f64::from(n);
            let (low, high) = proportion(share, f64::from(n)).expect("samples");
            if (low..=high).contains(&p) {
                covered += probability;
            }
        }
        assert!((0.95..0.975).contains(&covered), "{covered}");
    }
}

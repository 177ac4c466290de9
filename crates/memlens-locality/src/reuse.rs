//! Counts of reuse times, and the distribution behind them.
//!
//! The time is the number of references of the same thread from one use of a block to the next; it is charged to
//! the later use. What a burst shows of it:
//!
//! ```text
//!   burst of before                    │← unseen →│ burst            now
//!   ──────x─────────────────────────────            ─────a──────a─────x──
//!         └─────────────── across ────────────────────────────────────┘     x: position in the burst known,
//!                                                        └ within ┘            time of the use before not
//! ```
//!
//! - **within**: the block was used in this burst before: the time is known.
//! - **first**: it was not: the time is longer than the position in the burst (censored there).
//! - of the first, **across**: an earlier burst had the block: counted in *visible* references, that is without
//!   the unseen ones, as if all code were seen as often as the code that uses the block ([`Age`]); or **never**: no burst had
//!   it, in so many visible references.
//!
//! What is used for the first time in a run of its code (`runs.rs`) was last used before it: how often it was used then says
//! nothing of how often it is used now. Times up to the run's begin and those behind it are therefore counted apart.

use crate::bins::{BINS, bin, lower_edge, middle};
use crate::clock::Age;
use crate::phases::Phases;
use crate::runs::Since;

/// Weighted counts of one instruction, owner or program, for one size of block. Trivial times within a burst, which
/// most are, are not counted: they are the rest.
#[derive(Clone, Debug)]
pub(crate) struct Reuse {
    pub(crate) within: Box<[f64; BINS]>,
    pub(crate) first: Box<[f64; BINS]>,
    pub(crate) across: Box<[f64; BINS]>,
    pub(crate) never: Box<[f64; BINS]>,
    /// What lies before the run; none where no run but the first was seen.
    pub(crate) earlier: Option<Box<Earlier>>,
    pub(crate) order: Order,
    /// Those within bursts whose sets were watched.
    watched: Option<Box<[f64; BINS]>>,
    /// By level with such blocks: of those watched, what its sets had lost.
    lost: Vec<Option<Box<[f64; BINS]>>>,
    /// Of the present burst.
    pub(crate) since: Option<Since>,
    /// Touches of the present burst.
    now: u32,
    /// Touches by phase, weighted; see [`Phases`].
    pub(crate) phases: [f64; Phases::MOST],
}

impl Default for Reuse {
    fn default() -> Self {
        let empty = || Box::new([0.0; BINS]);
        Self {
            within: empty(),
            first: empty(),
            across: empty(),
            never: empty(),
            earlier: None,
            order: Order::default(),
            watched: None,
            lost: Vec::new(),
            since: None,
            now: 0,
            phases: [0.0; Phases::MOST],
        }
    }
}

/// Weighted counts of blocks that were not used in the present run of their code before, as far as was seen.
#[derive(Clone, Debug)]
pub(crate) struct Earlier {
    /// By visible references back to the run's begin: all of them.
    entered: [f64; BINS],
    /// By visible references: an earlier burst had the block; no burst had it.
    across: [f64; BINS],
    never: [f64; BINS],
    /// By all references back to the run's begin, as far as they are known: each use that is the first in its burst.
    ages: [f64; BINS],
    /// Whether any run was seen by more than one burst. One alone tells little of it: most blocks are new in their burst.
    is_lasting: bool,
}

impl Default for Earlier {
    fn default() -> Self {
        let empty = [0.0; BINS];
        Self { entered: empty, across: empty, never: empty, ages: empty, is_lasting: false }
    }
}

/// The probability, bin by bin, that a reuse time falls there, and that it is longer than all bins tell.
#[derive(Clone, Debug)]
pub(crate) struct Distribution {
    pub(crate) in_bin: [f64; BINS],
    pub(crate) beyond: f64,
    /// By bin: the probability that a time is longer than the bin's lower edge.
    pub(crate) survival: [f64; BINS],
    /// By bin: of the times that reach the bin, how many end in it.
    pub(crate) hazard: [f64; BINS],
    /// The first bin that was not decided inside of bursts, by its own references or those of a prior.
    pub(crate) undecided: usize,
}

/// The fewest references at risk in a bin from which it is decided.
const ENOUGH: f64 = 24.0;
/// How many references' worth the prior counts.
const PRIOR: f64 = 1.0;
/// How many uses' worth a reuse time counts against what sets have lost.
const LOST_PRIOR: f64 = 16.0;
/// How far back, as a factor of time, it is looked how many blocks an octave finds again: two octaves.
const TAIL_FACTOR: f64 = 4.0;
/// The power of time with which the rate falls, at most: above one some blocks would never be found.
const MOST_DECLINE: f64 = 0.99;
/// Fewest blocks found in earlier bursts from which their order says something.
const FEWEST_FOUND: f64 = 8.0;

impl Reuse {
    /// Whether there was a touch in the present burst.
    #[inline]
    pub(crate) fn is_touched(&self) -> bool {
        self.now > 0
    }

    /// A touch in the present burst.
    #[inline]
    pub(crate) fn touch(&mut self) {
        self.now += 1;
    }

    /// So many touches in the present burst.
    pub(crate) fn touch_all(&mut self, count: u32) {
        self.now += count;
    }

    /// A use within a burst whose sets are watched.
    pub(crate) fn watched(&mut self, time: usize, weight: f64) {
        self.watched.get_or_insert_with(|| Box::new([0.0; BINS]))[time] += weight;
    }

    /// One of those, of a block that this level had lost by then.
    pub(crate) fn lost(&mut self, level: usize, time: usize, weight: f64) {
        if self.lost.len() <= level {
            self.lost.resize_with(level + 1, || None);
        }
        self.lost[level].get_or_insert_with(|| Box::new([0.0; BINS]))[time] += weight;
    }

    /// How often uses with such a time miss in a level whose sets were watched: what was seen, which `miss`, what the time says by
    /// itself, counts against like [`LOST_PRIOR`] uses of a `unit` each.
    pub(crate) fn by_sets(&self, level: usize, time: usize, miss: f64, unit: f64) -> f64 {
        let Some(watched) = &self.watched else { return miss };
        let lost = self.lost.get(level).and_then(Option::as_deref).map_or(0.0, |lost| lost[time]);
        let prior = LOST_PRIOR * unit;
        (lost + prior * miss) / (watched[time] + prior)
    }

    /// A first use in its burst, at a position there.
    pub(crate) fn first(&mut self, position: u64, weight: f64) {
        self.first[bin(position)] += weight;
        if let Some(since) = self.since {
            let earlier = self.earlier.get_or_insert_default();
            earlier.ages[bin(since.made + position)] += weight;
            earlier.is_lasting |= !since.is_first;
        }
    }

    /// Of the first uses, one whose block an earlier burst had, so long ago.
    pub(crate) fn found(&mut self, age: Age, weight: f64) {
        match self.earlier_than_run(age, weight) {
            Some(earlier) => earlier.across[bin(age.time)] += weight,
            None => self.across[bin(age.time)] += weight,
        }
    }

    /// Of the first uses, one whose block no burst had, though it was there for so long.
    pub(crate) fn unfound(&mut self, age: Age, weight: f64) {
        match self.earlier_than_run(age, weight) {
            Some(earlier) => earlier.never[bin(age.time)] += weight,
            None => self.never[bin(age.time)] += weight,
        }
    }

    /// Where uses are counted that reach back behind the run's begin, if this one does.
    fn earlier_than_run(&mut self, age: Age, weight: f64) -> Option<&mut Earlier> {
        let since = self.since.as_ref().filter(|since| age.then < since.begin.seen)?;
        let earlier = self.earlier.as_deref_mut()?;
        earlier.entered[bin(age.since(&since.begin))] += weight;
        Some(earlier)
    }

    /// The present burst is over: which phase it belongs to, and what each reference counts.
    pub(crate) fn end_burst(&mut self, phase: usize, weight: f64) {
        self.phases[phase] += f64::from(std::mem::take(&mut self.now)) * weight;
    }

    /// Touches of blocks whose reuse time is not trivial.
    pub(crate) fn counted(&self) -> f64 {
        self.within.iter().sum::<f64>() + self.first.iter().sum::<f64>()
    }

    /// The product-limit estimate (E. L. Kaplan, P. Meier, Nonparametric Estimation from Incomplete Observations,
    /// JASA 53, 1958), on bins: of those at risk in a bin, half of those censored in it count (the actuarial
    /// estimate, ibid. section 3). Bins that too few references reach inside of a burst are decided by the times
    /// across bursts; where these are too few as well, blocks go on being found as in the last bins that were decided
    /// ([`Decided::tail`]). `references`: how many in all, those with trivial times, which are not counted here, among
    /// them. A `prior` counts like one more reference.
    ///
    /// Times between a burst's length and the gap to the next one are seen by nobody. Across bursts only those blocks are
    /// found there that are used at a steady rate; what is used for a while and then no more is not. Every octave of time
    /// is therefore taken to find at least the part of the blocks that the last two octaves inside of bursts found: reuse
    /// times follow a power law over wide ranges, which is why miss ratios do (D. Thiébaut, On the Fractal Dimension of
    /// Computer Programs and its Application to the Prediction of the Cache Miss Ratio, IEEE TC 38(7), 1989; A. Hartstein
    /// et al., Cache Miss Behavior: Is It √2?, CF 2006).
    ///
    /// Where runs of the code begin later than the thread, all that holds of the times that end in the run, and again, from the
    /// run's begin on back, of those that end before it.
    pub(crate) fn distribution(
        &self,
        references: f64,
        prior: Option<&Distribution>,
        typical: Typical,
    ) -> Distribution {
        let unit = typical.unit;
        let mut hazard = [0.0; BINS];
        let counted = self.counted();
        let mut at_risk = references.max(counted);
        let mut within = *self.within;
        within[0] += at_risk - counted;
        let (mut across, mut never) = (*self.across, *self.never);
        let mut earlier = self.earlier.as_deref();
        if let Some(one) = earlier.filter(|earlier| !earlier.is_lasting) {
            across.iter_mut().zip(&one.across).for_each(|(sum, count)| *sum += count);
            never.iter_mut().zip(&one.never).for_each(|(sum, count)| *sum += count);
            earlier = None;
        }
        let sum = |counts: &[f64; BINS]| counts.iter().sum::<f64>();
        let mut visible = sum(&across) + sum(&never) + earlier.map_or(0.0, |earlier| sum(&earlier.entered));
        let mut first_across = BINS;
        let mut decided = Decided::default();
        let mut continued = Continued::NOTHING;
        let mut before = Before::new(sum(&self.first));
        for bin in 0..BINS {
            let left = never[bin] + earlier.map_or(0.0, |earlier| earlier.entered[bin]);
            let exposed = (at_risk - self.first[bin] / 2.0).max(0.0);
            let visibly = (visible - left / 2.0).max(0.0);
            let (in_bursts, in_all) =
                ((within[bin], exposed), (within[bin] + across[bin], exposed + visibly));
            // Bursts that end in the bin see few of the times end that do.
            let inside = exposed >= ENOUGH * unit
                && (at_risk - within[bin] - self.first[bin] >= ENOUGH * unit
                    || in_bursts.0 * in_all.1 >= in_all.0 * in_bursts.1);
            let (ends, among) = if inside {
                in_bursts
            } else {
                first_across = first_across.min(bin);
                in_all
            };
            let prior = prior.map(|prior| prior.hazard[bin]);
            hazard[bin] = decided.hazard(bin, (ends, among), prior, unit);
            if inside {
                continued.seen(bin, ends, exposed);
            } else if lower_edge(bin) < typical.gap {
                hazard[bin] = hazard[bin].max(continued.hazard(bin, ENOUGH * unit));
            }
            if let Some(earlier) = earlier {
                let of_those = before.hazard(bin, earlier, prior, unit);
                hazard[bin] = before.mixed(bin, earlier, hazard[bin], (!inside).then_some(of_those));
            }
            at_risk -= within[bin] + self.first[bin];
            visible -= across[bin] + left;
        }
        let mut found = Distribution::from_hazard(hazard, first_across);
        if self.order.judged >= FEWEST_FOUND * unit && first_across < BINS {
            // Bursts meet a block that is used several times in a row if they begin or end anywhere among these uses.
            let period = self.order.period() * (1.0 + found.time_in_use(first_across) / typical.length);
            found.make_regular(self.order.in_step / self.order.judged, period);
        }
        found.undecided = prior.map_or(first_across, |prior| prior.undecided.max(first_across));
        found
    }
}

/// Bins of which is known how many of the blocks left end there.
#[derive(Clone, Copy, Debug)]
struct Decided {
    /// Ends, and references at risk times the width of their bin.
    ends: [f64; BINS],
    exposure: [f64; BINS],
    /// The last bin decided, and one more.
    until: usize,
    /// How it goes on behind them, once that was asked.
    tail: Option<Tail>,
}

/// The rate at which blocks are found behind the bins decided: `rate` × (time ÷ `middle`)^-`decline`.
#[derive(Clone, Copy, Debug)]
struct Tail {
    rate: f64,
    middle: f64,
    decline: f64,
}

impl Tail {
    /// Of the blocks left at a bin, how many end there.
    fn hazard(self, bin: usize) -> f64 {
        let Self { rate, middle, decline } = self;
        // The integral of (time ÷ middle)^-decline.
        let until = |time: f64| middle * (time / middle).powf(1.0 - decline) / (1.0 - decline);
        1.0 - (-rate * (until(lower_edge(bin + 1)) - until(lower_edge(bin)))).exp()
    }
}

impl Default for Decided {
    fn default() -> Self {
        Self { ends: [0.0; BINS], exposure: [0.0; BINS], until: 0, tail: None }
    }
}

impl Decided {
    /// Of the blocks left at the next bin, how many end there: so many `ends` were seen among so many. See
    /// [`Reuse::distribution`].
    fn hazard(&mut self, bin: usize, (ends, among): (f64, f64), prior: Option<f64>, unit: f64) -> f64 {
        let width = lower_edge(bin + 1) - lower_edge(bin);
        let hazard = if among >= ENOUGH * unit {
            (self.until, self.tail) = (bin + 1, None);
            (self.ends[bin], self.exposure[bin]) = (ends, among * width);
            let (more_ends, more) = prior.map_or((0.0, 0.0), |prior| (PRIOR * unit * prior, PRIOR * unit));
            (ends + more_ends) / (among + more)
        } else if self.until > 0 {
            let tail = self.tail.unwrap_or_else(|| self.tail(unit));
            self.tail = Some(tail);
            (ends + PRIOR * unit * tail.hazard(bin)) / (among + PRIOR * unit)
        } else {
            match prior {
                Some(prior) => (ends + PRIOR * unit * prior) / (among + PRIOR * unit),
                None if among > 0.0 => ends / among,
                None => 0.0,
            }
        };
        hazard.clamp(0.0, 1.0)
    }

    /// How it goes on as in the last bins decided: at the rate at which blocks were found there, or, where that fell from
    /// the octaves before, at one that goes on falling as that power of time. What is used often has been found by then;
    /// what is left is used the more seldom.
    fn tail(&self, unit: f64) -> Tail {
        let end = lower_edge(self.until);
        // Ends, exposure, and the middle of the times exposed, by their logarithms.
        let over = |from: f64, to: f64| {
            let bins = (1..self.until).filter(|&bin| (from..to).contains(&lower_edge(bin)));
            let [ends, exposure, times] = bins.fold([0.0; 3], |[ends, exposure, times], bin| {
                let exposed = self.exposure[bin];
                let time = (lower_edge(bin) * lower_edge(bin + 1)).sqrt();
                [ends + self.ends[bin], exposure + exposed, times + exposed * time.ln()]
            });
            let exposure = exposure.max(f64::MIN_POSITIVE);
            (ends, exposure, (times / exposure).exp())
        };
        let (ends, exposure, middle) = over(end / TAIL_FACTOR, end);
        let (ends_before, exposure_before, middle_before) =
            over(end / TAIL_FACTOR.powi(2), end / TAIL_FACTOR);
        let rate = ends / exposure;
        let decline = if ends > 0.0 && ends_before > 0.0 {
            let apart = (middle / middle_before).ln();
            let fell = (ends_before / exposure_before / rate).ln() / apart;
            // As much less as it may be by chance.
            let variance = unit * (1.0 / ends + 1.0 / ends_before) / apart.powi(2);
            if fell > 0.0 { (fell - variance / fell).clamp(0.0, MOST_DECLINE) } else { 0.0 }
        } else {
            0.0
        };
        Tail { rate, middle, decline }
    }
}

/// Uses whose time reaches back to the begin of the run.
#[derive(Debug)]
struct Before {
    decided: Decided,
    /// Of these, how many are left that are visible.
    visible: f64,
    /// Parts of all uses: those left whose time ends in the run, and before it.
    in_run: f64,
    before_run: f64,
    /// Uses by the age of their run that are left.
    by_age: f64,
}

impl Before {
    /// So many uses in all.
    fn new(uses: f64) -> Self {
        Self { decided: Decided::default(), visible: 0.0, in_run: 1.0, before_run: 0.0, by_age: uses }
    }

    /// Of those left at the next bin, how many end there.
    fn hazard(&mut self, bin: usize, earlier: &Earlier, prior: Option<f64>, unit: f64) -> f64 {
        let (enter, ends, leave) = (earlier.entered[bin], earlier.across[bin], earlier.never[bin]);
        let among = (self.visible + (enter - leave) / 2.0).max(ends);
        self.visible += enter - ends - leave;
        self.decided.hazard(bin, (ends, among), prior, unit)
    }

    /// The same of all uses: `in_run` of those whose time ends in the run, `before` of the others, if it is not the same.
    fn mixed(&mut self, bin: usize, earlier: &Earlier, in_run: f64, before: Option<f64>) -> f64 {
        let age = earlier.ages[bin];
        let moved = if self.by_age > 0.0 { self.in_run * (age / self.by_age).min(1.0) } else { 0.0 };
        self.by_age -= age;
        let before = before.unwrap_or(in_run);
        let parts = [(self.in_run - moved, in_run), (self.before_run + moved, before)];
        let ends: f64 = parts.iter().map(|(part, hazard)| part * hazard).sum();
        let all = parts[0].0 + parts[1].0;
        [self.in_run, self.before_run] = parts.map(|(part, hazard)| part * (1.0 - hazard));
        if all > 0.0 { ends / all } else { in_run }
    }
}

/// What bursts were like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Typical {
    /// The weight of a typical reference of the scope.
    pub(crate) unit: f64,
    /// References between two bursts of a thread; 0: not known.
    pub(crate) gap: f64,
    /// References of a burst that the scope was seen in.
    pub(crate) length: f64,
}

/// How many of the blocks that are left each e-fold of time finds again, in the last bins inside of bursts.
#[derive(Clone, Copy, Debug)]
struct Continued {
    ends: [f64; BINS],
    /// References at risk, times the logarithm of the factor that the bin spans.
    exposure: [f64; BINS],
    /// The last bin seen, and one more.
    until: usize,
}

impl Continued {
    const NOTHING: Self = Self { ends: [0.0; BINS], exposure: [0.0; BINS], until: 0 };

    /// A bin inside of bursts. The first begins at 0 and tells nothing of factors.
    fn seen(&mut self, bin: usize, ends: f64, exposed: f64) {
        if bin > 0 {
            (self.ends[bin], self.exposure[bin]) = (ends, exposed * Self::span(bin));
            self.until = bin + 1;
        }
    }

    fn span(bin: usize) -> f64 {
        (lower_edge(bin + 1) / lower_edge(bin)).ln()
    }

    /// Of the blocks left at a later bin, how many it finds if that goes on; 0 where too few were exposed to tell.
    fn hazard(&self, bin: usize, enough: f64) -> f64 {
        let from = lower_edge(self.until) / TAIL_FACTOR;
        let tail = (1..self.until).filter(|&bin| lower_edge(bin) >= from);
        let (ends, exposure) =
            tail.fold((0.0, 0.0), |sum, bin| (sum.0 + self.ends[bin], sum.1 + self.exposure[bin]));
        if exposure < enough { 0.0 } else { 1.0 - (-ends / exposure * Self::span(bin)).exp() }
    }
}

/// Whether blocks that are new in their burst are found in earlier bursts in the order in which they were used
/// there.
///
/// A program that goes through the same blocks in the same order again and again uses each after the same time:
/// its reuse times are all alike, as far as they are longer than a burst. One that picks blocks at random has
/// exponential ones. A cache somewhat smaller than the blocks catches none of the former and most of the latter.
///
/// Blocks that were used one just behind the other say nothing: who looks things up in a tree at random comes to each
/// node by way of the same others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Order {
    /// The find that the next ones are held against: its seen time, and when that block was used before.
    now: u64,
    before: u64,
    /// Whether it was in step with one that was further away.
    is_in_step: bool,
    /// Weight of the finds that were held against another one, and of those in step with it.
    judged: f64,
    in_step: f64,
    /// Weight of all finds.
    found: f64,
    /// References that blocks new in their burst went without being found, weighted.
    exposure: f64,
}

impl Order {
    /// Finds closer than this, in references, are held against each other only where those further apart are in step:
    /// longer than ways through trees and chains, a small part of a burst.
    const APART: u64 = 512;

    /// A block was used `now`, in a window from `window` on, and in an earlier one last so long ago.
    #[inline]
    pub(crate) fn find(&mut self, now: u64, age: Age, window: u64, weight: f64) {
        let before = age.then;
        self.found += weight;
        self.exposure += weight * age.time as f64;
        let (gone, went) = (now.wrapping_sub(self.now), before.wrapping_sub(self.before));
        // Between windows, and in another thread, other references passed.
        let is_comparable = (window..=now).contains(&self.now);
        let is_apart = gone >= Self::APART;
        if is_comparable && !is_apart && !self.is_in_step {
            return;
        }
        // The other blocks used meanwhile need not be the same to the last.
        let is_in_step = is_comparable && gone.abs_diff(went) <= 16 + gone / 8;
        if is_comparable {
            self.judged += weight;
            self.in_step += if is_in_step { weight } else { 0.0 };
        }
        if is_apart || !is_in_step {
            (self.now, self.before, self.is_in_step) = (now, before, is_in_step);
        }
    }

    /// A block was used that no earlier burst had, though it has been there for so long.
    #[inline]
    pub(crate) fn miss(&mut self, age: Age, weight: f64) {
        self.exposure += weight * age.time as f64;
    }

    /// References from one use to the next: those gone without being found, for each found, since bursts come at
    /// random times of the round.
    fn period(&self) -> f64 {
        self.exposure / self.found
    }
}

impl Distribution {
    fn from_hazard(hazard: [f64; BINS], undecided: usize) -> Self {
        let (mut in_bin, mut survival) = ([0.0; BINS], [0.0; BINS]);
        let mut left = 1.0;
        for bin in 0..BINS {
            survival[bin] = left;
            in_bin[bin] = left * hazard[bin];
            left -= in_bin[bin];
        }
        Self { in_bin, beyond: left, survival, hazard, undecided }
    }

    /// From the probabilities of all times that are told apart.
    pub(crate) fn from_parts(in_bin: [f64; BINS], undecided: usize) -> Self {
        let mut left = 1.0;
        let hazard = in_bin.map(|share| {
            let hazard: f64 = if left > 1e-12 { share / left } else { 0.0 };
            left -= share;
            hazard.clamp(0.0, 1.0)
        });
        Self::from_hazard(hazard, undecided)
    }

    /// From the first of the uses of a block that follow one another in less time than that of a bin to the last, on average.
    fn time_in_use(&self, bin: usize) -> f64 {
        let times = (1..bin).map(|bin| self.in_bin[bin] * middle(bin));
        times.sum::<f64>() / self.survival[bin].max(f64::MIN_POSITIVE)
    }

    /// Lets `part` of the times that are not decided end at `period`.
    fn make_regular(&mut self, part: f64, period: f64) {
        let from = self.undecided;
        let at = crate::bins::bin(period as u64).max(from);
        let reach = self.survival[from];
        let mut survival = self.survival;
        for (bin, left) in survival.iter_mut().enumerate().skip(from) {
            let regular = if bin <= at { reach } else { 0.0 };
            *left = part * regular + (1.0 - part) * *left;
        }
        let beyond = (1.0 - part) * self.beyond;
        let mut hazard = self.hazard;
        for (bin, hazard) in hazard.iter_mut().enumerate().skip(from) {
            let after = survival.get(bin + 1).copied().unwrap_or(beyond);
            *hazard = if survival[bin] > 0.0 { 1.0 - after / survival[bin] } else { 0.0 };
        }
        *self = Self::from_hazard(hazard, self.undecided);
    }

    /// The distribution of several scopes together, each with its number of references.
    pub(crate) fn mixed<'a>(parts: impl IntoIterator<Item = (f64, &'a Self)>) -> Option<Self> {
        let (mut in_bin, mut all) = ([0.0; BINS], 0.0);
        for (references, part) in parts {
            all += references;
            for (sum, share) in in_bin.iter_mut().zip(&part.in_bin) {
                *sum += references * share;
            }
        }
        if all <= 0.0 {
            return None;
        }
        Some(Self::from_parts(in_bin.map(|sum| sum / all), BINS))
    }
}

/// How many different blocks a window of so many references touches on average: the sum of the survival function
/// of reuse times over the window (P. J. Denning, S. C. Schwartz, Properties of the Working-Set Model, CACM 15(3),
/// 1972), which is StatStack's expected stack distance (D. Eklov, E. Hagersten, StatStack: Efficient Modeling of LRU
/// Caches, ISPASS 2010, section III).
#[derive(Clone, Debug)]
pub(crate) struct Footprint {
    /// At each bin's lower edge; the last: at the end of the last bin.
    blocks: [f64; BINS + 1],
}

impl Footprint {
    /// `short[t]`: weight of the references with reuse time `t`, for the times of bin 0.
    pub(crate) fn new(all: &Distribution, short: &[f64; 16]) -> Self {
        let mut blocks = [0.0; BINS + 1];
        // Bin 0 by single references, scaled to the bin's own probability.
        let scale = all.in_bin[0] / short.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let mut left = 1.0;
        for share in &short[..] {
            left -= share * scale;
            blocks[1] += left;
        }
        for bin in 1..BINS {
            let after = if bin + 1 < BINS { all.survival[bin + 1] } else { all.beyond };
            let width = lower_edge(bin + 1) - lower_edge(bin);
            blocks[bin + 1] = blocks[bin] + width * (all.survival[bin] + after) / 2.0;
        }
        Self { blocks }
    }

    /// Of windows that begin in another footprint's phase, as far as they do not reach back with this probability. Backwards in
    /// time: the blocks that each stretch of the window adds.
    pub(crate) fn continued_by(&self, other: &Self, probability: impl Fn(f64) -> f64) -> Self {
        let mut blocks = self.blocks;
        for bin in 0..BINS {
            let own = probability(middle(bin));
            let added = |footprint: &Self| footprint.blocks[bin + 1] - footprint.blocks[bin];
            blocks[bin + 1] = blocks[bin] + own * added(self) + (1.0 - own) * added(other);
        }
        Self { blocks }
    }

    /// Of a window `part` (0 to 1) of the way through a bin.
    pub(crate) fn within(&self, bin: usize, part: f64) -> f64 {
        self.blocks[bin] + (self.blocks[bin + 1] - self.blocks[bin]) * part
    }
}

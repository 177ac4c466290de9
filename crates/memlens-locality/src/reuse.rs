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
//!   the unseen ones; or **never**: no burst had it, in so many visible references.

use crate::bins::{BINS, lower_edge};
use crate::phases::Phases;

/// Weighted counts of one instruction, owner or program, for one size of block. Trivial times within a burst, which
/// most are, are not counted: they are the rest.
#[derive(Clone, Debug)]
pub(crate) struct Reuse {
    pub(crate) within: Box<[f64; BINS]>,
    pub(crate) first: Box<[f64; BINS]>,
    pub(crate) across: Box<[f64; BINS]>,
    pub(crate) never: Box<[f64; BINS]>,
    pub(crate) order: Order,
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
            order: Order::default(),
            now: 0,
            phases: [0.0; Phases::MOST],
        }
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
}

/// The fewest references at risk in a bin from which it is decided.
const ENOUGH: f64 = 24.0;
/// How many references' worth the prior counts.
const PRIOR: f64 = 1.0;
/// Bins that the rate behind the last one decided is taken from: two octaves of wide bins.
const TAIL_BINS: usize = 4;
/// How far back, as a factor of time, it is looked how many blocks an octave finds again: two octaves.
const TAIL_FACTOR: f64 = 4.0;
/// Fewest blocks found in earlier bursts from which their order says something.
const FEWEST_FOUND: f64 = 8.0;

impl Reuse {
    /// A touch in the present burst.
    #[inline]
    pub(crate) fn touch(&mut self) {
        self.now += 1;
    }

    /// So many touches in the present burst.
    pub(crate) fn touch_all(&mut self, count: u32) {
        self.now += count;
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
    /// across bursts; where these are too few as well, blocks go on being used at the rate of the last bins that
    /// were decided. `references`: how many in all, those with trivial times, which are not counted here, among
    /// them. A `prior` counts like one more reference.
    ///
    /// Times between a burst's length and the gap to the next one are seen by nobody. Across bursts only those blocks are
    /// found there that are used at a steady rate; what is used for a while and then no more is not. Every octave of time
    /// is therefore taken to find at least the part of the blocks that the last two octaves inside of bursts found: reuse
    /// times follow a power law over wide ranges, which is why miss ratios do (D. Thiébaut, On the Fractal Dimension of
    /// Computer Programs and its Application to the Prediction of the Cache Miss Ratio, IEEE TC 38(7), 1989; A. Hartstein
    /// et al., Cache Miss Behavior: Is It √2?, CF 2006).
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
        let mut visible = self.across.iter().sum::<f64>() + self.never.iter().sum::<f64>();
        let (mut first_across, mut decided) = (BINS, 0);
        // Ends, and references at risk times the width of their bin, of the bins decided.
        let (mut all_ends, mut all_exposure) = ([0.0; BINS], [0.0; BINS]);
        let mut continued = Continued::NOTHING;
        for bin in 0..BINS {
            let exposed = (at_risk - self.first[bin] / 2.0).max(0.0);
            let visibly = (visible - self.never[bin] / 2.0).max(0.0);
            let inside = exposed >= ENOUGH * unit;
            if !inside {
                first_across = first_across.min(bin);
            }
            let (ends, among) = if inside {
                (within[bin], exposed)
            } else {
                (within[bin] + self.across[bin], exposed + visibly)
            };
            let width = lower_edge(bin + 1) - lower_edge(bin);
            hazard[bin] = if among >= ENOUGH * unit {
                decided = bin + 1;
                (all_ends[bin], all_exposure[bin]) = (ends, among * width);
                let (more_ends, more) =
                    prior.map_or((0.0, 0.0), |prior| (PRIOR * unit * prior.hazard[bin], PRIOR * unit));
                (ends + more_ends) / (among + more)
            } else if decided > 0 {
                let tail = decided.saturating_sub(TAIL_BINS)..decided;
                let exposure: f64 = all_exposure[tail.clone()].iter().sum();
                let rate = all_ends[tail].iter().sum::<f64>() / exposure.max(f64::MIN_POSITIVE);
                let tail = 1.0 - (-rate * width).exp();
                (ends + PRIOR * unit * tail) / (among + PRIOR * unit)
            } else {
                match prior {
                    Some(prior) => (ends + PRIOR * unit * prior.hazard[bin]) / (among + PRIOR * unit),
                    None if among > 0.0 => ends / among,
                    None => 0.0,
                }
            }
            .clamp(0.0, 1.0);
            if inside {
                continued.seen(bin, ends, exposed);
            } else if lower_edge(bin) < typical.gap {
                hazard[bin] = hazard[bin].max(continued.hazard(bin, ENOUGH * unit));
            }
            at_risk -= within[bin] + self.first[bin];
            visible -= self.across[bin] + self.never[bin];
        }
        let mut found = Distribution::from_hazard(hazard);
        if self.order.judged >= FEWEST_FOUND * unit && first_across < BINS {
            found.make_regular(first_across, self.order.in_step / self.order.judged, self.order.period());
        }
        found
    }
}

/// What bursts were like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Typical {
    /// The weight of a typical reference of the scope.
    pub(crate) unit: f64,
    /// References between two bursts of a thread; 0: not known.
    pub(crate) gap: f64,
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
    /// Seen references that blocks new in their burst went without being found, weighted.
    exposure: f64,
}

impl Order {
    /// Finds closer than this, in references, are held against each other only where those further apart are in step:
    /// longer than ways through trees and chains, a small part of a burst.
    const APART: u64 = 512;

    /// A block was used `now`, in a window from `window` on, and in an earlier one last at `before`.
    #[inline]
    pub(crate) fn find(&mut self, now: u64, before: u64, window: u64, weight: f64) {
        self.found += weight;
        self.exposure += weight * (now - before) as f64;
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

    /// A block was used that no earlier burst had, though it has been there for so many seen references.
    #[inline]
    pub(crate) fn miss(&mut self, seen: u64, weight: f64) {
        self.exposure += weight * seen as f64;
    }

    /// References from one use to the next: those gone without being found, for each found, since bursts come at
    /// random times of the round.
    fn period(&self) -> f64 {
        self.exposure / self.found
    }
}

impl Distribution {
    fn from_hazard(hazard: [f64; BINS]) -> Self {
        let (mut in_bin, mut survival) = ([0.0; BINS], [0.0; BINS]);
        let mut left = 1.0;
        for bin in 0..BINS {
            survival[bin] = left;
            in_bin[bin] = left * hazard[bin];
            left -= in_bin[bin];
        }
        Self { in_bin, beyond: left, survival, hazard }
    }

    /// Lets `part` of the times that reach bin `from` end at `period`.
    fn make_regular(&mut self, from: usize, part: f64, period: f64) {
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
        *self = Self::from_hazard(hazard);
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
        let mut left = 1.0;
        let hazard = in_bin.map(|sum| {
            let share = sum / all;
            let hazard = if left > 1e-12 { share / left } else { 0.0 };
            left -= share;
            hazard.clamp(0.0, 1.0)
        });
        Some(Self::from_hazard(hazard))
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

    /// Of a window `part` (0 to 1) of the way through a bin.
    pub(crate) fn within(&self, bin: usize, part: f64) -> f64 {
        self.blocks[bin] + (self.blocks[bin + 1] - self.blocks[bin]) * part
    }
}

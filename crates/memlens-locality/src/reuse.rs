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

/// Weighted counts of one instruction, owner or program, for one size of block. Trivial times within a burst, which
/// most are, are not counted: they are the rest.
#[derive(Clone, Debug)]
pub(crate) struct Reuse {
    pub(crate) within: Box<[f64; BINS]>,
    pub(crate) first: Box<[f64; BINS]>,
    pub(crate) across: Box<[f64; BINS]>,
    pub(crate) never: Box<[f64; BINS]>,
}

impl Default for Reuse {
    fn default() -> Self {
        let empty = || Box::new([0.0; BINS]);
        Self { within: empty(), first: empty(), across: empty(), never: empty() }
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

/// The fewest references at risk in a bin from which the burst alone decides.
const ENOUGH_WITHIN: f64 = 24.0;
/// How many references' worth the prior counts.
const PRIOR: f64 = 1.0;

impl Reuse {
    /// Touches of blocks whose reuse time is not trivial.
    pub(crate) fn counted(&self) -> f64 {
        self.within.iter().sum::<f64>() + self.first.iter().sum::<f64>()
    }

    /// The product-limit estimate (E. L. Kaplan, P. Meier, Nonparametric Estimation from Incomplete Observations,
    /// JASA 53, 1958), on bins: of those at risk in a bin, half of those censored in it count (the actuarial
    /// estimate, ibid. section 3). Bins that too few references reach inside of a burst are filled from the times
    /// across bursts; a `prior` counts like one more reference. `references`: how many in all, those with trivial
    /// times, which are not counted here, among them. `unit`: the weight of a typical reference.
    pub(crate) fn distribution(
        &self,
        references: f64,
        prior: Option<&Distribution>,
        unit: f64,
    ) -> Distribution {
        let mut hazard = [0.0; BINS];
        let counted = self.counted();
        let mut at_risk = references.max(counted);
        let mut within = *self.within;
        within[0] += at_risk - counted;
        let mut visible = self.across.iter().sum::<f64>() + self.never.iter().sum::<f64>();
        for bin in 0..BINS {
            let exposed = at_risk - self.first[bin] / 2.0;
            let visibly = (visible - self.never[bin] / 2.0).max(0.0);
            let (ends, among) = if exposed >= ENOUGH_WITHIN * unit {
                (within[bin], exposed)
            } else {
                (within[bin] + self.across[bin], exposed.max(0.0) + visibly)
            };
            hazard[bin] = match prior {
                Some(prior) => (ends + PRIOR * unit * prior.hazard[bin]) / (among + PRIOR * unit),
                None if among > 0.0 => ends / among,
                None => 0.0,
            }
            .clamp(0.0, 1.0);
            at_risk -= within[bin] + self.first[bin];
            visible -= self.across[bin] + self.never[bin];
        }
        Distribution::from_hazard(hazard)
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

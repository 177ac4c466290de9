//! What an estimator answers.

use crate::cost::CostSpread;
use crate::spread::Spread;

/// Misses at one level, in the unit of the bursts' weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub misses: f64,
    /// The fewest that what was seen allows, whatever happened between bursts: every block that is new in its
    /// burst counts as used as late as possible before.
    pub low: f64,
    /// The most: every block that is new in its burst counts as missing.
    pub high: f64,
    /// Standard error of `misses` over bursts, as far as it comes from which bursts were seen.
    pub standard_error: f64,
    /// Standard error of misses ÷ references.
    pub ratio_error: f64,
}

/// One instruction, one owner, or the program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// References, in the unit of the bursts' weights.
    pub references: f64,
    /// Of these, those that read.
    pub reads: f64,
    /// References seen, one by one.
    pub observed: u64,
    /// Whether they are prefetches: uses of their blocks that are no accesses of the program. The program's row has none.
    pub is_prefetch: bool,
    /// Bursts that have any of them.
    pub bursts: u64,
    /// In the order of [`crate::LocalityConfig::levels`].
    pub levels: Vec<Estimate>,
    /// What they cost in bursts, of owners and the program; nothing of instructions.
    pub spread: CostSpread,
}

/// Everything, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Bursts taken in.
    pub bursts: u64,
    /// The program: misses are the sums over instructions.
    pub total: Row,
    /// By number, only those that were seen.
    pub instructions: Vec<(u32, Row)>,
    /// By number, only those that were seen.
    pub owners: Vec<(u32, Row)>,
    /// How bursts differ.
    pub(crate) spread: Spread,
}

/// One size on a miss-ratio curve.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CurvePoint {
    /// Capacity of the cache, fully associative, in bytes.
    pub bytes: u64,
    /// Misses ÷ references.
    pub ratio: f64,
    /// The lowest ratio that what was seen allows; see [`Estimate::low`].
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl Summary {
    /// How many bursts of equal cost tell as much of an owner's or instruction's share of [`crate::LocalityConfig::cost`].
    ///
    /// A share of a cost is Σy ÷ Σx over bursts, x a burst's cost and y the part of it. By linearisation (W. G. Cochran,
    /// Sampling Techniques, 3rd edition, 1977, section 6.4) its variance is Σ(y − R x)² ÷ (Σx)². With y between 0 and x that is
    /// at most R (1 − R) Σx² ÷ (Σx)², what as many independent observations have as the number returned (L. Kish, Survey
    /// Sampling, 1965, section 11.7, of weights): a few bursts that cost much count for little, however many cost
    /// nothing. 0: there was no cost.
    pub fn effective_bursts(&self) -> f64 {
        self.spread.effective()
    }
}

impl Row {
    /// Such a part of it, of all that is added up over references.
    pub fn part(&self, part: f64) -> Self {
        let levels = self.levels.iter().map(|estimate| Estimate {
            misses: estimate.misses * part,
            low: estimate.low * part,
            high: estimate.high * part,
            standard_error: estimate.standard_error * part,
            ratio_error: estimate.ratio_error,
        });
        Self {
            references: self.references * part,
            reads: self.reads * part,
            levels: levels.collect(),
            spread: self.spread * part,
            ..*self
        }
    }

    /// Misses ÷ references at a level; `None` without references or without such a level.
    pub fn miss_ratio(&self, level: usize) -> Option<f64> {
        let misses = self.levels.get(level)?.misses;
        (self.references > 0.0).then(|| misses / self.references)
    }
}

impl Estimate {
    /// The interval that holds the misses with 95 % confidence, as far as `misses` itself is unbiased: the normal one
    /// around it, cut to what is possible at all.
    pub fn interval95(&self) -> (f64, f64) {
        let half = 1.959_963_984_540_054 * self.standard_error;
        ((self.misses - half).max(0.0), self.misses + half)
    }
}

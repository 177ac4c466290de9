//! What an estimator answers.

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
    /// Bursts that have any of them.
    pub bursts: u64,
    /// In the order of [`crate::LocalityConfig::levels`].
    pub levels: Vec<Estimate>,
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

impl Row {
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

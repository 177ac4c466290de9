//! How far estimates differ from burst to burst.

use crate::scopes::{Scope, Sums};

/// Bursts are the sampling units: what happens inside of one hangs together. A ratio R = Σy ÷ Σx over bursts has
/// the variance Σ(y − R x)² ÷ (Σx)² × n ÷ (n − 1), by linearisation (W. G. Cochran, Sampling Techniques, 3rd edition,
/// 1977, section 6.4, without the correction for a finite population).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spread {
    bursts: f64,
    references: f64,
    references_squared: f64,
    cost: f64,
    cost_squared: f64,
}

impl Spread {
    /// A burst that stands for so many references, and costs so much.
    pub(crate) fn add(&mut self, references: f64, cost: f64) {
        self.bursts += 1.0;
        self.references += references;
        self.references_squared += references * references;
        self.cost += cost;
        self.cost_squared += cost * cost;
    }

    /// (Σx)² ÷ Σx² of the bursts' costs x.
    pub(crate) fn effective(&self) -> f64 {
        if self.cost_squared > 0.0 { self.cost * self.cost / self.cost_squared } else { 0.0 }
    }

    /// The square root of a sum of squares, times n ÷ (n − 1). A single burst tells nothing of the spread.
    fn root(&self, squares: f64) -> f64 {
        if self.bursts < 2.0 {
            return f64::INFINITY;
        }
        // Rounding may leave less than nothing.
        (squares.max(0.0) * self.bursts / (self.bursts - 1.0)).sqrt()
    }

    /// Of a scope's misses, in the whole run: the error of their share in all references, times these.
    pub(crate) fn error_of_share(&self, sums: &Sums) -> f64 {
        let ratio = sums.total / self.references;
        let square = sums.squared - 2.0 * ratio * sums.by_all + ratio * ratio * self.references_squared;
        self.root(square)
    }

    /// Of a scope's miss ratio.
    pub(crate) fn error_of_ratio(&self, sums: &Sums, scope: &Scope) -> f64 {
        let ratio = sums.total / scope.references;
        let square = sums.squared - 2.0 * ratio * sums.by_own + ratio * ratio * scope.references_squared;
        self.root(square) / scope.references
    }
}

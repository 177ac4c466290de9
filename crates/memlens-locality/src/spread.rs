//! How far estimates differ from burst to burst.

use crate::scopes::{Scope, Sums};

/// Bursts are the sampling units: what happens inside of one hangs together. A ratio R = Σy ÷ Σx over bursts has
/// the variance Σ(y − R x)² ÷ (Σx)² × n ÷ (n − 1), by linearisation (W. G. Cochran, Sampling Techniques, 3rd edition,
/// 1977, section 6.4, without the correction for a finite population).
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Spread {
    bursts: f64,
    references: f64,
    references_squared: f64,
    /// Sums over bursts of references and misses by level, and of all their products.
    sums: Vec<f64>,
    products: Vec<f64>,
    present: Vec<f64>,
}

impl Spread {
    pub(crate) fn new(levels: usize) -> Self {
        let size = levels + 1;
        Self { sums: vec![0.0; size], products: vec![0.0; size * size], ..Self::default() }
    }

    /// A burst that stands for so many references, and misses by level.
    pub(crate) fn add(&mut self, references: f64, misses: impl Iterator<Item = f64>) {
        self.bursts += 1.0;
        self.references += references;
        self.references_squared += references * references;
        self.present.clear();
        self.present.push(references);
        self.present.extend(misses);
        // None where no reference was more than trivial.
        self.present.resize(self.sums.len(), 0.0);
        for (row, &one) in self.present.iter().enumerate() {
            self.sums[row] += one;
            for (column, &other) in self.present.iter().enumerate() {
                self.products[row * self.sums.len() + column] += one * other;
            }
        }
    }

    /// (Σx)² ÷ Σx² of the bursts' costs x.
    pub(crate) fn effective(&self, a_reference: f64, a_miss: &[f64]) -> f64 {
        let costs: Vec<f64> = std::iter::once(a_reference).chain(a_miss.iter().copied()).collect();
        let dot = |values: &[f64]| values.iter().zip(&costs).map(|(value, cost)| value * cost).sum::<f64>();
        let all = dot(&self.sums);
        let by_row: Vec<f64> = self.products.chunks(self.sums.len().max(1)).map(dot).collect();
        let squares = dot(&by_row);
        if squares > 0.0 { all * all / squares } else { 0.0 }
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

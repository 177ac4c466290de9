//! Amounts by read.

use crate::Code;

/// How much of the samples each read of each position got.
#[derive(Clone, Debug, PartialEq)]
pub struct Assigned<'a> {
    pub(crate) code: &'a Code,
    /// For each position, one amount for each of its reads.
    pub(crate) amounts: Vec<Vec<f64>>,
    /// Samples for which no read was in reach.
    pub lost: f64,
}

impl Assigned<'_> {
    /// The amounts of the reads of a position, in the order of [`Position::reads`].
    ///
    /// [`Position::reads`]: crate::Position::reads
    pub fn at(&self, position: usize) -> &[f64] {
        self.amounts.get(position).map_or(&[], Vec::as_slice)
    }

    /// What the reads of one variable at one position got together.
    pub fn of(&self, position: usize, variable: usize) -> f64 {
        let Some(at) = self.code.positions.get(position) else { return 0.0 };
        let reads = at.reads.iter().zip(self.at(position));
        reads.filter(|(read, _)| read.variable == variable).map(|(_, amount)| amount).sum()
    }

    /// The sum for each of the first `variables` variables.
    pub fn by_variable(&self, variables: usize) -> Vec<f64> {
        let mut sums = vec![0.0; variables];
        for (position, amounts) in self.code.positions.iter().zip(&self.amounts) {
            for (read, amount) in position.reads.iter().zip(amounts) {
                if let Some(sum) = sums.get_mut(read.variable) {
                    *sum += amount;
                }
            }
        }
        sums
    }

    /// Everything that was assigned.
    pub fn total(&self) -> f64 {
        self.amounts.iter().flatten().sum()
    }
}

//! Which loads miss so often that they are worth work.

use std::collections::{HashMap, HashSet};

/// The smallest set of instructions that has at least `share` (0 to 1) of all misses: by falling misses, equal ones by
/// rising number. Empty without misses.
pub fn smallest_covering(misses: impl IntoIterator<Item = (u32, f64)>, share: f64) -> Vec<u32> {
    let mut by_misses: Vec<(u32, f64)> = misses.into_iter().filter(|(_, misses)| *misses > 0.0).collect();
    by_misses.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    let wanted = by_misses.iter().map(|(_, misses)| misses).sum::<f64>() * share;
    let mut covered = 0.0;
    let mut set = Vec::new();
    for (instruction, misses) in by_misses {
        if covered >= wanted {
            break;
        }
        covered += misses;
        set.push(instruction);
    }
    set
}

/// A predicted set of delinquent loads held against the exact one, in the measures of table 6 of Zhao et al. (see
/// [`crate::Umi`]).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DelinquentComparison {
    /// |P|: loads predicted.
    pub predicted: usize,
    /// |C|: the smallest set of loads that has the share of exact misses asked for.
    pub exact: usize,
    /// |P ∩ C|.
    pub common: usize,
    /// Share of all exact misses that P has.
    pub predicted_coverage: f64,
    /// Share of all exact misses that P ∩ C has.
    pub common_coverage: f64,
}

impl DelinquentComparison {
    /// Compares `predicted` with the exact load misses; `share`: what C must cover, 0.9 in the paper.
    pub fn new(predicted: &[u32], exact_misses: impl IntoIterator<Item = (u32, f64)>, share: f64) -> Self {
        let misses: HashMap<u32, f64> = exact_misses.into_iter().collect();
        let all: f64 = misses.values().sum();
        let exact: HashSet<u32> =
            smallest_covering(misses.iter().map(|(&load, &count)| (load, count)), share)
                .into_iter()
                .collect();
        let predicted: HashSet<u32> = predicted.iter().copied().collect();
        let coverage = |loads: &mut dyn Iterator<Item = &u32>| {
            let covered: f64 = loads.filter_map(|load| misses.get(load)).sum();
            if all > 0.0 { covered / all } else { 0.0 }
        };
        Self {
            predicted: predicted.len(),
            exact: exact.len(),
            common: predicted.intersection(&exact).count(),
            predicted_coverage: coverage(&mut predicted.iter()),
            common_coverage: coverage(&mut predicted.intersection(&exact)),
        }
    }

    /// |P ∩ C| ÷ |C|; `None` if there is nothing to find.
    pub fn recall(&self) -> Option<f64> {
        (self.exact > 0).then(|| self.common as f64 / self.exact as f64)
    }

    /// |P − C| ÷ |P|; `None` if nothing is predicted.
    pub fn false_positives(&self) -> Option<f64> {
        (self.predicted > 0).then(|| (self.predicted - self.common) as f64 / self.predicted as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measures_are_those_of_the_table() {
        let misses = [(1, 50.0), (2, 30.0), (3, 15.0), (4, 5.0), (5, 0.0)];
        // 50 + 30 = 80 is not enough, 95 is.
        assert_eq!(smallest_covering(misses, 0.9), [1, 2, 3]);
        assert_eq!(smallest_covering(misses, 0.8), [1, 2]);
        assert_eq!(smallest_covering([(1, 0.0)], 0.9), [0u32; 0]);
        let found = DelinquentComparison::new(&[1, 3, 4, 5], misses, 0.9);
        assert_eq!((found.predicted, found.exact, found.common), (4, 3, 2));
        assert!(
            (found.predicted_coverage - 0.70).abs() < 1e-12 && (found.common_coverage - 0.65).abs() < 1e-12
        );
        assert_eq!((found.recall(), found.false_positives()), (Some(2.0 / 3.0), Some(0.5)));
        let nothing = DelinquentComparison::new(&[], [], 0.9);
        assert_eq!((nothing.recall(), nothing.false_positives()), (None, None));
    }
}

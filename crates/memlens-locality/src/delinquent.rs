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

/// A predicted set P of delinquent loads held against an exact one C, in the measures of table 6 of Zhao et al. (see
/// [`crate::Umi`]). C is the smallest set of loads that has the share of exact misses asked for. There may be several, where
/// loads miss about as often; C is one that has most in common with P.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DelinquentComparison {
    /// |P|: loads predicted.
    pub predicted: usize,
    /// |C|.
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
        let predicted: HashSet<u32> = predicted.iter().copied().collect();
        let all: f64 = misses.values().sum();
        let smallest = smallest_covering(misses.iter().map(|(&load, &count)| (load, count)), share);
        // Misses of the first n loads in P, and of those outside, by falling misses: with n in common no C covers more.
        let running = |is_predicted: bool| -> Vec<f64> {
            let side = misses.iter().filter(|(load, _)| predicted.contains(load) == is_predicted);
            let mut counts: Vec<f64> = side.map(|(_, &count)| count).collect();
            counts.sort_by(|one, other| other.total_cmp(one));
            let mut sum = 0.0;
            let sums = counts.iter().map(|count| {
                sum += count;
                sum
            });
            std::iter::once(0.0).chain(sums).collect()
        };
        let (of_predicted, of_others) = (running(true), running(false));
        let covers = |common: usize| {
            let (common, others) = (of_predicted.get(common), of_others.get(smallest.len() - common));
            common.zip(others).is_some_and(|(common, others)| common + others >= all * share)
        };
        let mut common = smallest.iter().filter(|load| predicted.contains(load)).count();
        while common < smallest.len() && covers(common + 1) {
            common += 1;
        }
        let part = |covered: f64| if all > 0.0 { covered / all } else { 0.0 };
        Self {
            predicted: predicted.len(),
            exact: smallest.len(),
            common,
            predicted_coverage: part(of_predicted[of_predicted.len() - 1]),
            common_coverage: part(of_predicted[common]),
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
        let none = DelinquentComparison::new(&[5], misses, 0.9);
        assert_eq!((none.common, none.predicted_coverage, none.common_coverage), (0, 0.0, 0.0));
        let nothing = DelinquentComparison::new(&[], [], 0.9);
        assert_eq!((nothing.recall(), nothing.false_positives()), (None, None));
    }

    #[test]
    fn of_two_loads_that_serve_as_well_either_is_right() {
        // Two of three are needed besides 1, and any two do.
        let misses = [(1, 60.0), (2, 16.1), (3, 16.0), (4, 15.9)];
        for predicted in [[1, 2, 3], [1, 2, 4], [1, 3, 4]] {
            let found = DelinquentComparison::new(&predicted, misses, 0.8);
            assert_eq!((found.exact, found.common), (3, 3), "{predicted:?}");
        }
        // Without 1 no three have so many.
        let found = DelinquentComparison::new(&[2, 3, 4], misses, 0.8);
        assert_eq!((found.exact, found.common, found.recall()), (3, 2, Some(2.0 / 3.0)));
    }
}

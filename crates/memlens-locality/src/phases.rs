//! Stretches of the program that touch memory at different rates.
//!
//! How many blocks a window of references touches differs between a phase that fills a table in order and one that
//! looks things up in it. One footprint for both would be wrong for both. Bursts are therefore sorted by how many of
//! their references are the first to their block, in a short window at the beginning and in the whole burst against
//! that, two octaves a class each; and each class has a footprint of its own: that of the instructions seen in it.

use crate::bins::TRIVIAL;
use crate::model::Model;
use crate::reuse::Distribution;
use crate::scopes::Scope;

/// Weights of trivial reuse times by phase, for one size of block.
#[derive(Clone, Debug)]
pub(crate) struct Phases {
    short: [[f64; TRIVIAL as usize]; Self::MOST],
}

impl Default for Phases {
    fn default() -> Self {
        Self { short: [[0.0; TRIVIAL as usize]; Self::MOST] }
    }
}

impl Phases {
    /// Classes by either measure.
    const SIDE: usize = 4;
    /// Number of classes.
    pub(crate) const MOST: usize = Self::SIDE * Self::SIDE;
    /// References of the short window.
    pub(crate) const SHORT_WINDOW: usize = 2048;

    /// The class of a burst with so many first uses in the short window at its beginning, and in all.
    pub(crate) fn class(early: u64, first_uses: u64, references: usize) -> usize {
        let share = |uses: u64, among: usize| uses.max(1) as f64 / among.max(1) as f64;
        let early = share(early, references.min(Self::SHORT_WINDOW));
        let decline = share(first_uses, references) / early;
        // 1 to 1/4, 1/4 to 1/16 …; 1 to 1/2, 1/2 to 1/8 …
        let step = |value: f64, offset: f64| ((offset - value.log2()) / 2.0).floor().max(0.0) as usize;
        step(early, 0.0).min(Self::SIDE - 1) * Self::SIDE + step(decline, 1.0).min(Self::SIDE - 1)
    }

    /// Counts trivial reuse times of a burst.
    pub(crate) fn add(&mut self, class: usize, short: &[u32; TRIVIAL as usize], weight: f64) {
        for (sum, &count) in self.short[class].iter_mut().zip(short) {
            *sum += f64::from(count) * weight;
        }
    }

    /// Of all classes together.
    pub(crate) fn short(&self) -> [f64; TRIVIAL as usize] {
        let mut sums = [0.0; TRIVIAL as usize];
        for class in &self.short {
            for (sum, count) in sums.iter_mut().zip(class) {
                *sum += count;
            }
        }
        sums
    }

    /// A model for each class that was seen, from the instructions' distributions.
    pub(crate) fn models(&self, instructions: &[(&Scope, Distribution)]) -> Vec<Option<Model>> {
        let model = |class: usize| {
            let parts = instructions.iter().map(|(scope, times)| (scope.phases[class], times));
            Some(Model::new(Distribution::mixed(parts)?, &self.short[class]))
        };
        (0..Self::MOST).map(model).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_tell_streams_from_random_lines() {
        // A stream of 8-byte words; 2,048 lines at random; a loop over 100 lines.
        let classes =
            [(256, 2500), (1294, 2048), (100, 100)].map(|(early, all)| Phases::class(early, all, 20_000));
        assert_eq!(classes, [4, 1, 10]);
        assert_eq!((Phases::class(0, 0, 1), Phases::class(5, 5, 5)), (0, 0));
    }
}

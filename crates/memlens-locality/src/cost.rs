//! What references cost, and how far that differs from burst to burst.

use std::ops::{AddAssign, Mul};

/// What references and misses cost, in any unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Each reference.
    pub a_reference: f64,
    /// Each miss besides, by level; those that are not named cost nothing.
    pub a_miss: Vec<f64>,
}

impl Default for Cost {
    /// A reference costs 1, whether it misses or not.
    fn default() -> Self {
        Self { a_reference: 1.0, a_miss: Vec::new() }
    }
}

impl Cost {
    /// Of so many references, with misses by level.
    pub(crate) fn of(&self, references: f64, misses: impl Iterator<Item = f64>) -> f64 {
        let misses = misses.zip(&self.a_miss).map(|(misses, cost)| misses * cost);
        misses.fold(references * self.a_reference, |sum, cost| sum + cost)
    }
}

/// What a part of the program costs, and by how much that differs from burst to burst. Parts may be added up and divided before
/// the error of what they are together is asked for.
///
/// Bursts come one after the other, a tick of a clock apart: a systematic sample of the run. Two bursts of a thread that follow one
/// another are taken for two draws from their stretch of it. The variance of Σx over bursts is then the sum of (x − x′)²
/// over such pairs (K. M. Wolter, Introduction to Variance Estimation, 2nd edition, 2007, section 8.2, non-overlapping
/// differences); a thread's last burst without a second counts with its whole deviation. Phases that last longer than two bursts do not add to
/// it; independent draws would have their whole difference in it.
/// Kept are [`Self::CONTRASTS`] sums in which one burst of each pair, at random, counts with a minus: the mean of their squares is that
/// variance (random half-samples: P. J. McCarthy, Pseudo-replication: Half Samples, Review of the International Statistical Institute 37, 1969).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CostSpread {
    cost: f64,
    contrasts: [f32; Self::CONTRASTS],
}

impl CostSpread {
    /// How many sums with signs are kept: an error from so many has itself a relative standard error of 1/√(2 × 32), an eighth.
    pub const CONTRASTS: usize = 32;

    /// A burst that costs so much. Bit i of `signs`: whether it counts with a minus in sum i.
    pub(crate) fn add(&mut self, cost: f64, signs: u32) {
        self.cost += cost;
        // The sign is the uppermost bit.
        let bits = (cost as f32).to_bits();
        for (at, sum) in self.contrasts.iter_mut().enumerate() {
            *sum += f32::from_bits(bits ^ (signs >> at & 1) << 31);
        }
    }

    /// What it costs.
    pub fn cost(&self) -> f64 {
        self.cost
    }

    /// The standard error of this part's share of the cost of `whole`, as a part of that share, by linearisation: that of Σ(y − R x) ÷ Σy, y
    /// this part's and x the whole's cost in a burst, R the share. `None`: there was no cost, or no difference between bursts was met.
    pub fn error_of_share(&self, whole: &Self) -> Option<f64> {
        /// What sums of 32-bit numbers are off.
        const ROUNDING: f64 = 1e-6;
        if whole.cost <= 0.0 || self.cost <= 0.0 {
            return None;
        }
        let share = self.cost / whole.cost;
        let both = self.contrasts.iter().zip(&whole.contrasts);
        let squares = both.map(|(&part, &all)| (f64::from(part) - share * f64::from(all)).powi(2));
        let error = (squares.sum::<f64>() / Self::CONTRASTS as f64).sqrt() / self.cost;
        (error > ROUNDING).then_some(error)
    }
}

impl AddAssign for CostSpread {
    fn add_assign(&mut self, other: Self) {
        self.cost += other.cost;
        self.contrasts.iter_mut().zip(other.contrasts).for_each(|(sum, more)| *sum += more);
    }
}

impl Mul<f64> for CostSpread {
    type Output = Self;

    /// Such a part of it in each burst.
    fn mul(self, part: f64) -> Self {
        Self { cost: self.cost * part, contrasts: self.contrasts.map(|sum| sum * part as f32) }
    }
}

/// A thread's bursts in pairs: which of them count with a minus.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pairs {
    /// The state of a generator.
    state: u64,
    /// The signs of the present pair's second burst; None: it comes to an end with that.
    second: Option<u32>,
}

impl Pairs {
    /// Those of a thread.
    pub(crate) fn of(thread: u64) -> Self {
        Self { state: thread.wrapping_mul(0xd134_2543_de82_ef95), second: None }
    }

    /// The signs of the next burst.
    pub(crate) fn next_signs(&mut self) -> u32 {
        if let Some(signs) = self.second.take() {
            return signs;
        }
        // SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let signs = (mixed ^ mixed >> 31) as u32;
        self.second = Some(!signs);
        signs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of 1000 bursts' costs that are known: a share of three quarters that bursts have evenly, has none or all of, or has in phases.
    fn error(share: impl Fn(u64, f64) -> f64) -> f64 {
        let mut pairs = Pairs::of(1);
        let (mut part, mut whole) = (CostSpread::default(), CostSpread::default());
        let mut random = Pairs::of(2);
        for burst in 0..1000 {
            let signs = pairs.next_signs();
            let draw = f64::from(random.next_signs()) / f64::from(u32::MAX);
            random.second = None;
            part.add(100.0 * share(burst, draw), signs);
            whole.add(100.0, signs);
        }
        assert!((part.cost() / whole.cost() - 0.75).abs() < 0.05);
        0.75 * part.error_of_share(&whole).unwrap_or(0.0)
    }

    #[test]
    fn errors_are_those_of_the_differences_between_neighbours() {
        let is_about = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.35;
        assert!(error(|_, _| 0.75) < 1e-9, "no burst differs");
        // √(p (1 − p) ÷ n), and a fifth of it where shares are near by.
        let all_or_nothing = error(|_, draw| f64::from(u8::from(draw < 0.75)));
        assert!(is_about(all_or_nothing, (0.75 * 0.25 / 1000.0_f64).sqrt()), "{all_or_nothing}");
        let near = error(|_, draw| 0.65 + 0.2 * draw);
        assert!(is_about(near, 0.2 / 12.0_f64.sqrt() / 1000.0_f64.sqrt()), "{near}");
        let phases = error(|burst, _| f64::from(u8::from(burst < 750)));
        assert!(phases < 1e-9, "of two bursts of a pair none is in another phase: {phases}");
    }

    #[test]
    fn what_is_added_up_has_the_error_of_the_sum() {
        let mut pairs = Pairs::of(3);
        let [mut one, mut other, mut whole, mut both] = [CostSpread::default(); 4];
        for burst in 0..100 {
            let signs = pairs.next_signs();
            let share = if burst % 2 == 0 { 0.2 } else { 0.7 };
            one.add(share, signs);
            other.add(0.9 - share, signs);
            whole.add(1.0, signs);
        }
        both += one;
        both += other;
        let error = |part: CostSpread| part.error_of_share(&whole).expect("a difference");
        assert!(error(one) > 0.05 && both.error_of_share(&whole).is_none());
        assert!((error(one * 0.5) - error(one)).abs() < 1e-6, "as a part of the share");
        assert_eq!(one.error_of_share(&CostSpread::default()), None);
        assert_eq!(CostSpread::default().error_of_share(&whole), None);
    }
}

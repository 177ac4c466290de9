//! When something was: amounts in steps of time, no more than so many, whatever the time.

use std::ops::Range;

use memlens_profile::{Slice, shares};

/// The first steps: 8 ms, about. Their numbers have room for a year.
const FIRST_SHIFT: u32 = 23;
/// More steps than these become half as many, of twice the length.
pub const MOST_STEPS: usize = 64;

/// Amounts by time. Unit of time: ns, of a clock that begins anywhere.
///
/// There is one for each place in the code and object, a hundred thousand of a large program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct When {
    /// How many times steps were doubled.
    doubled: u32,
    /// Number of the step, and what was in it; in order.
    steps: Vec<(u32, f32)>,
}

impl When {
    /// Adds what was at a time.
    pub fn add(&mut self, at_ns: u64, amount: f64) {
        let step = u32::try_from(at_ns >> self.shift()).unwrap_or(u32::MAX);
        self.add_to(step, amount as f32);
    }

    /// Adds what was all over a time.
    pub fn add_evenly(&mut self, time_ns: Range<u64>, amount: f64) {
        /// Pieces that it is added in: slices of a profile are not finer than times between bursts.
        const PIECES: u64 = 16;
        let length = time_ns.end.saturating_sub(time_ns.start);
        for piece in 0..PIECES {
            let at = u128::from(length) * u128::from(2 * piece + 1) / u128::from(2 * PIECES);
            self.add(time_ns.start + at as u64, amount / PIECES as f64);
        }
    }

    /// Adds what was at other times, each so many times.
    pub fn add_all(&mut self, other: &Self, times: f64) {
        while self.doubled < other.doubled {
            self.double();
        }
        for &(step, amount) in &other.steps {
            // It may be doubled on the way.
            self.add_to(step >> (self.doubled - other.doubled), (f64::from(amount) * times) as f32);
        }
    }

    /// All of it.
    pub fn sum(&self) -> f64 {
        self.steps.iter().map(|&(_, amount)| f64::from(amount)).sum()
    }

    /// What lies in slices that begin at `began_ns`: of a step that lies in several each has a part.
    pub fn in_slices(&self, began_ns: u64, slices: &[Slice]) -> Vec<f64> {
        let mut sums = vec![0.0; slices.len()];
        for &(step, amount) in &self.steps {
            let [begin, end] =
                [0, 1].map(|edge| ((u64::from(step) + edge) << self.shift()).saturating_sub(began_ns));
            for (at, share) in shares(begin, end, slices) {
                sums[at] += f64::from(amount) * share;
            }
        }
        sums
    }

    fn shift(&self) -> u32 {
        FIRST_SHIFT + self.doubled
    }

    /// `step` is of this length; adding may double it for the next.
    fn add_to(&mut self, step: u32, amount: f32) {
        // Mostly it is the last.
        let at = match self.steps.last() {
            Some(&(last, _)) if last == step => Ok(self.steps.len() - 1),
            Some(&(last, _)) if last < step => Err(self.steps.len()),
            _ => self.steps.binary_search_by_key(&step, |&(step, _)| step),
        };
        match at {
            Ok(at) => self.steps[at].1 += amount,
            Err(at) => self.steps.insert(at, (step, amount)),
        }
        if self.steps.len() > MOST_STEPS {
            self.double();
        }
    }

    fn double(&mut self) {
        self.doubled += 1;
        let mut joined: Vec<(u32, f32)> = Vec::with_capacity(self.steps.len());
        for &(step, amount) in &self.steps {
            match joined.last_mut() {
                Some((last, sum)) if *last == step / 2 => *sum += amount,
                _ => joined.push((step / 2, amount)),
            }
        }
        self.steps = joined;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn slices(count: u64, each_ns: u64) -> Vec<Slice> {
        (0..count).map(|at| Slice { begin: at * each_ns, end: (at + 1) * each_ns }).collect()
    }

    #[test]
    fn an_hour_has_as_many_steps_as_a_second_and_nothing_is_lost() {
        let mut when = When::default();
        let began = 123_456 * MS;
        // A second of one each, an hour later again.
        for at in 0..1000 {
            when.add(began + at * MS, 1.0);
            when.add(began + (3_600_000 + at) * MS, 2.0);
        }
        assert!(when.steps.len() <= MOST_STEPS, "{}", when.steps.len());
        assert_eq!(when.sum(), 3000.0);
        let halves = when.in_slices(began, &slices(2, 1_800_500 * MS));
        assert!((halves[0] - 1000.0).abs() < 1.0 && (halves[1] - 2000.0).abs() < 1.0, "{halves:?}");
        // What is before all slices is in the first.
        assert_eq!(when.in_slices(began + 5_000_000 * MS, &slices(2, MS)), [3000.0, 0.0]);
    }

    #[test]
    fn steps_of_any_length_add_up() {
        let (mut fine, mut coarse) = (When::default(), When::default());
        fine.add(5 * MS, 1.0);
        (0..1000).for_each(|at| coarse.add(at * MS, 1.0));
        assert!(coarse.doubled > 0);
        let mut sum = fine.clone();
        sum.add_all(&coarse, 0.5);
        let mut other = coarse.clone();
        other.add_all(&fine, 2.0);
        assert_eq!((sum.sum(), other.sum()), (501.0, 1002.0));
        assert_eq!((sum.doubled, other.doubled), (coarse.doubled, coarse.doubled));
    }

    #[test]
    fn what_came_late_is_the_last_slices() {
        let mut when = When::default();
        when.add(50 * MS, 3.0);
        assert_eq!(when.in_slices(0, &slices(2, 10 * MS)), [0.0, 3.0]);
        assert_eq!(when.in_slices(0, &[]), Vec::<f64>::new());
    }
}

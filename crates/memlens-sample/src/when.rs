//! When something was: amounts in steps of time, no more than so many, whatever the time.

use memlens_profile::Slice;

/// The first steps: a millisecond, about.
const FIRST_SHIFT: u32 = 20;
/// More steps than these become half as many, of twice the length.
const MOST_STEPS: usize = 256;

/// Amounts by time. Unit of time: ns, of a clock that begins anywhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct When {
    /// How many times steps were doubled.
    doubled: u32,
    /// Number of the step, and what was in it; in order.
    steps: Vec<(u64, f64)>,
}

impl When {
    /// Adds what was at a time.
    pub fn add(&mut self, at_ns: u64, amount: f64) {
        self.add_to(at_ns >> self.shift(), amount);
    }

    /// Adds what was at other times, each so many times.
    pub fn add_all(&mut self, other: &Self, times: f64) {
        while self.doubled < other.doubled {
            self.double();
        }
        for &(step, amount) in &other.steps {
            // It may be doubled on the way.
            self.add_to(step >> (self.doubled - other.doubled), amount * times);
        }
    }

    /// All of it.
    pub fn sum(&self) -> f64 {
        self.steps.iter().map(|(_, amount)| amount).sum()
    }

    /// What lies in slices that begin at `began_ns`: of a step that lies in several each has a part.
    pub fn in_slices(&self, began_ns: u64, slices: &[Slice]) -> Vec<f64> {
        let mut sums = vec![0.0; slices.len()];
        let length = 1_u64 << self.shift();
        for &(step, amount) in &self.steps {
            let begin = (step << self.shift()).saturating_sub(began_ns);
            let end = ((step << self.shift()) + length).saturating_sub(began_ns);
            let first = slices.partition_point(|slice| slice.end <= begin);
            let inside = slices.get(first..).unwrap_or_default().iter().take_while(|slice| slice.begin < end);
            let parts: Vec<f64> =
                inside.map(|slice| (slice.end.min(end) - slice.begin.max(begin)) as f64).collect();
            let all: f64 = parts.iter().sum();
            match parts.is_empty() || all <= 0.0 {
                // Behind the last one's end.
                true => sums.last_mut().into_iter().for_each(|last| *last += amount),
                false => {
                    let shares = parts.iter().map(|part| amount * part / all);
                    sums[first..].iter_mut().zip(shares).for_each(|(sum, share)| *sum += share);
                }
            }
        }
        sums
    }

    fn shift(&self) -> u32 {
        FIRST_SHIFT + self.doubled
    }

    /// `step` is of this length; adding may double it for the next.
    fn add_to(&mut self, step: u64, amount: f64) {
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
        let mut joined: Vec<(u64, f64)> = Vec::with_capacity(self.steps.len());
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

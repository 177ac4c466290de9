//! Reuse times that agree with how much data there is.
//!
//! A thread's references are the first use of their block as often as there are blocks, no more. The times of all others add up to no
//! more than blocks times references, since a block's times follow one another. And none is longer than the run. What bursts
//! say of times longer than themselves comes from few finds, or from none, and need not agree with that.
//!
//! - A time is as likely as it fits into the run; what does not fit has no end in it.
//! - Where more uses have no end than there are blocks, the others' blocks were used before, and nothing is known of when: they are
//!   taken to be as far apart as two moments of a stretch of the run, of a hundred bursts at most.
//! - Of the distributions that then have no more uses without an end, and whose times add up to no more, the one that is nearest weighs
//!   each time by an exponential of it, at one rate for all instructions, and those without an end by one factor (I. Csiszár, I-Divergence
//!   Geometry of Probability Distributions and Minimization Problems, Annals of Probability 3(1), 1975, section 3).
//!
//! Times that are decided inside of bursts stay as they are.

use crate::bins::{BINS, lower_edge, middle};
use crate::reuse::Distribution;

/// Sums of times that are too large by less than this factor are left: bins of long times are half an octave wide, few finds tell of
/// them, and there may have been more data than was seen. Those too large by more than its square are brought down to what there is room for.
const UNSURE: f64 = 2.0;
/// Steps in which the factor and the rate are found.
const STEPS: usize = 20;
/// The logarithm of the least factor, to base 2.
const LEAST_FACTOR: f64 = -1000.0;
/// A rate that leaves but the shortest of the times that are not decided: so many e-folds to their shortest.
const MOST_FOLDS: f64 = 4.0;
/// So many times from burst to burst: what is not found again was used no longer ago than that.
const BURSTS: f64 = 100.0;

/// What there is room for.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    /// The program's blocks.
    pub(crate) blocks: f64,
    /// Uses that can be the first of their block in their thread.
    pub(crate) first: f64,
    /// By bin: the part of the uses before which their thread has been running for so long.
    fits: [f64; BINS],
    /// Of the bins from one on: how likely two moments are so far apart, and the sum of that.
    apart: [f64; BINS],
    apart_from: [f64; BINS],
}

impl Room {
    /// For so many blocks, and threads that make so many references each, in so many bursts; none if they make none.
    pub(crate) fn new(blocks: f64, threads: &[f64], bursts: f64) -> Option<Self> {
        let all: f64 = threads.iter().sum();
        let run = threads.iter().copied().fold(0.0, f64::max);
        if all <= 0.0 {
            return None;
        }
        let left = |time: f64| threads.iter().map(|made| (made - time).max(0.0)).sum::<f64>();
        let stretch = run.min(BURSTS * all / bursts.max(1.0));
        // 2 (1 - time ÷ stretch) ÷ stretch.
        let apart: [f64; BINS] = std::array::from_fn(|bin| {
            let [from, to] = [bin, bin + 1].map(|bin| lower_edge(bin).min(stretch) / stretch);
            (to - from) * (2.0 - from - to)
        });
        let mut apart_from = apart;
        (0..BINS - 1).rev().for_each(|bin| apart_from[bin] += apart_from[bin + 1]);
        let first = threads.iter().map(|made| made.min(blocks)).sum();
        let fits = std::array::from_fn(|bin| left(middle(bin)) / all);
        Some(Self { blocks, first, fits, apart, apart_from })
    }
}

/// How times are weighed that bursts did not decide.
#[derive(Clone, Debug)]
pub(crate) struct Tilt {
    room: Room,
    /// By bin: the weight of a time.
    weight: [f64; BINS],
    /// Of the bins from one on: how likely two moments are so far apart, weighed.
    apart_from: [Mass; BINS],
    /// The weight of uses that no time ends.
    endless: f64,
}

/// Probabilities of times, and these times the times.
#[derive(Clone, Copy, Debug, Default)]
struct Mass {
    all: f64,
    times: f64,
}

impl Mass {
    fn add(&mut self, bin: usize, mass: f64) {
        self.all += mass;
        self.times += mass * middle(bin);
    }

    /// As a part of so much; nothing of nothing.
    fn of(self, all: f64) -> Self {
        if all > 0.0 { Self { all: self.all / all, times: self.times / all } } else { Self::default() }
    }
}

/// Of a reference of one instruction, weighed but for what has no end.
#[derive(Clone, Copy, Debug, Default)]
struct Weighed {
    /// The sum of times that bursts decided: not weighed.
    decided: f64,
    /// How likely its time is longer.
    reach: f64,
    /// Times that end in the run.
    ends: Mass,
    /// Those that may be of uses that bursts find no end of, and that were not the first.
    apart: Mass,
    /// How likely none ends it.
    endless: f64,
}

/// What to multiply weights with, and how likely a use that bursts find no end of has one.
#[derive(Clone, Copy, Debug)]
struct Scale {
    all: f64,
    ended: f64,
}

impl Tilt {
    /// What makes these distributions, each with its number of uses, agree with what there is room for. Cost: some microseconds
    /// for each.
    pub(crate) fn of(parts: &[(f64, &Distribution)], room: &Room) -> Self {
        let (mut found, times) = Self::at(0.0, parts, room);
        // What bursts have seen was there.
        let decided: f64 = parts.iter().map(|(references, times)| references * decided(times)).sum();
        let most = (parts.iter().map(|part| part.0).sum::<f64>() * room.blocks).max(decided);
        let over = times / most;
        if over > UNSURE {
            let most = most * (UNSURE.powi(2) / over).max(1.0);
            let longest = parts.iter().map(|(_, times)| times.undecided).max().unwrap_or(0).clamp(1, BINS);
            let [mut low, mut high] = [1.0 / lower_edge(BINS), MOST_FOLDS / lower_edge(longest)];
            found = Self::at(high, parts, room).0;
            for _ in 0..STEPS {
                let rate = (low * high).sqrt();
                let (tilt, times) = Self::at(rate, parts, room);
                if times > most {
                    low = rate;
                } else {
                    (high, found) = (rate, tilt);
                }
            }
        }
        found
    }

    /// At a rate, with as many uses that no time ends as there is room for; and the sum of the others' times.
    fn at(rate: f64, parts: &[(f64, &Distribution)], room: &Room) -> (Self, f64) {
        let mut tilt = Self::new(rate, room);
        let weighed: Vec<(f64, Weighed)> =
            parts.iter().map(|(references, times)| (*references, tilt.weighed(times))).collect();
        let sum = |value: &dyn Fn(&Weighed) -> f64| -> f64 {
            weighed.iter().map(|(references, part)| references * value(part)).sum()
        };
        if sum(&|part| part.endless(1.0)) > room.first {
            let (mut low, mut high) = (LEAST_FACTOR, 0.0);
            for _ in 0..STEPS {
                let factor: f64 = (low + high) / 2.0;
                let is_too_much = sum(&|part| part.endless(factor.exp2())) > room.first;
                *(if is_too_much { &mut high } else { &mut low }) = factor;
            }
            tilt.endless = low.exp2();
        }
        let times = sum(&|part| part.times(tilt.endless));
        (tilt, times)
    }

    fn new(rate: f64, room: &Room) -> Self {
        let weight: [f64; BINS] = std::array::from_fn(|bin| (-rate * middle(bin)).exp());
        let (mut apart_from, mut sum) = ([Mass::default(); BINS], Mass::default());
        for bin in (0..BINS).rev() {
            sum.add(bin, room.apart[bin] * weight[bin]);
            apart_from[bin] = sum;
        }
        Self { room: room.clone(), weight, apart_from, endless: 1.0 }
    }

    fn weighed(&self, times: &Distribution) -> Weighed {
        let from = times.undecided;
        let mut found = Weighed { decided: decided(times), endless: times.beyond, ..Weighed::default() };
        if from < BINS {
            found.reach = times.survival[from];
            found.apart = self.apart_from[from].of(self.room.apart_from[from]);
        }
        for bin in from..BINS {
            let fitting = times.in_bin[bin] * self.room.fits[bin];
            found.ends.add(bin, fitting * self.weight[bin]);
            found.endless += times.in_bin[bin] - fitting;
        }
        found
    }

    /// A distribution's own times, weighed.
    pub(crate) fn apply(&self, times: &Distribution) -> Distribution {
        let Some(Scale { all, ended }) = self.weighed(times).scale(self.endless) else {
            return times.clone();
        };
        let apart_from = self.room.apart_from.get(times.undecided).copied().unwrap_or(0.0);
        let ended = if apart_from > 0.0 { ended / apart_from } else { 0.0 };
        let mut in_bin = times.in_bin;
        for (bin, mass) in in_bin.iter_mut().enumerate().skip(times.undecided) {
            *mass = all * self.weight[bin] * (*mass * self.room.fits[bin] + ended * self.room.apart[bin]);
        }
        Distribution::from_parts(in_bin, times.undecided)
    }
}

/// The sum of the times that bursts decided.
fn decided(times: &Distribution) -> f64 {
    (0..times.undecided).map(|bin| times.in_bin[bin] * middle(bin)).sum()
}

impl Weighed {
    /// None: there is nothing to weigh, or all of it weighs nothing.
    fn scale(&self, endless: f64) -> Option<Scale> {
        let ended = self.endless * (1.0 - endless);
        let sum = self.ends.all + ended * self.apart.all + self.endless * endless;
        (sum > 0.0).then(|| Scale { all: self.reach / sum, ended })
    }

    /// How likely no time ends it, at that weight.
    fn endless(&self, endless: f64) -> f64 {
        self.scale(endless).map_or(0.0, |Scale { all, .. }| all * self.endless * endless)
    }

    /// The sum of the times that do.
    fn times(&self, endless: f64) -> f64 {
        let times = |Scale { all, ended }| all * (self.ends.times + ended * self.apart.times);
        self.decided + self.scale(endless).map_or(0.0, times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bins::bin;

    /// Times decided up to 10,000; of all references, so many in the bins of these times, and the rest of `reach` without an end.
    fn times(reach: f64, ends: &[(u64, f64)]) -> Distribution {
        let mut in_bin = [0.0; BINS];
        in_bin[bin(100)] = 1.0 - reach;
        ends.iter().for_each(|&(time, part)| in_bin[bin(time)] += part);
        Distribution::from_parts(in_bin, bin(10_000))
    }

    /// The sum of the times, a reference.
    fn mean(times: &Distribution) -> f64 {
        (0..BINS).map(|bin| times.in_bin[bin] * middle(bin)).sum()
    }

    /// What becomes of them where a thread makes so many references.
    fn tilted(times: &Distribution, blocks: f64, made: f64) -> Distribution {
        Tilt::of(&[(made, times)], &room(blocks, made)).apply(times)
    }

    fn room(blocks: f64, made: f64) -> Room {
        Room::new(blocks, &[made], 1.0).expect("a run")
    }

    #[test]
    fn what_agrees_stays() {
        // A hundredth of the references goes round 20,000 blocks, and those are all.
        let found = times(0.01, &[(2_000_000, 0.01)]);
        let same = tilted(&found, 21_000.0, 1e12);
        for bin in 0..BINS {
            assert!((found.in_bin[bin] - same.in_bin[bin]).abs() < 1e-6, "{bin}");
        }
        // A block's first use has no time: the run has a hundred rounds.
        let short = tilted(&found, 21_000.0, 2e8);
        assert!((short.beyond / 0.01 - 0.01).abs() < 0.003, "{}", short.beyond);
    }

    #[test]
    fn times_are_no_longer_than_there_are_blocks_for() {
        // By a few finds, a tenth of the rest seems to come again after a hundred million references, for which there would have to be
        // 100,000 blocks.
        let found = times(0.01, &[(20_000, 0.009), (100_000_000, 0.001)]);
        let less = tilted(&found, 5_000.0, 1e12);
        assert!((0.95..=1.01).contains(&(mean(&less) / 5_000.0)), "{}", mean(&less));
        let decided = bin(10_000);
        assert!(found.in_bin[..decided] == less.in_bin[..decided], "bursts have seen those");
        assert!(
            less.survival[decided] > 0.0099 && less.beyond < 1e-5,
            "it has gone elsewhere: {}",
            less.beyond
        );
        // Half as much again may be chance; what is between twice and four times as much is brought down the more.
        let parts =
            [1.5, 3.0].map(|over| mean(&tilted(&found, mean(&found) / over, 1e12)) / mean(&found) * over);
        assert!((1.45..1.55).contains(&parts[0]) && (1.25..1.35).contains(&parts[1]), "{parts:?}");
    }

    #[test]
    fn no_more_references_are_first_than_there_are_blocks() {
        // None of what is new in its burst was found again.
        let found = times(0.01, &[]);
        let less = tilted(&found, 50_000.0, 1e9);
        assert!((0.9..=1.0).contains(&(less.beyond * 1e9 / 50_000.0)), "{}", less.beyond);
        assert!(mean(&less) <= 50_500.0, "{}", mean(&less));
        // The others come again at random, after five million references on average: exponentially distributed.
        let longer = less.survival[bin(5_000_000)] / 0.01;
        assert!((0.3..0.45).contains(&longer), "{longer}");
        // Each of four threads uses all blocks for the first time.
        let shared = Room::new(50_000.0, &[2.5e8; 4], 1.0).expect("a run");
        let shared = Tilt::of(&[(1e9, &found)], &shared).apply(&found);
        assert!((0.9..=1.0).contains(&(shared.beyond * 1e9 / 200_000.0)), "{}", shared.beyond);
    }

    #[test]
    fn what_there_is_no_room_for_at_all_does_not_become_a_miss() {
        // Bursts have seen more than the 100 blocks that it is said to have.
        let found = times(0.1, &[(30_000, 0.01), (100_000, 0.05)]);
        let less = tilted(&found, 100.0, 1e9);
        assert!(less.beyond * 1e9 <= 101.0, "{}", less.beyond);
        assert!(
            less.survival[bin(10_000)] > 0.099 && less.survival[bin(200_000)] < 0.001,
            "{:?}",
            less.survival
        );
        // All of it found, and long ago.
        let long = times(0.1, &[(1 << 34, 0.1)]);
        assert!(tilted(&long, 100.0, 1e12).beyond < 1e-6);
        // Nothing found, by bursts close to each other.
        let lost = times(0.01, &[]);
        let close = Room::new(50_000.0, &[1e9], 1e9 / 150.0).expect("a run");
        assert!(Tilt::of(&[(1e9, &lost)], &close).apply(&lost).beyond <= 5.1e-5);
    }

    #[test]
    fn a_longer_run_says_the_same() {
        // Half is found again, half is not.
        let found = times(0.01, &[(20_000, 0.005)]);
        let longer = [3e9, 1e11].map(|run| {
            let room = Room::new(10_000.0, &[run], run / 1e7).expect("a run");
            Tilt::of(&[(run, &found)], &room).apply(&found).survival[bin(100_000)]
        });
        assert!((longer[0] / longer[1] - 1.0).abs() < 0.1, "{longer:?}");
    }

    #[test]
    fn times_fit_into_the_threads_that_are_long_enough() {
        // One thread makes as many references as a hundred others.
        let threads: Vec<f64> = [1e9].into_iter().chain([1e7; 100]).collect();
        let found = times(0.01, &[(600_000_000, 0.005), (5_000_000, 0.005)]);
        let less = Tilt::of(&[(2e9, &found)], &Room::new(1e9, &threads, 1.0).expect("a run")).apply(&found);
        let parts = [600_000_000, 5_000_000].map(|time| less.in_bin[bin(time)] / 0.005);
        // A fifth of half of them, 0.4 for the middle of the bin; and three quarters.
        assert!((0.1..0.25).contains(&parts[0]) && (0.7..0.8).contains(&parts[1]), "{parts:?}");
    }

    #[test]
    fn instructions_share_the_room() {
        // One goes round 1,000 blocks for all that is known, of the other's nothing is found.
        let round = times(0.5, &[(20_000, 0.5)]);
        let lost = times(0.5, &[]);
        let tilt = Tilt::of(&[(5e7, &round), (5e7, &lost)], &room(10_000.0, 1e8));
        let [round, lost] = [round, lost].map(|times| tilt.apply(&times));
        assert!((lost.beyond * 5e7 + round.beyond * 5e7) <= 10_100.0);
        assert!(round.in_bin[bin(20_000)] > 0.499, "it is not the one that is wrong");
        assert!((mean(&round) + mean(&lost)) / 2.0 <= 10_100.0);
        // Together they have as many uses without an end, if that is asked of both together.
        let both = times(0.5, &[(20_000, 0.25)]);
        assert!((0.9..=1.01).contains(&(tilted(&both, 10_000.0, 1e8).beyond * 1e8 / 10_000.0)));
    }
}

//! Reuse times that agree with how much data there is.
//!
//! A thread's references are the first use of their block as often as there are blocks, no more. The times of all others add up to no
//! more than references times the blocks that there were by then, since a block's times follow one another. And none is longer than the
//! run. What bursts say of times longer than themselves comes from few finds, or from none, and need not agree with that.
//!
//! - A time is as likely as it fits into the run; what does not fit has no end in it.
//! - Where more uses have no end than there are blocks, the others' blocks were used before, and nothing is known of when: they are
//!   taken to be as far apart as two moments of a stretch of the run, of [`GAPS`] gaps between bursts at most.
//! - Of the distributions that then have no more uses without an end, and whose times add up to no more, the one that is nearest weighs
//!   each time by an exponential of it, at one rate for all instructions, and those without an end by one factor (I. Csiszár, I-Divergence
//!   Geometry of Probability Distributions and Minimization Problems, Annals of Probability 3(1), 1975, section 3).
//!
//! Times that are decided inside of bursts stay as they are.

use crate::bins::{BINS, lower_edge, middle};
use crate::reuse::Distribution;

/// Sums of times that are too large by less than this are left: the middle of a bin is up to a quarter longer than the times at its lower edge,
/// and of what is gone through again and again, with one time, all depends on that. From its square on they are brought down to what there is
/// room for.
const ROUGH: f64 = 1.25;
/// Steps in which the factor and the rate are found.
const STEPS: usize = 20;
/// The logarithm of the least factor, to base 2.
const LEAST_FACTOR: f64 = -1000.0;
/// A rate that leaves but the shortest of the times that are not decided: so many e-folds to their shortest.
const MOST_FOLDS: f64 = 4.0;
/// So many gaps between bursts: what is not found again, and was used before, was used no longer ago than that.
const GAPS: f64 = 100.0;

/// What there is room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// The program's blocks.
    pub(crate) blocks: f64,
    /// How many of them there were by then, on average over its uses: no more are between two of their uses.
    pub(crate) open: f64,
    /// Uses that can be the first of their block in their thread.
    pub(crate) first: f64,
    /// References of the thread that a reference is of, on average.
    pub(crate) run: f64,
    /// References that no burst sees from one to the next; 0: not known.
    pub(crate) gap: f64,
}

/// How times are weighed that bursts did not decide.
#[derive(Clone, Debug)]
pub(crate) struct Tilt {
    /// By bin: the part of the uses of a run before which it has been running for so long.
    fits: [f64; BINS],
    /// By bin: the weight of a time.
    weight: [f64; BINS],
    /// By bin: how likely two moments are so far apart, weighed; and the same of all bins from one on.
    apart: [f64; BINS],
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
    pub(crate) fn of(parts: &[(f64, &Distribution)], room: Room) -> Self {
        let (mut found, times) = Self::at(0.0, parts, room);
        // What bursts have seen was there.
        let decided: f64 = parts.iter().map(|(references, times)| references * decided(times)).sum();
        let most = (parts.iter().map(|part| part.0).sum::<f64>() * room.open).max(decided);
        let over = times / most;
        if over > ROUGH {
            let most = most * (ROUGH.powi(2) / over).max(1.0);
            let shortest = parts.iter().map(|(_, times)| times.undecided).min().unwrap_or(0).max(1);
            let [mut low, mut high] = [1.0 / lower_edge(BINS), MOST_FOLDS / lower_edge(shortest)];
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
    fn at(rate: f64, parts: &[(f64, &Distribution)], room: Room) -> (Self, f64) {
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

    fn new(rate: f64, room: Room) -> Self {
        let Room { run, gap, .. } = room;
        let fits_into = |run: f64, bin: usize| (1.0 - middle(bin) / run).max(0.0);
        let weight: [f64; BINS] = std::array::from_fn(|bin| (-rate * middle(bin)).exp());
        let stretch = if gap > 0.0 { run.min(GAPS * gap) } else { run };
        // Two moments at random: 2 (1 - time ÷ stretch) ÷ stretch.
        let apart: [f64; BINS] = std::array::from_fn(|bin| {
            let width = lower_edge(bin + 1).min(stretch) - lower_edge(bin);
            2.0 * fits_into(stretch, bin) * width.max(0.0) / stretch * weight[bin]
        });
        let (mut apart_from, mut sum) = ([Mass::default(); BINS], Mass::default());
        for bin in (0..BINS).rev() {
            sum.add(bin, apart[bin]);
            apart_from[bin] = sum;
        }
        Self { fits: std::array::from_fn(|bin| fits_into(run, bin)), weight, apart, apart_from, endless: 1.0 }
    }

    fn weighed(&self, times: &Distribution) -> Weighed {
        let from = times.undecided;
        let mut found = Weighed { decided: decided(times), endless: times.beyond, ..Weighed::default() };
        if from < BINS {
            (found.reach, found.apart) = (times.survival[from], self.apart_from[from]);
        }
        for bin in from..BINS {
            let fitting = times.in_bin[bin] * self.fits[bin];
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
        let mut in_bin = times.in_bin;
        for (bin, mass) in in_bin.iter_mut().enumerate().skip(times.undecided) {
            *mass = all * (*mass * self.fits[bin] * self.weight[bin] + ended * self.apart[bin]);
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

    fn tilted(times: &Distribution, room: Room) -> Distribution {
        Tilt::of(&[(1e9, times)], room).apply(times)
    }

    fn room(blocks: f64, run: f64) -> Room {
        Room { blocks, open: blocks, first: blocks, run, gap: 0.0 }
    }

    #[test]
    fn what_agrees_stays() {
        // A hundredth of the references goes round 20,000 blocks, and those are all.
        let found = times(0.01, &[(2_000_000, 0.01)]);
        let same = tilted(&found, room(21_000.0, 1e12));
        for bin in 0..BINS {
            assert!((found.in_bin[bin] - same.in_bin[bin]).abs() < 1e-6, "{bin}");
        }
        // A block's first use has no time: the run has a hundred rounds.
        let short = Tilt::of(&[(2e8, &found)], room(21_000.0, 2e8)).apply(&found);
        assert!((short.beyond / 0.01 - 0.01).abs() < 0.003, "{}", short.beyond);
    }

    #[test]
    fn times_are_no_longer_than_there_are_blocks_for() {
        // By a few finds, a tenth of the rest seems to come again after a hundred million references, for which there would have to be
        // 100,000 blocks.
        let found = times(0.01, &[(20_000, 0.009), (100_000_000, 0.001)]);
        let less = tilted(&found, room(5_000.0, 1e12));
        assert!((0.95..=1.01).contains(&(mean(&less) / 5_000.0)), "{}", mean(&less));
        let decided = bin(10_000);
        assert!(found.in_bin[..decided] == less.in_bin[..decided], "bursts have seen those");
        assert!(
            less.survival[decided] > 0.0099 && less.beyond < 1e-5,
            "it has gone elsewhere: {}",
            less.beyond
        );
        let parts = [1.1, 1.5, 3.0].map(|over| {
            let room = room(mean(&found) / over, 1e12);
            mean(&tilted(&found, room)) / room.blocks
        });
        assert!((1.09..1.11).contains(&parts[0]), "as good as agreed: {parts:?}");
        assert!((1.0..1.06).contains(&parts[1]) && (0.95..=1.01).contains(&parts[2]), "{parts:?}");
        // Half of the blocks come to be late.
        let half = Room { open: 2_500.0, ..room(5_000.0, 1e12) };
        assert!((0.95..=1.01).contains(&(mean(&tilted(&found, half)) / 2_500.0)));
    }

    #[test]
    fn no_more_references_are_first_than_there_are_blocks() {
        // None of what is new in its burst was found again.
        let found = times(0.01, &[]);
        let less = tilted(&found, room(50_000.0, 1e9));
        assert!((0.9..=1.0).contains(&(less.beyond * 1e9 / 50_000.0)), "{}", less.beyond);
        assert!(mean(&less) <= 50_500.0, "{}", mean(&less));
        // The others come again at random, after 5 million references on average: exponentially distributed, 0.43 after 4.2 million.
        let longer = less.survival[bin(1 << 22)] / 0.01;
        assert!((0.38..0.48).contains(&longer), "{longer}");
        // As many threads each use all blocks for the first time.
        let shared = tilted(&found, Room { first: 150_000.0, ..room(50_000.0, 1e9) });
        assert!((0.9..=1.0).contains(&(shared.beyond * 1e9 / 150_000.0)), "{}", shared.beyond);
    }

    #[test]
    fn what_there_is_no_room_for_at_all_does_not_become_a_miss() {
        // Bursts have seen more than the 100 blocks that it is said to have.
        let found = times(0.1, &[(30_000, 0.01), (100_000, 0.05)]);
        let less = tilted(&found, room(100.0, 1e9));
        assert!(less.beyond * 1e9 <= 101.0, "{}", less.beyond);
        assert!(
            less.survival[bin(10_000)] > 0.099 && less.survival[bin(200_000)] < 0.001,
            "{:?}",
            less.survival
        );
        // All of it found, and long ago.
        let long = times(0.1, &[(1 << 34, 0.1)]);
        assert!(tilted(&long, room(100.0, 1e12)).beyond < 1e-6);
    }

    #[test]
    fn a_longer_run_says_the_same() {
        // Half is found again, half is not.
        let found = times(0.01, &[(20_000, 0.005)]);
        let longer = [1e9, 1e11].map(|run| {
            let room = Room { gap: 1e7, ..room(10_000.0, run) };
            Tilt::of(&[(run, &found)], room).apply(&found).survival[bin(100_000)]
        });
        assert!((longer[0] / longer[1] - 1.0).abs() < 0.1, "{longer:?}");
    }

    #[test]
    fn instructions_share_the_room() {
        // One goes round 1,000 blocks for all that is known, of the other's nothing is found.
        let round = times(0.5, &[(20_000, 0.5)]);
        let lost = times(0.5, &[]);
        let tilt = Tilt::of(&[(5e7, &round), (5e7, &lost)], room(10_000.0, 1e8));
        let [round, lost] = [round, lost].map(|times| tilt.apply(&times));
        assert!((lost.beyond * 5e7 + round.beyond * 5e7) <= 10_100.0);
        assert!(round.in_bin[bin(20_000)] > 0.499, "it is not the one that is wrong");
        assert!((mean(&round) + mean(&lost)) / 2.0 <= 10_100.0);
    }
}

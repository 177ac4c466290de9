//! From reuse times to misses.

use crate::bins::BINS;
use crate::geometry::Geometry;
use crate::groups::Evenness;
use crate::held::Most;
use crate::reuse::{Distribution, Footprint, Reuse};
use crate::summary::Estimate;
use crate::tilt::Room;

/// What the program's reuse times say for one size of block.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) all: Distribution,
    footprint: Footprint,
    evenness: Evenness,
    bound: Option<Bound>,
}

/// What is known of a program that has so much data and no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// Its blocks: no window touches more.
    blocks: f64,
    /// Of uses of blocks that are not found again, those that may be the first of their block.
    first: f64,
}

impl Bound {
    /// So much room, and so many uses that bursts do not find again.
    pub(crate) fn new(Room { blocks, first, .. }: Room, not_found: f64) -> Self {
        Self { blocks, first: if not_found > first { first / not_found } else { 1.0 } }
    }

    /// Whether all of them are in a cache at once. They are whole stretches of address space: sets get as many each.
    fn fit(&self, geometry: &Geometry) -> bool {
        self.blocks <= geometry.blocks as f64
    }
}

/// What a reuse time says for one level.
#[derive(Clone, Debug)]
pub(crate) struct LevelModel {
    /// By bin: the probability that a reference with such a reuse time misses.
    pub(crate) miss: [f64; BINS],
    /// The same, at most, of one whose block is not found again.
    pub(crate) beyond_most: f64,
    /// By bin of the position in the burst: the probability that a reference misses whose block is new there.
    pub(crate) first: [f64; BINS],
}

/// What a reuse time says for one level of a scope, whose references are in several phases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Misses {
    /// As [`LevelModel::miss`].
    pub(crate) by_time: [f64; BINS],
    /// As [`LevelModel::beyond_most`].
    pub(crate) beyond_most: f64,
}

impl Model {
    /// `all`: of the references; `footprint`: of the windows that end with them; `evenness`: of the blocks in these.
    pub(crate) fn new(
        all: Distribution,
        footprint: Footprint,
        evenness: Evenness,
        bound: Option<Bound>,
    ) -> Self {
        Self { all, footprint, evenness, bound }
    }

    /// What a reuse time says for one level.
    pub(crate) fn level(&self, geometry: &Geometry) -> LevelModel {
        const PARTS: usize = 4;
        let crowding = self.evenness.among(geometry);
        let mut miss = [0.0; BINS];
        let fits = self.bound.is_some_and(|bound| bound.fit(geometry));
        // Trivial times count as hits: 15 other blocks at most.
        for (bin, miss) in miss.iter_mut().enumerate().skip(1).filter(|_| !fits) {
            let parts = (0..PARTS).map(|part| (part as f64 + 0.5) / PARTS as f64);
            // The window holds the block itself, too.
            let most = self.bound.map_or(f64::INFINITY, |bound| bound.blocks);
            let distances = parts.map(|part| self.footprint.within(bin, part).min(most) - 1.0);
            let misses = distances.map(|distance| crowding.miss_probability(geometry, distance));
            *miss = misses.sum::<f64>() / PARTS as f64;
        }
        // Of those that are not found again, few are the first of their blocks if these are few.
        let beyond_most = self.bound.map_or(1.0, |bound| {
            let again = if fits { 0.0 } else { crowding.miss_probability(geometry, bound.blocks - 1.0) };
            bound.first + (1.0 - bound.first) * again
        });
        let mut first = [beyond_most; BINS];
        let (mut misses, mut reach) = (self.all.beyond, self.all.beyond);
        for bin in (0..BINS).rev() {
            misses += self.all.in_bin[bin] * miss[bin];
            reach += self.all.in_bin[bin];
            if reach > 0.0 {
                first[bin] = misses / reach;
            }
        }
        LevelModel { miss, beyond_most, first }
    }
}

impl LevelModel {
    /// What a reuse time says of a scope that appears in several phases: `parts` are the scope's references in
    /// each, and what it says there.
    pub(crate) fn mixed<'a>(parts: impl IntoIterator<Item = (f64, &'a Self)>) -> Misses {
        let (mut by_time, mut beyond_most, mut all) = ([0.0; BINS], 0.0, 0.0);
        for (references, part) in parts {
            all += references;
            beyond_most += references * part.beyond_most;
            for (sum, share) in by_time.iter_mut().zip(&part.miss) {
                *sum += references * share;
            }
        }
        if all > 0.0 {
            let by_time = by_time.map(|sum| sum / all);
            Misses { by_time, beyond_most: beyond_most / all }
        } else {
            Misses { by_time, beyond_most: 1.0 }
        }
    }
}

/// The misses of a scope with these reuse times. `miss`: what a reuse time says, by bin; `references`: all of the
/// scope, weighted; `most`: what is known of uses that are the first of their block in a burst.
pub(crate) fn estimate(
    miss: &Misses,
    reuse: &Reuse,
    times: &Distribution,
    references: f64,
    most: Option<Most>,
) -> Estimate {
    let Misses { by_time: miss, beyond_most } = miss;
    let references = references.max(reuse.counted());
    let ratio = times.beyond + times.in_bin.iter().zip(miss).map(|(part, miss)| part * miss).sum::<f64>();
    let known: f64 = reuse.within.iter().zip(miss).map(|(weight, miss)| weight * miss).sum();
    let at_least: f64 = reuse.first.iter().zip(miss).map(|(weight, miss)| weight * miss).sum();
    let low = known + at_least;
    let uses: f64 = reuse.first.iter().sum();
    let most = most.map_or(f64::INFINITY, |most| known + most.of(uses));
    // Less than that by rounding, where all of them miss.
    let misses = (ratio * references).min(most).clamp(low, (known + uses).max(low));
    // What is the first use of its block need not be spread evenly over scopes.
    let high = (known + beyond_most * uses).max(misses);
    Estimate { misses, low, high, standard_error: 0.0, ratio_error: 0.0 }
}

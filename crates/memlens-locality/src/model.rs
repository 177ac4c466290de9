//! From reuse times to misses.

use crate::bins::BINS;
use crate::geometry::Geometry;
use crate::groups::Evenness;
use crate::reuse::{Distribution, Footprint, Reuse};
use crate::summary::Estimate;

/// What the program's reuse times say for one size of block.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) all: Distribution,
    footprint: Footprint,
    evenness: Evenness,
}

/// What a reuse time says for one level.
#[derive(Clone, Debug)]
pub(crate) struct LevelModel {
    /// By bin: the probability that a reference with such a reuse time misses.
    pub(crate) miss: [f64; BINS],
    /// By bin of the position in the burst: the probability that a reference misses whose block is new there.
    pub(crate) first: [f64; BINS],
}

impl Model {
    /// `all`: of the references; `footprint`: of the windows that end with them; `evenness`: of the blocks in these.
    pub(crate) fn new(all: Distribution, footprint: Footprint, evenness: Evenness) -> Self {
        Self { all, footprint, evenness }
    }

    /// What a reuse time says for one level.
    pub(crate) fn level(&self, geometry: &Geometry) -> LevelModel {
        const PARTS: usize = 4;
        let crowding = self.evenness.among(geometry);
        let mut miss = [0.0; BINS];
        // Trivial times count as hits: 15 other blocks at most.
        for (bin, miss) in miss.iter_mut().enumerate().skip(1) {
            let parts = (0..PARTS).map(|part| (part as f64 + 0.5) / PARTS as f64);
            // The window holds the block itself, too.
            let distances = parts.map(|part| self.footprint.within(bin, part) - 1.0);
            let misses = distances.map(|distance| crowding.miss_probability(geometry, distance));
            *miss = misses.sum::<f64>() / PARTS as f64;
        }
        let mut first = [1.0; BINS];
        let (mut misses, mut reach) = (self.all.beyond, self.all.beyond);
        for bin in (0..BINS).rev() {
            misses += self.all.in_bin[bin] * miss[bin];
            reach += self.all.in_bin[bin];
            if reach > 0.0 {
                first[bin] = misses / reach;
            }
        }
        LevelModel { miss, first }
    }
}

impl LevelModel {
    /// What a reuse time says of a scope that appears in several phases: `parts` are the scope's references in
    /// each, and what it says there.
    pub(crate) fn mixed<'a>(parts: impl IntoIterator<Item = (f64, &'a Self)>) -> [f64; BINS] {
        let (mut miss, mut all) = ([0.0; BINS], 0.0);
        for (references, part) in parts {
            all += references;
            for (sum, share) in miss.iter_mut().zip(&part.miss) {
                *sum += references * share;
            }
        }
        if all > 0.0 { miss.map(|sum| sum / all) } else { miss }
    }
}

/// The misses of a scope with these reuse times. `miss`: what a reuse time says, by bin; `references`: all of the
/// scope, weighted.
pub(crate) fn estimate(miss: &[f64; BINS], reuse: &Reuse, times: &Distribution, references: f64) -> Estimate {
    let references = references.max(reuse.counted());
    let ratio = times.beyond + times.in_bin.iter().zip(miss).map(|(part, miss)| part * miss).sum::<f64>();
    let known: f64 = reuse.within.iter().zip(miss).map(|(weight, miss)| weight * miss).sum();
    let at_least: f64 = reuse.first.iter().zip(miss).map(|(weight, miss)| weight * miss).sum();
    let low = known + at_least;
    // Less than that by rounding, where all of them miss.
    let high = (known + reuse.first.iter().sum::<f64>()).max(low);
    Estimate {
        misses: (ratio * references).clamp(low, high),
        low,
        high,
        standard_error: 0.0,
        ratio_error: 0.0,
    }
}

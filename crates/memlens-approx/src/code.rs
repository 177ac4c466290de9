//! A function as far as the approximation looks at it, and the published method.

use std::collections::BTreeMap;

use crate::{Assigned, Skid};

/// The published threshold of loop compensation: a variable that is read on half of a loop's lines
/// has this raw weight.
pub const THRESHOLD: f64 = 0.75;

/// Memory that a position reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Read {
    /// Which memory, as far as static analysis tells it apart; unique within a [`Code`].
    pub location: usize,
    /// The variable it belongs to; the caller numbers variables, across functions if it likes.
    pub variable: usize,
}

/// A line or an instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// What it reads. [`Code::new`] leaves one of several equal ones: only unique reads count.
    pub reads: Vec<Read>,
    /// The innermost loop that it is in, as an index of the loops given to [`Code::new`].
    pub innermost: Option<usize>,
}

/// The positions of a loop, those of loops inside it included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopLines {
    /// Ascending positions.
    pub positions: Vec<usize>,
}

/// Equations 1 to 5 for one location in one loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoopWeight {
    /// The location.
    pub read: Read,
    /// 1 − (positions that read it ÷ positions of the loop)².
    pub raw: f64,
    /// What it gets of what is taken away from all, 0 below the threshold.
    pub adjusted: f64,
}

impl LoopWeight {
    /// The weight that amounts are multiplied by.
    pub fn total(&self) -> f64 {
        self.raw + self.adjusted
    }
}

/// One function: its positions in order, and its loops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    pub(crate) positions: Vec<Position>,
    loops: Vec<LoopLines>,
}

impl Code {
    /// Takes positions and loops. Repeated reads of a position are dropped (section 3.3.1: "only
    /// unique reads are counted"), a loop that is not in the list counts as none.
    pub fn new(mut positions: Vec<Position>, loops: Vec<LoopLines>) -> Self {
        for position in &mut positions {
            position.reads.sort_unstable();
            position.reads.dedup();
            position.innermost = position.innermost.filter(|&at| at < loops.len());
        }
        Self { positions, loops }
    }

    /// How many positions there are.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The positions.
    pub fn positions(&self) -> &[Position] {
        &self.positions
    }

    /// Raw assignment (section 3.3.1): the samples of a position are divided equally among its
    /// unique reads. `samples` has one amount for each position; missing ones are 0. Linear.
    pub fn raw(&self, samples: &[f64]) -> Assigned<'_> {
        let mut lost = 0.0;
        let amounts = self.positions.iter().enumerate().map(|(at, position)| {
            let samples = samples.get(at).copied().unwrap_or(0.0);
            if position.reads.is_empty() {
                lost += samples;
            }
            vec![samples / position.reads.len() as f64; position.reads.len()]
        });
        let amounts = amounts.collect();
        Assigned { code: self, amounts, lost }
    }

    /// The weights of all locations read in a loop, by location (section 3.3.2, equations 1–5).
    /// Their sum is the number of these locations if any is above the threshold. Linear in the
    /// loop's reads.
    pub fn loop_weights(&self, innermost: usize, threshold: f64) -> Vec<LoopWeight> {
        let Some(lines) = self.loops.get(innermost) else { return Vec::new() };
        let mut counts: BTreeMap<Read, usize> = BTreeMap::new();
        for position in lines.positions.iter().filter_map(|&at| self.positions.get(at)) {
            for &read in &position.reads {
                *counts.entry(read).or_default() += 1;
            }
        }
        let all = lines.positions.len() as f64;
        let raw = |count: usize| 1.0 - (count as f64 / all).powi(2);
        let to_redistribute: f64 = counts.values().map(|&count| 1.0 - raw(count)).sum();
        let above = |raw: f64| raw >= threshold;
        let threshold_weights: f64 = counts.values().map(|&count| raw(count)).filter(|&raw| above(raw)).sum();
        let weights = counts.into_iter().map(|(read, count)| {
            let raw = raw(count);
            let gets = above(raw) && threshold_weights > 0.0;
            let adjusted = if gets { raw / threshold_weights * to_redistribute } else { 0.0 };
            LoopWeight { read, raw, adjusted }
        });
        weights.collect()
    }

    /// Loop compensation (section 3.3.2): every amount is multiplied by the weight of its location
    /// in the innermost loop of its position; outside of loops it stays. As published, a position's
    /// sum changes. Linear in the reads of the loops.
    pub fn compensate<'a>(&'a self, assigned: &Assigned<'a>, threshold: f64) -> Assigned<'a> {
        self.weighted(assigned, threshold, false)
    }

    /// As [`Self::compensate`], but each position keeps its sum: weights decide only how the reads
    /// of one position share it. Ours.
    pub fn compensate_within<'a>(&'a self, assigned: &Assigned<'a>, threshold: f64) -> Assigned<'a> {
        self.weighted(assigned, threshold, true)
    }

    fn weighted<'a>(&'a self, assigned: &Assigned<'a>, threshold: f64, keep: bool) -> Assigned<'a> {
        let mut known: Vec<Option<BTreeMap<usize, f64>>> = vec![None; self.loops.len()];
        let mut amounts = assigned.amounts.clone();
        for (position, amounts) in self.positions.iter().zip(&mut amounts) {
            let Some(innermost) = position.innermost else { continue };
            let weights = known[innermost].get_or_insert_with(|| {
                let weights = self.loop_weights(innermost, threshold);
                weights.iter().map(|weight| (weight.read.location, weight.total())).collect()
            });
            let weight = |read: &Read| weights.get(&read.location).copied().unwrap_or(1.0);
            let new: Vec<f64> = position
                .reads
                .iter()
                .zip(amounts.iter())
                .map(|(read, amount)| amount * weight(read))
                .collect();
            let (before, after) = (amounts.iter().sum::<f64>(), new.iter().sum::<f64>());
            if after > 0.0 {
                let scale = if keep { before / after } else { 1.0 };
                *amounts = new.into_iter().map(|amount| amount * scale).collect();
            }
        }
        Assigned { code: self, amounts, lost: assigned.lost }
    }

    /// Skid negation (section 3.3.3, equations 6–8): each read in reach of a sample gets the
    /// probability of its position, normalised over all reads in reach. It takes the place of
    /// [`Self::raw`]. Positions × width of the distribution × reads.
    pub fn negate_skid(&self, samples: &[f64], skid: &Skid) -> Assigned<'_> {
        let mut amounts: Vec<Vec<f64>> =
            self.positions.iter().map(|position| vec![0.0; position.reads.len()]).collect();
        let mut lost = 0.0;
        for (landed, &count) in samples.iter().enumerate().take(self.positions.len()) {
            if count == 0.0 {
                continue;
            }
            let reach: Vec<(usize, f64)> = skid
                .parts()
                .filter_map(|(displacement, probability)| {
                    let from = landed.checked_add_signed(displacement.checked_neg()?)?;
                    (from < self.positions.len()).then_some((from, probability))
                })
                .collect();
            let sum: f64 = reach.iter().map(|&(from, p)| p * self.positions[from].reads.len() as f64).sum();
            if sum <= 0.0 {
                lost += count;
                continue;
            }
            for (from, probability) in reach {
                amounts[from].iter_mut().for_each(|amount| *amount += count * probability / sum);
            }
        }
        Assigned { code: self, amounts, lost }
    }
}

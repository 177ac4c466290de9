//! Skid along control flow: which instructions samples came from.
//!
//! A sample that belongs to instruction *p* lands, with probability *s(k)*, on the instruction that
//! executes *k* instructions later. Where that is, the edges tell: through jumps, into calls, back
//! out of returns. So the expected samples at *q* are Σ K(q|p)·x(p), with
//!
//! ```text
//!  K(q|p) = Σ s(k) · (probability to be at q, k steps after p)
//!            k
//! ```
//!
//! and the amounts x ≥ 0 that make the seen samples likeliest are found by Richardson and Lucy's
//! iteration, which keeps amounts positive and their sum that of the samples.

use std::collections::BTreeMap;

use crate::Skid;

/// Where execution goes from each instruction, with probabilities.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flow {
    successors: Vec<Vec<(usize, f64)>>,
}

/// Paths less likely than this are not followed further.
const LEAST: f64 = 1e-4;

impl Flow {
    /// From the successors of each position and how often each position is believed to execute, in
    /// any unit. An edge's probability is the evidence of its target among those of all targets,
    /// after `doubt` was added to each: with `doubt` large against the evidence all edges are alike.
    pub fn new(successors: &[Vec<usize>], evidence: &[f64], doubt: f64) -> Self {
        let weight = |to: usize| evidence.get(to).copied().unwrap_or(0.0).max(0.0) + doubt;
        let successors = successors
            .iter()
            .map(|targets| {
                let sum: f64 = targets.iter().map(|&to| weight(to)).sum();
                let even = 1.0 / targets.len() as f64;
                let share = |to| if sum > 0.0 { weight(to) / sum } else { even };
                targets.iter().map(|&to| (to, share(to))).collect()
            })
            .collect();
        Self { successors }
    }

    /// Where samples that belong to `from` land. Negative displacements are left out: nothing
    /// executes before itself. What runs off the end of the known code lands nowhere.
    pub fn landing(&self, from: usize, skid: &Skid) -> Vec<(usize, f64)> {
        let mut landed: BTreeMap<usize, f64> = BTreeMap::new();
        let mut here: BTreeMap<usize, f64> = BTreeMap::from([(from, 1.0)]);
        let mut step = 0;
        for (displacement, probability) in skid.parts().filter(|part| part.0 >= 0) {
            while step < displacement && !here.is_empty() {
                let mut next: BTreeMap<usize, f64> = BTreeMap::new();
                for (&at, &mass) in here.iter().filter(|(_, mass)| **mass >= LEAST) {
                    for &(to, share) in self.successors.get(at).into_iter().flatten() {
                        *next.entry(to).or_default() += mass * share;
                    }
                }
                here = next;
                step += 1;
            }
            for (&at, &mass) in &here {
                *landed.entry(at).or_default() += mass * probability;
            }
        }
        landed.into_iter().collect()
    }

    /// The amount that belongs to each position, from the samples that landed at each.
    ///
    /// Only positions with a positive `prior` can have any: it says how much is expected at each,
    /// in any unit, and decides where the samples cannot. Samples that no such position reaches are
    /// the second result. Cost: `iterations` × the samples' positions × positions in reach.
    pub fn unskid(&self, samples: &[f64], prior: &[f64], skid: &Skid, iterations: usize) -> (Vec<f64>, f64) {
        let mut from = Vec::new();
        let mut kernels: Vec<Vec<(usize, f64)>> = Vec::new();
        for at in (0..prior.len()).filter(|&at| prior[at] > 0.0) {
            let mut landing = self.landing(at, skid);
            landing.retain(|&(to, _)| to < samples.len());
            // What lands on no sample at all has none; the first iteration would say so.
            if landing.iter().any(|&(to, _)| samples[to] > 0.0) {
                from.push(at);
                kernels.push(landing);
            }
        }
        // What can be seen of each source at all.
        let seen: Vec<f64> = kernels.iter().map(|kernel| kernel.iter().map(|part| part.1).sum()).collect();
        let mut expected = vec![0.0; samples.len()];
        for kernel in &kernels {
            kernel.iter().for_each(|&(to, p)| expected[to] += p);
        }
        let reachable: f64 =
            samples.iter().zip(&expected).filter(|(_, p)| **p > 0.0).map(|(count, _)| count).sum();
        let lost = samples.iter().sum::<f64>() - reachable;
        let whole: f64 = from.iter().map(|&at| prior[at]).sum();
        let mut amounts: Vec<f64> = from.iter().map(|&at| prior[at] / whole * reachable).collect();
        for _ in 0..iterations.max(1) {
            expected.fill(0.0);
            for (kernel, amount) in kernels.iter().zip(&amounts) {
                kernel.iter().for_each(|&(to, p)| expected[to] += p * amount);
            }
            for ((kernel, amount), seen) in kernels.iter().zip(&mut amounts).zip(&seen) {
                if *seen > 0.0 {
                    let ratio: f64 = kernel
                        .iter()
                        .filter(|&&(to, _)| expected[to] > 0.0)
                        .map(|&(to, p)| p * samples[to] / expected[to])
                        .sum();
                    *amount *= ratio / seen;
                } else {
                    *amount = 0.0;
                }
            }
        }
        // Sources near the end of the known code show only a part of what is theirs.
        let sum: f64 = amounts.iter().sum();
        let scale = if sum > 0.0 { reachable / sum } else { 0.0 };
        let mut all = vec![0.0; prior.len()];
        from.into_iter().zip(amounts).for_each(|(at, amount)| all[at] = amount * scale);
        (all, lost)
    }
}

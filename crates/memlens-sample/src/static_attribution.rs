//! Attribution of samples of which only the instruction is used: no register, no address, no stack.
//!
//! What a sample belongs to is worked out by `memlens-static` at the end, file by file, over the functions
//! that have samples: skid undone along control flow, then the objects that each operand may touch, in
//! equal parts (N. Rutar, J. K. Hollingsworth, Software Analysis Techniques to Approximate Data Centric
//! Direct Measurements, at instructions instead of lines).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use memlens_approx::Skid;
use memlens_code::SampleSkid;
use memlens_static::{Part, StaticModule, Waited, attribute_parts};
use memlens_types::Sampled;
use rustc_hash::FxHashMap;

use crate::modules::Files;

/// Samples by file and instruction, and by file and thread.
#[derive(Debug, Default)]
pub struct CodeSamples {
    by_code: BTreeMap<u32, FxHashMap<u64, Sampled>>,
    by_thread: BTreeMap<u32, BTreeMap<u32, u64>>,
}

impl CodeSamples {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_code.is_empty()
    }

    /// Takes samples of one thread at one instruction.
    pub fn add(&mut self, file: u32, svma: u64, thread: u32, sampled: Sampled) {
        *self.by_code.entry(file).or_default().entry(svma).or_default() += &sampled;
        *self.by_thread.entry(file).or_default().entry(thread).or_default() += sampled.cost;
    }

    /// Divides them, and hands on each part of each thread: the threads of a file share its parts by their
    /// cost in it. Sums stay what they were.
    pub fn attribute(&self, files: &Files, skid: SampleSkid, mut each: impl FnMut(u32, &Part, u32, Sampled)) {
        let skid = Skid::from_histogram(&[(skid.loads as isize, 1.0)]).unwrap_or_else(|_| Skid::none());
        for (&file, samples) in &self.by_code {
            let amounts: HashMap<u64, f64> =
                samples.iter().map(|(&svma, sampled)| (svma, sampled.cost as f64)).collect();
            let parts = match files.get(file).and_then(|mapped| mapped.symbols()) {
                Some(symbols) => {
                    let addresses: BTreeSet<u64> = amounts.keys().copied().collect();
                    attribute_parts(&StaticModule::analyse_around(symbols, &addresses), &amounts, &skid)
                }
                None => amounts
                    .iter()
                    .map(|(&pc, &amount)| Part::without_access(pc, Waited::Unknown, amount))
                    .collect(),
            };
            let mut whole = Sampled::default();
            samples.values().for_each(|sampled| whole += sampled);
            let threads = &self.by_thread[&file];
            let sum: f64 = parts.iter().map(|part| part.amount).sum();
            let mut shares = Shares { whole, given: Sampled::default(), share: 0.0 };
            for part in &parts {
                for (&thread, &cost) in threads {
                    let share = part.amount / sum * (cost as f64 / whole.cost.max(1) as f64);
                    each(file, part, thread, shares.next(share, part.identity.is_some()));
                }
            }
        }
    }
}

/// Whole samples by fractions: each gets what brings the sum nearest to what it should be.
struct Shares {
    whole: Sampled,
    given: Sampled,
    share: f64,
}

impl Shares {
    fn next(&mut self, share: f64, is_found: bool) -> Sampled {
        self.share = (self.share + share).min(1.0);
        let until = |whole: u64| (whole as f64 * self.share).round() as u64;
        let (samples, cost) = (until(self.whole.samples), until(self.whole.cost));
        let mut part = Sampled {
            samples: samples.saturating_sub(self.given.samples),
            cost: cost.saturating_sub(self.given.cost),
            ..Sampled::default()
        };
        self.given += &part;
        if is_found {
            part.by_code = part.samples;
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_whole() {
        let whole = Sampled { samples: 10, cost: 1000, ..Sampled::default() };
        let mut shares = Shares { whole, given: Sampled::default(), share: 0.0 };
        let parts: Vec<Sampled> = (0..3).map(|at| shares.next(1.0 / 3.0, at == 0)).collect();
        // 3.33, 6.67 and 10 rounded: 3, 7, 10.
        assert_eq!(parts.iter().map(|part| part.samples).collect::<Vec<_>>(), [3, 4, 3]);
        assert_eq!(parts.iter().map(|part| part.cost).sum::<u64>(), 1000);
        assert_eq!((parts[0].by_code, parts[1].by_code), (3, 0));
    }
}

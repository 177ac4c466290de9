//! Samples of heap blocks that were not watched, and what they say of allocation sites.
//!
//! # The estimator
//!
//! Every sample on the heap has a *pointer*: the variable, or else the function, through which the block was reached
//! (`heap through x`). A sample whose block was watched also has a *site*. For one pointer, let
//!
//! - T be the cost of the samples whose address lies in no watched block,
//! - L the cost of those whose address is lost,
//! - c_s the cost of the samples on watched blocks of site s, and
//! - u_s the sum of their costs times (1 / p - 1), where p is the probability that the block was watched.
//!
//! u_s is the Horvitz-Thompson estimate of what T has of site s, and c_s + u_s of all that site s has. Site s gets
//!
//! ```text
//!   c_s  +  T u_s / Σu  +  L (c_s + u_s) / Σ(c + u)
//! ```
//!
//! An operand of an instruction mostly reaches one site's blocks where the pointer, a structure with several containers say, reaches
//! many. So the operand is a pointer by itself if the blocks drawn among its own samples can explain T; else all operands of the
//! pointer count.
//!
//! So the sum over the sites is what was sampled, whatever was drawn: a ratio estimator, each pointer a stratum whose
//! total is known (W. G. Cochran, Sampling Techniques, 3rd edition, 1977, section 6.2). Unlike the plain
//! Horvitz-Thompson estimate it needs no scaling of the whole profile, and a single drawn block of a pointer that
//! reaches one site's blocks, the usual case, gives the exact answer. Its bias is of the order of 1 / n in the
//! samples n on watched blocks of the pointer; none for a pointer with one site.
//!
//! What lies in the break and what lies in mappings are told apart, T and u of each by themselves: an interpreter's own
//! allocator takes its memory from mappings, and a block of a few bytes that was drawn from the break, which stands for
//! thousands of its kind, says nothing of that.
//!
//! T stays with the pointer where the drawn blocks cannot explain it: Σu below a quarter of T, as when all watched
//! blocks are large and the rest is memory that no allocation function handed out. A pointer without any sample on a
//! watched block keeps its name, `heap through x`.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::distinct_pages::DistinctPages;
use crate::heap_blocks::BlockArea;

/// Part of T that the drawn blocks must explain.
const EXPLAINED: f64 = 0.25;

/// What is known of one pointer. Sites and pointers are numbers of objects.
#[derive(Clone, Debug, Default)]
struct Stratum {
    /// Site → c and u, by [`BlockArea`].
    sites: BTreeMap<u32, [(f64, f64); 2]>,
    /// T, by [`BlockArea`].
    unwatched: [f64; 2],
    /// Where these were.
    pages: [DistinctPages; 2],
}

/// All pointers.
#[derive(Clone, Debug, Default)]
pub struct Unseen {
    strata: FxHashMap<u32, Stratum>,
    /// By pointer and row of code.
    of_operands: FxHashMap<(u32, u32), Stratum>,
}

/// Why a sample has a pointer but no site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Missing {
    /// It has one, or is not of the heap.
    Nothing,
    /// Its address lies in no watched block.
    Watch(BlockArea),
    /// Its address is lost.
    Address,
}

impl Unseen {
    /// A sample of an operand on a watched block of `site`, reached through `pointer`.
    pub fn watched(
        &mut self,
        (pointer, code): (u32, u32),
        area: BlockArea,
        site: u32,
        cost: f64,
        unseen: f64,
    ) {
        for stratum in self.both(pointer, code) {
            let (c, u) = &mut stratum.sites.entry(site).or_default()[area as usize];
            *c += cost;
            *u += unseen;
        }
    }

    /// Samples or recorded accesses of an operand through `pointer` on these pages of memory that was not watched.
    pub fn unwatched(
        &mut self,
        (pointer, code): (u32, u32),
        area: BlockArea,
        cost: f64,
        pages: &DistinctPages,
    ) {
        for stratum in self.both(pointer, code) {
            stratum.unwatched[area as usize] += cost;
        }
        self.strata.entry(pointer).or_default().pages[area as usize] |= pages;
    }

    fn both(&mut self, pointer: u32, code: u32) -> [&mut Stratum; 2] {
        [self.strata.entry(pointer).or_default(), self.of_operands.entry((pointer, code)).or_default()]
    }

    /// On how many pages memory that was not watched was accessed through `pointer`.
    pub fn pages(&self, pointer: u32, area: BlockArea) -> f64 {
        self.strata.get(&pointer).map_or(0.0, |stratum| stratum.pages[area as usize].count())
    }

    /// To which sites the samples of a pointer go, as parts of 1. Nothing: they stay with the pointer.
    pub fn sites(&self, pointer: u32, missing: Missing) -> Vec<(u32, f64)> {
        self.strata.get(&pointer).map(|stratum| stratum.parts(missing)).unwrap_or_default()
    }

    /// The same of the samples of an operand. Nothing: its own say nothing.
    pub fn sites_of_operand(&self, pointer: u32, code: u32, missing: Missing) -> Vec<(u32, f64)> {
        self.of_operands.get(&(pointer, code)).map(|stratum| stratum.parts(missing)).unwrap_or_default()
    }
}

impl Stratum {
    fn parts(&self, missing: Missing) -> Vec<(u32, f64)> {
        let weight = |known: &[(f64, f64); 2]| match missing {
            Missing::Nothing => 0.0,
            Missing::Watch(area) => known[area as usize].1,
            Missing::Address => known.iter().map(|(c, u)| c + u).sum(),
        };
        let sum: f64 = self.sites.values().map(weight).sum();
        let least = match missing {
            Missing::Watch(area) => EXPLAINED * self.unwatched[area as usize],
            Missing::Nothing | Missing::Address => 0.0,
        };
        if sum <= 0.0 || sum < least {
            return Vec::new();
        }
        let parts = self.sites.iter().map(|(&site, known)| (site, weight(known) / sum));
        parts.filter(|&(_, part)| part > 0.0).collect()
    }
}

/// The pieces that parts of 1 make, from where to where: nothing is lost or gained by rounding. See
/// [`memlens_types::Counts::piece`].
pub fn pieces(parts: &[(u32, f64)]) -> impl Iterator<Item = (u32, f64, f64)> {
    let mut from = 0.0;
    parts.iter().enumerate().map(move |(index, &(site, part))| {
        let until = if index + 1 == parts.len() { 1.0 } else { f64::min(from + part, 1.0) };
        let piece = (site, from, until);
        from = until;
        piece
    })
}

#[cfg(test)]
mod tests {
    use super::BlockArea::{Break, Mapping};
    use super::*;
    use memlens_types::{Counts, Sampled};

    #[test]
    fn a_pointer_with_one_site_is_that_site() {
        let mut unseen = Unseen::default();
        unseen.watched((1, 5), Break, 7, 10.0, 990.0);
        unseen.unwatched((1, 5), Break, 1234.0, &DistinctPages::default());
        assert_eq!(unseen.sites(1, Missing::Watch(Break)), [(7, 1.0)]);
        assert_eq!(unseen.sites(1, Missing::Address), [(7, 1.0)]);
        assert_eq!(unseen.sites(2, Missing::Watch(Break)), []);
    }

    #[test]
    fn an_operand_with_drawn_blocks_of_its_own_goes_by_them() {
        let mut unseen = Unseen::default();
        unseen.watched((1, 5), Break, 7, 10.0, 990.0);
        unseen.watched((1, 6), Break, 8, 10.0, 990.0);
        for code in [5, 6, 9] {
            unseen.unwatched((1, code), Break, 900.0, &DistinctPages::default());
        }
        let of_operand = |code| unseen.sites_of_operand(1, code, Missing::Watch(Break));
        assert_eq!((of_operand(5), of_operand(6), of_operand(9)), (vec![(7, 1.0)], vec![(8, 1.0)], vec![]));
        assert_eq!(unseen.sites(1, Missing::Watch(Break)), [(7, 0.5), (8, 0.5)]);
    }

    #[test]
    fn what_drawn_blocks_cannot_explain_stays_with_the_pointer() {
        let mut unseen = Unseen::default();
        // A large block: watched for certain.
        unseen.watched((1, 5), Break, 7, 500.0, 0.0);
        unseen.unwatched((1, 5), Break, 300.0, &DistinctPages::default());
        assert_eq!(unseen.sites(1, Missing::Watch(Break)), []);
        // But an address that is lost may well be in it.
        assert_eq!(unseen.sites(1, Missing::Address), [(7, 1.0)]);
    }

    #[test]
    fn a_block_of_the_break_says_nothing_of_mappings() {
        let mut unseen = Unseen::default();
        unseen.watched((1, 5), Break, 7, 1.0, 10_000.0);
        unseen.watched((1, 5), Mapping, 8, 300.0, 100.0);
        unseen.unwatched((1, 5), Mapping, 5_000.0, &DistinctPages::default());
        unseen.unwatched((1, 5), Break, 50.0, &DistinctPages::default());
        assert_eq!(unseen.sites(1, Missing::Watch(Mapping)), []);
        assert_eq!(unseen.sites(1, Missing::Watch(Break)), [(7, 1.0)]);
        let lost = unseen.sites(1, Missing::Address);
        assert!(lost[0].1 > 0.9 && lost[1].1 > 0.0, "{lost:?}");
    }

    #[test]
    fn shares_of_two_sites_are_unbiased_over_many_draws() {
        // Through one pointer: site 1 has 400 blocks of 1 KiB that cost 3 each, site 2 has 100 of 8 KiB that cost
        // 2 each: true parts 1200 and 200. Mean gap 4 KiB.
        let sites = [(1u32, 400, 1024.0, 3.0), (2, 100, 8192.0, 2.0)];
        let (truth, draws) = ([1200.0, 200.0], 500);
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let (mut sums, mut squares) = ([0.0f64; 2], [0.0f64; 2]);
        for _ in 0..draws {
            let mut unseen = Unseen::default();
            let (mut certain, mut unwatched) = ([0.0; 2], 0.0);
            for (at, (site, blocks, size, cost)) in sites.into_iter().enumerate() {
                let p = 1.0 - f64::exp(-size / 4096.0);
                for _ in 0..blocks {
                    if uniform() < p {
                        unseen.watched((9, 5), Break, site, cost, cost * (1.0 / p - 1.0));
                        certain[at] += cost;
                    } else {
                        unseen.unwatched((9, 5), Break, cost, &DistinctPages::default());
                        unwatched += cost;
                    }
                }
            }
            let parts = unseen.sites(9, Missing::Watch(Break));
            for (at, (_, part)) in parts.into_iter().enumerate() {
                let estimate = certain[at] + unwatched * part;
                sums[at] += estimate;
                squares[at] += estimate * estimate;
            }
        }
        for at in 0..2 {
            let mean = sums[at] / f64::from(draws);
            let error = (squares[at] / f64::from(draws) - mean * mean).sqrt() / f64::from(draws).sqrt();
            // Four standard errors, and 0.2 % for the ratio's bias.
            assert!(
                (mean - truth[at]).abs() < 4.0 * error + 0.002 * truth[at],
                "{mean} ± {error}: {}",
                truth[at]
            );
        }
    }

    #[test]
    fn dividing_keeps_every_sample() {
        let sampled = Sampled { samples: 10, cost: 1001, by_registers: 10, ..Sampled::default() };
        let counts = Counts { sampled, loads: 100, ..Counts::default() };
        let mut sum = Counts::default();
        for (_, from, until) in pieces(&[(1, 0.333), (2, 0.333), (3, 0.334)]) {
            let part = counts.piece(from, until);
            assert_eq!(part.sampled.by_registers, part.sampled.samples);
            assert!(part.sampled.samples >= 3 && part.loads >= 33);
            sum += &part;
        }
        assert_eq!(sum, counts);
    }
}

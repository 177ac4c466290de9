//! Replacement policies, one set at a time.
//!
//! A policy keeps its state in two places: a word a way (`ranks`) and a word a set (`tree`, the
//! hand of the clock). Empty
//! ways are filled first, lowest first, so `victim` is asked only about full sets.

use crate::machine::Policy;

/// Intervals of the RRIP policies with two bits: 0 = re-referenced soon … 3 = in the distant future.
const RRIP_LONG: u64 = 2;
const RRIP_DISTANT: u64 = 3;
/// BRRIP predicts a long instead of a distant interval for one fill in this many.
const BRRIP_PERIOD: u64 = 32;

/// A policy and its state that is shared by all sets of a cache.
#[derive(Clone, Debug)]
pub(super) struct Replacement {
    policy: Policy,
    /// LRU: the time. BRRIP: fills so far. Random: the generator's state.
    counter: u64,
}

impl Replacement {
    pub(super) fn new(policy: Policy) -> Self {
        // Any odd constant seeds the generator; a fixed one makes runs repeatable.
        let counter = if policy == Policy::Random { 0x9e37_79b9_7f4a_7c15 } else { 0 };
        Self { policy, counter }
    }

    /// A resident line was used.
    pub(super) fn hit(&mut self, ranks: &mut [u64], tree: &mut u64, way: usize) {
        match self.policy {
            Policy::Lru => self.stamp(ranks, way),
            Policy::TreePlru => point_away(tree, ranks.len(), way),
            Policy::Srrip | Policy::Brrip => ranks[way] = 0,
            Policy::Random => {}
            Policy::Clock => ranks[way] = 1,
        }
    }

    /// A line was put into this way.
    pub(super) fn filled(&mut self, ranks: &mut [u64], tree: &mut u64, way: usize) {
        match self.policy {
            Policy::Lru => self.stamp(ranks, way),
            Policy::TreePlru => point_away(tree, ranks.len(), way),
            Policy::Srrip => ranks[way] = RRIP_LONG,
            Policy::Brrip => {
                self.counter += 1;
                let rare = self.counter.is_multiple_of(BRRIP_PERIOD);
                ranks[way] = if rare { RRIP_LONG } else { RRIP_DISTANT };
            }
            Policy::Random => {}
            Policy::Clock => ranks[way] = 1,
        }
    }

    /// Which line of a full set goes.
    pub(super) fn victim(&mut self, ranks: &mut [u64], tree: &mut u64) -> usize {
        match self.policy {
            Policy::Lru => position_of_smallest(ranks),
            Policy::TreePlru => follow(*tree, ranks.len()),
            Policy::Srrip | Policy::Brrip => loop {
                if let Some(way) = ranks.iter().position(|&rank| rank == RRIP_DISTANT) {
                    return way;
                }
                ranks.iter_mut().for_each(|rank| *rank += 1);
            },
            Policy::Random => {
                // xorshift64 (Marsaglia: Xorshift RNGs, Journal of Statistical Software 8, 2003).
                self.counter ^= self.counter << 13;
                self.counter ^= self.counter >> 7;
                self.counter ^= self.counter << 17;
                (self.counter % ranks.len() as u64) as usize
            }
            Policy::Clock => loop {
                let way = *tree as usize;
                *tree = (*tree + 1) % ranks.len() as u64;
                if core::mem::take(&mut ranks[way]) == 0 {
                    return way;
                }
            },
        }
    }

    fn stamp(&mut self, ranks: &mut [u64], way: usize) {
        self.counter += 1;
        ranks[way] = self.counter;
    }
}

fn position_of_smallest(ranks: &[u64]) -> usize {
    ranks.iter().enumerate().min_by_key(|&(_, rank)| rank).map_or(0, |(way, _)| way)
}

/// Nodes are numbered as in a heap: the root is 1, the children of n are 2n and 2n + 1. Bit n of
/// `tree` says which child the next victim is looked for in. Sets of a number of ways that is no
/// power of two use the tree of the next one, whose missing leaves are never pointed to. More than
/// 64 ways share the bits of the lowest nodes' numbers modulo 64.
fn point_away(tree: &mut u64, ways: usize, way: usize) {
    let leaves = ways.next_power_of_two();
    let mut node = leaves + way;
    while node > 1 {
        let was_right = node & 1 == 1;
        node >>= 1;
        let bit = 1u64 << (node & 63);
        // Away from the used half: right (1) if the left one was used.
        *tree = if was_right { *tree & !bit } else { *tree | bit };
    }
}

fn follow(tree: u64, ways: usize) -> usize {
    let leaves = ways.next_power_of_two();
    let (mut node, mut span, mut first) = (1usize, leaves, 0usize);
    while span > 1 {
        span /= 2;
        let right = tree >> (node & 63) & 1 == 1 && first + span < ways;
        node = 2 * node + usize::from(right);
        first += if right { span } else { 0 };
    }
    first
}

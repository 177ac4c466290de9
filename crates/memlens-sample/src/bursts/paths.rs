//! Through which calls bursts' accesses came: of some of them, by chance, the callers are looked at (`calls.rs`).
//!
//! The first access of a cell in a burst is always one of them, so that rare ones have callers, too; it stands for itself, the others for as many
//! as are passed over. How much a burst stands for is known later: until then what was seen waits with it.
//!
//! An access to a line, or page, that bursts did not use lately is taken for one that misses ([`memlens_locality::StandIns`]).

use std::ops::Mul;

use memlens_profile::{LevelMisses, PathAmount, PathAmounts, PathId};

/// One access in 2 to this is looked at.
const SELDOM_BITS: u32 = 5;
/// Pairs of a cell and a path at most, 80 bytes each.
const MOST_PAIRS: usize = 1 << 18;

/// Accesses of a cell that came through some calls, in a burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The number of the cell.
    cell: u32,
    /// The callers; None: they are not known.
    path: Option<PathId>,
    /// For how much it stands in its burst.
    amount: PathAmount,
}

impl Seen {
    /// So many accesses, of which so many seem to miss in each level.
    pub fn new(cell: u32, path: Option<PathId>, accesses: f64, misses: LevelMisses) -> Self {
        Self { cell, path, amount: PathAmount { accesses, misses } }
    }
}

impl Mul<f64> for Seen {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        Self { amount: self.amount * factor, ..self }
    }
}

/// All that was seen.
#[derive(Debug)]
pub struct Paths {
    pairs: PathAmounts<(u32, Option<PathId>)>,
    random: u64,
}

impl Default for Paths {
    fn default() -> Self {
        Self { pairs: PathAmounts::with_room(MOST_PAIRS), random: 0 }
    }
}

impl Paths {
    /// For how many accesses the next one stands, if it is looked at. `is_first`: its cell has none in the burst before it.
    #[inline]
    pub fn looks_at(&mut self, is_first: bool) -> Option<f64> {
        if is_first {
            return Some(1.0);
        }
        // The high bits of a linear congruential generator (Knuth's MMIX).
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> (u64::BITS - SELDOM_BITS) == 0).then_some(f64::from(1_u32 << SELDOM_BITS))
    }

    /// A burst's, of whose accesses each stands for so many.
    pub fn add(&mut self, seen: &[Seen], an_access: f64) {
        for &Seen { cell, path, amount } in seen {
            self.pairs.add((cell, path), amount * an_access);
        }
    }

    /// What was cut, in a sentence; None: nothing.
    pub fn note(&self) -> Option<String> {
        self.pairs.note()
    }

    /// Each cell's number with a path and what it stands for.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Option<PathId>, PathAmount)> {
        self.pairs.iter().map(|((cell, path), amount)| (cell, path, amount))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_at_stands_for_all() {
        let mut paths = Paths::default();
        let mut seen = Vec::new();
        const ACCESSES: u32 = 100_000;
        for at in 0..ACCESSES {
            if let Some(accesses) = paths.looks_at(at == 0) {
                seen.push(Seen::new(4, Some(PathId::ROOT), 1.0, [0.0; 5]) * accesses);
            }
        }
        assert!(seen.len() < 5000, "{}", seen.len());
        // Each access of the burst stands for ten; then one that is rarer, and misses.
        paths.add(&seen, 10.0);
        paths.add(&[Seen::new(4, None, 1.0, [1.0; 5])], 1000.0);
        let mut found: Vec<_> = paths.iter().collect();
        found.sort_by_key(|&(cell, path, _)| (cell, path));
        let [(4, None, rare), (4, Some(PathId::ROOT), often)] = found[..] else { panic!("{found:?}") };
        assert_eq!(rare, PathAmount { accesses: 1000.0, misses: [1000.0; 5] });
        let all = f64::from(10 * ACCESSES);
        assert!((often.accesses / all - 1.0).abs() < 0.1, "{often:?}");
        assert_eq!(often.misses, [0.0; 5]);
        assert_eq!(paths.note(), None);
    }
}

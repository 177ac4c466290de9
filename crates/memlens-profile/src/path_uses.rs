//! A profile's counts by call path, from what was seen of who called.
//!
//! Not every access's callers are looked at. Those that are say in which proportions an operand's accesses of an object came through which
//! calls, and in which proportions those did that seemed to miss. The first divides how many accesses there are, the second what they cost: an
//! operand may hit for one caller, and miss for another.

use std::collections::{BTreeMap, HashMap};

use memlens_types::Counts;

use crate::{Cell, CodeIx, ObjectIx, PackedCounts, PathCell, PathIx, Profile};

/// What was seen of one call path: amounts that are compared with those of the other paths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathUse {
    /// The path; `None`: it is not known.
    pub path: Option<PathIx>,
    /// For how many accesses it stands.
    pub accesses: f64,
    /// For how many misses.
    pub misses: f64,
}

impl PathUse {
    /// At most so many, those that stand for most first; what the others stand for has no path: an interpreter's functions are reached in thousands
    /// of ways, and each of its objects would have a row for each.
    pub fn heaviest(mut uses: Vec<Self>, most: usize) -> Vec<Self> {
        let sum = |of: fn(&Self) -> f64| uses.iter().map(of).sum::<f64>().max(f64::MIN_POSITIVE);
        let (accesses, misses) = (sum(|path| path.accesses), sum(|path| path.misses));
        let weight = |path: &Self| path.accesses / accesses + path.misses / misses;
        uses.sort_by(|one, other| weight(other).total_cmp(&weight(one)));
        if uses.len() <= most {
            return uses;
        }
        let mut rest = Self { path: None, accesses: 0.0, misses: 0.0 };
        for path in uses.drain(most..) {
            rest.accesses += path.accesses;
            rest.misses += path.misses;
        }
        uses.push(rest);
        uses
    }
}

/// What was seen of the paths to each object, by operand.
pub type PathUses = HashMap<(CodeIx, ObjectIx), Vec<PathUse>>;

/// Of what has all accesses, or misses, there are so many paths at most: less has fewer, and a trifle the one that stands for most.
const PATHS_OF_ALL: f64 = 30_000.0;

impl Profile {
    /// Divides the cells among call paths, by what was seen of each, the heaviest first; of those without there is no path. Linear in cells and uses. To be called when
    /// all counts are there.
    pub fn divide_among_paths<'a>(&mut self, uses_of: impl Fn(&Cell) -> Option<&'a Vec<PathUse>>) {
        let mut sums: BTreeMap<(Option<PathIx>, ObjectIx), PackedCounts> = BTreeMap::new();
        let all = self.cells.iter().fold((1, 1), |(accesses, misses), cell| {
            let counts = cell.counts.get();
            (accesses + counts.accesses(), misses + counts.l1_misses())
        });
        for cell in &self.cells {
            let counts = cell.counts.get();
            let part = counts.accesses() as f64 / all.0 as f64;
            let part = part.max(counts.l1_misses() as f64 / all.1 as f64);
            let most = 1 + (part * PATHS_OF_ALL) as usize;
            let unknown = [PathUse { path: None, accesses: 1.0, misses: 1.0 }];
            let uses = uses_of(cell).filter(|uses| has_any(uses));
            let uses = uses.map_or(&unknown[..], |uses| &uses[..uses.len().min(most)]);
            for (path, piece) in divided(&counts, uses) {
                *sums.entry((path, cell.object)).or_default() += &piece;
            }
        }
        let none = PackedCounts::default();
        self.path_cells = sums
            .into_iter()
            .filter(|(_, counts)| *counts != none)
            .map(|((path, object), counts)| PathCell { path, object, counts })
            .collect();
    }
}

fn has_any(uses: &[PathUse]) -> bool {
    uses.iter().any(|path| path.accesses > 0.0) && uses.iter().any(|path| path.misses > 0.0)
}

/// The pieces of some counts: together all of them.
fn divided<'a>(counts: &Counts, uses: &'a [PathUse]) -> impl Iterator<Item = (Option<PathIx>, Counts)> + 'a {
    let (accesses, costs) = shares(counts, uses);
    let counts = *counts;
    let (mut accesses_from, mut costs_from) = (0.0, 0.0);
    uses.iter().enumerate().map(move |(at, path)| {
        let end =
            |from: f64, share: f64| if at + 1 == uses.len() { 1.0 } else { f64::min(from + share, 1.0) };
        let (accesses_until, costs_until) = (end(accesses_from, accesses[at]), end(costs_from, costs[at]));
        let piece = counts.piece(accesses_from, accesses_until);
        let piece = piece.with_costs_of(&counts.piece(costs_from, costs_until));
        (accesses_from, costs_from) = (accesses_until, costs_until);
        (path.path, piece)
    })
}

/// The parts of the accesses and of what they cost that each path has. Where more accesses miss than seemed to, those seen are too few of the ones
/// that do: the misses are divided by what seemed to miss, and the rest by the rest, so that no path misses more often than it accesses.
fn shares(counts: &Counts, uses: &[PathUse]) -> (Vec<f64>, Vec<f64>) {
    let sum = |of: fn(&PathUse) -> f64| uses.iter().map(of).sum::<f64>();
    let (accesses, misses) = (sum(|path| path.accesses), sum(|path| path.misses));
    let missing = counts.l1_misses().max(counts.l2_misses()).max(counts.llc_misses());
    let missing = (missing as f64 / counts.accesses().max(1) as f64).min(1.0);
    // Of those that seemed to miss so many are thought to.
    let part = (missing * accesses / misses).min(1.0);
    let hits = accesses - part * misses;
    let share = |path: &PathUse| {
        let of_hits = if hits > 0.0 { (path.accesses - part * path.misses) / hits } else { 0.0 };
        let of_misses = if hits > 0.0 { missing } else { 1.0 };
        of_misses * path.misses / misses + (1.0 - of_misses) * of_hits
    };
    (uses.iter().map(share).collect(), uses.iter().map(|path| path.misses / misses).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: CodeIx = CodeIx(0);

    fn seen(path: u32, accesses: f64, misses: f64) -> PathUse {
        PathUse { path: Some(PathIx(path)), accesses, misses }
    }

    fn divided_profile(counts: Counts, uses: Vec<PathUse>) -> Vec<(Option<u32>, Counts)> {
        let cell =
            |object| Cell { code: CODE, object: ObjectIx(object), counts: counts.into(), ..Cell::default() };
        let mut profile = Profile { cells: vec![cell(0), cell(1)], ..Profile::default() };
        profile.divide_among_paths(|cell| (cell.object == ObjectIx(0)).then_some(&uses));
        let of_first = profile.path_cells.iter().filter(|cell| cell.object == ObjectIx(0));
        let found = of_first.map(|cell| (cell.path.map(|path| path.0), cell.counts.get())).collect();
        // Of the other object nothing was seen.
        let others: Vec<_> = profile.path_cells.iter().filter(|cell| cell.object == ObjectIx(1)).collect();
        assert_eq!(others, [&PathCell { path: None, object: ObjectIx(1), counts: counts.into() }]);
        found
    }

    #[test]
    fn accesses_go_by_accesses_and_costs_by_misses() {
        let counts = Counts {
            loads: 1000,
            load_bytes: 8000,
            l1_load_misses: 100,
            stall_cycles: 50,
            ..Counts::default()
        };
        let found = divided_profile(counts, vec![seen(3, 900.0, 20.0), seen(5, 100.0, 80.0)]);
        let piece = |loads, l1_load_misses, stall_cycles| Counts {
            loads,
            load_bytes: 8 * loads,
            l1_load_misses,
            stall_cycles,
            ..Counts::default()
        };
        assert_eq!(found, [(Some(3), piece(900, 20, 10)), (Some(5), piece(100, 80, 40))]);
    }

    #[test]
    fn nobody_misses_more_often_than_he_accesses() {
        let counts = Counts { loads: 1000, l1_load_misses: 60, ..Counts::default() };
        // A path that always misses was seen twenty times in a thousand: it has sixty, and the others what is left.
        let found =
            divided_profile(counts, vec![seen(0, 590.0, 0.0), seen(1, 20.0, 20.0), seen(2, 390.0, 0.0)]);
        let misses: Vec<_> = found.iter().map(|(_, counts)| (counts.loads, counts.l1_load_misses)).collect();
        assert_eq!(misses, [(566, 0), (60, 60), (374, 0)]);
        // All that was seen missed.
        let found = divided_profile(counts, vec![seen(0, 30.0, 30.0), seen(1, 10.0, 10.0)]);
        let misses: Vec<_> = found.iter().map(|(_, counts)| (counts.loads, counts.l1_load_misses)).collect();
        assert_eq!(misses, [(750, 45), (250, 15)]);
    }

    #[test]
    fn of_very_many_paths_the_heaviest_stay() {
        let uses: Vec<PathUse> = (0..100).rev().map(|path| seen(path, f64::from(path), 1.0)).collect();
        let kept = PathUse::heaviest(uses.clone(), 3);
        assert_eq!(kept[..3], [seen(99, 99.0, 1.0), seen(98, 98.0, 1.0), seen(97, 97.0, 1.0)]);
        let rest: f64 = (0..97).map(f64::from).sum();
        assert_eq!(kept[3..], [PathUse { path: None, accesses: rest, misses: 97.0 }]);
        assert_eq!(PathUse::heaviest(uses.clone(), 100), uses);
    }

    #[test]
    fn nothing_is_lost_in_rounding() {
        let counts = Counts { loads: 7, stores: 5, l1_load_misses: 3, dtlb_misses: 1, ..Counts::default() };
        let uses = (0..9).map(|path| seen(path, 1.0, 1.0 + f64::from(path))).collect();
        let sum = divided_profile(counts, uses).iter().fold(Counts::default(), |mut sum, (_, piece)| {
            sum += piece;
            sum
        });
        assert_eq!(sum, counts);
        // Amounts that say nothing.
        let found = divided_profile(counts, vec![seen(0, 0.0, 0.0)]);
        assert_eq!(found, [(None, counts)]);
    }
}

//! A profile's counts by call path, from what was seen of who called.
//!
//! Not every access's callers are looked at. Those that are say in which proportions an operand's accesses of an object came through which calls, and in
//! which proportions those did that seemed to miss in each level. The first divides how many accesses there are, the others what they cost: an operand may
//! hit for one caller, and miss for another. Stalls are divided as what is waited for beyond the second level is: what that serves other work mostly hides.

use std::collections::{BTreeMap, HashMap};

use memlens_types::Counts;

use crate::{Cell, CodeIx, LevelMisses, MachineInfo, ObjectIx, PathCell, PathIx, Profile, beside};

/// What was seen of one call path: amounts that are compared with those of the other paths. There are hundreds of thousands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathUse {
    /// The path; `None`: it is not known.
    pub path: Option<PathIx>,
    accesses: f32,
    misses: [f32; 5],
}

impl PathUse {
    /// It stands for so many accesses, and so many misses of each level.
    pub fn new(path: Option<PathIx>, accesses: f64, misses: LevelMisses) -> Self {
        Self { path, accesses: accesses as f32, misses: misses.map(|misses| misses as f32) }
    }

    fn accesses(&self) -> f64 {
        self.accesses.into()
    }

    fn misses(&self, level: usize) -> f64 {
        self.misses[level].into()
    }

    /// At most so many, those that stand for most first; what the others stand for has no path: an interpreter's functions are reached in thousands
    /// of ways, and each of its objects would have a row for each.
    pub fn heaviest(mut uses: Vec<Self>, most: usize) -> Vec<Self> {
        let sum = |of: fn(&Self) -> f64| uses.iter().map(of).sum::<f64>().max(f64::MIN_POSITIVE);
        let (accesses, misses) = (sum(Self::accesses), sum(|path| path.misses(0)));
        let (far, walks) = (sum(|path| path.misses(2)), sum(|path| path.misses(4)));
        let weight = |path: &Self| {
            path.accesses() / accesses
                + path.misses(0) / misses
                + path.misses(2) / far
                + path.misses(4) / walks
        };
        uses.sort_by(|one, other| weight(other).total_cmp(&weight(one)));
        if uses.len() <= most {
            return uses;
        }
        let mut rest = Self { path: None, accesses: 0.0, misses: [0.0; 5] };
        for path in uses.drain(most..) {
            rest.accesses += path.accesses;
            rest.misses.iter_mut().zip(path.misses).for_each(|(rest, misses)| *rest += misses);
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
    /// Divides the cells among call paths, by what was seen of each, the heaviest first; of those without there is no path. To be called when all
    /// counts are there. Linear in cells and uses, but for sorting.
    pub fn divide_among_paths<'a>(&mut self, uses_of: impl Fn(&Cell) -> Option<&'a Vec<PathUse>> + Sync) {
        let all = self.cells.iter().fold((1, 1), |(accesses, misses), cell| {
            let counts = cell.counts.get();
            (accesses + counts.accesses(), misses + counts.l1_misses())
        });
        // Object by object: sums by path of all of them would take more room than the rows that are made.
        let mut by_object: Vec<u32> = (0..self.cells.len()).map(|cell| cell as u32).collect();
        let object_of = |number: u32| self.cells[number as usize].object;
        by_object.sort_unstable_by_key(|&number| object_of(number));
        // Those of about half of the cells beside the others.
        let middle = by_object.get(by_object.len() / 2).map(|&number| object_of(number));
        let half = by_object.partition_point(|&number| Some(object_of(number)) < middle);
        let (first, second) = by_object.split_at(half);
        let rows_of = |cells| self.path_rows(cells, all, &uses_of);
        let (mut rows, others) = beside(|| rows_of(first), || rows_of(second));
        rows.extend(others);
        rows.sort_unstable_by_key(|row| (row.path, row.object));
        rows.shrink_to_fit();
        self.path_cells = rows;
    }

    /// The rows of the objects of these cells, which are in the order of objects. `all`: one more than all accesses, and misses.
    fn path_rows<'a>(
        &self,
        cells: &[u32],
        all: (u64, u64),
        uses_of: &impl Fn(&Cell) -> Option<&'a Vec<PathUse>>,
    ) -> Vec<PathCell> {
        let cell = |number: u32| &self.cells[number as usize];
        let mut rows = Vec::new();
        for of_object in cells.chunk_by(|&one, &other| cell(one).object == cell(other).object) {
            let mut sums: BTreeMap<Option<PathIx>, Counts> = BTreeMap::new();
            for cell in of_object.iter().map(|&number| cell(number)) {
                let counts = cell.counts.get();
                let part = counts.accesses() as f64 / all.0 as f64;
                let part = part.max(counts.l1_misses() as f64 / all.1 as f64);
                let most = 1 + (part * PATHS_OF_ALL) as usize;
                let unknown = [PathUse::new(None, 1.0, [1.0; 5])];
                let uses = uses_of(cell).filter(|uses| has_any(uses));
                let uses = uses.map_or(&unknown[..], |uses| &uses[..uses.len().min(most)]);
                for (path, piece) in divided(&self.machine, &counts, uses) {
                    *sums.entry(path).or_default() += &piece;
                }
            }
            let object = cell(of_object[0]).object;
            let sums = sums.into_iter().filter(|(_, counts)| *counts != Counts::default());
            rows.extend(sums.map(|(path, counts)| PathCell { path, object, counts: counts.into() }));
        }
        rows
    }
}

fn has_any(uses: &[PathUse]) -> bool {
    let has = |of: &dyn Fn(&PathUse) -> f64| uses.iter().any(|path| of(path) > 0.0);
    has(&PathUse::accesses) && (0..5).all(|level| has(&|path| path.misses(level)))
}

/// The pieces of some counts: together all of them.
fn divided(machine: &MachineInfo, counts: &Counts, uses: &[PathUse]) -> Vec<(Option<PathIx>, Counts)> {
    // Most cells have one path, or nothing that the paths could differ by.
    if let [only] = uses {
        return vec![(only.path, *counts)];
    }
    let by_accesses = pieces(counts, shares_of_accesses(counts, uses));
    if costs_nothing(counts) {
        return uses.iter().map(|path| path.path).zip(by_accesses).collect();
    }
    let by_level = [0, 1, 2, 3, 4].map(|level| {
        let sum: f64 = uses.iter().map(|path| path.misses(level)).sum();
        pieces(counts, uses.iter().map(|path| path.misses(level) / sum).collect())
    });
    let mut all: Vec<Counts> = by_accesses;
    for (at, piece) in all.iter_mut().enumerate() {
        let [l1, l2, llc, dtlb, stlb] = [0, 1, 2, 3, 4].map(|level| &by_level[level][at]);
        *piece = Counts {
            l1_load_misses: l1.l1_load_misses,
            l1_store_misses: l1.l1_store_misses,
            l2_load_misses: l2.l2_load_misses,
            l2_store_misses: l2.l2_store_misses,
            l2_prefetched: l2.l2_prefetched,
            llc_load_misses: llc.llc_load_misses,
            llc_store_misses: llc.llc_store_misses,
            llc_prefetched: llc.llc_prefetched,
            dram_reads: llc.dram_reads,
            dtlb_misses: dtlb.dtlb_misses,
            stlb_misses: stlb.stlb_misses,
            page_walk_accesses: stlb.page_walk_accesses,
            walk_cycles: stlb.walk_cycles,
            invalidations: l1.invalidations,
            shared: l1.shared,
            ..*piece
        };
    }
    // What is waited for says where stalls are; where nothing is, they are where the misses of the first level are.
    let parts = |of: &dyn Fn(&Counts) -> u64| -> Vec<Counts> {
        let waits: Vec<f64> = all.iter().map(|piece| of(piece) as f64).collect();
        let sum: f64 = waits.iter().sum();
        if sum > 0.0 {
            pieces(counts, waits.iter().map(|wait| wait / sum).collect())
        } else {
            by_level[0].clone()
        }
    };
    let has_far = all.iter().any(|piece| beyond_second_level(machine, piece) > 0);
    let stalls = match has_far {
        true => parts(&|piece| beyond_second_level(machine, piece)),
        false => parts(&|piece| machine.wait_beyond_first_level(piece)),
    };
    let translations = parts(&|piece| machine.translation_cycles(piece));
    for (at, piece) in all.iter_mut().enumerate() {
        piece.stall_cycles = stalls[at].stall_cycles;
        // No more than the stalls, of which they are a part.
        piece.translation_stall_cycles = translations[at].translation_stall_cycles;
    }
    uses.iter().map(|path| path.path).zip(all).collect()
}

/// Whether accesses never missed, and nothing waited for them.
fn costs_nothing(counts: &Counts) -> bool {
    let Counts { loads, stores, modifies, followers, load_bytes, store_bytes, .. } = *counts;
    let Counts { dram_writes, fetched, sampled, .. } = *counts;
    let no_costs =
        Counts { loads, stores, modifies, followers, load_bytes, store_bytes, ..Counts::default() };
    *counts == Counts { dram_writes, fetched, sampled, ..no_costs }
}

/// What is waited for beyond the second level, in cycles.
fn beyond_second_level(machine: &MachineInfo, counts: &Counts) -> u64 {
    let latencies = &machine.latencies;
    let second = match (&machine.l1d, &machine.l2) {
        (Some(_), Some(_)) => latencies.l2_cycles.saturating_sub(latencies.l1_cycles),
        _ => 0,
    };
    let served = counts.l1_misses().saturating_mul(second.into());
    machine.wait_beyond_first_level(counts).saturating_sub(served)
}

/// Some counts in pieces of these shares, which add up to 1: together all of them.
fn pieces(counts: &Counts, shares: Vec<f64>) -> Vec<Counts> {
    let last = shares.len().saturating_sub(1);
    let mut from = 0.0;
    let piece = |(at, share): (usize, f64)| {
        let until = if at == last { 1.0 } else { f64::min(from + share, 1.0) };
        let piece = counts.piece(from, until);
        from = until;
        piece
    };
    shares.into_iter().enumerate().map(piece).collect()
}

/// The part of the accesses that each path has. Where more accesses miss than seemed to, those seen are too few of the ones that do: misses are divided by
/// what seemed to miss, and the rest by the rest, so that no path misses more often than it accesses.
fn shares_of_accesses(counts: &Counts, uses: &[PathUse]) -> Vec<f64> {
    let accesses: f64 = uses.iter().map(PathUse::accesses).sum();
    let misses: f64 = uses.iter().map(|path| path.misses(0)).sum();
    let missing = (counts.l1_misses() as f64 / counts.accesses().max(1) as f64).min(1.0);
    // Of those that seemed to miss so many are thought to.
    let part = (missing * accesses / misses).min(1.0);
    let hits = accesses - part * misses;
    let share = |path: &PathUse| {
        let l1 = path.misses(0);
        let of_hits = if hits > 0.0 { (path.accesses() - part * l1) / hits } else { 0.0 };
        let of_misses = if hits > 0.0 { missing } else { 1.0 };
        of_misses * l1 / misses + (1.0 - of_misses) * of_hits
    };
    uses.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CacheInfo;

    const CODE: CodeIx = CodeIx(0);

    fn seen(path: u32, accesses: f64, misses: f64) -> PathUse {
        PathUse::new(Some(PathIx(path)), accesses, [misses; 5])
    }

    fn divided_profile(counts: Counts, uses: Vec<PathUse>) -> Vec<(Option<u32>, Counts)> {
        let cell =
            |object| Cell { code: CODE, object: ObjectIx(object), counts: counts.into(), ..Cell::default() };
        let mut profile = Profile { cells: vec![cell(0), cell(1)], ..Profile::default() };
        profile.machine.l1d = Some(CacheInfo::default());
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
    fn each_level_has_its_own_misses() {
        // Both miss in the first level; what one uses the second level holds.
        let near = PathUse::new(Some(PathIx(0)), 100.0, [100.0, 1.0, 0.1, 100.0, 0.1]);
        let far = PathUse::new(Some(PathIx(1)), 100.0, [100.0, 99.0, 99.9, 100.0, 99.9]);
        let counts = Counts {
            loads: 1000,
            l1_load_misses: 1000,
            l2_load_misses: 500,
            llc_load_misses: 400,
            dram_reads: 400,
            stlb_misses: 300,
            page_walk_accesses: 600,
            stall_cycles: 10_000,
            ..Counts::default()
        };
        let found = divided_profile(counts, vec![near, far]);
        let of = |at: usize| {
            let counts = &found[at].1;
            (
                counts.loads,
                counts.l1_load_misses,
                counts.l2_load_misses,
                counts.llc_load_misses,
                counts.stlb_misses,
            )
        };
        assert_eq!([of(0), of(1)], [(500, 500, 5, 0, 0), (500, 500, 495, 400, 300)]);
    }

    #[test]
    fn of_very_many_paths_the_heaviest_stay() {
        let uses: Vec<PathUse> = (0..100).rev().map(|path| seen(path, f64::from(path), 1.0)).collect();
        let kept = PathUse::heaviest(uses.clone(), 3);
        assert_eq!(kept[..3], [seen(99, 99.0, 1.0), seen(98, 98.0, 1.0), seen(97, 97.0, 1.0)]);
        let rest: f64 = (0..97).map(f64::from).sum();
        assert_eq!(kept[3..], [PathUse::new(None, rest, [97.0; 5])]);
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

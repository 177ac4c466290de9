//! Another order of what leads to data: `A[B[i]]`, where `B` leads here and there.
//!
//! ```text
//!  for each i of many     A[B[i]] += …      B sorted, or A numbered anew: A goes by in order, too
//! ```
//!
//! Particles in cells, edges of a mesh, entries of a matrix by coordinates: one long loop goes through `B`, and again and again. Where the
//! loop is short, as over the entries of a matrix's row, its order is not free; where `B` is gone through once, or has other contents each
//! time, sorting it costs as much.

use std::collections::BTreeMap;

use memlens_profile::{Cell, CodeIx, ObjectIx};
use memlens_types::{Counts, PatternKind};

use crate::{About, Finding, MOST_USED, Member, Remedy, bytes_at_a_time};

/// Iterations of a loop, on average, over items whose order may be free.
const LONG: u64 = 256;
/// Times that the indices have to be gone through.
const OFTEN: f64 = 2.0;

impl About<'_> {
    /// One finding for each object that the indices are loaded from.
    pub(crate) fn sort(&self) -> Vec<Finding> {
        let mut by_index: BTreeMap<ObjectIx, (f64, Vec<&Cell>)> = BTreeMap::new();
        for cell in self.own() {
            if let Some((index, walks)) = self.index_in_order(cell) {
                let (most, cells) = by_index.entry(index).or_default();
                *most = walks.max(*most);
                cells.push(cell);
            }
        }
        let finding = |(index, (walks, cells)): (ObjectIx, (f64, Vec<&Cell>))| {
            if walks < OFTEN * self.times_filled(index).max(1.0) {
                return None;
            }
            let counts = crate::sum_alone(&cells);
            let is_meant = |member: &&Member<'_>| cells.iter().any(|cell| cell.object == member.at);
            let bytes = self.members.iter().filter(is_meant).filter_map(Member::bytes).sum::<u64>();
            let then = self.once_a_walk(&counts, bytes, walks)?;
            let remedy = Remedy::Sort { index, walks, beside: Vec::new() };
            Some(self.finding(remedy, self.saved(&counts, &then), &cells))
        };
        by_index.into_iter().filter_map(finding).collect()
    }

    /// What a cell's addresses are loaded from in a long loop that goes through it in order, and how often that is gone through.
    fn index_in_order(&self, cell: &Cell) -> Option<(ObjectIx, f64)> {
        let patterns = &self.known.patterns;
        let pattern =
            patterns.of(cell.code, cell.object).filter(|pattern| pattern.kind == PatternKind::Indirect)?;
        let is_long = pattern.trips_permille.is_some_and(|trips| trips >= 1000 * LONG);
        let loader = pattern.loaded_by.filter(|_| is_long)?;
        let index = *self.known.loaded_from.get(&loader).filter(|&&index| index != cell.object)?;
        let walks = self.times_gone_through(loader, index)?;
        (walks >= OFTEN).then_some((index, walks))
    }

    /// How often a load goes through an object from end to end; None: it does not go in order, or nobody knows.
    fn times_gone_through(&self, loader: CodeIx, index: ObjectIx) -> Option<f64> {
        let pattern = self.known.patterns.of(loader, index)?;
        let step = pattern
            .stride_bytes
            .filter(|_| matches!(pattern.kind, PatternKind::Stream | PatternKind::Stride))?;
        let profile = self.known.profile;
        let object = profile.objects.get(index.index())?;
        let bytes = bytes_at_a_time(object).filter(|&bytes| bytes > 0)?;
        let accesses = profile.code.get(loader.index())?.counts.get().accesses();
        Some(accesses as f64 * step.unsigned_abs() as f64 / bytes as f64)
    }

    /// How often all of an object is written by functions that read nothing of it: each time it then has other contents.
    fn times_filled(&self, index: ObjectIx) -> f64 {
        let profile = self.known.profile;
        let bytes = profile.objects.get(index.index()).and_then(bytes_at_a_time);
        let mut by_function: BTreeMap<_, (u64, u64)> = BTreeMap::new();
        for cell in profile.cells.iter().filter(|cell| cell.object == index) {
            let counts = cell.counts.get();
            let (loads, stored) = by_function.entry(self.function(cell)).or_default();
            *loads += counts.loads;
            *stored += counts.store_bytes;
        }
        let filled = by_function.into_values().filter(|&(loads, _)| loads == 0).map(|(_, stored)| stored);
        filled.sum::<u64>() as f64 / bytes.unwrap_or(0).max(1) as f64
    }

    /// If each line, and page, of `bytes` were come to once a walk, in order. None: they are come to about as seldom now.
    fn once_a_walk(&self, counts: &Counts, bytes: u64, walks: f64) -> Option<Counts> {
        let machine = &self.known.profile.machine;
        let part =
            |unit: u32, misses: u64| bytes as f64 * walks / f64::from(unit.max(1)) / misses.max(1) as f64;
        let lines = part(machine.line_bytes, counts.l1_misses());
        if lines > MOST_USED || bytes == 0 {
            return None;
        }
        let of = |kept: f64| move |count: u64| (count as f64 * kept.min(1.0)) as u64;
        // One line behind the other is what a prefetcher asks for in time.
        let behind = if machine.prefetcher_streams > 0 { 0.0 } else { lines };
        let pages = of(part(machine.page_bytes, counts.dtlb_misses));
        Some(counts.with_misses(of(lines), of(behind), of(behind)).with_tlb_misses(pages, pages))
    }
}

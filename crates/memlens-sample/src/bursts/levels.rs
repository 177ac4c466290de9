//! The estimator's levels: which caches and TLBs of a machine they are, what their misses cost, and what they count in a profile.

use memlens_locality::{Cost, Geometry, Row, Shared as OfOthers};
use memlens_profile::{CacheInfo, MachineInfo, TlbInfo};
use memlens_types::{AccessKind, Counts, Numa, Shared};

use super::cells::Cell;
use super::nodes::RemoteParts;

/// The estimator's level of each count.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    l1: Option<usize>,
    l2: Option<usize>,
    /// The last level's.
    pub llc: Option<usize>,
    dtlb: Option<usize>,
    stlb: Option<usize>,
    /// TLBs as large as the machine's tiers of walks, and what a walk takes that would miss there, beyond what it takes nearer.
    far_walks: Vec<(usize, u64)>,
    /// What a walk takes at least, in cycles; 0: the machine has no tiers.
    near_walk: u64,
}

impl Levels {
    /// Those of a machine, and what is estimated for each.
    pub fn of(machine: &MachineInfo) -> (Self, Vec<Geometry>) {
        let mut geometries = Vec::new();
        let mut add = |geometry: Option<Geometry>| {
            geometries.push(geometry?);
            Some(geometries.len() - 1)
        };
        let cache = |info: &CacheInfo| Geometry::cache(info.bytes, info.ways, machine.line_bytes);
        let tlb = |info: TlbInfo| Geometry::tlb(info.entries, info.ways, machine.page_bytes);
        let mut levels = Self {
            l1: add(machine.l1d.as_ref().map(cache)),
            l2: add(machine.l2.as_ref().map(cache)),
            llc: add(machine.llc.as_ref().map(cache)),
            dtlb: add(machine.dtlb.map(tlb)),
            stlb: add(machine.stlb.map(tlb)),
            ..Self::default()
        };
        if let (Some(_), [nearest, ..]) = (levels.stlb, &machine.walk_tiers[..]) {
            levels.near_walk = nearest.cycles.into();
            for pair in machine.walk_tiers.windows(2) {
                let entries = pair[1].from_walks;
                let level = add(Some(Geometry::tlb(entries, entries, machine.page_bytes)));
                let more = pair[1].cycles.saturating_sub(pair[0].cycles);
                levels.far_walks.extend(level.map(|level| (level, more.into())));
            }
        }
        (levels, geometries)
    }

    fn count(&self) -> usize {
        [self.l1, self.l2, self.llc, self.dtlb, self.stlb].into_iter().flatten().count()
            + self.far_walks.len()
    }

    /// What references and misses wait, in cycles.
    pub fn cost(&self, machine: &MachineInfo) -> Cost {
        /// Accesses that costs are taken of: the wait is whole cycles.
        const MANY: u64 = 1000;
        let wait = |counts: Counts| machine.wait_cycles(&counts) as f64 / MANY as f64;
        let mut counts = Counts { loads: MANY, ..Counts::default() };
        let a_reference = wait(counts);
        let mut a_miss = vec![0.0; self.count()];
        let mut before = a_reference;
        let mut add = |level: Option<usize>, counts: Counts| {
            let Some(level) = level else { return };
            let whole = wait(counts);
            a_miss[level] = whole - std::mem::replace(&mut before, whole);
        };
        // Each level misses all that the one before missed.
        counts.l1_load_misses = MANY;
        add(self.l1, counts);
        counts.l2_load_misses = MANY;
        add(self.l2, counts);
        counts.llc_load_misses = MANY;
        add(self.llc, counts);
        counts.dtlb_misses = MANY;
        add(self.dtlb, counts);
        (counts.stlb_misses, counts.page_walk_accesses) = (MANY, MANY);
        counts.walk_cycles = MANY * self.near_walk;
        add(self.stlb, counts);
        for &(level, more) in &self.far_walks {
            counts.walk_cycles += MANY * more;
            add(Some(level), counts);
        }
        Cost { a_reference, a_miss }
    }

    /// What a cell counts in the whole run. `shared`: of its lines that other threads take; `remote`: of its last-level misses.
    pub fn counts(&self, cell: &Cell, row: &Row, shared: &OfOthers, remote: &RemoteParts) -> Counts {
        let whole = |value: f64| value.round() as u64;
        // Of repeated instructions a part tells of all.
        let of_told = cell.tally.elements as f64 / cell.tally.told_elements.max(1.0);
        let misses = |level: Option<usize>| level.map_or(0.0, |level| of_told * row.levels[level].misses);
        let accesses = whole(row.references * (cell.tally.elements as f64 / cell.tally.steps.max(1) as f64));
        let walks = misses(self.stlb).min(misses(self.dtlb));
        // Where lines come in order, so do the entries: eight of a line, and the next line is asked for.
        let anywhere = 1.0 - cell.tally.lines.covered_part();
        let of_far_walk =
            |&(level, more): &(usize, u64)| misses(Some(level)).min(walks) * anywhere * more as f64;
        let far_cycles: f64 = self.far_walks.iter().map(of_far_walk).sum();
        let mut counts = Counts {
            dtlb_misses: whole(misses(self.dtlb)),
            stlb_misses: whole(walks),
            page_walk_accesses: whole(walks),
            walk_cycles: whole(walks * self.near_walk as f64 + far_cycles),
            dram_reads: whole(misses(self.llc)),
            ..Counts::default()
        };
        // A lower level sees what the upper one misses; and what another core has is in none of ours.
        let mut most = f64::INFINITY;
        let mut of_level = |level: Option<usize>, of_others: f64| {
            let Some(level) = level else { return 0 };
            most = most.min(of_told * row.levels[level].misses);
            whole(most + of_others).min(accesses)
        };
        let misses = [
            of_level(self.l1, shared.coherence_misses),
            of_level(self.l2, shared.coherence_misses),
            of_level(self.llc, 0.0),
        ];
        let bytes = accesses * u64::from(cell.size_bytes);
        if cell.kind == AccessKind::Prefetch {
            // No access: what it reads from memory counts, and its page walks.
            return counts;
        }
        let coherence_misses = whole(shared.coherence_misses).min(misses[0]);
        counts.shared =
            Shared { coherence_misses, false_sharing: whole(shared.false_sharing).min(coherence_misses) };
        counts.invalidations = whole(shared.invalidations).min(accesses);
        let covered = |misses: u64| whole(misses as f64 * cell.tally.lines.covered_part());
        let of_ours = misses[1].saturating_sub(coherence_misses);
        (counts.l2_prefetched, counts.llc_prefetched) = (covered(of_ours), covered(misses[2]));
        counts.numa = numa(misses[2], counts.llc_prefetched, remote);
        counts.followers = accesses.saturating_sub(whole(of_told * row.references));
        if cell.kind.writes() {
            counts.stores = accesses;
            counts.store_bytes = bytes;
            [counts.l1_store_misses, counts.l2_store_misses, counts.llc_store_misses] = misses;
        } else {
            [counts.l1_load_misses, counts.l2_load_misses, counts.llc_load_misses] = misses;
        }
        if cell.kind.reads() {
            counts.loads = accesses;
            counts.load_bytes = bytes;
        }
        if cell.kind == AccessKind::Modify {
            counts.modifies = accesses;
        }
        counts
    }
}

/// What another node's memory has to do with last-level misses, of which so many are covered by a prefetcher. Who touches pages first
/// bursts do not tell: they meet few when they are new.
fn numa(misses: u64, covered: u64, parts: &RemoteParts) -> Numa {
    let part = |part: f64| (misses as f64 * part).round() as u64;
    let remote_misses = part(parts.remote);
    Numa {
        remote_misses,
        remote_prefetched: part(parts.prefetched).min(remote_misses).min(covered),
        misplaced: part(parts.misplaced).min(remote_misses),
        first_touches: 0,
    }
}

#[cfg(test)]
mod tests {
    use memlens_profile::{Latencies, WalkTier};

    use super::*;

    #[test]
    fn far_walks_are_misses_of_larger_tlbs() {
        let tier = |from_walks, cycles| WalkTier { from_walks, cycles };
        let tlb = |entries| Some(TlbInfo { entries, ways: 4 });
        let latencies = Latencies { walk_access_cycles: 9, ..Latencies::default() };
        let small = MachineInfo {
            page_bytes: 4096,
            dtlb: tlb(64),
            stlb: tlb(1024),
            latencies,
            ..MachineInfo::default()
        };
        let with = MachineInfo {
            walk_tiers: vec![tier(0, 60), tier(9_000, 200), tier(70_000, 300)],
            ..small.clone()
        };
        let (levels, geometries) = Levels::of(&with);
        assert_eq!(geometries[2..], [9_000, 70_000].map(|entries| Geometry::tlb(entries, entries, 4096)));
        let stlb_cycles = f64::from(latencies.stlb_cycles);
        assert_eq!(levels.cost(&with).a_miss, [stlb_cycles, 60.0 - stlb_cycles, 140.0, 100.0]);
        let (levels, geometries) = Levels::of(&small);
        assert_eq!(geometries.len(), 2);
        assert_eq!(levels.cost(&small).a_miss, [stlb_cycles, 9.0 - stlb_cycles]);
    }

    #[test]
    fn misses_are_remote_as_uses_of_lines_were() {
        let parts = RemoteParts { remote: 0.5, prefetched: 0.25, misplaced: 0.125 };
        let of = |misses, covered| numa(misses, covered, &parts);
        let expected = Numa { remote_misses: 50, remote_prefetched: 25, misplaced: 13, first_touches: 0 };
        assert_eq!(of(100, 60), expected);
        assert_eq!(of(100, 10), Numa { remote_prefetched: 10, ..expected });
        assert_eq!(of(0, 0), Numa::default());
    }
}

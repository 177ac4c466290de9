//! The published mini-simulation in place of the estimate from reuse times: [`BurstModel::Umi`](super::BurstModel::Umi).
//!
//! It knows one cache, the last level's. What it says of an instruction's misses is said of each of its cells.

use memlens_locality::{Burst, Geometry, Umi, UmiConfig};
use memlens_profile::MachineInfo;
use rustc_hash::FxHashMap;

use crate::address_space::Code;

/// The cache is emptied between analyses that are further apart, in ns: a million cycles of the Pentium 4 with 3.06 GHz
/// that the method was published for (Q. Zhao et al., Ubiquitous Memory Introspection, CGO 2007, sections 5 and 7).
const FLUSHED_AFTER_NS: u64 = 326_797;

/// The mini-simulation of a machine's last level.
#[derive(Debug)]
pub struct MiniSimulation {
    umi: Umi,
    /// A number for each region.
    regions: FxHashMap<Code, u32>,
    region_hits: u32,
    bursts: u64,
    /// Of these, in regions that were not hot yet.
    cold: u64,
}

impl MiniSimulation {
    /// Of so large a cache. A region is hot when so many bursts have begun in it.
    pub fn new(cache: Geometry, region_hits: u32) -> Self {
        let config = UmiConfig { region_hits, flush_after: FLUSHED_AFTER_NS, ..UmiConfig::new(cache) };
        Self { umi: Umi::new(config), regions: FxHashMap::default(), region_hits, bursts: 0, cold: 0 }
    }

    /// What of a machine it knows: the cache before memory, as its last level.
    pub fn known_of(machine: MachineInfo) -> MachineInfo {
        let last = machine.llc.or(machine.l2).or(machine.l1d);
        MachineInfo { l1d: None, l2: None, llc: last, dtlb: None, stlb: None, ..machine }
    }

    /// A burst that began in this function, its begin in ns: it stands for the region, which was one of the traces of a
    /// translator.
    pub fn analyze(&mut self, function: Code, burst: &Burst<'_>) {
        let next = self.regions.len() as u32;
        let region = *self.regions.entry(function).or_insert(next);
        self.bursts += 1;
        self.cold += u64::from(!self.umi.analyze(region, burst));
    }

    /// What a reader of the profile has to know.
    pub fn note(&self) -> String {
        let mut note = "Misses are those of the mini-simulation (Zhao et al. 2007): what is new to a burst counts as missing, but \
             for each instruction's first two executions in it."
            .to_owned();
        if self.cold > 0 {
            note += &format!(
                " {} of {} bursts began in functions that fewer than {} had begun in (--region-hits): it has not seen them, and \
                 knows no misses of what is in no other burst.",
                self.cold, self.bursts, self.region_hits
            );
        }
        note
    }

    /// Miss ratios by instruction; of one that was never executed after warming up nothing is known.
    pub fn ratios(&self) -> FxHashMap<u32, f64> {
        let ratio = |misses: u64, references: u64| misses as f64 / references as f64;
        self.umi
            .instructions()
            .map(|(number, count)| (number, ratio(count.misses, count.references)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_locality::Reference;
    use memlens_profile::{CacheInfo, TlbInfo};
    use memlens_types::AccessKind;

    #[test]
    fn the_cache_before_memory_is_all_that_it_knows() {
        let cache = |bytes| Some(CacheInfo { bytes, ways: 8, policy: "lru".into() });
        let machine = MachineInfo {
            l1d: cache(1 << 15),
            l2: cache(1 << 18),
            llc: None,
            dtlb: Some(TlbInfo { entries: 64, ways: 4 }),
            ..MachineInfo::default()
        };
        let known = MiniSimulation::known_of(machine);
        assert_eq!((&known.l1d, &known.l2, &known.dtlb), (&None, &None, &None));
        assert_eq!(known.llc.map(|llc| llc.bytes), Some(1 << 18));
    }

    #[test]
    fn bursts_far_apart_find_an_empty_cache() {
        for (gap_ns, ratio) in [(FLUSHED_AFTER_NS, 0.5), (FLUSHED_AFTER_NS + 1, 1.0)] {
            let mut simulation = MiniSimulation::new(Geometry::cache(1 << 16, 8, 64), 1);
            let references: Vec<Reference> = (0..102)
                .map(|at| Reference {
                    address: at * 64,
                    instruction: 3,
                    owner: 0,
                    size: 8,
                    kind: AccessKind::Load,
                })
                .collect();
            let burst =
                Burst { thread: 0, start: 0, weight: 1.0, unseen_before: None, references: &references };
            simulation.analyze((None, 1), &burst);
            simulation.analyze((None, 2), &Burst { start: gap_ns, ..burst });
            assert_eq!(
                simulation.ratios().get(&3),
                Some(&ratio),
                "two executions of each burst warm the cache"
            );
        }
    }

    #[test]
    fn what_began_in_cold_functions_is_told() {
        let references =
            [Reference { address: 64, instruction: 0, owner: 0, size: 8, kind: AccessKind::Load }; 4];
        let burst = Burst { thread: 0, start: 0, weight: 1.0, unseen_before: None, references: &references };
        let mut simulation = MiniSimulation::new(Geometry::cache(1 << 16, 8, 64), 2);
        for function in [1, 1, 2, 1] {
            simulation.analyze((Some(0), function), &burst);
        }
        let note = simulation.note();
        assert!(note.contains(" 2 of 4 bursts began in functions that fewer than 2 had"), "{note}");
    }
}

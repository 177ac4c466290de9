//! Which counts mean something: a level that was not modelled has unknown counts, not zeros.

use memlens_profile::MachineInfo;
use memlens_types::Counts;

/// Counts as a report may show them; `None` is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) loads: u64,
    pub(crate) stores: u64,
    pub(crate) modifies: u64,
    pub(crate) load_bytes: u64,
    pub(crate) store_bytes: u64,
    pub(crate) l1_load_misses: Option<u64>,
    pub(crate) l1_store_misses: Option<u64>,
    pub(crate) l2_load_misses: Option<u64>,
    pub(crate) l2_store_misses: Option<u64>,
    pub(crate) llc_load_misses: Option<u64>,
    pub(crate) llc_store_misses: Option<u64>,
    pub(crate) dram_reads: Option<u64>,
    pub(crate) dram_writes: Option<u64>,
    pub(crate) dtlb_misses: Option<u64>,
    pub(crate) stlb_misses: Option<u64>,
    pub(crate) page_walk_accesses: Option<u64>,
    pub(crate) invalidations: Option<u64>,
}

impl Known {
    /// `write_backs`: whether the counts belong to objects; code has no write-backs.
    pub(crate) fn new(counts: &Counts, machine: &MachineInfo, write_backs: bool) -> Self {
        let caches = machine.l1d.is_some() || machine.l2.is_some() || machine.llc.is_some();
        let when = |modelled: bool, value: u64| modelled.then_some(value);
        Self {
            loads: counts.loads,
            stores: counts.stores,
            modifies: counts.modifies,
            load_bytes: counts.load_bytes,
            store_bytes: counts.store_bytes,
            l1_load_misses: when(machine.l1d.is_some(), counts.l1_load_misses),
            l1_store_misses: when(machine.l1d.is_some(), counts.l1_store_misses),
            l2_load_misses: when(machine.l2.is_some(), counts.l2_load_misses),
            l2_store_misses: when(machine.l2.is_some(), counts.l2_store_misses),
            llc_load_misses: when(machine.llc.is_some(), counts.llc_load_misses),
            llc_store_misses: when(machine.llc.is_some(), counts.llc_store_misses),
            dram_reads: when(caches, counts.dram_reads),
            dram_writes: when(caches && write_backs, counts.dram_writes),
            dtlb_misses: when(machine.dtlb.is_some(), counts.dtlb_misses),
            stlb_misses: when(machine.stlb.is_some(), counts.stlb_misses),
            page_walk_accesses: when(machine.stlb.is_some(), counts.page_walk_accesses),
            invalidations: when(caches, counts.invalidations),
        }
    }

    pub(crate) fn accesses(&self) -> u64 {
        self.loads + self.stores - self.modifies
    }

    pub(crate) fn l1_misses(&self) -> Option<u64> {
        Some(self.l1_load_misses? + self.l1_store_misses?)
    }

    pub(crate) fn l2_misses(&self) -> Option<u64> {
        Some(self.l2_load_misses? + self.l2_store_misses?)
    }

    pub(crate) fn llc_misses(&self) -> Option<u64> {
        Some(self.llc_load_misses? + self.llc_store_misses?)
    }
}

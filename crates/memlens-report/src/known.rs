//! Which counts mean something: a level that was not modelled has unknown counts, not zeros.

use memlens_profile::Profile;
use memlens_types::Counts;

/// Counts as a report may show them; `None` is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) samples: Option<u64>,
    pub(crate) loads: Option<u64>,
    pub(crate) stores: Option<u64>,
    pub(crate) modifies: Option<u64>,
    pub(crate) followers: Option<u64>,
    pub(crate) load_bytes: Option<u64>,
    pub(crate) store_bytes: Option<u64>,
    pub(crate) l1_load_misses: Option<u64>,
    pub(crate) l1_store_misses: Option<u64>,
    pub(crate) l2_load_misses: Option<u64>,
    pub(crate) l2_store_misses: Option<u64>,
    pub(crate) llc_load_misses: Option<u64>,
    pub(crate) llc_store_misses: Option<u64>,
    pub(crate) l2_prefetched: Option<u64>,
    pub(crate) llc_prefetched: Option<u64>,
    pub(crate) dram_reads: Option<u64>,
    pub(crate) dram_writes: Option<u64>,
    pub(crate) dtlb_misses: Option<u64>,
    pub(crate) stlb_misses: Option<u64>,
    pub(crate) page_walk_accesses: Option<u64>,
    pub(crate) invalidations: Option<u64>,
    pub(crate) coherence_misses: Option<u64>,
    pub(crate) false_sharing: Option<u64>,
    pub(crate) fetches: Option<u64>,
    pub(crate) l1i_misses: Option<u64>,
    pub(crate) l2i_misses: Option<u64>,
    pub(crate) llci_misses: Option<u64>,
}

impl Known {
    /// `write_backs`: whether the counts belong to objects; code has no write-backs.
    pub(crate) fn new(profile: &Profile, counts: &Counts, write_backs: bool) -> Self {
        let machine = &profile.machine;
        // On a bus neither accesses nor caches show, but lines of memory and page walks do.
        let is_bus = profile.is_of_bus();
        // Samples count neither accesses nor misses.
        let is_sampled = profile.run.sampling.is_some();
        let counted = !is_sampled && !is_bus;
        let caches = machine.l1d.is_some() || machine.l2.is_some() || machine.llc.is_some();
        let (lines, walks) = (caches || is_bus, machine.stlb.is_some() || is_bus);
        // Bursts are too short for lines to be written back.
        let whole = caches && !profile.run.estimated;
        let when = |modelled: bool, value: u64| modelled.then_some(value);
        let is_prefetching = machine.prefetcher_streams > 0;
        let fetched = &counts.fetched;
        // Profiles do not say whether fetches were modelled; what executes nothing has none.
        let is_code = fetched.fetches > 0;
        Self {
            samples: when(is_sampled, counts.sampled.samples),
            loads: when(counted, counts.loads),
            stores: when(counted, counts.stores),
            modifies: when(counted, counts.modifies),
            followers: when(counted, counts.followers),
            load_bytes: when(counted, counts.load_bytes),
            store_bytes: when(counted, counts.store_bytes),
            l1_load_misses: when(machine.l1d.is_some(), counts.l1_load_misses),
            l1_store_misses: when(machine.l1d.is_some(), counts.l1_store_misses),
            l2_load_misses: when(machine.l2.is_some(), counts.l2_load_misses),
            l2_store_misses: when(machine.l2.is_some(), counts.l2_store_misses),
            llc_load_misses: when(machine.llc.is_some(), counts.llc_load_misses),
            llc_store_misses: when(machine.llc.is_some(), counts.llc_store_misses),
            l2_prefetched: when(is_prefetching && machine.l2.is_some(), counts.l2_prefetched),
            llc_prefetched: when(is_prefetching && machine.llc.is_some(), counts.llc_prefetched),
            dram_reads: when(lines, counts.dram_reads),
            dram_writes: when((whole || is_bus) && write_backs, counts.dram_writes),
            dtlb_misses: when(machine.dtlb.is_some(), counts.dtlb_misses),
            stlb_misses: when(walks, counts.stlb_misses),
            page_walk_accesses: when(walks, counts.page_walk_accesses),
            invalidations: when(caches && !is_sampled, counts.invalidations),
            coherence_misses: when(caches && !is_sampled, counts.shared.coherence_misses),
            false_sharing: when(caches && !is_sampled, counts.shared.false_sharing),
            fetches: when(is_code, fetched.fetches),
            l1i_misses: when(is_code && machine.l1i.is_some(), fetched.l1i_misses),
            l2i_misses: when(is_code && machine.l2.is_some(), fetched.l2i_misses),
            llci_misses: when(is_code && machine.llc.is_some(), fetched.llci_misses),
        }
    }

    pub(crate) fn accesses(&self) -> Option<u64> {
        Some(self.loads? + self.stores? - self.modifies?)
    }

    /// Whether anything was seen to touch it.
    pub(crate) fn is_touched(&self) -> bool {
        let lines = || Some(self.dram_reads? + self.dram_writes.unwrap_or(0) + self.page_walk_accesses?);
        self.accesses().or(self.samples).or_else(lines).is_some_and(|count| count > 0)
            || self.fetches.is_some()
    }

    pub(crate) fn l1_misses(&self) -> Option<u64> {
        Some(self.l1_load_misses? + self.l1_store_misses?)
    }

    pub(crate) fn l2_misses(&self) -> Option<u64> {
        Some(self.l2_load_misses? + self.l2_store_misses?)
    }

    /// Part of the last-level misses that a hardware prefetcher covers.
    pub(crate) fn llc_prefetched_ratio(&self) -> Option<f64> {
        let misses = self.llc_misses().filter(|&misses| misses > 0)?;
        self.llc_prefetched.map(|covered| covered as f64 / misses as f64)
    }

    /// Part of the coherence misses that are false sharing.
    pub(crate) fn false_sharing_ratio(&self) -> Option<f64> {
        let misses = self.coherence_misses.filter(|&misses| misses > 0)?;
        self.false_sharing.map(|of_others| of_others as f64 / misses as f64)
    }

    pub(crate) fn llc_misses(&self) -> Option<u64> {
        Some(self.llc_load_misses? + self.llc_store_misses?)
    }
}

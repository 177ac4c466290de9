//! Which counts mean something: a level that was not modelled has unknown counts, not zeros.

use memlens_profile::Profile;
use memlens_types::Counts;

use crate::Column;

/// All counts of a part of the profile by the words of reports, and what they cost; `None` is unknown. `write_backs`: whether
/// they are an object's or the whole program's; code has no write-backs.
pub fn counts_by_word(
    profile: &Profile,
    counts: &Counts,
    write_backs: bool,
) -> impl Iterator<Item = (&'static str, Option<u64>)> + use<> {
    let sampled = |count: u64| profile.run.sampling.is_some().then_some(count);
    let Costs { wait_cycles, stall_cycles, translation_stall_cycles } = Costs::of(profile, counts);
    let costs = [
        ("wait_cycles", wait_cycles),
        ("stall_cycles", stall_cycles),
        ("translation_stall_cycles", translation_stall_cycles),
        ("samples", sampled(counts.sampled.samples)),
        ("sample_cost", sampled(counts.sampled.cost)),
        ("samples_by_hardware_address", sampled(counts.sampled.by_hardware)),
        ("samples_by_computed_address", sampled(counts.sampled.by_registers)),
        ("samples_by_code_analysis", sampled(counts.sampled.by_code)),
    ];
    costs.into_iter().chain(Known::new(profile, counts, write_backs).by_word())
}

/// What some counts cost, in cycles; `None` is unknown.
pub(crate) struct Costs {
    pub(crate) wait_cycles: Option<u64>,
    pub(crate) stall_cycles: Option<u64>,
    pub(crate) translation_stall_cycles: Option<u64>,
}

impl Costs {
    pub(crate) fn of(profile: &Profile, counts: &Counts) -> Self {
        let waits = profile.run.sampling.is_none() && !profile.is_of_bus();
        Self {
            wait_cycles: waits.then(|| profile.cost(counts)),
            stall_cycles: profile.has_stalls().then_some(counts.stall_cycles),
            translation_stall_cycles: profile.translation_stall_cycles(counts),
        }
    }
}

/// What a word of [`counts_by_word`] stands for.
pub fn meaning_of_count(word: &str) -> &'static str {
    match word {
        "translation_stall_cycles" => {
            "those of them that the core would not wait if no address took time to be translated"
        }
        "samples" => "samples that hit it (sample mode)",
        "sample_cost" => "what they stand for: nanoseconds or events",
        "samples_by_hardware_address" => "those whose data the processor told",
        "samples_by_computed_address" => "those whose data registers and code told",
        "samples_by_code_analysis" => "those whose data the code alone told",
        "followers" => {
            "elements of string instructions behind the first one in a line, for which nothing waits"
        }
        "remote_prefetched" => "those of `remote_misses` that a hardware prefetcher covers",
        "misplaced" => {
            "those of `remote_misses` whose node misses the page most: they would be local if it lay there"
        }
        _ => Column::ALL.into_iter().find(|column| column.as_str() == word).map_or("", Column::meaning),
    }
}

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
    pub(crate) remote_misses: Option<u64>,
    pub(crate) remote_prefetched: Option<u64>,
    pub(crate) misplaced: Option<u64>,
    pub(crate) first_touches: Option<u64>,
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
        let has_nodes = machine.has_nodes() && machine.llc.is_some() && !is_sampled;
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
            remote_misses: when(has_nodes, counts.numa.remote_misses),
            remote_prefetched: when(has_nodes && is_prefetching, counts.numa.remote_prefetched),
            misplaced: when(has_nodes, counts.numa.misplaced),
            // Bursts meet few pages when they are new.
            first_touches: when(has_nodes && whole, counts.numa.first_touches),
            fetches: when(is_code, fetched.fetches),
            l1i_misses: when(is_code && machine.l1i.is_some(), fetched.l1i_misses),
            l2i_misses: when(is_code && machine.l2.is_some(), fetched.l2i_misses),
            llci_misses: when(is_code && machine.llc.is_some(), fetched.llci_misses),
        }
    }

    /// All of them by the words of reports.
    pub(crate) fn by_word(&self) -> [(&'static str, Option<u64>); 34] {
        [
            ("loads", self.loads),
            ("stores", self.stores),
            ("load_bytes", self.load_bytes),
            ("store_bytes", self.store_bytes),
            ("l1_misses", self.l1_misses()),
            ("l1_load_misses", self.l1_load_misses),
            ("l1_store_misses", self.l1_store_misses),
            ("l2_misses", self.l2_misses()),
            ("l2_load_misses", self.l2_load_misses),
            ("l2_store_misses", self.l2_store_misses),
            ("llc_misses", self.llc_misses()),
            ("llc_load_misses", self.llc_load_misses),
            ("llc_store_misses", self.llc_store_misses),
            ("dram_reads", self.dram_reads),
            ("dram_writes", self.dram_writes),
            ("dtlb_misses", self.dtlb_misses),
            ("stlb_misses", self.stlb_misses),
            ("page_walk_accesses", self.page_walk_accesses),
            ("modifies", self.modifies),
            ("followers", self.followers),
            ("accesses", self.accesses()),
            ("l2_prefetched", self.l2_prefetched),
            ("llc_prefetched", self.llc_prefetched),
            ("invalidations", self.invalidations),
            ("coherence_misses", self.coherence_misses),
            ("false_sharing", self.false_sharing),
            ("remote_misses", self.remote_misses),
            ("remote_prefetched", self.remote_prefetched),
            ("misplaced", self.misplaced),
            ("first_touches", self.first_touches),
            ("fetches", self.fetches),
            ("l1i_misses", self.l1i_misses),
            ("l2i_misses", self.l2i_misses),
            ("llci_misses", self.llci_misses),
        ]
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

    /// Part of the last-level misses that another node's memory serves.
    pub(crate) fn remote_ratio(&self) -> Option<f64> {
        let misses = self.llc_misses().filter(|&misses| misses > 0)?;
        self.remote_misses.map(|remote| remote as f64 / misses as f64)
    }

    pub(crate) fn llc_misses(&self) -> Option<u64> {
        Some(self.llc_load_misses? + self.llc_store_misses?)
    }
}

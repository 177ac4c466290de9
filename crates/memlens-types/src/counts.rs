//! The counters that every row of a report has.

use core::ops::AddAssign;

/// What some set of accesses did. Units: events, unless the name says bytes.
///
/// A modify counts as one load and one store here (and once in `modifies`); its cache misses count
/// as store misses, because it needs the line for writing.
///
/// Misses count cache lines: an access that straddles two lines can miss twice (machines with
/// cachegrind's rules count it once; see `memlens-sim`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Loads, modifies included.
    pub loads: u64,
    /// Stores, modifies included.
    pub stores: u64,
    /// Modifies alone.
    pub modifies: u64,
    /// Those loads and stores that are elements of a string instruction behind its first one in a line: the line comes once for all
    /// of them, and they wait for nothing.
    pub followers: u64,
    /// Bytes read.
    pub load_bytes: u64,
    /// Bytes written.
    pub store_bytes: u64,
    /// First-level data cache misses of loads.
    pub l1_load_misses: u64,
    /// First-level data cache misses of stores and modifies.
    pub l1_store_misses: u64,
    /// Second-level misses of loads.
    pub l2_load_misses: u64,
    /// Second-level misses of stores and modifies.
    pub l2_store_misses: u64,
    /// Last-level misses of loads.
    pub llc_load_misses: u64,
    /// Last-level misses of stores and modifies.
    pub llc_store_misses: u64,
    /// Second-level misses of all kinds whose lines a hardware prefetcher would have asked for before.
    pub l2_prefetched: u64,
    /// Last-level misses of which the same is true.
    pub llc_prefetched: u64,
    /// Cycles in which a core that goes on behind them could retire nothing because of them: the part of their latency that nothing
    /// hides. 0 where that was not modelled.
    pub stall_cycles: u64,
    /// Those of them that the core would not wait if no address took time to be translated: what page walks and hits of the second-level TLB
    /// cost of the time. No more than them; 0 where that was not modelled.
    pub translation_stall_cycles: u64,
    /// Lines read from memory for these accesses and fetches.
    pub dram_reads: u64,
    /// Lines of this object written back to memory.
    pub dram_writes: u64,
    /// First-level data TLB misses.
    pub dtlb_misses: u64,
    /// Second-level TLB misses: page walks.
    pub stlb_misses: u64,
    /// Page-table entries read by those walks.
    pub page_walk_accesses: u64,
    /// Cycles that these walks take, where the machine says so by how far they are apart; 0: each entry read takes the same.
    pub walk_cycles: u64,
    /// Lines lost to another core's write (coherence misses to come).
    pub invalidations: u64,
    /// Misses for which other cores are to blame; all zero for data that one thread uses.
    pub shared: Shared,
    /// From which memory nodes lines came; all zero where there is one.
    pub numa: Numa,
    /// Instruction fetches; all zero where they are not modelled.
    pub fetched: Fetched,
    /// What samples say; all zero in modes that see every access.
    pub sampled: Sampled,
}

/// What accesses waited for that other cores had written. Units: events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// Misses that another core's modified copy of the line serves; processors that count them speak of HITM.
    pub coherence_misses: u64,
    /// Those of them whose bytes the other cores did not write, only bytes beside them in the line.
    pub false_sharing: u64,
}

impl AddAssign<&Shared> for Shared {
    fn add_assign(&mut self, other: &Shared) {
        self.coherence_misses += other.coherence_misses;
        self.false_sharing += other.false_sharing;
    }
}

impl Shared {
    /// See [`Sampled::piece`].
    pub fn piece(&self, from: f64, until: f64) -> Self {
        let part = between(from, until);
        Self { coherence_misses: part(self.coherence_misses), false_sharing: part(self.false_sharing) }
    }
}

/// What memory nodes (NUMA) had to do with accesses. Units: events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numa {
    /// Last-level misses of data whose line lies in the memory of another node than the core's.
    pub remote_misses: u64,
    /// Those of them whose lines a hardware prefetcher would have asked for before.
    pub remote_prefetched: u64,
    /// Those of the remote misses to a page that the core's node misses most: they would not be remote if the page lay there.
    pub misplaced: u64,
    /// Pages of which nobody had touched anything before: the kernel takes them from the node of the core that does.
    pub first_touches: u64,
}

impl AddAssign<&Numa> for Numa {
    fn add_assign(&mut self, other: &Numa) {
        self.remote_misses += other.remote_misses;
        self.remote_prefetched += other.remote_prefetched;
        self.misplaced += other.misplaced;
        self.first_touches += other.first_touches;
    }
}

impl Numa {
    /// See [`Sampled::piece`].
    pub fn piece(&self, from: f64, until: f64) -> Self {
        let part = between(from, until);
        Self {
            remote_misses: part(self.remote_misses),
            remote_prefetched: part(self.remote_prefetched),
            misplaced: part(self.misplaced),
            first_touches: part(self.first_touches),
        }
    }

    /// The same of other last-level misses: `part` of them.
    fn of_misses(&self, part: f64) -> Self {
        let of = |misses: u64| (misses as f64 * part) as u64;
        Self {
            remote_misses: of(self.remote_misses),
            remote_prefetched: of(self.remote_prefetched),
            misplaced: of(self.misplaced),
            first_touches: self.first_touches,
        }
    }
}

/// What instruction fetches did. Units: events. An instruction's misses are lines, as those of data are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Instructions fetched.
    pub fetches: u64,
    /// First-level instruction cache misses.
    pub l1i_misses: u64,
    /// Second-level misses of fetches.
    pub l2i_misses: u64,
    /// Last-level misses of fetches.
    pub llci_misses: u64,
}

impl AddAssign<&Fetched> for Fetched {
    fn add_assign(&mut self, other: &Fetched) {
        self.fetches += other.fetches;
        self.l1i_misses += other.l1i_misses;
        self.l2i_misses += other.l2i_misses;
        self.llci_misses += other.llci_misses;
    }
}

impl Fetched {
    /// See [`Sampled::piece`].
    pub fn piece(&self, from: f64, until: f64) -> Self {
        let part = between(from, until);
        Self {
            fetches: part(self.fetches),
            l1i_misses: part(self.l1i_misses),
            l2i_misses: part(self.l2i_misses),
            llci_misses: part(self.llci_misses),
        }
    }
}

/// What samples found. Units: samples, unless the name says otherwise.
///
/// Each sample is counted in at most one of the three ways; the rest of `samples` found no address
/// and no variable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// All samples.
    pub samples: u64,
    /// What they stand for, in the unit of the run's sampling: nanoseconds of time, or events.
    pub cost: u64,
    /// Those whose data address the processor reported.
    pub by_hardware: u64,
    /// Those whose data address was computed from the sampled registers.
    pub by_registers: u64,
    /// Those without an address whose object was found by reading the code.
    pub by_code: u64,
}

impl AddAssign<&Sampled> for Sampled {
    fn add_assign(&mut self, other: &Sampled) {
        self.samples += other.samples;
        self.cost += other.cost;
        self.by_hardware += other.by_hardware;
        self.by_registers += other.by_registers;
        self.by_code += other.by_code;
    }
}

/// What lies between two parts of a number, both from 0 to 1: such pieces add up to the whole.
fn between(from: f64, until: f64) -> impl Fn(u64) -> u64 {
    // `round` needs the standard library; nothing here is negative.
    let rounded = |value: f64| (value + 0.5) as u64;
    move |all| rounded(all as f64 * until) - rounded(all as f64 * from)
}

impl Sampled {
    /// The piece from one part of the whole to another, both from 0 to 1 and ascending. Pieces that follow each other
    /// add up to the whole.
    pub fn piece(&self, from: f64, until: f64) -> Self {
        let part = between(from, until);
        Self {
            samples: part(self.samples),
            cost: part(self.cost),
            by_hardware: part(self.by_hardware),
            by_registers: part(self.by_registers),
            by_code: part(self.by_code),
        }
    }
}

impl Counts {
    /// See [`Sampled::piece`].
    pub fn piece(&self, from: f64, until: f64) -> Self {
        let part = between(from, until);
        Self {
            loads: part(self.loads),
            stores: part(self.stores),
            modifies: part(self.modifies),
            followers: part(self.followers),
            load_bytes: part(self.load_bytes),
            store_bytes: part(self.store_bytes),
            l1_load_misses: part(self.l1_load_misses),
            l1_store_misses: part(self.l1_store_misses),
            l2_load_misses: part(self.l2_load_misses),
            l2_store_misses: part(self.l2_store_misses),
            llc_load_misses: part(self.llc_load_misses),
            llc_store_misses: part(self.llc_store_misses),
            l2_prefetched: part(self.l2_prefetched),
            llc_prefetched: part(self.llc_prefetched),
            stall_cycles: part(self.stall_cycles),
            translation_stall_cycles: part(self.translation_stall_cycles),
            dram_reads: part(self.dram_reads),
            dram_writes: part(self.dram_writes),
            dtlb_misses: part(self.dtlb_misses),
            stlb_misses: part(self.stlb_misses),
            page_walk_accesses: part(self.page_walk_accesses),
            walk_cycles: part(self.walk_cycles),
            invalidations: part(self.invalidations),
            shared: self.shared.piece(from, until),
            numa: self.numa.piece(from, until),
            fetched: self.fetched.piece(from, until),
            sampled: self.sampled.piece(from, until),
        }
    }

    /// The same with other cache misses of data: each level's number is replaced by what its function makes of it, also
    /// that of the misses that a prefetcher covers. Of the last level's as large a part is remote as before.
    pub fn with_misses(
        &self,
        l1: impl Fn(u64) -> u64,
        l2: impl Fn(u64) -> u64,
        llc: impl Fn(u64) -> u64,
    ) -> Self {
        let left = llc(self.llc_load_misses) + llc(self.llc_store_misses);
        let part = (left as f64 / self.llc_misses().max(1) as f64).min(1.0);
        Self {
            numa: self.numa.of_misses(part),
            l1_load_misses: l1(self.l1_load_misses),
            l1_store_misses: l1(self.l1_store_misses),
            l2_load_misses: l2(self.l2_load_misses),
            l2_store_misses: l2(self.l2_store_misses),
            llc_load_misses: llc(self.llc_load_misses),
            llc_store_misses: llc(self.llc_store_misses),
            l2_prefetched: l2(self.l2_prefetched),
            llc_prefetched: llc(self.llc_prefetched),
            ..*self
        }
    }

    /// The same with other TLB misses: numbers of the first and of the second level are replaced by what their functions make of them, with the
    /// latter what walks read and take.
    pub fn with_tlb_misses(&self, dtlb: impl Fn(u64) -> u64, stlb: impl Fn(u64) -> u64) -> Self {
        Self {
            dtlb_misses: dtlb(self.dtlb_misses),
            stlb_misses: stlb(self.stlb_misses),
            page_walk_accesses: stlb(self.page_walk_accesses),
            walk_cycles: stlb(self.walk_cycles),
            ..*self
        }
    }

    /// The same without coherence misses, as if no other core wrote: what another order, layout or prefetch can spare.
    pub fn without_coherence(&self) -> Self {
        let alone = self.with_fewer_misses(self.shared.coherence_misses);
        Self { shared: Shared::default(), l2_prefetched: self.l2_prefetched.min(alone.l2_misses()), ..alone }
    }

    /// The same without so many coherence misses, which are misses of the first two levels: of loads, of stores and of those that
    /// a prefetcher covers in proportion. No more of them are false sharing than are left.
    pub fn with_fewer_misses(&self, misses: u64) -> Self {
        let without = |level: u64| {
            let part = (misses as f64 / level.max(1) as f64).min(1.0);
            move |count: u64| count - (count as f64 * part) as u64
        };
        let coherence_misses = self.shared.coherence_misses.saturating_sub(misses);
        let shared =
            Shared { coherence_misses, false_sharing: self.shared.false_sharing.min(coherence_misses) };
        let fewer = self.with_misses(without(self.l1_misses()), without(self.l2_misses()), |count| count);
        Self { shared, ..fewer }
    }

    /// Loads and stores that reach the cache: a modify is one access.
    pub fn accesses(&self) -> u64 {
        self.loads + self.stores - self.modifies
    }

    /// Accesses that wait at least for the first level: of the elements of a string instruction one in each line.
    pub fn waiting(&self) -> u64 {
        self.accesses().saturating_sub(self.followers)
    }

    /// First-level misses of all kinds.
    pub fn l1_misses(&self) -> u64 {
        self.l1_load_misses + self.l1_store_misses
    }

    /// Second-level misses of all kinds.
    pub fn l2_misses(&self) -> u64 {
        self.l2_load_misses + self.l2_store_misses
    }

    /// Last-level misses of all kinds.
    pub fn llc_misses(&self) -> u64 {
        self.llc_load_misses + self.llc_store_misses
    }
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Counts) {
        self.loads += other.loads;
        self.stores += other.stores;
        self.modifies += other.modifies;
        self.followers += other.followers;
        self.load_bytes += other.load_bytes;
        self.store_bytes += other.store_bytes;
        self.l1_load_misses += other.l1_load_misses;
        self.l1_store_misses += other.l1_store_misses;
        self.l2_load_misses += other.l2_load_misses;
        self.l2_store_misses += other.l2_store_misses;
        self.llc_load_misses += other.llc_load_misses;
        self.llc_store_misses += other.llc_store_misses;
        self.l2_prefetched += other.l2_prefetched;
        self.llc_prefetched += other.llc_prefetched;
        self.stall_cycles += other.stall_cycles;
        self.translation_stall_cycles += other.translation_stall_cycles;
        self.dram_reads += other.dram_reads;
        self.dram_writes += other.dram_writes;
        self.dtlb_misses += other.dtlb_misses;
        self.stlb_misses += other.stlb_misses;
        self.page_walk_accesses += other.page_walk_accesses;
        self.walk_cycles += other.walk_cycles;
        self.invalidations += other.invalidations;
        self.shared += &other.shared;
        self.numa += &other.numa;
        self.fetched += &other.fetched;
        self.sampled += &other.sampled;
    }
}

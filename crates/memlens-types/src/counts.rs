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
    /// Lines read from memory for these accesses.
    pub dram_reads: u64,
    /// Lines of this object written back to memory.
    pub dram_writes: u64,
    /// First-level data TLB misses.
    pub dtlb_misses: u64,
    /// Second-level TLB misses: page walks.
    pub stlb_misses: u64,
    /// Page-table entries read by those walks.
    pub page_walk_accesses: u64,
    /// Lines lost to another core's write (coherence misses to come).
    pub invalidations: u64,
    /// What samples say; all zero in modes that see every access.
    pub sampled: Sampled,
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

impl Counts {
    /// Loads and stores that reach the cache: a modify is one access.
    pub fn accesses(&self) -> u64 {
        self.loads + self.stores - self.modifies
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
        self.load_bytes += other.load_bytes;
        self.store_bytes += other.store_bytes;
        self.l1_load_misses += other.l1_load_misses;
        self.l1_store_misses += other.l1_store_misses;
        self.l2_load_misses += other.l2_load_misses;
        self.l2_store_misses += other.l2_store_misses;
        self.llc_load_misses += other.llc_load_misses;
        self.llc_store_misses += other.llc_store_misses;
        self.dram_reads += other.dram_reads;
        self.dram_writes += other.dram_writes;
        self.dtlb_misses += other.dtlb_misses;
        self.stlb_misses += other.stlb_misses;
        self.page_walk_accesses += other.page_walk_accesses;
        self.invalidations += other.invalidations;
        self.sampled += &other.sampled;
    }
}

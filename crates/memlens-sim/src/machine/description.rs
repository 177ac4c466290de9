//! What a machine looks like: the numbers that a model is built from.

use crate::page_sizes::PageSize;
use alloc::string::String;
use alloc::vec::Vec;

/// Which line of a full set is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "std", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "std", serde(rename_all = "kebab-case"))]
pub enum Policy {
    /// The least recently used line.
    #[default]
    Lru,
    /// A binary tree of bits, each pointing to the half not used last.
    TreePlru,
    /// Static re-reference interval prediction with two bits and hit priority (Jaleel, Theobald,
    /// Steely, Emer: High Performance Cache Replacement Using Re-Reference Interval Prediction,
    /// ISCA 2010, section 4.1).
    Srrip,
    /// The bimodal form of the same (section 4.2): one fill in 32 gets a long interval, all others
    /// a distant one. Deterministic here: every 32nd fill of a cache.
    Brrip,
    /// Any line, from a generator with a fixed seed: the same stream gives the same misses.
    Random,
    /// Second chance: a fill and a hit set a line's reference bit. A hand goes round the lines of
    /// the set, clears the bits it passes, and the first line whose bit is clear goes (Corbató: A
    /// Paging Experiment with the Multics System, 1968).
    Clock,
}

impl Policy {
    /// All policies with the words that name them.
    pub const WORDS: [(&'static str, Self); 6] = [
        ("lru", Self::Lru),
        ("tree-plru", Self::TreePlru),
        ("srrip", Self::Srrip),
        ("brrip", Self::Brrip),
        ("random", Self::Random),
        ("clock", Self::Clock),
    ];
}

/// How the last level relates to the private levels above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "std", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "std", serde(rename_all = "kebab-case"))]
pub enum Inclusion {
    /// A fill goes to every level, evictions are independent.
    #[default]
    NonInclusive,
    /// As above, and a line leaving the last level leaves all private caches too.
    Inclusive,
    /// The last level holds what the second level evicted, and gives a line up when it is read.
    Exclusive,
}

impl Inclusion {
    /// All modes with the words that name them.
    pub const WORDS: [(&'static str, Self); 3] = [
        ("non-inclusive", Self::NonInclusive),
        ("inclusive", Self::Inclusive),
        ("exclusive", Self::Exclusive),
    ];
}

/// Whose accounting rules hold; see the crate's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "std", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "std", serde(rename_all = "kebab-case"))]
pub enum Rules {
    /// Every touched line is looked up and can miss; write-backs and TLBs are modelled.
    #[default]
    Memlens,
    /// Those of valgrind's cachegrind: two levels, one miss an access at most, no write-backs.
    Cachegrind,
}

impl Rules {
    /// All rules with the words that name them.
    pub const WORDS: [(&'static str, Self); 2] =
        [("memlens", Self::Memlens), ("cachegrind", Self::Cachegrind)];
}

macro_rules! display_by_words {
    ($($name:ident),*) => {$(
        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let word = Self::WORDS.iter().find(|(_, value)| value == self);
                f.pad(word.map_or("", |(word, _)| word))
            }
        }
    )*};
}

display_by_words!(Policy, Inclusion, Rules);

/// One cache.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "std", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "std", serde(deny_unknown_fields))]
pub struct CacheDescription {
    /// Capacity in bytes: a multiple of `ways` × `line`.
    pub bytes: u64,
    /// Lines a set.
    pub ways: u32,
    /// Line size in bytes, a power of two.
    #[cfg_attr(feature = "std", serde(default = "default_line_bytes"))]
    pub line: u32,
    /// Replacement policy.
    #[cfg_attr(feature = "std", serde(default))]
    pub policy: Policy,
    /// Load-to-use latency in core cycles; 0 = not known. The model does not use it.
    #[cfg_attr(feature = "std", serde(default))]
    pub latency_cycles: u32,
    /// Where the numbers come from.
    #[cfg_attr(feature = "std", serde(default))]
    pub source: String,
}

impl CacheDescription {
    /// An LRU cache of unknown latency.
    pub fn new(bytes: u64, ways: u32, line: u32) -> Self {
        Self { bytes, ways, line, ..Self::default() }
    }

    /// Number of sets; need not be a power of two. 0 if the description is not valid.
    pub fn sets(&self) -> u64 {
        let row = u64::from(self.ways) * u64::from(self.line);
        self.bytes.checked_div(row).unwrap_or(0)
    }

    /// The largest line size and number of sets a model accepts.
    const MAX_LINE_BYTES: u32 = 4096;
    const MAX_SETS: u64 = 1 << 26;

    /// Checks what a model relies on in each cache by itself.
    pub(super) fn check(&self, place: &'static str) -> Result<(), ModelError> {
        let &Self { bytes, ways, line, .. } = self;
        if !line.is_power_of_two() || !(8..=Self::MAX_LINE_BYTES).contains(&line) {
            return Err(ModelError::LineSize { place, line_bytes: line });
        }
        if ways == 0 || bytes == 0 || !bytes.is_multiple_of(u64::from(ways) * u64::from(line)) {
            return Err(ModelError::CacheSize { place, bytes, ways, line_bytes: line });
        }
        if self.sets() > Self::MAX_SETS {
            return Err(ModelError::TooManySets { place, sets: self.sets(), limit: Self::MAX_SETS });
        }
        Ok(())
    }
}

#[cfg(feature = "std")]
fn default_line_bytes() -> u32 {
    64
}

/// Entries of a TLB for one page size. Fully associative if `ways` equals `entries`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "std", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "std", serde(deny_unknown_fields))]
pub struct TlbEntries {
    /// Number of entries: a multiple of `ways`.
    pub entries: u32,
    /// Entries a set.
    pub ways: u32,
    /// Replacement policy; without one see [`TlbEntries::policy`]. Not RRIP: the first hit after a
    /// fill must change nothing.
    #[cfg_attr(feature = "std", serde(default))]
    pub policy: Option<Policy>,
}

impl TlbEntries {
    /// Fully associative TLBs of more entries than this replace by [`Policy::Clock`] if nothing
    /// else is said: no hardware keeps the order of so many.
    pub const MAX_LRU_ENTRIES: u32 = 16;

    /// Entries of which the policy is not known.
    pub const fn new(entries: u32, ways: u32) -> Self {
        Self { entries, ways, policy: None }
    }

    /// The replacement policy: the one given, else clock for fully associative TLBs of more than
    /// [`Self::MAX_LRU_ENTRIES`] entries and LRU for all others.
    pub fn policy(&self) -> Policy {
        let is_large = self.ways == self.entries && self.entries > Self::MAX_LRU_ENTRIES;
        self.policy.unwrap_or(if is_large { Policy::Clock } else { Policy::Lru })
    }
}

/// One level of data TLB. A page size without entries always misses.
///
/// Hardware that shares entries between page sizes is described by giving each size the whole
/// number: exact for programs that use one size, too large for programs that mix them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "std", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "std", serde(deny_unknown_fields))]
pub struct TlbDescription {
    /// Entries for 4 KiB pages.
    #[cfg_attr(feature = "std", serde(default, rename = "4k"))]
    pub size_4k: Option<TlbEntries>,
    /// Entries for 2 MiB pages.
    #[cfg_attr(feature = "std", serde(default, rename = "2m"))]
    pub size_2m: Option<TlbEntries>,
    /// Entries for 1 GiB pages.
    #[cfg_attr(feature = "std", serde(default, rename = "1g"))]
    pub size_1g: Option<TlbEntries>,
    /// Where the numbers come from.
    #[cfg_attr(feature = "std", serde(default))]
    pub source: String,
}

impl TlbDescription {
    /// Entries by [`PageSize`](crate::PageSize), smallest page first.
    pub fn by_page_size(&self) -> [Option<TlbEntries>; 3] {
        [self.size_4k, self.size_2m, self.size_1g]
    }
}

/// The page walker and its paging-structure caches (Intel SDM volume 3A, section 4.10.3): fully
/// associative, LRU, number of entries each; 0 = none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "std", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "std", serde(deny_unknown_fields))]
pub struct WalkerDescription {
    /// Whether walks read page-table entries through the data caches.
    pub enabled: bool,
    /// Cached PDEs that point to page tables: each spares three reads.
    pub pde_entries: u32,
    /// Cached PDPTEs that point to page directories.
    pub pdpte_entries: u32,
    /// Cached PML4Es.
    pub pml4e_entries: u32,
    /// What the walk of a 4-KiB page takes, by how many walks there were since the last one of that page: `[walks, cycles]`, from 0 walks on,
    /// both rising. What lies further back has left the caches, as have the tables of a virtual machine's host. Empty: each entry read takes the
    /// machine's `walk_access_cycles`.
    #[cfg_attr(feature = "std", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub tiers: Vec<[u32; 2]>,
    /// Where the numbers come from.
    #[cfg_attr(feature = "std", serde(default))]
    pub source: String,
}

impl WalkerDescription {
    /// Tiers at most.
    const MOST_TIERS: usize = 8;
    /// Cycles of a walk at most.
    const MOST_CYCLES: u32 = 1 << 16;

    /// Whether the tiers are few, begin at 0 walks, and rise.
    fn has_rising_tiers(&self) -> bool {
        self.tiers.len() <= Self::MOST_TIERS
            && self.tiers.first().is_none_or(|[walks, _]| *walks == 0)
            && self.tiers.last().is_none_or(|[_, cycles]| *cycles <= Self::MOST_CYCLES)
            && self.tiers.is_sorted_by(|[near, less], [far, more]| near < far && less <= more)
    }

    /// No walks: second-level TLB misses are counted and cost no reads.
    pub const fn disabled() -> Self {
        Self {
            enabled: false,
            pde_entries: 0,
            pdpte_entries: 0,
            pml4e_entries: 0,
            tiers: Vec::new(),
            source: String::new(),
        }
    }
}

impl Default for WalkerDescription {
    fn default() -> Self {
        Self::disabled()
    }
}

/// The hardware prefetcher of a core. It changes no miss; see rule 10 of the crate.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "std", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "std", serde(deny_unknown_fields))]
pub struct PrefetcherDescription {
    /// How many streams it follows at a time, each in a page; 0 = there is none.
    pub streams: u32,
    /// Where the number comes from.
    #[cfg_attr(feature = "std", serde(default))]
    pub source: String,
}

/// What a core can have under way at a time. The model of the caches does not use it: it says how much of their latencies the core
/// waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "std", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "std", serde(deny_unknown_fields))]
pub struct CoreDescription {
    /// Instructions that enter and retire each cycle.
    pub width: u32,
    /// Instructions that have entered and not retired: entries of the reorder buffer.
    pub window: u32,
    /// Instructions that have entered and wait for operands: entries of the schedulers and of queues in front of them.
    pub scheduled: u32,
    /// Instructions of general registers that have entered and wait for operands; 0: as many as of all kinds.
    #[cfg_attr(feature = "std", serde(default))]
    pub integer_scheduled: u32,
    /// Of these, multiplications, where only one of several schedulers takes them; 0: as many.
    #[cfg_attr(feature = "std", serde(default))]
    pub multiply_scheduled: u32,
    /// The same of vector registers; 0: they are among those of general registers.
    #[cfg_attr(feature = "std", serde(default))]
    pub vector_scheduled: u32,
    /// The same of loads and stores that do nothing else; 0: they are among those of general registers.
    #[cfg_attr(feature = "std", serde(default))]
    pub address_scheduled: u32,
    /// Lines that are under way to the first level.
    pub outstanding: u32,
    /// Stores that have not been written to the first level: entries of the store queue.
    pub stores: u32,
    /// Cycles from one line that memory delivers to the next, at best, however many are under way.
    pub line_cycles: u32,
    /// The same of lines whose neighbour, with which they are brought in pairs, is not used; 0 = not known, as for those below.
    #[cfg_attr(feature = "std", serde(default))]
    pub alone_line_cycles: u32,
    /// The same of the levels between the first and the last.
    #[cfg_attr(feature = "std", serde(default))]
    pub l1_line_cycles: u32,
    /// The same of the last level.
    #[cfg_attr(feature = "std", serde(default))]
    pub llc_line_cycles: u32,
    /// Cycles from one line that loads bring into a set of the first level to the next one into that set.
    #[cfg_attr(feature = "std", serde(default))]
    pub set_load_cycles: u32,
    /// The same for stores.
    #[cfg_attr(feature = "std", serde(default))]
    pub set_store_cycles: u32,
    /// The same for lines that are loaded and then stored to, while loads behind bring more lines into the set than it has ways: these
    /// take the line's place before it is written, and it comes twice.
    #[cfg_attr(feature = "std", serde(default))]
    pub set_modify_cycles: u32,
    /// Where the numbers come from.
    #[cfg_attr(feature = "std", serde(default))]
    pub source: String,
}

impl CoreDescription {
    /// The most of anything.
    const MOST: u32 = 1 << 16;

    fn check(&self) -> Result<(), ModelError> {
        let counts = [
            ("width", self.width),
            ("window", self.window),
            ("scheduled", self.scheduled),
            ("outstanding", self.outstanding),
            ("stores", self.stores),
        ];
        let rates = [
            ("integer_scheduled", self.integer_scheduled),
            ("multiply_scheduled", self.multiply_scheduled),
            ("vector_scheduled", self.vector_scheduled),
            ("address_scheduled", self.address_scheduled),
            ("line_cycles", self.line_cycles),
            ("alone_line_cycles", self.alone_line_cycles),
            ("l1_line_cycles", self.l1_line_cycles),
            ("llc_line_cycles", self.llc_line_cycles),
            ("set_load_cycles", self.set_load_cycles),
            ("set_store_cycles", self.set_store_cycles),
            ("set_modify_cycles", self.set_modify_cycles),
        ];
        let no_count = counts.into_iter().find(|(_, count)| !(1..=Self::MOST).contains(count));
        let no_rate = || rates.into_iter().find(|&(_, cycles)| cycles > Self::MOST);
        match no_count.or_else(no_rate) {
            Some((what, count)) => Err(ModelError::CoreSize { what, count, limit: Self::MOST }),
            None => Ok(()),
        }
    }
}

/// A machine: core, caches, TLBs, walker, prefetcher and rules.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "std", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "std", serde(deny_unknown_fields))]
pub struct MachineDescription {
    /// Short name, as given on a command line.
    pub name: String,
    /// The machine in words.
    #[cfg_attr(feature = "std", serde(default))]
    pub description: String,
    /// Line size in bytes of all caches.
    pub line_bytes: u32,
    /// Size in bytes of an ordinary page: 4096, as x86-64 has it. [`Self::validate`] refuses others, of which table
    /// levels and large pages would differ, too.
    pub page_bytes: u32,
    /// Cores with private L1 and L2 that share the last level.
    pub cores: u16,
    /// Accounting rules.
    #[cfg_attr(feature = "std", serde(default))]
    pub rules: Rules,
    /// Last level against the private levels.
    #[cfg_attr(feature = "std", serde(default))]
    pub inclusion: Inclusion,
    /// Latency of a line from memory in core cycles; 0 = not known.
    #[cfg_attr(feature = "std", serde(default))]
    pub dram_latency_cycles: u32,
    /// Latency of a line that another core has modified, in core cycles; 0 = not known, see [`Self::transfer_cycles`].
    #[cfg_attr(feature = "std", serde(default))]
    pub transfer_latency_cycles: u32,
    /// Memory nodes (NUMA), among which the cores are dealt in turn; 0 and 1: one. The model's caches do not use it.
    #[cfg_attr(feature = "std", serde(default))]
    pub nodes: u16,
    /// Latency of a line from another node's memory, in core cycles; 0 = not known.
    #[cfg_attr(feature = "std", serde(default))]
    pub remote_latency_cycles: u32,
    /// What a hit in the second-level TLB costs more, in core cycles; 0 = not known. The model does not
    /// use it.
    #[cfg_attr(feature = "std", serde(default))]
    pub stlb_latency_cycles: u32,
    /// What each page-table entry that a walk reads costs, in core cycles; 0 = not known. The model does
    /// not use it.
    #[cfg_attr(feature = "std", serde(default))]
    pub walk_access_cycles: u32,
    /// First-level instruction cache.
    pub l1i: CacheDescription,
    /// First-level data cache.
    pub l1d: CacheDescription,
    /// Second level, private and unified.
    #[cfg_attr(feature = "std", serde(default))]
    pub l2: Option<CacheDescription>,
    /// Last level, shared and unified.
    pub llc: CacheDescription,
    /// First-level data TLB.
    #[cfg_attr(feature = "std", serde(default))]
    pub dtlb: Option<TlbDescription>,
    /// Second-level TLB. A machine that has this one has a first-level one too.
    #[cfg_attr(feature = "std", serde(default))]
    pub stlb: Option<TlbDescription>,
    /// Page walker.
    #[cfg_attr(feature = "std", serde(default))]
    pub walker: WalkerDescription,
    /// Hardware prefetcher of data.
    #[cfg_attr(feature = "std", serde(default))]
    pub prefetcher: PrefetcherDescription,
    /// Bytes of the last level as the system tells, where less of it is modelled, since others use it, too, or for a prime number of sets;
    /// 0: it is modelled whole.
    #[cfg_attr(feature = "std", serde(default))]
    pub llc_told_bytes: u64,
    /// The core; None: it waits for every access.
    #[cfg_attr(feature = "std", serde(default))]
    pub core: Option<CoreDescription>,
    /// What is not known about this machine or was assumed, for the report.
    #[cfg_attr(feature = "std", serde(default))]
    pub notes: Vec<String>,
}

/// The note of a machine whose latencies are round figures.
pub(super) const ASSUMED_LATENCIES: &str = "latencies are assumed, not measured";
/// The note of one whose latencies were measured briefly.
const BRIEF_LATENCIES: &str = "latencies were measured briefly; `memlens calibrate` measures longer, and how far the last level reaches";

fn is_prime(number: u64) -> bool {
    number > 1 && (2..).take_while(|other| other * other <= number).all(|other| !number.is_multiple_of(other))
}

impl MachineDescription {
    /// Whether its latencies are round figures of any present core.
    pub fn has_assumed_latencies(&self) -> bool {
        self.notes.iter().any(|note| note == ASSUMED_LATENCIES)
    }

    /// Whether its latencies were measured briefly.
    pub fn has_brief_latencies(&self) -> bool {
        self.notes.iter().any(|note| note == BRIEF_LATENCIES)
    }

    /// Cycles until a line comes that another core has modified: never less than from the last level; 0 = neither is known.
    pub fn transfer_cycles(&self) -> u32 {
        self.transfer_latency_cycles.max(self.llc.latency_cycles)
    }

    /// Its latencies are measured ones from now on: briefly, or by `memlens calibrate`.
    pub fn measured_latencies(&mut self, is_brief: bool) {
        self.notes.retain(|note| note != ASSUMED_LATENCIES);
        let note = if is_brief { BRIEF_LATENCIES } else { "latencies were measured by `memlens calibrate`" };
        self.notes.push(note.into());
    }

    /// Bytes of the last level as the system tells.
    pub fn told_llc_bytes(&self) -> u64 {
        self.llc_told_bytes.max(self.llc.bytes)
    }

    /// Models so much of the last level only: as many of its sets as make these bytes, less up to a twentieth, so that their number is a
    /// prime times a power of two, as `host` has them.
    pub fn share_llc(&mut self, bytes: u64) {
        let told_bytes = self.told_llc_bytes();
        let set_bytes = u64::from(self.llc.ways) * u64::from(self.llc.line);
        let had = bytes.checked_div(set_bytes).unwrap_or_default().max(1) * set_bytes;
        if had < self.llc.bytes {
            (self.llc.bytes, self.llc_told_bytes) = (had, told_bytes);
            self.spread_llc();
        }
    }

    /// Gives the last level a number of sets that is a prime times a power of two: a little less, at most a twentieth. Present last levels
    /// find the set, and before it the slice, by a hash of all bits of the address (Maurice et al., Reverse Engineering Intel Last-Level Cache
    /// Complex Addressing, RAID 2015), so that steps of a power of two fall onto all sets. So they do with a prime number of them
    /// (Kharbutli et al., Using Prime Numbers for Cache Indexing, HPCA 2004). The prime is small enough for the staged engine.
    pub(super) fn spread_llc(&mut self) {
        let set_bytes = u64::from(self.llc.ways) * u64::from(self.llc.line);
        let sets = self.llc.bytes.checked_div(set_bytes).unwrap_or_default();
        // Of few sets, which no last level has, a prime number can be much less.
        let Some(others) = (u64::BITS - sets.leading_zeros()).checked_sub(Self::PRIME_BITS) else { return };
        let prime = (2..=sets >> others).rev().find(|&number| is_prime(number));
        self.llc_told_bytes = self.told_llc_bytes();
        self.llc.bytes = prime.map_or(self.llc.bytes, |prime| (prime << others) * set_bytes);
    }

    /// Binary digits of the prime: the odd part that the staged engine takes has no more.
    const PRIME_BITS: u32 = 10;

    /// The most memory nodes.
    const MAX_NODES: u16 = 64;

    /// The most streams that a prefetcher follows.
    const MAX_STREAMS: u32 = 4096;

    /// Checks every number that a model relies on.
    pub fn validate(&self) -> Result<(), ModelError> {
        let mut caches = Vec::from([("l1i", &self.l1i), ("l1d", &self.l1d), ("llc", &self.llc)]);
        caches.extend(self.l2.as_ref().map(|l2| ("l2", l2)));
        for (place, cache) in caches {
            cache.check(place)?;
            if self.rules == Rules::Memlens && cache.line != self.line_bytes {
                return Err(ModelError::LineSizesDiffer {
                    place,
                    line_bytes: cache.line,
                    machine_line_bytes: self.line_bytes,
                });
            }
            if self.rules == Rules::Cachegrind && cache.policy != Policy::Lru {
                return Err(ModelError::CachegrindPolicy { place, policy: cache.policy });
            }
        }
        for (place, tlb) in [("dtlb", &self.dtlb), ("stlb", &self.stlb)] {
            let entries = tlb.iter().flat_map(|tlb| tlb.by_page_size()).flatten();
            for TlbEntries { entries, ways, policy } in entries {
                if ways == 0 || entries == 0 || entries % ways != 0 {
                    return Err(ModelError::TlbSize { place, entries, ways });
                }
                if let Some(policy @ (Policy::Srrip | Policy::Brrip)) = policy {
                    return Err(ModelError::TlbPolicy { place, policy });
                }
            }
        }
        if u64::from(self.page_bytes) != PageSize::Size4K.bytes() {
            return Err(ModelError::PageSize { page_bytes: self.page_bytes });
        }
        if self.stlb.is_some() && self.dtlb.is_none() {
            return Err(ModelError::StlbWithoutDtlb);
        }
        if self.inclusion == Inclusion::Exclusive && self.l2.is_none() {
            return Err(ModelError::ExclusiveWithoutL2);
        }
        if !self.walker.has_rising_tiers() {
            return Err(ModelError::WalkTiers);
        }
        if self.prefetcher.streams > Self::MAX_STREAMS {
            return Err(ModelError::TooManyStreams {
                streams: self.prefetcher.streams,
                limit: Self::MAX_STREAMS,
            });
        }
        if let Some(core) = &self.core {
            core.check()?;
        }
        if self.cores == 0 {
            return Err(ModelError::NoCores);
        }
        if self.nodes > self.cores.min(Self::MAX_NODES) {
            let limit = self.cores.min(Self::MAX_NODES);
            return Err(ModelError::TooManyNodes { nodes: self.nodes, limit });
        }
        Ok(())
    }
}

/// Why a description gives no model. Messages read after "failed to build the memory model: ".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The line size is no power of two from 8 to 4,096.
    #[error("{place}: the line size of {line_bytes} bytes is not a power of two from 8 to 4096")]
    LineSize {
        /// Which cache.
        place: &'static str,
        /// Its line size.
        line_bytes: u32,
    },
    /// All caches of a machine with memlens rules share one line size.
    #[error("{place}: the line size of {line_bytes} bytes differs from the machine's {machine_line_bytes}")]
    LineSizesDiffer {
        /// Which cache.
        place: &'static str,
        /// Its line size.
        line_bytes: u32,
        /// The machine's.
        machine_line_bytes: u32,
    },
    /// The capacity is no multiple of a row.
    #[error("{place}: {bytes} bytes are not a multiple of {ways} ways of {line_bytes} bytes")]
    CacheSize {
        /// Which cache.
        place: &'static str,
        /// Its capacity.
        bytes: u64,
        /// Its ways.
        ways: u32,
        /// Its line size.
        line_bytes: u32,
    },
    /// The cache has more sets than the model can hold.
    #[error("{place}: {sets} sets are more than {limit}")]
    TooManySets {
        /// Which cache.
        place: &'static str,
        /// Its sets.
        sets: u64,
        /// The largest number allowed.
        limit: u64,
    },
    /// The number of entries is no multiple of the ways.
    #[error("{place}: {entries} entries are not a multiple of {ways} ways")]
    TlbSize {
        /// Which TLB.
        place: &'static str,
        /// Its entries.
        entries: u32,
        /// Its ways.
        ways: u32,
    },
    /// TLBs are not replaced by re-reference intervals.
    #[error("{place}: {policy} is a policy of caches, a TLB takes lru, tree-plru, random or clock")]
    TlbPolicy {
        /// Which TLB.
        place: &'static str,
        /// Its policy.
        policy: Policy,
    },
    /// valgrind's cachegrind knows LRU only.
    #[error("{place}: cachegrind's rules replace by lru, not by {policy}")]
    CachegrindPolicy {
        /// Which cache.
        place: &'static str,
        /// Its policy.
        policy: Policy,
    },
    /// Translation is that of x86-64.
    #[error(
        "page_bytes: {page_bytes} is not 4096: TLBs and page tables are modelled for pages of 4 KiB, 2 MiB and 1 GiB"
    )]
    PageSize {
        /// The machine's.
        page_bytes: u32,
    },
    /// A second-level TLB needs a first level.
    #[error("stlb: there is no dtlb")]
    StlbWithoutDtlb,
    /// Tiers of walks do not rise from 0 walks on, or are too many or too long.
    #[error(
        "walker.tiers: there are [walks, cycles], at most 8, the first one's walks 0, both rising, cycles up to 65536"
    )]
    WalkTiers,
    /// An exclusive last level holds what a second level evicts.
    #[error("inclusion: an exclusive last level needs an l2")]
    ExclusiveWithoutL2,
    /// The obvious model knows memlens rules only.
    #[error("rules: this model knows memlens rules only")]
    OtherRules,
    /// The core has none or too many of something.
    #[error("core: {what} = {count} is not from 1 to {limit}")]
    CoreSize {
        /// Of what.
        what: &'static str,
        /// How many.
        count: u32,
        /// The most.
        limit: u32,
    },
    /// The prefetcher follows more streams than the model can hold.
    #[error("prefetcher: {streams} streams are more than {limit}")]
    TooManyStreams {
        /// Its streams.
        streams: u32,
        /// The largest number allowed.
        limit: u32,
    },
    /// Each memory node has a core, and their numbers have room.
    #[error("nodes: {nodes} memory nodes are more than {limit}, as many as there are cores and at most 64")]
    TooManyNodes {
        /// Its nodes.
        nodes: u16,
        /// The largest number allowed.
        limit: u16,
    },
    /// The machine has no core.
    #[error("cores: at least one is needed")]
    NoCores,
}

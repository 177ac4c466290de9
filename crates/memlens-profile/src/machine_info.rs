//! The machine whose caches were modelled, and what an access costs on it.

use memlens_types::Counts;
use serde::{Deserialize, Serialize};

/// Geometry of one cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheInfo {
    /// Capacity.
    pub bytes: u64,
    /// Lines a set holds.
    pub ways: u32,
    /// Replacement policy as the model names it: `lru`, `tree-plru` …
    pub policy: String,
}

/// Geometry of one TLB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlbInfo {
    /// Translations it holds.
    pub entries: u32,
    /// Translations a set holds.
    pub ways: u32,
}

/// Cycles from the issue of an access to its data, by the level that serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// First-level hit.
    pub l1_cycles: u32,
    /// Second-level hit.
    pub l2_cycles: u32,
    /// Last-level hit.
    pub llc_cycles: u32,
    /// Served by memory.
    pub dram_cycles: u32,
    /// Extra cycles when the first-level TLB misses and the second hits.
    pub stlb_cycles: u32,
    /// Extra cycles for each page-table entry a walk reads. The entries' own cache levels are not
    /// kept in a profile, so this is one average, usually the second-level latency.
    pub walk_access_cycles: u32,
    /// A line that another core has modified; 0: not known, and taken to be what the last level costs.
    #[serde(default)]
    pub transfer_cycles: u32,
    /// Served by the memory of another node; 0: not known.
    #[serde(default)]
    pub remote_cycles: u32,
}

impl Default for Latencies {
    /// Round figures of a present server core: 4, 14, 50, 250, 7, 14 and 100 cycles. Machines that state none get them, but for the
    /// last, in whose place the last level's latency is then. Of other nodes' memory nothing is stated.
    fn default() -> Self {
        Self {
            l1_cycles: 4,
            l2_cycles: 14,
            llc_cycles: 50,
            dram_cycles: 250,
            stlb_cycles: 7,
            walk_access_cycles: 14,
            transfer_cycles: 100,
            remote_cycles: 0,
        }
    }
}

/// What walks take that are so far from the last one of their page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkTier {
    /// Walks in between, at least.
    pub from_walks: u32,
    /// Cycles of each.
    pub cycles: u32,
}

/// What one level served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Accesses.
    pub accesses: u64,
    /// What each of them waits.
    pub latency_cycles: u32,
    /// Whether it is memory.
    pub is_memory: bool,
}

/// What a core can have under way at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreInfo {
    /// Instructions that enter and retire each cycle.
    pub width: u32,
    /// Instructions in its reorder buffer.
    pub window: u32,
    /// Instructions in it that wait for operands: entries of the schedulers and of queues in front of them.
    pub scheduled: u32,
    /// Instructions of general registers that have entered and wait for operands; 0: as many as of all kinds.
    #[serde(default)]
    pub integer_scheduled: u32,
    /// Of these, multiplications, where only one of several schedulers takes them; 0: as many.
    #[serde(default)]
    pub multiply_scheduled: u32,
    /// The same of vector registers; 0: they are among those of general registers.
    #[serde(default)]
    pub vector_scheduled: u32,
    /// The same of loads and stores that do nothing else; 0: they are among those of general registers.
    #[serde(default)]
    pub address_scheduled: u32,
    /// Lines under way to the first level.
    pub outstanding: u32,
    /// Stores that wait to be written.
    pub stores: u32,
    /// Cycles from one line of memory to the next, at best.
    pub line_cycles: u32,
    /// The same of lines whose neighbour, with which they are brought in pairs, is not used; 0: not known, and not modelled, as for those below.
    #[serde(default)]
    pub alone_line_cycles: u32,
    /// The same of the levels that the core does not share.
    #[serde(default)]
    pub l1_line_cycles: u32,
    /// The same of the last level.
    #[serde(default)]
    pub llc_line_cycles: u32,
    /// Cycles from one line that loads bring into a set of the first level to the next one into that set.
    #[serde(default)]
    pub set_load_cycles: u32,
    /// The same for stores.
    #[serde(default)]
    pub set_store_cycles: u32,
    /// The same for lines that are loaded and then stored to, which others of their set drive out in between.
    #[serde(default)]
    pub set_modify_cycles: u32,
}

impl CoreInfo {
    /// Sets of the first level that a walk falls onto, at most, where [`Self::set_modify_cycles`] counts: by steps of 512 bytes, through
    /// eight sets of 64, pairs of a load and a store take no longer than the second level (Zen 4).
    pub const CROWDED_SETS: u32 = 6;
}

/// The modelled machine. A level that is `None` was not modelled: its counts are unknown, not 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineInfo {
    /// `host`, `cachegrind`, `e5504` …, or the file it was read from.
    pub name: String,
    /// One line for people: the processor's name, or where the numbers come from.
    pub description: Option<String>,
    /// Bytes of a cache line.
    pub line_bytes: u32,
    /// Bytes of the smallest page.
    pub page_bytes: u32,
    /// First-level instruction cache.
    pub l1i: Option<CacheInfo>,
    /// First-level data cache.
    pub l1d: Option<CacheInfo>,
    /// Second level.
    pub l2: Option<CacheInfo>,
    /// Last level.
    pub llc: Option<CacheInfo>,
    /// Bytes of the last level as the system told, where less of it was modelled because others use it, too.
    #[serde(default)]
    pub llc_told_bytes: Option<u64>,
    /// First-level data TLB.
    pub dtlb: Option<TlbInfo>,
    /// Second-level TLB.
    pub stlb: Option<TlbInfo>,
    /// Streams that the modelled hardware prefetcher follows; 0: none was modelled.
    #[serde(default)]
    pub prefetcher_streams: u32,
    /// What a hit costs where.
    pub latencies: Latencies,
    /// What a walk of one of the smallest pages takes, by how far it is from the last one of that page, nearest first; empty: each entry read
    /// takes the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub walk_tiers: Vec<WalkTier>,
    /// Whether these were never measured on a machine of this kind.
    #[serde(default)]
    pub has_assumed_latencies: bool,
    /// Whether they were measured briefly, at the first run, and not by `memlens calibrate`.
    #[serde(default)]
    pub has_brief_latencies: bool,
    /// The core; None: not described.
    #[serde(default)]
    pub core: Option<CoreInfo>,
    /// Memory nodes (NUMA) that are told apart; 0 or 1: none are.
    #[serde(default)]
    pub nodes: u32,
    /// Whose accounting rules were used: `memlens` or `cachegrind`.
    pub rules: String,
    /// Whether the last level includes the upper ones: `inclusive`, `exclusive`, `non-inclusive`.
    pub inclusion: Option<String>,
}

impl MachineInfo {
    /// Accesses weighted by the latency of the level that served them, plus translation, in cycles
    /// of a core that waits for every access. Overlap of misses is not modelled.
    ///
    /// With *a* accesses that wait ([`Counts::waiting`]), *m₁*, *m₂*, *m₃* misses of the three levels, *t₁*, *t₂* TLB misses and *w*
    /// page-table entries read, and *f₁*, *f₂*, *f₃* misses of instruction fetches, where these are modelled:
    ///
    /// ```text
    /// (a − m₁)·L1 + (m₁ + f₁ − m₂ − f₂)·L2 + (m₂ + f₂ − m₃ − f₃)·LLC + (m₃ + f₃)·DRAM
    /// + (t₁ − t₂)·STLB + w·WALK + c·(TRANSFER − LLC) + (r + p/OUTSTANDING)·(REMOTE − DRAM)
    /// ```
    ///
    /// *m₂* and *m₃* are without the misses whose lines a hardware prefetcher has asked for before: these wait for the
    /// second level. Fetches that hit the first level keep nobody waiting.
    ///
    /// *c* coherence misses are misses of the first two levels that wait for another core instead of the last one, *r* remote misses
    /// for another node's memory ([`Self::remote_cycles`]), without the *p* that were prefetched: of these as many lines are under way as the
    /// core keeps, so that each comes later by its part of the difference.
    ///
    /// A level that is not modelled drops out: what would hit there is served by the next. Terms may go below 0, so that
    /// the wait of several rows is that of their sum: an access over two lines can miss twice, is then charged twice, and
    /// one hit less.
    pub fn wait_cycles(&self, counts: &Counts) -> u64 {
        let fetched = &counts.fetched;
        let code = [fetched.l1i_misses, fetched.l2i_misses, fetched.llci_misses];
        let levels = self.by_level(counts.waiting(), self.misses(counts));
        let cycles = levels.chain(self.by_level(fetched.l1i_misses, code)).map(Served::cycles).sum::<i128>();
        let apart = i128::from(counts.shared.coherence_misses)
            * i128::from(self.transfer_cycles() - self.shared_level_cycles())
            + self.remote(counts);
        u64::try_from((cycles + self.translation(counts) + apart).max(0)).unwrap_or(u64::MAX)
    }

    /// [`Self::wait_cycles`] beyond the first level's latency of every access, in cycles: out-of-order execution hides that
    /// nearly always.
    pub fn wait_beyond_first_level(&self, counts: &Counts) -> u64 {
        let hidden = self.l1d.as_ref().map_or(0, |_| u64::from(self.latencies.l1_cycles));
        self.wait_cycles(counts).saturating_sub(counts.waiting().saturating_mul(hidden))
    }

    /// Whether counts of both machines can be added: all that is known of both is the same.
    pub fn is_like(&self, other: &Self) -> bool {
        let known = |machine: &Self| machine.latencies.transfer_cycles > 0;
        let transfer_cycles = match known(self) && known(other) {
            true => other.latencies.transfer_cycles,
            false => self.latencies.transfer_cycles,
        };
        // Nor did older versions know what pairs of a load and a store take of a set, and what a line alone does of memory.
        let either = |own: u32, others: u32| if own.min(others) == 0 { own } else { others };
        let core = match (self.core, other.core) {
            (Some(own), Some(others)) => Some(CoreInfo {
                set_modify_cycles: either(own.set_modify_cycles, others.set_modify_cycles),
                alone_line_cycles: either(own.alone_line_cycles, others.alone_line_cycles),
                ..others
            }),
            (_, others) => others,
        };
        // Of one node nothing is remote, and older versions knew of none.
        let (nodes, remote_cycles) = match self.has_nodes() || other.has_nodes() {
            true => (other.nodes, other.latencies.remote_cycles),
            false => (self.nodes, self.latencies.remote_cycles),
        };
        let other = Self {
            core,
            nodes,
            latencies: Latencies { transfer_cycles, remote_cycles, ..other.latencies },
            has_assumed_latencies: self.has_assumed_latencies,
            has_brief_latencies: self.has_brief_latencies,
            llc_told_bytes: self.llc_told_bytes,
            ..other.clone()
        };
        *self == other
    }

    /// What a coherence miss waits: never less than one that the last level serves.
    pub fn transfer_cycles(&self) -> u32 {
        self.latencies.transfer_cycles.max(self.shared_level_cycles())
    }

    /// Whether memory nodes are told apart.
    pub fn has_nodes(&self) -> bool {
        self.nodes > 1
    }

    /// What a miss waits that another node's memory serves, never less than one of the own. Where it is not known it is seven tenths
    /// more, as between the sockets of present servers (Intel's Memory Latency Checker on Xeons of the fourth generation: some 110 and 190 ns).
    pub fn remote_cycles(&self) -> u32 {
        let own = self.latencies.dram_cycles;
        match self.latencies.remote_cycles {
            0 => own + own / 10 * 7,
            known => known.max(own),
        }
    }

    fn remote(&self, counts: &Counts) -> i128 {
        let farther = self.remote_cycles() - self.latencies.dram_cycles;
        let a_prefetched = self.core.map_or(0, |core| farther / core.outstanding.max(1));
        let prefetched = counts.numa.remote_prefetched;
        let others = counts.numa.remote_misses.saturating_sub(prefetched);
        i128::from(others) * i128::from(farther) + i128::from(prefetched) * i128::from(a_prefetched)
    }

    /// What serves a line that only other cores have had.
    fn shared_level_cycles(&self) -> u32 {
        if self.llc.is_some() { self.latencies.llc_cycles } else { self.latencies.dram_cycles }
    }

    /// How many data accesses that wait ([`Counts::waiting`]) each level served that is modelled, the first one first, memory last.
    pub fn served(&self, counts: &Counts) -> Vec<Level> {
        let levels = self.by_level(counts.waiting(), self.misses(counts));
        levels.map(|served| Level { accesses: served.accesses.max(0) as u64, ..served.level }).collect()
    }

    /// What translating addresses took besides, in cycles.
    pub fn translation_cycles(&self, counts: &Counts) -> u64 {
        u64::try_from(self.translation(counts).max(0)).unwrap_or(u64::MAX)
    }

    fn translation(&self, counts: &Counts) -> i128 {
        let second_level_hits = match self.dtlb.is_some() && self.stlb.is_some() {
            true => i128::from(counts.dtlb_misses) - i128::from(counts.stlb_misses),
            false => 0,
        };
        let walk = match counts.walk_cycles {
            0 => i128::from(counts.page_walk_accesses) * i128::from(self.latencies.walk_access_cycles),
            known => i128::from(known),
        };
        second_level_hits * i128::from(self.latencies.stlb_cycles) + walk
    }

    /// Misses of each level that wait for the next.
    fn misses(&self, counts: &Counts) -> [u64; 3] {
        [
            counts.l1_misses(),
            counts.l2_misses().saturating_sub(counts.l2_prefetched),
            counts.llc_misses().saturating_sub(counts.llc_prefetched),
        ]
    }

    /// What serves so many accesses, which miss so often in each of the levels.
    fn by_level(&self, accesses: u64, [l1, l2, llc]: [u64; 3]) -> impl Iterator<Item = Served> {
        let latencies = &self.latencies;
        let levels = [
            (self.l1d.is_some(), l1, latencies.l1_cycles),
            (self.l2.is_some(), l2, latencies.l2_cycles),
            (self.llc.is_some(), llc, latencies.llc_cycles),
            (true, 0, latencies.dram_cycles),
        ];
        let mut waiting = accesses;
        let modelled = levels.into_iter().enumerate().filter(|(_, (is_modelled, ..))| *is_modelled);
        modelled.map(move |(number, (_, misses, latency_cycles))| {
            let accesses = i128::from(waiting) - i128::from(misses);
            waiting = misses;
            Served { accesses, level: Level { accesses: 0, latency_cycles, is_memory: number == 3 } }
        })
    }
}

/// What a level serves, below 0 where more lines than accesses miss in it.
struct Served {
    accesses: i128,
    /// Without the accesses.
    level: Level,
}

impl Served {
    fn cycles(self) -> i128 {
        self.accesses * i128::from(self.level.latency_cycles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_types::{Fetched, Numa};

    fn machine() -> MachineInfo {
        let cache = Some(CacheInfo { bytes: 32768, ways: 8, policy: "lru".into() });
        let tlb = Some(TlbInfo { entries: 64, ways: 4 });
        MachineInfo {
            l1d: cache.clone(),
            l2: cache.clone(),
            llc: cache,
            dtlb: tlb,
            stlb: tlb,
            ..MachineInfo::default()
        }
    }

    fn counts() -> Counts {
        // 60 loads + 50 stores of which 10 are modifies: 100 accesses; 30, 20 and 5 misses.
        Counts {
            loads: 60,
            stores: 50,
            modifies: 10,
            l1_load_misses: 20,
            l1_store_misses: 10,
            l2_load_misses: 20,
            llc_load_misses: 5,
            dtlb_misses: 8,
            stlb_misses: 3,
            page_walk_accesses: 6,
            ..Counts::default()
        }
    }

    // The latencies are the default: 4, 14, 50 and 250 cycles, 7 for the STLB, 14 for an entry of a walk.
    #[test]
    fn each_level_is_charged_for_what_it_serves() {
        // 70·4 + 10·14 + 15·50 + 5·250 + (8−3)·7 + 6·14 = 280+140+750+1250+35+84 = 2539.
        assert_eq!(machine().wait_cycles(&counts()), 2539);
        assert_eq!(machine().wait_cycles(&Counts::default()), 0);
        // Elements of a string instruction that come with others of their line.
        assert_eq!(machine().wait_cycles(&Counts { followers: 40, ..counts() }), 2539 - 160);
        // Fetches add (9−4)·14 + (4−1)·50 + 1·250 = 470; those that hit cost nothing.
        let fetched = Fetched { fetches: 1000, l1i_misses: 9, l2i_misses: 4, llci_misses: 1 };
        assert_eq!(machine().wait_cycles(&Counts { fetched, ..counts() }), 2539 + 470);
    }

    #[test]
    fn a_line_from_another_core_takes_its_own_time() {
        let mut counts = counts();
        counts.shared.coherence_misses = 6;
        // 6·(100−50) more than the last level takes.
        assert_eq!(machine().wait_cycles(&counts), 2539 + 300);
        let mut unknown = machine();
        unknown.latencies.transfer_cycles = 0;
        assert_eq!((unknown.wait_cycles(&counts), unknown.transfer_cycles()), (2539, 50));
        // Without a last level memory serves it.
        let two_levels = MachineInfo { llc: None, ..machine() };
        assert_eq!(two_levels.transfer_cycles(), 250);
        // An older profile of the same machine, and another machine.
        let mut other = machine();
        other.has_assumed_latencies = true;
        assert!(machine().is_like(&unknown) && unknown.is_like(&machine()) && machine().is_like(&other));
        other.latencies.transfer_cycles = 90;
        assert!(!machine().is_like(&other));
        let of = |set_modify_cycles| MachineInfo {
            core: Some(CoreInfo { set_modify_cycles, ..CoreInfo::default() }),
            ..machine()
        };
        assert!(of(0).is_like(&of(45)) && of(45).is_like(&of(0)) && !of(30).is_like(&of(45)));
        assert!(!of(0).is_like(&machine()));
        let of = |alone_line_cycles| MachineInfo {
            core: Some(CoreInfo { alone_line_cycles, ..CoreInfo::default() }),
            ..machine()
        };
        assert!(of(0).is_like(&of(25)) && of(25).is_like(&of(0)) && !of(24).is_like(&of(25)));
    }

    #[test]
    fn machines_of_one_node_are_alike_whatever_is_known_of_others() {
        let of = |nodes, remote_cycles| {
            let mut machine = machine();
            (machine.nodes, machine.latencies.remote_cycles) = (nodes, remote_cycles);
            machine
        };
        assert!(of(0, 0).is_like(&of(1, 400)) && of(1, 400).is_like(&of(0, 0)));
        assert!(!of(1, 0).is_like(&of(2, 0)) && !of(2, 0).is_like(&of(1, 0)));
        assert!(!of(2, 300).is_like(&of(2, 400)) && of(2, 300).is_like(&of(2, 300)));
    }

    #[test]
    fn another_nodes_memory_takes_longer() {
        let mut counts = counts();
        counts.numa = Numa { remote_misses: 4, remote_prefetched: 1, misplaced: 2, first_touches: 9 };
        let mut machine = machine();
        // (4−1)·(425−250) more: seven tenths of 250 are assumed, until it is known.
        assert_eq!(machine.wait_cycles(&counts), 2539 + 525);
        machine.latencies.remote_cycles = 400;
        assert_eq!(machine.wait_cycles(&counts), 2539 + 450);
        machine.latencies.remote_cycles = 100;
        assert_eq!((machine.wait_cycles(&counts), machine.remote_cycles()), (2539, 250));
        // Of those that are prefetched ten are under way: 3·150 + 1·15.
        machine.latencies.remote_cycles = 400;
        machine.core = Some(CoreInfo { outstanding: 10, ..CoreInfo::default() });
        assert_eq!(machine.wait_cycles(&counts), 2539 + 450 + 15);
    }

    #[test]
    fn what_was_prefetched_is_served_by_the_second_level() {
        // 8 of 20 second-level misses, of which memory serves 3: 8·(50−14) and 3·(250−50) less.
        let counts = Counts { l2_prefetched: 8, llc_prefetched: 3, ..counts() };
        assert_eq!(machine().wait_cycles(&counts), 2539 - 288 - 600);
        // Without a second level the last one serves it: 3·(250−50) less.
        let two_levels = MachineInfo { l2: None, ..machine() };
        let without = Counts { l2_prefetched: 0, llc_prefetched: 0, ..counts };
        let counts = Counts { l2_prefetched: 0, ..counts };
        assert_eq!(two_levels.wait_cycles(&counts), two_levels.wait_cycles(&without) - 600);
    }

    #[test]
    fn a_missing_level_is_served_by_the_next() {
        // Two levels, no TLBs: 70·4 + (30−5)·50 + 5·250 = 2780; walks are 0 then.
        let machine = MachineInfo { l2: None, dtlb: None, stlb: None, ..machine() };
        let counts = Counts { page_walk_accesses: 0, ..counts() };
        assert_eq!(machine.wait_cycles(&counts), 2780);
    }

    #[test]
    fn an_access_over_two_lines_is_charged_twice() {
        // One access, two lines missed everywhere: −1 hits of 4, 2·250.
        let counts = Counts {
            loads: 1,
            l1_load_misses: 2,
            l2_load_misses: 2,
            llc_load_misses: 2,
            ..Counts::default()
        };
        assert_eq!(machine().wait_cycles(&counts), 496);
        // Together with three hits as by itself.
        let hits = Counts { loads: 3, ..Counts::default() };
        let both = Counts { loads: 4, ..counts };
        assert_eq!(machine().wait_cycles(&both), 496 + machine().wait_cycles(&hits));
        assert_eq!(
            machine().served(&counts).iter().map(|level| level.accesses).collect::<Vec<_>>(),
            [0, 0, 0, 2]
        );
    }
}

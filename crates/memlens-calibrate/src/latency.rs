//! Load-to-use latencies by the size of what is walked through.
//!
//! A latency is the time of one step of a [`Chain`], in cycles (`clock.rs`).

use std::io;

use crate::chain::Chain;
use crate::clock::{Latency, PASSES, TURNS, cycle_ns, least_and_spread};
use crate::mapping::{LINE, PAGE, Pages};
use crate::nodes::{self, NodeLatency};
use crate::transfer::{self, MOST_PARTNERS, PATIENCE};

/// Memory that is walked through for the latency of memory, in bytes at most.
const MOST_BYTES: u64 = 512 << 20;
/// The same at least, however little there seems to be.
const LEAST_BYTES: u64 = 16 << 20;

/// Memory of another node that is walked through, in bytes at most, and how many nodes.
const MOST_BYTES_OF_NODE: u64 = 128 << 20;
const MOST_NODES: usize = 8;

/// Times that pages are walked through before it counts.
const ROUNDS_BEFORE: usize = 6;

/// Sizes of the caches and TLBs to measure. Units: bytes; translations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// First level, data.
    pub l1_bytes: u64,
    /// What one of its ways holds: from a line to the next one of the same set.
    pub l1_set_bytes: u64,
    /// Second level; 0 if there is none.
    pub l2_bytes: u64,
    /// Last level.
    pub llc_bytes: u64,
    /// First-level data TLB, 4 KB pages.
    pub dtlb_entries: u32,
    /// Second-level TLB, 4 KB pages.
    pub stlb_entries: u32,
    /// Memory that may be used.
    pub available_bytes: u64,
}

/// What walking through memory of one size costs a step.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct CurvePoint {
    /// The size.
    pub bytes: u64,
    /// In pages of 4 KB.
    pub small_pages: Latency,
    /// In pages of 2 MB; `None`: the kernel gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<Latency>,
}

/// What a page walk costs if so many pages are gone through at random.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct WalkPoint {
    /// Pages of 4 KB.
    pub pages: u64,
    /// What each of their walks takes.
    pub cycles: Latency,
}

/// What accesses cost, by the level that serves them.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LatencyTable {
    /// Nanoseconds of a core cycle.
    pub cycle_ns: f64,
    /// How far the middle measurement of a cycle lies above the least, as a part of it.
    pub cycle_spread: f64,
    /// First level.
    pub l1: Latency,
    /// Second level; `None`: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2: Option<Latency>,
    /// Last level.
    pub llc: Latency,
    /// Memory.
    pub dram: Latency,
    /// What it costs more if the first-level TLB misses and the second one hits; `None`: an older version could not tell it apart, for want
    /// of huge pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stlb: Option<Latency>,
    /// What it costs more if both miss: one walk, which reads one entry of a table where the processor keeps the upper ones. The middle of
    /// several mappings, of as many pages as [`Self::walks`] begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub walk: Option<Latency>,
    /// The same by how many pages are gone through at random; empty: no huge pages, an older version, or measured briefly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub walks: Vec<WalkPoint>,
    /// A line that another core has written; `None`: there is no other core, or an older version did not measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<Latency>,
    /// Memory of other nodes than that of the processor it was measured on; empty: there is one node, or the kernel does not let it be asked
    /// for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeLatency>,
    /// Up to which size the last level serves what is walked through. Less than it is said to hold where
    /// others use it too, as on most virtual machines.
    pub llc_reach_bytes: u64,
    /// By size.
    pub curve: Vec<CurvePoint>,
}

impl LatencyTable {
    /// Measures all of it; some seconds.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn measure(geometry: &Geometry) -> io::Result<Self> {
        let mut passes = Vec::with_capacity(PASSES);
        for _ in 0..PASSES {
            passes.push(Self::pass(geometry)?);
        }
        let sizes = Sizes::of(geometry);
        let bytes = sizes.dram.min(MOST_BYTES_OF_NODE);
        let nodes = nodes::of_others(MOST_NODES, bytes as usize, || best_chain(TURNS, bytes).map(Some))?;
        Ok(Self { nodes, ..Self::joined(&passes, sizes.llc) })
    }

    /// The least of each, and what the passes differ by.
    pub(crate) fn joined(passes: &[Self], llc_bytes: u64) -> Self {
        let least = |of: &dyn Fn(&Self) -> Option<Latency>| Latency::least(passes.iter().filter_map(of));
        let known = |of: &dyn Fn(&Self) -> Latency| least(&|pass| Some(of(pass))).unwrap_or_default();
        let cycle = known(&|pass| Latency { cycles: pass.cycle_ns, spread: pass.cycle_spread });
        let points = passes.iter().map(|pass| pass.curve.len()).min().unwrap_or(0);
        let curve: Vec<CurvePoint> = (0..points)
            .map(|at| CurvePoint {
                bytes: passes[0].curve[at].bytes,
                small_pages: known(&|pass| pass.curve[at].small_pages),
                huge_pages: least(&|pass| pass.curve[at].huge_pages),
            })
            .collect();
        let points = passes.iter().map(|pass| pass.walks.len()).min().unwrap_or(0);
        let walks: Vec<WalkPoint> = (0..points)
            .map(|at| WalkPoint {
                cycles: Latency::middle(passes.iter().map(|pass| pass.walks[at].cycles)).unwrap_or_default(),
                ..passes[0].walks[at]
            })
            .collect();
        let mut table = Self {
            cycle_ns: cycle.cycles,
            cycle_spread: cycle.spread,
            l1: known(&|pass| pass.l1),
            l2: least(&|pass| pass.l2),
            llc: known(&|pass| pass.llc),
            dram: known(&|pass| pass.dram),
            stlb: least(&|pass| pass.stlb),
            // Where the entries lie, those of a virtual machine's host among them, is another in each pass, and stays so for the whole of it: no
            // turn of it is faster than that. So the middle pass is taken, and not the least.
            walk: Latency::middle(passes.iter().filter_map(|pass| pass.walk)),
            walks,
            transfer: least(&|pass| pass.transfer),
            nodes: Vec::new(),
            llc_reach_bytes: 0,
            curve,
        };
        if !table.curve.is_empty() {
            table.llc_reach_bytes = table.reach(llc_bytes);
        }
        table
    }

    fn pass(geometry: &Geometry) -> io::Result<Self> {
        let mut table = Self::default();
        (table.cycle_ns, table.cycle_spread) = cycle(TURNS);
        let sizes = Sizes::of(geometry);
        let mut bytes = (PAGE as u64).min(sizes.l1);
        while bytes <= sizes.dram {
            table.curve.push(CurvePoint {
                bytes,
                small_pages: small(TURNS, bytes)?,
                huge_pages: huge(TURNS, bytes),
            });
            bytes *= 2;
        }
        for pages in walked_pages(geometry) {
            let Ok(mut huge) = Chain::over_lines_of_pages(pages, Pages::Huge) else { break };
            let huge = usual(&mut huge);
            let small = usual(&mut Chain::over_lines_of_pages(pages, Pages::Small)?);
            table.walks.push(WalkPoint { pages: pages as u64, cycles: more(small, huge) });
        }
        table.walk = table.walks.first().map(|walk| walk.cycles);
        table.l1 = small(TURNS, sizes.l1)?;
        table.l2 = sizes.l2.map(|bytes| best(TURNS, bytes)).transpose()?;
        table.llc = best(TURNS, sizes.llc)?;
        table.dram = best(TURNS, sizes.dram)?;
        table.stlb = Some(extra(TURNS, sizes.dtlb_pages)?);
        table.transfer = transfer::measure(MOST_PARTNERS, PATIENCE)?;
        Ok(table)
    }

    /// The largest size, from that on which the last level was measured with, whose latency is nearer to
    /// the last level's than to memory's.
    fn reach(&self, from: u64) -> u64 {
        let middle = (self.llc.cycles + self.dram.cycles) / 2.0;
        let served = |point: &&CurvePoint| {
            point.bytes < from || point.huge_pages.unwrap_or(point.small_pages).cycles < middle
        };
        self.curve.iter().take_while(served).last().map_or(from, |point| point.bytes.max(from))
    }

    /// Memory of another node, whichever; `None`: see [`Self::nodes`].
    pub fn remote(&self) -> Option<Latency> {
        nodes::mean(&self.nodes)
    }

    /// The nearest of the other nodes, and the farthest, if several were measured.
    pub fn nearest_and_farthest_node(&self) -> Option<(NodeLatency, NodeLatency)> {
        nodes::nearest_and_farthest(&self.nodes)
    }

    /// Every latency with its name, in the order of levels.
    pub fn levels(&self) -> Vec<(&'static str, Latency)> {
        let all = [
            ("first level", Some(self.l1)),
            ("second level", self.l2),
            ("last level", Some(self.llc)),
            ("memory", Some(self.dram)),
            ("another node", self.remote()),
            ("second-level TLB", self.stlb),
            ("page walk", self.walk),
            ("another core", self.transfer),
        ];
        all.into_iter().filter_map(|(name, latency)| Some((name, latency?))).collect()
    }
}

/// How much is walked through for each level.
pub(crate) struct Sizes {
    pub(crate) l1: u64,
    pub(crate) l2: Option<u64>,
    /// The same where many lines are under way, so that TLBs are not waited for.
    pub(crate) l2_half: Option<u64>,
    pub(crate) llc: u64,
    pub(crate) dram: u64,
    pub(crate) dtlb_pages: usize,
}

impl Sizes {
    pub(crate) fn of(geometry: &Geometry) -> Self {
        let whole = |bytes: u64| (bytes / PAGE as u64).max(1) * PAGE as u64;
        let above = geometry.l2_bytes.max(geometry.l1_bytes);
        let has_l2 = geometry.l2_bytes > 2 * geometry.l1_bytes;
        Self {
            // Half: what else lies in the cache must not matter.
            l1: whole(geometry.l1_bytes / 2),
            // No more than the first TLB reaches, unless the first cache would hold much of that: a virtual machine's huge pages may be
            // small ones in truth.
            l2: has_l2.then(|| {
                let reached = u64::from(geometry.dtlb_entries) * PAGE as u64 / 4 * 3;
                whole((geometry.l2_bytes / 2).min(reached.max(4 * geometry.l1_bytes)))
            }),
            l2_half: has_l2.then(|| whole(geometry.l2_bytes / 2)),
            // Well above the level before, and no more: others use it, too.
            llc: whole((above * 6).min(geometry.llc_bytes / 2).max(above)),
            dram: whole(
                (geometry.llc_bytes * 4)
                    .clamp(64 << 20, MOST_BYTES)
                    .min((geometry.available_bytes / 4).max(LEAST_BYTES)),
            ),
            // Eight times what the first holds: some processors put four neighbouring pages into one
            // entry (AMD64 software optimisation guides, "page coalescing").
            dtlb_pages: (geometry.dtlb_entries as usize * 8).min(geometry.stlb_entries as usize / 2).max(8),
        }
    }
}

/// Nanoseconds of a core cycle, and how far they spread.
pub(crate) fn cycle(turns: usize) -> (f64, f64) {
    let mut all: Vec<f64> = (0..turns).map(|_| cycle_ns()).collect();
    least_and_spread(&mut all)
}

/// Of how many pages walks are measured: four times as many as the second-level TLB has entries, then four times as many each time, up to
/// `MOST_BYTES` and a quarter of what is available.
fn walked_pages(geometry: &Geometry) -> Vec<usize> {
    let most = MOST_BYTES.min(geometry.available_bytes / 4) / PAGE as u64;
    let mut all = Vec::new();
    let mut pages = u64::from(geometry.stlb_entries) * 4;
    while all.last().map_or(pages <= most, |last| 2 * last <= pages as usize) {
        all.push(pages as usize);
        pages = (pages * 4).min(most);
    }
    all
}

/// The latency of a step of a chain.
fn latency(turns: usize, chain: &mut Chain) -> Latency {
    Latency::of_a_step(turns, Chain::LINES_A_STEP, |steps| chain.walk(steps))
}

/// The same of the middle turn of many, a tenth of a second: what walks find in the last level others drive out now and then, which no
/// moment tells.
fn usual(chain: &mut Chain) -> Latency {
    const TURNS: usize = 400;
    let least = latency(TURNS, chain);
    Latency { cycles: least.cycles * (1.0 + least.spread), ..least }
}

/// A step through so many bytes of ordinary pages.
pub(crate) fn small(turns: usize, bytes: u64) -> io::Result<Latency> {
    Ok(latency(turns, &mut Chain::over(bytes as usize, Pages::Small)?))
}

/// The same of huge pages, if there are any.
fn huge(turns: usize, bytes: u64) -> Option<Latency> {
    Chain::over(bytes as usize, Pages::Huge).ok().map(|mut chain| latency(turns, &mut chain))
}

/// In huge pages, if there are any.
pub(crate) fn best(turns: usize, bytes: u64) -> io::Result<Latency> {
    Ok(best_chain(turns, bytes)?.0)
}

/// The same with the memory that was gone through.
fn best_chain(turns: usize, bytes: u64) -> io::Result<(Latency, Chain)> {
    let of = |pages| Chain::over(bytes as usize, pages);
    let mut chain = of(Pages::Huge).or_else(|_| of(Pages::Small))?;
    Ok((latency(turns, &mut chain), chain))
}

/// What a line in each of `pages` ordinary pages costs more than the same lines in huge ones, or than as many side by side: where there
/// are no huge pages, or the host of a virtual machine backs them with small ones.
pub(crate) fn extra(turns: usize, pages: usize) -> io::Result<Latency> {
    // Translations come to rest later than lines: on a virtual machine with Zen 4 after four rounds.
    let at_rest = |mut chain: Chain| {
        chain.walk(ROUNDS_BEFORE * pages / Chain::LINES_A_STEP);
        latency(turns, &mut chain)
    };
    let small = at_rest(Chain::over_pages(pages, Pages::Small)?);
    let beside = at_rest(Chain::over(pages * LINE, Pages::Small)?);
    let huge = Chain::over_pages(pages, Pages::Huge).ok().map(at_rest);
    let without = huge.filter(|huge| huge.cycles < beside.cycles).unwrap_or(beside);
    Ok(more(small, without))
}

/// How much more one latency is than another; never less than nothing.
fn more(with: Latency, without: Latency) -> Latency {
    Latency { cycles: (with.cycles - without.cycles).max(0.0), spread: with.spread.max(without.spread) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        Geometry {
            l1_bytes: 32 << 10,
            l1_set_bytes: 4 << 10,
            l2_bytes: 512 << 10,
            llc_bytes: 32 << 20,
            dtlb_entries: 64,
            stlb_entries: 2048,
            available_bytes: 8 << 30,
        }
    }

    #[test]
    fn each_level_is_measured_where_only_it_can_serve() {
        let sizes = Sizes::of(&geometry());
        assert_eq!((sizes.l1, sizes.l2, sizes.llc), (16 << 10, Some(192 << 10), 3 << 20));
        assert_eq!((sizes.dram, sizes.dtlb_pages), (128 << 20, 512));
        // A TLB that reaches no farther than the first level.
        let near = Sizes::of(&Geometry { dtlb_entries: 16, ..geometry() });
        assert_eq!(near.l2, Some(128 << 10));
        // Little memory: no more than a quarter of it.
        let small = Sizes::of(&Geometry { available_bytes: 128 << 20, ..geometry() });
        assert_eq!(small.dram, 32 << 20);
    }

    #[test]
    fn the_last_level_ends_where_memory_begins() {
        let latency = |cycles| Latency { cycles, spread: 0.0 };
        let point = |megabytes: u64, cycles| CurvePoint {
            bytes: megabytes << 20,
            small_pages: latency(cycles),
            huge_pages: None,
        };
        let curve = vec![point(1, 40.0), point(2, 50.0), point(4, 55.0), point(8, 260.0), point(16, 90.0)];
        let table = LatencyTable { llc: latency(50.0), dram: latency(400.0), curve, ..Default::default() };
        // (50 + 400) ÷ 2 = 225 lies between 4 and 8 MB; what comes behind does not count.
        assert_eq!(table.reach(3 << 20), 4 << 20);
    }

    #[test]
    fn the_least_pass_counts_and_the_middle_one_is_its_spread() {
        let pass = |cycles| LatencyTable { l1: Latency { cycles, spread: 0.1 }, ..Default::default() };
        let joined = LatencyTable::joined(&[pass(5.0), pass(4.0), pass(6.0)], 0);
        // 5 ÷ 4 − 1.
        assert_eq!(joined.l1, Latency { cycles: 4.0, spread: 0.25 });
        assert_eq!(joined.stlb, None);
    }

    #[test]
    fn a_first_level_hit_takes_cycles_and_memory_many() {
        let hit = small(TURNS, 4096).expect("memory");
        let far = small(TURNS, 64 << 20).expect("memory");
        // Of any processor of the last twenty years: 3 to 6 cycles, and more than ten times that.
        assert!((2.0..12.0).contains(&hit.cycles), "{hit:?}");
        assert!(far.cycles > 4.0 * hit.cycles, "{hit:?} {far:?}");
    }
}

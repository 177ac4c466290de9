//! Bursts: from the words that the agent recorded to the misses of each object and instruction.
//!
//! ```text
//!  words ──► blocks.rs: instruction and address ──► places.rs: whose it is ──► memlens-locality ──► misses
//! ```
//!
//! A *cell* is where an instruction, a thread and a [`Spot`] meet: the estimator's owner, and what a profile adds up.
//!
//! A burst stands for the accesses of its thread around it, as far as that was in its code (`waiting.rs`); how many these are in a
//! time: `weights.rs`.

mod allocations;
mod between;
mod blocks;
mod calls;
mod cells;
mod counting_cost;
mod counts;
mod data_size;
mod glances;
mod known_code;
mod levels;
mod mini_simulation;
mod nodes;
mod paths;
mod places;
mod prefetching;
mod running;
mod times;
mod waiting;
mod weights;

use std::borrow::Cow;

use memlens_events::agent::{BlockHead, BurstHead};
use memlens_events::burst::{End, Reference as BlockReference};
use memlens_fields::{Offset, Offsets};
use memlens_locality::{
    Burst, CostSpread, Extent, Locality, LocalityConfig, OTHER, Patterns, Reference, Row, Sharing,
    StandInSizes, StandIns, Summary, Timing, Unseen,
};
use memlens_overlap::{Place, Windows};
use memlens_profile::{CacheInfo, CallPaths, LevelMisses, MachineInfo, PathAmount, PathId, TlbInfo};
use memlens_types::Counts;
use rustc_hash::FxHashMap;

use self::allocations::Share;
use self::blocks::{Access, Blocks, Decoded, Event, Known};
use self::cells::Cells;
pub use self::cells::{Cell, Seen};
pub use self::counts::BurstCounts;
use self::data_size::DataSize;
pub use self::glances::{Glance, Position};
use self::levels::Levels;
use self::mini_simulation::MiniSimulation;
use self::nodes::Nodes;
use self::paths::{Paths, Seen as SeenPath};
use self::places::Places;
pub use self::places::Surroundings;
use self::prefetching::Prefetching;
use self::running::Running;
use self::times::Times;
use self::waiting::{Waiting, WaitingBursts};
use self::weights::{Content, Speed, Weights};
use crate::address_space::Code;
use crate::recording::TallyKey;
use crate::when::When;

/// Steps of a line that the repeated string instructions of a burst have at most: 64 MB.
const MOST_STEPS: u64 = 1 << 20;
/// Bursts that took less have fewer, in ns: at most a line in three cycles comes from any level.
const LEAST_OF_MOST_STEPS_NS: u64 = 500_000;
const LINE_BYTES: u64 = 64;
/// Accesses of a cell after which a part of them is enough to tell where in its objects they are.
const MANY_OFFSETS: u64 = 64;
/// Bursts kept whole, or 1024 accesses of them: 12 KB each.
const KEPT: usize = 512;
/// Operands whose patterns are kept: 700 bytes each.
const MOST_PATTERNS: usize = 1 << 16;

/// How misses follow from bursts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BurstModel {
    /// From reuse times, for all levels: `memlens-locality`.
    #[default]
    Reuse,
    /// The mini-simulation of Zhao et al., for the last level: [`memlens_locality::Umi`].
    Umi {
        /// Bursts that begin in a function until those that do are simulated: [`memlens_locality::UmiConfig::region_hits`].
        region_hits: u32,
    },
}

/// Tells how much a burst stands for, which others may have taken lines from. They are near in time, so that it cannot wait for long.
/// `factor`: see [`Waiting::with`].
fn feed_sharing(sharing: &mut Option<Sharing>, weights: &Weights, burst: &Waiting, factor: f64) {
    if let Some(sharing) = sharing {
        let (timing, weight) = burst.with(factor);
        let an_access = weight / burst.references.len() as f64;
        sharing.feed(timing, &burst.references, weights.cycles_a_ns(), an_access);
    }
}

fn stand_in_sizes(machine: &MachineInfo) -> StandInSizes {
    let lines = |cache: &Option<CacheInfo>| {
        cache.as_ref().map_or(0, |cache| cache.bytes / u64::from(machine.line_bytes.max(1)))
    };
    let pages = |tlb: &Option<TlbInfo>| tlb.as_ref().map_or(0, |tlb| u64::from(tlb.entries));
    StandInSizes {
        line_bytes: machine.line_bytes,
        page_bytes: machine.page_bytes,
        l1: lines(&machine.l1d),
        l2: lines(&machine.l2),
        llc: lines(&machine.llc),
        dtlb: pages(&machine.dtlb),
        stlb: pages(&machine.stlb),
    }
}

/// An instruction's memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Instruction {
    code: Code,
    operand: u8,
}

/// What a burst did.
struct Met {
    decoded: Decoded,
    /// Steps of repeated string instructions behind their first.
    repeated: u64,
    /// Its first instruction that accessed memory.
    first_pc: Option<u64>,
    /// Where objects lie that it touched, of those of which it is known how large they are.
    extents: Vec<Extent>,
    /// Through which calls some of its accesses came.
    paths: Vec<SeenPath>,
}

/// Everything that bursts told so far.
#[derive(Debug)]
pub struct Bursts {
    machine: MachineInfo,
    levels: Levels,
    locality: Locality,
    /// Tells the misses instead, where it is.
    simulation: Option<MiniSimulation>,
    patterns: Patterns,
    /// Some of the bursts, whole.
    kept: Windows,
    blocks: Blocks,
    places: Places,
    instructions: FxHashMap<Instruction, u32>,
    cells: Cells,
    /// The first number of the cells that `locality` does not tell apart.
    first_pooled: u32,
    references: Vec<Reference>,
    /// Where in them blocks begin, and their first instructions.
    begun: Vec<(u32, u64)>,
    prefetching: Prefetching,
    /// Where lines lie; None: this machine has one memory node.
    nodes: Option<Nodes>,
    stand_ins: StandIns,
    weights: Weights,
    /// Where in their objects cells' accesses were, by the cells' numbers.
    offsets: Offsets,
    /// Through which calls cells' accesses came.
    paths: Paths,
    call_paths: CallPaths<Code>,
    /// Not yet in `locality`.
    waiting: WaitingBursts,
    /// Lines that threads take from each other; none in the published mini-simulation.
    sharing: Option<Sharing>,
    running: Running,
    data: DataSize,
    /// When cells' accesses were.
    times: Times,
    /// Nanoseconds of a core's cycle, where bursts run on the machine whose misses are estimated.
    core_cycle_ns: Option<f64>,
    counts: BurstCounts,
}

impl Bursts {
    /// For the caches and TLBs of a machine, as far as the model knows them. None: it has none that can be estimated.
    /// `is_filtered`: what [`BurstCounts::is_filtered`] says.
    pub fn new(machine: MachineInfo, model: BurstModel, is_filtered: bool) -> Option<Self> {
        // Those of the machine that the program runs on are told apart, as soon as something is known of them.
        let machine = MachineInfo { nodes: 0, ..machine };
        let machine = match model {
            BurstModel::Reuse => machine,
            BurstModel::Umi { .. } => MiniSimulation::known_of(machine),
        };
        let (levels, geometries) = Levels::of(&machine);
        let simulation = match model {
            BurstModel::Reuse => None,
            BurstModel::Umi { region_hits } => Some(MiniSimulation::new(*geometries.first()?, region_hits)),
        };
        let stand_ins = StandIns::new(&stand_in_sizes(&machine));
        let prefetching = Prefetching::new(machine.prefetcher_streams, machine.line_bytes.max(1));
        let sharing =
            simulation.is_none().then(|| Sharing::new(machine.line_bytes, machine.transfer_cycles()));
        let cost = levels.cost(&machine);
        let config = LocalityConfig { cost, ..LocalityConfig::new(geometries) };
        let locality = Locality::new(&config).ok()?;
        Some(Self {
            machine,
            levels,
            locality,
            simulation,
            patterns: Patterns::new(MOST_PATTERNS),
            kept: Windows::new(KEPT),
            blocks: Blocks::default(),
            places: Places::new(!is_filtered),
            instructions: FxHashMap::default(),
            cells: Cells::default(),
            first_pooled: u32::try_from(config.scopes).unwrap_or(OTHER),
            references: Vec::new(),
            begun: Vec::new(),
            prefetching,
            nodes: Nodes::of_this_machine(),
            stand_ins,
            weights: Weights::of_this_machine(),
            offsets: Offsets::default(),
            paths: Paths::default(),
            call_paths: CallPaths::default(),
            waiting: WaitingBursts::default(),
            sharing,
            running: Running::default(),
            data: DataSize::default(),
            times: Times::default(),
            core_cycle_ns: None,
            counts: BurstCounts { is_filtered, ..BurstCounts::default() },
        })
    }

    /// Of a process that ran before.
    pub fn of_running(mut self) -> Self {
        self.counts.is_attached = true;
        self
    }

    /// The machine whose misses are estimated is this one, with a cycle of so many ns: see [`Windows::feed`]. What the published
    /// mini-simulation says stays as it is.
    pub fn on_core(mut self, core_cycle_ns: Option<f64>) -> Self {
        tracing::debug!(core_cycle_ns, "core");
        self.core_cycle_ns = core_cycle_ns.filter(|_| self.simulation.is_none());
        self
    }

    /// Cycles that the program's code took for itself, page faults among them, if it is known how long one is.
    pub fn core_cycles(&self) -> Option<f64> {
        let counts = &self.counts;
        let whole_ns = (counts.own_ns + counts.period_ns).saturating_sub(counts.cost_ns) as f64;
        Some((whole_ns - self.waiting.calls_ns()).max(0.0) / self.core_cycle_ns?)
    }

    /// The machine whose misses are estimated.
    pub fn machine(&self) -> &MachineInfo {
        &self.machine
    }

    /// What was counted, but for the time in system calls.
    pub fn counts(&self) -> &BurstCounts {
        &self.counts
    }

    /// What a reader of the profile has to know, one sentence each. `few`: bursts tell as much as so many, which are too few.
    pub fn notes(&self, few: Option<f64>) -> Vec<String> {
        let pooled = self.cells.count().saturating_sub(self.first_pooled.into());
        let (calls_ns, unmet_ns) = (self.waiting.calls_ns() as u64, self.waiting.unmet_ns() as u64);
        let mut notes = BurstCounts { calls_ns, unmet_ns, pooled, ..self.counts }.notes(few);
        notes.extend(self.waiting.allocations_note());
        notes.extend(self.paths.note());
        notes.extend(self.nodes.as_ref().and_then(Nodes::note));
        notes
    }

    /// Where a thread of a process was at a time, `period_ns` of processor time behind its burst or look before.
    pub fn look(&mut self, whose: (u32, u32), at_ns: u64, period_ns: u64, at: Position) {
        self.counts.period_ns += period_ns;
        self.running.ran(whose.1, period_ns);
        self.waiting.look(whose, at_ns, period_ns as f64, at);
    }

    /// Where a thread of a process was since its last tick, when the next comes; see [`crate::glances`].
    pub fn glanced(&mut self, whose: (u32, u32), glances: Vec<Glance>) {
        self.waiting.glanced(whose, glances);
    }

    /// Processor time in loops that wait for other threads, in ns, and where.
    pub fn spins(&self) -> impl Iterator<Item = (Code, f64)> {
        self.waiting.spins()
    }

    /// A block of translated code.
    pub fn block(&mut self, pid: u32, head: &BlockHead, references: Vec<BlockReference>) {
        self.blocks.add(pid, head, references);
    }

    /// The process has another program: the blocks of its code are no more.
    pub fn forget(&mut self, pid: u32) {
        self.blocks.forget(pid);
        self.settle(Some(pid));
    }

    /// The last burst of each thread of a process, or of all, stands for what is known by now.
    pub fn settle(&mut self, pid: Option<u32>) {
        for waiting in self.waiting.take_all(pid) {
            self.feed(&waiting);
        }
    }

    /// A burst of a thread, in the order of time, reported at `time_ns`. `number`: the thread's. `surroundings`: the memory
    /// that its addresses are of.
    pub fn burst(
        &mut self,
        number: u32,
        time_ns: u64,
        head: &BurstHead,
        words: &[u64],
        surroundings: &Surroundings<'_>,
    ) {
        self.data.look(surroundings.pid, size_of_val(words) as u64);
        let met = self.decode(number, head, words, surroundings);
        self.machine.nodes = self.nodes.as_ref().map_or(0, Nodes::count);
        self.data.has_objects(surroundings.pid, &met.extents);
        self.locality.has_data(self.data.most_bytes());
        self.counts.took(head, words.len() as u64);
        if self.references.is_empty() {
            self.waiting.allocated(head.allocations_before);
            self.counts.cost_ns += head.cost_ns(words.len() as u64);
            return;
        }
        let Met { ref decoded, repeated, .. } = met;
        let content = Content {
            words: words.len() as f64,
            blocks: decoded.blocks as f64,
            indirect: decoded.indirect as f64,
            locked: decoded.locked as f64,
            accesses: self.references.len() as f64,
            repeated: repeated as f64,
        };
        let weight = self.weights.weight(head, &content);
        tracing::debug!(number, time_ns, ?content, ?weight, ?head, "weighed");
        self.counts.weighed(head, &content, &weight);
        let core_cycle_ns = self.core_cycle_ns.filter(|_| weight.is_of_stretch());
        let rate = head.allocations as f64 / (content.accesses + weight.counted);
        let correction = self.waiting.correction().of(Share { unseen: 0.0, rate });
        let access_cycles = core_cycle_ns.map(|cycle_ns| weight.access_ns / correction / cycle_ns);
        self.look_at_alone(number, (time_ns, access_cycles), head, met.first_pc, surroundings);
        self.running.ran(number, head.period_ns + head.own_ns);
        let timing = Timing {
            process: surroundings.pid,
            thread: number,
            thread_pointer: head.thread_pointer,
            at_ns: time_ns,
            access_ns: weight.access_ns,
            running: self.running.part(number, time_ns),
        };
        if let Some(sharing) = &mut self.sharing {
            let timing = Timing { access_ns: timing.access_ns / correction, ..timing };
            sharing.saw(timing, &self.references, self.weights.cycles_a_ns());
        }
        let waiting = Waiting {
            timing,
            speed: weight.speed,
            weight: content.accesses + weight.counted,
            counted: weight.counted,
            allocations_before: head.allocations_before as f64,
            allocations: head.allocations as f64,
            is_cut: End::of(head.end).is_some_and(End::is_at_code),
            references: std::mem::take(&mut self.references),
            extents: met.extents,
            paths: met.paths,
            code: met.decoded.code,
            ..Waiting::default()
        };
        let Self { waiting: all, sharing, weights, .. } = self;
        let known = all.add(waiting, head.own_ns, head.period_ns as f64, |before, factor| {
            feed_sharing(sharing, weights, before, factor);
        });
        for waiting in known {
            self.feed(&waiting);
            // Its room serves again.
            self.references = waiting.references;
        }
    }

    /// memlens took so long to read a burst, of its own processor time.
    pub fn took_to_read(&mut self, own_ns: u64) {
        self.counts.read_ns += own_ns;
    }

    /// What a burst tells whatever it stands for: when it was, and how many cycles an access took, if that was measured.
    fn look_at_alone(
        &mut self,
        number: u32,
        (time_ns, access_cycles): (u64, Option<f64>),
        head: &BurstHead,
        first_pc: Option<u64>,
        surroundings: &Surroundings<'_>,
    ) {
        let burst = Burst {
            thread: number,
            start: time_ns.saturating_sub(head.own_ns),
            weight: self.references.len() as f64,
            unseen_before: None,
            references: &self.references,
        };
        if let (Some(simulation), Some(pc)) = (&mut self.simulation, first_pc) {
            let function = surroundings.accessor(pc).function;
            simulation.analyze(function, &burst);
        }
        self.patterns.feed(&burst, |reference| Some(self.cells.spot(reference.owner)));
        self.kept.feed(&self.references, &self.begun, access_cycles, |pc| {
            let (file, svma) = surroundings.code(pc);
            Place { module: file.unwrap_or(Place::NO_MODULE), svma }
        });
    }

    /// Fills `references` and `begun` with what a burst did, and counts it in its cells.
    fn decode(
        &mut self,
        number: u32,
        head: &BurstHead,
        words: &[u64],
        surroundings: &Surroundings<'_>,
    ) -> Met {
        let numbering = (surroundings.pid, head.generation);
        let part = self.part_of_repeated(numbering, head, words);
        let Self {
            blocks,
            places,
            instructions,
            cells,
            references,
            begun,
            offsets,
            counts,
            paths,
            call_paths,
            prefetching,
            nodes,
            stand_ins,
            ..
        } = self;
        references.clear();
        begun.clear();
        prefetching.begin();
        if let Some(nodes) = nodes {
            nodes.begin(surroundings.pid, surroundings.began_ns + head.own_ns, head.processor);
        }
        places.next_burst(surroundings);
        let mut extents: Vec<Extent> = Vec::new();
        let mut seen_paths: Vec<SeenPath> = Vec::new();
        let (mut unknown, mut repeated) = (0, 0);
        let (mut left_out, mut perhaps_left_out) = (0, 0);
        let mut first_pc = None;
        // The agent's own code is not the program's, nor is that of libc which it asks for the time.
        let mut is_for_agent = false;
        let decoded = blocks.decode(numbering, words, head.thread_pointer, |event| {
            let (known, access) = match event {
                Event::Block(pc, accessor) => {
                    is_for_agent =
                        surroundings.space.is_agents(pc) || is_for_agent && surroundings.is_clock(pc);
                    places.block(|| *accessor.get_or_insert_with(|| surroundings.accessor(pc)));
                    return begun.push((references.len() as u32, pc));
                }
                Event::Access(known, access) => (known, access),
            };
            if is_for_agent {
                return;
            }
            let (address, elements) = match access {
                Access::Recorded { address, elements } => (address, elements),
                Access::Unknown => return unknown += 1,
                Access::LeftOut => return left_out += 1,
                Access::PerhapsLeftOut => return perhaps_left_out += 1,
            };
            if surroundings.space.is_agents(address) {
                return;
            }
            first_pc.get_or_insert(known.reference.pc);
            let instruction = *known.instruction.get_or_insert_with(|| {
                let code = surroundings.code(known.reference.pc);
                let next = instructions.len() as u32;
                *instructions.entry(Instruction { code, operand: known.reference.operand }).or_insert(next)
            });
            let whose = places.recall(&mut known.memo, instruction, address).unwrap_or_else(|| {
                let Known { reference, kind, accessor, memo, .. } = known;
                let by = *accessor.get_or_insert_with(|| surroundings.accessor(reference.pc));
                let whose = places.whose(memo, instruction, address, by, surroundings, |place, spot| {
                    cells.number((instruction, number, place), counts.bursts, || {
                        let key = TallyKey {
                            thread: number,
                            code: surroundings.code(reference.pc),
                            operand: Some(reference.operand),
                            spot: spot.clone(),
                            path: None,
                            within: None,
                        };
                        (key, *kind, u32::from(reference.size_bytes))
                    })
                });
                if whose.is_unwatched {
                    cells.add_page(whose.cell, address);
                }
                extents.extend(whose.extent.filter(|extent| extents.last() != Some(extent)));
                whose
            });
            let size = u64::from(known.reference.size_bytes).max(1);
            let tally = cells.tally(whose.cell);
            let is_first = tally.accesses == 0 || tally.last_burst != counts.bursts;
            tally.last_burst = counts.bursts;
            tally.unseen += f64::from(whose.unseen);
            let one_in = if tally.accesses < MANY_OFFSETS { Offsets::OFTEN } else { Offsets::SELDOM };
            if tally.accesses == 0 || offsets.is_due(one_in) {
                let offset = address.wrapping_sub(whose.start);
                match elements {
                    1 => offsets.saw(whose.cell, 0, offset),
                    _ => offsets.ran((whose.cell, 0), offset, size as u32, elements),
                }
            }
            tally.accesses += 1;
            let looked_at = paths.looks_at(is_first).map(|weight| {
                let by = *known.accessor.get_or_insert_with(|| surroundings.accessor(known.reference.pc));
                (places.callers_of(by, call_paths), weight)
            });
            let mut misses = LevelMisses::default();
            let mut uses_line = |address| {
                let is_covered = prefetching.access(address);
                if let Some(is_covered) = is_covered {
                    tally.lines.add(is_covered);
                    if let Some(nodes) = nodes {
                        nodes.uses(whose.cell, address, is_covered);
                    }
                }
                let likely = stand_ins.access(address);
                misses.iter_mut().zip(likely).for_each(|(sum, likely)| *sum += likely);
            };
            uses_line(address);
            let reference =
                Reference { address, instruction, owner: whose.cell, size: size as u32, kind: known.kind };
            let all =
                if elements > 1 { further_steps(address, elements, known.reference.size_bytes) } else { 0 };
            let further = ((all.min(MOST_STEPS) as f64 * part) as u64).min(MOST_STEPS - repeated);
            // What the burst has of string instructions that go through very much stands for the rest of them.
            if elements == 1 || repeated < MOST_STEPS {
                references.push(reference);
                for at in 1..=further {
                    let line = (address & !(LINE_BYTES - 1)).wrapping_add(at * LINE_BYTES);
                    uses_line(line);
                    references.push(Reference { address: line, ..reference });
                }
                tally.steps += 1 + further;
                tally.told_elements += elements as f64 * (1 + further) as f64 / (1 + all) as f64;
                repeated += further;
            }
            tally.elements += elements;
            if let Some((path, weight)) = looked_at {
                let part = (1 + all) as f64 / (1 + further) as f64;
                let misses = misses.map(|misses| misses * part);
                seen_paths.push(SeenPath::new(whose.cell, path, elements as f64, misses) * weight);
            }
        });
        counts.unknown_references += unknown;
        counts.left_out += left_out;
        counts.perhaps_left_out += perhaps_left_out;
        if !decoded.is_whole {
            counts.undecoded += 1;
        }
        if let Some(nodes) = nodes {
            nodes.end();
        }
        counts.references += references.len() as u64;
        extents.sort_unstable();
        // Of one object, and side by side: one.
        extents.dedup_by(|next, before| {
            let is_one = next.object == before.object && next.start <= before.end;
            if is_one {
                (before.end, before.bytes) = (before.end.max(next.end), before.bytes.max(next.bytes));
            }
            is_one
        });
        Met { decoded, repeated, first_pc, extents, paths: seen_paths }
    }

    /// How much of its lines each repeated string instruction of a burst tells. Of several that have more together each has the same part:
    /// what one copies it loads and stores as often.
    fn part_of_repeated(&mut self, numbering: (u32, u64), head: &BurstHead, words: &[u64]) -> f64 {
        let mut all_steps = 0;
        if head.recorded_ns >= LEAST_OF_MOST_STEPS_NS {
            self.blocks.decode(numbering, words, head.thread_pointer, |event| {
                if let Event::Access(known, Access::Recorded { elements: elements @ 2.., address }) = event {
                    // A comparison may end long before its count does.
                    all_steps += further_steps(address, elements, known.reference.size_bytes).min(MOST_STEPS);
                }
            });
        }
        (MOST_STEPS as f64 / all_steps as f64).min(1.0)
    }

    /// Takes in a burst of which everything is known.
    fn feed(&mut self, waiting: &Waiting) {
        let Waiting { timing, weight, unseen_before, was_elsewhere, ref references, .. } = *waiting;
        tracing::debug!(?timing, weight, unseen_before, waiting.time_ns, waiting.taken_ns, "stands for");
        self.counts.learned += u64::from(waiting.speed == Speed::Learned);
        if !waiting.has_next {
            // It has been corrected.
            feed_sharing(&mut self.sharing, &self.weights, waiting, 1.0);
        }
        let burst = Burst {
            thread: timing.thread,
            start: timing.at_ns,
            weight,
            unseen_before: Some(Unseen { references: unseen_before as u64, was_elsewhere }),
            references,
        };
        self.locality.feed_with(&burst, &waiting.extents);
        self.times.add(&waiting.times(), references);
        self.paths.add(&waiting.paths, weight / references.len().max(1) as f64);
    }

    /// Through which calls accesses came, and for how much they stand, by the number of their cell in [`Self::cells`].
    pub fn path_uses(&self) -> impl Iterator<Item = (u32, Option<PathId>, PathAmount)> {
        self.paths.iter()
    }

    /// When the accesses of the cell with this number in [`Self::cells`] were.
    pub fn when(&self, number: u32) -> Option<&When> {
        self.times.of(number)
    }

    /// The call paths of [`Self::path_uses`].
    pub fn call_paths(&self) -> &CallPaths<Code> {
        &self.call_paths
    }

    /// Where in their objects the accesses of the cell with this number in [`Self::cells`] were: the operands are
    /// cells, the objects nothing.
    pub fn offsets(&self) -> FxHashMap<u32, Vec<Offset>> {
        let mut by_cell: FxHashMap<u32, Vec<Offset>> = FxHashMap::default();
        for seen in self.offsets.iter() {
            let spot = &self.cells.key(seen.operand).spot;
            let has_start = spot.has_start();
            if has_start {
                by_cell.entry(seen.operand).or_default().push(seen);
            }
        }
        by_cell
    }

    /// How operands went through memory: the patterns, whole bursts, and the number in them of an operand that was met.
    pub fn patterns(&self) -> (Patterns, &Windows, impl Fn(Code, u8) -> Option<u32>) {
        let number = |code, operand| self.instructions.get(&Instruction { code, operand }).copied();
        (self.patterns.clone(), &self.kept, number)
    }

    /// What tells the owners of an instruction's patterns apart, of a cell: the numbers of its instruction and its spot.
    pub fn pattern_owner(&self, cell: &Cell) -> (u32, u32) {
        (cell.instruction, self.cells.spot(cell.number))
    }

    /// How far the last level's misses are known, in a sentence; None: there is nothing to say.
    pub fn last_level_note(&self, summary: &Summary) -> Option<String> {
        if let Some(simulation) = &self.simulation {
            return Some(simulation.note());
        }
        let total = &summary.total;
        let misses = total.levels.get(self.levels.llc?)?;
        let percent = |misses: f64| 100.0 * misses / total.references;
        (total.references > 0.0).then(|| {
            format!(
                "Last-level misses cannot be fewer than {:.2} or more than {:.2} % of the accesses, whatever happened between bursts, if \
                 these stand for the right parts of the run.",
                percent(misses.low),
                percent(misses.high)
            )
        })
    }

    /// What is known by now, without bursts that wait: see [`Self::settle`]. Cost: some microseconds a cell and instruction.
    pub fn summary(&self) -> Summary {
        self.locality.summary()
    }

    /// The cells with what they count in the whole run, as far as that can be told.
    pub fn cells(&self, summary: &Summary) -> Vec<(Cell, Counts)> {
        let ratios = self.simulation.as_ref().map(MiniSimulation::ratios);
        let apart = summary.owners.iter().filter(|(number, _)| *number < self.first_pooled);
        let apart = apart.filter_map(|(number, row)| Some((self.cells.get(*number)?, Cow::Borrowed(row))));
        let cells = apart.chain(self.pooled(summary)).map(|(cell, row)| {
            let own = row.spread;
            let counts = match &ratios {
                None => self.counts_of(&cell, &row),
                Some(ratios) => {
                    let mut row = row.into_owned();
                    let ratio = ratios.get(&cell.instruction).copied().unwrap_or(0.0);
                    row.levels.iter_mut().for_each(|level| level.misses = ratio * row.references);
                    self.counts_of(&cell, &row)
                }
            };
            // Of the wait as it is known in the end: prefetched misses, repeated instructions and other cores' lines differ.
            let part = self.machine.wait_cycles(&counts) as f64 / own.cost();
            let spread = if part.is_finite() { own * part } else { CostSpread::default() };
            (Cell { spread, ..cell }, counts)
        });
        cells.collect()
    }

    /// The cells that the estimator does not tell apart: each has as much of all of them as it has of their references in bursts.
    fn pooled<'s>(&'s self, summary: &'s Summary) -> impl Iterator<Item = (Cell, Cow<'s, Row>)> {
        let all = summary.owners.iter().find(|(number, _)| *number == OTHER).map(|(_, row)| row);
        let steps: u64 = self.cells.from(self.first_pooled).map(|cell| cell.tally.steps).sum();
        all.into_iter().flat_map(move |all| {
            self.cells.from(self.first_pooled).filter(|cell| cell.tally.steps > 0).map(move |cell| {
                let part = cell.tally.steps as f64 / steps as f64;
                (cell, Cow::Owned(all.part(part)))
            })
        })
    }

    fn counts_of(&self, cell: &Cell, row: &Row) -> Counts {
        let shared = self.sharing.as_ref().map(|sharing| sharing.of_owner(cell.number)).unwrap_or_default();
        let remote = self.nodes.as_ref().map(|nodes| nodes.of_cell(cell.number)).unwrap_or_default();
        self.levels.counts(cell, row, &shared, &remote)
    }
}

/// Steps of a repeated instruction from an address on, behind the first: all elements of a line are one.
fn further_steps(address: u64, elements: u64, size_bytes: u16) -> u64 {
    let bytes = elements.saturating_mul(u64::from(size_bytes).max(1));
    (address % LINE_BYTES).saturating_add(bytes.max(1) - 1) / LINE_BYTES
}

#[cfg(test)]
mod tests {
    use memlens_events::burst::{Source, Use, block_word};
    use memlens_locality::Geometry;

    use super::*;
    use crate::address_space::AddressSpace;
    use crate::heap::Heap;
    use crate::modules::Files;

    #[test]
    fn accesses_of_cells_that_are_not_told_apart_count() {
        const PID: u32 = 7;
        let l1d = Some(CacheInfo { bytes: 32 << 10, ways: 8, ..CacheInfo::default() });
        let machine = MachineInfo { l1d, line_bytes: 64, page_bytes: 4096, ..MachineInfo::default() };
        let mut bursts = Bursts::new(machine, BurstModel::Reuse, false).expect("a level");
        // There is room for one cell; a block has a load and two stores, 40 bytes apart.
        let geometries = vec![Geometry::cache(32 << 10, 8, 64)];
        let config = LocalityConfig { scopes: 1, ..LocalityConfig::new(geometries) };
        bursts.locality = Locality::new(&config).expect("a level");
        bursts.first_pooled = 1;
        let reference =
            |pc, used| BlockReference { pc, operand: 0, used, size_bytes: 8, source: Source::Word };
        let references =
            vec![reference(100, Use::Read), reference(104, Use::Write), reference(108, Use::Write)];
        let head = BlockHead { generation: 1, number: 0, ends_indirectly: false, pc: 100 };
        bursts.block(PID, &head, references);
        let words: Vec<u64> = (0..5000_u64)
            .flat_map(|at| [block_word(0), 0x10_0000 + 64 * at, 0x80_0000 + 64 * at, 0x100_0000 + 64 * at])
            .collect();
        let surroundings = Surroundings {
            pid: PID,
            began_ns: 0,
            space: &AddressSpace::default(),
            files: &Files::default(),
            heap: &Heap::default(),
            stack: None,
            others: &[],
            thread_pointer: 0,
        };
        let head =
            BurstHead { generation: 1, period_ns: 1_000_000, recorded_ns: 100_000, ..BurstHead::default() };
        for at in 0..4 {
            bursts.burst(1, at, &head, &words, &surroundings);
        }
        bursts.settle(None);
        let summary = bursts.summary();
        let cells = bursts.cells(&summary);
        let all = |value: fn(&Counts) -> u64| cells.iter().map(|(_, counts)| value(counts)).sum::<u64>();
        let (loads, stores) = (all(|counts| counts.loads), all(|counts| counts.stores));
        assert!(loads > 60_000 && stores.abs_diff(2 * loads) <= 2, "{loads} {stores}");
        // Every access goes to a new line.
        let misses = all(|counts| counts.l1_store_misses);
        assert!(misses > stores / 2, "{misses}");
        assert!(bursts.notes(None).iter().any(|note| note.starts_with("2 places where an instruction")));
    }
}

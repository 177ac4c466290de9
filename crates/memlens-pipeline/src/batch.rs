//! Accesses on their way through the memory model.

use crate::lanes::{self, Kernel, LANES, PACKED, Previous, Task, Vectors};
use crate::nodes::{Accesses, Beside, FoundOfNodes};
use crate::sharing::{Segment, Sharing, Tenancy, all_accesses, in_turns};
use memlens_sim::{
    Batch as SimBatch, CacheDescription, CoreId, Invalidation, LowerHalf, MachineDescription, Model, Outcome,
    Passage, Policy, UpperHalf, Walk,
};
use memlens_types::{AccessAttr, AccessKind};
use rustc_hash::FxHashSet;
use std::ops::Range;

/// Accesses per run of the model: enough to amortise it, few enough to stay in the second-level cache.
const CAPACITY: usize = 16 << 10;
/// Beyond the capacity there is room for what is added between two checks: some blocks, or a string instruction.
const ROOM: usize = 2 * CAPACITY;
/// The columns are so long: [`LANES`] are written that are not meant.
const LENGTH: usize = ROOM + LANES;
/// Set in the addresses of fetches until the model sees them, so that no line of code is taken for the same line
/// of data, which another first level holds: no address of a program has it set where the bit above it is not.
const OF_CODE: u64 = 1 << 62;
/// Leaving accesses out pauses if more than this part of them is kept.
const WORTH: (usize, usize) = (2, 3);
/// For so many runs of the batch.
const PAUSE: u32 = 15;

/// Accesses in order, with their cells.
///
/// Before the model runs, accesses that cannot change the caches or TLBs are left out: those to the line that the access just
/// before it went to, unless it is the first store to it. Such a line is the most recently used of
/// its set and its page's entry that of its TLB set, so the access hits everywhere and moves nothing.
/// That holds for LRU, tree-PLRU, clock and random replacement, not for RRIP (where the first hit counts).
/// Where few accesses are of that kind, leaving them out costs more than it saves: it pauses then. Nor is it done where threads take
/// short turns, between which a line may go to another core.
#[derive(Debug)]
pub struct Batch {
    addrs: Box<[u64; LENGTH]>,
    attrs: Box<[AccessAttr; LENGTH]>,
    cells: Box<[u32; LENGTH]>,
    len: usize,
    segments: Vec<Segment>,
    line_shift: u32,
    filters: bool,
    has_fetches: bool,
    /// Runs to come without leaving anything out.
    pause: u32,
    vectors: Vectors,
    outcome: Outcome,
    /// What the upper half of the model leaves to the lower one.
    passage: Passage,
    /// Accesses before any was left out.
    offered: usize,
    /// Coherence misses that are false sharing.
    false_sharing: Vec<u32>,
    /// Those of which that is not known.
    unclear_sharing: Vec<u32>,
    /// What memory nodes had to do with misses.
    of_nodes: FoundOfNodes,
    /// Memory that went before its first access.
    unmapped: Vec<Range<u64>>,
    /// Whether threads took short turns.
    took_turns: bool,
    /// How many instructions the process had executed when it was handed over.
    pub instructions: u64,
    /// Whether some of its accesses count: then what it writes back does.
    pub is_collected: bool,
}

/// What the model found for one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// First-level miss, of the data or the instruction cache.
    L1,
    /// Second-level miss.
    L2,
    /// Last-level miss: a line from memory.
    Llc,
    /// A second-level miss that a hardware prefetcher covers: besides [`Finding::L2`].
    L2Prefetched,
    /// A last-level miss that it covers: besides [`Finding::Llc`].
    LlcPrefetched,
    /// First-level TLB miss.
    Dtlb,
    /// Second-level TLB miss.
    Stlb,
    /// An entry that a page walk read.
    Walk,
    /// Another core lost the line.
    Invalidation,
    /// Another core had modified the line: besides [`Finding::L1`].
    Coherence,
    /// And the bytes that it wrote are others: besides [`Finding::Coherence`].
    FalseSharing,
    /// Or what it wrote is not known.
    UnclearSharing,
    /// The line lies in another node's memory: besides [`Finding::Llc`].
    Remote,
    /// And a hardware prefetcher covers it: besides [`Finding::Remote`].
    RemotePrefetched,
    /// And the page is missed most by this node: besides [`Finding::Remote`].
    Misplaced,
    /// Nobody had touched the page before.
    FirstTouch,
}

impl Batch {
    /// An empty one, for this machine; `has_fetches`: instruction fetches may be among the accesses.
    pub fn new(machine: &MachineDescription, has_fetches: bool) -> Self {
        let keeps_order = |cache: &CacheDescription| {
            matches!(cache.policy, Policy::Lru | Policy::TreePlru | Policy::Random | Policy::Clock)
        };
        Self {
            addrs: column(),
            attrs: column(),
            cells: column(),
            len: 0,
            segments: Vec::new(),
            line_shift: machine.line_bytes.max(1).ilog2(),
            has_fetches,
            filters: machine.line_bytes.is_power_of_two() && keeps_order(&machine.l1d),
            pause: 0,
            vectors: Vectors::detect(),
            outcome: Outcome::default(),
            passage: Passage::default(),
            offered: 0,
            false_sharing: Vec::new(),
            unclear_sharing: Vec::new(),
            of_nodes: FoundOfNodes::default(),
            unmapped: Vec::new(),
            instructions: 0,
            is_collected: true,
            took_turns: false,
        }
    }

    /// Whether it should be run now.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.len >= CAPACITY
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What follows is thread number `thread`'s, on core `core`.
    pub fn begin(&mut self, thread: usize, core: CoreId) {
        self.segments.push(Segment { thread, core, start: self.len });
    }

    /// Adds an access.
    #[inline(always)]
    pub fn push(&mut self, addr: u64, attr: AccessAttr, cell: u32) {
        if let Some(place) = self.addrs.get_mut(self.len) {
            (*place, self.attrs[self.len], self.cells[self.len]) = (addr, attr, cell);
            self.len += 1;
        }
    }

    /// Adds an instruction fetch.
    pub fn push_fetch(&mut self, addr: u64, attr: AccessAttr, cell: u32) {
        self.push(addr ^ OF_CODE, attr, cell);
    }

    /// The columns, and how much of them is used, for who fills them a vector at a time.
    #[inline(always)]
    pub fn columns(&mut self) -> (Columns<'_>, &mut usize) {
        let (addrs, attrs, cells) = (&mut self.addrs, &mut self.attrs, &mut self.cells);
        (Columns { addrs, attrs, cells }, &mut self.len)
    }

    /// Leaves out what changes nothing; the segments' starts move accordingly.
    fn compact(&mut self) {
        if !self.filters {
            return;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        let (mut kept, mut from) = (0, 0);
        for index in 0..self.segments.len() {
            let end = self.segments.get(index + 1).map_or(self.len, |next| next.start);
            self.segments[index].start = kept;
            kept = lanes::dispatch(
                self.vectors,
                Compact {
                    columns: Columns {
                        addrs: &mut self.addrs,
                        attrs: &mut self.attrs,
                        cells: &mut self.cells,
                    },
                    line_shift: self.line_shift,
                    accesses: from..end,
                    kept,
                },
            );
            from = end;
        }
        if kept > self.len / WORTH.1 * WORTH.0 {
            self.pause = PAUSE;
        }
        self.len = kept;
    }

    /// Gives fetches the addresses that they have.
    fn restore_fetches(&mut self) {
        for (addr, attr) in self.addrs[..self.len].iter_mut().zip(self.attrs.iter()) {
            if attr.kind() == AccessKind::Fetch {
                *addr ^= OF_CODE;
            }
        }
    }

    /// Runs the accesses through the model.
    pub fn run(&mut self, model: &mut Model, beside: &mut Beside) {
        let turn = beside.sharing.turn();
        self.prepare(turn.is_some());
        let Self { addrs, attrs, segments, outcome, len, .. } = self;
        let batch = SimBatch { addrs: &addrs[..*len], attrs: &attrs[..*len] };
        let mut run = |index: usize, accesses: Range<usize>| {
            if !accesses.is_empty() {
                model.access_part(segments[index].core, batch, accesses, outcome);
            }
        };
        match turn {
            Some(turn) => in_turns(segments, batch.attrs, turn, run),
            None => all_accesses(segments, *len).enumerate().for_each(|(at, accesses)| run(at, accesses)),
        }
        self.finish(beside);
    }

    /// Runs the accesses through the upper half of the model, which [`Self::run_lower`] goes on from.
    pub fn run_upper(&mut self, model: &mut UpperHalf) {
        self.passage.clear();
        if !model.is_active() {
            return;
        }
        // As long as it takes part no line goes from core to core, and turns are long.
        self.prepare(false);
        let Self { addrs, attrs, segments, outcome, passage, len, .. } = self;
        let batch = SimBatch { addrs: &addrs[..*len], attrs: &attrs[..*len] };
        for (segment, accesses) in segments.iter().zip(all_accesses(segments, *len)) {
            if !accesses.is_empty() {
                model.access(segment.core, batch, accesses, outcome, passage);
            }
        }
    }

    /// Runs them through the lower half.
    pub fn run_lower(&mut self, model: &mut LowerHalf, beside: &mut Beside) {
        if self.passage.is_empty()
            && let Some(whole) = model.whole()
        {
            return self.run(whole, beside);
        }
        let Self { addrs, attrs, outcome, passage, len, .. } = self;
        model.access(SimBatch { addrs: &addrs[..*len], attrs: &attrs[..*len] }, outcome, passage);
        self.finish(beside);
    }

    /// Makes the accesses ready for the model.
    fn prepare(&mut self, takes_turns: bool) {
        (self.offered, self.took_turns) = (self.len, takes_turns);
        // In short turns few accesses are to the line just before, for lines are lost in between.
        if !takes_turns {
            self.compact();
        }
        if self.has_fetches {
            self.restore_fetches();
        }
        self.outcome.clear();
    }

    /// Learns from what the model found.
    fn finish(&mut self, beside: &mut Beside) {
        let Beside { sharing, nodes } = beside;
        self.find_false_sharing(sharing);
        sharing.learn(self.offered, self.segments.len(), &self.outcome);
        if let Some(nodes) = nodes {
            let Self { addrs, attrs, segments, outcome, len, unmapped, of_nodes, .. } = self;
            unmapped.drain(..).for_each(|memory| nodes.unmap(&memory));
            let (addrs, attrs) = (&addrs[..*len], &attrs[..*len]);
            nodes.find(Accesses { addrs, attrs, segments, outcome }, of_nodes);
        }
    }

    /// This memory was unmapped before all accesses of the batch.
    pub fn unmapped_before(&mut self, memory: Range<u64>) {
        self.unmapped.push(memory);
    }

    /// Tells coherence misses apart.
    fn find_false_sharing(&mut self, sharing: &mut Sharing) {
        let Self { addrs, attrs, segments, len, outcome, false_sharing, unclear_sharing, .. } = self;
        false_sharing.clear();
        unclear_sharing.clear();
        let missed: FxHashSet<u32> = outcome.coherence_misses.iter().copied().collect();
        let mut owners = Owners { segments, at: 0 };
        let mut tenancy = |index: u32, sharing: &Sharing| {
            let thread = owners.of(index).thread;
            let own = owners.from(index, *len).filter(|&(by, _)| by == thread);
            let next = own.map(|(_, at)| (at, addrs[at], attrs[at]));
            (thread, sharing.tenancy(next, |at| missed.contains(&(at as u32))))
        };
        for lost in &outcome.invalidations {
            let (thread, tenancy) = tenancy(lost.index, sharing);
            sharing.takes(thread, tenancy);
        }
        let taken: Vec<(u32, usize, Tenancy)> = (outcome.coherence_misses.iter())
            .map(|&index| {
                let (thread, tenancy) = tenancy(index, sharing);
                (index, thread, tenancy)
            })
            .collect();
        taken.iter().for_each(|&(_, thread, tenancy)| sharing.takes(thread, tenancy));
        for (index, thread, tenancy) in taken {
            match sharing.is_false(thread, tenancy) {
                Some(true) => false_sharing.push(index),
                Some(false) => {}
                None => unclear_sharing.push(index),
            }
        }
    }

    /// What the model found: for each kind, and each stretch of accesses of one thread, whose it is and which they are.
    pub fn findings(&self, mut book: impl FnMut(usize, Finding, Stretch<'_>)) {
        let Outcome { l1_misses, l2_misses, llc_misses, dtlb_misses, stlb_misses, .. } = &self.outcome;
        let Outcome { l2_prefetched, llc_prefetched, coherence_misses, .. } = &self.outcome;
        let Outcome { l1i_misses, l2i_misses, llci_misses, walks, invalidations, .. } = &self.outcome;
        let mut owners = Owners { segments: &self.segments, at: 0 };
        let mut each = |finding, found: Found<'_>| {
            let mut left = found;
            while let Some(first) = left.first() {
                let thread = owners.of(first).thread;
                // Mostly there is one segment, and nothing to look for.
                let accesses = owners.accesses();
                let is_all = accesses == (0..u32::MAX);
                let len = if is_all { left.len() } else { left.len_within(&accesses).max(1) };
                let (stretch, rest) = left.split_at(len);
                book(thread, finding, Stretch { found: stretch, cells: &self.cells });
                left = rest;
            }
        };
        for (indices, finding) in [
            (l1_misses, Finding::L1),
            (l2_misses, Finding::L2),
            (llc_misses, Finding::Llc),
            (l2_prefetched, Finding::L2Prefetched),
            (llc_prefetched, Finding::LlcPrefetched),
            (l1i_misses, Finding::L1),
            (l2i_misses, Finding::L2),
            (llci_misses, Finding::Llc),
            (dtlb_misses, Finding::Dtlb),
            (stlb_misses, Finding::Stlb),
            (coherence_misses, Finding::Coherence),
            (&self.false_sharing, Finding::FalseSharing),
            (&self.unclear_sharing, Finding::UnclearSharing),
            (&self.of_nodes.remote, Finding::Remote),
            (&self.of_nodes.remote_prefetched, Finding::RemotePrefetched),
            (&self.of_nodes.misplaced, Finding::Misplaced),
            (&self.of_nodes.first_touches, Finding::FirstTouch),
        ] {
            each(finding, Found::Indices(indices));
        }
        each(Finding::Walk, Found::Walks(walks));
        each(Finding::Invalidation, Found::Invalidations(invalidations));
    }

    /// Whether threads took short turns: lines went from core to core.
    pub fn took_turns(&self) -> bool {
        self.took_turns
    }

    /// Lines written back to memory, by address.
    pub fn dram_writes(&self) -> &[u64] {
        &self.outcome.dram_writes
    }

    /// Makes it empty again.
    pub fn clear(&mut self) {
        self.len = 0;
        self.segments.clear();
        self.unmapped.clear();
    }
}

/// Leaves out accesses of one thread; what is kept moves to `kept` and behind. The output is the end of it.
struct Compact<'a> {
    columns: Columns<'a>,
    line_shift: u32,
    accesses: Range<usize>,
    kept: usize,
}

impl Task for Compact<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> usize {
        let Self { columns: Columns { addrs, attrs, cells }, line_shift, accesses, mut kept } = self;
        // Other cores may have touched the line since this thread's last access.
        let mut previous = Previous { line: u64::MAX, is_dirty: false };
        for at in accesses.clone().step_by(PACKED) {
            let (Some(eight), Some(kinds), Some(whose)) =
                (addrs[at..].first_chunk(), attrs[at..].first_chunk(), cells[at..].first_chunk())
            else {
                return kept;
            };
            let wanted = (1 << (accesses.end - at).min(PACKED)) - 1;
            let bits = kernel.changing(eight, kinds, line_shift, &mut previous) & wanted;
            let (mut eight_kept, mut kinds_kept, mut whose_kept) = ([0; PACKED], [0; PACKED], [0; PACKED]);
            kernel.pack64(eight, bits, &mut eight_kept);
            kernel.pack32(&kinds.map(|attr| attr.0), bits, &mut kinds_kept);
            kernel.pack32(whose, bits, &mut whose_kept);
            let kinds_kept = kinds_kept.map(AccessAttr);
            if accesses.end - at >= PACKED {
                // All eight are written: a number that the compiler knows.
                addrs[kept..kept + PACKED].copy_from_slice(&eight_kept);
                attrs[kept..kept + PACKED].copy_from_slice(&kinds_kept);
                cells[kept..kept + PACKED].copy_from_slice(&whose_kept);
            } else {
                // What lies behind the last is the next thread's.
                let count = bits.count_ones() as usize;
                addrs[kept..kept + count].copy_from_slice(&eight_kept[..count]);
                attrs[kept..kept + count].copy_from_slice(&kinds_kept[..count]);
                cells[kept..kept + count].copy_from_slice(&whose_kept[..count]);
            }
            kept += bits.count_ones() as usize;
        }
        kept
    }
}

fn column<T: Clone + Default, const N: usize>() -> Box<[T; N]> {
    match vec![T::default(); N].into_boxed_slice().try_into() {
        Ok(column) => column,
        Err(_) => unreachable!("it has the length asked for"),
    }
}

/// The columns of a batch.
pub struct Columns<'a> {
    addrs: &'a mut [u64; LENGTH],
    attrs: &'a mut [AccessAttr; LENGTH],
    /// Cells by position.
    pub cells: &'a mut [u32; LENGTH],
}

impl Columns<'_> {
    /// The same columns, for a callee.
    #[inline(always)]
    pub fn reborrow(&mut self) -> Columns<'_> {
        Columns { addrs: self.addrs, attrs: self.attrs, cells: self.cells }
    }

    /// Positions below this can be filled as they come: what some of the largest blocks access fits behind.
    pub const FULL: usize = CAPACITY;

    /// Puts an instruction fetch at position `at`.
    #[inline(always)]
    pub fn put_fetch(&mut self, at: usize, addr: u64, attr: AccessAttr, cell: u32) {
        let at = at % ROOM;
        (self.addrs[at], self.attrs[at], self.cells[at]) = (addr ^ OF_CODE, attr, cell);
    }

    /// Puts some accesses at position `at`; those that are not meant are overwritten by the next.
    #[inline(always)]
    pub fn put(
        &mut self,
        at: usize,
        addrs: &[u64; LANES],
        attrs: &[AccessAttr; LANES],
        cells: &[u32; LANES],
    ) {
        let at = at % ROOM;
        self.addrs[at..at + LANES].copy_from_slice(addrs);
        self.attrs[at..at + LANES].copy_from_slice(attrs);
        self.cells[at..at + LANES].copy_from_slice(cells);
    }
}

/// Accesses of one thread for which the same was found.
#[derive(Clone, Copy)]
pub struct Stretch<'a> {
    found: Found<'a>,
    cells: &'a [u32; LENGTH],
}

impl Stretch<'_> {
    /// The cell of each walk.
    #[inline(always)]
    pub fn for_each_walk(self, mut book: impl FnMut(u32, &Walk)) {
        if let Found::Walks(walks) = self.found {
            walks.iter().for_each(|walk| book(self.cells[walk.index as usize], walk));
        }
    }

    /// The cell of each, and how often it was found for it.
    #[inline(always)]
    pub fn for_each(self, mut book: impl FnMut(u32, u64)) {
        let cell = |index: u32| self.cells[index as usize];
        match self.found {
            Found::Indices(indices) => indices.iter().for_each(|&index| book(cell(index), 1)),
            Found::Walks(walks) => {
                walks.iter().for_each(|walk| book(cell(walk.index), walk.entries_read.into()));
            }
            Found::Invalidations(lost) => lost.iter().for_each(|lost| book(cell(lost.index), 1)),
        }
    }
}

/// A list of an outcome, or a part of it.
#[derive(Clone, Copy)]
enum Found<'a> {
    Indices(&'a [u32]),
    Walks(&'a [Walk]),
    Invalidations(&'a [Invalidation]),
}

impl Found<'_> {
    fn first(&self) -> Option<u32> {
        match self {
            Self::Indices(indices) => indices.first().copied(),
            Self::Walks(walks) => walks.first().map(|walk| walk.index),
            Self::Invalidations(lost) => lost.first().map(|lost| lost.index),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Indices(indices) => indices.len(),
            Self::Walks(walks) => walks.len(),
            Self::Invalidations(lost) => lost.len(),
        }
    }

    /// How many stand before the first that is not one of `accesses`.
    fn len_within(&self, accesses: &Range<u32>) -> usize {
        let is_one = |index: u32| accesses.contains(&index);
        match self {
            Self::Indices(indices) => indices.iter().take_while(|&&index| is_one(index)).count(),
            Self::Walks(walks) => walks.iter().take_while(|walk| is_one(walk.index)).count(),
            Self::Invalidations(lost) => lost.iter().take_while(|lost| is_one(lost.index)).count(),
        }
    }

    fn split_at(self, len: usize) -> (Self, Self) {
        match self {
            Self::Indices(indices) => {
                let (stretch, rest) = indices.split_at(len);
                (Self::Indices(stretch), Self::Indices(rest))
            }
            Self::Walks(walks) => {
                let (stretch, rest) = walks.split_at(len);
                (Self::Walks(stretch), Self::Walks(rest))
            }
            Self::Invalidations(lost) => {
                let (stretch, rest) = lost.split_at(len);
                (Self::Invalidations(stretch), Self::Invalidations(rest))
            }
        }
    }
}

/// Finds the segment of an access: usually that of the one asked for before, or the next.
struct Owners<'a> {
    segments: &'a [Segment],
    at: usize,
}

impl Owners<'_> {
    /// Where the segment that was found last ends; None: with the batch.
    fn end(&self) -> Option<usize> {
        self.segments.get(self.at + 1).map(|next| next.start)
    }

    /// The accesses of the segment that was found last, beyond the batch where nothing follows.
    fn accesses(&self) -> Range<u32> {
        self.segments[self.at].start as u32..self.end().map_or(u32::MAX, |end| end as u32)
    }

    /// Accesses from this one on, in the segment that was found last, with their threads; the last one of all ends at `end`.
    fn from(&self, index: u32, end: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let segments = &self.segments[self.at..];
        let first = index as usize;
        all_accesses(segments, end)
            .zip(segments)
            .flat_map(move |(accesses, segment)| accesses.map(|at| (segment.thread, at)))
            .skip_while(move |&(_, at)| at < first)
    }

    #[inline]
    fn of(&mut self, index: u32) -> &Segment {
        let index = index as usize;
        let is_behind = |at: usize| self.segments.get(at + 1).is_some_and(|next| next.start <= index);
        if self.segments[self.at].start > index || is_behind(self.at) && is_behind(self.at + 1) {
            self.at = self.segments.partition_point(|segment| segment.start <= index) - 1;
        } else if is_behind(self.at) {
            self.at += 1;
        }
        &self.segments[self.at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_sim::SimdLevel;

    /// Leaving out repeated accesses to a line changes no finding: streams with much repetition, straddling
    /// accesses, fetches from lines of data and several threads, with and without.
    #[test]
    fn what_is_left_out_changes_nothing() {
        for name in ["e5504", "amd-zen4", "intel-sapphire-rapids"] {
            let machine = MachineDescription::named(name).expect("shipped");
            let run = |filters: bool| {
                let mut model = Model::new(&machine, SimdLevel::detect()).expect("valid");
                let mut beside = Beside::new(&machine);
                let mut batch = Batch { filters, ..Batch::new(&machine, true) };
                let (mut found, mut written, mut random, mut len) = (Vec::new(), Vec::new(), 7_u64, 0);
                for round in 0..60 {
                    for segment in 0..3 {
                        batch.begin(segment % 2, CoreId((segment % 2 * usize::from(round > 40)) as u16));
                        let mut addr = 0x10_0000;
                        for index in 0..1997 {
                            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                            // Mostly a step inside the line, sometimes a jump anywhere in 64 MB. For some rounds
                            // it is the other way round, so that leaving out pauses and goes on again.
                            let steps = if (20..24).contains(&round) { 1 } else { 12 };
                            addr = match random >> 60 {
                                step if step < steps => addr + (random >> 40) % 24,
                                _ => 0x10_0000 + (random >> 30) % (64 << 20),
                            };
                            // A third of the time code is fetched.
                            let kind = match index / 16 % 3 {
                                0 => AccessKind::Fetch,
                                _ => AccessKind::ALL[(random >> 50) as usize % 4],
                            };
                            let attr = AccessAttr::new(kind, 1 << ((random >> 56) % 7));
                            match kind {
                                AccessKind::Fetch => batch.push_fetch(addr, attr, index),
                                _ => batch.push(addr, attr, index),
                            }
                        }
                    }
                    batch.run(&mut model, &mut beside);
                    len += batch.len;
                    batch.findings(|thread, finding, stretch| {
                        stretch.for_each(|cell, times| found.push((round, thread, cell, finding, times)));
                    });
                    written.extend_from_slice(batch.dram_writes());
                    batch.clear();
                }
                (len, found, written)
            };
            let (all, left) = (run(false), run(true));
            assert!(left.0 < all.0 * 9 / 10, "{name}: the stream must have something to leave out");
            // Only the smallest last level (4 MB) overflows and writes back.
            assert!(left.1.len() > 1000 && (name != "e5504" || !left.2.is_empty()));
            assert!(all.1 == left.1 && all.2 == left.2, "{name}");
        }
    }
}

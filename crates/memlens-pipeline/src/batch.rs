//! Accesses on their way through the memory model.

use crate::address_space::AddressSpace;
use crate::cells::Cells;
use crate::shadow_stack::ShadowStack;
use memlens_sim::{Batch as SimBatch, CacheDescription, CoreId, MachineDescription, Model, Outcome, Policy};
use memlens_types::AccessAttr;
use rustc_hash::FxHashMap;

/// Accesses per run of the model: enough to amortise it, few enough to stay in the second-level cache.
const CAPACITY: usize = 16 << 10;

/// The largest number of accesses that one block or string instruction adds between two checks.
const SLACK: usize = 4 << 10;

/// Accesses of one thread, in order, with their cells.
///
/// An access that cannot change the caches or TLBs is left out: one to the line that the access just
/// before it went to, unless it is the first store to it. Such a line is the most recently used of
/// its set and its page's entry that of its TLB set, so the access hits everywhere and moves nothing.
/// That holds for LRU, tree-PLRU and random replacement, not for RRIP (where the first hit counts).
#[derive(Debug)]
pub struct Batch {
    addrs: Box<[u64]>,
    attrs: Box<[AccessAttr]>,
    cells: Box<[u32]>,
    len: usize,
    line_shift: u32,
    filters: bool,
    /// Line of the last access, and whether it is known to be dirty.
    last_line: u64,
    last_dirty: bool,
    outcome: Outcome,
    /// Lines written back to memory, by owner (object number).
    dram_writes: FxHashMap<u32, u64>,
}

impl Batch {
    /// An empty one, for this machine.
    pub fn new(machine: &MachineDescription) -> Self {
        let room = CAPACITY + SLACK;
        let keeps_order = |cache: &CacheDescription| {
            matches!(cache.policy, Policy::Lru | Policy::TreePlru | Policy::Random)
        };
        Self {
            addrs: vec![0; room].into(),
            attrs: vec![AccessAttr::default(); room].into(),
            cells: vec![0; room].into(),
            len: 0,
            line_shift: machine.line_bytes.max(1).ilog2(),
            filters: machine.line_bytes.is_power_of_two() && keeps_order(&machine.l1d),
            last_line: u64::MAX,
            last_dirty: false,
            outcome: Outcome::default(),
            dram_writes: FxHashMap::default(),
        }
    }

    /// Whether it should be run now.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.len >= CAPACITY
    }

    /// Adds an access.
    #[inline(always)]
    pub fn push(&mut self, addr: u64, attr: AccessAttr, cell: u32) {
        let at = self.len;
        // Room is left by whoever checks `is_full` after each block.
        if at >= self.addrs.len() {
            return;
        }
        self.addrs[at] = addr;
        self.attrs[at] = attr;
        self.cells[at] = cell;
        let last_byte = addr.wrapping_add(u64::from(attr.size_bytes().max(1) - 1));
        let (line, end_line) = (addr >> self.line_shift, last_byte >> self.line_shift);
        let is_write = attr.write_bit() != 0;
        let is_same = end_line == self.last_line;
        let changes_nothing = is_same & (line == end_line) & (!is_write | self.last_dirty) & self.filters;
        self.last_dirty = is_write | (is_same & self.last_dirty);
        self.last_line = end_line;
        self.len = at + usize::from(!changes_nothing);
    }

    /// Lines written back, by owner.
    pub fn dram_writes(&self) -> &FxHashMap<u32, u64> {
        &self.dram_writes
    }

    /// Forgets the lines written back so far.
    pub fn zero(&mut self) {
        self.dram_writes.clear();
    }

    /// Runs the accesses through the model, on `core`, and books the misses.
    pub fn run(
        &mut self,
        model: &mut Model,
        core: CoreId,
        cells: &mut Cells,
        space: &mut AddressSpace,
        stack: &ShadowStack,
    ) {
        if self.len == 0 {
            return;
        }
        let outcome = &mut self.outcome;
        outcome.clear();
        let accesses = SimBatch { addrs: &self.addrs[..self.len], attrs: &self.attrs[..self.len] };
        model.access(core, accesses, outcome);
        let cell_of = |index: u32| self.cells[index as usize];
        for &index in &outcome.l1_misses {
            cells.misses_mut(cell_of(index)).l1 += 1;
        }
        for &index in &outcome.l2_misses {
            cells.misses_mut(cell_of(index)).l2 += 1;
        }
        for &index in &outcome.llc_misses {
            let misses = cells.misses_mut(cell_of(index));
            misses.llc += 1;
            misses.dram_reads += 1;
        }
        for &index in &outcome.dtlb_misses {
            cells.misses_mut(cell_of(index)).dtlb += 1;
        }
        for &index in &outcome.stlb_misses {
            cells.misses_mut(cell_of(index)).stlb += 1;
        }
        for walk in &outcome.walks {
            let misses = cells.misses_mut(cell_of(walk.index));
            misses.walk_accesses += u64::from(walk.entries_read);
            misses.dram_reads += u64::from(walk.llc_misses);
        }
        for invalidation in &outcome.invalidations {
            cells.misses_mut(cell_of(invalidation.index)).invalidations += 1;
        }
        for &line in &outcome.dram_writes {
            // Who owns the line now: an object that ended since it was written loses the write-back
            // to what took its place.
            let owner = space.resolve(line, 0, stack).object.get();
            *self.dram_writes.entry(owner).or_default() += 1;
        }
        self.len = 0;
        // Other cores may touch the line before this thread's next batch.
        self.last_line = u64::MAX;
        self.last_dirty = false;
    }
}

//! Caches, TLBs and cores put together, one access at a time.

use super::cache::{Cache, Line};
use crate::batch::{Batch, CoreId, Invalidation, Outcome};
use crate::machine::{CacheDescription, Inclusion, MachineDescription, ModelError, Rules, TlbDescription};
use crate::page_sizes::{PageSize, PageSizes};
use crate::walker::PageWalker;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;
use memlens_types::{AccessAttr, AccessKind};

/// Who asks for a line, and where its misses are recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// A data access at this position of the batch.
    Data(u32),
    /// An instruction fetch at this position of the batch.
    Fetch(u32),
    /// A page walk at this position of [`Outcome::walks`].
    Walk(usize),
}

impl Origin {
    pub(crate) fn record_l1_miss(self, out: &mut Outcome) {
        match self {
            Self::Data(index) => out.l1_misses.push(index),
            Self::Fetch(index) => out.l1i_misses.push(index),
            Self::Walk(walk) => out.walks[walk].l1_misses += 1,
        }
    }

    pub(crate) fn record_l2_miss(self, out: &mut Outcome) {
        match self {
            Self::Data(index) => out.l2_misses.push(index),
            Self::Fetch(index) => out.l2i_misses.push(index),
            Self::Walk(walk) => out.walks[walk].l2_misses += 1,
        }
    }

    pub(crate) fn record_llc_miss(self, out: &mut Outcome) {
        match self {
            Self::Data(index) => out.llc_misses.push(index),
            Self::Fetch(index) => out.llci_misses.push(index),
            Self::Walk(walk) => out.walks[walk].llc_misses += 1,
        }
    }

    /// What a program does not write, others do not wait for: of code and page tables nothing is recorded.
    pub(crate) fn record_coherence_miss(self, out: &mut Outcome) {
        if let Self::Data(index) = self {
            out.coherence_misses.push(index);
        }
    }
}

/// What a core has for itself.
#[derive(Clone, Debug)]
pub(crate) struct PrivateState {
    pub(crate) id: CoreId,
    pub(crate) l1i: Cache,
    pub(crate) l1d: Cache,
    pub(crate) l2: Option<Cache>,
    /// By page size; empty = the machine has no such level or no entries for the size.
    pub(crate) dtlb: [Option<Cache>; 3],
    pub(crate) stlb: [Option<Cache>; 3],
    pub(crate) walker: Option<PageWalker>,
}

impl PrivateState {
    fn new(id: CoreId, machine: &MachineDescription) -> Self {
        Self {
            id,
            l1i: cache(&machine.l1i),
            l1d: cache(&machine.l1d),
            l2: machine.l2.as_ref().map(cache),
            dtlb: tlb(machine.dtlb.as_ref()),
            stlb: tlb(machine.stlb.as_ref()),
            walker: PageWalker::new(&machine.walker),
        }
    }

    fn caches(&mut self) -> impl Iterator<Item = &mut Cache> {
        [&mut self.l1i, &mut self.l1d].into_iter().chain(&mut self.l2)
    }
}

fn cache(description: &CacheDescription) -> Cache {
    Cache::new(description.sets(), description.ways, description.policy)
}

pub(crate) fn tlb(description: Option<&TlbDescription>) -> [Option<Cache>; 3] {
    let by_size = description.map(TlbDescription::by_page_size).unwrap_or_default();
    by_size.map(|entries| {
        entries.map(|tlb| Cache::new(u64::from(tlb.entries / tlb.ways), tlb.ways, tlb.policy()))
    })
}

/// The obvious model with memlens rules: all policies, inclusion modes and any number of cores.
///
/// [`Model`](crate::Model) gives the same results, faster where it can; this one is the reference
/// that it is held against. It costs 30 to 600 ns an access.
#[derive(Clone, Debug)]
pub struct PlainModel {
    machine: MachineDescription,
    line_shift: u32,
    page_sizes: PageSizes,
    cores: Vec<PrivateState>,
    llc: Cache,
}

impl PlainModel {
    /// An empty machine. Fails if the description is not valid or has cachegrind's rules.
    pub fn new(machine: &MachineDescription) -> Result<Self, ModelError> {
        machine.validate()?;
        if machine.rules != Rules::Memlens {
            return Err(ModelError::OtherRules);
        }
        Ok(Self::of_valid(machine))
    }

    /// The same for a description that was checked.
    pub(crate) fn of_valid(machine: &MachineDescription) -> Self {
        Self {
            machine: machine.clone(),
            line_shift: machine.line_bytes.trailing_zeros(),
            page_sizes: PageSizes::new(),
            cores: Vec::new(),
            llc: cache(&machine.llc),
        }
    }

    /// Declares that a range of addresses is mapped by pages of this size; see [`PageSizes::set`].
    /// TLB entries of the old size stay and age.
    pub fn set_page_size(&mut self, range: Range<u64>, size: PageSize) {
        self.page_sizes.set(range, size);
    }

    /// Runs a batch of one core's accesses and appends what it did to `out`.
    pub fn access(&mut self, core: CoreId, batch: Batch<'_>, out: &mut Outcome) {
        self.access_from(core, batch, 0, out);
    }

    /// As `access`, with positions counted from `first_index`.
    pub(crate) fn access_from(
        &mut self,
        core: CoreId,
        batch: Batch<'_>,
        first_index: u32,
        out: &mut Outcome,
    ) {
        let core = self.position_of(core);
        for (at, (&addr, &attr)) in batch.addrs.iter().zip(batch.attrs).enumerate() {
            self.access_one(core, first_index + at as u32, addr, attr, out);
        }
    }

    /// Where this core's state is; it starts empty.
    pub(crate) fn position_of(&mut self, core: CoreId) -> usize {
        self.cores.iter().position(|state| state.id == core).unwrap_or_else(|| {
            self.cores.push(PrivateState::new(core, &self.machine));
            self.cores.len() - 1
        })
    }

    /// State that another engine fills in.
    pub(crate) fn parts(&mut self, core: usize) -> (&mut PrivateState, &mut Cache, &mut PageSizes) {
        (&mut self.cores[core], &mut self.llc, &mut self.page_sizes)
    }

    /// The machine that this is a model of …
    pub(crate) fn machine(&self) -> &MachineDescription {
        &self.machine
    }

    /// … and its state, for an engine that takes over.
    pub(crate) fn page_sizes(&self) -> &PageSizes {
        &self.page_sizes
    }

    pub(crate) fn cores(&self) -> &[PrivateState] {
        &self.cores
    }

    pub(crate) fn llc(&self) -> &Cache {
        &self.llc
    }

    fn access_one(&mut self, core: usize, index: u32, addr: u64, attr: AccessAttr, out: &mut Outcome) {
        let last_byte = addr.saturating_add(u64::from(attr.size_bytes().max(1) - 1));
        for line in addr >> self.line_shift..=last_byte >> self.line_shift {
            if attr.kind() == AccessKind::Fetch {
                self.access_line(core, line, false, Origin::Fetch(index), out);
            } else {
                self.translate(core, index, addr.max(line << self.line_shift), out);
                self.access_line(core, line, attr.kind().writes(), Origin::Data(index), out);
            }
        }
    }

    fn translate(&mut self, core: usize, index: u32, vaddr: u64, out: &mut Outcome) {
        if self.machine.dtlb.is_none() {
            return;
        }
        let size = self.page_sizes.at(vaddr);
        let page = Line { line: vaddr >> size.shift(), dirty: false, sole: true };
        let state = &mut self.cores[core];
        let dtlb = &mut state.dtlb[size as usize];
        if dtlb.as_mut().is_some_and(|dtlb| dtlb.lookup(page.line).is_some()) {
            return;
        }
        out.dtlb_misses.push(index);
        dtlb.as_mut().map(|dtlb| dtlb.fill(page));
        let stlb = &mut state.stlb[size as usize];
        if stlb.as_mut().is_some_and(|stlb| stlb.lookup(page.line).is_some()) {
            return;
        }
        out.stlb_misses.push(index);
        stlb.as_mut().map(|stlb| stlb.fill(page));
        if let Some(walker) = &mut state.walker {
            let reads = walker.walk(vaddr, size);
            let walk = out.walks.len();
            out.walks.push(reads.walk(index));
            for entry in reads.as_slice() {
                self.access_line(core, entry >> self.line_shift, false, Origin::Walk(walk), out);
            }
        }
    }

    /// One line of one access, from the first level down.
    pub(crate) fn access_line(
        &mut self,
        core: usize,
        line: u64,
        write: bool,
        origin: Origin,
        out: &mut Outcome,
    ) {
        let state = &mut self.cores[core];
        let l1 = if matches!(origin, Origin::Fetch(_)) { &mut state.l1i } else { &mut state.l1d };
        if let Some(entry) = l1.lookup(line) {
            if write {
                let ask_others = !entry.sole;
                entry.dirty = true;
                entry.sole = true;
                if ask_others {
                    self.invalidate_others(core, line, origin, out);
                }
            }
            return;
        }
        origin.record_l1_miss(out);
        let held_elsewhere = if write {
            self.invalidate_others(core, line, origin, out)
        } else {
            self.downgrade_others(core, line, origin, out)
        };
        let sole = write || !held_elsewhere;
        self.read_l2(core, line, sole, held_elsewhere, origin, out);
        let state = &mut self.cores[core];
        let l1 = if matches!(origin, Origin::Fetch(_)) { &mut state.l1i } else { &mut state.l1d };
        let victim = l1.fill(Line { line, dirty: write, sole });
        if let Some(victim) = victim.filter(|victim| victim.dirty) {
            self.write_l2(core, victim, out);
        }
    }

    fn read_l2(
        &mut self,
        core: usize,
        line: u64,
        sole: bool,
        held_elsewhere: bool,
        origin: Origin,
        out: &mut Outcome,
    ) {
        let Some(l2) = &mut self.cores[core].l2 else {
            self.read_llc(line, held_elsewhere, origin, out);
            return;
        };
        if l2.lookup(line).is_some() {
            return;
        }
        origin.record_l2_miss(out);
        let dirty = self.read_llc(line, held_elsewhere, origin, out);
        let victim = self.cores[core].l2.as_mut().and_then(|l2| l2.fill(Line { line, dirty, sole }));
        if let Some(victim) = victim {
            self.evicted_from_l2(victim, out);
        }
    }

    /// A dirty line leaves the first level: the second takes it without reading it from below.
    fn write_l2(&mut self, core: usize, line: Line, out: &mut Outcome) {
        let Some(l2) = &mut self.cores[core].l2 else {
            self.write_llc(line, out);
            return;
        };
        if let Some(entry) = l2.lookup(line.line) {
            entry.dirty = true;
            return;
        }
        let victim = l2.fill(line);
        if self.machine.inclusion == Inclusion::Exclusive {
            self.llc.remove(line.line);
        }
        if let Some(victim) = victim {
            self.evicted_from_l2(victim, out);
        }
    }

    fn evicted_from_l2(&mut self, victim: Line, out: &mut Outcome) {
        if victim.dirty || self.machine.inclusion == Inclusion::Exclusive {
            self.write_llc(victim, out);
        }
    }

    /// Returns whether the line came dirty: an exclusive last level hands over the duty to write
    /// it back. A line that another core holds comes from there, not from memory.
    fn read_llc(&mut self, line: u64, held_elsewhere: bool, origin: Origin, out: &mut Outcome) -> bool {
        if self.machine.inclusion == Inclusion::Exclusive {
            let found = self.llc.remove(line);
            if found.is_none() && !held_elsewhere {
                origin.record_llc_miss(out);
            }
            return found.is_some_and(|found| found.dirty);
        }
        if self.llc.lookup(line).is_none() {
            if !held_elsewhere {
                origin.record_llc_miss(out);
            }
            let victim = self.llc.fill(Line { line, dirty: false, sole: true });
            self.evicted_from_llc(victim, out);
        }
        false
    }

    fn write_llc(&mut self, line: Line, out: &mut Outcome) {
        if let Some(entry) = self.llc.lookup(line.line) {
            entry.dirty |= line.dirty;
            return;
        }
        let victim = self.llc.fill(line);
        self.evicted_from_llc(victim, out);
    }

    fn evicted_from_llc(&mut self, victim: Option<Line>, out: &mut Outcome) {
        let Some(mut victim) = victim else { return };
        if self.machine.inclusion == Inclusion::Inclusive {
            for cache in self.cores.iter_mut().flat_map(PrivateState::caches) {
                victim.dirty |= cache.remove(victim.line).is_some_and(|line| line.dirty);
            }
        }
        if victim.dirty {
            out.dram_writes.push(victim.line << self.line_shift);
        }
    }

    /// Another core is about to read: copies become shared, dirty data goes to the last level.
    /// Returns whether another core has the line.
    fn downgrade_others(&mut self, core: usize, line: u64, origin: Origin, out: &mut Outcome) -> bool {
        let (mut held, mut dirty) = (false, false);
        for (at, state) in self.cores.iter_mut().enumerate() {
            if at == core {
                continue;
            }
            for entry in state.caches().filter_map(|cache| cache.peek(line)) {
                held = true;
                entry.sole = false;
                dirty |= core::mem::take(&mut entry.dirty);
            }
        }
        if dirty {
            origin.record_coherence_miss(out);
            self.write_llc(Line { line, dirty, sole: false }, out);
        }
        held
    }

    /// This core is about to write: all other copies go, dirty data moves through the last level.
    /// Returns whether another core had the line.
    fn invalidate_others(&mut self, core: usize, line: u64, origin: Origin, out: &mut Outcome) -> bool {
        let (mut held_at_all, mut dirty) = (false, false);
        for (at, state) in self.cores.iter_mut().enumerate() {
            if at == core {
                continue;
            }
            let mut held = false;
            for entry in state.caches().filter_map(|cache| cache.remove(line)) {
                held = true;
                dirty |= entry.dirty;
            }
            if let (true, Origin::Data(index)) = (held, origin) {
                out.invalidations.push(Invalidation {
                    index,
                    line_addr: line << self.line_shift,
                    core: state.id,
                });
            }
            held_at_all |= held;
        }
        if dirty {
            origin.record_coherence_miss(out);
            self.write_llc(Line { line, dirty, sole: false }, out);
        }
        held_at_all
    }

    /// Appends every line that is still dirty anywhere to `out.dram_writes`, once each and by
    /// address, and makes them clean: what the machine would still write if it were shut down.
    pub fn flush_writebacks(&mut self, out: &mut Outcome) {
        let private = self.cores.iter_mut().flat_map(PrivateState::caches);
        let mut dirty = BTreeSet::new();
        for line in private.chain([&mut self.llc]).flat_map(Cache::lines_mut) {
            if core::mem::take(&mut line.dirty) {
                dirty.insert(line.line << self.line_shift);
            }
        }
        out.dram_writes.extend(dirty);
    }
}

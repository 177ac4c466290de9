//! Caches, TLBs and cores put together.

use super::directory::{CORE_BITS, Directory, FETCHED};
use super::sets::{DIRTY, SOLE, Sets, line_of};
use super::tlbs::{PageArray, Tlbs};
use crate::batch::{Batch, CoreId, Invalidation, Outcome};
use crate::fast::Tlb1;
use crate::machine::{CacheDescription, Inclusion, MachineDescription, ModelError, Policy, Rules};
use crate::page_sizes::{PageSize, PageSizes};
use crate::plain::{Cache, Origin, PlainModel, PrivateState};
use crate::simd::{Kernel, SimdLevel, Task, dispatch};
use crate::walker::{PageWalker, WalkReads};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;
use memlens_types::{AccessAttr, AccessKind};

type Dtlb = Tlbs<1024, 256>;
type Stlb = Tlbs<16384, 16384>;

/// What a core has for itself.
#[derive(Clone, Debug)]
struct Core {
    id: CoreId,
    l1i: Sets,
    l1d: Sets,
    l2: Option<Sets>,
    dtlb: Dtlb,
    stlb: Stlb,
    walker: Option<PageWalker>,
}

impl Core {
    /// None if a TLB is too large for this engine.
    fn new(id: CoreId, machine: &MachineDescription) -> Option<Self> {
        Some(Self {
            id,
            l1i: Sets::new(&machine.l1i),
            l1d: Sets::new(&machine.l1d),
            l2: machine.l2.as_ref().map(Sets::new),
            dtlb: Dtlb::new(machine.dtlb.as_ref())?,
            stlb: Stlb::new(machine.stlb.as_ref())?,
            walker: PageWalker::new(&machine.walker),
        })
    }

    fn caches(&mut self) -> impl Iterator<Item = &mut Sets> {
        [&mut self.l1i, &mut self.l1d].into_iter().chain(&mut self.l2)
    }

    /// The caches that may have a line, L1I only if one was `fetched`.
    #[inline(always)]
    fn caches_of(&mut self, fetched: bool) -> impl Iterator<Item = &mut Sets> {
        let l1i = if fetched { Some(&mut self.l1i) } else { None };
        [&mut self.l1d].into_iter().chain(&mut self.l2).chain(l1i)
    }

    // Loops, and no closures given to iterators: those would be compiled without the kernel's instructions.

    /// Takes a line out of all caches: whether it was there, whether it was dirty.
    #[inline(always)]
    fn remove<K: Kernel>(&mut self, kernel: K, line: u64, fetched: bool) -> (bool, bool) {
        let mut found = NOWHERE;
        for cache in self.caches_of(fetched) {
            if let Some(word) = cache.remove(kernel, line) {
                found = with(found, word);
            }
        }
        found
    }

    /// Makes a line clean and shared in all caches: whether it is there, whether it was dirty.
    #[inline(always)]
    fn share<K: Kernel>(&mut self, kernel: K, line: u64, fetched: bool) -> (bool, bool) {
        let mut found = NOWHERE;
        for cache in self.caches_of(fetched) {
            if let Some(word) = cache.peek(kernel, line) {
                found = with(found, *word);
                if *word & (DIRTY | SOLE) != 0 {
                    *word &= !(DIRTY | SOLE);
                }
            }
        }
        found
    }
}

/// (held, dirty) of a line that is in no cache …
const NOWHERE: (bool, bool) = (false, false);

/// … and of one that is also in a cache that has this word for it.
fn with((_, dirty): (bool, bool), word: u64) -> (bool, bool) {
    (true, dirty | (word & DIRTY != 0))
}

/// The same results as [`PlainModel`] for machines with LRU at all levels.
#[derive(Clone, Debug)]
pub(crate) struct CoherentModel {
    machine: MachineDescription,
    simd: SimdLevel,
    inclusion: Inclusion,
    has_dtlb: bool,
    line_shift: u32,
    page_sizes: PageSizes,
    cores: Vec<Core>,
    llc: Sets,
    directory: Directory,
}

impl CoherentModel {
    /// An empty machine; none if it is not of the kind this engine is for.
    pub(crate) fn new(machine: &MachineDescription, simd: SimdLevel) -> Result<Option<Self>, ModelError> {
        machine.validate()?;
        Ok(Self::of_valid(machine, simd))
    }

    fn of_valid(machine: &MachineDescription, simd: SimdLevel) -> Option<Self> {
        let is_lru = |cache: &CacheDescription| cache.policy == Policy::Lru;
        let lru = [&machine.l1i, &machine.l1d, &machine.llc].into_iter().chain(&machine.l2).all(is_lru);
        if machine.rules != Rules::Memlens || !lru {
            return None;
        }
        Dtlb::new(machine.dtlb.as_ref())?;
        Stlb::new(machine.stlb.as_ref())?;
        Some(Self {
            machine: machine.clone(),
            simd,
            inclusion: machine.inclusion,
            has_dtlb: machine.dtlb.is_some(),
            line_shift: machine.line_bytes.trailing_zeros(),
            page_sizes: PageSizes::new(),
            cores: Vec::new(),
            llc: Sets::new(&machine.llc),
            directory: Directory::with_room_for(0),
        })
    }

    /// Takes over the obvious model's state; none if its machine is not of the kind this engine is for.
    pub(crate) fn from_plain(plain: &PlainModel, simd: SimdLevel) -> Option<Self> {
        let mut model = Self::of_valid(plain.machine(), simd)?;
        model.page_sizes.clone_from(plain.page_sizes());
        for state in plain.cores() {
            model.cores.push(Core::from_plain(state, plain.machine(), simd)?);
        }
        dispatch(simd, TakeOver { cache: plain.llc(), sets: &mut model.llc });
        model.renew_directory();
        Some(model)
    }

    /// As [`PlainModel::set_page_size`].
    pub(crate) fn set_page_size(&mut self, range: Range<u64>, size: PageSize) {
        self.page_sizes.set(range, size);
    }

    /// As [`PlainModel::access`].
    pub(crate) fn access(&mut self, core: CoreId, batch: Batch<'_>, out: &mut Outcome) {
        let Some(core) = self.position_of(core) else { return };
        dispatch(self.simd, Run { model: self, core, batch, out });
    }

    /// Where this core's state is; it starts empty. There always is one: the TLBs fit, as was tried.
    fn position_of(&mut self, id: CoreId) -> Option<usize> {
        if let Some(at) = self.cores.iter().position(|core| core.id == id) {
            return Some(at);
        }
        self.cores.push(Core::new(id, &self.machine)?);
        Some(self.cores.len() - 1)
    }

    /// As [`PlainModel::flush_writebacks`].
    pub(crate) fn flush_writebacks(&mut self, out: &mut Outcome) {
        let mut dirty = BTreeSet::new();
        let private = self.cores.iter_mut().flat_map(Core::caches);
        for cache in private.chain([&mut self.llc]) {
            cache.clean(|line| {
                dirty.insert(line << self.line_shift);
            });
        }
        out.dram_writes.extend(dirty);
    }

    /// Makes the directory anew from what the private caches hold.
    #[cold]
    fn renew_directory(&mut self) {
        let caches =
            |core: &Core| [&core.l1i, &core.l1d].into_iter().chain(&core.l2).flat_map(Sets::lines).count();
        self.directory = Directory::with_room_for(self.cores.iter().map(caches).sum());
        for (at, core) in self.cores.iter().enumerate() {
            let held = core.l1d.lines().chain(core.l2.iter().flat_map(Sets::lines));
            held.for_each(|line| *self.directory.cores_mut(line) |= bit(at));
            core.l1i.lines().for_each(|line| *self.directory.cores_mut(line) |= bit(at) | FETCHED);
        }
    }

    /// Runs accesses of the common kind — data within one line, which L1D and the dTLB have, and which
    /// a store finds in no other core — and returns how many; the next one, if any, is of another kind.
    /// Of that one the page may have been used already, which using it again does not change.
    #[inline(always)]
    fn run_hits<K: Kernel>(&mut self, kernel: K, core: usize, batch: Batch<'_>) -> usize {
        let Core { l1d, dtlb, .. } = &mut self.cores[core];
        let line_shift = self.line_shift;
        if !self.has_dtlb {
            run_hits(kernel, l1d, line_shift, batch, |_| true)
        } else {
            let page_of = |addr: u64| addr >> PageSize::Size4K.shift();
            match dtlb.of_small_pages().filter(|_| self.page_sizes.is_uniform()) {
                None => 0,
                Some(PageArray::Stamps(tlb)) => {
                    run_hits(kernel, l1d, line_shift, batch, |addr| tlb.lookup(page_of(addr)))
                }
                Some(PageArray::Clock(tlb)) => {
                    let mut cursor = tlb.cursor::<true>();
                    let done = run_hits(kernel, l1d, line_shift, batch, |addr| cursor.lookup(page_of(addr)));
                    let registers = cursor.registers();
                    tlb.keep(registers);
                    done
                }
            }
        }
    }

    /// Returns the page-table entries that a walk reads, if there is one.
    #[inline(always)]
    fn translate(&mut self, core: usize, index: u32, vaddr: u64, out: &mut Outcome) -> Option<WalkReads> {
        let size = if self.page_sizes.is_uniform() { PageSize::Size4K } else { self.page_sizes.at(vaddr) };
        let page = vaddr >> size.shift();
        if self.cores[core].dtlb.lookup_or_fill(size, page) {
            return None;
        }
        self.translate_slowly(core, index, vaddr, size, out)
    }

    /// After a miss of the first level, which now has the page if it has entries of the size.
    #[inline(never)]
    fn translate_slowly(
        &mut self,
        core: usize,
        index: u32,
        vaddr: u64,
        size: PageSize,
        out: &mut Outcome,
    ) -> Option<WalkReads> {
        let state = &mut self.cores[core];
        out.dtlb_misses.push(index);
        if state.stlb.lookup_or_fill(size, vaddr >> size.shift()) {
            return None;
        }
        out.stlb_misses.push(index);
        let reads = state.walker.as_mut()?.walk(vaddr, size);
        out.walks.push(reads.walk(index));
        Some(reads)
    }

    /// One line of one access, from the first level down. The steps and their order are those of
    /// [`PlainModel`].
    #[inline(always)]
    fn access_line<K: Kernel>(
        &mut self,
        kernel: K,
        core: usize,
        line: u64,
        write: bool,
        origin: Origin,
        out: &mut Outcome,
    ) {
        let state = &mut self.cores[core];
        let is_fetch = matches!(origin, Origin::Fetch(_));
        let l1 = if is_fetch { &mut state.l1i } else { &mut state.l1d };
        let written = if write { DIRTY | SOLE } else { 0 };
        match l1.lookup(kernel, line, written) {
            Some(word) if !write || word & (DIRTY | SOLE) != 0 => return,
            Some(_) => {
                self.ask_others(kernel, core, line, write, origin, out);
                return;
            }
            None => origin.record_l1_miss(out),
        }
        let sole = self.read_l2(kernel, core, line, write, origin, out);
        let state = &mut self.cores[core];
        let l1 = if is_fetch { &mut state.l1i } else { &mut state.l1d };
        if let Some(victim) = l1.fill(kernel, line, written | sole)
            && victim & DIRTY != 0
        {
            self.write_l2(kernel, core, line_of(victim), out);
        }
    }

    /// Returns [`SOLE`] if no other core has the line any more.
    ///
    /// Our own L2 is looked at before the other cores: where it says that no other core has the line,
    /// nobody is asked. Neither changes what the other finds.
    #[inline(always)]
    fn read_l2<K: Kernel>(
        &mut self,
        kernel: K,
        core: usize,
        line: u64,
        write: bool,
        origin: Origin,
        out: &mut Outcome,
    ) -> u64 {
        let l2 = &mut self.cores[core].l2;
        let has_l2 = l2.is_some();
        let word = l2.as_mut().and_then(|l2| l2.lookup(kernel, line, 0));
        // The directory must learn of the first fetch.
        let is_fetch = matches!(origin, Origin::Fetch(_));
        if !is_fetch && word.is_some_and(|word| word & SOLE != 0) {
            return SOLE;
        }
        let held_elsewhere = self.ask_others(kernel, core, line, write, origin, out);
        let sole = if write || !held_elsewhere { SOLE } else { 0 };
        if word.is_some() {
            if let Some(l2) = self.cores[core].l2.as_mut().filter(|_| sole != 0) {
                // Looked up above.
                *l2.most_recent(line) |= sole;
            }
            return sole;
        }
        if has_l2 {
            origin.record_l2_miss(out);
        }
        let dirty = self.read_llc(kernel, line, held_elsewhere, origin, out);
        let l2 = &mut self.cores[core].l2;
        let victim = l2.as_mut().and_then(|l2| l2.fill(kernel, line, dirty | sole));
        self.evicted_from_l2(kernel, victim, out);
        sole
    }

    /// A dirty line leaves the first level: the second takes it without reading it from below.
    #[inline(always)]
    fn write_l2<K: Kernel>(&mut self, kernel: K, core: usize, line: u64, out: &mut Outcome) {
        let Some(l2) = &mut self.cores[core].l2 else {
            self.write_llc(kernel, line, DIRTY, out);
            return;
        };
        // What was dirty in L1D no other core has.
        if l2.lookup(kernel, line, DIRTY | SOLE).is_some() {
            return;
        }
        let victim = l2.fill(kernel, line, DIRTY | SOLE);
        if self.inclusion == Inclusion::Exclusive {
            self.llc.remove(kernel, line);
        }
        self.evicted_from_l2(kernel, victim, out);
    }

    #[inline(always)]
    fn evicted_from_l2<K: Kernel>(&mut self, kernel: K, victim: Option<u64>, out: &mut Outcome) {
        if let Some(victim) = victim
            && (victim & DIRTY != 0 || self.inclusion == Inclusion::Exclusive)
        {
            self.write_llc(kernel, line_of(victim), victim & DIRTY, out);
        }
    }

    /// Returns [`DIRTY`] if the line came dirty: an exclusive last level hands over the duty to write
    /// it back.
    #[inline(always)]
    fn read_llc<K: Kernel>(
        &mut self,
        kernel: K,
        line: u64,
        held_elsewhere: bool,
        origin: Origin,
        out: &mut Outcome,
    ) -> u64 {
        let exclusive = self.inclusion == Inclusion::Exclusive;
        let found = if exclusive { self.llc.remove(kernel, line) } else { self.llc.lookup(kernel, line, 0) };
        if found.is_none() {
            if !held_elsewhere {
                origin.record_llc_miss(out);
            }
            if !exclusive {
                let victim = self.llc.fill(kernel, line, 0);
                self.evicted_from_llc(kernel, victim, out);
            }
        }
        if exclusive { found.unwrap_or(0) & DIRTY } else { 0 }
    }

    #[inline(always)]
    fn write_llc<K: Kernel>(&mut self, kernel: K, line: u64, dirty: u64, out: &mut Outcome) {
        if self.llc.lookup(kernel, line, dirty).is_none() {
            let victim = self.llc.fill(kernel, line, dirty);
            self.evicted_from_llc(kernel, victim, out);
        }
    }

    #[inline(always)]
    fn evicted_from_llc<K: Kernel>(&mut self, kernel: K, victim: Option<u64>, out: &mut Outcome) {
        let Some(victim) = victim else { return };
        let (line, mut dirty) = (line_of(victim), victim & DIRTY != 0);
        if self.inclusion == Inclusion::Inclusive {
            // The bits stay: the line may be on its way into one of the caches.
            let may_hold = self.directory.cores(line);
            for core in cores_of(may_hold, self.cores.len()) {
                dirty |= self.cores[core].remove(kernel, line, may_hold & FETCHED != 0).1;
            }
        }
        if dirty {
            out.dram_writes.push(line << self.line_shift);
        }
    }

    /// This core is about to have the line: to write it, or to read it after a miss. Others lose their
    /// copies or keep clean ones; dirty data goes to the last level. Returns whether others had it.
    #[inline(always)]
    fn ask_others<K: Kernel>(
        &mut self,
        kernel: K,
        core: usize,
        line: u64,
        write: bool,
        origin: Origin,
        out: &mut Outcome,
    ) -> bool {
        if self.directory.is_full() {
            self.renew_directory();
        }
        let is_fetch = matches!(origin, Origin::Fetch(_));
        let may_hold = self.directory.cores_mut(line);
        let before = *may_hold;
        *may_hold |= bit(core) | if is_fetch { FETCHED } else { 0 };
        let others = before & !(bit(core) | FETCHED);
        if others == 0 && (before == 0 || self.cores.len() <= CORE_BITS) {
            return false;
        }
        self.ask(kernel, core, line, write, before, origin, out)
    }

    /// Asks all other cores that the directory named.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    fn ask<K: Kernel>(
        &mut self,
        kernel: K,
        core: usize,
        line: u64,
        write: bool,
        named: u64,
        origin: Origin,
        out: &mut Outcome,
    ) -> bool {
        let fetched = named & FETCHED != 0;
        let (mut held_at_all, mut dirty_at_all, mut holders) = (false, false, bit(core));
        for other in cores_of(named, self.cores.len()).filter(|&other| other != core) {
            let state = &mut self.cores[other];
            let (held, dirty) =
                if write { state.remove(kernel, line, fetched) } else { state.share(kernel, line, fetched) };
            if held && write {
                if let Origin::Data(index) = origin {
                    let line_addr = line << self.line_shift;
                    out.invalidations.push(Invalidation { index, line_addr, core: state.id });
                }
            } else if held {
                holders |= bit(other);
            }
            held_at_all |= held;
            dirty_at_all |= dirty;
        }
        let entry = self.directory.cores_mut(line);
        *entry = holders | *entry & FETCHED;
        if dirty_at_all {
            origin.record_coherence_miss(out);
            self.write_llc(kernel, line, DIRTY, out);
        }
        held_at_all
    }
}

impl Core {
    fn from_plain(state: &PrivateState, machine: &MachineDescription, simd: SimdLevel) -> Option<Self> {
        let mut core = Self::new(state.id, machine)?;
        core.walker.clone_from(&state.walker);
        let pairs = [(&state.l1i, &mut core.l1i), (&state.l1d, &mut core.l1d)];
        for (cache, sets) in pairs.into_iter().chain(state.l2.as_ref().zip(core.l2.as_mut())) {
            dispatch(simd, TakeOver { cache, sets });
        }
        for size in PageSize::ALL {
            if let Some(cache) = &state.dtlb[size as usize] {
                core.dtlb.take_over(size, cache);
            }
            if let Some(cache) = &state.stlb[size as usize] {
                core.stlb.take_over(size, cache);
            }
        }
        Some(core)
    }
}

fn bit(core: usize) -> u64 {
    1 << (core % CORE_BITS)
}

/// The cores, in ascending order, that a directory entry stands for.
#[inline(always)]
fn cores_of(bits: u64, cores: usize) -> impl Iterator<Item = usize> {
    let mut left = bits & !FETCHED;
    // With more cores than bits, the bits are gone through again for the next ones.
    let mut first = 0;
    core::iter::from_fn(move || {
        loop {
            if left == 0 {
                first += CORE_BITS;
                left = bits & !FETCHED;
                if first >= cores || left == 0 {
                    return None;
                }
            }
            let core = first + left.trailing_zeros() as usize;
            left &= left - 1;
            if core < cores {
                return Some(core);
            }
        }
    })
}

/// Fills empty sets with a cache's lines, oldest first.
struct TakeOver<'a> {
    cache: &'a Cache,
    sets: &'a mut Sets,
}

impl Task for TakeOver<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        for line in self.cache.lines_oldest_first() {
            let flags = [(line.dirty, DIRTY), (line.sole, SOLE)];
            let flags = flags.iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag);
            self.sets.fill(kernel, line.line, flags);
        }
    }
}

/// A batch of one core.
struct Run<'a> {
    model: &'a mut CoherentModel,
    core: usize,
    batch: Batch<'a>,
    out: &'a mut Outcome,
}

impl Task for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let Self { model, core, batch, out } = self;
        let line_shift = model.line_shift;
        let end = batch.len();
        let mut next = 0;
        loop {
            next += model.run_hits(kernel, core, batch.from(next));
            if next == end {
                return;
            }
            let (addr, attr, index) = (batch.addrs[next], batch.attrs[next], next as u32);
            next += 1;
            let is_fetch = attr.kind() == AccessKind::Fetch;
            let origin = if is_fetch { Origin::Fetch(index) } else { Origin::Data(index) };
            for line in lines(addr, attr, line_shift) {
                if model.has_dtlb && !is_fetch {
                    let vaddr = addr.max(line << line_shift);
                    if let Some(reads) = model.translate(core, index, vaddr, out) {
                        let walk = Origin::Walk(out.walks.len() - 1);
                        for entry in reads.as_slice() {
                            model.access_line(kernel, core, entry >> line_shift, false, walk, out);
                        }
                    }
                }
                model.access_line(kernel, core, line, attr.write_bit() != 0, origin, out);
            }
        }
    }
}

/// See [`CoherentModel::run_hits`]. `translate` says whether the dTLB has an address's page, and uses it.
#[inline(always)]
fn run_hits<K: Kernel>(
    kernel: K,
    l1d: &mut Sets,
    line_shift: u32,
    batch: Batch<'_>,
    mut translate: impl FnMut(u64) -> bool,
) -> usize {
    let line_bytes = 1 << line_shift;
    for (at, (&addr, &attr)) in batch.addrs.iter().zip(batch.attrs).enumerate() {
        let straddles = (addr & (line_bytes - 1)) + u64::from(attr.size_bytes()) > line_bytes;
        // Bit 2 of the kind is set for fetches only.
        if straddles || attr.0 & 4 != 0 || !translate(addr) {
            return at;
        }
        let line = addr >> line_shift;
        let write = attr.write_bit() != 0;
        let recent = l1d.most_recent(line);
        if line_of(*recent) == line && (!write || *recent & (DIRTY | SOLE) != 0) {
            // A narrow store delays the next wide load of the set: only where it changes something.
            if write && *recent & DIRTY == 0 {
                *recent |= DIRTY;
            }
        } else if !l1d.use_here(kernel, line, write) {
            return at;
        }
    }
    batch.len()
}

/// The lines that an access touches.
#[inline(always)]
fn lines(addr: u64, attr: AccessAttr, line_shift: u32) -> core::ops::RangeInclusive<u64> {
    let last_byte = addr.saturating_add(u64::from(attr.size_bytes().max(1) - 1));
    addr >> line_shift..=last_byte >> line_shift
}

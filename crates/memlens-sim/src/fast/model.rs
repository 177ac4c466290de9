//! The front (TLBs, most recent lines) and the back (queues from level to level).

use super::level::Level;
use super::regions::Regions;
use super::tlb::{STAMP_SHIFT, StampTlb, slot_of};
use crate::batch::{Batch, CoreId, Outcome, Walk};
use crate::machine::{
    CacheDescription, Inclusion, MachineDescription, ModelError, Policy, Rules, TlbDescription,
};
use crate::page_sizes::{PageSize, PageSizes};
use crate::plain::{Line, Origin, PlainModel};
use crate::simd::{Kernel, SimdLevel, Task, dispatch};
use crate::walker::PageWalker;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use memlens_types::{AccessAttr, AccessKind};

/// References between two drains of the queues: the queues stay in the host's L1 and L2.
const CHUNK: usize = 4096;
/// How far ahead of its use a set of the next level is fetched, in queue entries.
const AHEAD: usize = 8;
/// No line has this address; clean.
const NO_LINE: u64 = u64::MAX - 1;

/// The line size that the hot loop is made for, as a power of two.
const HOT_LINE_SHIFT: u32 = 6;

const DTLB_SLOTS: usize = 1024;
type Dtlb = StampTlb<DTLB_SLOTS, 256>;
type Stlb = StampTlb<16384, 16384>;

/// A request in a queue: who asks, in one word.
///
/// ```text
///  31 30  29                            28            0
/// ┌──────┬─────────────────────────────┬───────────────┐
/// │ who  │ the line that was most      │ position in   │
/// │      │ recent in the set is dirty  │ chunk / walks │
/// └──────┴─────────────────────────────┴───────────────┘
/// ```
type Asker = u32;
const DATA: Asker = 0;
const FETCH: Asker = 1 << 30;
const WALK: Asker = 2 << 30;
const FIRST_DIRTY_BIT: u32 = 29;
const POSITION_MASK: u32 = (1 << FIRST_DIRTY_BIT) - 1;

/// The address space used is larger than the tags can tell apart: go on with the obvious model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overflow {
    /// The first access of the batch that was not run.
    pub(crate) next: usize,
    /// What the positions of the requests left over are counted from: accesses of the batch …
    first_index: u32,
    /// … and walks of the outcome.
    first_walk: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct FastModel {
    machine: MachineDescription,
    simd: SimdLevel,
    core: Option<CoreId>,
    line_shift: u32,
    page_sizes: PageSizes,
    dtlb: [Option<Dtlb>; 3],
    stlb: [Option<Stlb>; 3],
    walker: Option<PageWalker>,
    l1d_recent: RecentLines,
    l1i_recent: RecentLines,
    /// Requests that are not for the most recent line of their set.
    to_l1: Requests,
    back: Back,
}

/// The most recent line of each set of a first-level cache: `line address << 1 | dirty`. The dirty
/// bit adds to that of the set's own first word.
#[derive(Clone, Debug)]
struct RecentLines {
    lines: Vec<u64>,
    is_power_of_two: bool,
}

impl RecentLines {
    fn new(cache: &CacheDescription) -> Self {
        let sets = cache.sets();
        Self { lines: vec![NO_LINE; sets as usize], is_power_of_two: sets.is_power_of_two() }
    }

    /// Uses a line; a request goes to the queue unless it was the most recent one already.
    fn touch(&mut self, line: u64, write: u64, asker: Asker, queue: &mut Requests) {
        let sets = self.lines.len() as u64;
        let set = if self.is_power_of_two { line & (sets - 1) } else { line % sets } as usize;
        let recent = &mut self.lines[set];
        if *recent >> 1 == line {
            *recent |= write;
            return;
        }
        queue.push(line, asker | (*recent as u32 & 1) << FIRST_DIRTY_BIT);
        *recent = line << 1 | write;
    }
}

/// A request to the first level.
#[derive(Clone, Copy, Debug, Default)]
struct LineRequest {
    line: u64,
    asker: Asker,
}

/// A queue with room that is filled by position in the hot loop.
#[derive(Clone, Debug)]
struct Requests {
    room: Vec<LineRequest>,
    len: usize,
}

impl Requests {
    fn with_room(room: usize) -> Self {
        Self { room: vec![LineRequest::default(); room], len: 0 }
    }

    fn as_slice(&self) -> &[LineRequest] {
        &self.room[..self.len]
    }

    fn push(&mut self, line: u64, asker: Asker) {
        if self.len == self.room.len() {
            self.room.resize(2 * self.len, LineRequest::default());
        }
        self.room[self.len] = LineRequest { line, asker };
        self.len += 1;
    }

    fn drop_first(&mut self, count: usize) {
        self.room.drain(..count);
        self.len -= count;
    }
}

/// A request to L2 or the last level: `compact line address << 1 | is a write-back`.
#[derive(Clone, Copy, Debug)]
struct Request {
    line: u64,
    asker: Asker,
}

#[derive(Clone, Debug)]
struct Back {
    regions: Regions,
    l1d: Level,
    l1i: Level,
    l2: Option<Level>,
    llc: Level,
    to_l2: Vec<Request>,
    to_llc: Vec<Request>,
    line_shift: u32,
}

impl FastModel {
    /// None if the machine is not of the kind this engine is for.
    pub(crate) fn new(machine: &MachineDescription, simd: SimdLevel) -> Result<Option<Self>, ModelError> {
        machine.validate()?;
        let caches = [Some(&machine.l1i), Some(&machine.l1d), machine.l2.as_ref(), Some(&machine.llc)];
        let lru = caches.iter().flatten().all(|cache| cache.policy == Policy::Lru);
        let odd_parts = caches.iter().flatten().map(|cache| cache.sets() >> cache.sets().trailing_zeros());
        let modulus = odd_parts.fold(1, least_common_multiple);
        if machine.rules != Rules::Memlens
            || machine.inclusion != Inclusion::NonInclusive
            || !lru
            || modulus > 1024
        {
            return Ok(None);
        }
        let line_shift = machine.line_bytes.trailing_zeros();
        let limits = caches.iter().flatten().map(|cache| Regions::limit_for(cache.sets(), line_shift));
        let (Some(dtlb), Some(stlb)) = (tlbs(machine.dtlb.as_ref()), tlbs(machine.stlb.as_ref())) else {
            return Ok(None);
        };
        Ok(Some(Self {
            machine: machine.clone(),
            simd,
            core: None,
            line_shift,
            page_sizes: PageSizes::new(),
            dtlb,
            stlb,
            walker: PageWalker::new(&machine.walker),
            l1d_recent: RecentLines::new(&machine.l1d),
            l1i_recent: RecentLines::new(&machine.l1i),
            to_l1: Requests::with_room(2 * CHUNK),
            back: Back {
                regions: Regions::new(line_shift, modulus, limits.min().unwrap_or(0)),
                l1d: Level::new(&machine.l1d),
                l1i: Level::new(&machine.l1i),
                l2: machine.l2.as_ref().map(Level::new),
                llc: Level::new(&machine.llc),
                to_l2: Vec::new(),
                to_llc: Vec::new(),
                line_shift,
            },
        }))
    }

    /// The core whose accesses run here, once there was one.
    pub(crate) fn core(&self) -> Option<CoreId> {
        self.core
    }

    pub(crate) fn set_page_size(&mut self, range: Range<u64>, size: PageSize) {
        self.page_sizes.set(range, size);
    }

    pub(crate) fn access(
        &mut self,
        core: CoreId,
        batch: Batch<'_>,
        out: &mut Outcome,
    ) -> Result<(), Overflow> {
        self.core = Some(core);
        let end = batch.len();
        let (addrs, attrs) = (&batch.addrs[..end], &batch.attrs[..end]);
        let mut next = 0;
        while next < end {
            let (start, first_walk) = (next, out.walks.len());
            let stop = end.min(start + CHUNK);
            while next < stop && self.to_l1.len <= CHUNK {
                next += self.run_hot(&addrs[next..stop], &attrs[next..stop], (next - start) as u32);
                if next < stop && self.to_l1.len <= CHUNK {
                    self.access_one(
                        addrs[next],
                        attrs[next],
                        (next - start) as u32,
                        start as u32,
                        first_walk,
                        out,
                    );
                    next += 1;
                }
            }
            let drain = Drain {
                back: &mut self.back,
                requests: &self.to_l1,
                first_index: start as u32,
                first_walk,
                out: &mut *out,
            };
            let served = dispatch(self.simd, drain);
            if served < self.to_l1.len {
                self.to_l1.drop_first(served);
                return Err(Overflow { next, first_index: start as u32, first_walk });
            }
            self.to_l1.len = 0;
        }
        Ok(())
    }

    /// Runs accesses of the common kind — data within one line, translation in the dTLB — and
    /// returns how many; the next one, if any, is of another kind or the queue is full.
    fn run_hot(&mut self, addrs: &[u64], attrs: &[AccessAttr], first_position: u32) -> usize {
        if !self.l1d_recent.is_power_of_two || self.line_shift != HOT_LINE_SHIFT {
            return 0;
        }
        let Requests { room, len } = &mut self.to_l1;
        let queue = &mut room[*len..];
        let recent = &mut self.l1d_recent.lines[..];
        let front = Front { addrs, attrs, recent, queue, first_position };
        let (done, queued) = match &mut self.dtlb {
            _ if self.machine.dtlb.is_none() => front.run(|_| true),
            [Some(dtlb), ..] if self.page_sizes.is_uniform() => {
                let Dtlb { pages, stamps, slots, clock, .. } = dtlb;
                let (pages, stamps, slots) = (&**pages, &mut **stamps, &**slots);
                let mut now = *clock;
                let result = front.run(|addr| {
                    let page = addr >> 12;
                    let entry = usize::from(slots[slot_of::<DTLB_SLOTS>(page)]) % pages.len();
                    if pages[entry] != page {
                        return false;
                    }
                    now += 1 << STAMP_SHIFT;
                    stamps[entry] = now | entry as u64;
                    true
                });
                *clock = now;
                result
            }
            _ => (0, 0),
        };
        *len += queued;
        done
    }

    /// Any access: straddling, fetching, missing the dTLB.
    fn access_one(
        &mut self,
        addr: u64,
        attr: AccessAttr,
        position: u32,
        first_index: u32,
        first_walk: usize,
        out: &mut Outcome,
    ) {
        let last_byte = addr.saturating_add(u64::from(attr.size_bytes().max(1) - 1));
        for line in addr >> self.line_shift..=last_byte >> self.line_shift {
            if attr.kind() == AccessKind::Fetch {
                self.l1i_recent.touch(line, 0, FETCH | position, &mut self.to_l1);
            } else {
                if self.machine.dtlb.is_some() {
                    self.translate(
                        addr.max(line << self.line_shift),
                        first_index + position,
                        first_walk,
                        out,
                    );
                }
                self.l1d_recent.touch(line, u64::from(attr.write_bit()), DATA | position, &mut self.to_l1);
            }
        }
    }

    fn translate(&mut self, vaddr: u64, index: u32, first_walk: usize, out: &mut Outcome) {
        let simd = self.simd;
        let size = if self.page_sizes.is_uniform() { PageSize::Size4K } else { self.page_sizes.at(vaddr) };
        let page = vaddr >> size.shift();
        let dtlb = &mut self.dtlb[size as usize];
        if dtlb.as_mut().is_some_and(|dtlb| dtlb.lookup(page)) {
            return;
        }
        out.dtlb_misses.push(index);
        if let Some(dtlb) = dtlb {
            dtlb.fill(page, simd);
        }
        let stlb = &mut self.stlb[size as usize];
        if stlb.as_mut().is_some_and(|stlb| stlb.lookup(page)) {
            return;
        }
        out.stlb_misses.push(index);
        if let Some(stlb) = stlb {
            stlb.fill(page, simd);
        }
        if let Some(walker) = &mut self.walker {
            let reads = walker.walk(vaddr, size);
            let asker = WALK | (out.walks.len() - first_walk) as u32;
            out.walks.push(Walk { index, entries_read: reads.as_slice().len() as u8, ..Walk::default() });
            for entry in reads.as_slice() {
                self.l1d_recent.touch(entry >> self.line_shift, 0, asker, &mut self.to_l1);
            }
        }
    }
}

/// What the hot loop works on, so that it stays in registers.
struct Front<'a> {
    addrs: &'a [u64],
    attrs: &'a [AccessAttr],
    recent: &'a mut [u64],
    queue: &'a mut [LineRequest],
    first_position: u32,
}

impl Front<'_> {
    /// Returns how many accesses ran and how many requests were queued. `translate` says whether
    /// the dTLB has the page, and uses it.
    #[inline(always)]
    fn run(self, mut translate: impl FnMut(u64) -> bool) -> (usize, usize) {
        const LINE_BYTES: u64 = 1 << HOT_LINE_SHIFT;
        let Self { addrs, attrs, recent, queue, first_position } = self;
        let count = addrs.len().min(attrs.len()).min(queue.len());
        let (addrs, attrs, queue) = (&addrs[..count], &attrs[..count], &mut queue[..count]);
        let Some(set_mask) = recent.len().checked_sub(1) else { return (0, 0) };
        let mut queued = 0;
        for (at, (&addr, &attr)) in addrs.iter().zip(attrs).enumerate() {
            let straddles = (addr & (LINE_BYTES - 1)) + u64::from(attr.size_bytes()) > LINE_BYTES;
            // Bit 2 of the kind is set for fetches only.
            if straddles || attr.0 & 4 != 0 || !translate(addr) {
                return (at, queued);
            }
            let line = addr >> HOT_LINE_SHIFT;
            let recent = &mut recent[line as usize & set_mask];
            let before = *recent;
            let same = before >> 1 == line;
            // Without a branch: written always, kept only if the line was not the most recent.
            if let Some(request) = queue.get_mut(queued) {
                let first_dirty = (before as u32 & 1) << FIRST_DIRTY_BIT;
                *request = LineRequest { line, asker: (first_position + at as u32) | first_dirty };
            }
            queued += usize::from(!same);
            *recent = (if same { before } else { line << 1 }) | u64::from(attr.write_bit());
        }
        (count, queued)
    }
}

/// Takes the requests through the levels; the output is how many of them the first level took,
/// less than all only if the regions overflowed.
struct Drain<'a> {
    back: &'a mut Back,
    requests: &'a Requests,
    first_index: u32,
    first_walk: usize,
    out: &'a mut Outcome,
}

impl Task for Drain<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> usize {
        let Self { back, requests, first_index, first_walk, out } = self;
        let Back { regions, l1d, l1i, l2, llc, to_l2, to_llc, line_shift } = back;
        let origin = |asker: Asker| origin_of(asker, first_index, first_walk);
        to_l2.clear();
        to_llc.clear();
        let mut served = 0;
        for &LineRequest { line, asker } in requests.as_slice() {
            let Some(line) = regions.compact(line) else { break };
            served += 1;
            let first_dirty = asker >> FIRST_DIRTY_BIT & 1;
            let level = if asker & FETCH == 0 { &mut *l1d } else { &mut *l1i };
            let (hit, written) = level.touch(kernel, line, 0, first_dirty);
            if !hit {
                origin(asker).record_l1_miss(out);
                to_l2.push(Request { line: line << 1, asker });
                if let Some(victim) = written {
                    to_l2.push(Request { line: victim << 1 | 1, asker });
                }
            }
        }
        let to_llc = match l2 {
            Some(l2) => {
                for (at, request) in to_l2.iter().enumerate() {
                    if let Some(ahead) = to_l2.get(at + AHEAD) {
                        l2.prefetch(ahead.line >> 1);
                    }
                    let write_back = request.line as u32 & 1;
                    let (hit, written) = l2.touch(kernel, request.line >> 1, write_back, 0);
                    if !hit && write_back == 0 {
                        origin(request.asker).record_l2_miss(out);
                        to_llc.push(*request);
                    }
                    if let Some(victim) = written {
                        to_llc.push(Request { line: victim << 1 | 1, asker: request.asker });
                    }
                }
                &*to_llc
            }
            None => &*to_l2,
        };
        for (at, request) in to_llc.iter().enumerate() {
            if let Some(ahead) = to_llc.get(at + AHEAD) {
                llc.prefetch(ahead.line >> 1);
            }
            let write_back = request.line as u32 & 1;
            let (hit, written) = llc.touch(kernel, request.line >> 1, write_back, 0);
            if !hit && write_back == 0 {
                origin(request.asker).record_llc_miss(out);
            }
            if let Some(victim) = written {
                out.dram_writes.push(regions.expand(victim) << *line_shift);
            }
        }
        served
    }
}

#[inline(always)]
fn origin_of(asker: Asker, first_index: u32, first_walk: usize) -> Origin {
    let position = asker & POSITION_MASK;
    if asker & WALK != 0 {
        Origin::Walk(first_walk + position as usize)
    } else if asker & FETCH != 0 {
        Origin::Fetch(first_index + position)
    } else {
        Origin::Data(first_index + position)
    }
}

impl FastModel {
    /// The obvious model in the same state. Requests left over by an overflow are run in it.
    pub(crate) fn to_plain(&self, overflow: Option<Overflow>, out: &mut Outcome) -> PlainModel {
        let mut plain = PlainModel::of_valid(&self.machine);
        let core = self.core.unwrap_or_default();
        let core = plain.position_of(core);
        let regions = &self.back.regions;
        let (state, llc, page_sizes) = plain.parts(core);
        page_sizes.clone_from(&self.page_sizes);
        let fill = |cache: &mut crate::plain::Cache, level: &Level| {
            for (line, dirty) in level.lines() {
                cache.fill(Line { line: regions.expand(line), dirty, sole: true });
            }
        };
        fill(&mut state.l1d, &self.back.l1d);
        fill(&mut state.l1i, &self.back.l1i);
        if let (Some(cache), Some(level)) = (&mut state.l2, &self.back.l2) {
            fill(cache, level);
        }
        fill(llc, &self.back.llc);
        let pages = |cache: &mut Option<crate::plain::Cache>, pages: Option<Vec<u64>>| {
            if let Some(cache) = cache {
                for line in pages.into_iter().flatten() {
                    cache.fill(Line { line, dirty: false, sole: true });
                }
            }
        };
        for (cache, tlb) in state.dtlb.iter_mut().zip(&self.dtlb) {
            pages(cache, tlb.as_ref().map(StampTlb::pages));
        }
        for (cache, tlb) in state.stlb.iter_mut().zip(&self.stlb) {
            pages(cache, tlb.as_ref().map(StampTlb::pages));
        }
        state.walker.clone_from(&self.walker);
        // In a set, the requests' dirty bits belong to the line that was most recent before them.
        let Overflow { first_index, first_walk, .. } =
            overflow.unwrap_or(Overflow { next: 0, first_index: 0, first_walk: 0 });
        for &LineRequest { line, asker } in self.to_l1.as_slice() {
            if asker >> FIRST_DIRTY_BIT & 1 == 1 {
                plain.parts(core).0.l1d.dirty_most_recent(line);
            }
            let origin = origin_of(asker, first_index, first_walk);
            plain.access_line(core, line, false, origin, out);
        }
        for &recent in self.l1d_recent.lines.iter().filter(|&&recent| recent & 1 == 1) {
            plain.access_line(core, recent >> 1, true, Origin::Data(0), out);
        }
        plain
    }

    /// As [`PlainModel::flush_writebacks`].
    pub(crate) fn flush_writebacks(&mut self, out: &mut Outcome) {
        let mut dirty = BTreeSet::new();
        let back = &mut self.back;
        for level in [&mut back.l1d, &mut back.l1i].into_iter().chain(&mut back.l2).chain([&mut back.llc]) {
            let lines = level.lines().filter(|&(_, dirty)| dirty);
            dirty.extend(lines.map(|(line, _)| back.regions.expand(line) << self.line_shift));
            level.clean();
        }
        for recent in self.l1d_recent.lines.iter_mut().filter(|recent| **recent & 1 == 1) {
            dirty.insert(*recent >> 1 << self.line_shift);
            *recent &= !1;
        }
        out.dram_writes.extend(dirty);
    }
}

fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut gcd, mut rest) = (a, b);
    while rest != 0 {
        (gcd, rest) = (rest, gcd % rest);
    }
    (a / gcd).saturating_mul(b)
}

/// None if a TLB is too large for this engine.
#[allow(clippy::type_complexity)]
fn tlbs<const SLOTS: usize, const ENTRIES: usize>(
    description: Option<&TlbDescription>,
) -> Option<[Option<StampTlb<SLOTS, ENTRIES>>; 3]> {
    let mut tlbs = [None, None, None];
    let by_size = description.map(TlbDescription::by_page_size).unwrap_or_default();
    for (tlb, entries) in tlbs.iter_mut().zip(by_size) {
        if let Some(entries) = entries {
            *tlb = Some(StampTlb::new(entries.entries, entries.ways)?);
        }
    }
    Some(tlbs)
}

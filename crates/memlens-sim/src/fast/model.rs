//! The front (TLBs, most recent lines) and the back (queues from level to level).

use super::back::{Asker, Back, DATA, FETCH, FIRST_DIRTY_BIT, LineRequest, Origins, Requests, WALK};
use super::tlb::Tlb1;
use super::translation::{CHUNK, HOT_LINE_SHIFT, HitLoop, Translation, WalkEvent};
use crate::batch::{Batch, CoreId, Outcome};
use crate::machine::{CacheDescription, Inclusion, MachineDescription, ModelError, Policy, Rules};
use crate::page_sizes::PageSize;
use crate::plain::{Line, Origin, PlainModel};
use crate::simd::{Kernel, SimdLevel, Task, dispatch};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use memlens_types::{AccessAttr, AccessKind};

/// One miss of the first-level TLB in so many references is few.
const MOSTLY: usize = 64;
/// No line has this address; clean.
const NO_LINE: u64 = u64::MAX - 1;

/// The address space used is larger than the tags can tell apart: go on with the obvious model.
#[derive(Clone, Debug)]
pub(crate) struct Overflow {
    /// The first access of the batch that was not run.
    pub(crate) next: usize,
    /// What the positions of those requests are counted from.
    origins: Origins,
    /// The requests left over.
    unserved: Vec<LineRequest>,
}

#[derive(Clone, Debug)]
pub(crate) struct FastModel {
    machine: MachineDescription,
    simd: SimdLevel,
    core: Option<CoreId>,
    line_shift: u32,
    translation: Translation,
    l1d_recent: RecentLines,
    l1i_recent: RecentLines,
    /// Requests that are not for the most recent line of their set.
    to_l1: Requests,
    /// No request of the chunk is a fetch's or a walk's.
    only_data: bool,
    /// Whether the last chunk had few first-level TLB misses.
    mostly_hits: bool,
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
        let Some(translation) = Translation::new(machine) else { return Ok(None) };
        Ok(Some(Self {
            machine: machine.clone(),
            simd,
            core: None,
            line_shift: machine.line_bytes.trailing_zeros(),
            translation,
            l1d_recent: RecentLines::new(&machine.l1d),
            l1i_recent: RecentLines::new(&machine.l1i),
            to_l1: Requests::with_room(2 * CHUNK),
            only_data: true,
            mostly_hits: false,
            back: Back::new(machine, modulus),
        }))
    }

    /// The core whose accesses run here, once there was one.
    pub(crate) fn core(&self) -> Option<CoreId> {
        self.core
    }

    pub(crate) fn set_page_size(&mut self, range: Range<u64>, size: PageSize) {
        self.translation.page_sizes().set(range, size);
    }

    pub(crate) fn access(
        &mut self,
        core: CoreId,
        batch: Batch<'_>,
        out: &mut Outcome,
    ) -> Result<(), Overflow> {
        self.core = Some(core);
        let end = batch.len();
        let mut next = 0;
        while next < end {
            let origins = Origins { first_index: next as u32, first_walk: out.walks.len() };
            let stop = end.min(next + CHUNK);
            let (addrs, attrs) = (&batch.addrs[next..stop], &batch.attrs[next..stop]);
            let (done, served) = dispatch(self.simd, Chunk { model: self, addrs, attrs, origins, out });
            next += done;
            if served < self.to_l1.len() {
                let unserved = self.to_l1.lines(addrs).skip(served).collect();
                return Err(Overflow { next, origins, unserved });
            }
            self.to_l1.clear();
        }
        Ok(())
    }

    /// Any access: straddling pages, fetching, of pages of any size, with lines of any size.
    #[inline(never)]
    fn access_one(
        &mut self,
        addr: u64,
        attr: AccessAttr,
        position: u32,
        origins: Origins,
        out: &mut Outcome,
    ) {
        for line in lines_of(addr, attr, self.line_shift) {
            if attr.kind() == AccessKind::Fetch {
                self.only_data = false;
                self.l1i_recent.touch(line, 0, FETCH | position, &mut self.to_l1);
            } else {
                let vaddr = addr.max(line << self.line_shift);
                let index = origins.first_index + position;
                if let Some(event) = self.translation.translate(vaddr, position, index, out) {
                    self.only_data = false;
                    read_entries(&event, origins, self.line_shift, &mut self.l1d_recent, &mut self.to_l1);
                }
                self.l1d_recent.touch(line, u64::from(attr.write_bit()), DATA | position, &mut self.to_l1);
            }
        }
    }
}

/// The lines that an access touches.
#[inline(always)]
fn lines_of(addr: u64, attr: AccessAttr, line_shift: u32) -> core::ops::RangeInclusive<u64> {
    let last_byte = addr.saturating_add(u64::from(attr.size_bytes().max(1) - 1));
    addr >> line_shift..=last_byte >> line_shift
}

/// The loads of a walk.
fn read_entries(
    event: &WalkEvent,
    origins: Origins,
    line_shift: u32,
    recent: &mut RecentLines,
    queue: &mut Requests,
) {
    let asker = WALK | (event.walk - origins.first_walk) as u32;
    for entry in event.reads.as_slice() {
        recent.touch(entry >> line_shift, 0, asker, queue);
    }
}

/// A run of references up to the drain of the queues. The output is how many ran, and how many of
/// the requests to the first level were served: less than all only if the regions overflowed.
struct Chunk<'a> {
    model: &'a mut FastModel,
    addrs: &'a [u64],
    attrs: &'a [AccessAttr],
    origins: Origins,
    out: &'a mut Outcome,
}

impl Task for Chunk<'_> {
    type Output = (usize, usize);

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> (usize, usize) {
        let Self { model, addrs, attrs, origins, out } = self;
        let is_hot = model.l1d_recent.is_power_of_two
            && model.line_shift == HOT_LINE_SHIFT
            && model.translation.is_uniform();
        model.only_data = true;
        let end = addrs.len().min(attrs.len());
        let mut next = 0;
        let misses_before = out.dtlb_misses.len();
        while next < end && model.to_l1.len() <= CHUNK {
            if is_hot && model.mostly_hits {
                // One loop for the hits, each miss by itself.
                let FastModel { translation, l1d_recent, to_l1, .. } = &mut *model;
                next +=
                    translation.run_hits(Hits { recent: l1d_recent, addrs, attrs, from: next, queue: to_l1 });
            } else if is_hot {
                let FastModel { translation, l1d_recent, to_l1, only_data, .. } = &mut *model;
                let stop = translation.run(kernel, addrs, attrs, next, origins.first_index, out);
                *only_data &= translation.events().is_empty();
                let mut straddling = translation.straddling().iter().map(|&at| at as usize).peekable();
                let mut events = translation.events().iter();
                loop {
                    let event = events.next();
                    let up_to = event.map_or(stop, |event| event.position as usize);
                    while let Some(at) = straddling.next_if(|&at| at < up_to) {
                        touch_lines(l1d_recent, addrs, attrs, next..at, to_l1);
                        touch_all(l1d_recent, addrs[at], attrs[at], at, to_l1);
                        next = at + 1;
                    }
                    touch_lines(l1d_recent, addrs, attrs, next..up_to, to_l1);
                    next = up_to;
                    let Some(event) = event else { break };
                    read_entries(event, origins, HOT_LINE_SHIFT, l1d_recent, to_l1);
                }
            }
            if next < end {
                model.access_one(addrs[next], attrs[next], next as u32, origins, out);
                next += 1;
            }
        }
        model.mostly_hits = (out.dtlb_misses.len() - misses_before) * MOSTLY <= next;
        let served = model.back.drain(kernel, &model.to_l1, addrs, model.only_data, origins, out);
        (next, served)
    }
}

/// Data within one line whose page is found at once, up to the first reference of another kind.
struct Hits<'a> {
    recent: &'a mut RecentLines,
    addrs: &'a [u64],
    attrs: &'a [AccessAttr],
    from: usize,
    queue: &'a mut Requests,
}

impl HitLoop for Hits<'_> {
    #[inline(always)]
    fn run<T: Tlb1>(self, tlb: &mut T) -> usize {
        const LINE_BYTES: u64 = 1 << HOT_LINE_SHIFT;
        let Self { recent, addrs, attrs, from, queue } = self;
        let end = addrs.len().min(attrs.len());
        let lines = &mut recent.lines[..];
        let Some(set_mask) = lines.len().checked_sub(1) else { return 0 };
        let free = queue.free(end - from);
        let (mut position, mut queued) = (from as u32, 0);
        for (&addr, &attr) in addrs[from..end].iter().zip(&attrs[from..end]) {
            let straddles = (addr & (LINE_BYTES - 1)) + u64::from(attr.size_bytes()) > LINE_BYTES;
            // Bit 2 of the kind is set for fetches only.
            if straddles || attr.0 & 4 != 0 || !tlb.quick_hit(addr >> 12) {
                break;
            }
            touch_line(lines, set_mask, addr, attr, position, free, &mut queued);
            position += 1;
        }
        queue.take(queued);
        position as usize - from
    }
}

/// Touches the line of a data reference to one line. Without a branch: the request is written
/// always, and kept only if the line was not the most recent.
#[inline(always)]
fn touch_line(
    lines: &mut [u64],
    set_mask: usize,
    addr: u64,
    attr: AccessAttr,
    position: u32,
    free: &mut [Asker],
    queued: &mut usize,
) {
    let line = addr >> HOT_LINE_SHIFT;
    let recent = &mut lines[line as usize & set_mask];
    let before = *recent;
    let same = before >> 1 == line;
    if let Some(asker) = free.get_mut(*queued) {
        *asker = position | (before as u32 & 1) << FIRST_DIRTY_BIT;
    }
    *queued += usize::from(!same);
    // No fetch is among them: bit 2 of the kind need not be looked at.
    let write = u64::from((attr.0 ^ attr.0 >> 1) & 1);
    *recent = (if same { before } else { line << 1 }) | write;
}

/// Touches the lines of data references to one line each.
#[inline(always)]
fn touch_lines(
    recent: &mut RecentLines,
    addrs: &[u64],
    attrs: &[AccessAttr],
    range: Range<usize>,
    queue: &mut Requests,
) {
    let lines = &mut recent.lines[..];
    let Some(set_mask) = lines.len().checked_sub(1) else { return };
    let free = queue.free(range.len());
    let (mut position, mut queued) = (range.start as u32, 0);
    for (&addr, &attr) in addrs[range.clone()].iter().zip(&attrs[range]) {
        touch_line(lines, set_mask, addr, attr, position, free, &mut queued);
        position += 1;
    }
    queue.take(queued);
}

/// Touches all lines of a data reference.
#[inline(never)]
fn touch_all(recent: &mut RecentLines, addr: u64, attr: AccessAttr, at: usize, queue: &mut Requests) {
    for line in lines_of(addr, attr, HOT_LINE_SHIFT) {
        recent.touch(line, u64::from(attr.write_bit()), DATA | at as u32, queue);
    }
}

impl FastModel {
    /// The obvious model in the same state. Requests left over by an overflow are run in it.
    pub(crate) fn to_plain(&self, overflow: Option<&Overflow>, out: &mut Outcome) -> PlainModel {
        let mut plain = PlainModel::of_valid(&self.machine);
        let core = self.core.unwrap_or_default();
        let core = plain.position_of(core);
        let (state, llc, page_sizes) = plain.parts(core);
        let [l1d, l1i, l2, last] = self.back.lines();
        let mut caches = [(Some(&mut state.l1d), l1d), (Some(&mut state.l1i), l1i), (state.l2.as_mut(), l2)];
        for (cache, lines) in caches.iter_mut().chain([&mut (Some(llc), last)]) {
            for (line, dirty) in lines {
                cache.as_mut().map(|cache| cache.fill(Line { line, dirty, sole: true }));
            }
        }
        self.translation.copy_to(page_sizes, &mut state.dtlb, &mut state.stlb, &mut state.walker);
        // In a set, the requests' dirty bits belong to the line that was most recent before them.
        if let Some(Overflow { origins, unserved, .. }) = overflow {
            for &LineRequest { line, asker } in unserved {
                if asker >> FIRST_DIRTY_BIT & 1 == 1 {
                    plain.parts(core).0.l1d.dirty_most_recent(line);
                }
                plain.access_line(core, line, false, origins.of(asker), out);
            }
        }
        for &recent in self.l1d_recent.lines.iter().filter(|&&recent| recent & 1 == 1) {
            plain.access_line(core, recent >> 1, true, Origin::Data(0), out);
        }
        plain
    }

    /// As [`PlainModel::flush_writebacks`].
    pub(crate) fn flush_writebacks(&mut self, out: &mut Outcome) {
        let mut dirty = BTreeSet::new();
        self.back.clean(&mut dirty);
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

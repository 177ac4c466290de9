//! The engine: translation and the first level by turns, then the other levels.

use super::back::{Back, DATA, FETCH, LineRequest, Origins, Run, WALK, lines_of};
use super::translation::{CHUNK, HOT_LINE_SHIFT, Translation};
use crate::batch::{Batch, CoreId, Outcome};
use crate::machine::{Inclusion, MachineDescription, ModelError, Policy, Rules};
use crate::page_sizes::PageSize;
use crate::plain::{Line, PlainModel};
use crate::simd::SimdLevel;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;
use memlens_types::{AccessAttr, AccessKind};

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
    /// The lines that one access asks for.
    asked: Vec<LineRequest>,
    back: Back,
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
            asked: Vec::new(),
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
            let (done, overflow) = self.chunk(addrs, attrs, origins, out);
            next += done;
            if let Some(unserved) = overflow {
                return Err(Overflow { next, origins, unserved });
            }
        }
        Ok(())
    }

    /// References up to the drain of the queues. Returns how many ran, and if the regions overflowed, the
    /// requests of theirs that were not served.
    fn chunk(
        &mut self,
        addrs: &[u64],
        attrs: &[AccessAttr],
        origins: Origins,
        out: &mut Outcome,
    ) -> (usize, Option<Vec<LineRequest>>) {
        let is_hot = self.line_shift == HOT_LINE_SHIFT && self.translation.is_uniform();
        let end = addrs.len().min(attrs.len());
        let (mut next, mut only_data, mut unserved) = (0, true, None);
        self.back.begin();
        // Few accesses can touch many lines.
        while next < end && self.back.queued() <= 4 * CHUNK {
            if is_hot {
                let Self { translation, back, simd, .. } = &mut *self;
                let stop = translation.run(*simd, addrs, attrs, next, origins.first_index, out);
                let run = Run {
                    addrs,
                    attrs,
                    start: next,
                    end: stop,
                    straddling: translation.straddling(),
                    events: translation.events(),
                    first_walk: origins.first_walk,
                };
                only_data &= run.events.is_empty();
                next = stop;
                if let Err(served) = back.run(*simd, run) {
                    unserved = Some(run.requests().skip(served).collect());
                    break;
                }
            }
            if next < end {
                only_data &= self.translate_one(addrs[next], attrs[next], next as u32, origins, out);
                next += 1;
                if let Err(served) = self.back.requests(self.simd, &self.asked) {
                    unserved = Some(self.asked.split_off(served));
                    break;
                }
            }
        }
        self.back.drain(self.simd, only_data, origins, out);
        (next, unserved)
    }

    /// Translates any access: straddling pages, fetching, of pages of any size, with lines of any size. The
    /// lines it asks for are in `asked` then. The answer is whether all are data's.
    #[inline(never)]
    fn translate_one(
        &mut self,
        addr: u64,
        attr: AccessAttr,
        position: u32,
        origins: Origins,
        out: &mut Outcome,
    ) -> bool {
        let mut only_data = true;
        self.asked.clear();
        let is_fetch = attr.kind() == AccessKind::Fetch;
        for line in lines_of(addr, attr, self.line_shift) {
            if is_fetch {
                only_data = false;
                self.asked.push(LineRequest { line, asker: FETCH | position, is_write: false });
                continue;
            }
            let vaddr = addr.max(line << self.line_shift);
            let index = origins.first_index + position;
            if let Some(event) = self.translation.translate(vaddr, position, index, out) {
                only_data = false;
                let asker = WALK | (event.walk - origins.first_walk) as u32;
                self.asked.extend(event.reads.as_slice().iter().map(|read| LineRequest {
                    line: read >> self.line_shift,
                    asker,
                    is_write: false,
                }));
            }
            let is_write = attr.write_bit() == 1;
            self.asked.push(LineRequest { line, asker: DATA | position, is_write });
        }
        only_data
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
        if let Some(Overflow { origins, unserved, .. }) = overflow {
            for &LineRequest { line, asker, is_write } in unserved {
                plain.access_line(core, line, is_write, origins.of(asker), out);
            }
        }
        plain
    }

    /// As [`PlainModel::flush_writebacks`].
    pub(crate) fn flush_writebacks(&mut self, out: &mut Outcome) {
        let mut dirty = BTreeSet::new();
        self.back.clean(&mut dirty);
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

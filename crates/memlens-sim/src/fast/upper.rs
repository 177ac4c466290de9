//! What comes first for every access: translation and the first-level caches, by turns.

use super::first_level::{FirstLevels, LineRequest, Run, lines_of};
use super::queue::{Chunk, DATA, FETCH, Origins, Queue, WALK};
use super::regions::Uppers;
use super::translation::{CHUNK, HOT_LINE_SHIFT, Translation};
use crate::batch::{Batch, CoreId, Outcome};
use crate::machine::MachineDescription;
use crate::page_sizes::PageSizes;
use crate::plain::PlainModel;
use crate::simd::SimdLevel;
use alloc::vec::Vec;
use core::ops::Range;
use memlens_types::{AccessAttr, AccessKind};

/// The address space used is larger than the tags can tell apart: go on with the obvious model.
#[derive(Clone, Debug)]
pub(crate) struct Overflow {
    /// What the positions of those requests are counted from.
    origins: Origins,
    /// The requests left over.
    unserved: Vec<LineRequest>,
}

/// TLBs, walker and first-level caches.
#[derive(Clone, Debug)]
pub(crate) struct UpperLevels {
    simd: SimdLevel,
    core: Option<CoreId>,
    line_shift: u32,
    translation: Translation,
    /// The lines that one access asks for.
    asked: Vec<LineRequest>,
    caches: FirstLevels,
}

impl UpperLevels {
    /// None if the TLBs are not of the kind that this engine is for. `modulus`: see [`super::regions::Regions`].
    pub(super) fn new(machine: &MachineDescription, simd: SimdLevel, modulus: u64) -> Option<Self> {
        Some(Self {
            simd,
            core: None,
            line_shift: machine.line_bytes.trailing_zeros(),
            translation: Translation::new(machine)?,
            asked: Vec::new(),
            caches: FirstLevels::new(machine, modulus),
        })
    }

    /// Whether this core's accesses can run here: a second core needs coherence, which this engine does not have.
    pub(crate) fn serves(&self, core: CoreId) -> bool {
        self.core.is_none_or(|first| first == core)
    }

    pub(super) fn page_sizes(&mut self) -> &mut PageSizes {
        self.translation.page_sizes()
    }

    /// Runs some of the accesses of a batch: `accesses`, which must not be empty, up to a chunk's length. What they
    /// ask of other levels stands in the queue then, positions being those in the batch. The answer is how many ran.
    ///
    /// # Errors
    /// After an overflow, how many ran, too.
    pub(crate) fn chunk(
        &mut self,
        core: CoreId,
        batch: Batch<'_>,
        accesses: Range<usize>,
        out: &mut Outcome,
        queue: &mut Queue,
    ) -> Result<usize, (usize, Overflow)> {
        self.core = Some(core);
        let stop = accesses.end.min(accesses.start + CHUNK);
        let (addrs, attrs) = (&batch.addrs[accesses.start..stop], &batch.attrs[accesses.start..stop]);
        let origins = Origins { first_index: accesses.start as u32, first_walk: out.walks.len() };
        let is_hot = self.line_shift == HOT_LINE_SHIFT && self.translation.is_uniform();
        let end = addrs.len();
        let (mut next, mut only_data, mut unserved) = (0, true, None);
        let before = queue.len();
        // Few accesses can touch many lines.
        while next < end && queue.len() - before <= 4 * CHUNK {
            if is_hot {
                let Self { translation, caches, simd, .. } = &mut *self;
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
                if let Err(served) = caches.run(*simd, run, queue) {
                    unserved = Some(run.requests().skip(served).collect());
                    break;
                }
            }
            if next < end {
                only_data &= self.translate_one(addrs[next], attrs[next], next as u32, origins, out);
                next += 1;
                if let Err(served) = self.caches.requests(self.simd, &self.asked, queue) {
                    unserved = Some(self.asked.split_off(served));
                    break;
                }
            }
        }
        queue.chunks.push(Chunk { end: queue.len(), origins, only_data });
        if let Some(uppers) = self.caches.regions().news() {
            queue.uppers = Some(uppers);
        }
        match unserved {
            Some(unserved) => Err((next, Overflow { origins, unserved })),
            None => Ok(next),
        }
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

    /// The caches, and what their lines are called.
    pub(super) fn caches(&mut self) -> (&mut FirstLevels, Uppers) {
        let uppers = self.caches.regions().uppers().clone();
        (&mut self.caches, uppers)
    }

    /// Puts the same state into the obvious model: the core that ran here, its TLBs and first-level caches.
    /// The answer is the core's position there.
    pub(super) fn copy_to(&self, plain: &mut PlainModel) -> usize {
        let core = plain.position_of(self.core.unwrap_or_default());
        let (state, _, page_sizes) = plain.parts(core);
        let uppers = self.caches.uppers();
        for (cache, level) in [(&mut state.l1d, &self.caches.l1d), (&mut state.l1i, &self.caches.l1i)] {
            super::model::fill(cache, level, uppers);
        }
        self.translation.copy_to(page_sizes, &mut state.dtlb, &mut state.stlb, &mut state.walker);
        core
    }
}

impl Overflow {
    /// Serves the requests left over in the obvious model.
    pub(super) fn serve(&self, plain: &mut PlainModel, core: usize, out: &mut Outcome) {
        for &LineRequest { line, asker, is_write } in &self.unserved {
            plain.access_line(core, line, is_write, self.origins.of(asker), out);
        }
    }
}

//! The staged engine on two threads: one is some batches ahead with the levels that hear from no other.
//!
//! ```text
//!  batch ──► UpperHalf ──► batch, outcome so far, Passage ──► LowerHalf ──► outcome
//!            TLBs, L1                                         L2, LLC, prefetcher
//! ```
//!
//! The outcomes are those of a [`Model`] that is given the same. When the staged engine ends (a second core, or an address
//! space too large), the upper half hands its state over with the batch at hand and is done: the lower half goes on as
//! a whole model.

use crate::batch::{Batch, CoreId, Outcome};
use crate::fast::{FastModel, LowerLevels, Overflow, Queue, UpperLevels, to_plain};
use crate::machine::MachineDescription;
use crate::model::{Engine, Model, Prefetchers};
use crate::prefetcher::Lengths;
use crate::simd::SimdLevel;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

/// TLBs, page walker and first-level caches, until the staged engine ends. See [`Model::split`].
#[derive(Debug)]
pub struct UpperHalf {
    levels: Option<Box<UpperLevels>>,
}

/// The other levels; everything, once the staged engine has ended. See [`Model::split`].
#[derive(Debug)]
pub struct LowerHalf(State);

#[derive(Debug)]
enum State {
    Staged(Box<Staged>),
    /// After the end of the staged engine.
    Whole(Box<Model>),
}

#[derive(Debug)]
struct Staged {
    machine: MachineDescription,
    simd: SimdLevel,
    levels: LowerLevels,
    prefetchers: Prefetchers,
}

/// What the lower half needs to know of accesses that the upper half has run.
#[derive(Debug, Default)]
pub struct Passage {
    queue: Queue,
    /// In their order.
    parts: Vec<Part>,
    /// The part at which the upper half ended, and its state.
    end: Option<(usize, Box<UpperLevels>, Option<Overflow>)>,
}

/// Some accesses of a core.
#[derive(Debug)]
struct Part {
    core: CoreId,
    accesses: Range<usize>,
    /// Up to here the upper half has run them.
    served: usize,
}

pub(crate) fn of(fast: FastModel, prefetchers: Prefetchers) -> (UpperHalf, LowerHalf) {
    let (machine, simd, upper, levels) = fast.into_parts();
    let staged = Staged { machine, simd, levels, prefetchers };
    (UpperHalf { levels: Some(Box::new(upper)) }, LowerHalf(State::Staged(Box::new(staged))))
}

impl UpperHalf {
    /// Whether it still takes part: otherwise the lower half does everything, and batches need not come here.
    pub fn is_active(&self) -> bool {
        self.levels.is_some()
    }

    /// Runs these accesses of a batch, all of one core and in program order, and appends what it finds to `out`, which goes on to the
    /// lower half with the passage and the batch. Positions are those in the whole batch.
    pub fn access(
        &mut self,
        core: CoreId,
        batch: Batch<'_>,
        accesses: Range<usize>,
        out: &mut Outcome,
        passage: &mut Passage,
    ) {
        let mut served = accesses.start;
        let mut ends = None;
        if let Some(levels) = &mut self.levels {
            if levels.serves(core) {
                while served < accesses.end && ends.is_none() {
                    match levels.chunk(core, batch, served..accesses.end, out, &mut passage.queue) {
                        Ok(ran) => served += ran,
                        Err((ran, overflow)) => {
                            served += ran;
                            ends = Some(Some(overflow));
                        }
                    }
                }
            } else {
                ends = Some(None);
            }
        }
        if let Some(overflow) = ends
            && let Some(levels) = self.levels.take()
        {
            passage.end = Some((passage.parts.len(), levels, overflow));
        }
        passage.parts.push(Part { core, accesses, served });
    }
}

impl LowerHalf {
    /// Does with a batch what the upper half left to do.
    pub fn access(&mut self, batch: Batch<'_>, out: &mut Outcome, passage: &mut Passage) {
        let mut parts = passage.parts.drain(..);
        if let State::Staged(staged) = &mut self.0 {
            let Staged { machine, simd, levels, prefetchers } = &mut **staged;
            let before = Lengths::of(out);
            levels.serve(*simd, &mut passage.queue, out);
            let ended = passage.end.take().map(|(part, upper, overflow)| {
                let plain = to_plain(machine, &upper, levels, overflow.as_ref(), out);
                (part, Engine::in_state_of(plain, *simd))
            });
            // No other core has run yet, so the misses of all parts are one core's.
            if let Some(first) = parts.as_slice().first() {
                prefetchers.follow(first.core, batch, before, out);
            }
            let Some((ended, engine)) = ended else { return };
            let mut model = Model::of_parts(engine, *simd, core::mem::take(prefetchers));
            if let Some(part) = parts.nth(ended) {
                model.access_part(part.core, batch, part.served..part.accesses.end, out);
            }
            self.0 = State::Whole(Box::new(model));
        }
        if let State::Whole(model) = &mut self.0 {
            parts.for_each(|part| model.access_part(part.core, batch, part.accesses, out));
        }
    }

    /// The whole model, once the staged engine has ended.
    pub fn whole(&mut self) -> Option<&mut Model> {
        match &mut self.0 {
            State::Whole(model) => Some(model),
            State::Staged(_) => None,
        }
    }
}

impl Passage {
    /// Whether the upper half has run nothing.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Makes it empty.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.parts.clear();
        self.end = None;
    }
}

//! The model that callers use: the fastest engine that gives the exact result.

use crate::batch::{Batch, CoreId, Outcome};
use crate::cachegrind::CachegrindModel;
use crate::coherent::CoherentModel;
use crate::fast::FastModel;
use crate::halves::{self, LowerHalf, UpperHalf};
use crate::machine::{MachineDescription, ModelError, Rules};
use crate::page_sizes::PageSize;
use crate::plain::PlainModel;
use crate::prefetcher::{Lengths, Prefetcher};
use crate::simd::SimdLevel;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::ops::Range;

/// A machine's caches and TLBs, fed with batches of accesses.
#[derive(Debug)]
pub struct Model {
    engine: Engine,
    simd: SimdLevel,
    prefetchers: Prefetchers,
}

/// The hardware prefetchers of all cores.
#[derive(Debug, Default)]
pub(crate) struct Prefetchers {
    /// As the machine has it, before any access; none if it has none.
    unused: Option<Prefetcher>,
    /// Those of the cores that have accessed anything.
    of_cores: BTreeMap<CoreId, Prefetcher>,
}

impl Prefetchers {
    fn new(machine: &MachineDescription) -> Self {
        let streams = machine.prefetcher.streams;
        let unused = (streams > 0).then(|| Prefetcher::new(streams, machine.line_bytes));
        Self { unused, of_cores: BTreeMap::new() }
    }

    /// Follows the misses of a core's batch, which are in `out` behind `before`.
    pub(crate) fn follow(&mut self, core: CoreId, batch: Batch<'_>, before: Lengths, out: &mut Outcome) {
        if let Some(unused) = &self.unused {
            self.of_cores.entry(core).or_insert_with(|| unused.clone()).follow(batch, before, out);
        }
    }
}

#[derive(Debug)]
pub(crate) enum Engine {
    Fast(Box<FastModel>),
    Coherent(Box<CoherentModel>),
    Plain(Box<PlainModel>),
    Cachegrind(Box<CachegrindModel>),
}

impl Engine {
    /// What goes on from the obvious model's state: the coherent engine, or the model itself for
    /// machines that need it.
    pub(crate) fn in_state_of(plain: PlainModel, simd: SimdLevel) -> Self {
        match CoherentModel::from_plain(&plain, simd) {
            Some(coherent) => Self::Coherent(Box::new(coherent)),
            None => Self::Plain(Box::new(plain)),
        }
    }
}

impl Model {
    /// An empty machine.
    pub fn new(machine: &MachineDescription, simd: SimdLevel) -> Result<Self, ModelError> {
        let engine = match machine.rules {
            Rules::Cachegrind => Engine::Cachegrind(Box::new(CachegrindModel::new(machine)?)),
            Rules::Memlens => match FastModel::new(machine, simd)? {
                Some(fast) => Engine::Fast(Box::new(fast)),
                None => match CoherentModel::new(machine, simd)? {
                    Some(coherent) => Engine::Coherent(Box::new(coherent)),
                    None => Engine::Plain(Box::new(PlainModel::new(machine)?)),
                },
            },
        };
        Ok(Self { engine, simd, prefetchers: Prefetchers::new(machine) })
    }

    /// A model that another engine goes on in.
    pub(crate) fn of_parts(engine: Engine, simd: SimdLevel, prefetchers: Prefetchers) -> Self {
        Self { engine, simd, prefetchers }
    }

    /// In two halves, which can run on two threads: a third to two thirds of the work each.
    ///
    /// # Errors
    /// The model itself, where upper levels hear from lower ones: if it has no staged engine, or no longer.
    pub fn split(self) -> Result<(UpperHalf, LowerHalf), Self> {
        match self.engine {
            Engine::Fast(fast) => Ok(halves::of(*fast, self.prefetchers)),
            engine => Err(Self { engine, ..self }),
        }
    }

    /// Runs a batch of one core's accesses, in program order, and appends what it did to `out`.
    pub fn access(&mut self, core: CoreId, batch: Batch<'_>, out: &mut Outcome) {
        let before = Lengths::of(out);
        self.run(core, batch, out);
        self.prefetchers.follow(core, batch, before, out);
    }

    /// As [`Self::access`], of these accesses of the batch: positions are those in the whole batch.
    pub fn access_part(&mut self, core: CoreId, batch: Batch<'_>, part: Range<usize>, out: &mut Outcome) {
        let first = part.start as u32;
        let before = out.lengths();
        self.access(core, batch.part(part), out);
        out.shift_new(&before, first);
    }

    fn run(&mut self, core: CoreId, batch: Batch<'_>, out: &mut Outcome) {
        if let Engine::Fast(fast) = &mut self.engine {
            // A second core needs coherence, which the staged engine does not have.
            if !fast.upper.serves(core) {
                let plain = fast.to_plain(None, out);
                self.engine = Engine::in_state_of(plain, self.simd);
            } else {
                if let Err((next, overflow)) = fast.access(core, batch, out) {
                    let mut plain = fast.to_plain(Some(&overflow), out);
                    plain.access_from(core, batch.from(next), next as u32, out);
                    self.engine = Engine::in_state_of(plain, self.simd);
                }
                return;
            }
        }
        match &mut self.engine {
            Engine::Fast(_) => {}
            Engine::Coherent(coherent) => coherent.access(core, batch, out),
            Engine::Plain(plain) => plain.access(core, batch, out),
            Engine::Cachegrind(cachegrind) => cachegrind.access(batch, out),
        }
    }

    /// Declares that a range of addresses is mapped by pages of this size; see
    /// [`PageSizes::set`](crate::PageSizes::set). TLB entries of the old size stay and age.
    pub fn set_page_size(&mut self, range: Range<u64>, size: PageSize) {
        match &mut self.engine {
            Engine::Fast(fast) => fast.set_page_size(range, size),
            Engine::Coherent(coherent) => coherent.set_page_size(range, size),
            Engine::Plain(plain) => plain.set_page_size(range, size),
            Engine::Cachegrind(_) => {}
        }
    }

    /// Appends every line that is still dirty anywhere to `out.dram_writes`, once each and by
    /// address, and makes them clean. Not part of a run's counts unless the caller adds them.
    pub fn flush_writebacks(&mut self, out: &mut Outcome) {
        match &mut self.engine {
            Engine::Fast(fast) => fast.flush_writebacks(out),
            Engine::Coherent(coherent) => coherent.flush_writebacks(out),
            Engine::Plain(plain) => plain.flush_writebacks(out),
            Engine::Cachegrind(_) => {}
        }
    }
}

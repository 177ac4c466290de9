//! The model that callers use: the fastest engine that gives the exact result.

use crate::batch::{Batch, CoreId, Outcome};
use crate::cachegrind::CachegrindModel;
use crate::coherent::CoherentModel;
use crate::fast::FastModel;
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
    /// As the machine has it, before any access; none if it has none.
    prefetcher: Option<Prefetcher>,
    /// Those of the cores that have accessed anything.
    prefetchers: BTreeMap<CoreId, Prefetcher>,
}

#[derive(Debug)]
enum Engine {
    Fast(Box<FastModel>),
    Coherent(Box<CoherentModel>),
    Plain(Box<PlainModel>),
    Cachegrind(Box<CachegrindModel>),
}

impl Engine {
    /// What goes on from the obvious model's state: the coherent engine, or the model itself for
    /// machines that need it.
    fn in_state_of(plain: PlainModel, simd: SimdLevel) -> Self {
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
        let streams = machine.prefetcher.streams;
        let prefetcher = (streams > 0).then(|| Prefetcher::new(streams, machine.line_bytes));
        Ok(Self { engine, simd, prefetcher, prefetchers: BTreeMap::new() })
    }

    /// Runs a batch of one core's accesses, in program order, and appends what it did to `out`.
    pub fn access(&mut self, core: CoreId, batch: Batch<'_>, out: &mut Outcome) {
        let before = Lengths::of(out);
        self.run(core, batch, out);
        if let Some(prefetcher) = &self.prefetcher {
            let prefetcher = self.prefetchers.entry(core).or_insert_with(|| prefetcher.clone());
            prefetcher.follow(batch, before, out);
        }
    }

    fn run(&mut self, core: CoreId, batch: Batch<'_>, out: &mut Outcome) {
        if let Engine::Fast(fast) = &mut self.engine {
            // A second core needs coherence, which the staged engine does not have.
            let other_core = fast.core().is_some_and(|first| first != core);
            if other_core {
                let plain = fast.to_plain(None, out);
                self.engine = Engine::in_state_of(plain, self.simd);
            } else {
                if let Err(overflow) = fast.access(core, batch, out) {
                    let mut plain = fast.to_plain(Some(&overflow), out);
                    plain.access_from(core, batch.from(overflow.next), overflow.next as u32, out);
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

//! The engine: the upper levels and those behind them, chunk by chunk, and the way out of it.

use super::level::{Level, MOST_SETS};
use super::lower::LowerLevels;
use super::queue::Queue;
use super::regions::Uppers;
use super::upper::{Overflow, UpperLevels};
use crate::batch::{Batch, CoreId, Outcome};
use crate::machine::{Inclusion, MachineDescription, ModelError, Policy, Rules};
use crate::page_sizes::PageSize;
use crate::plain::{Cache, Line, PlainModel};
use crate::simd::SimdLevel;
use alloc::collections::BTreeSet;
use core::ops::Range;

#[derive(Clone, Debug)]
pub(crate) struct FastModel {
    machine: MachineDescription,
    simd: SimdLevel,
    pub(crate) upper: UpperLevels,
    lower: LowerLevels,
    queue: Queue,
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
            || caches.iter().flatten().any(|cache| cache.sets() > MOST_SETS)
        {
            return Ok(None);
        }
        let Some(upper) = UpperLevels::new(machine, simd, modulus) else { return Ok(None) };
        let lower = LowerLevels::new(machine);
        Ok(Some(Self { machine: machine.clone(), simd, upper, lower, queue: Queue::default() }))
    }

    /// What it consists of, to be run apart.
    pub(crate) fn into_parts(self) -> (MachineDescription, SimdLevel, UpperLevels, LowerLevels) {
        (self.machine, self.simd, self.upper, self.lower)
    }

    pub(crate) fn set_page_size(&mut self, range: Range<u64>, size: PageSize) {
        self.upper.page_sizes().set(range, size);
    }

    /// Runs a batch.
    ///
    /// # Errors
    /// After an overflow, the first access that did not run.
    pub(crate) fn access(
        &mut self,
        core: CoreId,
        batch: Batch<'_>,
        out: &mut Outcome,
    ) -> Result<(), (usize, Overflow)> {
        let Self { upper, lower, queue, simd, .. } = self;
        let mut next = 0;
        while next < batch.len() {
            // What a chunk leaves is served while it is in the host's first levels.
            queue.clear();
            let ran = upper.chunk(core, batch, next..batch.len(), out, queue);
            lower.serve(*simd, queue, out);
            next += *ran.as_ref().unwrap_or_else(|(ran, _)| ran);
            ran.map_err(|(_, overflow)| (next, overflow))?;
        }
        Ok(())
    }

    /// The obvious model in the same state. Requests left over by an overflow are run in it.
    pub(crate) fn to_plain(&self, overflow: Option<&Overflow>, out: &mut Outcome) -> PlainModel {
        to_plain(&self.machine, &self.upper, &self.lower, overflow, out)
    }

    /// As [`PlainModel::flush_writebacks`].
    pub(crate) fn flush_writebacks(&mut self, out: &mut Outcome) {
        let (caches, uppers) = self.upper.caches();
        let levels = [Some(&caches.l1d), Some(&caches.l1i), self.lower.l2.as_ref(), Some(&self.lower.llc)];
        let lines = levels.into_iter().flatten().flat_map(Level::lines).filter(|&(_, is_dirty)| is_dirty);
        let line_shift = self.machine.line_bytes.trailing_zeros();
        let dirty: BTreeSet<u64> = lines.map(|(line, _)| uppers.expand(line) << line_shift).collect();
        out.dram_writes.extend(dirty);
        caches.clean();
        self.lower.clean();
    }
}

/// The obvious model in the state of these levels. Requests left over by an overflow are run in it.
pub(crate) fn to_plain(
    machine: &MachineDescription,
    upper: &UpperLevels,
    lower: &LowerLevels,
    overflow: Option<&Overflow>,
    out: &mut Outcome,
) -> PlainModel {
    let mut plain = PlainModel::of_valid(machine);
    let core = upper.copy_to(&mut plain);
    let (state, llc, _) = plain.parts(core);
    if let (Some(cache), Some(level)) = (&mut state.l2, &lower.l2) {
        fill(cache, level, &lower.uppers);
    }
    fill(llc, &lower.llc, &lower.uppers);
    if let Some(overflow) = overflow {
        overflow.serve(&mut plain, core, out);
    }
    plain
}

/// Puts a level's lines into the obvious model's cache, the least recent of a set first.
pub(super) fn fill(cache: &mut Cache, level: &Level, uppers: &Uppers) {
    for (line, dirty) in level.lines() {
        cache.fill(Line { line: uppers.expand(line), dirty, sole: true });
    }
}

fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut gcd, mut rest) = (a, b);
    while rest != 0 {
        (gcd, rest) = (rest, gcd % rest);
    }
    (a / gcd).saturating_mul(b)
}

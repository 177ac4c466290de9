//! A model with the accounting rules of valgrind's cachegrind.

use crate::batch::{Batch, Outcome};
use crate::machine::{CacheDescription, MachineDescription, ModelError};
use alloc::vec;
use alloc::vec::Vec;
use memlens_types::AccessKind;

/// Block numbers in recency order, most recent first, all zero at first (as cachegrind's are:
/// block 0 is resident from the start).
#[derive(Clone, Debug)]
struct Blocks {
    shift: u32,
    sets: u64,
    /// `sets - 1` if that selects bits, else 0.
    mask: u64,
    ways: usize,
    tags: Vec<u64>,
}

impl Blocks {
    fn new(cache: &CacheDescription) -> Self {
        let sets = cache.sets();
        let ways = cache.ways as usize;
        Self {
            shift: cache.line.trailing_zeros(),
            sets,
            mask: if sets.is_power_of_two() { sets - 1 } else { 0 },
            ways,
            tags: vec![0; sets as usize * ways],
        }
    }

    #[inline]
    fn block_misses(&mut self, block: u64) -> bool {
        let set = if self.mask != 0 { block & self.mask } else { block % self.sets };
        let first = set as usize * self.ways;
        let tags = &mut self.tags[first..first + self.ways];
        if tags[0] == block {
            return false;
        }
        match tags.iter().position(|&tag| tag == block) {
            Some(at) => {
                tags.copy_within(0..at, 1);
                tags[0] = block;
                false
            }
            None => {
                tags.copy_within(0..tags.len() - 1, 1);
                tags[0] = block;
                true
            }
        }
    }

    /// Uses every block that the bytes lie in; one miss at most.
    #[inline]
    fn misses(&mut self, addr: u64, last_byte: u64) -> bool {
        let (first, last) = (addr >> self.shift, last_byte >> self.shift);
        let mut missed = self.block_misses(first);
        for block in first + 1..=last {
            missed |= self.block_misses(block);
        }
        missed
    }
}

/// Two levels, I1/D1 and a unified LL, as cachegrind simulates them (valgrind 3.19, `cg_sim.c`).
///
/// An access misses a level once at most, however many blocks it touches; LL is asked once for all
/// bytes of an access that missed the first level, also for blocks that had hit there. A modify is
/// one access (cachegrind reports it as a read). Data accesses larger than the smallest line are
/// cut to it. No write-backs, no TLBs, one core.
#[derive(Clone, Debug)]
pub struct CachegrindModel {
    i1: Blocks,
    d1: Blocks,
    ll: Blocks,
    largest_data_bytes: u32,
}

impl CachegrindModel {
    /// Empty caches. Cachegrind itself only takes numbers of sets that are powers of two; others
    /// are indexed modulo here.
    pub fn new(machine: &MachineDescription) -> Result<Self, ModelError> {
        machine.validate()?;
        let smallest_line = machine.l1i.line.min(machine.l1d.line).min(machine.llc.line);
        Ok(Self {
            i1: Blocks::new(&machine.l1i),
            d1: Blocks::new(&machine.l1d),
            ll: Blocks::new(&machine.llc),
            largest_data_bytes: smallest_line,
        })
    }

    /// Runs a batch and appends D1 misses to `l1_misses`, LLd misses to `llc_misses`, I1 and LLi
    /// misses to `l1i_misses` and `llci_misses`. Prefetches are skipped: cachegrind never sees
    /// them.
    pub fn access(&mut self, batch: Batch<'_>, out: &mut Outcome) {
        for (index, (&addr, &attr)) in (0..).zip(batch.addrs.iter().zip(batch.attrs)) {
            match attr.kind() {
                AccessKind::Fetch => {
                    let last_byte = addr.saturating_add(u64::from(attr.size_bytes().max(1) - 1));
                    if self.i1.misses(addr, last_byte) {
                        out.l1i_misses.push(index);
                        if self.ll.misses(addr, last_byte) {
                            out.llci_misses.push(index);
                        }
                    }
                }
                AccessKind::Prefetch => {}
                AccessKind::Load | AccessKind::Store | AccessKind::Modify => {
                    let size = attr.size_bytes().clamp(1, self.largest_data_bytes);
                    let last_byte = addr.saturating_add(u64::from(size - 1));
                    if self.d1.misses(addr, last_byte) {
                        out.l1_misses.push(index);
                        if self.ll.misses(addr, last_byte) {
                            out.llc_misses.push(index);
                        }
                    }
                }
            }
        }
    }
}

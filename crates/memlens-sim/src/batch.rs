//! What goes into a model and what comes out.

use alloc::vec::Vec;
use core::ops::Range;
use memlens_types::AccessAttr;

/// A core of the modelled machine: threads are mapped to cores by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct CoreId(pub u16);

/// A run of accesses of one core, in program order, as two parallel columns.
///
/// A batch of 8 to 32 thousand accesses amortises the call and keeps the model's queues in the
/// host's caches. If the columns differ in length, the longer one's rest is ignored.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Byte addresses.
    pub addrs: &'a [u64],
    /// Kind and size of the access at the same position.
    pub attrs: &'a [AccessAttr],
}

impl<'a> Batch<'a> {
    /// How many accesses the batch holds.
    pub fn len(&self) -> usize {
        self.addrs.len().min(self.attrs.len())
    }

    /// Whether the batch holds no access.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The accesses from `start` on.
    pub(crate) fn from(&self, start: usize) -> Batch<'a> {
        self.part(start..self.len())
    }

    /// Some of the accesses.
    pub(crate) fn part(&self, accesses: Range<usize>) -> Batch<'a> {
        Batch { addrs: &self.addrs[accesses.clone()], attrs: &self.attrs[accesses] }
    }
}

/// A page walk: a second-level TLB miss and the page-table entries that were read for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Walk {
    /// Position in the batch of the access that needed the translation.
    pub index: u32,
    /// Page-table entries read: levels not answered by a paging-structure cache.
    pub entries_read: u8,
    /// Reads of entries that missed the first-level data cache.
    pub l1_misses: u8,
    /// Reads of entries that missed the second-level cache.
    pub l2_misses: u8,
    /// Reads of entries that missed the last-level cache: lines read from memory.
    pub llc_misses: u8,
    /// Cycles that it takes, as the machine's walker says; 0: it does not.
    pub cycles: u32,
}

/// A line that another core lost to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalidation {
    /// Position in the batch of the writing access.
    pub index: u32,
    /// Byte address of the first byte of the line.
    pub line_addr: u64,
    /// The core that lost it.
    pub core: CoreId,
}

/// What a batch did, as positions in the batch. Lists are appended to; [`Outcome::clear`] empties
/// them and keeps their memory.
///
/// Every list is in program order. An index stands twice in a list if the access missed in two
/// lines (or pages). Lines read from memory are `llc_misses` + `llci_misses` + the walks'
/// `llc_misses`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// First-level misses of data accesses (loads, stores, modifies and prefetches).
    pub l1_misses: Vec<u32>,
    /// Second-level misses of data accesses. Empty on machines without a second level.
    pub l2_misses: Vec<u32>,
    /// Last-level misses of data accesses: lines read from memory.
    pub llc_misses: Vec<u32>,
    /// Those of `l2_misses` whose lines a hardware prefetcher has asked for before; empty on machines without one.
    pub l2_prefetched: Vec<u32>,
    /// The same of `llc_misses`.
    pub llc_prefetched: Vec<u32>,
    /// First-level misses of instruction fetches.
    pub l1i_misses: Vec<u32>,
    /// Second-level misses of instruction fetches.
    pub l2i_misses: Vec<u32>,
    /// Last-level misses of instruction fetches: lines read from memory.
    pub llci_misses: Vec<u32>,
    /// First-level data TLB misses.
    pub dtlb_misses: Vec<u32>,
    /// Second-level TLB misses.
    pub stlb_misses: Vec<u32>,
    /// Page walks, one for each second-level TLB miss if the machine has a walker.
    pub walks: Vec<Walk>,
    /// Byte address of the first byte of each line written back to memory. Page-table lines are
    /// never among them: the walker only reads.
    pub dram_writes: Vec<u64>,
    /// Lines that other cores lost.
    pub invalidations: Vec<Invalidation>,
    /// Those of `l1_misses` whose line another core had modified, and gave.
    pub coherence_misses: Vec<u32>,
}

impl Outcome {
    /// Empties all lists and keeps their memory.
    pub fn clear(&mut self) {
        self.l1_misses.clear();
        self.l2_misses.clear();
        self.llc_misses.clear();
        self.l2_prefetched.clear();
        self.llc_prefetched.clear();
        self.l1i_misses.clear();
        self.l2i_misses.clear();
        self.llci_misses.clear();
        self.dtlb_misses.clear();
        self.stlb_misses.clear();
        self.walks.clear();
        self.dram_writes.clear();
        self.invalidations.clear();
        self.coherence_misses.clear();
    }

    /// The lists of positions of accesses.
    fn positions(&mut self) -> [&mut Vec<u32>; 11] {
        [
            &mut self.l1_misses,
            &mut self.l2_misses,
            &mut self.llc_misses,
            &mut self.l2_prefetched,
            &mut self.llc_prefetched,
            &mut self.l1i_misses,
            &mut self.l2i_misses,
            &mut self.llci_misses,
            &mut self.dtlb_misses,
            &mut self.stlb_misses,
            &mut self.coherence_misses,
        ]
    }

    /// How long the lists are that have positions.
    pub(crate) fn lengths(&mut self) -> AllLengths {
        AllLengths {
            walks: self.walks.len(),
            invalidations: self.invalidations.len(),
            positions: self.positions().map(|list| list.len()),
        }
    }

    /// Adds `first` to the positions of what came since.
    pub(crate) fn shift_new(&mut self, before: &AllLengths, first: u32) {
        if first == 0 {
            return;
        }
        for (list, before) in self.positions().into_iter().zip(before.positions) {
            list[before..].iter_mut().for_each(|index| *index += first);
        }
        self.walks[before.walks..].iter_mut().for_each(|walk| walk.index += first);
        self.invalidations[before.invalidations..].iter_mut().for_each(|lost| lost.index += first);
    }

    /// Lines read from memory: last-level misses of data, fetches and page walks.
    pub fn dram_reads(&self) -> u64 {
        let walks: u64 = self.walks.iter().map(|walk| u64::from(walk.llc_misses)).sum();
        self.llc_misses.len() as u64 + self.llci_misses.len() as u64 + walks
    }
}

/// How long an outcome's lists are.
pub(crate) struct AllLengths {
    positions: [usize; 11],
    walks: usize,
    invalidations: usize,
}

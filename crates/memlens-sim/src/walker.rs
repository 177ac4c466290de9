//! The page walker: which page-table entries a translation reads.
//!
//! The page table itself is modelled as one linear array of 8-byte entries a level, as if every
//! table were present and all tables of a level lay side by side:
//!
//! ```text
//! level   entry read                                  covers
//! PML4E   0x80f0_0000_0000_0000 + (vaddr >> 39) * 8   512 GiB
//! PDPTE   0x80e0_0000_0000_0000 + (vaddr >> 30) * 8     1 GiB
//! PDE     0x80d0_0000_0000_0000 + (vaddr >> 21) * 8     2 MiB
//! PTE     0x80c0_0000_0000_0000 + (vaddr >> 12) * 8     4 KiB
//! ```
//!
//! with `vaddr` cut to its low 57 bits. These addresses are not canonical, so no access of a
//! program meets them. Eight neighbouring pages share a line of PTEs, as in hardware; tables that
//! hardware would place pages apart lie side by side here, which changes set indices, not sharing.

use crate::batch::Walk;
use crate::machine::WalkerDescription;
use crate::page_sizes::PageSize;
use alloc::vec::Vec;

const PML4E_BASE: u64 = 0x80f0_0000_0000_0000;
const PDPTE_BASE: u64 = 0x80e0_0000_0000_0000;
const PDE_BASE: u64 = 0x80d0_0000_0000_0000;
const PTE_BASE: u64 = 0x80c0_0000_0000_0000;
const LINEAR_ADDRESS_MASK: u64 = (1 << 57) - 1;

/// Byte addresses of the entries that one walk reads, in the order of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct WalkReads {
    addrs: [u64; 4],
    len: usize,
    cycles: u32,
}

impl WalkReads {
    pub(crate) fn as_slice(&self) -> &[u64] {
        &self.addrs[..self.len]
    }

    /// What a batch's outcome says of it.
    pub(crate) fn walk(&self, index: u32) -> Walk {
        Walk { index, entries_read: self.len as u8, cycles: self.cycles, ..Walk::default() }
    }

    fn push(&mut self, addr: u64) {
        self.addrs[self.len] = addr;
        self.len += 1;
    }
}

/// A fully associative LRU list of table numbers, most recent first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StructureCache {
    keys: Vec<u64>,
    capacity: usize,
}

impl StructureCache {
    fn new(capacity: u32) -> Self {
        Self { keys: Vec::with_capacity(capacity as usize), capacity: capacity as usize }
    }

    /// Makes a key the most recent one, and says whether it was there.
    fn touch(&mut self, key: u64) -> bool {
        // Each key moves one back, up to where the key was.
        let mut moving = key;
        for place in &mut self.keys {
            core::mem::swap(place, &mut moving);
            if moving == key {
                return true;
            }
        }
        if self.keys.len() < self.capacity {
            self.keys.push(moving);
        }
        false
    }
}

/// What walks take by how long ago their page was walked last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tiers {
    /// See [`WalkerDescription::tiers`].
    cycles: Vec<[u32; 2]>,
    /// Pages and the numbers of their last walks, by the pages' low bits: what was replaced counts as never walked.
    last: Vec<(u32, u32)>,
    walks: u32,
}

impl Tiers {
    /// Bits of a place: pages of 1 GiB have one each, 2 MiB of memory.
    const BITS: u32 = 18;
    /// A page whose neighbour was walked so few walks ago is on a way through one after the other, whose entries come a line at a time.
    const NEAR: u32 = 64;

    fn new(cycles: &[[u32; 2]]) -> Option<Self> {
        (!cycles.is_empty()).then(|| Self {
            cycles: cycles.to_vec(),
            last: alloc::vec![(0, 0); 1 << Self::BITS],
            walks: Self::NEAR,
        })
    }

    /// Walks since the last one of a page; None: it had none, or another has taken its place.
    fn since(&self, page: u64) -> Option<u32> {
        let (of, at) = self.last[page as usize % self.last.len()];
        (of == page as u32 && at > 0).then(|| self.walks.wrapping_sub(at))
    }

    fn walk(&mut self, page: u64) -> u32 {
        let neighbours = [page.wrapping_sub(1), page.wrapping_add(1)];
        let is_in_order = neighbours.iter().any(|&it| self.since(it).is_some_and(|since| since < Self::NEAR));
        // A page that is new has an entry that the kernel has just written.
        let since = self.since(page).filter(|_| !is_in_order).unwrap_or(0);
        let place = page as usize % self.last.len();
        self.last[place] = (page as u32, self.walks);
        self.walks = self.walks.wrapping_add(1).max(1);
        let tier = self.cycles.iter().rev().find(|[from, _]| *from <= since);
        tier.or(self.cycles.first()).map_or(0, |[_, cycles]| *cycles)
    }
}

/// The paging-structure caches and the table's layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageWalker {
    pde: StructureCache,
    pdpte: StructureCache,
    pml4e: StructureCache,
    tiers: Option<Tiers>,
}

impl PageWalker {
    pub(crate) fn new(description: &WalkerDescription) -> Option<Self> {
        description.enabled.then(|| Self {
            pde: StructureCache::new(description.pde_entries),
            pdpte: StructureCache::new(description.pdpte_entries),
            pml4e: StructureCache::new(description.pml4e_entries),
            tiers: Tiers::new(&description.tiers),
        })
    }

    /// Walks for an address on a page of this size: the deepest cached structure that lies above
    /// the leaf entry is used, the levels below it are read, and what was read is cached.
    pub(crate) fn walk(&mut self, vaddr: u64, size: PageSize) -> WalkReads {
        let vaddr = vaddr & LINEAR_ADDRESS_MASK;
        let (pml4, pdpt, pd, pt) = (vaddr >> 39, vaddr >> 30, vaddr >> 21, vaddr >> 12);
        // A structure that is not cached is read, by way of the one above it, and cached. What the leaf
        // entry is read from is no structure.
        let mut reads = WalkReads::default();
        if size != PageSize::Size4K || !self.pde.touch(pd) {
            if size == PageSize::Size1G || !self.pdpte.touch(pdpt) {
                if !self.pml4e.touch(pml4) {
                    reads.push(PML4E_BASE + pml4 * 8);
                }
                reads.push(PDPTE_BASE + pdpt * 8);
            }
            if size != PageSize::Size1G {
                reads.push(PDE_BASE + pd * 8);
            }
        }
        if size == PageSize::Size4K {
            reads.push(PTE_BASE + pt * 8);
            reads.cycles = self.tiers.as_mut().map_or(0, |tiers| tiers.walk(pt));
        }
        reads
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn walker(pde: u32, pdpte: u32, pml4e: u32) -> PageWalker {
        let description = WalkerDescription {
            enabled: true,
            pde_entries: pde,
            pdpte_entries: pdpte,
            pml4e_entries: pml4e,
            tiers: Vec::new(),
            source: String::new(),
        };
        PageWalker::new(&description).expect("enabled")
    }

    const MIB2: u64 = 2 << 20;
    const GIB: u64 = 1 << 30;

    #[test]
    fn caches_spare_the_upper_levels() {
        let mut walker = walker(1, 1, 1);
        let reads = |walker: &mut PageWalker, vaddr| walker.walk(vaddr, PageSize::Size4K).as_slice().len();
        //                                                      cached: pde  pdpte  pml4e
        assert_eq!(reads(&mut walker, 0), 4); // nothing is cached      0    0      0
        assert_eq!(reads(&mut walker, 0x1000), 1); // the PDE hits      0    0      0
        assert_eq!(reads(&mut walker, MIB2), 2); // the PDPTE hits      1    0      0
        assert_eq!(reads(&mut walker, 0), 2); // PDE 0 was replaced     0    0      0
        assert_eq!(reads(&mut walker, GIB), 3); // the PML4E hits       512  1      0
        assert_eq!(reads(&mut walker, 1 << 39), 4); // none             …    512    1
    }

    #[test]
    fn big_pages_end_the_walk_early() {
        let mut walker = walker(4, 4, 4);
        assert_eq!(walker.walk(0, PageSize::Size2M).as_slice(), [PML4E_BASE, PDPTE_BASE, PDE_BASE]);
        // The leaf PDE is no paging structure: it is read again.
        assert_eq!(walker.walk(MIB2, PageSize::Size2M).as_slice(), [PDE_BASE + 8]);
        assert_eq!(walker.walk(GIB, PageSize::Size1G).as_slice(), [PDPTE_BASE + 8]);
    }

    #[test]
    fn walks_take_longer_the_more_pages_are_walked_in_between() {
        let description = WalkerDescription {
            enabled: true,
            tiers: [[0, 50], [1000, 200]].into(),
            ..WalkerDescription::disabled()
        };
        let mut walker = PageWalker::new(&description).expect("enabled");
        let mut cycles = |page: u64| walker.walk(page << 12, PageSize::Size4K).walk(0).cycles;
        // Pages that are new, four apart: no neighbours.
        assert!((0..1001).all(|page| cycles(4 * page) == 50));
        assert_eq!(cycles(0), 200, "1000 walks ago");
        assert_eq!(cycles(0), 50);
        assert_eq!((cycles(8), cycles(400)), (200, 50));
        // One after another: the entries of eight are in a line.
        assert!((2000..4000).all(|page| cycles(page) == 50));
        assert_eq!(cycles(2000), 200);
        assert!((2001..4000).all(|page| cycles(page) == 50));
        assert_eq!(walker.walk(0, PageSize::Size2M).walk(0).cycles, 0, "nothing is known of them");
    }

    #[test]
    fn without_caches_every_walk_reads_four() {
        let mut walker = walker(0, 0, 0);
        for _ in 0..2 {
            assert_eq!(walker.walk(0x7000, PageSize::Size4K).as_slice().len(), 4);
        }
    }
}

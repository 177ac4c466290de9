//! One level of TLB: an LRU array a page size.

use crate::fast::StampTlb;
use crate::machine::{TlbDescription, TlbEntries};
use crate::page_sizes::PageSize;
use crate::simd::SimdLevel;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// One level of a core. Most programs use one page size: an array is made when its size is first used.
#[derive(Clone, Debug)]
pub(super) struct Tlbs<const SLOTS: usize, const ENTRIES: usize> {
    described: [Option<TlbEntries>; 3],
    by_size: [Option<Box<StampTlb<SLOTS, ENTRIES>>>; 3],
}

impl<const SLOTS: usize, const ENTRIES: usize> Tlbs<SLOTS, ENTRIES> {
    /// Empty ones. None if there are more entries than fit.
    pub(super) fn new(description: Option<&TlbDescription>) -> Option<Self> {
        let described = description.map(TlbDescription::by_page_size).unwrap_or_default();
        let fit = described.iter().flatten().all(|tlb| tlb.entries as usize <= ENTRIES);
        fit.then_some(Self { described, by_size: [None, None, None] })
    }

    #[inline(always)]
    fn of_size(&mut self, size: PageSize) -> Option<&mut StampTlb<SLOTS, ENTRIES>> {
        let at = size as usize;
        if self.by_size[at].is_none() {
            self.by_size[at] = self.described[at].and_then(make);
        }
        self.by_size[at].as_deref_mut()
    }

    /// The array of 4 KiB pages, once it was used.
    #[inline(always)]
    pub(super) fn of_small_pages(&mut self) -> Option<&mut StampTlb<SLOTS, ENTRIES>> {
        self.by_size[PageSize::Size4K as usize].as_deref_mut()
    }

    /// Looks a page up and uses it; puts it in if it is not there. Returns whether it was. Without
    /// entries for the size it never is.
    #[inline(always)]
    pub(super) fn lookup_or_fill(&mut self, size: PageSize, page: u64, simd: SimdLevel) -> bool {
        let Some(tlb) = self.of_size(size) else { return false };
        let hit = tlb.lookup(page);
        if !hit {
            tlb.fill(page, simd);
        }
        hit
    }

    /// Puts pages in that are not there, oldest first.
    pub(super) fn fill_all(&mut self, size: PageSize, pages: Vec<u64>, simd: SimdLevel) {
        if let Some(tlb) = self.of_size(size).filter(|_| !pages.is_empty()) {
            pages.into_iter().for_each(|page| tlb.fill(page, simd));
        }
    }
}

#[cold]
fn make<const SLOTS: usize, const ENTRIES: usize>(
    entries: TlbEntries,
) -> Option<Box<StampTlb<SLOTS, ENTRIES>>> {
    StampTlb::new(entries.entries, entries.ways).map(Box::new)
}

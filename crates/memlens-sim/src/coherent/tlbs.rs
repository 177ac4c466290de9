//! One level of TLB: an array a page size.

use crate::fast::{ClockTlb, StampTlb, Tlb1};
use crate::machine::{Policy, TlbDescription, TlbEntries};
use crate::page_sizes::PageSize;
use crate::plain::Cache;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// One level of a core. Most programs use one page size: an array is made when its size is first used.
#[derive(Clone, Debug)]
pub(super) struct Tlbs<const SLOTS: usize, const ENTRIES: usize> {
    described: [Option<TlbEntries>; 3],
    by_size: [Option<PageArray<SLOTS, ENTRIES>>; 3],
}

/// The entries of one page size, by replacement policy.
#[derive(Clone, Debug)]
pub(super) enum PageArray<const SLOTS: usize, const ENTRIES: usize> {
    /// LRU.
    Stamps(Box<StampTlb<SLOTS, ENTRIES>>),
    /// Second chance, fully associative.
    Clock(Box<ClockTlb>),
}

impl<const SLOTS: usize, const ENTRIES: usize> PageArray<SLOTS, ENTRIES> {
    /// None if there are more entries than fit, or they have another policy.
    #[cold]
    fn new(entries: TlbEntries) -> Option<Self> {
        match entries.policy() {
            Policy::Clock if entries.ways == entries.entries => {
                ClockTlb::new(entries.entries).map(|tlb| Self::Clock(Box::new(tlb)))
            }
            Policy::Lru => {
                StampTlb::new(entries.entries, entries.ways).map(|tlb| Self::Stamps(Box::new(tlb)))
            }
            _ => None,
        }
    }

    /// Uses a page, and says whether it was there.
    #[inline(always)]
    fn touch(&mut self, page: u64) -> bool {
        match self {
            Self::Stamps(tlb) => {
                let hit = tlb.lookup(page);
                if !hit {
                    tlb.fill(page);
                }
                hit
            }
            Self::Clock(tlb) => tlb.touch(page),
        }
    }
}

impl<const SLOTS: usize, const ENTRIES: usize> Tlbs<SLOTS, ENTRIES> {
    /// Empty ones. None if there are more entries than fit, or of another policy.
    pub(super) fn new(description: Option<&TlbDescription>) -> Option<Self> {
        let described = description.map(TlbDescription::by_page_size).unwrap_or_default();
        let fit = described.iter().flatten().all(|&tlb| PageArray::<SLOTS, ENTRIES>::new(tlb).is_some());
        fit.then_some(Self { described, by_size: [None, None, None] })
    }

    #[inline(always)]
    fn of_size(&mut self, size: PageSize) -> Option<&mut PageArray<SLOTS, ENTRIES>> {
        let at = size as usize;
        if self.by_size[at].is_none() {
            self.by_size[at] = self.described[at].and_then(PageArray::new);
        }
        self.by_size[at].as_mut()
    }

    /// The array of 4 KiB pages, once it was used.
    #[inline(always)]
    pub(super) fn of_small_pages(&mut self) -> Option<&mut PageArray<SLOTS, ENTRIES>> {
        self.by_size[PageSize::Size4K as usize].as_mut()
    }

    /// Looks a page up and uses it; puts it in if it is not there. Returns whether it was. Without
    /// entries for the size it never is.
    #[inline(always)]
    pub(super) fn lookup_or_fill(&mut self, size: PageSize, page: u64) -> bool {
        self.of_size(size).is_some_and(|tlb| tlb.touch(page))
    }

    /// Takes the state of the obvious model's array over, into an empty one.
    pub(super) fn take_over(&mut self, size: PageSize, cache: &Cache) {
        let pages = cache.lines_oldest_first();
        match self.of_size(size).filter(|_| !pages.is_empty()) {
            None => {}
            Some(PageArray::Stamps(tlb)) => pages.into_iter().for_each(|page| tlb.fill(page.line)),
            Some(PageArray::Clock(tlb)) => {
                let (lines, hand) = cache.clock();
                let state: Vec<(u64, bool)> = lines.into_iter().map(|(page, bit)| (page.line, bit)).collect();
                tlb.restore(&state, hand);
            }
        }
    }
}

//! Which page size maps an address.

use alloc::vec::Vec;
use core::ops::Range;

/// A page size of the four-level x86-64 page table (Intel SDM volume 3A, section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub enum PageSize {
    /// 4 KiB, mapped by a PTE.
    #[default]
    Size4K = 0,
    /// 2 MiB, mapped by a PDE.
    Size2M = 1,
    /// 1 GiB, mapped by a PDPTE.
    Size1G = 2,
}

impl PageSize {
    /// All sizes, smallest first.
    pub const ALL: [Self; 3] = [Self::Size4K, Self::Size2M, Self::Size1G];

    /// Base-two logarithm of the size in bytes.
    pub const fn shift(self) -> u32 {
        match self {
            Self::Size4K => 12,
            Self::Size2M => 21,
            Self::Size1G => 30,
        }
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        1 << self.shift()
    }
}

/// A map from addresses to page sizes: 4 KiB except for declared ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSizes {
    /// Disjoint, sorted by start; never 4 KiB.
    ranges: Vec<(Range<u64>, PageSize)>,
}

impl PageSizes {
    /// 4 KiB everywhere.
    pub const fn new() -> Self {
        Self { ranges: Vec::new() }
    }

    /// Whether every page is 4 KiB.
    pub fn is_uniform(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Declares that `range` is mapped by pages of `size`. Pages that do not lie in the range
    /// entirely stay 4 KiB, as a kernel does with unaligned ends; an earlier declaration of the
    /// same addresses is replaced. Costs time linear in the number of ranges.
    pub fn set(&mut self, range: Range<u64>, size: PageSize) {
        if range.is_empty() {
            return;
        }
        let mut kept = Vec::with_capacity(self.ranges.len() + 2);
        for (old, old_size) in self.ranges.drain(..) {
            for part in [old.start..old.end.min(range.start), old.start.max(range.end)..old.end] {
                // A big page cut by the new range falls back to 4 KiB.
                if let Some(part) = whole_pages(part, old_size) {
                    kept.push((part, old_size));
                }
            }
        }
        if size != PageSize::Size4K
            && let Some(inner) = whole_pages(range, size)
        {
            kept.push((inner, size));
        }
        kept.sort_by_key(|(range, _)| range.start);
        self.ranges = kept;
    }

    /// The page size at an address. Costs a binary search.
    pub fn at(&self, addr: u64) -> PageSize {
        let after = self.ranges.partition_point(|(range, _)| range.start <= addr);
        match self.ranges[..after].last() {
            Some((range, size)) if range.contains(&addr) => *size,
            _ => PageSize::Size4K,
        }
    }
}

fn whole_pages(range: Range<u64>, size: PageSize) -> Option<Range<u64>> {
    let start = range.start.checked_next_multiple_of(size.bytes())?;
    let end = range.end & !(size.bytes() - 1);
    (start < end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;

    #[test]
    fn only_whole_pages_of_a_range_get_the_size() {
        let mut sizes = PageSizes::new();
        // [1 MiB, 7 MiB) holds the whole 2 MiB pages [2, 4) and [4, 6).
        sizes.set(M..7 * M, PageSize::Size2M);
        assert_eq!(sizes.at(2 * M - 1), PageSize::Size4K);
        assert_eq!(sizes.at(2 * M), PageSize::Size2M);
        assert_eq!(sizes.at(6 * M - 1), PageSize::Size2M);
        assert_eq!(sizes.at(6 * M), PageSize::Size4K);
    }

    #[test]
    fn a_later_declaration_wins_and_splits() {
        let mut sizes = PageSizes::new();
        sizes.set(0..16 * M, PageSize::Size2M);
        // Cuts the page [4, 6) in half: the rest of it becomes 4 KiB.
        sizes.set(5 * M..8 * M, PageSize::Size4K);
        assert_eq!(sizes.at(4 * M - 1), PageSize::Size2M);
        assert_eq!(sizes.at(4 * M), PageSize::Size4K);
        assert_eq!(sizes.at(7 * M), PageSize::Size4K);
        assert_eq!(sizes.at(8 * M), PageSize::Size2M);
    }
}

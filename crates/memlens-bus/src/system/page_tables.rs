//! A process's page tables: which frame each page has, and in which frames the tables lie.

use rustc_hash::FxHashMap;

/// A leaf entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// First frame.
    pub frame: u64,
    /// May be written without asking the kernel.
    pub is_writable: bool,
    /// Belongs to a shared mapping or a file: a fork shares it rather than copying on writes.
    pub is_shared: bool,
    /// Of a large page: from the pool of hugetlbfs rather than transparent.
    pub is_reserved: bool,
}

impl Leaf {
    /// A frame of the process's own, which it may write.
    pub fn own(frame: u64) -> Self {
        Self { frame, is_writable: true, is_shared: false, is_reserved: false }
    }
}

/// Pages of 4 KiB below an entry of a level.
pub const fn pages_of(level: u8) -> u64 {
    1 << (9 * (level as u32 - 1))
}

/// Four levels of tables.
#[derive(Clone, Debug, Default)]
pub struct PageTables {
    /// Leaves of levels 1 to 3, by first page.
    leaves: [FxHashMap<u64, Leaf>; 3],
    /// Frames of tables, by level and the first page that they cover.
    tables: FxHashMap<(u8, u64), u64>,
}

impl PageTables {
    /// The leaf that maps a page, and its level.
    pub fn leaf(&self, page: u64) -> Option<(Leaf, u8)> {
        (1..=3).find_map(|level| {
            let leaves = &self.leaves[usize::from(level) - 1];
            let first = page & !(pages_of(level) - 1);
            let leaf = if leaves.is_empty() { None } else { leaves.get(&first) };
            leaf.map(|&leaf| (leaf, level))
        })
    }

    /// Sets the leaf of a level for the page's range.
    pub fn set(&mut self, page: u64, level: u8, leaf: Leaf) {
        self.leaves[usize::from(level) - 1].insert(page & !(pages_of(level) - 1), leaf);
    }

    /// Takes a leaf out.
    pub fn clear(&mut self, page: u64, level: u8) -> Option<Leaf> {
        self.leaves[usize::from(level) - 1].remove(&(page & !(pages_of(level) - 1)))
    }

    /// All leaves (first page, level, leaf) that overlap a range, by page. Cost: the range's pages or the
    /// number of leaves, whichever is smaller.
    pub fn leaves_in(&self, pages: std::ops::Range<u64>) -> Vec<(u64, u8, Leaf)> {
        let mut found = Vec::new();
        for level in 1..=3_u8 {
            let (leaves, each) = (&self.leaves[usize::from(level) - 1], pages_of(level));
            let first = pages.start & !(each - 1);
            let count = pages.end.saturating_sub(first).div_ceil(each);
            if count <= leaves.len() as u64 {
                let all = (0..count).map(|at| first + at * each);
                found.extend(all.filter_map(|page| leaves.get(&page).map(|&leaf| (page, level, leaf))));
            } else {
                let inside =
                    leaves.iter().filter(|(page, _)| **page + each > pages.start && **page < pages.end);
                found.extend(inside.map(|(&page, &leaf)| (page, level, leaf)));
            }
        }
        found.sort_unstable_by_key(|&(page, level, _)| (page, level));
        found
    }

    /// Makes every private leaf one that is copied when it is written.
    pub fn protect_private(&mut self) {
        for leaf in self.leaves.iter_mut().flat_map(FxHashMap::values_mut) {
            leaf.is_writable &= leaf.is_shared;
        }
    }

    /// The frame of the table of a level for a page.
    pub fn table(&self, level: u8, page: u64) -> Option<u64> {
        self.tables.get(&(level, page & !(pages_of(level + 1) - 1))).copied()
    }

    /// Puts a table into a frame.
    pub fn set_table(&mut self, level: u8, page: u64, frame: u64) {
        self.tables.insert((level, page & !(pages_of(level + 1) - 1)), frame);
    }

    /// Takes a table out; returns its frame.
    pub fn clear_table(&mut self, level: u8, page: u64) -> Option<u64> {
        self.tables.remove(&(level, page & !(pages_of(level + 1) - 1)))
    }

    /// Frames of all tables.
    pub fn table_frames(&self) -> impl Iterator<Item = u64> + '_ {
        self.tables.values().copied()
    }

    /// Physical address of the entry of a level for a page; `None` if there is no such table.
    pub fn entry(&self, level: u8, page: u64) -> Option<u64> {
        let index = page / pages_of(level) % 512;
        Some((self.table(level, page)? << 12) + index * 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_and_entries_are_where_the_hardware_has_them() {
        let mut tables = PageTables::default();
        let leaf = Leaf::own;
        tables.set(5, 1, leaf(100));
        tables.set(512 + 7, 2, leaf(1024));
        assert_eq!(tables.leaf(5), Some((leaf(100), 1)));
        assert_eq!(tables.leaf(1023), Some((leaf(1024), 2)));
        assert_eq!(tables.leaf(1024), None);
        tables.set_table(1, 5, 50);
        tables.set_table(2, 0, 51);
        assert_eq!(tables.entry(1, 5), Some((50 << 12) + 5 * 8));
        // Entry 1 of the table of level 2 covers pages 512 to 1023.
        assert_eq!(tables.entry(2, 600), Some((51 << 12) + 8));
        assert_eq!(tables.entry(1, 512), None);
        assert_eq!(tables.leaves_in(5..600).len(), 2);
        assert_eq!(tables.leaves_in(6..512).len(), 0);
    }
}

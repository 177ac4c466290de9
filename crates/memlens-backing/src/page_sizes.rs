//! Whether single pages of running processes lie in huge ones.

use std::collections::HashMap;
use std::fs::File;

use crate::{PAGE_BYTES, scan};

/// Reads page sizes of running processes. A system call a page; needs no other right than to trace the process.
#[derive(Debug, Default)]
pub struct PageSizeReader {
    /// Page maps, by process; None: there is none, or it has ended.
    maps: HashMap<u32, Option<File>>,
}

impl PageSizeReader {
    /// A reader, if this kernel tells page sizes (Linux 6.7): tried with a page of this process.
    pub fn new() -> Option<Self> {
        let own = Box::new(1_u8);
        let mut reader = Self::default();
        reader.is_huge(std::process::id(), (&raw const *own).addr() as u64 / PAGE_BYTES)?;
        Some(reader)
    }

    /// Whether a page (address ÷ [`PAGE_BYTES`]) of a process lies in a huge page now, transparent and mapped as a whole
    /// or hugetlb; None: it is not in memory, or the process is gone.
    pub fn is_huge(&mut self, pid: u32, page: u64) -> Option<bool> {
        let map = self.maps.entry(pid).or_insert_with(|| File::open(format!("/proc/{pid}/pagemap")).ok());
        let start = page.checked_mul(PAGE_BYTES)?;
        let mut categories = None;
        scan::scan(map.as_ref()?, start, start.checked_add(PAGE_BYTES)?, |region| {
            categories = Some(region.categories);
        })?;
        categories.filter(|found| found & scan::PRESENT != 0).map(|found| found & scan::HUGE != 0)
    }

    /// The process has ended or executes another program: its page map is another one.
    pub fn forget(&mut self, pid: u32) {
        self.maps.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memmap2::{Advice, MmapMut};

    /// Pages are small where the program asks for that, and those that are not touched are unknown.
    #[test]
    fn own_pages_have_sizes_once_they_are_written() {
        // Before Linux 6.7 there is none.
        let Some(mut reader) = PageSizeReader::new() else { return };
        let mut map = MmapMut::map_anon(4 << 20).expect("mapped");
        if map.advise(Advice::NoHugePage).is_err() {
            return;
        }
        let first = map.as_ptr().addr() as u64 / PAGE_BYTES;
        let pid = std::process::id();
        assert_eq!(reader.is_huge(pid, first), None, "not touched");
        map[0] = 1;
        assert_eq!(reader.is_huge(pid, first), Some(false));
        assert_eq!(reader.is_huge(pid, first + 1), None);
        drop(map);
        assert_eq!(reader.is_huge(pid, 1), None, "nothing is mapped there");
    }
}

//! What a process has mapped where, and with what behind it.

use std::collections::BTreeMap;
use std::ops::Range;

/// What is behind a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Memory of its own.
    Anonymous,
    /// A file's contents, from this page of it on. Shared anonymous memory is a file without a name.
    File {
        /// The caller's number for the file.
        file: u64,
        /// Page of the file behind the first page.
        page: u64,
        /// Whether writes go to the file's pages; otherwise a written page is copied.
        is_shared: bool,
    },
}

/// What the program said of transparent huge pages for a mapping, by `madvise`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThpAdvice {
    /// Nothing.
    #[default]
    None,
    /// It wants them.
    Huge,
    /// It does not.
    Small,
}

/// A mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// What is behind it.
    pub backing: Backing,
    /// Level of its leaf entries: 1, or 2 and 3 for `MAP_HUGETLB`.
    pub level: u8,
    /// What the program said of transparent huge pages.
    pub thp: ThpAdvice,
}

impl Mapping {
    /// Whether it has memory of its own.
    pub fn is_anonymous(&self) -> bool {
        self.backing == Backing::Anonymous
    }
}

impl Default for Mapping {
    /// Small anonymous pages: what is assumed of memory of which no mapping was seen.
    fn default() -> Self {
        Self { backing: Backing::Anonymous, level: 1, thp: ThpAdvice::None }
    }
}

/// A process's mappings, by page.
#[derive(Clone, Debug, Default)]
pub struct Mappings {
    /// By first page: end and mapping.
    ranges: BTreeMap<u64, (u64, Mapping)>,
}

impl Mappings {
    /// The mapping of a page and the pages it covers.
    pub fn at(&self, page: u64) -> Option<(Range<u64>, Mapping)> {
        let (&start, &(end, mapping)) = self.ranges.range(..=page).next_back()?;
        (page < end).then_some((start..end, mapping))
    }

    /// Maps pages, over whatever was there.
    pub fn insert(&mut self, pages: Range<u64>, mapping: Mapping) {
        if pages.is_empty() {
            return;
        }
        self.remove(pages.clone());
        // Neighbouring memory of one kind is one mapping, as for the kernel.
        let before = self.ranges.range(..pages.start).next_back().map(|(&start, &before)| (start, before));
        let joined = before.filter(|(_, (end, other))| {
            *end == pages.start && *other == mapping && mapping.backing == Backing::Anonymous
        });
        let start = joined.map_or(pages.start, |(start, _)| start);
        self.ranges.insert(start, (pages.end, mapping));
    }

    /// Changes what was said of transparent huge pages for what is mapped in a range.
    pub fn advise(&mut self, pages: Range<u64>, thp: ThpAdvice) {
        for (piece, mapping) in self.remove(pages) {
            self.insert(piece, Mapping { thp, ..mapping });
        }
    }

    /// Unmaps pages; returns what was there, in pieces.
    pub fn remove(&mut self, pages: Range<u64>) -> Vec<(Range<u64>, Mapping)> {
        let mut removed = Vec::new();
        if pages.is_empty() {
            return removed;
        }
        let first = self.at(pages.start).map_or(pages.start, |(range, _)| range.start);
        let inside: Vec<u64> = self.ranges.range(first..pages.end).map(|(&start, _)| start).collect();
        for start in inside {
            let Some((end, mapping)) = self.ranges.remove(&start) else { continue };
            if start < pages.start {
                self.ranges.insert(start, (pages.start, mapping));
            }
            if end > pages.end {
                self.ranges.insert(pages.end, (end, advanced(mapping, pages.end - start)));
            }
            let from = start.max(pages.start);
            removed.push((from..end.min(pages.end), advanced(mapping, from - start)));
        }
        removed
    }
}

/// A mapping's part from `pages` pages on.
fn advanced(mapping: Mapping, pages: u64) -> Mapping {
    let backing = match mapping.backing {
        Backing::File { file, page, is_shared } => Backing::File { file, page: page + pages, is_shared },
        Backing::Anonymous => Backing::Anonymous,
    };
    Mapping { backing, ..mapping }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_file_stay_at_their_pages() {
        let file = |page| Mapping {
            backing: Backing::File { file: 7, page, is_shared: true },
            ..Mapping::default()
        };
        let mut mappings = Mappings::default();
        mappings.insert(10..20, file(100));
        mappings.insert(13..14, Mapping::default());
        mappings.insert(14..15, Mapping::default());
        assert_eq!(mappings.at(12), Some((10..13, file(100))));
        assert_eq!(mappings.at(14), Some((13..15, Mapping::default())));
        assert_eq!(mappings.at(15), Some((15..20, file(105))));
        assert_eq!(
            mappings.remove(11..17),
            vec![(11..13, file(101)), (13..15, Mapping::default()), (15..17, file(105)),]
        );
        assert_eq!((mappings.at(16), mappings.at(17)), (None, Some((17..20, file(107)))));
    }
}

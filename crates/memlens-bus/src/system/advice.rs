//! What `madvise` asks the modelled kernel for.

use super::memory::{Backing, ThpAdvice};
use super::page_tables::{Leaf, pages_of};
use super::system::System;
use crate::format::{PageEvent, PageRecord};
use std::io::Write;
use std::ops::Range;

/// What a program says of its memory: the advice that changes what the model has (`madvise(2)`).
///
/// `MADV_FREE` is among those without effect: the kernel takes the pages only when memory is short, which the
/// modelled one never is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// `MADV_DONTNEED`, `MADV_DONTNEED_LOCKED`: the pages go, the mapping stays.
    DontNeed,
    /// `MADV_HUGEPAGE`: transparent huge pages are wanted.
    HugePage,
    /// `MADV_NOHUGEPAGE`: they are not.
    NoHugePage,
    /// `MADV_COLLAPSE`: pages that are there become huge ones now, whatever the setting says.
    Collapse,
    /// `MADV_POPULATE_READ`: pages get their frames now, as if they were read …
    PopulateRead,
    /// … `MADV_POPULATE_WRITE`: as if they were written.
    PopulateWrite,
}

impl Advice {
    /// The advice with Linux's number (x86-64); `None`: it changes nothing here.
    pub fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            4 | 24 => Self::DontNeed,
            14 => Self::HugePage,
            15 => Self::NoHugePage,
            22 => Self::PopulateRead,
            23 => Self::PopulateWrite,
            25 => Self::Collapse,
            _ => return None,
        })
    }
}

impl<W: Write> System<W> {
    /// A process advised the kernel of its memory, by byte addresses; ends are taken to whole pages.
    pub fn advise(&mut self, pid: u32, range: Range<u64>, advice: Advice) {
        let pages = range.start >> 12..range.end.div_ceil(4096);
        self.run_batch();
        match advice {
            Advice::HugePage => self.process(pid).mappings.advise(pages, ThpAdvice::Huge),
            Advice::NoHugePage => self.process(pid).mappings.advise(pages, ThpAdvice::Small),
            Advice::DontNeed => {
                let mut group = Vec::new();
                self.clear_leaves(pid, pages, &mut group, true);
                self.tell_pages(group);
            }
            Advice::PopulateRead => self.populate(pid, pages, false),
            Advice::PopulateWrite => self.populate(pid, pages, true),
            Advice::Collapse => {
                let whole = pages.start.next_multiple_of(pages_of(2))..pages.end;
                for first in whole.step_by(pages_of(2) as usize) {
                    if first + pages_of(2) <= pages.end {
                        self.collapse(pid, first);
                    }
                }
            }
        }
    }

    /// Touches all mapped pages of a range.
    fn populate(&mut self, pid: u32, pages: Range<u64>, write: bool) {
        let mut page = pages.start;
        while page < pages.end {
            let Some(process) = self.processes.get(&pid) else { return };
            if process.mappings.at(page).is_none() {
                page += 1;
                continue;
            }
            let leaf = process.tables.leaf(page).filter(|(leaf, _)| leaf.is_writable || !write);
            let Some((_, level)) = leaf.or_else(|| self.fault(pid, page, write)) else {
                self.counts.out_of_memory += 1;
                return;
            };
            page = (page & !(pages_of(level) - 1)) + pages_of(level);
        }
    }

    /// The small pages of an anonymous mapping's 2 MiB become a huge one, with their table's frame given back.
    /// `None`: nothing of it is there, it is huge already, or it cannot be.
    fn collapse(&mut self, pid: u32, first: u64) -> Option<()> {
        let pages = first..first + pages_of(2);
        let process = self.processes.get(&pid)?;
        let (range, mapping) = process.mappings.at(first)?;
        let may_be_huge =
            mapping.backing == Backing::Anonymous && mapping.level == 1 && mapping.thp != ThpAdvice::Small;
        process.tables.table(1, first)?;
        if !may_be_huge || range.end < pages.end || process.tables.leaves_in(pages.clone()).is_empty() {
            return None;
        }
        let frame = self.allocate(9)?;
        let mut group = Vec::new();
        self.clear_leaves(pid, pages, &mut group, true);
        let table = self.processes.get_mut(&pid)?.tables.clear_table(1, first)?;
        group.push(PageRecord::new(PageEvent::TableFreed, 1, pid, table, first, 0));
        self.release_table(table);
        let result = self.set_leaf(pid, first, 2, Leaf::own(frame), &mut group);
        self.invalidate(pid, first, 2);
        self.counts.collapses += 1;
        self.tell_pages(group);
        result
    }
}

//! What the modelled kernel does with page tables: faults, copies on write, splits, who owns a frame.

use super::memory::{Backing, Mapping};
use super::page_tables::{Leaf, pages_of};
use super::system::{ROOT, System, page_size};
use crate::format::{FrameUse, HugeKind, PageEvent, PageRecord};
use std::io::Write;

/// What is read of a file at once: 128 KiB (Linux, `VM_READAHEAD_PAGES` in include/linux/mm.h). A page that a program changes is a copy,
/// and copies made one after the other lie side by side, not each behind the page that it was copied from.
const READ_AHEAD_PAGES: u64 = 32;

impl<W: Write> System<W> {
    /// Page-table events happen, behind everything so far.
    pub(super) fn tell_pages(&mut self, mut group: Vec<PageRecord>) {
        if group.is_empty() {
            return;
        }
        self.generation += 1;
        self.counts.page_events += 1;
        let cycles = self.cycles(self.time + self.stalls);
        let result = self.card.pages(&mut group, cycles);
        self.keep(result);
    }

    /// Gives a page its frame, or the right to be written.
    pub(super) fn fault(&mut self, pid: u32, page: u64, write: bool) -> Option<(Leaf, u8)> {
        self.run_batch();
        let mut group = Vec::new();
        self.process(pid);
        let found = self.processes.get(&pid)?.tables.leaf(page);
        let result = match found {
            // Present and not writable: shared with another process, or a file's page.
            Some((leaf, level)) => self.copy_on_write(pid, page, leaf, level, &mut group),
            None => self.first_touch(pid, page, write, &mut group),
        };
        self.tell_pages(group);
        result
    }

    fn first_touch(
        &mut self,
        pid: u32,
        page: u64,
        write: bool,
        group: &mut Vec<PageRecord>,
    ) -> Option<(Leaf, u8)> {
        let process = self.processes.get(&pid)?;
        let (range, mapping) = process.mappings.at(page).unwrap_or((page..page + 1, Mapping::default()));
        let leaf = match mapping.backing {
            Backing::Anonymous => {
                // A large page must lie in the mapping as a whole, where there is no smaller one.
                let fits = |level: u8| {
                    let first = page & !(pages_of(level) - 1);
                    level == 1
                        || range.start <= first
                            && first + pages_of(level) <= range.end
                            && process.tables.table(level - 1, page).is_none()
                };
                let is_hugetlb = mapping.level > 1;
                let (level, is_reserved) = match mapping.level {
                    1 if self.options.page_level > 1 && fits(self.options.page_level) => {
                        (self.options.page_level, true)
                    }
                    1 if self.options.thp.allows(mapping.thp) => (2, false),
                    level => (level, is_hugetlb),
                };
                let level = if fits(level) { level } else { 1 };
                // The kernel's own sizes count there, as far as they fit what the program asked for.
                let real = self.real.as_mut().and_then(|real| match mapping.level {
                    3 if fits(3) => real.take(pid, page, false, &[3, 1]),
                    _ if fits(2) => real.take(pid, page, false, &[2, 1]),
                    _ => real.take(pid, page, false, &[1]),
                });
                let (frame, level, is_reserved) = match real {
                    // Its pages are from the pool where the program asked for that.
                    Some((frame, level)) => (frame, level, is_hugetlb),
                    None => {
                        let least = if is_hugetlb { level } else { 1 };
                        let (frame, level) = self.frame_of_level(level, least)?;
                        (frame, level, is_reserved)
                    }
                };
                self.counts.faults[usize::from(level) - 1] += 1;
                let leaf = Leaf { is_reserved, ..Leaf::own(frame) };
                self.set_leaf(pid, page, level, leaf, group)?;
                return Some((leaf, level));
            }
            Backing::File { file, page: first, is_shared } => {
                let number = first + (page - range.start);
                let frame = match self.files.get(&(file, number)) {
                    Some(&frame) => frame,
                    // A file is read ahead; what is shared without one gets its pages one by one.
                    None if !is_shared && self.real.is_none() => {
                        let last = first + (range.end - range.start);
                        let ahead = number & !(READ_AHEAD_PAGES - 1);
                        for number in ahead.max(first)..(ahead + READ_AHEAD_PAGES).min(last) {
                            if !self.files.contains_key(&(file, number)) {
                                let frame = self.small_frame(pid, page, true)?;
                                self.files.insert((file, number), frame);
                            }
                        }
                        *self.files.get(&(file, number))?
                    }
                    None => {
                        let frame = self.small_frame(pid, page, true)?;
                        self.files.insert((file, number), frame);
                        frame
                    }
                };
                // What was only read ahead is nobody's yet: lines of its frame that are written back are those of whoever had it.
                if !self.users.contains_key(&frame) {
                    let usage = FrameUse::PageCache as u8;
                    group.push(PageRecord::new(PageEvent::Use, usage, 0, frame, 1, 0));
                }
                // The page cache is a user, too.
                *self.users.entry(frame).or_insert(1) += 1;
                Leaf { is_writable: is_shared, is_shared, ..Leaf::own(frame) }
            }
        };
        self.counts.faults[0] += 1;
        if write && !leaf.is_writable {
            // Never mapped itself: the copy is.
            self.drop_user(leaf.frame, 0);
            let copy = Leaf::own(self.small_frame(pid, page, false)?);
            self.counts.copies += 1;
            self.set_leaf(pid, page, 1, copy, group)?;
            return Some((copy, 1));
        }
        self.set_leaf(pid, page, 1, leaf, group)?;
        Some((leaf, 1))
    }

    /// The frame of a small page, the running machine's if it can be had. `is_file`: not the process's own memory.
    fn small_frame(&mut self, pid: u32, page: u64, is_file: bool) -> Option<u64> {
        let real = self.real.as_mut().and_then(|real| real.take(pid, page, is_file, &[1]));
        real.map(|(frame, _)| frame).or_else(|| self.allocate(0))
    }

    /// Frames for a leaf; a transparent large page falls back to small ones, `MAP_HUGETLB` does not.
    fn frame_of_level(&mut self, level: u8, least: u8) -> Option<(u64, u8)> {
        (least..=level).rev().find_map(|level| {
            let order = 9 * (usize::from(level) - 1);
            self.allocate(order).map(|frame| (frame, level))
        })
    }

    fn copy_on_write(
        &mut self,
        pid: u32,
        page: u64,
        leaf: Leaf,
        level: u8,
        group: &mut Vec<PageRecord>,
    ) -> Option<(Leaf, u8)> {
        let is_shared = self.users.get(&leaf.frame).is_some_and(|&users| users > 1);
        if !is_shared {
            let leaf = Leaf { is_writable: true, ..leaf };
            self.processes.get_mut(&pid)?.tables.set(page, level, leaf);
            self.generation += 1;
            return Some((leaf, level));
        }
        let copy = Leaf::own(self.small_frame(pid, page, false)?);
        self.counts.copies += 1;
        self.unown(leaf.frame, 1, pid, page);
        self.drop_user(leaf.frame, 0);
        self.invalidate(pid, page, 1);
        self.set_leaf(pid, page, 1, copy, group)?;
        Some((copy, 1))
    }

    /// Replaces a large leaf by leaves of the next smaller size, of the same frames. Large pages have one user:
    /// a fork splits them.
    pub(super) fn split(
        &mut self,
        pid: u32,
        first: u64,
        level: u8,
        leaf: Leaf,
        group: &mut Vec<PageRecord>,
    ) -> Option<()> {
        self.processes.get_mut(&pid)?.tables.clear(first, level);
        self.invalidate(pid, first, level);
        group.push(PageRecord::new(PageEvent::Unmap, level, pid, leaf.frame, first, 0));
        self.unown(leaf.frame, pages_of(level), pid, first);
        let each = pages_of(level - 1);
        for part in 0..512 {
            let frame = leaf.frame + part * each;
            self.set_leaf(pid, first + part * each, level - 1, Leaf { frame, ..leaf }, group)?;
        }
        Some(())
    }

    /// Enters a leaf, with the tables that lead to it.
    pub(super) fn set_leaf(
        &mut self,
        pid: u32,
        page: u64,
        level: u8,
        leaf: Leaf,
        group: &mut Vec<PageRecord>,
    ) -> Option<()> {
        for table_level in (level..=ROOT).rev() {
            if self.processes.get(&pid)?.tables.table(table_level, page).is_some() {
                continue;
            }
            let is_uncached = self.options.ptat && table_level < ROOT;
            let frame = if is_uncached { self.uncached.allocate(0)? } else { self.allocate(0)? };
            // Whose data the frame had does not matter any more.
            self.owner_pid[frame as usize] = 0;
            let first = page & !(pages_of(table_level + 1) - 1);
            self.processes.get_mut(&pid)?.tables.set_table(table_level, page, frame);
            group.push(PageRecord::new(PageEvent::Table, table_level, pid, frame, first, 0));
        }
        let process = self.processes.get_mut(&pid)?;
        process.tables.set(page, level, leaf);
        let first = page & !(pages_of(level) - 1);
        let entry = process.tables.entry(level, page)?;
        let huge = (level > 1).then_some(match leaf.is_reserved {
            true => HugeKind::Hugetlb,
            false => HugeKind::Transparent,
        });
        group.push(PageRecord {
            huge,
            ..PageRecord::new(PageEvent::Map, level, pid, leaf.frame, first, entry)
        });
        self.own(leaf.frame, pages_of(level), pid, first);
        Some(())
    }

    pub(super) fn invalidate(&mut self, pid: u32, page: u64, level: u8) {
        self.generation += 1;
        if let Some(process) = self.processes.get(&pid) {
            self.translator.invalidate(process.space, page << 12, page_size(level));
        }
    }

    pub(super) fn own(&mut self, frame: u64, pages: u64, pid: u32, page: u64) {
        for at in 0..pages {
            let index = (frame + at) as usize;
            if self.is_mapped[index] {
                self.sharers.entry(frame + at).or_default().push((pid, page + at));
            } else {
                self.is_mapped[index] = true;
                (self.owner_pid[index], self.owner_page[index]) = (pid, page + at);
            }
        }
    }

    pub(super) fn unown(&mut self, frame: u64, pages: u64, pid: u32, page: u64) {
        for at in 0..pages {
            let index = (frame + at) as usize;
            let sharers = self.sharers.get_mut(&(frame + at));
            if (self.owner_pid[index], self.owner_page[index]) != (pid, page + at) {
                if let Some(sharers) = sharers {
                    sharers.retain(|sharer| *sharer != (pid, page + at));
                }
                continue;
            }
            match sharers.filter(|sharers| !sharers.is_empty()).map(|sharers| sharers.remove(0)) {
                Some((pid, page)) => (self.owner_pid[index], self.owner_page[index]) = (pid, page),
                None => {
                    self.sharers.remove(&(frame + at));
                    self.is_mapped[index] = false;
                }
            }
        }
    }

    /// Frames of the core's own memory node, or of the nearest that has some.
    pub(super) fn allocate(&mut self, order: usize) -> Option<u64> {
        self.frames.allocate(order, self.core)
    }

    /// Gives a page table's frame back.
    pub(super) fn release_table(&mut self, frame: u64) {
        match self.uncached_lines.contains(&((frame << 12) >> self.line_shift)) {
            true => self.uncached.release(frame, 0),
            false => self.frames.release(frame, 0),
        }
    }

    /// A user of a frame of 2^order frames less; the last one gives it back.
    pub(super) fn drop_user(&mut self, frame: u64, order: usize) {
        match self.users.get_mut(&frame) {
            Some(users) if *users > 1 => *users -= 1,
            _ => {
                self.users.remove(&frame);
                let frames = frame..frame + (1 << order);
                if !self.real.as_mut().is_some_and(|real| real.release(frames)) {
                    self.frames.release(frame, order);
                }
            }
        }
    }
}

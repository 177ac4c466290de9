//! What the modelled kernel does for processes: mappings that come, go and move, forks, ends.

use super::memory::{Backing, Mapping};
use super::page_tables::{Leaf, pages_of};
use super::system::{ProcessMemory, System, fork_events, unborn_pid};
use crate::format::{ObjectEvent, PageEvent, PageRecord};
use std::io::Write;
use std::ops::Range;

impl<W: Write> System<W> {
    /// The process, which begins if it is not there.
    pub(super) fn process(&mut self, pid: u32) -> &mut ProcessMemory {
        let next_space = &mut self.next_space;
        self.processes.entry(pid).or_insert_with(|| {
            *next_space += 1;
            ProcessMemory { space: *next_space, ..ProcessMemory::default() }
        })
    }

    /// Memory was mapped, by byte addresses; ends are taken to whole pages.
    pub fn map(&mut self, pid: u32, range: Range<u64>, mapping: Mapping) {
        self.unmap(pid, range.clone());
        let pages = range.start >> 12..range.end.div_ceil(4096);
        self.process(pid).mappings.insert(pages, mapping);
    }

    /// Memory that has not been seen as mapped before turns out to be: what was touched stays.
    pub fn found(&mut self, pid: u32, range: Range<u64>, mapping: Mapping) {
        let pages = range.start >> 12..range.end.div_ceil(4096);
        self.process(pid).mappings.insert(pages, mapping);
    }

    /// Whether anything is known to be mapped at an address.
    pub fn knows(&self, pid: u32, addr: u64) -> bool {
        self.processes.get(&pid).is_some_and(|process| process.mappings.at(addr >> 12).is_some())
    }

    /// Memory was unmapped.
    pub fn unmap(&mut self, pid: u32, range: Range<u64>) {
        let pages = range.start >> 12..range.end.div_ceil(4096);
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.mappings.remove(pages.clone());
        self.run_batch();
        let mut group = Vec::new();
        self.clear_leaves(pid, pages, &mut group, true);
        self.tell_pages(group);
    }

    /// Takes all leaves out of a range; those that reach beyond it are split first.
    pub(super) fn clear_leaves(
        &mut self,
        pid: u32,
        pages: Range<u64>,
        group: &mut Vec<PageRecord>,
        gives_back: bool,
    ) -> Vec<(u64, u8, Leaf)> {
        let mut cleared = Vec::new();
        let leaves = |system: &Self| {
            let process = system.processes.get(&pid);
            process.map_or_else(Vec::new, |process| process.tables.leaves_in(pages.clone()))
        };
        // A gigabyte that is cut becomes 2-MiB pages, of which one may be cut again.
        for _ in 0..2 {
            for (first, level, leaf) in leaves(self) {
                let is_cut = first < pages.start || first + pages_of(level) > pages.end;
                if is_cut && self.split(pid, first, level, leaf, group).is_none() {
                    self.counts.out_of_memory += 1;
                }
            }
        }
        for (first, level, leaf) in leaves(self) {
            if let Some(process) = self.processes.get_mut(&pid) {
                process.tables.clear(first, level);
            }
            group.push(PageRecord::new(PageEvent::Unmap, level, pid, leaf.frame, first, 0));
            self.invalidate(pid, first, level);
            self.unown(leaf.frame, pages_of(level), pid, first);
            if gives_back {
                self.drop_user(leaf.frame, 9 * (usize::from(level) - 1));
            }
            cleared.push((first, level, leaf));
        }
        cleared
    }

    /// Memory was moved (`mremap`): pages keep their frames.
    pub fn remap(&mut self, pid: u32, old: Range<u64>, new: Range<u64>) {
        self.run_batch();
        let (from, to) = (old.start >> 12..old.end.div_ceil(4096), new.start >> 12..new.end.div_ceil(4096));
        let mut group = Vec::new();
        let pieces = self.process(pid).mappings.remove(from.clone());
        let mut moved = self.clear_leaves(pid, from.clone(), &mut group, false);
        self.clear_leaves(pid, to.clone(), &mut group, true);
        let mut last = Mapping::default();
        let process = self.process(pid);
        process.mappings.remove(to.clone());
        for (piece, mapping) in pieces {
            let place = piece.start - from.start + to.start..piece.end - from.start + to.start;
            last = mapping;
            process.mappings.insert(place.start..place.end.min(to.end), mapping);
        }
        // What is new behind the old end is like what was there.
        let old_end = to.start + (from.end - from.start);
        if old_end < to.end {
            let behind = match last.backing {
                Backing::Anonymous => last,
                Backing::File { .. } => {
                    process.mappings.at(old_end - 1).map_or(last, |(range, mapping)| Mapping {
                        backing: match mapping.backing {
                            Backing::File { file, page, is_shared } => {
                                Backing::File { file, page: page + (old_end - range.start), is_shared }
                            }
                            Backing::Anonymous => Backing::Anonymous,
                        },
                        ..mapping
                    })
                }
            };
            process.mappings.insert(old_end..to.end, behind);
        }
        // A large page whose new place is not aligned becomes small ones.
        let mut at = 0;
        while at < moved.len() {
            let (first, level, leaf) = moved[at];
            let place = first - from.start + to.start;
            if level > 1 && place % pages_of(level) != 0 {
                let each = pages_of(level - 1);
                moved.remove(at);
                for part in (0..512).rev() {
                    let leaf = Leaf { frame: leaf.frame + part * each, ..leaf };
                    moved.insert(at, (first + part * each, level - 1, leaf));
                }
                continue;
            }
            at += 1;
        }
        for (first, level, leaf) in moved {
            let place = first - from.start + to.start;
            if place + pages_of(level) > to.end {
                self.drop_user(leaf.frame, 9 * (usize::from(level) - 1));
            } else if self.set_leaf(pid, place, level, leaf, &mut group).is_none() {
                self.counts.out_of_memory += 1;
            }
        }
        self.tell_pages(group);
    }

    /// A process is about to fork: its memory is copied now, for a child named later.
    pub fn prepare_fork(&mut self, parent: u32, token: u64) {
        self.run_batch();
        self.process(parent);
        let mut group = Vec::new();
        for _ in 0..2 {
            let leaves =
                self.processes.get(&parent).map_or_else(Vec::new, |p| p.tables.leaves_in(0..1 << 52));
            for (first, level, leaf) in leaves.into_iter().filter(|(_, level, _)| *level > 1) {
                if self.split(parent, first, level, leaf, &mut group).is_none() {
                    self.counts.out_of_memory += 1;
                }
            }
        }
        self.tell_pages(group);
        let process = self.process(parent);
        process.tables.protect_private();
        let child = process.clone();
        for (_, _, leaf) in child.tables.leaves_in(0..1 << 52) {
            *self.users.entry(leaf.frame).or_insert(1) += 1;
        }
        self.generation += 1;
        self.unborn.insert((parent, token), child);
        let child = unborn_pid(token);
        self.tell_objects(&[ObjectEvent::Fork { parent, child }]);
    }

    /// The forked process begins.
    pub fn fork(&mut self, parent: u32, token: u64, child: u32) {
        let Some(memory) = self.unborn.remove(&(parent, token)) else { return };
        self.run_batch();
        let leaves = memory.tables.leaves_in(0..1 << 52);
        let process = self.process(child);
        process.mappings = memory.mappings;
        let mut group = Vec::new();
        for (page, level, leaf) in leaves {
            if self.set_leaf(child, page, level, leaf, &mut group).is_none() {
                self.counts.out_of_memory += 1;
            }
        }
        self.tell_objects(&fork_events(token, Some(child)));
        self.tell_pages(group);
    }

    /// The fork failed, or the child is not watched.
    pub fn cancel_fork(&mut self, parent: u32, token: u64) {
        let Some(memory) = self.unborn.remove(&(parent, token)) else { return };
        for (_, level, leaf) in memory.tables.leaves_in(0..1 << 52) {
            self.drop_user(leaf.frame, 9 * (usize::from(level) - 1));
        }
        self.tell_objects(&fork_events(token, None));
    }

    /// The process ended, or executes another program: all its memory goes.
    pub fn end_process(&mut self, pid: u32) {
        self.run_batch();
        if let Some(real) = &mut self.real {
            real.forget(pid);
        }
        let Some(process) = self.processes.remove(&pid) else { return };
        for (first, level, leaf) in process.tables.leaves_in(0..1 << 52) {
            self.unown(leaf.frame, pages_of(level), pid, first);
            self.drop_user(leaf.frame, 9 * (usize::from(level) - 1));
        }
        for frame in process.tables.table_frames() {
            self.release_table(frame);
        }
        self.tell_pages(vec![PageRecord::new(PageEvent::ProcessEnd, 0, pid, 0, 0, 0)]);
        self.tell_objects(&[ObjectEvent::Exit { pid }]);
    }
}

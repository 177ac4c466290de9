//! From physical frames to the virtual pages that map them, and to the page tables in them (O4).

use crate::format::{FrameUse, PageEvent, PageRecord};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

const NONE: u32 = u32::MAX;
/// Lines of entries in a table of 4,096 bytes, for lines of 64 bytes; tables of other line sizes use fewer.
pub const TABLE_LINES: usize = 512;
/// Frames are kept in chunks of so many; memory is used for chunks in which something is mapped.
const CHUNK_FRAMES: u64 = 1 << 12;
/// A table of more chunks is large: 4 MiB, for frames of 512 MiB.
const LARGE_CHUNKS: usize = 32;
/// Chunk numbers from here on are kept in a map instead of an array: beyond 1 TiB.
const DENSE_CHUNKS: u64 = 1 << 16;

/// A mapping of consecutive frames.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(into = "(u32, u64, u64, u32, u32)", from = "(u32, u64, u64, u32, u32)")]
struct Mapping {
    pid: u32,
    page: u64,
    frame: u64,
    /// The next mapping of the same frames.
    next: u32,
    /// Frames whose lists it is in.
    frames: u32,
}

/// What is known of a frame. Process and page of its first mapping are kept here, too: nearly all records are of frames
/// that one page maps, and for those nothing else is read.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(into = "(u32, u32, u32, u32, u64, bool, bool)", from = "(u32, u32, u32, u32, u64, bool, bool)")]
struct Frame {
    /// First of its mappings, or the last one that it had.
    head: u32,
    /// Its page table.
    table: u32,
    /// For the caller: what it remembers of the frame's first mapping.
    memo: u32,
    /// Process of `head`.
    pid: u32,
    /// Page of `head` that maps this frame.
    page: u64,
    /// `head` is a mapping that has ended.
    is_former: bool,
    /// `head` has had a mapping behind it: whether it has one now is to be looked up.
    may_be_shared: bool,
}

impl From<Mapping> for (u32, u64, u64, u32, u32) {
    fn from(mapping: Mapping) -> Self {
        (mapping.pid, mapping.page, mapping.frame, mapping.next, mapping.frames)
    }
}

impl From<(u32, u64, u64, u32, u32)> for Mapping {
    fn from((pid, page, frame, next, frames): (u32, u64, u64, u32, u32)) -> Self {
        Self { pid, page, frame, next, frames }
    }
}

impl From<Frame> for (u32, u32, u32, u32, u64, bool, bool) {
    fn from(frame: Frame) -> Self {
        (frame.head, frame.table, frame.memo, frame.pid, frame.page, frame.is_former, frame.may_be_shared)
    }
}

impl From<(u32, u32, u32, u32, u64, bool, bool)> for Frame {
    fn from(frame: (u32, u32, u32, u32, u64, bool, bool)) -> Self {
        let (head, table, memo, pid, page, is_former, may_be_shared) = frame;
        Self { head, table, memo, pid, page, is_former, may_be_shared }
    }
}

impl Default for Frame {
    fn default() -> Self {
        Self { head: NONE, table: NONE, memo: NONE, pid: 0, page: 0, is_former: false, may_be_shared: false }
    }
}

/// A page table.
#[derive(Debug, Serialize, Deserialize)]
pub struct Table {
    /// Process.
    pub pid: u32,
    /// 1: entries map 4-KiB pages … 4: the root.
    pub level: u8,
    /// The first page that it covers.
    pub first_page: u64,
    /// Reads of each of its lines not yet attributed; several threads count them.
    pub fresh: Box<[AtomicU32]>,
    /// All reads of each line that are attributed.
    pub reads: Box<[u32]>,
    /// An entry of it maps pages, rather than pointing to a table.
    pub has_leaves: bool,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Mapped by this page of this process, first of all that map it.
    Page {
        /// Process.
        pid: u32,
        /// Virtual page.
        page: u64,
        /// Others map it, too.
        is_shared: bool,
        /// The mapping has ended.
        is_former: bool,
        /// What [`ReverseTable::remember`] was told.
        memo: u32,
    },
    /// Holds the page table of this number.
    Table(u32),
    /// Used otherwise.
    Used(FrameUse),
    /// Never heard of.
    Unknown,
}

/// Mappings of a process: by level of the leaf, frames by first page. Levels are apart, because looking for
/// what covers a page would otherwise go through a gigabyte of small ones.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Forward {
    levels: [BTreeMap<u64, u64>; 3],
}

impl Forward {
    fn level(&mut self, level: u8) -> &mut BTreeMap<u64, u64> {
        &mut self.levels[usize::from(level.clamp(1, 3)) - 1]
    }

    /// Mappings that overlap a range of pages: first page, frame, level.
    fn overlapping(&self, pages: Range<u64>) -> impl Iterator<Item = (u64, u64, u8)> + '_ {
        (1..=3_u8).zip(&self.levels).flat_map(move |(level, mappings)| {
            let from = pages.start.saturating_sub(PageRecord::pages(level) - 1);
            mappings.range(from..pages.end.max(from)).map(move |(&page, &frame)| (page, frame, level))
        })
    }

    fn all(&self) -> impl Iterator<Item = (u64, u64, u8)> + '_ {
        self.overlapping(0..u64::MAX)
    }
}

/// The reverse page table.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ReverseTable {
    dense: Vec<Option<Box<[Frame]>>>,
    sparse: FxHashMap<u64, Box<[Frame]>>,
    /// Frames used otherwise, by first frame: end and use.
    uses: BTreeMap<u64, (u64, u8)>,
    table_frames: FxHashMap<u32, Vec<u64>>,
    mappings: Vec<Mapping>,
    free: Vec<u32>,
    tables: Vec<Table>,
    processes: FxHashMap<u32, Forward>,
    lines_per_table: usize,
    /// Unmap records for pages that nothing maps, and mappings over mappings.
    pub contradictions: u64,
}

impl ReverseTable {
    /// An empty one, for lines of this size.
    pub fn new(line_bytes: u32) -> Self {
        let lines_per_table = (4096 / line_bytes.max(8) as usize).clamp(1, TABLE_LINES);
        Self { lines_per_table, ..Self::default() }
    }

    #[inline(always)]
    fn frame(&self, frame: u64) -> Option<&Frame> {
        let chunk = match self.dense.get((frame / CHUNK_FRAMES) as usize) {
            Some(chunk) => chunk.as_deref(),
            None => self.sparse_chunk(frame / CHUNK_FRAMES),
        };
        chunk?.get((frame % CHUNK_FRAMES) as usize)
    }

    #[cold]
    fn sparse_chunk(&self, number: u64) -> Option<&[Frame]> {
        self.sparse.get(&number).map(Box::as_ref)
    }

    fn frame_mut(&mut self, frame: u64) -> &mut Frame {
        let (number, at) = (frame / CHUNK_FRAMES, (frame % CHUNK_FRAMES) as usize);
        let fresh = || vec![Frame::default(); CHUNK_FRAMES as usize].into_boxed_slice();
        if number >= DENSE_CHUNKS {
            return &mut self.sparse.entry(number).or_insert_with(fresh)[at];
        }
        let number = number as usize;
        if self.dense.len() <= number {
            self.dense.resize(number + 1, None);
        }
        &mut self.dense[number].get_or_insert_with(fresh)[at]
    }

    /// Whether what is known of frames is more than fits caches near a core, so that [`Self::fetch`] pays.
    pub fn is_large(&self) -> bool {
        self.dense.len() > LARGE_CHUNKS
    }

    /// Reads what is known of frames whose records come soon. The reads do not wait for each other, as those of the
    /// records themselves do: with a gigabyte used at random half of the time went into waiting for one at a time.
    #[inline(always)]
    pub fn fetch(&self, frames: impl Iterator<Item = u64>) {
        let read = |number| self.frame(number).map_or(0, |frame| frame.table);
        std::hint::black_box(frames.fold(0, |all, number| all ^ read(number)));
    }

    /// What a frame is used for that nothing maps.
    #[cold]
    fn usage(&self, frame: u64) -> Place {
        let before = self.uses.range(..=frame).next_back();
        let usage =
            before.filter(|(_, (end, _))| frame < *end).and_then(|(_, &(_, code))| FrameUse::from_code(code));
        usage.map_or(Place::Unknown, Place::Used)
    }

    /// What a frame is now.
    #[inline(always)]
    pub fn place(&self, number: u64) -> Place {
        let Some(frame) = self.frame(number) else { return self.usage(number) };
        if frame.table != NONE {
            return Place::Table(frame.table);
        }
        if frame.head != NONE {
            return Place::Page {
                pid: frame.pid,
                page: frame.page,
                is_shared: frame.may_be_shared && self.has_next(frame.head),
                is_former: frame.is_former,
                memo: frame.memo,
            };
        }
        self.usage(number)
    }

    fn has_next(&self, mapping: u32) -> bool {
        self.mappings.get(mapping as usize).is_some_and(|mapping| mapping.next != NONE)
    }

    /// Makes a mapping the first of a frame's.
    fn set_head(&mut self, number: u64, head: u32) {
        let owner = self.mappings.get(head as usize);
        let owner =
            owner.map(|mapping| (mapping.pid, mapping.page.wrapping_add(number.wrapping_sub(mapping.frame))));
        let frame = self.frame_mut(number);
        frame.head = head;
        (frame.pid, frame.page) = owner.unwrap_or_default();
    }

    /// All pages that map a frame.
    pub fn owners(&self, number: u64) -> impl Iterator<Item = (u32, u64)> + '_ {
        let mut at = self.frame(number).map_or(NONE, |frame| frame.head);
        std::iter::from_fn(move || {
            let mapping = self.mappings.get(at as usize)?;
            at = mapping.next;
            Some((mapping.pid, mapping.page.wrapping_add(number.wrapping_sub(mapping.frame))))
        })
    }

    /// Keeps a number for the frame until its first mapping changes or [`Self::forget`].
    pub fn remember(&mut self, frame: u64, memo: u32) {
        self.frame_mut(frame).memo = memo;
    }

    /// What is kept for the frame.
    pub fn memo(&self, frame: u64) -> u32 {
        self.frame(frame).map_or(NONE, |frame| frame.memo)
    }

    /// Forgets what was kept for the frames of these virtual addresses; tells what it was.
    pub fn forget(&mut self, pid: u32, addresses: Range<u64>, mut forgotten: impl FnMut(u32)) {
        let pages = addresses.start >> 12..addresses.end.div_ceil(4096);
        let found: Vec<(u64, u64)> = self.frames_of(pid, pages).collect();
        for (frame, count) in found {
            for number in frame..frame + count {
                let memo = std::mem::replace(&mut self.frame_mut(number).memo, NONE);
                if memo != NONE {
                    forgotten(memo);
                }
            }
        }
    }

    /// Frames (first, count) that map these pages.
    fn frames_of(&self, pid: u32, pages: Range<u64>) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.mapped(pid, pages).map(|(_, frame, count)| (frame, count))
    }

    /// Mapped pages in a range: first page, its frame, number of pages.
    pub fn mapped(&self, pid: u32, pages: Range<u64>) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let all = self.processes.get(&pid).map(|forward| forward.overlapping(pages.clone()));
        all.into_iter().flatten().filter_map(move |(page, frame, level)| {
            let end = page + PageRecord::pages(level);
            let (first, last) = (page.max(pages.start), end.min(pages.end));
            (first < last).then(|| (first, frame + (first - page), last - first))
        })
    }

    /// Leaf entries that map pages of a range: first page and level.
    pub fn leaves(&self, pid: u32, pages: Range<u64>) -> impl Iterator<Item = (u64, u8)> + '_ {
        let all = self.processes.get(&pid).map(|forward| forward.overlapping(pages.clone()));
        let found = all.into_iter().flatten().map(|(page, _, level)| (page, level));
        found.filter(move |&(page, level)| page + PageRecord::pages(level) > pages.start)
    }

    /// The level of the leaf entry that maps a page.
    pub fn leaf_level(&self, pid: u32, page: u64) -> Option<u8> {
        let forward = self.processes.get(&pid)?;
        forward.overlapping(page..page + 1).next().map(|(_, _, level)| level)
    }

    /// Page tables ever seen, by number.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// Counts a read of a table's line; returns whether it is the first since [`Self::take_fresh`].
    #[inline]
    pub fn count_read(&self, table: &Table, line: usize) -> bool {
        // Threads agree on who is the first by the count itself; it is read when all have come to their end.
        table.fresh[line % self.lines_per_table].fetch_add(1, Ordering::Relaxed) == 0
    }

    /// The reads of a line not yet attributed.
    pub fn take_fresh(&mut self, table: u32, line: usize) -> u32 {
        let line = line % self.lines_per_table;
        let Some(table) = self.tables.get_mut(table as usize) else { return 0 };
        let fresh = std::mem::take(table.fresh[line].get_mut());
        table.reads[line] = table.reads[line].saturating_add(fresh);
        fresh
    }

    /// Pages covered by the entries of a table's line.
    pub fn pages_of_line(&self, table: &Table, line: usize) -> Range<u64> {
        let entries = (512 / self.lines_per_table) as u64;
        let each = PageRecord::pages(table.level);
        let first = table.first_page + line as u64 * entries * each;
        first..first + entries * each
    }

    /// Lets an event happen.
    pub fn apply(&mut self, record: &PageRecord) {
        match record.event {
            PageEvent::Map => self.map(record),
            PageEvent::Unmap => {
                let forward = self.processes.entry(record.pid).or_default();
                match forward.level(record.level).remove(&record.page) {
                    Some(frame) => self.unlink(record.pid, record.page, frame, record.level),
                    None => self.contradictions += 1,
                }
            }
            PageEvent::Table => self.table(record.frame, record.pid, record.level, record.page),
            PageEvent::TableFreed => self.free_table(record.frame, record.pid),
            PageEvent::ProcessEnd => {
                let forward = self.processes.remove(&record.pid).unwrap_or_default();
                for (page, frame, level) in forward.all() {
                    self.unlink(record.pid, page, frame, level);
                }
                let frames = self.table_frames.remove(&record.pid).unwrap_or_default();
                frames.into_iter().for_each(|frame| self.free_table(frame, record.pid));
            }
            PageEvent::Use => {
                let end = record.frame.saturating_add(record.page);
                super::object_space::cut(&mut self.uses, &(record.frame..end));
                if end > record.frame {
                    self.uses.insert(record.frame, (end, record.level));
                }
            }
            PageEvent::DumpEnd => {}
        }
    }

    fn map(&mut self, record: &PageRecord) {
        let pages = PageRecord::pages(record.level);
        let range = record.page..record.page + pages;
        // A changed entry: what it mapped before ends.
        let forward = self.processes.get(&record.pid);
        let old: Vec<_> = forward.map_or_else(Vec::new, |forward| forward.overlapping(range).collect());
        for (page, frame, level) in old {
            self.contradictions += u64::from(level != record.level);
            self.processes.entry(record.pid).or_default().level(level).remove(&page);
            self.unlink(record.pid, page, frame, level);
        }
        let forward = self.processes.entry(record.pid).or_default();
        forward.level(record.level).insert(record.page, record.frame);
        let mut known: Option<(u32, u32)> = None;
        for number in record.frame..record.frame + pages {
            let frame = *self.frame_mut(number);
            if frame.is_former {
                self.drop_head(number);
            }
            let head = self.frame_mut(number).head;
            // The first that mapped it stays first.
            let before = self.last_of(head);
            match known {
                Some((before_last, mapping)) if before_last == before && before == NONE => {
                    self.mappings[mapping as usize].frames += 1;
                    self.set_head(number, mapping);
                }
                _ => {
                    let mapping = self.new_mapping(record.pid, record.page, record.frame);
                    known = Some((before, mapping));
                    match self.mappings.get_mut(before as usize) {
                        Some(last) if last.frames == 1 => {
                            last.next = mapping;
                            self.frame_mut(number).may_be_shared = true;
                        }
                        Some(_) => {
                            // The list is shared with other frames: this frame's own begins here.
                            self.mappings[mapping as usize].next = head;
                            self.set_head(number, mapping);
                            self.frame_mut(number).may_be_shared = true;
                        }
                        None => self.set_head(number, mapping),
                    }
                }
            }
            if self.frame_mut(number).head != frame.head {
                self.frame_mut(number).memo = NONE;
            }
        }
        if record.entry != 0 {
            let covered = PageRecord::pages(record.level + 1);
            self.table(record.entry >> 12, record.pid, record.level, record.page / covered * covered);
            let number = self.frame_mut(record.entry >> 12).table;
            if let Some(table) = self.tables.get_mut(number as usize) {
                table.has_leaves = true;
            }
        }
    }

    fn last_of(&self, mut at: u32) -> u32 {
        while let Some(mapping) = self.mappings.get(at as usize) {
            if mapping.next == NONE {
                break;
            }
            at = mapping.next;
        }
        at
    }

    fn new_mapping(&mut self, pid: u32, page: u64, frame: u64) -> u32 {
        let mapping = Mapping { pid, page, frame, next: NONE, frames: 1 };
        match self.free.pop() {
            Some(at) => {
                self.mappings[at as usize] = mapping;
                at
            }
            None => {
                self.mappings.push(mapping);
                (self.mappings.len() - 1) as u32
            }
        }
    }

    fn release(&mut self, at: u32) {
        if let Some(mapping) = self.mappings.get_mut(at as usize) {
            mapping.frames -= 1;
            if mapping.frames == 0 {
                self.free.push(at);
            }
        }
    }

    /// Ends the frame's former mapping for good.
    fn drop_head(&mut self, number: u64) {
        let frame = self.frame_mut(number);
        let head = std::mem::replace(&mut frame.head, NONE);
        (frame.is_former, frame.memo, frame.may_be_shared) = (false, NONE, false);
        self.release(head);
    }

    /// Takes a mapping out of its frames' lists. A frame's last one stays as its former owner.
    fn unlink(&mut self, pid: u32, page: u64, frame: u64, level: u8) {
        for number in frame..frame + PageRecord::pages(level) {
            let wanted = (pid, page + (number - frame));
            let mut before = NONE;
            let mut at = self.frame_mut(number).head;
            while let Some(&mapping) = self.mappings.get(at as usize) {
                let here = mapping.page.wrapping_add(number.wrapping_sub(mapping.frame));
                if (mapping.pid, here) == wanted {
                    break;
                }
                (before, at) = (at, mapping.next);
            }
            let Some(&mapping) = self.mappings.get(at as usize) else { continue };
            match (before, mapping.next) {
                (NONE, NONE) => self.frame_mut(number).is_former = true,
                (NONE, next) => {
                    self.set_head(number, next);
                    self.frame_mut(number).memo = NONE;
                    self.release(at);
                }
                (before, next) => {
                    self.mappings[before as usize].next = next;
                    self.release(at);
                }
            }
        }
    }

    fn table(&mut self, frame: u64, pid: u32, level: u8, first_page: u64) {
        let known = self.frame(frame).and_then(|frame| self.tables.get(frame.table as usize));
        let is_known =
            known.is_some_and(|table| (table.pid, table.level, table.first_page) == (pid, level, first_page));
        if is_known {
            return;
        }
        self.table_frames.entry(pid).or_default().push(frame);
        // Whose data it was does not matter any more.
        if self.frame_mut(frame).is_former {
            self.drop_head(frame);
        }
        let lines = self.lines_per_table;
        self.tables.push(Table {
            pid,
            level,
            first_page,
            fresh: (0..lines).map(|_| AtomicU32::new(0)).collect(),
            reads: vec![0; lines].into(),
            has_leaves: level == 1,
        });
        let number = (self.tables.len() - 1) as u32;
        self.frame_mut(frame).table = number;
    }

    /// The frame is no table of the process any more; it may be one of another's by now.
    fn free_table(&mut self, frame: u64, pid: u32) {
        let table = self.frame(frame).map_or(NONE, |frame| frame.table);
        if self.tables.get(table as usize).is_some_and(|table| table.pid == pid) {
            self.frame_mut(frame).table = NONE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn map(level: u8, pid: u32, frame: u64, page: u64) -> PageRecord {
        PageRecord::new(PageEvent::Map, level, pid, frame, page, 0)
    }

    fn unmap(level: u8, pid: u32, page: u64) -> PageRecord {
        PageRecord::new(PageEvent::Unmap, level, pid, 0, page, 0)
    }

    #[test]
    fn the_first_of_several_owners_answers_until_it_goes() {
        let mut table = ReverseTable::new(64);
        table.apply(&map(1, 1, 9, 100));
        table.apply(&map(1, 2, 9, 200));
        let place = |table: &ReverseTable| match table.place(9) {
            Place::Page { pid, page, is_shared, is_former, .. } => (pid, page, is_shared, is_former),
            other => panic!("{other:?}"),
        };
        assert_eq!(place(&table), (1, 100, true, false));
        table.apply(&unmap(1, 1, 100));
        assert_eq!(place(&table), (2, 200, false, false));
        table.apply(&unmap(1, 2, 200));
        assert_eq!(place(&table), (2, 200, false, true));
        table.apply(&map(1, 3, 9, 300));
        assert_eq!(place(&table), (3, 300, false, false));
    }

    #[test]
    fn an_entry_s_address_makes_its_frame_a_table() {
        let mut table = ReverseTable::new(64);
        // Entry 2 of the table in frame 7: pages 512 to 1023 are its.
        table.apply(&PageRecord::new(PageEvent::Map, 1, 1, 9, 514, 7 << 12 | 16));
        assert_eq!(table.place(7), Place::Table(0));
        let found = &table.tables()[0];
        assert_eq!((found.level, found.first_page, table.pages_of_line(found, 1)), (1, 512, 520..528));
        table.apply(&PageRecord::new(PageEvent::ProcessEnd, 0, 1, 0, 0, 0));
        assert_eq!(table.place(7), Place::Unknown);
    }

    proptest! {
        /// Small and large mappings of few frames by three processes: owners are those of a plain map.
        #[test]
        fn owners_are_those_of_the_forward_tables(
            steps in prop::collection::vec((0_u32..3, 0_u64..4, 0_u64..3, any::<bool>(), any::<bool>()), 1..120)
        ) {
            let mut table = ReverseTable::new(64);
            let mut plain: HashMap<(u32, u64), u64> = HashMap::new();
            for (pid, place, offset, large, maps) in steps {
                let (level, pages) = if large { (2, 512) } else { (1, 1) };
                let (page, frame) = (place * 512 + if large { 0 } else { offset }, (3 - place) * 512 + if large { 0 } else { offset * 7 });
                if maps {
                    // Whatever overlaps ends: a large page over small ones, or a small one under a large one.
                    if !large && plain.contains_key(&(pid, place * 512 + 400)) {
                        (0..512).for_each(|at| { plain.remove(&(pid, place * 512 + at)); });
                    }
                    if large {
                        (0..512).for_each(|at| { plain.remove(&(pid, page + at)); });
                    }
                    table.apply(&map(level, pid, frame, page));
                    (0..pages).for_each(|at| { plain.insert((pid, page + at), frame + at); });
                } else if table.leaf_level(pid, page) == Some(level) {
                    table.apply(&unmap(level, pid, page));
                    (0..pages).for_each(|at| { plain.remove(&(pid, page + at)); });
                }
                for frame in [0, 7, 14, 512, 519, 1024, 1031, 1535, 1536, 2047] {
                    let mut expected: Vec<_> =
                        plain.iter().filter(|(_, at)| **at == frame).map(|(owner, _)| *owner).collect();
                    let is_former = matches!(table.place(frame), Place::Page { is_former: true, .. });
                    if let Place::Page { pid, page, is_shared, .. } = table.place(frame) {
                        let owners: Vec<_> = table.owners(frame).collect();
                        prop_assert_eq!((owners[0], owners.len() > 1), ((pid, page), is_shared), "frame {}", frame);
                    }
                    let mut found: Vec<_> = table.owners(frame).filter(|_| !is_former).collect();
                    expected.sort_unstable();
                    found.sort_unstable();
                    prop_assert_eq!(found, expected, "frame {}", frame);
                }
            }
        }
    }
}

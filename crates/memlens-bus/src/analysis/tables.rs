//! What holds between two events: whose page each frame is, and which object lies where.

use super::object_space::ObjectSpaces;
use super::reverse_table::{Place, ReverseTable};
use crate::format::{Header, PageRecord, TagRegion};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What a line of a page is, as the reverse table remembers it: an object, or the following.
const UNKNOWN: u32 = u32::MAX;
/// The page has lines of several objects: see `Tables::mixed`.
const MIXED: u32 = u32::MAX - 1;

/// Objects that were looked up and are to be remembered; see [`Tables::learn`].
#[derive(Debug, Default)]
pub(super) struct Learned {
    /// Frames with their object, or `MIXED`.
    frames: Vec<(u64, u32)>,
    /// Lines of frames that have several.
    lines: Vec<(u64, u32)>,
}

impl Learned {
    /// Forgets what was not taken over.
    pub fn forget(&mut self) {
        self.frames.clear();
        self.lines.clear();
    }
}

/// The reverse page table and the objects, with what addresses mean.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Tables {
    pub reverse: ReverseTable,
    pub spaces: ObjectSpaces,
    /// Objects of the lines of pages that have several.
    mixed: FxHashMap<u64, Box<[u32]>>,
    pub line_shift: u32,
    pub frame_shift: u32,
    pub tag_lines: Range<u64>,
    /// Lines from here on are beyond the memory.
    pub last_line: u64,
}

impl Tables {
    /// Empty ones.
    pub fn new(header: &Header) -> Self {
        let line_shift = header.line_shift();
        let tags = header.tags.unwrap_or(TagRegion { start: 0, bytes: 0, sequence_bits: 0 });
        let to_lines = |bytes: u64| bytes >> line_shift;
        Self {
            reverse: ReverseTable::new(header.line_bytes),
            spaces: ObjectSpaces::default(),
            mixed: FxHashMap::default(),
            line_shift,
            frame_shift: 12 - line_shift.min(12),
            tag_lines: to_lines(tags.start)..to_lines(tags.start.saturating_add(tags.bytes)),
            last_line: match header.memory_bytes {
                0 => u64::MAX,
                bytes => to_lines(bytes),
            },
        }
    }

    /// The object of a line of a mapped page, `memo` being what is remembered of its frame.
    #[inline]
    pub fn object_of(&self, line: u64, pid: u32, page: u64, memo: u32, learned: &mut Learned) -> u32 {
        match memo {
            UNKNOWN => self.look_up(line, pid, page, learned),
            MIXED => {
                let lines = self.mixed.get(&(line >> self.frame_shift));
                match lines.and_then(|lines| lines.get(self.line_in_frame(line))) {
                    Some(&object) if object != UNKNOWN => object,
                    _ => self.look_up_line(line, pid, page, learned),
                }
            }
            object => object,
        }
    }

    fn line_in_frame(&self, line: u64) -> usize {
        (line & ((1 << self.frame_shift) - 1)) as usize
    }

    #[cold]
    fn look_up(&self, line: u64, pid: u32, page: u64, learned: &mut Learned) -> u32 {
        let frame = line >> self.frame_shift;
        // Mostly the frame before was the same.
        if let Some(&(known, object)) = learned.frames.last()
            && known == frame
            && object != MIXED
        {
            return object;
        }
        let (object, bounds) = self.spaces.at(pid, page << 12);
        if bounds.end >= (page + 1) << 12 {
            learned.frames.push((frame, object));
            return object;
        }
        learned.frames.push((frame, MIXED));
        self.look_up_line(line, pid, page, learned)
    }

    #[cold]
    fn look_up_line(&self, line: u64, pid: u32, page: u64, learned: &mut Learned) -> u32 {
        let start = (page << 12) + ((self.line_in_frame(line) as u64) << self.line_shift);
        let object = self.spaces.largest(pid, start..start + (1 << self.line_shift));
        learned.lines.push((line, object));
        object
    }

    /// Remembers what was looked up since the last event.
    pub fn learn(&mut self, learned: &mut Learned) {
        for (frame, object) in learned.frames.drain(..) {
            if object == MIXED && self.reverse.memo(frame) != MIXED {
                self.mixed.insert(frame, vec![UNKNOWN; 1 << self.frame_shift].into());
            }
            self.reverse.remember(frame, object);
        }
        for (line, object) in learned.lines.drain(..) {
            let at = self.line_in_frame(line);
            if let Some(place) =
                self.mixed.get_mut(&(line >> self.frame_shift)).and_then(|lines| lines.get_mut(at))
            {
                *place = object;
            }
        }
    }

    /// The pages whose entries are in a line of a page table.
    pub fn pages_of_line(&self, paddr: u64) -> Option<(u32, Range<u64>)> {
        let Place::Table(number) = self.reverse.place(paddr >> 12) else { return None };
        let table = self.reverse.tables().get(number as usize)?;
        let line = (paddr & 0xfff) as usize >> self.line_shift;
        Some((table.pid, self.reverse.pages_of_line(table, line)))
    }

    /// Objects of the mapped pages in a range, with their share: by pages.
    pub fn objects_below(&self, pid: u32, pages: Range<u64>) -> Vec<(u32, f64)> {
        let mut shares: Vec<(u32, f64)> = Vec::new();
        let mut all = 0.0;
        let mut add = |object: u32, bytes: f64| {
            all += bytes;
            match shares.iter_mut().find(|(known, _)| *known == object) {
                Some((_, sum)) => *sum += bytes,
                None => shares.push((object, bytes)),
            }
        };
        let mut run: Option<Range<u64>> = None;
        let mut flush = |run: Range<u64>| {
            self.spaces
                .pieces(pid, run.start << 12..run.end << 12, |object, bytes| add(object, bytes as f64));
        };
        for (page, _, count) in self.reverse.mapped(pid, pages) {
            match &mut run {
                Some(run) if run.end == page => run.end += count,
                _ => {
                    if let Some(done) = run.replace(page..page + count) {
                        flush(done);
                    }
                }
            }
        }
        if let Some(done) = run {
            flush(done);
        }
        shares.iter_mut().for_each(|(_, share)| *share /= all);
        shares
    }

    /// Whether a line of a table of this level, for pages from `first` on, has leaf entries.
    pub fn is_leaf(&self, pid: u32, level: u8, first: u64) -> bool {
        if level == 1 {
            return true;
        }
        let entries = 512 / (4096 >> self.line_shift).max(1) as u64;
        let each = PageRecord::pages(level);
        (0..entries).any(|at| self.reverse.leaf_level(pid, first + at * each) == Some(level))
    }
}

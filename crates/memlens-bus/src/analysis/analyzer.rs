//! Goes through a trace, keeps the tables up to date and attributes every record.

use super::backing::ObjectBacking;
use super::counts::{ObjectCounts, Points};
use super::events::Events;
use super::object_space::{NO_OBJECT, ObjectSpaces};
use super::piece::Piece;
use super::report::{Analysis, Losses};
use super::reverse_table::{Place, ReverseTable};
use super::tables::{Learned, Tables};
use super::tags::TagCounter;
use super::tally::Tally;
use crate::format::{BusBlock, FormatError, FrameUse, Header, ObjectEvent, PageEvent, PageRecord, TagRegion};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::ops::Range;

/// So many problems are kept as text.
const KEPT_PROBLEMS: usize = 5;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A line of a mapped page.
    Data,
    /// A line of a page that is not mapped any more.
    Late,
    /// A read of a page table of this level.
    Walk(u8),
    /// A write of a page table of this level.
    TableWrite(u8),
    /// A tag.
    Tag,
    /// A line of a frame that is used otherwise.
    Used(FrameUse),
    /// A line of a frame never heard of.
    Unknown,
    /// A line beyond the memory.
    OutOfRange,
}

impl RecordKind {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Late => "late",
            Self::Walk(_) => "walk",
            Self::TableWrite(_) => "table",
            Self::Tag => "tag",
            Self::Used(FrameUse::Kernel) => "kernel",
            Self::Used(FrameUse::PageCache) => "page_cache",
            Self::Used(FrameUse::Device) => "device",
            Self::Unknown => "unknown",
            Self::OutOfRange => "out_of_range",
        }
    }

    /// Of a page table its level, from 1; 0 of anything else.
    pub fn level(self) -> u8 {
        match self {
            Self::Walk(level) | Self::TableWrite(level) => level,
            _ => 0,
        }
    }
}

/// A record with everything known of it: ⟨paddr, r/w, time, pid, vaddr, object, page-walk⟩ (O6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribution {
    /// Number of the record, lost ones counted.
    pub number: u64,
    /// Clock cycles since the start of the trace.
    pub cycles: u64,
    /// Physical byte address of the line.
    pub paddr: u64,
    /// Whether it was written.
    pub write: bool,
    /// What it is.
    pub kind: RecordKind,
    /// Process; 0: not known.
    pub pid: u32,
    /// Virtual byte address of the line; of a walk, the first address that the line's entries map.
    pub vaddr: u64,
    /// Number of the object ([`ObjectSpaces::objects`]); of a walk 0, see
    /// [`Analyzer::objects_below`].
    pub object: u32,
    /// Other pages map the frame, too.
    pub is_shared: bool,
}

/// Sees every record.
pub trait Observer {
    /// A record was attributed; `analyzer` has the state that holds for it.
    ///
    /// # Errors
    /// Ends the analysis.
    fn record(&mut self, analyzer: &Analyzer, record: &Attribution) -> Result<(), FormatError>;
}

/// What a record's turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It was a tag, and its events have happened.
    Tag,
    /// More is known now: it is to be resolved again.
    Again,
    /// What maps its frame has happened: it is to be resolved without looking ahead.
    Last,
}

/// The state of an analysis.
#[derive(Serialize, Deserialize)]
pub struct Analyzer {
    /// Constants of the trace.
    pub header: Header,
    pub(super) tables: Tables,
    page_tags: TagCounter,
    object_tags: TagCounter,
    pub(super) tally: Tally,
    backing: ObjectBacking,
    /// Lines of page tables whose reads are not yet attributed, by process.
    fresh: FxHashMap<u32, Vec<(u32, u32)>>,
    points: Points,
    /// Records so far, and those of data.
    records: u64,
    data: u64,
    pub(super) losses: Losses,
    pub(super) cycles: u64,
}

impl Analyzer {
    pub(super) fn new(header: &Header) -> Self {
        let sequence_bits = header.tags.map_or(0, |tags| tags.sequence_bits);
        Self {
            tables: Tables::new(header),
            page_tags: TagCounter::new(sequence_bits),
            object_tags: TagCounter::new(sequence_bits),
            tally: Tally::new(&header.nodes),
            backing: ObjectBacking::default(),
            fresh: FxHashMap::default(),
            points: Points::default(),
            records: 0,
            data: 0,
            losses: Losses::default(),
            cycles: 0,
            header: header.clone(),
        }
    }

    /// Records of the blocks analysed so far.
    pub(super) fn records(&self) -> u64 {
        self.records
    }

    /// The reverse page table as it is now.
    pub fn reverse_table(&self) -> &ReverseTable {
        &self.tables.reverse
    }

    /// The objects as they are now.
    pub fn objects(&self) -> &ObjectSpaces {
        &self.tables.spaces
    }

    /// The pages whose entries are in a line of a page table.
    pub fn pages_of_line(&self, paddr: u64) -> Option<(u32, Range<u64>)> {
        self.tables.pages_of_line(paddr)
    }

    /// Objects of the mapped pages in a range, with their share: by pages.
    pub fn objects_below(&self, pid: u32, pages: Range<u64>) -> Vec<(u32, f64)> {
        self.tables.objects_below(pid, pages)
    }

    /// One in so many data records is a point.
    pub(super) fn points_every(&self) -> u64 {
        self.points.every
    }

    /// The records of a block come next.
    pub(super) fn begin(&mut self, block: &BusBlock) {
        self.records += block.len() as u64;
        self.losses.lost_records = self.losses.lost_records.saturating_add(block.lost());
        self.losses.gaps += block.gaps.len() as u64;
    }

    /// Gives a resolved piece its place in the trace: behind the one before.
    pub(super) fn place(&mut self, piece: &mut Piece, block: &BusBlock) {
        if piece.records.start == 0 {
            self.cycles = block.start_cycles;
        }
        (piece.start_cycles, piece.first_data) = (self.cycles, self.data);
        let durations = &block.durations[piece.records.start..piece.end()];
        self.cycles = durations.iter().fold(self.cycles, |sum, duration| sum.wrapping_add(*duration));
        self.data += piece.data;
    }

    /// Takes points and fresh lines of a tally; tallies come in the order of what they counted.
    pub(super) fn collect(&mut self, tally: &mut Tally) {
        for (ordinal, point) in tally.points.drain(..) {
            self.points.offer(ordinal, point);
        }
        for (number, line) in tally.fresh.drain(..) {
            if let Some(table) = self.tables.reverse.tables().get(number as usize) {
                self.fresh.entry(table.pid).or_default().push((number, line));
            }
        }
    }

    /// Counts a piece itself.
    pub(super) fn count(&mut self, piece: &mut Piece, block: &BusBlock) {
        let mut tally = std::mem::take(&mut self.tally);
        tally.count(&self.tables, block, piece, self.points.every);
        self.tables.learn(&mut piece.learned);
        self.collect(&mut tally);
        self.tally = tally;
    }

    /// Attributes the walk reads of a process that happened under the mappings and objects that hold until now.
    fn settle_walks(&mut self, pid: u32) {
        let Some(mut lines) = self.fresh.get_mut(&pid).map(std::mem::take) else { return };
        // In one order, whoever saw them first: the shares are sums of floating-point numbers.
        lines.sort_unstable();
        for (number, line) in lines {
            let reads = f64::from(self.tables.reverse.take_fresh(number, line as usize));
            let tables = &self.tables;
            let Some(table) = tables.reverse.tables().get(number as usize) else { continue };
            let (level, pages) = (table.level, tables.reverse.pages_of_line(table, line as usize));
            let first = pages.start;
            // Mostly the line's pages are one object's.
            let (object, bounds) = tables.spaces.at(pid, first << 12);
            let mut shares = match bounds.end >> 12 >= pages.end {
                true => vec![(object, 1.0)],
                false => tables.objects_below(pid, pages),
            };
            if shares.is_empty() {
                shares.push((NO_OBJECT, 1.0));
            }
            let is_leaf = tables.is_leaf(pid, level, first);
            for (object, share) in shares {
                let counts = self.tally.of(object);
                counts.walks[usize::from(level - 1) % 4] += reads * share;
                counts.tlb_misses += if is_leaf { reads * share } else { 0.0 };
            }
        }
    }

    fn apply_pages(&mut self, group: &[PageRecord]) {
        let mut settled = None;
        for record in group {
            if settled != Some(record.pid) {
                self.settle_walks(record.pid);
                settled = Some(record.pid);
            }
            self.backing.before_pages(&self.tables.reverse, &self.tables.spaces, record);
            self.tables.reverse.apply(record);
            self.backing.after_pages(&self.tables.spaces, record);
        }
    }

    fn apply_object(&mut self, event: &ObjectEvent) {
        let pid = match event {
            ObjectEvent::Region { pid, .. }
            | ObjectEvent::Clear { pid, .. }
            | ObjectEvent::Block { pid, .. }
            | ObjectEvent::End { pid, .. }
            | ObjectEvent::Exit { pid }
            | ObjectEvent::Fork { child: pid, .. } => Some(*pid),
            _ => None,
        };
        if let Some(pid) = pid {
            self.settle_walks(pid);
        }
        let Tables { reverse, spaces, .. } = &mut self.tables;
        if let Some((pid, range)) = self.backing.apply(reverse, spaces, event) {
            self.tables.reverse.forget(pid, range, |_| {});
        }
    }

    /// What was there when the trace began: everything up to the dump's end.
    pub(super) fn apply_dump<R: BufRead>(&mut self, events: &mut Events<R>) -> Result<(), FormatError> {
        if !events.pages.as_ref().is_some_and(|pages| pages.header().dump) {
            return Ok(());
        }
        while let Some(group) = events.read_group()? {
            self.apply_pages(&group);
            let is_end = group.iter().any(|record| record.event == PageEvent::DumpEnd);
            events.group = group;
            if is_end {
                break;
            }
        }
        Ok(())
    }

    /// The turn of a record that may change the tables; whether it is done with, or to be resolved again.
    pub(super) fn turn<R: BufRead>(
        &mut self,
        line: u64,
        write: bool,
        duration: u64,
        events: &mut Events<R>,
    ) -> Result<Turn, FormatError> {
        if self.tables.tag_lines.contains(&line) {
            self.cycles = self.cycles.wrapping_add(duration);
            self.tally.bins.add(self.cycles, write);
            self.tag(line, events)?;
            return Ok(Turn::Tag);
        }
        if !events.lookahead.is_full() {
            events.look_ahead()?;
            return Ok(Turn::Again);
        }
        let frame = line >> self.tables.frame_shift;
        let groups = events.lookahead.groups_until_mapped(frame).unwrap_or(0);
        for _ in 0..groups {
            self.next_pages(events)?;
        }
        self.page_tags.happened_early(groups as u64);
        Ok(Turn::Last)
    }

    fn tag<R: BufRead>(&mut self, line: u64, events: &mut Events<R>) -> Result<(), FormatError> {
        self.tally.totals.tags += 1;
        let TagRegion { start, sequence_bits, .. } = self.header.tags.unwrap_or_default();
        let index = line - (start >> self.tables.line_shift);
        let bits = u32::from(sequence_bits);
        let number = index & ((1 << bits) - 1);
        match index >> bits {
            0 => {
                for _ in 0..self.page_tags.tag(number) {
                    if !self.next_pages(events)? {
                        self.page_tags.counts.without_event += 1;
                        break;
                    }
                }
            }
            1 => {
                for _ in 0..self.object_tags.tag(number) {
                    if !self.next_objects(events)? {
                        self.object_tags.counts.without_event += 1;
                        break;
                    }
                }
            }
            _ => self.page_tags.counts.extra += 1,
        }
        Ok(())
    }

    fn next_pages<R: BufRead>(&mut self, events: &mut Events<R>) -> Result<bool, FormatError> {
        let Some(group) = events.next_group()? else { return Ok(false) };
        self.apply_pages(&group);
        events.group = group;
        Ok(true)
    }

    fn next_objects<R: BufRead>(&mut self, events: &mut Events<R>) -> Result<bool, FormatError> {
        let mut any = false;
        loop {
            let Some(objects) = &mut events.objects else { return Ok(any) };
            match objects.next_event() {
                Ok(None) => return Ok(any),
                Ok(Some(ObjectEvent::Tag)) => return Ok(true),
                Ok(Some(event)) => {
                    any = true;
                    self.apply_object(&event);
                }
                Err(error) => self.problem(error)?,
            }
        }
    }

    /// Objects that were there when the trace began: everything up to `started`.
    pub(super) fn initial_objects<R: BufRead>(&mut self, events: &mut Events<R>) -> Result<(), FormatError> {
        if !events.objects.as_ref().is_some_and(|objects| objects.header().dump) {
            return Ok(());
        }
        loop {
            let Some(objects) = &mut events.objects else { return Ok(()) };
            match objects.next_event() {
                Ok(None | Some(ObjectEvent::Started)) => return Ok(()),
                Ok(Some(event)) => self.apply_object(&event),
                Err(error) => self.problem(error)?,
            }
        }
    }

    /// A line that makes no sense is counted; everything else ends the analysis.
    pub(super) fn problem(&mut self, error: FormatError) -> Result<(), FormatError> {
        match error {
            FormatError::Line { .. } => {
                self.losses.bad_lines += 1;
                if self.losses.problems.len() < KEPT_PROBLEMS {
                    self.losses.problems.push(error.to_string());
                }
                Ok(())
            }
            other => Err(other),
        }
    }

    /// What is known of a record that stands where the analysis does.
    pub(super) fn attribution(&self, (number, cycles): (u64, u64), line: u64, write: bool) -> Attribution {
        let tables = &self.tables;
        let mut record = Attribution {
            number,
            cycles,
            paddr: line << tables.line_shift,
            write,
            kind: RecordKind::Unknown,
            pid: 0,
            vaddr: 0,
            object: NO_OBJECT,
            is_shared: false,
        };
        match tables.reverse.place(line >> tables.frame_shift) {
            Place::Page { pid, page, is_shared, is_former, memo } => {
                record.kind = if is_former { RecordKind::Late } else { RecordKind::Data };
                (record.pid, record.vaddr) = (pid, page << 12 | record.paddr & 0xfff);
                record.object = tables.object_of(line, pid, page, memo, &mut Learned::default());
                record.is_shared = is_shared;
            }
            Place::Table(number) => {
                let Some(table) = tables.reverse.tables().get(number as usize) else { return record };
                let in_table = (record.paddr & 0xfff) as usize >> tables.line_shift;
                (record.pid, record.vaddr) =
                    (table.pid, tables.reverse.pages_of_line(table, in_table).start << 12);
                record.kind = match write {
                    true => RecordKind::TableWrite(table.level),
                    false => RecordKind::Walk(table.level),
                };
            }
            _ if tables.tag_lines.contains(&line) => record.kind = RecordKind::Tag,
            _ if line >= tables.last_line => record.kind = RecordKind::OutOfRange,
            Place::Used(usage) => record.kind = RecordKind::Used(usage),
            Place::Unknown => {}
        }
        record
    }

    pub(super) fn finish<R: BufRead>(mut self, events: &mut Events<R>) -> Result<Analysis, FormatError> {
        // In one order, whatever was restarted: the shares are sums of floating-point numbers.
        let mut pids: Vec<u32> = self.fresh.keys().copied().collect();
        pids.sort_unstable();
        pids.into_iter().for_each(|pid| self.settle_walks(pid));
        // Numbered tags that are missing at the very end.
        while events.next_group()?.is_some() {
            self.page_tags.counts.events_left += 1;
        }
        let mut is_open = false;
        while let Some(objects) = &mut events.objects {
            match objects.next_event() {
                Ok(None) => break,
                Ok(Some(ObjectEvent::Tag)) => {
                    self.object_tags.counts.events_left += 1;
                    is_open = false;
                }
                Ok(Some(_)) => is_open = true,
                Err(error) => self.problem(error)?,
            }
        }
        self.object_tags.counts.events_left += u64::from(is_open);
        if let Some(pages) = &events.pages {
            let (lost, bad) = pages.lost();
            self.losses.page_damage = pages.damage();
            self.losses.lost_page_records = lost.saturating_add(bad);
        }
        self.losses.objects_cut = events.objects.as_ref().is_some_and(|objects| !objects.has_end());
        self.losses.contradictions = self.tables.reverse.contradictions;
        (self.losses.page_tags, self.losses.object_tags) = (self.page_tags.counts, self.object_tags.counts);
        let objects = self.tables.spaces.objects();
        let Tally { mut counts, mut totals, bins, nodes, .. } = self.tally;
        counts.resize(objects.len(), ObjectCounts::default());
        totals.records = self.records;
        for counts in &counts {
            totals.data_reads += counts.reads;
            totals.data_writes += counts.writes;
            totals.shared += counts.shared;
            totals.late += counts.late;
        }
        Ok(Analysis::new(
            self.header,
            self.cycles,
            totals,
            self.losses,
            (objects, &counts, &self.backing),
            &self.tables.reverse,
            (bins, self.points, nodes),
        ))
    }
}

//! Goes through a trace, keeps the tables up to date and attributes every record.

use super::counts::{ObjectCounts, Points, TotalCounts};
use super::nodes::NodeLines;
use super::object_space::{NO_OBJECT, ObjectSpaces};
use super::report::{Analysis, Losses};
use super::reverse_table::{Place, ReverseTable};
use super::stream::Events;
use super::tags::TagCounter;
use super::time_bins::TimeBins;
use crate::format::{BusBlock, FormatError, FrameUse, Header, ObjectEvent, PageEvent, PageRecord, TagRegion};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::io::BufRead;

/// What a line of a page is, as the reverse table remembers it: an object, or the following.
const UNKNOWN: u32 = u32::MAX;
/// The page has lines of several objects: see `Analyzer::mixed`.
const MIXED: u32 = u32::MAX - 1;
/// So many records ahead their frames are fetched into the processor's caches.
const AHEAD: usize = 16;
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

/// Sees every record. `analyze` is compiled for each observer; `()` sees nothing and costs nothing.
pub trait Observer {
    /// A record was attributed; `analyzer` has the state that holds for it.
    ///
    /// # Errors
    /// Ends the analysis.
    fn record(&mut self, analyzer: &Analyzer, record: &Attribution) -> Result<(), FormatError>;
}

impl Observer for () {
    #[inline(always)]
    fn record(&mut self, _: &Analyzer, _: &Attribution) -> Result<(), FormatError> {
        Ok(())
    }
}

/// The state of an analysis.
#[derive(Serialize, Deserialize)]
pub struct Analyzer {
    /// Constants of the trace.
    pub header: Header,
    line_shift: u32,
    frame_shift: u32,
    tag_lines: std::ops::Range<u64>,
    tags: TagRegion,
    last_line: u64,
    table: ReverseTable,
    spaces: ObjectSpaces,
    /// Objects of the lines of pages that have several.
    mixed: FxHashMap<u64, Box<[u32]>>,
    page_tags: TagCounter,
    object_tags: TagCounter,
    #[serde(with = "super::checkpoint::exact_counts")]
    counts: Vec<ObjectCounts>,
    totals: TotalCounts,
    /// Lines of page tables whose reads are not yet attributed, by process.
    fresh: FxHashMap<u32, Vec<(u32, u32)>>,
    bins: TimeBins,
    points: Points,
    nodes: NodeLines,
    pub(super) losses: Losses,
    cycles: u64,
}

impl Analyzer {
    pub(super) fn new(header: &Header) -> Self {
        let line_shift = header.line_shift();
        let tags = header.tags.unwrap_or(TagRegion { start: 0, bytes: 0, sequence_bits: 0 });
        let to_lines = |bytes: u64| bytes >> line_shift;
        Self {
            line_shift,
            frame_shift: 12 - line_shift.min(12),
            tag_lines: to_lines(tags.start)..to_lines(tags.start.saturating_add(tags.bytes)),
            tags,
            last_line: match header.memory_bytes {
                0 => u64::MAX,
                bytes => to_lines(bytes),
            },
            table: ReverseTable::new(header.line_bytes),
            spaces: ObjectSpaces::default(),
            mixed: FxHashMap::default(),
            page_tags: TagCounter::new(tags.sequence_bits),
            object_tags: TagCounter::new(tags.sequence_bits),
            counts: Vec::new(),
            totals: TotalCounts::default(),
            fresh: FxHashMap::default(),
            bins: TimeBins::default(),
            points: Points::default(),
            nodes: NodeLines::new(&header.nodes),
            losses: Losses::default(),
            cycles: 0,
            header: header.clone(),
        }
    }

    /// Records analysed so far.
    pub(super) fn records(&self) -> u64 {
        self.totals.records
    }

    /// The reverse page table as it is now.
    pub fn reverse_table(&self) -> &ReverseTable {
        &self.table
    }

    /// The objects as they are now.
    pub fn objects(&self) -> &ObjectSpaces {
        &self.spaces
    }

    /// The pages whose entries are in a line of a page table.
    pub fn pages_of_line(&self, paddr: u64) -> Option<(u32, std::ops::Range<u64>)> {
        let Place::Table(number) = self.table.place(paddr >> 12) else { return None };
        let table = self.table.tables().get(number as usize)?;
        let line = (paddr & 0xfff) as usize >> self.line_shift;
        Some((table.pid, self.table.pages_of_line(table, line)))
    }

    /// Objects of the mapped pages in a range, with their share: by pages.
    pub fn objects_below(&self, pid: u32, pages: std::ops::Range<u64>) -> Vec<(u32, f64)> {
        let mut shares: Vec<(u32, f64)> = Vec::new();
        let mut all = 0.0;
        let mut add = |object: u32, bytes: f64| {
            all += bytes;
            match shares.iter_mut().find(|(known, _)| *known == object) {
                Some((_, sum)) => *sum += bytes,
                None => shares.push((object, bytes)),
            }
        };
        let mut run: Option<std::ops::Range<u64>> = None;
        let mut flush = |run: std::ops::Range<u64>| {
            self.spaces
                .pieces(pid, run.start << 12..run.end << 12, |object, bytes| add(object, bytes as f64));
        };
        for (page, _, count) in self.table.mapped(pid, pages) {
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

    #[inline]
    fn counts_of(&mut self, object: u32) -> &mut ObjectCounts {
        let index = object as usize;
        if self.counts.len() <= index {
            self.make_room(index);
        }
        &mut self.counts[index]
    }

    #[cold]
    fn make_room(&mut self, index: usize) {
        self.counts.resize(index + 1, ObjectCounts::default());
    }

    /// Attributes the walk reads of a process that happened under the mappings and objects that hold until now.
    fn settle_walks(&mut self, pid: u32) {
        let Some(lines) = self.fresh.get_mut(&pid).map(std::mem::take) else { return };
        for (number, line) in lines {
            let reads = f64::from(self.table.take_fresh(number, line as usize));
            let Some(table) = self.table.tables().get(number as usize) else { continue };
            let (level, pages) = (table.level, self.table.pages_of_line(table, line as usize));
            let first = pages.start;
            // Mostly the line's pages are one object's.
            let (object, bounds) = self.spaces.at(pid, first << 12);
            let mut shares = match bounds.end >> 12 >= pages.end {
                true => vec![(object, 1.0)],
                false => self.objects_below(pid, pages),
            };
            if shares.is_empty() {
                shares.push((NO_OBJECT, 1.0));
            }
            let is_leaf = self.is_leaf(pid, level, first);
            for (object, share) in shares {
                let counts = self.counts_of(object);
                counts.walks[usize::from(level - 1) % 4] += reads * share;
                counts.tlb_misses += if is_leaf { reads * share } else { 0.0 };
            }
        }
    }

    /// Whether a line of a table of this level, for pages from `first` on, has leaf entries.
    fn is_leaf(&self, pid: u32, level: u8, first: u64) -> bool {
        if level == 1 {
            return true;
        }
        let entries = 512 / (4096 >> self.line_shift).max(1) as u64;
        let each = PageRecord::pages(level);
        (0..entries).any(|at| self.table.leaf_level(pid, first + at * each) == Some(level))
    }

    fn apply_pages(&mut self, group: &[PageRecord]) {
        let mut settled = None;
        for record in group {
            if settled != Some(record.pid) {
                self.settle_walks(record.pid);
                settled = Some(record.pid);
            }
            self.table.apply(record);
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
        if let Some((pid, range)) = self.spaces.apply(event) {
            self.table.forget(pid, range, |_| {});
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

    /// The object of a line of a mapped page.
    #[inline]
    fn object_of(&mut self, frame: u64, line: u64, pid: u32, page: u64, memo: u32) -> u32 {
        match memo {
            UNKNOWN => self.look_up(frame, line, pid, page),
            MIXED => {
                let index = (line & ((1 << self.frame_shift) - 1)) as usize;
                match self.mixed.get(&frame).and_then(|lines| lines.get(index)) {
                    Some(&object) if object != UNKNOWN => object,
                    _ => self.look_up_line(frame, index, pid, page),
                }
            }
            object => object,
        }
    }

    #[cold]
    fn look_up(&mut self, frame: u64, line: u64, pid: u32, page: u64) -> u32 {
        let (object, bounds) = self.spaces.at(pid, page << 12);
        if bounds.end >= (page + 1) << 12 {
            self.table.remember(frame, object);
            return object;
        }
        self.table.remember(frame, MIXED);
        let lines = vec![UNKNOWN; 1 << self.frame_shift].into();
        self.mixed.insert(frame, lines);
        self.look_up_line(frame, (line & ((1 << self.frame_shift) - 1)) as usize, pid, page)
    }

    #[cold]
    fn look_up_line(&mut self, frame: u64, index: usize, pid: u32, page: u64) -> u32 {
        let start = (page << 12) + ((index as u64) << self.line_shift);
        let object = self.spaces.largest(pid, start..start + (1 << self.line_shift));
        if let Some(place) = self.mixed.get_mut(&frame).and_then(|lines| lines.get_mut(index)) {
            *place = object;
        }
        object
    }

    fn tag<R: BufRead>(&mut self, line: u64, events: &mut Events<R>) -> Result<(), FormatError> {
        self.totals.tags += 1;
        let index = line - self.tag_lines.start;
        let bits = u32::from(self.tags.sequence_bits);
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

    pub(super) fn block<R: BufRead, O: Observer>(
        &mut self,
        block: &BusBlock,
        events: &mut Events<R>,
        observer: &mut O,
    ) -> Result<(), FormatError> {
        self.totals.records += block.len() as u64;
        self.losses.lost_records += block.lost();
        let (mut number, mut cycles) = (block.first, block.start_cycles);
        let mut gaps = block.gaps.iter().peekable();
        let is_large = self.table.is_large();
        let columns = block.lines.iter().zip(&block.durations).zip(&block.writes).enumerate();
        for (at, ((&line, &duration), &write)) in columns {
            if is_large && at % AHEAD == 0 {
                let next = block.lines.get(at + AHEAD..).unwrap_or_default();
                self.table.fetch(next.iter().take(AHEAD).map(|line| line >> self.frame_shift));
            }
            while let Some(gap) = gaps.next_if(|gap| gap.position as usize <= at) {
                number += gap.lost;
                self.losses.gaps += 1;
            }
            cycles = cycles.wrapping_add(duration);
            self.bins.add(cycles, write);
            let mut record = Attribution {
                number,
                cycles,
                paddr: line << self.line_shift,
                write,
                kind: RecordKind::Data,
                pid: 0,
                vaddr: 0,
                object: NO_OBJECT,
                is_shared: false,
            };
            number += 1;
            let frame = line >> self.frame_shift;
            match self.table.place(frame) {
                Place::Page { pid, page, is_shared, is_former, memo } => {
                    let object = self.object_of(frame, line, pid, page, memo);
                    let in_page = record.paddr & 0xfff;
                    (record.pid, record.vaddr, record.object) = (pid, page << 12 | in_page, object);
                    record.is_shared = is_shared;
                    if is_former {
                        record.kind = RecordKind::Late;
                    }
                    self.count_data(&record);
                }
                Place::Table(table) => self.count_table(table, &mut record),
                other if self.tag_lines.contains(&line) => {
                    debug_assert!(matches!(other, Place::Unknown | Place::Used(_)));
                    record.kind = RecordKind::Tag;
                    self.tag(line, events)?;
                }
                other => self.elsewhere(other, frame, line, &mut record, events)?,
            }
            observer.record(self, &record)?;
        }
        self.cycles = cycles;
        Ok(())
    }

    #[inline]
    fn count_data(&mut self, record: &Attribution) {
        let is_late = record.kind == RecordKind::Late;
        let counts = self.counts_of(record.object);
        counts.reads += u64::from(!record.write);
        counts.writes += u64::from(record.write);
        // Rare, so that the branch is cheaper than the addition.
        if record.is_shared || is_late {
            counts.shared += u64::from(record.is_shared);
            counts.late += u64::from(is_late);
        }
        self.nodes.data(record.paddr, record.object, record.write);
        self.points.offer(record.cycles, record.vaddr, record.object, record.write);
    }

    fn count_table(&mut self, number: u32, record: &mut Attribution) {
        let line = (record.paddr & 0xfff) as usize >> self.line_shift;
        let Some(table) = self.table.tables().get(number as usize) else { return };
        let (pid, level, pages) = (table.pid, table.level, self.table.pages_of_line(table, line));
        (record.pid, record.vaddr) = (pid, pages.start << 12);
        if record.write {
            record.kind = RecordKind::TableWrite(level);
            self.totals.table_writes += 1;
            return;
        }
        record.kind = RecordKind::Walk(level);
        self.nodes.walk(record.paddr);
        self.totals.walk_reads[usize::from(level - 1) % 4] += 1;
        if level <= 3 && self.is_leaf(pid, level, pages.start) {
            self.totals.leaf_reads[usize::from(level - 1)] += 1;
        }
        if self.table.count_read(number, line) {
            self.fresh.entry(pid).or_default().push((number, line as u32));
        }
    }

    /// A frame that nothing maps.
    #[cold]
    fn elsewhere<R: BufRead>(
        &mut self,
        place: Place,
        frame: u64,
        line: u64,
        record: &mut Attribution,
        events: &mut Events<R>,
    ) -> Result<(), FormatError> {
        if line >= self.last_line {
            self.totals.out_of_range += 1;
            record.kind = RecordKind::OutOfRange;
            return Ok(());
        }
        if let Some(groups) = if record.write { None } else { events.groups_until_mapped(frame)? } {
            for _ in 0..groups {
                self.next_pages(events)?;
            }
            self.page_tags.happened_early(groups as u64);
            match self.table.place(frame) {
                Place::Page { pid, page, is_shared, memo, .. } => {
                    let object = self.object_of(frame, line, pid, page, memo);
                    (record.pid, record.vaddr) = (pid, page << 12 | record.paddr & 0xfff);
                    (record.object, record.is_shared) = (object, is_shared);
                    self.count_data(record);
                    return Ok(());
                }
                Place::Table(table) => {
                    self.count_table(table, record);
                    return Ok(());
                }
                _ => {}
            }
        }
        let counter = match place {
            Place::Used(usage) => {
                record.kind = RecordKind::Used(usage);
                match usage {
                    FrameUse::Kernel => &mut self.totals.kernel,
                    FrameUse::PageCache => &mut self.totals.page_cache,
                    FrameUse::Device => &mut self.totals.device,
                }
            }
            _ => {
                record.kind = RecordKind::Unknown;
                &mut self.totals.unknown
            }
        };
        *counter += 1;
        Ok(())
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
            self.losses.lost_page_records = lost + bad;
        }
        self.losses.objects_cut = events.objects.as_ref().is_some_and(|objects| !objects.has_end());
        self.losses.contradictions = self.table.contradictions;
        (self.losses.page_tags, self.losses.object_tags) = (self.page_tags.counts, self.object_tags.counts);
        self.counts.resize(self.spaces.objects().len(), ObjectCounts::default());
        for counts in &self.counts {
            self.totals.data_reads += counts.reads;
            self.totals.data_writes += counts.writes;
            self.totals.shared += counts.shared;
            self.totals.late += counts.late;
        }
        Ok(Analysis::new(
            self.header,
            self.cycles,
            self.totals,
            self.losses,
            (self.spaces.objects(), &self.counts),
            &self.table,
            (self.bins, self.points, self.nodes),
        ))
    }
}

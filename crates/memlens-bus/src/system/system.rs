//! The modelled machine: processes, physical memory, translation, caches, and the card that watches.

use super::card::Card;
use super::frames::Frames;
use super::memory::{Backing, Mapping, Mappings};
use super::options::SystemOptions;
use super::page_tables::{Leaf, PageTables, pages_of};
use super::real_frames::{FrameCounts, FrameSource, RealFrames};
use crate::analysis::ObjectSpaces;
use crate::format::{FormatError, FrameUse, ObjectEvent, PageEvent, PageRecord, TruthKind, TruthRecord};
use memlens_sim::{
    Batch, CoreId, MachineDescription, Model, ModelError, Outcome, PageSize, SimdLevel, Translator,
};
use memlens_types::{AccessAttr, AccessKind};
use rustc_hash::FxHashMap;
use std::io::Write;
use std::ops::Range;

/// Accesses that go through the caches together.
const BATCH: usize = 4096;
/// Translations that a core finds again without looking into the tables; a power of two.
const KNOWN_PAGES: usize = 1024;
/// Frames below are the kernel's.
const KERNEL_FRAMES: u64 = 4096;
/// Translations for tables that are kept apart.
const ROOT: u8 = 4;

/// Why an access is in the batch.
#[derive(Clone, Copy, Debug)]
struct Note {
    pid: u32,
    /// 0: the process's own access; otherwise a walk's, of this level.
    walk_level: u8,
    vaddr: u64,
    /// Core cycles before stalls.
    time: u64,
}

/// A translation that was used lately.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    pid: u32,
    page: u64,
    frame: u64,
    level: u8,
    is_writable: bool,
    generation: u64,
}

/// A process.
#[derive(Clone, Debug, Default)]
struct ProcessMemory {
    space: u32,
    mappings: Mappings,
    tables: PageTables,
}

/// What the modelled kernel did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemCounts {
    /// Pages that got a mapping when they were touched, by level.
    pub faults: [u64; 3],
    /// Pages copied because they were written.
    pub copies: u64,
    /// Page-table events with a tag.
    pub page_events: u64,
    /// Object events with a tag.
    pub object_events: u64,
    /// Accesses that found no frame, because the modelled memory is full.
    pub out_of_memory: u64,
    /// Page walks.
    pub walks: u64,
    /// Second-level TLB misses, by page size.
    pub stlb_misses: [u64; 3],
    /// Where frames came from, with a source of real ones.
    pub frames: FrameCounts,
}

/// The modelled machine.
pub struct System<W: Write> {
    options: SystemOptions,
    line_shift: u32,
    translator: Translator,
    caches: Model,
    frames: Frames,
    /// The running machine's frames, if they are used.
    real: Option<RealFrames>,
    /// Frames of uncached page tables.
    uncached: Frames,
    uncached_lines: Range<u64>,
    processes: FxHashMap<u32, ProcessMemory>,
    next_space: u32,
    /// Pages of files: frame.
    files: FxHashMap<(u64, u64), u64>,
    /// Users of a frame, if they are more than one: mappings, and the page cache.
    users: FxHashMap<u64, u32>,
    /// By frame: who maps it, or mapped it last. Process 0: nobody ever.
    owner_pid: Vec<u32>,
    owner_page: Vec<u64>,
    /// Further mappings of a frame.
    sharers: FxHashMap<u64, Vec<(u32, u64)>>,
    is_mapped: Vec<bool>,
    objects: ObjectSpaces,
    /// Forked memory that has no process yet.
    unborn: FxHashMap<(u32, u64), ProcessMemory>,
    known: Vec<Vec<Known>>,
    generation: u64,
    core: CoreId,
    /// Process and line touched last, and whether it is known to be dirty.
    last: (u32, u64, bool),
    addrs: Vec<u64>,
    attrs: Vec<AccessAttr>,
    notes: Vec<Note>,
    /// Uncached reads: before which access of the batch, physical address, note.
    direct: Vec<(usize, u64, Note)>,
    outcome: Outcome,
    /// Core cycles, without stalls for memory; and those stalls.
    time: u64,
    stalls: u64,
    running: u64,
    is_recording: bool,
    card: Card<W>,
    /// The first failure to write; nothing is written after it.
    failure: Option<FormatError>,
    counts: SystemCounts,
}

/// The machine without what is modelled elsewhere: translation.
fn caches_only(machine: &MachineDescription) -> MachineDescription {
    let mut caches = machine.clone();
    (caches.dtlb, caches.stlb) = (None, None);
    caches.walker = memlens_sim::WalkerDescription::disabled();
    caches
}

fn page_size(level: u8) -> PageSize {
    PageSize::ALL[usize::from(level.clamp(1, 3)) - 1]
}

impl<W: Write> System<W> {
    /// A machine without processes; `open` makes its card, given the header of the bus records.
    ///
    /// # Errors
    /// When the machine cannot be modelled, or the card's files not be written.
    pub fn new(
        options: SystemOptions,
        open: impl FnOnce(&crate::format::Header) -> Result<Card<W>, FormatError>,
    ) -> Result<Self, FormatError> {
        let model_error = |error: ModelError| FormatError::Unsupported(format!("the machine: {error}"));
        let mut card = open(&options.header())?;
        let usable = options.usable_bytes() >> 12;
        let ptat = options.ptat_region();
        let all = (options.all_bytes() >> 12) as usize;
        let modelled = options.real_bytes >> 12;
        let kernel =
            |frame, count| PageRecord::new(PageEvent::Use, FrameUse::Kernel as u8, 0, frame, count, 0);
        card.untagged_pages(&mut [
            kernel(modelled, KERNEL_FRAMES),
            kernel(usable, all as u64 - usable),
            PageRecord::new(PageEvent::DumpEnd, 0, 0, 0, 0, 0),
        ])?;
        card.untagged_object(&ObjectEvent::Started)?;
        let line_shift = options.machine.line_bytes.trailing_zeros();
        Ok(Self {
            line_shift,
            translator: Translator::new(&options.machine).map_err(model_error)?,
            caches: Model::new(&caches_only(&options.machine), SimdLevel::detect()).map_err(model_error)?,
            frames: Frames::new(modelled + KERNEL_FRAMES..usable),
            real: None,
            uncached: Frames::new(ptat.start >> 12..ptat.end >> 12),
            uncached_lines: ptat.start >> line_shift..ptat.end >> line_shift,
            processes: FxHashMap::default(),
            next_space: 0,
            files: FxHashMap::default(),
            users: FxHashMap::default(),
            owner_pid: vec![0; all],
            owner_page: vec![0; all],
            sharers: FxHashMap::default(),
            is_mapped: vec![false; all],
            objects: ObjectSpaces::default(),
            unborn: FxHashMap::default(),
            known: Vec::new(),
            generation: 1,
            core: CoreId(0),
            last: (0, u64::MAX, false),
            addrs: Vec::with_capacity(BATCH),
            attrs: Vec::with_capacity(BATCH),
            notes: Vec::with_capacity(BATCH),
            direct: Vec::new(),
            outcome: Outcome::default(),
            time: 0,
            stalls: 0,
            running: 1,
            is_recording: true,
            card,
            failure: None,
            counts: SystemCounts::default(),
            options,
        })
    }

    /// From now on pages get the frames that the running machine's kernel gave them, as far as `source` knows them
    /// and [`SystemOptions::real_bytes`] reaches.
    pub fn use_real_frames(&mut self, source: Box<dyn FrameSource>) {
        self.real = Some(RealFrames::new(source, self.options.real_bytes));
    }

    /// What the kernel did so far.
    pub fn counts(&self) -> SystemCounts {
        let frames = self.real.as_ref().map_or_else(FrameCounts::default, |real| real.counts);
        SystemCounts { frames, ..self.counts }
    }

    /// Records on the bus so far; what is still in the caches is not among them.
    pub fn records(&self) -> u64 {
        self.card.records
    }

    /// The first failure to write, if there was one.
    pub fn failure(&self) -> Option<&FormatError> {
        self.failure.as_ref()
    }

    // ---- time ----------------------------------------------------------------------------------

    /// So many instructions were executed.
    #[inline]
    pub fn advance(&mut self, instructions: u64) {
        self.time += instructions;
    }

    /// So many threads run from now on: memory's latency is divided among them.
    pub fn set_running(&mut self, threads: u64) {
        self.run_batch();
        self.running = threads.max(1);
    }

    /// Whether lines on the bus are recorded from now on. Caches, tables and tags go on.
    pub fn set_recording(&mut self, is_on: bool) {
        self.run_batch();
        self.is_recording = is_on;
    }

    /// The card's clock at a time of the cores.
    fn cycles(&self, core_cycles: u64) -> u64 {
        (u128::from(core_cycles) * u128::from(self.options.clock_hz) / u128::from(self.options.core_hz))
            as u64
    }

    // ---- accesses ------------------------------------------------------------------------------

    /// A process accesses memory on a core.
    pub fn access(&mut self, pid: u32, core: CoreId, vaddr: u64, attr: AccessAttr) {
        if core != self.core {
            self.run_batch();
            self.core = core;
        }
        let write = attr.kind().writes();
        let first = vaddr >> self.line_shift;
        let last = vaddr.saturating_add(u64::from(attr.size_bytes().max(1)) - 1) >> self.line_shift;
        for line in first..=last {
            // The line touched just before is the most recently used one everywhere: nothing changes.
            let is_same = (self.last.0, self.last.1) == (pid, line);
            if is_same && (self.last.2 || !write) {
                continue;
            }
            let addr = vaddr.max(line << self.line_shift);
            self.access_line(pid, addr, write, attr);
            self.last = (pid, line, write);
        }
    }

    fn access_line(&mut self, pid: u32, vaddr: u64, write: bool, attr: AccessAttr) {
        let Some(known) = self.translate(pid, vaddr >> 12, write) else {
            self.counts.out_of_memory += 1;
            return;
        };
        let note = Note { pid, walk_level: 0, vaddr, time: self.time };
        let Some(process) = self.processes.get(&pid) else { return };
        let size = page_size(known.level);
        let translation = self.translator.translate(self.core, process.space, vaddr, size);
        if translation.stlb_miss {
            self.counts.stlb_misses[size as usize] += 1;
        }
        if translation.entries_read > 0 {
            self.counts.walks += 1;
            let top = known.level + translation.entries_read - 1;
            for level in (known.level..=top.min(ROOT)).rev() {
                let Some(process) = self.processes.get(&pid) else { return };
                let Some(entry) = process.tables.entry(level, vaddr >> 12) else { continue };
                let note = Note { walk_level: level, ..note };
                if self.uncached_lines.contains(&(entry >> self.line_shift)) {
                    self.direct.push((self.addrs.len(), entry, note));
                } else {
                    self.push(entry, AccessAttr::new(AccessKind::Load, 8), note);
                }
            }
        }
        let in_page = vaddr & (size.bytes() - 1);
        let kind = if write { AccessKind::Store } else { attr.kind() };
        // Cut to the line, which was looked up by itself.
        self.push((known.frame << 12) + in_page, AccessAttr::new(kind, 1), note);
        if self.addrs.len() >= BATCH {
            self.run_batch();
        }
    }

    fn push(&mut self, paddr: u64, attr: AccessAttr, note: Note) {
        self.addrs.push(paddr);
        self.attrs.push(attr);
        self.notes.push(note);
    }

    /// The page's translation, after a fault if it has none that allows the access.
    fn translate(&mut self, pid: u32, page: u64, write: bool) -> Option<Known> {
        let core = usize::from(self.core.0);
        if self.known.len() <= core {
            self.known.resize(core + 1, vec![Known::default(); KNOWN_PAGES]);
        }
        let place = page as usize % KNOWN_PAGES;
        let known = self.known[core][place];
        if (known.pid, known.page, known.generation) == (pid, page, self.generation)
            && (known.is_writable || !write)
        {
            return Some(known);
        }
        let found = self.processes.get(&pid).and_then(|process| process.tables.leaf(page));
        let (leaf, level) = match found {
            Some((leaf, level)) if leaf.is_writable || !write => (leaf, level),
            _ => self.fault(pid, page, write)?,
        };
        let known = Known {
            pid,
            page,
            frame: leaf.frame,
            level,
            is_writable: leaf.is_writable,
            generation: self.generation,
        };
        self.known[core][place] = known;
        Some(known)
    }

    /// Sends the accesses so far through the caches and what comes of them to the bus.
    fn run_batch(&mut self) {
        self.last = (0, u64::MAX, false);
        if self.addrs.is_empty() && self.direct.is_empty() {
            return;
        }
        let mut outcome = std::mem::take(&mut self.outcome);
        outcome.clear();
        let batch = Batch { addrs: &self.addrs, attrs: &self.attrs };
        self.caches.access(self.core, batch, &mut outcome);
        let direct = std::mem::take(&mut self.direct);
        let reads = outcome.llc_misses.len() + direct.len();
        let mut writes = outcome.dram_writes.iter().copied();
        let mut direct_ones = direct.iter().peekable();
        let mut written = 0;
        let latency = u64::from(self.options.machine.dram_latency_cycles.max(1)) / self.running;
        let mut misses = outcome.llc_misses.iter().map(|&index| index as usize).peekable();
        for read in 1..=reads {
            let is_direct = match (direct_ones.peek(), misses.peek()) {
                (Some((before, _, _)), Some(miss)) => before <= miss,
                (Some(_), None) => true,
                _ => false,
            };
            let (paddr, note) = if is_direct {
                let Some(&(_, paddr, note)) = direct_ones.next() else { break };
                (paddr, note)
            } else {
                let Some(index) = misses.next() else { break };
                (self.addrs[index], self.notes[index])
            };
            self.stalls += latency;
            self.put_read(paddr, &note);
            // Spread evenly: the model does not say between which reads a line was written back.
            let due = read * outcome.dram_writes.len() / reads;
            while written < due {
                let Some(line) = writes.next() else { break };
                written += 1;
                self.put_write(line);
            }
        }
        writes.for_each(|line| self.put_write(line));
        self.outcome = outcome;
        self.direct = direct;
        self.direct.clear();
        self.addrs.clear();
        self.attrs.clear();
        self.notes.clear();
    }

    fn put_read(&mut self, paddr: u64, note: &Note) {
        let kind = if note.walk_level > 0 { TruthKind::Walk } else { TruthKind::Read };
        let truth = TruthRecord {
            kind,
            level: note.walk_level,
            pid: note.pid,
            object: self.object_at(note.pid, note.vaddr),
            vaddr: note.vaddr,
        };
        self.put(paddr, false, note.time, truth);
    }

    fn put_write(&mut self, line: u64) {
        let frame = (line >> 12) as usize;
        let pid = self.owner_pid.get(frame).copied().unwrap_or(0);
        let vaddr = self.owner_page.get(frame).copied().unwrap_or(0) << 12 | line & 0xfff;
        let is_mapped = self.is_mapped.get(frame) == Some(&true);
        let kind = match (is_mapped, pid) {
            (true, _) => TruthKind::WriteBack,
            (false, 0) => TruthKind::Stale,
            (false, _) => TruthKind::LateWriteBack,
        };
        let truth = TruthRecord { kind, level: 0, pid, object: self.object_at(pid, vaddr), vaddr };
        self.put(line, true, self.time, truth);
    }

    /// The number that the process gives to the object at an address.
    fn object_at(&self, pid: u32, vaddr: u64) -> u32 {
        let number = self.objects.at(pid, vaddr).0;
        self.objects.id_of(pid, number)
    }

    fn put(&mut self, paddr: u64, write: bool, time: u64, truth: TruthRecord) {
        if !self.is_recording {
            return;
        }
        let cycles = self.cycles(time + self.stalls);
        let result = self.card.line(paddr, write, cycles, truth);
        self.keep(result);
    }

    fn keep(&mut self, result: Result<(), FormatError>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }

    // ---- page tables ---------------------------------------------------------------------------

    /// Page-table events happen, behind everything so far.
    fn tell_pages(&mut self, mut group: Vec<PageRecord>) {
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
    fn fault(&mut self, pid: u32, page: u64, write: bool) -> Option<(Leaf, u8)> {
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
        let level = mapping.level;
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
                let is_thp = level == 1 && self.options.thp && mapping.may_be_large;
                let level = if is_thp && fits(2) { 2 } else { level };
                let level = if fits(level) { level } else { 1 };
                let real = self.real.as_mut().and_then(|real| match mapping.level {
                    3 if fits(3) => real.take(pid, page, false, &[3, 1]),
                    _ if fits(2) => real.take(pid, page, false, &[2, 1]),
                    _ => real.take(pid, page, false, &[1]),
                });
                let (frame, level) = match real {
                    Some(real) => real,
                    None => self.frame_of_level(level, if is_thp { 1 } else { level })?,
                };
                self.counts.faults[usize::from(level) - 1] += 1;
                let leaf = Leaf { frame, is_writable: true, is_shared: false };
                self.set_leaf(pid, page, level, leaf, group)?;
                return Some((leaf, level));
            }
            Backing::File { file, page: first, is_shared } => {
                let number = first + (page - range.start);
                let frame = match self.files.get(&(file, number)) {
                    Some(&frame) => frame,
                    None => {
                        let frame = self.small_frame(pid, page, true)?;
                        self.files.insert((file, number), frame);
                        let usage = FrameUse::PageCache as u8;
                        group.push(PageRecord::new(PageEvent::Use, usage, 0, frame, 1, 0));
                        frame
                    }
                };
                // The page cache is a user, too.
                *self.users.entry(frame).or_insert(1) += 1;
                Leaf { frame, is_writable: is_shared, is_shared }
            }
        };
        self.counts.faults[0] += 1;
        if write && !leaf.is_writable {
            // Never mapped itself: the copy is.
            self.drop_user(leaf.frame, 0);
            let copy =
                Leaf { frame: self.small_frame(pid, page, false)?, is_writable: true, is_shared: false };
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
        real.map(|(frame, _)| frame).or_else(|| self.frames.allocate(0))
    }

    /// Frames for a leaf; a transparent large page falls back to small ones, `MAP_HUGETLB` does not.
    fn frame_of_level(&mut self, level: u8, least: u8) -> Option<(u64, u8)> {
        (least..=level).rev().find_map(|level| {
            let order = 9 * (usize::from(level) - 1);
            self.frames.allocate(order).map(|frame| (frame, level))
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
        let copy = Leaf { frame: self.small_frame(pid, page, false)?, is_writable: true, is_shared: false };
        self.counts.copies += 1;
        self.unown(leaf.frame, 1, pid, page);
        self.drop_user(leaf.frame, 0);
        self.invalidate(pid, page, 1);
        self.set_leaf(pid, page, 1, copy, group)?;
        Some((copy, 1))
    }

    /// Replaces a large leaf by leaves of the next smaller size, of the same frames. Large pages have one user:
    /// a fork splits them.
    fn split(
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
    fn set_leaf(
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
            let frame = if is_uncached { self.uncached.allocate(0)? } else { self.frames.allocate(0)? };
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
        group.push(PageRecord::new(PageEvent::Map, level, pid, leaf.frame, first, entry));
        self.own(leaf.frame, pages_of(level), pid, first);
        Some(())
    }

    fn invalidate(&mut self, pid: u32, page: u64, level: u8) {
        self.generation += 1;
        if let Some(process) = self.processes.get(&pid) {
            self.translator.invalidate(process.space, page << 12, page_size(level));
        }
    }

    fn own(&mut self, frame: u64, pages: u64, pid: u32, page: u64) {
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

    fn unown(&mut self, frame: u64, pages: u64, pid: u32, page: u64) {
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

    /// A user of a frame of 2^order frames less; the last one gives it back.
    fn drop_user(&mut self, frame: u64, order: usize) {
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

    // ---- processes -----------------------------------------------------------------------------

    /// The process, which begins if it is not there.
    fn process(&mut self, pid: u32) -> &mut ProcessMemory {
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
    fn clear_leaves(
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
        let unborn = unborn_pid(token);
        self.tell_objects(&[ObjectEvent::Fork { parent: unborn, child }, ObjectEvent::Exit { pid: unborn }]);
        self.tell_pages(group);
    }

    /// The fork failed, or the child is not watched.
    pub fn cancel_fork(&mut self, parent: u32, token: u64) {
        let Some(memory) = self.unborn.remove(&(parent, token)) else { return };
        for (_, level, leaf) in memory.tables.leaves_in(0..1 << 52) {
            self.drop_user(leaf.frame, 9 * (usize::from(level) - 1));
        }
        self.tell_objects(&[ObjectEvent::Exit { pid: unborn_pid(token) }]);
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
            let is_uncached = self.uncached_lines.contains(&((frame << 12) >> self.line_shift));
            let frames = if is_uncached { &mut self.uncached } else { &mut self.frames };
            frames.release(frame, 0);
        }
        self.tell_pages(vec![PageRecord::new(PageEvent::ProcessEnd, 0, pid, 0, 0, 0)]);
        self.tell_objects(&[ObjectEvent::Exit { pid }]);
    }

    // ---- objects -------------------------------------------------------------------------------

    /// Object events happen together, behind everything so far.
    pub fn tell_objects(&mut self, events: &[ObjectEvent]) {
        if events.is_empty() {
            return;
        }
        self.run_batch();
        self.counts.object_events += 1;
        for event in events {
            self.objects.apply(event);
        }
        let cycles = self.cycles(self.time + self.stalls);
        let result = self.card.objects(events, cycles);
        self.keep(result);
    }

    /// Everything that is still under way goes to the bus, and the files end. What is dirty in the caches
    /// stays there.
    ///
    /// # Errors
    /// The first failure to write.
    pub fn finish(mut self) -> Result<SystemCounts, FormatError> {
        self.run_batch();
        match self.failure.take() {
            Some(error) => Err(error),
            None => {
                let counts = self.counts();
                self.card.finish().map(|()| counts)
            }
        }
    }
}

/// Stands for a child between the fork and its first sign of life. Linux has no such process ids.
pub(crate) fn unborn_pid(token: u64) -> u32 {
    0x8000_0000 | (token as u32 & 0x7fff_ffff)
}

//! The modelled machine: processes, physical memory, translation, caches, and the card that watches.

use super::card::Card;
use super::frames::Frames;
use super::memory::Mappings;
use super::nodes::NodeFrames;
use super::options::SystemOptions;
use super::page_tables::PageTables;
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
/// Level of the root table.
pub(super) const ROOT: u8 = 4;

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
pub(super) struct ProcessMemory {
    pub(super) space: u32,
    pub(super) mappings: Mappings,
    pub(super) tables: PageTables,
}

/// What the modelled kernel did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemCounts {
    /// Pages that got a mapping when they were touched, by level.
    pub faults: [u64; 3],
    /// Pages copied because they were written.
    pub copies: u64,
    /// Huge pages made of small ones by `MADV_COLLAPSE`.
    pub collapses: u64,
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
    pub(super) options: SystemOptions,
    pub(super) line_shift: u32,
    pub(super) translator: Translator,
    caches: Model,
    /// Frames that are handed out, by memory node.
    pub(super) frames: NodeFrames,
    /// The running machine's frames, if they are used.
    pub(super) real: Option<RealFrames>,
    /// Frames of uncached page tables.
    pub(super) uncached: Frames,
    pub(super) uncached_lines: Range<u64>,
    pub(super) processes: FxHashMap<u32, ProcessMemory>,
    pub(super) next_space: u32,
    /// Pages of files: frame.
    pub(super) files: FxHashMap<(u64, u64), u64>,
    /// Users of a frame, if they are more than one: mappings, and the page cache.
    pub(super) users: FxHashMap<u64, u32>,
    /// By frame: who maps it, or mapped it last. Process 0: nobody ever.
    pub(super) owner_pid: Vec<u32>,
    pub(super) owner_page: Vec<u64>,
    /// Further mappings of a frame.
    pub(super) sharers: FxHashMap<u64, Vec<(u32, u64)>>,
    pub(super) is_mapped: Vec<bool>,
    pub(super) objects: ObjectSpaces,
    /// Forked memory that has no process yet.
    pub(super) unborn: FxHashMap<(u32, u64), ProcessMemory>,
    known: Vec<Vec<Known>>,
    pub(super) generation: u64,
    pub(super) core: CoreId,
    /// Process and line touched last, and whether it is known to be dirty.
    last: (u32, u64, bool),
    addrs: Vec<u64>,
    attrs: Vec<AccessAttr>,
    notes: Vec<Note>,
    /// Uncached reads: before which access of the batch, physical address, note.
    direct: Vec<(usize, u64, Note)>,
    outcome: Outcome,
    /// Core cycles, without stalls for memory, of all threads that run at a time; and those stalls.
    pub(super) time: u64,
    pub(super) stalls: u64,
    pub(super) running: u64,
    /// Instructions that are no whole cycle of all running threads yet.
    rest: u64,
    /// Core cycles when recording was stopped, if it is; and those for which it was before.
    paused_at: Option<u64>,
    paused: u64,
    pub(super) card: Card<W>,
    /// The first failure to write; nothing is written after it.
    failure: Option<FormatError>,
    pub(super) counts: SystemCounts,
}

/// The machine without what is modelled elsewhere: translation.
fn caches_only(machine: &MachineDescription) -> MachineDescription {
    let mut caches = machine.clone();
    (caches.dtlb, caches.stlb) = (None, None);
    caches.walker = memlens_sim::WalkerDescription::disabled();
    caches.prefetcher = memlens_sim::PrefetcherDescription::default();
    caches
}

pub(super) fn page_size(level: u8) -> PageSize {
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
            frames: NodeFrames::new(
                &options.node_frames(),
                modelled + KERNEL_FRAMES..usable,
                options.machine.cores,
            ),
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
            rest: 0,
            paused_at: None,
            paused: 0,
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
        let instructions = self.rest + instructions;
        self.time += instructions / self.running;
        self.rest = instructions % self.running;
    }

    /// So many threads run from now on: they share instructions and memory's latency.
    pub fn set_running(&mut self, threads: u64) {
        self.run_batch();
        self.running = threads.max(1);
    }

    /// Whether lines on the bus are recorded from now on. Caches, tables and tags go on; the card's clock stands
    /// still meanwhile.
    pub fn set_recording(&mut self, is_on: bool) {
        self.run_batch();
        let now = self.time + self.stalls;
        match (is_on, self.paused_at) {
            (false, None) => self.paused_at = Some(now),
            (true, Some(since)) => {
                self.paused += now - since;
                self.paused_at = None;
            }
            _ => {}
        }
    }

    /// The card's clock at a time of the cores.
    pub(super) fn cycles(&self, core_cycles: u64) -> u64 {
        let core_cycles =
            self.paused_at.map_or(core_cycles, |since| core_cycles.min(since)).saturating_sub(self.paused);
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
    pub(super) fn run_batch(&mut self) {
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
    pub(super) fn object_at(&self, pid: u32, vaddr: u64) -> u32 {
        let number = self.objects.at(pid, vaddr).0;
        self.objects.id_of(pid, number)
    }

    fn put(&mut self, paddr: u64, write: bool, time: u64, truth: TruthRecord) {
        if self.paused_at.is_some() {
            return;
        }
        let cycles = self.cycles(time + self.stalls);
        let result = self.card.line(paddr, write, cycles, truth);
        self.keep(result);
    }

    pub(super) fn keep(&mut self, result: Result<(), FormatError>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
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

/// What objects hear when a forked process begins, whose memory was copied when the fork was announced. None: it failed,
/// or is not watched.
pub(crate) fn fork_events(token: u64, child: Option<u32>) -> Vec<ObjectEvent> {
    let unborn = unborn_pid(token);
    let fork = child.map(|child| ObjectEvent::Fork { parent: unborn, child });
    fork.into_iter().chain([ObjectEvent::Exit { pid: unborn }]).collect()
}

/// Stands for a child between the fork and its first sign of life. Linux has no such process ids.
pub(crate) fn unborn_pid(token: u64) -> u32 {
    0x8000_0000 | (token as u32 & 0x7fff_ffff)
}

//! A program's processes under the exact collector, and a model of memory that is told what they do.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memlens_bus::MemorySystem;
use memlens_bus::format::ObjectEvent;
use memlens_bus::system::{Advice, Backing, Mapping};
use memlens_events::{BlockFlags, Definition, EventKind, ModuleAnswer, RecordHeader, RecordSink};
use memlens_exact::{Extras, Following, Session, SessionOptions};
use memlens_pipeline::{AccessExpander, FamilyEvent, Process, ProcessOptions, SpaceEvent};
use memlens_profile::{Existing, Profile};
use memlens_sim::{CoreId, MachineDescription};

use crate::failure::{Failure, FailureKind};
use crate::family::{Family, Wrapper};
use crate::output::Output;
use crate::recorder::{Pipeline, Recorder, RecorderOptions};
use crate::run;
use crate::streams::say;

/// Linux's flags of `mmap`.
const MAP_SHARED: u64 = 0x01;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_HUGETLB: u64 = 0x4_0000;
/// Where the flags say the base-two logarithm of a large page's size.
const MAP_HUGE_SHIFT: u32 = 26;

/// What all processes of a capture share.
struct Shared<M> {
    system: Mutex<Option<M>>,
    cores: u16,
    min_block: u64,
    /// Threads that run, for the memory's latency.
    running: Mutex<Running>,
    /// Which of the images that a process has executed is the present one.
    images: Mutex<HashMap<u32, u64>>,
    /// Ends of heaps (`brk`), by process.
    breaks: Mutex<HashMap<u32, u64>>,
    /// Numbers of files, by name, and of shared memory without one.
    files: Mutex<HashMap<String, u64>>,
}

#[derive(Default)]
struct Running {
    started: u64,
    ended: u64,
    /// Threads that wait for others, or for time to pass.
    waiting: u64,
}

impl<M> Shared<M> {
    fn new(system: M, cores: u16, min_block: u64) -> Self {
        Self {
            system: Mutex::new(Some(system)),
            cores,
            min_block,
            running: Mutex::default(),
            images: Mutex::default(),
            breaks: Mutex::default(),
            files: Mutex::default(),
        }
    }

    fn lock<'a, T>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, name: &str) -> u64 {
        let mut files = self.lock(&self.files);
        let next = files.len() as u64 + 1;
        *files.entry(name.to_owned()).or_insert(next)
    }

    fn shared_memory(&self) -> u64 {
        let mut files = self.lock(&self.files);
        let next = files.len() as u64 + 1;
        files.insert(format!("\0{next}"), next);
        next
    }
}

/// Feeds one process's records to the modelled machine, and to a pipeline that knows its objects.
struct CapturedProcess<M> {
    process: Process,
    shared: Arc<Shared<M>>,
    pid: u32,
    /// Number of the image of the process that this is.
    image: u64,
    expander: AccessExpander,
    /// Cores of threads, by slot.
    cores: Vec<Option<CoreId>>,
    /// Slots whose threads wait.
    waiting: HashSet<usize>,
    named: HashSet<u32>,
    /// Blocks that begin or end recording.
    switching: HashSet<u32>,
    /// Memory being unmapped, until it is clear that it is not being moved.
    leaving: Option<Range<u64>>,
    is_collecting: bool,
    line_bytes: u64,
    family: Vec<FamilyEvent>,
}

impl<M: MemorySystem> CapturedProcess<M> {
    fn new(mut process: Process, shared: Arc<Shared<M>>, pid: u32, line_bytes: u32) -> Self {
        process.watch_space();
        let is_collecting = process.is_collecting();
        let image = {
            let mut images = shared.lock(&shared.images);
            let image = images.entry(pid).or_default();
            *image += 1;
            *image
        };
        let mut captured = Self {
            process,
            shared,
            pid,
            image,
            expander: AccessExpander::default(),
            cores: Vec::new(),
            waiting: HashSet::new(),
            named: HashSet::new(),
            switching: HashSet::new(),
            leaving: None,
            is_collecting,
            line_bytes: line_bytes.into(),
            family: Vec::new(),
        };
        // Before the first record: a forked process has nothing new, others what the kernel set up.
        captured.tell_changes();
        captured
    }

    /// Lets the machine work, unless the process has executed another program meanwhile.
    fn system<T>(&self, work: impl FnOnce(&mut M) -> T) -> Option<T> {
        if self.shared.lock(&self.shared.images).get(&self.pid) != Some(&self.image) {
            return None;
        }
        self.shared.lock(&self.shared.system).as_mut().map(work)
    }

    /// Tells the machine of objects that began or ended.
    fn tell_changes(&mut self) {
        let changes = self.process.take_space_events();
        if changes.is_empty() {
            return;
        }
        let mut events = Vec::new();
        for change in changes {
            match change {
                SpaceEvent::Region { range, object } => {
                    self.name(object, &mut events);
                    let (start, bytes) = (range.start, range.end - range.start);
                    events.push(ObjectEvent::Region { pid: self.pid, start, bytes, id: object });
                }
                SpaceEvent::Clear { range } => {
                    let (start, bytes) = (range.start, range.end - range.start);
                    events.push(ObjectEvent::Clear { pid: self.pid, start, bytes });
                }
                SpaceEvent::Block { layer, start, bytes, object } if bytes >= self.shared.min_block => {
                    self.name(object, &mut events);
                    events.push(ObjectEvent::Block { pid: self.pid, layer, start, bytes, id: object });
                }
                SpaceEvent::End { layer, start, bytes } if bytes >= self.shared.min_block => {
                    events.push(ObjectEvent::End { pid: self.pid, layer, start });
                }
                SpaceEvent::Block { .. } | SpaceEvent::End { .. } => {}
            }
        }
        self.system(|system| system.tell_objects(&events));
    }

    /// Says what an object's number means, the first time.
    fn name(&mut self, object: u32, events: &mut Vec<ObjectEvent>) {
        if !self.named.insert(object) {
            return;
        }
        let Some(known) = self.process.describe_object(object) else { return };
        let (pid, id) = (self.pid, object);
        events.push(ObjectEvent::Object { pid, id, kind: known.kind, name: known.name });
        if !known.site.is_empty() {
            events.push(ObjectEvent::Site { pid, id, text: known.site });
        }
    }

    fn event(&mut self, slot: usize, payload: &[u64]) {
        let Some((&code, arguments)) = payload.split_first() else { return };
        let argument = |index: usize| arguments.get(index).copied().unwrap_or(0);
        let kind = EventKind::from_code(code as u16);
        let (start, length) = (argument(0), argument(1));
        let range = start..start.saturating_add(length);
        // `mremap` shows as an unmapping and, directly after it, a mapping that names the old place.
        if let Some(old) = self.leaving.take() {
            if kind == Some(EventKind::MapAdd) && argument(4) == old.start && argument(4) != 0 {
                self.system(|system| system.remap(self.pid, old, range));
                return;
            }
            self.system(|system| system.unmap(self.pid, old));
        }
        match kind {
            Some(EventKind::MapRemove) => self.leaving = Some(range),
            Some(EventKind::MapAdd) => {
                let mapping = match argument(5) {
                    0 => self.mapping(start, argument(3)),
                    id => self.segment(id - 1),
                };
                self.system(|system| system.map(self.pid, range, mapping));
            }
            Some(EventKind::MapAdvice) => {
                if let Some(advice) = Advice::from_number(argument(2)) {
                    self.system(|system| system.advise(self.pid, range, advice));
                }
            }
            Some(EventKind::Break) => self.move_break(argument(1)),
            // The thread pointer alone is told again.
            Some(EventKind::ThreadStart) if argument(1) != 0 => {
                self.count_running(|running| running.started += 1);
            }
            Some(EventKind::ThreadExit) => {
                self.forget_core(slot);
                self.wait(slot, false);
                self.count_running(|running| running.ended += 1);
            }
            Some(EventKind::Waits) => self.wait(slot, start != 0),
            Some(EventKind::PartialBlock) => {
                let [header, pc, words @ ..] = arguments else { return };
                self.accesses(slot, RecordHeader(*header).block_id(), words, *pc);
            }
            _ => {}
        }
    }

    /// The heap ends here now. Where it ended before is what was seen last: the event has what was asked for.
    fn move_break(&mut self, new: u64) {
        let old = self.shared.lock(&self.shared.breaks).insert(self.pid, new);
        match old {
            Some(old) if new < old => {
                self.system(|system| system.unmap(self.pid, new.next_multiple_of(4096)..old))
            }
            Some(old) if new > old => {
                self.system(|system| system.found(self.pid, old & !0xfff..new, Mapping::default()))
            }
            _ => None,
        };
    }

    fn forget_core(&mut self, slot: usize) {
        if let Some(core) = self.cores.get_mut(slot) {
            *core = None;
        }
    }

    /// The thread in a slot begins to wait, or goes on.
    fn wait(&mut self, slot: usize, begins: bool) {
        match begins {
            true if self.waiting.insert(slot) => self.count_running(|running| running.waiting += 1),
            false if self.waiting.remove(&slot) => {
                self.count_running(|running| running.waiting = running.waiting.saturating_sub(1));
            }
            _ => {}
        }
    }

    fn count_running(&self, change: impl FnOnce(&mut Running)) {
        let running = {
            let mut running = self.shared.lock(&self.shared.running);
            change(&mut running);
            running.started.saturating_sub(running.ended + running.waiting)
        };
        let running = running.clamp(1, u64::from(self.shared.cores.max(1)));
        self.system(|system| system.set_running(running));
    }

    /// What is behind memory mapped with these flags.
    fn mapping(&self, start: u64, flags: u64) -> Mapping {
        let is_shared = flags & MAP_SHARED != 0 && flags != u64::MAX;
        let level = match flags & MAP_HUGETLB {
            _ if flags == u64::MAX => 1,
            0 => 1,
            _ if flags >> MAP_HUGE_SHIFT & 0x3f == 30 => 3,
            _ => 2,
        };
        let backing = match flags & MAP_ANONYMOUS {
            0 => match file_at(self.pid, start) {
                Some((name, page)) => Backing::File { file: self.shared.file(&name), page, is_shared },
                None => Backing::Anonymous,
            },
            // Large pages are never shared here.
            _ if is_shared && level == 1 => {
                Backing::File { file: self.shared.shared_memory(), page: 0, is_shared }
            }
            _ => Backing::Anonymous,
        };
        Mapping { backing, level, ..Mapping::default() }
    }

    /// System V shared memory: all that attach a segment have the same pages.
    fn segment(&self, id: u64) -> Mapping {
        let backing =
            Backing::File { file: self.shared.file(&format!("\0SYSV{id}")), page: 0, is_shared: true };
        Mapping { backing, ..Mapping::default() }
    }

    /// The core on which the thread in a slot runs: threads are dealt to cores in the order of their start.
    fn core(&mut self, slot: usize) -> CoreId {
        if self.cores.len() <= slot {
            self.cores.resize(slot + 1, None);
        }
        let shared = &self.shared;
        *self.cores[slot].get_or_insert_with(|| {
            let number = shared.lock(&shared.running).started.saturating_sub(1);
            CoreId((number % u64::from(shared.cores.max(1))) as u16)
        })
    }

    /// The accesses of a block go to the machine.
    fn accesses(&mut self, slot: usize, block: u32, words: &[u64], end_pc: u64) {
        let core = self.core(slot);
        let shared = self.shared.clone();
        if let Some(system) = shared.lock(&shared.system).as_mut() {
            self.accesses_of(system, core, block, words, end_pc);
        }
    }

    fn accesses_of(&self, system: &mut M, core: CoreId, block: u32, words: &[u64], end_pc: u64) {
        let Some(block) = self.expander.block(block) else { return };
        system.advance(block.instructions.into());
        AccessExpander::accesses(block, words, end_pc, self.line_bytes, |addr, attr| {
            system.access(self.pid, core, addr, attr);
        });
    }

    /// Lets the machine work through plain records from `at` on; returns where the first is that is not.
    fn plain_records(&mut self, slot: usize, words: &[u64], mut at: usize) -> usize {
        let shared = self.shared.clone();
        let mut core = None;
        let mut system = shared.lock(&shared.system);
        let Some(system) = system.as_mut() else { return at };
        while let Some(&header) = words.get(at) {
            let header = RecordHeader(header);
            let end = at + 1 + header.words();
            let (id, Some(payload)) = (header.block_id(), words.get(at + 1..end)) else { break };
            if self.is_special(id) {
                break;
            }
            let core = match core {
                Some(core) => core,
                None => *core.insert(self.core(slot)),
            };
            self.accesses_of(system, core, id, payload, u64::MAX);
            at = end;
        }
        at
    }

    /// Whether a record can change what lies where (an event, or part of an allocation), or begin recording.
    fn is_special(&self, id: u32) -> bool {
        const ALLOCATES: u16 = BlockFlags::ALLOC_ENTRY.0 | BlockFlags::RETURNS_VALUE.0;
        let is_switch = !self.switching.is_empty() && self.switching.contains(&id);
        is_switch || self.expander.block(id).is_none_or(|block| block.flags.0 & ALLOCATES != 0)
    }
}

impl<M: MemorySystem> RecordSink for CapturedProcess<M> {
    fn define(&mut self, definition: Definition) -> ModuleAnswer {
        match &definition {
            Definition::Block(block) => {
                self.expander.define(block);
                if self.process.switches_at(block.pc) {
                    self.switching.insert(block.id);
                }
            }
            Definition::Module(module) if !module.path.is_empty() && !module.path.starts_with('[') => {
                let range = module.start..module.end;
                let file = self.shared.file(&module.path);
                let mapping = |page: Option<u64>| {
                    let of_file = |page| Backing::File { file, page, is_shared: false };
                    Mapping { backing: page.map_or(Backing::Anonymous, of_file), ..Mapping::default() }
                };
                let mut parts = parts_of(self.pid, &range);
                if parts.is_empty() {
                    parts.push((range.clone(), Some(0)));
                }
                self.system(|system| {
                    if !system.knows(self.pid, range.start) {
                        for (part, page) in parts {
                            system.found(self.pid, part, mapping(page));
                        }
                    }
                });
            }
            Definition::Module(_) => {}
            Definition::Thread(thread) => {
                self.forget_core(thread.slot as usize);
            }
        }
        let answer = self.process.define(definition);
        self.tell_changes();
        answer
    }

    fn fork_answer(&mut self) -> Option<u64> {
        self.process.fork_answer()
    }

    fn records(&mut self, slot: usize, words: &[u64]) {
        let mut from = 0;
        loop {
            let at = self.plain_records(slot, words, from);
            let Some(&header) = words.get(at) else { break };
            let header = RecordHeader(header);
            let end = at + 1 + header.words();
            let Some(payload) = words.get(at + 1..end) else { break };
            let id = header.block_id();
            // The accesses of a block that begins recording belong to it; those of an allocation come before
            // what it changes.
            let is_switch = self.switching.contains(&id);
            match id {
                0 => self.event(slot, payload),
                _ if is_switch => {}
                _ => self.accesses(slot, id, payload, u64::MAX),
            }
            self.process.records(slot, &words[from..end]);
            from = end;
            self.tell_changes();
            self.follow_collection();
            if is_switch {
                self.accesses(slot, id, payload, u64::MAX);
            }
        }
        self.process.records(slot, &words[from..]);
        self.follow_collection();
        for event in self.process.take_family_events() {
            match &event {
                FamilyEvent::Forking { token, .. } => {
                    self.system(|system| system.prepare_fork(self.pid, *token));
                }
                FamilyEvent::Forked { token, pid: 0 } => {
                    self.system(|system| system.cancel_fork(self.pid, *token));
                }
                _ => {}
            }
            self.family.push(event);
        }
    }

    fn idle(&mut self) {
        self.process.idle();
    }
}

impl<M: MemorySystem> CapturedProcess<M> {
    fn follow_collection(&mut self) {
        let now = self.process.is_collecting();
        if now != self.is_collecting {
            self.is_collecting = now;
            self.system(|system| system.set_recording(now));
        }
    }
}

impl<M: MemorySystem> Pipeline for CapturedProcess<M> {
    /// There is no profile of a capture: the analysis of its trace makes one.
    fn profile(&mut self) -> Profile {
        Profile::default()
    }

    fn last_profile(&mut self) -> Profile {
        self.system(|system| system.end_process(self.pid));
        Profile::default()
    }

    fn accesses(&self) -> u64 {
        self.process.accesses()
    }

    fn take_family_events(&mut self) -> Vec<FamilyEvent> {
        std::mem::take(&mut self.family)
    }

    fn exit_status(&self) -> Option<i32> {
        Process::exit_status(&self.process)
    }
}

/// What is mapped in a module's range, as the process's map says now: the file's page that each part begins with; None: zeros, as
/// those behind a file's data (`.bss`).
fn parts_of(pid: u32, module: &Range<u64>) -> Vec<(Range<u64>, Option<u64>)> {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let part = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
        let range = start.max(module.start)..end.min(module.end);
        let page = line.contains('/').then_some((offset + range.start.saturating_sub(start)) >> 12);
        (range.start < range.end).then_some((range, page))
    };
    String::from_utf8_lossy(&maps).lines().filter_map(part).collect()
}

/// The file mapped at an address, and the page of it that lies there, as the process's map says now.
fn file_at(pid: u32, addr: u64) -> Option<(String, u64)> {
    // Names are bytes, of which not all are UTF-8.
    let maps = fs::read(format!("/proc/{pid}/maps")).ok()?;
    String::from_utf8_lossy(&maps).lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
        let path = line.find('/').filter(|_| (start..end).contains(&addr))?;
        Some((line[path..].to_owned(), (offset + (addr - start)) >> 12))
    })
}

/// What is run, and how it is watched.
pub struct Watched {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// What it gets besides what this process has.
    pub extras: Extras,
    /// Objects, and when recording begins and ends; the model of caches is not asked for anything.
    pub process: ProcessOptions,
    /// Heap blocks smaller than this are not told apart.
    pub min_block: u64,
    /// A folder for the time of the recording.
    pub scratch: PathBuf,
    /// Say nothing but errors.
    pub quiet: bool,
}

impl Watched {
    /// All blocks, merged by site, recorded from the start.
    ///
    /// # Errors
    /// When there is no smallest machine.
    pub fn new(command: &[OsString], scratch: PathBuf) -> Result<Self, Failure> {
        let process = ProcessOptions::new(small_model()?);
        let extras = Extras::default();
        Ok(Self { command: command.to_vec(), extras, process, min_block: 0, scratch, quiet: false })
    }
}

/// Runs a program and lets `system` know what its processes do. The exit code is the program's.
pub fn watch<M: MemorySystem + 'static>(
    watched: &Watched,
    machine: &MachineDescription,
    system: M,
) -> (Result<u8, Failure>, Option<M>) {
    let shared = Arc::new(Shared::new(system, machine.cores, watched.min_block));
    let outcome = record(watched, machine, &shared);
    let system = shared.lock(&shared.system).take();
    (outcome, system)
}

fn record<M: MemorySystem + 'static>(
    watched: &Watched,
    machine: &MachineDescription,
    shared: &Arc<Shared<M>>,
) -> Result<u8, Failure> {
    let options = watched.process.clone();
    let set_up = |error| Failure::new(FailureKind::Internal, format!("cannot set up the recording: {error}"));
    let mut process = Process::new(options.clone()).map_err(set_up)?;
    // The machinery for several processes writes a profile for each; those of a capture are empty.
    let scratch = Scratch(&watched.scratch);
    let output = Output::create(Some(&watched.scratch), watched.command[0].as_ref(), Existing::Replace)?;
    let recorder_options = RecorderOptions { flush_every: None, shows_progress: false };
    let mut run_info = run::describe(&watched.command);
    let session_options = SessionOptions {
        command: watched.command.clone(),
        following: Following::Children,
        extras: watched.extras.clone(),
    };
    let mut session = Session::start(&session_options)?;
    let pid = session.process_id();
    run_info.pid = Some(pid);
    process.set_process_id(pid);
    process.follow_children();
    if !options.collect_at_start
        && let Some(system) = shared.lock(&shared.system).as_mut()
    {
        system.set_recording(false);
    }
    let line_bytes = machine.line_bytes;
    let wrapper: Wrapper = {
        let shared = shared.clone();
        Box::new(move |process: Process, pid: u32, forked: Option<(u32, u64)>| {
            {
                let mut breaks = shared.lock(&shared.breaks);
                match forked.and_then(|(parent, _)| breaks.get(&parent).copied()) {
                    Some(end) => breaks.insert(pid, end),
                    None => breaks.remove(&pid),
                };
            }
            if let Some(system) = shared.lock(&shared.system).as_mut() {
                match forked {
                    Some((parent, token)) => system.fork(parent, token, pid),
                    // It executes another program: nothing of the old one is left.
                    None => system.end_process(pid),
                }
            }
            let captured = CapturedProcess::new(process, shared.clone(), pid, line_bytes);
            let pipeline: Box<dyn Pipeline> = Box::new(captured);
            pipeline
        })
    };
    let family = Family::new(output.path(), options, recorder_options, run_info.clone(), Some(wrapper));
    family.first(pid, session.replacement());
    let answering = session.take_follower().map(|follower| family.answer(follower));
    let captured = CapturedProcess::new(process, shared.clone(), pid, line_bytes);
    let own = output.same_place()?;
    let mut recorder = Recorder::new(captured, own, run_info, recorder_options).in_family(family.clone(), 1);
    let outcome = session.run(&mut recorder)?;
    let was_recorded = session.was_recorded();
    let ending = run::ending(&session, outcome);
    drop(recorder.finish(&ending));
    drop(session);
    family.wait(watched.quiet);
    if let Some(Err(_)) = answering.map(std::thread::JoinHandle::join) {
        say("a fault of memlens: the program's last processes were not recorded");
    }
    for note in ending.notes.iter().chain(&family.notes().0) {
        say(&format!("warning: {note}"));
    }
    drop(scratch);
    if !was_recorded {
        let message = "the recording engine did not start in the program; `memlens doctor` may say why";
        return Err(Failure::new(FailureKind::Engine, message));
    }
    Ok(run::end_as(outcome))
}

/// The pipeline's own model is not asked for anything: the smallest that there can be.
fn small_model() -> Result<MachineDescription, Failure> {
    MachineDescription::named("cachegrind")
        .map_err(|error| Failure::new(FailureKind::Internal, format!("no model for the pipeline: {error}")))
}

/// A folder that goes away with this.
struct Scratch<'a>(&'a std::path::Path);

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // What cannot be removed is empty profiles in a hidden folder.
        let _ = fs::remove_dir_all(self.0);
    }
}

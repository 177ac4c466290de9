//! From the pipeline's state to a profile: names, source lines, sums.

use crate::address_space::{ALLOCATORS, ANONYMOUS, AddressSpace, BREAK, LoadedModule, SiteName};
use crate::process::Process;
use crate::references::References;
use crate::windows::Windows;
use memlens_objects::{ObjectId, ObjectKey, SiteId, split_frame_key};
use memlens_patterns::{Sources, StallParts};
use memlens_profile::{
    CacheInfo, Cell, Clock, CodeIx, CodeLocation, CoreInfo, Frame, FrameIx, Latencies, MachineInfo,
    Module as ModuleRow, ModuleIx, Object, ObjectIx, PackedCounts, Profile, SourceLine, Stack, StackIx,
    Texts, Thread as ThreadRow, ThreadIx, TlbInfo, WalkTier,
};
use memlens_sim::{CacheDescription, MachineDescription, Rules, TlbDescription};
use memlens_symbols::{
    AssignedVariable, Assignment, BlockType, GeneratedNames, Module, NamingCode, Receiver, SourceFrame,
    TypeRef, block_type, naming_code, receiver, spelling_frame,
};
use memlens_types::{AccessKind, Counts, ObjectKind};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;

/// What cells are of.
struct Touched {
    /// By number of the reference.
    references: Vec<bool>,
    /// Numbers of the objects.
    objects: FxHashSet<u32>,
}

/// Rows of code by number of the reference.
pub(crate) struct CodeRows(Vec<CodeIx>);

impl CodeRows {
    /// No row.
    const NONE: CodeIx = CodeIx(u32::MAX);

    pub(crate) fn of(&self, reference: u32) -> Option<CodeIx> {
        self.0.get(reference as usize).copied().filter(|&code| code != Self::NONE)
    }

    /// References with their rows.
    fn iter(&self) -> impl Iterator<Item = (u32, CodeIx)> {
        (0..).zip(self.0.iter().copied()).filter(|&(_, code)| code != Self::NONE)
    }
}

impl AddressSpace {
    /// Lets the system take back what was read of the modules' files.
    fn release_pages(&self) {
        for symbols in self.modules().iter().filter_map(|module| module.symbols.as_ref()) {
            symbols.release_pages();
        }
    }
}

impl Process {
    /// The profile as of now. What the pipeline cannot know (command, exit code, time) is left empty.
    pub fn profile(&mut self) -> Profile {
        self.make_profile(false)
    }

    /// As [`Self::profile`], when nothing more is recorded: what the threads kept makes room for it. Later
    /// profiles lack what is in this one.
    pub fn last_profile(&mut self) -> Profile {
        self.make_profile(true)
    }

    fn make_profile(&mut self, is_last: bool) -> Profile {
        self.drain();
        self.space.release_pages();
        for thread in self.threads.iter_mut().flatten() {
            thread.settle(&self.blocks);
        }
        let touched = self.touched();
        let mut builder = Builder::new(&self.space);
        builder.generated = self.pid.map(GeneratedNames::of_process).unwrap_or_default();
        builder.profile.machine = machine_info(&self.machine);
        builder.profile.marks = self.marks.clone();
        let code_of = self.code_rows(touched.references, &mut builder);
        // What is read of the files from here on is other parts of them.
        self.space.release_pages();
        builder.objects(touched.objects, &self.dram_writes, self.merge_sites);
        self.space.release_pages();
        for row in &mut builder.profile.objects {
            row.backing = self.backing.get(&row.id).cloned();
        }
        let operands = self.operands(&code_of);
        self.sum_code(&mut builder.profile.code, &code_of, &builder.object_of);
        // Going through windows takes tens of megabytes for a while: before there are fields, paths and cells.
        let stalls = add_patterns(&mut builder, &mut self.windows, &operands, &mut self.address_sources);
        self.space.release_pages();
        builder.fields(self.offsets(), &code_of, &mut self.layouts);
        self.space.release_pages();
        let paths = builder.paths_of_cells(self.windows.paths().0, &operands);
        let Builder { mut profile, object_of, .. } = builder;
        profile.run.clock = Some(Clock::Instructions);
        let cells = |number: usize| Some(self.threads.get(number)?.as_deref()?.references.cells());
        (profile.slices, profile.slice_uses) =
            self.timeline.slices(self.instructions(), self.space.heap.objects(), cells, |object| {
                object_of.get(&object).copied()
            });
        // Encoding comes next, and needs room.
        self.space.release_pages();
        // The largest table comes last: what making the others takes is free again.
        (profile.cells, profile.threads) = self.cells(&code_of, &object_of, is_last);
        match stalls {
            Some(stalls) => stalls.add_to(&mut profile, None),
            None => profile.sum_cells(),
        }
        if !profile.paths.is_empty() {
            profile.divide_among_paths(|cell| paths.of(cell));
        }
        self.attribution(&mut profile);
        profile.note_generated_code();
        profile.note_huge_pages();
        profile.run.instructions = Some(self.instructions());
        profile.run.threads = profile.threads.len() as u32;
        profile.run.pid = None;
        profile.run.primary_cost = "wait_cycles".into();
        profile
    }

    /// The references and objects of all cells.
    fn touched(&self) -> Touched {
        let mut touched = Touched {
            references: vec![false; self.blocks.references().len()],
            objects: FxHashSet::default(),
        };
        for thread in self.threads.iter().flatten() {
            let cells = thread.references.cells().iter(|reference| self.blocks.attr_of(reference));
            for (reference, object, _) in cells {
                touched.references[reference as usize] = true;
                touched.objects.insert(object);
            }
        }
        touched
    }

    /// What each row of code did, before there are cells that say it.
    fn sum_code(&self, code: &mut [CodeLocation], code_of: &CodeRows, object_of: &FxHashMap<u32, ObjectIx>) {
        for thread in self.threads.iter().flatten() {
            let cells = thread.references.cells();
            for (reference, object, counts) in cells.iter(|reference| self.blocks.attr_of(reference)) {
                if let (Some(row), true) = (code_of.of(reference), object_of.contains_key(&object)) {
                    let (kind, _) = self.blocks.attr_of(reference);
                    code[row.index()].counts += &by_the_rules(self.machine.rules, kind, counts);
                }
            }
        }
    }

    /// All cells, thread by thread, and the threads.
    fn cells(
        &mut self,
        code_of: &CodeRows,
        object_of: &FxHashMap<u32, ObjectIx>,
        is_last: bool,
    ) -> (Vec<Cell>, Vec<ThreadRow>) {
        let Self { blocks, threads, machine, .. } = self;
        // The largest table of all should not be moved while it grows.
        let most = threads.iter().flatten().map(|thread| thread.references.cells().count()).sum();
        let mut cells = Vec::with_capacity(most);
        let mut rows = Vec::new();
        for thread in threads.iter_mut().flatten() {
            let index = ThreadIx::from_index(rows.len());
            rows.push(ThreadRow {
                tid: thread.tid,
                name: thread.name.clone(),
                instructions: Some(thread.instructions),
                ..ThreadRow::default()
            });
            let taken = is_last.then(|| std::mem::replace(&mut thread.references, References::new()));
            let taken = taken.map(References::into_cells);
            let counted = taken.as_ref().unwrap_or_else(|| thread.references.cells());
            for (reference, object, counts) in counted.iter(|reference| blocks.attr_of(reference)) {
                let counts = by_the_rules(machine.rules, blocks.attr_of(reference).0, counts);
                if let (Some(code), Some(&object)) = (code_of.of(reference), object_of.get(&object)) {
                    cells.push(Cell { code, object, thread: index, counts: counts.into() });
                }
            }
        }
        join_equal(&mut cells);
        (cells, rows)
    }

    /// Rows of code for these references.
    fn code_rows(&self, touched: Vec<bool>, builder: &mut Builder<'_>) -> CodeRows {
        let references = self.blocks.references();
        // In the order of addresses: then what the debug information says of one place lies beside what
        // it says of the next.
        let mut places: Vec<(u64, u32)> = (0..)
            .zip(references)
            .zip(touched)
            .filter(|&(_, is_touched)| is_touched)
            .map(|((number, code), _)| (self.space.frame_key_in(code.module, code.pc), number))
            .collect();
        places.sort_unstable();
        let mut rows = CodeRows(vec![CodeRows::NONE; references.len()]);
        builder.profile.code.reserve_exact(places.len());
        for (place, reference) in places {
            let known = references[reference as usize];
            let attr = known.attr;
            rows.0[reference as usize] = builder.code(place, known.operand, attr.kind(), attr.size_bytes());
        }
        rows
    }

    /// Operands by their numbers in windows, with their rows of code.
    fn operands(&self, code_of: &CodeRows) -> Vec<(u32, CodeIx)> {
        let references = self.blocks.references();
        let (_, numbers) = self.windows.paths();
        let row = |(reference, code): (u32, CodeIx)| {
            let reference = references.get(reference as usize)?;
            if reference.attr.kind() == AccessKind::Fetch {
                return None;
            }
            Some((*numbers.get(&reference.operand_key())?, code))
        };
        code_of.iter().filter_map(row).collect()
    }

    fn attribution(&self, profile: &mut Profile) {
        let mut attribution = std::mem::take(&mut profile.attribution);
        for object in &profile.objects {
            let accesses = object.counts.accesses();
            if object.kind == ObjectKind::Unknown {
                attribution.unknown_accesses += accesses;
                if let Some(reason) = &object.unknown_reason
                    && accesses > 0
                {
                    *attribution.unknown_reasons.entry(reason.clone()).or_default() += accesses;
                }
            } else {
                attribution.attributed_accesses += accesses;
            }
        }
        let seen = &self.irregularities;
        attribution.truncated_stacks = seen.stacks_cut;
        attribution.lost_events = seen.undefined_blocks + seen.damaged_records;
        if seen.results_unseen > 0 {
            attribution.notes.push(format!(
                "{} allocation calls ended where their result was not seen",
                seen.results_unseen
            ));
        }
        attribution.notes.extend(self.notes_on_names());
        attribution.notes.extend(self.windows.paths().0.notes());
        profile.attribution = attribution;
    }
}

/// How operands go through memory; what comes back says how much of it they wait for.
fn add_patterns(
    builder: &mut Builder<'_>,
    windows: &mut Windows,
    operands: &[(u32, CodeIx)],
    sources: &mut Sources,
) -> Option<StallParts> {
    let Builder { space, profile, object_of, .. } = builder;
    let (patterns, kept, others, _) = windows.patterns();
    let symbols_of = |module: ModuleIx| space.module(module.0 + 1)?.symbols.as_ref();
    let object_of = |_, owner: u32| object_of.get(&owner).copied();
    memlens_patterns::add_patterns(profile, patterns, operands, &object_of, &symbols_of, sources);
    memlens_patterns::stall_parts(profile, (kept, others), operands, &symbols_of)
}

/// What operands of a kind did, as the machine's rules have it.
fn by_the_rules(rules: Rules, kind: AccessKind, mut counts: Counts) -> Counts {
    if rules == Rules::Cachegrind && kind == AccessKind::Modify {
        // Under valgrind's rules a modify misses as a read.
        counts.l1_load_misses += std::mem::take(&mut counts.l1_store_misses);
        counts.l2_load_misses += std::mem::take(&mut counts.l2_store_misses);
        counts.llc_load_misses += std::mem::take(&mut counts.llc_store_misses);
    }
    counts
}

/// The same code may have been seen through several blocks. Joined where they are: there may be many.
fn join_equal(cells: &mut Vec<Cell>) {
    cells.sort_unstable_by_key(|cell| (cell.thread, cell.code, cell.object));
    cells.dedup_by(|next, kept| {
        let is_same = (next.thread, next.code, next.object) == (kept.thread, kept.code, kept.object);
        if is_same {
            kept.counts += &next.counts.get();
        }
        is_same
    });
}

/// The machine as reports show it.
pub fn machine_info(machine: &MachineDescription) -> MachineInfo {
    let cache = |cache: &CacheDescription| CacheInfo {
        bytes: cache.bytes,
        ways: cache.ways,
        policy: cache.policy.to_string(),
    };
    let tlb = |tlb: &TlbDescription| {
        tlb.by_page_size()[0].map(|size| TlbInfo { entries: size.entries, ways: size.ways })
    };
    let defaults = Latencies::default();
    let known = |cycles: u32, default: u32| if cycles == 0 { default } else { cycles };
    let l2_cycles = machine.l2.as_ref().map_or(0, |l2| l2.latency_cycles);
    MachineInfo {
        name: machine.name.clone(),
        description: (!machine.description.is_empty()).then(|| machine.description.clone()),
        line_bytes: machine.line_bytes,
        page_bytes: machine.page_bytes,
        l1i: Some(cache(&machine.l1i)),
        l1d: Some(cache(&machine.l1d)),
        l2: machine.l2.as_ref().map(cache),
        llc: Some(cache(&machine.llc)),
        dtlb: machine.dtlb.as_ref().and_then(tlb),
        stlb: machine.stlb.as_ref().and_then(tlb),
        prefetcher_streams: machine.prefetcher.streams,
        latencies: Latencies {
            l1_cycles: known(machine.l1d.latency_cycles, defaults.l1_cycles),
            l2_cycles: known(l2_cycles, defaults.l2_cycles),
            llc_cycles: known(machine.llc.latency_cycles, defaults.llc_cycles),
            dram_cycles: known(machine.dram_latency_cycles, defaults.dram_cycles),
            stlb_cycles: known(machine.stlb_latency_cycles, defaults.stlb_cycles),
            walk_access_cycles: known(machine.walk_access_cycles, defaults.walk_access_cycles),
            transfer_cycles: machine.transfer_latency_cycles,
            remote_cycles: machine.remote_latency_cycles,
        },
        walk_tiers: machine
            .walker
            .tiers
            .iter()
            .map(|&[from_walks, cycles]| WalkTier { from_walks, cycles })
            .collect(),
        llc_told_bytes: (machine.llc_told_bytes > machine.llc.bytes).then_some(machine.llc_told_bytes),
        has_assumed_latencies: machine.has_assumed_latencies(),
        has_brief_latencies: machine.has_brief_latencies(),
        core: machine.core.as_ref().map(|core| CoreInfo {
            width: core.width,
            window: core.window,
            scheduled: core.scheduled,
            integer_scheduled: core.integer_scheduled,
            multiply_scheduled: core.multiply_scheduled,
            vector_scheduled: core.vector_scheduled,
            address_scheduled: core.address_scheduled,
            outstanding: core.outstanding,
            stores: core.stores,
            line_cycles: core.line_cycles,
            l1_line_cycles: core.l1_line_cycles,
            llc_line_cycles: core.llc_line_cycles,
            set_load_cycles: core.set_load_cycles,
            set_store_cycles: core.set_store_cycles,
            set_modify_cycles: core.set_modify_cycles,
        }),
        nodes: machine.nodes.into(),
        rules: machine.rules.to_string(),
        inclusion: Some(machine.inclusion.to_string()),
    }
}

/// Collects rows and joins equal ones.
pub(crate) struct Builder<'a> {
    pub(crate) space: &'a AddressSpace,
    pub(crate) profile: Profile,
    /// Names of code outside of all modules.
    generated: GeneratedNames,
    frames: FxHashMap<(u64, bool), Vec<FrameIx>>,
    /// Of frames.
    texts: Texts,
    stacks: FxHashMap<Vec<FrameIx>, StackIx>,
    /// The place of the code row made last, its stack, and the first row there.
    place: Option<(u64, StackIx, usize)>,
    pub(crate) object_of: FxHashMap<u32, ObjectIx>,
    assignments: FxHashMap<u64, Assignment>,
    /// Types of sites' blocks.
    pub(crate) block_types: FxHashMap<SiteId, BlockType>,
    /// The same of globals whose debug information was looked at, with its module, by module and address. That of one after the other
    /// in the order of addresses is together in the file; in any other order units are parsed again and again.
    pub(crate) variable_types: FxHashMap<(u32, u64), Option<(u32, TypeRef)>>,
}

impl<'a> Builder<'a> {
    /// Nothing yet but the modules.
    fn new(space: &'a AddressSpace) -> Self {
        let modules = space.modules().iter().map(|module| {
            let symbols = module.symbols.as_ref();
            ModuleRow {
                path: module.path.clone(),
                build_id: symbols
                    .and_then(Module::build_id)
                    .map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect()),
                has_debug: symbols.is_some_and(Module::has_debug_info),
            }
        });
        let profile = Profile { modules: modules.collect(), ..Profile::default() };
        Self { profile, ..Self::for_names(space) }
    }

    /// For names only: without the modules' rows.
    pub(crate) fn for_names(space: &'a AddressSpace) -> Self {
        Self {
            space,
            profile: Profile::default(),
            generated: GeneratedNames::default(),
            frames: FxHashMap::default(),
            texts: Texts::default(),
            stacks: FxHashMap::default(),
            place: None,
            object_of: FxHashMap::default(),
            assignments: FxHashMap::default(),
            block_types: FxHashMap::default(),
            variable_types: FxHashMap::default(),
        }
    }

    fn module_ix(number: u32) -> Option<ModuleIx> {
        (number > 0).then(|| ModuleIx(number - 1))
    }

    /// The row of a memory operand at a place. Those of one place are asked for one after another: what is remembered is
    /// of the last place only, for there are a hundred thousand.
    fn code(&mut self, key: u64, operand: u8, kind: AccessKind, size_bytes: u32) -> CodeIx {
        let (stack, first) = match self.place {
            Some((place, stack, first)) if place == key => (stack, first),
            _ => {
                // No other place has these frames.
                let frames = self.new_frames(key, false);
                let stack = StackIx::from_index(self.profile.stacks.len());
                self.profile.stacks.push(Stack(frames));
                (stack, self.profile.code.len())
            }
        };
        self.place = Some((key, stack, first));
        let is_it =
            |row: &CodeLocation| (row.operand, row.kind, row.size_bytes) == (operand, kind, size_bytes);
        if let Some(known) = self.profile.code[first..].iter().position(is_it) {
            return CodeIx::from_index(first + known);
        }
        let (number, offset) = split_frame_key(key);
        let code = CodeIx::from_index(self.profile.code.len());
        self.profile.code.push(CodeLocation {
            id: code.0 + 1,
            stack: Some(stack),
            module: Self::module_ix(number.into()),
            offset,
            operand,
            kind,
            size_bytes,
            counts: PackedCounts::default(),
        });
        code
    }

    fn stack(&mut self, frames: Vec<FrameIx>) -> StackIx {
        match self.stacks.entry(frames) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let stack = StackIx::from_index(self.profile.stacks.len());
                self.profile.stacks.push(Stack(new.key().clone()));
                *new.insert(stack)
            }
        }
    }

    /// The innermost frame of the code at a place.
    pub(crate) fn innermost_frame(&mut self, key: u64) -> Option<&Frame> {
        let first = self.frames_at(key, false).first().copied()?;
        self.profile.frames.get(first.index())
    }

    /// The frames at a place, innermost (inlined) first. Return addresses stand for the call before
    /// them.
    pub(crate) fn frames_at(&mut self, key: u64, is_return: bool) -> Vec<FrameIx> {
        if let Some(known) = self.frames.get(&(key, is_return)) {
            return known.clone();
        }
        let frames = self.new_frames(key, is_return);
        self.frames.insert((key, is_return), frames.clone());
        frames
    }

    /// As [`Self::frames_at`], of a place that is not asked for again.
    fn new_frames(&mut self, key: u64, is_return: bool) -> Vec<FrameIx> {
        let (number, offset) = split_frame_key(key);
        let svma = if is_return { offset.wrapping_sub(1) } else { offset };
        let symbols = self.space.module(number.into()).and_then(|module| module.symbols.as_ref());
        let mut located = symbols.map(|symbols| symbols.locate(svma)).unwrap_or_default();
        if located.is_empty() {
            let generated = if number == 0 { self.generated.function_at(svma) } else { None };
            located.push(SourceFrame { function: generated.map(str::to_owned), ..SourceFrame::default() });
        }
        let last = located.len() - 1;
        let mut frames = Vec::with_capacity(located.len());
        for (depth, place) in located.into_iter().enumerate() {
            let source_text = match (symbols, &place.file, place.line) {
                (Some(symbols), Some(file), Some(line)) => symbols.source_line(file, line),
                _ => None,
            };
            let frame = FrameIx::from_index(self.profile.frames.len());
            self.profile.frames.push(Frame {
                module: Self::module_ix(number.into()),
                offset,
                function: place.function.map(|name| self.texts.shared(&name)),
                file: place.file.map(|path| self.texts.shared(&path)),
                line: place.line,
                column: place.column,
                inlined: depth < last,
                source_text: source_text.map(|text| self.texts.shared(text.trim())),
            });
            frames.push(frame);
        }
        frames
    }

    // ---- objects -------------------------------------------------------------------------------

    /// Rows for all objects that were accessed, written back or allocated.
    fn objects(&mut self, mut accessed: FxHashSet<u32>, dram_writes: &FxHashMap<u32, u64>, merged: bool) {
        accessed.extend(dram_writes.keys());
        let space = self.space;
        let objects = space.heap.objects();
        let is_heap = |key: &ObjectKey| matches!(key, ObjectKey::HeapSite(_) | ObjectKey::HeapBlock { .. });
        let mut wanted: Vec<(ObjectId, &ObjectKey)> = objects
            .iter()
            .filter(|(id, key, stats)| accessed.contains(&id.get()) || (is_heap(key) && stats.blocks > 0))
            .map(|(id, key, _)| (id, key))
            .collect();
        self.read_ahead(&wanted);
        // Globals in the order of addresses, for the debug information's sake; rows in that of numbers.
        wanted.sort_by_key(|(id, key)| match key {
            ObjectKey::Global { module, svma } | ObjectKey::DataGap { module, section_svma: svma } => {
                (*module, *svma, *id)
            }
            _ => (u32::MAX, 0, *id),
        });
        let (heap_peak, at_peak) = space.heap.peak();
        let at_peak: FxHashMap<ObjectId, u64> = at_peak.into_iter().collect();
        self.profile.run.heap_peak_bytes = Some(heap_peak);
        let mut rows: Vec<Object> = Vec::with_capacity(wanted.len());
        for (id, key) in wanted {
            let stats = objects.stats(id);
            let mut row = self.describe(id, key);
            row.id = id.get();
            row.kind = key.kind();
            // What an allocator maps is not asked for once more: the blocks in it are.
            let is_allocators = matches!(key, ObjectKey::Mmap { file: ALLOCATORS, .. });
            let allocated = is_heap(key) || matches!(key, ObjectKey::Mmap { .. });
            if is_allocators {
                row.blocks = stats.blocks;
            } else if allocated && (stats.blocks > 0 || stats.max_live_blocks > 0) {
                row.blocks = stats.blocks;
                row.bytes = Some(stats.total_bytes);
                row.max_live_bytes = Some(stats.max_live_bytes);
            } else if !allocated {
                row.blocks = 1;
            }
            if is_heap(key) && !stats.is_nested {
                row.live_at_end_bytes = Some(stats.live_bytes);
                row.live_at_peak_bytes = merged.then(|| at_peak.get(&id).copied().unwrap_or(0));
            }
            if let ObjectKey::HeapBlock { block, .. } = key
                && !merged
            {
                row.name = format!("{} #{block}", row.name);
            }
            row.counts.dram_writes = dram_writes.get(&id.get()).copied().unwrap_or(0);
            rows.push(row);
        }
        rows.sort_by_key(|row| row.id);
        self.object_of =
            rows.iter().enumerate().map(|(at, row)| (row.id, ObjectIx::from_index(at))).collect();
        self.profile.objects = rows;
    }

    /// Looks the call stacks of objects up in the order of addresses.
    fn read_ahead(&mut self, objects: &[(ObjectId, &ObjectKey)]) {
        let mut keys: Vec<u64> = Vec::new();
        for (_, key) in objects {
            let site = match **key {
                ObjectKey::HeapSite(site) | ObjectKey::HeapBlock { site, .. } => Some(site),
                ObjectKey::Mmap { site, .. } => site,
                _ => None,
            };
            keys.extend(site.into_iter().flat_map(|site| self.space.heap.sites().stack(site)));
        }
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            self.frames_at(key, true);
        }
    }

    /// What an object is called, and where it comes from.
    pub(crate) fn describe(&mut self, id: ObjectId, key: &ObjectKey) -> Object {
        match *key {
            ObjectKey::HeapSite(site) | ObjectKey::HeapBlock { site, .. } => self.heap_object(site),
            ObjectKey::Global { module, svma } => self.global(module, svma),
            ObjectKey::DataGap { module, section_svma } => self.data_gap(module, section_svma),
            ObjectKey::Local { module, .. } => self.local(id, module),
            ObjectKey::StackFrame { module, function_svma } => Object {
                name: format!("frame of {}", self.function_name(module, function_svma)),
                module: Self::module_ix(module),
                ..Object::default()
            },
            ObjectKey::Stack { thread } => Object {
                name: match thread {
                    0 => "stack outside known frames".into(),
                    thread => format!("stack of thread {thread} outside known frames"),
                },
                ..Object::default()
            },
            ObjectKey::Tls { module, offset_bytes } => self.thread_local(module, offset_bytes),
            ObjectKey::Code { module } => Object {
                name: format!("code of {}", self.module_name(module)),
                module: Self::module_ix(module),
                ..Object::default()
            },
            ObjectKey::Mmap { file, site } => self.mapping(file, site),
            ObjectKey::Kernel { page } => Object {
                name: if page == 0 { "vvar".into() } else { self.module_name(page) },
                ..Object::default()
            },
            ObjectKey::Unknown { reason } => Object {
                name: reason.as_str().into(),
                unknown_reason: Some(reason.as_str().into()),
                ..Object::default()
            },
            _ => Object { name: "unnamed".into(), ..Object::default() },
        }
    }

    pub(crate) fn symbols(&self, module: u32) -> Option<&'a Module> {
        self.space.module(module)?.symbols.as_ref()
    }

    fn module_name(&self, module: u32) -> String {
        let path = self.space.module(module).map_or("", |module: &LoadedModule| module.path.as_str());
        match path.rsplit('/').next() {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => "unknown module".to_owned(),
        }
    }

    fn function_name(&self, module: u32, svma: u64) -> String {
        let function = self.symbols(module).and_then(|symbols| symbols.function_at(svma));
        match function.and_then(|function| function.name) {
            Some(name) => name.to_string(),
            None if module == 0 => "generated code".to_owned(),
            None => format!("{}+{svma:#x}", self.module_name(module)),
        }
    }

    fn global(&mut self, module: u32, svma: u64) -> Object {
        let symbols = self.symbols(module);
        let mut object = Object { module: Self::module_ix(module), ..Object::default() };
        let Some(symbol) = symbols.and_then(|symbols| symbols.data_symbol(svma)) else {
            object.name = format!("data of {}", self.module_name(module));
            return object;
        };
        object.name = symbol.name;
        object.bytes = Some(symbol.size);
        let info = symbols.and_then(|symbols| symbols.variable_info(svma));
        let type_ref = info.as_ref().and_then(|info| info.type_ref);
        self.variable_types.insert((module, svma), type_ref.map(|it| (module, it)));
        if let Some(info) = info {
            object.type_name = info.type_name;
            object.declared = declared(info.decl_file.as_deref(), info.decl_line);
        }
        object
    }

    fn data_gap(&self, module: u32, section_svma: u64) -> Object {
        let section = self.symbols(module).and_then(|symbols| {
            symbols.sections().iter().find(|section| section_svma != 0 && section.start == section_svma)
        });
        let place = section.map_or("data", |section| section.name.as_str());
        Object {
            module: Self::module_ix(module),
            name: format!("{place} of {}", self.module_name(module)),
            bytes: section.map(|section| section.end - section.start),
            ..Object::default()
        }
    }

    fn local(&self, id: ObjectId, module: u32) -> Object {
        let mut object = Object { module: Self::module_ix(module), ..Object::default() };
        if let Some(variable) = self.space.local(id) {
            object.name = variable.name.to_string();
            object.type_name = variable.type_name.as_deref().map(str::to_owned);
            object.declared = declared(variable.decl_file.as_deref(), variable.decl_line);
            object.bytes = Some(variable.size_bytes);
        }
        object
    }

    fn thread_local(&self, module: u32, offset_bytes: u64) -> Object {
        let mut object = Object { module: Self::module_ix(module), ..Object::default() };
        if module == 0 {
            object.name = "thread control block".into();
            return object;
        }
        let symbols = self.symbols(module);
        let symbol = symbols.and_then(|symbols| symbols.tls_symbol(offset_bytes));
        object.name = match &symbol {
            Some(symbol) => symbol.name.clone(),
            None => format!("thread-local data of {}", self.module_name(module)),
        };
        object.bytes = symbol.as_ref().map(|symbol| symbol.size);
        if let Some(info) = symbol.and(symbols).and_then(|symbols| symbols.tls_variable_info(offset_bytes)) {
            object.name = info.name;
            object.type_name = info.type_name;
            object.declared = declared(info.decl_file.as_deref(), info.decl_line);
        }
        object
    }

    fn mapping(&mut self, file: u32, site: Option<SiteId>) -> Object {
        let site_stack = site.map(|site| self.site_stack(site));
        let name = match (file, site) {
            (BREAK, _) => "allocator data (brk heap)".to_owned(),
            (ANONYMOUS, Some(site)) => return self.anonymous_mapping(site),
            (ALLOCATORS, Some(site)) => match self.naming_code(site, 0) {
                NamingCode::Function(function) => format!("allocator data (mapped by {function})"),
                NamingCode::Call(_) => "allocator data (mapped)".to_owned(),
            },
            (ALLOCATORS, None) => "allocator data (mapped)".to_owned(),
            (ANONYMOUS, None) => "anonymous mapping".to_owned(),
            (file, _) => format!("mapping of {}", self.space.file(file).unwrap_or("a file")),
        };
        Object { name, site: site_stack, ..Object::default() }
    }

    /// As a block of the heap, by the variable that receives it; else by who made it.
    fn anonymous_mapping(&mut self, site: SiteId) -> Object {
        let Receiver { level, variable } = self.receiver(site, None);
        let mut object = Object { site: Some(self.site_stack(site)), ..Object::default() };
        object.named_at = Some(self.naming_frame(site, level, variable.as_ref()));
        match variable {
            Some(variable) => {
                let key = self.space.heap.sites().stack(site).get(level);
                let module = key.map(|&key| u32::from(split_frame_key(key).0));
                self.note_block_type(site, module.zip(variable.type_ref));
                (object.name, object.type_name) = (variable.name, variable.type_name);
            }
            None => object.name = self.name_mapping_by_code(site, level),
        }
        object
    }

    fn name_mapping_by_code(&mut self, site: SiteId, level: usize) -> String {
        match self.naming_code(site, level) {
            NamingCode::Function(function) => format!("mapping by {function}"),
            NamingCode::Call(_) => "anonymous mapping".to_owned(),
        }
    }

    // ---- allocation sites ----------------------------------------------------------------------

    fn site_stack(&mut self, site: SiteId) -> StackIx {
        let keys = self.space.heap.sites().stack(site).to_vec();
        let frames = keys.into_iter().flat_map(|key| self.frames_at(key, true)).collect();
        self.stack(frames)
    }

    /// After which code a site's blocks are called from its call number `level` outwards, if that has a function with a name.
    fn naming_code(&mut self, site: SiteId, level: usize) -> NamingCode<String> {
        let keys = self.space.heap.sites().stack(site).to_vec();
        let calls = keys.into_iter().skip(level).map(|key| {
            let frames = self.frames_at(key, true);
            let frame = |ix: &FrameIx| &self.profile.frames[ix.index()];
            let named = frames.iter().map(|ix| (frame(ix).function.clone(), frame(ix).file.clone()));
            (split_frame_key(key).0, named.collect::<Vec<_>>())
        });
        match naming_code(calls) {
            NamingCode::Function(function) => NamingCode::Function(function.to_string()),
            NamingCode::Call(at) => NamingCode::Call(level + at),
        }
    }

    fn heap_object(&mut self, site: SiteId) -> Object {
        let mut object = Object { site: Some(self.site_stack(site)), ..Object::default() };
        let receiver = match self.space.site_name(site) {
            Some(SiteName::Text(name)) => {
                object.name.clone_from(name);
                object.named_at = Some(self.requests_frames(site));
                return object;
            }
            Some(&SiteName::Stored { variable, cfa_offset }) => {
                let assignment = self.slot_assignment(site, cfa_offset);
                let handed_on = matches!(assignment, Assignment::HandedOn(_));
                if !handed_on && let Some((name, type_name)) = self.variable_name(variable) {
                    (object.name, object.type_name) = (name, type_name);
                    self.note_block_type(site, self.space.variable_type(variable));
                    return object;
                }
                self.receiver(site, Some(assignment))
            }
            None => self.receiver(site, None),
        };
        let mut type_of_variable = None;
        let Receiver { level, variable } = receiver;
        object.named_at = Some(self.naming_frame(site, level, variable.as_ref()));
        match variable {
            Some(variable) => {
                let key = self.space.heap.sites().stack(site).get(level);
                let module = key.map(|&key| u32::from(split_frame_key(key).0));
                type_of_variable = module.zip(variable.type_ref);
                object.name = variable.name;
                object.type_name = variable.type_name;
            }
            None => object.name = self.name_by_code(site, level),
        }
        self.note_block_type(site, type_of_variable);
        object
    }

    /// How many of a site's innermost frames make the request by which the program named it.
    fn requests_frames(&mut self, site: SiteId) -> u32 {
        let keys = self.space.heap.sites().stack(site).to_vec();
        let frames: Vec<FrameIx> = keys.into_iter().flat_map(|key| self.frames_at(key, true)).collect();
        let is_request = |frame: &&FrameIx| {
            let function = self.profile.frames[frame.index()].function.as_deref();
            function.is_some_and(|name| name.starts_with("memlens_"))
        };
        frames.iter().take_while(is_request).count() as u32
    }

    /// Notes the type of a site's blocks, which are called after a variable of this type.
    fn note_block_type(&mut self, site: SiteId, variable: Option<(u32, TypeRef)>) {
        let calls = self.space.heap.sites().stack(site).iter().map_while(|&key| {
            let (number, svma) = split_frame_key(key);
            Some((number.into(), self.symbols(number.into())?, svma))
        });
        let variable = variable.and_then(|(number, held)| Some((number, self.symbols(number)?, held)));
        self.block_types.extend(block_type(calls, variable).map(|found| (site, found)));
    }

    /// The frame, counted from the innermost of a site's stack, in which the result of its call number
    /// `level` is kept: the outermost one of that call, unless the source says that `variable` is one of an inlined function;
    /// without a variable the innermost.
    fn naming_frame(&mut self, site: SiteId, level: usize, variable: Option<&AssignedVariable>) -> u32 {
        let keys = self.space.heap.sites().stack(site).to_vec();
        let inside: usize = keys.iter().take(level).map(|&key| self.frames_at(key, true).len()).sum();
        let Some(variable) = variable else { return inside as u32 };
        let frames = keys.get(level).map(|&key| self.frames_at(key, true)).unwrap_or_default();
        let texts = frames.iter().map(|frame| self.profile.frames[frame.index()].source_text.as_deref());
        (inside + spelling_frame(&variable.name, texts)) as u32
    }

    /// Name and type of a local, global or thread-local variable.
    fn variable_name(&mut self, id: ObjectId) -> Option<(String, Option<String>)> {
        let key = *self.space.heap.objects().key(id)?;
        let named = matches!(
            key,
            ObjectKey::Local { .. }
                | ObjectKey::Global { .. }
                | ObjectKey::DataGap { .. }
                | ObjectKey::Tls { .. }
        );
        let object = named.then(|| self.describe(id, &key))?;
        Some((object.name, object.type_name))
    }

    /// Where the address goes that a site's innermost call stored in its caller's frame.
    fn slot_assignment(&self, site: SiteId, cfa_offset: Option<i64>) -> Assignment {
        let key = self.space.heap.sites().stack(site).first();
        let assignment = key.zip(cfa_offset).and_then(|(&key, offset)| {
            let (number, svma) = split_frame_key(key);
            Some(self.symbols(number.into())?.slot_assignment(svma, offset))
        });
        assignment.unwrap_or(Assignment::Unknown)
    }

    /// Who keeps the block, from the innermost caller outwards. `first` says what becomes of the innermost call's result, if
    /// that is not the block.
    fn receiver(&mut self, site: SiteId, mut first: Option<Assignment>) -> Receiver {
        let keys = self.space.heap.sites().stack(site);
        let assignments = &mut self.assignments;
        receiver(keys.iter().map_while(|&key| {
            let (number, svma) = split_frame_key(key);
            let symbols = self.space.module(number.into())?.symbols.as_ref()?;
            Some(match first.take() {
                Some(first) => first,
                None => assignments.entry(key).or_insert_with(|| symbols.assignment(svma)).clone(),
            })
        }))
    }

    fn name_by_code(&mut self, site: SiteId, level: usize) -> String {
        let call = match self.naming_code(site, level) {
            NamingCode::Function(function) => return function,
            NamingCode::Call(call) => call,
        };
        match self.space.heap.sites().stack(site).get(call) {
            Some(&key) => {
                let (number, svma) = split_frame_key(key);
                format!("{}+{svma:#x}", self.module_name(number.into()))
            }
            None => "block allocated outside known code".to_owned(),
        }
    }
}

fn declared(file: Option<&str>, line: Option<u32>) -> Option<SourceLine> {
    Some(SourceLine { file: file?.to_owned(), line: line? })
}

//! What lies at an address: heap blocks, stacks, modules' data, thread-local storage, mappings.

use crate::line_memo::LineMemo;
use crate::space_change::{Changes, SpaceChange};
use crate::stacks::Stacks;
use memlens_objects::{
    Block, HeapObjects, Layer, Merge, ObjectId, ObjectKey, Regions, SiteId, UnknownReason, frame_key,
};
use memlens_symbols::{DataPlace, DebugSearch, FrameVariable, Module, SectionKind, TypeRef};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::path::Path;

/// Numbers of `ObjectKey::Mmap::file` that are no files.
pub const ANONYMOUS: u32 = 0;
/// The `brk` heap: what lies in it outside live blocks is the allocator's.
pub const BREAK: u32 = 1;
/// What an allocation function mapped, for blocks.
pub const ALLOCATORS: u32 = 2;
/// Numbers from here on are indices into the list of mapped files.
pub const FIRST_FILE: u32 = 3;

/// Blocks of at least this size are remembered after their end.
const REMEMBERED_BYTES: u64 = 4096;
/// Accesses of one frame to unnamed stack slots share ranges of this size.
const FRAME_GRANULE: i64 = 256;
/// The thread control block of glibc (`struct pthread`, 2,304 bytes in 2.36), rounded up.
const CONTROL_BLOCK_BYTES: u64 = 4096;

/// What an address was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The object.
    pub object: ObjectId,
    /// Where the answer stays the same.
    pub range: CacheRange,
}

/// Addresses for which an answer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheRange {
    /// This address only.
    Nothing,
    /// A range that lasts as long as its module.
    Fixed {
        /// First address.
        start: u64,
        /// Bytes.
        len: u64,
    },
    /// A range that lasts until [`AddressSpace::generation`] changes.
    Volatile {
        /// First address.
        start: u64,
        /// Bytes.
        len: u64,
    },
    /// A range relative to the frame address of the innermost function's caller.
    Caller {
        /// First address minus frame address.
        start: i64,
        /// Bytes.
        len: u64,
    },
    /// A range relative to the frame address of whatever call is innermost.
    Frame {
        /// First address minus frame address.
        start: i64,
        /// Bytes.
        len: u64,
    },
    /// This address only: it lies in the frame of a call further out, or of another thread, which may end at any
    /// time.
    OtherFrame {
        /// Frame address.
        cfa: u64,
        /// Where the object begins, minus the frame address.
        start: i64,
    },
}

/// Where an allocation site's name comes from, if not from the code around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SiteName {
    /// The program said it.
    Text(String),
    /// The block's address was stored through a pointer.
    Stored {
        /// What the address was stored into.
        variable: ObjectId,
        /// Where that is, in bytes from the caller's canonical frame address, if it is in its frame.
        cfa_offset: Option<i64>,
    },
}

/// A module of the process.
pub struct LoadedModule {
    /// The collector's id of it, as long as it is mapped at this point of the stream.
    placed: Option<u32>,
    /// Mapped addresses.
    pub range: Range<u64>,
    /// Process address minus svma.
    pub load_bias: u64,
    /// The file.
    pub path: String,
    /// What its file says.
    pub symbols: Option<Module>,
    /// Distance of its thread-local block below the thread pointer, if it has one there.
    pub tls_offset: Option<u64>,
}

impl LoadedModule {
    /// Whether it is mapped at this point of the stream.
    pub fn is_loaded(&self) -> bool {
        self.placed.is_some()
    }

    /// What its addresses are; `number`: its own.
    fn label(&self, number: u32) -> Label {
        let is_kernel = self.path.starts_with('[') || self.path.is_empty();
        if is_kernel { Label::Kernel(number) } else { Label::Module(number) }
    }
}

/// What a region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Module(u32),
    /// The stack of a thread: its id, and its number in the process.
    Stack {
        thread: u32,
        number: u32,
    },
    /// Thread-local block of a module (0: the control block above the blocks).
    Tls {
        module: u32,
        start: u64,
    },
    Mapping {
        object: ObjectId,
        holds_heap: bool,
    },
    Kernel(u32),
}

impl Label {
    /// The same in a process that thread number `forking` forks.
    fn forked(self, forking: usize) -> Self {
        match self {
            Self::Stack { thread, number } => {
                let is_first = number as usize == forking;
                Self::Stack { thread, number: if is_first { 0 } else { u32::MAX } }
            }
            other => other,
        }
    }
}

/// Answers of [`AddressSpace::frame_object`], by code address and offset.
#[derive(Clone, Copy, Default)]
struct FrameEntry {
    pc: u64,
    start: i64,
    len: u64,
    object: Option<ObjectId>,
}

/// A power of two: enough for the hot call sites of a program.
const FRAME_MEMO_ENTRIES: usize = 8192;

/// The process's memory.
pub struct AddressSpace {
    /// Heap blocks, objects and sites.
    pub heap: HeapObjects,
    modules: Vec<LoadedModule>,
    /// Numbers of modules by the collector's ids, of those that have gone, too.
    numbers: FxHashMap<u32, u16>,
    /// Loaded modules by start address: (start, end, number).
    by_address: Vec<(u64, u64, u32)>,
    regions: Regions,
    labels: Vec<Label>,
    /// Names of mapped files, from [`FIRST_FILE`].
    files: Vec<String>,
    /// Large blocks that ended, by address: lines of theirs may still be in the caches.
    former: Regions,
    /// Names of sites that neither code nor debug information tells.
    site_names: FxHashMap<SiteId, SiteName>,
    /// What is known of locals that were touched.
    locals: FxHashMap<ObjectId, FrameVariable>,
    last: (Range<u64>, u32),
    /// What was unmapped last, if it was a mapping: from where on, and what it was.
    last_unmapped: Option<(u64, Label)>,
    lines: LineMemo,
    frame_memo: Vec<FrameEntry>,
    region_generation: u64,
    /// Accesses so far, as far as known.
    now: u64,
    break_start: Option<u64>,
    /// Threads in the order in which their stacks were seen.
    stack_order: Vec<u32>,
    search: DebugSearch,
    changes: Changes,
}

impl AddressSpace {
    /// An empty one.
    pub fn new(merge: Merge, search: DebugSearch) -> Self {
        Self {
            heap: HeapObjects::new(merge),
            modules: Vec::new(),
            numbers: FxHashMap::default(),
            by_address: Vec::new(),
            regions: Regions::new(),
            labels: Vec::new(),
            files: Vec::new(),
            former: Regions::new(),
            site_names: FxHashMap::default(),
            locals: FxHashMap::default(),
            last: (0..0, 0),
            last_unmapped: None,
            lines: LineMemo::new(),
            frame_memo: vec![FrameEntry::default(); FRAME_MEMO_ENTRIES],
            region_generation: 0,
            now: 0,
            break_start: None,
            stack_order: Vec::new(),
            search,
            changes: Changes::default(),
        }
    }

    /// The memory of a process that this one forks now: the same, except that nothing was allocated in
    /// it yet, and that it has one thread, which has number `forking` here and 0 there. Its modules' files are
    /// opened by [`Self::open_modules`]. Cost: linear in its tables.
    pub fn fork(&self, forking: usize) -> Self {
        let mut heap = self.heap.clone();
        heap.objects_mut().forget_history();
        let modules = self.modules.iter().map(|module| LoadedModule {
            range: module.range.clone(),
            path: module.path.clone(),
            symbols: None,
            ..*module
        });
        Self {
            heap,
            modules: modules.collect(),
            numbers: self.numbers.clone(),
            by_address: self.by_address.clone(),
            regions: self.regions.clone(),
            labels: self.labels.iter().map(|label| label.forked(forking)).collect(),
            files: self.files.clone(),
            former: self.former.clone(),
            site_names: self.site_names.clone(),
            locals: self.locals.clone(),
            last: (0..0, 0),
            last_unmapped: None,
            lines: LineMemo::new(),
            frame_memo: vec![FrameEntry::default(); FRAME_MEMO_ENTRIES],
            region_generation: self.region_generation,
            now: self.now,
            break_start: self.break_start,
            stack_order: self.stack_order.clone(),
            search: self.search.clone(),
            changes: self.changes.clone(),
        }
    }

    /// Opens the files of modules that [`Self::fork`] left closed.
    pub fn open_modules(&mut self) {
        for module in &mut self.modules {
            if module.symbols.is_none() {
                module.symbols = Module::open(Path::new(&module.path), &self.search).ok();
            }
        }
    }

    /// Changes when a volatile range may no longer hold.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.region_generation.wrapping_add(self.heap.blocks().range_generation())
    }

    /// So many accesses were made; blocks are old by this count.
    pub fn set_now(&mut self, accesses: u64) {
        self.now = accesses;
    }

    /// All modules ever loaded; module number = index + 1.
    pub fn modules(&self) -> &[LoadedModule] {
        &self.modules
    }

    /// The module with this number.
    pub fn module(&self, number: u32) -> Option<&LoadedModule> {
        self.modules.get((number as usize).checked_sub(1)?)
    }

    /// What is known of a local variable.
    pub fn local(&self, object: ObjectId) -> Option<&FrameVariable> {
        self.locals.get(&object)
    }

    /// The type of a variable, and its module.
    pub fn variable_type(&self, variable: ObjectId) -> Option<(u32, TypeRef)> {
        match *self.heap.objects().key(variable)? {
            ObjectKey::Local { module, .. } => Some((module, self.local(variable)?.type_ref?)),
            ObjectKey::Global { module, svma } => {
                let symbols = self.module(module)?.symbols.as_ref()?;
                Some((module, symbols.variable_info(svma)?.type_ref?))
            }
            ObjectKey::Tls { module, offset_bytes } => {
                let symbols = self.module(module)?.symbols.as_ref()?;
                Some((module, symbols.tls_variable_info(offset_bytes)?.type_ref?))
            }
            _ => None,
        }
    }

    /// Names a site, if it has no name yet.
    pub fn name_site(&mut self, site: SiteId, name: SiteName) {
        self.site_names.entry(site).or_insert(name);
    }

    /// The name given to a site.
    pub fn site_name(&self, site: SiteId) -> Option<&SiteName> {
        self.site_names.get(&site)
    }

    /// The mapped file with this number.
    pub fn file(&self, number: u32) -> Option<&str> {
        self.files.get(number.checked_sub(FIRST_FILE)? as usize).map(String::as_str)
    }

    // ---- modules -------------------------------------------------------------------------------

    /// Adds a module; returns its number. One that was there before, at the same place, is the same.
    pub fn add_module(&mut self, id: u32, range: Range<u64>, load_bias: u64, path: &str) -> u32 {
        let symbols = Module::open(Path::new(path), &self.search).ok();
        let build_id = symbols.as_ref().and_then(Module::build_id);
        let is_same = |known: &LoadedModule| {
            let known_build_id = known.symbols.as_ref().and_then(Module::build_id);
            (&known.range, known.load_bias, known.path.as_str()) == (&range, load_bias, path)
                && build_id.is_some()
                && build_id == known_build_id
        };
        let at = self.modules.iter().position(is_same).unwrap_or_else(|| {
            self.modules.push(LoadedModule {
                placed: None,
                range: range.clone(),
                load_bias,
                path: path.to_owned(),
                symbols,
                tls_offset: None,
            });
            self.modules.len() - 1
        });
        let number = at as u32 + 1;
        self.numbers.insert(id, u16::try_from(number).unwrap_or(0));
        self.set_module_at(range.clone(), number);
        // A definition is ahead of the stream, and stands for the event where there is none. Where something else lies, such as a library
        // that is going to be unloaded, accesses to that are still to come.
        if let (gap, None) = self.regions.get_or_gap(range.start)
            && gap.end >= range.end
        {
            self.modules[at].placed = Some(id);
            self.label(range, self.modules[at].label(number));
        }
        number
    }

    /// From now on addresses in a range are looked up in this module.
    fn set_module_at(&mut self, range: Range<u64>, number: u32) {
        self.by_address.retain(|&(start, end, _)| end <= range.start || range.end <= start);
        self.by_address.push((range.start, range.end, number));
        self.by_address.sort_unstable();
    }

    /// The place in `modules` of the one that the collector called `id`.
    fn position(&self, id: u32) -> Option<usize> {
        usize::from(*self.numbers.get(&id)?).checked_sub(1)
    }

    /// The module with the collector's id `id`, which was added before, is mapped at this point of the
    /// stream: what was unmapped there between the two no longer matters.
    pub fn place_module(&mut self, id: u32) {
        let Some(at) = self.position(id) else { return };
        let (range, number) = (self.modules[at].range.clone(), at as u32 + 1);
        self.modules[at].placed = Some(id);
        self.set_module_at(range.clone(), number);
        self.label(range, self.modules[at].label(number));
    }

    /// The module with the collector's id `id` is gone.
    pub fn remove_module(&mut self, id: u32) {
        self.frame_memo.fill(FrameEntry::default());
        self.lines.clear();
        let Some(at) = self.position(id).filter(|&at| self.modules[at].placed == Some(id)) else { return };
        self.modules[at].placed = None;
        let range = self.modules[at].range.clone();
        self.by_address.retain(|&(_, _, number)| number as usize != at + 1);
        self.unlabel(range);
    }

    /// Number and svma of the code or data at `addr`, if a loaded module has it.
    pub fn module_at(&self, addr: u64) -> Option<(u32, u64)> {
        let after = self.by_address.partition_point(|&(start, _, _)| start <= addr);
        let &(_, end, number) = self.by_address.get(after.checked_sub(1)?)?;
        let module = self.module(number).filter(|_| addr < end)?;
        Some((number, addr.wrapping_sub(module.load_bias)))
    }

    /// The number of the module with the collector's id `id`, as frame keys have it: 0 for none, and where their
    /// numbers do not suffice.
    pub fn code_module(&self, id: u32) -> u16 {
        self.numbers.get(&id).copied().unwrap_or(0)
    }

    /// `pc` as a frame key: number and svma of the module that is mapped there now, or the address itself outside
    /// modules.
    pub fn frame_key(&self, pc: u64) -> u64 {
        let number = self.module_at(pc).and_then(|(number, _)| u16::try_from(number).ok());
        self.frame_key_in(number.unwrap_or(0), pc)
    }

    /// As [`Self::frame_key`], of code that was `module`'s when it ran, whatever is mapped there now.
    pub fn frame_key_in(&self, module: u16, pc: u64) -> u64 {
        let load_bias = self.module(module.into()).map_or(0, |module| module.load_bias);
        frame_key(module, pc.wrapping_sub(load_bias))
    }

    // ---- regions -------------------------------------------------------------------------------

    /// Notes changes from now on.
    pub fn note_changes(&mut self) {
        self.changes.begin();
    }

    /// The changes since the last call.
    pub fn take_changes(&mut self) -> Vec<SpaceChange> {
        self.changes.take()
    }

    fn label(&mut self, range: Range<u64>, label: Label) {
        self.changes.note(|| SpaceChange::Labelled(range.clone()));
        let number = self.labels.len() as u32;
        self.labels.push(label);
        self.regions.insert(range, number);
        self.last = (0..0, 0);
        self.region_generation += 1;
    }

    fn unlabel(&mut self, range: Range<u64>) {
        self.changes.note(|| SpaceChange::Unlabelled(range.clone()));
        self.regions.remove(range);
        self.last = (0..0, 0);
        self.region_generation += 1;
    }

    fn region(&mut self, addr: u64) -> Option<(Range<u64>, u32)> {
        if self.last.0.contains(&addr) {
            return Some(self.last.clone());
        }
        let found = self.regions.get(addr)?;
        self.last = found.clone();
        Some(found)
    }

    /// The region that `addr` lies in: of a mapping, module, stack or thread-local block, the part that
    /// nothing was laid over.
    pub fn region_around(&mut self, addr: u64) -> Option<Range<u64>> {
        self.region(addr).map(|(range, _)| range)
    }

    /// The process mapped memory. `path` is the file, if one is known; `is_allocators`: an allocation function did.
    pub fn map(&mut self, range: Range<u64>, path: Option<&str>, site: Option<SiteId>, is_allocators: bool) {
        if range.is_empty() {
            return;
        }
        // A module's own segments and the zeroed part behind them belong to the module. Its definition may be ahead of this, and of
        // the end of what was there before.
        if let Some((number, _)) = self.module_at(range.start) {
            if let Some(module) = self.module(number) {
                let (end, label) = (module.range.end, module.label(number));
                self.label(range.start..range.end.min(end), label);
            }
            return;
        }
        let file = match path {
            Some(path) => self.file_number(path),
            None if is_allocators => ALLOCATORS,
            None => ANONYMOUS,
        };
        let object = self.heap.objects_mut().intern(ObjectKey::Mmap { file, site });
        if let Some(stats) = self.heap.objects_mut().stats_mut(object) {
            stats.allocated(range.end - range.start, 0);
        }
        self.label(range, Label::Mapping { object, holds_heap: false });
    }

    fn file_number(&mut self, path: &str) -> u32 {
        let at = self.files.iter().position(|known| known == path).unwrap_or_else(|| {
            self.files.push(path.to_owned());
            self.files.len() - 1
        });
        FIRST_FILE + at as u32
    }

    /// The process unmapped memory.
    pub fn unmap(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            let label = self.regions.get(range.start).map(|(_, number)| self.labels[number as usize]);
            let mapping = label.filter(|label| matches!(label, Label::Mapping { .. }));
            self.last_unmapped = mapping.map(|label| (range.start, label));
            self.unlabel(range);
        }
    }

    /// What was mapped at `old`, and unmapped just now, lies in `range` (mremap(2)). Whether it is known what that is.
    pub fn remap(&mut self, old: u64, range: Range<u64>) -> bool {
        let Some((_, label)) = self.last_unmapped.take().filter(|(start, _)| *start == old) else {
            return false;
        };
        self.label(range, label);
        true
    }

    /// The end of the `brk` heap moved.
    pub fn set_break(&mut self, end: u64) {
        let start = *self.break_start.get_or_insert(end);
        if end > start {
            let object = self.heap.objects_mut().intern(ObjectKey::Mmap { file: BREAK, site: None });
            self.label(start..end, Label::Mapping { object, holds_heap: true });
        }
    }

    /// Pages that the kernel provides.
    pub fn add_kernel_pages(&mut self, range: Range<u64>) {
        self.label(range, Label::Kernel(0));
    }

    /// A thread of this id and number starts with this stack pointer; returns its stack.
    pub fn add_stack(
        &mut self,
        (thread, number): (u32, usize),
        stack_pointer: u64,
        known: Option<Range<u64>>,
    ) -> Range<u64> {
        let range = known
            .or_else(|| self.regions.get(stack_pointer).map(|(range, _)| range))
            .unwrap_or_else(|| stack_pointer.saturating_sub(64 << 10)..stack_pointer.saturating_add(4096));
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        self.label(range.clone(), Label::Stack { thread, number });
        if !self.stack_order.contains(&thread) {
            self.stack_order.push(thread);
        }
        range
    }

    /// The how manyth thread one was to have a stack, from 1: the same in each run, as ids of threads are not.
    pub fn stack_number(&self, thread: u32) -> Option<usize> {
        self.stack_order.iter().position(|&known| known == thread).map(|at| at + 1)
    }

    /// The stack that `slot` lies on, for a thread that left its own, and whether it is a region of
    /// its own: otherwise it is part of a heap block, which its accesses then count for.
    pub fn stack_around(&mut self, slot: u64) -> (Range<u64>, bool) {
        if let Some(block) = self.heap.blocks().block_at(slot) {
            return (block.start..block.start + block.len_bytes, false);
        }
        let page = slot & !0xfff;
        match self.region(slot) {
            Some((range, number)) => (range, matches!(self.labels[number as usize], Label::Stack { .. })),
            None => (page..page + 4096, false),
        }
    }

    /// A thread's thread pointer became known: places the thread-local blocks below it (variant II of
    /// the ELF TLS ABI: the executable's block ends at the thread pointer, rounded to its alignment;
    /// those of libraries loaded at start follow downwards in load order).
    pub fn add_tls(&mut self, thread_pointer: u64) {
        if thread_pointer == 0 {
            return;
        }
        let is_first = self.modules.iter().all(|module| module.tls_offset.is_none());
        let mut offset = 0_u64;
        for index in 0..self.modules.len() {
            let module = &mut self.modules[index];
            let Some(tls) = module.symbols.as_ref().and_then(Module::tls_segment) else { continue };
            if is_first {
                offset = (offset + tls.size_bytes).next_multiple_of(tls.align_bytes.max(1));
                module.tls_offset = Some(offset);
            }
            if let Some(offset) = module.tls_offset {
                let start = thread_pointer.wrapping_sub(offset);
                let label = Label::Tls { module: index as u32 + 1, start };
                self.label(start..start + tls.size_bytes, label);
            }
        }
        let label = Label::Tls { module: 0, start: thread_pointer };
        // No further than the mapping goes.
        let end = self.regions.get(thread_pointer).map_or(thread_pointer, |(range, _)| range.end);
        let end = end.min(thread_pointer + CONTROL_BLOCK_BYTES);
        if end > thread_pointer {
            self.label(thread_pointer..end, label);
        }
    }

    // ---- heap ----------------------------------------------------------------------------------

    /// A block was allocated.
    pub fn allocated(&mut self, start: u64, len: u64, layer: Layer, site: SiteId, serial: u64) {
        // What an allocation lies in serves the allocator from now on.
        if let Some((range, number)) = self.region(start)
            && let Label::Mapping { object, holds_heap: false } = self.labels[number as usize]
        {
            // The user's own mapping stays one object; sub-blocks are recognised by the heap layer.
            self.labels[number as usize] = Label::Mapping { object, holds_heap: true };
            self.last = (range, number);
            self.region_generation += 1;
        }
        // An address range that cannot be represented stays what its region is.
        let _ = self.heap.allocated_at_site(start, len, layer, site, serial);
        self.note_block(start, layer);
    }

    /// A block was freed.
    pub fn freed(&mut self, start: u64, layer: Layer) {
        if let Some(block) = self.heap.freed(start, layer) {
            self.changes.note_block(layer, start, block.len_bytes, None);
            self.remember(block);
        }
    }

    /// A block got another size, and perhaps another place.
    pub fn reallocated(&mut self, old: u64, new: u64, len: u64, layer: Layer, site: SiteId, serial: u64) {
        let block = self.heap.blocks().block_starting_at(old, layer);
        if let Some(block) = &block {
            self.changes.note_block(layer, old, block.len_bytes, None);
        }
        let block = block.filter(|_| old != new);
        let stack = self.heap.sites().stack(site).to_vec();
        // A block that cannot be represented stays what its region is.
        let _ = self.heap.reallocated(old, new, len, layer, &stack, serial);
        self.note_block(new, layer);
        if let Some(block) = block {
            self.remember(block);
        }
    }

    fn note_block(&mut self, start: u64, layer: Layer) {
        if self.changes.are_wanted()
            && let Some(block) = self.heap.blocks().block_starting_at(start, layer)
        {
            self.changes.note_block(layer, start, block.len_bytes, Some(block.object));
        }
    }

    fn remember(&mut self, block: Block) {
        if block.len_bytes >= REMEMBERED_BYTES {
            self.former.insert(block.start..block.start + block.len_bytes, block.object.get());
        }
    }

    /// Whose a line is that is written back to memory. If nothing lives there any more, the large block
    /// that was there last.
    pub fn owner(&mut self, line: u64, stacks: Stacks<'_>) -> ObjectId {
        let object = self.resolve(line, 0, stacks).object;
        let is_live = match self.heap.objects().key(object) {
            Some(ObjectKey::Unknown { .. }) => false,
            Some(ObjectKey::Mmap { file, .. }) => *file >= FIRST_FILE,
            _ => true,
        };
        let former = if is_live { None } else { self.former.get(line) };
        former.and_then(|(_, number)| ObjectId::new(number)).unwrap_or(object)
    }

    // ---- lookup --------------------------------------------------------------------------------

    /// The object at `addr` if that is known at once: a block, or a line or variable looked up lately.
    #[inline(always)]
    pub fn known_at(&self, addr: u64) -> Option<ObjectId> {
        let block = self.heap.blocks().object_at(addr);
        block.or_else(|| self.lines.get(addr, self.generation()))
    }

    /// How far from the beginning of its block or variable an address is that [`Self::known_at`] knows.
    pub fn offset_at(&self, addr: u64) -> Option<u64> {
        Some(self.place_at(addr)?.1)
    }

    /// The block, variable or mapping at `addr`, if that is known at once, and how far from its beginning.
    pub fn place_at(&self, addr: u64) -> Option<(ObjectId, u64)> {
        if let Some(block) = self.heap.blocks().block_at(addr) {
            return Some((block.object, addr - block.start));
        }
        if let Some((object, range)) = self.lines.variable(addr) {
            return Some((object, addr - range.start));
        }
        let (range, number) = self.regions.get(addr)?;
        match self.labels[number as usize] {
            Label::Mapping { object, holds_heap: false } => Some((object, addr - range.start)),
            _ => None,
        }
    }

    /// How far from the beginning of its block or variable an address is, for which [`Self::resolve`] gave `range` in
    /// a thread with these calls under way.
    pub fn offset_of(&self, addr: u64, range: CacheRange, stacks: Stacks<'_>) -> Option<u64> {
        let stack = stacks.own;
        match range {
            CacheRange::Nothing => self.offset_at(addr),
            CacheRange::Fixed { start, .. } | CacheRange::Volatile { start, .. } => addr.checked_sub(start),
            CacheRange::Frame { start, .. } => addr.checked_sub(stack.cfa().wrapping_add_signed(start)),
            CacheRange::Caller { start, .. } => {
                let [.., called, _] = stack.frames() else { return None };
                addr.checked_sub(called.slot.wrapping_add(8).wrapping_add_signed(start))
            }
            CacheRange::OtherFrame { cfa, start } => addr.checked_sub(cfa.wrapping_add_signed(start)),
        }
    }

    /// What lies at `addr`, accessed by the code at `pc` in a thread with these calls under way.
    pub fn resolve(&mut self, addr: u64, pc: u64, stacks: Stacks<'_>) -> Resolved {
        // A block in a variable's memory goes first.
        if let Some((object, range)) = self.lines.variable(addr)
            && self.heap.blocks().object_at(addr).is_none()
        {
            let range = CacheRange::Fixed { start: range.start, len: range.end - range.start };
            return Resolved { object, range };
        }
        let Resolved { object, range } = self.look_up(addr, pc, stacks);
        if let CacheRange::Fixed { start, len } | CacheRange::Volatile { start, len } = range {
            let (generation, owned) = (self.generation(), start..start.saturating_add(len));
            let is_line = self.lines.put_line(addr, &owned, generation, object);
            if !is_line && matches!(range, CacheRange::Fixed { .. }) {
                self.lines.put_variable(addr, owned, object);
            }
        }
        Resolved { object, range }
    }

    /// The region at an address and its object, whatever heap blocks lie there; stacks are one object each.
    pub(crate) fn region_object(&mut self, addr: u64) -> Option<(Range<u64>, Resolved)> {
        let (range, number) = self.region(addr)?;
        let resolved = match self.labels[number as usize] {
            Label::Stack { thread, .. } => self.plain(ObjectKey::Stack { thread }),
            Label::Module(number) => self.resolve_module(addr, number),
            Label::Tls { module, start } => self.resolve_tls(addr, module, start, range.clone()),
            Label::Mapping { object, .. } => Resolved { object, range: CacheRange::Nothing },
            Label::Kernel(page) => self.plain(ObjectKey::Kernel { page }),
        };
        Some((range, resolved))
    }

    /// Mappings of at least `least_bytes` bytes, each with its object's number.
    pub(crate) fn large_mappings(&self, least_bytes: u64) -> Vec<(Range<u64>, u32)> {
        let large = self.regions.iter().filter(|(range, _)| range.end - range.start >= least_bytes);
        large
            .filter_map(|(range, label)| match self.labels.get(label as usize)? {
                Label::Mapping { object, .. } => Some((range, object.get())),
                _ => None,
            })
            .collect()
    }

    /// Whether the region at an address is one object.
    pub(crate) fn is_whole(&mut self, addr: u64) -> bool {
        let label = self.region(addr).map(|(_, number)| self.labels[number as usize]);
        matches!(label, Some(Label::Stack { .. } | Label::Mapping { .. } | Label::Kernel(_)))
    }

    /// Whether the region at an address is a thread-local block.
    pub(crate) fn is_thread_local(&mut self, addr: u64) -> bool {
        let label = self.region(addr).map(|(_, number)| self.labels[number as usize]);
        matches!(label, Some(Label::Tls { .. }))
    }

    fn look_up(&mut self, addr: u64, pc: u64, stacks: Stacks<'_>) -> Resolved {
        let stack = stacks.own;
        if stack.is_region() && stack.range().contains(&addr) {
            return self.resolve_stack(addr, pc, (0, u32::MAX), stacks);
        }
        if let Some(block) = self.heap.lend_range(addr, self.now) {
            let range = CacheRange::Volatile { start: block.start, len: block.len_bytes };
            return Resolved { object: block.object, range };
        }
        if let Some(object) = self.heap.blocks().object_at(addr) {
            return Resolved { object, range: CacheRange::Nothing };
        }
        let region = self.region(addr);
        let label = region.as_ref().map(|(_, number)| self.labels[*number as usize]);
        match (region, label) {
            (Some(_), Some(Label::Stack { thread, number })) => {
                self.resolve_stack(addr, pc, (thread, number), stacks)
            }
            (Some(_), Some(Label::Module(number))) => self.resolve_module(addr, number),
            (Some((range, _)), Some(Label::Tls { module, start })) => {
                self.resolve_tls(addr, module, start, range)
            }
            (Some((range, _)), Some(Label::Mapping { object, holds_heap })) => {
                let range = if holds_heap {
                    CacheRange::Nothing
                } else {
                    CacheRange::Volatile { start: range.start, len: range.end - range.start }
                };
                Resolved { object, range }
            }
            (Some(_), Some(Label::Kernel(page))) => self.plain(ObjectKey::Kernel { page }),
            _ if stack.range().contains(&addr) => self.resolve_stack(addr, pc, (0, u32::MAX), stacks),
            _ => self.plain(ObjectKey::Unknown { reason: UnknownReason::Unmapped }),
        }
    }

    fn plain(&mut self, key: ObjectKey) -> Resolved {
        Resolved { object: self.heap.objects_mut().intern(key), range: CacheRange::Nothing }
    }

    /// `owner`: id and number of the thread whose stack it is, if that is another one, or a stack that was left.
    fn resolve_stack(&mut self, addr: u64, pc: u64, owner: (u32, u32), stacks: Stacks<'_>) -> Resolved {
        let stack = stacks.own;
        let frames = stack.frames();
        if !stack.range().contains(&addr) {
            return self.resolve_other_stack(addr, owner, stacks);
        }
        if addr < stack.cfa() {
            let (object, start, len) = self.frame_object(pc, addr.wrapping_sub(stack.cfa()) as i64);
            return Resolved { object, range: CacheRange::Frame { start, len } };
        }
        match stack.frame_of(addr) {
            Some(index) if index + 1 < frames.len() => {
                let caller_pc = frames[index + 1].return_pc.wrapping_sub(1);
                let cfa = frames[index].slot.wrapping_add(8);
                let offset = addr.wrapping_sub(cfa) as i64;
                let (object, start, len) = self.frame_object(caller_pc, offset);
                let is_caller = index + 2 == frames.len();
                let range = match is_caller {
                    true => CacheRange::Caller { start, len },
                    false => CacheRange::OtherFrame { cfa, start },
                };
                Resolved { object, range }
            }
            _ => self.plain(ObjectKey::Stack { thread: owner.0 }),
        }
    }

    /// A stack on which the thread at hand is not. The frames are those that its owner has now, in the order of the
    /// records: whoever is told where a local is learns it by something that both threads see, mostly an event.
    fn resolve_other_stack(
        &mut self,
        addr: u64,
        (thread, number): (u32, u32),
        stacks: Stacks<'_>,
    ) -> Resolved {
        if let Some(frame) = stacks.around(addr, number).and_then(|calls| calls.frame_at(addr)) {
            let offset = addr.wrapping_sub(frame.cfa) as i64;
            let (object, start, _) = self.frame_object(frame.pc.wrapping_sub(1), offset);
            // Below the variables of the innermost function nothing says whose the stack is.
            let is_named = matches!(self.heap.objects().key(object), Some(ObjectKey::Local { .. }));
            if is_named || !frame.is_innermost {
                return Resolved { object, range: CacheRange::OtherFrame { cfa: frame.cfa, start } };
            }
        }
        self.plain(ObjectKey::Stack { thread })
    }

    /// As [`Self::find_frame_object`], remembered.
    #[inline]
    fn frame_object(&mut self, pc: u64, offset: i64) -> (ObjectId, i64, u64) {
        let mix = (pc ^ (offset as u64 >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .wrapping_mul(0x2545_f491_4f6c_dd1d);
        let at = (mix >> 40) as usize % FRAME_MEMO_ENTRIES;
        let known = self.frame_memo[at];
        if let Some(object) = known.object
            && known.pc == pc
            && (offset.wrapping_sub(known.start) as u64) < known.len
        {
            return (object, known.start, known.len);
        }
        let (object, start, len) = self.find_frame_object(pc, offset);
        self.frame_memo[at] = FrameEntry { pc, start, len, object: Some(object) };
        (object, start, len)
    }

    /// The variable, or else the unnamed part, at `offset` from the frame address of the function that
    /// contains `pc`; and the range of offsets (start, length) for which that holds.
    fn find_frame_object(&mut self, pc: u64, offset: i64) -> (ObjectId, i64, u64) {
        let (number, svma) = self.module_at(pc).unwrap_or((0, pc));
        let symbols = self.module(number).and_then(|module| module.symbols.as_ref());
        let function_svma = symbols.and_then(|symbols| symbols.function_at(svma)).map_or(0, |f| f.start);
        let granule = offset & !(FRAME_GRANULE - 1);
        let (mut start, mut end) = (granule, (granule + FRAME_GRANULE).min(0));
        let mut found: Option<FrameVariable> = None;
        if let Some(symbols) = symbols {
            for variable in symbols.frame_variables(svma).iter() {
                let (low, high) =
                    (variable.cfa_offset, variable.cfa_offset + variable.size_bytes.max(1) as i64);
                if (low..high).contains(&offset) {
                    // Innermost scopes come last.
                    found = Some(variable.clone());
                } else if high <= offset {
                    start = start.max(high);
                } else {
                    end = end.min(low);
                }
            }
        }
        let objects = self.heap.objects_mut();
        match found {
            Some(variable) => {
                let (low, len) = (variable.cfa_offset, variable.size_bytes.max(1));
                let object = objects.intern(ObjectKey::Local {
                    module: number,
                    function_svma,
                    cfa_offset: low,
                    declaration: declaration_of(&variable),
                });
                self.locals.entry(object).or_insert(variable);
                (object, low, len)
            }
            None => {
                let object = objects.intern(ObjectKey::StackFrame { module: number, function_svma });
                (object, start, end.saturating_sub(start).max(0) as u64)
            }
        }
    }

    fn resolve_module(&mut self, addr: u64, number: u32) -> Resolved {
        let Some(module) = self.module(number) else {
            return self.plain(ObjectKey::Unknown { reason: UnknownReason::UnlabelledRegion });
        };
        let bias = module.load_bias;
        let svma = addr.wrapping_sub(bias);
        let (key, range) = match &module.symbols {
            None => (ObjectKey::DataGap { module: number, section_svma: 0 }, None),
            Some(symbols) => {
                let section = symbols.sections().iter().find(|section| section.contains(svma));
                match (symbols.data_place(svma), section) {
                    (DataPlace::Variable(range), _) => {
                        (ObjectKey::Global { module: number, svma: range.start }, Some(range))
                    }
                    (DataPlace::Gap(_), Some(section)) if section.kind == SectionKind::Text => {
                        (ObjectKey::Code { module: number }, Some(section.start..section.end))
                    }
                    // Between two variables of the section, or in one without symbols.
                    (DataPlace::Gap(gap), Some(section)) => {
                        let range = gap.start.max(section.start)..gap.end.min(section.end);
                        (ObjectKey::DataGap { module: number, section_svma: section.start }, Some(range))
                    }
                    (DataPlace::Gap(_), None) => {
                        (ObjectKey::DataGap { module: number, section_svma: 0 }, None)
                    }
                }
            }
        };
        let object = self.heap.objects_mut().intern(key);
        let range = range.map_or(CacheRange::Nothing, |range| CacheRange::Fixed {
            start: range.start.wrapping_add(bias),
            len: range.end - range.start,
        });
        Resolved { object, range }
    }

    fn resolve_tls(&mut self, addr: u64, number: u32, start: u64, region: Range<u64>) -> Resolved {
        let offset = addr.wrapping_sub(start);
        let symbols = self.module(number).and_then(|module| module.symbols.as_ref());
        let variable = symbols.and_then(|symbols| match symbols.tls_place(offset) {
            DataPlace::Variable(range) => Some(range),
            _ => None,
        });
        let (offset_bytes, range) = match variable {
            Some(range) => (range.start, start + range.start..start + range.end),
            // The unnamed rest; a number no variable has.
            None => (u64::MAX, addr..addr + 1),
        };
        let object = self.heap.objects_mut().intern(ObjectKey::Tls { module: number, offset_bytes });
        let end = range.end.min(region.end);
        let len = end.saturating_sub(range.start);
        Resolved { object, range: CacheRange::Volatile { start: range.start, len } }
    }
}

/// Tells locals of disjoint scopes apart that share a place.
fn declaration_of(variable: &FrameVariable) -> u64 {
    use std::hash::{Hash, Hasher};
    let mut hasher = rustc_hash::FxHasher::default();
    (&variable.name, variable.decl_line, &variable.inlined_from).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_process_has_the_stack_of_the_thread_that_forked_only() {
        let number = |label: Label| match label.forked(3) {
            Label::Stack { thread: 104, number } => Some(number),
            _ => None,
        };
        assert_eq!(number(Label::Stack { thread: 104, number: 3 }), Some(0));
        // Number 0 is another one's there.
        assert_eq!(number(Label::Stack { thread: 104, number: 0 }), Some(u32::MAX));
        assert_eq!(Label::Kernel(3).forked(3), Label::Kernel(3));
    }
}

//! A process's memory as it changes: heap blocks, stacks, modules' data, thread-local storage, mappings. What lies at an address:
//! `address_space/lookup.rs`.

mod lookup;

pub use self::lookup::CacheRange;

use crate::line_memo::LineMemo;
use crate::space_change::{Changes, SpaceChange};
use memlens_objects::{Block, HeapObjects, Layer, Merge, ObjectId, ObjectKey, Regions, SiteId, frame_key};
use memlens_symbols::{DebugSearch, FrameVariable, Module, TypeRef};
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
/// The thread control block of glibc (`struct pthread`, 2,304 bytes in 2.36), rounded up.
const CONTROL_BLOCK_BYTES: u64 = 4096;

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
        heap.forget_history();
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

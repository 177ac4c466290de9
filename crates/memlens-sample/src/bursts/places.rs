//! Whose an address is, remembered for the next one.

use std::hash::BuildHasher;
use std::ops::Range;

use memlens_locality::Extent;
use memlens_objects::SiteId;
use memlens_profile::{CallPaths, PathId};
use memlens_symbols::DataPlace;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::calls::{Accessor, Calls};
use crate::address_space::{AddressSpace, Area, Code, Place};
use crate::distinct_pages::PAGE_BYTES;
use crate::heap::Heap;
use crate::modules::Files;
use crate::naming::thread_locals_start;
use crate::on_behalf::is_on_behalf;
use crate::spot::{HeapMemory, Spot};
use crate::unwinder::{StackFrame, frame_around};

/// Alignment of heap blocks: what lies in between is one block's.
const GRANULE: u64 = 16;
/// Blocks of so many bytes in the break are their site's.
const LARGE_BYTES: u64 = 1 << 16;
/// References and pages whose memory was looked up last, as a power of two: 80 bytes each.
const RECENT_BITS: u32 = 10;
/// A distance from the canonical frame address at which no variable is.
const NO_LOCAL: i64 = i64::MIN;
/// Stacks of other threads that are looked through for an address which may be of any mapping.
const MOST_OTHERS: usize = 64;
/// Frames of a thread that is in its first function: `main` has `_start` and two of the C library's above it.
const MOST_FRAMES_OF_FIRST: usize = 4;
/// Most distances of instructions that are remembered.
const MOST_LOCALS: usize = 1 << 16;

/// Memory as it was when a burst began.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The process.
    pub pid: u32,
    /// When the burst began.
    pub began_ns: u64,
    /// Its mappings.
    pub space: &'a AddressSpace,
    /// Their files.
    pub files: &'a Files,
    /// Watched blocks.
    pub heap: &'a Heap,
    /// The thread's stack: its pointer, and its frames.
    pub stack: Option<&'a (u64, Vec<StackFrame>)>,
    /// The same of the process's other threads, as they were when they were sampled last.
    pub others: &'a [&'a (u64, Vec<StackFrame>)],
    /// The thread's pointer.
    pub thread_pointer: u64,
}

impl Surroundings<'_> {
    /// File and svma of an instruction.
    pub fn code(&self, pc: u64) -> Code {
        self.space.code(pc)
    }

    /// Whether code tells the time: `clock_gettime`, or the kernel's part of it.
    pub fn is_clock(&self, pc: u64) -> bool {
        let (file, svma) = match self.space.find(pc) {
            Place::Image { file, svma } => (file, svma),
            place => return place == Place::Area(Area::Kernel),
        };
        let symbols = self.files.get(file).and_then(|mapped| mapped.symbols());
        let function = symbols.and_then(|symbols| symbols.function_at(svma));
        function.and_then(|function| function.name).is_some_and(|name| name.ends_with("clock_gettime"))
    }

    /// Where the executable's thread-local variables of the thread are, and in which file they are declared.
    fn thread_locals(&self) -> Option<(Range<u64>, u32)> {
        let file = self.space.executable()?;
        let symbols = self.files.get(file)?.symbols()?;
        let segment = symbols.tls_segment()?;
        let start = self.thread_pointer.checked_add_signed(thread_locals_start(symbols)?)?;
        Some((start..start.checked_add(segment.size_bytes)?, file))
    }

    /// Where the stack with this pointer ends at the latest: a thread's control block and thread-local variables lie at the
    /// upper end of the memory that it was given for its stack (glibc 2.36, `nptl/allocatestack.c`); the first thread's lie
    /// below its stack.
    fn stack_end(&self, pointer: u64) -> u64 {
        if self.thread_pointer > pointer { self.thread_pointer } else { u64::MAX }
    }

    /// Whether a watched block that the thread's stack is not in owns an address.
    fn is_in_block(&self, address: u64) -> bool {
        let owner = self.heap.owner_since(self.pid, address, self.began_ns);
        let (Some(owner), Some((pointer, _))) = (owner, self.stack) else { return false };
        !(owner.range.0..owner.range.1).contains(pointer)
    }

    /// An instruction and its function.
    pub fn accessor(&self, pc: u64) -> Accessor {
        let code = self.code(pc);
        let symbols = code.0.and_then(|file| self.files.get(file)).and_then(|mapped| mapped.symbols());
        let function = symbols.and_then(|symbols| symbols.function_at(code.1));
        Accessor { code, function: (code.0, function.map_or(code.1, |function| function.start)) }
    }
}

/// Whose an address is.
#[derive(Clone, Copy, Debug)]
pub struct Whose {
    /// The number of the cell.
    pub cell: u32,
    /// Where the block or variable begins.
    pub start: u64,
    /// What an access stands for besides itself, on blocks that were not watched.
    pub unseen: f32,
    /// Whether it is on the heap, and in no block that was watched.
    pub is_unwatched: bool,
    /// Where it lies, if it is known how large it is.
    pub extent: Option<Extent>,
}

/// Whose the last address of a reference was, and which others are the same's.
#[derive(Clone, Copy, Debug, Default)]
pub enum Memo {
    /// Nothing is known yet.
    #[default]
    None,
    /// These addresses, in this burst.
    Range { burst: u64, range: (u64, u64), whose: Whose },
    /// What is so far from the canonical frame address of the function that is at an instruction; and how far into the local that is.
    Local { at: (Code, i64), within: u64, cell: u32 },
}

impl Memo {
    /// Whose an address is, if it is one of a range that was remembered in the present burst.
    #[inline]
    fn recall(&self, present: u64, address: u64) -> Option<Whose> {
        match *self {
            Self::Range { burst, range: (start, end), whose }
                if burst == present && (start..end).contains(&address) =>
            {
                Some(whose)
            }
            _ => None,
        }
    }
}

/// A memo of a page that an instruction was in.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    instruction: u32,
    memo: Memo,
}

/// Where in [`Places::recent`] an instruction and a page meet.
fn slot(instruction: u32, address: u64) -> usize {
    let both = (address / PAGE_BYTES) ^ u64::from(instruction) << 32;
    (both.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - RECENT_BITS)) as usize
}

/// The spots that were met.
#[derive(Debug)]
pub struct Places {
    spots: Vec<Spot>,
    numbers: FxHashMap<Spot, u32>,
    burst: u64,
    calls: Calls,
    /// Numbers of spots on the stack, and where the local begins: the instruction in the frame, and the distance from
    /// the frame's address.
    locals: FxHashMap<(Code, i64), (u32, i64)>,
    /// By function: whether it works for its callers.
    on_behalf: FxHashMap<Code, bool>,
    /// Where the thread's variables are, and their file.
    thread_locals: Option<(Range<u64>, u32)>,
    /// By [`slot`].
    recent: Vec<Recent>,
}

impl Places {
    /// `sees_stack`: whether all accesses to the stack are told, so that calls can be followed.
    pub fn new(sees_stack: bool) -> Self {
        Self {
            spots: Vec::new(),
            numbers: FxHashMap::default(),
            burst: 0,
            calls: Calls::new(sees_stack),
            locals: FxHashMap::default(),
            on_behalf: FxHashMap::default(),
            thread_locals: None,
            recent: vec![Recent::default(); 1 << RECENT_BITS],
        }
    }

    /// What was remembered of the last burst holds no more.
    pub fn next_burst(&mut self, surroundings: &Surroundings<'_>) {
        self.burst += 1;
        self.thread_locals = surroundings.thread_locals();
        let Some((pointer, frames)) = surroundings.stack else {
            self.calls.forget();
            return;
        };
        let unwound = frames.iter().enumerate().map(|(level, frame)| {
            // Return addresses are those of the instruction behind the call.
            let pc = if level == 0 { frame.pc } else { frame.pc.wrapping_sub(1) };
            (surroundings.accessor(pc), frame.cfa)
        });
        self.calls.begin(*pointer, surroundings.stack_end(*pointer), unwound);
    }

    /// Whose an address is, if the reference with this memo, of this instruction, was in the same range before in the present burst;
    /// of functions that work for their callers only if it was there last.
    #[inline]
    pub fn recall(&self, memo: &mut Memo, instruction: u32, address: u64) -> Option<Whose> {
        memo.recall(self.burst, address).or_else(|| {
            let recent = &self.recent[slot(instruction, address)];
            let whose =
                recent.memo.recall(self.burst, address).filter(|_| recent.instruction == instruction)?;
            *memo = recent.memo;
            Some(whose)
        })
    }

    /// A block of code begins.
    #[inline]
    pub fn block(&mut self, at: impl FnOnce() -> Accessor) {
        if self.calls.may_be_called() {
            self.calls.block(at());
        }
    }

    /// Through which calls the function of an access just made was reached, as far as is known.
    pub fn callers_of(&mut self, by: Accessor, paths: &mut CallPaths<Code>) -> Option<PathId> {
        self.calls.callers_of(by, paths)
    }

    /// Whose an address is. `memo`: of the reference, whose instruction has this number; `cell`: the number of the cell that it has
    /// with a spot, by the spot's number.
    pub fn whose(
        &mut self,
        memo: &mut Memo,
        instruction: u32,
        address: u64,
        by: Accessor,
        surroundings: &Surroundings<'_>,
        cell: impl FnOnce(u32, &Spot) -> u32,
    ) -> Whose {
        // Thread-local variables and blocks may lie above the outermost frame that is known.
        let is_other = self.thread_locals.as_ref().is_some_and(|(range, _)| range.contains(&address))
            || self.calls.is_supposed(address) && surroundings.is_in_block(address);
        let touched = if is_other { None } else { self.calls.touch(address, by) };
        if let Some(at) = touched {
            let (within, cell) = match *memo {
                Memo::Local { at: before, within, cell } if before == at => (within, cell),
                _ => {
                    let (number, start) = self.local_at(at, surroundings.files);
                    (at.1.abs_diff(start), cell(number, &self.spots[number as usize]))
                }
            };
            *memo = Memo::Local { at, within, cell };
            let start = address.wrapping_sub(within);
            return Whose { cell, start, unseen: 0.0, is_unwatched: false, extent: None };
        }
        let (spot, unseen, range) = self.elsewhere(address, by, surroundings);
        let is_unwatched = matches!(spot, Spot::Heap(_));
        let number = self.numbered(spot);
        let spot = &self.spots[number as usize];
        let extent = extent(spot, range, surroundings);
        let whose =
            Whose { cell: cell(number, spot), start: range.0, unseen: unseen as f32, is_unwatched, extent };
        *memo = Memo::Range { burst: self.burst, range, whose };
        if !self.on_behalf.get(&by.function).is_some_and(|&works_for_callers| works_for_callers) {
            self.recent[slot(instruction, address)] = Recent { instruction, memo: *memo };
        }
        whose
    }

    /// The local so far from the canonical frame address of the function that is at an instruction: its spot's number, and where
    /// it begins.
    fn local_at(&mut self, at: (Code, i64), files: &Files) -> (u32, i64) {
        if let Some(&known) = self.locals.get(&at) {
            return known;
        }
        let (code, offset) = at;
        let (cfa_offset, start) = match local(code, offset, files) {
            Some(start) => (start, start),
            // All of a frame that is no variable's is one: a frame may seem to have a whole stack.
            None => (NO_LOCAL, offset & !7),
        };
        let number = self.numbered(Spot::Frame { file: code.0, svma: code.1, cfa_offset });
        if self.locals.len() < MOST_LOCALS {
            self.locals.insert(at, (number, start));
        }
        (number, start)
    }

    /// Whose an address is that is not on the thread's stack: the spot, what an access to it stands for besides itself, and the
    /// addresses that are the same's.
    fn elsewhere(
        &mut self,
        address: u64,
        by: Accessor,
        surroundings: &Surroundings<'_>,
    ) -> (Spot, f64, (u64, u64)) {
        let alone = (address, address.saturating_add(1));
        if let Some((range, file)) = self.thread_locals.as_ref().filter(|(range, _)| range.contains(&address))
        {
            let offset = address - range.start;
            let symbols = surroundings.files.get(*file).and_then(|mapped| mapped.symbols());
            return match symbols.map(|symbols| symbols.tls_place(offset)) {
                Some(DataPlace::Variable(variable)) => {
                    let spot = Spot::ThreadLocal { file: *file, offset: variable.start };
                    let at = |offset: u64| range.start.saturating_add(offset).min(range.end);
                    (spot, 0.0, (at(variable.start), at(variable.end)))
                }
                _ => (Spot::ThreadLocal { file: *file, offset }, 0.0, alone),
            };
        }
        match surroundings.space.find(address) {
            Place::Image { file, svma } => {
                let (start, size) = variable(file, svma, surroundings.files);
                let first = address.wrapping_sub(svma - start);
                (Spot::Image { file, svma: start }, 0.0, (first, first.saturating_add(size)))
            }
            Place::Area(Area::Stack) => {
                local_of_another_thread(address, surroundings).unwrap_or((Spot::Stack, 0.0, alone))
            }
            Place::Area(area @ (Area::Break | Area::Anonymous)) => {
                let is_anonymous = area == Area::Anonymous;
                let memory = HeapMemory { area, user: self.user(by, surroundings.files) };
                let block = self.block_at(address, memory.clone(), surroundings);
                let known = block.or_else(|| {
                    let may_be_stack = is_anonymous && surroundings.others.len() <= MOST_OTHERS;
                    may_be_stack.then(|| local_of_another_thread(address, surroundings))?
                });
                known.unwrap_or_else(|| {
                    let range = self.unwatched(address, memory.user.is_some(), surroundings);
                    (Spot::Heap(memory), 0.0, range)
                })
            }
            Place::Area(area) => (Spot::Area(area), 0.0, alone),
            // A large block has a mapping for itself, which may have come and gone between two looks.
            Place::Unmapped => {
                let memory = HeapMemory { area: Area::Anonymous, user: None };
                self.block_at(address, memory, surroundings).unwrap_or((Spot::Unmapped, 0.0, alone))
            }
        }
    }

    /// The call of a function that works for its callers.
    fn user(&mut self, by: Accessor, files: &Files) -> Option<Code> {
        let works_for_callers =
            *self.on_behalf.entry(by.function).or_insert_with(|| is_on_behalf(by.function, files));
        if works_for_callers { self.calls.caller_of(by) } else { None }
    }

    /// The watched block that owns an address, as [`Self::elsewhere`] says it.
    fn block_at(
        &self,
        address: u64,
        memory: HeapMemory,
        surroundings: &Surroundings<'_>,
    ) -> Option<(Spot, f64, (u64, u64))> {
        let owner = surroundings.heap.owner_since(surroundings.pid, address, surroundings.began_ns)?;
        let site: SiteId = owner.site;
        Some((Spot::Block { site, memory }, 1.0 / owner.probability - 1.0, owner.range))
    }

    /// Addresses of a page of the heap that are nobody's, as this one, with the same user: how many such pages there are is counted.
    fn unwatched(&self, address: u64, has_user: bool, surroundings: &Surroundings<'_>) -> (u64, u64) {
        let Surroundings { pid, space, heap, began_ns, .. } = *surroundings;
        let first = address & !(PAGE_BYTES - 1);
        let page = first..first.saturating_add(PAGE_BYTES);
        let has_others = |others: &Range<u64>| others.start < page.end && page.start < others.end;
        let is_shared = space.has_image_in(&page)
            || has_others(&self.calls.stack())
            || self.thread_locals.as_ref().is_some_and(|(range, _)| has_others(range));
        if is_shared || has_user {
            let start = address & !(GRANULE - 1);
            return (start, start + GRANULE);
        }
        let gap = heap.gap_since(pid, address, began_ns, page);
        (gap.start, gap.end)
    }

    fn numbered(&mut self, spot: Spot) -> u32 {
        let next = self.spots.len() as u32;
        *self.numbers.entry(spot).or_insert_with_key(|spot| {
            self.spots.push(spot.clone());
            next
        })
    }
}

/// The variable around an svma, or the gap between two: its begin and size.
fn variable(file: u32, svma: u64, files: &Files) -> (u64, u64) {
    let symbols = files.get(file).and_then(|mapped| mapped.symbols());
    match symbols.map_or(DataPlace::Gap(0..u64::MAX), |symbols| symbols.data_place(svma)) {
        DataPlace::Variable(range) => (range.start, range.end - range.start),
        // Behind a variable, or before the first: a line's worth of it, of one section.
        DataPlace::Gap(gap) => {
            let line = svma & !63;
            let sections = symbols.map(|symbols| symbols.sections()).unwrap_or_default();
            let section = sections.iter().find(|section| section.contains(svma));
            let (first, last) = section.map_or((0, u64::MAX), |section| (section.start, section.end));
            let start = line.max(gap.start).max(first);
            (start, gap.end.min(line.saturating_add(64)).min(last) - start)
        }
    }
}

/// Of what these addresses are, which belong to a spot, if it is known how much there is of it: a file's variables, the blocks of a site,
/// small blocks in the break. A program may go through all of them in turn, though a burst met one.
fn extent(spot: &Spot, (start, end): (u64, u64), surroundings: &Surroundings<'_>) -> Option<Extent> {
    let Surroundings { pid, space, heap, .. } = *surroundings;
    let all = |what: Data, bytes: u64| {
        let object = FxBuildHasher.hash_one((pid, what));
        Some(Extent { start, end, object, bytes })
    };
    match spot {
        Spot::Block { memory, .. } if memory.area == Area::Break && end - start < LARGE_BYTES => {
            all(Data::Break, bytes_of(&space.area(start)?))
        }
        Spot::Heap(memory) if memory.area == Area::Break => all(Data::Break, bytes_of(&space.area(start)?)),
        // One that has ended is no more of them.
        Spot::Block { site, .. } => {
            all(Data::Site(*site), (heap.live_bytes(pid, *site) as u64).max(end - start))
        }
        Spot::Image { file, .. } => all(Data::Image(*file), space.image_bytes(start)?),
        _ => None,
    }
}

fn bytes_of(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// Data of which it is known how much there is.
#[derive(Hash)]
enum Data {
    Break,
    Site(SiteId),
    Image(u32),
}

/// The local at an address of another thread's stack: what `main` has there and others work on. Its frames are those of when the thread was sampled
/// last. What had called another function then still stands there, mostly; the innermost function may have returned, but for those
/// that end with their thread. And where no variable is, nothing says that the frame is still there.
fn local_of_another_thread(address: u64, surroundings: &Surroundings<'_>) -> Option<(Spot, f64, (u64, u64))> {
    let (pc, cfa) = surroundings.others.iter().find_map(|&(pointer, frames)| {
        let (level, pc, cfa) = frame_around(*pointer, frames, address)?;
        (level > 0 || frames.len() <= MOST_FRAMES_OF_FIRST).then_some((pc, cfa))
    })?;
    let code = surroundings.code(pc);
    let start = local(code, address.wrapping_sub(cfa) as i64, surroundings.files)?;
    let spot = Spot::Frame { file: code.0, svma: code.1, cfa_offset: start };
    Some((spot, 0.0, (cfa.wrapping_add_signed(start), address.saturating_add(1))))
}

/// The begin of the local around a distance from the canonical frame address. None: no variable is there.
fn local((file, svma): Code, offset: i64, files: &Files) -> Option<i64> {
    let symbols = file.and_then(|file| files.get(file)).and_then(|mapped| mapped.symbols());
    let variables = symbols.map(|symbols| symbols.frame_variables(svma)).unwrap_or_default();
    let found = variables.iter().rev().find(|variable| {
        let within = offset.checked_sub(variable.cfa_offset).and_then(|within| u64::try_from(within).ok());
        within.is_some_and(|within| within < variable.size_bytes)
    });
    found.map(|variable| variable.cfa_offset)
}

#[cfg(test)]
mod tests {
    use memlens_events::agent::Allocation;

    use super::*;
    use crate::heap_blocks::BlockArea;
    use crate::record::NewMapping;

    #[test]
    fn objects_count_with_all_that_they_have() {
        const MB: u64 = 1 << 20;
        const BREAK: u64 = 0x100_0000;
        let (mut space, mut files) = (AddressSpace::default(), Files::default());
        let mapping =
            NewMapping { start: BREAK, length: 5 * MB, name: "[heap]".into(), ..NewMapping::default() };
        space.map(&mapping, &mut files);
        let mut heap = Heap::default();
        let site = heap.site(&[1], None);
        let of = |address, size_bytes| Allocation { address, size_bytes, ..Allocation::default() };
        (0..3).for_each(|at| heap.allocated(7, 7, &of(0x7f00_0000 + at * MB, MB), BlockArea::Mapping, site));
        heap.freed(7, 0x7f00_0000 + 2 * MB, 0);
        let told = |pid, spot: &Spot, range| {
            let (space, files, heap) = (&space, &files, &heap);
            let surroundings = Surroundings {
                pid,
                began_ns: 0,
                space,
                files,
                heap,
                stack: None,
                others: &[],
                thread_pointer: 0,
            };
            extent(spot, range, &surroundings)
        };
        let in_area = |area| HeapMemory { area, user: None };
        let blocks = Spot::Block { site, memory: in_area(Area::Anonymous) };
        let [first, second] = [0, 1]
            .map(|at| told(7, &blocks, (0x7f00_0000 + at * MB, 0x7f00_0000 + (at + 1) * MB)).expect("known"));
        assert_eq!(
            (first.start, first.end, first.bytes),
            (0x7f00_0000, 0x7f00_0000 + MB, 2 * MB),
            "two live ones"
        );
        assert_eq!(first.object, second.object);
        // A child's copy is other memory; one that has ended there has its own bytes.
        let childs = told(8, &blocks, (0x7f00_0000, 0x7f00_0000 + MB)).expect("known");
        assert!(childs.object != first.object && childs.bytes == MB);
        // In the break small blocks are one with all else, large ones their site's.
        let in_break = Spot::Block { site, memory: in_area(Area::Break) };
        let small = told(7, &in_break, (BREAK, BREAK + 100)).expect("known");
        let others =
            told(7, &Spot::Heap(in_area(Area::Break)), (BREAK + 0x1000, BREAK + 0x2000)).expect("known");
        assert_eq!((small.object, small.bytes), (others.object, 5 * MB));
        assert_eq!(told(7, &in_break, (BREAK, BREAK + MB)).map(|extent| extent.object), Some(first.object));
        assert_eq!(told(7, &Spot::Heap(in_area(Area::Anonymous)), (1, 2)), None);
        assert_eq!(told(7, &Spot::Stack, (1, 2)), None);
    }

    #[test]
    fn what_is_no_variable_of_a_frame_is_one_spot() {
        const CFA: u64 = 0x7f00_0000;
        let stack = (CFA - 0x1000, vec![StackFrame { pc: 0x400, cfa: Some(CFA) }]);
        let surroundings = Surroundings {
            pid: 1,
            began_ns: 0,
            space: &AddressSpace::default(),
            files: &Files::default(),
            heap: &Heap::default(),
            stack: Some(&stack),
            others: &[],
            thread_pointer: 0,
        };
        let mut places = Places::new(true);
        places.next_burst(&surroundings);
        let by = surroundings.accessor(0x400);
        let mut numbers = Vec::new();
        for below in 1..1000 {
            let address = CFA - 8 * below + 4;
            let whose = places.whose(&mut Memo::None, 0, address, by, &surroundings, |number, spot| {
                assert!(matches!(spot, Spot::Frame { svma: 0x400, .. }), "{spot:?}");
                numbers.push(number);
                0
            });
            assert_eq!(whose.start, address - 4);
        }
        assert_eq!(numbers, [0; 999]);
    }

    #[test]
    fn a_page_of_the_heap_that_nobody_owns_is_asked_for_once() {
        const PAGE: u64 = 0x7f00_0000_3000;
        let (mut space, mut files) = (AddressSpace::default(), Files::default());
        // More than is searched for frames.
        let length = 512 * PAGE_BYTES;
        space.map(&NewMapping { start: PAGE, length, ..NewMapping::default() }, &mut files);
        let mut heap = Heap::default();
        let site = heap.site(&[1], None);
        let block = Allocation { address: PAGE + 0x200, size_bytes: 100, ..Allocation::default() };
        heap.allocated(1, 1, &block, BlockArea::Mapping, site);
        // The thread's own stack ends in the last page.
        let end = PAGE + length - 0x800;
        let stack = (end - 0x100, vec![StackFrame { pc: 0x400, cfa: Some(end) }]);
        let surroundings = Surroundings {
            pid: 1,
            began_ns: 0,
            space: &space,
            files: &files,
            heap: &heap,
            stack: Some(&stack),
            others: &[],
            thread_pointer: 0,
        };
        let mut places = Places::new(true);
        places.next_burst(&surroundings);
        let by = surroundings.accessor(0x400);
        let mut asked = Vec::new();
        let mut memo = Memo::None;
        let mut whose = |places: &mut Places, memo: &mut Memo, instruction, address| {
            places.recall(memo, instruction, address).unwrap_or_else(|| {
                asked.push(address);
                places.whose(memo, instruction, address, by, &surroundings, |number, _| number)
            })
        };
        let first = whose(&mut places, &mut memo, 1, PAGE + 0x10);
        assert!(first.is_unwatched);
        for (address, is_unwatched) in
            [(0x1f8, true), (0x200, false), (0x263, false), (0x264, true), (0xfff, true)]
        {
            assert_eq!(
                whose(&mut places, &mut memo, 1, PAGE + address).is_unwatched,
                is_unwatched,
                "{address:#x}"
            );
        }
        // Another page, and back: the memo has lost it.
        whose(&mut places, &mut memo, 1, PAGE + 2 * PAGE_BYTES);
        assert_eq!(whose(&mut places, &mut memo, 1, PAGE + 0x300).cell, first.cell);
        // Another instruction has cells of its own.
        whose(&mut places, &mut Memo::None, 2, PAGE + 0x300);
        // Beside the stack each granule is asked for.
        whose(&mut places, &mut memo, 1, end + 0x400);
        whose(&mut places, &mut memo, 1, end + 0x410);
        let pages = [0x10, 0x200, 0x264, 2 * PAGE_BYTES, 0x300, length - 0x400, length - 0x3f0];
        assert_eq!(asked, pages.map(|offset| PAGE + offset));
        assert!(!places.whose(&mut memo, 1, end - 0x40, by, &surroundings, |number, _| number).is_unwatched);
        places.next_burst(&surroundings);
        assert!(places.recall(&mut memo, 1, PAGE + 0x300).is_none(), "another burst");
    }
}

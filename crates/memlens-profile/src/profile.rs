//! The profile itself: plain tables, joined by index types.

use std::collections::HashMap;
use std::sync::Arc;

use memlens_types::{AccessKind, Counts, ObjectKind, PatternKind};

use crate::{
    Attribution, CodeIx, Element, Field, FieldUse, FrameIx, MachineInfo, ModuleIx, ObjectIx, PackedCounts,
    PathIx, Prediction, RunInfo, Slice, SliceUse, StackIx, ThreadIx,
};

/// Everything a report needs, without the binaries or sources it came from.
///
/// ```text
///  modules ◄── frames ◄── stacks ◄──┬── objects ◄──┐
///                      patterns ──►└── code ◄─────┴── cells ──► threads
///           ◄── paths ◄── path samples ──► objects
///                       field uses ──► fields ──► objects
///                       slice uses ──► slices
///                                 └──► objects
/// ```
///
/// [`cells`](Self::cells) say which instruction of which thread touched which object; every other
/// count is a sum of them, except `dram_writes`: a line is written back long after the instruction
/// that dirtied it, so write-backs belong to objects only. [`validate`](Self::validate) checks this.
///
/// Where call stacks were seen, a profile also says through which calls each object was reached: [`paths`](Self::paths) are a tree,
/// and [`path_cells`](Self::path_cells) the same counts once more, by path instead of instruction and thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The program and how it was watched.
    pub run: RunInfo,
    /// The machine whose caches were modelled.
    pub machine: MachineInfo,
    /// Executables and libraries.
    pub modules: Vec<Module>,
    /// Code positions with their source.
    pub frames: Vec<Frame>,
    /// Call stacks.
    pub stacks: Vec<Stack>,
    /// Data objects.
    pub objects: Vec<Object>,
    /// Memory operands of instructions.
    pub code: Vec<CodeLocation>,
    /// What each operand did to each object.
    pub cells: Vec<Cell>,
    /// How operands' addresses follow one another, where that was looked at: at most one row an operand.
    pub patterns: Vec<AccessPattern>,
    /// How they do so in each object, of operands that differ from object to object: at most one row for each pair.
    pub object_patterns: Vec<ObjectPattern>,
    /// Fields of the structures that objects consist of, as far as they were seen or the debug information has them.
    pub fields: Vec<Field>,
    /// Which operands touch them: at most one row for each pair.
    pub field_uses: Vec<FieldUse>,
    /// Call paths of samples or accesses; none where no call stack was seen.
    pub paths: Vec<CallPath>,
    /// What was done at the ends of call paths; empty where there are no `paths`.
    pub path_cells: Vec<PathCell>,
    /// The run cut into slices of time; none where nobody looked at when what was done.
    pub slices: Vec<Slice>,
    /// What objects did in them.
    pub slice_uses: Vec<SliceUse>,
    /// The program's threads.
    pub threads: Vec<Thread>,
    /// Moments the program named.
    pub marks: Vec<Mark>,
    /// What page walks would be left with objects in huge pages, as far as somebody asked; the latest last.
    pub predictions: Vec<Prediction>,
    /// How much was attributed, and what was lost.
    pub attribution: Attribution,
}

/// An executable or library that was mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Module {
    /// Path when it ran.
    pub path: String,
    /// The GNU build-id in lower-case hex.
    pub build_id: Option<String>,
    /// Whether debug information was found, in it or beside it.
    pub has_debug: bool,
}

impl Module {
    /// The last part of the path.
    pub fn name(&self) -> &str {
        match self.path.rsplit('/').next() {
            Some(name) if !name.is_empty() => name,
            _ => &self.path,
        }
    }
}

/// A code position: one level of a call stack, inlined levels included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Where the code is; `None` for code outside of every file (generated code).
    pub module: Option<ModuleIx>,
    /// Module offset (svma) of the instruction; its address when there is no module. Inlined frames
    /// have the offset of the frame they are inlined into.
    pub offset: u64,
    /// Demangled function name; hundreds of frames share one.
    pub function: Option<Arc<str>>,
    /// Source file as the debug information names it.
    pub file: Option<Arc<str>>,
    /// Source line, from 1.
    pub line: Option<u32>,
    /// Source column, from 1.
    pub column: Option<u32>,
    /// Whether this level is inlined into the next one of the stack.
    pub inlined: bool,
    /// The source line itself, when the file was readable.
    pub source_text: Option<Arc<str>>,
}

/// A call stack, innermost frame first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stack(pub Vec<FrameIx>);

/// A place in a source file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceLine {
    /// Source file as the debug information names it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

/// What the name of a heap object begins with that was reached through the variable named behind it, where
/// allocations were not watched.
pub const HEAP_THROUGH: &str = "heap through ";
/// The same of one that is known by the function behind it, which uses it, alone.
pub const HEAP_USED_BY: &str = "heap used by ";
/// What the name of memory begins with that an allocator keeps for itself, beside and between blocks.
pub const ALLOCATOR_DATA: &str = "allocator data";
/// Why nothing is known of samples' data that were taken while the kernel worked for the program.
pub const IN_KERNEL: &str = "in the kernel";

/// What addresses belong to: all blocks of one allocation site, or one variable.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Number for people and for the JSON report, from 1, never reused within a profile.
    pub id: u32,
    /// Its class.
    pub kind: ObjectKind,
    /// Variable or function name, or a made-up one (`libc.so.6+.bss`).
    pub name: String,
    /// Its type as the source spells it.
    pub type_name: Option<String>,
    /// The structure that it consists of; `None`: none, or not known.
    pub element: Option<Element>,
    /// Where it was allocated.
    pub site: Option<StackIx>,
    /// Which frame of `site`, counted from 0 at the innermost, gave it its name: whose variable the block
    /// went to, past wrappers that hand it on. `None` if its name comes from elsewhere.
    pub named_at: Option<u32>,
    /// Where it was declared.
    pub declared: Option<SourceLine>,
    /// The file it belongs to.
    pub module: Option<ModuleIx>,
    /// Allocations, mappings or frames merged into this object; 1 for globals.
    pub blocks: u64,
    /// Bytes of all blocks as requested, summed over the run; of one that `realloc` enlarged, what it grew by.
    pub bytes: Option<u64>,
    /// The most bytes live at one time.
    pub max_live_bytes: Option<u64>,
    /// Of blocks of the heap: the bytes live when most of the whole heap was, to a hundredth of that; `None`: not known.
    pub live_at_peak_bytes: Option<u64>,
    /// The same when the program, or the recording, ended: what is left of it.
    pub live_at_end_bytes: Option<u64>,
    /// In mode `burst`: the bursts that saw it, 2 for two and more. `None`: not known, or another mode.
    pub bursts: Option<u64>,
    /// In mode `burst`: the standard error of its wait, as far as its share of the whole's comes from which bursts there were. `None`: not
    /// known, or another mode. Unit: cycles.
    pub wait_error_cycles: Option<u64>,
    /// The same of its stalls: the part that out-of-order execution hides of the wait is taken as known. Unit: cycles.
    pub stall_error_cycles: Option<u64>,
    /// How the kernel backed its memory when most of it was there; `None`: nobody could look.
    pub backing: Option<ObjectBacking>,
    /// The pointer that samples reached it through (`column`, `graph->rows`), where no allocation is
    /// known.
    pub access_path: Option<String>,
    /// Why nothing better is known; only for [`ObjectKind::Unknown`].
    pub unknown_reason: Option<String>,
    /// Its accesses.
    pub counts: Counts,
}

/// How an object's memory was backed at a moment, by the kernel or, in a profile of a bus trace, as its page tables say.
/// Units: bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectBacking {
    /// In pages of 4 KiB.
    pub small_bytes: u64,
    /// In transparent huge pages, mapped as a whole.
    pub transparent_bytes: u64,
    /// In pages that the system had reserved (hugetlb).
    pub hugetlb_bytes: u64,
    /// In huge pages of which is not told whether they are transparent or reserved: page tables do not say it.
    pub untold_huge_bytes: u64,
    /// Of all these, in pages of 1 GiB; `None`: not told, as with all but bus traces.
    pub gigantic_bytes: Option<u64>,
    /// Of what was in memory, in the kernel's page of zeros: read, and never written.
    pub zero_bytes: u64,
    /// Swapped out.
    pub swapped_bytes: u64,
    /// By number of the memory node (NUMA), what of it lay there; empty: not known, or there is one node.
    pub node_bytes: Vec<u64>,
}

impl ObjectBacking {
    /// What was in memory.
    pub fn resident_bytes(&self) -> u64 {
        self.small_bytes + self.transparent_bytes + self.hugetlb_bytes + self.untold_huge_bytes
    }

    /// Part of what was in memory that lay in huge pages of any kind, 0 to 1; `None`: nothing was in memory.
    pub fn huge_share(&self) -> Option<f64> {
        let resident = self.resident_bytes();
        (resident > 0).then(|| (resident - self.small_bytes) as f64 / resident as f64)
    }

    /// It was seen again: of several states the one with most memory is kept, of equal ones the last.
    pub fn keep_larger(&mut self, seen: Self) {
        if seen.resident_bytes() >= self.resident_bytes() {
            *self = seen;
        }
    }
}

impl std::ops::AddAssign for ObjectBacking {
    fn add_assign(&mut self, other: Self) {
        self.small_bytes += other.small_bytes;
        self.transparent_bytes += other.transparent_bytes;
        self.hugetlb_bytes += other.hugetlb_bytes;
        self.untold_huge_bytes += other.untold_huge_bytes;
        self.gigantic_bytes = self.gigantic_bytes.zip(other.gigantic_bytes).map(|(one, more)| one + more);
        self.zero_bytes += other.zero_bytes;
        self.swapped_bytes += other.swapped_bytes;
        if self.node_bytes.len() < other.node_bytes.len() {
            self.node_bytes.resize(other.node_bytes.len(), 0);
        }
        self.node_bytes.iter_mut().zip(other.node_bytes).for_each(|(sum, bytes)| *sum += bytes);
    }
}

impl Default for Object {
    fn default() -> Self {
        Self {
            id: 0,
            kind: ObjectKind::Unknown,
            name: String::new(),
            type_name: None,
            element: None,
            site: None,
            named_at: None,
            declared: None,
            module: None,
            blocks: 0,
            bytes: None,
            max_live_bytes: None,
            live_at_peak_bytes: None,
            live_at_end_bytes: None,
            bursts: None,
            wait_error_cycles: None,
            stall_error_cycles: None,
            backing: None,
            access_path: None,
            unknown_reason: None,
            counts: Counts::default(),
        }
    }
}

/// One memory operand of one instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct CodeLocation {
    /// Number for people, from 1, never reused within a profile.
    pub id: u32,
    /// The inlined functions at the instruction, innermost first; the last is not inlined.
    pub stack: Option<StackIx>,
    /// Where the code is; `None` for generated code.
    pub module: Option<ModuleIx>,
    /// Module offset of the instruction; its address when there is no module.
    pub offset: u64,
    /// Which memory operand of the instruction, from 0.
    pub operand: u8,
    /// What the operand does.
    pub kind: AccessKind,
    /// Bytes an access touches; 0 if that varies.
    pub size_bytes: u32,
    /// Its accesses (`dram_writes` is always 0).
    pub counts: PackedCounts,
}

impl Default for CodeLocation {
    fn default() -> Self {
        Self {
            id: 0,
            stack: None,
            module: None,
            offset: 0,
            operand: 0,
            kind: AccessKind::Load,
            size_bytes: 0,
            counts: PackedCounts::default(),
        }
    }
}

/// What one operand did to one object in one thread: the join everything else is derived from.
/// At most one cell for each triple.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The operand.
    pub code: CodeIx,
    /// The object.
    pub object: ObjectIx,
    /// The thread.
    pub thread: ThreadIx,
    /// The accesses (`dram_writes` is always 0).
    pub counts: PackedCounts,
}

/// How one operand's addresses follow one another, seen in short windows of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessPattern {
    /// The operand.
    pub code: CodeIx,
    /// The verdict.
    pub kind: PatternKind,
    /// The most frequent difference between one address and the next, in bytes; `None`: they are hardly ever alike.
    pub stride_bytes: Option<i64>,
    /// Share of the differences that are so, in thousandths.
    pub stride_permille: u32,
    /// The operand that loads the address or index, of [`PatternKind::Indirect`] ones.
    pub loaded_by: Option<CodeIx>,
    /// Entropy of the differences in thousandths of a bit: 0 for one stride, towards 5,900 for no rule.
    pub entropy_millibits: u32,
    /// Bytes between the lowest and the highest address of a window, the mean over windows.
    pub span_bytes: u64,
    /// The most steps in a row by the stride that were seen from their beginning to their end; `None`: none, or windows cut off longer
    /// walks.
    pub walk_steps: Option<u32>,
    /// Of [`PatternKind::PointerChase`] how many links of a node lead on: one in a list or a hash table's bucket, two and more in a tree;
    /// `None`: not known.
    pub links: Option<u32>,
    /// Of these the ways out of the loop that follows the links: a search has two and more, what visits all nodes one. `None`: not known.
    pub exits: Option<u32>,
    /// Iterations of the innermost loop around it, the mean in thousandths over the times that the loop was come to: of
    /// [`PatternKind::PointerChase`] the nodes of a way. `None`: it is in no loop, or nobody knows.
    pub trips_permille: Option<u64>,
    /// Accesses of the thread from one execution to the next, on average.
    pub accesses_apart: u32,
    /// Executions looked at.
    pub executions: u64,
    /// The lower end of the 95 % interval of the share that the verdict's strides have, in thousandths; 0 where it
    /// rests on no stride.
    pub confidence_permille: u32,
}

/// How one operand's addresses in one object follow one another, of an operand that differs from object to object: a function may go along one
/// array and down a column of another. Of objects that were not looked at there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectPattern {
    /// The object.
    pub object: ObjectIx,
    /// The pattern; [`AccessPattern::executions`] are those on the object.
    pub pattern: AccessPattern,
}

/// A node of the tree of call paths: a frame, as it was reached from its parent. The outermost frames that could
/// be found have no parent. Parents come before their children.
///
/// Frames of callers stand for calls, so they have the call's line; the last frame of a path stands for all of the
/// function that was at work there, so it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallPath {
    /// The caller.
    pub parent: Option<PathIx>,
    /// The frame.
    pub frame: FrameIx,
}

/// What was done to one object at the end of one call path: samples that waited for it, or accesses. At most one row for each pair.
/// Together the rows have all that the profile's cells have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathCell {
    /// The innermost frame; `None`: the path is not known.
    pub path: Option<PathIx>,
    /// The object.
    pub object: ObjectIx,
    /// How much (`dram_writes` is always 0).
    pub counts: PackedCounts,
}

/// A thread of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// The kernel's id.
    pub tid: u32,
    /// Its process; differs between threads only in merged profiles.
    pub pid: Option<u32>,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its accesses (`dram_writes` is always 0).
    pub counts: Counts,
    /// Instructions it executed while collection was on.
    pub instructions: Option<u64>,
}

/// A moment the program named by a client request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Instructions executed by the process until then.
    pub instructions: u64,
    /// Who named it.
    pub thread: Option<ThreadIx>,
    /// Its name.
    pub name: String,
}

impl Profile {
    /// The whole program's counts: the sum over objects. Linear in objects.
    pub fn totals(&self) -> Counts {
        let mut totals = Counts::default();
        for object in &self.objects {
            totals += &object.counts;
        }
        totals
    }

    /// What objects and code cost, in which shares are told: the samples' cost in a sampled profile, else
    /// [`wait_cycles`](Self::wait_cycles). The unit is that of `run.primary_cost`.
    pub fn cost(&self, counts: &Counts) -> u64 {
        match self.run.sampling {
            Some(_) => counts.sampled.cost,
            None if self.is_of_bus() => counts.dram_reads,
            None => self.wait_cycles(counts),
        }
    }

    /// [`Self::cost`] without what hits of the first level cost. Samples do not tell that apart: theirs is whole.
    pub fn cost_beyond_first_level(&self, counts: &Counts) -> u64 {
        match self.run.sampling.is_some() || self.is_of_bus() {
            true => self.cost(counts),
            false => self.machine.wait_beyond_first_level(counts),
        }
    }

    /// The part of the wait that out-of-order execution does not hide, in cycles. Where no core was modelled, all but the
    /// latency of the first level.
    pub fn stall_cycles(&self, counts: &Counts) -> u64 {
        if self.has_stalls() {
            return counts.stall_cycles;
        }
        self.machine.wait_beyond_first_level(counts)
    }

    /// Whether [`Self::stall_cycles`] are those of a modelled core: an imported trace has no code that could run on one.
    pub fn has_stalls(&self) -> bool {
        let was_modelled = self.machine.core.is_some() && self.run.core_cycles.is_some();
        was_modelled && self.run.sampling.is_none() && !self.is_of_bus()
    }

    /// Those of [`Self::stall_cycles`] that translation of addresses costs, if that was modelled.
    pub fn translation_stall_cycles(&self, counts: &Counts) -> Option<u64> {
        (self.has_stalls() && self.run.has_translation_stalls).then_some(counts.translation_stall_cycles)
    }

    /// Whether the model by itself has many more stalls than the measured time has room for; then [`Self::stall_cycles`] are what it
    /// has room for.
    pub fn has_more_stalls_than_time(&self) -> bool {
        const MUCH_MORE: f64 = 1.25;
        let modelled = self.run.modelled_stall_cycles.unwrap_or(0);
        modelled as f64 > MUCH_MORE * self.totals().stall_cycles as f64
    }

    /// The part of the time that the code took by itself that the modelled core has nothing for, where that is most of it: then what is a part of
    /// the core's time says little of the program's.
    pub fn unexplained_part(&self) -> Option<f64> {
        const MOST: f64 = 0.5;
        let (measured, modelled) = self.run.measured_cycles.zip(self.run.core_cycles)?;
        let part = 1.0 - modelled as f64 / measured.max(1) as f64;
        (part > MOST).then_some(part)
    }

    /// What a part of the modelled core's time is of the time that the code took by itself, where that is much longer: the model has nothing
    /// for the rest, so that this may be the least of it. `None`: it was not measured, or is about the modelled one.
    pub fn of_measured_time(&self, part: f64) -> Option<f64> {
        /// Time that the model has nothing for is worth a word from this part on.
        const MUCH: f64 = 0.3;
        let (measured, modelled) = self.run.measured_cycles.zip(self.run.core_cycles)?;
        let explained = modelled as f64 / measured.max(1) as f64;
        (1.0 - explained > MUCH).then_some(part * explained)
    }

    /// Whether it is of a bus trace: lines of memory and page walks are counted, accesses and code are not known.
    pub fn is_of_bus(&self) -> bool {
        self.run.mode == "bus"
    }

    /// What some counts cost on this profile's machine, in cycles; see [`MachineInfo::wait_cycles`].
    pub fn wait_cycles(&self, counts: &Counts) -> u64 {
        self.machine.wait_cycles(counts)
    }

    /// The module, if the index is `Some` and in range.
    pub fn module(&self, module: Option<ModuleIx>) -> Option<&Module> {
        self.modules.get(module?.index())
    }

    /// The frames of a stack, innermost first; nothing if the index is `None` or out of range.
    pub fn stack_frames(&self, stack: Option<StackIx>) -> impl Iterator<Item = &Frame> {
        let frames = stack.and_then(|stack| self.stacks.get(stack.index()));
        frames.into_iter().flat_map(|stack| &stack.0).filter_map(|frame| self.frames.get(frame.index()))
    }

    /// The frames of a call path, innermost first; nothing if the index is `None` or out of range.
    pub fn path_frames(&self, path: Option<PathIx>) -> impl Iterator<Item = &Frame> {
        let found = move |path: PathIx| self.paths.get(path.index()).map(|node| (path, node));
        let outwards = std::iter::successors(path.and_then(found), move |(path, node)| {
            // Parents come first: that ends, whatever a file held.
            node.parent.filter(|parent| parent < path).and_then(found)
        });
        outwards.filter_map(|(_, node)| self.frames.get(node.frame.index()))
    }

    /// For each operand that loads other operands' addresses or indices ([`AccessPattern::loaded_by`]) the object that
    /// it loads from, if that is one for the most part: a function called with several pairs of arrays has an index of each. Linear in the
    /// cells, if there are any such.
    pub fn loaded_from(&self) -> HashMap<CodeIx, ObjectIx> {
        /// The part of a load's accesses that is to be one object's.
        const MOSTLY: f64 = 0.8;
        let patterns = self.patterns.iter().chain(self.object_patterns.iter().map(|it| &it.pattern));
        let mut loaders: HashMap<CodeIx, HashMap<ObjectIx, u64>> =
            patterns.filter_map(|pattern| Some((pattern.loaded_by?, HashMap::new()))).collect();
        if !loaders.is_empty() {
            for cell in &self.cells {
                if let Some(objects) = loaders.get_mut(&cell.code) {
                    *objects.entry(cell.object).or_default() += cell.counts.get().accesses();
                }
            }
        }
        let main_one = |(code, objects): (CodeIx, HashMap<ObjectIx, u64>)| {
            let all: u64 = objects.values().sum();
            let (object, most) = objects.into_iter().max_by_key(|&(object, accesses)| (accesses, object))?;
            (most as f64 >= MOSTLY * all as f64).then_some((code, object))
        };
        loaders.into_iter().filter_map(main_one).collect()
    }

    /// Says in a note how code that the program generated gets names, where a tenth of what was seen or more is by such code
    /// without. To be called once, when all rows and counts are there.
    pub fn note_generated_code(&mut self) {
        let seen = |counts: &Counts| counts.accesses().max(counts.sampled.samples);
        let has_name = |code: &CodeLocation| {
            self.stack_frames(code.stack).any(|frame| frame.function.is_some()) || code.module.is_some()
        };
        let all: u64 = self.code.iter().map(|code| seen(&code.counts.get())).sum();
        let unnamed: u64 =
            self.code.iter().filter(|code| !has_name(code)).map(|code| seen(&code.counts.get())).sum();
        if all > 0 && unnamed * 10 >= all {
            self.attribution.notes.push(format!(
                "{:.0} % of what was seen is by generated code without names; names are read from /tmp/perf-PID.map, which \
                 node --perf-basic-prof, java -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit, python -X perf and \
                 others write.",
                100.0 * unnamed as f64 / all as f64
            ));
        }
    }

    /// Recomputes the counts of objects, code and threads from the cells; the objects' `dram_writes`
    /// stay. Linear in cells; cells with an index out of range are left out.
    pub fn sum_cells(&mut self) {
        for object in &mut self.objects {
            object.counts = Counts { dram_writes: object.counts.dram_writes, ..Counts::default() };
        }
        self.code.iter_mut().for_each(|code| code.counts = PackedCounts::default());
        self.threads.iter_mut().for_each(|thread| thread.counts = Counts::default());
        // Cells of a row of code mostly follow one another: its counts are packed once for all of them.
        for cells in self.cells.chunk_by(|one, next| (one.thread, one.code) == (next.thread, next.code)) {
            let (thread, code) = (cells[0].thread.index(), cells[0].code.index());
            let (Some(code), Some(thread)) = (self.code.get_mut(code), self.threads.get_mut(thread)) else {
                continue;
            };
            let mut all = Counts::default();
            for cell in cells {
                if let Some(object) = self.objects.get_mut(cell.object.index()) {
                    let counts = cell.counts.get();
                    object.counts += &counts;
                    all += &counts;
                }
            }
            code.counts += &all;
            thread.counts += &all;
        }
    }
}

//! Which objects each memory operand of a module's code can touch.
//!
//! # Model
//!
//! Registers hold sets of pointers, followed along the control flow of each function; memory holds
//! sets of pointers for each 8-byte cell of each [`Object`], whenever it was stored there. Functions
//! are taken together: arguments flow from all calls of a function in sight, results back to all of
//! them, until nothing changes (L. O. Andersen, "Program Analysis and Specialization for the C
//! Programming Language", DIKU 1994, inclusion-based; on machine code as G. Balakrishnan and
//! T. Reps, "Analyzing Memory Accesses in x86 Executables", CC 2004).
//!
//! So aliases need no rules of their own: after `y = x` both hold the same pointers, in a function
//! and across calls.
//!
//! - A block that a function returns fresh from an allocation is told apart by the caller, too, at
//!   most [`MAX_CALLS`] calls deep: what `xmalloc` returns is another object for each of its calls.
//! - A pointer plus something unknown points somewhere in the same object.
//! - Where no store to a cell is in sight, the cell's content is an object of its own
//!   ([`Object::Pointee`]); such an object counts only where nothing better is known.
//! - Indirect calls go to the functions that are among the pointers called.
//!
//! # Not modelled
//!
//! Pointers stored byte by byte, through sets of more than 24 objects, or by code out of sight
//! (other modules, system calls), except what [`Callee`] tells; overlapping cells; pointers before
//! the start of their object. The result is therefore what an operand *probably* touches: neither
//! bound is safe.
//!
//! Cost: some passes over the code that changed: milliseconds for a hundred functions, most of a minute for
//! the 10,000 of a program with sqlite3 in it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, MemorySize, Mnemonic, OpAccess, OpKind,
    Register as Reg, UsedMemory,
};

use crate::control_flow::{ControlFlow, direct_target};
use crate::memory_object::{NONE, Object, ObjectIx, Pointer, SetIx, Sets};

/// How many calls deep allocations are told apart.
pub const MAX_CALLS: usize = 4;
/// How many pointees of pointees are told apart.
const MAX_POINTEES: usize = 3;
/// Passes over all functions that changed; a backstop, ordinary programs need under ten.
const MAX_PASSES: usize = 40;

/// What a function does that is not among those analysed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Callee {
    /// It is the analysed function that starts there.
    Function(u64),
    /// It returns a new block.
    Allocates,
    /// It stores the address of a new block where its first argument points.
    AllocatesThroughPointer,
    /// It returns its first argument.
    ReturnsFirst,
    /// It copies memory from its second argument to its first, and returns the first.
    Copies,
    /// It calls one of its arguments with others of them: positions from 0.
    Calls {
        /// Which argument is the function.
        function: u8,
        /// What the function gets as its first argument.
        first: u8,
        /// What it gets as its second.
        second: Option<u8>,
    },
    /// It does not return.
    Never,
    /// Nothing is known of it.
    Unknown,
}

/// What the analysis has to ask of those who know the file.
pub trait Surroundings {
    /// What the code at an address does that is no analysed function: a stub of the linkage table.
    fn callee(&self, svma: u64) -> Callee;
    /// What the function is whose address the dynamic linker puts into a cell.
    fn imported(&self, cell: u64) -> Option<Callee>;
    /// The first address of the variable, or unnamed part of a section, at an address of data.
    fn data_start(&self, svma: u64) -> Option<u64>;
}

/// One function's code, in the parts that the compiler made of it.
#[derive(Clone, Debug)]
pub struct FunctionParts<'a> {
    /// Its parts: first address and bytes; the entry's part first.
    pub parts: Vec<(u64, &'a [u8])>,
}

/// An operand's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// Address of the instruction.
    pub pc: u64,
    /// Whether it reads.
    pub reads: bool,
    /// Whether it writes.
    pub writes: bool,
    /// What it may touch, by object; empty if nothing is known.
    pub pointers: Vec<Pointer>,
    /// Base and index register, if any: operands of one line with the same object and the same
    /// registers are taken for the same element.
    pub registers: [Reg; 2],
    /// The operand's displacement.
    pub displacement: i64,
}

/// The result: all objects, and what each operand touches.
#[derive(Debug)]
pub struct PointsTo {
    /// The objects by handle.
    pub objects: Vec<Object>,
    /// Each analysed function, by first address: decoded code and operands in the order of code.
    pub functions: BTreeMap<u64, (ControlFlow, Vec<Touched>)>,
    /// Whether it was ended early, because it did not settle: sets may be incomplete.
    pub cut_short: bool,
}

const GENERAL: usize = 16;
const REGISTERS: usize = GENERAL + 32;
type Registers = [SetIx; REGISTERS];

/// rdi, rsi, rdx, rcx, r8, r9 by encoding: the integer arguments in order.
const ARGUMENTS: [usize; 6] = [7, 6, 2, 1, 8, 9];
/// The static chain of nested functions.
const CHAIN: usize = 10;
const RAX: usize = 0;
const RCX: usize = 1;
const RDX: usize = 2;
const RSP: usize = 4;
const RBP: usize = 5;
/// rbx, rbp, r12–r15, rsp.
const SAVED: [usize; 7] = [3, 4, 5, 12, 13, 14, 15];
/// Bytes of arguments on the stack that are handed over.
const STACK_ARGUMENT_BYTES: i64 = 64;

#[derive(Debug, Default)]
struct Memory {
    cells: BTreeMap<i64, SetIx>,
    anywhere: Option<SetIx>,
    version: u64,
}

/// What is known of an analysed function.
struct Summary {
    code: Rc<(ControlFlow, Vec<usize>)>,
    /// What the argument registers hold, from all calls.
    entry: Registers,
    /// Whether a call was seen.
    called: bool,
    returns: [SetIx; 2],
    /// Whether a return was reached: what follows the call of a function that never returns is not
    /// executed after it.
    ends: bool,
    /// Registers that it may change, by encoding.
    clobbers: u64,
    /// When it was last looked at, and what was read then.
    looked_at: u64,
    read: BTreeSet<ObjectIx>,
    callees: BTreeSet<u64>,
    /// When its entry or its results last changed.
    entry_changed: u64,
    result_changed: u64,
}

struct Analysis<'s> {
    surroundings: &'s dyn Surroundings,
    objects: Vec<Object>,
    known: HashMap<Object, ObjectIx>,
    sets: Sets,
    memory: HashMap<ObjectIx, Memory>,
    functions: BTreeMap<u64, Summary>,
    clock: u64,
    /// Whether unknown contents get an object.
    name_pointees: bool,
}

/// Analyses functions. `initial` are pointers that stand in data from the start: (cell, target).
pub fn points_to(
    functions: &[FunctionParts<'_>],
    initial: &[(u64, u64)],
    surroundings: &dyn Surroundings,
) -> PointsTo {
    let mut analysis = Analysis {
        surroundings,
        objects: Vec::new(),
        known: HashMap::new(),
        sets: Sets::new(),
        memory: HashMap::new(),
        functions: BTreeMap::new(),
        clock: 1,
        name_pointees: false,
    };
    for function in functions {
        let Some(&(start, _)) = function.parts.first() else { continue };
        let flow = ControlFlow::new(&function.parts);
        let order = flow.reverse_postorder();
        let clobbers = written_registers(&flow);
        let summary = Summary {
            code: Rc::new((flow, order)),
            entry: [NONE; REGISTERS],
            called: false,
            returns: [NONE; 2],
            ends: false,
            clobbers,
            looked_at: 0,
            read: BTreeSet::new(),
            callees: BTreeSet::new(),
            entry_changed: 1,
            result_changed: 1,
        };
        analysis.functions.insert(start, summary);
    }
    for &(cell, target) in initial {
        let set = analysis.fixed(target);
        if let Some(start) = surroundings.data_start(cell).filter(|_| set != NONE) {
            let object = analysis.object(Object::Global { svma: start });
            analysis.store_to(object, Some(cell.wrapping_sub(start) as i64), set);
        }
    }
    let mut settled = analysis.settle();
    // Functions that nobody calls get what their callers would give.
    let uncalled: Vec<u64> =
        analysis.functions.iter().filter(|(_, summary)| !summary.called).map(|(&start, _)| start).collect();
    for start in uncalled {
        for register in ARGUMENTS {
            let object = analysis.object(Object::Argument { function: start, register: register as u8 });
            let set = analysis.sets.one(object, Some(0));
            analysis.pass(start, register, set);
        }
    }
    analysis.name_pointees = true;
    analysis.clock += 1;
    let now = analysis.clock;
    analysis.functions.values_mut().for_each(|summary| summary.entry_changed = now);
    settled &= analysis.settle();
    analysis.collect(!settled)
}

impl Analysis<'_> {
    fn object(&mut self, object: Object) -> ObjectIx {
        if let Some(&known) = self.known.get(&object) {
            return known;
        }
        let index = ObjectIx(u32::try_from(self.objects.len()).unwrap_or(u32::MAX));
        self.objects.push(object.clone());
        self.known.insert(object, index);
        index
    }

    /// Looks at functions until nothing changes; false if that takes too long.
    fn settle(&mut self) -> bool {
        let starts: Vec<u64> = self.functions.keys().copied().collect();
        for _ in 0..MAX_PASSES {
            let mut changed = false;
            for &start in &starts {
                if self.is_stale(start) {
                    changed = true;
                    self.look_at(start, None);
                }
            }
            if !changed {
                return true;
            }
        }
        false
    }

    fn is_stale(&self, start: u64) -> bool {
        let Some(summary) = self.functions.get(&start) else { return false };
        let since = summary.looked_at;
        let newer = |object: &ObjectIx| self.memory.get(object).is_some_and(|m| m.version > since);
        let changed =
            |callee: &u64| self.functions.get(callee).is_some_and(|callee| callee.result_changed > since);
        summary.entry_changed > since || summary.read.iter().any(newer) || summary.callees.iter().any(changed)
    }

    /// Joins a value into an argument register of a function.
    fn pass(&mut self, callee: u64, register: usize, set: SetIx) {
        let Some(summary) = self.functions.get_mut(&callee) else { return };
        summary.called = true;
        let joined = self.sets.union(summary.entry[register], set);
        if joined != summary.entry[register] {
            summary.entry[register] = joined;
            self.clock += 1;
            summary.entry_changed = self.clock;
        }
    }

    /// Follows one function once, to its own fixed point. With `seen`, operands are noted there.
    fn look_at(&mut self, start: u64, mut seen: Option<&mut Vec<Touched>>) {
        self.clock += 1;
        let Some(summary) = self.functions.get_mut(&start) else { return };
        summary.looked_at = self.clock;
        summary.read.clear();
        let code = Rc::clone(&summary.code);
        let (flow, order) = &*code;
        if flow.blocks.is_empty() {
            return;
        }
        let mut entry = summary.entry;
        let frame = self.object(Object::Frame { function: start });
        // Before the first instruction the stack pointer is 8 below the canonical frame address.
        entry[RSP] = self.sets.one(frame, Some(-8));
        let mut before: Vec<Option<Registers>> = vec![None; flow.blocks.len()];
        before[0] = Some(entry);
        let mut open: BTreeSet<usize> = BTreeSet::from([0]);
        let mut number = vec![0; flow.blocks.len()];
        order.iter().enumerate().for_each(|(at, &block)| number[block] = at);
        let mut walk = Walk { start, info: InstructionInfoFactory::new(), seen: None };
        while let Some(at) = open.pop_first() {
            let block = order[at];
            let Some(mut registers) = before[block] else { continue };
            let mut instructions = flow.instructions[flow.blocks[block].instructions.clone()].iter();
            if !instructions.all(|instruction| self.step(&mut walk, flow, instruction, &mut registers)) {
                continue;
            }
            for &successor in &flow.blocks[block].successors {
                let joined = match before[successor] {
                    None => registers,
                    Some(known) => {
                        let mut joined = known;
                        for (value, &new) in joined.iter_mut().zip(&registers) {
                            *value = self.sets.union(*value, new);
                        }
                        joined
                    }
                };
                if before[successor] != Some(joined) {
                    before[successor] = Some(joined);
                    open.insert(number[successor]);
                }
            }
        }
        if let Some(seen) = seen.as_mut() {
            for (block, registers) in flow.blocks.iter().zip(before) {
                let Some(mut registers) = registers else { continue };
                walk.seen = Some(Vec::new());
                let mut instructions = flow.instructions[block.instructions.clone()].iter();
                let _ =
                    instructions.all(|instruction| self.step(&mut walk, flow, instruction, &mut registers));
                seen.append(&mut walk.seen.take().unwrap_or_default());
            }
        }
    }

    /// The final pass: every operand with its objects.
    fn collect(mut self, cut_short: bool) -> PointsTo {
        let starts: Vec<u64> = self.functions.keys().copied().collect();
        let mut functions = BTreeMap::new();
        for start in starts {
            let mut seen = Vec::new();
            self.look_at(start, Some(&mut seen));
            functions.insert(start, seen);
        }
        let mut codes = std::mem::take(&mut self.functions);
        let functions = functions
            .into_iter()
            .filter_map(|(start, mut seen)| {
                let code = Rc::try_unwrap(codes.remove(&start)?.code).ok()?;
                seen.sort_by_key(|touched| touched.pc);
                Some((start, (code.0, seen)))
            })
            .collect();
        PointsTo { objects: self.objects, functions, cut_short }
    }

    /// The set for a constant that may be an address of data or of a function.
    fn fixed(&mut self, svma: u64) -> SetIx {
        if self.functions.contains_key(&svma) {
            let object = self.object(Object::Global { svma });
            return self.sets.one(object, Some(0));
        }
        match self.surroundings.data_start(svma) {
            Some(start) => {
                let object = self.object(Object::Global { svma: start });
                self.sets.one(object, Some(svma.wrapping_sub(start) as i64))
            }
            None => NONE,
        }
    }

    // ---- memory ----

    fn store_to(&mut self, object: ObjectIx, offset: Option<i64>, set: SetIx) {
        if set == NONE {
            return;
        }
        let memory = self.memory.entry(object).or_default();
        let cell = match offset {
            Some(offset) => memory.cells.entry(offset).or_insert(NONE),
            None => memory.anywhere.get_or_insert(NONE),
        };
        let joined = self.sets.union(*cell, set);
        if joined != *cell {
            *cell = joined;
            self.clock += 1;
            memory.version = self.clock;
        }
    }

    fn store(&mut self, to: SetIx, set: SetIx) {
        if set == NONE {
            return;
        }
        for pointer in self.sets.pointers(to).to_vec() {
            self.store_to(pointer.object, pointer.offset, set);
        }
    }

    /// What a cell of an object holds, without what its copies for callers hold.
    fn content(&mut self, object: ObjectIx, offset: Option<i64>) -> SetIx {
        let Some(memory) = self.memory.get(&object) else { return NONE };
        let mut all: Vec<SetIx> = memory.anywhere.into_iter().collect();
        match offset {
            Some(offset) => all.extend(memory.cells.get(&offset)),
            None => all.extend(memory.cells.values()),
        }
        all.into_iter().fold(NONE, |joined, set| self.sets.union(joined, set))
    }

    /// What is loaded through pointers. A block as its caller knows it also holds what was stored
    /// where it was made.
    fn load(&mut self, start: u64, from: SetIx, name_unknown: bool) -> SetIx {
        let mut loaded = NONE;
        for pointer in self.sets.pointers(from).to_vec() {
            let mut content = NONE;
            for object in self.origins(pointer.object) {
                if let Some(summary) = self.functions.get_mut(&start) {
                    summary.read.insert(object);
                }
                let more = self.content(object, pointer.offset);
                content = self.sets.union(content, more);
            }
            if content == NONE && name_unknown && self.name_pointees {
                content = self.pointee(pointer);
            }
            loaded = self.sets.union(loaded, content);
        }
        loaded
    }

    /// The object, and the ones that it was before calls handed it on.
    fn origins(&mut self, object: ObjectIx) -> Vec<ObjectIx> {
        let mut all = vec![object];
        if let Object::Heap { calls } = &self.objects[object.0 as usize] {
            let calls = calls.clone();
            for length in (1..calls.len()).rev() {
                all.push(self.object(Object::Heap { calls: calls[..length].to_vec() }));
            }
        }
        all
    }

    fn pointee(&mut self, of: Pointer) -> SetIx {
        let mut depth = 0;
        let mut object = of.object;
        while let Object::Pointee { of, .. } = self.objects[object.0 as usize] {
            depth += 1;
            object = of;
        }
        // Text holds no pointers; beyond a few links everything is alike.
        if depth >= MAX_POINTEES {
            return self.sets.one(of.object, None);
        }
        let object = self.object(Object::Pointee { of: of.object, offset: of.offset });
        self.sets.one(object, Some(0))
    }

    /// Without objects that stand for unknown contents, if there are others.
    fn best(&mut self, set: SetIx) -> SetIx {
        let objects = &self.objects;
        let strong = self.sets.filtered(set, |pointer| !is_pointee(&objects[pointer.object.0 as usize]));
        if strong == NONE { set } else { strong }
    }

    // ---- operands ----

    /// The address of a memory operand.
    fn address(&mut self, registers: &Registers, used: &UsedMemory) -> SetIx {
        let displacement = used.displacement() as i64;
        if used.segment() == Reg::FS {
            let thread = self.object(Object::Thread);
            let plain = used.base() == Reg::None && used.index() == Reg::None;
            return self.sets.one(thread, plain.then_some(displacement));
        }
        let of = |register: Reg| general(register).map_or(NONE, |number| registers[number]);
        let scaled = used.scale() > 1;
        if used.base() == Reg::RIP || (used.base() == Reg::None && used.index() == Reg::None) {
            return self.fixed(used.displacement());
        }
        let base = of(used.base());
        if used.index() == Reg::None {
            return self.sets.shifted(base, displacement);
        }
        if used.base() == Reg::None && scaled {
            let fixed = self.fixed(used.displacement());
            return self.sets.blurred(fixed);
        }
        let index = if scaled { NONE } else { of(used.index()) };
        let mut sum = self.sum(base, index);
        if sum == NONE {
            sum = self.fixed(used.displacement());
        }
        self.sets.blurred(sum)
    }

    /// Pointer plus something: of two candidates the one that is known to be a pointer.
    fn sum(&mut self, a: SetIx, b: SetIx) -> SetIx {
        let both = self.sets.union(a, b);
        let best = self.best(both);
        self.sets.blurred(best)
    }

    fn note(&mut self, walk: &mut Walk, instruction: &Instruction, registers: &Registers) {
        let mut uses: Vec<UsedMemory> = walk.info.info(instruction).used_memory().to_vec();
        if instruction.mnemonic() == Mnemonic::Lea {
            uses.clear();
        }
        for used in uses {
            let (reads, writes) = (reads(used.access()), writes(used.access()));
            if !reads && !writes {
                continue;
            }
            // What push and call write lies below the stack pointer as it is before them; iced
            // states the displacement.
            let address = self.address(registers, &used);
            let best = self.best(address);
            let pointers = self.sets.pointers(best).to_vec();
            if let Some(seen) = &mut walk.seen {
                seen.push(Touched {
                    pc: instruction.ip(),
                    reads,
                    writes,
                    pointers,
                    registers: [used.base(), used.index()],
                    displacement: used.displacement() as i64,
                });
            }
        }
    }

    // ---- instructions ----

    /// One instruction; false if execution does not go on behind it.
    fn step(
        &mut self,
        walk: &mut Walk,
        flow: &ControlFlow,
        instruction: &Instruction,
        r: &mut Registers,
    ) -> bool {
        if walk.seen.is_some() {
            self.note(walk, instruction, r);
        }
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => return self.call(walk, instruction, r),
            FlowControl::Return => {
                self.give_back(walk.start, [r[RAX], r[RDX]]);
                return true;
            }
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                if let Some(target) = direct_target(instruction)
                    && flow.instruction_at(target).is_none()
                {
                    self.tail_call(walk.start, Target::Address(target), r);
                }
                return true;
            }
            FlowControl::IndirectBranch => {
                let target = self.indirect_target(walk.start, instruction, r);
                self.tail_call(walk.start, target, r);
                return true;
            }
            FlowControl::Interrupt => return true,
            _ => self.compute(walk, instruction, r),
        }
        true
    }

    /// An instruction that neither calls nor jumps.
    fn compute(&mut self, walk: &mut Walk, instruction: &Instruction, r: &mut Registers) {
        let op0 = instruction.op0_register();
        let to = (instruction.op0_kind() == OpKind::Register).then(|| slot(op0)).flatten();
        let whole = |register: Reg| register.is_gpr64() || register.is_vector_register();
        match instruction.mnemonic() {
            Mnemonic::Mov if to.is_some() && op0.is_gpr64() => {
                let value = self.source(walk, instruction, 1, r);
                self.set(r, to, value);
            }
            // A fixed address in a program that is not relocated.
            Mnemonic::Mov
                if to.is_some() && op0.is_gpr32() && instruction.op1_kind() == OpKind::Immediate32 =>
            {
                let value = self.fixed(u64::from(instruction.immediate32()));
                self.set(r, to, value);
            }
            Mnemonic::Lea if op0.is_gpr64() => {
                let value = self.effective_address(instruction, r);
                self.set(r, to, value);
            }
            Mnemonic::Add | Mnemonic::Sub if to.is_some() && op0.is_gpr64() => {
                let old = to.map_or(NONE, |to| r[to]);
                let add = instruction.mnemonic() == Mnemonic::Add;
                let value = match instruction.op1_kind() {
                    OpKind::Immediate8to64 | OpKind::Immediate32to64 => {
                        let by = instruction.immediate(1) as i64;
                        let best = self.best(old);
                        self.sets.shifted(best, if add { by } else { by.wrapping_neg() })
                    }
                    _ if add => {
                        let other = self.source(walk, instruction, 1, r);
                        self.sum(old, other)
                    }
                    // A difference of two pointers is a number.
                    _ => {
                        let other = self.source(walk, instruction, 1, r);
                        let (old, other) = (self.best(old), self.best(other));
                        let same = !self.sets.pointers(old).is_empty()
                            && self.sets.pointers(old).iter().all(|pointer| {
                                self.sets.pointers(other).iter().any(|o| o.object == pointer.object)
                            });
                        if same { NONE } else { self.sets.blurred(old) }
                    }
                };
                self.set(r, to, value);
            }
            // Alignment of a pointer; of the stack pointer too, whose slots are then not known.
            Mnemonic::And | Mnemonic::Or if to.is_some() && op0.is_gpr64() => {
                let value = self.sets.blurred(to.map_or(NONE, |to| r[to]));
                let mask = !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory);
                self.set(r, to, if mask { value } else { NONE });
            }
            Mnemonic::Xchg => {
                let a = self.source(walk, instruction, 0, r);
                let b = self.source(walk, instruction, 1, r);
                self.put(walk, instruction, 0, b, r);
                self.put(walk, instruction, 1, a, r);
            }
            Mnemonic::Cmpxchg => {
                let old = self.source(walk, instruction, 0, r);
                let new = self.source(walk, instruction, 1, r);
                self.put(walk, instruction, 0, new, r);
                r[RAX] = self.sets.union(r[RAX], old);
            }
            Mnemonic::Xadd => {
                let old = self.source(walk, instruction, 0, r);
                self.put(walk, instruction, 1, old, r);
            }
            Mnemonic::Push => {
                let value = self.source(walk, instruction, 0, r);
                r[RSP] = self.sets.shifted(r[RSP], -8);
                self.store(r[RSP], value);
            }
            Mnemonic::Pop => {
                let value = self.load(walk.start, r[RSP], false);
                r[RSP] = self.sets.shifted(r[RSP], 8);
                self.put(walk, instruction, 0, value, r);
            }
            Mnemonic::Leave => {
                let value = self.load(walk.start, r[RBP], false);
                r[RSP] = self.sets.shifted(r[RBP], 8);
                r[RBP] = value;
            }
            Mnemonic::Movsq | Mnemonic::Movsb | Mnemonic::Movsd if instruction.is_string_instruction() => {
                let (from, into) = (self.sets.blurred(r[6]), self.sets.blurred(r[7]));
                self.copy(walk.start, from, into);
                (r[6], r[7]) = (from, into);
                if instruction.has_rep_prefix() {
                    r[RCX] = NONE;
                }
            }
            _ if instruction.is_string_instruction() => {
                (r[6], r[7]) = (self.sets.blurred(r[6]), self.sets.blurred(r[7]));
                r[RAX] = if writes_rax(instruction) { NONE } else { r[RAX] };
            }
            // A store of whole registers.
            _ if instruction.op0_kind() == OpKind::Memory
                && instruction.op_count() >= 2
                && instruction.op1_kind() == OpKind::Register
                && whole(instruction.op1_register())
                && is_move(instruction) =>
            {
                let value = self.source(walk, instruction, 1, r);
                self.put(walk, instruction, 0, value, r);
            }
            // A fixed address stored by a program that is not relocated.
            Mnemonic::Mov
                if instruction.op0_kind() == OpKind::Memory
                    && instruction.op1_kind() == OpKind::Immediate32to64 =>
            {
                let value = self.fixed(instruction.immediate(1));
                self.put(walk, instruction, 0, value, r);
            }
            // Either of two.
            _ if to.is_some() && op0.is_gpr64() && is_conditional_move(instruction) => {
                let (old, new) = (to.map_or(NONE, |to| r[to]), self.source(walk, instruction, 1, r));
                let value = self.sets.union(old, new);
                self.set(r, to, value);
            }
            // Vectors of pointers stay pointers to the same when they are moved, rearranged or added to.
            _ if to.is_some()
                && (is_move(instruction) || rearranges(instruction))
                && (op0.is_vector_register() || moves_from_vector(instruction)) =>
            {
                let mut value = NONE;
                for operand in 0..instruction.op_count() {
                    if operand > 0 || !is_move(instruction) {
                        let more = self.source(walk, instruction, operand, r);
                        value = self.sets.union(value, more);
                    }
                }
                let value = if is_move(instruction) { value } else { self.sets.blurred(value) };
                self.set(r, to, value);
            }
            _ => self.forget(walk, instruction, r),
        }
    }

    /// Whatever is written holds no pointer that is known.
    fn forget(&mut self, walk: &mut Walk, instruction: &Instruction, r: &mut Registers) {
        let used = walk.info.info(instruction);
        for register in used.used_registers() {
            if writes(register.access())
                && let Some(slot) = slot(register.register().full_register())
                && slot != RSP
            {
                r[slot] = NONE;
            }
        }
    }

    fn set(&mut self, r: &mut Registers, to: Option<usize>, value: SetIx) {
        if let Some(to) = to {
            r[to] = value;
        }
    }

    /// The pointers that an operand holds.
    fn source(&mut self, walk: &mut Walk, instruction: &Instruction, operand: u32, r: &Registers) -> SetIx {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                let wide = register.is_gpr64() || register.is_vector_register();
                slot(register).filter(|_| wide).map_or(NONE, |slot| r[slot])
            }
            OpKind::Memory => {
                let size = instruction.memory_size().size();
                if size < 8 || instruction.memory_size() == MemorySize::Float80 {
                    return NONE;
                }
                let address = self.operand_address(walk, instruction, r);
                let plain = size == 8
                    && instruction.op0_kind() == OpKind::Register
                    && instruction.op0_register().is_gpr64();
                let mut loaded = self.load(walk.start, address, plain);
                for part in 1..(size / 8).min(8) {
                    let next = self.sets.shifted(address, 8 * part as i64);
                    let more = self.load(walk.start, next, false);
                    loaded = self.sets.union(loaded, more);
                }
                loaded
            }
            _ => NONE,
        }
    }

    /// Writes pointers to an operand.
    fn put(
        &mut self,
        walk: &mut Walk,
        instruction: &Instruction,
        operand: u32,
        value: SetIx,
        r: &mut Registers,
    ) {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                if let Some(slot) = slot(instruction.op_register(operand)) {
                    r[slot] = value;
                }
            }
            OpKind::Memory => {
                let size = instruction.memory_size().size();
                if size < 8 {
                    return;
                }
                let address = self.operand_address(walk, instruction, r);
                for part in 0..(size / 8).min(8) {
                    let next = self.sets.shifted(address, 8 * part as i64);
                    self.store(next, value);
                }
            }
            _ => {}
        }
    }

    fn operand_address(&mut self, walk: &mut Walk, instruction: &Instruction, r: &Registers) -> SetIx {
        let used = walk.info.info(instruction).used_memory().first().copied();
        let set = used.map_or(NONE, |used| self.address(r, &used));
        self.best(set)
    }

    fn effective_address(&mut self, instruction: &Instruction, r: &Registers) -> SetIx {
        if instruction.is_ip_rel_memory_operand() {
            return self.fixed(instruction.ip_rel_memory_address());
        }
        let displacement = instruction.memory_displacement64() as i64;
        let of = |register: Reg| slot(register).map_or(NONE, |slot| r[slot]);
        let base = of(instruction.memory_base());
        if instruction.memory_index() == Reg::None {
            let base = self.best(base);
            return self.sets.shifted(base, displacement);
        }
        let index = if instruction.memory_index_scale() > 1 { NONE } else { of(instruction.memory_index()) };
        let sum = self.sum(base, index);
        if sum == NONE && displacement > 0xfff {
            let fixed = self.fixed(displacement as u64);
            return self.sets.blurred(fixed);
        }
        sum
    }

    fn copy(&mut self, start: u64, from: SetIx, to: SetIx) {
        let (from, to) = (self.sets.blurred(from), self.sets.blurred(to));
        let content = self.load(start, from, false);
        self.store(to, content);
    }

    // ---- calls ----

    fn indirect_target(&mut self, start: u64, instruction: &Instruction, r: &Registers) -> Target {
        if instruction.op0_kind() == OpKind::Register {
            return Target::Set(slot(instruction.op0_register()).map_or(NONE, |slot| r[slot]));
        }
        if instruction.is_ip_rel_memory_operand()
            && let Some(callee) = self.surroundings.imported(instruction.ip_rel_memory_address())
        {
            return Target::Known(callee);
        }
        let mut walk = Walk { start, info: InstructionInfoFactory::new(), seen: None };
        let address = self.operand_address(&mut walk, instruction, r);
        Target::Set(self.load(start, address, false))
    }

    fn callees(&mut self, target: Target) -> Vec<Callee> {
        match target {
            Target::Known(callee) => vec![callee],
            Target::Address(address) if self.functions.contains_key(&address) => {
                vec![Callee::Function(address)]
            }
            Target::Address(address) => vec![self.surroundings.callee(address)],
            Target::Set(set) => self.functions_in(set).into_iter().map(Callee::Function).collect(),
        }
    }

    fn functions_in(&self, set: SetIx) -> Vec<u64> {
        let start = |pointer: &Pointer| match &self.objects[pointer.object.0 as usize] {
            Object::Global { svma } if pointer.offset == Some(0) => Some(*svma),
            _ => None,
        };
        let pointers = self.sets.pointers(set).iter();
        pointers.filter_map(start).filter(|svma| self.functions.contains_key(svma)).collect()
    }

    /// A call; false if it does not return.
    fn call(&mut self, walk: &mut Walk, instruction: &Instruction, r: &mut Registers) -> bool {
        let next = instruction.next_ip();
        let target = match instruction.flow_control() {
            FlowControl::Call => Target::Address(instruction.near_branch_target()),
            _ => self.indirect_target(walk.start, instruction, r),
        };
        // Position-independent code finds its address by calling what follows.
        if matches!(target, Target::Address(address) if address == next) {
            r[RSP] = self.sets.shifted(r[RSP], -8);
            return true;
        }
        let callees = self.callees(target);
        let mut ends = callees.is_empty();
        let mut results = [NONE; 2];
        let mut clobbers = if callees.is_empty() { caller_saved() } else { 0 };
        for callee in callees {
            let (returned, changed) = self.apply(walk.start, callee, next, r);
            ends |= match callee {
                Callee::Function(callee) => self.functions.get(&callee).is_none_or(|callee| callee.ends),
                callee => callee != Callee::Never,
            };
            for (result, returned) in results.iter_mut().zip(returned) {
                *result = self.sets.union(*result, returned);
            }
            clobbers |= changed;
        }
        for (register, value) in r.iter_mut().enumerate() {
            if clobbers & (1 << register) != 0 && !SAVED.contains(&register) {
                *value = NONE;
            }
        }
        (r[RAX], r[RDX]) = (results[0], if clobbers & (1 << RDX) != 0 { results[1] } else { r[RDX] });
        if let Some(summary) = self.functions.get_mut(&walk.start) {
            let before = summary.clobbers;
            summary.clobbers |= clobbers;
            if summary.clobbers != before {
                self.clock += 1;
                summary.result_changed = self.clock;
            }
        }
        ends
    }

    /// A jump to another function: it returns to our caller.
    fn tail_call(&mut self, start: u64, target: Target, r: &Registers) {
        let callees = self.callees(target);
        if callees.is_empty() {
            self.give_back(start, [NONE; 2]);
        }
        for callee in callees {
            // The call is our caller's; its return address is not known here.
            let (returned, clobbers) = self.apply(start, callee, start, r);
            let ends = match callee {
                Callee::Function(callee) => self.functions.get(&callee).is_none_or(|callee| callee.ends),
                callee => callee != Callee::Never,
            };
            if ends {
                self.give_back(start, returned);
            }
            if let Some(summary) = self.functions.get_mut(&start) {
                let before = summary.clobbers;
                summary.clobbers |= clobbers;
                if summary.clobbers != before {
                    self.clock += 1;
                    summary.result_changed = self.clock;
                }
            }
        }
    }

    fn give_back(&mut self, start: u64, returned: [SetIx; 2]) {
        let Some(summary) = self.functions.get_mut(&start) else { return };
        if !summary.ends {
            summary.ends = true;
            self.clock += 1;
            summary.result_changed = self.clock;
        }
        for (known, new) in summary.returns.iter_mut().zip(returned) {
            let joined = self.sets.union(*known, new);
            if joined != *known {
                *known = joined;
                self.clock += 1;
                summary.result_changed = self.clock;
            }
        }
    }

    /// What a call does: its results and the registers that it changes.
    fn apply(&mut self, start: u64, callee: Callee, next: u64, r: &Registers) -> ([SetIx; 2], u64) {
        let argument = |position: u8| ARGUMENTS.get(usize::from(position)).map_or(NONE, |&at| r[at]);
        let result = match callee {
            Callee::Function(callee) => return self.enter(start, callee, next, r),
            Callee::Allocates => {
                let object = self.object(Object::Heap { calls: vec![next] });
                self.sets.one(object, Some(0))
            }
            Callee::AllocatesThroughPointer => {
                let object = self.object(Object::Heap { calls: vec![next] });
                let block = self.sets.one(object, Some(0));
                self.store(argument(0), block);
                NONE
            }
            Callee::ReturnsFirst => argument(0),
            Callee::Copies => {
                self.copy(start, argument(1), argument(0));
                argument(0)
            }
            Callee::Calls { function, first, second } => {
                for callee in self.functions_in(argument(function)) {
                    self.pass(callee, ARGUMENTS[0], argument(first));
                    if let Some(second) = second {
                        self.pass(callee, ARGUMENTS[1], argument(second));
                    }
                }
                NONE
            }
            Callee::Unknown if self.name_pointees => {
                let object = self.object(Object::Returned { call: next });
                self.sets.one(object, Some(0))
            }
            Callee::Unknown | Callee::Never => NONE,
        };
        ([result, NONE], caller_saved())
    }

    /// A call of an analysed function.
    fn enter(&mut self, start: u64, callee: u64, next: u64, r: &Registers) -> ([SetIx; 2], u64) {
        for register in ARGUMENTS.into_iter().chain([CHAIN]) {
            self.pass(callee, register, r[register]);
        }
        // Arguments on the stack: the callee finds them from its frame address on. (A tail call's
        // are its caller's own.)
        if next != start {
            let frame = self.object(Object::Frame { function: callee });
            for offset in (0..STACK_ARGUMENT_BYTES).step_by(8) {
                let from = self.sets.shifted(r[RSP], offset);
                let known = self.sets.pointers(from).iter().all(|pointer| pointer.offset.is_some());
                let value = if known { self.load(start, from, false) } else { NONE };
                self.store_to(frame, Some(offset), value);
            }
        }
        let Some(summary) = self.functions.get(&callee) else { return ([NONE; 2], caller_saved()) };
        let (returns, clobbers) = (summary.returns, summary.clobbers);
        let code = Rc::clone(&summary.code);
        if let Some(summary) = self.functions.get_mut(&start) {
            summary.callees.insert(callee);
        }
        if next == start {
            return (returns, clobbers);
        }
        (returns.map(|set| self.handed_on(set, &code.0, next)), clobbers)
    }

    /// Blocks that the callee itself got from an allocation are told apart by its calls.
    fn handed_on(&mut self, set: SetIx, callee: &ControlFlow, next: u64) -> SetIx {
        let mut result = NONE;
        for pointer in self.sets.pointers(set).to_vec() {
            let fresh = match &self.objects[pointer.object.0 as usize] {
                Object::Heap { calls } if calls.len() < MAX_CALLS => {
                    let last = calls.last().copied().unwrap_or(0);
                    let here =
                        callee.blocks.iter().any(|block| (block.start + 1..=block.end).contains(&last));
                    here.then(|| calls.iter().copied().chain([next]).collect::<Vec<_>>())
                }
                _ => None,
            };
            let object = match fresh {
                Some(calls) => self.object(Object::Heap { calls }),
                None => pointer.object,
            };
            let one = self.sets.one(object, pointer.offset);
            result = self.sets.union(result, one);
        }
        result
    }
}

#[derive(Clone, Copy)]
enum Target {
    Address(u64),
    Set(SetIx),
    Known(Callee),
}

/// One walk over a function.
struct Walk {
    start: u64,
    info: InstructionInfoFactory,
    seen: Option<Vec<Touched>>,
}

fn is_pointee(object: &Object) -> bool {
    matches!(object, Object::Pointee { .. } | Object::Returned { .. })
}

fn caller_saved() -> u64 {
    let saved = SAVED.iter().fold(0u64, |mask, &register| mask | 1 << register);
    ((1 << REGISTERS) - 1) & !saved
}

/// Registers that the function's own instructions write.
fn written_registers(flow: &ControlFlow) -> u64 {
    let mut info = InstructionInfoFactory::new();
    let mut mask = 0;
    for instruction in &flow.instructions {
        for register in info.info(instruction).used_registers() {
            if writes(register.access())
                && let Some(slot) = slot(register.register().full_register())
            {
                mask |= 1 << slot;
            }
        }
    }
    mask
}

/// Position of a register among [`Registers`]; parts of a register have the whole one's.
fn slot(register: Reg) -> Option<usize> {
    general(register).or_else(|| {
        (register.is_vector_register() && register.number() < 32).then(|| GENERAL + register.number())
    })
}

fn general(register: Reg) -> Option<usize> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number())
}

fn reads(access: OpAccess) -> bool {
    matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

fn writes_rax(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Lodsb | Mnemonic::Lodsw | Mnemonic::Lodsd | Mnemonic::Lodsq)
}

fn is_conditional_move(instruction: &Instruction) -> bool {
    instruction.condition_code() != iced_x86::ConditionCode::None && instruction.op_count() == 2
}

/// Whether the first operand gets what the others hold, unchanged.
fn is_move(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    matches!(
        instruction.mnemonic(),
        M::Mov
            | M::Movq
            | M::Vmovq
            | M::Movups
            | M::Movaps
            | M::Movupd
            | M::Movapd
            | M::Movdqa
            | M::Movdqu
            | M::Vmovups
            | M::Vmovaps
            | M::Vmovupd
            | M::Vmovapd
            | M::Vmovdqa
            | M::Vmovdqu
            | M::Vmovdqa64
            | M::Vmovdqu64
            | M::Movlps
            | M::Movhps
            | M::Movlpd
            | M::Movhpd
            | M::Vmovlps
            | M::Vmovhps
            | M::Vmovlpd
            | M::Vmovhpd
            | M::Movsd
            | M::Vmovsd
            | M::Movntdq
            | M::Movntps
            | M::Movnti
    )
}

/// Whether a vector gets whole 8-byte elements of the operands, or their sums: what compilers do with
/// pointers in vectors.
fn rearranges(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    matches!(
        instruction.mnemonic(),
        M::Paddq
            | M::Vpaddq
            | M::Punpcklqdq
            | M::Vpunpcklqdq
            | M::Punpckhqdq
            | M::Vpunpckhqdq
            | M::Pshufd
            | M::Vpshufd
            | M::Pinsrq
            | M::Vpinsrq
            | M::Pextrq
            | M::Vpextrq
            | M::Vpbroadcastq
            | M::Vpermq
            | M::Vinserti128
            | M::Vinsertf128
            | M::Vextracti128
            | M::Vextractf128
            | M::Vinserti64x2
            | M::Vinserti64x4
            | M::Vextracti64x2
            | M::Vextracti64x4
            | M::Unpcklpd
            | M::Vunpcklpd
            | M::Unpckhpd
            | M::Vunpckhpd
            | M::Shufpd
            | M::Vshufpd
            | M::Movlhps
            | M::Vmovlhps
            | M::Movhlps
            | M::Vmovhlps
            | M::Movddup
            | M::Vmovddup
            | M::Palignr
            | M::Vpalignr
    )
}

/// A vector register's content goes to a general one.
fn moves_from_vector(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Movq | Mnemonic::Vmovq | Mnemonic::Pextrq | Mnemonic::Vpextrq)
}

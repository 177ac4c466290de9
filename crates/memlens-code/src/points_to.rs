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

use iced_x86::{InstructionInfoFactory, Register as Reg};

use self::instruction_kinds::written_registers;
use crate::control_flow::ControlFlow;
use crate::memory_object::{NONE, Object, ObjectIx, Pointer, SetIx, Sets};

mod calls;
mod instruction_kinds;
mod instructions;
mod memory;
mod operands;

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
            for &successor in flow.blocks[block].successors.iter() {
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

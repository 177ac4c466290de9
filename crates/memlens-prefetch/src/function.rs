//! A function: blocks, loops, definitions of registers, liveness.
//!
//! Registers are numbered as in instructions: rax 0, rcx 1, rdx 2, rbx 3, rsp 4, rbp 5, rsi 6, rdi 7, r8 to r15.

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use memlens_code::{ControlFlow, Loops, immediate_dominators, jump_target};

use crate::slice::Refusal;
use crate::window::Jump;

/// A set of general-purpose registers, a bit each.
pub(crate) type Registers = u16;

pub(crate) const RSP: usize = 4;
const ALL: Registers = 0xffff;
/// Those that a call may change (System V ABI AMD64 1.0, figure 3.4): rax, rcx, rdx, rsi, rdi, r8 to r11.
const CALLER_SAVED: Registers = 0b1111_1100_0111;
/// Those of them that may hold a result.
const RESULTS: Registers = 0b101;
/// Of the flags as iced names them: overflow, sign, zero, auxiliary, carry, parity. No instruction here changes others.
const STATUS_FLAGS: u32 = 0x3f;
/// Expressions deeper than this are given up.
const MAX_DEPTH: u32 = 24;

/// What is known of one instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    /// Registers whose value it uses.
    pub reads: Registers,
    /// Registers that it sets as a whole, always.
    pub writes: Registers,
    /// Registers that it may change.
    pub changes: Registers,
    /// Flags that it uses.
    flags_read: u32,
    /// Flags that it always sets.
    flags_written: u32,
    /// Whether it calls, or enters the kernel.
    pub is_call: bool,
    /// Whether it touches memory other than by a prefetch.
    pub touches_memory: bool,
}

/// The number of a general-purpose register or a part of one.
pub(crate) fn number(register: Register) -> Option<usize> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number())
}

/// A function's machine code and what follows from it.
#[derive(Debug)]
pub struct Function {
    parts: Vec<(u64, Vec<u8>)>,
    pub(crate) flow: ControlFlow,
    pub(crate) loops: Loops,
    pub(crate) facts: Vec<Facts>,
    /// Position of each block in reverse postorder.
    pub(crate) order: Vec<usize>,
    dominators: Vec<Option<usize>>,
    /// Live registers and flags at the end of each block.
    live_out: Vec<(Registers, u32)>,
    /// Registers that it writes anywhere.
    written: Registers,
}

impl Function {
    /// Of a function's pieces (address (svma) of the first byte, bytes), the one with the entry first: compilers put
    /// unlikely code apart, and jump back from there. `outside` are the jumps and calls of the rest of the module, as
    /// [`jumps`](crate::jumps) finds them. Linear, but for loops nested in each other.
    ///
    /// # Errors
    /// Where its jumps are not understood, or its stack pointer goes ways that are not.
    pub fn new(parts: &[(u64, &[u8])], jumps: &[Jump]) -> Result<Self, Refusal> {
        let flow = ControlFlow::new(parts);
        let own: Vec<(u64, Vec<u8>)> = parts.iter().map(|&(start, code)| (start, code.to_vec())).collect();
        let decoded: usize = flow.instructions.iter().map(Instruction::len).sum();
        if decoded != parts.iter().map(|part| part.1.len()).sum() {
            return Err(Refusal::NotCode);
        }
        let entry = parts.first().map_or(0, |part| part.0);
        let holds = |address: u64| {
            parts.iter().any(|&(start, code)| (start..start + code.len() as u64).contains(&address))
        };
        if jumps.iter().any(|jump| holds(jump.to) && jump.to != entry && !holds(jump.from)) {
            return Err(Refusal::EnteredElsewhere);
        }
        let mut factory = InstructionInfoFactory::new();
        let facts: Vec<Facts> =
            flow.instructions.iter().map(|instruction| facts(instruction, &mut factory)).collect();
        for instruction in &flow.instructions {
            if instruction.flow_control() == FlowControl::IndirectBranch {
                return Err(Refusal::IndirectJump);
            }
            if !keeps_a_stack(instruction) {
                return Err(Refusal::ForeignStack);
            }
            // A jump into the middle of what was taken for an instruction.
            let inside = jump_target(instruction)
                .filter(|&target| holds(target))
                .is_some_and(|target| flow.instruction_at(target).is_none());
            if inside {
                return Err(Refusal::NotCode);
            }
        }
        let loops = Loops::new(&flow);
        let mut order = vec![usize::MAX; flow.blocks.len()];
        flow.reverse_postorder().into_iter().enumerate().for_each(|(at, block)| order[block] = at);
        let dominators = immediate_dominators(&flow);
        let written = facts.iter().filter(|facts| !facts.is_call).fold(0, |set, facts| set | facts.changes);
        let mut function =
            Self { parts: own, flow, loops, facts, order, dominators, live_out: Vec::new(), written };
        function.find_live();
        Ok(function)
    }

    /// Its bytes from an address (svma) on.
    pub(crate) fn bytes(&self, range: std::ops::Range<u64>) -> &[u8] {
        let holds = |part: &&(u64, Vec<u8>)| (part.0..part.0 + part.1.len() as u64).contains(&range.start);
        let found =
            self.parts.iter().find(holds).and_then(|(start, code)| {
                code.get((range.start - start) as usize..(range.end - start) as usize)
            });
        found.unwrap_or_default()
    }

    /// Whether every way to `block` leads through `dominator`.
    pub(crate) fn dominates(&self, dominator: usize, block: usize) -> bool {
        let mut at = block;
        loop {
            match self.dominators[at] {
                _ if at == dominator => return true,
                Some(next) if next != at => at = next,
                _ => return false,
            }
        }
    }

    /// Whether instruction `first` is always executed before `second` in an iteration of a loop that holds both.
    pub(crate) fn precedes(&self, first: usize, second: usize) -> bool {
        let (a, b) = (self.flow.block_of(first), self.flow.block_of(second));
        if a == b { first < second } else { self.dominates(a, b) }
    }

    fn find_live(&mut self) {
        let flow = &self.flow;
        let mut live_in = vec![(0, 0); flow.blocks.len()];
        self.live_out = live_in.clone();
        let mut changed = true;
        while changed {
            changed = false;
            for (at, block) in flow.blocks.iter().enumerate().rev() {
                let last = &flow.instructions[block.instructions.end - 1];
                // What leaves the function, wholly or on one of two ways.
                let leaves = block.successors.len() < ways(last);
                let mut out = if leaves { self.live_at_exit(last) } else { (0, 0) };
                for &next in block.successors.iter() {
                    out = (out.0 | live_in[next].0, out.1 | live_in[next].1);
                }
                let before = block
                    .instructions
                    .clone()
                    .rev()
                    .fold(out, |live, position| self.live_before(position, live));
                changed |= before != live_in[at] || out != self.live_out[at];
                (live_in[at], self.live_out[at]) = (before, out);
            }
        }
    }

    fn live_at_exit(&self, last: &Instruction) -> (Registers, u32) {
        match last.flow_control() {
            // A caller may know which registers this function does not write (gcc's -fipa-ra), not that it writes none.
            FlowControl::Return => (ALL & !(CALLER_SAVED & !RESULTS & self.written), STATUS_FLAGS),
            _ => (ALL, STATUS_FLAGS),
        }
    }

    fn live_before(&self, position: usize, live: (Registers, u32)) -> (Registers, u32) {
        let facts = &self.facts[position];
        if facts.is_call {
            return (ALL, STATUS_FLAGS);
        }
        (live.0 & !facts.writes | facts.reads, live.1 & !facts.flags_written | facts.flags_read)
    }

    /// Registers and flags whose values may be used from in front of the instruction at `position` on.
    pub(crate) fn live_at(&self, position: usize) -> (Registers, bool) {
        let block = self.flow.block_of(position);
        let range = self.flow.blocks[block].instructions.clone();
        let live = (position..range.end)
            .rev()
            .fold(self.live_out[block], |live, position| self.live_before(position, live));
        (live.0, live.1 != 0)
    }

    /// A view of one of its loops.
    pub(crate) fn looped(&self, index: usize) -> Loop<'_> {
        let natural = &self.loops.loops[index];
        let mut inside = vec![false; self.flow.blocks.len()];
        natural.blocks.iter().for_each(|&block| inside[block] = true);
        let mut view = Loop { function: self, index, header: natural.header, inside, steps: [None; 16] };
        for register in 0..16 {
            view.steps[register] = view.find_step(register);
        }
        view
    }
}

/// How many ways lead on from an instruction that ends a block.
fn ways(last: &Instruction) -> usize {
    match last.flow_control() {
        FlowControl::ConditionalBranch => 2,
        // Both ways may be the same block: then one is enough.
        _ => 1,
    }
}

/// Whether the stack pointer stays in the stack that it is in, as far as one instruction says.
fn keeps_a_stack(instruction: &Instruction) -> bool {
    let writes_rsp = instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && number(instruction.op0_register()) == Some(RSP);
    let exchanges = instruction.mnemonic() == Mnemonic::Xchg
        && (0..instruction.op_count()).any(|operand| {
            instruction.op_kind(operand) == OpKind::Register
                && number(instruction.op_register(operand)) == Some(RSP)
        });
    !exchanges
        && (!writes_rsp
            || match instruction.mnemonic() {
                Mnemonic::Mov => instruction.op1_register() == Register::RBP,
                Mnemonic::Lea => {
                    matches!(instruction.memory_base(), Register::RSP | Register::RBP | Register::R10)
                }
                mnemonic => matches!(
                    mnemonic,
                    Mnemonic::Add
                        | Mnemonic::Sub
                        | Mnemonic::And
                        | Mnemonic::Push
                        | Mnemonic::Cmp
                        | Mnemonic::Test
                ),
            })
}

fn facts(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Facts {
    let info = factory.info(instruction);
    let mut facts = Facts::default();
    for used in info.used_registers() {
        let Some(number) = number(used.register()) else { continue };
        let bit = 1 << number;
        // The upper half is set to zero by writes of 32 bits, and stays on others.
        let is_whole = used.register().size() >= 4;
        match used.access() {
            OpAccess::Read | OpAccess::CondRead => facts.reads |= bit,
            OpAccess::Write if is_whole => facts.writes |= bit,
            OpAccess::ReadWrite if is_whole => {
                facts.reads |= bit;
                facts.writes |= bit;
            }
            OpAccess::None | OpAccess::NoMemAccess => {}
            _ => {
                facts.reads |= bit;
                facts.changes |= bit;
            }
        }
    }
    facts.changes |= facts.writes;
    facts.flags_read = instruction.rflags_read() & STATUS_FLAGS;
    // Shifts by a register may leave all flags as they are, and so may repeated instructions.
    let by_register = (0..instruction.op_count()).any(|operand| {
        instruction.op_kind(operand) == OpKind::Register && instruction.op_register(operand) == Register::CL
    });
    let is_repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    if !by_register && !is_repeated {
        facts.flags_written = instruction.rflags_modified();
    }
    facts.is_call = matches!(
        instruction.flow_control(),
        FlowControl::Call
            | FlowControl::IndirectCall
            | FlowControl::Interrupt
            | FlowControl::XbeginXabortXend
            | FlowControl::Exception
    ) || matches!(instruction.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter);
    if facts.is_call {
        facts.changes |= CALLER_SAVED;
    }
    facts.touches_memory = info.used_memory().iter().any(|memory| memory.access() != OpAccess::NoMemAccess)
        && !instruction.mnemonic_is_prefetch();
    facts
}

trait MnemonicKind {
    fn mnemonic_is_prefetch(&self) -> bool;
}

impl MnemonicKind for Instruction {
    fn mnemonic_is_prefetch(&self) -> bool {
        matches!(
            self.mnemonic(),
            Mnemonic::Prefetchnta
                | Mnemonic::Prefetcht0
                | Mnemonic::Prefetcht1
                | Mnemonic::Prefetcht2
                | Mnemonic::Prefetchw
        )
    }
}

/// A value as the value of a register at the loop's header, of the same iteration, plus a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Linear {
    pub register: usize,
    pub offset: i64,
    /// Whether 32-bit arithmetic made it: sums may have lost a carry.
    pub is_narrow: bool,
}

/// Which instructions define a register before some place, in the same iteration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reaching {
    pub definitions: Vec<usize>,
    /// Whether its value at the loop's header may still be there.
    pub is_from_header: bool,
}

/// One loop of a function.
#[derive(Debug)]
pub(crate) struct Loop<'a> {
    pub function: &'a Function,
    index: usize,
    pub header: usize,
    pub inside: Vec<bool>,
    /// What an iteration adds to a register; `None`: no constant.
    steps: [Option<i64>; 16],
}

impl Loop<'_> {
    /// Address of its first instruction.
    pub fn address(&self) -> u64 {
        self.function.flow.blocks[self.header].start
    }

    /// Whether it calls functions, or the kernel.
    pub fn calls(&self) -> bool {
        self.function.flow.blocks.iter().zip(&self.inside).filter(|(_, inside)| **inside).any(|(block, _)| {
            block.instructions.clone().any(|position| self.function.facts[position].is_call)
        })
    }

    /// Those of some definitions that are outside of the next inner loop around `position`: what a register holds when
    /// that loop is entered. `None` where no inner loop holds the place.
    pub fn entering(&self, position: usize, definitions: &[usize]) -> Option<Vec<usize>> {
        let flow = &self.function.flow;
        let all = &self.function.loops;
        let mut inner = all.innermost[flow.block_of(position)].filter(|&inner| inner != self.index)?;
        while let Some(parent) = all.loops[inner].parent.filter(|&parent| parent != self.index) {
            inner = parent;
        }
        let is_outside = |at: &usize| !all.loops[inner].blocks.contains(&flow.block_of(*at));
        Some(definitions.iter().copied().filter(is_outside).collect())
    }

    pub fn step(&self, register: usize) -> Option<i64> {
        self.steps[register]
    }

    /// Definitions of a register that reach the place in front of `position`.
    pub fn reaching(&self, position: usize, register: usize) -> Reaching {
        let block = self.function.flow.block_of(position);
        self.reaching_in(block, position, register)
    }

    fn reaching_in(&self, block: usize, end: usize, register: usize) -> Reaching {
        let flow = &self.function.flow;
        let last_change = |range: std::ops::Range<usize>| {
            range.rev().find(|&at| self.function.facts[at].changes >> register & 1 == 1)
        };
        let mut found = Reaching::default();
        let start = flow.blocks[block].instructions.start;
        if let Some(at) = last_change(start..end) {
            found.definitions.push(at);
            return found;
        }
        if block == self.header {
            found.is_from_header = true;
            return found;
        }
        let mut seen = vec![false; flow.blocks.len()];
        let mut open = flow.blocks[block].predecessors.to_vec();
        while let Some(block) = open.pop() {
            if !self.inside[block] || std::mem::replace(&mut seen[block], true) {
                continue;
            }
            if let Some(at) = last_change(flow.blocks[block].instructions.clone()) {
                found.definitions.push(at);
            } else if block == self.header {
                found.is_from_header = true;
            } else {
                open.extend_from_slice(&flow.blocks[block].predecessors);
            }
        }
        found
    }

    /// The value of a register in front of `position`.
    pub fn linear(&self, position: usize, register: usize) -> Option<Linear> {
        self.linear_of(&self.reaching(position, register), register, 0)
    }

    fn linear_of(&self, reaching: &Reaching, register: usize, depth: u32) -> Option<Linear> {
        if depth > MAX_DEPTH {
            return None;
        }
        let at = match (reaching.definitions.as_slice(), reaching.is_from_header) {
            ([], true) => return Some(Linear { register, offset: 0, is_narrow: false }),
            (&[at], false) => at,
            _ => return None,
        };
        let instruction = &self.function.flow.instructions[at];
        if self.function.facts[at].writes >> register & 1 == 0 || instruction.op_count() == 0 {
            return None;
        }
        if instruction.op0_kind() != OpKind::Register || number(instruction.op0_register()) != Some(register)
        {
            return None;
        }
        let is_32 = instruction.op0_register().size() == 4;
        let from = |source: Register, add: i64| {
            let source = number(source)?;
            let value = self.linear_of(&self.reaching(at, source), source, depth + 1)?;
            let offset = value.offset.checked_add(add)?;
            Some(Linear { offset, is_narrow: value.is_narrow || is_32, ..value })
        };
        let own = instruction.op0_register();
        match instruction.mnemonic() {
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => {
                from(instruction.op1_register(), 0)
            }
            Mnemonic::Add if is_immediate(instruction) => from(own, instruction.immediate(1) as i64),
            Mnemonic::Sub if is_immediate(instruction) => {
                from(own, (instruction.immediate(1) as i64).checked_neg()?)
            }
            Mnemonic::Inc => from(own, 1),
            Mnemonic::Dec => from(own, -1),
            Mnemonic::Lea
                if instruction.memory_index() == Register::None && instruction.memory_base().is_gpr64() =>
            {
                from(instruction.memory_base(), instruction.memory_displacement64() as i64)
            }
            Mnemonic::Lea
                if instruction.memory_base() == Register::None
                    && instruction.memory_index().is_gpr64()
                    && instruction.memory_index_scale() == 1 =>
            {
                from(instruction.memory_index(), instruction.memory_displacement64() as i64)
            }
            _ => None,
        }
    }

    /// What an iteration adds to a register.
    fn find_step(&self, register: usize) -> Option<i64> {
        let flow = &self.function.flow;
        let mut step = None;
        for &latch in flow.blocks[self.header].predecessors.iter() {
            if !self.inside[latch] {
                continue;
            }
            let reaching = self.reaching_in(latch, flow.blocks[latch].instructions.end, register);
            let value = self.linear_of(&reaching, register, 0)?;
            if value.register != register || step.is_some_and(|step| step != value.offset) {
                return None;
            }
            step = Some(value.offset);
        }
        step
    }
}

fn is_immediate(instruction: &Instruction) -> bool {
    !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory)
}

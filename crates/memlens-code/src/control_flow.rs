//! A function's basic blocks and the edges between them.

use std::collections::BTreeSet;
use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use crate::aarch64::{self, A64Instruction};
use crate::architecture::Architecture;
use crate::instructions::{Place, Transfer};
use crate::x86_64;

/// An instruction, as far as control flow goes.
pub trait Step {
    /// Its address.
    fn pc(&self) -> u64;

    /// The address behind it.
    fn next_pc(&self) -> u64;

    /// Where it leads.
    fn transfer(&self) -> Transfer;

    /// Whether it is what assemblers fill gaps between functions with.
    fn is_padding(&self) -> bool;
}

impl Step for Instruction {
    fn pc(&self) -> u64 {
        self.ip()
    }

    fn next_pc(&self) -> u64 {
        self.next_ip()
    }

    fn transfer(&self) -> Transfer {
        x86_64::transfer(self)
    }

    fn is_padding(&self) -> bool {
        matches!(self.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
    }
}

impl Step for A64Instruction {
    fn pc(&self) -> u64 {
        self.pc
    }

    fn next_pc(&self) -> u64 {
        self.pc.wrapping_add(aarch64::INSTRUCTION_BYTES)
    }

    fn transfer(&self) -> Transfer {
        self.decoded().transfer
    }

    fn is_padding(&self) -> bool {
        A64Instruction::is_padding(*self)
    }
}

/// Consecutive instructions that are entered only at the first and left only after the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Address of the first instruction.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Positions of its instructions in [`ControlFlow::instructions`].
    pub instructions: std::ops::Range<usize>,
    /// Blocks that may come next, ascending.
    pub successors: Arc<[usize]>,
    /// Blocks that may come before, ascending.
    pub predecessors: Arc<[usize]>,
}

/// A function's machine code, decoded and cut into blocks. Block 0 is the entry.
///
/// # Model
///
/// - Calls go on behind the call; a block does not end there.
/// - A jump to code outside the function leaves it (a tail call). So does a jump to its own first
///   instruction from a place where the caller of this crate says so: none is assumed.
/// - An indirect jump goes to every block that nothing else leads to and that follows code which
///   does not fall through: the arms of a `switch`. Where there is none, it leaves the function. All indirect jumps
///   share one list of successors, and the arms one of predecessors: an interpreter's main loop has millions of edges.
/// - An indirect jump through a cell at a fixed distance leaves the function: a stub of the procedure linkage table, or
///   a tail call by way of the global offset table. (Unwind information has such a table as one function, with tens of
///   thousands of stubs.) So does `goto *state` with `state` in a variable of fixed place, though its targets are in the
///   function: their blocks seem unreachable.
/// - Bytes that are no instruction end the part they are in; on AArch64 they are instructions that nothing is known of.
#[derive(Clone, Debug, Default)]
pub struct ControlFlow<I = Instruction> {
    /// All instructions, ascending by address within a part.
    pub instructions: Vec<I>,
    /// The blocks: the entry's first, the others ascending by address.
    pub blocks: Vec<Block>,
    /// Address and position of each instruction, ascending.
    by_address: Vec<(u64, usize)>,
    block_of: Vec<usize>,
}

impl ControlFlow {
    /// Decodes a function of x86-64. `parts` are its pieces (address of the first byte, bytes), the one with
    /// the entry first; compilers put unlikely code apart (`NAME.cold`). Linear in the bytes.
    pub fn new(parts: &[(u64, &[u8])]) -> Self {
        let mut instructions = Vec::new();
        for &(start, bytes) in parts {
            let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
            while decoder.can_decode() {
                let instruction = decoder.decode();
                if instruction.is_invalid() {
                    break;
                }
                instructions.push(instruction);
            }
        }
        Self::of(instructions, parts)
    }
}

impl ControlFlow<A64Instruction> {
    /// Decodes a function of AArch64. `parts` are as of [`ControlFlow::new`].
    pub fn of_aarch64(parts: &[(u64, &[u8])]) -> Self {
        let instructions = parts.iter().flat_map(|&(start, bytes)| A64Instruction::all(bytes, start));
        Self::of(instructions.collect(), parts)
    }
}

impl<I> ControlFlow<I> {
    /// The position of the instruction at an address.
    pub fn instruction_at(&self, address: u64) -> Option<usize> {
        let at = self.by_address.binary_search_by_key(&address, |known| known.0).ok()?;
        Some(self.by_address[at].1)
    }

    /// The block of an instruction.
    pub fn block_of(&self, instruction: usize) -> usize {
        self.block_of[instruction]
    }
}

impl<I: Step> ControlFlow<I> {
    fn of(instructions: Vec<I>, parts: &[(u64, &[u8])]) -> Self {
        // The first instruction of each part, to which nothing falls through.
        let part_starts: Vec<u64> = parts.iter().map(|part| part.0).collect();
        let mut by_address: Vec<(u64, usize)> =
            instructions.iter().enumerate().map(|(at, instruction)| (instruction.pc(), at)).collect();
        by_address.sort_unstable();
        let mut flow = Self { instructions, blocks: Vec::new(), by_address, block_of: Vec::new() };
        flow.cut(&part_starts);
        flow.connect();
        flow
    }

    /// The same without what instructions do.
    pub(crate) fn places(self) -> ControlFlow<Place> {
        let Self { instructions, blocks, by_address, block_of } = self;
        let place = |it: &I| Place { pc: it.pc(), next: it.next_pc(), transfer: it.transfer() };
        ControlFlow { instructions: instructions.iter().map(place).collect(), blocks, by_address, block_of }
    }

    /// Blocks in reverse postorder from the entry; unreachable ones are left out.
    pub fn reverse_postorder(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.blocks.len());
        let mut seen = vec![false; self.blocks.len()];
        // Each entry: a block and how many of its successors were visited.
        let mut path: Vec<(usize, usize)> = Vec::new();
        if !self.blocks.is_empty() {
            seen[0] = true;
            path.push((0, 0));
        }
        while let Some((block, next)) = path.last_mut() {
            match self.blocks[*block].successors.get(*next) {
                Some(&successor) => {
                    *next += 1;
                    if !seen[successor] {
                        seen[successor] = true;
                        path.push((successor, 0));
                    }
                }
                None => {
                    order.push(*block);
                    path.pop();
                }
            }
        }
        order.reverse();
        order
    }

    fn cut(&mut self, part_starts: &[u64]) {
        let mut leaders: Vec<usize> = Vec::new();
        for (at, instruction) in self.instructions.iter().enumerate() {
            if at == 0 || part_starts.contains(&instruction.pc()) {
                leaders.push(at);
            }
            if ends_block(instruction) {
                leaders.push(at + 1);
                if let Some(target) = direct_target(instruction).and_then(|to| self.instruction_at(to)) {
                    leaders.push(target);
                }
            }
        }
        leaders.push(self.instructions.len());
        leaders.sort_unstable();
        leaders.dedup();
        self.block_of = vec![0; self.instructions.len()];
        for pair in leaders.windows(2) {
            let instructions = pair[0]..pair[1];
            if instructions.is_empty() {
                continue;
            }
            self.block_of[instructions.clone()].fill(self.blocks.len());
            self.blocks.push(Block {
                start: self.instructions[instructions.start].pc(),
                end: self.instructions[instructions.end - 1].next_pc(),
                instructions,
                ..Block::default()
            });
        }
    }

    fn connect(&mut self) {
        let mut edges: Vec<Vec<usize>> = vec![Vec::new(); self.blocks.len()];
        let mut indirect = Vec::new();
        // Blocks behind code that does not fall through.
        let mut detached = Vec::new();
        let mut falls = false;
        for (index, block) in self.blocks.iter().enumerate() {
            if !falls && index > 0 {
                detached.push(index);
            }
            let last = &self.instructions[block.instructions.end - 1];
            falls = falls_through(last);
            if falls && let Some(next) = self.instruction_at(last.next_pc()) {
                edges[index].push(self.block_of[next]);
            }
            match last.transfer() {
                Transfer::Leave => {}
                Transfer::IndirectJump => indirect.push(index),
                _ if ends_block(last) => {
                    let target = direct_target(last).and_then(|to| self.instruction_at(to));
                    edges[index].extend(target.map(|target| self.block_of[target]));
                }
                _ => {}
            }
        }
        let mut is_reached = vec![false; self.blocks.len()];
        edges.iter().flatten().for_each(|&block| is_reached[block] = true);
        detached.retain(|&block| !is_reached[block] && !self.is_padding(block));
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.blocks.len()];
        for (from, mut to) in edges.into_iter().enumerate() {
            to.sort_unstable();
            to.dedup();
            to.iter().for_each(|&block| before[block].push(from));
            self.blocks[from].successors = to.into();
        }
        for (block, before) in self.blocks.iter_mut().zip(before) {
            block.predecessors = before.into();
        }
        // An indirect jump has no other successors, and an arm no other predecessors.
        let (jumps, arms): (Arc<[usize]>, Arc<[usize]>) = (indirect.into(), detached.into());
        jumps.iter().for_each(|&block| self.blocks[block].successors = arms.clone());
        arms.iter().for_each(|&block| self.blocks[block].predecessors = jumps.clone());
    }

    /// Whether a block begins with what assemblers fill gaps with.
    fn is_padding(&self, block: usize) -> bool {
        self.instructions[self.blocks[block].instructions.start].is_padding()
    }
}

fn ends_block(instruction: &impl Step) -> bool {
    !matches!(instruction.transfer(), Transfer::Next | Transfer::Call(_) | Transfer::Interrupt)
}

fn falls_through(instruction: &impl Step) -> bool {
    matches!(
        instruction.transfer(),
        Transfer::Next
            | Transfer::Call(_)
            | Transfer::Branch(_)
            | Transfer::Transaction
            | Transfer::Interrupt
    )
}

/// Where a direct jump goes.
pub(crate) fn direct_target(instruction: &impl Step) -> Option<u64> {
    instruction.transfer().target()
}

/// The cell that a stub of the procedure linkage table jumps through, if code at `start` is one. It is told by the first
/// [`LINKAGE_STUB_BYTES`].
pub fn linkage_cell(architecture: Architecture, code: &[u8], start: u64) -> Option<u64> {
    if architecture == Architecture::AArch64 {
        return aarch64::linkage_cell(code, start);
    }
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    for _ in 0..2 {
        let instruction = decoder.decode();
        match instruction.flow_control() {
            FlowControl::IndirectBranch if instruction.is_ip_rel_memory_operand() => {
                return Some(instruction.ip_rel_memory_address());
            }
            FlowControl::Next if instruction.mnemonic() == Mnemonic::Endbr64 => {}
            _ => return None,
        }
    }
    None
}

/// So many bytes of a stub tell its cell; see [`linkage_cell`].
pub const LINKAGE_STUB_BYTES: u64 = 16;

/// Where a direct call goes.
pub fn call_target(instruction: &impl Step) -> Option<u64> {
    match instruction.transfer() {
        Transfer::Call(target) => target,
        _ => None,
    }
}

/// The addresses to which those calls of a function return that go where the one returning to `return_address` goes, rising. Nothing if that
/// is no direct call.
pub fn calls_alike(architecture: Architecture, code: &[u8], start: u64, return_address: u64) -> Vec<u64> {
    fn calls<I: Step>(instructions: impl Iterator<Item = I>) -> Vec<(u64, u64)> {
        instructions.filter_map(|it| Some((call_target(&it)?, it.next_pc()))).collect()
    }
    let calls = match architecture {
        Architecture::X86_64 => calls(Decoder::with_ip(64, code, start, DecoderOptions::NONE).into_iter()),
        Architecture::AArch64 => calls(A64Instruction::all(code, start)),
    };
    let target = calls.iter().find(|(_, returns)| *returns == return_address).map(|it| it.0);
    calls.iter().filter(|it| Some(it.0) == target).map(|it| it.1).collect()
}

/// Where a function's code calls, or jumps out of its `code`, directly: each place once, rising.
pub fn functions_called(architecture: Architecture, code: &[u8], start: u64) -> Vec<u64> {
    fn targets<I: Step>(instructions: impl Iterator<Item = I>) -> BTreeSet<u64> {
        instructions.filter_map(|it| call_target(&it).or_else(|| jump_target(&it))).collect()
    }
    let own = start..start.saturating_add(code.len() as u64);
    let mut targets = match architecture {
        Architecture::X86_64 => targets(Decoder::with_ip(64, code, start, DecoderOptions::NONE).into_iter()),
        Architecture::AArch64 => targets(A64Instruction::all(code, start)),
    };
    targets.retain(|target| !own.contains(target));
    targets.into_iter().collect()
}

/// Where a direct jump goes, conditional or not.
pub fn jump_target(instruction: &impl Step) -> Option<u64> {
    direct_target(instruction)
}

/// Whether an instruction returns to the caller.
pub fn is_return(instruction: &impl Step) -> bool {
    instruction.transfer() == Transfer::Return
}

/// Whether a conditional jump is one operation with the instruction before it, which sets its flags
/// (AMD64 software optimisation guide for family 19h, section 2.9.3; Intel optimisation reference manual,
/// "macro-fusion").
pub fn is_fused(before: &Instruction, jump: &Instruction) -> bool {
    jump.flow_control() == FlowControl::ConditionalBranch
        && before.next_ip() == jump.ip()
        && matches!(
            before.mnemonic(),
            Mnemonic::Cmp
                | Mnemonic::Test
                | Mnemonic::Add
                | Mnemonic::Sub
                | Mnemonic::And
                | Mnemonic::Or
                | Mnemonic::Xor
                | Mnemonic::Inc
                | Mnemonic::Dec
        )
}

//! One function's instructions, and what its memory operands look like.

use std::cell::RefCell;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfo, InstructionInfoFactory, Mnemonic,
    OpAccess, Register as Reg,
};
use rustc_hash::FxHashMap;

use crate::destination::Register;

/// How an operand's address is made: `base + index · scale + disp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressExpression {
    /// A general-purpose register.
    pub base: Option<Register>,
    /// Another one.
    pub index: Option<Register>,
    /// 1, 2, 4 or 8.
    pub scale: u8,
    /// Bytes to add; with neither register the address itself (an svma).
    pub disp: i64,
    /// Whether something is added that general-purpose registers do not hold: the base of fs or gs,
    /// or a vector of indices.
    pub is_partial: bool,
    /// Whether that is the base of fs alone: the thread pointer.
    pub is_thread_local: bool,
}

impl AddressExpression {
    /// The address, if every register is known. `svma` is [`AddressExpression::is_svma`]'s matter.
    pub fn value(&self, mut register: impl FnMut(Register) -> Option<u64>) -> Option<u64> {
        if self.is_partial {
            return None;
        }
        let mut address = self.disp as u64;
        if let Some(base) = self.base {
            address = address.wrapping_add(register(base)?);
        }
        if let Some(index) = self.index {
            address = address.wrapping_add(register(index)?.wrapping_mul(u64::from(self.scale)));
        }
        Some(address)
    }

    /// Whether the value is an address as the file states it, not one of the running process.
    pub fn is_svma(&self) -> bool {
        !self.has_registers() && !self.is_partial
    }

    /// Whether a general-purpose register is part of it.
    pub fn has_registers(&self) -> bool {
        self.base.is_some() || self.index.is_some()
    }
}

/// One memory operand of one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOperand {
    /// Address (svma) of the instruction.
    pub pc: u64,
    /// Which memory operand of the instruction, from 0.
    pub operand: u8,
    /// Whether it reads.
    pub reads: bool,
    /// Whether it writes.
    pub writes: bool,
    /// Bytes touched; 0 if that varies.
    pub size_bytes: u32,
    /// Where.
    pub address: AddressExpression,
}

/// The decoded instructions of one function and the jumps between them.
///
/// Cost: linear in the function, once.
pub struct FunctionCode {
    start: u64,
    instructions: Vec<Instruction>,
    /// Target address → positions of the jumps to it.
    jumps: FxHashMap<u64, Vec<usize>>,
    info: RefCell<InstructionInfoFactory>,
}

impl std::fmt::Debug for FunctionCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FunctionCode").field("start", &self.start).finish_non_exhaustive()
    }
}

impl FunctionCode {
    /// Decodes `code`, whose first byte is at address (svma) `start`. What is no instruction is
    /// passed over byte by byte.
    pub fn new(code: &[u8], start: u64) -> Self {
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let mut instructions = Vec::with_capacity(code.len() / 4);
        let mut jumps: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
        while decoder.can_decode() {
            let at = decoder.position();
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                // `set_position` fails only behind the end.
                if decoder.set_position(at + 1).is_err() {
                    break;
                }
                decoder.set_ip(start + (at as u64 + 1));
                continue;
            }
            if is_direct_jump(&instruction) {
                jumps.entry(instruction.near_branch_target()).or_default().push(instructions.len());
            }
            instructions.push(instruction);
        }
        Self { start, instructions, jumps, info: RefCell::new(InstructionInfoFactory::new()) }
    }

    /// First address (svma).
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Where the instruction begins that a byte of code belongs to, as the byte before a return address does to its call.
    pub fn instruction_around(&self, pc: u64) -> Option<u64> {
        let behind = self.instructions.partition_point(|instruction| instruction.ip() <= pc);
        let instruction = self.instruction(behind.checked_sub(1)?)?;
        (pc < instruction.next_ip()).then(|| instruction.ip())
    }

    pub(crate) fn position(&self, pc: u64) -> Option<usize> {
        self.instructions.binary_search_by_key(&pc, Instruction::ip).ok()
    }

    pub(crate) fn instruction(&self, position: usize) -> Option<&Instruction> {
        self.instructions.get(position)
    }

    /// Positions of the jumps to an address.
    pub(crate) fn jumps_to(&self, pc: u64) -> &[usize] {
        self.jumps.get(&pc).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn with_info<T>(&self, position: usize, ask: impl FnOnce(&InstructionInfo) -> T) -> Option<T> {
        let instruction = self.instructions.get(position)?;
        Some(ask(self.info.borrow_mut().info(instruction)))
    }

    /// The memory operands of the instruction at `pc`, those of its own stack use (`push`, `call`)
    /// included.
    pub fn operands(&self, pc: u64) -> Vec<MemoryOperand> {
        self.position(pc).map(|position| self.operands_at(position)).unwrap_or_default()
    }

    pub(crate) fn operands_at(&self, position: usize) -> Vec<MemoryOperand> {
        let Some(instruction) = self.instructions.get(position) else { return Vec::new() };
        if is_prefetch(instruction) {
            return Vec::new();
        }
        let list = self.with_info(position, |info| {
            info.used_memory()
                .iter()
                .filter_map(|memory| {
                    let (reads, writes) = match memory.access() {
                        OpAccess::Read | OpAccess::CondRead => (true, false),
                        OpAccess::Write | OpAccess::CondWrite => (false, true),
                        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
                        _ => return None,
                    };
                    let index = register_of(memory.index());
                    let lacks_others = (memory.index() != Reg::None && index.is_none())
                        || memory.address_size() != iced_x86::CodeSize::Code64;
                    let is_partial = matches!(memory.segment(), Reg::FS | Reg::GS) || lacks_others;
                    Some((
                        reads,
                        writes,
                        memory.memory_size().size() as u32,
                        AddressExpression {
                            base: register_of(memory.base()),
                            index,
                            scale: memory.scale() as u8,
                            disp: memory.displacement() as i64,
                            is_partial,
                            is_thread_local: memory.segment() == Reg::FS && !lacks_others,
                        },
                    ))
                })
                .collect::<Vec<_>>()
        });
        (0..)
            .zip(list.unwrap_or_default())
            .map(|(operand, (reads, writes, size_bytes, address))| MemoryOperand {
                pc: instruction.ip(),
                operand,
                reads,
                writes,
                size_bytes,
                address,
            })
            .collect()
    }
}

/// A jump inside code, with a known target.
fn is_direct_jump(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
}

fn is_prefetch(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Prefetch
            | Mnemonic::Prefetchnta
            | Mnemonic::Prefetcht0
            | Mnemonic::Prefetcht1
            | Mnemonic::Prefetcht2
            | Mnemonic::Prefetchw
            | Mnemonic::Prefetchwt1
    )
}

/// The DWARF number (System V ABI AMD64 1.0, figure 3.36) of a general-purpose register or a part
/// of one.
pub(crate) fn register_of(register: Reg) -> Option<Register> {
    let number = match register.full_register() {
        Reg::RAX => 0,
        Reg::RDX => 1,
        Reg::RCX => 2,
        Reg::RBX => 3,
        Reg::RSI => 4,
        Reg::RDI => 5,
        Reg::RBP => 6,
        Reg::RSP => 7,
        Reg::R8 => 8,
        Reg::R9 => 9,
        Reg::R10 => 10,
        Reg::R11 => 11,
        Reg::R12 => 12,
        Reg::R13 => 13,
        Reg::R14 => 14,
        Reg::R15 => 15,
        _ => return None,
    };
    Some(Register(number))
}

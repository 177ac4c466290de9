//! x86-64: what its instructions do to registers and memory.

use std::cell::RefCell;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfo, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register as Reg,
};

use crate::control_flow;
use crate::destination::Register;
use crate::function_code::{AddressExpression, MemoryOperand};
use crate::instructions::{Instructions, Made, Place, Transfer, Width};

/// The instructions of a function.
pub(crate) struct Code {
    instructions: Vec<Instruction>,
    info: RefCell<InstructionInfoFactory>,
}

impl Code {
    /// Decodes `code`, whose first byte is at address (svma) `start`. What is no instruction is
    /// passed over byte by byte.
    pub(crate) fn new(code: &[u8], start: u64) -> Self {
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let mut instructions = Vec::with_capacity(code.len() / 4);
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
            instructions.push(instruction);
        }
        Self { instructions, info: RefCell::new(InstructionInfoFactory::new()) }
    }

    /// Where each instruction is.
    pub(crate) fn places(&self) -> Vec<Place> {
        let place = |one: &Instruction| Place { pc: one.ip(), next: one.next_ip(), transfer: transfer(one) };
        self.instructions.iter().map(place).collect()
    }

    fn with_info<T>(&self, position: usize, ask: impl FnOnce(&InstructionInfo) -> T) -> Option<T> {
        let instruction = self.instructions.get(position)?;
        Some(ask(self.info.borrow_mut().info(instruction)))
    }

    fn operand(&self, position: usize, number: u8) -> Option<MemoryOperand> {
        self.operands(position).into_iter().nth(usize::from(number))
    }
}

/// Where an instruction leads.
pub(crate) fn transfer(instruction: &Instruction) -> Transfer {
    match instruction.flow_control() {
        FlowControl::Next => Transfer::Next,
        FlowControl::ConditionalBranch => Transfer::Branch(instruction.near_branch_target()),
        FlowControl::UnconditionalBranch => Transfer::Jump(instruction.near_branch_target()),
        FlowControl::IndirectBranch if instruction.is_ip_rel_memory_operand() => Transfer::Leave,
        FlowControl::IndirectBranch => Transfer::IndirectJump,
        FlowControl::Call => Transfer::Call(Some(instruction.near_branch_target())),
        FlowControl::IndirectCall => Transfer::Call(None),
        FlowControl::Return => Transfer::Return,
        FlowControl::Interrupt if instruction.mnemonic() == Mnemonic::Int3 => Transfer::Breakpoint,
        FlowControl::Interrupt => Transfer::Interrupt,
        FlowControl::XbeginXabortXend => Transfer::Transaction,
        FlowControl::Exception => Transfer::Undefined,
    }
}

impl Instructions for Code {
    fn operands(&self, position: usize) -> Vec<MemoryOperand> {
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
                            ..AddressExpression::NOTHING
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

    fn writes(&self, position: usize, register: Register) -> bool {
        let writes = |access| {
            matches!(
                access,
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        self.with_info(position, |info| {
            info.used_registers()
                .iter()
                .any(|used| writes(used.access()) && numbered(used.register()) == Some(register))
        })
        .unwrap_or(true)
    }

    fn constant_change(&self, position: usize, register: Register, _width: Width) -> Option<i64> {
        let instruction = self.instructions.get(position)?;
        if !self.writes(position, register) {
            return Some(0);
        }
        let is_whole = |operand: u32| {
            instruction.op_kind(operand) == OpKind::Register
                && instruction.op_register(operand).is_gpr64()
                && register_of(instruction.op_register(operand)) == Some(register)
        };
        let immediate = |instruction: &Instruction| match instruction.op1_kind() {
            OpKind::Immediate8to64 | OpKind::Immediate32to64 => Some(instruction.immediate(1) as i64),
            _ => None,
        };
        match instruction.mnemonic() {
            Mnemonic::Add if is_whole(0) => immediate(instruction),
            Mnemonic::Sub if is_whole(0) => immediate(instruction).map(i64::wrapping_neg),
            Mnemonic::Inc if is_whole(0) => Some(1),
            Mnemonic::Dec if is_whole(0) => Some(-1),
            Mnemonic::Lea
                if is_whole(0)
                    && register_of(instruction.memory_base()) == Some(register)
                    && instruction.memory_base().is_gpr64()
                    && instruction.memory_index() == Reg::None =>
            {
                Some(instruction.memory_displacement64() as i64)
            }
            Mnemonic::Push if register == Register::RSP => Some(-8),
            Mnemonic::Pop if register == Register::RSP && !is_whole(0) => Some(8),
            _ => None,
        }
    }

    /// By `lea` or `mov`.
    fn computed(&self, position: usize, register: Register) -> Option<AddressExpression> {
        let instruction = self.instructions.get(position)?;
        let is_whole = instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().is_gpr64()
            && register_of(instruction.op0_register()) == Some(register);
        let whole = |register: Reg| match register {
            Reg::None => Some(None),
            register if register.is_gpr64() => Some(Some(register_of(register)?)),
            _ => None,
        };
        match instruction.mnemonic() {
            Mnemonic::Lea if is_whole => Some(AddressExpression {
                base: whole(instruction.memory_base())?,
                index: whole(instruction.memory_index())?,
                scale: instruction.memory_index_scale() as u8,
                disp: instruction.memory_displacement64() as i64,
                ..AddressExpression::NOTHING
            })
            .filter(AddressExpression::has_registers),
            Mnemonic::Mov if is_whole && instruction.op1_kind() == OpKind::Register => {
                let base = whole(instruction.op1_register())?;
                Some(AddressExpression { base, ..AddressExpression::NOTHING })
            }
            _ => None,
        }
    }

    fn loaded(&self, position: usize) -> [Option<Register>; 2] {
        let register = self.instructions.get(position).and_then(|instruction| {
            let is_load = instruction.mnemonic() == Mnemonic::Mov
                && instruction.op0_kind() == OpKind::Register
                && instruction.op1_kind() == OpKind::Memory
                && instruction.op0_register().is_gpr64();
            is_load.then(|| register_of(instruction.op0_register())).flatten()
        });
        [register, None]
    }

    fn made(&self, position: usize, register: Register) -> Made {
        let Some(instruction) = self.instructions.get(position) else { return Made::Lost };
        let source = || register_of(instruction.op1_register());
        let is_target = instruction.op0_kind() == OpKind::Register
            && register_of(instruction.op0_register()) == Some(register)
            && instruction.op0_register().is_gpr64();
        if !is_target {
            return Made::Lost;
        }
        match (instruction.mnemonic(), instruction.op1_kind()) {
            (Mnemonic::Mov, OpKind::Register) if instruction.op1_register().is_gpr64() => {
                source().map_or(Made::Lost, Made::From)
            }
            (Mnemonic::Mov, OpKind::Memory) if self.operand(position, 0).is_some() => Made::Loaded(0),
            (Mnemonic::Lea, _) => {
                if instruction.is_ip_rel_memory_operand() {
                    return Made::Fixed(instruction.ip_rel_memory_address());
                }
                let base = register_of(instruction.memory_base());
                let index = register_of(instruction.memory_index());
                let address = AddressExpression {
                    base,
                    index,
                    scale: instruction.memory_index_scale() as u8,
                    disp: instruction.memory_displacement64() as i64,
                    ..AddressExpression::NOTHING
                };
                match (base, index) {
                    (Some(Register::RSP), _) => Made::Frame(address),
                    // A scaled register is an index.
                    (Some(base), Some(index)) if instruction.memory_index_scale() == 1 => {
                        Made::Either(base, index)
                    }
                    (Some(base), _) => Made::From(base),
                    (None, _) => Made::Lost,
                }
            }
            (Mnemonic::Add, OpKind::Register) => match source() {
                Some(other) => Made::Either(register, other),
                None => Made::Lost,
            },
            (Mnemonic::Add | Mnemonic::Sub | Mnemonic::And, OpKind::Memory) => Made::From(register),
            (Mnemonic::Sub, OpKind::Register) => Made::From(register),
            // Alignment.
            (Mnemonic::And, _) if is_alignment(instruction) => Made::From(register),
            (Mnemonic::Mov, OpKind::Immediate32to64 | OpKind::Immediate64) => {
                Made::Fixed(instruction.immediate(1))
            }
            (
                Mnemonic::Cmove
                | Mnemonic::Cmovne
                | Mnemonic::Cmova
                | Mnemonic::Cmovae
                | Mnemonic::Cmovb
                | Mnemonic::Cmovbe
                | Mnemonic::Cmovg
                | Mnemonic::Cmovge
                | Mnemonic::Cmovl
                | Mnemonic::Cmovle,
                OpKind::Register,
            ) => source().map_or(Made::From(register), |other| Made::Either(register, other)),
            _ => Made::Lost,
        }
    }

    fn is_fused(&self, before: usize, jump: usize) -> bool {
        let pair = self.instructions.get(before).zip(self.instructions.get(jump));
        pair.is_some_and(|(before, jump)| control_flow::is_fused(before, jump))
    }

    /// `rep movsb` and its like.
    fn is_repeated(&self, position: usize) -> bool {
        self.instructions.get(position).is_some_and(|instruction| {
            instruction.is_string_instruction()
                && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
        })
    }

    fn is_padding(&self, position: usize) -> bool {
        self.instructions.get(position).is_some_and(|instruction| instruction.mnemonic() == Mnemonic::Nop)
    }
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

/// `and $-32,%reg` and the like.
fn is_alignment(instruction: &Instruction) -> bool {
    instruction.op1_kind() == OpKind::Immediate8to64
        && instruction.op0_register() != Reg::None
        && (instruction.immediate(1) as i64) < 0
}

/// General-purpose registers by their numbers, vector registers by 32 and their number.
fn numbered(register: Reg) -> Option<Register> {
    let vector = || register.is_vector_register().then(|| Register(32 + register.number() as u16));
    register_of(register).or_else(vector)
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

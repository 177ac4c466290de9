//! How a load's address comes about inside a loop: the instructions that compute it, back to registers that change by a
//! constant, or not at all, in each iteration.

use std::collections::BTreeSet;

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};
use thiserror::Error;

use crate::function::{Linear, Loop, RSP, number};

/// Longer slices cost more than they hide.
const MAX_INSTRUCTIONS: usize = 24;

/// How addresses follow from the iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// A constant number of bytes further in each iteration: `a[i]`.
    Strided {
        /// Bytes.
        step_bytes: i64,
    },
    /// Computed from values that are loaded with a constant step, or from the iteration's number: `a[b[i]]`, `a[hash(i)]`.
    Indirect {
        /// Addresses (svma) of the loads with a constant step.
        roots: Vec<u64>,
    },
}

/// Why nothing is done for a load. Reads after "not prefetched: ".
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It is in no loop of its function.
    #[error("it is in no loop of its function")]
    NoLoop,
    /// There is no instruction at that place that touches memory.
    #[error("no instruction that touches memory is there")]
    NoAccess,
    /// Its address is the same in all iterations.
    #[error("its address is the same in all iterations")]
    Invariant,
    /// Computed from what is loaded from addresses that do not follow from the iteration: a load behind a load, or behind what is
    /// computed from the previous iteration.
    #[error(
        "its address comes from a load whose own address does not go by constant steps: it is loaded, too, say"
    )]
    DependentLoad,
    /// Computed from the previous iteration.
    #[error(
        "its address comes from the previous iteration's, not by a constant step: a chain of pointers, say"
    )]
    Recurrence,
    /// It depends on which way was taken.
    #[error("its address depends on the way taken through the loop")]
    SeveralPaths,
    /// An instruction that is not repeated for a later iteration.
    #[error("its address is made by an instruction that cannot be repeated: {0:?}")]
    Unsupported(Mnemonic),
    /// The operand itself.
    #[error("its operand is of a kind that is not prefetched")]
    Operand,
    /// A value is loaded, then something is called.
    #[error("a call is between what its address comes from and a place for the jump")]
    Call,
    /// Too long.
    #[error("its address takes too many instructions")]
    TooLong,
    /// Jumps whose targets are not known could go to where the code is changed.
    #[error("its function has indirect jumps")]
    IndirectJump,
    /// Jumps from other functions go into it.
    #[error("its function is entered elsewhere than at its start")]
    EnteredElsewhere,
    /// Some bytes are no instructions.
    #[error("its function has bytes that are no code")]
    NotCode,
    /// Registers could not be saved on the stack.
    #[error("its function changes the stack pointer in an unusual way")]
    ForeignStack,
    /// Its function is not known.
    #[error("no function is known there")]
    NoFunction,
    /// No run of instructions that a jump could displace.
    #[error("no place for a jump of five bytes")]
    NoWindow,
    /// Registers ran out, or a number does not fit.
    #[error("its code cannot be repeated with other registers")]
    Encoding,
}

/// What an address is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slice {
    /// Positions of the instructions to be repeated.
    pub instructions: BTreeSet<usize>,
    /// Those among them that load with a constant step, and the step in bytes.
    pub roots: Vec<(usize, i64)>,
    /// Those among them that load what does not change.
    pub reloads: BTreeSet<usize>,
}

/// What a register holds at some place.
pub(crate) enum Value {
    /// So much more in each iteration.
    Linear(Linear, i64),
    /// Set by this instruction of the same iteration.
    Computed(usize),
}

impl Loop<'_> {
    pub(crate) fn value(&self, position: usize, register: usize) -> Result<Value, Refusal> {
        if let Some(linear) = self.linear(position, register)
            && let Some(step) = self.step(linear.register)
        {
            return Ok(Value::Linear(linear, step));
        }
        let reaching = self.reaching(position, register);
        match (reaching.definitions.as_slice(), reaching.is_from_header) {
            (&[at], false) => Ok(Value::Computed(at)),
            ([], _) => Err(Refusal::Recurrence),
            // In an inner loop (the probes of a hash table): the address that it begins with.
            (several, false) => match self.entering(position, several).as_deref() {
                Some(&[at]) => Ok(Value::Computed(at)),
                _ => Err(Refusal::SeveralPaths),
            },
            _ => Err(Refusal::SeveralPaths),
        }
    }

    /// Finds the slice of the memory operand of the instruction at `position`.
    pub(crate) fn slice(&self, position: usize) -> Result<(Pattern, Slice), Refusal> {
        let instruction = &self.function.flow.instructions[position];
        let mut slice = Slice::default();
        if !is_plain_operand(instruction) {
            return Err(Refusal::Operand);
        }
        match self.stride(position)? {
            Some(0) => return Err(Refusal::Invariant),
            Some(step_bytes) => return Ok((Pattern::Strided { step_bytes }, slice)),
            None => {}
        }
        self.visit_address(position, &mut slice, position)?;
        if slice.roots.is_empty() && slice.instructions.len() == slice.reloads.len() {
            return Err(Refusal::Invariant);
        }
        let flow = &self.function.flow;
        let roots = slice.roots.iter().map(|&(root, _)| flow.instructions[root].ip()).collect();
        Ok((Pattern::Indirect { roots }, slice))
    }

    /// Bytes that an operand's address moves in each iteration; `None` where it is computed in another way.
    fn stride(&self, position: usize) -> Result<Option<i64>, Refusal> {
        let instruction = &self.function.flow.instructions[position];
        let mut stride = 0_i64;
        for (register, scale) in address_registers(instruction) {
            match self.value(position, register)? {
                Value::Linear(_, step) => {
                    stride = step
                        .checked_mul(scale)
                        .and_then(|step| step.checked_add(stride))
                        .ok_or(Refusal::Encoding)?;
                }
                Value::Computed(_) => return Ok(None),
            }
        }
        Ok(Some(stride))
    }

    fn visit_address(&self, position: usize, slice: &mut Slice, target: usize) -> Result<(), Refusal> {
        for (register, _) in address_registers(&self.function.flow.instructions[position]) {
            self.visit(position, register, slice, target)?;
        }
        Ok(())
    }

    fn visit(
        &self,
        position: usize,
        register: usize,
        slice: &mut Slice,
        target: usize,
    ) -> Result<(), Refusal> {
        let Value::Computed(at) = self.value(position, register)? else { return Ok(()) };
        if at == target {
            return Err(Refusal::DependentLoad);
        }
        if !slice.instructions.insert(at) {
            return Ok(());
        }
        if slice.instructions.len() > MAX_INSTRUCTIONS {
            return Err(Refusal::TooLong);
        }
        let instruction = &self.function.flow.instructions[at];
        let facts = &self.function.facts[at];
        if facts.is_call {
            return Err(Refusal::Call);
        }
        let sources = repeatable(instruction).ok_or(Refusal::Unsupported(instruction.mnemonic()))?;
        if facts.writes.count_ones() != 1 || facts.writes >> register & 1 == 0 {
            return Err(Refusal::Unsupported(instruction.mnemonic()));
        }
        for source in sources {
            self.visit(at, source, slice, target)?;
        }
        if instruction.mnemonic() == Mnemonic::Lea {
            return self.visit_address(at, slice, target);
        }
        if has_memory(instruction) {
            if !is_plain_operand(instruction) {
                return Err(Refusal::Operand);
            }
            match self.stride(at)? {
                None => return Err(Refusal::DependentLoad),
                Some(0) => {
                    slice.reloads.insert(at);
                }
                Some(step) => slice.roots.push((at, step)),
            }
        }
        Ok(())
    }
}

/// Whether a load that has been made in this iteration is needed for it to be safe to make it again: not from the frame,
/// nor from a constant address.
pub(crate) fn needs_its_own(instruction: &Instruction) -> bool {
    !(instruction.is_ip_rel_memory_operand()
        || (number(instruction.memory_base()) == Some(RSP) && instruction.memory_index() == Register::None))
}

pub(crate) fn has_memory(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory)
}

/// Whether the memory operand is made of 64-bit general-purpose registers and a constant.
pub(crate) fn is_plain_operand(instruction: &Instruction) -> bool {
    let is_plain = |register: Register| register == Register::None || register.is_gpr64();
    has_memory(instruction)
        && !matches!(instruction.segment_prefix(), Register::FS | Register::GS)
        && (instruction.is_ip_rel_memory_operand() || is_plain(instruction.memory_base()))
        && is_plain(instruction.memory_index())
}

/// Registers of the memory operand with their factors.
pub(crate) fn address_registers(instruction: &Instruction) -> impl Iterator<Item = (usize, i64)> + use<> {
    let base = number(instruction.memory_base()).map(|register| (register, 1));
    let scale = i64::from(instruction.memory_index_scale());
    let index = number(instruction.memory_index()).map(|register| (register, scale));
    base.into_iter().chain(index)
}

/// Bytes that a repeatable instruction loads.
pub(crate) fn loaded_bytes(instruction: &Instruction) -> Option<u64> {
    let bytes = instruction.memory_size().size() as u64;
    matches!(bytes, 1 | 2 | 4 | 8).then_some(bytes)
}

/// The general-purpose registers, other than those of addresses, that an instruction uses, if it can be repeated with
/// other registers: it only computes a register of 32 or 64 bits, in operands that are all in sight.
fn repeatable(instruction: &Instruction) -> Option<Vec<usize>> {
    let (code, mnemonic) = (instruction.code(), instruction.mnemonic());
    if matches!(code, Code::Cdqe | Code::Cwde) {
        return Some(vec![0]);
    }
    if code == Code::Cqo {
        return Some(vec![0]);
    }
    if instruction.op_count() < 1 || instruction.op0_kind() != OpKind::Register {
        return None;
    }
    let destination = instruction.op0_register();
    if !(destination.is_gpr64() || destination.is_gpr32()) || number(destination) == Some(RSP) {
        return None;
    }
    let modifies = match mnemonic {
        Mnemonic::Mov
        | Mnemonic::Movzx
        | Mnemonic::Movsx
        | Mnemonic::Movsxd
        | Mnemonic::Lea
        | Mnemonic::Rorx
        | Mnemonic::Shlx
        | Mnemonic::Shrx
        | Mnemonic::Sarx
        | Mnemonic::Andn => false,
        Mnemonic::Imul => match instruction.op_count() {
            2 => true,
            3 => false,
            _ => return None,
        },
        Mnemonic::Add
        | Mnemonic::Sub
        | Mnemonic::And
        | Mnemonic::Or
        | Mnemonic::Xor
        | Mnemonic::Shl
        | Mnemonic::Shr
        | Mnemonic::Sar
        | Mnemonic::Rol
        | Mnemonic::Ror
        | Mnemonic::Not
        | Mnemonic::Neg
        | Mnemonic::Inc
        | Mnemonic::Dec
        | Mnemonic::Crc32
        | Mnemonic::Bswap => true,
        _ => return None,
    };
    if has_memory(instruction) && mnemonic != Mnemonic::Lea {
        loaded_bytes(instruction)?;
    }
    let mut sources = Vec::new();
    if modifies {
        sources.extend(number(destination));
    }
    for operand in 1..instruction.op_count() {
        if instruction.op_kind(operand) == OpKind::Register {
            let register = instruction.op_register(operand);
            // The second byte of a register has no name in others.
            let is_high = matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
            match number(register) {
                Some(number) if !is_high => sources.push(number),
                _ => return None,
            }
        }
    }
    Some(sources)
}

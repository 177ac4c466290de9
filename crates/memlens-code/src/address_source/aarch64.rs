//! AArch64: what its instructions do to addresses.

use super::{Effects, LoopCode, Registers};
use crate::aarch64::A64Instruction;
use crate::aarch64::decode::{Decoded, Effect, RegisterMask};
use crate::aarch64::operands::{Operands, VectorMask};
use crate::architecture::Architecture;
use crate::control_flow::ControlFlow;
use crate::destination::Register;
use crate::function_code::{AddressExpression, FunctionCode};
use crate::loops::Loops;

const FRAME_POINTER: u8 = 29;
const SP: u8 = 31;
/// Registers that calls keep (AAPCS64, sections 6.1.1 and 6.1.2): x19 to x29, sp, and the lower halves of v8 to v15.
const KEPT_IN_CALLS: Registers = Registers(0x7ff << 19 | 1 << 31 | 0xff << (32 + 8));

impl Registers {
    fn of_a64(general: RegisterMask, vectors: VectorMask) -> Self {
        Self(u64::from(general) | u64::from(vectors) << 32)
    }

    fn of_number(register: Option<Register>) -> Self {
        register.map_or(Self::default(), |Register(number)| Self(1 << number))
    }
}

/// A function whose pieces these are.
pub(super) fn loop_code(parts: &[(u64, &[u8])]) -> LoopCode {
    let flow = ControlFlow::of_aarch64(parts);
    let loops = Loops::new(&flow);
    let all: Vec<Decoded> = flow.instructions.iter().map(|one| one.decoded()).collect();
    // A piece without the function's begin may have one that it does not show.
    let has_frame_pointer = all.iter().any(makes_frame_pointer) || !all.iter().any(changes_frame_pointer);
    let of_instruction =
        |(one, decoded): (&A64Instruction, &Decoded)| Effects::of_a64(*one, decoded, has_frame_pointer);
    let mut effects: Vec<Effects> = flow.instructions.iter().zip(&all).map(of_instruction).collect();
    let code: Vec<FunctionCode> =
        parts.iter().map(|&(start, code)| FunctionCode::new(Architecture::AArch64, code, start)).collect();
    let in_loops = flow.blocks.iter().zip(&loops.innermost).filter(|(_, innermost)| innermost.is_some());
    for (known, _) in in_loops {
        for at in known.instructions.clone() {
            let Some(access) = all[at].accesses[0] else { continue };
            if access.address.index.is_some() {
                continue;
            }
            let pc = flow.instructions[at].pc;
            let resolved = code.iter().find_map(|code| code.operands(pc).first().copied());
            if resolved.is_some_and(|operand| !operand.address.has_registers() && !access.address.is_partial)
            {
                // A variable at a fixed address, or one of the thread's, that another instruction has the address of.
                (effects[at].is_frame, effects[at].address) = (true, Some(Registers::default()));
                continue;
            }
            let (base, index, displacement) = sum(&all, known.instructions.start, at, &access.address);
            (effects[at].base, effects[at].index, effects[at].displacement) = (base, index, displacement);
        }
    }
    LoopCode { flow: flow.places(), loops, effects, kept_in_calls: KEPT_IN_CALLS }
}

/// Base, index and offset of an address whose base other instructions of the block have added up.
fn sum(all: &[Decoded], first: usize, at: usize, address: &AddressExpression) -> (Registers, Registers, u64) {
    let mut displacement = address.disp;
    let none = Registers::default();
    let Some(mut base) = address.base else { return (none, none, displacement as u64) };
    for before in all[first..at].iter().rev() {
        if before.transfer.is_call() {
            break;
        }
        if before.written & 1 << base.0 == 0 {
            continue;
        }
        match before.effect {
            Effect::Plus { to, from, by, is_wide: true } if base == Register(to.into()) => {
                base = Register(from.into());
                displacement = displacement.wrapping_add(by);
            }
            Effect::Sum { to, base: one, index, .. } if base == Register(to.into()) => {
                let [one, index] =
                    [one, index].map(|number| Registers::of_number(Some(Register(number.into()))));
                return (one, index, displacement as u64);
            }
            _ => break,
        }
    }
    (Registers::of_number(Some(base)), none, displacement as u64)
}

impl Effects {
    /// `has_frame_pointer`: the function's x29 is one.
    fn of_a64(instruction: A64Instruction, decoded: &Decoded, has_frame_pointer: bool) -> Self {
        let used = instruction.operands(decoded);
        let Operands { reads, writes, moves, vector_reads, vector_writes, .. } = used;
        let access = decoded.accesses[0];
        let mut effects = Self {
            reads: Registers::of_a64(reads, vector_reads),
            writes: Registers::of_a64(writes | moves, vector_writes),
            moves: Registers::of_a64(moves, 0),
            is_call: decoded.transfer.is_call(),
            has_memory: access.is_some() || used.is_prefetch,
            // What does not load is no source by its address.
            is_frame: !access.is_some_and(|access| access.reads),
            ..Self::default()
        };
        if effects.has_memory {
            effects.address = Some(Registers::of_a64(used.address, used.vector_address));
        }
        let Some(access) = access else { return effects };
        let AddressExpression { base, index, disp, .. } = access.address;
        let is_of_frame = base == Some(Register::SP) || base == Some(Register::X29) && has_frame_pointer;
        // With an index it is an element of an array there.
        effects.is_frame |= is_of_frame && index.is_none() || access.address.is_svma();
        (effects.base, effects.index) = (Registers::of_number(base), Registers::of_number(index));
        effects.displacement = disp as u64;
        if let Some(second) = instruction.second_loaded() {
            effects.second = Registers::of_number(Some(second));
            effects.second_offset = u64::from(access.size_bytes / 2);
        }
        effects
    }
}

/// Whether an instruction makes x29 the function's frame pointer (AAPCS64, section 6.4.6).
fn makes_frame_pointer(decoded: &Decoded) -> bool {
    matches!(decoded.effect, Effect::Plus { to: FRAME_POINTER, from: SP, is_wide: true, .. })
}

/// Whether an instruction gives x29 another value than the caller's: what is loaded from the stack is that.
fn changes_frame_pointer(decoded: &Decoded) -> bool {
    let is_restored = decoded.accesses[0].is_some_and(|access| access.address.base == Some(Register::SP));
    decoded.written & 1 << FRAME_POINTER != 0 && !is_restored
}

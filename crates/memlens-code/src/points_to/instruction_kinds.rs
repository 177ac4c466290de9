//! Registers by number, and which instructions move what.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register as Reg};

use super::{GENERAL, REGISTERS, SAVED};
use crate::control_flow::ControlFlow;

pub(super) fn caller_saved() -> u64 {
    let saved = SAVED.iter().fold(0u64, |mask, &register| mask | 1 << register);
    ((1 << REGISTERS) - 1) & !saved
}

/// Registers that the function's own instructions write.
pub(super) fn written_registers(flow: &ControlFlow) -> u64 {
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
pub(super) fn slot(register: Reg) -> Option<usize> {
    general(register).or_else(|| {
        (register.is_vector_register() && register.number() < 32).then(|| GENERAL + register.number())
    })
}

pub(super) fn general(register: Reg) -> Option<usize> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number())
}

pub(super) fn reads(access: OpAccess) -> bool {
    matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

pub(super) fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

pub(super) fn writes_rax(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Lodsb | Mnemonic::Lodsw | Mnemonic::Lodsd | Mnemonic::Lodsq)
}

pub(super) fn is_conditional_move(instruction: &Instruction) -> bool {
    instruction.condition_code() != iced_x86::ConditionCode::None && instruction.op_count() == 2
}

/// Whether the first operand gets what the others hold, unchanged.
pub(super) fn is_move(instruction: &Instruction) -> bool {
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
pub(super) fn rearranges(instruction: &Instruction) -> bool {
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
pub(super) fn moves_from_vector(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Movq | Mnemonic::Vmovq | Mnemonic::Pextrq | Mnemonic::Vpextrq)
}

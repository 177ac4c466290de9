//! Fourth pass: gives inserted instructions their machine code, where it is one of the usual forms, so that
//! DynamoRIO only copies it.

#![allow(non_upper_case_globals)] // opcodes keep DynamoRIO's names

use crate::ir::{general_register, is_wide_register};
use crate::machine_code::{Instruction, Operand, Place};
use core::ffi::c_void;
use dynamorio_sys::*;

/// The segment override prefixes of fs and gs.
const FS_PREFIX: u8 = 0x64;
const GS_PREFIX: u8 = 0x65;

/// The pass, as DynamoRIO calls it.
pub unsafe extern "C" fn pre_encode(
    context: *mut c_void,
    _tag: *mut c_void,
    block: *mut instrlist_t,
    _for_trace: bool_,
    _translating: bool_,
) -> dr_emit_flags_t {
    // SAFETY: DynamoRIO hands over a well-formed block; the bytes are copied into the instruction's own, whose
    // operands stay as they are.
    unsafe {
        let mut instr = instrlist_first(block);
        while !instr.is_null() {
            if instr_is_app(instr) == 0
                && instr_raw_bits_valid(instr) == 0
                && let Some(known) = form_of(instr)
            {
                let code = known.encode();
                let bytes = code.bytes();
                instr_allocate_raw_bits(context, instr, bytes.len() as u32);
                instr_set_raw_bytes(instr, bytes.as_ptr().cast_mut(), bytes.len() as u32);
                instr_set_operands_valid(instr, 1);
            }
            instr = instr_get_next(instr);
        }
    }
    dr_emit_flags_t::DR_EMIT_DEFAULT
}

/// The instruction, if it is of a form that we encode.
///
/// # Safety
/// `instr` is an instruction of a well-formed block, with its operands.
unsafe fn form_of(instr: *mut instr_t) -> Option<Instruction> {
    // SAFETY: the opcodes below have a destination or two sources, as they say.
    unsafe {
        match instr_get_opcode(instr) as u32 {
            OP_mov_ld => {
                let to = instr_get_dst(instr, 0);
                let (to, is_wide) = (register(to)?, is_wide(to));
                let from = instr_get_src(instr, 0);
                let from = match register(from) {
                    Some(from) => Operand::Register(from),
                    None => Operand::Place(place(from)?),
                };
                Some(Instruction::Load { to, from, is_wide })
            }
            OP_mov_st => {
                let to = instr_get_dst(instr, 0);
                let from = instr_get_src(instr, 0);
                if let Some(from_register) = register(from) {
                    return Some(Instruction::Store {
                        to: place(to)?,
                        from: from_register,
                        is_wide: is_wide(from),
                    });
                }
                let is_wide = match u32::from(opnd_get_size(to)) {
                    OPSZ_8 => true,
                    OPSZ_4 => false,
                    _ => return None,
                };
                let value = i32::try_from(immediate(from)?).ok()?;
                Some(Instruction::StoreImmediate { to: place(to)?, value, is_wide })
            }
            OP_lea => {
                let to = instr_get_dst(instr, 0);
                let of = place(instr_get_src(instr, 0)).filter(|of| of.segment_prefix == 0)?;
                is_wide(to).then_some(Instruction::Address { to: register(to)?, of })
            }
            OP_mov_imm => {
                let to = instr_get_dst(instr, 0);
                let value = immediate(instr_get_src(instr, 0))? as u64;
                let value = if is_wide(to) { value } else { value & u64::from(u32::MAX) };
                Some(Instruction::Immediate { to: register(to)?, value })
            }
            OP_cmp => {
                let left = instr_get_src(instr, 0);
                let right = place(instr_get_src(instr, 1))?;
                is_wide(left).then_some(Instruction::Compare { left: register(left)?, right })
            }
            _ => None,
        }
    }
}

/// A general register of 64 or 32 bits.
unsafe fn register(operand: opnd_t) -> Option<u8> {
    // SAFETY: reads a value.
    unsafe { if opnd_is_reg(operand) != 0 { general_register(opnd_get_reg(operand)) } else { None } }
}

/// Whether a register operand has 64 bits.
unsafe fn is_wide(operand: opnd_t) -> bool {
    // SAFETY: reads a value; the register is only asked of register operands.
    unsafe { opnd_is_reg(operand) != 0 && is_wide_register(opnd_get_reg(operand)) }
}

unsafe fn immediate(operand: opnd_t) -> Option<i64> {
    // SAFETY: reads a value.
    unsafe { (opnd_is_immed_int(operand) != 0).then(|| opnd_get_immed_int(operand) as i64) }
}

/// Memory by 64-bit registers and a displacement.
unsafe fn place(operand: opnd_t) -> Option<Place> {
    // SAFETY: reads a value; its parts are only asked of an operand that has them.
    unsafe {
        if opnd_is_base_disp(operand) == 0 {
            return None;
        }
        let none = DR_REG_NULL as reg_id_t;
        let wide = |reg: reg_id_t| general_register(reg).filter(|_| is_wide_register(reg));
        let (base, index) = (opnd_get_base(operand), opnd_get_index(operand));
        Some(Place {
            segment_prefix: match u32::from(opnd_get_segment(operand)) {
                DR_REG_NULL => 0,
                DR_SEG_FS => FS_PREFIX,
                DR_SEG_GS => GS_PREFIX,
                _ => return None,
            },
            base: if base == none { None } else { Some(wide(base)?) },
            index: match index {
                index if index == none => None,
                index => Some((wide(index)?, opnd_get_scale(operand) as u8)),
            },
            displacement: opnd_get_disp(operand),
        })
    }
}

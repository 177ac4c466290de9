//! Client requests: the no-op sequence that annotated programs contain.
//!
//! The sequence is valgrind's for x86-64 (`valgrind.h`, "special instruction preamble"): four
//! rotations of rdi by 3, 13, 61 and 51, which cancel out, then `xchg rbx, rbx`. rax points to the
//! request's code and five arguments.

use crate::ir::Inserter;
use crate::state::STATE;
use core::ffi::c_void;
use dynamorio_sys::*;
use memlens_events::EventKind;

/// `rol rdi, 3; rol rdi, 13; rol rdi, 61; rol rdi, 51; xchg rbx, rbx`
const SEQUENCE: [u8; 19] = [
    0x48, 0xc1, 0xc7, 0x03, 0x48, 0xc1, 0xc7, 0x0d, 0x48, 0xc1, 0xc7, 0x3d, 0x48, 0xc1, 0xc7, 0x33, 0x48,
    0x87, 0xdb,
];

/// Whether `instr` is the last of a request's sequence.
///
/// # Safety
/// `instr` is an instruction of the target's code.
pub unsafe fn ends_request(instr: *mut instr_t) -> bool {
    // SAFETY: reads the instruction; the code before it is copied with fault protection.
    unsafe {
        // DynamoRIO knows the sequence as well: it leaves a marked `mov` at the address of the `xchg`.
        if instr_get_opcode(instr) as u32 != OP_xchg && instr_get_note(instr).is_null() {
            return false;
        }
        let start = instr_get_app_pc(instr).wrapping_sub(16);
        let (mut bytes, mut read) = ([0_u8; SEQUENCE.len()], 0);
        dr_safe_read(start.cast(), bytes.len(), bytes.as_mut_ptr().cast(), &mut read) != 0
            && read == bytes.len()
            && bytes == SEQUENCE
    }
}

/// Inserts the call that sends the request.
///
/// # Safety
/// Call for the last instruction of a block, after its position was stored.
pub unsafe fn insert_call(here: Inserter) {
    // SAFETY: the callee takes one pointer-sized argument and keeps to the clean-call rules.
    unsafe {
        let rax = DR_REG_RAX as reg_id_t;
        drreg_get_app_value(here.context, here.block, here.at, rax, rax);
        let arguments = crate::ir::register(rax);
        dr_insert_clean_call(here.context, here.block, here.at, send as *mut c_void, 0, 1, arguments);
    }
}

/// Sends a request: code and five arguments from the target's memory.
unsafe extern "C" fn send(arguments: *const c_void) {
    // SAFETY: copied with fault protection; the thread's state belongs to this thread.
    unsafe {
        let (mut words, mut read) = ([0_u64; 6], 0);
        let length = core::mem::size_of_val(&words);
        if dr_safe_read(arguments, length, words.as_mut_ptr().cast(), &mut read) != 0 && read == length {
            STATE.thread(dr_get_current_drcontext()).event(EventKind::Request, &words);
        }
    }
}

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

/// Bytes of the last instruction.
const LAST_BYTES: u64 = 3;

/// Whether `instr` is the last of a request's sequence.
///
/// # Safety
/// `instr` is an instruction of the target's code.
pub unsafe fn ends_request(instr: *mut instr_t) -> bool {
    // SAFETY: reads the instruction; the code before it is copied with fault protection.
    unsafe {
        // DynamoRIO knows the sequence as well: it leaves a marked `mov` at the address of the `xchg`, for which
        // `leave_unanswered` puts a nop.
        let opcode = instr_get_opcode(instr) as u32;
        if opcode != OP_xchg && opcode != OP_nop && instr_get_note(instr).is_null() {
            return false;
        }
        let start = instr_get_app_pc(instr).wrapping_sub(16);
        let (mut bytes, mut read) = ([0_u8; SEQUENCE.len()], 0);
        dr_safe_read(start.cast(), bytes.len(), bytes.as_mut_ptr().cast(), &mut read) != 0
            && read == bytes.len()
            && bytes == SEQUENCE
    }
}

/// Takes away DynamoRIO's own answer to the request that `last` ends: it says that the program runs on valgrind, by
/// which programs change what they do. What is left does nothing, as on the processor.
///
/// # Safety
/// `last` ends a request ([`ends_request`]) in `block`, which is the program's code and nothing else yet.
pub unsafe fn leave_unanswered(context: *mut c_void, block: *mut instrlist_t, last: *mut instr_t) {
    // SAFETY: the label and the `mov` are DynamoRIO's, in this block; the nop has the translation of what it replaces.
    unsafe {
        let is_annotation = |instr: *mut instr_t| instr_get_note(instr) as u64 == DR_NOTE_ANNOTATION;
        if !is_annotation(last) {
            return;
        }
        let label = instr_get_prev(last);
        if !label.is_null() && instr_is_label(label) != 0 && is_annotation(label) {
            instrlist_remove(block, label);
            instr_destroy(context, label);
        }
        let nop = instr_create_0dst_0src(context, OP_nop as i32);
        instr_set_translation(nop, instr_get_app_pc(last));
        instr_set_app(nop);
        instrlist_replace(block, last, nop);
        instr_destroy(context, last);
    }
}

/// Inserts the call that sends the request.
///
/// # Safety
/// Call for the last instruction of a block, after its position was stored.
pub unsafe fn insert_call(here: Inserter) {
    // SAFETY: the callee takes two pointer-sized arguments and keeps to the clean-call rules.
    unsafe {
        let rax = DR_REG_RAX as reg_id_t;
        // rdx is where the answer goes.
        for reg in [rax, DR_REG_RDX as reg_id_t] {
            drreg_get_app_value(here.context, here.block, here.at, reg, reg);
        }
        let arguments = crate::ir::register(rax);
        // What lies behind the sequence, as a call's return address lies behind the call.
        let behind = instr_get_app_pc(here.at) as u64 + LAST_BYTES;
        let behind = opnd_create_immed_int(behind as ptr_int_t, OPSZ_8 as opnd_size_t);
        dr_insert_clean_call(here.context, here.block, here.at, send as *mut c_void, 0, 2, arguments, behind);
    }
}

/// Sends a request: code and five arguments from the target's memory, and where it was made.
unsafe extern "C" fn send(arguments: *const c_void, behind: u64) {
    // SAFETY: copied with fault protection; the thread's state belongs to this thread.
    unsafe {
        let (mut words, mut read) = ([0_u64; 6], 0);
        let length = core::mem::size_of_val(&words);
        if dr_safe_read(arguments, length, words.as_mut_ptr().cast(), &mut read) != 0 && read == length {
            if words[0] == PROTOCOL {
                answer(PROTOCOL_VERSION);
            }
            let mut payload = words.to_vec();
            payload.push(behind);
            payload.extend(name(&words));
            STATE.thread(dr_get_current_drcontext()).event(EventKind::Request, &payload);
        }
    }
}

/// Asks who listens, and what memlens answers (memlens.h).
const PROTOCOL: u64 = tool_base(b'M', b'L');
const PROTOCOL_VERSION: u64 = 1;

/// Puts the result of a request where the program looks for it.
///
/// # Safety
/// Called from the clean call of [`insert_call`].
unsafe fn answer(result: u64) {
    // SAFETY: in a clean call the context may be changed; the other registers get what they had.
    unsafe {
        let context = dr_get_current_drcontext();
        let mut machine: dr_mcontext_t = core::mem::zeroed();
        machine.size = core::mem::size_of::<dr_mcontext_t>();
        machine.flags = dr_mcontext_flags_t::DR_MC_INTEGER;
        if dr_get_mcontext(context, &mut machine) != 0 {
            machine.__bindgen_anon_6.xdx = result as reg_t;
            dr_set_mcontext(context, &mut machine);
        }
    }
}

/// Names are cut to this length.
const MAX_NAME_BYTES: usize = 256;

/// The name that a request points to, copied while it is surely there: length in bytes, then the bytes.
/// Nothing for requests without one.
fn name(words: &[u64; 6]) -> Vec<u64> {
    // Codes of memlens.h ("MARK", "REGION_IS") and of callgrind.h (CALLGRIND_DUMP_STATS_AT).
    const MARK: u64 = tool_base(b'M', b'L') + 3;
    const REGION_IS: u64 = tool_base(b'M', b'L') + 4;
    const DUMP_STATS_AT: u64 = tool_base(b'C', b'T') + 3;
    let (address, limit) = match words[0] {
        MARK => (words[1], words[2] as usize),
        REGION_IS => (words[3], words[4] as usize),
        DUMP_STATS_AT => (words[1], MAX_NAME_BYTES),
        _ => return Vec::new(),
    };
    let mut bytes = [0_u8; MAX_NAME_BYTES];
    let mut length = 0;
    // Byte by byte: a zero-terminated name may end at the end of its page.
    while length < limit.min(MAX_NAME_BYTES) {
        let (mut byte, mut read) = (0_u8, 0);
        // SAFETY: copied with fault protection.
        let is_read = unsafe {
            dr_safe_read((address as usize + length) as *const c_void, 1, (&raw mut byte).cast(), &mut read)
                != 0
        };
        if !is_read || read != 1 || (byte == 0 && words[0] == DUMP_STATS_AT) {
            break;
        }
        bytes[length] = byte;
        length += 1;
    }
    let chunks = bytes[..length.next_multiple_of(8)].chunks_exact(8);
    let packed = chunks.map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    std::iter::once(length as u64).chain(packed).collect()
}

const fn tool_base(first: u8, second: u8) -> u64 {
    (first as u64) << 24 | (second as u64) << 16
}

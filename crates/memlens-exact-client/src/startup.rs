//! Things done once, before the target's first instruction.

use crate::ir::Inserter;
use crate::state::STATE;
use crate::sys;
use core::ffi::c_void;
use dynamorio_sys::*;

/// Room for sixteen stubs; one takes about 600 bytes with AVX-512 state.
const STUB_BYTES: usize = 64 << 10;

/// Generates, for each general register, the code that calls `callee` and then jumps to where the
/// register points. One copy serves all blocks, which keeps them small.
pub fn make_stubs(callee: *mut c_void) {
    let protection = DR_MEMPROT_READ | DR_MEMPROT_WRITE | DR_MEMPROT_EXEC;
    // SAFETY: memory of our own; the lists are encoded into it and destroyed.
    unsafe {
        let context = dr_get_current_drcontext();
        let mut code = dr_nonheap_alloc(STUB_BYTES, protection).cast::<u8>();
        for reg in DR_REG_RAX..=DR_REG_R15 {
            if reg == DR_REG_RSP {
                continue;
            }
            let reg = reg as reg_id_t;
            STATE.set_stub(reg, code);
            let list = instrlist_create(context);
            let target = opnd_create_reg(reg);
            let jump = instr_create_0dst_1src(context, OP_jmp_ind as i32, target);
            instrlist_meta_append(list, jump);
            let here = Inserter { context, block: list, at: jump };
            dr_insert_clean_call(here.context, here.block, here.at, callee, 0, 0);
            code = instrlist_encode(context, list, code, 0);
            instrlist_clear_and_destroy(context, list);
        }
    }
}

/// Takes memlens's and DynamoRIO's variables out of the environment that the target will see.
///
/// memlens passes them as the last entries. The list is cut before them and the auxiliary vector,
/// which follows the list's end, moves down: start-up code finds it there. Returns DynamoRIO's options,
/// with the variable's name.
pub fn hide_environment() -> Option<Vec<u8>> {
    let stack = initial_stack_pointer()?;
    let mut options = None;
    // SAFETY: the kernel laid out argc, the argument pointers, a null, the environment pointers, a
    // null and the auxiliary vector there (System V ABI AMD64 supplement 1.0, section 3.4.1), and
    // no code of the target has run yet.
    unsafe {
        let stack = stack as *mut *mut u8;
        let argument_count = *stack as usize;
        let environment = stack.add(1 + argument_count + 1);
        let mut end = environment;
        let mut cut = None;
        while !(*end).is_null() {
            let entry = core::ffi::CStr::from_ptr((*end).cast()).to_bytes();
            let is_ours = entry.starts_with(b"DYNAMORIO_") || entry.starts_with(b"__disabled__");
            cut = if is_ours { cut.or(Some(end)) } else { None };
            if is_ours && entry.starts_with(b"DYNAMORIO_OPTIONS=") {
                options = Some(entry.to_vec());
            }
            end = end.add(1);
        }
        let cut = cut?;
        // auxv: pairs of words up to and including AT_NULL.
        let mut words = 1;
        let mut pair = end.add(1);
        loop {
            words += 2;
            if (*pair).is_null() {
                break;
            }
            pair = pair.add(2);
        }
        core::ptr::copy(end, cut, words);
    }
    options
}

/// The stack pointer with which the kernel started the process: field 28 of `/proc/self/stat`.
pub fn initial_stack_pointer() -> Option<u64> {
    let mut buffer = [0_u8; 1024];
    let length = sys::read_file(c"/proc/self/stat", &mut buffer);
    let text = core::str::from_utf8(&buffer[..length]).ok()?;
    // The second field, the command, may contain anything; it ends at the last parenthesis.
    let rest = &text[text.rfind(')')? + 2..];
    rest.split(' ').nth(28 - 3)?.parse().ok().filter(|&pointer| pointer != 0)
}

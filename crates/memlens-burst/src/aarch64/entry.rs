//! From translated code into the runtime and back: code that we write once for a process.
//!
//! It is entered with the exit's number in x0, and x0 and x1 of the program in the area. The runtime runs on a stack of its own, with the
//! program's general registers in the thread's area, and its vector registers, flags and floating-point state saved.

use core::sync::atomic::{AtomicU64, Ordering};

use super::area::{EXIT, FLAGS, FRAME, JUMP, Offsets, REGISTERS, SP_REGISTER, STACK, THIRD, VECTORS};
use super::assembler::{AREA, Assembler, Gpr, SP};
use super::check::{RESUMED_BEFORE, publish};
use crate::runtime::next_code;
use crate::sys::CodeMemory;

/// Bytes of the vector registers; behind them FPSR and FPCR wait.
pub const VECTOR_BYTES: u32 = 32 * 16;
const FPSR_AT: u32 = VECTOR_BYTES;
const FPCR_AT: u32 = VECTOR_BYTES + 8;

/// System registers in MRS and MSR: NZCV, FPCR, FPSR.
const NZCV: u32 = 0xd51b_4200;
const FPCR: u32 = 0xd51b_4400;
const FPSR: u32 = 0xd51b_4420;
/// Turns MSR into MRS.
const READ: u32 = 1 << 21;
/// `svc #0`
const SVC: u32 = 0xd400_0001;
const RT_SIGRETURN: u64 = 139;

fn write_entry(assembler: &mut Assembler<'_>) {
    let place = |register: Gpr| REGISTERS + 8 * u32::from(register);
    // x0 to x27 by pairs; that of x28 is in the area already.
    let pairs = (0..28).step_by(2).map(|first: Gpr| (first, first + 1));
    let vectors = (0..32).step_by(2).map(|first: u8| (first, 16 * u32::from(first)));
    assembler.store_area(0, EXIT);
    assembler.load_pair_area((0, 1), THIRD);
    for pair in pairs.clone() {
        assembler.store_pair_area(pair, place(pair.0));
    }
    assembler.store_pair_area((29, 30), place(29));
    assembler.add_value(0, SP, 0);
    assembler.store_area(0, SP_REGISTER);
    assembler.load_area(0, STACK);
    assembler.add_value(SP, 0, 0);
    assembler.load_area(0, VECTORS);
    for (first, offset) in vectors.clone() {
        assembler.store_vectors(first, 0, offset);
    }
    for (register, offset) in [(FPSR, FPSR_AT), (FPCR, FPCR_AT)] {
        assembler.word(register | READ | 1);
        assembler.store(1, 0, offset);
    }
    assembler.word(NZCV | READ | 1);
    assembler.store_area(1, FLAGS);
    assembler.add_value(0, AREA, 0);
    assembler.set(1, next_code as *const () as u64);
    assembler.call(1);
    let leaves = assembler.branch_if_zero(0);
    assembler.subtract_value(0, 0, RESUMED_BEFORE as u32);
    assembler.store_area(0, JUMP);
    assembler.load_area(1, FLAGS);
    assembler.word(NZCV | 1);
    assembler.load_area(0, VECTORS);
    for (register, offset) in [(FPSR, FPSR_AT), (FPCR, FPCR_AT)] {
        assembler.load(1, 0, offset);
        assembler.word(register | 1);
    }
    for (first, offset) in vectors {
        assembler.load_vectors(first, 0, offset);
    }
    assembler.load_area(0, SP_REGISTER);
    assembler.add_value(SP, 0, 0);
    for pair in pairs.skip(1) {
        assembler.load_pair_area(pair, place(pair.0));
    }
    assembler.load_pair_area((29, 30), place(29));
    // x0 and x1 of the program wait in the area: the block takes them from there.
    assembler.load_area(1, JUMP);
    assembler.branch_to(1);
    // The burst ends: the kernel puts all registers and the signal mask back at once.
    assembler.fill(leaves, assembler.here());
    assembler.load_area(0, FRAME);
    assembler.add_value(SP, 0, 0);
    assembler.set(8, RT_SIGRETURN);
    assembler.word(SVC);
}

/// A process's entry, in a page of its own: bursts begin there. 0: none yet.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// The entry. None: the kernel has no memory for code. Needs little stack.
pub fn first_entry(_: Offsets) -> Option<u64> {
    const BYTES: usize = 4096;
    let known = FIRST.load(Ordering::Acquire);
    if known != 0 {
        return Some(known);
    }
    let memory = CodeMemory::at(0, BYTES)?;
    // SAFETY: a page of our own that nobody else knows.
    let code = unsafe { core::slice::from_raw_parts_mut(memory.write, BYTES) };
    write_entry(&mut Assembler::new(code, memory.execute));
    publish(memory.write, memory.execute, BYTES);
    match FIRST.compare_exchange(0, memory.execute, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(memory.execute),
        Err(faster) => {
            // SAFETY: nobody has seen it.
            unsafe { memory.unmap() };
            Some(faster)
        }
    }
}

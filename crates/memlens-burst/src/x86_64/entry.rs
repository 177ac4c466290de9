//! From translated code into the runtime and back: code that we write once for a process, and a way to it in each arena.
//!
//! The runtime runs on a stack of its own, with the program's general registers in the thread's area and all others
//! saved by XSAVE.

use core::sync::atomic::{AtomicU64, Ordering};

use super::area::Offsets;
use super::assembler::{Address, Assembler, Gpr, RAX, RCX, RDI, RDX, RSP};
use crate::runtime::next_code;
use crate::sys::CodeMemory;

const ALL: [Gpr; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// The flags' place below the top of the runtime's stack.
pub const FLAGS_BELOW_TOP: u64 = 8;

/// Entered with all registers the program's but rcx, which is in the area's third place.
fn write_entry(assembler: &mut Assembler<'_>, offsets: Offsets) {
    let register = |register: Gpr| offsets.registers() + 8 * i32::from(register);
    write_indirect_start(assembler, offsets);
    for each in ALL {
        assembler.store_thread(each, register(each));
    }
    assembler.load_thread(RSP, offsets.stack());
    assembler.bytes(&[0x9c]); // pushfq
    assembler.bytes(&[0xfc]); // cld
    assembler.push(RAX); // keeps the stack aligned
    let all_components = |assembler: &mut Assembler<'_>| {
        assembler.set(RAX, u64::MAX);
        assembler.set(RDX, u64::MAX);
        assembler.load_thread(RDI, offsets.vectors());
    };
    all_components(assembler);
    assembler.bytes(&[0x48, 0x0f, 0xae, 0x27]); // xsave64 [rdi]
    assembler.load_thread(RDI, offsets.own());
    assembler.set(RAX, next_code as *const () as u64);
    assembler.bytes(&[0xff, 0xd0]); // call rax
    assembler.copy(RCX, RAX);
    let leaves = assembler.jump_short_if_rcx_is_zero();
    let goes_on = assembler.jump(assembler.here());
    // The burst ends: the kernel puts all registers and the signal mask back at once.
    assembler.end_short(leaves);
    assembler.load_thread(RSP, offsets.frame());
    assembler.set(RAX, 15); // rt_sigreturn
    assembler.bytes(&[0x0f, 0x05]);
    assembler.fill(goes_on, assembler.here());
    assembler.store_thread(RAX, offsets.jump());
    all_components(assembler);
    assembler.bytes(&[0x48, 0x0f, 0xae, 0x2f]); // xrstor64 [rdi]
    assembler.lea(RSP, Address::at(RSP, 8));
    assembler.bytes(&[0x9d]); // popfq
    for each in ALL.into_iter().filter(|&each| each != RSP).chain([RSP]) {
        assembler.load_thread(each, register(each));
    }
    assembler.jump_thread(offsets.jump());
}

/// Where bursts begin, and where an indirect exit's target is not known: no exit was taken, and rcx comes back.
fn write_indirect_start(assembler: &mut Assembler<'_>, offsets: Offsets) {
    let start = assembler.here();
    assembler.load_thread(RCX, offsets.third());
    assembler.store_thread_value(offsets.exit(), 0);
    debug_assert_eq!(assembler.here() - start, AFTER_INDIRECT);
}

/// How far behind an entry's start other exits enter: behind [`write_indirect_start`].
pub const AFTER_INDIRECT: u64 = 9 + 13;

/// An arena's entry: leads to the first one, which stays when arenas go.
pub fn write_way_to_entry(assembler: &mut Assembler<'_>, offsets: Offsets, first: u64) {
    write_indirect_start(assembler, offsets);
    // jmp [rip + 0], then the address.
    assembler.bytes(&[0xff, 0x25, 0, 0, 0, 0]);
    assembler.bytes(&(first + AFTER_INDIRECT).to_le_bytes());
}

/// A process's first entry, in a page of its own: bursts begin there. 0: none yet.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// The first entry. None: the kernel has no memory for code. Needs little stack.
pub fn first_entry(offsets: Offsets) -> Option<u64> {
    const BYTES: usize = 4096;
    let known = FIRST.load(Ordering::Acquire);
    if known != 0 {
        return Some(known);
    }
    let memory = CodeMemory::at(0, BYTES)?;
    // SAFETY: a page of our own that nobody else knows.
    let code = unsafe { core::slice::from_raw_parts_mut(memory.write, BYTES) };
    write_entry(&mut Assembler::new(code, memory.execute), offsets);
    match FIRST.compare_exchange(0, memory.execute, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(memory.execute),
        Err(faster) => {
            // SAFETY: nobody has seen it.
            unsafe { memory.unmap() };
            Some(faster)
        }
    }
}

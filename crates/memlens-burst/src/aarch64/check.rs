//! Checks of indirect targets, linked branches, and where code lies: what the cache asks of the architecture.

use core::arch::asm;

use super::area::{ENTRY, Offsets};
use super::assembler::{Assembler, Gpr, with_distance};
use crate::cache::{ARENA_BYTES, Block};
use crate::sys::CodeMemory;

/// What is noted of a block.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfBlock {
    /// The register that stands for x28.
    pub stand_in: Option<Gpr>,
}

/// The pair that a block prefers which none led to: none, so that each chooses.
pub const FIRST_PAIR: (Gpr, Gpr) = (0, 0);

/// Bytes of the instruction before a block that takes x0 and x1 from where they wait.
pub const RESUMED_BEFORE: u64 = 4;

/// The hash by which translated code looks for an indirect target.
pub fn target_hash(pc: u64) -> usize {
    ((pc ^ pc >> 16) >> 2 & 0xffff) as usize
}

/// The word with which the branch at `gap` leads to `target`. `B` may be changed to another `B` while others execute it (Arm Architecture
/// Reference Manual for A-profile, B2.2.5). None: it is too far.
pub fn jump_word(gap: u64, target: u64) -> Option<u32> {
    with_distance(0x1400_0000, target.wrapping_sub(gap) as i64)
}

/// Code was written at `written`, to be executed at `code`: makes it seen by what fetches instructions (the same, B2.7.4.1; which of it is
/// needed tells `CTR_EL0`, D24.2.34).
pub fn publish(written: *const u8, code: u64, bytes: usize) {
    /// Data caches need not be cleaned; instruction caches need not be invalidated.
    const IDC: u32 = 28;
    const DIC: u32 = 29;
    let features: u64;
    // SAFETY: only asks.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) features, options(nomem, nostack, preserves_flags)) };
    let has = |bit: u32| features >> bit & 1 != 0;
    // Logarithms of words.
    let (data_line, code_line) = (4 << (features >> 16 & 15), 4 << (features & 15));
    let lines = |start: u64, line: u64| (start & !(line - 1)..start + bytes as u64).step_by(line as usize);
    // SAFETY: maintenance of caches changes no content; the lines are of mapped memory.
    unsafe {
        if !has(IDC) {
            for line in lines(written as u64, data_line) {
                asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags));
            }
        }
        asm!("dsb ish", options(nostack, preserves_flags));
        if !has(DIC) {
            for line in lines(code, code_line) {
                asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags));
            }
            asm!("dsb ish", options(nostack, preserves_flags));
        }
        asm!("isb", options(nostack, preserves_flags));
    }
}

/// Whether code of an address may be translated to another one: anywhere, for addresses are written out.
pub fn is_near(_: u64, _: u64) -> bool {
    true
}

/// Memory for code, wherever it is.
pub fn memory_for(_: u64) -> Option<CodeMemory> {
    CodeMemory::at(0, ARENA_BYTES)
}

/// Where indirect transfers arrive whose target is perhaps the block's: x0 holds it, and x0 and x1 of the program wait in the area.
/// `miss`: where it goes on if it is another one.
pub fn write_check(assembler: &mut Assembler<'_>, _: Offsets, block: &Block, miss: u64) {
    assembler.set(1, block.pc);
    assembler.subtract(0, 0, 1);
    let other = assembler.branch_if_not_zero(0);
    assembler.branch(block.cold - RESUMED_BEFORE);
    assembler.fill(other, assembler.here());
    assembler.branch(miss);
}

/// An arena's begin: the target is not known, and the runtime asked.
pub fn write_way_to_entry(assembler: &mut Assembler<'_>, _: Offsets, _: u64) {
    assembler.set(0, 0);
    assembler.load_area(1, ENTRY);
    assembler.branch_to(1);
}

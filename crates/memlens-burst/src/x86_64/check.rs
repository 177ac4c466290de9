//! Checks of indirect targets, linked jumps, and where code lies: what the cache asks of the architecture.

use super::area::{NEXT_EPOCH, Offsets};
use super::assembler::{Address, Assembler, Gpr, RCX, RDX, reaches};
use crate::cache::{ARENA_BYTES, Block};
use crate::sys::CodeMemory;

/// What is noted of a block.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfBlock {
    /// Of generated code: where the instructions lie that compare it with what was translated.
    pub comparison: Option<(u64, u64)>,
    /// Whether rax has the flags meanwhile, and the area's third place rax.
    pub are_flags_in_rax: bool,
}

/// The pair that a block prefers which none led to.
pub const FIRST_PAIR: (Gpr, Gpr) = (15, 14);

/// The hash by which translated code looks for an indirect target.
pub fn target_hash(pc: u64) -> usize {
    // SAFETY: SSE 4.2 is there: bursts are not begun without.
    unsafe { core::arch::x86_64::_mm_crc32_u64(0, pc) as usize }
}

/// The word at `gap` with which a jump leads to `target`: its distance. Threads that execute the jump see the store whole, where it was
/// written aligned (Intel SDM volume 3A, section 9.1.1). None: it is too far.
pub fn jump_word(gap: u64, target: u64) -> Option<u32> {
    i32::try_from(target.wrapping_sub(gap + 4) as i64).ok().map(i32::cast_unsigned)
}

/// Code was written. Processors see that by themselves (Intel SDM volume 3A, section 9.1.3).
pub fn publish(_: *const u8, _: u64, _: usize) {}

/// Whether code of an address may be translated to another one: operands relative to the instruction pointer reach.
pub fn is_near(pc: u64, code: u64) -> bool {
    reaches(pc, code)
}

/// Entered with all registers the program's but rcx, which is in the area's third place and holds the address that is
/// wanted, as does the area's target.
pub fn write_check(assembler: &mut Assembler<'_>, offsets: Offsets, block: &Block, entry: u64) {
    assembler.store_thread(RDX, offsets.fourth());
    assembler.set(RDX, block.pc.wrapping_neg());
    assembler.lea(RCX, Address { base: Some(RCX), index: Some((RDX, 1)), disp: 0 });
    assembler.load_thread(RDX, offsets.fourth());
    let equal = assembler.jump_short_if_rcx_is_zero();
    assembler.jump(entry);
    assembler.end_short(equal);
    if block.own.comparison.is_some() {
        assembler.load_thread(RCX, offsets.epoch());
        assembler.lea(RCX, Address::at(RCX, NEXT_EPOCH as i32));
        assembler.store_thread(RCX, offsets.epoch());
    }
    assembler.load_thread(RCX, offsets.third());
    if reaches(assembler.here(), block.cold) {
        assembler.jump(block.cold);
    } else {
        // jmp [rip + 0], then the address.
        assembler.bytes(&[0xff, 0x25, 0, 0, 0, 0]);
        assembler.bytes(&block.cold.to_le_bytes());
    }
}

/// Memory for code near a module.
pub fn memory_for(module: u64) -> Option<CodeMemory> {
    const STEP: u64 = 16 << 20;
    const LOWEST: u64 = 0x1_0000;
    let base = module & !0xfff;
    let below = (1..100).filter_map(|step| base.checked_sub(ARENA_BYTES as u64 + step * STEP));
    let above = (4..100).map(|step| base + step * STEP);
    below.filter(|&place| place >= LOWEST).chain(above).find_map(|place| CodeMemory::at(place, ARENA_BYTES))
}

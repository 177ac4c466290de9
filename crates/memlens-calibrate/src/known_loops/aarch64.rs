//! The loops for AArch64, where no instruction but a load or a store touches memory.

use super::KnownLoop;

std::arch::global_asm!(
    ".p2align 6",
    ".globl memlens_wait_load, memlens_wait_load_end, memlens_wait_store, memlens_wait_store_end",
    ".globl memlens_wait_divide, memlens_wait_divide_end",
    ".hidden memlens_wait_load, memlens_wait_load_end, memlens_wait_store, memlens_wait_store_end",
    ".hidden memlens_wait_divide, memlens_wait_divide_end",
    "memlens_wait_load:",
    "ldr x0, [x0]",
    ".rept 4",
    "add x8, x8, #1",
    "add x9, x9, #1",
    "add x10, x10, #1",
    "add x11, x11, #1",
    ".endr",
    "subs x1, x1, #1",
    "b.ne memlens_wait_load",
    "memlens_wait_load_end:",
    "ret",
    // x0: the first line; places by a linear congruential generator (D. E. Knuth, MMIX), of which the
    // highest bits choose one of 2^20 lines.
    ".p2align 6",
    "memlens_wait_store:",
    "mov x8, x1",
    "movz x9, #0x7f2d",
    "movk x9, #0x4c95, lsl #16",
    "movk x9, #0xf42d, lsl #32",
    "movk x9, #0x5851, lsl #48",
    "mov x12, #0x0387",
    "movk x12, #0x16, lsl #16",
    "2:",
    "madd x8, x8, x9, x12",
    "lsr x10, x8, #44",
    "add x10, x0, x10, lsl #6",
    "str x8, [x10, #8]",
    ".rept 3",
    "add x3, x3, #1",
    "add x4, x4, #1",
    "add x5, x5, #1",
    ".endr",
    "subs x1, x1, #1",
    "b.ne 2b",
    "memlens_wait_store_end:",
    "ret",
    ".p2align 6",
    "memlens_wait_divide:",
    "orr x2, x1, #1",
    "mov x3, x0",
    "2:",
    "add x3, x3, x8",
    "udiv x3, x3, x2",
    ".rept 4",
    "add x9, x9, #1",
    "add x10, x10, #1",
    "add x11, x11, #1",
    ".endr",
    "subs x1, x1, #1",
    "b.ne 2b",
    "memlens_wait_divide_end:",
    "ret",
);

unsafe extern "C" {
    fn memlens_wait_load(chain: *const usize, rounds: u64) -> *const usize;
    fn memlens_wait_load_end();
    fn memlens_wait_store(chain: *const usize, rounds: u64) -> *const usize;
    fn memlens_wait_store_end();
    fn memlens_wait_divide(chain: *const usize, rounds: u64) -> *const usize;
    fn memlens_wait_divide_end();
}

/// In the order of the table.
pub static LOOPS: [KnownLoop; 3] = [
    KnownLoop { name: "load", code: memlens_wait_load, end: memlens_wait_load_end, first: 0, waits: 0 },
    KnownLoop { name: "store", code: memlens_wait_store, end: memlens_wait_store_end, first: 7, waits: 10 },
    KnownLoop { name: "divide", code: memlens_wait_divide, end: memlens_wait_divide_end, first: 2, waits: 3 },
];

/// The addresses of the instructions of a piece of code.
pub fn instructions(code: &[u8], start: u64) -> Vec<u64> {
    (start..start + code.len() as u64).step_by(4).collect()
}

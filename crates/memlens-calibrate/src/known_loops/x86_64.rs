//! The loops for x86-64.

use iced_x86::{Decoder, DecoderOptions};

use super::KnownLoop;

std::arch::global_asm!(
    ".p2align 6",
    ".globl memlens_wait_load, memlens_wait_load_end, memlens_wait_operand, memlens_wait_operand_end",
    ".globl memlens_wait_store, memlens_wait_store_end, memlens_wait_divide, memlens_wait_divide_end",
    ".hidden memlens_wait_load, memlens_wait_load_end, memlens_wait_operand, memlens_wait_operand_end",
    ".hidden memlens_wait_store, memlens_wait_store_end, memlens_wait_divide, memlens_wait_divide_end",
    "memlens_wait_load:",
    "mov rdi, [rdi]",
    ".rept 4",
    "add r8, 1",
    "add r9, 1",
    "add r10, 1",
    "add r11, 1",
    ".endr",
    "dec rsi",
    "jnz memlens_wait_load",
    "memlens_wait_load_end:",
    "mov rax, rdi",
    "ret",
    ".p2align 6",
    "memlens_wait_operand:",
    "xor eax, eax",
    "add r8, 1",
    "add r9, 1",
    "xor rax, [rdi]",
    "mov rdi, rax",
    ".rept 4",
    "add r8, 1",
    "add r9, 1",
    "add r10, 1",
    ".endr",
    "dec rsi",
    "jnz memlens_wait_operand",
    "memlens_wait_operand_end:",
    "mov rax, rdi",
    "ret",
    // rdi: the first line; places by a linear congruential generator (D. E. Knuth, MMIX), of which the
    // highest bits choose one of 2^20 lines.
    ".p2align 6",
    "memlens_wait_store:",
    "mov r8, rsi",
    "mov r9, 6364136223846793005",
    "2:",
    "imul r8, r9",
    "add r8, 1442695",
    "mov r10, r8",
    "shr r10, 44",
    "shl r10, 6",
    "mov [rdi + r10 + 8], r8",
    ".rept 3",
    "add rax, 1",
    "add rcx, 1",
    "add rdx, 1",
    ".endr",
    "dec rsi",
    "jnz 2b",
    "memlens_wait_store_end:",
    "mov rax, rdi",
    "ret",
    ".p2align 6",
    "memlens_wait_divide:",
    "mov rcx, rsi",
    "or rcx, 1",
    "mov rax, rdi",
    "2:",
    "xor edx, edx",
    "add rax, r8",
    "div rcx",
    ".rept 4",
    "add r9, 1",
    "add r10, 1",
    "add r11, 1",
    ".endr",
    "dec rsi",
    "jnz 2b",
    "memlens_wait_divide_end:",
    "mov rax, rdi",
    "ret",
);

unsafe extern "C" {
    fn memlens_wait_load(chain: *const usize, rounds: u64) -> *const usize;
    fn memlens_wait_load_end();
    fn memlens_wait_operand(chain: *const usize, rounds: u64) -> *const usize;
    fn memlens_wait_operand_end();
    fn memlens_wait_store(chain: *const usize, rounds: u64) -> *const usize;
    fn memlens_wait_store_end();
    fn memlens_wait_divide(chain: *const usize, rounds: u64) -> *const usize;
    fn memlens_wait_divide_end();
}

/// In the order of the table.
pub static LOOPS: [KnownLoop; 4] = [
    KnownLoop { name: "load", code: memlens_wait_load, end: memlens_wait_load_end, first: 0, waits: 0 },
    KnownLoop {
        name: "operand",
        code: memlens_wait_operand,
        end: memlens_wait_operand_end,
        first: 0,
        waits: 3,
    },
    KnownLoop { name: "store", code: memlens_wait_store, end: memlens_wait_store_end, first: 2, waits: 7 },
    KnownLoop { name: "divide", code: memlens_wait_divide, end: memlens_wait_divide_end, first: 3, waits: 5 },
];

/// The addresses of the instructions of a piece of code.
pub fn instructions(code: &[u8], start: u64) -> Vec<u64> {
    let decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    decoder.into_iter().map(|instruction| instruction.ip()).collect()
}

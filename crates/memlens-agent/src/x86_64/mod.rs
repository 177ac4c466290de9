//! What is x86-64: where the thread area is, signal contexts, and (in `entry.rs`) the functions that the program calls.

#[cfg(not(test))]
pub mod entry;

use core::arch::x86_64::{_mm_sfence, _mm_stream_si64};
use core::arch::{asm, naked_asm};
use core::ffi::c_void;

use memlens_events::agent::REGISTERS;
pub use memlens_inside::{number, syscall};

use crate::thread_area::ThreadArea;

/// `EM_X86_64` (System V ABI AMD64 1.0, section 4.1).
pub const ELF_MACHINE: u16 = 62;
/// `R_X86_64_JUMP_SLOT` and `R_X86_64_GLOB_DAT` (System V ABI AMD64 1.0, section 4.4).
pub const POINTERS_TO_FUNCTIONS: [u32; 2] = [7, 6];
/// Which word of `struct stat` has the mode in its lower half (arch/x86/include/uapi/asm/stat.h).
pub const STAT_MODE_WORD: usize = 3;

/// What lies at the address that the entry points hand on as that of a call: the return address, on top of the stack (System V ABI AMD64 1.0,
/// section 3.2.2). Where it is there, in bytes …
pub const RETURN_ADDRESS_AT: usize = 0;
/// … and where the stack pointer is after the return.
pub const RETURNED_SP_AT: usize = 8;

/// The calling thread's area. It must not be handed to another thread.
pub fn thread() -> &'static ThreadArea {
    let area: *const ThreadArea;
    // SAFETY: the loader has given every thread this module's thread-local block before code of the module runs, and
    // keeps it until the thread's last instruction. It is zeroed, which is a valid area.
    unsafe {
        asm!(
            "mov {area}, qword ptr fs:[0]",
            "add {area}, qword ptr [rip + memlens_agent_thread@GOTTPOFF]",
            area = out(reg) area,
            options(pure, readonly, nostack)
        );
        &*area
    }
}

/// The thread pointer: glibc puts it above the frames of every thread but the first.
pub fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: the System V ABI keeps the thread pointer there.
    unsafe { asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(pure, readonly, nostack)) };
    pointer
}

/// The number of the processor that the thread is on. None: the kernel does not tell it there. No system call, which a program's filter
/// could forbid.
pub fn processor() -> Option<u32> {
    /// The entry whose limit Linux makes the numbers of processor and node for `getcpu` (`GDT_ENTRY_CPUNODE`,
    /// arch/x86/include/asm/segment.h), with the privilege of programs …
    const SELECTOR: u32 = 15 << 3 | 3;
    /// … and of the limit, the part that is the processor's (`VDSO_CPUNODE_MASK`).
    const NUMBER: u32 = 0xfff;
    let (limit, is_there): (u32, u8);
    // SAFETY: reads what the entry says, if there is one, and changes nothing but these registers and flags.
    unsafe {
        asm!(
            "lsl {limit:e}, {selector:e}",
            "setz {is_there}",
            limit = inout(reg) 0 => limit,
            selector = in(reg) SELECTOR,
            is_there = out(reg_byte) is_there,
            options(nomem, nostack)
        );
    }
    (is_there != 0).then_some(limit & NUMBER)
}

/// Ends the alignment check, with which the kernel calls a handler where the code that was interrupted has it. To be called
/// first: nobody else's code is made for it.
pub fn allow_unaligned() {
    // SAFETY: changes that flag alone.
    unsafe { asm!("pushfq", "and dword ptr [rsp], {others}", "popfq", others = const !(1 << 18)) };
}

/// First and last address of this library.
pub fn own_image() -> (usize, usize) {
    let (start, end);
    // SAFETY: computes addresses that the linker defines.
    unsafe {
        asm!(
            ".hidden __ehdr_start",
            ".hidden _end",
            "lea {start}, [rip + __ehdr_start]",
            "lea {end}, [rip + _end]",
            start = out(reg) start,
            end = out(reg) end,
            options(pure, nomem, nostack)
        );
    }
    (start, end)
}

/// Where a signal interrupted a thread: general registers by DWARF number, and the instruction.
///
/// # Safety
/// `context` is the third argument of a signal handler.
pub unsafe fn interrupted(context: *const c_void) -> ([u64; REGISTERS], u64) {
    // `struct ucontext` (arch/x86/include/uapi/asm/ucontext.h and sigcontext.h): 40 bytes, then r8 … r15, di, si, bp,
    // bx, dx, ax, cx, sp, ip.
    // SAFETY: the kernel wrote 17 registers there.
    let saved = unsafe { &*context.byte_add(40).cast::<[u64; 17]>() };
    let order = [13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7];
    (order.map(|index: usize| saved[index]), saved[16])
}

/// Whether the signal came while the thread was in a system call: its handler has run only at the call's end. The time at
/// which it came was the kernel's.
///
/// `syscall` leaves the address behind it in rcx and the flags in r11 (Intel SDM volume 2B), and so does the kernel in what
/// it puts back: nothing that runs behind the call has changed them yet. A call that is to begin again has its own address.
///
/// # Safety
/// `context` is the third argument of a signal handler.
pub unsafe fn was_in_call(context: *const c_void) -> bool {
    const SYSCALL_BYTES: u64 = 2;
    // See `interrupted`; the flags follow.
    // SAFETY: the kernel wrote 18 registers there.
    let saved = unsafe { &*context.byte_add(40).cast::<[u64; 18]>() };
    let (r11, rcx, ip, flags) = (saved[3], saved[14], saved[16], saved[17]);
    r11 == flags && (ip == rcx || ip == rcx.wrapping_sub(SYSCALL_BYTES))
}

/// System calls that Linux ends with `EINTR` whenever a handler runs, `SA_RESTART` or not (signal(7)), and those that it
/// so ends where a socket has a time limit: by their numbers (`arch/x86/entry/syscalls/syscall_64.tbl`).
const ENDED_BY_HANDLERS: [u32; 28] = [
    232, 281, 441, // epoll_wait, epoll_pwait, epoll_pwait2
    7, 271, 23, 270, // poll, ppoll, select, pselect6
    34, 130, 128, // pause, rt_sigsuspend, rt_sigtimedwait
    35, 230, // nanosleep, clock_nanosleep
    65, 220, // semop, semtimedop
    208, 333, 426, // io_getevents, io_pgetevents, io_uring_enter
    0, 19, 1, 20, // read, readv, write, writev
    45, 47, 299, 44, 46, // recvfrom, recvmsg, recvmmsg, sendto, sendmsg
    43, 288, // accept, accept4
];

/// Lets a system call that only the present handler's signal has ended begin again, with its whole time limit: the
/// program would not have seen an end. Which call it was tells the instruction before: `mov eax, number`, or `xor eax, eax` for number 0
/// (`read`), as glibc's wrappers have it up to 2.40.
///
/// # Safety
/// `context` is the third argument of a signal handler.
pub unsafe fn begin_call_again(context: *mut c_void) {
    const EINTR: u64 = -4i64 as u64;
    const PAGE: u64 = 4096;
    /// `mov eax, …` and `syscall`.
    const BYTES: u64 = 7;
    // See `interrupted`.
    // SAFETY: the kernel wrote 17 registers there.
    let saved = unsafe { &mut *context.byte_add(40).cast::<[u64; 17]>() };
    let (result, ip) = (saved[13], saved[16]);
    // The code before is in the page of the instruction behind.
    if result != EINTR || ip % PAGE < BYTES {
        return;
    }
    // SAFETY: code of the page that is about to be executed.
    let code = unsafe { ((ip - BYTES) as *const [u8; 7]).read_unaligned() };
    let call = match code {
        [0xb8, a, b, c, d, 0x0f, 0x05] => u32::from_le_bytes([a, b, c, d]),
        [.., 0x31, 0xc0, 0x0f, 0x05] => 0,
        _ => return,
    };
    if ENDED_BY_HANDLERS.contains(&call) {
        saved[13] = call.into();
        saved[16] = ip - 2;
    }
}

/// When the handler returns, the signal is blocked.
///
/// # Safety
/// `context` is the third argument of a signal handler.
pub unsafe fn block_in(context: *mut c_void, signal: usize) {
    // The mask is the context's last word: behind 40 bytes, 8 of registers' 23 words and 8 reserved ones.
    // SAFETY: the kernel's structure.
    unsafe { *context.byte_add(40 + 8 * 32).cast::<u64>() |= 1 << (signal - 1) };
}

/// What a handler returns to: the kernel's `rt_sigreturn`.
///
/// # Safety
/// Only as the restorer of a signal action.
#[unsafe(naked)]
pub unsafe extern "C" fn return_from_signal() {
    naked_asm!("mov eax, 15", "syscall")
}

/// What a new thread begins with, instead of the program's function: `take` gets the argument and returns that
/// function and its argument, to which it jumps. No frame of ours stays on the stack.
///
/// # Safety
/// Only as a thread's first function.
#[cfg(not(test))]
#[unsafe(naked)]
pub unsafe extern "C" fn begin_thread(_argument: usize) {
    naked_asm!(
        "mov rsi, rsp",
        "sub rsp, 8",
        "call {take}",
        "add rsp, 8",
        "mov rdi, rdx",
        "jmp rax",
        take = sym crate::ticks::take_start,
    )
}

/// Copies words by code of this library: libc's function would be the program's, too, and a tick in there would begin a burst whose
/// accesses are ours.
///
/// # Safety
/// There are as many words at `from`, and room for them at `target`; they do not overlap.
pub unsafe fn copy_words(from: *const u64, target: *mut u64, words: usize) {
    // SAFETY: the caller's room. Forward, as the ABI has the direction flag.
    unsafe {
        asm!(
            "rep movsq",
            inout("rcx") words => _,
            inout("rsi") from => _,
            inout("rdi") target => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies words to where this processor does not read them again: they take no room in its caches, which are the program's.
///
/// # Safety
/// There is room for as many words at `target`, which nobody else reads or writes meanwhile.
pub unsafe fn copy_past_caches(words: &[u64], target: *mut u64) {
    for (at, &word) in words.iter().enumerate() {
        // SAFETY: the caller's room.
        unsafe { _mm_stream_si64(target.add(at).cast(), word.cast_signed()) };
    }
    // SAFETY: only orders them before what follows.
    unsafe { _mm_sfence() };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A signal context's first words: 5, then the registers in the order of `interrupted`, then the flags.
    fn context(r11: u64, rcx: u64, ip: u64, flags: u64) -> [u64; 5 + 18] {
        let mut words = [0; 5 + 18];
        (words[5 + 3], words[5 + 14], words[5 + 16], words[5 + 17]) = (r11, rcx, ip, flags);
        words
    }

    #[test]
    fn a_processor_has_its_number() {
        // Field 39 of all that proc_pid_stat(5) names; the name in the second one may have spaces.
        let told = || -> Option<u32> {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").ok()?;
            stat.rsplit_once(") ")?.1.split(' ').nth(39 - 3)?.parse().ok()
        };
        // It may move meanwhile.
        let is_same = || {
            let (before, number) = (told(), processor());
            number.is_none() || before.is_none() || number == before
        };
        assert!((0..100).any(|_| is_same()));
    }

    #[test]
    fn a_system_call_leaves_its_address_and_flags_in_registers() {
        // SAFETY: as long as what is read of a context.
        let was_in_call = |words: [u64; 5 + 18]| unsafe { was_in_call(words.as_ptr().cast()) };
        let (behind, flags) = (0x7fff_1234, 0x246);
        assert!(was_in_call(context(flags, behind, behind, flags)), "at its end");
        assert!(was_in_call(context(flags, behind, behind - 2, flags)), "about to begin again");
        assert!(!was_in_call(context(flags, behind, behind + 5, flags)), "the program went on");
        assert!(!was_in_call(context(7, behind, behind, flags)), "called through rcx");
        assert!(!was_in_call(context(flags, 0, behind, flags)));
    }
}

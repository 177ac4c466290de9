//! What is AArch64: where the thread area is, signal contexts, and (in `entry.rs`) the functions that the program calls.

#[cfg(not(test))]
pub mod entry;
mod system_call;

use core::arch::{asm, naked_asm};
use core::ffi::c_void;

use memlens_events::agent::REGISTERS;
pub use memlens_inside::{number, syscall};

use memlens_inside::weak;

use crate::thread_area::ThreadArea;

/// `EM_AARCH64` (ELF for the Arm 64-bit Architecture, 2023Q3, section 5.1).
pub const ELF_MACHINE: u16 = 183;
/// `R_AARCH64_JUMP_SLOT` and `R_AARCH64_GLOB_DAT` (the same, section 5.7.11).
pub const POINTERS_TO_FUNCTIONS: [u32; 2] = [1026, 1025];
/// Which word of `struct stat` has the mode in its lower half (include/uapi/asm-generic/stat.h).
pub const STAT_MODE_WORD: usize = 2;

/// What lies at the address that the entry points hand on as that of a call: a frame record, x29 and x30 (Procedure Call Standard for the
/// Arm 64-bit Architecture, 2023Q3, section 6.4.6). Where the return address is there, in bytes …
pub const RETURN_ADDRESS_AT: usize = 8;
/// … and where the stack pointer is after the return.
pub const RETURNED_SP_AT: usize = 16;

/// The calling thread's area. It must not be handed to another thread.
pub fn thread() -> &'static ThreadArea {
    let area: *const ThreadArea;
    // SAFETY: the loader has given every thread this module's thread-local block before code of the module runs, and
    // keeps it until the thread's last instruction. It is zeroed, which is a valid area.
    unsafe {
        asm!(
            "adrp {area}, :gottprel:memlens_agent_thread",
            "ldr {area}, [{area}, :gottprel_lo12:memlens_agent_thread]",
            "mrs {pointer}, tpidr_el0",
            "add {area}, {pointer}, {area}",
            area = out(reg) area,
            pointer = out(reg) _,
            options(pure, readonly, nostack)
        );
        &*area
    }
}

/// The thread pointer: glibc puts it above the frames of every thread but the first.
pub fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: only asks.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) pointer, options(pure, nomem, nostack)) };
    pointer
}

/// The number of the processor that the thread is on, as the kernel notes it for restartable sequences (rseq(2)), where the libc has asked for
/// that (glibc 2.35 and later say where). None: it has not. No system call, which a program's filter could forbid.
pub fn processor() -> Option<u32> {
    /// Of `cpu_id` in `struct rseq` (include/uapi/linux/rseq.h); it is below 0 as long as nobody has asked.
    const CPU_ID_AT: usize = 4;
    let (offset, bytes) = (weak!("__rseq_offset") as *const isize, weak!("__rseq_size") as *const u32);
    if offset.is_null() || bytes.is_null() {
        return None;
    }
    // SAFETY: the C library's constants of these names, and, where the second is not 0, the area that it has for each of its threads.
    let number = unsafe {
        if bytes.read() == 0 {
            return None;
        }
        let area = thread_pointer().wrapping_add_signed(offset.read());
        (area.wrapping_add(CPU_ID_AT) as *const i32).read_volatile()
    };
    u32::try_from(number).ok()
}

/// Programs cannot ask for alignment here: only the kernel could (`SCTLR_EL1.A`).
pub fn allow_unaligned() {}

/// First and last address of this library.
pub fn own_image() -> (usize, usize) {
    let (start, end);
    // SAFETY: computes addresses that the linker defines.
    unsafe {
        asm!(
            ".hidden __ehdr_start",
            ".hidden _end",
            "adrp {start}, __ehdr_start",
            "add {start}, {start}, :lo12:__ehdr_start",
            "adrp {end}, _end",
            "add {end}, {end}, :lo12:_end",
            start = out(reg) start,
            end = out(reg) end,
            options(pure, nomem, nostack)
        );
    }
    (start, end)
}

/// Of a signal's context, what is put back when its handler returns.
///
/// `struct ucontext` (arch/arm64/include/uapi/asm/ucontext.h and sigcontext.h): 176 bytes, the address of a fault, then these.
#[repr(C)]
struct Interrupted {
    /// x0 to x30, and sp: the order of DWARF.
    registers: [u64; REGISTERS],
    pc: u64,
}

impl Interrupted {
    /// Where they are, for the third argument of a signal handler.
    fn of(context: *const c_void) -> *mut Self {
        const AT: usize = 184;
        context.wrapping_byte_add(AT).cast_mut().cast()
    }
}

/// Where a signal interrupted a thread: general registers by DWARF number, and the instruction.
///
/// # Safety
/// `context` is the third argument of a signal handler.
pub unsafe fn interrupted(context: *const c_void) -> ([u64; REGISTERS], u64) {
    // SAFETY: the kernel wrote them there.
    let Interrupted { registers, pc } = unsafe { Interrupted::of(context).read() };
    (registers, pc)
}

/// Whether the signal came while the thread was in a system call: its handler has run only at the call's end. The time at
/// which it came was the kernel's.
///
/// A call that has ended has the instruction behind it; one that is to begin again its own. Who was interrupted by chance right there was
/// at least about to make a call, or had just made one.
///
/// # Safety
/// `context` is the third argument of a signal handler.
pub unsafe fn was_in_call(context: *const c_void) -> bool {
    // SAFETY: the kernel wrote it there.
    let pc = unsafe { (*Interrupted::of(context)).pc };
    system_call::code_up_to(pc, &mut [0; 2]).contains(&system_call::SVC)
}

/// Lets a system call that only the present handler's signal has ended begin again, with its whole time limit: the
/// program would not have seen an end. Its number is still in x8. Its first argument is gone, for the result is in its place: where
/// it came from tells the code before, as glibc's wrappers have it up to 2.40: where that does not, as in `semtimedop` and `sigtimedwait`,
/// whose first argument nothing else holds, the program sees the end. So it does of all calls that can be cancelled from glibc 2.41 on, which
/// makes them in one place (`__syscall_cancel_arch`), and where process_vm_readv(2) is forbidden.
///
/// # Safety
/// `context` is the third argument of a signal handler.
pub unsafe fn begin_call_again(context: *mut c_void) {
    const EINTR: u64 = -4i64 as u64;
    // SAFETY: the kernel wrote them there, for the handler to change.
    let interrupted = unsafe { &mut *Interrupted::of(context) };
    let registers = &mut interrupted.registers;
    if registers[0] != EINTR || !system_call::is_ended_by_handlers(registers[8]) {
        return;
    }
    let mut code = [0; 1 + system_call::MOST_BEFORE];
    let code = system_call::code_up_to(interrupted.pc.wrapping_sub(4), &mut code);
    if let Some(argument) = system_call::first_argument(code, registers) {
        registers[0] = argument;
        interrupted.pc -= 4;
    }
}

/// When the handler returns, the signal is blocked.
///
/// # Safety
/// `context` is the third argument of a signal handler.
pub unsafe fn block_in(context: *mut c_void, signal: usize) {
    // Behind flags, link and alternate stack.
    const MASK_AT: usize = 40;
    // SAFETY: the kernel's structure.
    unsafe { *context.byte_add(MASK_AT).cast::<u64>() |= 1 << (signal - 1) };
}

/// What a handler returns to: the kernel's `rt_sigreturn`. Unwinders know a handler's frame by these two instructions.
///
/// # Safety
/// Only as the restorer of a signal action.
#[unsafe(naked)]
pub unsafe extern "C" fn return_from_signal() {
    naked_asm!("mov x8, #139", "svc #0")
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
        "hint #34",
        "mov x1, sp",
        "stp x29, x30, [sp, #-16]!",
        "mov x29, sp",
        "bl {take}",
        "mov x16, x0",
        "mov x0, x1",
        "ldp x29, x30, [sp], #16",
        "br x16",
        take = sym crate::ticks::take_start,
    )
}

/// Copies words by code of this library: libc's function would be the program's, too.
///
/// # Safety
/// There are as many words at `from`, and room for them at `target`; they do not overlap.
pub unsafe fn copy_words(from: *const u64, target: *mut u64, words: usize) {
    // SAFETY: the caller's room.
    unsafe {
        asm!(
            "tbz {left}, #0, 2f",
            "ldr {first}, [{from}], #8",
            "str {first}, [{target}], #8",
            "2:",
            "subs {left}, {left}, #2",
            "b.lo 3f",
            "ldp {first}, {second}, [{from}], #16",
            "stp {first}, {second}, [{target}], #16",
            "b 2b",
            "3:",
            from = inout(reg) from => _,
            target = inout(reg) target => _,
            left = inout(reg) words => _,
            first = out(reg) _,
            second = out(reg) _,
            options(nostack),
        );
    }
}

/// Copies words with the hint that this processor does not read them again (STNP): they take no room in its caches, which are the
/// program's.
///
/// # Safety
/// There is room for as many words at `target`, which nobody else reads or writes meanwhile.
pub unsafe fn copy_past_caches(words: &[u64], target: *mut u64) {
    let pairs = words.chunks_exact(2);
    let rest = pairs.remainder();
    for (at, pair) in pairs.enumerate() {
        // SAFETY: the caller's room.
        unsafe {
            asm!(
                "stnp {first}, {second}, [{target}]",
                first = in(reg) pair[0],
                second = in(reg) pair[1],
                target = in(reg) target.add(2 * at),
                options(nostack, preserves_flags),
            );
        }
    }
    for word in rest {
        // SAFETY: the last one.
        unsafe { target.add(words.len() - 1).write(*word) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_copied_however_many_there_are() {
        let words: Vec<u64> = (1..=9).collect();
        for count in 0..=words.len() {
            let (mut copied, mut past) = ([0; 10], [0; 10]);
            // SAFETY: room for one more than the most.
            unsafe {
                copy_words(words.as_ptr(), copied.as_mut_ptr(), count);
                copy_past_caches(&words[..count], past.as_mut_ptr());
            }
            let mut expected = [0; 10];
            expected[..count].copy_from_slice(&words[..count]);
            assert_eq!((copied, past), (expected, expected));
        }
    }

    #[test]
    fn the_thread_area_is_the_threads_own() {
        let place = || core::ptr::from_ref(thread()).addr();
        let (here, there) = (place(), std::thread::spawn(place).join().expect("no panic"));
        assert!(here == place() && here != there);
    }
}

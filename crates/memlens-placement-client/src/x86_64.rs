//! What is x86-64: system calls, weak symbols.

use core::arch::asm;
#[cfg(all(panic = "abort", not(test)))]
use core::arch::global_asm;

// Named by the unwind tables of the core library, whose frames nothing unwinds through here. Hidden, so that it is
// no other library's.
#[cfg(all(panic = "abort", not(test)))]
global_asm!(
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    ".type rust_eh_personality, @function",
    "rust_eh_personality:",
    "ud2",
);

/// The address of a weak symbol, 0 where nobody defines it.
macro_rules! weak {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: reads the module's own table of addresses.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(pure, readonly, nostack)
            );
        }
        address
    }};
}
pub(crate) use weak;

/// Ends the process: the library has contradicted itself.
#[cfg(all(panic = "abort", not(test)))]
pub fn stop() -> ! {
    // SAFETY: an undefined instruction does nothing but raise SIGILL.
    unsafe { asm!("ud2", options(noreturn)) }
}

/// A system call; negative results are error numbers.
///
/// # Safety
/// As the system call of that number.
pub unsafe fn syscall(number: usize, arguments: [usize; 6]) -> isize {
    let result;
    // SAFETY: the kernel clobbers rcx and r11 only; memory effects are the caller's promise.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") arguments[0], in("rsi") arguments[1], in("rdx") arguments[2],
            in("r10") arguments[3], in("r8") arguments[4], in("r9") arguments[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Numbers of system calls (`arch/x86/entry/syscalls/syscall_64.tbl`).
pub mod number {
    pub const READ: usize = 0;
    pub const OPEN: usize = 2;
    pub const CLOSE: usize = 3;
    pub const MMAP: usize = 9;
    pub const MADVISE: usize = 28;
    pub const GETPID: usize = 39;
    pub const PROCESS_VM_READV: usize = 310;
}

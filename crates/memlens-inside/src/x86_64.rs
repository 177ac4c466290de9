//! What is x86-64: system calls and addresses of weak symbols.

use core::arch::asm;

/// Numbers of system calls (`arch/x86/entry/syscalls/syscall_64.tbl`).
#[expect(missing_docs, reason = "the manual page of each name says what it does")]
pub mod number {
    pub const READ: usize = 0;
    pub const OPEN: usize = 2;
    pub const CLOSE: usize = 3;
    pub const STAT: usize = 4;
    pub const FSTAT: usize = 5;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGACTION: usize = 13;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const PREAD64: usize = 17;
    pub const SCHED_YIELD: usize = 24;
    pub const MREMAP: usize = 25;
    pub const MADVISE: usize = 28;
    pub const NANOSLEEP: usize = 35;
    pub const GETPID: usize = 39;
    pub const KILL: usize = 62;
    pub const FTRUNCATE: usize = 77;
    pub const GETRUSAGE: usize = 98;
    pub const GETUID: usize = 102;
    pub const GETGID: usize = 104;
    pub const GETEUID: usize = 107;
    pub const GETEGID: usize = 108;
    pub const RT_SIGPENDING: usize = 127;
    pub const GETTID: usize = 186;
    pub const GETXATTR: usize = 191;
    pub const TIMER_CREATE: usize = 222;
    pub const TIMER_SETTIME: usize = 223;
    pub const TIMER_DELETE: usize = 226;
    pub const CLOCK_GETTIME: usize = 228;
    pub const TGKILL: usize = 234;
    pub const OPENAT: usize = 257;
    pub const FACCESSAT: usize = 269;
    pub const RT_TGSIGQUEUEINFO: usize = 297;
    pub const PRLIMIT64: usize = 302;
    pub const PROCESS_VM_READV: usize = 310;
    pub const MEMFD_CREATE: usize = 319;
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

/// The address of a weak symbol, 0 where nobody defines it.
#[macro_export]
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

/// An instruction that raises SIGILL (Intel SDM volume 2B, UD).
#[macro_export]
macro_rules! undefined {
    () => {
        "ud2"
    };
}

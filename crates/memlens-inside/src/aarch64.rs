//! What is AArch64: system calls and addresses of weak symbols.

use core::arch::asm;

/// Numbers of system calls (`include/uapi/asm-generic/unistd.h`).
#[expect(missing_docs, reason = "the manual page of each name says what it does")]
pub mod number {
    pub const GETXATTR: usize = 8;
    pub const FTRUNCATE: usize = 46;
    pub const FACCESSAT: usize = 48;
    pub const OPENAT: usize = 56;
    pub const CLOSE: usize = 57;
    pub const READ: usize = 63;
    pub const PREAD64: usize = 67;
    pub const FSTAT: usize = 80;
    pub const NANOSLEEP: usize = 101;
    pub const TIMER_CREATE: usize = 107;
    pub const TIMER_SETTIME: usize = 110;
    pub const TIMER_DELETE: usize = 111;
    pub const CLOCK_GETTIME: usize = 113;
    pub const SCHED_YIELD: usize = 124;
    pub const KILL: usize = 129;
    pub const TGKILL: usize = 131;
    pub const RT_SIGACTION: usize = 134;
    pub const RT_SIGPROCMASK: usize = 135;
    pub const RT_SIGPENDING: usize = 136;
    pub const GETRUSAGE: usize = 165;
    pub const GETPID: usize = 172;
    pub const GETUID: usize = 174;
    pub const GETEUID: usize = 175;
    pub const GETGID: usize = 176;
    pub const GETEGID: usize = 177;
    pub const GETTID: usize = 178;
    pub const MUNMAP: usize = 215;
    pub const MREMAP: usize = 216;
    pub const MMAP: usize = 222;
    pub const MPROTECT: usize = 226;
    pub const MADVISE: usize = 233;
    pub const RT_TGSIGQUEUEINFO: usize = 240;
    pub const PRLIMIT64: usize = 261;
    pub const PROCESS_VM_READV: usize = 270;
    pub const MEMFD_CREATE: usize = 279;
}

/// A system call; negative results are error numbers.
///
/// # Safety
/// As the system call of that number.
pub unsafe fn syscall(number: usize, arguments: [usize; 6]) -> isize {
    let result;
    // SAFETY: the kernel changes no register but x0; memory effects are the caller's promise.
    unsafe {
        asm!("svc #0", in("x8") number, inlateout("x0") arguments[0] => result,
            in("x1") arguments[1], in("x2") arguments[2], in("x3") arguments[3],
            in("x4") arguments[4], in("x5") arguments[5], options(nostack));
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
                concat!("adrp {address}, :got:", $name),
                concat!("ldr {address}, [{address}, :got_lo12:", $name, "]"),
                address = out(reg) address,
                options(pure, readonly, nostack)
            );
        }
        address
    }};
}

/// An instruction that raises SIGILL (Arm Architecture Reference Manual for A-profile, C6.2, UDF).
#[macro_export]
macro_rules! undefined {
    () => {
        "udf #0"
    };
}

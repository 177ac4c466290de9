//! The system calls that the client makes itself: directly, because the target's libc must not
//! notice and the client's has no place inside DynamoRIO.

use core::arch::asm;
use core::sync::atomic::AtomicU32;

const SYS_MMAP: usize = 9;
const SYS_CLOSE: usize = 3;
const SYS_READ: usize = 0;
const SYS_OPEN: usize = 2;
const SYS_RT_SIGACTION: usize = 13;
const SYS_RT_SIGPROCMASK: usize = 14;
const SYS_GETPID: usize = 39;
const SYS_KILL: usize = 62;
const SYS_FUTEX: usize = 202;
const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;

/// # Safety
/// As the system call of that number.
unsafe fn syscall6(number: usize, args: [usize; 6]) -> isize {
    let result;
    // SAFETY: the kernel clobbers rcx and r11 only; memory effects are the caller's promise.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Sleeps while `word` is `value`, at most `milliseconds`.
pub fn futex_wait(word: &AtomicU32, value: u32, milliseconds: i64) {
    let timeout: [i64; 2] = [milliseconds / 1000, milliseconds % 1000 * 1_000_000];
    let args = [word.as_ptr() as usize, FUTEX_WAIT, value as usize, timeout.as_ptr() as usize, 0, 0];
    // SAFETY: `word` and `timeout` outlive the call.
    unsafe { syscall6(SYS_FUTEX, args) };
}

/// Wakes whoever sleeps on `word`.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: `word` is mapped.
    unsafe { syscall6(SYS_FUTEX, [word.as_ptr() as usize, FUTEX_WAKE, i32::MAX as usize, 0, 0, 0]) };
}

/// Whether a process with this id exists.
pub fn process_exists(pid: u32) -> bool {
    const ESRCH: isize = -3;
    // SAFETY: signal 0 does nothing.
    unsafe { syscall6(SYS_KILL, [pid as usize, 0, 0, 0, 0, 0]) != ESRCH }
}

/// This process's id.
pub fn process_id() -> u32 {
    // SAFETY: no arguments, no effects.
    unsafe { syscall6(SYS_GETPID, [0; 6]) as u32 }
}

/// Maps `length` bytes of file descriptor `fd`, shared and writable, and closes `fd`.
pub fn map_shared(fd: usize, length: usize) -> Option<*mut u8> {
    const PROT_READ_WRITE: usize = 3;
    const MAP_SHARED: usize = 1;
    const MAP_NORESERVE: usize = 0x4000;
    // SAFETY: the kernel chooses a free place.
    let address =
        unsafe { syscall6(SYS_MMAP, [0, length, PROT_READ_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0]) };
    // SAFETY: the descriptor is ours: memlens passed it for this purpose.
    unsafe { syscall6(SYS_CLOSE, [fd, 0, 0, 0, 0, 0]) };
    (address > 0).then_some(address as *mut u8)
}

/// Maps private zeroed memory.
pub fn map_private(length: usize) -> Option<*mut u8> {
    const PROT_READ_WRITE: usize = 3;
    const MAP_PRIVATE_ANONYMOUS: usize = 0x22;
    // SAFETY: the kernel chooses a free place.
    let address =
        unsafe { syscall6(SYS_MMAP, [0, length, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, usize::MAX, 0]) };
    (address > 0).then_some(address as *mut u8)
}

/// Reads the start of a file into `buffer`; returns the bytes read. `path` ends in a zero byte.
pub fn read_file(path: &core::ffi::CStr, buffer: &mut [u8]) -> usize {
    // SAFETY: path and buffer are valid for the calls; the descriptor is closed again.
    unsafe {
        let fd = syscall6(SYS_OPEN, [path.as_ptr() as usize, 0, 0, 0, 0, 0]);
        if fd < 0 {
            return 0;
        }
        let mut filled = 0;
        while filled < buffer.len() {
            let rest = &mut buffer[filled..];
            let read = syscall6(SYS_READ, [fd as usize, rest.as_mut_ptr() as usize, rest.len(), 0, 0, 0]);
            if read <= 0 {
                break;
            }
            filled += read as usize;
        }
        syscall6(SYS_CLOSE, [fd as usize, 0, 0, 0, 0, 0]);
        filled
    }
}

/// The kernel's `struct sigaction` (`arch/x86/include/uapi/asm/signal.h`): handler, flags, restorer, mask.
pub type KernelAction = [u64; 4];

const SIGNAL_SET_BYTES: usize = 8;

/// Sets the calling thread's signal mask and returns the one before.
pub fn set_signal_mask(mask: u64) -> u64 {
    const SIG_SETMASK: usize = 2;
    let mut before = 0_u64;
    let args = [SIG_SETMASK, &raw const mask as usize, &raw mut before as usize, SIGNAL_SET_BYTES, 0, 0];
    // SAFETY: both sets outlive the call.
    unsafe { syscall6(SYS_RT_SIGPROCMASK, args) };
    before
}

/// Lets the kernel ignore a signal; returns what was done with it before, if that could be changed.
pub fn ignore_signal(signal: u32) -> Option<KernelAction> {
    let (ignore, mut before): (KernelAction, KernelAction) = ([1, 0, 0, 0], [0; 4]);
    let args =
        [signal as usize, &raw const ignore as usize, &raw mut before as usize, SIGNAL_SET_BYTES, 0, 0];
    // SAFETY: both structures outlive the call.
    (unsafe { syscall6(SYS_RT_SIGACTION, args) } == 0).then_some(before)
}

/// Puts back what [`ignore_signal`] returned.
pub fn set_signal_action(signal: u32, action: &KernelAction) {
    let args = [signal as usize, &raw const *action as usize, 0, SIGNAL_SET_BYTES, 0, 0];
    // SAFETY: the structure outlives the call; its handler is the one that was installed before.
    unsafe { syscall6(SYS_RT_SIGACTION, args) };
}

/// No process has file descriptors above this one: `/proc/sys/fs/nr_open`, less one.
pub fn greatest_descriptor() -> u32 {
    const USUAL: u32 = 1 << 20;
    let mut buffer = [0_u8; 32];
    let length = read_file(c"/proc/sys/fs/nr_open", &mut buffer);
    let text = core::str::from_utf8(&buffer[..length]).unwrap_or_default();
    text.trim().parse().unwrap_or(USUAL).saturating_sub(1)
}

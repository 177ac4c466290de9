//! The system calls that the client makes itself: directly, because the target's libc must not
//! notice and the client's has no place inside DynamoRIO.

use core::arch::asm;
use core::ffi::{CStr, c_void};
use core::sync::atomic::AtomicU32;
use dynamorio_sys::dr_safe_read;
use memlens_events::restriction;

const SYS_MMAP: usize = 9;
const SYS_MPROTECT: usize = 10;
const SYS_CLOSE: usize = 3;
const SYS_READ: usize = 0;
const SYS_OPEN: usize = 2;
const SYS_RT_SIGACTION: usize = 13;
const SYS_RT_SIGPROCMASK: usize = 14;
const SYS_GETPID: usize = 39;
const SYS_GETRLIMIT: usize = 97;
const SYS_KILL: usize = 62;
const SYS_STAT: usize = 4;
const SYS_MUNMAP: usize = 11;
const SYS_SHMCTL: usize = 31;
const SYS_SOCKET: usize = 41;
const SYS_CONNECT: usize = 42;
const SYS_SENDTO: usize = 44;
const SYS_RECVMSG: usize = 47;
const SYS_READLINK: usize = 89;
const SYS_GETEUID: usize = 107;
const SYS_GETEGID: usize = 108;
const SYS_GETXATTR: usize = 191;
const SYS_FUTEX: usize = 202;
const SYS_FACCESSAT: usize = 269;
const SYS_FACCESSAT2: usize = 439;
const PROT_READ_WRITE: usize = 3;
const MAP_PRIVATE_ANONYMOUS: usize = 0x22;
const MAP_FIXED: usize = 0x10;
const MAP_FIXED_NOREPLACE: usize = 0x10_0000;
const AT_FDCWD: usize = -100_isize as usize;
const AT_EACCESS: usize = 0x200;
const F_OK: usize = 0;
/// Of [`may_access`]: execute.
pub const X_OK: usize = 1;
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

/// Sleeps while `word` is `value`, at most `milliseconds`. Whether a signal came meanwhile.
pub fn futex_wait(word: &AtomicU32, value: u32, milliseconds: i64) -> bool {
    const EINTR: isize = -4;
    let timeout: [i64; 2] = [milliseconds / 1000, milliseconds % 1000 * 1_000_000];
    let args = [word.as_ptr() as usize, FUTEX_WAIT, value as usize, timeout.as_ptr() as usize, 0, 0];
    // SAFETY: `word` and `timeout` outlive the call.
    unsafe { syscall6(SYS_FUTEX, args) == EINTR }
}

/// Wakes whoever sleeps on `word`.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: `word` is mapped.
    unsafe { syscall6(SYS_FUTEX, [word.as_ptr() as usize, FUTEX_WAKE, i32::MAX as usize, 0, 0, 0]) };
}

/// The calling thread's name, zeros behind it; `None`: a filter of system calls keeps it.
pub fn thread_name() -> Option<[u64; 2]> {
    const PR_GET_NAME: usize = 16;
    let mut name = [0_u64; 2];
    // SAFETY: the kernel writes at most 16 bytes (PR_GET_NAME(2const)).
    let result =
        unsafe { syscall6(restriction::PRCTL, [PR_GET_NAME, name.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    (result == 0).then_some(name)
}

/// Whether a process with this id runs: one that has ended and that nobody has waited for yet exists all the same.
pub fn process_runs(pid: u32) -> bool {
    const ESRCH: isize = -3;
    // SAFETY: signal 0 does nothing.
    let exists = unsafe { syscall6(SYS_KILL, [pid as usize, 0, 0, 0, 0, 0]) != ESRCH };
    exists && !has_ended(pid)
}

/// Whether `/proc` says that a process has ended (proc_pid_stat(5): its state is behind its name).
fn has_ended(pid: u32) -> bool {
    // From its end on back: 10 digits at most.
    let mut path = [0_u8; 24];
    let mut start = path.len();
    let mut put = |bytes: &[u8]| {
        start -= bytes.len();
        path[start..start + bytes.len()].copy_from_slice(bytes);
    };
    put(b"/stat\0");
    let mut left = pid;
    loop {
        put(&[b'0' + (left % 10) as u8]);
        left /= 10;
        if left == 0 {
            break;
        }
    }
    put(b"/proc/");
    let Ok(path) = CStr::from_bytes_until_nul(&path[start..]) else { return false };
    let mut text = [0_u8; 512];
    let length = read_file(path, &mut text);
    let name_ends = text[..length].iter().rposition(|&byte| byte == b')');
    name_ends.and_then(|at| text.get(at + 2)).is_some_and(|state| matches!(state, b'Z' | b'X'))
}

/// This process's id.
pub fn process_id() -> u32 {
    // SAFETY: no arguments, no effects.
    unsafe { syscall6(SYS_GETPID, [0; 6]) as u32 }
}

/// Maps `length` bytes of file descriptor `fd`, shared and writable, and closes `fd`.
pub fn map_shared(fd: usize, length: usize) -> Option<*mut u8> {
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
    // SAFETY: the kernel chooses a free place.
    let address =
        unsafe { syscall6(SYS_MMAP, [0, length, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, usize::MAX, 0]) };
    (address > 0).then_some(address as *mut u8)
}

/// Reserves address space: where the kernel likes, or at `place` if nothing is there.
pub fn reserve(place: Option<u64>, length: usize) -> Option<*mut u8> {
    let flags = MAP_PRIVATE_ANONYMOUS | if place.is_some() { MAP_FIXED_NOREPLACE } else { 0 };
    let args = [place.unwrap_or(0) as usize, length, 0, flags, usize::MAX, 0];
    // SAFETY: a free place; no access is allowed to it.
    let address = unsafe { syscall6(SYS_MMAP, args) };
    if address <= 0 {
        return None;
    }
    let address = address as *mut u8;
    // Linux before 4.17 takes the place for a wish.
    if place.is_some_and(|place| place != address as u64) {
        // SAFETY: mapped just now.
        unsafe { unmap(address, length) };
        return None;
    }
    Some(address)
}

/// Takes the memory of reserved addresses away.
///
/// # Safety
/// Nothing there is used any more.
pub unsafe fn reserve_again(start: u64, length: u64) -> bool {
    let flags = MAP_PRIVATE_ANONYMOUS | MAP_FIXED;
    // SAFETY: the caller's promise.
    unsafe {
        syscall6(SYS_MMAP, [start as usize, length as usize, 0, flags, usize::MAX, 0]) == start as isize
    }
}

/// Makes reserved addresses memory. False: the kernel refuses.
pub fn make_writable(start: u64, length: u64) -> bool {
    // SAFETY: nobody relies on reserved addresses' not being accessible.
    unsafe { syscall6(SYS_MPROTECT, [start as usize, length as usize, PROT_READ_WRITE, 0, 0, 0]) == 0 }
}

/// How many bytes of addresses the process may have (`RLIMIT_AS`), if they are limited.
pub fn address_space_limit() -> Option<u64> {
    const RLIMIT_AS: usize = 9;
    let mut limits = [u64::MAX; 2];
    // SAFETY: room for the structure.
    unsafe { syscall6(SYS_GETRLIMIT, [RLIMIT_AS, limits.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    (limits[0] != u64::MAX).then_some(limits[0])
}

/// Reads the start of a file into `buffer`; returns the bytes read. `path` ends in a zero byte.
pub fn read_file(path: &CStr, buffer: &mut [u8]) -> usize {
    // SAFETY: path and buffer are valid for the calls; the descriptor is closed again.
    unsafe {
        const O_CLOEXEC: usize = 0o2_000_000;
        let fd = syscall6(SYS_OPEN, [path.as_ptr() as usize, O_CLOEXEC, 0, 0, 0, 0]);
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

/// Whether there is a file of this name.
pub fn exists(path: &CStr) -> bool {
    may_access(path, F_OK)
}

/// Whether the process may access a file so (`access(2)` with the effective ids).
pub fn may_access(path: &CStr, mode: usize) -> bool {
    const ENOSYS: isize = -38;
    let pointer = path.as_ptr() as usize;
    // SAFETY: a zero-terminated string; the calls only ask.
    unsafe {
        match syscall6(SYS_FACCESSAT2, [AT_FDCWD, pointer, mode, AT_EACCESS, 0, 0]) {
            ENOSYS => syscall6(SYS_FACCESSAT, [AT_FDCWD, pointer, mode, 0, 0, 0]) == 0,
            result => result == 0,
        }
    }
}

/// Kind, mode, owner and group of a file.
pub struct FileStatus {
    /// `st_mode`.
    pub mode: u32,
    /// `st_uid`.
    pub owner: u32,
    /// `st_gid`.
    pub group: u32,
}

/// What `stat` says of a file.
pub fn status(path: &CStr) -> Option<FileStatus> {
    // `struct stat` of x86-64: mode at byte 24, uid at 28, gid at 32, 144 bytes in all.
    let mut words = [0_u64; 18];
    let args = [path.as_ptr() as usize, words.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: a zero-terminated string and room for the structure.
    let result = unsafe { syscall6(SYS_STAT, args) };
    (result == 0).then_some(FileStatus {
        mode: words[3] as u32,
        owner: (words[3] >> 32) as u32,
        group: words[4] as u32,
    })
}

/// The effective user.
pub fn effective_user() -> u32 {
    // SAFETY: no arguments, no effects.
    unsafe { syscall6(SYS_GETEUID, [0; 6]) as u32 }
}

/// The effective group.
pub fn effective_group() -> u32 {
    // SAFETY: no arguments, no effects.
    unsafe { syscall6(SYS_GETEGID, [0; 6]) as u32 }
}

/// Whether a file has capabilities of its own, which it would lose under a translator.
pub fn has_capabilities(path: &CStr) -> bool {
    let name = c"security.capability";
    let args = [path.as_ptr() as usize, name.as_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: zero-terminated strings; size 0 only asks.
    unsafe { syscall6(SYS_GETXATTR, args) > 0 }
}

/// Key and size in bytes of a segment of System V shared memory.
pub fn segment_status(id: i32) -> Option<(u32, u64)> {
    const IPC_STAT: usize = 2;
    // `struct shmid64_ds`: the key comes first, the size behind the 48 bytes of `struct ipc64_perm`.
    const SIZE_AT: usize = 6;
    let mut status = [0_u64; 14];
    let args = [id as usize, IPC_STAT, status.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: the structure has 112 bytes.
    let result = unsafe { syscall6(SYS_SHMCTL, args) };
    (result >= 0).then_some((status[0] as u32, status[SIZE_AT]))
}

/// Where a symbolic link leads. `None` if it cannot be read or is longer than 4 KiB.
pub fn read_link(path: &CStr) -> Option<Vec<u8>> {
    let mut buffer = vec![0_u8; 4096];
    let args = [path.as_ptr() as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
    // SAFETY: a zero-terminated string and a buffer of the length told.
    let length = usize::try_from(unsafe { syscall6(SYS_READLINK, args) }).ok()?;
    if length == buffer.len() {
        return None;
    }
    buffer.truncate(length);
    Some(buffer)
}

/// A word of the target's memory, copied with fault protection.
pub fn word_at(address: u64) -> Option<u64> {
    let (mut word, mut read) = (0_u64, 0);
    // SAFETY: room for the word; a fault is caught.
    let is_read = unsafe { dr_safe_read(address as *const c_void, 8, (&raw mut word).cast(), &mut read) };
    (is_read != 0).then_some(word)
}

/// A zero-terminated text of the target's memory, without the zero; `None` if it is longer than `limit`
/// or cannot be read.
pub fn text_at(address: u64, limit: usize) -> Option<Vec<u8>> {
    const PAGE: u64 = 4096;
    let mut text = Vec::new();
    while address != 0 && text.len() <= limit {
        let from = address.wrapping_add(text.len() as u64);
        // Never beyond the page: the next one may not be there.
        let length = (limit + 1 - text.len()).min((PAGE - from % PAGE) as usize).min(256);
        let start = text.len();
        text.resize(start + length, 0);
        let mut read = 0;
        // SAFETY: room for `length` bytes; a fault is caught.
        let is_read = unsafe {
            dr_safe_read(from as *const c_void, length, text[start..].as_mut_ptr().cast(), &mut read) != 0
        };
        if !is_read || read != length {
            return None;
        }
        if let Some(end) = text[start..].iter().position(|&byte| byte == 0) {
            text.truncate(start + end);
            return Some(text);
        }
    }
    None
}

/// Unmaps what [`map_shared`] mapped.
///
/// # Safety
/// Nothing refers to it any more.
pub unsafe fn unmap(address: *mut u8, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { syscall6(SYS_MUNMAP, [address as usize, length, 0, 0, 0, 0]) };
}

/// Asks whoever listens on the abstract socket `name` for a file descriptor, telling `question`. `None`
/// when nobody listens or the answer brings none.
pub fn ask_for_descriptor(name: &[u8], question: &[u64]) -> Option<usize> {
    const AF_UNIX: usize = 1;
    const SOCK_SEQPACKET_CLOEXEC: usize = 5 | 0o2_000_000;
    const EINTR: isize = -4;
    const MSG_NOSIGNAL: usize = 0x4000;
    const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
    const SCM_RIGHTS: u64 = 1;
    const SOL_SOCKET: u64 = 1;
    // struct sockaddr_un: family, a zero byte (an abstract name follows), the name.
    let mut address = [0_u8; 110];
    address[0] = AF_UNIX as u8;
    let room = address.get_mut(3..3 + name.len())?;
    room.copy_from_slice(name);
    let retry = |call: &dyn Fn() -> isize| loop {
        match call() {
            EINTR => {}
            result => return result,
        }
    };
    // SAFETY: every pointer is to a local that outlives its call; the descriptor is closed again.
    unsafe {
        let socket = syscall6(SYS_SOCKET, [AF_UNIX, SOCK_SEQPACKET_CLOEXEC, 0, 0, 0, 0]);
        let socket = usize::try_from(socket).ok()?;
        let args = [socket, address.as_ptr() as usize, 3 + name.len(), 0, 0, 0];
        let connected = retry(&|| syscall6(SYS_CONNECT, args)) == 0;
        let args = [socket, question.as_ptr() as usize, size_of_val(question), MSG_NOSIGNAL, 0, 0];
        let asked = connected && retry(&|| syscall6(SYS_SENDTO, args)) > 0;
        // struct cmsghdr: length, level and type, then the descriptor.
        let (mut byte, mut control) = (0_u64, [0_u64; 3]);
        let mut answer = None;
        if asked {
            let vector = [&raw mut byte as u64, 1];
            // struct msghdr: name, its length, vector, its length, control, its length, flags.
            let mut message = [
                0,
                0,
                vector.as_ptr() as u64,
                1,
                control.as_mut_ptr() as u64,
                size_of_val(&control) as u64,
                0,
            ];
            let args = [socket, message.as_mut_ptr() as usize, MSG_CMSG_CLOEXEC, 0, 0, 0];
            let received = retry(&|| syscall6(SYS_RECVMSG, args));
            let has_descriptor =
                received > 0 && control[0] >= 20 && control[1] == (SCM_RIGHTS << 32 | SOL_SOCKET);
            answer = has_descriptor.then_some(control[2] as u32 as usize);
        }
        syscall6(SYS_CLOSE, [socket, 0, 0, 0, 0, 0]);
        answer
    }
}

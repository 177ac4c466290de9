//! Paths that mean the program itself, as `/proc/self/exe`.
//!
//! The process was started by executing DynamoRIO's library, so the kernel's link leads there. System
//! calls that follow it get the program's path in its place, and `readlink` is answered here. Known are
//! the absolute spellings `/proc/self/exe`, `/proc/thread-self/exe`, `/proc/PID/exe` and
//! `/proc/self/task/TID/exe` with an id of this process.

use crate::sys;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use dynamorio_sys::*;
use std::ffi::CString;

const SYS_OPEN: c_int = 2;
const SYS_STAT: c_int = 4;
const SYS_ACCESS: c_int = 21;
const SYS_READLINK: c_int = 89;
const SYS_STATFS: c_int = 137;
const SYS_OPENAT: c_int = 257;
const SYS_NEWFSTATAT: c_int = 262;
const SYS_READLINKAT: c_int = 267;
const SYS_FACCESSAT: c_int = 269;
const SYS_STATX: c_int = 332;
const SYS_OPENAT2: c_int = 437;
const SYS_FACCESSAT2: c_int = 439;
const O_NOFOLLOW: u64 = 0o400_000;
const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
const EFAULT: i64 = -14;
const EINVAL: i64 = -22;

/// Longer paths do not name the program.
const MAX_SPELLING: usize = 48;

static PATH: AtomicPtr<core::ffi::c_char> = AtomicPtr::new(core::ptr::null_mut());

/// Remembers the program's path. Call when DynamoRIO knows it: in `dr_client_main`.
pub fn initialise() {
    // SAFETY: DynamoRIO's data of the program, or null; freed after its string was copied.
    unsafe {
        let module = dr_get_main_module();
        if module.is_null() {
            return;
        }
        if !(*module).full_path.is_null() {
            let path = CStr::from_ptr((*module).full_path).to_owned();
            // Lives as long as the process: system calls are given a pointer to it.
            PATH.store(path.into_raw(), Ordering::Relaxed);
        }
        dr_free_module_data(module);
    }
}

/// The program's path, zero-terminated.
pub fn path() -> Option<&'static CStr> {
    let path = PATH.load(Ordering::Relaxed);
    // SAFETY: null, or leaked in `initialise` and never changed.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) })
}

/// Whether `path` leads to this process's executable.
pub fn is_meant_by(path: &[u8]) -> bool {
    let Some(rest) = path.strip_prefix(b"/proc/").and_then(|rest| rest.strip_suffix(b"/exe")) else {
        return false;
    };
    match rest {
        b"self" | b"thread-self" => true,
        _ => is_own_task(rest.strip_prefix(b"self/task/").unwrap_or(rest)),
    }
}

/// Whether `id` is, in decimal, the id of a thread of this process.
fn is_own_task(id: &[u8]) -> bool {
    if id.is_empty() || id.len() > 10 || !id.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let own_threads = [b"/proc/self/task/", id].concat();
    CString::new(own_threads).is_ok_and(|path| sys::exists(&path))
}

/// Which argument of a system call is a path that the kernel follows to the file itself.
unsafe fn followed_path(context: *mut c_void, number: c_int) -> Option<c_int> {
    // SAFETY: called from a pre-system-call event.
    let argument = |index| unsafe { dr_syscall_get_param(context, index) };
    match number {
        SYS_STAT | SYS_ACCESS | SYS_STATFS => Some(0),
        SYS_OPEN => (argument(1) & O_NOFOLLOW == 0).then_some(0),
        SYS_OPENAT => (argument(2) & O_NOFOLLOW == 0).then_some(1),
        SYS_OPENAT2 => {
            let flags = sys::word_at(argument(2)).unwrap_or(0);
            (flags & O_NOFOLLOW == 0).then_some(1)
        }
        SYS_FACCESSAT => Some(1),
        SYS_FACCESSAT2 | SYS_NEWFSTATAT => (argument(3) & AT_SYMLINK_NOFOLLOW == 0).then_some(1),
        SYS_STATX => (argument(2) & AT_SYMLINK_NOFOLLOW == 0).then_some(1),
        _ => None,
    }
}

/// What was done about a system call that names the program.
pub enum Handled {
    /// It has nothing to do with that.
    Not,
    /// It gets another path: this argument had this value, to be put back afterwards.
    Substituted(c_int, u64),
    /// It is answered and need not be made.
    Answered,
}

/// Before a system call: puts the program's path where the target names it by `/proc`.
///
/// # Safety
/// Called from a pre-system-call event.
pub unsafe fn before(context: *mut c_void, number: c_int) -> Handled {
    // SAFETY: the caller's promise; the target's memory is copied with fault protection.
    unsafe {
        let readlink = match number {
            SYS_READLINK => Some(0),
            SYS_READLINKAT => Some(1),
            _ => None,
        };
        let Some(index) = readlink.or_else(|| followed_path(context, number)) else { return Handled::Not };
        let address = dr_syscall_get_param(context, index);
        let Some(own) = path() else { return Handled::Not };
        let spelling = sys::text_at(address, MAX_SPELLING);
        if !spelling.is_some_and(|spelling| is_meant_by(&spelling)) {
            return Handled::Not;
        }
        if readlink.is_some() {
            let buffer = dr_syscall_get_param(context, index + 1);
            let size = dr_syscall_get_param(context, index + 2) as i32;
            let result = answer_readlink(own.to_bytes(), buffer, size);
            dr_syscall_set_result(context, result as reg_t);
            return Handled::Answered;
        }
        dr_syscall_set_param(context, index, own.as_ptr() as reg_t);
        Handled::Substituted(index, address)
    }
}

/// As the kernel's `readlink`: no terminating zero, cut at the buffer's size.
fn answer_readlink(path: &[u8], buffer: u64, size: i32) -> i64 {
    if size <= 0 {
        return EINVAL;
    }
    let length = path.len().min(size as usize);
    let mut written = 0;
    // SAFETY: written with fault protection, to where the target told the kernel to write.
    let is_written = unsafe {
        dr_safe_write(buffer as *mut c_void, length, path.as_ptr().cast(), &mut written) != 0
            && written == length
    };
    if is_written { length as i64 } else { EFAULT }
}

//! What the kernel says of processes: whether one has ended, and what this one has used.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::{io, mem};

/// A descriptor that becomes readable when a process ends.
///
/// # Errors
/// `ESRCH`: there is no such process.
pub fn open_process(pid: u32) -> io::Result<File> {
    // SAFETY: a descriptor that comes back is ours.
    unsafe {
        let descriptor = libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0 as libc::c_long);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(File::from_raw_fd(descriptor as libc::c_int))
    }
}

/// Whether the process behind a descriptor of [`open_process`] has ended.
pub fn has_ended(process: &File) -> bool {
    let mut polled = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, as the length says.
    unsafe { libc::poll(&raw mut polled, 1, 0) > 0 }
}

/// Processor time that this process has used, in seconds.
pub fn own_cpu_seconds() -> f64 {
    cpu_seconds(libc::RUSAGE_SELF)
}

/// Processor time that the children of this process which it has waited for, and theirs, have used, in seconds.
pub fn children_cpu_seconds() -> f64 {
    cpu_seconds(libc::RUSAGE_CHILDREN)
}

fn cpu_seconds(who: libc::c_int) -> f64 {
    // SAFETY: zeroed is a valid rusage; the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        libc::getrusage(who, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

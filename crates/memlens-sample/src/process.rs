//! What the kernel says of processes: whether one has ended, and what this one has used.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::LazyLock;
use std::{fs, io, mem};

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

/// The children that a process has, in no order; nothing where `/proc` cannot be read.
pub fn children_of(pid: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|&other| stat_fields(other).is_some_and(|fields| fields.first() == Some(&u64::from(pid))))
        .collect()
}

/// Processor time that a process and those of its children which it has waited for have used, in seconds; None: it is gone.
pub fn cpu_seconds_of(pid: u32) -> Option<f64> {
    // SAFETY: the call only asks.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    // utime, stime, cutime and cstime, which follow each other.
    let ticks: u64 = stat_fields(pid)?.get(10..14)?.iter().sum();
    (ticks_per_second > 0).then(|| ticks as f64 / ticks_per_second as f64)
}

/// The numbers of `/proc/PID/stat` (proc_pid_stat(5)) from its field 4, the parent, on; 0 for those that are negative.
fn stat_fields(pid: u32) -> Option<Vec<u64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may have any of its own.
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split_whitespace().skip(1).map(|word| word.parse().unwrap_or_default()).collect())
}

/// Processors that memlens may use, when that was asked first: asking reads files of the control groups each time.
pub fn processors() -> usize {
    static PROCESSORS: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    *PROCESSORS
}

/// Processor time that this process has used, in seconds.
pub fn own_cpu_seconds() -> f64 {
    cpu_seconds(libc::RUSAGE_SELF)
}

/// Processor time that this thread has used, in ns.
pub fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the one structure; the clock is there on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_and_their_time_are_known() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"])
            .spawn()
            .expect("it starts");
        assert!(children_of(own).contains(&child.id()));
        let before = cpu_seconds_of(own).expect("our own");
        child.wait().expect("it ends");
        assert!(!children_of(own).contains(&child.id()));
        assert!(cpu_seconds_of(own).expect("our own") > before, "the child's time is its parent's");
        assert_eq!((children_of(u32::MAX), cpu_seconds_of(u32::MAX)), (Vec::new(), None));
    }
}

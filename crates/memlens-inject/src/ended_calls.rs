//! Which system calls do not survive a stop.

use crate::arch::SYS_IO_PGETEVENTS;

/// System calls that a stop ends with `EINTR` although no signal came (signal(7)); the rest is restarted by the kernel.
/// Those of sockets are among them where a time limit was set.
const ENDED_BY_STOPS: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    SYS_IO_PGETEVENTS,
    libc::SYS_io_uring_enter,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
];

/// Whether a stop ends a system call for good: its thread is better left alone.
pub fn is_ended_by_stops(call: i64) -> bool {
    ENDED_BY_STOPS.contains(&call)
}

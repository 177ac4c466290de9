//! The kernel's clock, asked for by a system call of our own.

use std::time::Duration;

/// Time since the machine was started (`CLOCK_MONOTONIC_RAW`, clock_gettime(2)).
///
/// What ends by time asks here: libc's clock may be that of a preloaded library which tells another time, as faketime
/// does, even one that stands still.
#[allow(unsafe_code)]
pub(crate) fn now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the result; the clock is there since Linux 2.6.28, so the call cannot fail.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC_RAW, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on() {
        let start = now();
        let pause = Duration::from_millis(5);
        std::thread::sleep(pause);
        // The raw clock is not slewed: some millionths less than the pause's own clock at most.
        assert!(now() - start > pause * 9 / 10);
    }
}

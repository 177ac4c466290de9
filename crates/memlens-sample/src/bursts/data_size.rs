//! How much data processes have.
//!
//! What bursts do not find again would be new, for all that they tell. But a program that has 20 MB touches no more than these, however
//! long ago it was, and a cache of 32 holds all of them.

use std::fs;
use std::time::{Duration, Instant};

use memlens_events::agent::RING_BYTES;
use rustc_hash::FxHashMap;

/// As long as a process has more each time, it is looked at again with its next burst, then after this, and each time after twice as
/// long …
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// … up to this. A look takes some 40 µs.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// By less than this part it does not have more: code that is used for the first time.
const MORE: f64 = 1.0 / 16.0;

/// The most data that one of the processes had, or the largest of its objects.
#[derive(Debug, Default)]
pub struct DataSize {
    most_bytes: u64,
    processes: FxHashMap<u32, Process>,
    /// Whether a process with bursts was gone before it was looked at.
    is_unknown: bool,
}

#[derive(Debug, Default)]
struct Process {
    looked: Option<Instant>,
    pause: Duration,
    bytes: u64,
    /// What its bursts have written to its ring, in bytes.
    reported: u64,
}

impl DataSize {
    /// A burst of this process has come, of so many bytes.
    pub fn look(&mut self, pid: u32, burst_bytes: u64) {
        let process = self.processes.entry(pid).or_default();
        process.reported += burst_bytes;
        let now = Instant::now();
        if process.looked.is_some_and(|last| now.duration_since(last) < process.pause) {
            return;
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok();
        match status.and_then(|status| bytes_of(&status, process.reported)) {
            Some(bytes) => {
                process.had(bytes);
                process.looked = Some(now);
                self.most_bytes = self.most_bytes.max(bytes);
            }
            None => self.is_unknown |= process.looked.is_none(),
        }
    }

    /// A burst has touched an object of so many bytes: more than is resident, if it was never written. What is read then is the page
    /// of zeros, which caches hold once; but as far as the addresses tell it is data, and exact mode takes it so.
    pub fn has_object(&mut self, bytes: u64) {
        self.most_bytes = self.most_bytes.max(bytes);
    }

    /// In bytes; None: of some process it is not known.
    pub fn most_bytes(&self) -> Option<u64> {
        (!self.is_unknown && self.most_bytes > 0).then_some(self.most_bytes)
    }
}

impl Process {
    /// It was looked at.
    fn had(&mut self, bytes: u64) {
        let has_more = bytes as f64 > self.bytes as f64 * (1.0 + MORE);
        self.pause = match has_more {
            true => Duration::ZERO,
            false => (2 * self.pause).clamp(FIRST_PAUSE, LONGEST_PAUSE),
        };
        self.bytes = self.bytes.max(bytes);
    }
}

/// What was resident at most, what is swapped out, and huge pages of hugetlbfs, without what of its ring the agent has written to,
/// `reported` bytes at least; None: it has ended (proc_pid_status(5)).
fn bytes_of(status: &str, reported: u64) -> Option<u64> {
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(1024 * line.split_ascii_whitespace().next()?.parse::<u64>().ok()?)
    };
    let ours = reported.min(RING_BYTES as u64).min(kib("RssShmem").unwrap_or(0));
    let other = kib("VmSwap").unwrap_or(0) + kib("HugetlbPages").unwrap_or(0);
    Some(kib("VmHWM")?.saturating_sub(ours) + other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_what_is_there_without_our_own() {
        let status = "Name:\ta\nVmHWM:\t   11912 kB\nVmRSS:\t 9000 kB\nRssShmem:\t    8128 kB\nVmSwap:\t     100 kB\n\
                      HugetlbPages:\t 2048 kB\n";
        let of = |reported_kib: u64| bytes_of(status, reported_kib << 10);
        assert_eq!(of(0), Some((11912 + 100 + 2048) << 10));
        assert_eq!(of(5000), Some((11912 + 100 + 2048 - 5000) << 10));
        assert_eq!(of(1 << 20), Some((11912 + 100 + 2048 - 8128) << 10), "no more than is shared");
        // Or than a ring has: shared memory of its own is data.
        let shared = status.replace("    8128", " 1000000").replace("   11912", " 1011912");
        assert_eq!(bytes_of(&shared, u64::MAX), Some(((1_011_912 + 2148) << 10) - RING_BYTES as u64));
        assert_eq!(bytes_of("Name:\ta\nState:\tZ (zombie)\n", 0), None);
    }

    #[test]
    fn who_has_more_each_time_is_looked_at_each_time() {
        let mut process = Process::default();
        let pauses = [1000, 2000, 2001, 2100, 2100, 4000, 4000].map(|bytes| {
            process.had(bytes);
            process.pause.as_millis()
        });
        assert_eq!(pauses, [0, 0, 1, 2, 4, 0, 1]);
        (0..20).for_each(|_| process.had(4000));
        assert_eq!(process.pause, LONGEST_PAUSE);
    }

    #[test]
    fn a_process_that_is_gone_may_have_had_more() {
        let mut size = DataSize::default();
        assert_eq!(size.most_bytes(), None);
        size.look(std::process::id(), 0);
        assert!(size.most_bytes().is_some_and(|bytes| bytes > 1 << 20));
        size.has_object(1 << 50);
        size.has_object(1 << 40);
        assert_eq!(size.most_bytes(), Some(1 << 50));
        // No process has this number.
        size.look(u32::MAX, 0);
        assert_eq!(size.most_bytes(), None);
    }
}

//! How much data processes have.
//!
//! What bursts do not find again would be new, for all that they tell. But a program that has 20 MB touches no more than these, however
//! long ago it was, and a cache of 32 holds all of them.

use std::fs;
use std::time::{Duration, Instant};

use memlens_events::agent::RING_BYTES;
use rustc_hash::FxHashMap;

/// A process is looked at again after this; a look takes some 40 µs.
const EVERY: Duration = Duration::from_millis(50);

/// The most data that one of the processes had.
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
    /// What its bursts have written to its ring, in bytes.
    reported: u64,
}

impl DataSize {
    /// A burst of this process has come, of so many bytes.
    pub fn look(&mut self, pid: u32, burst_bytes: u64) {
        let process = self.processes.entry(pid).or_default();
        process.reported += burst_bytes;
        let now = Instant::now();
        if process.looked.is_some_and(|last| now.duration_since(last) < EVERY) {
            return;
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok();
        match status.and_then(|status| bytes_of(&status, process.reported)) {
            Some(bytes) => {
                self.most_bytes = self.most_bytes.max(bytes);
                process.looked = Some(now);
            }
            None => self.is_unknown |= process.looked.is_none(),
        }
    }

    /// In bytes; None: of some process it is not known.
    pub fn most_bytes(&self) -> Option<u64> {
        (!self.is_unknown && self.most_bytes > 0).then_some(self.most_bytes)
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
    fn a_process_that_is_gone_may_have_had_more() {
        let mut size = DataSize::default();
        assert_eq!(size.most_bytes(), None);
        size.look(std::process::id(), 0);
        assert!(size.most_bytes().is_some_and(|bytes| bytes > 1 << 20));
        // No process has this number.
        size.look(u32::MAX, 0);
        assert_eq!(size.most_bytes(), None);
    }
}

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
/// Of processes with more than that nobody asks what of it is no data: it is a small part then, and the kernel would go through all of
/// their pages. Up to that it is some 0.3 ms.
const MOST_ASKED_BYTES: u64 = 64 << 20;

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
    /// Resident, and no data: code, and what is the agent's. None: that was never asked.
    beside: Option<u64>,
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
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).ok();
        // Names of files are bytes, of which not all are UTF-8.
        let text = |name: &str| Some(String::from_utf8_lossy(&read(name)?).into_owned());
        let bytes = text("status").and_then(|status| {
            let resident = Resident::of(&status)?;
            if resident.most <= MOST_ASKED_BYTES
                && let Some(beside) =
                    text("smaps").map(|mappings| beside(&mappings)).filter(|bytes| *bytes > 0)
            {
                process.beside = Some(beside);
            }
            let beside =
                process.beside.unwrap_or(process.reported.min(RING_BYTES as u64).min(resident.shared));
            Some(resident.most.saturating_sub(beside) + resident.elsewhere)
        });
        match bytes {
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

/// What a process has in memory, in bytes (`/proc/PID/status`, proc_pid_status(5)).
#[derive(Debug, PartialEq)]
struct Resident {
    /// At most so far.
    most: u64,
    /// Of what it has now, shared memory: the agent's ring is.
    shared: u64,
    /// Swapped out, and in huge pages of hugetlbfs.
    elsewhere: u64,
}

impl Resident {
    /// None: the process has ended.
    fn of(status: &str) -> Option<Self> {
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            kib_of(line)
        };
        Some(Self {
            most: kib("VmHWM")?,
            shared: kib("RssShmem").unwrap_or(0),
            elsewhere: kib("VmSwap").unwrap_or(0) + kib("HugetlbPages").unwrap_or(0),
        })
    }
}

/// Bytes of a value as ` 100 kB`.
fn kib_of(value: &str) -> Option<u64> {
    Some(1024 * value.split_ascii_whitespace().next()?.parse::<u64>().ok()?)
}

/// Of a process's mappings (`/proc/PID/smaps`, proc_pid_smaps(5)), what is resident of those that hold no data of the program: what is
/// executable, and what is the agent's. Its memory of no file has flags of its own: `memlens_inside::own_memory`.
fn beside(mappings: &str) -> u64 {
    let (mut bytes, mut resident) = (0, 0);
    let (mut is_beside, mut is_nameless) = (false, false);
    for line in mappings.lines() {
        if let Some(value) = line.strip_prefix("Rss:") {
            resident = kib_of(value).unwrap_or(0);
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            let has = |flag| flags.split_ascii_whitespace().any(|other| other == flag);
            if is_beside || is_nameless && has("rr") && has("nr") {
                bytes += resident;
            }
        } else if let Some((_, rest)) = line.split_once(' ').filter(|(range, _)| range.contains('-')) {
            // START-END PERMISSIONS OFFSET DEVICE INODE NAME
            let name = rest.splitn(5, ' ').nth(4).unwrap_or("").trim_start();
            is_nameless = name.is_empty();
            is_beside = rest.as_bytes().get(2) == Some(&b'x')
                || name.starts_with("/memfd:memlens")
                || name.ends_with("/libmemlens_agent.so");
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_resident_or_elsewhere() {
        let status = "Name:\ta\nVmHWM:\t   11912 kB\nVmRSS:\t 9000 kB\nRssShmem:\t    8128 kB\nVmSwap:\t     100 kB\n\
                      HugetlbPages:\t 2048 kB\n";
        let resident = Resident { most: 11912 << 10, shared: 8128 << 10, elsewhere: (100 + 2048) << 10 };
        assert_eq!(Resident::of(status), Some(resident));
        assert_eq!(Resident::of("Name:\ta\nState:\tZ (zombie)\n"), None);
    }

    #[test]
    fn code_and_the_agents_memory_are_no_data() {
        let mapping = |permissions: &str, name: &str, kib: u64, flags: &str| {
            format!(
                "7f0000000000-7f0000100000 {permissions} 00000000 00:01 5                   {name}\nSize: 1024 kB\nRss: {kib} kB\n\
                 Pss: 7 kB\nTHPeligible: 0\nVmFlags: {flags}\n"
            )
        };
        let text = [
            mapping("r--p", "/usr/lib/a library.so", 1, "rd mr"),
            mapping("r-xp", "/usr/lib/a library.so", 2, "rd ex mr"),
            mapping("rw-p", "[heap]", 4, "rd wr mr"),
            mapping("rw-p", "", 8, "rd wr mr nr rr sd"),
            mapping("rw-p", "", 16, "rd wr mr nr sd"),
            mapping("rw-p", "", 32, "rd wr mr rr"),
            mapping("rw-s", "/memfd:memlens-code (deleted)", 64, "rd wr"),
            mapping("rw-s", "/memfd:memlens-agent (deleted)", 128, "rd wr"),
            mapping("rw-p", "/home/a-b/.cache/memlens/agent-1/libmemlens_agent.so", 256, "rd wr"),
            mapping("rw-p", "/data/rr nr", 512, "rd wr nr rr"),
        ];
        assert_eq!(beside(&text.concat()), (2 + 8 + 64 + 128 + 256) << 10);
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

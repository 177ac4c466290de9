//! How much data processes have.
//!
//! What bursts do not find again would be new, for all that they tell. But a program that has 20 MB touches no more than these, however
//! long ago it was, and a cache of 32 holds all of them.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use memlens_backing::touched_bytes;
use memlens_events::agent::RING_BYTES;
use memlens_locality::Extent;
use rustc_hash::FxHashMap;

/// As long as a process has more each time, it is looked at again with its next burst, then after this, and each time after twice as
/// long …
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// … up to this. A look takes some 40 µs.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// By less than this part it does not have more: code that is used for the first time.
const MORE: f64 = 1.0 / 16.0;
/// What of a process is no data is asked no more often than this, and only if it seems to have more than before …
const ASK_PAUSE: Duration = Duration::from_millis(50);
/// … of processes with no more than this: it is a small part then, and the kernel goes through all of their pages, 4 ms for so much in
/// a virtual machine.
const MOST_ASKED_BYTES: u64 = 64 << 20;
/// How much of objects was touched is asked again after so many times as long as that took.
const OBJECT_PAUSES: u32 = 20;
/// Bytes of `/proc/PID/smaps`: where there are more, which is some 1,500 mappings, it is not asked again.
const MOST_TEXT_BYTES: u64 = 1 << 20;

/// The most data that one of the processes had, or one of its objects as far as it was touched.
#[derive(Debug, Default)]
pub struct DataSize {
    most_bytes: u64,
    processes: FxHashMap<u32, Process>,
    /// When it may be asked again how much of an object was touched, and how often that was done: objects take turns.
    asks_again: Option<Instant>,
    asked: usize,
    /// Whether a process with bursts was gone before it was looked at.
    is_unknown: bool,
}

#[derive(Debug, Default)]
struct Process {
    looked: Option<Instant>,
    pause: Duration,
    /// The most data that it is known to have had, and that it may have had since it was asked last what is none.
    bytes: u64,
    unsure_bytes: u64,
    /// What its bursts have written to its ring, in bytes.
    reported: u64,
    /// What was resident at most when it was looked at last.
    resident: u64,
    /// Resident, and no data: code, and what is the agent's. None: that is not known.
    beside: Option<u64>,
    /// When that was asked last, and whether there is too much of it.
    asked: Option<Instant>,
    has_many_mappings: bool,
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
        let Some(resident) = status.and_then(|status| Resident::of(&status)) else {
            self.is_unknown |= process.looked.is_none();
            return;
        };
        if resident.most < process.resident {
            // Another program.
            self.most_bytes = self.most_bytes.max(process.most_bytes());
            *process = Process { reported: burst_bytes, ..Process::default() };
        }
        process.looked = Some(now);
        let is_asked = process.is_to_be_asked(&resident, now);
        if is_asked {
            process.ask(pid, now);
        }
        process.had(&resident, is_asked);
    }

    /// A burst of this process has touched these objects. Of what is never written more may have been read than is resident: then it is the
    /// page of zeros, which caches hold once; but as far as the addresses tell it is data, and exact mode takes it so. And most of an
    /// object may never be touched: `sort` asks for half of the machine's memory.
    pub fn has_objects(&mut self, pid: u32, extents: &[Extent]) {
        let now = Instant::now();
        if self.asks_again.is_some_and(|again| now < again) {
            return;
        }
        let known = self.largest();
        let piece = |extent: &Extent| extent.end.saturating_sub(extent.start);
        let larger = || extents.iter().filter(|extent| piece(extent) > known);
        let Some(extent) = larger().nth(self.asked % larger().count().max(1)) else { return };
        self.asked += 1;
        let touched = match touched_bytes(pid, extent.start, extent.end) {
            Ok(bytes) => bytes,
            // Of this process that is never told.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => piece(extent),
            // It has ended.
            Err(_) => 0,
        };
        self.asks_again = Some(now + OBJECT_PAUSES * now.elapsed());
        self.most_bytes = self.most_bytes.max(touched);
    }

    /// The most that is known, in bytes.
    fn largest(&self) -> u64 {
        self.processes.values().map(Process::most_bytes).fold(self.most_bytes, u64::max)
    }

    /// In bytes; None: of some process it is not known.
    pub fn most_bytes(&self) -> Option<u64> {
        let most = self.largest();
        (!self.is_unknown && most > 0).then_some(most)
    }
}

impl Process {
    /// The data that it had at most, as far as is known now: of what was resident at most what is beside it now, which was less before. So it
    /// is too little by what was paged in or made by the agent since a peak that nobody saw.
    fn data_of(&self, resident: &Resident) -> u64 {
        // Of the agent's memory that is most.
        let ring = || self.reported.min(RING_BYTES as u64).min(resident.shared);
        resident.most.saturating_sub(self.beside.unwrap_or_else(ring)) + resident.elsewhere
    }

    /// Whether it seems to have more than it is known to have had, and may be asked what of that is no data.
    fn is_to_be_asked(&self, resident: &Resident, now: Instant) -> bool {
        self.data_of(resident) > self.bytes
            && resident.most <= MOST_ASKED_BYTES
            && !self.has_many_mappings
            && self.asked.is_none_or(|last| now.duration_since(last) >= ASK_PAUSE)
    }

    /// Asks the process what of it is no data.
    fn ask(&mut self, pid: u32, now: Instant) {
        self.asked = Some(now);
        let mut text = Vec::new();
        let file = File::open(format!("/proc/{pid}/smaps"));
        let is_read = file.and_then(|file| file.take(MOST_TEXT_BYTES).read_to_end(&mut text)).is_ok();
        self.has_many_mappings = text.len() as u64 == MOST_TEXT_BYTES;
        if is_read && !text.is_empty() && !self.has_many_mappings {
            // Names of files are bytes, of which not all are UTF-8.
            self.beside = Some(beside(&String::from_utf8_lossy(&text)));
        }
    }

    /// It was looked at; `is_settled`: and what is beside its data is known as it is now.
    fn had(&mut self, resident: &Resident, is_settled: bool) {
        self.resident = resident.most;
        let bytes = self.data_of(resident);
        let has_more = bytes as f64 > self.most_bytes() as f64 * (1.0 + MORE);
        self.pause = match has_more {
            true => Duration::ZERO,
            false => (2 * self.pause).clamp(FIRST_PAUSE, LONGEST_PAUSE),
        };
        if is_settled {
            (self.bytes, self.unsure_bytes) = (self.bytes.max(bytes), 0);
        } else {
            self.unsure_bytes = self.unsure_bytes.max(bytes);
        }
    }

    fn most_bytes(&self) -> u64 {
        self.bytes.max(self.unsure_bytes)
    }
}

/// What a process has in memory, in bytes (`/proc/PID/status`, proc_pid_status(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
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

/// Of a process's mappings (`/proc/PID/smaps`, proc_pid_smaps(5)), what is resident of those that hold no data of the program: code, if it
/// cannot be written, and what is the agent's. Its memory of no file has flags of its own: `memlens_inside::own_memory`.
fn beside(mappings: &str) -> u64 {
    let (mut bytes, mut resident) = (0, 0);
    let (mut is_beside, mut is_nameless) = (false, false);
    for line in mappings.lines() {
        if let Some(value) = line.strip_prefix("Rss:") {
            resident = kib_of(value).unwrap_or(0);
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            let has = |flag| flags.split_ascii_whitespace().any(|other| other == flag);
            if is_beside || is_nameless && has("rr") && has("dd") {
                bytes += resident;
            }
        } else if let Some((_, rest)) = line.split_once(' ').filter(|(range, _)| range.contains('-')) {
            // START-END PERMISSIONS OFFSET DEVICE INODE NAME
            let name = rest.splitn(5, ' ').nth(4).unwrap_or("").trim_start();
            is_nameless = name.is_empty();
            is_beside = matches!(rest.as_bytes(), [_, b'-', b'x', ..])
                || name.starts_with("/memfd:memlens")
                || name.trim_end_matches(" (deleted)").ends_with("/libmemlens_agent.so");
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
            mapping("rw-p", "", 8, "rd wr mr nr rr dd sd"),
            mapping("rw-p", "", 16, "rd wr mr nr dd sd"),
            mapping("rw-p", "", 32, "rd wr mr rr"),
            mapping("rw-s", "/memfd:memlens-code (deleted)", 64, "rd wr"),
            mapping("rw-s", "/memfd:memlens-agent (deleted)", 128, "rd wr"),
            mapping("rw-p", "/home/a-b/.cache/memlens/agent-1/libmemlens_agent.so", 256, "rd wr"),
            mapping("rw-p", "/cache/agent-1/libmemlens_agent.so (deleted)", 512, "rd wr"),
            mapping("rw-p", "/data/rr dd", 1024, "rd wr rr dd"),
            mapping("rwxp", "[heap]", 2048, "rd wr ex"),
        ];
        assert_eq!(beside(&text.concat()), (2 + 8 + 64 + 128 + 256 + 512) << 10);
        assert_eq!(beside(""), 0);
    }

    fn resident(kib: u64) -> Resident {
        Resident { most: kib << 10, ..Resident::default() }
    }

    #[test]
    fn who_has_more_each_time_is_looked_at_each_time() {
        let mut process = Process::default();
        let pauses = [1000, 2000, 2001, 2100, 2100, 4000, 4000].map(|kib| {
            process.had(&resident(kib), true);
            process.pause.as_millis()
        });
        assert_eq!(pauses, [0, 0, 1, 2, 4, 0, 1]);
        (0..20).for_each(|_| process.had(&resident(4000), true));
        assert_eq!(process.pause, LONGEST_PAUSE);
    }

    #[test]
    fn what_is_not_asked_yet_is_data_until_then() {
        let mut process = Process { reported: 5000 << 10, ..Process::default() };
        let with_ring = Resident { shared: 4000 << 10, elsewhere: 100 << 10, ..resident(10_000) };
        assert_eq!(process.data_of(&with_ring), 6100 << 10, "of the ring no more than is shared");
        let shared = Resident { shared: 1 << 40, most: 1 << 40, ..Resident::default() };
        process.reported = u64::MAX;
        assert_eq!(process.data_of(&shared), (1 << 40) - RING_BYTES as u64, "or than a ring has");
        process.beside = Some(2000 << 10);
        process.had(&resident(8000), true);
        process.had(&resident(9000), false);
        assert_eq!(process.most_bytes(), 7000 << 10);
        process.beside = Some(3500 << 10);
        process.had(&resident(9000), true);
        assert_eq!(process.most_bytes(), 6000 << 10);
    }

    #[test]
    fn who_seems_to_have_more_is_asked_now_and_then() {
        let now = Instant::now();
        let mut process = Process::default();
        assert!(process.is_to_be_asked(&resident(8000), now));
        process.asked = Some(now);
        assert!(!process.is_to_be_asked(&resident(8000), now));
        assert!(process.is_to_be_asked(&resident(8000), now + ASK_PAUSE));
        assert!(!process.is_to_be_asked(&resident(70_000), now + ASK_PAUSE), "too large");
        process.had(&resident(8000), true);
        assert!(!process.is_to_be_asked(&resident(8000), now + ASK_PAUSE), "no more than before");
        process.has_many_mappings = true;
        assert!(!process.is_to_be_asked(&resident(9000), now + ASK_PAUSE));
    }

    #[test]
    fn of_an_object_counts_what_was_touched() {
        let own = std::process::id();
        let object = vec![0_u8; 64 << 20];
        let start = object.as_ptr().addr() as u64;
        let extent =
            |from: u64| Extent { start: start + from, end: start + (64 << 20), object: 0, bytes: 64 << 20 };
        let mut size = DataSize::default();
        let read =
            |bytes: usize| std::hint::black_box(&object[..bytes]).iter().step_by(4096).max() == Some(&0);
        size.has_objects(own, &[extent(0)]);
        assert!(size.largest() <= 4 << 20, "{}", size.largest());
        assert!(read(32 << 20));
        size.asks_again = Some(Instant::now() + LONGEST_PAUSE);
        size.has_objects(own, &[extent(0)]);
        assert!(size.largest() <= 4 << 20, "it is not asked each time: {}", size.largest());
        let half = (31 << 20)..=(36 << 20);
        size.asks_again = None;
        size.has_objects(own, &[extent(0)]);
        assert!(half.contains(&size.largest()), "{}", size.largest());
        // What is no larger than that is not looked at, and what has ended has no more.
        assert!(read(64 << 20));
        size.asks_again = None;
        size.has_objects(own, &[extent(40 << 20)]);
        size.has_objects(u32::MAX, &[extent(0)]);
        assert!(half.contains(&size.largest()), "{}", size.largest());
        // They take turns.
        for _ in 0..2 {
            size.asks_again = None;
            size.has_objects(own, &[extent(28 << 20), extent(0)]);
        }
        assert_eq!(size.largest(), 64 << 20);
    }

    #[test]
    fn a_process_that_is_gone_may_have_had_more() {
        let mut size = DataSize::default();
        assert_eq!(size.most_bytes(), None);
        size.look(std::process::id(), 0);
        assert!(size.most_bytes().is_some_and(|bytes| bytes > 1 << 20));
        // Another program, of which less is resident.
        let mut size = DataSize::default();
        let pid = std::process::id();
        let before =
            Process { bytes: 1 << 50, resident: 1 << 50, beside: Some(1 << 50), ..Process::default() };
        size.processes.insert(pid, before);
        size.look(pid, 0);
        assert_eq!(size.most_bytes(), Some(1 << 50));
        assert!((1 << 20..1 << 40).contains(&size.processes[&pid].most_bytes()));
        // No process has this number.
        size.look(u32::MAX, 0);
        assert_eq!(size.most_bytes(), None);
    }
}

//! All events and rings of a recording: opened for every thread on every processor, read in the order
//! of time.
//!
//! An event that children inherit can have a ring only if it is bound to a processor. So each thread
//! of the target has an event on each processor, and each processor one ring that all events there
//! write to.
//!
//! ```text
//!            cpu 0     cpu 1
//! thread a    event     event      children and new threads inherit
//! thread b    event     event
//!               ▼         ▼
//!             ring 0    ring 1  ──► sorted by time ──► sink
//! ```
//!
//! A thread that begins while events are being opened may be found twice: once by itself, once as its
//! parent's heir. Its samples are taken from one of the two only.
//!
//! The rate of an event cannot be changed once it has heirs: `PERF_EVENT_IOC_PERIOD` reaches the event
//! alone, and samples of a clock would go on telling the period they began with. A new rate therefore
//! means a new *generation* of events, opened for every thread that lives, enabled before the former is
//! closed, so that no mapping is missed in between.
//!
//! # Samples in an AUX area
//!
//! Those of SPE ([`crate::spe`]) are no records. Each ring has an area beside it, which all events of the processor write to; a record
//! says which thread wrote what there, at the latest when it leaves the processor. A thread can have one such event only,
//! so it is not found twice, and the rate stays. Where there was no room the kernel stops the event until it is enabled again.
#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use perf_event_open_sys::ioctls;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::{SampleEvent, dropped_records, open_ring_owner};
use crate::record::{AuxRecord, Layout, Record, Sample, TimedRecord};
use crate::ring::Ring;
use crate::spe::{CounterClock, Look, SpeRecords};

/// A record may be written this long after its time was taken; older ones are in order for sure.
const SETTLING: Duration = Duration::from_millis(50);
/// The same of samples in an AUX area, which are handed over a page at once.
const AUX_SETTLING: Duration = Duration::from_secs(1);
/// Rounds in which new threads are looked for. Each round watches what the last one found; threads of
/// watched threads are inherited, so few rounds are enough.
const ROUNDS: usize = 16;

/// What went wrong while reading. Units: records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectorLosses {
    /// Dropped by the kernel.
    pub lost: u64,
    /// Times it slowed an event down.
    pub throttled: u64,
    /// Could not be read.
    pub damaged: u64,
    /// Samples that two events took, left out once.
    pub doubled: u64,
    /// Came too late to be put in order.
    pub late: u64,
}

/// The thread that an event was opened for, and when.
#[derive(Clone, Copy, Debug)]
struct Root {
    generation: u32,
    tid: u32,
}

/// The open events.
#[derive(Debug)]
pub struct Collector {
    event: SampleEvent,
    layout: Layout,
    cpus: Vec<u32>,
    /// One for each processor; None: it is offline.
    rings: Vec<Option<Ring>>,
    /// Those of the present generation.
    events: Vec<OwnedFd>,
    generation: u32,
    /// When the present generation began.
    began_ns: u64,
    /// Event id → what it was opened for.
    roots: FxHashMap<u64, Root>,
    /// Generation and thread → whose event watches it.
    watched_by: FxHashMap<(u32, u32), u32>,
    /// Processes that live, as far as records tell.
    processes: FxHashSet<u32>,
    waiting: Vec<TimedRecord>,
    /// What was written to the AUX area of the ring that is being read, and when it was handed over.
    written: Vec<(u64, AuxRecord)>,
    /// What timestamps in AUX areas mean; None: there are none, or none that we can read.
    counter: Option<CounterClock>,
    delivered_until: u64,
    losses: CollectorLosses,
    /// What events say that they dropped; the rings tell the same, but the last of it only with a next
    /// record.
    dropped: u64,
}

impl Collector {
    /// Maps the rings; watches nothing yet.
    ///
    /// # Errors
    /// If the kernel does not say which processors there are, or gives no ring.
    pub fn new(event: SampleEvent) -> io::Result<Self> {
        let cpus = online_cpus()?;
        let mut rings = Vec::new();
        for &cpu in &cpus {
            rings.push(match open_ring_owner(cpu) {
                Ok(owner) => Some(Ring::largest(owner, event.most_ring_bytes())?),
                // A processor that went offline has nothing to sample.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => None,
                Err(error) => return Err(error),
            });
        }
        Ok(Self::with_rings(event, cpus, rings))
    }

    /// Only orders what [`Self::add`] gives it: nothing comes from the kernel.
    pub fn without_rings(event: SampleEvent) -> Self {
        Self::with_rings(event, Vec::new(), Vec::new())
    }

    fn with_rings(event: SampleEvent, cpus: Vec<u32>, rings: Vec<Option<Ring>>) -> Self {
        Self {
            layout: event.layout(),
            event,
            cpus,
            rings,
            events: Vec::new(),
            generation: 0,
            began_ns: 0,
            roots: FxHashMap::default(),
            watched_by: FxHashMap::default(),
            processes: FxHashSet::default(),
            waiting: Vec::new(),
            written: Vec::new(),
            counter: counter_look().map(CounterClock::new),
            delivered_until: 0,
            losses: CollectorLosses::default(),
            dropped: 0,
        }
    }

    /// Watches the only thread of a process that has not yet executed its program, from then on, and
    /// all that it will start.
    ///
    /// # Errors
    /// Those of perf_event_open(2).
    pub fn watch_program(&mut self, pid: u32) -> io::Result<()> {
        self.processes.insert(pid);
        let mut events = Vec::new();
        self.open(pid, true, &mut events)?;
        self.events = events;
        Ok(())
    }

    /// Watches one thread alone; counting begins at once.
    ///
    /// # Errors
    /// Those of perf_event_open(2).
    pub fn watch_thread(&mut self, tid: u32) -> io::Result<()> {
        let mut events = Vec::new();
        self.open(tid, false, &mut events)?;
        self.events = events;
        self.enable();
        Ok(())
    }

    /// Watches every thread of a process that runs, and all that they will start; counting begins at
    /// once. `each` gets the threads.
    ///
    /// # Errors
    /// Those of perf_event_open(2); `ESRCH`: there is no such process any more; `EMFILE`: more threads
    /// times processors than files may be open.
    pub fn watch_process(&mut self, pid: u32, each: impl FnMut(u32, u32)) -> io::Result<()> {
        self.processes.insert(pid);
        raise_file_limit();
        self.events = self.open_all(each)?;
        if self.events.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        self.enable();
        Ok(())
    }

    /// From now on samples come at another rate, in every thread that lives. If a thread cannot be
    /// opened again (its process has taken another user's identity, too many files are open), all stays
    /// as it was. Cost: opening threads × processors events.
    ///
    /// # Errors
    /// Those of perf_event_open(2).
    pub fn change_frequency(&mut self, frequency_hz: u64) -> io::Result<()> {
        if self.event.aux_period().is_some() {
            // A thread cannot have the new event before it has lost the old one.
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let event = self.event.at_frequency(frequency_hz);
        let former = std::mem::replace(&mut self.event, event);
        self.generation += 1;
        raise_file_limit();
        match self.open_all(|_, _| {}) {
            Ok(events) => {
                let former = std::mem::replace(&mut self.events, events);
                self.enable();
                self.began_ns = now_ns();
                self.end(&former);
                Ok(())
            }
            Err(error) => {
                self.generation -= 1;
                self.event = former;
                Err(error)
            }
        }
    }

    /// Events for all threads of all processes that live.
    fn open_all(&mut self, mut each: impl FnMut(u32, u32)) -> io::Result<Vec<OwnedFd>> {
        let mut events = Vec::new();
        let mut opened = FxHashSet::default();
        for _ in 0..ROUNDS {
            let mut is_new = false;
            let mut processes: Vec<u32> = self.processes.iter().copied().collect();
            processes.sort_unstable();
            for pid in processes {
                let Ok(threads) = threads_of(pid) else {
                    self.processes.remove(&pid);
                    continue;
                };
                for tid in threads {
                    if !opened.insert(tid) {
                        continue;
                    }
                    is_new = true;
                    each(pid, tid);
                    match self.open(tid, false, &mut events) {
                        Ok(()) => {}
                        // A thread that has ended meanwhile.
                        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            if !is_new {
                break;
            }
        }
        Ok(events)
    }

    fn open(&mut self, tid: u32, starts_with_exec: bool, events: &mut Vec<OwnedFd>) -> io::Result<()> {
        let has_area = self.event.aux_period().is_some();
        for (&cpu, ring) in self.cpus.iter().zip(&mut self.rings) {
            let Some(ring) = ring else { continue };
            let mut is_sampled = has_area;
            let event = match self.event.open(tid, cpu, starts_with_exec) {
                Err(error) if has_area && error.raw_os_error() == Some(libc::ENOENT) => {
                    // One of several sorts of processors, that has no such hardware.
                    is_sampled = false;
                    self.event.without_samples().open(tid, cpu, starts_with_exec)
                }
                event => event,
            };
            let event = match event {
                Ok(event) => event,
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
                // It has its parent's.
                Err(error) if has_area && !events.is_empty() && error.raw_os_error() == Some(libc::EBUSY) => {
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut id = 0u64;
            // SAFETY: both are descriptors of ours; the first call writes one word to the variable.
            let is_done = unsafe {
                ioctls::ID(event.as_raw_fd(), &raw mut id) >= 0
                    && ioctls::SET_OUTPUT(event.as_raw_fd(), ring.owner()) >= 0
            };
            if !is_done {
                return Err(io::Error::last_os_error());
            }
            if is_sampled {
                ring.map_aux(event.as_raw_fd())?;
            }
            self.roots.insert(id, Root { generation: self.generation, tid });
            events.push(event);
        }
        Ok(())
    }

    fn enable(&self) {
        for event in &self.events {
            // SAFETY: a descriptor of ours. An event whose thread has ended needs no enabling.
            unsafe { ioctls::ENABLE(event.as_raw_fd(), 0) };
        }
    }

    /// Stops counting for a while, or goes on; in threads that begin meanwhile, too. Nothing is reported in between, not even their begin.
    pub fn pause(&self, is_paused: bool) {
        if !is_paused {
            return self.enable();
        }
        for event in &self.events {
            // SAFETY: a descriptor of ours.
            unsafe { ioctls::DISABLE(event.as_raw_fd(), 0) };
        }
    }

    /// Stops counting everywhere, inherited events included.
    pub fn disable(&mut self) {
        let events = std::mem::take(&mut self.events);
        self.end(&events);
    }

    fn end(&mut self, events: &[OwnedFd]) {
        for event in events {
            // SAFETY: a descriptor of ours.
            unsafe { ioctls::DISABLE(event.as_raw_fd(), 0) };
            self.dropped += dropped_records(event);
        }
    }

    /// Waits until a ring is half full, the descriptor is readable, or `timeout` is over.
    pub fn wait(&self, ended: RawFd, timeout: Duration) {
        let owners = self.rings.iter().flatten().map(Ring::owner);
        let mut polled: Vec<libc::pollfd> =
            owners.chain([ended]).map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
        let milliseconds = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: as many structures as the length says.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, milliseconds) };
    }

    /// Puts a record of another source in line with the kernel's: [`Self::drain`] hands it on in its turn.
    pub fn add(&mut self, record: TimedRecord) {
        self.waiting.push(record);
    }

    /// Takes what is in the rings and hands on what is old enough to be in order; with `all`, the
    /// rest, too.
    pub fn drain(&mut self, all: bool, mut sink: impl FnMut(TimedRecord)) {
        let before = now_ns();
        if let (Some(clock), Some(look)) = (&mut self.counter, counter_look()) {
            clock.look(look);
        }
        let mut is_full = false;
        let mut rings = std::mem::take(&mut self.rings);
        for ring in rings.iter_mut().flatten() {
            ring.drain(|record_type, misc, body| self.receive(record_type, misc, body));
            for (time_ns, written) in std::mem::take(&mut self.written) {
                is_full |= written.is_truncated();
                match ring.take_aux(written.offset, written.size) {
                    Some(bytes) => self.receive_aux(time_ns, &written, bytes),
                    None => self.losses.damaged += 1,
                }
            }
        }
        self.rings = rings;
        if is_full {
            // There is room now.
            self.enable();
        }
        let settling = if self.event.aux_period().is_some() { AUX_SETTLING } else { SETTLING };
        let limit = match all {
            true => u64::MAX,
            false => before.saturating_sub(settling.as_nanos() as u64),
        };
        // Stable: records of one time stay in the order of their ring.
        self.waiting.sort_by_key(|record| record.time_ns);
        let ready = self.waiting.partition_point(|record| record.time_ns <= limit);
        for record in self.waiting.drain(..ready) {
            if record.time_ns < self.delivered_until {
                self.losses.late += 1;
            }
            self.delivered_until = self.delivered_until.max(record.time_ns);
            match record.record {
                Record::Fork { pid, .. } => {
                    self.processes.insert(pid);
                }
                Record::Exit { tid, .. } => {
                    // Its number may be given to another thread. Processes are looked after when their
                    // threads are: one whose first thread has ended may live on.
                    self.watched_by.remove(&(self.generation, tid));
                }
                _ => {}
            }
            sink(record);
        }
    }

    fn receive(&mut self, record_type: u32, misc: u16, body: &[u8]) {
        let record = match self.layout.parse(record_type, misc, body) {
            Ok(record) => record,
            Err(error) => {
                tracing::debug!(%error, "a record was passed over");
                self.losses.damaged += 1;
                return;
            }
        };
        match &record.record {
            Record::Lost(count) => self.losses.lost += count,
            Record::Throttled => self.losses.throttled += 1,
            Record::Aux(written) => {
                // How many samples there was no room for nobody knows.
                self.losses.lost += u64::from(written.is_truncated());
                self.written.push((record.time_ns, *written));
            }
            Record::Other => {}
            Record::Sample(sample) if !self.event.wants(sample.is_user) => {}
            Record::Sample(sample) => {
                if let Some(&root) = self.roots.get(&sample.id) {
                    let is_late = root.generation < self.generation && record.time_ns > self.began_ns;
                    let by = self.watched_by.entry((root.generation, sample.tid)).or_insert(root.tid);
                    if is_late || *by != root.tid {
                        self.losses.doubled += 1;
                        return;
                    }
                }
                self.waiting.push(record);
            }
            _ => self.waiting.push(record),
        }
    }

    /// What the processor wrote for a thread, handed over at `time_ns`.
    fn receive_aux(&mut self, time_ns: u64, written: &AuxRecord, bytes: &[u8]) {
        let Some(period) = self.event.aux_period() else { return };
        let &AuxRecord { pid, tid, .. } = written;
        let mut records = SpeRecords::new(bytes, written.offset);
        for record in records.by_ref() {
            let Some(sample) = record.sample(period) else { continue };
            let own = self.counter.zip(record.timestamp).and_then(|(clock, counter)| clock.time_ns(counter));
            // It cannot have been later.
            let time_ns = own.map_or(time_ns, |own| own.min(time_ns));
            let sample = Box::new(Sample { pid, tid, ..sample });
            self.waiting.push(TimedRecord { time_ns, record: Record::Sample(sample) });
        }
        self.losses.damaged += records.damaged();
    }

    /// What went wrong so far.
    pub fn losses(&self) -> CollectorLosses {
        CollectorLosses { lost: self.losses.lost.max(self.dropped), ..self.losses }
    }

    /// The processes that are watched, as far as records tell.
    pub fn processes(&self) -> impl Iterator<Item = u32> {
        self.processes.iter().copied()
    }

    /// The event that is sampled.
    pub fn event(&self) -> &SampleEvent {
        &self.event
    }
}

/// The generic timer's counter and the events' clock, at once; None: this processor has no such counter.
fn counter_look() -> Option<Look> {
    #[cfg(target_arch = "aarch64")]
    {
        let counter: u64;
        // SAFETY: reads a register that the kernel lets programs read; its own clock in the vDSO does.
        unsafe { std::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) counter, options(nostack, nomem)) };
        Some(Look { counter, time_ns: now_ns() })
    }
    #[cfg(not(target_arch = "aarch64"))]
    None::<Look>
}

/// Nanoseconds of the events' clock.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

/// A thread takes an event a processor, so the usual limit of 1,024 files is soon reached. Never
/// called before a program is started: it would inherit the limit.
fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls read and write the structure. Where raising is refused the limit stays.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// The threads of a process.
///
/// # Errors
/// If there is no such process, or it may not be looked at.
pub fn threads_of(pid: u32) -> io::Result<Vec<u32>> {
    let mut list = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        if let Some(tid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
            list.push(tid);
        }
    }
    Ok(list)
}

fn online_cpus() -> io::Result<Vec<u32>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let cpus = cpu_list(text.trim());
    if cpus.is_empty() { Err(io::Error::from(io::ErrorKind::InvalidData)) } else { Ok(cpus) }
}

/// The numbers of a list such as `0-3,8`.
fn cpu_list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_listed_in_ranges() {
        assert_eq!(cpu_list("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(cpu_list("0"), [0]);
        assert_eq!(cpu_list(""), [0u32; 0]);
    }

    /// Computes until this thread has used so much processor time; gives up after a minute.
    fn spin(cpu_ms: u128) {
        let cpu = || {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the call fills the structure.
            unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        };
        let (start, before) = (std::time::Instant::now(), cpu());
        while (cpu() - before).as_millis() < cpu_ms && start.elapsed().as_secs() < 60 {
            // In user mode: what the clock's system call takes has no samples.
            (0..100_000u64).for_each(|number| _ = std::hint::black_box(number));
        }
    }

    /// Watches this thread only, at `frequency`; None: this machine does not allow it.
    fn watching_us(frequency: u64) -> Option<Collector> {
        let wanted = vec![SampleEvent::time(frequency, 8192)];
        let (event, _) = crate::event::first_that_opens(wanted).ok()?;
        let mut collector = Collector::new(event).expect("there are processors");
        // SAFETY: the call only asks.
        let tid = unsafe { libc::gettid() }.unsigned_abs();
        collector.watch_thread(tid).expect("our own thread");
        Some(collector)
    }

    fn samples_of(collector: &mut Collector) -> Vec<(u64, u64)> {
        let mut samples = Vec::new();
        collector.drain(true, |record| {
            if let Record::Sample(sample) = record.record {
                samples.push((record.time_ns, sample.period));
            }
        });
        samples
    }

    #[test]
    fn what_a_full_ring_drops_is_counted() {
        let Some(mut collector) = watching_us(20_000) else { return };
        // 20,000 a second of more than 8 KiB each: 4 MiB are full after 25 ms.
        spin(400);
        // No record follows: what was dropped is told all the same (from Linux 6.0 on).
        collector.disable();
        let samples = samples_of(&mut collector);
        let losses = collector.losses();
        assert!(!samples.is_empty() && losses.lost > 0, "{} samples, {losses:?}", samples.len());
        assert_eq!((losses.damaged, losses.doubled), (0, 0));
    }

    #[test]
    fn a_new_rate_holds_from_then_on_and_each_sample_tells_its_own() {
        let Some(mut collector) = watching_us(1000) else { return };
        collector.processes.insert(std::process::id());
        // Processor time that a hypervisor has taken away has no samples: until there are enough.
        let mut samples = Vec::new();
        let mut spin_until = |collector: &mut Collector, enough: usize| {
            for _ in 0..100 {
                spin(20);
                samples.extend(samples_of(collector));
                if samples.len() >= enough {
                    break;
                }
            }
            samples.len()
        };
        let before = spin_until(&mut collector, 20);
        let asked = now_ns();
        collector.change_frequency(4000).expect("our own threads");
        let changed = now_ns();
        // Meanwhile the other threads of the tests may have had samples, too.
        spin_until(&mut collector, before + 200);
        collector.disable();
        samples.extend(samples_of(&mut collector));
        let periods = |times: std::ops::Range<u64>| {
            let part = samples.iter().filter(move |(time_ns, _)| times.contains(time_ns));
            part.map(|(_, period)| *period).collect::<Vec<_>>()
        };
        let (before, after) = (periods(0..asked), periods(changed..u64::MAX));
        assert!(before.len() > 10 && after.len() > 20, "{} and {} samples", before.len(), after.len());
        assert!(before.iter().all(|period| *period == 1_000_000), "{before:?}");
        assert!(after.iter().all(|period| *period == 250_000), "{after:?}");
    }

    #[test]
    fn the_counter_goes_on_with_the_clock() {
        let Some(first) = counter_look() else {
            assert_ne!(std::env::consts::ARCH, "aarch64");
            return;
        };
        let mut clock = CounterClock::new(first);
        std::thread::sleep(Duration::from_millis(50));
        let last = counter_look().expect("as before");
        clock.look(last);
        // Whether the counter is read before the clock or behind it is some nanoseconds, or an interruption.
        assert_eq!(clock.time_ns(last.counter), Some(last.time_ns));
        let middle = clock.time_ns(first.counter + (last.counter - first.counter) / 2).expect("known");
        assert!(middle.abs_diff(first.time_ns + (last.time_ns - first.time_ns) / 2) < 1000, "{clock:?}");
    }

    #[test]
    fn what_the_processor_wrote_becomes_samples_of_its_thread() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let spe = folder.path().join("arm_spe_0");
        fs::create_dir_all(spe.join("format")).expect("created");
        let write = |name: &str, text: &str| fs::write(spe.join(name), text).expect("written");
        write("type", "11");
        for (name, bit) in [("ts_enable", 0), ("jitter", 16), ("load_filter", 33), ("store_filter", 34)] {
            write(&format!("format/{name}"), &format!("config:{bit}"));
        }
        let event = SampleEvent::with_addresses(folder.path(), 1000, 8192).remove(0);
        let mut collector = Collector::without_rings(event);
        let mut clock = CounterClock::new(Look { counter: 0, time_ns: 0 });
        clock.look(Look { counter: 1000, time_ns: 40_000 });
        collector.counter = Some(clock);
        let load = |timestamp| crate::spe::tests::load(0x40_1000, 0x7f00_0000_0010, timestamp);
        // The last one is not whole.
        let bytes = [load(100), load(2000), load(300)[..20].to_vec()].concat();
        // PERF_RECORD_AUX with PERF_AUX_FLAG_TRUNCATED, and its sample_id: thread, time, identifier.
        let record: [u64; 6] = [64, bytes.len() as u64, 1, 7 | (8 << 32), 50_000, 99];
        let record: Vec<u8> = record.iter().flat_map(|word| word.to_le_bytes()).collect();
        collector.receive(11, 2, &record);
        let (time_ns, written) = collector.written[0];
        assert_eq!((time_ns, written.offset, written.end()), (50_000, 64, 64 + bytes.len() as u64));
        collector.receive_aux(time_ns, &written, &bytes);
        let samples: Vec<_> = collector
            .waiting
            .iter()
            .map(|record| match &record.record {
                Record::Sample(sample) => (record.time_ns, sample.pid, sample.tid, sample.period),
                other => panic!("{other:?}"),
            })
            .collect();
        // 100 ticks; and no later than it was handed over.
        assert_eq!(samples, [(4000, 7, 8, 2_000_000), (50_000, 7, 8, 2_000_000)]);
        assert_eq!(collector.losses(), CollectorLosses { lost: 1, damaged: 1, ..CollectorLosses::default() });
    }
}

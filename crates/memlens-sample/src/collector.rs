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
//! says which thread wrote what there, at the latest when it leaves the processor or its event is stopped, which is done now and then. A thread
//! can have one such event only, so it is not found twice, and the rate stays. Where there was no room the kernel stops the event until it
//! is enabled again; so another event, which never stops, reports mappings and threads.
#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use perf_event_open_sys::ioctls;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::{SampleEvent, dropped_records, open_ring_owner};
use crate::record::{AuxRecord, Layout, Record, Sample, TimedRecord};
use crate::ring::{Announced, Ring};
use crate::spe::{CounterClock, Look, SpeRecords, time_of};

/// A record may be written this long after its time was taken; older ones are in order for sure.
const SETTLING: Duration = Duration::from_millis(50);
/// The same of samples in an AUX area, which are handed over a page at once.
const AUX_SETTLING: Duration = Duration::from_secs(1);
/// A page may take longer to fill: so often it is handed over as it is, if that takes no more than one part in so many of our time.
const HANDED_OVER_EACH: Duration = Duration::from_millis(500);
const HANDING_OVER_SHARE: u32 = 100;
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

/// Events that were opened.
#[derive(Debug, Default)]
struct Opened {
    /// Those with samples.
    sampling: Vec<OwnedFd>,
    /// Those that report mappings and threads where the others do not.
    reporting: Vec<OwnedFd>,
}

impl Opened {
    fn all(&self) -> impl Iterator<Item = &OwnedFd> {
        self.sampling.iter().chain(&self.reporting)
    }
}

/// An event counts from now on, in all heirs.
fn enable(event: &OwnedFd) {
    // SAFETY: a descriptor of ours. An event whose thread has ended needs no enabling.
    unsafe { ioctls::ENABLE(event.as_raw_fd(), 0) };
}

/// It does not, and what it has written to an AUX area is handed over.
fn disable(event: &OwnedFd) {
    // SAFETY: a descriptor of ours.
    unsafe { ioctls::DISABLE(event.as_raw_fd(), 0) };
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
    events: Opened,
    /// Processors without the hardware: what threads do there has no samples.
    without_samples: FxHashSet<u32>,
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
    /// The same of rings by their numbers, that was not there yet.
    expected: Vec<(usize, u64, AuxRecord)>,
    /// An event may have stopped for want of room.
    has_stopped: bool,
    /// When what AUX areas have is to be handed over.
    handed_over_at: Instant,
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
            events: Opened::default(),
            without_samples: FxHashSet::default(),
            generation: 0,
            began_ns: 0,
            roots: FxHashMap::default(),
            watched_by: FxHashMap::default(),
            processes: FxHashSet::default(),
            waiting: Vec::new(),
            written: Vec::new(),
            expected: Vec::new(),
            has_stopped: false,
            handed_over_at: Instant::now() + HANDED_OVER_EACH,
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
        let mut events = Opened::default();
        self.open(pid, true, false, &mut events)?;
        self.events = events;
        Ok(())
    }

    /// Watches one thread alone; counting begins at once.
    ///
    /// # Errors
    /// Those of perf_event_open(2).
    pub fn watch_thread(&mut self, tid: u32) -> io::Result<()> {
        let mut events = Opened::default();
        self.open(tid, false, false, &mut events)?;
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
        if self.events.all().next().is_none() {
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
    fn open_all(&mut self, mut each: impl FnMut(u32, u32)) -> io::Result<Opened> {
        let mut events = Opened::default();
        let mut opened = FxHashSet::default();
        for round in 0..ROUNDS {
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
                    // Those of the first round were there before any event was.
                    match self.open(tid, false, round > 0, &mut events) {
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

    /// `may_be_heir`: the thread may have its parent's events.
    fn open(
        &mut self,
        tid: u32,
        starts_with_exec: bool,
        may_be_heir: bool,
        events: &mut Opened,
    ) -> io::Result<()> {
        let has_area = self.event.aux_period().is_some();
        for (&cpu, ring) in self.cpus.iter().zip(&mut self.rings) {
            let Some(ring) = ring else { continue };
            // First: who is found to have the one has the other, too.
            let reporting = match self.event.reports() {
                true => None,
                false => match self.event.without_samples().open(tid, cpu, starts_with_exec) {
                    Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
                    event => Some(event?),
                },
            };
            let sampling = match self.event.open(tid, cpu, starts_with_exec) {
                Ok(event) => Some(event),
                Err(error) => match error.raw_os_error() {
                    // One of several sorts of processors, that has no such hardware.
                    Some(libc::ENOENT) if has_area => {
                        self.without_samples.insert(cpu);
                        None
                    }
                    // It has its parent's.
                    Some(libc::EBUSY) if has_area && may_be_heir => continue,
                    Some(libc::ENODEV) => continue,
                    _ => return Err(error),
                },
            };
            if let Some(event) = reporting {
                ring.take_records_of(&event)?;
                events.reporting.push(event);
            }
            let Some(event) = sampling else { continue };
            let id = ring.take_records_of(&event)?;
            if has_area {
                ring.map_aux(event.as_raw_fd())?;
            }
            self.roots.insert(id, Root { generation: self.generation, tid });
            events.sampling.push(event);
        }
        Ok(())
    }

    fn enable(&self) {
        self.events.all().for_each(enable);
    }

    /// Stops counting for a while, or goes on; in threads that begin meanwhile, too. Nothing is reported in between, not even their begin.
    pub fn pause(&self, is_paused: bool) {
        if !is_paused {
            return self.enable();
        }
        self.events.all().for_each(disable);
    }

    /// Stops counting everywhere, inherited events included.
    pub fn disable(&mut self) {
        let events = std::mem::take(&mut self.events);
        self.end(&events);
    }

    fn end(&mut self, events: &Opened) {
        for event in events.all() {
            disable(event);
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
        self.read_rings(all);
        self.begin_anew(all);
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

    /// Takes what is in the rings, and what records announce in the areas beside them; `is_last`: all of it is there, or never will be.
    fn read_rings(&mut self, is_last: bool) {
        let expected = std::mem::take(&mut self.expected);
        let mut rings = std::mem::take(&mut self.rings);
        for (number, ring) in rings.iter_mut().enumerate() {
            let Some(ring) = ring else { continue };
            let before =
                expected.iter().filter(|(of, ..)| *of == number).map(|&(_, time_ns, of)| (time_ns, of));
            self.written.extend(before);
            let late = self.written.len();
            ring.drain(|record_type, misc, body| self.receive(record_type, misc, body));
            for (place, (time_ns, written)) in std::mem::take(&mut self.written).into_iter().enumerate() {
                match ring.take_aux(written.offset, written.size) {
                    Announced::Bytes(bytes) => self.receive_aux(time_ns, &written, bytes),
                    // Another time, but once only.
                    Announced::Later if place >= late && !is_last => {
                        self.expected.push((number, time_ns, written));
                    }
                    Announced::Later | Announced::Gone => self.losses.damaged += 1,
                }
            }
        }
        self.rings = rings;
    }

    /// Stops events whose samples are in AUX areas and lets them count again, where one may have stopped by itself, and now and then: what they
    /// have written is handed over.
    ///
    /// One that has stopped for want of room is not always known as such by the kernel: those of about Linux 6.11 to 6.16 only note that it is to be
    /// disabled. So enabling it is not enough.
    fn begin_anew(&mut self, is_last: bool) {
        let began = Instant::now();
        if self.event.aux_period().is_none() || !self.has_stopped && began < self.handed_over_at {
            return;
        }
        self.events.sampling.iter().for_each(disable);
        self.read_rings(is_last);
        for (number, ring) in self.rings.iter_mut().enumerate() {
            // What is still there was announced by a record that was dropped, and would take the room for ever.
            let is_expected = self.expected.iter().any(|(of, ..)| *of == number);
            if let Some(ring) = ring.as_mut().filter(|_| !is_expected) {
                self.losses.lost += u64::from(ring.skip_aux());
            }
        }
        self.has_stopped = false;
        self.events.sampling.iter().for_each(enable);
        self.handed_over_at = Instant::now() + HANDED_OVER_EACH.max(HANDING_OVER_SHARE * began.elapsed());
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
            Record::Lost(count) => {
                self.losses.lost += count;
                // It may have been the record that an area is full.
                self.has_stopped = true;
            }
            Record::Throttled => self.losses.throttled += 1,
            Record::Aux(written) => {
                // How many samples there was no room for nobody knows.
                self.losses.lost += u64::from(written.has_lost());
                self.has_stopped |= written.is_truncated();
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
            let time_ns = time_of(own, Some(time_ns)).unwrap_or(time_ns);
            let sample = Box::new(Sample { pid, tid, ..sample });
            self.waiting.push(TimedRecord { time_ns, record: Record::Sample(sample) });
        }
        self.losses.damaged += records.damaged();
    }

    /// What went wrong so far.
    pub fn losses(&self) -> CollectorLosses {
        CollectorLosses { lost: self.losses.lost.max(self.dropped), ..self.losses }
    }

    /// How many processors there are, and how many of them have no such hardware, so that there are no samples of what threads do there.
    pub fn processors(&self) -> (usize, usize) {
        (self.cpus.len(), self.without_samples.len())
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
        /// The clock before and behind it, at most, if we were not interrupted; and how often that is tried.
        const CLOSE_NS: u64 = 1000;
        const TRIES: usize = 8;
        let mut best: Option<(u64, Look)> = None;
        for _ in 0..TRIES {
            let before = now_ns();
            let counter: u64;
            // SAFETY: reads a register that the kernel lets programs read; its own clock in the vDSO does.
            unsafe { std::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) counter, options(nostack)) };
            let between = now_ns().saturating_sub(before);
            if best.is_none_or(|(least, _)| between < least) {
                best = Some((between, Look { counter, time_ns: before + between / 2 }));
            }
            if between <= CLOSE_NS {
                break;
            }
        }
        best.map(|(_, look)| look)
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

    /// The event of a source with this number, as Linux 6.12 describes it.
    fn spe(event_type: u32) -> SampleEvent {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let spe = folder.path().join("arm_spe_0");
        fs::create_dir_all(spe.join("format")).expect("created");
        let write = |name: &str, text: &str| fs::write(spe.join(name), text).expect("written");
        write("type", &event_type.to_string());
        for (name, bit) in [("ts_enable", 0), ("jitter", 16), ("load_filter", 33), ("store_filter", 34)] {
            write(&format!("format/{name}"), &format!("config:{bit}"));
        }
        SampleEvent::with_addresses(folder.path(), 1000, 8192).remove(0)
    }

    #[test]
    fn what_is_mapped_is_known_where_nothing_is_sampled() {
        // No processor has this one.
        let Ok(mut collector) = Collector::new(spe(0x7fff_fff0)) else { return };
        // SAFETY: the call only asks.
        let tid = unsafe { libc::gettid() }.unsigned_abs();
        collector.watch_thread(tid).expect("our own thread");
        assert!(collector.events.sampling.is_empty());
        assert_eq!(collector.processors().0, collector.processors().1);
        // As often as it is begun anew.
        for _ in 0..2 {
            const BYTES: usize = 1 << 20;
            // SAFETY: a new mapping at an address of the kernel's choice, which nobody uses before it is unmapped.
            let place = unsafe {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let place = libc::mmap(std::ptr::null_mut(), BYTES, libc::PROT_READ, flags, -1, 0);
                libc::munmap(place, BYTES);
                place
            };
            collector.has_stopped = true;
            let mut found = false;
            collector.drain(true, |record| {
                found |= matches!(record.record, Record::Mapping(mapping) if mapping.start <= place as u64
                    && place as u64 - mapping.start < mapping.length);
            });
            assert!(found && !collector.has_stopped);
        }
    }

    #[test]
    fn what_is_announced_and_not_there_yet_is_taken_the_next_time_and_then_given_up() {
        // A PERF_RECORD_AUX with its header. The area has zeroes only, which are padding between samples.
        let size = 64;
        let record = [11 | (2 << 32) | (56 << 48), 0, size, 0, 7 | (8 << 32), 50_000, 99];
        let record: Vec<u8> = record.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        for is_there_at_last in [true, false] {
            let (file, mut ring) = crate::ring::tests::in_memory();
            ring.map_aux(ring.owner()).expect("mapped");
            let mut collector = Collector::with_rings(spe(11), vec![0], vec![Some(ring)]);
            let drain = |collector: &mut Collector, all| {
                collector.drain(all, |_| {});
                (collector.expected.len(), collector.losses().damaged)
            };
            crate::ring::tests::write_first(&file, &record, 0);
            assert_eq!(drain(&mut collector, false), (1, 0));
            if is_there_at_last {
                crate::ring::tests::write_first(&file, &record, size);
                assert_eq!(drain(&mut collector, false), (0, 0));
            } else {
                assert_eq!(drain(&mut collector, false), (0, 1));
            }
            // A part that no record announced: it does not take the room for ever, and is a loss.
            crate::ring::tests::write_first(&file, &record, 2 * size);
            collector.has_stopped = true;
            drain(&mut collector, true);
            let lost = collector.losses().lost;
            drain(&mut collector, true);
            assert_eq!((lost, collector.losses().lost), (1, 1));
        }
    }

    #[test]
    fn what_the_processor_wrote_becomes_samples_of_its_thread() {
        let event = spe(11);
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
        assert_eq!(samples, [(4000, 7, 8, 1_999_872), (50_000, 7, 8, 1_999_872)]);
        assert_eq!(collector.losses(), CollectorLosses { lost: 1, damaged: 1, ..CollectorLosses::default() });
        // Room was wanting; it is begun anew, once. So it is where a record was dropped, which may have told the same.
        assert!(std::mem::take(&mut collector.has_stopped));
        collector.written.clear();
        let collided: Vec<u8> =
            [64, 0, 8, 7 | (8 << 32), 50_000, 99].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        collector.receive(11, 2, &collided);
        assert_eq!((collector.losses().lost, collector.has_stopped), (2, false));
        let lost: Vec<u8> =
            [99, 3, 7 | (8 << 32), 50_000, 99].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        collector.receive(2, 2, &lost);
        assert_eq!((collector.losses().lost, collector.has_stopped), (5, true));
        collector.drain(true, |_| {});
        assert!(!collector.has_stopped && collector.handed_over_at > Instant::now());
    }
}

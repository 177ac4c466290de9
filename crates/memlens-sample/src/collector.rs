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
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use perf_event_open_sys::ioctls;
use rustc_hash::FxHashMap;

use crate::event::SampleEvent;
use crate::record::{Layout, Record, TimedRecord};
use crate::ring::Ring;

/// Sizes of a processor's ring that are tried, in bytes. 512 KiB is what every user may lock
/// (`perf_event_mlock_kb`).
const RING_BYTES: [usize; 5] = [4 << 20, 2 << 20, 512 << 10, 256 << 10, 64 << 10];
/// A record may be written this long after its time was taken; older ones are in order for sure.
const SETTLING: Duration = Duration::from_millis(50);

/// What went wrong while reading. Units: records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectorLosses {
    /// Dropped by the kernel.
    pub lost: u64,
    /// Times it slowed an event down.
    pub throttled: u64,
    /// Could not be read.
    pub damaged: u64,
    /// Samples of a thread that two events watch, left out.
    pub doubled: u64,
    /// Came too late to be put in order.
    pub late: u64,
}

/// The open events.
#[derive(Debug)]
pub struct Collector {
    event: SampleEvent,
    layout: Layout,
    cpus: Vec<u32>,
    rings: Vec<Ring>,
    events: Vec<OwnedFd>,
    /// For each processor the event that has its ring.
    ring_events: Vec<RawFd>,
    /// Event id → the thread that it was opened for.
    roots: FxHashMap<u64, u32>,
    /// Thread → whose event watches it.
    watched_by: FxHashMap<u32, u32>,
    waiting: Vec<TimedRecord>,
    delivered_until: u64,
    losses: CollectorLosses,
}

impl Collector {
    /// Opens nothing yet.
    ///
    /// # Errors
    /// If the kernel does not say which processors there are.
    pub fn new(event: SampleEvent) -> io::Result<Self> {
        Ok(Self {
            layout: event.layout(),
            event,
            cpus: online_cpus()?,
            rings: Vec::new(),
            events: Vec::new(),
            ring_events: Vec::new(),
            roots: FxHashMap::default(),
            watched_by: FxHashMap::default(),
            waiting: Vec::new(),
            delivered_until: 0,
            losses: CollectorLosses::default(),
        })
    }

    /// Watches one thread, and all that it will start. `starts_with_exec`: from its next `execve` on;
    /// otherwise after [`Self::enable`].
    ///
    /// # Errors
    /// Those of perf_event_open(2) and mmap(2). `ESRCH`: the thread has ended.
    pub fn watch(&mut self, tid: u32, starts_with_exec: bool) -> io::Result<()> {
        if self.event.agents_tick().is_some() {
            return Ok(());
        }
        for index in 0..self.cpus.len() {
            let event = match self.event.open(tid, self.cpus[index], starts_with_exec) {
                Ok(event) => event,
                // A processor that went offline has nothing to sample.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
                Err(error) => return Err(error),
            };
            let fd = event.as_raw_fd();
            let mut id = 0u64;
            // SAFETY: the call writes one word to the variable.
            if unsafe { ioctls::ID(fd, &raw mut id) } < 0 {
                return Err(io::Error::last_os_error());
            }
            match self.ring_events.get(index) {
                Some(&ring) => {
                    // SAFETY: both are descriptors of ours.
                    if unsafe { ioctls::SET_OUTPUT(fd, ring) } < 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                None => {
                    self.rings.push(largest_ring(fd)?);
                    self.ring_events.push(fd);
                }
            }
            self.roots.insert(id, tid);
            self.events.push(event);
        }
        Ok(())
    }

    /// Starts counting for every thread watched.
    pub fn enable(&self) {
        for event in &self.events {
            // SAFETY: a descriptor of ours. An event whose thread has ended needs no enabling.
            unsafe { ioctls::ENABLE(event.as_raw_fd(), 0) };
        }
    }

    /// Stops counting everywhere, inherited events included.
    pub fn disable(&self) {
        for event in &self.events {
            // SAFETY: as above.
            unsafe { ioctls::DISABLE(event.as_raw_fd(), 0) };
        }
    }

    /// Waits until a ring is half full or `timeout` is over.
    pub fn wait(&self, timeout: Duration) {
        let mut polled: Vec<libc::pollfd> = self
            .ring_events
            .iter()
            .map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
            .collect();
        let milliseconds = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: as many structures as the length says.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, milliseconds) };
        // An event whose thread has ended reports that at once and for ever.
        if polled.iter().any(|event| event.revents & libc::POLLHUP != 0) {
            std::thread::sleep(timeout.min(Duration::from_millis(10)));
        }
    }

    /// Puts a record of another source in line with the kernel's: [`Self::drain`] hands it on in its turn.
    pub fn add(&mut self, record: TimedRecord) {
        self.waiting.push(record);
    }

    /// Takes what is in the rings and hands on what is old enough to be in order; with `all`, the
    /// rest, too.
    pub fn drain(&mut self, all: bool, mut sink: impl FnMut(TimedRecord)) {
        let before = now_ns();
        let (layout, roots) = (&self.layout, &self.roots);
        let (watched_by, losses, waiting) = (&mut self.watched_by, &mut self.losses, &mut self.waiting);
        for ring in &mut self.rings {
            ring.drain(|record_type, misc, body| match layout.parse(record_type, misc, body) {
                Err(error) => {
                    tracing::debug!(%error, "a record was passed over");
                    losses.damaged += 1;
                }
                Ok(TimedRecord { record: Record::Lost(count), .. }) => losses.lost += count,
                Ok(TimedRecord { record: Record::Throttled, .. }) => losses.throttled += 1,
                Ok(TimedRecord { record: Record::Other, .. }) => {}
                Ok(record) => {
                    if let Record::Sample(sample) = &record.record
                        && let Some(&root) = roots.get(&sample.id)
                        && *watched_by.entry(sample.tid).or_insert(root) != root
                    {
                        losses.doubled += 1;
                        return;
                    }
                    waiting.push(record);
                }
            });
        }
        let limit = match all {
            true => u64::MAX,
            false => before.saturating_sub(SETTLING.as_nanos() as u64),
        };
        // Stable: records of one time stay in the order of their ring.
        self.waiting.sort_by_key(|record| record.time_ns);
        let ready = self.waiting.partition_point(|record| record.time_ns <= limit);
        for record in self.waiting.drain(..ready) {
            if record.time_ns < self.delivered_until {
                self.losses.late += 1;
            }
            self.delivered_until = self.delivered_until.max(record.time_ns);
            if let Record::Exit { tid, .. } = record.record {
                // Its number may be given to another thread.
                self.watched_by.remove(&tid);
            }
            sink(record);
        }
    }

    /// What went wrong so far.
    pub fn losses(&self) -> CollectorLosses {
        self.losses
    }

    /// The event that is sampled.
    pub fn event(&self) -> &SampleEvent {
        &self.event
    }
}

/// Nanoseconds of the events' clock.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

fn largest_ring(event: RawFd) -> io::Result<Ring> {
    let mut last = io::Error::from_raw_os_error(libc::EPERM);
    for bytes in RING_BYTES {
        match Ring::map(event, bytes) {
            Ok(ring) => return Ok(ring),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn online_cpus() -> io::Result<Vec<u32>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
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
            std::hint::black_box((0..10_000u64).sum::<u64>());
        }
    }

    #[test]
    fn what_a_full_ring_drops_is_counted() {
        let wanted = vec![SampleEvent::time(20_000, 8192)];
        let Ok((event, _)) = crate::event::first_that_opens(wanted) else { return };
        let mut collector = Collector::new(event).expect("there are processors");
        // SAFETY: the call only asks.
        let tid = unsafe { libc::gettid() }.unsigned_abs();
        collector.watch(tid, false).expect("our own thread");
        collector.enable();
        // 20,000 a second of more than 8 KiB each: 4 MiB are full after 25 ms.
        spin(400);
        let mut samples = 0u64;
        let mut count =
            |record: TimedRecord| samples += u64::from(matches!(record.record, Record::Sample(_)));
        collector.drain(true, &mut count);
        // The kernel tells the loss with the next record for which there is room.
        spin(20);
        collector.disable();
        collector.drain(true, &mut count);
        let losses = collector.losses();
        assert!(samples > 0 && losses.lost > 0, "{samples} samples, {losses:?}");
        assert_eq!((losses.damaged, losses.doubled), (0, 0));
    }
}

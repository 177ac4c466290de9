//! What is sampled: the best event that this machine and kernel allow, and why no better one.
//!
//! | event | what a sample is | needs |
//! |---|---|---|
//! | `mem-loads`, `mem-stores` | a load (a store) with data address, latency, source | Intel PEBS |
//! | `ibs_op` | an operation, with data address if it is a load or store | AMD IBS |
//! | `arm_spe_0` | a load or store with data address, latency, source | Arm SPE |
//! | `cache-misses` | a last-level miss | a performance monitoring unit (PMU) |
//! | `cpu-clock` | an interval of processor time | Linux |
//! | `agent-clock` | the same, by a timer in the program itself | the agent in it |
//!
//! Of `cpu-clock` there is a bare one besides, whose samples only say where a thread is: [`crate::glances`].
//!
//! Samples of `arm_spe_0` are no records: the processor writes them to an AUX area, [`crate::spe`]. They come each so many operations,
//! not so often a second, and at a rate that stays.
//!
//! Sources: perf_event_open(2); linux/perf_event.h; Intel SDM volume 3B, section 20.3.1.1; AMD64
//! APM volume 2, section 13.3; Arm ARM (DDI 0487J.a), chapter D16; drivers/perf/arm_spe_pmu.c (Linux 6.12) for what it accepts;
//! Documentation/ABI/testing/sysfs-bus-event_source-devices-events.
#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use memlens_code::Architecture;
use memlens_profile::SampleUnit;
use perf_event_open_sys::bindings as abi;

use crate::record::Layout;
use crate::registers::PerfRegisters;
use crate::ring::{Ring, SMALLEST};

/// Where the kernel lists its event sources.
const SOURCES: &str = "/sys/bus/event_source/devices";

/// In a second.
const NANOSECONDS: u64 = 1_000_000_000;

/// What is asked of SPE: loads and stores, each with its time, in intervals that differ by chance so that no loop keeps step with them.
const SPE_TERMS: &str = "ts_enable,load_filter,store_filter,jitter";
/// Operations of a processor in a second, about: with them a rate becomes an interval. Server processors of some 3 GHz do
/// between 1 and 6 billion.
const OPERATIONS: u64 = 2_000_000_000;
/// `PMSIRR_EL1.INTERVAL`, in operations: 24 bits, of which one is 256.
const SPE_PERIODS: std::ops::RangeInclusive<u64> = 256..=0xffff_ff00;
/// Where the machine does not say its shortest interval.
const USUAL_LEAST_PERIOD: u64 = 4096;
/// So many bytes in the AUX area, or a page, are handed over at once: until then samples are not known.
const AUX_WATERMARK: u32 = 4096;

/// What samples are to be of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventChoice {
    /// Memory events whose samples have addresses, registers and stacks if there are any, else time.
    #[default]
    Best,
    /// Memory events with addresses, also such whose samples have nothing else.
    Memory,
    /// Processor time.
    Time,
    /// Last-level cache misses.
    CacheMisses,
    /// Processor time, by timers of the agent: needs nothing of the kernel's events.
    AgentClock,
}

impl EventChoice {
    /// Whether samples of time are such.
    pub fn is_of_time(self) -> bool {
        !matches!(self, Self::Memory | Self::CacheMisses)
    }
}

/// An event that can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleEvent {
    /// Its name as `perf list` has it.
    pub name: String,
    /// What its samples' cost is counted in.
    pub unit: SampleUnit,
    /// Samples a second and processor.
    pub frequency_hz: u64,
    /// Whether samples name exactly their instruction and the data address.
    pub has_addresses: bool,
    kind: u32,
    config: u64,
    config1: u64,
    precise: u64,
    /// Whether it can be kept from counting in the kernel; IBS cannot.
    excludes_kernel: bool,
    /// Of an event whose samples are in an AUX area: operations between two of them at least.
    aux_least_period: Option<u64>,
    stack_bytes: u32,
    /// Whether the agent takes the samples: there is nothing to open.
    is_agents: bool,
    /// Whether samples only say where which thread is, and mappings and names are not reported.
    is_bare: bool,
}

/// Why an event is not used: its name, and what is missing.
pub type Refusal = (String, String);

impl SampleEvent {
    /// The processor clock: works wherever perf_event_open does.
    pub fn time(frequency_hz: u64, stack_bytes: u32) -> Self {
        Self {
            name: "cpu-clock".into(),
            unit: SampleUnit::Nanoseconds,
            frequency_hz,
            has_addresses: false,
            kind: abi::PERF_TYPE_SOFTWARE,
            config: u64::from(abi::PERF_COUNT_SW_CPU_CLOCK),
            config1: 0,
            precise: 0,
            excludes_kernel: true,
            aux_least_period: None,
            stack_bytes,
            is_agents: false,
            is_bare: false,
        }
    }

    /// The processor clock, of which samples only say where a thread is: the cheapest there are.
    pub fn bare_time(frequency_hz: u64) -> Self {
        Self { is_bare: true, ..Self::time(frequency_hz, 0) }
    }

    /// Processor time by the agent's timers. They come with the kernel's tick, so that more than some 250 a second
    /// are not to be had.
    pub fn agent_clock(frequency_hz: u64, stack_bytes: u32) -> Self {
        Self { name: "agent-clock".into(), is_agents: true, ..Self::time(frequency_hz, stack_bytes) }
    }

    /// Processor time between two samples, if the agent takes them.
    pub fn agents_tick(&self) -> Option<Duration> {
        self.is_agents.then(|| Duration::from_nanos(NANOSECONDS / self.frequency_hz.max(1)))
    }

    /// Last-level misses as the processor counts them.
    pub fn cache_misses(frequency_hz: u64, stack_bytes: u32) -> Self {
        Self {
            name: "cache-misses".into(),
            unit: SampleUnit::Events,
            kind: abi::PERF_TYPE_HARDWARE,
            config: u64::from(abi::PERF_COUNT_HW_CACHE_MISSES),
            ..Self::time(frequency_hz, stack_bytes)
        }
    }

    /// The events that carry data addresses, as far as the kernel lists them below `sources`.
    pub fn with_addresses(sources: &Path, frequency_hz: u64, stack_bytes: u32) -> Vec<Self> {
        let base = Self { has_addresses: true, ..Self::cache_misses(frequency_hz, stack_bytes) };
        let mut list = Vec::new();
        for source in ["cpu", "cpu_core"] {
            let folder = sources.join(source);
            let Some(kind) = number(&folder.join("type")) else { continue };
            for name in ["mem-loads", "mem-stores"] {
                let Ok(text) = fs::read_to_string(folder.join("events").join(name)) else { continue };
                let Some((config, config1)) = configuration(&folder.join("format"), text.trim()) else {
                    continue;
                };
                // Level 2 asks for the sampled instruction itself: no skid.
                list.push(Self { name: name.into(), kind, config, config1, precise: 2, ..base.clone() });
            }
        }
        if let Some(kind) = number(&sources.join("ibs_op").join("type")) {
            // IBS has no filter for modes (APM volume 2, section 13.3.3); asking for one is refused.
            list.push(Self {
                name: "ibs_op".into(),
                kind,
                config: 0,
                precise: 0,
                excludes_kernel: false,
                ..base.clone()
            });
        }
        let folder = sources.join("arm_spe_0");
        if let Some(kind) = number(&folder.join("type"))
            && let Some((config, config1)) = configuration(&folder.join("format"), SPE_TERMS)
        {
            let least =
                number(&folder.join("caps").join("min_interval")).map_or(USUAL_LEAST_PERIOD, u64::from);
            list.push(Self {
                name: "arm_spe_0".into(),
                kind,
                config,
                config1,
                precise: 0,
                aux_least_period: Some(least),
                // The processor copies no stack.
                stack_bytes: 0,
                ..base
            });
        }
        list
    }

    /// Of an event whose samples are in an AUX area, as SPE writes it: operations between two of them.
    pub fn aux_period(&self) -> Option<u64> {
        let least = self.aux_least_period?;
        let period = (OPERATIONS / self.frequency_hz.max(1)).max(least);
        // The driver rounds it down to what the register holds.
        Some(period.clamp(*SPE_PERIODS.start(), *SPE_PERIODS.end()) & !(SPE_PERIODS.start() - 1))
    }

    /// Whether it reports mappings and threads besides its samples. One whose samples are in an AUX area stops whenever that is full, and
    /// what happens then would not be known: [`Self::without_samples`] does.
    pub fn reports(&self) -> bool {
        self.aux_least_period.is_none() || self.kind == abi::PERF_TYPE_SOFTWARE
    }

    /// The event beside one whose samples are in an AUX area, which reports mappings and threads and never stops.
    pub fn without_samples(&self) -> Self {
        Self {
            kind: abi::PERF_TYPE_SOFTWARE,
            config: u64::from(abi::PERF_COUNT_SW_DUMMY),
            config1: 0,
            precise: 0,
            ..self.clone()
        }
    }

    /// The events worth trying, best first. Loads and stores are one choice: the first.
    pub fn candidates(choice: EventChoice, frequency_hz: u64, stack_bytes: u32) -> Vec<Self> {
        Self::candidates_of(Path::new(SOURCES), choice, frequency_hz, stack_bytes)
    }

    /// The same, of the sources that are listed there.
    fn candidates_of(sources: &Path, choice: EventChoice, frequency_hz: u64, stack_bytes: u32) -> Vec<Self> {
        let mut list = Vec::new();
        if matches!(choice, EventChoice::Best | EventChoice::Memory) {
            list.extend(Self::with_addresses(sources, frequency_hz, stack_bytes));
        }
        if choice == EventChoice::Best {
            // Time with call stacks tells more than accesses without.
            list.retain(|event| event.aux_least_period.is_none());
        }
        match choice {
            EventChoice::CacheMisses => list.push(Self::cache_misses(frequency_hz, stack_bytes)),
            EventChoice::AgentClock | EventChoice::Memory => {}
            EventChoice::Best | EventChoice::Time => list.push(Self::time(frequency_hz, stack_bytes)),
        }
        list
    }

    /// The same event at another rate.
    pub fn at_frequency(&self, frequency_hz: u64) -> Self {
        Self { frequency_hz: frequency_hz.max(1), ..self.clone() }
    }

    /// Whether a sample taken in the kernel is one that was asked for: only of an event that cannot
    /// leave them out are there any, and the program's data is not what they waited for.
    pub fn wants(&self, is_user: bool) -> bool {
        is_user || self.excludes_kernel
    }

    /// How much room its samples need on a processor at most, in bytes: users may lock only so much memory for all that they sample.
    pub fn most_ring_bytes(&self) -> usize {
        /// Of which samples are no part; as much is left of what every user may lock for the area beside it.
        const BESIDE_AUX: usize = 256 << 10;
        match (self.is_bare, self.aux_least_period) {
            (true, _) => SMALLEST,
            (false, Some(_)) => BESIDE_AUX,
            (false, None) => usize::MAX,
        }
    }

    /// Which records the event makes.
    pub fn layout(&self) -> Layout {
        let attributes = self.attributes(false);
        Layout {
            sample_type: attributes.sample_type,
            user_registers: attributes.sample_regs_user,
            interrupt_registers: attributes.sample_regs_intr,
            has_sample_id: true,
            ..Layout::default()
        }
    }

    fn attributes(&self, starts_with_exec: bool) -> abi::perf_event_attr {
        let mut attributes = abi::perf_event_attr {
            type_: self.kind,
            size: size_of::<abi::perf_event_attr>() as u32,
            config: self.config,
            ..Default::default()
        };
        attributes.__bindgen_anon_3.config1 = self.config1;
        match self.unit {
            SampleUnit::Nanoseconds => {
                attributes.__bindgen_anon_1.sample_period = NANOSECONDS / self.frequency_hz.max(1);
            }
            SampleUnit::Events => match self.aux_period() {
                Some(period) => {
                    attributes.__bindgen_anon_1.sample_period = period;
                    attributes.aux_watermark = if self.reports() { 0 } else { AUX_WATERMARK };
                }
                None => {
                    attributes.__bindgen_anon_1.sample_freq = self.frequency_hz;
                    attributes.set_freq(1);
                }
            },
        }
        let mut wanted = abi::PERF_SAMPLE_IDENTIFIER
            | abi::PERF_SAMPLE_IP
            | abi::PERF_SAMPLE_TID
            | abi::PERF_SAMPLE_TIME
            | abi::PERF_SAMPLE_PERIOD;
        // What follows is of samples that are records.
        let is_record = self.aux_least_period.is_none();
        if !self.is_bare && is_record {
            wanted |= abi::PERF_SAMPLE_REGS_USER;
            attributes.sample_regs_user = PerfRegisters::of(Architecture::HOST).mask();
        }
        if self.stack_bytes > 0 {
            wanted |= abi::PERF_SAMPLE_STACK_USER;
            attributes.sample_stack_user = self.stack_bytes;
        }
        if self.has_addresses && is_record {
            wanted |= abi::PERF_SAMPLE_ADDR | abi::PERF_SAMPLE_DATA_SRC | abi::PERF_SAMPLE_WEIGHT;
        }
        attributes.sample_type = wanted.into();
        attributes.set_disabled(1);
        attributes.set_enable_on_exec(starts_with_exec.into());
        attributes.set_inherit(1);
        if self.excludes_kernel {
            attributes.set_exclude_kernel(1);
            attributes.set_exclude_hv(1);
        }
        attributes.set_exclude_callchain_kernel(1);
        if !self.is_bare && self.reports() {
            attributes.set_mmap(1);
            attributes.set_mmap_data(1);
            attributes.set_mmap2(1);
            attributes.set_comm(1);
            attributes.set_comm_exec(1);
        }
        attributes.set_task(self.reports().into());
        attributes.set_sample_id_all(1);
        attributes.set_precise_ip(self.precise);
        // Reading the event tells what was dropped, also after the last record for which there was room.
        attributes.read_format = abi::PERF_FORMAT_LOST.into();
        use_our_clock(&mut attributes);
        attributes
    }

    /// Opens the event for one thread on one processor; it counts only after it is enabled, or
    /// (`starts_with_exec`) from the thread's next `execve` on.
    ///
    /// # Errors
    /// Those of perf_event_open(2).
    pub fn open(&self, tid: u32, cpu: u32, starts_with_exec: bool) -> io::Result<OwnedFd> {
        let mut attributes = self.attributes(starts_with_exec);
        let thread = libc::pid_t::try_from(tid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        open(&mut attributes, thread, Some(cpu))
    }

    /// Maps the memory that an opened event's samples need besides a ring, and lets it go.
    fn try_area(&self, opened: OwnedFd) -> io::Result<()> {
        if self.aux_least_period.is_none() {
            return Ok(());
        }
        let event = opened.as_raw_fd();
        Ring::largest(opened, SMALLEST)?.map_aux(event)
    }

    /// Opens the event for the calling thread on whatever processor it runs, without heirs; such an
    /// event can have a ring of its own.
    ///
    /// # Errors
    /// Those of perf_event_open(2).
    pub fn open_for_caller(&self) -> io::Result<OwnedFd> {
        let mut attributes = self.attributes(false);
        attributes.set_inherit(0);
        open(&mut attributes, 0, None)
    }
}

/// The processor clock of one thread and no heirs: each `period_ns` of the program's own time it can send a signal, and say into a ring where
/// the thread is, in the records of [`SampleEvent::bare_time`]. It does not count before it is enabled, and ends when the process executes
/// another program.
///
/// # Errors
/// Those of perf_event_open(2); `EINVAL` before Linux 5.13.
pub fn open_for_signals(tid: u32, period_ns: u64) -> io::Result<OwnedFd> {
    let mut attributes = SampleEvent::bare_time(NANOSECONDS / period_ns.max(1)).attributes(false);
    attributes.set_inherit(0);
    attributes.set_task(0);
    attributes.set_remove_on_exec(1);
    let thread = libc::pid_t::try_from(tid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    open(&mut attributes, thread, None)
}

/// An event of one processor that counts nothing: what a ring belongs to. Unlike the events that
/// write to the ring it does not end with any thread of the target.
///
/// # Errors
/// Those of perf_event_open(2).
pub fn open_ring_owner(cpu: u32) -> io::Result<OwnedFd> {
    let mut attributes = abi::perf_event_attr {
        type_: abi::PERF_TYPE_SOFTWARE,
        size: size_of::<abi::perf_event_attr>() as u32,
        config: u64::from(abi::PERF_COUNT_SW_DUMMY),
        ..Default::default()
    };
    attributes.set_disabled(1);
    attributes.set_exclude_kernel(1);
    attributes.set_exclude_hv(1);
    use_our_clock(&mut attributes);
    open(&mut attributes, 0, Some(cpu))
}

/// One clock for all processors, and one that we can read: records can be put in order.
fn use_our_clock(attributes: &mut abi::perf_event_attr) {
    attributes.set_use_clockid(1);
    attributes.clockid = libc::CLOCK_MONOTONIC;
}

/// `thread`: 0 is the caller. `cpu`: None is any.
fn open(attributes: &mut abi::perf_event_attr, thread: libc::pid_t, cpu: Option<u32>) -> io::Result<OwnedFd> {
    let cpu = match cpu {
        Some(cpu) => libc::c_int::try_from(cpu).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?,
        None => -1,
    };
    let (no_group, flags) = (-1, abi::PERF_FLAG_FD_CLOEXEC as libc::c_ulong);
    loop {
        // SAFETY: the structure has the size that it names; a descriptor that comes back is ours.
        let event = unsafe {
            let event = perf_event_open_sys::perf_event_open(attributes, thread, cpu, no_group, flags);
            (event >= 0).then(|| OwnedFd::from_raw_fd(event))
        };
        let error = io::Error::last_os_error();
        match event {
            Some(event) => return Ok(event),
            // Kernels before 6.0 do not know PERF_FORMAT_LOST.
            None if error.raw_os_error() == Some(libc::EINVAL) && attributes.read_format != 0 => {
                attributes.read_format = 0;
            }
            None => return Err(error),
        }
    }
}

/// Records of an event and its heirs that found no room in the ring; 0 where the kernel does not say.
pub fn dropped_records(event: &OwnedFd) -> u64 {
    let mut words = [0u64; 2];
    // SAFETY: room for both words of `struct read_format` with PERF_FORMAT_LOST.
    let bytes = unsafe { libc::read(event.as_raw_fd(), words.as_mut_ptr().cast(), size_of_val(&words)) };
    if bytes == size_of_val(&words) as isize { words[1] } else { 0 }
}

/// The first of `candidates` that can be opened for this thread, and why those before it cannot.
///
/// # Errors
/// The last candidate's error, if none can be opened.
pub fn first_that_opens(candidates: Vec<SampleEvent>) -> Result<(SampleEvent, Vec<Refusal>), io::Error> {
    let mut refused = Vec::new();
    let mut last = io::Error::from_raw_os_error(libc::ENOENT);
    for event in candidates {
        match event.open_for_caller().and_then(|opened| event.try_area(opened)) {
            Ok(()) => return Ok((event, refused)),
            Err(error) => {
                refused.push((event.name.clone(), error.to_string()));
                last = error;
            }
        }
    }
    Err(last)
}

fn number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// `config` and `config1` of an event's terms (`event=0xcd,umask=0x1,ldlat=3`), whose bits the files
/// in `format` name.
fn configuration(format: &Path, terms: &str) -> Option<(u64, u64)> {
    let mut words = [0u64; 2];
    for term in terms.split(',') {
        let (name, value) = term.split_once('=').unwrap_or((term, "1"));
        let value = match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok()?,
            None => value.parse().ok()?,
        };
        let place = fs::read_to_string(format.join(name)).ok()?;
        let (word, bits) = place.trim().split_once(':')?;
        let word = match word {
            "config" => &mut words[0],
            "config1" => &mut words[1],
            _ => return None,
        };
        let mut left = value;
        for range in bits.split(',') {
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
            let width = high.checked_sub(low)?.checked_add(1).filter(|_| high < 64)?;
            let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
            *word |= (left & mask) << low;
            left = left.checked_shr(width).unwrap_or(0);
        }
        if left != 0 {
            return None;
        }
    }
    Some((words[0], words[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_put_together_as_sysfs_describes_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let cpu = folder.path().join("cpu");
        fs::create_dir_all(cpu.join("events")).expect("created");
        fs::create_dir_all(cpu.join("format")).expect("created");
        let write = |name: &str, text: &str| fs::write(cpu.join(name), text).expect("written");
        // As an Intel Xeon (Ice Lake) has them.
        write("type", "4\n");
        write("events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n");
        write("format/event", "config:0-7\n");
        write("format/umask", "config:8-15\n");
        write("format/ldlat", "config1:0-15\n");
        let events = SampleEvent::with_addresses(folder.path(), 1000, 0);
        assert_eq!(events.len(), 1);
        let event = &events[0];
        assert_eq!((event.kind, event.config, event.config1, event.precise), (4, 0x1cd, 3, 2));
        assert!(event.has_addresses && event.unit == SampleUnit::Events);
        // A value in two pieces, as AMD's event select is (bits 0-7 and 32-35).
        write("format/event", "config:0-7,32-35\n");
        assert_eq!(configuration(&cpu.join("format"), "event=0x1a3"), Some((0x1_0000_00a3, 0)));
        // Too wide, or unknown: not guessed.
        assert_eq!(configuration(&cpu.join("format"), "umask=0x1ff"), None);
        assert_eq!(configuration(&cpu.join("format"), "snoop=1"), None);
    }

    #[test]
    fn arms_samples_come_each_so_many_operations() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let spe = folder.path().join("arm_spe_0");
        fs::create_dir_all(spe.join("caps")).expect("created");
        fs::create_dir_all(spe.join("format")).expect("created");
        let write = |name: &str, text: &str| fs::write(spe.join(name), text).expect("written");
        // As Linux 6.12 has them.
        write("type", "11\n");
        write("format/ts_enable", "config:0\n");
        write("format/jitter", "config:16\n");
        write("format/load_filter", "config:33\n");
        // What is asked for is not there: no event.
        assert_eq!(SampleEvent::with_addresses(folder.path(), 1000, 8192), []);
        write("format/store_filter", "config:34\n");
        write("caps/min_interval", "1024\n");
        let events = SampleEvent::with_addresses(folder.path(), 1000, 8192);
        let [event] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((event.name.as_str(), event.kind, event.config), ("arm_spe_0", 11, 0x6_0001_0001));
        assert!(event.has_addresses && event.unit == SampleUnit::Events);
        // Without registers and stacks, so only if it is asked for; then there is nothing else.
        let names = |choice| {
            let list = SampleEvent::candidates_of(folder.path(), choice, 1000, 8192);
            list.into_iter().map(|event| event.name).collect::<Vec<_>>()
        };
        assert_eq!(names(EventChoice::Best), ["cpu-clock"]);
        assert_eq!(names(EventChoice::Memory), ["arm_spe_0"]);
        let attributes = event.attributes(false);
        // A period, no frequency; nothing of the program's registers and stack; no kernel.
        // SAFETY: both fields of the union are a number of as many bytes.
        let period = unsafe { attributes.__bindgen_anon_1.sample_period };
        assert_eq!((period, attributes.freq(), attributes.exclude_kernel()), (1_999_872, 0, 1));
        assert_eq!((attributes.sample_regs_user, attributes.sample_stack_user), (0, 0));
        assert_eq!(attributes.precise_ip(), 0);
        let period = |frequency_hz| event.at_frequency(frequency_hz).aux_period();
        // Not shorter than the machine can, not longer than the register holds.
        assert_eq!((period(10_000_000), period(1)), (Some(1024), Some(2_000_000_000)));
        // As the driver rounds it: 666,666 are 2,604 times 256 and some.
        assert_eq!(period(3000), Some(2604 * 256));
        // Nobody has this source here: the next one is taken.
        let other = SampleEvent { kind: 0x7fff_fff0, ..event.clone() };
        match first_that_opens(vec![other, SampleEvent::time(1000, 0)]) {
            Ok((opened, refused)) => {
                assert_eq!((opened.name.as_str(), refused.len()), ("cpu-clock", 1));
            }
            // Nor events at all.
            Err(error) => assert_ne!(error.raw_os_error(), Some(libc::EINVAL)),
        }
        // It stops when its area is full; what is mapped then is told by another one, and read in the same way.
        assert_eq!((attributes.mmap2(), attributes.comm(), attributes.task()), (0, 0, 0));
        assert_eq!((attributes.sample_id_all(), attributes.aux_watermark), (1, AUX_WATERMARK));
        let others = event.without_samples();
        let attributes = others.attributes(false);
        assert_eq!((attributes.type_, attributes.aux_watermark), (abi::PERF_TYPE_SOFTWARE, 0));
        assert_eq!((attributes.mmap2(), attributes.comm(), attributes.task()), (1, 1, 1));
        assert_eq!(others.layout(), event.layout());
        assert_eq!(SampleEvent::time(1000, 0).aux_period(), None);
    }
}

//! Page walks of a run as the processor counts them, where it has counters (perf_event_open(2)).
//!
//! The event is opened on this thread, disabled, and inherited by the program that it starts, whose copy begins to count
//! when the program is executed: memlens itself is never counted. What the copies counted is added to the event when
//! their threads end. Virtual machines mostly have no counters, and `perf_event_paranoid` may forbid them: then there is
//! nothing, and nothing is said of it.
//!
//! Counted are the kernel's generic events of second-level TLB misses in user mode: of loads, and of stores where the
//! processor tells them. If other users share the counters, what was counted is scaled to the whole time.

use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;

use perf_event_open_sys::bindings as abi;
use perf_event_open_sys::perf_event_open;

/// Second-level data TLB misses of an operation (perf_event_open(2), `PERF_TYPE_HW_CACHE`).
const fn tlb_misses(operation: u32) -> u64 {
    (abi::PERF_COUNT_HW_CACHE_DTLB | operation << 8 | abi::PERF_COUNT_HW_CACHE_RESULT_MISS << 16) as u64
}

/// An event that counts in the programs which this thread starts.
struct Event(File);

impl Event {
    fn open(kind: u32, config: u64) -> Option<Self> {
        let mut attributes = abi::perf_event_attr {
            type_: kind,
            size: size_of::<abi::perf_event_attr>() as u32,
            config,
            read_format: u64::from(abi::PERF_FORMAT_TOTAL_TIME_ENABLED | abi::PERF_FORMAT_TOTAL_TIME_RUNNING),
            ..abi::perf_event_attr::default()
        };
        attributes.set_disabled(1);
        attributes.set_inherit(1);
        attributes.set_enable_on_exec(1);
        attributes.set_exclude_kernel(1);
        attributes.set_exclude_hv(1);
        // SAFETY: the structure says its size and lives through the call; this thread, any processor, no group.
        let event =
            unsafe { perf_event_open(&raw mut attributes, 0, -1, -1, abi::PERF_FLAG_FD_CLOEXEC.into()) };
        // SAFETY: a new descriptor that nobody else has.
        (event >= 0).then(|| Self(unsafe { File::from_raw_fd(event) }))
    }

    /// What was counted, for the whole time; None: it was never on a counter.
    fn count(&mut self) -> Option<u64> {
        let mut bytes = [0; 24];
        self.0.read_exact(&mut bytes).ok()?;
        let number =
            |at: usize| bytes[8 * at..][..8].iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte));
        scaled([number(0), number(1), number(2)])
    }
}

/// Count, time enabled, time on a counter.
fn scaled([count, enabled, running]: [u64; 3]) -> Option<u64> {
    (running > 0).then(|| (u128::from(count) * u128::from(enabled) / u128::from(running)) as u64)
}

/// Counts the page walks of programs that are started by this thread until it is read.
pub struct WalkCounter {
    loads: Event,
    stores: Option<Event>,
}

impl WalkCounter {
    /// None: there is no counter, or it may not be used.
    pub fn open() -> Option<Self> {
        let of = |operation| Event::open(abi::PERF_TYPE_HW_CACHE, tlb_misses(operation));
        Some(Self {
            loads: of(abi::PERF_COUNT_HW_CACHE_OP_READ)?,
            stores: of(abi::PERF_COUNT_HW_CACHE_OP_WRITE),
        })
    }

    /// The page walks of the program that has ended.
    pub fn read(mut self) -> Option<u64> {
        let stores = self.stores.as_mut().and_then(Event::count).unwrap_or(0);
        Some(self.loads.count()? + stores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// What works for any event, shown with one that every kernel has: only the program is counted, from its start on.
    #[test]
    fn a_program_is_counted_and_we_are_not() {
        let faults = || Event::open(abi::PERF_TYPE_SOFTWARE, abi::PERF_COUNT_SW_PAGE_FAULTS.into());
        let (Some(mut idle), Some(mut event)) = (faults(), faults()) else {
            // Forbidden here, or no perf_event_open.
            return;
        };
        // Pages of our own, touched for the first time.
        let ours = vec![1_u8; 16 << 20];
        std::hint::black_box(&ours);
        assert_eq!(idle.count().unwrap_or(0), 0, "we are not counted");
        assert!(Command::new("true").status().expect("it runs").success());
        let counted = event.count().expect("the program was counted");
        // Its stack, its file, the C library: far fewer than our pages.
        assert!((10..2000).contains(&counted), "{counted}");
    }

    #[test]
    fn shared_counters_are_scaled() {
        assert_eq!(scaled([10, 300, 100]), Some(30));
        assert_eq!(scaled([0, 300, 0]), None);
    }
}

//! System V shared memory (`shmat(2)`).
//!
//! Neither attaching nor detaching says how long a segment is: the kernel is asked when it is attached, and what it said
//! is remembered, by address, until it is detached.
//!
//! # Signal safety
//! Neither allocates nor locks: a forked child finds the table usable, whatever other threads were doing.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::sys;

/// What is attached now.
pub static SEGMENTS: Segments = Segments { places: [const { Place::free() }; MOST] };

/// Of more segments at a time the end is not noticed.
const MOST: usize = 1024;
const PAGE: u64 = 4096;

/// A segment of shared memory.
#[derive(Clone, Copy)]
pub struct Segment {
    /// What programs find it by; 0: nothing (`IPC_PRIVATE`).
    pub key: u32,
    /// Its size in whole pages.
    pub bytes: u64,
}

/// Attached segments.
pub struct Segments {
    places: [Place; MOST],
}

/// One of them. Start 0: free.
struct Place {
    start: AtomicU64,
    bytes: AtomicU64,
}

impl Place {
    const fn free() -> Self {
        Self { start: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Whoever takes a place from one start to another may set its length.
    fn take(&self, from: u64, to: u64) -> bool {
        self.start.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl Segments {
    /// The segment of this identifier was attached at an address. `None`: the kernel does not tell of it any more.
    pub fn attached(&self, id: i32, address: u64) -> Option<Segment> {
        let (key, bytes) = sys::segment_status(id)?;
        let bytes = bytes.next_multiple_of(PAGE);
        // `SHM_REMAP` puts one over another.
        self.detached(address);
        // The program learns the address afterwards: nobody looks for it yet.
        if let Some(place) = self.places.iter().find(|place| place.take(0, address)) {
            place.bytes.store(bytes, Ordering::Release);
        }
        Some(Segment { key, bytes })
    }

    /// The segment at an address is about to be detached: its length, if one begins there.
    pub fn detached(&self, address: u64) -> Option<u64> {
        let of_address = |place: &&Place| address != 0 && place.start.load(Ordering::Acquire) == address;
        let place = self.places.iter().find(of_address)?;
        let bytes = place.bytes.load(Ordering::Acquire);
        place.take(address, 0).then_some(bytes)
    }
}

//! Looks at how the kernel backs objects of a process that is being recorded.
//!
//! There is no moment at which a program's memory is complete and it waits for us, so it is looked at again and again,
//! ever more rarely, and of each object the state with most memory is kept. Looks may take a fiftieth of the time.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use memlens_backing::{Backing, BackingReader};
use memlens_pipeline::Process;
use memlens_profile::ObjectBacking;
use memlens_sample::SampleSession;

/// Time until the first look, and between the first ones.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Time between looks, at most, as long as they are quick.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// So many times as long as a look takes there is none.
const SPARE: u32 = 50;
/// Smaller pieces of memory are not looked at: each takes a system call.
const LEAST_BYTES: u64 = 64 << 10;
/// Pieces that are looked at, at most: the largest ones.
const MOST_PIECES: usize = 4096;

/// When to look next.
#[derive(Debug)]
pub struct BackingLooks {
    next: Instant,
    pause: Duration,
}

impl BackingLooks {
    /// For a process that starts now.
    pub fn new() -> Self {
        Self { next: Instant::now() + FIRST_PAUSE, pause: FIRST_PAUSE }
    }

    /// Whether it is time.
    pub fn are_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// A look began at `started` and is over.
    pub fn done(&mut self, started: Instant) {
        let now = Instant::now();
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.next = now + self.pause.max((now - started) * SPARE);
    }
}

/// Looks at all large objects of a process in exact mode; those that the kernel does not tell of stay unknown.
pub fn look(process: &mut Process) {
    let Some(pid) = process.process_id() else { return };
    let pieces = process.live_memory(LEAST_BYTES);
    let pieces = pieces.into_iter().map(|(range, object)| (pid, range, object)).collect();
    for (object, backing) in backing_of(pieces) {
        process.note_backing(object, backing);
    }
}

/// The same of the heap's blocks that are watched while samples or bursts are taken.
pub fn look_at_heap(session: &mut SampleSession) {
    for (site, backing) in backing_of(session.live_memory(LEAST_BYTES)) {
        session.note_backing(site, backing);
    }
}

/// How the memory of each object is backed now, from its pieces: process, place, object. Those are left out of which
/// nothing is there: the program is ahead of its records, or has not touched it yet.
fn backing_of(mut pieces: Vec<(u32, Range<u64>, u32)>) -> HashMap<u32, ObjectBacking> {
    if pieces.len() > MOST_PIECES {
        pieces.sort_unstable_by_key(|(_, range, _)| Reverse(range.end - range.start));
        pieces.truncate(MOST_PIECES);
    }
    let mut readers: HashMap<u32, BackingReader> = HashMap::new();
    let mut sums: HashMap<u32, ObjectBacking> = HashMap::new();
    for (pid, range, object) in pieces {
        let reader = readers.entry(pid).or_insert_with(|| BackingReader::new(pid));
        let found = reader.range(range.start, range.end - range.start);
        if let Some(found) = found.filter(|found| *found != Backing::default()) {
            *sums.entry(object).or_default() += ObjectBacking {
                small_bytes: found.small(),
                transparent_bytes: found.transparent(),
                hugetlb_bytes: found.hugetlb,
                zero_bytes: found.zero,
                swapped_bytes: found.swapped,
                ..ObjectBacking::default()
            };
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_written_is_found_in_its_pages() {
        const BYTES: usize = 1 << 20;
        let block = vec![1_u8; BYTES];
        let start = block.as_ptr().addr() as u64;
        let pid = std::process::id();
        let (first, second) =
            (start..start + BYTES as u64 / 2, start + BYTES as u64 / 2..start + BYTES as u64);
        let found = backing_of(vec![(pid, first, 3), (pid, second, 3), (pid, 0..4096, 4)]);
        // A container may hide the maps.
        if let Some(backing) = found.get(&3) {
            // Whole pages, those at the borders for both pieces.
            let resident = backing.resident_bytes();
            assert!((1..=BYTES as u64 + 3 * 4096).contains(&resident), "{backing:?}");
        }
        assert_eq!(found.get(&4), None, "nothing is mapped there");
        drop(block);
    }

    #[test]
    fn looks_become_rare_and_stay_within_their_share() {
        let mut looks = BackingLooks::new();
        let start = Instant::now();
        assert!(!looks.are_due(start) && looks.are_due(start + FIRST_PAUSE));
        for _ in 0..20 {
            looks.done(Instant::now());
        }
        assert_eq!(looks.pause, LONGEST_PAUSE);
        let long_ago = Instant::now() - Duration::from_secs(1);
        looks.done(long_ago);
        assert!(!looks.are_due(long_ago + Duration::from_secs(50)));
    }
}

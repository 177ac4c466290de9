//! Looks at how the kernel backs objects of a process that is being recorded.
//!
//! There is no moment at which a program's memory is complete and it waits for us, so it is looked at again and again,
//! ever more rarely, and of each object the state with most memory is kept. Looks may take a fiftieth of the time.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use memlens_backing::{Backing, BackingReader, MemoryNodes, PAGE_BYTES, PageNode, page_nodes};
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
/// Pages whose memory node is asked for, at equal distances, of an object …
const MOST_PAGES: u64 = 256;
/// … and of all of them together, but for a few of each.
const MOST_PAGES_OF_ALL: u64 = 1 << 14;
const LEAST_PAGES: u64 = 8;

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
    for (object, backing) in backing_of(pieces, *HAS_NODES) {
        process.note_backing(object, backing);
    }
}

/// The same of the heap's blocks that are watched while samples or bursts are taken.
pub fn look_at_heap(session: &mut SampleSession) {
    for (site, backing) in backing_of(session.live_memory(LEAST_BYTES), *HAS_NODES) {
        session.note_backing(site, backing);
    }
}

/// Whether this machine has several memory nodes.
static HAS_NODES: LazyLock<bool> = LazyLock::new(|| MemoryNodes::of_this_machine().are_several());

/// Some memory of an object: its process, where it is, the object.
type Piece = (u32, Range<u64>, u32);

/// How the memory of each object is backed now, from its pieces: process, place, object. Those are left out of which
/// nothing is there: the program is ahead of its records, or has not touched it yet. `has_nodes`: and in which memory nodes it lies.
fn backing_of(mut pieces: Vec<Piece>, has_nodes: bool) -> HashMap<u32, ObjectBacking> {
    if pieces.len() > MOST_PIECES {
        pieces.sort_unstable_by_key(|(_, range, _)| Reverse(range.end - range.start));
        pieces.truncate(MOST_PIECES);
    }
    let mut readers: HashMap<u32, BackingReader> = HashMap::new();
    let mut sums: HashMap<u32, ObjectBacking> = HashMap::new();
    for &(pid, ref range, object) in &pieces {
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
    if has_nodes {
        let most = (MOST_PAGES_OF_ALL / sums.len().max(1) as u64).clamp(LEAST_PAGES, MOST_PAGES);
        for (&object, backing) in &mut sums {
            let nodes = nodes_of(&pages_of(&pieces, object, most));
            let own = backing.resident_bytes().saturating_sub(backing.zero_bytes);
            backing.node_bytes = shared_out(own, &nodes);
        }
    }
    sums
}

/// At most so many pages of an object and one more for each piece, at equal distances: process, address.
fn pages_of(pieces: &[Piece], object: u32, most: u64) -> Vec<(u32, u64)> {
    let own = || pieces.iter().filter(|piece| piece.2 == object);
    let pages = |range: &Range<u64>| range.end.div_ceil(PAGE_BYTES) - range.start / PAGE_BYTES;
    let step = own().map(|(_, range, _)| pages(range)).sum::<u64>().div_ceil(most).max(1);
    let mut found = Vec::new();
    // How far behind the begin of a piece the next one is.
    let mut ahead = step / 2;
    for (pid, range, _) in own() {
        let all = pages(range);
        while ahead < all {
            found.push((*pid, (range.start / PAGE_BYTES + ahead) * PAGE_BYTES));
            ahead += step;
        }
        ahead -= all;
    }
    found
}

/// How many of these pages lie in each node, as far as the kernel tells.
fn nodes_of(pages: &[(u32, u64)]) -> Vec<u64> {
    let (mut counts, mut answers) = (Vec::new(), Vec::new());
    for of_process in pages.chunk_by(|one, other| one.0 == other.0) {
        let addresses: Vec<u64> = of_process.iter().map(|&(_, address)| address).collect();
        if page_nodes(of_process[0].0, &addresses, &mut answers).is_err() {
            continue;
        }
        for answer in &answers {
            if let PageNode::Node(node) = *answer {
                let at = node as usize;
                if counts.len() <= at {
                    counts.resize(at + 1, 0);
                }
                counts[at] += 1;
            }
        }
    }
    counts
}

/// So many bytes, in whole pages, as these numbers are to each other; none if there are none.
fn shared_out(bytes: u64, counts: &[u64]) -> Vec<u64> {
    let (all, pages) = (counts.iter().sum::<u64>().max(1), bytes / PAGE_BYTES);
    // What is left of one's part is the next one's.
    let until = |sum: u64| (u128::from(pages) * u128::from(sum) / u128::from(all)) as u64 * PAGE_BYTES;
    let mut sum = 0;
    let part = |&count: &u64| {
        let before = until(sum);
        sum += count;
        until(sum) - before
    };
    counts.iter().map(part).collect()
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
        let found = backing_of(vec![(pid, first, 3), (pid, second, 3), (pid, 0..4096, 4)], true);
        // A container may hide the maps.
        if let Some(backing) = found.get(&3) {
            // Whole pages, those at the borders for both pieces.
            let resident = backing.resident_bytes();
            assert!((1..=BYTES as u64 + 3 * 4096).contains(&resident), "{backing:?}");
            let on_nodes: u64 = backing.node_bytes.iter().sum();
            assert!(on_nodes == 0 || on_nodes == resident - backing.zero_bytes, "{backing:?}");
        }
        assert_eq!(found.get(&4), None, "nothing is mapped there");
        drop(block);
    }

    #[test]
    fn pages_at_equal_distances_stand_for_an_object() {
        let page = |number: u64| number * PAGE_BYTES;
        let pieces =
            [(7, page(100)..page(103), 1), (7, page(0)..page(9), 2), (8, page(200) + 5..page(205), 1)];
        let numbers = |object, most| -> Vec<(u32, u64)> {
            let pages = pages_of(&pieces, object, most).into_iter();
            pages.map(|(pid, address)| (pid, address / PAGE_BYTES)).collect()
        };
        assert_eq!(numbers(1, 4), [(7, 101), (8, 200), (8, 202), (8, 204)]);
        assert_eq!(numbers(1, 100).len(), 8);
        assert_eq!(numbers(2, 1), [(7, 4)]);
        assert!(numbers(3, 4).is_empty());
    }

    #[test]
    fn bytes_are_shared_out_as_pages_were_seen() {
        assert_eq!(shared_out(8 << 20, &[192, 0, 64]), [6 << 20, 0, 2 << 20]);
        let thirds = shared_out(10 * PAGE_BYTES, &[1, 1, 1]);
        assert_eq!(thirds.iter().sum::<u64>(), 10 * PAGE_BYTES, "{thirds:?}");
        assert!(shared_out(4096, &[]).is_empty());
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

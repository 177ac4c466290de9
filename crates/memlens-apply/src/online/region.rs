//! Memory near a module of a running process that holds the detours of its code, shared with this process.
//!
//! ```text
//!  address ─► header    what was changed, so that any memlens can take it back
//!             slots     where each detour leads just now: one word, so switching needs no stop
//!             stubs     jmp [slot]: where the program's code jumps to
//!             code      of all detours, with each task
//!  ─────────► counters  how often each detour ran: the only part that the process may write
//! ```

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use memlens_prefetch::COUNTERS;
use memmap2::{MmapOptions, MmapRaw};

pub const PAGE_BYTES: u64 = 4096;
/// Detours of a region, at most.
pub const MOST_DETOURS: usize = 32;
/// The name of the file, by which the memory is found again.
pub const NAME: &str = "memlens-detours";
/// First word.
const MAGIC: u64 = u64::from_le_bytes(*b"memlensD");
const VERSION: u64 = 1;
/// Of the header: [`MAGIC`], [`VERSION`], how many entries; an entry has an address and the bytes that stood there.
const ENTRIES_AT: u64 = 24;
const ENTRY_BYTES: u64 = 16;
const SLOTS_AT: u64 = 2048;
const STUBS_AT: u64 = PAGE_BYTES;
const STUB_BYTES: u64 = 16;
/// Where the detours' code begins.
pub const CODE_AT: u64 = STUBS_AT + MOST_DETOURS as u64 * STUB_BYTES;
const TABLE_BYTES: u64 = COUNTERS as u64 * 8;
/// Bytes behind the code: for each detour a table of counters, and one that nobody reads.
pub const DATA_BYTES: u64 = (2 * MOST_DETOURS as u64 * TABLE_BYTES).next_multiple_of(PAGE_BYTES);
/// Bytes of a jump with a distance of 32 bits.
pub const JUMP_BYTES: usize = 5;
/// As far as these go.
const REACH_BYTES: u64 = 0x7000_0000;
/// Left free on both sides.
const MARGIN_BYTES: u64 = 1 << 16;

const _: () = {
    assert!(ENTRIES_AT + ENTRY_BYTES * MOST_DETOURS as u64 <= SLOTS_AT);
    assert!(SLOTS_AT + 8 * MOST_DETOURS as u64 <= PAGE_BYTES);
};

/// A region of a process.
#[derive(Debug)]
pub struct Region {
    /// Its address there.
    pub address: u64,
    code_bytes: u64,
    map: MmapRaw,
}

impl Region {
    /// Maps the file that the process has mapped at `address`.
    pub fn new(address: u64, code_bytes: u64, file: &File) -> io::Result<Self> {
        let map = MmapOptions::new().len((code_bytes + DATA_BYTES) as usize).map_raw(file)?;
        let region = Self { address, code_bytes, map };
        region.write(0, &MAGIC.to_le_bytes());
        region.write(8, &VERSION.to_le_bytes());
        Ok(region)
    }

    /// Writes into a part that the process does not use yet.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        assert!(at + bytes.len() as u64 <= self.code_bytes, "code has its room");
        // SAFETY: inside the mapping, as just seen; nobody reads it meanwhile.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.map.as_mut_ptr().add(at as usize),
                bytes.len(),
            );
        }
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.code_bytes + DATA_BYTES);
        // SAFETY: aligned, and inside the mapping; the process uses such words whole, too.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(at as usize).cast()) }
    }

    /// Notes what stands in the place of a detour's jump.
    pub fn note(&self, detour: usize, place: u64, bytes: &[u8]) {
        let mut before = [0; 8];
        before[..JUMP_BYTES].copy_from_slice(&bytes[..JUMP_BYTES]);
        let at = ENTRIES_AT + ENTRY_BYTES * detour as u64;
        self.word(at).store(place, Ordering::Relaxed);
        self.word(at + 8).store(u64::from_le_bytes(before), Ordering::Relaxed);
        self.word(16).fetch_max(detour as u64 + 1, Ordering::Release);
    }

    /// Makes a detour's stub; its address in the process.
    pub fn stub(&self, detour: usize) -> u64 {
        let at = STUBS_AT + STUB_BYTES * detour as u64;
        let distance = (SLOTS_AT + 8 * detour as u64) as i64 - (at as i64 + 6);
        // jmp [rip + distance]
        let mut code = [0xff, 0x25, 0, 0, 0, 0];
        code[2..].copy_from_slice(&(distance as i32).to_le_bytes());
        self.write(at, &code);
        self.address + at
    }

    /// From now on a detour's stub leads to this address in the process.
    pub fn lead(&self, detour: usize, to: u64) {
        self.word(SLOTS_AT + 8 * detour as u64).store(to, Ordering::Release);
    }

    /// Address in the process of a detour's table of counters, and of one that nobody reads.
    pub fn tables(&self, detour: usize) -> [u64; 2] {
        let first = self.address + self.code_bytes + 2 * TABLE_BYTES * detour as u64;
        [first, first + TABLE_BYTES]
    }

    /// How often a detour has counted.
    pub fn count(&self, detour: usize) -> u64 {
        let first = self.code_bytes + 2 * TABLE_BYTES * detour as u64;
        let words = (0..COUNTERS as u64).map(|counter| self.word(first + 8 * counter));
        words.map(|word| word.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

/// A jump from one address to another; None: too far.
pub fn jump(from: u64, to: u64) -> Option<[u8; JUMP_BYTES]> {
    let distance = (to as i64).wrapping_sub(from as i64 + JUMP_BYTES as i64);
    let distance = i32::try_from(distance).ok()?.to_le_bytes();
    let mut jump = [0xe9; JUMP_BYTES];
    jump[1..].copy_from_slice(&distance);
    Some(jump)
}

/// Where the jump goes that stands at `from`; None: none does.
fn jump_target(from: u64, bytes: &[u8; JUMP_BYTES]) -> Option<u64> {
    let [0xe9, distance @ ..] = bytes else { return None };
    Some((from + JUMP_BYTES as u64).wrapping_add_signed(i32::from_le_bytes(*distance).into()))
}

/// What a region that is in a process, at `range`, has changed in its code: place, the jump that stands there now, and
/// what stood there. `read` reads the process's memory.
pub fn changes(
    range: (u64, u64),
    mut read: impl FnMut(u64, &mut [u8]) -> bool,
) -> Vec<(u64, [u8; JUMP_BYTES], [u8; JUMP_BYTES])> {
    let mut head = vec![0; SLOTS_AT as usize];
    if !read(range.0, &mut head) {
        return Vec::new();
    }
    let words: Vec<u64> = head.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    if (words[0], words[1]) != (MAGIC, VERSION) {
        return Vec::new();
    }
    let first = (ENTRIES_AT / 8) as usize;
    let entries = words[first..].as_chunks::<2>().0.iter().take((words[2] as usize).min(MOST_DETOURS));
    entries
        .filter_map(|&[place, before]| {
            let mut now = [0; JUMP_BYTES];
            let target = read(place, &mut now).then(|| jump_target(place, &now))??;
            let mut original = [0; JUMP_BYTES];
            original.copy_from_slice(&before.to_le_bytes()[..JUMP_BYTES]);
            (range.0..range.1).contains(&target).then_some((place, now, original))
        })
        .collect()
}

/// Places for so many bytes within jumps' reach of some code, among a process's mappings: the nearest first, those below
/// before those above, where a program's heap grows.
pub fn free_places(mappings: &[(u64, u64)], code: (u64, u64), bytes: u64) -> Vec<u64> {
    let mut sorted = mappings.to_vec();
    sorted.sort_unstable();
    let starts = std::iter::once(0).chain(sorted.iter().map(|mapping| mapping.1));
    let ends = sorted.iter().map(|mapping| mapping.0).chain(std::iter::once(1 << 47));
    let mut places: Vec<(bool, u64, u64)> = starts
        .zip(ends)
        .filter_map(|(start, end)| {
            let (low, high) = (start + MARGIN_BYTES, end.checked_sub(bytes + MARGIN_BYTES)?);
            if low > high {
                return None;
            }
            let is_above = start >= code.1;
            let place = if is_above { low.next_multiple_of(PAGE_BYTES) } else { high & !(PAGE_BYTES - 1) };
            let farthest = (place + bytes).abs_diff(code.0).max(code.1.abs_diff(place));
            (place >= low && farthest < REACH_BYTES).then_some((is_above, farthest, place))
        })
        .collect();
    places.sort_unstable();
    places.into_iter().map(|(_, _, place)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_near_and_below_first() {
        const MIB: u64 = 1 << 20;
        let mappings = [(100 * MIB, 101 * MIB), (0x5000_0000_0000, 0x5000_0010_0000), (8 * MIB, 9 * MIB)];
        let places = free_places(&mappings, (100 * MIB, 101 * MIB), MIB);
        // Just below the code, below the other mapping, above the code.
        assert_eq!(places, [99 * MIB - MARGIN_BYTES, 7 * MIB - MARGIN_BYTES, 101 * MIB + MARGIN_BYTES]);
        assert!(free_places(&[(0, 1 << 47)], (MIB, 2 * MIB), MIB).is_empty());
    }

    #[test]
    fn jumps_are_found_again() {
        let forwards = jump(0x1000, 0x2000).expect("near");
        assert_eq!(forwards, [0xe9, 0xfb, 0x0f, 0, 0]);
        assert_eq!(jump_target(0x1000, &forwards), Some(0x2000));
        let backwards = jump(0x2000, 0x1000).expect("near");
        assert_eq!(jump_target(0x2000, &backwards), Some(0x1000));
        assert_eq!(jump(0, 1 << 32), None);
        assert_eq!(jump_target(0, &[0x90; 5]), None);
    }

    #[test]
    fn what_was_changed_can_be_read_from_the_process() {
        let file = tempfile::tempfile().expect("a file");
        let code_bytes = 2 * PAGE_BYTES;
        file.set_len(code_bytes + DATA_BYTES).expect("room");
        let region = Region::new(0x10_0000, code_bytes, &file).expect("mapped");
        let stub = region.stub(1);
        region.note(0, 0x9000, &[1, 2, 3, 4, 5]);
        region.note(1, 0xa000, &[6, 7, 8, 9, 10, 11]);
        let there = jump(0xa000, stub).expect("near");
        let mut head = vec![0; SLOTS_AT as usize];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut head, 0).expect("written");
        let read = |address: u64, into: &mut [u8]| {
            match address {
                0x10_0000 => into.copy_from_slice(&head),
                0xa000 => into.copy_from_slice(&there),
                // Somebody else's jump.
                _ => into.copy_from_slice(&[0xe9, 0, 0, 0, 0]),
            }
            true
        };
        let range = (0x10_0000, 0x10_0000 + code_bytes);
        assert_eq!(changes(range, read), [(0xa000, there, [6, 7, 8, 9, 10])]);
        assert!(
            changes(range, |_, into| {
                into.fill(0);
                true
            })
            .is_empty(),
            "another file of that name"
        );
    }

    #[test]
    fn counters_of_all_threads_are_added_up() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(PAGE_BYTES + DATA_BYTES).expect("room");
        let region = Region::new(0x10_0000, PAGE_BYTES, &file).expect("mapped");
        let [mine, _] = region.tables(3);
        for (counter, count) in [(0, 5_u64), (255, 7)] {
            let at = mine - region.address + 8 * counter;
            std::os::unix::fs::FileExt::write_all_at(&file, &count.to_le_bytes(), at).expect("written");
        }
        assert_eq!([region.count(2), region.count(3)], [0, 12]);
    }
}

//! How much of a range a process has touched.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::PAGE_BYTES;

/// An entry of the page map a page (Documentation/admin-guide/mm/pagemap.rst).
const ENTRY_BYTES: u64 = 8;
/// Entries read at a time: as many as a page of page tables has.
const ENTRIES: u64 = 512;
/// So many times at most; of larger ranges, places at equal distances.
const MOST_READS: u64 = 256;
/// Bits of an entry: the page is in memory, or swapped out.
const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;

/// Of a range, how many bytes have pages: written, or, before that, read: then it is the kernel's page of zeros, which counts nowhere as
/// resident. Huge pages count as a whole; what is swapped out counts, of memory that is shared or a file's it does not.
///
/// Of more than 512 MB one place in so many is looked at. Cost: some microseconds for each 2 MB, 5 ms at most.
///
/// # Errors
///
/// `PermissionDenied` without the right to trace the process (ptrace(2)), others if it has ended or the range is none.
pub fn touched_bytes(pid: u32, start: u64, end: u64) -> io::Result<u64> {
    let bytes = end.checked_sub(start).ok_or(io::ErrorKind::InvalidInput)?;
    let map = File::open(format!("/proc/{pid}/pagemap"))?;
    let [first, last] = [start / PAGE_BYTES, end.div_ceil(PAGE_BYTES)];
    let stretches = (last - first).div_ceil(ENTRIES);
    let reads = stretches.min(MOST_READS);
    let (mut touched, mut seen) = (0, 0);
    let mut entries = [0; (ENTRIES * ENTRY_BYTES) as usize];
    for read in 0..reads {
        // In the middle of its part.
        let page = first + (2 * read + 1) * stretches / (2 * reads) * ENTRIES;
        let wanted = ENTRIES.min(last - page);
        let some = &mut entries[..(wanted * ENTRY_BYTES) as usize];
        map.read_exact_at(some, page * ENTRY_BYTES)?;
        let (words, _) = some.as_chunks::<{ ENTRY_BYTES as usize }>();
        let has_page = |entry: &&[u8; 8]| u64::from_ne_bytes(**entry) & PRESENT_OR_SWAPPED != 0;
        touched += words.iter().filter(has_page).count() as u64;
        seen += wanted;
    }
    let all = u128::from(touched) * u128::from(PAGE_BYTES) * u128::from(last - first);
    Ok((all.checked_div(seen.into()).unwrap_or(0) as u64).min(bytes))
}

#[cfg(test)]
mod tests {
    use memmap2::{Advice, MmapOptions};

    use super::*;

    /// Pages that were read count like those that were written; of large ranges a part tells of all.
    #[test]
    fn what_was_read_was_touched() {
        for mib in [64, 2048] {
            let map = MmapOptions::new().len(mib << 20).no_reserve_swap().map_anon().expect("mapped");
            if map.advise(Advice::NoHugePage).is_err() {
                return;
            }
            let start = map.as_ptr().addr() as u64;
            let touched =
                || touched_bytes(std::process::id(), start, start + map.len() as u64).expect("our own");
            assert_eq!(touched(), 0);
            // The first half of it.
            let half = std::hint::black_box(&map[..map.len() / 2]);
            assert_eq!(half.iter().step_by(PAGE_BYTES as usize).max(), Some(&0));
            assert_eq!(touched(), half.len() as u64, "{mib} MiB");
        }
        let own = std::process::id();
        assert!(touched_bytes(own, 8192, 8192).is_ok_and(|bytes| bytes == 0));
        assert!(
            touched_bytes(own, 8200, 8193).is_err()
                && touched_bytes(own, u64::MAX - 8192, u64::MAX - 1).is_err()
        );
        assert!(touched_bytes(u32::MAX, 0, 4096).is_err(), "no process has this number");
    }
}

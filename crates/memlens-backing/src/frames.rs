//! Which physical frame a page of a process lies in (proc_pid_pagemap(5)).

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use thiserror::Error;

use crate::{PAGE_BYTES, scan};

/// Bits of a word of the page map: in memory, a file's or shared memory, swapped out; the frame's number.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const FILE: u64 = 1 << 61;
const FRAME: u64 = (1 << 55) - 1;

/// Why frames cannot be read. Reads after "failed to".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The page map is missing or may not be read.
    #[error("read /proc/PID/pagemap: this kernel or container does not show it")]
    NoPageMap,
    /// The kernel says 0 for each frame.
    #[error(
        "read frame numbers: the kernel shows them to processes with CAP_SYS_ADMIN only; run memlens as root"
    )]
    NoPermission,
}

/// Where a page lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Number of the page's own frame of [`PAGE_BYTES`], in a larger page, too.
    pub number: u64,
    /// The page is part of a larger one that is mapped as a whole; false where the kernel does not tell.
    pub is_huge: bool,
    /// The page is a file's or shared memory, not the process's own.
    pub is_file: bool,
}

/// Reads frames of running processes. Two system calls a page.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// Page maps, by process; None: there is none, or it has ended.
    maps: HashMap<u32, Option<File>>,
}

impl FrameReader {
    /// A reader, if frames can be read here: tried with a page of this process.
    ///
    /// # Errors
    /// See [`FrameError`].
    pub fn new() -> Result<Self, FrameError> {
        let own = Box::new(1_u8);
        let map = File::open("/proc/self/pagemap").map_err(|_| FrameError::NoPageMap)?;
        let word = word(&map, (&raw const *own).addr() as u64 / PAGE_BYTES).ok_or(FrameError::NoPageMap)?;
        match word & PRESENT != 0 && word & FRAME == 0 {
            true => Err(FrameError::NoPermission),
            false => Ok(Self::default()),
        }
    }

    /// Where a page (address ÷ [`PAGE_BYTES`]) of a process lies now; None: it is not in memory, it is the shared page
    /// of zeros, or the process is gone.
    pub fn frame(&mut self, pid: u32, page: u64) -> Option<Frame> {
        let map = self.maps.entry(pid).or_insert_with(|| File::open(format!("/proc/{pid}/pagemap")).ok());
        let map = map.as_ref()?;
        let word = word(map, page)?;
        let number = word & FRAME;
        if word & PRESENT == 0 || word & SWAPPED != 0 || number == 0 {
            return None;
        }
        let (mut is_huge, mut is_zero) = (false, false);
        // Before Linux 6.7: whether the page is part of a larger one is not told.
        let _ = scan::scan(map, page * PAGE_BYTES, (page + 1) * PAGE_BYTES, |region| {
            is_huge |= region.categories & scan::HUGE != 0;
            is_zero |= region.categories & scan::ZERO != 0;
        });
        (!is_zero).then_some(Frame { number, is_huge, is_file: word & FILE != 0 })
    }

    /// The process has ended or executes another program: its page map is another one.
    pub fn forget(&mut self, pid: u32) {
        self.maps.remove(&pid);
    }
}

fn word(map: &File, page: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    map.read_exact_at(&mut bytes, page.checked_mul(8)?).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

/// Where this machine's physical memory ends, in bytes (`/proc/zoneinfo`); None if the kernel does not tell.
pub fn memory_bytes() -> Option<u64> {
    end_of_zones(&fs::read_to_string("/proc/zoneinfo").ok()?)
        .checked_mul(PAGE_BYTES)
        .filter(|&bytes| bytes > 0)
}

/// The frame behind the last zone: a zone's `spanned` comes before its `start_pfn`.
fn end_of_zones(text: &str) -> u64 {
    let (mut spanned, mut end) = (0, 0);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next().and_then(|word| word.parse::<u64>().ok())) {
            (Some("spanned"), Some(frames)) => spanned = frames,
            (Some("start_pfn:"), Some(start)) if spanned > 0 => end = end.max(start + spanned),
            _ => {}
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use memmap2::MmapMut;

    #[test]
    fn zones_end_where_the_last_one_with_frames_does() {
        let text = "Node 0, zone DMA\n  pages free 3840\n        spanned  4095\n  start_pfn:           1\n\
                    Node 0, zone Normal\n        spanned  5505024\n  start_pfn:           1048576\n\
                    Node 0, zone Movable\n        spanned  0\n  start_pfn:           9999999\n";
        assert_eq!(end_of_zones(text), 1_048_576 + 5_505_024);
        assert_eq!(end_of_zones(""), 0);
    }

    /// Holds with and without the right to see frames.
    #[test]
    fn own_pages_have_frames_once_they_are_written() {
        let mut reader = match FrameReader::new() {
            Ok(reader) => reader,
            Err(error) => {
                assert_eq!(error, FrameError::NoPermission);
                return;
            }
        };
        let mut map = MmapMut::map_anon(4 * PAGE_BYTES as usize).expect("mapped");
        let first = map.as_ptr().addr() as u64 / PAGE_BYTES;
        let pid = std::process::id();
        assert_eq!(reader.frame(pid, first), None, "not touched");
        map[0] = 1;
        map[PAGE_BYTES as usize] = 1;
        let frames = [first, first + 1].map(|page| reader.frame(pid, page).expect("written"));
        assert!(frames.iter().all(|frame| !frame.is_file), "{frames:?}");
        assert_ne!(frames[0].number, frames[1].number);
        assert!(frames.iter().all(|frame| frame.number * PAGE_BYTES < memory_bytes().expect("told")));
        // Read only: the page of zeros, which is no frame of its own.
        assert_eq!(std::hint::black_box(map[2 * PAGE_BYTES as usize]), 0);
        assert_eq!(reader.frame(pid, first + 2), None);
        let code = own_pages_have_frames_once_they_are_written as *const () as u64 / PAGE_BYTES;
        assert!(reader.frame(pid, code).is_none_or(|frame| frame.is_file));
    }
}

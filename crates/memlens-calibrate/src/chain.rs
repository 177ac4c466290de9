//! Memory in which each line names the next: what a load-to-use latency is measured on.
//!
//! All lines of a chain make one cycle in random order, so neither the processor's prefetchers nor its
//! prediction of addresses can run ahead, and each step waits for the one before.
#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::ptr;

/// Bytes of a line, and of a step of the chain.
pub const LINE: usize = 64;
/// Bytes of an ordinary page, and of a huge one.
pub const PAGE: usize = 4 << 10;
/// Bytes of a huge page.
pub const HUGE_PAGE: usize = 2 << 20;

/// Which pages a chain lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Of 4 KB.
    Small,
    /// Of 2 MB, as the kernel gives them on `madvise`.
    Huge,
}

/// A chain of lines.
#[derive(Debug)]
pub struct Chain {
    memory: *mut u8,
    mapped_bytes: usize,
    /// The offset of the line that is next.
    at: *const usize,
}

impl Chain {
    /// A chain over lines at the given offsets from the start of a mapping of `bytes`. Offsets are
    /// multiples of 8 below `bytes`, each once.
    ///
    /// # Errors
    /// If there is no memory, or ([`Pages::Huge`]) the kernel gives no huge pages.
    pub fn new(bytes: usize, offsets: &[usize], pages: Pages) -> io::Result<Self> {
        let fits = |offset: &usize| offset.is_multiple_of(8) && *offset + 8 <= bytes;
        if offsets.is_empty() || !offsets.iter().all(fits) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let mapped_bytes = bytes.next_multiple_of(HUGE_PAGE) + HUGE_PAGE;
        // SAFETY: a new private mapping, wherever the kernel likes.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mut chain = Self { memory: memory.cast(), mapped_bytes, at: ptr::null() };
        let advice = match pages {
            Pages::Small => libc::MADV_NOHUGEPAGE,
            Pages::Huge => libc::MADV_HUGEPAGE,
        };
        // SAFETY: the mapping is ours and of that length. A kernel without huge pages refuses, which
        // leaves small ones: seen below.
        unsafe { libc::madvise(memory, mapped_bytes, advice) };
        let start = chain.memory.align_offset(HUGE_PAGE);
        // SAFETY: the mapping is a huge page longer than needed, so that its first aligned address and
        // `bytes` behind it lie inside.
        let base = unsafe { chain.memory.add(start) };
        let mut order: Vec<usize> = offsets.to_vec();
        shuffle(&mut order);
        for (index, &offset) in order.iter().enumerate() {
            let next = order[(index + 1) % order.len()];
            // SAFETY: both offsets are inside of the mapping and aligned, as was checked above.
            unsafe { base.add(offset).cast::<usize>().write(base.add(next) as usize) };
        }
        // SAFETY: as above.
        chain.at = unsafe { base.add(order[0]).cast() };
        if pages == Pages::Huge && huge_bytes(base as usize) < bytes as u64 / 2 {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel gave no huge pages"));
        }
        Ok(chain)
    }

    /// A chain over all lines of `bytes`.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub fn over(bytes: usize, pages: Pages) -> io::Result<Self> {
        let offsets: Vec<usize> = (0..bytes / LINE).map(|line| line * LINE).collect();
        Self::new(bytes, &offsets, pages)
    }

    /// A chain with one line in each of `count` ordinary pages, each another line of its page.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub fn over_pages(count: usize, pages: Pages) -> io::Result<Self> {
        let offsets: Vec<usize> = (0..count).map(|page| page * PAGE + page * LINE % PAGE).collect();
        Self::new(count * PAGE, &offsets, pages)
    }

    /// Follows the chain for `steps` × 16 lines.
    pub fn walk(&mut self, steps: usize) {
        let mut at = self.at;
        for _ in 0..steps {
            for _ in 0..16 {
                // SAFETY: every line of the chain holds the address of a line of the chain, in the
                // mapping that lives as long as `self`.
                at = unsafe { at.read_volatile() } as *const usize;
            }
        }
        self.at = at;
    }

    /// The first address that the chain may use.
    pub fn first(&self) -> *const usize {
        let start = self.memory.align_offset(HUGE_PAGE);
        self.memory.wrapping_add(start).cast_const().cast()
    }

    /// The address of the line that is next: for code that follows the chain itself.
    pub fn here(&self) -> *const usize {
        self.at
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing uses any more.
        unsafe { libc::munmap(self.memory.cast(), self.mapped_bytes) };
    }
}

/// Into an order that looks random and is the same every time (R. A. Fisher and F. Yates; G. Marsaglia's
/// xorshift).
fn shuffle(order: &mut [usize]) {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for last in (1..order.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(last, (state % (last as u64 + 1)) as usize);
    }
}

/// Bytes of huge pages in the mapping around an address (proc_pid_smaps(5)).
fn huge_bytes(address: usize) -> u64 {
    let text = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let mut is_ours = false;
    for line in text.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let hex = |text: &str| usize::from_str_radix(text, 16).ok();
        if let Some((start, end)) = range
            && let (Some(start), Some(end)) = (hex(start), hex(end))
        {
            is_ours = (start..end).contains(&address);
        } else if is_ours && let Some(size) = line.strip_prefix("AnonHugePages:") {
            return size.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap_or(0) << 10;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_passes_every_line_once_before_it_comes_back() {
        let mut chain = Chain::over(64 * LINE, Pages::Small).expect("memory");
        let first = chain.here();
        let mut seen = std::collections::BTreeSet::new();
        // 4 × 16 = 64 lines.
        for step in 1..=4 {
            assert!(seen.insert(chain.here()), "back after {step} steps");
            chain.walk(1);
        }
        assert_eq!(chain.here(), first);
    }

    #[test]
    fn offsets_outside_are_refused() {
        assert!(Chain::new(64, &[64], Pages::Small).is_err());
        assert!(Chain::new(64, &[4], Pages::Small).is_err());
        assert!(Chain::new(64, &[], Pages::Small).is_err());
    }

    #[test]
    fn pages_have_a_line_each() {
        let chain = Chain::over_pages(128, Pages::Small).expect("memory");
        assert_eq!(chain.here() as usize % 8, 0);
    }
}

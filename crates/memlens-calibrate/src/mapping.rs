//! Memory in pages of a chosen size.
#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::ptr;

/// Bytes of a line.
pub const LINE: usize = 64;
/// Bytes of an ordinary page.
pub const PAGE: usize = 4 << 10;
/// Bytes of a huge page.
pub const HUGE_PAGE: usize = 2 << 20;

/// Which pages memory lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Of 4 KB.
    Small,
    /// Of 2 MB, as the kernel gives them on `madvise`.
    Huge,
    /// Those that the kernel gives to who does not ask: where transparent huge pages are for all memory (`always`), mostly huge ones.
    Usual,
}

/// Memory of this process alone, which begins with a huge page.
#[derive(Debug)]
pub(crate) struct Mapping {
    mapped: *mut u8,
    mapped_bytes: usize,
    bytes: usize,
}

impl Mapping {
    /// So many bytes, untouched.
    ///
    /// # Errors
    /// If there is no memory.
    pub(crate) fn new(bytes: usize, pages: Pages) -> io::Result<Self> {
        let mapped_bytes = bytes.next_multiple_of(HUGE_PAGE) + HUGE_PAGE;
        // SAFETY: a new private mapping, wherever the kernel likes.
        let mapped = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let advice = match pages {
            Pages::Small => Some(libc::MADV_NOHUGEPAGE),
            Pages::Huge => Some(libc::MADV_HUGEPAGE),
            Pages::Usual => None,
        };
        if let Some(advice) = advice {
            // SAFETY: the mapping is ours and of that length. A kernel without huge pages refuses, which
            // leaves small ones: `huge_bytes` tells.
            unsafe { libc::madvise(mapped, mapped_bytes, advice) };
        }
        Ok(Self { mapped: mapped.cast(), mapped_bytes, bytes })
    }

    /// The first of its bytes: of a huge page.
    pub(crate) fn base(&self) -> *mut u8 {
        // Mapped is a huge page more than is asked for.
        self.mapped.wrapping_add(self.mapped.align_offset(HUGE_PAGE))
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Refuses memory that has been written and of which the kernel gave less than half as huge pages.
    ///
    /// # Errors
    /// If so.
    pub(crate) fn check_huge(&self) -> io::Result<()> {
        match huge_bytes(self.base() as usize) < self.bytes as u64 / 2 {
            true => Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel gave no huge pages")),
            false => Ok(()),
        }
    }

    /// Takes the lines at these offsets out of all caches of the machine; false: this processor has no instruction for it. Cost: that of
    /// writing each to memory.
    pub(crate) fn flush(&self, offsets: impl Iterator<Item = usize>) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_mm_clflush, _mm_mfence};
            // What was written lies in the caches before, what is read comes after.
            let fence = || {
                // SAFETY: every processor of x86-64 has SSE2.
                unsafe { _mm_mfence() }
            };
            fence();
            for offset in offsets {
                // SAFETY: as above; the lengths of mappings are no less than a line, and the remainder lies inside.
                unsafe { _mm_clflush(self.base().wrapping_add(offset % self.bytes)) };
            }
            fence();
            true
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = offsets;
            false
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing uses any more.
        unsafe { libc::munmap(self.mapped.cast(), self.mapped_bytes) };
    }
}

/// What the calling thread touches first from now on comes from this memory node, if there is room.
///
/// # Errors
/// Those of set_mempolicy(2): no such node, or one that a control group forbids.
pub(crate) fn prefer_node(node: u32) -> io::Result<()> {
    /// `MAX_NUMNODES` of kernels that are built for the largest machines.
    const MOST_NODES: u32 = 1024;
    let mut nodes = [0_u64; (MOST_NODES / u64::BITS) as usize];
    let word = nodes.get_mut((node / u64::BITS) as usize).ok_or(io::ErrorKind::InvalidInput)?;
    *word = 1 << (node % u64::BITS);
    // SAFETY: the kernel reads as many bits as it is told, one less than the number says; nothing but where new pages come from changes.
    let done = unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            libc::MPOL_PREFERRED,
            nodes.as_ptr(),
            u64::from(MOST_NODES) + 1,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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

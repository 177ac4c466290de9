//! A ring that the kernel fills: `perf_event_mmap_page` and what follows it (perf_event_open(2),
//! "MMAP layout").
//!
//! ```text
//!  page 0      head (the kernel's) … tail (ours)
//!  2ⁿ pages    records, wrapped around
//! ```
//!
//! The kernel drops records rather than overwrite what has not been taken, and says how many.
//!
//! A ring belongs to the event it was mapped for; other events of the same processor may write to it.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;
use perf_event_open_sys::ioctls;

/// Bytes of `struct perf_event_header`: type, misc, size.
const HEADER_BYTES: usize = 8;

/// Sizes that are tried, in bytes. 512 KiB is what every user may lock (`perf_event_mlock_kb`).
const SIZES: [usize; 5] = [4 << 20, 2 << 20, 512 << 10, 256 << 10, SMALLEST];
/// The smallest of them.
pub const SMALLEST: usize = 64 << 10;

/// One ring, unmapped when dropped.
#[derive(Debug)]
pub struct Ring {
    owner: OwnedFd,
    page: *mut perf_event_mmap_page,
    length: usize,
    data: *const u8,
    data_bytes: usize,
    /// A record that wraps around is put together here.
    scratch: Vec<u8>,
}

// SAFETY: the mapping belongs to this value alone, and nothing in it is bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the largest ring that this user may lock, of so many bytes at most.
    ///
    /// # Errors
    /// Those of mmap(2): `EPERM` if even the smallest is too large.
    pub fn largest(owner: OwnedFd, most_bytes: usize) -> io::Result<Self> {
        // SAFETY: sysconf reads a constant of the system.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        for data_bytes in SIZES.into_iter().filter(|&bytes| bytes <= most_bytes.max(SMALLEST)) {
            let length = data_bytes + page_bytes;
            // SAFETY: a new mapping at an address of the kernel's choice.
            let page = unsafe {
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, owner.as_raw_fd(), 0)
            };
            if page != libc::MAP_FAILED {
                // SAFETY: the mapping is `page_bytes` longer than the data.
                let data = unsafe { page.cast::<u8>().add(page_bytes) };
                return Ok(Self { owner, page: page.cast(), length, data, data_bytes, scratch: Vec::new() });
            }
        }
        Err(io::Error::last_os_error())
    }

    /// Lets the event that it belongs to count.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: our descriptor.
        match unsafe { ioctls::ENABLE(self.owner(), 0) } {
            answer if answer < 0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Stops it.
    pub fn disable(&self) {
        // SAFETY: our descriptor.
        unsafe { ioctls::DISABLE(self.owner(), 0) };
    }

    /// The event it belongs to: readable when the ring is half full.
    pub fn owner(&self) -> RawFd {
        self.owner.as_raw_fd()
    }

    /// Hands every record that is there to `each`: type, misc, bytes behind the header. Returns how
    /// many bytes were taken.
    pub fn drain(&mut self, mut each: impl FnMut(u32, u16, &[u8])) -> usize {
        // SAFETY: the page lives as long as `self`; head and tail are aligned words of it that kernel
        // and we share, so they are accessed as atomics only.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*self.page).data_head),
                AtomicU64::from_ptr(&raw mut (*self.page).data_tail),
            )
        };
        // Pairs with the kernel's barrier before it writes the head.
        let end = head.load(Ordering::Acquire);
        let start = tail.load(Ordering::Relaxed);
        let mut at = start;
        while end.wrapping_sub(at) >= HEADER_BYTES as u64 {
            let header = self.copy(at, HEADER_BYTES);
            let record_type = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            let misc = u16::from_le_bytes([header[4], header[5]]);
            let size = usize::from(u16::from_le_bytes([header[6], header[7]]));
            if size < HEADER_BYTES || size as u64 > end.wrapping_sub(at) {
                // Cannot be; nothing behind it can be found.
                at = end;
                break;
            }
            let body = self.copy(at + HEADER_BYTES as u64, size - HEADER_BYTES);
            each(record_type, misc, body);
            at += size as u64;
            // Room for the kernel as soon as possible.
            tail.store(at, Ordering::Release);
        }
        tail.store(at, Ordering::Release);
        at.wrapping_sub(start) as usize
    }

    /// `length` bytes from position `at` on.
    fn copy(&mut self, at: u64, length: usize) -> &[u8] {
        let from = (at % self.data_bytes as u64) as usize;
        let first = length.min(self.data_bytes - from);
        self.scratch.clear();
        // SAFETY: both parts lie inside the data area, and the kernel does not write between tail and
        // head, where they are.
        unsafe {
            self.scratch.extend_from_slice(std::slice::from_raw_parts(self.data.add(from), first));
            self.scratch.extend_from_slice(std::slice::from_raw_parts(self.data, length - first));
        }
        &self.scratch
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: our mapping, not used afterwards.
        unsafe { libc::munmap(self.page.cast(), self.length) };
    }
}

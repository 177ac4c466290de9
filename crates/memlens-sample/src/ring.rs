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
//!
//! Beside it there can be an *AUX area*, which hardware writes to: records in the ring say what of it. It is mapped through an event
//! that has such hardware and writes to the ring already, behind the ring's bytes.
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

/// Sizes of an AUX area that are tried, in pages: powers of two, and two at least.
const AUX_PAGES: [usize; 4] = [64, 16, 4, 2];
/// More bytes are not, where two pages are less: of what every user may lock the ring needs its part.
const MOST_AUX_BYTES: usize = 256 << 10;

/// How often is looked for bytes that a record announces: some microseconds.
const MOST_LOOKS: usize = 1000;

/// Memory that hardware writes to.
#[derive(Debug)]
struct AuxArea {
    data: *mut libc::c_void,
    bytes: usize,
}

/// What is in an AUX area where a record announces something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// They have not been handed over yet.
    Later,
    /// They are not there, or not any more.
    Gone,
}

/// Bytes of the AUX areas that are tried on a machine with such pages, largest first.
fn aux_sizes(page_bytes: usize) -> impl Iterator<Item = usize> {
    let most = MOST_AUX_BYTES.max(2 * page_bytes);
    AUX_PAGES.into_iter().map(move |pages| pages * page_bytes).filter(move |&bytes| bytes <= most)
}

/// One ring, unmapped when dropped.
#[derive(Debug)]
pub struct Ring {
    owner: OwnedFd,
    page: *mut perf_event_mmap_page,
    length: usize,
    data: *const u8,
    data_bytes: usize,
    aux: Option<AuxArea>,
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
                let page = page.cast();
                return Ok(Self { owner, page, length, data, data_bytes, aux: None, scratch: Vec::new() });
            }
        }
        Err(io::Error::last_os_error())
    }

    /// Maps the largest AUX area that this user may lock, if there is none yet. `event` has hardware that writes to one, and
    /// writes to this ring.
    ///
    /// # Errors
    /// Those of mmap(2): `EPERM` if even the smallest is too large; `EOPNOTSUPP` if the event has no such hardware.
    pub fn map_aux(&mut self, event: RawFd) -> io::Result<()> {
        if self.aux.is_some() {
            return Ok(());
        }
        let page_bytes = self.length - self.data_bytes;
        let offset =
            libc::off_t::try_from(self.length).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        for bytes in aux_sizes(page_bytes) {
            // SAFETY: the page lives as long as `self`. The kernel reads these fields when the area is mapped, which no
            // other thread does; they are written as atomics because the page is shared.
            unsafe {
                AtomicU64::from_ptr(&raw mut (*self.page).aux_offset)
                    .store(self.length as u64, Ordering::Relaxed);
                AtomicU64::from_ptr(&raw mut (*self.page).aux_size).store(bytes as u64, Ordering::Relaxed);
            }
            // Writable: the kernel does not overwrite what has not been taken.
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping at an address of the kernel's choice.
            let data =
                unsafe { libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, event, offset) };
            if data != libc::MAP_FAILED {
                self.aux = Some(AuxArea { data, bytes });
                return Ok(());
            }
        }
        Err(io::Error::last_os_error())
    }

    /// Head and tail of the AUX area.
    fn aux_ends(&self) -> (&AtomicU64, &AtomicU64) {
        // SAFETY: as in `drain`, of the same page.
        unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*self.page).aux_head),
                AtomicU64::from_ptr(&raw mut (*self.page).aux_tail),
            )
        }
    }

    /// What the hardware wrote to the AUX area from position `offset` on, of all that it ever wrote there; makes room for as much.
    pub fn take_aux(&mut self, offset: u64, size: u64) -> Announced<'_> {
        let Some(&AuxArea { data, bytes }) = self.aux.as_ref() else { return Announced::Gone };
        let Some(end) = offset.checked_add(size) else { return Announced::Gone };
        let (head, tail) = self.aux_ends();
        // The kernel writes the record, and the head right behind it, with interrupts off.
        let mut heads = std::iter::repeat_with(|| head.load(Ordering::Acquire)).take(MOST_LOOKS);
        let head_at = heads.find(|&head_at| {
            std::hint::spin_loop();
            head_at >= end
        });
        let Some(head_at) = head_at else { return Announced::Later };
        let tail_at = tail.load(Ordering::Relaxed);
        if offset < tail_at || head_at - tail_at > bytes as u64 {
            return Announced::Gone;
        }
        let from = (offset % bytes as u64) as usize;
        let first = (size as usize).min(bytes - from);
        self.scratch.clear();
        // SAFETY: both parts lie inside the area, and the hardware does not write between tail and head, where they are.
        unsafe {
            let data = data.cast::<u8>().cast_const();
            self.scratch.extend_from_slice(std::slice::from_raw_parts(data.add(from), first));
            self.scratch.extend_from_slice(std::slice::from_raw_parts(data, size as usize - first));
        }
        self.aux_ends().1.store(end, Ordering::Release);
        Announced::Bytes(&self.scratch)
    }

    /// Makes room of all that was handed over and not taken: the record that announced it was dropped. Whether there was any.
    pub fn skip_aux(&mut self) -> bool {
        if self.aux.is_none() {
            return false;
        }
        let (head, tail) = self.aux_ends();
        let head_at = head.load(Ordering::Acquire);
        tail.swap(head_at, Ordering::Release) != head_at
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

    /// Records of another event of the processor are written here. Returns the event's number.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn take_records_of(&self, event: &OwnedFd) -> io::Result<u64> {
        let mut id = 0u64;
        // SAFETY: both are descriptors of ours; the first call writes one word to the variable.
        let is_done = unsafe {
            ioctls::ID(event.as_raw_fd(), &raw mut id) >= 0
                && ioctls::SET_OUTPUT(event.as_raw_fd(), self.owner()) >= 0
        };
        if is_done { Ok(id) } else { Err(io::Error::last_os_error()) }
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
        if let Some(aux) = self.aux.take() {
            // SAFETY: our mapping, not used afterwards.
            unsafe { libc::munmap(aux.data, aux.bytes) };
        }
        // SAFETY: our mapping, not used afterwards.
        unsafe { libc::munmap(self.page.cast(), self.length) };
    }
}

#[cfg(test)]
pub mod tests {
    use std::fs::File;
    use std::mem::offset_of;
    use std::os::fd::FromRawFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    /// A file in memory in the kernel's place: what is written to it, the ring sees.
    pub fn in_memory() -> (File, Ring) {
        // SAFETY: the name ends with a zero; a descriptor that comes back is ours.
        let file = unsafe {
            let descriptor = libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC);
            assert!(descriptor >= 0, "{}", io::Error::last_os_error());
            File::from_raw_fd(descriptor)
        };
        file.set_len(16 << 20).expect("room");
        let owner = file.try_clone().expect("another descriptor").into();
        (file, Ring::largest(owner, SMALLEST).expect("mapped"))
    }

    /// The kernel writes the first record, and has written so many bytes to the AUX area.
    pub fn write_first(file: &File, record: &[u8], aux_head: u64) {
        // SAFETY: sysconf reads a constant of the system.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
        file.write_all_at(record, page_bytes).expect("written");
        let (head, aux) =
            (offset_of!(perf_event_mmap_page, data_head), offset_of!(perf_event_mmap_page, aux_head));
        for (field, value) in [(head, record.len() as u64), (aux, aux_head)] {
            file.write_all_at(&value.to_le_bytes(), field as u64).expect("written");
        }
    }

    fn word(file: &File, field: usize) -> u64 {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, field as u64).expect("there");
        u64::from_le_bytes(word)
    }

    #[test]
    fn what_hardware_wrote_is_taken_once_and_around_the_end() {
        let (file, mut ring) = in_memory();
        let (head, tail) =
            (offset_of!(perf_event_mmap_page, aux_head), offset_of!(perf_event_mmap_page, aux_tail));
        let set = |field: usize, value: u64| {
            file.write_all_at(&value.to_le_bytes(), field as u64).expect("written");
        };
        assert_eq!(ring.take_aux(0, 0), Announced::Gone, "there is no area");
        assert!(!ring.skip_aux());
        ring.map_aux(ring.owner()).expect("mapped");
        let (start, bytes) = (
            word(&file, offset_of!(perf_event_mmap_page, aux_offset)),
            word(&file, offset_of!(perf_event_mmap_page, aux_size)),
        );
        assert_eq!(start as usize, ring.length);
        // A second time it is the same.
        ring.map_aux(-1).expect("there already");
        // The third time around; three bytes before the end, and three behind it.
        let at = 3 * bytes - 3;
        file.write_all_at(b"abc", start + bytes - 3).expect("written");
        file.write_all_at(b"def", start).expect("written");
        set(tail, at);
        assert_eq!(ring.take_aux(at, 6), Announced::Later, "nothing has been written");
        set(head, at + 6);
        assert_eq!(ring.take_aux(at - 1, 2), Announced::Gone, "it is not there any more");
        assert_eq!(ring.take_aux(at, 2), Announced::Bytes(b"ab"));
        assert_eq!(word(&file, tail), at + 2);
        assert_eq!(ring.take_aux(at + 2, 4), Announced::Bytes(b"cdef"));
        assert_eq!((word(&file, tail), ring.take_aux(u64::MAX, 2)), (at + 6, Announced::Gone));
        // Heads and tails that cannot be.
        set(head, at + 6 + 2 * bytes);
        assert_eq!(ring.take_aux(at + 6, bytes + 1), Announced::Gone);
        // Of what is there no record tells: there is room again.
        set(head, at + 6 + bytes);
        assert!(ring.skip_aux() && !ring.skip_aux());
        assert_eq!(word(&file, tail), at + 6 + bytes);
    }

    #[test]
    fn an_area_leaves_the_ring_its_part_whatever_a_page_is() {
        let sizes = |page_kib: usize| aux_sizes(page_kib << 10).map(|bytes| bytes >> 10).collect::<Vec<_>>();
        assert_eq!(sizes(4), [256, 64, 16, 8]);
        assert_eq!(sizes(16), [256, 64, 32]);
        assert_eq!(sizes(64), [256, 128]);
        assert_eq!(sizes(256), [512]);
    }

    #[test]
    fn without_such_hardware_there_is_no_area() {
        let Ok(event) = crate::event::open_ring_owner(0) else { return };
        let Ok(mut ring) = Ring::largest(event, SMALLEST) else { return };
        assert!(ring.map_aux(ring.owner()).is_err());
        assert_eq!(ring.take_aux(0, 0), Announced::Gone);
        // The ring is as it was.
        assert_eq!(ring.drain(|_, _, _| {}), 0);
    }
}

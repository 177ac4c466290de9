//! The mapped segment, reader's side.

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memlens_events::agent::{
    AgentRecord, Control, Head, Kind, MAGIC, PAGE_BYTES, RING_BYTES, RINGS, RingHeader, SEGMENT_BYTES,
    VERSION, ring_offset,
};
use memmap2::{MmapOptions, MmapRaw};

/// A writer that has not finished a record after so long has been killed in the middle of it.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(5);

/// A ring begins anew behind so many bytes, if all were read.
const ANEW_BYTES: usize = 2 << 20;

/// A segment and the file behind it.
#[derive(Debug)]
pub struct Segment {
    map: MmapRaw,
    /// Inherited by the target, which maps it and closes its copy.
    pub file: File,
    /// Rings whose oldest record is unfinished, and since when.
    unfinished: [Option<(u64, Instant)>; RINGS],
    /// Records that could not be read, at least.
    pub damaged: u64,
}

impl Segment {
    /// Makes an empty segment for this process to read.
    pub fn create() -> io::Result<Self> {
        // SAFETY: a constant name; the descriptor is ours alone.
        let file = unsafe {
            let fd = libc::memfd_create(c"memlens-agent".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(fd)
        };
        Self::in_file(file)
    }

    /// The same in a file that is empty.
    pub fn in_file(file: File) -> io::Result<Self> {
        file.set_len(SEGMENT_BYTES as u64)?;
        let map = MmapOptions::new().len(SEGMENT_BYTES).no_reserve_swap().map_raw(&file)?;
        let segment = Self { map, file, unfinished: [None; RINGS], damaged: 0 };
        let control = segment.control();
        control.magic.store(MAGIC, Ordering::Relaxed);
        control.version.store(VERSION, Ordering::Relaxed);
        control.reader_pid.store(std::process::id(), Ordering::Relaxed);
        Ok(segment)
    }

    /// The first page.
    pub fn control(&self) -> &Control {
        // SAFETY: page-aligned, inside the mapping, and made of atomics only.
        unsafe { &*self.map.as_ptr().cast::<Control>() }
    }

    fn header(&self, ring: usize) -> &RingHeader {
        // SAFETY: inside the mapping, page-aligned; the words shared with writers are atomics.
        unsafe { &*self.map.as_ptr().add(ring_offset(ring)).cast::<RingHeader>() }
    }

    fn place(&self, ring: usize, position: u64) -> *mut u8 {
        let offset = ring_offset(ring) + PAGE_BYTES + position as usize % RING_BYTES;
        self.map.as_mut_ptr().wrapping_add(offset)
    }

    /// Hands every finished record to `each` and gives its room back.
    pub fn drain(&mut self, each: &mut dyn FnMut(&AgentRecord<'_>)) {
        for ring in 0..RINGS {
            self.drain_ring(ring, each);
        }
    }

    fn drain_ring(&mut self, ring: usize, each: &mut dyn FnMut(&AgentRecord<'_>)) {
        let head = self.header(ring).head.load(Ordering::Acquire);
        let mut tail = self.header(ring).tail.load(Ordering::Relaxed);
        while tail != head {
            let place = self.place(ring, tail);
            // SAFETY: aligned and inside the mapping; shared with the writer as an atomic.
            let word = unsafe { AtomicU64::from_ptr(place.cast()) }.load(Ordering::Acquire);
            if word == 0 {
                if self.has_given_up(ring, tail) {
                    self.skip(ring, tail, head);
                }
                return;
            }
            let room = RING_BYTES - tail as usize % RING_BYTES;
            let known = Head::of(word).filter(|head| head.length as usize <= room);
            let Some(Head { kind, length }) = known else {
                self.skip(ring, tail, head);
                return;
            };
            // SAFETY: `length` bytes lie before the ring's end; the writer published them with the first word and
            // does not touch them any more.
            let bytes = unsafe { std::slice::from_raw_parts_mut(place, length as usize) };
            match AgentRecord::decode(bytes) {
                Some(record) => each(&record),
                None if kind == Kind::Padding => {}
                None => self.damaged += 1,
            }
            // Behind the first word of padding nothing was written, and there may be no memory yet.
            let written = if kind == Kind::Padding { size_of::<u64>() } else { bytes.len() };
            bytes[..written].fill(0);
            tail += u64::from(length);
            self.header(ring).tail.store(tail, Ordering::Release);
        }
        self.unfinished[ring] = None;
        self.begin_anew(ring, tail);
    }

    /// Lets writers go on at the ring's start, if all was read up to `tail` and nobody has taken room behind it: so what lies
    /// further on gets no memory until it is needed. Writers retry who had asked for the head before, and the tail after.
    fn begin_anew(&self, ring: usize, tail: u64) {
        let offset = tail as usize % RING_BYTES;
        if offset < ANEW_BYTES {
            return;
        }
        let (header, start) = (self.header(ring), tail + (RING_BYTES - offset) as u64);
        if header.head.compare_exchange(tail, start, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            header.tail.store(start, Ordering::Release);
        }
    }

    /// Whether the record at `tail` has been unfinished for too long.
    fn has_given_up(&mut self, ring: usize, tail: u64) -> bool {
        match self.unfinished[ring] {
            Some((at, since)) if at == tail => since.elapsed() > GIVEN_UP_AFTER,
            _ => {
                self.unfinished[ring] = Some((tail, Instant::now()));
                false
            }
        }
    }

    /// Passes over everything between `tail` and `head`: where the next record begins is not known.
    fn skip(&mut self, ring: usize, tail: u64, head: u64) {
        self.damaged += 1;
        self.unfinished[ring] = None;
        for position in (tail..head).step_by(8) {
            // SAFETY: as in `drain_ring`.
            unsafe { AtomicU64::from_ptr(self.place(ring, position).cast()) }.store(0, Ordering::Relaxed);
        }
        self.header(ring).tail.store(head, Ordering::Release);
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // Whoever still writes goes on without.
        self.control().closed.store(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the agent writes: room by `head`, the first word last.
    fn write(segment: &Segment, words: &[u64], finished: bool) {
        let header = segment.header(0);
        let head = header.head.load(Ordering::Relaxed);
        let length = words.len() * 8;
        header.head.store(head + length as u64, Ordering::Relaxed);
        for (index, word) in words.iter().enumerate().skip(usize::from(!finished)) {
            let place = segment.place(0, head + 8 * index as u64);
            // SAFETY: inside the mapping; nobody else has it.
            unsafe { place.cast::<u64>().write(*word) };
        }
    }

    fn freed(address: u64) -> [u64; 4] {
        [Head { kind: Kind::Freed, length: 32 }.word(), 5, (1 << 32) | 2, address]
    }

    fn addresses(segment: &mut Segment) -> Vec<u64> {
        let mut list = Vec::new();
        segment.drain(&mut |record| {
            if let memlens_events::agent::Event::Freed(address) = record.event {
                list.push(address);
            }
        });
        list
    }

    #[test]
    fn records_are_taken_in_order_across_the_rings_end_and_up_to_an_unfinished_one() {
        let mut segment = Segment::create().expect("a segment");
        let half = (RING_BYTES / 2 / 32) as u64;
        for index in 0..half + 1000 {
            write(&segment, &freed(index), true);
        }
        // So that something is left, and the ring does not begin anew; 32 divides it.
        let unfinished = segment.header(0).head.load(Ordering::Relaxed);
        write(&segment, &freed(half + 1000), false);
        assert_eq!(addresses(&mut segment), (0..half + 1000).collect::<Vec<_>>());
        // SAFETY: inside the mapping; nobody else has it.
        unsafe { segment.place(0, unfinished).cast::<u64>().write(freed(0)[0]) };
        for index in half + 1001..2 * half + 1000 {
            write(&segment, &freed(index), true);
        }
        assert!(segment.header(0).head.load(Ordering::Relaxed) > RING_BYTES as u64);
        assert_eq!(addresses(&mut segment), (half + 1000..2 * half + 1000).collect::<Vec<_>>());
        write(&segment, &freed(7), true);
        write(&segment, &freed(8), false);
        write(&segment, &freed(9), true);
        assert_eq!(addresses(&mut segment), [7]);
        assert_eq!(addresses(&mut segment), [0u64; 0]);
        assert_eq!(segment.damaged, 0);
    }

    #[test]
    fn a_ring_that_has_been_read_begins_anew() {
        let mut segment = Segment::create().expect("a segment");
        let records = ANEW_BYTES as u64 / 32;
        for round in 0..100 {
            (0..records).for_each(|index| write(&segment, &freed(index), true));
            let head = segment.header(0).head.load(Ordering::Relaxed);
            assert_eq!(head as usize % RING_BYTES, ANEW_BYTES, "round {round}");
            assert_eq!(addresses(&mut segment).len() as u64, records);
        }
        // An unfinished record is somebody's who has asked for room.
        (0..records).for_each(|index| write(&segment, &freed(index), true));
        write(&segment, &freed(7), false);
        assert_eq!(addresses(&mut segment).len() as u64, records);
        assert_eq!(segment.header(0).tail.load(Ordering::Relaxed) as usize % RING_BYTES, ANEW_BYTES);
    }

    #[test]
    fn damage_is_counted_and_passed_over() {
        let mut segment = Segment::create().expect("a segment");
        write(&segment, &[77, 0, 0, 0], true);
        write(&segment, &freed(1), true);
        assert_eq!(addresses(&mut segment), [0u64; 0]);
        assert_eq!(segment.damaged, 1);
        write(&segment, &freed(2), true);
        assert_eq!(addresses(&mut segment), [2]);
    }
}

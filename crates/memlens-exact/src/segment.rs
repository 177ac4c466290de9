//! The mapped segment, reader's side.

use memlens_events::segment::{
    self, ANSWER_CAPACITY, ANSWER_OFFSET, CHUNK_WORDS, Control, DEFINITION_BYTES, DEFINITION_OFFSET,
    SEGMENT_BYTES, SlotHeader,
};
use memlens_events::{Definition, DefinitionKind, ModuleAnswer};
use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// A segment and the file behind it.
pub struct Segment {
    map: MmapRaw,
    /// Inherited by the target, which maps it and closes its copy.
    pub file: File,
}

impl Segment {
    /// Makes an empty segment for this process to read.
    pub fn create() -> io::Result<Self> {
        // SAFETY: a constant name; the descriptor is ours alone.
        let file = unsafe {
            let fd = libc::memfd_create(c"memlens".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(fd)
        };
        file.set_len(SEGMENT_BYTES as u64)?;
        let map = MmapOptions::new().len(SEGMENT_BYTES).no_reserve_swap().map_raw(&file)?;
        let segment = Self { map, file };
        let control = segment.control();
        control.magic.store(segment::MAGIC, Ordering::Relaxed);
        control.version.store(segment::VERSION, Ordering::Relaxed);
        control.reader_pid.store(std::process::id(), Ordering::Relaxed);
        Ok(segment)
    }

    /// The first page.
    pub fn control(&self) -> &Control {
        // SAFETY: page-aligned, inside the mapping, and made of atomics only.
        unsafe { &*self.map.as_ptr().cast::<Control>() }
    }

    /// A slot's header.
    pub fn slot(&self, slot: usize) -> &SlotHeader {
        assert!(slot < segment::SLOTS);
        // SAFETY: inside the mapping, aligned to a page, made of atomics only.
        unsafe { &*self.map.as_ptr().add(segment::slot_offset(slot)).cast::<SlotHeader>() }
    }

    /// The first `words` words of a chunk.
    ///
    /// # Safety
    /// The writer has published that many words of this chunk and the chunk was not given back: then
    /// it does not change them.
    pub unsafe fn chunk(&self, slot: usize, chunk: u64, words: usize) -> &[u64] {
        assert!(slot < segment::SLOTS && words <= CHUNK_WORDS);
        let start = self.map.as_ptr().wrapping_add(segment::chunk_offset(slot, chunk));
        // SAFETY: inside the mapping and 8-byte aligned; not written while borrowed, as the caller
        // promises.
        unsafe { std::slice::from_raw_parts(start.cast::<u64>(), words) }
    }

    /// The next definition, if one was written. Damaged ones are skipped and counted.
    pub fn next_definition(&self, damaged: &mut u64) -> Option<Definition> {
        let control = self.control();
        let read = control.definitions_read.load(Ordering::Relaxed);
        if read == control.definitions_written.load(Ordering::Acquire) {
            return None;
        }
        let mut prefix = [0; 8];
        self.copy_ring(read, &mut prefix);
        let kind = u32::from_le_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]);
        let length = u32::from_le_bytes([prefix[4], prefix[5], prefix[6], prefix[7]]) as usize;
        let mut payload = vec![0; length.min(DEFINITION_BYTES)];
        self.copy_ring(read + 8, &mut payload);
        let next = read + 8 + (length as u64).next_multiple_of(8);
        control.definitions_read.store(next, Ordering::Release);
        match Definition::decode(kind, &payload) {
            Ok(definition) => Some(definition),
            Err(_) => {
                *damaged += 1;
                // A module's writer waits for an answer, whatever was wrong with it.
                if kind == DefinitionKind::Module as u32 {
                    let id = payload.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                    self.answer_module(id, &ModuleAnswer::new());
                }
                self.next_definition(damaged)
            }
        }
    }

    fn copy_ring(&self, position: u64, target: &mut [u8]) {
        let position = position as usize % DEFINITION_BYTES;
        let first = target.len().min(DEFINITION_BYTES - position);
        // SAFETY: both pieces lie inside the ring; the writer published these bytes and does not
        // touch them until `definitions_read` has passed them.
        unsafe {
            let ring = self.map.as_ptr().add(DEFINITION_OFFSET);
            std::ptr::copy_nonoverlapping(ring.add(position), target.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(ring, target.as_mut_ptr().add(first), target.len() - first);
        }
    }

    /// Tells the waiting writer a module's special addresses.
    pub fn answer_module(&self, id: u32, answer: &ModuleAnswer) {
        let count = answer.len().min(ANSWER_CAPACITY);
        let control = self.control();
        for (index, (role, start, end)) in answer.iter().take(count).enumerate() {
            // SAFETY: inside the answers' part of the mapping; the writer looks only after
            // `answered_module` changes.
            unsafe {
                let place = self.map.as_mut_ptr().add(ANSWER_OFFSET).cast::<[u64; 3]>().add(index);
                place.write([role.code(), *start, *end]);
            }
        }
        control.answer_count.store(count as u32, Ordering::Relaxed);
        control.answered_module.store(id, Ordering::Release);
        wake(&control.answered_module);
    }

    /// Tells a thread that waits to fork, with this token, to go on.
    pub fn answer_fork(&self, token: u64) {
        let control = self.control();
        let known = control.definitions_read.load(Ordering::Relaxed);
        control.fork_definitions.store(known, Ordering::Relaxed);
        control.fork_answered.store(token as u32, Ordering::Release);
        wake(&control.fork_answered);
    }

    /// Sleeps until a writer rings or the time is over.
    pub fn wait(&self, milliseconds: u64) {
        let control = self.control();
        let bell = control.doorbell.load(Ordering::SeqCst);
        control.reader_waiting.store(1, Ordering::SeqCst);
        sleep_on(&control.doorbell, bell, milliseconds);
        control.reader_waiting.store(0, Ordering::SeqCst);
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // Whoever still writes goes on without.
        self.control().closed.store(1, Ordering::SeqCst);
        for slot in 0..self.control().slots_used.load(Ordering::Relaxed) as usize {
            wake(&self.slot(slot.min(segment::SLOTS - 1)).room);
        }
        wake(&self.control().answered_module);
    }
}

/// Wakes whoever sleeps on a futex in the segment.
pub fn wake(word: &AtomicU32) {
    // SAFETY: the word is mapped.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

fn sleep_on(word: &AtomicU32, value: u32, milliseconds: u64) {
    let timeout = libc::timespec {
        tv_sec: (milliseconds / 1000) as i64,
        tv_nsec: (milliseconds % 1000 * 1_000_000) as i64,
    };
    // SAFETY: the word and the timeout outlive the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const timeout) };
}

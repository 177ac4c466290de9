//! The writer's side of the rings: see [`memlens_events::agent`].
//!
//! # Signal safety
//! Lock-free, also against a handler that interrupts a writer of the same thread. Copies of the stack go through
//! the kernel where it is not certain that what lies above rsp is mapped: no fault can happen here.

use core::sync::atomic::{AtomicU64, Ordering};

use memlens_events::agent::{
    Control, Head, Kind, MAX_STACK_BYTES, PAGE_BYTES, RESERVED_BYTES, RING_BYTES, RingHeader, ring_offset,
};

use memlens_inside::weak;

use crate::arch::{self, number, syscall};
use crate::thread_area::ThreadArea;

/// Frames of the first thread lie this close to its stack's end, or are copied by the kernel.
const NEAR_BYTES: usize = 1 << 20;
/// glibc's thread descriptor lies this close above the first frame, in stacks that it made.
const MAX_THREAD_STACK_BYTES: usize = 64 << 20;

/// So many words would drive out lines that the program uses; lines that are not written as a whole take longer past the caches.
const LARGE_WORDS: usize = 512;

/// A mapped segment.
#[derive(Clone, Copy)]
pub struct Segment(pub *mut u8);

/// Where the bytes of a record's stack come from.
///
/// | rsp lies | up to | copied |
/// |---|---|---|
/// | on the first thread's stack | its end | by us |
/// | on a stack that glibc made, in its first megabyte | the frame in which the thread began | by us |
/// | elsewhere: deeper, or on a stack of the program's own | what the thread's descriptor says, if that is near | by the kernel, which stops at what is not mapped |
#[derive(Clone, Copy)]
pub struct StackPart {
    start: usize,
    bytes: usize,
    is_mapped: bool,
}

impl StackPart {
    /// What lies from `sp` on, as far as the stack goes and a record may hold.
    pub fn from(sp: usize, control: &Control, area: &ThreadArea) -> Self {
        let most = (control.stack_bytes.load(Ordering::Relaxed) as usize).min(MAX_STACK_BYTES);
        // The dynamic linker's variable: where the first thread's stack ended when the process began.
        let place = weak!("__libc_stack_end") as *const usize;
        if !place.is_null() {
            // SAFETY: the variable of that name, set before any library's code runs.
            let end = unsafe { place.read() };
            if let Some(above) = end.checked_sub(sp)
                && above < NEAR_BYTES
            {
                // The kernel keeps what lies below the first megabytes of that stack free.
                return Self { start: sp, bytes: above.min(most) & !7, is_mapped: true };
            }
        }
        // Where a return address takes no stack, the code that called the thread's function has its first frame there.
        if let Some(above) = area.stack_start.get().checked_sub(sp)
            && (1..area.stack_bytes.get()).contains(&above)
        {
            return Self { start: sp, bytes: above.min(most) & !7, is_mapped: true };
        }
        let above = arch::thread_pointer().checked_sub(sp).filter(|&above| above < MAX_THREAD_STACK_BYTES);
        Self { start: sp, bytes: above.map_or(most, |above| above.min(most)) & !7, is_mapped: false }
    }

    /// Copies it; returns how many bytes there were.
    ///
    /// # Safety
    /// `target` has room for `self.bytes`.
    unsafe fn copy(self, target: *mut u8, pid: u32) -> usize {
        if self.is_mapped {
            // SAFETY: the caller's room; `from` saw that the stack pointer lies in a stack that is mapped up to the end of this part.
            unsafe { arch::copy_words(self.start as *const u64, target.cast(), self.bytes / 8) };
            return self.bytes;
        }
        let (local, remote) = ([target as usize, self.bytes], [self.start, self.bytes]);
        let arguments = [pid as usize, local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0];
        // SAFETY: writes at most `self.bytes` to the caller's room; what cannot be read ends the copy.
        let copied = unsafe { syscall(number::PROCESS_VM_READV, arguments) };
        if let Ok(copied) = usize::try_from(copied) {
            return copied & !7;
        }
        // Forbidden: the rest of the page that the stack pointer points to is there in any case.
        let bytes = self.bytes.min(PAGE_BYTES - self.start % PAGE_BYTES) & !7;
        // SAFETY: as said.
        unsafe { arch::copy_words(self.start as *const u64, target.cast(), bytes / 8) };
        bytes
    }
}

impl Segment {
    /// The first page.
    pub fn control(self) -> &'static Control {
        // SAFETY: page-aligned, mapped for good, made of atomics only.
        unsafe { &*self.0.cast::<Control>() }
    }

    /// Where the ring of a thread begins.
    fn ring(self, tid: u32) -> (*mut u8, &'static RingHeader) {
        // SAFETY: inside the mapping; see `control`.
        let start = unsafe { self.0.add(ring_offset(tid as usize)) };
        // SAFETY: the same.
        (start, unsafe { &*start.cast::<RingHeader>() })
    }

    /// How much of the ring of a thread has not been taken by the reader.
    pub fn waiting_bytes(self, tid: u32) -> usize {
        let (_, header) = self.ring(tid);
        let head = header.head.load(Ordering::Relaxed);
        // The reader may have let the ring begin anew in between.
        head.saturating_sub(header.tail.load(Ordering::Relaxed)) as usize
    }

    /// Room for a record in the ring of a thread: its first word's place, to be written last.
    fn reserve(self, tid: u32, length: usize, keep_bytes: usize) -> Option<*mut u64> {
        let (start, header) = self.ring(tid);
        loop {
            let head = header.head.load(Ordering::Relaxed);
            let tail = header.tail.load(Ordering::Acquire);
            let offset = head as usize % RING_BYTES;
            let to_end = RING_BYTES - offset;
            // The reader let the ring begin anew after its head was asked for.
            let Some(taken) = head.checked_sub(tail) else { continue };
            let taken = taken as usize;
            let padding = if to_end < length { to_end } else { 0 };
            if taken + padding + length > RING_BYTES - keep_bytes {
                return None;
            }
            let next = head + (padding + length) as u64;
            if header.head.compare_exchange(head, next, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            // SAFETY: `offset` is below the ring's size and a multiple of 8; the ring follows its header's page.
            let place = unsafe { start.add(PAGE_BYTES + offset).cast::<u64>() };
            if padding == 0 {
                return Some(place);
            }
            // SAFETY: ours since the exchange.
            unsafe { publish(place, Head { kind: Kind::Padding, length: padding as u32 }) };
            // SAFETY: the ring's start.
            return Some(unsafe { start.add(PAGE_BYTES).cast::<u64>() });
        }
    }

    /// Writes a record of words alone: `head` behind the first three, then `rest`. False: there was no room.
    pub fn write_words(
        self,
        kind: Kind,
        time_ns: u64,
        area: &ThreadArea,
        head: &[u64],
        rest: &[u64],
    ) -> bool {
        let length = 8 * (3 + head.len() + rest.len());
        let Some(place) = self.reserve(area.tid.get(), length, RESERVED_BYTES) else { return false };
        // SAFETY: `length` bytes from `place` on are this call's until the first word is written.
        unsafe {
            place.add(1).write(time_ns);
            place.add(2).write(u64::from(area.pid.get()) << 32 | u64::from(area.tid.get()));
            arch::copy_words(head.as_ptr(), place.add(3), head.len());
            let place_of_rest = place.add(3 + head.len());
            match rest.len() {
                ..LARGE_WORDS => arch::copy_words(rest.as_ptr(), place_of_rest, rest.len()),
                _ => arch::copy_past_caches(rest, place_of_rest),
            }
            publish(place, Head { kind, length: length as u32 });
        }
        true
    }

    /// Writes a record: `words` behind the first three, then the stack. False: there was no room.
    pub fn write(
        self,
        kind: Kind,
        time_ns: u64,
        area: &ThreadArea,
        words: &[u64],
        stack: Option<StackPart>,
    ) -> bool {
        let stack_words = stack.map_or(0, |stack| 1 + stack.bytes / 8);
        let length = 8 * (3 + words.len() + stack_words);
        let has_all = matches!(
            kind,
            Kind::Freed | Kind::Moving | Kind::Kept | Kind::Forked | Kind::MappingEnded | Kind::MappingMoved
        );
        let keep_bytes = if has_all { 0 } else { RESERVED_BYTES };
        let Some(place) = self.reserve(area.tid.get(), length, keep_bytes) else { return false };
        // SAFETY: `length` bytes from `place` on are this call's until the first word is written.
        unsafe {
            place.add(1).write(time_ns);
            place.add(2).write(u64::from(area.pid.get()) << 32 | u64::from(area.tid.get()));
            arch::copy_words(words.as_ptr(), place.add(3), words.len());
            if let Some(stack) = stack {
                let at = place.add(3 + words.len());
                at.write(stack.copy(at.add(1).cast(), area.pid.get()) as u64);
            }
            publish(place, Head { kind, length: length as u32 });
        }
        true
    }
}

/// Writes a record's first word: from here on the reader may take it.
///
/// # Safety
/// `place` is the start of a reserved part of a ring, all else of which is written.
unsafe fn publish(place: *mut u64, head: Head) {
    // SAFETY: aligned, mapped, shared through atomics only at this word.
    unsafe { AtomicU64::from_ptr(place) }.store(head.word(), Ordering::Release);
}

/// Nanoseconds of a clock, by libc's function, which asks the vDSO; 0 where there is none.
pub fn clock_ns(clock: i32) -> u64 {
    let function = weak!("clock_gettime");
    if function == 0 {
        return 0;
    }
    let mut time = [0i64; 2];
    // A tick that comes in there shall not take it for the program's.
    let asks = &arch::thread().asks_clock;
    let before = asks.replace(true);
    // SAFETY: the C function of that name (POSIX.1-2024: async-signal-safe) fills a timespec.
    unsafe {
        let function: unsafe extern "C" fn(i32, *mut i64) -> i32 = core::mem::transmute(function);
        function(clock, time.as_mut_ptr());
    }
    asks.set(before);
    (time[0] as u64).wrapping_mul(1_000_000_000).wrapping_add(time[1] as u64)
}

/// `CLOCK_MONOTONIC`.
pub fn now_ns() -> u64 {
    clock_ns(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_events::agent::SEGMENT_BYTES;

    #[derive(Clone)]
    #[repr(align(4096))]
    struct Page([u64; PAGE_BYTES / 8]);

    #[test]
    fn a_ring_holds_all_but_what_is_reserved() {
        const LENGTH: usize = 100_000;
        let mut memory = vec![Page([0; _]); SEGMENT_BYTES / PAGE_BYTES];
        let segment = Segment(memory.as_mut_ptr().cast());
        let (_, header) = segment.ring(0);
        let reserve = || segment.reserve(0, LENGTH, RESERVED_BYTES);
        let read = || header.tail.store(header.head.load(Ordering::Relaxed), Ordering::Relaxed);
        for _ in 0..1000 {
            assert!(reserve().is_some(), "all has been read");
            read();
        }
        // Nobody reads, wherever the ring is.
        let filled = core::iter::from_fn(reserve).count() * LENGTH;
        assert!(filled > RING_BYTES - RESERVED_BYTES - 3 * LENGTH, "{filled}");
        assert_eq!(
            segment.waiting_bytes(0),
            header.head.load(Ordering::Relaxed) as usize - header.tail.load(Ordering::Relaxed) as usize
        );
        read();
        assert!(reserve().is_some());
    }
}

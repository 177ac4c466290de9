//! Bursts in the test's own process: a timer signal begins them, and what they report is kept without a heap.
// Each test file uses a part of it.
#![allow(dead_code)]

#[cfg(target_arch = "x86_64")]
pub mod gathers;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use memlens_burst::heap::OwnHeap;
use memlens_burst::{
    Area, Burst, Hooks, Limits, NewBlock, begin, check_support, is_interrupted, leave_at_fault,
};
use memlens_events::burst::{Reference, Source, Use, block_of};

/// The runtime's memory is its own, as in the agent: a burst may have begun inside of the allocator.
struct TestHeap(OwnHeap);

impl TestHeap {
    /// Whether this is the runtime's stack.
    fn is_runtime() -> bool {
        const STACK_BYTES: u64 = 128 << 10;
        let local = 0u8;
        let here = &raw const local as u64;
        AREA.with(|area| area.stack.get().wrapping_sub(here) < STACK_BYTES)
    }
}

// SAFETY: each block goes back to where it came from.
unsafe impl GlobalAlloc for TestHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe {
            if Self::is_runtime() {
                OWN_ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
                self.0.alloc(layout)
            } else {
                System.alloc(layout)
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !self.0.contains(block) {
            // SAFETY: the caller's promise; it is not the runtime's.
            unsafe { System.dealloc(block, layout) };
        }
    }
}

/// Allocations of the runtime.
pub static OWN_ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static HEAP: TestHeap = TestHeap(OwnHeap::new());

thread_local! {
    static AREA: Area = const { Area::new() };
}

/// What was reported: made of plain memory, because hooks may interrupt the allocator.
struct Reports {
    /// Of each its begin, its first reference and how many it has.
    blocks: UnsafeCell<Vec<(u64, u32, u32)>>,
    references: UnsafeCell<Vec<Reference>>,
    words: UnsafeCell<Vec<u64>>,
    is_used: AtomicBool,
}

// SAFETY: used under `is_used`.
unsafe impl Sync for Reports {}

static REPORTS: Reports = Reports {
    blocks: UnsafeCell::new(Vec::new()),
    references: UnsafeCell::new(Vec::new()),
    words: UnsafeCell::new(Vec::new()),
    is_used: AtomicBool::new(false),
};

/// Bursts so far, by how they ended.
pub static ENDS: [AtomicU32; 8] = [const { AtomicU32::new(0) }; 8];
/// Words so far.
pub static WORDS: AtomicU64 = AtomicU64::new(0);
/// Words of a burst.
pub static BURST_WORDS: AtomicUsize = AtomicUsize::new(20_000);
/// Words of the counted stretch behind each burst.
pub static COUNTED_WORDS: AtomicUsize = AtomicUsize::new(0);
/// Words that were counted so far.
pub static COUNTED: AtomicU64 = AtomicU64::new(0);
static NOT_BEGUN: [AtomicU32; 8] = [const { AtomicU32::new(0) }; 8];

/// Room for what is reported.
pub fn prepare(burst_words: usize) {
    check_support().expect("this machine can");
    BURST_WORDS.store(burst_words, Ordering::Relaxed);
    held(|blocks, references, words| {
        blocks.reserve(1 << 18);
        references.reserve(1 << 20);
        words.reserve(1 << 22);
    });
}

fn held<T>(use_them: impl FnOnce(&mut Vec<(u64, u32, u32)>, &mut Vec<Reference>, &mut Vec<u64>) -> T) -> T {
    while REPORTS.is_used.swap(true, Ordering::Acquire) {}
    // SAFETY: held.
    let result = unsafe {
        use_them(&mut *REPORTS.blocks.get(), &mut *REPORTS.references.get(), &mut *REPORTS.words.get())
    };
    REPORTS.is_used.store(false, Ordering::Release);
    result
}

fn on_block(_: &Area, _: u64, block: &NewBlock<'_>) -> bool {
    let references = block.references;
    held(|blocks, all, _| {
        let number = block.number as usize;
        if number >= blocks.capacity() || all.len() + references.len() > all.capacity() {
            return false;
        }
        if blocks.len() <= number {
            blocks.resize(number + 1, (0, 0, 0));
        }
        blocks[number] = (block.pc, all.len() as u32, references.len() as u32);
        all.extend_from_slice(references);
        true
    })
}

/// Whether bursts follow each other without end.
pub static GOES_ON: AtomicBool = AtomicBool::new(false);

fn on_burst(_: &Area, burst: &Burst<'_>) -> bool {
    ENDS[burst.end as usize].fetch_add(1, Ordering::Relaxed);
    WORDS.fetch_add(burst.words.len() as u64, Ordering::Relaxed);
    if let Some(counted) = burst.counted {
        COUNTED.fetch_add(counted.words_besides + counted.words, Ordering::Relaxed);
    }
    held(|_, _, words| {
        if words.len() + burst.words.len() <= words.capacity() {
            words.extend_from_slice(burst.words);
        }
    });
    GOES_ON.load(Ordering::Relaxed)
}

const HOOKS: Hooks = Hooks { block: on_block, burst: on_burst };

extern "C" fn on_signal(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let limits = Limits {
        words: BURST_WORDS.load(Ordering::Relaxed),
        recorded_ns: u64::MAX,
        counted_words: COUNTED_WORDS.load(Ordering::Relaxed),
        new_blocks: u32::MAX,
        runtime_cycles: u64::MAX,
    };
    // SAFETY: a handler of this thread, with its own area.
    let begun = AREA.with(|area| unsafe { begin(context, area, limits, HOOKS, (0, 0)) });
    if let Err(end) = begun {
        NOT_BEGUN[end as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Installs the handler.
pub fn listen(signal: c_int) {
    // SAFETY: the handler keeps the rules of handlers; the structures are whole.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

/// A timer of the calling thread's processor time, whose signals begin bursts until it is dropped.
pub struct Ticks(libc::timer_t);

impl Ticks {
    pub fn every(nanoseconds: i64) -> Self {
        listen(libc::SIGUSR1);
        // SAFETY: structures of ours; the timer signals this thread.
        unsafe {
            let mut event: libc::sigevent = mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGUSR1;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer = mem::zeroed();
            assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer), 0);
            let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
            let value = libc::itimerspec { it_interval: time, it_value: time };
            assert_eq!(libc::timer_settime(timer, 0, &value, std::ptr::null_mut()), 0);
            Self(timer)
        }
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        // SAFETY: our timer.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// What is known of a reference's execution.
enum Known {
    At(Option<u64>),
    LeftOut,
}

/// The accesses of all bursts so far, in their order: instruction, address, and what was done.
pub fn accesses() -> Vec<(u64, u64, Reference)> {
    let mut list = Vec::new();
    each_execution(|reference, known| {
        if let Known::At(Some(address)) = known
            && !matches!(reference.used, Use::Count | Use::WayOut)
        {
            list.push((reference.pc, address, reference));
        }
    });
    list
}

/// How many accesses of instructions for which `is_meant` were left out.
pub fn left_out(is_meant: impl Fn(u64) -> bool) -> u64 {
    let mut count = 0;
    each_execution(|reference, known| match known {
        Known::LeftOut => count += u64::from(is_meant(reference.pc)),
        Known::At(_) => {}
    });
    count
}

/// Goes through the bursts' words. What was left out is told when a word or the next block says that it happened.
fn each_execution(mut each: impl FnMut(Reference, Known)) {
    end_burst();
    let (blocks, references, words) =
        held(|blocks, references, words| (blocks.clone(), references.clone(), words.clone()));
    let mut at = 0;
    while at < words.len() {
        let block = block_of(words[at]).expect("a block's word") as usize;
        at += 1;
        let end =
            words[at..].iter().position(|&word| block_of(word).is_some()).map_or(words.len(), |n| at + n);
        let stored = &words[at..end];
        at = end;
        let next = words.get(at).map(|&word| blocks[block_of(word).expect("a block's word") as usize].0);
        let (_, first, count) = blocks[block];
        let mut taken = 0;
        let mut unsure: Vec<Reference> = Vec::new();
        // Of the present gather or scatter: its instruction, and the elements that happen, from the next one on.
        let mut mask = (0, 0);
        for &reference in &references[first as usize..][..count as usize] {
            let address = match reference.source {
                Source::Word if taken == stored.len() => break,
                Source::Word => {
                    taken += 1;
                    left_out_of(unsure.drain(..), None, &mut each);
                    Some(stored[taken - 1])
                }
                Source::Near { word, distance } => {
                    Some(stored[usize::from(word)].wrapping_add(distance as u64))
                }
                Source::Fixed(address) => Some(address),
                Source::Thread(_) | Source::Unknown => None,
                Source::LeftOut => None,
            };
            if reference.used == Use::WayOut || reference.source == Source::LeftOut {
                unsure.push(reference);
                continue;
            }
            if reference.used == Use::Mask {
                mask = (reference.pc, address.expect("it takes a word"));
                continue;
            }
            if reference.pc == mask.0 {
                let happens = mask.1 & 1 != 0;
                mask.1 >>= 1;
                if !happens {
                    continue;
                }
            }
            each(reference, Known::At(address));
        }
        left_out_of(unsure.into_iter(), next, &mut each);
        assert_eq!(taken, stored.len(), "every word belongs to a reference");
    }
}

/// Those that were left out up to the way out to `next`.
fn left_out_of(
    references: impl Iterator<Item = Reference>,
    next: Option<u64>,
    each: &mut impl FnMut(Reference, Known),
) {
    references
        .take_while(|reference| reference.used != Use::WayOut || Some(reference.pc) != next)
        .filter(|reference| reference.source == Source::LeftOut)
        .for_each(|reference| each(reference, Known::LeftOut));
}

/// Begins a burst of the calling thread.
pub fn begin_now() {
    listen(libc::SIGUSR2);
    // SAFETY: numbers only; the handler begins a burst, which lasts until the next system call.
    unsafe {
        let (process, thread) = (libc::getpid(), libc::gettid());
        libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR2);
    }
}

/// In a handler of a signal that the code raised: puts `context` as it would be natively; whether it came in a burst.
pub fn leave(context: *mut c_void) -> bool {
    // SAFETY: a handler of this thread, with its own area.
    AREA.with(|area| unsafe {
        let is_interrupted = is_interrupted(context, area);
        if is_interrupted {
            leave_at_fault(context, area);
        }
        is_interrupted
    })
}

/// Ends the burst in which the caller may be: its hooks could not wait for what the caller holds.
fn end_burst() {
    // SAFETY: a system call without effect.
    unsafe { libc::getppid() };
}

/// Forgets what was reported of bursts.
pub fn forget_words() {
    end_burst();
    held(|_, _, words| words.clear());
}

/// How bursts ended, and why some did not begin, for messages.
pub fn summary() -> String {
    let list = |counts: &[AtomicU32; 8]| counts.iter().map(|n| n.load(Ordering::Relaxed)).collect::<Vec<_>>();
    format!(
        "ended {:?}, not begun {:?}, {} words, {} counted",
        list(&ENDS),
        list(&NOT_BEGUN),
        WORDS.load(Ordering::Relaxed),
        COUNTED.load(Ordering::Relaxed)
    )
}

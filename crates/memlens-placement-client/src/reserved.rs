//! Blocks in pages that the system has reserved for programs that ask (hugetlb).
//!
//! ```text
//!  block of glibc, a mapping of its own        ┌ start, on a boundary of huge pages
//!  ┌────────┬─────────────────────────────────┬──────┐
//!  │ header │ whole huge pages: hugetlb       │ tail │   the tail stays in small pages
//!  └────────┴─────────────────────────────────┴──────┘
//! ```
//!
//! The pages are mapped elsewhere first, which reserves them or fails, and then moved into the block: there is no
//! moment at which the block is short of memory that it was promised. The block is freed as any other: glibc unmaps
//! all of it. Only blocks that are mappings of their own are taken, because of others glibc unmaps parts.
//!
//! A fork would share the pages until somebody writes, and whoever finds no free one then is killed (SIGBUS). So a program
//! with one thread gets ordinary memory back before it forks. With several threads that is not possible; children
//! made by vfork, `posix_spawn` and `system` share nothing.

use core::mem;
use core::sync::atomic::{AtomicU64, Ordering};

use memlens_inside::{number, syscall, weak};
use memlens_placement::{HUGE_PAGE_BYTES, reserved_mapping, whole};

use crate::modules;

/// Blocks whose places are known: start and length of the reserved pages. Those freed stay until another comes.
static TAKEN: [[AtomicU64; 2]; 256] = [const { [AtomicU64::new(0), AtomicU64::new(0)] }; 256];

const MREMAP: usize = 25;
const PROT_READ_WRITE: usize = 3;
const PRIVATE_ANONYMOUS: usize = 0x22;
const FIXED: usize = 0x10;
/// `MAP_HUGETLB | MAP_HUGE_2MB`.
const HUGETLB: usize = 0x4_0000 | 21 << 26;
/// `MREMAP_MAYMOVE | MREMAP_FIXED`.
const MOVE_THERE: usize = 3;

/// Puts the whole huge pages of a fresh block, which nobody has written to, into reserved pages. Returns where those are;
/// None: there are too few, or the block is not one that can be.
///
/// # Safety
/// `start` is a block of glibc's malloc of so many bytes that the program has not got yet.
pub unsafe fn take(start: u64, bytes: u64) -> Option<(u64, u64)> {
    let (first, length) = whole(start, bytes, HUGE_PAGE_BYTES)?;
    // SAFETY: a block of glibc has its size and flags in the word before it.
    if !unsafe { is_mapping(start) } {
        return None;
    }
    let map = |at: u64, flags: usize| {
        // SAFETY: a new mapping, or one in place of pages of the block.
        unsafe {
            syscall(
                number::MMAP,
                [at as usize, length as usize, PROT_READ_WRITE, PRIVATE_ANONYMOUS | flags, usize::MAX, 0],
            )
        }
    };
    let entry = entry_of(first)?;
    let taken = map(0, HUGETLB);
    if taken < 0 {
        return None;
    }
    let length_words = length as usize;
    // SAFETY: moves the new mapping over pages of the block that hold nothing yet.
    let moved = unsafe {
        syscall(MREMAP, [taken as usize, length_words, length_words, MOVE_THERE, first as usize, 0])
    };
    if moved == first as isize {
        entry[1].store(length, Ordering::Release);
        return Some((first, length));
    }
    // Before Linux 5.16 such pages cannot be moved, and the place may be empty now: small pages come back.
    map(first, FIXED);
    // SAFETY: the mapping is ours.
    unsafe { syscall(number::MUNMAP, [taken as usize, length_words, 0, 0, 0, 0]) };
    None
}

/// Where a block is noted that begins there: in the place of one that lay there before, or in the next free one.
fn entry_of(first: u64) -> Option<&'static [AtomicU64; 2]> {
    let claim = |entry: &&[AtomicU64; 2]| match entry[0].load(Ordering::Relaxed) {
        0 => entry[0].compare_exchange(0, first, Ordering::Relaxed, Ordering::Relaxed).is_ok(),
        other => other == first,
    };
    TAKEN.iter().find(claim)
}

/// Has ordinary memory come back before forks. Called once, at the start.
pub fn prepare_for_forks() {
    let register = weak!("__register_atfork");
    if register != 0 {
        // SAFETY: the C library's function of that name (Linux Standard Base, __register_atfork): a handler that takes and
        // returns nothing, none for parent and child, no module that could be unloaded.
        unsafe {
            type Register = unsafe extern "C" fn(Option<extern "C" fn()>, usize, usize, usize) -> i32;
            let register: Register = mem::transmute(register);
            register(Some(before_fork), 0, 0, 0);
        }
    }
}

extern "C" fn before_fork() {
    let single = weak!("__libc_single_threaded");
    // SAFETY: a variable of glibc (sys/single_threaded.h) of one byte.
    if single == 0 || unsafe { *(single as *const u8) } == 0 {
        return;
    }
    // What was freed meanwhile may be anything now: only what is still a mapping of reserved pages is meant.
    let mut found = [[0_u64; 2]; TAKEN.len()];
    let mut used = 0;
    modules::each_mapping(|line| {
        let Some((start, end)) = reserved_mapping(line) else { return };
        let is_ours = TAKEN.iter().any(|entry| {
            entry[0].load(Ordering::Relaxed) == start && entry[1].load(Ordering::Acquire) == end - start
        });
        if is_ours && let Some(place) = found.get_mut(used) {
            *place = [start, end - start];
            used += 1;
        }
    });
    found[..used].iter().for_each(|&[start, length]| give_back(start, length));
}

/// Moves a block's content to ordinary memory in the same place. Where there is none it stays as it is.
fn give_back(start: u64, length: u64) {
    let length = length as usize;
    // SAFETY: a new mapping gets a copy of the block's pages and takes their place; there is one thread, which is here.
    unsafe {
        let copy = syscall(number::MMAP, [0, length, PROT_READ_WRITE, PRIVATE_ANONYMOUS, usize::MAX, 0]);
        if copy > 0 {
            core::ptr::copy_nonoverlapping(start as *const u8, copy as *mut u8, length);
            syscall(MREMAP, [copy as usize, length, length, MOVE_THERE, start as usize, 0]);
        }
    }
}

/// Whether a block is a mapping of its own (malloc.c, `IS_MMAPPED`).
///
/// # Safety
/// A block of glibc's malloc.
unsafe fn is_mapping(start: u64) -> bool {
    const IS_MMAPPED: u64 = 2;
    // SAFETY: the caller's promise.
    unsafe { *((start - 8) as *const u64) & IS_MMAPPED != 0 }
}

//! Anonymous memory that the program maps by itself: large arrays, pools, heaps of language runtimes.
//!
//! A mapping is drawn by its bytes as a block of the heap is, so that nearly all of some pages are watched. Which memory ends is told
//! whatever it is: parts of mappings are unmapped, and several with one call. What libc maps for its own blocks and stacks does
//! not come by here; what another allocator maps does, and memlens tells it by the blocks that lie in it.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use memlens_events::agent::{Allocation, Extent, Kind};
use memlens_inside::page_bytes;

use crate::allocations::{Entry, Inside, drawn};
use crate::arch::{number, syscall};
use crate::draw::{self, ALWAYS_FROM_BYTES};
use crate::real::{self, MAP_FAILED, call};
use crate::ring::{Segment, StackPart, now_ns};
use crate::session::{check_reader, here, visit};
use crate::thread_area::ThreadArea;

/// `MAP_GROWSDOWN` and `MAP_STACK` (include/uapi/asm-generic/mman.h): memory of stacks, which frames own.
const STACK_FLAGS: usize = 0x0100 | 0x2_0000;

/// Whether a mapping was ever reported: else none can end.
static ARE_WATCHED: AtomicBool = AtomicBool::new(false);

/// Anonymous mmap(2), which pays no heed to a file and an offset of whole pages.
pub unsafe extern "C" fn slow_mmap(
    address: usize,
    length: usize,
    protection: usize,
    flags: usize,
    sp: usize,
    bp: usize,
) -> *mut c_void {
    let entry = Entry { sp, bp };
    let (no_file, no_offset) = (usize::MAX, 0);
    // SAFETY: the program's own call, handed on.
    let real = || unsafe {
        call!(real::MMAP, (address, length, protection, flags, no_file, no_offset) -> *mut c_void)
    };
    if flags & STACK_FLAGS != 0 || !real::ready() {
        return real();
    }
    let _visit = visit();
    let Some((segment, area)) = here() else { return real() };
    let Some(inside) = Inside::enter(area, entry) else { return real() };
    let control = segment.control();
    // As the entry points of the heap: what is watched for its size alone takes nothing from the budget.
    if (length as u64) < ALWAYS_FROM_BYTES.load(Ordering::Relaxed) {
        area.budget.count(length as u64);
    }
    let gap = drawn(control, area, length as u64);
    let start = real();
    drop(inside);
    if let Some(gap_bytes) = gap.filter(|_| start != MAP_FAILED) {
        ARE_WATCHED.store(true, Ordering::Relaxed);
        let Extent { address, size_bytes } = extent(start as usize, length);
        let caller = entry.caller();
        let mapping = Allocation { address, size_bytes, gap_bytes, caller, ..Allocation::default() };
        let stack = StackPart::from(entry.returned_sp(), control, area);
        let began_ns = now_ns();
        if !segment.write(Kind::NewMapping, began_ns, area, &mapping.words(), Some(stack)) {
            control.lost_allocations.fetch_add(1, Ordering::Relaxed);
            check_reader(control);
        } else if gap_bytes > 0 {
            draw::count_drawn(control, now_ns().saturating_sub(began_ns));
        }
    }
    start
}

/// munmap(2).
pub unsafe extern "C" fn unmap(start: usize, length: usize) -> c_int {
    if !real::ready() || real::MUNMAP.load(Ordering::Acquire).is_null() {
        // SAFETY: as below.
        let status = unsafe { syscall(number::MUNMAP, [start, length, 0, 0, 0, 0]) };
        return if status == 0 { 0 } else { -1 };
    }
    let _visit = visit();
    if ARE_WATCHED.load(Ordering::Relaxed)
        && start.is_multiple_of(page_bytes())
        && let Some((segment, area)) = here()
    {
        tell(segment, area, Kind::MappingEnded, &[extent(start, length)]);
    }
    // SAFETY: the program's own call, handed on.
    unsafe { call!(real::MUNMAP, (start, length) -> c_int) }
}

/// mremap(2): the fifth argument counts with a flag only.
pub unsafe extern "C" fn remap(
    old: usize,
    old_length: usize,
    new_length: usize,
    flags: usize,
    new: usize,
) -> *mut c_void {
    if !real::ready() || real::MREMAP.load(Ordering::Acquire).is_null() {
        // SAFETY: as below.
        let start = unsafe { syscall(number::MREMAP, [old, old_length, new_length, flags, new, 0]) };
        return if start < 0 { MAP_FAILED } else { start as *mut c_void };
    }
    let _visit = visit();
    // SAFETY: the program's own call, handed on.
    let start = unsafe { call!(real::MREMAP, (old, old_length, new_length, flags, new) -> *mut c_void) };
    if ARE_WATCHED.load(Ordering::Relaxed)
        && start != MAP_FAILED
        && let Some((segment, area)) = here()
    {
        let moved = [extent(old, old_length), extent(start as usize, new_length)];
        tell(segment, area, Kind::MappingMoved, &moved);
    }
    start
}

/// Whole pages.
fn extent(start: usize, length: usize) -> Extent {
    let size_bytes = length.checked_next_multiple_of(page_bytes()).unwrap_or(length) as u64;
    Extent { address: start as u64, size_bytes }
}

fn tell<const N: usize>(segment: Segment, area: &ThreadArea, kind: Kind, extents: &[Extent; N]) {
    let words = extents.map(|extent| [extent.address, extent.size_bytes]);
    if !segment.write(kind, now_ns(), area, words.as_flattened(), None) {
        segment.control().lost_ends.fetch_add(1, Ordering::Relaxed);
        check_reader(segment.control());
    }
}

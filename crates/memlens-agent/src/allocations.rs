//! The slow paths of the allocation functions: entered when a byte is drawn, for large blocks, at a thread's first
//! allocation, and where the filter says that a block may be watched.
//!
//! A block begins after the real function has returned, and ends before the real one is called: so the records'
//! times put the ends of blocks before the begins of others at their addresses, in other threads, too.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::Ordering;

use memlens_events::agent::{Allocation, Caller, Control, Kind, NO_GAP};

use crate::arch;
use crate::draw::{self, ALWAYS_FROM_BYTES};
use crate::real::{self, call};
use crate::ring::{Segment, StackPart, now_ns};
use crate::session::{check_reader, here, visit};
use crate::thread_area::ThreadArea;
use crate::watched;

/// A call of the program: where its return address lies on the stack, by the architecture's [`arch::RETURN_ADDRESS_AT`], and the caller's
/// frame pointer.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) sp: usize,
    pub(crate) bp: usize,
}

impl Entry {
    pub(crate) fn caller(self) -> Caller {
        // SAFETY: the entry points hand on where it lies.
        let ip = unsafe { ((self.sp + arch::RETURN_ADDRESS_AT) as *const u64).read() };
        Caller { ip, sp: self.returned_sp() as u64, bp: self.bp as u64 }
    }

    /// The stack pointer after the call's return.
    pub(crate) fn returned_sp(self) -> usize {
        self.sp + arch::RETURNED_SP_AT
    }
}

/// The time in which a real function runs on behalf of a thread: what it allocates itself is not looked at.
pub(crate) struct Inside {
    area: &'static ThreadArea,
    before: usize,
}

impl Inside {
    /// None: the thread is inside already.
    pub(crate) fn enter(area: &'static ThreadArea, entry: Entry) -> Option<Self> {
        let before = area.inside.get();
        // A call that was left by a jump out of a signal handler has its stack pointer below ours.
        if before > entry.sp {
            return None;
        }
        area.inside.set(entry.sp);
        Some(Self { area, before: 0 })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.area.inside.set(self.before);
    }
}

/// Whether a block of this size is watched: the mean gap of the draw, 0 for its size alone.
pub(crate) fn drawn(control: &Control, area: &ThreadArea, size_bytes: u64) -> Option<u64> {
    if size_bytes >= ALWAYS_FROM_BYTES.load(Ordering::Relaxed) {
        let is_watched = size_bytes >= control.always_from_bytes.load(Ordering::Relaxed)
            || control.gap_shift.load(Ordering::Relaxed) < NO_GAP;
        return is_watched.then_some(0);
    }
    if area.budget.left() >= 0 {
        return None;
    }
    let seed = now_ns() ^ u64::from(area.tid.get()) << 32;
    let shift = control.gap_shift.load(Ordering::Relaxed);
    let (mut draw, mut left) = (area.draw.get(), area.budget.left());
    let gap = draw.decide(size_bytes, &mut left, shift, seed);
    area.draw.set(draw);
    area.budget.set(left);
    gap
}

/// A watched block has come into being.
fn begun(segment: Segment, area: &ThreadArea, entry: Entry, allocation: Allocation) {
    let control = segment.control();
    if !watched::insert(allocation.address) {
        control.blocks_without_room.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let stack = StackPart::from(entry.returned_sp(), control, area);
    let began_ns = now_ns();
    if !segment.write(Kind::Allocated, began_ns, area, &allocation.words(), Some(stack)) {
        watched::remove(allocation.address);
        control.lost_allocations.fetch_add(1, Ordering::Relaxed);
        check_reader(control);
    } else if allocation.gap_bytes > 0 {
        draw::count_drawn(control, now_ns().saturating_sub(began_ns));
    }
}

/// Says something of a block that is or was watched.
fn tell(segment: Segment, area: &ThreadArea, kind: Kind, address: u64) {
    if !segment.write(kind, now_ns(), area, &[address], None) {
        segment.control().lost_ends.fetch_add(1, Ordering::Relaxed);
        check_reader(segment.control());
    }
}

/// Calls `real` for a block of `size_bytes`, and reports it if it is drawn.
fn allocate(size_bytes: usize, entry: Entry, real: impl FnOnce() -> *mut c_void) -> *mut c_void {
    allocate_stored(size_bytes, 0, entry, real)
}

/// The same, where the program finds the address at `stored_at`.
fn allocate_stored(
    size_bytes: usize,
    stored_at: u64,
    entry: Entry,
    real: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    if !real::ready() {
        return real::arena_block(size_bytes);
    }
    let _visit = visit();
    let Some((segment, area)) = here() else { return real() };
    let Some(inside) = Inside::enter(area, entry) else { return real() };
    let gap = drawn(segment.control(), area, size_bytes as u64);
    let block = real();
    if let Some(gap_bytes) = gap
        && !block.is_null()
    {
        let caller = entry.caller();
        let (address, size_bytes) = (block as u64, size_bytes as u64);
        let old_address = 0;
        begun(
            segment,
            area,
            entry,
            Allocation { address, size_bytes, gap_bytes, old_address, stored_at, caller },
        );
    }
    drop(inside);
    block
}

pub unsafe extern "C" fn slow_malloc(size: usize, sp: usize, bp: usize) -> *mut c_void {
    // SAFETY: the program's own call, handed on.
    allocate(size, Entry { sp, bp }, || unsafe { call!(real::MALLOC, (size) -> *mut c_void) })
}

pub unsafe extern "C" fn slow_calloc(count: usize, size: usize, sp: usize, bp: usize) -> *mut c_void {
    let bytes = count.saturating_mul(size);
    // SAFETY: as above.
    allocate(bytes, Entry { sp, bp }, || unsafe { call!(real::CALLOC, (count, size) -> *mut c_void) })
}

pub unsafe extern "C" fn slow_memalign(alignment: usize, size: usize, sp: usize, bp: usize) -> *mut c_void {
    // SAFETY: as above.
    allocate(size, Entry { sp, bp }, || unsafe { call!(real::MEMALIGN, (alignment, size) -> *mut c_void) })
}

pub unsafe extern "C" fn slow_aligned_alloc(
    alignment: usize,
    size: usize,
    sp: usize,
    bp: usize,
) -> *mut c_void {
    // SAFETY: as above.
    allocate(size, Entry { sp, bp }, || unsafe {
        call!(real::ALIGNED_ALLOC, (alignment, size) -> *mut c_void)
    })
}

pub unsafe extern "C" fn slow_valloc(size: usize, sp: usize, bp: usize) -> *mut c_void {
    // SAFETY: as above.
    allocate(size, Entry { sp, bp }, || unsafe { call!(real::VALLOC, (size) -> *mut c_void) })
}

pub unsafe extern "C" fn slow_pvalloc(size: usize, sp: usize, bp: usize) -> *mut c_void {
    // SAFETY: as above.
    allocate(size, Entry { sp, bp }, || unsafe { call!(real::PVALLOC, (size) -> *mut c_void) })
}

pub unsafe extern "C" fn slow_posix_memalign(
    place: *mut *mut c_void,
    alignment: usize,
    size: usize,
    sp: usize,
    bp: usize,
) -> c_int {
    let mut status = 0;
    // SAFETY: the program's own call, handed on; the real function has set the place when it says so.
    let function = || unsafe {
        status = call!(real::POSIX_MEMALIGN, (place, alignment, size) -> c_int);
        if status == 0 { *place } else { ptr::null_mut() }
    };
    allocate_stored(size, place as u64, Entry { sp, bp }, function);
    status
}

pub unsafe extern "C" fn slow_realloc(block: *mut c_void, size: usize, sp: usize, bp: usize) -> *mut c_void {
    let entry = Entry { sp, bp };
    if let Some(old_size) = real::arena_size(block) {
        // SAFETY: a block of the arena; the new one has room for what is copied.
        unsafe {
            let new = slow_malloc(size, sp, bp);
            if !new.is_null() {
                ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast::<u8>(), old_size.min(size));
            }
            return new;
        }
    }
    // SAFETY: the program's own call, handed on.
    let real = || unsafe { call!(real::REALLOC, (block, size) -> *mut c_void) };
    if !real::ready() {
        return if block.is_null() { real::arena_block(size) } else { ptr::null_mut() };
    }
    let _visit = visit();
    let was_watched = watched::remove(block as u64);
    let Some((segment, area)) = here() else { return real() };
    if was_watched {
        tell(segment, area, Kind::Moving, block as u64);
    }
    let Some(inside) = Inside::enter(area, entry) else { return real() };
    let gap = drawn(segment.control(), area, size as u64);
    let new = real();
    if new.is_null() {
        // With size 0 the block is gone; else it is where it was.
        if was_watched && size != 0 && watched::insert(block as u64) {
            tell(segment, area, Kind::Kept, block as u64);
        }
    } else if let Some(gap_bytes) = gap {
        let old_address = if was_watched { block as u64 } else { 0 };
        let (address, size_bytes, caller) = (new as u64, size as u64, entry.caller());
        begun(
            segment,
            area,
            entry,
            Allocation { address, size_bytes, gap_bytes, old_address, stored_at: 0, caller },
        );
    }
    drop(inside);
    new
}

pub unsafe extern "C" fn slow_reallocarray(
    block: *mut c_void,
    count: usize,
    size: usize,
    sp: usize,
    bp: usize,
) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        if !real::ready() || real::REALLOCARRAY.load(Ordering::Acquire).is_null() {
            return ptr::null_mut();
        }
        // SAFETY: the program's own call, which the real function refuses.
        return unsafe { call!(real::REALLOCARRAY, (block, count, size) -> *mut c_void) };
    };
    let area = arch::thread();
    if (bytes as u64) < ALWAYS_FROM_BYTES.load(Ordering::Relaxed) {
        area.budget.count(bytes as u64);
    }
    // SAFETY: the same call with the product.
    unsafe { slow_realloc(block, bytes, sp, bp) }
}

/// A block is about to end. True: it is one of the arena's, and nobody else's business.
fn ending(block: *mut c_void) -> bool {
    if real::arena_size(block).is_some() {
        return true;
    }
    let _visit = visit();
    if watched::remove(block as u64)
        && let Some((segment, area)) = here()
    {
        tell(segment, area, Kind::Freed, block as u64);
    }
    false
}

pub unsafe extern "C" fn slow_free(block: *mut c_void) {
    if !ending(block) {
        // SAFETY: the program's own call, handed on.
        unsafe { call!(real::FREE, (block) -> ()) }
    }
}

pub unsafe extern "C" fn slow_free_sized(block: *mut c_void, size: usize) {
    if !ending(block) {
        // SAFETY: as above.
        unsafe { call!(real::FREE_SIZED, (block, size) -> ()) }
    }
}

pub unsafe extern "C" fn slow_free_aligned_sized(block: *mut c_void, alignment: usize, size: usize) {
    if !ending(block) {
        // SAFETY: as above.
        unsafe { call!(real::FREE_ALIGNED_SIZED, (block, alignment, size) -> ()) }
    }
}

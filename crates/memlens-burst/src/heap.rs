//! The decoder's memory: given out once, from a mapping of our own. It asks for some at its first use only.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use memlens_inside::own_memory;

const BYTES: usize = 16 << 20;

/// Gives out memory and takes none back.
#[derive(Debug, Default)]
pub struct OwnHeap {
    start: AtomicPtr<u8>,
    used: AtomicUsize,
}

impl OwnHeap {
    /// Without memory yet.
    pub const fn new() -> Self {
        Self { start: AtomicPtr::new(ptr::null_mut()), used: AtomicUsize::new(0) }
    }

    /// Whether a block is of this heap.
    pub fn contains(&self, block: *const u8) -> bool {
        let start = self.start.load(Ordering::Acquire) as usize;
        start != 0 && (start..start + BYTES).contains(&(block as usize))
    }

    fn start(&self) -> *mut u8 {
        let start = self.start.load(Ordering::Acquire);
        if !start.is_null() {
            return start;
        }
        let Some(memory) = own_memory(BYTES) else { return ptr::null_mut() };
        match self.start.compare_exchange(ptr::null_mut(), memory, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => memory,
            // Another thread was faster; ours stays unused.
            Err(first) => first,
        }
    }
}

// SAFETY: each byte is given out once, by an atomic counter.
unsafe impl GlobalAlloc for OwnHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let start = self.start();
        if start.is_null() {
            return start;
        }
        // The mapping is aligned to pages: so is what is aligned from its start.
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            let end = used.next_multiple_of(layout.align()).checked_add(layout.size())?;
            (end <= BYTES).then_some(end)
        });
        match taken {
            Ok(used) => start.wrapping_add(used.next_multiple_of(layout.align())),
            Err(_) => ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

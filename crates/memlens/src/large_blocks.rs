//! Large tables in huge pages.
//!
//! What a recording keeps of a large program's code and data is looked up in no order, in tables of some tens of megabytes: more than
//! a second-level TLB covers in pages of 4 KiB. Where the kernel gives huge pages only to who asks (`madvise` in
//! `/sys/kernel/mm/transparent_hugepage/enabled`, as most distributions have it), this asks.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

/// Bytes of a huge page of x86-64, and of AArch64 with pages of 4 KiB. With larger pages the kernel passes over what is too short.
const HUGE_PAGE: usize = 2 << 20;
/// Blocks from this size on hold a whole huge page wherever they lie. Units: bytes.
const LARGE: usize = 2 * HUGE_PAGE;

/// The system's allocator, with large blocks in huge pages as far as the kernel has some.
pub struct LargeBlocksInHugePages;

// SAFETY: all blocks are the system allocator's; what the kernel is told of their pages changes nothing of what is in them.
unsafe impl GlobalAlloc for LargeBlocksInHugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that it asks for.
        advised(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        advised(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above.
        advised(unsafe { System.realloc(block, layout, new_size) }, new_size)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

/// The block, for which huge pages are asked if it is large.
#[inline]
fn advised(block: *mut u8, bytes: usize) -> *mut u8 {
    if bytes >= LARGE && !block.is_null() {
        advise(block, bytes);
    }
    block
}

#[cold]
fn advise(block: *mut u8, bytes: usize) {
    let start = block.addr().next_multiple_of(HUGE_PAGE);
    let end = (block.addr() + bytes) / HUGE_PAGE * HUGE_PAGE;
    if start < end {
        // SAFETY: whole pages within the block. A kernel without huge pages says so, and nothing is different then.
        unsafe { libc::madvise(block.with_addr(start).cast(), end - start, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the mapping of an address has the flag of `MADV_HUGEPAGE`.
    fn is_advised(addr: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("readable");
        let mut is_here = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let bounds =
                range.map(|(start, end)| (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16)));
            match (bounds, line.strip_prefix("VmFlags:")) {
                (Some((Ok(start), Ok(end))), _) => is_here = (start..end).contains(&addr),
                (_, Some(flags)) if is_here => return flags.split(' ').any(|flag| flag == "hg"),
                _ => {}
            }
        }
        panic!("no mapping at {addr:#x}");
    }

    #[test]
    fn large_blocks_are_advised_also_when_they_grow() {
        if !std::fs::exists("/sys/kernel/mm/transparent_hugepage").expect("readable") {
            eprintln!("this kernel has no huge pages of this kind");
            return;
        }
        let middle = |block: &[u8]| block.as_ptr().addr() + block.len() / 2;
        let zeroed = vec![0u8; 3 * LARGE];
        assert!(is_advised(middle(&zeroed)));
        let mut grown: Vec<u8> = Vec::with_capacity(LARGE);
        grown.resize(LARGE, 1);
        grown.reserve_exact(9 * LARGE);
        grown.resize(9 * LARGE, 2);
        assert!(is_advised(middle(&grown)));
        assert_eq!((grown[LARGE - 1], grown[LARGE]), (1, 2));
        let small = vec![1u8; LARGE / 2];
        assert!(!is_advised(middle(&small)));
    }
}

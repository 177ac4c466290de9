//! `PAGEMAP_SCAN`: what kinds of pages lie in a range (Documentation/admin-guide/mm/pagemap.rst).

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::PAGE_BYTES;

/// In memory.
pub const PRESENT: u64 = 1 << 3;
/// Swapped out.
pub const SWAPPED: u64 = 1 << 4;
/// The page of zeros that everybody shares.
pub const ZERO: u64 = 1 << 5;
/// Mapped by one entry of a higher level: a transparent huge page as a whole, or hugetlb.
pub const HUGE: u64 = 1 << 6;

/// Pages next to one another that are alike.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Region {
    /// First byte.
    pub start: u64,
    /// Byte behind the last.
    pub end: u64,
    /// [`PRESENT`] and so on.
    pub categories: u64,
}

/// `struct pm_scan_arg` (linux/fs.h).
#[repr(C)]
#[derive(Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_used: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_any_of: u64,
    return_mask: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong =
    3 << 30 | (size_of::<ScanArguments>() as libc::c_ulong) << 16 | (b'f' as libc::c_ulong) << 8 | 16;

/// Calls `each` for the regions of `start..end` that are in memory or swapped out; None: this kernel does not tell.
pub fn scan(pagemap: &File, start: u64, end: u64, mut each: impl FnMut(&Region)) -> Option<()> {
    let mut regions = [Region::default(); 256];
    let (mut at, end) = (start & !(PAGE_BYTES - 1), end.checked_next_multiple_of(PAGE_BYTES)?);
    while at < end {
        let mut arguments = ScanArguments {
            size: size_of::<ScanArguments>() as u64,
            start: at,
            end,
            regions: regions.as_mut_ptr() as u64,
            regions_used: regions.len() as u64,
            category_any_of: PRESENT | SWAPPED,
            return_mask: PRESENT | SWAPPED | ZERO | HUGE,
            ..ScanArguments::default()
        };
        // SAFETY: the structure says its size and how many regions there is room for; the kernel fills both.
        let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut arguments) };
        regions.get(..usize::try_from(found).ok()?)?.iter().for_each(&mut each);
        if arguments.walk_end <= at {
            break;
        }
        at = arguments.walk_end;
    }
    Some(())
}

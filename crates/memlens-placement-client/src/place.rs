//! What happens with large blocks and mappings.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use memlens_inside::{number, syscall};
use memlens_placement::{HUGE_PAGE_BYTES, MAX_BLOCKS, NEAR_BYTES, Plan, Site, is_on_stack, whole};

use crate::{modules, real, reserved, session};

/// Smaller blocks go to the real functions directly. 0 until those are known.
pub static LEAST_BYTES: AtomicU64 = AtomicU64::new(0);

const PAGE_BYTES: u64 = 4096;
/// Words of stack in which a site's return addresses are looked for.
const STACK_WORDS: usize = 1024;

/// The site of the plan whose block is being allocated, for a call with the return address at `sp`.
fn site_at(sp: usize, bytes: usize, slack: u64) -> Option<(&'static Plan, &'static Site)> {
    let plan = session::plan()?;
    if (bytes as u64) < plan.least_bytes || plan.sites().is_empty() {
        return None;
    }
    modules::find(plan);
    let mut words = [0_u64; STACK_WORDS];
    let stack = read_stack(sp, &mut words);
    let site = plan.sites().iter().find(|site| {
        let addresses =
            site.frames().iter().map(|frame| Some(modules::bias(frame.module)?.wrapping_add(frame.offset)));
        is_on_stack(addresses, stack, slack)
    })?;
    Some((plan, site))
}

/// Copies words from `sp` up as far as they are there: the stack's end is not known, so the kernel looks.
fn read_stack(sp: usize, words: &mut [u64; STACK_WORDS]) -> &[u64] {
    let bytes = size_of_val(words);
    // A partial copy ends where a range does (process_vm_readv(2)), so one range a page.
    let mut ranges = [[0_usize; 2]; STACK_WORDS * 8 / PAGE_BYTES as usize + 1];
    let (mut at, mut used) = (sp, 0);
    while at < sp + bytes && used < ranges.len() {
        let end = ((at | (PAGE_BYTES as usize - 1)) + 1).min(sp + bytes);
        ranges[used] = [at, end - at];
        (at, used) = (end, used + 1);
    }
    let local = [words.as_mut_ptr() as usize, bytes];
    // SAFETY: the call asks and changes nothing.
    let process = unsafe { syscall(number::GETPID, [0; 6]) } as usize;
    let arguments = [process, (&raw const local) as usize, 1, ranges.as_ptr() as usize, used, 0];
    // SAFETY: the kernel writes at most `bytes` bytes to `words`; what it reads it checks.
    let got = unsafe { syscall(number::PROCESS_VM_READV, arguments) };
    if got >= 8 {
        return &words[..got as usize / 8];
    }
    // Forbidden (seccomp(2)): at least where this call returns to.
    // SAFETY: `sp` points to the return address.
    words[0] = unsafe { (sp as *const u64).read() };
    &words[..1]
}

/// A block of a site on a boundary of huge pages, as far as possible in reserved ones, whose place is returned, too; 0:
/// there is none, ask the real function.
fn placed(plan: &Plan, site: &Site, alignment: usize, bytes: usize) -> (usize, Option<(u64, u64)>) {
    let block = aligned(plan, alignment, bytes);
    let taken = if block != 0 && plan.takes_reserved != 0 { reserve(site, block, bytes) } else { None };
    (block, taken)
}

/// Puts a new block of glibc's into reserved pages, if there are enough.
fn reserve(site: &Site, block: usize, bytes: usize) -> Option<(u64, u64)> {
    // SAFETY: the callers have it from glibc, and the program has not got it yet.
    let taken = unsafe { reserved::take(block as u64, bytes as u64) };
    match taken {
        Some((_, length)) => site.reserved_bytes.fetch_add(length, Ordering::Relaxed),
        None => site.unreserved.fetch_add(1, Ordering::Relaxed),
    };
    taken
}

/// Asks the kernel to use huge pages for all pages that a range touches: left out, its last one would keep the kernel
/// from a huge page there. Whether it agreed.
fn advise(start: u64, bytes: u64) -> bool {
    const MADV_HUGEPAGE: usize = 14;
    let first = start & !(PAGE_BYTES - 1);
    let length = (start + bytes).next_multiple_of(PAGE_BYTES) - first;
    // SAFETY: the advice does not change what the memory holds.
    unsafe { syscall(number::MADVISE, [first as usize, length as usize, MADV_HUGEPAGE, 0, 0, 0]) == 0 }
}

/// Writes down where a block or variable lies.
fn note(plan: &Plan, object: u32, start: u64, bytes: u64) {
    let at = plan.noted.fetch_add(1, Ordering::Relaxed) as usize % MAX_BLOCKS;
    let block = &plan.blocks[at];
    // SAFETY: the call asks and changes nothing.
    let process = unsafe { syscall(number::GETPID, [0; 6]) } as u32;
    block.bytes.store(0, Ordering::Relaxed);
    block.process.store(process, Ordering::Release);
    block.object.store(object, Ordering::Relaxed);
    block.start.store(start, Ordering::Relaxed);
    block.bytes.store(bytes, Ordering::Release);
}

/// A block of a site exists; `taken`: in reserved pages, which need no advice.
fn made(plan: &Plan, site: &Site, start: usize, bytes: usize, taken: bool) {
    site.blocks.fetch_add(1, Ordering::Relaxed);
    site.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    if plan.places != 0 && !taken && !advise(start as u64, bytes as u64) {
        site.refused.fetch_add(1, Ordering::Relaxed);
    }
    note(plan, site.object, start as u64, bytes as u64);
}

/// Puts a variable into huge pages. At the start only: nothing has been written to it.
pub fn variable(plan: &Plan, object: u32, start: u64, bytes: u64) {
    if plan.places != 0 {
        advise(start, bytes);
    }
    note(plan, object, start, bytes);
}

/// A block on a boundary of huge pages, for a plan that places; 0: there is none, ask the real function.
fn aligned(plan: &Plan, alignment: usize, bytes: usize) -> usize {
    if plan.places == 0 || !real::is_glibc() {
        return 0;
    }
    let alignment = alignment.max(HUGE_PAGE_BYTES as usize);
    // SAFETY: as memalign(3); the block is the program's.
    unsafe { real::call!(real::MEMALIGN, alignment, bytes) }
}

/// Zeroes a block of glibc's. Its whole pages are given back to the kernel instead of being written to: what the
/// program never touches takes no memory, as after the real calloc(3).
fn clear(start: usize, bytes: usize) {
    const MADV_DONTNEED: usize = 4;
    let fill = |from: u64, to: u64| {
        // SAFETY: a part of the block.
        unsafe { ptr::write_bytes(from as *mut u8, 0, (to - from) as usize) };
    };
    let (start, end) = (start as u64, (start + bytes) as u64);
    let Some((first, length)) = whole(start, end - start, PAGE_BYTES) else { return fill(start, end) };
    // SAFETY: the pages are the block's alone, private and anonymous: afterwards they read as zeros.
    let given =
        unsafe { syscall(number::MADVISE, [first as usize, length as usize, MADV_DONTNEED, 0, 0, 0]) == 0 };
    if given {
        fill(start, first);
        fill(first + length, end);
    } else {
        fill(start, end);
    }
}

/// malloc(3) of a large block.
///
/// # Safety
/// Entered from `entry.rs`, as are the others.
pub unsafe extern "C" fn slow_malloc(bytes: usize, sp: usize) -> usize {
    real::find();
    let found = site_at(sp, bytes, 0);
    let (block, taken) = found.map_or((0, None), |(plan, site)| placed(plan, site, 0, bytes));
    // SAFETY: as malloc(3).
    let block = if block == 0 { unsafe { real::call!(real::MALLOC, bytes) } } else { block };
    if let Some((plan, site)) = found.filter(|_| block != 0) {
        made(plan, site, block, bytes, taken.is_some());
    }
    block
}

/// calloc(3) of a large block.
///
/// # Safety
/// As above.
pub unsafe extern "C" fn slow_calloc(count: usize, size: usize, sp: usize) -> usize {
    real::find();
    let found = count.checked_mul(size).and_then(|bytes| Some((site_at(sp, bytes, 0)?, bytes)));
    let (mut block, mut taken) = (0, None);
    if let Some(((plan, site), bytes)) = found {
        (block, taken) = placed(plan, site, 0, bytes);
        if block != 0 {
            // First: a small page that clearing touches would keep the kernel from a huge one.
            advise(block as u64, bytes as u64);
            // Reserved pages are zero.
            let (first, length) = taken.unwrap_or((block as u64, 0));
            let end = (first + length) as usize;
            clear(block, first as usize - block);
            clear(end, block + bytes - end);
        }
    }
    if block == 0 {
        // SAFETY: as calloc(3).
        block = unsafe { real::call!(real::CALLOC, count, size) };
    }
    if let Some(((plan, site), bytes)) = found.filter(|_| block != 0) {
        made(plan, site, block, bytes, taken.is_some());
    }
    block
}

/// realloc(3) to a large size. The block stays where the allocator puts it: moving it to a boundary would cost a copy
/// where the real function may only move page-table entries.
///
/// # Safety
/// As above.
pub unsafe extern "C" fn slow_realloc(block: usize, bytes: usize, sp: usize) -> usize {
    real::find();
    let found = site_at(sp, bytes, 0).or_else(|| site_at(sp, bytes, NEAR_BYTES));
    // SAFETY: as realloc(3).
    let block = unsafe { real::call!(real::REALLOC, block, bytes) };
    if let Some((plan, site)) = found.filter(|_| block != 0) {
        made(plan, site, block, bytes, false);
    }
    block
}

/// memalign(3) of a large block.
///
/// # Safety
/// As above.
pub unsafe extern "C" fn slow_memalign(alignment: usize, bytes: usize, sp: usize) -> usize {
    real::find();
    // SAFETY: as memalign(3).
    with_alignment(alignment, bytes, sp, || unsafe { real::call!(real::MEMALIGN, alignment, bytes) })
}

/// aligned_alloc(3) of a large block.
///
/// # Safety
/// As above.
pub unsafe extern "C" fn slow_aligned_alloc(alignment: usize, bytes: usize, sp: usize) -> usize {
    real::find();
    // SAFETY: as aligned_alloc(3).
    with_alignment(alignment, bytes, sp, || unsafe { real::call!(real::ALIGNED_ALLOC, alignment, bytes) })
}

fn with_alignment(alignment: usize, bytes: usize, sp: usize, real: impl FnOnce() -> usize) -> usize {
    // What the real function refuses it shall refuse.
    let found = site_at(sp, bytes, 0).filter(|_| alignment.is_power_of_two());
    let (block, taken) = found.map_or((0, None), |(plan, site)| placed(plan, site, alignment, bytes));
    let block = if block == 0 { real() } else { block };
    if let Some((plan, site)) = found.filter(|_| block != 0) {
        made(plan, site, block, bytes, taken.is_some());
    }
    block
}

/// posix_memalign(3) of a large block.
///
/// # Safety
/// As above.
pub unsafe extern "C" fn slow_posix_memalign(
    place: *mut usize,
    alignment: usize,
    bytes: usize,
    sp: usize,
) -> usize {
    real::find();
    let found = site_at(sp, bytes, 0);
    let is_valid = alignment.is_power_of_two() && alignment >= size_of::<usize>();
    // A larger alignment only: errors stay the real function's.
    let asked = match found {
        Some((plan, _)) if is_valid && plan.places != 0 && real::is_glibc() => {
            alignment.max(HUGE_PAGE_BYTES as usize)
        }
        _ => alignment,
    };
    // SAFETY: as posix_memalign(3).
    let status = unsafe { real::call!(real::POSIX_MEMALIGN, place, asked, bytes) };
    // `int`: the upper half of the register means nothing.
    if let Some((plan, site)) = found.filter(|_| status as u32 == 0) {
        // SAFETY: the function succeeded, so it has written the block's address.
        let block = unsafe { place.read() };
        let takes = asked != alignment && plan.takes_reserved != 0;
        let taken = takes && reserve(site, block, bytes).is_some();
        made(plan, site, block, bytes, taken);
    }
    status
}

/// mmap(2) of a large range.
///
/// # Safety
/// As above.
pub unsafe extern "C" fn slow_mmap(
    address: usize,
    bytes: usize,
    protection: usize,
    flags: usize,
    descriptor: usize,
    offset: usize,
    sp: usize,
) -> usize {
    const PRIVATE_ANONYMOUS: u32 = 0x22;
    const HUGETLB: u32 = 0x4_0000;
    real::find();
    // SAFETY: as mmap(2).
    let mapped = unsafe { real::call!(real::MMAP, address, bytes, protection, flags, descriptor, offset) };
    let flags = flags as u32;
    if mapped != usize::MAX
        && flags & (PRIVATE_ANONYMOUS | HUGETLB) == PRIVATE_ANONYMOUS
        && let Some((plan, site)) = site_at(sp, bytes, 0)
    {
        made(plan, site, mapped, bytes, false);
    }
    mapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_is_read_as_far_as_it_goes() {
        let mut words = [0; STACK_WORDS];
        let local = [1_u64, 2, 3];
        let read = read_stack(local.as_ptr() as usize, &mut words);
        assert_eq!(read[..3], local);
        // The last page before a gap.
        let arguments = [0, 3 * PAGE_BYTES as usize, 3, 0x22, usize::MAX, 0];
        // SAFETY: a new mapping, whose second page is given back.
        let start = unsafe {
            const MUNMAP: usize = 11;
            let start = syscall(number::MMAP, arguments);
            assert!(start > 0);
            assert_eq!(
                syscall(MUNMAP, [start as usize + PAGE_BYTES as usize, PAGE_BYTES as usize, 0, 0, 0, 0]),
                0
            );
            start as usize
        };
        assert_eq!(read_stack(start + PAGE_BYTES as usize - 24, &mut words).len(), 3);
        assert_eq!(read_stack(start, &mut words).len(), PAGE_BYTES as usize / 8);
    }

    #[test]
    fn a_cleared_block_reads_as_zeros_to_its_last_byte() {
        let mut block = vec![0xff_u8; 5 * PAGE_BYTES as usize];
        clear(block.as_mut_ptr() as usize + 1, block.len() - 2);
        let last = block.len() - 1;
        assert_eq!([block[0], block[last]], [0xff, 0xff], "nothing else is touched");
        assert!(block[1..last].iter().all(|&byte| byte == 0));
        let mut small = [0xff_u8; 32];
        clear(small.as_mut_ptr() as usize, 32);
        assert_eq!(small, [0; 32]);
    }
}

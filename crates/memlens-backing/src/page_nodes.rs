//! In which memory node (NUMA) pages of a process lie: move_pages(2), which moves nothing if it is told no nodes.

use std::io;
use std::ptr;

use thiserror::Error;

use crate::PAGE_BYTES;

/// Pages asked about in one system call, at most: the kernel holds the process's mappings meanwhile.
const BATCH: usize = 256;

/// Why the kernel tells no page's node. Reads after "failed to".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The kernel, or a container's filter of system calls, lets nobody ask.
    #[error("ask in which memory nodes pages lie: the kernel or the container does not allow move_pages(2)")]
    NotAllowed,
    /// Whoever asks may not trace the process (ptrace(2)).
    #[error("ask in which memory nodes its pages lie: it takes the right to trace the process")]
    NotOurs,
    /// The kernel has no such call.
    #[error("ask in which memory nodes pages lie: this kernel has no move_pages(2)")]
    Missing,
    /// The process has ended.
    #[error("ask in which memory nodes its pages lie: there is no such process any more")]
    Gone,
}

impl NodeError {
    /// Whether it is so for every process.
    pub fn is_for_good(self) -> bool {
        matches!(self, Self::NotAllowed | Self::Missing)
    }

    fn of(pid: u32, error: &io::Error) -> Self {
        match error.raw_os_error() {
            // A process that has ended and was not waited for has no memory.
            Some(libc::ESRCH | libc::EINVAL) => Self::Gone,
            Some(libc::ENOSYS) => Self::Missing,
            // A filter forbids the call with any process, the kernel with those of others.
            _ if pid != 0 && probe().is_ok() => Self::NotOurs,
            _ => Self::NotAllowed,
        }
    }
}

/// Where a page lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageNode {
    /// In this node's memory.
    Node(u32),
    /// Nowhere: not touched yet, given back, or swapped out.
    Absent,
    /// It is not the process's: the kernel's page of zeros, the kernel itself, or nothing is mapped there.
    NotOwn,
    /// The kernel does not tell: the page is on its way to another place.
    Untold,
}

impl PageNode {
    /// From what the kernel says of a page.
    fn of(status: i32) -> Self {
        match -status {
            libc::ENOENT => Self::Absent,
            libc::EFAULT => Self::NotOwn,
            _ => u32::try_from(status).map_or(Self::Untold, Self::Node),
        }
    }
}

/// Where pages of a process lie, from any address in each: `found` gets as many answers in their order, but for an error. A few tenths
/// of a microsecond a page.
///
/// # Errors
/// See [`NodeError`].
pub fn page_nodes(pid: u32, addresses: &[u64], found: &mut Vec<PageNode>) -> Result<(), NodeError> {
    found.clear();
    let mut pages = [ptr::null_mut::<libc::c_void>(); BATCH];
    let mut status = [0_i32; BATCH];
    for some in addresses.chunks(BATCH) {
        for (page, address) in pages.iter_mut().zip(some) {
            *page = ptr::without_provenance_mut((address & !(PAGE_BYTES - 1)) as usize);
        }
        // SAFETY: there are as many pages as `some` has, and as much room for what is said of them; without nodes nothing is moved.
        let said = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                libc::c_long::from(pid as i32),
                some.len(),
                pages.as_ptr(),
                ptr::null::<i32>(),
                status.as_mut_ptr(),
                0,
            )
        };
        if said < 0 {
            return Err(NodeError::of(pid, &io::Error::last_os_error()));
        }
        found.extend(status[..some.len()].iter().copied().map(PageNode::of));
    }
    Ok(())
}

/// Whether pages' nodes can be asked for at all: tried with a page of this process.
///
/// # Errors
/// See [`NodeError`].
pub fn probe() -> Result<(), NodeError> {
    let own = Box::new(1_u8);
    page_nodes(0, &[(&raw const *own).addr() as u64], &mut Vec::new())
}

#[cfg(test)]
mod tests {
    use memmap2::MmapMut;

    use super::*;

    #[test]
    fn what_is_said_of_a_page() {
        let said = [0, 3, -libc::ENOENT, -libc::EFAULT, -libc::EBUSY];
        let meant =
            [PageNode::Node(0), PageNode::Node(3), PageNode::Absent, PageNode::NotOwn, PageNode::Untold];
        assert_eq!(said.map(PageNode::of), meant);
    }

    #[test]
    fn own_pages_lie_somewhere_once_they_are_written() {
        // A container may forbid the call.
        if probe().is_err() {
            return;
        }
        const PAGES: usize = 700;
        let page = PAGE_BYTES as usize;
        let mut map = MmapMut::map_anon(PAGES * page).expect("mapped");
        if map.advise(memmap2::Advice::NoHugePage).is_err() {
            return;
        }
        // More than a batch, every third is written, and one is read only: the page of zeros.
        (0..PAGES).step_by(3).for_each(|at| map[at * page + 7] = 1);
        assert_eq!(std::hint::black_box(&map)[page], 0);
        let start = map.as_ptr().addr() as u64;
        let addresses: Vec<u64> = (0..PAGES as u64).map(|at| start + at * PAGE_BYTES + 9).collect();
        let mut found = Vec::new();
        page_nodes(std::process::id(), &addresses, &mut found).expect("our own");
        assert_eq!(found.len(), PAGES);
        for (at, found) in found.iter().enumerate() {
            let is_there = matches!(found, PageNode::Node(_));
            assert!(is_there == (at % 3 == 0), "{at}: {found:?}");
            assert!(at != 1 || *found == PageNode::NotOwn, "{found:?}");
        }
        assert_eq!(page_nodes(u32::MAX >> 1, &[start], &mut found), Err(NodeError::Gone));
        assert!(found.is_empty());
    }
}

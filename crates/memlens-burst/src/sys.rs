//! Memory of our own: nothing of libc, nothing of the target's heap.

use memlens_inside::{number, own_memory, syscall};

const READ_WRITE: usize = 3;
const READ_EXECUTE: usize = 5;
const SHARED: usize = 1;
const NO_RESERVE: usize = 0x4000;
const FIXED_NOREPLACE: usize = 0x10_0000;

fn address_of(result: isize) -> Option<*mut u8> {
    (result > 0).then_some(result as *mut u8)
}

/// A zeroed array of our own, for good.
pub fn own_array<T>(length: usize) -> Option<*mut T> {
    own_memory(length * size_of::<T>()).map(<*mut u8>::cast)
}

/// Gets pages for memory of our own at once, which costs less than a fault each. A kernel before Linux 5.14 does not.
pub fn populate(start: *const u8, bytes: usize, is_written: bool) {
    const POPULATE_READ: usize = 22;
    let advice = POPULATE_READ + usize::from(is_written);
    // SAFETY: changes no content.
    unsafe { syscall(number::MADVISE, [start as usize, bytes, advice, 0, 0, 0]) };
}

/// How much of memory that fills up from its begin has pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Populated {
    bytes: usize,
}

impl Populated {
    const FIRST: usize = 16 << 10;
    const MOST: usize = 256 << 10;

    /// Which pages, as bytes from the begin, are to be got for the first `bytes` of `all`; None: these have theirs. Some more than
    /// that, so that it is seldom, but not more than twice what was ever needed.
    #[inline]
    pub fn reach(&mut self, bytes: usize, all: usize) -> Option<core::ops::Range<usize>> {
        (bytes > self.bytes).then(|| {
            let from = self.bytes;
            let step = from.clamp(Self::FIRST, Self::MOST);
            self.bytes = (from + step).max(bytes.next_multiple_of(Self::FIRST)).min(all);
            from..self.bytes
        })
    }
}

/// Gives an array of [`own_array`] back.
///
/// # Safety
/// It is one, of this length, and nobody uses it any more.
pub unsafe fn give_back<T>(start: *mut T, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { syscall(number::MUNMAP, [start as usize, length * size_of::<T>(), 0, 0, 0, 0]) };
}

/// Memory that can be written at one address and executed at another, so that no page is both.
#[derive(Clone, Copy, Debug)]
pub struct CodeMemory {
    /// Where it is written.
    pub write: *mut u8,
    /// Where it is executed.
    pub execute: u64,
    /// Its size.
    pub bytes: usize,
}

impl CodeMemory {
    /// Maps it, with its executable side at exactly `place`; 0: anywhere. None: the kernel refuses, or something is
    /// there.
    pub fn at(place: u64, bytes: usize) -> Option<Self> {
        const CLOSE_ON_EXEC: usize = 1;
        // SAFETY: a constant name.
        let file = unsafe {
            syscall(number::MEMFD_CREATE, [c"memlens-code".as_ptr() as usize, CLOSE_ON_EXEC, 0, 0, 0, 0])
        };
        let file = usize::try_from(file).ok()?;
        let memory = Self::map(file, place, bytes);
        // SAFETY: a descriptor of ours; the mappings keep the file.
        unsafe { syscall(number::CLOSE, [file, 0, 0, 0, 0, 0]) };
        memory
    }

    fn map(file: usize, place: u64, bytes: usize) -> Option<Self> {
        // SAFETY: new mappings of a file of ours: the first at an address where nothing is (or refused), the second
        // where the kernel likes. A kernel that does not know the flag takes the address as a wish; then the mapping
        // is given back.
        unsafe {
            // Beyond the limit the kernel would raise a signal.
            if bytes > file_size_limit() || syscall(number::FTRUNCATE, [file, bytes, 0, 0, 0, 0]) != 0 {
                return None;
            }
            let flags = SHARED | NO_RESERVE;
            let fixed = if place == 0 { flags } else { flags | FIXED_NOREPLACE };
            let execute =
                address_of(syscall(number::MMAP, [place as usize, bytes, READ_EXECUTE, fixed, file, 0]))?;
            if place != 0 && execute as u64 != place {
                syscall(number::MUNMAP, [execute as usize, bytes, 0, 0, 0, 0]);
                return None;
            }
            let write = address_of(syscall(number::MMAP, [0, bytes, READ_WRITE, flags, file, 0]));
            if write.is_none() {
                syscall(number::MUNMAP, [execute as usize, bytes, 0, 0, 0, 0]);
            }
            Some(Self { write: write?, execute: execute as u64, bytes })
        }
    }

    /// Where the byte that is executed at `address` is written.
    pub fn write_at(&self, address: u64) -> *mut u8 {
        debug_assert!((self.execute..=self.execute + self.bytes as u64).contains(&address));
        self.write.wrapping_add((address - self.execute) as usize)
    }

    /// Gives it back.
    ///
    /// # Safety
    /// No thread executes in it, and nothing refers to it.
    pub unsafe fn unmap(self) {
        // SAFETY: two mappings of ours; the caller's promise.
        unsafe {
            syscall(number::MUNMAP, [self.write as usize, self.bytes, 0, 0, 0, 0]);
            syscall(number::MUNMAP, [self.execute as usize, self.bytes, 0, 0, 0, 0]);
        }
    }
}

/// How large a file the process may make, in bytes: beyond it comes SIGXFSZ (getrlimit(2), `RLIMIT_FSIZE`).
fn file_size_limit() -> usize {
    const FILE_SIZE: usize = 1;
    let mut limits = [0usize; 2];
    // SAFETY: only asks; writes two words.
    let status = unsafe { syscall(number::PRLIMIT64, [0, FILE_SIZE, 0, limits.as_mut_ptr() as usize, 0, 0]) };
    if status == 0 { limits[0] } else { 0 }
}

/// Reads a whole file of `/proc` into `buffer`; how many bytes. None: it cannot be read, or is larger.
pub fn read_file(path: &core::ffi::CStr, buffer: &mut [u8]) -> Option<usize> {
    const THIS_FOLDER: usize = -100isize as usize;
    const CLOSE_ON_EXEC: usize = 0o2_000_000;
    // SAFETY: a string that ends in zero; reads into the buffer's rest.
    unsafe {
        let file = syscall(number::OPENAT, [THIS_FOLDER, path.as_ptr() as usize, CLOSE_ON_EXEC, 0, 0, 0]);
        let file = usize::try_from(file).ok()?;
        let mut length = 0;
        let whole = loop {
            let rest = &mut buffer[length..];
            let read = syscall(number::READ, [file, rest.as_mut_ptr() as usize, rest.len(), 0, 0, 0]);
            match usize::try_from(read) {
                Ok(0) => break !rest.is_empty(),
                Ok(more) => length += more,
                Err(_) => break false,
            }
        };
        syscall(number::CLOSE, [file, 0, 0, 0, 0, 0]);
        whole.then_some(length)
    }
}

/// Copies this process's own memory, as far as it is mapped; how many bytes. None are, where the kernel refuses.
///
/// Source: process_vm_readv(2); what lies before a page that is not mapped is copied if it is a piece of its own.
pub fn copy_own(from: u64, into: &mut [u8]) -> usize {
    const PAGE: usize = 4096;
    let before_page = into.len().min(PAGE - from as usize % PAGE);
    let pieces = [[from as usize, before_page], [from as usize + before_page, into.len() - before_page]];
    let local = [into.as_mut_ptr() as usize, into.len()];
    // SAFETY: writes into the slice alone; what cannot be read is an error.
    let copied = unsafe {
        let process = syscall(number::GETPID, [0; 6]) as usize;
        let arguments = [process, local.as_ptr() as usize, 1, pieces.as_ptr() as usize, pieces.len(), 0];
        syscall(number::PROCESS_VM_READV, arguments)
    };
    usize::try_from(copied).unwrap_or(0)
}

/// Processor time of the calling thread, in ns; 0: not known.
pub fn thread_ns() -> u64 {
    const THREAD_CPU_CLOCK: usize = 3;
    let mut time = [0u64; 2];
    // SAFETY: writes a `struct timespec`.
    unsafe { syscall(number::CLOCK_GETTIME, [THREAD_CPU_CLOCK, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1])
}

/// Page faults of the calling thread so far; 0: not known.
pub fn thread_faults() -> u64 {
    const OF_THE_THREAD: usize = 1;
    /// Words of a `struct rusage`, and where the minor and the major faults stand.
    const WORDS: usize = 18;
    const FAULTS: core::ops::Range<usize> = 8..10;
    let mut usage = [0u64; WORDS];
    // SAFETY: writes a `struct rusage`.
    unsafe { syscall(number::GETRUSAGE, [OF_THE_THREAD, usage.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    usage[FAULTS].iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_gets_its_pages_in_growing_steps_and_each_once() {
        const ALL: usize = 3 << 20;
        let mut populated = Populated::default();
        let (mut end, mut steps) = (0, 0);
        for bytes in (100..=ALL).step_by(100) {
            let Some(range) = populated.reach(bytes, ALL) else { continue };
            assert_eq!(range.start, end);
            assert!(range.end >= bytes && range.end <= ALL.min(2 * bytes + Populated::FIRST));
            (end, steps) = (range.end, steps + 1);
        }
        assert_eq!((end, steps), (ALL, 16));
        assert!(populated.reach(ALL, ALL).is_none());
        assert_eq!(Populated::default().reach(100_000, ALL), Some(0..7 * Populated::FIRST));
    }
}

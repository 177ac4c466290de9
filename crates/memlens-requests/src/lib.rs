//! Client requests: how a program tells memlens when to collect, where it is, and what its memory
//! is. The C and C++ twin of this crate is `include/memlens.h`; a test holds the two together.
//!
//! This crate deliberately knows nothing of profilers, processes or files. It is `no_std`, allocates
//! nothing, takes no lock and makes no system call, so requests are allowed anywhere: in a signal
//! handler, in an allocator, between `fork` and `exec`.
//!
//! # Mechanism
//!
//! A request is five instructions that do nothing on the processor and that a profiler recognises
//! in the machine code ([`SEQUENCE`]): four rotations of `rdi` that add up to 128 bits, and an
//! exchange of `rbx` with itself. They are the ones of valgrind on x86-64 (`valgrind.h` of valgrind
//! 3.19, `__SPECIAL_INSTRUCTION_PREAMBLE`), so one recogniser serves memlens's requests and the
//! callgrind requests that programs already contain; valgrind in turn ignores codes it does not know.
//!
//! ```text
//! before   rax ─► [code, arg 1, arg 2, arg 3, arg 4, arg 5]   six u64 in memory
//!          rdx  = default result
//! after    rdx  = result: the default when nobody listens
//! ```
//!
//! The rotations change the carry and overflow flags; nothing else changes.
//!
//! # Requests
//!
//! A code is `'M' << 24 | 'L' << 16 | number`. Names are UTF-8 without a terminator; the profiler
//! copies them before the request returns.
//!
//! | number | constant | arg 1 | arg 2 | arg 3 | arg 4 | result |
//! |---|---|---|---|---|---|---|
//! | 0 | [`code::PROTOCOL`] | | | | | [`PROTOCOL_VERSION`] under memlens, else 0 |
//! | 1 | [`code::START_COLLECTION`] | | | | | 0 |
//! | 2 | [`code::STOP_COLLECTION`] | | | | | 0 |
//! | 3 | [`code::MARK`] | name address | name bytes | | | 0 |
//! | 4 | [`code::REGION_IS`] | region address | region bytes | name address | name bytes | 0 |
//! | 5 | [`code::REGION_FREED`] | region address | | | | 0 |
//!
//! Callgrind's requests (`callgrind.h`), base `'C' << 24 | 'T' << 16`, which memlens honours too:
//!
//! | number | constant | arg 1 |
//! |---|---|---|
//! | 0 | [`code::CALLGRIND_DUMP_STATS`] | |
//! | 1 | [`code::CALLGRIND_ZERO_STATS`] | |
//! | 2 | [`code::CALLGRIND_TOGGLE_COLLECT`] | |
//! | 3 | [`code::CALLGRIND_DUMP_STATS_AT`] | NUL-terminated name |
//! | 4 | [`code::CALLGRIND_START_INSTRUMENTATION`] | |
//! | 5 | [`code::CALLGRIND_STOP_INSTRUMENTATION`] | |
//!
//! # Cost
//!
//! Not profiled: six stores and seven cheap instructions, about 4 ns. On other processors than
//! x86-64, and on other systems than Linux, every request is empty.
//!
//! # Example
//!
//! ```
//! let arena = vec![0_u8; 1 << 16];
//! memlens_requests::region_is(arena.as_ptr(), arena.len(), "token arena");
//! memlens_requests::mark("parsing");
//! memlens_requests::start_collection();
//! // … the part of the program that matters …
//! memlens_requests::stop_collection();
//! memlens_requests::region_freed(arena.as_ptr());
//! assert!(!memlens_requests::is_profiled());
//! ```
#![no_std]

pub mod code;
mod request;

pub use request::Request;

/// The machine code of a request, which a profiler looks for:
/// `rol rdi,3; rol rdi,13; rol rdi,61; rol rdi,51; xchg rbx,rbx`.
pub const SEQUENCE: [u8; 19] = [
    0x48, 0xc1, 0xc7, 0x03, 0x48, 0xc1, 0xc7, 0x0d, 0x48, 0xc1, 0xc7, 0x3d, 0x48, 0xc1, 0xc7, 0x33, 0x48,
    0x87, 0xdb,
];

/// What [`code::PROTOCOL`] answers under a profiler that knows the requests of this version.
pub const PROTOCOL_VERSION: u64 = 1;

/// Makes a request: `args` are the code and its five arguments. Returns `default` when nobody
/// listens. The functions below are this with the arguments of the table in the crate's docs.
///
/// # Safety
///
/// The listener reads the memory that the request's arguments name: where the tables say "name
/// address", that many bytes (or a NUL-terminated string) must be readable.
#[inline(always)]
pub unsafe fn request(default: u64, args: &[u64; 6]) -> u64 {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        let mut result = default;
        // SAFETY: the rotations of rdi add up to 128 bits and rbx is exchanged with itself, so
        // that no register changes but the flags, which this block does not declare preserved. A
        // listener reads `args`, which outlives the block, and writes rdx, which is declared.
        unsafe {
            core::arch::asm!(
                "rol rdi, 3",
                "rol rdi, 13",
                "rol rdi, 61",
                "rol rdi, 51",
                "xchg rbx, rbx",
                in("rax") args.as_ptr(),
                inout("rdx") result,
                options(nostack),
            );
        }
        result
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    {
        let _ = args;
        default
    }
}

/// Whether memlens listens, in the version of the requests that this crate speaks or a later one.
#[inline]
pub fn is_profiled() -> bool {
    // SAFETY: this request names no memory.
    unsafe { request(0, &[code::PROTOCOL, 0, 0, 0, 0, 0]) >= PROTOCOL_VERSION }
}

/// From here on, accesses of every thread are counted. Collecting already: nothing happens.
#[inline]
pub fn start_collection() {
    // SAFETY: this request names no memory.
    unsafe { request(0, &[code::START_COLLECTION, 0, 0, 0, 0, 0]) };
}

/// From here on, accesses of no thread are counted until collection starts again. Allocations are
/// followed nevertheless, so that later accesses find their objects.
#[inline]
pub fn stop_collection() {
    // SAFETY: this request names no memory.
    unsafe { request(0, &[code::STOP_COLLECTION, 0, 0, 0, 0, 0]) };
}

/// Names this moment: reports say how many instructions had been executed by then.
#[inline]
pub fn mark(name: &str) {
    // SAFETY: the name is borrowed for the length of the request.
    unsafe { request(0, &[code::MARK, name.as_ptr() as u64, name.len() as u64, 0, 0, 0]) };
}

/// From here on, the `size_bytes` bytes at `start` are an object called `name`, whatever they were
/// before: for allocators of one's own, shared memory, device memory. The region itself is not
/// touched. A region given later wins where two overlap.
#[inline]
pub fn region_is(start: *const u8, size_bytes: usize, name: &str) {
    let (name_start, name_bytes) = (name.as_ptr() as u64, name.len() as u64);
    // SAFETY: the name is borrowed for the length of the request; the region is not read.
    unsafe { request(0, &[code::REGION_IS, start as u64, size_bytes as u64, name_start, name_bytes, 0]) };
}

/// The region that [`region_is`] named at `start` is no object any more; what lay under it (a heap
/// block, a mapping) shows again. An unknown `start`: nothing happens.
#[inline]
pub fn region_freed(start: *const u8) {
    // SAFETY: this request names no memory.
    unsafe { request(0, &[code::REGION_FREED, start as u64, 0, 0, 0, 0]) };
}

//! Whether a stopped thread may be borrowed: whether it is outside of everything that loading a library and the
//! function that is called may enter a second time.
//!
//! | where | innermost part of the stack | anywhere on the stack |
//! |---|---|---|
//! | the dynamic linker | refused | refused |
//! | libc's allocator; another library's, all of its code | refused | refused |
//! | libc's `dl_iterate_phdr`, `fork` and what lies around them | refused | refused |
//! | libc's `pthread_create` and what lies around it: threads' begins and ends | refused | allowed: every thread's outermost frame |
//! | libc's call of clone3(2), where a new thread begins before it is set up | refused | allowed, as above |
//! | libraries and code of memlens | refused | refused |
//! | a restartable sequence (rseq(2)) | refused | – |
//!
//! The stack is walked by the caller ([`WalkStack`]). Where that does not reach its end, as in generated code without
//! unwind tables, every word that looks like a return address counts: then stale ones may refuse a thread that is safe,
//! but none that is on the stack is overlooked. If none was found in some rounds, a thread counts as safe that waits in a
//! system call which neither allocators nor the dynamic linker make.

use crate::arch::{self, CALL_BYTES, Registers, is_behind_call};
use crate::image::Image;
use crate::target::{Mapping, Target};
use crate::tracer;

/// Follows a thread's stack, of which some bytes from the stack pointer on are given: the addresses of its frames,
/// innermost first, if the outermost was reached.
pub type WalkStack<'a> = dyn FnMut(&Registers, &[u8]) -> Option<Vec<u64>> + 'a;

/// Bytes of stack that are looked at.
const STACK_BYTES: usize = 256 << 10;
/// Words behind the stack pointer that count as innermost where the stack cannot be walked.
const INNERMOST_WORDS: usize = 64;

/// Why threads that libc did not make may not be borrowed: libraries expect its descriptor of them.
pub const NOT_OF_LIBC: &str = "not a thread of libc's";

type Range = (u64, u64);

/// Where a thread may not be.
#[derive(Debug, Default)]
pub struct SafePoints {
    never: Vec<(Range, &'static str)>,
    innermost: Vec<(Range, &'static str)>,
    libc: Vec<Range>,
    code: Vec<Range>,
}

fn is_in(range: &Range, address: u64) -> bool {
    (range.0..range.1).contains(&address)
}

impl SafePoints {
    /// Of a process with these images.
    pub fn new(target: &Target, images: &[Image], libc: &Image, mappings: &[Mapping]) -> Self {
        const LOADER: &str = "in the dynamic linker";
        const ALLOCATOR: &str = "in memory allocation";
        const LIBRARIES: &str = "among the libraries";
        const FORK: &str = "in fork";
        const THREADS: &str = "where threads begin and end";
        const OURS: &str = "in code of memlens";
        // What glibc's malloc/malloc.c defines.
        const MALLOC: [&str; 20] = [
            "malloc",
            "free",
            "cfree",
            "calloc",
            "realloc",
            "memalign",
            "aligned_alloc",
            "valloc",
            "pvalloc",
            "posix_memalign",
            "malloc_trim",
            "malloc_usable_size",
            "mallinfo",
            "mallinfo2",
            "mallopt",
            "malloc_stats",
            "malloc_info",
            "__libc_malloc",
            "__libc_free",
            "__libc_memalign",
        ];
        let mut points = Self { libc: libc.code.clone(), ..Self::default() };
        for image in images {
            let is_loader = image.function("_dl_allocate_tls").is_some();
            let allocates = image.function("malloc").is_some() && image.range != libc.range;
            // A program with an allocator of its own cannot be told from it.
            let why = match (is_loader, allocates && !image.has_interpreter) {
                (true, _) => LOADER,
                (_, true) => ALLOCATOR,
                _ => continue,
            };
            points.never.extend(image.code.iter().map(|&range| (range, why)));
        }
        let mut add = |names: &[&str], why| {
            points.never.extend(libc.surroundings(|name| names.contains(&name)).map(|range| (range, why)));
        };
        add(&MALLOC, ALLOCATOR);
        add(&["dl_iterate_phdr"], LIBRARIES);
        add(&["fork", "__libc_fork"], FORK);
        let threads = ["pthread_create", "clone", "pthread_exit", "pthread_detach", "__nptl_death_event"];
        points.innermost = threads
            .iter()
            .filter_map(|&of| libc.surroundings(|name| name == of).map(|range| (range, THREADS)))
            .collect();
        // No other file sees that function: it lies anywhere.
        for &(start, end) in &libc.code {
            let code = target.bytes(start, end.wrapping_sub(start) as usize).unwrap_or_default();
            let begins = arch::clone_calls(&code).map(|at| start + at as u64);
            points.innermost.extend(begins.map(|at| ((at, at + arch::CLONE_CALL_BYTES), THREADS)));
        }
        for mapping in mappings.iter().filter(|mapping| mapping.is_executable) {
            if mapping.name.contains("memlens") && mapping.name.contains("agent")
                || mapping.name.contains("memfd:memlens")
            {
                points.never.push(((mapping.start, mapping.end), OURS));
            }
            points.code.push((mapping.start, mapping.end));
        }
        points
    }

    /// Why a stopped thread may not be borrowed; None: it may.
    pub fn objection(
        &self,
        target: &Target,
        thread: u32,
        registers: &Registers,
        walk: &mut WalkStack<'_>,
        is_lenient: bool,
    ) -> Option<&'static str> {
        if !registers.is_ordinary() {
            return Some("not in 64-bit code");
        }
        if !is_of_libc(target, thread, registers) {
            return Some(NOT_OF_LIBC);
        }
        if in_restartable_sequence(target, thread, registers.ip()) {
            return Some("in a restartable sequence");
        }
        let is_never = |address: u64| self.never.iter().find(|(range, _)| is_in(range, address));
        let is_innermost = |address: u64| self.innermost.iter().find(|(range, _)| is_in(range, address));
        if let Some((_, why)) = is_never(registers.ip()).or_else(|| is_innermost(registers.ip())) {
            return Some(why);
        }
        let mut stack = vec![0; STACK_BYTES];
        let length = target.read(registers.sp(), &mut stack);
        stack.truncate(length);
        let in_libc = |address: u64| self.libc.iter().any(|range| is_in(range, address));
        match walk(registers, &stack) {
            Some(frames) => {
                let inner = frames.iter().take_while(|&&address| in_libc(address));
                let found = inner.clone().find_map(|&address| is_innermost(address));
                let found = found.or_else(|| frames.iter().find_map(|&address| is_never(address)));
                found.map(|(_, why)| *why)
            }
            // In a call that waits for others it can be inside of none of these, but for a handler that interrupted one
            // of them and waits itself: what is on the stack is stale.
            None if is_lenient && in_libc(registers.ip()) && registers.waits_for_others() => None,
            None => {
                let words = stack.as_chunks::<8>().0.iter().map(|&word| code_word(word));
                registers.link().into_iter().chain(words).enumerate().find_map(|(index, word)| {
                    let found = is_never(word).or_else(|| {
                        let counts = index < INNERMOST_WORDS && in_libc(registers.ip());
                        is_innermost(word).filter(|_| counts)
                    });
                    found.filter(|_| self.is_return_address(target, word)).map(|(_, why)| *why)
                })
            }
        }
    }

    fn is_return_address(&self, target: &Target, address: u64) -> bool {
        let mut before = [0; CALL_BYTES];
        self.code.iter().any(|range| is_in(range, address))
            && address
                .checked_sub(CALL_BYTES as u64)
                .is_some_and(|start| target.read(start, &mut before) == CALL_BYTES && is_behind_call(before))
    }
}

/// Whether a thread needs code that somebody who died has left for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It has come back.
    None,
    /// A handler may have interrupted it there, or what its frame left on the stack was not overwritten since.
    Perhaps,
    /// It is inside.
    Inside,
}

/// Whether a stopped thread still needs the code that somebody who died has left in `place` for it. All of that code but
/// its first and last few instructions runs with all signals blocked, on a stack that begins with a return address into
/// it.
pub fn need_of(target: &Target, registers: &Registers, blocked: u64, place: Range) -> Need {
    /// glibc does not let programs block the two signals of its own, 32 and 33; the kernel not SIGKILL and SIGSTOP.
    const ALL: u64 = !(1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1));
    if is_in(&place, registers.ip()) || blocked == ALL {
        return Need::Inside;
    }
    // A handler may have interrupted one of those few instructions.
    let mut stack = vec![0; STACK_BYTES];
    let length = target.read(registers.sp(), &mut stack);
    let mut words = stack[..length].as_chunks::<8>().0.iter();
    if words.any(|&word| is_in(&place, code_word(word))) { Need::Perhaps } else { Need::None }
}

/// A word of a stack, as an address of code.
fn code_word(word: [u8; 8]) -> u64 {
    arch::code_address(u64::from_ne_bytes(word))
}

/// Whether glibc made the thread: its thread pointer leads to a descriptor with its id. Others may have none of the
/// thread-local memory that libraries need.
pub fn is_of_libc(target: &Target, thread: u32, registers: &Registers) -> bool {
    arch::is_descriptor(target, thread, registers.thread_pointer())
}

/// The same of a thread that is not stopped, whose stack pointer is known: glibc puts the descriptor of a thread that it
/// makes at the end of the stack.
pub fn has_descriptor_above(target: &Target, thread: u32, sp: u64) -> bool {
    let start = sp.next_multiple_of(64);
    let mut stack = vec![0; STACK_BYTES];
    let length = target.read(start, &mut stack);
    arch::has_descriptor(target, thread, start, &stack[..length])
}

/// `struct rseq` has the address of its `struct rseq_cs` at 8, that its first instruction at 8 and its length at 16
/// (include/uapi/linux/rseq.h).
fn in_restartable_sequence(target: &Target, thread: u32, ip: u64) -> bool {
    let found = || {
        let sequence = target.word(tracer::restartable_sequences(thread)? + 8)?;
        let (start, length) = (target.word(sequence + 8)?, target.word(sequence + 16)?);
        Some(sequence != 0 && ip.wrapping_sub(start) < length)
    };
    found().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_whose_code_ends_before_it_begins_has_no_points() {
        let target = Target::open(std::process::id()).expect("our own");
        let libc = Image {
            name: "/lib/libc.so.6".to_owned(),
            bias: 0,
            range: (0x1000, 0x2000),
            code: vec![(0x2000, 0x1000)],
            functions: Vec::new(),
            has_interpreter: false,
        };
        let points = SafePoints::new(&target, &[], &libc, &[]);
        assert!(points.never.is_empty() && points.innermost.is_empty());
    }
}

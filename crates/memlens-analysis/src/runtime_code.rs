//! Code that comes with the system, whose loops and structures are nobody's to change: glibc's malloc and the dynamic linker;
//! and loops that nobody can exchange: those of its functions for memory and strings.

use memlens_profile::{CodeIx, CodeLocation, Profile};

/// Files of dynamic linkers begin with these.
const DYNAMIC_LINKERS: [&str; 4] = ["ld-linux", "ld-musl", "ld.so", "ld-2."];
/// C libraries do with these.
const C_LIBRARIES: [&str; 3] = ["libc.so", "libc-2.", "libc.musl"];
/// Places in glibc's source; those of the dynamic linker are in the C library, too, and both in static programs.
const SOURCES: [&str; 3] = ["malloc/malloc.c", "malloc/arena.c", "elf/dl-"];
/// Functions of allocators in C libraries, for those without debug information.
const ALLOCATION: [&str; 20] = [
    "malloc",
    "calloc",
    "realloc",
    "free",
    "cfree",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "_int_malloc",
    "_int_free",
    "_int_realloc",
    "_int_memalign",
    "_mid_memalign",
    "malloc_consolidate",
    "unlink_chunk",
    "sysmalloc",
    "sysmalloc_mmap",
    "systrim",
    "malloc_trim",
    "tcache_init",
];

/// What functions of C libraries that copy (those into streams, too), fill, search and compare begin with, past underscores.
const MEMORY_AND_STRINGS: [&str; 9] =
    ["mem", "bcopy", "bzero", "str", "stp", "wcs", "IO_default_xsput", "IO_new_file_xsput", "IO_file_xsput"];
/// Where glibc has them for x86-64 and AArch64.
const THEIR_SOURCES: [&str; 5] = [
    "sysdeps/x86_64/multiarch/",
    "sysdeps/x86_64/mem",
    "sysdeps/aarch64/multiarch/",
    "sysdeps/aarch64/mem",
    "sysdeps/aarch64/str",
];

/// Whether code is the allocator's or the dynamic linker's.
pub(crate) fn is_runtimes(profile: &Profile, code: CodeIx) -> bool {
    let Some(code) = profile.code.get(code.index()) else { return false };
    if is_in(profile, code, &DYNAMIC_LINKERS) {
        return true;
    }
    let in_c_library = is_in(profile, code, &C_LIBRARIES);
    profile.stack_frames(code.stack).any(|frame| {
        let function = frame.function.as_deref().unwrap_or_default();
        let file = frame.file.as_deref().unwrap_or_default();
        let is_allocation =
            ALLOCATION.contains(&function.trim_start_matches("__libc_").trim_end_matches(".part.0"));
        in_c_library && is_allocation || SOURCES.iter().any(|source| file.contains(source))
    })
}

/// Whether code is one of the C library's functions for memory and strings: they have loops, but only their callers' can be changed.
pub(crate) fn is_memory_or_string_function(profile: &Profile, code: CodeIx) -> bool {
    let Some(code) = profile.code.get(code.index()) else { return false };
    let in_c_library = is_in(profile, code, &C_LIBRARIES);
    profile.stack_frames(code.stack).next().is_some_and(|frame| {
        let function = frame.function.as_deref().unwrap_or_default().trim_start_matches('_');
        let file = frame.file.as_deref().unwrap_or_default();
        in_c_library && MEMORY_AND_STRINGS.iter().any(|word| function.starts_with(word))
            || THEIR_SOURCES.iter().any(|source| file.contains(source))
    })
}

/// Whether the file that code comes from begins with one of these words.
fn is_in(profile: &Profile, code: &CodeLocation, words: &[&str]) -> bool {
    let module = profile.module(code.module).map_or("", |module| module.name());
    words.iter().any(|word| module.starts_with(word))
}

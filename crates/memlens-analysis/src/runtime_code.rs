//! Code that comes with the system, whose loops and structures are nobody's to change: glibc's malloc and the dynamic linker.

use memlens_profile::{CodeIx, Profile};

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

/// Whether code is the allocator's or the dynamic linker's.
pub(crate) fn is_runtimes(profile: &Profile, code: CodeIx) -> bool {
    let Some(code) = profile.code.get(code.index()) else { return false };
    let module = profile.module(code.module).map_or("", |module| module.name());
    let begins = |words: &[&str]| words.iter().any(|word| module.starts_with(word));
    if begins(&DYNAMIC_LINKERS) {
        return true;
    }
    let in_c_library = begins(&C_LIBRARIES);
    profile.stack_frames(code.stack).any(|frame| {
        let function = frame.function.as_deref().unwrap_or_default();
        let file = frame.file.as_deref().unwrap_or_default();
        let is_allocation =
            ALLOCATION.contains(&function.trim_start_matches("__libc_").trim_end_matches(".part.0"));
        in_c_library && is_allocation || SOURCES.iter().any(|source| file.contains(source))
    })
}

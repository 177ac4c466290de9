//! The tables by which libraries call functions of others, in a process that ran before the agent came: entries that
//! lead to functions which the agent has, too, lead to the agent, and at the end where they led before.
//!
//! ```text
//!  program: call malloc@plt ──► .got.plt[malloc] ── before ──► libc's malloc, or the linker's look-up at the first call
//!                                                └─ hooked ──► entry.rs of x86_64/ or aarch64/
//! ```
//!
//! Entries are the places of relocations for the procedure linkage table and for addresses in the global offset table (System V ABI AMD64 1.0, 4.4;
//! ELF for the Arm 64-bit Architecture, 2023Q3, 5.7).
//! One is hooked only if it leads to the very function that the agent will call, or into its own library, where the
//! look-up of a function not called yet begins. Calls by other ways are not seen: pointers from `dlsym`, pointers in
//! data, calls inside of a library that is linked with its own allocator.
//!
//! # Signal safety
//! Called by memlens's request only. `dl_iterate_phdr` keeps libraries from going away meanwhile. Other threads run:
//! an entry changes by one store.

use core::ffi::{CStr, c_char};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use memlens_inside::{own_memory, page_bytes};

use crate::arch::{self, number, syscall};
use crate::libraries::{self, Dynamic, Library, Symbol};
use crate::real;

/// Hooked entries that can be remembered.
const MOST_ENTRIES: usize = 1 << 14;

/// An entry, and what it was.
#[repr(C)]
struct Entry {
    place: AtomicUsize,
    before: AtomicUsize,
}

/// The table of them: [`MOST_ENTRIES`]; null before the first time.
static ENTRIES: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());
static ENTRY_COUNT: AtomicUsize = AtomicUsize::new(0);
static IS_PAST_US: AtomicBool = AtomicBool::new(false);

/// `Elf64_Rela`.
#[repr(C)]
struct Relocation {
    place: usize,
    info: u64,
    addend: i64,
}

/// What a walk through the libraries does and counts.
struct Walk {
    hooks: bool,
    hooked: u32,
    modules: u32,
}

/// A name, the agent's function, and the real one.
#[cfg(not(test))]
pub type Row = (&'static [u8], unsafe extern "C" fn(), &'static AtomicPtr<core::ffi::c_void>);

/// The function of a name that the agent has, and the real one.
#[cfg(not(test))]
fn pair_of(name: &[u8]) -> Option<(usize, usize)> {
    use crate::bursts;
    use crate::own_entries as own;
    static ROWS: [Row; 21] = [
        (b"malloc", own::malloc, &real::MALLOC),
        (b"calloc", own::calloc, &real::CALLOC),
        (b"realloc", own::realloc, &real::REALLOC),
        (b"reallocarray", own::reallocarray, &real::REALLOCARRAY),
        (b"memalign", own::memalign, &real::MEMALIGN),
        (b"aligned_alloc", own::aligned_alloc, &real::ALIGNED_ALLOC),
        (b"posix_memalign", own::posix_memalign, &real::POSIX_MEMALIGN),
        (b"valloc", own::valloc, &real::VALLOC),
        (b"pvalloc", own::pvalloc, &real::PVALLOC),
        (b"free", own::free, &real::FREE),
        (b"free_sized", own::free_sized, &real::FREE_SIZED),
        (b"free_aligned_sized", own::free_aligned_sized, &real::FREE_ALIGNED_SIZED),
        (b"mmap", own::mmap, &real::MMAP),
        (b"mmap64", own::mmap64, &real::MMAP),
        (b"munmap", own::munmap, &real::MUNMAP),
        (b"mremap", own::mremap, &real::MREMAP),
        (b"pthread_create", own::pthread_create, &real::PTHREAD_CREATE),
        (b"fork", own::fork, &real::FORK),
        (b"_Fork", own::plain_fork, &real::PLAIN_FORK),
        (b"syscall", own::syscall, &real::SYSCALL),
        (b"prctl", own::prctl, &real::PRCTL),
    ];
    let (_, ours, real) = ROWS.iter().chain(&bursts::HOOKED).find(|row| row.0 == name)?;
    let real = real.load(Ordering::Relaxed) as usize;
    (real != 0).then_some((*ours as *const () as usize, real))
}

#[cfg(test)]
fn pair_of(_: &[u8]) -> Option<(usize, usize)> {
    None
}

/// Hooks what is not hooked yet. How many entries, in how many libraries.
pub fn hook() -> (u32, u32) {
    if ENTRIES.load(Ordering::Relaxed).is_null() {
        let Some(memory) = own_memory(MOST_ENTRIES * size_of::<Entry>()) else { return (0, 0) };
        ENTRIES.store(memory.cast::<Entry>(), Ordering::Relaxed);
    }
    let walk = walk(Walk { hooks: true, hooked: 0, modules: 0 });
    (walk.hooked, walk.modules)
}

/// Lets all hooked entries lead where they led before.
pub fn put_back() {
    // The walk waits for the dynamic linker's lock.
    if ENTRY_COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    walk(Walk { hooks: false, hooked: 0, modules: 0 });
    ENTRY_COUNT.store(0, Ordering::Relaxed);
}

/// Whether the program's executable has its own `malloc`, which it calls without a table.
pub fn is_past_us() -> bool {
    IS_PAST_US.load(Ordering::Relaxed)
}

fn walk(mut walk: Walk) -> Walk {
    // SAFETY: a library that stays while it is shown.
    libraries::each(|library| unsafe { look_at(library, &mut walk) });
    walk
}

/// # Safety
/// The library is loaded and stays so.
unsafe fn look_at(library: &Library<'_>, walk: &mut Walk) {
    const READ_ONLY: u32 = 0x6474_e552;
    const FUNCTION_BYTES: usize = 2;
    const OTHERS: usize = 7;
    const OTHER_BYTES: usize = 8;
    const FUNCTIONS: usize = 23;
    // The kernel's pages have no relocations; ours stay as they are.
    let Some(dynamic) = library.dynamic().filter(|_| !library.is_own()) else { return };
    let (bias, image) = (library.bias, library.image());
    // The dynamic linker protects whole pages (glibc, _dl_protect_relro).
    let read_only = library.parts(READ_ONLY).last().unwrap_or((0, 0));
    let read_only = (start_of_page(read_only.0), start_of_page(read_only.1));
    // SAFETY: the caller's promise.
    let (symbols, strings, relocations) = unsafe {
        let relocations = [(FUNCTIONS, FUNCTION_BYTES), (OTHERS, OTHER_BYTES)];
        let relocations = relocations.map(|(start, bytes)| (dynamic.address(start), dynamic.value(bytes)));
        (dynamic.address(Dynamic::SYMBOLS), dynamic.address(Dynamic::STRINGS), relocations)
    };
    if symbols == 0 || strings == 0 {
        return;
    }
    walk.modules += 1;
    // The program itself is the first.
    if walk.modules == 1 {
        let first = real::MALLOC.load(Ordering::Relaxed) as usize;
        IS_PAST_US.store((image.0..image.1).contains(&first), Ordering::Relaxed);
    }
    let mut is_open = false;
    for (start, bytes) in relocations {
        if start == 0 {
            continue;
        }
        let count = bytes / size_of::<Relocation>();
        // SAFETY: the table that the dynamic section names, with its size.
        let relocations = unsafe { core::slice::from_raw_parts(start as *const Relocation, count) };
        for relocation in relocations {
            if !arch::POINTERS_TO_FUNCTIONS.contains(&(relocation.info as u32)) {
                continue;
            }
            // SAFETY: the symbol that the relocation names, and its name.
            let name = unsafe {
                let symbol = (symbols as *const Symbol).add((relocation.info >> 32) as usize);
                CStr::from_ptr((strings + (*symbol).name as usize) as *const c_char)
            };
            let Some((ours, real)) = pair_of(name.to_bytes()) else { continue };
            let place = bias.wrapping_add(relocation.place);
            if place % 8 != 0 || !(image.0..image.1).contains(&place) {
                continue;
            }
            // SAFETY: an entry of the library's table, aligned, which others load and store as a whole.
            let entry = unsafe { AtomicUsize::from_ptr(place as *mut usize) };
            let value = entry.load(Ordering::Relaxed);
            let new = match walk.hooks {
                true if value == real || (value != ours && (image.0..image.1).contains(&value)) => ours,
                false if value == ours => before(place).unwrap_or(real),
                _ => continue,
            };
            if walk.hooks && !remember(place, value) {
                continue;
            }
            if (read_only.0..read_only.1).contains(&place) && !is_open && !is_writable(place) {
                is_open = protect(read_only, true);
                if !is_open {
                    continue;
                }
            }
            // The dynamic linker may have found the function in the meantime.
            if entry.compare_exchange(value, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                walk.hooked += 1;
            }
        }
    }
    if is_open {
        protect(read_only, false);
    }
}

fn entries() -> &'static [Entry] {
    let start = ENTRIES.load(Ordering::Relaxed);
    if start.is_null() {
        return &[];
    }
    // SAFETY: memory for so many, zeros at first, for good.
    unsafe { core::slice::from_raw_parts(start, MOST_ENTRIES) }
}

fn remember(place: usize, before: usize) -> bool {
    let count = ENTRY_COUNT.load(Ordering::Relaxed);
    let Some(entry) = entries().get(count) else { return false };
    entry.place.store(place, Ordering::Relaxed);
    entry.before.store(before, Ordering::Relaxed);
    ENTRY_COUNT.store(count + 1, Ordering::Relaxed);
    true
}

/// What an entry was; the last time counts.
fn before(place: usize) -> Option<usize> {
    let count = ENTRY_COUNT.load(Ordering::Relaxed).min(MOST_ENTRIES);
    let known = entries().get(..count)?.iter().rev();
    let found = known.into_iter().find(|entry| entry.place.load(Ordering::Relaxed) == place)?;
    Some(found.before.load(Ordering::Relaxed))
}

fn start_of_page(address: usize) -> usize {
    address & !(page_bytes() - 1)
}

/// Whether a page can be written. It tells a library that is being loaded right now, whose pages the dynamic linker
/// still needs to write, from one that is ready.
fn is_writable(place: usize) -> bool {
    /// Since Linux 5.14; before, nobody can tell, and the page counts as protected.
    const POPULATE_WRITE: usize = 23;
    // SAFETY: changes no content.
    unsafe { syscall(number::MADVISE, [start_of_page(place), page_bytes(), POPULATE_WRITE, 0, 0, 0]) == 0 }
}

fn protect((start, end): (usize, usize), is_writable: bool) -> bool {
    let access = if is_writable { 3 } else { 1 };
    // SAFETY: the library's own pages, which are readable before and after.
    unsafe { syscall(number::MPROTECT, [start, end - start, access, 0, 0, 0]) == 0 }
}

//! The functions that the program would have called: those of the next library that has them.
//!
//! They are looked up at the first allocation, which the dynamic linker makes before any constructor runs, or at the first call of
//! another of them: by a program's own allocator, for example, while it holds its lock. So the look-up must not allocate (`libraries.rs`);
//! where it does all the same, blocks come from a small arena of our own.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use memlens_inside::{next, symbol, weak};

use crate::{arch, libraries, watched};

/// Calls a real function.
macro_rules! call {
    ($function:path, ($($argument:ident),*) -> $result:ty) => {{
        let function = $function.load(core::sync::atomic::Ordering::Acquire);
        let function: unsafe extern "C" fn($(call!(@type $argument)),*) -> $result = core::mem::transmute(function);
        function($($argument as usize),*)
    }};
    (@type $argument:ident) => { usize };
}
pub(crate) use call;

type Function = AtomicPtr<c_void>;

const fn unknown() -> Function {
    AtomicPtr::new(ptr::null_mut())
}

/// Read by the entry points, which come here only after a thread's first, slow, allocation.
pub static MALLOC: Function = unknown();
/// As [`MALLOC`], and so on.
pub static CALLOC: Function = unknown();
pub static REALLOC: Function = unknown();
pub static REALLOCARRAY: Function = unknown();
pub static MEMALIGN: Function = unknown();
pub static ALIGNED_ALLOC: Function = unknown();
pub static POSIX_MEMALIGN: Function = unknown();
pub static VALLOC: Function = unknown();
pub static PVALLOC: Function = unknown();
/// A program may end a block before it allocates one: of another thread, or address 0.
pub static FREE: Function = AtomicPtr::new(first_free as *mut c_void);
/// As [`FREE`].
pub static FREE_SIZED: Function = AtomicPtr::new(first_free as *mut c_void);
/// As [`FREE`].
pub static FREE_ALIGNED_SIZED: Function = AtomicPtr::new(first_free as *mut c_void);
/// mmap(2). A program may map memory before it allocates any.
pub static MMAP: Function = AtomicPtr::new(first_mmap as *mut c_void);
/// munmap(2).
pub static MUNMAP: Function = unknown();
/// mremap(2).
pub static MREMAP: Function = unknown();
/// pthread_create(3).
pub static PTHREAD_CREATE: Function = unknown();

/// sigaction(2).
pub static SIGACTION: Function = unknown();
/// signal(2).
pub static SIGNAL: Function = unknown();
/// sysv_signal(3).
pub static SYSV_SIGNAL: Function = unknown();
/// sigset(3).
pub static SIGSET: Function = unknown();
/// dlclose(3).
pub static DLCLOSE: Function = unknown();
/// execve(2).
pub static EXECVE: Function = unknown();
/// execvpe(3).
pub static EXECVPE: Function = unknown();
/// posix_spawn(3).
pub static POSIX_SPAWN: Function = unknown();
/// posix_spawnp(3).
pub static POSIX_SPAWNP: Function = unknown();
/// fork(2).
pub static FORK: Function = unknown();
/// _Fork(3).
pub static PLAIN_FORK: Function = unknown();
/// syscall(2).
pub static SYSCALL: Function = unknown();
/// prctl(2).
pub static PRCTL: Function = unknown();

static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const BEING_FOUND: u32 = 1;
const FOUND: u32 = 2;

/// Whether the functions are known. Looks them up when nobody has; false while that is going on.
pub fn ready() -> bool {
    match STATE.compare_exchange(UNKNOWN, BEING_FOUND, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
            find();
            STATE.store(FOUND, Ordering::Release);
            true
        }
        Err(state) => state == FOUND,
    }
}

fn find() {
    let glibc = |address: usize| address as *mut c_void;
    let or = |found: *mut c_void, other: *mut c_void| if found.is_null() { other } else { found };
    let set = |place: &Function, found: *mut c_void| place.store(found, Ordering::Release);
    set(&MALLOC, or(of_the_program(c"malloc"), glibc(weak!("__libc_malloc"))));
    set(&CALLOC, or(of_the_program(c"calloc"), glibc(weak!("__libc_calloc"))));
    set(&REALLOC, or(of_the_program(c"realloc"), glibc(weak!("__libc_realloc"))));
    let memalign = or(of_the_program(c"memalign"), glibc(weak!("__libc_memalign")));
    set(&MEMALIGN, memalign);
    set(&ALIGNED_ALLOC, or(of_the_program(c"aligned_alloc"), memalign));
    set(&POSIX_MEMALIGN, of_the_program(c"posix_memalign"));
    set(&VALLOC, of_the_program(c"valloc"));
    set(&PVALLOC, of_the_program(c"pvalloc"));
    set(&REALLOCARRAY, of_the_program(c"reallocarray"));
    let free = or(of_the_program(c"free"), glibc(weak!("__libc_free")));
    // C23 7.24.3.4: both do what `free` does.
    set(&FREE_SIZED, or(of_the_program(c"free_sized"), free));
    set(&FREE_ALIGNED_SIZED, or(of_the_program(c"free_aligned_sized"), free));
    set(&MMAP, or(of_the_program(c"mmap"), first_mmap as *mut c_void));
    set(&MUNMAP, of_the_program(c"munmap"));
    set(&MREMAP, of_the_program(c"mremap"));
    set(&PTHREAD_CREATE, of_the_program(c"pthread_create"));
    set(&SIGACTION, of_the_program(c"sigaction"));
    set(&SIGNAL, of_the_program(c"signal"));
    set(&SYSV_SIGNAL, of_the_program(c"sysv_signal"));
    set(&SIGSET, of_the_program(c"sigset"));
    set(&DLCLOSE, of_the_program(c"dlclose"));
    set(&EXECVE, of_the_program(c"execve"));
    set(&EXECVPE, of_the_program(c"execvpe"));
    set(&POSIX_SPAWN, of_the_program(c"posix_spawn"));
    set(&POSIX_SPAWNP, of_the_program(c"posix_spawnp"));
    set(&FORK, of_the_program(c"fork"));
    set(&PLAIN_FORK, of_the_program(c"_Fork"));
    set(&SYSCALL, of_the_program(c"syscall"));
    set(&PRCTL, of_the_program(c"prctl"));
    set(&FREE, free);
}

/// One of the functions, also while all are being looked up.
pub fn at_any_time(function: &Function, name: &core::ffi::CStr) -> *mut c_void {
    ready();
    let found = function.load(Ordering::Acquire);
    if found.is_null() { of_the_program(name) } else { found }
}

/// What the program calls by a name: of the libraries behind this one, or, where this one came late and stands behind
/// none, of all.
fn of_the_program(name: &core::ffi::CStr) -> *mut c_void {
    if !libraries::may_have(name) {
        return ptr::null_mut();
    }
    let found = next(name);
    if !found.is_null() {
        return found;
    }
    let (start, end) = arch::own_image();
    let found = symbol(name);
    if (start..end).contains(&(found as usize)) { ptr::null_mut() } else { found }
}

/// Until the real one is known.
unsafe extern "C" fn first_free(block: *mut c_void) {
    if !block.is_null() && ready() {
        // SAFETY: the caller's promise is that of free(3); `ready` has set the function.
        unsafe { call!(FREE, (block) -> ()) };
    }
}

/// Until the real one is known. While the functions are being looked up, the kernel is asked, without `errno`.
unsafe extern "C" fn first_mmap(
    address: usize,
    length: usize,
    protection: usize,
    flags: usize,
    file: usize,
    offset: usize,
) -> *mut c_void {
    if ready() && MMAP.load(Ordering::Acquire) != first_mmap as *mut c_void {
        // SAFETY: the caller's promise is that of mmap(2); the function is the real one.
        return unsafe { call!(MMAP, (address, length, protection, flags, file, offset) -> *mut c_void) };
    }
    let arguments = [address, length, protection, flags, file, offset];
    // SAFETY: the program's own call.
    let result = unsafe { arch::syscall(arch::number::MMAP, arguments) };
    if result < 0 { MAP_FAILED } else { result as *mut c_void }
}

/// What mmap(2) and mremap(2) return when they fail.
pub const MAP_FAILED: *mut c_void = usize::MAX as *mut c_void;

// ---- the arena --------------------------------------------------------------------------------

const ARENA_BYTES: usize = 16 << 10;

#[repr(C, align(64))]
struct Arena(core::cell::UnsafeCell<[u8; ARENA_BYTES]>);

// SAFETY: its bytes are given out once each, by an atomic counter.
unsafe impl Sync for Arena {}

static ARENA: Arena = Arena(core::cell::UnsafeCell::new([0; ARENA_BYTES]));
static ARENA_USED: AtomicUsize = AtomicUsize::new(0);

/// A zeroed block while the functions are being looked up; null when the arena is used up.
pub fn arena_block(bytes: usize) -> *mut c_void {
    // The size stands before the block.
    let whole = bytes.saturating_add(31) & !15;
    if whole > ARENA_BYTES {
        return ptr::null_mut();
    }
    let at = ARENA_USED.fetch_add(whole, Ordering::Relaxed);
    if at > ARENA_BYTES - whole {
        return ptr::null_mut();
    }
    let start = ARENA.0.get() as u64;
    watched::always_look(start, start + ARENA_BYTES as u64);
    // SAFETY: these bytes are given out here only.
    unsafe {
        let place = ARENA.0.get().cast::<u8>().add(at);
        place.cast::<usize>().write(bytes);
        place.add(16).cast()
    }
}

/// The size of a block of the arena; None: it is not one.
pub fn arena_size(block: *mut c_void) -> Option<usize> {
    let start = ARENA.0.get() as usize;
    let at = (block as usize).checked_sub(start + 16).filter(|&at| at < ARENA_BYTES - 16)?;
    // SAFETY: `arena_block` wrote the size there.
    Some(unsafe { ARENA.0.get().cast::<u8>().add(at).cast::<usize>().read() })
}

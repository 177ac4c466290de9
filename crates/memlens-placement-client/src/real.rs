//! The functions that the program would have called: those of the next library that has them.
//!
//! They are looked up at the first allocation, which the dynamic linker makes before any constructor runs. What the
//! look-up itself should allocate comes from glibc directly.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use memlens_inside::{next, weak};

/// Calls a real function, whose arguments and result are words; 0 if there is none.
macro_rules! call {
    ($function:path, $($argument:expr),*) => {{
        let function = $function.load(core::sync::atomic::Ordering::Acquire);
        if function.is_null() {
            0
        } else {
            let function: unsafe extern "C" fn($($crate::real::call!(@word $argument)),*) -> usize =
                core::mem::transmute(function);
            function($($argument as usize),*)
        }
    }};
    (@word $argument:expr) => { usize };
}
pub(crate) use call;

type Function = AtomicPtr<c_void>;

const fn unknown() -> Function {
    AtomicPtr::new(ptr::null_mut())
}

/// Read by the entry points once the least size is set, which happens after they are known.
pub static MALLOC: Function = unknown();
/// As [`MALLOC`], and so on.
pub static CALLOC: Function = unknown();
pub static REALLOC: Function = unknown();
pub static MEMALIGN: Function = unknown();
pub static ALIGNED_ALLOC: Function = unknown();
pub static POSIX_MEMALIGN: Function = unknown();
pub static MMAP: Function = unknown();

static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const BEING_FOUND: u32 = 1;
const FOUND: u32 = 2;

/// Makes sure that the functions are known. While another call looks them up, glibc's own are.
pub fn find() {
    if STATE.load(Ordering::Acquire) == FOUND {
        return;
    }
    if STATE.compare_exchange(UNKNOWN, BEING_FOUND, Ordering::Acquire, Ordering::Acquire).is_err() {
        return;
    }
    let glibc = |address: usize| address as *mut c_void;
    let set = |place: &Function, found: *mut c_void| {
        if !found.is_null() {
            place.store(found, Ordering::Release);
        }
    };
    set(&MALLOC, glibc(weak!("__libc_malloc")));
    set(&CALLOC, glibc(weak!("__libc_calloc")));
    set(&REALLOC, glibc(weak!("__libc_realloc")));
    set(&MEMALIGN, glibc(weak!("__libc_memalign")));
    set(&ALIGNED_ALLOC, glibc(weak!("__libc_memalign")));
    set(&MMAP, next(c"mmap"));
    set(&POSIX_MEMALIGN, next(c"posix_memalign"));
    set(&ALIGNED_ALLOC, next(c"aligned_alloc"));
    set(&MEMALIGN, next(c"memalign"));
    set(&REALLOC, next(c"realloc"));
    set(&CALLOC, next(c"calloc"));
    set(&MALLOC, next(c"malloc"));
    initialise_glibc();
    STATE.store(FOUND, Ordering::Release);
}

/// Has glibc's malloc initialise itself while its stack holds zeros.
///
/// It then reads `/sys/kernel/mm/transparent_hugepage/enabled` to see whether it is to ask for huge pages, and compares
/// what it read as a string without having put a zero byte behind it (glibc 2.36, `__malloc_thp_mode`): what was on the
/// stack before decides. In every fourth process it did not ask.
fn initialise_glibc() {
    /// A parameter that mallopt(3) does not know: it initialises the allocator, and changes nothing.
    const NO_PARAMETER: c_int = c_int::MAX;
    let mallopt = weak!("mallopt");
    if mallopt == 0 || !is_glibc() {
        return;
    }
    clear_stack();
    // SAFETY: the C function of that name, of the allocator that the program uses.
    unsafe {
        let mallopt: unsafe extern "C" fn(c_int, c_int) -> c_int = core::mem::transmute(mallopt);
        mallopt(NO_PARAMETER, 0);
    }
}

/// Leaves zeros where the next function that is called has its frame, and those that it calls.
#[inline(never)]
fn clear_stack() {
    let mut below = [0_u64; 1024];
    core::hint::black_box(&mut below);
}

/// Whether the program's allocator is glibc's, whose blocks of any alignment are freed like any other, and whose
/// memory is private and anonymous.
pub fn is_glibc() -> bool {
    let glibc = weak!("__libc_malloc");
    glibc != 0 && MALLOC.load(Ordering::Acquire) as usize == glibc
}

//! Puts jumps to detours into code, before that code runs.
//!
//! ```text
//!  start, before main:   modules that are there already ──┐
//!  ld.so has mapped one: its hook for debuggers ──────────┴─► compare bytes ─► map detours near ─► write jumps
//! ```
//!
//! At the start there is one thread, else nothing is done. Later the dynamic linker calls the function that it has for
//! debuggers (`r_brk` of `_r_debug`, `link.h`) when a library is mapped, before anything in it can run: that function,
//! which does nothing, gets a jump here. Memory is never writable and executable at once, except between two
//! processors' views of it.
//!
//! # Signal safety
//! System calls only. A jump is written where no thread is.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use memlens_inside::{number, symbol, syscall};
use memlens_placement::{Detours, JUMP_BYTES, MAX_DISPLACED_BYTES, MAX_PATCHES, Patch, Plan, state};

use crate::modules;

const PAGE_BYTES: usize = 4096;
const READ: usize = 1;
const WRITE: usize = 2;
const EXECUTE: usize = 4;
/// Memory is looked for as far from the code; less than jumps reach.
const REACH_BYTES: usize = 0x7000_0000;

/// What became of the plan's patches in this process: a plan serves several.
static STATES: [AtomicU32; MAX_PATCHES] = [const { AtomicU32::new(state::WAITING) }; MAX_PATCHES];

static PLAN: AtomicPtr<Plan> = AtomicPtr::new(ptr::null_mut());

/// `struct r_debug` of `link.h`.
#[repr(C)]
struct LinkerState {
    version: c_int,
    map: *mut c_void,
    hook: usize,
    state: c_int,
}

/// Of `r_state`: nothing is being added or removed.
const CONSISTENT: c_int = 0;

/// Patches what is loaded, and waits for what is not. Called once, before `main`.
pub fn at_start(plan: &'static Plan) {
    if plan.patches().is_empty() {
        return;
    }
    if !is_single_threaded() {
        plan.patches().iter().zip(&STATES).for_each(|patch| set(patch, state::THREADS));
        return;
    }
    apply_all(plan);
    if is_any_waiting(plan) && hook().is_some() {
        PLAN.store(ptr::from_ref(plan).cast_mut(), Ordering::Release);
        plan.notices_libraries.store(1, Ordering::Relaxed);
    }
}

fn is_any_waiting(plan: &Plan) -> bool {
    STATES[..plan.patches().len()].iter().any(|state| state.load(Ordering::Relaxed) == state::WAITING)
}

/// Notes what became of a patch, here and for memlens.
fn set((patch, own): (&Patch, &AtomicU32), state: u32) {
    own.store(state, Ordering::Relaxed);
    patch.state.store(state, Ordering::Relaxed);
}

/// Called by the dynamic linker when it begins or has ended mapping or unmapping.
extern "C" fn on_change() {
    // SAFETY: null, or the plan, which stays mapped.
    let Some(plan) = (unsafe { PLAN.load(Ordering::Acquire).as_ref() }) else { return };
    let linker = symbol_of_linker();
    // SAFETY: glibc's own variable, which this thread has just changed.
    let is_consistent =
        !linker.is_null() && unsafe { ptr::read_volatile(&raw const (*linker).state) } == CONSISTENT;
    if is_consistent && is_any_waiting(plan) {
        modules::find_now(plan);
        apply_all(plan);
    }
}

static LINKER: AtomicPtr<LinkerState> = AtomicPtr::new(ptr::null_mut());

fn symbol_of_linker() -> *mut LinkerState {
    LINKER.load(Ordering::Relaxed)
}

/// Puts a jump to [`on_change`] into the dynamic linker's function for debuggers. None: it is not what is known.
fn hook() -> Option<()> {
    let linker = symbol(c"_r_debug").cast::<LinkerState>();
    LINKER.store(linker, Ordering::Relaxed);
    if linker.is_null() {
        return None;
    }
    // SAFETY: glibc's variable of that name.
    let function = unsafe { (*linker).hook };
    let mut found = [0; 8];
    read(function, &mut found).then_some(())?;
    // It returns at once; what follows is filling, or belongs to it.
    let is_known = match found {
        [0xf3, 0x0f, 0x1e, 0xfa, 0xc3, ..] => true,
        [0xc3, rest @ ..] => {
            matches!(
                rest,
                [0x66, 0x66, 0x2e, 0x0f, ..] | [0x66, 0x2e, 0x0f, 0x1f, ..] | [0x0f, 0x1f, 0x40 | 0x44, ..]
            ) || rest[..4].iter().all(|&byte| byte == 0xcc || byte == 0x90)
        }
        _ => false,
    };
    is_known.then_some(())?;
    // jmp [rip]; the address.
    let mut code = [0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    code[6..].copy_from_slice(&(on_change as *const () as usize).to_ne_bytes());
    let place = map_near(function, PAGE_BYTES)?;
    // SAFETY: our own new page.
    unsafe { ptr::copy_nonoverlapping(code.as_ptr(), place as *mut u8, code.len()) };
    (protect(place, PAGE_BYTES, READ | EXECUTE) && write_jump(function, place)).then_some(())
}

fn apply_all(plan: &Plan) {
    for (detours, code, relocations) in plan.detours() {
        let mine = || {
            let is_mine = |(patch, own): &(&Patch, &AtomicU32)| {
                patch.module == detours.module && own.load(Ordering::Relaxed) == state::WAITING
            };
            plan.patches().iter().zip(&STATES).filter(is_mine)
        };
        let Some(bias) = modules::bias(detours.module) else { continue };
        for entry in mine() {
            let mut found = [0; MAX_DISPLACED_BYTES];
            let expected = entry.0.displaced();
            let found = &mut found[..expected.len()];
            let address = bias.wrapping_add(entry.0.svma) as usize;
            if found.len() < JUMP_BYTES || !read(address, found) || found != expected {
                set(entry, state::OTHER_CODE);
            }
        }
        if mine().next().is_none() {
            continue;
        }
        let planned = bias.wrapping_add(detours.svma) as usize;
        // From the module's start: behind its end a program's heap begins.
        let first_svma = plan.modules().get(detours.module as usize).map_or(0, |module| module.first_svma);
        let near = bias.wrapping_add(first_svma) as usize;
        let Some(place) = map_near(near, code.len()) else {
            mine().for_each(|entry| set(entry, state::NO_MEMORY));
            continue;
        };
        let is_there = lay_out(place, planned, detours, code, relocations);
        for entry in mine() {
            let address = bias.wrapping_add(entry.0.svma) as usize;
            let target = place + entry.0.target as usize;
            let is_done = is_there && entry.0.target < detours.bytes && write_jump(address, target);
            plan.jumps_written.fetch_add(u32::from(is_done), Ordering::Relaxed);
            set(entry, if is_done { state::APPLIED } else { state::FORBIDDEN });
        }
    }
}

/// Writes a module's detours to `place`; they were made for `planned`.
fn lay_out(place: usize, planned: usize, detours: &Detours, code: &[u8], relocations: &[u32]) -> bool {
    let further_up = place.wrapping_sub(planned) as i64;
    // SAFETY: a new mapping of at least that size, writable, that nobody else knows.
    let memory = unsafe {
        ptr::copy_nonoverlapping(code.as_ptr(), place as *mut u8, code.len());
        core::slice::from_raw_parts_mut(place as *mut u8, code.len())
    };
    for &at in relocations {
        let Some(field) = memory.get_mut(at as usize..at as usize + 4) else { return false };
        let mut bytes = [0; 4];
        bytes.copy_from_slice(field);
        let distance = i64::from(i32::from_le_bytes(bytes)) - further_up;
        let Ok(distance) = i32::try_from(distance) else { return false };
        field.copy_from_slice(&distance.to_le_bytes());
    }
    protect(place, detours.bytes as usize, READ | EXECUTE)
}

/// Writes a jump into code where no thread is.
fn write_jump(address: usize, target: usize) -> bool {
    let distance = (target as i64).wrapping_sub(address as i64 + JUMP_BYTES as i64);
    let Ok(distance) = i32::try_from(distance) else { return false };
    let mut jump = [0xe9, 0, 0, 0, 0];
    jump[1..].copy_from_slice(&distance.to_le_bytes());
    if !protect(address, JUMP_BYTES, READ | WRITE) {
        return false;
    }
    // SAFETY: mapped and writable now; the bytes there are those that the plan says, so it is the code that is meant.
    unsafe { ptr::copy_nonoverlapping(jump.as_ptr(), address as *mut u8, JUMP_BYTES) };
    protect(address, JUMP_BYTES, READ | EXECUTE)
}

/// Changes the protection of all pages of a range.
fn protect(address: usize, bytes: usize, protection: usize) -> bool {
    let start = address & !(PAGE_BYTES - 1);
    let length = (address + bytes).next_multiple_of(PAGE_BYTES) - start;
    // SAFETY: pages of code that is not running, or our own; what the kernel refuses stays as it is.
    unsafe { syscall(number::MPROTECT, [start, length, protection, 0, 0, 0]) == 0 }
}

/// Maps new memory within jumps' reach of `near`, below it if possible: above a program grows its heap.
fn map_near(near: usize, bytes: usize) -> Option<usize> {
    const PRIVATE_ANONYMOUS_NO_REPLACE: usize = 0x10_0022;
    const NEAR_STEP: usize = 1 << 16;
    const FAR_STEP: usize = 1 << 24;
    const NEAR_STEPS: usize = 64;
    let length = bytes.max(1).next_multiple_of(PAGE_BYTES);
    let near = near & !(PAGE_BYTES - 1);
    let try_at = |address: usize| {
        let arguments = [address, length, READ | WRITE, PRIVATE_ANONYMOUS_NO_REPLACE, usize::MAX, 0];
        // SAFETY: a new mapping over nothing.
        let got = unsafe { syscall(number::MMAP, arguments) };
        if got > 0 && got as usize != address {
            // A kernel before 4.17 takes it for a hint.
            // SAFETY: just mapped.
            unsafe { syscall(number::MUNMAP, [got as usize, length, 0, 0, 0, 0]) };
            return None;
        }
        (got > 0).then_some(address)
    };
    let distances = || {
        (1..NEAR_STEPS)
            .map(|step| step * NEAR_STEP)
            .chain((1..REACH_BYTES / FAR_STEP).map(|step| step * FAR_STEP))
    };
    let below =
        distances().filter_map(|distance| near.checked_sub(distance).filter(|&place| place >= NEAR_STEP));
    let above = distances().filter_map(|distance| near.checked_add(distance));
    below.chain(above).find_map(try_at)
}

/// Copies memory that may not be there.
fn read(address: usize, into: &mut [u8]) -> bool {
    let local = [into.as_mut_ptr() as usize, into.len()];
    let remote = [address, into.len()];
    // SAFETY: the call asks and changes nothing.
    let process = unsafe { syscall(number::GETPID, [0; 6]) } as usize;
    let arguments = [process, (&raw const local) as usize, 1, (&raw const remote) as usize, 1, 0];
    // SAFETY: the kernel writes at most that many bytes; what it reads it checks.
    unsafe { syscall(number::PROCESS_VM_READV, arguments) == into.len() as isize }
}

/// Whether there is no other thread: the folder of threads has a link for each, and two of its own
/// (`proc_task_getattr` in the kernel's `fs/proc/base.c`).
fn is_single_threaded() -> bool {
    let mut status = [0_u64; 18];
    let path = c"/proc/self/task".as_ptr() as usize;
    // SAFETY: a constant path, and room for `struct stat` of 144 bytes (`arch/x86/include/uapi/asm/stat.h`).
    let got = unsafe { syscall(number::STAT, [path, status.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    got == 0 && status[2] == 3
}

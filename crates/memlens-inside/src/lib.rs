//! What every library of memlens inside a target needs: system calls and symbols without libc's help, memlens's words
//! taken out of the environment, and what stands for a runtime.
//!
//! It knows nothing of what the libraries do.
//!
//! # Signal safety
//! Nothing here allocates or locks; of libc only `dlsym` is called, by [`symbol`] and [`next()`], and `getauxval`, by
//! [`page_bytes`].
#![cfg_attr(not(test), no_std)]

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the libraries inside a target exist for x86-64 and AArch64 only");

#[cfg(target_arch = "aarch64")]
mod aarch64;
pub mod environment;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::{number, syscall};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{number, syscall};

use core::arch::asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::{mem, ptr};

/// The address of a symbol, in the order of the program's libraries; null if there is none, or no `dlsym`.
pub fn symbol(name: &CStr) -> *mut c_void {
    look_up(0, name)
}

/// The same, from the library after the one that asks on.
pub fn next(name: &CStr) -> *mut c_void {
    /// Of dlsym(3).
    const RTLD_NEXT: usize = usize::MAX;
    look_up(RTLD_NEXT, name)
}

/// Whether what is at an address of a symbol is not the function, but a place for pointers to one of another file: an executable at a
/// fixed address that takes a function's address has an entry of its procedure linkage table for it (System V ABI AMD64 1.0, section
/// 4.4.2, "Function Addresses": the symbol is undefined and has a value).
pub fn is_place_of_pointers(symbol_address: usize) -> bool {
    /// Of dladdr1(3).
    const RTLD_DL_SYMENT: c_int = 1;
    /// Where an `Elf64_Sym` has the number of its section (ELF-64 object file format, version 1.5, figure 6) …
    const SECTION_AT: usize = 6;
    /// … if it is in one.
    const SHN_UNDEF: u16 = 0;
    let function = symbol(c"dladdr1");
    if function.is_null() {
        return false;
    }
    // SAFETY: the C function of that name, with room for a `Dl_info`, four words, and for a pointer to the symbol's entry in a file
    // that stays mapped while its code is asked for.
    unsafe {
        let function: unsafe extern "C" fn(usize, *mut [usize; 4], *mut *const u8, c_int) -> c_int =
            mem::transmute(function);
        let (mut information, mut entry) = ([0; 4], ptr::null());
        let found = function(symbol_address, &raw mut information, &raw mut entry, RTLD_DL_SYMENT) != 0;
        found && !entry.is_null() && entry.add(SECTION_AT).cast::<u16>().read_unaligned() == SHN_UNDEF
    }
}

fn look_up(scope: usize, name: &CStr) -> *mut c_void {
    let function = weak!("dlsym");
    if function == 0 {
        return ptr::null_mut();
    }
    // SAFETY: the C function of that name.
    unsafe {
        let function: unsafe extern "C" fn(usize, *const c_char) -> *mut c_void = mem::transmute(function);
        function(scope, name.as_ptr())
    }
}

/// Maps a file, for reading and writing, shared, and closes its descriptor. None: it cannot be mapped.
///
/// # Safety
/// The descriptor is memlens's, made for this.
pub unsafe fn map(descriptor: usize, bytes: usize) -> Option<*mut u8> {
    const READ_WRITE: usize = 3;
    const SHARED_NORESERVE: usize = 0x4001;
    // SAFETY: a new mapping at a place of the kernel's choice; the caller's descriptor.
    let address = unsafe {
        let address = syscall(number::MMAP, [0, bytes, READ_WRITE, SHARED_NORESERVE, descriptor, 0]);
        syscall(number::CLOSE, [descriptor, 0, 0, 0, 0, 0]);
        address
    };
    (address > 0).then_some(address as *mut u8)
}

/// Bytes of a page: on AArch64 the kernel's choice of 4, 16 and 64 KiB.
pub fn page_bytes() -> usize {
    /// `AT_PAGESZ` (include/uapi/linux/auxvec.h).
    const PAGE_SIZE: usize = 6;
    const USUAL: usize = 4096;
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    let known = KNOWN.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let function = weak!("getauxval");
    let asked = match function {
        0 => USUAL,
        // SAFETY: the C function of that name, which reads what the kernel handed to the program.
        _ => unsafe {
            let function: unsafe extern "C" fn(usize) -> usize = mem::transmute(function);
            function(PAGE_SIZE)
        },
    };
    let bytes = if asked.is_power_of_two() { asked } else { USUAL };
    KNOWN.store(bytes, Ordering::Relaxed);
    bytes
}

/// Zeroed memory of a library's own, in whole pages; None: the kernel has none. Only what is touched takes room.
///
/// It is left out of core dumps, and advised to be used at random, which for memory of no file says only that it is not kept the longer for
/// having been used. By both it is told from the program's (`dd` and `rr` in `/proc/PID/smaps`, proc_pid_smaps(5)).
pub fn own_memory(bytes: usize) -> Option<*mut u8> {
    const READ_WRITE: usize = 3;
    const PRIVATE_ANONYMOUS_NORESERVE: usize = 0x4022;
    const RANDOM: usize = 1;
    const DO_NOT_DUMP: usize = 16;
    let arguments = [0, bytes, READ_WRITE, PRIVATE_ANONYMOUS_NORESERVE, usize::MAX, 0];
    // SAFETY: a new mapping at a place of the kernel's choice; the advice changes no content.
    unsafe {
        let address = syscall(number::MMAP, arguments);
        if address <= 0 {
            return None;
        }
        for advice in [RANDOM, DO_NOT_DUMP] {
            syscall(number::MADVISE, [address as usize, bytes, advice, 0, 0, 0]);
        }
        Some(address as *mut u8)
    }
}

/// Ends the process: a library of ours has contradicted itself.
pub fn stop() -> ! {
    // SAFETY: an undefined instruction does nothing but raise SIGILL.
    unsafe { asm!(undefined!(), options(noreturn)) }
}

/// What a library without Rust's runtime needs in its place: panics that stop, and the name that the core library's
/// unwind tables refer to, whose frames nothing unwinds through. Hidden, so that it is no other library's.
#[macro_export]
macro_rules! no_runtime {
    () => {
        core::arch::global_asm!(
            ".globl rust_eh_personality",
            ".hidden rust_eh_personality",
            ".type rust_eh_personality, @function",
            "rust_eh_personality:",
            $crate::undefined!(),
        );

        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
            $crate::stop()
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_as_large_as_the_kernel_says() {
        let vector = std::fs::read("/proc/self/auxv").expect("our own");
        let words: Vec<usize> =
            vector.as_chunks::<8>().0.iter().map(|word| usize::from_ne_bytes(*word)).collect();
        let said = words.as_chunks::<2>().0.iter().find(|[tag, _]| *tag == 6).expect("AT_PAGESZ")[1];
        assert_eq!((page_bytes(), page_bytes()), (said, said));
    }

    #[test]
    fn memory_of_our_own_is_told_from_others() {
        let ours = own_memory(3 * 4096).expect("three pages");
        // SAFETY: memory of our own, of three pages.
        let bytes = unsafe { core::slice::from_raw_parts_mut(ours, 3 * 4096) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        bytes[4096] = 1;
        let text = std::fs::read_to_string("/proc/self/smaps").expect("our own");
        let flags_at = |address: u64| {
            let mut is_there = false;
            text.lines().find_map(|line| {
                if let Some(flags) = line.strip_prefix("VmFlags:") {
                    return is_there.then_some(flags);
                }
                let ends = line.split(' ').next()?.split_once('-');
                if let Some((start, end)) = ends {
                    let [start, end] = [start, end].map(|end| u64::from_str_radix(end, 16).unwrap_or(0));
                    is_there = (start..end).contains(&address);
                }
                None
            })
        };
        // `DataSize` of memlens-sample looks for these.
        let is_ours =
            |flags: &str| ["rr", "dd"].iter().all(|flag| flags.split(' ').any(|other| other == *flag));
        assert!(flags_at(ours as u64 + 4096).is_some_and(is_ours), "{text}");
        let on_the_stack = 0_u8;
        assert!(!flags_at(ptr::from_ref(&on_the_stack) as u64).is_some_and(is_ours));
    }
}

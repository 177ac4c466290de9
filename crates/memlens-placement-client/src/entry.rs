//! The functions that the program calls instead of its libc's: the usual way through each is a comparison that leaves
//! all registers alone, and a jump to the real function.
//!
//! A slow path gets the arguments, then the stack pointer at entry: with the return address on top of the stack, that
//! is where the caller is. It is entered by a jump, so it returns to the program. Until the functions are known the
//! least size is 0, and every call goes the slow way.

use core::arch::naked_asm;

use crate::place::{
    LEAST_BYTES, slow_aligned_alloc, slow_calloc, slow_malloc, slow_memalign, slow_mmap, slow_posix_memalign,
    slow_realloc,
};
use crate::real;

/// `$size`: the register that holds the bytes asked for; `$sp`: the one after the last argument.
macro_rules! entry {
    ($(#[$doc:meta])* $name:ident, size: $size:literal, sp: $sp:literal, $real:path, $slow:path) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                concat!("cmp ", $size, ", qword ptr [rip + {least}]"),
                "jae 2f",
                "jmp qword ptr [rip + {real}]",
                "2:",
                concat!("mov ", $sp, ", rsp"),
                "jmp {slow}",
                least = sym LEAST_BYTES,
                real = sym $real,
                slow = sym $slow,
            )
        }
    };
}

entry!(
    /// `void *malloc(size_t size)`
    malloc, size: "rdi", sp: "rsi", real::MALLOC, slow_malloc
);
entry!(
    /// `void *realloc(void *block, size_t size)`
    realloc, size: "rsi", sp: "rdx", real::REALLOC, slow_realloc
);
entry!(
    /// `void *memalign(size_t alignment, size_t size)`
    memalign, size: "rsi", sp: "rdx", real::MEMALIGN, slow_memalign
);
entry!(
    /// `void *aligned_alloc(size_t alignment, size_t size)`
    aligned_alloc, size: "rsi", sp: "rdx", real::ALIGNED_ALLOC, slow_aligned_alloc
);
entry!(
    /// `int posix_memalign(void **block, size_t alignment, size_t size)`
    posix_memalign, size: "rdx", sp: "rcx", real::POSIX_MEMALIGN, slow_posix_memalign
);

/// `void *calloc(size_t count, size_t size)`
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc() {
    naked_asm!(
        // A product that overflows is refused by the real function, on either way.
        "mov rdx, rdi",
        "imul rdx, rsi",
        "cmp rdx, qword ptr [rip + {least}]",
        "jae 2f",
        "jmp qword ptr [rip + {real}]",
        "2:",
        "mov rdx, rsp",
        "jmp {slow}",
        least = sym LEAST_BYTES,
        real = sym real::CALLOC,
        slow = sym slow_calloc,
    )
}

/// Six arguments leave no register for the stack pointer: it goes on the stack.
macro_rules! mapping {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "cmp rsi, qword ptr [rip + {least}]",
                "jae 2f",
                "jmp qword ptr [rip + {real}]",
                "2:",
                "mov rax, rsp",
                // Aligned to 16 bytes at the call, as the System V ABI wants it.
                "push rax",
                "push rax",
                "sub rsp, 8",
                "mov qword ptr [rsp], rax",
                "call {slow}",
                "add rsp, 24",
                "ret",
                least = sym LEAST_BYTES,
                real = sym real::MMAP,
                slow = sym slow_mmap,
            )
        }
    };
}

mapping!(
    /// `void *mmap(void *address, size_t length, int protection, int flags, int descriptor, off_t offset)`
    mmap
);
mapping!(
    /// The same on x86-64.
    mmap64
);

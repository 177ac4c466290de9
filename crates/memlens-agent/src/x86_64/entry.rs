//! The functions that the program calls instead of its libc's: the usual way through each is a few instructions
//! that leave all registers but scratch ones alone, and a jump to the real function.
//!
//! Each has a second, hidden name, `memlens_agent_own_…`: by its own one the dynamic linker finds the first function of
//! that name, which in a process that ran before is not ours.
//!
//! A slow path gets the arguments, then the stack pointer at entry and rbp: with the return address on top of the
//! stack, that is where the caller is. It is entered by a jump, so it returns to the program.

use core::arch::naked_asm;

use crate::allocations::{
    slow_aligned_alloc, slow_calloc, slow_free, slow_free_aligned_sized, slow_free_sized, slow_malloc,
    slow_memalign, slow_posix_memalign, slow_pvalloc, slow_realloc, slow_reallocarray, slow_valloc,
};
use crate::bursts;
use crate::draw::{ALWAYS_FROM_BYTES, CALL_BITS};
use crate::forking;
use crate::handing_on;
use crate::mappings::{self, slow_mmap};
use crate::real;
use crate::restriction;
use crate::watched::{FILTER, FILTER_MASK, FILTER_SHIFT};

/// A function that allocates: `$size` holds the bytes asked for, `$pass` hands on where the caller is.
macro_rules! allocating {
    ($(#[$doc:meta])* $name:ident, size: $size:literal, sp: $sp:literal, bp: $bp:literal, $real:path, $slow:path) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                concat!(".globl memlens_agent_own_", stringify!($name)),
                concat!(".hidden memlens_agent_own_", stringify!($name)),
                concat!("memlens_agent_own_", stringify!($name), ":"),
                concat!("cmp ", $size, ", qword ptr [rip + {always}]"),
                "jae 2f",
                concat!("mov ", $sp, ", ", $size),
                concat!("shl ", $sp, ", {call_bits}"),
                concat!("dec ", $sp),
                "mov rax, qword ptr [rip + memlens_agent_thread@GOTTPOFF]",
                concat!("sub qword ptr fs:[rax], ", $sp),
                "js 2f",
                "jmp qword ptr [rip + {real}]",
                "2:",
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $bp, ", rbp"),
                "jmp {slow}",
                call_bits = const CALL_BITS,
                always = sym ALWAYS_FROM_BYTES,
                real = sym $real,
                slow = sym $slow,
            )
        }
    };
}

allocating!(
    /// `void *malloc(size_t size)`
    malloc, size: "rdi", sp: "rsi", bp: "rdx", real::MALLOC, slow_malloc
);
allocating!(
    /// `void *memalign(size_t alignment, size_t size)`
    memalign, size: "rsi", sp: "rdx", bp: "rcx", real::MEMALIGN, slow_memalign
);
allocating!(
    /// `void *aligned_alloc(size_t alignment, size_t size)`
    aligned_alloc, size: "rsi", sp: "rdx", bp: "rcx", real::ALIGNED_ALLOC, slow_aligned_alloc
);
allocating!(
    /// `int posix_memalign(void **block, size_t alignment, size_t size)`
    posix_memalign, size: "rdx", sp: "rcx", bp: "r8", real::POSIX_MEMALIGN, slow_posix_memalign
);
allocating!(
    /// `void *valloc(size_t size)`
    valloc, size: "rdi", sp: "rsi", bp: "rdx", real::VALLOC, slow_valloc
);
allocating!(
    /// `void *pvalloc(size_t size)`
    pvalloc, size: "rdi", sp: "rsi", bp: "rdx", real::PVALLOC, slow_pvalloc
);

/// `void *calloc(size_t count, size_t size)`
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc() {
    naked_asm!(
        ".globl memlens_agent_own_calloc",
        ".hidden memlens_agent_own_calloc",
        "memlens_agent_own_calloc:",
        // A product that overflows is refused by the real function, whatever is counted here.
        "mov rdx, rdi",
        "imul rdx, rsi",
        "cmp rdx, qword ptr [rip + {always}]",
        "jae 2f",
        "shl rdx, {call_bits}",
        "dec rdx",
        "mov rax, qword ptr [rip + memlens_agent_thread@GOTTPOFF]",
        "sub qword ptr fs:[rax], rdx",
        "js 2f",
        "jmp qword ptr [rip + {real}]",
        "2:",
        "mov rdx, rsp",
        "mov rcx, rbp",
        "jmp {slow}",
        call_bits = const CALL_BITS,
        always = sym ALWAYS_FROM_BYTES,
        real = sym real::CALLOC,
        slow = sym slow_calloc,
    )
}

/// `void *realloc(void *block, size_t size)`
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc() {
    naked_asm!(
        ".globl memlens_agent_own_realloc",
        ".hidden memlens_agent_own_realloc",
        "memlens_agent_own_realloc:",
        "cmp rsi, qword ptr [rip + {always}]",
        "jae 2f",
        "mov rdx, rsi",
        "shl rdx, {call_bits}",
        "dec rdx",
        "mov rax, qword ptr [rip + memlens_agent_thread@GOTTPOFF]",
        "sub qword ptr fs:[rax], rdx",
        "js 2f",
        "mov rax, rdi",
        "shr rax, {shift}",
        "and eax, {mask}",
        "lea rdx, [rip + {filter}]",
        "cmp byte ptr [rdx + rax], 0",
        "jne 2f",
        "jmp qword ptr [rip + {real}]",
        "2:",
        "mov rdx, rsp",
        "mov rcx, rbp",
        "jmp {slow}",
        shift = const FILTER_SHIFT,
        mask = const FILTER_MASK,
        filter = sym FILTER,
        call_bits = const CALL_BITS,
        always = sym ALWAYS_FROM_BYTES,
        real = sym real::REALLOC,
        slow = sym slow_realloc,
    )
}

/// `void *reallocarray(void *block, size_t count, size_t size)`
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray() {
    naked_asm!(
        ".globl memlens_agent_own_reallocarray",
        ".hidden memlens_agent_own_reallocarray",
        "memlens_agent_own_reallocarray:",
        "mov rcx, rsp",
        "mov r8, rbp",
        "jmp {slow}",
        slow = sym slow_reallocarray
    )
}

/// A function that ends a block, whose address is in rdi.
macro_rules! ending {
    ($(#[$doc:meta])* $name:ident, $real:path, $slow:path) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                concat!(".globl memlens_agent_own_", stringify!($name)),
                concat!(".hidden memlens_agent_own_", stringify!($name)),
                concat!("memlens_agent_own_", stringify!($name), ":"),
                "mov rax, rdi",
                "shr rax, {shift}",
                "and eax, {mask}",
                "lea rcx, [rip + {filter}]",
                "cmp byte ptr [rcx + rax], 0",
                "jne {slow}",
                "jmp qword ptr [rip + {real}]",
                shift = const FILTER_SHIFT,
                mask = const FILTER_MASK,
                filter = sym FILTER,
                real = sym $real,
                slow = sym $slow,
            )
        }
    };
}

ending!(
    /// `void free(void *block)`
    free, real::FREE, slow_free
);
ending!(
    /// `void free_sized(void *block, size_t size)`
    free_sized, real::FREE_SIZED, slow_free_sized
);
ending!(
    /// `void free_aligned_sized(void *block, size_t alignment, size_t size)`
    free_aligned_sized, real::FREE_ALIGNED_SIZED, slow_free_aligned_sized
);

/// A function that maps memory. What is not anonymous (`MAP_ANONYMOUS`, 0x20), or refused for its offset, is not looked at; else file
/// and offset mean nothing, and leave room for where the caller is.
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
                concat!(".globl memlens_agent_own_", stringify!($name)),
                concat!(".hidden memlens_agent_own_", stringify!($name)),
                concat!("memlens_agent_own_", stringify!($name), ":"),
                "test ecx, 0x20",
                "jz 2f",
                "test r9d, 0xfff",
                "jnz 2f",
                "mov r8, rsp",
                "mov r9, rbp",
                "jmp {slow}",
                "2:",
                "jmp qword ptr [rip + {real}]",
                real = sym real::MMAP,
                slow = sym slow_mmap,
            )
        }
    };
}

mapping!(
    /// `void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset)`
    mmap
);
mapping!(
    /// `void *mmap64(…)`, as `mmap`
    mmap64
);

/// `int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument)`
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create() {
    naked_asm!(
        ".globl memlens_agent_own_pthread_create",
        ".hidden memlens_agent_own_pthread_create",
        "memlens_agent_own_pthread_create:",
        "jmp {slow}",
        slow = sym crate::ticks::create_thread
    )
}

/// A function of signals, libraries or programs, which all go the slow way.
macro_rules! passing {
    ($(#[$doc:meta])* $name:ident, $slow:path) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                concat!(".globl memlens_agent_own_", stringify!($name)),
                concat!(".hidden memlens_agent_own_", stringify!($name)),
                concat!("memlens_agent_own_", stringify!($name), ":"),
                "jmp {slow}",
                slow = sym $slow
            )
        }
    };
}

passing!(
    /// `int sigaction(int signal, const struct sigaction *new, struct sigaction *old)`
    sigaction, bursts::set_action
);
passing!(
    /// `sighandler_t signal(int signal, sighandler_t handler)`
    signal, bursts::set_signal
);
passing!(
    /// `sighandler_t bsd_signal(int signal, sighandler_t handler)`
    bsd_signal, bursts::set_signal
);
passing!(
    /// `sighandler_t ssignal(int signal, sighandler_t handler)`
    ssignal, bursts::set_signal
);
passing!(
    /// `sighandler_t sysv_signal(int signal, sighandler_t handler)`
    sysv_signal, bursts::set_sysv_signal
);
passing!(
    /// `sighandler_t __sysv_signal(int signal, sighandler_t handler)`
    __sysv_signal, bursts::set_sysv_signal
);
passing!(
    /// `sighandler_t sigset(int signal, sighandler_t disposition)`
    sigset, bursts::set_sigset
);
passing!(
    /// `int dlclose(void *library)`
    dlclose, bursts::close_library
);

passing!(
    /// `pid_t fork(void)`
    fork, forking::fork
);
passing!(
    /// `pid_t _Fork(void)`
    #[allow(non_snake_case, reason = "glibc's spelling")]
    _Fork, forking::plain_fork
);

passing!(
    /// `int munmap(void *address, size_t length)`
    munmap, mappings::unmap
);
passing!(
    /// `void *mremap(void *old, size_t old_length, size_t new_length, int flags, … /* void *new */)`
    mremap, mappings::remap
);

passing!(
    /// `int execve(const char *path, char *const argv[], char *const envp[])`
    execve, handing_on::execve
);
passing!(
    /// `int execv(const char *path, char *const argv[])`
    execv, handing_on::execv
);
passing!(
    /// `int execvp(const char *file, char *const argv[])`
    execvp, handing_on::execvp
);
passing!(
    /// `int execvpe(const char *file, char *const argv[], char *const envp[])`
    execvpe, handing_on::execvpe
);
passing!(
    /// `int posix_spawn(pid_t *, const char *path, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
    /// char *const argv[], char *const envp[])`
    posix_spawn, handing_on::posix_spawn
);
passing!(
    /// `int posix_spawnp(…)`, as `posix_spawn`
    posix_spawnp, handing_on::posix_spawnp
);

/// A function that executes a program with arguments as a list: they become an array on the stack. Those in registers
/// go right below those that are there already, the first of which lies above the return address.
macro_rules! executing {
    ($(#[$doc:meta])* $name:ident, $slow:path) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "pop r11",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                // At entry rsp was 8 below a multiple of 16: so it is one again.
                "push r11",
                "call {slow}",
                "pop r11",
                "add rsp, 40",
                "push r11",
                "ret",
                slow = sym $slow
            )
        }
    };
}

executing!(
    /// `int execl(const char *path, const char *argument, … /*, NULL */)`
    execl, handing_on::execl
);
executing!(
    /// `int execlp(const char *file, const char *argument, … /*, NULL */)`
    execlp, handing_on::execlp
);
executing!(
    /// `int execle(const char *path, const char *argument, … /*, NULL, char *const envp[] */)`
    execle, handing_on::execle
);

/// A function of any number of arguments, all in registers or left where they are. Where the first is `$which`,
/// `$before` is called first.
macro_rules! preceded {
    ($(#[$doc:meta])* $name:ident, $which:path, $real:path, $before:path) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                concat!(".globl memlens_agent_own_", stringify!($name)),
                concat!(".hidden memlens_agent_own_", stringify!($name)),
                concat!("memlens_agent_own_", stringify!($name), ":"),
                // al counts vector registers where C passes any number of arguments: these functions have none.
                "mov rax, qword ptr [rip + {real}]",
                "cmp edi, {which}",
                "je 2f",
                "test rax, rax",
                "je 2f",
                "jmp rax",
                "2:",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "sub rsp, 8",
                "call {before}",
                "add rsp, 8",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp rax",
                real = sym $real,
                which = const $which,
                before = sym $before,
            )
        }
    };
}

preceded!(
    /// `long syscall(long number, …)`
    syscall, memlens_events::restriction::SECCOMP, real::SYSCALL, restriction::before_syscall
);
preceded!(
    /// `int prctl(int option, …)`
    prctl, memlens_events::restriction::SET_SECCOMP, real::PRCTL, restriction::before_prctl
);

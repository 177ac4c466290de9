//! The functions that the program calls instead of its libc's: the usual way through each is a few instructions
//! that leave all registers but scratch ones (x9 to x17) alone, and a jump to the real function.
//!
//! Each has a second, hidden name, `memlens_agent_own_…`: by its own one the dynamic linker finds the first function of
//! that name, which in a process that ran before is not ours.
//!
//! A slow path gets the arguments, then the address of a frame record and the caller's x29: the record has the return address, and
//! right above it is where the caller's stack was. The slow path returns here, and what it leaves in x0 to the program.
//!
//! The budget is loaded by one instruction and stored by another. If a handler of the program's comes in between and allocates, what it has
//! counted is lost.
//!
//! `hint #34` is `bti c`: what an indirect call or a jump by x16 may lead to. Where the processor knows no such thing it does nothing.

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

/// A naked function with its second name. `$line`: its instructions.
macro_rules! entry_point {
    ($(#[$doc:meta])* $name:ident, [$($line:expr),* $(,)?], $($operands:tt)*) => {
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
                ".cfi_startproc",
                "hint #34",
                $($line,)*
                ".cfi_endproc",
                $($operands)*
            )
        }
    };
}

/// Jumps to the function whose address `{real}` holds.
macro_rules! go_on {
    () => {
        "adrp x16, {real}\nldr x16, [x16, :lo12:{real}]\nbr x16"
    };
}

/// Compares a register with [`ALWAYS_FROM_BYTES`]: `b.hs` is for blocks that are watched for their size.
macro_rules! compare_size {
    ($size:literal) => {
        concat!("adrp x16, {always}\nldr x16, [x16, :lo12:{always}]\ncmp ", $size, ", x16")
    };
}

/// Takes the bytes in a register, and a call, from the thread's budget: `b.mi` is for a byte that is drawn.
macro_rules! count {
    ($size:literal) => {
        concat!(
            "lsl x15, ",
            $size,
            ", #{call_bits}\n",
            "sub x15, x15, #1\n",
            "adrp x16, :gottprel:memlens_agent_thread\n",
            "ldr x16, [x16, :gottprel_lo12:memlens_agent_thread]\n",
            "mrs x17, tpidr_el0\n",
            "ldr x14, [x17, x16]\n",
            "subs x14, x14, x15\n",
            "str x14, [x17, x16]"
        )
    };
}

/// Loads the filter's byte for the block in x0 into w16.
macro_rules! look_in_filter {
    () => {
        "ubfx x16, x0, #{shift}, #{bits}\nadrp x17, {filter}\nadd x17, x17, :lo12:{filter}\nldrb w16, [x17, x16]"
    };
}

/// Calls the slow path with two more arguments, and returns.
macro_rules! call_slow {
    ($sp:literal, $bp:literal) => {
        concat!(
            "mov ",
            $bp,
            ", x29\n",
            "stp x29, x30, [sp, #-16]!\n",
            ".cfi_def_cfa_offset 16\n",
            ".cfi_offset x29, -16\n",
            ".cfi_offset x30, -8\n",
            "mov ",
            $sp,
            ", sp\n",
            "mov x29, sp\n",
            "bl {slow}\n",
            "ldp x29, x30, [sp], #16\n",
            ".cfi_def_cfa_offset 0\n",
            ".cfi_restore x29\n",
            ".cfi_restore x30\n",
            "ret"
        )
    };
}

/// Bits of a block's address that choose the filter's byte.
const FILTER_BITS: u32 = FILTER_MASK.count_ones();

/// A function that allocates: `$size` holds the bytes asked for, `$sp` and `$bp` hand on where the caller is.
macro_rules! allocating {
    ($(#[$doc:meta])* $name:ident, size: $size:literal, sp: $sp:literal, bp: $bp:literal, $real:path, $slow:path) => {
        entry_point!(
            $(#[$doc])* $name,
            [
                compare_size!($size),
                "b.hs 2f",
                count!($size),
                "b.mi 2f",
                go_on!(),
                "2:",
                call_slow!($sp, $bp),
            ],
            call_bits = const CALL_BITS,
            always = sym ALWAYS_FROM_BYTES,
            real = sym $real,
            slow = sym $slow,
        );
    };
}

allocating!(
    /// `void *malloc(size_t size)`
    malloc, size: "x0", sp: "x1", bp: "x2", real::MALLOC, slow_malloc
);
allocating!(
    /// `void *memalign(size_t alignment, size_t size)`
    memalign, size: "x1", sp: "x2", bp: "x3", real::MEMALIGN, slow_memalign
);
allocating!(
    /// `void *aligned_alloc(size_t alignment, size_t size)`
    aligned_alloc, size: "x1", sp: "x2", bp: "x3", real::ALIGNED_ALLOC, slow_aligned_alloc
);
allocating!(
    /// `int posix_memalign(void **block, size_t alignment, size_t size)`
    posix_memalign, size: "x2", sp: "x3", bp: "x4", real::POSIX_MEMALIGN, slow_posix_memalign
);
allocating!(
    /// `void *valloc(size_t size)`
    valloc, size: "x0", sp: "x1", bp: "x2", real::VALLOC, slow_valloc
);
allocating!(
    /// `void *pvalloc(size_t size)`
    pvalloc, size: "x0", sp: "x1", bp: "x2", real::PVALLOC, slow_pvalloc
);

entry_point!(
    /// `void *calloc(size_t count, size_t size)`
    calloc,
    [
        // A product that overflows is refused by the real function, whatever is counted here.
        "mul x13, x0, x1",
        compare_size!("x13"),
        "b.hs 2f",
        count!("x13"),
        "b.mi 2f",
        go_on!(),
        "2:",
        call_slow!("x2", "x3"),
    ],
    call_bits = const CALL_BITS,
    always = sym ALWAYS_FROM_BYTES,
    real = sym real::CALLOC,
    slow = sym slow_calloc,
);

entry_point!(
    /// `void *realloc(void *block, size_t size)`
    realloc,
    [
        compare_size!("x1"),
        "b.hs 2f",
        count!("x1"),
        "b.mi 2f",
        look_in_filter!(),
        "cbnz w16, 2f",
        go_on!(),
        "2:",
        call_slow!("x2", "x3"),
    ],
    shift = const FILTER_SHIFT,
    bits = const FILTER_BITS,
    filter = sym FILTER,
    call_bits = const CALL_BITS,
    always = sym ALWAYS_FROM_BYTES,
    real = sym real::REALLOC,
    slow = sym slow_realloc,
);

entry_point!(
    /// `void *reallocarray(void *block, size_t count, size_t size)`
    reallocarray,
    [call_slow!("x3", "x4")],
    slow = sym slow_reallocarray
);

/// A function that ends a block, whose address is in x0.
macro_rules! ending {
    ($(#[$doc:meta])* $name:ident, $real:path, $slow:path) => {
        entry_point!(
            $(#[$doc])* $name,
            [look_in_filter!(), "cbnz w16, 2f", go_on!(), "2:", "b {slow}"],
            shift = const FILTER_SHIFT,
            bits = const FILTER_BITS,
            filter = sym FILTER,
            real = sym $real,
            slow = sym $slow,
        );
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

/// A function that maps memory. What is not anonymous (`MAP_ANONYMOUS`, 0x20), or may be refused for its offset (where pages have 64 KiB),
/// is not looked at; else file and offset mean nothing, and leave room for where the caller is.
macro_rules! mapping {
    ($(#[$doc:meta])* $name:ident) => {
        entry_point!(
            $(#[$doc])* $name,
            [
                "tbz w3, #5, 2f",
                "tst w5, #0xffff",
                "b.ne 2f",
                call_slow!("x4", "x5"),
                "2:",
                go_on!(),
            ],
            real = sym real::MMAP,
            slow = sym slow_mmap,
        );
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

/// A function of threads, signals, libraries or programs, which always goes the slow way.
macro_rules! passing {
    ($(#[$doc:meta])* $name:ident, $slow:path) => {
        entry_point!($(#[$doc])* $name, ["b {slow}"], slow = sym $slow);
    };
}

passing!(
    /// `int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument)`
    pthread_create, crate::ticks::create_thread
);

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
/// go right below those that are there already, the first of which lies where the stack pointer is at entry.
macro_rules! executing {
    ($(#[$doc:meta])* $name:ident, $slow:path) => {
        entry_point!(
            $(#[$doc])* $name,
            [
                "stp x29, x30, [sp, #-80]!",
                ".cfi_def_cfa_offset 80",
                ".cfi_offset x29, -80",
                ".cfi_offset x30, -72",
                "mov x29, sp",
                "str x1, [sp, #24]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "add x1, sp, #24",
                "bl {slow}",
                "ldp x29, x30, [sp], #80",
                ".cfi_def_cfa_offset 0",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "ret",
            ],
            slow = sym $slow,
        );
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
        entry_point!(
            $(#[$doc])* $name,
            [
                "adrp x16, {real}",
                "ldr x16, [x16, :lo12:{real}]",
                "cmp w0, #{which}",
                "b.eq 2f",
                "cbz x16, 2f",
                "br x16",
                "2:",
                "stp x29, x30, [sp, #-80]!",
                ".cfi_def_cfa_offset 80",
                ".cfi_offset x29, -80",
                ".cfi_offset x30, -72",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "bl {before}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldp x2, x3, [sp, #32]",
                "ldp x4, x5, [sp, #48]",
                "ldp x6, x7, [sp, #64]",
                "ldp x29, x30, [sp], #80",
                ".cfi_def_cfa_offset 0",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "br x16",
            ],
            real = sym $real,
            which = const $which,
            before = sym $before,
        );
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

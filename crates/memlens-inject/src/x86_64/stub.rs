//! The code that a borrowed thread runs, and what it finds beside it.
//!
//! ```text
//!  Data        filled in before the thread comes, read-only for it
//!  code        block signals ─► memory ─► vector registers saved ─► files ─► [1] ─► dlopen ─► function ─► [2]
//!              ─► vector registers, memory given back ─► [3] ─► signals ─► all registers ─► where it was
//! ```
//!
//! A mark `[n]` is a system call that does nothing (`getpid`) and that the tracer stops at: at 1 it fills the files and
//! the argument, at 2 it reads the answer, at 3 it takes the thread back by itself. Without a tracer nothing stops: at
//! 1 there is no argument, so nothing is loaded; behind 3 the thread goes back by itself.
//!
//! Position-independent: it is copied into another process.

use core::arch::global_asm;
use core::mem::offset_of;

/// Tells our system calls from others.
pub const MARKER: u64 = u64::from_le_bytes(*b"memlensI");

/// What the tracer stops at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Mark {
    /// Files and memory are there; the argument is wanted.
    Prepare = 1,
    /// The function has returned.
    Answered = 2,
    /// All but registers and signals is as it was.
    Leave = 3,
}

/// What the code finds before it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Data {
    /// [`MARKER`]: somebody's code is here.
    pub marker: u64,
    /// The thread that it is for.
    pub thread: u64,
    /// A mask with all signals.
    pub all_signals: u64,
    /// The thread's own mask.
    pub own_signals: u64,
    /// Bytes of memory to map.
    pub scratch_bytes: u64,
    /// Which vector registers are saved (XCR0's bits).
    pub features: u64,
    /// `__errno_location`.
    pub errno_location: u64,
    /// Flags of memfd_create(2).
    pub file_flags: u64,
    /// Whether files are made.
    pub wants_library: u64,
    /// As [`Data::wants_library`], the second one.
    pub wants_file: u64,
    /// `dlopen`, or 0 if the library is there.
    pub dlopen: u64,
    /// Its second argument.
    pub dlopen_mode: u64,
    /// `dlerror`, or 0.
    pub dlerror: u64,
    /// The function: its offset in the library, or, if that is there, its address.
    pub function: u64,
    /// Where the thread's own stack is free.
    pub own_stack: u64,
    /// rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8 to r15.
    pub registers: [u64; 16],
    /// Flags.
    pub flags: u64,
    /// Where it goes on.
    pub ip: u64,
    /// Names of the two files.
    pub library_name: [u8; 48],
    /// As [`Data::library_name`].
    pub file_name: [u8; 32],
}

/// What the code finds and leaves in its memory, behind 16 KiB of vector registers.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Scratch {
    /// Descriptor of the library's file.
    pub library: u64,
    /// Descriptor of the other one.
    pub file: u64,
    /// Set by the tracer when all is there.
    pub goes: u64,
    /// What `dlopen` returned.
    pub handle: u64,
    /// What `dlerror` returned.
    pub error: u64,
    /// 1: the function has returned.
    pub has_returned: u64,
}

impl Scratch {
    /// Where it lies in the memory.
    pub const AT: u64 = 16 << 10;
    /// Where the library's path lies.
    pub const PATH_AT: u64 = Self::AT + 128;
    /// Where the function's argument lies.
    pub const ARGUMENT_AT: u64 = Self::AT + 512;
    /// The memory: the argument may have most of a megabyte, the stack the rest.
    pub const BYTES: u64 = 2 << 20;
}

global_asm!(
    ".pushsection .rodata.memlens_inject,\"a\",@progbits",
    ".balign 64",
    ".hidden memlens_inject_stub",
    ".globl memlens_inject_stub",
    "memlens_inject_stub:",
    ".zero {data}",
    ".hidden memlens_inject_entry",
    ".globl memlens_inject_entry",
    "memlens_inject_entry:",
    // Signals.
    "mov eax, {rt_sigprocmask}",
    "mov edi, {set_mask}",
    "lea rsi, [rip + memlens_inject_stub + {all_signals}]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    // Memory of our own.
    "mov eax, {mmap}",
    "xor edi, edi",
    "mov rsi, qword ptr [rip + memlens_inject_stub + {scratch_bytes}]",
    "mov edx, 3",
    "mov r10d, 0x22",
    "mov r8, -1",
    "xor r9d, r9d",
    "syscall",
    "xor ebx, ebx",
    "cmp rax, -4096",
    "ja 7f",
    "mov rbx, rax",
    "mov rsp, rax",
    "add rsp, qword ptr [rip + memlens_inject_stub + {scratch_bytes}]",
    "mov eax, dword ptr [rip + memlens_inject_stub + {features}]",
    "mov edx, dword ptr [rip + memlens_inject_stub + {features} + 4]",
    "xsave64 [rbx]",
    "cld",
    "call qword ptr [rip + memlens_inject_stub + {errno_location}]",
    "mov r12, rax",
    "mov r13d, dword ptr [rax]",
    // Files.
    "cmp qword ptr [rip + memlens_inject_stub + {wants_library}], 0",
    "je 2f",
    "mov eax, {memfd_create}",
    "lea rdi, [rip + memlens_inject_stub + {library_name}]",
    "mov rsi, qword ptr [rip + memlens_inject_stub + {file_flags}]",
    "syscall",
    "mov qword ptr [rbx + {s} + {library}], rax",
    "2:",
    "cmp qword ptr [rip + memlens_inject_stub + {wants_file}], 0",
    "je 3f",
    "mov eax, {memfd_create}",
    "lea rdi, [rip + memlens_inject_stub + {file_name}]",
    "mov rsi, 1",
    "syscall",
    "mov qword ptr [rbx + {s} + {file}], rax",
    "3:",
    "mov eax, {getpid}",
    "mov rdi, qword ptr [rip + memlens_inject_stub]",
    "mov esi, 1",
    "syscall",
    "cmp qword ptr [rbx + {s} + {goes}], 0",
    "je 6f",
    // The library.
    "mov rax, qword ptr [rip + memlens_inject_stub + {dlopen}]",
    "test rax, rax",
    "jz 4f",
    "lea rdi, [rbx + {path}]",
    "mov rsi, qword ptr [rip + memlens_inject_stub + {dlopen_mode}]",
    "call rax",
    "mov qword ptr [rbx + {s} + {handle}], rax",
    "test rax, rax",
    "jz 5f",
    // A handle is glibc's `struct link_map`, whose first word is what was added to the file's addresses (link.h).
    "mov rax, qword ptr [rax]",
    "4:",
    "add rax, qword ptr [rip + memlens_inject_stub + {function}]",
    "lea rdi, [rbx + {argument}]",
    "call rax",
    "mov qword ptr [rbx + {s} + {has_returned}], 1",
    "jmp 6f",
    "5:",
    "mov rax, qword ptr [rip + memlens_inject_stub + {dlerror}]",
    "test rax, rax",
    "jz 6f",
    "call rax",
    "mov qword ptr [rbx + {s} + {error}], rax",
    "6:",
    "cmp qword ptr [rip + memlens_inject_stub + {wants_library}], 0",
    "je 2f",
    "mov eax, {close}",
    "mov rdi, qword ptr [rbx + {s} + {library}]",
    "syscall",
    "2:",
    "mov dword ptr [r12], r13d",
    "mov eax, {getpid}",
    "mov rdi, qword ptr [rip + memlens_inject_stub]",
    "mov esi, 2",
    "syscall",
    ".hidden memlens_inject_leave",
    ".globl memlens_inject_leave",
    "memlens_inject_leave:",
    "mov eax, dword ptr [rip + memlens_inject_stub + {features}]",
    "mov edx, dword ptr [rip + memlens_inject_stub + {features} + 4]",
    "xrstor64 [rbx]",
    "mov rsp, qword ptr [rip + memlens_inject_stub + {own_stack}]",
    "mov eax, {munmap}",
    "mov rdi, rbx",
    "mov rsi, qword ptr [rip + memlens_inject_stub + {scratch_bytes}]",
    "syscall",
    "7:",
    "mov eax, {getpid}",
    "mov rdi, qword ptr [rip + memlens_inject_stub]",
    "mov esi, 3",
    "syscall",
    // From here on without a tracer only.
    "mov eax, {rt_sigprocmask}",
    "mov edi, {set_mask}",
    "lea rsi, [rip + memlens_inject_stub + {own_signals}]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "mov rax, qword ptr [rip + memlens_inject_stub + {registers}]",
    "mov rbx, qword ptr [rip + memlens_inject_stub + {registers} + 8]",
    "mov rcx, qword ptr [rip + memlens_inject_stub + {registers} + 16]",
    "mov rdx, qword ptr [rip + memlens_inject_stub + {registers} + 24]",
    "mov rsi, qword ptr [rip + memlens_inject_stub + {registers} + 32]",
    "mov rdi, qword ptr [rip + memlens_inject_stub + {registers} + 40]",
    "mov rbp, qword ptr [rip + memlens_inject_stub + {registers} + 48]",
    "mov r8, qword ptr [rip + memlens_inject_stub + {registers} + 64]",
    "mov r9, qword ptr [rip + memlens_inject_stub + {registers} + 72]",
    "mov r10, qword ptr [rip + memlens_inject_stub + {registers} + 80]",
    "mov r11, qword ptr [rip + memlens_inject_stub + {registers} + 88]",
    "mov r12, qword ptr [rip + memlens_inject_stub + {registers} + 96]",
    "mov r13, qword ptr [rip + memlens_inject_stub + {registers} + 104]",
    "mov r14, qword ptr [rip + memlens_inject_stub + {registers} + 112]",
    "mov r15, qword ptr [rip + memlens_inject_stub + {registers} + 120]",
    "push qword ptr [rip + memlens_inject_stub + {flags}]",
    "popfq",
    "mov rsp, qword ptr [rip + memlens_inject_stub + {registers} + 56]",
    "jmp qword ptr [rip + memlens_inject_stub + {ip}]",
    ".hidden memlens_inject_end",
    ".globl memlens_inject_end",
    "memlens_inject_end:",
    ".popsection",
    data = const size_of::<Data>(),
    rt_sigprocmask = const libc::SYS_rt_sigprocmask,
    set_mask = const libc::SIG_SETMASK,
    mmap = const libc::SYS_mmap,
    munmap = const libc::SYS_munmap,
    memfd_create = const libc::SYS_memfd_create,
    getpid = const libc::SYS_getpid,
    close = const libc::SYS_close,
    all_signals = const offset_of!(Data, all_signals),
    own_signals = const offset_of!(Data, own_signals),
    scratch_bytes = const offset_of!(Data, scratch_bytes),
    features = const offset_of!(Data, features),
    errno_location = const offset_of!(Data, errno_location),
    file_flags = const offset_of!(Data, file_flags),
    wants_library = const offset_of!(Data, wants_library),
    wants_file = const offset_of!(Data, wants_file),
    dlopen = const offset_of!(Data, dlopen),
    dlopen_mode = const offset_of!(Data, dlopen_mode),
    dlerror = const offset_of!(Data, dlerror),
    function = const offset_of!(Data, function),
    own_stack = const offset_of!(Data, own_stack),
    registers = const offset_of!(Data, registers),
    flags = const offset_of!(Data, flags),
    ip = const offset_of!(Data, ip),
    library_name = const offset_of!(Data, library_name),
    file_name = const offset_of!(Data, file_name),
    s = const Scratch::AT,
    path = const Scratch::PATH_AT,
    argument = const Scratch::ARGUMENT_AT,
    library = const offset_of!(Scratch, library),
    file = const offset_of!(Scratch, file),
    goes = const offset_of!(Scratch, goes),
    handle = const offset_of!(Scratch, handle),
    error = const offset_of!(Scratch, error),
    has_returned = const offset_of!(Scratch, has_returned),
);

unsafe extern "C" {
    static memlens_inject_stub: u8;
    static memlens_inject_entry: u8;
    static memlens_inject_leave: u8;
    static memlens_inject_end: u8;
}

/// Room that it takes; a test says that it is enough.
pub const STUB_BYTES: usize = 1280;

fn offset(place: *const u8) -> usize {
    place as usize - (&raw const memlens_inject_stub) as usize
}

/// Where the thread begins.
pub fn entry_offset() -> u64 {
    offset(&raw const memlens_inject_entry) as u64
}

/// Where a thread goes on that is to give up; rbx is the scratch memory.
pub fn leave_offset() -> u64 {
    offset(&raw const memlens_inject_leave) as u64
}

/// Data and code, as they are written into the process.
pub fn stub(data: &Data) -> Vec<u8> {
    let length = offset(&raw const memlens_inject_end);
    // SAFETY: the bytes between the two symbols above.
    let mut bytes = unsafe { std::slice::from_raw_parts(&raw const memlens_inject_stub, length) }.to_vec();
    // SAFETY: a structure of integers without gaps.
    let head =
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(data).cast::<u8>(), size_of::<Data>()) };
    bytes[..head.len()].copy_from_slice(head);
    // Whole words.
    bytes.resize(length.next_multiple_of(8), 0);
    bytes
}

impl Data {
    /// What takes a thread back to `back`; the rest is zero.
    pub fn new(thread: u32, own_signals: u64, back: &super::Registers) -> Self {
        /// Tile registers stay where they are: the kernel gives them on request only, and nobody here uses them.
        const TILES: u64 = 3 << 17;
        let r = &back.0;
        Self {
            marker: MARKER,
            thread: thread.into(),
            all_signals: u64::MAX,
            own_signals,
            scratch_bytes: Scratch::BYTES,
            features: !TILES,
            errno_location: 0,
            file_flags: 0,
            wants_library: 0,
            wants_file: 0,
            dlopen: 0,
            dlopen_mode: 0,
            dlerror: 0,
            function: 0,
            own_stack: super::own_stack(r.rsp),
            registers: [
                r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12,
                r.r13, r.r14, r.r15,
            ],
            flags: r.eflags,
            ip: r.rip,
            library_name: [0; 48],
            file_name: [0; 32],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_fits_its_room() {
        // SAFETY: numbers only.
        let registers = super::super::Registers(unsafe { std::mem::zeroed::<libc::user_regs_struct>() });
        let mut registers = registers;
        registers.0.rsp = 1 << 20;
        let bytes = stub(&Data::new(1, 0, &registers));
        assert!(bytes.len() <= STUB_BYTES, "{}", bytes.len());
        assert_eq!(bytes[..8], MARKER.to_ne_bytes());
        assert!(entry_offset() as usize == size_of::<Data>() && leave_offset() > entry_offset());
    }
}

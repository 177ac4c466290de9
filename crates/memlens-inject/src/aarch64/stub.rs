//! The code that a borrowed thread runs, and what it finds beside it.
//!
//! ```text
//!  Data        filled in before the thread comes, read-only for it
//!  code        block signals ─► memory ─► vector registers saved ─► files ─► [1] ─► dlopen ─► function ─► [2]
//!              ─► vector registers, memory given back ─► [3] ─► a signal's frame ─► rt_sigreturn: where it was
//! ```
//!
//! A mark `[n]` is a system call that does nothing (`getpid`) and that the tracer stops at: at 1 it fills the files and
//! the argument, at 2 it reads the answer, at 3 it takes the thread back by itself. Without a tracer nothing stops: at
//! 1 there is no argument, so nothing is loaded; behind 3 the thread goes back by itself, and a page with the frame stays behind.
//!
//! At mark 3 x0 and x7 are the thread's own: the kernel keeps them beside the registers that a tracer sets
//! (`Registers::set_back`).
//!
//! x19 is the scratch memory, x20 [`Data`], x21 the place of errno, w22 what it was.
//!
//! Position-independent: it is copied into another process. No branch in it is an indirect one but calls, so it may lie in pages
//! that are guarded against others (BTI).

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

/// General registers, stack pointer, instruction and state, in the order of `struct sigcontext`.
const GENERAL_REGISTERS: usize = 34;

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
    /// x0 to x30, stack pointer, where it goes on, state.
    pub registers: [u64; GENERAL_REGISTERS],
    /// Names of the two files.
    pub library_name: [u8; 48],
    /// As [`Data::library_name`].
    pub file_name: [u8; 32],
}

/// What the code finds and leaves in its memory, behind 16 KiB of which vector registers take some.
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

/// A signal's frame as far as rt_sigreturn(2) reads it (`struct rt_sigframe` in arch/arm64/kernel/signal.c, `struct ucontext` and
/// `struct sigcontext` in uapi/asm).
#[repr(C, align(16))]
struct Frame {
    information: [u64; 16],
    flags: u64,
    link: u64,
    /// One that is too small to be taken: the thread keeps what it has.
    signal_stack: [u64; 3],
    signals: u64,
    unused: [u64; 16],
    fault: u64,
    registers: [u64; GENERAL_REGISTERS],
    gap: u64,
    /// `struct fpsimd_context`: what follows is of this kind and length.
    kind: u32,
    length: u32,
    float_status: u32,
    float_control: u32,
    vectors: [u128; 32],
    /// No other kind follows.
    end: u64,
}

/// `FPSIMD_MAGIC`.
const VECTORS: u32 = 0x4650_8001;
/// Bytes of `struct fpsimd_context`.
const VECTORS_BYTES: usize = offset_of!(Frame, end) - offset_of!(Frame, kind);
/// What is mapped for the frame, or taken from the stack where nothing can be: two pages of the smallest size.
const FRAME_ROOM: usize = 8192;
const _: () = assert!(size_of::<Frame>() <= FRAME_ROOM && VECTORS_BYTES == 528);

/// All vector registers stored to, or loaded from, the address in a register.
macro_rules! vectors {
    ($what:literal, $base:literal) => {
        concat!(
            $what,
            " q0, q1, [",
            $base,
            "]\n",
            $what,
            " q2, q3, [",
            $base,
            ", 32]\n",
            $what,
            " q4, q5, [",
            $base,
            ", 64]\n",
            $what,
            " q6, q7, [",
            $base,
            ", 96]\n",
            $what,
            " q8, q9, [",
            $base,
            ", 128]\n",
            $what,
            " q10, q11, [",
            $base,
            ", 160]\n",
            $what,
            " q12, q13, [",
            $base,
            ", 192]\n",
            $what,
            " q14, q15, [",
            $base,
            ", 224]\n",
            $what,
            " q16, q17, [",
            $base,
            ", 256]\n",
            $what,
            " q18, q19, [",
            $base,
            ", 288]\n",
            $what,
            " q20, q21, [",
            $base,
            ", 320]\n",
            $what,
            " q22, q23, [",
            $base,
            ", 352]\n",
            $what,
            " q24, q25, [",
            $base,
            ", 384]\n",
            $what,
            " q26, q27, [",
            $base,
            ", 416]\n",
            $what,
            " q28, q29, [",
            $base,
            ", 448]\n",
            $what,
            " q30, q31, [",
            $base,
            ", 480]",
        )
    };
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
    "adr x20, memlens_inject_stub",
    // Signals.
    "mov x0, {set_mask}",
    "add x1, x20, {all_signals}",
    "mov x2, xzr",
    "mov x3, 8",
    "mov x8, {rt_sigprocmask}",
    "svc 0",
    // Memory of our own.
    "mov x0, xzr",
    "ldr x1, [x20, {scratch_bytes}]",
    "mov x2, 3",
    "mov x3, 0x22",
    "mov x4, -1",
    "mov x5, xzr",
    "mov x8, {mmap}",
    "svc 0",
    "mov x19, xzr",
    "cmn x0, 4095",
    "b.hs 7f",
    "mov x19, x0",
    "ldr x1, [x20, {scratch_bytes}]",
    "add x1, x19, x1",
    "mov sp, x1",
    // Frames end here. By the address it is known whose stack this is.
    "mov x29, xzr",
    "stp xzr, x20, [sp, -16]!",
    vectors!("stp", "x19"),
    "mrs x0, fpsr",
    "mrs x1, fpcr",
    "str x0, [x19, 512]",
    "str x1, [x19, 520]",
    "ldr x9, [x20, {errno_location}]",
    "blr x9",
    "mov x21, x0",
    "ldr w22, [x0]",
    // Files.
    "ldr x9, [x20, {wants_library}]",
    "cbz x9, 2f",
    "add x0, x20, {library_name}",
    "ldr x1, [x20, {file_flags}]",
    "mov x8, {memfd_create}",
    "svc 0",
    "str x0, [x19, {s} + {library}]",
    "2:",
    "ldr x9, [x20, {wants_file}]",
    "cbz x9, 3f",
    "add x0, x20, {file_name}",
    "mov x1, 1",
    "mov x8, {memfd_create}",
    "svc 0",
    "str x0, [x19, {s} + {file}]",
    "3:",
    "ldr x1, [x20]",
    "mov x2, 1",
    "mov x8, {getpid}",
    "svc 0",
    "ldr x9, [x19, {s} + {goes}]",
    "cbz x9, 6f",
    // The library.
    "mov x23, xzr",
    "ldr x9, [x20, {dlopen}]",
    "cbz x9, 4f",
    "mov x0, {path}",
    "add x0, x19, x0",
    "ldr x1, [x20, {dlopen_mode}]",
    "blr x9",
    "str x0, [x19, {s} + {handle}]",
    "cbz x0, 5f",
    // A handle is glibc's `struct link_map`, whose first word is what was added to the file's addresses (link.h).
    "ldr x23, [x0]",
    "4:",
    "ldr x9, [x20, {function}]",
    "add x9, x9, x23",
    "mov x0, {argument}",
    "add x0, x19, x0",
    "blr x9",
    "mov x0, 1",
    "str x0, [x19, {s} + {has_returned}]",
    "b 6f",
    "5:",
    "ldr x9, [x20, {dlerror}]",
    "cbz x9, 6f",
    "blr x9",
    "str x0, [x19, {s} + {error}]",
    "6:",
    "ldr x9, [x20, {wants_library}]",
    "cbz x9, 2f",
    "ldr x0, [x19, {s} + {library}]",
    "mov x8, {close}",
    "svc 0",
    "2:",
    "str w22, [x21]",
    "ldr x1, [x20]",
    "mov x2, 2",
    "mov x8, {getpid}",
    "svc 0",
    ".hidden memlens_inject_leave",
    ".globl memlens_inject_leave",
    "memlens_inject_leave:",
    "adr x20, memlens_inject_stub",
    "ldr x0, [x19, 512]",
    "ldr x1, [x19, 520]",
    "msr fpsr, x0",
    "msr fpcr, x1",
    vectors!("ldp", "x19"),
    "ldr x0, [x20, {own_stack}]",
    "mov sp, x0",
    "mov x0, x19",
    "ldr x1, [x20, {scratch_bytes}]",
    "mov x8, {munmap}",
    "svc 0",
    "7:",
    "ldr x0, [x20, {registers}]",
    "ldr x7, [x20, {registers} + 7 * 8]",
    "ldr x1, [x20]",
    "mov x2, 3",
    "mov x8, {getpid}",
    "svc 0",
    // From here on without a tracer only.
    "mov x0, xzr",
    "mov x1, {frame_room}",
    "mov x2, 3",
    "mov x3, 0x22",
    "mov x4, -1",
    "mov x5, xzr",
    "mov x8, {mmap}",
    "svc 0",
    "cmn x0, 4095",
    "b.lo 2f",
    "mov x0, sp",
    "sub x0, x0, {frame_room}",
    "2:",
    "mov sp, x0",
    "str xzr, [x0, {signal_stack}]",
    "str xzr, [x0, {signal_stack} + 8]",
    "str xzr, [x0, {signal_stack} + 16]",
    "ldr x1, [x20, {own_signals}]",
    "str x1, [x0, {signals}]",
    "add x1, x20, {registers}",
    "add x2, x0, {frame_registers}",
    "mov x3, {general}",
    "3:",
    "ldr x4, [x1], 8",
    "str x4, [x2], 8",
    "subs x3, x3, 1",
    "b.ne 3b",
    "mov w1, {vectors_low}",
    "movk w1, {vectors_high}, lsl 16",
    "str w1, [x0, {kind}]",
    "mov w1, {vectors_bytes}",
    "str w1, [x0, {kind} + 4]",
    "mrs x1, fpsr",
    "str w1, [x0, {kind} + 8]",
    "mrs x1, fpcr",
    "str w1, [x0, {kind} + 12]",
    "add x1, x0, {frame_vectors}",
    vectors!("stp", "x1"),
    "str xzr, [x0, {frame_end}]",
    "mov x8, {rt_sigreturn}",
    "svc 0",
    ".hidden memlens_inject_end",
    ".globl memlens_inject_end",
    "memlens_inject_end:",
    ".popsection",
    data = const size_of::<Data>(),
    rt_sigprocmask = const libc::SYS_rt_sigprocmask,
    rt_sigreturn = const libc::SYS_rt_sigreturn,
    set_mask = const libc::SIG_SETMASK,
    mmap = const libc::SYS_mmap,
    munmap = const libc::SYS_munmap,
    memfd_create = const libc::SYS_memfd_create,
    getpid = const libc::SYS_getpid,
    close = const libc::SYS_close,
    all_signals = const offset_of!(Data, all_signals),
    own_signals = const offset_of!(Data, own_signals),
    scratch_bytes = const offset_of!(Data, scratch_bytes),
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
    frame_room = const FRAME_ROOM,
    signal_stack = const offset_of!(Frame, signal_stack),
    signals = const offset_of!(Frame, signals),
    frame_registers = const offset_of!(Frame, registers),
    general = const GENERAL_REGISTERS,
    kind = const offset_of!(Frame, kind),
    vectors_low = const VECTORS & 0xffff,
    vectors_high = const VECTORS >> 16,
    vectors_bytes = const VECTORS_BYTES,
    frame_vectors = const offset_of!(Frame, vectors),
    frame_end = const offset_of!(Frame, end),
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

/// Where a thread goes on that is to give up; x19 is the scratch memory.
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
        let user = &back.user;
        let mut registers = [0; GENERAL_REGISTERS];
        registers[..31].copy_from_slice(&user.regs);
        registers[31..].copy_from_slice(&[user.sp, user.pc, user.pstate]);
        Self {
            marker: MARKER,
            thread: thread.into(),
            all_signals: u64::MAX,
            own_signals,
            scratch_bytes: Scratch::BYTES,
            errno_location: 0,
            file_flags: 0,
            wants_library: 0,
            wants_file: 0,
            dlopen: 0,
            dlopen_mode: 0,
            dlerror: 0,
            function: 0,
            own_stack: super::own_stack(user.sp),
            registers,
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
        let mut user: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        user.sp = 1 << 20;
        let registers =
            super::super::Registers { user, thread_pointer: 0, interrupted: None, first_call: None };
        let bytes = stub(&Data::new(1, 0, &registers));
        assert!(bytes.len() <= STUB_BYTES, "{}", bytes.len());
        assert_eq!(bytes[..8], MARKER.to_ne_bytes());
        assert!(entry_offset() as usize == size_of::<Data>() && leave_offset() > entry_offset());
    }

    #[test]
    fn a_signals_frame_is_as_libc_knows_it() {
        let context = size_of::<[u64; 16]>();
        assert_eq!(offset_of!(Frame, flags), context);
        assert_eq!(offset_of!(Frame, signals), context + offset_of!(libc::ucontext_t, uc_sigmask));
        let machine = context + offset_of!(libc::ucontext_t, uc_mcontext);
        assert_eq!(offset_of!(Frame, fault), machine);
        assert_eq!(offset_of!(Frame, registers), machine + offset_of!(libc::mcontext_t, regs));
        // Behind the state, where 16 divides it.
        assert_eq!(offset_of!(Frame, kind), machine + offset_of!(libc::mcontext_t, pstate) + 16);
    }
}

//! What is AArch64: registers, and (in `stub.rs`) the code that a borrowed thread runs, in `restart.rs` what becomes of the
//! system calls that a stop interrupts.
//!
//! # What differs from x86-64
//!
//! - Registers beyond 128 bits (SVE's) do not live through any system call (Documentation/arch/arm64/sve.rst, section 4), so
//!   only a thread in the middle of a computation has some. Such a thread is borrowed where no other is found, and it is the
//!   tracer that keeps them: were this process killed meanwhile, they would be lost. A thread in streaming mode (SME) is let
//!   be; its array ZA stays where it is, since nobody here uses it.
//! - The way back without a tracer is rt_sigreturn(2), which alone sets all registers at once. A sleep that was interrupted
//!   then begins again with its whole time; or it ends with `EINTR`, where it was not libc that made the call.
//! - Return addresses on a stack may be signed; addresses of code are compared without the bits that hold signatures.
//! - `svc` is as long as every instruction, and no function keeps anything below its stack pointer (AAPCS64, 6.4.5.1).
//!
//! # Sources
//! Arm ARM DDI 0487; AAPCS64 (ARM IHI 0055); Linux's arch/arm64/kernel/{signal,ptrace,syscall}.c and
//! arch/arm64/include/uapi/asm/{ptrace,sigcontext}.h.

mod restart;
mod stub;

use std::io;

pub use restart::{continued, settle, shown};
pub use stub::{Data, MARKER, Mark, STUB_BYTES, Scratch, entry_offset, leave_offset, stub};

use crate::target::Target;
use crate::tracer;

/// Whether a thread is taken back behind the last system call of its way, not at a stop after that: there the kernel has
/// yet to decide what becomes of a call.
pub const ENDS_IN_CALL: bool = true;

/// Whether instructions of a running process can be replaced.
pub const CHANGES_CODE: bool = false;

/// Bytes of the longest call before a return address.
pub const CALL_BYTES: usize = 4;

/// Sets of registers: types of notes in an ELF file (include/uapi/linux/elf.h).
mod set {
    /// `struct user_pt_regs`.
    pub const GENERAL: usize = 1;
    /// The thread pointer.
    pub const THREAD_POINTER: usize = 0x401;
    /// The number of the system call that a thread is in.
    pub const SYSTEM_CALL: usize = 0x404;
    /// SVE's.
    pub const WIDE: usize = 0x405;
    /// SVE's in streaming mode.
    pub const STREAMING: usize = 0x40b;
}

/// A stopped thread's registers.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// As ptrace(2) has them (`PTRACE_GETREGSET`, `NT_PRSTATUS`). Of a call that is to be made again they are those with which
    /// it is made.
    pub user: libc::user_regs_struct,
    /// `TPIDR_EL0`.
    pub thread_pointer: u64,
    /// What the call that the stop interrupted returned to the kernel, if that has it made again.
    pub interrupted: Option<i64>,
    /// The number of that call, where x8 has that of restart_syscall(2) and it is known.
    pub first_call: Option<i64>,
}

/// Missing in the `libc` crate (include/uapi/asm-generic/unistd.h).
pub const SYS_IO_PGETEVENTS: i64 = 292;

/// Of these, those whose first argument is no descriptor, or need not be: io_uring_enter(2) also takes the index of a ring
/// that the thread has registered.
const WITHOUT_DESCRIPTOR: [i64; 6] = [
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    SYS_IO_PGETEVENTS,
    libc::SYS_io_uring_enter,
];

/// System calls that wait for others, and that no allocator and no dynamic linker makes. A sleep, or a wait for a lock with a
/// time limit, that was interrupted before is made again as restart_syscall(2).
const WAITS: [i64; 14] = [
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_restart_syscall,
];

/// In the state: what kind of indirect branch led here, checked by the next instruction (Arm ARM, "PSTATE.BTYPE").
const BRANCH_TYPE: u64 = 3 << 10;

impl Registers {
    /// A stopped thread's.
    pub fn of(thread: u32) -> io::Result<Self> {
        // SAFETY: numbers only.
        let mut user: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: the structure's own bytes, all of which are numbers without gaps.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut((&raw mut user).cast::<u8>(), size_of_val(&user)) };
        tracer::register_set(thread, set::GENERAL, bytes)?;
        let mut thread_pointer = [0; 8];
        tracer::register_set(thread, set::THREAD_POINTER, &mut thread_pointer)?;
        Ok(Self {
            user,
            thread_pointer: u64::from_ne_bytes(thread_pointer),
            interrupted: None,
            first_call: None,
        })
    }

    /// Gives them to a stopped thread, all at once.
    pub fn set(&self, thread: u32) -> io::Result<()> {
        // SAFETY: the structure's own bytes, all of which are numbers without gaps.
        let bytes = unsafe {
            std::slice::from_raw_parts((&raw const self.user).cast::<u8>(), size_of_val(&self.user))
        };
        tracer::set_register_set(thread, set::GENERAL, bytes)
    }

    /// Gives them back to a thread at the end of the system call by which the stub says that it leaves. Its first argument was
    /// the one of the call that was interrupted, if one was: so the kernel, which keeps that, finds all as if its own call had
    /// been interrupted just now.
    pub fn set_back(&self, thread: u32) -> io::Result<()> {
        let mut registers = *self;
        match self.interrupted {
            Some(result) => {
                registers.user.regs[0] = result as u64;
                registers.user.pc += restart::SVC_BYTES;
            }
            None => set_system_call(thread, -1)?,
        }
        registers.set(thread)
    }

    /// Whether the stop interrupted a call that waits for others, and that no allocator and no dynamic linker makes.
    pub fn waits_for_others(&self) -> bool {
        self.interrupted.is_some() && WAITS.contains(&self.call())
    }

    /// The system call that is about to be made, or was made last.
    fn call(&self) -> i64 {
        self.user.regs[8] as i64
    }

    /// The instruction.
    pub fn ip(&self) -> u64 {
        self.user.pc
    }

    /// The stack pointer.
    pub fn sp(&self) -> u64 {
        self.user.sp
    }

    /// The frame pointer.
    pub fn bp(&self) -> u64 {
        self.user.regs[29]
    }

    /// Where the innermost function returns to, if it has called none.
    pub fn link(&self) -> Option<u64> {
        Some(code_address(self.user.regs[30]))
    }

    /// The thread pointer.
    pub fn thread_pointer(&self) -> u64 {
        self.thread_pointer
    }

    /// By DWARF number (DWARF for the Arm 64-bit Architecture, section 4.1): x0 to x30, and the stack pointer.
    pub fn by_number(&self) -> [u64; 32] {
        let mut numbers = [self.user.sp; 32];
        numbers[..31].copy_from_slice(&self.user.regs);
        numbers
    }

    /// Whether the thread runs 64-bit code of a user.
    pub fn is_ordinary(&self) -> bool {
        /// The level of privilege, and whether the code is 32-bit.
        const MODE: u64 = 0x1f;
        self.user.pstate & MODE == 0
    }

    /// The registers with which the thread itself continues an interrupted call. What is left of a sleep nobody but the kernel
    /// knows, and it forgets that on rt_sigreturn(2).
    pub fn restarted(&self) -> Self {
        let mut registers = *self;
        if let Some(call) = self.first_call {
            registers.user.regs[8] = call as u64;
        }
        registers
    }

    /// The registers with which the thread goes on at `ip` and is in no system call.
    pub fn at(&self, ip: u64) -> Self {
        let mut registers = *self;
        registers.user.pc = ip;
        registers.user.sp = own_stack(self.user.sp);
        registers.user.pstate &= !BRANCH_TYPE;
        (registers.interrupted, registers.first_call) = (None, None);
        registers
    }

    /// Those of a thread anywhere in the stub that is to leave it, from `ip` on.
    pub fn leaving(&self, ip: u64, scratch: u64) -> Self {
        let mut registers = *self;
        registers.user.pc = ip;
        registers.user.pstate &= !BRANCH_TYPE;
        registers.user.regs[19] = scratch;
        registers
    }

    /// The mark that the thread has come to, at the entry of its system call.
    pub fn mark(&self) -> Option<u64> {
        let is_one = self.call() == libc::SYS_getpid && self.user.regs[1] == MARKER;
        (is_one && self.is_entry()).then_some(self.user.regs[2])
    }

    /// Whether a stop at a system call is at its entry, not at its end (`report_syscall` in arch/arm64/kernel/ptrace.c).
    fn is_entry(&self) -> bool {
        self.user.regs[7] == 0
    }

    /// Address of the scratch memory, at a mark.
    pub fn scratch(&self) -> u64 {
        self.user.regs[19]
    }
}

/// Says which system call a stopped thread is in; -1: in none.
fn set_system_call(thread: u32, call: i32) -> io::Result<()> {
    tracer::set_register_set(thread, set::SYSTEM_CALL, &call.to_ne_bytes())
}

/// Below what the thread uses. There is no red zone.
fn own_stack(sp: u64) -> u64 {
    (sp - 256) & !15
}

/// Whether the vector registers can be saved.
pub fn can_save_vectors() -> bool {
    true
}

/// A set of SVE's registers, if it holds any (`struct user_sve_header` in uapi/asm/ptrace.h).
fn vectors(thread: u32, set: usize) -> Option<Vec<u8>> {
    /// What is in flags' first bit: all of the registers are there, not only 128 bits of each.
    const ALL: u8 = 1;
    let mut head = [0; 16];
    tracer::register_set(thread, set, &mut head).ok()?;
    let size = u32::from_ne_bytes(head[..4].try_into().ok()?) as usize;
    if head[12] & ALL == 0 || size <= head.len() {
        return None;
    }
    let mut bytes = vec![0; size];
    let length = tracer::register_set(thread, set, &mut bytes).ok()?;
    bytes.truncate(length);
    Some(bytes)
}

/// What of a stopped thread's vector registers the stub does not keep.
pub fn wide_vectors(thread: u32) -> Option<Vec<u8>> {
    vectors(thread, set::WIDE)
}

/// Gives them back.
pub fn set_wide_vectors(thread: u32, bytes: &[u8]) -> io::Result<()> {
    tracer::set_register_set(thread, set::WIDE, bytes)
}

/// Whether a stopped thread is in a mode that the stub would end.
pub fn is_in_special_mode(thread: u32) -> bool {
    vectors(thread, set::STREAMING).is_some()
}

/// An address of code without a signature (Arm ARM, "Pointer authentication"): user space has 48 bits.
pub fn code_address(word: u64) -> u64 {
    word & ((1 << 48) - 1)
}

/// Whether a return address stands behind a call: `bl`, `blr`, or one of those which check a signature first (Arm ARM,
/// "Branches, Exception Generating and System instructions").
pub fn is_behind_call(before: [u8; CALL_BYTES]) -> bool {
    let code = u32::from_le_bytes(before);
    let is_direct = code & 0xfc00_0000 == 0x9400_0000;
    is_direct || code & 0xfeff_f000 == 0xd63f_0000
}

/// How far a new thread goes from where its maker set up clone3(2) to the call of its function, that included.
pub const CLONE_CALL_BYTES: u64 = 96;

/// Where in some code clone3(2) is called: `mov x8, 435; svc 0`.
pub fn clone_calls(code: &[u8]) -> impl Iterator<Item = usize> {
    const CALL: [u32; 2] = [0xd280_0008 | (libc::SYS_clone3 as u32) << 5, restart::SVC];
    let words = code.as_chunks::<4>().0.array_windows().enumerate();
    words.filter(|&(_, words)| words.map(u32::from_le_bytes) == CALL).map(|(at, _)| at * 4)
}

/// Whether two words may be those that the kernel stores behind the instruction pointer in a signal's frame: the state, and a gap
/// (`struct sigcontext` in uapi/asm/sigcontext.h).
pub fn is_behind_ip(state: u64, _: u64) -> bool {
    state & 0x1f == 0 && state >> 32 == 0
}

/// Whether a thread pointer leads to glibc's descriptor of a thread: that lies before it (glibc's
/// sysdeps/aarch64/nptl/tls.h).
pub fn is_descriptor(target: &Target, thread: u32, pointer: u64) -> bool {
    /// More than glibc's `struct pthread` takes.
    const MOST_BYTES: u64 = PAGE;
    /// Of which every size of pages is a multiple.
    const PAGE: u64 = 4096;
    // Nothing may be mapped in the page before.
    [pointer.saturating_sub(MOST_BYTES), pointer & !(PAGE - 1)].into_iter().any(|start| {
        let start = start & !7;
        let memory = target.bytes(start, (pointer - start) as usize);
        memory.is_some_and(|memory| has_descriptor(target, thread, start, &memory))
    })
}

/// Whether some memory that begins at `start`, a multiple of 8, holds a thread's descriptor: the id, then twice the address of
/// the word behind the first of these, which is the list of the robust mutexes that the thread has, empty. If it is not, what
/// follows is where such a mutex has its lock, counted from the word that links it (set_robust_list(2)).
pub fn has_descriptor(_: &Target, thread: u32, start: u64, memory: &[u8]) -> bool {
    const FROM_LINK_TO_LOCK: u64 = (-32_i64) as u64;
    let places = (start..).step_by(8).zip(memory.as_chunks::<8>().0.array_windows());
    places.into_iter().any(|(place, words)| {
        let [id, last, first, lock] = words.map(u64::from_ne_bytes);
        let is_empty = [last, first] == [place + 16; 2];
        id as u32 == thread && (is_empty || lock == FROM_LINK_TO_LOCK)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers() -> Registers {
        // SAFETY: numbers only.
        let user = unsafe { std::mem::zeroed() };
        Registers { user, thread_pointer: 0, interrupted: None, first_call: None }
    }

    #[test]
    fn registers_are_numbered_as_dwarf_does() {
        let mut registers = registers();
        for (number, register) in registers.user.regs.iter_mut().enumerate() {
            *register = number as u64;
        }
        registers.user.sp = 31;
        assert!(registers.by_number().iter().enumerate().all(|(number, &value)| number as u64 == value));
        assert_eq!((registers.bp(), registers.link(), registers.sp()), (29, Some(30), 31));
    }

    #[test]
    fn a_mark_is_known_at_its_entry_only() {
        let mut registers = registers();
        registers.user.regs[8] = libc::SYS_getpid as u64;
        (registers.user.regs[1], registers.user.regs[2]) = (MARKER, Mark::Leave as u64);
        assert_eq!(registers.mark(), Some(3));
        registers.user.regs[7] = 1;
        assert_eq!(registers.mark(), None);
    }

    #[test]
    fn who_is_taken_away_lands_nowhere_in_particular() {
        let mut registers = registers();
        (registers.user.sp, registers.user.pstate) = (0x7008, 0x6000_0c00);
        registers.interrupted = Some(-514);
        let away = registers.at(0x1000);
        assert_eq!((away.ip(), away.sp(), away.user.pstate), (0x1000, 0x6f00, 0x6000_0000));
        assert_eq!(away.interrupted, None);
    }

    #[test]
    fn calls_are_known_before_return_addresses() {
        // bl, blr x1, blraa x1, sp, blraaz x30.
        for code in [0x9400_0001_u32, 0x97ff_ffff, 0xd63f_0020, 0xd73f_083f, 0xd63f_0bdf] {
            assert!(is_behind_call(code.to_le_bytes()), "{code:x}");
        }
        // b, br x1, ret, nop, svc.
        for code in [0x1400_0001_u32, 0xd61f_0020, 0xd65f_03c0, 0xd503_201f, 0xd400_0001] {
            assert!(!is_behind_call(code.to_le_bytes()), "{code:x}");
        }
        let code = [0xd503_201f_u32, 0xd280_3668, 0xd400_0001, 0xd280_0ba8, 0xd400_0001];
        let bytes: Vec<u8> = code.iter().flat_map(|code| code.to_le_bytes()).collect();
        assert!(clone_calls(&bytes).eq([4]));
        assert_eq!(code_address(0x0037_ffff_1234_5678), 0xffff_1234_5678);
    }

    #[test]
    fn our_own_descriptor_is_found() {
        let pointer: u64;
        // SAFETY: reads a register.
        unsafe { std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer) };
        // SAFETY: asks for a number.
        let thread = unsafe { libc::gettid() } as u32;
        let target = Target::open(std::process::id()).expect("our own");
        assert!(is_descriptor(&target, thread, pointer));
        assert!(!is_descriptor(&target, thread + 1, pointer) && !is_descriptor(&target, thread, 0));
    }
}

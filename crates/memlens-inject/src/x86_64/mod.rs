//! What is x86-64: registers, restarts of system calls, and (in `stub.rs`) the code that a borrowed thread runs.

mod stub;

use std::io;
use std::time::Duration;

pub use stub::{Data, MARKER, Mark, STUB_BYTES, Scratch, entry_offset, leave_offset, stub};

use crate::target::Target;
use crate::tracer::{self, Stop};

/// Whether a thread is taken back behind the last system call of its way, not at a stop after that.
pub const ENDS_IN_CALL: bool = false;

/// Whether instructions of a running process can be replaced.
pub const CHANGES_CODE: bool = true;

/// Bytes of the longest call before a return address.
pub const CALL_BYTES: usize = 7;

/// A stopped thread's registers, as ptrace(2) has them (`PTRACE_GETREGS`).
#[derive(Clone, Copy, Debug)]
pub struct Registers(pub libc::user_regs_struct);

/// Missing in the `libc` crate (arch/x86/entry/syscalls/syscall_64.tbl).
pub const SYS_IO_PGETEVENTS: i64 = 333;

/// What the kernel keeps in rax of a call that is to be restarted (include/linux/errno.h).
const RESTART_SYS: i64 = -512;
const RESTART_NO_INTERRUPT: i64 = -513;
const RESTART_NO_HANDLER: i64 = -514;
const RESTART_BLOCK: i64 = -516;

/// System calls that wait for others, and that no allocator and no dynamic linker makes.
const WAITS: [i64; 17] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_pause,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_wait4,
    libc::SYS_waitid,
];

/// The call that a thread is in: needed by nobody, since the registers say it once the thread is stopped.
pub fn shown(_: u32) -> Option<()> {
    None
}

/// The registers with which the kernel continues what the stop interrupted: [`Registers::continued`].
pub fn continued(_: u32, registers: &Registers, _: Option<()>) -> Option<Registers> {
    registers.continued()
}

/// Makes known what became of the call that a stop interrupted: the registers say it already.
pub fn settle(_: u32, registers: &Registers, _: Duration) -> Result<Option<Registers>, Stop> {
    Ok(Some(*registers))
}

impl Registers {
    /// A stopped thread's.
    pub fn of(thread: u32) -> io::Result<Self> {
        // SAFETY: numbers only.
        let mut registers = Self(unsafe { std::mem::zeroed() });
        tracer::general_registers(thread, &mut registers.0)?;
        Ok(registers)
    }

    /// Gives them to a stopped thread, all at once.
    pub fn set(&self, thread: u32) -> io::Result<()> {
        tracer::set_general_registers(thread, &self.0)
    }

    /// Gives them back to a thread that is done with the stub: the kernel then continues what was interrupted.
    pub fn set_back(&self, thread: u32) -> io::Result<()> {
        self.set(thread)
    }

    /// Whether the stop interrupted a call that waits for others, and that no allocator and no dynamic linker makes.
    pub fn waits_for_others(&self) -> bool {
        let codes = [RESTART_SYS, RESTART_NO_INTERRUPT, RESTART_NO_HANDLER, RESTART_BLOCK];
        codes.contains(&(self.0.rax as i64)) && WAITS.contains(&(self.0.orig_rax as i64))
    }

    /// The instruction.
    pub fn ip(&self) -> u64 {
        self.0.rip
    }

    /// The stack pointer.
    pub fn sp(&self) -> u64 {
        self.0.rsp
    }

    /// The frame pointer.
    pub fn bp(&self) -> u64 {
        self.0.rbp
    }

    /// Where the innermost function returns to, if a register says that.
    pub fn link(&self) -> Option<u64> {
        None
    }

    /// The thread pointer.
    pub fn thread_pointer(&self) -> u64 {
        self.0.fs_base
    }

    /// By DWARF number (System V ABI AMD64 1.0, figure 3.36).
    pub fn by_number(&self) -> [u64; 16] {
        let r = &self.0;
        [
            r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13,
            r.r14, r.r15,
        ]
    }

    /// Whether the thread runs 64-bit code of a user.
    pub fn is_ordinary(&self) -> bool {
        const USER_64: u64 = 0x33;
        self.0.cs == USER_64
    }

    /// The registers with which the kernel continues what the stop interrupted. Of the calls that it would end with
    /// `EINTR` it then decides as of others: a signal with a handler ends them, else they begin again, with their
    /// whole time limit. None: they are right as they are.
    pub fn continued(&self) -> Option<Self> {
        let ended = self.0.rax as i64 == -i64::from(libc::EINTR)
            && crate::ended_calls::is_ended_by_stops(self.0.orig_rax as i64);
        ended.then(|| {
            let mut registers = *self;
            registers.0.rax = RESTART_NO_HANDLER as u64;
            registers
        })
    }

    /// The registers with which the thread itself continues an interrupted call, as the kernel would set them.
    pub fn restarted(&self) -> Self {
        /// The length of the instruction `syscall`.
        const SYSCALL_BYTES: u64 = 2;
        let mut registers = *self;
        let r = &mut registers.0;
        if r.orig_rax as i64 >= 0 {
            let call = match r.rax as i64 {
                RESTART_SYS | RESTART_NO_INTERRUPT | RESTART_NO_HANDLER => r.orig_rax,
                RESTART_BLOCK => libc::SYS_restart_syscall as u64,
                _ => return registers,
            };
            r.rax = call;
            r.rip -= SYSCALL_BYTES;
        }
        registers
    }

    /// The registers with which the thread goes on at `ip` and is in no system call.
    pub fn at(&self, ip: u64) -> Self {
        const DIRECTION: u64 = 1 << 10;
        let mut registers = *self;
        registers.0.rip = ip;
        registers.0.rsp = own_stack(self.0.rsp);
        registers.0.orig_rax = u64::MAX;
        registers.0.eflags &= !DIRECTION;
        registers
    }

    /// Those of a thread anywhere in the stub that is to leave it, from `ip` on.
    pub fn leaving(&self, ip: u64, scratch: u64) -> Self {
        let mut registers = *self;
        registers.0.rip = ip;
        registers.0.rbx = scratch;
        registers
    }

    /// The mark that the thread has come to, at the entry of its system call.
    pub fn mark(&self) -> Option<u64> {
        let is_entry = self.0.rax as i64 == -i64::from(libc::ENOSYS);
        (is_entry && self.0.orig_rax as i64 == libc::SYS_getpid && self.0.rdi == MARKER).then_some(self.0.rsi)
    }

    /// Address of the scratch memory, at a mark.
    pub fn scratch(&self) -> u64 {
        self.0.rbx
    }
}

/// Below what the thread uses, its red zone included (System V ABI AMD64 1.0, 3.2.2).
fn own_stack(sp: u64) -> u64 {
    (sp - 256) & !15
}

/// Whether the vector registers can be saved.
pub fn can_save_vectors() -> bool {
    std::arch::is_x86_feature_detected!("xsave")
}

/// What of a stopped thread's vector registers the stub does not keep: it keeps all.
pub fn wide_vectors(_: u32) -> Option<Vec<u8>> {
    None
}

/// Gives them back.
pub fn set_wide_vectors(_: u32, _: &[u8]) -> io::Result<()> {
    Ok(())
}

/// Whether a stopped thread is in a mode that the stub would end.
pub fn is_in_special_mode(_: u32) -> bool {
    false
}

/// An address of code.
pub fn code_address(word: u64) -> u64 {
    word
}

/// Whether a return address stands behind a call: `e8` with 32 bits, or `ff /2`, of 2 to 7 bytes (Intel SDM, volume 2,
/// "CALL"). `before`: the 7 bytes before it.
pub fn is_behind_call(before: [u8; CALL_BYTES]) -> bool {
    let is_indirect = |at: usize| before[at] == 0xff && (before[at + 1] >> 3) & 7 == 2;
    before[2] == 0xe8 || (0..=5).any(is_indirect)
}

/// How far a new thread goes from where its maker set up clone3(2) to the call of its function, that included.
pub const CLONE_CALL_BYTES: u64 = 32;

/// Where in some code clone3(2) is called: `mov eax, 435; syscall`.
pub fn clone_calls(code: &[u8]) -> impl Iterator<Item = usize> {
    const NUMBER: [u8; 4] = (libc::SYS_clone3 as u32).to_le_bytes();
    const CALL: [u8; 7] = [0xb8, NUMBER[0], NUMBER[1], NUMBER[2], NUMBER[3], 0x0f, 0x05];
    code.array_windows().enumerate().filter(|&(_, bytes)| *bytes == CALL).map(|(at, _)| at)
}

/// Whether two words may be those that the kernel stores behind the instruction pointer in a signal's frame: the flags, of which
/// bit 1 and the one that allows interrupts are always set, and the segments, of which the first is that of 64-bit code (`struct
/// sigcontext` in arch/x86/include/uapi/asm/sigcontext.h; Intel SDM, volume 1, section 3.4.3).
pub fn is_behind_ip(flags: u64, segments: u64) -> bool {
    const ALWAYS: u64 = 1 << 1 | 1 << 9;
    const DEFINED_BITS: u32 = 22;
    const USER_64: u64 = 0x33;
    flags & ALWAYS == ALWAYS && flags >> DEFINED_BITS == 0 && segments & 0xffff == USER_64
}

/// Whether a thread pointer leads to glibc's descriptor of a thread.
pub fn is_descriptor(target: &Target, thread: u32, start: u64) -> bool {
    // The descriptor (glibc's `struct pthread`) begins with its own address; behind 0x2c0 bytes of header and a list's
    // node comes the id.
    const ID_IS_IN: std::ops::Range<usize> = 0x2c0..0x300;
    let Some(bytes) = target.bytes(start, ID_IS_IN.end) else { return false };
    let ids = bytes[ID_IS_IN].as_chunks::<4>().0;
    target.word(start) == Some(start) && ids.iter().any(|id| u32::from_ne_bytes(*id) == thread)
}

/// Whether there is one in some memory that begins at `start`, a multiple of 64.
pub fn has_descriptor(target: &Target, thread: u32, start: u64, memory: &[u8]) -> bool {
    let words = memory.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
    let mut places = (start..).step_by(8).zip(words).filter(|(place, _)| place % 64 == 0);
    places.any(|(place, word)| place == word && is_descriptor(target, thread, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopped_in(call: i64, result: i64) -> Registers {
        // SAFETY: numbers only.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        registers.orig_rax = call as u64;
        registers.rax = result as u64;
        registers.rip = 1000;
        Registers(registers)
    }

    #[test]
    fn interrupted_calls_go_on_and_others_stay_as_they_are() {
        let epoll = stopped_in(libc::SYS_epoll_wait, -4).continued().expect("changed");
        assert_eq!(epoll.restarted().0.rax as i64, libc::SYS_epoll_wait);
        assert_eq!(epoll.restarted().0.rip, 998);
        // A descriptor was ready; a call whose EINTR is the program's business; no call at all.
        for (call, result) in [(libc::SYS_epoll_wait, 3), (libc::SYS_close, -4), (-1, -4)] {
            let registers = stopped_in(call, result);
            assert!(registers.continued().is_none());
            assert_eq!((registers.restarted().0.rip, registers.restarted().0.rax as i64), (1000, result));
        }
        let sleep = stopped_in(libc::SYS_nanosleep, -516).restarted();
        assert_eq!((sleep.0.rip, sleep.0.rax as i64), (998, libc::SYS_restart_syscall));
    }

    #[test]
    fn a_signals_frame_is_known_by_its_flags_and_segments() {
        static mut SEEN: [u64; 3] = [0; 3];
        extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
            // SAFETY: the kernel's context; nobody else uses the array meanwhile.
            unsafe {
                let registers = &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
                let ip = libc::REG_RIP as usize;
                SEEN = [registers[ip] as u64, registers[ip + 1] as u64, registers[ip + 2] as u64];
            }
        }
        // SAFETY: a handler of our own for a signal that nobody else uses here, sent to this thread.
        let [_, flags, segments] = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut()), 0);
            libc::raise(libc::SIGURG);
            SEEN
        };
        assert!(is_behind_ip(flags, segments), "{flags:#x} {segments:#x}");
        assert!(
            !is_behind_ip(0x7fff_0000_0202, segments)
                && !is_behind_ip(flags, 0)
                && !is_behind_ip(0, segments)
        );
    }

    #[test]
    fn calls_are_known_before_return_addresses() {
        for code in [
            &[0xe8, 1, 2, 3, 4][..],
            &[0xff, 0xd0],
            &[0x41, 0xff, 0xd4],
            &[0xff, 0x15, 1, 2, 3, 4],
            &[0xff, 0x50, 8],
            &[0xff, 0x94, 0xc8, 1, 2, 3, 4],
        ] {
            let mut before = [0x90; 7];
            before[7 - code.len()..].copy_from_slice(code);
            assert!(is_behind_call(before), "{code:x?}");
        }
        assert!(!is_behind_call([0x90; 7]));
        let code = [0x90, 0xb8, 0xb3, 1, 0, 0, 0x0f, 0x05, 0x90, 0xb8, 0xb4, 1, 0, 0, 0x0f, 0x05];
        assert!(clone_calls(&code).eq([1]));
    }
}

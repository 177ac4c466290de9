//! System calls that a signal's handler has ended, and what the code before them tells.

use core::array;

use memlens_inside::{number, syscall};

/// `svc #0`.
pub const SVC: u32 = 0xd400_0001;
/// How many instructions before a call are looked at.
pub const MOST_BEFORE: usize = 11;

/// System calls that Linux ends with `EINTR` whenever a handler runs, `SA_RESTART` or not (signal(7)), and those that it
/// so ends where a socket has a time limit: by their numbers (`include/uapi/asm-generic/unistd.h`).
const ENDED_BY_HANDLERS: [u64; 24] = [
    22, 441, // epoll_pwait, epoll_pwait2
    72, 73, // pselect6, ppoll
    133, 137, // rt_sigsuspend, rt_sigtimedwait
    101, 115, // nanosleep, clock_nanosleep
    193, 192, // semop, semtimedop
    4, 292, 426, // io_getevents, io_pgetevents, io_uring_enter
    63, 65, 64, 66, // read, readv, write, writev
    207, 212, 243, 206, 211, // recvfrom, recvmsg, recvmmsg, sendto, sendmsg
    202, 242, // accept, accept4
];

/// Whether a call is one that Linux ends when a handler runs.
pub fn is_ended_by_handlers(number: u64) -> bool {
    ENDED_BY_HANDLERS.contains(&number)
}

/// The instruction at `pc`, and those before it, nearest first, as far as they can be read: none where `pc` leads nowhere, nor where code
/// may be executed but not read.
pub fn code_up_to<const N: usize>(pc: u64, room: &mut [u32; N]) -> &[u32] {
    const BYTES: usize = size_of::<u32>();
    if !pc.is_multiple_of(BYTES as u64) {
        return &[];
    }
    // The kernel begins with the first of these and stops at the first that it cannot read.
    let remote: [[usize; 2]; N] = array::from_fn(|back| [(pc as usize).wrapping_sub(back * BYTES), BYTES]);
    let local = [room.as_mut_ptr() as usize, size_of_val(room)];
    // SAFETY: asks for a number; then writes to `room` at most its size.
    let read = unsafe {
        let pid = syscall(number::GETPID, [0; 6]) as usize;
        let arguments = [pid, (&raw const local) as usize, 1, remote.as_ptr() as usize, N, 0];
        syscall(number::PROCESS_VM_READV, arguments)
    };
    &room[..usize::try_from(read).map_or(0, |bytes| bytes / BYTES)]
}

/// What x0 had before the system call that begins this code, of which each instruction stands before the one ahead of it: the value of
/// the register that it was last set from, if that has it still. None: the code does not tell. `registers`: by number, behind the call,
/// which changes x0 alone.
///
/// That nobody jumps to what lies between where x0 is set and the call is assumed: compilers set arguments right before it, behind the last
/// label.
///
/// # Sources
/// Arm Architecture Reference Manual for A-profile, C4.1, "A64 instruction set encoding".
pub fn first_argument(code: &[u32], registers: &[u64]) -> Option<u64> {
    let (&SVC, before) = code.split_first()? else { return None };
    // Registers that have been written since.
    let mut written = 0_u32;
    for &instruction in before {
        let field = |at: u32| instruction >> at & 31;
        if let Some(value) = moved_to_x0(instruction, |register| {
            (written & 1 << register == 0 && register != 0).then(|| registers[register as usize])
        }) {
            return value;
        }
        let targets = match instruction {
            // Data processing, immediate or of registers: one target.
            _ if instruction >> 26 & 7 == 0b100 || instruction >> 25 & 7 == 0b101 => 1 << field(0),
            // ldr of 8 bytes at an offset without sign; ldp of two.
            _ if instruction & 0xffc0_0000 == 0xf940_0000 => 1 << field(0),
            _ if instruction & 0xffc0_0000 == 0xa940_0000 => 1 << field(0) | 1 << field(10),
            // A branch, or nothing that is known: somebody may have jumped to what is behind.
            _ => return None,
        };
        if targets & 1 != 0 {
            return None;
        }
        written |= targets;
    }
    None
}

/// The value that an instruction moves to x0: None, if it moves none; Some(None), if it is not `known`.
fn moved_to_x0(instruction: u32, known: impl Fn(u32) -> Option<u64>) -> Option<Option<u64>> {
    const ZERO: u32 = 31;
    let source = |at: u32| match instruction >> at & 31 {
        ZERO => Some(0),
        register => known(register),
    };
    match instruction {
        // mov x0, x…; mov w0, w…
        _ if instruction & 0xffe0_ffff == 0xaa00_03e0 => Some(source(16)),
        _ if instruction & 0xffe0_ffff == 0x2a00_03e0 => {
            Some(source(16).map(|value| u64::from(value as u32)))
        }
        // sxtw x0, w…
        _ if instruction & 0xffff_fc1f == 0x9340_7c00 => {
            Some(source(5).map(|value| value as i32 as i64 as u64))
        }
        // mov x0, #…; mov w0, #…
        _ if instruction & 0x7fe0_001f == 0x5280_0000 => Some(Some(u64::from(instruction >> 5 & 0xffff))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of code in its order; x0 has the result.
    fn argument(code: &[u32]) -> Option<u64> {
        let code: Vec<u32> = code.iter().rev().copied().collect();
        let registers: Vec<u64> = (0..32).map(|number| 0xffff_ffff_8000_0000 + number).collect();
        first_argument(&code, &registers)
    }

    /// As glibc 2.36 has them.
    #[test]
    fn the_first_argument_is_where_it_came_from() {
        const X19: u64 = 0xffff_ffff_8000_0013;
        let (mov_x0_x19, mov_x8_115, sxtw_x0_w19) = (0xaa13_03e0, 0xd280_0e68, 0x9340_7e60);
        // mov x1, x20; mov x0, x19; mov x2, x22; mov x3, x21; mov x8, #115
        assert_eq!(
            argument(&[0xaa14_03e1, mov_x0_x19, 0xaa16_03e2, 0xaa15_03e3, mov_x8_115, SVC]),
            Some(X19)
        );
        // ldp x1, x3, [sp, #48]; mov x4, #8 between
        assert_eq!(argument(&[mov_x0_x19, 0xa943_0fe1, 0xd280_0104, mov_x8_115, SVC]), Some(X19));
        assert_eq!(argument(&[sxtw_x0_w19, mov_x8_115, SVC]), Some(X19));
        // mov w0, w19; mov x0, #1; mov x0, xzr
        assert_eq!(argument(&[0x2a13_03e0, mov_x8_115, SVC]), Some(0x8000_0013));
        assert_eq!(argument(&[0xd280_0020, mov_x8_115, SVC]), Some(1));
        assert_eq!(argument(&[0xaa1f_03e0, mov_x8_115, SVC]), Some(0));
    }

    #[test]
    fn what_the_code_does_not_tell_is_not_guessed() {
        let (mov_x0_x19, mov_x8_115) = (0xaa13_03e0, 0xd280_0e68);
        for (text, code) in [
            ("no call", &[mov_x0_x19, mov_x8_115][..]),
            ("nothing before", &[mov_x8_115, SVC]),
            ("a branch: cbz w4, …", &[mov_x0_x19, 0x3400_0144, mov_x8_115, SVC]),
            ("mov x19, x20 behind it", &[mov_x0_x19, 0xaa14_03f3, mov_x8_115, SVC]),
            ("add x0, x19, #8", &[0x9100_2260, mov_x8_115, SVC]),
            ("ldp x0, x1, [sp]", &[mov_x0_x19, 0xa940_07e0, mov_x8_115, SVC]),
            ("ldr x0, [sp, #8]", &[mov_x0_x19, 0xf940_07e0, mov_x8_115, SVC]),
            ("mov x0, x0", &[0xaa00_03e0, mov_x8_115, SVC]),
            ("another call", &[mov_x0_x19, SVC, mov_x8_115, SVC]),
        ] {
            assert_eq!(argument(code), None, "{text}");
        }
        assert_eq!(argument(&[]), None);
    }

    #[test]
    fn code_is_read_as_far_as_it_can_be() {
        const PRIVATE_ANONYMOUS: usize = 0x22;
        let page = memlens_inside::page_bytes();
        // SAFETY: a new mapping of two pages, of which then the first and later both cannot be read.
        unsafe {
            let start = syscall(number::MMAP, [0, 2 * page, 3, PRIVATE_ANONYMOUS, usize::MAX, 0]);
            let start = usize::try_from(start).expect("mapped");
            let protect = |access| syscall(number::MPROTECT, [start, page, access, 0, 0, 0]);
            let second = start + page;
            for (back, instruction) in [(2, 1), (1, SVC), (0, 3_u32)] {
                ((second - 4 * back) as *mut u32).write(instruction);
            }
            ((second + 4) as *mut u32).write(4);
            let read = |pc: usize| code_up_to(pc as u64, &mut [0; 3]).to_vec();
            assert_eq!(read(second), [3, SVC, 1], "a call that ends a page");
            assert_eq!(read(second + 2), [], "no instruction's address");
            assert_eq!(protect(0), 0);
            assert_eq!(read(second + 4), [4, 3]);
            assert_eq!(read(second - 4), []);
            assert_eq!(read(0), []);
            assert_eq!(syscall(number::MUNMAP, [start, 2 * page, 0, 0, 0, 0]), 0);
        }
    }
}

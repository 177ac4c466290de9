//! System calls that a signal's handler has ended, and what the code before them tells.

/// `svc #0`.
pub const SVC: u32 = 0xd400_0001;
/// How many instructions before a call are looked at.
const MOST: usize = 12;

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

/// The instructions before `pc` that lie in its page: some, or none.
///
/// # Safety
/// Code at `pc` is about to be executed.
pub unsafe fn code_before<'a>(pc: u64) -> &'a [u32] {
    const PAGE: u64 = 4096;
    let count = (pc % PAGE / 4).min(MOST as u64) as usize;
    let start = pc as usize - 4 * count;
    // SAFETY: code of the page that is about to be executed; instructions are aligned.
    unsafe { core::slice::from_raw_parts(start as *const u32, count) }
}

/// What x0 had before the system call that ends this code: the value of the register that it was last set from, if that has it still.
/// None: the code does not tell. `registers`: by number, behind the call, which changes x0 alone.
///
/// # Sources
/// Arm Architecture Reference Manual for A-profile, C4.1, "A64 instruction set encoding".
pub fn first_argument(code: &[u32], registers: &[u64]) -> Option<u64> {
    let (&SVC, before) = code.split_last()? else { return None };
    // Registers that have been written since.
    let mut written = 0_u32;
    for &instruction in before.iter().rev() {
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
            // Somebody may have jumped to what is behind.
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

    /// x0 has the result.
    fn argument(code: &[u32]) -> Option<u64> {
        let registers: Vec<u64> = (0..32).map(|number| 0xffff_ffff_8000_0000 + number).collect();
        first_argument(code, &registers)
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
}

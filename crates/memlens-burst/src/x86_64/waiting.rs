//! Loops that wait for another thread: whether one goes on is decided by what others write to memory.
//!
//! A loop waits if it has `pause` in it (Intel SDM volume 2B), or if a round leaves everything as it found it: it goes one
//! way, each register that it writes is written before it is read, flags too, and it writes no memory, but for locks that
//! it tries to take: `xchg` and `cmpxchg` of what no load of the round told. Such a loop does the same round after round until a load
//! has another value.
//!
//! # Signal safety
//! Without memory of its own but the given factory's, which has grown when it was first used. Nothing waits, nothing is locked.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
};

use super::trace::Decoding;

/// How far to both sides of an instruction its loop is looked for, in bytes: loops that wait are short.
pub const AROUND: u64 = 64;
/// A `pause` is looked for so far away.
const PAUSE_AROUND: usize = 32;
const PAUSE: [u8; 2] = [0xf3, 0x90];

/// Whether a thread that is about to execute the instruction at `ip` waits in a loop for another one. `code` is what lies around it,
/// [`WAITING_AROUND`](crate::WAITING_AROUND) bytes to both sides if there are so many, `start` the address of its first byte. Takes
/// memory; inside a target there is [`is_waiting`](crate::is_waiting). Cost: some microseconds.
pub fn code_waits(code: &[u8], start: u64, ip: u64) -> bool {
    waits_at(code, start, ip, Some(&mut Decoding::new()))
}

/// The same, with the decoder's memory. Without it, and where no loop is found, only a `pause` nearby tells.
pub fn waits_at(code: &[u8], start: u64, ip: u64, decoding: Option<&mut Decoding>) -> bool {
    let has_pause = |code: &[u8]| code.windows(PAUSE.len()).any(|bytes| bytes == PAUSE);
    let at = (ip - start) as usize;
    let found =
        decoding.and_then(|decoding| Some((decoding.infos(), innermost_loop(&code[at..], ip, start)?)));
    match found {
        Some((infos, (head, end))) => {
            let code = &code[(head - start) as usize..(end - start) as usize];
            has_pause(code) || leaves_all_alike(code, head, infos)
        }
        None => has_pause(&code[at.saturating_sub(PAUSE_AROUND)..code.len().min(at + PAUSE_AROUND)]),
    }
}

/// The first jump back to `ip` or before it: where it leads to, and its own end.
fn innermost_loop(code: &[u8], ip: u64, start: u64) -> Option<(u64, u64)> {
    let mut decoder = Decoder::with_ip(64, code, ip, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let is_jump = match instruction.flow_control() {
            FlowControl::Next => false,
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => true,
            _ => return None,
        };
        if is_jump && (start..=ip).contains(&instruction.near_branch_target()) {
            return Some((instruction.near_branch_target(), instruction.next_ip()));
        }
        if instruction.is_invalid() || instruction.flow_control() == FlowControl::UnconditionalBranch {
            return None;
        }
    }
    None
}

/// Whether a round of the loop that this code at `head` is writes nothing that the next one reads.
fn leaves_all_alike(code: &[u8], head: u64, infos: &mut InstructionInfoFactory) -> bool {
    let end = head + code.len() as u64;
    let mut written = Registers::default();
    // Read before a round has written them, and written at all.
    let (mut needed, mut changed) = (Registers::default(), Registers::default());
    // What the round's loads told.
    let mut loaded = Registers::default();
    let (mut flags_written, mut flags_needed) = (0, 0);
    let mut decoder = Decoder::with_ip(64, code, head, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let is_last = decoder.ip() == end;
        let has_one_way = match instruction.flow_control() {
            FlowControl::Next => !instruction.is_invalid(),
            FlowControl::ConditionalBranch => {
                is_last || !(head..end).contains(&instruction.near_branch_target())
            }
            FlowControl::UnconditionalBranch => is_last,
            _ => false,
        };
        let info = infos.info(&instruction);
        let tries_lock = matches!(instruction.mnemonic(), Mnemonic::Xchg | Mnemonic::Cmpxchg)
            && !loaded.has(instruction.op1_register());
        if !has_one_way || !tries_lock && info.used_memory().iter().any(|memory| writes(memory.access())) {
            return false;
        }
        let used = info.used_registers();
        let tells = !info.used_memory().is_empty()
            || used.iter().any(|used| used.access() != OpAccess::Write && loaded.has(used.register()));
        for used in used.iter().filter(|used| used.access() != OpAccess::Write) {
            // What is written on a condition may keep what was there.
            if !written.has(used.register()) {
                needed.add(used.register().full_register());
            }
        }
        for used in used.iter().filter(|used| writes(used.access())) {
            // Of `al` the rest stays, of `eax` it is set to zero.
            let register = used.register();
            written.add(if register.size() < 4 { register } else { register.full_register() });
            changed.add(register.full_register());
            if tells {
                loaded.add(register.full_register());
            }
        }
        flags_needed |= instruction.rflags_read() & !flags_written;
        flags_written |= instruction.rflags_modified();
    }
    decoder.ip() == end && !changed.meets(&needed) && flags_written & flags_needed == 0
}

fn writes(access: OpAccess) -> bool {
    !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess | OpAccess::None)
}

/// Registers, by iced's numbers.
#[derive(Default)]
struct Registers {
    bits: [u64; 4],
}

impl Registers {
    fn place(register: Register) -> (usize, u64) {
        let number = register as usize;
        (number / 64 % 4, 1 << (number % 64))
    }

    fn add(&mut self, register: Register) {
        let (at, bit) = Self::place(register);
        self.bits[at] |= bit;
    }

    /// Whether it is among them, or the whole that it is a part of.
    fn has(&self, register: Register) -> bool {
        [register, register.full_register()].into_iter().any(|register| {
            let (at, bit) = Self::place(register);
            self.bits[at] & bit != 0
        })
    }

    fn meets(&self, other: &Self) -> bool {
        self.bits.iter().zip(&other.bits).any(|(own, others)| own & others != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;

    /// Of a thread that is `at` bytes into this code.
    fn waits(code: &[u8], at: u64) -> bool {
        code_waits(code, START, START + at)
    }

    #[test]
    fn loops_whose_rounds_are_all_alike_wait() {
        let cases: [(&str, &[u8]); 8] = [
            ("cmp [rip + 8], eax ; je", &[0x39, 0x05, 8, 0, 0, 0, 0x74, 0xf8]),
            ("mov rax, [rdi] ; cmp rax, rdx ; je", &[0x48, 0x8b, 0x07, 0x48, 0x39, 0xd0, 0x74, 0xf8]),
            // h - load(tail) >= size
            (
                "mov rcx, rax ; sub rcx, [rdi + 8] ; cmp rcx, 4095 ; ja",
                &[0x48, 0x89, 0xc1, 0x48, 0x2b, 0x4f, 8, 0x48, 0x81, 0xf9, 0xff, 0x0f, 0, 0, 0x77, 0xf0],
            ),
            ("mov al, [rdi] ; test al, al ; jne out ; jmp", &[0x8a, 0x07, 0x84, 0xc0, 0x75, 2, 0xeb, 0xf8]),
            (
                "mov eax, 1 ; xchg [rdi], eax ; test eax, eax ; jne",
                &[0xb8, 1, 0, 0, 0, 0x87, 0x07, 0x85, 0xc0, 0x75, 0xf5],
            ),
            (
                "xor eax, eax ; lock cmpxchg [rdi], edx ; jne",
                &[0x31, 0xc0, 0xf0, 0x0f, 0xb1, 0x17, 0x75, 0xf8],
            ),
            ("rdtsc ; cmp eax, ebx ; jb", &[0x0f, 0x31, 0x39, 0xd8, 0x72, 0xfa]),
            ("jmp to itself", &[0xeb, 0xfe]),
        ];
        for (text, code) in cases {
            assert!(waits(code, 0), "{text}");
        }
        let (_, code) = cases[2];
        for at in [3, 7, 14] {
            assert!(waits(code, at), "from {at} on");
        }
        assert!(waits_at(&[0x90, 0xf3, 0x90, 0xc3], START, START + 3, None), "pause");
        assert!(!waits_at(&[0xeb, 0xfe], START, START, None), "cannot tell");
        let with_pause = [0xff, 0xc9, 0xf3, 0x90, 0x75, 0xfa];
        assert!(waits(&with_pause, 0), "dec ecx ; pause ; jne");
        assert!(!waits(&[&with_pause[..], &[0xff, 0xc9, 0x75, 0xfc]].concat(), 6), "of the loop before");
    }

    #[test]
    fn loops_that_go_on_by_themselves_do_not_wait() {
        let cases: [(&str, &[u8]); 11] = [
            ("dec ecx ; jne", &[0xff, 0xc9, 0x75, 0xfc]),
            ("mov rax, [rax] ; test rax, rax ; jne", &[0x48, 0x8b, 0x00, 0x48, 0x85, 0xc0, 0x75, 0xf8]),
            ("mov [rdi], eax ; cmp [rsi], eax ; jne", &[0x89, 0x07, 0x39, 0x06, 0x75, 0xfa]),
            ("lock inc [rdi] ; cmp [rdi], eax ; jne", &[0xf0, 0xff, 0x07, 0x39, 0x07, 0x75, 0xf9]),
            ("loop", &[0xe2, 0xfe]),
            ("sbb eax, eax ; cmp eax, ebx ; jne", &[0x19, 0xc0, 0x39, 0xd8, 0x75, 0xfa]),
            ("cmp [rsi], eax ; cmovl eax, ecx ; jne", &[0x39, 0x06, 0x0f, 0x4c, 0xc1, 0x75, 0xf9]),
            ("mov al, [rdi] ; add eax, 256 ; jne", &[0x8a, 0x07, 0x05, 0, 1, 0, 0, 0x75, 0xf7]),
            (
                "mov rax, [rcx] ; lea rdi, [rax + 1] ; lock cmpxchg [rcx], rdi ; jne",
                &[0x48, 0x8b, 0x01, 0x48, 0x8d, 0x78, 0x01, 0xf0, 0x48, 0x0f, 0xb1, 0x39, 0x75, 0xf2],
            ),
            ("mov eax, [rsi] ; xchg [rdi], eax ; jmp", &[0x8b, 0x06, 0x87, 0x07, 0xeb, 0xfa]),
            ("repe cmpsb ; jne", &[0xf3, 0xa6, 0x75, 0xfc]),
        ];
        for (text, code) in cases {
            assert!(!waits(code, 0), "{text}");
        }
        assert!(!waits(&[0x8b, 0x07, 0xff, 0xd0, 0xeb, 0xfa], 0), "mov eax, [rdi] ; call rax ; jmp");
        assert!(!waits(&[0x8b, 0x07, 0xc3, 0xeb, 0xfb], 0), "mov eax, [rdi] ; ret");
        // test eax, eax ; je over ; mov eax, [rdi] ; over: cmp [rsi], ebx ; jne
        let two_ways = [0x85, 0xc0, 0x74, 2, 0x8b, 0x07, 0x39, 0x1e, 0x75, 0xf6];
        assert!(!waits(&two_ways, 0));
        assert!(!waits(&[0x90, 0x90], 0), "no loop");
    }
}

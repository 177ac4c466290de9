//! Which operands are left out of the record, if that is asked for: those that seldom miss.
//!
//! The operation filter of Q. Zhao, R. Rabbah, S. Amarasinghe, L. Rudolph and W.-F. Wong, *Ubiquitous Memory Introspection*,
//! CGO 2007, section 4.1: what refers to the stack by its registers, or to a static address. Deviations:
//!
//! * An operand is left out, not the instruction: `push [rax]` keeps its load.
//! * An operand with an index is recorded, whatever its base: it goes through an array.
//! * rbp counts as a register of the stack only where it points to the stack as the block is translated, until the block writes
//!   it, and where the block sets it from rsp: compilers for x86-64 use it as any other register.
//! * Thread-local variables at a constant distance from `fs` are static, too. Prefetches are recorded whatever they ask for.

use iced_x86::{Instruction, Mnemonic, OpAccess, OpKind, Register, UsedMemory};

use super::assembler::{Gpr, RBP, RSP};
use crate::filter::is_filter_wanted;

/// How far above rsp a frame pointer may be, in bytes: frames are seldom larger.
const FRAME_BYTES: u64 = 1 << 20;
/// What a function uses below rsp (System V ABI AMD64 1.0, section 3.2.2).
const RED_ZONE: u64 = 128;

/// What is left out of a block.
pub struct Filter {
    is_on: bool,
    has_frame_pointer: bool,
}

impl Filter {
    /// Of a block that begins with these values of the registers, by number.
    pub fn new(registers: &[u64; 16]) -> Self {
        let above =
            registers[usize::from(RBP)].wrapping_sub(registers[usize::from(RSP)].wrapping_sub(RED_ZONE));
        Self { is_on: is_filter_wanted(), has_frame_pointer: above < FRAME_BYTES }
    }

    /// Whether anything is.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether the operand is.
    pub fn leaves_out(&self, memory: &UsedMemory) -> bool {
        let seldom_misses = match memory.base() {
            Register::None | Register::RIP | Register::RSP => true,
            Register::RBP => self.has_frame_pointer,
            _ => false,
        };
        self.is_on
            && seldom_misses
            && memory.index() == Register::None
            && memory.access() != OpAccess::NoMemAccess
    }

    /// An instruction has written these registers.
    pub fn written(&mut self, instruction: &Instruction, mut registers: impl Iterator<Item = Gpr>) {
        if registers.any(|register| register == RBP) {
            self.has_frame_pointer = sets_frame_pointer(instruction);
        }
    }
}

/// Whether it is `mov rbp, rsp` or `lea rbp, [rsp + distance]`.
fn sets_frame_pointer(instruction: &Instruction) -> bool {
    let is_of_rbp = instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RBP;
    is_of_rbp
        && match instruction.mnemonic() {
            Mnemonic::Mov => {
                instruction.op1_kind() == OpKind::Register && instruction.op1_register() == Register::RSP
            }
            Mnemonic::Lea => {
                instruction.memory_base() == Register::RSP && instruction.memory_index() == Register::None
            }
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    /// Which memory operands of an instruction are left out, by a filter that is on.
    fn left_out(code: &[u8], has_frame_pointer: bool) -> Vec<bool> {
        let filter = Filter { is_on: true, has_frame_pointer };
        let instruction = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode();
        let mut infos = InstructionInfoFactory::new();
        infos.info(&instruction).used_memory().iter().map(|memory| filter.leaves_out(memory)).collect()
    }

    #[test]
    fn what_goes_by_the_stacks_registers_or_is_fixed_is_left_out() {
        let cases: [(&str, &[u8], bool, &[bool]); 12] = [
            ("mov rax, [rsp + 8]", &[0x48, 0x8b, 0x44, 0x24, 8], false, &[true]),
            ("mov rax, [rsp + rcx*8]", &[0x48, 0x8b, 0x04, 0xcc], false, &[false]),
            ("mov rax, [rbp - 8]", &[0x48, 0x8b, 0x45, 0xf8], true, &[true]),
            ("mov rax, [rbp - 8], rbp points elsewhere", &[0x48, 0x8b, 0x45, 0xf8], false, &[false]),
            ("mov rax, [rip + 8]", &[0x48, 0x8b, 0x05, 8, 0, 0, 0], false, &[true]),
            ("mov rax, [0x100]", &[0x48, 0x8b, 0x04, 0x25, 0, 1, 0, 0], false, &[true]),
            ("mov rax, fs:[0x28]", &[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0], false, &[true]),
            ("mov rax, [rcx*8 + 0x100]", &[0x48, 0x8b, 0x04, 0xcd, 0, 1, 0, 0], false, &[false]),
            ("mov rax, [rax]", &[0x48, 0x8b, 0x00], true, &[false]),
            ("push [rax]", &[0xff, 0x30], false, &[true, false]),
            ("ret", &[0xc3], false, &[true]),
            ("rep movsb", &[0xf3, 0xa4], false, &[false, false]),
        ];
        for (text, code, has_frame_pointer, expected) in cases {
            let mut found = left_out(code, has_frame_pointer);
            found.sort_unstable_by_key(|&is_left_out| !is_left_out);
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn rbp_is_followed() {
        let mut registers = [0; 16];
        (registers[usize::from(RSP)], registers[usize::from(RBP)]) = (0x7fff_0000, 0x7fff_0100);
        let mut filter = Filter::new(&registers);
        assert!(filter.has_frame_pointer && !filter.is_on);
        let mut execute = |code: &[u8]| {
            let instruction = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).decode();
            filter.written(&instruction, [RBP].into_iter());
            filter.has_frame_pointer
        };
        assert!(!execute(&[0x48, 0x8b, 0x28]), "mov rbp, [rax]");
        assert!(execute(&[0x48, 0x89, 0xe5]), "mov rbp, rsp");
        assert!(!execute(&[0x5d]), "pop rbp");
        assert!(execute(&[0x48, 0x8d, 0x6c, 0x24, 8]), "lea rbp, [rsp + 8]");
        assert!(!execute(&[0x48, 0x89, 0xfd]), "mov rbp, rdi");
        registers[usize::from(RBP)] = 0x5555_0000;
        assert!(!Filter::new(&registers).has_frame_pointer, "an address of the heap");
        registers[usize::from(RBP)] = 7;
        assert!(!Filter::new(&registers).has_frame_pointer, "a number");
    }
}

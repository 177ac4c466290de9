//! The few instructions that we write ourselves. None of them changes a flag unless its comment says so.
//!
//! Source of the encodings: Intel SDM volume 2, chapter 2 and the instructions' own pages.

/// A general register by its number in encodings: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 … r15.
pub type Gpr = u8;

pub const RAX: Gpr = 0;
pub const RCX: Gpr = 1;
pub const RDX: Gpr = 2;
pub const RSP: Gpr = 4;
pub const RBP: Gpr = 5;
pub const RDI: Gpr = 7;

/// `base + index · scale + disp`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Address {
    pub base: Option<Gpr>,
    /// Register, and 1, 2, 4 or 8.
    pub index: Option<(Gpr, u8)>,
    pub disp: i32,
}

impl Address {
    pub fn at(base: Gpr, disp: i32) -> Self {
        Self { base: Some(base), index: None, disp }
    }
}

/// A vector register of 16, 32 or 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vector {
    pub number: u8,
    pub bytes: usize,
}

/// Where a 32-bit distance stands that is filled in later, by its place in the code.
#[derive(Clone, Copy, Debug)]
pub struct Gap(pub u64);

/// Writes machine code. Past the end it writes nothing and says so: see [`Assembler::is_full`].
#[derive(Debug)]
pub struct Assembler<'a> {
    code: &'a mut [u8],
    length: usize,
    /// Address at which the first byte will be executed.
    start: u64,
    is_full: bool,
}

impl<'a> Assembler<'a> {
    pub fn new(code: &'a mut [u8], start: u64) -> Self {
        Self { code, length: 0, start, is_full: false }
    }

    /// Address of the next byte.
    pub fn here(&self) -> u64 {
        self.start + self.length as u64
    }

    /// Whether something did not fit, or was too far away to be reached.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    pub fn byte(&mut self, byte: u8) {
        match self.code.get_mut(self.length) {
            Some(place) => {
                *place = byte;
                self.length += 1;
            }
            None => self.is_full = true,
        }
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        match self.code.get_mut(self.length..self.length + bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            None => self.is_full = true,
        }
    }

    fn word(&mut self, value: i32) {
        self.bytes(&value.to_le_bytes());
    }

    fn rex(reg: Gpr, index: Gpr, base: Gpr) -> u8 {
        0x48 | ((reg >> 3) << 2) | ((index >> 3) << 1) | (base >> 3)
    }

    /// `op reg, fs:[offset]` or the other way round, as the opcode says; 64 bits.
    fn thread_op(&mut self, opcode: u8, reg: Gpr, offset: i32) {
        self.bytes(&[0x64, Self::rex(reg, 0, 0), opcode, ((reg & 7) << 3) | 4, 0x25]);
        self.word(offset);
    }

    /// `mov fs:[offset], reg`
    pub fn store_thread(&mut self, reg: Gpr, offset: i32) {
        self.thread_op(0x89, reg, offset);
    }

    /// `mov reg, fs:[offset]`
    pub fn load_thread(&mut self, reg: Gpr, offset: i32) {
        self.thread_op(0x8b, reg, offset);
    }

    /// `cmp reg, fs:[offset]`. Changes the flags.
    pub fn compare_thread(&mut self, reg: Gpr, offset: i32) {
        self.thread_op(0x3b, reg, offset);
    }

    /// `mov qword ptr fs:[offset], value`, sign-extended
    pub fn store_thread_value(&mut self, offset: i32, value: i32) {
        self.bytes(&[0x64, 0x48, 0xc7, 0x04, 0x25]);
        self.word(offset);
        self.word(value);
    }

    /// `jmp qword ptr fs:[offset]`
    pub fn jump_thread(&mut self, offset: i32) {
        self.bytes(&[0x64, 0xff, 0x24, 0x25]);
        self.word(offset);
    }

    /// `op reg, [address]` or the other way round; 64 bits.
    fn memory_op(&mut self, opcode: u8, reg: Gpr, address: Address) {
        let (index, scale) = address.index.unwrap_or((4, 1));
        self.bytes(&[
            Self::rex(reg, if address.index.is_some() { index } else { 0 }, address.base.unwrap_or(0)),
            opcode,
        ]);
        let sib = (scale.trailing_zeros() as u8) << 6 | (index & 7) << 3;
        let reg = (reg & 7) << 3;
        let Some(base) = address.base else {
            self.bytes(&[reg | 4, sib | 5]);
            self.word(address.disp);
            return;
        };
        let short = i8::try_from(address.disp);
        let mode = if short.is_ok() { 0x40 } else { 0x80 };
        if address.index.is_none() && base & 7 != RSP {
            self.byte(mode | reg | (base & 7));
        } else {
            self.bytes(&[mode | reg | 4, sib | (base & 7)]);
        }
        match short {
            Ok(short) => self.byte(short as u8),
            Err(_) => self.word(address.disp),
        }
    }

    /// `lea reg, [address]`
    pub fn lea(&mut self, reg: Gpr, address: Address) {
        self.memory_op(0x8d, reg, address);
    }

    /// `mov reg, [address]`
    pub fn load(&mut self, reg: Gpr, address: Address) {
        self.memory_op(0x8b, reg, address);
    }

    /// `mov [address], reg`
    pub fn store(&mut self, reg: Gpr, address: Address) {
        self.memory_op(0x89, reg, address);
    }

    /// `mov qword ptr [address], value`, sign-extended
    pub fn store_value(&mut self, address: Address, value: i32) {
        self.memory_op(0xc7, 0, address);
        self.word(value);
    }

    /// `mov byte ptr [address], 0`
    pub fn store_zero_byte(&mut self, address: Address) {
        self.memory_op(0xc6, 0, address);
        self.byte(0);
    }

    /// `mov reg32, [address]`, zero-extended
    pub fn load_half(&mut self, reg: Gpr, address: Address) {
        let at = self.length;
        self.memory_op(0x8b, reg, address);
        if let Some(rex) = self.code.get_mut(at) {
            *rex &= !8;
        }
    }

    /// `mov reg, [target]`, relative to the instruction pointer
    pub fn load_relative(&mut self, reg: Gpr, target: u64) {
        self.relative(&[Self::rex(reg, 0, 0), 0x8b, ((reg & 7) << 3) | 5], target);
    }

    /// `test reg, value`, sign-extended. Changes the flags.
    pub fn test(&mut self, reg: Gpr, value: i32) {
        self.bytes(&[Self::rex(0, 0, reg), 0xf7, 0xc0 | reg & 7]);
        self.word(value);
    }

    /// Compares `reg` with the 8 bytes at `target`, relative to the instruction pointer. Changes the flags.
    pub fn compare_relative(&mut self, reg: Gpr, target: u64) {
        self.relative(&[Self::rex(reg, 0, 0), 0x3b, 0x05 | (reg & 7) << 3], target);
    }

    /// Compares `value` with the byte at `target`, relative to the instruction pointer. Changes the flags.
    pub fn compare_byte_relative(&mut self, value: u8, target: u64) {
        // The distance counts from behind the value.
        self.relative(&[0x80, 0x3d], target.wrapping_sub(1));
        self.byte(value);
    }

    /// `movsxd reg, dword ptr [address]`
    pub fn load_signed_half(&mut self, reg: Gpr, address: Address) {
        self.memory_op(0x63, reg, address);
    }

    /// Prefix VEX of an instruction in map 0F that has no second source and no index: `reg` and `rm` as they are numbered, whether
    /// it is of 32 bytes, and its implied prefix (0: none, 1: 66, 2: F3).
    fn vex(&mut self, reg: u8, rm: u8, is_long: bool, implied: u8) {
        let not = |bit: u8| (bit & 1) ^ 1;
        self.bytes(&[0xc4, not(reg >> 3) << 7 | 1 << 6 | not(rm >> 3) << 5 | 1]);
        self.byte(0x78 | u8::from(is_long) << 2 | implied);
    }

    /// `vmovdqu [base + disp], vector`. Needs AVX, of registers from 16 on and such of 64 bytes AVX-512.
    pub fn store_vector(&mut self, vector: Vector, base: Gpr, disp: i32) {
        let Vector { number, bytes } = vector;
        if number < 16 && bytes < 64 {
            self.vex(number, base, bytes == 32, 2);
        } else {
            // EVEX: as VEX, but the fifth bit of the number, and W of vmovdqu64.
            let not = |bit: u8| (bit & 1) ^ 1;
            let length = (bytes / 32) as u8;
            self.bytes(&[
                0x62,
                not(number >> 3) << 7 | 1 << 6 | not(base >> 3) << 5 | not(number >> 4) << 4 | 1,
            ]);
            self.bytes(&[0xfe, length << 5 | 8]);
        }
        self.bytes(&[0x7f, 0x80 | (number & 7) << 3 | base & 7]);
        if base & 7 == RSP {
            self.byte(0x24);
        }
        self.word(disp);
    }

    /// `vmovmskps reg, vector`, or `vmovmskpd`: the sign bits of elements of 4 bytes, or of 8 if they are wide. Needs AVX.
    pub fn signs(&mut self, reg: Gpr, vector: Vector, are_wide: bool) {
        self.vex(reg, vector.number, vector.bytes == 32, u8::from(are_wide));
        self.bytes(&[0x50, 0xc0 | (reg & 7) << 3 | vector.number & 7]);
    }

    /// `kmovw reg, mask`. Needs AVX-512.
    pub fn mask_bits(&mut self, reg: Gpr, mask: u8) {
        self.vex(reg, mask, false, 0);
        self.bytes(&[0x93, 0xc0 | (reg & 7) << 3 | mask & 7]);
    }

    /// `lea reg, [target]`, relative to the instruction pointer where that reaches
    pub fn set_address(&mut self, reg: Gpr, target: u64) {
        if target < 1 << 31 || !reaches(self.here() + 7, target) {
            self.set(reg, target);
        } else {
            self.relative(&[Self::rex(reg, 0, 0), 0x8d, ((reg & 7) << 3) | 5], target);
        }
    }

    /// `mov reg, value`
    pub fn set(&mut self, reg: Gpr, value: u64) {
        match i32::try_from(value as i64) {
            Ok(small) => {
                self.bytes(&[0x48 | (reg >> 3), 0xc7, 0xc0 | (reg & 7)]);
                self.word(small);
            }
            Err(_) => {
                self.bytes(&[0x48 | (reg >> 3), 0xb8 | (reg & 7)]);
                self.bytes(&value.to_le_bytes());
            }
        }
    }

    /// `mov to, from`
    pub fn copy(&mut self, to: Gpr, from: Gpr) {
        self.bytes(&[0x48 | (to >> 3) | ((from >> 3) << 2), 0x89, 0xc0 | ((from & 7) << 3) | (to & 7)]);
    }

    /// `push reg`
    pub fn push(&mut self, reg: Gpr) {
        self.bytes(&[0x40 | (reg >> 3), 0x50 | (reg & 7)]);
    }

    /// `rcx = hash of reg`: 16 bits of its CRC-32C. Needs SSE 4.2.
    pub fn hash_to_rcx(&mut self, reg: Gpr) {
        self.bytes(&[0xb9, 0, 0, 0, 0]);
        self.bytes(&[0xf2, 0x48 | (reg >> 3), 0x0f, 0x38, 0xf1, 0xc8 | (reg & 7)]);
        self.bytes(&[0x0f, 0xb7, 0xc9]);
    }

    /// The arithmetic flags into rax (`lahf; seto al`). Does not change them.
    pub fn save_flags_in_rax(&mut self) {
        self.bytes(&[0x9f, 0x0f, 0x90, 0xc0]);
    }

    /// And back (`add al, 127; sahf`).
    pub fn restore_flags_from_rax(&mut self) {
        self.bytes(&[0x04, 0x7f, 0x9e]);
    }

    fn relative(&mut self, opcode: &[u8], target: u64) -> Gap {
        self.bytes(opcode);
        let gap = Gap(self.here());
        let distance = target.wrapping_sub(gap.0 + 4) as i64;
        match i32::try_from(distance) {
            Ok(distance) => self.word(distance),
            Err(_) => {
                self.is_full = true;
                self.word(0);
            }
        }
        gap
    }

    /// `jmp target`
    pub fn jump(&mut self, target: u64) -> Gap {
        self.relative(&[0xe9], target)
    }

    /// `jmp target`, so that another thread may change the distance while it is executed: it lies in one aligned
    /// word.
    pub fn jump_aligned(&mut self, target: u64) -> Gap {
        while !(self.here() + 1).is_multiple_of(4) {
            self.byte(0x90);
        }
        self.jump(target)
    }

    /// `jmp` to the next instruction, until [`crate::cache::Cache::link`] changes that.
    pub fn jump_aligned_on(&mut self) -> Gap {
        let gap = self.jump_aligned(self.here());
        self.fill(gap, self.here());
        gap
    }

    /// Conditional jump of condition `code` (0 … 15), to be filled in.
    pub fn jump_if(&mut self, code: u8) -> Gap {
        self.bytes(&[0x0f, 0x80 | code]);
        let gap = Gap(self.here());
        self.word(0);
        gap
    }

    /// `jrcxz`, over what is written until [`Self::end_short`].
    pub fn jump_short_if_rcx_is_zero(&mut self) -> u64 {
        self.bytes(&[0xe3, 0]);
        self.here()
    }

    /// The short jump that ended at `from` leads here.
    pub fn end_short(&mut self, from: u64) {
        let distance = self.here() - from;
        let place = (from - self.start) as usize - 1;
        match (i8::try_from(distance), self.code.get_mut(place)) {
            (Ok(distance), Some(byte)) => *byte = distance as u8,
            _ => self.is_full = true,
        }
    }

    /// The jump leads to `target`.
    pub fn fill(&mut self, gap: Gap, target: u64) {
        let place = (gap.0 - self.start) as usize;
        let distance = i32::try_from(target.wrapping_sub(gap.0 + 4) as i64);
        match (distance, self.code.get_mut(place..place + 4)) {
            (Ok(distance), Some(word)) => word.copy_from_slice(&distance.to_le_bytes()),
            _ => self.is_full = true,
        }
    }

    /// Changes the 32 bits at `place`.
    pub fn change_word(&mut self, place: u64, value: i32) {
        let place = (place - self.start) as usize;
        match self.code.get_mut(place..place + 4) {
            Some(word) => word.copy_from_slice(&value.to_le_bytes()),
            None => self.is_full = true,
        }
    }
}

/// Whether a distance of 32 bits leads from one to the other, with room to spare.
pub fn reaches(from: u64, to: u64) -> bool {
    (to.wrapping_sub(from) as i64).unsigned_abs() < 0x7f00_0000
}

#[cfg(test)]
mod tests {
    use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Register};

    use super::*;

    fn assembled(write: impl FnOnce(&mut Assembler<'_>)) -> Instruction {
        let mut code = [0x90; 32];
        let mut assembler = Assembler::new(&mut code, 0);
        write(&mut assembler);
        let length = assembler.here() as usize;
        let instruction = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE).decode();
        assert_eq!(instruction.len(), length, "{instruction:?}");
        instruction
    }

    #[test]
    fn vectors_are_stored_whatever_their_number() {
        let cases = [
            (0, 16, 15, Code::VEX_Vmovdqu_xmmm128_xmm, Register::XMM0),
            (9, 32, 12, Code::VEX_Vmovdqu_ymmm256_ymm, Register::YMM9),
            (17, 16, 3, Code::EVEX_Vmovdqu64_xmmm128_k1z_xmm, Register::XMM17),
            (30, 32, 5, Code::EVEX_Vmovdqu64_ymmm256_k1z_ymm, Register::YMM30),
            (8, 64, 14, Code::EVEX_Vmovdqu64_zmmm512_k1z_zmm, Register::ZMM8),
        ];
        for (number, bytes, base, code, register) in cases {
            let found = assembled(|assembler| assembler.store_vector(Vector { number, bytes }, base, 200));
            assert_eq!((found.code(), found.op1_register()), (code, register));
            let address = (found.memory_base().number(), found.memory_index(), found.memory_displacement64());
            assert_eq!(address, (usize::from(base), Register::None, 200));
        }
    }

    #[test]
    fn masks_are_read_from_vectors_and_mask_registers() {
        let found = assembled(|assembler| assembler.signs(14, Vector { number: 2, bytes: 32 }, false));
        assert_eq!((found.code(), found.op1_register()), (Code::VEX_Vmovmskps_r32_ymm, Register::YMM2));
        assert_eq!(found.op0_register(), Register::R14D);
        let found = assembled(|assembler| assembler.signs(3, Vector { number: 12, bytes: 16 }, true));
        assert_eq!((found.code(), found.op1_register()), (Code::VEX_Vmovmskpd_r32_xmm, Register::XMM12));
        let found = assembled(|assembler| assembler.mask_bits(9, 3));
        assert_eq!((found.code(), found.op1_register()), (Code::VEX_Kmovw_r32_kr, Register::K3));
        assert_eq!(found.op0_register(), Register::R9D);
        let address = Address { base: Some(6), index: None, disp: 40 };
        let found = assembled(|assembler| assembler.load_signed_half(15, address));
        assert_eq!((found.code(), found.op0_register()), (Code::Movsxd_r64_rm32, Register::R15));
    }
}

//! Gathers and scatters: an address for each element of a vector, used where its mask bit is set.
//!
//! Which elements happen is recorded as a word of its own, then the addresses of all, so that each execution has as many words:
//!
//! ```text
//!  vmovmskps r2, mask ; mov [r1], r2             of AVX-512 kmovw
//!  vmovdqu [r1 + …], index                       where the addresses will be
//!  movsxd r2, [r1 + …] ; lea r2, [base + r2 · scale + disp] ; mov [r1 + 8], r2      for each
//! ```
//!
//! Addresses are written over indices that were used already: those of 4 bytes lie in the upper half of the addresses' room.

use iced_x86::{Instruction, OpKind, Register, UsedMemory};

use super::assembler::{Gpr, Vector};
use super::trace::number_of;

/// The most elements that an instruction has.
pub const MOST_ELEMENTS: usize = 16;

/// Which elements happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// Those whose sign bit is set in this vector …
    Signs(Vector),
    /// … of elements of 8 bytes …
    WideSigns(Vector),
    /// … or whose bit is set in this mask register.
    Bits(u8),
}

/// A gather or scatter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// Which happen.
    pub mask: Mask,
    /// How many elements.
    pub elements: usize,
    /// Where the indices are …
    pub index: Vector,
    /// … and the bytes of each: 4 or 8.
    pub index_bytes: usize,
    /// The rest of the addresses.
    pub base: Option<Gpr>,
    /// See [`Gather::base`].
    pub scale: u8,
    /// See [`Gather::base`].
    pub disp: i32,
}

impl Gather {
    /// Of an instruction's operand. None: it is no such operand, or relative to a segment.
    pub fn of(instruction: &Instruction, memory: &UsedMemory) -> Option<Self> {
        let index_bytes = memory.vsib_size() as usize;
        if index_bytes == 0 || matches!(memory.segment(), Register::FS | Register::GS) {
            return None;
        }
        let base = match memory.base() {
            Register::None => None,
            register => Some(number_of(register)?),
        };
        let vector_of = |operand: u32| {
            let is_register =
                operand < instruction.op_count() && instruction.op_kind(operand) == OpKind::Register;
            is_register.then(|| vector(instruction.op_register(operand))).flatten()
        };
        // A gather is written to the first operand, a scatter takes the second.
        let data = vector_of(0).or_else(|| vector_of(1))?;
        let element_bytes = memory.memory_size().size();
        let mask = match instruction.op_mask() {
            Register::None if element_bytes == 8 => Mask::WideSigns(vector_of(2)?),
            Register::None => Mask::Signs(vector_of(2)?),
            register => Mask::Bits(register.number() as u8),
        };
        let index = vector(memory.index())?;
        let elements = (index.bytes / index_bytes).min(data.bytes / element_bytes.max(1));
        (elements <= MOST_ELEMENTS).then_some(Self {
            mask,
            elements,
            index,
            index_bytes,
            base,
            scale: memory.scale() as u8,
            disp: i32::try_from(memory.displacement() as i64).ok()?,
        })
    }

    /// Words that it takes.
    pub fn words(&self) -> usize {
        1 + self.elements
    }

    /// Where the indices are put, from where the addresses will begin, in bytes.
    pub fn indices_at(&self) -> i32 {
        ((8 - self.index_bytes) * self.elements) as i32
    }
}

fn vector(register: Register) -> Option<Vector> {
    register.is_vector_register().then(|| Vector { number: register.number() as u8, bytes: register.size() })
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    fn gather(code: &[u8]) -> Option<Gather> {
        let instruction = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode();
        assert_eq!(instruction.len(), code.len());
        let mut infos = InstructionInfoFactory::new();
        let memories = infos.info(&instruction).used_memory();
        assert_eq!(memories.len(), 1);
        Gather::of(&instruction, &memories[0])
    }

    fn register(number: u8, bytes: usize) -> Vector {
        Vector { number, bytes }
    }

    #[test]
    fn as_many_elements_as_index_and_data_have() {
        // vpgatherdd ymm0, [rax + ymm1*4], ymm2
        let found = gather(&[0xc4, 0xe2, 0x6d, 0x90, 0x04, 0x88]).expect("a gather");
        let expected = Gather {
            mask: Mask::Signs(register(2, 32)),
            elements: 8,
            index: register(1, 32),
            index_bytes: 4,
            base: Some(0),
            scale: 4,
            disp: 0,
        };
        assert_eq!(found, expected);
        // vpgatherdq xmm0, [rax + xmm1*4], xmm2
        let found = gather(&[0xc4, 0xe2, 0xe9, 0x90, 0x04, 0x88]).expect("a gather");
        let wide = Mask::WideSigns(register(2, 16));
        assert_eq!(found, Gather { mask: wide, elements: 2, index: register(1, 16), ..expected });
        assert_eq!(found.indices_at(), 8);
        // vgatherqps xmm0, [r12 + ymm9*8 - 8], xmm2
        let found = gather(&[0xc4, 0x82, 0x6d, 0x93, 0x44, 0xcc, 0xf8]).expect("a gather");
        let narrow = Mask::Signs(register(2, 16));
        let (index, base) = (register(9, 32), Some(12));
        let wanted = Gather { mask: narrow, elements: 4, index, index_bytes: 8, base, scale: 8, disp: -8 };
        assert_eq!((found, found.words(), found.indices_at()), (wanted, 5, 0));
        // vpgatherdd ymm0, fs:[rax + ymm1*4], ymm2
        assert_eq!(gather(&[0x64, 0xc4, 0xe2, 0x6d, 0x90, 0x04, 0x88]), None);
    }

    #[test]
    fn masks_of_avx_512_are_registers_of_their_own() {
        // vpgatherdd zmm0{k1}, [rax + zmm1*4]
        let found = gather(&[0x62, 0xf2, 0x7d, 0x49, 0x90, 0x04, 0x88]).expect("a gather");
        assert_eq!((found.mask, found.elements, found.index), (Mask::Bits(1), 16, register(1, 64)));
        // vscatterdpd [rax + ymm17*4 + 64]{k2}, zmm3
        let found = gather(&[0x62, 0xf2, 0xfd, 0x42, 0xa2, 0x5c, 0x88, 8]).expect("a scatter");
        assert_eq!((found.mask, found.elements, found.index), (Mask::Bits(2), 8, register(17, 32)));
        assert_eq!((found.index_bytes, found.disp), (4, 64));
    }
}

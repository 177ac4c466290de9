//! AArch64: what A64 instructions do to registers and memory.

pub(crate) mod decode;
#[cfg(test)]
mod objdump_tests;
pub(crate) mod operands;
#[cfg(test)]
mod operands_tests;
#[cfg(test)]
mod tests;
mod vectors;

use crate::destination::Register;
use crate::function_code::{AddressExpression, MemoryOperand};
use crate::instructions::{Constant, Instructions, Known, Made, Place, Transfer, Width};
use decode::{Decoded, Effect, decode};
use operands::Operands;

/// Bytes of an instruction.
pub(crate) const INSTRUCTION_BYTES: u64 = 4;

/// The words of some code, with their addresses. Bytes behind the last whole one are none.
pub(crate) fn words(code: &[u8], start: u64) -> impl Iterator<Item = (u64, u32)> {
    let (words, _) = code.as_chunks::<4>();
    (0..)
        .zip(words)
        .map(move |(at, word)| (start.wrapping_add(at * INSTRUCTION_BYTES), u32::from_le_bytes(*word)))
}

/// An instruction of AArch64, as [`crate::ControlFlow`] has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct A64Instruction {
    /// Its address (svma).
    pub pc: u64,
    /// It.
    pub word: u32,
}

impl A64Instruction {
    /// Those of some code. Bytes behind the last whole one are none.
    pub(crate) fn all(code: &[u8], start: u64) -> impl Iterator<Item = Self> {
        words(code, start).map(|(pc, word)| Self { pc, word })
    }

    pub(crate) fn decoded(self) -> Decoded {
        decode(self.word, self.pc)
    }

    /// The registers of the instruction, which was decoded to this.
    pub(crate) fn operands(self, decoded: &Decoded) -> Operands {
        operands::operands(self.word, self.pc, decoded)
    }

    /// The second general-purpose register that a load of a pair fills.
    pub(crate) fn second_loaded(self) -> Option<Register> {
        let is_pair = self.word & 0x3c40_0000 == 0x2840_0000;
        unless_zero((self.word >> 10 & 31) as u8).filter(|_| is_pair)
    }

    /// Whether it is what assemblers fill gaps with: `nop`, or zeros.
    pub(crate) fn is_padding(self) -> bool {
        const NOP: u32 = 0xd503_201f;
        self.word == NOP || self.word == 0
    }
}

/// The cell that a stub of the procedure linkage table jumps through, if code at `start` is one (ELF for the Arm 64-bit
/// Architecture, 2023Q3, section 6.4): `adrp x16, PAGE; ldr x17, [x16, #IN_PAGE]`, perhaps behind `bti c`.
pub(crate) fn linkage_cell(code: &[u8], start: u64) -> Option<u64> {
    const BTI_C: u32 = 0xd503_245f;
    let mut instructions = A64Instruction::all(code, start).skip_while(|one| one.word == BTI_C);
    let (page, load) = (instructions.next()?.decoded(), instructions.next()?.decoded());
    match (page.effect, load.effect, load.accesses[0]) {
        (Effect::Value { to: 16, value }, Effect::Load { to: 17, second: None }, Some(access))
            if access.address.base == Some(Register(16)) && access.address.index.is_none() =>
        {
            Some(value.wrapping_add_signed(access.address.disp))
        }
        _ => None,
    }
}

/// The instructions of a function.
pub(crate) struct Code {
    start: u64,
    words: Vec<u32>,
}

impl Code {
    /// `code` has its first byte at address (svma) `start`.
    pub(crate) fn new(code: &[u8], start: u64) -> Self {
        Self { start, words: words(code, start).map(|(_, word)| word).collect() }
    }

    /// Where each instruction is.
    pub(crate) fn places(&self) -> Vec<Place> {
        let place = |position: usize| {
            let (pc, decoded) = (self.pc(position), self.decoded(position)?);
            Some(Place { pc, next: pc.wrapping_add(INSTRUCTION_BYTES), transfer: decoded.transfer })
        };
        (0..self.words.len()).map_while(place).collect()
    }

    fn pc(&self, position: usize) -> u64 {
        self.start.wrapping_add(position as u64 * INSTRUCTION_BYTES)
    }

    fn decoded(&self, position: usize) -> Option<Decoded> {
        Some(decode(*self.words.get(position)?, self.pc(position)))
    }

    fn effect(&self, position: usize) -> Effect {
        self.decoded(position).map_or(Effect::None, |decoded| decoded.effect)
    }
}

/// The number of a register, as [`Effect`] has it.
fn number(register: Register) -> Option<u8> {
    u8::try_from(register.0).ok().filter(|&number| number < 32)
}

fn numbered(number: u8) -> Register {
    Register(u16::from(number))
}

/// As [`numbered`], where 31 is no register.
fn unless_zero(number: u8) -> Option<Register> {
    (number != 31).then(|| numbered(number))
}

impl Instructions for Code {
    fn operands(&self, position: usize) -> Vec<MemoryOperand> {
        let Some(decoded) = self.decoded(position) else { return Vec::new() };
        let pc = self.pc(position);
        (0..)
            .zip(decoded.accesses.into_iter().flatten())
            .map(|(operand, access)| MemoryOperand {
                pc,
                operand,
                reads: access.reads,
                writes: access.writes,
                size_bytes: access.size_bytes,
                address: access.address,
            })
            .collect()
    }

    fn writes(&self, position: usize, register: Register) -> bool {
        let Some((decoded, register)) = self.decoded(position).zip(number(register)) else { return true };
        decoded.written & 1 << register != 0
    }

    fn constant_change(&self, position: usize, register: Register, width: Width) -> Option<i64> {
        let (decoded, register) = self.decoded(position).zip(number(register))?;
        if decoded.written & 1 << register == 0 {
            return Some(0);
        }
        match (decoded.write_back, decoded.effect) {
            // What is loaded does not go to the base.
            (Some((base, by)), _) if base == register => by,
            (_, Effect::Plus { to, from, by, is_wide }) => {
                (to == register && from == register && (is_wide || width == Width::Low)).then_some(by)
            }
            _ => None,
        }
    }

    fn computed(&self, position: usize, register: Register) -> Option<AddressExpression> {
        let to = number(register)?;
        match self.effect(position) {
            Effect::Plus { to: target, from, by, is_wide: true } if target == to => {
                Some(AddressExpression { base: Some(numbered(from)), disp: by, ..AddressExpression::NOTHING })
            }
            Effect::Sum { to: target, base, index, shift: shift @ 0..=7, extension } if target == to => {
                Some(AddressExpression {
                    base: Some(numbered(base)),
                    index: Some(numbered(index)),
                    scale: 1 << shift,
                    index_extension: extension,
                    ..AddressExpression::NOTHING
                })
            }
            _ => None,
        }
    }

    fn loaded(&self, position: usize) -> [Option<Register>; 2] {
        match self.effect(position) {
            Effect::Load { to, second } => [unless_zero(to), second.and_then(unless_zero)],
            _ => [None, None],
        }
    }

    fn made(&self, position: usize, register: Register) -> Made {
        let Some(register) = number(register) else { return Made::Lost };
        match self.effect(position) {
            // What sp was made of is the frame; what else is made of sp, an address in it.
            Effect::Plus { to, from: 31, by, is_wide: true } if to == register => {
                Made::Frame(AddressExpression {
                    base: Some(Register::SP),
                    disp: by,
                    ..AddressExpression::NOTHING
                })
            }
            Effect::Plus { to, from, is_wide: true, .. }
            | Effect::Minus { to, from }
            | Effect::Aligned { to, from }
                if to == register =>
            {
                Made::From(numbered(from))
            }
            Effect::Value { to, value } if to == register => Made::Fixed(value),
            // A register that is scaled, or of which a part counts, is an index.
            Effect::Sum { to, base, index, shift: 0, extension } if to == register => match extension {
                crate::IndexExtension::None => Made::Either(numbered(base), numbered(index)),
                _ => Made::From(numbered(base)),
            },
            Effect::Sum { to, base, .. } if to == register => Made::From(numbered(base)),
            Effect::Choice { to, first, second } if to == register => {
                match (unless_zero(first), unless_zero(second)) {
                    (Some(first), Some(second)) => Made::Either(first, second),
                    (Some(one), None) | (None, Some(one)) => Made::From(one),
                    (None, None) => Made::Lost,
                }
            }
            Effect::Load { to, .. } if to == register => Made::Loaded(0),
            Effect::Load { second: Some(to), .. } if to == register => Made::Loaded(8),
            _ => Made::Lost,
        }
    }

    fn makes_constants(&self) -> bool {
        true
    }

    fn constant(&self, position: usize, register: Register) -> Option<Constant> {
        let register = number(register)?;
        match self.effect(position) {
            Effect::Value { to, value } if to == register => Some(Constant::Is(Known::Fixed(value))),
            Effect::ThreadPointer { to } if to == register => Some(Constant::Is(Known::ThreadPointer(0))),
            Effect::Plus { to, from, by, is_wide: true } if to == register => {
                Some(Constant::Plus(numbered(from), by))
            }
            _ => None,
        }
    }

    /// Those that processors make one operation of have no memory operands: nothing depends on it here.
    fn is_fused(&self, _before: usize, _jump: usize) -> bool {
        false
    }

    fn is_repeated(&self, position: usize) -> bool {
        // CPY and SET: those of the memory whose progress is not that of one instruction.
        self.decoded(position).is_some_and(|decoded| {
            decoded.transfer == Transfer::Next
                && decoded.accesses[0].is_some_and(|access| access.writes && access.size_bytes == 0)
                && decoded.written != 0
        })
    }

    fn is_padding(&self, position: usize) -> bool {
        let pc = self.pc(position);
        self.words.get(position).is_some_and(|&word| A64Instruction { pc, word }.is_padding())
    }
}

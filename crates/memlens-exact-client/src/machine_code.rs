//! The machine code of the few forms of instructions that instrumentation consists of.
//!
//! DynamoRIO encodes any instruction by trying its opcode's templates one after the other, and does so two or three
//! times for each that a client inserts: once for every question about its length, once to emit it. That was a quarter
//! of what a program's thread did while its code was new.
//!
//! Nothing here knows DynamoRIO: general registers are numbered as the processor numbers them. Encodings: Intel 64 and
//! IA-32 Architectures Software Developer's Manual, volume 2, chapter 2 (ModR/M, SIB, REX).

/// A general register, 0 (rax) to 15 (r15).
pub type Register = u8;

/// A place in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// A segment override prefix; 0 = none.
    pub segment_prefix: u8,
    /// The base register.
    pub base: Option<Register>,
    /// The index register, any but rsp, and its factor: 1, 2, 4 or 8.
    pub index: Option<(Register, u8)>,
    /// What is added.
    pub displacement: i32,
}

/// A register or a place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register.
    Register(Register),
    /// Memory.
    Place(Place),
}

/// An instruction. `is_wide`: 64 bits, otherwise 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// `mov to, from`
    Load { to: Register, from: Operand, is_wide: bool },
    /// `mov [to], from`
    Store { to: Place, from: Register, is_wide: bool },
    /// `mov [to], value`, sign-extended if wide
    StoreImmediate { to: Place, value: i32, is_wide: bool },
    /// `lea to, [of]`
    Address { to: Register, of: Place },
    /// `mov to, value`, all 64 bits
    Immediate { to: Register, value: u64 },
    /// `cmp left, [right]`, 64 bits
    Compare { left: Register, right: Place },
}

/// The most bytes that an encoding here has: prefix, REX, opcode, ModR/M, SIB, displacement, immediate.
pub const MAX_BYTES: usize = 13;

/// The bytes of an instruction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Code {
    bytes: [u8; MAX_BYTES],
    len: usize,
}

impl Code {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

impl Instruction {
    /// Its machine code.
    pub fn encode(&self) -> Code {
        let mut code = Code::default();
        match *self {
            Self::Load { to, from, is_wide } => code.push_operation(0x8b, to, &from, is_wide),
            Self::Store { to, from, is_wide } => {
                code.push_operation(0x89, from, &Operand::Place(to), is_wide)
            }
            Self::StoreImmediate { to, value, is_wide } => {
                code.push_operation(0xc7, 0, &Operand::Place(to), is_wide);
                code.push(&value.to_le_bytes());
            }
            Self::Address { to, of } => code.push_operation(0x8d, to, &Operand::Place(of), true),
            Self::Compare { left, right } => code.push_operation(0x3b, left, &Operand::Place(right), true),
            Self::Immediate { to, value } => match (u32::try_from(value), i32::try_from(value as i64)) {
                (Ok(value), _) => {
                    // A 32-bit move clears the upper half.
                    if to >= 8 {
                        code.push(&[REX | REX_B]);
                    }
                    code.push(&[0xb8 | (to & 7)]);
                    code.push(&value.to_le_bytes());
                }
                (_, Ok(value)) => {
                    code.push_operation(0xc7, 0, &Operand::Register(to), true);
                    code.push(&value.to_le_bytes());
                }
                _ => {
                    code.push(&[REX | REX_W | extension(to, REX_B), 0xb8 | (to & 7)]);
                    code.push(&value.to_le_bytes());
                }
            },
        }
        code
    }
}

const REX: u8 = 0x40;
const REX_W: u8 = 8;
const REX_R: u8 = 4;
const REX_X: u8 = 2;
const REX_B: u8 = 1;

/// ModR/M and SIB: "a SIB byte follows", as r/m; "no index", as index; "no base", as base with mode 0.
const SIB: u8 = 4;
const NO_INDEX: u8 = 4;
const NO_BASE: u8 = 5;

/// `bit`, if the register is one of the upper eight.
fn extension(register: Register, bit: u8) -> u8 {
    if register >= 8 { bit } else { 0 }
}

impl Code {
    /// Prefixes, `opcode` and its operands; `register` is what stands in ModR/M's reg field.
    fn push_operation(&mut self, opcode: u8, register: Register, operand: &Operand, is_wide: bool) {
        let rex = extension(register, REX_R) | if is_wide { REX_W } else { 0 };
        let reg = (register & 7) << 3;
        match *operand {
            Operand::Register(other) => {
                self.push_opcode(rex | extension(other, REX_B), opcode);
                self.push(&[0xc0 | reg | (other & 7)]);
            }
            Operand::Place(Place { segment_prefix, base, index, displacement }) => {
                if segment_prefix != 0 {
                    self.push(&[segment_prefix]);
                }
                let rex = rex
                    | base.map_or(0, |base| extension(base, REX_B))
                    | index.map_or(0, |(index, _)| extension(index, REX_X));
                self.push_opcode(rex, opcode);
                let Some(base) = base else {
                    // Without a base there is always a SIB byte, or it would be relative to rip.
                    self.push(&[reg | SIB, scaled_index(index) | NO_BASE]);
                    self.push(&displacement.to_le_bytes());
                    return;
                };
                let short = i8::try_from(displacement);
                let mode = match short {
                    // rbp and r13 with mode 0 mean something else.
                    Ok(0) if base & 7 != NO_BASE => 0,
                    Ok(_) => 1 << 6,
                    Err(_) => 2 << 6,
                };
                if index.is_some() || base & 7 == SIB {
                    self.push(&[mode | reg | SIB, scaled_index(index) | (base & 7)]);
                } else {
                    self.push(&[mode | reg | (base & 7)]);
                }
                match short {
                    Ok(_) if mode == 0 => {}
                    Ok(short) => self.push(&short.to_le_bytes()),
                    Err(_) => self.push(&displacement.to_le_bytes()),
                }
            }
        }
    }

    fn push_opcode(&mut self, rex: u8, opcode: u8) {
        if rex != 0 {
            self.push(&[REX | rex]);
        }
        self.push(&[opcode]);
    }
}

fn scaled_index(index: Option<(Register, u8)>) -> u8 {
    index.map_or(NO_INDEX << 3, |(index, factor)| (factor.trailing_zeros() as u8) << 6 | (index & 7) << 3)
}

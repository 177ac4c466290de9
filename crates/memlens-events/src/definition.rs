//! Definitions: what a block, a module, a thread is.
//!
//! On the wire a definition is a 8-byte prefix (`kind: u32`, `payload length: u32`, little endian)
//! and a payload padded to 8 bytes.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use memlens_types::{AccessAttr, AccessKind};

/// What one word of a block's record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WordRole {
    /// The address of an access.
    Address = 0,
    /// The address at which a string instruction starts, before it runs; size = one element.
    RepStart = 1,
    /// The same register after the string instruction: the element count is the distance between
    /// this and the last `RepStart`, divided by the element's size.
    RepEnd = 2,
    /// An AVX-512 mask for the preceding `Address`: as many elements are accessed as bits are set.
    /// The word's size is that of one element.
    Mask = 3,
    /// The n-th integer argument of an allocation function (n = the word's size field).
    Argument = 4,
    /// The value an allocation function returns.
    ReturnValue = 5,
}

/// One word of a block's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// What the word holds.
    pub role: WordRole,
    /// Distance of the instruction from the block's start, in bytes.
    pub pc_offset: u16,
    /// Which of the block's instructions it is, from 0; those from 255 on say 255.
    pub instruction: u8,
    /// Kind and size of the access (`Address`, `RepStart`); size alone for the others.
    pub attr: AccessAttr,
}

/// Properties of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockFlags(pub u16);

impl BlockFlags {
    /// The block ends in a call; `slot_word` is the word of its push.
    pub const CALL: Self = Self(1);
    /// The block ends in a return; `slot_word` is the word of its pop.
    pub const RETURN: Self = Self(2);
    /// The block begins at an allocation function; `alloc_function` says which.
    pub const ALLOC_ENTRY: Self = Self(4);
    /// Some words are no plain addresses.
    pub const IRREGULAR: Self = Self(8);
    /// The last word is a [`WordRole::ReturnValue`].
    pub const RETURNS_VALUE: Self = Self(32);
    /// Some references of the block could not be recorded.
    pub const INCOMPLETE: Self = Self(16);

    /// Whether all flags of `other` are set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Adds the flags of `other`.
    pub fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// What running a block means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDefinition {
    /// The block's id (1 ≤ id < [`BLOCK_ID_LIMIT`](crate::BLOCK_ID_LIMIT)).
    pub id: u32,
    /// Address of its first instruction in the process.
    pub pc: u64,
    /// Bytes of machine code.
    pub code_bytes: u16,
    /// Instructions.
    pub instructions: u16,
    /// See [`BlockFlags`].
    pub flags: BlockFlags,
    /// For calls and returns: which word holds the address of the return address.
    pub slot_word: u8,
    /// For allocation entries: the number given with the address.
    pub alloc_function: u16,
    /// The id of the module that its code lies in; 0: in none.
    pub module: u32,
    /// The words of its record, in order.
    pub words: Vec<Word>,
    /// Bytes of each of its instructions, in order. Together they are `code_bytes`, if these fit there.
    pub lengths: Vec<u8>,
}

/// A module (ELF image) in the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleDefinition {
    /// Number, not 0, unique in the process.
    pub id: u32,
    /// Lowest mapped address.
    pub start: u64,
    /// End of the last mapped byte.
    pub end: u64,
    /// Added to an ELF-stated address to get the process's.
    pub load_bias: u64,
    /// The file, as the process sees it; empty or bracketed for the vDSO.
    pub path: String,
}

/// A thread that got a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadDefinition {
    /// Which slot of the segment.
    pub slot: u32,
    /// The kernel's thread id.
    pub tid: u32,
}

/// A decoded definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definition {
    /// A block.
    Block(BlockDefinition),
    /// A module was loaded. The collector waits for the answer (see `segment`).
    Module(ModuleDefinition),
    /// A thread took a slot.
    Thread(ThreadDefinition),
}

/// The code of a definition on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum DefinitionKind {
    Block = 1,
    Module = 2,
    Thread = 3,
}

/// Why bytes are no definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The payload ends before its fields do.
    Truncated {
        /// Bytes there are.
        length: usize,
    },
    /// No definition has this code.
    UnknownKind(u32),
    /// No word has this role.
    UnknownRole(u8),
    /// A path is not UTF-8.
    BadPath,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { length } => write!(f, "definition ends after {length} bytes"),
            Self::UnknownKind(kind) => write!(f, "unknown kind of definition {kind}"),
            Self::UnknownRole(role) => write!(f, "unknown role of a word {role}"),
            Self::BadPath => f.write_str("module path is not UTF-8"),
        }
    }
}

impl core::error::Error for DecodeError {}

impl Definition {
    /// Its code on the wire.
    pub fn kind(&self) -> DefinitionKind {
        match self {
            Self::Block(_) => DefinitionKind::Block,
            Self::Module(_) => DefinitionKind::Module,
            Self::Thread(_) => DefinitionKind::Thread,
        }
    }

    /// Appends the payload (without prefix and padding) to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Block(block) => {
                out.extend(block.id.to_le_bytes());
                out.extend(block.flags.0.to_le_bytes());
                out.extend(block.alloc_function.to_le_bytes());
                out.extend(block.pc.to_le_bytes());
                out.extend(block.code_bytes.to_le_bytes());
                out.extend(block.instructions.to_le_bytes());
                out.push(block.slot_word);
                out.push(block.words.len() as u8);
                out.extend((block.lengths.len() as u16).to_le_bytes());
                out.extend(block.module.to_le_bytes());
                for word in &block.words {
                    out.extend(word.attr.0.to_le_bytes());
                    out.extend(word.pc_offset.to_le_bytes());
                    out.push(word.role as u8);
                    out.push(word.instruction);
                }
                out.extend(&block.lengths);
            }
            Self::Module(module) => {
                for field in [u64::from(module.id), module.start, module.end, module.load_bias] {
                    out.extend(field.to_le_bytes());
                }
                out.extend(module.path.as_bytes());
            }
            Self::Thread(thread) => {
                out.extend(thread.slot.to_le_bytes());
                out.extend(thread.tid.to_le_bytes());
            }
        }
    }

    /// Reads a payload.
    pub fn decode(kind: u32, payload: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = Fields { bytes: payload, at: 0 };
        if kind == DefinitionKind::Block as u32 {
            let id = fields.u32()?;
            let flags = BlockFlags(fields.u16()?);
            let alloc_function = fields.u16()?;
            let pc = fields.u64()?;
            let code_bytes = fields.u16()?;
            let instructions = fields.u16()?;
            let [slot_word, count] = fields.take::<2>()?;
            let length_count = usize::from(fields.u16()?);
            let module = fields.u32()?;
            let mut words = Vec::with_capacity(usize::from(count));
            for _ in 0..count {
                let attr = AccessAttr(fields.u32()?);
                let pc_offset = fields.u16()?;
                let [role, instruction] = fields.take::<2>()?;
                words.push(Word { role: WordRole::from_code(role)?, pc_offset, instruction, attr });
            }
            let lengths = fields.bytes(length_count)?.to_vec();
            Ok(Self::Block(BlockDefinition {
                id,
                pc,
                code_bytes,
                instructions,
                flags,
                slot_word,
                alloc_function,
                module,
                words,
                lengths,
            }))
        } else if kind == DefinitionKind::Module as u32 {
            let id = fields.u64()? as u32;
            let (start, end, load_bias) = (fields.u64()?, fields.u64()?, fields.u64()?);
            let path = core::str::from_utf8(&payload[fields.at..]).map_err(|_| DecodeError::BadPath)?;
            Ok(Self::Module(ModuleDefinition { id, start, end, load_bias, path: path.into() }))
        } else if kind == DefinitionKind::Thread as u32 {
            Ok(Self::Thread(ThreadDefinition { slot: fields.u32()?, tid: fields.u32()? }))
        } else {
            Err(DecodeError::UnknownKind(kind))
        }
    }
}

impl WordRole {
    fn from_code(code: u8) -> Result<Self, DecodeError> {
        [Self::Address, Self::RepStart, Self::RepEnd, Self::Mask, Self::Argument, Self::ReturnValue]
            .get(usize::from(code))
            .copied()
            .ok_or(DecodeError::UnknownRole(code))
    }
}

impl Word {
    /// A word that holds the address of an access, by the block's first instruction.
    pub fn address(kind: AccessKind, size_bytes: u32, pc_offset: u16) -> Self {
        let attr = AccessAttr::new(kind, size_bytes);
        Self { role: WordRole::Address, pc_offset, instruction: 0, attr }
    }
}

struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let truncated = DecodeError::Truncated { length: self.bytes.len() };
        let field = self.bytes.get(self.at..self.at + count).ok_or(truncated)?;
        self.at += count;
        Ok(field)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut field = [0; N];
        field.copy_from_slice(self.bytes(N)?);
        Ok(field)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.take().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn samples() -> Vec<Definition> {
        vec![
            Definition::Block(BlockDefinition {
                id: 77,
                pc: 0x7fff_1234_5678,
                code_bytes: 31,
                instructions: 9,
                flags: BlockFlags(BlockFlags::CALL.0 | BlockFlags::IRREGULAR.0),
                slot_word: 2,
                alloc_function: 5,
                module: 3,
                words: vec![
                    Word::address(AccessKind::Load, 8, 0),
                    Word {
                        role: WordRole::Mask,
                        pc_offset: 4,
                        instruction: 3,
                        attr: AccessAttr::new(AccessKind::Load, 4),
                    },
                    Word::address(AccessKind::Store, 8, 26),
                ],
                lengths: vec![4, 1, 2, 3, 4, 5, 3, 4, 5],
            }),
            Definition::Module(ModuleDefinition {
                id: 3,
                start: 0x400000,
                end: 0x500000,
                load_bias: 0,
                path: "/usr/bin/true".into(),
            }),
            Definition::Thread(ThreadDefinition { slot: 4, tid: 4711 }),
        ]
    }

    #[test]
    fn definitions_round_trip() {
        for definition in samples() {
            let mut bytes = Vec::new();
            definition.encode(&mut bytes);
            assert_eq!(Definition::decode(definition.kind() as u32, &bytes), Ok(definition));
        }
    }

    #[test]
    fn every_truncation_is_an_error_or_a_shorter_path() {
        for definition in samples() {
            let mut bytes = Vec::new();
            definition.encode(&mut bytes);
            for length in 0..bytes.len() {
                match Definition::decode(definition.kind() as u32, &bytes[..length]) {
                    Err(DecodeError::Truncated { length: said }) => assert_eq!(said, length),
                    Ok(Definition::Module(module)) => assert!(module.path.len() < "/usr/bin/true".len()),
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(Definition::decode(9, &[]), Err(DecodeError::UnknownKind(9)));
    }
}

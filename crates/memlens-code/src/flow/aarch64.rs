//! A result's way through AArch64 code.

use super::{Flow, Machine, Target, Value, plus_constant};
use crate::aarch64::decode::{Access, Decoded, Effect, decode};
use crate::aarch64::{INSTRUCTION_BYTES, words};
use crate::architecture::Architecture;
use crate::destination::{Base, Register};
use crate::function_code::{AddressExpression, FunctionCode, IndexExtension};
use crate::instructions::{Known, Place, Transfer};

/// AArch64. Vectors are not followed: pairs are stored from general-purpose registers.
pub(super) struct AArch64;

/// An instruction, with what it was decoded from.
pub(super) struct Instruction {
    word: u32,
    pc: u64,
    decoded: Decoded,
}

impl Machine for AArch64 {
    type Instruction = Instruction;
    const ARCHITECTURE: Architecture = Architecture::AArch64;

    fn decode(&self, code: &[u8], at: u64) -> Option<(Instruction, Place)> {
        let (pc, word) = words(code, at).next()?;
        let decoded = decode(word, pc);
        let place = Place { pc, next: pc.wrapping_add(INSTRUCTION_BYTES), transfer: decoded.transfer };
        Some((Instruction { word, pc, decoded }, place))
    }

    /// A register may hold the address of a group of variables (GCC's section anchors), or of an array that a loop keeps.
    fn begin(&self, flow: &mut Flow<'_>, code: &[u8], start: u64) {
        let function = FunctionCode::new(Architecture::AArch64, code, start);
        let Some(position) = function.position(flow.start) else { return };
        for register in (0..Self::ARCHITECTURE.register_count()).map(Register) {
            if Self::ARCHITECTURE.is_callee_saved(register) {
                flow.registers[usize::from(register.0)] = match function.known_before(position, register) {
                    Some(Known::Fixed(address)) => Value::Fixed(address),
                    Some(Known::ThreadPointer(offset)) => Value::Thread(offset),
                    None => continue,
                };
            }
        }
    }

    fn jumps_if_not_null(&self, flow: &mut Flow<'_>, instruction: &Instruction) -> bool {
        match instruction.decoded.effect {
            // CBNZ, not CBZ
            Effect::Test { register } => {
                instruction.word & 1 << 24 != 0 && matches!(flow.get(u16::from(register)), Value::Result(_))
            }
            // B.NE
            _ => instruction.word & 0xff00_001f == 0x5400_0001 && flow.null_test,
        }
    }

    fn target(&self, flow: &Flow<'_>, instruction: &Instruction) -> Option<Target> {
        match instruction.decoded.transfer {
            Transfer::Jump(target) | Transfer::Call(Some(target)) => Some(Target::Code(target)),
            // BLR and BR of what was loaded from a cell
            Transfer::Call(None) | Transfer::IndirectJump | Transfer::Leave
                if instruction.word >> 25 == 0x6b =>
            {
                match flow.get((instruction.word >> 5 & 31) as u16) {
                    Value::Loaded { base: Base::Global { svma }, plus: 0, indexed: false } => {
                        Some(Target::Cell(svma))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn step(&mut self, flow: &mut Flow<'_>, instruction: &Instruction) {
        let Instruction { pc, decoded, .. } = instruction;
        let (pc, next) = (*pc, pc.wrapping_add(INSTRUCTION_BYTES));
        if decoded.sets_flags {
            flow.null_test = false;
        }
        let address = |access: &Access, behind: i64| AddressExpression {
            disp: access.address.disp.wrapping_add(behind),
            ..access.address
        };
        // What registers hold afterwards, as the state before says.
        let mut made: [Option<(u8, Value)>; 2] = [None, None];
        match (decoded.effect, decoded.accesses[0]) {
            (Effect::Store { from, second }, Some(access)) => {
                let values = [Some(from), second].map(|from| from.map(|from| held_unless_zero(flow, from)));
                for (value, behind) in values.into_iter().flatten().zip([0, 8]) {
                    flow.store(&address(&access, behind), pc, value);
                }
            }
            (Effect::Load { to, second }, Some(access)) => {
                made[0] = Some((to, flow.load(&access.address, pc)));
                made[1] = second.map(|to| (to, flow.load(&address(&access, 8), pc)));
            }
            (Effect::Test { register }, _) => {
                flow.null_test = matches!(flow.get(u16::from(register)), Value::Result(_));
            }
            (effect, _) => {
                made[0] = value_of(flow, effect, instruction.word);
                for access in decoded.accesses.iter().flatten().filter(|access| access.writes) {
                    // What is not stored whole is something unknown afterwards.
                    for behind in (0..i64::from(access.size_bytes.max(1))).step_by(8) {
                        flow.store(&address(access, behind), pc, Value::Unknown);
                    }
                }
            }
        }
        let back = decoded.write_back.map(|(base, by)| {
            let value = flow.get(u16::from(base));
            (base, by.map_or(Value::Unknown, |by| plus_constant(value, by)))
        });
        let loads_31 = matches!(decoded.effect, Effect::Load { .. });
        for register in (0..32u8).filter(|register| decoded.written & 1 << register != 0) {
            let is_made = |(to, _): &(u8, Value)| *to == register && !(loads_31 && register == 31);
            let found = back.filter(|back| back.0 == register);
            let found = found.or_else(|| made.into_iter().flatten().find(is_made));
            flow.set(u16::from(register), found.map_or(Value::Unknown, |found| found.1), pc, next);
        }
    }
}

/// What a register that is stored holds; the one that is zero nothing of interest.
fn held_unless_zero(flow: &Flow<'_>, register: u8) -> Value {
    if register == 31 { Value::Unknown } else { flow.get(u16::from(register)) }
}

/// The register that an instruction computes, and its value.
fn value_of(flow: &Flow<'_>, effect: Effect, word: u32) -> Option<(u8, Value)> {
    let held = |register: u8| flow.get(u16::from(register));
    let indexed = |value: Value| match value {
        Value::Loaded { base, plus, .. } => Value::Loaded { base, plus, indexed: true },
        _ => Value::Unknown,
    };
    match effect {
        Effect::Plus { to, from, by, is_wide: true } => Some((to, plus_constant(held(from), by))),
        Effect::Value { to, value } => Some((to, Value::Fixed(value))),
        Effect::ThreadPointer { to } => Some((to, Value::Thread(0))),
        Effect::Sum { to, base, index, shift: 0, extension: IndexExtension::None } => {
            let value = match (held(base), held(index)) {
                (value @ Value::Loaded { .. }, Value::Unknown)
                | (Value::Unknown, value @ Value::Loaded { .. }) => indexed(value),
                // Of two loaded values nothing tells which is the pointer.
                _ => Value::Unknown,
            };
            Some((to, value))
        }
        // What is scaled, or a part of a register, is an index.
        Effect::Sum { to, base, .. } => Some((to, indexed(held(base)))),
        // SXTW of a result that was declared as `int`
        _ if word & 0xffff_fc00 == 0x9340_7c00 => {
            let value = held((word >> 5 & 31) as u8);
            matches!(value, Value::Result(_)).then_some(((word & 31) as u8, value))
        }
        _ => None,
    }
}

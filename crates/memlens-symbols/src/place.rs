//! Where a variable is, as far as a location expression says it without running the program.

use gimli::{AttributeValue, Dwarf, Expression, Operation, Unit};

use crate::dwarf_file::Bytes;

/// The base that an offset counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In memory, at the canonical frame address plus an offset.
    Cfa(i64),
    /// In memory, at a register's value plus an offset.
    Based { register: u16, offset: i64 },
    /// In a register.
    Register(u16),
    /// In memory whose address is in memory at the canonical frame address plus an offset.
    BehindCfa(i64),
    /// In memory whose address is in memory at a register's value plus an offset.
    BehindBased { register: u16, offset: i64 },
    /// At a fixed address, computed, constant, or anything else that is not part of the frame.
    Elsewhere,
}

/// A part of a variable: `size` bytes (None: all of it) from byte `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) size: Option<u64>,
    pub(crate) place: Place,
}

/// The frame base of a function (`DW_AT_frame_base`) as far as it is simple.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrameBase {
    /// Ranges of pcs and the base there; one range over everything for a plain expression.
    pub(crate) parts: Vec<(u64, u64, Place)>,
}

impl FrameBase {
    pub(crate) fn read<'a>(
        dwarf: &Dwarf<Bytes<'a>>,
        unit: &Unit<Bytes<'a>>,
        value: AttributeValue<Bytes<'a>>,
    ) -> Self {
        let parts = locations(dwarf, unit, value, (0, u64::MAX))
            .into_iter()
            .filter_map(|(start, end, expression)| {
                let pieces = pieces(unit, &expression, None);
                match pieces.as_slice() {
                    // `DW_OP_reg6` as a frame base means the register's value itself.
                    [Piece { place: Place::Register(register), .. }] => {
                        Some((start, end, Place::Based { register: *register, offset: 0 }))
                    }
                    [Piece { place: place @ (Place::Cfa(_) | Place::Based { .. }), .. }] => {
                        Some((start, end, *place))
                    }
                    _ => None,
                }
            })
            .collect();
        Self { parts }
    }
}

/// The expressions of a location attribute with the range of pcs each holds for. A plain
/// expression holds for `scope`.
pub(crate) fn locations<'a>(
    dwarf: &Dwarf<Bytes<'a>>,
    unit: &Unit<Bytes<'a>>,
    value: AttributeValue<Bytes<'a>>,
    scope: (u64, u64),
) -> Vec<(u64, u64, Expression<Bytes<'a>>)> {
    if let Some(expression) = value.exprloc_value() {
        return vec![(scope.0, scope.1, expression)];
    }
    let mut list = Vec::new();
    if let Ok(Some(mut iter)) = dwarf.attr_locations(unit, value) {
        while let Ok(Some(entry)) = iter.next() {
            if entry.range.begin < entry.range.end {
                list.push((entry.range.begin, entry.range.end, entry.data));
            }
        }
    }
    list
}

/// The parts of a variable that `expression` describes. `base` is what `DW_OP_fbreg` counts from.
pub(crate) fn pieces<'a>(
    unit: &Unit<Bytes<'a>>,
    expression: &Expression<Bytes<'a>>,
    base: Option<Place>,
) -> Vec<Piece> {
    let mut operations = expression.operations(unit.encoding());
    let mut pieces = Vec::new();
    let mut place: Option<Place> = None;
    // On top of the place: `DW_OP_consts`, before it is added.
    let mut constant: Option<i64> = None;
    let mut start = 0u64;
    while let Ok(Some(operation)) = operations.next() {
        let by = constant.take();
        place = match operation {
            Operation::Plus => by.map_or(Some(Place::Elsewhere), |by| Some(shifted(place, by))),
            Operation::Minus => {
                by.map_or(Some(Place::Elsewhere), |by| Some(shifted(place, by.wrapping_neg())))
            }
            _ if by.is_some() => Some(Place::Elsewhere),
            Operation::SignedConstant { value } if place.is_some() => {
                constant = Some(value);
                place
            }
            Operation::UnsignedConstant { value } if place.is_some() => {
                constant = Some(value as i64);
                place
            }
            Operation::FrameOffset { offset } => Some(shifted(base, offset)),
            Operation::CallFrameCFA => Some(Place::Cfa(0)),
            Operation::Register { register } => Some(Place::Register(register.0)),
            Operation::RegisterOffset { register, offset, base_type } if base_type.0 == 0 => {
                Some(Place::Based { register: register.0, offset })
            }
            Operation::PlusConstant { value } => Some(shifted(place, value as i64)),
            Operation::Deref { base_type, space: false, .. } if base_type.0 == 0 => Some(match place {
                Some(Place::Cfa(offset)) => Place::BehindCfa(offset),
                Some(Place::Based { register, offset }) => Place::BehindBased { register, offset },
                _ => Place::Elsewhere,
            }),
            Operation::Nop => place,
            Operation::Piece { size_in_bits, bit_offset } => {
                let size = size_in_bits / 8;
                if let Some(place) = place
                    && size_in_bits % 8 == 0
                    && bit_offset.unwrap_or(0) == 0
                {
                    pieces.push(Piece { start, size: Some(size), place });
                }
                start = start.saturating_add(size);
                None
            }
            // A value on the stack, an implicit value, arithmetic: not a place in
            // the frame. Operations that follow keep it so.
            _ => Some(Place::Elsewhere),
        };
        // Arithmetic on two operands would need a stack; the first operand's place must not
        // survive it. `Elsewhere` is sticky for that reason.
        if matches!(place, Some(Place::Elsewhere)) {
            let mut rest_has_pieces = false;
            while let Ok(Some(operation)) = operations.next() {
                if let Operation::Piece { size_in_bits, .. } = operation {
                    start = start.saturating_add(size_in_bits / 8);
                    rest_has_pieces = true;
                    break;
                }
            }
            place = None;
            if !rest_has_pieces {
                break;
            }
        }
    }
    if let Some(place) = place.filter(|_| constant.is_none()) {
        pieces.push(Piece { start, size: None, place });
    }
    pieces
}

fn shifted(place: Option<Place>, by: i64) -> Place {
    match place {
        Some(Place::Cfa(offset)) => Place::Cfa(offset.wrapping_add(by)),
        Some(Place::Based { register, offset }) => Place::Based { register, offset: offset.wrapping_add(by) },
        _ => Place::Elsewhere,
    }
}

//! Fields of the structures that objects consist of, and which operands touch them.

use std::sync::Arc;

use memlens_types::Counts;
use rustc_hash::FxHashMap;

use crate::{Cell, CodeIx, FieldIx, ObjectIx, Profile};

/// The structure that an object's memory consists of, once or again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Element {
    /// Its type as the source spells it, e.g. `struct node`.
    pub type_name: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A part of the structures that an object consists of: a field, or bytes that have no name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Field {
    /// The object.
    pub object: ObjectIx,
    /// Where it begins, in bytes from the structure's beginning, or from the block's where no structure is known.
    /// `None`: everything that is in no field, such as padding, or what lies behind the structure in its block.
    pub offset_bytes: Option<u64>,
    /// Its size in bytes; of bytes without a name the largest access seen.
    pub size_bytes: Option<u64>,
    /// Its path in the structure: `left`, `pos.x`, `items[].key`. `None`: bytes without a name.
    pub name: Option<Arc<str>>,
    /// Spelling of its type.
    pub type_name: Option<Arc<str>>,
}

/// How often an operand was seen at a field. Not all of its accesses are looked at: the counts of an operand's cells
/// with the field's object are divided among its fields in these proportions, and where all that was seen of an
/// operand and an object is one field, that is not divided at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldUse {
    /// The operand.
    pub code: CodeIx,
    /// The field.
    pub field: FieldIx,
    /// Accesses seen there.
    pub seen: u64,
}

/// A field, and where its part of the whole begins and ends, from 0 to 1.
type Part = (FieldIx, f64, f64);

/// Which part of a cell's counts belongs to which field.
#[derive(Clone, Debug, Default)]
pub struct FieldShares {
    parts: FxHashMap<(CodeIx, ObjectIx), Vec<Part>>,
}

impl FieldShares {
    /// Of a profile. Linear in its field uses.
    pub fn of(profile: &Profile) -> Self {
        let mut seen: FxHashMap<(CodeIx, ObjectIx), Vec<(FieldIx, f64)>> = FxHashMap::default();
        for part in &profile.field_uses {
            if let Some(field) = profile.fields.get(part.field.index()) {
                seen.entry((part.code, field.object)).or_default().push((part.field, part.seen as f64));
            }
        }
        let divided = |uses: Vec<(FieldIx, f64)>| {
            let whole: f64 = uses.iter().map(|(_, seen)| seen).sum();
            let mut until = 0.0;
            let parts = uses.iter().filter(|_| whole > 0.0).map(|&(field, seen)| {
                let from = until;
                until += seen;
                (field, from / whole, until / whole)
            });
            parts.collect()
        };
        Self { parts: seen.into_iter().map(|(key, uses)| (key, divided(uses))).collect() }
    }

    /// Whether nothing is known of any field.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// A cell's counts by field: together the whole cell, or nothing if no access of its operand to its object was
    /// looked at.
    pub fn pieces(&self, cell: &Cell) -> impl Iterator<Item = (FieldIx, Counts)> {
        let counts = cell.counts.get();
        let parts = self.parts.get(&(cell.code, cell.object)).map(Vec::as_slice).unwrap_or_default();
        parts.iter().map(move |&(field, from, until)| (field, counts.piece(from, until)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_divided_in_the_proportions_seen_and_nothing_is_lost() {
        let field = |object, offset| Field { object, offset_bytes: Some(offset), ..Field::default() };
        let (code, object) = (CodeIx(0), ObjectIx(0));
        let seen = |field, seen| FieldUse { code, field: FieldIx(field), seen };
        let profile = Profile {
            fields: vec![field(object, 0), field(object, 8), field(ObjectIx(1), 0)],
            field_uses: vec![seen(0, 2), seen(1, 1), seen(2, 1)],
            ..Profile::default()
        };
        let shares = FieldShares::of(&profile);
        let cell = |object: u32, loads| {
            let counts = Counts { loads, l1_load_misses: 7, ..Counts::default() };
            Cell { code, object: ObjectIx(object), counts: counts.into(), ..Cell::default() }
        };
        let pieces: Vec<_> =
            shares.pieces(&cell(0, 100)).map(|(field, counts)| (field, counts.loads)).collect();
        assert_eq!(pieces, [(FieldIx(0), 67), (FieldIx(1), 33)]);
        let misses: u64 = shares.pieces(&cell(0, 100)).map(|(_, counts)| counts.l1_load_misses).sum();
        assert_eq!(misses, 7);
        let pieces: Vec<_> =
            shares.pieces(&cell(1, 100)).map(|(field, counts)| (field, counts.loads)).collect();
        assert_eq!(pieces, [(FieldIx(2), 100)], "one field: not divided");
        assert_eq!(shares.pieces(&cell(2, 100)).count(), 0, "an object without fields");
    }
}

//! Which fields of structures instructions touch.
//!
//! ```text
//!  offsets in objects, a few of each operand ──► Offsets ──┐
//!                                                          ├──► rows of `fields` and `field_uses`
//!  debug information: what an object consists of ──────────┘
//! ```
//!
//! An operand mostly touches one field of one structure, whichever element that is: then the offsets seen, taken modulo
//! the structure's size, are all alike, and the field's counts are those of the operand. Operands that go through
//! whole structures (copies, vector loops) have several; their counts are divided in the proportions seen. An access
//! that spans several fields is that of the one where it begins.
//!
//! Knows neither collectors nor terminals.
#![forbid(unsafe_code)]

mod common;
mod layout;
mod offsets;

use std::collections::BTreeMap;

use memlens_profile::{CodeIx, Element, Field, FieldIx, FieldUse, Object, ObjectIx, Profile};
use memlens_symbols::{Content, Module, TypeRef};
use memlens_types::ObjectKind;

pub use crate::layout::Layouts;
use crate::layout::{Place, Start, Structure};
pub use crate::offsets::{Offset, Offsets};

/// Blocks of which no type is known are taken for structures if they are not larger, on average: their bytes are told
/// apart by offset. Units: bytes.
const MOST_BYTES_UNTYPED: u64 = 256;
/// The same of what lies behind a structure in its block.
const MOST_BYTES_BEHIND: u64 = 4096;
/// With more places than these without a name an object is a buffer, and no structure.
const MOST_UNNAMED: usize = 64;

/// What is known of an object's type.
#[derive(Clone, Copy, Debug)]
pub enum TypeOf<'a> {
    /// It has to do with a type.
    Known {
        /// The caller's number of the module, the same for all profiles that are made with the same [`Layouts`].
        number: u32,
        /// The module.
        module: &'a Module,
        /// The type.
        type_ref: TypeRef,
        /// Whether it is what a variable of this type holds or points to, and not the variable.
        is_behind: bool,
    },
    /// Nothing.
    Unknown,
}

/// An operand was seen at an offset of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The operand.
    pub code: CodeIx,
    /// The object.
    pub object: ObjectIx,
    /// Bytes from the beginning of the block or variable.
    pub offset_bytes: u64,
    /// How often.
    pub times: u64,
    /// Whether as one of the elements that a string instruction went through: it says nothing of what is there.
    pub is_run: bool,
}

/// Fills `profile.fields`, `profile.field_uses` and its objects' `element`. The objects and code must be there.
/// `seen` is sorted by object, and of one object by operand. Cost: linear in what was seen, and a look at the debug
/// information for each type and field that `layouts` lacks.
pub fn add_fields<'a>(
    profile: &mut Profile,
    seen: &[Seen],
    layouts: &mut Layouts,
    type_of: &dyn Fn(ObjectIx) -> TypeOf<'a>,
) {
    debug_assert!(seen.is_sorted_by_key(|one| (one.object, one.code)));
    let mut uses: Vec<FieldUse> = Vec::new();
    for seen in seen.chunk_by(|one, next| one.object == next.object) {
        let object = seen[0].object;
        let Some(row) = profile.objects.get(object.index()) else { continue };
        let held = type_of(object);
        let found = match (held, layouts.content(&held)) {
            (TypeOf::Known { number, module, .. }, Content::Structures(element)) => {
                let mut layout = layouts.structure(number, module, &element);
                let Some(found) = in_structures(profile, row, &mut layout, seen) else { continue };
                let element = Element { type_name: element.type_name, bytes: element.size_bytes };
                profile.objects[object.index()].element = Some(element);
                found
            }
            (_, Content::Bytes) if row.kind == ObjectKind::Heap && is_small(row, MOST_BYTES_UNTYPED) => {
                in_bytes(profile, seen)
            }
            _ => continue,
        };
        let first = profile.fields.len();
        profile.fields.extend(found.fields.into_iter().map(|field| Field { object, ..field }));
        uses.extend(found.uses.into_iter().map(|(code, field, seen)| {
            let field = FieldIx::from_index(first + field);
            FieldUse { code, field, seen }
        }));
    }
    uses.sort_unstable_by_key(|one| (one.code, one.field));
    uses.shrink_to_fit();
    profile.field_uses = uses;
}

/// An object's fields in the order of their places, and who was seen at which of them how often: a row for each pair.
#[derive(Default)]
struct Found {
    fields: Vec<Field>,
    uses: Vec<(CodeIx, usize, u64)>,
}

impl Found {
    /// Fields by what they are known by, in that order, with everything seen there.
    fn of(fields: BTreeMap<Place, (Field, Vec<&Seen>)>) -> Self {
        let mut found = Self::default();
        for (field, seen) in fields.into_values() {
            found.uses.extend(seen.iter().map(|one| (one.code, found.fields.len(), one.times)));
            found.fields.push(field);
        }
        found.uses.sort_unstable();
        found.uses.dedup_by(|next, kept| {
            let is_same = (next.0, next.1) == (kept.0, kept.1);
            if is_same {
                kept.2 += next.2;
            }
            is_same
        });
        found
    }
}

/// None: accesses do not go to the structure's fields, so it is not what is there.
fn in_structures(
    profile: &Profile,
    object: &Object,
    layout: &mut Structure<'_>,
    seen: &[Seen],
) -> Option<Found> {
    let start = Start::of(profile, object, layout, seen)?;
    let mut fields: BTreeMap<Place, (Field, Vec<&Seen>)> =
        layout.whole().iter().map(|field| (Place::of(field), (field.clone(), Vec::new()))).collect();
    for one in seen {
        let mut place = start.place(one.offset_bytes);
        let mut field = Field::default();
        if let Place::Structure(offset) = place
            && let Some(known) = layout.field_at(offset)
        {
            (place, field) = (Place::of(&known), known);
        } else if let Place::Behind(offset) = place
            && is_small(object, MOST_BYTES_BEHIND)
        {
            field.offset_bytes = Some(offset);
        } else {
            place = Place::Elsewhere;
        }
        fields.entry(place).or_insert_with(|| (field, Vec::new())).1.push(one);
    }
    sizes_of_unnamed(profile, &mut fields);
    join_unnamed(&mut fields);
    Some(Found::of(fields))
}

/// Where no type is known: each offset is a field. A buffer has none.
fn in_bytes(profile: &Profile, seen: &[Seen]) -> Found {
    let mut fields: BTreeMap<Place, (Field, Vec<&Seen>)> = BTreeMap::new();
    for one in seen {
        let field = Field { offset_bytes: Some(one.offset_bytes), ..Field::default() };
        fields.entry(Place::Behind(one.offset_bytes)).or_insert_with(|| (field, Vec::new())).1.push(one);
    }
    if fields.len() > MOST_UNNAMED {
        return Found::default();
    }
    sizes_of_unnamed(profile, &mut fields);
    Found::of(fields)
}

/// Bytes without a name are as long as the largest access that was seen there.
fn sizes_of_unnamed(profile: &Profile, fields: &mut BTreeMap<Place, (Field, Vec<&Seen>)>) {
    for (place, (field, seen)) in fields {
        if matches!(place, Place::Behind(_)) {
            let sizes = seen.iter().filter_map(|one| profile.code.get(one.code.index()));
            field.size_bytes = sizes.map(|code| u64::from(code.size_bytes)).max();
        }
    }
}

/// Many places without a name are one.
fn join_unnamed<'s>(fields: &mut BTreeMap<Place, (Field, Vec<&'s Seen>)>) {
    let unnamed: Vec<Place> =
        fields.keys().filter(|place| matches!(place, Place::Behind(_))).cloned().collect();
    if unnamed.len() <= MOST_UNNAMED {
        return;
    }
    let seen: Vec<&'s Seen> =
        unnamed.iter().filter_map(|place| fields.remove(place)).flat_map(|(_, seen)| seen).collect();
    fields.entry(Place::Elsewhere).or_default().1.extend(seen);
}

/// Whether blocks are not larger than so many bytes, on average.
fn is_small(object: &Object, most_bytes: u64) -> bool {
    object.bytes.is_some_and(|bytes| bytes <= object.blocks.saturating_mul(most_bytes))
}

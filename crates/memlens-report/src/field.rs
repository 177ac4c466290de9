//! Counts by field of the structures that objects consist of.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use memlens_profile::{Cell, Field, FieldIx, FieldShares, Object, ObjectIx, Profile};
use memlens_types::Counts;

use crate::namesakes::Namesakes;
use crate::row::{Groups, Row, Whole, names_by_cost};
use crate::target::Target;

/// What a row of a table by field stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    /// A field of a type, in whatever objects.
    Typed { type_name: String, offset: Option<u64>, field: Option<Arc<str>> },
    /// Bytes of an object whose type is not known.
    Untyped { object: ObjectIx, offset: Option<u64> },
    /// An object, or what was not looked at of one.
    Whole(ObjectIx),
}

/// The row of an object's accesses of which the fields are not known.
pub(crate) const NOT_LOOKED_AT: &str = "not looked at";

/// What a row is made of: an object, its field, if it is one, and what that counts.
type Part<'a> = (ObjectIx, Option<&'a Field>, Counts);

/// Counts of a profile's fields by their rows: what of the cells is known. Linear in the cells.
pub(crate) struct FieldCounts {
    by_field: HashMap<FieldIx, Counts>,
    /// Of objects with fields: what was not looked at.
    pub(crate) elsewhere: HashMap<ObjectIx, Counts>,
}

impl FieldCounts {
    /// Of some cells.
    pub(crate) fn of<'a>(shares: &FieldShares, cells: impl Iterator<Item = &'a Cell>) -> Self {
        let mut found = Self { by_field: HashMap::new(), elsewhere: HashMap::new() };
        for cell in cells {
            let mut is_known = false;
            for (field, counts) in shares.pieces(cell) {
                is_known = true;
                *found.by_field.entry(field).or_default() += &counts;
            }
            if !is_known {
                *found.elsewhere.entry(cell.object).or_default() += &cell.counts.get();
            }
        }
        found
    }

    /// Those of a field.
    pub(crate) fn get(&self, field: FieldIx) -> Counts {
        self.by_field.get(&field).copied().unwrap_or_default()
    }
}

/// Which fields objects have, and how cells are divided among them. Linear in the profile's field uses: made once for many objects.
pub(crate) struct FieldIndex<'a> {
    profile: &'a Profile,
    by_object: HashMap<ObjectIx, Vec<(FieldIx, &'a Field)>>,
    shares: FieldShares,
}

impl<'a> FieldIndex<'a> {
    pub(crate) fn of(profile: &'a Profile) -> Self {
        let mut by_object: HashMap<ObjectIx, Vec<(FieldIx, &Field)>> = HashMap::new();
        for (at, field) in profile.fields.iter().enumerate() {
            by_object.entry(field.object).or_default().push((FieldIx::from_index(at), field));
        }
        Self { profile, by_object, shares: FieldShares::of(profile) }
    }

    pub(crate) fn profile(&self) -> &'a Profile {
        self.profile
    }

    /// An object's fields.
    pub(crate) fn of_object(&self, object: ObjectIx) -> &[(FieldIx, &'a Field)] {
        self.by_object.get(&object).map(Vec::as_slice).unwrap_or_default()
    }
}

/// The fields of objects with equal structure in the order of their places, and at last what was not looked at; `cells` are those
/// of the objects, and may be others', too.
pub(crate) fn of_objects<'a>(
    index: &FieldIndex<'_>,
    objects: &Namesakes<'_>,
    cells: impl Iterator<Item = &'a Cell>,
    whole: Whole,
) -> Vec<Row> {
    let profile = index.profile;
    let members = objects.set();
    let counts = FieldCounts::of(&index.shares, cells.filter(|cell| members.contains(&cell.object)));
    let mut fields = Groups::default();
    for &(ix, field) in objects.members().iter().flat_map(|&object| index.of_object(object)) {
        fields.of((field.offset_bytes, field.name.as_deref())).push((ix, field));
    }
    let row = |same: Vec<(FieldIx, &Field)>| {
        let mut sum = Counts::default();
        same.iter().for_each(|(ix, _)| sum += &counts.get(*ix));
        let field = same.first().map(|(_, field)| *field)?;
        Some(Row {
            offset: field.offset_bytes,
            bytes: field.size_bytes,
            type_name: field.type_name.as_deref().map(str::to_owned),
            ..Row::new(profile, short_name(field), &sum, false, whole)
        })
    };
    let mut rows: Vec<Row> = fields.in_order.into_iter().filter_map(|(_, same)| row(same)).collect();
    let mut rest = Counts::default();
    counts.elsewhere.values().for_each(|counts| rest += counts);
    if !rows.is_empty() && !counts.elsewhere.is_empty() {
        rows.push(Row::new(profile, NOT_LOOKED_AT.to_owned(), &rest, false, whole));
    }
    rows
}

/// All fields; what is in none by its object. Fields of one type are one row, in whatever objects.
pub(crate) fn by_field(profile: &Profile, whole: Whole) -> Vec<Row> {
    let row = |(key, parts): (Key, Vec<Part<'_>>)| {
        let mut sum = Counts::default();
        let mut costs = Vec::new();
        for (object, _, counts) in &parts {
            sum += counts;
            if let Some(object) = profile.objects.get(object.index()) {
                costs.push((object.name.as_str(), profile.cost(counts)));
            }
        }
        let field = parts.first().and_then(|(_, field, _)| *field);
        let name = full_name(profile, &key);
        // Where it is one object's, that has the whole structure.
        let target = match &parts[..] {
            [(object, ..)] => Namesakes::one(profile, *object).target(),
            _ => Some(Target::Field(name.clone())),
        };
        Row {
            offset: field.and_then(|field| field.offset_bytes),
            bytes: field.and_then(|field| field.size_bytes),
            type_name: field.and_then(|field| field.type_name.as_deref().map(str::to_owned)),
            objects: Some(names_by_cost(costs)),
            target,
            ..Row::new(profile, name, &sum, false, whole)
        }
    };
    all_fields(profile).into_iter().map(row).collect()
}

/// The objects that have a field, each with the counts of that field; the field is named as its row is.
pub(crate) fn objects_with(profile: &Profile, name: &str) -> Vec<(ObjectIx, Counts)> {
    let is_it = |(key, _): &(Key, Vec<Part<'_>>)| full_name(profile, key) == name;
    let parts = all_fields(profile).into_iter().filter(is_it).flat_map(|(_, parts)| parts);
    parts.map(|(object, _, counts)| (object, counts)).collect()
}

/// What all rows by field are made of.
fn all_fields(profile: &Profile) -> BTreeMap<Key, Vec<Part<'_>>> {
    let counts = FieldCounts::of(&FieldShares::of(profile), profile.cells.iter());
    let mut groups: BTreeMap<Key, Vec<Part<'_>>> = BTreeMap::new();
    for (at, field) in profile.fields.iter().enumerate() {
        let Some(object) = profile.objects.get(field.object.index()) else { continue };
        let one = (field.object, Some(field), counts.get(FieldIx::from_index(at)));
        groups.entry(key(object, field)).or_default().push(one);
    }
    for (&object, &rest) in &counts.elsewhere {
        groups.entry(Key::Whole(object)).or_default().push((object, None, rest));
    }
    groups
}

fn key(object: &Object, field: &Field) -> Key {
    match &object.element {
        Some(element) => Key::Typed {
            type_name: element.type_name.clone(),
            offset: field.offset_bytes,
            field: field.name.clone(),
        },
        None => Key::Untyped { object: field.object, offset: field.offset_bytes },
    }
}

/// A field within its structure.
fn short_name(field: &Field) -> String {
    match (&field.name, field.offset_bytes) {
        (Some(name), _) => name.to_string(),
        (None, Some(offset)) => format!("+{offset}"),
        (None, None) => "no field".to_owned(),
    }
}

fn full_name(profile: &Profile, key: &Key) -> String {
    let name_of =
        |object: &ObjectIx| profile.objects.get(object.index()).map_or("", |object| object.name.as_str());
    let joined = |whole: &str, offset: &Option<u64>, field: &Option<Arc<str>>| match (field, offset) {
        (Some(field), _) => format!("{whole}.{field}"),
        (None, Some(offset)) => format!("{whole}+{offset}"),
        (None, None) => format!("{whole}, no field"),
    };
    match key {
        Key::Typed { type_name, offset, field } => {
            let plain = ["struct ", "union "].iter().find_map(|word| type_name.strip_prefix(word));
            joined(plain.unwrap_or(type_name), offset, field)
        }
        Key::Untyped { object, offset } => joined(name_of(object), offset, &None),
        Key::Whole(object) => name_of(object).to_owned(),
    }
}

//! Members of structures: by place and by name.

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Range;

use gimli::DwAt;

use crate::debug_info::DebugInfo;
use crate::dwarf_file::{Attr, MAX_REFERENCES, attribute};
use crate::types::{MOST_VISITS, TypeId, constant, is_descriptor};
use crate::unit_index::{StaticPlace, static_place};

/// A member of a structure, a base of a class, or bit-fields that share a byte.
pub(crate) struct Member<'a> {
    /// None of bases and anonymous members; of several bit-fields `a|b`, or `a|…|d`.
    pub(crate) name: Option<Cow<'a, str>>,
    /// Offset of its first byte.
    pub(crate) start: u64,
    /// Its type; of several bit-fields the first one's.
    pub(crate) type_id: TypeId<'a>,
    /// Of bit-fields: how many bytes they take, with unused ones behind them.
    pub(crate) bit_field_bytes: Option<u64>,
}

/// What is at a byte of a type.
pub(crate) struct Found<'a> {
    pub(crate) path: String,
    pub(crate) type_id: Option<TypeId<'a>>,
    /// How far into it the byte is.
    pub(crate) within: u64,
    /// Its size, if it is not its type's: that of bit-fields.
    pub(crate) bit_field_bytes: Option<u64>,
}

impl<'a> Found<'a> {
    fn new(path: String, type_id: Option<TypeId<'a>>, within: u64) -> Self {
        Self { path, type_id, within, bit_field_bytes: None }
    }

    fn parts(self) -> (String, Option<TypeId<'a>>, u64) {
        (self.path, self.type_id, self.within)
    }
}

/// How far members of members are looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// To the last.
    All,
    /// Not those of the language's library classes.
    Own,
    /// The same, and not those of unions with a name.
    Apart,
}

impl<'a> DebugInfo<'a> {
    /// The member at byte `offset` of a type: path, its type, how far into it.
    pub(crate) fn member_at(
        &self,
        id: &TypeId<'a>,
        offset: u64,
    ) -> Option<(String, Option<TypeId<'a>>, u64)> {
        self.member(id, offset, 0, Depth::All).map(Found::parts)
    }

    /// As [`Self::member_at`], but members of the language's library classes are not looked into:
    /// for a `std::vector` there is none, rather than `_M_impl._M_start`.
    pub(crate) fn own_member_at(
        &self,
        id: &TypeId<'a>,
        offset: u64,
    ) -> Option<(String, Option<TypeId<'a>>, u64)> {
        self.member(id, offset, 0, Depth::Own).map(Found::parts)
    }

    /// What a byte of a structure is part of: as [`Self::own_member_at`], but members of unions are not told apart, the
    /// union is one; as [`Self::member_at`], if there is none.
    pub(crate) fn member_apart_at(&self, id: &TypeId<'a>, offset: u64) -> Option<Found<'a>> {
        self.member(id, offset, 0, Depth::Apart).or_else(|| self.member(id, offset, 0, Depth::All))
    }

    fn member(&self, id: &TypeId<'a>, offset: u64, depth: u32, into: Depth) -> Option<Found<'a>> {
        if depth >= MAX_REFERENCES {
            return None;
        }
        let (inner, tag, attributes) = self.stripped(id)?;
        match tag {
            gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_common_block => {
                if into != Depth::All && self.is_library_type(&inner) {
                    return None;
                }
                if let Some(value) = self.value_in(&inner, &attributes) {
                    let found = self.member(&value, offset, depth + 1, into);
                    return found.or(Some(Found::new(String::new(), Some(value), offset)));
                }
                // One of a type that is only declared here may be as large as the next begins behind it.
                let (mut found, mut is_sure): (Option<(Member<'a>, u64)>, bool) = (None, false);
                self.each_member(&inner, |member| {
                    let Some(within) = offset.checked_sub(member.start).filter(|_| !is_sure) else {
                        return;
                    };
                    if found.as_ref().is_some_and(|(before, _)| before.start < member.start) {
                        found = None;
                    }
                    let size = member.bit_field_bytes.or_else(|| self.size_at(&member.type_id, depth + 1));
                    if size.is_some_and(|size| within >= size.max(1)) || found.is_some() {
                        return;
                    }
                    // Empty bases and members take no room: what is there is another member's.
                    let is_named = member.name.is_some();
                    if is_named && self.is_empty_class(&member.type_id) {
                        return;
                    }
                    if is_named || self.member(&member.type_id, within, depth + 1, into).is_some() {
                        is_sure = size.is_some();
                        found = Some((member, within));
                    }
                });
                let (Member { name, type_id, bit_field_bytes, .. }, within) = found?;
                // What shares its bytes with others is not told apart, if there is a name for them all.
                let enters = into != Depth::Apart || name.is_none() || !self.is_union(&type_id);
                let deeper = if enters { self.member(&type_id, within, depth + 1, into) } else { None };
                Some(match (name, deeper) {
                    (Some(name), Some(deeper)) => {
                        let path = &deeper.path;
                        let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
                        Found { path: format!("{name}{dot}{path}"), ..deeper }
                    }
                    (None, Some(deeper)) => deeper,
                    (name, None) => Found {
                        bit_field_bytes,
                        ..Found::new(name.unwrap_or_default().into_owned(), Some(type_id), within)
                    },
                })
            }
            // Its elements are elsewhere.
            gimli::DW_TAG_array_type if is_descriptor(&attributes) => None,
            gimli::DW_TAG_array_type => {
                let element = self.type_of(&inner.0, &attributes)?;
                let size = self.size_at(&element, depth + 1).filter(|&size| size > 0)?;
                let mut index = offset / size;
                let counts = self.dimensions(&inner);
                let mut text = String::new();
                for count in counts.iter().skip(1).rev() {
                    let count = (*count).filter(|&count| count > 0)?;
                    text = format!("[{}]{text}", index % count);
                    index /= count;
                }
                text = format!("[{index}]{text}");
                let within = offset % size;
                Some(match self.member(&element, within, depth + 1, into) {
                    Some(deeper) => {
                        let path = &deeper.path;
                        let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
                        Found { path: format!("{text}{dot}{path}"), ..deeper }
                    }
                    None => Found::new(text, Some(element), within),
                })
            }
            _ => None,
        }
    }

    /// Whether a class has no data: the byte that C++ says it has may be another member's (empty bases, `[[no_unique_address]]`: the
    /// deleter of a `std::unique_ptr`).
    pub(crate) fn is_empty_class(&self, id: &TypeId<'a>) -> bool {
        let Some((inner, tag, _)) = self.stripped(id) else { return false };
        if !matches!(tag, gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type)
            || self.size_of(&inner).is_none_or(|size| size > 1)
        {
            return false;
        }
        let mut is_empty = true;
        self.each_member(&inner, |member| {
            is_empty &= member.name.is_none() && self.is_empty_class(&member.type_id);
        });
        is_empty
    }

    /// The variables of a Fortran common block, in the order of their places, which are counted from the first.
    pub(crate) fn common_members(&self, block: &TypeId<'a>) -> Vec<Member<'a>> {
        let mut members = Vec::new();
        let Some(unit) = block.0.unit() else { return members };
        self.children(block, |tag, _, attributes| {
            if tag != gimli::DW_TAG_variable {
                return;
            }
            let place = static_place(block.0.dwarf(), &unit, attributes);
            if let (Some(StaticPlace::Address(start)), Some(type_id)) =
                (place, self.type_of(&block.0, attributes))
            {
                let name = self.name_of(&block.0, attributes).map(Cow::Borrowed);
                members.push(Member { name, start, type_id, bit_field_bytes: None });
            }
        });
        members.sort_by_key(|member| member.start);
        let first = members.first().map_or(0, |member| member.start);
        members.iter_mut().for_each(|member| member.start -= first);
        members
    }

    /// Calls `each` for the members and bases of a structure or union, in the order of their declaration. Bit-fields of
    /// which a byte has bits of several are one member: an access cannot tell them apart.
    pub(crate) fn each_member(&self, id: &TypeId<'a>, mut each: impl FnMut(Member<'a>)) {
        let Some((_, tag, attributes)) = self.stripped(id) else { return };
        if tag == gimli::DW_TAG_common_block {
            return self.common_members(id).into_iter().for_each(each);
        }
        let size = attribute(&attributes, gimli::DW_AT_byte_size).and_then(|value| constant(&value));
        let end = size.and_then(|size| u64::try_from(size).ok()).unwrap_or(u64::MAX);
        let is_union = tag == gimli::DW_TAG_union_type;
        let mut waiting: Option<BitFields<'a>> = None;
        self.children(id, |tag, _, attributes| {
            if !matches!(tag, gimli::DW_TAG_member | gimli::DW_TAG_inheritance) {
                return;
            }
            // A static member is declared here, but is not part of the layout.
            if attribute(attributes, gimli::DW_AT_external).is_some()
                || attribute(attributes, gimli::DW_AT_declaration).is_some()
            {
                return;
            }
            let Some(type_id) = self.type_of(&id.0, attributes) else { return };
            let name = self.name_of(&id.0, attributes).filter(|_| tag == gimli::DW_TAG_member);
            let type_bytes = || self.size_of(&type_id);
            let Some(bits) = bits_of(attributes, type_bytes) else {
                let start = number(attributes, gimli::DW_AT_data_member_location).unwrap_or(0);
                let Ok(start) = u64::try_from(start) else { return };
                if let Some(fields) = waiting.take() {
                    each(fields.member(start));
                }
                return each(Member { name: name.map(Cow::Borrowed), start, type_id, bit_field_bytes: None });
            };
            match &mut waiting {
                Some(fields) if !is_union && bits.start / 8 < fields.bits.end.div_ceil(8) => {
                    fields.add(name, bits);
                }
                _ => {
                    let unit = self.size_of(&type_id);
                    let fields = BitFields { names: name.into_iter().collect(), bits, type_id, unit };
                    if let Some(before) = waiting.replace(fields) {
                        let next =
                            if is_union { end } else { waiting.as_ref().map_or(end, BitFields::start) };
                        each(before.member(next));
                    }
                }
            }
        });
        if let Some(fields) = waiting {
            each(fields.member(end));
        }
    }

    /// The type of the expression that goes on with `path` (`->rows[i].cells`) after a variable of type `id`; None
    /// if the debug information does not say it, as of what an operator of a class returns.
    pub(crate) fn type_along(&self, id: &TypeId<'a>, path: &str) -> Option<TypeId<'a>> {
        let (mut id, mut path) = (id.clone(), path);
        while !path.is_empty() {
            let (inner, tag) = self.dereferenced(&id)?;
            let (_, attributes) = inner.0.entry(inner.1)?;
            if let Some(rest) = path.strip_prefix('(').filter(|_| tag == gimli::DW_TAG_array_type) {
                // Fortran's, of all dimensions.
                id = self.type_of(&inner.0, &attributes)?;
                path = after_bracket(rest, '(', ')')?;
                continue;
            }
            if let Some(rest) = path.strip_prefix('[') {
                let is_indexed = match tag {
                    gimli::DW_TAG_array_type => self.dimensions(&inner).len() == 1,
                    gimli::DW_TAG_pointer_type => true,
                    _ => false,
                };
                id = is_indexed.then(|| self.type_of(&inner.0, &attributes))??;
                path = after_bracket(rest, '[', ']')?;
                continue;
            }
            let (class, rest) = match path.strip_prefix("->") {
                Some(rest) => (self.pointee(&inner)?, rest),
                // Rust looks behind references by itself.
                None => (self.pointee(&inner).unwrap_or(inner), path.strip_prefix(['.', '%'])?),
            };
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            id = self.member_named(&class, &rest[..end], &Cell::new(MOST_VISITS))?;
            path = &rest[end..];
        }
        Some(id)
    }

    /// The type of a member of a class, or of one of its bases or anonymous members.
    fn member_named(&self, class: &TypeId<'a>, name: &str, left: &Cell<u32>) -> Option<TypeId<'a>> {
        let (class, ..) = self.stripped(class).filter(|_| left.get() > 0)?;
        left.update(|left| left - 1);
        let mut found = None;
        self.each_member(&class, |member| {
            if found.is_none() {
                found = match member.name {
                    Some(member_name) => (member_name == name).then_some(member.type_id),
                    None => self.member_named(&member.type_id, name, left),
                };
            }
        });
        found
    }
}

/// Bit-fields of which each shares a byte with the one before.
struct BitFields<'a> {
    names: Vec<&'a str>,
    bits: Range<u64>,
    /// The first one's type, and its size.
    type_id: TypeId<'a>,
    unit: Option<u64>,
}

impl<'a> BitFields<'a> {
    fn start(&self) -> u64 {
        self.bits.start / 8
    }

    fn add(&mut self, name: Option<&'a str>, bits: Range<u64>) {
        self.names.extend(name);
        self.bits = self.bits.start.min(bits.start)..self.bits.end.max(bits.end);
    }

    /// As one member. It has the rest of the word that they are read with, up to what begins at byte `next`.
    fn member(self, next: u64) -> Member<'a> {
        let (start, end) = (self.start(), self.bits.end.div_ceil(8));
        let unit = self.unit.filter(|unit| unit.is_power_of_two());
        let word_end = unit.and_then(|unit| end.checked_next_multiple_of(unit)).unwrap_or(end);
        let end = word_end.min(next).max(end);
        let name = match self.names.as_slice() {
            [] => None,
            [name] => Some(Cow::Borrowed(*name)),
            [first, _, _, .., last] if self.names.len() > 3 => Some(format!("{first}|…|{last}").into()),
            names => Some(names.join("|").into()),
        };
        Member { name, start, type_id: self.type_id, bit_field_bytes: Some(end - start) }
    }
}

/// The bits of a bit-field, counted from the structure's first one. `type_bytes`: the size of its type. DWARF 5, section
/// 5.7.6; up to version 3 `DW_AT_bit_offset` counts from the most significant bit of a word at the member's place.
fn bits_of(attributes: &[Attr<'_>], type_bytes: impl Fn() -> Option<u64>) -> Option<Range<u64>> {
    let unsigned = |name| number(attributes, name).and_then(|value| u64::try_from(value).ok());
    let size = unsigned(gimli::DW_AT_bit_size)?;
    let first_byte = unsigned(gimli::DW_AT_data_member_location).unwrap_or(0);
    let first_bit = first_byte.checked_mul(8)?;
    let start = match unsigned(gimli::DW_AT_data_bit_offset) {
        Some(offset) => first_bit.checked_add(offset)?,
        None => match unsigned(gimli::DW_AT_bit_offset) {
            Some(above) => {
                let word = unsigned(gimli::DW_AT_byte_size).or_else(type_bytes)?.checked_mul(8)?;
                first_bit.checked_add(word)?.checked_sub(above)?.checked_sub(size)?
            }
            None => first_bit,
        },
    };
    Some(start..start.checked_add(size)?)
}

fn number(attributes: &[Attr<'_>], name: DwAt) -> Option<i64> {
    attribute(attributes, name).and_then(|value| constant(&value))
}

/// What comes after the bracket that closes one opened before the text.
fn after_bracket(text: &str, open: char, close: char) -> Option<&str> {
    let mut depth = 1;
    let end = text.find(|c| {
        depth += i32::from(c == open) - i32::from(c == close);
        depth == 0
    })?;
    Some(&text[end + 1..])
}

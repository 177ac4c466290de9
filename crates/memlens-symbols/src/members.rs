//! Members of structures: by place and by name.

use std::cell::Cell;

use crate::debug_info::DebugInfo;
use crate::dwarf_file::{MAX_REFERENCES, attribute};
use crate::types::{MOST_VISITS, TypeId, constant, is_descriptor};

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
        self.member(id, offset, 0, Depth::All)
    }

    /// As [`Self::member_at`], but members of the language's library classes are not looked into:
    /// for a `std::vector` there is none, rather than `_M_impl._M_start`.
    pub(crate) fn own_member_at(
        &self,
        id: &TypeId<'a>,
        offset: u64,
    ) -> Option<(String, Option<TypeId<'a>>, u64)> {
        self.member(id, offset, 0, Depth::Own)
    }

    /// As [`Self::own_member_at`], but members of unions are not told apart: the union is one.
    pub(crate) fn member_apart_at(
        &self,
        id: &TypeId<'a>,
        offset: u64,
    ) -> Option<(String, Option<TypeId<'a>>, u64)> {
        self.member(id, offset, 0, Depth::Apart)
    }

    fn member(
        &self,
        id: &TypeId<'a>,
        offset: u64,
        depth: u32,
        into: Depth,
    ) -> Option<(String, Option<TypeId<'a>>, u64)> {
        if depth >= MAX_REFERENCES {
            return None;
        }
        let (inner, tag, attributes) = self.stripped(id)?;
        match tag {
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                if into != Depth::All && self.is_library_type(&inner) {
                    return None;
                }
                if let Some(value) = self.value_in(&inner, &attributes) {
                    let found = self.member(&value, offset, depth + 1, into);
                    return found.or(Some((String::new(), Some(value), offset)));
                }
                let mut found: Option<(Option<&'a str>, Option<TypeId<'a>>, u64)> = None;
                self.each_member(&inner, |name, start, member_type| {
                    let Some(within) = offset.checked_sub(start).filter(|_| found.is_none()) else { return };
                    if self.size_at(&member_type, depth + 1).is_some_and(|size| within >= size.max(1)) {
                        return;
                    }
                    // An empty base takes no room: what is there is a member's.
                    let is_named = name.is_some();
                    if is_named || self.member(&member_type, within, depth + 1, into).is_some() {
                        found = Some((name, Some(member_type), within));
                    }
                });
                let (name, member_type, within) = found?;
                // What shares its bytes with others is not told apart, if there is a name for them all.
                let enters = |t: &&TypeId<'a>| into != Depth::Apart || name.is_none() || !self.is_union(t);
                let inner = member_type.as_ref().filter(enters);
                let deeper = inner.and_then(|t| self.member(t, within, depth + 1, into));
                Some(match (name, deeper) {
                    (Some(name), Some((path, t, rest))) => {
                        let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
                        (format!("{name}{dot}{path}"), t, rest)
                    }
                    (None, Some(deeper)) => deeper,
                    (name, None) => (name.unwrap_or_default().to_owned(), member_type, within),
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
                    Some((path, t, rest)) => {
                        let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
                        (format!("{text}{dot}{path}"), t, rest)
                    }
                    None => (text, Some(element), within),
                })
            }
            _ => None,
        }
    }

    /// Calls `each` for the members and bases of a structure or union: name (None of bases and anonymous members), place
    /// in bytes, type.
    pub(crate) fn each_member(
        &self,
        id: &TypeId<'a>,
        mut each: impl FnMut(Option<&'a str>, u64, TypeId<'a>),
    ) {
        self.children(id, |tag, _, attributes| {
            if !matches!(tag, gimli::DW_TAG_member | gimli::DW_TAG_inheritance) {
                return;
            }
            let number = |name| attribute(attributes, name).and_then(|value| constant(&value));
            // A static member is declared here, but is not part of the layout.
            if attribute(attributes, gimli::DW_AT_external).is_some()
                || attribute(attributes, gimli::DW_AT_declaration).is_some()
            {
                return;
            }
            let start = number(gimli::DW_AT_data_member_location)
                .or_else(|| number(gimli::DW_AT_data_bit_offset).map(|bits| bits / 8))
                .unwrap_or(0);
            let (Ok(start), Some(member)) = (u64::try_from(start), self.type_of(&id.0, attributes)) else {
                return;
            };
            let name = self.name_of(&id.0, attributes).filter(|_| tag == gimli::DW_TAG_member);
            each(name, start, member);
        });
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
                None => (inner, path.strip_prefix(['.', '%'])?),
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
        self.each_member(&class, |member, _, member_type| {
            if found.is_none() {
                found = match member {
                    Some(member) => (member == name).then_some(member_type),
                    None => self.member_named(&member_type, name, left),
                };
            }
        });
        found
    }
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

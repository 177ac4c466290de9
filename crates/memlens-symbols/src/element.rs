//! What blocks and variables consist of: structures, one after the other, and their fields.

use std::cell::Cell;

use crate::debug_info::DebugInfo;
use crate::dwarf_file::MAX_REFERENCES;
use crate::module::Module;
use crate::types::{TypeId, TypeRef, is_descriptor};

/// Classes of the languages' libraries whose memory is an array of their first type parameter, without a header.
const ARRAY_HOLDERS: [&str; 7] = [
    "std::vector<",
    "std::unique_ptr<",
    "std::valarray<",
    "std::initializer_list<",
    "alloc::vec::Vec<",
    "alloc::boxed::Box<",
    "alloc::raw_vec::RawVec<",
];
/// What libstdc++'s containers of nodes call the type of a node, or a pointer to one.
const NODE_TYPES: [&str; 4] = ["_Node", "_Link_type", "__node_type", "__node_ptr"];
/// The member that holds one in what keeps a node until it is linked.
const NODE_MEMBER: &str = "_M_node";

/// A structure has not so many members, those of its members included: damaged debug information may have one contain
/// itself.
const MOST_MEMBERS: u32 = 1 << 14;

/// The structure that some memory consists of: once, or again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// Its type.
    pub type_ref: TypeRef,
    /// As the source spells that, e.g. `struct node`.
    pub type_name: String,
    /// Its size in bytes, not 0.
    pub size_bytes: u64,
}

/// A field of a structure; all elements of an array are one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Field {
    /// Where it begins, in bytes from the structure's beginning.
    pub offset_bytes: u64,
    /// Its size in bytes: that of the whole array for an array's elements, as far as they lie together.
    pub size_bytes: u64,
    /// Its path in the structure: `left`, `pos.x`, `items[].key`. Classes of the languages' libraries are one field, and
    /// so are unions, and bit-fields that share a byte (`a|b`, `a|…|d`).
    pub name: String,
    /// Spelling of its type; of an array's elements the element's.
    pub type_name: String,
}

/// What some memory consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Structures.
    Structures(Element),
    /// Numbers, pointers: nothing that has fields.
    Values,
    /// Its type does not say: `void`, single bytes.
    Bytes,
}

impl Module {
    /// What a block consists of whose address is kept in a variable of this type: what the pointer points to, or what
    /// a container of the language's library holds.
    pub fn content_behind(&self, variable: TypeRef) -> Content {
        self.with_debug(|debug| {
            let id = debug.type_id(variable)?;
            let held = debug.held_element(&id).or_else(|| debug.described_element(&id));
            let behind = held.or_else(|| {
                let target = debug.pointee(&id)?;
                // A reference to a container is the container.
                let held = debug.is_reference(&id).then(|| debug.held_element(&target)).flatten();
                Some(held.unwrap_or(target))
            });
            debug.content(&behind?)
        })
        .unwrap_or(Content::Bytes)
    }

    /// What a variable of this type consists of: itself, or an array's elements.
    pub fn content_of(&self, variable: TypeRef) -> Content {
        self.with_debug(|debug| debug.content(&debug.type_id(variable)?)).unwrap_or(Content::Bytes)
    }

    /// Where in a structure another one lies, as a base, a member or one of theirs: its offset in bytes, if that is one place. The same
    /// structure lies at 0; types are the same if they are spelled alike and as large. Cost: as [`Self::fields`].
    pub fn part_offset(&self, structure: &Element, part: &Element) -> Option<u64> {
        if structure.type_name == part.type_name && structure.size_bytes == part.size_bytes {
            return Some(0);
        }
        self.with_debug(|debug| {
            let mut places = Vec::new();
            let left = Cell::new(MOST_MEMBERS);
            debug.parts(&debug.type_id(structure.type_ref)?, part, (0, 0), &left, &mut places);
            (places.len() == 1).then(|| places.first().copied()).flatten()
        })
    }

    /// The field at a byte of a structure; None: none is there.
    pub fn field_at(&self, structure: TypeRef, offset_bytes: u64) -> Option<Field> {
        self.with_debug(|debug| debug.field_at(&debug.type_id(structure)?, offset_bytes))
    }

    /// All fields of a structure in the order of their places. Cost: the debug information of all its members,
    /// and of theirs.
    pub fn fields(&self, element: &Element) -> Vec<Field> {
        let mut fields = Vec::new();
        self.with_debug(|debug| {
            if let Some(id) = debug.type_id(element.type_ref) {
                let walk =
                    Walk { debug, is_library: debug.is_library_type(&id), left: Cell::new(MOST_MEMBERS) };
                walk.members(&id, 0, "", &mut fields, 0);
            }
        });
        fields.sort_by_key(|field| field.offset_bytes);
        let mut end = 0;
        fields.retain(|field| {
            let is_first = field.offset_bytes >= end;
            end = end.max(field.offset_bytes.saturating_add(field.size_bytes));
            is_first
        });
        fields
    }
}

/// A walk through all members of a structure, as [`DebugInfo::member_apart_at`] goes to one.
struct Walk<'d, 'a> {
    debug: &'d DebugInfo<'a>,
    /// Of a library's structure everything is entered, else none of them.
    is_library: bool,
    /// So many members may still be looked at.
    left: Cell<u32>,
}

impl<'a> Walk<'_, 'a> {
    /// The fields of a structure or union at `base`, whose names begin with `prefix`. False: it has none.
    fn members(&self, id: &TypeId<'a>, base: u64, prefix: &str, out: &mut Vec<Field>, depth: u32) -> bool {
        let Some((inner, tag, attributes)) = self.debug.stripped(id).filter(|_| depth < MAX_REFERENCES)
        else {
            return false;
        };
        let is_union = tag == gimli::DW_TAG_union_type;
        let has_members = matches!(
            tag,
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_common_block
        );
        if !is_union && !has_members {
            return false;
        }
        if !self.is_library && self.debug.is_library_type(&inner) {
            return false;
        }
        if let Some(value) = self.debug.value_in(&inner, &attributes) {
            self.field(&value, base, prefix, out, depth + 1);
            return true;
        }
        let before = out.len();
        self.debug.each_member(&inner, |member| {
            // Of what shares its bytes the first.
            if self.left.get() == 0 || is_union && out.len() > before {
                return;
            }
            self.left.update(|left| left - 1);
            let at = base.saturating_add(member.start);
            match &member.name {
                Some(name) => {
                    let dot = if prefix.is_empty() { "" } else { "." };
                    let name = format!("{prefix}{dot}{name}");
                    match member.bit_field_bytes {
                        Some(size_bytes) => {
                            let type_name = self.debug.type_name(Some(&member.type_id));
                            out.push(Field { offset_bytes: at, size_bytes, name, type_name });
                        }
                        None => self.field(&member.type_id, at, &name, out, depth + 1),
                    }
                }
                None => {
                    self.members(&member.type_id, at, prefix, out, depth + 1);
                }
            }
        });
        out.len() > before
    }

    /// The fields that a member with this name is.
    fn field(&self, id: &TypeId<'a>, at: u64, name: &str, out: &mut Vec<Field>, depth: u32) {
        let debug = self.debug;
        let Some((inner, tag, attributes)) = debug.stripped(id).filter(|_| depth < MAX_REFERENCES) else {
            return;
        };
        let (element, name) = match tag {
            // Its elements are elsewhere.
            gimli::DW_TAG_array_type if !is_descriptor(&attributes) => {
                let Some(element) = debug.type_of(&inner.0, &attributes) else { return };
                (element, format!("{name}{}", "[]".repeat(debug.dimensions(&inner).len())))
            }
            _ => (id.clone(), name.to_owned()),
        };
        if self.enters(&element) && self.members(&element, at, &name, out, depth + 1) {
            return;
        }
        if debug.is_empty_class(&element) {
            return;
        }
        if let Some(size_bytes) = debug.size_of(&inner).filter(|&size| size > 0) {
            let type_name = debug.type_name(Some(&element));
            out.push(Field { offset_bytes: at, size_bytes, name, type_name });
        }
    }

    /// Unions with a name are one field.
    fn enters(&self, id: &TypeId<'a>) -> bool {
        self.is_library || !self.debug.is_union(id)
    }
}

impl<'a> DebugInfo<'a> {
    fn field_at(&self, structure: &TypeId<'a>, offset: u64) -> Option<Field> {
        let found = self.member_apart_at(structure, offset).filter(|found| !found.path.is_empty())?;
        let size_of = |id: &TypeId<'a>| self.size_of(id);
        let size_bytes = found.bit_field_bytes.or_else(|| found.type_id.as_ref().and_then(size_of));
        Some(Field {
            offset_bytes: offset.checked_sub(found.within)?,
            size_bytes: size_bytes.unwrap_or(found.within + 1),
            name: without_indices(&found.path),
            type_name: self.type_name(found.type_id.as_ref()),
        })
    }

    /// The offsets of all parts of a structure that are of a type; `at`: offset and depth.
    fn parts(
        &self,
        id: &TypeId<'a>,
        part: &Element,
        at: (u64, u32),
        left: &Cell<u32>,
        places: &mut Vec<u64>,
    ) {
        let (base, depth) = at;
        let Some((inner, tag, _)) = self.stripped(id).filter(|_| depth < MAX_REFERENCES) else { return };
        if !matches!(tag, gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type) {
            return;
        }
        self.each_member(&inner, |member| {
            if left.get() == 0 || member.bit_field_bytes.is_some() {
                return;
            }
            left.update(|left| left - 1);
            let start = base.saturating_add(member.start);
            let is_it = self.size_of(&member.type_id) == Some(part.size_bytes)
                && self.type_name(Some(&member.type_id)) == part.type_name;
            match is_it {
                true => places.push(start),
                false => self.parts(&member.type_id, part, (start, depth + 1), left, places),
            }
        });
    }

    /// What the blocks of a container of the language's library consist of.
    pub(crate) fn held_element(&self, id: &TypeId<'a>) -> Option<TypeId<'a>> {
        let (id, _, _) = self.stripped(id)?;
        let (name, _) = self.qualified_name(&id.0, id.1)?;
        // Inline namespaces with versions do not count.
        let name = name.replace("::__1::", "::").replace("::__cxx11::", "::");
        if ARRAY_HOLDERS.iter().any(|holder| name.starts_with(holder)) {
            return self.type_parameter(&id);
        }
        if !name.starts_with("std::") {
            return None;
        }
        let mut node = None;
        self.children(&id, |tag, _, attributes| {
            let name = || self.name_of(&id.0, attributes);
            let is_node = match tag {
                gimli::DW_TAG_typedef => name().is_some_and(|name| NODE_TYPES.contains(&name)),
                gimli::DW_TAG_member => name() == Some(NODE_MEMBER),
                _ => false,
            };
            if is_node && node.is_none() {
                node = self.type_of(&id.0, attributes);
            }
        });
        let node = node?;
        Some(self.pointee(&node).unwrap_or(node))
    }

    /// The elements of an array of which a variable has only the descriptor.
    fn described_element(&self, id: &TypeId<'a>) -> Option<TypeId<'a>> {
        let (array, _, attributes) = self.stripped(id)?;
        if is_descriptor(&attributes) { self.type_of(&array.0, &attributes) } else { None }
    }

    /// What memory of a type, or an array of it, consists of.
    fn content(&self, id: &TypeId<'a>) -> Option<Content> {
        let mut id = id.clone();
        loop {
            let (inner, tag, attributes) = self.stripped(&id)?;
            match tag {
                gimli::DW_TAG_array_type if is_descriptor(&attributes) => return Some(Content::Values),
                gimli::DW_TAG_array_type => id = self.type_of(&inner.0, &attributes)?,
                gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_common_block => {
                    // Only declared: it has no size.
                    let size_bytes = self.size_of(&inner).filter(|&size| size > 0)?;
                    // The name that the source gives it, a typedef's, if it has none of its own.
                    let type_name = self.type_name(Some(&id));
                    let type_ref = self.type_ref(&inner);
                    return Some(Content::Structures(Element { type_ref, type_name, size_bytes }));
                }
                gimli::DW_TAG_base_type if self.size_of(&inner) == Some(1) => return Some(Content::Bytes),
                gimli::DW_TAG_unspecified_type => return Some(Content::Bytes),
                _ => return Some(Content::Values),
            }
        }
    }
}

/// `items[3].key` → `items[].key`.
fn without_indices(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    let mut is_index = false;
    for letter in path.chars() {
        match letter {
            '[' => is_index = true,
            ']' => is_index = false,
            _ if is_index => continue,
            _ => {}
        }
        text.push(letter);
    }
    text
}

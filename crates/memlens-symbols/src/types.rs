//! Names, sizes and layouts of types and declarations.

use std::cell::Cell;
use std::sync::Arc;

use gimli::{AttributeValue, DwAt, UnitOffset};

use crate::debug_info::DebugInfo;
use crate::dwarf_file::{Attr, MAX_REFERENCES, UnitHandle, Value, attribute};
use crate::members::Member;
use crate::unit_index::ScopeKind;

/// libstdc++'s buffers in nodes: `__gnu_cxx::__aligned_membuf<T>`, `__aligned_buffer<T>`.
const ROOM_FOR_A_VALUE: &str = "__aligned_";

/// So many types are looked at to find something in one: damaged debug information may have one contain itself.
pub(crate) const MOST_VISITS: u32 = 256;

/// A type of a module's debug information. Only meaningful for the module that gave it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeRef {
    pub(crate) file: u32,
    pub(crate) slot: u32,
    pub(crate) die: usize,
}

/// The member of a structure at some byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StructField {
    /// Name of the outermost type, e.g. `struct node`.
    pub type_name: String,
    /// Path of the member from there, e.g. `left`, `pos.x`, `items[3].key`; empty if the type has
    /// no members.
    pub path: String,
    /// Spelling of the member's type.
    pub field_type: String,
    /// Size of the member in bytes, if known.
    pub size_bytes: Option<u64>,
    /// How far into the member the byte is.
    pub offset_in_field: u64,
}

/// A type: its unit and entry.
pub(crate) type TypeId<'a> = (UnitHandle<'a>, UnitOffset);

impl<'a> DebugInfo<'a> {
    pub(crate) fn type_ref(&self, id: &TypeId<'a>) -> TypeRef {
        TypeRef { file: id.0.file.id, slot: id.0.slot as u32, die: id.1.0 }
    }

    pub(crate) fn type_id(&self, reference: TypeRef) -> Option<TypeId<'a>> {
        let file = self.file(reference.file)?;
        Some((UnitHandle { file, slot: reference.slot as usize }, UnitOffset(reference.die)))
    }

    /// The value of `name` at the entry or at what it completes or instantiates, with the unit
    /// that the value belongs to.
    pub(crate) fn inherited(
        &self,
        unit: &UnitHandle<'a>,
        attributes: &[Attr<'a>],
        name: DwAt,
    ) -> Option<(UnitHandle<'a>, Value<'a>)> {
        if let Some(value) = attribute(attributes, name) {
            return Some((unit.clone(), value));
        }
        let mut unit = unit.clone();
        let mut link = origin(attributes)?;
        for _ in 0..MAX_REFERENCES {
            let (next, die) = unit.resolve(link, self.sup.as_ref())?;
            let (_, attributes) = next.entry(die)?;
            if let Some(value) = attribute(&attributes, name) {
                return Some((next, value));
            }
            link = origin(&attributes)?;
            unit = next;
        }
        None
    }

    /// The plain name of an entry.
    pub(crate) fn name_of(&self, unit: &UnitHandle<'a>, attributes: &[Attr<'a>]) -> Option<&'a str> {
        let (unit, value) = self.inherited(unit, attributes, gimli::DW_AT_name)?;
        unit.string(value)
    }

    /// The name of the entry at `die` with the namespaces, types and functions it is in; the
    /// declaration's scopes count, not the definition's. The second value tells whether it is in a
    /// function.
    pub(crate) fn qualified_name(&self, unit: &UnitHandle<'a>, die: UnitOffset) -> Option<(String, bool)> {
        let (mut unit, mut die) = (unit.clone(), die);
        let mut name = None;
        for _ in 0..MAX_REFERENCES {
            let (_, attributes) = unit.entry(die)?;
            if name.is_none() {
                name = attribute(&attributes, gimli::DW_AT_name).and_then(|value| unit.string(value));
            }
            let Some(link) = origin(&attributes) else { break };
            let Some(next) = unit.resolve(link, self.sup.as_ref()) else { break };
            (unit, die) = next;
        }
        let name = name?;
        let mut parts = vec![name.to_owned()];
        let mut in_function = false;
        let index = unit.index()?;
        let mut scope = index.scope_of(die);
        while let Some(outer) = scope {
            in_function |= outer.kind == ScopeKind::Function;
            match outer.name {
                Some(name) => parts.push(name.to_owned()),
                None if outer.kind == ScopeKind::Function => {
                    // A function whose name is at its declaration or abstract instance.
                    if let Some(full) = self.plain_name(&unit, UnitOffset(outer.start)) {
                        parts.push(full.to_owned());
                    }
                }
                None if outer.kind == ScopeKind::Namespace => parts.push("(anonymous namespace)".to_owned()),
                None => {}
            }
            scope = index.parent(outer);
        }
        parts.reverse();
        Some((parts.join("::"), in_function))
    }

    fn plain_name(&self, unit: &UnitHandle<'a>, die: UnitOffset) -> Option<&'a str> {
        let (_, attributes) = unit.entry(die)?;
        self.name_of(unit, &attributes)
    }

    /// The type that an entry has, if it is not void.
    pub(crate) fn type_of(&self, unit: &UnitHandle<'a>, attributes: &[Attr<'a>]) -> Option<TypeId<'a>> {
        let (unit, value) = self.inherited(unit, attributes, gimli::DW_AT_type)?;
        unit.resolve(value, self.sup.as_ref())
    }

    /// The type without typedefs and qualifiers, with its tag and attributes.
    pub(crate) fn stripped(&self, id: &TypeId<'a>) -> Option<(TypeId<'a>, gimli::DwTag, Vec<Attr<'a>>)> {
        let mut id = id.clone();
        for _ in 0..MAX_REFERENCES {
            let (tag, attributes) = id.0.entry(id.1)?;
            match tag {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type
                | gimli::DW_TAG_packed_type => id = self.type_of(&id.0, &attributes)?,
                _ => return Some((id, tag, attributes)),
            }
        }
        None
    }

    /// What a pointer or reference type points to.
    pub(crate) fn pointee(&self, id: &TypeId<'a>) -> Option<TypeId<'a>> {
        let (id, tag, attributes) = self.stripped(id)?;
        match tag {
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => self.type_of(&id.0, &attributes),
            _ => None,
        }
    }

    /// Whether a value of the type can hold the address of a heap block in one register: pointers,
    /// references, and small classes (smart pointers) with one of them inside.
    pub(crate) fn holds_address(&self, id: &TypeId<'a>) -> bool {
        self.has_pointer(id, &Cell::new(MOST_VISITS))
    }

    /// Whether it is a reference of C++: what it refers to may be in something else.
    pub(crate) fn is_reference(&self, id: &TypeId<'a>) -> bool {
        let tag = self.stripped(id).map(|(_, tag, _)| tag);
        matches!(tag, Some(gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type))
    }

    /// Whether the type's values only describe an array that lies elsewhere.
    pub(crate) fn has_descriptor(&self, id: &TypeId<'a>) -> bool {
        self.stripped(id).is_some_and(|(_, _, attributes)| is_descriptor(&attributes))
    }

    /// `left`: so many types may still be looked at; what is not looked at may be one.
    fn has_pointer(&self, id: &TypeId<'a>, left: &Cell<u32>) -> bool {
        let Some((id, tag, attributes)) = self.stripped(id) else { return false };
        if left.get() == 0 {
            return true;
        }
        left.update(|left| left - 1);
        match tag {
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => true,
            gimli::DW_TAG_array_type => {
                is_descriptor(&attributes)
                    || self
                        .type_of(&id.0, &attributes)
                        .is_some_and(|element| self.has_pointer(&element, left))
            }
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                // What is only declared, or varies, may have anything inside.
                let mut has = attribute(&attributes, gimli::DW_AT_declaration).is_some();
                self.children(&id, |tag, _, _| has |= tag == gimli::DW_TAG_variant_part);
                if !has {
                    self.each_member(&id, |member| has = has || self.has_pointer(&member.type_id, left));
                }
                has
            }
            _ => false,
        }
    }

    /// Whether what lies at byte `within` of a value of the type can be the address of a heap block: no floating-point
    /// number, and no number or enumerator that is smaller than an address.
    pub(crate) fn keeps_address(&self, id: &TypeId<'a>, within: u64) -> bool {
        let member = self.member_at(id, within).and_then(|(_, member, _)| member);
        let Some((_, tag, attributes)) = self.stripped(member.as_ref().unwrap_or(id)) else { return true };
        let number = |name| attribute(&attributes, name).and_then(|value| constant(&value));
        match tag {
            gimli::DW_TAG_base_type => {
                let is_integer = match attribute(&attributes, gimli::DW_AT_encoding) {
                    Some(AttributeValue::Encoding(encoding)) => {
                        matches!(encoding, gimli::DW_ATE_signed | gimli::DW_ATE_unsigned)
                    }
                    _ => true,
                };
                is_integer && number(gimli::DW_AT_byte_size).is_none_or(|size| size >= 8)
            }
            gimli::DW_TAG_enumeration_type => false,
            _ => true,
        }
    }

    /// Whether the type is a number, a truth value or an enumeration, or a reference to one.
    pub(crate) fn is_scalar(&self, id: &TypeId<'a>) -> bool {
        self.dereferenced(id)
            .is_some_and(|(_, tag)| matches!(tag, gimli::DW_TAG_base_type | gimli::DW_TAG_enumeration_type))
    }

    /// Whether the type is a class, structure or union, or a reference to one.
    pub(crate) fn is_class(&self, id: &TypeId<'a>) -> bool {
        self.dereferenced(id).is_some_and(|(_, tag)| {
            matches!(tag, gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type)
        })
    }

    /// The type without typedefs and qualifiers, or what it is a reference to, and its tag.
    pub(crate) fn dereferenced(&self, id: &TypeId<'a>) -> Option<(TypeId<'a>, gimli::DwTag)> {
        let (id, tag, attributes) = self.stripped(id)?;
        match tag {
            gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type => {
                let (id, tag, _) = self.stripped(&self.type_of(&id.0, &attributes)?)?;
                Some((id, tag))
            }
            _ => Some((id, tag)),
        }
    }

    /// The C spelling of a type; qualifiers are dropped. `None` is void.
    pub(crate) fn type_name(&self, id: Option<&TypeId<'a>>) -> String {
        self.spell(id, String::new(), 0)
    }

    fn spell(&self, id: Option<&TypeId<'a>>, declarator: String, depth: u32) -> String {
        let Some(id) = id else { return format!("void{declarator}") };
        let Some((tag, attributes)) = id.0.entry(id.1).filter(|_| depth < MAX_REFERENCES) else {
            return format!("?{declarator}");
        };
        let target = || self.type_of(&id.0, &attributes);
        let named = || attribute(&attributes, gimli::DW_AT_name).and_then(|value| id.0.string(value));
        match tag {
            gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type
            | gimli::DW_TAG_packed_type => self.spell(target().as_ref(), declarator, depth + 1),
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => {
                // Rust names its pointer types (`&[u8]`, `*const T`).
                if let Some(name) = named() {
                    return format!("{name}{declarator}");
                }
                let sign = match tag {
                    gimli::DW_TAG_pointer_type => "*",
                    gimli::DW_TAG_reference_type => "&",
                    _ => "&&",
                };
                let target = target();
                let binds_tighter =
                    target.as_ref().and_then(|t| self.unqualified_tag(t)).is_some_and(|tag| {
                        tag == gimli::DW_TAG_array_type || tag == gimli::DW_TAG_subroutine_type
                    });
                let inner = if binds_tighter {
                    format!("({sign}{declarator})")
                } else {
                    format!("{sign}{declarator}")
                };
                self.spell(target.as_ref(), inner, depth + 1)
            }
            gimli::DW_TAG_array_type => {
                let mut inner = declarator;
                for count in self.dimensions(id) {
                    match count {
                        Some(count) => inner.push_str(&format!("[{count}]")),
                        None => inner.push_str("[]"),
                    }
                }
                self.spell(target().as_ref(), inner, depth + 1)
            }
            gimli::DW_TAG_subroutine_type => {
                let mut arguments = Vec::new();
                self.children(id, |tag, _, attributes| {
                    if tag == gimli::DW_TAG_formal_parameter {
                        let argument = self.type_of(&id.0, attributes);
                        arguments.push(self.spell(argument.as_ref(), String::new(), depth + 2));
                    } else if tag == gimli::DW_TAG_unspecified_parameters {
                        arguments.push("...".to_owned());
                    }
                });
                self.spell(target().as_ref(), format!("{declarator}({})", arguments.join(", ")), depth + 1)
            }
            gimli::DW_TAG_ptr_to_member_type => {
                let class = attribute(&attributes, gimli::DW_AT_containing_type)
                    .and_then(|value| id.0.resolve(value, self.sup.as_ref()));
                let class = self.spell(class.as_ref(), String::new(), depth + 1);
                self.spell(target().as_ref(), format!(" {class}::*{declarator}"), depth + 1)
            }
            gimli::DW_TAG_common_block => format!("common /{}/{declarator}", named().unwrap_or_default()),
            _ => {
                let word = match tag {
                    gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => "struct",
                    gimli::DW_TAG_union_type => "union",
                    gimli::DW_TAG_enumeration_type => "enum",
                    _ => "",
                };
                let name = match self.qualified_name(&id.0, id.1) {
                    Some((name, _)) if !word.is_empty() && is_c(id.0.language()) => format!("{word} {name}"),
                    Some((name, _)) => name,
                    None if word.is_empty() => "?".to_owned(),
                    None => format!("(anonymous {word})"),
                };
                format!("{name}{declarator}")
            }
        }
    }

    fn unqualified_tag(&self, id: &TypeId<'a>) -> Option<gimli::DwTag> {
        let mut id = id.clone();
        for _ in 0..MAX_REFERENCES {
            let (tag, attributes) = id.0.entry(id.1)?;
            match tag {
                gimli::DW_TAG_const_type | gimli::DW_TAG_volatile_type => {
                    id = self.type_of(&id.0, &attributes)?
                }
                _ => return Some(tag),
            }
        }
        None
    }

    /// The element counts of an array type, outermost dimension first.
    pub(crate) fn dimensions(&self, id: &TypeId<'a>) -> Vec<Option<u64>> {
        let mut counts = Vec::new();
        self.children(id, |tag, _, attributes| {
            if tag != gimli::DW_TAG_subrange_type {
                return;
            }
            let number = |name| attribute(attributes, name).and_then(|value| constant(&value));
            let count = number(gimli::DW_AT_count).or_else(|| {
                let upper = number(gimli::DW_AT_upper_bound)?;
                let lower = number(gimli::DW_AT_lower_bound)
                    .unwrap_or_else(|| id.0.language().default_lower_bound().map_or(0, |b| b as i64));
                upper.checked_sub(lower)?.checked_add(1)
            });
            counts.push(count.and_then(|count| u64::try_from(count).ok()));
        });
        counts
    }

    /// Size of a type in bytes.
    pub(crate) fn size_of(&self, id: &TypeId<'a>) -> Option<u64> {
        self.size_at(id, 0)
    }

    pub(crate) fn size_at(&self, id: &TypeId<'a>, depth: u32) -> Option<u64> {
        if depth >= MAX_REFERENCES {
            return None;
        }
        let (id, tag, attributes) = self.stripped(id)?;
        if let Some(size) = attribute(&attributes, gimli::DW_AT_byte_size).and_then(|value| constant(&value))
        {
            return u64::try_from(size).ok();
        }
        match tag {
            gimli::DW_TAG_array_type if is_descriptor(&attributes) => self.descriptor_size(&id, &attributes),
            gimli::DW_TAG_array_type => {
                let element = self.size_at(&self.type_of(&id.0, &attributes)?, depth + 1)?;
                let counts = self.dimensions(&id);
                if counts.is_empty() {
                    return None;
                }
                counts.into_iter().try_fold(element, |size, count| size.checked_mul(count?))
            }
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => Some(u64::from(id.0.unit()?.encoding().address_size)),
            gimli::DW_TAG_enumeration_type => self.size_at(&self.type_of(&id.0, &attributes)?, depth + 1),
            gimli::DW_TAG_common_block => {
                let members = self.common_members(&id);
                let end = |member: &Member<'a>| {
                    Some(member.start + self.size_at(&member.type_id, depth + 1).unwrap_or(0))
                };
                members.iter().filter_map(end).max()
            }
            _ => None,
        }
    }

    /// Size of the descriptor of an array that is elsewhere: it ends with the last word of it that is read to know
    /// place, bounds and strides.
    fn descriptor_size(&self, id: &TypeId<'a>, attributes: &[Attr<'a>]) -> Option<u64> {
        let encoding = id.0.unit()?.encoding();
        let last_word = |attributes: &[Attr<'a>]| {
            let expressions = attributes.iter().filter_map(|attribute| attribute.value().exprloc_value());
            let mut last = None;
            for expression in expressions {
                let mut operations = expression.operations(encoding);
                while let Ok(Some(operation)) = operations.next() {
                    if let gimli::Operation::PlusConstant { value } = operation {
                        last = last.max(Some(value));
                    }
                }
            }
            last
        };
        let mut last = last_word(attributes);
        self.children(id, |_, _, attributes| last = last.max(last_word(attributes)));
        last?.checked_add(u64::from(encoding.address_size))
    }

    /// Calls `each` for the direct children of an entry.
    pub(crate) fn children(
        &self,
        id: &TypeId<'a>,
        mut each: impl FnMut(gimli::DwTag, UnitOffset, &[Attr<'a>]),
    ) {
        let Some(unit) = id.0.unit() else { return };
        let Ok(mut entries) = unit.entries_raw(Some(id.1)) else { return };
        let mut attributes = Vec::new();
        let mut first = true;
        while !entries.is_empty() {
            let depth = entries.next_depth();
            if !first && depth <= 0 {
                return;
            }
            let offset = entries.next_offset();
            let Ok(abbreviation) = entries.read_abbreviation() else { return };
            let Some(abbreviation) = abbreviation else { continue };
            if first && !abbreviation.has_children() {
                return;
            }
            if first || depth != 1 {
                if entries.skip_attributes(abbreviation.attributes()).is_err() {
                    return;
                }
                first = false;
                continue;
            }
            attributes.clear();
            if entries.read_attributes(abbreviation.attributes(), &mut attributes).is_err() {
                return;
            }
            each(abbreviation.tag(), offset, &attributes);
        }
    }

    pub(crate) fn is_union(&self, id: &TypeId<'a>) -> bool {
        self.stripped(id).is_some_and(|(_, tag, _)| tag == gimli::DW_TAG_union_type)
    }

    pub(crate) fn is_library_type(&self, id: &TypeId<'a>) -> bool {
        // C has no namespaces.
        !is_c(id.0.language())
            && self.qualified_name(&id.0, id.1).is_some_and(|(name, _)| {
                ["std::", "alloc::", "core::", "hashbrown::", "__gnu_cxx::"]
                    .iter()
                    .any(|root| name.starts_with(root))
            })
    }

    /// The type of the value that libstdc++'s buffers in nodes have room for: it has the value's members.
    pub(crate) fn value_in(&self, id: &TypeId<'a>, attributes: &[Attr<'a>]) -> Option<TypeId<'a>> {
        self.name_of(&id.0, attributes).filter(|name| name.starts_with(ROOM_FOR_A_VALUE))?;
        self.type_parameter(id)
    }

    /// The first type that a template was made for.
    pub(crate) fn type_parameter(&self, id: &TypeId<'a>) -> Option<TypeId<'a>> {
        let mut found = None;
        self.children(id, |tag, _, attributes| {
            if tag == gimli::DW_TAG_template_type_parameter && found.is_none() {
                found = self.type_of(&id.0, attributes);
            }
        });
        found
    }

    /// The type parameter of an instance of a generic function that has this name.
    pub(crate) fn named_type_parameter(&self, id: &TypeId<'a>, wanted: &str) -> Option<TypeId<'a>> {
        let mut found = None;
        self.children(id, |tag, _, attributes| {
            if tag == gimli::DW_TAG_template_type_parameter
                && found.is_none()
                && self.name_of(&id.0, attributes) == Some(wanted)
            {
                found = self.type_of(&id.0, attributes);
            }
        });
        found
    }

    /// File and line of the declaration of an entry.
    pub(crate) fn declaration(
        &self,
        unit: &UnitHandle<'a>,
        attributes: &[Attr<'a>],
    ) -> (Option<Arc<str>>, Option<u32>) {
        let line = self
            .inherited(unit, attributes, gimli::DW_AT_decl_line)
            .and_then(|(_, value)| value.udata_value())
            .and_then(|line| u32::try_from(line).ok());
        let file = self.inherited(unit, attributes, gimli::DW_AT_decl_file).and_then(|(unit, value)| {
            let index = match value {
                AttributeValue::FileIndex(index) => index,
                value => value.udata_value()?,
            };
            self.file_name(&unit, index)
        });
        (file, line)
    }
}

/// Whether what lies at a variable of an array type only describes the array, as for Fortran's `allocatable`.
pub(crate) fn is_descriptor(attributes: &[Attr<'_>]) -> bool {
    attribute(attributes, gimli::DW_AT_data_location).is_some()
}

pub(crate) fn origin<'a>(attributes: &[Attr<'a>]) -> Option<Value<'a>> {
    attribute(attributes, gimli::DW_AT_abstract_origin)
        .or_else(|| attribute(attributes, gimli::DW_AT_specification))
        .or_else(|| attribute(attributes, gimli::DW_AT_signature))
}

/// A constant of any form. An expression (as a variable-length array's bound) is none.
///
/// The forms of fixed size do not say whether they have a sign (DWARF 5, section 7.5.5). gcc and clang write numbers with one as
/// `DW_FORM_sdata`, and have -1, the bound of an array without elements, in all bits of the longer ones.
pub(crate) fn constant(value: &Value<'_>) -> Option<i64> {
    match *value {
        AttributeValue::Data1(value) => Some(value.into()),
        AttributeValue::Data2(value) => Some(value.into()),
        AttributeValue::Data4(u32::MAX) => Some(-1),
        AttributeValue::Data4(value) => Some(value.into()),
        _ => value.sdata_value().or_else(|| value.udata_value().and_then(|v| i64::try_from(v).ok())),
    }
}

fn is_c(language: gimli::DwLang) -> bool {
    matches!(
        language,
        gimli::DW_LANG_C | gimli::DW_LANG_C89 | gimli::DW_LANG_C99 | gimli::DW_LANG_C11 | gimli::DW_LANG_C17
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_of_fixed_size_have_no_sign() {
        let cases = [
            (AttributeValue::Data1(255), Some(255)),
            (AttributeValue::Data2(0x8000), Some(0x8000)),
            (AttributeValue::Data4(0x8000_0000), Some(0x8000_0000)),
            (AttributeValue::Data4(u32::MAX), Some(-1)),
            (AttributeValue::Data8(u64::MAX), Some(-1)),
            (AttributeValue::Sdata(-3), Some(-3)),
            (AttributeValue::Udata(200), Some(200)),
            (AttributeValue::Flag(true), None),
        ];
        for (value, number) in cases {
            assert_eq!(constant(&value), number, "{value:?}");
        }
    }
}

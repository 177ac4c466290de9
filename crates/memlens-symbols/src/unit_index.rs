//! What one pass over a unit's entries finds: functions, static variables, naming scopes.

use std::ops::Range;

use gimli::{AttributeValue, DwAt, Dwarf, Operation, Unit, UnitOffset};

use crate::dwarf_file::{Attr, Bytes, attribute, ranges};

/// A scope that qualifies the names in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScopeKind {
    Namespace,
    Type,
    Function,
}

/// A naming scope: the entries at offsets `[start, end)` of the unit are in it.
#[derive(Clone, Debug)]
pub(crate) struct Scope<'a> {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) parent: Option<u32>,
    pub(crate) kind: ScopeKind,
    pub(crate) name: Option<&'a str>,
}

/// Where a static variable lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StaticPlace {
    /// At an address (svma).
    Address(u64),
    /// At an offset in the module's TLS segment.
    Tls(u64),
}

/// A variable with a fixed address, or fixed offset among the thread-locals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StaticVariable {
    pub(crate) place: StaticPlace,
    pub(crate) die: UnitOffset,
}

/// What stays of a unit when it is no longer parsed.
#[derive(Debug)]
pub(crate) struct UnitSummary {
    pub(crate) language: gimli::DwLang,
    /// Sorted by start: range and entry of each concrete function.
    pub(crate) functions: Box<[(u64, u64, UnitOffset)]>,
    /// Sorted by place.
    pub(crate) statics: Box<[StaticVariable]>,
}

impl UnitSummary {
    /// The innermost function whose ranges hold `svma`: its range there and its entry.
    pub(crate) fn function_at(&self, svma: u64) -> Option<(u64, u64, UnitOffset)> {
        let after = self.functions.partition_point(|f| f.0 <= svma);
        self.functions[..after].iter().rev().take(64).find(|f| svma < f.1).copied()
    }

    /// The variables that begin in a range of addresses, or of offsets in the TLS segment. Those that begin together are in the order of
    /// their entries.
    pub(crate) fn statics_in(&self, range: Range<u64>, tls: bool) -> &[StaticVariable] {
        let place = if tls { StaticPlace::Tls } else { StaticPlace::Address };
        let before = |bound| self.statics.partition_point(|variable| variable.place < place(bound));
        self.statics.get(before(range.start)..before(range.end)).unwrap_or_default()
    }
}

/// The index of one unit.
#[derive(Debug)]
pub(crate) struct UnitIndex<'a> {
    pub(crate) language: gimli::DwLang,
    pub(crate) scopes: Vec<Scope<'a>>,
    /// Sorted by start: range and entry of each concrete function.
    pub(crate) functions: Vec<(u64, u64, UnitOffset)>,
    pub(crate) statics: Vec<StaticVariable>,
    /// The damage that ended the pass, if any.
    pub(crate) damage: Option<gimli::Error>,
}

impl<'a> UnitIndex<'a> {
    /// Reads all entries of the unit once. What follows damage is missing.
    pub(crate) fn build(dwarf: &Dwarf<Bytes<'a>>, unit: &Unit<Bytes<'a>>) -> Self {
        let mut index = Self {
            language: gimli::DwLang(0),
            scopes: Vec::new(),
            functions: Vec::new(),
            statics: Vec::new(),
            damage: None,
        };
        if let Err(error) = index.read(dwarf, unit) {
            index.damage = Some(error);
        }
        index.functions.sort_unstable_by_key(|f| (f.0, f.1));
        index
    }

    fn read(&mut self, dwarf: &Dwarf<Bytes<'a>>, unit: &Unit<Bytes<'a>>) -> gimli::Result<()> {
        let mut entries = unit.entries_raw(None)?;
        let mut open: Vec<(isize, u32)> = Vec::new();
        let mut attributes: Vec<Attr<'a>> = Vec::new();
        // The common block whose members are read: its depth, its entry, where its first member stands in the list.
        let mut common: Option<(isize, UnitOffset, usize)> = None;
        while !entries.is_empty() {
            let offset = entries.next_offset();
            let depth = entries.next_depth();
            if common.is_some_and(|(outer, ..)| depth <= outer) {
                self.end_common_block(common.take());
            }
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            while let Some(&(scope_depth, scope)) = open.last() {
                if scope_depth < depth {
                    break;
                }
                self.scopes[scope as usize].end = offset.0;
                open.pop();
            }
            let tag = abbreviation.tag();
            let scope_kind = match tag {
                gimli::DW_TAG_namespace | gimli::DW_TAG_module => Some(ScopeKind::Namespace),
                gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type
                | gimli::DW_TAG_enumeration_type
                | gimli::DW_TAG_interface_type => Some(ScopeKind::Type),
                gimli::DW_TAG_subprogram => Some(ScopeKind::Function),
                _ => None,
            };
            let is_root = tag == gimli::DW_TAG_compile_unit || tag == gimli::DW_TAG_partial_unit;
            let is_static = matches!(tag, gimli::DW_TAG_variable | gimli::DW_TAG_common_block);
            if scope_kind.is_none() && !is_root && !is_static {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            attributes.clear();
            entries.read_attributes(abbreviation.attributes(), &mut attributes)?;
            if is_root {
                if let Some(AttributeValue::Language(language)) =
                    attribute(&attributes, gimli::DW_AT_language)
                {
                    self.language = language;
                }
                continue;
            }
            if tag == gimli::DW_TAG_common_block {
                common = Some((depth, offset, self.statics.len()));
            }
            if is_static {
                if let Some(place) = static_place(dwarf, unit, &attributes) {
                    self.statics.push(StaticVariable { place, die: offset });
                }
                continue;
            }
            let Some(kind) = scope_kind else { continue };
            if kind == ScopeKind::Function {
                for (start, end) in ranges(dwarf, unit, &attributes) {
                    self.functions.push((start, end, offset));
                }
            }
            if abbreviation.has_children() {
                let name = text(dwarf, unit, &attributes, gimli::DW_AT_name);
                let id = self.scopes.len() as u32;
                self.scopes.push(Scope {
                    start: offset.0,
                    end: usize::MAX,
                    parent: open.last().map(|&(_, scope)| scope),
                    kind,
                    name,
                });
                open.push((depth, id));
            }
        }
        self.end_common_block(common);
        Ok(())
    }

    /// gfortran gives a common block no place of its own: it begins with the first of its members, before which it
    /// stands in the list.
    fn end_common_block(&mut self, block: Option<(isize, UnitOffset, usize)>) {
        let Some((_, die, first)) = block else { return };
        let members = self.statics.get(first..).unwrap_or_default();
        let address = |member: &StaticVariable| match member.place {
            StaticPlace::Address(address) if member.die != die => Some(address),
            _ => None,
        };
        let Some(start) = members.iter().filter_map(address).min() else { return };
        self.statics.retain(|known| known.die != die);
        self.statics.insert(first, StaticVariable { place: StaticPlace::Address(start), die });
    }

    /// The innermost scope that the entry at `die` is in, not counting itself.
    pub(crate) fn scope_of(&self, die: UnitOffset) -> Option<&Scope<'a>> {
        let after = self.scopes.partition_point(|scope| scope.start < die.0);
        let mut at = Some(after.checked_sub(1)? as u32);
        while let Some(index) = at {
            let scope = self.scopes.get(index as usize)?;
            if die.0 < scope.end {
                return Some(scope);
            }
            at = scope.parent;
        }
        None
    }

    pub(crate) fn parent(&self, scope: &Scope<'a>) -> Option<&Scope<'a>> {
        self.scopes.get(scope.parent? as usize)
    }

    /// What is kept of it.
    pub(crate) fn summary(&self) -> UnitSummary {
        let mut statics = self.statics.clone();
        statics.sort_by_key(|variable| variable.place);
        UnitSummary {
            language: self.language,
            functions: self.functions.as_slice().into(),
            statics: statics.into(),
        }
    }
}

fn text<'a>(
    dwarf: &Dwarf<Bytes<'a>>,
    unit: &Unit<Bytes<'a>>,
    attributes: &[Attr<'a>],
    name: DwAt,
) -> Option<&'a str> {
    let value = attribute(attributes, name)?;
    std::str::from_utf8(dwarf.attr_string(unit, value).ok()?.slice()).ok()
}

/// The fixed place of a variable, if its location is a single address expression.
pub(crate) fn static_place<'a>(
    dwarf: &Dwarf<Bytes<'a>>,
    unit: &Unit<Bytes<'a>>,
    attributes: &[Attr<'a>],
) -> Option<StaticPlace> {
    let AttributeValue::Exprloc(expression) = attribute(attributes, gimli::DW_AT_location)? else {
        return None;
    };
    let mut operations = expression.operations(unit.encoding());
    let mut value: Option<u64> = None;
    let mut tls = false;
    while let Some(operation) = operations.next().ok()? {
        match operation {
            Operation::Address { address } => value = Some(address),
            Operation::AddressIndex { index } | Operation::ConstantIndex { index } => {
                value = Some(dwarf.address(unit, index).ok()?);
            }
            // gcc and clang spell the offset of a thread-local as a constant.
            Operation::UnsignedConstant { value: constant } => value = Some(constant),
            Operation::SignedConstant { value: constant } => value = Some(constant as u64),
            Operation::PlusConstant { value: plus } => value = Some(value?.wrapping_add(plus)),
            Operation::TLS => tls = true,
            // Large address spaces of discarded sections, pieces and computed values.
            _ => return None,
        }
    }
    let value = value?;
    if tls {
        return Some(StaticPlace::Tls(value));
    }
    // Address 0 is what a dropped variable is left with.
    let bare_constant = {
        let mut operations = expression.operations(unit.encoding());
        matches!(
            operations.next(),
            Ok(Some(Operation::UnsignedConstant { .. } | Operation::SignedConstant { .. }))
        )
    };
    (value != 0 && !bare_constant).then_some(StaticPlace::Address(value))
}

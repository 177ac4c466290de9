//! Variables with a fixed address, as DWARF states them, by address.

use std::ops::Range;
use std::sync::Arc;

use gimli::{Section, UnitOffset};

use crate::debug_info::DebugInfo;
use crate::dwarf_file::UnitHandle;
use crate::error::Diagnostic;
use crate::types::{TypeId, TypeRef};
use crate::unit_index::{StaticPlace, StaticVariable};

/// What the debug information says of a global, static or thread-local variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableInfo {
    /// Source name with the scopes it is in: `ns::table`, `func::counter`.
    pub name: String,
    /// C spelling of its type, e.g. `int*`, `struct node[16]`.
    pub type_name: Option<String>,
    /// The type, for [`crate::Module::content_of`] and [`crate::Module::struct_field`].
    pub type_ref: Option<TypeRef>,
    /// File of the declaration.
    pub decl_file: Option<Arc<str>>,
    /// Line of the declaration.
    pub decl_line: Option<u32>,
    /// Size in bytes, if the type is complete.
    pub size: Option<u64>,
    /// First address (svma), or offset in the TLS segment.
    pub start: u64,
}

/// One variable of the table.
#[derive(Clone)]
pub(crate) struct StaticEntry<'a> {
    pub(crate) start: u64,
    pub(crate) size: Option<u64>,
    pub(crate) unit: UnitHandle<'a>,
    pub(crate) die: UnitOffset,
}

impl<'a> StaticEntry<'a> {
    fn new(debug: &DebugInfo<'a>, unit: &UnitHandle<'a>, variable: &StaticVariable, start: u64) -> Self {
        let size = debug.variable_type(unit, variable.die).and_then(|id| debug.size_of(&id));
        Self { start, size, unit: unit.clone(), die: variable.die }
    }
}

/// By address. Of several at one address (a Fortran common block and its first member, unions of
/// storage) the one with a known, larger size stays.
fn sort(list: &mut Vec<StaticEntry<'_>>) {
    list.sort_by_key(|entry| (entry.start, std::cmp::Reverse(entry.size.unwrap_or(0))));
    list.dedup_by_key(|entry| entry.start);
}

/// Where in `.debug_info` variables' locations seem to stand, found by their bytes without parsing:
/// an operation, a number in 8 bytes (and another operation). What only looks like a location is
/// found out when the unit around it is read.
///
/// Compilers write such locations this way since DWARF 2 (`DW_OP_addr`; for thread-local variables
/// `DW_OP_const8u` and `DW_OP_form_tls_address` or `DW_OP_GNU_push_tls_address`). DWARF 5 can keep the
/// addresses in `.debug_addr` instead (`DW_OP_addrx`, as clang and rustc do): where that section is,
/// there is no such list.
#[derive(Default)]
pub(crate) struct LocationHints {
    /// Address and offset in `.debug_info`, sorted.
    addressed: Vec<(u64, usize)>,
    /// Offset in the TLS segment and offset in `.debug_info`, sorted.
    thread_local: Vec<(u64, usize)>,
}

impl LocationHints {
    /// Looks through `info` for variables in `data` (svmas) and in a TLS segment of `tls_bytes`. One
    /// pass at memory speed.
    fn find(info: &[u8], data: &Range<u64>, tls_bytes: u64) -> Self {
        const ADDR: u8 = gimli::DW_OP_addr.0;
        const CONST8U: u8 = gimli::DW_OP_const8u.0;
        let mut hints = Self::default();
        for at in memchr::memchr2_iter(ADDR, CONST8U, info) {
            let Some(number) = info.get(at + 1..at + 9).and_then(|bytes| bytes.try_into().ok()) else {
                break;
            };
            let number = u64::from_le_bytes(number);
            if info[at] == ADDR {
                if data.contains(&number) {
                    hints.addressed.push((number, at));
                }
            } else if number < tls_bytes
                && info.get(at + 9).is_some_and(|&next| {
                    next == gimli::DW_OP_form_tls_address.0 || next == gimli::DW_OP_GNU_push_tls_address.0
                })
            {
                hints.thread_local.push((number, at));
            }
        }
        hints.addressed.sort_unstable();
        hints.thread_local.sort_unstable();
        hints
    }
}

/// What a question about a variable needs to know of the module.
#[derive(Clone, Debug)]
pub(crate) struct DataExtent {
    /// The module's data (svma).
    pub(crate) data: Range<u64>,
    /// Bytes of its TLS segment.
    pub(crate) tls_bytes: u64,
}

/// All static variables, sorted by address, one per address.
#[derive(Default)]
pub(crate) struct StaticTable<'a> {
    pub(crate) addressed: Vec<StaticEntry<'a>>,
    pub(crate) thread_local: Vec<StaticEntry<'a>>,
}

impl<'a> StaticTable<'a> {
    /// Reads every unit once.
    pub(crate) fn build(debug: &DebugInfo<'a>) -> Self {
        let mut table = Self::default();
        for unit in debug.units() {
            if unit.is_type_unit() {
                continue;
            }
            let Some(index) = unit.index() else { continue };
            if let Some(error) = index.damage {
                debug.diagnostics.borrow_mut().push(Diagnostic::Dwarf(error.to_string()));
            }
            for variable in &index.statics {
                match variable.place {
                    StaticPlace::Address(svma) => {
                        table.addressed.push(StaticEntry::new(debug, &unit, variable, svma));
                    }
                    StaticPlace::Tls(offset) => {
                        table.thread_local.push(StaticEntry::new(debug, &unit, variable, offset));
                    }
                }
            }
        }
        sort(&mut table.addressed);
        sort(&mut table.thread_local);
        table
    }

    /// The variable that covers `address`: its index in the list.
    pub(crate) fn covering(list: &[StaticEntry<'a>], address: u64) -> Option<usize> {
        let after = list.partition_point(|entry| entry.start <= address);
        let at = after.checked_sub(1)?;
        (address - list[at].start < list[at].size.unwrap_or(1).max(1)).then_some(at)
    }
}

impl<'a> DebugInfo<'a> {
    /// The table of all variables. First use reads every unit once.
    pub(crate) fn static_table(&self) -> &StaticTable<'a> {
        self.statics.get_or_init(|| StaticTable::build(self))
    }

    /// The variables whose locations start in `range` (svmas, or offsets in the TLS segment), sorted, one
    /// an address. Only the units concerned are read, where the debug information allows that; otherwise
    /// [`Self::static_table`] is made.
    pub(crate) fn statics_in(
        &self,
        range: Range<u64>,
        tls: bool,
        extent: &DataExtent,
    ) -> Vec<StaticEntry<'a>> {
        let Some(main) = &self.main else { return Vec::new() };
        let hints = match self.statics.get() {
            Some(_) => None,
            None if !main.dwarf.debug_addr.reader().is_empty() => None,
            None => Some(self.location_hints.get_or_init(|| {
                LocationHints::find(main.dwarf.debug_info.reader().slice(), &extent.data, extent.tls_bytes)
            })),
        };
        let Some(hints) = hints else { return self.table_part(range, tls) };
        let list = if tls { &hints.thread_local } else { &hints.addressed };
        let first = list.partition_point(|hint| hint.0 < range.start);
        let mut slots: Vec<usize> = list[first..]
            .iter()
            .take_while(|hint| hint.0 < range.end)
            .filter_map(|hint| main.slot_of(gimli::DebugInfoOffset(hint.1)))
            .collect();
        slots.sort_unstable();
        slots.dedup();
        let mut found = Vec::new();
        for slot in slots {
            let unit = UnitHandle { file: main.clone(), slot };
            let Some(summary) = unit.summary().filter(|_| !unit.is_type_unit()) else { continue };
            for variable in summary.statics_in(range.clone(), tls) {
                let (StaticPlace::Address(start) | StaticPlace::Tls(start)) = variable.place;
                found.push(StaticEntry::new(self, &unit, variable, start));
            }
        }
        if tls && found.is_empty() {
            // There are more ways to spell such a location.
            return self.table_part(range, tls);
        }
        sort(&mut found);
        found
    }

    fn table_part(&self, range: Range<u64>, tls: bool) -> Vec<StaticEntry<'a>> {
        let table = self.static_table();
        let list = if tls { &table.thread_local } else { &table.addressed };
        let first = list.partition_point(|entry| entry.start < range.start);
        let end = list.partition_point(|entry| entry.start < range.end);
        list.get(first..end).unwrap_or_default().to_vec()
    }

    /// The type of a variable: that of a Fortran common block is the block itself, whose members it has.
    fn variable_type(&self, unit: &UnitHandle<'a>, die: UnitOffset) -> Option<TypeId<'a>> {
        let (tag, attributes) = unit.entry(die)?;
        match tag {
            gimli::DW_TAG_common_block => Some((unit.clone(), die)),
            _ => self.type_of(unit, &attributes),
        }
    }

    /// The only variable of a unit with a fixed place and this name, its scopes not counted.
    pub(crate) fn static_named(&self, unit: &UnitHandle<'a>, name: &str) -> Option<VariableInfo> {
        let summary = unit.summary()?;
        let has_name = |variable: &&StaticVariable| {
            let entry = unit.entry(variable.die);
            entry.is_some_and(|(_, attributes)| self.name_of(unit, &attributes) == Some(name))
        };
        let mut named = summary.statics.iter().filter(has_name);
        let variable = named.next().filter(|_| named.next().is_none())?;
        let (StaticPlace::Address(start) | StaticPlace::Tls(start)) = variable.place;
        self.variable_info(&StaticEntry::new(self, unit, variable, start))
    }

    pub(crate) fn variable_info(&self, entry: &StaticEntry<'a>) -> Option<VariableInfo> {
        let (tag, attributes) = entry.unit.entry(entry.die)?;
        let name = match tag {
            // Whatever subprogram it is declared in.
            gimli::DW_TAG_common_block => self.name_of(&entry.unit, &attributes)?.to_owned(),
            _ => self.qualified_name(&entry.unit, entry.die)?.0,
        };
        let type_id = self.variable_type(&entry.unit, entry.die);
        let (decl_file, decl_line) = self.declaration(&entry.unit, &attributes);
        Some(VariableInfo {
            name,
            type_name: type_id.as_ref().map(|id| self.type_name(Some(id))),
            type_ref: type_id.as_ref().map(|id| self.type_ref(id)),
            decl_file,
            decl_line,
            size: entry.size,
            start: entry.start,
        })
    }
}

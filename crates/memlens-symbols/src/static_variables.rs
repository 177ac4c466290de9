//! Variables with a fixed address, as DWARF states them, by address.

use std::sync::Arc;

use gimli::UnitOffset;

use crate::debug_info::DebugInfo;
use crate::dwarf_file::UnitHandle;
use crate::error::Diagnostic;
use crate::types::TypeRef;
use crate::unit_index::StaticPlace;

/// What the debug information says of a global, static or thread-local variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableInfo {
    /// Source name with the scopes it is in: `ns::table`, `func::counter`.
    pub name: String,
    /// C spelling of its type, e.g. `int*`, `struct node[16]`.
    pub type_name: Option<String>,
    /// The type, for [`crate::Module::struct_field`].
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
pub(crate) struct StaticEntry<'a> {
    pub(crate) start: u64,
    pub(crate) size: Option<u64>,
    pub(crate) unit: UnitHandle<'a>,
    pub(crate) die: UnitOffset,
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
                let size = unit.entry(variable.die).and_then(|(_, attributes)| {
                    debug.type_of(&unit, &attributes).and_then(|id| debug.size_of(&id))
                });
                let entry = |start| StaticEntry { start, size, unit: unit.clone(), die: variable.die };
                match variable.place {
                    StaticPlace::Address(svma) => table.addressed.push(entry(svma)),
                    StaticPlace::Tls(offset) => table.thread_local.push(entry(offset)),
                }
            }
        }
        for list in [&mut table.addressed, &mut table.thread_local] {
            // Of several at one address (a Fortran common block and its first member, unions of
            // storage) the one with a known, larger size stays.
            list.sort_by_key(|entry| (entry.start, std::cmp::Reverse(entry.size.unwrap_or(0))));
            list.dedup_by_key(|entry| entry.start);
        }
        table
    }

    /// The variable that covers `address`.
    pub(crate) fn covering(list: &[StaticEntry<'a>], address: u64) -> Option<usize> {
        let after = list.partition_point(|entry| entry.start <= address);
        let at = after.checked_sub(1)?;
        (address - list[at].start < list[at].size.unwrap_or(1).max(1)).then_some(at)
    }
}

impl<'a> DebugInfo<'a> {
    pub(crate) fn static_table(&self) -> &StaticTable<'a> {
        self.statics.get_or_init(|| StaticTable::build(self))
    }

    pub(crate) fn variable_info(&self, entry: &StaticEntry<'a>) -> Option<VariableInfo> {
        let (_, attributes) = entry.unit.entry(entry.die)?;
        let (name, _) = self.qualified_name(&entry.unit, entry.die)?;
        let type_id = self.type_of(&entry.unit, &attributes);
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

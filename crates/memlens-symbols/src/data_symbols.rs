//! The table of a module's variables: ELF symbols joined with DWARF.

use std::ops::Range;

use crate::debug_info::DebugInfo;
use crate::demangle::{demangle, strip_local_suffix, strip_version};
use crate::section::Section;
use crate::static_variables::{StaticEntry, StaticTable};
use crate::symbol_table::{Symbol, SymbolTable, SymbolType};

/// How far a variable is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataKind {
    /// Visible to other modules or units.
    Global,
    /// Local to a unit or function.
    Static,
    /// Thread-local: one for each thread.
    Tls,
}

/// A variable of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSymbol {
    /// First address (svma); for [`DataKind::Tls`] the offset in the module's TLS segment.
    pub svma: u64,
    /// Size in bytes, at least 1; `svma + size` does not overflow.
    pub size: u64,
    /// Source name.
    pub name: String,
    /// The section it lies in, e.g. `.bss`; empty if none covers it.
    pub section: String,
    /// Visibility.
    pub kind: DataKind,
}

/// All variables sorted by address, TLS ones last, none overlapping. What only DWARF knows fills
/// the gaps between symbols.
pub(crate) fn build(
    symbols: &SymbolTable,
    sections: &[Section],
    debug: Option<&DebugInfo<'_>>,
) -> Vec<DataSymbol> {
    let (addressed, thread_local) = symbols.data();
    let statics = debug.map(|debug| (debug, debug.static_table()));
    let mut list =
        join(symbols, addressed, statics.map(|(d, t)| (d, t.addressed.as_slice())), false, sections);
    list.extend(join(
        symbols,
        thread_local,
        statics.map(|(d, t)| (d, t.thread_local.as_slice())),
        true,
        sections,
    ));
    list
}

/// The name of a variable of a function, with the function's.
pub(crate) fn scoped_name<'a>(debug: &DebugInfo<'a>, entry: &StaticEntry<'a>) -> Option<String> {
    let (name, _) = debug.qualified_name(&entry.unit, entry.die).filter(|(_, in_function)| *in_function)?;
    Some(name)
}

fn section_name(sections: &[Section], tls: bool, address: u64) -> String {
    if tls {
        let has_data = sections.iter().any(|section| section.name == ".tdata");
        return String::from(if has_data { ".tdata" } else { ".tbss" });
    }
    sections.iter().find(|s| s.contains(address)).map(|s| s.name.clone()).unwrap_or_default()
}

/// The variable of an ELF symbol; `scoped` is a better name than the symbol's.
pub(crate) fn named(
    symbols: &SymbolTable,
    symbol: &Symbol,
    scoped: Option<String>,
    sections: &[Section],
) -> DataSymbol {
    let tls = symbol.kind == SymbolType::Tls;
    let raw = symbols.name(symbol);
    let name = scoped
        .unwrap_or_else(|| demangle(strip_local_suffix(strip_version(raw)), symbols.fortran).into_owned());
    DataSymbol {
        svma: symbol.svma,
        size: symbol.size,
        name,
        section: section_name(sections, tls, symbol.svma),
        kind: match (tls, symbol.local) {
            (true, _) => DataKind::Tls,
            (false, true) => DataKind::Static,
            (false, false) => DataKind::Global,
        },
    }
}

/// What lies at an address among a module's variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataPlace {
    /// A variable, with its range.
    Variable(Range<u64>),
    /// No variable; the range is that between the neighbouring ones.
    Gap(Range<u64>),
}

/// The place of `address` among ranges sorted by start, none overlapping.
pub(crate) fn place(ranges: impl Fn(usize) -> Option<Range<u64>>, after: usize, address: u64) -> DataPlace {
    let before = after.checked_sub(1).and_then(&ranges);
    match before {
        Some(range) if address < range.end => DataPlace::Variable(range),
        before => {
            let start = before.map_or(0, |range| range.end);
            DataPlace::Gap(start..ranges(after).map_or(u64::MAX, |range| range.start))
        }
    }
}

fn join<'a>(
    symbols: &SymbolTable,
    known: &[Symbol],
    statics: Option<(&DebugInfo<'a>, &[StaticEntry<'a>])>,
    tls: bool,
    sections: &[Section],
) -> Vec<DataSymbol> {
    let section_of = |address: u64| section_name(sections, tls, address);
    let mut list: Vec<DataSymbol> = known
        .iter()
        .map(|symbol| {
            // A function's static is found in the debug information under its scoped name.
            let scoped = statics.filter(|_| symbol.local).and_then(|(debug, entries)| {
                let at = StaticTable::covering(entries, symbol.svma)?;
                scoped_name(debug, entries.get(at).filter(|entry| entry.start == symbol.svma)?)
            });
            named(symbols, symbol, scoped, sections)
        })
        .collect();
    let Some((debug, entries)) = statics else { return list };
    let mut extra = Vec::new();
    for entry in entries {
        let Some(size) = entry.size.filter(|&size| size > 0) else { continue };
        let Some(end) = entry.start.checked_add(size) else { continue };
        let after = list.partition_point(|symbol| symbol.svma <= entry.start);
        let free_before =
            after == 0 || list[after - 1].svma.saturating_add(list[after - 1].size) <= entry.start;
        let free_after = list.get(after).is_none_or(|next| end <= next.svma);
        let section = section_of(entry.start);
        if !free_before || !free_after || section.is_empty() {
            continue;
        }
        let Some((name, in_function)) = debug.qualified_name(&entry.unit, entry.die) else { continue };
        let external = !in_function
            && entry.unit.entry(entry.die).is_some_and(|(_, attributes)| {
                debug.inherited(&entry.unit, &attributes, gimli::DW_AT_external).is_some()
            });
        let kind = match (tls, external) {
            (true, _) => DataKind::Tls,
            (false, true) => DataKind::Global,
            (false, false) => DataKind::Static,
        };
        extra.push(DataSymbol { svma: entry.start, size, name, section, kind });
    }
    let mut end = 0;
    extra.retain(|symbol: &DataSymbol| {
        let keep = symbol.svma >= end;
        if keep {
            end = symbol.svma.saturating_add(symbol.size);
        }
        keep
    });
    list.extend(extra);
    list.sort_by_key(|symbol| symbol.svma);
    list
}

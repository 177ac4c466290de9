//! Source positions with the inlined calls they are in.

use std::sync::Arc;

use gimli::{AttributeValue, UnitOffset};

use crate::debug_info::DebugInfo;
use crate::dwarf_file::{MAX_REFERENCES, UnitHandle, attribute, ranges};

/// One level of the calls at an address, as the debug information spells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawFrame<'a> {
    pub(crate) function: Option<FunctionName<'a>>,
    pub(crate) file: Option<Arc<str>>,
    /// From 1; 0: unknown.
    pub(crate) line: u32,
    /// From 1; 0: unknown.
    pub(crate) column: u32,
}

/// A call that was inlined.
struct InlinedCall {
    die: UnitOffset,
    /// How many inlined calls it is in.
    depth: u32,
    /// Where the call stands in the source: file index, line, column.
    file: Option<u64>,
    line: u32,
    column: u32,
}

/// All inlined calls in one function.
pub(crate) struct InlineCalls {
    calls: Vec<InlinedCall>,
    /// Code range and index of the call; several for a call whose code is not in one piece.
    ranges: Vec<(u64, u64, u32)>,
}

impl InlineCalls {
    /// Reads the function at `die`. What follows damage is missing.
    fn read(unit: &UnitHandle<'_>, die: UnitOffset) -> Self {
        let mut list = Self { calls: Vec::new(), ranges: Vec::new() };
        let _ = list.read_into(unit, die);
        list
    }

    fn read_into(&mut self, handle: &UnitHandle<'_>, die: UnitOffset) -> Option<()> {
        let unit = handle.unit()?;
        let mut entries = unit.entries_raw(Some(die)).ok()?;
        let mut attributes = Vec::new();
        // Depths of the entries of inlined calls around the present one.
        let mut around: Vec<isize> = Vec::new();
        let mut skip: Option<isize> = None;
        let mut is_first = true;
        while !entries.is_empty() {
            let depth = entries.next_depth();
            if depth <= 0 && !is_first {
                break;
            }
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation().ok()? else { continue };
            let tag = abbreviation.tag();
            if skip.is_some_and(|level| depth <= level) {
                skip = None;
            }
            while around.last().is_some_and(|&level| level >= depth) {
                around.pop();
            }
            let is_inlined = tag == gimli::DW_TAG_inlined_subroutine && skip.is_none() && !is_first;
            if !is_inlined {
                entries.skip_attributes(abbreviation.attributes()).ok()?;
                if !is_first && skip.is_none() && tag == gimli::DW_TAG_subprogram {
                    // A nested function is asked about by itself.
                    skip = Some(depth);
                }
                if is_first && !abbreviation.has_children() {
                    break;
                }
                is_first = false;
                continue;
            }
            attributes.clear();
            entries.read_attributes(abbreviation.attributes(), &mut attributes).ok()?;
            let number = |name| {
                let value = attribute(&attributes, name).and_then(|value| value.udata_value());
                value.and_then(|value| u32::try_from(value).ok()).unwrap_or(0)
            };
            let file = match attribute(&attributes, gimli::DW_AT_call_file) {
                Some(AttributeValue::FileIndex(index)) => Some(index),
                Some(value) => value.udata_value(),
                None => None,
            };
            let index = self.calls.len() as u32;
            self.calls.push(InlinedCall {
                die: offset,
                depth: around.len() as u32,
                // Before DWARF 5 file 0 is none.
                file: file.filter(|&index| index > 0 || unit.header.version() >= 5),
                line: number(gimli::DW_AT_call_line),
                column: number(gimli::DW_AT_call_column),
            });
            let own = ranges(handle.dwarf(), &unit, &attributes);
            self.ranges.extend(own.into_iter().map(|(start, end)| (start, end, index)));
            if abbreviation.has_children() {
                around.push(depth);
            }
        }
        Some(())
    }

    /// The calls that hold `svma`, outermost first, one of each depth.
    fn at(&self, svma: u64) -> Vec<&InlinedCall> {
        let holding = self.ranges.iter().filter(|&&(start, end, _)| (start..end).contains(&svma));
        let mut calls: Vec<&InlinedCall> =
            holding.filter_map(|&(_, _, index)| self.calls.get(index as usize)).collect();
        calls.sort_by_key(|call| call.depth);
        calls.dedup_by_key(|call| call.depth);
        // A call whose surrounding call does not hold the address is damage.
        let nested = calls.iter().enumerate().take_while(|(at, call)| *at == call.depth as usize).count();
        calls.truncate(nested);
        calls
    }
}

/// What debug information calls a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FunctionName<'a> {
    /// For the linker, or as in the source if that is all.
    pub(crate) linker: &'a str,
    /// In the source, without what it is in.
    pub(crate) source: Option<&'a str>,
    pub(crate) language: gimli::DwLang,
}

impl<'a> DebugInfo<'a> {
    /// The source frames at `svma`, innermost first; none where no unit has code or lines.
    ///
    /// Cost: the unit is parsed if it is not among the last ones, and a function's inlined calls are
    /// read anew when another function was asked about before: ask in the order of addresses.
    pub(crate) fn frames_at(&self, svma: u64) -> Vec<RawFrame<'a>> {
        let Some(unit) = self.unit_at(svma) else { return Vec::new() };
        let lines_of = self.line_unit(&unit);
        let row = lines_of.as_ref().and_then(|unit| unit.unit()?.lines().at(svma).copied());
        let mut place = RawFrame::default();
        if let Some(row) = row {
            place.file = self.file_name(&unit, u64::from(row.file));
            (place.line, place.column) = (row.line, if row.line > 0 { row.column } else { 0 });
        }
        let Some((_, _, die)) = unit.summary().and_then(|summary| summary.function_at(svma)) else {
            return if row.is_some() { vec![place] } else { Vec::new() };
        };
        let calls = self.inline_calls(&unit, die);
        let mut frames = Vec::new();
        for call in calls.at(svma).into_iter().rev() {
            let outer = RawFrame {
                function: None,
                file: call.file.and_then(|index| self.file_name(&unit, index)),
                line: call.line,
                column: call.column,
            };
            let function = self.function_name(&unit, call.die);
            frames.push(RawFrame { function, ..std::mem::replace(&mut place, outer) });
        }
        place.function = self.function_name(&unit, die);
        frames.push(place);
        frames
    }

    /// The functions at `svma`, innermost first: those inlined there, as they were, and the one that they are in.
    pub(crate) fn functions_at(&self, svma: u64) -> Vec<(UnitHandle<'a>, UnitOffset)> {
        let Some((unit, die)) = self.function_at(svma) else { return Vec::new() };
        let calls = self.inline_calls(&unit, die);
        let inlined = calls.at(svma).into_iter().rev().map(|call| call.die);
        inlined.chain([die]).map(|die| (unit.clone(), die)).collect()
    }

    /// How many of the inlined calls at `svma`, from the innermost one, hand a result on that is still
    /// there at one of the addresses `reached`: they return what can hold an address, and one of these
    /// addresses is in none of their code.
    pub(crate) fn inlined_that_return(&self, svma: u64, reached: &[u64]) -> usize {
        let Some((unit, die)) = self.function_at(svma) else { return 0 };
        let calls = self.inline_calls(&unit, die);
        let returns_address = |call: &InlinedCall| {
            let (_, attributes) = unit.entry(call.die)?;
            Some(self.holds_address(&self.type_of(&unit, &attributes)?))
        };
        let hands_on = |call: &&InlinedCall| {
            let left = |&address: &u64| !calls.at(address).iter().any(|other| other.die == call.die);
            reached.iter().any(left) && returns_address(call) == Some(true)
        };
        calls.at(svma).into_iter().rev().take_while(hands_on).count()
    }

    /// The inlined calls of the function at `die`; those of the last one are kept.
    fn inline_calls(&self, unit: &UnitHandle<'a>, die: UnitOffset) -> Arc<InlineCalls> {
        let key = (unit.file.id, unit.slot, die);
        if let Some((known, calls)) = &*self.last_inline_calls.borrow()
            && *known == key
        {
            return calls.clone();
        }
        let calls = Arc::new(InlineCalls::read(unit, die));
        *self.last_inline_calls.borrow_mut() = Some((key, calls.clone()));
        calls
    }

    /// What a function is called: its own name, or that of what it instantiates or completes.
    fn function_name(&self, unit: &UnitHandle<'a>, die: UnitOffset) -> Option<FunctionName<'a>> {
        let language = unit.language();
        let (mut unit, mut die) = (unit.clone(), die);
        for _ in 0..MAX_REFERENCES {
            let (_, attributes) = unit.entry(die)?;
            let text = |name| unit.string(attribute(&attributes, name)?);
            let linker =
                [gimli::DW_AT_linkage_name, gimli::DW_AT_MIPS_linkage_name].into_iter().find_map(text);
            let source = text(gimli::DW_AT_name);
            if let Some(linker) = linker.or(source) {
                return Some(FunctionName { linker, source, language });
            }
            let link = attribute(&attributes, gimli::DW_AT_abstract_origin)
                .or_else(|| attribute(&attributes, gimli::DW_AT_specification))?;
            (unit, die) = unit.resolve(link, self.sup.as_ref())?;
        }
        None
    }
}

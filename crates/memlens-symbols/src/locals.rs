//! Locals and parameters of a function, with everything their locations tell.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use gimli::{Dwarf, Unit, UnitOffset};
use rustc_hash::FxHashMap;

use crate::assigned_variable::is_library;
use crate::call_frames::CfaRow;
use crate::debug_info::DebugInfo;
use crate::dwarf_file::{Bytes, UnitHandle, Value, attribute, ranges};
use crate::inline_calls::RawFrame;
use crate::place::{FrameBase, Place, locations, pieces};
use crate::types::{TypeId, TypeRef};

/// A local or parameter that lives in memory of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameVariable {
    /// Source name.
    pub name: Arc<str>,
    /// C spelling of its type.
    pub type_name: Option<Arc<str>>,
    /// The type, for [`crate::Module::content_of`] and [`crate::Module::struct_field`].
    pub type_ref: Option<TypeRef>,
    /// File of the declaration.
    pub decl_file: Option<Arc<str>>,
    /// Line of the declaration.
    pub decl_line: Option<u32>,
    /// Where it starts, in bytes relative to the canonical frame address (mostly negative).
    pub cfa_offset: i64,
    /// How many bytes of it lie there.
    pub size_bytes: u64,
    /// Which byte of the variable lies at `cfa_offset`; not 0 only if optimisation split it.
    pub part_start: u64,
    /// The pcs (svma) for which it lies there.
    pub pc_ranges: Arc<[Range<u64>]>,
    /// Whether it is a parameter.
    pub is_parameter: bool,
    /// The inlined function whose variable it is; None for the function itself.
    pub inlined_from: Option<Arc<str>>,
}

/// One local, wherever it lives.
pub(crate) struct Local<'a> {
    pub(crate) name: Arc<str>,
    pub(crate) type_id: Option<TypeId<'a>>,
    pub(crate) decl_file: Option<Arc<str>>,
    pub(crate) decl_line: Option<u32>,
    pub(crate) is_parameter: bool,
    /// How many inlined calls deep it is; 0 in the function itself.
    pub(crate) inline_depth: u32,
    pub(crate) inlined_from: Option<Arc<str>>,
    /// Whether it belongs to an inlined function of the language's library.
    pub(crate) of_library: bool,
    /// By rising start. None if it was optimised away.
    pub(crate) places: Vec<LocalPlace>,
    /// The longest range of pcs among them.
    longest: u64,
}

impl Local<'_> {
    /// Those of the places whose ranges of pcs meet `[start, end)`. Cost: of an interpreter's loop a local has thousands of places,
    /// most of them for a few instructions.
    pub(crate) fn places_in(&self, start: u64, end: u64) -> impl Iterator<Item = &LocalPlace> {
        let before_end = &self.places[..self.places.partition_point(|place| place.start < end)];
        let first = before_end.partition_point(|place| place.start.saturating_add(self.longest) <= start);
        before_end[first..].iter().filter(move |place| start < place.end)
    }

    /// Whether the variable, of the function itself, is declared behind the line that is executed there: then what is in its slot is another's,
    /// whose scope has ended before. Debug information has it there for all of its scope, in which others may share the slot.
    pub(crate) fn is_behind(&self, outermost: &RawFrame<'_>) -> bool {
        let is_own = self.inline_depth == 0 && !self.is_parameter && outermost.line > 0;
        is_own
            && self.decl_line.is_some_and(|line| line > outermost.line)
            && self.decl_file.is_some()
            && self.decl_file == outermost.file
    }

    /// Whether a store at `pc` ends all that is known of the variable, which was at `place` until then: it is used no more, its slot is
    /// another's, and what is stored is that one's. Compilers let the debug information keep the variable there up to the store.
    pub(crate) fn ends_with_store(&self, place: &LocalPlace, pc: u64) -> bool {
        const LONGEST_INSTRUCTION: u64 = 15;
        let end = place.end;
        // A scope may end here.
        !place.of_scope
            && (place.start..end).contains(&pc)
            && end - pc <= LONGEST_INSTRUCTION
            && self.places_in(end, end.saturating_add(1)).next().is_none()
    }
}

/// Where a variable, or a part of it, is for a range of pcs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalPlace {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The byte of the variable that it begins with.
    pub(crate) part_start: u64,
    /// How many bytes; None: the rest.
    pub(crate) part_size: Option<u64>,
    pub(crate) place: Place,
    /// Whether the debug information says it for the scope as a whole, not for ranges of code.
    of_scope: bool,
}

/// Offset from the CFA, byte of the variable, size.
type InFrame = (i64, u64, u64);

/// The locals of one physical function.
pub(crate) struct FunctionLocals<'a> {
    pub(crate) locals: Vec<Local<'a>>,
    /// By DWARF number, once [`Self::in_register`] was asked.
    registers: OnceLock<FxHashMap<u16, RegisterUses>>,
}

/// When a register holds locals.
#[derive(Default)]
struct RegisterUses {
    /// Range of pcs, and which local it is, by rising start.
    uses: Vec<(u64, u64, u32)>,
    /// The longest range among them.
    longest: u64,
}

struct OpenScope {
    depth: isize,
    ranges: Arc<[Range<u64>]>,
    inline_depth: u32,
    inlined_from: Option<Arc<str>>,
    of_library: bool,
}

impl<'a> FunctionLocals<'a> {
    pub(crate) fn read(debug: &DebugInfo<'a>, unit_handle: &UnitHandle<'a>, die: UnitOffset) -> Self {
        let mut locals = Vec::new();
        let _ = read_locals(debug, unit_handle, die, &mut locals);
        // They are kept.
        locals.shrink_to_fit();
        Self { locals, registers: OnceLock::new() }
    }

    /// The locals that are, or of which a part is, in a register (DWARF number) before the instruction at `pc`, in their order.
    /// Cost: the first time all places of the function. An interpreter's loop has hundreds of locals with thousands of places
    /// each, and is asked about many times.
    pub(crate) fn in_register(&self, register: u16, pc: u64) -> impl Iterator<Item = &Local<'a>> {
        let registers = self.registers.get_or_init(|| self.uses_of_registers());
        let mut found: Vec<u32> =
            registers.get(&register).map_or(Vec::new(), |RegisterUses { uses, longest }| {
                let begun = &uses[..uses.partition_point(|&(start, ..)| start <= pc)];
                let first = begun.partition_point(|&(start, ..)| start.saturating_add(*longest) <= pc);
                begun[first..].iter().filter(|&&(_, end, _)| pc < end).map(|&(.., local)| local).collect()
            });
        found.sort_unstable();
        found.dedup();
        found.into_iter().map(|local| &self.locals[local as usize])
    }

    fn uses_of_registers(&self) -> FxHashMap<u16, RegisterUses> {
        let mut registers: FxHashMap<u16, RegisterUses> = FxHashMap::default();
        for (number, local) in (0..).zip(&self.locals) {
            for place in &local.places {
                if let Place::Register(register) = place.place {
                    let of_register = registers.entry(register).or_default();
                    of_register.uses.push((place.start, place.end, number));
                    of_register.longest = of_register.longest.max(place.end.saturating_sub(place.start));
                }
            }
        }
        for RegisterUses { uses, .. } in registers.values_mut() {
            uses.sort_unstable();
            // They are kept.
            uses.shrink_to_fit();
        }
        registers
    }

    /// Those in memory of the frame, register-based places converted by the CFA rule of each row.
    pub(crate) fn in_frame(&self, debug: &DebugInfo<'a>, rows: &[CfaRow]) -> Arc<[FrameVariable]> {
        in_frame(debug, &self.locals, rows)
    }
}

fn read_locals<'a>(
    debug: &DebugInfo<'a>,
    handle: &UnitHandle<'a>,
    die: UnitOffset,
    locals: &mut Vec<Local<'a>>,
) -> Option<()> {
    let unit = &*handle.unit()?;
    let dwarf = handle.dwarf();
    let mut entries = unit.entries_raw(Some(die)).ok()?;
    let mut scopes: Vec<OpenScope> = Vec::new();
    let mut attributes = Vec::new();
    let mut base = FrameBase::default();
    let mut skip: Option<isize> = None;
    while !entries.is_empty() {
        let depth = entries.next_depth();
        if depth <= 0 && !scopes.is_empty() {
            break;
        }
        let abbreviation = match entries.read_abbreviation() {
            Ok(Some(abbreviation)) => abbreviation,
            Ok(None) => continue,
            Err(_) => break,
        };
        if skip.is_some_and(|level| depth > level) {
            entries.skip_attributes(abbreviation.attributes()).ok()?;
            continue;
        }
        skip = None;
        attributes.clear();
        entries.read_attributes(abbreviation.attributes(), &mut attributes).ok()?;
        while scopes.last().is_some_and(|scope| scope.depth >= depth) {
            scopes.pop();
        }
        let own_ranges = || -> Arc<[Range<u64>]> {
            ranges(dwarf, unit, &attributes).into_iter().map(|(start, end)| start..end).collect()
        };
        let tag = abbreviation.tag();
        let Some(outer) = scopes.last() else {
            if let Some(value) = attribute(&attributes, gimli::DW_AT_frame_base) {
                base = FrameBase::read(dwarf, unit, value);
            }
            let ranges = own_ranges();
            scopes.push(OpenScope { depth, ranges, inline_depth: 0, inlined_from: None, of_library: false });
            if !abbreviation.has_children() {
                break;
            }
            continue;
        };
        match tag {
            gimli::DW_TAG_lexical_block | gimli::DW_TAG_inlined_subroutine => {
                let mut ranges = own_ranges();
                if ranges.is_empty() {
                    ranges = outer.ranges.clone();
                }
                let inlined = tag == gimli::DW_TAG_inlined_subroutine;
                let inlined_from = if inlined {
                    debug.name_of(handle, &attributes).map(Arc::from)
                } else {
                    outer.inlined_from.clone()
                };
                let inline_depth = outer.inline_depth + u32::from(inlined);
                // By the function's declaration: a method's `this` has none.
                let of_library = if inlined {
                    debug.declaration(handle, &attributes).0.is_some_and(|file| is_library(&file))
                } else {
                    outer.of_library
                };
                scopes.push(OpenScope { depth, ranges, inline_depth, inlined_from, of_library });
            }
            gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter => {
                if abbreviation.has_children() {
                    skip = Some(depth);
                }
                let places = attribute(&attributes, gimli::DW_AT_location)
                    .map(|location| local_places(dwarf, unit, location, &outer.ranges, &base))
                    .unwrap_or_default();
                // Of the function itself also those that are nowhere: the source text may name them.
                if places.is_empty() && outer.inline_depth > 0 {
                    continue;
                }
                let Some(name) = debug.name_of(handle, &attributes) else { continue };
                let (decl_file, decl_line) = debug.declaration(handle, &attributes);
                locals.push(Local {
                    name: Arc::from(name),
                    type_id: debug.type_of(handle, &attributes),
                    decl_file,
                    decl_line,
                    is_parameter: tag == gimli::DW_TAG_formal_parameter,
                    inline_depth: outer.inline_depth,
                    inlined_from: outer.inlined_from.clone(),
                    of_library: outer.of_library,
                    longest: places.iter().map(|place| place.end - place.start).max().unwrap_or(0),
                    places,
                });
            }
            // Nested functions, local types, call sites: nothing of this frame.
            _ if abbreviation.has_children() => skip = Some(depth),
            _ => {}
        }
    }
    Some(())
}

/// Where a variable of a scope with these ranges lives.
fn local_places<'a>(
    dwarf: &Dwarf<Bytes<'a>>,
    unit: &Unit<Bytes<'a>>,
    location: Value<'a>,
    scope: &[Range<u64>],
    base: &FrameBase,
) -> Vec<LocalPlace> {
    // A plain expression holds in every range of the scope.
    let of_scope = location.exprloc_value().is_some();
    let spans: Vec<(u64, u64)> = if of_scope {
        scope.iter().map(|range| (range.start, range.end)).collect()
    } else {
        vec![(0, u64::MAX)]
    };
    let mut places = Vec::new();
    for span in spans {
        for (start, end, expression) in locations(dwarf, unit, location, span) {
            for (base_start, base_end, frame_base) in base_parts(base) {
                let (start, end) = (start.max(base_start), end.min(base_end));
                if start >= end {
                    continue;
                }
                places.extend(pieces(unit, &expression, frame_base).into_iter().map(|piece| LocalPlace {
                    start,
                    end,
                    part_start: piece.start,
                    part_size: piece.size,
                    place: piece.place,
                    of_scope,
                }));
            }
        }
    }
    places.retain(|place| place.place != Place::Elsewhere);
    places.sort_by_key(|place| place.start);
    places.shrink_to_fit();
    places
}

/// The parts of a frame base; without one, one part in which `DW_OP_fbreg` means nothing.
fn base_parts(base: &FrameBase) -> Vec<(u64, u64, Option<Place>)> {
    if base.parts.is_empty() {
        return vec![(0, u64::MAX, None)];
    }
    base.parts.iter().map(|&(start, end, place)| (start, end, Some(place))).collect()
}

/// Where the return address is, from the canonical frame address: locals are below.
const RETURN_ADDRESS: i64 = -8;

/// The parts of a place's range in which the canonical frame address is a register plus an offset (register = CFA −
/// offset): start, end, offset.
fn rows_with(rows: &[CfaRow], register: u16, place: &LocalPlace) -> impl Iterator<Item = (u64, u64, i64)> {
    let (first, last) = (place.start, place.end);
    rows.iter().filter_map(move |row| {
        let rule = row.rule.filter(|rule| rule.register == register)?;
        let (start, end) = (row.start.max(first), row.end.min(last));
        (start < end).then_some((start, end, rule.offset))
    })
}

/// The offset of the register in a function's body: a location that is said for a whole scope does not hold while the
/// prologue makes the frame, in several steps where it probes each page. It is that of the most code, of those for
/// which the variable is where variables can be.
fn settled(
    rows: &[CfaRow],
    register: u16,
    places: &[LocalPlace],
    can_be: impl Fn(i64) -> bool,
) -> Option<i64> {
    let mut bytes: Vec<(i64, u64)> = Vec::new();
    let of_scope = places.iter().filter(|place| place.of_scope);
    let parts = of_scope.flat_map(|place| rows_with(rows, register, place));
    for (start, end, from_cfa) in parts.filter(|part| can_be(part.2)) {
        match bytes.iter_mut().find(|(known, _)| *known == from_cfa) {
            Some((_, bytes)) => *bytes += end - start,
            None => bytes.push((from_cfa, end - start)),
        }
    }
    bytes.into_iter().max_by_key(|&(from_cfa, bytes)| (bytes, from_cfa)).map(|(from_cfa, _)| from_cfa)
}

fn in_frame<'a>(debug: &DebugInfo<'a>, locals: &[Local<'a>], rows: &[CfaRow]) -> Arc<[FrameVariable]> {
    let mut list = Vec::new();
    for local in locals {
        let whole = local.type_id.as_ref().and_then(|id| debug.size_of(id));
        // One entry for each place; the ranges of equal places are joined.
        let mut found: Vec<(InFrame, Vec<Range<u64>>)> = Vec::new();
        let mut add = |offset: i64, place: &LocalPlace, start: u64, end: u64| {
            let Some(size) = place.part_size.or_else(|| whole.map(|w| w.saturating_sub(place.part_start)))
            else {
                return;
            };
            if size == 0 || start >= end {
                return;
            }
            let key = (offset, place.part_start, size);
            match found.iter_mut().find(|(known, _)| *known == key) {
                Some((_, ranges)) => match ranges.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => ranges.push(start..end),
                },
                None => found.push((key, std::iter::once(start..end).collect())),
            }
        };
        for place in &local.places {
            match place.place {
                Place::Cfa(offset) => add(offset, place, place.start, place.end),
                Place::Based { register, offset } => {
                    let size = place.part_size.or(whole).unwrap_or(1);
                    let is_below = |from_cfa: i64| {
                        local.is_parameter
                            || i64::try_from(size).is_ok_and(|size| {
                                offset.saturating_sub(from_cfa).saturating_add(size) <= RETURN_ADDRESS
                            })
                    };
                    let settled =
                        place.of_scope.then(|| settled(rows, register, &local.places, is_below)).flatten();
                    for (start, end, from_cfa) in rows_with(rows, register, place) {
                        match settled {
                            // The frame is not there yet, or no more.
                            Some(settled) if from_cfa < settled => {}
                            // Arguments of a call are pushed below it.
                            Some(settled) => add(offset.wrapping_sub(settled), place, start, end),
                            None => add(offset.wrapping_sub(from_cfa), place, start, end),
                        }
                    }
                }
                Place::Register(_) | Place::BehindCfa(_) | Place::BehindBased { .. } | Place::Elsewhere => {}
            }
        }
        if found.is_empty() {
            continue;
        }
        let type_name: Option<Arc<str>> =
            local.type_id.as_ref().map(|id| Arc::from(debug.type_name(Some(id)).as_str()));
        for ((cfa_offset, part_start, size_bytes), ranges) in found {
            list.push(FrameVariable {
                name: local.name.clone(),
                type_name: type_name.clone(),
                type_ref: local.type_id.as_ref().map(|id| debug.type_ref(id)),
                decl_file: local.decl_file.clone(),
                decl_line: local.decl_line,
                cfa_offset,
                size_bytes,
                part_start,
                pc_ranges: ranges.into(),
                is_parameter: local.is_parameter,
                inlined_from: local.inlined_from.clone(),
            });
        }
    }
    list.sort_by_key(|v| v.cfa_offset);
    list.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_a_variable_does_not_outlive_is_of_another_one() {
        let place = |start, end| LocalPlace {
            start,
            end,
            part_start: 0,
            part_size: None,
            place: Place::Cfa(-400),
            of_scope: false,
        };
        let local = |places: Vec<LocalPlace>| Local {
            name: "a12".into(),
            type_id: None,
            decl_file: None,
            decl_line: None,
            is_parameter: false,
            inline_depth: 0,
            inlined_from: None,
            of_library: false,
            longest: places.iter().map(|place| place.end - place.start).max().unwrap_or(0),
            places,
        };
        // mov %rax,-0x188(%rbp), seven bytes.
        let (store, next) = (0x1522, 0x1529);
        let ends = |places: Vec<LocalPlace>| local(places.clone()).ends_with_store(&places[0], store);
        assert!(ends(vec![place(0x12b5, next)]));
        assert!(ends(vec![place(0x12b5, next), place(0x2000, 0x2100)]), "somewhere else, later");
        // It has another value from then on, or is not overwritten.
        assert!(!ends(vec![place(0x12b5, next), place(next, 0x1600)]));
        assert!(!ends(vec![place(0x12b5, 0x1600)]));
        assert!(!ends(vec![place(next, 0x1530)]), "it begins with the store");
        assert!(!ends(vec![LocalPlace { of_scope: true, ..place(0x12b5, next) }]));
    }

    #[test]
    fn a_variable_is_not_used_before_its_declaration() {
        let local = |decl_line, inline_depth, is_parameter| Local {
            name: "events".into(),
            type_id: None,
            decl_file: Some("a.cpp".into()),
            decl_line,
            is_parameter,
            inline_depth,
            inlined_from: None,
            of_library: false,
            places: Vec::new(),
            longest: 0,
        };
        let at = |file: &str, line| RawFrame { file: Some(file.into()), line, ..RawFrame::default() };
        let own = local(Some(19), 0, false);
        assert!(own.is_behind(&at("a.cpp", 15)));
        assert!(!own.is_behind(&at("a.cpp", 19)) && !own.is_behind(&at("a.cpp", 30)));
        assert!(!own.is_behind(&at("a.cpp", 0)), "nobody knows the line");
        assert!(!own.is_behind(&at("b.h", 15)), "included in the middle");
        assert!(!local(Some(19), 1, false).is_behind(&at("a.cpp", 15)), "an inlined function's");
        assert!(!local(Some(19), 0, true).is_behind(&at("a.cpp", 15)), "of a long list of parameters");
        assert!(!local(None, 0, false).is_behind(&at("a.cpp", 15)));
    }
}

//! The variable that a call's result goes to: machine code and DWARF locations first, the source
//! text second.

mod by_text;
mod pointer;

use std::cell::LazyCell;

use by_text::head;
pub use pointer::NamedPointer;

use std::sync::Arc;

use memlens_code::{Architecture, Base, Destination, Register};

use crate::debug_info::DebugInfo;
use crate::locals::{FunctionLocals, Local, LocalPlace};
use crate::module::{FunctionRef, Module, SourceFrame};
use crate::place::Place;
use crate::source_text::fortran;
use crate::types::{TypeId, TypeRef};

/// What an assignment was concluded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// The instructions after the call, with DWARF locations or symbols.
    MachineCode,
    /// The text of the source line.
    SourceText,
}

/// A variable that receives a call's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedVariable {
    /// Source name; with a field path if a member receives it (`graph.column`, `node->left`,
    /// `Graph::column` for a member of `this`, `rows[]` for an element of an array).
    pub name: String,
    /// C spelling of its type, if known.
    pub type_name: Option<String>,
    /// Its type, if known; of the module that was asked.
    pub type_ref: Option<TypeRef>,
    /// File of the declaration, if known.
    pub decl_file: Option<Arc<str>>,
    /// Line of the declaration, if known.
    pub decl_line: Option<u32>,
    /// What it was concluded from.
    pub how: Evidence,
}

/// Where the result of a call goes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Assignment {
    /// To a variable.
    Variable(AssignedVariable),
    /// The function that made the call returns it (a wrapper such as `xmalloc`, `strdup`), or is
    /// code of the language's library (a container): ask the next outer frame. If it passes
    /// through a variable of the function on its way, that is the second-best name.
    HandedOn(Option<AssignedVariable>),
    /// Nothing is known.
    Unknown,
}

/// Which of a call's inlined functions, by the text of their source lines, innermost first, spells the variable
/// `name`; the outermost if none does.
pub fn spelling_frame<'a>(name: &str, texts: impl IntoIterator<Item = Option<&'a str>>) -> usize {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let last_word = name.split(|c| !is_word(c)).rfind(|word| !word.is_empty());
    let mut count = 0;
    for text in texts {
        if text.unwrap_or_default().split(|c| !is_word(c)).any(|word| Some(word) == last_word) {
            return count;
        }
        count += 1;
    }
    usize::saturating_sub(count, 1)
}

/// A location list may begin so many bytes of code after the store.
const LATE: u64 = 24;

/// A named destination, before the choice.
struct Candidate {
    variable: AssignedVariable,
    inline_depth: u32,
    /// Address at which the result gets there.
    at: u64,
    /// Whether it outlives the function's frame.
    lasting: bool,
}

impl Module {
    /// The variable that the result of the call returning to `return_svma` goes to.
    ///
    /// None if the calling function hands the result on to its own caller, or if nothing is known.
    /// To name a heap block the caller walks the allocation's stack from the inner to the outer
    /// return address and stops at the first `Some`; with [`Self::assignment`] it can also stop
    /// where the result is lost track of, which keeps `status = run()` from naming everything that
    /// `run` allocates.
    pub fn assigned_variable(&self, return_svma: u64) -> Option<AssignedVariable> {
        match self.assignment(return_svma) {
            Assignment::Variable(variable) => Some(variable),
            Assignment::HandedOn(_) | Assignment::Unknown => None,
        }
    }

    /// Where the result of the call returning to `return_svma` goes. Cost: some dozen instructions
    /// decoded and the locals of one function read once; the caller should keep the answer for
    /// each call site.
    pub fn assignment(&self, return_svma: u64) -> Assignment {
        let function = self.function_at(return_svma.saturating_sub(1));
        let Some((function, architecture)) = function.zip(self.architecture()) else {
            return Assignment::Unknown;
        };
        let code = self.code(function.start, function.end).unwrap_or_default();
        let returns_argument = |target| self.returns_argument(target);
        let destinations = memlens_code::result_destinations(
            architecture,
            code,
            function.start,
            return_svma,
            &returns_argument,
        );
        self.assigned(return_svma, &function, &destinations, true)
    }

    /// As [`Self::assignment`], where the call stored its result at `cfa_offset` bytes from its caller's
    /// canonical frame address, as `posix_memalign` does: where it goes from there.
    pub fn slot_assignment(&self, return_svma: u64, cfa_offset: i64) -> Assignment {
        let function = self.function_at(return_svma.saturating_sub(1));
        let Some((function, architecture)) = function.zip(self.architecture()) else {
            return Assignment::Unknown;
        };
        let rule = self.with_debug(|debug| debug.frames.rule_at(return_svma));
        let Some(rule) = rule else { return Assignment::Unknown };
        let code = self.code(function.start, function.end).unwrap_or_default();
        let slot = (Register(rule.register), cfa_offset.wrapping_add(rule.offset));
        let returns_argument = |target| self.returns_argument(target);
        let destinations = memlens_code::slot_destinations(
            architecture,
            code,
            function.start,
            return_svma,
            slot,
            &returns_argument,
        );
        // The source text says where the call's status goes.
        self.assigned(return_svma, &function, &destinations, false)
    }

    /// Chooses among the places that a result reached.
    fn assigned(
        &self,
        return_svma: u64,
        function: &FunctionRef,
        destinations: &[Destination],
        by_text: bool,
    ) -> Assignment {
        let mut returned = destinations.iter().any(|d| matches!(d, Destination::Returned { .. }));
        let line = self.locate(return_svma.saturating_sub(1)).pop();
        // What is left in the register at the end of a function without a result is returned by chance; so it seems of
        // one of whose result the debug information has nothing.
        let mut has_result = true;
        let (mut candidates, in_library) = self.with_debug(|debug| {
            let Some((unit, die)) = debug.function_at(return_svma.saturating_sub(1)) else {
                let in_library = function.name.as_deref().is_some_and(is_library_function);
                // It is not known whether the function has a result: what it keeps it may return by chance.
                returned &= !destinations.iter().any(Destination::is_lasting);
                return (self.without_locals(debug, destinations), in_library);
            };
            if let Some((_, attributes)) = unit.entry(die) {
                let declared_in = debug.declaration(&unit, &attributes).0;
                let by_lines = || line.as_ref().and_then(|line| line.file.as_deref());
                if declared_in.as_deref().or_else(by_lines).is_some_and(is_library) {
                    return (Vec::new(), true);
                }
                has_result = debug.inherited(&unit, &attributes, gimli::DW_AT_type).is_some();
            }
            let locals = debug.function_locals(&unit, die);
            let mut candidates = Vec::new();
            for destination in destinations {
                self.named(debug, Some((&locals, line.as_ref())), destination, &mut candidates);
            }
            (candidates, false)
        });
        if in_library {
            return Assignment::HandedOn(None);
        }
        if by_text
            && !candidates.is_empty()
            && let Some(container) = self.grown_container(return_svma)
        {
            return Assignment::Variable(container);
        }
        candidates.sort_by_key(|candidate| (candidate.inline_depth, candidate.at));
        if let Some(index) = candidates.iter().position(|candidate| candidate.inline_depth == 0) {
            let lasting = candidates.iter().position(|c| c.inline_depth == 0 && c.lasting);
            return match (returned, lasting) {
                (true, None) => Assignment::HandedOn(Some(candidates.swap_remove(index).variable)),
                (true, Some(lasting)) => Assignment::Variable(self.as_spelled(
                    candidates.swap_remove(lasting).variable,
                    return_svma,
                    destinations,
                )),
                (false, _) => Assignment::Variable(self.as_spelled(
                    candidates.swap_remove(index).variable,
                    return_svma,
                    destinations,
                )),
            };
        }
        let inlined = candidates.into_iter().next().map(|candidate| candidate.variable);
        if returned && has_result {
            return Assignment::HandedOn(inlined);
        }
        let by_text = if by_text { self.by_source_text(return_svma, destinations) } else { None };
        match by_text.or(inlined) {
            Some(variable) => Assignment::Variable(variable),
            None if returned || line.is_some_and(|line| self.is_last_expression(&line)) => {
                Assignment::HandedOn(None)
            }
            None => Assignment::Unknown,
        }
    }

    /// An element of an array is spelled as the source does (`rows[i]`), where it is there and
    /// means the same array: the machine code of a loop tells no index, that of an unrolled or
    /// strength-reduced one a misleading one.
    fn as_spelled(
        &self,
        mut variable: AssignedVariable,
        return_svma: u64,
        destinations: &[Destination],
    ) -> AssignedVariable {
        if (variable.name.starts_with('*') || variable.name.ends_with(']'))
            && let Some(text) = self.by_source_text(return_svma, destinations)
            && head(&text.name) == head(&variable.name)
        {
            variable.name = text.name;
        }
        variable
    }

    /// Candidates in a function without debug information: fixed addresses only.
    fn without_locals(&self, debug: &DebugInfo<'_>, destinations: &[Destination]) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for destination in destinations {
            if matches!(
                destination,
                Destination::Global { .. } | Destination::Element { .. } | Destination::ThreadLocal { .. }
            ) {
                self.named(debug, None, destination, &mut candidates);
            }
        }
        candidates
    }

    fn named<'a>(
        &self,
        debug: &DebugInfo<'a>,
        of_function: Option<(&FunctionLocals<'a>, Option<&SourceFrame>)>,
        destination: &Destination,
        candidates: &mut Vec<Candidate>,
    ) {
        let mut push = |variable, inline_depth, at, lasting| {
            candidates.push(Candidate { variable, inline_depth, at, lasting });
        };
        // `int &n = words[key]`: the text, which says what that is a part of, comes before a reference.
        let depth_of = |local: &Local<'a>| {
            let refers = local.type_id.as_ref().is_some_and(|id| debug.is_reference(id));
            local.inline_depth.max(u32::from(refers))
        };
        match *destination {
            Destination::Global { svma, pc } => {
                if let Some(variable) = self.fixed(debug, Fixed::Address(svma), None) {
                    push(variable, 0, pc, true);
                }
            }
            Destination::Element { svma, pc } => {
                if let Some(mut variable) = self.fixed(debug, Fixed::Address(svma), None) {
                    variable.name = any_element(&variable.name);
                    push(variable, 0, pc, true);
                }
            }
            Destination::ThreadLocal { offset, pc } => {
                if let Some(offset) = self.tls_offset(offset)
                    && let Some(variable) = self.fixed(debug, Fixed::Tls(offset), None)
                {
                    push(variable, 0, pc, true);
                }
            }
            Destination::FrameSlot { base, disp, pc } => {
                let Some((locals, line)) = of_function else { return };
                match self.slot_local(debug, locals, base, disp, pc) {
                    Slot::Local(local, within) => {
                        let keeps = local.type_id.as_ref().is_none_or(|id| debug.keeps_address(id, within));
                        if keeps && may_receive(local, line) {
                            push(member_of(debug, local, within), depth_of(local), pc, false);
                        }
                    }
                    Slot::NoFrame => self.through(
                        debug,
                        locals,
                        Base::Register { register: base },
                        disp,
                        false,
                        pc,
                        &mut push,
                    ),
                    Slot::Unnamed => {
                        // Its declaration allocates it: it need not be above.
                        if let Some(local) = self.behind_slot(debug, locals, base, disp, pc) {
                            push(plain(debug, local), local.inline_depth, pc, false);
                        }
                    }
                }
            }
            Destination::Field { base, disp, indexed, pc } => {
                let Some((locals, _)) = of_function else { return };
                self.through(debug, locals, base, disp, indexed, pc, &mut push);
            }
            Destination::Register { register, start, end } => {
                let Some((locals, line)) = of_function else { return };
                let end = end.max(start.saturating_add(1));
                for local in &locals.locals {
                    let behind =
                        first_at(local, Place::Based { register: register.0, offset: 0 }, start, end).filter(
                            |_| Some(register) != self.architecture().map(Architecture::stack_pointer),
                        );
                    let Some(found) = behind.or_else(|| in_register(local, register, start, end)) else {
                        continue;
                    };
                    let holds =
                        behind.is_some() || local.type_id.as_ref().is_some_and(|id| debug.holds_address(id));
                    if holds && may_receive(local, line) && self.is_meant(debug, local, line) {
                        // Optimised code has a structure's members in registers of their own.
                        let variable = match found.part_size {
                            Some(_) => member_of(debug, local, found.part_start),
                            None => plain(debug, local),
                        };
                        push(variable, depth_of(local), found.start.max(start), false);
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether the statement that a source line is of is about a variable. Asked of arrays only, of whose descriptors an address is
    /// a part, and may be said to be where it was before the call.
    fn is_meant<'a>(&self, debug: &DebugInfo<'a>, local: &Local<'a>, line: Option<&SourceFrame>) -> bool {
        let is_array = local.type_id.as_ref().is_some_and(|id| debug.has_descriptor(id));
        !is_array
            || line
                .and_then(|line| self.statement(line.file.as_deref()?, line.line?))
                .is_none_or(|(text, _)| fortran::names_whole(&text, &local.name))
    }

    /// A store through a pointer: the member or element of what the pointer variable points to.
    #[allow(clippy::too_many_arguments, reason = "the parts of one destination")]
    fn through<'a>(
        &self,
        debug: &DebugInfo<'a>,
        locals: &FunctionLocals<'a>,
        base: Base,
        disp: i64,
        indexed: bool,
        pc: u64,
        push: &mut impl FnMut(AssignedVariable, u32, u64, bool),
    ) {
        let offset = u64::try_from(disp).ok();
        match base {
            Base::Global { svma } => {
                if let Some(variable) = self.fixed(debug, Fixed::Address(svma), Some((offset, indexed))) {
                    push(variable, 0, pc, true);
                }
            }
            Base::FrameSlot { base, disp: slot, pc: load } => {
                if let Slot::Local(local, 0) = self.slot_local(debug, locals, base, slot, load)
                    && let Some(variable) = pointed(debug, local, offset, indexed)
                {
                    push(variable, local.inline_depth, pc, true);
                }
            }
            Base::Register { register } => {
                for local in locals.in_register(register.0, pc) {
                    if !local.of_library
                        && let Some(variable) = pointed(debug, local, offset, indexed)
                    {
                        push(variable, local.inline_depth, pc, true);
                    }
                }
            }
        }
    }

    /// The variable at a fixed place, or (`through`) what it points to.
    fn fixed(
        &self,
        debug: &DebugInfo<'_>,
        place: Fixed,
        through: Option<(Option<u64>, bool)>,
    ) -> Option<AssignedVariable> {
        let (address, tls) = match place {
            Fixed::Address(svma) => (svma, false),
            Fixed::Tls(offset) => (offset, true),
        };
        if let Some(entry) = self.static_entry(debug, address, tls) {
            let info = debug.variable_info(&entry)?;
            let id = info.type_ref.and_then(|reference| debug.type_id(reference));
            let (name, is_of) = match through {
                None => match id.as_ref().and_then(|id| debug.own_member_at(id, address - entry.start)) {
                    Some((path, field, _)) => (joined(&info.name, ".", &path), field),
                    None => (info.name, id),
                },
                Some((offset, indexed)) => pointed_name(debug, &info.name, id.as_ref()?, offset, indexed)?,
            };
            return Some(AssignedVariable {
                name,
                type_name: is_of.as_ref().map(|id| debug.type_name(Some(id))),
                type_ref: is_of.as_ref().map(|id| debug.type_ref(id)),
                decl_file: info.decl_file,
                decl_line: info.decl_line,
                how: Evidence::MachineCode,
            });
        }
        if through.is_some() {
            return None;
        }
        let symbol = self.symbol_over(address, tls)?;
        Some(AssignedVariable {
            name: symbol.name,
            type_name: None,
            type_ref: None,
            decl_file: None,
            decl_line: None,
            how: Evidence::MachineCode,
        })
    }

    /// Offset in the TLS segment of an offset from the thread pointer of the main executable
    /// (ELF Handling For Thread-Local Storage, U. Drepper 2013, variant II).
    fn tls_offset(&self, offset: i64) -> Option<u64> {
        let tls = self.tls_segment()?;
        let within = offset.checked_sub(tls.from_thread_pointer(self.architecture()?)?)?;
        u64::try_from(within).ok().filter(|&offset| offset < tls.size_bytes)
    }

    /// The local that lies in memory whose address a slot of the frame holds, as Fortran's automatic arrays do.
    fn behind_slot<'l, 'a>(
        &self,
        debug: &DebugInfo<'a>,
        locals: &'l FunctionLocals<'a>,
        base: Register,
        disp: i64,
        pc: u64,
    ) -> Option<&'l Local<'a>> {
        let rule = debug.frames.rule_at(pc).filter(|rule| rule.register == base.0);
        let from_cfa = rule.map(|rule| Place::BehindCfa(disp.wrapping_sub(rule.offset)));
        let from_base = Place::BehindBased { register: base.0, offset: disp };
        let holds = |place: &LocalPlace| place.place == from_base || Some(place.place) == from_cfa;
        locals.locals.iter().filter(|local| places_near(local, pc).any(holds)).min_by_key(|l| l.inline_depth)
    }

    fn slot_local<'l, 'a>(
        &self,
        debug: &DebugInfo<'a>,
        locals: &'l FunctionLocals<'a>,
        base: Register,
        disp: i64,
        pc: u64,
    ) -> Slot<'l, 'a> {
        let rule = debug.frames.rule_at(pc);
        let frame_pointer = self.architecture().map(Architecture::frame_pointer);
        if Some(base) == frame_pointer && rule.is_some_and(|rule| rule.register != base.0) {
            return Slot::NoFrame;
        }
        let cfa_offset =
            rule.filter(|rule| rule.register == base.0).map(|rule| disp.wrapping_sub(rule.offset));
        let mut best: Option<(&Local<'a>, u64)> = None;
        // Which line of the function itself is executed.
        let here = LazyCell::new(|| debug.frames_at(pc).pop());
        for local in &locals.locals {
            let whole = local.type_id.as_ref().and_then(|id| debug.size_of(id)).unwrap_or(8);
            for place in places_near(local, pc).filter(|place| !local.ends_with_store(place, pc)) {
                let start = match (place.place, cfa_offset) {
                    (Place::Cfa(start), Some(wanted)) => wanted.checked_sub(start),
                    (Place::Based { register, offset }, _) if register == base.0 => disp.checked_sub(offset),
                    _ => None,
                };
                let Some(within) = start.and_then(|within| u64::try_from(within).ok()) else { continue };
                let size = place.part_size.unwrap_or(whole.saturating_sub(place.part_start));
                let is_inner = best.is_none_or(|(known, _)| local.inline_depth <= known.inline_depth);
                if within < size && is_inner && !here.as_ref().is_some_and(|here| local.is_behind(here)) {
                    best = Some((local, within.saturating_add(place.part_start)));
                }
            }
        }
        best.map_or(Slot::Unnamed, |(local, within)| Slot::Local(local, within))
    }
}

/// The last instruction before which the result is known to be there.
fn last_address(destination: &Destination) -> Option<u64> {
    Some(match *destination {
        Destination::Register { start, end, .. } => end.saturating_sub(1).max(start),
        Destination::Global { pc, .. }
        | Destination::Element { pc, .. }
        | Destination::ThreadLocal { pc, .. }
        | Destination::FrameSlot { pc, .. }
        | Destination::Field { pc, .. }
        | Destination::Returned { pc } => pc,
        _ => return None,
    })
}

enum Fixed {
    Address(u64),
    Tls(u64),
}

enum Slot<'l, 'a> {
    Local(&'l Local<'a>, u64),
    /// The register is no frame pointer there.
    NoFrame,
    Unnamed,
}

/// Whether a variable can be what keeps the result of a call in the source line `line` of its function: none that is
/// declared below the call can, wherever the compiler lets it lie; nor can an inlined library function's own, nor what
/// a method calls its object.
fn may_receive(local: &Local<'_>, line: Option<&SourceFrame>) -> bool {
    let is_below = local.inline_depth == 0
        && line.is_some_and(|line| {
            line.file.is_some()
                && line.file.as_deref() == local.decl_file.as_deref()
                && local.decl_line > line.line
        });
    !is_below && !local.of_library && !matches!(&*local.name, "this" | "self")
}

/// Where a variable is when a store at `pc` is made, or soon after it.
fn places_near<'l>(local: &'l Local<'_>, pc: u64) -> impl Iterator<Item = &'l LocalPlace> {
    local.places_in(pc, pc.saturating_add(LATE))
}

/// Where the variable, or a part of it, is first in the register, of the pcs in `[start, end)`.
fn in_register<'l>(local: &'l Local<'_>, register: Register, start: u64, end: u64) -> Option<&'l LocalPlace> {
    first_at(local, Place::Register(register.0), start, end)
}

/// Where the variable, or a part of it, is first at the place, of the pcs in `[start, end)`.
fn first_at<'l>(local: &'l Local<'_>, place: Place, start: u64, end: u64) -> Option<&'l LocalPlace> {
    local.places_in(start, end).find(|found| found.place == place)
}

fn plain<'a>(debug: &DebugInfo<'a>, local: &Local<'a>) -> AssignedVariable {
    AssignedVariable {
        name: local.name.to_string(),
        type_name: local.type_id.as_ref().map(|id| debug.type_name(Some(id))),
        type_ref: local.type_id.as_ref().map(|id| debug.type_ref(id)),
        decl_file: local.decl_file.clone(),
        decl_line: local.decl_line,
        how: Evidence::MachineCode,
    }
}

/// The member of a local at byte `within`.
fn member_of<'a>(debug: &DebugInfo<'a>, local: &Local<'a>, within: u64) -> AssignedVariable {
    let mut variable = plain(debug, local);
    if let Some(id) = &local.type_id
        && let Some((path, field, _)) = debug.own_member_at(id, within)
    {
        let name = joined(&local.name, ".", &path);
        if name != variable.name {
            variable.name = name;
            variable.type_name = Some(debug.type_name(field.as_ref()));
            variable.type_ref = field.as_ref().map(|id| debug.type_ref(id));
        }
    }
    variable
}

/// What the pointer variable `local` points to, at `offset`.
fn pointed<'a>(
    debug: &DebugInfo<'a>,
    local: &Local<'a>,
    offset: Option<u64>,
    indexed: bool,
) -> Option<AssignedVariable> {
    let (name, is_of) = pointed_name(debug, &local.name, local.type_id.as_ref()?, offset, indexed)?;
    let type_name = Some(debug.type_name(is_of.as_ref()));
    let type_ref = is_of.as_ref().map(|id| debug.type_ref(id));
    Some(AssignedVariable { name, type_name, type_ref, ..plain(debug, local) })
}

/// Name and type of what the pointer `name` points to, at `offset`.
fn pointed_name<'a>(
    debug: &DebugInfo<'a>,
    name: &str,
    pointer: &TypeId<'a>,
    offset: Option<u64>,
    indexed: bool,
) -> Option<(String, Option<TypeId<'a>>)> {
    let target = debug.pointee(pointer)?;
    if indexed {
        return Some((format!("{name}[]"), Some(target)));
    }
    let offset = offset?;
    match debug.own_member_at(&target, offset) {
        Some((path, field, _)) => {
            if name == "this" || name == "self" {
                // Say what class it is instead of how the method calls its object.
                let class = debug.type_name(Some(&target));
                return Some((joined(class.trim_start_matches("struct "), "::", &path), field));
            }
            Some((joined(name, "->", &path), field))
        }
        None if offset == 0 => Some((format!("*{name}"), Some(target))),
        None => {
            let size = debug.size_of(&target).filter(|&size| size > 0 && offset % size == 0)?;
            Some((format!("{name}[{}]", offset / size), Some(target)))
        }
    }
}

/// The name of an element of an array, with no index: `rows`, `rows[0]` → `rows[]`; `nodes[0].next` →
/// `nodes[].next`.
fn any_element(name: &str) -> String {
    match (name.find('['), name.find(']')) {
        (Some(open), Some(close)) if open < close => format!("{}[]{}", &name[..open], &name[close + 1..]),
        _ => format!("{name}[]"),
    }
}

/// `name` with a member path.
fn joined(name: &str, joint: &str, path: &str) -> String {
    match path {
        "" => name.to_owned(),
        path if path.starts_with('[') => format!("{name}{path}"),
        path => format!("{name}{joint}{path}"),
    }
}

/// Whether a function belongs to the library of Rust or C++, by its name: without debug information
/// there is no file that says so.
pub(crate) fn is_library_function(name: &str) -> bool {
    let path = name.trim_start_matches('<');
    ["alloc::", "core::", "std::", "hashbrown::", "__rustc::", "__gnu_cxx::"]
        .iter()
        .any(|library| path.starts_with(library))
}

/// Whether a source file belongs to a compiler's or the system's library, or to a library of containers.
pub(crate) fn is_library(file: &str) -> bool {
    /// Of crates.io, with what makes them allocate for others.
    const CONTAINERS: [&str; 8] =
        ["hashbrown", "indexmap", "smallvec", "arrayvec", "thin-vec", "bytes", "dashmap", "slab"];
    let is_container = || {
        let (_, of_registry) = file.split_once("/registry/src/")?;
        let (_, of_crate) = of_registry.split_once('/')?;
        let (name, version) = of_crate.split('/').next()?.rsplit_once('-')?;
        Some(CONTAINERS.contains(&name) && version.starts_with(|c: char| c.is_ascii_digit()))
    };
    file.starts_with("/usr/include/")
        || file.starts_with("/usr/lib/")
        || file.starts_with("/rustc/")
        || file.starts_with("/rust/deps/")
        || file.contains("/include/c++/")
        || file.contains("/lib/gcc/")
        || file.contains("/lib/rustlib/src/")
        || is_container().unwrap_or(false)
}

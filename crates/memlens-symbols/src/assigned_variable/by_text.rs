//! The variable that a call's result goes to, by the text of the source line.

use std::sync::Arc;

use memlens_code::Destination;

use super::{AssignedVariable, Evidence, is_library, joined, last_address};
use crate::debug_info::DebugInfo;
use crate::locals::Local;
use crate::module::{Module, SourceFrame};
use crate::source_text::{self, Means, Receiver};
use crate::types::TypeId;

/// Rust functions are not looked at whose last line is further from their first.
const MOST_LINES: usize = 200;

impl Module {
    /// The left-hand side in the source, in the innermost frame that is not the library's and does not
    /// return the result: inlined wrappers come last.
    pub(super) fn by_source_text(
        &self,
        return_svma: u64,
        destinations: &[Destination],
    ) -> Option<AssignedVariable> {
        let call = return_svma.saturating_sub(1);
        let frames = self.locate(call);
        let reached: Vec<u64> = destinations.iter().filter_map(last_address).collect();
        let wrappers = self.with_debug(|debug| debug.inlined_that_return(call, &reached));
        let last = frames.len().saturating_sub(1);
        let mut order: Vec<usize> = (0..frames.len()).collect();
        order.rotate_left(wrappers.min(last));
        for at in order {
            let frame = &frames[at];
            let SourceFrame { file: Some(file), line: Some(line), .. } = frame else { continue };
            if is_library(file) {
                continue;
            }
            let (statement, start) = self.statement(file, *line)?;
            let place = frame.column.map(|column| start + column as usize - 1);
            let receivers = match source_text::allocated_together(file, &statement) {
                Some((all, copies)) => vec![self.one_of(all, copies, return_svma, frame)?],
                None => source_text::receivers(&statement, place),
            };
            let named = receivers
                .into_iter()
                .find_map(|receiver| self.declared(call, receiver, frame, (last - at) as u32));
            if named.is_some() {
                return named;
            }
        }
        None
    }

    /// Which of those that an ALLOCATE statement names a call in its line makes room for: each has a call like it, in their order, in each
    /// copy of the statement. None: there are more or fewer, and whose they are is not known. `copies`: components may have calls, too.
    fn one_of(
        &self,
        all: Vec<String>,
        copies: bool,
        return_svma: u64,
        frame: &SourceFrame,
    ) -> Option<Receiver> {
        let function = self.function_at(return_svma.saturating_sub(1))?;
        let code = self.code(function.start, function.end)?;
        let is_of_line = |returns: &u64| {
            let frames = self.locate(returns.saturating_sub(1));
            frames.iter().any(|it| (&it.file, it.line) == (&frame.file, frame.line))
        };
        let mut calls = memlens_code::calls_alike(self.architecture()?, code, function.start, return_svma);
        calls.retain(is_of_line);
        let at = calls.iter().position(|&returns| returns == return_svma)?;
        let count = all.len();
        let are_known = if copies { calls.len() == count } else { calls.len().is_multiple_of(count) };
        let name = all.into_iter().nth(at % count).filter(|_| are_known)?;
        Some(Receiver { name, by: Means::Allocation })
    }

    /// The container of the language's library that a statement makes grow, keeping something else, as the source of an inlined frame or
    /// the function itself has it: `levels` of `auto it = levels.try_emplace(price).first;`. The element's place, which is what the call
    /// returns, is kept in `it`.
    pub(super) fn grown_container(&self, return_svma: u64) -> Option<AssignedVariable> {
        let call = return_svma.saturating_sub(1);
        let frames = self.locate(call);
        let last = frames.len().saturating_sub(1);
        let (at, frame) = frames
            .iter()
            .enumerate()
            .find(|(_, frame)| frame.file.as_deref().is_some_and(|file| !is_library(file)))?;
        let (statement, start) = self.statement(frame.file.as_deref()?, frame.line?)?;
        let place = frame.column.map(|column| start + column as usize - 1);
        let grown =
            source_text::receivers(&statement, place).into_iter().find(|it| it.by == Means::Growth)?;
        let found = self.declared(call, grown, frame, (last - at) as u32)?;
        let is_library = self.with_debug(|debug| {
            let id = found.type_ref.and_then(|reference| debug.type_id(reference))?;
            Some(debug.is_library_type(&debug.dereferenced(&id)?.0))
        });
        is_library.filter(|&is_library| is_library).map(|_| found)
    }

    /// The text of the statement with code in a line; and where the line begins in it.
    pub(super) fn statement(&self, file: &str, line: u32) -> Option<(String, usize)> {
        source_text::statement(file, line, |line| self.source_line(file, line))
    }

    /// Whether the call in a line of a Rust function is in the expression that the function ends with: it returns what
    /// that allocates, often through memory of its caller.
    pub(super) fn is_last_expression(&self, line: &SourceFrame) -> bool {
        let (Some(file), Some(mut at)) = (line.file.as_deref(), line.line) else { return false };
        if !file.ends_with(".rs") || is_library(file) {
            return false;
        }
        let indent = |text: &str| text.len() - text.trim_start().len();
        let text_of = |line: u32| self.source_line(file, line);
        // A chain of calls goes on in the next lines.
        while text_of(at + 1).is_some_and(|text| text.trim_start().starts_with('.')) {
            at += 1;
        }
        let is_open = |text: String| !text.trim_end().ends_with([';', '{', ',', '(', '[']);
        let Some(end) = text_of(at + 1).filter(|_| text_of(at).is_some_and(is_open)) else { return false };
        let begins = |text: &String| {
            let begin = text.trim_start();
            indent(text) <= indent(&end) && !begin.is_empty() && !begin.starts_with([')', '}'])
        };
        let mut before = (1..=at).rev().take(MOST_LINES).map_while(text_of);
        end.trim() == "}"
            && before.find(begins).is_some_and(|text| text.split_whitespace().any(|word| word == "fn"))
    }

    /// What the source text in `frame`, which is `inline_depth` inlined calls deep, says of the variable that receives
    /// the result of the call at `svma`; with its type, if its declaration is found. None if a variable of that type cannot.
    fn declared(
        &self,
        svma: u64,
        receiver: Receiver,
        frame: &SourceFrame,
        inline_depth: u32,
    ) -> Option<AssignedVariable> {
        let Receiver { name, by } = receiver;
        self.with_debug(|debug| {
            let found = debug.spelled(svma, &name, frame, inline_depth);
            let Some(Spelled { name, is_of, decl_file, decl_line }) = found else {
                let unknown = AssignedVariable {
                    name,
                    type_name: None,
                    type_ref: None,
                    decl_file: None,
                    decl_line: None,
                    how: Evidence::SourceText,
                };
                return (by != Means::Operator).then_some(unknown);
            };
            let can = match by {
                Means::Allocation => true,
                Means::Call | Means::Growth => is_of.as_ref().is_none_or(|id| !debug.is_scalar(id)),
                Means::Operator => is_of.as_ref().is_some_and(|id| debug.is_class(id)),
            };
            can.then(|| AssignedVariable {
                name,
                type_name: is_of.as_ref().map(|id| debug.type_name(Some(id))),
                type_ref: is_of.as_ref().map(|id| debug.type_ref(id)),
                decl_file,
                decl_line,
                how: Evidence::SourceText,
            })
        })
    }
}

/// A variable, or what is in it, that an expression means.
struct Spelled<'a> {
    name: String,
    is_of: Option<TypeId<'a>>,
    decl_file: Option<Arc<str>>,
    decl_line: Option<u32>,
}

impl<'a> DebugInfo<'a> {
    /// What an expression in `frame` means: of a local, of the object that a method is called on, of a variable of the
    /// same unit.
    fn spelled(&self, svma: u64, name: &str, frame: &SourceFrame, inline_depth: u32) -> Option<Spelled<'a>> {
        let head = head(name);
        let path = name.trim_start_matches('*').strip_prefix(head)?;
        let (unit, die) = self.function_at(svma)?;
        let locals = self.function_locals(&unit, die);
        let is_visible = |local: &&Local<'a>| {
            let same_file = local.decl_file.as_deref() == frame.file.as_deref();
            local.inline_depth == inline_depth
                && if same_file { local.decl_line <= frame.line } else { inline_depth == 0 }
        };
        // Of several with this name it is the last one declared above.
        let local = locals.locals.iter().filter(|local| *local.name == *head).filter(is_visible);
        if let Some(local) = local.max_by_key(|local| local.decl_line) {
            let mut is_of = local.type_id.as_ref().and_then(|id| self.type_along(id, path));
            if name.starts_with('*') {
                is_of = is_of.and_then(|id| self.pointee(&id));
            }
            let of_object = path.strip_prefix("->").or_else(|| path.strip_prefix('.'));
            let name = of_object
                .filter(|_| matches!(head, "self" | "this"))
                .zip(self.class_behind(local))
                .map_or_else(|| name.to_owned(), |(path, class)| joined(&class, "::", path));
            return Some(Spelled {
                name,
                is_of,
                decl_file: local.decl_file.clone(),
                decl_line: local.decl_line,
            });
        }
        if name.starts_with('*') {
            return None;
        }
        let is_object = |local: &&Local<'a>| &*local.name == "this" && local.inline_depth == inline_depth;
        let of_object = locals.locals.iter().filter(is_object).find_map(|this| {
            let is_of = self.type_along(this.type_id.as_ref()?, &format!("->{name}"))?;
            Some(Spelled {
                name: joined(&self.class_behind(this)?, "::", name),
                is_of: Some(is_of),
                decl_file: this.decl_file.clone(),
                decl_line: this.decl_line,
            })
        });
        of_object.or_else(|| {
            let info = self.static_named(&unit, head)?;
            let is_of = self.type_along(&self.type_id(info.type_ref?)?, path);
            let name = joined(&info.name, "", path);
            Some(Spelled { name, is_of, decl_file: info.decl_file, decl_line: info.decl_line })
        })
    }

    /// The class that a pointer's variable points to.
    fn class_behind(&self, pointer: &Local<'a>) -> Option<String> {
        let class = self.type_name(Some(&self.pointee(pointer.type_id.as_ref()?)?));
        Some(class.trim_start_matches("struct ").to_owned())
    }
}

/// The variable that an expression begins with.
pub(super) fn head(name: &str) -> &str {
    name.trim_start_matches('*').split(['.', '-', '[', '(', ':', '%']).next().unwrap_or_default()
}

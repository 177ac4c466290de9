//! The variable that a pointer is read from: in a register, in a slot of the frame, at a fixed
//! address, or in what another pointer points to.

use std::sync::Arc;

use memlens_code::Register;

use super::{Slot, is_library, joined};
use crate::module::Module;
use crate::static_variables::StaticTable;
use crate::types::TypeRef;

/// A pointer by the expression that the source would spell it with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamedPointer {
    /// `column`, `graph->rows`, `Table::slots`, `rows[]`.
    pub name: String,
    /// The pointer's type.
    pub type_ref: Option<TypeRef>,
    /// File of the declaration of the variable that the expression begins with.
    pub decl_file: Option<Arc<str>>,
    /// Line of that declaration.
    pub decl_line: Option<u32>,
}

impl Module {
    /// The variable that `register` (DWARF number) holds before the instruction at `pc`; one of the
    /// function itself before one of an inlined function.
    pub fn pointer_in_register(&self, pc: u64, register: u16) -> Option<NamedPointer> {
        self.with_debug(|debug| {
            let (unit, die) = debug.function_at(pc)?;
            let locals = debug.function_locals(&unit, die);
            let local = locals
                .in_register(register, pc)
                .filter(|local| local.type_id.as_ref().is_some_and(|id| debug.holds_address(id)))
                .filter(|local| {
                    local.inline_depth == 0 || !local.decl_file.as_deref().is_some_and(is_library)
                })
                .min_by_key(|local| local.inline_depth)?;
            Some(NamedPointer {
                name: local.name.to_string(),
                type_ref: local.type_id.as_ref().map(|id| debug.type_ref(id)),
                decl_file: local.decl_file.clone(),
                decl_line: local.decl_line,
            })
        })
    }

    /// The variable in the frame at `base + disp`, where base is rsp (7) or rbp (6) as of `pc`. None
    /// if rbp is no frame pointer there.
    pub fn pointer_in_slot(&self, pc: u64, base: u16, disp: i64) -> Option<NamedPointer> {
        self.with_debug(|debug| {
            let (unit, die) = debug.function_at(pc)?;
            let locals = debug.function_locals(&unit, die);
            let Slot::Local(local, within) = self.slot_local(debug, &locals, Register(base), disp, pc) else {
                return None;
            };
            let whole = local.type_id.as_ref();
            let (name, type_ref) = match whole.and_then(|id| debug.own_member_at(id, within)) {
                Some((path, field, _)) => {
                    (joined(&local.name, ".", &path), field.as_ref().map(|id| debug.type_ref(id)))
                }
                None => (local.name.to_string(), whole.map(|id| debug.type_ref(id))),
            };
            Some(NamedPointer {
                name,
                type_ref,
                decl_file: local.decl_file.clone(),
                decl_line: local.decl_line,
            })
        })
    }

    /// The variable, or the member of one, at a fixed address.
    pub fn pointer_at(&self, svma: u64) -> Option<NamedPointer> {
        self.with_debug(|debug| {
            let table = debug.static_table();
            let entry = table.addressed.get(StaticTable::covering(&table.addressed, svma)?)?;
            let info = debug.variable_info(entry)?;
            let id = info.type_ref.and_then(|reference| debug.type_id(reference));
            let member = id.as_ref().and_then(|id| debug.own_member_at(id, svma - entry.start));
            let (name, type_ref) = match member {
                Some((path, field, _)) => {
                    (joined(&info.name, ".", &path), field.as_ref().map(|id| debug.type_ref(id)))
                }
                None => (info.name, info.type_ref),
            };
            Some(NamedPointer { name, type_ref, decl_file: info.decl_file, decl_line: info.decl_line })
        })
    }

    /// The pointer that lies `offset` bytes into what `pointer` points to; `indexed`: an index was
    /// added as well. None in a container's own methods, which do not know its name.
    pub fn pointer_through(
        &self,
        pointer: &NamedPointer,
        offset: u64,
        indexed: bool,
    ) -> Option<NamedPointer> {
        self.with_debug(|debug| {
            let target = debug.pointee(&debug.type_id(pointer.type_ref?)?)?;
            let element = || (format!("{}[]", pointer.name), Some(debug.type_ref(&target)));
            let is_this = matches!(pointer.name.as_str(), "this" | "self");
            let is_container =
                debug.stripped(&target).is_some_and(|(class, _, _)| debug.is_library_type(&class));
            if is_this && is_container {
                return None;
            }
            let (name, type_ref) = match debug.own_member_at(&target, offset) {
                _ if indexed => element(),
                // What a container of the library's holds bears its name: `heap` for a `std::vector &heap`.
                _ if is_container && debug.size_of(&target).is_none_or(|size| offset < size) => {
                    (pointer.name.clone(), Some(debug.type_ref(&target)))
                }
                Some((path, field, _)) => {
                    let field = field.as_ref().map(|id| debug.type_ref(id));
                    if is_this {
                        // Say what class it is instead of how the method calls its object.
                        let class = debug.type_name(Some(&target));
                        (joined(class.trim_start_matches("struct "), "::", &path), field)
                    } else {
                        (joined(&pointer.name, "->", &path), field)
                    }
                }
                None if offset == 0 => (format!("*{}", pointer.name), Some(debug.type_ref(&target))),
                None => element(),
            };
            Some(NamedPointer {
                name,
                type_ref,
                decl_file: pointer.decl_file.clone(),
                decl_line: pointer.decl_line,
            })
        })
    }

    /// The C spelling of what a pointer points to.
    pub fn pointee_name(&self, pointer: &NamedPointer) -> Option<String> {
        self.type_name(self.pointee(pointer.type_ref?)?)
    }
}

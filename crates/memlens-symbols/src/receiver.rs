//! Which function keeps an allocated block, past those that hand it on, and what it is called there.

use crate::assigned_variable::{AssignedVariable, Assignment, is_library, is_library_function};

/// Who keeps what an allocation returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// The call, counted from the innermost, after whose caller the block is called.
    pub level: usize,
    /// The variable of that function which it goes to; `None`: none is known.
    pub variable: Option<AssignedVariable>,
}

/// Finds it. `assignments` has those of the calls of a stack, from the innermost outwards; it is asked no further than needed.
///
/// Where the function that keeps the block has no variable for it, that of one that handed it on stands for it
/// (`graph` of `make_graph`), unless it is a pointer to anything (`result` of `xmalloc`).
pub fn receiver(assignments: impl IntoIterator<Item = Assignment>) -> Receiver {
    let mut handed_on: Option<(usize, AssignedVariable)> = None;
    let mut keeper = None;
    for (level, assignment) in assignments.into_iter().enumerate() {
        match assignment {
            Assignment::Variable(variable) => return Receiver { level, variable: Some(variable) },
            Assignment::HandedOn(inner) => {
                handed_on = handed_on.or_else(|| Some((level, inner?)));
            }
            Assignment::Unknown => {
                keeper = Some(level);
                break;
            }
        }
    }
    let is_of_anything = |variable: &AssignedVariable| variable.type_name.as_deref() == Some("void *");
    match (handed_on, keeper) {
        (Some((_, variable)), Some(level)) if is_of_anything(&variable) => Receiver { level, variable: None },
        (Some((level, variable)), _) => Receiver { level, variable: Some(variable) },
        (None, keeper) => Receiver { level: keeper.unwrap_or(0), variable: None },
    }
}

/// After what a block is called that no variable is known of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamingCode<T> {
    /// A function.
    Function(T),
    /// The place of the call with this number, whose function has no symbol; 0 is the first that was asked about.
    Call(usize),
}

/// Finds it. `calls` are those of a site from that of its [`Receiver`] outwards, each with its module and its frames, innermost
/// first: function and source file. The first function is taken that is no library's; one of another module that called
/// code without symbols says less than the place of that code.
pub fn naming_code<M: PartialEq, T: AsRef<str>>(
    calls: impl IntoIterator<Item = (M, Vec<(Option<T>, Option<T>)>)>,
) -> NamingCode<T> {
    let (mut of_library, mut nameless) = (None, None);
    for (at, (module, frames)) in calls.into_iter().enumerate() {
        if let Some((_, of)) = &nameless
            && *of != module
        {
            break;
        }
        let mut is_nameless = true;
        for (function, file) in frames {
            let Some(function) = function else { continue };
            let by_name = || is_library_function(function.as_ref());
            if !file.as_ref().map_or_else(by_name, |file| is_library(file.as_ref())) {
                return NamingCode::Function(function);
            }
            is_nameless = false;
            of_library = of_library.or(Some(function));
        }
        if is_nameless && nameless.is_none() {
            nameless = Some((at, module));
        }
    }
    match (nameless, of_library) {
        (Some((at, _)), _) => NamingCode::Call(at),
        (None, Some(function)) => NamingCode::Function(function),
        (None, None) => NamingCode::Call(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assigned_variable::Evidence;

    fn variable(name: &str, type_name: &str) -> AssignedVariable {
        AssignedVariable {
            name: name.into(),
            type_name: Some(type_name.into()),
            type_ref: None,
            decl_file: None,
            decl_line: None,
            how: Evidence::MachineCode,
        }
    }

    #[test]
    fn a_block_is_called_after_who_keeps_it() {
        let result = || Assignment::HandedOn(Some(variable("result", "void *")));
        let graph = || Assignment::HandedOn(Some(variable("graph", "Graph *")));
        let name = |assignments: Vec<Assignment>| {
            let Receiver { level, variable } = receiver(assignments);
            (level, variable.map(|variable| variable.name))
        };
        let named = |name: &str| Some(name.to_owned());
        let rows = || Assignment::Variable(variable("rows", "long *"));
        assert_eq!(name(vec![result(), Assignment::HandedOn(None), rows()]), (2, named("rows")));
        assert_eq!(name(vec![graph(), Assignment::Unknown, rows()]), (0, named("graph")));
        assert_eq!(name(vec![result(), Assignment::HandedOn(None), Assignment::Unknown]), (2, None));
        assert_eq!(name(vec![Assignment::HandedOn(None), Assignment::Unknown, rows()]), (1, None));
        // Nobody is known to keep it.
        assert_eq!(name(vec![Assignment::HandedOn(None), result()]), (1, named("result")));
        assert_eq!(name(vec![]), (0, None));
    }

    #[test]
    fn code_without_symbols_is_not_called_after_who_called_it() {
        let call = |module: u32, functions: &[Option<&'static str>]| {
            (module, functions.iter().map(|&function| (function, None)).collect::<Vec<_>>())
        };
        let nameless = || call(1, &[None]);
        let started = || call(2, &[Some("__libc_start_call_main")]);
        assert_eq!(naming_code([nameless(), nameless(), started()]), NamingCode::Call(0));
        let of_library = || call(3, &[Some("std::string::_M_create")]);
        assert_eq!(naming_code([of_library(), nameless(), started()]), NamingCode::Call(1));
        // A function that the module exports.
        let exported = call(1, &[Some("sqlite3_step")]);
        assert_eq!(naming_code([nameless(), exported, started()]), NamingCode::Function("sqlite3_step"));
        let inlined = call(1, &[Some("std::vector::reserve"), Some("build")]);
        assert_eq!(naming_code([of_library(), inlined]), NamingCode::Function("build"));
        assert_eq!(naming_code([of_library()]), NamingCode::Function("std::string::_M_create"));
        assert_eq!(naming_code::<u32, &str>([]), NamingCode::Call(0));
    }
}

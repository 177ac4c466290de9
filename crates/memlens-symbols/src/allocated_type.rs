//! What blocks consist of, by the code that allocates them: C++'s library does it in templates that are made for a type.
//!
//! The variable that a block is called after does not tell: a `std::unordered_map` has blocks of nodes and blocks of
//! pointers to them, and of a `std::vector<std::unique_ptr<T>>` not only the pointers but what they point to may bear the
//! name.

use gimli::UnitOffset;

use crate::assigned_variable::is_library;
use crate::debug_info::DebugInfo;
use crate::dwarf_file::{MAX_REFERENCES, UnitHandle};
use crate::module::Module;
use crate::types::{TypeId, TypeRef, origin};
use crate::unit_index::ScopeKind;

/// Classes whose `allocate` makes room for values of their type parameter.
const ALLOCATORS: [&str; 3] = ["std::allocator", "std::__new_allocator", "__gnu_cxx::new_allocator"];
/// Functions that make an object, or an array, of their first type parameter.
const MAKERS: [&str; 2] = ["std::make_unique", "std::make_unique_for_overwrite"];
/// Modules of Rust's library whose functions make room for values of their type parameter `T`.
const RUST_MAKERS: [&str; 3] = ["alloc::raw_vec::", "alloc::vec::", "alloc::boxed::"];
/// Classes that hold the address of an object of their first type parameter.
const SMART_POINTERS: [&str; 2] = ["std::unique_ptr", "std::shared_ptr"];

/// The type of the blocks of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockType {
    /// The caller's number of the module that the type is of.
    pub module: u32,
    /// The type.
    pub type_ref: TypeRef,
    /// Whether the blocks are what a variable of this type holds or points to, and do not consist of it themselves.
    pub is_behind: bool,
}

/// A function on the way to an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    /// It allocates values of a type.
    Of(TypeRef),
    /// Another one of the language's library.
    Library,
    /// The program's.
    Program,
}

/// The type of the blocks that a call stack allocates. `calls`: its return addresses from the innermost outwards, each
/// with its module and the caller's number of that; it is asked no further than to the first function of the program.
/// `variable`: the type of what the blocks are called after, with its module.
pub fn block_type<'m>(
    calls: impl IntoIterator<Item = (u32, &'m Module, u64)>,
    variable: Option<(u32, &'m Module, TypeRef)>,
) -> Option<BlockType> {
    let mut calls = calls.into_iter().peekable();
    // The module of the innermost call, where no debug information tells of it.
    let undescribed = calls.peek().filter(|(_, module, svma)| module.makers(*svma).is_empty()).map(|it| it.0);
    let makers = |(number, module, svma): (u32, &'m Module, u64)| {
        module.makers(svma).into_iter().map(move |maker| (number, maker))
    };
    let mut makers = calls.flat_map(makers).peekable();
    let by_program = matches!(makers.peek(), Some((_, Maker::Program)));
    let made =
        makers.take_while(|(_, maker)| *maker != Maker::Program).find_map(|(module, maker)| match maker {
            Maker::Of(type_ref) => Some(BlockType { module, type_ref, is_behind: false }),
            Maker::Library | Maker::Program => None,
        });
    made.or_else(|| {
        let (number, module, type_ref) = variable?;
        // What another library allocates for the sake of a container may be anything of its elements: the characters of a string.
        if undescribed.is_some_and(|other| other != number) && !module.is_pointer(type_ref) {
            return None;
        }
        let owned = if by_program { module.element_behind(type_ref) } else { None };
        Some(BlockType { module: number, type_ref: owned.unwrap_or(type_ref), is_behind: owned.is_none() })
    })
}

impl Module {
    /// The functions that make the call returning to `return_svma`, innermost first: inlined ones, and the one they are in.
    fn makers(&self, return_svma: u64) -> Vec<Maker> {
        self.with_debug(|debug| {
            let functions = debug.functions_at(return_svma.saturating_sub(1)).into_iter();
            functions.map(|(unit, die)| debug.maker(&unit, die)).collect()
        })
    }

    fn is_pointer(&self, type_ref: TypeRef) -> bool {
        self.with_debug(|debug| debug.type_id(type_ref).is_some_and(|id| debug.pointee(&id).is_some()))
    }

    /// What the elements of a container of the language's library point to, if that is what they do.
    fn element_behind(&self, container: TypeRef) -> Option<TypeRef> {
        self.with_debug(|debug| {
            let element = debug.held_element(&debug.type_id(container)?)?;
            let target = debug.pointee(&element).or_else(|| {
                let (class, ..) = debug.stripped(&element)?;
                debug.is_template(&class.0, class.1, &SMART_POINTERS).then(|| debug.type_parameter(&class))?
            })?;
            Some(debug.type_ref(&target))
        })
    }
}

impl<'a> DebugInfo<'a> {
    fn maker(&self, unit: &UnitHandle<'a>, die: UnitOffset) -> Maker {
        let declared_in = unit.entry(die).and_then(|(_, attributes)| self.declaration(unit, &attributes).0);
        if !declared_in.as_deref().is_some_and(is_library) {
            return Maker::Program;
        }
        self.made_type(unit, die).map_or(Maker::Library, |id| Maker::Of(self.type_ref(&id)))
    }

    /// The type that a function of the library allocates values of.
    fn made_type(&self, unit: &UnitHandle<'a>, die: UnitOffset) -> Option<TypeId<'a>> {
        let (mut unit, mut die) = (unit.clone(), die);
        for _ in 0..MAX_REFERENCES {
            let made = (unit.clone(), die);
            if self.is_template(&unit, die, &MAKERS)
                && let Some(id) = self.type_parameter(&made)
            {
                return Some(id);
            }
            if self.is_rust_maker(&unit, die)
                && let Some(id) = self.named_type_parameter(&made, "T")
            {
                return Some(id);
            }
            let (_, attributes) = unit.entry(die)?;
            let Some(link) = origin(&attributes) else { break };
            (unit, die) = unit.resolve(link, self.sup.as_ref())?;
        }
        let (_, attributes) = unit.entry(die)?;
        if self.name_of(&unit, &attributes) != Some("allocate") {
            return None;
        }
        let class = unit.index()?.scope_of(die).filter(|scope| scope.kind == ScopeKind::Type)?.start;
        let class = (unit, UnitOffset(class));
        self.is_template(&class.0, class.1, &ALLOCATORS).then(|| self.type_parameter(&class))?
    }

    /// Whether a function is one of those modules of Rust's library in which `T` is what blocks consist of: the elements of a
    /// vector; what is in a box, which for `Rc` and `Arc` has their counters, and in a map of trees is a node.
    fn is_rust_maker(&self, unit: &UnitHandle<'a>, die: UnitOffset) -> bool {
        let Some((name, _)) = self.qualified_name(unit, die) else { return false };
        RUST_MAKERS.iter().any(|module| name.starts_with(module))
    }

    /// Whether an entry is made of one of the templates with these names; inline namespaces with versions do not count.
    fn is_template(&self, unit: &UnitHandle<'a>, die: UnitOffset, names: &[&str]) -> bool {
        let Some((name, _)) = self.qualified_name(unit, die) else { return false };
        let plain = name.split('<').next().unwrap_or_default().replace("std::__1::", "std::");
        names.contains(&plain.as_str())
    }
}

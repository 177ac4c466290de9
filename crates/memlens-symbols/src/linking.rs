//! What the dynamic linker is told: which cells get the addresses of which functions and variables.
//!
//! Source: System V ABI AMD64 1.0, section 4.4.1 (relocation types). Packed relative relocations
//! (`DT_RELR`) are not read.

use std::sync::Arc;

use memlens_code::{Target, returns_first_argument};
use object::{Object, ObjectSymbol, ObjectSymbolTable, RelocationFlags, RelocationTarget, elf};

use crate::demangle::{demangle, strip_version};
use crate::module::{FunctionRef, Module};

/// A cell that the dynamic linker fills with the address of a symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// Address of the cell (svma).
    pub cell: u64,
    /// Linker name of the symbol, without a version.
    pub name: String,
    /// Where this module itself defines it, if it does.
    pub defined_at: Option<u64>,
}

/// A cell that holds the address of something in the same module from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialPointer {
    /// Address of the cell (svma).
    pub cell: u64,
    /// What it points to (svma).
    pub target: u64,
}

/// Functions that return their first argument (ISO C23, 7.26; the last are glibc's, of `_FORTIFY_SOURCE`).
const RETURN_ARGUMENT: [&str; 14] = [
    "memset",
    "memcpy",
    "memmove",
    "strcpy",
    "strncpy",
    "strcat",
    "strncat",
    "__memset_chk",
    "__memcpy_chk",
    "__memmove_chk",
    "__strcpy_chk",
    "__strncpy_chk",
    "__strcat_chk",
    "__strncat_chk",
];

impl Module {
    /// Whether what is called returns its first argument, as far as its name tells, or its code. Linear in the relocations the
    /// first time.
    pub(crate) fn returns_argument(&self, target: Target) -> bool {
        let cell = match target {
            Target::Cell(cell) => cell,
            Target::Code(svma) => {
                let stub = self.code(svma, svma.saturating_add(16)).unwrap_or_default();
                match memlens_code::linkage_cell(stub, svma) {
                    Some(cell) => cell,
                    None => return self.function_returns_argument(svma),
                }
            }
        };
        let cells = self.returning_cells.get_or_init(|| {
            let (imports, _) = self.links();
            let returning = imports.iter().filter(|import| RETURN_ARGUMENT.contains(&&*import.name));
            returning.map(|import| import.cell).collect()
        });
        cells.contains(&cell)
    }

    fn function_returns_argument(&self, svma: u64) -> bool {
        let Some(function) = self.function_at(svma).filter(|function| function.start == svma) else {
            return false;
        };
        let code = self.code(svma, function.end).unwrap_or_default();
        function.raw_name.is_some_and(|name| RETURN_ARGUMENT.contains(&&*name))
            || returns_first_argument(code, svma, &|_| false)
    }

    /// Every function that a symbol names, ascending, one for each first address. Linear in the
    /// symbols.
    pub fn functions(&self) -> Vec<FunctionRef> {
        let found = self.symbols.all_functions(&self.sections).into_iter().map(|(start, end, symbol)| {
            let raw = self.symbols.name(&symbol);
            FunctionRef {
                start,
                end,
                name: Some(Arc::from(&*demangle(raw, self.symbols.fortran))),
                raw_name: Some(Arc::from(raw)),
            }
        });
        found.collect()
    }

    /// Every cell that gets the address of a symbol, and every one that gets an address of this
    /// module; x86-64 only. Linear in the relocations.
    pub fn links(&self) -> (Vec<Import>, Vec<InitialPointer>) {
        let (mut imports, mut pointers) = (Vec::new(), Vec::new());
        let Ok(file) = object::File::parse(&*self.image) else { return (imports, pointers) };
        let table = file.dynamic_symbol_table();
        let relocations = file.dynamic_relocations().into_iter().flatten();
        for (cell, relocation) in relocations {
            let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
            match (r_type, relocation.target()) {
                (elf::R_X86_64_RELATIVE, _) => {
                    pointers.push(InitialPointer { cell, target: relocation.addend() as u64 });
                }
                (
                    elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_64,
                    RelocationTarget::Symbol(index),
                ) => {
                    let symbol = table.as_ref().and_then(|table| table.symbol_by_index(index).ok());
                    let Some(symbol) = symbol else { continue };
                    let Ok(name) = symbol.name() else { continue };
                    let defined_at = symbol.is_definition().then(|| symbol.address());
                    imports.push(Import { cell, name: strip_version(name).to_owned(), defined_at });
                }
                _ => {}
            }
        }
        (imports, pointers)
    }
}

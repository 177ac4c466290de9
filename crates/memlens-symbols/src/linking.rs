//! What the dynamic linker is told: which cells get the addresses of which functions and variables.
//!
//! Sources: System V ABI AMD64 1.0, section 4.4.1, and ELF for the Arm 64-bit Architecture (2023Q3), section 5.7.15 (relocation
//! types). Packed relative relocations (`DT_RELR`) are not read.

use std::ops::Range;
use std::sync::Arc;

use memlens_code::Architecture;
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

impl Module {
    /// Every function that a symbol names, ascending, one for each first address. Linear in the
    /// symbols; demangling takes most of the time: see [`Self::linker_functions`].
    pub fn functions(&self) -> Vec<FunctionRef> {
        let found = self.linker_functions().map(|(addresses, raw)| FunctionRef {
            start: addresses.start,
            end: addresses.end,
            name: Some(Arc::from(&*demangle(raw, self.symbols.fortran))),
            raw_name: Some(Arc::from(raw)),
        });
        found.collect()
    }

    /// Every function that a symbol names, with its addresses (svma) and linker name, ascending, one for each first
    /// address. Linear in the symbols.
    pub fn linker_functions(&self) -> impl Iterator<Item = (Range<u64>, &str)> {
        let all = self.symbols.all_functions(&self.sections);
        all.into_iter().map(|(start, end, symbol)| (start..end, self.symbols.name(&symbol)))
    }

    /// Every cell that gets the address of a symbol, and every one that gets an address of this
    /// module. Linear in the relocations.
    pub fn links(&self) -> (Vec<Import>, Vec<InitialPointer>) {
        let (mut imports, mut pointers) = (Vec::new(), Vec::new());
        let Ok(file) = object::File::parse(&*self.image) else { return (imports, pointers) };
        let Some(architecture) = self.architecture() else { return (imports, pointers) };
        let table = file.dynamic_symbol_table();
        let relocations = file.dynamic_relocations().into_iter().flatten();
        for (cell, relocation) in relocations {
            let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
            match (Link::of(architecture, r_type), relocation.target()) {
                (Some(Link::Relative), _) => {
                    pointers.push(InitialPointer { cell, target: relocation.addend() as u64 });
                }
                (Some(Link::Symbol), RelocationTarget::Symbol(index)) => {
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

/// What a dynamic relocation fills a whole cell with.
enum Link {
    /// An address of the module itself.
    Relative,
    /// A symbol's address.
    Symbol,
}

impl Link {
    fn of(architecture: Architecture, kind: elf::RelocationType) -> Option<Self> {
        match (architecture, kind) {
            (Architecture::X86_64, elf::R_X86_64_RELATIVE)
            | (Architecture::AArch64, elf::R_AARCH64_RELATIVE) => Some(Self::Relative),
            (Architecture::X86_64, elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_64)
            | (
                Architecture::AArch64,
                elf::R_AARCH64_GLOB_DAT | elf::R_AARCH64_JUMP_SLOT | elf::R_AARCH64_ABS64,
            ) => Some(Self::Symbol),
            _ => None,
        }
    }
}

//! What a module's file says about its addresses: functions, source lines, types, variables and
//! where variables live, from ELF symbols, DWARF 2–5 and call frame information.
//!
//! This crate deliberately does not know processes: no load addresses, no registers' values, no
//! stacks. All addresses are svmas (as the ELF file states them); the caller subtracts load biases
//! and adds frame addresses. Of machine code it knows only what `memlens-code` tells.
//!
//! # Model
//!
//! ```text
//! Module::open ── ELF headers, symbol tables          (at once, linear in the symbols)
//!      └─ first question about lines or variables
//!           └─ DWARF unit headers, ranges of units    (once)
//!                ├─ one unit                          (on demand; the last 24 are kept)
//!                └─ one function or CFI entry         (on demand, kept)
//! ```
//!
//! Damaged or missing debug information is normal: answers become partial and
//! [`Module::diagnostics`] says why. Nothing panics on damaged input.
//!
//! A [`Module`] is `Send` but not `Sync`: its caches are unlocked; one thread asks at a time.
//!
//! # Not modelled
//!
//! Locals whose place hangs on a register other than the one of the CFA rule (frames realigned at
//! run time, some optimised parameters), variable-length arrays, and locals that optimisation
//! keeps in registers have no [`FrameVariable`]. [`Module::assignment`] knows the code of x86-64 and
//! AArch64, see [`Module::architecture`].
//!
//! # Example
//!
//! ```no_run
//! use memlens_symbols::{DebugSearch, Module};
//!
//! let module = Module::open("/bin/true".as_ref(), &DebugSearch::default())?;
//! for (index, name) in ["malloc", "free"].iter().enumerate() {
//!     for entry in module.entry_points(&["malloc", "free"]) {
//!         if entry.index == index {
//!             println!("{name} at {:#x}", entry.svma);
//!         }
//!     }
//! }
//! if let Some(function) = module.function_at(0x1234) {
//!     println!("{:?} {:#x}..{:#x}", function.name, function.start, function.end);
//! }
//! for variable in module.frame_variables(0x1234).iter() {
//!     println!("{} at CFA{:+}", variable.name, variable.cfa_offset);
//! }
//! # Ok::<(), memlens_symbols::OpenError>(())
//! ```
// Only `image`, which maps files, may use unsafe code.
#![deny(unsafe_code)]

mod allocated_type;
mod assigned_variable;
mod call_frames;
mod data_symbols;
mod debug_info;
mod debug_search;
mod demangle;
mod dwarf_file;
mod element;
mod error;
mod generated_names;
mod image;
mod inline_calls;
mod known_functions;
mod linking;
mod locals;
mod members;
mod module;
mod parameters;
mod place;
mod receiver;
mod recursion;
mod returned_argument;
mod section;
mod source_file;
mod source_lines;
mod source_text;
mod static_variables;
mod symbol_table;
mod types;
mod unit_index;

pub use allocated_type::{BlockType, block_type};
pub use assigned_variable::{AssignedVariable, Assignment, Evidence, NamedPointer, spelling_frame};
pub use call_frames::{CfaRule, RBP, RSP};
pub use data_symbols::{DataKind, DataPlace, DataSymbol};
pub use debug_search::DebugSearch;
pub use element::{Content, Element, Field};
pub use error::{Diagnostic, OpenError};
pub use generated_names::GeneratedNames;
pub use linking::{Import, InitialPointer};
pub use locals::FrameVariable;
pub use module::{EntryPoint, FunctionRef, Module, SourceFrame, TlsSegment};
pub use receiver::{NamingCode, Receiver, naming_code, receiver};
pub use recursion::Recursion;
pub use section::{Section, SectionKind};
pub use static_variables::VariableInfo;
pub use types::{StructField, TypeRef};

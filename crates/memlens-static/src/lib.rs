//! Which variables a module's code touches, and which of them samples of its code belong to.
//!
//! Joins what `memlens-code` reads from machine code, what `memlens-symbols` reads from ELF and
//! DWARF, and the arithmetic of `memlens-approx`. It deliberately knows no processes: one module at
//! a time, addresses as its file states them (svmas), samples as amounts at such addresses.
//!
//! ```text
//!  Module ──► StaticModule: each operand's identities ──┬──► attribute(samples, stage) ──► shares
//!                                                       │
//!  samples by pc ───────────────────────────────────────┘
//! ```
//!
//! [`Stage`] names the ways of attribution: three as published, at lines, and two at instructions.
//! How good they are is measured by the example `evaluate`, which holds them against what exact
//! mode saw (`tests/static.py`, `docs/accuracy-samples.md`).
#![forbid(unsafe_code)]

mod attribution;
mod identity;
mod static_module;
mod surroundings;

pub use attribution::{Attributed, Part, SkidModel, Stage, Waited, attribute, attribute_parts};
pub use identity::Identity;
pub use static_module::{Operand, StaticModule};

//! Physical bus traces: what a card between processor and memory sees, and what that says of data objects.
//!
//! A bus trace has a record for each line read from or written to memory: when, which line, which way. A
//! page-table trace and object events, tied to it by *tags*, tell which process, virtual page and object a
//! physical line belonged to at that moment, and which lines are page tables (Chen et al.: A Lightweight
//! Hybrid Hardware/Software Approach for Object-Relative Memory Profiling, ISPASS 2012; Zhang et al.: PTAT,
//! ACM TECS 17(3), 2018). This crate reads and writes such traces, analyses them, and has a *virtual card*:
//! a model of a machine with physical memory and page tables that makes traces of ordinary programs. And it says what page
//! walks would be with other pages ([`resimulation`]).
//!
//! It deliberately does not know where a program's accesses come from (whoever has them calls
//! [`system::System`]), nor command lines and terminals.
//!
//! ```text
//!  accesses, mappings, objects                     files                             counts, tables
//!  ┌────────────────────────┐   bus, pages,   ┌──────────────┐   records in order  ┌──────────────────┐
//!  │ system: frames, tables,├────────────────►│ format       ├────────────────────►│ analysis: tags,  │
//!  │ TLBs, caches, time     │ objects, truth  │ (or hardware)│                     │ reverse table    │
//!  └────────────────────────┘                 └──────────────┘                     └───────┬──────────┘
//!                                                    truth ─────────► verify ◄─────────────┘
//! ```
//!
//! The formats are documented field by field in `docs/bus-format.md`.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod format;
mod memory_system;
pub mod resimulation;
pub mod system;

pub use memory_system::MemorySystem;

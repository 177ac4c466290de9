//! The vocabulary every other crate speaks: access and object kinds, ids, counters.
//!
//! This crate deliberately knows nothing else: no files, no processes, no caches, no debug
//! information. It is `no_std`.
//!
//! # Address spaces
//!
//! | name | meaning |
//! |---|---|
//! | avma | an address in the running process ("actual virtual memory address") |
//! | svma | an address as the ELF file states it ("stated"), avma − load bias |
//! | module offset | svma of the pc inside its module: what profiles store, because it survives ASLR |
//! | line address | byte address divided by the cache line size |
#![no_std]
#![forbid(unsafe_code)]

mod access;
mod counts;
mod kind;
mod pattern_kind;

pub use access::{AccessAttr, AccessKind, parts_of_line};
pub use counts::{Counts, Fetched, Numa, Sampled, Shared};
pub use kind::{ObjectKind, ParseKindError};
pub use pattern_kind::PatternKind;

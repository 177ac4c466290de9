//! What a trace holds: accesses, and what the numbers in them mean.

use memlens_types::{AccessKind, ObjectKind};

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRow {
    /// What it does. Instruction fetches are no part of a trace and are passed over.
    pub kind: AccessKind,
    /// First byte touched (avma).
    pub addr: u64,
    /// Bytes touched.
    pub size: u32,
    /// Instructions executed before and including the accessing one, by the count the caller keeps.
    pub instructions: u64,
    /// The accessing thread.
    pub thread: u32,
    /// The accessing code: a [`CodeInfo::id`].
    pub code: u32,
    /// The object touched: an [`ObjectInfo::id`].
    pub object: u32,
    /// Bytes from the start of the object (of its block, if it is made of several) to `addr`.
    pub offset: u64,
    /// Serial number of the heap block, from 1; 0 where there is none.
    pub block: u64,
}

/// What an object's number means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its number in [`TraceRow::object`].
    pub id: u32,
    /// Its class.
    pub kind: ObjectKind,
    /// Its name.
    pub name: String,
    /// File and line of its declaration.
    pub declared: Option<(String, u32)>,
    /// Number of the allocation context, from 1; 0 where there is none.
    pub site: u32,
}

/// What the number of a piece of code means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeInfo {
    /// Its number in [`TraceRow::code`].
    pub id: u32,
    /// The innermost function; empty if unknown.
    pub function: String,
    /// The source file; empty if unknown.
    pub file: String,
    /// The source line, from 1; 0 if unknown.
    pub line: u32,
    /// The module; empty for generated code.
    pub module: String,
    /// Module offset of the instruction; its address where there is no module.
    pub offset: u64,
}

//! The event stream: what a collector inside the target writes and memlens reads.
//!
//! This crate knows the shape of records, of definitions and of the shared-memory segment that
//! carries them. It deliberately knows nothing of what they mean: no objects, no caches, no files.
//! It is `no_std`, because one of its two users runs inside the profiled program.
//!
//! # The way of the data
//!
//! ```text
//!  target                                   shared segment                       memlens
//! ┌──────────────────────┐   ┌──────────────────────────────────────────┐   ┌──────────────┐
//! │ thread 1  block code ├──►│ slot 0: ring of chunks of records        ├──►│              │
//! │ thread 2  block code ├──►│ slot 1: ring of chunks of records        ├──►│ one reader   │
//! │ any thread           ├──►│ definitions: blocks, modules, threads    ├──►│              │
//! └──────────────────────┘   └──────────────────────────────────────────┘   └──────────────┘
//! ```
//!
//! A *record* says that a basic block ran, or that something happened ([`EventKind`]); see
//! [`RecordHeader`]. A *definition* says what a block is, before the block runs for the first time;
//! see [`BlockDefinition`] and [`ModuleDefinition`].
//!
//! # What is promised
//!
//! 1. A thread's records stand in its ring in the order in which the thread executed them.
//! 2. The definition of a block is in the segment before any record names the block.
//! 3. Every record of a program with several threads carries the *epoch*, a counter shared by all
//!    threads, as it stood when the block began. Entries into and returns from allocation
//!    functions, and all events, advance it. So an access made after another thread's event
//!    carries a stamp not smaller than the event's.
//! 4. A record with stamp 0 comes from the time when the program had one thread.
//!
//! Cost: 8 bytes a block and 8 bytes an access.
#![no_std]

extern crate alloc;

pub mod agent;
pub mod burst;
mod burst_cost;
mod definition;
mod event;
mod record;
pub mod restriction;
pub mod segment;
mod sink;

pub use definition::{
    BlockDefinition, BlockFlags, DecodeError, Definition, DefinitionKind, ModuleDefinition, ThreadDefinition,
    Word, WordRole,
};
pub use event::{EventKind, ExecHow, SpecialRole};
pub use record::{BLOCK_ID_LIMIT, MAX_BLOCK_WORDS, RecordHeader};
pub use sink::{ModuleAnswer, RecordSink};

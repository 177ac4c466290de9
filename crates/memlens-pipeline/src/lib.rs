//! The pipeline: from a process's records to its profile.
//!
//! This crate knows how to attribute an access to the object that was live at its address, to run it
//! through the memory model and to add up what came of it. It deliberately knows nothing of where
//! the records come from (a [`RecordSink`](memlens_events::RecordSink) is called) nor of files and
//! terminals: the result is a [`Profile`](memlens_profile::Profile) in memory.
//!
//! ```text
//!  records ─► Process ─┬─► ShadowStack   calls and returns, frame addresses
//!                      ├─► AddressSpace  address ─► object     (heap, regions, modules, frames)
//!                      ├─► Cells         (instruction operand × object) ─► counts
//!                      ├─► Fetches       lines of code, where they are modelled
//!                      ├─► Windows       short windows of accesses: strides, chains, call paths
//!                      ├─► Tracer        each access by itself, where that is asked for
//!                      └─► Batch ─► Simulator (the memory model, on a thread of its own)
//!                                         └─► misses back into Cells, and into the Timeline
//!                                                     └─► snapshot ─► Profile
//! ```
//!
//! # How an access finds its object
//!
//! Each thread keeps, for each memory operand of the code (a *reference*), the address range in which
//! its last access fell and the cell to count. The references of a block lie side by side, so that one
//! vector comparison says for four accesses whether all are inside their ranges; what is counted then is
//! one execution of the block. Ranges of locals are kept relative to the frame, or to the caller's, so that
//! a function called at another depth still hits. Otherwise the address is looked up: in
//! the thread's own stack first (through the shadow stack, which calls and returns in the stream
//! maintain), then among the heap blocks, then in the regions: modules, mappings, other stacks (through
//! their owners' shadow stacks), thread-local storage.
//!
//! # Ordering
//!
//! Records are processed in the order given, which respects what happened before what (see
//! `memlens-events`): a block's accesses go to the object that was live then.
//!
//! # Cost
//!
//! Measured on breadth-first search (Zen 5, AVX-512): about 8 ns a block of 1.6 accesses here and 3–5 ns an
//! access in the model, on two cores.

mod address_space;
mod address_stream;
mod batch;
mod block_table;
mod cells;
mod cores;
mod expand;
mod fetches;
mod fields;
mod hot_loop;
mod lanes;
mod line_memo;
mod mask;
mod misses;
mod nodes;
mod paths;
mod process;
mod references;
mod requests;
mod shadow_stack;
mod sharing;
mod simulator;
mod snapshot;
mod space_change;
mod stacks;
mod thread;
mod timeline;
mod trace;
mod windows;

pub use address_stream::AddressStream;
pub use expand::AccessExpander;
pub use memlens_objects::alloc_functions::{AllocFunction, Effect};
pub use process::fork::{FamilyEvent, ForkedProcess};
pub use process::space_events::{ObjectDescription, SpaceEvent};
pub use process::{PipelineError, Process, ProcessOptions};
pub use snapshot::machine_info;

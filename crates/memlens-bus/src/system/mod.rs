//! The virtual card: an ordinary program's accesses as a bus would see them on a modelled machine.
//!
//! [`System`] is told what processes do (accesses, mappings, forks, objects) and writes what a card would
//! see. It models
//!
//! - physical memory, handed out by a buddy allocator, lowest frames first; of several memory nodes (NUMA) from
//!   that of the core that touches it first; or the frames and page sizes of the running process, from a
//!   [`FrameSource`];
//! - demand paging: a page gets its frame when it is first touched; transparent huge pages where a whole
//!   aligned 2 MiB lies in an anonymous mapping and nothing of it is mapped yet; `MAP_HUGETLB` in 2 MiB or 1 GiB;
//! - `madvise`: [`Advice`];
//! - files' pages, shared by all processes that map them; shared anonymous memory; copy-on-write after fork
//!   and of private file mappings; moved and unmapped memory;
//! - four-level page tables in frames of their own, or, as an option, in an uncached region (PTAT);
//! - TLBs and walkers ([`memlens_sim::Translator`]) and physically addressed caches ([`memlens_sim::Model`]);
//!   each page-table entry that a walk reads goes through the caches, unless its table is uncached;
//! - tags, as uncached reads, right behind the accesses that came before the event;
//! - time: a cycle an instruction, and the memory's latency a line read, both divided by the running threads.
//!
//! Not modelled: accesses of the kernel itself (zeroing and copying pages, writing page-table entries),
//! instruction fetches, prefetchers, the zero page, swapping, policies other than first touch (`mbind`), the
//! kernel's mapping of neighbouring file pages at one fault, the longer way to another node's memory, the
//! memory controller's order of requests. Write-backs come evenly spread among
//! the reads of the same few thousand accesses.

mod advice;
mod card;
mod faults;
mod frames;
mod memory;
mod nodes;
mod options;
mod page_tables;
mod paging;
mod processes;
mod real_frames;
// The folder is about the system, the file about the type.
#[allow(clippy::module_inception)]
mod system;

pub use advice::Advice;
pub use card::Card;
pub use faults::{FaultCounts, FaultPlan, inject_faults};
pub use memory::{Backing, Mapping, ThpAdvice};
pub use options::{SystemOptions, ThpSetting};
pub use real_frames::{FrameCounts, FrameSource, RealFrame};
pub use system::{System, SystemCounts};
pub(crate) use system::{fork_events, unborn_pid};

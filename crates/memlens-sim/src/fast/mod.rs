//! The staged engine: caches with LRU, non-inclusive, one core.
//!
//! ```text
//!        upper levels                            lower levels
//! chunk ──► dTLB ─► STLB ─► walker ──┐           │
//!   │                         loads  ▼         queue
//!   └────────────────────────────► L1 sets ──────┼──────► L2 sets ──► LLC sets ──► lines read, write-backs
//!                                    (8, 16 or 32 lanes, recency order)
//! ```
//!
//! As long as no upper level hears from a lower one, levels can run one after another over queues:
//! the order within each level is all that matters. Each stage is a loop of its own over a chunk of
//! references, or over the queue that the stage before it left. A walk's loads are made just before the
//! access that caused it; a dirty victim follows the request that evicted it. So the upper levels can also be some
//! batches ahead of the lower ones, on another thread (`halves.rs`).
//!
//! The loops over all references decide what the cost is. Each is compiled by itself, so that what it works
//! with stays in registers, and writes nothing for a reference that changes nothing: a later one would have
//! to wait for what was written.

mod clock_tlb;
mod first_level;
mod level;
mod lower;
mod model;
mod queue;
mod regions;
mod tlb;
mod translation;
mod upper;

pub(crate) use clock_tlb::ClockTlb;
pub(crate) use lower::LowerLevels;
pub(crate) use model::{FastModel, to_plain};
pub(crate) use queue::Queue;
pub(crate) use tlb::{StampTlb, Tlb1};
pub(crate) use upper::{Overflow, UpperLevels};

//! The staged engine: caches with LRU, non-inclusive, one core.
//!
//! ```text
//!        translation                    back
//! chunk ──► dTLB ─► STLB ─► walker ──┐
//!   │                         loads  ▼
//!   └────────────────────────────► L1 sets ──► L2 sets ──► LLC sets ──► lines read, write-backs
//!                                    (8 or 16 lanes, recency order)
//! ```
//!
//! As long as no upper level hears from a lower one, levels can run one after another over queues:
//! the order within each level is all that matters. Each stage is a loop of its own over a chunk of
//! references, or over the queue that the stage before it left. A walk's loads are made just before the
//! access that caused it; a dirty victim follows the request that evicted it.
//!
//! The loops over all references decide what the cost is. Each is compiled by itself, so that what it works
//! with stays in registers, and writes nothing for a reference that changes nothing: a later one would have
//! to wait for what was written.

mod back;
mod clock_tlb;
mod level;
mod model;
mod regions;
mod tlb;
mod translation;

pub(crate) use clock_tlb::ClockTlb;
pub(crate) use model::FastModel;
pub(crate) use tlb::{StampTlb, Tlb1};

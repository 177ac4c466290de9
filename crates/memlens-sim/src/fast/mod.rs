//! The staged engine: caches with LRU, non-inclusive, one core.
//!
//! ```text
//!        translation                    front            back
//! chunk ──► dTLB ─► STLB ─► walker ──► most recent ──► L1 sets ──► L2 sets ──► LLC sets ──► write-backs
//!   │                         loads    line of the       (8 or 16 lanes, recency order)
//!   └────────────────────────────────► L1 set?
//! ```
//!
//! As long as no upper level hears from a lower one, levels can run one after another over queues:
//! the order within each level is all that matters. Each stage is a loop of its own over a chunk of
//! references, or over the queue that the stage before it left. Page-walk loads enter the first
//! level's queue just before the access that caused them; a dirty victim follows the request that
//! evicted it.

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

//! The staged engine: LRU at all levels, non-inclusive, one core.
//!
//! ```text
//!            front, one reference at a time             back, one queue at a time
//! batch ──► dTLB ─► STLB ─► walker ─► most recent ──► L1 sets ──► L2 sets ──► LLC sets ──► write-backs
//!                              loads   line of the       (8 or 16 lanes, recency order)
//!                                      L1 set?
//! ```
//!
//! As long as no upper level hears from a lower one, levels can run one after another over queues:
//! the order within each level is all that matters. Page-walk loads enter the first level's queue
//! just before the access that caused them; a dirty victim follows the request that evicted it.

mod level;
mod model;
mod regions;
mod tlb;

pub(crate) use model::FastModel;
pub(crate) use tlb::StampTlb;

//! Which data object owns an address right now: live heap blocks, labelled regions below them,
//! allocation sites, and the rule by which blocks merge into objects.
//!
//! It deliberately knows no files, no ELF or debug information, no processes and no threads: one
//! owner feeds it events in order (see `ARCHITECTURE.md`, "Ordering") and asks. Call stacks
//! and region labels are numbers whose meaning is the caller's.
//!
//! ```text
//!  address ──► LiveBlocks ── no live block ──► Regions ── no region ──► unknown, with a reason
//!                  │ ObjectPages (radix)          │ label
//!                  ▼                              ▼
//!               ObjectId  ◄── ObjectTable ◄── (kind, key); heap blocks by Sites and Merge
//! ```
//!
//! [`HeapObjects`] ties sites, objects and live blocks together for heap events; the parts can be
//! used alone.
//!
//! ```
//! use memlens_objects::{HeapObjects, Layer, Merge};
//!
//! let mut heap = HeapObjects::new(Merge::BySite);
//! let stack = [0x1234, 0x5678];
//! let row0 = heap.allocated(0x1000, 40, Layer::HEAP, &stack, 1).unwrap();
//! let row1 = heap.allocated(0x1030, 40, Layer::HEAP, &stack, 2).unwrap();
//! assert_eq!(row0, row1); // one call stack, one object
//! assert_eq!(heap.blocks().object_at(0x1057), Some(row1)); // last byte of the second block
//! assert_eq!(heap.blocks().object_at(0x1058), None); // the allocator's padding
//! heap.freed(0x1000, Layer::HEAP);
//! assert_eq!(heap.objects().stats(row0).live_bytes, 40);
//! ```
#![forbid(unsafe_code)]

pub mod alloc_functions;
mod heap_objects;
mod heap_peak;
mod index_stats;
mod live_blocks;
mod object_id;
mod object_pages;
mod object_table;
mod regions;
mod sites;
mod slot_slab;

pub use heap_objects::HeapObjects;
pub use index_stats::IndexStats;
pub use live_blocks::{Block, InsertError, Layer, LiveBlocks};
pub use object_id::{ObjectId, SiteId};
pub use object_pages::{CHUNK_BYTES, GRANULE_BYTES, MAX_ID, ObjectPages};
pub use object_table::{Merge, ModuleId, ObjectKey, ObjectStats, ObjectTable, UnknownReason};
pub use regions::Regions;
pub use sites::{Sites, frame_key, split_frame_key};

//! From bus records to processes, objects and page walks.
//!
//! ```text
//! bus record ─┬─ in the tag region ──► TagCounter ──► next page-table or object events ─┐
//!             │                                                                         ▼
//!             └─ else ──► ReverseTable: frame ─► table page (level, process)   ObjectSpaces: address
//!                                            └► (process, virtual page) ─────────────► object ──► Tally
//! ```
//!
//! # Threads
//!
//! Between two events the tables (`Tables`) do not change, so records can be attributed in any order, by any thread:
//!
//! ```text
//! file ─ next_packed ─► unpack ─► numbers ─► records up to the next tag, in pieces of 1,024
//!        one thread     any       in order      ├─ resolve  any thread: what does each belong to? stops at a record
//!                                               │                       that may change the tables (see Repairs)
//!                                               ├─ cut      in order:   what is behind such a record waits
//!                                               └─ count    any thread: into a tally of its own
//! ```
//!
//! Tallies are sums of whole numbers, points are taken by their place among the data records, and walk reads are settled
//! in the order of their tables: the result does not depend on the number of threads, to the last bit.
//!
//! # What is counted how
//!
//! - A line of a mapped frame is data of the object that has most of the line's bytes. A frame that several
//!   pages map is attributed to the page that mapped it first, and counted as shared.
//! - A frame whose last mapping ended keeps its owner for write-backs: lines of it are still in caches.
//!   They are counted as late.
//! - A read of a page-table frame is a page walk: of the objects whose pages' entries lie in the line, in
//!   proportion to their pages (levels above the leaf: to their bytes below the eight entries). A write of
//!   such a frame is the kernel's change of an entry.
//! - All other frames are counted by what they are used for, as far as the page-table trace says.
//!
//! # Repairs
//!
//! A tag ahead of what is expected says that tags before it are missing: their events happen now, late. A tag
//! behind is one that was overtaken (if it was missing before) or one too many. A read of a frame that nothing
//! maps, while one of the next events maps it, shows that its tag is missing or late: the events happen
//! at once. Each case is counted ([`TagCounts`]).
//!
//! # Restarting
//!
//! An analysis keeps a checkpoint if it is asked to: the whole state and the place in each file, between two
//! blocks of records ([`Checkpoints`]). One that goes on from there gives the result of one that was never stopped.
//!
//! # Cost
//!
//! Memory: 32 bytes a frame that was ever mapped, some 100 a mapping and a block; none a record. A trace is
//! read once, some blocks of records (1.1 MB each) at a time: four a thread at most.

mod analyzer;
mod backing;
mod checkpoint;
mod counts;
mod events;
mod nodes;
mod object_space;
mod piece;
mod report;
mod reverse_table;
mod rounds;
mod stream;
mod tables;
mod tags;
mod tally;
mod time_bins;
mod verify;

pub use analyzer::{Analyzer, Attribution, Observer, RecordKind};
pub use checkpoint::Checkpoints;
pub use counts::{ObjectCounts, Points, TotalCounts};
pub use nodes::NodeCounts;
pub use object_space::{ObjectInfo, ObjectSpaces};
pub use report::{Analysis, Losses, ObjectRow, PageSizes, WalkedLine, WalkedPages};
pub use reverse_table::{Place, ReverseTable};
pub use stream::{analyze, analyze_restartable, observe};
pub use tags::TagCounts;
pub use time_bins::TimeBins;
pub use verify::{Verification, Verifier};

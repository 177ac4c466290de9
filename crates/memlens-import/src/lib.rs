//! Other tools' memory traces as streams of accesses, so that the model can be held against theirs.
//!
//! This crate reads bytes from any [`std::io::BufRead`] and knows the traces' grammar. It
//! deliberately knows nothing of files, caches, objects, or what becomes of an access.
//!
//! | tool | reader |
//! |---|---|
//! | `valgrind --tool=lackey --trace-mem=yes` | [`LackeyReader`] |
//!
//! ```
//! use memlens_import::{Access, LackeyReader};
//! use memlens_types::AccessKind;
//!
//! let trace = b"==7== Lackey, an example Valgrind tool\nI  04016000,3\n S 1ffefff9f8,8\n";
//! let mut reader = LackeyReader::new(&trace[..]);
//! let accesses = reader.by_ref().collect::<Result<Vec<_>, _>>()?;
//! assert_eq!(accesses[1], Access { kind: AccessKind::Store, addr: 0x1ffefff9f8, size: 8 });
//! assert_eq!(reader.skipped_lines(), 1);
//! # Ok::<(), memlens_import::LackeyError>(())
//! ```
#![forbid(unsafe_code)]

mod access;
mod lackey_error;
mod lackey_reader;

pub use access::Access;
pub use lackey_error::LackeyError;
pub use lackey_reader::LackeyReader;

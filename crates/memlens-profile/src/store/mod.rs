//! The store: a profile is a folder of Parquet files and a `profile.json` that names them.
//!
//! ```text
//! memlens.bfs.4711/
//!   profile.json               run, machine, attribution; which files make up the profile
//!   objects-000003.parquet     one table each, generation 3
//!   cells-000003.parquet
//!   …
//! ```
//!
//! A flush writes and syncs all tables under the next generation's names, then a `profile.json.new`
//! that names them with their sizes and checksums, and renames it over `profile.json`; then the former
//! generation's files are removed. Whenever the writer dies, `profile.json` names a whole generation.
//! What is left over of an unfinished one is passed over by readers and removed by the next flush.
//!
//! Versions: `format_version` is raised when an older reader would misread a profile. Readers refuse
//! newer ones. Columns, keys and tables may be added without raising it; readers pass over unknown ones, and take a table
//! that came later for empty where a profile does not have it.

mod columns;
mod error;
mod folder;
mod manifest;
mod parquet_table;
mod processes;
mod reader;
mod schema;
mod tables;
#[cfg(test)]
mod tests;
mod writer;

pub use error::{OpenError, WriteError};
pub use processes::ProcessFolder;
pub use schema::schema_markdown;
pub use writer::{Existing, ProfileWriter, keep_prediction};

/// The version of the format this crate writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;

//! The trace of single accesses, each with its data object, as text, CSV or Parquet.
//!
//! The crate deliberately does not know where accesses come from, how objects are found, or what a
//! cache is: it filters rows that are complete and writes them, in the order in which they come.
//!
//! The forms follow A. J. Peña and P. Balaji, "A framework for tracking memory accesses in scientific
//! applications" (2014), listing 6 (text) and section 4.1 (CSV). Ours differ: words for kinds and classes instead of letters, no instruction fetches in any
//! form, the thread is kept, and Parquet is added.
//!
//! # Text
//!
//! ```text
//! # memlens trace, version 1: kind address size class name+offset [declared, or allocation site]
//! # thread 1
//! store 1ffefff920 8 local timer+0 [ljs.cpp:271]
//! store 57acd10 8 heap column+8 [site 1392]
//! ```
//!
//! Addresses are hexadecimal, sizes and offsets decimal bytes. `# thread N` stands before the
//! accesses of another thread than before. Control characters in names are escaped, an unknown name
//! is `?`.
//!
//! # CSV
//!
//! `trace.csv`, with a header line; numbers are decimal, `declared` is `file:line`, text with commas
//! or quotes stands in quotes (RFC 4180):
//!
//! `instructions,thread,kind,address,size,class,object,name,offset,declared,site,block,code`
//!
//! Beside it `trace.code.csv` with the code that `code` refers to (not where the trace goes to a
//! pipe or device): `code,function,file,line,module,module_offset`.
//!
//! # Parquet
//!
//! A folder with three tables, each a folder of numbered parts, so that a tool reads a table by its
//! folder (`pandas.read_parquet("trace/accesses")`, `FROM 'trace/accesses/*.parquet'`).
//!
//! | `accesses` | type | coding | meaning |
//! |---|---|---|---|
//! | `instructions` | u64 | delta | instructions executed up to the access |
//! | `thread` | u32 | dictionary | accessing thread |
//! | `kind` | text | dictionary | `load`, `store`, `modify`, `prefetch` |
//! | `address` | u64 | plain | first byte touched |
//! | `size` | u32 | dictionary | bytes touched |
//! | `object` | u32 | dictionary | row of `objects` |
//! | `start` | u64 | dictionary | where the object's block begins: the offset is `address - start` |
//! | `block` | u64 | dictionary | serial number of the heap block, 0 = none |
//! | `code` | u32 | dictionary | row of `code` |
//!
//! | `objects` | type | meaning |
//! |---|---|---|
//! | `object` | u32 | number, unique |
//! | `class` | text | `heap`, `global`, `local` … |
//! | `name` | text | empty = unknown |
//! | `declared_file`, `declared_line` | text, u32 | declaration; empty, 0 = none |
//! | `site` | u32 | allocation context, 0 = none |
//!
//! | `code` | type | meaning |
//! |---|---|---|
//! | `code` | u32 | number, unique |
//! | `function`, `file`, `line` | text, text, u32 | empty, 0 = unknown |
//! | `module`, `offset` | text, u64 | file and module offset; without a file, the address |
//!
//! All columns are zstd-compressed; only encodings of Parquet 2.0 are used. Rows stand in the order
//! of the trace, part after part. `objects` and `code` hold what accesses refer to, once each, as it
//! was defined when an access first named it.
//!
//! # When writing ends early
//!
//! Text and CSV are handed to the system by whole lines, Parquet by parts of 1,048,576 rows that get
//! their name when they are complete: what a killed writer leaves is a readable beginning of the
//! trace. Lost are at most 256 KiB of lines, or one part. Definitions reach the disk before the
//! accesses that need them. An error (disk full …) ends the trace; [`TraceWriter::error`] and
//! [`TraceSink::finish`] tell it once. A crash of the system itself is not provided for.
//!
//! # Cost
//!
//! Memory: the definitions, and for Parquet about 80 MB for a part. Time and size: see
//! `examples/bytes_per_access.rs`. Of a breadth-first search's real accesses (`examples/bfs`, 2^14
//! vertices), those of the search alone take 2.1 bytes each, those of building the graph 0.5.
//!
//! # Example
//!
//! ```
//! use memlens_trace::{CodeInfo, ObjectInfo, TraceFilter, TraceFormat, TraceRow, TraceSink, TraceWriter};
//! use memlens_types::{AccessKind, ObjectKind};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("trace.txt");
//! let mut filter = TraceFilter::default();
//! filter.add("object=heap")?;
//! let mut trace = TraceWriter::create(&path, TraceFormat::Text, filter, false)?;
//! trace.object(ObjectInfo { id: 1, kind: ObjectKind::Heap, name: "column".into(), declared: None, site: 3 });
//! trace.code(CodeInfo { id: 1, function: "main".into(), ..CodeInfo::default() });
//! trace.access(&TraceRow {
//!     kind: AccessKind::Load, addr: 0x5000, size: 4, instructions: 17, thread: 1,
//!     code: 1, object: 1, offset: 8, block: 1,
//! });
//! assert_eq!(trace.finish()?.written, 1);
//! assert!(std::fs::read_to_string(&path)?.ends_with("load 5000 4 heap column+8 [site 3]\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod csv;
mod id_map;
mod line_file;
mod parquet_part;
mod parquet_trace;
mod row;
mod tables;
mod text;
mod trace_error;
mod trace_filter;
mod trace_format;
mod trace_sink;
mod trace_writer;
mod word;

pub use row::{CodeInfo, ObjectInfo, TraceRow};
pub use trace_error::TraceError;
pub use trace_filter::{FilterError, TraceFilter};
pub use trace_format::{ParseFormatError, TraceFormat};
pub use trace_sink::{TraceSink, TraceSummary};
pub use trace_writer::TraceWriter;

#[cfg(test)]
mod tests;

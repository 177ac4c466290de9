//! A profile as a database: tables that SQL asks what no report answers.
//!
//! [`Database`] holds the tables of one profile, or of several under names of their own, in SQLite, and fills those that a
//! query reads. [`Database::file`] is the same as a file, for whatever opens SQLite's.
//!
//! The crate deliberately knows nothing of files and terminals: results are values, row by row ([`Piece`]).
#![forbid(unsafe_code)]

mod database;
mod error;
mod fill;
mod functions;
mod schema;
mod tables;
mod value;
mod views;

pub use database::{Asked, Database, Piece};
pub use error::QueryError;
pub use rusqlite::types::Value;
pub use schema::{SCHEMA_VERSION, schema_markdown, schema_text};

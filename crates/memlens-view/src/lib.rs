//! A profile in a terminal: its tables, and what is behind their rows.
//!
//! The crate knows terminals and keys. It deliberately does not know how profiles are stored or made, nor what a table
//! holds: a [`Source`] hands it profiles, `memlens-report` lays out lines.
//!
//! ```text
//!  Source ──Profile──► App ──────► memlens-report: lines, each with what it is of
//!                       │ ▲
//!            draw(frame)│ │key(key)       app.rs      what is shown: groupings, order, pages above each other
//!                       ▼ │               sheet.rs    lines that are scrolled, selected and filtered
//!                     terminal.rs         picker.rs   columns to sort by     paint.rs  lines on the screen
//!                                         keys.rs     what keys do           prose.rs  texts as lines
//!                                         mouse.rs    what the mouse does
//! ```
//!
//! The state ([`App`]) is apart from the terminal ([`show`]): what a key does and what is seen then can be tested
//! without one.
#![forbid(unsafe_code)]

mod app;
mod keys;
mod mouse;
mod paint;
mod picker;
mod prose;
mod sheet;
mod source;
mod terminal;

pub use app::{App, AppOptions, Then};
pub use source::{Recorded, Source};
pub use terminal::show;

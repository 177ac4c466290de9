//! Patterns for names of objects and functions, the same wherever a user gives one.
//!
//! This crate deliberately knows nothing of what is named.
#![forbid(unsafe_code)]

mod glob;

pub use glob::Glob;

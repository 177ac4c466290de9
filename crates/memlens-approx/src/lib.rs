//! Which data waits for memory, from samples that say only where in the code the processor was.
//!
//! This crate deliberately knows neither machine code, symbols, samples' origin nor files: positions
//! with reads and a number of samples at each go in, amounts for each read come out.
//!
//! # Model
//!
//! ```text
//!  samples at positions ──► raw ──► loop compensation ──►  as published: positions are lines
//!            │                        ▲
//!            └────► skid negation ────┘
//!            │
//!            └────► control flow (ours: positions are instructions) ──► raw
//! ```
//!
//! - A **position** is a source line or an instruction; nothing here depends on which. The positions
//!   of a [`Code`] belong to one function and stand in the order of the source or of addresses.
//! - A **location** is memory that a position reads and that static analysis can tell from other
//!   memory: `x[a]` and `x[b]` are two locations of one **variable**, `x`; `x[b]` read twice on a
//!   line is one.
//! - Amounts are samples, or whatever else is to be divided (cycles, misses): not rounded.
//!
//! # Source
//!
//! N. Rutar and J. K. Hollingsworth, "Software Analysis Techniques to Approximate Data Centric Direct
//! Measurements": section 3.3.1 is [`Code::raw`], 3.3.2 (equations 1–5) [`Code::compensate`], 3.3.3
//! (equations 6–8) [`Code::negate_skid`]. The paper's three tables are the tests of this crate.
//!
//! Deviations: where compensation would leave nothing of a position (a loop of one line reads its
//! only variable on each of its lines), the position stays as it was, because samples must not
//! vanish; what has no read in reach is counted in [`Assigned::lost`].
//!
//! [`Flow`] is ours. The paper moves samples back by lines and loses them at conditionals and calls
//! (sections 4.2.2 and 4.3.2); its section 5 asks for control flow. [`Flow::unskid`] estimates by
//! maximum likelihood which instructions the samples came from, along the edges that execution
//! takes: W. H. Richardson, "Bayesian-Based Iterative Method of Image Restoration", JOSA 62 (1972),
//! and L. B. Lucy, "An iterative technique for the rectification of observed distributions", The
//! Astronomical Journal 79 (1974).
//!
//! # Example
//!
//! ```
//! use memlens_approx::{Code, Position, Read};
//!
//! // Line 0: i = x[a]; line 1: j = x[a] + y[a]. Variables: x is 0, y is 1, a is 2.
//! let (x, y, a) = (Read { location: 0, variable: 0 }, Read { location: 1, variable: 1 }, Read { location: 2, variable: 2 });
//! let code = Code::new(
//!     vec![Position { reads: vec![x, a], innermost: None }, Position { reads: vec![x, y, a], innermost: None }],
//!     Vec::new(),
//! );
//! let raw = code.raw(&[1.0, 3.0]);
//! assert_eq!(raw.by_variable(3), [1.5, 1.0, 1.5]);
//! ```
#![forbid(unsafe_code)]

mod assigned;
mod code;
mod flow;
mod skid;
#[cfg(test)]
mod tests;

pub use assigned::Assigned;
pub use code::{Code, LoopLines, LoopWeight, Position, Read, THRESHOLD};
pub use flow::Flow;
pub use skid::{Skid, SkidError};

//! What memory costs on this machine, and where its samples land.
//!
//! | question | by |
//! |---|---|
//! | how many cycles does a load wait that a cache, memory, another node's memory, a TLB, another core serves? | [`LatencyTable`] |
//! | how fast do lines follow each other, however many are under way? | [`LineRates`] |
//! | how far from the instruction that waits is a sample? | [`skid`] |
//!
//! The answers are a [`Calibration`], a file in the user's configuration folder; until there is one, what [`measure_briefly`] finds at the
//! first run. Exact mode weights
//! accesses by its latencies, sample mode decides by its skid which instruction a sample means.
//!
//! The crate deliberately does not know what is done with them, nor the command line.
#![deny(unsafe_code)]

mod brief;
mod calibration;
pub mod chain;
mod clock;
mod kernel_clock;
mod known_loops;
mod latency;
mod mapping;
mod nodes;
mod rates;
pub mod skid;
mod transfer;

pub use brief::measure_briefly;
pub use calibration::{Calibration, CalibrationError, brief_path, default_path, is_writable};
pub use clock::{Latency, core_cycle_ns};
pub use latency::{CurvePoint, Geometry, LatencyTable, WalkPoint};
pub use mapping::Pages;
pub use nodes::NodeLatency;
pub use rates::LineRates;

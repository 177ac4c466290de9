//! A forked child says whose copy it is.
//!
//! A child has its parent's mappings and blocks. What it knows of them are addresses; memlens knows the rest, of the
//! parent, and many a child has ended before its /proc/PID/maps could be read.
//!
//! # Signal safety
//! A record is written.

use memlens_events::agent::Kind;

use crate::arch::ThreadArea;
use crate::ring::{Segment, now_ns};

/// Says that the process is a new one.
pub fn report(segment: Segment, area: &ThreadArea, parent: u32) {
    segment.write(Kind::Forked, now_ns(), area, &[u64::from(parent)], None);
}

//! One access of a trace.

use memlens_types::AccessKind;

/// One line of a trace: an instruction fetch or a data access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// What it does.
    pub kind: AccessKind,
    /// First byte touched (avma).
    pub addr: u64,
    /// How many bytes it touches.
    pub size: u32,
}

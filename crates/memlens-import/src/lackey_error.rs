//! What can be wrong with a lackey trace.

use std::io;

/// Why a line of a lackey trace gave no access. Lines count from 1, offsets are bytes from the start
/// of the line and name the first byte that does not fit. After any error but `Read` the reader goes
/// on with the next line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LackeyError {
    /// The bytes behind the kind are no `address,size`.
    #[error("read line {line} of the trace: byte {offset} is {found:?}, which fits no `address,size`")]
    Syntax {
        /// The line.
        line: u64,
        /// The byte in the line.
        offset: u32,
        /// What is there.
        found: char,
    },
    /// The line, the last of the trace, ends too early: the trace was cut.
    #[error("read line {line} of the trace: it ends at byte {offset}, before its `address,size` does")]
    Truncated {
        /// The line.
        line: u64,
        /// Its length.
        offset: u32,
    },
    /// An address of more than 16 digits, or a size that is 0 or more than 32 bits or 10 digits.
    #[error("read line {line} of the trace: the number up to byte {offset} is out of range")]
    Range {
        /// The line.
        line: u64,
        /// The first digit too many, or the byte after a size of 0.
        offset: u32,
    },
    /// The source failed. The reader is at its end from here on.
    #[error("read the trace after line {line}: {kind}")]
    Read {
        /// The last line that was complete.
        line: u64,
        /// What the system said.
        kind: io::ErrorKind,
    },
}

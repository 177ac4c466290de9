//! What can be wrong with a trace.

use std::io;
use thiserror::Error;

/// Why a file of a trace cannot be read or written. To be read after "failed to".
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The system said no.
    #[error("{what}: {source}")]
    Io {
        /// What was being done: "read the file".
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The first line is not a header of such a file.
    #[error("read the header: {0}")]
    Header(String),
    /// A later version, or something that this version does not have.
    #[error("read the file: {0} is not supported by this version")]
    Unsupported(String),
    /// A line of a text form.
    #[error("read line {line}: {problem}")]
    Line {
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A checkpoint from which an analysis cannot go on.
    #[error("go on from the checkpoint: {0}")]
    Checkpoint(String),
    /// Files that do not belong together.
    #[error("combine the files: {0}")]
    Mismatch(String),
}

impl FormatError {
    pub(crate) fn read(source: io::Error) -> Self {
        Self::Io { what: "read the file", source }
    }

    pub(crate) fn write(source: io::Error) -> Self {
        Self::Io { what: "write the file", source }
    }
}

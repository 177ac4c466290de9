//! What can go wrong with writing a trace, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

/// Why a trace cannot be written (on). Messages read after "failed to write the trace: ". What was
/// written before stays readable in every case.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// Something is there already.
    #[error("{} exists already; choose another name, or replace it with --force", path.display())]
    Exists {
        /// Where.
        path: PathBuf,
    },
    /// Something is there that is no trace, so that even `--force` leaves it alone.
    #[error("{} exists and is no memlens trace; choose another name", path.display())]
    NotATrace {
        /// Where.
        path: PathBuf,
    },
    /// The folder that should hold it is not there.
    #[error("the folder of {} does not exist; create it first", path.display())]
    NoParent {
        /// Where.
        path: PathBuf,
    },
    /// The system forbids writing there.
    #[error("{} may not be written; choose another place", path.display())]
    Permission {
        /// Where.
        path: PathBuf,
    },
    /// No space is left.
    #[error(
        "the disk is full at {} (after {written} accesses, which stay readable); free some space, choose \
         another place, or set a limit", path.display()
    )]
    DiskFull {
        /// Where.
        path: PathBuf,
        /// Accesses that are surely in the trace.
        written: u64,
    },
    /// Any other error of the system.
    #[error("{} cannot be written: {source} (after {written} accesses, which stay readable)", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
        /// Accesses that are surely in the trace.
        written: u64,
    },
    /// A table cannot be encoded.
    #[error("{} cannot be encoded: {what} (after {written} accesses, which stay readable)", path.display())]
    Encode {
        /// Where.
        path: PathBuf,
        /// What the encoder says.
        what: String,
        /// Accesses that are surely in the trace.
        written: u64,
    },
}

impl TraceError {
    pub(crate) fn from_io(path: &Path, source: io::Error, written: u64) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::AlreadyExists => Self::Exists { path },
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::NoParent { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::Permission { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::DiskFull { path, written }
            }
            _ => Self::Io { path, source, written },
        }
    }
}

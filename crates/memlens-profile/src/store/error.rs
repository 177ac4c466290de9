//! What can go wrong with a stored profile, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use super::FORMAT_VERSION;

/// Why a profile cannot be opened. Messages read after "failed to open the profile: ".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is nothing at the path.
    #[error("nothing is at {}; check the path (without --out, profiles are named memlens.PROGRAM.PID)", path.display())]
    NotFound {
        /// Where.
        path: PathBuf,
    },
    /// There is something, but no profile.
    #[error("{} is not a memlens profile: {why}", path.display())]
    NotAProfile {
        /// Where.
        path: PathBuf,
        /// What is there.
        why: String,
    },
    /// It was written by a newer memlens.
    #[error(
        "{} has format version {found}, this memlens reads up to {FORMAT_VERSION}; it was written by memlens \
         {memlens_version}: use that version or a newer one", path.display()
    )]
    NewerVersion {
        /// Where.
        path: PathBuf,
        /// The profile's format version.
        found: u64,
        /// The memlens that wrote it.
        memlens_version: String,
    },
    /// It has a version that was never released.
    #[error("{} has format version {found}, which no memlens ever wrote; record the program again", path.display())]
    UnknownVersion {
        /// Where.
        path: PathBuf,
        /// The profile's format version.
        found: u64,
    },
    /// A file of the profile is cut short or changed.
    #[error(
        "{} is damaged: {what}; copy the profile again from where it was recorded, or record again",
        file.display()
    )]
    Damaged {
        /// Which file.
        file: PathBuf,
        /// What is wrong, and where in the file.
        what: String,
    },
    /// The system forbids reading it.
    #[error("{} may not be read; ask its owner or change its permissions", path.display())]
    Permission {
        /// Where.
        path: PathBuf,
    },
    /// Any other error of the system.
    #[error("{} cannot be read: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl OpenError {
    pub(super) fn from_io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { path },
            io::ErrorKind::PermissionDenied => Self::Permission { path },
            io::ErrorKind::NotADirectory => Self::NotAProfile {
                path,
                why: "it is a file, and a profile is a folder; was it packed into an archive?".to_owned(),
            },
            _ => Self::Io { path, source },
        }
    }
}

/// Why a profile cannot be written. Messages read after "failed to write the profile: ". What was
/// flushed before stays readable in every case.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Something is there already.
    #[error("{} exists already; choose another name with --out, or replace it with --force", path.display())]
    Exists {
        /// Where.
        path: PathBuf,
    },
    /// Something is there that is no profile, so that even `--force` leaves it alone.
    #[error("{} exists and is not a memlens profile; choose another name with --out", path.display())]
    NotAProfile {
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
    #[error("{} may not be written; choose another place with --out", path.display())]
    Permission {
        /// Where.
        path: PathBuf,
    },
    /// No space is left.
    #[error(
        "the disk is full at {}; free some space or choose another place with --out \
         (what was flushed before, if anything, stays readable)", path.display()
    )]
    DiskFull {
        /// Where.
        path: PathBuf,
    },
    /// The limit of file sizes is reached.
    #[error(
        "{} would be larger than the limit of file sizes; raise it: ulimit -f unlimited \
         (what was flushed before, if anything, stays readable)", path.display()
    )]
    FileTooLarge {
        /// Where.
        path: PathBuf,
    },
    /// A table cannot be encoded.
    #[error("table {table} cannot be encoded: {what}")]
    Encode {
        /// Which table.
        table: &'static str,
        /// What the encoder says.
        what: String,
    },
    /// Any other error of the system.
    #[error("{} cannot be written: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl WriteError {
    pub(super) fn from_io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::AlreadyExists => Self::Exists { path },
            // Some folders of the system take no files: /proc.
            io::ErrorKind::NotFound if has_parent(&path) => Self::Permission { path },
            io::ErrorKind::NotFound => Self::NoParent { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::Permission { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path },
            io::ErrorKind::FileTooLarge => Self::FileTooLarge { path },
            _ => Self::Io { path, source },
        }
    }
}

/// Whether the folder that should hold it is there.
fn has_parent(path: &Path) -> bool {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => true,
        Some(parent) => parent.is_dir(),
        None => false,
    }
}

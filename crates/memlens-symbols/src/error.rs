//! What can be wrong with a module or its debug information.

use std::io;
use std::path::PathBuf;

/// Why a module could not be opened at all. Messages read after "failed to open PATH: ".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file cannot be read.
    #[error("cannot read the file: {0}")]
    Io(#[from] io::Error),
    /// The bytes are no ELF file.
    #[error("not an ELF file: {0}")]
    NotElf(object::Error),
    /// The file is big-endian, which no supported machine is.
    #[error("a big-endian ELF file, only little-endian ones are understood")]
    BigEndian,
}

/// Something that is missing or damaged, so that answers are partial.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Diagnostic {
    /// The symbol table is damaged; symbols after the damage are missing.
    #[error("damaged symbol table: {0}")]
    Symbols(String),
    /// A debug file named by the module was not found.
    #[error("debug file {0} not found")]
    DebugFileMissing(String),
    /// A debug file was found but belongs to another build.
    #[error("debug file {0} belongs to another build")]
    DebugFileMismatch(PathBuf),
    /// A debug file cannot be read.
    #[error("debug file {0}: {1}")]
    DebugFileUnreadable(PathBuf, String),
    /// The DWARF is damaged; the part after the damage is missing.
    #[error("damaged DWARF: {0}")]
    Dwarf(String),
    /// The embedded mini debug information (`.gnu_debugdata`) cannot be unpacked.
    #[error("damaged .gnu_debugdata: {0}")]
    MiniDebugInfo(String),
    /// A table of unwind information is damaged.
    #[error("damaged call frame information: {0}")]
    CallFrames(String),
}

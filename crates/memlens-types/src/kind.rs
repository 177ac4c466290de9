//! What sort of thing an address belongs to.

use core::fmt;
use core::str::FromStr;

/// The class of a data object. Every address has one; `Unknown` always carries a reason elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ObjectKind {
    /// A block from an allocation function.
    Heap = 0,
    /// A global or static variable, or an unnamed part of a module's data sections.
    Global = 1,
    /// A variable in a function's frame.
    Local = 2,
    /// A thread-local variable or an unnamed part of a thread's static TLS block.
    Tls = 3,
    /// A frame's unnamed parts: spills, saved registers, return addresses, arguments.
    Stack = 4,
    /// Machine code read as data (jump tables in `.text`), or instruction fetches.
    Code = 5,
    /// A mapping that is not the heap: `mmap`ed files and anonymous memory.
    Mmap = 6,
    /// vDSO, vvar and vsyscall pages.
    Kernel = 7,
    /// Nothing of the above covers the address.
    Unknown = 8,
    /// No data at all: time that a sample found at an instruction that waits for no access.
    Computation = 9,
}

impl ObjectKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [Self; 10] = [
        Self::Heap,
        Self::Global,
        Self::Local,
        Self::Tls,
        Self::Stack,
        Self::Code,
        Self::Mmap,
        Self::Kernel,
        Self::Unknown,
        Self::Computation,
    ];

    /// The word used in reports and in the JSON's `kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::Global => "global",
            Self::Local => "local",
            Self::Tls => "tls",
            Self::Stack => "stack",
            Self::Code => "code",
            Self::Mmap => "mmap",
            Self::Kernel => "kernel",
            Self::Unknown => "unknown",
            Self::Computation => "computation",
        }
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A word that names no [`ObjectKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseKindError;

impl fmt::Display for ParseKindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not one of heap, global, local, tls, stack, code, mmap, kernel, unknown, computation")
    }
}

impl core::error::Error for ParseKindError {}

impl FromStr for ObjectKind {
    type Err = ParseKindError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word).ok_or(ParseKindError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_parses_back() {
        for kind in ObjectKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        assert_eq!("heaps".parse::<ObjectKind>(), Err(ParseKindError));
    }
}

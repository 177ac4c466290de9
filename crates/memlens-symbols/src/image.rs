//! The bytes of one file, mapped or owned.
#![allow(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

/// The bytes of a file. Cheap to clone; the bytes live as long as any clone.
#[derive(Clone)]
pub(crate) struct Image(Arc<Storage>);

enum Storage {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Image {
    /// Maps `path` read-only. Only regular files are accepted: mapping a device could block.
    pub(crate) fn map(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        if metadata.len() == 0 {
            return Ok(Self::from_bytes(Vec::new()));
        }
        // SAFETY: `Mmap::map` asks that nobody truncates or rewrites the file while it is mapped.
        // The file is mapped privately and read-only; it is a program, library or debug file that
        // the profiled process has mapped itself, which the kernel (ETXTBSY) and package managers
        // (they rename new files into place) protect from being rewritten. Whoever truncates it
        // regardless ends the profiled program and us alike; that promise is passed to the caller
        // in `Module::open`'s documentation.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self(Arc::new(Storage::Mapped(map))))
    }

    /// Lets the system take the pages back that were read so far; they are read again when needed. Bytes
    /// in memory stay.
    pub(crate) fn release_pages(&self) {
        if let Storage::Mapped(map) = &*self.0 {
            // SAFETY: of a private mapping this drops changes that were not written to the file; the
            // mapping is read-only and has none. Later reads see the file's bytes again, which stay the
            // same by the promise of `map`.
            let advised = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
            // Advice: when it is not taken, nothing is lost but room.
            let _ = advised;
        }
    }

    /// Takes bytes that are in memory already.
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Storage::Owned(bytes)))
    }
}

impl Deref for Image {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &*self.0 {
            Storage::Mapped(map) => map,
            Storage::Owned(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({} bytes)", self.len())
    }
}

//! A file that grows by whole lines.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::TraceError;

/// Bytes that are gathered before the file is written to.
const BUFFER_BYTES: usize = 256 << 10;

/// A file that is only ever written up to the end of a line, so that what a killed writer leaves
/// ends in a line end.
#[derive(Debug)]
pub(crate) struct LineFile {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    bytes: u64,
}

impl LineFile {
    /// Creates a file. With `replace`, a regular file that is there is emptied. Pipes and devices
    /// are written to in any case.
    pub(crate) fn create(path: &Path, replace: bool) -> Result<Self, TraceError> {
        let mut options = OpenOptions::new();
        options.write(true);
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(TraceError::NotATrace { path: path.to_owned() }),
            Ok(found) if !found.is_file() => {}
            _ if replace => {
                options.create(true).truncate(true);
            }
            _ => {
                options.create_new(true);
            }
        }
        let file = options.open(path).map_err(|problem| TraceError::from_io(path, problem, 0))?;
        let buffer = Vec::with_capacity(BUFFER_BYTES + 4096);
        Ok(Self { path: path.to_owned(), file, buffer, bytes: 0 })
    }

    /// Moves the file. What is no regular file stays where it is.
    pub(crate) fn move_to(&mut self, path: &Path) -> io::Result<()> {
        if fs::symlink_metadata(&self.path)?.is_file() {
            fs::rename(&self.path, path)?;
            self.path = path.to_owned();
        }
        Ok(())
    }

    /// Removes the file, if it is a regular one.
    pub(crate) fn remove(self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_file()) {
            // What cannot be removed stays: nobody reads it.
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Where the next line goes; end it with a line end before anything else is called.
    pub(crate) fn line(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Whether enough lines are gathered to be written.
    pub(crate) fn is_full(&self) -> bool {
        self.buffer.len() >= BUFFER_BYTES
    }

    /// Bytes handed to the system.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes all lines gathered. `written`: for the message, the accesses written before.
    pub(crate) fn flush(&mut self, written: u64) -> Result<(), TraceError> {
        self.file
            .write_all(&self.buffer)
            .map_err(|problem| TraceError::from_io(&self.path, problem, written))?;
        self.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

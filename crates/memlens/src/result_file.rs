//! Results that go into a file of their own.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::failure::Failure;

/// Writes a file; one that exists is only replaced if that is wanted (`force`).
///
/// # Errors
/// When the file exists, or cannot be written.
pub fn write(
    path: &Path,
    force: bool,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let place = path.display().to_string();
    let created = if force { File::create(path) } else { File::create_new(path) };
    let mut out = BufWriter::new(created.map_err(|error| Failure::of_creation(&place, &error))?);
    write(&mut out).and_then(|()| out.flush()).map_err(|error| Failure::of_io("write", &place, &error))
}

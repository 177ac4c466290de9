//! The trace as text.

use std::io::{self, Write};
use std::path::Path;

use crate::line_file::LineFile;
use crate::tables::Tables;
use crate::{ObjectInfo, TraceError, TraceRow};

/// The first line: what the columns are.
pub(crate) const HEADER: &str =
    "# memlens trace, version 1: kind address size class name+offset [declared, or allocation site]\n";

/// A line an access; a line `# thread N` before the accesses of another thread.
#[derive(Debug)]
pub(crate) struct TextTrace {
    file: LineFile,
    thread: Option<u32>,
    gathered: u64,
    flushed: u64,
}

impl TextTrace {
    pub(crate) fn create(path: &Path, replace: bool) -> Result<Self, TraceError> {
        let mut file = LineFile::create(path, replace)?;
        file.line().extend(HEADER.as_bytes());
        file.flush(0)?;
        Ok(Self { file, thread: None, gathered: 0, flushed: 0 })
    }

    pub(crate) fn write(&mut self, row: &TraceRow, tables: &mut Tables) -> Result<(), TraceError> {
        let line = self.file.line();
        if self.thread != Some(row.thread) {
            self.thread = Some(row.thread);
            // Writing to a vector does not fail.
            let _ = writeln!(line, "# thread {}", row.thread);
        }
        write_line(line, row, &tables.object(row.object).info);
        self.gathered += 1;
        if self.file.is_full() { self.flush() } else { Ok(()) }
    }

    pub(crate) fn flush(&mut self) -> Result<(), TraceError> {
        self.file.flush(self.flushed)?;
        self.flushed = self.gathered;
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    pub(crate) fn move_to(&mut self, path: &Path) -> io::Result<()> {
        self.file.move_to(path)
    }

    pub(crate) fn remove(self) {
        self.file.remove();
    }

    /// Accesses handed to the system.
    pub(crate) fn flushed(&self) -> u64 {
        self.flushed
    }
}

fn write_line(line: &mut Vec<u8>, row: &TraceRow, object: &ObjectInfo) {
    let _ = write!(line, "{} {:x} {} {} ", row.kind.as_str(), row.addr, row.size, object.kind.as_str());
    if object.name.is_empty() {
        line.push(b'?');
    } else {
        write_name(line, &object.name);
    }
    let _ = write!(line, "+{}", row.offset);
    match &object.declared {
        _ if object.site != 0 => {
            let _ = write!(line, " [site {}]", object.site);
        }
        Some((file, number)) => {
            line.extend(b" [");
            write_name(line, file);
            let _ = write!(line, ":{number}]");
        }
        None => {}
    }
    line.push(b'\n');
}

/// A name as it is, but for control characters, which could end the line.
fn write_name(line: &mut Vec<u8>, name: &str) {
    if name.bytes().all(|byte| byte >= 0x20 && byte != 0x7f) {
        line.extend(name.as_bytes());
        return;
    }
    for char in name.chars() {
        if char.is_ascii_control() {
            let _ = write!(line, "{}", char.escape_default());
        } else {
            let _ = write!(line, "{char}");
        }
    }
}

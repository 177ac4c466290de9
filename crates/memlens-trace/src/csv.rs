//! The trace as comma-separated values (RFC 4180, but for line ends of one byte).

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::line_file::LineFile;
use crate::tables::Tables;
use crate::{CodeInfo, ObjectInfo, TraceError, TraceRow};

/// The columns of the accesses. Numbers are decimal.
pub(crate) const HEADER: &str =
    "instructions,thread,kind,address,size,class,object,name,offset,declared,site,block,code\n";

/// The columns of the code table.
pub(crate) const CODE_HEADER: &str = "code,function,file,line,module,module_offset\n";

/// `trace.csv` with the accesses and `trace.code.csv` with the code that they name.
#[derive(Debug)]
pub(crate) struct CsvTrace {
    accesses: LineFile,
    /// None where the accesses go to a pipe or device.
    code: Option<LineFile>,
    gathered: u64,
    flushed: u64,
}

impl CsvTrace {
    pub(crate) fn create(path: &Path, replace: bool) -> Result<Self, TraceError> {
        let beside = path.metadata().map_or(true, |found| found.is_file());
        let code = if beside {
            let mut code = LineFile::create(&code_path(path), replace)?;
            code.line().extend(CODE_HEADER.as_bytes());
            code.flush(0)?;
            Some(code)
        } else {
            None
        };
        let mut accesses = LineFile::create(path, replace)?;
        accesses.line().extend(HEADER.as_bytes());
        accesses.flush(0)?;
        Ok(Self { accesses, code, gathered: 0, flushed: 0 })
    }

    pub(crate) fn write(&mut self, row: &TraceRow, tables: &mut Tables) -> Result<(), TraceError> {
        write_access(self.accesses.line(), row, &tables.object(row.object).info);
        let code = tables.code(row.code);
        if !code.used
            && let Some(file) = &mut self.code
        {
            code.used = true;
            write_code(file.line(), &code.info);
        }
        self.gathered += 1;
        if self.accesses.is_full() { self.flush() } else { Ok(()) }
    }

    /// Code first, so that a killed writer leaves no access without its code.
    pub(crate) fn flush(&mut self) -> Result<(), TraceError> {
        if let Some(code) = &mut self.code {
            code.flush(self.flushed)?;
        }
        self.accesses.flush(self.flushed)?;
        self.flushed = self.gathered;
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.accesses.bytes() + self.code.as_ref().map_or(0, LineFile::bytes)
    }

    pub(crate) fn move_to(&mut self, path: &Path) -> io::Result<()> {
        self.accesses.move_to(path)?;
        match &mut self.code {
            Some(code) => code.move_to(&code_path(path)),
            None => Ok(()),
        }
    }

    pub(crate) fn remove(self) {
        self.accesses.remove();
        if let Some(code) = self.code {
            code.remove();
        }
    }

    /// Accesses handed to the system.
    pub(crate) fn flushed(&self) -> u64 {
        self.flushed
    }
}

/// Where the code table of a trace lies.
fn code_path(path: &Path) -> PathBuf {
    path.with_extension("code.csv")
}

fn write_access(line: &mut Vec<u8>, row: &TraceRow, object: &ObjectInfo) {
    let kind = row.kind.as_str();
    // Writing to a vector does not fail.
    let _ = write!(line, "{},{},{kind},{},{},", row.instructions, row.thread, row.addr, row.size);
    let _ = write!(line, "{},{},", object.kind.as_str(), row.object);
    write_field(line, &object.name);
    let _ = write!(line, ",{},", row.offset);
    if let Some((file, number)) = &object.declared {
        write_field(line, &format!("{file}:{number}"));
    }
    let _ = writeln!(line, ",{},{},{}", object.site, row.block, row.code);
}

fn write_code(line: &mut Vec<u8>, code: &CodeInfo) {
    let _ = write!(line, "{},", code.id);
    write_field(line, &code.function);
    line.push(b',');
    write_field(line, &code.file);
    let _ = write!(line, ",{},", code.line);
    write_field(line, &code.module);
    let _ = writeln!(line, ",{}", code.offset);
}

/// Text, in quotes where it must be.
fn write_field(line: &mut Vec<u8>, text: &str) {
    if !text.contains([',', '"', '\n', '\r']) {
        line.extend(text.as_bytes());
        return;
    }
    line.push(b'"');
    for byte in text.bytes() {
        if byte == b'"' {
            line.push(b'"');
        }
        line.push(byte);
    }
    line.push(b'"');
}

//! The trace as a folder of Parquet files.

use std::path::{Path, PathBuf};
use std::{fs, io};

use memlens_types::AccessKind;
use parquet::data_type::ByteArray;
use parquet::file::metadata::KeyValue;

use crate::parquet_part::{Coding, Column, Values, encode};
use crate::tables::Tables;
use crate::{CodeInfo, ObjectInfo, TraceError, TraceRow};

/// Rows of a part.
pub(crate) const PART_ROWS: usize = 1 << 20;

/// The tables, in the order in which their parts are written: definitions before their uses.
const TABLES: [&str; 3] = ["objects", "code", "accesses"];

/// Gathers a part's rows in memory, then writes its files.
#[derive(Debug)]
pub(crate) struct ParquetTrace {
    path: PathBuf,
    part: u32,
    rows: Vec<TraceRow>,
    objects: Vec<ObjectInfo>,
    code: Vec<CodeInfo>,
    bytes: u64,
    flushed: u64,
}

impl ParquetTrace {
    pub(crate) fn create(path: &Path, replace: bool) -> Result<Self, TraceError> {
        let fail = |problem| TraceError::from_io(path, problem, 0);
        if replace && path.symlink_metadata().is_ok() {
            if !is_trace(path) {
                return Err(TraceError::NotATrace { path: path.to_owned() });
            }
            fs::remove_dir_all(path).map_err(fail)?;
        }
        fs::create_dir(path).map_err(fail)?;
        for table in TABLES {
            fs::create_dir(path.join(table)).map_err(fail)?;
        }
        Ok(Self {
            path: path.to_owned(),
            part: 0,
            rows: Vec::new(),
            objects: Vec::new(),
            code: Vec::new(),
            bytes: 0,
            flushed: 0,
        })
    }

    #[inline]
    pub(crate) fn write(&mut self, row: &TraceRow, tables: &mut Tables) -> Result<(), TraceError> {
        let object = tables.object(row.object);
        if !object.used {
            object.used = true;
            self.objects.push(object.info.clone());
        }
        let code = tables.code(row.code);
        if !code.used {
            code.used = true;
            self.code.push(code.info.clone());
        }
        self.rows.push(*row);
        if self.rows.len() >= PART_ROWS { self.flush() } else { Ok(()) }
    }

    pub(crate) fn flush(&mut self) -> Result<(), TraceError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        self.part += 1;
        for table in TABLES {
            self.write_part(table)?;
        }
        self.flushed += self.rows.len() as u64;
        self.rows.clear();
        self.objects.clear();
        self.code.clear();
        Ok(())
    }

    fn write_part(&mut self, table: &'static str) -> Result<(), TraceError> {
        let (rows, columns) = match table {
            "objects" => (self.objects.len(), object_columns(&self.objects)),
            "code" => (self.code.len(), code_columns(&self.code)),
            _ => (self.rows.len(), access_columns(&self.rows)),
        };
        if rows == 0 {
            return Ok(());
        }
        let finished = self.path.join(table).join(format!("part-{:06}.parquet", self.part));
        let notes = vec![KeyValue::new("memlens.trace_version".to_owned(), "1".to_owned())];
        let bytes = encode(&columns, rows, notes).map_err(|problem| TraceError::Encode {
            path: finished.clone(),
            what: problem.to_string(),
            written: self.flushed,
        })?;
        let unfinished = self.path.join(table).join("_unfinished");
        fs::write(&unfinished, &bytes)
            .and_then(|()| fs::rename(&unfinished, &finished))
            .map_err(|problem| TraceError::from_io(&finished, problem, self.flushed))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn move_to(&mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.path = path.to_owned();
        Ok(())
    }

    pub(crate) fn remove(self) {
        if is_trace(&self.path) {
            // What cannot be removed stays: nobody reads it.
            let _ = fs::remove_dir_all(&self.path);
        }
    }

    /// Accesses in finished parts.
    pub(crate) fn flushed(&self) -> u64 {
        self.flushed
    }
}

/// Whether a folder holds nothing but the tables' folders, so that it may be replaced.
fn is_trace(path: &Path) -> bool {
    let Ok(entries) = fs::read_dir(path) else { return false };
    let mut names = entries.map(|entry| entry.map(|entry| entry.file_name()));
    !path.is_symlink() && names.all(|name| name.is_ok_and(|name| TABLES.iter().any(|table| name == *table)))
}

fn u32s<'a>(name: &'static str, coding: Coding, value: impl Fn(usize) -> u32 + 'a) -> Column<'a> {
    Column { name, coding, values: Values::U32(Box::new(value)) }
}

fn u64s<'a>(name: &'static str, coding: Coding, value: impl Fn(usize) -> u64 + 'a) -> Column<'a> {
    Column { name, coding, values: Values::U64(Box::new(value)) }
}

fn texts<'a>(name: &'static str, value: impl Fn(usize) -> &'a str + 'a) -> Column<'a> {
    let values = Values::Text(Box::new(move |row| ByteArray::from(value(row))));
    Column { name, coding: Coding::Dictionary, values }
}

fn access_columns(rows: &[TraceRow]) -> Vec<Column<'_>> {
    let words = AccessKind::ALL.map(|kind| ByteArray::from(kind.as_str()));
    let kinds = Values::Text(Box::new(move |row| words[rows[row].kind as usize].clone()));
    vec![
        u64s("instructions", Coding::Delta, |row| rows[row].instructions),
        u32s("thread", Coding::Dictionary, |row| rows[row].thread),
        Column { name: "kind", coding: Coding::Dictionary, values: kinds },
        u64s("address", Coding::Plain, |row| rows[row].addr),
        u32s("size", Coding::Dictionary, |row| rows[row].size),
        u32s("object", Coding::Dictionary, |row| rows[row].object),
        u64s("start", Coding::Dictionary, |row| rows[row].addr.wrapping_sub(rows[row].offset)),
        u64s("block", Coding::Dictionary, |row| rows[row].block),
        u32s("code", Coding::Dictionary, |row| rows[row].code),
    ]
}

fn object_columns(objects: &[ObjectInfo]) -> Vec<Column<'_>> {
    let declared =
        |row: usize| objects[row].declared.as_ref().map_or(("", 0), |(file, line)| (file.as_str(), *line));
    vec![
        u32s("object", Coding::Dictionary, |row| objects[row].id),
        texts("class", |row| objects[row].kind.as_str()),
        texts("name", |row| &objects[row].name),
        texts("declared_file", move |row| declared(row).0),
        u32s("declared_line", Coding::Dictionary, move |row| declared(row).1),
        u32s("site", Coding::Dictionary, |row| objects[row].site),
    ]
}

fn code_columns(code: &[CodeInfo]) -> Vec<Column<'_>> {
    vec![
        u32s("code", Coding::Dictionary, |row| code[row].id),
        texts("function", |row| &code[row].function),
        texts("file", |row| &code[row].file),
        u32s("line", Coding::Dictionary, |row| code[row].line),
        texts("module", |row| &code[row].module),
        u64s("offset", Coding::Delta, |row| code[row].offset),
    ]
}

//! Writes a trace.

use std::io;
use std::path::Path;

use memlens_types::AccessKind;

use crate::csv::CsvTrace;
use crate::parquet_trace::ParquetTrace;
use crate::tables::Tables;
use crate::text::TextTrace;
use crate::{CodeInfo, ObjectInfo, TraceError, TraceFilter, TraceFormat, TraceRow, TraceSink, TraceSummary};

/// Filters a trace and writes it to files.
#[derive(Debug)]
pub struct TraceWriter {
    filter: TraceFilter,
    /// Rows that may still be written.
    left: u64,
    admits_undefined: (bool, bool),
    tables: Tables,
    form: Form,
    summary: TraceSummary,
    error: Option<TraceError>,
}

#[derive(Debug)]
enum Form {
    Text(TextTrace),
    Csv(CsvTrace),
    Parquet(Box<ParquetTrace>),
}

impl TraceWriter {
    /// Begins a trace at `path`: a file, for Parquet a folder. With `force`, a trace that is there
    /// is replaced.
    ///
    /// # Errors
    ///
    /// When nothing can be written there.
    pub fn create(
        path: &Path,
        format: TraceFormat,
        filter: TraceFilter,
        force: bool,
    ) -> Result<Self, TraceError> {
        let form = match format {
            TraceFormat::Text => Form::Text(TextTrace::create(path, force)?),
            TraceFormat::Csv => Form::Csv(CsvTrace::create(path, force)?),
            TraceFormat::Parquet => Form::Parquet(Box::new(ParquetTrace::create(path, force)?)),
        };
        Ok(Self {
            left: filter.limit().unwrap_or(u64::MAX),
            admits_undefined: filter.admits_undefined(),
            filter,
            tables: Tables::default(),
            form,
            summary: TraceSummary::default(),
            error: None,
        })
    }

    /// The error that stopped writing, if one did: for a message while the program still runs.
    pub fn error(&self) -> Option<&TraceError> {
        self.error.as_ref()
    }

    /// Whether further accesses can still be written: no error yet and the limit not reached. The
    /// caller may stop offering accesses then; the summary counts those offered.
    pub fn is_writing(&self) -> bool {
        self.error.is_none() && self.left > 0
    }

    /// Moves the trace to another name in the same file system. Nothing may be there.
    ///
    /// # Errors
    ///
    /// The system's. The trace is where it was then, and is written on.
    pub fn move_to(&mut self, path: &Path) -> io::Result<()> {
        if path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        match &mut self.form {
            Form::Text(text) => text.move_to(path),
            Form::Csv(csv) => csv.move_to(path),
            Form::Parquet(parquet) => parquet.move_to(path),
        }
    }

    /// Gives the trace up and removes its files.
    pub fn discard(self) {
        match self.form {
            Form::Text(text) => text.remove(),
            Form::Csv(csv) => csv.remove(),
            Form::Parquet(parquet) => parquet.remove(),
        }
    }

    /// Hands everything gathered to the system. For Parquet this ends the current part; do not call
    /// it often.
    pub fn flush(&mut self) {
        if self.error.is_some() {
            return;
        }
        let flushed = match &mut self.form {
            Form::Text(text) => text.flush(),
            Form::Csv(csv) => csv.flush(),
            Form::Parquet(parquet) => parquet.flush(),
        };
        self.error = flushed.err();
    }

    #[inline]
    fn admits(&self, row: &TraceRow) -> bool {
        let object = self.tables.objects.get(row.object);
        let code = self.tables.code.get(row.code);
        object.map_or(self.admits_undefined.0, |entry| entry.admitted)
            && code.map_or(self.admits_undefined.1, |entry| entry.admitted)
            && self.filter.admits_place(row)
    }
}

impl TraceSink for TraceWriter {
    fn object(&mut self, object: ObjectInfo) {
        let admitted = self.filter.admits_object(&object);
        self.tables.define_object(object, admitted);
    }

    fn code(&mut self, code: CodeInfo) {
        let admitted = self.filter.admits_code(&code);
        self.tables.define_code(code, admitted);
    }

    #[inline]
    fn access(&mut self, row: &TraceRow) {
        if row.kind == AccessKind::Fetch {
            return;
        }
        self.summary.offered += 1;
        if !self.admits(row) {
            return;
        }
        self.summary.matched += 1;
        if self.left == 0 {
            self.summary.dropped_by_limit += 1;
            return;
        }
        if self.error.is_some() {
            return;
        }
        self.left -= 1;
        let written = match &mut self.form {
            Form::Text(text) => text.write(row, &mut self.tables),
            Form::Csv(csv) => csv.write(row, &mut self.tables),
            Form::Parquet(parquet) => parquet.write(row, &mut self.tables),
        };
        self.error = written.err();
    }

    fn finish(mut self) -> Result<TraceSummary, TraceError> {
        self.flush();
        if let Some(error) = self.error {
            return Err(error);
        }
        (self.summary.bytes, self.summary.written) = match &self.form {
            Form::Text(text) => (text.bytes(), text.flushed()),
            Form::Csv(csv) => (csv.bytes(), csv.flushed()),
            Form::Parquet(parquet) => (parquet.bytes(), parquet.flushed()),
        };
        Ok(self.summary)
    }
}

//! The trace of a run: its options, and where it goes.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process;

use clap::Args;
use memlens_profile::Existing;
use memlens_trace::{
    FilterError, TraceError, TraceFilter, TraceFormat, TraceSink, TraceSummary, TraceWriter,
};

use crate::failure::{Failure, FailureKind};
use crate::output::default_name;
use crate::streams::say;
use crate::words::Words;

/// Options of the trace.
#[derive(Args, Debug)]
#[command(next_help_heading = "Trace")]
pub struct TraceArgs {
    /// Write each access by itself, with its object; traces grow by gigabytes in minutes
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    pub trace: Option<TraceFormat>,

    /// Where the trace goes; memlens.PROGRAM.PID.trace in the current folder if not given, with .txt or
    /// .csv
    #[arg(long, value_name = "PATH", requires = "trace")]
    pub trace_out: Option<PathBuf>,

    /// Only such accesses: object=NAME or a kind, function=NAME, range=FROM-TO or FROM+BYTES, thread=N;
    /// names may have * and ?; may be repeated: those of one sort are alternatives
    #[arg(long, value_name = "SORT=VALUE", value_parser = parse_condition, requires = "trace")]
    pub trace_filter: Vec<String>,

    /// No more than so many accesses
    #[arg(long, value_name = "N", requires = "trace")]
    pub trace_limit: Option<u64>,
}

fn formats() -> Words<TraceFormat> {
    Words::new(TraceFormat::ALL.map(|format| {
        let meaning = match format {
            TraceFormat::Text => "a line an access, for people",
            TraceFormat::Csv => "two files of comma-separated values",
            TraceFormat::Parquet => "a folder of Parquet files, by far the smallest",
        };
        (format.as_str(), Some(meaning))
    }))
}

fn parse_condition(text: &str) -> Result<String, FilterError> {
    TraceFilter::default().add(text).map(|()| text.to_owned())
}

impl TraceArgs {
    /// The trace asked for, if one is.
    ///
    /// # Errors
    /// When a condition is none; the command line has been checked for that.
    pub fn plan(self) -> Result<Option<TracePlan>, Failure> {
        let Some(format) = self.trace else { return Ok(None) };
        let mut filter = TraceFilter::default();
        for condition in &self.trace_filter {
            filter.add(condition).map_err(|error| Failure::new(FailureKind::Usage, error.to_string()))?;
        }
        if self.trace_limit.is_some() {
            filter.set_limit(self.trace_limit);
        }
        Ok(Some(TracePlan { format, filter, path: self.trace_out }))
    }
}

/// A trace to be begun.
#[derive(Debug)]
pub struct TracePlan {
    format: TraceFormat,
    filter: TraceFilter,
    path: Option<PathBuf>,
}

/// Where a trace goes.
#[derive(Debug)]
pub struct TracePlace {
    path: PathBuf,
    /// What follows the process id in a name that is ours to choose.
    suffix: Option<&'static str>,
    limit: Option<u64>,
}

impl TracePlan {
    /// Begins the trace. As for the profile, memlens's own process id stands in for the program's until
    /// [`TracePlace::name_after`].
    ///
    /// # Errors
    /// When something is there that must stay, or the place cannot be written.
    pub fn create(self, program: &OsStr, existing: Existing) -> Result<(TraceWriter, TracePlace), Failure> {
        let suffix = match self.format {
            TraceFormat::Text => ".trace.txt",
            TraceFormat::Csv => ".trace.csv",
            TraceFormat::Parquet => ".trace",
        };
        let (path, suffix) = match self.path {
            Some(path) => (path, None),
            None => (default_name(program, process::id(), suffix), Some(suffix)),
        };
        let limit = self.filter.limit();
        let force = matches!(existing, Existing::Replace);
        let writer = TraceWriter::create(&path, self.format, self.filter, force)?;
        Ok((writer, TracePlace { path, suffix, limit }))
    }
}

impl TracePlace {
    /// Puts the program's process id into a name that is ours to choose. Where that fails, the old name
    /// is as good.
    pub fn name_after(&mut self, writer: &mut TraceWriter, program: &OsStr, process_id: u32) {
        let Some(suffix) = self.suffix else { return };
        let path = default_name(program, process_id, suffix);
        if writer.move_to(&path).is_ok() {
            self.path = path;
        }
    }

    /// Ends the trace and says what became of it; without errors nothing if `quiet`.
    pub fn finish(&self, writer: TraceWriter, quiet: bool) {
        match writer.finish() {
            Ok(summary) if !quiet => say(&self.describe(&summary)),
            Ok(_) => {}
            Err(error) => say(&Failure::from(error).to_string()),
        }
    }

    fn describe(&self, summary: &TraceSummary) -> String {
        let TraceSummary { written, bytes, .. } = summary;
        let first = if self.limit == Some(*written) { "the first " } else { "" };
        let path = Path::display(&self.path);
        format!("the trace is in {path}: {first}{written} accesses, {bytes} bytes")
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        let kind = match &error {
            TraceError::Exists { .. }
            | TraceError::NotATrace { .. }
            | TraceError::NoParent { .. }
            | TraceError::Permission { .. } => FailureKind::CannotCreate,
            TraceError::Encode { .. } => FailureKind::Internal,
            _ => FailureKind::Io,
        };
        Self::new(kind, format!("cannot write the trace: {error}"))
    }
}

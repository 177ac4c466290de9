//! Where memlens writes: results to stdout, everything else to stderr.

use std::env;
use std::io::{self, IsTerminal, Write};

use crate::failure::{Failure, FailureKind, plain};
use crate::system;

/// Columns assumed where there is no terminal and no `COLUMNS`.
const DEFAULT_COLUMNS: usize = 120;

/// Tells the user something, on stderr. Each line begins with `memlens: `, so that it is not taken for
/// a line of the program's. A stderr that is gone is no reason to fail.
pub fn say(message: &str) {
    let mut text = String::new();
    for line in message.lines() {
        text += &format!("memlens: {line}\n");
    }
    write_to_stderr(&text);
}

/// Writes text to stderr as it is, in one piece.
pub fn write_to_stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes a result to stdout. A reader that has gone away wants no more.
///
/// # Errors
/// When stdout cannot take it, for instance a file on a full disk.
pub fn write_result(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = write(&mut out).and_then(|()| out.flush());
    // What is left in the buffer would only fail again.
    drop(out.into_parts());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(cannot_write(&error)),
        _ => Ok(()),
    }
}

/// What stdout did not take.
pub fn cannot_write(error: &io::Error) -> Failure {
    Failure::new(FailureKind::Io, format!("cannot write the result: {}", plain(error)))
}

/// Writes a document to stdout, indented.
///
/// # Errors
/// As [`write_result`].
pub fn write_json(document: &impl serde::Serialize) -> Result<(), Failure> {
    write_result(|out| {
        serde_json::to_writer_pretty(&mut *out, document)?;
        out.write_all(b"\n")
    })
}

/// One of the two output streams, as far as the looks of a table depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Results.
    Stdout,
    /// Messages, and the table after a run.
    Stderr,
}

impl Stream {
    /// Whether a terminal is at its end.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Stdout => io::stdout().is_terminal(),
            Self::Stderr => io::stderr().is_terminal(),
        }
    }

    /// The terminal's width; `COLUMNS` goes first, as with other tools.
    pub fn columns(self) -> usize {
        let from_environment = env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
        let descriptor = match self {
            Self::Stdout => libc::STDOUT_FILENO,
            Self::Stderr => libc::STDERR_FILENO,
        };
        from_environment
            .filter(|&columns| columns > 0)
            .or_else(|| system::terminal_columns(descriptor))
            .unwrap_or(DEFAULT_COLUMNS)
    }

    /// Whether colours are wanted: on a terminal that is not dumb, unless `NO_COLOR` is set
    /// (<https://no-color.org>).
    pub fn wants_colour(self) -> bool {
        let forbidden = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        self.is_terminal() && !forbidden && !dumb
    }
}

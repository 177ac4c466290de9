//! The contract between who makes a trace and who keeps it.

use crate::{CodeInfo, ObjectInfo, TraceError, TraceRow};

/// Takes a trace, one access after another.
///
/// What the caller promises:
///
/// 1. An object or piece of code is defined before the first access that names it. An access that
///    names an undefined one is kept and shown as unknown.
/// 2. A definition with the id of an earlier one replaces it for the accesses that follow.
///
/// What the implementation promises:
///
/// 3. No call panics or blocks for longer than writing takes. After the first error it keeps
///    nothing more; [`finish`](Self::finish) returns that error.
pub trait TraceSink {
    /// Says what an object's number means.
    fn object(&mut self, object: ObjectInfo);
    /// Says what a code line's number means.
    fn code(&mut self, code: CodeInfo);
    /// Takes the next access.
    fn access(&mut self, row: &TraceRow);
    /// Ends the trace.
    ///
    /// # Errors
    ///
    /// The first one met since the trace was begun.
    fn finish(self) -> Result<TraceSummary, TraceError>
    where
        Self: Sized;
}

/// How much of what was offered a trace holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceSummary {
    /// Accesses offered, instruction fetches left out.
    pub offered: u64,
    /// Those that the filter lets through.
    pub matched: u64,
    /// Those written.
    pub written: u64,
    /// Those that only the limit kept out: `matched` − `written`.
    pub dropped_by_limit: u64,
    /// Bytes of all files of the trace.
    pub bytes: u64,
}

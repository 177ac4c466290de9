//! The contract between whoever reads a segment (or a file) and whoever makes sense of it.

use crate::{Definition, SpecialRole};
use alloc::vec::Vec;

/// Special addresses of a module: role, start, end (0 where the role needs none).
pub type ModuleAnswer = Vec<(SpecialRole, u64, u64)>;

/// Receives a process's records in order.
///
/// What the caller promises:
///
/// 1. `define` is called for a block, thread or module before any record that names it.
/// 2. A `records` call carries whole records of one thread, in the order in which the thread
///    executed them; calls for one thread come in that order, too.
/// 3. Between threads the order respects epochs: when a record with stamp *e* is delivered, every
///    record with a smaller stamp, of any thread, has been delivered. So an access that
///    happened after an allocation, in whatever thread, comes after it. Where the caller had to
///    break this (a thread that would not report), it says how often.
/// 4. Calls come from one thread at a time.
pub trait RecordSink {
    /// Something new about the process. For modules, the special addresses the collector must watch;
    /// empty otherwise.
    fn define(&mut self, definition: Definition) -> ModuleAnswer;

    /// Records of the thread in slot `slot`.
    fn records(&mut self, slot: usize, words: &[u64]);

    /// The token of a fork that the records delivered last announced and that was dealt with: whoever
    /// forks may go on. `u64::MAX`: whatever fork was announced; nothing is known of it.
    fn fork_answer(&mut self) -> Option<u64> {
        None
    }

    /// Whether lines go from core to core just now: then records of one epoch are wanted in turns, though that may take longer.
    fn wants_turns(&self) -> bool {
        false
    }

    /// There is nothing to read just now; a good moment for housekeeping.
    fn idle(&mut self) {}
}

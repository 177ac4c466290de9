//! The exact collector: runs a program under DynamoRIO and delivers every access it makes.
//!
//! This crate knows how to find and start a program, how to carry DynamoRIO and the client along,
//! and how to read the shared segment that the client fills. It deliberately knows nothing of
//! objects, symbols or caches: whoever implements [`RecordSink`](memlens_events::RecordSink) does.
//!
//! ```text
//! program.rs   which file to run: PATH, #! lines, architecture     payload.rs  carried libraries
//! launch.rs    the environment and the engine's options            segment.rs  the mapped segment
//! reader.rs    merging the threads' rings in order                 session.rs  a run, start to end
//! follower.rs  new processes of the program, and what they record
//! last_resort.rs  memlens aborts, the program goes on
//! ```

mod follower;
mod last_resort;
mod launch;
mod payload;
mod program;
mod reader;
mod segment;
mod session;

pub use memlens_child::ExitOutcome;

pub use follower::{Arrival, ArrivedBy, Follower, ProcessStream, Replacement};
pub use last_resort::{is_recording, release_program};
pub use launch::{Extras, Following};
pub use memlens_payload::PayloadError;
pub use program::{Program, ProgramError};
pub use reader::ReaderStatistics;
pub use session::{Session, SessionError, SessionOptions};

//! Starting the target under DynamoRIO.
//!
//! The target's process executes DynamoRIO's library, which maps the program itself ("early
//! injection"): so the program is recorded from its first instruction on, static programs too. The
//! variables that tell DynamoRIO what to do are the last of the environment; the client takes them
//! out again before the program runs.

use crate::payload::Payload;
use crate::program::Program;
use memlens_child::{Child, Held, Image, inherited};
use memlens_events::segment::{FOLLOW_CHILDREN, FOLLOW_EXECUTED};
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::{env, fs, io};

/// Options of DynamoRIO that measured best, see `docs/modes.md`: no traces, larger tables of
/// indirect branch targets, and blocks that fit a record. Of the file descriptors DynamoRIO takes the
/// last four for itself rather than 96; with none at all it tells the program that its limit is zero. Code in memory that can be
/// written is compared when it is executed: otherwise DynamoRIO 11.90 protects it, and goes on behind the fault of a write
/// to it with what the client holds in the program's registers.
const ENGINE_OPTIONS: &str = "-code_api -no_follow_children -disable_traces \
     -private_bb_ibl_targets_init 16 -private_bb_ibl_targets_load 10 -max_bb_instrs 64 -steal_fds 4 -sandbox_writable";

/// Set by `bench/run.py`: the program runs under DynamoRIO, and the client does nothing.
pub fn records_nothing() -> bool {
    env::var_os("MEMLENS_EXACT_NULL").is_some_and(|value| value == "1")
}

/// What a program gets besides what this process has.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Variables that are set.
    pub environment: Vec<(OsString, OsString)>,
    /// A descriptor that it inherits.
    pub inherited: Option<Arc<File>>,
}

/// Which programs are recorded besides the one that is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Following {
    /// None.
    #[default]
    Nothing,
    /// Those that it executes in its own place (execve(2)), as wrapper scripts do.
    Executed,
    /// Those, and all processes that it makes.
    Children,
}

/// Starts `program`; its client connects to the segment behind `segment`.
/// Further programs ask for segments on the abstract socket `follower`, if there is one. It gets `extras`, too.
pub fn spawn(
    program: &Program,
    payload: &Payload,
    segment: BorrowedFd<'_>,
    follower: Option<(&str, Following)>,
    extras: &Extras,
) -> io::Result<Child> {
    let file = fs::canonicalize(&program.file)?;
    let client = payload.client();
    // A client without a segment lets the target run on, unrecorded.
    let argument = if records_nothing() { "none".to_owned() } else { segment.as_raw_fd().to_string() };
    let (ignored, blocked) = (inherited::ignored_signals(), inherited::blocked_signals());
    let follower = match follower {
        Some((name, Following::Executed)) if !records_nothing() => format!(" {name} {FOLLOW_EXECUTED}"),
        Some((name, Following::Children)) if !records_nothing() => format!(" {name} {FOLLOW_CHILDREN}"),
        _ => String::new(),
    };
    let client = client.display();
    let options =
        format!("{ENGINE_OPTIONS} -client_lib '{client};0;{argument} {ignored:x} {blocked:x}{follower}'");
    let mut image = Image::new(&payload.engine(), &program.arguments)?;
    extras.environment.iter().try_for_each(|(name, value)| image.set_variable(name, value))?;
    image.add_variable("DYNAMORIO_OPTIONS".as_ref(), options.as_ref())?;
    image.add_variable("DYNAMORIO_EXE_PATH".as_ref(), file.as_os_str())?;
    let kept: Vec<_> = [segment].into_iter().chain(extras.inherited.as_ref().map(AsFd::as_fd)).collect();
    Held::start(&image, &kept)?.release()
}

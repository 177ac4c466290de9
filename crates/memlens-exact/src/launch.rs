//! Starting the target under DynamoRIO.
//!
//! The target's process executes DynamoRIO's library, which maps the program itself ("early
//! injection"): so the program is recorded from its first instruction on, static programs too. The
//! variables that tell DynamoRIO what to do are the last of the environment; the client takes them
//! out again before the program runs.

use crate::payload::Payload;
use crate::program::Program;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::{env, fs, io, ptr};

/// Options of DynamoRIO that measured best, see `docs/modes.md`: no traces, larger tables of
/// indirect branch targets, and blocks that fit a record.
const ENGINE_OPTIONS: &str = "-code_api -no_follow_children -disable_traces \
     -private_bb_ibl_targets_init 16 -private_bb_ibl_targets_load 10 -max_bb_instrs 64";

/// Starts `program`; its client connects to the segment behind `segment`.
pub fn spawn(program: &Program, payload: &Payload, segment: RawFd) -> io::Result<Child> {
    let file = fs::canonicalize(&program.file)?;
    let client = payload.client();
    let options = format!("{ENGINE_OPTIONS} -client_lib '{};0;{segment}'", client.display());
    let mut environment: Vec<OsString> =
        env::vars_os().map(|(name, value)| [name.as_os_str(), &value].join(OsStr::new("="))).collect();
    environment.push(format!("DYNAMORIO_OPTIONS={options}").into());
    environment.push([OsStr::new("DYNAMORIO_EXE_PATH"), file.as_os_str()].join(OsStr::new("=")));
    let engine = c_string(payload.engine().as_os_str())?;
    let arguments = program.arguments.iter().map(|word| c_string(word)).collect::<io::Result<Vec<_>>>()?;
    let environment = environment.iter().map(|word| c_string(word)).collect::<io::Result<Vec<_>>>()?;
    let mut command = Command::new(payload.engine());
    // SAFETY: the closure runs between fork and exec and only makes system calls; the vectors were
    // made before.
    unsafe {
        command.pre_exec(move || {
            if libc::fcntl(segment, libc::F_SETFD, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
            let pointers = |strings: &[CString], room: &mut [*const libc::c_char]| {
                for (place, string) in room.iter_mut().zip(strings) {
                    *place = string.as_ptr();
                }
            };
            let mut argv = vec![ptr::null(); arguments.len() + 1];
            let mut envp = vec![ptr::null(); environment.len() + 1];
            pointers(&arguments, &mut argv);
            pointers(&environment, &mut envp);
            libc::execve(engine.as_ptr(), argv.as_ptr(), envp.as_ptr());
            Err(io::Error::last_os_error())
        });
    }
    command.spawn()
}

/// The descriptor to hand to the target.
pub fn descriptor(file: &fs::File) -> RawFd {
    file.as_raw_fd()
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(io::Error::from)
}

trait Join {
    fn join(&self, separator: &OsStr) -> OsString;
}

impl Join for [&OsStr; 2] {
    fn join(&self, separator: &OsStr) -> OsString {
        OsString::from_vec([self[0].as_bytes(), separator.as_bytes(), self[1].as_bytes()].concat())
    }
}

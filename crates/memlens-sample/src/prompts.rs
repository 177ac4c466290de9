//! Prompts: signals to a program's first thread, each ms of its time at its begin, at which the agent looks whether it is in code that no
//! burst has met.
//!
//! The agent's own timers come with the kernel's tick, every 4 ms where that comes 250 times a second: a phase of 2 ms may have neither a
//! burst nor a look, and its data would be missing in the profile. The kernel's clock event has a timer of its own, and can send a signal to the
//! thread that it counts (fcntl(2), `F_SETSIG`): the one of the agent's ticks, which begins a burst there at once
//! (`memlens-agent/src/bursts.rs`). The descriptor is memlens's own, so that the program sees nothing of it; when memlens ends it is gone.
//!
//! # Never harm the target
//! By default that signal ends a process. So the event is opened only for a process that has a handler for it, is asked for that
//! again once it is open, and goes with the program that is executed (`remove_on_exec`, Linux 5.13; there are no prompts before). An agent
//! that ends by itself leaves the signal ignored while [`memlens_events::agent::Control::prompted`] has its process. Where a signal cannot be queued the kernel sends
//! `SIGIO` instead, so there are none for a user who has little room left for queued signals.
//!
//! Sources: perf_event_open(2); fcntl(2); proc_pid_status(5); Linux, `fs/fcntl.c`, `send_sigio_to_task`.
#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::event::open_for_signals;

/// The signal of the agent's ticks (`memlens-agent/src/ticks.rs`).
const SIGNAL: libc::c_int = 32;
/// Of the thread's time, in ns.
const PERIOD_NS: u64 = 1_000_000;
/// So many are enough: as glances.
const MOST: libc::c_int = 750;
/// How long an agent is waited for.
const BEGIN_TAKES: Duration = Duration::from_secs(1);
/// Nor is there any when this has passed.
const LONGEST: Duration = Duration::from_secs(10);
/// Signals for which the program's user must have room.
const ROOM: u64 = 4 * MOST as u64;

/// Of fcntl(2), for signals (include/uapi/asm-generic/fcntl.h).
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// Where they come from.
#[derive(Debug)]
pub struct Prompts {
    pid: u32,
    began: Instant,
    /// Programs in which an agent was started so far: the process may have executed another one, which ended them.
    programs: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The agent is not there yet.
    Waiting,
    /// They come.
    Open(OwnedFd),
    Over,
}

/// `struct f_owner_ex` (include/uapi/asm-generic/fcntl.h).
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    pid: libc::pid_t,
}

impl Prompts {
    /// Of the first thread of a process that will have the agent in it. `share`: what part of the program's time bursts may take.
    pub fn new(pid: u32, share: f64) -> Self {
        let state = if 0.0 < share && share < 1.0 { State::Waiting } else { State::Over };
        Self { pid, began: Instant::now(), programs: 0, state }
    }

    /// Whether the agent is still waited for.
    pub fn are_waiting(&self) -> bool {
        matches!(self.state, State::Waiting)
    }

    /// Begins them once the agent is there, again if the process has executed one of more programs with an agent, and ends them. `tell` gets
    /// the process before the first one may come, and 0 behind the last.
    pub fn look(&mut self, programs: u32, tell: impl Fn(u32)) {
        let passed = self.began.elapsed();
        if std::mem::replace(&mut self.programs, programs) != programs && matches!(self.state, State::Open(_))
        {
            self.end(&tell);
            self.state = State::Waiting;
        }
        match self.state {
            State::Waiting if passed > if programs > 1 { LONGEST } else { BEGIN_TAKES } => {
                self.state = State::Over;
            }
            State::Waiting if takes(SIGNAL, self.pid) => {
                tell(self.pid);
                match open(SIGNAL, self.pid) {
                    Ok(event) => self.state = State::Open(event),
                    Err(error) => {
                        tracing::debug!(%error, "no prompts");
                        self.state = State::Over;
                        tell(0);
                    }
                }
            }
            State::Open(_) if passed > LONGEST => self.end(tell),
            _ => {}
        }
    }

    /// There are no more.
    pub fn end(&mut self, tell: impl Fn(u32)) {
        if let State::Open(event) = std::mem::replace(&mut self.state, State::Over) {
            drop(event);
            tell(0);
        }
    }
}

/// Whether the program that a process executes has a handler for a signal, and its user has room for many.
fn takes(signal: libc::c_int, pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|status| has_handler(signal, &status) && has_room(&status))
}

/// What `/proc/PID/status` has behind a name.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
}

fn has_handler(signal: libc::c_int, status: &str) -> bool {
    let caught = field(status, "SigCgt").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    caught.is_some_and(|caught| caught & (1 << (signal - 1)) != 0)
}

/// `SigQ: 3/95382`: queued ones of the user, and how many may be.
fn has_room(status: &str) -> bool {
    let numbers = field(status, "SigQ").and_then(|numbers| numbers.split_once('/'));
    numbers
        .and_then(|(queued, most)| Some((queued.parse::<u64>().ok()?, most.parse::<u64>().ok()?)))
        .is_some_and(|(queued, most)| most.saturating_sub(queued) >= ROOM)
}

/// The event of a process's first thread, sending signals.
fn open(signal: libc::c_int, pid: u32) -> io::Result<OwnedFd> {
    let event = open_for_signals(pid, PERIOD_NS)?;
    // The first thread has the process's number.
    let thread = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let owner = Owner { kind: F_OWNER_TID, pid: thread };
    // SAFETY: a descriptor of ours; the structure is read.
    let is_set = unsafe {
        libc::fcntl(event.as_raw_fd(), F_SETSIG, signal) == 0
            && libc::fcntl(event.as_raw_fd(), F_SETOWN_EX, &raw const owner) == 0
            && libc::fcntl(event.as_raw_fd(), libc::F_SETFL, libc::O_ASYNC) == 0
    };
    if !is_set {
        return Err(io::Error::last_os_error());
    }
    // If it has executed another program meanwhile, the event is that one's.
    if !takes(signal, pid) {
        return Err(io::Error::other("another program was executed"));
    }
    // SAFETY: a descriptor of ours.
    match unsafe { perf_event_open_sys::ioctls::REFRESH(event.as_raw_fd(), MOST) } {
        0.. => Ok(event),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::process::Command;

    use super::*;

    const LOOP: &str = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";

    #[test]
    fn who_has_no_handler_gets_none() {
        let status = "Name:\tx\nSigQ:\t3/95382\nSigCgt:\t0000000180000000\n";
        assert!(has_handler(SIGNAL, status) && has_room(status));
        for without in ["SigCgt:\t0000000100000000\n", "SigCgt:\tx\n", ""] {
            assert!(!has_handler(SIGNAL, without), "{without}");
        }
        for without in ["SigQ:\t95000/95382\n", "SigQ:\t0/0\n", "SigQ:\t0\n"] {
            assert!(!has_room(without), "{without}");
        }
        let mut child = Command::new("sh").args(["-c", LOOP]).spawn().expect("a shell");
        let mut prompts = Prompts::new(child.id(), 0.02);
        prompts.look(1, |_| panic!("it has no handler"));
        assert!(prompts.are_waiting() && child.wait().expect("it ends").success());
    }

    #[test]
    fn a_program_that_is_executed_has_none() {
        // By default the signal ends a process: the shell handles it, the one that it executes does not.
        let script = format!("trap 'echo prompted' USR1; {LOOP}; {LOOP}; exec sh -c '{LOOP}'");
        let child = Command::new("sh").args(["-c", &script]).stdout(std::process::Stdio::piped()).spawn();
        let child = child.expect("a shell");
        while !takes(libc::SIGUSR1, child.id()) {
            std::thread::yield_now();
        }
        let event = open(libc::SIGUSR1, child.id());
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{:?}", output.status);
        match event {
            Ok(_) => assert!(!output.stdout.is_empty(), "it was prompted before"),
            Err(error) => eprintln!("passed over: {error}"),
        }
    }

    #[test]
    fn without_time_to_spend_there_are_none() {
        for share in [0.0, 1.0] {
            assert!(!Prompts::new(std::process::id(), share).are_waiting());
        }
        let told = Cell::new(None);
        let mut prompts = Prompts::new(std::process::id(), 0.02);
        prompts.end(|pid| told.set(Some(pid)));
        assert_eq!((told.get(), prompts.are_waiting()), (None, false), "none had begun");
    }
}

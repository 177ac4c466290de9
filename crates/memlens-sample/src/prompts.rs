//! Prompts: signals to a program's first thread, each ms or some of its time at its begin, at which the agent looks whether it is in code that no
//! burst has met.
//!
//! The agent's own timers come with the kernel's tick, every 4 ms where that comes 250 times a second: a phase of 2 ms may have neither a
//! burst nor a look, and its data would be missing in the profile. The kernel's clock event has a timer of its own, and can send a signal to the
//! thread that it counts (fcntl(2), `F_SETSIG`), while that runs its own code: no system call is interrupted. The descriptor is memlens's own, so
//! that the program sees nothing of it; when memlens ends it is gone.
//!
//! They are as far apart as glances are, whose timers cost as much ([`crate::glances`]), and each is one: the event has a ring of its own, so
//! that a thread which is alone needs no other interrupt.
//!
//! # Never harm the target
//! The signal is SIGURG, which does nothing to a process that has no handler for it: it may come after the agent has left, or in another program that
//! was executed. It needs no room among queued signals, for want of which the kernel would send `SIGIO` instead. The agent says whether it has the
//! handler (`memlens-agent/src/bursts/prompts.rs`): a program that uses the signal gets none.
//!
//! Sources: perf_event_open(2); fcntl(2); Linux, `fs/fcntl.c`, `send_sigio_to_task`, and `kernel/signal.c`, `__send_signal_locked`.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::allocations::AllocationSource;
use crate::event::{SampleEvent, open_for_signals};
use crate::glances::{ALL_NS, LONGEST};
use crate::record::{Layout, TimedRecord};
use crate::ring::{Ring, SMALLEST};

/// How long it takes an agent inside of a process until it can be prompted, and how often that is looked at meanwhile.
const BEGIN_TAKES: Duration = Duration::from_millis(3);
const BEGIN_LOOK: Duration = Duration::from_micros(200);

/// Of fcntl(2), for signals (include/uapi/asm-generic/fcntl.h).
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// Where they come from.
#[derive(Debug)]
pub struct Prompts {
    pid: u32,
    began: Instant,
    /// Programs in which an agent was started so far: if the process has executed another one, the event ended with it.
    programs: u32,
    /// From one to the next.
    period_ns: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The agent is not there yet.
    Waiting,
    /// They come.
    Open(Event),
    Over,
}

/// What they come from.
#[derive(Debug)]
struct Event {
    _held_open: OwnedFd,
    /// None: the user may not lock that much memory.
    ring: Option<Ring>,
    layout: Layout,
}

/// `struct f_owner_ex` (include/uapi/asm-generic/fcntl.h).
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    pid: libc::pid_t,
}

impl Prompts {
    /// Of the first thread of a process that has the agent in it, or will have before long, this often ([`crate::glances::period_ns`]). Cost: up to 3 ms.
    pub fn begin(pid: u32, period_ns: Option<u64>, agent: &AllocationSource) -> Self {
        let mut prompts = Self::new(pid, period_ns);
        loop {
            prompts.look(agent);
            if !prompts.are_waiting() || prompts.began.elapsed() >= BEGIN_TAKES {
                return prompts;
            }
            std::thread::sleep(BEGIN_LOOK);
        }
    }

    fn new(pid: u32, period_ns: Option<u64>) -> Self {
        let state = if period_ns.is_some() { State::Waiting } else { State::Over };
        let period_ns = period_ns.unwrap_or(ALL_NS);
        Self { pid, began: Instant::now(), programs: 0, period_ns, state }
    }

    /// Whether the agent is still waited for.
    fn are_waiting(&self) -> bool {
        matches!(self.state, State::Waiting)
    }

    /// Begins them once the agent is there, and anew when the process may have executed another program with an agent; ends them when it has
    /// the handler no longer, or it is enough.
    pub fn look(&mut self, agent: &AllocationSource) {
        let is_open = matches!(self.state, State::Open(_));
        let has_handler = agent.promptable() == self.pid;
        let programs = agent.programs();
        let is_other_program = std::mem::replace(&mut self.programs, programs) != programs;
        if self.began.elapsed() > LONGEST || is_open && !has_handler {
            self.end(agent);
        } else if has_handler && (self.are_waiting() || is_open && is_other_program) {
            // A program that takes the signal waits as long as it is prompted.
            agent.set_prompted(self.pid);
            let is_still = || agent.promptable() == self.pid;
            self.state = match open(self.pid, self.period_ns, is_still) {
                Ok(event) => State::Open(Event::new(event)),
                Err(error) => {
                    tracing::debug!(%error, "no prompts");
                    self.end(agent);
                    return;
                }
            };
        }
    }

    /// Whether they tell where the thread is, too.
    pub fn are_glances(&self) -> bool {
        matches!(&self.state, State::Open(event) if event.ring.is_some())
    }

    /// Where the thread was at those since the last call: samples of [`SampleEvent::bare_time`].
    pub fn drain(&mut self, mut sink: impl FnMut(TimedRecord)) {
        if let State::Open(Event { ring: Some(ring), layout, .. }) = &mut self.state {
            ring.drain(|record_type, misc, body| match layout.parse(record_type, misc, body) {
                Ok(record) => sink(record),
                Err(error) => tracing::debug!(%error, "a record was passed over"),
            });
        }
    }

    /// There are no more.
    pub fn end(&mut self, agent: &AllocationSource) {
        self.state = State::Over;
        agent.set_prompted(0);
    }
}

impl Event {
    fn new(event: OwnedFd) -> Self {
        let ring = event.try_clone().and_then(|owner| Ring::largest(owner, SMALLEST));
        let ring =
            ring.inspect_err(|error| tracing::debug!(%error, "prompts do not tell where they come")).ok();
        Self { _held_open: event, ring, layout: SampleEvent::bare_time(1).layout() }
    }
}

/// The event of a process's first thread, sending signals if there may be some.
fn open(pid: u32, period_ns: u64, may: impl Fn() -> bool) -> io::Result<OwnedFd> {
    let event = open_for_signals(pid, period_ns)?;
    // The first thread has the process's number.
    let thread = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let owner = Owner { kind: F_OWNER_TID, pid: thread };
    // SAFETY: a descriptor of ours; the structure is read.
    let is_set = unsafe {
        libc::fcntl(event.as_raw_fd(), F_SETSIG, libc::SIGURG) == 0
            && libc::fcntl(event.as_raw_fd(), F_SETOWN_EX, &raw const owner) == 0
            && libc::fcntl(event.as_raw_fd(), libc::F_SETFL, libc::O_ASYNC) == 0
    };
    if !is_set {
        return Err(io::Error::last_os_error());
    }
    if !may() {
        return Err(io::Error::other("the program has a handler of its own"));
    }
    let most = (ALL_NS / period_ns.max(1)).max(1) as libc::c_int;
    // SAFETY: a descriptor of ours.
    match unsafe { perf_event_open_sys::ioctls::REFRESH(event.as_raw_fd(), most) } {
        0.. => Ok(event),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::record::Record;

    const LOOP: &str = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";

    /// What a script writes that is prompted from its begin on, and whether it is.
    fn prompted(begin: &str, script: &str) -> (bool, String) {
        let script = format!("{begin} echo begun; read go; {script}");
        let shell =
            Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut shell = shell.expect("a shell");
        let mut output = BufReader::new(shell.stdout.take().expect("a pipe"));
        let mut begun = String::new();
        output.read_line(&mut begun).expect("text");
        let event = open(shell.id(), 1_000_000, || true).inspect_err(|error| eprintln!("none: {error}"));
        shell.stdin.take().expect("a pipe").write_all(b"go\n").expect("it reads");
        let mut written = String::new();
        output.read_to_string(&mut written).expect("text");
        assert!(shell.wait().expect("it ends").success() && begun == "begun\n", "{written}");
        (event.is_ok(), written)
    }

    #[test]
    fn who_has_a_handler_is_prompted_and_others_do_not_notice() {
        let (is_open, written) = prompted("trap 'echo prompted' URG;", LOOP);
        assert_eq!(written.starts_with("prompted\n"), is_open, "{written}");
        // Also without any room for signals.
        for begin in ["", "ulimit -i 0;"] {
            assert_eq!(prompted(begin, &format!("{LOOP}; echo done")).1, "done\n");
        }
    }

    #[test]
    fn a_program_that_is_executed_has_none() {
        let executed = format!("exec sh -c 'trap \"echo prompted\" URG; {LOOP}; echo done'");
        assert_eq!(prompted("", &executed).1, "done\n");
    }

    #[test]
    fn prompts_tell_where_they_come() {
        let mut shell = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell");
        let Ok(event) = open(shell.id(), 1_000_000, || true) else {
            shell.kill().expect("it runs");
            shell.wait().expect("it ends");
            return eprintln!("passed over: the kernel allows no events");
        };
        let mut prompts =
            Prompts { state: State::Open(Event::new(event)), ..Prompts::new(shell.id(), Some(1_000_000)) };
        let mut told = Vec::new();
        for _ in 0..600 {
            std::thread::sleep(Duration::from_millis(50));
            prompts.drain(|record| told.push(record));
            if told.len() >= 8 || !prompts.are_glances() {
                break;
            }
        }
        shell.kill().expect("it runs");
        shell.wait().expect("it ends");
        let is_its = |record: &TimedRecord| matches!(&record.record, Record::Sample(sample) if sample.tid == shell.id() && sample.period == 1_000_000);
        assert!(told.len() >= 8 && told.iter().all(is_its) || !prompts.are_glances(), "{told:?}");
    }

    #[test]
    fn who_must_not_be_prompted_is_not() {
        let refused = open(std::process::id(), 1_000_000, || false);
        assert!(refused.is_err(), "{refused:?}");
    }

    #[test]
    fn without_an_agent_or_time_to_spend_there_are_none() {
        assert!(!Prompts::new(std::process::id(), None).are_waiting());
        let agent = AllocationSource::none();
        let mut prompts = Prompts::new(std::process::id(), Some(1_000_000));
        prompts.look(&agent);
        assert!(prompts.are_waiting());
        prompts.end(&agent);
        assert!(!prompts.are_waiting());
    }
}

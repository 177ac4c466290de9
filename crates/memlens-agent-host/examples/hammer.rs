//! Runs a program with bursts begun as often as can be in every thread of it and of what it makes, and throws away what
//! they record: for tests of what bursts do to programs (`tests/torture.py`).
//!
//! ```text
//! hammer [--native] [--every MICROSECONDS] [--words N] [--share PART] [--stats FILE] -- PROGRAM [ARGUMENT]…
//! ```
//!
//! The agent's own timers come with the kernel's tick, some hundred times a second. So each thread gets a software
//! event of its processor time besides (`PERF_COUNT_SW_CPU_CLOCK`), which raises the agent's signal there each time that it
//! runs over: after so many microseconds in its own code. It counts in user mode only and goes at execve(2), so that no
//! signal is left for a program without the agent, and none comes while a thread waits in a system call.
//!
//! `--native` runs the program in the same way without the agent. `--stats` writes a line of JSON: the processor
//! time of all processes in seconds, how many bursts they had, words recorded, and how bursts ended. The exit code is the
//! program's; 128 and the signal's number if it was killed; 125 for errors of this one.

use std::collections::{HashMap, HashSet};
use std::env;
use std::error::Error;
use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use memlens_agent_host::{Agent, AgentOptions, BurstOptions, Event, Watch};
use memlens_events::burst::End;

/// The agent's signal (`memlens-agent/src/ticks.rs`).
const SIGNAL: libc::c_int = 32;
const SCAN_EVERY: Duration = Duration::from_millis(4);
const DRAIN_EVERY: Duration = Duration::from_millis(1);
/// Signals that may wait for their threads before no more are raised: far below what the kernel allows a user.
const MOST_PENDING: u64 = 4000;
const FEW_PENDING: u64 = 500;

struct Options {
    is_native: bool,
    every: Duration,
    words: u32,
    share: f64,
    stats: Option<PathBuf>,
    command: Vec<String>,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options {
        is_native: false,
        every: Duration::from_micros(100),
        words: 1000,
        share: 1.0,
        stats: None,
        command: Vec::new(),
    };
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--native" => options.is_native = true,
            "--every" => options.every = Duration::from_micros(value()?.parse()?),
            "--words" => options.words = value()?.parse()?,
            "--share" => options.share = value()?.parse()?,
            "--stats" => options.stats = Some(value()?.into()),
            "--" => {
                options.command = words.collect();
                break;
            }
            _ => return Err(format!("unknown word {word}").into()),
        }
    }
    if options.command.is_empty() {
        return Err("no program is named behind --".into());
    }
    Ok(options)
}

/// What bursts there were.
#[derive(Default)]
struct Seen {
    bursts: u64,
    words: u64,
    ends: [u64; End::ALL.len()],
}

impl Seen {
    fn take(&mut self, agent: &mut Agent) {
        agent.drain(|record| {
            if let Event::Burst { head, words } = record.event {
                self.bursts += 1;
                self.words += words.len() as u64 / 8;
                if let Some(end) = End::of(head.end) {
                    self.ends[end as usize] += 1;
                }
            }
        });
    }
}

/// A thread, by process and number.
type Thread = (u32, u32);

/// The events of all threads.
struct Hammer {
    every: Duration,
    events: HashMap<Thread, OwnedFd>,
    /// Threads of the look before: one that is seen for the first time may be about to execute a program.
    known: HashSet<Thread>,
    is_paused: bool,
}

impl Hammer {
    /// Gives threads that came an event, and forgets those of threads that went.
    fn scan(&mut self) {
        let mut threads = HashSet::new();
        let own = std::process::id();
        let mut queued = 0;
        let mut processes = children_of(own);
        while let Some(process) = processes.pop() {
            for thread in numbers_in(&format!("/proc/{process}/task")) {
                threads.insert((process, thread));
            }
            processes.extend(children_of(process));
        }
        self.events.retain(|thread, _| threads.contains(thread));
        for &thread in threads.intersection(&self.known) {
            if self.events.contains_key(&thread) {
                continue;
            }
            if handles_signal(thread)
                && !shares_memory_with_parent(thread.0)
                && let Ok(event) = new_event(thread.1, self.every)
                && handles_signal(thread)
            {
                if !self.is_paused {
                    switch(&event, true);
                }
                self.events.insert(thread, event);
            }
        }
        if let Some(&thread) = self.events.keys().next() {
            queued = queued_signals(thread);
        }
        let is_paused = queued > if self.is_paused { FEW_PENDING } else { MOST_PENDING };
        if is_paused != self.is_paused {
            self.is_paused = is_paused;
            self.events.values().for_each(|event| switch(event, !is_paused));
        }
        self.known = threads;
    }
}

fn numbers_in(folder: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The processes that the threads of a process made.
fn children_of(process: u32) -> Vec<u32> {
    let threads = numbers_in(&format!("/proc/{process}/task"));
    let lists = threads
        .iter()
        .flat_map(|thread| fs::read_to_string(format!("/proc/{process}/task/{thread}/children")));
    lists.flat_map(|list| list.split_whitespace().flat_map(str::parse).collect::<Vec<u32>>()).collect()
}

/// A line of proc_pid_status(5), without its name.
fn status_line((process, thread): Thread, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/task/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().to_owned())
}

/// Whether the signal would not end the thread's process.
fn handles_signal(thread: Thread) -> bool {
    let caught = status_line(thread, "SigCgt:").and_then(|line| u64::from_str_radix(&line, 16).ok());
    caught.is_some_and(|caught| caught >> (SIGNAL - 1) & 1 != 0)
}

/// How many signals wait for threads of the thread's user.
fn queued_signals(thread: Thread) -> u64 {
    let line = status_line(thread, "SigQ:").unwrap_or_default();
    line.split('/').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Whether a process is about to execute a program, in memory that is its parent's (vfork(2)): the agent has no timer there.
fn shares_memory_with_parent(process: u32) -> bool {
    const KCMP_VM: libc::c_int = 1;
    let parent = status_line((process, process), "PPid:").and_then(|line| line.parse::<i32>().ok());
    // SAFETY: kcmp(2) compares, and changes nothing.
    parent.is_some_and(|parent| unsafe { libc::syscall(libc::SYS_kcmp, parent, process, KCMP_VM, 0, 0) == 0 })
}

/// An event of a thread's processor time in user mode, which raises the signal there each time that `every` has passed.
/// It does not count yet.
fn new_event(thread: u32, every: Duration) -> io::Result<OwnedFd> {
    // `struct perf_event_attr` of 128 bytes (include/uapi/linux/perf_event.h): type and size, configuration (the
    // processor's clock), period, two formats, flags, wakeup_events.
    const SOFTWARE: u64 = 1;
    const DISABLED: u64 = 1;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
    const REMOVE_ON_EXEC: u64 = 1 << 36;
    const CLOSE_ON_EXEC: libc::c_ulong = 8;
    let mut attributes = [0u64; 16];
    attributes[0] = 128 << 32 | SOFTWARE;
    attributes[2] = every.as_nanos() as u64;
    attributes[5] = DISABLED | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR | REMOVE_ON_EXEC;
    attributes[6] = 1;
    // SAFETY: reads the attributes; the descriptor that it returns is new.
    let event = unsafe {
        let event = libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            thread,
            -1 as libc::c_int,
            -1 as libc::c_int,
            CLOSE_ON_EXEC,
        );
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(event as RawFd)
    };
    // fcntl(2), include/uapi/asm-generic/fcntl.h; the owner is a `struct f_owner_ex` with `F_OWNER_TID`.
    const F_SETSIG: libc::c_int = 10;
    const F_SETOWN_EX: libc::c_int = 15;
    const OF_THREAD: libc::c_int = 0;
    let owner = [OF_THREAD, thread as libc::c_int];
    let descriptor = event.as_raw_fd();
    // SAFETY: reads the owner; the descriptor is ours.
    let is_set = unsafe {
        libc::fcntl(descriptor, F_SETOWN_EX, owner.as_ptr()) == 0
            && libc::fcntl(descriptor, F_SETSIG, SIGNAL) == 0
            && libc::fcntl(descriptor, libc::F_SETFL, libc::O_ASYNC) == 0
    };
    if is_set { Ok(event) } else { Err(io::Error::last_os_error()) }
}

fn switch(event: &OwnedFd, is_on: bool) {
    /// `PERF_EVENT_IOC_ENABLE` and `…_DISABLE`.
    const ENABLE: libc::c_ulong = 0x2400;
    const DISABLE: libc::c_ulong = 0x2401;
    // SAFETY: takes no memory. One whose thread has ended or has executed a program says so; nothing depends on it.
    unsafe { libc::ioctl(event.as_raw_fd(), if is_on { ENABLE } else { DISABLE }, 0) };
}

/// Processes that have ended: their processor time, and how `program` ended.
#[derive(Default)]
struct Ended {
    seconds: f64,
    code: Option<u8>,
}

impl Ended {
    fn look(&mut self, program: u32) {
        loop {
            let mut status = 0;
            // SAFETY: an all-zero structure of numbers; wait4(2) writes both.
            let (pid, usage) = unsafe {
                let mut usage: libc::rusage = mem::zeroed();
                (libc::wait4(-1, &mut status, libc::WNOHANG, &mut usage), usage)
            };
            if pid <= 0 {
                return;
            }
            let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
            self.seconds += seconds(usage.ru_utime) + seconds(usage.ru_stime);
            if pid as u32 == program {
                self.code = Some(match libc::WIFSIGNALED(status) {
                    true => 128 + libc::WTERMSIG(status) as u8,
                    false => libc::WEXITSTATUS(status) as u8,
                });
            }
        }
    }
}

fn run(options: &Options) -> Result<u8, Box<dyn Error>> {
    // What a program leaves behind comes to us: it is hammered and counted, too.
    // SAFETY: sets a flag of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let mut command = Command::new(&options.command[0]);
    command.args(&options.command[1..]);
    let mut agent = None;
    if !options.is_native {
        let bursts = BurstOptions { words: options.words, share: options.share, often: 0, filter: false };
        let made = Agent::new(&AgentOptions {
            watch: Watch::Sampled,
            tick: Some(Duration::from_micros(100)),
            stack_bytes: 256,
            bursts: Some(bursts),
        })?;
        let descriptor = made.descriptor().as_raw_fd();
        command.envs(made.variables(env::var_os("LD_PRELOAD")));
        // SAFETY: one system call, which a forked child may make.
        unsafe {
            command.pre_exec(move || match libc::fcntl(descriptor, libc::F_SETFD, 0) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
        agent = Some(made);
    }
    let program = command.spawn()?.id();
    let mut hammer =
        Hammer { every: options.every, events: HashMap::new(), known: HashSet::new(), is_paused: false };
    let (mut seen, mut ended) = (Seen::default(), Ended::default());
    let mut scanned = Instant::now();
    while ended.code.is_none() {
        thread::sleep(DRAIN_EVERY);
        ended.look(program);
        if let Some(agent) = &mut agent {
            seen.take(agent);
            if scanned.elapsed() >= SCAN_EVERY {
                hammer.scan();
                scanned = Instant::now();
            }
        }
    }
    if let Some(agent) = &mut agent {
        seen.take(agent);
    }
    if let Some(file) = &options.stats {
        let losses = agent.as_ref().map(Agent::losses).unwrap_or_default();
        let text = format!(
            "{{\"seconds\": {}, \"bursts\": {}, \"words\": {}, \"ends\": {:?}, \"lost\": {}, \"not_begun\": {}, \
             \"processes\": {}}}\n",
            ended.seconds,
            seen.bursts,
            seen.words,
            seen.ends,
            losses.bursts,
            losses.bursts_not_begun,
            agent.as_ref().map_or(0, Agent::processes),
        );
        fs::write(file, text)?;
    }
    Ok(ended.code.unwrap_or_default())
}

fn main() -> ExitCode {
    const ERROR: u8 = 125;
    match options().and_then(|options| run(&options)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("hammer: {error}");
            ExitCode::from(ERROR)
        }
    }
}

//! The agent as memlens sees it.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use memlens_events::agent::{
    AgentRecord, Answer, Control, LEAST_GAP_SHIFT, MAX_STACK_BYTES, NO_BURSTS, NO_GAP, REQUEST_FUNCTION,
    Request, VARIABLE, VERSION, Wish,
};
use memlens_inject::{Call, InjectError, Library, Prepared, WalkStack};
use memlens_payload::{Carried, Payload, PayloadError};
use thiserror::Error;

use crate::address_room::{self, TooLittle};
use crate::drawing_budget::{self, Reports};
use crate::segment::Segment;

include!(concat!(env!("OUT_DIR"), "/payload.rs"));

/// What bursts of all processes together may take before their part of the time counts, in ns.
const BURST_ADVANCE_NS: u64 = 10_000_000;
/// The shortest time over which draws are counted.
const WINDOW: Duration = Duration::from_millis(40);

/// Which allocations are watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watch {
    /// Those of bytes drawn at random, as densely as costs nothing.
    #[default]
    Sampled,
    /// All of so many bytes and more, and no others.
    From(u64),
    /// All.
    All,
    /// None: the agent is there for its ticks.
    Nothing,
}

/// What ticks begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstOptions {
    /// Words of a burst: it has so many accesses or more.
    pub words: u32,
    /// The part of a thread's time that bursts may take, 0 to 1.
    pub share: f64,
    /// Bursts of a process whose ticks come twice as often as those of all behind them.
    pub often: u32,
    /// Whether accesses by a register of the stack alone and at fixed addresses are left out.
    pub filter: bool,
}

/// How the agent works.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AgentOptions {
    /// Which allocations are watched.
    pub watch: Watch,
    /// Processor time between two ticks of a thread; None: no ticks.
    pub tick: Option<Duration>,
    /// Bytes of stack copied with a record.
    pub stack_bytes: u32,
    /// Whether ticks begin bursts, and what these are.
    pub bursts: Option<BurstOptions>,
}

/// Why the agent cannot be used. Reads after "failed to".
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AgentError {
    /// It could not be put on disk.
    #[error(transparent)]
    Unpack(#[from] PayloadError),
    /// It lies where nothing may be executed: the dynamic linker would complain on the program's stderr.
    #[error(
        "preload the agent from {0}: that file system forbids execution; set XDG_CACHE_HOME to another folder"
    )]
    NoExecution(PathBuf),
    /// There is no shared memory for it.
    #[error("make the agent's segment: {0}")]
    Segment(io::Error),
    /// What it takes of the process's address space would be missing there.
    #[error(
        "find room for the agent: the process may use {} MiB of addresses (ulimit -v), {} of them are taken, and the agent takes {}; --mode \
         sample --allocations off needs none",
        .0.limit >> 20,
        .0.used >> 20,
        .0.needed >> 20
    )]
    NoRoom(TooLittle),
    /// `LD_PRELOAD` cannot name its place.
    #[error(
        "preload the agent from {0}: the dynamic linker splits such a path; set XDG_CACHE_HOME to a folder without \
         spaces and colons in its name"
    )]
    Path(PathBuf),
    /// It cannot be brought into a running process.
    #[error(transparent)]
    Inject(#[from] InjectError),
}

/// What the agent could not report. Units: records, unless the name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentLosses {
    /// Begins of blocks that would have been watched.
    pub allocations: u64,
    /// Ends of watched blocks.
    pub ends: u64,
    /// Ticks.
    pub ticks: u64,
    /// Records that could not be read.
    pub damaged: u64,
    /// Blocks that found no room in the agent's table.
    pub without_room: u64,
    /// Threads that have no timer.
    pub threads_without_timer: u64,
    /// Bursts, and blocks of translated code.
    pub bursts: u64,
    /// Ticks that began no burst, because the code is not translated or another thread was translating.
    pub bursts_not_begun: u64,
}

/// An agent: ready to be preloaded, or at work.
#[derive(Debug)]
pub struct Agent {
    segment: Segment,
    library: PathBuf,
    began: Instant,
    window_began: Instant,
    attached: Option<(Attached, Walk)>,
}

/// How stacks are followed.
struct Walk(Box<WalkStack<'static>>);

impl std::fmt::Debug for Walk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Walk")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Nobody is left to be told; what can go wrong leaves the agent idle.
        let _ = self.detach();
    }
}

impl Agent {
    /// Unpacks the agent and makes its segment.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub fn new(options: &AgentOptions) -> Result<Self, AgentError> {
        let carried =
            Carried { what: "the agent", prefix: "agent", content_hash: CONTENT_HASH, files: FILES };
        let library = Payload::unpack(&carried)?.file(FILES[0].0);
        if library.as_os_str().as_bytes().iter().any(|byte| b": \t\n".contains(byte)) {
            return Err(AgentError::Path(library));
        }
        if !allows_execution(&library) {
            return Err(AgentError::NoExecution(library));
        }
        address_room::check_child(options.bursts.is_some()).map_err(AgentError::NoRoom)?;
        let segment = Segment::create().map_err(AgentError::Segment)?;
        let control = segment.control();
        configure(control, options);
        let descriptor = segment.file.as_raw_fd() as u32;
        control.reader_descriptor.store(descriptor + 1, Ordering::Relaxed);
        let now = Instant::now();
        Ok(Self { segment, library, began: now, window_began: now, attached: None })
    }

    /// Lets a running process load the agent. `walk` follows its threads' stacks. When the value is dropped the agent is
    /// taken out of action, as by [`Self::detach`].
    ///
    /// # Errors
    /// If that cannot be; the process runs on in any case.
    pub fn attach(
        pid: u32,
        options: &AgentOptions,
        mut walk: Box<WalkStack<'static>>,
    ) -> Result<Self, AgentError> {
        address_room::check_process(pid, options.bursts.is_some()).map_err(AgentError::NoRoom)?;
        let mut segment = None;
        let mut prepare = |prepared: Prepared<'_>| {
            let file = prepared.file.ok_or(io::ErrorKind::NotFound)?;
            let made = segment.insert(Segment::in_file(file)?);
            configure(made.control(), options);
            Ok(bytes_of(&Request {
                version: VERSION,
                wish: Wish::Begin as u32,
                segment: prepared.descriptor,
                thread_count: prepared.threads.len() as u32,
                threads: prepared.threads_address,
                ..Request::default()
            }))
        };
        let (name, other_name) = names();
        let called = memlens_inject::call(Call {
            pid,
            library: library(&name, &other_name)
                .ok_or_else(|| AgentError::Segment(io::ErrorKind::InvalidData.into()))?,
            file: Some("memlens-agent"),
            wants_threads: options.tick.is_some(),
            prepare: &mut prepare,
            walk: &mut *walk,
        })?;
        let answered = request_of(&called.argument);
        match Answer::of(answered.answer) {
            Some(Answer::Done) => {}
            Some(Answer::Busy) => {
                return Err(InjectError::Busy { pid, reader: answered.reader_pid }.into());
            }
            Some(Answer::NoMemory) => {
                return Err(AgentError::Segment(io::ErrorKind::OutOfMemory.into()));
            }
            Some(Answer::NotYet) => return Err(InjectError::TimedOut(pid).into()),
            Some(Answer::OtherVersion) | None => return Err(InjectError::OtherVersion(pid).into()),
        }
        let segment = segment.ok_or(InjectError::Gone(pid))?;
        let attached = Attached {
            pid,
            hooked: answered.hooked,
            modules: answered.modules,
            pause: called.pause,
            other_pause: called.longest_other,
            was_there: called.was_there,
        };
        Ok(Self {
            segment,
            library: PathBuf::new(),
            began: Instant::now(),
            window_began: Instant::now(),
            attached: Some((attached, Walk(walk))),
        })
    }

    /// What attaching did, if this agent was attached.
    pub fn attached(&self) -> Option<&Attached> {
        self.attached.as_ref().map(|(attached, _)| attached)
    }

    /// Lets the agent hook libraries that were loaded after it; the number of functions' addresses that changed.
    ///
    /// # Errors
    /// If it could not be asked: nothing has changed.
    pub fn look_again(&mut self) -> Result<u32, InjectError> {
        let Some((attached, walk)) = &mut self.attached else { return Ok(0) };
        let hooked = ask(attached.pid, Wish::Look, &mut *walk.0)?.0.hooked;
        attached.hooked += hooked;
        Ok(hooked)
    }

    /// Takes an attached agent out of action: the process is as it was, but for the library. Returns the time for which
    /// a thread of it was stopped. What was reported so far can still be read.
    ///
    /// # Errors
    /// If it could not be asked: then it does nothing any more, but the hooks are still there.
    pub fn detach(&mut self) -> Result<Duration, InjectError> {
        /// Threads may be in the agent's code, without a processor to go on with.
        const TRIES: u32 = 50;
        let Some((attached, mut walk)) = self.attached.take() else { return Ok(Duration::ZERO) };
        self.control().closed.store(1, Ordering::SeqCst);
        let mut longest = Duration::ZERO;
        for _ in 0..TRIES {
            let (answered, pause) = ask(attached.pid, Wish::End, &mut *walk.0)?;
            longest = longest.max(pause);
            if Answer::of(answered.answer) == Some(Answer::Done) {
                return Ok(longest);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(InjectError::TimedOut(attached.pid))
    }
}

/// What attaching did to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The process.
    pub pid: u32,
    /// Functions' addresses in its libraries' tables that lead to the agent.
    pub hooked: u32,
    /// The libraries.
    pub modules: u32,
    /// How long the thread that let the agent in was away from its own code.
    pub pause: Duration,
    /// Of the other threads, how long the one was stopped that was stopped longest.
    pub other_pause: Duration,
    /// Whether the agent was there from an earlier time.
    pub was_there: bool,
}

/// Under which names the agent may be in a process: made by us, or preloaded.
fn names() -> (String, String) {
    (format!("memlens-agent-{CONTENT_HASH:016x}"), format!("/agent-{CONTENT_HASH:016x}/{}", FILES[0].0))
}

fn library<'a>(name: &'a str, other_name: &'a str) -> Option<Library<'a>> {
    use object::{Object, ObjectSymbol};
    let bytes = FILES[0].1;
    let file = object::File::parse(bytes).ok()?;
    let function = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(REQUEST_FUNCTION))?.address();
    Some(Library { name, other_name, bytes, function })
}

/// Has a running process map a new file, which is returned, at a place where nothing is mapped: first code, then data,
/// both shared with this process, for good. The agent is let into the process for that, and does nothing else there.
/// None: something is there after all, or there is no memory. `walk` follows its threads' stacks.
///
/// # Errors
/// If the process cannot be asked, or memlens records it.
pub fn map_code(
    pid: u32,
    name: &str,
    address: u64,
    [code_bytes, data_bytes]: [u32; 2],
    walk: &mut WalkStack<'_>,
) -> Result<Option<File>, AgentError> {
    let mut file = None;
    let mut prepare = |prepared: Prepared<'_>| {
        let made = file.insert(prepared.file.ok_or(io::ErrorKind::NotFound)?);
        // All of it now: the process must not find at a write of its own that there is no memory.
        // SAFETY: a descriptor of ours.
        match unsafe {
            libc::posix_fallocate(made.as_raw_fd(), 0, i64::from(code_bytes) + i64::from(data_bytes))
        } {
            0 => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
        Ok(bytes_of(&Request {
            version: VERSION,
            wish: Wish::Map as u32,
            segment: prepared.descriptor,
            address,
            code_bytes,
            data_bytes,
            ..Request::default()
        }))
    };
    let (agent, other_name) = names();
    let library =
        library(&agent, &other_name).ok_or_else(|| AgentError::Segment(io::ErrorKind::InvalidData.into()))?;
    let called = memlens_inject::call(Call {
        pid,
        library,
        file: Some(name),
        wants_threads: false,
        prepare: &mut prepare,
        walk,
    })?;
    let answered = request_of(&called.argument);
    match Answer::of(answered.answer) {
        Some(Answer::Done) => Ok(file),
        Some(Answer::NoMemory) => Ok(None),
        Some(Answer::Busy) => Err(InjectError::Busy { pid, reader: answered.reader_pid }.into()),
        Some(Answer::NotYet) => Err(InjectError::TimedOut(pid).into()),
        Some(Answer::OtherVersion) | None => Err(InjectError::OtherVersion(pid).into()),
    }
}

/// Asks an agent that is in a process.
fn ask(pid: u32, wish: Wish, walk: &mut WalkStack<'_>) -> Result<(Request, Duration), InjectError> {
    let (name, other_name) = names();
    let library = library(&name, &other_name).ok_or(InjectError::OtherVersion(pid))?;
    let mut prepare = |_: Prepared<'_>| {
        Ok(bytes_of(&Request { version: VERSION, wish: wish as u32, ..Request::default() }))
    };
    let called = memlens_inject::call(Call {
        pid,
        library,
        file: None,
        wants_threads: false,
        prepare: &mut prepare,
        walk,
    })?;
    Ok((request_of(&called.argument), called.pause))
}

/// The fields, in the order of the structure.
fn bytes_of(request: &Request) -> Vec<u8> {
    let &Request {
        version,
        wish,
        segment,
        thread_count,
        threads,
        answer,
        hooked,
        modules,
        reader_pid,
        address,
        code_bytes,
        data_bytes,
    } = request;
    let mut bytes = Vec::with_capacity(size_of::<Request>());
    bytes.extend([version, wish, segment, thread_count].iter().flat_map(|word| word.to_ne_bytes()));
    bytes.extend(threads.to_ne_bytes());
    bytes.extend([answer, hooked, modules, reader_pid].iter().flat_map(|word| word.to_ne_bytes()));
    bytes.extend(address.to_ne_bytes());
    bytes.extend([code_bytes, data_bytes].iter().flat_map(|word| word.to_ne_bytes()));
    bytes
}

fn request_of(bytes: &[u8]) -> Request {
    let word = |at: usize| {
        bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
    };
    let long = |at: usize| u64::from(word(at + 4)) << 32 | u64::from(word(at));
    Request {
        version: word(0),
        wish: word(4),
        segment: word(8),
        thread_count: word(12),
        threads: long(16),
        answer: word(24),
        hooked: word(28),
        modules: word(32),
        reader_pid: word(36),
        address: long(40),
        code_bytes: word(48),
        data_bytes: word(52),
    }
}

fn set_burst_share(control: &Control, share: f64) {
    control.burst_millionths.store((share * 1e6) as u32, Ordering::Relaxed);
}

/// Writes what is wanted of the agent to its segment.
fn configure(control: &Control, options: &AgentOptions) {
    control.burst_advance_ns.store(BURST_ADVANCE_NS, Ordering::Relaxed);
    let (always_from, shift) = match options.watch {
        Watch::Sampled => (u64::MAX, LEAST_GAP_SHIFT),
        Watch::From(bytes) => (bytes, NO_GAP),
        Watch::All => (0, NO_GAP),
        Watch::Nothing => (u64::MAX, NO_GAP),
    };
    control.always_from_bytes.store(always_from, Ordering::Relaxed);
    control.gap_shift.store(shift, Ordering::Relaxed);
    control.window_limit.store(drawing_budget::AT_FIRST, Ordering::Relaxed);
    control.stack_bytes.store(options.stack_bytes.min(MAX_STACK_BYTES as u32), Ordering::Relaxed);
    let tick_ns = options.tick.map_or(0, |tick| u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX));
    control.tick_ns.store(tick_ns, Ordering::Relaxed);
    if let Some(bursts) = options.bursts {
        control.burst_words.store(bursts.words, Ordering::Relaxed);
        set_burst_share(control, bursts.share);
        control.bursts_often.store(bursts.often, Ordering::Relaxed);
        control.burst_filter.store(bursts.filter.into(), Ordering::Relaxed);
    }
}

impl Agent {
    /// What a program's environment needs so that the agent gets in; the agent takes it out again. `preload` is what
    /// the program's own `LD_PRELOAD` would be.
    pub fn variables(&self, preload: Option<OsString>) -> [(&'static str, OsString); 2] {
        let mut list = self.library.clone().into_os_string();
        if let Some(own) = preload {
            list.push(":");
            list.push(own);
        }
        [("LD_PRELOAD", list), (VARIABLE, self.descriptor().as_raw_fd().to_string().into())]
    }

    /// The descriptor that the program must inherit, under the same number.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.segment.file.as_fd()
    }

    fn control(&self) -> &Control {
        self.segment.control()
    }

    /// Hands what was reported to `each`, ring by ring: not in the order of time.
    pub fn drain(&mut self, mut each: impl FnMut(&AgentRecord<'_>)) {
        self.segment.drain(&mut each);
        self.open_window();
    }

    fn reports(&self) -> Reports {
        let control = self.control();
        Reports {
            count: control.drawn_blocks.load(Ordering::Relaxed),
            took_ns: control.drawing_ns.load(Ordering::Relaxed),
        }
    }

    /// What reports of drawn blocks have cost the program: twice what they took there, as the budget of blocks has it (`drawing_budget.rs`).
    pub fn drawing_cost(&self) -> Duration {
        Duration::from_nanos(self.reports().cost_ns() as u64)
    }

    /// Lets more blocks be drawn if there were few since the last time.
    fn open_window(&mut self) {
        let elapsed = self.window_began.elapsed();
        if elapsed < WINDOW {
            return;
        }
        self.window_began = Instant::now();
        let control = self.control();
        let reports = self.reports();
        // The next window is as long as this one was, as far as is known.
        let limit = drawing_budget::limit(reports, self.began.elapsed(), elapsed);
        let drawn = control.window_blocks.swap(0, Ordering::Relaxed);
        let shift = control.gap_shift.load(Ordering::Relaxed);
        if drawn * 2 < limit && shift > LEAST_GAP_SHIFT && shift != NO_GAP {
            // The agent may double it at this moment: then it stays.
            let _ =
                control.gap_shift.compare_exchange(shift, shift - 1, Ordering::Relaxed, Ordering::Relaxed);
        }
        control.window_limit.store(limit, Ordering::Relaxed);
    }

    /// In how many processes it has been at work.
    pub fn processes(&self) -> u32 {
        self.control().started.load(Ordering::Relaxed)
    }

    /// In how many programs it was started: the first, and those that were executed.
    pub fn programs(&self) -> u32 {
        self.control().programs.load(Ordering::Relaxed)
    }

    /// Programs that were executed without it: linked statically, privileged, or of another libc.
    pub fn programs_without_agent(&self) -> u32 {
        self.control().programs_without_agent.load(Ordering::Relaxed)
    }

    /// How many processes it has left because they were about to restrict their system calls (seccomp).
    pub fn restricted(&self) -> u32 {
        self.control().restricted.load(Ordering::Relaxed)
    }

    /// In how many of them the program has an allocator of its own, which the agent does not see.
    pub fn own_allocators(&self) -> u32 {
        self.control().own_allocator.load(Ordering::Relaxed)
    }

    /// Why a process could have no bursts.
    pub fn no_bursts(&self) -> Option<&'static str> {
        let number = self.control().no_bursts.load(Ordering::Relaxed) as usize;
        NO_BURSTS.get(number.checked_sub(1)?).copied()
    }

    /// Bursts may take another part of each thread's time from now on, 0 to 1. That is of measured cost: there is no advance any
    /// more, nor anything to be paid back.
    pub fn set_burst_share(&self, share: f64) {
        let control = self.control();
        set_burst_share(control, share);
        control.burst_advance_ns.store(0, Ordering::Relaxed);
        control.burst_owed_ns.store(0, Ordering::Relaxed);
    }

    /// The process that has a handler for prompts; 0: none has.
    pub fn promptable(&self) -> u32 {
        self.control().promptable.load(Ordering::SeqCst)
    }

    /// The process that is sent prompts from now on; 0: none is any more.
    pub fn set_prompted(&self, pid: u32) {
        self.control().prompted.store(pid, Ordering::SeqCst);
    }

    /// What was lost so far.
    pub fn losses(&self) -> AgentLosses {
        let control = self.control();
        let count = |counter: &std::sync::atomic::AtomicU32| u64::from(counter.load(Ordering::Relaxed));
        AgentLosses {
            allocations: count(&control.lost_allocations),
            ends: count(&control.lost_ends),
            ticks: count(&control.lost_ticks),
            damaged: self.segment.damaged,
            without_room: count(&control.blocks_without_room),
            threads_without_timer: count(&control.threads_without_timer),
            bursts: count(&control.lost_bursts),
            bursts_not_begun: count(&control.bursts_not_begun),
        }
    }
}

/// Whether a file's file system lets its code be mapped.
fn allows_execution(file: &Path) -> bool {
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else { return false };
    // SAFETY: zeroed is a valid statvfs; the call fills it.
    let (status, flags) = unsafe {
        let mut answer: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &raw mut answer), answer.f_flag)
    };
    status == 0 && flags & libc::ST_NOEXEC == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_comes_first_and_the_programs_own_libraries_stay() {
        let agent = Agent::new(&AgentOptions::default()).expect("unpacked");
        let [(name, preload), (variable, descriptor)] = agent.variables(Some("/own.so".into()));
        assert_eq!((name, variable), ("LD_PRELOAD", VARIABLE));
        let preload = preload.into_string().expect("text");
        let (first, rest) = preload.split_once(':').expect("two");
        assert!(first.ends_with("/libmemlens_agent.so") && std::path::Path::new(first).exists());
        assert_eq!(rest, "/own.so");
        assert_eq!(descriptor, OsString::from(agent.descriptor().as_raw_fd().to_string()));
        let [(_, alone), _] = agent.variables(None);
        assert_eq!(alone, OsString::from(first));
    }
}

//! The order of things: which thread is borrowed, what it is given, when it is let go.

use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::arch::{self, Data, Mark, Registers, STUB_BYTES, Scratch};
use crate::ended_calls::is_ended_by_stops;
use crate::error::InjectError;
use crate::image::{Image, images};
use crate::safe_point::{
    NOT_OF_LIBC, Need, SafePoints, WalkStack, has_descriptor_above, is_of_libc, need_of,
};
use crate::target::{self, Mapping, Target};
use crate::tracer::{self, Resume, Stop};

/// How long a borrowed thread may take for the call, and how long threads are looked for. What takes longer ends by
/// itself.
pub const MOST_WAIT: Duration = Duration::from_secs(20);
/// How long a process that has no C library yet may take to map it.
const STARTING: Duration = Duration::from_millis(500);
/// How long a thread may take to stop: one that waits uninterruptibly in the kernel does not.
const STOP_TAKES: Duration = Duration::from_millis(100);
/// If all threads are none of libc's for so long, they are not about to become some: a process that has just been
/// executed takes milliseconds to get there.
const NEVER_OF_LIBC: Duration = Duration::from_millis(500);
/// Rounds in which a stack that cannot be walked must be free of anything suspicious, and a thread without vector registers that only
/// the tracer keeps.
const STRICT_ROUNDS: u32 = 5;
/// Why a thread with such registers is better let be.
const COMPUTES: &str = "in the middle of a computation with long vectors";
/// Between two rounds through the threads, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(20));

/// A library to be loaded.
#[derive(Clone, Copy, Debug)]
pub struct Library<'a> {
    /// Its name in the process's mappings: `/memfd:NAME`. A library of that name is taken to be this one.
    pub name: &'a str,
    /// Other names under which it may be there, as parts of a path.
    pub other_name: &'a str,
    /// Its file.
    pub bytes: &'a [u8],
    /// The function to be called, as an address in the file.
    pub function: u64,
}

/// What the function's argument is made from.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// The file that was asked for, in this process …
    pub file: Option<File>,
    /// … and its descriptor in the other, which is the function's to close.
    pub descriptor: u32,
    /// The threads that libc made.
    pub threads: &'a [u32],
    /// Where a list of their ids (32 bits each) lies in the other process.
    pub threads_address: u64,
}

/// A call of a function in a process.
pub struct Call<'a, 'w> {
    /// The process.
    pub pid: u32,
    /// Whose function.
    pub library: Library<'a>,
    /// The name of a new file in memory that both processes have.
    pub file: Option<&'a str>,
    /// Whether the threads are wanted: each is stopped for a moment.
    pub wants_threads: bool,
    /// Makes the function's argument, of which it gets the address. The borrowed thread waits meanwhile.
    pub prepare: &'a mut (dyn FnMut(Prepared<'_>) -> io::Result<Vec<u8>> + Send),
    /// Follows stacks.
    pub walk: &'a mut WalkStack<'w>,
}

impl std::fmt::Debug for Call<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// What a call did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// The argument as the function left it.
    pub argument: Vec<u8>,
    /// How long the borrowed thread was away from its own code.
    pub pause: Duration,
    /// Of the other threads the one that was stopped longest.
    pub longest_other: Duration,
    /// How often threads were stopped and let go.
    pub tries: u32,
    /// Whether the library was there already.
    pub was_there: bool,
}

/// Calls a function in a process.
///
/// # Errors
/// Why it could not be called. In every case the process's threads go on.
pub fn call(call: Call<'_, '_>) -> Result<Called, InjectError> {
    target::check(call.pid)?;
    let Call { pid, library, file, wants_threads, prepare, walk } = call;
    let (asks, questions) = mpsc::channel::<(Registers, Vec<u8>)>();
    let (answers, answered) = mpsc::channel();
    let ask = move |registers: &Registers, stack: &[u8]| {
        asks.send((*registers, stack.to_vec())).ok()?;
        answered.recv().ok()?
    };
    // What a thread traces goes on when the thread ends. Stacks are followed here.
    let result = std::thread::scope(|scope| {
        let job = Job { pid, library, file, wants_threads, prepare, walk: Box::new(ask) };
        let worker = scope.spawn(move || Injector::new(job)?.run());
        for (registers, stack) in questions {
            if answers.send(walk(&registers, &stack)).is_err() {
                break;
            }
        }
        worker.join()
    });
    result.unwrap_or_else(|_| {
        let error = io::Error::other("a fault of memlens itself");
        Err(InjectError::System { pid, what: "inject", error })
    })
}

/// Has a stack followed by the thread that makes the call.
type Ask = dyn FnMut(&Registers, &[u8]) -> Option<Vec<u64>> + Send;

/// A [`Call`] as the tracing thread has it.
struct Job<'a> {
    pid: u32,
    library: Library<'a>,
    file: Option<&'a str>,
    wants_threads: bool,
    prepare: &'a mut (dyn FnMut(Prepared<'_>) -> io::Result<Vec<u8>> + Send),
    walk: Box<Ask>,
}

struct Injector<'a> {
    call: Job<'a>,
    target: Target,
    libc: Image,
    images: Vec<Image>,
    points: SafePoints,
    /// Address of the function, if its library is there.
    present: Option<u64>,
    tries: u32,
    last: &'static str,
    longest_other: Duration,
    /// Threads that did not stop in time.
    late: Vec<u32>,
    /// Where code of ours lies, and what was there before.
    place: u64,
    before: Vec<u8>,
}

impl<'a> Injector<'a> {
    fn new(call: Job<'a>) -> Result<Self, InjectError> {
        let pid = call.pid;
        let target = Target::open(pid)?;
        // Who has the first thread keeps others away until this thread of ours ends.
        tracer::seize(pid).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => InjectError::Gone(pid),
            _ => target::tracer_of(pid).unwrap_or(InjectError::Forbidden { pid, error }),
        })?;
        let Loaded { mappings, images, libc } = Loaded::of(&target, pid)?;
        const SANITIZERS: [&str; 5] =
            ["__asan_init", "__hwasan_init", "__lsan_init", "__msan_init", "__tsan_init"];
        let sanitizer =
            images.iter().find_map(|image| SANITIZERS.iter().find(|name| image.function(name).is_some()));
        if let Some(sanitizer) = sanitizer {
            return Err(InjectError::Sanitizer(pid, (*sanitizer).trim_matches('_').replace("_init", "")));
        }
        let is_it = |image: &&Image| {
            image.name.starts_with(&format!("/memfd:{} ", call.library.name))
                || image.name.contains(call.library.other_name)
        };
        let present = images.iter().find(is_it).map(|image| image.bias.wrapping_add(call.library.function));
        let points = SafePoints::new(&target, &images, &libc, &mappings);
        let (last, longest_other) = ("no thread", Duration::ZERO);
        Ok(Self {
            call,
            target,
            libc,
            images,
            points,
            present,
            tries: 0,
            last,
            longest_other,
            late: Vec::new(),
            place: 0,
            before: Vec::new(),
        })
    }

    fn run(&mut self) -> Result<Called, InjectError> {
        let threads = if self.call.wants_threads { self.threads() } else { Vec::new() };
        let begun = Instant::now();
        self.take_place(begun + MOST_WAIT)?;
        let (mut pause, mut round, mut is_of_libc) = (PAUSE.0, 0, false);
        loop {
            round += 1;
            let mut candidates = self.target.threads();
            if candidates.is_empty() {
                return Err(InjectError::Gone(self.call.pid));
            }
            // Those that wait are seldom in the way of others; those whose call the stop would end, if this process were
            // killed in just that moment, come late; those that did not stop, which takes its time, last.
            candidates.sort_by_cached_key(|&thread| match self.target.waits_in(thread) {
                _ if self.late.contains(&thread) => 3,
                Some((call, _)) if is_ended_by_stops(call) => 2,
                Some(_) => 0,
                None => 1,
            });
            for thread in candidates {
                let stopped = Instant::now();
                if stopped.duration_since(begun) >= MOST_WAIT {
                    break;
                }
                let Some(registers) = self.stop(thread)? else {
                    if !self.late.contains(&thread) {
                        self.late.push(thread);
                    }
                    continue;
                };
                self.late.retain(|&late| late != thread);
                self.tries += 1;
                let Some(registers) = self.settle(thread, &registers)? else {
                    self.last = "in a system call that is not interrupted soon";
                    is_of_libc = true;
                    self.longest_other = self.longest_other.max(stopped.elapsed());
                    continue;
                };
                let is_lenient = round > STRICT_ROUNDS;
                let vectors = arch::wide_vectors(thread);
                let Self { points, target, call, .. } = self;
                let objection = points.objection(target, thread, &registers, &mut *call.walk, is_lenient);
                if let Some(objection) = objection.or(match vectors {
                    Some(_) if !is_lenient => Some(COMPUTES),
                    _ => arch::is_in_special_mode(thread).then_some(COMPUTES),
                }) {
                    self.last = objection;
                    is_of_libc |= objection != NOT_OF_LIBC;
                    self.release(thread);
                    self.longest_other = self.longest_other.max(stopped.elapsed());
                    continue;
                }
                let result = self.borrow(thread, &registers, vectors.as_deref(), &threads);
                return result.map(|argument| Called {
                    argument,
                    pause: stopped.elapsed(),
                    longest_other: self.longest_other,
                    tries: self.tries,
                    was_there: self.present.is_some(),
                });
            }
            if self.tries > 0 && !is_of_libc && begun.elapsed() >= NEVER_OF_LIBC {
                return Err(InjectError::OwnThreads(self.call.pid));
            }
            if begun.elapsed() >= MOST_WAIT {
                return Err(InjectError::NoThread { pid: self.call.pid, tries: self.tries, last: self.last });
            }
            // Meanwhile signals of the first thread pass through our hands.
            self.serve(pause);
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Takes room for the code, and waits for who is still in code that somebody left behind.
    fn take_place(&mut self, until: Instant) -> Result<(), InjectError> {
        let mut pause = PAUSE.0;
        while !self.find_place()? {
            self.last = "on its way back from an attach that was broken off";
            if Instant::now() >= until {
                return Err(InjectError::NoThread { pid: self.call.pid, tries: self.tries, last: self.last });
            }
            self.serve(pause);
            pause = (pause * 2).min(PAUSE.1);
        }
        Ok(())
    }

    /// Whether a thread still needs the code in `place` that somebody who died has left for it.
    fn need_of(&mut self, thread: u32, place: u64) -> Result<Need, InjectError> {
        if !self.target.threads().contains(&thread) {
            return Ok(Need::None);
        }
        let Some(registers) = self.stop(thread)? else { return Ok(Need::Inside) };
        self.tries += 1;
        let range = (place, place + STUB_BYTES as u64);
        let blocked = tracer::signal_mask(thread);
        let need = blocked.map_or(Need::None, |blocked| need_of(&self.target, &registers, blocked, range));
        self.release(thread);
        Ok(need)
    }

    /// The threads that libc made, each stopped for a moment.
    fn threads(&mut self) -> Vec<u32> {
        let mut threads = Vec::new();
        for thread in self.target.threads() {
            if let Some((call, sp)) = self.target.waits_in(thread)
                && is_ended_by_stops(call)
                && (thread == self.call.pid || has_descriptor_above(&self.target, thread, sp))
            {
                threads.push(thread);
                continue;
            }
            let stopped = Instant::now();
            if let Ok(Some(registers)) = self.stop(thread) {
                if is_of_libc(&self.target, thread, &registers) {
                    threads.push(thread);
                }
                self.release(thread);
                self.longest_other = self.longest_other.max(stopped.elapsed());
            }
        }
        threads
    }

    /// Finds room for the code: behind the code of a library, up to the end of the page. What somebody who died has left there is
    /// replaced, unless a thread may come back to it. False: one is in there, or may come back to all the room there is.
    fn find_place(&mut self) -> Result<bool, InjectError> {
        let page_bytes = target::page_bytes();
        let libc = self.libc.range;
        let ours = |image: &&Image| !image.name.contains("memlens");
        let mut ends: Vec<u64> = self
            .images
            .iter()
            .filter(ours)
            .flat_map(|image| image.code.iter().map(|code| (image.range != libc, code.1)))
            .map(|(is_other, end)| (is_other, end.next_multiple_of(16)))
            .filter(|(_, end)| end.next_multiple_of(page_bytes) - end >= STUB_BYTES as u64)
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .map(|(_, end)| end)
            .collect();
        ends.truncate(64);
        let (mut left, mut free, mut is_needed) = (None, None, false);
        for &place in &ends {
            let Some(before) = self.target.bytes(place, STUB_BYTES) else { continue };
            let word = |at: usize| u64::from_ne_bytes(before[at..at + 8].try_into().unwrap_or_default());
            if word(0) != arch::MARKER {
                free = free.or(Some((place, before)));
                continue;
            }
            match u32::try_from(word(8)).map_or(Ok(Need::None), |thread| self.need_of(thread, place))? {
                Need::Inside => return Ok(false),
                Need::Perhaps => is_needed = true,
                // What was there before is not known any more; linkers fill such room with zeros.
                Need::None => left = left.or(Some((place, vec![0; STUB_BYTES]))),
            }
        }
        match left.or(free) {
            Some(found) => (self.place, self.before) = found,
            None if is_needed => return Ok(false),
            None => return Err(InjectError::NoRoom(self.call.pid, STUB_BYTES)),
        }
        Ok(true)
    }

    /// Stops a thread. None: it does not stop, or has ended.
    fn stop(&self, thread: u32) -> Result<Option<Registers>, InjectError> {
        if thread != self.call.pid {
            // It is ours already if it did not stop in time before; if it is somebody else's it does not stop.
            let _ = tracer::seize(thread);
        }
        tracer::stop(thread, STOP_TAKES).map_err(|stop| match stop {
            Stop::Executed => InjectError::Gone(self.call.pid),
            _ => InjectError::Stopped(self.call.pid),
        })
    }

    /// Makes known what became of the call that the stop interrupted. None: it does not stop again, or has ended.
    fn settle(&self, thread: u32, registers: &Registers) -> Result<Option<Registers>, InjectError> {
        arch::settle(thread, registers, STOP_TAKES).map_err(|stop| match stop {
            Stop::Executed => InjectError::Gone(self.call.pid),
            _ => InjectError::Stopped(self.call.pid),
        })
    }

    /// Lets a thread go on where it was stopped.
    fn release(&self, thread: u32) {
        let how = if thread == self.call.pid { Resume::Run } else { Resume::Free };
        // It may have been killed: then nothing is to be done.
        let _ = tracer::resume(thread, how, 0);
    }

    /// Hands signals on for a while.
    fn serve(&self, time: Duration) {
        let until = Instant::now() + time;
        while let Some((who, stop)) = tracer::next_stop(until) {
            tracer::pass_on(who, stop);
        }
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }

    fn system(&self, what: &'static str) -> impl Fn(io::Error) -> InjectError + use<> {
        let pid = self.call.pid;
        move |error| match error.raw_os_error() {
            Some(libc::ESRCH) => InjectError::Gone(pid),
            _ => InjectError::System { pid, what, error },
        }
    }

    /// Lets a stopped thread make the call and puts it back.
    fn borrow(
        &mut self,
        thread: u32,
        registers: &Registers,
        vectors: Option<&[u8]>,
        threads: &[u32],
    ) -> Result<Vec<u8>, InjectError> {
        let result = self.write_code(thread, registers).inspect_err(|_| self.release(thread));
        let mask = result?;
        let begin = registers.at(self.place + arch::entry_offset());
        if let Err(error) = tracer::set_registers(thread, &begin) {
            self.release(thread);
            return Err(self.system("change its registers")(error));
        }
        let result = self.follow(thread, threads);
        if matches!(result, Err(InjectError::TimedOut(_) | InjectError::Gone(_))) {
            // The thread needs the code still, or is gone.
            return result;
        }
        let is_back = self.take_back(thread, registers, vectors, mask);
        match is_back {
            Ok(()) => {
                let _ = self.target.write(self.place, &self.before);
                result
            }
            Err(error) => result.and(Err(error)),
        }
    }

    /// Writes code and data for a thread that is to come back to `registers`. Returns its mask of signals.
    fn write_code(&mut self, thread: u32, registers: &Registers) -> Result<u64, InjectError> {
        let mask = tracer::signal_mask(thread).map_err(self.system("ask for its signals"))?;
        let back = registers.restarted();
        let mut data = Data::new(thread, mask, &back);
        let pid = self.call.pid;
        let missing = |what| InjectError::Libc(pid, what);
        data.errno_location =
            self.libc.function("__errno_location").ok_or(missing("its libc has no errno"))?;
        data.function = self.present.unwrap_or(self.call.library.function);
        if self.present.is_none() {
            /// Of dlopen(3): all symbols now, for nobody else, never to be unloaded.
            const MODE: u64 = (libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE) as u64;
            /// Before glibc 2.34 `dlopen` is another library's, but libc has this for its own needs; its flag says that
            /// the mode is dlopen's (include/dlfcn.h).
            const INTERNAL: u64 = 0x8000_0000;
            let plain = self.libc.function("dlopen").map(|address| (address, MODE));
            let internal = || Some((self.libc.function("__libc_dlopen_mode")?, MODE | INTERNAL));
            (data.dlopen, data.dlopen_mode) =
                plain.or_else(internal).ok_or(missing("its libc has no dlopen"))?;
            data.dlerror = self.libc.function("dlerror").unwrap_or(0);
            data.wants_library = 1;
            data.file_flags = file_flags().into();
        }
        data.wants_file = self.call.file.is_some().into();
        fill(&mut data.library_name, self.call.library.name);
        fill(&mut data.file_name, self.call.file.unwrap_or(""));
        let code = arch::stub(&data);
        let written =
            self.target.write(self.place, &code).or_else(|_| tracer::poke(thread, self.place, &code));
        written.map_err(self.system("write code into it"))?;
        Ok(mask)
    }

    /// Follows the thread through the call, to the last mark. What the function left of its argument.
    fn follow(&mut self, thread: u32, threads: &[u32]) -> Result<Vec<u8>, InjectError> {
        let pid = self.call.pid;
        let until = Instant::now() + MOST_WAIT;
        let mut signal = 0;
        let mut answer = Err(InjectError::System {
            pid,
            what: "get memory in it",
            error: io::Error::from(io::ErrorKind::OutOfMemory),
        });
        let mut length = 0;
        tracer::resume(thread, Resume::ToSystemCall, 0).map_err(self.system("let it go on"))?;
        loop {
            let Some((who, stop)) = tracer::next_stop(until) else { return Err(InjectError::TimedOut(pid)) };
            if who != thread {
                tracer::pass_on(who, stop);
                continue;
            }
            match stop {
                Stop::Ended | Stop::Executed => {
                    if stop == Stop::Executed {
                        tracer::pass_on(who, stop);
                    }
                    return Err(InjectError::Gone(pid));
                }
                Stop::Group => {
                    let _ = tracer::listen(thread);
                    continue;
                }
                Stop::Signal(number) => {
                    signal = number;
                    if let Some(scratch) = self.is_fault(thread, number) {
                        answer = Err(InjectError::Crashed(pid, number));
                        signal = 0;
                        let memory = self.scratch_of(&scratch);
                        let leave = scratch.leaving(self.place + arch::leave_offset(), memory);
                        tracer::set_registers(thread, &leave).map_err(self.system("take it back"))?;
                    }
                }
                Stop::SystemCall => {
                    let registers = tracer::registers(thread).map_err(self.system("read its registers"))?;
                    let scratch = registers.scratch();
                    match registers.mark() {
                        Some(mark) if mark == Mark::Prepare as u64 => match self.prepare(scratch, threads) {
                            Ok(bytes) => length = bytes,
                            Err(error) => answer = Err(error),
                        },
                        Some(mark) if mark == Mark::Answered as u64 && length > 0 => {
                            answer = self.answer(scratch, length);
                        }
                        Some(mark) if mark == Mark::Leave as u64 => return answer,
                        _ => {}
                    }
                }
                Stop::Asked | Stop::Other => {}
            }
            let resumed = tracer::resume(thread, Resume::ToSystemCall, std::mem::take(&mut signal));
            resumed.map_err(self.system("let it go on"))?;
        }
    }

    /// Whether a signal was raised by the call itself; then the thread's registers.
    fn is_fault(&self, thread: u32, signal: i32) -> Option<Registers> {
        const RAISED: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
        if !RAISED.contains(&signal) {
            return None;
        }
        // Before it has a stack of its own a signal is the program's, sent by somebody.
        tracer::registers(thread).ok().filter(|registers| self.scratch_of(registers) != 0)
    }

    /// The scratch memory of a thread somewhere in the call; 0: it has none yet.
    fn scratch_of(&self, registers: &Registers) -> u64 {
        /// Of which every size of pages is a multiple.
        const STEP: u64 = 4096;
        let mappings = self.target.mappings().unwrap_or_default();
        let stack = mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&registers.sp()));
        // The kernel may have joined it with its neighbours: then its end is not known from the mappings.
        let sp = registers.sp();
        let is_it = |&start: &u64| self.target.word(start + Scratch::AT + 120) == Some(arch::MARKER);
        let Some(stack) = stack else { return 0 };
        let page = sp & !(STEP - 1);
        let lowest = page.saturating_sub(Scratch::BYTES).max(stack.start);
        (lowest..=page).step_by(STEP as usize).find(is_it).unwrap_or(0)
    }

    /// Fills the files and the argument. How long that is.
    fn prepare(&mut self, scratch: u64, threads: &[u32]) -> Result<usize, InjectError> {
        let pid = self.call.pid;
        let word = |place: u64| self.target.word(scratch + Scratch::AT + place).unwrap_or(u64::MAX);
        let descriptor = |place| {
            let number = word(place);
            u32::try_from(number).map_err(|_| InjectError::System {
                pid,
                what: "make a file in it",
                error: io::Error::from_raw_os_error((number as i64).unsigned_abs() as i32),
            })
        };
        let open = |number: u32| {
            let path = format!("/proc/{pid}/fd/{number}");
            File::options().read(true).write(true).open(path)
        };
        // So that the memory is known again.
        let marked = self.target.write(scratch + Scratch::AT + 120, &arch::MARKER.to_ne_bytes());
        marked.map_err(self.system("write to its memory"))?;
        if self.present.is_none() {
            let number = descriptor(0)?;
            let mut file = open(number).map_err(self.system("open a file of it"))?;
            file.write_all(self.call.library.bytes).map_err(self.system("copy the agent"))?;
            let path = format!("/proc/self/fd/{number}\0");
            let written = self.target.write(scratch + Scratch::PATH_AT, path.as_bytes());
            written.map_err(self.system("write to its memory"))?;
        }
        let (file, descriptor) = match self.call.file {
            Some(_) => {
                let number = descriptor(8)?;
                (Some(open(number).map_err(self.system("open a file of it"))?), number)
            }
            None => (None, 0),
        };
        // The list lies half-way up to the stack.
        let threads_address = scratch + Scratch::BYTES / 4;
        let most = (Scratch::BYTES / 16) as usize;
        let threads = &threads[..threads.len().min(most)];
        let list: Vec<u8> = threads.iter().flat_map(|thread| thread.to_ne_bytes()).collect();
        let prepared = Prepared { file, descriptor, threads, threads_address };
        let argument = (self.call.prepare)(prepared).map_err(self.system("prepare the call"))?;
        let go = [
            (threads_address, list.as_slice()),
            (scratch + Scratch::ARGUMENT_AT, argument.as_slice()),
            (scratch + Scratch::AT + 16, &1u64.to_ne_bytes()[..]),
        ];
        for (place, bytes) in go {
            self.target.write(place, bytes).map_err(self.system("write to its memory"))?;
        }
        Ok(argument.len())
    }

    /// What the function left of its argument.
    fn answer(&self, scratch: u64, length: usize) -> Result<Vec<u8>, InjectError> {
        let pid = self.call.pid;
        let words = self.target.bytes(scratch + Scratch::AT, 48).ok_or(InjectError::Gone(pid))?;
        let word = |at: usize| u64::from_ne_bytes(words[at * 8..at * 8 + 8].try_into().unwrap_or_default());
        if word(5) == 0 {
            let text = Some(word(4)).filter(|&place| place != 0).and_then(|place| self.target.text(place));
            let why = text.unwrap_or_else(|| "without a reason".to_owned());
            return Err(InjectError::NotLoaded { pid, why });
        }
        self.target.bytes(scratch + Scratch::ARGUMENT_AT, length).ok_or(InjectError::Gone(pid))
    }

    /// The thread is at the last mark: stops it behind that, and puts it to where it was.
    fn take_back(
        &self,
        thread: u32,
        registers: &Registers,
        vectors: Option<&[u8]>,
        mask: u64,
    ) -> Result<(), InjectError> {
        let pid = self.call.pid;
        let asked = if arch::ENDS_IN_CALL {
            tracer::resume(thread, Resume::ToSystemCall, 0)
        } else {
            tracer::interrupt(thread).and_then(|()| tracer::resume(thread, Resume::Run, 0))
        };
        asked.map_err(self.system("stop it"))?;
        let behind = if arch::ENDS_IN_CALL { Stop::SystemCall } else { Stop::Asked };
        let until = Instant::now() + MOST_WAIT;
        loop {
            match tracer::next_stop(until) {
                None => return Err(InjectError::TimedOut(pid)),
                Some((who, stop)) if who == thread && stop == behind => break,
                Some((who, Stop::Ended | Stop::Executed)) if who == thread => {
                    return Err(InjectError::Gone(pid));
                }
                Some((who, stop)) => tracer::pass_on(who, stop),
            }
        }
        if arch::ENDS_IN_CALL {
            // So that the kernel looks what is to be done about a call that was interrupted.
            tracer::interrupt(thread).map_err(self.system("stop it"))?;
        }
        // In this order: between the two the thread would go back by itself.
        tracer::set_signal_mask(thread, mask).map_err(self.system("give its signals back"))?;
        if let Some(vectors) = vectors {
            arch::set_wide_vectors(thread, vectors).map_err(self.system("give its registers back"))?;
        }
        registers.set_back(thread).map_err(self.system("give its registers back"))?;
        let how = if thread == pid { Resume::Run } else { Resume::Free };
        tracer::resume(thread, how, 0).map_err(self.system("let it go on"))
    }
}

/// What a process has mapped.
struct Loaded {
    mappings: Vec<Mapping>,
    images: Vec<Image>,
    /// The C library among these.
    libc: Image,
}

impl Loaded {
    /// One that has just begun is given a moment: its dynamic linker maps one library after the other.
    fn of(target: &Target, pid: u32) -> Result<Self, InjectError> {
        let until = Instant::now() + STARTING;
        loop {
            let mappings = target.mappings()?;
            let images = images(target, &mappings);
            let is_libc = |image: &&Image| image.function("gnu_get_libc_version").is_some();
            if let Some(libc) = images.iter().find(is_libc).cloned() {
                return Ok(Self { mappings, images, libc });
            }
            let is_dynamic = images.iter().any(|image| image.has_interpreter);
            if is_musl(&images) || !is_dynamic || Instant::now() >= until {
                return Err(not_glibc(pid, &images));
            }
            std::thread::sleep(STARTING / 50);
        }
    }
}

fn is_musl(images: &[Image]) -> bool {
    images.iter().any(|image| image.name.contains("/ld-musl") || image.name.contains("libc.musl"))
}

fn not_glibc(pid: u32, images: &[Image]) -> InjectError {
    let is_static = images.iter().all(|image| !image.has_interpreter);
    InjectError::Libc(
        pid,
        match (is_musl(images), is_static) {
            (true, _) => "its C library is musl",
            (_, true) => "it is linked statically",
            _ => "it has no glibc",
        },
    )
}

/// A text with a zero byte behind it; what does not fit is left out.
fn fill(place: &mut [u8], text: &str) {
    let length = text.len().min(place.len() - 1);
    place[..length].copy_from_slice(&text.as_bytes()[..length]);
}

/// Flags of memfd_create(2) for a file whose code may be mapped: kernels from 6.3 on want to be told.
fn file_flags() -> u32 {
    const EXECUTABLE: u32 = 0x10;
    // SAFETY: a constant name; the descriptor is closed at once.
    let is_known = unsafe {
        let file = libc::memfd_create(c"memlens".as_ptr(), libc::MFD_CLOEXEC | EXECUTABLE);
        file >= 0 && libc::close(file) == 0
    };
    libc::MFD_CLOEXEC | if is_known { EXECUTABLE } else { 0 }
}

//! Start, fork and end of the agent in a process.
//!
//! memlens passes the segment's descriptor in an environment variable and the agent's path in `LD_PRELOAD`. The
//! constructor maps the segment, closes the descriptor and takes both out of the environment again, in place: the
//! program and what it executes see what they would have seen.
//!
//! In a process that runs already memlens loads the agent by a call of the dynamic linker, finds no variable, and calls
//! [`memlens_agent_request`] instead, which hooks the tables of the libraries (`hooks.rs`), and at the end puts all back. What stays
//! is the library and the memory of its own, for the next time.
//!
//! # The end
//! Threads that are in the agent's code count as visits. Once no records are written and all visits are over, nobody
//! knows the segment any more, and it is unmapped.
//!
//! # Fork
//! The segment is shared, so a child's records go to memlens like its parent's, under the child's process id. A
//! page that the kernel empties in children (`MADV_WIPEONFORK`) tells a child that it is one, without a system
//! call. It is seen at once where the program called fork(3) or `_Fork` (`forking.rs`); else, after a bare clone(2) or in libc's own
//! daemon(3), at the first watched allocation.

use core::ffi::{CStr, c_char, c_int};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use memlens_events::agent::{
    Answer, Control, Kind, MAGIC, Request, SANITIZER_FUNCTIONS, SEGMENT_BYTES, VARIABLE, VERSION, Wish,
};
use memlens_inside::environment::{self, value_of};
use memlens_inside::own_memory;

use crate::arch::{self, number, syscall, thread};
use crate::draw::{ALWAYS_FROM_BYTES, ENDLESS, MOST_COUNTED_BYTES, ThreadDraw};
use crate::executable::File;
use crate::ring::{Segment, now_ns};
use crate::thread_area::ThreadArea;
use crate::{bursts, forking, handing_on, hooks, libraries, real, ticks, watched};

/// Words of the table of watched blocks: 2 MiB where blocks are drawn by bytes …
const DRAWN_PLACES: usize = 1 << 18;
/// … and 32 MiB where all of some size are watched. Only what is used takes memory.
const ALL_PLACES: usize = 1 << 22;

static SEGMENT: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// Whether records are written.
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);
/// A word that a forked child finds to be 0.
static FORK_WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// This process, or an ancestor whose child has not found out yet that it is one.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Counts processes from this one's first ancestor with an agent.
static EPOCH: AtomicU32 = AtomicU32::new(1);

/// The number of this process when memlens came last; earlier ones' words in thread areas count no more.
static CAME_AT: AtomicU32 = AtomicU32::new(1);
/// Threads in the agent's code.
static VISITS: AtomicU32 = AtomicU32::new(0);

/// As long as it lives, the calling thread may use the segment.
pub struct Visit(());

/// To be called before anything of the segment is used.
pub fn visit() -> Visit {
    VISITS.fetch_add(1, Ordering::SeqCst);
    Visit(())
}

impl Drop for Visit {
    fn drop(&mut self) {
        VISITS.fetch_sub(1, Ordering::Release);
    }
}

/// The segment, as long as memlens reads it.
pub fn segment() -> Option<Segment> {
    if !IS_ACTIVE.load(Ordering::SeqCst) {
        return None;
    }
    let segment = Segment(SEGMENT.load(Ordering::Relaxed));
    if segment.control().closed.load(Ordering::Relaxed) != 0 {
        stop();
        return None;
    }
    Some(segment)
}

/// From now on the entry points lead to the real functions.
fn stop() {
    IS_ACTIVE.store(false, Ordering::SeqCst);
    ALWAYS_FROM_BYTES.store(MOST_COUNTED_BYTES, Ordering::Relaxed);
    ticks::stop();
}

/// A ring is full: stops if memlens is gone.
pub fn check_reader(control: &Control) {
    if has_left(control) {
        stop();
    }
}

/// Whether memlens reads the segment no more.
fn has_left(control: &Control) -> bool {
    const ESRCH: isize = -3;
    let reader = control.reader_pid.load(Ordering::Relaxed) as usize;
    // SAFETY: signal 0 does nothing.
    let is_gone = || unsafe { syscall(number::KILL, [reader, 0, 0, 0, 0, 0]) } == ESRCH;
    control.closed.load(Ordering::Relaxed) != 0 || is_gone()
}

/// The segment and the calling thread's area, with its ids set; None: no records are written.
pub fn here() -> Option<(Segment, &'static ThreadArea)> {
    let area = thread();
    let Some(segment) = segment() else {
        area.budget.set(ENDLESS);
        return None;
    };
    // SAFETY: mapped before the agent became active, for good.
    let word = unsafe { &*FORK_WORD.load(Ordering::Relaxed) };
    let is_child = word.load(Ordering::Relaxed) == 0;
    if is_child {
        // The only thread of a new process.
        word.store(1, Ordering::Relaxed);
        EPOCH.fetch_add(1, Ordering::Relaxed);
        segment.control().started.fetch_add(1, Ordering::Relaxed);
        ticks::forget_timers();
        bursts::forget_after_fork(area);
    }
    let epoch = EPOCH.load(Ordering::Relaxed);
    if area.epoch.get() != epoch {
        let is_known = area.epoch.get() >= CAME_AT.load(Ordering::Relaxed);
        area.epoch.set(epoch);
        // SAFETY: the calls only ask.
        unsafe {
            area.pid.set(syscall(number::GETPID, [0; 6]) as u32);
            area.tid.set(syscall(number::GETTID, [0; 6]) as u32);
        }
        area.timer.set(0);
        area.name.set([0; 2]);
        area.calls_at_report.set(area.budget.calls());
        let mut draw = if is_known { area.draw.get() } else { ThreadDraw::default() };
        draw.reseed();
        area.draw.set(draw);
        if !is_known {
            area.budget.set(area.budget.left().min(0));
        }
        if is_child {
            forking::report(segment, area, PROCESS.swap(area.pid.get(), Ordering::Relaxed));
        }
        ticks::start_here(segment.control(), area);
    }
    Some((segment, area))
}

/// Called by the dynamic linker with the program's arguments and environment.
extern "C" fn start(_argc: c_int, _argv: *const *const c_char, environment: *mut *mut c_char) {
    // SAFETY: the array that the dynamic linker hands to constructors, ended by a null pointer; nothing else
    // runs yet, and its strings are the process's own to change.
    let Some(taken) = (unsafe { take_out(environment) }) else { return };
    let Some(descriptor) = taken.segment.descriptor() else { return };
    let Some(segment) = map(descriptor) else { return };
    // Asking for what is not there would allocate, and move the program's own blocks.
    let is_there = |name: &&CStr| libraries::may_have(name) && !memlens_inside::symbol(name).is_null();
    if SANITIZER_FUNCTIONS.iter().any(is_there) {
        segment.control().programs_without_agent.fetch_add(1, Ordering::Relaxed);
        // SAFETY: mapped just now; nobody knows it.
        unsafe { unmap(segment) };
        return;
    }
    if !prepare(segment) {
        return;
    }
    let control = segment.control();
    if let Some(reader_descriptor) = control.reader_descriptor.load(Ordering::Relaxed).checked_sub(1) {
        let reader = control.reader_pid.load(Ordering::Relaxed);
        // SAFETY: the process's only thread, in the only call of this function.
        unsafe { handing_on::prepare(taken.library(), reader, reader_descriptor) };
    }
    if has_own_allocator() {
        segment.control().own_allocator.fetch_add(1, Ordering::Relaxed);
    }
    // The budget was endless while there was no segment.
    thread().budget.set(0);
    if let Some((segment, area)) = here() {
        control.programs.fetch_add(1, Ordering::Relaxed);
        if matches!(taken.segment, Place::Here(_)) {
            bursts::set_looked_at(area.pid.get());
        }
        report_mappings(Kind::Started, segment, area);
    }
}

/// Reports what the process has mapped: it may have ended before memlens looks. If there is no room, `Started` goes without.
///
/// # Signal safety
/// System calls and a record.
pub fn report_mappings(kind: Kind, segment: Segment, area: &ThreadArea) {
    const ROOM: usize = 512 << 10;
    const READ_WRITE: usize = 3;
    const PRIVATE_ANONYMOUS: usize = 0x22;
    // SAFETY: memory of our own for the time of this call, zeroed and aligned to pages; the path is a string.
    unsafe {
        let memory = syscall(number::MMAP, [0, ROOM, READ_WRITE, PRIVATE_ANONYMOUS, usize::MAX, 0]);
        let mut words: &[u64] = &[];
        if memory > 0
            && let Some(file) = File::open(c"/proc/self/maps".as_ptr())
        {
            let text = core::slice::from_raw_parts_mut(memory as *mut MaybeUninit<u8>, ROOM);
            let mut used = 0;
            loop {
                let read = file.read(used as u64, &mut text[used..]).len();
                used += read;
                if read == 0 {
                    break;
                }
            }
            words = core::slice::from_raw_parts(memory as *const u64, used.div_ceil(size_of::<u64>()));
        }
        if !segment.write_words(kind, now_ns(), area, &[], words) && kind == Kind::Started {
            segment.write_words(kind, now_ns(), area, &[], &[]);
        }
        if memory > 0 {
            syscall(number::MUNMAP, [memory as usize, ROOM, 0, 0, 0, 0]);
        }
    }
}

/// What memlens asks in a process that runs: it lets a thread call this.
///
/// # Safety
/// The request is whole, and so is its list of threads; the calling thread is in no function of libc, of the dynamic
/// linker or of ours.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn memlens_agent_request(request: *mut Request) {
    // SAFETY: the caller's promise.
    let request = unsafe { &mut *request };
    request.answer = if request.version != VERSION {
        Answer::OtherVersion
    } else if request.wish == Wish::Begin as u32 {
        // SAFETY: the caller's promise.
        unsafe { begin(request) }
    } else if request.wish == Wish::Look as u32 {
        (request.hooked, request.modules) = hooks::hook();
        Answer::Done
    } else if request.wish == Wish::Map as u32 {
        map_code(request)
    } else {
        end()
    } as u32;
}

/// Begins in a process that runs.
///
/// # Safety
/// As [`memlens_agent_request`].
unsafe fn begin(request: &mut Request) -> Answer {
    if let Some(reader) = reader() {
        request.reader_pid = reader;
        return Answer::Busy;
    }
    // One that was never put back.
    if !SEGMENT.load(Ordering::Relaxed).is_null() && end() != Answer::Done {
        return Answer::NotYet;
    }
    let Some(segment) = map(request.segment as usize) else { return Answer::NoMemory };
    let word = FORK_WORD.load(Ordering::Relaxed);
    // SAFETY: null, or mapped for good.
    let is_child = unsafe { word.as_ref() }.is_some_and(|word| word.load(Ordering::Relaxed) == 0);
    if is_child {
        ticks::forget_timers();
        bursts::forget_after_fork(thread());
    }
    let epoch = EPOCH.fetch_add(1, Ordering::Relaxed) + 1;
    CAME_AT.store(epoch, Ordering::Relaxed);
    // Until memlens says what it wants, nothing is written.
    if !prepare(segment) {
        // SAFETY: mapped just now; nobody knows it.
        unsafe { unmap(segment) };
        return Answer::NoMemory;
    }
    (request.hooked, request.modules) = hooks::hook();
    let control = segment.control();
    if hooks::is_past_us() {
        control.own_allocator.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the caller's promise.
    let threads =
        unsafe { core::slice::from_raw_parts(request.threads as *const u32, request.thread_count as usize) };
    ticks::wake(control, threads);
    if has_left(control) {
        stop();
    }
    Answer::Done
}

/// The number of the memlens that records the process; None: none does.
fn reader() -> Option<u32> {
    let segment = segment()?;
    let control = segment.control();
    (!has_left(control)).then(|| control.reader_pid.load(Ordering::Relaxed))
}

/// Maps memlens's code and its data, and closes their file. Not while bursts may run: threads in translated code would go
/// on at native instructions that are about to be replaced.
fn map_code(request: &mut Request) -> Answer {
    const READ: usize = 1;
    const WRITE: usize = 2;
    const EXECUTE: usize = 4;
    const SHARED_NO_REPLACE: usize = 0x10_0001;
    let descriptor = request.segment as usize;
    let (code_bytes, data_bytes) = (request.code_bytes as usize, request.data_bytes as usize);
    let map = |offset: usize, bytes: usize, protection: usize| {
        let address = request.address as usize + offset;
        // SAFETY: a new mapping over nothing; older kernels take the address for a hint.
        let got = unsafe {
            syscall(number::MMAP, [address, bytes, protection, SHARED_NO_REPLACE, descriptor, offset])
        };
        if got > 0 && got as usize != address {
            // SAFETY: just mapped, and known to nobody.
            unsafe { syscall(number::MUNMAP, [got as usize, bytes, 0, 0, 0, 0]) };
        }
        got > 0 && got as usize == address
    };
    let answer = if let Some(reader) = reader() {
        request.reader_pid = reader;
        Answer::Busy
    } else if bursts::are_active() {
        Answer::NotYet
    } else if !map(0, code_bytes, READ | EXECUTE) {
        Answer::NoMemory
    } else if !map(code_bytes, data_bytes, READ | WRITE) {
        // SAFETY: just mapped, and known to nobody.
        unsafe { syscall(number::MUNMAP, [request.address as usize, code_bytes, 0, 0, 0, 0]) };
        Answer::NoMemory
    } else {
        Answer::Done
    };
    // SAFETY: the descriptor was made for this.
    unsafe { syscall(number::CLOSE, [descriptor, 0, 0, 0, 0, 0]) };
    answer
}

/// Puts everything back that a request has changed.
fn end() -> Answer {
    /// Tries, each of which lets other threads run.
    const TRIES: u32 = 1000;
    stop();
    bursts::stop();
    hooks::put_back();
    let is_quiet = (0..TRIES).any(|_| {
        // SAFETY: the call lets others run.
        unsafe { syscall(number::SCHED_YIELD, [0; 6]) };
        VISITS.load(Ordering::SeqCst) == 0 && !bursts::are_active()
    });
    ticks::delete_timers();
    if !is_quiet {
        return Answer::NotYet;
    }
    ticks::end();
    bursts::end();
    let segment = SEGMENT.swap(ptr::null_mut(), Ordering::Relaxed);
    if !segment.is_null() {
        // SAFETY: nobody uses it, and nobody finds it any more.
        unsafe { unmap(Segment(segment)) };
    }
    Answer::Done
}

/// Leaves a process that is about to restrict its system calls. The calling thread is in the program's own code.
pub fn leave() {
    /// Another thread may be in a burst, for some milliseconds.
    const TRIES: u32 = 20;
    let Some(segment) = segment() else { return };
    segment.control().restricted.fetch_add(1, Ordering::Relaxed);
    // Prompts go on coming if it cannot end, and their handler makes system calls.
    segment.control().promptable.store(0, Ordering::Release);
    ticks::end_prompts();
    let _ = (0..TRIES).any(|_| end() == Answer::Done);
}

/// # Safety
/// Nobody uses the segment any more.
unsafe fn unmap(segment: Segment) {
    // SAFETY: the caller's promise.
    unsafe { syscall(number::MUNMAP, [segment.0 as usize, SEGMENT_BYTES, 0, 0, 0, 0]) };
}

// SAFETY: an entry of `.init_array` is a function that gets the program's arguments (System V gABI, "Initialization and
// Termination Functions"; glibc passes them).
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, *const *const c_char, *mut *mut c_char) = start;

/// Where the segment is, by memlens's variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Under a descriptor of this process.
    Here(usize),
    /// Under one of memlens's process.
    There { pid: usize, descriptor: usize },
}

impl Place {
    fn of(value: &[u8]) -> Option<Self> {
        let colon = value.iter().position(|&byte| byte == b':');
        let number = environment::number_of;
        Some(match colon {
            None => Self::Here(number(value)?),
            Some(at) => Self::There { pid: number(&value[..at])?, descriptor: number(&value[at + 1..])? },
        })
    }

    /// As a descriptor of this process; None: memlens is gone, or not ours to ask.
    fn descriptor(self) -> Option<usize> {
        match self {
            Self::Here(descriptor) => Some(descriptor),
            Self::There { pid, descriptor } => handing_on::open_descriptor(pid, descriptor),
        }
    }
}

/// What was in the environment.
struct Taken {
    segment: Place,
    library: [u8; handing_on::PATH_BYTES],
    library_length: usize,
}

impl Taken {
    /// The agent's file, as it was preloaded.
    fn library(&self) -> &[u8] {
        &self.library[..self.library_length]
    }
}

/// Finds memlens's variable and takes it and the agent out of the environment.
///
/// # Safety
/// As [`start`]'s argument.
unsafe fn take_out(environment: *mut *mut c_char) -> Option<Taken> {
    // SAFETY: the caller's promise.
    unsafe {
        // Without the variable it was not memlens that preloaded the agent.
        let segment = Place::of(environment::value(environment, VARIABLE)?)?;
        let list = environment::value(environment, "LD_PRELOAD").unwrap_or_default();
        let first = list.split(|&byte| byte == b':').next().unwrap_or_default();
        let mut library = [0; handing_on::PATH_BYTES];
        let library_length = if first.len() < library.len() { first.len() } else { 0 };
        library[..library_length].copy_from_slice(&first[..library_length]);
        environment::restore(environment, |word| take_word_out(word));
        Some(Taken { segment, library, library_length })
    }
}

/// Clears a word that is memlens's; takes the agent, which is first, out of the list of preloaded libraries.
/// Whether nothing is left.
///
/// # Safety
/// A writable string that ends in a zero byte.
unsafe fn take_word_out(word: *mut c_char) -> bool {
    // SAFETY: the caller's string; all is written inside of it.
    unsafe {
        let text = CStr::from_ptr(word).to_bytes();
        let list = value_of(text, b"LD_PRELOAD");
        if let Some(list) = list
            && let Some(colon) = list.iter().position(|&byte| byte == b':')
        {
            let (start, taken) = (text.len() - list.len(), colon + 1);
            let left = list.len() - taken;
            ptr::copy(word.add(start + taken), word.add(start), left);
            ptr::write_bytes(word.add(start + left), 0, taken);
            return false;
        }
        let is_ours = list.is_some() || value_of(text, VARIABLE.as_bytes()).is_some();
        if is_ours {
            ptr::write_bytes(word, 0, text.len());
        }
        is_ours
    }
}

/// Maps the segment and closes its descriptor.
fn map(descriptor: usize) -> Option<Segment> {
    // SAFETY: the descriptor was made for this.
    let segment = Segment(unsafe { memlens_inside::map(descriptor, SEGMENT_BYTES) }?);
    let control = segment.control();
    let is_ours =
        control.magic.load(Ordering::Relaxed) == MAGIC && control.version.load(Ordering::Relaxed) == VERSION;
    is_ours.then_some(segment)
}

/// Memory, the fork word, and what the program does about allocation. False: the agent stays out.
fn prepare(segment: Segment) -> bool {
    const WIPE_ON_FORK: usize = 18;
    let control = segment.control();
    let always_from = control.always_from_bytes.load(Ordering::Relaxed);
    let capacity = if always_from == u64::MAX { DRAWN_PLACES } else { ALL_PLACES };
    let word = FORK_WORD.load(Ordering::Relaxed).cast::<u8>();
    let word = if word.is_null() { own_memory(4096).unwrap_or(ptr::null_mut()) } else { word };
    if word.is_null() || !real::ready() {
        return false;
    }
    if watched::capacity() >= capacity {
        watched::forget_all();
    } else {
        let Some(places) = own_memory(capacity * 8) else { return false };
        // SAFETY: zeroed memory that nobody else knows and that stays.
        unsafe { watched::use_memory(places.cast::<AtomicU64>(), capacity) };
    }
    // SAFETY: a page of our own.
    if unsafe { syscall(number::MADVISE, [word as usize, 4096, WIPE_ON_FORK, 0, 0, 0]) } != 0 {
        // Before Linux 4.14 a child could not be told from its parent.
        return false;
    }
    let word = word.cast::<AtomicU32>();
    // SAFETY: the same.
    unsafe { &*word }.store(1, Ordering::Relaxed);
    FORK_WORD.store(word, Ordering::Relaxed);
    // SAFETY: the call only asks.
    PROCESS.store(unsafe { syscall(number::GETPID, [0; 6]) } as u32, Ordering::Relaxed);
    SEGMENT.store(segment.0, Ordering::Relaxed);
    IS_ACTIVE.store(true, Ordering::SeqCst);
    ALWAYS_FROM_BYTES.store(always_from.min(MOST_COUNTED_BYTES), Ordering::Relaxed);
    control.started.fetch_add(1, Ordering::Relaxed);
    ticks::prepare(control);
    true
}

/// Whether the program's calls of `malloc` lead past the agent: its executable has one, too.
fn has_own_allocator() -> bool {
    let first = memlens_inside::symbol(c"malloc") as usize;
    let (start, end) = arch::own_image();
    first != 0 && !(start..end).contains(&first) && !memlens_inside::is_place_of_pointers(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    /// Words that are not given back: they are shortened in place.
    fn environment(words: &[&str]) -> (Vec<*mut c_char>, Vec<*mut c_char>) {
        let strings: Vec<_> =
            words.iter().map(|word| CString::new(*word).expect("no zero").into_raw()).collect();
        let mut array = strings.clone();
        array.push(ptr::null_mut());
        (strings, array)
    }

    #[test]
    fn the_environment_is_as_it_was_without_memlens() {
        let cases = [
            (
                vec!["A=1", "MEMLENS_AGENT=37", "LD_PRELOAD=/x/agent.so", "B=2"],
                vec!["A=1", "B=2"],
                Place::Here(37),
            ),
            (
                vec!["LD_PRELOAD=/x/agent.so:/own.so:/b.so", "MEMLENS_AGENT=4711:12"],
                vec!["LD_PRELOAD=/own.so:/b.so"],
                Place::There { pid: 4711, descriptor: 12 },
            ),
        ];
        for (words, expected, place) in cases {
            let (_, mut array) = environment(&words);
            // SAFETY: strings of our own, the array ends in null.
            unsafe {
                let taken = take_out(array.as_mut_ptr()).expect("memlens's words");
                assert_eq!((taken.segment, taken.library()), (place, &b"/x/agent.so"[..]));
                let left: Vec<_> = array
                    .iter()
                    .take_while(|word| !word.is_null())
                    .map(|&word| CStr::from_ptr(word).to_str().expect("text"))
                    .collect();
                assert_eq!(left, expected);
            }
        }
    }

    #[test]
    fn without_memlens_nothing_is_taken() {
        let (strings, mut array) = environment(&["A=1"]);
        // SAFETY: as above.
        assert!(unsafe { take_out(array.as_mut_ptr()) }.is_none());
        assert_eq!(array[0], strings[0]);
        let (_, mut array) = environment(&["LD_PRELOAD=/own.so"]);
        // SAFETY: as above.
        assert!(unsafe { take_out(array.as_mut_ptr()) }.is_none());
        assert!(!array[0].is_null());
    }
}

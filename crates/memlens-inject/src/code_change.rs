//! Instructions of a running process replaced by others, while all of its threads are stopped.
//!
//! A thread between two of the replaced instructions, or one that will come back there, would go on in the middle of what
//! stands there now. So places where one instruction ends and the next begins ([`CodeChange::inner`]) are looked for:
//!
//! - in the threads' instruction pointers: then all go on, and it is tried again;
//! - where the process has handlers for signals, in all memory that it can write to, for a handler's frame holds where the
//!   thread goes on: on its stack, on another one, or in the heap where user-level threads are switched by timers. Frames are
//!   known by the flags and segments that the kernel stores behind that address; one that is over may look like one that is
//!   not, and keeps the change from being made. Where there is more memory than [`MOST_SEARCHED`] it is not made either.
//!
//! Calls are never among the replaced instructions, so return addresses, and coroutines that switch by calls, lead to
//! none of these places. A change without any (a long first instruction; a jump that is taken out) needs no search.
//!
//! Promises are those of the crate: if this process dies, the threads go on by themselves; a change is one write inside
//! of a page, so it is there or not.
//!
//! Where instructions are other than x86-64's nothing is changed: [`InjectError::Instructions`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use crate::arch::{self, Registers};
use crate::error::InjectError;
use crate::target::{Mapping, Target, check};
use crate::tracer::{self, Resume, Stop};

/// How long it is tried.
const TRIES_TAKE: Duration = Duration::from_secs(3);
/// Between two tries, at least; and so many times as long as threads were stopped, up to a length that leaves several tries.
const PAUSE: Duration = Duration::from_micros(200);
const PAUSE_FACTOR: u32 = 20;
const LONGEST_PAUSE: Duration = Duration::from_millis(300);
/// How long a thread may take to stop: one that waits uninterruptibly in the kernel does not, and the others wait for it.
const STOP_TAKES: Duration = Duration::from_millis(10);
/// One that waits only for a processor is waited for so many times as long: on a busy machine that is what it takes.
const TURNS_TAKE: u32 = 10;
/// Bytes of memory that are searched, at most: some 20 ms.
pub const MOST_SEARCHED: u64 = 128 << 20;
const SEARCH_STEP: usize = 1 << 20;
const PAGE_BYTES: u64 = 4096;
/// Below the stack pointer functions may keep data (System V ABI AMD64 1.0, section 3.2.2).
const RED_ZONE_BYTES: u64 = 128;

/// Bytes of code that others are to take the place of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeChange {
    /// Where the first of them is. All lie in one page.
    pub address: u64,
    /// What has to stand there.
    pub before: Vec<u8>,
    /// What will; as many.
    pub after: Vec<u8>,
    /// Where instructions begin behind the first one, among the replaced bytes: addresses.
    pub inner: Vec<u64>,
}

impl CodeChange {
    /// Whether it is inside of a page, and changes as much as it compares.
    pub fn is_possible(&self) -> bool {
        let length = self.before.len() as u64;
        length == self.after.len() as u64 && length > 0 && self.address % PAGE_BYTES + length <= PAGE_BYTES
    }
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// It was made.
    Yes,
    /// Other bytes stood there.
    OtherCode,
    /// There is too much memory in which somebody may keep a place inside of it.
    TooMuchMemory,
}

/// What changing code did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// What became of each change.
    pub made: Vec<Made>,
    /// How long threads were stopped at most …
    pub pause: Duration,
    /// … and how often.
    pub tries: u32,
}

/// Replaces instructions of a process, all changes that can be made at once.
///
/// # Errors
/// If its threads cannot be stopped, or one does not leave the place: nothing was changed then.
pub fn change_code(pid: u32, changes: &[CodeChange]) -> Result<Changed, InjectError> {
    if !arch::CHANGES_CODE {
        return Err(InjectError::Instructions(pid));
    }
    check(pid)?;
    let begun = Instant::now();
    let mut changed = Changed::default();
    loop {
        changed.tries += 1;
        let stopped = Instant::now();
        // What a thread traces goes on when the thread ends.
        let tried = thread::scope(|scope| scope.spawn(|| Try::new(pid)?.make(changes)).join());
        let pause = stopped.elapsed();
        changed.pause = changed.pause.max(pause);
        let error = || std::io::Error::other("a fault of memlens itself");
        let tried =
            tried.map_err(|_| InjectError::System { pid, what: "change its code", error: error() })?;
        match tried? {
            Tried::Made(made) => return Ok(Changed { made, ..changed }),
            Tried::InTheWay(last) if begun.elapsed() >= TRIES_TAKE => {
                return Err(InjectError::CodeInUse { pid, tries: changed.tries, last });
            }
            Tried::InTheWay(_) => thread::sleep((pause * PAUSE_FACTOR).clamp(PAUSE, LONGEST_PAUSE)),
        }
    }
}

/// What became of a try.
enum Tried {
    Made(Vec<Made>),
    InTheWay(&'static str),
}

/// All threads of a process, stopped.
struct Try {
    pid: u32,
    target: Target,
    threads: BTreeMap<u32, Registers>,
    /// Why not all are.
    restless: Option<&'static str>,
}

impl Drop for Try {
    fn drop(&mut self) {
        for &thread in self.threads.keys() {
            // It may have been killed: then nothing is to be done.
            let _ = tracer::resume(thread, Resume::Free, 0);
        }
    }
}

impl Try {
    /// Stops the threads.
    fn new(pid: u32) -> Result<Self, InjectError> {
        const WAITS: &str = "a thread waits in the kernel and does not stop";
        const STARVES: &str = "a thread gets no processor to stop on";
        let mut all = Self { pid, target: Target::open(pid)?, threads: BTreeMap::new(), restless: None };
        let mut seen = BTreeSet::new();
        // Before anything is stopped.
        if all.target.threads().into_iter().any(|thread| all.is_uninterruptible(thread)) {
            all.restless = Some(WAITS);
            return Ok(all);
        }
        loop {
            let new: Vec<u32> =
                all.target.threads().into_iter().filter(|&thread| seen.insert(thread)).collect();
            // Threads that are stopped make no others.
            if new.is_empty() {
                return Ok(all);
            }
            for thread in new {
                if let Err(error) = tracer::seize(thread) {
                    // The first thread may end before the others, and stays in the list.
                    if all.target.is_alive(thread) {
                        return Err(InjectError::Forbidden { pid, error });
                    }
                    continue;
                }
                match all.stop(thread) {
                    Ok(Some(registers)) => {
                        all.threads.insert(thread, registers);
                    }
                    Ok(None) if all.target.is_alive(thread) => {
                        all.restless = Some(if all.is_uninterruptible(thread) { WAITS } else { STARVES });
                    }
                    Ok(None) => {}
                    Err(Stop::Executed) => return Err(InjectError::Gone(pid)),
                    Err(_) => return Err(InjectError::Stopped(pid)),
                }
            }
            if all.restless.is_some() {
                return Ok(all);
            }
        }
    }

    /// Whether a thread waits in the kernel and does not stop before what it waits for has come.
    fn is_uninterruptible(&self, thread: u32) -> bool {
        self.target.state(thread) == Some('D')
    }

    /// Stops a thread that is traced, as soon as it has a processor. None: it does not stop, or has ended.
    fn stop(&self, thread: u32) -> Result<Option<Registers>, Stop> {
        let mut stopped = tracer::stop(thread, STOP_TAKES);
        for _ in 1..TURNS_TAKE {
            if !matches!(stopped, Ok(None)) || self.is_uninterruptible(thread) {
                break;
            }
            stopped = tracer::stop(thread, STOP_TAKES);
        }
        stopped
    }

    /// Makes the changes, unless a thread is in the way.
    fn make(self, changes: &[CodeChange]) -> Result<Tried, InjectError> {
        let pid = self.pid;
        if let Some(why) = self.restless {
            return Ok(Tried::InTheWay(why));
        }
        if self.threads.is_empty() {
            return Err(InjectError::Gone(pid));
        }
        if self.shares_memory() {
            return Ok(Tried::InTheWay("another process shares its memory (vfork or clone)"));
        }
        let mut made: Vec<Made> = changes
            .iter()
            .map(|change| {
                let found = || self.target.bytes(change.address, change.before.len());
                let is_same = change.is_possible() && found().as_ref() == Some(&change.before);
                if is_same { Made::Yes } else { Made::OtherCode }
            })
            .collect();
        let inner: BTreeSet<u64> = changes
            .iter()
            .zip(&made)
            .filter(|(_, made)| **made == Made::Yes)
            .flat_map(|(change, _)| change.inner.iter().copied())
            .collect();
        if self.threads.values().any(|registers| inner.contains(&registers.ip())) {
            return Ok(Tried::InTheWay("a thread is in that place"));
        }
        if !inner.is_empty() && self.target.handles_signals() {
            match self.is_kept_somewhere(&inner)? {
                Some(true) => return Ok(Tried::InTheWay("a thread will come back to that place")),
                Some(false) => {}
                None => {
                    for (made, change) in made.iter_mut().zip(changes) {
                        if *made == Made::Yes && !change.inner.is_empty() {
                            *made = Made::TooMuchMemory;
                        }
                    }
                }
            }
        }
        let wanted = || changes.iter().zip(&made).filter(|(_, made)| **made == Made::Yes);
        for (at, (change, _)) in wanted().enumerate() {
            if let Err(error) = self.target.write(change.address, &change.after) {
                for (change, _) in wanted().take(at) {
                    // What could be written can be written once more.
                    let _ = self.target.write(change.address, &change.before);
                }
                return Err(InjectError::System { pid, what: "write to its code", error });
            }
        }
        Ok(Tried::Made(made))
    }

    /// Whether some other process runs in the same memory: its parent, or a child, made by vfork(2) or clone(2).
    fn shares_memory(&self) -> bool {
        const KCMP_VM: usize = 1;
        let is_same = |other: u32| {
            // SAFETY: the call only compares.
            unsafe { libc::syscall(libc::SYS_kcmp, self.pid, other, KCMP_VM, 0, 0) == 0 }
        };
        self.target.parent().into_iter().chain(self.target.children()).any(is_same)
    }

    /// Whether a signal's frame with one of some addresses stands anywhere in memory that the process may write to; None: it is too much.
    fn is_kept_somewhere(&self, addresses: &BTreeSet<u64>) -> Result<Option<bool>, InjectError> {
        let (Some(&least), Some(&most)) = (addresses.first(), addresses.last()) else {
            return Ok(Some(false));
        };
        let is_one = |word: u64| (least..=most).contains(&word) && addresses.contains(&word);
        let is_frame = |[word, flags, segments]: &[[u8; 8]; 3]| {
            is_one(u64::from_ne_bytes(*word))
                && arch::is_behind_ip(u64::from_ne_bytes(*flags), u64::from_ne_bytes(*segments))
        };
        let pagemap = fs::File::open(format!("/proc/{}/pagemap", self.target.thread()))
            .map_err(|error| InjectError::System { pid: self.pid, what: "read its page map", error })?;
        // Below its stack pointer, on a stack of its own, a thread has only what is over.
        let over = |mapping: &Mapping| {
            let is_own = |registers: &&Registers| {
                let holds = |address| (mapping.start..mapping.end).contains(&address);
                holds(registers.sp()) && (mapping.name == "[stack]" || holds(registers.thread_pointer()))
            };
            let own = self.threads.values().find(is_own);
            own.map_or(0, |registers| registers.sp().saturating_sub(RED_ZONE_BYTES))
        };
        let mut searched = 0;
        let mut buffer = vec![0; SEARCH_STEP + 16];
        let mut pages = vec![0; SEARCH_STEP / PAGE_BYTES as usize * 8];
        for mapping in self.target.mappings()?.iter().filter(|mapping| mapping.is_writable) {
            let first = over(mapping).max(mapping.start) & !(PAGE_BYTES - 1);
            let live = over(mapping) & !7;
            for start in (first..mapping.end).step_by(SEARCH_STEP) {
                let end = mapping.end.min(start + SEARCH_STEP as u64);
                let entries = &mut pages[..((end - start) / PAGE_BYTES) as usize * 8];
                let known = pagemap.read_at(entries, start / PAGE_BYTES * 8).unwrap_or(0);
                // Present, or in the swap (Documentation/admin-guide/mm/pagemap.rst). What is neither was never written.
                let is_there = |entry: &[u8; 8]| u64::from_ne_bytes(*entry) >> 62 != 0;
                let there: Vec<bool> = entries[..known].as_chunks::<8>().0.iter().map(is_there).collect();
                let mut page = start;
                for run in there.chunk_by(|first, second| first == second) {
                    let (from, to) = (page, page + run.len() as u64 * PAGE_BYTES);
                    page = to;
                    if !run[0] {
                        continue;
                    }
                    searched += to - from;
                    if searched > MOST_SEARCHED {
                        return Ok(None);
                    }
                    // With the two words that stand behind the last.
                    let wanted = (mapping.end.min(to + 16) - from) as usize;
                    let got = self.target.read(from, &mut buffer[..wanted]) & !7;
                    let skipped = (live.saturating_sub(from) as usize).min(got);
                    let words = buffer[skipped..got].as_chunks::<8>().0;
                    if words.array_windows().any(is_frame) {
                        return Ok(Some(true));
                    }
                }
            }
        }
        Ok(Some(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_inside_of_a_page_and_as_long_as_what_it_replaces() {
        let change = |address, before: usize, after: usize| CodeChange {
            address,
            before: vec![0x90; before],
            after: vec![0xcc; after],
            inner: Vec::new(),
        };
        assert!(change(0x1ffb, 5, 5).is_possible());
        assert!(!change(0x1ffc, 5, 5).is_possible() && !change(0x1000, 5, 4).is_possible());
        assert!(!change(0x1000, 0, 0).is_possible());
    }
}

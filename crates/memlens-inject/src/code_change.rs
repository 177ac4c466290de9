//! Instructions of a running process replaced by others, while all of its threads are stopped.
//!
//! A thread that had stopped between two of the replaced instructions, or that will come back there (an address on its
//! stack: a signal interrupted it, or it waits in a call), would go on in the middle of what stands there now. If there is
//! one, all go on, and it is tried again.
//!
//! Promises are those of the crate: if this process dies, the threads go on by themselves; a change is one write inside
//! of a page, so it is there or not.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use crate::arch::Registers;
use crate::error::InjectError;
use crate::target::{Target, check};
use crate::tracer::{self, Resume, Stop};

/// How long it is tried.
const TRIES_TAKE: Duration = Duration::from_secs(3);
/// Between two tries, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(5));
/// Of a stack so much is looked at; where there is more the process is left alone.
const STACK_BYTES: u64 = 64 << 20;
const STACK_STEP: usize = 1 << 20;
const PAGE_BYTES: u64 = 4096;

/// Bytes of code that others are to take the place of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeChange {
    /// Where the first of them is. All lie in one page.
    pub address: u64,
    /// What has to stand there.
    pub before: Vec<u8>,
    /// What will; as many.
    pub after: Vec<u8>,
}

impl CodeChange {
    /// Whether it is inside of a page, and changes as much as it compares.
    pub fn is_possible(&self) -> bool {
        let length = self.before.len() as u64;
        length == self.after.len() as u64 && length > 0 && self.address % PAGE_BYTES + length <= PAGE_BYTES
    }

    /// Where no thread may be: behind the first byte.
    fn inside(&self) -> Range<u64> {
        self.address + 1..self.address + self.after.len() as u64
    }
}

/// What changing code did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Of each change whether it was made: not where other bytes stood.
    pub made: Vec<bool>,
    /// How long threads were stopped at most.
    pub pause: Duration,
    /// How often they were.
    pub tries: u32,
}

/// Replaces instructions of a process, all changes at once or, where other bytes stand than expected, not those.
///
/// # Errors
/// If its threads cannot be stopped, or one does not leave the place: nothing was changed then.
pub fn change_code(pid: u32, changes: &[CodeChange]) -> Result<Changed, InjectError> {
    check(pid)?;
    let begun = Instant::now();
    let mut pause = PAUSE.0;
    let mut changed = Changed::default();
    loop {
        changed.tries += 1;
        let stopped = Instant::now();
        // What a thread traces goes on when the thread ends.
        let tried = thread::scope(|scope| scope.spawn(|| Try::new(pid)?.make(changes)).join());
        changed.pause = changed.pause.max(stopped.elapsed());
        let error = || std::io::Error::other("a fault of memlens itself");
        let tried =
            tried.map_err(|_| InjectError::System { pid, what: "change its code", error: error() })?;
        match tried? {
            Tried::Made(made) => return Ok(Changed { made, ..changed }),
            Tried::InTheWay(last) if begun.elapsed() >= TRIES_TAKE => {
                return Err(InjectError::CodeInUse { pid, tries: changed.tries, last });
            }
            Tried::InTheWay(_) => {
                thread::sleep(pause);
                pause = (pause * 2).min(PAUSE.1);
            }
        }
    }
}

/// What became of a try.
enum Tried {
    Made(Vec<bool>),
    InTheWay(&'static str),
}

/// All threads of a process, stopped.
struct Try {
    pid: u32,
    target: Target,
    threads: BTreeMap<u32, Registers>,
    /// A thread that did not stop.
    restless: bool,
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
        let mut all = Self { pid, target: Target::open(pid)?, threads: BTreeMap::new(), restless: false };
        let mut seen = BTreeSet::new();
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
                match tracer::stop(thread) {
                    Ok(Some(registers)) => {
                        all.threads.insert(thread, registers);
                    }
                    Ok(None) => all.restless |= all.target.is_alive(thread),
                    Err(Stop::Executed) => return Err(InjectError::Gone(pid)),
                    Err(_) => return Err(InjectError::Stopped(pid)),
                }
            }
            if all.restless {
                return Ok(all);
            }
        }
    }

    /// Makes the changes, unless a thread is in the way.
    fn make(self, changes: &[CodeChange]) -> Result<Tried, InjectError> {
        let pid = self.pid;
        if self.restless {
            return Ok(Tried::InTheWay("a thread waits in the kernel and does not stop"));
        }
        if self.threads.is_empty() {
            return Err(InjectError::Gone(pid));
        }
        let matches: Vec<bool> = changes
            .iter()
            .map(|change| {
                change.is_possible()
                    && self.target.bytes(change.address, change.before.len()).as_ref() == Some(&change.before)
            })
            .collect();
        let wanted = || changes.iter().zip(&matches).filter(|(_, is_as_expected)| **is_as_expected);
        let inside: Vec<Range<u64>> = wanted().map(|(change, _)| change.inside()).collect();
        if let Some(why) = self.in_the_way(&inside)? {
            return Ok(Tried::InTheWay(why));
        }
        for (at, (change, _)) in wanted().enumerate() {
            if let Err(error) = self.target.write(change.address, &change.after) {
                for (change, _) in wanted().take(at) {
                    // What could be written can be written once more.
                    let _ = self.target.write(change.address, &change.before);
                }
                return Err(InjectError::System { pid, what: "write to its code", error });
            }
        }
        Ok(Tried::Made(matches))
    }

    /// Whether a thread is inside of some places, or will come back there.
    fn in_the_way(&self, inside: &[Range<u64>]) -> Result<Option<&'static str>, InjectError> {
        let Some(least) = inside.iter().map(|range| range.start).min() else { return Ok(None) };
        let most = inside.iter().map(|range| range.end).max().unwrap_or(least);
        let is_inside = |address: u64| {
            (least..most).contains(&address) && inside.iter().any(|range| range.contains(&address))
        };
        if self.threads.values().any(|registers| is_inside(registers.ip())) {
            return Ok(Some("a thread is in that place"));
        }
        let mappings = self.target.mappings()?;
        let mut buffer = vec![0; STACK_STEP];
        for registers in self.threads.values() {
            let mut place = registers.sp() & !7;
            let mapping = mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&place));
            let end = mapping.map_or(place, |mapping| mapping.end);
            if end - place > STACK_BYTES {
                return Ok(Some("a thread's stack is too large to be looked through"));
            }
            while place < end {
                let wanted = buffer.len().min((end - place) as usize);
                let got = self.target.read(place, &mut buffer[..wanted]) & !7;
                let words = buffer[..got].as_chunks::<8>().0;
                if words.iter().any(|word| is_inside(u64::from_ne_bytes(*word))) {
                    return Ok(Some("a thread will come back to that place"));
                }
                if got == 0 {
                    break;
                }
                place += got as u64;
            }
        }
        Ok(None)
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
        };
        assert!(change(0x1ffb, 5, 5).is_possible());
        assert!(!change(0x1ffc, 5, 5).is_possible() && !change(0x1000, 5, 4).is_possible());
        assert!(!change(0x1000, 0, 0).is_possible());
        assert_eq!(change(0x1000, 5, 5).inside(), 0x1001..0x1005);
    }
}

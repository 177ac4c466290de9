//! The stack of a process's first thread while it waits.
//!
//! `main` has its data on its stack, starts threads that work on them, and waits until they have ended. A thread that waits is never
//! sampled. Where one stands that is in a system call, the kernel says itself (`/proc/PID/syscall`, proc(5)): its stack pointer and
//! its instruction. From there the stack is followed as from a sample, in the memory as it is.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::address_space::AddressSpace;
use crate::unwinder::{StackFrame, UnwindCache};

/// A look follows a whole stack; a thread that waits seldom goes on.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What runs now may wait soon, and to see that it runs costs less.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Stack pointer and frames of a thread.
pub type ThreadStack = (u64, Vec<StackFrame>);

/// By process: where its first thread waits.
#[derive(Debug, Default)]
pub struct WaitingStacks {
    found: FxHashMap<u32, ThreadStack>,
    next_looks: FxHashMap<u32, Instant>,
}

impl WaitingStacks {
    /// Looks again, if it is time to. A thread that runs keeps what was found before.
    pub fn look(&mut self, pid: u32, space: &AddressSpace, cache: &mut UnwindCache) {
        let now = Instant::now();
        if self.next_looks.get(&pid).is_some_and(|&next| now < next) {
            return;
        }
        let found = stack_of_waiting(pid, space, cache);
        let until_next = if found.is_some() { LOOK_EVERY } else { LOOK_AGAIN };
        self.next_looks.insert(pid, now + until_next);
        if let Some(stack) = found {
            self.found.insert(pid, stack);
        }
    }

    /// What was found of a process, if its first thread has not been seen where it runs since.
    pub fn get(&self, pid: u32) -> Option<&ThreadStack> {
        self.found.get(&pid)
    }

    /// The first thread of a process was seen where it runs.
    pub fn runs(&mut self, pid: u32) {
        self.found.remove(&pid);
    }

    /// A process has ended.
    pub fn forget(&mut self, pid: u32) {
        self.found.remove(&pid);
        self.next_looks.remove(&pid);
    }
}

/// None: it does not wait, nobody may ask, or it is gone.
fn stack_of_waiting(pid: u32, space: &AddressSpace, cache: &mut UnwindCache) -> Option<ThreadStack> {
    let (pointer, ip) = place_of_waiting(&fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?)?;
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let word = |address| {
        let mut bytes = [0; 8];
        memory.read_exact_at(&mut bytes, address).map_err(|_| ())?;
        Ok(u64::from_le_bytes(bytes))
    };
    let mut frames = Vec::new();
    space.unwinder().unwind_memory(ip, pointer, word, cache, &mut frames);
    Some((pointer, frames))
}

/// Stack pointer and instruction of a thread that waits: the last two words, of nine of a system call, of three of anything else.
fn place_of_waiting(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_whitespace().rev().map_while(|word| word.strip_prefix("0x"));
    let mut number = || u64::from_str_radix(words.next()?, 16).ok();
    let (ip, pointer) = (number()?, number()?);
    (ip != 0 && pointer != 0).then_some((pointer, ip))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::address_space::running_mappings;
    use crate::modules::Files;

    #[test]
    fn the_kernel_says_where_a_thread_waits() {
        let read = "0 0x3 0x7f0a 0x400 0x22 0xffffffff 0x0 0x7ffe7a90 0x7f51b2\n";
        assert_eq!(place_of_waiting(read), Some((0x7ffe_7a90, 0x7f_51b2)));
        assert_eq!(place_of_waiting("-1 0x7ffe7a90 0x7f51b2"), Some((0x7ffe_7a90, 0x7f_51b2)));
        assert_eq!(place_of_waiting("-1 0x0 0x0"), None, "a thread of the kernel");
        assert_eq!((place_of_waiting("running\n"), place_of_waiting("")), (None, None));
    }

    #[test]
    fn a_process_that_waits_has_frames_as_far_as_its_first() {
        // It has begun when it says something.
        let mut child = Command::new("sh")
            .args(["-c", "echo; read word"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut said = [0];
        child.stdout.take().expect("piped").read_exact(&mut said).expect("a line");
        let (mut space, mut files) = (AddressSpace::default(), Files::default());
        for mapping in running_mappings(child.id()).expect("it runs") {
            space.map(&mapping, &mut files);
        }
        let (mut waiting, mut cache) = (WaitingStacks::default(), UnwindCache::default());
        // It may not wait yet.
        for _ in 0..600 {
            waiting.next_looks.clear();
            waiting.look(child.id(), &space, &mut cache);
            if waiting.get(child.id()).is_some_and(|(_, frames)| frames.len() > 3) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let found = waiting.get(child.id()).cloned();
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        let Some((pointer, frames)) = found else {
            assert!(fs::metadata("/proc/self/syscall").is_err(), "the kernel has it");
            return eprintln!("passed over: the kernel does not say where threads wait");
        };
        let cfas: Vec<u64> = frames.iter().filter_map(|frame| frame.cfa).collect();
        assert!(frames.len() > 3 && cfas[0] > pointer && cfas.is_sorted(), "{pointer:#x} {frames:x?}");
        // At once nothing is asked again.
        waiting.look(child.id(), &space, &mut cache);
        assert!(waiting.get(child.id()).is_some());
        waiting.runs(child.id());
        waiting.look(child.id(), &space, &mut cache);
        assert_eq!(waiting.get(child.id()), None);
        waiting.forget(child.id());
        assert!(waiting.next_looks.is_empty());
    }
}

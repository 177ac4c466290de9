//! What `/proc` says of a process: whether it may be borrowed from, its mappings, its threads.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{io, mem, thread};

use crate::arch;
use crate::error::InjectError;

/// A process as `/proc` has it.
#[derive(Debug)]
pub struct Target {
    /// Its id.
    pub pid: u32,
    memory: File,
}

/// A part of a process's memory (proc_pid_maps(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// Place of the first byte in the file.
    pub file_offset: u64,
    /// Whether code can run there.
    pub is_executable: bool,
    /// Whether the process can write there.
    pub is_writable: bool,
    /// File, or `[…]`.
    pub name: String,
}

/// Looks whether a process can be attached to, as far as that can be known without doing it.
///
/// # Errors
/// Why not.
pub fn check(pid: u32) -> Result<(), InjectError> {
    let status = status_without_own_tracer(pid).map_err(|_| InjectError::Gone(pid))?;
    let field = |name: &str| field_of(&status, name);
    match field("State").and_then(|state| state.chars().next()) {
        // Its first thread may have ended before the others.
        Some('Z' | 'X') if first_alive(pid).is_none() => return Err(InjectError::Zombie(pid)),
        Some('T') => return Err(InjectError::Stopped(pid)),
        _ => {}
    }
    if let Some(tracer) = tracer_in(&status) {
        return Err(traced(pid, tracer));
    }
    let has_memory = || field("VmSize").is_some() || first_alive(pid).is_some_and(|thread| thread != pid);
    if field("Kthread") == Some("1") || !has_memory() {
        return Err(InjectError::Kernel(pid));
    }
    if field("Seccomp").is_some_and(|mode| mode != "0") {
        return Err(InjectError::Seccomp(pid));
    }
    if field("NSpid").is_some_and(|ids| ids.split_whitespace().count() > 1) {
        return Err(InjectError::Namespace(pid));
    }
    let forbidden = |error| match io::Error::raw_os_error(&error) {
        Some(libc::ENOENT | libc::ESRCH) => InjectError::Gone(pid),
        _ => InjectError::Forbidden { pid, error },
    };
    let executable = File::open(proc_folder(pid).join("exe")).map_err(forbidden)?;
    // ELF's fifth byte (System V gABI, "ELF Identification").
    const CLASS_64: u8 = 2;
    let mut head = [0; 5];
    if executable.read_exact_at(&mut head, 0).is_ok() && head[..4] == *b"\x7fELF" && head[4] != CLASS_64 {
        return Err(InjectError::Bits(pid));
    }
    if is_privileged(pid) {
        return Err(InjectError::Privileged(pid));
    }
    if !arch::can_save_vectors() {
        return Err(InjectError::Processor(pid));
    }
    Ok(())
}

/// A field of `/proc/PID/status` (proc_pid_status(5)).
fn field_of<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    Some(status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim())
}

/// Who traces a process of this status, if somebody does.
fn tracer_in(status: &str) -> Option<u32> {
    field_of(status, "TracerPid")?.parse().ok().filter(|&tracer| tracer != 0)
}

/// That somebody else traces a process, if that is so.
pub fn tracer_of(pid: u32) -> Option<InjectError> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    tracer_in(&status).map(|tracer| traced(pid, tracer))
}

/// `/proc/PID/status`, when no thread of our own traces the process any more, or that has not ended after a while.
///
/// A thread that has traced lets go when the kernel has done with it (ptrace(2), "Death under ptrace"), which is a moment after
/// it could be joined: who attaches twice in a row would meet it.
fn status_without_own_tracer(pid: u32) -> io::Result<String> {
    const PATIENCE: Duration = Duration::from_secs(1);
    let until = Instant::now() + PATIENCE;
    loop {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let is_own_or_gone = tracer_in(&status).is_some_and(|tracer| {
            let tracer = tracer.to_string();
            // One that has ended since the status was read may have been ours.
            Path::new("/proc/self/task").join(&tracer).exists() || !Path::new("/proc").join(&tracer).exists()
        });
        if !is_own_or_gone || Instant::now() >= until {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes of a page: of every process of this machine.
pub fn page_bytes() -> u64 {
    // SAFETY: only asks.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// The first thread of a process that has not ended: its own first thread, if that has not. Threads made later may have
/// lower ids, where the kernel began to count anew, and end at any moment.
fn first_alive(pid: u32) -> Option<u32> {
    let is_alive = |&thread: &u32| state_of(pid, thread).is_some_and(is_alive_in);
    Some(pid).filter(is_alive).or_else(|| threads_of(pid).into_iter().find(is_alive))
}

/// Where `/proc` tells of a process's memory and files: of its first thread, or of another where that has ended.
pub fn proc_folder(pid: u32) -> PathBuf {
    match first_alive(pid) {
        Some(thread) if thread != pid => PathBuf::from(format!("/proc/{pid}/task/{thread}")),
        _ => PathBuf::from(format!("/proc/{pid}")),
    }
}

fn is_alive_in(state: char) -> bool {
    !matches!(state, 'Z' | 'X' | 'x')
}

/// The state of a thread (proc_pid_stat(5)).
fn state_of(pid: u32, thread: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).ok()?;
    // Behind the name, which may hold anything.
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

fn threads_of(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut threads: Vec<u32> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
    threads.sort_unstable();
    threads
}

fn traced(pid: u32, tracer_pid: u32) -> InjectError {
    let name = fs::read_to_string(format!("/proc/{tracer_pid}/comm")).unwrap_or_default();
    let name = if name.trim().is_empty() { "somebody" } else { name.trim() };
    InjectError::Traced { pid, tracer: name.to_owned(), tracer_pid }
}

/// Whether the dynamic linker was told to be careful (getauxval(3), `AT_SECURE`).
fn is_privileged(pid: u32) -> bool {
    let bytes = fs::read(format!("/proc/{pid}/auxv")).unwrap_or_default();
    let words = bytes.as_chunks::<8>().0;
    words
        .as_chunks::<2>()
        .0
        .iter()
        .any(|[tag, value]| u64::from_ne_bytes(*tag) == libc::AT_SECURE && u64::from_ne_bytes(*value) != 0)
}

impl Target {
    /// Opens a process's memory.
    pub fn open(pid: u32) -> Result<Self, InjectError> {
        let path = proc_folder(pid).join("mem");
        let memory = File::options().read(true).write(true).open(path).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::ENOENT | libc::ESRCH) => InjectError::Gone(pid),
                _ => InjectError::Forbidden { pid, error },
            }
        })?;
        Ok(Self { pid, memory })
    }

    /// Copies memory; fewer bytes where the rest is not mapped.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        self.memory.read_at(bytes, address).unwrap_or(0)
    }

    /// A word.
    pub fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.read(address, &mut bytes) == 8).then(|| u64::from_ne_bytes(bytes))
    }

    /// A part of memory, whole; None, too, where it is larger than any table of an image: its length comes from the target.
    pub fn bytes(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        const MOST_BYTES: usize = 256 << 20;
        let mut bytes = vec![0; Some(length).filter(|&length| length <= MOST_BYTES)?];
        (self.read(address, &mut bytes) == length).then_some(bytes)
    }

    /// A text up to its zero byte, 4 KiB at most.
    pub fn text(&self, address: u64) -> Option<String> {
        let mut bytes = vec![0; 4096];
        let length = self.read(address, &mut bytes);
        let text = bytes.get(..length)?.split(|&byte| byte == 0).next()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// Writes memory, also where the process itself may not.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, address)
    }

    /// What is mapped.
    pub fn mappings(&self) -> Result<Vec<Mapping>, InjectError> {
        // Names are bytes, of which not all are UTF-8.
        let text = fs::read(proc_folder(self.pid).join("maps")).map_err(|_| InjectError::Gone(self.pid))?;
        Ok(String::from_utf8_lossy(&text).split('\n').filter_map(mapping_of).collect())
    }

    /// Its threads.
    pub fn threads(&self) -> Vec<u32> {
        threads_of(self.pid)
    }

    /// A thread that tells of its memory: the first that has not ended.
    pub fn thread(&self) -> u32 {
        first_alive(self.pid).unwrap_or(self.pid)
    }

    /// The state of a thread, as proc_pid_stat(5) has it.
    pub fn state(&self, thread: u32) -> Option<char> {
        state_of(self.pid, thread)
    }

    /// Who made it.
    pub fn parent(&self) -> Option<u32> {
        self.status("PPid")?.parse().ok().filter(|&parent| parent != 0)
    }

    /// Processes that it made.
    pub fn children(&self) -> Vec<u32> {
        let of = |thread: u32| {
            fs::read_to_string(format!("/proc/{}/task/{thread}/children", self.pid)).unwrap_or_default()
        };
        let lists: Vec<String> = self.threads().into_iter().map(of).collect();
        lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|word| word.parse().ok()).collect()
    }

    /// Whether it handles signals that others send, or timers: all but those that only instructions raise, and glibc's own.
    pub fn handles_signals(&self) -> bool {
        const RAISED: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
        /// `SIGCANCEL` and `SIGSETXID`.
        const OF_GLIBC: [i32; 2] = [32, 33];
        let known = RAISED.iter().chain(&OF_GLIBC).fold(0, |set, signal| set | 1_u64 << (signal - 1));
        let caught = self.status("SigCgt").and_then(|word| u64::from_str_radix(&word, 16).ok());
        caught.is_none_or(|caught| caught & !known != 0)
    }

    /// A field of its status.
    fn status(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(proc_folder(self.pid).join("status")).ok()?;
        field_of(&text, name).map(str::to_owned)
    }

    /// Whether a thread has not ended.
    pub fn is_alive(&self, thread: u32) -> bool {
        self.state(thread).is_some_and(is_alive_in)
    }

    /// The system call that a thread waits in, and its stack pointer; None: it runs (proc_pid_syscall(5)).
    pub fn waits_in(&self, thread: u32) -> Option<(i64, u64)> {
        let text = fs::read_to_string(format!("/proc/{}/task/{thread}/syscall", self.pid)).ok()?;
        let words: Vec<&str> = text.split_whitespace().collect();
        let [number, .., sp, _ip] = words.as_slice() else { return None };
        let sp = u64::from_str_radix(sp.strip_prefix("0x")?, 16).ok()?;
        Some((number.parse().ok()?, sp))
    }
}

/// `7f00-7f10 r-xp 00001000 fe:01 1234   /usr/lib/x.so`
fn mapping_of(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let (word, tail) = rest.trim_start().split_once(' ').unwrap_or((rest, ""));
        rest = tail;
        word
    };
    let (range, access, offset) = (word(), word(), word());
    let (_device, _inode) = (word(), word());
    let (start, end) = range.split_once('-')?;
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        file_offset: u64::from_str_radix(offset, 16).ok()?,
        is_executable: access.contains('x'),
        is_writable: access.contains('w'),
        // Blanks at its end are the file's.
        name: rest.trim_start_matches(' ').to_owned(),
    })
}

const _: () = assert!(mem::size_of::<usize>() == 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_with_and_without_names() {
        let line = "7f0000000000-7f0000001000 r-xp 00002000 fe:01 1234                       /usr/lib/a b.so";
        let mapping = mapping_of(line).expect("a mapping");
        assert_eq!((mapping.start, mapping.end), (0x7f00_0000_0000, 0x7f00_0000_1000));
        assert_eq!((mapping.file_offset, mapping.is_executable), (0x2000, true));
        assert_eq!(mapping.name, "/usr/lib/a b.so");
        assert_eq!(mapping_of("1-2 r--p 0 fe:01 7   /a \r").expect("a mapping").name, "/a \r");
        let own = Target::open(std::process::id()).expect("our own");
        let mappings = own.mappings().expect("readable");
        assert!(mappings.iter().any(|mapping| mapping.name == "[stack]"));
        assert!(mappings.iter().any(|mapping| mapping.name.is_empty()));
        let word = 0x1234_5678_9abc_def0u64;
        assert_eq!(own.word(std::ptr::from_ref(&word) as u64), Some(word));
    }

    #[test]
    fn refusals_name_what_is_in_the_way() {
        assert!(matches!(check(u32::MAX >> 2), Err(InjectError::Gone(_))));
        // The kernel's first thread of its own.
        if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
            assert!(matches!(check(2), Err(InjectError::Kernel(2))));
        }
    }

    /// Where the kernel has begun to count anew, threads have lower ids than their process. Making it do so takes rights
    /// (`/proc/sys/kernel/ns_last_pid`); without them nothing is shown here.
    #[test]
    fn a_thread_with_a_lower_id_does_not_speak_for_its_process() {
        let own = std::process::id();
        let _ = fs::write("/proc/sys/kernel/ns_last_pid", "300");
        thread::scope(|scope| {
            let (ends, until) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || until.recv());
            assert!(threads_of(own).len() > 1);
            assert_eq!(
                (first_alive(own), proc_folder(own)),
                (Some(own), PathBuf::from(format!("/proc/{own}")))
            );
            drop(ends);
        });
    }
}

//! One run of a program, with what it took and what it wrote.
//!
//! Its output goes nowhere but into a sum, by which runs are compared. Its input is this process's, from the start,
//! where that is a file; else there is none: a program that is run several times cannot share a terminal or a pipe.

use std::ffi::OsString;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::walk_counter::WalkCounter;

/// Time that a process left behind may keep the output open.
const LINGER: Duration = Duration::from_secs(2);
/// Time between two looks at a program: from … to.
const LOOKS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

/// What is run.
#[derive(Clone, Debug)]
pub struct Command {
    /// The file.
    pub file: PathBuf,
    /// Its own name, then its arguments.
    pub arguments: Vec<OsString>,
}

/// What a run changes.
#[derive(Clone, Debug, Default)]
pub struct Variant {
    /// Variables that are set.
    pub environment: Vec<(OsString, OsString)>,
    /// A descriptor that the program inherits.
    pub inherited: Option<Arc<File>>,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// What was written to a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// How much.
    pub bytes: u64,
    /// A hash of it.
    pub hash: u64,
}

/// What a run took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// From its start to its end.
    pub wall: Duration,
    /// Processor time of it and the children that it waited for, user and system.
    pub cpu: Duration,
    /// The most memory that was resident, in bytes.
    pub max_resident_bytes: u64,
    /// Page walks of its data accesses in user mode, as the processor counts them; None: it has no such counters, or they
    /// may not be used.
    pub page_walks: Option<u64>,
    /// How it ended.
    pub end: End,
    /// What it wrote to stdout and stderr; None of a stream that a process left behind still has.
    pub output: [Option<Output>; 2],
}

impl Trial {
    /// Whether two runs did the same as far as can be seen.
    pub fn did_the_same_as(&self, other: &Self) -> bool {
        (self.end, self.output) == (other.end, other.output)
    }
}

/// Runs a program. `look` is called with its process id again and again while it runs; without, nothing disturbs it.
///
/// # Errors
/// When it cannot be started or waited for.
pub fn run(command: &Command, variant: &Variant, look: Option<&mut dyn FnMut(u32)>) -> io::Result<Trial> {
    let mut starter = std::process::Command::new(&command.file);
    if let Some((name, rest)) = command.arguments.split_first() {
        starter.arg0(name).args(rest);
    }
    // Written anew even if nothing changes: otherwise only changed environments would be sorted.
    starter.env_clear().envs(std::env::vars_os());
    starter.envs(variant.environment.iter().map(|(name, value)| (name, value)));
    starter.stdin(input()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(descriptor) = variant.inherited.as_ref().map(|descriptor| descriptor.as_raw_fd()) {
        // SAFETY: between fork and execve, one async-signal-safe call.
        unsafe {
            starter.pre_exec(move || match libc::fcntl(descriptor, libc::F_SETFD, 0) {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
    }
    let counter = WalkCounter::open();
    let started = Instant::now();
    let mut child = starter.spawn()?;
    let streams = [child.stdout.take().map(summed), child.stderr.take().map(summed)];
    let peak = PeakWatch::begin(child.id());
    let (status, usage) = wait(child.id(), look)?;
    let wall = started.elapsed();
    let end = match (status.code(), status.signal()) {
        (_, Some(signal)) => End::Signal(signal),
        (code, None) => End::Code(code.unwrap_or(-1)),
    };
    let time = |value: libc::timeval| {
        Duration::new(value.tv_sec.unsigned_abs(), value.tv_usec.unsigned_abs() as u32 * 1000)
    };
    Ok(Trial {
        wall,
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        max_resident_bytes: peak.most(usage.ru_maxrss.unsigned_abs() * 1024),
        page_walks: counter.and_then(WalkCounter::read),
        end,
        output: streams.map(|stream| stream?.recv_timeout(LINGER).ok()),
    })
}

/// This process's input from its start, if it is a file.
fn input() -> Stdio {
    let file = File::open("/proc/self/fd/0").ok();
    let file = file.filter(|file| file.metadata().is_ok_and(|metadata| metadata.is_file()));
    file.map_or_else(Stdio::null, Stdio::from)
}

/// Reads a stream to its end on a thread of its own.
fn summed(mut stream: impl Read + Send + 'static) -> Receiver<Output> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let (mut output, mut hasher) = (Output::default(), DefaultHasher::new());
        let mut buffer = vec![0; 1 << 16];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(got) => {
                    output.bytes += got as u64;
                    hasher.write(&buffer[..got]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        output.hash = hasher.finish();
        // Nobody waits for it after a while.
        let _ = sender.send(output);
    });
    receiver
}

/// Looks how much memory of a program was resident at most, while it runs.
///
/// `ru_maxrss` does not say it of a small program: `execve` puts what the process had before into it, which was a copy of this
/// one, or this one itself. Where it is no more than this process ever had, the kernel's mark of the program alone counts,
/// as it was seen last: up to 20 ms before the end.
struct PeakWatch {
    /// The most that this process had when the program began.
    own_bytes: u64,
    /// Ends the looks when it is dropped.
    end: Option<Sender<()>>,
    looks: Option<thread::JoinHandle<u64>>,
}

impl PeakWatch {
    /// Call when the process executes the program already.
    fn begin(pid: u32) -> Self {
        let status = |of: &str| File::open(format!("/proc/{of}/status")).ok();
        let own_bytes = status("self").as_mut().and_then(peak).unwrap_or(0);
        let (end, ended) = mpsc::channel();
        // The open file stays that process's, even when its number is another's.
        let looks = status(&pid.to_string()).map(|status| thread::spawn(move || follow(status, &ended)));
        Self { own_bytes, end: Some(end), looks }
    }

    /// The most that was resident, given `ru_maxrss`.
    fn most(mut self, max_resident_bytes: u64) -> u64 {
        drop(self.end.take());
        let seen = self.looks.take().and_then(|looks| looks.join().ok()).unwrap_or(0);
        if max_resident_bytes > self.own_bytes || seen == 0 { max_resident_bytes } else { seen }
    }
}

/// The most that a process had resident, by a file that is looked at again and again until something ends it.
fn follow(mut status: File, ended: &Receiver<()>) -> u64 {
    let (mut most, mut pause) = (0, LOOKS[0]);
    while let Some(now) = peak(&mut status) {
        most = most.max(now);
        match ended.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => pause = (pause * 2).min(LOOKS[1]),
            _ => break,
        }
    }
    most
}

/// `VmHWM` of a process's status, in bytes; `None` when it has ended.
fn peak(status: &mut File) -> Option<u64> {
    let mut text = String::new();
    status.rewind().ok()?;
    status.read_to_string(&mut text).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Waits for a child's end.
fn wait(pid: u32, mut look: Option<&mut dyn FnMut(u32)>) -> io::Result<(ExitStatus, libc::rusage)> {
    let options = if look.is_some() { libc::WNOHANG } else { 0 };
    let mut pause = LOOKS[0];
    loop {
        let mut status = 0;
        // SAFETY: zero is a value of the structure; the call fills both.
        let (got, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (libc::wait4(pid.cast_signed(), &raw mut status, options, &raw mut usage), usage)
        };
        if got > 0 {
            return Ok((ExitStatus::from_raw(status), usage));
        }
        if got < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        } else if let Some(look) = &mut look {
            look(pid);
            thread::sleep(pause);
            pause = (pause * 2).min(LOOKS[1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let arguments = ["sh", "-c", script].map(OsString::from).to_vec();
        Command { file: "/bin/sh".into(), arguments }
    }

    #[test]
    fn a_small_program_does_not_have_our_memory() {
        // So much was resident here, however little is now.
        drop(std::hint::black_box(vec![1_u8; 64 << 20]));
        let run = run(&shell("sleep 0.1; exit 0"), &Variant::default(), None).expect("runs");
        assert!((100 << 10..32 << 20).contains(&run.max_resident_bytes), "{}", run.max_resident_bytes);
        // More than was ever resident here is the program's.
        let own = PeakWatch { own_bytes: 5, end: None, looks: None };
        assert_eq!(own.most(6), 6);
    }

    #[test]
    fn a_run_is_summed_up() {
        let command = shell("printf 'one%s' \"$WORD\"; printf err >&2; exit 3");
        let variant =
            |word: &str| Variant { environment: vec![("WORD".into(), word.into())], inherited: None };
        let first = run(&command, &variant("x"), None).expect("runs");
        assert_eq!(first.end, End::Code(3));
        assert_eq!(first.output.map(|output| output.expect("read").bytes), [4, 3]);
        assert!(first.max_resident_bytes > 0);
        assert!(first.did_the_same_as(&run(&command, &variant("x"), None).expect("runs")));
        assert!(!first.did_the_same_as(&run(&command, &variant("y"), None).expect("runs")));
        assert!(!first.did_the_same_as(&run(&shell("kill -9 $$"), &variant("x"), None).expect("runs")));
    }

    #[test]
    fn a_program_is_looked_at_while_it_runs() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let enough = folder.path().join("enough");
        let mut looks = 0;
        let mut look = |_| {
            looks += 1;
            if looks == 4 {
                File::create(&enough).expect("created");
            }
        };
        let script = format!("sleep 0.2; while ! [ -e '{}' ]; do sleep 0.01; done", enough.display());
        let trial = run(&shell(&script), &Variant::default(), Some(&mut look)).expect("runs");
        assert!(looks >= 4 && trial.wall >= Duration::from_millis(200), "{looks}");
        assert!(trial.cpu < trial.wall);
    }

    #[test]
    fn a_process_left_behind_does_not_keep_us() {
        let command = shell("sleep 30 & echo done; echo $! >&2");
        let begun = Instant::now();
        let trial = run(&command, &Variant::default(), None).expect("runs");
        assert_eq!(trial.output, [None, None]);
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}

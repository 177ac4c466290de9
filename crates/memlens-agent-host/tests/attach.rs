//! The agent comes into running programs and leaves them: what it reports, and what they notice.

#![cfg(target_arch = "x86_64")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use memlens_agent_host::{Agent, AgentError, AgentOptions, BurstOptions, Event, InjectError, Watch};

/// Whatever is waited for comes sooner, also on a machine that is busy.
const MOST: Duration = Duration::from_secs(120);

fn compile(folder: &Path, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/threads.c");
    let program = folder.join("threads");
    let status =
        Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(source).args(options).status();
    assert!(status.expect("a C compiler").success());
    program
}

struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(program: &Path) -> Self {
        Self::start_with(program, &[])
    }

    fn start_with(program: &Path, words: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Self { child, output }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// It ends as it does without memlens.
    fn end(mut self) {
        self.child.stdin.take().expect("piped").write_all(b"end\n").expect("it reads");
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("text");
        assert_eq!(rest, "rounds 1 faults 0 alarms 1\n");
        assert_eq!(self.child.wait().expect("ended").code(), Some(7));
    }

    /// What is mapped as code, the agent aside.
    fn code(&self) -> BTreeSet<String> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).expect("readable");
        maps.lines()
            .filter(|line| line.contains("r-xp") && !line.contains("memlens"))
            .map(ToOwned::to_owned)
            .collect()
    }

    /// The bytes of the program's file that are mapped: code, tables of functions' addresses, data.
    fn image(&self) -> Vec<(String, Vec<u8>)> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).expect("readable");
        let memory = std::fs::File::open(format!("/proc/{}/mem", self.pid())).expect("readable");
        let of_program = maps.lines().filter(|line| line.ends_with("/threads") && !line.contains("rw-p"));
        of_program
            .map(|line| {
                let (start, end) =
                    line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
                let number = |text| u64::from_str_radix(text, 16).expect("a number");
                let mut bytes = vec![0; (number(end) - number(start)) as usize];
                std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, number(start))
                    .expect("mapped");
                (line.to_owned(), bytes)
            })
            .collect()
    }

    fn timers(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/timers", self.pid())).unwrap_or_default()
    }

    /// Signals with handlers, blocked, ignored: of every thread.
    fn signals(&self) -> BTreeSet<String> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("readable");
        status
            .lines()
            .filter(|line| {
                line.starts_with("Sig") && !line.starts_with("SigQ") && !line.starts_with("SigPnd")
            })
            .map(ToOwned::to_owned)
            .collect()
    }

    fn segments(&self) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).expect("readable");
        maps.lines().filter(|line| line.ends_with("/memfd:memlens-agent (deleted)")).count()
    }
}

fn options(tick_ms: Option<u64>, bursts: bool) -> AgentOptions {
    AgentOptions {
        watch: Watch::Sampled,
        tick: tick_ms.map(Duration::from_millis),
        stack_bytes: 4096,
        bursts: bursts.then_some(BurstOptions { words: 2000, share: 0.5, often: 0, filter: false }),
    }
}

/// Attaches, waits until all that is wanted was reported, and detaches.
fn attach_once(running: &Running, options: &AgentOptions) {
    let mut agent = Agent::attach(running.pid(), options, Box::new(|_, _| None)).expect("attached");
    let (mut allocations, mut ends, mut ticks, mut bursts) = (0, 0, BTreeSet::new(), 0);
    let began = Instant::now();
    loop {
        agent.drain(|record| {
            assert_eq!(record.pid, running.pid());
            match record.event {
                Event::Allocated(..) => allocations += 1,
                Event::Freed(_) => ends += 1,
                Event::Tick { .. } => {
                    ticks.insert(record.tid);
                }
                Event::Burst { .. } => bursts += 1,
                _ => {}
            }
        });
        // Two threads that allocate and one that computes run all the time.
        let has_ticks = options.tick.is_none() || ticks.len() >= 3;
        let has_bursts = options.bursts.is_none() || bursts >= 10;
        if allocations >= 10 && ends >= 10 && has_ticks && has_bursts {
            break;
        }
        assert!(began.elapsed() < MOST, "{allocations} {ends} {ticks:?} {bursts}");
        std::thread::sleep(Duration::from_millis(1));
    }
    agent.detach().expect("detached");
    assert_eq!(agent.losses().threads_without_timer, 0);
}

#[test]
fn a_program_with_threads_is_watched_and_notices_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    // With tables that are read-only after the start, and with tables that are filled at first calls.
    for linking in ["-Wl,-z,now", "-Wl,-z,lazy"] {
        let running = Running::start(&compile(folder.path(), &[linking]));
        let (code, image, signals) = (running.code(), running.image(), running.signals());
        for round in 0..6 {
            let (tick, bursts) = [(None, false), (Some(2), false), (Some(2), true)][round % 3];
            attach_once(&running, &options(tick, bursts));
            assert_eq!(running.code(), code);
            assert_eq!(running.signals(), signals);
            assert_eq!(running.timers(), "");
            assert_eq!(running.segments(), 0);
            if linking == "-Wl,-z,now" {
                assert_eq!(running.image(), image, "code and tables are what they were");
            }
        }
        running.end();
    }
}

#[test]
fn a_call_that_linux_does_not_restart_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = Running::start_with(&compile(folder.path(), &[]), &["alone"]);
    for _ in 0..20 {
        let mut agent =
            Agent::attach(running.pid(), &options(Some(2), false), Box::new(|_, _| None)).expect("attached");
        agent.detach().expect("detached");
    }
    running.end();
}

#[test]
fn a_second_memlens_is_refused_and_takes_over_from_one_that_died() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = Running::start(&compile(folder.path(), &[]));
    let first =
        Agent::attach(running.pid(), &options(Some(2), false), Box::new(|_, _| None)).expect("attached");
    let second = Agent::attach(running.pid(), &options(None, false), Box::new(|_, _| None));
    let own = std::process::id();
    match second {
        Err(AgentError::Inject(InjectError::Busy { reader, .. })) => assert_eq!(reader, own),
        other => panic!("{other:?}"),
    }
    // As if killed: nobody detaches.
    std::mem::forget(first);
    running.end();
}

#[test]
fn a_static_program_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = Running::start(&compile(folder.path(), &["-static"]));
    let error =
        Agent::attach(running.pid(), &options(None, false), Box::new(|_, _| None)).expect_err("refused");
    assert!(error.to_string().contains("statically"), "{error}");
    running.end();
}

/// Set in processes that [`a_memlens_that_is_killed_at_any_moment_harms_nobody`] starts from this file.
const VICTIM: &str = "MEMLENS_TEST_ATTACH_TO";

/// Attaches and detaches without end, in a process of its own that somebody kills.
#[test]
fn attaches_for_ever_if_told_to() {
    let Some(pid) = std::env::var(VICTIM).ok().and_then(|word| word.parse().ok()) else { return };
    let mut round = 0;
    loop {
        round += 1;
        let (tick, bursts) = [(None, false), (Some(2), false), (Some(2), true)][round % 3];
        // What the one before has left may be in the way for a moment.
        if let Ok(mut agent) = Agent::attach(pid, &options(tick, bursts), Box::new(|_, _| None)) {
            agent.drain(|_| {});
            drop(agent);
        }
    }
}

/// How often somebody is killed; more by `MEMLENS_TEST_TRIALS`.
const TRIALS: u32 = 60;

#[test]
fn a_memlens_that_is_killed_at_any_moment_harms_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = Running::start(&compile(folder.path(), &["-DMAY_BE_INTERRUPTED"]));
    let trials =
        std::env::var("MEMLENS_TEST_TRIALS").ok().and_then(|word| word.parse().ok()).unwrap_or(TRIALS);
    let mut random = u64::from(running.pid());
    for trial in 0..trials {
        let mut other = Command::new(std::env::current_exe().expect("known"))
            .args(["--exact", "attaches_for_ever_if_told_to"])
            .env(VICTIM, running.pid().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        // Attaching and detaching take some tens of milliseconds.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros(2_000 + (random >> 33) % 120_000));
        other.kill().expect("killed");
        other.wait().expect("ended");
        assert!(Path::new(&format!("/proc/{}", running.pid())).exists(), "trial {trial}");
    }
    // The next one has to deal with what was left.
    let began = Instant::now();
    let mut agent = loop {
        match Agent::attach(running.pid(), &options(Some(2), true), Box::new(|_, _| None)) {
            Ok(agent) => break agent,
            Err(error) => assert!(began.elapsed() < MOST, "{error}"),
        }
    };
    agent.detach().expect("detached");
    assert_eq!((running.timers().as_str(), running.segments()), ("", 0));
    running.end();
}

/// Where code for a borrowed thread is written: behind libc's code.
fn room_behind_libc(pid: u32) -> u64 {
    use object::elf::{PF_X, ProgramFlags};
    use object::{Object, ObjectSegment, SegmentFlags};
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("readable");
    let line = maps.lines().find(|line| line.contains("r-xp") && line.contains("/libc.so.6")).expect("libc");
    let (start, path) = (line.split('-').next().expect("an address"), line.split(' ').next_back());
    let file = std::fs::read(path.expect("a path")).expect("readable");
    let libc = object::File::parse(&*file).expect("an ELF file");
    let is_code = |segment: &object::Segment<'_, '_>| matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags & PF_X != ProgramFlags(0));
    let size = libc.segments().find(is_code).expect("code").size();
    (u64::from_str_radix(start, 16).expect("a number") + size).next_multiple_of(16)
}

/// The memory of a process, and where code that somebody left for a thread is in it now.
fn with_code_left_for(pid: u32, thread: u64) -> (std::fs::File, u64) {
    let memory = std::fs::File::options().read(true).write(true).open(format!("/proc/{pid}/mem"));
    let (memory, room) = (memory.expect("ours"), room_behind_libc(pid));
    memory.write_all_at(&left_for(thread), room).expect("written");
    (memory, room)
}

/// What it begins with.
fn left_for(thread: u64) -> [u8; 16] {
    let mut left = *b"memlensI--------";
    left[8..].copy_from_slice(&thread.to_ne_bytes());
    left
}

/// The thread for which code was left never waits, and old return addresses into `malloc` lie on its stack.
#[test]
fn code_that_was_left_for_a_busy_thread_keeps_nobody_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = Running::start(&compile(folder.path(), &[]));
    let threads = std::fs::read_dir(format!("/proc/{}/task", running.pid())).expect("readable");
    let threads = threads.map(|thread| thread.expect("readable").file_name());
    let threads: BTreeSet<u64> =
        threads.map(|name| name.to_str().and_then(|name| name.parse().ok()).expect("a number")).collect();
    let allocates = *threads.iter().nth(1).expect("the first thread that the program makes");
    let (memory, room) = with_code_left_for(running.pid(), allocates);
    for _ in 0..3 {
        attach_once(&running, &options(Some(2), true));
    }
    let mut left = [1; 16];
    memory.read_exact_at(&mut left, room).expect("read");
    assert_eq!(left, [0; 16]);
    running.end();
}

/// On the stack of the thread for which code was left stands an address in it, as a handler's frame would leave it. Nobody knows whether
/// the thread will come back there: the code stays.
#[test]
fn an_address_on_the_stack_keeps_nobody_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = Running::start(&compile(folder.path(), &[]));
    let (memory, room) = with_code_left_for(running.pid(), running.pid().into());
    // Above the first thread's frames stand the texts of its environment, which nobody reads.
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", running.pid())).expect("readable");
    let stack = maps.lines().find(|line| line.ends_with("[stack]")).expect("a stack");
    let (_, end) = stack.split_once(' ').and_then(|(range, _)| range.split_once('-')).expect("a range");
    let start = u64::from_str_radix(end, 16).expect("a number") - (16 << 10);
    let mut texts = vec![0; 16 << 10];
    memory.read_exact_at(&mut texts, start).expect("read");
    let path = texts.windows(6).rposition(|bytes| bytes == b"\0PATH=").expect("a path") + 6;
    memory
        .write_all_at(&(room + 64).to_ne_bytes(), start + path.next_multiple_of(8) as u64)
        .expect("written");
    for _ in 0..3 {
        let began = Instant::now();
        attach_once(&running, &options(Some(2), true));
        assert!(began.elapsed() < MOST / 4, "{:?}", began.elapsed());
    }
    let mut left = [1; 16];
    memory.read_exact_at(&mut left, room).expect("read");
    assert_eq!(left, left_for(running.pid().into()));
    running.end();
}

/// As Go's runtime without cgo: libc is there, but the thread's `fs` is not libc's.
#[test]
fn a_program_whose_threads_are_not_libcs_is_refused_at_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, program) = (folder.path().join("own.c"), folder.path().join("own"));
    let text = "#include <sys/syscall.h>\n\
        static char own[4096] __attribute__((aligned(64)));\n\
        static long call(long number, long a, long b, long c) {\n    long result;\n    \
        __asm__ volatile(\"syscall\" : \"=a\"(result) : \"a\"(number), \"D\"(a), \"S\"(b), \"d\"(c) \
        : \"rcx\", \"r11\", \"memory\");\n    return result;\n}\n\
        __attribute__((optimize(\"no-stack-protector\")))\n\
        int main(void) {\n    /* ARCH_SET_FS; from here on no libc. */\n    \
        call(SYS_arch_prctl, 0x1002, (long)(own + 2048), 0);\n    call(SYS_write, 1, (long)\"ready\\n\", 6);\n    \
        char byte;\n    while (call(SYS_read, 0, (long)&byte, 1) > 0) {}\n    call(SYS_exit_group, 7, 0, 0);\n}\n";
    std::fs::write(&source, text).expect("written");
    let built = Command::new("cc").args(["-O1", "-o"]).args([&program, &source]).status();
    assert!(built.expect("a C compiler").success());
    let mut running = Running::start(&program);
    let refused = Agent::attach(running.pid(), &options(None, true), Box::new(|_, _| None));
    match refused {
        Err(AgentError::Inject(error @ InjectError::OwnThreads(_))) => assert!(error.is_for_good()),
        other => panic!("{other:?}"),
    }
    drop(running.child.stdin.take());
    assert_eq!(running.child.wait().expect("ended").code(), Some(7));
}

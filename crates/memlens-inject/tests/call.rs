//! Functions are called in running programs, which notice nothing: whatever a thread waits in goes on, whatever it
//! computes is what it would be.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use memlens_inject::{Call, Called, InjectError, Library, Registers, call};

/// What the programs' waits take that end by themselves.
const SECONDS: u64 = 6;

/// What a process of [`calls_for_another_process`] is told: a process, a function and the folder of the library.
const INTO: &str = "MEMLENS_INJECT_INTO";

struct Programs {
    /// Until the last test has ended.
    _own: Option<tempfile::TempDir>,
    folder: PathBuf,
    answers: Vec<u8>,
    symbols: String,
}

fn programs() -> &'static Programs {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let (own, folder) = match std::env::var(INTO) {
            Ok(words) => (None, PathBuf::from(words.split(' ').nth(2).expect("a folder"))),
            Err(_) => {
                let folder = tempfile::tempdir().expect("a folder");
                compile(folder.path(), "waits", include_str!("programs/waits.c"), &["-lm"]);
                let options = ["-shared", "-fPIC", "-lm"];
                compile(folder.path(), "answers", include_str!("programs/answers.c"), &options);
                let path = folder.path().to_owned();
                (Some(folder), path)
            }
        };
        let library = folder.join("answers");
        let symbols = Command::new("nm").arg("-D").arg(&library).output().expect("nm").stdout;
        Programs {
            answers: std::fs::read(&library).expect("built"),
            symbols: String::from_utf8(symbols).expect("text"),
            folder,
            _own: own,
        }
    })
}

fn compile(folder: &Path, name: &str, source: &str, options: &[&str]) {
    let (from, to) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&from, source).expect("written");
    let status = Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&to).arg(from).args(options).status();
    assert!(status.expect("a C compiler").success());
}

/// The address of a function of the library's, in its file.
fn function(name: &str) -> u64 {
    let end = format!(" T {name}");
    let line = programs().symbols.lines().find(|line| line.ends_with(&end)).expect("a function");
    u64::from_str_radix(line.split(' ').next().expect("a number"), 16).expect("a number")
}

struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(kind: &str) -> Self {
        Self::start_for(kind, SECONDS)
    }

    /// If it waits for a time only, then so long.
    fn start_for(kind: &str, seconds: u64) -> Self {
        let mut child = Command::new(programs().folder.join("waits"))
            .args([kind, &seconds.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut running = Self { child, output };
        assert_eq!(running.line(), "ready");
        running
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn signal(&self, signal: i32) {
        // SAFETY: our own child, which we have not waited for.
        assert_eq!(unsafe { libc::kill(self.pid() as i32, signal) }, 0);
    }

    /// What it says at its end, after a word that it waits for.
    fn end(mut self) -> String {
        self.child.stdin.take().expect("piped").write_all(b"end\n").expect("it reads");
        self.end_by_itself()
    }

    /// What it says at its end.
    fn end_by_itself(mut self) -> String {
        let line = self.line();
        assert_eq!(self.child.wait().expect("ended").code(), Some(7), "{line}");
        line
    }

    fn maps(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).expect("readable")
    }
}

/// Calls a function of the library's with a number.
fn answer_of(
    pid: u32,
    name: &str,
    number: u64,
    meanwhile: &mut (dyn FnMut() + Send),
) -> Result<(u64, Called), InjectError> {
    let library = Library {
        name: "memlens-answers",
        other_name: "/memlens-answers-elsewhere",
        bytes: &programs().answers,
        function: function(name),
    };
    let called = call(Call {
        pid,
        library,
        file: Some("memlens-file"),
        wants_threads: true,
        prepare: &mut |prepared| {
            assert!(prepared.threads.contains(&pid) && prepared.descriptor > 2);
            prepared.file.expect("asked for").write_all(b"text").expect("written");
            meanwhile();
            Ok([number.to_ne_bytes(), [0; 8]].concat())
        },
        walk: &mut |_: &Registers, _: &[u8]| None,
    })?;
    let answer = u64::from_ne_bytes(called.argument[8..].try_into().expect("a word"));
    Ok((answer, called))
}

/// Calls again and again, for some time.
fn call_often(running: &Running, time: Duration) {
    let begun = Instant::now();
    let mut calls = 0;
    while calls == 0 || begun.elapsed() < time {
        let (answer, called) = answer_of(running.pid(), "doubles", 21 + calls, &mut || {}).expect("called");
        assert_eq!((answer, called.was_there), (2 * (21 + calls), calls > 0));
        calls += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    eprintln!("{calls} calls");
}

#[test]
fn waits_go_on() {
    std::thread::scope(|scope| {
        for kind in ["nanosleep", "clock_nanosleep", "futex", "timed_poll", "recv", "semop"] {
            scope.spawn(move || {
                let running = Running::start(kind);
                call_often(&running, Duration::from_secs(SECONDS / 2));
                assert_eq!(running.end_by_itself(), "ok", "{kind}");
            });
        }
    });
    for kind in ["poll", "select", "epoll", "often_epoll", "read"] {
        let running = Running::start(kind);
        call_often(&running, Duration::from_secs(1));
        assert_eq!(running.end(), "ok", "{kind}");
    }
    for (kind, signal) in [("sigsuspend", libc::SIGUSR1), ("sigtimedwait", libc::SIGUSR2)] {
        let running = Running::start(kind);
        call_often(&running, Duration::from_secs(1));
        running.signal(signal);
        assert_eq!(running.end_by_itself(), "ok", "{kind}");
    }
}

#[test]
fn computations_go_on() {
    for kind in ["computing", "computing_long"] {
        let running = Running::start(kind);
        call_often(&running, Duration::from_secs(2));
        assert_eq!(running.end(), "ok", "{kind}");
    }
}

#[test]
fn threads_go_on() {
    for kind in ["threads", "making_threads"] {
        let running = Running::start(kind);
        call_often(&running, Duration::from_secs(3));
        assert_eq!(running.end(), "ok", "{kind}");
    }
}

#[test]
fn a_signal_that_comes_during_the_call_does_what_it_does_otherwise() {
    for kind in ["nanosleep", "poll", "epoll", "read"] {
        let kind = format!("{kind}_until_signal");
        let running = Running::start(&kind);
        std::thread::sleep(Duration::from_millis(100));
        let mut send = || running.signal(libc::SIGUSR1);
        answer_of(running.pid(), "doubles", 1, &mut send).expect("called");
        assert_eq!(running.end_by_itself(), "ok", "{kind}");
    }
    let running = Running::start("read_beyond_signal");
    let mut send = || running.signal(libc::SIGUSR1);
    answer_of(running.pid(), "doubles", 1, &mut send).expect("called");
    assert_eq!(running.end(), "ok");
}

#[test]
fn a_call_that_crashes_is_left() {
    for kind in ["poll", "computing"] {
        let running = Running::start(kind);
        match answer_of(running.pid(), "crashes", 1, &mut || {}) {
            Err(InjectError::Crashed(_, libc::SIGSEGV)) => {}
            other => panic!("{other:?}"),
        }
        call_often_after(&running);
        assert_eq!(running.end(), "ok");
    }
}

/// The library is there by now.
fn call_often_after(running: &Running) {
    for number in 0..3 {
        let (answer, called) = answer_of(running.pid(), "doubles", number, &mut || {}).expect("called");
        assert_eq!((answer, called.was_there), (2 * number, true));
    }
}

/// Not a test of its own: what [`who_calls_may_die`] starts and kills.
#[test]
fn calls_for_another_process() {
    let Ok(words) = std::env::var(INTO) else { return };
    let [pid, name, _] = words.split(' ').collect::<Vec<_>>()[..] else { panic!("{words}") };
    let mut prepare = || {
        if name == "doubles" {
            // SAFETY: ends this process.
            unsafe { libc::raise(libc::SIGKILL) };
        }
    };
    answer_of(pid.parse().expect("a number"), name, 1, &mut prepare).expect("called");
}

#[test]
fn who_calls_may_die() {
    for kind in ["nanosleep", "read", "poll", "computing"] {
        let running = Running::start_for(kind, 3 * SECONDS);
        // While the argument is made, and while the function runs.
        for (name, after) in [("doubles", None), ("takes_its_time", Some(Duration::from_millis(250)))] {
            let mut caller = Command::new(std::env::current_exe().expect("this test"))
                .args(["--exact", "calls_for_another_process", "--nocapture"])
                .env(INTO, format!("{} {name} {}", running.pid(), programs().folder.display()))
                .stdout(Stdio::null())
                .spawn()
                .expect("started");
            if let Some(after) = after {
                let is_there = || running.maps().contains("memlens-answers");
                while !is_there() && caller.try_wait().expect("known").is_none() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(after);
                caller.kill().expect("it runs");
            }
            let status = caller.wait().expect("ended");
            assert!(!status.success(), "{kind} {name}");
            std::thread::sleep(Duration::from_millis(600));
        }
        // Its code, left behind, is found and replaced.
        call_often_after(&running);
        let end = if kind == "nanosleep" { running.end_by_itself() } else { running.end() };
        // A sleep may begin again.
        assert!(end == "ok" || kind == "nanosleep" && end == "late", "{kind} {end}");
    }
}

#[test]
fn nothing_is_left_but_the_library() {
    let running = Running::start("read");
    answer_of(running.pid(), "doubles", 1, &mut || {}).expect("called");
    let before = lines_without_heap(&running.maps());
    for number in 0..20 {
        answer_of(running.pid(), "doubles", number, &mut || {}).expect("called");
    }
    assert_eq!(lines_without_heap(&running.maps()), before);
    assert_eq!(running.end(), "ok");
}

fn lines_without_heap(maps: &str) -> Vec<String> {
    maps.lines().filter(|line| !line.ends_with("[heap]")).map(str::to_owned).collect()
}

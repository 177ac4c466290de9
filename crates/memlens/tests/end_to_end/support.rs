//! Calls memlens, and makes a small profile by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use memlens_profile::{
    CacheInfo, Cell, CodeIx, CodeLocation, Existing, Frame, FrameIx, MachineInfo, Module, ModuleIx, Object,
    ObjectIx, Profile, ProfileWriter, RunInfo, Stack, StackIx, Thread, ThreadIx,
};
use memlens_types::{Counts, ObjectKind};
use serde_json::Value;

/// A calibration of some machine, by hand.
pub const CALIBRATION: &str = r#"
format = 1
processor = "an abacus"
measured_at = 0

[latency]
cycle_ns = 0.5
cycle_spread = 0.0
l1 = { cycles = 5.0, spread = 0.0 }
l2 = { cycles = 15.4, spread = 0.0 }
llc = { cycles = 66.0, spread = 0.0 }
dram = { cycles = 333.0, spread = 0.0 }
stlb = { cycles = 8.0, spread = 0.0 }
walk = { cycles = 44.0, spread = 0.0 }
llc_reach_bytes = 1048576
curve = []
"#;

/// memlens in a folder, without what the developer's environment would add.
pub fn memlens(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memlens"));
    command.current_dir(folder).env_remove("COLUMNS").env_remove("MEMLENS_LOG").env_remove("NO_COLOR");
    // What this machine's user measured is nobody's expectation.
    command.env("XDG_CONFIG_HOME", folder.join("no-configuration")).env("MEMLENS_CALIBRATION", "none");
    command
}

/// Calls memlens with some words.
pub fn call(folder: &Path, words: &[&str]) -> Output {
    memlens(folder).args(words).output().expect("memlens is there")
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Calls memlens, expects an exit code, and says what was on stderr.
pub fn failing(folder: &Path, words: &[&str], code: i32) -> String {
    let output = call(folder, words);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
    assert!(output.stdout.is_empty(), "{words:?} wrote to stdout");
    text
}

/// Calls memlens, expects success, and says what was on stdout.
pub fn succeeding(folder: &Path, words: &[&str]) -> String {
    let output = call(folder, words);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", stderr(&output));
    stdout(&output)
}

/// Compiles a C program.
pub fn compiled(folder: &Path, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let (file, program) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&file, source).expect("written");
    let mut command = Command::new("cc");
    command.arg("-pthread").args(options).arg("-o").arg(&program).arg(&file);
    assert!(command.status().expect("there is a C compiler").success());
    program
}

/// Runs one of valgrind's tools in a folder; false: valgrind is not there.
pub fn valgrind(folder: &Path, words: &[&str]) -> bool {
    let Ok(output) = Command::new("valgrind").arg("-q").args(words).current_dir(folder).output() else {
        eprintln!("skipped: valgrind is not there");
        return false;
    };
    assert!(output.status.success(), "{}", stderr(&output));
    true
}

/// Waits for what takes an unknown time on a busy machine, for five minutes at most.
pub fn wait_until(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(300), "nothing happened for five minutes");
        sleep(Duration::from_millis(20));
    }
}

/// The functions of a node of the call tree, innermost first.
pub fn path_of(tree: &[Value], node: &Value) -> Vec<String> {
    let parent = node["parent"].as_u64().and_then(|parent| tree.get(parent as usize));
    let mut path = vec![node["function"].as_str().unwrap_or("?").to_owned()];
    path.extend(parent.map(|parent| path_of(tree, parent)).unwrap_or_default());
    path
}

/// From now on perf_event_open fails with this error in the process and its children. Makes system
/// calls only: for `pre_exec`.
pub fn refuse_events(error: i32) -> std::io::Result<()> {
    // seccomp(2): load the number of the system call; if it is perf_event_open's, the error; else allow.
    let filter = [
        libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 },
        libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_perf_event_open as u32 },
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | error as u32 },
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: system calls with a program that outlives them.
    let answer = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    if answer == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// One heap object, `column`, that line 20 of bfs.c loads a thousand times; every eighth load misses.
pub fn small_profile() -> Profile {
    let counts =
        Counts { loads: 1000, load_bytes: 8000, l1_load_misses: 125, dram_reads: 125, ..Counts::default() };
    Profile {
        run: RunInfo {
            command: vec!["bfs".into(), "16".into()],
            mode: "exact".into(),
            exit_code: Some(0),
            primary_cost: "wait_cycles".into(),
            ..RunInfo::default()
        },
        machine: MachineInfo {
            name: "test".into(),
            line_bytes: 64,
            page_bytes: 4096,
            l1d: Some(CacheInfo { bytes: 32768, ways: 8, policy: "lru".into() }),
            rules: "memlens".into(),
            ..MachineInfo::default()
        },
        modules: vec![Module { path: "/opt/bfs".into(), build_id: None, has_debug: true }],
        frames: vec![Frame {
            module: Some(ModuleIx(0)),
            offset: 0x1200,
            function: Some("search".into()),
            file: Some("bfs.c".into()),
            line: Some(20),
            ..Frame::default()
        }],
        stacks: vec![Stack(vec![FrameIx(0)])],
        objects: vec![Object {
            id: 1,
            kind: ObjectKind::Heap,
            name: "column".into(),
            type_name: Some("int*".into()),
            site: Some(StackIx(0)),
            blocks: 1,
            bytes: Some(8000),
            counts,
            ..Object::default()
        }],
        code: vec![CodeLocation {
            id: 1,
            stack: Some(StackIx(0)),
            module: Some(ModuleIx(0)),
            offset: 0x1200,
            size_bytes: 8,
            counts: counts.into(),
            ..CodeLocation::default()
        }],
        cells: vec![Cell {
            code: CodeIx(0),
            object: ObjectIx(0),
            thread: ThreadIx(0),
            counts: counts.into(),
        }],
        threads: vec![Thread { tid: 1, counts, ..Thread::default() }],
        ..Profile::default()
    }
}

/// Stores [`small_profile`].
pub fn write_small_profile(path: &Path) {
    let profile = small_profile();
    profile.validate().expect("consistent");
    let mut writer = ProfileWriter::create(path, Existing::Refuse).expect("created");
    writer.flush(&profile, true).expect("written");
}

//! What goes wrong while sampling, one test each: the program is not harmed, one message says what happened, and
//! what was lost is counted and shown.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::support::{
    call, compiled, failing, memlens, refuse_events, stderr, stdout, succeeding, wait_until,
};
use serde_json::Value;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Works until its input ends, then prints `done` and returns 7.
const WORKS: &str = "#include <poll.h>\n#include <stdio.h>\nstatic volatile long table[1 << 20];\n\
    int main(void) {\n    struct pollfd in = {0, POLLIN, 0};\n    puts(\"ready\"); fflush(stdout);\n    unsigned i = 0;\n    \
    while (poll(&in, 1, 0) == 0)\n        for (int n = 0; n < 100000; n++) table[(i = i * 1664525u + 1013904223u) >> 12]++;\n    \
    puts(\"done\");\n    return 7;\n}\n";

/// A program that works until it is told to end.
struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Worker {
    fn start(program: &Path) -> Self {
        let mut child =
            Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut worker = Self { input: child.stdin.take(), child, lines };
        assert_eq!(worker.line(), "ready");
        worker
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("a line").expect("text")
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Processor time it has used, in hundredths of a second.
    fn cpu_ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it runs");
        // utime is the twelfth after the name, which may have blanks (proc_pid_stat(5)).
        let after_name = stat.rsplit(')').next().expect("a name");
        after_name.split_whitespace().nth(11).and_then(|it| it.parse().ok()).expect("a number")
    }

    /// It was not harmed.
    fn end(mut self) {
        drop(self.input.take());
        assert_eq!(self.line(), "done");
        assert_eq!(self.child.wait().expect("it ends").code(), Some(7));
    }
}

/// Attaches to it for a moment, and sees that it was not harmed; the report.
fn recorded(folder: &Path, worker: Worker) -> Value {
    let pid = worker.pid();
    let words = ["record", "--duration", "0.7", "--frequency", "997", "--quiet", "--out", "p", "--pid", &pid];
    assert_eq!(call(folder, &words).status.code(), Some(0));
    worker.end();
    json(folder, "p")
}

fn json(folder: &Path, profile: &str) -> Value {
    serde_json::from_str(&succeeding(folder, &["report", profile, "--format", "json"])).expect("JSON")
}

/// Whether this machine lets anybody sample; the tests of refusals need no permission.
fn can_sample() -> bool {
    let folder = folder();
    let output = call(folder.path(), &["record", "--mode", "sample", "--quiet", "--out", "p", "--", "true"]);
    let allows = !stderr(&output).contains("open a performance event");
    if !allows {
        eprintln!("passed over: {}", stderr(&output));
    }
    allows
}

/// memlens where the kernel refuses events with this error.
fn refused(folder: &Path, error: i32, words: &[&str]) -> Output {
    let mut command = memlens(folder);
    command.args(words);
    // SAFETY: the function makes system calls only.
    unsafe { command.pre_exec(move || refuse_events(error)) };
    command.output().expect("it starts")
}

/// The ways in which kernels and containers say no, each with what lifts it.
#[test]
fn a_refusal_is_told_with_the_command_that_lifts_it() {
    let cases = [
        // kernel.perf_event_paranoid is 3 or higher (Debian, Android), or 2 and kernel events were asked for.
        (libc::EACCES, "sudo sysctl kernel.perf_event_paranoid="),
        // A container's filter.
        (libc::EPERM, "--cap-add PERFMON"),
        // A sandbox that has no such system call, or a kernel without CONFIG_PERF_EVENTS.
        (libc::ENOSYS, "has no perf_event_open"),
        // gVisor.
        (libc::ENODEV, "has no perf_event_open"),
    ];
    for (error, advice) in cases {
        let folder = folder();
        // Misses cannot be had from the agent's timers.
        let words = ["record", "--event", "cache-misses", "--pid", "1", "--duration", "1", "--out", "p"];
        let output = refused(folder.path(), error, &words);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(75), "{text}");
        assert!(text.contains(advice) && text.lines().count() == 1, "{error}: {text}");
        assert!(!folder.path().join("p").exists());
        let doctor = stdout(&refused(folder.path(), error, &["doctor"]));
        assert!(doctor.contains(advice) && doctor.contains("agent-clock"), "{error}: {doctor}");
    }
}

/// A process that runs is sampled all the same, by the agent that comes into it.
#[test]
fn without_events_of_the_kernel_a_process_is_sampled_by_the_agent() {
    let folder = folder();
    let worker = Worker::start(&compiled(folder.path(), "works", WORKS, &["-g"]));
    let pid = worker.pid();
    let words = ["record", "--duration", "0.7", "--frequency", "997", "--quiet", "--out", "p", "--pid", &pid];
    let output = refused(folder.path(), libc::EACCES, &words);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    worker.end();
    let report = json(folder.path(), "p");
    assert_eq!(report["run"]["sampling"]["event"], "agent-clock");
    assert!(report["totals"]["samples"].as_u64().expect("a number") > 0);
    assert!(report["run"]["notes"].to_string().contains("let in while the process ran"));
}

/// A program that can be preloaded is sampled all the same, by its own timers, and the report says why.
#[test]
fn without_events_of_the_kernel_the_program_is_sampled_by_its_own_timers() {
    let folder = folder();
    let source = "static volatile long table[1 << 20];\nint main(void) {\n    unsigned i = 0;\n    \
        for (long n = 0; n < 200000000; n++) table[(i = i * 1664525u + 1013904223u) >> 12]++;\n    return 7;\n}\n";
    let program = compiled(folder.path(), "works", source, &["-O2", "-g"]);
    let program = program.to_str().expect("text");
    let cases = [
        (libc::EACCES, "Permission denied"),
        (libc::EPERM, "Operation not permitted"),
        (libc::ENOSYS, "this kernel has no perf_event_open (Function not implemented"),
        (libc::ENODEV, "this kernel has no perf_event_open (No such device"),
    ];
    for (error, reason) in cases {
        let profile = format!("p{error}");
        let words = ["record", "--mode", "sample", "--frequency", "997", "--out", &profile, "--", program];
        let output = refused(folder.path(), error, &words);
        assert_eq!(output.status.code(), Some(7), "{error}: {}", stderr(&output));
        let report = json(folder.path(), &profile);
        assert_eq!(report["run"]["sampling"]["event"], "agent-clock", "{error}");
        let table = report["objects"].as_array().expect("a list").iter().find(|it| it["name"] == "table");
        assert!(table.is_some_and(|it| it["share"].as_f64() > Some(0.5)), "{error}: {report}");
        let notes = report["run"]["notes"].to_string();
        assert!(notes.contains(&format!("cpu-clock cannot be sampled here: {reason}")), "{error}: {notes}");
        // A miss cannot be had from a timer, and nothing runs unrecorded.
        let words = ["record", "--mode", "sample", "--event", "cache-misses", "--out", "no", "--", program];
        let output = refused(folder.path(), error, &words);
        assert_eq!(output.status.code(), Some(75), "{error}: {}", stderr(&output));
    }
}

/// A memlens that does not come to read in time: the kernel's count is shown, and the program goes on.
#[test]
fn what_found_no_room_is_counted_and_shown() {
    if !can_sample() {
        return;
    }
    let folder = folder();
    let worker = Worker::start(&compiled(folder.path(), "works", WORKS, &["-O2", "-g"]));
    let mut recorder = memlens(folder.path());
    let words = ["record", "--frequency", "20000", "--event", "time", "--flush-every", "1", "--out", "p"];
    let mut recorder = recorder.args(words).args(["--pid", &worker.pid()]).spawn().expect("it starts");
    // Stopped only once it samples.
    wait_until(|| folder.path().join("p/profile.json").exists());
    let signal = |recorder: &Child, name: &str| {
        let done = Command::new("kill").args([name, &recorder.id().to_string()]).status();
        assert!(done.expect("kill is there").success());
    };
    signal(&recorder, "-STOP");
    // 4 MiB a processor: some 500 samples, which the program makes in 25 ms of its own processor time.
    let until = worker.cpu_ticks() + 100;
    wait_until(|| worker.cpu_ticks() >= until);
    signal(&recorder, "-CONT");
    // Some kernels tell only with the next sample.
    wait_until(|| json(folder.path(), "p")["run"]["sampling"]["lost"].as_u64() > Some(0));
    // Not SIGINT: where the tests run in the background, it is ignored, and stays so.
    signal(&recorder, "-TERM");
    assert!(recorder.wait().expect("it ends").success());
    worker.end();
    let report = json(folder.path(), "p");
    let lost = report["run"]["sampling"]["lost"].as_u64().expect("a number");
    assert!(lost > 0, "{}", report["run"]["sampling"]);
    assert!(report["attribution"]["lost_events"].as_u64().expect("a number") >= lost);
    let table = succeeding(folder.path(), &["report", "p"]);
    assert!(table.contains("lost samples"), "{table}");
}

/// Nobody saw what was allocated before the agent came, nor what is allocated without it: reports say why, and what to
/// do.
#[test]
fn allocations_that_are_not_watched_are_told() {
    if !can_sample() {
        return;
    }
    let folder = folder();
    let report =
        recorded(folder.path(), Worker::start(&compiled(folder.path(), "works", WORKS, &["-O2", "-g"])));
    let notes = report["run"]["notes"].to_string();
    assert!(notes.contains("let in while the process ran") && notes.contains("allocated before"), "{notes}");
    let folder = self::folder();
    let program = compiled(folder.path(), "works", WORKS, &["-g", "-static"]);
    let notes = recorded(folder.path(), Worker::start(&program))["run"]["notes"].to_string();
    let why = "Allocations were not watched: failed to attach";
    assert!(notes.contains(why) && notes.contains("statically"), "{notes}");
    assert!(notes.contains("memlens run --mode sample"), "{notes}");
    let table = succeeding(folder.path(), &["report", "p"]);
    assert!(table.contains("Allocations were not watched"), "{table}");

    let program = compiled(folder.path(), "ends", "int main(void) { return 0; }", &["-static"]);
    let script = format!("/bin/true; '{}'; /bin/true; :", program.display());
    let words = ["record", "--mode", "sample", "--quiet", "--out", "q", "--", "sh", "-c", &script];
    assert_eq!(call(folder.path(), &words).status.code(), Some(0));
    let notes = json(folder.path(), "q")["run"]["notes"].to_string();
    let what = "1 program ran without the agent, so its allocations are not known: linked statically";
    assert!(notes.contains(what), "{notes}");
}

/// Processes that end at every moment of an attach: a profile or a message, never a hang or a crash.
#[test]
fn a_process_that_ends_while_memlens_attaches() {
    if !can_sample() {
        return;
    }
    let folder = folder();
    for round in 0..30 {
        let mut target = Command::new("sh")
            .args(["-c", &format!("i=0; while [ $i -lt {} ]; do i=$((i+1)); done", round * 400)])
            .spawn()
            .expect("it starts");
        let profile = format!("p{round}");
        let pid = target.id().to_string();
        let words = ["record", "--duration", "5", "--quiet", "--out", &profile, "--pid", &pid];
        let output = memlens(folder.path()).args(words).output().expect("it starts");
        assert_eq!(target.wait().expect("it ends").code(), Some(0));
        let text = stderr(&output);
        match output.status.code() {
            Some(0) => {
                succeeding(folder.path(), &["report", &profile]);
            }
            Some(66) => assert!(text.contains("there is no such process"), "{text}"),
            _ => panic!("round {round}: {output:?}"),
        }
    }
}

#[test]
fn a_memlens_that_is_killed_leaves_a_partial_profile_and_an_unharmed_process() {
    if !can_sample() {
        return;
    }
    let folder = folder();
    let worker = Worker::start(&compiled(folder.path(), "works", WORKS, &["-O2", "-g"]));
    let words = ["record", "--frequency", "997", "--flush-every", "1", "--quiet", "--out", "p"];
    let mut recorder =
        memlens(folder.path()).args(words).args(["--pid", &worker.pid()]).spawn().expect("it starts");
    wait_until(|| folder.path().join("p/profile.json").exists());
    recorder.kill().expect("it runs");
    recorder.wait().expect("it ends");
    let report = json(folder.path(), "p");
    assert_eq!(report["attribution"]["truncated"], true);
    assert!(report["totals"]["samples"].as_u64().expect("a number") > 0);
    worker.end();
}

/// Each thread takes a descriptor a processor: more than the usual limit of 1,024.
#[test]
fn a_thousand_threads() {
    if !can_sample() {
        return;
    }
    let source = "#include <pthread.h>\n#include <stdio.h>\nstatic pthread_barrier_t all;\nstatic long sums[1000];\n\
        static void *work(void *at) {\n    pthread_barrier_wait(&all);\n    volatile long *sum = at;\n    \
        for (int i = 0; i < 5000000; i++) *sum += i;\n    pthread_barrier_wait(&all);\n    return 0;\n}\n\
        int main(void) {\n    pthread_t threads[1000];\n    pthread_attr_t small;\n    pthread_attr_init(&small);\n    \
        pthread_attr_setstacksize(&small, 1 << 16);\n    pthread_barrier_init(&all, 0, 1001);\n    \
        for (int i = 0; i < 1000; i++) if (pthread_create(threads + i, &small, work, sums + i)) return 1;\n    \
        puts(\"ready\"); fflush(stdout);\n    getchar();\n    pthread_barrier_wait(&all);\n    pthread_barrier_wait(&all);\n    \
        for (int i = 0; i < 1000; i++) { pthread_join(threads[i], 0); if (sums[i] != sums[0]) return 2; }\n    \
        puts(\"done\");\n    return 7;\n}\n";
    let folder = folder();
    let program = compiled(folder.path(), "many", source, &["-O2", "-g"]);
    // Attached to, with the usual limit.
    let mut worker = Worker::start(&program);
    let script = format!(
        "ulimit -Sn 1024; exec '{}' record --frequency 3997 --quiet --out attached --pid {}",
        env!("CARGO_BIN_EXE_memlens"),
        worker.pid()
    );
    let recorder =
        Command::new("sh").args(["-c", &script]).current_dir(folder.path()).stderr(Stdio::piped()).spawn();
    let recorder = recorder.expect("it starts");
    let events = format!("/proc/{}/fd", recorder.id());
    // All are open when there are no more than before.
    let mut before = 0;
    wait_until(|| {
        sleep(Duration::from_millis(300));
        let now = fs::read_dir(&events).map_or(0, Iterator::count);
        std::mem::replace(&mut before, now) == now && now > 1000
    });
    worker.input.as_mut().expect("piped").write_all(b"\n").expect("written");
    worker.end();
    let output = recorder.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", stderr(&output));
    // And started, where they are inherited.
    let started = memlens(folder.path())
        .args(["run", "--mode", "sample", "--frequency", "3997", "--quiet", "--out", "started", "--"])
        .arg(&program)
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    assert_eq!(
        (started.status.code(), stdout(&started).as_str()),
        (Some(7), "ready\ndone\n"),
        "{}",
        stderr(&started)
    );
    for profile in ["attached", "started"] {
        let report = json(folder.path(), profile);
        let samples = report["totals"]["samples"].as_u64().expect("a number");
        let threads = report["run"]["threads"].as_u64().expect("a number");
        // 1,000 threads of some milliseconds each: most are met by one of 3,997 samples a second.
        assert!(
            samples > 100 && threads > 50 && threads <= 1001,
            "{profile}: {samples} samples of {threads} threads"
        );
        let sums =
            report["objects"].as_array().expect("a list").iter().find(|object| object["name"] == "sums");
        // Since Golden Cove a core hands what was stored at an address to its next load at once: three fifths wait for the addition.
        assert!(sums.is_some_and(|sums| sums["share"].as_f64().expect("a share") > 0.2), "{profile}");
    }
}

/// What lies at the path is not what runs: its names would be wrong.
#[test]
fn a_program_that_is_replaced_while_it_runs_gets_no_names_of_the_new_one() {
    if !can_sample() {
        return;
    }
    let folder = folder();
    let program = compiled(folder.path(), "works", WORKS, &["-O2", "-g"]);
    let worker = Worker::start(&program);
    let other = compiled(folder.path(), "other", &WORKS.replace("table", "wrong_name"), &["-O2", "-g"]);
    fs::rename(&other, &program).expect("replaced");
    let report = recorded(folder.path(), worker);
    assert!(report["totals"]["samples"].as_u64().expect("a number") > 0);
    assert!(!report.to_string().contains("wrong_name"), "{report}");
    let notes = report["attribution"]["notes"].to_string();
    assert!(notes.contains("was replaced"), "{notes}");
}

/// Neither symbols nor debug information: objects are parts of the file.
#[test]
fn a_stripped_program_has_objects_by_file_and_offset() {
    if !can_sample() {
        return;
    }
    let folder = folder();
    let worker = Worker::start(&compiled(folder.path(), "works", WORKS, &["-O2", "-s"]));
    let report = recorded(folder.path(), worker);
    let objects = report["objects"].as_array().expect("a list");
    let first = objects.iter().max_by_key(|object| object["samples"].as_u64()).expect("some");
    let name = first["name"].as_str().expect("a name");
    // As exact mode calls it.
    assert!(name == ".bss of works" && first["kind"] == "global", "{objects:?}");
}

/// As under faketime: libc's clock says the same for ever, for memlens and for the program.
#[test]
fn a_clock_that_stands_still_keeps_nobody_waiting() {
    let folder = folder();
    let source = "#include <time.h>\nint clock_gettime(clockid_t clock, struct timespec *now) {\n    \
        (void)clock; now->tv_sec = 1000000; now->tv_nsec = 0;\n    return 0;\n}\n";
    let library = compiled(folder.path(), "standing.so", source, &["-shared", "-fPIC"]);
    for mode in ["sample", "burst"] {
        let mut command = memlens(folder.path());
        command.args(["record", "--mode", mode, "--quiet", "--out", mode, "--", "sh", "-c", "exit 7"]);
        let mut child = command.env("LD_PRELOAD", &library).spawn().expect("it starts");
        let mut ended = None;
        wait_until(|| {
            ended = child.try_wait().expect("our child");
            ended.is_some()
        });
        // 69 and 77 where the kernel allows no events.
        let code = ended.and_then(|status| status.code());
        assert!(matches!(code, Some(7 | 69 | 77)), "{mode}: {code:?}");
    }
}

#[test]
fn what_is_no_recording_of_perf_is_one_message() {
    let folder = folder();
    let file = |name: &str, content: &[u8]| fs::write(folder.path().join(name), content).expect("written");
    file("noise", b"PERFILE2 and then nothing of use");
    file("text", b"sh 1234 10.5: 250000 cpu-clock:u: 401000 main+0x10 (/bin/sh)\n");
    file("empty", b"");
    file("swapped", b"2ELIFREP\0\0\0\0\0\0\0\x68");
    fs::create_dir(folder.path().join("folder")).expect("made");
    let cases = [
        ("perf", "noise", 65, "read perf.data: "),
        ("perf", "text", 65, "it does not begin with PERFILE2"),
        ("perf", "text", 65, "memlens import perf-script"),
        ("perf", "empty", 65, "it does not begin with PERFILE2"),
        ("perf", "swapped", 65, "big-endian"),
        ("perf", "folder", 74, "Is a directory"),
        ("perf", "absent", 66, "absent"),
        ("perf-script", "noise", 65, "find samples"),
        ("perf-script", "absent", 66, "absent"),
    ];
    for (importer, name, code, message) in cases {
        let text = failing(folder.path(), &["import", importer, name, "--out", "p"], code);
        assert!(text.contains(message) && text.lines().count() == 1, "{importer} {name}: {text}");
        assert!(!folder.path().join("p").exists());
    }
}

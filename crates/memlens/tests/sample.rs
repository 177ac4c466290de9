//! Sample mode through the command line.

mod support;

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use serde_json::Value;
use support::refuse_events;

fn memlens(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memlens"));
    command.args(arguments);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether this machine lets the tests sample at all.
fn is_refused(output: &Output) -> bool {
    text(&output.stderr).contains("open a performance event")
}

#[test]
fn a_sampled_program_prints_and_ends_as_it_always_does() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let profile = folder.path().join("p");
    let script = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; echo out; echo err >&2; exit 3";
    let output = memlens(&["run", "--mode", "sample", "--quiet", "--out"])
        .arg(&profile)
        .args(["--", "sh", "-c", script])
        .output()
        .expect("it starts");
    if is_refused(&output) {
        return;
    }
    assert_eq!(
        (output.status.code(), text(&output.stdout), text(&output.stderr)),
        (Some(3), "out\n".into(), "err\n".into())
    );
    let report = memlens(&["report", "--format", "json"]).arg(&profile).output().expect("it starts");
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    assert_eq!(report["run"]["mode"], "sample");
    assert_eq!(report["run"]["estimated"], true);
    assert_eq!(report["run"]["primary_cost"], "time");
    assert_eq!(report["run"]["exit_code"], 3);
    assert_eq!(report["run"]["sampling"]["unit"], "nanoseconds");
    // Samples count no accesses: unknown, not 0.
    assert_eq!(report["totals"]["loads"], Value::Null);
    assert_eq!(report["totals"]["wait_cycles"], Value::Null);
    let samples = report["totals"]["samples"].as_u64().expect("a number");
    assert!(samples > 0);
    let objects = report["objects"].as_array().expect("a list");
    let sum: u64 = objects.iter().filter_map(|object| object["samples"].as_u64()).sum();
    assert_eq!(sum, samples);
    for object in objects {
        let share = object["share"].as_f64().expect("a share");
        let interval = &object["share_ci95"];
        let (low, high) = (interval[0].as_f64().expect("low"), interval[1].as_f64().expect("high"));
        assert!(0.0 <= low && low <= share && share <= high && high <= 1.0, "{object}");
    }
}

#[test]
fn a_signal_that_ends_the_program_ends_memlens() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = memlens(&["run", "--mode", "sample", "--quiet", "--out"])
        .arg(folder.path().join("p"))
        .args(["--", "sh", "-c", "kill -TERM $$"])
        .output()
        .expect("it starts");
    if !is_refused(&output) {
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{output:?}");
    }
}

#[test]
fn without_permission_it_says_so_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let profile = folder.path().join("p");
    let mut command = memlens(&["run", "--mode", "sample", "--out"]);
    command.arg(&profile).args(["--", "sh", "-c", "echo ran"]);
    // SAFETY: the function makes system calls only.
    unsafe { command.pre_exec(|| refuse_events(libc::EPERM)) };
    let output = command.output().expect("it starts");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(75), "{stderr}");
    assert!(stderr.contains("perf_event_paranoid") && stderr.contains("--mode exact"), "{stderr}");
    assert_eq!(text(&output.stdout), "", "the program must not run unrecorded");
    assert!(!profile.exists());
    let mut doctor = memlens(&["doctor"]);
    // SAFETY: as above.
    unsafe { doctor.pre_exec(|| refuse_events(libc::EPERM)) };
    let output = doctor.output().expect("it starts");
    let stdout = text(&output.stdout);
    assert!(stdout.contains("perf_event_open is forbidden"), "{stdout}");
}

#[test]
fn a_process_that_is_not_there_is_named() {
    let output = memlens(&["record", "--pid", "4194304", "--duration", "1"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(66));
    assert!(text(&output.stderr).contains("there is no such process"), "{}", text(&output.stderr));
}

/// Two profiles of one program in different modes: what each ranks its objects by is held against the other.
#[test]
fn a_sampled_profile_is_held_against_an_exact_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/kernels/gups.c");
    let program = folder.path().join("gups");
    let compiled =
        Command::new("cc").args(["-O2", "-g", "-pthread", "-o"]).arg(&program).arg(source).status();
    assert!(compiled.expect("there is a C compiler").success());
    let run = |mode: &str, size: &str| {
        let mut command = memlens(&["run", "--quiet", "--mode", mode, "--out"]);
        let output = command.arg(folder.path().join(mode)).arg("--").arg(&program).arg(size).output();
        output.expect("it starts")
    };
    if is_refused(&run("sample", "22")) {
        return;
    }
    assert!(run("exact", "14").status.success());
    let [exact, sampled] = ["exact", "sample"].map(|mode| folder.path().join(mode));
    let compared =
        memlens(&["compare", "--format", "json"]).args([exact, sampled]).output().expect("it starts");
    let message = text(&compared.stderr);
    let document: Value = serde_json::from_slice(&compared.stdout).unwrap_or_else(|_| panic!("{message}"));
    let objects = document["objects"].as_array().expect("a list");
    // The one large table has nearly all of the cost in both modes.
    let is_large = |object: &Value, side: &str| object[side].as_f64().is_some_and(|share| share > 0.3);
    assert!(objects.iter().any(|object| is_large(object, "share_a")), "{document}");
    assert!(objects.iter().any(|object| is_large(object, "share_b")), "{document}");
}

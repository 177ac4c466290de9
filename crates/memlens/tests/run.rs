//! `memlens run` from end to end, on programs that every system has. These need the recording engine,
//! which is carried in the binary, and x86-64 Linux.

mod support;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use support::{call, compiled, memlens, stderr, stdout, succeeding, wait_until};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Records a shell script, silently.
fn record(folder: &Path, script: &str) -> Output {
    call(folder, &["run", "--mode", "exact", "--quiet", "--force", "--out", "p", "--", "sh", "-c", script])
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("readable");
    entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn output_and_exit_code_are_the_programs() {
    let folder = folder();
    let output = record(folder.path(), "echo out; echo err >&2; exit 7");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!((stdout(&output), stderr(&output)), ("out\n".into(), "err\n".into()));
    // Codes that memlens uses itself are the program's, too, when it returns them.
    for code in [0, 1, 64, 127, 255] {
        assert_eq!(record(folder.path(), &format!("exit {code}")).status.code(), Some(code));
    }
    let report = succeeding(folder.path(), &["report", "p", "--format", "json"]);
    let report: Value = serde_json::from_str(&report).expect("valid JSON");
    assert_eq!(report["run"]["exit_code"], 255);
    assert!(report["totals"]["loads"].as_u64() > Some(1000), "{}", report["totals"]);
}

#[test]
fn signals_are_the_programs() {
    let folder = folder();
    // Not SIGINT or SIGHUP: where the tests run in the background, they are ignored, and stay so.
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("USR2", 12), ("ALRM", 14), ("PIPE", 13)]
    {
        let output = record(folder.path(), &format!("kill -{name} $$"));
        assert_eq!(output.status.signal(), Some(number), "{name}: {}", stderr(&output));
        assert!(!output.status.core_dumped(), "{name}");
        assert_eq!(stderr(&output), "", "{name}");
        // The profile is there.
        succeeding(folder.path(), &["report", "p"]);
    }
}

#[test]
fn standard_input_reaches_the_program() {
    use std::io::Write;
    let folder = folder();
    let mut child = memlens(folder.path())
        .args(["run", "-q", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    child.stdin.take().expect("piped").write_all(b"through").expect("read");
    assert_eq!(stdout(&child.wait_with_output().expect("ends")), "through");
}

#[test]
fn the_table_goes_to_stderr_and_says_where_the_profile_is() {
    let folder = folder();
    let output = call(folder.path(), &["run", "--", "true"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), String::new()));
    let messages = stderr(&output);
    assert!(messages.starts_with("memlens: burst mode: "), "{messages}");
    let names = names(folder.path());
    assert_eq!(names.len(), 1, "{names:?}");
    let process_id = names[0].strip_prefix("memlens.true.").expect("the default name");
    process_id.parse::<u32>().expect("a process id");
    assert!(messages.contains(&format!("memlens report {}", names[0])), "{messages}");
    let report = succeeding(folder.path(), &["report", &names[0], "--format", "json"]);
    assert!(report.contains("\"true\""), "{report}");

    let output = call(folder.path(), &["record", "--mode", "exact", "--out", "p", "--", "true"]);
    assert_eq!(stderr(&output), "memlens: the profile is in p; look closer with: memlens report p\n");
}

#[test]
fn the_mode_is_chosen_by_what_is_asked_for_and_by_the_program() {
    let folder = folder();
    let static_program = compiled(folder.path(), "static", "int main(void) { return 3; }", &["-static"]);
    let static_program = static_program.to_str().expect("UTF-8");
    let cases: [(&[&str], i32, &str, &str); 5] = [
        (&["true"], 0, "burst", "burst mode: "),
        (&["--machine", "e5504", "true"], 0, "burst", "burst mode: "),
        (&["--no-merge", "true"], 0, "exact", "exact mode, because --no-merge"),
        (&["--event", "agent-clock", "true"], 0, "sample", "sample mode, because --event"),
        (&[static_program], 3, "exact", "the program is linked statically"),
    ];
    for (words, code, mode, reason) in cases {
        let words = [&["run", "--force", "--out", "p"], words].concat();
        let output = call(folder.path(), &words);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", stderr(&output));
        let said = stderr(&output);
        assert!(said.lines().next().is_some_and(|line| line.contains(reason)), "{words:?}: {said}");
        let report = succeeding(folder.path(), &["report", "p", "--format", "json"]);
        let report: Value = serde_json::from_str(&report).expect("JSON");
        assert_eq!(report["run"]["mode"], mode, "{words:?}");
    }
}

#[test]
fn signals_to_memlens_reach_the_program() {
    let folder = folder();
    let script = "trap 'echo told; exit 4' TERM; echo > ready; while :; do sleep 0.1; done";
    let child = memlens(folder.path())
        .args(["run", "--quiet", "--out", "p", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    wait_until(|| folder.path().join("ready").exists());
    let told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill is there");
    assert!(told.success());
    let output = child.wait_with_output().expect("ends");
    assert_eq!((output.status.code(), stdout(&output)), (Some(4), "told\n".into()));
}

#[test]
fn the_doctor_tries_the_engine_and_looks_at_a_program() {
    let folder = folder();
    let report = succeeding(folder.path(), &["doctor", "sh"]);
    assert!(report.contains("✓ exact"), "{report}");
    for topic in ["processor", "kernel", "hardware counters", "shared memory", "linkage", "debug information"]
    {
        assert!(report.contains(topic), "{topic}:\n{report}");
    }
    let output = call(folder.path(), &["doctor", "no-such-program-here"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(stdout(&output).contains("✗ file"));
}

//! What a profile says of a process that ran before, where there was little to record.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{call, compiled, stderr, succeeding};

/// Records a process for a second or so; the notes of its profile.
fn notes(folder: &Path, mode: &str, child: &Child, seconds: &str) -> String {
    let pid = child.id().to_string();
    let words =
        ["record", "--mode", mode, "--pid", &pid, "--duration", seconds, "--quiet", "--force", "--out", "p"];
    let output = call(folder, &words);
    assert_eq!(output.status.code(), Some(0), "{mode}: {}", stderr(&output));
    let report = succeeding(folder, &["report", "p", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let notes = report["run"]["notes"].as_array().expect("a list").iter().filter_map(|note| note.as_str());
    notes.collect::<Vec<_>>().join("\n")
}

#[test]
fn an_idle_process_is_told_from_its_children() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut parent = Command::new("sh")
        .args(["-c", "sleep 100 & echo $!; trap 'kill $!; exit' TERM; wait"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut child = String::new();
    BufReader::new(parent.stdout.take().expect("piped")).read_line(&mut child).expect("readable");
    let child = child.trim();
    for (mode, nothing) in [("burst", "No burst was recorded"), ("sample", "No sample was taken")] {
        let notes = notes(folder.path(), mode, &parent, "1");
        // Reports show the first two.
        assert!(notes.starts_with("1 child of the process began before"), "{notes}");
        assert!(notes.contains(child), "{child}: {notes}");
        assert!(notes.contains(nothing), "{notes}");
        assert!(!notes.contains("--mode exact"), "which cannot attach: {notes}");
    }
    succeeding_kill(&parent);
    parent.wait().expect("it ends");
}

/// So that it can end its own child.
fn succeeding_kill(process: &Child) {
    let status = Command::new("kill").args(["-TERM", &process.id().to_string()]).status();
    assert!(status.expect("kill(1)").success());
}

/// Nearly all in system calls, in which no burst begins; little besides.
const CALLS: &str = r#"
#include <unistd.h>
int main(void)
{
    char byte;
    int ends[2];
    if (pipe(ends))
        return 1;
    for (;;)
        if (write(ends[1], "x", 1) != 1 || read(ends[0], &byte, 1) != 1)
            return 1;
}
"#;

#[test]
fn few_bursts_of_a_long_run_are_not_called_short() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "calls", CALLS, &["-O1", "-g"]);
    let mut child = Command::new(program).spawn().expect("it starts");
    let notes = notes(folder.path(), "burst", &child, "2");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(notes.contains("Bursts ended at system calls, after "), "{notes}");
    assert!(!notes.contains("Too short") && !notes.contains("--mode exact"), "{notes}");
}

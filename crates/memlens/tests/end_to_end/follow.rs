//! `memlens run --follow` from end to end, on programs that every system has.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{call, failing, memlens, stderr, stdout, succeeding, wait_until};

fn follow(folder: &Path, script: &str) -> Output {
    let words = ["run", "--quiet", "--force", "--follow", "children", "--out", "p", "--", "sh", "-c", script];
    call(folder, &words)
}

/// The columns of each process: number, process id, parent, how it ended, instructions, accesses, command.
fn processes(folder: &Path) -> Vec<Vec<String>> {
    let table = succeeding(folder, &["report", "--processes", "p"]);
    table.lines().skip(1).map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

fn json(folder: &Path, words: &[&str]) -> serde_json::Value {
    let report = succeeding(folder, &[&["report", "p", "--format", "json"], words].concat());
    serde_json::from_str(&report).expect("valid JSON")
}

fn accesses(report: &serde_json::Value) -> u64 {
    ["loads", "stores"].iter().map(|key| report["totals"][key].as_u64().expect("a count")).sum()
}

#[test]
fn each_process_of_a_pipeline_has_a_profile_and_the_merged_one_is_their_sum() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = follow(folder.path(), "printf 'b\\na\\n' | sort; exit 3");
    assert_eq!((output.status.code(), stdout(&output)), (Some(3), "a\nb\n".into()), "{}", stderr(&output));
    let processes = processes(folder.path());
    // The shell, its two children, and sort, which one of them becomes; printf may be the shell's own.
    assert!((4..=5).contains(&processes.len()), "{processes:?}");
    let sort = processes.iter().find(|process| process[6] == "sort").expect("sort is recorded");
    assert_eq!(sort[3], "0");
    assert_eq!(sort[2], processes[0][1], "sort is a child of the shell");
    let before = processes.iter().find(|process| process[1] == sort[1]).expect("the forked shell");
    assert_eq!((before[3].as_str(), before[6].as_str()), ("exec", "sh"));
    let parts: u64 =
        processes.iter().map(|process| accesses(&json(folder.path(), &["--process", &process[0]]))).sum();
    let whole = json(folder.path(), &[]);
    assert_eq!(accesses(&whole), parts);
    assert_eq!(whole["run"]["exit_code"], 3);
    // By process id, the last program of the process.
    let by_id = json(folder.path(), &["--process", &sort[1]]);
    assert_eq!(by_id["run"]["command"][0], "sort");
    let complaint = failing(folder.path(), &["report", "p", "--process", "99999999"], 64);
    assert!(complaint.contains("memlens report --processes"), "{complaint}");
}

#[test]
fn a_program_that_executes_another_is_two() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = follow(folder.path(), "exec sh -c 'exit 6'");
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    let processes = processes(folder.path());
    assert_eq!(processes.len(), 2, "{processes:?}");
    assert_eq!((processes[0][1].clone(), processes[0][3].as_str()), (processes[1][1].clone(), "exec"));
    assert_eq!(json(folder.path(), &[])["run"]["exit_code"], 6);
}

#[test]
fn a_wrapper_script_is_followed_unless_that_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // A child that executes something is another process, and the failed execution changes nothing.
    let script = "(exec ls -d /); (exec /nonexistent) 2>/dev/null; exec env sh -c 'echo $0; exit 6' name";
    let words = ["run", "--mode", "exact", "--force", "--out", "p"];
    let run = |options: &[&str]| {
        let output = call(folder.path(), &[&words, options, &["--", "sh", "-c", script]].concat());
        assert_eq!(
            (output.status.code(), stdout(&output)),
            (Some(6), "/\nname\n".into()),
            "{}",
            stderr(&output)
        );
        output
    };
    let shown = stderr(&run(&["--flush-every", "1"]));
    assert!(shown.contains("merged from 3 programs that the process executed one after another"), "{shown}");
    let programs = processes(folder.path());
    let ends: Vec<_> = programs.iter().map(|program| (&program[3][..], &program[6][..])).collect();
    assert_eq!(ends, [("exec", "sh"), ("exec", "env"), ("6", "sh")]);
    assert!(programs.iter().all(|program| program[1] == programs[0][1]), "{programs:?}");
    let parts: u64 =
        programs.iter().map(|program| accesses(&json(folder.path(), &["--process", &program[0]]))).sum();
    let whole = json(folder.path(), &[]);
    assert_eq!((accesses(&whole), &whole["run"]["exit_code"]), (parts, &6.into()));

    let shown = stderr(&run(&["--follow", "none"]));
    assert!(shown.contains("executed another one in its place"), "{shown}");
    assert!(accesses(&json(folder.path(), &[])) < parts);
    failing(folder.path(), &["report", "--processes", "p"], 64);
}

#[test]
fn a_program_that_executes_nothing_has_its_profile_for_itself() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = call(
        folder.path(),
        &["run", "--mode", "exact", "-q", "-o", "p", "--", "sh", "-c", "ls / >&2; exit 4"],
    );
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(!folder.path().join("p/processes").exists());
    let report = json(folder.path(), &[]);
    assert_eq!(report["run"]["exit_code"], 4, "{}", report["run"]);
    assert_eq!(report["attribution"]["truncated"], false, "{}", report["attribution"]);
}

#[test]
fn what_outlives_the_program_is_waited_for() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = follow(folder.path(), "(sleep 2; echo late >late) & echo gone");
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), "gone\n".into()), "{}", stderr(&output));
    assert!(folder.path().join("late").exists());
    let sleep = processes(folder.path()).into_iter().find(|process| process[6] == "sleep");
    assert_eq!(sleep.expect("sleep is recorded")[3], "0");
}

#[test]
fn an_interrupt_while_waiting_ends_the_recording_and_not_the_processes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // No pipe: the processes left behind would keep it open.
    let messages = std::fs::File::create(folder.path().join("messages")).expect("writable");
    let mut child = memlens(folder.path())
        .args(["run", "--follow", "children", "--out", "p", "--", "sh", "-c"])
        .arg("(while [ ! -e go ]; do sleep 0.1; done; echo done >done) & echo gone")
        .stdout(Stdio::null())
        .stderr(messages)
        .spawn()
        .expect("runs");
    // It says so when it has waited for a second. SIGTERM, because a shell in the background ignores SIGINT.
    let said = folder.path().join("messages");
    wait_until(|| std::fs::read_to_string(&said).is_ok_and(|text| text.contains("waiting for")));
    let told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill is there");
    assert!(told.success());
    let status = child.wait().expect("ends");
    let messages = std::fs::read_to_string(folder.path().join("messages")).expect("readable");
    assert_eq!(status.code(), Some(0), "{messages}");
    assert!(messages.contains("waiting for"), "{messages}");
    let table = succeeding(folder.path(), &["report", "p"]);
    assert!(table.contains("profile ends before the program did"), "{table}");
    std::fs::write(folder.path().join("go"), "").expect("writable");
    wait_until(|| folder.path().join("done").exists());
}

#[test]
fn a_killed_memlens_leaves_profiles_of_all_processes_and_unharmed_programs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Who reads from it waits until somebody writes.
    let pipe = Command::new("mkfifo").arg(folder.path().join("go")).status().expect("mkfifo is there");
    assert!(pipe.success());
    let mut child = memlens(folder.path())
        .args([
            "run",
            "--quiet",
            "--follow",
            "children",
            "--flush-every",
            "1",
            "--out",
            "p",
            "--",
            "sh",
            "-c",
        ])
        .arg("cat go; echo done >done")
        .spawn()
        .expect("runs");
    let flushed = || {
        let folders = std::fs::read_dir(folder.path().join("p/processes")).into_iter().flatten().flatten();
        folders.filter(|entry| entry.path().join("profile.json").exists()).count()
    };
    // The shell, and the process that becomes cat; whether the shell forks for it is its own affair.
    wait_until(|| flushed() >= 2);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let table = succeeding(folder.path(), &["report", "p"]);
    assert!(table.contains("profile ends before the program did"), "{table}");
    let told =
        || OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(folder.path().join("go"));
    wait_until(|| told().is_ok());
    wait_until(|| folder.path().join("done").exists());
}

#[test]
fn programs_go_on_alone_where_the_engine_was_removed() {
    for script in ["rm -r cache; exec sh -c 'exit 6'", "rm -r cache; sh -c 'exit 6'; exit $?"] {
        for options in [&["--mode", "exact"][..], &["--follow", "children"], &["--mode", "burst"]] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let output = memlens(folder.path())
                .env("XDG_CACHE_HOME", folder.path().join("cache"))
                .arg("run")
                .args(options)
                .args(["--out", "p", "--", "sh", "-c", script])
                .output()
                .expect("memlens is there");
            let complaint = stderr(&output);
            assert_eq!(output.status.code(), Some(6), "{options:?} {script}: {complaint}");
            // The dynamic linker's own complaint: that an object cannot be preloaded.
            assert!(!complaint.contains("ERROR: ld.so"), "{options:?} {script}: {complaint}");
            let is_cut = options[0] == "--follow" || (script.contains("exec") && options[1] == "exact");
            let notes = json(folder.path(), &[])["attribution"]["notes"].to_string();
            let is_told = notes.contains("the engine's files were removed");
            assert_eq!(is_told, is_cut, "{options:?} {script}: {notes}");
        }
    }
}

#[test]
fn a_trace_is_of_one_process() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let words = ["run", "--follow", "children", "--trace", "text", "--", "true"];
    let complaint = failing(folder.path(), &words, 64);
    assert!(complaint.contains("--follow children"), "{complaint}");
    let output = call(folder.path(), &["run", "--mode", "exact", "--quiet", "--out", "one", "--", "true"]);
    assert_eq!(output.status.code(), Some(0));
    let complaint = failing(folder.path(), &["report", "one", "--processes"], 64);
    assert!(complaint.contains("--mode exact --follow children"), "{complaint}");
}

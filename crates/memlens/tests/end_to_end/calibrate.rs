//! `memlens calibrate`, and who uses what it measured.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::CALIBRATION;
use serde_json::Value;

fn memlens(home: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memlens"));
    command.args(words).env("XDG_CONFIG_HOME", home).env("XDG_CACHE_HOME", home.join("cache"));
    command.env_remove("MEMLENS_CALIBRATION").output().expect("it starts")
}

/// The machine of a profile that exact mode made with these words.
fn recorded_machine(home: &Path, words: &[&str]) -> Value {
    let profile = home.join("p");
    let profile = profile.to_str().expect("text");
    let record = ["record", "--quiet", "--force", "--mode", "exact", "--out", profile];
    let output = memlens(home, &[&record, words, &["--", "true"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = memlens(home, &["report", "--format", "json", profile]);
    let mut report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    report["machine"].take()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn measuring_shows_a_table_and_writes_a_file_unless_the_machine_is_busy() {
    let home = tempfile::tempdir().expect("a folder");
    let output = memlens(home.path(), &["calibrate"]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    for expected in ["first level", "last level", "memory", "walked through"] {
        assert!(stdout.contains(expected), "{expected} is not in:\n{stdout}\n{stderr}");
    }
    let file = home.path().join("memlens/calibration.toml");
    match output.status.code() {
        Some(0) => assert!(stderr.contains("written to") && file.exists(), "{stderr}"),
        // Other tests run beside this one.
        Some(75) => {
            assert!(stderr.contains("too busy") && stderr.contains('%') && !file.exists(), "{stderr}")
        }
        other => panic!("{other:?}: {stderr}"),
    }
    let doctor = text(&memlens(home.path(), &["doctor"]).stdout);
    let line = doctor.lines().find(|line| line.contains("calibration")).expect("doctor speaks of it");
    assert_eq!(line.contains("there is none"), !file.exists(), "{line}");
}

#[test]
fn exact_mode_weights_accesses_by_what_was_measured() {
    let home = tempfile::tempdir().expect("a folder");
    let file = home.path().join("by_hand.toml");
    fs::write(&file, CALIBRATION).expect("written");
    let machine = recorded_machine(home.path(), &["--calibration", file.to_str().expect("text")]);
    let latencies = &machine["latencies"];
    let of = |name: &str| latencies[name].as_u64();
    assert_eq!((of("l1_cycles"), of("dram_cycles")), (Some(5), Some(333)), "{latencies}");
    assert_eq!((of("stlb_cycles"), of("walk_access_cycles")), (Some(8), Some(44)), "{latencies}");
}

#[test]
fn the_first_run_measures_briefly_and_later_ones_take_it_from_there() {
    let home = tempfile::tempdir().expect("a folder");
    let kept = |home: &Path| {
        let files = fs::read_dir(home.join("cache/memlens")).expect("a folder");
        let paths = files.map(|file| file.expect("an entry").path());
        paths.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect::<Vec<_>>()
    };
    let assumed = recorded_machine(home.path(), &["--calibration", "none"]);
    assert_eq!(assumed["latencies_assumed"], true);
    assert!(kept(home.path()).is_empty(), "nothing is measured");
    let first = recorded_machine(home.path(), &[]);
    let file = kept(home.path()).pop().expect("what was measured");
    let doctor = text(&memlens(home.path(), &["doctor"]).stdout);
    // Other tests run beside this one: what is not believed is assumed.
    assert_eq!(
        doctor.contains("measured briefly (first level"),
        first["latencies_assumed"] == false,
        "{doctor}"
    );
    // Later runs go by the file.
    let kept_text = fs::read_to_string(&file).expect("readable");
    let by_hand = CALIBRATION.replace("an abacus", kept_text.split('"').nth(1).expect("the processor"));
    fs::write(&file, by_hand).expect("written");
    let second = recorded_machine(home.path(), &[]);
    assert_eq!(second["latencies"]["dram_cycles"], 333, "{second}");
    let shown =
        text(&memlens(home.path(), &["report", home.path().join("p").to_str().expect("text")]).stdout);
    assert!(shown.contains("latencies measured briefly"), "{shown}");
    // Another machine's are its description's.
    let other = recorded_machine(home.path(), &["--machine", "e5504"]);
    assert_ne!(other["latencies"]["dram_cycles"], 333, "{other}");
}

#[test]
fn a_calibration_that_is_none_is_refused() {
    let home = tempfile::tempdir().expect("a folder");
    let file = home.path().join("c.toml");
    fs::write(&file, "format = 1\n").expect("written");
    let run = |file: &str| {
        let output = memlens(home.path(), &["run", "--calibration", file, "--", "true"]);
        (output.status.code(), text(&output.stderr))
    };
    let (code, message) = run(file.to_str().expect("text"));
    assert!(code == Some(65) && message.contains("no calibration"), "{code:?} {message}");
    let (code, message) = run("/nowhere/c.toml");
    assert!(code == Some(66) && message.contains("/nowhere/c.toml"), "{code:?} {message}");
}

#[test]
fn the_users_own_is_used_only_on_its_processor() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("memlens");
    fs::create_dir_all(&folder).expect("created");
    fs::write(folder.join("calibration.toml"), CALIBRATION).expect("written");
    let profile = home.path().join("p");
    let output = memlens(home.path(), &["record", "--out", profile.to_str().expect("text"), "--", "true"]);
    let stderr = text(&output.stderr);
    assert!(output.status.success() && stderr.contains("an abacus"), "{stderr}");
    let doctor = text(&memlens(home.path(), &["doctor"]).stdout);
    assert!(doctor.contains("is of another processor: an abacus"), "{doctor}");
}

//! `memlens check` through the command line, on real profiles.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::compiled;
use serde_json::Value;

/// Adds up an array, then `PASSES` times a column of it, a line a word.
const COLUMNS: &str = r#"
#include <stdlib.h>
enum { ROWS = 1 << 10, COLUMNS = 64 };
int main(void)
{
    long *matrix = calloc(ROWS * COLUMNS, sizeof *matrix);
    long sum = 0;
    for (long i = 0; i < ROWS * COLUMNS; i++)
        sum += matrix[i];
    for (long pass = 0; pass < PASSES; pass++)
        for (long row = 0; row < ROWS; row++)
            sum += matrix[row * COLUMNS + pass];
    return sum != 0;
}
"#;

fn memlens(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memlens"));
    command.args(arguments).env("MEMLENS_CALIBRATION", "none").env("COLUMNS", "400");
    command
}

fn recorded(folder: &Path, mode: &str, passes: u32) -> PathBuf {
    let profile = folder.join(format!("{mode}-{passes}"));
    let defined = format!("-DPASSES={passes}");
    let program = compiled(folder, "program", COLUMNS, &["-O1", "-g", &defined]);
    let mut command = memlens(&["record", "--quiet", "--machine", "cachegrind", "--mode", mode, "--out"]);
    let output = command.arg(&profile).arg("--").arg(program).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    profile
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_change_that_costs_misses_fails_and_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (before, after) = (recorded(folder.path(), "exact", 1), recorded(folder.path(), "exact", 8));
    let check = |profile: &Path, words: &[&str]| -> Output {
        let mut command = memlens(&["check", "--baseline"]);
        command.arg(&before).arg(profile).args(words).output().expect("it starts")
    };
    // 8,192 lines of 64 bytes, then 1,024 a pass, of which none stays in 32 KiB.
    let grown = check(&after, &["--fail-if", "matrix:l1_misses > +10%", "--fail-if", "loads > +1G"]);
    let shown = text(&grown.stdout);
    assert_eq!(grown.status.code(), Some(1), "{grown:?}");
    let lines: Vec<&str> = shown.lines().collect();
    assert!(
        lines[0].starts_with("FAIL    matrix:l1_misses > +10% · matrix (heap) · main program.c:6 · "),
        "{shown}"
    );
    assert!(lines[0].ends_with("9.22k → 16.4k (+77.8 %) · limit 10.1k"), "{shown}");
    assert!(lines[1].starts_with("ok      loads > +1G · "), "{shown}");
    assert_eq!(lines[2..], ["2 conditions: 1 fails"]);
    let same = check(&before, &["--fail-if", "*:l1_misses > +0%"]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");

    let output = check(&after, &["--fail-if", "*:l1_misses > +10%", "--format", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&document["schema"], &document["passes"]), (&"memlens-check/1".into(), &false.into()));
    let held = &document["conditions"][0]["held"][0];
    assert_eq!((&held["name"], &held["verdict"]), (&"matrix".into(), &"fails".into()), "{document}");
    assert_eq!((held["baseline"].as_f64(), held["value"].as_f64()), (Some(9216.0), Some(16384.0)));

    let conditions = folder.path().join("budgets");
    std::fs::write(&conditions, "# what we hold\nmatrix:l1_misses > +10%\n\nl1_misses > 1G\n")
        .expect("written");
    let output = check(&after, &["--format", "junit", "--conditions", conditions.to_str().expect("UTF-8")]);
    let xml = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(xml.contains(r#"tests="2""#) && xml.contains(r#"failures="1""#), "{xml}");
    assert!(xml.contains("matrix:l1_misses &gt; +10%"), "{xml}");
}

#[test]
fn what_cannot_be_checked_is_no_failed_check() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let exact = recorded(folder.path(), "exact", 1);
    let conditions = folder.path().join("budgets");
    let check = |words: &[&str]| {
        let output = memlens(&["check"]).arg(&exact).args(words).output().expect("it starts");
        assert!(output.stdout.is_empty(), "{output:?}");
        (output.status.code(), text(&output.stderr))
    };
    let (code, message) = check(&["--fail-if", "l1_misses > +5%"]);
    assert!(code == Some(64) && message.contains("--baseline"), "{message}");
    let (code, message) = check(&["--fail-if", "matrx:l1_misses > 1"]);
    assert!(code == Some(64) && message.contains("did you mean ‘matrix’"), "{message}");
    let (code, message) = check(&["--fail-if", "l1_mises > 1"]);
    assert!(code == Some(64) && message.contains("did you mean ‘l1_misses’"), "{message}");
    assert_eq!(check(&[]).0, Some(64));
    let path = conditions.to_str().expect("UTF-8");
    let (code, message) = check(&["--conditions", path]);
    assert!(code == Some(66) && message.contains("budgets"), "{message}");
    for (content, part) in
        [("# none\n", "has no condition"), ("loads > 1\nloads > x\n", "line 2: ‘x’ is no limit")]
    {
        std::fs::write(&conditions, content).expect("written");
        let (code, message) = check(&["--conditions", path]);
        assert!(code == Some(65) && message.contains(part), "{message}");
    }
    let other = folder.path().join("nothing");
    let (code, message) = check(&["--fail-if", "loads > +1", "--baseline", other.to_str().expect("UTF-8")]);
    assert!(code == Some(66) && message.contains("nothing"), "{message}");
}

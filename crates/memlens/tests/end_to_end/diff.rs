//! `memlens diff` through the command line, on real profiles.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::compiled;
use serde_json::Value;

/// Adds up pairs of numbers, which lie side by side or in two arrays, and goes through a matrix by its columns.
const SUMS: &str = r#"
#include <stdlib.h>
enum { ROWS = 1 << 10, COLUMNS = 64 };
#ifdef APART
static struct { double *first, *second; } pairs;
#define FIRST(i) pairs.first[i]
#define SECOND(i) pairs.second[i]
#else
struct pair { double first, second; };
#define FIRST(i) pairs[i].first
#define SECOND(i) pairs[i].second
#endif
int main(void)
{
    long *matrix = calloc(ROWS * COLUMNS, sizeof *matrix);
#ifdef APART
    pairs.first = calloc(ROWS, sizeof *pairs.first);
    pairs.second = calloc(ROWS, sizeof *pairs.second);
#else
    struct pair *pairs = calloc(ROWS, sizeof *pairs);
#endif
    long sum = 0;
    for (long pass = 0; pass < PASSES; pass++)
        for (long row = 0; row < ROWS; row++)
            sum += matrix[row * COLUMNS + pass];
    double other = 0;
    for (long i = 0; i < ROWS; i++)
        other += FIRST(i) + SECOND(i);
    return sum + other != 0;
}
"#;

fn memlens(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memlens"));
    command.args(arguments).env("MEMLENS_CALIBRATION", "none").env("COLUMNS", "400");
    command
}

fn recorded(folder: &Path, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let profile = folder.join(format!("{name}.memlens"));
    let program = compiled(folder, name, source, &[&["-O1", "-g"], options].concat());
    let mut command = memlens(&["record", "--quiet", "--machine", "cachegrind", "--mode", "exact", "--out"]);
    let output = command.arg(&profile).arg("--").arg(program).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    profile
}

fn held(a: &Path, b: &Path, words: &[&str]) -> Output {
    memlens(&["diff"]).args([a, b]).args(words).output().expect("it starts")
}

fn document(a: &Path, b: &Path, words: &[&str]) -> Value {
    let output = held(a, b, &[words, &["--format", "json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn row<'a>(document: &'a Value, name: &str) -> &'a Value {
    let mut rows = document["rows"].as_array().expect("rows").iter();
    rows.find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name} in {document}"))
}

#[test]
fn what_a_change_of_data_and_code_did_is_told() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let before = recorded(folder.path(), "before", SUMS, &["-DPASSES=2"]);
    // Two lines more at the head, six passes more, and structures apart.
    let after = recorded(folder.path(), "after", &format!("\n\n{SUMS}"), &["-DPASSES=8", "-DAPART"]);

    let objects = document(&before, &after, &["--of", "loads"]);
    assert_eq!((&objects["schema"], &objects["unit"]), (&"memlens-diff/1".into(), &"loads".into()));
    let amounts = |name| {
        let row = row(&objects, name);
        (row["a"].as_f64(), row["b"].as_f64(), row["change"].as_f64())
    };
    // 1,024 loads a pass; each pair is read once.
    assert_eq!(amounts("matrix"), (Some(2048.0), Some(8192.0), Some(6144.0)));
    assert_eq!(amounts("pairs"), (Some(2048.0), None, Some(-2048.0)));
    assert_eq!(amounts("pairs.first"), (None, Some(1024.0), Some(1024.0)));
    assert_eq!(objects["rows"][0]["name"], "matrix", "the largest change comes first");

    let lines = document(&before, &after, &["--by", "line", "--of", "loads"]);
    let text = "sum += matrix[row * COLUMNS + pass];";
    let at = 1 + SUMS.lines().position(|line| line.trim() == text).expect("it is there");
    let moved = row(&lines, &format!("after.c:{}", at + 2));
    assert_eq!(moved["a"], Value::Null, "another file");
    let same_file = document(&before, &before, &["--by", "line", "--of", "loads"]);
    assert_eq!(row(&same_file, &format!("before.c:{at}"))["change"].as_f64(), Some(0.0));

    let shown = held(&before, &after, &["--of", "loads"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let of = |word: &str| shown.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{shown}"));
    assert!(of("matrix").contains("+6.14k") && of("matrix").contains("× 4.00"), "{shown}");
    assert!(of("pairs.second").contains("new") && shown.contains("gone"), "{shown}");
    let csv = held(&before, &after, &["--of", "loads", "--format", "csv", "--top", "1"]);
    assert_eq!(String::from_utf8_lossy(&csv.stdout).lines().count(), 2);
}

#[test]
fn lines_that_moved_are_found_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let before = recorded(folder.path(), "program", SUMS, &["-DPASSES=2"]);
    let kept = folder.path().join("kept.memlens");
    std::fs::rename(&before, &kept).expect("it is ours");
    let after = recorded(folder.path(), "program", &format!("\n\n{SUMS}"), &["-DPASSES=8"]);
    let lines = document(&kept, &after, &["--by", "line", "--of", "loads"]);
    let text = "sum += matrix[row * COLUMNS + pass];";
    let at = 1 + SUMS.lines().position(|line| line.trim() == text).expect("it is there");
    let moved = row(&lines, &format!("program.c:{}", at + 2));
    assert_eq!(moved["name_a"], format!("program.c:{at}"));
    assert_eq!((moved["a"].as_f64(), moved["b"].as_f64()), (Some(2048.0), Some(8192.0)));
    let functions = document(&kept, &after, &["--by", "function", "--of", "loads"]);
    let main = row(&functions, "main");
    let change = main["change"].as_f64().expect("a number");
    assert!((6144.0..6400.0).contains(&change), "six passes more, and little else: {main}");
}

#[test]
fn runs_tell_by_how_much_they_differ() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // One program, which is built anew between.
    let [a, b] = [2, 8].map(|passes| {
        [1, 2].map(|run| {
            let made = recorded(folder.path(), "program", SUMS, &[&format!("-DPASSES={passes}")]);
            let kept = folder.path().join(format!("{passes}-{run}"));
            std::fs::rename(made, &kept).expect("it is ours");
            kept
        })
    });
    let mut command = memlens(&["diff", "--of", "loads", "--format", "json"]);
    let output = command.args(&a).arg("--").args(&b).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let matrix = row(&document, "matrix");
    assert_eq!((matrix["a"].as_f64(), matrix["b"].as_f64()), (Some(2048.0), Some(8192.0)), "means: {matrix}");
    // As many in each run.
    let low = matrix["change_ci95"][0].as_f64();
    assert_eq!((low, &matrix["beyond_chance"]), (Some(6144.0), &true.into()), "{matrix}");
}

#[test]
fn what_has_no_difference_is_one_message() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let profile = recorded(folder.path(), "program", SUMS, &["-DPASSES=1"]);
    for (words, code, message) in [
        (&["--of", "name"][..], 64, "is no amount"),
        (&["--of", "stall_cycles"], 64, "has no stall_cycles"),
        (&["--of", "lods"], 64, "loads"),
        (&["--format", "json", "--top", "3"], 64, "--top does not go with"),
    ] {
        let output = held(&profile, &profile, words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(message) && output.stdout.is_empty(), "{words:?}: {said}");
    }
    let output = held(&profile, &folder.path().join("absent"), &[]);
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    let code =
        |profiles: &[&Path]| memlens(&["diff"]).args(profiles).output().expect("it starts").status.code();
    assert_eq!(code(&[&profile]), Some(64), "one is not enough");
    assert_eq!(code(&[&profile, &profile, &profile]), Some(64), "which are which?");
    assert_eq!(code(&[&profile, &profile, Path::new("--"), &profile]), Some(64), "one run twice");
    assert_eq!(code(&[&profile, Path::new("--"), &profile]), Some(0));
    assert_eq!(
        code(&[&profile, Path::new("--"), &profile, Path::new("--by")]),
        Some(64),
        "an option is no profile"
    );
}

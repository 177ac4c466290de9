//! `memlens run --trace` from end to end, on programs whose accesses are counted by hand. They need the
//! recording engine, x86-64 Linux and a C compiler.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{call, failing, memlens, stderr, stdout, succeeding};

/// `volatile` fixes which accesses the compiler has to make, in this order.
const WALK: &str = "\
#include <stdlib.h>
volatile int table[4];
int main(void) {
    volatile long local[3];
    volatile char *block = malloc(5);
    for (int i = 0; i < 4; i++) table[i];
    for (int i = 0; i < 3; i++) local[i] = i;
    table[3] = 7;
    block[4] = 1;
    free((void *)block);
    return 0;
}
";

fn compile(folder: &Path, source: &Path, options: &[&str]) -> PathBuf {
    let program = folder.join(source.file_stem().expect("a name"));
    let status = Command::new("cc").arg("-g").args(options).arg(source).arg("-o").arg(&program).status();
    assert!(status.expect("a C compiler").success());
    program
}

fn folder_with_walk() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join("walk.c");
    fs::write(&source, WALK).expect("written");
    let program = compile(folder.path(), &source, &["-O0"]);
    let program = program.to_str().expect("a plain name").to_owned();
    (folder, program)
}

/// The lines of a text trace with addresses as distances to the first one, site numbers and folders left out.
fn lines(folder: &Path, program: &str, filter: &str) -> Vec<String> {
    let words =
        ["run", "-q", "--force", "--out", "p", "--trace=text", "--trace-out=t", "--trace-filter", filter];
    let output = memlens(folder).args(words).args(["--", program]).output().expect("runs");
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    let text = fs::read_to_string(folder.join("t")).expect("the trace");
    let mut lines = text.lines();
    assert!(lines.next().expect("a header").starts_with("# memlens trace, version 1"));
    assert!(lines.next().expect("a thread").starts_with("# thread "));
    let mut first = None;
    lines
        .map(|line| {
            let (kind, rest) = line.split_once(' ').expect("a kind");
            let (address, rest) = rest.split_once(' ').expect("an address");
            let address = u64::from_str_radix(address, 16).expect("hexadecimal");
            let distance = address - *first.get_or_insert(address);
            let rest = rest.replace(&format!("{}/", folder.display()), "");
            let rest = rest.split("site ").next().expect("a part").to_owned();
            format!("{kind} @{distance} {rest}")
        })
        .collect()
}

#[test]
fn lines_are_those_derived_by_hand() {
    let (folder, program) = folder_with_walk();
    // Line 6 loads four ints in order, line 8 stores the last; `table` is declared in line 2.
    let expected = [
        "load @0 4 global table+0 [walk.c:2]",
        "load @4 4 global table+4 [walk.c:2]",
        "load @8 4 global table+8 [walk.c:2]",
        "load @12 4 global table+12 [walk.c:2]",
        "store @12 4 global table+12 [walk.c:2]",
    ];
    assert_eq!(lines(folder.path(), &program, "object=table"), expected);
    // Line 7 stores three longs.
    let expected = [
        "store @0 8 local local+0 [walk.c:4]",
        "store @8 8 local local+8 [walk.c:4]",
        "store @16 8 local local+16 [walk.c:4]",
    ];
    assert_eq!(lines(folder.path(), &program, "object=\\local"), expected);
    // Line 9 stores the block's last byte; before and after that it is the allocator's.
    assert_eq!(lines(folder.path(), &program, "object=heap"), ["store @0 1 heap block+4 ["]);
}

/// The first columns of a trace as CSV, which have no quotes: instructions, thread, kind, address, size,
/// class, object; and the last, the code.
fn rows(path: &Path) -> Vec<Vec<String>> {
    let text = fs::read_to_string(path).expect("the trace");
    assert!(text.starts_with("instructions,thread,kind,address,size,class,object,"), "{}", &text[..80]);
    text.lines()
        .skip(1)
        .map(|line| {
            let mut columns: Vec<String> = line.split(',').take(7).map(str::to_owned).collect();
            columns.extend(line.rsplit(',').next().map(str::to_owned));
            columns
        })
        .collect()
}

#[test]
fn rows_say_which_code_and_after_how_many_instructions() {
    let (folder, program) = folder_with_walk();
    let words = ["record", "-q", "--out", "p", "--trace", "csv", "--trace-out", "t.csv", "--", &program];
    succeeding(folder.path(), &words);
    let rows = rows(&folder.path().join("t.csv"));
    // One thread: no access comes before the one of an earlier instruction, and none after the end.
    let instructions: Vec<u64> = rows.iter().map(|row| row[0].parse().expect("a number")).collect();
    assert!(instructions.is_sorted());
    let report = succeeding(folder.path(), &["report", "p", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&report).expect("valid JSON");
    let all = report["run"]["instructions"].as_u64().expect("counted");
    assert!(instructions[0] >= 1 && instructions.last().is_some_and(|last| *last <= all), "of {all}");

    let table = report["objects"].as_array().expect("a list").iter().find(|object| object["name"] == "table");
    let table = table.expect("table")["id"].to_string();
    let code = fs::read_to_string(folder.path().join("t.code.csv")).expect("the code table");
    let of_table: Vec<(u64, &str)> = rows
        .iter()
        .zip(&instructions)
        .filter(|(row, _)| row[6] == table)
        .map(|(row, &count)| {
            let line = code.lines().find(|line| line.starts_with(&format!("{},main,", row[7])));
            let line = line.expect("an instruction of main").split(',').nth(3).expect("a line");
            (count, line)
        })
        .collect();
    assert_eq!(of_table.iter().map(|(_, line)| *line).collect::<Vec<_>>(), ["6", "6", "6", "6", "8"]);
    // Every turn of the loop has the same instructions.
    let turn = of_table[1].0 - of_table[0].0;
    assert!((3..20).contains(&turn), "{turn}");
    assert_eq!(of_table[3].0 - of_table[0].0, 3 * turn);
}

/// Loads, stores, bytes loaded and bytes stored.
type Sums = [u64; 4];

fn sums_of_trace(path: &Path) -> BTreeMap<String, Sums> {
    let mut sums: BTreeMap<String, Sums> = BTreeMap::new();
    for row in rows(path) {
        let size: u64 = row[4].parse().expect("a number");
        let sum = sums.entry(row[6].clone()).or_default();
        if matches!(&*row[2], "load" | "modify") {
            sum[0] += 1;
            sum[2] += size;
        }
        if matches!(&*row[2], "store" | "modify") {
            sum[1] += 1;
            sum[3] += size;
        }
    }
    sums.retain(|_, sum| *sum != Sums::default());
    sums
}

fn sums_of_profile(folder: &Path, profile: &str) -> BTreeMap<String, Sums> {
    let report = succeeding(folder, &["report", profile, "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&report).expect("valid JSON");
    let objects = report["objects"].as_array().expect("a list").iter();
    let keys = ["loads", "stores", "load_bytes", "store_bytes"];
    objects
        .map(|object| (object["id"].to_string(), keys.map(|key| object[key].as_u64().expect("counted"))))
        .filter(|(_, sum)| *sum != Sums::default())
        .collect()
}

/// The trace looks every address up by itself, the profile keeps ranges.
#[test]
fn a_trace_adds_up_to_the_profile() {
    let (folder, program) = folder_with_walk();
    let programs: [&[&str]; 3] = [
        &[&program],
        // Libraries, reallocations, string instructions, a second process that is not recorded.
        &["sh", "-c", "ls -l / > listing; echo $(cat listing) > /dev/null"],
        &["ls", "-l", "/usr/bin"],
    ];
    for words in programs {
        for merge in [&[][..], &["--no-merge"]] {
            let output = memlens(folder.path())
                .args(["run", "-q", "--force", "--out", "p", "--trace", "csv", "--trace-out", "t.csv"])
                .args(merge)
                .arg("--")
                .args(words)
                .output()
                .expect("runs");
            assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
            let trace = sums_of_trace(&folder.path().join("t.csv"));
            let profile = sums_of_profile(folder.path(), "p");
            for (object, sum) in &profile {
                assert_eq!(trace.get(object), Some(sum), "{words:?} {merge:?}: object {object}");
            }
            assert_eq!(trace.len(), profile.len(), "{words:?} {merge:?}");
        }
    }
}

#[test]
fn parquet_takes_at_most_3_bytes_an_access() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/bfs/bfs.c");
    let program = compile(folder.path(), &source, &["-O2"]);
    let program = program.to_str().expect("a plain name");
    let output = call(folder.path(), &["run", "--out", "p", "--trace", "parquet", "--", program, "10"]);
    let messages = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{messages}");
    // memlens: the trace is in PATH: N accesses, M bytes
    let line =
        messages.lines().find(|line| line.starts_with("memlens: the trace is in ")).expect("a summary");
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [accesses, bytes] = numbers[..] else { panic!("{line}") };
    assert!(accesses > 1_000_000, "{line}");
    assert!(bytes <= 3 * accesses, "{line}");
    let place = line.split(' ').nth(5).expect("a path").trim_end_matches(':');
    let is_ours = |name: &str| name.starts_with("memlens.bfs.") && name.ends_with(".trace");
    assert!(is_ours(place), "{place}");
    for table in ["accesses", "objects", "code"] {
        assert!(folder.path().join(place).join(table).join("part-000001.parquet").exists(), "{table}");
    }
}

#[test]
fn a_limit_keeps_the_first_accesses() {
    let (folder, program) = folder_with_walk();
    let words = [
        "record",
        "--trace=text",
        "--trace-limit=2",
        "--trace-filter=object=table",
        "--out=p",
        "--",
        &program,
    ];
    let output = call(folder.path(), &words);
    assert_eq!(output.status.code(), Some(0));
    let names: Vec<String> = fs::read_dir(folder.path())
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".trace.txt"))
        .collect();
    let [name] = &names[..] else { panic!("{names:?}") };
    let trace = fs::read_to_string(folder.path().join(name)).expect("the trace");
    assert_eq!(trace.lines().filter(|line| line.starts_with("load ")).count(), 2, "{trace}");
    let expected = format!("memlens: the trace is in {name}: the first 2 accesses, {} bytes", trace.len());
    assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
}

#[test]
fn wrong_options_are_usage_errors() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cases: &[(&[&str], &str)] = &[
        (&["--trace", "paquet"], "did you mean ‘parquet’?"),
        (&["--trace", "text", "--trace-filter", "objct=x"], "did you mean ‘object’?"),
        (&["--trace", "text", "--trace-filter", "range=5-4"], "a range that is not empty"),
        (&["--trace-out", "t"], "--trace"),
        (&["--trace-limit", "5"], "--trace"),
    ];
    for (words, expected) in cases {
        let words: Vec<&str> = ["run"].iter().chain(*words).chain(&["--", "true"]).copied().collect();
        let message = failing(folder.path(), &words, 64);
        assert!(message.contains(expected), "{words:?}: {message}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0, "nothing was created");
}

#[test]
fn a_program_does_not_run_when_its_trace_cannot_be_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("mine"), "text").expect("written");
    fs::create_dir(folder.path().join("folder")).expect("created");
    let cases = [
        ("text", "mine", 73),
        ("csv", "no/such/folder/t", 73),
        ("parquet", "mine", 73),
        ("text", "folder", 73),
        ("text", "/dev/full", 74),
    ];
    for (format, place, code) in cases {
        let words =
            ["run", "--out", "p", "--trace", format, "--trace-out", place, "--", "sh", "-c", "touch ran"];
        let message = failing(folder.path(), &words, code);
        assert!(message.starts_with("memlens: cannot write the trace: "), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(!folder.path().join("p").exists() && !folder.path().join("ran").exists(), "{place}");
    }
    // Even --force leaves alone what is no trace.
    let words = ["run", "--force", "--trace=parquet", "--trace-out=folder/..", "--", "true"];
    failing(folder.path(), &words, 73);
    assert_eq!(fs::read_to_string(folder.path().join("mine")).expect("there"), "text");
}

#[test]
fn a_trace_that_stops_half_way_does_not_touch_the_program() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let memlens = env!("CARGO_BIN_EXE_memlens");
    // Whoever reads the trace leaves after the first thousand bytes.
    let script = format!(
        "mkfifo t; head -c 1000 t > begin & \
         exec '{memlens}' run -q --out p --trace text --trace-out t -- sh -c 'ls / > /dev/null; echo works; exit 5'"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(folder.path()).env("MEMLENS_CALIBRATION", "none");
    let output = command.output().expect("sh");
    assert_eq!((output.status.code(), stdout(&output)), (Some(5), "works\n".into()), "{}", stderr(&output));
    let messages = stderr(&output);
    assert!(messages.starts_with("memlens: cannot write the trace: t cannot be written: "), "{messages}");
    assert_eq!(messages.lines().count(), 1, "one message:\n{messages}");
    succeeding(folder.path(), &["report", "p"]);
    assert_eq!(fs::read(folder.path().join("begin")).expect("the trace's beginning").len(), 1000);
}

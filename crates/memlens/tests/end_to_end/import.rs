//! `memlens import lackey` on traces small enough to count by hand.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::support::{failing, memlens, stderr, succeeding};

/// 4 lines of messages, 6 accesses.
const TRACE: &str = "\
==7== Lackey, an example Valgrind tool
==7== Command: ./a.out
I  00400000,4
 L 00001000,8
 L 00001008,8
 S 00002000,4
 M 00001010,8
hello from the program
I  00400004,3
==7==
";

fn report(folder: &Path, profile: &str) -> serde_json::Value {
    let text = succeeding(folder, &["report", profile, "--format", "json"]);
    serde_json::from_str(&text).expect("valid JSON")
}

#[test]
fn totals_are_those_counted_by_hand() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("trace"), TRACE).expect("written");
    let words =
        ["import", "lackey", "trace", "--machine", "cachegrind", "--cache", "l1d=1024,2,64", "--out", "p"];
    succeeding(folder.path(), &words);
    let document = report(folder.path(), "p");
    let totals = &document["totals"];
    // The modify counts as a load and a store: 3 loads of 8 bytes; stores of 4 and 8.
    assert_eq!(totals["loads"], 3);
    assert_eq!(totals["stores"], 2);
    assert_eq!(totals["load_bytes"], 24);
    assert_eq!(totals["store_bytes"], 12);
    // 0x1000 to 0x103f is one line, which the first load brings; the store is on another one.
    assert_eq!(totals["l1_load_misses"], 1);
    assert_eq!(totals["l1_store_misses"], 1);
    assert_eq!(document["run"]["mode"], "import");
    assert_eq!(document["objects"][0]["kind"], "unknown");
}

#[test]
fn standard_input_will_do_and_nothing_is_overwritten() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let import = |more: &[&str]| {
        let mut child = memlens(folder.path())
            .args(["import", "lackey", "-", "--quiet", "--out", "p"])
            .args(more)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
        // memlens may refuse before it reads.
        let _ = child.stdin.take().expect("piped").write_all(TRACE.as_bytes());
        child.wait_with_output().expect("ends")
    };
    let first = import(&[]);
    assert_eq!((first.status.code(), stderr(&first)), (Some(0), String::new()));
    assert_eq!(import(&[]).status.code(), Some(73));
    assert_eq!(import(&["--force"]).status.code(), Some(0));
    assert_eq!(report(folder.path(), "p")["totals"]["loads"], 3);
}

#[test]
fn damage_is_reported_with_its_place_and_leaves_no_profile() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("damaged"), " L 00001000,8\n L 0000xy,8\n L 00001000,8\n").expect("written");
    let message = failing(folder.path(), &["import", "lackey", "damaged", "--out", "p"], 65);
    assert!(message.contains("damaged") && message.contains("line 2"), "{message}");
    assert!(!folder.path().join("p").exists());

    fs::write(folder.path().join("other"), "no trace\nat all\n").expect("written");
    let message = failing(folder.path(), &["import", "lackey", "other", "--out", "p"], 65);
    assert!(message.contains("no line of 2 is an access"), "{message}");
    failing(folder.path(), &["import", "lackey", "none", "--out", "p"], 66);
    assert!(!folder.path().join("p").exists());
}

#[test]
fn a_trace_cut_in_its_last_line_gives_a_profile_that_says_so() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("cut"), " L 00001000,8\n L 0000").expect("written");
    let output =
        memlens(folder.path()).args(["import", "lackey", "cut", "--out", "p"]).output().expect("runs");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("cut in line 2"), "{}", stderr(&output));
    assert_eq!(report(folder.path(), "p")["totals"]["loads"], 1);
    assert!(succeeding(folder.path(), &["report", "p"]).contains("profile ends before the program did"));
}

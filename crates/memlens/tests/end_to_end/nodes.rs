//! Memory nodes (NUMA), as exact mode models them.

use std::path::Path;

use crate::support::{compiled, succeeding};
use serde_json::Value;

/// Pages of each array, and rounds.
const PAGES: u64 = 1024;
const ROUNDS: u64 = 4;
const LINES_OF_A_PAGE: u64 = 64;

fn recorded(folder: &Path, more: &[&str]) -> Value {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/workloads/nodes.c");
    let source = std::fs::read_to_string(source).expect("in the repository");
    let program = compiled(folder, "nodes", &source, &["-O1", "-g", "-pthread"]);
    let program = program.to_str().expect("text");
    let [pages, rounds] = [PAGES, ROUNDS].map(|count| count.to_string());
    // A last level that holds nothing from one round to the next.
    let machine = ["--machine", "e5504", "--cache", "llc=256K,16,64", "--cache", "l2=64K,8,64"];
    let words = ["run", "--mode", "exact", "--quiet", "--force", "--out", "p"];
    let program = ["--", program, "2", &pages, &rounds];
    succeeding(folder, &[&words[..], &machine, more, &program].concat());
    serde_json::from_str(&succeeding(folder, &["report", "p", "--format", "json"])).expect("JSON")
}

fn count(report: &Value, name: &str, what: &str) -> Option<u64> {
    let objects = report["objects"].as_array().expect("a list");
    let is_it = |object: &&Value| object["name"] == name && object["kind"] == "mmap";
    objects.iter().find(is_it).unwrap_or_else(|| panic!("no {name}"))[what].as_u64()
}

#[test]
fn what_one_thread_fills_is_remote_to_the_others() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let report = recorded(folder.path(), &["--cache", "nodes=2"]);
    assert_eq!(report["machine"]["nodes"], 2);
    let remote = |name| count(&report, name, "remote_misses");
    // The second thread reads its half, each line of it once a round; of `shared` the whole.
    let half = PAGES / 2 * LINES_OF_A_PAGE * ROUNDS;
    assert_eq!((remote("serial"), remote("shared")), (Some(half), Some(2 * half)));
    assert_eq!((remote("parallel"), remote("returned")), (Some(0), Some(0)));
    // A page that is filled again is a new one.
    let first = |name| count(&report, name, "first_touches");
    assert_eq!(["serial", "parallel", "shared"].map(first), [Some(PAGES); 3]);
    assert_eq!(first("returned"), Some(2 * PAGES));
    // Of a page in the second half of `serial` node 0 has the 64 misses that filled it. From the 128th of the reader's 256 on these are two
    // thirds.
    assert_eq!(count(&report, "serial", "misplaced"), Some(PAGES / 2 * (256 - 127)));
    assert_eq!(count(&report, "shared", "misplaced"), Some(0));

    let advice = succeeding(folder.path(), &["advise", "p", "--top", "20"]);
    assert!(advice.contains("serial in the memory of the nodes that use it"), "{advice}");
    assert!(advice.contains("touched its 1.02k pages first, at nodes.c:"), "{advice}");
    let detail = succeeding(folder.path(), &["report", "p", "--object", "parallel"]);
    assert!(detail.contains("pages first touched: 512 by "), "{detail}");
}

#[test]
fn of_one_node_nothing_is_said() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let report = recorded(folder.path(), &[]);
    for what in ["remote_misses", "misplaced", "first_touches"] {
        assert_eq!(count(&report, "serial", what), None, "{what}");
    }
}

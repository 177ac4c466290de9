//! Translations of data that the kernel had in huge pages, in burst mode.

use std::path::Path;

use crate::support::{compiled, succeeding};
use serde_json::Value;

/// Reads 256 MiB at random, more than any TLB has entries for: in huge pages if an argument is given.
const TABLE: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
int main(int argc, char **argv)
{
    size_t entries = 1 << 25;
    long *table = aligned_alloc(2 << 20, entries * sizeof *table);
    madvise(table, entries * sizeof *table, argc > 1 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    for (size_t i = 0; i < entries; i++)
        table[i] = i;
    unsigned long state = 1, sum = 0;
    for (long i = 0; i < 40000000; i++) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        sum += table[state >> 39];
    }
    printf("%lu\n", sum);
    return 0;
}
"#;

/// The report, and its table.
fn recorded(folder: &Path, arguments: &[&str]) -> (Value, Value) {
    let program = compiled(folder, "table", TABLE, &["-O1", "-g"]);
    let program = program.to_str().expect("text");
    let words = ["run", "--mode", "burst", "--quiet", "--force", "--out", "p", "--", program];
    succeeding(folder, &[&words[..], arguments].concat());
    let report: Value =
        serde_json::from_str(&succeeding(folder, &["report", "p", "--format", "json"])).expect("JSON");
    let objects = report["objects"].as_array().expect("a list");
    let table = objects.iter().find(|object| object["name"] == "table").expect("a table").clone();
    (report, table)
}

#[test]
fn data_in_huge_pages_has_their_page_walks() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let walks = |table: &Value| {
        let [walks, loads] = ["stlb_misses", "loads"].map(|what| table[what].as_f64().expect("a number"));
        walks / loads
    };
    let told = |report: &Value| {
        let notes = report["run"]["notes"].as_array().expect("a list");
        notes
            .iter()
            .any(|note| note.as_str().is_some_and(|note| note.starts_with("table lay in huge pages: ")))
    };
    let (report, small) = recorded(folder.path(), &[]);
    // The STLBs of present machines reach a tenth of it.
    assert!(walks(&small) > 0.3 && !told(&report), "{small:#}");
    let (report, huge) = recorded(folder.path(), &["huge"]);
    let bytes = |what: &str| huge["backing"][what].as_f64().unwrap_or(0.0);
    let share = bytes("transparent_bytes") / (bytes("small_bytes") + bytes("transparent_bytes")).max(1.0);
    if share < 0.9 {
        return eprintln!("not checked: the kernel gave huge pages for {:.0} % of the table", 100.0 * share);
    }
    assert!(walks(&huge) < 0.15 && told(&report), "{huge:#}");
}

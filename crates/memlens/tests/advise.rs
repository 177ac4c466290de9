//! `memlens advise` of programs with known faults, in exact mode.

mod support;

use std::path::Path;

use serde_json::Value;
use support::{compiled, succeeding};

/// Eight arrays that one line allocates at eight call paths, each read at random places that another array says.
const PATHS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
enum { SIZE = 1 << 17 };
static int *chosen;
__attribute__((noipa)) static long *table(void) {
    long *part = calloc(SIZE, sizeof *part);
    part[0] = 1;
    return part;
}
__attribute__((noipa)) static long reads(const long *part) {
    long sum = 0;
    for (int at = 0; at < SIZE; at++) sum += part[chosen[at]];
    return sum;
}
int main(void) {
    chosen = malloc(SIZE * sizeof *chosen);
    unsigned long number = 1;
    for (int at = 0; at < SIZE; at++) {
        number = number * 6364136223846793005u + 1442695040888963407u;
        chosen[at] = number >> 47;
    }
    long sum = reads(table());
    sum += reads(table());
    sum += reads(table());
    sum += reads(table());
    sum += reads(table());
    sum += reads(table());
    sum += reads(table());
    sum += reads(table());
    puts(sum ? "done" : "nothing done");
    return 0;
}
"#;

/// What is advised after an exact run on a machine with a first level of 64 sets and a second of 512, for programs and for people.
fn advised(folder: &Path, source: &str, arguments: &[&str]) -> (Vec<Value>, String) {
    let program = compiled(folder, "program", source, &["-O2", "-g"]);
    let program = program.to_str().expect("text");
    let run =
        ["run", "--force", "--mode", "exact", "--machine", "e5504", "--quiet", "--out", "p", "--", program];
    assert_eq!(succeeding(folder, &[&run, arguments].concat()), "done\n");
    let advice = succeeding(folder, &["advise", "p", "--format", "json"]);
    let mut advice: Value = serde_json::from_str(&advice).expect("JSON");
    let Value::Array(findings) = advice["findings"].take() else { panic!("no list in {advice:#}") };
    (findings, succeeding(folder, &["advise", "p"]))
}

/// The report shows them as one row, and so does advice: one finding with the row's number, about eight objects.
#[test]
fn what_one_line_allocates_at_many_call_paths_is_one_finding() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (findings, text) = advised(folder.path(), PATHS, &[]);
    let prefetch: Vec<&Value> = findings.iter().filter(|finding| finding["remedy"] == "prefetch").collect();
    let [prefetch] = prefetch[..] else { panic!("{findings:#?}") };
    let objects = prefetch["objects"].as_array().expect("a list");
    assert!(objects.len() == 8 && objects[0] == prefetch["object"], "{prefetch:#}");
    assert_eq!(prefetch["title"], "prefetch part[chosen[…]]");
    let row = format!("#{}+7 part · heap · table program.c:", prefetch["object"]);
    assert!(text.contains(&row), "{row} in {text}");
    let report = succeeding(folder.path(), &["report", "p"]);
    assert!(report.contains(&format!("{}+7  part", prefetch["object"])), "{report}");
}

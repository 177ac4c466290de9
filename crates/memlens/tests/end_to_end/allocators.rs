//! What burst and sample mode say of small blocks, of those who make many, and of the allocator's own data.

use std::path::Path;
use std::process::Command;

use crate::support::{call, compiled, stderr, succeeding};
use serde_json::Value;

/// A table of 1 KiB that is made once and used all the time, and then 16 million blocks, of which 16,384 live at a time.
const BLOCKS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
    unsigned *weights = malloc(256 * sizeof *weights), state = 1;
    unsigned long sum = 0;
    for (int i = 0; i < 256; i++)
        weights[i] = i * 2654435761u;
    for (long i = 0; i < 100000000; i++) {
        state = state * 1664525 + 1013904223;
        sum += weights[state >> 24];
    }
    char **blocks = calloc(1 << 14, sizeof *blocks);
    for (long i = 0; i < 16000000; i++) {
        state = state * 1664525 + 1013904223;
        free(blocks[state >> 18]);
        blocks[state >> 18] = malloc(16 + (state >> 8) % 200);
    }
    printf("%lu\n", sum);
    return 0;
}
"#;

fn recorded(folder: &Path, mode: &str) -> Value {
    let program = compiled(folder, "blocks", BLOCKS, &["-O1", "-g"]);
    let native = Command::new(&program).output().expect("runs");
    let program = program.to_str().expect("text");
    let output = call(folder, &["run", "--mode", mode, "--quiet", "--force", "--out", "p", "--", program]);
    assert_eq!((output.status.code(), &output.stdout), (Some(0), &native.stdout), "{}", stderr(&output));
    serde_json::from_str(&succeeding(folder, &["report", "p", "--format", "json"])).expect("JSON")
}

/// The objects of a name, as many as there are.
fn named<'a>(report: &'a Value, name: &str) -> Vec<&'a Value> {
    report["objects"].as_array().expect("a list").iter().filter(|object| object["name"] == name).collect()
}

fn sum(objects: &[&Value], what: &str) -> f64 {
    objects.iter().map(|object| object[what].as_f64().unwrap_or(0.0)).sum()
}

#[test]
fn a_small_block_that_was_made_first_has_its_site() {
    for mode in ["burst", "sample"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let report = recorded(folder.path(), mode);
        let [weights] = named(&report, "weights")[..] else { panic!("{mode}: {report:#}") };
        assert_eq!((&weights["kind"], &weights["blocks"]), (&"heap".into(), &1.into()), "{mode}");
        assert!(named(&report, "heap through weights").is_empty(), "{mode}: {report:#}");
    }
}

#[test]
fn what_malloc_and_free_touch_beside_blocks_is_the_allocators() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let report = recorded(folder.path(), "burst");
    let data = named(&report, "allocator data (brk heap)");
    // Each block's links and sizes are looked at when it is made and when it is given back.
    assert!(data.len() == 1 && data[0]["kind"] == "mmap", "{report:#}");
    assert!(sum(&data, "loads") > 16e6, "{data:#?}");
    let objects = report["objects"].as_array().expect("a list");
    let of_malloc = |object: &&Value| {
        let file = object["declared"]["file"].as_str().unwrap_or_default();
        object["kind"] == "heap" && file.ends_with("malloc.c")
    };
    assert_eq!(objects.iter().find(of_malloc), None);
    let advice = succeeding(folder.path(), &["advise", "p", "--top", "20"]);
    assert!(advice.contains("fewer calls of malloc and free"), "{advice}");
    assert!(advice.contains("blocks are blocks[") && advice.contains("main blocks.c:"), "{advice}");
}

#[test]
fn what_recording_costs_is_told() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let report = recorded(folder.path(), "burst");
    let bursts = &report["run"]["bursts"];
    let number = |what: &str| bursts[what].as_f64().unwrap_or_else(|| panic!("{what}: {bursts}"));
    // The program goes on in bursts, so that they cost it less than they take.
    assert!(number("bursts") >= 1.0 && number("references") >= 1.0, "{bursts}");
    assert!(number("cost_seconds") <= number("inside_seconds") + 1e-6, "{bursts}");
    assert!(number("inside_seconds") <= number("program_seconds"), "{bursts}");
    let overhead = (number("cost_seconds") + number("allocations_seconds")) / number("program_seconds");
    assert!((number("overhead") - overhead).abs() < 1e-9 && overhead > 0.0, "{bursts}");
    let text = succeeding(folder.path(), &["report", "p"]);
    assert!(text.contains("recorded   ") && text.contains("cost the program about "), "{text}");
    let report = recorded(folder.path(), "sample");
    assert_eq!(report["run"]["bursts"], Value::Null);
    let text = succeeding(folder.path(), &["report", "p"]);
    assert!(text.contains("cost the program about "), "{text}");
}

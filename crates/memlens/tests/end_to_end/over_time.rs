//! When objects cost what, in the three modes that know.

use std::fs;
use std::path::Path;

use crate::support::{call, compiled, failing, stderr, succeeding, valgrind};
use serde_json::Value;

/// Walks a ring of 16 MiB in random order, frees it, and walks another one. With a time each walk goes on for so many seconds.
const PHASES: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
enum { LINES = 1 << 18 };
struct line { struct line *next; char rest[56]; };
static double seconds;
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}
static void ring(struct line *lines)
{
    unsigned *order = malloc(LINES * sizeof *order), state = 1;
    for (unsigned i = 0; i < LINES; i++)
        order[i] = i;
    for (unsigned i = LINES - 1; i > 0; i--) {
        state = state * 1664525u + 1013904223u;
        unsigned j = (unsigned long)state * (i + 1) >> 32, other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
    for (unsigned i = 0; i < LINES; i++)
        lines[order[i]].next = &lines[order[(i + 1) % LINES]];
    free(order);
}
__attribute__((noinline)) static struct line *walk(struct line *line)
{
    double end = now() + seconds;
    do
        for (int i = 0; i < 200000; i++)
            line = line->next;
    while (now() < end);
    return line;
}
int main(int argc, char **argv)
{
    seconds = argc > 1 ? atof(argv[1]) : 0;
    if (argc > 2 && fork() > 0)
        wait(NULL);
    struct line *first = malloc(LINES * sizeof *first);
    ring(first);
    int is_there = walk(first)->next != NULL;
    free(first);
    struct line *second = malloc(LINES * sizeof *second);
    ring(second);
    is_there += walk(second)->next != NULL;
    printf("%d\n", is_there);
    free(second);
    return 0;
}
"#;

fn record(folder: &Path, mode: &str, words: &[&str]) {
    let program = compiled(folder, "phases", PHASES, &["-O1", "-g"]);
    let program = program.to_str().expect("text");
    let begin = ["run", "--mode", mode, "--machine", "host", "--quiet", "--out", "p"];
    let follow: &[&str] = if words.len() > 1 { &["--follow", "children"] } else { &[] };
    succeeding(folder, &[&begin[..], follow, &["--", program], words].concat());
}

fn report(folder: &Path) -> Value {
    let text = succeeding(folder, &["report", "p", "--format", "json"]);
    serde_json::from_str(&text).expect("valid JSON")
}

/// Of each slice what the objects of a name had of something.
fn of_object(report: &Value, name: &str, word: &str) -> Vec<u64> {
    let slices = report["over_time"]["slices"].as_array().expect("slices");
    let of_slice = |slice: &Value| {
        let objects = slice["objects"].as_array().expect("objects");
        objects.iter().filter(|it| it["name"] == name).filter_map(|it| it[word].as_u64()).sum()
    };
    slices.iter().map(of_slice).collect()
}

/// Checks that most of what each of the rings costs is while it is there, and nothing of the other one.
fn each_has_its_phase(folder: &Path) -> Value {
    let report = report(folder);
    const MOST: u64 = 15 << 20;
    for (name, other) in [("first", "second"), ("second", "first")] {
        let costs = of_object(&report, name, "cost");
        let live = of_object(&report, name, "live_bytes");
        let of_other = of_object(&report, other, "live_bytes");
        assert!(live.iter().any(|&bytes| bytes >= MOST), "{name}: {live:?}");
        // In the slice in which one ends the other may begin.
        let is_only_other = |at: usize| of_other[at] >= MOST && at > 0 && of_other[at - 1] >= MOST;
        let elsewhere: u64 = (0..costs.len()).filter(|&at| is_only_other(at)).map(|at| costs[at]).sum();
        let all: u64 = costs.iter().sum();
        assert!(
            all > 0 && elsewhere * 5 <= all,
            "{name}: {elsewhere} of {all}: {costs:?}, other {of_other:?}"
        );
        assert!((0..costs.len()).all(|at| live[at] == 0 || of_other[at] == 0), "{live:?} {of_other:?}");
    }
    report
}

#[test]
fn exact_mode_tells_phases_apart_by_instructions() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    record(folder.path(), "exact", &[]);
    let report = each_has_its_phase(folder.path());
    assert_eq!(report["over_time"]["clock"], "instructions");
    let slices = report["over_time"]["slices"].as_array().expect("slices");
    assert_eq!(slices.last().map(|last| &last["end"]), Some(&report["run"]["instructions"]));
    let reads: u64 = slices.iter().filter_map(|slice| slice["dram_reads"].as_u64()).sum();
    assert_eq!(Some(reads), report["totals"]["dram_reads"].as_u64());

    let text = succeeding(folder.path(), &["report", "p", "--over-time", "--top", "10"]);
    assert!(text.starts_with("over time · ") && text.contains("first") && text.contains("second"), "{text}");
    let text = succeeding(folder.path(), &["report", "p", "--over-time", "--object", "first"]);
    assert!(text.starts_with("first over time"), "{text}");
    let why = failing(folder.path(), &["report", "p", "--over-time", "--object", "frist"], 64);
    assert!(why.contains("first"), "{why}");
    let csv = succeeding(folder.path(), &["report", "p", "--over-time", "--format", "csv"]);
    assert!(csv.lines().filter(|line| line.contains(",first,heap,")).count() > 1, "{csv}");
    for words in [["--format", "json"].as_slice(), &["--format", "csv", "--top", "3"], &["--by", "line"]] {
        failing(folder.path(), &[&["report", "p", "--over-time"], words].concat(), 64);
    }
}

/// Valgrind's massif says when the heap was largest, too.
#[test]
fn the_most_that_is_live_is_what_massif_says() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    record(folder.path(), "exact", &[]);
    let massif =
        ["--tool=massif", "--time-unit=i", "--peak-inaccuracy=0.0", "--massif-out-file=massif", "./phases"];
    if !valgrind(folder.path(), &massif) {
        return;
    }
    let theirs = fs::read_to_string(folder.path().join("massif")).expect("written");
    let values = |word: &str| -> Vec<u64> {
        let lines = theirs.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix('='));
        lines.map(|value| value.parse().expect("a number")).collect()
    };
    let most = values("mem_heap_B").into_iter().max();
    let report = report(folder.path());
    let slices = report["over_time"]["slices"].as_array().cloned().expect("slices");
    let live: Vec<u64> = slices.iter().filter_map(|slice| slice["live_bytes"].as_u64()).collect();
    // While a ring is made it and its order are there, and nothing else.
    assert_eq!(
        (live.iter().copied().max(), most),
        (Some((16 << 20) + (1 << 20)), Some((16 << 20) + (1 << 20)))
    );
    assert_eq!(report["run"]["heap_peak_bytes"].as_u64(), most);
    for (condition, code) in [
        ("live_at_peak_bytes > 18MiB", 0),
        ("live_at_peak_bytes > 16MiB", 1),
        ("live_at_end_bytes > 1MiB", 0),
    ] {
        let checked = call(folder.path(), &["check", "p", "--fail-if", condition]);
        assert_eq!(checked.status.code(), Some(code), "{condition}: {}", stderr(&checked));
    }
    // And whose that is; the program frees all that it allocates, and the buffer of its output is the library's.
    let of_name = |name: &str, word: &str| -> Option<u64> {
        let objects = report["objects"].as_array().expect("objects").iter();
        objects.filter(|it| it["name"] == name).map(|it| it[word].as_u64()).sum()
    };
    for (name, bytes) in [("first", 16 << 20), ("order", 1 << 20), ("second", 0)] {
        assert_eq!(of_name(name, "live_at_peak_bytes"), Some(bytes), "{name}");
        assert_eq!(of_name(name, "live_at_end_bytes"), Some(0), "{name}");
    }
    // Both clocks count instructions; a dynamic linker finds more to do in one of them.
    let ends = (slices.last().and_then(|last| last["end"].as_u64()), values("time").last().copied());
    let (ours, theirs) = (ends.0.expect("an end") as f64, ends.1.expect("an end") as f64);
    assert!((ours / theirs - 1.0).abs() < 0.03, "{ours} {theirs}");
}

#[test]
fn bursts_and_samples_tell_phases_apart_by_time() {
    for mode in ["burst", "sample"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        record(folder.path(), mode, &["1"]);
        let report = each_has_its_phase(folder.path());
        assert_eq!(report["over_time"]["clock"], "nanoseconds");
        // Blocks so large are watched for certain.
        let rings = report["objects"].as_array().expect("objects").iter();
        let rings = rings.filter(|it| it["name"] == "first" || it["name"] == "second");
        let of = |ring: &Value, word: &str| ring[word].as_u64().unwrap_or_default();
        let at_peak: Vec<u64> = rings.clone().map(|ring| of(ring, "live_at_peak_bytes")).collect();
        assert_eq!((at_peak.iter().sum::<u64>(), at_peak.len()), (16 << 20, 2), "{mode}: {at_peak:?}");
        assert!(rings.clone().all(|ring| of(ring, "live_at_end_bytes") == 0), "{mode}");
    }
}

#[test]
fn processes_that_begin_at_different_times_have_their_own() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    record(folder.path(), "exact", &["0", "fork"]);
    assert_eq!(report(folder.path())["over_time"], Value::Null);
    let why = failing(folder.path(), &["report", "p", "--over-time"], 64);
    assert!(why.contains("--process N shows one"), "{why}");
    let text = succeeding(folder.path(), &["report", "p", "--over-time", "--process", "2"]);
    assert!(text.contains("second"), "{text}");
    // Ranks of a job begin together.
    for rank in ["a", "b"] {
        let words = ["run", "--mode", "exact", "--quiet", "--out", rank, "--", "./phases"];
        succeeding(folder.path(), &words);
    }
    let merged = call(folder.path(), &["merge", "a", "b", "--out", "job"]);
    assert!(merged.status.success(), "{}", stderr(&merged));
    let text = succeeding(folder.path(), &["report", "job", "--over-time"]);
    assert!(text.contains("at most 34 MiB of the heap live"), "{text}");
}

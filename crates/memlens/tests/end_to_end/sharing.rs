//! Lines that threads take from each other, in both modes that know of threads.

use std::path::Path;

use crate::support::{compiled, succeeding};
use serde_json::Value;

/// Two threads, for a while each: what they write lies side by side, in lines of its own, in one word.
const SHARES: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static _Alignas(64) struct { long count; } beside[2];
static _Alignas(64) struct { long count; char rest[120]; } apart[2];
static _Alignas(64) long both;
static double seconds;
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}
#define WORK(name, count)                                          \
    static void *name(void *number)                                \
    {                                                              \
        unsigned long me = (unsigned long)number, state = me;      \
        double end = now() + seconds;                              \
        while (now() < end)                                        \
            for (int i = 0; i < 10000; i++) {                      \
                for (int j = 0; j < 3; j++)                        \
                    state = state * 6364136223846793005ul + 1;     \
                count;                                             \
            }                                                      \
        return (void *)state;                                      \
    }
WORK(side_by_side, *(volatile long *)&beside[me].count += state >> 60)
WORK(far_away, *(volatile long *)&apart[me].count += state >> 60)
WORK(together, __atomic_fetch_add(&both, state >> 60, __ATOMIC_RELAXED))
int main(int argc, char **argv)
{
    void *(*all[])(void *) = {side_by_side, far_away, together};
    seconds = atof(argv[1]);
    for (int i = 0; i < 3; i++) {
        pthread_t threads[2];
        for (long me = 0; me < 2; me++)
            pthread_create(&threads[me], 0, all[i], (void *)me);
        for (int me = 0; me < 2; me++)
            pthread_join(threads[me], 0);
    }
    puts(beside[0].count && apart[1].count && both ? "done" : "nothing done");
    return 0;
}
"#;

/// The report of a run in a mode, and the remedies that are advised, each with its object's number.
fn recorded(folder: &Path, mode: &str, seconds: &str) -> (Value, Vec<(Value, Value)>) {
    let program = compiled(folder, "shares", SHARES, &["-O2", "-g", "-pthread"]);
    let program = program.to_str().expect("text");
    let words = ["run", "--mode", mode, "--machine", "host", "--quiet", "--out", "p", "--", program, seconds];
    assert_eq!(succeeding(folder, &words), "done\n");
    let json = |words: &[&str]| -> Value { serde_json::from_str(&succeeding(folder, words)).expect("JSON") };
    let advice = json(&["advise", "p", "--format", "json"]);
    let findings = advice["findings"].as_array().expect("a list");
    let remedy = |finding: &Value| (finding["object"].clone(), finding["remedy"].clone());
    (json(&["report", "p", "--format", "json"]), findings.iter().map(remedy).collect())
}

fn object<'a>(report: &'a Value, name: &str) -> &'a Value {
    let objects = report["objects"].as_array().expect("a list");
    objects.iter().find(|object| object["name"] == name).unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

/// Coherence misses of an object, a part of its accesses, and false sharing, a part of these.
fn shared(report: &Value, name: &str) -> (f64, f64) {
    let object = object(report, name);
    let count = |key: &str| object[key].as_f64().unwrap_or_else(|| panic!("no {key} in {object:#}"));
    let misses = count("coherence_misses");
    assert!(count("l1_misses") >= misses && count("l2_misses") >= misses, "{object:#}");
    (misses / count("accesses"), count("false_sharing") / misses.max(1.0))
}

#[test]
fn exact_mode_tells_false_sharing_from_true() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (report, remedies) = recorded(folder.path(), "exact", "0.7");
    let (beside, of_beside) = shared(&report, "beside");
    assert!(beside > 0.005 && of_beside > 0.95, "{beside} {of_beside}");
    let (both, of_both) = shared(&report, "both");
    // Each atomic access waits for the line, side by side stores wait together.
    assert!(both > 5.0 * beside && of_both < 0.05, "{both} {of_both}");
    assert!(shared(&report, "apart").0 < 0.001);
    let number = |name: &str| object(&report, name)["id"].clone();
    for wanted in [(number("beside"), "separate".into()), (number("both"), "per-thread".into())] {
        assert!(remedies.contains(&wanted), "{remedies:?}");
    }
    assert!(!remedies.iter().any(|(object, _)| *object == number("apart")), "{remedies:?}");
}

#[test]
fn bursts_tell_false_sharing_from_true() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (report, _) = recorded(folder.path(), "burst", "0.7");
    let (beside, of_beside) = shared(&report, "beside");
    // How often depends on how much of the time both threads run.
    assert!(beside > 0.0 && of_beside > 0.99, "{beside} {of_beside}");
    let (both, of_both) = shared(&report, "both");
    assert!(both > 0.0 && of_both < 0.01, "{both} {of_both}");
    assert_eq!(shared(&report, "apart").0, 0.0);
}

/// A ring through which one thread hands numbers to another, and what looks at it until there is one, or room.
const RING: &str = r#"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
static struct { _Atomic unsigned head __attribute__((aligned(64))); _Atomic unsigned tail __attribute__((aligned(64))); unsigned slots[64]; } ring;
static const unsigned numbers = 1500000;
static void *produce(void *none)
{
    for (unsigned i = 0; i < numbers; i++) {
        while (i - ring.head >= 64)
            __builtin_ia32_pause();
        ring.slots[i % 64] = i;
        ring.tail = i + 1;
    }
    return none;
}
static void *consume(void *sum)
{
    for (unsigned i = 0; i < numbers; i++) {
        while (ring.tail == i)
            __builtin_ia32_pause();
        /* Takes longer than to produce it. */
        unsigned state = ring.slots[i % 64];
        for (int round = 0; round < 200; round++)
            state = state * 1664525 + 1013904223;
        *(unsigned long *)sum += state;
        ring.head = i + 1;
    }
    return sum;
}
int main(void)
{
    pthread_t producer, consumer;
    unsigned long sum = 0;
    pthread_create(&producer, 0, produce, 0);
    pthread_create(&consumer, 0, consume, &sum);
    pthread_join(producer, 0);
    pthread_join(consumer, 0);
    printf("%lu\n", sum);
    return 0;
}
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn where_threads_wait_for_others_in_loops_is_told() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "ring", RING, &["-O1", "-g", "-pthread"]);
    let words = ["run", "--mode", "burst", "--quiet", "--out", "p", "--", program.to_str().expect("text")];
    succeeding(folder.path(), &words);
    let text = succeeding(folder.path(), &["report", "p", "--format", "json"]);
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let waits = report["run"]["spin_waits"].as_array().expect("a list");
    let seconds = |wait: &Value| wait["seconds"].as_f64().expect("a number");
    // The producer waits for most of its time, with two processors: half of all.
    let first = &waits[0];
    assert_eq!((&first["function"], &first["object"]), (&"produce".into(), &"ring".into()), "{waits:?}");
    assert_eq!(first["line"], 10, "{waits:?}");
    assert!(first["file"].as_str().is_some_and(|file| file.ends_with("ring.c")), "{waits:?}");
    let all = report["run"]["bursts"]["program_seconds"].as_f64().expect("a number");
    let sum: f64 = waits.iter().map(seconds).sum();
    assert!(sum <= all && seconds(first) > 0.1 * all, "{waits:?} of {all}");
    let shown = succeeding(folder.path(), &["report", "p"]);
    assert!(shown.contains("waiting    ") && shown.contains("% in produce ring.c:10 for ring"), "{shown}");
}

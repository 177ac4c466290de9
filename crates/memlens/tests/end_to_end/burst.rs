//! Burst mode through the command line. It needs SSE 4.2, XSAVE and a C compiler, as every machine that builds memlens
//! has.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{CALIBRATION, call, compiled, failing, memlens, stderr, stdout, succeeding, wait_until};
use serde_json::Value;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn json(folder: &Path, profile: &str) -> Value {
    serde_json::from_str(&succeeding(folder, &["report", profile, "--format", "json"])).expect("JSON")
}

fn object<'a>(report: &'a Value, name: &str) -> &'a Value {
    let objects = report["objects"].as_array().expect("a list");
    objects.iter().find(|object| object["name"] == name).unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

/// A table of 32 MiB of which one field is read at random, and 4 KiB that stay in the first level: as often.
const WORKS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static unsigned small[1024];
struct entry { unsigned key, count; unsigned long value; };
int main(int argc, char **argv)
{
    unsigned long entries = 1 << 21, rounds = argc > 1 ? strtoul(argv[1], 0, 10) : 20000000, sum = 0, state = 1;
    struct entry *table = malloc(entries * sizeof *table);
    for (unsigned long i = 0; i < entries; i++)
        table[i].value = i, small[i & 1023] = i;
    for (unsigned long i = 0; i < rounds; i++) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        sum += table[state >> 43].value + small[state >> 54];
    }
    printf("%lu\n", sum);
    free(table);
    return 5;
}
"#;

#[test]
fn misses_are_those_of_the_data_that_does_not_fit() {
    let folder = folder();
    let program = compiled(folder.path(), "works", WORKS, &["-O1", "-g"]);
    let native = Command::new(&program).output().expect("runs");
    let program = program.to_str().expect("text");
    let words = ["run", "--mode", "burst", "--machine", "e5504", "--quiet", "--out", "p", "--", program];
    let output = call(folder.path(), &words);
    assert_eq!((output.status.code(), &output.stdout), (Some(5), &native.stdout), "{}", stderr(&output));
    let report = json(folder.path(), "p");
    assert_eq!((&report["run"]["mode"], &report["run"]["estimated"]), (&"burst".into(), &true.into()));
    // A busy machine may leave no room for some bursts; what is said of the others holds.
    assert!(report["attribution"]["lost_events"].is_u64());
    let (table, small) = (object(&report, "table"), object(&report, "small"));
    let part = |object: &Value, misses: &str| {
        object[misses].as_f64().expect("a number") / object["loads"].as_f64().expect("a number")
    };
    // 32 KiB of 32 MiB are in the first level; nothing else is known to be there.
    assert!(part(table, "l1_misses") > 0.8, "{table:#}");
    assert!(part(small, "l1_misses") < 0.2, "{small:#}");
    // The last level holds 4 of 32 MiB.
    assert!(part(table, "llc_misses") > 0.6, "{table:#}");
    // Both are read as often; each burst sees the same of them.
    let (table_loads, small_loads) =
        (table["loads"].as_f64().expect("a number"), small["loads"].as_f64().expect("a number"));
    assert!((0.8..1.25).contains(&(table_loads / small_loads)), "{table_loads} {small_loads}");
    // How sure the whole is, which fewer bursts than five do not tell: of a round's loads the table's misses seven times of eight.
    let is_told = report["run"]["effective_bursts"].as_f64().is_some_and(|bursts| bursts >= 5.0);
    let text = succeeding(folder.path(), &["report", "p"]);
    assert_eq!(text.contains("likely     of the accesses, nine times of ten: L2 "), is_told, "{text}");
    let range = &report["totals"]["llc_miss_ratio_ci90"];
    assert_eq!(range.is_array(), is_told, "{range}");
    if is_told {
        let ratio = report["totals"]["llc_miss_ratio"].as_f64().expect("a number");
        let [low, high] = [0, 1].map(|end| range[end].as_f64().expect("a number"));
        assert!(0.1 < low && low <= ratio && ratio <= high && high < 1.0, "{range:?}");
    }
    // How sure the shares are, that of the wait and that of the stalls: nearly all is the table's in every burst.
    for share in ["share", "stall_share"] {
        let of = |object: &Value| {
            let ends =
                object[format!("{share}_ci95")].as_array().unwrap_or_else(|| panic!("{share}: {object:#}"));
            [&object[share], &ends[0], &ends[1]].map(|it| it.as_f64().expect("a number"))
        };
        let ([table, low, high], [_, small_low, small_high]) = (of(table), of(small));
        assert!(low <= table && table <= high && high <= 1.0, "{share}: {low} {table} {high}");
        assert!(low > small_high && small_low >= 0.0, "{share}: {low} {small_high}");
    }
    // Where all is its, in every burst, there are no differences to tell by.
    let (error, cycles) =
        (table["stall_error_cycles"].as_f64(), table["stall_cycles"].as_f64().expect("a number"));
    assert!(error.is_none_or(|error| (0.0..0.2 * cycles).contains(&error)), "{table:#}");
    // All of them are of one field.
    assert_eq!(table["element"], serde_json::json!({"type": "struct entry", "bytes": 16}));
    let fields = table["fields"].as_array().expect("a list");
    let seen = |field: &Value| (field["name"].clone(), field["offset"].clone(), field["loads"].clone());
    let found: Vec<_> = fields.iter().map(seen).collect();
    let field = |name: &str, offset: u64, loads: Value| (name.into(), offset.into(), loads);
    let expected =
        [field("key", 0, 0.into()), field("count", 4, 0.into()), field("value", 8, table["loads"].clone())];
    assert_eq!(found, expected, "{table:#}");
}

#[test]
fn stalls_are_no_longer_than_the_program_runs() {
    let folder = folder();
    let program = compiled(folder.path(), "works", WORKS, &["-O1", "-g"]);
    // Of a machine whose memory takes a hundred times as long as any.
    let slow = CALIBRATION.replace("cycles = 333.0", "cycles = 30000.0");
    assert_ne!(slow, CALIBRATION);
    fs::write(folder.path().join("slow.toml"), slow).expect("written");
    let record = |options: &[&str]| {
        let words = ["run", "--mode", "burst", "--force", "--calibration", "slow.toml", "--out", "p"];
        let words = [&words, options, &["--", program.to_str().expect("text")]].concat();
        let output = call(folder.path(), &words);
        assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
        (json(folder.path(), "p"), stderr(&output))
    };
    let number = |of: &Value, name: &str| of[name].as_f64().unwrap_or_else(|| panic!("{name}: {of}"));
    let (report, text) = record(&["--quiet"]);
    let (run, totals) = (&report["run"], &report["totals"]);
    if run["modelled_stall_cycles"].is_null() {
        // On a busy machine there may have been too few bursts with a time.
        let bursts = run["effective_bursts"].as_f64().unwrap_or(0.0);
        return assert!(bursts < 10.0, "{run:#} {text}");
    }
    let (stalls, cycles) = (number(totals, "stall_cycles"), number(run, "core_cycles"));
    assert!(stalls < cycles, "{stalls} {cycles}");
    assert!(number(run, "modelled_stall_cycles") > 3.0 * cycles, "{run}");
    // Another machine's time was not measured.
    let (report, text) = record(&["--quiet", "--cache", "llc=1M,16,64"]);
    assert!(report["run"]["modelled_stall_cycles"].is_null(), "{} {text}", report["run"]);
    let (stalls, cycles) = (number(&report["totals"], "stall_cycles"), number(&report["run"], "core_cycles"));
    assert!(stalls < cycles && cycles > 0.0, "{stalls} {cycles}");
}

#[test]
fn what_cannot_have_bursts_is_refused_before_it_starts() {
    let folder = folder();
    let message = failing(folder.path(), &["record", "--mode", "exact", "--pid", "1"], 64);
    assert!(message.contains("--mode burst"), "{message}");
    // No process can have this number (proc(5), pid_max).
    let message = failing(folder.path(), &["record", "--mode", "burst", "--pid", "4194305"], 66);
    assert!(message.contains("no such process"), "{message}");
    let message = failing(folder.path(), &["run", "--mode", "burst", "--event", "time", "--", "true"], 64);
    assert!(message.contains("--event"), "{message}");
    for mode in ["exact", "sample"] {
        for words in [
            &["--model", "umi"][..],
            &["--region-hits", "3"],
            &["--burst-length", "1000"],
            &["--filter-operations"],
        ] {
            let message =
                failing(folder.path(), &[&["run", "--mode", mode], words, &["--", "true"]].concat(), 64);
            assert!(message.contains(words[0]), "{message}");
        }
    }
    let message = failing(folder.path(), &["run", "--region-hits", "3", "--", "true"], 64);
    assert!(message.contains("--model umi"), "{message}");
}

#[test]
fn who_attaches_again_is_told_of_all_code() {
    let folder = folder();
    let program = compiled(folder.path(), "works", WORKS, &["-O1", "-g"]);
    // It ends by itself, too, and holds nothing of this test's.
    let mut child = Command::new(program)
        .arg("5000000000")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let pid = child.id().to_string();
    for _ in 0..3 {
        let words = ["record", "--mode", "burst", "--pid", &pid, "--duration", "1", "--quiet", "--force"];
        let output = call(folder.path(), &[&words[..], &["--out", "p"]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let report = json(folder.path(), "p");
        let notes = report["run"]["notes"].as_array().expect("a list").iter().filter_map(Value::as_str);
        let notes = notes.collect::<Vec<_>>().join("\n");
        assert!(!notes.contains("incomplete"), "{notes}");
        let misses = report["totals"]["l1_misses"].as_f64().expect("a number");
        let loads = report["totals"]["loads"].as_f64().expect("a number");
        assert!(misses > 0.3 * loads && loads > 1e6, "one of two accesses misses: {report:#}");
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

/// Each round reads a table by pointer, twice, the stack by rsp, and a variable at a fixed address: half is left out.
const FILTERED: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static unsigned long fixed = 3;
int main(void)
{
    unsigned long *table = calloc(1 << 20, 8), sum = 0, at = 0;
    for (unsigned long i = 0; i < 250000000; i++) {
        __asm__ volatile("add (%1,%2,8), %0\n\tadd 8(%1,%2,8), %0\n\tadd -8(%%rsp), %0\n\tadd %3, %0"
                         : "+r"(sum) : "r"(table), "r"(at), "m"(fixed));
        at = (at + 4099) & 0xffffe;
    }
    printf("%p\n", (void *)sum);
    return 3;
}
"#;

/// Names that a function of the C library reads for its caller.
const MEASURES: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char *copy_of(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(malloc(bytes), text, bytes);
}
int main(void)
{
    enum { COUNT = 100000 };
    char **names = malloc(COUNT * sizeof *names), text[40];
    unsigned long state = 1, sum = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        sprintf(text, "number %u of them all", i);
        names[i] = copy_of(text);
    }
    for (unsigned i = 0; i < 40000000; i++) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        sum += strlen(names[(state >> 40) % COUNT]);
    }
    printf("%lu\n", sum);
    return 0;
}
"#;

#[test]
fn memory_that_the_library_works_on_is_its_callers() {
    let folder = folder();
    let program = compiled(folder.path(), "measures", MEASURES, &["-O1", "-g", "-fno-builtin"]);
    for mode in ["burst", "sample"] {
        let words = ["run", "--mode", mode, "--allocations", "off", "--quiet", "--out", mode, "--"];
        succeeding(folder.path(), &[&words[..], &[program.to_str().expect("text")]].concat());
        let report = json(folder.path(), mode);
        let cost = |name: &str| {
            let objects = report["objects"].as_array().expect("a list").iter();
            let named =
                objects.filter(|object| object["name"].as_str().is_some_and(|it| it.starts_with(name)));
            named.map(|object| object["share"].as_f64().expect("a share")).sum::<f64>()
        };
        assert!(cost("heap through names[]") > 0.2, "{mode}: {report:#}");
        assert!(cost("heap used by __str") < 0.01, "{mode}: {report:#}");
    }
}

/// Two threads, one of which libc made, count in thread-local arrays: by their names and through a pointer.
const THREAD_LOCALS: &str = r#"
#include <pthread.h>
static __thread unsigned counts[1024];
static __thread struct cell { long key, value; } cells[512];
__attribute__((noinline)) static void by_pointer(struct cell *into, unsigned long state)
{
    into[state % 512].value += state;
}
static void *count(void *rounds)
{
    unsigned long state = 1;
    for (long i = 0; i < *(long *)rounds; i++) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        counts[state >> 54]++;
        by_pointer(cells, state >> 20);
    }
    return 0;
}
int main(void)
{
    long rounds = 30000000;
    pthread_t thread;
    if (pthread_create(&thread, 0, count, &rounds))
        return 1;
    count(&rounds);
    return pthread_join(thread, 0);
}
"#;

/// A pool that is mapped, moved and grown, a table that several processes could share, and blocks of an allocator of the program's own,
/// which lie in memory that it maps, too.
const MAPS: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
struct node { struct node *next; unsigned long key; char rest[48]; };
#define NODES (1ul << 15)
static void *pages(size_t bytes, int flags)
{
    void *start = mmap(0, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    return start == MAP_FAILED ? exit(1), start : start;
}
int main(void)
{
    struct node *pool = pages(NODES / 2 * sizeof *pool, MAP_PRIVATE);
    unsigned *table = pages(NODES * sizeof *table, MAP_SHARED);
    pool = mremap(pool, NODES / 2 * sizeof *pool, NODES * sizeof *pool, MREMAP_MAYMOVE);
    for (unsigned long i = 0; i < NODES; i++)
        pool[i * 4097 % NODES].next = &pool[(i + 1) * 4097 % NODES], pool[i].key = i;
    unsigned long sum = 0;
    struct node *at = pool;
    for (unsigned long i = 0; i < 30000000; i++)
        sum += at->key + table[i % NODES]++, at = at->next;
    printf("%lu\n", sum);
    munmap(pool, NODES * sizeof *pool);
}
"#;

#[test]
fn memory_that_a_program_maps_is_called_after_the_variable_that_gets_it() {
    let folder = folder();
    let program = compiled(folder.path(), "maps", MAPS, &["-O1", "-g"]);
    let program = program.to_str().expect("text");
    succeeding(folder.path(), &["record", "--mode", "burst", "--out", "p", "--", program]);
    let report = json(folder.path(), "p");
    let (pool, table) = (object(&report, "pool"), object(&report, "table"));
    assert_eq!((&pool["kind"], &table["kind"]), (&"mmap".into(), &"mmap".into()), "{pool:#}");
    let loads = |object: &Value| object["loads"].as_f64().expect("a number");
    let whole = report["totals"]["loads"].as_f64().expect("a number");
    assert!(loads(pool) > 0.5 * whole && loads(pool) + loads(table) > 0.9 * whole, "{pool:#} {table:#}");
    let fields = pool["fields"].as_array().expect("a list");
    let key = fields.iter().find(|field| field["name"] == "key").expect("a field");
    assert!(loads(key) > 0.4 * loads(pool), "{key:#}");
    assert_eq!(pool["bytes"], 1 << 21, "what it grew to: {pool:#}");
}

#[test]
fn thread_local_variables_have_their_names_in_all_threads() {
    let folder = folder();
    let program = compiled(folder.path(), "locals", THREAD_LOCALS, &["-O2", "-g"]);
    let program = program.to_str().expect("text");
    succeeding(folder.path(), &["run", "--mode", "burst", "--quiet", "--out", "p", "--", program]);
    let report = json(folder.path(), "p");
    let loads = |object: &Value| object["loads"].as_f64().expect("a number");
    let (counts, cells) = (object(&report, "counts"), object(&report, "cells"));
    assert_eq!((&counts["kind"], counts["bytes"].as_u64()), (&"tls".into(), Some(4096)));
    assert_eq!((&cells["kind"], cells["bytes"].as_u64()), (&"tls".into(), Some(8192)));
    let all = loads(&report["totals"]);
    // Besides them there are return addresses.
    assert!(loads(counts) > 0.2 * all && loads(cells) > 0.2 * all, "{report:#}");
    let fields = cells["fields"].as_array().expect("a list").iter();
    let of_key: f64 = fields.filter(|field| field["name"] == "key").map(loads).sum();
    assert!(of_key < 0.01 * all, "{cells:#}");
}

/// `main` fills what another thread works on, in `main`'s frame; with `WAITS`, it waits for it and does nothing else.
const OF_MAIN: &str = r#"
#include <pthread.h>
static void *adds(void *given)
{
    volatile long *shared = given, sum = 0;
    for (int round = 0; round < ROUNDS; round++)
        for (int at = 0; at < 512; at++)
            sum += shared[at];
    return (void *)sum;
}
int main(void)
{
    volatile long shared[512] = {0};
    pthread_t thread;
#ifndef WAITS
    for (int round = 0; round < ROUNDS; round++)
        for (int at = 0; at < 512; at++)
            shared[at] = round;
#endif
    pthread_create(&thread, 0, adds, (void *)shared);
    pthread_join(thread, 0);
}
"#;

#[test]
fn what_a_thread_does_to_the_locals_of_another_is_theirs() {
    let folder = folder();
    // Of what is over within 50 ms memlens may read the bursts when nobody waits any more.
    for (words, waits) in [
        (["-O1", "-DROUNDS=300000"].as_slice(), false),
        (&["-O1", "-DROUNDS=3000000", "-DWAITS"], true),
        (&["-O0", "-DROUNDS=600000", "-DWAITS"], true),
    ] {
        let program = compiled(folder.path(), "of_main", OF_MAIN, &[words, &["-g", "-pthread"]].concat());
        let program = program.to_str().expect("text");
        succeeding(
            folder.path(),
            &["run", "--mode", "burst", "--quiet", "--force", "--out", "p", "--", program],
        );
        let report = json(folder.path(), "p");
        let loads = |object: &Value| object["loads"].as_f64().expect("a number");
        // Without optimisation the thread's pointer to it is in memory, too.
        let is_array = |object: &&Value| {
            object["name"] == "shared" && object["kind"] == "local" && object["bytes"] == 4096
        };
        let found = report["objects"].as_array().expect("a list").iter().find(is_array);
        let shared = found.unwrap_or_else(|| panic!("{words:?} {report:#}"));
        // Beside them the thread loads and stores its sum, and what else is no register's.
        assert!(loads(shared) > 0.15 * loads(&report["totals"]), "{words:?} {report:#}");
        if waits {
            // So many that some are of it, also where a busy machine would have few.
            let frequency = ["--frequency", "2000"];
            let words = ["run", "--mode", "sample", "--quiet", "--force", "--out", "p"];
            succeeding(folder.path(), &[&words[..], &frequency, &["--", program]].concat());
            let report = json(folder.path(), "p");
            let is_unknown = |object: &&Value| object["name"] == "stack outside known frames";
            assert_eq!(object(&report, "shared")["kind"], "local");
            assert_eq!(report["objects"].as_array().expect("a list").iter().find(is_unknown), None);
        }
    }
}

/// Many blocks, each reported with a stack of some KiB, and a walk over them.
const ALLOCATES: &str = r#"
#include <stdlib.h>
#include <unistd.h>
struct node { struct node *next; long value; };
static struct node *list;
__attribute__((noinline)) static long deep(int depth)
{
    volatile char room[512];
    room[0] = (char)depth;
    if (depth)
        return deep(depth - 1) + room[0];
    for (long i = 0; i < 60000; i++) {
        struct node *one = malloc(sizeof *one);
        one->next = list, one->value = i, list = one;
    }
    return 0;
}
int main(void)
{
    long sum = deep(8);
    for (int round = 0; round < 2000; round++)
        for (struct node *at = list; at; at = at->next)
            sum += at->value;
    _exit(sum == 1); // exit() has the dynamic linker sort, and copy, its maps.
}
"#;

#[test]
fn what_the_agent_copies_is_in_no_burst() {
    let folder = folder();
    let program = compiled(folder.path(), "allocates", ALLOCATES, &["-O1", "-g"]);
    let program = program.to_str().expect("text");
    for _ in 0..2 {
        let words = [
            "record",
            "--mode",
            "burst",
            "--quiet",
            "--allocations",
            "all",
            "--overhead",
            "10%",
            "--force",
            "--out",
            "p",
        ];
        succeeding(folder.path(), &[&words[..], &["--", program]].concat());
        let report = json(folder.path(), "p");
        let code = report["instructions"].as_array().expect("a list");
        let functions: Vec<&str> = code.iter().filter_map(|row| row["function"].as_str()).collect();
        assert!(functions.contains(&"main"), "{functions:?}");
        // The program copies nothing.
        assert!(
            !functions.iter().any(|name| name.contains("memcpy") || name.contains("memmove")),
            "{functions:?}"
        );
    }
}

/// Where in a page its first block is: which lines blocks share depends on it.
const FIRST_BLOCK: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void)
{
    char text[32];
    int length = snprintf(text, sizeof text, "%#lx\n", (unsigned long)malloc(256) & 0xfff);
    return write(1, text, length) != length;
}
"#;

#[test]
fn the_programs_blocks_lie_where_they_do_natively() {
    let folder = folder();
    let program = compiled(folder.path(), "first", FIRST_BLOCK, &["-O1"]);
    let natively = Command::new(&program).output().expect("it runs");
    let program = program.to_str().expect("text");
    for mode in ["burst", "sample", "exact"] {
        let words = ["record", "--mode", mode, "--quiet", "--force", "--out", "p", "--", program];
        assert_eq!(succeeding(folder.path(), &words), stdout(&natively), "{mode}");
    }
}

#[test]
fn what_the_filter_leaves_out_is_told() {
    let folder = folder();
    let program = compiled(folder.path(), "filtered", FILTERED, &["-O1", "-g"]);
    let program = program.to_str().expect("text");
    let words =
        ["run", "--mode", "burst", "--filter-operations", "--machine", "e5504", "--out", "p", "--", program];
    let output = call(folder.path(), &words);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let shown = succeeding(folder.path(), &["report", "p"]);
    assert!(shown.contains("are left out of all numbers"), "{shown}");
    let report = json(folder.path(), "p");
    let notes = report["run"]["notes"].as_array().expect("a list").iter().filter_map(Value::as_str);
    let note = notes.filter(|note| note.contains("--filter-operations")).collect::<Vec<_>>().join(" ");
    let percents: Vec<f64> = note.split(' ').filter_map(|word| word.parse().ok()).collect();
    let &[low, high] = &percents[..] else { panic!("{note}") };
    assert!(49.0 < low && low <= high && high < 51.0, "{note}");
    let table = object(&report, "table");
    let part =
        table["loads"].as_f64().expect("a number") / report["totals"]["loads"].as_f64().expect("a number");
    assert!(part > 0.99, "{table:#}");
    let objects = report["objects"].as_array().expect("a list");
    assert!(objects.iter().all(|object| object["name"] != "fixed"), "{report:#}");
}

/// Fills a table of 1 MiB, 8 bytes at a time, and larger than the first two levels of an e5504: each line misses once a
/// round. For a third of a second: of 1500 rounds a fast processor made 18 ms, too short for a burst.
const REPEATED: &str = r#"
#include <time.h>
unsigned long table[LONGS];
int main(void)
{
    unsigned long round = 0;
    while (clock() < CLOCKS_PER_SEC / 3) {
        round++;
        for (int i = 0; i < TIMES; i++) {
            void *at = table;
            unsigned long count = LONGS;
            __asm__ volatile("rep stosq" : "+D"(at), "+c"(count) : "a"(round) : "memory");
        }
    }
    return table[5] == round ? 6 : 1;
}
"#;

#[test]
fn elements_of_repeated_instructions_have_their_size() {
    let folder = folder();
    // The second, of 256 MB, has more lines in a burst than are looked at.
    for size in [["-DLONGS=1 << 17", "-DTIMES=100"], ["-DLONGS=1 << 25", "-DTIMES=2"]] {
        let options = [&["-O1", "-g"], &size[..]].concat();
        let program = compiled(folder.path(), "repeated", REPEATED, &options);
        let program = program.to_str().expect("text");
        let words = ["run", "--mode", "burst", "--machine", "e5504", "--force", "--out", "p", "--", program];
        let output = call(folder.path(), &words);
        assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
        let report = json(folder.path(), "p");
        let table = object(&report, "table");
        let number = |name: &str| table[name].as_f64().expect("a number");
        assert_eq!(number("store_bytes"), 8.0 * number("stores"), "{table:#}");
        let misses = number("l1_store_misses") / number("stores");
        assert!((0.1..=0.15).contains(&misses), "one in eight: {table:#}");
        let followers = number("followers") / number("stores");
        assert!((0.85..=0.9).contains(&followers), "seven in eight: {table:#}");
    }
}

/// Each round gathers the even ones of eight elements, and loads one of another table.
const GATHERS: &str = r#"
#include <immintrin.h>
#include <stdio.h>
int gathered[1024] = {[0] = 1, [256] = 2, [512] = 4, [768] = 5};
unsigned long loaded[512];
__attribute__((target("avx2"))) int main(void)
{
    __m256i index = _mm256_setr_epi32(0, 128, 256, 384, 512, 640, 768, 896);
    __m256i even = _mm256_setr_epi32(-1, 0, -1, 0, -1, 0, -1, 0), sum = _mm256_setzero_si256();
    unsigned long at = 0;
    for (long i = 0; i < 100000000; i++) {
        __m256i got = _mm256_setzero_si256(), mask = even;
        __asm__ volatile("vpgatherdd %1, (%3,%4,4), %0\n\tadd (%5,%2,8), %2"
                         : "+&x"(got), "+&x"(mask), "+r"(at) : "r"(gathered), "x"(index), "r"(loaded) : "memory");
        sum = _mm256_add_epi32(sum, got);
    }
    int lanes[8];
    _mm256_storeu_si256((__m256i *)lanes, sum);
    printf("%d %d\n", lanes[0] + lanes[2] + lanes[4] + lanes[6], lanes[1] | lanes[3] | lanes[5] | lanes[7]);
    return 4;
}
"#;

#[test]
fn gathers_load_the_elements_that_their_masks_name() {
    if !is_x86_feature_detected!("avx2") {
        return;
    }
    let folder = folder();
    let program = compiled(folder.path(), "gathers", GATHERS, &["-O1", "-g"]);
    let native = Command::new(&program).output().expect("runs");
    let program = program.to_str().expect("text");
    let output = call(folder.path(), &["run", "--mode", "burst", "--quiet", "--out", "p", "--", program]);
    assert_eq!((output.status.code(), &output.stdout), (Some(4), &native.stdout), "{}", stderr(&output));
    let report = json(folder.path(), "p");
    let number = |name: &str, what: &str| object(&report, name)[what].as_f64().expect("a number");
    let ratio = number("gathered", "loads") / number("loaded", "loads");
    assert!((3.9..4.1).contains(&ratio), "{ratio}: {report:#}");
    assert!((number("gathered", "load_bytes") / number("gathered", "loads") - 4.0).abs() < 0.01);
    assert!(!report["run"]["notes"].to_string().contains("no address"), "{report:#}");
}

/// One thread reads a table a thousand times as often as the other one lets it: most of the time both wait for each other in
/// loops, with `pause` as the threads of OpenMP do, or without.
const SPINNING: &str = r#"
#include <immintrin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
static atomic_long turn;
static volatile unsigned table[1024];
static void *other(void *unused)
{
    (void)unused;
    for (long round = 0; round < 100; round++) {
        while (turn != 2 * round + 1)
            WAIT();
        struct timespec time = {0, 4000000};
        nanosleep(&time, 0);
        turn++;
    }
    return 0;
}
int main(void)
{
    pthread_t thread;
    pthread_create(&thread, 0, other, 0);
    for (long round = 0; round < 100; round++) {
        for (int i = 0; i < 100000; i++)
            table[i % 1024];
        turn++;
        while (turn != 2 * round + 2)
            WAIT();
    }
    return pthread_join(thread, 0) ? 1 : 8;
}
"#;

/// Ten million accesses in some 10 ms of 400.
#[test]
fn no_accesses_stand_for_waiting_in_loops() {
    let folder = folder();
    // Without knowing of the loops there were 62 to 94 million with `pause`, and 4,200 to 4,300 without. Before the first
    // burst the latter are not known, and one that a burst comes into is recorded.
    for (wait, most) in [("-DWAIT()=_mm_pause()", 40e6), ("-DWAIT()", 400e6)] {
        let program = compiled(folder.path(), "spinning", SPINNING, &["-O1", "-g", wait]);
        let program = program.to_str().expect("text");
        let words = ["run", "--mode", "burst", "--quiet", "--force", "--out", "p", "--", program];
        let output = call(folder.path(), &words);
        assert_eq!(output.status.code(), Some(8), "{}", stderr(&output));
        let report = json(folder.path(), "p");
        let loads = report["totals"]["loads"].as_f64().expect("a number");
        assert!(loads < most, "{wait}: {report:#}");
        assert!(report["run"]["notes"].to_string().contains("in loops that wait"), "{wait}: {report:#}");
    }
}

/// Nearly all of its half second of processor time is the kernel's; between calls it reads a table.
const CALLS: &str = r#"
#include <fcntl.h>
#include <time.h>
#include <unistd.h>
static volatile unsigned table[16];
static char zeros[1 << 20];
int main(void)
{
    int file = open("/dev/zero", O_RDONLY);
    while (clock() < CLOCKS_PER_SEC / 2)
        for (int i = 0; i < 64; i++) {
            read(file, zeros, sizeof zeros);
            table[i & 15] += zeros[i];
        }
    return 7;
}
"#;

#[test]
fn time_in_system_calls_is_the_kernels() {
    let folder = folder();
    let program = compiled(folder.path(), "calls", CALLS, &["-O1", "-g"]);
    let program = program.to_str().expect("text");
    let words = ["run", "--mode", "burst", "--quiet", "--out", "bursts", "--", program];
    let output = call(folder.path(), &words);
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let report = json(folder.path(), "bursts");
    let notes = report["run"]["notes"].as_array().expect("a list").iter().filter_map(Value::as_str);
    let notes: Vec<&str> = notes.collect();
    let of_kernel = notes.iter().find(|note| note.contains("in system calls and in loops")).expect("a note");
    let percent: f64 = of_kernel.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
    assert!(percent > 75.0, "{notes:?}");
    // The same ticks are samples of time.
    let words =
        ["run", "--mode", "sample", "--event", "agent-clock", "--quiet", "--out", "samples", "--", program];
    let output = call(folder.path(), &words);
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let report = json(folder.path(), "samples");
    let calls = object(&report, "system calls");
    let part = calls["samples"].as_f64().expect("a number")
        / report["totals"]["samples"].as_f64().expect("a number");
    assert!(calls["kind"] == "computation" && part > 0.75, "{part}: {calls:#}");
}

/// A handler that repairs what the instruction needs, many times, in the middle of bursts.
const REPAIRS: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
static volatile int faults;
static char *area;
static void repair(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    faults++;
    mprotect((void *)((unsigned long)info->si_addr & ~4095ul), 4096, PROT_READ | PROT_WRITE);
}
int main(void)
{
    struct sigaction action = {0}, told;
    action.sa_sigaction = repair;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, 0);
    sigaction(SIGSEGV, 0, &told);
    unsigned long sum = 0;
    for (int round = 0; round < 200; round++) {
        area = mmap(0, 64 << 12, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int page = 0; page < 64; page++) {
            for (int i = 0; i < 2000; i++)
                sum = sum * 31 + i;
            area[page << 12] += page + sum % 3;
            sum += area[page << 12];
        }
        munmap(area, 64 << 12);
    }
    printf("%d %lu %d\n", faults, sum, told.sa_sigaction == repair);
    return 0;
}
"#;

#[test]
fn handlers_of_faults_find_the_native_registers() {
    let folder = folder();
    let program = compiled(folder.path(), "repairs", REPAIRS, &["-O1", "-g"]);
    let native = Command::new(&program).output().expect("runs");
    assert!(stdout(&native).ends_with(" 1\n"), "{}", stdout(&native));
    let program = program.to_str().expect("text");
    let words =
        ["run", "--mode", "burst", "--overhead", "100", "--frequency", "10000", "--quiet", "--out", "p"];
    let output = call(folder.path(), &[&words[..], &["--", program]].concat());
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), stdout(&native)), "{}", stderr(&output));
    let notes = json(folder.path(), "p")["run"]["notes"].to_string();
    assert!(notes.contains("at faults"), "{notes}");
}

/// Handlers of every shape, installed in every way: with and without SA_SIGINFO, left by a return and by a jump.
const HANDLES: &str = r#"
#define _GNU_SOURCE
#include <setjmp.h>
#include <unistd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static sigjmp_buf back;
static volatile long jumped, sent;
static void jumps(int number) { jumped++; siglongjmp(back, 1); }
static void counts(int number) { sent++; }
static void jumps_with_info(int number, siginfo_t *info, void *context) {
    if (info->si_addr != (void *)8) _exit(9);
    jumped++;
    siglongjmp(back, 1);
}
int main(int argc, char **argv) {
    long rounds = atol(argv[1]), raised = 0;
    volatile long sum = 0;
    struct sigaction plain = {.sa_handler = jumps}, with_info = {.sa_sigaction = jumps_with_info, .sa_flags = SA_SIGINFO}, told;
    signal(SIGFPE, counts);
    for (long round = 0; round < rounds; round++) {
        switch (round % 3) {
        case 0: sigaction(SIGSEGV, &plain, 0); break;
        case 1: sigaction(SIGSEGV, &with_info, 0); break;
        case 2: if (signal(SIGSEGV, jumps) == SIG_ERR) return 8; break;
        }
        sigaction(SIGSEGV, 0, &told);
        if (!!(told.sa_flags & SA_SIGINFO) != (round % 3 == 1)) return 7;
        if (round % 3 == 1 ? told.sa_sigaction != jumps_with_info : told.sa_handler != jumps) return 6;
        raise(SIGFPE);
        if (sigsetjmp(back, 1)) continue;
        // No system call from here on: a burst that begins in the loop meets the fault.
        for (int i = 0; i < 20000; i++) sum += i;
        raised++;
        *(volatile int *)8 = 1;
    }
    printf("%s %s\n", jumped == raised ? "same" : "differ", sent == rounds ? "same" : "differ");
    return 5;
}
"#;

#[test]
fn handlers_may_have_no_information_and_may_jump_out() {
    let folder = folder();
    let program = compiled(folder.path(), "handles", HANDLES, &["-O1", "-g"]);
    let output = memlens(folder.path())
        .args([
            "run",
            "--mode",
            "burst",
            "--overhead",
            "100",
            "--frequency",
            "10000",
            "--quiet",
            "--out",
            "p",
            "--",
        ])
        .arg(&program)
        .arg("20000")
        .output()
        .expect("runs");
    assert_eq!(
        (output.status.code(), stdout(&output).as_str()),
        (Some(5), "same same\n"),
        "{}",
        stderr(&output)
    );
    let notes = json(folder.path(), "p")["run"]["notes"].to_string();
    assert!(notes.contains("at faults"), "some came in a burst: {notes}");
}

/// Computes the same again and again, until its input ends.
const REPEATS: &str = r#"
#include <poll.h>
#include <stdio.h>
static unsigned table[1 << 16];
static unsigned long once(void)
{
    unsigned long sum = 0, state = 1;
    for (unsigned i = 0; i < 1 << 16; i++)
        table[i] = i;
    for (unsigned i = 0; i < 1000000; i++) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        sum += table[state >> 48] += i;
    }
    return sum;
}
int main(void)
{
    struct pollfd input = {0, POLLIN, 0};
    unsigned long first = once(), differ = 0;
    while (poll(&input, 1, 0) == 0)
        differ += once() != first;
    printf("%lu, %lu differ\n", first, differ);
    return 0;
}
"#;

#[test]
fn a_program_whose_memlens_is_killed_goes_on() {
    let folder = folder();
    let program = compiled(folder.path(), "repeats", REPEATS, &["-O1", "-g"]);
    let native = Command::new(&program).stdin(Stdio::null()).output().expect("runs");
    let out = folder.path().join("out");
    let mut recording = memlens(folder.path())
        .args(["run", "--mode", "burst", "--overhead", "100", "--frequency", "1000", "--flush-every", "1"])
        .args(["--quiet", "--out", "p", "--"])
        .arg(&program)
        .stdin(Stdio::piped())
        .stdout(fs::File::create(&out).expect("a file"))
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    wait_until(|| folder.path().join("p/profile.json").exists());
    recording.kill().expect("it runs");
    // The program has its own copy of the pipe's other end.
    let input = recording.stdin.take();
    assert_eq!(recording.wait().expect("ended").signal(), Some(9));
    drop(input);
    wait_until(|| fs::read(&out).expect("readable") == native.stdout);
}

/// Adds up an array again and again.
const ADDS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    unsigned count = 1 << 20, *table = calloc(count, sizeof *table), sum = 0;
    for (unsigned step = 0; step < 60000000; step++)
        sum += table[(step * 2654435761u) >> 12]++;
    printf("%u\n", sum);
    return 3;
}
"#;

#[test]
fn a_script_that_executes_the_program_is_followed() {
    let folder = folder();
    let program = compiled(folder.path(), "adds", ADDS, &["-O1", "-g"]);
    let script = folder.path().join("wrapper");
    std::fs::write(&script, format!("#!/bin/sh\n/bin/true\nexec '{}'\n", program.display()))
        .expect("written");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("changed");
    let native = Command::new(&program).output().expect("runs");
    let words =
        ["run", "--mode", "burst", "--overhead", "100", "--frequency", "1000", "--quiet", "--out", "p"];
    let output = call(folder.path(), &[&words[..], &["--", script.to_str().expect("text")]].concat());
    assert_eq!((output.status.code(), stdout(&output)), (Some(3), stdout(&native)), "{}", stderr(&output));
    let report = json(folder.path(), "p");
    let largest = &report["objects"][0];
    assert_eq!((&largest["name"], &largest["kind"]), (&"table".into(), &"heap".into()), "{report}");
    // Nobody knows from bursts what is written back.
    assert!(largest["dram_writes"].is_null() && largest["loads"].as_u64() > Some(0), "{largest}");
    assert!(!report["run"]["notes"].to_string().contains("without the agent"), "{report}");
}

/// Sixteen loops one after the other, each of ten million loads of data of its own in a few ms.
fn short_phases() -> String {
    let numbers = || 0..16;
    let phase = |number: u32| {
        format!(
            "long data_{number}[1000];
            __attribute__((noinline, aligned(64))) static long phase_{number}(long sum)
            {{
                for (int round = 0; round < 10000; round++)
                    for (int at = 0; at < 1000; at++)
                        sum = (sum ^ data_{number}[at]) + (sum >> 7);
                return sum;
            }}
            "
        )
    };
    let phases: String = numbers().map(phase).collect();
    let calls: String = numbers().map(|number| format!("sum = phase_{number}(sum);")).collect();
    format!(
        "{phases}int main(int argc, char **argv) {{ (void)argv; long sum = argc; {calls} return sum == 7; }}"
    )
}

#[test]
fn loops_of_few_milliseconds_are_met_as_their_code_is_new() {
    let folder = folder();
    let program = compiled(folder.path(), "phases", &short_phases(), &["-O2", "-g"]);
    let program = program.to_str().expect("text");
    // The second executes another program, which is prompted anew.
    for command in [&[program][..], &["sh", "-c", &format!("exec {program}")]] {
        // A busy machine may leave one run too little.
        let (mut most, mut told) = (0, String::new());
        for _ in 0..3 {
            // So much that there are prompts each ms where they are dear, too.
            let words =
                ["record", "--mode", "burst", "--overhead", "10%", "--quiet", "--force", "--out", "p", "--"];
            let output = memlens(folder.path())
                .args(words)
                .args(command)
                .env("MEMLENS_LOG", "memlens_sample=debug")
                .output()
                .expect("memlens runs");
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            if stderr(&output).contains("no prompts") || stderr(&output).contains("no glances") {
                eprintln!("passed over: the kernel gives no signals of its clock");
                return;
            }
            let report = json(folder.path(), "p");
            let objects = report["objects"].as_array().expect("a list");
            let is_met = |object: &&Value| {
                let is_data = object["name"].as_str().is_some_and(|name| name.starts_with("data_"));
                is_data && (2e6..40e6).contains(&object["loads"].as_f64().expect("a number"))
            };
            most = most.max(objects.iter().filter(is_met).count());
            if most >= 12 {
                break;
            }
            told = stderr(&output);
        }
        assert!(most >= 12, "{most} of 16: {told}");
    }
}

#[test]
fn who_uses_the_signal_of_prompts_sees_only_its_own() {
    const LOOP: &str = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let folder = folder();
    for script in [
        // From its begin on, and later: what comes until memlens sees that does not reach it.
        format!("trap 'echo mine' URG; {LOOP}; kill -URG $$; {LOOP}; trap - URG; kill -URG $$; echo done"),
        format!("{LOOP}; trap 'echo mine' URG; {LOOP}; kill -URG $$; echo done"),
        format!("trap '' URG; {LOOP}; kill -URG $$; echo done"),
        // Without room for signals.
        format!("ulimit -i 0; {LOOP}; kill -URG $$; echo done"),
    ] {
        let native = Command::new("bash").args(["-c", &script]).output().expect("bash runs");
        let words = ["record", "--mode", "burst", "--quiet", "--force", "--out", "p", "--", "bash", "-c"];
        let output = call(folder.path(), &[&words[..], &[script.as_str()]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(stdout(&output), String::from_utf8_lossy(&native.stdout), "{script}");
    }
}

#[test]
fn threads_have_their_names_though_they_have_ended() {
    let folder = folder();
    let source = "#define _GNU_SOURCE\n#include <pthread.h>\n#include <stdlib.h>\n\
        static volatile long sum;\n\
        static void *work(void *name) {\n\
            pthread_setname_np(pthread_self(), name);\n\
            long *values = calloc(1 << 16, sizeof *values);\n\
            for (int round = 0; round < 800; round++)\n\
                for (int at = 0; at < 1 << 16; at++) sum += values[at];\n\
            return values;\n\
        }\n\
        int main(void) {\n\
            char *names[] = {\"first\", \"second\", \"third\", 0};\n\
            for (int i = 0; names[i]; i++) {\n\
                pthread_t thread;\n\
                pthread_create(&thread, 0, work, names[i]);\n\
                pthread_join(thread, 0);\n\
            }\n\
            return 0;\n\
        }";
    let program = compiled(folder.path(), "named", source, &["-O1"]);
    let program = program.to_str().expect("plain");
    let words = ["record", "--mode", "burst", "--overhead", "10%", "--quiet", "--out", "p", "--", program];
    succeeding(folder.path(), &words);
    let table = succeeding(folder.path(), &["report", "p", "--by", "thread", "--format", "csv"]);
    for name in ["first", "second", "third"] {
        assert!(table.contains(name), "{name}: {table}");
    }
}

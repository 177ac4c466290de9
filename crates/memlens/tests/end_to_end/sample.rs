//! Sample mode through the command line.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{compiled, path_of, refuse_events};
use serde_json::Value;

fn memlens(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memlens"));
    command.args(arguments).env("MEMLENS_CALIBRATION", "none");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether this machine lets the tests sample at all.
fn is_refused(output: &Output) -> bool {
    text(&output.stderr).contains("open a performance event")
}

#[test]
fn a_sampled_program_prints_and_ends_as_it_always_does() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let profile = folder.path().join("p");
    let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo out; echo err >&2; exit 3";
    // The usual rate depends on what a sample costs here: on a busy machine there might be none in so short a time.
    let output = memlens(&["run", "--mode", "sample", "--frequency", "997", "--quiet", "--out"])
        .arg(&profile)
        .args(["--", "sh", "-c", script])
        .output()
        .expect("it starts");
    if is_refused(&output) {
        return;
    }
    assert_eq!(
        (output.status.code(), text(&output.stdout), text(&output.stderr)),
        (Some(3), "out\n".into(), "err\n".into())
    );
    let report = memlens(&["report", "--format", "json"]).arg(&profile).output().expect("it starts");
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    assert_eq!(report["run"]["mode"], "sample");
    assert_eq!(report["run"]["estimated"], true);
    assert_eq!(report["run"]["primary_cost"], "time");
    assert_eq!(report["run"]["exit_code"], 3);
    assert_eq!(report["run"]["sampling"]["unit"], "nanoseconds");
    // Samples count no accesses: unknown, not 0.
    assert_eq!(report["totals"]["loads"], Value::Null);
    assert_eq!(report["totals"]["wait_cycles"], Value::Null);
    let samples = report["totals"]["samples"].as_u64().expect("a number");
    assert!(samples > 0);
    let objects = report["objects"].as_array().expect("a list");
    let sum: u64 = objects.iter().filter_map(|object| object["samples"].as_u64()).sum();
    assert_eq!(sum, samples);
    for object in objects {
        let share = object["share"].as_f64().expect("a share");
        let interval = &object["share_ci95"];
        let (low, high) = (interval[0].as_f64().expect("low"), interval[1].as_f64().expect("high"));
        assert!(0.0 <= low && low <= share && share <= high && high <= 1.0, "{object}");
    }
}

#[test]
fn a_signal_that_ends_the_program_ends_memlens() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = memlens(&["run", "--mode", "sample", "--quiet", "--out"])
        .arg(folder.path().join("p"))
        .args(["--", "sh", "-c", "kill -TERM $$"])
        .output()
        .expect("it starts");
    if !is_refused(&output) {
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{output:?}");
    }
}

/// A command whose events the kernel refuses.
fn without_events(mut command: Command) -> Output {
    // SAFETY: the function makes system calls only.
    unsafe { command.pre_exec(|| refuse_events(libc::EPERM)) };
    command.output().expect("it starts")
}

#[test]
fn without_permission_it_says_so_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let profile = folder.path().join("p");
    let mut command = memlens(&["run", "--mode", "sample", "--event", "cache-misses", "--out"]);
    command.arg(&profile).args(["--", "sh", "-c", "echo ran"]);
    let output = without_events(command);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(75), "{stderr}");
    assert!(stderr.contains("perf_event_paranoid") && stderr.contains("--mode exact"), "{stderr}");
    assert_eq!(text(&output.stdout), "", "the program must not run unrecorded");
    assert!(!profile.exists());
    let output = without_events(memlens(&["doctor"]));
    let stdout = text(&output.stdout);
    assert!(stdout.contains("perf_event_open is forbidden") && stdout.contains("agent-clock"), "{stdout}");
    // The agent is let into them (`without_events_of_the_kernel_a_process_is_sampled_by_the_agent`).
    assert!(stdout.contains("processes that run already (--pid), static programs not at all"), "{stdout}");
}

fn report_of(profile: &Path) -> Value {
    let report = memlens(&["report", "--format", "json"]).arg(profile).output().expect("it starts");
    serde_json::from_slice(&report.stdout).unwrap_or_else(|_| panic!("{}", text(&report.stderr)))
}

/// Reads a table that a function made and returned: it is called as the variable that receives it, as in exact mode.
const TABLE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) static unsigned *make(size_t count)
{
    unsigned *table = malloc(count * sizeof *table);
    for (size_t i = 0; i < count; i++)
        table[i] = (unsigned)(i * 2654435761u) % count;
    return table;
}
int main(void)
{
    unsigned *cursor = make(1 << 22), at = 0;
    for (long i = 0; i < 5000000; i++)
        at = cursor[at ^ (unsigned)(i & 1023)];
    printf("%u\n", at);
    return 6;
}
"#;

/// The heap object that has the most bytes.
fn largest_block(report: &Value) -> &Value {
    let objects = report["objects"].as_array().expect("a list").iter();
    let heap = objects.filter(|object| object["kind"] == "heap");
    heap.max_by_key(|object| object["bytes"].as_u64()).unwrap_or_else(|| panic!("{report}"))
}

#[test]
fn a_watched_block_is_the_object_that_it_is_in_exact_mode() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "program", TABLE, &["-O1", "-g"]);
    let native = Command::new(&program).output().expect("it starts");
    let run = |mode: &str, event: &[&str]| {
        let profile = folder.path().join(format!("{mode}{}", event.concat()));
        let mut command = memlens(&["run", "--mode", mode, "--quiet"]);
        command.args(event).arg("--out").arg(&profile).arg("--").arg(&program);
        let output = command.output().expect("it starts");
        if is_refused(&output) {
            return None;
        }
        let stderr = text(&output.stderr);
        assert_eq!((output.status, &output.stdout), (native.status, &native.stdout), "{stderr}");
        Some(report_of(&profile))
    };
    let exact = run("exact", &[]).expect("it needs no permission");
    let expected = largest_block(&exact);
    assert_eq!((&expected["bytes"], &expected["blocks"]), (&(16 << 20).into(), &1.into()));
    for event in ["time", "agent-clock"] {
        let Some(report) = run("sample", &["--frequency", "997", "--event", event]) else { continue };
        let found = largest_block(&report);
        for field in ["name", "type", "kind", "bytes", "blocks"] {
            assert_eq!(found[field], expected[field], "{event}: {field}");
        }
        // The call of malloc, and who called that function.
        for (frame, field) in [(0, "function"), (0, "line"), (1, "function"), (1, "line")] {
            assert_eq!(found["site"][frame][field], expected["site"][frame][field], "{event}: {field}");
        }
        // Time goes to it, and nothing goes to the pointer by itself.
        assert!(found["share"].as_f64().is_some_and(|share| share > 0.5), "{event}: {found}");
        let objects = report["objects"].as_array().expect("a list");
        let is_pointers = |object: &&Value| {
            object["module"] == "program"
                && object["name"].as_str().is_some_and(|it| it.starts_with("heap through"))
        };
        assert!(!objects.iter().any(|object| is_pointers(&object)), "{event}: {objects:?}");
    }
}

/// Reads one field of a global array of structures, in no order.
const RECORDS: &str = r#"
struct record { long key, padding[5], value, weight; };
struct record table[1 << 18];
int main(void)
{
    unsigned long at = 88172645463325252;
    long sum = 0;
    for (long i = 0; i < 20000000; i++) {
        at ^= at << 13;
        at ^= at >> 7;
        at ^= at << 17;
        sum += table[at >> 46].value;
    }
    return sum != 0;
}
"#;

#[test]
fn time_at_a_field_of_a_global_array_is_that_fields() {
    let Some(report) = sampled(RECORDS, &["-O1", "-g"]) else { return };
    let objects = report["objects"].as_array().expect("a list");
    let table = objects.iter().find(|object| object["name"] == "table").expect("it is sampled");
    let fields = table["fields"].as_array().expect("a list").iter();
    let samples = |object: &Value| object["samples"].as_u64().expect("a number");
    let of_value: u64 = fields.filter(|field| field["name"] == "value").map(samples).sum();
    assert!(of_value > 0 && of_value == samples(table), "{table}");
}

/// The profile of a program that is sampled; `None` where that is not allowed.
fn sampled(source: &str, options: &[&str]) -> Option<Value> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "program", source, options);
    let profile = folder.path().join("p");
    let mut command = memlens(&["run", "--mode", "sample", "--frequency", "997", "--quiet", "--out"]);
    let output = command.arg(&profile).arg("--").arg(&program).output().expect("it starts");
    (!is_refused(&output)).then(|| report_of(&profile))
}

/// The share of the objects of a name.
fn share_of(report: &Value, name: &str) -> f64 {
    let objects = report["objects"].as_array().expect("a list").iter();
    objects.filter(|object| object["name"] == name).filter_map(|object| object["share"].as_f64()).sum()
}

/// Follows chains of a hash table: nearly all time is at the nodes, each of which is too small to be watched.
const CHAINS: &str = r#"
#include <stdlib.h>
struct node { long key, weight[5]; struct node *next; };
struct node **table;
int main(void)
{
    table = calloc(1 << 14, sizeof *table);
    for (long i = 0; i < 300000; i++) {
        struct node *made = malloc(sizeof *made);
        made->key = i;
        unsigned at = (unsigned)(i * 2654435761u) >> 18;
        made->next = table[at];
        table[at] = made;
    }
    long sum = 0;
    unsigned long random = 5;
    for (long i = 0; i < 1000000; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        for (struct node *node = table[random >> 50]; node; node = node->next)
            sum += node->key;
    }
    return sum == 1;
}
"#;

#[test]
fn nodes_are_not_taken_for_the_table_that_points_to_them() {
    let Some(report) = sampled(CHAINS, &["-O2", "-g"]) else { return };
    let (of_nodes, of_table) = (share_of(&report, "made"), share_of(&report, "table"));
    assert!(of_nodes > 0.5 && of_table < 0.2, "{of_nodes} {of_table}: {report}");
}

/// Loads that overwrite their own index, in a member behind another one; then a frame that is larger than what is copied of a
/// stack; then a thread-local array.
const OWN_INDICES: &str = r#"
#include <stdlib.h>
struct box { int head[8]; int next[1 << 20]; };
struct box box;
__attribute__((noinline)) static int follow(const struct box *box, long steps)
{
    int at = 1;
    for (long i = 0; i < steps; i++)
        at = box->next[at];
    return at;
}
__attribute__((noinline)) static int in_a_large_frame(long steps)
{
    struct { long key; int next; } cells[5000];
    for (int i = 0; i < 5000; i++)
        cells[i].next = (i * 31 + 7) % 5000;
    long sum = 0;
    for (long i = 0; i < steps; i++)
        sum += cells[i % 5000].next *= 3;
    return (int)sum;
}
static __thread long counts[1024];
__attribute__((noinline)) static int in_thread_locals(long steps)
{
    unsigned long state = 1;
    for (long i = 0; i < steps; i++) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        counts[state >> 54] += i;
    }
    return (int)counts[5];
}
int main(void)
{
    for (int i = 0; i < 1 << 20; i++)
        box.next[i] = (int)((i * 2654435761u + 12345) & 0xfffff);
    return (follow(&box, 3000000) + in_a_large_frame(50000000) + in_thread_locals(50000000)) == 1;
}
"#;

#[test]
fn members_of_unknown_elements_locals_of_large_frames_and_thread_locals_have_names() {
    let Some(report) = sampled(OWN_INDICES, &["-O1", "-g"]) else { return };
    let objects = report["objects"].as_array().expect("a list");
    let named = |name: &str| objects.iter().find(|object| object["name"] == name);
    let samples = |object: &Value| object["samples"].as_u64().expect("a number");
    let found = named("box").expect("it is sampled");
    let fields = found["fields"].as_array().expect("a list");
    let of_head: u64 = fields.iter().filter(|field| field["name"] == "head").map(samples).sum();
    assert_eq!(of_head, 0, "{found}");
    assert!(samples(found) > 10, "{found}");
    let counts = named("counts").unwrap_or_else(|| panic!("{report}"));
    assert_eq!((&counts["kind"], counts["bytes"].as_u64()), (&"tls".into(), Some(8192)));
    let cells = named("cells").unwrap_or_else(|| panic!("{report}"));
    assert_eq!((&cells["kind"], cells["bytes"].as_u64()), (&"local".into(), Some(5000 * 16)));
}

#[test]
fn code_without_symbols_is_analysed_too() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "program", RECORDS, &["-O1", "-s"]);
    let profile = folder.path().join("p");
    let mut command = memlens(&["run", "--mode", "sample", "--attribution", "static", "--frequency", "997"]);
    let output = command.args(["--quiet", "--out"]).arg(&profile).arg("--").arg(&program);
    let output = output.output().expect("it starts");
    if is_refused(&output) {
        return;
    }
    let report = report_of(&profile);
    let largest = report["objects"].as_array().expect("a list").first().expect("there are samples");
    assert_eq!(
        (&largest["kind"], &largest["name"]),
        (&"global".into(), &".bss of program".into()),
        "{report}"
    );
}

/// One function walks two arrays, each for another caller.
const WALKS: &str = r#"
static unsigned first_table[1 << 20], second_table[1 << 20];
static volatile unsigned sink;
__attribute__((noinline)) static unsigned walk(const unsigned *table, long steps)
{
    unsigned at = 1;
    for (long i = 0; i < steps; i++)
        at = table[(at * 2654435761u + (unsigned)i) >> 12] + at + 1;
    return at;
}
__attribute__((noinline)) static void walk_first(void)
{
    sink = walk(first_table, 60000000) + 1;
}
__attribute__((noinline)) static void walk_second(void)
{
    sink = walk(second_table, 30000000) + 1;
}
int main(void)
{
    walk_first();
    walk_second();
    return 0;
}
"#;

#[test]
fn an_object_is_reached_through_the_calls_that_lead_to_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (program, profile) =
        (compiled(folder.path(), "program", WALKS, &["-O1", "-g"]), folder.path().join("p"));
    for event in ["time", "agent-clock"] {
        // Often enough that each of the two has some dozens of samples.
        let words =
            ["record", "--force", "--mode", "sample", "--frequency", "997", "--quiet", "--event", event];
        let mut command = memlens(&words);
        let output = command.arg("--out").arg(&profile).arg("--").arg(&program).output().expect("it starts");
        if is_refused(&output) {
            continue;
        }
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report = report_of(&profile);
        let tree = report["call_tree"].as_array().unwrap_or_else(|| panic!("{report}"));
        let id = |name: &str| {
            let mut objects = report["objects"].as_array().expect("a list").iter();
            objects.find(|object| object["name"] == name).map(|object| object["id"].clone()).expect(name)
        };
        for (caller, table) in [("walk_first", "first_table"), ("walk_second", "second_table")] {
            let wanted = ["walk", caller, "main"];
            let node = tree.iter().find(|node| path_of(tree, node).starts_with(&wanted.map(str::to_owned)));
            let node = node.unwrap_or_else(|| panic!("{event}: {wanted:?}: {tree:?}"));
            assert!(node["line"].is_null(), "it stands for the whole function: {node}");
            let objects = node["objects"].as_array().expect("a list");
            let own = objects.iter().find(|object| object["id"] == id(table));
            let share = own.and_then(|own| own["share"].as_f64()).unwrap_or(0.0);
            // What is not its table's is computation: no sample is of the other caller's table.
            assert!(share > 0.3 * node["share"].as_f64().expect("a share"), "{event}: {node}");
            let other = if caller == "walk_first" { "second_table" } else { "first_table" };
            assert!(objects.iter().all(|object| object["id"] != id(other)), "{event}: {node}");
        }
        // Each sample once: the tree's parts and those without a path are all.
        let sum: u64 = tree.iter().map(|node| node["samples"].as_u64().expect("a number")).sum();
        assert!(sum > 0 && sum <= report["totals"]["samples"].as_u64().expect("a number"), "{event}");

        let shown = |words: &[&str]| {
            let output = memlens(&["report"]).arg(&profile).args(words).output().expect("it starts");
            assert!(output.status.success(), "{}", text(&output.stderr));
            text(&output.stdout)
        };
        let all = shown(&["--by", "caller"]);
        assert!(all.contains("walk_first program.c:") && all.contains("walk_second program.c:"), "{all}");
        let one = shown(&["--object", &id("second_table").to_string(), "--by", "caller"]);
        assert!(one.contains("walk_second program.c:") && !one.contains("walk_first"), "{one}");
    }
}

#[test]
fn where_events_are_forbidden_the_program_is_sampled_by_its_own_timers() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (program, profile) =
        (compiled(folder.path(), "program", TABLE, &["-O1", "-g"]), folder.path().join("p"));
    let mut command = memlens(&["run", "--mode", "sample", "--frequency", "997", "--quiet", "--out"]);
    command.arg(&profile).arg("--").arg(&program);
    let output = without_events(command);
    assert_eq!(output.status.code(), Some(6), "{}", text(&output.stderr));
    let report = report_of(&profile);
    assert_eq!(report["run"]["sampling"]["event"], "agent-clock");
    assert!(report["totals"]["samples"].as_u64().is_some_and(|samples| samples > 0), "{report}");
}

#[test]
fn a_killed_memlens_leaves_the_program_running() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = r#"
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
    puts("started");
    fflush(stdout);
    getchar();
    for (long i = 0; i < 300000; i++)
        free(malloc(100 + i % 1000));
    puts("done");
    return 0;
}
"#;
    let program = compiled(folder.path(), "program", source, &["-O1", "-g"]);
    let mut child =
        memlens(&["run", "--mode", "sample", "--quiet", "--allocations", "all", "--event", "agent-clock"])
            .arg("--out")
            .arg(folder.path().join("p"))
            .arg("--")
            .arg(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "started");
    child.kill().expect("killed");
    child.wait().expect("gone");
    // The program has its own copy of the pipe's other end: closing ours is what it waits for.
    drop(child.stdin.take());
    assert_eq!(lines.next().expect("a line").expect("text"), "done");
}

#[test]
fn a_static_program_is_sampled_without_its_allocations() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = folder.path().join("static");
    std::fs::write(folder.path().join("s.c"), TABLE).expect("written");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-static", "-o"]).arg(&program).arg(folder.path().join("s.c"));
    assert!(compiler.status().expect("there is a C compiler").success());
    let mut command = memlens(&["run", "--mode", "sample", "--out"]);
    let output = command.arg(folder.path().join("p")).arg("--").arg(&program).output().expect("it starts");
    if is_refused(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(6));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("the program is linked statically"), "{stderr}");
    let mut command = memlens(&["run", "--mode", "sample", "--event", "agent-clock", "--out"]);
    let output = command.arg(folder.path().join("q")).arg("--").arg(&program).output().expect("it starts");
    assert_eq!(output.status.code(), Some(75), "{}", text(&output.stderr));
    assert!(!folder.path().join("q").exists());
}

#[test]
fn a_process_that_is_not_there_is_named() {
    let output = memlens(&["record", "--pid", "4194304", "--duration", "1"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(66));
    assert!(text(&output.stderr).contains("there is no such process"), "{}", text(&output.stderr));
}

/// Two profiles of one program in different modes: what each ranks its objects by is held against the other.
#[test]
fn a_sampled_profile_is_held_against_an_exact_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/kernels/gups.c");
    let program = folder.path().join("gups");
    let compiled =
        Command::new("cc").args(["-O2", "-g", "-pthread", "-o"]).arg(&program).arg(source).status();
    assert!(compiled.expect("there is a C compiler").success());
    let run = |mode: &str, words: &[&str], size: &str| {
        let mut command = memlens(&["run", "--quiet", "--mode", mode]);
        command.args(words).arg("--out");
        let output = command.arg(folder.path().join(mode)).arg("--").arg(&program).arg(size).output();
        output.expect("it starts")
    };
    if is_refused(&run("sample", &["--frequency", "997"], "22")) {
        return;
    }
    // A table that the second level holds has no more than 29 to 48 % of the stalls, as addresses fall.
    assert!(run("exact", &[], "17").status.success());
    let [exact, sampled] = ["exact", "sample"].map(|mode| folder.path().join(mode));
    let exported = memlens(&["export", "callgrind"]).arg(&sampled).output().expect("it starts");
    assert_eq!(exported.status.code(), Some(64));
    assert!(exported.stdout.is_empty() && text(&exported.stderr).contains("samples have none"));
    let compared =
        memlens(&["compare", "--format", "json"]).args([exact, sampled]).output().expect("it starts");
    let message = text(&compared.stderr);
    let document: Value = serde_json::from_slice(&compared.stdout).unwrap_or_else(|_| panic!("{message}"));
    let objects = document["objects"].as_array().expect("a list");
    // The one large table has nearly all of the cost in both modes.
    let is_large = |object: &Value, side: &str| object[side].as_f64().is_some_and(|share| share > 0.3);
    assert!(objects.iter().any(|object| is_large(object, "share_a")), "{document}");
    assert!(objects.iter().any(|object| is_large(object, "share_b")), "{document}");
}

/// An allocator that is part of the program: its mappings are no objects, and what lies in them is called after who points there.
#[test]
fn memory_of_a_programs_own_allocator_is_named_by_its_users() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/prefixed_allocator.c");
    let source = std::fs::read_to_string(source).expect("readable");
    let program = compiled(folder.path(), "own", &source, &["-O2", "-g"]);
    for mode in ["sample", "burst"] {
        let profile = folder.path().join(mode);
        let output = memlens(&["run", "--mode", mode, "--quiet", "--out"])
            .arg(&profile)
            .arg("--")
            .arg(&program)
            .arg("200000")
            .output()
            .expect("it starts");
        if is_refused(&output) {
            return;
        }
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report = memlens(&["report", "--format", "json"]).arg(&profile).output().expect("it starts");
        let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
        let objects = report["objects"].as_array().expect("a list");
        let of = |object: &Value| object["samples"].as_u64().or(object["stores"].as_u64()).unwrap_or(0);
        let named = |name: &str| objects.iter().filter(|it| it["name"] == name).map(of).sum::<u64>();
        let names: Vec<&Value> = objects.iter().map(|it| &it["name"]).collect();
        assert!(named("heap through table") > 0, "{mode}: {names:?}");
        assert_eq!(named("arena"), 0, "{mode}: {names:?}");
    }
}

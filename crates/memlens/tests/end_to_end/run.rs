//! `memlens run` from end to end, on programs that every system has. These need the recording engine,
//! which is carried in the binary, and x86-64 Linux.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{call, compiled, memlens, stderr, stdout, succeeding, wait_until};
use serde_json::Value;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Records a shell script, silently.
fn record(folder: &Path, script: &str) -> Output {
    call(folder, &["run", "--mode", "exact", "--quiet", "--force", "--out", "p", "--", "sh", "-c", script])
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("readable");
    entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn output_and_exit_code_are_the_programs() {
    let folder = folder();
    let output = record(folder.path(), "echo out; echo err >&2; exit 7");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!((stdout(&output), stderr(&output)), ("out\n".into(), "err\n".into()));
    // Codes that memlens uses itself are the program's, too, when it returns them.
    for code in [0, 1, 64, 127, 255] {
        assert_eq!(record(folder.path(), &format!("exit {code}")).status.code(), Some(code));
    }
    let report = succeeding(folder.path(), &["report", "p", "--format", "json"]);
    let report: Value = serde_json::from_str(&report).expect("valid JSON");
    assert_eq!(report["run"]["exit_code"], 255);
    assert!(report["totals"]["loads"].as_u64() > Some(1000), "{}", report["totals"]);
}

#[test]
fn signals_are_the_programs() {
    let folder = folder();
    // Not SIGINT or SIGHUP: where the tests run in the background, they are ignored, and stay so.
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("USR2", 12), ("ALRM", 14), ("PIPE", 13)]
    {
        let output = record(folder.path(), &format!("kill -{name} $$"));
        assert_eq!(output.status.signal(), Some(number), "{name}: {}", stderr(&output));
        assert!(!output.status.core_dumped(), "{name}");
        assert_eq!(stderr(&output), "", "{name}");
        // The profile is there.
        succeeding(folder.path(), &["report", "p"]);
    }
}

/// 32 MiB are written four times; the E5504 of the description has 4 MiB of last level.
#[test]
fn what_is_written_back_counts_while_accesses_do() {
    let source = "#include <stdlib.h>\n__attribute__((noipa)) static void fill(long *at, long n)\n\
                  { for (long i = 0; i < n; i++) at[i] = i; }\n\
                  __attribute__((noipa)) static void once(long *at, long n) { fill(at, n); }\n\
                  int main(void) { long n = 1 << 22, *at = malloc(n * 8); fill(at, n); fill(at, n); once(at, n);\n\
                  fill(at, n); return at[5] - 5; }";
    let folder = folder();
    let program = compiled(folder.path(), "fills", source, &["-O1"]);
    let written = |options: &[&str]| {
        let mut words = vec!["record", "--mode", "exact", "--machine", "e5504", "--quiet", "--force"];
        words.extend(options);
        words.extend(["--out", "p", "--", program.to_str().expect("a name")]);
        let output = call(folder.path(), &words);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let report = succeeding(folder.path(), &["report", "p", "--format", "json"]);
        let report: Value = serde_json::from_str(&report).expect("valid JSON");
        report["totals"]["dram_writes"].as_u64().expect("modelled")
    };
    const FILL: u64 = (32 << 20) / 64;
    let (all, never, once) = (
        written(&[]),
        written(&["--start-on", "nobody"]),
        written(&["--start-on", "once", "--stop-on", "main"]),
    );
    assert!((3 * FILL..5 * FILL).contains(&all), "{all}");
    assert_eq!(never, 0);
    // Collection goes on to the end.
    assert!((FILL..5 * FILL / 2).contains(&once), "{once} of {all}");
}

#[test]
fn standard_input_reaches_the_program() {
    use std::io::Write;
    let folder = folder();
    let mut child = memlens(folder.path())
        .args(["run", "-q", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    child.stdin.take().expect("piped").write_all(b"through").expect("read");
    assert_eq!(stdout(&child.wait_with_output().expect("ends")), "through");
}

#[test]
fn the_table_goes_to_stderr_and_says_where_the_profile_is() {
    let folder = folder();
    let output = call(folder.path(), &["run", "--", "true"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), String::new()));
    let messages = stderr(&output);
    assert!(messages.starts_with("memlens: burst mode: "), "{messages}");
    let names = names(folder.path());
    assert_eq!(names.len(), 1, "{names:?}");
    let process_id = names[0].strip_prefix("memlens.true.").expect("the default name");
    process_id.parse::<u32>().expect("a process id");
    assert!(messages.contains(&format!("memlens report {}", names[0])), "{messages}");
    let report = succeeding(folder.path(), &["report", &names[0], "--format", "json"]);
    assert!(report.contains("\"true\""), "{report}");

    let output = call(folder.path(), &["record", "--mode", "exact", "--out", "p", "--", "true"]);
    assert_eq!(stderr(&output), "memlens: the profile is in p; look closer with: memlens report p\n");
}

#[test]
fn the_mode_is_chosen_by_what_is_asked_for_and_by_the_program() {
    let folder = folder();
    let static_program = compiled(folder.path(), "static", "int main(void) { return 3; }", &["-static"]);
    let static_program = static_program.to_str().expect("UTF-8");
    let cases: [(&[&str], i32, &str, &str); 5] = [
        (&["true"], 0, "burst", "burst mode: "),
        (&["--machine", "e5504", "true"], 0, "burst", "burst mode: "),
        (&["--no-merge", "true"], 0, "exact", "exact mode, because --no-merge"),
        (&["--event", "agent-clock", "true"], 0, "sample", "sample mode, because --event"),
        (&[static_program], 3, "exact", "the program is linked statically"),
    ];
    for (words, code, mode, reason) in cases {
        let words = [&["run", "--force", "--out", "p"], words].concat();
        let output = call(folder.path(), &words);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", stderr(&output));
        let said = stderr(&output);
        assert!(said.lines().next().is_some_and(|line| line.contains(reason)), "{words:?}: {said}");
        let report = succeeding(folder.path(), &["report", "p", "--format", "json"]);
        let report: Value = serde_json::from_str(&report).expect("JSON");
        assert_eq!(report["run"]["mode"], mode, "{words:?}");
    }
}

const PATTERNS: &str = r#"
#include <stdlib.h>
struct node { struct node *next; long value[15]; };
int chosen[1 << 16];
long table[1 << 16], columns[4096][512];
__attribute__((noipa)) long streams(void) {
    long sum = 0;
    for (int i = 0; i < 1 << 16; i++) sum += table[i];
    return sum;
}
__attribute__((noipa)) long gathers(void) {
    long sum = 0;
    for (int i = 0; i < 1 << 16; i++) sum += table[chosen[i]];
    return sum;
}
__attribute__((noipa)) long goes_down(int column) {
    long sum = 0;
    for (int i = 0; i < 4096; i++) sum += columns[i][column];
    return sum;
}
__attribute__((noipa)) long follows(struct node *at) {
    long sum = 0;
    for (; at; at = at->next) sum += at->value[3];
    return sum;
}
struct node *heads[4096], pairs[4096];
/* A chain in the code, and of one node at each head. */
__attribute__((noipa)) long probes(void) {
    long sum = 0;
    for (int i = 0; i < 1 << 14; i++)
        for (struct node *at = heads[chosen[i] & 4095]; at; at = at->next)
            if (at->value[3] == 7) {
                sum++;
                break;
            }
    return sum;
}
int main(int argc, char **argv) {
    int rounds = atoi(argv[1]), nodes = 4096;
    for (int i = 0; i < 4096; i++) heads[i] = &pairs[i], pairs[i].value[3] = 7;
    struct node *list = calloc(nodes, sizeof *list);
    unsigned state = 1;
    for (int i = 0; i < 1 << 16; i++) chosen[i] = (state = state * 1664525 + 1013904223) >> 16;
    for (int i = 0; i < nodes; i++) list[i].next = &list[(i * 1021 + 511) % nodes];
    list[0].next = 0;
    volatile long sink = 0;
    for (int round = 0; round < rounds; round++) {
        sink += streams() + gathers() + probes();
        for (int i = 0; i < 64; i++) sink += goes_down(8 * i) + follows(list + 1);
    }
    return 0;
}
"#;

#[test]
fn how_code_goes_through_memory_is_told() {
    let folder = folder();
    // Not vectorised: what a vector instruction does depends on the compiler.
    let program = compiled(folder.path(), "patterns", PATTERNS, &["-O1", "-g"]);
    let program = program.to_str().expect("UTF-8");
    let modes: [&[&str]; 2] = [
        &["--mode", "exact", "--", program, "60"],
        // As many bursts as there can be.
        &["--mode", "burst", "--overhead", "100", "--frequency", "1000", "--", program, "1500"],
    ];
    for mode in modes {
        let words = [&["run", "--quiet", "--force", "--out", "p"], mode].concat();
        assert_eq!(call(folder.path(), &words).status.code(), Some(0));
        let report = succeeding(folder.path(), &["report", "p", "--format", "json"]);
        let report: Value = serde_json::from_str(&report).expect("JSON");
        let of = |function: &str| {
            let instructions = report["instructions"].as_array().expect("a list").iter();
            let loads =
                instructions.filter(|it| it["function"] == function && it["loads"].as_u64() > Some(0));
            let patterns = loads.map(|it| it["pattern"].clone()).filter(|it| !it.is_null());
            let costliest = patterns.max_by_key(|it| it["executions"].as_u64().unwrap_or(0) / 2);
            costliest.unwrap_or_else(|| panic!("{function} has no pattern"))
        };
        let stream = of("streams");
        assert_eq!((&stream["kind"], &stream["stride_bytes"]), (&"stream".into(), &8.into()), "{mode:?}");
        let stride = of("goes_down");
        assert_eq!((&stride["kind"], &stride["stride_bytes"]), (&"stride".into(), &4096.into()), "{mode:?}");
        assert_eq!(of("follows")["kind"], "pointer-chase", "{mode:?}");
        let kind = |row: &Value| row["pattern"]["kind"].as_str().map(str::to_owned);
        let rows = report["instructions"].as_array().expect("a list").iter();
        let probes: Vec<_> = rows.filter(|it| it["function"] == "probes").filter_map(kind).collect();
        assert!(!probes.is_empty() && !probes.contains(&"pointer-chase".to_owned()), "{mode:?}: {probes:?}");
        let gathers = report["instructions"].as_array().expect("a list").iter();
        let indirect =
            gathers.filter(|it| it["function"] == "gathers" && it["pattern"]["kind"] == "indirect");
        let loaders: Vec<&Value> = indirect.map(|it| &it["pattern"]["loaded_by"]["module"]).collect();
        assert_eq!(loaders, [&Value::from("patterns")], "{mode:?}");
        let mut wide = memlens(folder.path());
        wide.env("COLUMNS", "180").args(["report", "p", "--by", "instruction", "--top", "12"]);
        let table = stdout(&wide.output().expect("memlens is there"));
        assert!(table.contains("indirect by chosen"), "{table}");
        let advice = succeeding(folder.path(), &["advise", "p", "--format", "json"]);
        let advice: Value = serde_json::from_str(&advice).expect("JSON");
        let found = advice["findings"].as_array().expect("a list");
        let of = |remedy: &str| found.iter().find(|it| it["remedy"] == remedy).expect(remedy);
        assert_eq!(of("layout")["stride_bytes"], 4096, "{mode:?}");
        assert_eq!(of("pack")["title"], "the nodes in list in the order of their walk", "{mode:?}");
        let text = succeeding(folder.path(), &["advise", "p"]);
        assert!(text.contains("another order of columns: at most "), "{text}");
    }
}

#[test]
fn what_the_same_loops_go_through_is_advised_of_together() {
    let folder = folder();
    let source = r#"
        double from[1024][1024], to[1024][1024];
        int main(void) {
            for (int round = 0; round < 2; round++)
                for (int column = 0; column < 1024; column++)
                    for (int row = 0; row < 1024; row++)
                        to[row][column] += from[row][column] / 2;
            return to[5][7] != 0;
        }
    "#;
    let program = compiled(folder.path(), "columns", source, &["-O1", "-g"]);
    let program = program.to_str().expect("UTF-8");
    succeeding(folder.path(), &["run", "--mode", "exact", "--quiet", "--out", "p", "--", program]);
    let text = succeeding(folder.path(), &["advise", "p"]);
    let of = |one: &str, other: &str| {
        let finding = text.split("\n\n").find(|part| part.contains(&format!("another order of {one}:")));
        finding.is_some_and(|finding| finding.contains(&format!("the same loops go through {other} (")))
    };
    assert!(of("from", "to") != of("to", "from"), "{text}");
    assert_eq!(text.matches("another order of").count(), 1, "one exchange: {text}");
}

#[test]
fn signals_to_memlens_reach_the_program() {
    let folder = folder();
    let script = "trap 'echo told; exit 4' TERM; echo > ready; while :; do sleep 0.1; done";
    let child = memlens(folder.path())
        .args(["run", "--quiet", "--out", "p", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    wait_until(|| folder.path().join("ready").exists());
    let told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill is there");
    assert!(told.success());
    let output = child.wait_with_output().expect("ends");
    assert_eq!((output.status.code(), stdout(&output)), (Some(4), "told\n".into()));
}

#[test]
fn the_doctor_tries_the_engine_and_looks_at_a_program() {
    let folder = folder();
    let report = succeeding(folder.path(), &["doctor", "sh"]);
    assert!(report.contains("✓ exact"), "{report}");
    for topic in ["processor", "kernel", "hardware counters", "shared memory", "linkage", "debug information"]
    {
        assert!(report.contains(topic), "{topic}:\n{report}");
    }
    let output = call(folder.path(), &["doctor", "no-such-program-here"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(stdout(&output).contains("✗ file"));
}

/// Adds numbers with two libraries that have the same code, one after the other, so that they lie at the same place.
const PLUGINS: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
static volatile long numbers[1000];
static long use(const char *path, const char *name) {
  void *library = dlopen(path, RTLD_NOW);
  long (*sum)(volatile long *, int) = (long (*)(volatile long *, int))dlsym(library, name);
  long result = 0;
  for (int round = 0; round < 10; round++) result += sum(numbers, 1000);
  dlclose(library);
  return result + (long)sum;
}
int main(void) {
  long first = use("./first.so", "first_sum"), second = use("./second.so", "second_sum");
  puts(use("./first.so", "first_sum") == first && first == second ? "same place" : "apart");
}
"#;

#[test]
fn code_of_libraries_that_were_closed_keeps_its_names() {
    let folder = folder();
    for name in ["first", "second"] {
        let source = format!(
            "long {name}_sum(volatile long *p, int n) {{ long s = 0; while (n--) s += *p++; return s; }}\n"
        );
        compiled(folder.path(), &format!("{name}.so"), &source, &["-O1", "-g", "-shared", "-fPIC"]);
    }
    let program = compiled(folder.path(), "plugins", PLUGINS, &["-O1", "-g", "-ldl"]);
    let output = call(
        folder.path(),
        &["run", "--quiet", "--mode", "exact", "--out", "p", "--", program.to_str().expect("UTF-8")],
    );
    assert_eq!(stdout(&output), "same place\n", "{}", stderr(&output));
    let report = succeeding(folder.path(), &["report", "p", "--format", "json"]);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let loads = |function: &str| -> u64 {
        let all = report["instructions"].as_array().expect("a list").iter();
        let own = all.filter(|it| it["function"] == function && it["line"] == 1);
        own.filter_map(|it| it["loads"].as_u64()).sum()
    };
    // 10 rounds of 1000 numbers each time, and a return address a round.
    assert_eq!((loads("first_sum"), loads("second_sum")), (20_020, 10_010));
    assert!(!report["attribution"].to_string().contains("generated code"), "{}", report["attribution"]);
}

/// A thread that counts in its maker's array, which the maker counts in afterwards, and a count made by both.
const SHARED: &str = r#"
#include <pthread.h>
#include <stdio.h>
struct job { volatile long *data; int n; _Atomic long *done; };
static void *work(void *argument) {
  struct job *job = argument;
  for (int round = 0; round < 100; round++)
    for (int i = 0; i < job->n; i++) job->data[i] += i;
  for (int i = 0; i < 5000; i++) ++*job->done;
  return 0;
}
int main(void) {
  volatile long results[1000];
  for (int i = 0; i < 1000; i++) results[i] = 0;
  _Atomic long done = 0;
  struct job job = { results, 1000, &done };
  pthread_t thread;
  pthread_create(&thread, 0, work, &job);
  pthread_join(thread, 0);
  work(&job);
  printf("%ld %ld\n", results[7], done);
}
"#;

#[test]
fn locals_that_other_threads_use_keep_their_names() {
    let folder = folder();
    for level in ["-O0", "-O2"] {
        let program = compiled(folder.path(), "shared", SHARED, &[level, "-g"]);
        let program = program.to_str().expect("UTF-8");
        let words = ["run", "--quiet", "--force", "--mode", "exact", "--out", "p", "--", program];
        assert_eq!(stdout(&call(folder.path(), &words)), "1400 10000\n");
        let report = succeeding(folder.path(), &["report", "p", "--format", "json"]);
        let report: Value = serde_json::from_str(&report).expect("JSON");
        let objects = report["objects"].as_array().expect("a list");
        let local = |name: &str| {
            let found = objects.iter().find(|it| it["name"] == name && it["kind"] == "local");
            let found = found.unwrap_or_else(|| panic!("{level}: no {name}"));
            (found["loads"].as_u64().unwrap_or(0), found["stores"].as_u64().unwrap_or(0))
        };
        // Each thread counts 100 times in each of 1000 numbers; main sets all and prints one of them.
        assert_eq!(local("results"), (200_001, 201_000), "{level}");
        let (loads, stores) = local("done");
        // Set once, perhaps, and printed; added to at once.
        assert!((10_000..=10_001).contains(&loads) && (10_000..=10_001).contains(&stores), "{level}");
        let outside = objects.iter().filter(|it| it["name"].to_string().contains("outside known frames"));
        let outside: u64 = outside.filter_map(|it| it["accesses"].as_u64()).sum();
        // What the dynamic linker reads above the first frame; the thread alone counts 105,000 times.
        assert!(outside < 10_000, "{level}: {outside} accesses to stacks outside known frames");
    }
}

/// A table is filled, which misses, and then counted in, in the second level: so often as its argument says.
const FILLS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    long rounds = atol(argv[1]), *table = malloc(sizeof(long) << 16);
    for (long at = 0; at < 1 << 16; at++)
        table[at * 40503 & 0xffff] = at;
    for (long at = 0; at < rounds; at++)
        table[at & 0xffff]++;
    printf("%ld\n", table[7]);
}
"#;

#[test]
fn what_waits_at_the_begin_waits_whatever_comes_then() {
    let folder = folder();
    let program = compiled(folder.path(), "fills", FILLS, &["-O1", "-g"]);
    let program = program.to_str().expect("text");
    let found = ["200000", "1200000", "5000000"].map(|rounds| {
        let words = ["run", "--mode", "exact", "--machine", "amd-zen4", "--quiet", "--force", "--out", "p"];
        succeeding(folder.path(), &[&words[..], &["--", program, rounds]].concat());
        let report: Value =
            serde_json::from_str(&succeeding(folder.path(), &["report", "p", "--format", "json"]))
                .expect("JSON");
        let cycles =
            report["run"]["core_cycles"].as_f64().unwrap_or_else(|| panic!("{rounds}: {:#}", report["run"]));
        (report["totals"]["stall_cycles"].as_f64().expect("a number"), cycles)
    });
    let [(first, fewest), _, (_, most)] = found;
    for (stalls, cycles) in found {
        assert!(stalls > 0.4 * first && stalls < 2.5 * first, "{found:?}");
        assert!(cycles > stalls && cycles < 3e8, "{found:?}");
    }
    assert!(first > 20_000.0 && most > 2.0 * fewest, "{found:?}");
}

#[test]
fn what_the_allocator_maps_for_a_block_is_not_counted_twice() {
    let folder = folder();
    let program = compiled(folder.path(), "fills", FILLS, &["-O1", "-g"]);
    let program = program.to_str().expect("text");
    succeeding(folder.path(), &["run", "--mode", "exact", "--quiet", "--out", "p", "--", program, "10"]);
    let report: Value =
        serde_json::from_str(&succeeding(folder.path(), &["report", "p", "--format", "json"])).expect("JSON");
    let objects = report["objects"].as_array().expect("a list");
    let of_table: Vec<&Value> =
        objects.iter().filter(|object| object["bytes"].as_u64() >= Some(8 << 16)).collect();
    assert!(of_table.len() == 1 && of_table[0]["name"] == "table", "{of_table:#?}");
    // Its header was written, though.
    let name = "allocator data (mapped by main)";
    assert!(objects.iter().any(|object| object["name"] == name && object["bytes"].is_null()), "{report:#}");
}

/// A library that C++'s library stands for allocates what the strings of a vector hold: no debug information tells of the call.
const STRINGS: &str = r#"
#include <cstdio>
#include <string>
#include <vector>
int main()
{
    std::vector<std::string> names;
    for (int i = 0; i < 20000; i++)
        names.push_back(std::string(60, 'a'));
    long sum = 0;
    for (int i = 0; i < 200000; i++)
        sum += names[i * 7919L % 20000][i % 60];
    std::printf("%ld\n", sum);
}
"#;

#[test]
fn the_characters_of_strings_are_no_fields_of_the_strings() {
    let folder = folder();
    let options = ["-O2", "-g", "-x", "c++", "-Wl,--no-as-needed", "-lstdc++"];
    let program = compiled(folder.path(), "strings", STRINGS, &options);
    let program = program.to_str().expect("text");
    succeeding(folder.path(), &["run", "--mode", "exact", "--quiet", "--out", "p", "--", program]);
    let report: Value =
        serde_json::from_str(&succeeding(folder.path(), &["report", "p", "--format", "json"])).expect("JSON");
    let objects = report["objects"].as_array().expect("a list");
    // One block of 61 bytes each.
    let is_characters = |object: &&Value| object["bytes"].as_u64() == Some(20000 * 61);
    let characters = objects.iter().find(is_characters).unwrap_or_else(|| panic!("{report:#}"));
    let element = characters["element"]["type"].as_str().unwrap_or_default();
    assert!(!element.contains("basic_string"), "{characters:#}");
}

#[test]
fn threads_have_the_names_that_they_give_themselves() {
    let folder = folder();
    let source = "#define _GNU_SOURCE\n#include <pthread.h>\n\
        static void *work(void *name) { pthread_setname_np(pthread_self(), name); return 0; }\n\
        int main(void) { char *names[] = {\"loader\", \"sixteen-is-long\", 0}; pthread_t thread;\n\
        for (int i = 0; names[i]; i++) { pthread_create(&thread, 0, work, names[i]); pthread_join(thread, 0); }\n\
        return 0; }";
    let program = compiled(folder.path(), "named", source, &[]);
    let program = program.to_str().expect("plain");
    succeeding(folder.path(), &["record", "--mode", "exact", "--quiet", "--out", "p", "--", program]);
    let table = succeeding(folder.path(), &["report", "p", "--by", "thread", "--format", "csv"]);
    for name in ["loader", "sixteen-is-long"] {
        assert!(table.contains(name), "{name}: {table}");
    }
}

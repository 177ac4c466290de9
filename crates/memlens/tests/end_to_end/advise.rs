//! `memlens advise` of programs with known faults, in exact mode.

use std::path::Path;

use crate::support::{compiled, succeeding};
use serde_json::Value;

/// The sum of a matrix of numbers of 8 bytes, column by column: 1024 rows of as many numbers as its argument says.
const COLUMNS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((noipa)) static double sum(const double *matrix, long width) {
    double all = 0;
    for (long column = 0; column < 1024; column++)
        for (long row = 0; row < 1024; row++) all += matrix[row * width + column];
    return all;
}
int main(int count, char **words) {
    long width = atol(words[count - 1]);
    double *matrix = malloc(1024 * width * sizeof *matrix);
    for (long at = 0; at < 1024 * width; at++) matrix[at] = 1;
    puts(sum(matrix, width) > 0 ? "done" : "nothing done");
    return 0;
}
"#;

/// Eight arrays that one line allocates at eight call paths, each read at random places that another array says. Enough is done with each
/// number that a core cannot look far ahead.
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
    for (int at = 0; at < SIZE; at++) {
        sum += part[chosen[at]];
        for (int round = 0; round < 40; round++) sum = sum * 5 + round;
    }
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

/// Accounts that are filled once, then one field of them is read at random places; and two lists in an array each, one in order.
const ACCOUNTS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
enum { SIZE = 1 << 16, NODES = 1 << 15 };
struct account { long number, balance, history[30]; };
struct node { struct node *next; long key, rest[6]; };
__attribute__((noipa)) static long reads(const struct account *accounts) {
    unsigned long number = 1;
    long sum = 0;
    for (int round = 0; round < 20 * SIZE; round++) {
        number = number * 6364136223846793005u + 1442695040888963407u;
        sum += accounts[number >> 48].balance;
    }
    return sum;
}
__attribute__((noipa)) static long forward(const struct node *at) {
    long sum = 0;
    for (; at; at = at->next) sum += at->key;
    return sum;
}
__attribute__((noipa)) static long across(const struct node *at) {
    long sum = 1;
    for (; at; at = at->next) sum += at->key;
    return sum;
}
int main(void) {
    struct account *accounts = malloc(SIZE * sizeof *accounts);
    for (int at = 0; at < SIZE; at++) {
        accounts[at].number = accounts[at].balance = at;
        for (int day = 0; day < 30; day++) accounts[at].history[day] = day;
    }
    struct node *ordered = calloc(NODES, sizeof *ordered), *mixed = calloc(NODES, sizeof *mixed);
    for (int at = 0; at + 1 < NODES; at++) ordered[at].next = &ordered[at + 1];
    int at = 0;
    for (int step = 1; step < NODES; step++) {
        int next = (at * 5 + 12345) % NODES;
        mixed[at].next = &mixed[next];
        at = next;
    }
    long sum = reads(accounts);
    for (int round = 0; round < 20; round++) sum += forward(ordered) + across(mixed);
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

fn of<'a>(findings: &'a [Value], remedy: &str) -> Option<&'a Value> {
    findings.iter().find(|finding| finding["remedy"] == remedy)
}

/// Rows of 8192 bytes fall onto 4 of the second level's 512 sets, of which each has 8 lines; rows of a line more onto all.
#[test]
fn a_column_in_few_sets_is_padded() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (findings, text) = advised(folder.path(), COLUMNS, &["1024"]);
    let pad = of(&findings, "pad").unwrap_or_else(|| panic!("{findings:#?}"));
    assert_eq!((&pad["stride_bytes"], &pad["padding_bytes"]), (&8192.into(), &64.into()), "{pad:#}");
    let [level] = pad["conflicts"].as_array().expect("a list").as_slice() else { panic!("{pad:#}") };
    let count = |key: &str| level[key].as_u64().unwrap_or_else(|| panic!("no {key} in {level:#}"));
    assert_eq!(["level", "sets", "of_sets", "ways"].map(count), [2, 4, 512, 8]);
    // Each access misses; once for eight of them would do. The walk that another has replaced a line for comes back to none.
    let (misses, needed) = (count("misses"), count("misses_needed"));
    assert!((1_040_000..=1 << 20).contains(&misses) && needed == 1 << 17, "{level:#}");
    assert!(
        pad["gain_at_most"].as_f64() < of(&findings, "layout").expect("in order")["gain_at_most"].as_f64()
    );
    assert!(text.contains("padding for matrix: at most "), "{text}");
    assert!(text.contains("all fall onto 4 of the second level's 512 sets, which keep 32: "), "{text}");
    let (findings, text) = advised(folder.path(), COLUMNS, &["1032"]);
    assert_eq!(of(&findings, "pad"), None);
    assert!(of(&findings, "layout").is_some_and(|layout| layout["stride_bytes"] == 8256), "{text}");
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

/// Filling is no use, and of a list in one array only the order can be changed, where it has none.
#[test]
fn fields_that_are_only_filled_are_left_behind_and_lists_in_order_left_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (findings, text) = advised(folder.path(), ACCOUNTS, &[]);
    let title = "balance of accounts apart from the rest";
    let split = findings.iter().find(|finding| finding["title"] == title).unwrap_or_else(|| panic!("{text}"));
    assert_eq!((&split["remedy"], &split["hot_bytes"]), (&"split".into(), &8.into()), "{split:#}");
    let packs = findings.iter().filter(|finding| finding["remedy"] == "pack");
    let titles: Vec<&Value> = packs.map(|finding| &finding["title"]).collect();
    assert_eq!(titles, ["the nodes in mixed in the order of their walk"], "{text}");
}

/// A table read at random places that another array says, mixed with what was read last if there is an argument.
const CHAINED: &str = r#"
#include <stdio.h>
#include <stdlib.h>
enum { SIZE = 1 << 21, READS = 1 << 19 };
static long *table;
static int *chosen;
__attribute__((noipa)) static long plain(void) {
    long sum = 0;
    for (int at = 0; at < READS; at++) {
        sum += table[chosen[at]];
        for (int round = 0; round < 40; round++) sum = sum * 5 + round;
    }
    return sum;
}
__attribute__((noipa)) static long chained(void) {
    long last = 0;
    for (int at = 0; at < READS; at++) last = table[chosen[at] ^ last];
    return last;
}
int main(int count, char **words) {
    (void)words;
    table = calloc(SIZE, sizeof *table), chosen = malloc(READS * sizeof *chosen);
    unsigned long number = 1;
    for (int at = 0; at < READS; at++) {
        number = number * 6364136223846793005u + 1442695040888963407u;
        chosen[at] = number >> 43;
    }
    puts((count > 1 ? chained() : plain()) == 77 ? "nothing done" : "done");
    return 0;
}
"#;

#[test]
fn what_apply_cannot_prefetch_has_no_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let told = "prefetch table[chosen[…]]";
    // A core hides most of it, but it can be done.
    let (_, text) = advised(folder.path(), CHAINED, &[]);
    assert!(text.contains(told) && !text.contains("memlens apply cannot do it"), "{text}");
    let (findings, text) = advised(folder.path(), CHAINED, &["chained"]);
    assert!(of(&findings, "prefetch").is_some(), "{text}");
    let why = "memlens apply cannot do it: its address comes from the previous iteration's";
    assert!(text.contains(why) && !text.contains("apply --prefetch"), "{text}");
}

/// Edges of a mesh whose nodes have numbers by chance, gone through four times; names by number in a table of few buckets; and a tree.
const ORDERS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
enum { NODES = 1 << 19, EDGES = 1 << 19, KEYS = 1 << 15, BUCKETS = 1 << 11 };
struct name { struct name *next; unsigned key; long rest[6]; };
struct leaf { struct leaf *side[2]; unsigned key; long rest[5]; };
static unsigned number = 1;
static unsigned any(void) { return (number = number * 1664525 + 1013904223) >> 8; }
static struct name *buckets[BUCKETS];
__attribute__((noipa)) static void flow(const int *edge, const double *state, double *sum) {
    for (long at = 0; at < EDGES; at++) sum[edge[at]] += state[edge[at]];
}
__attribute__((noipa)) static long named(unsigned key) {
    for (const struct name *at = buckets[key % BUCKETS]; at; at = at->next)
        if (at->key == key) return 1;
    return 0;
}
__attribute__((noipa)) static struct leaf **place(struct leaf **at, unsigned key) {
    while (*at && (*at)->key != key) at = &(*at)->side[key > (*at)->key];
    return at;
}
int main(void) {
    int *edge = malloc(EDGES * sizeof *edge);
    double *state = calloc(NODES, sizeof *state), *sum = calloc(NODES, sizeof *sum);
    for (int at = 0; at < EDGES; at++) edge[at] = any() % NODES;
    for (int round = 0; round < 4; round++) flow(edge, state, sum);
    for (unsigned key = 0; key < KEYS; key++) {
        struct name *name = malloc(sizeof *name);
        name->key = key;
        name->next = buckets[key % BUCKETS];
        buckets[key % BUCKETS] = name;
    }
    long found = 0;
    for (int at = 0; at < 2 * KEYS; at++) found += named(any() % KEYS);
    struct leaf *root = NULL;
    for (int at = 0; at < 4 * KEYS; at++) {
        unsigned key = any() % KEYS;
        struct leaf **leaf = place(&root, key);
        if (!*leaf) (*leaf = calloc(1, sizeof **leaf))->key = key;
    }
    puts(sum[0] + found >= 0 ? "done" : "nothing done");
    return 0;
}
"#;

#[test]
fn what_leads_there_by_chance_is_sorted_and_searches_shortened() {
    let folder = tempfile::tempdir().expect("a folder");
    let (findings, text) = advised(folder.path(), ORDERS, &[]);
    let number = |finding: &Value, key: &str| finding[key].as_f64().expect("a number");
    assert!(text.contains("edge in the order of sum"), "{text}");
    let sort = of(&findings, "sort").expect("an order");
    assert!((number(sort, "walks") - 4.0).abs() < 0.01, "{sort:#}");
    let searched = |what: &str| {
        let found = findings.iter().find(|finding| finding["searched"] == what);
        number(found.unwrap_or_else(|| panic!("no {what}: {text}")), "nodes_per_search")
    };
    // Of 16 nodes in a bucket the key's own is any; and the depth of a tree by chance.
    assert!((searched("lists") - 8.5).abs() < 0.3, "{text}");
    assert!((10.0..30.0).contains(&searched("tree")), "{text}");
    assert!(of(&findings, "pack").is_none(), "{text}");
}

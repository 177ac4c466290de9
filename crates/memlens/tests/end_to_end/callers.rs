//! Call paths of accesses, through the command line.

use serde_json::Value;

use crate::support::{compiled, path_of, succeeding};

/// One function walks one array for two callers: a hundred nodes over and over, and all others.
const NEAR_FAR: &str = r#"
#include <stdlib.h>
struct node { struct node *next; long pad[7]; };
static struct node *nodes, *at;
static void ring(long first, long count)
{
    long *order = malloc(count * sizeof *order);
    for (long i = 0; i < count; i++)
        order[i] = first + i;
    for (long i = count - 1; i > 0; i--) {
        long j = rand() % (i + 1), last = order[i];
        order[i] = order[j];
        order[j] = last;
    }
    for (long i = 0; i < count; i++)
        nodes[order[i]].next = &nodes[order[(i + 1) % count]];
    free(order);
}
__attribute__((noinline)) static struct node *walk(struct node *node, long steps)
{
    for (; steps; steps--)
        node = node->next;
    return node;
}
__attribute__((noinline)) static long near_ones(void) { return walk(nodes, 200000)->pad[0] + 1; }
__attribute__((noinline)) static long far_ones(void) { at = walk(at, 5000); return at->pad[0] + 1; }
int main(int argc, char **argv)
{
    long count = 1 << 19, sum = 0;
    nodes = calloc(count, sizeof *nodes);
    ring(0, 100);
    ring(100, count - 100);
    at = nodes + 100;
    int rounds = argc > 1 ? atoi(argv[1]) : 0;
    for (int i = 0; i < rounds; i++)
        sum += near_ones() + far_ones();
    return sum != 2 * rounds;
}
"#;

/// In a mode, with so many rounds.
fn call_paths_tell_for_whom_a_function_misses(mode: &str, rounds: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    compiled(folder.path(), "program", NEAR_FAR, &["-O1", "-g"]);
    let record = ["record", "--mode", mode, "--quiet", "--cache", "llc=4M,16,64", "--out", "p"];
    succeeding(folder.path(), &[&record[..], &["--", "./program", rounds]].concat());
    let report: Value =
        serde_json::from_str(&succeeding(folder.path(), &["report", "p", "--format", "json"])).expect("JSON");
    let tree = report["call_tree"].as_array().unwrap_or_else(|| panic!("{report}"));
    let of = |caller: &str, key: &str| {
        let wanted = ["walk", caller, "main"].map(str::to_owned);
        let nodes = tree.iter().filter(|node| path_of(tree, node).starts_with(&wanted));
        nodes.map(|node| node[key].as_f64().expect("a number")).sum::<f64>()
    };
    // 40 accesses for one, but it finds them in the first level, and the other one in memory. How many of either there are bursts on a busy
    // machine hardly tell.
    let loads = (of("near_ones", "loads"), of("far_ones", "loads"));
    assert!(loads.0 > loads.1 && loads.1 > 0.0, "{mode}: {loads:?}: {report:#}");
    let misses = (of("near_ones", "llc_misses"), of("far_ones", "llc_misses"));
    assert!(misses.1 > 3.0 * misses.0, "{mode}: {misses:?}: {report:#}");
    // Together they are all.
    let sum = |key: &str| tree.iter().map(|node| node[key].as_u64().expect("a number")).sum::<u64>();
    let total = report["totals"]["loads"].as_u64().expect("a number");
    assert!(
        sum("loads") <= total && sum("loads") as f64 > 0.9 * total as f64,
        "{mode}: of {total}: {tree:?}"
    );
    let shown = succeeding(folder.path(), &["report", "p", "--by", "caller"]);
    assert!(shown.contains("far_ones program.c:") && shown.contains("near_ones program.c:"), "{shown}");
}

#[test]
fn call_paths_of_bursts_tell_for_whom_a_function_misses() {
    call_paths_tell_for_whom_a_function_misses("burst", "1000");
}

#[test]
fn call_paths_of_windows_tell_for_whom_a_function_misses() {
    call_paths_tell_for_whom_a_function_misses("exact", "200");
}

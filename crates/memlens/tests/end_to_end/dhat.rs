//! `memlens export dhat`, held against counts by hand, valgrind's own DHAT and the script of its viewer.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{call, compiled, failing, stderr, stdout, succeeding, valgrind, write_small_profile};

/// Three functions that allocate, and a global. Not optimised, so that each access in the source is one.
const PROGRAM: &str = r#"
#include <stdlib.h>
struct node { long key; struct node *next; };
static long sum;
static struct node *list(long count)
{
    struct node *head = NULL;
    for (long i = 0; i < count; i++) {
        struct node *node = malloc(sizeof *node);
        node->key = i;
        node->next = head;
        head = node;
    }
    return head;
}
static long *table(long count)
{
    long *table = malloc(count * sizeof *table);
    for (long i = 0; i < count; i++)
        table[i] = i;
    return table;
}
static void spare(void)
{
    for (int i = 0; i < 7; i++)
        free(malloc(24));
}
int main(void)
{
    struct node *head = list(100);
    long *numbers = table(1000);
    spare();
    for (struct node *node = head; node; node = node->next)
        sum += node->key;
    for (int round = 0; round < 2; round++)
        for (long i = 0; i < 1000; i++)
            sum += numbers[i];
    return sum != 4950 + 2 * 499500;
}
"#;

/// Blocks, bytes, bytes read and bytes written.
type Site = [u64; 4];

/// By the function that allocates:
/// - `list`: 100 nodes of 16 bytes; both words of each are written once and read once;
/// - `table`: 1,000 words, written once and read twice;
/// - `spare`: 7 blocks of 24 bytes that nobody touches.
fn by_hand() -> BTreeMap<String, Site> {
    let sites =
        [("list", [100, 1600, 1600, 1600]), ("table", [1, 8000, 16_000, 8000]), ("spare", [7, 168, 0, 0])];
    sites.into_iter().map(|(function, site)| (function.to_owned(), site)).collect()
}

/// The program, and its profile `p` in exact mode.
fn recorded(folder: &Path) {
    compiled(folder, "program", PROGRAM, &["-O0", "-g"]);
    succeeding(folder, &["record", "--mode", "exact", "--quiet", "--out", "p", "--", "./program"]);
}

/// The sites of a file by the program's function that allocated: the innermost one, or the one that called `malloc`.
fn sites(file: &Value) -> BTreeMap<String, Site> {
    let frames = file["ftbl"].as_array().expect("a list");
    let function = |number: &Value| {
        let frame = frames[number.as_u64().expect("a number") as usize].as_str().expect("a text");
        // 0x1139: main (app.c:3)
        frame.split_once(": ").and_then(|(_, rest)| rest.split(" (").next()).expect("a function").to_owned()
    };
    let mut sites: BTreeMap<String, Site> = BTreeMap::new();
    for point in file["pps"].as_array().expect("a list") {
        let stack = point["fs"].as_array().expect("a list");
        let by = stack.iter().map(function).find(|name| name != "malloc").expect("a function");
        let site = sites.entry(by).or_default();
        for (sum, key) in site.iter_mut().zip(["tbk", "tb", "rb", "wb"]) {
            *sum += point[key].as_u64().expect("a number");
        }
    }
    sites
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("valid JSON")
}

/// A file that valgrind's package installs; where, differs.
fn of_valgrind(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/libexec/valgrind", "/usr/lib/valgrind", "/usr/lib/x86_64-linux-gnu/valgrind"];
    folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists())
}

#[test]
fn sites_have_what_valgrinds_dhat_counts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    recorded(folder.path());
    let exported = call(folder.path(), &["export", "dhat", "p"]);
    let file = parsed(&stdout(&exported));
    assert_eq!(sites(&file), by_hand());
    assert_eq!((&file["bklt"], &file["bkacc"]), (&json!(false), &json!(true)));
    // The program's locals and the global are not there.
    assert!(stderr(&exported).contains(" % of "), "{}", stderr(&exported));

    if !valgrind(folder.path(), &["--tool=dhat", "--dhat-out-file=valgrind.json", "./program"]) {
        return;
    }
    let theirs = fs::read_to_string(folder.path().join("valgrind.json")).expect("written");
    assert_eq!(sites(&parsed(&theirs)), by_hand());
}

/// Loads a file as the viewer does, and says what it adds up: bytes, blocks, bytes read and bytes written. None, where there is no viewer
/// or nothing to run it.
fn viewed(file: &Path) -> Option<Value> {
    /// The viewer's script, with as much of a page as it needs to check a file and to build its tree.
    const LOAD: &str = r#"
        const [viewer, file] = process.argv.slice(2);
        const fs = require("fs"), vm = require("vm");
        const load = `gSelect = { childNodes: gSelectData.map(() => ({})), selectedIndex: 0 };
            gData = JSON.parse(text); buildTree();
            JSON.stringify([gRoot._totalBytes, gRoot._totalBlocks, gRoot._readsBytes, gRoot._writesBytes])`;
        const page = vm.createContext({ document: {}, text: fs.readFileSync(file, "utf8") });
        vm.runInContext(fs.readFileSync(viewer, "utf8"), page);
        console.log(vm.runInContext(load, page));
    "#;
    let viewer = of_valgrind("dh_view.js")?;
    let mut command = Command::new("node");
    let node = command.arg("-").arg(viewer).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut node = node.stderr(Stdio::piped()).spawn().ok()?;
    node.stdin.take().expect("piped").write_all(LOAD.as_bytes()).expect("it reads");
    let output = node.wait_with_output().expect("it ends");
    assert!(output.status.success(), "the viewer refuses {}: {}", file.display(), stderr(&output));
    Some(parsed(&stdout(&output)))
}

#[test]
fn the_viewer_of_valgrind_takes_the_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    recorded(folder.path());
    let export = |words: &[&str], name: &str| {
        succeeding(folder.path(), &[&["export", "dhat", "p", "--out", name], words].concat());
        viewed(&folder.path().join(name))
    };
    let Some(seen) = export(&[], "blocks.json") else {
        eprintln!("skipped: valgrind's dh_view.js or node is not there");
        return;
    };
    // The sum of all sites.
    assert_eq!(seen, json!([9768, 108, 17_600, 9600]));
    // Accesses of 8 bytes: 400 of the nodes' words, 3,000 of the table's; 1,200 of them stores.
    assert_eq!(export(&["--value", "stores"], "stores.json").expect("it is there")[0], 1200);
    let of_accesses = export(&["--value", "accesses"], "accesses.json").expect("it is there");
    assert_eq!((&of_accesses[0], &of_accesses[1]), (&json!(3400), &json!(3400)));
}

#[test]
fn what_is_no_heap_is_told_and_nothing_is_replaced() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path();
    write_small_profile(&place.join("p"));
    let words = ["export", "dhat", "p", "--out", "dhat.out"];
    let output = call(place, &words);
    // All of it is heap: there is nothing more to tell.
    let told = "memlens: look at it with: valgrind's dh_view.html, or profiler.firefox.com\n";
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), told.to_owned()));
    assert!(failing(place, &words, 73).contains("--force"));
    succeeding(place, &[&words[..], &["--force"]].concat());
    assert!(failing(place, &["export", "dhat", "p", "--value", "fetches"], 64).contains("no fetches"));
    assert!(failing(place, &["export", "dhat", "p", "--value", "bytes"], 64).contains("bytes"));
    failing(place, &["export", "dhat", "absent"], 66);
}

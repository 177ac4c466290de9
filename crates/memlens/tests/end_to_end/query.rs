//! `memlens query` and the file that it can be asked from, too.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{call, compiled, failing, memlens, stderr, succeeding, write_small_profile};
use serde_json::Value;

/// A hash table of structures that two functions search, and a list.
const PROGRAM: &str = r#"
#include <stdlib.h>
struct entry { long key; struct entry *next; char value[48]; };
enum { ENTRIES = 5000 };
static struct entry *table[1024];
__attribute__((noinline)) static long find(long key)
{
    for (struct entry *entry = table[key % 1024]; entry; entry = entry->next)
        if (entry->key == key)
            return entry->value[0];
    return 0;
}
__attribute__((noinline)) static long twice(long key) { return find(key) + find(key + 1); }
int main(void)
{
    for (long key = 0; key < ENTRIES; key++) {
        struct entry *entry = calloc(1, sizeof *entry);
        entry->key = key;
        entry->next = table[key % 1024];
        table[key % 1024] = entry;
    }
    long sum = 0;
    for (long key = 0; key < 4 * ENTRIES; key++)
        sum += twice(key * 7 % ENTRIES) + find(key);
    return sum != 0;
}
"#;

fn record(folder: &Path) {
    let program = compiled(folder, "program", PROGRAM, &["-O1", "-g"]);
    let mut command = memlens(folder);
    command
        .args(["record", "--mode", "exact", "--quiet", "--machine", "cachegrind", "--out", "p", "--"])
        .arg(program);
    assert!(command.status().expect("it starts").success());
}

fn rows(folder: &Path, sql: &str) -> Vec<Value> {
    let text = succeeding(folder, &["query", "p", sql, "--format", "json"]);
    match serde_json::from_str(&text).expect("valid JSON") {
        Value::Array(rows) => rows,
        other => panic!("{other}"),
    }
}

#[test]
fn tables_say_what_the_report_says() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    record(folder.path());
    let report = succeeding(folder.path(), &["report", "p", "--format", "json"]);
    let report: Value = serde_json::from_str(&report).expect("valid JSON");
    let objects = rows(folder.path(), "SELECT *, object AS id FROM objects ORDER BY object");
    let mut of_report: Vec<&Value> = report["objects"].as_array().expect("a list").iter().collect();
    of_report.sort_by_key(|object| object["id"].as_u64());
    assert_eq!(objects.len(), of_report.len());
    let mut compared = 0;
    for (row, object) in objects.iter().zip(of_report) {
        for (column, value) in row.as_object().expect("a row") {
            // What is told in words of its own there.
            let is_alike = !matches!(column.as_str(), "element" | "samples" | "sample_cost");
            if let Some(told) = object.get(column).filter(|_| is_alike) {
                assert_eq!(value, told, "{column} of {}", row["name"]);
                compared += 1;
            }
        }
    }
    assert!(compared > 40 * objects.len(), "{compared} values of {} objects", objects.len());
    // The parts add up to the whole.
    for sum in [
        "SELECT sum(loads) n, sum(l1_misses) m FROM cells",
        "SELECT sum(loads) n, sum(l1_misses) m FROM path_accesses",
    ] {
        let sum = &rows(folder.path(), sum)[0];
        assert_eq!((&sum["n"], &sum["m"]), (&report["totals"]["loads"], &report["totals"]["l1_misses"]));
    }
}

#[test]
fn questions_that_no_report_answers() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    record(folder.path());
    // 60,000 searches end at an entry or at the end of its list, having loaded the key of each entry that they passed; nothing else
    // loads keys.
    let by_field = rows(
        folder.path(),
        "SELECT field_name, sum(loads) AS loads FROM field_accesses WHERE name LIKE 'entry%' OR name LIKE 'table%' \
         GROUP BY 1 HAVING loads > 0 ORDER BY 1",
    );
    let loads = |field: &str| {
        let row = by_field.iter().find(|row| row["field_name"] == field).expect(field);
        row["loads"].as_u64().expect("a number")
    };
    assert_eq!(loads("value[]"), expected_finds(), "{by_field:?}");
    assert_eq!(loads("key"), expected_keys(), "{by_field:?}");
    // Of the searches of an iteration two go through `twice`. What each loads besides keys: where the list begins, links, the value.
    let under = |function: &str| {
        let sql = format!(
            "WITH RECURSIVE inside(path) AS (SELECT path FROM paths WHERE function = '{function}' UNION \
             SELECT p.path FROM paths p JOIN inside i ON p.parent = i.path) \
             SELECT sum(loads) AS loads FROM path_accesses JOIN inside USING (path) WHERE function = 'find'"
        );
        rows(folder.path(), &sql)[0]["loads"].as_f64().expect("a number")
    };
    let part = under("twice") / under("main");
    let loads = |key: u64| 2 * passed(key) + 1;
    let of_twice: u64 = searched().enumerate().filter(|(at, _)| at % 3 < 2).map(|(_, key)| loads(key)).sum();
    let expected = of_twice as f64 / searched().map(loads).sum::<u64>() as f64;
    assert!(
        (expected - 0.15..expected + 0.15).contains(&part),
        "of the loads {part} through twice, and not {expected}"
    );
}

/// How many searches find what they look for.
fn expected_finds() -> u64 {
    searched().filter(|&key| key < 5000).count() as u64
}

/// How many keys they compare.
fn expected_keys() -> u64 {
    searched().map(passed).sum()
}

/// Entries of a list, from the largest key down to the key itself, or all.
fn passed(key: u64) -> u64 {
    let list = (key % 1024..5000).step_by(1024);
    list.filter(|&entry| key >= 5000 || entry >= key).count() as u64
}

fn searched() -> impl Iterator<Item = u64> {
    (0..20_000u64).flat_map(|key| [key * 7 % 5000, key * 7 % 5000 + 1, key])
}

#[test]
fn answers_have_three_forms() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_small_profile(&folder.path().join("p"));
    let sql = "SELECT name, loads, llc_misses, 1.0 / 3 AS third, 'a \"b\", c' AS text FROM objects";
    assert_eq!(
        succeeding(folder.path(), &["query", "p", sql]),
        "name    loads  llc_misses   third  text\n\
         ───────────────────────────────────────────\n\
         column   1000           –  0.3333  a \"b\", c\n"
    );
    assert_eq!(
        succeeding(folder.path(), &["query", "p", sql, "--format", "csv"]),
        "name,loads,llc_misses,third,text\r\ncolumn,1000,,0.3333333333333333,\"a \"\"b\"\", c\"\r\n"
    );
    assert_eq!(
        succeeding(folder.path(), &["query", "p", sql, "--format", "json"]),
        "[\n{\"name\":\"column\",\"loads\":1000,\"llc_misses\":null,\"third\":0.3333333333333333,\
         \"text\":\"a \\\"b\\\", c\"}\n]\n"
    );
    // Without a question it says what there is.
    let told = succeeding(folder.path(), &["query", "p"]);
    assert!(
        told.contains("accesses (view): ")
            && told.contains("\nobjects: ")
            && told.contains("    llc_misses ")
    );
}

#[test]
fn questions_come_from_stdin_too_and_of_several_profiles() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_small_profile(&folder.path().join("p"));
    let mut child = memlens(folder.path())
        .args(["query", "p", "-", "--with", "old=p", "--format", "csv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let sql = "SELECT n.loads - o.loads AS more FROM objects n JOIN old.objects o USING (kind, name, place);\n\
               SELECT count(*) AS n FROM old.cells -- all\n";
    child.stdin.take().expect("a pipe").write_all(sql.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "more\r\n0\r\n\r\nn\r\n1\r\n");
}

#[test]
fn a_question_may_be_a_gate() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_small_profile(&folder.path().join("p"));
    for (least, code) in [(1000, 1), (1001, 0)] {
        let sql = format!("SELECT 1; SELECT name FROM objects WHERE loads >= {least}");
        let output = call(folder.path(), &["query", "p", &sql, "--fail-if-rows"]);
        assert_eq!(output.status.code(), Some(code), "{least}");
    }
    let output = call(folder.path(), &["query", "p", "SELECT 1"]);
    assert_eq!(output.status.code(), Some(0));
    // What the profile does not know would never be too much.
    let output =
        call(folder.path(), &["query", "p", "--fail-if-rows", "SELECT 1 FROM objects WHERE llc_misses > 1"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(stderr(&output).contains("a profile does not know its llc_misses"), "{}", stderr(&output));
}

#[test]
fn what_cannot_be_answered_is_told() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_small_profile(&folder.path().join("p"));
    for (words, code, told) in [
        (
            &["query", "p", "SELECT loadz FROM objects"][..],
            64,
            "no such column: loadz; did you mean ‘loads’?",
        ),
        (&["query", "p", "SELECT 1 FROM object"], 64, "no such table: object; did you mean ‘objects’?"),
        (&["query", "p", "SELECT"], 64, "incomplete input"),
        (&["query", "p", "SELECT 1", "--with", "main=p"], 64, "‘main’"),
        (&["query", "p", "SELECT 1", "--with", "a=p", "--with", "a=p"], 64, "two profiles are called ‘a’"),
        (&["query", "p", "-- nothing"], 64, "there is no statement in ‘-- nothing’"),
        (&["query", "p", "CREATE TABLE t (a)", "--fail-if-rows"], 64, "there is no SELECT"),
        (
            &["query", "p", "SELECT name, name FROM objects", "--format", "json"],
            64,
            "two columns are called name",
        ),
        (&["query", "p", "SELECT 1", "--with", "p"], 64, "old=ls.memlens"),
        (&["query", "q", "SELECT 1"], 66, "q"),
    ] {
        let message = failing(folder.path(), words, code);
        assert!(message.contains(told), "{words:?}: {message}");
    }
}

#[test]
fn what_was_answered_before_a_mistake_is_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_small_profile(&folder.path().join("p"));
    for mistake in ["nothing FROM objects", "1 AS n, 2 AS n"] {
        let sql = format!("SELECT name FROM objects; SELECT {mistake}");
        let output = call(folder.path(), &["query", "p", &sql, "--format", "json"]);
        assert_eq!(output.status.code(), Some(64));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "[\n{\"name\":\"column\"}\n]\n");
    }
}

/// Python's own SQLite opens it.
#[test]
fn the_file_is_read_by_others() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_small_profile(&folder.path().join("p"));
    succeeding(folder.path(), &["export", "sqlite", "p", "--out", "p.db"]);
    let script = "import sqlite3\n\
                  db = sqlite3.connect('p.db')\n\
                  print(db.execute('PRAGMA integrity_check').fetchall(), db.execute('PRAGMA user_version').fetchall())\n\
                  print(db.execute('SELECT name, function, source, loads, l1_misses, llc_misses FROM accesses').fetchall())";
    let output =
        Command::new("python3").args(["-c", script]).current_dir(folder.path()).output().expect("python3");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "[('ok',)] [(1,)]\n[('column', 'search', 'bfs.c:20', 1000, 125, None)]\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let before = fs::read(folder.path().join("p.db")).expect("it is there");
    failing(folder.path(), &["export", "sqlite", "p", "--out", "p.db"], 73);
    assert_eq!(fs::read(folder.path().join("p.db")).expect("it is there"), before);
    succeeding(folder.path(), &["export", "sqlite", "p", "--out", "p.db", "--force"]);
}

/// What the documents ask is asked of a profile and itself: nothing has changed.
#[test]
fn the_documents_questions_are_answered() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    record(folder.path());
    let mut asked = 0;
    for name in ["query.md", "check.md"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
        let document = fs::read_to_string(path).expect(name);
        for block in document.split("```sql\n").skip(1) {
            let (sql, _) = block.split_once("```").expect("it ends");
            for statement in sql.split_inclusive(";\n") {
                let words = ["query", "p", statement, "--with", "old=p", "--format", "json"];
                let rows: Value =
                    serde_json::from_str(&succeeding(folder.path(), &words)).expect("valid JSON");
                for row in rows.as_array().expect("a list") {
                    assert_eq!(row.get("before"), row.get("now"), "{statement}");
                }
                asked += 1;
            }
        }
    }
    assert!(asked > 6, "{asked}");
}

//! `memlens report` and `memlens export` on a profile made by hand.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::support::{failing, memlens, stderr, succeeding, write_small_profile};

fn folder_with_profile() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_small_profile(&folder.path().join("p"));
    folder
}

#[test]
fn a_table_shows_the_object_and_fits_the_width() {
    let folder = folder_with_profile();
    let table = succeeding(folder.path(), &["report", "p"]);
    assert!(table.contains("column") && table.contains("int*"), "{table}");
    assert!(!table.contains('\x1b'), "no colours without a terminal");
    let narrow = memlens(folder.path()).args(["report", "p"]).env("COLUMNS", "80").output().expect("runs");
    let narrow = crate::support::stdout(&narrow);
    assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
}

#[test]
fn every_grouping_and_both_drill_downs_work() {
    let folder = folder_with_profile();
    for by in ["object", "site", "instruction", "function", "line", "field", "kind", "thread"] {
        succeeding(folder.path(), &["report", "p", "--by", by, "--sort", "l1-misses", "--top", "3"]);
    }
    assert!(succeeding(folder.path(), &["report", "p", "--object", "1"]).contains("bfs.c:20"));
    assert!(succeeding(folder.path(), &["report", "p", "--code", "search"]).contains("column"));
    let message = failing(folder.path(), &["report", "p", "--code", "serach"], 64);
    assert!(message.contains("did you mean ‘search’?"), "{message}");
    failing(folder.path(), &["report", "p", "--object", "9"], 64);
    // Of an object there may be code and call paths; no other grouping.
    for by in ["line", "function", "instruction"] {
        let detail = succeeding(folder.path(), &["report", "p", "--object", "1", "--by", by]);
        assert!(detail.contains(&format!("1 {by}\n")), "{by}: {detail}");
    }
    let message = failing(folder.path(), &["report", "p", "--object", "1", "--by", "thread"], 64);
    assert!(message.contains("instruction or caller"), "{message}");
}

#[test]
fn call_paths_that_were_not_sampled_are_missed_in_every_form() {
    let folder = folder_with_profile();
    for more in [&[][..], &["--format", "csv"], &["--object", "1"]] {
        let words = [&["report", "p", "--by", "caller"], more].concat();
        let message = failing(folder.path(), &words, 64);
        assert!(message.contains("the profile has no call paths"), "{message}");
    }
}

#[test]
fn json_and_csv_have_the_numbers() {
    let folder = folder_with_profile();
    let text = succeeding(folder.path(), &["report", "p", "--format", "json"]);
    let document: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
    assert_eq!(document["schema"], "memlens-report/1");
    assert_eq!(document["totals"]["loads"], 1000);
    assert_eq!(document["objects"][0]["name"], "column");
    let csv = succeeding(folder.path(), &["report", "p", "--format", "csv", "--by", "line"]);
    assert_eq!(csv.lines().count(), 2, "a title and one line:\n{csv}");
}

#[test]
fn options_without_effect_are_refused() {
    let folder = folder_with_profile();
    for words in [["--format", "json", "--top", "3"], ["--format", "csv", "--object", "1"]] {
        let all: Vec<&str> = ["report", "p"].into_iter().chain(words).collect();
        let message = failing(folder.path(), &all, 64);
        assert!(message.contains("does not go with"), "{message}");
    }
}

#[test]
fn what_is_no_profile_has_a_clear_message_and_code() {
    let folder = folder_with_profile();
    assert!(failing(folder.path(), &["report", "none"], 66).contains("nothing is at none"));
    fs::write(folder.path().join("file"), "text").expect("written");
    assert!(failing(folder.path(), &["report", "file"], 65).contains("is not a memlens profile"));
    fs::create_dir(folder.path().join("empty")).expect("created");
    failing(folder.path(), &["report", "empty"], 65);
    let manifest = folder.path().join("p/profile.json");
    let text = fs::read_to_string(&manifest).expect("readable");
    fs::write(&manifest, text.replace("\"format_version\": 1", "\"format_version\": 99")).expect("written");
    assert!(failing(folder.path(), &["report", "p"], 65).contains("format version 99"));
    fs::write(&manifest, &text[..100]).expect("written");
    assert!(failing(folder.path(), &["report", "p"], 65).contains("damaged"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = folder_with_profile();
    let mut child = memlens(folder.path())
        .args(["report", "p", "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    // The pipe's reading end closes before anything is read.
    drop(child.stdout.take());
    let mut messages = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut messages).expect("text");
    assert_eq!(child.wait().expect("ends").code(), Some(0), "{messages}");
    assert_eq!(messages, "");
}

#[test]
fn a_full_disk_behind_stdout_is_an_error() {
    let folder = folder_with_profile();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let output = memlens(folder.path()).args(["report", "p"]).stdout(full).output().expect("runs");
    assert_eq!(output.status.code(), Some(74), "{}", stderr(&output));
}

#[test]
fn callgrind_exports_do_not_overwrite() {
    let folder = folder_with_profile();
    assert!(succeeding(folder.path(), &["export", "callgrind", "p"]).starts_with("# callgrind format"));
    let words = ["export", "callgrind", "p", "--out", "callgrind.out"];
    succeeding(folder.path(), &words);
    assert!(failing(folder.path(), &words, 73).contains("--force"));
    let again: Vec<&str> = words.into_iter().chain(["--force"]).collect();
    succeeding(folder.path(), &again);
}

#[test]
fn stacks_are_exported_for_other_tools() {
    let folder = folder_with_profile();
    let of_data = succeeding(folder.path(), &["export", "folded", "p", "--value", "loads"]);
    let amount = |line: &str| line.rsplit_once(' ').and_then(|(_, amount)| amount.parse().ok()).unwrap_or(0);
    assert_eq!(of_data.lines().map(amount).sum::<u64>(), 1000, "{of_data}");
    assert!(of_data.starts_with("heap;") && of_data.contains(";column;"), "{of_data}");
    // There are no call paths: what the instruction tells.
    let of_code = succeeding(folder.path(), &["export", "folded", "p", "--value", "loads", "--tree", "code"]);
    assert_eq!(of_code.lines().map(amount).sum::<u64>(), 1000, "{of_code}");
    assert!(of_code.contains(";column (heap) "), "{of_code}");

    let words = ["export", "flamegraph", "p", "--out", "p.svg"];
    succeeding(folder.path(), &words);
    let svg = fs::read_to_string(folder.path().join("p.svg")).expect("text");
    assert!(svg.contains("<title>column (") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(failing(folder.path(), &words, 73).contains("--force"));

    succeeding(folder.path(), &["export", "pprof", "p", "--out", "p.pb.gz"]);
    let packed = fs::read(folder.path().join("p.pb.gz")).expect("readable");
    assert_eq!(packed[..2], [0x1f, 0x8b], "gzip (RFC 1952)");

    let message = failing(folder.path(), &["export", "folded", "p", "--value", "llc_miss"], 64);
    assert!(message.contains("llc_misses"), "{message}");
    let message = failing(folder.path(), &["export", "flamegraph", "p", "--value", "fetches"], 64);
    assert!(message.contains("no fetches"), "{message}");
    assert!(failing(folder.path(), &["export", "folded", "p", "--value", "bytes"], 64).contains("bytes"));
}

#[test]
fn a_log_setting_that_makes_no_sense_is_passed_over() {
    let folder = folder_with_profile();
    let output =
        memlens(folder.path()).args(["report", "p"]).env("MEMLENS_LOG", "nonsense=?").output().expect("runs");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_profile_compared_with_itself_is_the_same() {
    let folder = folder_with_profile();
    let table = succeeding(folder.path(), &["compare", "p", "p"]);
    assert!(table.contains("column") && table.contains("1 of the top 1, in the same order"), "{table}");
    let text = succeeding(folder.path(), &["compare", "p", "p", "--by", "loads", "--format", "json"]);
    let document: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
    assert_eq!(document["schema"], "memlens-compare/1");
    assert_eq!(document["objects"][0]["value_a"], 1000.0);
    let csv = succeeding(folder.path(), &["compare", "p", "p", "--format", "csv"]);
    assert_eq!(csv.lines().count(), 2, "a title and one object:\n{csv}");
    let message = failing(folder.path(), &["compare", "p", "p", "--by", "where"], 64);
    assert!(message.contains("adds up to nothing"), "{message}");
    failing(folder.path(), &["compare", "p", "absent"], 66);
}

#[test]
fn a_page_is_written_once_and_replaced_only_if_that_is_wanted() {
    let folder = folder_with_profile();
    let place = folder.path();
    assert_eq!(succeeding(place, &["report", "p", "--html", "p.html"]), "");
    let page = fs::read_to_string(place.join("p.html")).expect("the page is there");
    assert!(page.starts_with("<!doctype html>") && page.contains("column"), "{}", &page[..300]);
    fs::write(place.join("p.html"), "mine").expect("writes");
    let message = failing(place, &["report", "p", "--html", "p.html"], 73);
    assert!(message.contains("p.html") && message.contains("exists"), "{message}");
    assert_eq!(fs::read_to_string(place.join("p.html")).expect("still there"), "mine");
    succeeding(place, &["report", "p", "--html", "p.html", "--force", "--top", "all"]);
    assert!(fs::read_to_string(place.join("p.html")).expect("there").ends_with("</html>\n"));
    failing(place, &["report", "p", "--html", "no/such/folder/p.html"], 73);
    // A page has all tables, and the code of each object.
    for more in [&["--by", "line"][..], &["--format", "csv"], &["--object", "1"], &["--sort", "loads"]] {
        failing(place, &[&["report", "p", "--html", "q.html"], more].concat(), 64);
    }
    failing(place, &["report", "p", "--open"], 64);
    failing(place, &["report", "p", "--html", "-", "--open"], 64);
    assert!(!place.join("q.html").exists());
}

#[test]
fn a_page_is_opened_by_the_desktop_or_said_to_be_there() {
    let folder = folder_with_profile();
    let place = folder.path();
    let open = |bin: &str| {
        let words = ["report", "p", "--html", "p.html", "--force", "--open"];
        memlens(place).args(words).env("PATH", bin).output().expect("runs")
    };
    let bin = tempfile::tempdir().expect("a temporary folder");
    let missing = open(bin.path().to_str().expect("UTF-8"));
    assert_eq!(missing.status.code(), Some(74), "{}", stderr(&missing));
    assert!(stderr(&missing).contains("p.html is written, but xdg-open"), "{}", stderr(&missing));
    let opener = bin.path().join("xdg-open");
    fs::write(&opener, "#!/bin/sh\necho noise\nprintf %s \"$1\" > opened\n").expect("writes");
    fs::set_permissions(&opener, fs::Permissions::from_mode(0o755)).expect("executable");
    let opened = open(bin.path().to_str().expect("UTF-8"));
    assert!(opened.status.success() && opened.stdout.is_empty(), "{}", stderr(&opened));
    assert_eq!(fs::read_to_string(place.join("opened")).expect("it was called"), "p.html");
}

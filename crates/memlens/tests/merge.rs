//! `memlens merge`: profiles of several runs or ranks become one.

mod support;

use std::fs;
use std::path::Path;

use memlens_profile::{Existing, ProfileWriter};
use support::{failing, small_profile, succeeding, write_small_profile};

fn json(folder: &Path, words: &[&str]) -> serde_json::Value {
    let words = [&["report", "--format", "json"], words].concat();
    serde_json::from_str(&succeeding(folder, &words)).expect("valid JSON")
}

fn two_ranks() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_small_profile(&folder.path().join("a"));
    let mut second = small_profile();
    second.run.pid = Some(77);
    second.run.command.push("second".to_owned());
    let mut writer = ProfileWriter::create(&folder.path().join("b"), Existing::Refuse).expect("created");
    writer.flush(&second, true).expect("written");
    folder
}

#[test]
fn what_ranks_count_adds_up_and_each_is_still_there() {
    let folder = two_ranks();
    let at = folder.path();
    succeeding(at, &["merge", "a", "b", "--out", "all"]);
    let (one, all) = (json(at, &["a"]), json(at, &["all"]));
    assert_eq!(one["totals"]["loads"], 1000);
    assert_eq!(all["totals"]["loads"], 2000);
    assert_eq!(all["objects"].as_array().map(Vec::len), one["objects"].as_array().map(Vec::len));
    let processes = succeeding(at, &["report", "--processes", "all"]);
    assert_eq!(processes.lines().count(), 3, "{processes}");
    assert!(processes.lines().any(|line| line.contains(" 77 ") && line.ends_with(" second")), "{processes}");
    let second = json(at, &["all", "--process", "2"]);
    assert_eq!(second["run"]["pid"], 77);
    assert_eq!(second["totals"]["loads"], 1000);
    // What was merged can be merged, and needs nothing of what it was made from.
    fs::remove_dir_all(at.join("a")).expect("removed");
    succeeding(at, &["merge", "all", "b", "--out", "more", "--quiet"]);
    assert_eq!(json(at, &["more"])["totals"]["loads"], 3000);
}

#[test]
fn what_cannot_be_merged_leaves_nothing_behind() {
    let folder = two_ranks();
    let at = folder.path();
    let mut other = small_profile();
    other.machine.name = "another".to_owned();
    let mut writer = ProfileWriter::create(&at.join("c"), Existing::Refuse).expect("created");
    writer.flush(&other, true).expect("written");
    let cases: [(&[&str], i32, &str); 5] = [
        (&["a", "c"], 65, "cannot merge c: profile 2 was modelled on the machine ‘another’"),
        (&["a", "missing"], 66, "missing"),
        (&["a", "./a"], 64, "given twice"),
        (&["a", "b", "--out", "b", "--force"], 64, "choose another place"),
        (&["a", "b", "--out", "c"], 73, "--force"),
    ];
    for (words, code, said) in cases {
        let place: &[&str] = if words.contains(&"--out") { &[] } else { &["--out", "all"] };
        let message = failing(at, &[&["merge"], words, place].concat(), code);
        assert!(message.contains(said), "{words:?}: {message}");
        assert!(!at.join("all").exists(), "{words:?}");
    }
    for (profile, loads) in [("a", 1000), ("b", 1000), ("c", 1000)] {
        assert_eq!(json(at, &[profile])["totals"]["loads"], loads, "{profile} is as it was");
    }
    succeeding(at, &["merge", "a", "b", "--out", "c", "--force"]);
    assert_eq!(json(at, &["c"])["totals"]["loads"], 2000);
}

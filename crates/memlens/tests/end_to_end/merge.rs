//! `memlens merge`: profiles of several runs or ranks become one.

use std::fs;
use std::path::Path;

use crate::support::{failing, small_profile, succeeding};
use memlens_profile::{Existing, Profile, ProfileWriter};

fn json(folder: &Path, words: &[&str]) -> serde_json::Value {
    let words = [&["report", "--format", "json"], words].concat();
    serde_json::from_str(&succeeding(folder, &words)).expect("valid JSON")
}

/// A rank's profile at a place.
fn rank(place: &Path, pid: u32, name: &str, change: impl FnOnce(&mut Profile)) {
    let mut profile = small_profile();
    profile.run.pid = Some(pid);
    profile.run.command.push(name.to_owned());
    change(&mut profile);
    let mut writer = ProfileWriter::create(place, Existing::Refuse).expect("created");
    writer.flush(&profile, true).expect("written");
}

fn two_ranks() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    rank(&folder.path().join("a"), 66, "first", |_| {});
    rank(&folder.path().join("b"), 77, "second", |_| {});
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
    rank(&at.join("c"), 88, "third", |_| {});
    succeeding(at, &["merge", "all", "c", "--out", "more", "--quiet"]);
    assert_eq!(json(at, &["more"])["totals"]["loads"], 3000);
    let processes = succeeding(at, &["report", "--processes", "more"]);
    let of_rank =
        |line: &&str| line.split_whitespace().nth(6).is_some_and(|name| ["a", "b", "c"].contains(&name));
    assert_eq!(processes.lines().filter(of_rank).count(), 3, "{processes}");
    let table = succeeding(at, &["report", "more", "--notes"]);
    assert!(table.contains("merged from 3 runs") && !table.contains("merged from 2"), "{table}");
}

#[test]
fn ranks_of_several_computers_may_have_one_process_id() {
    let folder = two_ranks();
    let at = folder.path();
    rank(&at.join("c"), 77, "third", |profile| profile.run.exit_code = Some(7));
    succeeding(at, &["merge", "b", "c", "--out", "all"]);
    let all = json(at, &["all"]);
    assert_eq!(all["run"]["threads"], 2 * json(at, &["b"])["run"]["threads"].as_u64().expect("a number"));
    let table = succeeding(at, &["report", "all", "--notes"]);
    let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in ["Processes of one id", "Not all ended as the first did: c;"] {
        assert!(words.contains(said), "{said}: {words}");
    }
    assert!(!words.contains("one after another"), "{words}");
}

#[test]
fn what_cannot_be_merged_leaves_nothing_behind() {
    let folder = two_ranks();
    let at = folder.path();
    rank(&at.join("c"), 88, "third", |profile| profile.machine.name = "another".to_owned());
    rank(&at.join("copy"), 66, "first", |_| {});
    succeeding(at, &["merge", "a", "b", "--out", "both", "--quiet"]);
    let [first, second] = ["both/processes/0001-66", "both/processes/0002-77"];
    let cases: [(&[&str], i32, &str); 10] = [
        (&["a", "c"], 65, "cannot merge c: profile 2 was modelled on the machine ‘another’"),
        (&["a", "missing"], 66, "missing"),
        (&["a", "./a"], 64, "given twice"),
        (&["a", "b", "--out", "b", "--force"], 64, "choose another place"),
        (&["a", "b", "--out", "c"], 73, "--force"),
        (&["a", "copy"], 64, "a and copy are of the same run"),
        (&["both", "b"], 64, "are of the same run"),
        (&[first, second, "--out", "both", "--force"], 64, "one in the other"),
        (&["a", "b", "--out", "a/x"], 64, "one in the other"),
        (&["a", "b", "--out", "a/processes"], 64, "one in the other"),
    ];
    for (words, code, said) in cases {
        let place: &[&str] = if words.contains(&"--out") { &[] } else { &["--out", "all"] };
        let message = failing(at, &[&["merge"], words, place].concat(), code);
        assert!(message.contains(said), "{words:?}: {message}");
        assert!(!at.join("all").exists(), "{words:?}");
    }
    for (profile, loads) in [("a", 1000), ("b", 1000), ("c", 1000), ("both", 2000), (first, 1000)] {
        assert_eq!(json(at, &[profile])["totals"]["loads"], loads, "{profile} is as it was");
    }
    succeeding(at, &["merge", "a", "b", "--out", "c", "--force"]);
    assert_eq!(json(at, &["c"])["totals"]["loads"], 2000);
}

#[test]
fn profiles_of_other_programs_are_told() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    let called = |word: &str| {
        let command = vec![word.to_owned(), "1".to_owned()];
        move |profile: &mut Profile| profile.run.command = command
    };
    rank(&at.join("a"), 66, "", called("/opt/heat"));
    rank(&at.join("b"), 77, "", called("./heat"));
    rank(&at.join("c"), 88, "", called("names"));
    let notes = |out: &str| {
        let table = succeeding(at, &["report", out, "--notes"]);
        table.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    succeeding(at, &["merge", "a", "b", "--out", "same"]);
    assert!(!notes("same").contains("other programs"), "{}", notes("same"));
    succeeding(at, &["merge", "a", "b", "c", "--out", "all"]);
    assert!(notes("all").contains("Of other programs than heat: c."), "{}", notes("all"));
}

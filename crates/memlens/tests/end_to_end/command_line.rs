//! Words that memlens understands, and what it says to those it does not.

use std::fs;

use crate::support::{call, compiled, failing, stderr, succeeding};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[test]
fn help_begins_with_examples_and_ends_with_the_exit_codes() {
    let folder = folder();
    let help = succeeding(folder.path(), &["--help"]);
    assert!(help.starts_with("Examples:\n  memlens run -- "), "{help}");
    assert!(help.contains("  73  the output cannot be created"), "{help}");
    for command in [
        "run",
        "record",
        "report",
        "view",
        "compare",
        "advise",
        "import",
        "export",
        "doctor",
        "completions",
        "man",
    ] {
        assert!(help.contains(&format!("\n  {command}")), "{command} is missing:\n{help}");
        succeeding(folder.path(), &[command, "--help"]);
    }
    assert!(succeeding(folder.path(), &["report", "--help"]).contains("dram_writes"));
    assert!(succeeding(folder.path(), &["--version"]).starts_with("memlens "));
}

#[test]
fn unknown_words_are_usage_errors_with_the_nearest_valid_word() {
    let folder = folder();
    let cases: &[(&[&str], &str)] = &[
        (&["run", "--quite", "--", "true"], "--quiet"),
        (&["reprot", "x"], "report"),
        (&["run", "--machine", "e5540", "--", "true"], "did you mean \"e5504\"?"),
        (&["run", "--machine", "vax", "--", "true"], "valid are host, cachegrind"),
        (&["run", "--cache", "l1x=1,1,64", "--", "true"], "did you mean \"l1i\"?"),
        (&["run", "--alloc-fn", "pool=fre", "--", "true"], "neither ‘free’ nor the number"),
        (&["run", "--mode", "exat", "--", "true"], "exact"),
        (&["run", "--collect-atstart=maybe", "--", "true"], "yes"),
        (&["report", "x", "--sort", "lodas"], "did you mean ‘loads’?"),
        (&["report", "x", "--sort", "stal"], "did you mean ‘stall’?"),
        (&["report", "x", "--by", "lien"], "did you mean ‘line’?"),
        (&["report", "x", "--top", "0"], "‘all’"),
        (&["report", "x", "--format", "jsn"], "json"),
        (&["view", "x"], "memlens report x"),
        (&["view", "x", "--sort", "lodas"], "did you mean ‘loads’?"),
        (&["completions", "fsh"], "fish"),
        (&["import", "lakcey", "x"], "lackey"),
        (&["run"], "PROGRAM"),
    ];
    for (words, expected) in cases {
        let message = failing(folder.path(), words, 64);
        assert!(message.contains(expected), "{words:?}: {message}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0, "nothing was created");
}

#[test]
fn options_that_a_mode_has_no_use_for_are_usage_errors() {
    let folder = folder();
    let cases: &[(&[&str], &str)] = &[
        (&["run", "--mode", "sample", "--follow", "children", "--", "true"], "--follow"),
        (&["run", "--mode", "sample", "--trace", "csv", "--", "true"], "--trace"),
        (&["run", "--mode", "sample", "--machine", "e5504", "--", "true"], "--machine"),
        (&["record", "--pid", "1", "--start-on", "main"], "--start-on"),
        (
            &["run", "--mode", "exact", "--frequency", "9", "--", "true"],
            "--frequency does not go with --mode exact",
        ),
        (
            &["run", "--trace", "csv", "--frequency", "9", "--", "true"],
            "--frequency does not go with --mode exact",
        ),
        (
            &["run", "--mode", "exact", "--event", "time", "--", "true"],
            "--event does not go with --mode exact",
        ),
        (&["run", "--mode", "sample", "--duration", "1", "--", "true"], "--duration goes with --pid"),
        (&["record", "--duration", "1", "--", "true"], "--duration goes with --pid"),
        (
            &["run", "--mode", "exact", "--overhead", "5%", "--", "true"],
            "--overhead does not go with --mode exact",
        ),
    ];
    for (words, expected) in cases {
        let message = failing(folder.path(), words, 64);
        assert!(message.contains(expected), "{words:?}: {message}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0, "nothing was created");
}

#[test]
fn a_wrong_machine_file_is_reported_with_its_place() {
    let folder = folder();
    // The misspelt word is the first of line 8.
    let text = "\
name = \"mine\"
line_bytes = 64
page_bytes = 4096
cores = 1
llc = { bytes = 65536, ways = 8 }
l1i = { bytes = 32768, ways = 8 }
[l1d]
byts = 32768
ways = 8
";
    fs::write(folder.path().join("mine.toml"), text).expect("written");
    let message = failing(folder.path(), &["run", "--machine", "mine.toml", "--", "true"], 65);
    assert!(message.contains("machine file mine.toml: line 8, column 1: unknown field `byts`"), "{message}");
    assert!(message.contains("did you mean \"bytes\"?"), "{message}");
    assert!(message.contains("memlens:   byts = 32768\nmemlens:   ^\n"), "{message}");
    failing(folder.path(), &["run", "--machine", "none.toml", "--", "true"], 66);
}

#[test]
fn completions_and_man_pages_come_from_the_definition() {
    let folder = folder();
    for shell in ["bash", "zsh", "fish"] {
        let script = succeeding(folder.path(), &["completions", shell]);
        assert!(script.contains("collect-atstart"), "{shell}");
        assert!(script.contains("instruction"), "{shell} offers the words of --by");
    }
    assert!(succeeding(folder.path(), &["man"]).contains(".TH memlens 1"));
    succeeding(folder.path(), &["man", "--out", "pages"]);
    for page in ["memlens.1", "memlens-run.1", "memlens-import-lackey.1"] {
        assert!(folder.path().join("pages").join(page).exists(), "{page}");
    }
    fs::write(folder.path().join("file"), "").expect("written");
    failing(folder.path(), &["man", "--out", "file"], 73);
}

/// Whether names are known can be asked of libraries, too, which nobody can run.
#[test]
fn the_doctor_looks_at_libraries() {
    let folder = folder();
    let source = "static int kept; int next(void) { return ++kept; }";
    compiled(folder.path(), "libnamed.so", source, &["-g", "-shared", "-fPIC"]);
    compiled(folder.path(), "libbare.so", source, &["-s", "-shared", "-fPIC"]);
    let of = |library: &str| {
        let report = succeeding(folder.path(), &["doctor", library]);
        report.split_once("Program\n").expect("it is looked at").1.to_owned()
    };
    let (named, bare) = (of("libnamed.so"), of("libbare.so"));
    assert!(named.contains("libnamed.so, a library") && !named.contains('!'), "{named}");
    assert!(bare.contains("! symbols") && bare.contains("! debug information"), "{bare}");
    assert_eq!(call(folder.path(), &["doctor", "/etc/passwd"]).status.code(), Some(126), "neither");
}

/// The program gets what stands behind it; that this was meant is told by what separates it.
#[test]
fn options_behind_the_program_are_its_own_and_that_is_said() {
    let folder = folder();
    let record = |words: &[&str]| {
        let begin = ["record", "--mode", "sample", "--force", "--out", "p"];
        stderr(&call(folder.path(), &[&begin[..], words].concat()))
    };
    let hint = "memlens: --cache=3 stands behind echo, so that echo gets it";
    assert!(record(&["echo", "x", "--cache=3"]).contains(hint));
    // `record` shows no table, and has no --top.
    let others = [&["echo", "--help"][..], &["echo", "--top=3"]];
    let meant = [&["--", "echo", "--cache=3"][..], &["--quiet", "echo", "--cache=3"]];
    for meant in others.into_iter().chain(meant) {
        let messages = record(meant);
        assert!(!messages.contains("stands behind"), "{messages}");
    }
}

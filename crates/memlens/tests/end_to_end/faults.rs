//! What goes wrong, one test each: the program is not harmed, nothing is overwritten, one message says
//! what happened and what to do, and the exit code is that of `docs/exit-codes.md`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output};

use crate::support::{call, failing, memlens, stderr, stdout, succeeding, wait_until};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("readable");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn write_program(path: &Path, content: &[u8]) {
    fs::write(path, content).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permitted");
}

/// Runs memlens below a limit that a shell sets; without what this test inherited, which would count.
fn limited(folder: &Path, limit: &str, words: &str) -> Output {
    let memlens = env!("CARGO_BIN_EXE_memlens");
    let inherited = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-";
    let script = format!("{inherited}; ulimit {limit}; exec '{memlens}' {words}");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(folder).env("MEMLENS_CALIBRATION", "none").output().expect("sh")
}

/// A program that works until there is a file `enough`, recorded into `p` with a partial profile every
/// second. It returns when the first one is there.
fn start_long_run(folder: &Path) -> Child {
    // A test that fails takes its folder away, and with it the reason to go on. Each parameter is a block
    // of its own.
    let script = "while [ -e stdout ] && ! [ -e enough ]; do \
                  if [ -e grow ] && [ $# -lt 2000000 ]; then set -- x \"$@\" \"$@\"; fi; \
                  done; echo done; exit 7";
    let child = memlens(folder)
        .args([
            "run",
            "--mode",
            "exact",
            "--quiet",
            "--flush-every",
            "1",
            "--out",
            "p",
            "--",
            "sh",
            "-c",
            script,
        ])
        .env_remove("RUST_BACKTRACE")
        .stdout(fs::File::create(folder.join("stdout")).expect("created"))
        .stderr(fs::File::create(folder.join("stderr")).expect("created"))
        .spawn()
        .expect("runs");
    wait_until(|| folder.join("p/profile.json").exists());
    child
}

fn end_long_run(folder: &Path) {
    fs::write(folder.join("enough"), "").expect("written");
}

fn text_of(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The process that memlens started.
fn program_of(child: &Child) -> String {
    let id = child.id();
    text_of(Path::new(&format!("/proc/{id}/task/{id}/children"))).trim().to_owned()
}

fn assert_is_partial(folder: &Path) {
    let table = succeeding(folder, &["report", "p"]);
    assert!(table.contains("profile ends before the program did"), "{table}");
}

/// One line, memlens's own.
fn assert_one_message(text: &str) {
    assert!(text.starts_with("memlens: ") && text.lines().count() == 1, "not one message:\n{text}");
}

#[test]
fn a_program_killed_from_outside_leaves_a_profile_that_says_so() {
    let folder = folder();
    let mut child = start_long_run(folder.path());
    let told = Command::new("kill").args(["-KILL", &program_of(&child)]).status().expect("kill is there");
    assert!(told.success());
    // Whoever called memlens sees what the program's own parent would.
    assert_eq!(child.wait().expect("it ends").signal(), Some(9));
    assert_eq!(text_of(&folder.path().join("stderr")), "");
    let report = succeeding(folder.path(), &["report", "p", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&report).expect("valid JSON");
    assert_eq!(report["run"]["signal"], 9);
    assert_eq!(report["attribution"]["truncated"], true);
    assert_is_partial(folder.path());
}

#[test]
fn a_memlens_that_is_killed_leaves_a_partial_profile_and_an_unharmed_program() {
    let folder = folder();
    let mut child = start_long_run(folder.path());
    let program = program_of(&child);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_is_partial(folder.path());
    assert!(Path::new(&format!("/proc/{program}")).exists(), "the program goes on");
    end_long_run(folder.path());
    wait_until(|| text_of(&folder.path().join("stdout")) == "done\n");
    assert_eq!(text_of(&folder.path().join("stderr")), "");
}

#[test]
fn a_memlens_without_memory_lets_the_program_go_on_and_ends_as_it_does() {
    let folder = folder();
    let mut child = start_long_run(folder.path());
    // What it has it may keep, and map no more: half of what it has mapped at the moment, in which a partial profile may be
    // written, is less than it has mapped ever after. Blocks by the million need tables too large for what is free in between.
    let id = child.id();
    let status = text_of(Path::new(&format!("/proc/{id}/status")));
    let field = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.split_whitespace().next());
    let bytes = field.expect("the kernel says").parse::<u64>().expect("a number") * 1024 / 2;
    let words = [format!("--pid={id}"), format!("--as={bytes}")];
    if !Command::new("prlimit").args(words).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: prlimit is not there (package util-linux)");
        end_long_run(folder.path());
        child.wait().expect("it ends");
        return;
    }
    fs::write(folder.path().join("grow"), "").expect("written");
    wait_until(|| text_of(&folder.path().join("stderr")).contains("memlens: stopped"));
    end_long_run(folder.path());
    assert_eq!(child.wait().expect("it ends").code(), Some(7));
    assert_eq!(text_of(&folder.path().join("stdout")), "done\n");
    let messages = text_of(&folder.path().join("stderr"));
    assert!(messages.contains("goes on unrecorded") && messages.contains("ulimit -v"), "{messages}");
    // Several threads may run out of it.
    assert_eq!(messages.matches("memlens: stopped").count(), 1, "{messages}");
    assert_is_partial(folder.path());
}

#[test]
fn a_limit_of_file_sizes_in_the_middle_keeps_the_last_partial_profile() {
    let folder = folder();
    let mut child = start_long_run(folder.path());
    let words = [format!("--pid={}", child.id()), "--fsize=1000".to_owned()];
    if !Command::new("prlimit").args(words).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: prlimit is not there (package util-linux)");
        end_long_run(folder.path());
        child.wait().expect("it ends");
        return;
    }
    wait_until(|| text_of(&folder.path().join("stderr")).contains("the program goes on"));
    end_long_run(folder.path());
    assert_eq!(child.wait().expect("it ends").code(), Some(7));
    assert_eq!(text_of(&folder.path().join("stdout")), "done\n");
    // Once while the program runs, and once more for the whole profile.
    let messages = text_of(&folder.path().join("stderr"));
    assert!(messages.lines().all(|line| line.contains("limit of file sizes")), "{messages}");
    assert_eq!(messages.lines().count(), 2, "{messages}");
    assert_is_partial(folder.path());
}

#[test]
fn limits_that_forbid_a_recording_are_named_before_the_program_runs() {
    let folder = folder();
    // The shell's unit is 512 or 1024 bytes. 8 MB of addresses would not even load memlens.
    for (limit, helps, modes) in [
        ("-f 100", "ulimit -f unlimited", &["exact", "burst"][..]),
        // Enough for bursts.
        ("-v 1000000", "ulimit -v unlimited", &["exact"]),
        ("-n 5", "ulimit -n 1024", &["exact", "burst"]),
    ] {
        for mode in modes {
            let words = format!("run --mode {mode} --quiet --out p -- touch ran");
            let output = limited(folder.path(), limit, &words);
            let messages = stderr(&output);
            assert_eq!(output.status.code(), Some(75), "{mode} {limit}: {messages}");
            assert_one_message(&messages);
            assert!(messages.contains(helps), "{mode} {limit}: {messages}");
            assert_eq!(names(folder.path()), [""; 0], "{mode} {limit}: nothing is left behind");
        }
    }
    // The doctor knows them, too.
    let report = limited(folder.path(), "-v 1000000", "doctor");
    assert_eq!(report.status.code(), Some(75));
    assert!(stdout(&report).contains("✗ limits"), "{}", stdout(&report));
}

/// However few files may be open: either the program is not started, or there is a whole profile.
#[test]
fn few_descriptors_cost_no_profile() {
    let folder = folder();
    for mode in ["exact", "burst"] {
        let mut written = 0;
        for limit in [8, 10, 11, 12, 14, 16] {
            let profile = format!("{mode}.{limit}");
            let words = format!("run --mode {mode} --quiet --out {profile} -- true");
            let output = limited(folder.path(), &format!("-n {limit}"), &words);
            let messages = stderr(&output);
            match output.status.code() {
                Some(75) => assert!(messages.contains("ulimit -n"), "{mode} {limit}: {messages}"),
                code => {
                    assert_eq!((code, messages.as_str()), (Some(0), ""), "{mode} {limit}");
                    let opened = memlens_profile::Profile::open(&folder.path().join(profile));
                    assert!(!opened.expect("readable").attribution.truncated, "{mode} {limit}");
                    written += 1;
                }
            }
        }
        assert!(written > 0, "{mode}: 16 are said to be enough");
    }
}

#[test]
fn a_limit_of_file_sizes_reaches_the_program_as_it_is() {
    let folder = folder();
    // memlens catches the signal for itself; who is started by it must still die of it.
    let script = "ulimit -f 1; head -c 2000000 /dev/zero > big; exit $?";
    let plain = Command::new("sh").args(["-c", script]).current_dir(folder.path()).output().expect("sh");
    let words = ["run", "--mode", "exact", "--quiet", "--out", "p", "--", "sh", "-c", script];
    let output = call(folder.path(), &words);
    assert_eq!(output.status.code(), plain.status.code(), "{}", stderr(&output));
    assert!(output.status.code() != Some(0), "the limit works");
}

#[test]
fn files_that_are_no_programs_are_told_apart() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    write_program(&at("arm"), &elf(2, 1, 183, None));
    write_program(&at("power"), &elf(2, 2, 21, None));
    write_program(&at("small"), &elf(1, 1, 3, None));
    write_program(&at("loader"), &elf(2, 1, 62, Some(b"/no/such/loader.so\0")));
    write_program(&at("nothing-to-load"), &elf(2, 1, 62, None));
    write_program(&at("cut"), &elf(2, 1, 62, None)[..40]);
    write_program(&at("empty"), b"");
    write_program(&at("script"), b"#!/no/such/interpreter -x\n");
    write_program(&at("text"), b"just text");
    fs::write(at("data"), b"#!/bin/sh\n").expect("written");
    fs::create_dir(at("folder")).expect("created");
    let before = names(folder.path());
    let cases = [
        ("./arm", 126, "built for another processor (AArch64)"),
        ("./power", 126, "built for another processor"),
        ("./small", 126, "built for another processor (32-bit)"),
        ("./loader", 127, "its loader /no/such/loader.so does not exist"),
        ("./nothing-to-load", 126, "not a program"),
        ("./cut", 126, "not a program"),
        ("./empty", 126, "not a program"),
        ("./text", 126, "not a program"),
        ("./script", 127, "/no/such/interpreter: no such file"),
        ("./data", 126, "`chmod +x` it"),
        ("./folder", 126, "a folder, not a program"),
        ("/", 126, "a folder, not a program"),
        ("/dev/null", 126, "not a program"),
        ("./none", 127, "no such file"),
        ("./text/none", 127, "no such file"),
        ("no-such-program-here", 127, "command not found"),
        ("", 127, "command not found"),
    ];
    for (program, code, says) in cases {
        for place in [&["--out", "p"][..], &[]] {
            let words = [&["run", "--mode", "exact"], place, &["--", program]].concat();
            let message = failing(folder.path(), &words, code);
            assert_one_message(&message);
            assert!(message.contains(says), "{program}: {message}");
        }
    }
    assert_eq!(names(folder.path()), before, "nothing is left behind");
}

/// The smallest ELF file of a class (1: 32 bits, 2: 64), byte order (1: little) and machine: a header,
/// and a `PT_INTERP` if a loader is wanted (System V gABI, chapter 4 and 5).
fn elf(class: u8, order: u8, machine: u16, loader: Option<&[u8]>) -> Vec<u8> {
    let number = |value: u64, bytes: usize| -> Vec<u8> {
        match order {
            1 => value.to_le_bytes()[..bytes].to_vec(),
            _ => value.to_be_bytes()[8 - bytes..].to_vec(),
        }
    };
    let word = if class == 2 { 8 } else { 4 };
    let (header, entry) = if class == 2 { (64, 56) } else { (52, 32) };
    let count = u64::from(loader.is_some());
    let mut file = vec![0x7f, b'E', b'L', b'F', class, order, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    // ET_EXEC, machine, version; entry point, program headers, section headers; flags; sizes and counts.
    for (value, bytes) in [(2, 2), (machine.into(), 2), (1, 4), (0, word), (header * count, word), (0, word)]
    {
        file.extend(number(value, bytes));
    }
    for (value, bytes) in [(0, 4), (header, 2), (entry, 2), (count, 2), (0, 2), (0, 2), (0, 2)] {
        file.extend(number(value, bytes));
    }
    if let Some(name) = loader {
        let (offset, length) = (header + entry, name.len() as u64);
        // PT_INTERP, readable; offset, addresses, sizes, alignment.
        for (value, bytes) in [(3, 4), (4, 4), (offset, 8), (0, 8), (0, 8), (length, 8), (length, 8), (1, 8)]
        {
            file.extend(number(value, bytes));
        }
        file.extend(name);
    }
    file
}

#[test]
fn missing_permissions_are_named_and_nothing_runs() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let set =
        |name: &str, mode| fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).expect("set");
    succeeding(folder.path(), &["run", "--mode", "exact", "--quiet", "--out", "p", "--", "true"]);
    fs::copy("/bin/true", at("secret")).expect("copied");
    fs::create_dir(at("closed")).expect("created");
    fs::create_dir(at("cache")).expect("created");
    set("secret", 0o711);
    set("closed", 0o555);
    set("cache", 0o777);
    set("p", 0o700);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("set");
    // As root nothing is forbidden: then somebody else has to try.
    let is_root = fs::write(at("closed/probe"), "").is_ok();
    let _ = fs::remove_file(at("closed/probe"));
    if !is_root {
        set("p", 0o000);
        set("secret", 0o111);
    }
    let binary = env!("CARGO_BIN_EXE_memlens");
    let attempt = |words: &[&str]| {
        let mut command = match is_root {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=65534", "--regid=65534", "--clear-groups", binary]);
                command
            }
            false => Command::new(binary),
        };
        command.args(words).current_dir(folder.path()).env("XDG_CACHE_HOME", at("cache")).output()
    };
    let Some(probe) = attempt(&["--version"]).ok().filter(|output| output.status.success()) else {
        eprintln!("skipped: nobody else can run memlens here");
        return;
    };
    assert!(stdout(&probe).contains("memlens"));
    let cases: [(&[&str], i32, &str); 3] = [
        (
            &["run", "--mode", "exact", "--out", "closed/p", "--", "touch", "cache/ran"],
            73,
            "choose another place with --out",
        ),
        (&["report", "p"], 77, "ask its owner or change its permissions"),
        (&["run", "--mode", "exact", "--out", "cache/p", "--", "./secret"], 126, "`chmod +r` it"),
    ];
    for (words, code, says) in cases {
        let output = attempt(words).expect("runs");
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {message}");
        assert_one_message(&message);
        assert!(message.contains(says), "{words:?}: {message}");
    }
    assert!(!at("cache/ran").exists() && !at("cache/p").exists());
    set("p", 0o700);
}

#[test]
fn every_truncation_of_a_real_profile_is_one_message() {
    let folder = folder();
    succeeding(folder.path(), &["run", "--mode", "exact", "--quiet", "--out", "p", "--", "true"]);
    let mut steps = 0;
    for name in names(&folder.path().join("p")) {
        let path = folder.path().join("p").join(&name);
        let content = fs::read(&path).expect("readable");
        for length in (0..content.len()).step_by(1024).chain([content.len() - 1]) {
            fs::write(&path, &content[..length]).expect("written");
            let message = failing(folder.path(), &["report", "p"], 65);
            assert_one_message(&message);
            assert!(message.contains("record again"), "{name} cut to {length} bytes: {message}");
            steps += 1;
        }
        fs::write(&path, &content).expect("written");
    }
    assert!(steps > 20, "{steps} steps: the profile is too small to tell anything");
    succeeding(folder.path(), &["report", "p"]);
}

#[test]
fn profiles_of_other_versions_are_refused_and_left_alone() {
    let folder = folder();
    crate::support::write_small_profile(&folder.path().join("p"));
    let manifest = folder.path().join("p/profile.json");
    let text = fs::read_to_string(&manifest).expect("readable");
    for (version, helps) in [("99", "use that version or a newer one"), ("0", "record the program again")] {
        let other = text.replace("\"format_version\": 1", &format!("\"format_version\": {version}"));
        assert_ne!(other, text);
        fs::write(&manifest, &other).expect("written");
        for words in [&["report", "p"][..], &["export", "callgrind", "p"]] {
            let message = failing(folder.path(), words, 65);
            assert_one_message(&message);
            assert!(message.contains(helps), "{message}");
        }
        assert_eq!(text_of(&manifest), other);
    }
}

#[test]
fn what_exists_stays() {
    let folder = folder();
    crate::support::write_small_profile(&folder.path().join("p"));
    fs::write(folder.path().join("file"), "mine").expect("written");
    let before = names(&folder.path().join("p"));
    let manifest = text_of(&folder.path().join("p/profile.json"));
    for words in [
        &["run", "--mode", "exact", "--out", "p", "--", "touch", "ran"][..],
        &["record", "--out", "file", "--", "touch", "ran"],
        &[
            "run",
            "--mode",
            "exact",
            "--out",
            "new",
            "--trace",
            "text",
            "--trace-out",
            "file",
            "--",
            "touch",
            "ran",
        ],
        &["export", "callgrind", "p", "--out", "file"],
        &["export", "pprof", "p", "--out", "file"],
        &["export", "dhat", "p", "--out", "file"],
        &["export", "sqlite", "p", "--out", "file"],
    ] {
        let message = failing(folder.path(), words, 73);
        assert_one_message(&message);
        assert!(message.contains("--force"), "{words:?}: {message}");
    }
    // Even --force leaves alone what is no profile.
    assert_one_message(&failing(
        folder.path(),
        &["run", "--mode", "exact", "--force", "--out", "file", "--", "touch", "ran"],
        73,
    ));
    assert_eq!(names(&folder.path().join("p")), before);
    assert_eq!(text_of(&folder.path().join("p/profile.json")), manifest);
    assert_eq!(text_of(&folder.path().join("file")), "mine");
    assert_eq!(names(folder.path()), ["file", "p"]);
}

#[test]
fn a_program_does_not_run_when_its_profile_cannot_be_written() {
    let folder = folder();
    succeeding(folder.path(), &["run", "--mode", "exact", "--quiet", "--out", "p", "--", "true"]);
    let words = ["run", "--mode", "exact", "--out", "p", "--", "sh", "-c", "touch ran"];
    assert!(failing(folder.path(), &words, 73).contains("--force"));
    let elsewhere = ["run", "--mode", "exact", "--out", "no/such/folder/p", "--", "sh", "-c", "touch ran"];
    assert!(failing(folder.path(), &elsewhere, 73).contains("create it first"));
    let special = ["run", "--mode", "exact", "--out", "/proc/p", "--", "sh", "-c", "touch ran"];
    failing(folder.path(), &special, 73);
    // Even --force leaves alone what is no profile.
    fs::create_dir(folder.path().join("mine")).expect("created");
    fs::write(folder.path().join("mine/file"), "").expect("written");
    failing(
        folder.path(),
        &["run", "--mode", "exact", "--force", "--out", "mine", "--", "sh", "-c", "touch ran"],
        73,
    );
    assert!(!folder.path().join("ran").exists());
}

#[test]
fn an_engine_that_does_not_start_is_told_from_a_failing_program() {
    let folder = folder();
    // So few descriptors that memlens can start the engine, but the engine cannot map the program.
    let output = limited(folder.path(), "-n 7", "run --mode exact --quiet --out p -- true");
    assert_eq!(output.status.code(), Some(75), "{}", stderr(&output));
    assert_eq!(names(folder.path()), [""; 0], "nothing is left behind");
}

/// What a shell script does that may mount file systems for itself; None, where the kernel does not let us. The script ends
/// with 99 where it could not.
fn with_mounts_of_its_own(folder: &Path, script: &str) -> Option<Output> {
    let mut command = Command::new("unshare");
    command.args(["-r", "-m", "sh", "-c", script]).current_dir(folder).env("MEMLENS_CALIBRATION", "none");
    let output = command.output().ok()?;
    if output.status.code() == Some(99) || stderr(&output).contains("unshare") {
        eprintln!("skipped: no mounts here");
        return None;
    }
    Some(output)
}

#[test]
fn a_full_disk_does_not_touch_the_program() {
    let folder = folder();
    let memlens = env!("CARGO_BIN_EXE_memlens");
    // A file system of 16 KB, where the kernel lets us have one.
    let script = format!(
        "mount -t tmpfs -o size=16k none . 2>/dev/null || exit 99; cd .; cd \"$PWD\"
         '{memlens}' run --quiet --flush-every 0 --out p -- sh -c 'echo works; exit 5'"
    );
    let Some(output) = with_mounts_of_its_own(folder.path(), &script) else { return };
    assert_eq!((output.status.code(), stdout(&output)), (Some(5), "works\n".into()), "{}", stderr(&output));
    let messages = stderr(&output);
    assert!(messages.contains("the disk is full"), "{messages}");
    assert_eq!(messages.lines().count(), 1, "one message:\n{messages}");
}

#[test]
fn without_proc_exact_mode_is_refused_before_the_program_runs() {
    let folder = folder();
    let memlens = env!("CARGO_BIN_EXE_memlens");
    // It used to wait for ever.
    let script = format!(
        "mount -t tmpfs none /proc 2>/dev/null || exit 99
         timeout 60 '{memlens}' run --mode exact --quiet --out p -- sh -c 'echo works; exit 5'"
    );
    let Some(output) = with_mounts_of_its_own(folder.path(), &script) else { return };
    let messages = stderr(&output);
    assert_eq!((output.status.code(), stdout(&output)), (Some(75), String::new()), "{messages}");
    assert!(messages.contains("needs /proc") && messages.contains("--mode burst"), "{messages}");
    assert_eq!(names(folder.path()), [""; 0], "nothing is left behind");
}

//! What happens at the gate.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::Stdio;

use memlens_child::{ExitOutcome, Held, Image, wait_for_end};

use support::{alone, end, exists, shell, status, until};

#[test]
fn the_program_begins_when_it_is_released_and_not_before() {
    let held = Held::start(&shell("exit 7"), &[]).expect("it starts");
    let pid = held.id();
    // Asleep: it waits, and at the gate, for it is still a copy of this process.
    until("the process to wait", || status(pid, "State:").filter(|state| state.starts_with('S')));
    let file = fs::read_link(format!("/proc/{pid}/exe")).expect("our child");
    assert_eq!(file, std::env::current_exe().expect("a file"));
    let mut child = held.release().expect("it runs");
    assert_eq!(child.id(), pid);
    assert_eq!(end(&mut child), ExitOutcome::Code(7));
    // Asked again it says the same, though the process is gone.
    assert!(!exists(pid));
    assert_eq!(child.try_wait().expect("remembered"), Some(ExitOutcome::Code(7)));
}

#[test]
fn a_process_that_is_dropped_executes_nothing_and_is_gone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mark = folder.path().join("ran");
    let held = Held::start(&shell(&format!("> {}", mark.display())), &[]).expect("it starts");
    let pid = held.id();
    drop(held);
    assert!(!exists(pid) && !mark.exists());
}

#[test]
fn a_program_that_cannot_be_executed_is_an_error_and_leaves_no_process() {
    let image = Image::new(Path::new("/etc/passwd"), &["passwd".into()]).expect("no zero bytes");
    let held = Held::start(&image, &[]).expect("the process itself can be made");
    let pid = held.id();
    let error = held.release().expect_err("no program");
    assert_eq!(error.raw_os_error(), Some(libc::EACCES));
    assert!(!exists(pid));
}

#[test]
fn one_descriptor_is_kept_and_no_other() {
    let (mut reading, writing) = std::io::pipe().expect("a pipe");
    let (_, other) = std::io::pipe().expect("a pipe");
    let [kept, lost] = [writing.as_raw_fd(), other.as_raw_fd()];
    // Through /proc: a shell's `>&` need not take numbers of two digits.
    let script = format!("test ! -e /proc/self/fd/{lost} && echo kept > /proc/self/fd/{kept}");
    let mut child = Held::start(&shell(&script), &[writing.as_fd()]).and_then(Held::release).expect("runs");
    drop(writing);
    let mut text = String::new();
    reading.read_to_string(&mut text).expect("text");
    assert_eq!((text.as_str(), end(&mut child)), ("kept\n", ExitOutcome::Code(0)));
}

#[test]
fn variables_are_added_to_the_environment() {
    let mut image = shell("test \"$HOME\" = \"$SAME\" && exit $MEMLENS_TEST_CODE");
    let home = std::env::var_os("HOME").unwrap_or_default();
    image.add_variable("SAME".as_ref(), &home).expect("no zero bytes");
    image.add_variable("MEMLENS_TEST_CODE".as_ref(), "11".as_ref()).expect("no zero bytes");
    let mut child = Held::start(&image, &[]).and_then(Held::release).expect("it runs");
    assert_eq!(end(&mut child), ExitOutcome::Code(11));
    assert!(image.add_variable("A".as_ref(), "zero\0byte".as_ref()).is_err());
    assert!(Image::new(Path::new("/bin/sh"), &["zero\0byte".into()]).is_err());
}

#[test]
fn a_signal_that_ends_the_program_is_told_from_a_code() {
    let mut child = Held::start(&shell("kill -KILL $$"), &[]).and_then(Held::release).expect("it runs");
    // Whoever only looks leaves the end to be found by others.
    assert_eq!(wait_for_end(child.id()).expect("our child"), ExitOutcome::Signal(libc::SIGKILL));
    assert_eq!(end(&mut child), ExitOutcome::Signal(libc::SIGKILL));
    let error = wait_for_end(child.id()).expect_err("waited for already");
    assert_eq!(error.raw_os_error(), Some(libc::ECHILD));
}

#[test]
fn a_held_process_ends_when_the_one_that_holds_it_dies() {
    let mut holder = alone("hold_forever", "").stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(holder.stdout.take().expect("piped")).lines();
    let pid = lines
        .map(|line| line.expect("text"))
        // The test harness writes its own words before.
        .find_map(|line| line.split_once("held: ").map(|(_, pid)| pid.parse::<u32>().expect("a number")))
        .expect("it says which process it holds");
    assert!(exists(pid));
    holder.kill().expect("ours");
    holder.wait().expect("ours");
    // Where nobody waits for orphans it stays a zombie.
    until("its end", || status(pid, "State:").is_none_or(|state| state.starts_with('Z')).then_some(()));
}

#[test]
#[ignore = "run by another test, which kills it"]
fn hold_forever() {
    let held = Held::start(&shell("exit 1"), &[]).expect("it starts");
    println!("held: {}", held.id());
    loop {
        std::thread::park();
    }
}

//! Programs find SIGPIPE, SIGCHLD and the standard streams as this process itself found them.

mod support;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use memlens_child::{ExitOutcome, Held, Image, inherited};

use support::{alone, end, shell};

/// Bits in the masks of `/proc/PID/status`.
const PIPE: u64 = 1 << (libc::SIGPIPE - 1);
const CHILD: u64 = 1 << (libc::SIGCHLD - 1);

#[test]
fn a_program_finds_what_this_process_was_given() {
    // What the shell does before this process begins, and what its program must see then: whether SIGPIPE
    // is ignored, and which of the streams 0 and 2 are open. (1 is open: the test harness writes there.)
    let cases = [
        ("", "no 0 2"),
        ("trap '' PIPE", "yes 0 2"),
        ("exec <&-", "no 2"),
        ("trap '' PIPE; exec <&- 2>&-", "yes"),
    ];
    for (setup, expected) in cases {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let status = alone("start_a_program", setup).env("MEMLENS_TEST_FILE", file.path()).status();
        assert!(status.expect("it runs").success(), "{setup}");
        let text = fs::read_to_string(file.path()).expect("text");
        let mut lines = text.lines();
        let ignored = lines.next().and_then(|mask| u64::from_str_radix(mask, 16).ok()).expect("a mask");
        let is_ignored = if ignored & PIPE != 0 { "yes" } else { "no" };
        let found = [is_ignored].into_iter().chain(lines).collect::<Vec<_>>().join(" ");
        assert_eq!(found, expected, "{setup}");
    }
}

#[test]
fn ends_of_children_are_told_here_and_ignored_by_the_program_that_inherits_that() {
    for action in [libc::SIG_DFL, libc::SIG_IGN] {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        // No shell in between, nor as the program: those handle SIGCHLD themselves.
        let mut command = Command::new(env::current_exe().expect("a file"));
        command
            .args(["--ignored", "--exact", "copy_a_programs_status"])
            .env("MEMLENS_TEST_FILE", file.path());
        // SAFETY: a system call, which may be made between fork and exec.
        let status = unsafe {
            command.pre_exec(move || {
                libc::signal(libc::SIGCHLD, action);
                Ok(())
            })
        }
        .status();
        assert!(status.expect("it runs").success(), "{action}");
        let text = fs::read_to_string(file.path()).expect("text");
        let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask");
        let ignored = u64::from_str_radix(mask.trim(), 16).expect("a number");
        assert_eq!(ignored & CHILD != 0, action == libc::SIG_IGN);
    }
}

#[test]
#[ignore = "run by another test, with the signals that it tests"]
fn copy_a_programs_status() {
    let file = env::var_os("MEMLENS_TEST_FILE").expect("a file");
    let words = ["cp".into(), "/proc/self/status".into(), file];
    let image = Image::new(Path::new("/bin/cp"), &words).expect("no zero bytes");
    let mut child = Held::start(&image, &[]).and_then(Held::release).expect("it runs");
    assert_eq!(end(&mut child), ExitOutcome::Code(0));
}

#[test]
#[ignore = "run by another test, with the streams and signals that it tests"]
fn start_a_program() {
    // The streams first: a file that the shell opens takes the first number that is free.
    let script = "open=; for fd in 0 2; do if [ -e /proc/$$/fd/$fd ]; then open=\"$open $fd\"; fi; done
         while read -r name value; do
             if [ \"$name\" = SigIgn: ]; then printf '%s\\n' \"$value\" $open > \"$MEMLENS_TEST_FILE\"; fi
         done < /proc/$$/status";
    let mut child = Held::start(&shell(script), &[]).and_then(Held::release).expect("it runs");
    assert_eq!(end(&mut child), ExitOutcome::Code(0));
    let [stdin, _, stderr] = inherited::closed_streams();
    // Rust's runtime has opened them and ignores SIGPIPE for itself, and this process ignores no SIGCHLD, whatever was found.
    for (signal, was_ignored) in inherited::changed_signals() {
        assert_eq!(inherited::ignored_signals() >> (signal - 1) & 1, u64::from(was_ignored), "{signal}");
    }
    for (fd, was_closed) in [(0, stdin), (2, stderr)] {
        let target = fs::read_link(format!("/proc/self/fd/{fd}")).expect("open");
        assert!(!was_closed || target.ends_with("null"), "{target:?}");
    }
}

//! Shell programs, and tests that need a process of their own.
// Each test file uses a part of it.
#![allow(dead_code)]

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use memlens_child::{Child, ExitOutcome, Image};

/// `sh -c script`.
pub fn shell(script: &str) -> Image {
    let words = ["sh", "-c", script].map(Into::into);
    Image::new(Path::new("/bin/sh"), &words).expect("no zero bytes")
}

/// Waits for what must come soon.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < Duration::from_secs(300), "waited in vain for {what}");
        sleep(Duration::from_millis(2));
    }
}

/// How `child` ends.
pub fn end(child: &mut Child) -> ExitOutcome {
    until("the program's end", || child.try_wait().expect("our child"))
}

/// Whether there is such a process; a zombie is one.
pub fn exists(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// The line of `/proc/PID/status` that begins with `name`, without it.
pub fn status(pid: u32, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
}

/// Sends `signal` as somebody else would.
pub fn kill(signal: &str, pid: u32) {
    let sent = Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status();
    assert!(sent.expect("kill is there").success());
}

/// A command that runs the ignored test `name` of this file in a process of its own. `setup` is what a
/// shell does before.
pub fn alone(name: &str, setup: &str) -> Command {
    let this = std::env::current_exe().expect("a file");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{setup}\nexec \"$0\" \"$@\"")]).arg(this);
    command.args(["--ignored", "--exact", name, "--nocapture"]);
    command
}

/// Signals of the terminal have their default actions: a shell that runs the tests in the background has them ignored.
pub fn as_in_the_foreground() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: no handler is involved.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

//! Signals passed on. One test: handlers belong to the whole process.

mod support;

use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd};

use memlens_child::{ExitOutcome, Held};

use support::{as_in_the_foreground, end, kill, shell};

#[test]
fn the_first_child_gets_the_signals_that_are_sent_to_this_process() {
    as_in_the_foreground();
    let own = std::process::id();
    let (reading, writing) = std::io::pipe().expect("a pipe");
    let mut words = BufReader::new(reading).lines().map(|line| line.expect("text"));
    // Says which signals it gets and goes on; USR2 ends it. `wait` so that traps come at once.
    let script = format!(
        "exec > /proc/self/fd/{}
         for name in HUP INT QUIT TERM USR1 CONT WINCH; do trap \"echo $name\" $name; done
         trap 'exit 9' USR2
         sleep 60 > /dev/null & trap \"kill $!\" EXIT
         echo ready; while :; do wait; done",
        writing.as_raw_fd()
    );
    let mut first = Held::start(&shell(&script), &[writing.as_fd()]).and_then(Held::release).expect("runs");
    assert_eq!(words.next().as_deref(), Some("ready"));
    // Another one meanwhile takes nothing away.
    let mut second = Held::start(&shell("exit 3"), &[]).and_then(Held::release).expect("it runs");
    for name in ["HUP", "INT", "QUIT", "TERM", "USR1", "CONT", "WINCH"] {
        kill(name, own);
        assert_eq!(words.next().as_deref(), Some(name));
    }
    assert_eq!(end(&mut second), ExitOutcome::Code(3));
    kill("USR2", own);
    assert_eq!(end(&mut first), ExitOutcome::Code(9));
    // The next one has them again.
    let script = "trap 'exit 5' TERM; kill -TERM $PPID; while :; do sleep 0.01; done";
    let mut third = Held::start(&shell(script), &[]).and_then(Held::release).expect("it runs");
    assert_eq!(end(&mut third), ExitOutcome::Code(5));
    // No child, no handler: WINCH does nothing by default.
    kill("WINCH", own);
}

//! Requests to stop: the first is noted, the second obeyed.

mod support;

use std::os::unix::process::ExitStatusExt;

use memlens_child::StopRequest;

use support::{alone, as_in_the_foreground, kill, until};

#[test]
fn the_first_request_sets_a_flag_and_the_second_ends_the_process() {
    let status = alone("be_asked_twice", "").status().expect("it runs");
    assert_eq!(status.signal(), Some(libc::SIGTERM));
}

#[test]
#[ignore = "run by another test; it ends by a signal"]
fn be_asked_twice() {
    let request = StopRequest::listen();
    assert!(!request.has_come());
    kill("TERM", std::process::id());
    until("the request", || request.has_come().then_some(()));
    kill("TERM", std::process::id());
    unreachable!("the signal has its default action again");
}

#[test]
fn what_was_ignored_before_stays_so_and_what_was_handled_is_put_back() {
    as_in_the_foreground();
    let status = alone("be_asked_in_the_background", "trap '' HUP").status().expect("it runs");
    assert_eq!(status.signal(), Some(libc::SIGINT));
}

#[test]
#[ignore = "run by another test; it ends by a signal"]
fn be_asked_in_the_background() {
    let request = StopRequest::listen();
    kill("HUP", std::process::id());
    kill("INT", std::process::id());
    // Both have been delivered when the second has.
    until("the request", || request.has_come().then_some(()));
    drop(request);
    assert!(!StopRequest::listen().has_come());
    kill("INT", std::process::id());
    unreachable!("nobody listens any more");
}

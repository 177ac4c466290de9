//! Two things at a time, or one after the other.

use std::{panic, thread};

/// Does both, the second on a thread of its own where there is one to be had. Should it panic, this does.
pub fn beside<A, B: Send>(here: impl FnOnce() -> A, there: impl Fn() -> B + Sync) -> (A, B) {
    thread::scope(|scope| {
        let started = thread::Builder::new().spawn_scoped(scope, &there);
        let done = here();
        let found = match started {
            Ok(thread) => thread.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked)),
            // None was to be had.
            Err(_) => there(),
        };
        (done, found)
    })
}

/// Does both, one after the other.
pub fn in_turn<A, B>(here: impl FnOnce() -> A, there: impl Fn() -> B) -> (A, B) {
    (here(), there())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_done_and_a_panic_goes_on() {
        let words = ["one".to_owned(), "two".to_owned()];
        assert_eq!(beside(|| words[0].len(), || words[1].clone()), (3, "two".to_owned()));
        let panicked = panic::catch_unwind(|| beside(|| 1, || -> u32 { panic::panic_any("there") }));
        assert_eq!(panicked.expect_err("it panics").downcast_ref(), Some(&"there"));
    }
}

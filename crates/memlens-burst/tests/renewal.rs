//! The engine begins anew as often as code is unmapped, and takes no further memory of the decoder's for that: an agent's heap gives
//! out each byte once.

mod support;

use std::sync::atomic::Ordering;

use support::{GOES_ON, OWN_ALLOCATIONS, WORDS, begin_now, prepare};

/// Bursts until a system call; the words that they recorded, and the allocations meanwhile.
fn in_bursts() -> (u64, u64) {
    GOES_ON.store(true, Ordering::Relaxed);
    let before = (WORDS.load(Ordering::Relaxed), OWN_ALLOCATIONS.load(Ordering::Relaxed));
    begin_now();
    let sum: u64 = (0..1000).map(|at| std::hint::black_box(&[at; 4])[3]).sum();
    // SAFETY: a system call without effect: it ends the burst.
    unsafe { libc::getppid() };
    assert_eq!(sum, 499_500);
    (WORDS.load(Ordering::Relaxed) - before.0, OWN_ALLOCATIONS.load(Ordering::Relaxed) - before.1)
}

#[test]
fn an_engine_that_begins_anew_takes_over_the_decoder() {
    prepare(100_000);
    assert!(in_bursts().0 > 1000);
    for round in 0..20 {
        memlens_burst::code_has_changed();
        let (words, allocations) = in_bursts();
        assert!(words > 1000 && allocations == 0, "round {round}: {words} words, {allocations} allocations");
    }
}

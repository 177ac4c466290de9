//! The test's own code in bursts: what it computes is what it computes without.

mod support;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;

use support::{COUNTED, COUNTED_WORDS, GOES_ON, Ticks, WORDS, accesses, prepare, summary};

/// Work of many kinds: integers, floating point, strings, heap, indirect calls, unwinding, formatting.
fn work(seed: u64) -> String {
    let mut state = seed;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut numbers: Vec<u64> = (0..20_000).map(|_| random()).collect();
    numbers.sort_unstable();
    let mut words: HashMap<String, usize> = HashMap::new();
    for number in numbers.iter().step_by(7) {
        *words.entry(format!("{:x}", number % 997)).or_default() += 1;
    }
    let ordered: BTreeMap<_, _> = words.into_iter().collect();
    let sum: f64 = numbers.iter().map(|&number| (number as f64).sqrt().sin()).sum();
    let functions: [&dyn Fn(u64) -> u64; 3] = [&|x| x ^ 5, &|x| x.rotate_left(9), &|x| x.wrapping_mul(31)];
    let mixed = numbers.iter().fold(0u64, |mixed, &number| functions[number as usize % 3](mixed ^ number));
    let caught = std::panic::catch_unwind(|| {
        if mixed != 1 {
            std::panic::resume_unwind(Box::new(mixed));
        }
    });
    let payload = caught.expect_err("it unwound").downcast::<u64>().expect("a number");
    format!("{} {sum:?} {mixed} {payload} {:?}", ordered.len(), ordered.iter().nth(17))
}

#[test]
fn results_are_the_same_and_addresses_are_recorded() {
    prepare(20_000);
    COUNTED_WORDS.store(10_000, Ordering::Relaxed);
    let expected: Vec<String> = (0..40).map(work).collect();
    {
        let _ticks = Ticks::every(200_000);
        for round in 0..5 {
            for (seed, expected) in expected.iter().enumerate() {
                assert_eq!(&work(seed as u64), expected, "round {round}");
            }
        }
    }
    assert!(COUNTED.load(Ordering::Relaxed) > 20_000, "{}", summary());
    COUNTED_WORDS.store(0, Ordering::Relaxed);
    // And with one burst behind the other, in several threads.
    GOES_ON.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let expected = &expected;
            scope.spawn(move || {
                let _ticks = Ticks::every(1_000_000);
                for (seed, expected) in expected.iter().enumerate().skip(thread) {
                    assert_eq!(&work(seed as u64), expected, "thread {thread}");
                }
            });
        }
    });
    eprintln!("{}", summary());
    assert!(WORDS.load(Ordering::Relaxed) > 100_000, "{}", summary());
    let list = accesses();
    assert!(list.len() > 100_000, "{}", summary());
}

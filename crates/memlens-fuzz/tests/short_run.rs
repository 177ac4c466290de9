//! A short run of every target, the same every time, but for how far slow machines get.
//!
//! A longer one, with other inputs: `MEMLENS_FUZZ_SECONDS=300 MEMLENS_FUZZ_SEED=2 cargo test --release -p
//! memlens-fuzz` (seconds for each target).

use std::env;
use std::time::{Duration, Instant};

use memlens_fuzz::{Mutator, TARGETS, Target};

/// Inputs of a target in a short run.
const INPUTS: u64 = 20_000;

/// A target stops here, however far it is.
const SHORT: Duration = Duration::from_secs(5);

/// A number of the environment. What is none ends the test: a long run that was meant is not a short one.
fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is to be a number, not {text:?}")))
}

fn run(target: &Target) {
    let seconds = number("MEMLENS_FUZZ_SECONDS");
    let (inputs, time) = seconds.map_or((INPUTS, SHORT), |long| (u64::MAX, Duration::from_secs(long)));
    let seeds = (target.seeds)();
    for seed in &seeds {
        target.check(seed);
    }
    let (start, mut mutator) = (Instant::now(), Mutator::new(number("MEMLENS_FUZZ_SEED").unwrap_or(1)));
    for input in 0..inputs {
        if start.elapsed() > time {
            println!("{}: stopped after {input} inputs", target.name);
            break;
        }
        let bytes = mutator.mutate(&seeds);
        let checked = std::panic::catch_unwind(|| target.check(&bytes));
        assert!(
            checked.is_ok(),
            "{}: input {input} fails: {:?}",
            target.name,
            bytes.escape_ascii().to_string()
        );
    }
}

#[test]
fn every_target_holds_over_mutated_seeds() {
    // One after the other: a test a target would need the list a second time.
    for target in &TARGETS {
        run(target);
    }
}

#[test]
fn cargo_fuzz_has_the_same_targets() {
    let fuzz = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz");
    let manifest = std::fs::read_to_string(format!("{fuzz}/Cargo.toml")).unwrap();
    let listed: Vec<_> =
        manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/")).collect();
    let expected: Vec<_> = TARGETS.iter().map(|target| format!("{}.rs\"", target.name)).collect();
    assert_eq!(listed, expected);
    for target in &TARGETS {
        let source = std::fs::read_to_string(format!("{fuzz}/fuzz_targets/{}.rs", target.name)).unwrap();
        assert!(source.contains(&format!("target(\"{}\")", target.name)));
    }
}

//! A short run of every target, the same every time, but for how far slow machines get.

use std::time::{Duration, Instant};

use memlens_fuzz::{Mutator, TARGETS, Target};

/// Inputs of a target.
const INPUTS: u32 = 20_000;

/// A target stops here, however far it is.
const TIME: Duration = Duration::from_secs(5);

fn run(target: &Target) {
    let seeds = (target.seeds)();
    for seed in &seeds {
        target.check(seed);
    }
    let (start, mut mutator) = (Instant::now(), Mutator::new(1));
    for input in 0..INPUTS {
        if start.elapsed() > TIME {
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

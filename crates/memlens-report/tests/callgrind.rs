//! The callgrind export, held against callgrind's own reader.

mod bfs;

use std::process::Command;

use memlens_report::callgrind;

fn exported() -> String {
    let mut out = Vec::new();
    callgrind::write(&bfs::profile(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// `callgrind_annotate` must print the profile's totals as PROGRAM TOTALS, and each object with its
/// own cost.
#[test]
fn callgrind_annotate_agrees_with_our_totals() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("callgrind.out.1");
    std::fs::write(&file, exported()).unwrap();
    let annotate = |arguments: &[&str]| {
        let mut command = Command::new("callgrind_annotate");
        command.args(["--threshold=100", "--auto=no", "--show-percs=no"]).args(arguments).arg(&file);
        match command.output() {
            Ok(output) => Some(output),
            Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => None,
            Err(problem) => panic!("{problem}"),
        }
    };
    let Some(output) = annotate(&["--inclusive=no"]) else {
        eprintln!("skipped: callgrind_annotate is not installed (package valgrind)");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let profile = bfs::profile();
    let totals = profile.totals();
    let expected = |counts: &memlens_types::Counts| {
        [
            counts.loads,
            counts.stores,
            counts.l1_load_misses,
            counts.l1_store_misses,
            counts.l2_load_misses,
            counts.l2_store_misses,
            counts.llc_load_misses,
            counts.llc_store_misses,
            counts.dtlb_misses,
            counts.stlb_misses,
            counts.dram_reads,
            counts.dram_writes,
        ]
    };
    assert_eq!(numbers(&text, "PROGRAM TOTALS"), expected(&totals), "{text}");
    for object in profile.objects.iter().filter(|object| object.counts.accesses() > 0) {
        let name = format!("{} (#{})", object.name, object.id);
        assert_eq!(numbers(&text, &name), expected(&object.counts), "{name}: {text}");
    }
    // No function of the program has self cost.
    assert_eq!(numbers(&text, "/home/ada/src/bfs.c:bfs_from ["), [0; 12], "{text}");

    // A function's inclusive cost is what its accesses cost.
    let text = String::from_utf8_lossy(&annotate(&["--inclusive=yes"]).unwrap().stdout).into_owned();
    let mut from = memlens_types::Counts::default();
    for code in &profile.code {
        let function = profile.stack_frames(code.stack).next().and_then(|frame| frame.function.as_deref());
        if function == Some("bfs_from") {
            from += &code.counts.get();
        }
    }
    assert_eq!(numbers(&text, "/home/ada/src/bfs.c:bfs_from ["), expected(&from), "{text}");
}

/// The numbers before a text on the line that has it; `.` stands for 0.
fn numbers(text: &str, end: &str) -> Vec<u64> {
    let line = text.lines().find(|line| line.contains(end)).unwrap_or_else(|| panic!("no {end} in {text}"));
    let before = &line[..line.find(end).unwrap()];
    before
        .split_whitespace()
        .map_while(|word| if word == "." { Some(0) } else { word.replace(',', "").parse().ok() })
        .collect()
}

/// Self costs alone: lines that start with a digit and do not follow `calls=`.
#[test]
fn self_costs_add_up_to_the_totals_and_calls_to_the_accesses() {
    let text = exported();
    let (mut loads, mut called_loads, mut calls) = (0u64, 0u64, 0u64);
    let mut after_call = false;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("calls=") {
            calls += rest.split(' ').next().unwrap().parse::<u64>().unwrap();
            after_call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit()) {
            let first: u64 = line.split(' ').nth(1).unwrap().parse().unwrap();
            *(if after_call { &mut called_loads } else { &mut loads }) += first;
            after_call = false;
        }
    }
    let totals = bfs::profile().totals();
    assert_eq!((loads, called_loads, calls), (totals.loads, totals.loads, totals.accesses()));
}

#[test]
fn levels_that_were_not_modelled_are_no_events() {
    let mut profile = bfs::profile();
    profile.machine.l2 = None;
    profile.machine.dtlb = None;
    profile.machine.stlb = None;
    let mut out = Vec::new();
    callgrind::write(&profile, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("\nevents: Dr Dw D1mr D1mw DLmr DLmw DramR DramW\n"), "{text}");
}

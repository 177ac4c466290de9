//! Real programs, sampled. Needs gcc and a kernel that allows perf_event_open; where it does not, the
//! tests say so and pass over.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use memlens_profile::{Object, Profile};
use memlens_sample::{
    EventChoice, ExitOutcome, SampleError, SampleOptions, SampleOutcome, SampleSession, Target, Watch,
};
use memlens_types::ObjectKind;

fn compiled(folder: &Path, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let program = folder.join(name.trim_end_matches(".c"));
    let status = Command::new("gcc")
        .args(["-O2", "-g", "-pthread", "-o"])
        .arg(&program)
        .arg(&source)
        .status()
        .expect("gcc is there");
    assert!(status.success());
    program
}

/// Allocations are not watched: another test does.
fn options() -> SampleOptions {
    SampleOptions {
        choice: EventChoice::Time,
        frequency_hz: Some(2000),
        watch: Watch::Nothing,
        ..SampleOptions::default()
    }
}

/// None: this machine does not allow it, which another test looks at.
fn start(target: &Target) -> Option<SampleSession> {
    start_with(target, &options())
}

fn start_with(target: &Target, options: &SampleOptions) -> Option<SampleSession> {
    match SampleSession::start(target, options) {
        Ok(session) => Some(session),
        Err(error @ (SampleError::Forbidden(_) | SampleError::Unavailable(_))) => {
            eprintln!("passed over: {error}");
            None
        }
        Err(error) => panic!("failed to {error}"),
    }
}

fn program(file: &Path, arguments: &[&str]) -> Target {
    let arguments = [file.to_str().expect("text")].iter().chain(arguments).map(Into::into).collect();
    Target::Program { file: file.to_owned(), arguments }
}

fn valid(session: &mut SampleSession) -> Profile {
    let profile = session.profile();
    profile.validate().expect("consistent");
    let sampling = profile.run.sampling.as_ref().expect("sampled");
    let samples: u64 = profile.objects.iter().map(|object| object.counts.sampled.samples).sum();
    // Every sample is somewhere, once.
    assert_eq!(sampling.samples, samples);
    profile
}

fn cost<'a>(profile: &'a Profile, name: &str) -> (&'a Object, u64) {
    let object = profile
        .objects
        .iter()
        .filter(|object| object.name == name)
        .max_by_key(|object| object.counts.sampled.cost)
        .unwrap_or_else(|| panic!("{name} is not among {:?}", names(profile)));
    (object, object.counts.sampled.cost)
}

fn names(profile: &Profile) -> Vec<(&str, u64)> {
    profile.objects.iter().map(|object| (object.name.as_str(), object.counts.sampled.samples)).collect()
}

#[test]
fn two_arrays_get_the_time_in_proportion_to_their_accesses() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = compiled(folder.path(), "two_arrays.c");
    let Some(mut session) = start(&program(&file, &["4000000"])) else { return };
    let outcome = session.run(None, |_| {}).expect("it ends");
    assert_eq!(outcome, SampleOutcome::Ended(ExitOutcome::Code(7)));
    let profile = valid(&mut session);
    // Of `main`'s loop only: the arrays are also filled, in `shuffle`.
    let mut costs = [0u64; 2];
    let mut samples = 0;
    for cell in &profile.cells {
        let code = &profile.code[cell.code.index()];
        let function = profile.stack_frames(code.stack).next().and_then(|frame| frame.function.as_deref());
        let at =
            ["often", "seldom"].iter().position(|name| profile.objects[cell.object.index()].name == *name);
        if let (Some("main"), Some(at)) = (function, at) {
            let sampled = cell.counts.get().sampled;
            costs[at] += sampled.cost;
            samples += sampled.samples;
        }
    }
    let share = costs[0] as f64 / (costs[0] + costs[1]) as f64;
    assert!(samples > 100, "{samples} samples, {:?}", names(&profile));
    // Three of four loads, and all are alike. Six standard errors of the samples, and 3 % because
    // pages need not lie equally well in the caches.
    let error = 6.0 * (0.75f64 * 0.25 / samples as f64).sqrt() + 0.03;
    assert!((share - 0.75).abs() < error, "{share} of {samples} samples");
    let (often, _) = cost(&profile, "often");
    assert_eq!((often.kind, often.bytes), (ObjectKind::Global, Some(3 * (4 << 20))));
    // The chain overwrites no register that its addresses need but the index: mostly computed.
    let sampled = often.counts.sampled;
    assert!(sampled.by_registers + sampled.by_code == sampled.samples, "{sampled:?}");
}

#[test]
fn threads_are_told_apart_and_their_blocks_named_by_allocation_or_by_pointer() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = compiled(folder.path(), "threads.c");
    let source = include_str!("programs/threads.c");
    let line_of = |text: &str| source.lines().position(|line| line.contains(text)).expect("there") as u32 + 1;
    for (watch, name) in [(Watch::Sampled, "links"), (Watch::Nothing, "heap through here")] {
        let options = SampleOptions { watch, ..options() };
        let Some(mut session) = start_with(&program(&file, &["30000000"]), &options) else { return };
        session.run(None, |_| {}).expect("it ends");
        let profile = valid(&mut session);
        let walkers = profile.threads.iter().filter(|thread| {
            thread.name.as_deref().is_some_and(|name| name.starts_with("walker"))
                && thread.counts.sampled.samples > 0
        });
        assert_eq!(walkers.count(), 3, "{:?}", profile.threads);
        let (object, cost) = cost(&profile, name);
        assert_eq!(object.kind, ObjectKind::Heap);
        let all = profile.run.sampling.as_ref().expect("sampled").cost;
        assert!(cost * 2 > all, "{:?}", names(&profile));
        if watch == Watch::Nothing {
            let declared = object.declared.as_ref().map(|place| place.line);
            assert_eq!((object.access_path.as_deref(), declared), (Some("here"), Some(line_of("*here;"))));
            assert_eq!(object.type_name.as_deref(), Some("struct link"));
            continue;
        }
        // Each walker has a block of 2 MiB: all of them are drawn.
        assert_eq!((object.blocks, object.bytes), (3, Some(3 << 21)));
        let caller = profile.stack_frames(object.site).next().expect("a call stack");
        assert_eq!((caller.function.as_deref(), caller.line), (Some("walk"), Some(line_of("malloc("))));
    }
}

#[test]
fn what_a_pointer_into_an_array_reaches_is_named_after_the_array() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = compiled(folder.path(), "reference.c");
    let Some(mut session) = start(&program(&file, &["20000000"])) else { return };
    session.run(None, |_| {}).expect("it ends");
    let profile = valid(&mut session);
    let (object, cost) = cost(&profile, "heap through position");
    assert_eq!(object.type_name.as_deref(), Some("struct body"));
    let all = profile.run.sampling.as_ref().expect("sampled").cost;
    assert!(cost * 2 > all, "{:?}", names(&profile));
    assert!(names(&profile).iter().all(|(name, _)| !name.contains("there")), "{:?}", names(&profile));
}

#[test]
fn a_running_program_is_watched_twenty_times_and_never_notices() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = compiled(folder.path(), "threads.c");
    let mut child =
        Command::new(&file).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    let mut samples = 0;
    for round in 0..20 {
        let Some(mut session) = start(&Target::Process(child.id())) else { break };
        let outcome = session.run(Some(Duration::from_millis(100)), |_| {}).expect("it is over");
        assert_eq!(outcome, SampleOutcome::Detached, "round {round}");
        let profile = valid(&mut session);
        samples += profile.run.sampling.as_ref().expect("sampled").samples;
        if profile.totals().sampled.samples > 50 {
            cost(&profile, "heap through here");
        }
    }
    drop(child.stdin.take());
    assert_eq!(lines.next().expect("a line").expect("text"), "3");
    assert!(child.wait().expect("it ends").success());
    assert!(samples > 0);
}

#[test]
fn a_process_that_ends_meanwhile_leaves_a_profile() {
    // It begins when it is watched.
    let mut child = Command::new("sh")
        .args(["-c", "read go; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("it starts");
    // While it ends it is a child of ours and becomes a zombie, as its parent's do.
    if let Some(mut session) = start(&Target::Process(child.id())) {
        drop(child.stdin.take());
        let outcome = session.run(Some(Duration::from_secs(60)), |_| {}).expect("it ends");
        assert_eq!(outcome, SampleOutcome::Gone);
        valid(&mut session);
    }
    let pid = child.id();
    // This closes its input, too.
    child.wait().expect("it ended");
    let error = SampleSession::start(&Target::Process(pid), &options()).expect_err("it is gone");
    assert!(matches!(error, SampleError::NoProcess(_)), "{error}");
}

#[test]
fn a_program_that_cannot_be_executed_is_an_error_and_leaves_no_process() {
    let target = program(Path::new("/etc/passwd"), &[]);
    match SampleSession::start(&target, &options()) {
        Err(SampleError::Start(error)) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
        Err(SampleError::Forbidden(_) | SampleError::Unavailable(_)) => {}
        other => panic!("{other:?}"),
    }
}

//! The agent inside of real programs. Needs gcc.

use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use memlens_agent_host::{
    Agent, AgentOptions, BurstHead, BurstOptions, Event, NotPreloadable, Watch, check_preloadable,
};
use memlens_events::agent::{Activity, Extent, SP};

fn compiled(folder: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).with_extension("c");
    let program = folder.join(name);
    // Calls of allocation functions must stay, whatever becomes of their results.
    let fixed = ["-O1", "-g", "-fno-builtin", "-pthread", "-w"];
    let status = Command::new("gcc")
        .args(fixed)
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .status()
        .expect("gcc");
    assert!(status.success());
    program
}

/// What an [`Event`] says, without its stack, with process and thread.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Allocated { size: u64, old: u64, address: u64, gap: u64, stored: bool },
    Freed(u64),
    Moving(u64),
    Kept(u64),
    NewMapping(Extent),
    MappingEnded(Extent),
    MappingMoved(Extent, Extent),
    Tick { ns: u64, in_call: bool },
    Started,
    Forked(u32),
    Burst { allocations_before: u64, allocations: u64 },
}

/// Runs a program with the agent inside; returns what it printed and what was told, by process.
fn run(agent: &mut Agent, program: &Path, arguments: &[&str]) -> (Output, Vec<(u32, Told)>) {
    run_with(agent, program, arguments, &[])
}

/// The same with variables of its environment.
fn run_with(
    agent: &mut Agent,
    program: &Path,
    arguments: &[&str],
    variables: &[(&str, OsString)],
) -> (Output, Vec<(u32, Told)>) {
    let descriptor = agent.descriptor().as_raw_fd();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(variables.iter().cloned())
        .envs(agent.variables(None))
        .stdout(Stdio::piped());
    // SAFETY: one system call, which a forked child may make.
    unsafe {
        command.pre_exec(move || match libc::fcntl(descriptor, libc::F_SETFD, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let child = command.spawn().expect("it starts");
    let waiting = thread::spawn(move || child.wait_with_output().expect("it ends"));
    let mut told = Vec::new();
    loop {
        let is_over = waiting.is_finished();
        agent.drain(|record| {
            let what = match record.event {
                Event::Allocated(allocation, stack) => {
                    // Up to the caller's frame at least, and it is the caller's.
                    assert!(!stack.is_empty() && allocation.caller.ip != 0);
                    Told::Allocated {
                        size: allocation.size_bytes,
                        old: allocation.old_address,
                        address: allocation.address,
                        gap: allocation.gap_bytes,
                        stored: allocation.stored_at != 0,
                    }
                }
                Event::NewMapping(mapping, stack) => {
                    assert!(!stack.is_empty() && mapping.caller.ip != 0);
                    Told::NewMapping(Extent { address: mapping.address, size_bytes: mapping.size_bytes })
                }
                Event::MappingEnded(extent) => Told::MappingEnded(extent),
                Event::MappingMoved { from, to } => Told::MappingMoved(from, to),
                Event::Freed(address) => Told::Freed(address),
                Event::Moving(address) => Told::Moving(address),
                Event::Kept(address) => Told::Kept(address),
                Event::Tick { period_ns: ns, registers, activity, stack, .. } => {
                    assert!(registers[SP] != 0 && !stack.is_empty());
                    Told::Tick { ns, in_call: activity == Activity::Call }
                }
                Event::Started { mappings } => {
                    assert!(mappings.windows(4).any(|bytes| bytes == b"r-xp"), "its own code is mapped");
                    Told::Started
                }
                Event::Forked { parent_pid } => Told::Forked(parent_pid),
                Event::Burst { head: BurstHead { allocations_before, allocations, .. }, words } => {
                    assert!(!words.is_empty());
                    Told::Burst { allocations_before, allocations }
                }
                Event::Block { .. } | Event::Look { .. } | Event::Named { .. } | Event::Mapped { .. } => {
                    return;
                }
            };
            told.push((record.time_ns, record.pid, what));
        });
        if is_over {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    told.sort_by_key(|(time_ns, ..)| *time_ns);
    let told = told.into_iter().map(|(_, pid, what)| (pid, what)).collect();
    (waiting.join().expect("no panic"), told)
}

fn agent(watch: Watch) -> Agent {
    agent_with_stacks(watch, 4096)
}

fn agent_with_stacks(watch: Watch, stack_bytes: u32) -> Agent {
    Agent::new(&AgentOptions { watch, stack_bytes, ..AgentOptions::default() }).expect("unpacked")
}

#[test]
fn anonymous_memory_that_the_program_maps_is_told_with_its_end() {
    const PAGE: u64 = 4096;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "maps", &[]);
    let mut agent = agent(Watch::From(10_000));
    let (output, told) = run(&mut agent, &program, &[]);
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"5\n"[..]));
    let of_mappings = told
        .into_iter()
        .map(|(_, what)| what)
        .filter(|what| matches!(what, Told::NewMapping(_) | Told::MappingEnded(_) | Told::MappingMoved(..)));
    let of_mappings: Vec<Told> = of_mappings.collect();
    let [
        Told::NewMapping(private),
        Told::NewMapping(shared),
        Told::MappingEnded(ended),
        Told::MappingMoved(from, to),
    ] = of_mappings[..]
    else {
        panic!("{of_mappings:?}")
    };
    assert_eq!((private.size_bytes, shared.size_bytes), (64 * PAGE, 64 * PAGE));
    assert_eq!(ended, Extent { address: private.address, size_bytes: 16 * PAGE });
    assert_eq!(from, Extent { address: private.address + 16 * PAGE, size_bytes: 48 * PAGE });
    assert_eq!(to.size_bytes, 96 * PAGE);
}

#[test]
fn every_entry_point_is_seen_and_every_block_ends() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "entry_points", &[]);
    let mut agent = agent(Watch::From(10_000));
    let (output, told) = run(&mut agent, &program, &[]);
    assert_eq!((output.status.code(), &*output.stdout), (Some(5), &b"done\n"[..]));
    let mut live = std::collections::BTreeMap::new();
    let (mut sizes, mut moved, mut kept, mut moving) = (Vec::new(), Vec::new(), 0, None);
    for (_, what) in &told {
        match *what {
            Told::Allocated { size, old, address, gap, stored } => {
                assert_eq!((gap, stored), (0, size == 10_005), "{size}");
                match old {
                    0 => sizes.push(size),
                    old => moved.push((moving.take() == Some(old), size)),
                }
                assert_eq!(live.insert(address, size), None, "{address:#x} is live already");
            }
            Told::Freed(address) => assert!(live.remove(&address).is_some(), "{address:#x} is not live"),
            Told::Moving(address) => {
                assert!(live.contains_key(&address));
                (moving, _) = (Some(address), live.remove(&address));
            }
            Told::Kept(address) => {
                assert_eq!(moving.take(), Some(address));
                live.insert(address, 0);
                kept += 1;
            }
            Told::Tick { .. } | Told::Burst { .. } => panic!("nobody asked for ticks"),
            Told::Started => {}
            Told::Forked(_) => panic!("it does not fork"),
            Told::NewMapping(_) | Told::MappingEnded(_) | Told::MappingMoved(..) => panic!("it maps nothing"),
        }
    }
    // In the order of the program; libc's own block for the folder or the output is smaller.
    assert_eq!(sizes, [10_001, 10_010, 10_003, 10_048, 10_005, 10_006, 10_007, 10_008, 13_332]);
    assert_eq!((moved, kept), (vec![(true, 50_001)], 1));
    assert_eq!(live, Default::default(), "all were freed");
    assert_eq!((agent.processes(), agent.own_allocators()), (1, 0));
    assert_eq!(agent.losses(), Default::default());
}

#[test]
fn a_pointer_to_malloc_is_no_allocator() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "pointer_to_malloc", &["-no-pie", "-fno-pie"]);
    let mut agent = agent(Watch::All);
    let (output, told) = run(&mut agent, &program, &[]);
    assert!(output.status.success());
    assert!(told.iter().any(|(_, told)| matches!(told, Told::Allocated { size: 10_001, .. })), "{told:?}");
    assert_eq!(agent.own_allocators(), 0);
}

#[test]
fn the_program_sees_the_environment_and_the_descriptors_that_it_would_see() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "entry_points", &[]);
    // In the order in which `Command` has what it is told, for it is told something below.
    let native = Command::new(&program).arg("environment").envs(std::env::vars_os()).output();
    let native = native.expect("it starts");
    let (output, _) = run(&mut agent(Watch::Sampled), &program, &["environment"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&native.stdout));
}

#[test]
fn programs_that_are_executed_get_the_agent_and_see_nothing_of_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "executes", &[]);
    let path = std::env::join_paths([folder.path(), Path::new("/bin")]).expect("no colon");
    let native = Command::new(&program).env("PATH", &path).output().expect("it starts");
    let native_text = String::from_utf8_lossy(&native.stdout);
    assert!(!native_text.contains("wrong") && native_text.lines().count() == 11, "{native_text}");
    let mut agent = agent(Watch::From(20_000));
    let (output, told) = run_with(&mut agent, &program, &[], &[("PATH", path)]);
    assert_eq!((String::from_utf8_lossy(&output.stdout), output.status), (native_text, native.status));
    // Each has said so, and each block is its own process's, or its process's next program's.
    let started = told.iter().filter(|(_, what)| *what == Told::Started).count();
    let blocks =
        told.iter().filter(|(_, what)| matches!(what, Told::Allocated { size, .. } if *size < 20_100));
    assert_eq!((started, blocks.count(), agent.programs()), (11, 11, 11));
    assert_eq!((agent.programs_without_agent(), agent.losses()), (0, Default::default()));
}

#[test]
fn a_program_that_cannot_load_the_agent_is_executed_as_it_is() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "executes", &["-static"]);
    let script = folder.path().join("script");
    std::fs::write(&script, format!("#!/bin/sh\nexec '{}'\n", program.display())).expect("written");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("changed");
    let native = Command::new(&script).output().expect("it starts");
    let mut agent = agent(Watch::From(20_000));
    let (output, _) = run(&mut agent, &script, &[]);
    assert_eq!((&output.stdout, output.status), (&native.stdout, native.status));
    assert_eq!((agent.programs(), agent.programs_without_agent()), (1, 1));
}

#[test]
fn weights_of_drawn_blocks_add_up_to_what_was_allocated() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "blocks", &[]);
    for (blocks, size) in [(400_000u64, 64u64), (20_000, 4000), (500, 60_000)] {
        // So little of the stack that a ring holds all that is drawn, however late this process gets to read it.
        let mut agent = agent_with_stacks(Watch::Sampled, 256);
        let (_, told) = run(&mut agent, &program, &[&blocks.to_string(), &size.to_string()]);
        let (mut sum, mut variance) = (0.0, 0.0);
        for (_, what) in &told {
            if let Told::Allocated { size: found, gap, .. } = *what
                && found == size
            {
                assert!(gap >= 8);
                let p = 1.0 - (-(size as f64) / gap as f64).exp();
                sum += 1.0 / p;
                // Of the Horvitz-Thompson estimate, estimated: Σ (1 - p) / p².
                variance += (1.0 - p) / (p * p);
            }
        }
        assert_eq!(agent.losses().allocations, 0);
        // Seven standard errors. Of the largest blocks 13 of 500 are not drawn, on average, by gaps of 16 KiB, which are 39 or more with
        // a probability of 3e-9 (Poisson); of the others there are so many that it is far less.
        assert!(
            (sum - blocks as f64).abs() <= 7.0 * variance.sqrt() + 1.0,
            "{size}: {sum} ± {}",
            variance.sqrt()
        );
    }
}

#[test]
fn allocations_in_bursts_and_between_them_are_all() {
    const BLOCKS: u64 = 1_000_000;
    const WORDS: u32 = 4096;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "blocks", &[]);
    // With all of the time one burst follows the other at once.
    for (watch, share) in [(Watch::From(20_000), 0.3), (Watch::Sampled, 0.3), (Watch::Sampled, 1.0)] {
        let bursts = Some(BurstOptions { words: WORDS, share, often: 0, filter: false });
        let tick = Some(Duration::from_millis(1));
        let mut agent =
            Agent::new(&AgentOptions { watch, tick, stack_bytes: 256, bursts }).expect("unpacked");
        let (_, told) = run(&mut agent, &program, &[&BLOCKS.to_string(), "64"]);
        let (mut between, mut inside, mut bursts) = (0, 0, 0);
        for (_, what) in &told {
            if let Told::Burst { allocations_before, allocations } = *what {
                // Counted are no more than four times its words behind it.
                assert!(allocations_before <= BLOCKS && allocations < 5 * u64::from(WORDS), "{what:?}");
                (between, inside, bursts) = (between + allocations_before, inside + allocations, bursts + 1);
            }
        }
        let all = between + inside;
        // Up to the last burst; the C library allocates, too.
        assert!((BLOCKS / 2..BLOCKS + 1000).contains(&all), "{between} and {inside} in {bursts} bursts");
        // A block takes less than 200 accesses, with half of a free.
        let least = bursts * u64::from(WORDS) / 200;
        assert!(
            bursts >= 5 && inside > least && (between > least || share == 1.0),
            "{between} and {inside} in {bursts} bursts"
        );
    }
}

#[test]
fn a_child_reports_as_itself_and_its_parents_blocks_live_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "blocks", &[]);
    let mut agent = agent(Watch::From(20_000));
    let (output, told) = run(&mut agent, &program, &["fork"]);
    assert_eq!(&*output.stdout, b"1\n");
    let sizes = |pid| -> Vec<u64> {
        let of = told.iter().filter(|(of, _)| *of == pid);
        of.filter_map(|(_, what)| if let Told::Allocated { size, .. } = what { Some(*size) } else { None })
            .collect()
    };
    let parent = told.first().expect("something").0;
    let child = told.iter().map(|(pid, _)| *pid).find(|&pid| pid != parent).expect("two processes");
    assert_eq!((sizes(parent), sizes(child)), (vec![20_000, 40_000], vec![30_000]));
    let freed: Vec<u32> =
        told.iter().filter(|(_, what)| matches!(what, Told::Freed(_))).map(|(pid, _)| *pid).collect();
    assert_eq!(freed, [child]);
    // Before anything else of the child.
    let first = told.iter().find(|(pid, _)| *pid == child).expect("it has records");
    assert_eq!(first.1, Told::Forked(parent));
    assert_eq!(agent.processes(), 2);
}

#[test]
fn a_thousand_threads_come_and_go_under_ticks() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "blocks", &[]);
    let tick = Some(Duration::from_millis(4));
    let mut agent =
        Agent::new(&AgentOptions { watch: Watch::From(30_000), tick, stack_bytes: 1024, bursts: None })
            .expect("unpacked");
    let (output, told) = run(&mut agent, &program, &["threads", "1000"]);
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"done\n"[..]));
    let blocks = told.iter().filter(|(_, what)| matches!(what, Told::Allocated { size: 30_000, .. })).count();
    assert_eq!(blocks, 1001);
    let ticks: Vec<u64> = told
        .iter()
        .filter_map(|(_, what)| if let Told::Tick { ns, .. } = what { Some(*ns) } else { None })
        .collect();
    // The first thread alone computes for tens of milliseconds at least.
    assert!(ticks.len() > 5 && ticks.iter().all(|&ns| ns > 0), "{} ticks", ticks.len());
    assert_eq!(agent.losses(), Default::default());
}

#[test]
fn ticks_in_system_calls_are_told_from_others() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "spends", &[]);
    for (where_, share) in [("calls", 0.8..1.01), ("loops", 0.0..0.2)] {
        let tick = Some(Duration::from_millis(4));
        let mut agent =
            Agent::new(&AgentOptions { watch: Watch::Nothing, tick, stack_bytes: 256, bursts: None })
                .expect("unpacked");
        let (output, told) = run(&mut agent, &program, &[where_]);
        assert_eq!(output.status.code(), Some(0));
        let (mut all, mut in_calls) = (0, 0);
        for (_, what) in &told {
            if let Told::Tick { ns, in_call } = *what {
                (all, in_calls) = (all + ns, in_calls + if in_call { ns } else { 0 });
            }
        }
        assert!(all > 100_000_000, "{all} of 300,000,000 ns");
        assert!(share.contains(&(in_calls as f64 / all as f64)), "{where_}: {in_calls} of {all} ns");
    }
}

#[test]
fn calls_that_only_a_tick_has_ended_go_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "calls", &[]);
    // None comes by itself.
    let tick = Some(Duration::from_secs(1000));
    let mut agent = Agent::new(&AgentOptions { watch: Watch::Nothing, tick, stack_bytes: 256, bursts: None })
        .expect("unpacked");
    let (output, told) = run(&mut agent, &program, &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
    let calls = if cfg!(target_arch = "x86_64") { 9 } else { 8 };
    assert_eq!(told.iter().filter(|(_, told)| matches!(told, Told::Tick { .. })).count(), 2 * calls);
}

#[test]
fn when_nobody_reads_any_more_the_program_goes_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "blocks", &[]);
    let agent = agent(Watch::All);
    // 200,000 blocks with some 200 bytes of record each are more than a ring holds.
    let mut command = Command::new(&program);
    let descriptor = agent.descriptor().as_raw_fd();
    command.args(["200000", "100"]).envs(agent.variables(None));
    // SAFETY: as above.
    unsafe {
        command.pre_exec(move || match libc::fcntl(descriptor, libc::F_SETFD, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    assert_eq!(command.status().expect("it ends").code(), Some(0));
    assert!(agent.losses().allocations > 0, "what found no room is counted");
}

#[test]
fn programs_that_cannot_be_preloaded_are_known() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compiled(folder.path(), "blocks", &["-static"]);
    assert_eq!(check_preloadable(&program), Err(NotPreloadable::Static));
    let program = compiled(folder.path(), "entry_points", &["-Wl,--no-as-needed", "-fsanitize=address"]);
    assert!(matches!(check_preloadable(&program), Err(NotPreloadable::Sanitizer(_))));
}

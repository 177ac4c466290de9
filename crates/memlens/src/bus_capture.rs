//! `memlens bus capture`: the exact collector's stream through the modelled machine.

use std::time::{SystemTime, UNIX_EPOCH};

use memlens_backing::FrameReader;
use memlens_bus::system::{Card, FrameCounts, FrameSource, RealFrame, System, SystemCounts, SystemOptions};
use memlens_exact::{Program, SessionError};
use memlens_sim::MachineDescription;

use crate::bus::{self, CaptureArgs, Frames};
use crate::captured_process::{Watched, watch};
use crate::failure::{Failure, FailureKind};
use crate::shell;
use crate::streams::say;

/// Runs a program and writes what the card sees. The exit code is the program's.
pub fn capture(args: CaptureArgs) -> Result<u8, Failure> {
    let wanted = &args.options;
    let machine = wanted.machine.description()?;
    check(&machine)?;
    if wanted.memory < u32::from(wanted.nodes) {
        let message =
            format!("{} GiB are less than one for each of {} memory nodes", wanted.memory, wanted.nodes);
        return Err(Failure::new(FailureKind::Usage, message));
    }
    if wanted.frames == Frames::Real && wanted.nodes > 1 {
        let message = "--nodes deals modelled memory to nodes; it does not go with --frames real";
        return Err(Failure::new(FailureKind::Usage, message));
    }
    Program::find(&args.command).map_err(|error| Failure::from(SessionError::from(error)))?;
    let frames = match wanted.frames {
        Frames::Modelled => None,
        Frames::Real => Some(KernelFrames::new()?),
    };
    let folder = bus::create(&args.out, args.force)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let options = SystemOptions {
        memory_bytes: u64::from(wanted.memory) << 30,
        real_bytes: frames.as_ref().map_or(0, |frames| frames.memory_bytes),
        nodes: wanted.nodes,
        thp: wanted.thp.into(),
        page_level: wanted.hugetlb.map_or(1, |size| size as u8),
        ptat: wanted.ptat,
        command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        capture: format!("{:x}-{:x}", now.as_nanos(), std::process::id()),
        ..SystemOptions::new(machine.clone())
    };
    let mut system = System::new(options, |header| Card::create(&folder, header))
        .map_err(|error| bus::failure(&args.out, &error))?;
    if let Some(frames) = frames {
        system.use_real_frames(Box::new(frames));
    }
    let mut watched = Watched::new(&args.command, args.out.join(".processes"))?;
    watched.process.merge_sites = !wanted.no_merge;
    watched.process.alloc_functions = wanted.alloc_fn.clone();
    watched.process.collect_at_start = wanted.start_on.is_empty();
    watched.process.start_on = wanted.start_on.clone();
    watched.process.stop_on = wanted.stop_on.clone();
    (watched.min_block, watched.quiet) = (wanted.min_block, args.quiet);
    let (outcome, system) = watch(&watched, &machine, system);
    let counts = system.map(System::finish).transpose().map_err(|error| bus::failure(&args.out, &error))?;
    let exit_code = outcome?;
    if let Some(counts) = counts.filter(|_| !args.quiet) {
        tell(&counts, &args);
    }
    Ok(exit_code)
}

/// Says what was captured.
fn tell(counts: &SystemCounts, args: &CaptureArgs) {
    let faults: u64 = counts.faults.iter().sum();
    let (place, word) = (args.out.display(), shell::path(&args.out));
    say(&format!(
        "{} walks, {faults} page faults, {} copies on write; the trace is in {place}; see: memlens bus analyze {word}",
        counts.walks, counts.copies
    ));
    if args.options.frames == Frames::Real {
        let FrameCounts { real: [small, large, largest], unknown, taken } = counts.frames;
        say(&format!(
            "pages in this machine's own frames: {small} of 4 KiB, {large} of 2 MiB, {largest} of 1 GiB; in modelled \
             ones: {unknown} that were not in memory when they were looked up, {taken} whose frame another page still had"
        ));
    }
    if counts.out_of_memory > 0 {
        say(&format!(
            "warning: {} accesses found no frame: the modelled memory is full; try a larger --memory",
            counts.out_of_memory
        ));
    }
}

/// Frames of this machine's running processes.
struct KernelFrames {
    reader: FrameReader,
    /// Where its physical memory ends, in whole GiB.
    memory_bytes: u64,
}

impl KernelFrames {
    fn new() -> Result<Self, Failure> {
        let cannot = |kind, why: &dyn std::fmt::Display| {
            Failure::new(kind, format!("failed to {why}; without --frames real frames are modelled"))
        };
        let reader = FrameReader::new().map_err(|error| cannot(FailureKind::Permission, &error))?;
        match memlens_backing::memory_bytes() {
            Some(bytes) => Ok(Self { reader, memory_bytes: bytes.next_multiple_of(1 << 30) }),
            None => Err(cannot(FailureKind::Unavailable, &"learn from /proc/zoneinfo where memory ends")),
        }
    }
}

impl FrameSource for KernelFrames {
    fn frame(&mut self, pid: u32, page: u64) -> Option<RealFrame> {
        let frame = self.reader.frame(pid, page)?;
        Some(RealFrame { number: frame.number, is_large: frame.is_huge, is_file: frame.is_file })
    }

    fn forget(&mut self, pid: u32) {
        self.reader.forget(pid);
    }
}

/// Fails if a machine has no description of translation.
pub fn check(machine: &MachineDescription) -> Result<(), Failure> {
    let lacks = match (&machine.dtlb, machine.walker.enabled) {
        (None, _) => "TLBs",
        (_, false) => "a page walker",
        _ => return Ok(()),
    };
    let message = format!("machine {} has no description of {lacks}; choose another --machine", machine.name);
    Err(Failure::new(FailureKind::Usage, message))
}

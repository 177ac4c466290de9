//! `memlens calibrate`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use memlens_calibrate::skid::{self, LoopSkid};
use memlens_calibrate::{Calibration, Geometry, Latency, LatencyTable, LineRates, default_path};
use memlens_sample::EventChoice;
use memlens_sim::{MachineDescription, TlbDescription};

use crate::failure::{Failure, FailureKind};
use crate::sample::Event;
use crate::streams::{self, say};

/// A spread above which a latency that a core does not share is not believed.
pub const PRIVATE_SPREAD: f64 = 0.2;
/// The same for what is shared with other cores.
pub const SHARED_SPREAD: f64 = 0.6;
/// The part of memory's latency that a last level takes which is there: 0.1 to 0.35 on present machines.
const MOST_OF_MEMORYS: f64 = 0.4;
/// Instructions of a source line in the table: a round figure of optimised code.
const INSTRUCTIONS_A_LINE: usize = 4;

/// Arguments of `memlens calibrate`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  memlens calibrate                        measure, show, and write it for later runs
  memlens calibrate --out quiet.toml       write it elsewhere
  memlens run --calibration quiet.toml -- ls")]
pub struct CalibrateArgs {
    /// The file to write instead of memlens/calibration.toml in the configuration folder; one that is there
    /// is replaced
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Write it even if the machine is too busy for the numbers to be believed
    #[arg(long)]
    pub force: bool,

    /// The event whose samples are looked at
    #[arg(long, value_name = "EVENT", default_value = "time")]
    pub event: Event,
}

/// Measures, shows and writes.
pub fn calibrate(args: &CalibrateArgs) -> Result<u8, Failure> {
    let path = match &args.out {
        Some(path) => path.clone(),
        None => default_path().ok_or_else(|| {
            Failure::new(FailureKind::CannotCreate, "there is no home for the file; name one with --out FILE")
        })?,
    };
    let machine = MachineDescription::named("host").map_err(|error| {
        Failure::new(FailureKind::Internal, format!("failed to see this machine: {error}"))
    })?;
    let geometry = geometry(&machine);
    let measured = LatencyTable::measure(&geometry).and_then(|it| Ok((it, LineRates::measure(&geometry)?)));
    let (latency, lines) = measured
        .map_err(|error| Failure::new(FailureKind::Io, format!("failed to measure memory: {error}")))?;
    let (event, skid) = match skid::measure(EventChoice::from(args.event)) {
        Ok((event, skid)) => (Some(event.name), skid),
        Err(error) => {
            say(&format!("where samples land is not measured: failed to {error}"));
            (None, Vec::new())
        }
    };
    let calibration = Calibration::now(latency, Some(lines), event, skid);
    let text = table(&calibration, &machine);
    streams::write_result(|out| out.write_all(text.as_bytes()))?;
    if let Some(noise) = noise(&calibration.latency)
        && !args.force
    {
        let message = format!(
            "this machine is too busy to be measured: {noise}; nothing was written. Try again when it is \
             quiet, or write it all the same with --force"
        );
        return Err(Failure::new(FailureKind::Engine, message));
    }
    calibration
        .write(&path)
        .map_err(|error| Failure::new(FailureKind::CannotCreate, format!("failed to {error}")))?;
    say(&format!("written to {}", path.display()));
    Ok(0)
}

/// A calibration that the user names.
pub fn named(file: &Path) -> Result<Calibration, Failure> {
    Calibration::read(file).map_err(|error| {
        let kind = if file.exists() { FailureKind::BadData } else { FailureKind::NoInput };
        Failure::new(
            kind,
            format!("the calibration that --calibration or MEMLENS_CALIBRATION names: failed to {error}"),
        )
    })
}

/// The user's own, if it is of this processor. One that cannot be used is passed over with a message.
pub fn own() -> Option<Calibration> {
    let path = default_path().filter(|path| path.exists())?;
    match Calibration::read(&path) {
        Ok(calibration) if calibration.is_of_this_processor() => Some(calibration),
        Ok(calibration) => {
            let other = &calibration.processor;
            say(&format!("{} is of another processor ({other}) and is not used", path.display()));
            None
        }
        Err(error) => {
            say(&format!("failed to {error}; it is not used: measure again with `memlens calibrate`"));
            None
        }
    }
}

/// Puts measured latencies into a machine's description.
pub fn apply(calibration: &Calibration, is_brief: bool, machine: &mut MachineDescription) {
    let cycles = |latency: Latency| latency.cycles.round() as u32;
    let latency = &calibration.latency;
    machine.l1d.latency_cycles = cycles(latency.l1);
    if let (Some(l2), Some(measured)) = (&mut machine.l2, latency.l2) {
        l2.latency_cycles = cycles(measured);
    }
    machine.llc.latency_cycles = cycles(latency.llc);
    machine.dram_latency_cycles = cycles(latency.dram);
    if let Some(remote) = latency.remote() {
        machine.remote_latency_cycles = cycles(remote);
    }
    // 0: not known, so that of the last level counts, which was measured.
    machine.transfer_latency_cycles = latency.transfer.map_or(0, cycles);
    // Less than a cycle is what the noise left of a difference: what the description says is nearer.
    if let Some(stlb) = latency.stlb.filter(|stlb| stlb.cycles >= 1.0) {
        machine.stlb_latency_cycles = cycles(stlb);
    }
    if let Some(walk) = latency.walk.filter(|walk| walk.cycles >= 1.0) {
        machine.walk_access_cycles = cycles(walk);
    }
    machine.walker.tiers = walk_tiers(latency);
    if let (Some(core), Some(lines)) = (&mut machine.core, &calibration.lines) {
        let or = |measured: Option<Latency>, known: u32| measured.map_or(known, cycles);
        core.l1_line_cycles = or(lines.from_l2, core.l1_line_cycles);
        core.llc_line_cycles = cycles(lines.from_llc);
        core.line_cycles = cycles(lines.from_memory);
        core.alone_line_cycles = or(lines.from_memory_alone, core.alone_line_cycles);
        core.set_load_cycles = or(lines.set_loads, core.set_load_cycles);
        core.set_store_cycles = or(lines.set_stores, core.set_store_cycles);
        core.set_modify_cycles = or(lines.set_modifies, core.set_modify_cycles);
    }
    machine.measured_latencies(is_brief);
}

/// What walks take by how many there were since the last one of the page: as measured for the nearest number of pages, and no less than nearer
/// ones.
fn walk_tiers(latency: &LatencyTable) -> Vec<[u32; 2]> {
    let mut tiers: Vec<[u32; 2]> = Vec::new();
    let mut before = 0;
    for walk in latency.walks.iter().filter(|walk| walk.cycles.cycles >= 1.0) {
        let nearest = (before as f64 * walk.pages as f64).sqrt() as u32;
        let least = tiers.last().map_or(0, |&[_, cycles]| cycles);
        tiers.push([nearest, (walk.cycles.cycles.round() as u32).max(least)]);
        before = walk.pages;
    }
    tiers
}

/// The last level as it is had where others have most of it, as on virtual machines: so many of its sets as serve what was measured.
pub fn take_had_llc(calibration: &Calibration, machine: &mut MachineDescription) {
    match calibration.latency.llc_reach_bytes {
        // Not measured.
        0 => machine.assume_llc_share(),
        reach_bytes if reach_bytes <= machine.told_llc_bytes() / 2 => machine.share_llc(reach_bytes),
        _ => {}
    }
}

/// What of a machine's description is measured.
pub fn geometry(machine: &MachineDescription) -> Geometry {
    let entries = |tlb: &Option<TlbDescription>, otherwise: u32| {
        tlb.as_ref().and_then(|tlb| tlb.size_4k).map_or(otherwise, |size| size.entries)
    };
    Geometry {
        l1_bytes: machine.l1d.bytes,
        l1_set_bytes: machine.l1d.bytes / u64::from(machine.l1d.ways.max(1)),
        l2_bytes: machine.l2.as_ref().map_or(0, |l2| l2.bytes),
        llc_bytes: machine.told_llc_bytes(),
        dtlb_entries: entries(&machine.dtlb, 64),
        stlb_entries: entries(&machine.stlb, 1536),
        available_bytes: available_bytes().unwrap_or(1 << 30),
    }
}

/// What the kernel thinks can be had without swapping (proc_meminfo(5)), and the group of this process may have besides.
fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let bytes = line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? << 10;
    Some(group_bytes().map_or(bytes, |group| bytes.min(group)))
}

/// What is left of the memory of a control group and those around it (the kernel's Documentation/admin-guide/cgroup-v2.rst), of which what
/// caches files can be had; `None`: there is no limit.
fn group_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let root = Path::new("/sys/fs/cgroup");
    let left = |folder: &Path| {
        let text = |file| fs::read_to_string(folder.join(file)).ok();
        let number = |file| text(file)?.trim().parse::<u64>().ok();
        let statistics = text("memory.stat").unwrap_or_default();
        let of_files = statistics.lines().filter_map(|line| {
            let (name, bytes) = line.split_once(' ')?;
            matches!(name, "active_file" | "inactive_file").then(|| bytes.parse::<u64>().ok())?
        });
        let used = number("memory.current")?.saturating_sub(of_files.sum());
        Some(number("memory.max")?.saturating_sub(used))
    };
    let own = root.join(group.trim_start_matches('/'));
    own.ancestors().take_while(|folder| folder.starts_with(root)).filter_map(left).min()
}

/// What varied too much, if something did.
pub fn noise(latency: &LatencyTable) -> Option<String> {
    let shared = ["last level", "memory", "another node", "another core"];
    // A difference of nearly nothing varies by any factor, and what a walk takes by where its entries lie, on a quiet machine too.
    let varies = ["second-level TLB", "page walk"];
    let mut all = latency.levels();
    all.push(("core cycle", Latency { cycles: 1.0, spread: latency.cycle_spread }));
    let too_much = all.into_iter().filter(|(name, latency)| {
        let most = if shared.contains(name) { SHARED_SPREAD } else { PRIVATE_SPREAD };
        latency.spread > most && !varies.contains(name)
    });
    let mut texts: Vec<String> = too_much
        .map(|(name, latency)| {
            let article = if name.starts_with("another") { "" } else { "the " };
            format!("{article}{name} varies by {:.0} %", latency.spread * 100.0)
        })
        .collect();
    let (llc, dram) = (latency.llc.cycles, latency.dram.cycles);
    if llc > MOST_OF_MEMORYS * dram {
        let percent = 100.0 * llc / dram;
        texts.push(format!(
            "the last level takes {percent:.0} % of what memory does ({llc:.0} of {dram:.0} cycles), so others have most of it"
        ));
    }
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// What was measured, for people.
fn table(calibration: &Calibration, machine: &MachineDescription) -> String {
    let latency = &calibration.latency;
    let mut text = format!(
        "{}\none cycle is {:.3} ns\n\nserved by            cycles      ns  spread\n",
        calibration.processor, latency.cycle_ns
    );
    text += &measured_rows(&latency.levels(), latency.cycle_ns);
    if let Some((near, far)) = latency.nearest_and_farthest_node() {
        let name = |which: &str, node: u32| format!("{which}, node {node}");
        let (nearest, farthest) = (name("nearest", near.node), name("farthest", far.node));
        text += &measured_rows(&[(&nearest, near.cycles), (&farthest, far.cycles)], latency.cycle_ns);
    }
    let walks: Vec<(String, Latency)> = latency
        .walks
        .iter()
        .map(|walk| (format!("page walk, {}", bytes(walk.pages << 12)), walk.cycles))
        .collect();
    let walks: Vec<(&str, Latency)> = walks.iter().map(|(name, cycles)| (name.as_str(), *cycles)).collect();
    text += &measured_rows(walks.get(1..).unwrap_or_default(), latency.cycle_ns);
    if latency.walk.is_none() {
        text += "page walk: not measured, the kernel gives no 2 MB pages (transparent_hugepage/enabled)\n";
    }
    if (1..=machine.told_llc_bytes() / 2).contains(&latency.llc_reach_bytes) {
        text += &format!(
            "The last level serves up to {} here, and is modelled so; the system tells of {}, which others use too:\n--cache llc={},{},{} models all of it.\n",
            bytes(latency.llc_reach_bytes),
            bytes(machine.told_llc_bytes()),
            machine.told_llc_bytes(),
            machine.llc.ways,
            machine.line_bytes,
        );
    }
    if let Some(lines) = &calibration.lines {
        text += "\nfrom one line to the next, any number under way\n";
        text += &measured_rows(&lines.named(), latency.cycle_ns);
    }
    text += "\nwalked through   4 KB pages   2 MB pages   (cycles a step)\n";
    for point in &latency.curve {
        let huge = point.huge_pages.map_or("–".to_owned(), |huge| format!("{:.1}", huge.cycles));
        text += &format!("{:>14}{:>13.1}{huge:>13}\n", bytes(point.bytes), point.small_pages.cycles);
    }
    match &calibration.event {
        None => text += "\nsamples: none could be taken\n",
        Some(event) => {
            text += &format!("\nsamples of {event} land, instructions after the one that waits\n");
            text += "what waits        0      1      2   more   elsewhere   next line\n";
            calibration.skid.iter().for_each(|skid| text += &skid_row(skid));
            text += &format!("(next line: if a line has {INSTRUCTIONS_A_LINE} instructions)\n");
        }
    }
    text
}

/// A line for each: cycles, the same in ns, and how far they spread.
fn measured_rows(all: &[(&str, Latency)], cycle_ns: f64) -> String {
    let row = |(name, measured): &(&str, Latency)| {
        let (cycles, percent) = (measured.cycles, measured.spread * 100.0);
        format!("{name:<18}{cycles:>9.1}{:>8.1}{percent:>6.0} %\n", cycles * cycle_ns)
    };
    all.iter().map(row).collect()
}

fn skid_row(skid: &LoopSkid) -> String {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let first: f64 = (0..3).map(|at| skid.share(at)).sum();
    let lines = skid.by_lines(INSTRUCTIONS_A_LINE);
    format!(
        "{:<9}{:>10}{:>7}{:>7}{:>7}{:>12}{:>12}\n",
        skid.name,
        percent(skid.share(0)),
        percent(skid.share(1)),
        percent(skid.share(2)),
        percent((1.0 - first).max(0.0)),
        skid.elsewhere,
        percent(lines.get(1).copied().unwrap_or(0.0)),
    )
}

fn bytes(count: u64) -> String {
    match count {
        count if count >= 1 << 20 => format!("{} MB", count >> 20),
        count => format!("{} KB", count >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_calibrate::{NodeLatency, WalkPoint};

    fn latency() -> LatencyTable {
        let of = |cycles, spread| Latency { cycles, spread };
        LatencyTable {
            cycle_ns: 0.5,
            cycle_spread: 0.01,
            l1: of(4.0, 0.01),
            l2: Some(of(12.0, 0.02)),
            llc: of(50.0, 0.3),
            dram: of(400.4, 0.1),
            stlb: Some(of(0.1, 9.0)),
            walk: Some(of(99.6, 0.2)),
            transfer: Some(of(120.4, 0.5)),
            walks: [(10_000, 99.6), (40_000, 98.0), (160_000, 299.6)]
                .map(|(pages, cycles)| WalkPoint { pages, cycles: of(cycles, 0.2) })
                .into(),
            nodes: [(1, 500.0), (2, 700.4)]
                .map(|(node, cycles)| NodeLatency { node, cycles: of(cycles, 0.1) })
                .into(),
            ..LatencyTable::default()
        }
    }

    fn lines() -> LineRates {
        let of = |cycles| Latency { cycles, spread: 0.01 };
        LineRates {
            from_l2: Some(of(2.2)),
            from_llc: of(3.6),
            from_memory: of(8.8),
            from_memory_alone: Some(of(17.2)),
            set_loads: Some(of(10.6)),
            set_stores: Some(of(28.1)),
            set_modifies: Some(of(44.7)),
        }
    }

    #[test]
    fn measured_latencies_take_the_place_of_assumed_ones() {
        let mut machine = MachineDescription::named("host").expect("this machine");
        let assumed = machine.stlb_latency_cycles;
        apply(&Calibration::now(latency(), Some(lines()), None, Vec::new()), false, &mut machine);
        assert_eq!((machine.l1d.latency_cycles, machine.llc.latency_cycles), (4, 50));
        assert_eq!((machine.dram_latency_cycles, machine.walk_access_cycles), (400, 100));
        assert_eq!(machine.remote_latency_cycles, 600, "of both");
        // Halfway between the numbers of pages, by factors; never less than nearer ones.
        assert_eq!(machine.walker.tiers, [[0, 100], [20_000, 100], [80_000, 300]]);
        assert_eq!(machine.validate(), Ok(()));
        assert_eq!(machine.transfer_latency_cycles, 120);
        let core = machine.core.as_ref().expect("known or assumed");
        assert_eq!((core.l1_line_cycles, core.llc_line_cycles), (2, 4));
        assert_eq!((core.line_cycles, core.alone_line_cycles), (9, 17));
        assert_eq!((core.set_load_cycles, core.set_store_cycles, core.set_modify_cycles), (11, 28, 45));
        // What could not be measured stays as it was.
        assert_eq!(machine.stlb_latency_cycles, assumed);
        assert!(!machine.notes.iter().any(|note| note.contains("assumed, not measured")));
    }

    #[test]
    fn of_a_last_level_that_others_use_what_is_had_is_modelled() {
        let described = MachineDescription::named("amd-zen4").expect("a machine");
        let with_reach = |llc_reach_bytes| {
            let mut machine = described.clone();
            machine.llc.ways = 12;
            let latency = LatencyTable { llc_reach_bytes, ..latency() };
            take_had_llc(&Calibration::now(latency, None, None, Vec::new()), &mut machine);
            machine.llc.bytes
        };
        // Of 10,922 sets of 12 lines, 677 · 16.
        assert_eq!(with_reach(8 << 20), 10_832 * 12 * 64);
        assert_eq!(with_reach(32 << 20), described.llc.bytes);
        let mut assumed = described.clone();
        assumed.llc.ways = 12;
        assumed.assume_llc_share();
        assert_eq!(with_reach(0), assumed.llc.bytes, "not measured");
    }

    #[test]
    fn what_varies_too_much_is_named() {
        assert_eq!(noise(&latency()), None);
        let busy = LatencyTable { l1: Latency { cycles: 4.0, spread: 0.25 }, ..latency() };
        assert_eq!(noise(&busy).as_deref(), Some("the first level varies by 25 %"));
    }

    #[test]
    fn the_table_has_every_level_and_the_skid() {
        let skid = LoopSkid { name: "load".into(), instructions: 2, samples: vec![1, 3], elsewhere: 2 };
        let calibration = Calibration::now(latency(), Some(lines()), Some("cpu-clock".into()), vec![skid]);
        let text = table(&calibration, &MachineDescription::named("host").expect("this machine"));
        for expected in [
            "first level",
            "12.0",
            "200.2",
            "600.2",
            "nearest, node 1",
            "farthest, node 2",
            "page walk",
            "one set, by stores",
            "25.0 %",
            "75.0 %",
        ] {
            assert!(text.contains(expected), "{expected} is not in:\n{text}");
        }
    }
}

//! What is measured at the first run on a machine that nobody has calibrated.
//!
//! It is kept in the user's cache folder and taken from there by later runs, so that their profiles can be compared and merged: also those of
//! the processes of a job, on however many machines of this kind, that begin at the same time.

use std::fs::{self, File};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use memlens_calibrate::{
    Calibration, Latency, LatencyTable, LineRates, brief_path, is_writable, measure_briefly,
};
use memlens_sim::MachineDescription;

use crate::calibrate::{PRIVATE_SPREAD, SHARED_SPREAD, geometry, noise};

/// When numbers that were not to be believed are measured again.
const AGAIN_AFTER: Duration = Duration::from_secs(600);
/// How long somebody else who measures is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// With less memory nothing is measured.
const LEAST_BYTES: u64 = 256 << 20;
/// A spread above which what another core's lines cost, another node's, or a page walk, is passed over.
const MOST_SPREAD: f64 = 0.6;
/// A spread of the last level above which the machine was busy: what is kept is used by all runs from then on, so that it is held to more than what
/// somebody measures and looks at. (On a Zen 4 whose last level others use it was 178 cycles with a spread of 0.32, and 60 to 68 at other times.)
const LAST_LEVEL_SPREAD: f64 = 0.25;

/// What is known of a machine that nobody has calibrated.
#[derive(Debug)]
pub struct Brief {
    /// It.
    pub calibration: Calibration,
    /// What of it is assumed all the same, as the machine was busy: `the second level, the last level`.
    pub assumed: Option<String>,
}

/// What was measured, now or before; `None`: nothing that can be believed, or there is no place for it.
pub fn measured(machine: &MachineDescription) -> Option<Brief> {
    let path = brief_path()?;
    match read(&path) {
        found @ (Kept::Believed(_) | Kept::Doubtful(_)) => return found.told(machine),
        Kept::Old(_) | Kept::None => {}
    }
    let folder = path.parent()?;
    fs::create_dir_all(folder).ok()?;
    let _lock = lock(folder);
    // Somebody else may have measured meanwhile.
    match read(&path) {
        found @ (Kept::Believed(_) | Kept::Doubtful(_)) => found.told(machine),
        found @ (Kept::Old(_) | Kept::None) => {
            // What cannot be kept would be measured by each run.
            if !is_writable(folder) {
                return None;
            }
            let calibration = measure(machine)?;
            match found {
                Kept::Old(Some(before)) => surer(&before, calibration).write(&path),
                Kept::Old(None) => calibration.write(&path),
                _ => calibration.write_first(&path),
            }
            .ok()?;
            read(&path).told(machine)
        }
    }
}

/// What was measured before, without measuring.
pub fn known(machine: &MachineDescription) -> Option<Brief> {
    read(&brief_path()?).told(machine)
}

/// Why what was measured is not believed, if that is so.
pub fn doubt() -> Option<String> {
    let calibration = Calibration::read(&brief_path()?).ok()?;
    let latency = &calibration.latency;
    let is_doubted = calibration.is_of_this_processor() && !is_quiet(latency);
    let last_level = || format!("the last level varies by {:.0} %", 100.0 * latency.llc.spread);
    is_doubted.then(|| noise(latency).unwrap_or_else(last_level))
}

/// What is in the file.
#[derive(Debug)]
enum Kept {
    Believed(Box<Calibration>),
    /// The machine was busy a short while ago.
    Doubtful(Box<Calibration>),
    /// It was busy, then or when walks were measured; `None`: the file is of no use.
    Old(Option<Box<Calibration>>),
    None,
}

impl Kept {
    /// What of it can be used.
    fn told(self, machine: &MachineDescription) -> Option<Brief> {
        match self {
            Self::Believed(calibration) => Some(Brief { calibration: *calibration, assumed: None }),
            Self::Doubtful(calibration) => in_part(*calibration, machine),
            Self::Old(_) | Self::None => None,
        }
    }
}

/// What was measured on a busy machine, with what is assumed of `machine` in place of what varied: who shares the last level need not disturb what
/// memory takes, which is the most of all waiting, and differs most from machine to machine. (A virtual Zen 3 whose last level varied by 88 % had memory at
/// 480 to 560 cycles, varying by 10 to 16 %, in three measurements, where 300 are assumed.) `None`: memory or the core varied, too.
fn in_part(mut calibration: Calibration, machine: &MachineDescription) -> Option<Brief> {
    let latency = &mut calibration.latency;
    if latency.cycle_spread > PRIVATE_SPREAD || latency.dram.spread > LAST_LEVEL_SPREAD {
        return None;
    }
    let known = |cycles: u32| Latency { cycles: cycles.into(), spread: 0.0 };
    let l2 = machine.l2.as_ref().map(|l2| l2.latency_cycles);
    let levels = [
        ("the first level", Some(&mut latency.l1), Some(machine.l1d.latency_cycles), PRIVATE_SPREAD),
        ("the second level", latency.l2.as_mut(), l2, PRIVATE_SPREAD),
        ("the last level", Some(&mut latency.llc), Some(machine.llc.latency_cycles), LAST_LEVEL_SPREAD),
    ];
    let mut assumed = Vec::new();
    for (name, level, cycles, most) in levels {
        if let (Some(level), Some(cycles)) = (level.filter(|level| level.spread > most), cycles) {
            *level = known(cycles);
            assumed.push(name);
        }
    }
    if let (Some(lines), Some(core)) = (&mut calibration.lines, &machine.core) {
        for (rate, cycles) in
            [(&mut lines.from_llc, core.llc_line_cycles), (&mut lines.from_memory, core.line_cycles)]
        {
            if rate.spread > SHARED_SPREAD {
                *rate = known(cycles);
            }
        }
    }
    let assumed = (!assumed.is_empty()).then(|| assumed.join(", "));
    noise(&calibration.latency).is_none().then_some(Brief { calibration, assumed })
}

fn read(path: &Path) -> Kept {
    if !path.exists() {
        return Kept::None;
    }
    match Calibration::read(path) {
        Ok(calibration) if !calibration.is_of_this_processor() => Kept::Old(None),
        Ok(calibration) => {
            let measured_at = UNIX_EPOCH.checked_add(Duration::from_secs(calibration.measured_at));
            let age = measured_at.and_then(|at| SystemTime::now().duration_since(at).ok());
            let is_recent = age.is_some_and(|age| age < AGAIN_AFTER);
            let is_whole = calibration.latency.walk.is_some();
            match is_quiet(&calibration.latency) {
                true if is_whole || is_recent => Kept::Believed(Box::new(calibration)),
                false if is_recent => Kept::Doubtful(Box::new(calibration)),
                _ => Kept::Old(Some(Box::new(calibration))),
            }
        }
        Err(_) => Kept::Old(None),
    }
}

/// Whether it was measured while others left the machine alone.
fn is_quiet(latency: &LatencyTable) -> bool {
    noise(latency).is_none() && latency.llc.spread <= LAST_LEVEL_SPREAD
}

/// One measures at a time: they would measure each other. `None`: the file system has no locks, or somebody takes too long.
fn lock(folder: &Path) -> Option<File> {
    let file = File::open(folder).ok()?;
    let begin = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Some(file),
            Err(fs::TryLockError::WouldBlock) if begin.elapsed() < PATIENCE => {
                sleep(Duration::from_millis(10));
            }
            Err(_) => return None,
        }
    }
}

fn measure(machine: &MachineDescription) -> Option<Calibration> {
    let geometry = geometry(machine);
    if geometry.available_bytes < LEAST_BYTES {
        return None;
    }
    let (latency, lines) = measure_briefly(&geometry).ok()??;
    Some(Calibration::now(without_unsure(latency), Some(lines), None, Vec::new()))
}

/// Of two measurements of a machine the surer one of each number: one that is busy with something else each time is known after some.
fn surer(before: &Calibration, now: Calibration) -> Calibration {
    let of = |before: Latency, now: Latency| if before.spread < now.spread { before } else { now };
    let known = |before: Option<Latency>, now: Option<Latency>| match (before, now) {
        (Some(before), Some(now)) => Some(of(before, now)),
        (before, now) => now.or(before),
    };
    let (old, new) = (&before.latency, &now.latency);
    let cycles = [old, new].map(|it| Latency { cycles: it.cycle_ns, spread: it.cycle_spread });
    let cycle = of(cycles[0], cycles[1]);
    let latency = LatencyTable {
        cycle_ns: cycle.cycles,
        cycle_spread: cycle.spread,
        l1: of(old.l1, new.l1),
        l2: known(old.l2, new.l2),
        llc: of(old.llc, new.llc),
        dram: of(old.dram, new.dram),
        stlb: known(old.stlb, new.stlb),
        walk: known(old.walk, new.walk),
        transfer: known(old.transfer, new.transfer),
        ..new.clone()
    };
    let lines = match (&before.lines, &now.lines) {
        (Some(old), Some(new)) => Some(LineRates {
            from_l2: known(old.from_l2, new.from_l2),
            from_llc: of(old.from_llc, new.from_llc),
            from_memory: of(old.from_memory, new.from_memory),
            from_memory_alone: known(old.from_memory_alone, new.from_memory_alone),
            set_loads: known(old.set_loads, new.set_loads),
            set_stores: known(old.set_stores, new.set_stores),
            set_modifies: known(old.set_modifies, new.set_modifies),
        }),
        (before, now) => now.or(*before),
    };
    Calibration { latency, lines, ..now }
}

/// Without what varies on a quiet machine, too, where it varied much.
fn without_unsure(mut latency: LatencyTable) -> LatencyTable {
    for often_unsure in [&mut latency.transfer, &mut latency.walk] {
        *often_unsure = often_unsure.filter(|it| it.spread <= MOST_SPREAD);
    }
    latency.nodes.retain(|node| node.cycles.spread <= MOST_SPREAD);
    latency
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_calibrate::Latency;

    fn kept(folder: &Path, (spread, last_level): (f64, f64), walk: Option<f64>, age: Duration) -> Kept {
        let of = |cycles| Latency { cycles, spread };
        let latency = LatencyTable {
            cycle_ns: 0.3,
            l1: of(4.0),
            llc: Latency { cycles: 50.0, spread: last_level },
            dram: of(300.0),
            walk: walk.map(of),
            ..LatencyTable::default()
        };
        let mut calibration = Calibration::now(latency, None, None, Vec::new());
        calibration.measured_at -= age.as_secs();
        let path = folder.join("c.toml");
        calibration.write(&path).expect("written");
        read(&path)
    }

    #[test]
    fn what_a_busy_machine_gave_is_measured_again_after_a_while() {
        let folder = tempfile::tempdir().expect("a folder");
        let of_walk = |spread, walk, age| kept(folder.path(), spread, walk, Duration::from_secs(age));
        let of = |spread, age| of_walk(spread, Some(80.0), age);
        assert!(matches!(of((0.01, 0.2), 100_000), Kept::Believed(_)));
        assert!(matches!(of((0.9, 0.2), 0), Kept::Doubtful(_)));
        assert!(matches!(of((0.01, 0.32), 0), Kept::Doubtful(_)));
        assert!(matches!(of((0.9, 0.2), 100_000), Kept::Old(Some(_))));
        assert!(matches!(of_walk((0.01, 0.2), None, 0), Kept::Believed(_)));
        assert!(matches!(of_walk((0.01, 0.2), None, 100_000), Kept::Old(Some(_))));
        assert!(matches!(read(&folder.path().join("none")), Kept::None));
        let damaged = folder.path().join("damaged");
        fs::write(&damaged, "nothing").expect("written");
        assert!(matches!(read(&damaged), Kept::Old(None)));
    }

    #[test]
    fn of_a_busy_machine_what_did_not_vary_is_used() {
        let machine = MachineDescription::named("amd-zen4").expect("one of ours");
        let of = |cycles, spread| Latency { cycles, spread };
        let told = |l2: Latency, llc: Latency, dram: Latency| {
            let latency = LatencyTable {
                cycle_ns: 0.3,
                l1: of(4.0, 0.1),
                l2: Some(l2),
                llc,
                dram,
                ..LatencyTable::default()
            };
            let brief = in_part(Calibration::now(latency, None, None, Vec::new()), &machine)?;
            let LatencyTable { l1, l2, llc, dram, .. } = brief.calibration.latency;
            Some((
                [Some(l1), l2, Some(llc), Some(dram)].map(|it| it.map_or(0.0, |it| it.cycles)),
                brief.assumed,
            ))
        };
        let known = |cycles: u32| f64::from(cycles);
        let (of_l2, of_llc) =
            (known(machine.l2.as_ref().map_or(0, |l2| l2.latency_cycles)), known(machine.llc.latency_cycles));
        let both = Some("the second level, the last level".to_owned());
        assert_eq!(
            told(of(20.0, 0.4), of(180.0, 0.9), of(560.0, 0.1)),
            Some(([4.0, of_l2, of_llc, 560.0], both))
        );
        let last = Some("the last level".to_owned());
        assert_eq!(
            told(of(15.0, 0.1), of(60.0, 0.3), of(500.0, 0.2)),
            Some(([4.0, 15.0, of_llc, 500.0], last))
        );
        // Memory that varied, or that is as near as the last level, was none that can be told of.
        assert_eq!(told(of(15.0, 0.1), of(60.0, 0.3), of(500.0, 0.3)), None);
        assert_eq!(told(of(15.0, 0.1), of(60.0, 0.3), of(100.0, 0.1)), None);
    }

    #[test]
    fn of_two_measurements_each_number_is_the_surer_one() {
        let of = |cycles, spread| Latency { cycles, spread };
        let table = |llc, dram, walk| LatencyTable { llc, dram, walk, ..LatencyTable::default() };
        let before = table(of(55.0, 0.9), of(560.0, 0.1), Some(of(90.0, 0.3)));
        let now = table(of(60.0, 0.1), of(900.0, 0.5), None);
        let calibration = |latency| Calibration::now(latency, None, None, Vec::new());
        let LatencyTable { llc, dram, walk, .. } = surer(&calibration(before), calibration(now)).latency;
        assert_eq!((llc.cycles, dram.cycles, walk.map(|it| it.cycles)), (60.0, 560.0, Some(90.0)));
    }

    #[test]
    fn a_machine_is_measured_in_a_moment() {
        let machine = MachineDescription::named("host").expect("this machine");
        if let Some(calibration) = measure(&machine) {
            let latency = &calibration.latency;
            let (l1, dram) = (latency.l1.cycles, latency.dram.cycles);
            assert!((2.0..12.0).contains(&l1) && dram > 4.0 * l1, "{latency:?}");
            assert_eq!(latency.llc_reach_bytes, 0);
            assert!(latency.curve.is_empty());
        }
        if let Ok(Some((latency, _))) = measure_briefly(&geometry(&machine)) {
            assert!(latency.walk.is_some());
        }
    }

    #[test]
    fn what_varies_much_is_left_out() {
        let of = |spread| Some(Latency { cycles: 90.0, spread });
        for (spread, is_kept) in [(0.59, true), (0.61, false)] {
            let latency = LatencyTable { walk: of(spread), transfer: of(spread), ..LatencyTable::default() };
            let LatencyTable { walk, transfer, .. } = without_unsure(latency);
            assert_eq!((walk.is_some(), transfer.is_some()), (is_kept, is_kept));
        }
    }
}

//! The virtual card and the analysis, held against each other and against what can be said by hand.

use memlens_bus::analysis::{
    Analysis, Analyzer, Attribution, Observer, RecordKind, Verification, Verifier, analyze, observe,
};
use memlens_bus::format::{FormatError, ObjectEvent, TraceFolder};
use memlens_bus::system::{
    Advice, Backing, Card, FaultPlan, Mapping, System, SystemOptions, ThpSetting, inject_faults,
};
use memlens_sim::{CoreId, MachineDescription};
use memlens_types::{AccessAttr, AccessKind, ObjectKind};
use std::fs::File;
use std::io::BufWriter;
use std::num::NonZeroUsize;
use std::path::Path;

type Machine = System<BufWriter<File>>;

const MIB: u64 = 1 << 20;
const PID: u32 = 7;
const THP: [ThpSetting; 3] = [ThpSetting::Always, ThpSetting::Madvise, ThpSetting::Never];

fn options() -> SystemOptions {
    let machine = MachineDescription::named("e5504").expect("shipped");
    SystemOptions { memory_bytes: 8 << 30, ..SystemOptions::new(machine) }
}

fn capture(place: &Path, options: SystemOptions, program: impl FnOnce(&mut Machine)) -> TraceFolder {
    let folder = TraceFolder::create(place, true).expect("a folder");
    let mut system = System::new(options, |header| Card::create(&folder, header)).expect("a machine");
    program(&mut system);
    let counts = system.finish().expect("written");
    assert_eq!(counts.out_of_memory, 0);
    folder
}

/// What `observer` sees comes to the same as what three threads find.
fn analysis(folder: &TraceFolder, observer: &mut impl Observer) -> Analysis {
    let open = || Ok::<_, FormatError>((folder.bus()?, folder.pages()?, folder.objects()?));
    let (bus, pages, objects) = open().expect("sound files");
    let found = observe(bus, pages, objects, observer).expect("readable");
    let (bus, pages, objects) = open().expect("sound files");
    let threads = NonZeroUsize::new(3).expect("not 0");
    let same = analyze(bus, pages, objects, threads).expect("readable");
    let text = |found: &Analysis| serde_json::to_string(found).expect("numbers and texts");
    assert!(text(&found) == text(&same) && found.points == same.points, "{found:?}\n{same:?}");
    found
}

/// Sees nothing.
struct Blind;

impl Observer for Blind {
    fn record(&mut self, _: &Analyzer, _: &Attribution) -> Result<(), FormatError> {
        Ok(())
    }
}

fn verified(folder: &TraceFolder) -> (Verification, Analysis) {
    let truth = folder.truth().expect("readable").expect("a virtual card's trace");
    let mut verifier = Verifier::new(truth);
    let found = analysis(folder, &mut verifier);
    (verifier.into_verification(), found)
}

fn load(system: &mut Machine, vaddr: u64) {
    system.access(PID, CoreId(0), vaddr, AccessAttr::new(AccessKind::Load, 8));
}

fn object(system: &mut Machine, pid: u32, id: u32, name: &str, start: u64, bytes: u64) {
    system.tell_objects(&[
        ObjectEvent::Object { pid, id, kind: ObjectKind::Heap, name: name.into() },
        ObjectEvent::Block { pid, layer: 1, start, bytes, id },
    ]);
}

/// Leaf reads of page tables in order.
#[derive(Default)]
struct Misses(Vec<(u8, u64)>);

impl Observer for Misses {
    fn record(&mut self, analyzer: &Analyzer, record: &Attribution) -> Result<(), FormatError> {
        if let RecordKind::Walk(level) = record.kind
            && let Some((pid, pages)) = analyzer.pages_of_line(record.paddr)
            && analyzer.reverse_table().mapped(pid, pages.clone()).next().is_some()
            && analyzer.reverse_table().leaf_level(pid, pages.start) == Some(level)
        {
            self.0.push((level, pages.start));
        }
        Ok(())
    }
}

/// T4: N pages touched once in order are N misses of the right pages in order, of any size, when the tables are
/// uncached; when they are cached, one read in eight reaches the bus, because eight entries share a line.
#[test]
fn pages_touched_in_order_miss_in_order() {
    let place = tempfile::tempdir().expect("a temporary folder");
    for (level, pages) in [(1_u8, 4096_u64), (2, 200), (3, 4)] {
        let bytes = 1_u64 << (12 + 9 * (u32::from(level) - 1));
        for ptat in [true, false] {
            let base = 64 << 30;
            let folder = capture(place.path(), SystemOptions { ptat, ..options() }, |system| {
                let range = base..base + pages * bytes;
                system.map(PID, range.clone(), Mapping { level, ..Mapping::default() });
                object(system, PID, 1, "array", base, range.end - base);
                // Mapped beforehand, so that neighbours' entries are there when a line is read, by addresses that
                // leave no translation: another core's.
                for page in 0..pages {
                    system.access(PID, CoreId(1), base + page * bytes, AccessAttr::new(AccessKind::Store, 8));
                }
                (0..pages).for_each(|page| load(system, base + page * bytes));
            });
            let mut misses = Misses::default();
            let found = analysis(&folder, &mut misses);
            let of_second_core = misses.0.split_off(misses.0.len() / 2);
            let in_line = |page: u64| base / 4096 + page / 8 * 8 * (bytes / 4096);
            let expected: Vec<(u8, u64)> = (0..pages).map(|page| (level, in_line(page))).collect();
            if ptat {
                assert_eq!(of_second_core, expected, "level {level}");
                assert_eq!(found.totals.leaf_reads[usize::from(level) - 1], 2 * pages);
                // All of them belong to the array.
                let array = found.objects.iter().find(|row| row.name == "array").expect("touched");
                assert!((array.counts.tlb_misses - 2.0 * pages as f64).abs() < 1e-6);
            } else {
                let lines = pages.div_ceil(8);
                assert!(found.totals.leaf_reads[usize::from(level) - 1] <= 2 * lines, "level {level}");
            }
            assert_eq!(verified(&folder).0.wrong(), 0, "level {level}");
        }
    }
}

/// Memory comes from the node of the core that touches it first, and lines are counted where it lies.
#[test]
fn lines_come_from_the_node_of_the_core_that_touched_first() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let base = |array: u64| (1 << 32) + array * 64 * MIB;
    let folder = capture(place.path(), SystemOptions { nodes: 2, ..options() }, |system| {
        for array in 0..2 {
            system.map(PID, base(array)..base(array) + MIB, Mapping::default());
            object(system, PID, array as u32 + 1, &format!("a{array}"), base(array), MIB);
            // Core 3 belongs to the second node.
            let first = CoreId(3 * array as u16);
            for line in 0..MIB / 64 {
                system.access(PID, first, base(array) + line * 64, AccessAttr::new(AccessKind::Load, 8));
            }
        }
        (0..MIB / 64).for_each(|line| load(system, base(1) + line * 64));
    });
    let found = analysis(&folder, &mut Blind);
    let lines = |name: &str| {
        found.objects.iter().find(|row| row.name == name).expect("touched").lines_by_node.clone()
    };
    assert_eq!((lines("a0"), lines("a1")), (vec![MIB / 64, 0], vec![0, MIB / 64]));
    let nodes: Vec<u64> = found.nodes.iter().map(|node| node.start).collect();
    assert_eq!(nodes, [0, 4 << 30]);
    assert_eq!(verified(&folder).0.wrong(), 0);
}

/// The time in which nothing is recorded is not the trace's.
#[test]
fn the_clock_stands_still_while_nothing_is_recorded() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let mut cycles = [0, 1_000_000].map(|pause| {
        let folder = capture(place.path(), options(), |system| {
            system.map(PID, 1 << 32..(1 << 32) + 4 * MIB, Mapping::default());
            (0..256).for_each(|page| load(system, (1 << 32) + page * 4096));
            system.set_recording(false);
            // Mapped, and told by tags, while nothing else is recorded.
            (256..300).for_each(|page| load(system, (1 << 32) + page * 4096));
            system.advance(pause);
            system.set_recording(true);
            (300..600).for_each(|page| load(system, (1 << 32) + page * 4096));
        });
        let found = analysis(&folder, &mut Blind);
        assert_eq!(verified(&folder).0.wrong(), 0);
        assert_eq!(found.totals.data_reads, 556);
        found.cycles
    });
    cycles.sort_unstable();
    // Rounding: the card's clock is five times slower than the cores'.
    assert!(cycles[1] - cycles[0] <= 1 && cycles[0] > 0, "{cycles:?}");
}

/// `madvise`: what goes, what becomes huge, and that the small table's frame is used again.
#[test]
fn advice_changes_the_pages_that_are_there() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = TraceFolder::create(place.path(), true).expect("a folder");
    let mut system = System::new(options(), |header| Card::create(&folder, header)).expect("a machine");
    let (base, huge) = (4 << 30, 2 * MIB);
    system.map(PID, base..base + 4 * huge, Mapping::default());
    let faults = |system: &Machine| system.counts().faults;
    // The first becomes huge at once, the second stays small although it is asked for later.
    system.advise(PID, base..base + huge, Advice::HugePage);
    load(&mut system, base);
    load(&mut system, base + huge);
    assert_eq!(faults(&system), [1, 1, 0]);
    system.advise(PID, base + huge..base + 2 * huge, Advice::HugePage);
    load(&mut system, base + huge + 4096);
    assert_eq!(faults(&system), [2, 1, 0], "there is a table of small pages already");
    system.advise(PID, base..base + 4 * huge, Advice::Collapse);
    load(&mut system, base + huge + 8192);
    // Where nothing was touched there is nothing to collapse.
    assert_eq!((faults(&system), system.counts().collapses), ([2, 1, 0], 1));
    // A part of a huge page goes: the rest is small, and stays.
    system.advise(PID, base + 4096..base + 8192, Advice::DontNeed);
    load(&mut system, base + 8192);
    assert_eq!(faults(&system), [2, 1, 0]);
    load(&mut system, base + 4096);
    assert_eq!(faults(&system), [3, 1, 0]);
    // What is forbidden stays small; filled at once, it faults no more.
    system.advise(PID, base + 2 * huge..base + 3 * huge, Advice::NoHugePage);
    system.advise(PID, base + 2 * huge..base + 3 * huge, Advice::PopulateWrite);
    assert_eq!(faults(&system), [3 + 512, 1, 0]);
    (0..512).for_each(|page| load(&mut system, base + 2 * huge + page * 4096));
    assert_eq!(faults(&system), [3 + 512, 1, 0]);
    let counts = system.finish().expect("written");
    assert_eq!(counts.out_of_memory, 0);
    assert_eq!(verified(&folder).0.wrong(), 0);
}

/// O8 with synthetic threads: five arrays, from all-read to all-written, walked with stride 64 by five cores in
/// turns; reads are exactly the lines, write-backs the written quarters once the caches are flushed.
fn five_arrays(place: &Path, bytes: u64) -> TraceFolder {
    capture(place, options(), |system| {
        let base = |array: u64| (16 << 30) + array * 2 * bytes;
        for array in 0..6 {
            let name = if array < 5 { format!("a{array}") } else { "flush".into() };
            let length = if array < 5 { bytes } else { 16 * MIB };
            system.map(PID, base(array)..base(array) + length, Mapping::default());
            object(system, PID, array as u32 + 1, &name, base(array), length);
        }
        let lines = bytes / 64;
        for chunk in (0..lines).step_by(512) {
            for array in 0..5 {
                for step in chunk..chunk + 512 {
                    let write = step >= lines / 4 * (4 - array);
                    let line = if array < 3 { step } else { lines - 1 - step };
                    let kind = if write { AccessKind::Store } else { AccessKind::Load };
                    let core = CoreId(array as u16 % 4);
                    system.access(PID, core, base(array) + line * 64, AccessAttr::new(kind, 8));
                }
            }
        }
        // Each core's caches, then the shared one.
        for core in [0, 1, 2, 3, 0, 1] {
            for line in 0..16 * MIB / 64 {
                system.access(PID, CoreId(core), base(5) + line * 64, AccessAttr::new(AccessKind::Load, 8));
            }
        }
    })
}

fn largest_error(found: &Analysis, bytes: u64) -> f64 {
    let lines = (bytes / 64) as f64;
    let mut largest = 0.0_f64;
    for array in 0..5 {
        let row = found.objects.iter().find(|row| row.name == format!("a{array}")).expect("touched");
        let writes = lines / 4.0 * f64::from(array);
        largest = largest.max((row.counts.reads as f64 - lines).abs() / lines);
        largest = largest.max((row.counts.writes as f64 - writes).abs() / writes.max(lines));
    }
    largest
}

#[test]
fn five_arrays_are_counted_as_the_program_makes_them() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let bytes = 8 * MIB;
    let folder = five_arrays(&place.path().join("sound"), bytes);
    let (verification, found) = verified(&folder);
    assert_eq!((verification.wrong(), verification.without_truth), (0, 0), "{:?}", verification.examples);
    assert_eq!(largest_error(&found, bytes), 0.0);
    // With lost packets the error stays near the part that was lost, and the loss is known.
    let plan = FaultPlan { lost_packets: 1e-3, records_per_packet: 8, seed: 3, ..FaultPlan::default() };
    let (verification, lossy, counts) = damaged(&folder, &place.path().join("lossy"), &plan);
    assert!(counts.lost > 100);
    assert_eq!(lossy.losses.lost_records, counts.lost);
    assert!(largest_error(&lossy, bytes) < 3e-3);
    assert!((verification.wrong() as f64) < 2e-3 * verification.records as f64, "{verification:?}");
}

fn damaged(
    folder: &TraceFolder,
    place: &Path,
    plan: &FaultPlan,
) -> (Verification, Analysis, memlens_bus::system::FaultCounts) {
    let copy = TraceFolder::create(place, true).expect("a folder");
    let mut source = folder.bus().expect("sound");
    let header = source.header().expect("a card").clone();
    for name in ["pages.mlpages", "objects.txt"] {
        std::fs::copy(folder.path().join(name), copy.path().join(name)).expect("copied");
    }
    let mut bus = copy.write_bus(header.clone()).expect("written");
    let mut truth = copy.write_truth(&header).expect("written");
    let known = folder.truth().expect("readable");
    let counts =
        inject_faults(&mut source, known, &header, plan, (&mut bus, Some(&mut truth))).expect("copied");
    bus.finish().expect("written");
    truth.finish().expect("written");
    let (verification, found) = verified(&copy);
    (verification, found, counts)
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Processes that map, unmap, move, share, fork and touch memory at random.
fn anything(system: &mut Machine, seed: u64) {
    const PLACES: u64 = 12;
    let mut random = Random(seed);
    let mut alive = vec![100_u32];
    let mut next_pid = 101;
    let place = |number: u64| (1 << 32) + number * 8 * MIB;
    for step in 0..300 {
        let pid = alive[random.below(alive.len() as u64) as usize];
        let at = place(random.below(PLACES));
        let length = (1 + random.below(1024)) * 4096;
        match random.below(20) {
            0..=3 => {
                let backing = match random.below(4) {
                    0 | 1 => Backing::Anonymous,
                    kind => {
                        Backing::File { file: random.below(3), page: random.below(9), is_shared: kind == 2 }
                    }
                };
                system.map(pid, at..at + length, Mapping { backing, ..Mapping::default() });
                let id = step as u32 + 1;
                system.tell_objects(&[
                    ObjectEvent::Object { pid, id, kind: ObjectKind::Mmap, name: format!("o{step}") },
                    ObjectEvent::Region { pid, start: at, bytes: length, id },
                ]);
            }
            4 => {
                let bytes = 2 * MIB * (1 + random.below(2));
                system.map(pid, at..at + bytes, Mapping { level: 2, ..Mapping::default() });
            }
            5 => system.unmap(pid, at + random.below(64) * 4096..at + length),
            6 => {
                let to = place(PLACES + random.below(4)) + random.below(3) * 4096;
                system.remap(
                    pid,
                    at..at + length,
                    to..to + length / 2 / 4096 * 4096 + random.below(512) * 4096,
                );
            }
            7 if alive.len() < 4 => {
                system.prepare_fork(pid, step);
                load_some(system, &mut random, pid, at);
                system.fork(pid, step, next_pid);
                alive.push(next_pid);
                next_pid += 1;
            }
            8 if alive.len() > 1 => {
                system.end_process(pid);
                alive.retain(|&other| other != pid);
            }
            9 => {
                let id = 1000 + step as u32;
                let start = at + random.below(999) * 16;
                object(system, pid, id, &format!("b{step}"), start, 16 + random.below(99_999));
            }
            10..=12 => {
                const ADVICE: [Advice; 6] = [
                    Advice::DontNeed,
                    Advice::HugePage,
                    Advice::NoHugePage,
                    Advice::Collapse,
                    Advice::PopulateRead,
                    Advice::PopulateWrite,
                ];
                let range = at + random.below(64) * 4096..at + length.max(4 * MIB);
                system.advise(pid, range, ADVICE[random.below(6) as usize]);
            }
            _ => load_some(system, &mut random, pid, at),
        }
    }
}

fn load_some(system: &mut Machine, random: &mut Random, pid: u32, at: u64) {
    for _ in 0..300 {
        let kind = if random.below(3) == 0 { AccessKind::Store } else { AccessKind::Load };
        let core = CoreId(random.below(4) as u16);
        let addr = at + random.below(5 * MIB);
        system.access(pid, core, addr, AccessAttr::new(kind, 1 + random.below(16) as u32));
        system.advance(3);
    }
}

/// Whatever processes do, each record is attributed to the right process, address, object and level.
#[test]
fn every_record_of_any_behaviour_is_attributed_rightly() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let (mut shared, mut late) = (0, 0);
    for seed in 0..4 {
        let with = SystemOptions {
            thp: THP[seed as usize % 3],
            nodes: 1 + seed as u8 % 2,
            ptat: seed % 3 == 0,
            ..options()
        };
        let folder = capture(place.path(), with, |system| anything(system, seed));
        let (verification, found) = verified(&folder);
        assert!(verification.records > 10_000, "seed {seed}: {}", verification.records);
        assert_eq!(
            verification.wrong(),
            0,
            "seed {seed}: {verification:#?} {:?} {:?}",
            found.losses,
            found.totals
        );
        (shared, late) = (shared + found.totals.shared, late + found.totals.late);
        assert_eq!((found.losses.page_tags.missing, found.losses.page_tags.events_left), (0, 0));
    }
    assert!(shared > 0 && late > 0, "{shared} shared, {late} late");
}

/// Tags that never come, come late, or are lost with their packet: few records are wrong, and it is known.
#[test]
fn missing_and_late_tags_are_repaired() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = capture(&place.path().join("sound"), options(), |system| anything(system, 1));
    let plans = [
        FaultPlan { dropped_tags: 0.01, seed: 1, ..FaultPlan::default() },
        FaultPlan { late_tags: 0.05, late_by: 4, seed: 2, ..FaultPlan::default() },
        FaultPlan { lost_packets: 1e-3, records_per_packet: 4, seed: 3, ..FaultPlan::default() },
    ];
    for plan in plans {
        let (verification, found, counts) = damaged(&folder, &place.path().join("copy"), &plan);
        let tags = (&found.losses.page_tags, &found.losses.object_tags);
        assert!(counts.dropped_tags + counts.late_tags + counts.lost > 0);
        if plan.dropped_tags > 0.0 {
            let known = tags.0.missing + tags.1.missing + tags.0.events_left + tags.1.events_left;
            assert_eq!(known, counts.dropped_tags, "{plan:?}");
        }
        if plan.late_tags > 0.0 {
            assert_eq!(
                tags.0.missing + tags.1.missing + tags.0.extra + tags.1.extra,
                0,
                "{plan:?}: {tags:?}"
            );
        }
        let wrong = verification.wrong() as f64 / verification.records as f64;
        assert!(wrong < 0.02, "{plan:?}: {wrong} wrong; {verification:#?}");
    }
}

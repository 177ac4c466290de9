//! Merging the profiles of several processes, and the invariants of profiles.

use memlens_profile::{
    CallPath, Cell, CodeIx, CodeLocation, Frame, FrameIx, Inconsistency, MergeError, Module, ModuleIx,
    Object, ObjectBacking, ObjectIx, PathCell, PathIx, Profile, Slice, SliceIx, SliceUse, SourceLine, Stack,
    StackIx, Thread, ThreadIx,
};
use memlens_types::{Counts, ObjectKind, Sampled};

fn loads(loads: u64) -> Counts {
    Counts { loads, load_bytes: 8 * loads, ..Counts::default() }
}

/// A process with one heap block allocated at `site_offset` in the library, and one global of the
/// program. The library is the first module or the second, as `library_first` says, and at any path.
fn process(pid: u32, library_first: bool, site_offset: u64, heap_loads: u64) -> Profile {
    let library =
        Module { path: format!("/proc/{pid}/lib.so"), build_id: Some("aa".into()), has_debug: pid == 2 };
    let program = Module { path: "/bin/app".into(), build_id: None, has_debug: true };
    let (modules, lib, app) = match library_first {
        true => (vec![library, program], ModuleIx(0), ModuleIx(1)),
        false => (vec![program, library], ModuleIx(1), ModuleIx(0)),
    };
    let frame = |module, offset, function: &str| Frame {
        module: Some(module),
        offset,
        function: Some(function.into()),
        ..Frame::default()
    };
    let mut profile = Profile {
        modules,
        frames: vec![frame(lib, site_offset, "make"), frame(app, 0x100, "main")],
        stacks: vec![Stack(vec![FrameIx(0), FrameIx(1)]), Stack(vec![FrameIx(1)])],
        objects: vec![
            Object {
                id: 1,
                kind: ObjectKind::Heap,
                name: "block".into(),
                site: Some(StackIx(0)),
                blocks: 2,
                bytes: Some(100),
                max_live_bytes: Some(50 * u64::from(pid)),
                backing: (pid > 1).then_some(ObjectBacking { small_bytes: 4096, ..ObjectBacking::default() }),
                counts: Counts { dram_writes: 3, ..Counts::default() },
                ..Object::default()
            },
            Object {
                id: 2,
                kind: ObjectKind::Global,
                name: "table".into(),
                module: Some(app),
                declared: Some(SourceLine { file: "app.c".into(), line: 4 }),
                blocks: 1,
                bytes: Some(64),
                ..Object::default()
            },
        ],
        code: vec![CodeLocation {
            id: 1,
            stack: Some(StackIx(1)),
            module: Some(app),
            offset: 0x104,
            ..CodeLocation::default()
        }],
        cells: vec![
            Cell {
                code: CodeIx(0),
                object: ObjectIx(0),
                thread: ThreadIx(0),
                counts: loads(heap_loads).into(),
            },
            Cell { code: CodeIx(0), object: ObjectIx(1), thread: ThreadIx(0), counts: loads(1).into() },
        ],
        threads: vec![Thread { tid: pid, ..Thread::default() }],
        ..Profile::default()
    };
    profile.run.mode = "exact".into();
    profile.run.pid = Some(pid);
    profile.run.instructions = Some(1000);
    profile.run.core_cycles = Some(300);
    profile.run.threads = 1;
    profile.run.wall_seconds = Some(f64::from(pid));
    profile.attribution.unknown_reasons.insert("vdso".into(), 2);
    profile.attribution.unknown_accesses = 2;
    profile.sum_cells();
    profile.validate().unwrap();
    profile
}

#[test]
fn a_thread_that_executes_another_program_is_one() {
    let merged = Profile::merge(&[process(7, true, 0x40, 10), process(7, true, 0x40, 5)]).unwrap();
    // With a row for each program.
    assert_eq!((merged.run.threads, merged.threads.len()), (1, 2));
}

#[test]
fn what_lies_in_each_node_is_added_up() {
    let of = |pid, node_bytes| {
        let mut profile = process(pid, true, 0x40, 10);
        profile.objects[0].backing = Some(ObjectBacking { node_bytes, ..ObjectBacking::default() });
        profile
    };
    let merged = Profile::merge(&[of(1, vec![4096]), of(2, vec![8192, 0, 4096]), of(3, vec![])]).unwrap();
    let backing = merged.objects[0].backing.as_ref().unwrap();
    assert_eq!(backing.node_bytes, [12_288, 0, 4096]);
}

#[test]
fn the_same_site_in_two_processes_is_one_object() {
    // Same build-id and offset, though modules and paths differ.
    let merged = Profile::merge(&[process(1, true, 0x40, 10), process(2, false, 0x40, 5)]).unwrap();
    merged.validate().unwrap();
    assert_eq!((merged.modules.len(), merged.frames.len(), merged.stacks.len()), (2, 2, 2));
    assert_eq!((merged.objects.len(), merged.code.len(), merged.threads.len()), (2, 1, 2));
    let block = &merged.objects[0];
    assert_eq!((block.counts.loads, block.counts.dram_writes), (15, 6));
    assert_eq!((block.blocks, block.bytes, block.max_live_bytes), (4, Some(200), Some(100)));
    assert_eq!(block.backing.as_ref().map(|backing| backing.small_bytes), Some(4096), "unknown of the first");
    assert_eq!(merged.objects[1].counts.loads, 2);
    assert_eq!(merged.code[0].counts.get().loads, 17);
    // A library with debug information in one process has it.
    assert!(merged.modules[0].has_debug);
    assert_eq!(merged.threads.iter().map(|thread| thread.pid).collect::<Vec<_>>(), [Some(1), Some(2)]);
    assert_eq!(
        (merged.run.instructions, merged.run.threads, merged.run.wall_seconds),
        (Some(2000), 2, Some(2.0))
    );
    assert_eq!(merged.run.core_cycles, Some(600));
    assert_eq!(merged.attribution.unknown_reasons["vdso"], 4);
    assert_eq!(merged.run.notes, ["merged from 2 processes"]);
}

#[test]
fn stalls_of_the_model_alone_are_added_up() {
    let of = |pid, modelled_stall_cycles| {
        let mut profile = process(pid, false, 16, 10);
        profile.cells[0].counts.change(|counts| counts.stall_cycles = 7);
        profile.sum_cells();
        profile.run.modelled_stall_cycles = modelled_stall_cycles;
        profile
    };
    let merged = |all: &[Profile]| Profile::merge(all).unwrap().run.modelled_stall_cycles;
    let (held, other) = (of(1, Some(20)), of(2, None));
    assert_eq!(merged(&[other.clone(), other.clone()]), None);
    assert_eq!(merged(&[held.clone(), held.clone()]), Some(40));
    // What was not held is as it was modelled.
    assert_eq!(merged(&[held.clone(), other.clone(), other.clone()]), Some(20 + 7 + 7));
    assert_eq!(merged(&[other.clone(), other, held]), Some(20 + 7 + 7));
}

#[test]
fn stalls_for_translation_are_known_if_they_are_of_all() {
    let of = |pid, stall_cycles, has_translation_stalls| {
        let mut profile = process(pid, false, 16, 10);
        profile.cells[0].counts.change(|counts| counts.stall_cycles = stall_cycles);
        profile.sum_cells();
        profile.run.has_translation_stalls = has_translation_stalls;
        profile
    };
    let merged = |all: &[Profile]| Profile::merge(all).unwrap().run.has_translation_stalls;
    let (known, unknown, without) = (of(1, 7, true), of(2, 7, false), of(3, 0, false));
    assert!(merged(&[known.clone(), known.clone()]));
    assert!(merged(&[without.clone(), known.clone(), without]), "it has none");
    assert!(!merged(&[known.clone(), unknown.clone(), known.clone()]));
    assert!(!merged(&[unknown, known]));
}

#[test]
fn time_in_which_unknown_stalls_are_is_unknown() {
    let stalling = |pid, stall_cycles, core_cycles| {
        let mut profile = process(pid, true, 0x40, 10);
        profile.cells[0].counts.change(|counts| counts.stall_cycles = stall_cycles);
        profile.run.core_cycles = core_cycles;
        profile.sum_cells();
        profile
    };
    let merged = |one, other| Profile::merge(&[one, other]).unwrap().run.core_cycles;
    assert_eq!(merged(stalling(1, 200, Some(300)), stalling(2, 150, None)), None, "350 of 300 cycles");
    assert_eq!(merged(stalling(1, 150, None), stalling(2, 200, Some(300))), None);
    assert_eq!(merged(stalling(1, 200, Some(300)), stalling(2, 3, None)), Some(300), "a short one");
    assert_eq!(merged(stalling(1, 200, Some(300)), stalling(2, 0, None)), Some(300));
}

#[test]
fn other_sites_stay_apart() {
    let merged = Profile::merge(&[process(1, true, 0x40, 10), process(2, true, 0x48, 5)]).unwrap();
    merged.validate().unwrap();
    assert_eq!(merged.objects.iter().map(|object| object.counts.loads).collect::<Vec<_>>(), [10, 2, 5]);
    assert_eq!(merged.objects.iter().map(|object| object.id).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn generated_code_of_two_processes_is_not_the_same() {
    let mut process = process(1, true, 0x40, 10);
    process.code[0].module = None;
    process.frames[0].module = None;
    let merged = Profile::merge(&[process.clone(), process]).unwrap();
    merged.validate().unwrap();
    // The code and the allocation site have equal addresses, which mean nothing across processes.
    assert_eq!((merged.code.len(), merged.frames.len(), merged.objects.len()), (2, 3, 3));
}

#[test]
fn objects_that_a_profile_keeps_apart_stay_apart() {
    // Merging by site was off: two objects of one site in each process.
    let mut process = process(1, true, 0x40, 10);
    let mut second = process.objects[0].clone();
    second.id = 3;
    process.objects.push(second);
    process.sum_cells();
    let merged = Profile::merge(&[process.clone(), process]).unwrap();
    merged.validate().unwrap();
    assert_eq!(merged.objects.len(), 3);
    assert_eq!(merged.objects[0].counts.loads, 20);
    assert_eq!(merged.objects[2].counts.loads, 0);
}

#[test]
fn merging_one_profile_changes_nothing() {
    let profile = process(1, true, 0x40, 10);
    let mut merged = Profile::merge(std::slice::from_ref(&profile)).unwrap();
    merged.threads[0].pid = None;
    assert_eq!(merged, profile);
}

#[test]
fn what_cannot_be_added_is_refused() {
    let first = process(1, true, 0x40, 10);
    let mut other = first.clone();
    other.machine.name = "e5504".into();
    assert_eq!(Profile::merge(&[]), Err(MergeError::Empty));
    assert!(matches!(
        Profile::merge(&[first.clone(), other]),
        Err(MergeError::DifferentMachine { position: 2, .. })
    ));
    let mut other = first.clone();
    other.run.mode = "sample".into();
    assert!(matches!(Profile::merge(&[first, other]), Err(MergeError::DifferentMode { position: 2, .. })));
}

#[test]
fn every_broken_invariant_is_named() {
    let good = process(1, true, 0x40, 10);
    let broken = |change: fn(&mut Profile)| {
        let mut profile = good.clone();
        change(&mut profile);
        profile.validate().unwrap_err()
    };
    use Inconsistency as I;
    assert!(matches!(
        broken(|p| p.cells[1].object = ObjectIx(2)),
        I::DanglingIndex { table: "cells", row: 1, .. }
    ));
    assert!(matches!(broken(|p| p.stacks[0].0[1] = FrameIx(9)), I::DanglingIndex { table: "stacks", .. }));
    assert!(matches!(broken(|p| p.objects[1].id = 1), I::BadId { table: "objects", row: 1, id: 1 }));
    assert!(matches!(broken(|p| p.objects[0].id = 0), I::BadId { id: 0, .. }));
    assert!(matches!(
        broken(|p| p.objects[0].counts.loads += 1),
        I::SumMismatch { table: "objects", row: 0 }
    ));
    assert!(matches!(
        broken(|p| p.cells[1].counts.change(|c| c.loads = 1 << 61)),
        I::ImpossibleCounts { table: "cells", row: 1 }
    ));
    assert!(matches!(
        broken(|p| p.code[0].counts.change(|c| c.modifies = 1)),
        I::ImpossibleCounts { table: "code", row: 0 }
    ));
    assert!(matches!(
        broken(|p| p.code[0].counts.change(|c| c.loads += 1)),
        I::SumMismatch { table: "code", .. }
    ));
    assert!(matches!(broken(|p| p.threads[0].counts.stores += 1), I::SumMismatch { table: "threads", .. }));
    assert!(matches!(broken(|p| p.cells[1].object = ObjectIx(0)), I::RepeatedCell { row: 1 }));
    assert!(matches!(
        broken(|p| p.cells[0].counts.change(|c| c.dram_writes = 1)),
        I::WriteBacksOutsideObjects { table: "cells", row: 0 }
    ));
    assert!(matches!(
        broken(|p| p.attribution.unknown_accesses = 3),
        I::UnexplainedUnknown { explained: 2, unknown: 3 }
    ));
    let slices = |profile: &mut Profile, ends: &[u64]| {
        profile.slices = ends.windows(2).map(|it| Slice { begin: it[0], end: it[1] }).collect();
        profile.slice_uses = vec![SliceUse { slice: SliceIx(1), cost: 9, ..SliceUse::default() }];
    };
    let broken = |change: &dyn Fn(&mut Profile)| {
        let mut profile = good.clone();
        slices(&mut profile, &[0, 5, 8]);
        profile.validate().unwrap();
        change(&mut profile);
        profile.validate().unwrap_err()
    };
    assert!(matches!(broken(&|p| slices(p, &[0, 5, 3])), I::BrokenTime { row: 1 }));
    assert!(matches!(broken(&|p| p.slices[1].begin = 6), I::BrokenTime { row: 1 }));
    assert!(matches!(broken(&|p| slices(p, &[0, 5])), I::DanglingIndex { target_table: "slices", .. }));
    assert!(matches!(
        broken(&|p| p.slice_uses[0].object = Some(ObjectIx(7))),
        I::DanglingIndex { table: "slice_uses", .. }
    ));
    assert!(matches!(
        broken(&|p| p.slice_uses[0].live_bytes = Some(1 << 61)),
        I::ImpossibleCounts { table: "slice_uses", row: 0 }
    ));
    assert!(matches!(broken(&|p| p.slices[1].end = 1 << 61), I::BrokenTime { row: 1 }));
    assert!(matches!(broken(&|p| p.slice_uses.push(p.slice_uses[0])), I::RepeatedUse { row: 1 }));
    assert!(matches!(broken(&|p| slices(p, &(0..2000).collect::<Vec<_>>())), I::TooManySlices(1999)));
    // Write-backs of an object are its own.
    let mut profile = good;
    profile.objects[0].counts.dram_writes = 99;
    profile.validate().unwrap();
}

/// So many samples, of ten each, with accesses.
fn path_cell(path: Option<PathIx>, object: ObjectIx, samples: u64, accesses: Counts) -> PathCell {
    let sampled = Sampled { samples, cost: 10 * samples, ..Sampled::default() };
    PathCell { path, object, counts: Counts { sampled, ..accesses }.into() }
}

/// `main` called `make`, which was sampled on the block so often; some samples of it have no path.
fn sampled(pid: u32, library_first: bool, samples: u64) -> Profile {
    let mut profile = process(pid, library_first, 0x40, 10);
    let whole = Sampled { samples: samples + 1, cost: 10 * (samples + 1), ..Sampled::default() };
    profile.cells[0].counts.change(|counts| counts.sampled = whole);
    profile.sum_cells();
    let object = ObjectIx(0);
    profile.paths = vec![
        CallPath { parent: None, frame: FrameIx(1) },
        CallPath { parent: Some(PathIx(0)), frame: FrameIx(0) },
    ];
    profile.path_cells = vec![
        path_cell(Some(PathIx(1)), object, samples, Counts { dram_writes: 0, ..profile.totals() }),
        path_cell(None, object, 1, Counts::default()),
    ];
    profile.validate().unwrap();
    profile
}

#[test]
fn the_same_call_path_in_two_processes_is_one() {
    // The third has samples and no paths, as profiles of before paths were stored.
    let mut old = sampled(3, true, 7);
    (old.paths, old.path_cells) = (Vec::new(), Vec::new());
    let merged = Profile::merge(&[sampled(1, true, 5), sampled(2, false, 4), old]).unwrap();
    merged.validate().unwrap();
    assert_eq!(merged.paths.len(), 2);
    let names: Vec<_> = merged.path_frames(Some(PathIx(1))).map(|frame| frame.function.as_deref()).collect();
    assert_eq!(names, [Some("make"), Some("main")]);
    let parts: Vec<_> = merged
        .path_cells
        .iter()
        .map(|part| (part.path, part.counts.get()))
        .map(|(path, counts)| (path, counts.sampled.samples, counts.sampled.cost, counts.loads))
        .collect();
    let loads = merged.totals().loads / 3;
    // The old one's objects are two, of which the other was not sampled.
    let old = [(None, 2 + 8, 20 + 80, loads - 1), (None, 0, 0, 1)];
    assert_eq!(parts, [&[(Some(PathIx(1)), 9, 90, 2 * loads)][..], &old].concat());
}

#[test]
fn call_paths_that_cannot_be_are_found() {
    let broken = |change: fn(&mut Profile)| {
        let mut profile = sampled(1, true, 5);
        change(&mut profile);
        profile.validate().unwrap_err()
    };
    // A node that comes before its parent could go round in circles.
    let own_parent = broken(|profile| profile.paths[1].parent = Some(PathIx(1)));
    assert!(matches!(own_parent, Inconsistency::DanglingIndex { table: "paths", row: 1, .. }));
    let no_frame = broken(|profile| profile.paths[0].frame = FrameIx(9));
    assert!(matches!(no_frame, Inconsistency::DanglingIndex { table: "paths", row: 0, .. }));
    let no_path = broken(|profile| profile.path_cells[0].path = Some(PathIx(2)));
    assert!(matches!(no_path, Inconsistency::DanglingIndex { table: "path_samples", row: 0, .. }));
    let twice = broken(|profile| profile.path_cells[1].path = Some(PathIx(1)));
    assert_eq!(twice, Inconsistency::RepeatedPath { row: 1 });
    let too_few = broken(|profile| profile.path_cells[0].counts.change(|counts| counts.sampled.cost -= 1));
    assert_eq!(too_few, Inconsistency::SumMismatch { table: "path_samples", row: 1 });
}

#[test]
fn walks_that_huge_pages_spare_are_told() {
    let with_backing = |small_bytes, transparent_bytes| {
        let object = |walks, backing| Object {
            name: "table".into(),
            counts: Counts { page_walk_accesses: walks, ..Counts::default() },
            backing,
            ..Object::default()
        };
        let backing = ObjectBacking { small_bytes, transparent_bytes, ..ObjectBacking::default() };
        let mut profile = Profile::default();
        profile.machine.page_bytes = 4096;
        profile.objects = vec![object(30, None), object(90, Some(backing))];
        profile.note_huge_pages();
        profile.run.notes
    };
    let notes = with_backing(1 << 20, 63 << 20);
    assert!(
        notes[0].starts_with("75 % of the page walks are of data that lay in huge pages (table),"),
        "{notes:?}"
    );
    assert!(with_backing(63 << 20, 1 << 20).is_empty());
    assert!(with_backing(0, 0).is_empty());
}

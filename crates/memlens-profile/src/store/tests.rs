use std::borrow::Cow;
use std::cell::{Cell as StdCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memlens_types::{AccessKind, Counts, ObjectKind, PatternKind, Sampled};
use proptest::prelude::*;

use super::folder::Folder;
use super::writer::{add_prediction, flush};
use super::{Existing, OpenError, ProfileWriter, WriteError, keep_prediction, reader};
use crate::{
    AccessPattern, CallPath, Cell, Clock, CodeIx, CodeLocation, Element, Field, FieldIx, FieldUse, Frame,
    FrameIx, Mark, Module, ModuleIx, Object, ObjectBacking, ObjectIx, ObjectPattern, PathCell, PathIx,
    PredictedCause, PredictedPlacement, PredictedWalks, Prediction, Profile, Slice, SliceIx, SliceUse,
    SourceLine, Stack, StackIx, Thread, ThreadIx,
};

/// A folder in memory whose operations stop working after a number of them, as if the process died
/// there. A write that dies leaves half of its content.
#[derive(Default)]
struct MemoryFolder {
    files: RefCell<BTreeMap<String, Vec<u8>>>,
    /// Files written since the last `sync`.
    unsynced: RefCell<BTreeSet<String>>,
    /// Changing operations left; `None`: no limit.
    left: StdCell<Option<u32>>,
    done: StdCell<u32>,
}

impl MemoryFolder {
    /// What a crash of the system may leave: half of each content that was not synced.
    fn lose_unsynced(&self) {
        for name in std::mem::take(&mut *self.unsynced.borrow_mut()) {
            if let Some(content) = self.files.borrow_mut().get_mut(&name) {
                content.truncate(content.len() / 2);
            }
        }
    }

    /// Counts an operation; an error says that the process is dead already, `false` that it dies in it.
    fn step(&self) -> io::Result<bool> {
        self.done.set(self.done.get() + 1);
        match self.left.get() {
            None => Ok(true),
            Some(0) => Err(io::Error::from(io::ErrorKind::StorageFull)),
            Some(left) => {
                self.left.set(Some(left - 1));
                Ok(left > 1)
            }
        }
    }
}

fn died() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

impl Folder for MemoryFolder {
    fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let whole = self.step()?;
        let content = if whole { content } else { &content[..content.len() / 2] };
        self.unsynced.borrow_mut().insert(name.to_owned());
        self.files.borrow_mut().insert(name.to_owned(), content.to_vec());
        if whole { Ok(()) } else { Err(died()) }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if !self.step()? {
            return Err(died());
        }
        let content = self.files.borrow_mut().remove(from).ok_or(io::ErrorKind::NotFound)?;
        if self.unsynced.borrow_mut().remove(from) {
            self.unsynced.borrow_mut().insert(to.to_owned());
        }
        self.files.borrow_mut().insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        if !self.step()? {
            return Err(died());
        }
        self.files.borrow_mut().remove(name).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync(&self) -> io::Result<()> {
        if !self.step()? {
            return Err(died());
        }
        self.unsynced.borrow_mut().clear();
        Ok(())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.files.borrow().get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files.borrow().keys().cloned().collect())
    }

    fn path_of(&self, name: &str) -> PathBuf {
        Path::new("memory").join(name)
    }
}

/// Two modules, a three-deep stack with an inlined level, a heap block and a global.
fn sample() -> Profile {
    let counts =
        Counts { loads: 7, stores: 2, modifies: 1, load_bytes: 56, l1_load_misses: 3, ..Counts::default() };
    let sampled = Sampled { samples: 4, cost: 40, ..Sampled::default() };
    let mut profile = Profile {
        modules: vec![
            Module { path: "/usr/bin/bfs".into(), build_id: Some("00ff".into()), has_debug: true },
            Module { path: "/lib/libc.so.6".into(), build_id: None, has_debug: false },
        ],
        frames: vec![
            Frame {
                module: Some(ModuleIx(0)),
                offset: u64::MAX,
                function: Some("read_graph".into()),
                file: Some("bfs.c".into()),
                line: Some(11),
                column: Some(3),
                inlined: true,
                source_text: Some("column = malloc(n);".into()),
            },
            Frame { module: None, offset: 0x7fff_0000_1234, ..Frame::default() },
        ],
        stacks: vec![Stack(vec![FrameIx(0), FrameIx(1)]), Stack(vec![])],
        objects: vec![
            Object {
                id: 1,
                kind: ObjectKind::Heap,
                name: "column".into(),
                type_name: Some("int*".into()),
                site: Some(StackIx(0)),
                named_at: Some(1),
                blocks: 1,
                bytes: Some(8192),
                max_live_bytes: Some(8192),
                backing: Some(ObjectBacking {
                    small_bytes: 4096,
                    transparent_bytes: 2 << 20,
                    hugetlb_bytes: 4 << 20,
                    untold_huge_bytes: 6 << 20,
                    gigantic_bytes: Some(2 << 30),
                    zero_bytes: 2048,
                    swapped_bytes: 8192,
                    node_bytes: vec![4096, 0, 8 << 20],
                }),
                element: Some(Element { type_name: "struct node".into(), bytes: 24 }),
                counts: Counts { dram_writes: 5, ..Counts::default() },
                ..Object::default()
            },
            Object {
                id: 7,
                kind: ObjectKind::Global,
                name: "größe".into(),
                declared: Some(SourceLine { file: "bfs.c".into(), line: 3 }),
                module: Some(ModuleIx(0)),
                ..Object::default()
            },
        ],
        code: vec![CodeLocation {
            id: 1,
            stack: Some(StackIx(1)),
            module: Some(ModuleIx(0)),
            offset: 0x1200,
            operand: 1,
            kind: AccessKind::Modify,
            size_bytes: 8,
            ..CodeLocation::default()
        }],
        cells: vec![
            Cell {
                code: CodeIx(0),
                object: ObjectIx(0),
                thread: ThreadIx(0),
                counts: Counts { sampled, ..counts }.into(),
            },
            Cell { code: CodeIx(0), object: ObjectIx(1), thread: ThreadIx(0), counts: counts.into() },
        ],
        patterns: vec![AccessPattern {
            code: CodeIx(0),
            kind: PatternKind::Indirect,
            stride_bytes: Some(-8),
            stride_permille: 250,
            loaded_by: Some(CodeIx(0)),
            entropy_millibits: 5_900,
            span_bytes: 4096,
            walk_steps: Some(31),
            links: Some(2),
            exits: Some(3),
            trips_permille: Some(17_250),
            accesses_apart: 3,
            executions: 17,
            confidence_permille: 0,
        }],
        object_patterns: vec![ObjectPattern {
            object: ObjectIx(1),
            pattern: AccessPattern {
                code: CodeIx(0),
                kind: PatternKind::Stream,
                stride_bytes: Some(8),
                executions: 5,
                ..AccessPattern::default()
            },
        }],
        fields: vec![Field {
            object: ObjectIx(0),
            offset_bytes: Some(8),
            size_bytes: Some(16),
            name: Some("items[].key".into()),
            type_name: None,
        }],
        field_uses: vec![FieldUse { code: CodeIx(0), field: FieldIx(0), seen: 3 }],
        paths: vec![
            CallPath { parent: None, frame: FrameIx(1) },
            CallPath { parent: Some(PathIx(0)), frame: FrameIx(0) },
        ],
        path_cells: Vec::new(),
        slices: vec![Slice { begin: 0, end: 7 }, Slice { begin: 7, end: 9 }],
        slice_uses: vec![
            SliceUse { slice: SliceIx(0), object: None, cost: 4, dram_reads: Some(0), live_bytes: None },
            SliceUse {
                slice: SliceIx(1),
                object: Some(ObjectIx(0)),
                cost: 900,
                dram_reads: None,
                live_bytes: Some(1 << 40),
            },
        ],
        threads: vec![Thread { tid: 4711, name: Some("main".into()), ..Thread::default() }],
        marks: vec![Mark { instructions: 5, thread: Some(ThreadIx(0)), name: "phase 2".into() }],
        ..Profile::default()
    };
    profile.run.command = vec!["./bfs".into(), "graph \"18\"\n".into()];
    profile.run.wall_seconds = Some(0.1 + 0.2);
    profile.run.clock = Some(Clock::Instructions);
    profile.attribution.unknown_accesses = 3;
    profile.attribution.unknown_reasons.insert("unmapped".into(), 3);
    profile.sum_cells();
    let whole = Counts { dram_writes: 0, ..profile.totals() };
    let path_cell = |path, from, until| {
        let counts = whole.piece(from, until).into();
        PathCell { path, object: ObjectIx(0), counts }
    };
    profile.path_cells = vec![path_cell(Some(PathIx(1)), 0.0, 0.75), path_cell(None, 0.75, 1.0)];
    profile
}

fn on_disk(profile: &Profile) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memlens.bfs.1");
    ProfileWriter::create(&path, Existing::Refuse).unwrap().flush(profile, true).unwrap();
    (folder, path)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn what_is_written_is_read() {
    let profile = sample();
    profile.validate().unwrap();
    let (_guard, path) = on_disk(&profile);
    assert_eq!(Profile::open(&path).unwrap(), profile);
    let (_guard, path) = on_disk(&Profile::default());
    assert_eq!(Profile::open(&path).unwrap(), Profile::default());
}

#[test]
fn an_unfinished_profile_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p");
    let mut writer = ProfileWriter::create(&path, Existing::Refuse).unwrap();
    assert!(matches!(Profile::open(&path), Err(OpenError::NotAProfile { .. })));
    writer.flush_and_drop(sample(), false).unwrap();
    let unfinished = Profile::open(&path).unwrap();
    assert!(unfinished.attribution.truncated && unfinished.cells == sample().cells);
    writer.flush(&sample(), true).unwrap();
    assert!(!Profile::open(&path).unwrap().attribution.truncated);
    // One manifest and sixteen tables: the first generation's files are gone.
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 17);
}

/// More rows than a batch has: positions must run on.
#[test]
fn tables_of_several_batches_are_read() {
    let frame = |offset| Frame { offset, ..Frame::default() };
    let profile = Profile { frames: (0..150_000).map(frame).collect(), ..Profile::default() };
    let (_guard, path) = on_disk(&profile);
    assert_eq!(Profile::open(&path).unwrap(), profile);
}

#[test]
fn dying_between_any_two_operations_leaves_a_flushed_state() {
    let first = sample();
    let mut second = sample();
    second.objects[0].name = "visited".into();
    second.frames.push(Frame::default());

    let folder = MemoryFolder::default();
    flush(&folder, 1, Cow::Borrowed(&first), true).unwrap();
    let before = folder.done.get();
    flush(&folder, 2, Cow::Borrowed(&second), true).unwrap();
    let operations = folder.done.get() - before;
    // 16 tables, manifest, sync, rename, sync, 16 removals.
    assert_eq!(operations, 36);

    let mut seen = [0, 0];
    for survived in 0..=operations {
        let folder = MemoryFolder::default();
        flush(&folder, 1, Cow::Borrowed(&first), true).unwrap();
        folder.left.set(Some(survived));
        let flushed = flush(&folder, 2, Cow::Borrowed(&second), true);
        folder.left.set(None);
        folder.lose_unsynced();
        let found = reader::open(&folder).unwrap();
        assert!(found == first || found == second, "after {survived} operations");
        if flushed.is_ok() {
            assert_eq!(found, second);
        }
        seen[usize::from(found == second)] += 1;
        // The next flush clears up what was left over.
        flush(&folder, 3, Cow::Borrowed(&first), true).unwrap();
        assert_eq!(reader::open(&folder).unwrap(), first);
        assert_eq!(folder.list().unwrap().len(), 17, "after {survived} operations");
    }
    // Operations 1 to 18 leave the first state, as does dying in the 19th, the rename.
    assert_eq!(seen, [20, 17]);
}

fn prediction(machine: &str, walks: u64) -> Prediction {
    let cause = PredictedCause {
        name: "column".into(),
        kind: "heap".into(),
        page_walks: walks,
        page_walk_accesses: 2 * walks,
    };
    let small = PredictedWalks { page_walks: walks, causes: vec![cause], ..PredictedWalks::default() };
    Prediction {
        command: vec!["./bfs".into(), "16".into()],
        machine: machine.into(),
        huge_pages: vec![PredictedPlacement {
            objects: vec![1],
            names: vec!["column".into()],
            walks: PredictedWalks { extra_memory_bytes: 4096, ..small.clone() },
        }],
        small_pages: small,
        ..Prediction::default()
    }
}

#[test]
fn predictions_are_added_and_replaced() {
    let (_guard, path) = on_disk(&sample());
    let added = [prediction("e5504", 100), prediction("host", 50), prediction("e5504", 70)];
    added.iter().for_each(|prediction| keep_prediction(&path, prediction).unwrap());
    let expected = Profile { predictions: added[1..].to_vec(), ..sample() };
    assert_eq!(Profile::open(&path).unwrap(), expected);
    // A flush writes what the profile has, and keys of later versions stay.
    let manifest = path.join("profile.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replacen('{', "{\"of_later\": [7],", 1)).unwrap();
    keep_prediction(&path, &added[0]).unwrap();
    assert!(std::fs::read_to_string(&manifest).unwrap().contains("of_later"));
    assert_eq!(Profile::open(&path).unwrap().predictions, [added[1].clone(), added[0].clone()]);
    assert!(keep_prediction(&path.join("nowhere"), &added[0]).is_err());
}

#[test]
fn dying_while_a_prediction_is_added_leaves_it_out_or_in() {
    let (first, second) = (sample(), Profile { predictions: vec![prediction("e5504", 9)], ..sample() });
    let mut seen = [0, 0];
    // Write, sync, rename, sync.
    for survived in 0..=4 {
        let folder = MemoryFolder::default();
        flush(&folder, 1, Cow::Borrowed(&first), true).unwrap();
        folder.left.set(Some(survived));
        let added = add_prediction(&folder, &second.predictions[0]);
        folder.left.set(None);
        folder.lose_unsynced();
        let found = reader::open(&folder).unwrap();
        assert!(found == first || found == second, "after {survived} operations");
        assert!(added.is_err() || found == second);
        seen[usize::from(found == second)] += 1;
    }
    assert!(seen[0] >= 3 && seen[1] >= 1, "{seen:?}");
}

#[test]
fn dying_in_the_first_flush_leaves_no_profile_and_a_clear_message() {
    for survived in 0..13 {
        let folder = MemoryFolder::default();
        folder.left.set(Some(survived));
        assert!(matches!(
            flush(&folder, 1, Cow::Borrowed(&sample()), true),
            Err(WriteError::DiskFull { .. })
        ));
        assert!(matches!(reader::open(&folder), Err(OpenError::NotAProfile { .. })), "{survived}");
    }
}

/// Every file cut at every 1 KB step and at its last bytes: an error that names the file, or, where the
/// manifest loses nothing but its last line break, the same profile.
#[test]
fn every_truncation_is_a_clean_error() {
    let mut profile = sample();
    // Some kilobytes of text, so that there are steps to cut at.
    profile.frames[0].source_text =
        Some((0..3000u32).map(|n| char::from(b'a' + (n * n % 23) as u8)).collect::<String>().into());
    let (guard, path) = on_disk(&profile);
    let mut cuts = 0;
    for entry in std::fs::read_dir(&path).unwrap() {
        let name = entry.unwrap().file_name();
        let content = std::fs::read(path.join(&name)).unwrap();
        let steps = (0..content.len()).step_by(1024).chain(content.len() - 1..content.len());
        for cut in steps.chain((0..content.len()).step_by(97)) {
            let damaged = guard.path().join(format!("cut{cuts}"));
            copy(&path, &damaged);
            std::fs::write(damaged.join(&name), &content[..cut]).unwrap();
            let problem = Profile::open(&damaged).unwrap_err();
            assert!(matches!(problem, OpenError::Damaged { .. }), "{name:?} cut at {cut}: {problem}");
            assert!(problem.to_string().contains(name.to_str().unwrap()), "{problem}");
            std::fs::remove_dir_all(&damaged).unwrap();
            cuts += 1;
        }
    }
    assert!(cuts > 100);
}

#[test]
fn flipped_and_missing_bytes_are_found() {
    let (_guard, path) = on_disk(&sample());
    let file = path.join("objects-000001.parquet");
    let mut content = std::fs::read(&file).unwrap();
    content[100] ^= 1;
    std::fs::write(&file, &content).unwrap();
    let problem = Profile::open(&path).unwrap_err().to_string();
    assert!(problem.contains("checksum") && problem.contains("objects-000001"), "{problem}");
    std::fs::remove_file(&file).unwrap();
    let problem = Profile::open(&path).unwrap_err().to_string();
    assert!(problem.contains("missing"), "{problem}");
}

#[test]
fn other_versions_and_other_things_are_refused() {
    let (guard, path) = on_disk(&sample());
    let manifest = path.join("profile.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let with = |from: &str, to: &str| std::fs::write(&manifest, text.replacen(from, to, 1)).unwrap();

    with("\"format_version\": 1", "\"format_version\": 2");
    let problem = Profile::open(&path).unwrap_err();
    assert!(matches!(problem, OpenError::NewerVersion { found: 2, .. }), "{problem}");
    assert!(problem.to_string().contains(env!("CARGO_PKG_VERSION")));
    with("\"format_version\": 1", "\"format_version\": 0");
    assert!(matches!(Profile::open(&path), Err(OpenError::UnknownVersion { found: 0, .. })));
    with("\"memlens-profile\"", "\"other\"");
    assert!(matches!(Profile::open(&path), Err(OpenError::NotAProfile { .. })));
    with("objects-000001.parquet", "../../etc/passwd");
    assert!(matches!(Profile::open(&path), Err(OpenError::Damaged { .. })));
    // A key that a later memlens adds is passed over.
    with("\"generation\"", "\"colour\": \"blue\", \"generation\"");
    Profile::open(&path).unwrap();

    assert!(matches!(Profile::open(&guard.path().join("nothing")), Err(OpenError::NotFound { .. })));
    assert!(matches!(Profile::open(&manifest), Err(OpenError::NotAProfile { .. })));
    assert!(matches!(Profile::open(guard.path()), Err(OpenError::NotAProfile { .. })));
    let empty = guard.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let problem = Profile::open(&empty).unwrap_err().to_string();
    assert!(problem.contains("is not a memlens profile: it is empty"), "{problem}");
}

#[test]
fn nothing_is_overwritten_by_accident() {
    let (guard, path) = on_disk(&sample());
    let create = ProfileWriter::create;
    assert!(matches!(create(&path, Existing::Refuse), Err(WriteError::Exists { .. })));
    // Told to, it replaces a profile, which stays readable until the first flush.
    let mut writer = create(&path, Existing::Replace).unwrap();
    assert_eq!(Profile::open(&path).unwrap(), sample());
    writer.flush(&Profile::default(), true).unwrap();
    assert_eq!(Profile::open(&path).unwrap(), Profile::default());
    // What is no profile stays in any case.
    std::fs::write(guard.path().join("thesis.txt"), "precious").unwrap();
    for place in [guard.path().to_owned(), guard.path().join("thesis.txt")] {
        assert!(matches!(create(&place, Existing::Refuse), Err(WriteError::Exists { .. })));
        assert!(matches!(create(&place, Existing::Replace), Err(WriteError::NotAProfile { .. })));
    }
    let deep = guard.path().join("no/such/folder");
    assert!(matches!(create(&deep, Existing::Refuse), Err(WriteError::NoParent { .. })));
    let empty = guard.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    create(&empty, Existing::Refuse).unwrap();
}

#[test]
fn missing_permissions_are_named() {
    let (guard, path) = on_disk(&sample());
    let mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    mode(&path, 0o000);
    let readable_anyway = std::fs::read_dir(&path).is_ok(); // root may read everything
    let opened = Profile::open(&path);
    mode(&path, 0o755);
    mode(guard.path(), 0o555);
    let created = ProfileWriter::create(&guard.path().join("q"), Existing::Refuse);
    mode(guard.path(), 0o755);
    if !readable_anyway {
        assert!(matches!(opened, Err(OpenError::Permission { .. })), "{opened:?}");
        assert!(matches!(created, Err(WriteError::Permission { .. })), "{created:?}");
    }
}

#[test]
fn dangling_indices_of_a_file_are_refused() {
    let mut profile = sample();
    profile.objects[0].site = Some(StackIx(2));
    let (_guard, path) = on_disk(&profile);
    let problem = Profile::open(&path).unwrap_err().to_string();
    assert!(problem.contains("row 0 of objects refers to row 2 of stacks"), "{problem}");
}

/// `docs/profile-format.md` is written by hand except for its tables, which must be these.
#[test]
fn the_documentation_holds_the_schema() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/profile-format.md");
    let page = std::fs::read_to_string(page).unwrap();
    let schema = super::schema_markdown();
    assert!(page.contains(schema.trim_end()), "replace the tables of docs/profile-format.md by:\n{schema}");
    assert!(page.contains(&format!("format version {}", super::FORMAT_VERSION)));
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z]{1,4}", "\\PC{0,6}"]
}

fn some_counts() -> impl Strategy<Value = Counts> {
    (prop::array::uniform5(0..1u64 << 50), 0..1000u64).prop_map(|(n, small)| Counts {
        loads: n[0],
        stores: n[1],
        llc_store_misses: n[2],
        dram_writes: n[3],
        invalidations: n[4],
        page_walk_accesses: small,
        ..Counts::default()
    })
}

prop_compose! {
    fn some_profile()(
        modules in prop::collection::vec((text(), prop::option::of(text()), any::<bool>()), 1..4),
        frames in prop::collection::vec(
            (any::<Option<bool>>(), any::<u64>(), prop::option::of(text()), any::<Option<u32>>(), any::<bool>()), 1..20),
        stacks in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..6), 1..9),
        objects in prop::collection::vec(
            (0..9usize, text(), any::<Option<u64>>(), prop::option::of((text(), any::<u32>())), some_counts()), 1..20),
        code in prop::collection::vec((0..5usize, any::<u8>(), any::<u32>(), some_counts()), 1..20),
        cells in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), some_counts()), 0..40),
        notes in prop::collection::vec(text(), 0..3),
        wall in any::<Option<u32>>(),
    ) -> Profile {
        let ids = 1..;
        let mut profile = Profile {
            modules: modules.into_iter().map(|(path, build_id, has_debug)| Module { path, build_id, has_debug }).collect(),
            frames: frames.into_iter().map(|(module, offset, function, line, inlined)| {
                let name: Option<Arc<str>> = function.map(Arc::from);
                Frame {
                    module: module.map(|_| ModuleIx(0)), offset, file: name.clone(), function: name, line, inlined,
                    ..Frame::default()
                }
            }).collect(),
            objects: ids.clone().zip(objects).map(|(id, (kind, name, bytes, declared, counts))| Object {
                id, kind: ObjectKind::ALL[kind], name, bytes,
                declared: declared.map(|(file, line)| SourceLine { file, line }), counts, ..Object::default()
            }).collect(),
            code: ids.zip(code).map(|(id, (kind, operand, size_bytes, counts))| CodeLocation {
                id, kind: AccessKind::ALL[kind], operand, size_bytes, counts: counts.into(), ..CodeLocation::default()
            }).collect(),
            threads: vec![Thread::default()],
            ..Profile::default()
        };
        let frames = profile.frames.len();
        profile.stacks = stacks.into_iter()
            .map(|stack| Stack(stack.into_iter().map(|frame| FrameIx::from_index(frame.index(frames))).collect()))
            .collect();
        profile.cells = cells.into_iter().map(|(code, object, counts)| Cell {
            code: CodeIx::from_index(code.index(profile.code.len())),
            object: ObjectIx::from_index(object.index(profile.objects.len())),
            thread: ThreadIx(0),
            counts: counts.into(),
        }).collect();
        profile.run.notes = notes;
        profile.run.wall_seconds = wall.map(|wall| f64::from(wall) / 7.0);
        profile
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_profile_survives_the_store(profile in some_profile()) {
        let folder = MemoryFolder::default();
        flush(&folder, 1, Cow::Borrowed(&profile), true).unwrap();
        prop_assert_eq!(reader::open(&folder).unwrap(), profile);
    }

    /// A reader must not believe a file, even when size and checksum match it.
    #[test]
    fn forged_tables_are_an_error_or_a_profile(at in any::<prop::sample::Index>(), flip in 1..=255u8, table in 0..9usize) {
        let folder = MemoryFolder::default();
        flush(&folder, 1, Cow::Borrowed(&sample()), true).unwrap();
        let name = format!("{}-000001.parquet", super::schema::KNOWN_TABLES[table]);
        let mut content = folder.read(&name).unwrap();
        let at = at.index(content.len());
        let before = crc32fast::hash(&content);
        content[at] ^= flip;
        let manifest = String::from_utf8(folder.read("profile.json").unwrap()).unwrap();
        let manifest = manifest.replacen(&before.to_string(), &crc32fast::hash(&content).to_string(), 1);
        folder.write(&name, &content).unwrap();
        folder.write("profile.json", manifest.as_bytes()).unwrap();
        let _ = reader::open(&folder);
    }
}

/// Prints what the store costs: `cargo test --release -p memlens-profile -- --ignored --nocapture cost`.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_million_cells() {
    let mut profile = sample();
    let code = 20_000u32;
    profile.code =
        (0..code).map(|n| CodeLocation { id: n + 1, offset: n.into(), ..Default::default() }).collect();
    profile.objects =
        (0..5000).map(|n| Object { id: n + 1, name: format!("object {n}"), ..Default::default() }).collect();
    profile.cells = (0..1_000_000u32)
        .map(|n| Cell {
            code: CodeIx(n % code),
            object: ObjectIx(n / 200),
            thread: ThreadIx(0),
            counts: Counts { loads: u64::from(n % 1000) * 17, load_bytes: 8, ..Counts::default() }.into(),
        })
        .collect();
    profile.sum_cells();
    let started = std::time::Instant::now();
    let (_guard, path) = on_disk(&profile);
    let written = started.elapsed();
    let started = std::time::Instant::now();
    let read = Profile::open(&path).unwrap();
    let elapsed = started.elapsed();
    assert!(read == profile);
    let bytes: u64 =
        std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    println!("1,000,000 cells: written in {written:?}, read in {elapsed:?}, {bytes} bytes");
}

/// Profiles of before call paths were stored have no such tables: they are whole.
#[test]
fn a_profile_without_tables_that_came_later_is_read() {
    let (_guard, path) = on_disk(&sample());
    let manifest = path.join("profile.json");
    let mut document: serde_json::Value = serde_json::from_slice(&std::fs::read(&manifest).unwrap()).unwrap();
    for table in ["patterns", "object_patterns", "fields", "field_uses", "paths", "path_samples"] {
        assert!(document["tables"].as_object_mut().unwrap().remove(table).is_some());
        std::fs::remove_file(path.join(format!("{table}-000001.parquet"))).unwrap();
    }
    std::fs::write(&manifest, document.to_string()).unwrap();
    let expected = Profile {
        patterns: Vec::new(),
        object_patterns: Vec::new(),
        fields: Vec::new(),
        field_uses: Vec::new(),
        paths: Vec::new(),
        path_cells: Vec::new(),
        ..sample()
    };
    assert_eq!(Profile::open(&path).unwrap(), expected);
    // Any other table is missed.
    document["tables"].as_object_mut().unwrap().remove("cells");
    std::fs::write(&manifest, document.to_string()).unwrap();
    assert!(matches!(Profile::open(&path), Err(OpenError::Damaged { .. })));
}

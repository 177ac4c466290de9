//! What the exports say of a profile made by hand.

use std::io::Read;

use flate2::read::GzDecoder;
use memlens_profile::{
    CacheInfo, CallPath, Cell, CodeLocation, Frame, FrameIx, Module, ModuleIx, Object, ObjectIx, PathIx,
    PathUse, Stack, StackIx, Thread,
};
use memlens_types::{Counts, ObjectKind};
use prost::Message;

use super::pprof::proto;
use super::*;

/// `main` allocates an array in `make`, and goes through it and a global in `walk`, by two calls; a line of the array is written back.
fn profile() -> Profile {
    let frame = |function: &str, line| Frame {
        module: Some(ModuleIx(0)),
        offset: 0x1000 + u64::from(line),
        function: Some(function.into()),
        file: Some("/src/app.c".into()),
        line: Some(line),
        ..Frame::default()
    };
    let cell = |object, loads, misses| Cell {
        object: ObjectIx(object),
        counts: Counts {
            loads,
            load_bytes: 8 * loads,
            l1_load_misses: misses,
            dram_reads: misses,
            ..Counts::default()
        }
        .into(),
        ..Cell::default()
    };
    let mut profile = Profile {
        modules: vec![Module { path: "/bin/app".into(), build_id: Some("00ff".into()), has_debug: true }],
        frames: vec![
            frame("make", 3),
            frame("main", 20),
            frame("walk", 10),
            frame("main", 30),
            frame("a;b", 40),
        ],
        stacks: vec![Stack(vec![FrameIx(0), FrameIx(1)]), Stack(vec![FrameIx(2)])],
        objects: vec![
            Object {
                id: 7,
                kind: ObjectKind::Heap,
                name: "array".into(),
                site: Some(StackIx(0)),
                counts: Counts { dram_writes: 5, ..Counts::default() },
                ..Object::default()
            },
            Object {
                id: 9,
                kind: ObjectKind::Global,
                name: "walk".into(),
                module: Some(ModuleIx(0)),
                ..Object::default()
            },
        ],
        code: vec![CodeLocation {
            id: 1,
            stack: Some(StackIx(1)),
            module: Some(ModuleIx(0)),
            ..CodeLocation::default()
        }],
        cells: vec![cell(0, 1000, 100), cell(1, 500, 0)],
        threads: vec![Thread::default()],
        paths: vec![
            CallPath { parent: None, frame: FrameIx(3) },
            CallPath { parent: None, frame: FrameIx(4) },
            CallPath { parent: Some(PathIx(0)), frame: FrameIx(2) },
            CallPath { parent: Some(PathIx(1)), frame: FrameIx(2) },
        ],
        ..Profile::default()
    };
    profile.machine.l1d = Some(CacheInfo::default());
    profile.run.command = vec!["./app".into()];
    profile.run.mode = "exact".into();
    profile.sum_cells();
    let path = |path, accesses, misses| PathUse::new(Some(PathIx(path)), accesses, [misses; 5]);
    let of_array = vec![path(2, 0.5, 0.1), path(3, 0.5, 0.9)];
    profile.divide_among_paths(|cell| (cell.object == ObjectIx(0)).then_some(&of_array));
    profile.validate().expect("sound");
    profile
}

fn folded_lines(tree: Tree, column: Column) -> Vec<String> {
    let mut text = Vec::new();
    crate::folded(&profile(), tree, Some(column), &mut text).expect("memory");
    String::from_utf8(text).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn stacks_grow_from_data_or_from_code() {
    assert_eq!(
        folded_lines(Tree::Data, Column::Loads),
        ["global;app;walk;walk 500", "heap;main;make;array;walk 1000"]
    );
    assert_eq!(folded_lines(Tree::Data, Column::DramWrites), ["heap;main;make;array 5"]);
    // A separator in a name is none.
    assert_eq!(
        folded_lines(Tree::Code, Column::L1Misses),
        ["a:b;walk;array (heap) 90", "main;walk;array (heap) 10"]
    );
    assert_eq!(
        folded_lines(Tree::Code, Column::Loads),
        ["a:b;walk;array (heap) 500", "main;walk;array (heap) 500", "no call path known;walk (global) 500"]
    );
    assert_eq!(folded_lines(Tree::Code, Column::DramWrites), ["no call path known;array (heap) 5"]);
}

#[test]
fn pprof_has_all_counts_at_functions_and_objects() {
    let mut packed = Vec::new();
    pprof(&profile(), Tree::Code, &mut packed).expect("memory");
    let mut bytes = Vec::new();
    GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).expect("gzip");
    let found = proto::Profile::decode(bytes.as_slice()).expect("a message");
    let text = |number: i64| found.string_table[number as usize].as_str();
    let columns: Vec<(&str, &str)> =
        found.sample_type.iter().map(|it| (text(it.r#type), text(it.unit))).collect();
    assert_eq!(found.string_table[0], "");
    assert!(
        columns.contains(&("load_bytes", "bytes")) && columns.contains(&("dram_writes", "count")),
        "{columns:?}"
    );
    assert_eq!(columns.last(), Some(&("wait_cycles", "cycles")));
    assert_eq!(text(found.default_sample_type), "wait_cycles");
    let totals = profile().totals();
    let sum = |name: &str| {
        let at = columns.iter().position(|(column, _)| *column == name).expect("a column");
        found.sample.iter().map(|sample| sample.value[at] as u64).sum::<u64>()
    };
    assert_eq!((sum("loads"), sum("l1_misses"), sum("dram_writes")), (totals.loads, 100, 5));
    assert!(found.sample.iter().all(|sample| sample.value.len() == columns.len()));
    // The innermost level is the data.
    let stacks: Vec<Vec<String>> = found
        .sample
        .iter()
        .map(|sample| {
            let level = |id: &u64| {
                let line = &found.location[*id as usize - 1].line[0];
                let function = &found.function[line.function_id as usize - 1];
                format!("{} {}:{}", text(function.name), text(function.filename), line.line)
            };
            sample.location_id.iter().map(level).collect()
        })
        .collect();
    let wanted = ["array (heap) /src/app.c:3", "walk /src/app.c:10", "main /src/app.c:30"];
    assert!(stacks.contains(&wanted.map(str::to_owned).to_vec()), "{stacks:?}");
    let mapping = &found.mapping[0];
    assert_eq!((text(mapping.filename), text(mapping.build_id)), ("/bin/app", "00ff"));
    let labels: Vec<(&str, &str, i64)> =
        found.sample[0].label.iter().map(|it| (text(it.key), text(it.str), it.num)).collect();
    assert!(labels.contains(&("kind", "heap", 0)) && labels.contains(&("id", "", 7)), "{labels:?}");
}

#[test]
fn a_flame_graph_names_what_is_in_it() {
    let mut svg = Vec::new();
    crate::flame_graph(&profile(), Tree::Data, None, &mut svg).expect("memory");
    let svg = String::from_utf8(svg).expect("text");
    assert!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"));
    for word in ["wait cycles of ./app", "<title>array (", "<title>make ("] {
        assert!(svg.contains(word), "{word}");
    }
    assert!(crate::stacks_total(&profile(), None) > 0);
    assert_eq!(crate::stacks_total(&Profile::default(), None), 0);
    assert_eq!(crate::stacks_total(&profile(), Some(Column::StlbMisses)), 0);
}

#[test]
fn numbers_at_a_names_end_are_no_amounts() {
    let mut profile = profile();
    profile.objects[0].name = "stack of thread 3".into();
    let mut text = Vec::new();
    crate::folded(&profile, Tree::Data, Some(Column::DramWrites), &mut text).expect("memory");
    assert_eq!(String::from_utf8(text).expect("text"), "heap;main;make;stack of thread_3 5\n");
}

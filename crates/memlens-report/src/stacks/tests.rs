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

/// [`profile`] with blocks: 3 of 240 bytes in the array, a further object of the same call stack, and one that was found through a pointer.
fn heap() -> Profile {
    let mut profile = profile();
    profile.run.pid = Some(42);
    profile.run.instructions = Some(9000);
    profile.objects[0].blocks = 3;
    profile.objects[0].bytes = Some(240);
    let heap = |id, name: &str| Object { id, kind: ObjectKind::Heap, name: name.into(), ..Object::default() };
    let counts = Counts { stores: 2, store_bytes: 8, l1_store_misses: 1, ..Counts::default() };
    let twin = Object { site: Some(StackIx(0)), blocks: 1, bytes: Some(10), counts, ..heap(10, "twin") };
    let pointed = Object { counts, ..heap(11, "heap through head") };
    profile.objects.extend([twin, pointed]);
    profile
}

fn dhat(profile: &Profile, column: Option<Column>) -> String {
    let mut text = Vec::new();
    crate::Dhat::of(profile, column).write(&mut text).expect("memory");
    String::from_utf8(text).expect("text")
}

#[test]
fn dhat_has_one_point_for_each_call_stack_that_allocated() {
    // 240 + 10 bytes in 3 + 1 blocks; a thousand loads of 8 bytes.
    let wanted = concat!(
        r#"{"dhatFileVersion":2,"mode":"heap, memlens exact","verb":"Allocated","bklt":false,"bkacc":true,"#,
        r#""tu":"instrs","Mtu":"Minstr","cmd":"./app","pid":42,"te":9000,"#,
        r#""pps":[{"tb":250,"tbk":4,"rb":8000,"wb":8,"fs":[1,2]}],"#,
        r#""ftbl":["[root]","0x1003: make (app.c:3)","0x1014: main (app.c:20)"]}"#,
        "\n"
    );
    assert_eq!(dhat(&heap(), None), wanted);
    // Without a source line the file's path stands there, without a function the viewer's word for that; and what is estimated is said to be.
    let mut bare = heap();
    bare.run.estimated = true;
    bare.run.mode = "burst".into();
    (bare.run.pid, bare.run.instructions, bare.run.wall_seconds) = (None, None, Some(0.5));
    bare.frames[0] = Frame { module: Some(ModuleIx(0)), offset: 0xabc, ..Frame::default() };
    bare.frames[1] = Frame { offset: 0x7f00, ..Frame::default() };
    let wanted = concat!(
        r#"{"dhatFileVersion":2,"mode":"heap, memlens burst, estimated","verb":"Allocated","bklt":false,"bkacc":true,"#,
        r#""tu":"µs","Mtu":"s","cmd":"./app","pid":0,"te":500000,"#,
        r#""pps":[{"tb":250,"tbk":4,"rb":8000,"wb":8,"fs":[1,2]}],"#,
        r#""ftbl":["[root]","0xABC: ??? (in /bin/app)","0x7F00: ???"]}"#,
        "\n"
    );
    assert_eq!(dhat(&bare, None), wanted);
}

#[test]
fn dhat_shows_a_column_in_place_of_bytes() {
    // 100 + 1 misses in 1,000 + 2 accesses of the call stack, and those of a block whose allocation nobody saw.
    let wanted = concat!(
        r#"{"dhatFileVersion":2,"mode":"l1_misses of the heap, memlens exact","verb":"Allocated","bklt":false,"bkacc":false,"#,
        r#""bu":"l1_misses","bsu":"l1_misses","bksu":"accesses","#,
        r#""tu":"instrs","Mtu":"Minstr","cmd":"./app","pid":42,"te":9000,"#,
        r#""pps":[{"tb":101,"tbk":1002,"fs":[1,2]},{"tb":1,"tbk":2,"fs":[3]}],"#,
        r#""ftbl":["[root]","0x1003: make (app.c:3)","0x1014: main (app.c:20)","heap through head"]}"#,
        "\n"
    );
    assert_eq!(dhat(&heap(), Some(Column::L1Misses)), wanted);
}

#[test]
fn dhat_tells_how_much_it_leaves_out() {
    let of = |column| {
        let dhat = crate::Dhat::of(&heap(), column);
        (dhat.cost(), dhat.left_out())
    };
    // The global has 500 of 1,500 loads, and none of the misses.
    assert_eq!(of(Some(Column::Loads)), ("loads", 500.0 / 1500.0));
    assert_eq!(of(Some(Column::L1Misses)), ("l1_misses", 0.0));
    assert_eq!(of(None).0, "wait_cycles");
    assert!(crate::Dhat::of(&profile(), None).is_empty(), "no bytes are known");
    assert!(crate::Dhat::of(&Profile::default(), Some(Column::Loads)).is_empty());
}

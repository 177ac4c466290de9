//! What the reports of a hand-made profile say.

mod bfs;

use std::collections::HashMap;

use memlens_profile::{
    CallPath, Cell, CodeLocation, CoreInfo, Element, Field, FieldIx, FieldUse, Frame, FrameIx, Latencies,
    MachineInfo, Mark, Object, ObjectBacking, ObjectIx, PathCell, PathIx, PathUse, PredictedCause,
    PredictedPlacement, PredictedWalks, Prediction, Profile, SamplingInfo, Stack, StackIx, Thread,
};
use memlens_report::{By, Column, View, code_detail, csv, json, object_detail, prediction_table, table};
use memlens_types::{Counts, Sampled};
use serde_json::{Value, json as value};
use unicode_width::UnicodeWidthStr;

#[test]
fn kept_predictions_are_in_the_header_and_the_json() {
    let walks = |page_walks, cause: &str| PredictedWalks {
        page_walks,
        page_walk_accesses: 2 * page_walks,
        extra_memory_bytes: 0,
        causes: vec![PredictedCause {
            name: cause.into(),
            kind: "heap".into(),
            page_walks,
            page_walk_accesses: 0,
        }],
    };
    let mut profile = bfs::profile();
    assert_eq!(json(&profile)["predictions"], value!([]));
    profile.predictions = vec![Prediction {
        command: vec!["./bfs".into(), "16".into()],
        machine: "e5504".into(),
        small_pages: walks(1000, "column"),
        huge_pages: vec![PredictedPlacement {
            objects: vec![1],
            names: vec!["column".into()],
            walks: walks(30, "rowstarts"),
        }],
        all_huge_pages: walks(10, "pred"),
        ..Prediction::default()
    }];
    let kept = &json(&profile)["predictions"][0];
    assert_eq!(kept["huge_pages"][0]["page_walks"], 30);
    assert_eq!(kept["huge_pages"][0]["causes"][0]["name"], "rowstarts");
    let text = table(&profile, &View { width: 140, ..View::default() });
    let line = text.lines().find(|line| line.starts_with("predicted")).expect("a line of its own");
    for part in
        ["./bfs 16 on e5504", "with column in huge pages 30 of 1.00k page walks", "then most of rowstarts"]
    {
        assert!(line.contains(part), "{line}");
    }
    let whole = prediction_table(&profile.predictions[0]);
    assert!(
        whole.contains("-97.0 %") && whole.contains("rowstarts (heap) causes most page walks: 100.0 %"),
        "{whole}"
    );
}

#[test]
fn threads_are_summed_by_process() {
    let mut profile = bfs::profile();
    let thread = |tid: u32, pid: u32, name: &str, loads: u64| Thread {
        tid,
        pid: Some(pid),
        name: (!name.is_empty()).then(|| name.to_owned()),
        counts: Counts { loads, ..Counts::default() },
        ..Thread::default()
    };
    profile.threads = vec![thread(11, 10, "worker", 5), thread(10, 10, "server", 7), thread(20, 20, "", 3)];
    let text = table(&profile, &View { by: By::Process, width: 140, ..View::default() });
    let line = |name: &str| text.lines().find(|line| line.contains(name)).expect(name);
    assert!(line("server (10), 2 threads").contains(" 12 "), "{text}");
    // Without a name of its own it has the program's.
    assert!(line("bfs (20)").contains(" 3 ") && text.ends_with("2 processes\n"), "{text}");
}

#[test]
fn json_has_every_field_of_the_design() {
    let report = json(&bfs::profile());
    assert_eq!(report["schema"], "memlens-report/1");
    let has = |object: &Value, keys: &str| {
        for key in keys.split_whitespace() {
            assert!(object.get(key).is_some(), "{key} is missing in {object}");
        }
    };
    has(&report["run"], "command mode exit_code signal wall_seconds instructions threads");
    has(&report["machine"], "name line_bytes page_bytes l1d l2 llc dtlb stlb");
    assert_eq!(report["machine"]["dtlb"], value!({"entries": 72, "ways": 72}));
    assert_eq!(report["machine"]["l1d"]["bytes"], 32768);
    has(
        &report["totals"],
        "loads stores load_bytes store_bytes l1_misses l1_load_misses l1_store_misses l2_misses llc_misses \
         llc_load_misses llc_store_misses dram_reads dram_writes dtlb_misses stlb_misses page_walk_accesses \
         l1_miss_ratio llc_miss_ratio",
    );
    has(&report["attribution"], "attributed_accesses unknown_accesses unknown_reasons lost_events");
    for object in report["objects"].as_array().unwrap() {
        has(
            object,
            "id kind name type blocks bytes site declared loads stores load_bytes store_bytes l1_misses \
             l2_misses llc_misses dram_reads dram_writes dtlb_misses stlb_misses page_walk_accesses",
        );
    }
    for instruction in report["instructions"].as_array().unwrap() {
        has(instruction, "module offset function file line loads stores l1_misses llc_misses objects");
    }
    // The most expensive comes first.
    let column = &report["objects"][0];
    assert_eq!(
        (&column["name"], &column["kind"], &column["type"]),
        (&value!("column"), &value!("heap"), &value!("int*"))
    );
    // 134,217,728 loads of 4 bytes; 10,400,000 + 8,388,608 L1 misses.
    assert_eq!(column["load_bytes"], 536_870_912);
    assert_eq!(column["l1_misses"], 18_788_608);
    assert_eq!(column["declared"], Value::Null);
    assert_eq!(column["site"][0]["function"], "read_graph");
    assert_eq!(column["site"][0]["module"], "bfs");
    assert_eq!(column["site"][0]["offset"], "0x131f");
    assert_eq!(column["site"][1]["line"], 81);
    // `newq[tail++] = w` touches the queue (5) and the frame (7).
    let push = report["instructions"].as_array().unwrap().iter().find(|entry| entry["line"] == 65).unwrap();
    assert_eq!((&push["objects"], &push["offset"]), (&value!([5, 7]), &value!("0x1628")));
    // Equal profiles give equal text.
    assert_eq!(report.to_string(), json(&bfs::profile()).to_string());
}

#[test]
fn unknown_is_null_and_never_zero() {
    let mut profile = bfs::profile();
    profile.machine = MachineInfo { l2: None, dtlb: None, stlb: None, ..profile.machine };
    profile.run.instructions = None;
    let report = json(&profile);
    for place in [&report["totals"], &report["objects"][0]] {
        for key in ["l2_misses", "dtlb_misses", "stlb_misses", "page_walk_accesses"] {
            assert_eq!(place[key], Value::Null, "{key}");
        }
        assert!(place["llc_misses"].is_u64());
    }
    assert_eq!(report["machine"]["l2"], Value::Null);
    assert_eq!(report["run"]["instructions"], Value::Null);
    // An instruction has no write-backs of its own.
    assert_eq!(report["instructions"][0]["dram_writes"], Value::Null);
    let unknown =
        report["objects"].as_array().unwrap().iter().find(|object| object["kind"] == "unknown").unwrap();
    assert_eq!((&unknown["bytes"], &unknown["site"]), (&Value::Null, &Value::Null));
}

#[test]
fn two_operands_are_one_instruction() {
    let mut profile = bfs::profile();
    let mut second = profile.code[1].clone();
    (second.id, second.operand) = (99, 1);
    let loads = second.counts.get().loads;
    profile.code.push(second);
    let report = json(&profile);
    let edges: Vec<_> =
        report["instructions"].as_array().unwrap().iter().filter(|entry| entry["line"] == 61).collect();
    assert_eq!(edges.len(), 1);
    assert_eq!(edges[0]["loads"], 2 * loads);
}

#[test]
fn no_line_is_wider_than_the_terminal_and_none_ends_in_blanks() {
    let mut profile = bfs::profile();
    fits(&profile);
    // Names as C++ and Rust have them, and wide characters.
    profile.objects[1].name = "std::unordered_map<std::string, std::vector<数据<int>>>::node ".repeat(3);
    profile.objects[1].type_name = Some("std::vector<数据<int>> const volatile *restrict".repeat(2));
    for frame in &mut profile.frames {
        let long = |name| format!("{name}<数据, core::option::Option<u64>>").repeat(2).into();
        frame.function = frame.function.take().map(long);
        frame.file = frame.file.take().map(|file| file.replace("bfs", &"数据_and_more".repeat(4)).into());
    }
    profile.run.command = vec!["./数据\n".repeat(40)];
    profile.run.notes = vec!["something to know ".repeat(20); 5];
    fits(&profile);
}

fn fits(profile: &Profile) {
    for width in 80..=200 {
        for by in By::ALL {
            let text = table(profile, &View { width, by, ..View::default() });
            for line in text.lines() {
                assert!(line.width() <= width, "{} columns instead of {width}: {line}", line.width());
                assert_eq!(line, line.trim_end());
            }
            assert!(!text.contains('\x1b'));
        }
        let view = View { width, ..View::default() };
        let details =
            object_detail(profile, "1", &view).unwrap() + &code_detail(profile, "bfs_from", &view).unwrap();
        assert!(details.lines().all(|line| line.width() <= width), "{width}: {details}");
    }
}

#[test]
fn colours_change_nothing_but_colours() {
    let profile = bfs::profile();
    for width in [80, 140] {
        let plain = table(&profile, &View { width, ..View::default() });
        let mut coloured = table(&profile, &View { width, colour: true, ..View::default() });
        assert!(coloured.contains("\x1b[1;31m"));
        for code in ["0", "1", "2", "33", "1;31"] {
            coloured = coloured.replace(&format!("\x1b[{code}m"), "");
        }
        assert_eq!(coloured, plain);
    }
}

#[test]
fn the_header_is_short_and_honest() {
    for width in 80..=200 {
        let text = table(&bfs::profile(), &View { width, ..View::default() });
        let header = text.lines().take_while(|line| !line.is_empty()).count();
        assert!(header <= 9, "{text}");
    }
    let header = table(&bfs::profile(), &View::default());
    for words in [
        "./bfs rmat-22.el",
        "exact mode",
        "counted",
        "modelled",
        "40.2k memory of the loader",
        "0 lost events",
    ] {
        assert!(header.contains(words), "{words}: {header}");
    }
}

#[test]
fn moments_that_the_program_named_are_told() {
    let mut profile = bfs::profile();
    let mark =
        |number: u64| Mark { instructions: 1000 * number, thread: None, name: format!("step {number}") };
    profile.marks = (1..=8).map(mark).collect();
    let text = table(&profile, &View::default());
    assert!(text.contains("step 1 at 1.00k instructions") && text.contains("2 marks more"), "{text}");
    let json = json(&profile);
    assert_eq!(json["run"]["marks"].as_array().map(Vec::len), Some(8));
    assert_eq!(json["run"]["marks"][1]["instructions"], 2000);
}

#[test]
fn sorting_by_every_column_works_and_shows_it() {
    let profile = bfs::profile();
    for column in Column::ALL {
        assert_eq!(column.as_str().parse::<Column>(), Ok(column));
        table(&profile, &View { sort: Some(column), ..View::default() });
    }
    let first = |sort: &str| {
        let mut out = Vec::new();
        csv(&profile, &View { sort: Some(sort.parse().unwrap()), ..View::default() }, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines().nth(1).unwrap().split(',').nth(3).unwrap().to_owned()
    };
    assert_eq!(first("loads"), "column"); // as many as visited, but dearer
    assert_eq!(first("l1-misses"), "visited");
    assert_eq!(first("name"), "column");
    assert_eq!(first("id"), "column");
    assert_eq!(first("blocks"), "newq");
    assert_eq!(first("l1_miss_ratio"), "pred");
    // l2_misses is no column of the default table: it comes in when asked for.
    let text = table(&profile, &View { sort: Some(Column::L2Misses), width: 80, ..View::default() });
    assert!(text.contains("l2_misses"), "{text}");
    let problem = "lodas".parse::<Column>().unwrap_err().to_string();
    assert_eq!(problem, "‘lodas’ is no column; did you mean ‘loads’?");
    assert!("objekt".parse::<By>().unwrap_err().to_string().contains("‘object’"));
}

#[test]
fn sorting_by_what_no_row_has_says_so() {
    let sorted = |sort| table(&bfs::profile(), &View { sort: Some(sort), ..View::default() });
    let text = sorted(Column::Samples);
    assert!(text.ends_with("\nnone has samples: sorted by the wait\n"), "{text}");
    assert!(!sorted(Column::Loads).contains("none has"));
}

#[test]
fn a_reason_that_is_the_name_is_not_the_place_as_well() {
    let mut profile = bfs::profile();
    let place = |profile: &Profile| {
        let mut out = Vec::new();
        csv(profile, &View { by: By::Object, top: None, ..View::default() }, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let at = Column::ALL.iter().position(|column| *column == Column::Where).unwrap();
        let row = text.lines().find(|line| line.split(',').any(|field| field == "unknown")).unwrap();
        row.split(',').nth(at).unwrap().to_owned()
    };
    assert_eq!(place(&profile), "memory of the loader");
    let unknown = profile.objects.iter_mut().find(|object| object.unknown_reason.is_some()).unwrap();
    unknown.name = "memory of the loader".into();
    assert_eq!(place(&profile), "");
}

#[test]
fn every_grouping_adds_up_to_the_totals() {
    let profile = with_fields();
    let totals = profile.totals();
    // Call paths are of samples, which count neither loads nor misses.
    for by in By::ALL.into_iter().filter(|by| *by != By::Caller) {
        let mut out = Vec::new();
        csv(&profile, &View { by, top: None, ..View::default() }, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let at = |column: Column| Column::ALL.iter().position(|found| *found == column).unwrap();
        let sum = |column| -> u64 {
            // No name of the example has a comma before these columns.
            text.lines()
                .skip(1)
                .map(|line| line.split(',').nth(at(column)).unwrap().parse::<u64>().unwrap())
                .sum()
        };
        assert_eq!(sum(Column::Loads), totals.loads, "{by:?}");
        assert_eq!(sum(Column::LlcMisses), totals.llc_misses(), "{by:?}");
        assert_eq!(sum(Column::StlbMisses), totals.stlb_misses, "{by:?}");
    }
}

/// The example, with a structure of 8 bytes in `column`: its loads are all of `to`, its stores of both fields alike.
fn with_fields() -> Profile {
    let mut profile = bfs::profile();
    let object = ObjectIx(0);
    profile.objects[0].element = Some(Element { type_name: "struct edge".into(), bytes: 8 });
    let field = |offset, name: &str| Field {
        object,
        offset_bytes: Some(offset),
        size_bytes: Some(4),
        name: Some(name.into()),
        type_name: Some("int".into()),
    };
    profile.fields = vec![field(0, "from"), field(4, "to")];
    let mut uses = Vec::new();
    for cell in profile.cells.iter().filter(|cell| cell.object == object) {
        let is_load = cell.counts.get().loads > 0;
        uses.push(FieldUse { code: cell.code, field: FieldIx(1), seen: 5 });
        uses.extend((!is_load).then_some(FieldUse { code: cell.code, field: FieldIx(0), seen: 5 }));
    }
    profile.field_uses = uses;
    profile
}

#[test]
fn fields_are_rows_in_the_order_of_their_places_or_of_their_cost() {
    let profile = with_fields();
    let all = profile.objects[0].counts;
    let detail = object_detail(&profile, "1", &View { width: 140, ..View::default() }).unwrap();
    assert!(detail.contains("fields of struct edge, 8 bytes"), "{detail}");
    let line = |name: &str| detail.lines().position(|line| line.contains(name)).expect(name);
    assert!(line(" from ") < line(" to "), "{detail}");
    let report = json(&profile);
    let fields = &report["objects"].as_array().unwrap().iter().find(|it| it["id"] == 1).unwrap()["fields"];
    assert_eq!((&fields[0]["loads"], &fields[0]["offset"]), (&value!(0), &value!(0)));
    assert_eq!((&fields[1]["loads"], &fields[1]["name"]), (&value!(all.loads), &value!("to")));
    assert_eq!(fields[0]["stores"].as_u64().unwrap() + fields[1]["stores"].as_u64().unwrap(), all.stores);
    let other = report["objects"].as_array().unwrap().iter().find(|it| it["id"] != 1).unwrap();
    assert!(other["fields"].is_null() && other["element"].is_null(), "{other}");
    let text = table(&profile, &View { width: 160, by: By::Field, ..View::default() });
    let row = text.lines().find(|line| line.contains("edge.to")).expect("a row of its own");
    assert!(row.contains("column"), "{row}");
    assert!(text.contains("visited"), "objects without fields are rows themselves: {text}");
}

/// The profile with 1 of the 4 parts of column's accesses in a block from another caller of its function.
fn with_column_from_two_callers() -> Profile {
    let mut profile = bfs::profile();
    let site = profile.objects[0].site.expect("it is of the heap").index();
    let (mut stack, caller) = (profile.stacks[site].clone(), profile.frames.len());
    profile.frames.push(Frame {
        function: Some("reload".into()),
        line: Some(99),
        ..profile.frames[0].clone()
    });
    stack.0.insert(1, FrameIx::from_index(caller));
    profile.stacks.push(stack);
    let site = Some(StackIx::from_index(profile.stacks.len() - 1));
    let id = profile.objects.len() as u32 + 1;
    profile.objects.push(Object { id, site, ..profile.objects[0].clone() });
    let of_other = profile.cells.iter_mut().find(|cell| cell.object == ObjectIx(0)).expect("it is touched");
    of_other.object = ObjectIx(id - 1);
    profile.sum_cells();
    profile.validate().unwrap();
    profile
}

#[test]
fn objects_of_one_name_and_line_are_one_row_and_told_apart_by_their_callers() {
    let profile = with_column_from_two_callers();
    let whole = bfs::profile().objects[0].counts;
    for by in [By::Object, By::Site] {
        let view = View { width: 160, by, ..View::default() };
        let (text, one) = (table(&profile, &view), table(&bfs::profile(), &view));
        let rows = |text: &str| text.lines().filter(|line| line.contains("read_graph bfs.c:20")).count();
        assert_eq!(rows(&text), rows(&one), "{text}");
        assert!(by == By::Site || text.contains("+1  column") && text.contains("--object NAME"), "{text}");
    }
    let view = View { width: 160, ..View::default() };
    let mut rows = Vec::new();
    csv(&profile, &View { top: None, ..view.clone() }, &mut rows).unwrap();
    let rows = String::from_utf8(rows).unwrap();
    let of_column: Vec<&str> = rows.lines().filter(|row| row.contains(",column,")).collect();
    assert_eq!(of_column.len(), 1, "{rows}");
    assert!(of_column[0].contains(&format!(",{},", whole.loads)), "{rows}");
    // Each has its number, and the JSON report has each.
    let both = object_detail(&profile, "column", &view).unwrap();
    for words in ["column: int* · 2 objects · heap", "reload bfs.c:99", "2 objects", "bfs.c:61"] {
        assert!(both.contains(words), "{words}: {both}");
    }
    let one = object_detail(&profile, "1", &view).unwrap();
    assert!(one.contains("#1 column: int*") && one.contains("1 more of this name"), "{one}");
    let of_json = json(&profile)["objects"].as_array().unwrap().clone();
    assert_eq!(of_json.iter().filter(|object| object["name"] == "column").count(), 2);
}

#[test]
fn from_an_object_to_its_code_and_back() {
    let profile = bfs::profile();
    let view = View { width: 140, ..View::default() };
    let object = object_detail(&profile, "1", &view).unwrap();
    for words in
        ["#1 column: int*", "g.column = malloc(m", "main", "bfs.c:61", "int w = column[e];", "2 lines"]
    {
        assert!(object.contains(words), "{words}: {object}");
    }
    assert!(object.contains("how the kernel backed it is unknown"), "{object}");
    let mut seen = bfs::profile();
    seen.objects[0].backing =
        Some(ObjectBacking { small_bytes: 1 << 20, transparent_bytes: 3 << 20, ..ObjectBacking::default() });
    let text = object_detail(&seen, "1", &view).unwrap();
    assert!(text.contains("1 MiB (25.0 %) of 4 KiB · 3 MiB (75.0 %) transparent huge"), "{text}");
    let entry = &json(&seen)["objects"][0]["backing"];
    assert_eq!((&entry["transparent_bytes"], &entry["hugetlb_bytes"]), (&value!(3 << 20), &value!(0)));
    assert!(entry["node_bytes"].is_null(), "one node");
    if let Some(backing) = &mut seen.objects[0].backing {
        backing.node_bytes = vec![3 << 20, 0, 1 << 20];
    }
    let text = object_detail(&seen, "1", &view).unwrap();
    assert!(text.contains("transparent huge · 3 MiB on node 0, 1 MiB on node 2"), "{text}");
    assert_eq!(json(&seen)["objects"][0]["backing"]["node_bytes"], value!([3 << 20, 0, 1 << 20]));
    assert!(json(&profile)["objects"][0]["backing"].is_null());
    assert!(object_detail(&profile, "77", &view).unwrap_err().to_string().contains("77"));
    let code = code_detail(&profile, "bfs_from", &view).unwrap();
    for words in ["bfs_from · ", "visited", "newq", "7 lines", "pred[w] = v;"] {
        assert!(code.contains(words), "{words}: {code}");
    }
    assert_eq!(code_detail(&profile, "from", &view).unwrap(), code);
    // A part of ten names: eight are named.
    let mut many = bfs::profile();
    many.code.clear();
    for number in 0..10 {
        let stack = Some(StackIx::from_index(many.stacks.len()));
        many.stacks.push(Stack(vec![FrameIx::from_index(many.frames.len())]));
        many.frames.push(Frame { function: Some(format!("step{number}").into()), ..Frame::default() });
        many.code.push(CodeLocation { stack, ..CodeLocation::default() });
    }
    let problem = code_detail(&many, "step", &view).unwrap_err().to_string();
    assert!(problem.starts_with("‘step’ is no single function of this profile"), "{problem}");
    assert!(problem.ends_with("step6, step7, and 2 more"), "{problem}");
    // What was inlined is in both functions.
    let mut inlined = profile.clone();
    let cell = inlined.cells.iter().max_by_key(|cell| inlined.wait_cycles(&cell.counts.get())).unwrap();
    let row = &mut inlined.code[cell.code.index()];
    let outer = inlined.stacks[row.stack.unwrap().index()].0.clone();
    let inner = FrameIx::from_index(inlined.frames.len());
    inlined.frames.push(Frame { function: Some("visit".into()), inlined: true, ..Frame::default() });
    row.stack = Some(StackIx::from_index(inlined.stacks.len()));
    inlined.stacks.push(Stack([&[inner][..], &outer[..]].concat()));
    let of_both = code_detail(&inlined, "bfs_from", &view).unwrap();
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    assert!(first(&of_both).starts_with(&first(&code)), "{of_both}");
    assert!(first(&of_both).ends_with(" % of it in what was inlined there"), "{of_both}");
    assert!(code_detail(&inlined, "visit", &view).unwrap().starts_with("visit · "));
    let problem = code_detail(&profile, "bfs_form", &view).unwrap_err().to_string();
    assert!(problem.contains("did you mean ‘bfs_from’"), "{problem}");
}

#[test]
fn an_empty_profile_is_shown_and_not_divided_by() {
    let profile = Profile::default();
    for width in [80, 200] {
        let text = table(&profile, &View { width, ..View::default() });
        assert!(text.contains("nothing was collected"), "{text}");
    }
    assert_eq!(json(&profile)["totals"]["l1_miss_ratio"], Value::Null);
    csv(&profile, &View::default(), &mut Vec::new()).unwrap();
    let untouched = Profile { objects: vec![Object { id: 1, ..Object::default() }], ..profile };
    assert!(table(&untouched, &View::default()).contains("No object was accessed"));
}

/// 3 loads that hit (4 cycles each) and one that goes to memory (250): shares 12/262 and 250/262.
#[test]
fn shares_are_of_the_wait() {
    let near = Object { id: 1, counts: Counts { loads: 3, ..Counts::default() }, ..Object::default() };
    let missed =
        Counts { loads: 1, l1_load_misses: 1, l2_load_misses: 1, llc_load_misses: 1, ..Counts::default() };
    let far = Object { id: 2, counts: missed, ..Object::default() };
    let profile = Profile { objects: vec![near, far], machine: bfs::machine(), ..Profile::default() };
    assert_eq!(profile.machine.latencies, Latencies::default());
    let report = json(&profile);
    assert_eq!(report["objects"][0]["id"], 2);
    assert_eq!(report["objects"][0]["wait_cycles"], 250);
    assert_eq!(report["objects"][1]["share"], 12.0 / 262.0);
}

/// 4 loads of memory, 3 of them of lines that were prefetched: 250 cycles and three times the second level's 14.
#[test]
fn what_is_prefetched_is_told_and_not_waited_for() {
    let counts = Counts {
        loads: 4,
        l1_load_misses: 4,
        l2_load_misses: 4,
        llc_load_misses: 4,
        l2_prefetched: 3,
        llc_prefetched: 3,
        ..Counts::default()
    };
    let streamed = Object { id: 1, name: "keys".into(), counts, ..Object::default() };
    let machine = MachineInfo { prefetcher_streams: 32, ..bfs::machine() };
    let profile = Profile { objects: vec![streamed], machine, ..Profile::default() };
    let report = json(&profile);
    assert_eq!(report["machine"]["prefetcher_streams"], 32);
    assert_eq!(
        (&report["objects"][0]["llc_misses"], &report["objects"][0]["llc_prefetched"]),
        (&value!(4), &value!(3))
    );
    assert_eq!(report["objects"][0]["wait_cycles"], 250 + 3 * 14);
    let text = table(&profile, &View { width: 160, ..View::default() });
    assert!(text.contains("prefet%") && text.contains("75.0 % of them prefetched"), "{text}");
    // A machine without a prefetcher has none, and says nothing of it.
    let report = json(&bfs::profile());
    assert_eq!(report["totals"]["llc_prefetched"], Value::Null);
    assert!(!table(&bfs::profile(), &View { width: 160, ..View::default() }).contains("prefet"));
}

#[test]
fn csv_quotes_what_needs_it() {
    let mut profile = bfs::profile();
    profile.objects[0].name = "std::map<int, \"x\">".into();
    let mut out = Vec::new();
    csv(&profile, &View::default(), &mut out).unwrap();
    assert!(String::from_utf8(out).unwrap().contains("\"std::map<int, \"\"x\"\">\""));
}

/// `insert` was called by `build` (3 samples of the node, 1 of the table) and by `main` (1 of the node); one sample of
/// the table has no path.
fn sampled_through_calls() -> Profile {
    let frame = |function: &str, line| Frame {
        function: Some(function.into()),
        file: Some("/src/tree.c".into()),
        line,
        ..Frame::default()
    };
    let object = |id, name: &str| Object { id, name: name.into(), ..Object::default() };
    let cell = |object, samples| Cell {
        object: ObjectIx(object),
        counts: Counts {
            sampled: Sampled { samples, cost: 10 * samples, ..Sampled::default() },
            ..Counts::default()
        }
        .into(),
        ..Cell::default()
    };
    let path = |parent, frame| CallPath { parent, frame: FrameIx(frame) };
    let part = |path, object, samples| {
        let sampled = Sampled { samples, cost: 10 * samples, ..Sampled::default() };
        let counts = Counts { sampled, ..Counts::default() }.into();
        PathCell { path, object: ObjectIx(object), counts }
    };
    let mut profile = Profile {
        frames: vec![
            frame("main", Some(70)),
            frame("build", Some(40)),
            frame("insert", None),
            frame("main", Some(80)),
        ],
        objects: vec![object(1, "node"), object(2, "table")],
        code: vec![CodeLocation { id: 1, ..CodeLocation::default() }],
        cells: vec![cell(0, 4), cell(1, 2)],
        threads: vec![Thread::default()],
        paths: vec![
            path(None, 0),
            path(Some(PathIx(0)), 1),
            path(Some(PathIx(1)), 2),
            path(None, 3),
            path(Some(PathIx(3)), 2),
        ],
        path_cells: vec![
            part(Some(PathIx(2)), 0, 3),
            part(Some(PathIx(2)), 1, 1),
            part(Some(PathIx(4)), 0, 1),
            part(None, 1, 1),
        ],
        ..Profile::default()
    };
    profile.run.estimated = true;
    profile.run.sampling =
        Some(SamplingInfo { samples: 6, cost: 60, squared_cost: 600.0, ..SamplingInfo::default() });
    profile.sum_cells();
    profile.validate().unwrap();
    profile
}

#[test]
fn call_paths_are_rows_by_their_cost() {
    let profile = sampled_through_calls();
    let view = View { by: By::Caller, width: 200, ..View::default() };
    let text = table(&profile, &view);
    let row =
        |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{text}"));
    // 4 of 6 samples, 1 of 6, 1 of 6.
    let first = row("66.7");
    assert!(first.contains("insert") && first.contains("node, table"), "{first}");
    assert!(first.contains("build tree.c:40 ← main tree.c:70"), "{first}");
    assert!(text.contains("main tree.c:80") && text.contains("no call path known"), "{text}");
    // Of the node's own 4 samples 3 came through build.
    let text = object_detail(&profile, "1", &view).unwrap();
    assert!(text.contains("75.0") && text.contains("25.0") && !text.contains("no call path"), "{text}");
    // This one has none, and says so.
    assert!(table(&bfs::profile(), &view).contains("no call paths"));
    assert!(object_detail(&bfs::profile(), "1", &view).unwrap().contains("No call path"));
    for width in 80..=200 {
        let view = View { width, ..view.clone() };
        let text = table(&profile, &view) + &object_detail(&profile, "1", &view).unwrap();
        assert!(text.lines().all(|line| line.width() <= width), "{width}: {text}");
    }
}

#[test]
fn json_has_the_call_tree() {
    assert_eq!(json(&bfs::profile())["call_tree"], Value::Null);
    let report = json(&sampled_through_calls());
    let tree = report["call_tree"].as_array().unwrap();
    assert_eq!(tree.len(), 5);
    let insert = &tree[2];
    assert_eq!(
        (&insert["parent"], &insert["function"], &insert["line"]),
        (&value!(1), &value!("insert"), &Value::Null)
    );
    assert_eq!(
        (&tree[1]["parent"], &tree[1]["line"], &tree[1]["samples"]),
        (&value!(0), &value!(40), &value!(0))
    );
    assert_eq!(insert["samples"], 4);
    assert_eq!(
        insert["objects"],
        value!([
            {"id": 1, "samples": 3, "share": 0.5, "stall_share": null, "loads": null, "stores": null, "llc_misses": null},
            {"id": 2, "samples": 1, "share": 1.0 / 6.0, "stall_share": null, "loads": null, "stores": null, "llc_misses": null}
        ])
    );
}

/// The profile of a breadth-first search, as if three quarters of what its code does came through one call and the rest through another.
fn counted_through_calls() -> Profile {
    let mut profile = bfs::profile();
    profile.paths = vec![
        CallPath { parent: None, frame: FrameIx(0) },
        CallPath { parent: Some(PathIx(0)), frame: FrameIx(1) },
        CallPath { parent: Some(PathIx(0)), frame: FrameIx(2) },
    ];
    let path = |path, part| PathUse::new(Some(PathIx(path)), part, [part; 5]);
    let of_each = || vec![path(1, 0.75), path(2, 0.25)];
    let uses = profile.cells.iter().map(|cell| ((cell.code, cell.object), of_each()));
    let uses: HashMap<_, _> = uses.collect();
    profile.divide_among_paths(|cell| uses.get(&(cell.code, cell.object)));
    profile.validate().unwrap();
    profile
}

#[test]
fn call_paths_of_accesses_have_all_columns() {
    let profile = counted_through_calls();
    let view = View { by: By::Caller, width: 200, ..View::default() };
    let text = table(&profile, &view);
    let total = profile.totals();
    for word in ["loads", "stores", "misses", "caller", "called from"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let report = json(&profile);
    let tree = report["call_tree"].as_array().unwrap();
    let of = |node: usize, key: &str| tree[node][key].as_u64().unwrap();
    assert_eq!(of(1, "loads") + of(2, "loads"), total.loads);
    assert!(of(1, "loads").abs_diff(3 * of(2, "loads")) < 20, "{report}");
    assert_eq!(of(1, "llc_misses") + of(2, "llc_misses"), total.llc_misses());
    assert!((tree[1]["share"].as_f64().unwrap() - 0.75).abs() < 0.01, "{report}");
    assert_eq!((&tree[0]["loads"], &tree[1]["samples"]), (&value!(0), &Value::Null));
    let ids: Vec<&Value> =
        tree[1]["objects"].as_array().unwrap().iter().map(|object| &object["id"]).collect();
    assert!(ids.len() > 1, "{report}");
    // Of one object.
    let text = object_detail(&profile, "column", &view).unwrap();
    assert!(text.contains("reached by") && text.contains("2 call paths"), "{text}");
}

/// Prints the tables for eyes: `cargo test -p memlens-report --test report -- --ignored --nocapture`.
#[test]
#[ignore = "for eyes"]
fn show() {
    let profile = bfs::profile();
    for width in [80, 100, 140] {
        println!("{}", table(&profile, &View { width, ..View::default() }));
    }
    for by in By::ALL {
        println!("{}", table(&profile, &View { width: 120, by, ..View::default() }));
    }
    let view = View { width: 140, ..View::default() };
    println!("{}", object_detail(&profile, "1", &view).unwrap());
    println!("{}", code_detail(&profile, "bfs_from", &view).unwrap());
}

/// Two objects wait the same, 1,000 cycles of memory each; of the one's nine tenths are hidden.
#[test]
fn what_the_core_waits_for_comes_first() {
    let object = |id, name: &str, stall_cycles| {
        let counts = Counts {
            loads: 4,
            l1_load_misses: 4,
            l2_load_misses: 4,
            llc_load_misses: 4,
            stall_cycles,
            ..Counts::default()
        };
        Object { id, name: name.into(), counts, ..Object::default() }
    };
    let objects = vec![object(1, "table", 100), object(2, "list", 900)];
    let core = CoreInfo { width: 4, window: 224, set_load_cycles: 11, ..CoreInfo::default() };
    let machine = MachineInfo { core: Some(core), ..bfs::machine() };
    let mut profile = Profile { objects, machine, ..Profile::default() };
    profile.run.core_cycles = Some(2000);
    let report = json(&profile);
    assert_eq!(
        (&report["objects"][0]["stall_cycles"], &report["objects"][1]["stall_cycles"]),
        (&value!(100), &value!(900))
    );
    assert_eq!(
        (&report["run"]["core_cycles"], &report["machine"]["core"]["window"]),
        (&value!(2000), &value!(224))
    );
    let text = table(&profile, &View { width: 160, ..View::default() });
    assert!(text.contains("other work hides 50.0 % of a wait of 2.00k"), "{text}");
    assert!(text.contains("stalls     50 % of the core's time, 1.00k of 2.00k cycles"), "{text}");
    let row = |name| text.lines().find(|line| line.contains(name)).expect("a row").to_owned();
    assert!(row("list").trim_start().starts_with("90.0") && row("list").contains("50.0"), "{text}");
    assert!(row("table").contains("10.0") && text.find("list") < text.find("table"), "{text}");
    assert!(!text.contains("measured"), "{text}");
    let one = table(&profile, &View { width: 160, top: Some(1), ..View::default() });
    assert!(one.contains("1 of 2 objects, 90.0 % of the stalls"), "{one}");
    // Without translation it would take half of the list's stalls less.
    assert_eq!(json(&profile)["totals"]["translation_stall_cycles"], Value::Null, "not modelled");
    profile.objects[1].counts.translation_stall_cycles = 450;
    profile.run.has_translation_stalls = true;
    let translated = table(&profile, &View { width: 160, ..View::default() });
    assert!(
        translated.contains("50 % of the core's time, 1.00k of 2.00k cycles · 22 % for TLB misses"),
        "{translated}"
    );
    assert_eq!(json(&profile)["objects"][1]["translation_stall_cycles"], value!(450));
    // Held against measured time, which has room for less.
    profile.run.modelled_stall_cycles = Some(1200);
    assert!(!table(&profile, &View::default()).contains("measured"), "nearly as much");
    profile.run.modelled_stall_cycles = Some(3000);
    let held = table(&profile, &View { width: 160, ..View::default() });
    assert!(held.contains("no room for the 3.00k cycles of stalls that the model has by itself"), "{held}");
    assert!(held.contains("at most 50 % of the core's time, 1.00k of 2.00k cycles"), "{held}");
    profile.run.measured_cycles = Some(8000);
    let unexplained = table(&profile, &View { width: 160, ..View::default() });
    assert!(
        unexplained.contains("took 8.00k cycles; the model has nothing for 75.0 % of them: stalls are about 12.5 % of that time"),
        "{unexplained}"
    );
    assert!(!unexplained.contains("no room"), "one word is enough: {unexplained}");
    profile.run.modelled_stall_cycles = Some(1200);
    let bounded = table(&profile, &View { width: 160, ..View::default() });
    assert!(bounded.contains("stalls are 12.5 % or more of that time"), "{bounded}");
    profile.run.modelled_stall_cycles = Some(3000);
    profile.run.measured_cycles = None;
    assert_eq!(json(&profile)["run"]["modelled_stall_cycles"], value!(3000));
    profile.run.modelled_stall_cycles = None;
    let by_wait = table(&profile, &View { sort: Some(Column::Share), width: 160, ..View::default() });
    assert!(by_wait.find("table") < by_wait.find("list"), "equal, so as they come: {by_wait}");
    let list = object_detail(&profile, "list", &View { width: 160, ..View::default() }).unwrap();
    assert!(list.contains("90.0 % of the stalls · 50.0 % of the wait"), "{list}");
    // Of next to no stalls the order is chance.
    profile.run.core_cycles = Some(200_000);
    let hidden = table(&profile, &View { width: 160, ..View::default() });
    let row = |name| hidden.lines().find(|line| line.contains(name)).expect("a row").trim_start().to_owned();
    assert!(hidden.find("table") < hidden.find("list") && row("table").starts_with("50.0"), "{hidden}");
    assert!(row("list").contains("90.0"), "beside the wait: {hidden}");
    // Where no core is described, nothing is said of one.
    let bare = json(&bfs::profile());
    assert_eq!((&bare["totals"]["stall_cycles"], &bare["machine"]["core"]), (&Value::Null, &Value::Null));
    assert!(!table(&bfs::profile(), &View { width: 160, ..View::default() }).contains("stall"));
}

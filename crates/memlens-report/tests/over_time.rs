//! When objects cost what, as it is shown.

mod bfs;
mod slices;

use memlens_profile::Mark;
use memlens_report::{
    Column, LineKind, View, json, object_detail, over_time, over_time_csv, over_time_page, table,
};

fn wide() -> View {
    View { width: 120, ..View::default() }
}

/// The lines that have a word, without blanks that only align.
fn lines_with(text: &str, word: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().filter(|line| line.contains(word)).map(words).collect()
}

#[test]
fn parts_of_the_run_say_what_they_waited_for() {
    let mut profile = slices::with_slices(bfs::profile());
    profile.marks = vec![Mark { instructions: 2_000_000_000, thread: None, name: "search".into() }];
    let text = over_time(&profile, None, &wide()).expect("slices");
    assert!(text.starts_with("over time · 4 slices of about 578M instructions\n"), "{text}");
    assert!(text.contains("at most 549 MiB of the heap live, at 75.0 %"), "{text}");
    let parts: Vec<String> = lines_with(&text, " % ").into_iter().skip(1).collect();
    assert_eq!(parts[0], "0 % 0.1 0");
    assert_eq!(parts[1], "25.0 % 1.0 ▍ 512Mi column 100 %");
    // 4000 of 5010, and 1000; 5010 of 10142 in all. The mark is in the last one.
    assert_eq!(parts[2], "50.0 % 49.4 ███████████████████▉ 548Mi column 80 % · visited 20 %");
    assert_eq!(parts[3], "75.0 % 49.6 ████████████████████ 516Mi search visited 60 % · column 40 %");
    // Two parts have what four have.
    let two = over_time(&profile, None, &View { top: Some(2), ..wide() }).expect("slices");
    assert_eq!(lines_with(&two, "50.0 %")[0].split(' ').nth(2), Some("98.9"));
}

#[test]
fn objects_have_a_course_of_costs_and_one_of_bytes() {
    let profile = slices::with_slices(bfs::profile());
    let text = over_time(&profile, None, &wide()).expect("slices");
    let column = lines_with(&text, "column");
    let of_bytes = column.last().expect("a row");
    assert!(of_bytes.starts_with("512Mi 512Mi 512Mi 1 column heap ············████████████"), "{text}");
    assert!(
        lines_with(&text, "newq").last().expect("a row").starts_with("32Mi 0 32Mi 5 newq heap"),
        "{text}"
    );
    let visited = lines_with(&text, "visited");
    assert!(
        visited.iter().any(|line| line.starts_with("39.4 3 visited heap ····") && line.ends_with("75.0 %")),
        "{text}"
    );
    // Small ones together have no course.
    assert!(lines_with(&text, "level_count").is_empty(), "{text}");

    // Lines lead to what is behind them, and say what the text says.
    let page = over_time_page(&profile, &wide()).expect("slices");
    let shown: Vec<String> = page.lines.iter().map(|line| line.text()).collect();
    assert_eq!(shown.join("\n") + "\n", text);
    let led = page.lines.iter().filter(|line| line.kind == LineKind::Row && line.target.is_some());
    assert_eq!(led.count(), 6);
}

#[test]
fn one_object_has_its_own_time() {
    let profile = slices::with_slices(bfs::profile());
    let text = over_time(&profile, Some("visited"), &wide()).expect("slices");
    assert!(text.starts_with("visited over time"), "{text}");
    assert_eq!(
        lines_with(&text, "75.0 %").last().map(String::as_str),
        Some("75.0 % 75.0 ████████████████████ 4Mi")
    );
    let unknown = over_time(&profile, Some("visitde"), &wide()).expect_err("no such object");
    assert!(unknown.contains("visited"), "{unknown}");
}

#[test]
fn headers_tables_and_details_have_sparklines() {
    let profile = slices::with_slices(bfs::profile());
    let text = table(&profile, &View { width: 200, ..View::default() });
    assert!(lines_with(&text, "over time")[0].contains("wait for misses · "), "{text}");
    assert!(lines_with(&text, "visited")[0].contains("······▃▃▃███"), "{text}");
    let detail = object_detail(&profile, "visited", &wide()).expect("an object");
    assert!(detail.contains("4 MiB at the heap's peak · 4 MiB at the end"), "{detail}");
    assert!(lines_with(&detail, "over time")[0].ends_with("live, 4 MiB at 75.0 %"), "{detail}");
    // Without slices nothing is said.
    let text = table(&bfs::profile(), &View { width: 200, ..View::default() });
    assert!(!text.contains("over time"), "{text}");
    let why = over_time(&bfs::profile(), None, &wide()).expect_err("no slices");
    assert!(why.contains("it is imported, or of an older memlens"), "{why}");
    assert!(over_time_page(&bfs::profile(), &wide()).is_none());
}

#[test]
fn programs_get_slices_as_they_are() {
    let profile = slices::with_slices(bfs::profile());
    let report = json(&profile);
    let slices = report["over_time"]["slices"].as_array().expect("slices");
    assert_eq!((slices.len(), &report["over_time"]["clock"]), (4, &"instructions".into()));
    assert_eq!((&slices[3]["cost"], &slices[3]["live_bytes"]), (&5030.into(), &(516_u64 << 20).into()));
    assert_eq!(slices[3]["objects"][1]["name"], "visited");
    assert_eq!(json(&bfs::profile())["over_time"], serde_json::Value::Null);
    let mut csv = Vec::new();
    over_time_csv(&profile, &mut csv).expect("written");
    let csv = String::from_utf8(csv).expect("text");
    assert_eq!(csv.lines().count(), 1 + profile.slice_uses.len());
    assert!(csv.contains("\r\n3,1156172839,1734259258,1,column,heap,4000,20,536870912\r\n"), "{csv}");
    assert!(csv.contains("\r\n1,0,578086419,,,,10,0,\r\n"), "{csv}");
}

#[test]
fn what_holds_memory_and_is_never_touched_is_found_by_it() {
    let mut profile = slices::with_slices(bfs::profile());
    let forgotten = profile.objects.iter_mut().find(|object| object.name == "pred").expect("an object");
    forgotten.live_at_end_bytes = Some(700 << 20);
    let text = table(&profile, &wide());
    assert!(lines_with(&text, "pred").is_empty() && text.contains("more never accessed"), "{text}");
    let by_memory = View { sort: Some(Column::LiveAtEndBytes), trifles: true, ..wide() };
    let text = table(&profile, &by_memory);
    let rows: Vec<String> = lines_with(&text, " heap ");
    assert!(rows[0].contains("pred") && rows[0].contains("700Mi") && rows[1].contains("column"), "{text}");
}

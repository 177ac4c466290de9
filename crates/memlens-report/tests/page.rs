//! What is shown line by line is what the reports say, and each row leads to what it is of.

mod bfs;

use memlens_profile::{
    CallPath, Cell, Element, Field, FrameIx, ObjectIx, PathCell, PathIx, Profile, SamplingInfo, Thread,
    ThreadIx,
};
use memlens_report::{
    By, Column, Line, LineKind, Page, Target, View, code_detail, groupings, header_page, object_detail,
    summary_page, table, table_page, target_page,
};
use memlens_types::{Counts, Sampled};

fn text(page: &Page) -> String {
    page.lines.iter().map(|line| line.text() + "\n").collect()
}

fn all(by: By, width: usize) -> View {
    View { by, width, top: None, trifles: true, ..View::default() }
}

/// With call paths and fields, too.
fn profile() -> Profile {
    let mut profile = bfs::profile();
    profile.paths = vec![
        CallPath { parent: None, frame: FrameIx::from_index(1) },
        CallPath { parent: Some(PathIx::from_index(0)), frame: FrameIx::from_index(0) },
    ];
    let of = |path: Option<usize>, object, samples| PathCell {
        path: path.map(PathIx::from_index),
        object: ObjectIx::from_index(object),
        counts: Counts {
            sampled: Sampled { samples, cost: samples, ..Sampled::default() },
            ..Counts::default()
        }
        .into(),
    };
    profile.path_cells = vec![of(Some(1), 0, 5), of(Some(1), 1, 3), of(None, 0, 2)];
    for object in 0..2 {
        profile.objects[object].element = Some(Element { type_name: "struct node".into(), bytes: 8 });
        let field = Field {
            object: ObjectIx::from_index(object),
            name: Some("next".into()),
            offset_bytes: Some(0),
            size_bytes: Some(8),
            ..Field::default()
        };
        profile.fields.push(field);
    }
    profile
}

#[test]
fn lines_are_the_text_of_tables() {
    let profile = profile();
    for by in By::ALL {
        for width in [60, 100, 180] {
            for sort in [None, Some(Column::Loads), Some(Column::Name)] {
                let view = View { sort, ..all(by, width) };
                let header = text(&header_page(&profile, &view));
                let page = table_page(&profile, &view);
                assert_eq!(format!("{header}\n{}", text(&page)), table(&profile, &view), "{by:?} {width}");
                // Colour is the reader's to add: the lines are the same.
                let coloured = table_page(&profile, &View { colour: true, ..view });
                assert_eq!(coloured.lines, page.lines);
            }
        }
    }
}

#[test]
fn lines_are_the_text_of_details() {
    let profile = profile();
    let target = table_page(&profile, &all(By::Object, 100)).lines;
    let target = target.iter().find_map(|line| line.target.clone()).expect("an object's row");
    let Target::Objects { ids, .. } = &target else { panic!("{target:?}") };
    for by in [By::Line, By::Function, By::Instruction, By::Caller] {
        let page = target_page(&profile, &target, &all(by, 100)).expect("the object");
        assert_eq!(text(&page), object_detail(&profile, &ids[0].to_string(), &all(by, 100)).unwrap());
    }
    let function = Target::Function("bfs_from".into());
    let page = target_page(&profile, &function, &all(By::Line, 100)).expect("the function");
    assert_eq!(text(&page), code_detail(&profile, "bfs_from", &all(By::Line, 100)).unwrap());
    let instructions = target_page(&profile, &function, &all(By::Instruction, 100)).expect("the same");
    assert!(text(&instructions).contains("bfs+0x") && !text(&page).contains("bfs+0x"));
}

#[test]
fn every_row_leads_to_what_it_is_of() {
    let profile = profile();
    assert!(!groupings(&profile).contains(&By::Process));
    for by in groupings(&profile).into_iter().filter(|by| *by != By::Caller) {
        check_rows(&profile, by);
    }
    // Call paths are of samples.
    let mut sampled = Profile { run: profile.run.clone(), ..profile };
    sampled.run.sampling = Some(SamplingInfo::default());
    check_rows(&sampled, By::Caller);
}

#[test]
fn a_call_path_of_an_object_is_that_objects_alone() {
    let mut profile = profile();
    profile.run.sampling = Some(SamplingInfo::default());
    let [first, second] = [0, 1].map(|at| profile.objects[at].name.clone());
    // The path that has both: 8 samples in all, 5 of them of the first object.
    let path_in = |page: &Page| {
        let of = |line: &Line| {
            line.target.clone().filter(|it| matches!(it, Target::Path { frames, .. } if !frames.is_empty()))
        };
        page.lines.iter().find_map(of).expect("a row of the call path")
    };
    let page_of = |target: &Target, by| target_page(&profile, target, &all(by, 140)).expect("a page");
    let whole = text(&page_of(&path_in(&table_page(&profile, &all(By::Caller, 140))), By::Line));
    assert!(whole.contains(&format!(" {first} ")) && whole.contains(&format!(" {second} ")), "{whole}");
    assert!(whole.contains("2 objects\n") && !whole.contains("as far as"), "{whole}");
    let object = Target::Objects { ids: vec![profile.objects[0].id], name: first.clone() };
    let path = path_in(&page_of(&object, By::Caller));
    let part = text(&page_of(&path, By::Line));
    assert!(
        part.contains(&format!(", as far as it touches {first}\n")) && part.contains("1 object\n"),
        "{part}"
    );
    assert!(!part.contains(&format!(" {second} ")) && part.contains("called from"), "{part}");
    // The path is there still, but not of this object.
    profile.path_cells.retain(|part| part.object != ObjectIx::from_index(0));
    assert!(target_page(&profile, &path, &all(By::Line, 140)).is_none());
}

#[test]
fn threads_and_processes_lead_to_what_they_touched() {
    let mut profile = bfs::profile();
    let thread = profile.threads[0].clone();
    profile.threads = vec![
        Thread { tid: 10, pid: Some(10), ..thread.clone() },
        Thread { tid: 11, pid: Some(10), ..thread.clone() },
        Thread { tid: 20, pid: Some(20), ..thread },
    ];
    // The last one touches column, and nobody else does.
    let column = |cell: &Cell| profile.objects[cell.object.index()].name == "column";
    let threads: Vec<usize> =
        profile.cells.iter().enumerate().map(|(at, cell)| if column(cell) { 2 } else { at % 2 }).collect();
    for (cell, thread) in profile.cells.iter_mut().zip(threads) {
        cell.thread = ThreadIx::from_index(thread);
    }
    profile.sum_cells();
    assert!(groupings(&profile).contains(&By::Process));
    let detail = |target| text(&target_page(&profile, &target, &all(By::Line, 140)).expect("a page"));
    let process = detail(Target::Process(Some(20)));
    assert!(process.starts_with("bfs (20) · ") && process.contains("1 object\n"), "{process}");
    let other = detail(Target::Process(Some(10)));
    assert!(other.starts_with("bfs (10), 2 threads · ") && !other.contains(" column "), "{other}");
    let touched = |tid| detail(Target::Thread { pid: Some(10), tid }).contains(" visited ");
    assert!(touched(10) || touched(11));
    check_rows(&profile, By::Process);
    check_rows(&profile, By::Thread);
}

fn check_rows(profile: &Profile, by: By) {
    let page = table_page(profile, &all(by, 140));
    let rows: Vec<_> = page.lines.iter().filter(|line| line.kind == LineKind::Row).collect();
    assert!(!rows.is_empty(), "{by:?}");
    for row in rows {
        let target = row.target.as_ref().unwrap_or_else(|| panic!("{by:?}: {}", row.text()));
        let detail = target_page(profile, target, &all(By::Line, 140));
        let detail = detail.unwrap_or_else(|| panic!("{target:?} leads nowhere"));
        // And on: rows of details lead somewhere, too. A function may be known from a call stack alone.
        let is_row = |line: &&Line| line.kind == LineKind::Row;
        let next = detail.lines.iter().filter(is_row).find_map(|line| line.target.as_ref());
        let next = next.unwrap_or_else(|| panic!("{target:?}: {}", text(&detail)));
        let is_known = target_page(profile, next, &all(By::Line, 140)).is_some();
        assert!(is_known || matches!(next, Target::Function(_)), "{next:?}");
    }
}

#[test]
fn what_is_gone_leads_nowhere_and_what_has_another_number_is_found() {
    let mut profile = profile();
    let gone = Target::Objects { ids: vec![1], name: "no such".into() };
    assert!(target_page(&profile, &gone, &all(By::Line, 100)).is_none());
    assert!(target_page(&profile, &Target::Function("none".into()), &all(By::Line, 100)).is_none());
    assert!(target_page(&profile, &Target::Site("nowhere".into()), &all(By::Line, 100)).is_none());
    let name = profile.objects[0].name.clone();
    let target = Target::Objects { ids: vec![profile.objects[0].id], name: name.clone() };
    profile.objects[0].id = 99;
    let page = target_page(&profile, &target, &all(By::Line, 100)).expect("by its name");
    assert!(text(&page).starts_with(&format!("#99 {name}")), "{}", text(&page));
}

#[test]
fn columns_are_where_their_titles_are() {
    let profile = profile();
    let page = table_page(&profile, &all(By::Object, 160));
    let titles =
        page.lines.iter().rfind(|line| line.kind == LineKind::Titles && line.text().contains("loads"));
    let titles: Vec<char> = titles.expect("titles").text().chars().collect();
    let placed = page.columns.iter().find(|placed| placed.column == Column::Loads).expect("loads");
    let there: String = titles[placed.from..placed.from + placed.width].iter().collect();
    assert_eq!(there.trim(), "loads");
    assert_eq!(page.sort, Some(Column::Share));
    assert!(page.sortable.contains(&Column::L2Misses) && !page.sortable.contains(&Column::Samples));
}

#[test]
fn rows_are_found_by_what_was_cut_off() {
    let mut profile = profile();
    profile.objects[0].name = format!("{}_the_end", "long_".repeat(20));
    let page = table_page(&profile, &all(By::Object, 80));
    let row = page.lines.iter().find(|line| line.words.contains("_the_end")).expect("the row");
    assert!(!row.text().contains("_the_end"), "{}", row.text());
}

#[test]
fn two_lines_say_what_ran() {
    let page = summary_page(&profile(), &all(By::Object, 40));
    assert_eq!(page.lines.len(), 2);
    assert!(page.lines[1].text().starts_with("run        exact mode · counted"), "{}", text(&page));
}

//! What a change did, on profiles made by hand; the figures are worked out beside them.

mod bfs;

use memlens_profile::{
    Cell, CodeIx, CodeLocation, Frame, FrameIx, Object, ObjectIx, Profile, SamplingInfo, Stack, StackIx,
    ThreadIx,
};
use memlens_report::{
    By, Column, Diff, DiffError, DiffRow, Runs, Unit, View, diff, diff_csv, diff_json, diff_table,
    leading_amount,
};
use memlens_types::{Counts, ObjectKind, Sampled};

/// A profile of heap objects with these names and loads.
fn profile(objects: &[(&str, u64)]) -> Profile {
    let mut profile = Profile::default();
    profile.run.command = vec!["app".into()];
    profile.run.mode = "exact".into();
    for (&(name, loads), id) in objects.iter().zip(1..) {
        profile.objects.push(Object {
            id,
            kind: ObjectKind::Heap,
            name: name.into(),
            blocks: 1,
            bytes: Some(8 * loads),
            counts: Counts { loads, load_bytes: 8 * loads, ..Counts::default() },
            ..Object::default()
        });
    }
    profile
}

/// One run.
fn one(profile: &Profile) -> Runs {
    Runs::new(vec![profile.clone()]).expect("one is enough")
}

/// One run held against another.
fn held(a: &Profile, b: &Profile, by: By, of: Column) -> Result<Diff, DiffError> {
    diff(&one(a), &one(b), by, of)
}

/// The rows' names with what A and B have.
fn amounts(diff: &Diff) -> Vec<(&str, Option<f64>, Option<f64>)> {
    diff.rows.iter().map(|row| (row.name.as_str(), row.a, row.b)).collect()
}

#[test]
fn what_changes_most_comes_first_and_nothing_is_lost() {
    let before = profile(&[("same", 500), ("grows", 10), ("shrinks", 100), ("goes", 40)]);
    let after = profile(&[("comes", 7), ("same", 500), ("grows", 40), ("shrinks", 30)]);
    let found = held(&before, &after, By::Object, Column::Loads).expect("both count loads");
    assert_eq!(
        amounts(&found),
        [
            ("shrinks", Some(100.0), Some(30.0)),
            ("goes", Some(40.0), None),
            ("grows", Some(10.0), Some(40.0)),
            ("comes", None, Some(7.0)),
            ("same", Some(500.0), Some(500.0)),
        ]
    );
    let fates: Vec<_> = found.rows.iter().map(DiffRow::fate).collect();
    assert_eq!(fates, [None, Some("gone"), None, Some("new"), None]);
    assert_eq!((found.total_a, found.total_b, found.change()), (Some(650.0), Some(577.0), Some(-73.0)));
    let changes: f64 = found.rows.iter().map(DiffRow::change).sum();
    assert_eq!(found.change(), Some(changes), "rows add up to the whole");
    assert!(found.rows.iter().all(|row| row.is_beyond_chance().is_none()), "all was counted");
    let bytes = held(&before, &after, By::Object, Column::Bytes).expect("both know bytes");
    assert_eq!((bytes.unit, bytes.change()), (Unit::Bytes, Some(-584.0)));
}

#[test]
fn every_grouping_of_a_profile_and_itself_is_the_same() {
    let profile = bfs::profile();
    for by in By::ALL.into_iter().filter(|by| by.missing_in(&profile).is_none()) {
        let found = held(&profile, &profile, by, Column::Share).expect("a cost");
        assert!(!found.rows.is_empty(), "{by:?}");
        for row in &found.rows {
            assert!(row.a.is_some() && row.a == row.b && row.was.is_none(), "{by:?}: {row:?}");
        }
        let text = diff_table(&one(&profile), &one(&profile), &found, &View::default());
        assert!(text.contains(&format!("no {} changed", by.as_str())), "{text}");
    }
}

/// One more run of a program: as `profile`, with other threads' and processes' numbers and all counts so many times as large.
fn again(profile: &Profile, times: u64, number: u32) -> Profile {
    let mut run = profile.clone();
    let scale = |counts: &mut Counts| {
        let one = *counts;
        (1..times).for_each(|_| *counts += &one);
    };
    run.objects.iter_mut().for_each(|object| scale(&mut object.counts));
    for cell in &mut run.cells {
        let mut counts = cell.counts.get();
        scale(&mut counts);
        cell.counts = counts.into();
    }
    for thread in &mut run.threads {
        thread.tid += number;
        scale(&mut thread.counts);
    }
    run.run.pid = run.run.pid.map(|pid| pid + number);
    run
}

#[test]
fn rows_of_several_runs_are_as_many_as_of_one() {
    let profile = bfs::profile();
    let several = |times: &[u64]| {
        let runs = times.iter().zip(1..).map(|(&times, number)| again(&profile, times, 100 * number));
        Runs::new(runs.collect()).expect("they are alike")
    };
    let (before, after) = (several(&[1, 2, 3]), several(&[4, 4]));
    for by in By::ALL.into_iter().filter(|by| by.missing_in(&profile).is_none()) {
        let one = held(&profile, &profile, by, Column::Loads).expect("loads");
        let found = diff(&before, &after, by, Column::Loads).expect("loads");
        assert_eq!(found.rows.len(), one.rows.len(), "{by:?}: {found:#?}");
        for (row, single) in found.rows.iter().zip(&one.rows) {
            let single = single.a.expect("it is there");
            assert_eq!((row.a, row.b), (Some(2.0 * single), Some(4.0 * single)), "{by:?}: {row:?}");
            // Loads of 1, 2 and 3 times as many: s² ÷ n is a third of it, t of two degrees of freedom 4.303.
            let (low, high) = row.change_interval.expect("there are runs");
            let half = 4.3027 * single / 3.0_f64.sqrt();
            assert!((low - (2.0 * single - half)).abs() <= 1e-3 * single, "{by:?}: {row:?}");
            assert!((high - (2.0 * single + half)).abs() <= 1e-3 * single, "{by:?}: {row:?}");
        }
    }
}

#[test]
fn lines_that_moved_are_the_same_lines() {
    let before = bfs::profile();
    let mut after = again(&before, 2, 0);
    // Three lines more at the head of the file.
    for frame in &mut after.frames {
        frame.line = frame.line.map(|line| line + 3);
    }
    let found = held(&before, &after, By::Line, Column::Loads).expect("loads");
    let texts = before.frames.iter().filter(|frame| frame.source_text.is_some()).count();
    let moved: Vec<_> = found.rows.iter().filter(|row| row.was.is_some()).collect();
    assert!(texts > 0 && !moved.is_empty(), "{found:?}");
    for row in moved {
        assert_eq!(row.b, row.a.map(|loads| 2.0 * loads), "{row:?}");
        let line = |name: &str| name.rsplit(':').next().and_then(|line| line.parse::<u32>().ok());
        assert_eq!(line(&row.name), row.was.as_deref().and_then(line).map(|line| line + 3));
    }
}

/// A profile of lines of `f` with this text, as many loads each.
fn lines(of: &[(u32, &str, u64)]) -> Profile {
    let mut made = profile(&[("data", of.iter().map(|line| line.2).sum())]);
    for (&(line, text, loads), at) in of.iter().zip(0..) {
        made.frames.push(Frame {
            function: Some("f".into()),
            file: Some("/src/a.c".into()),
            line: Some(line),
            source_text: Some(text.into()),
            ..Frame::default()
        });
        made.stacks.push(Stack(vec![FrameIx(at)]));
        made.code.push(CodeLocation {
            stack: Some(StackIx(at)),
            offset: u64::from(line),
            ..CodeLocation::default()
        });
        let counts = Counts { loads, ..Counts::default() };
        made.cells.push(Cell {
            code: CodeIx(at),
            object: ObjectIx(0),
            thread: ThreadIx(0),
            counts: counts.into(),
        });
    }
    made
}

#[test]
fn equal_lines_stay_in_their_order() {
    let before = lines(&[(10, "a[i] = 0;", 100), (20, "a[i] = 0;", 90), (30, "edited", 7)]);
    let after = lines(&[(10, "a[i] = 0;", 80), (20, "a[i] = 0;", 95), (30, "in place", 7), (40, "new", 1)]);
    let rows = |found: &Diff| -> Vec<(String, Option<f64>, Option<f64>)> {
        found.rows.iter().map(|row| (row.name.clone(), row.a, row.b)).collect()
    };
    let found = held(&before, &after, By::Line, Column::Loads).expect("loads");
    let name = |line: u32| format!("a.c:{line}");
    assert_eq!(
        rows(&found),
        [
            (name(10), Some(100.0), Some(80.0)),
            (name(20), Some(90.0), Some(95.0)),
            (name(40), None, Some(1.0)),
            (name(30), Some(7.0), Some(7.0)),
        ]
    );
    assert!(found.rows.iter().all(|row| row.was.is_none()), "nothing moved: {found:?}");
    let edited: Vec<_> = found.rows.iter().filter(|row| row.is_edited).map(|row| row.name.clone()).collect();
    assert_eq!(edited, [name(30)]);
    // Ten lines more above: the second is where the first was.
    let after = lines(&[(20, "a[i] = 0;", 100), (30, "a[i] = 0;", 90), (40, "edited", 7)]);
    let found = held(&before, &after, By::Line, Column::Loads).expect("loads");
    assert!(found.rows.iter().all(|row| row.was.is_some() && row.change() == 0.0), "{found:?}");
}

#[test]
fn what_is_not_known_is_no_amount() {
    let mut before = profile(&[("a", 4), ("frame", 4)]);
    before.objects[1].bytes = None;
    before.objects[0].max_live_bytes = Some(100);
    let found = held(&before, &before, By::Object, Column::Bytes).expect("one is known");
    assert_eq!((amounts(&found), found.unknown), (vec![("a", Some(32.0), Some(32.0))], 1));
    let twice = Runs::new(vec![before.clone(), before.clone()]).expect("they are alike");
    let found = diff(&twice, &one(&before), By::Object, Column::MaxLiveBytes).expect("one is known");
    assert_eq!(amounts(&found), [("a", Some(100.0), Some(100.0))]);
    assert_eq!((found.total_a, found.unknown), (None, 1), "the program's is not known");
    let table = diff_table(&twice, &one(&before), &found, &View::default());
    assert!(table.contains("of 1 more the max live bytes are not known"), "{table}");
    for (by, of) in [(By::Line, Column::Bytes), (By::Field, Column::Bytes), (By::Function, Column::Blocks)] {
        let error = held(&bfs::profile(), &bfs::profile(), by, of).expect_err("code has none");
        assert!(matches!(error, DiffError::Unknown { .. }), "{by:?} {of:?}: {error}");
    }
    let mut merged = before.clone();
    merged.run.notes.push("merged from 3 runs".into());
    let error = Runs::new(vec![merged, before]).expect_err("it is of several");
    assert!(error.to_string().starts_with("profile 1 is merged from 3 runs"), "{error}");
}

/// In mode `burst`, of two objects and a third that hardly waits.
fn bursts(of_a: u64, of_b: u64) -> Profile {
    let mut profile = profile(&[("a", of_a), ("b", of_b), ("c", 1)]);
    profile.run.mode = "burst".into();
    profile.run.estimated = true;
    profile.run.effective_bursts = Some(400.0);
    profile.machine.latencies.l1_cycles = 1;
    profile
}

#[test]
fn what_may_be_chance_is_not_told_as_a_change() {
    let before = bursts(600_000, 400_000);
    let verdict = |after: &Profile, name: &str| {
        let found = held(&before, after, By::Object, Column::Share).expect("a cost");
        let row = found.rows.iter().find(|row| row.name == name).expect("it is there");
        let (low, high) = row.change_interval.expect("it is estimated");
        assert!(low <= row.change() && row.change() <= high, "{row:?}");
        row.is_beyond_chance()
    };
    assert_eq!(verdict(&before, "a"), Some(false));
    assert_eq!(verdict(&bursts(550_000, 430_000), "a"), Some(false));
    let gains = bursts(60_000, 400_000);
    assert_eq!(verdict(&gains, "a"), Some(true));
    assert_eq!(verdict(&gains, "b"), Some(false), "a larger part of a smaller whole is as much");
    let loads = held(&before, &gains, By::Object, Column::Loads).expect("both count loads");
    assert!(loads.rows.iter().all(|row| row.change_interval.is_none()), "of counts nothing is known");
    // What is new has not become less.
    let mut other = gains.clone();
    other.objects[0].name = "new".into();
    let found = held(&before, &other, By::Object, Column::Share).expect("a cost");
    for row in &found.rows {
        let (low, high) = row.change_interval.expect("it is estimated");
        assert!(row.fate() != Some("new") || low >= 0.0, "{row:?}");
        assert!(row.fate() != Some("gone") || high <= 0.0, "{row:?}");
    }
}

#[test]
fn samples_of_time_are_held_against_samples_of_time() {
    let of_time = |objects: &[(&str, u64)]| {
        let mut profile = profile(objects);
        profile.run.mode = "sample".into();
        profile.run.estimated = true;
        let cost = objects.iter().map(|object| object.1).sum();
        profile.run.sampling = Some(SamplingInfo {
            cost,
            samples: 1000,
            squared_cost: (cost * cost) as f64 / 1000.0,
            ..SamplingInfo::default()
        });
        for object in &mut profile.objects {
            let sampled = Sampled { samples: 1, cost: object.counts.loads, ..Sampled::default() };
            object.counts = Counts { sampled, ..Counts::default() };
        }
        profile
    };
    let (before, after) = (of_time(&[("a", 900), ("b", 100)]), of_time(&[("a", 90), ("b", 110)]));
    let found = held(&before, &after, By::Object, leading_amount(&one(&before), &one(&after)))
        .expect("both are time");
    assert_eq!((found.of, found.unit, found.change()), (Column::Share, Unit::Nanoseconds, Some(-800.0)));
    let beyond: Vec<_> = found.rows.iter().map(DiffRow::is_beyond_chance).collect();
    assert_eq!(beyond, [Some(true), Some(false)], "{found:?}");
    assert!(leading_amount(&one(&before), &one(&profile(&[("a", 1)]))) == Column::Share, "which says why");
    // Time is no wait.
    let counted = profile(&[("a", 1)]);
    let error = held(&before, &counted, By::Object, Column::Share).expect_err("they are unlike");
    assert_eq!(error, DiffError::Costs { a: "time", b: "wait" });
}

#[test]
fn runs_of_one_kind_tell_what_is_chance() {
    let runs = |loads: &[[u64; 2]]| {
        let of = |&[a, b]: &[u64; 2]| profile(&[("a", a), ("b", b)]);
        Runs::new(loads.iter().map(of).collect()).expect("they are alike")
    };
    let before = runs(&[[100, 50], [110, 50], [90, 50]]);
    let after = runs(&[[105, 20], [95, 20], [85, 20], [115, 20]]);
    let found = diff(&before, &after, By::Object, Column::Loads).expect("both count loads");
    assert_eq!(amounts(&found), [("b", Some(50.0), Some(20.0)), ("a", Some(100.0), Some(100.0))]);
    let b = &found.rows[0];
    assert_eq!(
        (b.change_interval, b.is_beyond_chance()),
        (Some((-30.0, -30.0)), Some(true)),
        "always the same"
    );
    let a = &found.rows[1];
    let (low, high) = a.change_interval.expect("runs differ");
    assert!(low < -10.0 && high > 10.0 && a.is_beyond_chance() == Some(false), "{a:?}");
    assert_eq!((found.total_a, found.total_b), (Some(150.0), Some(120.0)), "means");
    let table = diff_table(&before, &after, &found, &View::default());
    assert!(table.contains("mean of 3 runs") && table.contains("mean of 4 runs"), "{table}");
    assert!(table.contains("accesses 150 → 120 (× 0.80)"), "{table}");
    let document = diff_json(&before, &after, &found);
    assert_eq!((&document["a"]["runs"], &document["b"]["runs"]), (&3.into(), &4.into()));
    // Other machines are no runs of one kind.
    let mut other = profile(&[("a", 1)]);
    other.machine.name = "another".into();
    other.machine.latencies.dram_cycles = 7;
    assert!(Runs::new(vec![profile(&[("a", 1)]), other]).is_err());
    assert!(Runs::new(Vec::new()).is_err());
}

#[test]
fn what_is_no_amount_says_so() {
    let (before, after) = (profile(&[("a", 1)]), profile(&[("a", 2)]));
    for column in [Column::Name, Column::L1MissRatio, Column::ShareLow, Column::Id] {
        let error = held(&before, &after, By::Object, column).expect_err("no amount");
        assert_eq!(error, DiffError::NoAmount(column.as_str()));
    }
    let error = held(&before, &after, By::Object, Column::StallCycles).expect_err("no core");
    assert!(matches!(error, DiffError::Unknown { profile: 'A', column: "stall_cycles", .. }), "{error}");
    // 0 is an amount.
    let nothing = profile(&[("a", 0)]);
    let found = held(&nothing, &nothing, By::Object, Column::Loads).expect("none is as many as none");
    assert_eq!(found.change(), Some(0.0));
}

#[test]
fn table_json_and_csv_say_the_same() {
    let before = profile(&[("grows", 10_000), ("shrinks, say", 100_000), ("trifle", 3), ("same", 5)]);
    let after = profile(&[("grows", 40_000), ("shrinks, say", 30_000), ("trifle", 4), ("same", 5)]);
    let found = held(&before, &after, By::Object, Column::Loads).expect("both count loads");
    let table = diff_table(&one(&before), &one(&after), &found, &View { width: 100, ..View::default() });
    let lines: Vec<&str> = table.lines().collect();
    let line =
        |word: &str| *lines.iter().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{table}"));
    assert!(
        line("change ").contains("loads 110k → 70.0k (−36.4 %) · −70.0k in 1 object · +30.0k in 2 objects"),
        "{table}"
    );
    assert!(line("shrinks, say").contains("−70.0k") && line("shrinks, say").contains("× 0.30"), "{table}");
    assert!(line("grows").contains("+30.0k") && line("grows").contains("× 4.00"), "{table}");
    assert!(!table.contains("trifle"), "{table}");
    assert_eq!(lines.last().copied(), Some("2 of 3 objects; --top 3 shows all that changed; 1 did not"));
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{table}");
    let document = diff_json(&one(&before), &one(&after), &found);
    assert_eq!(document["schema"], "memlens-diff/1");
    assert_eq!(
        (&document["rows"][0]["name"], &document["rows"][0]["change"]),
        (&"shrinks, say".into(), &(-70_000.0).into())
    );
    assert_eq!(document["rows"].as_array().map(Vec::len), Some(4));
    let mut csv = Vec::new();
    diff_csv(&found, None, &mut csv).expect("memory");
    let csv = String::from_utf8(csv).expect("text");
    assert_eq!(
        csv.lines().nth(1),
        Some("\"shrinks, say\",,heap,,,100000,30000,-70000,,,2,2,false,"),
        "{csv}"
    );
    assert_eq!(csv.lines().count(), 5);
}

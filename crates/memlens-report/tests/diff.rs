//! What a change did, on profiles made by hand; the figures are worked out beside them.

mod bfs;

use memlens_profile::{Object, Profile, SamplingInfo};
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
        assert!(text.contains("that changed"), "{text}");
    }
}

#[test]
fn lines_that_moved_are_the_same_lines() {
    let before = bfs::profile();
    let mut after = before.clone();
    // Three lines more at the head of the file; another text in the first of its lines.
    for frame in &mut after.frames {
        frame.line = frame.line.map(|line| line + 3);
    }
    let found = held(&before, &after, By::Line, Column::Share).expect("a cost");
    let texts = before.frames.iter().filter(|frame| frame.source_text.is_some()).count();
    let moved: Vec<_> = found.rows.iter().filter(|row| row.was.is_some()).collect();
    assert!(texts > 0 && !moved.is_empty(), "{found:?}");
    for row in moved {
        assert!(row.a == row.b && row.a.is_some(), "{row:?}");
        let line = |name: &str| name.rsplit(':').next().and_then(|line| line.parse::<u32>().ok());
        assert_eq!(line(&row.name), row.was.as_deref().and_then(line).map(|line| line + 3));
    }
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
    assert_eq!(csv.lines().nth(1), Some("\"shrinks, say\",,heap,,,100000,30000,-70000,,,2,2"), "{csv}");
    assert_eq!(csv.lines().count(), 5);
}

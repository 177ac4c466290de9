//! Two profiles held against each other; the figures are worked out beside them.

use memlens_profile::{
    CodeLocation, CoreInfo, Frame, FrameIx, Module, ModuleIx, Object, Profile, SampleUnit, SamplingInfo,
    Stack, StackIx,
};
use memlens_report::{
    Column, CompareError, View, compare, compare_csv, compare_json, compare_table, leading_column,
};
use memlens_types::{Counts, ObjectKind, Sampled};

/// A profile of heap objects with these names and loads, each with a site of its own: function
/// `make_NAME`, line `10 + position in the alphabet`, offset `shift` beyond `0x1000 + 16 · position`.
fn profile(objects: &[(&str, u64)], shift: u64) -> Profile {
    let mut profile = Profile {
        modules: vec![Module { path: "/bin/app".into(), ..Module::default() }],
        ..Profile::default()
    };
    profile.run.command = vec!["app".into()];
    profile.run.mode = "exact".into();
    for (index, &(name, loads)) in objects.iter().enumerate() {
        let letter = u64::from(name.as_bytes()[0] - b'a');
        profile.frames.push(Frame {
            module: Some(ModuleIx(0)),
            offset: 0x1000 + 16 * letter + shift,
            function: Some(format!("make_{name}").into()),
            file: Some("/src/app.c".into()),
            line: Some(10 + u32::try_from(letter).unwrap()),
            ..Frame::default()
        });
        profile.stacks.push(Stack(vec![FrameIx(u32::try_from(index).unwrap())]));
        profile.objects.push(Object {
            id: u32::try_from(index).unwrap() + 1,
            kind: ObjectKind::Heap,
            name: name.into(),
            site: Some(StackIx(u32::try_from(index).unwrap())),
            blocks: 1,
            counts: Counts { loads, load_bytes: 8 * loads, ..Counts::default() },
            ..Object::default()
        });
    }
    profile
}

fn near(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-12, "{value} is not {expected}");
}

#[test]
fn a_profile_is_like_itself() {
    let one = profile(&[("a", 50), ("b", 30), ("c", 20)], 0);
    let same = compare(&one, &one, Column::Loads).unwrap();
    assert_eq!((same.spearman, same.kendall), (Some(1.0), Some(1.0)));
    assert_eq!((same.top3.common, same.top3.of, same.top3.same_order), (3, 3, true));
    assert_eq!((same.mean_error, same.largest_error, same.misplaced), (0.0, 0.0, 0.0));
    // The order of what costs next to nothing is no matter.
    let (b, c) = (profile(&[("a", 97), ("b", 2), ("c", 1)], 0), profile(&[("a", 97), ("b", 1), ("c", 2)], 0));
    let alike = compare(&b, &c, Column::Loads).unwrap();
    assert_eq!((alike.top3.common, alike.top3.of, alike.top3.same_order), (1, 1, true));
}

/// A's accesses are counted, B's objects were sampled: `cost` nanoseconds each.
fn sampled(objects: &[(&str, u64)]) -> Profile {
    let mut profile = profile(objects, 0);
    profile.run.sampling = Some(SamplingInfo::default());
    for object in &mut profile.objects {
        object.counts = Counts {
            sampled: Sampled { samples: 1, cost: object.counts.loads, ..Sampled::default() },
            ..Counts::default()
        };
    }
    profile
}

#[test]
fn computation_is_left_out() {
    let counted = profile(&[("a", 60), ("b", 40)], 0);
    let mut timed = sampled(&[("a", 30), ("b", 20), ("c", 50)]);
    timed.objects[2].kind = ObjectKind::Computation;
    let found = compare(&counted, &timed, Column::Share).unwrap();
    // Half of B is computation; of the rest a has 30 of 50, as A says.
    near(found.computation_b, 0.5);
    near(found.computation_a, 0.0);
    near(found.misplaced, 0.0);
    assert_eq!((found.top3.common, found.top3.of, found.spearman), (2, 2, Some(1.0)));
    assert!(compare_table(&counted, &timed, &found, &View::default()).contains("50.0 % of B: computation"));
    assert_eq!(compare_json(&counted, &timed, &found)["b"]["share_computation"], 0.5);
}

#[test]
fn stalls_are_compared_where_a_core_was_modelled() {
    let mut counted = profile(&[("a", 100), ("b", 10)], 0);
    (counted.objects[0].counts.stall_cycles, counted.objects[1].counts.stall_cycles) = (0, 700);
    let timed = sampled(&[("a", 0), ("b", 7)]);
    let unknown = compare(&counted, &timed, Column::StallCycles);
    assert!(matches!(unknown, Err(CompareError::Unknown { profile: 'A', column: "stall_cycles" })));
    counted.machine.core = Some(CoreInfo::default());
    counted.run.core_cycles = Some(1000);
    let found = compare(&counted, &timed, Column::StallCycles).unwrap();
    near(found.misplaced, 0.0);
}

#[test]
fn the_figures_are_those_worked_out_by_hand() {
    // A: a 40, b 30, c 20, d 9, e 1 of 100. B: b 40, a 30, d 20, c 10 of 100; e is not there.
    // 95 % of A: a, b, c, d (90 are not enough). Of B: b, a, d, c (90 are not enough). Not e.
    // Ranks of the four: A 1 2 3 4, B 2 1 4 3: ρ = 1 − 6·4/(4·15) = 0.6; of 6 pairs 2 are
    // reversed: τ = (4 − 2)/6.
    let a = profile(&[("a", 40), ("b", 30), ("c", 20), ("d", 9), ("e", 1)], 0);
    let b = profile(&[("b", 40), ("a", 30), ("d", 20), ("c", 10)], 0);
    let found = compare(&a, &b, Column::Loads).unwrap();
    assert_eq!(found.ranked, 4);
    near(found.spearman.unwrap(), 0.6);
    near(found.kendall.unwrap(), 2.0 / 6.0);
    // The top 3 of A are a, b, c, those of B b, a, d.
    assert_eq!((found.top3.common, found.top3.of, found.top3.same_order), (2, 3, false));
    // e is none of the objects that matter.
    assert_eq!((found.top10.common, found.top10.of), (4, 4));
    // Off by 10, 10, 10 and 11 points; all together 42, half of it on other objects.
    near(found.mean_error, 0.41 / 4.0);
    near(found.largest_error, 0.11);
    near(found.misplaced, 0.21);
    near(found.only_a, 0.01);
    near(found.only_b, 0.0);
    let e = found.objects.iter().find(|object| object.name == "e").unwrap();
    assert_eq!((e.rank_a, e.rank_b, e.matters), (Some(5.0), None, false));
    let d = found.objects.iter().find(|object| object.name == "d").unwrap();
    assert_eq!((d.rank_a, d.rank_b), (Some(4.0), Some(3.0)));
    near(d.difference(), 0.11);
}

#[test]
fn a_rebuilt_binary_is_matched_by_lines() {
    let a = profile(&[("a", 60), ("b", 40)], 0);
    let b = profile(&[("a", 60), ("b", 40)], 0x230);
    let found = compare(&a, &b, Column::Loads).unwrap();
    assert_eq!(found.objects.len(), 2);
    assert_eq!(found.spearman, Some(1.0));
}

#[test]
fn loads_of_another_program_are_no_prediction() {
    let mut a = profile(&[("a", 60)], 0);
    let counts = Counts { loads: 60, llc_load_misses: 30, ..Counts::default() };
    let code = CodeLocation { module: Some(ModuleIx(0)), counts: counts.into(), ..CodeLocation::default() };
    a.code.push(code);
    let found = compare(&a, &a, Column::Loads).unwrap();
    assert_eq!(found.delinquent.map(|found| found.recall()), Some(Some(1.0)));
    let mut b = a.clone();
    b.modules[0].path = "/bin/app2".into();
    assert_eq!(compare(&a, &b, Column::Loads).unwrap().delinquent, None);
}

#[test]
fn equal_names_at_different_sites_stay_apart() {
    // Two objects `x1`, `y1` renamed alike: only their sites tell them apart.
    let mut a = profile(&[("x", 90), ("y", 10)], 0);
    a.objects.iter_mut().for_each(|object| object.name = "buffer".into());
    let found = compare(&a, &a, Column::Loads).unwrap();
    assert_eq!(found.objects.len(), 2);
    // Without any site on one side, the one on that side stands against both.
    let mut b = profile(&[("x", 100)], 0);
    b.objects[0].name = "buffer".into();
    b.objects[0].site = None;
    let found = compare(&a, &b, Column::Loads).unwrap();
    assert_eq!(found.objects.len(), 1);
    assert_eq!((&found.objects[0].ids_a, &found.objects[0].ids_b), (&vec![1, 2], &vec![1]));
    near(found.objects[0].share_a, 1.0);
}

#[test]
fn what_one_line_allocates_at_several_call_stacks_is_one_as_in_a_report() {
    let mut a = profile(&[("x", 60), ("x", 30), ("y", 10)], 0);
    // One of them was called from where the other was not.
    a.stacks[0].0.push(FrameIx(2));
    assert_eq!(a.object_rows().len(), 2);
    let found = compare(&a, &a, Column::Loads).unwrap();
    assert_eq!(found.objects.len(), 2);
    assert_eq!((&found.objects[0].ids_a, &found.objects[0].ids_b), (&vec![1, 2], &vec![1, 2]));
    near(found.objects[0].share_a, 0.9);
    // Also where the other profile has one of the call stacks only.
    let mut b = profile(&[("x", 90), ("y", 10)], 0);
    b.stacks[0].0.push(FrameIx(1));
    let found = compare(&a, &b, Column::Loads).unwrap();
    assert_eq!((&found.objects[0].ids_a, &found.objects[0].ids_b), (&vec![1, 2], &vec![1]));
    near(found.only_a + found.misplaced, 0.0);
}

#[test]
fn what_cannot_be_compared_says_why() {
    let a = profile(&[("a", 1)], 0);
    let other = profile(&[("z", 1)], 0);
    let error = compare(&a, &other, Column::Loads).unwrap_err();
    assert!(matches!(error, CompareError::NothingInCommon { .. }), "{error}");
    assert!(error.to_string().contains("no object in common"), "{error}");
    assert_eq!(compare(&a, &a, Column::Name).unwrap_err(), CompareError::NoAmount("name"));
    assert_eq!(compare(&a, &a, Column::L1MissRatio).unwrap_err(), CompareError::NoAmount("l1_miss_ratio"));
    // No level was modelled; nobody stored anything.
    let unknown = CompareError::Unknown { profile: 'A', column: "llc_misses" };
    assert_eq!(compare(&a, &a, Column::LlcMisses).unwrap_err(), unknown);
    assert_eq!(compare(&a, &a, Column::Stores).unwrap_err(), CompareError::Empty("stores"));
}

/// A counter that two threads have come to share.
#[test]
fn what_was_nowhere_before_is_compared() {
    let a = profile(&[("a", 60), ("b", 40)], 0);
    let mut b = a.clone();
    b.objects[1].counts.stores = 30;
    b.run.notes.push("merged from 3 runs".into());
    let found = compare(&a, &b, Column::Stores).unwrap();
    assert_eq!((found.sum_a, found.sum_b, found.objects[0].name.as_str()), (0.0, 30.0, "b"));
    assert_eq!((found.objects[0].share_a, found.objects[0].share_b), (0.0, 1.0));
    let table = compare_table(&a, &b, &found, &View { width: 100, ..View::default() });
    assert!(table.contains("A → B      stores 0 → 30 · accesses 100 → 130 (× 1.30)"), "{table}");
    assert!(table.contains("B          app · exact mode · counted · merged from 3 runs\n"), "{table}");
    let json = compare_json(&a, &b, &found);
    assert_eq!((&json["a"]["sum"], &json["b"]["sum"]), (&0.0.into(), &30.0.into()));
    assert!(compare(&b, &a, Column::Stores).is_ok(), "nor is what is gone");
}

/// A knows two sites of `nodes`, B reached their blocks through two variables of that name and knows no site.
#[test]
fn what_was_reached_through_a_variable_is_what_variables_of_its_name_hold() {
    let mut a = profile(&[("m", 50), ("n", 30), ("order", 20)], 0);
    let mut b = profile(&[("p", 70), ("q", 10), ("order", 20)], 0);
    for (object, through) in a.objects.iter_mut().take(2).zip(b.objects.iter_mut().take(2)) {
        object.name = "nodes".into();
        (through.name, through.site) = ("heap through nodes".into(), None);
    }
    let found = compare(&a, &b, Column::Loads).unwrap();
    assert_eq!((found.ranked, found.spearman), (2, Some(1.0)));
    near(found.misplaced, 0.0);
    // Objects that both know the sites of stay apart.
    b.objects.iter_mut().take(2).for_each(|object| object.name = "nodes".into());
    assert!(compare(&a, &b, Column::Loads).unwrap().misplaced > 0.5);
}

#[test]
fn what_a_change_of_the_program_saves_is_told() {
    let (mut a, mut b) = (profile(&[("a", 400), ("b", 100)], 0), profile(&[("a", 25), ("b", 100)], 0));
    (a.run.wall_seconds, b.run.wall_seconds) = (Some(2.0), Some(0.5));
    let found = compare(&a, &b, Column::Loads).unwrap();
    let table = compare_table(&a, &b, &found, &View { width: 100, ..View::default() });
    assert!(
        table.contains("A → B      2.00 s → 500.0 ms (× 0.25) while recorded · loads 500 → 125 (× 0.25)"),
        "{table}"
    );
    // Object by object, too: of a sixteenth of its accesses are left, of b all.
    assert!(table.contains("B ÷ A") && table.contains("0.06") && table.contains("1.00"), "{table}");
    let json = compare_json(&a, &b, &found);
    assert_eq!(json["totals"][0], serde_json::json!({"of": "accesses", "a": 500, "b": 125}));
    let of_a = json["objects"].as_array().unwrap().iter().find(|object| object["name"] == "a").unwrap();
    assert_eq!((&of_a["amount_a"], &of_a["amount_b"]), (&400.0.into(), &25.0.into()));
    // Times of two modes say nothing.
    b.run.mode = "burst".into();
    let table = compare_table(&a, &b, &found, &View { width: 100, ..View::default() });
    assert!(table.contains("A → B      loads 500 → 125 (× 0.25) · accesses 500 → 125 (× 0.25)"), "{table}");
}

/// A bus knows page walks, and neither accesses nor caches.
#[test]
fn what_one_of_them_does_not_know_is_no_change() {
    let a = profile(&[("a", 300), ("b", 200)], 0);
    let mut b = profile(&[("a", 30), ("b", 20)], 0);
    b.run.mode = "bus".into();
    for object in &mut b.objects {
        object.counts = Counts { dram_reads: object.counts.loads, ..Counts::default() };
    }
    let found = compare(&a, &b, Column::Share).unwrap();
    let table = compare_table(&a, &b, &found, &View::default());
    assert!(!table.contains("A → B"), "{table}");
    assert_eq!(compare_json(&a, &b, &found)["totals"], serde_json::json!([]));
}

/// R. G. Newcombe, Statistics in Medicine 17 (1998), pages 873 to 890, table II: method 10 of the examples (a), (b) and (f), each proportion
/// with its score interval.
#[test]
fn the_interval_of_a_difference_is_the_published_one() {
    let same = profile(&[("a", 1)], 0);
    let mut object = compare(&same, &same, Column::Loads).unwrap().objects.remove(0);
    assert_eq!((object.difference_interval(), object.is_beyond_chance()), (None, None), "all is counted");
    for (b, (low_b, high_b), a, (low_a, high_a), expected, is_beyond) in [
        (56.0 / 70.0, (0.69183, 0.87695), 48.0 / 80.0, (0.49045, 0.70038), (0.0524, 0.3339), true),
        (9.0 / 10.0, (0.59585, 0.98212), 3.0 / 10.0, (0.10779, 0.60322), (0.1705, 0.8090), true),
        (5.0 / 56.0, (0.03874, 0.19256), 0.0, (0.0, 0.11697), (-0.0381, 0.1926), false),
    ] {
        (object.share_a, object.share_b) = (a, b);
        (object.interval_a, object.interval_b) = (Some((low_a, high_a)), Some((low_b, high_b)));
        let (low, high) = object.difference_interval().unwrap();
        assert!(
            (low - expected.0).abs() < 6e-5 && (high - expected.1).abs() < 6e-5,
            "{low} {high} {expected:?}"
        );
        assert_eq!(object.is_beyond_chance(), Some(is_beyond));
    }
    // One counted, one estimated.
    object.interval_a = None;
    let (low, high) = object.difference_interval().unwrap();
    assert!((low - 0.03874).abs() < 1e-9 && (high - 0.19256).abs() < 1e-9, "{low} {high}");
}

/// A burst profile of two objects that stall, modelled on a core.
fn bursts(of_a: u64, of_b: u64) -> Profile {
    let mut profile = profile(&[("a", 100), ("b", 100)], 0);
    (profile.run.mode, profile.run.effective_bursts) = ("burst".into(), Some(200.0));
    (profile.machine.core, profile.run.core_cycles) = (Some(CoreInfo::default()), Some(2000));
    (profile.objects[0].counts.stall_cycles, profile.objects[1].counts.stall_cycles) = (of_a, of_b);
    profile
}

#[test]
fn what_differs_by_more_than_chance_is_told() {
    let (a, near_a, far) = (bursts(600, 400), bursts(560, 440), bursts(200, 800));
    let by = leading_column(&a, &near_a);
    assert_eq!(by, Column::StallCycles);
    let verdict = |a: &Profile, b: &Profile| {
        let found = compare(a, b, by).unwrap();
        let json = compare_json(a, b, &found);
        let verdicts: Vec<_> =
            json["objects"].as_array().unwrap().iter().map(|it| it["beyond_chance"].clone()).collect();
        let table = compare_table(a, b, &found, &View { width: 120, ..View::default() });
        assert!(table.contains("shares are of stall cycles"), "{table}");
        let mut csv = Vec::new();
        compare_csv(&found, None, &mut csv).unwrap();
        (verdicts, table, String::from_utf8(csv).unwrap())
    };
    let (verdicts, table, _) = verdict(&a, &near_a);
    assert_eq!(verdicts, [false, false]);
    assert!(table.contains("chance     no share differs by more than chance"), "{table}");
    let (verdicts, table, csv) = verdict(&a, &far);
    assert_eq!(verdicts, [true, true]);
    assert!(table.contains("chance     2 of 2 shares differ by more than chance"), "{table}");
    assert!(!csv.lines().nth(1).unwrap().contains(",,"), "{csv}");
    // Another machine's model is wrong in its own way.
    let width = |a: &Profile, b: &Profile| {
        let (low, high) = compare(a, b, by).unwrap().objects[0].difference_interval().unwrap();
        high - low
    };
    let mut other = near_a.clone();
    other.machine.name = "another".into();
    assert!(width(&a, &other) > 1.5 * width(&a, &near_a), "{} {}", width(&a, &other), width(&a, &near_a));
    // Counted, all of it.
    let [mut counted, mut counted_far] = [a, far];
    (counted.run.effective_bursts, counted_far.run.effective_bursts) = (None, None);
    let (verdicts, table, csv) = verdict(&counted, &counted_far);
    assert_eq!(verdicts, [serde_json::Value::Null, serde_json::Value::Null]);
    assert!(!table.contains("chance") && !table.contains("95 %  "), "{table}");
    assert!(csv.lines().nth(1).unwrap().contains(",,,"), "{csv}");
}

#[test]
fn what_both_reports_are_ranked_by_is_compared() {
    let (stalls, waits, timed) = (bursts(600, 400), profile(&[("a", 1)], 0), sampled(&[("a", 1)]));
    let mut events = sampled(&[("a", 1)]);
    events.run.sampling.as_mut().unwrap().unit = SampleUnit::Events;
    for (a, b, by) in [
        (&stalls, &stalls, Column::StallCycles),
        (&stalls, &timed, Column::StallCycles),
        (&timed, &stalls, Column::StallCycles),
        (&stalls, &waits, Column::Share),
        (&waits, &timed, Column::Share),
        (&timed, &timed, Column::Share),
        (&stalls, &events, Column::Share),
    ] {
        assert_eq!(leading_column(a, b), by, "{} {}", a.run.mode, b.run.mode);
    }
}

#[test]
fn table_json_and_csv_say_the_same() {
    let a = profile(&[("a", 40), ("b", 30), ("c", 20), ("d", 9), ("e", 1)], 0);
    let b = profile(&[("b", 40), ("a", 30), ("d", 20), ("c", 10)], 0);
    let found = compare(&a, &b, Column::Loads).unwrap();
    let table = compare_table(&a, &b, &found, &View { width: 100, ..View::default() });
    assert!(table.contains("Spearman 0.600 · Kendall 0.333 · of the 4 objects that make 95 %"), "{table}");
    assert!(table.contains("2 of the top 3 · 4 of the top 4"), "{table}");
    assert!(table.contains("A → B      loads 100 → 100 · accesses 100 → 100 · "), "{table}");
    assert!(table.contains("+11.00"), "{table}");
    assert!(table.contains("make_d app.c:13"), "{table}");
    assert!(table.ends_with("\n5 objects; shares are of loads\n"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    let table = compare_table(&a, &b, &found, &View { width: 20, ..View::default() });
    assert!(table.ends_with("\n5 objects\nshares are of loads\n"), "{table}");
    let json = compare_json(&a, &b, &found);
    assert_eq!(json["schema"], "memlens-compare/1");
    assert_eq!(json["objects"].as_array().unwrap().len(), 5);
    let e = json["objects"].as_array().unwrap().iter().find(|object| object["name"] == "e").unwrap();
    assert_eq!((&e["share_b"], &e["rank_b"]), (&serde_json::Value::Null, &serde_json::Value::Null));
    near(json["share_error"]["misplaced"].as_f64().unwrap(), 0.21);
    let mut csv = Vec::new();
    compare_csv(&found, None, &mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    assert_eq!(csv.lines().count(), 6);
    assert!(csv.contains("e,heap,0.010000,,-0.010000,5,,1,,false,make_e app.c:14,,,5,\r\n"), "{csv}");
}

use memlens_profile::{
    AccessPattern, CacheInfo, CodeLocation, CoreInfo, Element, Field, FieldUse, StackIx, ThreadIx, TlbInfo,
};
use memlens_types::{Numa, Shared};

use super::*;

fn findings(profile: &Profile) -> Vec<Finding> {
    advice(profile).findings
}

/// Two arrays: `b`, read through `a` by one operand, and by another in steps of 4,096 bytes.
fn profile() -> Profile {
    let cache = |bytes| Some(CacheInfo { bytes, ways: 8, policy: "lru".into() });
    let mut profile = Profile::default();
    profile.machine.line_bytes = 64;
    (profile.machine.l1d, profile.machine.llc) = (cache(32 << 10), cache(1 << 20));
    profile.machine.dtlb = Some(TlbInfo { entries: 64, ways: 64 });
    profile.machine.stlb = Some(TlbInfo { entries: 1024, ways: 8 });
    let object =
        |id, bytes| Object { id, kind: ObjectKind::Heap, max_live_bytes: Some(bytes), ..Object::default() };
    profile.objects = vec![object(1, 4096), object(2, 256 << 20)];
    let code = |id| CodeLocation { id, size_bytes: 8, ..CodeLocation::default() };
    profile.code = vec![code(1), code(2), code(3)];
    let cell = |code, object, misses| {
        let counts = Counts {
            loads: 1000,
            load_bytes: 8000,
            l1_load_misses: misses,
            l2_load_misses: misses,
            llc_load_misses: misses,
            ..Counts::default()
        };
        Cell { code: CodeIx(code), object: ObjectIx(object), thread: ThreadIx(0), counts: counts.into() }
    };
    profile.cells = vec![cell(0, 0, 0), cell(1, 1, 900), cell(2, 1, 1000)];
    let pattern = |code, kind, stride_bytes, loaded_by| AccessPattern {
        code: CodeIx(code),
        kind,
        stride_bytes,
        loaded_by,
        ..AccessPattern::default()
    };
    profile.patterns = vec![
        pattern(0, PatternKind::Stream, Some(8), None),
        pattern(1, PatternKind::Indirect, None, Some(CodeIx(0))),
        pattern(2, PatternKind::Stride, Some(4096), None),
    ];
    profile.threads = vec![memlens_profile::Thread::default()];
    profile.sum_cells();
    profile
}

/// A field of so many bytes.
fn field(object: ObjectIx, offset_bytes: u64, size_bytes: u64, name: &str) -> Field {
    Field {
        object,
        offset_bytes: Some(offset_bytes),
        size_bytes: Some(size_bytes),
        name: Some(name.into()),
        type_name: None,
    }
}

/// `b` is an array of structures of 64 bytes, whose first 8 have all of its misses; the other operand touches the rest.
#[test]
fn few_bytes_that_do_the_waiting_are_split_off() {
    let mut profile = profile();
    profile.patterns.clear();
    let object = ObjectIx(1);
    profile.objects[1].element = Some(Element { type_name: "struct entry".into(), bytes: 64 });
    profile.fields = vec![field(object, 0, 8, "key"), field(object, 8, 56, "rest")];
    let seen = |code, field| FieldUse { code: CodeIx(code), field: FieldIx(field), seen: 1 };
    profile.field_uses = vec![seen(1, 1), seen(2, 0)];
    let split = |profile: &Profile| {
        let mut all = findings(profile).into_iter();
        all.find(|finding| matches!(finding.remedy, Remedy::Split { .. }))
    };
    assert_eq!(split(&profile), None, "both fields wait");
    profile.cells[1].counts = Counts { loads: 500, ..Counts::default() }.into();
    profile.sum_cells();
    assert_eq!(split(&profile), None, "the rest does not wait, but may be used beside the key");
    let counts = Counts { loads: 90, ..Counts::default() };
    profile.cells[1].counts = counts.into();
    profile.sum_cells();
    let found = split(&profile).expect("a finding");
    let hot = vec![FieldIx(0)];
    assert_eq!(found.remedy, Remedy::Split { hot, hot_bytes: 8, element_bytes: 64 });
    assert_eq!((&found.objects, &found.code), (&vec![object], &vec![CodeIx(2)]));
    // Structure by structure: there are no loops to exchange. By steps of two there may be.
    let remedies = |profile: &mut Profile, stride_bytes| {
        let kind = PatternKind::Stride;
        let stride_bytes = Some(stride_bytes);
        profile.patterns =
            vec![AccessPattern { code: CodeIx(2), kind, stride_bytes, ..AccessPattern::default() }];
        let names: Vec<_> = findings(profile).iter().map(|finding| finding.remedy.as_str()).collect();
        profile.patterns.clear();
        (names.contains(&"split"), names.contains(&"layout"))
    };
    assert_eq!(remedies(&mut profile, -64), (true, false));
    assert_eq!(remedies(&mut profile, 128), (true, true));
    // An eighth of the lines is left: 256 MiB are 32, of which the first level keeps a thousandth, the last 1 MiB.
    let latencies = profile.machine.latencies;
    let [l1, dram] = [latencies.l1_cycles, latencies.dram_cycles].map(f64::from);
    let whole = 1090.0 * l1 + 1000.0 * dram;
    let llc = f64::from(latencies.llc_cycles);
    let then = 876.0 * l1 + 3.0 * llc + 121.0 * dram;
    assert!((found.gain - (1000.0 * dram - then) / whole).abs() < 0.001, "{}", found.gain);
    // Of 4 MiB half a MiB is left, which the last level holds, and of which the first has a sixteenth.
    profile.objects[1].max_live_bytes = Some(4 << 20);
    let then = 883.0 * l1 + 117.0 * llc;
    let gain = split(&profile).expect("a finding").gain;
    assert!((gain - (1000.0 * dram - then) / whole).abs() < 0.001, "{gain}");
    profile.objects[1].element = Some(Element { type_name: "std::_List_node<int>".into(), bytes: 64 });
    assert_eq!(split(&profile), None, "nobody's to change");
}

/// Two copies of a load that an unrolled loop has go by steps of two structures, together by one.
#[test]
fn copies_of_an_unrolled_loop_go_through_structures_together() {
    let mut profile = profile();
    let object = ObjectIx(1);
    profile.objects[1].element = Some(Element { type_name: "struct entry".into(), bytes: 64 });
    profile.fields = vec![field(object, 0, 8, "key"), field(object, 8, 8, "other")];
    profile.frames = vec![memlens_profile::Frame {
        file: Some("a.c".into()),
        line: Some(7),
        ..memlens_profile::Frame::default()
    }];
    profile.stacks = vec![memlens_profile::Stack(vec![memlens_profile::FrameIx(0)])];
    profile.code.iter_mut().for_each(|code| code.stack = Some(StackIx(0)));
    profile.cells.remove(0);
    let stride = |code| AccessPattern {
        code: CodeIx(code),
        kind: PatternKind::Stride,
        stride_bytes: Some(128),
        ..AccessPattern::default()
    };
    profile.patterns = vec![stride(1), stride(2)];
    let strides = |profile: &mut Profile, second: u32| {
        let seen = |code, field| FieldUse { code: CodeIx(code), field: FieldIx(field), seen: 1 };
        profile.field_uses = vec![seen(1, 0), seen(2, second)];
        profile.sum_cells();
        let layouts = findings(profile).into_iter().filter_map(|finding| match finding.remedy {
            Remedy::Layout { stride_bytes, .. } => Some(stride_bytes),
            _ => None,
        });
        layouts.collect::<Vec<_>>()
    };
    assert_eq!(strides(&mut profile, 0), Vec::<i64>::new(), "of fields apart: there is no loop to exchange");
    assert_eq!(strides(&mut profile, 1), vec![128_i64], "two fields of every second structure");
}

/// `b` as so many structures of 256 bytes: one operand reads their balance, others all of the rest; 4-KiB pages, a prefetcher.
fn accounts(structures: u64) -> Profile {
    let mut profile = profile();
    profile.machine.page_bytes = 4096;
    profile.machine.prefetcher_streams = 32;
    profile.machine.l2 = Some(CacheInfo { bytes: 512 << 10, ways: 8, policy: "lru".into() });
    let object = ObjectIx(1);
    let bytes = Some(256 * structures);
    (profile.objects[1].bytes, profile.objects[1].max_live_bytes) = (bytes, bytes);
    profile.objects[1].element = Some(Element { type_name: "Account".into(), bytes: 256 });
    profile.fields = vec![field(object, 0, 8, "balance"), field(object, 8, 248, "rest[]")];
    let seen = |code, field| FieldUse { code: CodeIx(code), field: FieldIx(field), seen: 1 };
    profile.field_uses = vec![seen(1, 1), seen(2, 0)];
    profile.cells.remove(0);
    profile.patterns.remove(0);
    profile
}

fn split(profile: &mut Profile) -> Option<Finding> {
    profile.sum_cells();
    findings(profile).into_iter().find(|found| matches!(found.remedy, Remedy::Split { .. }))
}

/// Reads at random places, of which each misses the TLBs: 300,000 structures have 2.4 MB of balances, whose pages the second TLB of 4 MiB
/// holds. So no walk is left, and no read of memory.
#[test]
fn fields_apart_take_fewer_pages() {
    let mut profile = accounts(300_000);
    profile.machine.llc = Some(CacheInfo { bytes: 32 << 20, ways: 16, policy: "lru".into() });
    let counts = |prefetched| Counts {
        loads: 1_000_000,
        load_bytes: 8_000_000,
        l1_load_misses: 1_000_000,
        l2_load_misses: 1_000_000,
        llc_load_misses: 1_000_000,
        l2_prefetched: prefetched,
        llc_prefetched: prefetched,
        dtlb_misses: 1_000_000,
        stlb_misses: 900_000,
        page_walk_accesses: 1_000_000,
        ..Counts::default()
    };
    let latencies = profile.machine.latencies;
    let [l1, l2, llc, dram, walk] = [
        latencies.l1_cycles,
        latencies.l2_cycles,
        latencies.llc_cycles,
        latencies.dram_cycles,
        latencies.walk_access_cycles,
    ]
    .map(f64::from);
    profile.cells = vec![Cell { counts: counts(0).into(), ..profile.cells[1] }];
    profile.patterns =
        vec![AccessPattern { code: CodeIx(2), kind: PatternKind::Irregular, ..AccessPattern::default() }];
    let gain = |profile: &mut Profile| {
        let found = split(profile).expect("a finding");
        (found.gain, profile.wait_cycles(&profile.totals()) as f64)
    };
    // The levels keep of 2.4 MB what they have room for: 1.4 % the first, 21.8 % the second, all the last; of 586 pages 10.9 % the first TLB.
    let (first, second) = (1e6 * (1.0 - 0.01365), 1e6 * (1.0 - 0.21845));
    let then = (1e6 - first) * l1 + (first - second) * l2 + second * llc;
    let dtlb = 1e6 * (1.0 - 0.10923) * f64::from(latencies.stlb_cycles);
    let (found, whole) = gain(&mut profile);
    assert!((found - (whole - then - dtlb) / whole).abs() < 0.0001, "{found}");
    assert!(whole > 1e6 * (dram + walk) && found > 0.5);
    // Two thirds of them one after another: each of these may have led one that no prefetcher asked for.
    profile.cells[0].counts = counts(666_666).into();
    let then = (1e6 - first) * l1 + first * l2;
    let (found, whole) = gain(&mut profile);
    assert!((found - (whole - then - dtlb) / whole).abs() < 0.0001, "{found}");
    // An eighth of the lines is left, less what of 2.4 MB the levels keep; of pages a 32nd, less the 10.9 % that the first TLB has of what the
    // second does not hold now.
    let (first, dtlb) = (first / 8.0, 0.9 * dtlb / 32.0);
    let then = (1e6 - first) * l1 + first * l2;
    // A walk by structures of more than a page, which no prefetcher follows now.
    profile.cells[0].counts = counts(0).into();
    profile.patterns[0].stride_bytes = Some(256);
    let (found, whole) = gain(&mut profile);
    assert!((found - (whole - then - dtlb) / whole).abs() < 0.0001, "{found}");
    // Of 300 million balances no level holds much: a 32nd of the walks is left, each of one entry.
    profile.objects[1].max_live_bytes = Some(256 * 300_000_000);
    let then = 0.875e6 * l1 + 0.125e6 * l2 + (0.9e6 / 32.0) * walk;
    let (found, whole) = gain(&mut profile);
    assert!((found - (whole - then) / whole).abs() < 0.001, "{found}");
}

/// All balances are read four times. What is done once with the rest of each structure is no use beside them.
#[test]
fn what_is_only_made_is_not_used_beside() {
    let structures = 1 << 20;
    let rest = |loads, stores, misses| Counts {
        loads,
        stores,
        load_bytes: 31 * 8 * loads,
        store_bytes: 8 * stores,
        l1_store_misses: misses,
        ..Counts::default()
    };
    let with = |counts: Counts, stride: Option<i64>| {
        let mut profile = accounts(structures);
        profile.cells[0].counts = counts.into();
        profile.cells[1].counts.change(|counts| {
            (counts.loads, counts.load_bytes) = (4 * structures, 32 * structures);
            (counts.l1_load_misses, counts.l2_load_misses, counts.llc_load_misses) =
                (4 * structures, 4 * structures, 4 * structures);
        });
        profile.patterns = vec![AccessPattern {
            code: CodeIx(1),
            kind: PatternKind::MultiStride,
            stride_bytes: stride,
            ..AccessPattern::default()
        }];
        profile
    };
    let found = |counts, stride| split(&mut with(counts, stride)).is_some();
    assert!(found(rest(structures, 0, 0), Some(256)), "each structure is looked at once");
    assert!(found(rest(0, 31 * structures, structures / 10), Some(8)), "a loop fills 31 numbers of each");
    assert!(!found(rest(0, 31 * structures, structures / 10), None), "the same somewhere");
    assert!(!found(rest(3 * structures, 0, 0), Some(256)), "three times");
    assert!(
        !found(rest(5 * structures / 2 + 1, 0, 0), Some(256)),
        "some of them, for all that is known often"
    );
    assert!(!found(rest(31 * 3 * structures, 0, 0), Some(8)), "from number to number, three times");
    // Nothing is used: what waits is the filling.
    let mut profile = with(rest(0, structures, 0), Some(256));
    profile.cells[1].counts.change(|counts| (counts.loads, counts.load_bytes) = (structures, 8 * structures));
    profile.patterns.push(AccessPattern { code: CodeIx(2), ..profile.patterns[0].clone() });
    assert_eq!(split(&mut profile), None);
    // The C library's copies have no pattern that says how.
    let mut profile = with(rest(0, 31 * structures, 0), None);
    profile.modules = vec![memlens_profile::Module { path: "/lib/libc.so.6".into(), ..Default::default() }];
    profile.frames =
        vec![memlens_profile::Frame { function: Some("__memset_avx2".into()), ..Default::default() }];
    profile.stacks = vec![memlens_profile::Stack(vec![memlens_profile::FrameIx(0)])];
    (profile.code[1].stack, profile.code[1].module) = (Some(StackIx(0)), Some(ModuleIx(0)));
    assert!(split(&mut profile).is_some());
}

/// Balances are read at random, of every fifth structure the rest, too: that may stay behind, and misses for itself then.
#[test]
fn what_is_used_beside_now_and_then_may_stay_behind() {
    let structures = 1 << 20;
    let with = |beside: u64| {
        let mut profile = accounts(structures);
        let counts = |loads: u64, misses: u64| Counts {
            loads,
            load_bytes: 8 * loads,
            l1_load_misses: misses,
            l2_load_misses: misses,
            llc_load_misses: misses,
            ..Counts::default()
        };
        profile.cells[0].counts = counts(beside * structures / 10, 0).into();
        profile.cells[1].counts = counts(4 * structures, 4 * structures).into();
        profile
    };
    let gain = |beside| split(&mut with(beside)).map(|found| found.gain);
    let (alone, some) = (gain(0).expect("a finding"), gain(8).expect("a finding"));
    assert!((0.15..0.25).contains(&(alone - some)), "{alone} {some}");
    assert_eq!(gain(24), None, "used with it");
}

/// Balances are read at random, the rest by walks through all structures, as often: a loop of its own, which needs no balance.
#[test]
fn fields_of_walks_stay_where_they_are() {
    // Of their balances there is 1 MiB, as much as the last level holds.
    let structures = 1 << 17;
    let mut profile = accounts(structures);
    let object = ObjectIx(1);
    profile.fields = vec![
        field(object, 0, 8, "balance"),
        field(object, 8, 32, "rates[]"),
        field(object, 40, 216, "rest[]"),
    ];
    let counts = |misses: u64| Counts {
        loads: 4 * structures,
        load_bytes: 32 * structures,
        l1_load_misses: misses,
        l2_load_misses: misses,
        llc_load_misses: misses,
        ..Counts::default()
    };
    profile.cells[0].counts = counts(structures).into();
    profile.cells[1].counts = counts(4 * structures).into();
    let hot = |profile: &mut Profile| match split(profile).expect("a finding").remedy {
        Remedy::Split { hot, .. } => hot,
        remedy => panic!("{remedy:?}"),
    };
    assert_eq!(hot(&mut profile), [FieldIx(0), FieldIx(1)], "used as often, for all that is known");
    let pattern = |code, kind, stride_bytes| AccessPattern {
        code: CodeIx(code),
        kind,
        stride_bytes,
        ..AccessPattern::default()
    };
    profile.patterns =
        vec![pattern(1, PatternKind::Stride, Some(256)), pattern(2, PatternKind::Irregular, None)];
    assert_eq!(hot(&mut profile), [FieldIx(0)]);
    // From one rate to the next but one of a structure, which lies anywhere.
    profile.patterns[0].stride_bytes = Some(16);
    assert_eq!(hot(&mut profile), [FieldIx(0), FieldIx(1)]);
}

/// One instruction loads 16 bytes, which are two fields.
#[test]
fn what_a_wide_access_covers_is_hot_too() {
    let mut profile = accounts(1 << 20);
    let object = ObjectIx(1);
    profile.fields = vec![
        field(object, 0, 8, "x"),
        field(object, 8, 8, "y"),
        field(object, 16, 8, "z"),
        field(object, 24, 232, "rest[]"),
    ];
    let seen = |code, field| FieldUse { code: CodeIx(code), field: FieldIx(field), seen: 1 };
    profile.field_uses = vec![seen(1, 3), seen(2, 0)];
    profile.cells[0].counts = Counts::default().into();
    let hot = |profile: &mut Profile| match split(profile).expect("a finding").remedy {
        Remedy::Split { hot, hot_bytes, .. } => (hot, hot_bytes),
        remedy => panic!("{remedy:?}"),
    };
    assert_eq!(hot(&mut profile), (vec![FieldIx(0)], 8));
    profile.code[2].size_bytes = 16;
    assert_eq!(hot(&mut profile), (vec![FieldIx(0), FieldIx(1)], 16));
    profile.code[2].size_bytes = 24;
    assert_eq!(hot(&mut profile), (vec![FieldIx(0), FieldIx(1), FieldIx(2)], 24));
}

/// A vector is resized: its first element is made by wide stores, and all others are copies of that, by wide loads of it. Then their `x` is
/// gone through.
#[test]
fn how_the_first_element_is_made_and_copied_is_no_use_of_the_others() {
    let mut profile = accounts(1 << 20);
    let object = ObjectIx(1);
    profile.fields =
        vec![field(object, 0, 8, "x"), field(object, 8, 8, "y"), field(object, 16, 240, "rest[]")];
    profile.code[1].size_bytes = 64;
    let seen = |code, field| FieldUse { code: CodeIx(code), field: FieldIx(field), seen: 1 };
    profile.field_uses = vec![seen(1, 0), seen(2, 0)];
    let mut with = |loads, kind| {
        profile.cells[0].counts = Counts { loads, load_bytes: 64 * loads, ..Counts::default() }.into();
        profile.patterns = vec![AccessPattern { code: CodeIx(1), kind, ..AccessPattern::default() }];
        match split(&mut profile).map(|found| found.remedy) {
            Some(Remedy::Split { hot, .. }) => Some(hot),
            None => None,
            remedy => panic!("{remedy:?}"),
        }
    };
    let all = 1 << 19;
    assert_ne!(with(all, PatternKind::Irregular), Some(vec![FieldIx(0)]), "used with what lies behind it");
    assert_eq!(with(all, PatternKind::Constant), Some(vec![FieldIx(0)]), "of the first");
    assert_eq!(with(4, PatternKind::Unknown), Some(vec![FieldIx(0)]), "hardly ever");
}

/// The walk over `b` as a chase over blocks of so many bytes each, in all 256 MiB.
fn chase(block_bytes: u64) -> Profile {
    let mut profile = profile();
    profile.machine.prefetcher_streams = 32;
    profile.patterns = vec![AccessPattern {
        code: CodeIx(2),
        kind: PatternKind::PointerChase,
        stride_bytes: None,
        ..AccessPattern::default()
    }];
    profile.objects[1].bytes = Some(256 << 20);
    profile.objects[1].blocks = (256 << 20) / block_bytes;
    profile
}

fn packs(profile: &mut Profile) -> Option<(Nodes, f64)> {
    profile.sum_cells();
    let mut all = findings(profile).into_iter();
    all.find_map(|found| match found.remedy {
        Remedy::Pack { nodes } => Some((nodes, found.gain)),
        _ => None,
    })
}

/// Only nodes that are blocks can be allocated elsewhere.
#[test]
fn nodes_of_one_block_are_not_blocks() {
    let nodes = |profile: &mut Profile| packs(profile).map(|(nodes, _)| nodes);
    assert_eq!(nodes(&mut chase(64)), Some(Nodes::Blocks));
    assert_eq!(nodes(&mut chase(256 << 20)), Some(Nodes::Parts));
    assert_eq!(nodes(&mut chase(4096 - 16)), Some(Nodes::Parts), "an allocator's pages");
    let mut profile = chase(64);
    // One at a time.
    profile.objects[1].max_live_bytes = Some(64);
    assert_eq!(nodes(&mut profile), None);
    profile.objects[1].kind = ObjectKind::Global;
    assert_eq!(nodes(&mut profile), Some(Nodes::Parts));
    profile.objects[1].kind = ObjectKind::Unknown;
    assert_eq!(nodes(&mut profile), None);
    // Whoever looks on from outside knows of no allocation.
    let mut profile = chase(64);
    (profile.objects[1].bytes, profile.objects[1].blocks) = (None, 0);
    assert_eq!(nodes(&mut profile), Some(Nodes::Blocks));
}

/// The TLB's misses go away with those of the caches.
#[test]
fn nodes_side_by_side_hit_everything() {
    let mut profile = chase(64);
    profile.cells.remove(1);
    profile.cells[1].counts.change(|counts| {
        (counts.dtlb_misses, counts.stlb_misses, counts.page_walk_accesses) = (1000, 1000, 1000);
    });
    let (_, gain) = packs(&mut profile).expect("a finding");
    let whole = profile.wait_cycles(&profile.totals()) as f64;
    let then = 2000.0 * f64::from(profile.machine.latencies.l1_cycles);
    assert!((gain - (whole - then) / whole).abs() < 0.001, "{gain}");
}

#[test]
fn nodes_in_the_order_of_their_walk_stay_where_they_are() {
    let found = |block_bytes, step: Option<i64>, permille, prefetched| {
        let mut profile = chase(block_bytes);
        (profile.patterns[0].stride_bytes, profile.patterns[0].stride_permille) = (step, permille);
        profile.cells[2].counts.change(|counts| counts.l2_prefetched = prefetched);
        packs(&mut profile).is_some()
    };
    assert!(!found(64, Some(80), 1000, 960) && !found(64, Some(-80), 900, 960));
    assert!(!found(256 << 20, Some(64), 1000, 969), "in an array");
    assert!(!found(800, Some(816), 1000, 400), "five in a page");
    assert!(!found(64, None, 0, 800), "several sizes in turn");
    assert!(found(64, Some(80), 1000, 0), "another list's steps");
    assert!(found(64, Some(512), 1000, 800), "much lies between them");
    assert!(found(64, Some(80), 500, 400) && found(64, None, 0, 300), "half in order");
    // Without a prefetcher the steps say it all.
    let mut profile = chase(64);
    profile.machine.prefetcher_streams = 0;
    (profile.patterns[0].stride_bytes, profile.patterns[0].stride_permille) = (Some(80), 1000);
    assert_eq!(packs(&mut profile), None);
    profile.patterns[0].stride_permille = 500;
    assert!(packs(&mut profile).is_some());
}

/// A function moves `b` within itself, 128 bytes a step: two operands load a line each, two store one, each of which misses for all of it.
#[test]
fn operands_of_one_loop_use_a_line_up_together() {
    let mut profile = profile();
    profile.frames = vec![memlens_profile::Frame { function: Some("moves".into()), ..Default::default() }];
    profile.stacks = vec![memlens_profile::Stack(vec![memlens_profile::FrameIx(0)])];
    profile.code.push(CodeLocation { id: 4, ..profile.code[2].clone() });
    let counts = |is_store: bool, bytes: u64| {
        let loads =
            Counts { loads: 1000, load_bytes: 1000 * bytes, l1_load_misses: 1000, ..Counts::default() };
        let stores =
            Counts { stores: 1000, store_bytes: 1000 * bytes, l1_store_misses: 1000, ..Counts::default() };
        if is_store { stores } else { loads }
    };
    profile.patterns.remove(1);
    profile.patterns.push(AccessPattern { code: CodeIx(3), ..profile.patterns[1].clone() });
    profile.code[2..].iter_mut().for_each(|code| code.stack = Some(StackIx(0)));
    let used = |profile: &mut Profile, bytes| {
        profile.cells[1].counts = counts(false, bytes).into();
        profile.cells[1].code = CodeIx(2);
        profile.cells[2].counts = counts(true, bytes).into();
        profile.cells[2].code = CodeIx(3);
        profile.sum_cells();
        findings(profile).into_iter().find_map(|found| match found.remedy {
            Remedy::Layout { used_bytes, .. } => Some(used_bytes),
            _ => None,
        })
    };
    assert_eq!(used(&mut profile, 64), None, "not 64 bytes for two misses");
    assert_eq!(used(&mut profile, 16), Some(16));
    // Another function uses little of its lines, and that one's are none of its business.
    profile.frames.push(memlens_profile::Frame { function: Some("sums".into()), ..Default::default() });
    profile.stacks.push(memlens_profile::Stack(vec![memlens_profile::FrameIx(1)]));
    profile.code.push(CodeLocation { id: 5, stack: Some(StackIx(1)), ..profile.code[2].clone() });
    profile.patterns.push(AccessPattern { code: CodeIx(4), ..profile.patterns[1].clone() });
    profile.cells.push(Cell { code: CodeIx(4), counts: counts(false, 8).into(), ..profile.cells[1] });
    assert_eq!(used(&mut profile, 64), Some(8));
}

/// Fields of structures that lie together are as many fewer bytes, which caches and TLBs may hold.
#[test]
fn another_order_of_fields_may_fit_a_level() {
    let mut profile = accounts(2000);
    profile.cells.remove(0);
    profile.patterns = vec![AccessPattern {
        code: CodeIx(2),
        kind: PatternKind::Stride,
        stride_bytes: Some(256),
        ..AccessPattern::default()
    }];
    profile.cells[0].counts.change(|counts| {
        (counts.dtlb_misses, counts.stlb_misses, counts.page_walk_accesses) = (60, 60, 60);
    });
    profile.sum_cells();
    let all = findings(&profile).into_iter();
    let found = all.into_iter().find(|found| found.remedy.as_str() == "layout").expect("a finding");
    // 16,000 bytes in four pages.
    let whole = profile.wait_cycles(&profile.totals()) as f64;
    let then = 1000.0 * f64::from(profile.machine.latencies.l1_cycles);
    assert!((found.gain - (whole - then) / whole).abs() < 0.0001, "{}", found.gain);
}

#[test]
fn loops_whose_exchange_would_only_change_places_are_told() {
    let layout = |profile: &Profile| {
        findings(profile).into_iter().find_map(|finding| match finding.remedy {
            Remedy::Layout { against, .. } => Some(against),
            _ => None,
        })
    };
    let mut profile = profile();
    // The stream through `a` and the walk through `b` by pages, on one line of code and on two.
    let frame =
        |line| memlens_profile::Frame { file: Some("t.c".into()), line: Some(line), ..Default::default() };
    profile.frames = vec![frame(7), frame(8)];
    let mut on_lines = |a: u32, b: u32| {
        profile.stacks = [a, b].map(|at| memlens_profile::Stack(vec![memlens_profile::FrameIx(at)])).into();
        (profile.code[0].stack, profile.code[2].stack) = (Some(StackIx(0)), Some(StackIx(1)));
        layout(&profile)
    };
    assert_eq!((on_lines(0, 0), on_lines(0, 1)), (Some(Some(ObjectIx(0))), Some(None)));
    // They go through both in blocks of 32 lines already.
    on_lines(0, 0);
    profile.patterns.iter_mut().for_each(|pattern| pattern.walk_steps = Some(31));
    assert_eq!(layout(&profile), None);
    profile.patterns.iter_mut().for_each(|pattern| pattern.walk_steps = Some(10_000));
    assert_eq!(layout(&profile), Some(Some(ObjectIx(0))));
}

#[test]
fn each_pattern_has_its_remedy_with_the_gain_by_hand() {
    let profile = profile();
    let latencies = profile.machine.latencies;
    let [l1, llc, dram] = [latencies.l1_cycles, latencies.llc_cycles, latencies.dram_cycles].map(f64::from);
    // 3,000 accesses: 1,100 hits, 1,900 reads of memory.
    let whole = 1100.0 * l1 + 1900.0 * dram;
    let found = findings(&profile);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0].remedy, Remedy::Layout { stride_bytes: 4096, used_bytes: 8, against: None });
    // An eighth of the lines would do.
    assert!((found[0].gain - 875.0 * (dram - l1) / whole).abs() < 0.001, "{}", found[0].gain);
    let index = Some(ObjectIx(0));
    assert_eq!(found[1].remedy, Remedy::Prefetch { index, beside: Vec::new() });
    assert_eq!((&found[1].objects, &found[1].code), (&vec![ObjectIx(1)], &vec![CodeIx(1)]));
    // There is no second level: the last one has them then.
    assert!((found[1].gain - 900.0 * (dram - llc) / whole).abs() < 0.001, "{}", found[1].gain);
}

/// Who prefetches already is not told to.
#[test]
fn what_the_program_prefetches_needs_no_prefetch() {
    let prefetches = |object, offset| {
        let mut profile = profile();
        let code = CodeLocation { id: 4, kind: AccessKind::Prefetch, offset, ..profile.code[1].clone() };
        profile.code.push(code);
        let counts = Counts { dtlb_misses: 900, ..Counts::default() };
        profile.cells.push(Cell {
            code: CodeIx(3),
            object: ObjectIx(object),
            thread: ThreadIx(0),
            counts: counts.into(),
        });
        profile.sum_cells();
        findings(&profile).iter().any(|finding| matches!(finding.remedy, Remedy::Prefetch { .. }))
    };
    assert!(!prefetches(1, 0x20), "the same data, beside the load");
    assert!(prefetches(0, 0x20), "other data");
    assert!(prefetches(1, 0x9000), "other code");
}

/// A walk down the columns of a matrix: in the other order one line of eight accesses is read, which a prefetcher asks for
/// in time, and one page of 512 is looked up. Where the lines are used up all the same, the pages remain.
#[test]
fn another_order_spares_lines_and_pages() {
    let mut profile = profile();
    profile.machine.prefetcher_streams = 32;
    profile.machine.page_bytes = 4096;
    let latencies = profile.machine.latencies;
    let [l1, llc, dram, walk] =
        [latencies.l1_cycles, latencies.llc_cycles, latencies.dram_cycles, latencies.walk_access_cycles]
            .map(f64::from);
    let layout = |profile: &Profile| {
        let found = findings(profile);
        found.into_iter().find(|found| matches!(found.remedy, Remedy::Layout { .. })).expect("a finding")
    };
    let mut counts = profile.cells[2].counts.get();
    (counts.dtlb_misses, counts.stlb_misses, counts.page_walk_accesses) = (1000, 1000, 1000);
    profile.cells[2].counts = counts.into();
    profile.sum_cells();
    let whole = profile.wait_cycles(&profile.totals()) as f64;
    // 125 lines from the last level, there is no second; 1 page.
    let then = 875.0 * l1 + 125.0 * llc + walk;
    let now = 1000.0 * dram + 1000.0 * walk;
    let gain = layout(&profile).gain;
    assert!((gain - (now - then) / whole).abs() < 0.01, "{gain}");
    profile.cells[1].counts = Counts::default().into();
    counts = counts.with_misses(|misses| misses / 8, |_| 0, |_| 0);
    profile.cells[2].counts = counts.into();
    profile.sum_cells();
    let found = layout(&profile);
    assert_eq!(found.remedy, Remedy::Layout { stride_bytes: 4096, used_bytes: 64, against: None });
    let whole = profile.wait_cycles(&profile.totals()) as f64;
    assert!((found.gain - 999.0 * walk / whole).abs() < 0.01, "{}", found.gain);
}

/// The loop over `b` in steps is malloc's, by its function or its source, or the dynamic linker's: nothing to do about it.
#[test]
fn code_of_the_system_has_no_remedy() {
    let layouts = |module: &str, function: &str, file: &str| {
        let mut profile = profile();
        profile.modules = vec![memlens_profile::Module { path: module.into(), ..Default::default() }];
        profile.frames = vec![memlens_profile::Frame {
            function: Some(function.into()),
            file: Some(file.into()),
            ..Default::default()
        }];
        profile.stacks = vec![memlens_profile::Stack(vec![memlens_profile::FrameIx(0)])];
        profile.code[2].stack = Some(StackIx(0));
        profile.code[2].module = Some(ModuleIx(0));
        let found = findings(&profile);
        assert!(found.iter().any(|finding| matches!(finding.remedy, Remedy::Prefetch { .. })), "{found:?}");
        found.iter().any(|finding| matches!(finding.remedy, Remedy::Layout { .. }))
    };
    let (own, libc, linker) = ("/home/app", "/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2");
    assert!(layouts(own, "malloc", "pool.c") && layouts(libc, "qsort", "./stdlib/msort.c"));
    assert!(!layouts(libc, "_int_malloc", "") && !layouts(own, "_int_free", "./malloc/malloc.c"));
    assert!(!layouts(libc, "__memmove_avx_unaligned_erms", "") && layouts(own, "memmove_rows", ""));
    assert!(!layouts(own, "", "../sysdeps/x86_64/multiarch/memmove-vec-unaligned-erms.S"));
    assert!(!layouts(own, "", "../sysdeps/aarch64/multiarch/memcpy_advsimd.S"));
    assert!(!layouts(own, "", "../sysdeps/aarch64/strlen.S"));
    assert!(!layouts(linker, "do_lookup_x", "") && !layouts(libc, "_dl_relocate", "./elf/dl-reloc.c"));
}

/// Operands of an element's other bytes, which hit the lines that the first one missed on, use them up. Those of another function do not.
#[test]
fn lines_that_are_used_up_need_no_other_order() {
    let mut profile = profile();
    let frame =
        |function: &str| memlens_profile::Frame { function: Some(function.into()), ..Default::default() };
    profile.frames = vec![frame("walks"), frame("fills")];
    profile.stacks = [0, 1].map(|at| memlens_profile::Stack(vec![memlens_profile::FrameIx(at)])).into();
    profile.code[2].stack = Some(StackIx(0));
    let used = |profile: &Profile| {
        findings(profile).into_iter().find_map(|finding| match finding.remedy {
            Remedy::Layout { used_bytes, .. } => Some(used_bytes),
            _ => None,
        })
    };
    // The other operand of the object: 3,000 loads of 8 bytes that hit.
    let hits = Counts { loads: 3000, load_bytes: 24_000, ..Counts::default() };
    profile.cells[1].counts = hits.into();
    for (function, expected) in [(1, Some(8)), (0, Some(32))] {
        profile.code[1].stack = Some(StackIx(function));
        profile.sum_cells();
        assert_eq!(used(&profile), expected, "1,000 misses for 1,000 or 4,000 loads");
    }
    let hits = Counts { loads: 7000, load_bytes: 56_000, ..Counts::default() };
    profile.cells[1].counts = hits.into();
    profile.sum_cells();
    assert_eq!(used(&profile), None);
}

#[test]
fn huge_pages_save_what_fits_the_tlb() {
    let mut profile = profile();
    profile.patterns.clear();
    profile.cells[2].counts.change(|counts| {
        (counts.dtlb_misses, counts.stlb_misses, counts.page_walk_accesses) = (1000, 1000, 20_000);
    });
    profile.sum_cells();
    let gain = |profile: &Profile| {
        let found = findings(profile);
        assert!(found.len() <= 1, "{found:?}");
        found.first().map(|finding| (finding.remedy.clone(), finding.gain))
    };
    let (remedy, all) = gain(&profile).expect("a finding");
    assert_eq!(remedy, Remedy::HugePages { pages: 128, walks_saved: 1.0 });
    // 4,096 pages of 2 MiB are four times what the TLB holds.
    profile.objects[1].max_live_bytes = Some(8 << 30);
    let (remedy, part) = gain(&profile).expect("a finding");
    assert_eq!(remedy, Remedy::HugePages { pages: 4096, walks_saved: 0.25 });
    assert!((part / all - 0.25).abs() < 0.01, "{part} of {all}");
    // Of the time it is what the core waits for translation, however much of the wait that is.
    profile.machine.core = Some(CoreInfo { width: 4, ..CoreInfo::default() });
    profile.run.core_cycles = Some(100_000);
    let of_time = |profile: &mut Profile, translation_stall_cycles| {
        profile.cells[2].counts.change(|counts| {
            (counts.stall_cycles, counts.translation_stall_cycles) = (50_000, translation_stall_cycles);
        });
        profile.sum_cells();
        let all = advice(profile);
        all.findings.iter().chain(&all.hidden).find_map(|finding| finding.time_gain).expect("a finding")
    };
    let as_all_else = of_time(&mut profile, 0);
    assert!(as_all_else > 0.02, "{as_all_else}: an older version's");
    profile.run.has_translation_stalls = true;
    assert!((of_time(&mut profile, 20_000) - 0.05).abs() < 1e-9);
    assert_eq!(of_time(&mut profile, 0), 0.0);
    profile.cells[2].counts.change(|counts| (counts.stall_cycles, counts.translation_stall_cycles) = (0, 0));
    (profile.machine.core, profile.run.core_cycles) = (None, None);
    profile.sum_cells();
    profile.objects[1].max_live_bytes = Some(1 << 20);
    assert_eq!(gain(&profile), None, "half a huge page");
    profile.objects[1].max_live_bytes = Some(256 << 20);
    let backing = |small_bytes, transparent_bytes| {
        Some(memlens_profile::ObjectBacking { small_bytes, transparent_bytes, ..Default::default() })
    };
    profile.objects[1].backing = backing(200 << 20, 56 << 20);
    assert!(gain(&profile).is_some(), "a fifth is in huge pages");
    profile.objects[1].backing = backing(1 << 20, 255 << 20);
    assert_eq!(gain(&profile), None, "it is in huge pages already");
}

#[test]
fn what_two_threads_write_is_to_be_separated_or_copied_and_one_threads_is_not() {
    let mut profile = profile();
    profile.patterns.clear();
    profile.threads = vec![memlens_profile::Thread::default(); 2];
    for (number, cell) in profile.cells[1..].iter_mut().enumerate() {
        cell.counts.change(|counts| {
            (counts.stores, counts.l1_store_misses) = (400, 400);
            counts.shared = Shared { coherence_misses: 400, false_sharing: 160 };
        });
        cell.thread = ThreadIx(number as u32);
    }
    profile.sum_cells();
    let found = findings(&profile);
    let remedies: Vec<&Remedy> = found.iter().map(|found| &found.remedy).collect();
    let all = [
        &Remedy::PerThread { true_sharing: 480, writers: 2, fields: Vec::new(), one_writer_each: false },
        &Remedy::Separate { false_sharing: 320, users: 2, writers: 2, fields: Vec::new() },
    ];
    assert_eq!(remedies, all, "{found:?}");
    assert!((found[0].gain - 1.5 * found[1].gain).abs() < 0.001, "{found:?}");
    // One writes, the other reads what stands beside it; what it writes for the other has to get there.
    profile.cells[2].counts.change(|counts| counts.stores = 0);
    profile.sum_cells();
    let found = findings(&profile);
    assert_eq!(found.len(), 1, "{found:?}");
    let separate =
        |users, writers| Remedy::Separate { false_sharing: 320, users, writers, fields: Vec::new() };
    assert_eq!(found[0].remedy, separate(2, 1));
    // Lines that nobody else uses have another object beside it, which another thread writes.
    profile.cells[2].thread = ThreadIx(0);
    profile.sum_cells();
    let found = findings(&profile);
    assert_eq!((found.len(), &found[0].remedy), (1, &separate(1, 1)));
    profile.cells[1..]
        .iter_mut()
        .for_each(|cell| cell.counts.change(|counts| counts.shared = Shared::default()));
    profile.sum_cells();
    assert_eq!(findings(&profile), []);
}

#[test]
fn samples_count_no_misses_so_nothing_is_found() {
    let mut profile = profile();
    profile.run.sampling = Some(memlens_profile::SamplingInfo::default());
    assert_eq!(findings(&profile), []);
    assert_eq!(findings(&Profile::default()), []);
}

/// The array of `profile` as so many objects of equal parts, which one line of code allocates at so many call paths.
fn in_parts(mut profile: Profile, parts: u32) -> Profile {
    profile.frames = vec![memlens_profile::Frame {
        function: Some("table".into()),
        file: Some("/src/a.c".into()),
        line: Some(7),
        ..Default::default()
    }];
    profile.stacks = vec![memlens_profile::Stack(vec![memlens_profile::FrameIx(0)]); parts as usize];
    let whole = profile.objects.pop().expect("the array");
    let cells: Vec<Cell> = profile.cells.drain(1..).collect();
    for part in 0..parts {
        let object = ObjectIx::from_index(profile.objects.len());
        profile.objects.push(Object {
            id: 2 + part,
            name: "table".into(),
            site: Some(StackIx(part)),
            max_live_bytes: whole.max_live_bytes.map(|bytes| bytes / u64::from(parts)),
            ..whole.clone()
        });
        for cell in &cells {
            let counts = cell.counts.get();
            let part = |count: u64| count / u64::from(parts);
            let counts = Counts {
                loads: part(counts.loads),
                load_bytes: part(counts.load_bytes),
                ..counts.with_misses(part, part, part)
            };
            profile.cells.push(Cell { object, counts: counts.into(), ..*cell });
        }
    }
    profile.sum_cells();
    profile
}

/// What ten call paths allocate is one finding, as large as of one object, though each is below the threshold.
#[test]
fn objects_of_one_line_are_one_finding() {
    let (one, parts) = (findings(&profile()), findings(&in_parts(profile(), 100)));
    assert_eq!(parts.len(), 2, "{parts:?}");
    for (one, parts) in one.iter().zip(&parts) {
        assert_eq!(one.remedy, parts.remedy);
        // Whole misses of ten accesses a part.
        assert!((one.gain - parts.gain).abs() < 0.02, "{} {}", one.gain, parts.gain);
        assert_eq!((parts.row.len(), parts.objects.len()), (100, 100));
        assert!(parts.gain / 100.0 < LEAST_GAIN, "one alone is below it");
    }
    let mut apart = in_parts(profile(), 100);
    apart.objects[1..]
        .iter_mut()
        .zip(0..)
        .for_each(|(object, number)| object.name = format!("table{number}"));
    assert_eq!(findings(&apart), [], "names of their own");
}

/// One object is walked in large steps, its namesake used up: the finding is about the first, as if the other were not there.
#[test]
fn another_order_is_for_those_whose_lines_are_not_used_up() {
    let mut profile = in_parts(profile(), 2);
    profile.patterns.retain(|pattern| pattern.kind == PatternKind::Stride);
    let layout = |profile: &Profile| findings(profile).into_iter().next().expect("a finding");
    assert_eq!(layout(&profile).objects, [ObjectIx(1), ObjectIx(2)]);
    let last = profile.cells.last_mut().expect("of the second");
    last.counts.change(|counts| counts.load_bytes = 64 * 1000);
    profile.sum_cells();
    let found = layout(&profile);
    assert_eq!((found.objects, found.row.len()), (vec![ObjectIx(1)], 2));
    assert_eq!(found.remedy, Remedy::Layout { stride_bytes: 4096, used_bytes: 8, against: None });
    assert_eq!(found.counts.loads, 500);
}

/// A huge page holds neighbours: objects that have none of their own are left out, however many there are.
#[test]
fn huge_pages_are_for_objects_that_fill_one() {
    let walks = |mut profile: Profile| {
        profile.patterns.clear();
        for cell in &mut profile.cells[1..] {
            cell.counts.change(|counts| counts.page_walk_accesses = 1000);
        }
        profile.sum_cells();
        findings(&profile).into_iter().next()
    };
    let found = walks(in_parts(profile(), 100)).expect("2.56 MiB each");
    assert_eq!(
        (found.remedy, found.objects.len()),
        (Remedy::HugePages { pages: 200, walks_saved: 1.0 }, 100)
    );
    assert_eq!(walks(in_parts(profile(), 200)), None, "1.28 MiB each");
}

/// Bursts see too few of the times that a line is taken away: that two threads write it all the time is told however few these are.
#[test]
fn lines_that_bursts_see_taken_seldom_are_told_all_the_same() {
    let mut profile = profile();
    profile.patterns.clear();
    profile.threads = vec![memlens_profile::Thread::default(); 2];
    for (number, cell) in profile.cells[1..].iter_mut().enumerate() {
        cell.counts.change(|counts| {
            counts.stores = 1 << 20;
            counts.shared = Shared { coherence_misses: 2, false_sharing: 2 };
        });
        cell.thread = ThreadIx(number as u32);
    }
    profile.sum_cells();
    let separate =
        |profile: &Profile| findings(profile).iter().any(|found| found.remedy.as_str() == "separate");
    assert!(!separate(&profile), "counted");
    profile.run.estimated = true;
    assert!(separate(&profile));
    assert!(findings(&profile).iter().all(|found| found.is_seen_too_seldom(&profile)));
    // Of little use to the program.
    profile.cells[0].counts.change(|counts| counts.loads = 1 << 30);
    profile.sum_cells();
    assert!(!separate(&profile));
}

/// Two threads write two objects of one line. Each its own: no copies to make, but lines to be separated if they share some.
#[test]
fn copies_are_for_objects_that_several_threads_write() {
    let shared_by = |threads: [u32; 4], false_sharing| {
        let mut profile = in_parts(profile(), 2);
        profile.patterns.clear();
        profile.threads = vec![memlens_profile::Thread::default(); 2];
        for (cell, thread) in profile.cells[1..].iter_mut().zip(threads) {
            cell.thread = ThreadIx(thread);
            cell.counts.change(|counts| {
                (counts.stores, counts.l1_store_misses) = (400, 400);
                counts.shared = Shared { coherence_misses: 200, false_sharing };
            });
        }
        profile.sum_cells();
        let all = findings(&profile).into_iter();
        all.map(|found| (found.remedy.as_str(), found.objects.len())).collect::<Vec<_>>()
    };
    // Objects have two cells each.
    assert_eq!(shared_by([0, 1, 0, 1], 0), [("per-thread", 2)]);
    assert_eq!(shared_by([0, 0, 0, 1], 0), [("per-thread", 1)]);
    assert_eq!(shared_by([0, 0, 1, 1], 0), []);
    assert_eq!(shared_by([0, 0, 1, 1], 200), [("separate", 2)]);
}

/// A matrix of 1024 times 1024 numbers of 8 bytes, walked by columns.
fn columns() -> Profile {
    let mut profile = profile();
    let cache = |bytes, ways| Some(CacheInfo { bytes, ways, policy: "lru".into() });
    (profile.machine.l1d, profile.machine.l2) = (cache(32 << 10, 8), cache(1 << 20, 16));
    profile.cells.remove(1);
    profile.patterns = vec![AccessPattern {
        code: CodeIx(2),
        kind: PatternKind::Stride,
        stride_bytes: Some(8192),
        span_bytes: 1023 * 8192,
        ..AccessPattern::default()
    }];
    let matrix = &mut profile.objects[1];
    (matrix.blocks, matrix.bytes, matrix.max_live_bytes) = (1, Some(8 << 20), Some(8 << 20));
    matrix.type_name = Some("double*".into());
    let misses = 1 << 20;
    let counts = Counts {
        loads: misses,
        load_bytes: 8 * misses,
        l1_load_misses: misses,
        l2_load_misses: misses,
        ..Counts::default()
    };
    profile.cells[1].counts = counts.into();
    profile.sum_cells();
    profile
}

fn pads(profile: &Profile) -> Option<Finding> {
    findings(profile).into_iter().find(|found| matches!(found.remedy, Remedy::Pad { .. }))
}

/// The second level has 1024 sets of 16 lines: a column falls onto 8, which hold 128 of its 1024 lines, and the level all.
#[test]
fn columns_of_a_power_of_two_are_padded() {
    let mut profile = columns();
    let found = pads(&profile).expect("a finding");
    let conflict = SetConflict {
        level: Level::Second,
        sets: 8,
        of_sets: 1024,
        ways: 16,
        misses: 1 << 20,
        needed: 1 << 17,
    };
    let remedy =
        Remedy::Pad { stride_bytes: 8192, lines: 1024, padding_bytes: 64, conflicts: vec![conflict] };
    assert_eq!(found.remedy, remedy, "not the first level, which cannot hold a column");
    let latencies = profile.machine.latencies;
    let [l2, llc] = [latencies.l2_cycles, latencies.llc_cycles].map(f64::from);
    let whole = profile.wait_cycles(&profile.totals()) as f64;
    let saved = f64::from((1 << 20) - (1 << 17)) * (llc - l2);
    assert!((found.gain - saved / whole).abs() < 0.001, "{}", found.gain);
    // By many threads, each as often, the walk is not longer.
    let mut by_threads = columns();
    let cell = by_threads.cells.remove(1);
    by_threads.threads = vec![memlens_profile::Thread::default(); 32];
    by_threads.cells.extend((0..32).map(|thread| Cell { thread: ThreadIx(thread), ..cell.clone() }));
    by_threads.sum_cells();
    let found = pads(&by_threads).expect("a finding");
    assert!(matches!(found.remedy, Remedy::Pad { lines: 1024, .. }), "{found:?}");
    // A line more to each row.
    profile.patterns[0].stride_bytes = Some(8256);
    assert_eq!(pads(&profile), None);
}

/// The array is one of a Fortran common block's, or of a structure's, which holds the walk; it consists of the array's numbers.
#[test]
fn arrays_in_a_structure_are_padded_too() {
    let mut profile = columns();
    profile.objects[1].element = Some(Element { type_name: "common /blk/".into(), bytes: 8 << 20 });
    assert_eq!(pads(&profile), None, "nobody knows what shares a line");
    let field = |name: &str| Field {
        object: ObjectIx(1),
        offset_bytes: Some(0),
        size_bytes: Some(8 << 20),
        name: Some(name.into()),
        type_name: Some("real(kind=8)".into()),
    };
    profile.field_uses = vec![FieldUse { code: profile.cells[1].code, field: FieldIx(0), seen: 100 }];
    profile.fields = vec![field("wrk")];
    assert_eq!(pads(&profile), None, "no array");
    profile.fields = vec![field("wrk[][]")];
    assert!(matches!(pads(&profile).expect("a finding").remedy, Remedy::Pad { lines: 1024, .. }));
    profile.objects[1].element = Some(Element { type_name: "struct cell".into(), bytes: 64 });
    assert_eq!(pads(&profile), None, "structures fill lines");
}

/// Butterflies between rows: most steps are of one row, others of two, four and so on.
#[test]
fn walks_that_mostly_go_by_one_stride_are_padded_and_reordered() {
    let of = |kind, stride_permille, stride_bytes| {
        let mut profile = columns();
        let pattern = &mut profile.patterns[0];
        (pattern.kind, pattern.stride_permille, pattern.stride_bytes) =
            (kind, stride_permille, Some(stride_bytes));
        // Of one level of butterflies.
        pattern.walk_steps = Some(7);
        let words = findings(&profile);
        let has = |word: &str| words.iter().any(|found| found.remedy.as_str() == word);
        (has("pad"), has("layout"))
    };
    assert_eq!(of(PatternKind::MultiStride, 600, 8192), (true, true));
    assert_eq!(of(PatternKind::MultiStride, 400, 8192), (false, false), "a matter of two strides");
    assert_eq!(of(PatternKind::MultiStride, 600, 64), (false, false), "within lines");
    assert!(!of(PatternKind::Stride, 1000, 8192).0, "eight lines fit");
}

/// `b[j][i] += …`: the loads' lines are gone before the stores, which bring none themselves and have a stall all the same.
#[test]
fn stores_behind_loads_of_a_crowded_set_gain_by_padding_too() {
    let of = |l1d_ways: u32, store_stall: u64| {
        let mut profile = columns();
        profile.machine.core = Some(CoreInfo { outstanding: 10, ..CoreInfo::default() });
        profile.machine.l1d = Some(CacheInfo { bytes: 32 << 10, ways: l1d_ways, policy: "lru".into() });
        let store = AccessPattern { code: CodeIx(1), ..profile.patterns[0].clone() };
        profile.patterns.push(store);
        let stores = Counts { stores: 1 << 20, stall_cycles: store_stall, ..Counts::default() };
        let cell = Cell { code: CodeIx(1), counts: stores.into(), ..profile.cells[1].clone() };
        profile.cells[1].counts.change(|counts| counts.stall_cycles = 1 << 20);
        profile.cells.push(cell);
        profile.sum_cells();
        profile.run.core_cycles = Some(1 << 24);
        let found = pads(&profile).expect("a finding");
        assert!(matches!(found.remedy, Remedy::Pad { lines: 1024, .. }), "one walk: {found:?}");
        found.time_gain.expect("a core")
    };
    // Half of the core's time.
    let more = of(8, 1 << 23) - of(8, 0);
    assert!((more - 0.5).abs() < 1e-9, "{more}");
    // Of 512 sets of one way, which end after 32,768 bytes, four.
    let more = of(1, 1 << 23) - of(1, 0);
    assert!((more - 0.5).abs() < 1e-9, "{more}");
}

/// The second-level TLB has 128 sets of 8 pages: a column of 1024 rows of two pages falls onto every other, which hold 512, and the TLB all.
#[test]
fn padding_spreads_pages_over_the_second_level_tlb() {
    let mut profile = columns();
    profile.machine.page_bytes = 4096;
    profile.cells[1].counts.change(|counts| {
        (counts.dtlb_misses, counts.stlb_misses, counts.page_walk_accesses) = (1 << 20, 1 << 20, 1 << 20);
    });
    profile.sum_cells();
    let found = pads(&profile).expect("a finding");
    let Remedy::Pad { conflicts, padding_bytes, .. } = &found.remedy else { panic!("{found:?}") };
    let of_pages = SetConflict {
        level: Level::Stlb,
        sets: 64,
        of_sets: 128,
        ways: 8,
        misses: 1 << 20,
        // Each of the 2048 pages once.
        needed: 2048,
    };
    assert_eq!((conflicts.last(), *padding_bytes), (Some(&of_pages), 64));
    let gain = found.gain;
    // Twice as many entries hold the walk as it is.
    profile.machine.stlb = Some(TlbInfo { entries: 2048, ways: 16 });
    let found = pads(&profile).expect("a finding");
    let Remedy::Pad { conflicts, .. } = &found.remedy else { panic!("{found:?}") };
    assert!(conflicts.iter().all(|one| one.level != Level::Stlb), "{conflicts:?}");
    assert!(gain > found.gain + 0.05, "{gain} {}", found.gain);
}

/// Blocks of 32 rows of a matrix that no level would hold a column of.
#[test]
fn walks_of_a_block_are_as_long_as_they_were_seen() {
    let mut profile = columns();
    profile.patterns[0].stride_bytes = Some(1 << 16);
    let matrix = &mut profile.objects[1];
    (matrix.bytes, matrix.max_live_bytes) = (Some(1 << 30), Some(1 << 30));
    assert_eq!(pads(&profile), None);
    profile.patterns[0].walk_steps = Some(31);
    profile.cells[1].counts.change(|counts| {
        (counts.loads, counts.l1_load_misses, counts.l2_load_misses) = (1 << 27, 1 << 27, 1 << 27);
    });
    profile.sum_cells();
    let found = pads(&profile).expect("a finding");
    let Remedy::Pad { lines, conflicts, .. } = found.remedy else { panic!("{found:?}") };
    let levels: Vec<_> = conflicts.iter().map(|conflict| (conflict.level, conflict.sets)).collect();
    assert_eq!((lines, levels), (32, vec![(Level::First, 1), (Level::Second, 1)]));
    // As many as a set has.
    profile.patterns[0].walk_steps = Some(7);
    assert_eq!(pads(&profile), None);
}

#[test]
fn no_padding_without_evidence() {
    let none = |what: &str, change: &dyn Fn(&mut Profile)| {
        let mut profile = columns();
        change(&mut profile);
        profile.sum_cells();
        assert_eq!(pads(&profile), None, "{what}");
    };
    let misses = |count| {
        move |profile: &mut Profile| {
            profile.cells[1].counts.change(|counts| counts.l2_load_misses = count);
        }
    };
    none("each line is read once", &misses(1 << 17));
    none("short walks fit the sets", &|profile| profile.patterns[0].span_bytes = 127 * 8192);
    none("the level would not hold it either", &|profile| {
        let matrix = &mut profile.objects[1];
        (matrix.bytes, matrix.max_live_bytes) = (Some(1 << 30), Some(1 << 30));
    });
    none("what shares a line is not known", &|profile| profile.objects[1].type_name = Some("void*".into()));
    none("structures fill lines", &|profile| {
        profile.objects[1].element = Some(Element { type_name: "struct cell".into(), bytes: 64 });
    });
}

/// `char` may be a name for anything; of accesses that are wider than a byte nobody knows what lies beside them.
#[test]
fn what_only_bytes_of_are_accessed_consists_of_bytes() {
    let bytes = |size_bytes| {
        let mut profile = columns();
        profile.objects[1].type_name = Some("char*".to_owned());
        profile.code[2].size_bytes = size_bytes;
        profile.sum_cells();
        pads(&profile).map(|found| found.remedy)
    };
    let Some(Remedy::Pad { conflicts, .. }) = bytes(1) else { panic!("a finding") };
    assert_eq!(conflicts[0].needed, 1 << 17, "64 elements of a line, but all lines are read");
    assert_eq!(bytes(8), None);
}

/// Where a core was modelled, what it hides is no gain of time, and such findings come last or not at all. A prefetch leaves as much
/// as so many lines at a time take.
#[test]
fn gains_of_time_are_of_what_nothing_hides() {
    let mut profile = profile();
    profile.machine.core = Some(CoreInfo { outstanding: 10, ..CoreInfo::default() });
    let found = findings(&profile);
    assert!(found.iter().all(|finding| finding.time_gain.is_none()) && found.len() > 1, "{found:?}");
    let wait = |profile: &Profile, at: usize| profile.wait_cycles(&profile.cells[at].counts.get());
    // Nothing hides the gathers; of the strides a twentieth is left.
    let (gathers, strides) = (wait(&profile, 1), wait(&profile, 2) / 20);
    profile.cells[1].counts.change(|counts| counts.stall_cycles = gathers);
    profile.cells[2].counts.change(|counts| counts.stall_cycles = strides);
    profile.sum_cells();
    profile.run.core_cycles = Some(2 * (gathers + strides));
    let found = findings(&profile);
    let time = |word| {
        let found = found.iter().find(|finding| finding.remedy.as_str() == word).expect(word);
        (found.gain, found.time_gain.expect("a core"))
    };
    let ((_, prefetch), (in_wait, in_time)) = (time("prefetch"), time("layout"));
    assert_eq!(found[0].remedy.as_str(), "prefetch");
    // Three quarters of the gathers' half of the time: the last level's part and lines under way stay.
    assert!((0.3..0.4).contains(&prefetch), "{prefetch}");
    assert!(in_wait > 0.4 && in_time < 0.03, "{in_wait} {in_time}");
    // All but hidden.
    profile.cells[2].counts.change(|counts| counts.stall_cycles = 1);
    profile.sum_cells();
    let Advice { findings, hidden, .. } = advice(&profile);
    assert!(findings.iter().all(|finding| finding.remedy.as_str() != "layout"));
    let words: Vec<&str> = hidden.iter().map(|finding| finding.remedy.as_str()).collect();
    assert_eq!(words, ["layout"], "they are told all the same");
    // The model has nothing for most of the time that the code took: what it hides may be most of that.
    profile.run.measured_cycles = profile.run.core_cycles.map(|cycles| 3 * cycles);
    let known = advice(&profile);
    assert!(
        known.hidden.is_empty() && known.findings.iter().any(|finding| finding.remedy.as_str() == "layout")
    );
    assert!(profile.unexplained_part().is_some_and(|part| (part - 2.0 / 3.0).abs() < 1e-9));
    profile.run.measured_cycles = profile.run.core_cycles.map(|cycles| 3 * cycles / 2);
    assert_eq!((profile.unexplained_part(), advice(&profile).hidden.len()), (None, 1));
    // A hidden prefetch is none, where others wait.
    let mut has_prefetch = |of_gathers, of_strides| {
        profile.cells[1].counts.change(|counts| counts.stall_cycles = of_gathers);
        profile.cells[2].counts.change(|counts| counts.stall_cycles = of_strides);
        profile.sum_cells();
        advice(&profile).hidden.iter().any(|finding| finding.remedy.as_str() == "prefetch")
    };
    assert!(!has_prefetch(1, 100) && has_prefetch(100, 100));
    // Without patterns nothing is known to help, and that is said of what waits, as long as it is much of the time.
    profile.patterns.clear();
    profile.run.core_cycles = Some(400);
    let Advice { findings, without_remedy, .. } = advice(&profile);
    let is_about = |row: &Vec<ObjectIx>| findings.iter().any(|finding| finding.row == *row);
    assert!(
        !without_remedy.is_empty()
            && without_remedy.iter().all(|(row, share)| *share >= 0.1 && !is_about(row))
    );
    profile.run.core_cycles = Some(10_000);
    assert!(advice(&profile).without_remedy.is_empty());
}

/// `b[a[i]]` and `c[a[i]]` miss side by side: the first of them has the stall, and none of the two is to be prefetched alone.
#[test]
fn what_one_index_leads_to_shares_its_stalls() {
    let mut profile = profile();
    profile.machine.core = Some(CoreInfo { outstanding: 10, ..CoreInfo::default() });
    profile.objects.push(Object { id: 3, ..profile.objects[1].clone() });
    profile.code.push(CodeLocation { id: 4, ..profile.code[1].clone() });
    profile.patterns.push(AccessPattern { code: CodeIx(3), ..profile.patterns[1].clone() });
    let of_c = Cell { code: CodeIx(3), object: ObjectIx(2), ..profile.cells[1].clone() };
    profile.cells.push(of_c);
    let wait = profile.wait_cycles(&profile.cells[1].counts.get());
    profile.cells[1].counts.change(|counts| counts.stall_cycles = wait);
    profile.sum_cells();
    profile.run.core_cycles = Some(2 * wait);
    let prefetches = |profile: &Profile| -> Vec<Finding> {
        let is_prefetch = |finding: &Finding| matches!(finding.remedy, Remedy::Prefetch { .. });
        findings(profile).into_iter().filter(is_prefetch).collect()
    };
    let found = prefetches(&profile);
    let [b, c] = &found[..] else { panic!("{found:?}") };
    assert_eq!((b.time_gain, b.counts.stall_cycles), (c.time_gain, wait / 2));
    assert!(b.time_gain > Some(0.1), "{b:?}");
    let index = Some(ObjectIx(0));
    assert_eq!(b.remedy, Remedy::Prefetch { index, beside: vec![ObjectIx(2)] });
    assert_eq!(c.remedy, Remedy::Prefetch { index, beside: vec![ObjectIx(1)] });
    // Another index is another matter.
    profile.patterns[3].loaded_by = Some(CodeIx(2));
    let found = prefetches(&profile);
    assert_eq!(found.len(), 1, "what is hidden is left out: {found:?}");
    assert_eq!(found[0].remedy, Remedy::Prefetch { index, beside: Vec::new() });
}

/// A walk by links that begins anew for each key gains by having fewer nodes, wherever these are.
#[test]
fn short_ways_along_links_are_shortened() {
    let found = |links, nodes: Option<f64>| {
        let mut profile = chase(64);
        profile.patterns[0].links = links;
        profile.patterns[0].trips_permille = nodes.map(|nodes| (1000.0 * nodes) as u64);
        profile.sum_cells();
        let of_nodes =
            |finding: &Finding| matches!(finding.remedy, Remedy::Pack { .. } | Remedy::Shorten { .. });
        findings(&profile).into_iter().find(of_nodes).map(|finding| (finding.remedy, finding.gain))
    };
    let pack = found(None, None).expect("a finding");
    assert_eq!(pack.0, Remedy::Pack { nodes: Nodes::Blocks });
    for (links, nodes) in [(Some(1), None), (Some(1), Some(1.2)), (Some(1), Some(1e6)), (Some(2), Some(5.0))]
    {
        assert_eq!(found(links, nodes), Some(pack.clone()), "{links:?} {nodes:?}");
    }
    let shorten = |searched, nodes, part: f64| {
        let (remedy, gain) =
            found(Some(if searched == Searched::Lists { 1 } else { 2 }), Some(nodes)).unwrap();
        assert_eq!(remedy, Remedy::Shorten { searched, nodes });
        assert!((gain - part * pack.1).abs() < 1e-9, "{gain} of {}", pack.1);
    };
    let mut profile = chase(64);
    let pattern = &mut profile.patterns[0];
    (pattern.links, pattern.exits, pattern.trips_permille) = (Some(1), Some(1), Some(10_000));
    assert_eq!(packs(&mut profile), Some((Nodes::Blocks, pack.1)), "all nodes of short lists are visited");
    shorten(Searched::Lists, 10.0, 0.9);
    shorten(Searched::Lists, 2.0, 0.5);
    shorten(Searched::Tree, 18.0, 2.0 / 3.0);
}

/// `b[a[i]]` with `a` gone through so often, in a loop of so many iterations; another function fills it so often.
fn sorts(walks: u64, trips: u64, fills: u64) -> Option<(ObjectIx, f64, f64)> {
    let mut profile = profile();
    let frame = |name: &str| memlens_profile::Frame { function: Some(name.into()), ..Default::default() };
    profile.frames = vec![frame("leads"), frame("fills")];
    profile.stacks = [0, 1].map(|at| memlens_profile::Stack(vec![memlens_profile::FrameIx(at)])).to_vec();
    profile.code[0].stack = Some(StackIx(0));
    profile.code.push(CodeLocation { id: 4, stack: Some(StackIx(1)), ..profile.code[0].clone() });
    let stores =
        Counts { stores: 1000 / walks * fills, store_bytes: 8000 / walks * fills, ..Counts::default() };
    profile.cells.push(Cell { code: CodeIx(3), counts: stores.into(), ..profile.cells[0].clone() });
    profile.machine.prefetcher_streams = 32;
    profile.patterns[1].trips_permille = Some(1000 * trips);
    profile.objects[0].max_live_bytes = Some(8000 / walks);
    // 16 lines, of which each is come to again and again.
    profile.objects[1].max_live_bytes = Some(1024);
    profile.sum_cells();
    findings(&profile).into_iter().find_map(|finding| match finding.remedy {
        Remedy::Sort { index, walks, .. } => Some((index, walks, finding.gain)),
        _ => None,
    })
}

#[test]
fn indices_that_are_gone_through_again_and_again_are_sorted() {
    let (index, walks, gain) = sorts(10, 1000, 1).expect("a finding");
    assert_eq!((index, walks), (ObjectIx(0), 10.0));
    // Of 900 misses of all levels 160 of the first stay.
    let profile = profile();
    let misses = |l1, behind| {
        let counts = Counts {
            loads: 1000,
            l1_load_misses: l1,
            l2_load_misses: behind,
            llc_load_misses: behind,
            ..Counts::default()
        };
        profile.wait_cycles(&counts) as f64
    };
    let filling = Counts { stores: 100, ..Counts::default() };
    let whole = (profile.wait_cycles(&profile.totals()) + profile.wait_cycles(&filling)) as f64;
    assert!((gain - (misses(900, 900) - misses(160, 0)) / whole).abs() < 1e-9, "{gain}");
    assert_eq!(sorts(1, 1000, 1), None, "once");
    assert_eq!(sorts(10, 16, 1), None, "a matrix's rows");
    assert_eq!(sorts(50, 1000, 1), None, "each line is come to as seldom as it can be");
    assert_eq!(sorts(10, 1000, 10), None, "other indices each time");
    assert!(sorts(10, 1000, 4).is_some(), "more often than others");
}

/// Two threads go through `b`, all of which the first has filled.
#[test]
fn memory_that_others_use_is_to_be_filled_by_them() {
    let mut profile = profile();
    profile.patterns.clear();
    (profile.machine.nodes, profile.machine.latencies.remote_cycles) = (2, 450);
    profile.threads.push(memlens_profile::Thread::default());
    let place = |profile: &Profile| {
        findings(profile).into_iter().find(|finding| matches!(finding.remedy, Remedy::Place { .. }))
    };
    profile.sum_cells();
    assert_eq!(place(&profile), None, "nothing is remote");
    let set = |profile: &mut Profile, cell: usize, thread, numa| {
        profile.cells[cell].thread = ThreadIx(thread);
        profile.cells[cell].counts.change(|counts| counts.numa = numa);
        profile.sum_cells();
    };
    set(&mut profile, 1, 0, Numa { first_touches: 100, ..Numa::default() });
    let theirs = Numa { remote_misses: 900, misplaced: 800, ..Numa::default() };
    set(&mut profile, 2, 1, theirs);
    let found = place(&profile).expect("a finding");
    let first = Some(FirstTouch { thread: ThreadIx(0), code: CodeIx(1), pages: 100 });
    assert_eq!(found.remedy, Remedy::Place { remote_misses: 900, misplaced: 800, users: 1, first });
    assert_eq!((&found.objects, &found.code), (&vec![ObjectIx(1)], &vec![CodeIx(2)]));
    // 800 misses wait 200 cycles less.
    let whole = profile.wait_cycles(&profile.totals()) as f64;
    assert!((found.gain - 800.0 * 200.0 / whole).abs() < 1e-9, "{}", found.gain);
    // Both have filled a half: nobody alone. Of bursts nobody is known.
    set(&mut profile, 2, 1, Numa { first_touches: 100, ..theirs });
    assert!(matches!(place(&profile).expect("a finding").remedy, Remedy::Place { first: None, .. }));
    set(&mut profile, 1, 0, Numa::default());
    set(&mut profile, 2, 1, theirs);
    assert!(matches!(place(&profile).expect("a finding").remedy, Remedy::Place { first: None, .. }));
    // What all nodes miss alike lies nowhere better.
    set(&mut profile, 2, 1, Numa { misplaced: 0, ..theirs });
    assert_eq!(place(&profile), None);
}

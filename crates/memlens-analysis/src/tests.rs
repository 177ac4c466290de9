use memlens_profile::{CacheInfo, CodeLocation, ThreadIx, TlbInfo};

use super::*;

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

#[test]
fn each_pattern_has_its_remedy_with_the_gain_by_hand() {
    let profile = profile();
    let latencies = profile.machine.latencies;
    let [l1, llc, dram] = [latencies.l1_cycles, latencies.llc_cycles, latencies.dram_cycles].map(f64::from);
    // 3,000 accesses: 1,100 hits, 1,900 reads of memory.
    let whole = 1100.0 * l1 + 1900.0 * dram;
    let found = findings(&profile);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0].remedy, Remedy::Layout { stride_bytes: 4096, used_bytes: 8 });
    // An eighth of the lines would do.
    assert!((found[0].gain - 875.0 * (dram - l1) / whole).abs() < 0.001, "{}", found[0].gain);
    let index = Some(ObjectIx(0));
    assert_eq!(found[1].remedy, Remedy::Prefetch { index });
    assert_eq!((found[1].object, &found[1].code), (ObjectIx(1), &vec![CodeIx(1)]));
    // There is no second level: the last one has them then.
    assert!((found[1].gain - 900.0 * (dram - llc) / whole).abs() < 0.001, "{}", found[1].gain);
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
    profile.objects[1].max_live_bytes = Some(1 << 20);
    assert_eq!(gain(&profile), None, "half a huge page");
}

#[test]
fn lines_that_two_threads_write_are_to_be_separated_and_one_threads_are_not() {
    let mut profile = profile();
    profile.patterns.clear();
    profile.threads = vec![memlens_profile::Thread::default(); 2];
    for (number, cell) in profile.cells[1..].iter_mut().enumerate() {
        cell.counts.change(|counts| (counts.stores, counts.invalidations) = (1, 400));
        cell.thread = ThreadIx(number as u32);
    }
    profile.sum_cells();
    let found = findings(&profile);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].remedy, Remedy::Separate { invalidations: 800, writers: 2 });
    profile.cells[2].thread = ThreadIx(0);
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

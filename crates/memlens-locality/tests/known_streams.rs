//! Estimates from bursts of generated streams, held against full simulation and against what is known of the streams.

use memlens_locality::{
    Burst, Cost, Extent, Geometry, Locality, LocalityConfig, PatternKind, Patterns, Reference, Row, Summary,
    Who,
};
use memlens_sim::{Batch, CoreId, MachineDescription, Outcome, PlainModel};
use memlens_types::{AccessAttr, AccessKind};

/// xorshift64 (G. Marsaglia, Xorshift RNGs, 2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }
}

const LINE: u64 = 64;
const BASE: u64 = 0x10_0000_0000;

fn load(instruction: u32, address: u64) -> Reference {
    Reference { address, instruction, owner: instruction, size: 8, kind: AccessKind::Load }
}

/// How a stream is seen: bursts of `length` at a random place of each stretch of `every`.
#[derive(Clone, Copy)]
struct Sampling {
    length: usize,
    every: usize,
    bursts: usize,
}

/// What bursts say, and the miss ratio of plain LRU simulation over everything behind the first stretch; 0 for large
/// fully associative caches, whose simulation takes minutes.
fn both(cache: Geometry, sampling: Sampling, mut next: impl FnMut(u64) -> Reference) -> (Locality, f64) {
    let mut machine = MachineDescription::named("e5504").expect("it ships");
    machine.l1d.bytes = cache.blocks * LINE;
    machine.l1d.ways = cache.ways.min(cache.blocks as u32);
    let simulate = u64::from(cache.ways) < cache.blocks || cache.blocks <= 1024;
    if !simulate {
        machine.l1d.ways = 8;
    }
    let mut model = PlainModel::new(&machine).expect("a possible machine");
    let mut locality = Locality::new(&LocalityConfig::new(vec![cache])).expect("a possible cache");
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let (mut misses, mut now, mut unseen) = (0usize, 0, 0u64);
    for stretch in 0..sampling.bursts {
        let references: Vec<Reference> = (0..sampling.every).map(|at| next(now + at as u64)).collect();
        let addrs: Vec<u64> = references.iter().map(|reference| reference.address).collect();
        let attrs = vec![AccessAttr::new(AccessKind::Load, 8); addrs.len()];
        let mut out = Outcome::default();
        if simulate {
            model.access(CoreId(0), Batch { addrs: &addrs, attrs: &attrs }, &mut out);
        }
        misses += if stretch > 0 { out.l1_misses.len() } else { 0 };
        let begin = random.below((sampling.every - sampling.length) as u64) as usize;
        let end = begin + sampling.length;
        let (weight, start) = (sampling.every as f64, now);
        let unseen_before = Some((unseen + begin as u64).into());
        locality.feed(&Burst {
            thread: 1,
            start,
            weight,
            unseen_before,
            references: &references[begin..end],
        });
        unseen = (sampling.every - end) as u64;
        now += sampling.every as u64;
    }
    (locality, misses as f64 / (sampling.every * (sampling.bursts - 1)) as f64)
}

fn ratio(row: &Row) -> f64 {
    row.miss_ratio(0).expect("there are references")
}

fn cache(blocks: u64, ways: u32) -> Geometry {
    Geometry { block_bytes: LINE as u32, blocks, ways }
}

/// Four standard errors of the sampling, and half a point for bins, sets and phases.
fn tolerance(summary: &Summary) -> f64 {
    4.0 * summary.total.levels[0].standard_error / summary.total.references + 0.005
}

#[test]
fn uniform_random_lines() {
    // Of M lines C are in the cache: 1 - C/M of the references miss, whatever the sets.
    for (lines, blocks, ways) in
        [(4096, 512, u32::MAX), (4096, 512, 8), (4096, 1024, u32::MAX), (700, 512, 8)]
    {
        let mut random = Random(7);
        let sampling = Sampling { length: 20_000, every: 40_000, bursts: 20 };
        let stream = |_| load(0, BASE + random.below(lines) * LINE);
        let (locality, exact) = both(cache(blocks, ways), sampling, stream);
        let summary = locality.summary();
        let known = 1.0 - blocks as f64 / lines as f64;
        // Binomial: 760,000 references.
        assert!((exact - known).abs() < 0.005, "simulation {exact}, known {known}");
        let found = ratio(&summary.total);
        assert!((found - exact).abs() < tolerance(&summary), "{lines} {blocks} {ways}: {found} for {exact}");
    }
}

#[test]
fn random_lines_whose_uses_are_longer_apart_than_bursts() {
    // 65,536 lines in bursts of 10,000: nearly all uses are new in their burst.
    for blocks in [16_384, 49_152] {
        let mut random = Random(11);
        let sampling = Sampling { length: 10_000, every: 40_000, bursts: 60 };
        let stream = |_| load(0, BASE + random.below(65_536) * LINE);
        let (locality, _) = both(cache(blocks, 16), sampling, stream);
        let summary = locality.summary();
        let (found, known) = (ratio(&summary.total), 1.0 - blocks as f64 / 65_536.0);
        // Finds are binomial: some 100,000 of them, so that a rate has an error below one percent.
        assert!((found - known).abs() < 0.03, "{blocks}: {found} for {known}");
        let level = &summary.total.levels[0];
        let total = summary.total.references;
        // Of the references 1 - e^(-p / 65,536) at position p were preceded by a use in the burst: 7.3 % of all.
        let (low, high) = (level.low / total, level.high / total);
        assert!(low < 0.01 && (high - 0.927).abs() < 0.01, "little in a burst decides it: {level:?}");
    }
}

#[test]
fn bursts_that_end_within_a_bin_of_times() {
    // Times from 12,288 to 14,335 are one bin: these bursts see a tenth of it.
    let (lines, blocks) = (12_288, 8192);
    let mut random = Random(23);
    let sampling = Sampling { length: 12_500, every: 50_000, bursts: 60 };
    let stream = |_| load(0, BASE + random.below(lines) * LINE);
    let (locality, _) = both(cache(blocks, u32::MAX), sampling, stream);
    let (found, known) = (ratio(&locality.summary().total), 1.0 - blocks as f64 / lines as f64);
    assert!((found - known).abs() < 0.01, "{found} for {known}");
}

#[test]
fn what_is_used_the_more_seldom_is_left() {
    // Sets of 1, 2, 4 … 65,536 lines, each used as often as the others: a line of the last one every 1.1 million references,
    // six times as long as all that is seen. Looked for at the rate at which the last ones were found, it is found too soon.
    let sets = 17;
    let mut random = Random(29);
    let stream = |_| {
        let set = random.below(sets);
        load(0, BASE + ((1 << set) + random.below(1 << set)) * LINE)
    };
    let sampling = Sampling { length: 12_500, every: 1_000_000, bursts: 15 };
    let (locality, exact) = both(cache(65_536, 16), sampling, stream);
    let found = ratio(&locality.summary().total);
    assert!((0.6..1.1).contains(&(found / exact)), "{found} for {exact}");
}

#[test]
fn what_is_used_once_at_the_end_was_last_used_before_it_began() {
    // 65,536 lines, used at random for long; then each once more, in random order, one in ten references. Of a quarter that
    // the cache has when that begins, a line is still there if it comes before as many others as were used since its last use:
    // C² ÷ 2 of C = 16,384 lines in so many, 2048 hits in 65,536. How often lines were used before says nothing of it.
    let lines = 65_536;
    let mut random = Random(17);
    let mut order: Vec<u64> = (0..lines).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    let sampling = Sampling { length: 10_000, every: 40_000, bursts: 76 };
    let stream = |at: u64| match at.checked_sub(60 * 40_000) {
        None => load(0, BASE + random.below(lines) * LINE),
        Some(at) if at % 10 == 0 => load(1, BASE + order[(at / 10) as usize % order.len()] * LINE),
        Some(_) => load(2, BASE - LINE),
    };
    let (locality, _) = both(cache(16_384, 16), sampling, stream);
    let summary = locality.summary();
    let found = ratio(&summary.instructions[1].1);
    // In the first quarter windows reach back behind the begin, where lines were touched faster than is taken for them.
    assert!(found > 0.7, "{found} for {}", 1.0 - 2048.0 / 65_536.0);
    assert!((ratio(&summary.instructions[0].1) - 0.75).abs() < 0.05, "{:?}", summary.instructions[0]);
}

#[test]
fn sweeps_miss_all_or_nothing() {
    // 20,000 lines over and over; bursts of 5,000 see a quarter of a round.
    for (blocks, known) in [(16_384, 1.0), (32_768, 0.0)] {
        let sampling = Sampling { length: 5_000, every: 33_000, bursts: 80 };
        let (locality, _) = both(cache(blocks, u32::MAX), sampling, |at| load(0, BASE + at % 20_000 * LINE));
        let found = ratio(&locality.summary().total);
        assert!((found - known).abs() < 0.05, "{blocks}: {found} for {known}");
    }
}

#[test]
fn a_walk_by_columns_is_a_sweep_whose_lines_are_used_for_a_while() {
    // 400 rows of 256 numbers: a line has eight columns, and is used eight times, 400 references apart, and then again when all 12,800
    // lines have been. Bursts are about as long as a line is in use, and meet it about twice as often as if it were used at once.
    let stream = |at: u64| {
        let (column, row) = (at / 400 % 256, at % 400);
        load(0, BASE + row * 256 * 8 + column * 8)
    };
    for (blocks, known) in [(8_192, 0.125), (16_384, 0.0)] {
        let sampling = Sampling { length: 3_000, every: 33_000, bursts: 120 };
        let (locality, _) = both(cache(blocks, u32::MAX), sampling, stream);
        let found = ratio(&locality.summary().total);
        assert!((found - known).abs() < 0.02, "{blocks}: {found} for {known}");
    }
}

#[test]
fn the_same_list_walked_again_is_a_sweep_in_any_order() {
    // A random cycle through 20,000 nodes (S. Sattolo, An Algorithm to Generate a Random Cyclic Permutation, 1986).
    let mut random = Random(3);
    let mut after: Vec<u64> = (0..20_000).collect();
    for at in (1..after.len()).rev() {
        after.swap(at, random.below(at as u64) as usize);
    }
    let mut node = 0;
    let sampling = Sampling { length: 5_000, every: 33_000, bursts: 80 };
    let (locality, _) = both(cache(16_384, u32::MAX), sampling, |_| {
        node = after[node as usize];
        load(0, BASE + node * LINE)
    });
    let found = ratio(&locality.summary().total);
    assert!((found - 1.0).abs() < 0.05, "{found}");
}

#[test]
fn skewed_lines() {
    // Line i about as often as 1 / i.
    for (blocks, ways) in [(256, 8), (2048, 8), (8192, 16)] {
        let mut random = Random(5);
        let stream = |_| {
            let draw = random.next();
            load(0, BASE + (draw >> 16) % (1 << (4 + draw % 12)) * LINE)
        };
        let sampling = Sampling { length: 50_000, every: 100_000, bursts: 12 };
        let (locality, exact) = both(cache(blocks, ways), sampling, stream);
        let summary = locality.summary();
        let found = ratio(&summary.total);
        assert!((found - exact).abs() < tolerance(&summary), "{blocks}: {found} for {exact}");
    }
}

#[test]
fn instructions_and_owners_are_told_apart() {
    // One instruction streams, one picks at random, one stays on its line; each has data of its own.
    let mut random = Random(9);
    let stream = |at: u64| match at % 4 {
        0 => load(0, BASE + at / 4 * 8),
        1 => load(1, 2 * BASE + random.below(1 << 14) * LINE),
        _ => load(2, 3 * BASE),
    };
    let sampling = Sampling { length: 40_000, every: 160_000, bursts: 25 };
    let (locality, exact) = both(cache(512, 8), sampling, stream);
    let summary = locality.summary();
    assert!((ratio(&summary.total) - exact).abs() < tolerance(&summary));
    for rows in [&summary.instructions, &summary.owners] {
        let ratios: Vec<f64> = rows.iter().map(|(_, row)| ratio(row)).collect();
        assert_eq!(rows.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 1, 2]);
        // An eighth of a stream's references are new lines; 512 of 16,384 lines are cached, fewer beside the stream.
        assert!((ratios[0] - 0.125).abs() < 0.002, "{ratios:?}");
        assert!((0.96..=1.0).contains(&ratios[1]) && ratios[2] < 1e-4, "{ratios:?}");
    }
    let references: f64 = summary.instructions.iter().map(|(_, row)| row.references).sum();
    assert!((references / 4e6 - 1.0).abs() < 1e-9, "the weights add up to the whole run");
}

#[test]
fn phases_have_footprints_of_their_own() {
    // Long sequential phases between random ones: mixed, the random lines would seem to be nearer.
    let mut random = Random(13);
    let stream = |at: u64| match at / 120_000 % 2 {
        0 => load(0, BASE + at * 8),
        _ => load(1, 2 * BASE + random.below(2048) * LINE),
    };
    let sampling = Sampling { length: 20_000, every: 60_000, bursts: 60 };
    let (locality, exact) = both(cache(1024, u32::MAX), sampling, stream);
    let summary = locality.summary();
    let found = ratio(&summary.total);
    assert!((found - exact).abs() < tolerance(&summary), "{found} for {exact}");
    let random_lines = ratio(&summary.instructions[1].1);
    assert!((random_lines - 0.5).abs() < 0.03, "{random_lines} for 0.5");
}

/// A quarter of the references are to random lines: of 12,288 by one instruction, of 2,000 by another; each for so long.
fn two_tables(each: u64) -> (f64, f64) {
    let mut random = Random(19);
    let stream = |at: u64| match (at % 4, at / each % 2) {
        (0, 0) => load(0, BASE + random.below(12_288) * LINE),
        (0, _) => load(1, 2 * BASE + random.below(2_000) * LINE),
        (_, 0) => load(2, 3 * BASE),
        _ => load(3, 3 * BASE),
    };
    let sampling = Sampling { length: 12_500, every: 120_000, bursts: 160 };
    let (locality, exact) = both(cache(8192, 16), sampling, stream);
    (ratio(&locality.summary().total), exact)
}

#[test]
fn phases_that_touch_new_lines_at_like_rates_are_told_apart_by_their_code() {
    // With one footprint for both, the large table seems to fit: 0.8 % for 4.2.
    let (found, exact) = two_tables(9_600_000);
    assert!((found - exact).abs() < 0.005, "{found} for {exact}");
}

#[test]
fn phases_shorter_than_the_time_between_bursts_share_the_cache() {
    // Any burst is in one phase, and the other one's lines are in the cache as well. If only its own were, 4.2 % would miss.
    let (found, exact) = two_tables(30_000);
    assert!((found - exact).abs() < 0.015, "{found} for {exact}");
}

/// Bursts of 4,000 references at ticks of a clock, 20 times as far apart in quick code as in slow: slow is an array with a
/// reference a line, quick is one with eight. They are gone through in turn, `lines` each, and share a cache of `blocks`.
fn slow_and_quick_sweeps(lines: u64, blocks: u64) -> [f64; 2] {
    const LENGTH: u64 = 4_000;
    let mut locality =
        Locality::new(&LocalityConfig::new(vec![cache(blocks, 16)])).expect("a possible cache");
    let round = lines + 8 * lines;
    let reference = |at: u64| match at % round {
        at if at < lines => load(0, BASE + at * LINE),
        at => load(1, 2 * BASE + (at - lines) * 8),
    };
    let time = |at: u64| if at % round < lines { 20 } else { 1 };
    let (mut random, mut at) = (Random(41), 0);
    for _ in 0..400 {
        let mut left = (1 << 16) + random.below(1 << 19);
        let before = at;
        while left > 0 {
            left = left.saturating_sub(time(at));
            at += 1;
        }
        // What a burst stands for is known from the time of its references.
        let weight = LENGTH as f64 + 327_680.0 / time(at) as f64;
        let references: Vec<Reference> = (at..at + LENGTH).map(reference).collect();
        let unseen_before = Some((at - before).into());
        locality.feed(&Burst { thread: 1, start: at, weight, unseen_before, references: &references });
        at += LENGTH;
    }
    let summary = locality.summary();
    [0, 1].map(|row| ratio(&summary.instructions[row].1))
}

#[test]
fn what_is_seen_less_often_takes_as_much_of_the_cache() {
    // Twice 40,000 lines: both miss each line in 32,768, and none in 131,072. By the references seen alone, the slow sweep seems to
    // come again after a fifth of the time.
    let missing = slow_and_quick_sweeps(40_000, 1 << 15);
    assert!((missing[0] - 1.0).abs() < 0.06 && (missing[1] - 0.125).abs() < 0.01, "{missing:?}");
    let fitting = slow_and_quick_sweeps(40_000, 1 << 17);
    assert!(fitting[0] < 0.06 && fitting[1] < 0.01, "{fitting:?}");
}

#[test]
fn what_is_not_found_again_misses_no_more_than_there_is_data() {
    // 100,000 lines at random, all of which fit. Bursts of 50 find none again.
    let mut random = Random(43);
    let sampling = Sampling { length: 50, every: 1_000_000, bursts: 5 };
    let stream = |_| load(0, BASE + random.below(100_000) * LINE);
    let (mut locality, _) = both(cache(131_072, u32::MAX), sampling, stream);
    let found = locality.summary().total;
    assert!(ratio(&found) > 0.9, "{found:?}");
    locality.has_data(Some(100_000 * LINE));
    let known = locality.summary().total;
    // Each line's first use is one, whatever happened between bursts.
    let most = 100_000.0 / known.references;
    assert!((0.9 * most..=1.01 * most).contains(&ratio(&known)), "{known:?}");
    assert!(known.levels[0].high <= 1.01 * most * known.references, "{known:?}");
    // Half of the data is in a cache of half its size, and none if they are used in turn.
    let curve = locality.curve(Who::Program, LINE as u32, &[50_000 * LINE, 131_072 * LINE]);
    assert!((0.5..0.52).contains(&curve[0].ratio) && curve[0].high > 0.9, "{curve:?}");
    assert!(curve[1].high < 1.01 * most, "{curve:?}");
}

#[test]
fn what_comes_late_is_not_used_for_long() {
    // Lines at random, of ever more: none is found again. The times add up to no more than there were lines by then.
    const LINES: u64 = 400_000;
    let lines = |burst: u64| LINES * (burst + 1) / 40;
    let far = |grows: bool| {
        let mut locality = Locality::new(&LocalityConfig::new(vec![cache(16_384, 16)])).expect("a level");
        let mut random = Random(53);
        for burst in 0..40 {
            locality.has_data(Some(if grows { lines(burst) } else { LINES } * LINE));
            // One in a hundred is not of the line before.
            let mut address = 0;
            let references: Vec<Reference> = (0..4_000_u64)
                .map(|at| {
                    if at % 100 == 0 {
                        address = BASE + random.below(lines(burst)) * LINE;
                    }
                    load(0, address)
                })
                .collect();
            let (weight, unseen_before) = (10_004_000.0, Some(10_000_000.into()));
            let start = burst * 10_004_000;
            locality.feed(&Burst { thread: 1, start, weight, unseen_before, references: &references });
        }
        let found = locality.curve(Who::Program, LINE as u32, &[LINES / 2 * LINE])[0].ratio;
        (found, ratio(&locality.summary().total))
    };
    let [grown, whole] = [true, false].map(far);
    assert!(grown.0 <= whole.0 && grown.1 <= whole.1 * 1.001, "{grown:?} {whole:?}");
    assert!(grown.1 < whole.1 * 0.99 || grown.0 < whole.0 * 0.99, "{grown:?} {whole:?}");
}

/// Misses of the first and of the second of two loops, one after the other, each over `lines` lines of its own, in a cache of 32 MB.
/// `is_known`: whether the data's size is told.
fn two_sweeps(lines: u64, is_known: bool) -> [f64; 2] {
    let mut locality = Locality::new(&LocalityConfig::new(vec![cache(1 << 19, 16)])).expect("a level");
    let mut random = Random(47);
    let mut at = 0;
    for burst in 0..24_u32 {
        let half = burst / 12;
        let gap = (8 << 20) + random.below(8 << 20);
        let begin = at + gap;
        let reference = |at: u64| {
            let address = u64::from(1 + half) * BASE * 64 + at % (8 * lines) * 8;
            Reference { owner: half, ..load(half, address) }
        };
        let references: Vec<Reference> = (begin..begin + 4_000).map(reference).collect();
        let (start, bytes) = (u64::from(1 + half) * BASE * 64, lines * LINE);
        let array = Extent { start, end: start + bytes, object: half.into(), bytes };
        let extents = if is_known { vec![array] } else { Vec::new() };
        let (start, weight, unseen_before) = (at, (gap + 4_000) as f64, Some(gap.into()));
        let burst = Burst { thread: 1, start, weight, unseen_before, references: &references };
        locality.feed_with(&burst, &extents);
        at = begin + 4_000;
    }
    let summary = locality.summary();
    [0, 1].map(|row| ratio(&summary.instructions[row].1))
}

#[test]
fn loops_over_less_than_a_cache_miss_once() {
    // Twelve bursts of 500 lines of 262,144 find next to none of them again.
    let unknown = two_sweeps(1 << 18, false);
    assert!(unknown[0] > 0.1, "{unknown:?}");
    // But what has 16 MB is in 32: of some 150 million references these lines miss once, and again after what no burst met.
    let known = two_sweeps(1 << 18, true);
    assert!((0.001..0.01).contains(&known[0]) && known[1] < 0.01, "{known:?}");
    // What has 64 MB is not.
    let large = two_sweeps(1 << 20, true);
    assert!(large[0] > 0.1, "{large:?}");
}

#[test]
fn curves_fall_and_pass_through_the_estimates() {
    let mut random = Random(17);
    let sampling = Sampling { length: 30_000, every: 60_000, bursts: 10 };
    let (locality, _) = both(cache(512, u32::MAX), sampling, |_| load(0, BASE + random.below(4096) * LINE));
    let sizes: Vec<u64> = (10..20).map(|bits| 1 << bits).collect();
    for who in [Who::Program, Who::Instruction(0), Who::Owner(0)] {
        let curve = locality.curve(who, 64, &sizes);
        assert_eq!(curve.len(), sizes.len());
        for pair in curve.windows(2) {
            assert!(pair[1].ratio <= pair[0].ratio + 1e-12, "{pair:?}");
        }
        for point in &curve {
            let known = (1.0 - point.bytes as f64 / 64.0 / 4096.0).max(0.0);
            assert!((point.ratio - known).abs() < 0.02, "{point:?} for {known}");
            assert!(point.low <= point.ratio && point.ratio <= point.high);
        }
    }
    assert!(locality.curve(Who::Instruction(1), 64, &sizes).is_empty());
    assert!(locality.curve(Who::Program, 128, &sizes).is_empty());
}

#[test]
fn bursts_without_a_gap_are_one() {
    let mut whole = Locality::new(&LocalityConfig::new(vec![cache(512, 8)])).expect("a possible cache");
    let mut parts = Locality::new(&LocalityConfig::new(vec![cache(512, 8)])).expect("a possible cache");
    let references: Vec<Reference> = (0..8192).map(|at| load(0, BASE + at % 700 * LINE)).collect();
    let burst =
        |references, unseen_before| Burst { thread: 0, start: 0, weight: 1.0, unseen_before, references };
    whole.feed(&burst(&references, None));
    for (at, part) in references.chunks(1024).enumerate() {
        parts.feed(&Burst { weight: 0.125, ..burst(part, (at > 0).then_some(0.into())) });
    }
    let (whole, parts) = (whole.summary().total, parts.summary().total);
    assert!((whole.references - parts.references).abs() < 1e-9);
    assert!((whole.levels[0].low - parts.levels[0].low).abs() < 1e-3, "{whole:?} {parts:?}");
    assert!((whole.levels[0].high - parts.levels[0].high).abs() < 1e-3, "{whole:?} {parts:?}");
}

#[test]
fn what_is_used_for_a_while_is_looked_for_between_bursts() {
    // Each reference is to the line of the one τ before, and τ follows a power law: lines come and go. Most reuses that a
    // cache of 4,096 lines catches take longer than a burst, and less than the time to the next. By rates across bursts alone
    // the estimate is 1.28 times the simulation.
    const EXPONENT: f64 = 0.35;
    let mut random = Random(23);
    let mut lines: Vec<u64> = Vec::new();
    let stream = |now: u64| {
        let chance = (random.below(1 << 40) + 1) as f64 / (1u64 << 40) as f64;
        let before = chance.powf(-1.0 / EXPONENT);
        let is_old = random.below(100) >= 2 && before < now as f64;
        let line = if is_old { lines[now as usize - before.ceil() as usize] } else { now };
        lines.push(line);
        load(0, BASE + line * LINE)
    };
    let sampling = Sampling { length: 10_000, every: 300_000, bursts: 16 };
    let (locality, exact) = both(cache(4096, 8), sampling, stream);
    let found = ratio(&locality.summary().total);
    assert!((found / exact).ln().abs() < 0.18, "{found} for {exact}");
}

#[test]
fn a_reference_that_stands_for_many_is_one() {
    // All bursts go over the same 100 lines, which the cache holds. One was cut short, and its few references stand for as
    // many as the others': each is new in its burst, and that is all that is known.
    let mut locality = Locality::new(&LocalityConfig::new(vec![cache(512, 8)])).expect("a possible cache");
    let round = |instruction: u32, length: u64| -> Vec<Reference> {
        (0..length).map(|at| load(instruction, BASE + at % 100 * LINE)).collect()
    };
    for start in 0..20 {
        let references = if start == 10 { round(1, 20) } else { round(0, 20_000) };
        let unseen_before = Some(980_000.into());
        locality.feed(&Burst { thread: 1, start, weight: 1e6, unseen_before, references: &references });
    }
    let summary = locality.summary();
    assert!(ratio(&summary.instructions[1].1) < 0.1, "{:?}", summary.instructions[1]);
    assert!(ratio(&summary.total) < 0.01, "{:?}", summary.total);
}

#[test]
fn what_is_prefetched_is_there() {
    // 32 lines ahead of a sweep over new memory.
    let mut locality = Locality::new(&LocalityConfig::new(vec![cache(512, 8)])).expect("a possible cache");
    for burst in 0..10u64 {
        let references: Vec<Reference> = (0..20_000)
            .flat_map(|at| {
                let address = BASE + (burst * 1_000_000 + at) * LINE;
                let ahead = Reference { kind: AccessKind::Prefetch, ..load(1, address + 32 * LINE) };
                [ahead, load(0, address)]
            })
            .collect();
        let weight = references.len() as f64;
        let unseen_before = Some(960_000.into());
        locality.feed(&Burst { thread: 1, start: burst, weight, unseen_before, references: &references });
    }
    let summary = locality.summary();
    assert!(ratio(&summary.total) < 0.005, "{:?}", summary.total);
    assert_eq!((summary.total.references, summary.total.reads), (200_000.0, 200_000.0));
    let (_, ahead) = &summary.instructions[1];
    assert!(ahead.is_prefetch && ratio(ahead) > 0.995, "{ahead:?}");
    assert!(!summary.instructions[0].1.is_prefetch);
}

#[test]
fn bursts_count_by_what_they_cost() {
    let estimator = |a_reference: f64, a_miss: f64| {
        let cost = Cost { a_reference, a_miss: vec![a_miss] };
        let config = LocalityConfig { cost, ..LocalityConfig::new(vec![cache(512, 8)]) };
        Locality::new(&config).expect("a possible cache")
    };
    let references: Vec<Reference> = (0..1000).map(|_| load(0, BASE)).collect();
    let mut locality = estimator(3.0, 0.0);
    for (start, weight) in [(0, 1.0), (1, 1.0), (2, 2.0)] {
        locality.feed(&Burst { thread: 1, start, weight, unseen_before: None, references: &references });
    }
    let summary = locality.summary();
    // (1 + 1 + 2)² ÷ (1 + 1 + 4).
    assert!((summary.effective_bursts() - 16.0 / 6.0).abs() < 1e-9, "{}", summary.effective_bursts());
    assert!(
        (summary.total.spread.cost() - 12.0).abs() < 1e-9
            && summary.owners[0].1.spread == summary.total.spread
    );
    // New lines in one burst, and nothing else costs: it alone tells.
    let new: Vec<Reference> = (1..1000).map(|at| load(0, BASE + at * LINE)).collect();
    let [mut by_misses, mut for_nothing] = [estimator(0.0, 100.0), estimator(0.0, 0.0)];
    for locality in [&mut by_misses, &mut for_nothing] {
        for start in 0..6 {
            let references = if start == 4 { &new } else { &references };
            locality.feed(&Burst { thread: 1, start, weight: 1.0, unseen_before: None, references });
        }
    }
    let effective = by_misses.summary().effective_bursts();
    assert!((effective - 1.0).abs() < 0.05, "{effective}");
    assert_eq!(for_nothing.summary().effective_bursts(), 0.0);
}

fn feed(patterns: &mut Patterns, start: u64, references: &[Reference]) {
    let burst = Burst { thread: 0, start, weight: 1.0, unseen_before: None, references };
    patterns.feed(&burst, |reference| (reference.owner != 0).then_some(reference.owner));
}

#[test]
fn patterns_are_recognised() {
    let mut random = Random(19);
    let mut patterns = Patterns::new(64);
    for burst in 0..4u64 {
        let references: Vec<Reference> = (0..400u64)
            .flat_map(|at| {
                let row = (burst * 400 + at) / 10;
                [
                    load(0, BASE),
                    load(1, BASE + at * 8),
                    load(2, BASE + at * 4096),
                    load(3, BASE + at * 80 + row * 1000),
                    load(4, BASE + random.below(1 << 20) * 8),
                    load(5, BASE - at * 16),
                ]
            })
            .collect();
        feed(&mut patterns, burst, &references);
    }
    let kinds: Vec<PatternKind> = patterns.all().map(|found| found.pattern.kind).collect();
    use PatternKind::{Constant, Irregular, MultiStride, Stream, Stride};
    assert_eq!(kinds, [Constant, Stream, Stride, Stride, Irregular, Stream]);
    let of = |instruction| patterns.of(instruction).expect("it was seen");
    assert_eq!((of(1).strides[0].bytes, of(2).strides[0].bytes, of(5).strides[0].bytes), (8, 4096, -16));
    assert!((of(3).strides[0].share - 0.9).abs() < 0.01, "{:?}", of(3).strides);
    assert!(of(1).entropy_bits < 0.01 && of(4).entropy_bits > 5.5, "{:?}", of(4));
    assert!((of(1).references_apart - 6.0).abs() < 1e-9);
    assert!((of(2).span_bytes - 399.0 * 4096.0).abs() < 1.0);
    // Rows of ten; a column that no burst sees the end of.
    assert_eq!((of(3).walk_steps, of(2).walk_steps, of(4).walk_steps), (Some(9), None, None));
    assert!(of(1).confidence > 0.7 && of(4).confidence == 0.0);
    // Told where addresses come from, the same addresses are a chain or an indirect access.
    patterns.set_source(4, memlens_locality::AddressSource::LoadedBy(1));
    assert_eq!(patterns.of(4).map(|pattern| pattern.kind), Some(PatternKind::Indirect));
    patterns.set_source(4, memlens_locality::AddressSource::Itself);
    assert_eq!(patterns.of(4).map(|pattern| pattern.kind), Some(PatternKind::PointerChase));
    // Two strides by turns.
    let mut patterns = Patterns::new(64);
    let references: Vec<Reference> =
        (0..400u64).map(|at| load(0, BASE + at / 2 * 1000 + at % 2 * 200)).collect();
    feed(&mut patterns, 0, &references);
    assert_eq!(patterns.of(0).map(|pattern| pattern.kind), Some(MultiStride));
}

#[test]
fn copies_of_an_unrolled_loop_are_a_stream_together() {
    let mut patterns = Patterns::new(64);
    for burst in 0..3u64 {
        let references: Vec<Reference> = (0..400u64)
            .flat_map(|round| {
                let at = |bytes: u64| BASE + (burst * 400 + round) * 256 + bytes;
                let down = |bytes: u64| 2 * BASE - (at(bytes) - BASE);
                let vector = |instruction, address| Reference { size: 32, ..load(instruction, address) };
                [
                    // Half of each of four lines a round, and down as well.
                    vector(0, at(0)),
                    vector(1, at(64)),
                    vector(2, at(128)),
                    vector(3, at(192)),
                    vector(4, down(8)),
                    vector(5, down(72)),
                    vector(6, down(136)),
                    vector(7, down(200)),
                    // Three members of a structure that has another line.
                    vector(8, 3 * BASE + at(0)),
                    vector(9, 3 * BASE + at(64)),
                    vector(10, 3 * BASE + at(72)),
                    // Four of one, a few bytes of each of its lines.
                    load(11, 5 * BASE + at(0)),
                    load(12, 5 * BASE + at(64)),
                    load(13, 5 * BASE + at(128)),
                    load(14, 5 * BASE + at(192)),
                ]
            })
            .collect();
        // It begins and ends within a round.
        let references = &references[3..references.len() - 2];
        feed(&mut patterns, burst, references);
    }
    use PatternKind::{Stream, Stride};
    let kinds: Vec<PatternKind> = patterns.all().map(|found| found.pattern.kind).collect();
    assert_eq!(kinds, [vec![Stream; 8], vec![Stride; 7]].concat());
    // Its own steps are what they are.
    assert_eq!(patterns.of(0).map(|it| (it.kind, it.strides[0].bytes)), Some((Stride, 256)));
    let first = patterns.all().next().expect("there are some");
    assert_eq!(first.pattern.strides[0].bytes, 256);
}

#[test]
fn an_instruction_has_a_pattern_on_each_owners_memory() {
    let mut patterns = Patterns::new(64);
    let mut random = Random(5);
    let on = |owner, instruction, address| Reference { owner, ..load(instruction, address) };
    for burst in 0..20u64 {
        // One call goes along an array, the next down a column of another; every third access of another instruction is
        // somewhere in a third one. A third instruction has one owner, and a fourth goes at first through what is nobody's by columns.
        let is_column = burst % 2 == 1;
        let references: Vec<Reference> = (0..300u64)
            .flat_map(|at| {
                let of_call = match is_column {
                    false => on(1, 0, BASE + at * 8),
                    true => on(2, 0, 2 * BASE + at * 4096),
                };
                let by_turns = match at % 3 {
                    0 => on(3, 1, 3 * BASE + random.below(1 << 20) * 8),
                    _ => on(1, 1, BASE + (at - at / 3) * 8),
                };
                let late = if burst < 4 { on(0, 3, 5 * BASE + at * 4096) } else { on(1, 3, BASE + at * 8) };
                [of_call, by_turns, on(1, 2, BASE + at * 64), late]
            })
            .collect();
        feed(&mut patterns, burst, &references);
    }
    use PatternKind::{Irregular, MultiStride, Stream, Stride};
    let all: Vec<_> = patterns.all().map(|it| (it.instruction, it.owner, it.pattern.kind)).collect();
    let wholes = [(0, None, MultiStride), (1, None, Irregular), (2, None, Stream), (3, None, Stream)];
    let parts = [
        (0, Some(1), Stream),
        (0, Some(2), Stride),
        (1, Some(1), Stream),
        (1, Some(3), Irregular),
        (3, Some(1), Stream),
    ];
    assert_eq!(all, [&wholes[..], &parts].concat());
    // What is looked at is bounded.
    let mut patterns = Patterns::new(4);
    let references: Vec<Reference> =
        (0..1000u32).map(|at| on(1 + at % 50, at % 7, BASE + u64::from(at) * 8)).collect();
    feed(&mut patterns, 0, &references);
    assert_eq!(patterns.all().filter(|it| it.owner.is_none()).count(), 4);
    assert_eq!(patterns.all().filter(|it| it.owner.is_some()).count(), 4);
}

#[test]
fn a_walk_by_columns_stays_in_one_set() {
    // 256 lines a page apart, 64 columns of 8 bytes, then the next: in 64 sets of 8 none is there again, in one of 512 seven of eight are.
    // With rows of a line more they are in either.
    let walk = |row: u64| move |n: u64| load(0, BASE + n % 256 * row + n / 256 % 512 * 8);
    let sampling = Sampling { length: 12_000, every: 200_000, bursts: 20 };
    for (row, ways, known) in [(4096, 8, 1.0), (4096, 512, 0.125), (4160, 8, 0.125)] {
        let (locality, exact) = both(cache(512, ways), sampling, walk(row));
        let summary = locality.summary();
        let found = ratio(&summary.total);
        assert!((exact - known).abs() < 0.01, "{row} {ways}: simulated {exact}");
        assert!((found - exact).abs() < 0.03, "{row} {ways}: {found} for {exact}");
    }
}

/// Misses of a sweep over so many lines, in a cache of 16 MB, of which one burst saw how all of them were filled, and the sweep begin.
fn filled_and_swept(lines: u64, bursts: u64) -> f64 {
    const LENGTH: u64 = 25_000;
    let mut locality = Locality::new(&LocalityConfig::new(vec![cache(1 << 18, 16)])).expect("a level");
    let mut random = Random(53);
    let sweep = |at: u64| load(1, BASE + at % (8 * lines) * 8);
    let fill = (0..lines).map(|at| load(0, BASE + at * LINE));
    let first: Vec<Reference> = fill.chain((0..LENGTH).map(sweep)).collect();
    let weight = first.len() as f64;
    locality.feed(&Burst {
        thread: 1,
        start: 0,
        weight,
        unseen_before: Some(1000.into()),
        references: &first,
    });
    let mut at = LENGTH;
    for burst in 0..bursts {
        let gap = (1 << 20) + random.below(6 << 20);
        let begin = at + gap;
        let references: Vec<Reference> = (begin..begin + LENGTH).map(sweep).collect();
        let (weight, unseen_before) = ((gap + LENGTH) as f64, Some(gap.into()));
        locality.feed(&Burst { thread: 1, start: 1 + burst, weight, unseen_before, references: &references });
        at = begin + LENGTH;
    }
    ratio(&locality.summary().instructions[1].1)
}

#[test]
fn what_one_burst_saw_all_of_is_not_used_so_soon_again() {
    // 40 MB: each line is used by eight references in a row, and gone when it comes again. Few bursts find what another one than the first
    // had.
    for bursts in [15, 40, 160] {
        let missing = filled_and_swept(655_360, bursts);
        assert!((0.11..0.126).contains(&missing), "{bursts} bursts: {missing}");
    }
}

#[test]
fn code_that_is_always_new_has_no_more_misses_together_than_the_program() {
    // Each burst meets instructions of its own. One reference in 20 is to a random line of 3,000, of which the cache holds 2,048.
    let mut random = Random(51);
    let every = 400_000;
    let stream = |at: u64| {
        let code = (at / every as u64 * 16) as u32;
        match at % 20 {
            0 => load(code + random.below(15) as u32, BASE + random.below(3_000) * LINE),
            _ => load(code + 15, 2 * BASE),
        }
    };
    let (locality, exact) = both(cache(2048, 16), Sampling { length: 6_000, every, bursts: 20 }, stream);
    let found = ratio(&locality.summary().total);
    // What each says by itself adds up to 1.36 times the misses.
    assert!((0.9..1.28).contains(&(found / exact)), "{found} for {exact}");
}

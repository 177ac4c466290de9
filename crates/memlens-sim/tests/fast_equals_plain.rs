//! The staged engine against the obvious one: every list equal, whatever the stream and geometry.

mod support;

use memlens_sim::{
    Batch, CacheDescription, CoreId, MachineDescription, Model, Outcome, PageSize, Passage, PlainModel,
    SimdLevel, TlbDescription, TlbEntries,
};
use memlens_types::{AccessAttr, AccessKind};
use proptest::prelude::*;
use std::collections::VecDeque;
use support::{kind, levels, next_draw};

/// Batches by which the upper half of the engine is ahead of the lower one.
const AHEAD: usize = 2;

#[derive(Clone, Debug)]
struct Stream {
    addrs: Vec<u64>,
    attrs: Vec<AccessAttr>,
}

/// Bases as programs have them: executable, heap, stack, a far mapping, kernel half, address 0.
const BASES: [u64; 7] = [
    0x40_0000,
    0x5555_5555_4000,
    0x7fff_ffff_0000,
    0x7f12_3456_7000,
    0xffff_ffff_ff60_0000,
    0,
    u64::MAX - 4096,
];

#[derive(Clone, Copy, Debug)]
enum Pattern {
    Random {
        span: u64,
    },
    Strided {
        stride: u64,
        span: u64,
    },
    /// Line i with probability ∝ 1 / (i + 1), roughly: 2^(uniform exponent).
    Zipf {
        span_bits: u32,
    },
}

fn pattern() -> impl Strategy<Value = Pattern> {
    prop_oneof![
        (0u32..24).prop_map(|bits| Pattern::Random { span: 64 << bits }),
        (1u64..9000, 8u32..22).prop_map(|(stride, bits)| Pattern::Strided { stride, span: 1 << bits }),
        (8u32..30).prop_map(|span_bits| Pattern::Zipf { span_bits }),
    ]
}

fn stream() -> impl Strategy<Value = Stream> {
    let part = (0..BASES.len(), pattern(), prop::collection::vec((any::<u64>(), kind(4), 0u32..7), 1..400));
    prop::collection::vec(part, 1..12).prop_map(|parts| {
        let mut stream = Stream { addrs: Vec::new(), attrs: Vec::new() };
        for (base, pattern, draws) in parts {
            for (at, (draw, kind, size)) in draws.into_iter().enumerate() {
                let offset = match pattern {
                    Pattern::Random { span } => draw % span,
                    Pattern::Strided { stride, span } => at as u64 * stride % span,
                    Pattern::Zipf { span_bits } => draw % (1 << ((draw >> 32) % u64::from(span_bits))),
                };
                stream.addrs.push(BASES[base].wrapping_add(offset));
                stream.attrs.push(AccessAttr::new(kind, [0, 1, 4, 8, 16, 64, 300][size as usize]));
            }
        }
        stream
    })
}

fn cache() -> impl Strategy<Value = CacheDescription> {
    let sets = prop_oneof![Just(1u64), Just(2), Just(3), Just(12), Just(64), Just(20), Just(256)];
    let ways = prop_oneof![1u32..=16, 17u32..=33];
    (sets, ways).prop_map(|(sets, ways)| CacheDescription::new(sets * u64::from(ways) * 64, ways, 64))
}

fn machine() -> impl Strategy<Value = MachineDescription> {
    support::machine((cache(), cache(), prop::option::weighted(0.8, cache()), cache()))
}

/// Runs the stream in batches on `core_of(batch)`; returns each batch's outcome and what is dirty
/// at the end.
fn run(
    stream: &Stream,
    batch_len: usize,
    core_of: impl Fn(usize) -> CoreId,
    mut access: impl FnMut(CoreId, Batch<'_>, &mut Outcome),
) -> Vec<Outcome> {
    let batches = stream.addrs.chunks(batch_len).zip(stream.attrs.chunks(batch_len));
    let run_one = |(at, (addrs, attrs)): (usize, (&[u64], &[AccessAttr]))| {
        let mut out = Outcome::default();
        access(core_of(at), Batch { addrs, attrs }, &mut out);
        out
    };
    batches.enumerate().map(run_one).collect()
}

fn compare(
    machine: &MachineDescription,
    stream: &Stream,
    batch_len: usize,
    big_pages: bool,
    core_of: impl Fn(usize) -> CoreId,
) {
    let mut plain = PlainModel::new(machine).expect("valid");
    if big_pages {
        plain.set_page_size(0x5555_5540_0000..0x5555_8000_0000, PageSize::Size2M);
        plain.set_page_size(0x7f12_0000_0000..0x7f13_0000_0000, PageSize::Size1G);
    }
    let expected = run(stream, batch_len, &core_of, |core, batch, out| plain.access(core, batch, out));
    let mut expected_dirty = Outcome::default();
    plain.flush_writebacks(&mut expected_dirty);
    for level in levels() {
        let mut model = Model::new(machine, level).expect("valid");
        if big_pages {
            model.set_page_size(0x5555_5540_0000..0x5555_8000_0000, PageSize::Size2M);
            model.set_page_size(0x7f12_0000_0000..0x7f13_0000_0000, PageSize::Size1G);
        }
        let got = run(stream, batch_len, &core_of, |core, batch, out| model.access(core, batch, out));
        for (at, (got, expected)) in got.iter().zip(&expected).enumerate() {
            assert_eq!(got, expected, "batch {at}, {level:?}");
        }
        let mut dirty = Outcome::default();
        model.flush_writebacks(&mut dirty);
        assert_eq!(dirty, expected_dirty, "dirty lines at the end, {level:?}");
        let in_halves = run_in_halves(machine, level, stream, batch_len, &core_of);
        if let (Some(got), false) = (in_halves, big_pages) {
            for (at, (got, expected)) in got.iter().zip(&expected).enumerate() {
                assert_eq!(got, expected, "batch {at}, in halves, {level:?}");
            }
        }
    }
}

/// The same in halves, the upper one some batches ahead. A batch is run in two parts. None for machines without the staged engine.
fn run_in_halves(
    machine: &MachineDescription,
    level: SimdLevel,
    stream: &Stream,
    batch_len: usize,
    core_of: impl Fn(usize) -> CoreId,
) -> Option<Vec<Outcome>> {
    let (mut upper, mut lower) = Model::new(machine, level).expect("valid").split().ok()?;
    let batches: Vec<Batch<'_>> = (stream.addrs.chunks(batch_len).zip(stream.attrs.chunks(batch_len)))
        .map(|(addrs, attrs)| Batch { addrs, attrs })
        .collect();
    let mut under_way: VecDeque<(Outcome, Passage)> = VecDeque::new();
    let mut done = Vec::new();
    for at in 0..batches.len() + AHEAD {
        if let Some(batch) = batches.get(at) {
            let (mut out, mut passage, half) = (Outcome::default(), Passage::default(), batch.len() / 2);
            for part in [0..half, half..batch.len()] {
                upper.access(core_of(at), *batch, part, &mut out, &mut passage);
            }
            under_way.push_back((out, passage));
        }
        if at >= AHEAD
            && let Some((mut out, mut passage)) = under_way.pop_front()
        {
            lower.access(batches[at - AHEAD], &mut out, &mut passage);
            done.push(out);
        }
    }
    Some(done)
}

/// In a second-level TLB of 384 sets a page of the kernel's half shares its set with those of the same rest, sign and all.
#[test]
fn pages_of_both_halves_meet_in_sets_of_any_number() {
    let cache = CacheDescription::new(64 * 8 * 64, 8, 64);
    let mut machine = MachineDescription::of_caches(cache.clone(), cache.clone(), None, cache);
    let of_pages = |entries| TlbDescription { size_4k: Some(entries), ..TlbDescription::default() };
    machine.dtlb = Some(of_pages(TlbEntries::new(1, 1)));
    machine.stlb = Some(of_pages(TlbEntries::new(384, 1)));
    let kernel = (u64::MAX >> 12) / 384 * 384 - 384;
    let pages = [384 * 1000, kernel, 384 * 1000, kernel + 128, 384 * 1000, kernel + 256];
    let addrs: Vec<u64> = pages.iter().map(|page| page << 12).collect();
    let attrs = vec![AccessAttr::new(AccessKind::Load, 8); addrs.len()];
    let mut out = Outcome::default();
    Model::new(&machine, SimdLevel::SCALAR).expect("valid").access(
        CoreId(0),
        Batch { addrs: &addrs, attrs: &attrs },
        &mut out,
    );
    assert_eq!(
        out.stlb_misses,
        [0, 1, 2, 3, 5],
        "only the first page of the kernel's half took the place of the other"
    );
    compare(&machine, &Stream { addrs, attrs }, 2, false, |_| CoreId(0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn one_core(machine in machine(), stream in stream(), batch_len in 1usize..3000, big_pages: bool) {
        compare(&machine, &stream, batch_len, big_pages, |_| CoreId(3));
    }

    /// The second core appears after a while: the obvious model takes over the exact state.
    #[test]
    fn a_second_core_takes_over(machine in machine(), stream in stream(), batch_len in 1usize..1000, big_pages: bool) {
        compare(&machine, &stream, batch_len, big_pages, |batch| CoreId(u16::from(batch % 5 == 3)));
    }

    /// More 4 GiB regions than the tags of a machine with few sets can tell apart.
    #[test]
    fn sparse_addresses_overflow_the_tags(
        machine in machine(),
        stream in stream(),
        batch_len in 1usize..3000,
        shift in 0u32..20,
    ) {
        let mut stream = stream;
        for (at, addr) in stream.addrs.iter_mut().enumerate() {
            *addr ^= (at as u64 >> 3) << (24 + shift);
        }
        compare(&machine, &stream, batch_len, false, |_| CoreId(0));
    }
}

/// Sizes of a present machine, with a stream longer than one chunk.
#[test]
fn a_present_machine() {
    for name in ["host", "intel-sapphire-rapids", "e5-2620v2"] {
        let mut machine = MachineDescription::named(name).expect("shipped");
        // It reads the lists that are compared here, whoever made them.
        machine.prefetcher.streams = 0;
        machine.apply_override("inclusion=non-inclusive").expect("valid");
        let mut state = 88172645463325252u64;
        let mut stream = Stream { addrs: Vec::new(), attrs: Vec::new() };
        for at in 0..300_000u64 {
            let draw = next_draw(&mut state);
            // A hot stack, a warm heap, a cold array, a walk through a big one.
            let addr = match draw >> 60 {
                0..8 => 0x7ffd_1234_0000 + (draw >> 8) % 4096,
                8..13 => 0x5555_5556_0000 + (draw >> 8) % (1 << 18),
                13 => 0x7f00_0000_0000 + (draw >> 8) % (1 << 30),
                _ => 0x7e00_0000_0000 + at * 24,
            };
            let kind = [AccessKind::Load, AccessKind::Load, AccessKind::Store, AccessKind::Modify]
                [(draw >> 4) as usize % 4];
            stream.addrs.push(addr);
            stream.attrs.push(AccessAttr::new(kind, 8));
        }
        compare(&machine, &stream, 20_000, false, |_| CoreId(0));
    }
}

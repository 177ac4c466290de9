//! The coherent engine against the obvious model: every list equal, whatever the cores do to each
//! other, and whatever the machine.

mod support;

use memlens_sim::{
    Batch, CacheDescription, CoreId, Inclusion, MachineDescription, Model, Outcome, PageSize, PlainModel,
};
use memlens_types::{AccessAttr, AccessKind};
use proptest::prelude::*;
use std::collections::HashSet;
use std::ops::Range;
use support::{kind, levels, next_draw};

/// How the cores' addresses relate to each other.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    /// Every core in memory of its own.
    Private { span_bits: u32 },
    /// All in the same memory, some of it often: byte i with probability ∝ 1 / i, roughly.
    Shared { span_bits: u32 },
    /// Words of their own in common lines.
    FalseSharing { lines: u64 },
    /// Objects of some lines that one core works on for a while, then another one.
    Migrating { objects: u64 },
    /// One writes what all others read.
    OneWriter { span_bits: u32 },
    /// A page or more from one access to the next: TLB misses and walks.
    Sparse { stride: u64, pages: u64 },
}

fn pattern() -> impl Strategy<Value = Pattern> {
    prop_oneof![
        (6u32..22).prop_map(|span_bits| Pattern::Private { span_bits }),
        (6u32..22).prop_map(|span_bits| Pattern::Shared { span_bits }),
        (1u64..200).prop_map(|lines| Pattern::FalseSharing { lines }),
        (1u64..40).prop_map(|objects| Pattern::Migrating { objects }),
        (6u32..18).prop_map(|span_bits| Pattern::OneWriter { span_bits }),
        (4000u64..5_000_000, 1u64..300).prop_map(|(stride, pages)| Pattern::Sparse { stride, pages }),
    ]
}

/// One core's accesses in a row.
#[derive(Clone, Debug)]
struct Turn {
    core: CoreId,
    addrs: Vec<u64>,
    attrs: Vec<AccessAttr>,
}

const HEAP: u64 = 0x5555_5555_4000;
const BIG_PAGES: Range<u64> = HEAP & !0xf_ffff..HEAP + (1 << 31);
const HUGE_PAGES: Range<u64> = 0x7f00_0000_0000..0x7f40_0000_0000;
const BASES: [u64; 5] = [HEAP, 0x7f12_3456_7000, 0x40_0000, u64::MAX - 4096, 0x7fff_ffff_0000];

/// The address that `core` uses as its access number `at` with `draw` for chance, and whether it may
/// only read there.
fn address(pattern: Pattern, base: u64, core: u64, at: u64, draw: u64) -> (u64, bool) {
    let near = |bits: u32| draw % (1 << ((draw >> 32) % u64::from(bits + 1)));
    let (offset, reads) = match pattern {
        Pattern::Private { span_bits } => ((core << 24) + near(span_bits), false),
        Pattern::Shared { span_bits } => (near(span_bits), false),
        Pattern::FalseSharing { lines } => (draw % lines * 64 + core % 8 * 8, false),
        Pattern::Migrating { objects } => ((core + at / 50) % objects * 256 + draw % 256, false),
        Pattern::OneWriter { span_bits } => (near(span_bits), core != 0),
        Pattern::Sparse { stride, pages } => ((at + core) % pages * stride, false),
    };
    (base.wrapping_add(offset), reads)
}

/// Turns of up to `turn` accesses on `cores` cores.
fn turns(cores: u16, turn: usize) -> impl Strategy<Value = Vec<Turn>> {
    let draws = prop::collection::vec((any::<u64>(), kind(6), 0usize..9), 1..turn);
    let part = (0..BASES.len(), pattern(), prop::collection::vec((0..cores, draws), 1..30));
    prop::collection::vec(part, 1..6).prop_map(|parts| {
        let mut turns = Vec::new();
        for (base, pattern, part) in parts {
            for (core, draws) in part {
                let mut turn = Turn { core: CoreId(core), addrs: Vec::new(), attrs: Vec::new() };
                for (at, (draw, kind, size)) in draws.into_iter().enumerate() {
                    let (addr, reads) = address(pattern, BASES[base], u64::from(core), at as u64, draw);
                    let kind = if reads && kind.writes() { AccessKind::Load } else { kind };
                    turn.addrs.push(addr);
                    turn.attrs.push(AccessAttr::new(kind, [0, 1, 4, 8, 8, 8, 16, 64, 300][size]));
                }
                turns.push(turn);
            }
        }
        turns
    })
}

/// Small ones, so that a short stream fills and overflows them; also numbers of sets that are no power
/// of two, one way, more ways than a vector has lanes.
fn cache(most_sets: usize) -> impl Strategy<Value = CacheDescription> {
    const SETS: [u64; 8] = [1, 2, 3, 7, 12, 16, 64, 112];
    const WAYS: [u32; 8] = [1, 2, 3, 4, 8, 12, 16, 21];
    let sets = (0..most_sets.min(SETS.len())).prop_map(|at| SETS[at]);
    (sets, 0..WAYS.len())
        .prop_map(|(sets, ways)| CacheDescription::new(sets * u64::from(WAYS[ways]) * 64, WAYS[ways], 64))
}

fn machine() -> impl Strategy<Value = MachineDescription> {
    let caches = (cache(6), cache(6), prop::option::weighted(0.8, cache(7)), cache(8));
    let inclusion = prop_oneof![
        2 => Just(Inclusion::NonInclusive),
        1 => Just(Inclusion::Inclusive),
        1 => Just(Inclusion::Exclusive),
    ];
    (support::machine(caches), inclusion).prop_map(|(mut machine, inclusion)| {
        let possible = machine.l2.is_some() || inclusion != Inclusion::Exclusive;
        machine.inclusion = if possible { inclusion } else { Inclusion::NonInclusive };
        machine
    })
}

/// What may happen besides accesses, by the number of the turn before which it does.
#[derive(Clone, Copy, Debug)]
struct Events {
    big_pages_at: usize,
    small_pages_at: usize,
    flush_at: usize,
}

fn events() -> impl Strategy<Value = Events> {
    (0usize..200, 0usize..200, 0usize..200).prop_map(|(big_pages_at, small_pages_at, flush_at)| Events {
        big_pages_at,
        small_pages_at,
        flush_at,
    })
}

/// Runs the turns on any model with these functions; one outcome a turn, one for each flush.
macro_rules! outcomes {
    ($model:expr, $turns:expr, $events:expr) => {{
        let mut outcomes = Vec::new();
        for (at, turn) in $turns.iter().enumerate() {
            let mut out = Outcome::default();
            if at == $events.big_pages_at {
                $model.set_page_size(BIG_PAGES, PageSize::Size2M);
                $model.set_page_size(HUGE_PAGES, PageSize::Size1G);
            }
            if at == $events.small_pages_at {
                $model.set_page_size(BIG_PAGES, PageSize::Size4K);
            }
            if at == $events.flush_at {
                $model.flush_writebacks(&mut out);
            }
            $model.access(turn.core, Batch { addrs: &turn.addrs, attrs: &turn.attrs }, &mut out);
            outcomes.push(out);
        }
        let mut dirty = Outcome::default();
        $model.flush_writebacks(&mut dirty);
        outcomes.push(dirty);
        outcomes
    }};
}

/// Returns the obvious model's outcomes.
fn compare(machine: &MachineDescription, turns: &[Turn], events: Events) -> Vec<Outcome> {
    let mut plain = PlainModel::new(machine).expect("valid");
    let expected = outcomes!(plain, turns, events);
    for level in levels() {
        let mut model = Model::new(machine, level).expect("valid");
        let got = outcomes!(model, turns, events);
        for (at, (got, expected)) in got.iter().zip(&expected).enumerate() {
            assert_eq!(got, expected, "turn {at} of {}, {level:?}", turns.len());
        }
    }
    expected
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn a_few_cores(machine in machine(), turns in turns(4, 120), events in events()) {
        compare(&machine, &turns, events);
    }

    /// Cores share bits of the directory.
    #[test]
    fn more_cores_than_bits(machine in machine(), turns in turns(200, 40), events in events()) {
        compare(&machine, &turns, events);
    }

    /// The staged engine stops at addresses that its tags cannot tell apart; what follows it is exact.
    #[test]
    fn sparse_addresses(machine in machine(), turns in turns(3, 80), events in events(), shift in 0u32..20) {
        let mut turns = turns;
        for (turn, addrs) in turns.iter_mut().map(|turn| &mut turn.addrs).enumerate() {
            for (at, addr) in addrs.iter_mut().enumerate() {
                *addr ^= ((turn + at) as u64 >> 3) << (24 + shift);
            }
        }
        compare(&machine, &turns, events);
    }
}

/// The shipped machines and one with all numbers odd, with streams long enough to overflow the private
/// caches and to make the directory anew several times.
#[test]
fn shipped_machines() {
    let mut machines: Vec<MachineDescription> =
        ["host", "e5504", "e5-2620v2", "intel-sapphire-rapids", "amd-zen4", "arm-neoverse-v2"]
            .map(|name| MachineDescription::named(name).expect("shipped"))
            .into();
    let odd = ["l1i=6720,3,64", "l1d=14400,5,64", "l2=126720,11,64", "llc=1235520,13,64"];
    let mut machine = MachineDescription::named("e5-2620v2").expect("shipped");
    odd.iter().for_each(|level| machine.apply_override(level).expect("valid"));
    machines.push(machine);
    // It reads the lists that are compared here, whoever made them.
    machines.iter_mut().for_each(|machine| machine.prefetcher.streams = 0);
    let mut state = 88172645463325252u64;
    let mut turns = Vec::new();
    for _ in 0..240 {
        let core = next_draw(&mut state) >> 40 & 7;
        let mut turn = Turn { core: CoreId(core as u16), addrs: Vec::new(), attrs: Vec::new() };
        for _ in 0..500 {
            let draw = next_draw(&mut state);
            // A stack, a warm heap of its own, a common table, counters, a common cold array.
            let addr = match draw >> 60 {
                0..6 => 0x7ffd_1234_0000 + (core << 23) + (draw >> 8) % 4096,
                6..10 => 0x5555_5556_0000 + (core << 22) + (draw >> 8) % (1 << 20),
                10..12 => 0x5555_0000_0000 + (draw >> 8) % (1 << 16),
                12 => 0x5555_0100_0000 + (draw >> 8) % 64 * 64 + core * 8,
                _ => 0x7f00_0000_0000 + (draw >> 8) % (1 << 26),
            };
            let kind = AccessKind::ALL[(draw >> 4) as usize % AccessKind::ALL.len()];
            turn.addrs.push(addr);
            turn.attrs.push(AccessAttr::new(kind, 8));
        }
        turns.push(turn);
    }
    for machine in machines {
        let found =
            compare(&machine, &turns, Events { big_pages_at: 150, small_pages_at: 200, flush_at: 100 });
        // The streams do what they are for.
        let lost: HashSet<CoreId> =
            found.iter().flat_map(|out| &out.invalidations).map(|lost| lost.core).collect();
        assert_eq!(lost.len(), 8, "{}", machine.name);
        assert!(found.iter().map(|out| out.invalidations.len()).sum::<usize>() > 3000, "{}", machine.name);
        assert!(found.iter().map(|out| out.coherence_misses.len()).sum::<usize>() > 3000, "{}", machine.name);
        assert!(found.iter().map(|out| out.l2_misses.len()).sum::<usize>() > 24_000, "{}", machine.name);
    }
}

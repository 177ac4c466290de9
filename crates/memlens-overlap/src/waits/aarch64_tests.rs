//! Windows of A64 loops through the core: assembled with GNU as; the comment beside each word is its disassembly.

use super::tests::{Access, CORE, always, found_in, is_near, loads, parts_of};
use super::*;
use crate::paths::Code;
use memlens_code::Architecture;
use memlens_types::AccessKind;

/// `ldr x1, [x2], #8 ; something ; b`: loads that only `between` keeps in order.
fn with_between(load: u32, between: u32) -> [u32; 4] {
    [
        load,        // 1000
        0x9140_0442, // 1004 add x2, x2, #0x1, lsl #12
        between,     // 1008
        0x17ff_fffd, // 100c b 1000
    ]
}

const CHASE: [u32; 2] = [
    0xf940_0000, // 1000 ldr x0, [x0]
    0xb5ff_ffe0, // 1004 cbnz x0, 1000
];
const NODE: [u32; 3] = [
    0xa940_0821, // 1000 ldp x1, x2, [x1]
    0x8b02_0000, // 1004 add x0, x0, x2
    0xb5ff_ffc1, // 1008 cbnz x1, 1000
];
const WALK: [u32; 4] = [
    0xf840_8441, // 1000 ldr x1, [x2], #8
    0x8b01_0000, // 1004 add x0, x0, x1
    0xeb03_005f, // 1008 cmp x2, x3
    0x54ff_ffa1, // 100c b.ne 1000
];
const MOVES: [u32; 2] = [
    0xf840_8441, // 1000 ldr x1, [x2], #8
    0xb5ff_ffe3, // 1004 cbnz x3, 1000
];
/// `sum += a[index[i]]`, of `int` and `double`.
const GATHER: [u32; 5] = [
    0xb880_4402, // 1000 ldrsw x2, [x0], #4
    0xfc62_7821, // 1004 ldr d1, [x1, x2, lsl #3]
    0x1e61_2800, // 1008 fadd d0, d0, d1
    0xeb00_007f, // 100c cmp x3, x0
    0x54ff_ff81, // 1010 b.ne 1000
];

fn found(words: &[u32], accesses: &[Access], served: &[Served], core: CoreLimits) -> Waits {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let code = Code { architecture: Architecture::AArch64, start: 0x1000, bytes: &bytes };
    found_in(code, accesses, served, core, (0, 0))
}

/// The part of the latency that is waited for, by operand.
fn parts(words: &[u32], accesses: &[Access], served: &[Served], core: CoreLimits) -> Vec<f64> {
    let found = found(words, accesses, served, core);
    parts_of(&(0..served.len() as u32).map(|it| found.operands[&it]).collect::<Vec<_>>())
}

fn hits() -> Served {
    Served { hit_cycles: 4.0, prefetched_cycles: None, misses: Vec::new() }
}

/// Cycles of an access that hits, where the core is wide enough not to matter.
fn cycles_of_hits(words: &[u32]) -> f64 {
    let core = CoreLimits { width: 16, ..CORE };
    let found = found(words, &loads(0x1000, 5000), &[hits()], core);
    found.cycles / found.operands[&0].accesses as f64
}

#[test]
fn along_a_list_each_access_is_waited_for() {
    for words in [&CHASE[..], &NODE] {
        let parts = parts(words, &loads(0x1000, 5000), &[always(300.0)], CORE);
        assert!(is_near(parts[0], 1.0), "{parts:?}");
    }
    // One that the first level has: 4 cycles a node, of which two instructions of six a cycle take a third by themselves.
    let list = parts(&CHASE, &loads(0x1000, 5000), &[hits()], CoreLimits { width: 6, ..CORE });
    assert!(is_near(list[0], (4.0 - 2.0 / 6.0) / 4.0), "{list:?}");
    assert!(is_near(cycles_of_hits(&CHASE), 4.0));
}

#[test]
fn a_walk_by_post_index_waits_for_no_load() {
    // 4 instructions for a load: as many at a time as there are places for lines.
    let by_places = parts(&WALK, &loads(0x1000, 5000), &[always(300.0)], CORE);
    assert!(is_near(by_places[0], 0.1), "{by_places:?}");
    // Or as there are loads in the window: 20 instructions are 5 of them.
    let by_window = parts(&WALK, &loads(0x1000, 5000), &[always(300.0)], CoreLimits { window: 20, ..CORE });
    assert!(is_near(by_window[0], 0.2), "{by_window:?}");
    // The pointer takes a cycle each time, whatever is loaded; two instructions of 16 a cycle would take an eighth.
    assert!(is_near(cycles_of_hits(&MOVES), 1.0), "{}", cycles_of_hits(&MOVES));
}

#[test]
fn an_index_that_hits_makes_no_chain_and_one_that_misses_does() {
    let accesses: Vec<Access> = (0..5000_u64)
        .flat_map(|n| {
            [(0x1000, 0, AccessKind::Load, n << 2), (0x1004, 0, AccessKind::Load, 1 << 40 | n << 12)]
        })
        .collect();
    let gathered = parts(&GATHER, &accesses, &[hits(), always(300.0)], CORE);
    assert!(gathered[0] < 0.05 && (0.09..0.11).contains(&gathered[1]), "{gathered:?}");
    // Twenty misses for ten places; both kinds wait, together as long as both need them.
    let both = parts(&GATHER, &accesses, &[always(300.0), always(300.0)], CORE);
    assert!(is_near(both[0] + both[1], 0.2), "{both:?}");
}

#[test]
fn sums_of_floating_point_take_their_latency() {
    let accesses: Vec<Access> = (0..5000_u64)
        .flat_map(|n| [(0x1000, 0, AccessKind::Load, n << 2), (0x1004, 0, AccessKind::Load, n << 3)])
        .collect();
    let found = found(&GATHER, &accesses, &[hits(), hits()], CoreLimits { width: 16, ..CORE });
    // fadd: two cycles a round, and two accesses.
    let a_round = found.cycles / found.operands[&0].accesses as f64;
    assert!(is_near(a_round, 2.0), "{a_round}");
}

#[test]
fn loads_that_acquire_and_barriers_end_the_overlap() {
    const LDR: u32 = 0xf940_0041; // ldr x1, [x2]
    const NOP: u32 = 0xd503_201f;
    let part =
        |load, between| parts(&with_between(load, between), &loads(0x1000, 5000), &[always(300.0)], CORE)[0];
    for (load, between) in [
        (LDR, NOP),
        (LDR, 0xd503_3abf), // dmb ishst
        (0xf823_0041, NOP), // ldadd x3, x1, [x2]
    ] {
        let part = part(load, between);
        assert!(is_near(part, 0.1), "{load:x} {between:x}: {part}");
    }
    for (load, between) in [
        (LDR, 0xd503_39bf), // dmb ishld
        (LDR, 0xd503_3bbf), // dmb ish
        (LDR, 0xd503_3fdf), // isb
        (0xc8df_fc41, NOP), // ldar x1, [x2]
        (0xf8bf_c041, NOP), // ldapr x1, [x2]
        (0xf8e3_0041, NOP), // ldaddal x3, x1, [x2]
    ] {
        let part = part(load, between);
        assert!(is_near(part, 1.0), "{load:x} {between:x}: {part}");
    }
}

//! Windows of small loops through the core; the comment before the bytes is their assembly.

use super::*;
use crate::out_of_order::{LineRates, Schedulers};
use crate::paths::Code;
use crate::served::{Service, Source};
use memlens_code::Architecture;
use memlens_locality::Reference;
use memlens_types::AccessKind;

pub(super) const CORE: CoreLimits = CoreLimits {
    width: 4,
    window: 240,
    scheduled: 97,
    schedulers: Schedulers { integer: 0, multiply: 0, vector: 0, address: 0 },
    outstanding: 10,
    stores: 48,
    crowded_sets: 6,
    lines: LineRates {
        from_own_level: 0.0,
        from_last_level: 0.0,
        from_memory: 0.0,
        from_memory_alone: 0.0,
        into_set_by_load: 0.0,
        into_set_by_store: 0.0,
        into_set_by_both: 0.0,
    },
};

/// The part of the latency that is waited for, by operand.
pub(super) fn parts_of(found: &[Waited]) -> Vec<f64> {
    found.iter().map(|it| it.waited_cycles / it.latency_cycles).collect()
}

/// The same where each operand's accesses are served like this.
fn parts(
    code: &[u8],
    accesses: &[(u64, u8, AccessKind, u64)],
    served: &[Served],
    core: CoreLimits,
) -> Vec<f64> {
    parts_of(&found(code, accesses, served, core, (0, 0)))
}

/// An access: where its instruction is, which of its operands, what it does, its address.
pub(super) type Access = (u64, u8, AccessKind, u64);

/// What is found of each operand whose accesses are served like this, in code in which a loop that touches no memory, there, goes round so
/// many times behind each access of the first instruction.
fn found(
    code: &[u8],
    accesses: &[Access],
    served: &[Served],
    core: CoreLimits,
    in_loop: (u64, usize),
) -> Vec<Waited> {
    let code = Code { architecture: Architecture::X86_64, start: 0x1000, bytes: code };
    let found = found_in(code, accesses, served, core, in_loop);
    (0..found.operands.len() as u32).map(|it| found.operands[&it]).collect()
}

/// The same in code of any architecture, operands by number, which rises with their instructions' addresses.
pub(super) fn found_in(
    code: Code<'_>,
    accesses: &[Access],
    served: &[Served],
    core: CoreLimits,
    (in_loop, rounds): (u64, usize),
) -> Waits {
    let numbers: Vec<(u64, u8)> = {
        let mut all: Vec<_> = accesses.iter().map(|&(at, operand, ..)| (at, operand)).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let mut windows = Windows::new(100);
    for window in accesses.chunks(1000) {
        let references: Vec<Reference> = window
            .iter()
            .map(|&(at, operand, kind, address)| {
                let instruction = numbers.binary_search(&(at, operand)).expect("in it") as u32;
                Reference { address, instruction, owner: 0, size: 8, kind }
            })
            .collect();
        // What jumps lead to begins a block: here the first instruction.
        let begins = |(at, _): &(usize, &(u64, u8, AccessKind, u64))| window[*at].0 == 0x1000;
        let blocks: Vec<(u32, u64)> = window
            .iter()
            .enumerate()
            .filter(begins)
            .flat_map(|(at, _)| {
                let round = (at as u32 + 1, in_loop);
                std::iter::once((at as u32, 0x1000)).chain(std::iter::repeat_n(round, rounds))
            })
            .collect();
        windows.feed(&references, &blocks, None, |svma| Place { module: 0, svma });
    }
    let operand = |(at, &(svma, operand)): (usize, &(u64, u8))| {
        (at as u32, Operand { place: Place { module: 0, svma }, operand, served: served[at].clone() })
    };
    let operands = numbers.iter().enumerate().map(operand).collect();
    waits(&windows, core, &operands, &|_: Place| Some(code))
}

pub(super) fn always(cycles: f64) -> Served {
    Served {
        hit_cycles: 4.0,
        prefetched_cycles: None,
        misses: vec![Service { share: 1.0, cycles, source: Source::Memory, ..Service::default() }],
    }
}

pub(super) fn is_near(value: f64, expected: f64) -> bool {
    (value / expected - 1.0).abs() < 0.05
}

pub(super) fn loads(at: u64, count: u64) -> Vec<(u64, u8, AccessKind, u64)> {
    (0..count).map(|n| (at, 0, AccessKind::Load, n << 12)).collect()
}

#[test]
fn along_a_list_each_access_is_waited_for() {
    // mov rdi, [rdi] ; test rdi, rdi ; jne
    let code = [0x48, 0x8b, 0x3f, 0x48, 0x85, 0xff, 0x75, 0xf8];
    let parts = parts(&code, &loads(0x1000, 5000), &[always(300.0)], CORE);
    assert!(is_near(parts[0], 1.0), "{parts:?}");
}

#[test]
fn along_a_list_translation_is_waited_for_too() {
    let code = [0x48, 0x8b, 0x3f, 0x48, 0x85, 0xff, 0x75, 0xf8];
    let mut translated = always(300.0);
    translated.misses[0].translation_cycles = 100.0;
    let waited = found(&code, &loads(0x1000, 5000), &[translated], CORE, (0, 0))[0];
    assert!(is_near(waited.translation_waited_cycles, waited.waited_cycles / 3.0), "{waited:?}");
    assert!(is_near(waited.translation_cycles, waited.latency_cycles / 3.0), "{waited:?}");
}

#[test]
fn hits_that_another_chain_hides_cost_nothing() {
    // mov rcx, [rax] ; add rax, 8 ; cmp rax, rdx ; jne: an iteration a cycle, whatever the load takes
    let code = [0x48, 0x8b, 0x08, 0x48, 0x83, 0xc0, 8, 0x48, 0x39, 0xd0, 0x75, 0xf4];
    let hits = [Served { hit_cycles: 4.0, prefetched_cycles: None, misses: Vec::new() }];
    let accesses: Vec<_> = (0..5000).map(|n| (0x1000, 0, AccessKind::Load, n << 3)).collect();
    let hidden = parts(&code, &accesses, &hits, CoreLimits { width: 6, ..CORE });
    assert!(hidden[0] < 0.01, "{hidden:?}");
    // mov rax, [rax] ; cmp rax, rdx ; jne: a list that the first level has.
    let code = [0x48, 0x8b, 0x00, 0x48, 0x39, 0xd0, 0x75, 0xf8];
    let list = parts(&code, &accesses, &hits, CoreLimits { width: 6, ..CORE });
    // Three instructions are half a cycle without it.
    assert!(is_near(list[0], 3.5 / 4.0), "{list:?}");
}

#[test]
fn independent_misses_share_their_latency() {
    // mov rax, [rdi] ; add rdi, 4096 ; cmp rdi, rsi ; jne: 4 instructions for a load
    let code = [0x48, 0x8b, 0x07, 0x48, 0x81, 0xc7, 0, 0x10, 0, 0, 0x48, 0x39, 0xf7, 0x75, 0xf1];
    let all = |core| parts(&code, &loads(0x1000, 5000), &[always(300.0)], core)[0];
    // As many as there are places for lines …
    let by_places = all(CORE);
    assert!(is_near(by_places, 0.1), "{by_places}");
    // … which none has while its address is translated: 300 of 500 cycles …
    let mut translated = always(500.0);
    translated.misses[0].translation_cycles = 200.0;
    let by_places = found(&code, &loads(0x1000, 5000), &[translated], CORE, (0, 0))[0];
    assert!(is_near(by_places.waited_cycles / by_places.latency_cycles, 0.06), "{by_places:?}");
    assert!(by_places.translation_waited_cycles < 0.01 * by_places.waited_cycles, "{by_places:?}");
    // … or loads in the window: 20 instructions are 5 of them …
    let by_window = all(CoreLimits { window: 20, ..CORE });
    assert!(is_near(by_window, 0.2), "{by_window}");
    // … or lines that memory delivers: one in 60 cycles.
    let by_memory =
        all(CoreLimits { lines: LineRates { from_memory: 60.0, ..LineRates::default() }, ..CORE });
    assert!(is_near(by_memory, 0.2), "{by_memory}");
    // Of pairs of lines those of which one is used take longer, and the others no longer than in order.
    let of = |step, from_memory, from_memory_alone| {
        let lines = LineRates { from_memory, from_memory_alone, ..LineRates::default() };
        let accesses: Vec<_> = (0..5000_u64).map(|n| (0x1000, 0, AccessKind::Load, n * step)).collect();
        parts(&code, &accesses, &[always(300.0)], CoreLimits { lines, ..CORE })[0]
    };
    assert!(is_near(of(128, 30.0, 60.0), of(128, 60.0, 0.0)), "alone");
    assert!((of(64, 30.0, 50.0) / of(64, 30.0, 0.0) - 1.0).abs() < 0.05, "in order");
}

#[test]
fn loops_that_touch_nothing_take_room_with_each_round() {
    // 1000: mov rax, [rdi] ; xor rbx, rax ; 1006: imul rbx, rbx ; dec ecx ; jne 1006 ; add rdi, 4096 ; jmp 1000
    let code = [
        0x48, 0x8b, 0x07, 0x48, 0x31, 0xc3, 0x48, 0x0f, 0xaf, 0xdb, 0xff, 0xc9, 0x75, 0xf8, 0x48, 0x81, 0xc7,
        0, 0x10, 0, 0, 0xeb, 0xe9,
    ];
    let of = |rounds| {
        let core = CoreLimits { window: 120, scheduled: 1000, ..CORE };
        parts_of(&found(&code, &loads(0x1000, 5000), &[always(300.0)], core, (0x1006, rounds)))[0]
    };
    // Seven instructions for a load: as many as there are places for lines.
    let one = of(1);
    assert!((0.08..0.11).contains(&one), "{one}");
    // 34 of them: three to four, less what the multiplications take by themselves.
    let ten = of(10);
    assert!((0.16..0.2).contains(&ten), "{ten}");
}

#[test]
fn what_waits_in_a_small_scheduler_holds_up_loads_behind() {
    // mov rax, [rdi] ; xor rbx, rax ; 8 imul rbx, rbx ; add rdi, 4096 ; jmp
    let mut code = vec![0x48, 0x8b, 0x07, 0x48, 0x31, 0xc3];
    (0..8).for_each(|_| code.extend([0x48, 0x0f, 0xaf, 0xdb]));
    code.extend([0x48, 0x81, 0xc7, 0, 0x10, 0, 0, 0xeb, 0xd1]);
    let of = |schedulers| {
        let core = CoreLimits { scheduled: 1000, schedulers, ..CORE };
        parts(&code, &loads(0x1000, 5000), &[always(300.0)], core)[0]
    };
    let none = Schedulers::default();
    // Ten lines at a time are 30 cycles each, and 25 go by anyway.
    assert!(of(none) < 0.03, "{}", of(none));
    // Three loads with their multiplications, and a fourth whose multiplications go on: 75 to 100.
    let few = of(Schedulers { multiply: 24, ..none });
    assert!((0.16..0.25).contains(&few), "{few}");
    // They are integers', too, and nobody else's.
    let integers = of(Schedulers { integer: 24, ..none });
    assert!((few..0.3).contains(&integers), "{integers}");
    assert_eq!(of(Schedulers { integer: 240, vector: 4, address: 4, ..none }), of(none));
}

#[test]
fn lines_of_one_set_come_one_behind_the_other() {
    // mov rax, [rdi] ; add rdi, 4096 ; cmp rdi, rsi ; jne
    let code = [0x48, 0x8b, 0x07, 0x48, 0x81, 0xc7, 0, 0x10, 0, 0, 0x48, 0x39, 0xf7, 0x75, 0xf1];
    let lines = LineRates { into_set_by_load: 60.0, ..LineRates::default() };
    let core = CoreLimits { lines, ..CORE };
    let in_one = parts(&code, &loads(0x1000, 5000), &[always(300.0)], core)[0];
    assert!(is_near(in_one, 0.2), "{in_one}");
    let padded: Vec<_> = (0..5000).map(|n| (0x1000, 0, AccessKind::Load, n * 4160)).collect();
    let in_many = parts(&code, &padded, &[always(300.0)], core)[0];
    assert!(is_near(in_many, 0.1), "{in_many}");
}

#[test]
fn a_line_that_is_stored_to_after_its_load_comes_twice_where_its_set_is_crowded() {
    // mov rax, [rdi] ; mov [rdi], rax ; add rdi, 4096 ; jmp
    let code = [0x48, 0x8b, 0x07, 0x48, 0x89, 0x07, 0x48, 0x81, 0xc7, 0, 0x10, 0, 0, 0xeb, 0xf1];
    let lines = LineRates { into_set_by_load: 10.0, into_set_by_both: 45.0, ..LineRates::default() };
    let core = CoreLimits { lines, ..CORE };
    let hits = Served { hit_cycles: 4.0, prefetched_cycles: None, misses: Vec::new() };
    let of = |stride: u64, core| {
        let once = |n: u64| {
            let at = n * stride;
            [(0x1000, 0, AccessKind::Load, at), (0x1003, 0, AccessKind::Store, at)]
        };
        let accesses: Vec<_> = (0..2500).flat_map(once).collect();
        let parts = parts(&code, &accesses, &[always(14.0), hits.clone()], core);
        14.0 * parts[0] + 4.0 * parts[1]
    };
    // 45 cycles less one of four instructions; of loads alone 10.
    let in_one = of(4096, core);
    assert!((42.0..46.0).contains(&in_one), "{in_one}");
    // Through two sets in turn half of that each.
    let in_two = of(2048, core);
    assert!((20.0..23.0).contains(&in_two), "{in_two}");
    let in_all = of(4160, core);
    assert!(in_all < 4.0, "{in_all}");
    let unknown = of(4096, CoreLimits { lines: LineRates { into_set_by_both: 0.0, ..lines }, ..CORE });
    assert!((8.0..11.0).contains(&unknown), "{unknown}");
}

#[test]
fn an_index_that_hits_makes_no_chain_and_one_that_misses_does() {
    // mov rax, [rdi] ; mov rbx, [rsi+rax*8] ; add rdi, 8 ; cmp rdi, rdx ; jne
    let code = [0x48, 0x8b, 0x07, 0x48, 0x8b, 0x1c, 0xc6, 0x48, 0x83, 0xc7, 8, 0x48, 0x39, 0xd7, 0x75, 0xf0];
    let accesses: Vec<_> = (0..5000_u64)
        .flat_map(|n| {
            [(0x1000, 0, AccessKind::Load, n << 12), (0x1003, 0, AccessKind::Load, 1 << 40 | n << 12)]
        })
        .collect();
    let hits = Served { hit_cycles: 4.0, prefetched_cycles: None, misses: Vec::new() };
    let gathered = parts(&code, &accesses, &[hits, always(300.0)], CORE);
    assert!(gathered[0] < 0.05 && (0.09..0.11).contains(&gathered[1]), "{gathered:?}");
    // Twenty misses for ten places; both kinds wait, together as long as both need them.
    let both = parts(&code, &accesses, &[always(300.0), always(300.0)], CORE);
    assert!(is_near(both[0] + both[1], 0.2), "{both:?}");
}

/// The part of a load's latency that is waited for, where a branch over some code depends on it. `stores`: where that code has its
/// store, and where one is behind it.
fn part_with_a_branch(code: &[u8], stores: [u64; 2], goes: &dyn Fn(u64) -> bool) -> f64 {
    let hits = Served { hit_cycles: 4.0, prefetched_cycles: None, misses: Vec::new() };
    let served = [always(300.0), hits.clone(), hits];
    let once = |n: u64| {
        let load = (0x1000, 0, AccessKind::Load, n << 12);
        let [store, last] = stores.map(|at| (at, 0, AccessKind::Store, 8));
        [Some(load), goes(n).then_some(store), Some(last)]
    };
    let accesses: Vec<_> = (0..5000).flat_map(once).flatten().collect();
    parts(code, &accesses, &served, CORE)[0]
}

fn by_chance(n: u64) -> bool {
    (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).count_ones().is_multiple_of(2)
}

#[test]
fn a_branch_that_nobody_can_guess_ends_the_overlap_of_what_depends_on_it() {
    // cmp qword [rdi], 0 ; je 100d ; mov [rdx], rax ; add rdi, 8 ; 100d: mov [rcx], rax ; add rdi, 8 ; jmp 1000
    let code = [
        0x48, 0x83, 0x3f, 0, 0x74, 7, 0x48, 0x89, 0x02, 0x48, 0x83, 0xc7, 8, 0x48, 0x89, 0x01, 0x48, 0x83,
        0xc7, 8, 0xeb, 0xea,
    ];
    let part = |goes: &dyn Fn(u64) -> bool| part_with_a_branch(&code, [0x1006, 0x100d], goes);
    let guessed = part(&|n| n % 2 == 0);
    assert!((0.09..0.11).contains(&guessed), "{guessed}");
    // Half of the guesses are wrong: up to the next such one the misses go together, two of them on average.
    let unknown = part(&by_chance);
    assert!((0.45..0.6).contains(&unknown), "{unknown}");
}

#[test]
fn what_goes_on_whichever_way_is_asked_for_before_the_branch_is_known() {
    // cmp qword [rdi], 0 ; je 1009 ; mov [rdx], rax ; 1009: mov [rcx], rax ; add rdi, 8 ; jmp 1000
    let code =
        [0x48, 0x83, 0x3f, 0, 0x74, 3, 0x48, 0x89, 0x02, 0x48, 0x89, 0x01, 0x48, 0x83, 0xc7, 8, 0xeb, 0xee];
    let part = |goes: &dyn Fn(u64) -> bool| part_with_a_branch(&code, [0x1006, 0x1009], goes);
    let (guessed, unknown) = (part(&|n| n % 2 == 0), part(&by_chance));
    assert!((0.09..0.11).contains(&guessed), "{guessed}");
    // Wrong guesses take their time without misses, too, which hides some of these.
    assert!((0.05..0.11).contains(&unknown), "{unknown}");
}

#[test]
fn copies_by_string_instructions_leave_room_for_few() {
    // mov rcx, [rdx] ; rep movsq ; add rsi, 4096 ; jmp
    let code = [0x48, 0x8b, 0x0a, 0xf3, 0x48, 0xa5, 0x48, 0x81, 0xc6, 0, 0x10, 0, 0, 0xeb, 0xf1];
    let hits = Served { hit_cycles: 4.0, prefetched_cycles: None, misses: Vec::new() };
    // The instruction's load and store of each line, of so many.
    let part = |lines: u64| {
        let of_line = move |n: u64, line: u64| {
            let from = n << 12 | line << 6;
            [(0x1003, 0, AccessKind::Load, from), (0x1003, 1, AccessKind::Store, 1 << 40 | line << 6)]
        };
        let accesses: Vec<_> = (0..2000_u64)
            .flat_map(|n| {
                let lines = (0..lines).flat_map(move |line| of_line(n, line));
                std::iter::once((0x1000, 0, AccessKind::Load, 8)).chain(lines)
            })
            .collect();
        parts(&code, &accesses, &[hits.clone(), always(300.0), hits.clone()], CORE)[1]
    };
    // Of 240 instructions 144 are one copy's: 1.7 at a time take 300 cycles, 35 each of which they would take anyway.
    let of_one = part(1);
    assert!((0.38..0.5).contains(&of_one), "{of_one}");
    // The lines of one copy come together.
    let of_four = part(4);
    assert!((0.25 * of_one - of_four).abs() < 0.04, "{of_four} {of_one}");
}

#[test]
fn stores_wait_for_nobody_until_their_buffer_is_full() {
    // mov [rdi], rax ; add rdi, 8 ; jmp
    let code = [0x48, 0x89, 0x07, 0x48, 0x83, 0xc7, 8, 0xeb, 0xf7];
    let every =
        |bytes: u64| -> Vec<_> { (0..5000).map(|n| (0x1000, 0, AccessKind::Store, n * bytes)).collect() };
    // One line in ten, in time behind 48 stores.
    let seldom = Served {
        hit_cycles: 4.0,
        prefetched_cycles: None,
        misses: vec![Service { share: 0.125, cycles: 14.0, ..Service::default() }],
    };
    let seldom = parts(&code, &every(8), &[seldom], CORE);
    assert!(seldom[0] < 0.05, "{seldom:?}");
    // Each store another line: as many at a time as there are places.
    let often = parts(&code, &every(4096), &[always(300.0)], CORE);
    assert!(is_near(often[0], 0.1), "{often:?}");
}

#[test]
fn loads_between_stores_that_all_wait_for_are_not_to_blame() {
    // mov rax, [rdi] ; mov [rdx], rax ; add rdi, 8 ; add rdx, 4096 ; jmp
    let code = [
        0x48, 0x8b, 0x07, 0x48, 0x89, 0x02, 0x48, 0x83, 0xc7, 8, 0x48, 0x81, 0xc2, 0, 0x10, 0, 0, 0xeb, 0xed,
    ];
    let accesses: Vec<_> = (0..2500_u64)
        .flat_map(|n| {
            [(0x1000, 0, AccessKind::Load, n << 3), (0x1003, 0, AccessKind::Store, 1 << 40 | n << 12)]
        })
        .collect();
    let lines = LineRates { into_set_by_store: 28.0, ..LineRates::default() };
    let hits = Served { hit_cycles: 4.0, prefetched_cycles: None, misses: Vec::new() };
    let parts = parts(&code, &accesses, &[hits, always(14.0)], CoreLimits { lines, ..CORE });
    // 28 cycles of a latency of 14, some of them for instructions.
    assert!(parts[0].abs() < 0.05 && (1.7..2.0).contains(&parts[1]), "{parts:?}");
}

//! Loops as compilers make them, assembled by hand.

use crate::{Function, Pattern, Plan, Refusal, jumps, plan};

const START: u64 = 0x1000;

/// Plans for the instruction at an offset.
fn planned(code: &[u8], target: u64) -> Plan {
    let all = jumps(START, code);
    match Function::new(&[(START, code)], &all) {
        Ok(function) => plan(&function, &[START + target], &all),
        Err(refusal) => Plan { detours: Vec::new(), refused: vec![(START + target, refusal)] },
    }
}

fn refusal(code: &[u8], target: u64) -> Refusal {
    let plan = planned(code, target);
    assert!(plan.detours.is_empty(), "{plan:?}");
    plan.refused[0].1.clone()
}

/// gcc -O2 of `sum += a[index[i]]`:
/// mov edx,[rax]; add rax,4; addsd xmm0,[rsi+rdx*8]; cmp rcx,rax; jne; ret
const GATHER: [u8; 17] =
    [0x8b, 0x10, 0x48, 0x83, 0xc0, 0x04, 0xf2, 0x0f, 0x58, 0x04, 0xd6, 0x48, 0x39, 0xc1, 0x75, 0xf0, 0xc3];

#[test]
fn a_gather_is_indirect_and_its_index_strided() {
    let plan = planned(&GATHER, 6);
    let [detour] = plan.detours.as_slice() else { panic!("{plan:?}") };
    let Pattern::Indirect { roots } = &detour.prefetches[0].pattern else { panic!("{detour:?}") };
    assert_eq!(roots, &[START]);
    assert_eq!(detour.max_distance, 512, "half a page of 4 bytes a step");
    // cmp and jne are the five bytes that can neither fault nor need flags before them.
    assert_eq!((detour.address, detour.displaced.as_slice()), (START + 11, &GATHER[11..16]));
    let plan = planned(&GATHER, 0);
    assert_eq!(plan.detours[0].prefetches[0].pattern, Pattern::Strided { step_bytes: 4 });
    assert_eq!(plan.detours[0].saved, 0);
}

#[test]
fn the_code_of_a_gather_is_as_expected() {
    let plan = planned(&GATHER, 6);
    let moved = plan.detours[0].encode(16, 0x20_0000).expect("encodes");
    let mut decoder = iced_x86::Decoder::with_ip(64, &moved.bytes, 0x20_0000, iced_x86::DecoderOptions::NONE);
    let all: Vec<_> = decoder.iter().collect();
    let mnemonics: Vec<_> = all.iter().map(iced_x86::Instruction::mnemonic).collect();
    use iced_x86::Mnemonic::*;
    let middle = mnemonics.iter().position(|&mnemonic| mnemonic == Prefetcht0).expect("a prefetch");
    assert_eq!(mnemonics[middle - 5..=middle], [Lea, Lea, And, And, Mov, Prefetcht0]);
    // The pointer has moved on by one element already: the address that the program has read is 4 bytes lower.
    assert_eq!(all[middle - 5].memory_displacement64() as i64, -4);
    assert_eq!(all[middle - 4].memory_displacement64(), 64);
    assert_eq!(all[middle - 3].immediate(1) as i64, -4096);
    assert_eq!(all[middle - 2].immediate(1), 0xffc, "aligned: no load crosses a page");
    // The jump back into the loop and the one behind it.
    assert_eq!(moved.relocations.len(), 2);
    let targets: Vec<u64> = all
        .iter()
        .filter(|one| one.mnemonic() != Prefetcht0)
        .filter(|one| one.is_jcc_short_or_near() || one.mnemonic() == Jmp)
        .map(|one| one.near_branch_target())
        .collect();
    assert_eq!(targets, [START, START + 16]);
}

#[test]
fn a_hash_of_a_key_is_repeated() {
    // mov rdx,[rdi+rax*8]; imul rdx,rdx,0x9e3779b1; shr rdx,40; mov rcx,[rsi+rdx*8]; add r8,rcx; inc rax; cmp rax,r9; jne; ret
    let code = [
        0x48, 0x8b, 0x14, 0xc7, 0x48, 0x69, 0xd2, 0xb1, 0x79, 0x37, 0x1e, 0x48, 0xc1, 0xea, 0x28, 0x48, 0x8b,
        0x0c, 0xd6, 0x49, 0x01, 0xc8, 0x48, 0xff, 0xc0, 0x4c, 0x39, 0xc8, 0x75, 0xe2, 0xc3,
    ];
    let plan = planned(&code, 15);
    let Pattern::Indirect { roots } = &plan.detours[0].prefetches[0].pattern else { panic!("{plan:?}") };
    assert_eq!(roots, &[START]);
}

#[test]
fn a_chain_of_pointers_is_refused() {
    // mov rax,[rax]; add rdx,[rax+8]; test rax,rax; jne; ret
    let code = [0x48, 0x8b, 0x00, 0x48, 0x03, 0x50, 0x08, 0x48, 0x85, 0xc0, 0x75, 0xf4, 0xc3];
    assert_eq!(refusal(&code, 3), Refusal::Recurrence);
    assert_eq!(refusal(&code, 0), Refusal::Recurrence);
}

#[test]
fn two_dependent_loads_are_refused() {
    // mov edx,[rax]; add rax,4; mov edx,[rsi+rdx*4]; mov r8,[rdi+rdx*8]; cmp rcx,rax; jne; ret
    let code = [
        0x8b, 0x10, 0x48, 0x83, 0xc0, 0x04, 0x8b, 0x14, 0x96, 0x4c, 0x8b, 0x04, 0xd7, 0x48, 0x39, 0xc1, 0x75,
        0xee, 0xc3,
    ];
    assert_eq!(refusal(&code, 9), Refusal::DependentLoad);
    assert_eq!(planned(&code, 6).detours.len(), 1, "the first of them is fine");
}

#[test]
fn an_unknown_jump_is_refused() {
    let mut code = GATHER.to_vec();
    // jmp rax
    code.splice(16.., [0xff, 0xe0]);
    assert_eq!(refusal(&code, 6), Refusal::IndirectJump);
}

#[test]
fn a_jump_from_elsewhere_is_refused() {
    let mut all = jumps(START, &GATHER);
    all.push(crate::Jump { to: START + 6, from: 0x5000 });
    all.sort_unstable();
    let refused = Function::new(&[(START, &GATHER)], &all).expect_err("entered in its middle");
    assert_eq!(refused, Refusal::EnteredElsewhere);
}

#[test]
fn a_jump_into_the_middle_keeps_the_detour_away() {
    // mov edx,[rax]; add rax,4; test r8,r8; je +3; inc r8; addsd xmm0,[rsi+rdx*8]; cmp rcx,rax; jne; ret
    let code = [
        0x8b, 0x10, 0x48, 0x83, 0xc0, 0x04, 0x4d, 0x85, 0xc0, 0x74, 0x03, 0x49, 0xff, 0xc0, 0xf2, 0x0f, 0x58,
        0x04, 0xd6, 0x48, 0x39, 0xc1, 0x75, 0xe8, 0xc3,
    ];
    let plan = planned(&code, 14);
    let detour = &plan.detours[0];
    // In the block of the index, which the jump ends; never over the place where it goes.
    assert!(detour.address + detour.displaced.len() as u64 <= START + 11, "{detour:?}");
}

#[test]
fn no_call_is_between_a_load_and_its_look_ahead() {
    // mov ebx,[r12]; add r12,4; call +0; mov rax,[rbp+rbx*8]; cmp r12,r13; jne; ret
    let code = [
        0x41, 0x8b, 0x1c, 0x24, 0x49, 0x83, 0xc4, 0x04, 0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x44, 0xdd, 0x00, 0x4d,
        0x39, 0xec, 0x75, 0xe9, 0xc3,
    ];
    let plan = planned(&code, 13);
    if let Some(detour) = plan.detours.first() {
        assert!(detour.address + detour.displaced.len() as u64 <= START + 8, "{detour:?}");
    }
}

#[test]
fn the_same_address_each_time_is_refused() {
    // mov rdx,[rsi]; add rax,rdx; dec rcx; jne; ret
    let code = [0x48, 0x8b, 0x16, 0x48, 0x01, 0xd0, 0x48, 0xff, 0xc9, 0x75, 0xf5, 0xc3];
    assert_eq!(refusal(&code, 0), Refusal::Invariant);
}

#[test]
fn bytes_that_are_no_code_are_refused() {
    let mut code = GATHER.to_vec();
    code.extend([0x06, 0x06]);
    assert_eq!(refusal(&code, 6), Refusal::NotCode);
}

#[test]
fn the_first_probe_of_an_inner_loop_is_prefetched() {
    // outer: mov rdx,[rdi+rax*8]; and edx,255; inner: mov rcx,[rsi+rdx*8]; inc rdx; test rcx,rcx; jne inner; inc rax;
    // cmp rax,r9; jne outer; ret
    let code = [
        0x48, 0x8b, 0x14, 0xc7, 0x81, 0xe2, 0xff, 0, 0, 0, 0x48, 0x8b, 0x0c, 0xd6, 0x48, 0xff, 0xc2, 0x48,
        0x85, 0xc9, 0x75, 0xf4, 0x48, 0xff, 0xc0, 0x4c, 0x39, 0xc8, 0x75, 0xe2, 0xc3,
    ];
    let plan = planned(&code, 10);
    let [detour] = plan.detours.as_slice() else { panic!("{plan:?}") };
    assert_eq!(
        detour.prefetches[0].loop_start, START,
        "of the outer loop: in the inner one it is only a stride"
    );
    assert!(matches!(&detour.prefetches[0].pattern, Pattern::Indirect { roots } if roots == &[START]));
}

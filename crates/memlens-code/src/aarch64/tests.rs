//! Code is assembled with GNU as; the comment beside each word is its disassembly.

use crate::{
    Architecture, Base, ControlFlow, Destination, FunctionCode, IndexExtension, Loops, MemoryOperand, Origin,
    Register, SampleSkid, Target, WaitingAccess, Waits, calls_alike, linkage_cell, result_destinations,
    returns_first_argument, slot_destinations,
};

const START: u64 = 0x1000;

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn code(words: &[u32]) -> FunctionCode {
    FunctionCode::new(Architecture::AArch64, &bytes(words), START)
}

fn waits(code: &FunctionCode, pc: u64) -> Waits {
    code.waits_for(pc, SampleSkid::default())
}

fn access(code: &FunctionCode, pc: u64) -> WaitingAccess {
    waits(code, pc).access().expect("an access")
}

fn registers(values: &[(u16, u64)]) -> impl Fn(Register) -> Option<u64> {
    move |register| values.iter().find(|value| value.0 == register.0).map(|value| value.1)
}

fn only(code: &FunctionCode, pc: u64) -> MemoryOperand {
    let operands = code.operands(pc);
    assert_eq!(operands.len(), 1, "{operands:?}");
    operands[0]
}

/// As compilers have `sum += value[at] * vector[*column++]`, with an `int` index.
const GATHER: [u32; 8] = [
    0xb840_4423, // 1000 ldr w3, [x1], #4
    0xfc60_7841, // 1004 ldr d1, [x2, x0, lsl #3]
    0xfc63_d8a0, // 1008 ldr d0, [x5, w3, sxtw #3]
    0x9100_0400, // 100c add x0, x0, #0x1
    0x1f41_0802, // 1010 fmadd d2, d0, d1, d2
    0xeb04_001f, // 1014 cmp x0, x4
    0x54ff_ff41, // 1018 b.ne 1000
    0xd65f_03c0, // 101c ret
];

#[test]
fn the_loads_of_a_gather() {
    let code = code(&GATHER);
    // Behind a load that advances its pointer, that is four bytes further.
    let index = access(&code, 0x1004);
    assert_eq!((index.operand.pc, index.operand.size_bytes, index.base_change), (0x1000, 4, Some(-4)));
    assert_eq!(index.address(registers(&[(1, 0x5004)])), Some(0x5000));
    let row = access(&code, 0x1008);
    assert_eq!((row.operand.pc, row.operand.address.scale), (0x1004, 8));
    assert_eq!(row.address(registers(&[(2, 0x6000), (0, 3)])), Some(0x6018));
    // An index of 32 bits: −2, whatever lies in the upper half.
    let gather = access(&code, 0x100c);
    assert_eq!(gather.operand.address.index_extension, IndexExtension::Signed32);
    assert_eq!(gather.address(registers(&[(5, 0x7010), (3, 0xffff_fffe)])), Some(0x7000));
    assert_eq!(gather.address(registers(&[(5, 0x7010), (3, 0x5_ffff_fffe)])), Some(0x7000));
    // What was added to the index since is taken back.
    let skid = SampleSkid { loads: 3, stores: 1 };
    let late = code.waits_for(0x1010, skid).access().expect("a load");
    assert_eq!((late.operand.pc, late.index_change), (0x1004, Some(-1)));
    assert_eq!(waits(&code, 0x1010), Waits::Computation);
    // The loop's begin comes behind its end.
    assert_eq!(waits(&code, 0x1000), Waits::Transfer);
    assert_eq!(waits(&code, 0x1002), Waits::NoCode);
    assert_eq!(code.instruction_around(0x1007), Some(0x1004));
}

#[test]
fn a_pair_of_a_list_goes_on_through_its_first() {
    let code = code(&[
        0xa940_0400, // 1000 ldp x0, x1, [x0]
        0x8b01_0042, // 1004 add x2, x2, x1
        0xb5ff_ffc0, // 1008 cbnz x0, 1000
    ]);
    let found = access(&code, 0x1004);
    assert_eq!((found.operand.size_bytes, found.base_change, found.is_chase), (16, None, true));
    assert_eq!(found.next_in_chase(registers(&[(0, 0x5000)])), Some(0x5000));
}

#[test]
fn an_address_that_is_lost_was_a_sum() {
    let code = code(&[
        0x8b22_4c23, // 1000 add x3, x1, w2, uxtw #3
        0xf940_0463, // 1004 ldr x3, [x3, #8]
        0xd503_201f, // 1008 nop
    ]);
    let found = access(&code, 0x1008);
    assert_eq!(found.address(registers(&[(1, 0x5000), (2, 0x1_0000_0002)])), Some(0x5018));
}

#[test]
fn of_an_index_that_is_lost_the_object_is_known() {
    let code = code(&[
        0xb862_5822, // 1000 ldr w2, [x1, w2, uxtw #2]
        0xd503_201f, // 1004 nop
    ]);
    let found = access(&code, 0x1004);
    assert_eq!(found.address(|_| Some(0)), None);
    assert_eq!(found.address_in_object(registers(&[(1, 0x5000)])), Some(0x5000));
}

#[test]
fn additions_of_32_bits_count_where_the_index_has_no_more() {
    let code = code(&[
        0xb862_d820, // 1000 ldr w0, [x1, w2, sxtw #2]
        0x1100_0442, // 1004 add w2, w2, #0x1
        0xd503_201f, // 1008 nop
    ]);
    let skid = SampleSkid { loads: 2, stores: 1 };
    let found = code.waits_for(0x1008, skid).access().expect("a load");
    // From −1 to 0.
    assert_eq!(found.address(registers(&[(1, 0x5004), (2, 0)])), Some(0x5000));
}

#[test]
fn pages_and_what_is_in_them_are_fixed_addresses() {
    let code = code(&[
        0xd000_0001, // 1000 adrp x1, 3000
        0xf940_1421, // 1004 ldr x1, [x1, #40]
        0xb940_0020, // 1008 ldr w0, [x1]
        0xd503_201f, // 100c nop
    ]);
    // Though the page is overwritten by what it leads to.
    let found = access(&code, 0x1008);
    assert!(found.operand.address.is_svma());
    assert_eq!(found.address(|_| None), Some(0x3028));
    let mut known = |_: u64, _: Register| None::<()>;
    let Some(Origin::Loaded { pc: 0x1004, address, base: None }) =
        code.origin(0x1008, Register(1), &mut known)
    else {
        panic!("loaded from a fixed address");
    };
    assert_eq!(address.disp, 0x3028);
}

#[test]
fn what_ways_do_not_agree_on_is_not_fixed() {
    let code = code(&[
        0x3400_0080, // 1000 cbz w0, 1010
        0xd000_0001, // 1004 adrp x1, 3000
        0x9100_4021, // 1008 add x1, x1, #0x10
        0x1400_0002, // 100c b 1014
        0xf000_0001, // 1010 adrp x1, 4000
        0xb940_0020, // 1014 ldr w0, [x1]
        0xb840_4420, // 1018 ldr w0, [x1], #4
        0xd503_201f, // 101c nop
    ]);
    assert_eq!(only(&code, 0x1014).address.base, Some(Register(1)));
    // A pointer that goes on in a loop is not fixed either.
    let looped = self::code(&[
        0xd000_0001, // 1000 adrp x1, 3000
        0xb840_4420, // 1004 ldr w0, [x1], #4
        0x35ff_ffe0, // 1008 cbnz w0, 1004
    ]);
    assert_eq!(only(&looped, 0x1004).address.base, Some(Register(1)));
}

#[test]
fn thread_local_variables() {
    let code = code(&[
        0xd53b_d040, // 1000 mrs x0, tpidr_el0
        0x9140_0000, // 1004 add x0, x0, #0x0, lsl #12
        0x9100_6000, // 1008 add x0, x0, #0x18
        0xb940_0001, // 100c ldr w1, [x0]
        0xb822_7801, // 1010 str w1, [x0, x2, lsl #2]
        0xd65f_03c0, // 1014 ret
    ]);
    let load = access(&code, 0x1010);
    assert!(load.operand.address.is_thread_local);
    assert_eq!(load.from_thread_pointer(|_| None), Some(0x18));
    let store = access(&code, 0x1014);
    assert_eq!(store.from_thread_pointer(registers(&[(2, 2)])), Some(0x20));
}

#[test]
fn what_is_pushed_and_popped() {
    let code = code(&[
        0xf81f_0fe0, // 1000 str x0, [sp, #-16]!
        0xf841_07e1, // 1004 ldr x1, [sp], #16
        0xa9be_7bfd, // 1008 stp x29, x30, [sp, #-32]!
        0xd503_201f, // 100c nop
    ]);
    let at = |pc, sp: u64| access(&code, pc).address(registers(&[(31, sp)]));
    assert_eq!(
        (at(0x1004, 0x7ff0), at(0x1008, 0x8000), at(0x100c, 0x7fe0)),
        (Some(0x7ff0), Some(0x7ff0), Some(0x7fe0))
    );
}

#[test]
fn what_instructions_touch() {
    let words = [
        0x8803_7c41, // 1000 stxr w3, w1, [x2]
        0xc85f_fc41, // 1004 ldaxr x1, [x2]
        0xb8e1_0043, // 1008 ldaddal w1, w3, [x2]
        0xc8a1_7c43, // 100c cas x1, x3, [x2]
        0x4c40_0860, // 1010 ld4 {v0.4s-v3.4s}, [x3]
        0x4c9f_7861, // 1014 st1 {v1.4s}, [x3], #16
        0x3ce1_7840, // 1018 ldr q0, [x2, x1, lsl #4]
        0xd50b_7425, // 101c dc zva, x5
        0xf980_0020, // 1020 prfm pldl1keep, [x1]
        0x5800_0041, // 1024 ldr x1, 102c
        0x6940_8841, // 1028 ldpsw x1, x2, [x2, #4]
    ];
    let code = code(&words);
    let found: Vec<_> = (0..words.len() as u64)
        .filter_map(|at| code.operands(START + 4 * at).first().copied())
        .map(|operand| {
            let address = operand.address;
            let kind = match (operand.reads, operand.writes) {
                (true, true) => "modify",
                (true, false) => "load",
                _ => "store",
            };
            (operand.pc - START, kind, operand.size_bytes, address.base.map(|base| base.0), address.disp)
        })
        .collect();
    assert_eq!(
        found,
        [
            (0x00, "store", 4, Some(2), 0),
            (0x04, "load", 8, Some(2), 0),
            (0x08, "modify", 4, Some(2), 0),
            (0x0c, "modify", 8, Some(2), 0),
            (0x10, "load", 64, Some(3), 0),
            (0x14, "store", 16, Some(3), 0),
            (0x18, "load", 16, Some(2), 0),
            (0x1c, "store", 64, Some(5), 0),
            (0x24, "load", 8, None, 0x102c),
            (0x28, "load", 8, Some(2), 4),
        ]
    );
    assert_eq!(only(&code, 0x1018).address.scale, 16);
}

/// SVE, whose vectors have no size that is known.
#[test]
fn what_scalable_instructions_touch() {
    let words = [
        0xa5e3_4002, // 1000 ld1d {z2.d}, p0/z, [x0, x3, lsl #3]
        0xe543_4000, // 1004 st1w {z0.s}, p0, [x0, x3, lsl #2]
        0xc5e1_c001, // 1008 ld1d {z1.d}, p0/z, [x0, z1.d, lsl #3]
        0xa5c0_e001, // 100c ld3d {z1.d-z3.d}, p0/z, [x0]
    ];
    let code = code(&words);
    let operands = [0x1000, 0x1004, 0x1008, 0x100c].map(|pc| only(&code, pc));
    assert!(operands.iter().all(|operand| operand.size_bytes == 0));
    assert_eq!(operands.map(|operand| operand.writes), [false, true, false, false]);
    let base = Some(Register(0));
    let found =
        operands.map(|operand| (operand.address.base, operand.address.scale, operand.address.is_partial));
    assert_eq!(found, [(base, 8, false), (base, 4, false), (base, 1, true), (base, 1, false)]);
}

#[test]
fn a_copy_that_is_under_way_waits_for_itself() {
    let code = code(&[
        0xf940_0021, // 1000 ldr x1, [x1]
        0x1d81_0440, // 1004 cpye [x0]!, [x1]!, x2!
        0xd503_201f, // 1008 nop
    ]);
    let found = access(&code, 0x1004);
    // How far it is depends on the processor.
    assert_eq!((found.operand.pc, found.operand.reads, found.address(|_| Some(0))), (0x1004, true, None));
}

#[test]
fn where_pointers_come_from() {
    let words = [
        0x9400_0002, // 1000 bl 1008
        0xaa00_03f3, // 1004 mov x19, x0
        0xb000_0001, // 1008 adrp x1, 2000
        0x9100_4021, // 100c add x1, x1, #0x10
        0xa941_0e62, // 1010 ldp x2, x3, [x19, #16]
        0x927c_ec65, // 1014 and x5, x3, #0xfffffffffffffff0
        0x8b20_cca6, // 1018 add x6, x5, w0, sxtw #3
        0x9100_83e7, // 101c add x7, sp, #0x20
        0xd503_201f, // 1020 nop
    ];
    let code = code(&words);
    let origin = |register: u16| code.origin(0x1020, Register(register), &mut |_, _| None::<()>);
    assert_eq!(origin(19), Some(Origin::Returned { pc: 0x1004 }));
    assert_eq!(origin(1), Some(Origin::Fixed(0x2010)));
    let Some(Origin::Loaded { pc: 0x1010, address, base: Some(base) }) = origin(6) else {
        panic!("{:?}", origin(6));
    };
    // The second of the pair.
    assert_eq!((address.base, address.disp), (Some(Register(19)), 24));
    assert_eq!(*base, Origin::Returned { pc: 0x1004 });
    let Some(Origin::Frame { pc: 0x101c, address }) = origin(7) else { panic!("{:?}", origin(7)) };
    assert_eq!((address.base, address.disp), (Some(Register::SP), 32));
}

#[test]
fn no_words_panic() {
    let mut state = 7u64;
    for _ in 0..300 {
        let words: Vec<u32> = (0..24)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Often jumps that stay in the function.
                match state >> 62 {
                    0 => 0x5400_0000 | ((state >> 8) as u32 & 0xf) << 5 | (state >> 20) as u32 & 0xf,
                    _ => (state >> 30) as u32,
                }
            })
            .collect();
        for start in [START, u64::MAX - 0x1f] {
            let code = FunctionCode::new(Architecture::AArch64, &bytes(&words), start);
            for at in 0..24 {
                let pc = start.wrapping_add(4 * at);
                if let Waits::Access(found) = waits(&code, pc) {
                    let _ = (found.address(|_| Some(u64::MAX)), found.address_in_object(|_| Some(u64::MAX)));
                }
                for register in 0..32 {
                    let _ = code.origin(pc, Register(register), &mut |_, _| None::<()>);
                    let _ = code.root(pc, Register(register), &mut |_, _| None::<()>, &mut |_| None);
                }
            }
        }
    }
}

fn destinations(words: &[u32], pc: u64) -> Vec<Destination> {
    result_destinations(Architecture::AArch64, &bytes(words), START, pc, &|_| false)
}

#[test]
fn a_result_is_kept_in_a_register_and_stored_in_a_variable() {
    let words = [
        0x9000_0017, // 1000 adrp x23, 1000
        0x9102_42f7, // 1004 add x23, x23, #0x90
        0x9400_0010, // 1008 bl 1048
        0xaa00_03f6, // 100c mov x22, x0
        0xb400_0080, // 1010 cbz x0, 1020
        0xd37d_f280, // 1014 lsl x0, x20, #3
        0xf900_0ef6, // 1018 str x22, [x23, #24]
        0xd65f_03c0, // 101c ret
        0xd503_201f, // 1020 nop
    ];
    assert_eq!(
        destinations(&words, 0x100c),
        [
            Destination::Register { register: Register::X0, start: 0x100c, end: 0x1015 },
            Destination::Global { svma: 0x10a8, pc: 0x1018 },
            Destination::Register { register: Register(22), start: 0x1010, end: 0x1020 },
        ]
    );
}

#[test]
fn a_result_is_stored_in_the_frame_an_element_and_a_member() {
    let words = [
        0xf900_0fe0, // 1000 str x0, [sp, #24]
        0xf940_0fe1, // 1004 ldr x1, [sp, #24]
        0xf820_da81, // 1008 str x1, [x20, w0, sxtw #3]
        0xa901_7e61, // 100c stp x1, xzr, [x19, #16]
        0xf940_17e2, // 1010 ldr x2, [sp, #40]
        0xf900_0441, // 1014 str x1, [x2, #8]
        0xaa01_03e0, // 1018 mov x0, x1
        0xa8c2_7bfd, // 101c ldp x29, x30, [sp], #32
        0xd65f_03c0, // 1020 ret
    ];
    let found = destinations(&words, START);
    let stores: Vec<_> =
        found.into_iter().filter(|one| !matches!(one, Destination::Register { .. })).collect();
    let register = |register| Base::Register { register: Register(register) };
    let slot = Base::FrameSlot { base: Register::SP, disp: 40, pc: 0x1010 };
    assert_eq!(
        stores,
        [
            Destination::FrameSlot { base: Register::SP, disp: 24, pc: 0x1000 },
            Destination::Field { base: register(20), disp: 0, indexed: true, pc: 0x1008 },
            Destination::Field { base: register(19), disp: 16, indexed: false, pc: 0x100c },
            Destination::Field { base: slot, disp: 8, indexed: false, pc: 0x1014 },
            Destination::Returned { pc: 0x1020 },
        ]
    );
}

#[test]
fn a_thread_local_variable_takes_a_result() {
    let words = [
        0xd53b_d041, // 1000 mrs x1, tpidr_el0
        0x9100_6021, // 1004 add x1, x1, #0x18
        0xf900_0020, // 1008 str x0, [x1]
        0xd420_0000, // 100c brk #0
    ];
    assert_eq!(destinations(&words, START)[0], Destination::ThreadLocal { offset: 0x18, pc: 0x1008 });
}

#[test]
fn a_check_for_null_is_passed_where_it_is_not() {
    // Over what is done for null, with either kind of jump.
    for jump in [
        0xb500_0060, // 1004 cbnz x0, 1010
        0x5400_0061, // 1004 b.ne 1010
    ] {
        let words = [
            0xf100_001f, // 1000 cmp x0, #0x0
            jump,        //
            0xd280_0000, // 1008 mov x0, #0
            0xd65f_03c0, // 100c ret
            0xf900_0280, // 1010 str x0, [x20]
            0xd420_0000, // 1014 brk #0
        ];
        let found = destinations(&words, START);
        let stored = Destination::Field {
            base: Base::Register { register: Register(20) },
            disp: 0,
            indexed: false,
            pc: 0x1010,
        };
        assert!(found.contains(&stored), "{found:?}");
    }
}

#[test]
fn a_slot_that_a_call_filled() {
    let words = [
        0x3500_0060, // 1000 cbnz w0, 100c
        0xf940_0ff3, // 1004 ldr x19, [sp, #24]
        0xd420_0000, // 1008 brk #0
        0xd65f_03c0, // 100c ret
    ];
    let found =
        slot_destinations(Architecture::AArch64, &bytes(&words), START, START, (Register::SP, 24), &|_| {
            false
        });
    assert_eq!(found, [Destination::Register { register: Register(19), start: 0x1008, end: 0x1008 }]);
}

#[test]
fn functions_that_give_back_their_argument() {
    let returns = |words: &[u32]| {
        returns_first_argument(Architecture::AArch64, &bytes(words), START, &|target| {
            target == Target::Code(0x2000)
        })
    };
    // str xzr, [x0]; ret
    assert!(returns(&[0xf900_001f, 0xd65f_03c0]));
    // ldr x0, [x0]; ret
    assert!(!returns(&[0xf940_0000, 0xd65f_03c0]));
    // b 2000, b 3000
    assert!(returns(&[0x1400_0400]) && !returns(&[0x1400_0800]));
}

#[test]
fn stubs_of_linkage() {
    let stub = [
        0xd503_245f, // 1000 bti c
        0xb000_0090, // 1004 adrp x16, 12000
        0xf947_d211, // 1008 ldr x17, [x16, #4000]
        0x913e_8210, // 100c add x16, x16, #0xfa0
        0xd61f_0220, // 1010 br x17
    ];
    let cell = |words: &[u32]| linkage_cell(Architecture::AArch64, &bytes(words), START);
    assert_eq!(cell(&stub[..4]), Some(0x12fa0));
    assert_eq!(cell(&stub[2..]), None);
    assert_eq!(cell(&[]), None);
}

#[test]
fn calls_that_go_where_another_goes() {
    let words = [
        0x9400_0400, // 1000 bl 2000
        0x9400_0800, // 1004 bl 3004
        0x9400_03fe, // 1008 bl 2000
        0xd63f_0000, // 100c blr x0
    ];
    let alike = |returns| calls_alike(Architecture::AArch64, &bytes(&words), START, returns);
    assert_eq!((alike(0x1004), alike(0x1010)), (vec![0x1004, 0x100c], vec![]));
}

#[test]
fn blocks_and_loops() {
    let flow = ControlFlow::of_aarch64(&[(START, &bytes(&GATHER))]);
    let edges: Vec<_> =
        flow.blocks.iter().map(|block| (block.start, block.end, block.successors.to_vec())).collect();
    assert_eq!(edges, [(0x1000, 0x101c, vec![0, 1]), (0x101c, 0x1020, vec![])]);
    let loops = Loops::new(&flow);
    assert_eq!(loops.innermost, [Some(0), None]);
    // br x1 leads to the arms of a switch, br x17 out of the function.
    for (jump, arms) in [(0xd61f_0020, vec![1, 2]), (0xd61f_0220, vec![])] {
        let words = [jump, 0xd65f_03c0, 0xd65f_03c0];
        let flow = ControlFlow::of_aarch64(&[(START, &bytes(&words))]);
        assert_eq!(flow.blocks[0].successors.to_vec(), arms);
    }
}

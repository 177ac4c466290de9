//! A64's machine code: of C, as GCC 12 compiles it with -O2, and of GNU as. The comment beside each word is its disassembly.

use super::*;

const START: u64 = 0x1000;

fn code(words: &[u32]) -> LoopCode {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    LoopCode::new(Architecture::AArch64, &[(START, &bytes)])
}

/// `sum += a[index[i]]`, of `int` and `double`
const GATHER: [u32; 10] = [
    0x2f00_e400, // 1000 movi d0, #0x0
    0xf100_005f, // 1004 cmp x2, #0x0
    0x5400_00ed, // 1008 b.le 1024
    0x8b02_0803, // 100c add x3, x0, x2, lsl #2
    0xb880_4402, // 1010 ldrsw x2, [x0], #4
    0xfc62_7821, // 1014 ldr d1, [x1, x2, lsl #3]
    0x1e61_2800, // 1018 fadd d0, d0, d1
    0xeb00_007f, // 101c cmp x3, x0
    0x54ff_ff81, // 1020 b.ne 1010
    0xd65f_03c0, // 1024 ret
];

#[test]
fn an_index_that_walks_by_post_index_loads_the_address_of_a_gather() {
    let code = code(&GATHER);
    assert_eq!(code.address_source(0x1014), Some(AddressSource::LoadedBy(0x1010)));
    // It is moved by 4, not loaded: no chain, though the load writes to both.
    assert_eq!(code.address_source(0x1010), Some(AddressSource::Computed));
    assert_eq!(code.loaders(0x1014), [0x1010]);
    assert_eq!(code.address_source(0x1024), None, "in no loop");
    assert_eq!((code.loop_at(0x1018), code.loop_at(0x1000)), (Some(0x1010), None));
    let places = code.loop_places(0x1010).expect("a loop");
    assert_eq!((places.inside, places.before, places.returns), (vec![0x1010, 0x1014], vec![], vec![0x1024]));
}

/// `h[p[i]]++`, of bytes
const HIST: [u32; 11] = [
    0xf100_003f, // 1000 cmp x1, #0x0
    0x5400_012d, // 1004 b.le 1028
    0x8b01_0004, // 1008 add x4, x0, x1
    0xd503_201f, // 100c nop
    0x3840_1403, // 1010 ldrb w3, [x0], #1
    0xb863_7841, // 1014 ldr w1, [x2, x3, lsl #2]
    0x1100_0421, // 1018 add w1, w1, #0x1
    0xb823_7841, // 101c str w1, [x2, x3, lsl #2]
    0xeb00_009f, // 1020 cmp x4, x0
    0x54ff_ff61, // 1024 b.ne 1010
    0xd65f_03c0, // 1028 ret
];

#[test]
fn bytes_that_count_load_the_addresses_of_counters() {
    let code = code(&HIST);
    let sources = [0x1010, 0x1014, 0x101c].map(|pc| code.address_source(pc));
    let by_byte = Some(AddressSource::LoadedBy(0x1010));
    // A store has its address from there, too.
    assert_eq!(sources, [Some(AddressSource::Computed), by_byte, by_byte]);
}

/// `sum += table[k[i] & mask]`
const PROBES: [u32; 20] = [
    0xf100_003f, // 1000 cmp x1, #0x0
    0x5400_022d, // 1004 b.le 1048
    0x9000_0004, // 1008 adrp x4, f1c
    0xf940_0084, // 100c ldr x4, [x4]
    0xaa00_03e2, // 1010 mov x2, x0
    0x9000_0005, // 1014 adrp x5, f1c
    0xf940_00a5, // 1018 ldr x5, [x5]
    0x8b01_0803, // 101c add x3, x0, x1, lsl #2
    0xb940_0084, // 1020 ldr w4, [x4]
    0xd280_0000, // 1024 mov x0, #0x0
    0xd503_201f, // 1028 nop
    0xb840_4441, // 102c ldr w1, [x2], #4
    0x0a01_0081, // 1030 and w1, w4, w1
    0xf861_78a1, // 1034 ldr x1, [x5, x1, lsl #3]
    0x8b01_0000, // 1038 add x0, x0, x1
    0xeb02_007f, // 103c cmp x3, x2
    0x54ff_ff61, // 1040 b.ne 102c
    0xd65f_03c0, // 1044 ret
    0xd280_0000, // 1048 mov x0, #0x0
    0xd65f_03c0, // 104c ret
];

#[test]
fn a_masked_index_comes_from_its_load() {
    let code = code(&PROBES);
    assert_eq!(code.address_source(0x1034), Some(AddressSource::LoadedBy(0x102c)));
    assert_eq!(code.address_source(0x102c), Some(AddressSource::Computed));
}

/// `sum += a[p[i].first] * p[i].second`
const PAIRS: [u32; 15] = [
    0xf100_005f, // 1000 cmp x2, #0x0
    0x5400_018d, // 1004 b.le 1034
    0xaa00_03e3, // 1008 mov x3, x0
    0xd280_0000, // 100c mov x0, #0x0
    0x8b02_1065, // 1010 add x5, x3, x2, lsl #4
    0xd503_201f, // 1014 nop
    0xa940_0864, // 1018 ldp x4, x2, [x3]
    0x9100_4063, // 101c add x3, x3, #0x10
    0xf864_7824, // 1020 ldr x4, [x1, x4, lsl #3]
    0x9b02_0080, // 1024 madd x0, x4, x2, x0
    0xeb03_00bf, // 1028 cmp x5, x3
    0x54ff_ff61, // 102c b.ne 1018
    0xd65f_03c0, // 1030 ret
    0xd280_0000, // 1034 mov x0, #0x0
    0xd65f_03c0, // 1038 ret
];

#[test]
fn one_of_a_pair_is_an_index() {
    let code = code(&PAIRS);
    assert_eq!(code.address_source(0x1020), Some(AddressSource::LoadedBy(0x1018)));
    assert_eq!(code.address_source(0x1018), Some(AddressSource::Computed));
}

/// `while (n) sum += n->value, n = n->next`
const LIST: [u32; 8] = [
    0xaa00_03e1, // 1000 mov x1, x0
    0xd280_0000, // 1004 mov x0, #0x0
    0xb400_00a1, // 1008 cbz x1, 101c
    0xd503_201f, // 100c nop
    0xa940_0821, // 1010 ldp x1, x2, [x1]
    0x8b02_0000, // 1014 add x0, x0, x2
    0xb5ff_ffc1, // 1018 cbnz x1, 1010
    0xd65f_03c0, // 101c ret
];

#[test]
fn a_list_is_a_chain_of_one_link_whose_pair_holds_a_value_besides() {
    let code = code(&LIST);
    assert_eq!(code.address_source(0x1010), Some(AddressSource::Chain));
    assert_eq!((code.loaders(0x1010), code.links(0x1010)), (vec![0x1010], 1));
}

/// `t = key < t->key ? t->left : t->right`
const FIND: [u32; 11] = [
    0xb500_00a0, // 1000 cbnz x0, 1014
    0x1400_0007, // 1004 b 1020
    0xa940_0002, // 1008 ldp x2, x0, [x0]
    0x9a82_d000, // 100c csel x0, x0, x2, le
    0xb400_00a0, // 1010 cbz x0, 1024
    0xf940_0802, // 1014 ldr x2, [x0, #16]
    0xeb01_005f, // 1018 cmp x2, x1
    0x54ff_ff61, // 101c b.ne 1008
    0xd65f_03c0, // 1020 ret
    0xd280_0000, // 1024 mov x0, #0x0
    0xd65f_03c0, // 1028 ret
];
/// `t = t->kids[t->key < key]`
const FIND2: [u32; 12] = [
    0xb500_00c0, // 1000 cbnz x0, 1018
    0x1400_0008, // 1004 b 1024
    0x9a9f_a7e2, // 1008 cset x2, lt
    0x8b02_0c00, // 100c add x0, x0, x2, lsl #3
    0xf940_0400, // 1010 ldr x0, [x0, #8]
    0xb400_00a0, // 1014 cbz x0, 1028
    0xf940_0002, // 1018 ldr x2, [x0]
    0xeb01_005f, // 101c cmp x2, x1
    0x54ff_ff41, // 1020 b.ne 1008
    0xd65f_03c0, // 1024 ret
    0xd280_0000, // 1028 mov x0, #0x0
    0xd65f_03c0, // 102c ret
];
/// A tree in an array, whose nodes have two indices of 32 bits.
const KIDS: [u32; 6] = [
    0x2941_0801, // 1000 ldp w1, w2, [x0, #8]
    0x6b04_003f, // 1004 cmp w1, w4
    0x1a82_b021, // 1008 csel w1, w1, w2, lt
    0x8b21_d0a0, // 100c add x0, x5, w1, sxtw #4
    0x35ff_ff81, // 1010 cbnz w1, 1000
    0xd65f_03c0, // 1014 ret
];

#[test]
fn a_tree_has_two_links_whether_it_loads_both_or_chooses_one() {
    let both = code(&FIND);
    assert_eq!(both.address_source(0x1008), Some(AddressSource::Chain));
    // The first and the second of the pair.
    assert_eq!((both.links(0x1008), both.links(0x1014)), (2, 2));
    let chosen = code(&FIND2);
    // The address is a sum of node and side, which another instruction makes.
    assert_eq!((chosen.address_source(0x1010), chosen.links(0x1010)), (Some(AddressSource::Chain), 2));
    let indices = code(&KIDS);
    assert_eq!((indices.address_source(0x1000), indices.links(0x1000)), (Some(AddressSource::Chain), 2));
}

/// A skip list: a loop in which node and level change.
const SKIP: [u32; 11] = [
    0x8b02_0c01, // 1000 add x1, x0, x2, lsl #3
    0xf940_2021, // 1004 ldr x1, [x1, #64]
    0xb400_00c1, // 1008 cbz x1, 1020
    0xf940_0023, // 100c ldr x3, [x1]
    0xeb04_007f, // 1010 cmp x3, x4
    0x5400_0062, // 1014 b.cs 1020
    0xaa01_03e0, // 1018 mov x0, x1
    0x17ff_fff9, // 101c b 1000
    0xf100_0442, // 1020 subs x2, x2, #0x1
    0x54ff_fee5, // 1024 b.pl 1000
    0xd65f_03c0, // 1028 ret
];

#[test]
fn the_levels_of_a_skip_list_are_chosen_among() {
    let code = code(&SKIP);
    assert_eq!((code.address_source(0x1004), code.links(0x1004)), (Some(AddressSource::Chain), 2));
    assert_eq!(code.links(0x100c), 2);
}

/// A hash table with chains, asked for each of some keys.
const CHAINS: [u32; 25] = [
    0xaa00_03e6, // 1000 mov x6, x0
    0xf100_005f, // 1004 cmp x2, #0x0
    0x5400_02ad, // 1008 b.le 105c
    0xaa01_03e4, // 100c mov x4, x1
    0x8b02_0c25, // 1010 add x5, x1, x2, lsl #3
    0xd280_0000, // 1014 mov x0, #0x0
    0xd503_201f, // 1018 nop
    0xf940_0083, // 101c ldr x3, [x4]
    0x9240_2461, // 1020 and x1, x3, #0x3ff
    0xf861_78c1, // 1024 ldr x1, [x6, x1, lsl #3]
    0xb500_0081, // 1028 cbnz x1, 1038
    0x1400_0008, // 102c b 104c
    0xf940_0021, // 1030 ldr x1, [x1]
    0xb400_00c1, // 1034 cbz x1, 104c
    0xf940_0422, // 1038 ldr x2, [x1, #8]
    0xeb02_007f, // 103c cmp x3, x2
    0x54ff_ff81, // 1040 b.ne 1030
    0xf940_0821, // 1044 ldr x1, [x1, #16]
    0x8b01_0000, // 1048 add x0, x0, x1
    0x9100_2084, // 104c add x4, x4, #0x8
    0xeb04_00bf, // 1050 cmp x5, x4
    0x54ff_fe41, // 1054 b.ne 101c
    0xd65f_03c0, // 1058 ret
    0xd280_0000, // 105c mov x0, #0x0
    0xd65f_03c0, // 1060 ret
];

#[test]
fn a_buckets_nodes_are_counted_by_those_of_its_loop_and_what_comes_before() {
    let code = code(&CHAINS);
    // The node behind the first one, and the key of each.
    assert_eq!([0x1030, 0x1038].map(|pc| code.address_source(pc)), [Some(AddressSource::Chain); 2]);
    assert_eq!(code.address_source(0x1024), Some(AddressSource::LoadedBy(0x101c)), "the bucket");
    assert_eq!([0x1030, 0x1038, 0x1024].map(|pc| code.links(pc)), [1, 1, 1]);
    assert_eq!(code.loop_at(0x1038), Some(0x1038));
    let places = code.loop_places(0x1038).expect("a loop");
    assert_eq!((places.inside, places.before), (vec![0x1030, 0x1038], vec![0x1024, 0x101c]));
    assert_eq!((places.returns, places.exits), (vec![], 2));
}

/// Distances to the next one.
const INDICES: [u32; 4] = [
    0xb980_0001, // 1000 ldrsw x1, [x0]
    0x8b01_0000, // 1004 add x0, x0, x1
    0xb5ff_ffc1, // 1008 cbnz x1, 1000
    0xd65f_03c0, // 100c ret
];

#[test]
fn what_is_added_to_an_address_makes_a_chain() {
    assert_eq!(code(&INDICES).address_source(0x1000), Some(AddressSource::Chain));
}

/// An index in the frame.
const SPILL: [u32; 6] = [
    0xf940_07e1, // 1000 ldr x1, [sp, #8]
    0xb861_7802, // 1004 ldr w2, [x0, x1, lsl #2]
    0x9100_0421, // 1008 add x1, x1, #0x1
    0xf900_07e1, // 100c str x1, [sp, #8]
    0x35ff_ff82, // 1010 cbnz w2, 1000
    0xd65f_03c0, // 1014 ret
];
/// A pointer in the frame.
const SP_FRAME: [u32; 9] = [
    0xa9be_7bfd, // 1000 stp x29, x30, [sp, #-32]!
    0x9100_03fd, // 1004 mov x29, sp
    0xf940_0fa1, // 1008 ldr x1, [x29, #24]
    0xf940_0422, // 100c ldr x2, [x1, #8]
    0x9100_4021, // 1010 add x1, x1, #0x10
    0xf900_0fa1, // 1014 str x1, [x29, #24]
    0xb5ff_ff82, // 1018 cbnz x2, 1008
    0xa8c2_7bfd, // 101c ldp x29, x30, [sp], #32
    0xd65f_03c0, // 1020 ret
];
/// A base in a variable at 0x1010.
const FIXED: [u32; 6] = [
    0x9000_0003, // 1000 adrp x3, 1000
    0xf940_0861, // 1004 ldr x1, [x3, #16]
    0xb860_7822, // 1008 ldr w2, [x1, x0, lsl #2]
    0x9100_0400, // 100c add x0, x0, #0x1
    0x35ff_ffa2, // 1010 cbnz w2, 1004
    0xd65f_03c0, // 1014 ret
];

#[test]
fn variables_that_were_spilled_and_those_at_fixed_addresses_are_no_sources() {
    assert_eq!(code(&SPILL).address_source(0x1004), Some(AddressSource::Computed));
    assert_eq!(code(&SP_FRAME).address_source(0x100c), Some(AddressSource::Computed));
    // Without the instruction that makes x29 the frame's pointer, it is one like another.
    let mut other = SP_FRAME;
    other[1] = 0x9100_003d; // 1004 mov x29, x1
    assert_eq!(code(&other).address_source(0x100c), Some(AddressSource::LoadedBy(0x1008)));
    let fixed = code(&FIXED);
    assert_eq!(fixed.address_source(0x1008), Some(AddressSource::Computed));
    assert_eq!(fixed.address_source(0x1004), None, "nothing but a constant");
    let mut pointed = FIXED;
    pointed[0] = 0xaa00_03e3; // 1000 mov x3, x0
    assert_eq!(code(&pointed).address_source(0x1008), Some(AddressSource::LoadedBy(0x1004)));
}

/// A call between a load and what it brings.
const CALLS: [u32; 7] = [
    0xf940_0293, // 1000 ldr x19, [x20]
    0x97ff_ffff, // 1004 bl 1000
    0xf940_0660, // 1008 ldr x0, [x19, #8]
    0xf940_0001, // 100c ldr x1, [x0]
    0x9100_2294, // 1010 add x20, x20, #0x8
    0xb5ff_ff61, // 1014 cbnz x1, 1000
    0xd65f_03c0, // 1018 ret
];

#[test]
fn calls_keep_some_registers_and_no_others() {
    let kept = code(&CALLS);
    assert_eq!(kept.address_source(0x1008), Some(AddressSource::LoadedBy(0x1000)));
    // x18 in the place of x19.
    let mut lost = CALLS;
    (lost[0], lost[2]) = (0xf940_0292, 0xf940_0640);
    assert_eq!(code(&lost).address_source(0x1008), Some(AddressSource::Computed));
    assert_eq!(kept.address_source(0x1000), Some(AddressSource::Computed));
}

/// An address in a vector.
const LANES: [u32; 5] = [
    0x4cc2_7c00, // 1000 ld1 {v0.2d}, [x0], x2
    0x4e18_3c03, // 1004 mov x3, v0.d[1]
    0xf940_0064, // 1008 ldr x4, [x3]
    0xb5ff_ffa4, // 100c cbnz x4, 1000
    0xd65f_03c0, // 1010 ret
];

#[test]
fn addresses_come_through_vectors_and_a_register_of_the_write_back_is_no_load() {
    let code = code(&LANES);
    assert_eq!(code.address_source(0x1008), Some(AddressSource::LoadedBy(0x1000)));
    assert_eq!(code.address_source(0x1000), Some(AddressSource::Computed));
}

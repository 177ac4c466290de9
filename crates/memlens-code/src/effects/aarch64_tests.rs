//! Code is assembled with GNU as; the comment beside each word is its disassembly. Latencies: Neoverse V2's Software Optimization Guide.

use super::{Effects, Leads, Order, Unit, effects};
use crate::architecture::Architecture;
use Unit::{Address, Integer, Multiply, Vector};

fn code(words: &[u32]) -> Vec<Effects> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    effects(Architecture::AArch64, &bytes, 0x1000)
}

fn names(set: super::RegisterSet) -> String {
    let name = |bit: usize| match bit {
        31 => "flags".to_owned(),
        32.. => format!("v{}", bit - 32),
        _ => format!("x{bit}"),
    };
    // Flags behind general registers, in front of vectors, as their bits are.
    set.iter().map(name).collect::<Vec<_>>().join(" ")
}

/// Word, registers of the address, others read, written, moved, latency, unit.
type Row = (u32, &'static str, &'static str, &'static str, &'static str, u8, Unit);

#[test]
fn what_instructions_read_write_and_take() {
    #[rustfmt::skip]
    const ROWS: [Row; 28] = [
        (0xf840_4423, "x1", "", "x3", "x1", 0, Address), // ldr x3, [x1], #4
        (0xa9c1_0440, "x2", "", "x0 x1", "x2", 0, Address), // ldp x0, x1, [x2, #16]!
        (0xfc63_d8a0, "x3 x5", "", "v0", "", 0, Address), // ldr d0, [x5, w3, sxtw #3]
        (0xf900_00e7, "x7", "x7", "", "", 0, Address), // str x7, [x7]
        (0xa9be_7bfd, "", "x29 x30", "", "", 0, Address), // stp x29, x30, [sp, #-32]!
        (0x8b22_4820, "", "x1 x2", "x0", "", 2, Integer), // add x0, x1, w2, uxtw #2
        (0xf2a0_00a4, "", "x4", "x4", "", 1, Integer), // movk x4, #0x5, lsl #16
        (0xb37d_0ca4, "", "x4 x5", "x4", "", 2, Integer), // bfi x4, x5, #3, #4
        (0x9a82_1020, "", "x1 x2 flags", "x0", "", 1, Integer), // csel x0, x1, x2, ne
        (0xf100_0421, "", "x1", "x1 flags", "", 1, Integer), // subs x1, x1, #0x1
        (0xaa01_03e0, "", "x1", "x0", "", 0, Integer), // mov x0, x1
        (0xaa1f_03e0, "", "", "x0", "", 0, Integer), // mov x0, xzr
        (0xca00_0000, "", "x0", "x0", "", 1, Integer), // eor x0, x0, x0
        (0x2f00_e400, "", "", "v0", "", 0, Vector), // movi d0, #0x0
        (0x1f41_0802, "", "v0 v1 v2", "v2", "", 4, Vector), // fmadd d2, d0, d1, d2
        (0x4fa2_1820, "", "v0 v1 v2", "v0", "", 4, Vector), // fmla v0.4s, v1.4s, v2.s[3]
        (0x4e0c_1c60, "", "x3 v0", "v0", "", 5, Vector), // mov v0.s[1], w3
        (0x0dc4_9000, "x0 x4", "v0", "v0", "x0", 0, Address), // ld1 {v0.s}[1], [x0], x4
        (0x4c40_087e, "x3", "", "v0 v1 v30 v31", "", 0, Address), // ld4 {v30.4s, v31.4s, v0.4s, v1.4s}, [x3]
        (0x9ac2_0c20, "", "x1 x2", "x0", "", 12, Integer), // sdiv x0, x1, x2
        (0x9bc2_7c20, "", "x1 x2", "x0", "", 3, Multiply), // umulh x0, x1, x2
        (0x1b02_0c20, "", "x1 x2 x3", "x0", "", 2, Multiply), // madd w0, w1, w2, w3
        (0x1e22_1820, "", "v1 v2", "v0", "", 10, Vector), // fdiv s0, s1, s2
        (0x1e61_2000, "", "v0 v1", "flags", "", 2, Vector), // fcmp d0, d1
        (0x9e78_0020, "", "v1", "x0", "", 3, Vector), // fcvtzs x0, d1
        (0x9e62_0020, "", "x1", "v0", "", 3, Vector), // scvtf d0, x1
        (0xf8a2_7820, "x1 x2", "", "", "", 0, Address), // prfm pldl1keep, [x1, x2, lsl #3]
        (0xd50b_7425, "x5", "", "", "", 0, Address), // dc zva, x5
    ];
    let words = ROWS.map(|row| row.0);
    for (row, it) in ROWS.iter().zip(code(&words)) {
        let [address, reads, writes, moves] = [it.address, it.reads, it.writes, it.moves].map(names);
        let found = (row.0, &*address, &*reads, &*writes, &*moves, it.latency_cycles, it.unit);
        assert_eq!(found, *row, "at {:#x}", it.at);
        assert_eq!(it.touches_memory, !address.is_empty() || it.unit == Address, "{row:?}");
        assert_eq!((it.leads, it.order, it.repeats), (Leads::On, Order::Free, false), "{row:?}");
    }
}

#[test]
fn what_is_kept_in_order() {
    use Order::{Acquire, AfterAccesses, AfterAll, AfterLoads, Free};
    #[rustfmt::skip]
    const ROWS: [(u32, Order); 16] = [
        (0xc8df_fc20, Acquire), // ldar x0, [x1]
        (0xf8bf_c020, Acquire), // ldapr x0, [x1]
        (0xc89f_fc20, Free), // stlr x0, [x1]
        (0x885f_fc20, Acquire), // ldaxr w0, [x1]
        (0x8802_7c20, Free), // stxr w2, w0, [x1]
        (0xf820_0041, Free), // ldadd x0, x1, [x2]
        (0xf8e0_0041, Acquire), // ldaddal x0, x1, [x2]
        (0xf8a0_005f, Free), // ldadda x0, xzr, [x2]
        (0xf8a0_805f, Acquire), // swpa x0, xzr, [x2]
        (0xc8a0_7c41, Free), // cas x0, x1, [x2]
        (0xc8e0_fc41, Acquire), // casal x0, x1, [x2]
        (0xd503_39bf, AfterLoads), // dmb ishld
        (0xd503_3abf, Free), // dmb ishst
        (0xd503_3bbf, AfterAccesses), // dmb ish
        (0xd503_3f9f, AfterAccesses), // dsb sy
        (0xd503_3fdf, AfterAll), // isb
    ];
    let found: Vec<_> = code(&ROWS.map(|row| row.0)).iter().map(|it| it.order).collect();
    assert_eq!(found, ROWS.map(|row| row.1));
}

#[test]
fn atomic_operations_compute_with_what_they_load() {
    let [add, exclusive, swap] = code(&[
        0xf820_0041, // 1000 ldadd x0, x1, [x2]
        0x8802_7c20, // 1004 stxr w2, w0, [x1]
        0xc8a0_7c41, // 1008 cas x0, x1, [x2]
    ])[..] else {
        panic!()
    };
    let of = |it: Effects| (names(it.address), names(it.reads), names(it.writes), it.latency_cycles, it.unit);
    let expected = |address: &str, reads: &str, writes: &str| {
        (address.to_owned(), reads.to_owned(), writes.to_owned(), 1, Integer)
    };
    assert_eq!(of(add), expected("x2", "x0", "x1"));
    assert_eq!(of(exclusive), expected("x1", "x0", "x2"));
    assert_eq!(of(swap), expected("x2", "x0 x1", "x0"));
}

#[test]
fn where_branches_lead_and_what_they_read() {
    use Leads::{Away, Either, On, To};
    #[rustfmt::skip]
    const ROWS: [(u32, Leads, &str, &str); 10] = [
        (0x1400_0000, To(0x1000), "", ""), // b 1000
        (0x54ff_ffe1, Either(0x1000), "flags", ""), // b.ne 1000
        (0x97ff_fffe, To(0x1000), "", "x30"), // bl 1000
        (0xd63f_0020, Away, "x1", "x30"), // blr x1
        (0xd61f_0020, Away, "x1", ""), // br x1
        (0xd65f_03c0, Away, "x30", ""), // ret
        (0xd400_0001, On, "", "x0"), // svc #0x0
        (0xb4ff_ff23, Either(0x1000), "x3", ""), // cbz x3, 1000
        (0x3617_ff03, Either(0x1000), "x3", ""), // tbz w3, #2, 1000
        (0x0000_0000, Away, "", ""), // udf #0
    ];
    for (row, it) in ROWS.iter().zip(code(&ROWS.map(|row| row.0))) {
        let (reads, writes) = (names(it.reads), names(it.writes));
        assert_eq!((row.0, it.leads, &*reads, &*writes), *row);
        assert_eq!((it.next, it.touches_memory), (it.at + 4, false));
    }
}

/// Predicates have the flags' bit: what is masked has it among its address.
#[test]
fn a_gather_of_sve_waits_for_its_indices_and_its_predicate() {
    #[rustfmt::skip]
    const ROWS: [(u32, &str, &str, &str); 8] = [
        (0x25e4_1c60, "", "x3 x4", "flags"), // whilelo p0.d, x3, x4
        (0xa5e3_4000, "x0 x3 flags", "", "v0"), // ld1d {z0.d}, p0/z, [x0, x3, lsl #3]
        (0xc5e0_c021, "x1 flags v0", "", "v1"), // ld1d {z1.d}, p0/z, [x1, z0.d, lsl #3]
        (0x65e1_0002, "", "flags v0 v1 v2", "v2"), // fmla z2.d, p0/m, z0.d, z1.d
        (0xe5e0_e042, "x2 flags", "v2", ""), // st1d {z2.d}, p0, [x2]
        (0x04e2_0020, "", "v1 v2", "v0"), // add z0.d, z1.d, z2.d
        (0x04f0_e3e3, "", "x3", "x3"), // incd x3
        (0x2518_e3e1, "", "", "flags"), // ptrue p1.b
    ];
    for (row, it) in ROWS.iter().zip(code(&ROWS.map(|row| row.0))) {
        let [address, reads, writes] = [it.address, it.reads, it.writes].map(names);
        assert_eq!((row.0, &*address, &*reads, &*writes), *row);
    }
}

#[test]
fn copies_by_one_instruction_repeat_themselves() {
    let [copy, fill, clear] = code(&[
        0x1d01_0440, // 1000 cpyfp [x0]!, [x1]!, x2!
        0x19c2_0420, // 1004 setp [x0]!, x1!, x2
        0xd50b_7425, // 1008 dc zva, x5
    ])[..] else {
        panic!()
    };
    assert_eq!([copy, fill, clear].map(|it| it.repeats), [true, true, false]);
    let registers = [copy.address, copy.reads, copy.writes, copy.moves].map(names);
    // They do not wait for what is copied.
    assert_eq!(registers, ["x0 x1", "x2", "", "x0 x1 x2"]);
}

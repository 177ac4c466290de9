//! AArch64: what A64 instructions read, write and take.
//!
//! # Sources
//!
//! Latencies, and which moves take none, are those of Arm's Neoverse V2: Software Optimization Guide, PJDOC-466751330-593177 (r0p2), chapter
//! 3, "Instruction characteristics", as LLVM's model of that core has them (`AArch64SchedNeoverseV2.td`). Those of Neoverse V1
//! and N2 are the same to a cycle or two. What memory orders: Arm Architecture Reference Manual, DDI 0487 (issue L.a), section B2.3.
//!
//! Deviations: one latency for all sources, the whole one: accumulators are forwarded two cycles earlier. Of divisions, which end as soon as
//! they can, the middle of what they take. Vectors take as long from the first level as general registers, for which they need 6 cycles
//! in place of 4. What authenticates a pointer and loads takes no longer than what loads. Of SVE the groups' usual ones.
//!
//! A register cleared by `eor` with itself is not known to be 0: the architecture has that depend on the register.

use super::{Effects, Leads, Order, RegisterSet, Unit};
use crate::aarch64::decode::{Decoded, RegisterMask, Word, decode};
use crate::aarch64::operands::{Operands, VectorMask, operands};
use crate::aarch64::{INSTRUCTION_BYTES, words};
use crate::instructions::Transfer;

/// sp among general registers, which is counted nowhere here: the flags have its bit.
const SP: RegisterMask = 1 << 31;
const FLAGS: u64 = 1 << 31;

/// The instructions of a function.
pub(super) fn effects(code: &[u8], start: u64) -> Vec<Effects> {
    words(code, start).map(|(pc, bits)| Effects::of_a64(bits, pc)).collect()
}

impl RegisterSet {
    fn of_a64(general: RegisterMask, vectors: VectorMask, flags: bool) -> Self {
        Self(u64::from(general & !SP) | u64::from(vectors) << 32 | if flags { FLAGS } else { 0 })
    }
}

impl Effects {
    fn of_a64(bits: u32, pc: u64) -> Self {
        let decoded = decode(bits, pc);
        let used = operands(bits, pc, &decoded);
        let word = Word::new(bits, pc);
        let has_access = decoded.accesses[0].is_some();
        let touches_memory = has_access || used.is_prefetch;
        let latency_cycles = latency_cycles(word, &decoded, &used);
        // Predicates say which elements are touched.
        let is_masked = touches_memory && used.reads_flags;
        let unit = match () {
            _ if touches_memory && latency_cycles == 0 => Unit::Address,
            _ if is_multiplication(word) => Unit::Multiply,
            _ if used.vector_reads | used.vector_writes != 0 => Unit::Vector,
            _ => Unit::Integer,
        };
        Self {
            at: pc,
            next: pc.wrapping_add(INSTRUCTION_BYTES),
            leads: leads(word, decoded.transfer),
            address: RegisterSet::of_a64(used.address, used.vector_address, is_masked),
            reads: RegisterSet::of_a64(used.reads, used.vector_reads, used.reads_flags && !is_masked),
            writes: RegisterSet::of_a64(used.writes, used.vector_writes, used.writes_flags),
            moves: RegisterSet::of_a64(used.moves, 0, false),
            latency_cycles,
            unit,
            order: order(word, &decoded, &used),
            touches_memory,
            // CPY and SET, which move what they count by
            repeats: decoded.accesses[0].is_some_and(|it| it.writes && it.size_bytes == 0) && used.moves != 0,
        }
    }
}

fn leads(word: Word, transfer: Transfer) -> Leads {
    match transfer {
        Transfer::Next | Transfer::Interrupt | Transfer::Breakpoint | Transfer::Transaction => Leads::On,
        Transfer::Branch(target) => Leads::Either(target),
        Transfer::Jump(target) | Transfer::Call(Some(target)) => Leads::To(target),
        // The kernel comes back to the next one.
        Transfer::Call(None) if word.field(31, 24) == 0xd4 => Leads::On,
        Transfer::Call(None)
        | Transfer::IndirectJump
        | Transfer::Leave
        | Transfer::Return
        | Transfer::Undefined => Leads::Away,
    }
}

/// MADD and its like.
fn is_multiplication(word: Word) -> bool {
    word.matches(0x1f00_0000, 0x1b00_0000)
}

/// What waits for it besides what needs its result.
fn order(word: Word, decoded: &Decoded, used: &Operands) -> Order {
    let loads = decoded.accesses[0].is_some_and(|access| access.reads);
    match word.field(28, 25) {
        // DMB and DSB, by what is in front of them; those of other processors' memory; ISB
        0b1010 if word.matches(0xffff_f0df, 0xd503_309f) => match word.field(9, 8) {
            0b01 => Order::AfterLoads,
            0b10 if word.bit(5) => Order::Free,
            _ => Order::AfterAccesses,
        },
        0b1010 if word.matches(0xffff_f3ff, 0xd503_323f) => Order::AfterAccesses,
        0b1010 if word.matches(0xffff_f0ff, 0xd503_30df) => Order::AfterAll,
        0b0100 | 0b0110 | 0b1100 | 0b1110 if loads => {
            let acquires = match (word.field(29, 28), word.bit(24)) {
                // LDAXR, LDAXP, LDAR, LDLAR; CASA, CASPA
                (0b00, false) if !word.bit(26) => match (word.bit(23), word.bit(21)) {
                    (true, false) => true,
                    (true, true) => word.bit(22),
                    (false, true) if word.field(31, 30) < 2 => word.bit(22),
                    (false, _) => word.bit(15),
                },
                // LDAPUR, LDIAPP; pairs of atomics
                (0b01, true) if !word.bit(21) && word.field(11, 10) != 0b01 => true,
                (0b01, true) if word.bit(21) => word.bit(23),
                // Atomics with A in their names, LDAPR. Where nothing is kept of what was there, nothing is acquired, but by SWP.
                (0b11, false) if word.bit(21) && word.field(11, 10) == 0 => {
                    let is_swap = word.bit(15) && word.field(14, 12) == 0;
                    word.bit(23) && (is_swap || used.writes | used.vector_writes != 0)
                }
                _ => false,
            };
            if acquires { Order::Acquire } else { Order::Free }
        }
        _ => Order::Free,
    }
}

fn latency_cycles(word: Word, decoded: &Decoded, used: &Operands) -> u8 {
    match word.field(28, 25) {
        0b1000 | 0b1001 => of_immediates(word),
        // DC ZVA
        0b1010 if decoded.accesses[0].is_some() => 0,
        0b1010 | 0b1011 => of_branches(word),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => {
            // What computes with what it loads: an atomic operation. What a store leaves in a register: whether it was done.
            let changes = decoded.accesses[0].is_some_and(|access| access.reads && access.writes);
            let tells = word.matches(0x3f40_0000, 0x0800_0000) && used.writes != 0;
            u8::from(changes || tells)
        }
        0b0101 | 0b1101 => of_registers(word),
        0b0111 | 0b1111 => of_vectors(word, used),
        0b0010 if !word.bit(31) => of_scalable(word, used),
        0b0010 => 0,
        _ => 1,
    }
}

fn of_immediates(word: Word) -> u8 {
    match word.field(25, 23) {
        // MOV of 0
        0b101 if word.field(30, 29) == 2 && word.field(22, 5) == 0 => 0,
        // ADDG, SUBG; BFM; EXTR of two registers
        0b011 if !word.bit(22) => 2,
        0b110 if word.field(30, 29) == 1 => 2,
        0b111 if word.rn() != word.rm() => 3,
        _ => 1,
    }
}

fn of_branches(word: Word) -> u8 {
    match word.field(31, 24) {
        // Hints: XPACLRI; those that sign and authenticate; others
        0xd5 if word.matches(0xffff_f01f, 0xd503_201f) => match word.field(11, 5) {
            7 => 2,
            8 | 10 | 12 | 14 | 24..=31 => 5,
            _ => 0,
        },
        // BRAA, BLRAA, RETAA and their like
        0xd6 | 0xd7 if word.bit(11) => 6,
        _ => 1,
    }
}

fn of_registers(word: Word) -> u8 {
    let (shift, kind) = (word.field(15, 10), word.field(23, 22));
    if !word.bit(28) {
        return match (word.bit(24), word.bit(21)) {
            // MOV
            (false, _) if word.matches(0x7fe0_ffe0, 0x2a00_03e0) => 0,
            // ANDS and BICS with a shift
            (false, _) if word.field(30, 29) == 3 && (shift != 0 || kind != 0) => 2,
            // ADD and SUB with a shift to the right, or by more than 4
            (true, false) if shift > 0 && (kind != 0 || shift > 4) => 2,
            // With a part of the register, or one that is shifted
            (true, true) if word.field(14, 13) != 3 || word.field(12, 10) != 0 => 2,
            _ => 1,
        };
    }
    match (word.field(24, 21), word.field(15, 10)) {
        // With one source: XPACI, PACIA and its like
        (0b0110, 16 | 17) if word.bit(30) && word.rm() == 1 => 2,
        (0b0110, _) if word.bit(30) && word.rm() == 1 => 5,
        (0b0110, _) if word.bit(30) => 1,
        // UDIV, SDIV: 5 to 12 cycles, and 5 to 20
        (0b0110, 2 | 3) if word.is_wide() => 12,
        (0b0110, 2 | 3) => 8,
        // IRG; PACGA; CRC32
        (0b0110, 4 | 16..=23) => 2,
        (0b0110, 12) => 5,
        // SMULH, UMULH; MADD and its like
        (0b1010 | 0b1110, _) => 3,
        (0b1000..=0b1111, _) => 2,
        _ => 1,
    }
}

/// Of floating point by its size: halves, singles, doubles.
fn by_size(kind: u32, [half, single, double]: [u8; 3]) -> u8 {
    match kind {
        0 => single,
        1 => double,
        _ => half,
    }
}

/// Advanced SIMD and floating point.
fn of_vectors(word: Word, used: &Operands) -> u8 {
    // AES, SHA and their like
    if word.field(31, 24) == 0xce {
        return 2;
    }
    match (word.bit(30), word.bit(28), word.bit(24)) {
        // FMADD and its like
        (false, true, true) => 4,
        (false, true, false) => of_scalars(word),
        _ => match (word.bit(24), word.bit(10)) {
            // By element: FMUL, FMULX; SMULL, SQDMULL; SDOT; others multiply, and add
            (true, false) => match word.field(15, 12) {
                0b1001..=0b1011 | 0b1110 => 3,
                _ => 4,
            },
            (true, true) => of_shifts(word),
            (false, _) => of_simd(word, used),
        },
    }
}

fn of_scalars(word: Word) -> u8 {
    let kind = word.field(23, 22);
    if !word.bit(21) || word.field(15, 10) == 0 {
        return match (word.field(18, 16), word.field(20, 19)) {
            // FMOV: of zero; to the upper half; from a general register; to one. Others convert.
            (7, 0) if word.bit(21) && word.rn() == 31 => 0,
            (7, 1) => 5,
            (7, _) => 3,
            (6, 0 | 1) if word.bit(21) => 2,
            _ => 3,
        };
    }
    match (word.field(11, 10), word.field(13, 12)) {
        // FCMP; FMOV of an immediate
        (0b00, 0b01..=0b11) => 2,
        // FMOV, FABS, FNEG; FSQRT; FCVT and FRINTN with their like
        (0b00, _) => match word.field(20, 15) {
            0..=2 => 2,
            3 => by_size(kind, [7, 9, 16]),
            _ => 3,
        },
        // FMUL, FNMUL; FDIV; FADD and its like
        (0b10, _) => match word.field(15, 12) {
            0 | 8 => 3,
            1 => by_size(kind, [7, 10, 15]),
            _ => 2,
        },
        // FCCMP, FCSEL
        _ => 2,
    }
}

/// Shifts by an immediate, and immediates.
fn of_shifts(word: Word) -> u8 {
    match word.field(15, 11) {
        // MOVI of 0
        _ if word.matches(0xbfff_ffe0, 0x2f00_e400) => 0,
        _ if word.is_vector_immediate() => 2,
        // SSHR, SHL, SRI, SLI, SHRN, SSHLL; what accumulates, rounds or saturates; conversions
        0b00000 | 0b01000 | 0b01010 | 0b10100 => 2,
        0b10000 if !word.bit(29) => 2,
        _ => 4,
    }
}

/// What has neither elements nor immediates.
fn of_simd(word: Word, used: &Operands) -> u8 {
    let (is_unsigned, opcode) = (word.bit(29), word.field(15, 11));
    let of_doubles = |cycles: u8, others: u8| if word.bit(22) { cycles } else { others };
    match (word.bit(21), word.bit(15), word.field(11, 10)) {
        // Three different sources: sums and differences; those that accumulate; products
        (true, _, 0b00) => match word.field(15, 12) {
            0b0000..=0b0100 | 0b0110 | 0b0111 => 2,
            0b0101 | 0b1000..=0b1011 if used.vector_reads & used.vector_writes != 0 => 4,
            _ => 3,
        },
        // Three of the same kind
        (true, _, 0b01 | 0b11) => match opcode {
            // SRSHL, SQSHL, SQRSHL; SABA; MLA, MUL, SQDMULH
            0b01001..=0b01011 | 0b01111 | 0b10010 | 0b10011 | 0b10110 => 4,
            // FMLA, FRECPS, FRSQRTS; FMUL, FMULX; FDIV
            0b11001 => 4,
            0b11111 if !is_unsigned => 4,
            0b11011 => 3,
            0b11111 => of_doubles(15, 10),
            0b11101 if !is_unsigned => 4,
            _ => 2,
        },
        (true, ..) => match (word.field(20, 17), word.field(16, 12)) {
            // SHA1SU1 and its like; AESE
            (0b0100, _) => 2,
            // Across lanes, of which there are more or fewer
            (0b1000, _) if !word.bit(28) => 4,
            // SADALP; SQXTN, SQXTUN; FCVTN, FCVTL
            (0b0000, 0b00110 | 0b10100 | 0b10110 | 0b10111) => 4,
            (0b0000, 0b10010) if is_unsigned => 4,
            // FSQRT; roundings, conversions, estimates
            (0b0000 | 0b1100, 0b11111) if is_unsigned => of_doubles(16, 10),
            (0b0000 | 0b1100, 0b11000..=0b11111) => of_doubles(3, 4),
            _ => 2,
        },
        // SHA256H and its like
        (false, false, 0b00) if word.bit(28) => 4,
        // TBL and TBX of more than two registers
        (false, false, 0b00) if !is_unsigned => 2 + 2 * u8::from(word.field(14, 13) > 1),
        // DUP and INS of general registers
        (false, false, 0b01 | 0b11) if word.field(23, 22) == 0 && !is_unsigned => match word.field(14, 11) {
            0b0001 => 3,
            0b0011 => 5,
            _ => 2,
        },
        // Of half precision: FMLA, FRECPS; FMUL, FMULX; FDIV
        (false, false, 0b01 | 0b11) if word.field(23, 22) != 0 => match word.field(13, 11) {
            0b001 => 4,
            0b011 => 3,
            0b111 if is_unsigned => 13,
            0b111 => 4,
            _ => 2,
        },
        (false, false, _) => 2,
        // FCADD; dot and matrix products; SQRDMLAH, FCMLA
        (false, true, _) => match word.field(14, 11) {
            0b1100 | 0b1110 if is_unsigned => 2,
            0b0010..=0b0101 => 3,
            _ => 4,
        },
    }
}

/// SVE.
fn of_scalable(word: Word, used: &Operands) -> u8 {
    match word.field(31, 24) {
        _ if used.writes_flags => 3,
        // FDIV, FDIVR, FSQRT
        0x65 if word.matches(0x003e_e000, 0x000c_8000) || word.matches(0x003f_e000, 0x000d_a000) => 15,
        // Floating point: FMLA; sums
        0x64 | 0x65 if word.bit(21) => 4,
        0x64 | 0x65 => 3,
        // MUL; MLA, MAD; products of SVE2
        0x04 if word.matches(0x003c_e000, 0x0010_0000) || (!word.bit(21) && word.field(14, 14) == 1) => 4,
        0x44 | 0x45 => 4,
        _ => 2,
    }
}

//! Which registers A64 instructions read and write, apart by what for.
//!
//! Source and names as in `decode.rs`, which says what is written of general registers; vector registers are `vectors.rs`' matter.
//!
//! Accounting: a register that is written in part (`MOVK`, `BFI`, lanes, accumulators, merging predicates) is read, too. The
//! register that is zero is none. What a call is allowed to change it does not write: its function's instructions do, one by one. A
//! system call writes x0. Prefetches have an address, and no operand but that. `CPY` and `SET` move
//! their addresses and what they count by.
//!
//! Not told: system registers, the first-fault register and tags; of what is unknown (SME) nothing is read nor written.

use super::decode::{Decoded, RegisterMask, SP, Word, mask, mask_sp};
use crate::destination::Register;
use crate::instructions::Transfer;

/// Vector registers, those of SVE included: bit n is vn, which zn begins with.
pub(crate) type VectorMask = u32;

/// The registers of an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operands {
    /// Those of addresses.
    pub(crate) address: RegisterMask,
    /// Vectors of indices or bases.
    pub(crate) vector_address: VectorMask,
    /// Others that it reads.
    pub(crate) reads: RegisterMask,
    pub(crate) vector_reads: VectorMask,
    /// The flags, or predicates of SVE.
    pub(crate) reads_flags: bool,
    /// Those that it writes, but for `moves`.
    pub(crate) writes: RegisterMask,
    pub(crate) vector_writes: VectorMask,
    pub(crate) writes_flags: bool,
    /// The base that the access changes, whatever it loads.
    pub(crate) moves: RegisterMask,
    /// Whether it is a prefetch.
    pub(crate) is_prefetch: bool,
}

/// x30, which calls write to.
const LINK: u8 = 30;

/// The registers of an instruction that was decoded to this.
pub(crate) fn operands(bits: u32, pc: u64, decoded: &Decoded) -> Operands {
    let word = Word::new(bits, pc);
    if decoded.is_unknown() {
        return Operands::default();
    }
    let moves = decoded.write_back.map_or(0, |(base, _)| mask_sp(base));
    let from_decoded = Operands {
        writes: decoded.written & !moves,
        moves,
        address: decoded.addressed(),
        ..Default::default()
    };
    match word.field(28, 25) {
        0b1000 | 0b1001 => {
            Operands { reads: word.read_with_immediate(), writes_flags: decoded.sets_flags, ..from_decoded }
        }
        0b1010 | 0b1011 => word.branch_operands(decoded, from_decoded),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => word.memory_operands(from_decoded),
        0b0101 | 0b1101 => {
            let (reads, reads_flags) = word.read_by_registers();
            Operands { reads, reads_flags, writes_flags: decoded.sets_flags, ..from_decoded }
        }
        0b0111 | 0b1111 => word.vector_operands(from_decoded),
        0b0010 => word.scalable_operands(from_decoded, decoded.accesses[0].is_none()),
        // Undefined on purpose
        _ => from_decoded,
    }
}

impl Decoded {
    /// Whether nothing is known of it, so that it may write to all.
    fn is_unknown(&self) -> bool {
        self.written == RegisterMask::MAX
    }

    /// The general-purpose registers of its operands' addresses.
    fn addressed(&self) -> RegisterMask {
        let registers = self.accesses.iter().flatten().flat_map(|it| [it.address.base, it.address.index]);
        registers.flatten().fold(0, |all, Register(number)| all | 1 << number)
    }
}

impl Word {
    /// What data processing with immediates reads.
    fn read_with_immediate(self) -> RegisterMask {
        let (rd, rn, rm) = (self.rd(), self.rn(), self.rm());
        match self.field(25, 23) {
            // ADR, ADRP
            0b000 | 0b001 => 0,
            // ADD and SUB; ADDG, SUBG; SMAX and its like
            0b010 => mask_sp(rn),
            0b011 if self.bit(22) => mask(rn),
            0b011 => mask_sp(rn),
            // AND, ORR, EOR, ANDS
            0b100 => mask(rn),
            // MOVK; MOVN, MOVZ
            0b101 if self.field(30, 29) == 3 => mask(rd),
            0b101 => 0,
            // BFM; SBFM, UBFM
            0b110 if self.field(30, 29) == 1 => mask(rd) | mask(rn),
            0b110 => mask(rn),
            // AUTIASPPC, AUTIBSPPC
            _ if self.field(31, 23) == 0b1_1110_0111 => mask(LINK) | mask_sp(SP),
            // EXTR
            _ => mask(rn) | mask(rm),
        }
    }

    /// Of branches, exceptions and system instructions.
    fn branch_operands(self, decoded: &Decoded, all: Operands) -> Operands {
        let (rd, rn, rm) = (self.rd(), self.rn(), self.rm());
        match (self.field(31, 24), decoded.transfer) {
            // BL; SVC
            (0x94..=0x97, _) => Operands { writes: mask(LINK), ..all },
            (0xd4, Transfer::Call(_)) => Operands { writes: 1, ..all },
            // B.cond
            (0x54, Transfer::Branch(_)) => Operands { reads_flags: true, ..all },
            // CBZ, CBNZ, TBZ, TBNZ; CB of an immediate
            (0x34..=0x37 | 0xb4..=0xb7 | 0x75 | 0xf5, _) => Operands { reads: mask(rd), ..all },
            // CB of registers
            (0x74 | 0xf4, _) => Operands { reads: mask(rd) | mask(rm), ..all },
            (0xd5, _) => self.system_operands(all),
            (0xd6 | 0xd7, transfer) => {
                // With a modifier in the place of another register: BRAA, BLRAA
                let modifier = if self.bit(24) && self.bit(11) { mask_sp(rd) } else { 0 };
                // RETAA and RETAB have no field for x30.
                let returns = transfer == Transfer::Return && rn == SP;
                let to = if returns { mask(LINK) | mask_sp(SP) } else { mask(rn) };
                let writes = if transfer.is_call() { mask(LINK) } else { 0 };
                Operands { reads: to | modifier, writes, ..all }
            }
            // RETAASPPC, RETABSPPC
            (0x55, _) => Operands { reads: mask(LINK) | mask_sp(SP), ..all },
            _ => all,
        }
    }

    /// Of hints, barriers, system registers and operations.
    fn system_operands(self, all: Operands) -> Operands {
        let rt = self.rd();
        if self.matches(0xffff_f01f, 0xd503_201f) {
            let reads = match self.field(11, 5) {
                // XPACLRI; PACIAZ, AUTIAZ and those with key B; PACIASP, AUTIASP and those with key B
                7 | 24 | 26 | 28 | 30 => mask(LINK),
                25 | 27 | 29 | 31 => mask(LINK) | mask_sp(SP),
                // PACIA1716 and its like
                8 | 10 | 12 | 14 => mask(16) | mask(17),
                // CHKFEAT
                40 => mask(16),
                _ => 0,
            };
            return Operands { reads, ..all };
        }
        // CFINV, XAFLAG, AXFLAG
        if self.matches(0xffff_ff1f, 0xd500_401f) && self.field(7, 5) < 3 {
            return Operands { reads_flags: true, writes_flags: true, ..all };
        }
        match self.field(23, 21) {
            // DC ZVA and its like have an address.
            0b000 if all.address != 0 => all,
            // MSR of a register, SYS; NZCV
            0b000 => Operands {
                reads: if self.bit(20) || self.bit(19) { mask(rt) } else { 0 },
                writes_flags: self.matches(0xffff_ffe0, 0xd51b_4200),
                ..all
            },
            // MRS, SYSL; NZCV; RNDR, RNDRRS
            0b001 => Operands {
                reads_flags: self.matches(0xffff_ffe0, 0xd53b_4200),
                writes_flags: self.matches(0xffff_ffc0, 0xd53b_2400),
                ..all
            },
            // SYSP, MSRR
            0b010 => Operands { reads: mask(rt) | mask((rt + 1) & 31), ..all },
            _ => all,
        }
    }

    /// What data processing with registers reads, and whether the flags.
    fn read_by_registers(self) -> (RegisterMask, bool) {
        let (rd, rn, rm, ra) = (self.rd(), self.rn(), self.rm(), self.rt2());
        if !self.bit(28) {
            let is_extended = self.bit(24) && self.bit(21);
            return (if is_extended { mask_sp(rn) } else { mask(rn) } | mask(rm), false);
        }
        match self.field(24, 21) {
            // ADC, SBC; RMIF, and SETF8 and SETF16, which keep one; ADDPT, SUBPT
            0b0000 if self.field(15, 10) == 0 => (mask(rn) | mask(rm), true),
            0b0000 if self.field(15, 13) != 1 => (mask(rn), true),
            0b0000 => (mask_sp(rn) | mask(rm), false),
            // CCMN, CCMP, of an immediate and of a register
            0b0010 if self.bit(11) => (mask(rn), true),
            // The same; CSEL, CSINC, CSINV, CSNEG
            0b0010 | 0b0100 => (mask(rn) | mask(rm), true),
            // With one source: PACIA and its like, of what they change and a modifier
            0b0110 if self.bit(30) => match (rm, self.field(15, 10)) {
                (1, 0..=7) => (mask(rd) | mask_sp(rn), false),
                (1, _) => (mask(rd), false),
                _ => (mask(rn), false),
            },
            // SUBP, SUBPS; IRG, GMI; PACGA
            0b0110 => match self.field(15, 10) {
                0 => (mask_sp(rn) | mask_sp(rm), false),
                4 | 5 => (mask_sp(rn) | mask(rm), false),
                12 => (mask(rn) | mask_sp(rm), false),
                _ => (mask(rn) | mask(rm), false),
            },
            // SMULH, UMULH; with three
            0b1010 | 0b1110 => (mask(rn) | mask(rm), false),
            _ => (mask(rn) | mask(rm) | mask(ra), false),
        }
    }
}

/// So many vector registers from one on.
pub(super) fn vectors(first: u8, count: u32) -> VectorMask {
    ((1u32 << count) - 1).rotate_left(first.into())
}

/// Of loads and stores.
impl Word {
    fn memory_operands(self, all: Operands) -> Operands {
        let (rt, rt2, rs) = (self.rd(), self.rt2(), self.rm());
        let (is_vector, loads) = (self.bit(26), self.bit(22));
        let pair = |one: u8| mask(one) | mask((one + 1) & 31);
        match (self.field(29, 28), self.bit(24)) {
            (0b00, _) if is_vector && !self.bit(31) => self.structure_operands(all),
            // Exclusive, ordered, CAS
            (0b00, false) => {
                let reads = match (self.bit(23), self.bit(21)) {
                    (true, true) => mask(rs) | mask(rt),
                    (false, true) if self.field(31, 30) < 2 => pair(rs) | pair(rt),
                    _ if loads => 0,
                    (false, true) => mask(rt) | mask(rt2),
                    _ => mask(rt),
                };
                Operands { reads, ..all }
            }
            // Of a literal
            (0b01, false) => match (is_vector, self.field(31, 30)) {
                (false, 3) => Operands { is_prefetch: true, ..all },
                (true, _) => Operands { vector_writes: vectors(rt, 1), ..all },
                _ => all,
            },
            // CPY, SET
            (0b01, true) if !self.bit(21) && self.field(11, 10) == 0b01 => {
                let is_set = self.field(23, 22) == 0b11;
                let filler = if is_set { mask(rs) } else { 0 };
                Operands { reads: mask(self.rn()) | filler, moves: all.writes, writes: 0, ..all }
            }
            (0b01, true) if !is_vector && self.bit(21) && self.field(31, 30) == 0b11 => {
                self.tag_operands(all)
            }
            // LDCLRP, LDSETP, SWPP
            (0b01, true) if !is_vector && self.bit(21) => Operands { reads: mask(rt) | mask(rs), ..all },
            // LDAPUR, STLUR; LDIAPP, STILP
            (0b01, true) if is_vector || self.field(11, 10) == 0 => self.single_operands(all),
            (0b01, true) if loads => all,
            (0b01, true) if self.bit(23) => Operands { reads: mask(rt), ..all },
            (0b01, true) => Operands { reads: mask(rt) | mask(rs), ..all },
            // LDP, STP
            (0b10, _) => match (is_vector, loads) {
                (true, true) => Operands { vector_writes: vectors(rt, 1) | vectors(rt2, 1), ..all },
                (true, false) => Operands { vector_reads: vectors(rt, 1) | vectors(rt2, 1), ..all },
                (false, true) => all,
                // STGP, STP
                (false, false) => Operands { reads: mask(rt) | mask(rt2), ..all },
            },
            (_, true) => self.single_operands(all),
            (_, false) if !self.bit(21) => self.single_operands(all),
            (_, false) => match self.field(11, 10) {
                0b00 if is_vector => {
                    let writes = if self.bit(15) { 0 } else { vectors(rt, 1) };
                    Operands { vector_reads: vectors(rs, 1), vector_writes: writes, ..all }
                }
                0b00 => {
                    let reads = match (self.bit(15), self.field(14, 12)) {
                        // LDAPR, LD64B; ST64B and its like
                        (true, 4 | 5) => 0,
                        (true, 1..=3) => 0xff << rt,
                        _ => mask(rs),
                    };
                    Operands { reads, ..all }
                }
                0b10 => self.single_operands(all),
                // LDRAA
                _ => all,
            },
        }
    }

    /// LDR, STR and PRFM of a single register.
    fn single_operands(self, all: Operands) -> Operands {
        let (rt, opc) = (self.rd(), self.field(23, 22));
        match (self.bit(26), opc) {
            (true, _) if opc & 1 == 1 => Operands { vector_writes: vectors(rt, 1), ..all },
            (true, _) => Operands { vector_reads: vectors(rt, 1), ..all },
            (false, 0) => Operands { reads: mask(rt), ..all },
            // PRFM
            (false, 2 | 3) if self.field(31, 30) == 3 => {
                let is_indexed = !self.bit(24) && self.bit(21);
                let index = if is_indexed { mask(self.rm()) } else { 0 };
                Operands { address: mask_sp(self.rn()) | index, is_prefetch: true, ..all }
            }
            _ => all,
        }
    }

    /// STG and its like, LDG: some of them have a base and no operand.
    fn tag_operands(self, all: Operands) -> Operands {
        let (rt, base) = (self.rd(), mask_sp(self.rn()));
        let address = if all.address == 0 && all.moves == 0 { 0 } else { base };
        let base = if address == 0 { base } else { 0 };
        let reads = match (self.field(11, 10), self.field(23, 22)) {
            // LDG; LDGM; STGM, STZGM; the others
            (0b00, 1) => mask(rt),
            (0b00, 3) => 0,
            (0b00, _) => mask(rt),
            _ => mask_sp(rt),
        };
        Operands { address, reads: reads | base, ..all }
    }

    /// LD1 to LD4, ST1 to ST4.
    fn structure_operands(self, all: Operands) -> Operands {
        let rt = self.rd();
        let is_single = self.bit(24);
        let count = if is_single {
            (self.field(13, 13) << 1 | self.field(21, 21)) + 1
        } else {
            match self.field(15, 12) {
                0b0000 | 0b0010 => 4,
                0b0100 | 0b0110 => 3,
                0b1000 | 0b1010 => 2,
                _ => 1,
            }
        };
        // The other lanes stay; LD1R to LD4R fill all.
        let merges = is_single && self.field(15, 14) != 3;
        let these = vectors(rt, count);
        // What is added to the base comes from a register.
        let step = if self.bit(23) { mask(self.rm()) } else { 0 };
        let (vector_reads, vector_writes) = match self.bit(22) {
            true => (if merges { these } else { 0 }, these),
            false => (these, 0),
        };
        Operands { address: all.address | step, vector_reads, vector_writes, ..all }
    }
}

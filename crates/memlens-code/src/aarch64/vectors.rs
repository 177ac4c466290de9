//! Which vector registers A64 instructions read and write that compute.
//!
//! Source: as of `decode.rs`, sections C4.1.97 ("Data Processing – Scalar Floating-Point and Advanced SIMD") and C4.1.38 (SVE).
//!
//! Of Advanced SIMD and floating point all is told. Of SVE, whose instructions are thousands, what the group tells: the fields at the usual
//! places are read and written, the destination read, too, where an instruction may accumulate or merge; so more may be read than is.

use super::decode::{RegisterMask, Word, mask, mask_sp};
use super::operands::{Operands, VectorMask, vectors};

/// Which of its registers an instruction of vectors reads, besides those of its group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// It is overwritten.
    New,
    /// A part of it stays, or is added to.
    Kept,
}

impl Word {
    fn vd(self) -> VectorMask {
        vectors(self.rd(), 1)
    }

    fn vn(self) -> VectorMask {
        vectors(self.rn(), 1)
    }

    fn vm(self) -> VectorMask {
        vectors(self.rm(), 1)
    }

    fn va(self) -> VectorMask {
        vectors(self.rt2(), 1)
    }

    /// SIMD and floating point. `all`: what it writes to general registers.
    pub(super) fn vector_operands(self, all: Operands) -> Operands {
        let of_vectors = |reads: VectorMask, target: Target| Operands {
            vector_reads: if target == Target::Kept { reads | self.vd() } else { reads },
            vector_writes: if all.writes == 0 { self.vd() } else { 0 },
            ..all
        };
        if self.field(31, 24) == 0xce {
            return of_vectors(self.of_four_registers(), self.target_of_four_registers());
        }
        match (self.bit(30), self.bit(28), self.bit(24)) {
            // FMADD and its like
            (false, true, true) => of_vectors(self.vn() | self.vm() | self.va(), Target::New),
            (false, true, false) => self.scalar_operands(all),
            // Of scalars and vectors
            _ => match (self.bit(24), self.bit(10)) {
                (true, false) => of_vectors(self.vn() | self.vm_of_element(), self.target_by_element()),
                (true, true) => {
                    let reads = if self.is_vector_immediate() { 0 } else { self.vn() };
                    of_vectors(reads, self.target_of_shift())
                }
                (false, _) => self.simd_operands(all, of_vectors),
            },
        }
    }

    /// Floating point of one and two sources, comparisons, selections, conversions with general registers.
    fn scalar_operands(self, all: Operands) -> Operands {
        let writes = Operands { vector_writes: self.vd(), ..all };
        let (vn, vm) = (self.vn(), self.vm());
        if !self.bit(21) || self.field(15, 10) == 0 {
            // To and from fixed point; to and from integers
            let opcode = self.field(18, 16);
            let from_general = matches!(opcode, 2 | 3) || (self.bit(21) && opcode == 7);
            return match from_general {
                true => {
                    // FMOV to the upper half keeps the lower.
                    let is_half = opcode == 7 && self.field(20, 19) == 1;
                    let kept = if is_half { self.vd() } else { 0 };
                    Operands { reads: mask(self.rn()), vector_reads: kept, ..writes }
                }
                // FJCVTZS sets flags.
                false => {
                    let sets_flags = self.matches(0xffff_fc00, 0x1e7e_0000);
                    Operands { vector_reads: vn, writes_flags: sets_flags, ..all }
                }
            };
        }
        match self.field(11, 10) {
            // FCMP, with 0 or a register; FMOV of an immediate; FABS and its like
            0b00 if self.field(13, 12) == 0b10 => {
                let other = if self.bit(3) { 0 } else { vm };
                Operands { vector_reads: vn | other, writes_flags: true, ..all }
            }
            0b00 if self.bit(12) => writes,
            0b00 => Operands { vector_reads: vn, ..writes },
            // FCCMP
            0b01 => Operands { vector_reads: vn | vm, reads_flags: true, writes_flags: true, ..all },
            // FADD and its like
            0b10 => Operands { vector_reads: vn | vm, ..writes },
            // FCSEL
            _ => Operands { vector_reads: vn | vm, reads_flags: true, ..writes },
        }
    }

    /// EOR3, BCAX, SM3SS1; XAR; SHA512H and its like.
    fn of_four_registers(self) -> VectorMask {
        match (self.field(23, 21), self.bit(15)) {
            (0b000..=0b010, false) => self.vn() | self.vm() | self.va(),
            // SHA512SU0, SM4E
            (0b110, true) => self.vn(),
            _ => self.vn() | self.vm(),
        }
    }

    fn target_of_four_registers(self) -> Target {
        match (self.field(23, 21), self.bit(15), self.field(11, 10)) {
            (0b000..=0b010, false, _) | (0b100, ..) => Target::New,
            // RAX1; SM4EKEY
            (0b011, true, 3) if !self.bit(14) => Target::New,
            (0b011, true, 2) if self.bit(14) => Target::New,
            _ => Target::Kept,
        }
    }

    /// The second source where it is an element: of 16 bits, and of widening ones of them, one of the first 16 registers.
    fn vm_of_element(self) -> VectorMask {
        let (is_unsigned, size, opcode) = (self.bit(29), self.field(23, 22), self.field(15, 12));
        let is_halves = match opcode {
            // FMLA, FMLS, FMUL, FMULX
            0b0001 | 0b0101 | 0b1001 => size == 0,
            // FMLAL, FMLAL2 and those that subtract
            0b0000 | 0b0100 if !is_unsigned => true,
            0b1000 | 0b1100 if is_unsigned => true,
            // SUDOT, BFDOT, USDOT, BFMLAL
            0b1111 if !is_unsigned => size == 3,
            // SDOT, UDOT; FCMLA
            0b1110 => false,
            0b0011 | 0b0111 if is_unsigned => false,
            _ => size == 1,
        };
        vectors(if is_halves { self.rm() & 15 } else { self.rm() }, 1)
    }

    fn target_by_element(self) -> Target {
        match (self.field(15, 12), self.bit(29)) {
            // FMUL and FMULX; SMULL and its like; SQDMULL
            (0b1001..=0b1011, _) => Target::New,
            // MUL; SQDMULH and SQRDMULH
            (0b1000 | 0b1100 | 0b1101, false) => Target::New,
            _ => Target::Kept,
        }
    }

    /// Whether a vector is made of an immediate, or changed by one; else, in the same group, it is shifted.
    pub(crate) fn is_vector_immediate(self) -> bool {
        !self.bit(28) && self.field(23, 19) == 0
    }

    /// Of shifts by an immediate, and of immediates.
    fn target_of_shift(self) -> Target {
        if self.is_vector_immediate() {
            // ORR and BIC of an immediate; MOVI, MVNI, FMOV
            let cmode = self.field(15, 12);
            let is_modified = cmode & 1 == 1 && cmode < 0b1100;
            return if is_modified { Target::Kept } else { Target::New };
        }
        match self.field(15, 11) {
            // SSRA and SRSRA with their like
            0b00010 | 0b00110 => Target::Kept,
            // SRI, SLI
            0b01000 | 0b01010 if self.bit(29) => Target::Kept,
            // SHRN2 and its like, into the upper half
            0b10000..=0b10011 if !self.bit(28) && self.bit(30) => Target::Kept,
            _ => Target::New,
        }
    }

    /// Advanced SIMD without elements and immediates, cryptography.
    fn simd_operands(self, all: Operands, of_vectors: impl Fn(VectorMask, Target) -> Operands) -> Operands {
        let (vn, both, is_unsigned) = (self.vn(), self.vn() | self.vm(), self.bit(29));
        let keeps = |kept: bool| if kept { Target::Kept } else { Target::New };
        let into_upper = !self.bit(28) && self.bit(30);
        match (self.bit(21), self.bit(15), self.field(11, 10)) {
            // Three different sources
            (true, _, 0b00) => {
                let accumulates = matches!(self.field(15, 12), 0b0101 | 0b1000..=0b1011)
                    && !(self.field(15, 12) == 0b1011 && is_unsigned);
                let narrows = matches!(self.field(15, 12), 0b0100 | 0b0110) && into_upper;
                of_vectors(both, keeps(accumulates || narrows))
            }
            // Three of the same kind
            (true, _, 0b01 | 0b11) => {
                let accumulates = match self.field(15, 11) {
                    // BSL, BIT, BIF
                    0b00011 => is_unsigned && self.field(23, 22) != 0,
                    // SABA, UABA; MLA, MLS; FMLA, FMLS, FMLAL2, FMLSL2
                    0b01111 | 0b10010 | 0b11001 => true,
                    // FMLAL, FMLSL
                    0b11101 => !is_unsigned,
                    _ => false,
                };
                of_vectors(both, keeps(accumulates))
            }
            // With one source: by field 20:17
            (true, ..) => {
                let opcode = self.field(16, 12);
                match self.field(20, 17) {
                    // AESE, AESD; SHA1SU1, SHA256SU0; SHA1H, AESMC, AESIMC
                    0b0100 if self.bit(28) => of_vectors(vn, keeps(opcode != 0)),
                    0b0100 => of_vectors(vn, keeps(matches!(opcode, 4 | 5))),
                    // SUQADD, USQADD; SADALP, UADALP; XTN2 and its like
                    0b0000 => {
                        let accumulates = matches!(opcode, 0b00011 | 0b00110);
                        let narrows = matches!(opcode, 0b10010 | 0b10100 | 0b10110) && into_upper;
                        of_vectors(vn, keeps(accumulates || narrows))
                    }
                    _ => of_vectors(vn, Target::New),
                }
            }
            // SHA1C and its like of scalars
            (false, false, 0b00) if self.bit(28) => of_vectors(both, Target::Kept),
            // TBL, TBX
            (false, false, 0b00) if !is_unsigned => {
                let table = vectors(self.rn(), self.field(14, 13) + 1);
                of_vectors(table | self.vm(), keeps(self.bit(12)))
            }
            // EXT; UZP1 and its like
            (false, false, 0b00 | 0b10) => of_vectors(both, Target::New),
            // Copies; the same of half precision as of others
            (false, false, _) if self.field(23, 22) == 0 => self.copy_operands(all, of_vectors),
            (false, false, _) => of_vectors(both, keeps(self.field(13, 11) == 0b001)),
            // FADD and its like; SQRDMLAH, dot products and their like: all but FCADD accumulate
            (false, true, _) => {
                let rotates_only = is_unsigned && matches!(self.field(14, 11), 0b1100 | 0b1110);
                of_vectors(both, keeps(!rotates_only))
            }
        }
    }

    /// DUP, INS, SMOV, UMOV.
    fn copy_operands(self, all: Operands, of_vectors: impl Fn(VectorMask, Target) -> Operands) -> Operands {
        match (self.bit(29), self.field(14, 11)) {
            // INS of an element
            (true, _) => of_vectors(self.vn(), Target::Kept),
            // DUP and INS of general registers
            (false, 0b0001) => Operands { reads: mask(self.rn()), vector_writes: self.vd(), ..all },
            (false, 0b0011) => {
                Operands { reads: mask(self.rn()), vector_reads: self.vd(), vector_writes: self.vd(), ..all }
            }
            // SMOV, UMOV
            (false, 0b0101 | 0b0111) if !self.bit(28) => Operands { vector_reads: self.vn(), ..all },
            // DUP of an element
            _ => of_vectors(self.vn(), Target::New),
        }
    }

    /// SVE.
    pub(super) fn scalable_operands(self, all: Operands, is_prefetch: bool) -> Operands {
        if self.bit(31) {
            self.scalable_memory_operands(all, is_prefetch)
        } else {
            self.scalable_computation(all)
        }
    }

    fn scalable_memory_operands(self, all: Operands, is_prefetch: bool) -> Operands {
        let kind = self.field(15, 13);
        // Bases in vectors, to which LDNT1 and STNT1 add a general register
        let (has_bases, adds) = match (self.field(31, 25), self.field(22, 21)) {
            (0b100_0010, 0) => (matches!(kind, 4 | 5 | 7), kind != 7),
            (0b100_0010, 1) => (kind >= 4, false),
            (0b110_0010, 0) => (kind >= 4, kind != 7),
            (0b110_0010, 1) => (kind >= 4, false),
            (0b111_0010, 0 | 2) => (kind == 1, true),
            _ => (false, false),
        };
        let has_bases = has_bases || self.field(31, 25) == 0b111_0010 && kind == 5 && self.bit(22);
        // Indices in vectors
        let has_indices = !has_bases
            && match self.field(31, 25) {
                0b100_0010 => kind < 4 && self.field(24, 23) != 3,
                0b110_0010 => true,
                0b111_0010 => matches!(kind, 4..=6),
                _ => false,
            };
        // Prefetches of a base and a general register
        let is_indexed =
            (has_bases && adds) || (is_prefetch && kind == 6 && self.field(31, 25) == 0b100_0010);
        let vector_address = match (has_bases, has_indices) {
            (true, _) => self.vn(),
            (false, true) => self.vm(),
            (false, false) => 0,
        };
        let is_store = self.field(31, 25) == 0b111_0010;
        // LD2 to LD4, ST2 to ST4
        let is_structure = match self.field(31, 25) {
            0b101_0010 => matches!(self.field(15, 13), 6 | 7) && self.field(22, 21) != 0,
            0b111_0010 => match self.field(15, 13) {
                3 => self.field(22, 21) != 0,
                7 => self.bit(20) && self.field(22, 21) != 0,
                _ => false,
            },
            _ => false,
        };
        let count = if is_structure { self.field(22, 21) + 1 } else { 1 };
        let these = vectors(self.rd(), count);
        // LDR and STR of a predicate
        let is_predicate = matches!(self.field(31, 22), 0b10_0001_0110 | 0b11_1001_0110) && kind == 0;
        let base = if has_bases { 0 } else { mask_sp(self.rn()) };
        let index = if is_indexed { mask(self.rm()) } else { 0 };
        Operands {
            address: all.address | base | index,
            vector_address,
            reads_flags: !is_predicate || is_store,
            writes_flags: is_predicate && !is_store,
            vector_reads: if is_store && !is_predicate { these } else { 0 },
            vector_writes: if is_store || is_prefetch || is_predicate { 0 } else { these },
            is_prefetch,
            ..all
        }
    }

    /// The second source of what SVE computes: an element is one of the first 8 vectors, or of 16 if it has 64 bits, or widens to that.
    fn scalable_vm(self) -> VectorMask {
        let is_element = match self.field(31, 24) {
            0x44 => self.bit(21),
            0x64 => self.bit(21) && !self.bit(15),
            _ => false,
        };
        let is_widened_half = self.field(31, 24) == 0x64 && self.field(15, 14) == 1;
        let among = if self.field(23, 22) == 3 && !is_widened_half { 15 } else { 7 };
        if is_element { vectors(self.rm() & among, 1) } else { self.vm() }
    }

    /// The first source of what SVE computes: SPLICE, TBL and EXT have one of two vectors.
    fn scalable_vn(self) -> VectorMask {
        let is_pair = self.field(31, 24) == 0x05
            && match (self.bit(21), self.field(15, 10)) {
                (true, 0b10_0000..=0b10_0111) => self.rm() == 0b01101,
                (true, kind) => kind == 0b00_1010 || (self.field(23, 22) == 1 && kind < 0b00_1000),
                _ => false,
            };
        vectors(self.rn(), if is_pair { 2 } else { 1 })
    }

    /// General registers that SVE reads where it computes, and what it writes if its result is one; None: it has none.
    fn general_of_scalable(self) -> Option<(RegisterMask, Option<RegisterMask>)> {
        let (rd, rn, rm) = (self.rd(), self.rn(), self.rm());
        let only_if = |condition: bool, register: u8| if condition { mask(register) } else { 0 };
        match (self.field(31, 24), self.bit(21), self.field(15, 12)) {
            // CNTB; INCB, SQINCB and their like
            (0x04, true, 0b1110) => Some((only_if(self.bit(20), rd), Some(mask(rd)))),
            (0x04, true, 0b1111) => Some((mask(rd), Some(mask(rd)))),
            // ADDVL, ADDPL; RDVL
            (0x04, true, 0b0101) => Some((if self.bit(23) { 0 } else { mask_sp(rm) }, Some(mask_sp(rd)))),
            // INDEX
            (0x04, true, 0b0100) => Some((only_if(self.bit(10), rn) | only_if(self.bit(11), rm), None)),
            // DUP and INSR; CPY; LASTA; CLASTA
            (0x05, true, _) => match (self.field(20, 16), self.field(15, 10)) {
                (0b00000 | 0b00100, 0b001110) => Some((mask_sp(rn), None)),
                (0b01000, 0b101000..=0b101111) => Some((mask_sp(rn), None)),
                (0b00000 | 0b00001, 0b101000..=0b101111) => Some((0, Some(mask(rd)))),
                (0b10000 | 0b10001, 0b101000..=0b101111) => Some((mask(rd), Some(mask(rd)))),
                _ => None,
            },
            // WHILE, CTERM
            (0x25, true, 0b0000..=0b0011) => Some((mask(rn) | mask(rm), None)),
            // CNTP; INCP and SQINCP of general registers
            (0x25, true, 0b1000..=0b1011) if self.field(20, 19) == 0 => Some((0, Some(mask(rd)))),
            (0x25, true, 0b1000..=0b1011) if self.bit(11) => Some((mask(rd), Some(mask(rd)))),
            _ => None,
        }
    }

    fn scalable_computation(self, all: Operands) -> Operands {
        let (vd, vn, vm) = (self.vd(), self.scalable_vn(), self.scalable_vm());
        let (top, kind) = (self.field(31, 24), self.field(15, 13));
        let general = self.general_of_scalable();
        let (reads, writes) = general.unwrap_or_default();
        let all = Operands { reads, writes: writes.unwrap_or(0), ..all };
        // Comparisons: of vectors; of vectors and immediates, of predicates, WHILE and PTRUE; of floating point
        let made_of = match top {
            0x24 if self.bit(21) => Some(vn),
            0x24 => Some(vn | vm),
            0x25 if self.bit(21) => (self.field(15, 14) < 2).then_some(0),
            0x25 => Some(if self.bit(14) { 0 } else { vn }),
            // Of predicates UZP1 and its like; MATCH, NMATCH
            0x05 if self.bit(21) && kind == 2 => Some(0),
            0x45 if self.bit(21) && kind == 4 => Some(vn | vm),
            0x65 if !self.bit(21) && self.bit(14) => Some(vn | vm),
            0x65 if !self.bit(21) && kind == 1 && self.field(20, 19) == 2 => Some(vn),
            _ => None,
        };
        if let Some(vector_reads) = made_of {
            let is_new = general.is_some() || self.matches(0xff3e_fc10, 0x2518_e000);
            return Operands { vector_reads, reads_flags: !is_new, writes_flags: true, ..all };
        }
        if writes.is_some() {
            // LASTA, CLASTA
            let vector_reads = if top == 0x05 { vn } else { 0 };
            return Operands { vector_reads, reads_flags: top != 0x04, ..all };
        }
        // Of three vectors without predicate; of general registers
        let is_new = match top {
            0x04 => self.bit(21) && matches!(kind, 0 | 3 | 4) || self.matches(0x00e0_fc00, 0x0020_3000),
            0x65 => !self.bit(21) && kind == 0,
            _ => false,
        };
        let vector_reads = match (is_new, general) {
            (true, _) => vn | vm,
            (false, Some(_)) => vd,
            (false, None) => vd | vn | vm,
        };
        Operands { vector_reads, vector_writes: vd, reads_flags: !is_new, ..all }
    }
}

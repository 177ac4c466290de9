//! A64 instructions, decoded as far as this crate's questions go.
//!
//! Source: Arm Architecture Reference Manual for A-profile architecture, DDI 0487 (issue L.a), chapter C4, "A64 instruction
//! set encoding"; the names of groups and fields are its. All instructions are words of 32 bits, and bits 28:25 tell
//! the group:
//!
//! ```text
//!  0010  SVE                                       100x  data processing, immediate
//!  101x  branches, exceptions, system              x1x0  loads and stores
//!  x101  data processing, register                 x111  SIMD and floating point
//! ```
//!
//! # What is told
//!
//! | of | is told |
//! |---|---|
//! | all but SME | which general-purpose registers are written, where execution goes |
//! | loads and stores | address, bytes, direction, write-back |
//! | moves, additions, `adr`, `adrp`, `csel`, `and`, plain loads and stores of 64 bits | what is in the register afterwards |
//!
//! Accounting of memory operands: a pair, and all registers of `LD1`–`LD4`, are one operand; `PRFM` is none; `DC ZVA` is a
//! store of [`ZVA_BYTES`]; tags of memory (`STG`) are not its contents: none, but for those that clear it, too
//! (`STZG`); exclusive stores and those that compare first write; atomic operations read and write. `CPY` and `SET` have
//! one for each side, of unknown size.
//!
//! Not modelled: SME, RCW instructions, unprivileged
//! exclusives (`FEAT_LSUI`): nothing is known of them, so they may write to every register. SVE loads and stores are operands of
//! unknown size, with the addresses that no vector is a part of.

use crate::destination::Register;
use crate::function_code::{AddressExpression, IndexExtension};
use crate::instructions::Transfer;

/// What `DC ZVA` clears: a block of the size that `DCZID_EL0` tells, which is this on all processors of note.
pub(crate) const ZVA_BYTES: u32 = 64;

/// sp where an instruction can mean it, else the register that is zero.
pub(super) const SP: u8 = 31;

/// Registers in a set: bit n is xn, bit 31 sp.
pub(crate) type RegisterMask = u32;

const ALL: RegisterMask = u32::MAX;
/// What functions may change, and what calls them: x0–x18 and x30 (AAPCS64, section 6.1.1).
const CALLER_SAVED: RegisterMask = 0x4007_ffff;

/// A memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    /// 0: varies.
    pub(crate) size_bytes: u32,
    pub(crate) address: AddressExpression,
}

/// What becomes of registers. Numbers are DWARF's: 31 is sp; where it would be the register that is zero, another variant says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing that is told.
    None,
    /// `to = from + by`; `is_wide`: of 64 bits.
    Plus { to: u8, from: u8, by: i64, is_wide: bool },
    /// `to = value`.
    Value { to: u8, value: u64 },
    /// `to = base + index · scale`; the index is extended.
    Sum { to: u8, base: u8, index: u8, shift: u8, extension: IndexExtension },
    /// `to = from − something`.
    Minus { to: u8, from: u8 },
    /// Low bits of an address are cleared.
    Aligned { to: u8, from: u8 },
    /// One of two; 31: zero.
    Choice { to: u8, first: u8, second: u8 },
    /// The thread pointer.
    ThreadPointer { to: u8 },
    /// 64 bits, or two times 64 bits, are loaded; 31: nowhere.
    Load { to: u8, second: Option<u8> },
    /// 64 bits, or two times 64 bits, are stored; 31: zero.
    Store { from: u8, second: Option<u8> },
    /// All 64 bits of a register are compared with 0.
    Test { register: u8 },
}

/// A decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) transfer: Transfer,
    pub(crate) accesses: [Option<Access>; 2],
    /// The registers that it writes to, that of the write-back included.
    pub(crate) written: RegisterMask,
    pub(crate) effect: Effect,
    /// The base register that the access changes, and what is added to it; None: another register's value.
    pub(crate) write_back: Option<(u8, Option<i64>)>,
    pub(crate) sets_flags: bool,
}

impl Decoded {
    const NOTHING: Self = Self {
        transfer: Transfer::Next,
        accesses: [None, None],
        written: 0,
        effect: Effect::None,
        write_back: None,
        sets_flags: false,
    };
    const UNKNOWN: Self = Self { written: ALL, sets_flags: true, ..Self::NOTHING };

    fn to(transfer: Transfer) -> Self {
        Self { transfer, ..Self::NOTHING }
    }

    fn writing(written: RegisterMask) -> Self {
        Self { written, ..Self::NOTHING }
    }

    fn with(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    fn access(access: Access) -> Self {
        Self { accesses: [Some(access), None], ..Self::NOTHING }
    }

    /// The access changes its base.
    fn writing_back(self, base: u8, by: Option<i64>) -> Self {
        Self { written: self.written | 1 << base, write_back: Some((base, by)), ..self }
    }
}

/// An instruction's word, and its address.
#[derive(Clone, Copy)]
pub(crate) struct Word {
    bits: u32,
    pc: u64,
}

/// Decodes an instruction at `pc` (svma).
pub(crate) fn decode(bits: u32, pc: u64) -> Decoded {
    let word = Word::new(bits, pc);
    let decoded = word.decode();
    Decoded { sets_flags: decoded.sets_flags || word.sets_flags(), ..decoded }
}

impl Word {
    fn decode(self) -> Decoded {
        let bits = self.bits;
        match self.field(28, 25) {
            0b1000 | 0b1001 => self.immediate(),
            0b1010 | 0b1011 => self.branch(),
            0b0100 | 0b0110 | 0b1100 | 0b1110 => self.load_or_store(),
            0b0101 | 0b1101 => self.register(),
            0b0111 | 0b1111 => self.vector(),
            0b0010 => self.scalable(),
            // Undefined on purpose.
            0 if bits <= 0xffff => Decoded::to(Transfer::Undefined),
            _ => Decoded::UNKNOWN,
        }
    }

    /// Whether it changes the flags, or may: what computes with an S in its name; comparisons.
    fn sets_flags(self) -> bool {
        match self.field(28, 25) {
            0b1000 | 0b1001 => match self.field(25, 23) {
                0b010 => self.bit(29),
                0b100 => self.field(30, 29) == 3,
                _ => false,
            },
            0b0101 if !self.bit(24) => self.field(30, 29) == 3,
            0b0101 => self.bit(29),
            0b1101 => match self.field(24, 21) {
                0b0000 | 0b0010 | 0b0110 => self.bit(29),
                _ => false,
            },
            // FCMP, FCCMP
            0b1111 => self.matches(0xff20_fc07, 0x1e20_2000) || self.matches(0xff20_0c00, 0x1e20_0400),
            // Of SVE, MSR and what is unknown.
            0b1010 | 0b1011 => {
                self.matches(0xffc0_0000, 0xd500_0000) && !self.matches(0xffff_f01f, 0xd503_201f)
            }
            0b0100 | 0b0110 | 0b1100 | 0b1110 | 0b0111 => false,
            _ => true,
        }
    }
}

/// The register's bit, where its number 31 means the one that is zero.
pub(super) fn mask(register: u8) -> RegisterMask {
    if register == SP { 0 } else { 1 << register }
}

/// The register's bit, where its number 31 means sp.
pub(super) fn mask_sp(register: u8) -> RegisterMask {
    1 << register
}

fn number(register: u8) -> Register {
    Register(u16::from(register))
}

fn at(base: u8, disp: i64) -> AddressExpression {
    AddressExpression { base: Some(number(base)), disp, ..AddressExpression::NOTHING }
}

fn load(size_bytes: u32, address: AddressExpression) -> Access {
    Access { reads: true, writes: false, size_bytes, address }
}

fn store(size_bytes: u32, address: AddressExpression) -> Access {
    Access { reads: false, writes: true, size_bytes, address }
}

fn modify(size_bytes: u32, address: AddressExpression) -> Access {
    Access { reads: true, writes: true, size_bytes, address }
}

impl Word {
    pub(crate) fn new(bits: u32, pc: u64) -> Self {
        Self { bits, pc }
    }

    /// Bits `high` to `low`, both included.
    pub(crate) fn field(self, high: u32, low: u32) -> u32 {
        (self.bits >> low) & (u32::MAX >> (31 - (high - low)))
    }

    pub(crate) fn bit(self, at: u32) -> bool {
        self.field(at, at) == 1
    }

    /// As [`Self::field`], with a sign.
    fn signed(self, high: u32, low: u32) -> i64 {
        let width = high - low + 1;
        i64::from((self.field(high, low) << (32 - width)) as i32 >> (32 - width))
    }

    pub(crate) fn matches(self, mask: u32, value: u32) -> bool {
        self.bits & mask == value
    }

    pub(crate) fn rd(self) -> u8 {
        self.field(4, 0) as u8
    }

    pub(crate) fn rn(self) -> u8 {
        self.field(9, 5) as u8
    }

    pub(crate) fn rm(self) -> u8 {
        self.field(20, 16) as u8
    }

    pub(crate) fn rt2(self) -> u8 {
        self.field(14, 10) as u8
    }

    /// Whether it is one of 64 bits.
    pub(crate) fn is_wide(self) -> bool {
        self.bit(31)
    }

    /// C4.1.93, data processing with immediates.
    fn immediate(self) -> Decoded {
        let (rd, rn) = (self.rd(), self.rn());
        match self.field(25, 23) {
            // ADR, ADRP
            0b000 | 0b001 => {
                let offset = self.signed(23, 5) << 2 | i64::from(self.field(30, 29));
                let value = if self.is_wide() {
                    (self.pc & !0xfff).wrapping_add_signed(offset << 12)
                } else {
                    self.pc.wrapping_add_signed(offset)
                };
                self.valued(rd, value)
            }
            // ADD, ADDS, SUB, SUBS
            0b010 => {
                let immediate = i64::from(self.field(21, 10)) << if self.bit(22) { 12 } else { 0 };
                let by = if self.bit(30) { -immediate } else { immediate };
                let sets_flags = self.bit(29);
                if sets_flags && rd == SP {
                    let effect = match (self.is_wide(), by) {
                        (true, 0) => Effect::Test { register: rn },
                        _ => Effect::None,
                    };
                    return Decoded::NOTHING.with(effect);
                }
                Decoded::writing(mask_sp(rd)).with(Effect::Plus {
                    to: rd,
                    from: rn,
                    by,
                    is_wide: self.is_wide(),
                })
            }
            // SMAX and its like; ADDG, SUBG
            0b011 if self.bit(22) => Decoded::writing(mask(rd)),
            0b011 => Decoded::writing(mask_sp(rd)),
            // AND, ORR, EOR, ANDS
            0b100 => {
                let (is_and, sets_flags) = (matches!(self.field(30, 29), 0 | 3), self.field(30, 29) == 3);
                let written = if sets_flags { mask(rd) } else { mask_sp(rd) };
                let immediate = self.bit_mask();
                let effect = match immediate {
                    _ if !self.is_wide() || written == 0 => Effect::None,
                    Some(value) if self.field(30, 29) == 1 && rn == SP => Effect::Value { to: rd, value },
                    Some(value) if is_and && rn != SP && value.wrapping_neg().is_power_of_two() => {
                        Effect::Aligned { to: rd, from: rn }
                    }
                    _ => Effect::None,
                };
                Decoded::writing(written).with(effect)
            }
            // MOVN, MOVZ, MOVK
            0b101 => {
                let value = u64::from(self.field(20, 5)) << (16 * self.field(22, 21));
                match self.field(30, 29) {
                    0 if self.is_wide() => self.valued(rd, !value),
                    2 if self.is_wide() => self.valued(rd, value),
                    _ => Decoded::writing(mask(rd)),
                }
            }
            // Bit fields; EXTR; AUTIASPPC and AUTIBSPPC, which change x30
            _ if self.bits >> 23 == 0b1_1110_0111 => Decoded::writing(1 << 30),
            _ => Decoded::writing(mask(rd)),
        }
    }

    fn valued(self, to: u8, value: u64) -> Decoded {
        let effect = if to == SP { Effect::None } else { Effect::Value { to, value } };
        Decoded::writing(mask(to)).with(effect)
    }

    /// `DecodeBitMasks` of chapter J1, of 64 bits: the immediate of logical instructions.
    fn bit_mask(self) -> Option<u64> {
        let (n, imms, immr) = (self.field(22, 22), self.field(15, 10), self.field(21, 16));
        let length = 31 - (n << 6 | (!imms & 0x3f)).leading_zeros().min(31);
        if length < 1 {
            return None;
        }
        let size = 1u32 << length;
        let (ones, rotate) = ((imms & (size - 1)) + 1, immr & (size - 1));
        if ones == size {
            return None;
        }
        let element = (1u64 << ones) - 1;
        let whole = if size == 64 { u64::MAX } else { (1 << size) - 1 };
        let rotated = match rotate {
            0 => element,
            _ => (element >> rotate | element << (size - rotate)) & whole,
        };
        Some((0..64 / size).fold(0, |mask, copy| mask | rotated << (copy * size)))
    }

    /// C4.1.94, branches, exceptions and system instructions.
    fn branch(self) -> Decoded {
        let to = |offset: i64| self.pc.wrapping_add_signed(offset << 2);
        match self.field(31, 24) {
            // B, BL
            0x14..=0x17 => Decoded::to(Transfer::Jump(to(self.signed(25, 0)))),
            0x94..=0x97 => Self::call(Some(to(self.signed(25, 0)))),
            // B.cond, BC.cond; the last two conditions are always true
            0x54 => match (self.field(3, 0), to(self.signed(23, 5))) {
                (14 | 15, target) => Decoded::to(Transfer::Jump(target)),
                (_, target) => Decoded::to(Transfer::Branch(target)),
            },
            // RETAASPPC, RETABSPPC
            0x55 => Decoded::to(Transfer::Return),
            // CBZ, CBNZ
            0x34 | 0x35 | 0xb4 | 0xb5 => {
                let effect = if self.is_wide() && self.rd() != SP {
                    Effect::Test { register: self.rd() }
                } else {
                    Effect::None
                };
                Decoded::to(Transfer::Branch(to(self.signed(23, 5)))).with(effect)
            }
            // TBZ, TBNZ
            0x36 | 0x37 | 0xb6 | 0xb7 => Decoded::to(Transfer::Branch(to(self.signed(18, 5)))),
            // CB and its like
            0x74 | 0x75 | 0xf4 | 0xf5 => Decoded::to(Transfer::Branch(to(self.signed(13, 5)))),
            0xd4 => match (self.field(23, 21), self.field(1, 0)) {
                // SVC, HVC, SMC
                (0, 1..=3) => Self::call(None),
                // BRK, HLT
                (1 | 2, 0) => Decoded::to(Transfer::Breakpoint),
                _ => Decoded { transfer: Transfer::Undefined, ..Decoded::UNKNOWN },
            },
            0xd5 => self.system(),
            0xd6 | 0xd7 => self.indirect(),
            _ => Decoded { transfer: Transfer::Undefined, ..Decoded::UNKNOWN },
        }
    }

    fn call(target: Option<u64>) -> Decoded {
        Decoded { transfer: Transfer::Call(target), ..Decoded::writing(CALLER_SAVED) }
    }

    /// Unconditional branches to registers.
    fn indirect(self) -> Decoded {
        match self.field(24, 21) {
            // BR, BRAA…: x16 and x17 are for linkage stubs and tail calls (AAPCS64, section 6.1.1)
            0 | 8 if matches!(self.rn(), 16 | 17) => Decoded::to(Transfer::Leave),
            0 | 8 => Decoded::to(Transfer::IndirectJump),
            // BLR, BLRAA…
            1 | 9 => Self::call(None),
            // RET, RETAA…; ERET; DRPS
            2 | 4 | 5 => Decoded::to(Transfer::Return),
            _ => Decoded { transfer: Transfer::Undefined, ..Decoded::UNKNOWN },
        }
    }

    /// Hints, barriers, system registers and operations.
    fn system(self) -> Decoded {
        let rt = self.rd();
        if self.matches(0xffff_f01f, 0xd503_201f) {
            // Hints by CRm:op2
            return match self.field(11, 5) {
                // XPACLRI; PACIAZ, PACIASP, AUTIAZ, AUTIASP and those with key B
                7 | 24..=31 => Decoded::writing(1 << 30),
                // PACIA1716, PACIB1716, AUTIA1716, AUTIB1716
                8 | 10 | 12 | 14 => Decoded::writing(1 << 17),
                // CHKFEAT
                40 => Decoded::writing(1 << 16),
                _ => Decoded::NOTHING,
            };
        }
        if self.matches(0xffff_ffe0, 0xd53b_d040) {
            // MRS with TPIDR_EL0
            let effect = if rt == SP { Effect::None } else { Effect::ThreadPointer { to: rt } };
            return Decoded::writing(mask(rt)).with(effect);
        }
        if self.matches(0xffff_ffe0, 0xd50b_7420) {
            // DC ZVA: the block around the address
            let address = match rt {
                SP => AddressExpression { is_partial: true, ..AddressExpression::NOTHING },
                _ => at(rt, 0),
            };
            return Decoded::access(store(ZVA_BYTES, address));
        }
        match self.field(23, 21) {
            // MSR of a register or of a field, barriers, SYS
            0b000 => Decoded::NOTHING,
            // MRS, SYSL
            0b001 => Decoded::writing(mask(rt)),
            // Of 128 bits: SYSP and MSRR, MRRS
            0b010 => Decoded::NOTHING,
            _ => Decoded::UNKNOWN,
        }
    }

    /// C4.1.95, data processing with registers.
    fn register(self) -> Decoded {
        let (rd, rn, rm) = (self.rd(), self.rn(), self.rm());
        if !self.bit(28) {
            return match (self.bit(24), self.bit(21)) {
                (false, _) => self.logical(),
                (true, false) => self.add_shifted(),
                (true, true) => self.add_extended(),
            };
        }
        match self.field(24, 21) {
            // ADC, SBC; RMIF and SETF8 set flags only; ADDPT, SUBPT
            0b0000 => match self.field(15, 10) {
                0 => Decoded::writing(mask(rd)),
                _ if self.field(14, 10) == 1 || self.field(13, 10) == 2 => Decoded::NOTHING,
                _ if self.field(15, 13) == 1 => Decoded::writing(mask_sp(rd)),
                _ => Decoded::UNKNOWN,
            },
            // CCMN, CCMP
            0b0010 => Decoded::NOTHING,
            // CSEL, CSINC, CSINV, CSNEG
            0b0100 => {
                let is_plain = self.is_wide() && !self.bit(30) && self.field(11, 10) == 0;
                let effect = match is_plain && rd != SP {
                    true => Effect::Choice { to: rd, first: rn, second: rm },
                    false => Effect::None,
                };
                Decoded::writing(mask(rd)).with(effect)
            }
            // With one or two sources; IRG may write to sp
            0b0110 if self.matches(0xffe0_fc00, 0x9ac0_1000) => Decoded::writing(mask_sp(rd)),
            0b0110 => Decoded::writing(mask(rd)),
            // With three
            0b1000..=0b1111 => Decoded::writing(mask(rd)),
            _ => Decoded::UNKNOWN,
        }
    }

    /// AND, ORR, EOR, ANDS of registers, one of them shifted.
    fn logical(self) -> Decoded {
        let (rd, rn, rm) = (self.rd(), self.rn(), self.rm());
        let is_shifted = self.field(15, 10) != 0 || self.field(23, 22) != 0;
        let effect = match (self.field(30, 29), self.bit(21)) {
            _ if is_shifted => Effect::None,
            // MOV
            (1, false) if rn == SP && rd != SP && rm == SP => Effect::Value { to: rd, value: 0 },
            (1, false) if rn == SP && rd != SP => {
                Effect::Plus { to: rd, from: rm, by: 0, is_wide: self.is_wide() }
            }
            // TST
            (3, false) if rd == SP && rn == rm && rn != SP && self.is_wide() => Effect::Test { register: rn },
            _ => Effect::None,
        };
        Decoded::writing(mask(rd)).with(effect)
    }

    /// ADD, SUB of registers, the second shifted.
    fn add_shifted(self) -> Decoded {
        let (rd, rn, rm) = (self.rd(), self.rn(), self.rm());
        let written = Decoded::writing(mask(rd));
        if rd == SP || rn == SP || rm == SP || !self.is_wide() {
            return written;
        }
        let shift = self.field(15, 10) as u8;
        written.with(match (self.bit(30), self.field(23, 22)) {
            (true, _) => Effect::Minus { to: rd, from: rn },
            (false, 0) => Effect::Sum { to: rd, base: rn, index: rm, shift, extension: IndexExtension::None },
            // Shifted to the right: an index still.
            (false, _) => Effect::Minus { to: rd, from: rn },
        })
    }

    /// ADD, SUB of registers, the second extended.
    fn add_extended(self) -> Decoded {
        let (rd, rn, rm) = (self.rd(), self.rn(), self.rm());
        let sets_flags = self.bit(29);
        let written = Decoded::writing(if sets_flags { mask(rd) } else { mask_sp(rd) });
        if (sets_flags && rd == SP) || rm == SP || !self.is_wide() {
            return written;
        }
        let shift = self.field(12, 10) as u8;
        written.with(match (self.bit(30), extension_of(self.field(15, 13))) {
            (false, Some(extension)) => Effect::Sum { to: rd, base: rn, index: rm, shift, extension },
            _ => Effect::Minus { to: rd, from: rn },
        })
    }

    /// C4.1.97, SIMD and floating point: what of it writes to general-purpose registers.
    fn vector(self) -> Decoded {
        let converts = self.matches(0x7f20_fc00, 0x1e20_0000) || self.matches(0x7f20_0000, 0x1e00_0000);
        let to_general = match (self.bit(21), self.field(18, 16)) {
            // FCVTNS and FCVTNU with their like, FCVTAS, FCVTAU, FMOV
            (true, 0 | 1 | 4 | 5 | 6) => true,
            // FCVTZS, FCVTZU to fixed point
            (false, 0 | 1) => true,
            _ => false,
        };
        // SMOV, UMOV
        let is_element = self.matches(0xbfe0_fc00, 0x0e00_3c00) || self.matches(0xbfe0_fc00, 0x0e00_2c00);
        if (converts && to_general) || is_element {
            return Decoded::writing(mask(self.rd()));
        }
        Decoded::NOTHING
    }

    /// C4.1.38, SVE. Its vectors are as long as the processor has them: offsets in vectors are not known.
    fn scalable(self) -> Decoded {
        match self.field(31, 25) {
            0b100_0010 => self.gather_32(),
            0b101_0010 => self.contiguous_load(),
            0b110_0010 => self.gather_64(),
            0b111_0010 => self.scalable_store(),
            // What computes with integers and predicates may count in the general-purpose register that its lowest bits
            // number; the rest has vectors and predicates as results.
            _ if matches!(self.field(31, 24), 0x04 | 0x05 | 0x25) => Decoded::writing(mask_sp(self.rd())),
            _ => Decoded::NOTHING,
        }
    }

    /// A base, and what is not known: the vector of indices, or that of bases, which is all.
    fn with_vector(self, has_base: bool) -> AddressExpression {
        let base = has_base.then(|| number(self.rn()));
        AddressExpression { base, is_partial: true, ..AddressExpression::NOTHING }
    }

    /// A base and so many vectors.
    fn vectors_behind(self, vectors: i64) -> AddressExpression {
        AddressExpression { is_partial: vectors != 0, ..at(self.rn(), 0) }
    }

    /// A base and an index of so many bytes.
    fn elements_behind(self, scale: u32) -> AddressExpression {
        let index = Some(self.rm()).filter(|&index| index != SP).map(number);
        let scale = if index.is_some() { scale as u8 } else { 1 };
        AddressExpression { index, scale, ..at(self.rn(), 0) }
    }

    /// Bytes of an element in memory, by `dtype`.
    fn element_bytes(dtype: u32) -> u32 {
        [1, 1, 1, 1, 4, 2, 2, 2, 2, 2, 4, 4, 1, 1, 1, 8][dtype as usize & 15]
    }

    /// The offset of LDR and STR of a vector or predicate, in its lengths.
    fn unsized_offset(self) -> i64 {
        self.signed(21, 16) << 3 | i64::from(self.field(12, 10))
    }

    /// Gather loads by 32-bit indices, LD1R, LDR, prefetches.
    fn gather_32(self) -> Decoded {
        let (size, kind, operation) = (self.field(24, 23), self.field(22, 21), self.field(15, 13));
        match (size, kind, operation) {
            // PRFB and its like, by indices; by an offset
            (0, 1 | 3, 0..=3) | (3, 2 | 3, 0..=3) => Decoded::NOTHING,
            (3, 0 | 1, 0 | 2) => Decoded::access(load(0, self.vectors_behind(self.unsized_offset()))),
            (_, _, 0..=3) => Decoded::access(load(0, self.with_vector(true))),
            // Of a base and an index; of bases
            (_, 0, 6 | 7) => Decoded::NOTHING,
            // LDNT1; LD1 of bases
            (_, 0 | 1, _) => Decoded::access(load(0, self.with_vector(false))),
            // LD1R
            _ => {
                let bytes = Self::element_bytes(size << 2 | self.field(14, 13));
                Decoded::access(load(bytes, at(self.rn(), i64::from(self.field(21, 16) * bytes))))
            }
        }
    }

    /// Gather loads by 64-bit indices, prefetches.
    fn gather_64(self) -> Decoded {
        match (self.field(24, 23), self.field(22, 21), self.field(15, 13)) {
            // PRFB and its like
            (0, 1 | 3, 0..=3) | (0, 3, _) | (_, 0, 7) => Decoded::NOTHING,
            // LDNT1, LD1Q; LD1 of bases
            (_, 0 | 1, 4..) => Decoded::access(load(0, self.with_vector(false))),
            _ => Decoded::access(load(0, self.with_vector(true))),
        }
    }

    /// LD1 to LD4 of consecutive elements, with their kinds.
    fn contiguous_load(self) -> Decoded {
        let vectors = self.vectors_behind(self.signed(19, 16));
        let replicated = 16 << self.field(21, 21);
        Decoded::access(match self.field(15, 13) {
            // LD1RQ, LD1RO
            0 => load(replicated, self.elements_behind(1 << self.field(24, 23))),
            1 => load(replicated, at(self.rn(), self.signed(19, 16) * i64::from(replicated))),
            // LD1, LDFF1
            2 | 3 => load(0, self.elements_behind(Self::element_bytes(self.field(24, 21)))),
            // LDNT1, LD2 to LD4
            6 => load(0, self.elements_behind(1 << self.field(24, 23))),
            // The same, and LDNF1
            5 | 7 => load(0, vectors),
            // Of SVE 2.1
            _ => load(0, self.with_vector(true)),
        })
    }

    /// ST1 to ST4, STR.
    fn scalable_store(self) -> Decoded {
        let address = match (self.field(24, 22), self.field(15, 13)) {
            // STR
            (6, 0 | 2) => self.vectors_behind(self.unsized_offset()),
            // ST1; STNT1, ST2 to ST4
            (_, 2 | 3) => self.elements_behind(1 << self.field(24, 23)),
            (_, 7) => self.vectors_behind(self.signed(19, 16)),
            // STNT1 and ST1 of bases
            (_, 1) => self.with_vector(false),
            (_, 5) if self.bit(22) => self.with_vector(false),
            _ => self.with_vector(true),
        };
        Decoded::access(store(0, address))
    }
}

/// How an index of an address, or of a sum, is extended; None: from less than 32 bits.
fn extension_of(option: u32) -> Option<IndexExtension> {
    match option {
        0b010 => Some(IndexExtension::Unsigned32),
        0b110 => Some(IndexExtension::Signed32),
        0b011 | 0b111 => Some(IndexExtension::None),
        _ => None,
    }
}

/// How the address of a load or store is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Indexing {
    Offset,
    Post,
    Pre,
}

/// C4.1.96, loads and stores.
impl Word {
    fn load_or_store(self) -> Decoded {
        let is_vector = self.bit(26);
        match (self.field(29, 28), self.bit(24)) {
            (0b00, _) if is_vector && !self.bit(31) => self.structures(),
            (0b00, false) if !is_vector => self.exclusive(),
            (0b01, false) => self.literal(),
            (0b01, true) if !self.bit(21) && self.field(11, 10) == 0b01 => self.copy_or_set(),
            (0b01, true) if !is_vector && self.bit(21) && self.field(31, 30) == 0b11 => self.tags(),
            (0b01, true) if !is_vector && self.bit(21) && self.field(31, 30) == 0b00 => self.atomic_pair(),
            (0b01, true) if !self.bit(21) => self.ordered(),
            (0b10, _) => self.pair(),
            (0b11, true) => self.single(Indexing::Offset, None),
            (0b11, false) if !self.bit(21) => match self.field(11, 10) {
                0b01 => self.single(Indexing::Post, Some(self.signed(20, 12))),
                0b11 => self.single(Indexing::Pre, Some(self.signed(20, 12))),
                _ => self.single(Indexing::Offset, Some(self.signed(20, 12))),
            },
            (0b11, false) => match self.field(11, 10) {
                0b00 => self.atomic(),
                0b10 => self.indexed(),
                _ if !is_vector && self.field(31, 30) == 0b11 => self.authenticated(),
                // RPRFM and what is not allocated
                _ => Decoded::UNKNOWN,
            },
            _ => Decoded::UNKNOWN,
        }
    }

    /// The size of a single register's access, whether it loads, and whether it loads 64 bits as they are; None: a prefetch.
    fn single_access(self) -> Option<(u32, bool, bool)> {
        let (size, opc) = (self.field(31, 30), self.field(23, 22));
        if self.bit(26) {
            let bytes = if opc & 2 != 0 && size == 0 { 16 } else { 1 << size };
            return Some((bytes, opc & 1 != 0, false));
        }
        match (size, opc) {
            (3, 2 | 3) => None,
            (_, 0) => Some((1 << size, false, size == 3)),
            (_, 1) => Some((1 << size, true, size == 3)),
            _ => Some((1 << size, true, false)),
        }
    }

    /// A single register's load or store at an address.
    fn single_at(self, address: AddressExpression) -> Decoded {
        let rt = self.rd();
        let Some((bytes, loads, is_plain)) = self.single_access() else { return Decoded::NOTHING };
        let is_vector = self.bit(26);
        let decoded = Decoded::access(if loads { load(bytes, address) } else { store(bytes, address) });
        let effect = match (is_plain, loads) {
            (false, _) => Effect::None,
            (true, true) => Effect::Load { to: rt, second: None },
            (true, false) => Effect::Store { from: rt, second: None },
        };
        let written = if loads && !is_vector { mask(rt) } else { 0 };
        Decoded { written, effect, ..decoded }
    }

    /// LDR, STR with an immediate: `offset` bytes, or else a positive number of units.
    fn single(self, indexing: Indexing, offset: Option<i64>) -> Decoded {
        let bytes = self.single_access().map_or(8, |access| access.0);
        let by = offset.unwrap_or_else(|| i64::from(self.field(21, 10)) * i64::from(bytes));
        let disp = if indexing == Indexing::Post { 0 } else { by };
        let decoded = self.single_at(at(self.rn(), disp));
        match indexing {
            Indexing::Offset => decoded,
            Indexing::Post | Indexing::Pre => decoded.writing_back(self.rn(), Some(by)),
        }
    }

    /// LDR, STR with an index register.
    fn indexed(self) -> Decoded {
        let Some(extension) = extension_of(self.field(15, 13)) else { return Decoded::UNKNOWN };
        let bytes = self.single_access().map_or(8, |access| access.0);
        let index = Some(self.rm()).filter(|&index| index != SP).map(number);
        let scale = if self.bit(12) { bytes as u8 } else { 1 };
        self.single_at(AddressExpression {
            index,
            scale: if index.is_some() { scale } else { 1 },
            index_extension: if index.is_some() { extension } else { IndexExtension::None },
            ..at(self.rn(), 0)
        })
    }

    /// LDR, LDRSW of a literal.
    fn literal(self) -> Decoded {
        let svma = self.pc.wrapping_add_signed(self.signed(23, 5) << 2);
        let address = AddressExpression { disp: svma as i64, ..AddressExpression::NOTHING };
        let rt = self.rd();
        match (self.bit(26), self.field(31, 30)) {
            (_, 3) => Decoded { written: if self.bit(26) { ALL } else { 0 }, ..Decoded::NOTHING },
            (true, opc) => Decoded::access(load(4 << opc, address)),
            (false, opc) => {
                let is_plain = opc == 1;
                let decoded = Decoded::access(load(if is_plain { 8 } else { 4 }, address));
                let effect = if is_plain { Effect::Load { to: rt, second: None } } else { Effect::None };
                Decoded { written: mask(rt), effect, ..decoded }
            }
        }
    }

    /// LDP, STP and their like.
    fn pair(self) -> Decoded {
        let (rt, rt2, rn) = (self.rd(), self.rt2(), self.rn());
        let (is_vector, loads, opc) = (self.bit(26), self.bit(22), self.field(31, 30));
        // Bytes of each of the two, of what the offset is a multiple of.
        let (bytes, unit) = match (is_vector, opc) {
            (true, 0..=2) => (4 << opc, 4 << opc),
            (false, 0) => (4, 4),
            // LDPSW; STGP
            (false, 1) if loads => (4, 4),
            (false, 1) => (8, 16),
            // 3: LDTP, STTP
            (false, _) => (8, 8),
            _ => return Decoded::UNKNOWN,
        };
        let by = self.signed(21, 15) * unit;
        let indexing = match self.field(24, 23) {
            1 => Indexing::Post,
            3 => Indexing::Pre,
            _ => Indexing::Offset,
        };
        let address = at(rn, if indexing == Indexing::Post { 0 } else { by });
        let size_bytes = 2 * bytes as u32;
        let decoded =
            Decoded::access(if loads { load(size_bytes, address) } else { store(size_bytes, address) });
        let is_plain = !is_vector && bytes == 8;
        let effect = match (is_plain, loads) {
            (false, _) => Effect::None,
            (true, true) => Effect::Load { to: rt, second: Some(rt2) },
            (true, false) => Effect::Store { from: rt, second: Some(rt2) },
        };
        let written = if loads && !is_vector { mask(rt) | mask(rt2) } else { 0 };
        let decoded = Decoded { written, effect, ..decoded };
        match indexing {
            Indexing::Offset => decoded,
            Indexing::Post | Indexing::Pre => decoded.writing_back(rn, Some(by)),
        }
    }

    /// Exclusive and ordered loads and stores, CAS and CASP.
    fn exclusive(self) -> Decoded {
        let (size, rs, rt, rt2) = (self.field(31, 30), self.rm(), self.rd(), self.rt2());
        let (loads, address) = (self.bit(22), at(self.rn(), 0));
        let bytes = 1 << size;
        let effect = |load: bool| match (size, load) {
            (3, true) => Effect::Load { to: rt, second: None },
            (3, false) => Effect::Store { from: rt, second: None },
            _ => Effect::None,
        };
        match (self.bit(23), self.bit(21)) {
            // LDXR, STXR with their like
            (false, false) if loads => {
                Decoded { written: mask(rt), effect: effect(true), ..Decoded::access(load(bytes, address)) }
            }
            (false, false) => Decoded { written: mask(rs), ..Decoded::access(store(bytes, address)) },
            // LDXP, STXP with their like
            (false, true) if size >= 2 => {
                let both = 2 * bytes;
                if loads {
                    Decoded { written: mask(rt) | mask(rt2), ..Decoded::access(load(both, address)) }
                } else {
                    Decoded { written: mask(rs), ..Decoded::access(store(both, address)) }
                }
            }
            // CASP
            (false, true) => {
                let pair = mask(rs) | mask((rs + 1) & 31);
                Decoded { written: pair, ..Decoded::access(modify(8 << size, address)) }
            }
            // LDAR, STLR with their like
            (true, false) if loads => {
                Decoded { written: mask(rt), effect: effect(true), ..Decoded::access(load(bytes, address)) }
            }
            (true, false) => Decoded::access(store(bytes, address)).with(effect(false)),
            // CAS
            (true, true) => Decoded { written: mask(rs), ..Decoded::access(modify(bytes, address)) },
        }
    }

    /// LDADD and its like, SWP, LDAPR, LD64B and ST64B.
    fn atomic(self) -> Decoded {
        let (rs, rt, address) = (self.rm(), self.rd(), at(self.rn(), 0));
        let bytes = 1u32 << self.field(31, 30);
        let (is_other, opc) = (self.bit(15), self.field(14, 12));
        if self.bit(26) {
            // LDFADD and its like of floating point
            return Decoded::access(modify(bytes, address));
        }
        match (is_other, opc) {
            (false, _) | (true, 0) => {
                Decoded { written: mask(rt), ..Decoded::access(modify(bytes, address)) }
            }
            // LDAPR
            (true, 4) => {
                let effect = if bytes == 8 { Effect::Load { to: rt, second: None } } else { Effect::None };
                Decoded { written: mask(rt), effect, ..Decoded::access(load(bytes, address)) }
            }
            // ST64BV0, ST64BV; ST64B; LD64B to eight registers
            (true, 2 | 3) if bytes == 8 && !self.bit(23) => {
                Decoded { written: mask(rs), ..Decoded::access(store(64, address)) }
            }
            (true, 1) if bytes == 8 && !self.bit(23) => Decoded::access(store(64, address)),
            (true, 5) if bytes == 8 && !self.bit(23) => {
                Decoded { written: 0xff << rt, ..Decoded::access(load(64, address)) }
            }
            _ => Decoded::UNKNOWN,
        }
    }

    /// LDCLRP, LDSETP, SWPP.
    fn atomic_pair(self) -> Decoded {
        match self.field(15, 10) {
            0b000_100 | 0b001_100 | 0b100_000 => {
                let written = mask(self.rd()) | mask(self.rm());
                Decoded { written, ..Decoded::access(modify(16, at(self.rn(), 0))) }
            }
            _ => Decoded::UNKNOWN,
        }
    }

    /// LDAPUR, STLUR; LDIAPP, STILP; LDAPR and STLR with write-back.
    fn ordered(self) -> Decoded {
        let (rt, rn) = (self.rd(), self.rn());
        match (self.bit(26), self.field(11, 10)) {
            (false, 0b00) | (true, 0b10) => self.single_at(at(rn, self.signed(20, 12))),
            (false, 0b10) if self.field(31, 30) >= 2 => {
                let bytes = 1u32 << self.field(31, 30);
                let loads = self.bit(22);
                let is_pair = !self.bit(23);
                let size_bytes = if is_pair { 2 * bytes } else { bytes };
                let is_offset = is_pair && self.field(15, 12) == 1;
                // Loads go up behind, stores go down before.
                let by = if loads { i64::from(size_bytes) } else { -i64::from(size_bytes) };
                let disp = if loads || is_offset { 0 } else { by };
                let access =
                    if loads { load(size_bytes, at(rn, disp)) } else { store(size_bytes, at(rn, disp)) };
                let written = match (loads, is_pair) {
                    (true, true) => mask(rt) | mask(self.rm()),
                    (true, false) => mask(rt),
                    (false, _) => 0,
                };
                let decoded = Decoded { written, ..Decoded::access(access) };
                if is_offset { decoded } else { decoded.writing_back(rn, Some(by)) }
            }
            _ => Decoded::UNKNOWN,
        }
    }

    /// CPY and SET with their like. How far they are, and to which side they go on from there, depends on the processor.
    fn copy_or_set(self) -> Decoded {
        let (to, from) = (self.rd(), self.rm());
        let partial = |base: u8| AddressExpression { is_partial: true, ..at(base, 0) };
        let is_set = self.field(23, 22) == 0b11;
        let stores = store(0, partial(to));
        let written = mask(to) | mask(self.rn()) | if is_set { 0 } else { mask(from) };
        let loads = (!is_set).then(|| load(0, partial(from)));
        Decoded { written, accesses: [Some(stores), loads], ..Decoded::NOTHING }
    }

    /// STG, STZG, LDG and their like.
    fn tags(self) -> Decoded {
        let (rt, rn, opc) = (self.rd(), self.rn(), self.field(23, 22));
        let by = self.signed(20, 12) << 4;
        let indexing = match self.field(11, 10) {
            // LDG and LDGM; STGM, STZGM
            0b00 => return Decoded::writing(if matches!(opc, 1 | 3) { mask(rt) } else { 0 }),
            0b01 => Indexing::Post,
            0b11 => Indexing::Pre,
            _ => Indexing::Offset,
        };
        let address = at(rn, if indexing == Indexing::Post { 0 } else { by });
        let decoded = match opc {
            1 => Decoded::access(store(16, address)),
            3 => Decoded::access(store(32, address)),
            _ => Decoded::NOTHING,
        };
        match indexing {
            Indexing::Offset => decoded,
            Indexing::Post | Indexing::Pre => decoded.writing_back(rn, Some(by)),
        }
    }

    /// LDRAA, LDRAB.
    fn authenticated(self) -> Decoded {
        let (rt, rn) = (self.rd(), self.rn());
        let by = (self.signed(22, 22) << 9 | i64::from(self.field(20, 12))) << 3;
        let access = load(8, AddressExpression { disp: by, ..at(rn, 0) });
        let decoded = Decoded { written: mask(rt), ..Decoded::access(access) };
        if self.bit(11) { decoded.writing_back(rn, Some(by)) } else { decoded }
    }

    /// LD1 to LD4, ST1 to ST4.
    fn structures(self) -> Decoded {
        let (rm, rn, loads) = (self.rm(), self.rn(), self.bit(22));
        let writes_back = self.bit(23);
        let bytes = if self.bit(24) {
            let opcode = self.field(15, 13);
            let registers = ((opcode & 1) << 1 | self.field(21, 21)) + 1;
            let size = self.field(11, 10);
            let element = match opcode >> 1 {
                0 => 1,
                1 => 2,
                2 if size & 1 == 1 => 8,
                2 => 4,
                _ => 1 << size,
            };
            registers * element
        } else {
            let registers = match self.field(15, 12) {
                0b0000 | 0b0010 => 4,
                0b0100 | 0b0110 => 3,
                0b1000 | 0b1010 => 2,
                0b0111 => 1,
                _ => return Decoded::UNKNOWN,
            };
            registers * if self.bit(30) { 16 } else { 8 }
        };
        let decoded = Decoded::access(if loads { load(bytes, at(rn, 0)) } else { store(bytes, at(rn, 0)) });
        match (writes_back, rm) {
            (false, _) => decoded,
            (true, SP) => decoded.writing_back(rn, Some(i64::from(bytes))),
            (true, _) => decoded.writing_back(rn, None),
        }
    }
}

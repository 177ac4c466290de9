//! A64 instructions, as far as they may be copied: which fields number general registers, what is accessed, where execution goes.
//!
//! Whatever is not known to do the same in another place is [`Flow::Native`]: the burst ends before it. `memlens-code` decodes the same
//! instruction set to other questions, of any code there is. Of 28 million random words and 730,000 of libraries that are copied, both tell the
//! same operands, registers that are written, write-backs and targets.
//!
//! Source: Arm Architecture Reference Manual for A-profile architecture, DDI 0487 (issue L.a), chapter C4, "A64 instruction set
//! encoding".
//!
//! | left to the native code | why |
//! |---|---|
//! | SVE, SME | a burst's end puts back vector registers of 128 bits |
//! | exclusive loads and stores | stores between them end the monitor's watch (B2.12) |
//! | `YIELD`, `WFE` | the thread waits for another one |
//! | authenticated branches, and loads by authenticated pointers | the target would have to be authenticated by ourselves |
//! | cache maintenance, system registers but a few | code is about to change; what the registers are for is not ours |
//! | copies and sets of memory (`CPY`, `SET`), memory tags, 64-byte stores | how much they access is known to the processor alone |

use memlens_events::burst::{End, Use};

use super::assembler::{Gpr, LINK, SP};

/// What an instruction does with the flow of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// On to the next.
    Next,
    /// To the address, or on to the next.
    Conditional(u64),
    Jump(u64),
    Call(u64),
    JumpIndirect(Gpr),
    CallIndirect(Gpr),
    Return(Gpr),
    /// It is left to the native code.
    Native(End),
}

/// What must be written instead of the instruction itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Nothing else.
    Plain,
    /// `ADR`, `ADRP`: this value for the register.
    Value(u64),
    /// A load or prefetch relative to itself: the same of `[x0]`.
    Literal(u32),
}

/// Where a memory operand lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Base (31: sp), and what is added to it.
    Offset(Gpr, i64),
    /// Base and index, extended (`option` of the encoding) and shifted to the left.
    Index { base: Gpr, index: Gpr, option: u8, shift: u8 },
    /// Always there.
    Fixed(u64),
    /// The block of memory around the address in the register.
    Around(Gpr),
}

/// A memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    pub place: Place,
    pub used: Use,
    /// 0: as many as `DC ZVA` clears.
    pub size_bytes: u16,
}

/// General registers, as bits by number; bit 31 is sp.
pub type Set = u32;

/// A decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    pub flow: Flow,
    pub form: Form,
    /// Which of the fields [`RD`], [`RN`], [`RA`], [`RM`] number general registers.
    pub fields: u8,
    /// Registers that it reads, and those that it writes.
    pub read: Set,
    pub written: Set,
    pub operand: Option<Operand>,
    /// `register = other register + number`, of 64 bits; of a write-back the base.
    pub sum: Option<(Gpr, Gpr, i64)>,
    /// Whether it stores all of this register.
    pub stored: Option<Gpr>,
    /// Whether it reads flags, and whether it sets them all.
    pub reads_flags: bool,
    pub sets_flags: bool,
    /// Whether all of that is the whole of what it reads and writes beside memory: no vector register, no system register.
    pub is_whole: bool,
}

/// Bits 4:0.
pub const RD: u8 = 1;
/// Bits 9:5.
pub const RN: u8 = 2;
/// Bits 14:10.
pub const RA: u8 = 4;
/// Bits 20:16.
pub const RM: u8 = 8;
/// The fields, and where they begin.
pub const FIELDS: [(u8, u32); 4] = [(RD, 0), (RN, 5), (RA, 10), (RM, 16)];

impl Decoded {
    /// Left to the native code.
    pub const NATIVE: Self = Self::native(End::Instruction);

    const fn native(end: End) -> Self {
        Self {
            flow: Flow::Native(end),
            form: Form::Plain,
            fields: 0,
            read: 0,
            written: 0,
            operand: None,
            sum: None,
            stored: None,
            reads_flags: false,
            sets_flags: false,
            is_whole: false,
        }
    }

    /// All registers that it uses.
    pub fn used(&self) -> Set {
        self.read | self.written
    }

    fn operand(self, place: Place, used: Use, size_bytes: u32) -> Self {
        Self { operand: Some(Operand { place, used, size_bytes: size_bytes as u16 }), ..self }
    }

    fn vector(self) -> Self {
        Self { is_whole: false, ..self }
    }

    /// It adds a number to its base.
    fn writing_back(self, base: Gpr, by: i64) -> Self {
        Self { written: self.written | 1 << base, sum: Some((base, base, by)), ..self }
    }
}

/// An instruction's word, and its address.
#[derive(Clone, Copy)]
struct Word {
    bits: u32,
    pc: u64,
}

/// Decodes an instruction.
pub fn decode(bits: u32, pc: u64) -> Decoded {
    let word = Word { bits, pc };
    match word.field(28, 25) {
        0b1000 | 0b1001 => word.immediate(),
        0b1010 | 0b1011 => word.branch(),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => word.load_or_store(),
        0b0101 | 0b1101 => word.registers(),
        0b0111 | 0b1111 => word.floating(),
        _ => Decoded::NATIVE,
    }
}

/// The register's bit, where its number 31 means the one that is zero.
fn bit_of(register: Gpr) -> Set {
    if register == SP { 0 } else { 1 << register }
}

impl Word {
    /// Bits `high` to `low`, both included.
    fn field(self, high: u32, low: u32) -> u32 {
        (self.bits >> low) & (u32::MAX >> (31 - (high - low)))
    }

    fn bit(self, at: u32) -> bool {
        self.field(at, at) == 1
    }

    /// As [`Self::field`], with a sign.
    fn signed(self, high: u32, low: u32) -> i64 {
        let width = high - low + 1;
        i64::from((self.field(high, low) << (32 - width)) as i32 >> (32 - width))
    }

    fn matches(self, mask: u32, value: u32) -> bool {
        self.bits & mask == value
    }

    fn rd(self) -> Gpr {
        self.field(4, 0) as Gpr
    }

    fn rn(self) -> Gpr {
        self.field(9, 5) as Gpr
    }

    fn rm(self) -> Gpr {
        self.field(20, 16) as Gpr
    }

    /// It reads these fields' registers and writes those.
    fn plain(self, reads: u8, writes: u8) -> Decoded {
        let set = |fields: u8| {
            let mut set = 0;
            for (field, at) in FIELDS {
                if fields & field != 0 {
                    set |= bit_of(self.field(at + 4, at) as Gpr);
                }
            }
            set
        };
        Decoded {
            flow: Flow::Next,
            fields: reads | writes,
            read: set(reads),
            written: set(writes),
            is_whole: true,
            ..Decoded::NATIVE
        }
    }

    /// The same, where register 31 is sp in a base or destination.
    fn with_sp(self, decoded: Decoded, fields: u8) -> Decoded {
        let mut decoded = decoded;
        if fields & RD != 0 && self.rd() == SP {
            decoded.written |= 1 << SP;
        }
        if fields & RN != 0 && self.rn() == SP {
            decoded.read |= 1 << SP;
        }
        decoded
    }

    /// C4.1.93, data processing with immediates.
    fn immediate(self) -> Decoded {
        match self.field(25, 23) {
            // ADR, ADRP
            0b000 | 0b001 => {
                let offset = self.signed(23, 5) << 2 | i64::from(self.field(30, 29));
                let value = match self.bit(31) {
                    true => (self.pc & !0xfff).wrapping_add_signed(offset << 12),
                    false => self.pc.wrapping_add_signed(offset),
                };
                Decoded { form: Form::Value(value), ..self.plain(0, RD) }
            }
            // ADD, ADDS, SUB, SUBS
            0b010 => {
                let sets_flags = self.bit(29);
                let decoded = self.with_sp(self.plain(RN, RD), if sets_flags { RN } else { RN | RD });
                let value = i64::from(self.field(21, 10)) << if self.bit(22) { 12 } else { 0 };
                let by = if self.bit(30) { -value } else { value };
                let is_known = self.bit(31) && !(sets_flags && self.rd() == SP);
                let sum = is_known.then_some((self.rd(), self.rn(), by));
                Decoded { sum, sets_flags, ..decoded }
            }
            // ADDG, SUBG; SMAX and its like
            0b011 => Decoded::NATIVE,
            // AND, ORR, EOR, ANDS
            0b100 => {
                let sets_flags = self.field(30, 29) == 3;
                let decoded = self.plain(RN, RD);
                let decoded = if sets_flags { decoded } else { self.with_sp(decoded, RD) };
                Decoded { sets_flags, ..decoded }
            }
            // MOVN, MOVZ, MOVK
            0b101 => match self.field(30, 29) {
                0 | 2 => self.plain(0, RD),
                3 => self.plain(RD, RD),
                _ => Decoded::NATIVE,
            },
            // SBFM, BFM, UBFM
            0b110 => match self.field(30, 29) {
                0 | 2 => self.plain(RN, RD),
                1 => self.plain(RN | RD, RD),
                _ => Decoded::NATIVE,
            },
            // EXTR; others change x30
            _ if self.matches(0x7fa0_0000, 0x1380_0000) => self.plain(RN | RM, RD),
            _ => Decoded::NATIVE,
        }
    }

    /// C4.1.94, branches, exceptions and system instructions.
    fn branch(self) -> Decoded {
        let to = |offset: i64| self.pc.wrapping_add_signed(offset << 2);
        let plain = self.plain(0, 0);
        match self.field(31, 24) {
            // B, BL
            0x14..=0x17 => Decoded { flow: Flow::Jump(to(self.signed(25, 0))), ..plain },
            0x94..=0x97 => Decoded { flow: Flow::Call(to(self.signed(25, 0))), written: 1 << LINK, ..plain },
            // B.cond, BC.cond; the last two conditions are always true
            0x54 if self.field(3, 0) < 14 => {
                Decoded { flow: Flow::Conditional(to(self.signed(23, 5))), reads_flags: true, ..plain }
            }
            // CBZ, CBNZ
            0x34 | 0x35 | 0xb4 | 0xb5 => {
                Decoded { flow: Flow::Conditional(to(self.signed(23, 5))), ..self.plain(RD, 0) }
            }
            // TBZ, TBNZ
            0x36 | 0x37 | 0xb6 | 0xb7 => {
                Decoded { flow: Flow::Conditional(to(self.signed(18, 5))), ..self.plain(RD, 0) }
            }
            // SVC
            0xd4 if self.matches(0xffe0_001f, 0xd400_0001) => Decoded::native(End::SystemCall),
            0xd5 => self.system(),
            // BR, BLR, RET without authentication
            0xd6 if self.matches(0xff9f_fc1f, 0xd61f_0000) && self.field(22, 21) < 3 => {
                let register = self.rn();
                let decoded = self.plain(RN, 0);
                match self.field(22, 21) {
                    _ if register == SP => Decoded::NATIVE,
                    0 => Decoded { flow: Flow::JumpIndirect(register), ..decoded },
                    1 => Decoded { flow: Flow::CallIndirect(register), written: 1 << LINK, ..decoded },
                    _ => Decoded { flow: Flow::Return(register), ..decoded },
                }
            }
            _ => Decoded::NATIVE,
        }
    }

    /// Hints, barriers, a few system registers, `DC ZVA`.
    fn system(self) -> Decoded {
        if self.matches(0xffff_f01f, 0xd503_201f) {
            // By CRm:op2.
            return match self.field(11, 5) {
                // NOP, SEV, SEVL, DGH; ESB, PSB, TSB, CSDB, CLRBHB; BTI
                0 | 4..=6 | 16..=18 | 20 | 22 | 32 | 34 | 36 | 38 => self.plain(0, 0),
                // XPACLRI; PACIAZ, PACIASP, AUTIAZ, AUTIASP and those with key B
                7 | 24..=31 => Decoded { read: 1 << LINK | 1 << SP, written: 1 << LINK, ..self.plain(0, 0) },
                // PACIA1716, PACIB1716, AUTIA1716, AUTIB1716
                8 | 10 | 12 | 14 => Decoded { read: 3 << 16, written: 1 << 17, ..self.plain(0, 0) },
                _ => Decoded::NATIVE,
            };
        }
        // CLREX, DSB, DMB, ISB, SB
        if self.matches(0xffff_f01f, 0xd503_301f) && matches!(self.field(7, 5), 2 | 4..=7) {
            return self.plain(0, 0).vector();
        }
        // DC ZVA
        if self.matches(0xffff_ffe0, 0xd50b_7420) && self.rd() != SP {
            return self.plain(RD, 0).operand(Place::Around(self.rd()), Use::Write, 0);
        }
        match self.bits & 0xffff_ffe0 {
            // MRS of TPIDR_EL0, TPIDRRO_EL0; FPCR, FPSR; CTR_EL0, DCZID_EL0; CNTFRQ_EL0, CNTVCT_EL0
            0xd53b_d040 | 0xd53b_d060 | 0xd53b_4400 | 0xd53b_4420 | 0xd53b_0020 | 0xd53b_00e0
            | 0xd53b_e000 | 0xd53b_e040 => self.plain(0, RD).vector(),
            // MSR of FPCR, FPSR
            0xd51b_4400 | 0xd51b_4420 => self.plain(RD, 0).vector(),
            // MRS and MSR of NZCV
            0xd53b_4200 => Decoded { reads_flags: true, ..self.plain(0, RD) },
            0xd51b_4200 => Decoded { sets_flags: true, ..self.plain(RD, 0) },
            _ => Decoded::NATIVE,
        }
    }

    /// C4.1.95, data processing with registers.
    fn registers(self) -> Decoded {
        if !self.bit(28) {
            return match (self.bit(24), self.bit(21)) {
                // Logical
                (false, _) => Decoded { sets_flags: self.field(30, 29) == 3, ..self.plain(RN | RM, RD) },
                // ADD, SUB, shifted
                (true, false) => Decoded { sets_flags: self.bit(29), ..self.plain(RN | RM, RD) },
                // The same, extended
                (true, true) if self.field(23, 22) == 0 => {
                    let sets_flags = self.bit(29);
                    let decoded = self.plain(RN | RM, RD);
                    let decoded = self.with_sp(decoded, if sets_flags { RN } else { RN | RD });
                    Decoded { sets_flags, ..decoded }
                }
                _ => Decoded::NATIVE,
            };
        }
        match self.field(24, 21) {
            // ADC, SBC
            0b0000 if self.field(15, 10) == 0 => {
                let decoded = self.plain(RN | RM, RD);
                Decoded { reads_flags: true, sets_flags: self.bit(29), ..decoded }
            }
            // CCMN, CCMP
            0b0010 => {
                let reads = if self.bit(11) { RN } else { RN | RM };
                Decoded { reads_flags: true, sets_flags: true, ..self.plain(reads, 0) }
            }
            // CSEL, CSINC, CSINV, CSNEG
            0b0100 => Decoded { reads_flags: true, ..self.plain(RN | RM, RD) },
            // Two sources: UDIV, SDIV, shifts, CRC32; the rest is of tags and authentication, some of it writes sp
            0b0110 if !self.bit(30) => match self.field(15, 10) {
                2 | 3 | 8..=11 | 16..=23 if !self.bit(29) => self.plain(RN | RM, RD),
                _ => Decoded::NATIVE,
            },
            // One source: RBIT … CLS, CTZ, CNT, ABS
            0b0110 if self.field(20, 16) == 0 && !self.bit(29) && self.field(15, 10) < 9 => {
                self.plain(RN, RD)
            }
            // Authentication codes of data
            0b0110 if self.field(20, 16) == 1 && self.bit(31) && !self.bit(29) => match self.field(15, 10) {
                0..=7 => self.with_sp(self.plain(RN | RD, RD), RN),
                8..=17 => self.plain(RD, RD),
                _ => Decoded::NATIVE,
            },
            // Three sources; of SMULH and UMULH the third field is all ones
            0b1000..=0b1111 => self.plain(RN | RM | RA, RD),
            _ => Decoded::NATIVE,
        }
    }

    /// C4.1.97, SIMD and floating point.
    fn floating(self) -> Decoded {
        let between = if self.matches(0x7f20_fc00, 0x1e20_0000) {
            // By rmode and opcode: to general registers, or from them.
            match (self.field(20, 19), self.field(18, 16)) {
                (_, 0 | 1) | (0, 4 | 5) | (0 | 1 | 3, 6) => self.plain(0, RD),
                (0, 2 | 3) | (0 | 1, 7) => self.plain(RN, 0),
                _ => return Decoded::NATIVE,
            }
        } else if self.matches(0x7f20_0000, 0x1e00_0000) {
            match (self.field(20, 19), self.field(18, 16)) {
                (3, 0 | 1) => self.plain(0, RD),
                (0, 2 | 3) => self.plain(RN, 0),
                _ => return Decoded::NATIVE,
            }
        } else if self.matches(0xbfe0_fc00, 0x0e00_3c00) || self.matches(0xbfe0_fc00, 0x0e00_2c00) {
            // UMOV, SMOV
            self.plain(0, RD)
        } else if self.matches(0xbfe0_fc00, 0x0e00_0c00) || self.matches(0xffe0_fc00, 0x4e00_1c00) {
            // DUP, INS of a general register
            self.plain(RN, 0)
        } else {
            self.plain(0, 0)
        };
        between.vector()
    }

    /// C4.1.96, loads and stores.
    fn load_or_store(self) -> Decoded {
        let is_vector = self.bit(26);
        match (self.field(29, 28), self.bit(24)) {
            (0b00, _) if is_vector && !self.bit(31) => self.structures(),
            (0b00, false) if !is_vector => self.ordered(),
            (0b01, false) => self.literal(),
            (0b01, true) if !is_vector && !self.bit(21) && self.field(11, 10) == 0 => {
                // LDAPUR, STLUR
                self.single(Place::Offset(self.rn(), self.signed(20, 12)))
            }
            (0b10, _) => self.pair(),
            (0b11, true) => {
                let units = i64::from(self.field(21, 10));
                self.single(Place::Offset(self.rn(), units * self.single_bytes()))
            }
            (0b11, false) if !self.bit(21) => {
                let by = self.signed(20, 12);
                let is_prefetch = !is_vector && self.field(31, 30) == 3 && self.field(23, 22) == 2;
                match self.field(11, 10) {
                    0b00 => self.single(Place::Offset(self.rn(), by)),
                    _ if is_prefetch => Decoded::NATIVE,
                    0b01 => self.single(Place::Offset(self.rn(), 0)).writing_back(self.rn(), by),
                    // Unprivileged: as any other, where nobody is privileged
                    0b10 if is_vector => Decoded::NATIVE,
                    0b10 => self.single(Place::Offset(self.rn(), by)),
                    _ => self.single(Place::Offset(self.rn(), by)).writing_back(self.rn(), by),
                }
            }
            (0b11, false) => match self.field(11, 10) {
                0b00 if !is_vector => self.atomic(),
                0b10 => self.indexed(),
                _ => Decoded::NATIVE,
            },
            _ => Decoded::NATIVE,
        }
    }

    /// The fields that such an instruction has besides the registers that it loads or stores.
    fn addressed(self, decoded: Decoded, place: Place, used: Use, size_bytes: u32) -> Decoded {
        self.with_sp(decoded, RN).operand(place, used, size_bytes)
    }

    /// The bytes of a single register's access.
    fn single_bytes(self) -> i64 {
        let size = self.field(31, 30);
        if self.bit(26) && self.bit(23) && size == 0 { 16 } else { 1 << size }
    }

    /// A single register's load, store or prefetch.
    fn single(self, place: Place) -> Decoded {
        let (size, opc, bytes) = (self.field(31, 30), self.field(23, 22), self.single_bytes() as u32);
        let index = if matches!(place, Place::Index { .. }) { RM } else { 0 };
        if self.bit(26) {
            if opc >= 2 && size != 0 {
                return Decoded::NATIVE;
            }
            let used = if opc & 1 != 0 { Use::Read } else { Use::Write };
            return self.addressed(self.plain(RN | index, 0).vector(), place, used, bytes);
        }
        match (size, opc) {
            (_, 0) => {
                let decoded = self.plain(RN | RD | index, 0);
                let stored = (size == 3).then_some(self.rd());
                Decoded { stored, ..self.addressed(decoded, place, Use::Write, bytes) }
            }
            // PRFM; those of ranges have other operands
            (3, 2) if self.rd() & 0x18 == 0x18 => Decoded::NATIVE,
            (3, 2) => self.addressed(self.plain(RN | index, 0), place, Use::Prefetch, 1),
            (2 | 3, 3) => Decoded::NATIVE,
            _ => self.addressed(self.plain(RN | index, RD), place, Use::Read, bytes),
        }
    }

    /// LDR, STR with an index register.
    fn indexed(self) -> Decoded {
        let option = self.field(15, 13) as u8;
        if option & 2 == 0 {
            return Decoded::NATIVE;
        }
        let shift = if self.bit(12) { self.single_bytes().trailing_zeros() as u8 } else { 0 };
        self.single(Place::Index { base: self.rn(), index: self.rm(), option, shift })
    }

    /// LDR, LDRSW, PRFM of a literal.
    fn literal(self) -> Decoded {
        let address = self.pc.wrapping_add_signed(self.signed(23, 5) << 2);
        let register = u32::from(self.rd());
        let (decoded, used, bytes, load) = match (self.bit(26), self.field(31, 30)) {
            (false, 0) => (self.plain(0, RD), Use::Read, 4, 0xb940_0000),
            (false, 1) => (self.plain(0, RD), Use::Read, 8, 0xf940_0000),
            (false, 2) => (self.plain(0, RD), Use::Read, 4, 0xb980_0000),
            (false, _) => (self.plain(0, 0), Use::Prefetch, 1, 0xf980_0000),
            (true, 0) => (self.plain(0, 0).vector(), Use::Read, 4, 0xbd40_0000),
            (true, 1) => (self.plain(0, 0).vector(), Use::Read, 8, 0xfd40_0000),
            (true, 2) => (self.plain(0, 0).vector(), Use::Read, 16, 0x3dc0_0000),
            _ => return Decoded::NATIVE,
        };
        let form = Form::Literal(load | register);
        Decoded { form, ..decoded }.operand(Place::Fixed(address), used, bytes)
    }

    /// LDP, STP and their like: one access of both.
    fn pair(self) -> Decoded {
        let (is_vector, loads, opc) = (self.bit(26), self.bit(22), self.field(31, 30));
        let bytes: u32 = match (is_vector, opc, loads) {
            (true, 0..=2, _) => 4 << opc,
            (false, 0, _) => 4,
            (false, 2, _) => 8,
            // LDPSW
            (false, 1, true) if self.field(24, 23) != 0 => 4,
            _ => return Decoded::NATIVE,
        };
        let by = self.signed(21, 15) * i64::from(bytes);
        let at = if self.field(24, 23) == 1 { 0 } else { by };
        let used = if loads { Use::Read } else { Use::Write };
        let decoded = match (is_vector, loads) {
            (true, _) => self.plain(RN, 0).vector(),
            (false, true) => self.plain(RN, RD | RA),
            (false, false) => self.plain(RN | RD | RA, 0),
        };
        let decoded = self.addressed(decoded, Place::Offset(self.rn(), at), used, 2 * bytes);
        if self.bit(23) { decoded.writing_back(self.rn(), by) } else { decoded }
    }

    /// LDAR, STLR with their like; CAS, CASP.
    fn ordered(self) -> Decoded {
        let bytes = 1 << self.field(31, 30);
        let place = Place::Offset(self.rn(), 0);
        match (self.bit(23), self.bit(21), self.bit(22)) {
            // The other fields are all ones: they number nothing.
            (true, false, _) if self.field(20, 16) != 31 || self.field(14, 10) != 31 => Decoded::NATIVE,
            (true, false, true) => self.addressed(self.plain(RN, RD), place, Use::Read, bytes),
            (true, false, false) => {
                let stored = (bytes == 8).then_some(self.rd());
                Decoded { stored, ..self.addressed(self.plain(RN | RD, 0), place, Use::Write, bytes) }
            }
            (true, true, _) if self.field(14, 10) == 31 => {
                let decoded = self.plain(RN | RD | RM, RM);
                self.addressed(decoded, place, Use::Both, bytes)
            }
            // CASP: of neighbouring registers, of which none can be renamed alone
            (false, true, _) if !self.bit(31) && self.field(14, 10) == 31 => {
                let pair = |first: Gpr| bit_of(first) | bit_of((first + 1) & 31);
                let (expected, new) = (pair(self.rm()), pair(self.rd()));
                if (expected | new) & 1 << 28 != 0 {
                    return Decoded::NATIVE;
                }
                let decoded = self.plain(RN, 0);
                let (read, written) = (decoded.read | expected | new, expected);
                let decoded = Decoded { read, written, ..decoded };
                self.addressed(decoded, place, Use::Both, 8 << self.field(30, 30))
            }
            _ => Decoded::NATIVE,
        }
    }

    /// LDADD and its like, SWP, LDAPR.
    fn atomic(self) -> Decoded {
        let (bytes, place) = (1 << self.field(31, 30), Place::Offset(self.rn(), 0));
        match (self.bit(15), self.field(14, 12)) {
            (false, _) | (true, 0) => self.addressed(self.plain(RN | RM, RD), place, Use::Both, bytes),
            (true, 4) if self.field(23, 22) == 2 && self.rm() == SP => {
                self.addressed(self.plain(RN, RD), place, Use::Read, bytes)
            }
            _ => Decoded::NATIVE,
        }
    }

    /// LD1 to LD4, ST1 to ST4: one access of all registers.
    fn structures(self) -> Decoded {
        let (rm, rn, writes_back) = (self.rm(), self.rn(), self.bit(23));
        let bytes = if self.bit(24) {
            let opcode = self.field(15, 13);
            let (size, registers) = (self.field(11, 10), ((opcode & 1) << 1 | self.field(21, 21)) + 1);
            let element = match (opcode >> 1, size) {
                (0, _) => 1,
                (1, 0 | 2) => 2,
                (2, 0) => 4,
                (2, 1) if !self.bit(12) => 8,
                (3, _) if self.bit(22) && !self.bit(12) => 1 << size,
                _ => return Decoded::NATIVE,
            };
            registers * element
        } else {
            let registers = match self.field(15, 12) {
                0b0000 | 0b0010 => 4,
                0b0100 | 0b0110 => 3,
                0b1000 | 0b1010 => 2,
                0b0111 => 1,
                _ => return Decoded::NATIVE,
            };
            if self.bit(21) {
                return Decoded::NATIVE;
            }
            registers * if self.bit(30) { 16 } else { 8 }
        };
        let used = if self.bit(22) { Use::Read } else { Use::Write };
        let by_register = writes_back && rm != SP;
        let decoded = self.plain(if by_register { RN | RM } else { RN }, 0).vector();
        let decoded = self.addressed(decoded, Place::Offset(rn, 0), used, bytes);
        match (writes_back, rm) {
            (false, 0) => decoded,
            (false, _) => Decoded::NATIVE,
            (true, SP) => decoded.writing_back(rn, i64::from(bytes)),
            (true, _) => Decoded { written: decoded.written | 1 << rn, ..decoded },
        }
    }
}

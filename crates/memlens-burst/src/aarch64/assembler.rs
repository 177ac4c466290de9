//! The few instructions that we write ourselves. None of them changes a flag.
//!
//! Source of the encodings: Arm Architecture Reference Manual for A-profile architecture, DDI 0487 (issue L.a), chapter C6.

/// A general register by its number; 31: sp or zero, as the instruction has it.
pub type Gpr = u8;

/// The register that holds the thread's area during a burst.
pub const AREA: Gpr = 28;
/// The link register.
pub const LINK: Gpr = 30;
/// sp where an instruction can mean it, else the register that is zero.
pub const SP: Gpr = 31;

/// Where a branch stands whose distance is filled in later, by its place in the code.
#[derive(Clone, Copy, Debug)]
pub struct Gap(pub u64);

/// Writes machine code. Past the end it writes nothing and says so: see [`Assembler::is_full`].
#[derive(Debug)]
pub struct Assembler<'a> {
    code: &'a mut [u8],
    length: usize,
    /// Address at which the first byte will be executed.
    start: u64,
    is_full: bool,
}

fn bits(register: Gpr, at: u32) -> u32 {
    u32::from(register) << at
}

impl<'a> Assembler<'a> {
    pub fn new(code: &'a mut [u8], start: u64) -> Self {
        Self { code, length: 0, start, is_full: false }
    }

    /// Address of the next instruction.
    pub fn here(&self) -> u64 {
        self.start + self.length as u64
    }

    /// Whether something did not fit, or was too far away to be reached.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// An instruction as it is.
    pub fn word(&mut self, word: u32) {
        match self.code.get_mut(self.length..self.length + 4) {
            Some(place) => {
                place.copy_from_slice(&word.to_le_bytes());
                self.length += 4;
            }
            None => self.is_full = true,
        }
    }

    /// `str reg, [base, #offset]`; the offset is a multiple of 8.
    pub fn store(&mut self, reg: Gpr, base: Gpr, offset: u32) {
        debug_assert!(offset < 8 << 12 && offset.is_multiple_of(8));
        self.word(0xf900_0000 | (offset / 8) << 10 | bits(base, 5) | u32::from(reg));
    }

    /// `ldr reg, [base, #offset]`; the offset is a multiple of 8.
    pub fn load(&mut self, reg: Gpr, base: Gpr, offset: u32) {
        debug_assert!(offset < 8 << 12 && offset.is_multiple_of(8));
        self.word(0xf940_0000 | (offset / 8) << 10 | bits(base, 5) | u32::from(reg));
    }

    /// `str reg, [x28, #offset]`
    pub fn store_area(&mut self, reg: Gpr, offset: u32) {
        self.store(reg, AREA, offset);
    }

    /// `ldr reg, [x28, #offset]`
    pub fn load_area(&mut self, reg: Gpr, offset: u32) {
        self.load(reg, AREA, offset);
    }

    fn pair(&mut self, opcode: u32, (first, second): (Gpr, Gpr), base: Gpr, units: u32) {
        debug_assert!(units < 64);
        self.word(opcode | units << 15 | bits(second, 10) | bits(base, 5) | u32::from(first));
    }

    /// `stp first, second, [x28, #offset]`
    pub fn store_pair_area(&mut self, pair: (Gpr, Gpr), offset: u32) {
        self.pair(0xa900_0000, pair, AREA, offset / 8);
    }

    /// `ldp first, second, [x28, #offset]`
    pub fn load_pair_area(&mut self, pair: (Gpr, Gpr), offset: u32) {
        self.pair(0xa940_0000, pair, AREA, offset / 8);
    }

    /// `stp q, q + 1, [base, #offset]`
    pub fn store_vectors(&mut self, first: u8, base: Gpr, offset: u32) {
        self.pair(0xad00_0000, (first, first + 1), base, offset / 16);
    }

    /// `ldp q, q + 1, [base, #offset]`
    pub fn load_vectors(&mut self, first: u8, base: Gpr, offset: u32) {
        self.pair(0xad40_0000, (first, first + 1), base, offset / 16);
    }

    /// `mov to, from`, neither of them sp
    pub fn copy(&mut self, to: Gpr, from: Gpr) {
        self.word(0xaa00_03e0 | bits(from, 16) | u32::from(to));
    }

    /// `add to, from, #value`, where 31 is sp; below 2^24
    pub fn add_value(&mut self, to: Gpr, from: Gpr, value: u32) {
        self.add_or_subtract(0x9100_0000, to, from, value);
    }

    /// `sub to, from, #value`, where 31 is sp; below 2^24
    pub fn subtract_value(&mut self, to: Gpr, from: Gpr, value: u32) {
        self.add_or_subtract(0xd100_0000, to, from, value);
    }

    fn add_or_subtract(&mut self, opcode: u32, to: Gpr, from: Gpr, value: u32) {
        debug_assert!(value < 1 << 24);
        let (high, low) = (value >> 12, value & 0xfff);
        let mut from = from;
        if high != 0 {
            self.word(opcode | 1 << 22 | high << 10 | bits(from, 5) | u32::from(to));
            from = to;
        }
        if low != 0 || high == 0 {
            self.word(opcode | low << 10 | bits(from, 5) | u32::from(to));
        }
    }

    /// `add to, from, index, extend #shift`; `option` as in the encoding of loads; the base may be sp.
    pub fn add_extended(&mut self, to: Gpr, from: Gpr, index: Gpr, option: u8, shift: u8) {
        self.word(
            0x8b20_0000
                | bits(index, 16)
                | u32::from(option) << 13
                | u32::from(shift) << 10
                | bits(from, 5)
                | u32::from(to),
        );
    }

    /// `add to, first, second`
    pub fn add(&mut self, to: Gpr, first: Gpr, second: Gpr) {
        self.word(0x8b00_0000 | bits(second, 16) | bits(first, 5) | u32::from(to));
    }

    /// `sub to, first, second`
    pub fn subtract(&mut self, to: Gpr, first: Gpr, second: Gpr) {
        self.word(0xcb00_0000 | bits(second, 16) | bits(first, 5) | u32::from(to));
    }

    /// `eor to, first, second, lsr #shift`
    pub fn mix(&mut self, to: Gpr, first: Gpr, second: Gpr, shift: u32) {
        self.word(0xca40_0000 | bits(second, 16) | shift << 10 | bits(first, 5) | u32::from(to));
    }

    /// `ubfx to, from, #low, #width`
    pub fn extract(&mut self, to: Gpr, from: Gpr, low: u32, width: u32) {
        self.word(0xd340_0000 | low << 16 | (low + width - 1) << 10 | bits(from, 5) | u32::from(to));
    }

    /// `and to, from, #-(1 << low)`
    pub fn clear_low(&mut self, to: Gpr, from: Gpr, low: u32) {
        self.word(0x9240_0000 | (64 - low) << 16 | (63 - low) << 10 | bits(from, 5) | u32::from(to));
    }

    /// `ldr w, [base, index, lsl #2]`
    pub fn load_half(&mut self, reg: Gpr, base: Gpr, index: Gpr) {
        self.word(0xb860_7800 | bits(index, 16) | bits(base, 5) | u32::from(reg));
    }

    /// `reg = value`, by one to four instructions
    pub fn set(&mut self, reg: Gpr, value: u64) {
        let part = |value: u64, at: u32| (value >> (16 * at)) as u32 & 0xffff;
        let ones = (0..4).filter(|&at| part(value, at) == 0xffff).count();
        let zeros = (0..4).filter(|&at| part(value, at) == 0).count();
        let (first, rest) = if ones > zeros { (0x9280_0000, 0xffff) } else { (0xd280_0000, 0) };
        let mut is_first = true;
        for at in 0..4 {
            let wanted = part(value, at);
            if wanted == rest && !(is_first && at == 3) {
                continue;
            }
            let (opcode, immediate) = match is_first {
                // movn has the complement.
                true => (first, wanted ^ rest),
                false => (0xf280_0000, wanted),
            };
            is_first = false;
            self.word(opcode | at << 21 | immediate << 5 | u32::from(reg));
        }
    }

    /// `adrp reg, page`
    pub fn set_page(&mut self, reg: Gpr, page: u64) {
        debug_assert!(page.is_multiple_of(4096));
        let pages = (page.wrapping_sub(self.here() & !0xfff) as i64) >> 12;
        self.is_full |= !(-(1 << 20)..1 << 20).contains(&pages);
        let pages = pages as u32;
        self.word(0x9000_0000 | (pages & 3) << 29 | (pages >> 2 & 0x7_ffff) << 5 | u32::from(reg));
    }

    /// `br reg`
    pub fn branch_to(&mut self, reg: Gpr) {
        self.word(0xd61f_0000 | bits(reg, 5));
    }

    /// `blr reg`
    pub fn call(&mut self, reg: Gpr) {
        self.word(0xd63f_0000 | bits(reg, 5));
    }

    /// `b target`
    pub fn branch(&mut self, target: u64) {
        let here = self.here();
        self.word(0x1400_0000);
        self.fill(Gap(here), target);
    }

    /// `b` to the next instruction, until [`crate::cache::Cache::link`] changes that: its place.
    pub fn branch_on(&mut self) -> u64 {
        let here = self.here();
        self.branch(here + 4);
        here
    }

    /// `cbz reg`, to be filled in
    pub fn branch_if_zero(&mut self, reg: Gpr) -> Gap {
        self.branch_by(0xb400_0000 | u32::from(reg))
    }

    /// `cbnz reg`, to be filled in
    pub fn branch_if_not_zero(&mut self, reg: Gpr) -> Gap {
        self.branch_by(0xb500_0000 | u32::from(reg))
    }

    /// `tbz reg, #63`, to be filled in
    pub fn branch_if_positive(&mut self, reg: Gpr) -> Gap {
        self.branch_by(0xb6f8_0000 | u32::from(reg))
    }

    /// A branch as it is but for its distance, which is to be filled in.
    pub fn branch_by(&mut self, word: u32) -> Gap {
        let gap = Gap(self.here());
        self.word(word);
        gap
    }

    /// The branch leads to `target`.
    pub fn fill(&mut self, gap: Gap, target: u64) {
        let place = (gap.0 - self.start) as usize;
        let Some(place) = self.code.get_mut(place..place + 4) else {
            self.is_full = true;
            return;
        };
        let word = u32::from_le_bytes([place[0], place[1], place[2], place[3]]);
        match with_distance(word, target.wrapping_sub(gap.0) as i64) {
            Some(word) => place.copy_from_slice(&word.to_le_bytes()),
            None => self.is_full = true,
        }
    }
}

/// A branch with this distance in bytes. None: that is too far for it.
pub fn with_distance(word: u32, distance: i64) -> Option<u32> {
    // Width and place of the field: B and BL; TBZ and TBNZ; B.cond, CBZ and CBNZ.
    let (width, at) = match word >> 24 {
        0x14..=0x17 | 0x94..=0x97 => (26, 0),
        0x36 | 0x37 | 0xb6 | 0xb7 => (14, 5),
        _ => (19, 5),
    };
    let words = distance >> 2;
    let most = 1i64 << (width - 1);
    let mask = ((1u32 << width) - 1) << at;
    (-most..most).contains(&words).then_some(word & !mask | (words as u32) << at & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assembled(write: impl FnOnce(&mut Assembler<'_>)) -> Vec<u32> {
        let mut code = [0; 64];
        let mut assembler = Assembler::new(&mut code, 0x1_0000);
        write(&mut assembler);
        assert!(!assembler.is_full());
        let length = (assembler.here() - 0x1_0000) as usize;
        code[..length]
            .chunks(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect()
    }

    /// As GNU as has them.
    #[test]
    fn instructions_are_encoded_as_the_manual_says() {
        /// Text, what writes it, and its words.
        type Case = (&'static str, fn(&mut Assembler<'_>), &'static [u32]);
        let cases: [Case; 18] = [
            ("str x3, [x5, #16]", |a| a.store(3, 5, 16), &[0xf900_08a3]),
            ("ldr x3, [x28, #264]", |a| a.load_area(3, 264), &[0xf940_8783]),
            ("stp x9, x10, [x28, #272]", |a| a.store_pair_area((9, 10), 272), &[0xa911_2b89]),
            ("ldp q4, q5, [x0, #64]", |a| a.load_vectors(4, 0, 64), &[0xad42_1404]),
            ("add x1, sp, #4095", |a| a.add_value(1, 31, 4095), &[0x913f_ffe1]),
            (
                "add x1, x2, #1, lsl 12; add x1, x1, #8",
                |a| a.add_value(1, 2, 4104),
                &[0x9140_0441, 0x9100_2021],
            ),
            ("sub x1, x2, #16", |a| a.subtract_value(1, 2, 16), &[0xd100_4041]),
            ("add x1, sp, w3, sxtw #2", |a| a.add_extended(1, 31, 3, 6, 2), &[0x8b23_cbe1]),
            ("eor x0, x1, x1, lsr #16", |a| a.mix(0, 1, 1, 16), &[0xca41_4020]),
            ("ubfx x0, x1, #2, #16", |a| a.extract(0, 1, 2, 16), &[0xd342_4420]),
            ("and x1, x2, #-64", |a| a.clear_low(1, 2, 6), &[0x927a_e441]),
            ("ldr w1, [x0, x1, lsl #2]", |a| a.load_half(1, 0, 1), &[0xb861_7801]),
            ("mov x7, #0, lsl 48", |a| a.set(7, 0), &[0xd2e0_0007]),
            ("mov x7, #0x1234, lsl 48", |a| a.set(7, 0x1234 << 48), &[0xd2e2_4687]),
            ("mov x7, #-1", |a| a.set(7, u64::MAX), &[0x92e0_0007]),
            (
                "movn x7, #0xfffe; movk x7, #0x8000, lsl 16",
                |a| a.set(7, 0xffff_ffff_8000_0001),
                &[0x929f_ffc7, 0xf2b0_0007],
            ),
            ("adrp x3, .+0x20000", |a| a.set_page(3, 0x3_0000), &[0x9000_0103]),
            (
                "tbz x3, #63, .+8",
                |a| {
                    let gap = a.branch_if_positive(3);
                    a.fill(gap, 0x1_0008);
                },
                &[0xb6f8_0043],
            ),
        ];
        for (text, write, expected) in cases {
            assert_eq!(assembled(write), expected, "{text}");
        }
    }

    #[test]
    fn branches_reach_as_far_as_their_fields_do() {
        let (b, tbz, cbz) = (0x1400_0000, 0x3600_0000, 0xb400_0000);
        assert_eq!(with_distance(b, -4), Some(0x17ff_ffff));
        assert_eq!(with_distance(b, (1 << 27) - 4), Some(0x15ff_ffff));
        assert_eq!(with_distance(b, 1 << 27), None);
        assert_eq!(with_distance(tbz, -(1 << 15)), Some(0x3604_0000));
        assert_eq!(with_distance(tbz, 1 << 15), None);
        assert_eq!(with_distance(cbz, (1 << 20) - 4), Some(0xb47f_ffe0));
        assert_eq!(with_distance(cbz, 1 << 20), None);
    }
}

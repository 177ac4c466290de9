//! Random A64 instructions, run natively and in a burst: registers, flags, vector registers and memory are the same, and
//! the recorded addresses are those that the code itself has noted before each access, by instructions of another kind.
#![cfg(target_arch = "aarch64")]

mod support;

use std::arch::global_asm;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use memlens_burst::{code_has_changed, filter_operations};
use memlens_events::burst::Use;
use support::{
    BURST_WORDS, COUNTED, COUNTED_WORDS, accesses, begin_now, forget_words, left_out, prepare, summary,
};

const DATA_BYTES: usize = 4096;
const LOG_WORDS: usize = 1 << 14;
/// `DC ZVA` clears as many bytes at most in the machines that this runs on.
const ZEROED_BYTES: usize = 64;

/// What a piece of code works on.
#[derive(Clone, PartialEq)]
#[repr(C, align(64))]
struct State {
    /// By number; that of x30 is the return address.
    registers: [u64; 31],
    flags: u64,
    vectors: [[u64; 2]; 32],
    data: [u8; DATA_BYTES],
    /// Instruction and address of each access.
    log: [u64; LOG_WORDS],
}

/// What the code noted, and what it worked on.
impl State {
    fn new(random: &mut Random) -> Box<Self> {
        // SAFETY: numbers, for which zeros are a value.
        let mut state: Box<Self> = unsafe { Box::new_zeroed().assume_init() };
        state.registers.fill_with(|| random.next());
        state.flags = random.next() & 0xf << 28;
        state.vectors.fill_with(|| [random.next(), random.next()]);
        state.data.fill_with(|| random.next() as u8);
        state
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u32 {
        ((self.next() >> 33) % bound) as u32
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

// `run(code, state)`: all registers from the state, the code, and back.
global_asm!(
    ".globl run_random_code",
    "run_random_code:",
    "stp x29, x30, [sp, #-192]!",
    "stp x19, x20, [sp, #16]",
    "stp x21, x22, [sp, #32]",
    "stp x23, x24, [sp, #48]",
    "stp x25, x26, [sp, #64]",
    "stp x27, x28, [sp, #80]",
    "stp d8, d9, [sp, #96]",
    "stp d10, d11, [sp, #112]",
    "stp d12, d13, [sp, #128]",
    "stp d14, d15, [sp, #144]",
    "stp x0, x1, [sp, #160]",
    "add x2, x1, #256",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
    "ldr q\\n, [x2], #16",
    ".endr",
    "ldr x2, [x1, #248]",
    "msr nzcv, x2",
    "mov x30, x1",
    ".irp n, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28",
    "ldr x\\n, [x30, #8 * \\n]",
    ".endr",
    ".irp n, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29",
    "ldr x\\n, [x30, #8 * \\n]",
    ".endr",
    "ldr x30, [sp, #160]",
    "blr x30",
    "str x30, [sp, #176]",
    "ldr x30, [sp, #168]",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29",
    "str x\\n, [x30, #8 * \\n]",
    ".endr",
    "ldr x0, [sp, #176]",
    "str x0, [x30, #240]",
    "mrs x0, nzcv",
    "str x0, [x30, #248]",
    "add x2, x30, #256",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
    "str q\\n, [x2], #16",
    ".endr",
    "ldp x19, x20, [sp, #16]",
    "ldp x21, x22, [sp, #32]",
    "ldp x23, x24, [sp, #48]",
    "ldp x25, x26, [sp, #64]",
    "ldp x27, x28, [sp, #80]",
    "ldp d8, d9, [sp, #96]",
    "ldp d10, d11, [sp, #112]",
    "ldp d12, d13, [sp, #128]",
    "ldp d14, d15, [sp, #144]",
    "ldp x29, x30, [sp], #192",
    "ret",
);

unsafe extern "C" {
    fn run_random_code(code: u64, state: *mut State);
}

/// An access of an instruction: what is done, and bytes.
type Kind = (Use, u16);

/// Writes code whose memory operands all lie in the data.
struct Code {
    words: Vec<u32>,
    random: Random,
    /// Where the data is, where the next note goes, and one for a moment: registers that nothing else writes. One of them may be x28.
    data: u32,
    log: u32,
    spare: u32,
    /// The counter of the loop that is written.
    counter: Option<u32>,
    /// Accesses by the place of their instruction.
    kinds: HashMap<u64, Kind>,
}

/// Immediate of `[base, #units]` and like fields.
fn at(value: u32, low: u32) -> u32 {
    value << low
}

impl Code {
    fn new(random: Random) -> Self {
        Self { words: Vec::new(), random, data: 0, log: 1, spare: 2, counter: None, kinds: HashMap::new() }
    }

    fn put(&mut self, word: u32) {
        self.words.push(word);
    }

    fn is_kept(&self, register: u32) -> bool {
        [self.data, self.log, self.spare, 30].contains(&register) || Some(register) == self.counter
    }

    /// A register that may be written.
    fn to(&mut self) -> u32 {
        loop {
            // x28 often: it is ours in bursts.
            let register = if self.random.below(6) == 0 { 28 } else { self.random.below(30) };
            if !self.is_kept(register) {
                return register;
            }
        }
    }

    /// Any, or zero.
    fn from(&mut self) -> u32 {
        if self.random.below(8) == 0 { 28 } else { self.random.below(32) }
    }

    /// One of its own, and another.
    fn two(&mut self) -> (u32, u32) {
        loop {
            let (first, second) = (self.to(), self.to());
            if first != second {
                return (first, second);
            }
        }
    }

    /// `add to, from, #value`
    fn add(&mut self, to: u32, from: u32, value: i64) {
        let opcode = if value < 0 { 0xd100_0000 } else { 0x9100_0000 };
        self.put(opcode | at(value.unsigned_abs() as u32, 10) | at(from, 5) | to);
    }

    /// Notes the instruction that comes behind it, and its address, which `write` puts into the spare register by so many words.
    fn note(&mut self, words: u32, write: impl FnOnce(&mut Self, u32), kind: Kind) {
        // adr spare, the instruction; str spare, [log], #8
        let distance = words + 3;
        self.put(0x1000_0000 | at(distance, 5) | self.spare);
        self.put(0xf800_8400 | at(self.log, 5) | self.spare);
        let (before, spare) = (self.words.len(), self.spare);
        write(self, spare);
        assert_eq!(self.words.len(), before + words as usize);
        self.put(0xf800_8400 | at(self.log, 5) | self.spare);
        self.kinds.insert(4 * self.words.len() as u64, kind);
    }

    /// The same, of an operand at a distance from a register.
    fn note_offset(&mut self, base: u32, disp: i64, kind: Kind) {
        self.note(1, |code, spare| code.add(spare, base, disp), kind);
    }

    /// Of a single register's access: opcode bits without the address, its kind, whether the register is a vector's, and whether it is read.
    fn single(&mut self) -> (u32, Kind, bool, bool) {
        let (size, opc, vector) = self.random.one_of(&[
            (3, 1, 0),
            (3, 0, 0),
            (2, 1, 0),
            (2, 0, 0),
            (2, 2, 0),
            (1, 1, 0),
            (1, 0, 0),
            (1, 2, 0),
            (1, 3, 0),
            (0, 1, 0),
            (0, 0, 0),
            (0, 2, 0),
            (0, 1, 1),
            (0, 0, 1),
            (2, 1, 1),
            (3, 0, 1),
            (3, 1, 1),
            (0, 2, 1),
            (0, 3, 1),
        ]);
        let bytes = if vector == 1 && opc >= 2 { 16 } else { 1 << size };
        let stores = if vector == 1 { opc & 1 == 0 } else { opc == 0 };
        let used = if stores { Use::Write } else { Use::Read };
        (at(size, 30) | 0x3800_0000 | at(vector, 26) | at(opc, 22), (used, bytes), vector == 1, stores)
    }

    /// The register that is loaded or stored.
    fn value(&mut self, is_vector: bool, stores: bool) -> u32 {
        match (is_vector, stores) {
            (true, _) => self.random.below(32),
            (false, true) => self.from(),
            (false, false) => self.to(),
        }
    }

    fn memory(&mut self) {
        let data = self.data;
        match self.random.below(15) {
            // Unsigned offsets.
            0 | 1 => {
                let (opcode, kind, is_vector, stores) = self.single();
                let unit = self.random.below(100);
                self.note_offset(data, i64::from(unit) * i64::from(kind.1), kind);
                let value = self.value(is_vector, stores);
                self.put(opcode | 1 << 24 | at(unit, 10) | at(data, 5) | value);
            }
            // Offsets of any kind from a register in the middle; write-back.
            2..=4 => {
                let (opcode, kind, is_vector, stores) = self.single();
                let way = self.random.one_of(&[0, 1, 2, 3]);
                let value = self.value(is_vector, stores);
                let base = loop {
                    let base = self.to();
                    if base != value {
                        break base;
                    }
                };
                if way == 2 && is_vector {
                    return;
                }
                let disp = i64::from(self.random.below(512)) - 256;
                let middle = 1024 + i64::from(self.random.below(500));
                self.add(base, data, middle);
                self.note_offset(base, if way == 1 { 0 } else { disp }, kind);
                let disp = disp as u32 & 0x1ff;
                self.put(opcode | at(disp, 12) | at(way, 10) | at(base, 5) | value);
                // Once more where the base is now, and where it is after a number was added to it.
                for added in [0, 24] {
                    if added != 0 {
                        self.add(base, base, added);
                    }
                    let to = self.to();
                    self.note_offset(base, 8, (Use::Read, 8));
                    self.put(0xf940_0400 | at(base, 5) | to);
                    if to == base {
                        break;
                    }
                }
            }
            // An index, extended.
            5 | 6 => {
                let (opcode, kind, is_vector, stores) = self.single();
                let index = self.to();
                let value = self.value(is_vector, stores);
                let option = self.random.one_of(&[2, 3, 6, 7]);
                let is_scaled = self.random.below(2);
                let shift = if is_scaled == 1 { u32::from(kind.1).trailing_zeros() } else { 0 };
                // and index, index, #0x7f
                self.put(0x9240_1800 | at(index, 5) | index);
                // lsl spare, index, #shift; add spare, spare, data
                self.note(
                    2,
                    |code, spare| {
                        let shifted = at((64 - shift) % 64, 16) | at(63 - shift, 10);
                        code.put(0xd340_0000 | shifted | at(index, 5) | spare);
                        code.put(0x8b00_0000 | at(data, 16) | at(spare, 5) | spare);
                    },
                    kind,
                );
                let index = at(index, 16) | at(option, 13) | at(is_scaled, 12) | 2 << 10;
                self.put(opcode | 1 << 21 | index | at(data, 5) | value);
            }
            // Pairs.
            7 | 8 => {
                let (opc, vector, bytes) =
                    self.random.one_of(&[(0, 0, 4), (2, 0, 8), (1, 0, 4), (0, 1, 4), (1, 1, 8), (2, 1, 16)]);
                let loads = if opc == 1 && vector == 0 { 1 } else { self.random.below(2) };
                let way = self.random.one_of(&if opc == 1 && vector == 0 { [1, 2, 3] } else { [0, 1, 3] });
                let (first, second) = match (vector, loads) {
                    (1, _) => (self.random.below(16), 16 + self.random.below(16)),
                    (_, 1) => self.two(),
                    _ => (self.from(), self.from()),
                };
                let base = loop {
                    let base = self.to();
                    if vector == 1 || (base != first && base != second) {
                        break base;
                    }
                };
                let unit = self.random.below(40) as i64 - 20;
                self.add(base, data, 1024);
                let used = if loads == 1 { Use::Read } else { Use::Write };
                let disp = if way == 1 { 0 } else { unit * bytes };
                self.note_offset(base, disp, (used, 2 * bytes as u16));
                let unit = at(unit as u32 & 0x7f, 15);
                let registers = at(second, 10) | at(base, 5) | first;
                self.put(
                    0x2800_0000
                        | at(opc, 30)
                        | at(vector, 26)
                        | at(way, 23)
                        | at(loads, 22)
                        | unit
                        | registers,
                );
            }
            // Atomic operations, with and without order.
            9 | 10 => {
                let base = self.to();
                let size = self.random.below(4);
                let bytes = 1 << size;
                let aligned = 64 * i64::from(self.random.below(32));
                self.add(base, data, aligned);
                let (old, new) = (self.to(), self.from());
                let order = self.random.below(4);
                let which = self.random.below(6);
                let used = match which {
                    0..=2 => Use::Both,
                    3 | 5 => Use::Read,
                    _ => Use::Write,
                };
                self.note_offset(base, 0, (used, bytes));
                let word = match which {
                    // LDADD … LDUMIN, SWP
                    0 | 1 => {
                        let operation = self.random.below(9);
                        let operation = if operation == 8 { 8 << 12 } else { at(operation, 12) };
                        0x3820_0000
                            | at(size, 30)
                            | at(order, 22)
                            | at(new, 16)
                            | operation
                            | at(base, 5)
                            | old
                    }
                    // CAS
                    2 => {
                        let (acquires, releases) = (order >> 1, order & 1);
                        let order = at(acquires, 22) | at(releases, 15);
                        0x08a0_7c00 | at(size, 30) | order | at(old, 16) | at(base, 5) | new
                    }
                    // LDAR, STLR, LDAPR
                    3 => 0x08df_fc00 | at(size, 30) | at(base, 5) | old,
                    4 => 0x089f_fc00 | at(size, 30) | at(base, 5) | new,
                    _ => 0x38bf_c000 | at(size, 30) | at(base, 5) | old,
                };
                self.put(word);
            }
            // CASP, of registers that are not kept.
            11 => {
                let even = |code: &mut Self| loop {
                    let first = code.random.below(15) * 2;
                    if !code.is_kept(first) && !code.is_kept(first + 1) && first < 28 {
                        return first;
                    }
                };
                let (old, new) = (even(self), even(self));
                let base = loop {
                    let base = self.to();
                    if base & !1 != old && base & !1 != new {
                        break base;
                    }
                };
                let wide = self.random.below(2);
                let aligned = 64 * i64::from(self.random.below(32));
                self.add(base, data, aligned);
                self.note_offset(base, 0, (Use::Both, 8 << wide));
                self.put(0x0820_7c00 | at(wide, 30) | at(old, 16) | at(base, 5) | new);
            }
            // Structures.
            12 => {
                let base = self.to();
                self.add(base, data, 1024);
                let loads = self.random.below(2);
                let is_multiple = self.random.below(2) == 0;
                let full = self.random.below(2);
                let (opcode, bytes) = match is_multiple {
                    true => {
                        let (opcode, registers) =
                            self.random.one_of(&[(0, 4), (2, 4), (4, 3), (6, 3), (8, 2), (10, 2), (7, 1)]);
                        let size = if full == 1 { self.random.below(4) } else { self.random.below(3) };
                        (
                            0x0c00_0000 | at(opcode, 12) | at(size, 10),
                            registers * if full == 1 { 16 } else { 8 },
                        )
                    }
                    false => {
                        let registers = 1 + self.random.below(4);
                        let several = at((registers - 1) >> 1, 13) | at((registers - 1) & 1, 21);
                        // Of 1, 2, 4, 8 bytes; to all elements.
                        let (opcode, size, bytes) =
                            self.random.one_of(&[(0, 3, 1), (1, 2, 2), (2, 0, 4), (2, 1, 8), (3, 2, 4)]);
                        let opcode = if loads == 0 && opcode == 3 { 0 } else { opcode };
                        let bytes = if opcode == 0 { 1 } else { bytes };
                        (0x0d00_0000 | several | at(opcode, 14) | at(size, 10), registers * bytes)
                    }
                };
                let used = if loads == 1 { Use::Read } else { Use::Write };
                self.note_offset(base, 0, (used, bytes as u16));
                let index = self.to();
                let back = match self.random.below(3) {
                    0 => 0,
                    1 => 1 << 23 | 31 << 16,
                    _ if index == base => 0,
                    _ => 1 << 23 | at(index, 16),
                };
                let register = self.random.below(32);
                self.put(opcode | at(full, 30) | at(loads, 22) | back | at(base, 5) | register);
            }
            // Literals: of the code right behind, which a branch leads over.
            13 => {
                let (opc, vector, bytes) =
                    self.random.one_of(&[(0, 0, 4), (1, 0, 8), (2, 0, 4), (0, 1, 4), (1, 1, 8), (2, 1, 16)]);
                let value = self.value(vector == 1, false);
                // adr spare, the literal: behind the next two instructions and the branch.
                self.note(1, |code, spare| code.put(0x1000_0000 | at(4, 5) | spare), (Use::Read, bytes));
                self.put(0x1800_0000 | at(opc, 30) | at(vector, 26) | at(2, 5) | value);
                self.put(0x1400_0005);
                for _ in 0..4 {
                    let literal = self.random.next() as u32;
                    self.put(literal);
                }
            }
            // DC ZVA
            _ => {
                let base = self.to();
                let anywhere = i64::from(self.random.below(2000));
                self.add(base, data, anywhere);
                self.note(
                    1,
                    // and spare, base, #-64
                    |code, spare| code.put(0x927a_e400 | at(base, 5) | spare),
                    (Use::Write, ZEROED_BYTES as u16),
                );
                self.put(0xd50b_7420 | base);
            }
        }
    }

    fn compute(&mut self) {
        let (to, first, second, third) = (self.to(), self.from(), self.from(), self.from());
        let wide = at(self.random.below(2), 31);
        let three = at(second, 16) | at(first, 5) | to;
        let vectors = at(self.random.below(32), 16) | at(self.random.below(32), 5) | self.random.below(32);
        let vector = self.random.below(32);
        let word = match self.random.below(24) {
            // Shifted sums and logic, with flags or without.
            0 | 1 => {
                0x0b00_0000 | wide | at(self.random.below(4), 29) | at(self.random.below(32), 10) | three
            }
            2 | 3 => 0x0a00_0000 | wide | at(self.random.below(4), 29) | at(self.random.below(2), 21) | three,
            4 => 0x1a00_0000 | wide | at(self.random.below(4), 29) | three,
            5 | 6 => {
                let condition = at(self.random.below(16), 12);
                0x1a80_0000
                    | wide
                    | at(self.random.below(2), 30)
                    | condition
                    | at(self.random.below(2), 10)
                    | three
            }
            // CCMP of registers and numbers
            7 => {
                let condition = at(self.random.below(16), 12) | at(self.random.below(2), 11);
                0x3a40_0000
                    | wide
                    | at(self.random.below(2), 30)
                    | condition
                    | at(second, 16)
                    | at(first, 5)
                    | 5
            }
            // Numbers.
            8 if first != 31 => {
                let number = at(self.random.below(4096), 10) | at(self.random.below(2), 22);
                0x1100_0000 | wide | at(self.random.below(4), 29) | number | at(first, 5) | to
            }
            9 => {
                let kind = self.random.one_of(&[0, 2, 3]);
                0x1280_0000
                    | wide
                    | at(kind, 29)
                    | at(self.random.below(2), 21)
                    | at(self.random.below(65536), 5)
                    | to
            }
            // Bit fields of 64 bits; logic by a mask of 16 ones.
            10 => {
                let fields = at(self.random.below(64), 16) | at(self.random.below(64), 10);
                0x9340_0000 | fields | at(first, 5) | to
            }
            11 => {
                0x9240_3c00 | at(self.random.below(3), 29) | at(self.random.below(64), 16) | at(first, 5) | to
            }
            // EXTR, division and shifts, multiplications, reversals, CRC.
            12 => 0x93c0_0000 | at(self.random.below(64), 10) | three,
            13 => 0x1ac0_0000 | wide | at(self.random.one_of(&[2, 3, 8, 9, 10, 11]), 10) | three,
            14 => 0x1b00_0000 | wide | at(self.random.below(2), 15) | at(third, 10) | three,
            15 => 0x9b40_7c00 | at(self.random.below(2), 23) | three,
            16 => 0xdac0_0000 | at(self.random.one_of(&[0, 1, 2, 3, 4, 5]), 10) | at(first, 5) | to,
            // Extended sums, with a base that is not sp.
            17 if first != 31 => {
                let option = at(self.random.below(8), 13) | at(self.random.below(5), 10);
                0x8b20_0000 | at(self.random.below(4), 29) | option | three
            }
            18 => self.random.one_of(&[0x4ea0_8400, 0x6e20_1c00, 0x4e60_9c00, 0x4e20_d400]) | vectors,
            // Between general and vector registers.
            19 => self.random.one_of(&[0x4e08_3c00, 0x0e04_3c00, 0x4e04_2c00]) | at(vector, 5) | to,
            20 => {
                self.random.one_of(&[0x4e08_0c00, 0x4e18_1c00, 0x9e62_0000, 0x9e67_0000, 0x9eaf_0000])
                    | at(first, 5)
                    | vector
            }
            21 => {
                self.random.one_of(&[0x9e66_0000, 0x9e78_0000, 0x9eae_0000, 0x1e26_0000]) | at(vector, 5) | to
            }
            // Flags and their register; the thread pointer.
            22 => self.random.one_of(&[0xd53b_4200, 0xd53b_d040]) | to,
            // ADR; hints, barriers; BTI, PACIASP and AUTIASP together.
            _ => match self.random.below(4) {
                0 => 0x1000_0000 | at(self.random.below(1000), 5) | to,
                1 => 0x9000_0000 | at(self.random.below(1000), 5) | to,
                2 => self.random.one_of(&[0xd503_201f, 0xd503_3bbf, 0xd503_245f]),
                _ => {
                    self.put(0xd503_233f);
                    0xd503_23bf
                }
            },
        };
        self.put(word);
    }

    /// A conditional branch over so many words.
    fn branch_over(&mut self, words: u32) {
        let tested = self.from();
        let over = words + 1;
        let word = match self.random.below(4) {
            0 | 1 => 0x5400_0000 | at(over, 5) | self.random.below(14),
            2 => {
                0x3400_0000
                    | at(self.random.below(2), 31)
                    | at(self.random.below(2), 24)
                    | at(over, 5)
                    | tested
            }
            _ => {
                let bit = at(self.random.below(32), 19) | at(self.random.below(2), 31);
                0x3600_0000 | bit | at(self.random.below(2), 24) | at(over, 5) | tested
            }
        };
        self.put(word);
    }

    /// A sequence that is entered and left at its ends alone, possibly with a loop.
    fn instruction(&mut self) {
        match self.random.below(20) {
            0..=8 => self.compute(),
            9..=15 => self.memory(),
            16 | 17 => {
                // Some instructions with a branch over them.
                let start = self.words.len();
                self.put(0);
                for _ in 0..=self.random.below(3) {
                    if self.random.below(2) == 0 { self.memory() } else { self.compute() }
                }
                let end = self.words.len();
                self.branch_over((end - start - 1) as u32);
                self.words[start] = self.words.pop().expect("just written");
            }
            18 if self.counter.is_none() => {
                let counter = self.to();
                self.counter = Some(counter);
                // mov counter, times
                let times = self.random.below(20) + 1;
                self.put(0xd280_0000 | at(times, 5) | counter);
                let again = self.words.len();
                for _ in 0..=self.random.below(4) {
                    if self.random.below(2) == 0 { self.memory() } else { self.compute() }
                }
                self.add(counter, counter, -1);
                let distance = (again as u32).wrapping_sub(self.words.len() as u32) & 0x7_ffff;
                self.put(0xb500_0000 | at(distance, 5) | counter);
                self.counter = None;
            }
            _ => self.call(),
        }
    }

    /// A call of a function right behind, by its address or through a register, or an indirect jump there.
    fn call(&mut self) {
        let register = self.to();
        match self.random.below(3) {
            // bl .+8; b over; the function
            0 => self.put(0x9400_0002),
            // adr register, .+12; blr register
            1 => {
                self.put(0x1000_0000 | at(3, 5) | register);
                self.put(0xd63f_0000 | at(register, 5));
            }
            // adr register, .+12; br register: over the branch
            _ => {
                self.put(0x1000_0000 | at(3, 5) | register);
                self.put(0xd61f_0000 | at(register, 5));
                self.put(0xd503_201f);
                return;
            }
        }
        let over = self.words.len();
        self.put(0);
        for _ in 0..=self.random.below(3) {
            if self.random.below(2) == 0 { self.memory() } else { self.compute() }
        }
        self.put(0xd65f_03c0);
        let distance = (self.words.len() - over) as u32;
        self.words[over] = 0x1400_0000 | distance;
    }

    /// So many pieces of up to `longest` instructions, each a function; where they begin, and the registers of each that are kept.
    fn pieces(&mut self, pieces: usize, longest: u64) -> Vec<(usize, u32, u32)> {
        let mut starts = Vec::new();
        for _ in 0..pieces {
            (self.data, self.log, self.spare) = loop {
                let one = |code: &mut Self| code.random.one_of(&[3, 8, 16, 19, 25, 28, 28, 29]);
                let kept = (one(self), one(self), one(self));
                if kept.0 != kept.1 && kept.0 != kept.2 && kept.1 != kept.2 {
                    break kept;
                }
            };
            starts.push((4 * self.words.len(), self.data, self.log));
            // str x30, [sp, #-16]!
            self.put(0xf81f_0ffe);
            for _ in 0..self.random.below(longest) + 1 {
                self.instruction();
            }
            // ldr x30, [sp], #16; ret
            self.put(0xf841_07fe);
            self.put(0xd65f_03c0);
        }
        starts
    }
}

/// Code in a file's mapping, as programs have it.
struct Mapping(u64, usize);

impl Mapping {
    fn of(words: &[u32]) -> Self {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let path = std::env::temp_dir().join(format!("memlens-random-code.{}", std::process::id()));
        let mut file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
        file.write_all(&bytes).expect("written");
        std::fs::remove_file(&path).expect("removed");
        let length = bytes.len().next_multiple_of(4096);
        // SAFETY: a new mapping.
        let start = unsafe {
            let access = libc::PROT_READ | libc::PROT_EXEC;
            libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        Self(start as u64, length)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our mapping, in which nothing runs.
        unsafe { libc::munmap(self.0 as *mut _, self.1) };
        code_has_changed();
    }
}

#[test]
fn random_code_does_in_a_burst_what_it_does_natively() {
    prepare(50_000);
    calls_through_registers_find_what_they_call();
    let (mut recorded, mut kept_back) = (0, 0);
    for file in 0..30u64 {
        let mut code = Code::new(Random(0x9e37_79b9 + file * 7919));
        let starts = code.pieces(60, 2 * file + 2);
        let mapping = Mapping::of(&code.words);
        let is_filtered = file % 3 == 2;
        filter_operations(is_filtered);
        for &(start, data, log) in &starts {
            let mut state = State::new(&mut code.random);
            state.registers[data as usize] = state.data.as_ptr() as u64;
            state.registers[log as usize] = state.log.as_ptr() as u64;
            // Both runs in the same place: addresses are part of what they compute.
            let before = state.clone();
            let at = mapping.0 + start as u64;
            // SAFETY: the code is of our making.
            unsafe { run_random_code(at, &mut *state) };
            let native = state.clone();
            let words: Vec<String> =
                code.words[start / 4..].iter().take(80).map(|word| format!("{word:08x}")).collect();
            let same = |state: &State, how: &str| {
                let seed = format!("{how}, file {file}, offset {start:#x}; {}; code {words:?}", summary());
                assert_eq!(state.registers, native.registers, "{seed}");
                assert_eq!(state.flags, native.flags, "{seed}");
                assert_eq!(state.vectors, native.vectors, "{seed}");
                assert!(*state == *native, "{seed}");
            };
            // The first blocks record, the next count until the second stage, and there on.
            state.clone_from(&before);
            BURST_WORDS.store(400, Ordering::Relaxed);
            COUNTED_WORDS.store(1 + code.random.below(60) as usize, Ordering::Relaxed);
            begin_now();
            // SAFETY: as above.
            unsafe { run_random_code(at, &mut *state) };
            same(&state, "counted");
            // It ends somewhere in the code.
            COUNTED_WORDS.store(0, Ordering::Relaxed);
            BURST_WORDS.store(20 + code.random.below(200) as usize, Ordering::Relaxed);
            state.clone_from(&before);
            begin_now();
            // SAFETY: as above.
            unsafe { run_random_code(at, &mut *state) };
            same(&state, "ended early");
            BURST_WORDS.store(50_000, Ordering::Relaxed);
            state.clone_from(&before);
            forget_words();
            begin_now();
            // SAFETY: as above.
            unsafe { run_random_code(at, &mut *state) };
            let inside: Vec<_> = accesses()
                .into_iter()
                .filter_map(|(pc, address, reference)| {
                    let kind = code.kinds.get(&pc.wrapping_sub(mapping.0))?;
                    assert_eq!((reference.used, reference.size_bytes), *kind, "{:#x}", pc - mapping.0);
                    Some((pc, address))
                })
                .collect();
            same(&state, "recorded");
            let noted = native.log.chunks_exact(2).take_while(|pair| pair[0] != 0);
            let data = state.data.as_ptr() as u64;
            let all: Vec<_> = noted.map(|pair| (pair[0], pair[1])).collect();
            // Fixed addresses are left out where that is asked for.
            let is_kept = |address: u64| !is_filtered || (data..data + DATA_BYTES as u64).contains(&address);
            let expected: Vec<_> = all.iter().copied().filter(|&(_, address)| is_kept(address)).collect();
            // Of the frame pointer, which may hold any number, it is not told here whether it was one.
            let by_frame = |pc: u64| code.words[((pc - mapping.0) / 4) as usize] >> 5 & 31 == 29;
            let filtered = |list: &[(u64, u64)]| -> Vec<_> {
                list.iter().copied().filter(|&(pc, _)| !is_filtered || !by_frame(pc)).collect()
            };
            assert_eq!(
                filtered(&inside),
                filtered(&expected),
                "file {file}, offset {start:#x}; {}; code {words:?}",
                summary()
            );
            recorded += inside.len();
            kept_back += left_out(|pc| code.kinds.contains_key(&pc.wrapping_sub(mapping.0)));
        }
    }
    assert!(COUNTED.load(Ordering::Relaxed) > 20_000, "{}", summary());
    assert!(recorded > 20_000, "{recorded} accesses; {}", summary());
    assert!(kept_back > 100, "{kept_back} accesses left out");
    eprintln!("{recorded} accesses, {kept_back} left out; {}", summary());
}

/// Two functions whose addresses have the same hash (`check.rs`), called in turn.
fn calls_through_registers_find_what_they_call() {
    const TIMES: u64 = 2_000;
    // mov x0, #number; ret
    let words: Vec<u32> =
        (0..1u32 << 17).flat_map(|number| [0xd280_0000 | at(number & 0xffff, 5), 0xd65f_03c0]).collect();
    let mapping = Mapping::of(&words);
    let mut met = HashMap::new();
    let (first, second) = (0..1u64 << 17)
        .find_map(|number| {
            let pc = mapping.0 + 8 * number;
            let before = met.insert((pc ^ pc >> 16) >> 2 & 0xffff, number)?;
            (before & 0xffff != number & 0xffff).then_some((before, number))
        })
        .expect("more functions than hashes");
    // SAFETY: functions of this type.
    let functions = [first, second]
        .map(|number| unsafe { std::mem::transmute::<u64, extern "C" fn() -> u64>(mapping.0 + 8 * number) });
    COUNTED_WORDS.store(0, Ordering::Relaxed);
    begin_now();
    let sum: u64 = (0..TIMES).map(|time| std::hint::black_box(functions)[(time % 2) as usize]()).sum();
    forget_words();
    assert_eq!(sum, ((first & 0xffff) + (second & 0xffff)) * TIMES / 2);
}

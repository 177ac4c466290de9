//! Gathers and scatters of random shape, as machine code, whose addresses are known from how they were made.
//!
//! Source of the encodings: Intel SDM volume 2, sections 2.3 (VEX) and 2.7 (EVEX) and the instructions' own pages.

/// Code with a gather or scatter.
pub struct Gathering {
    /// The code: it loads the registers that the instruction takes, and stores what it gathered. r13 points to the data.
    pub code: Vec<u8>,
    /// Where in it the instruction stands.
    pub at: usize,
    /// What of the data its elements access, as distances from r13 in bytes, in order.
    pub elements: Vec<i64>,
}

const R13: u8 = 13;
/// A page of data: elements are around its middle, what else is stored lies behind.
const MIDDLE: i64 = 1000;
const BEHIND: i32 = 2000;

/// Which instructions are to be had.
#[derive(Clone, Copy, PartialEq)]
pub enum Set {
    Avx2,
    Avx512,
}

impl Set {
    /// Those of this machine.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        if is_x86_feature_detected!("avx2") {
            all.push(Self::Avx2);
        }
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
            all.push(Self::Avx512);
        }
        all
    }
}

/// Bit `at` of a register's number, inverted, as prefixes have it.
fn not(number: u8, at: u8) -> u8 {
    number >> at & 1 ^ 1
}

/// `vmovdqu vector, [rip + …]` of the bytes at `from`, or of AVX-512 `vmovdqu64`. `length`: 0 to 2, of 16, 32 or 64 bytes.
fn load(code: &mut Vec<u8>, set: Set, vector: u8, length: u8, from: usize) {
    move_prefix(code, set, vector, 0, length);
    code.extend([0x6f, 5 | (vector & 7) << 3]);
    relative(code, from);
}

/// `vmovdqu [r13 + distance], vector`, or the other way round, as the opcode says.
fn move_data(code: &mut Vec<u8>, set: Set, opcode: u8, vector: u8, length: u8, distance: i32) {
    move_prefix(code, set, vector, R13, length);
    code.extend([opcode, 0x80 | (vector & 7) << 3 | R13 & 7]);
    code.extend(distance.to_le_bytes());
}

fn move_prefix(code: &mut Vec<u8>, set: Set, vector: u8, base: u8, length: u8) {
    let registers = not(vector, 3) << 7 | 1 << 6 | not(base, 3) << 5;
    match set {
        Set::Avx2 => code.extend([0xc4, registers | 1, 0x7a | length << 2]),
        Set::Avx512 => code.extend([0x62, registers | not(vector, 4) << 4 | 1, 0xfe, length << 5 | 8]),
    }
}

fn relative(code: &mut Vec<u8>, from: usize) {
    let distance = from as i32 - (code.len() as i32 + 4);
    code.extend(distance.to_le_bytes());
}

impl Gathering {
    /// A random one. `below`: a random number below another.
    pub fn new(set: Set, mut below: impl FnMut(u64) -> u64) -> Self {
        let registers = if set == Set::Avx2 { 16 } else { 32 };
        let length = below(if set == Set::Avx2 { 2 } else { 3 }) as u8;
        let is_scatter = set == Set::Avx512 && below(2) == 0;
        // In the opcode: bytes of an index, floating point or not, and in bit W those of an element.
        let (wide_index, is_float, wide_element) = (below(2) as u8, below(2) as u8, below(2) as u8);
        let (index_bytes, element_bytes) = (4 << wide_index, 4 << wide_element);
        let count = (16 << length) / usize::max(index_bytes, element_bytes);
        let first = below(registers) as u8;
        let registers = registers as u8;
        let (data, index, mask) = (first, (first + 1) % registers, (first + 2) % registers);
        let (scale_bits, distance) = (below(4) as u8, MIDDLE as i32 + below(100) as i32);

        let (mut indices, mut masks, mut bits) = ([0u8; 64], [0u8; 64], 0u16);
        for byte in indices.iter_mut().chain(&mut masks) {
            *byte = below(256) as u8;
        }
        let mut elements = Vec::new();
        let is_dense = below(2) == 0;
        for number in 0..count {
            let happens = is_dense || below(2) == 0;
            let sign = &mut masks[(number + 1) * element_bytes - 1];
            *sign = *sign & 0x7f | u8::from(happens) << 7;
            bits |= u16::from(happens) << number;
            if happens {
                let value = below(120) as i64 - 60;
                let place = &mut indices[number * index_bytes..][..index_bytes];
                place.copy_from_slice(&value.to_le_bytes()[..index_bytes]);
                elements.push(i64::from(distance) + (value << scale_bits));
            }
        }
        // Bits without an element mean nothing.
        bits |= (0xffffu32 << count) as u16;

        // jmp over the constants
        let mut code = vec![0xe9];
        code.extend((64 + 64 + 2i32).to_le_bytes());
        let indices_at = code.len();
        code.extend(indices);
        let masks_at = code.len();
        code.extend(masks);
        let bits_at = code.len();
        code.extend(bits.to_le_bytes());
        load(&mut code, set, index, length, indices_at);
        let mask_register = 1 + below(7) as u8;
        match set {
            Set::Avx2 => load(&mut code, set, mask, length, masks_at),
            Set::Avx512 => {
                // kmovw k, [rip + …]
                code.extend([0xc5, 0xf8, 0x90, 5 | mask_register << 3]);
                relative(&mut code, bits_at);
            }
        }
        move_data(&mut code, set, 0x6f, data, length, BEHIND);

        let at = code.len();
        let registers = not(data, 3) << 7 | not(index, 3) << 6 | not(R13, 3) << 5;
        match set {
            Set::Avx2 => {
                code.extend([0xc4, registers | 2, wide_element << 7 | !mask << 3 & 0x78 | length << 2 | 1]);
            }
            Set::Avx512 => code.extend([
                0x62,
                registers | not(data, 4) << 4 | 2,
                wide_element << 7 | 0x7d,
                length << 5 | not(index, 4) << 3 | mask_register,
            ]),
        }
        let kind = if is_scatter { 0xa0 } else { 0x90 };
        code.extend([kind | is_float << 1 | wide_index, 0x84 | (data & 7) << 3]);
        code.push(scale_bits << 6 | (index & 7) << 3 | R13 & 7);
        code.extend(distance.to_le_bytes());
        move_data(&mut code, set, 0x7f, data, length, BEHIND);
        Self { code, at, elements }
    }
}

//! What is done for several accesses at a time: references in groups, and the vector operations.

use crate::block_table::Ending;
use memlens_types::AccessAttr;

/// References that are compared at a time: most blocks have fewer.
pub const LANES: usize = 4;
/// Accesses that are packed at a time.
pub const PACKED: usize = 8;

/// Some references of a block, with all that running the block takes: two cache lines.
///
/// Further groups of a block stand behind the first.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Group {
    /// First address of each range, minus the frame address where `frames` or `callers` says so.
    pub bases: [u64; LANES],
    /// Bytes of each range; 0: look every access up. Longer ranges are cut around the access.
    pub lens: [u32; LANES],
    /// The call for which the ranges in `callers` hold.
    pub call: Call,
    /// What the block ends with.
    pub ending: Ending,
    /// A bit for each reference.
    pub lanes: u8,
    /// A bit for each range that is relative to the frame.
    pub frames: u8,
    /// A bit for each range that is relative to the caller's frame.
    pub callers: u8,
    /// The cell of each reference and the object that it found last.
    pub cells: [u32; LANES],
    /// Kinds and sizes.
    pub attrs: [AccessAttr; LANES],
    /// Which word of a call or return holds the slot's address (first groups).
    pub slot_word: u8,
    /// How often the block ran while accesses were collected (first groups).
    pub executions: u64,
    /// Number of the first reference.
    pub first_reference: u32,
    /// Instructions of the block.
    pub instructions: u16,
    /// References of this group.
    pub accesses: u8,
    /// A bit for each range that may end.
    pub volatile: u8,
    /// Whether the next group is of the same block.
    pub has_more: bool,
}

const _: () = assert!(size_of::<Group>() == 128);

impl Default for Group {
    fn default() -> Self {
        Self {
            bases: [0; LANES],
            lens: [0; LANES],
            call: Call::default(),
            ending: Ending::default(),
            lanes: 0,
            frames: 0,
            callers: 0,
            cells: [0; LANES],
            attrs: [AccessAttr::default(); LANES],
            slot_word: 0,
            executions: 0,
            first_reference: 0,
            instructions: 0,
            accesses: 0,
            volatile: 0,
            has_more: false,
        }
    }
}

impl Group {
    /// What a lane's range is relative to.
    #[inline(always)]
    fn origin(&self, lane: usize, frames: Frames) -> u64 {
        let all = |bits: u8| u64::from(bits >> lane & 1).wrapping_neg();
        (frames.cfa & all(self.frames)) | (frames.caller_cfa & all(self.callers))
    }

    /// Whether an address is in a lane's range, if that does not hold for another call only.
    #[inline(always)]
    fn is_inside(&self, lane: usize, addr: u64, frames: Frames) -> bool {
        let offset = addr.wrapping_sub(self.origin(lane, frames)).wrapping_sub(self.bases[lane]);
        offset < u64::from(self.lens[lane])
    }

    /// Whether an address is in a lane's range.
    #[inline(always)]
    pub fn has(&self, lane: usize, addr: u64, frames: Frames) -> bool {
        self.is_inside(lane, addr, frames) && self.of_another_call(frames) >> lane & 1 == 0
    }

    /// A bit for each range that holds for another call only.
    #[inline(always)]
    fn of_another_call(&self, frames: Frames) -> u32 {
        if self.call == frames.call { 0 } else { self.callers.into() }
    }
}

/// Where a function was called from, as far as its caller's variables depend on it. The caller's frame goes on
/// below them, down to the callee's; where that begins is part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct Call {
    /// The return address as a frame key; 0 = the caller is unknown.
    pub key: u64,
    /// From the callee's frame address up to the caller's; capped.
    pub bytes: u32,
}

/// The innermost frames of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// Frame address of the innermost call.
    pub cfa: u64,
    /// Frame address of its caller; 0 = unknown.
    pub caller_cfa: u64,
    /// The innermost call.
    pub call: Call,
}

/// The access before others.
#[derive(Clone, Copy, Debug)]
pub struct Previous {
    /// The line of its last byte.
    pub line: u64,
    /// Whether that line has been written since another one was accessed.
    pub is_dirty: bool,
}

/// The operations.
pub trait Kernel: Copy {
    /// Runs a task as a function of its own, so that it takes no registers from the one that calls it.
    fn apart<T: Task>(self, task: T) -> T::Output;

    /// Bit i is set if there is a reference i, and `addrs[i]`, less the frame address where the group says so,
    /// is not one of the `lens[i]` addresses from `bases[i]` on, or the range belongs to another
    /// call.
    fn outside(self, addrs: &[u64; LANES], group: &Group, frames: Frames) -> u32;

    /// Bit i is set unless access i goes to the line only that the one before it ended in, and is no store or
    /// that line is dirty already.
    fn changing(
        self,
        addrs: &[u64; PACKED],
        attrs: &[AccessAttr; PACKED],
        line_shift: u32,
        previous: &mut Previous,
    ) -> u32;

    /// Puts the words whose bits are set, closed up, to the front of `to`; what follows them has no meaning.
    fn pack64(self, words: &[u64; PACKED], bits: u32, to: &mut [u64; PACKED]);

    /// As [`Self::pack64`].
    fn pack32(self, words: &[u32; PACKED], bits: u32, to: &mut [u32; PACKED]);

    /// Asks for a group's two cache lines, which are needed soon.
    fn fetch(self, group: &Group);

    /// Asks for the cache line of a word ahead of its use.
    fn fetch_word(self, word: &u64);
}

/// Work that is compiled once for each kernel.
pub trait Task {
    /// What comes out.
    type Output;

    /// Does it.
    fn run<K: Kernel>(self, kernel: K) -> Self::Output;
}

/// The vector instructions that a processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vectors(Width);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    None,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Vectors {
    /// Those of this processor.
    pub fn detect() -> Self {
        *Self::available().last().unwrap_or(&Self(Width::None))
    }

    /// All that this processor can do, the best last.
    fn available() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let has_avx2 = has!("avx2") && has!("bmi2") && has!("popcnt");
            let has_avx512 = has_avx2 && has!("avx512f") && has!("avx512dq") && has!("avx512vl");
            let wide = [(has_avx2, Width::Avx2), (has_avx512, Width::Avx512)];
            let wide = wide.into_iter().filter_map(|(has, width)| has.then_some(width));
            [Width::None].into_iter().chain(wide).map(Self).collect()
        }
        #[cfg(not(target_arch = "x86_64"))]
        vec![Self(Width::None)]
    }
}

/// Runs a task with the kernel for these instructions.
#[inline]
pub fn dispatch<T: Task>(vectors: Vectors, task: T) -> T::Output {
    match vectors.0 {
        Width::None => task.run(Portable),
        // SAFETY: only `Vectors::available` makes this width, after it has seen the instructions.
        #[cfg(target_arch = "x86_64")]
        Width::Avx2 => unsafe { x86::run_avx2(task) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Width::Avx512 => unsafe { x86::run_avx512(task) },
    }
}

#[derive(Clone, Copy)]
struct Portable;

impl Kernel for Portable {
    #[inline(always)]
    fn apart<T: Task>(self, task: T) -> T::Output {
        run_apart(task)
    }

    #[inline(always)]
    fn outside(self, addrs: &[u64; LANES], group: &Group, frames: Frames) -> u32 {
        let mut outside = group.of_another_call(frames);
        for (lane, &addr) in addrs.iter().enumerate() {
            outside |= u32::from(!group.is_inside(lane, addr, frames)) << lane;
        }
        outside & u32::from(group.lanes)
    }

    #[inline(always)]
    fn changing(
        self,
        addrs: &[u64; PACKED],
        attrs: &[AccessAttr; PACKED],
        line_shift: u32,
        previous: &mut Previous,
    ) -> u32 {
        let mut changing = 0;
        for (lane, (&addr, attr)) in addrs.iter().zip(attrs).enumerate() {
            let last_byte = addr.wrapping_add(u64::from(attr.size_bytes().max(1) - 1));
            let (line, end_line) = (addr >> line_shift, last_byte >> line_shift);
            let is_write = attr.write_bit() != 0;
            let is_same = end_line == previous.line;
            let is_idle = is_same & (line == end_line) & (!is_write | previous.is_dirty);
            changing |= u32::from(!is_idle) << lane;
            *previous = Previous { line: end_line, is_dirty: is_write | (is_same & previous.is_dirty) };
        }
        changing
    }

    #[inline(always)]
    fn pack64(self, words: &[u64; PACKED], bits: u32, to: &mut [u64; PACKED]) {
        pack(words, bits, to);
    }

    #[inline(always)]
    fn pack32(self, words: &[u32; PACKED], bits: u32, to: &mut [u32; PACKED]) {
        pack(words, bits, to);
    }

    #[inline(always)]
    fn fetch(self, _: &Group) {}

    #[inline(always)]
    fn fetch_word(self, _: &u64) {}
}

#[inline(never)]
fn run_apart<T: Task>(task: T) -> T::Output {
    task.run(Portable)
}

#[inline(always)]
fn pack<T: Copy>(words: &[T; PACKED], bits: u32, to: &mut [T; PACKED]) {
    let mut used = 0;
    for (lane, &word) in words.iter().enumerate() {
        to[used % PACKED] = word;
        used += (bits >> lane & 1) as usize;
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Frames, Group, Kernel, LANES, PACKED, Previous, Task};
    use memlens_types::AccessAttr;
    use std::arch::x86_64::*;

    #[derive(Clone, Copy)]
    struct Avx2(());
    #[derive(Clone, Copy)]
    struct Avx512(());

    /// # Safety
    ///
    /// The processor has AVX2, BMI2 and POPCNT.
    #[target_feature(enable = "avx2,bmi2,popcnt")]
    pub(super) unsafe fn run_avx2<T: Task>(task: T) -> T::Output {
        task.run(Avx2(()))
    }

    /// # Safety
    ///
    /// The processor has AVX2, BMI2, POPCNT, and AVX-512 F, DQ and VL.
    #[target_feature(enable = "avx2,bmi2,popcnt,avx512f,avx512dq,avx512vl")]
    pub(super) unsafe fn run_avx512<T: Task>(task: T) -> T::Output {
        task.run(Avx512(()))
    }

    /// As [`run_avx2`], in a function of its own.
    ///
    /// # Safety
    ///
    /// As there.
    #[inline(never)]
    #[target_feature(enable = "avx2,bmi2,popcnt")]
    unsafe fn run_avx2_apart<T: Task>(task: T) -> T::Output {
        task.run(Avx2(()))
    }

    /// As [`run_avx512`], in a function of its own.
    ///
    /// # Safety
    ///
    /// As there.
    #[inline(never)]
    #[target_feature(enable = "avx2,bmi2,popcnt,avx512f,avx512dq,avx512vl")]
    unsafe fn run_avx512_apart<T: Task>(task: T) -> T::Output {
        task.run(Avx512(()))
    }

    /// What [`Kernel::changing`] needs of eight accesses, a bit each: whether it ends in the line that the one
    /// before it ended in; whether it touches one line only; whether it writes.
    #[derive(Clone, Copy)]
    struct Runs {
        same: u32,
        single: u32,
        writes: u32,
    }

    impl Runs {
        /// Bits of the accesses that change something, and whether the last one's line is dirty.
        #[inline(always)]
        fn changing(self, is_dirty: bool) -> (u32, bool) {
            let Self { same, single, writes } = self;
            // Bit i + 1: the line that access i ended in is dirty, by it or by those before it to the
            // same line. Bit 0 is the access before.
            let (linked, mut dirty) = (same << 1, writes << 1 | u32::from(is_dirty));
            dirty |= dirty << 1 & linked;
            let linked = linked & linked << 1;
            dirty |= dirty << 2 & linked;
            let linked = linked & linked << 2;
            dirty |= dirty << 4 & linked;
            let linked = linked & linked << 4;
            dirty |= dirty << 8 & linked;
            (!(same & single & (!writes | dirty)) & 0xff, dirty >> PACKED & 1 == 1)
        }
    }

    /// Row b: the places of the bits set in b, closed up, a byte each.
    static PLACES: [[u8; PACKED]; 256] = {
        let mut rows = [[0; PACKED]; 256];
        let mut bits = 0;
        while bits < 256 {
            let (mut lane, mut used) = (0, 0);
            while lane < PACKED {
                if bits >> lane & 1 == 1 {
                    rows[bits][used] = lane as u8;
                    used += 1;
                }
                lane += 1;
            }
            bits += 1;
        }
        rows
    };

    /// Words whose bits are set in `bits`, closed up.
    ///
    /// # Safety
    ///
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn packed(words: __m256i, bits: u32) -> __m256i {
        // SAFETY: the caller promises the instructions; the load is of the 8 bytes of a row.
        unsafe {
            let places = _mm_loadl_epi64(PLACES[bits as usize & 0xff].as_ptr().cast());
            _mm256_permutevar8x32_epi32(words, _mm256_cvtepu8_epi32(places))
        }
    }

    #[repr(align(64))]
    struct Masks([[u64; LANES]; 1 << LANES]);
    /// Row b: all bits of lane i are set if bit i of b is.
    static MASKS: Masks = {
        let mut rows = [[0; LANES]; 1 << LANES];
        let mut bits = 0;
        while bits < 1 << LANES {
            let mut lane = 0;
            while lane < LANES {
                rows[bits][lane] = if bits >> lane & 1 == 1 { u64::MAX } else { 0 };
                lane += 1;
            }
            bits += 1;
        }
        Masks(rows)
    };

    /// # Safety
    ///
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn mask_of(bits: u8) -> __m256i {
        // SAFETY: the caller promises the instructions; the load is of the 32 bytes of a row.
        unsafe { _mm256_load_si256(MASKS.0[usize::from(bits) % (1 << LANES)].as_ptr().cast()) }
    }

    /// Bit i is set if the top bit of lane i is.
    ///
    /// # Safety
    ///
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn top_bits([low, high]: [__m256i; 2]) -> u32 {
        // SAFETY: the caller promises the instructions.
        unsafe {
            let bits = |half| _mm256_movemask_pd(_mm256_castsi256_pd(half)) as u32;
            bits(low) | bits(high) << 4
        }
    }

    /// # Safety
    ///
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn load(words: &[u64; PACKED]) -> [__m256i; 2] {
        let at = words.as_ptr().cast::<__m256i>();
        // SAFETY: the caller promises the instructions; the loads are of the two halves of the array.
        unsafe { [_mm256_loadu_si256(at), _mm256_loadu_si256(at.add(1))] }
    }

    #[inline(always)]
    fn fetch_line(word: &u64) {
        // SAFETY: SSE, which every x86-64 processor has; a hint, and the reference is valid.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast()) }
    }

    #[inline(always)]
    fn fetch_lines(group: &Group) {
        let at = std::ptr::from_ref(group).cast::<i8>();
        // SAFETY: SSE, which every x86-64 processor has; a hint, which may be given for any address.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(at);
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(size_of::<Group>() / 2));
        }
    }

    impl Kernel for Avx2 {
        #[inline(always)]
        fn apart<T: Task>(self, task: T) -> T::Output {
            // SAFETY: an `Avx2` is only made by `run_avx2`.
            unsafe { run_avx2_apart(task) }
        }

        #[inline(always)]
        fn outside(self, addrs: &[u64; LANES], group: &Group, frames: Frames) -> u32 {
            // SAFETY: an `Avx2` is only made by `run_avx2`; the loads take the 32 bytes of `addrs` and of
            // `bases` and the 16 of `lens`.
            unsafe {
                let addrs = _mm256_loadu_si256(addrs.as_ptr().cast());
                let bases = _mm256_load_si256(group.bases.as_ptr().cast());
                let lens = _mm256_cvtepu32_epi64(_mm_load_si128(group.lens.as_ptr().cast()));
                let cfa = _mm256_and_si256(_mm256_set1_epi64x(frames.cfa as i64), mask_of(group.frames));
                let caller =
                    _mm256_and_si256(_mm256_set1_epi64x(frames.caller_cfa as i64), mask_of(group.callers));
                let origin = _mm256_or_si256(cfa, caller);
                let offsets = _mm256_sub_epi64(_mm256_sub_epi64(addrs, bases), origin);
                // Below the range: negative, and the comparison is of signed numbers.
                let inside = _mm256_andnot_si256(offsets, _mm256_cmpgt_epi64(lens, offsets));
                let inside = _mm256_movemask_pd(_mm256_castsi256_pd(inside)) as u32;
                (!inside | group.of_another_call(frames)) & u32::from(group.lanes)
            }
        }

        #[inline(always)]
        fn changing(
            self,
            addrs: &[u64; PACKED],
            attrs: &[AccessAttr; PACKED],
            line_shift: u32,
            previous: &mut Previous,
        ) -> u32 {
            // SAFETY: an `Avx2` is only made by `run_avx2`; the load takes the 32 bytes of `attrs`, each a
            // `u32` by its representation.
            unsafe {
                let addrs = load(addrs);
                let attrs = _mm256_loadu_si256(attrs.as_ptr().cast());
                let one = _mm256_set1_epi32(1);
                let beyond = _mm256_sub_epi32(_mm256_max_epu32(_mm256_srli_epi32::<16>(attrs), one), one);
                let beyond = [_mm256_castsi256_si128(beyond), _mm256_extracti128_si256::<1>(beyond)];
                let shift = _mm_cvtsi32_si128(line_shift as i32);
                let (mut line, mut end) = (addrs, addrs);
                for half in 0..2 {
                    line[half] = _mm256_srl_epi64(addrs[half], shift);
                    let last_byte = _mm256_add_epi64(addrs[half], _mm256_cvtepu32_epi64(beyond[half]));
                    end[half] = _mm256_srl_epi64(last_byte, shift);
                }
                // [3, 0, 1, 2] of each half; lane 0 takes the access before, lane 4 what lane 3 held.
                let turned = [
                    _mm256_permute4x64_epi64::<0b10_01_00_11>(end[0]),
                    _mm256_permute4x64_epi64::<0b10_01_00_11>(end[1]),
                ];
                let before = [
                    _mm256_blend_epi32::<0b11>(turned[0], _mm256_set1_epi64x(previous.line as i64)),
                    _mm256_blend_epi32::<0b11>(turned[1], turned[0]),
                ];
                let equal = |a: [__m256i; 2], b: [__m256i; 2]| {
                    top_bits([_mm256_cmpeq_epi64(a[0], b[0]), _mm256_cmpeq_epi64(a[1], b[1])])
                };
                // As `AccessAttr::write_bit`, moved to the sign.
                let writes = _mm256_andnot_si256(
                    _mm256_srli_epi32::<2>(attrs),
                    _mm256_xor_si256(attrs, _mm256_srli_epi32::<1>(attrs)),
                );
                let writes = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_slli_epi32::<31>(writes))) as u32;
                let runs = Runs { same: equal(end, before), single: equal(end, line), writes };
                let (changing, is_dirty) = runs.changing(previous.is_dirty);
                *previous = Previous { line: _mm256_extract_epi64::<3>(end[1]) as u64, is_dirty };
                changing
            }
        }

        #[inline(always)]
        fn pack64(self, words: &[u64; PACKED], bits: u32, to: &mut [u64; PACKED]) {
            // Each word is two of 32 bits.
            let twice = |half: u32| {
                let spread = (half | half << 2) & 0x33;
                let spread = (spread | spread << 1) & 0x55;
                spread | spread << 1
            };
            let (low, high) = (bits & 0xf, bits >> 4 & 0xf);
            // SAFETY: an `Avx2` is only made by `run_avx2`; the second store begins at one of the first five
            // words, and takes four.
            unsafe {
                let words = load(words);
                let to = to.as_mut_ptr();
                _mm256_storeu_si256(to.cast(), packed(words[0], twice(low)));
                _mm256_storeu_si256(to.add(low.count_ones() as usize).cast(), packed(words[1], twice(high)));
            }
        }

        #[inline(always)]
        fn pack32(self, words: &[u32; PACKED], bits: u32, to: &mut [u32; PACKED]) {
            // SAFETY: an `Avx2` is only made by `run_avx2`; load and store are of the 32 bytes of an array.
            unsafe {
                let words = _mm256_loadu_si256(words.as_ptr().cast());
                _mm256_storeu_si256(to.as_mut_ptr().cast(), packed(words, bits));
            }
        }

        #[inline(always)]
        fn fetch(self, group: &Group) {
            fetch_lines(group);
        }

        #[inline(always)]
        fn fetch_word(self, word: &u64) {
            fetch_line(word);
        }
    }

    impl Kernel for Avx512 {
        #[inline(always)]
        fn apart<T: Task>(self, task: T) -> T::Output {
            // SAFETY: an `Avx512` is only made by `run_avx512`.
            unsafe { run_avx512_apart(task) }
        }

        #[inline(always)]
        fn outside(self, addrs: &[u64; LANES], group: &Group, frames: Frames) -> u32 {
            // SAFETY: an `Avx512` is only made by `run_avx512`; the loads take the 32 bytes of `addrs` and of
            // `bases` and the 16 of `lens`.
            unsafe {
                let addrs = _mm256_loadu_si256(addrs.as_ptr().cast());
                let bases = _mm256_load_si256(group.bases.as_ptr().cast());
                let lens = _mm256_cvtepu32_epi64(_mm_load_si128(group.lens.as_ptr().cast()));
                let cfa = _mm256_maskz_set1_epi64(group.frames, frames.cfa as i64);
                let origin = _mm256_mask_set1_epi64(cfa, group.callers, frames.caller_cfa as i64);
                let offsets = _mm256_sub_epi64(_mm256_sub_epi64(addrs, bases), origin);
                // Below the range: negative, which is large.
                let outside = _mm256_cmpge_epu64_mask(offsets, lens);
                (u32::from(outside) | group.of_another_call(frames)) & u32::from(group.lanes)
            }
        }

        #[inline(always)]
        fn changing(
            self,
            addrs: &[u64; PACKED],
            attrs: &[AccessAttr; PACKED],
            line_shift: u32,
            previous: &mut Previous,
        ) -> u32 {
            // SAFETY: an `Avx512` is only made by `run_avx512`; the loads take the 64 bytes of `addrs` and the 32
            // of `attrs`, each a `u32` by its representation.
            unsafe {
                let addrs = _mm512_loadu_si512(addrs.as_ptr().cast());
                let attrs = _mm256_loadu_si256(attrs.as_ptr().cast());
                let one = _mm256_set1_epi32(1);
                let beyond = _mm256_sub_epi32(_mm256_max_epu32(_mm256_srli_epi32::<16>(attrs), one), one);
                let shift = _mm_cvtsi32_si128(line_shift as i32);
                let line = _mm512_srl_epi64(addrs, shift);
                let end = _mm512_srl_epi64(_mm512_add_epi64(addrs, _mm512_cvtepu32_epi64(beyond)), shift);
                let before = _mm512_alignr_epi64::<7>(end, _mm512_set1_epi64(previous.line as i64));
                let same = u32::from(_mm512_cmpeq_epi64_mask(end, before));
                let single = u32::from(_mm512_cmpeq_epi64_mask(end, line));
                // As `AccessAttr::write_bit`.
                let writes = _mm256_andnot_si256(
                    _mm256_srli_epi32::<2>(attrs),
                    _mm256_xor_si256(attrs, _mm256_srli_epi32::<1>(attrs)),
                );
                let writes = u32::from(_mm256_test_epi32_mask(writes, one));
                let (changing, is_dirty) = Runs { same, single, writes }.changing(previous.is_dirty);
                let last = _mm512_extracti64x4_epi64::<1>(end);
                *previous = Previous { line: _mm256_extract_epi64::<3>(last) as u64, is_dirty };
                changing
            }
        }

        #[inline(always)]
        fn pack64(self, words: &[u64; PACKED], bits: u32, to: &mut [u64; PACKED]) {
            // SAFETY: an `Avx512` is only made by `run_avx512`; load and store are of the 64 bytes of an array.
            unsafe {
                let words = _mm512_loadu_si512(words.as_ptr().cast());
                let words = _mm512_maskz_compress_epi64(bits as u8, words);
                _mm512_storeu_si512(to.as_mut_ptr().cast(), words);
            }
        }

        #[inline(always)]
        fn pack32(self, words: &[u32; PACKED], bits: u32, to: &mut [u32; PACKED]) {
            // SAFETY: an `Avx512` is only made by `run_avx512`; load and store are of the 32 bytes of an array.
            unsafe {
                let words = _mm256_loadu_si256(words.as_ptr().cast());
                let words = _mm256_maskz_compress_epi32(bits as u8, words);
                _mm256_storeu_si256(to.as_mut_ptr().cast(), words);
            }
        }

        #[inline(always)]
        fn fetch(self, group: &Group) {
            fetch_lines(group);
        }

        #[inline(always)]
        fn fetch_word(self, word: &u64) {
            fetch_line(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Call = Call { key: 3, bytes: 0x1000 };

    struct Outside([u64; LANES], Group);

    impl Task for Outside {
        type Output = u32;

        fn run<K: Kernel>(self, kernel: K) -> u32 {
            kernel.outside(&self.0, &self.1, Frames { cfa: 0x7000, caller_cfa: 0x8000, call: CALL })
        }
    }

    struct Changing([u64; PACKED], [AccessAttr; PACKED], Previous);

    impl Task for Changing {
        type Output = (u32, u64, bool, Vec<u64>, Vec<u32>);

        fn run<K: Kernel>(mut self, kernel: K) -> Self::Output {
            let bits = kernel.changing(&self.0, &self.1, 6, &mut self.2);
            let used = bits.count_ones() as usize;
            let (mut addrs, mut attrs) = ([0; PACKED], [0; PACKED]);
            kernel.pack64(&self.0, bits, &mut addrs);
            kernel.pack32(&self.1.map(|attr| attr.0), bits, &mut attrs);
            (bits, self.2.line, self.2.is_dirty, addrs[..used].to_vec(), attrs[..used].to_vec())
        }
    }

    #[test]
    fn what_changes_is_the_same_with_and_without_vectors() {
        let mut random = 1_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..20_000 {
            let addrs = [(); PACKED].map(|()| 0x1000 + next(200));
            let attrs = [(); PACKED].map(|()| {
                let kind = memlens_types::AccessKind::ALL[next(5) as usize % 5];
                AccessAttr::new(kind, next(70) as u32)
            });
            let previous = Previous { line: 0x40 + next(4), is_dirty: next(2) == 0 };
            let run = |vectors| dispatch(vectors, Changing(addrs, attrs, previous));
            for vectors in Vectors::available() {
                let (plain, vectored) = (run(Vectors(Width::None)), run(vectors));
                assert_eq!(plain, vectored, "{vectors:?} {addrs:?} {attrs:?} {previous:?}");
            }
        }
    }

    #[test]
    fn borders_wrap_and_frames_move() {
        let group = |bases, lens| Group {
            bases,
            lens,
            lanes: 0b1111,
            frames: 0b1000,
            callers: 0b0110,
            call: CALL,
            ..Group::default()
        };
        let other = |group| Group { call: Call { bytes: 8, ..CALL }, ..group };
        let wide = group([100, 8_u64.wrapping_neg(), 0x10, 8_u64.wrapping_neg()], [10, 8, 1 << 31, 8]);
        let narrow = group([u64::MAX, 0, 0, 0], [1, 0, 1, 0]);
        for vectors in Vectors::available() {
            let outside = |addrs, group| dispatch(vectors, Outside(addrs, group));
            assert_eq!(outside([99, 0x8000 - 9, 0x8000, 0x7000 - 9], wide), 0b1111);
            assert_eq!(outside([100, 0x8000 - 8, 0x8010, 0x7000 - 8], wide), 0);
            assert_eq!(outside([109, 0x8000 - 1, 0x8000_800f, 0x7000 - 1], wide), 0);
            assert_eq!(outside([110, 0x8000, 0x8000_8010, 0x7000], wide), 0b1111);
            assert_eq!(outside([100, 0x8000 - 8, 0x8010, 0x7000 - 8], other(wide)), 0b0110);
            assert_eq!(outside([u64::MAX, 0x8000, 0x8000, 0x7000], narrow), 0b1010);
            assert_eq!(outside([0; LANES], Group { lanes: 0b0101, ..narrow }), 0b0101);
        }
    }
}

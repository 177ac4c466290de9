//! Vector code: the only place of this crate with unsafe code.
#![allow(unsafe_code)]

/// How wide the model's vector code may be.
///
/// A value says that this CPU has the instructions, so it cannot be made up: it comes from
/// [`SimdLevel::detect`], or from an unsafe promise. All levels give the same results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimdLevel(Width);

/// The vector instructions that a [`SimdLevel`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Width {
    /// No vector instructions beyond the target's baseline.
    Scalar,
    /// AVX2, BMI1 and BMI2.
    Avx2,
    /// AVX-512 F, BW, DQ, VL, BMI1 and BMI2.
    Avx512,
}

impl SimdLevel {
    /// Code that runs everywhere.
    pub const SCALAR: Self = Self(Width::Scalar);

    /// The widest level that this CPU has.
    #[cfg(feature = "std")]
    pub fn detect() -> Self {
        Self::detect_up_to(Width::Avx512)
    }

    /// The widest level that this CPU has, but none above `limit`.
    #[cfg(feature = "std")]
    pub fn detect_up_to(limit: Width) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let avx2 = has!("avx2") && has!("bmi1") && has!("bmi2");
            let avx512 = avx2 && has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
            if avx512 && limit >= Width::Avx512 {
                return Self(Width::Avx512);
            }
            if avx2 && limit >= Width::Avx2 {
                return Self(Width::Avx2);
            }
        }
        let _ = limit;
        Self::SCALAR
    }

    /// A level that the caller knows the CPU to have.
    ///
    /// # Safety
    ///
    /// The CPU, and the operating system by saving the registers, must support all instruction
    /// sets named at `width`.
    pub const unsafe fn assume(width: Width) -> Self {
        Self(width)
    }

    /// What the level stands for.
    pub fn width(self) -> Width {
        self.0
    }
}

/// A set of at most 8 lines in recency order, most recent first. A word is a tag and, in bit 0,
/// whether the line is dirty; lanes from the number of ways on stay [`EMPTY`].
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(crate) struct Set8(pub(crate) [u32; 8]);

/// The same for at most 16 lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Set16(pub(crate) [u32; 16]);

/// The same for at most 32 lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Set32(pub(crate) [u32; 32]);

/// The word of an empty way: a tag that no line has, and clean.
pub(crate) const EMPTY: u32 = 0xffff_fffe;

/// What using a line did to its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    pub(crate) hit: bool,
    /// The replaced line's word; on a hit any word.
    pub(crate) word: u32,
}

/// The operation of the staged model on one set: the line of `word` (tag and dirty bit) becomes the most
/// recent one; on a hit it stays dirty if it was. `last_way` is the number of ways − 1.
///
/// A kernel is a proof that its instructions exist; only [`dispatch`] makes one.
pub(crate) trait Kernel: Copy {
    fn touch8(self, set: &mut Set8, last_way: u32, word: u32) -> Touch;
    fn touch16(self, set: &mut Set16, last_way: u32, word: u32) -> Touch;

    #[inline(always)]
    fn touch32(self, set: &mut Set32, last_way: u32, word: u32) -> Touch {
        touch_slice(&mut set.0[..=last_way as usize & 31], word)
    }

    /// Which lanes hold `word`, but for its flags: bit i of the answer for lane i.
    fn lanes_of(self, lanes: &Lanes, word: u64) -> u32;

    /// Puts a word into lane 0 and moves lanes 0 to `last` − 1 one back. Returns what lane `last` held.
    #[inline(always)]
    fn push_front(self, lanes: &mut Lanes, last: u32, word: u64) -> u64 {
        let last = last as usize & 7;
        let old = lanes.0[last];
        for lane in (1..=last).rev() {
            lanes.0[lane] = lanes.0[lane - 1];
        }
        lanes.0[0] = word;
        old
    }

    /// Moves the lanes above `lane` one to the front, over what it held; lane 7 takes `next`.
    #[inline(always)]
    fn close_gap(self, lanes: &mut Lanes, lane: u32, next: u64) {
        let lane = lane as usize & 7;
        for at in lane..7 {
            lanes.0[at] = lanes.0[at + 1];
        }
        lanes.0[7] = next;
    }
}

/// Eight words of the coherent engine's sets: a full line address and two flags in the lowest bits.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Lanes(pub(crate) [u64; 8]);

/// The word of an empty lane: no line has this address.
pub(crate) const NO_WORD: u64 = u64::MAX;
/// The bits of a word that are flags.
pub(crate) const LANE_FLAGS: u64 = 3;

/// Work that is generic over the vector instructions.
pub(crate) trait Task {
    type Output;
    /// Must be `#[inline(always)]`, so that it is compiled for the kernel's instructions.
    fn run<K: Kernel>(self, kernel: K) -> Self::Output;
}

/// Runs a task with the kernel of a level.
pub(crate) fn dispatch<T: Task>(level: SimdLevel, task: T) -> T::Output {
    match level.0 {
        Width::Scalar => task.run(Scalar),
        // SAFETY: a `SimdLevel` of this width exists only where the CPU has the instructions.
        #[cfg(target_arch = "x86_64")]
        Width::Avx2 => unsafe { x86::run_avx2(task) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Width::Avx512 => unsafe { x86::run_avx512(task) },
        #[cfg(not(target_arch = "x86_64"))]
        _ => task.run(Scalar),
    }
}

/// Asks for the cache line of `value` ahead of its use.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the reference is valid, SSE is part of x86-64, and a prefetch changes no state.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(value).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// The operation of [`Kernel`] on a set of any number of ways.
#[inline]
pub(crate) fn touch_slice(set: &mut [u32], word: u32) -> Touch {
    let found = set.iter().position(|&other| (other ^ word) & !1 == 0);
    let at = found.unwrap_or(set.len() - 1);
    let old = set[at];
    set.copy_within(0..at, 1);
    set[0] = word | (old & u32::from(found.is_some()));
    Touch { hit: found.is_some(), word: old }
}

/// The kernel without vector instructions.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

impl Kernel for Scalar {
    #[inline(always)]
    fn touch8(self, set: &mut Set8, last_way: u32, word: u32) -> Touch {
        touch_slice(&mut set.0[..=last_way as usize & 7], word)
    }

    #[inline(always)]
    fn touch16(self, set: &mut Set16, last_way: u32, word: u32) -> Touch {
        touch_slice(&mut set.0[..=last_way as usize & 15], word)
    }

    #[inline(always)]
    fn lanes_of(self, lanes: &Lanes, word: u64) -> u32 {
        lanes_equal(lanes, word)
    }
}

#[inline(always)]
fn lanes_equal(lanes: &Lanes, word: u64) -> u32 {
    let equal =
        lanes.0.iter().enumerate().map(|(lane, &other)| u32::from((other ^ word) & !LANE_FLAGS == 0) << lane);
    equal.sum()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Kernel, LANE_FLAGS, Lanes, Set8, Set16, Set32, Task, Touch};
    use core::arch::x86_64::*;

    /// Row i moves lane i to the front and lanes 0 to i − 1 one back.
    const fn move_to_front<const N: usize>() -> [[u32; N]; N] {
        let mut rows = [[0; N]; N];
        let mut i = 0;
        while i < N {
            let mut lane = 0;
            while lane < N {
                rows[i][lane] = if lane == 0 {
                    i as u32
                } else if lane <= i {
                    lane as u32 - 1
                } else {
                    lane as u32
                };
                lane += 1;
            }
            i += 1;
        }
        rows
    }

    #[repr(align(64))]
    struct Rows8([[u32; 8]; 8]);
    static ROWS8: Rows8 = Rows8(move_to_front());

    #[derive(Clone, Copy)]
    pub(super) struct Avx2(());
    #[derive(Clone, Copy)]
    pub(super) struct Avx512(());

    /// # Safety
    ///
    /// The CPU has AVX2, BMI1 and BMI2.
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    pub(super) unsafe fn run_avx2<T: Task>(task: T) -> T::Output {
        task.run(Avx2(()))
    }

    /// # Safety
    ///
    /// The CPU has AVX2, BMI1, BMI2 and AVX-512 F, BW, DQ, VL.
    #[target_feature(enable = "avx2,bmi1,bmi2,avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn run_avx512<T: Task>(task: T) -> T::Output {
        task.run(Avx512(()))
    }

    #[inline(always)]
    fn row8(i: u32) -> *const __m256i {
        ROWS8.0[i as usize & 7].as_ptr().cast()
    }

    /// # Safety
    ///
    /// The CPU has AVX2, BMI1 and BMI2.
    #[inline(always)]
    unsafe fn touch8(set: &mut Set8, last_way: u32, word: u32) -> Touch {
        let last = set.0[last_way as usize & 7];
        // SAFETY: the caller promises the instructions; loads and stores go to 32 valid bytes,
        // aligned by the types of the set and of the table.
        unsafe {
            let at = set.0.as_mut_ptr().cast::<__m256i>();
            let lines = _mm256_load_si256(at);
            let tags = _mm256_or_si256(lines, _mm256_set1_epi32(1));
            let found = bits(_mm256_cmpeq_epi32(tags, _mm256_set1_epi32((word | 1) as i32)));
            let dirty = bits(_mm256_slli_epi32::<31>(lines));
            let i = _tzcnt_u32(found | 1 << last_way);
            let moved = _mm256_permutevar8x32_epi32(lines, _mm256_load_si256(row8(i)));
            // The dirty bit comes from the masks: the moved line would have to be waited for.
            let new = word | u32::from(found & dirty != 0);
            _mm256_store_si256(at, _mm256_blend_epi32::<1>(moved, _mm256_set1_epi32(new as i32)));
            Touch { hit: found != 0, word: last }
        }
    }

    /// The top bit of each lane.
    ///
    /// # Safety
    ///
    /// The CPU has AVX2.
    #[inline(always)]
    unsafe fn bits(lanes: __m256i) -> u32 {
        // SAFETY: the caller promises the instruction.
        unsafe { _mm256_movemask_ps(_mm256_castsi256_ps(lanes)) as u32 }
    }

    impl Kernel for Avx2 {
        #[inline(always)]
        fn touch8(self, set: &mut Set8, last_way: u32, word: u32) -> Touch {
            // SAFETY: an `Avx2` is only made by `run_avx2`.
            unsafe { touch8(set, last_way, word) }
        }

        #[inline(always)]
        fn touch16(self, set: &mut Set16, last_way: u32, word: u32) -> Touch {
            let last = set.0[last_way as usize & 15];
            // SAFETY: an `Avx2` is only made by `run_avx2`; loads and stores go to the two halves
            // of a set and to rows of the table, 32 aligned bytes each.
            unsafe {
                let at = set.0.as_mut_ptr().cast::<__m256i>();
                let low = _mm256_load_si256(at);
                let high = _mm256_load_si256(at.add(1));
                let one = _mm256_set1_epi32(1);
                let tag = _mm256_set1_epi32((word | 1) as i32);
                let equal = |half| bits(_mm256_cmpeq_epi32(_mm256_or_si256(half, one), tag));
                let found = equal(low) | equal(high) << 8;
                let dirty = bits(_mm256_slli_epi32::<31>(low)) | bits(_mm256_slli_epi32::<31>(high)) << 8;
                let i = _tzcnt_u32(found | 1 << last_way);
                // The low half moves up to lane 7, the high half not at all or up to lane i − 8;
                // row 0 moves nothing.
                let moved_low = _mm256_permutevar8x32_epi32(low, _mm256_load_si256(row8(i.min(7))));
                let moved_high = _mm256_permutevar8x32_epi32(high, _mm256_load_si256(row8(i.max(8) - 8)));
                // Found in the high half: lane 7 of the low half, now in front, crosses over to lane 8.
                let crosses = _mm256_cmpgt_epi32(_mm256_set1_epi32(i as i32), _mm256_set1_epi32(7));
                let lane8 = _mm256_blendv_epi8(moved_high, moved_low, crosses);
                let new = word | u32::from(found & dirty != 0);
                let new_low = _mm256_blend_epi32::<1>(moved_low, _mm256_set1_epi32(new as i32));
                let new_high = _mm256_blend_epi32::<1>(moved_high, lane8);
                _mm256_store_si256(at, new_low);
                _mm256_store_si256(at.add(1), new_high);
                Touch { hit: found != 0, word: last }
            }
        }

        #[inline(always)]
        fn lanes_of(self, lanes: &Lanes, word: u64) -> u32 {
            // SAFETY: an `Avx2` is only made by `run_avx2`; the loads are of the two aligned halves.
            unsafe {
                let at = lanes.0.as_ptr().cast::<__m256i>();
                let flags = _mm256_set1_epi64x(LANE_FLAGS as i64);
                let wanted = _mm256_set1_epi64x((word | LANE_FLAGS) as i64);
                let equal = |half| _mm256_cmpeq_epi64(_mm256_or_si256(half, flags), wanted);
                let low = _mm256_movemask_pd(_mm256_castsi256_pd(equal(_mm256_load_si256(at))));
                let high = _mm256_movemask_pd(_mm256_castsi256_pd(equal(_mm256_load_si256(at.add(1)))));
                low as u32 | (high as u32) << 4
            }
        }

        #[inline(always)]
        fn push_front(self, lanes: &mut Lanes, last: u32, word: u64) -> u64 {
            let last = last & 7;
            let old = lanes.0[last as usize];
            // SAFETY: an `Avx2` is only made by `run_avx2`; loads and stores are of the two aligned halves.
            unsafe {
                let at = lanes.0.as_mut_ptr().cast::<__m256i>();
                let (low, high) = (_mm256_load_si256(at), _mm256_load_si256(at.add(1)));
                // [3, 0, 1, 2] of each half; lane 0 takes the word, lane 4 what lane 3 held.
                let low_back = _mm256_permute4x64_epi64::<0b10_01_00_11>(low);
                let high_back = _mm256_permute4x64_epi64::<0b10_01_00_11>(high);
                let one_low = _mm256_blend_epi32::<0b11>(low_back, _mm256_set1_epi64x(word as i64));
                let one_high = _mm256_blend_epi32::<0b11>(high_back, low_back);
                let last = _mm256_set1_epi64x(i64::from(last));
                let stays_low = _mm256_cmpgt_epi64(_mm256_setr_epi64x(0, 1, 2, 3), last);
                let stays_high = _mm256_cmpgt_epi64(_mm256_setr_epi64x(4, 5, 6, 7), last);
                _mm256_store_si256(at, _mm256_blendv_epi8(one_low, low, stays_low));
                _mm256_store_si256(at.add(1), _mm256_blendv_epi8(one_high, high, stays_high));
            }
            old
        }
    }

    // Touches of one set wait for each other, so the way from load to store is kept short: no table,
    // no lane taken out and put back. The replaced word is read from memory before the store.
    impl Kernel for Avx512 {
        #[inline(always)]
        fn touch8(self, set: &mut Set8, last_way: u32, word: u32) -> Touch {
            let last = set.0[last_way as usize & 7];
            // SAFETY: an `Avx512` is only made by `run_avx512`; loads and stores go to the 32
            // aligned bytes of a set.
            unsafe {
                let at = set.0.as_mut_ptr().cast::<__m256i>();
                let lines = _mm256_load_si256(at);
                // As in `touch16`.
                let differing = _mm256_xor_si256(lines, _mm256_set1_epi32(word as i32));
                let found = u32::from(_mm256_testn_epi32_mask(differing, _mm256_set1_epi32(!1)));
                let dirty = u32::from(_mm256_test_epi32_mask(lines, _mm256_set1_epi32(1)));
                let place = found | 1 << last_way;
                let moving = (place ^ place.wrapping_sub(1)) as u8;
                let moved = _mm256_mask_alignr_epi32::<7>(lines, moving, lines, lines);
                let new = word | u32::from(found & dirty != 0);
                _mm256_store_si256(at, _mm256_mask_set1_epi32(moved, 1, new as i32));
                Touch { hit: found != 0, word: last }
            }
        }

        #[inline(always)]
        fn touch16(self, set: &mut Set16, last_way: u32, word: u32) -> Touch {
            let last = set.0[last_way as usize & 15];
            // SAFETY: an `Avx512` is only made by `run_avx512`; loads and stores go to the 64
            // aligned bytes of a set.
            unsafe {
                let at = set.0.as_mut_ptr().cast::<__m512i>();
                let lines = _mm512_load_si512(at);
                let differing = _mm512_xor_si512(lines, _mm512_set1_epi32(word as i32));
                let found = u32::from(_mm512_testn_epi32_mask(differing, _mm512_set1_epi32(!1)));
                let dirty = u32::from(_mm512_test_epi32_mask(lines, _mm512_set1_epi32(1)));
                let place = found | 1 << last_way;
                // All lanes up to the place move one back; the first takes the line.
                let moving = (place ^ place.wrapping_sub(1)) as u16;
                let moved = _mm512_mask_alignr_epi32::<15>(lines, moving, lines, lines);
                let new = word | u32::from(found & dirty != 0);
                _mm512_store_si512(at, _mm512_mask_set1_epi32(moved, 1, new as i32));
                Touch { hit: found != 0, word: last }
            }
        }

        #[inline(always)]
        fn touch32(self, set: &mut Set32, last_way: u32, word: u32) -> Touch {
            let last = set.0[last_way as usize & 31];
            // SAFETY: an `Avx512` is only made by `run_avx512`; loads and stores go to the two aligned halves of a
            // set, 64 bytes each.
            unsafe {
                let at = set.0.as_mut_ptr().cast::<__m512i>();
                let (low, high) = (_mm512_load_si512(at), _mm512_load_si512(at.add(1)));
                let wanted = _mm512_set1_epi32(word as i32);
                // As in `touch16`; what leaves the low half goes on into the high one.
                let equal = |half| {
                    u32::from(_mm512_testn_epi32_mask(_mm512_xor_si512(half, wanted), _mm512_set1_epi32(!1)))
                };
                let is_dirty = |half| u32::from(_mm512_test_epi32_mask(half, _mm512_set1_epi32(1)));
                let found = equal(low) | equal(high) << 16;
                let dirty = is_dirty(low) | is_dirty(high) << 16;
                let place = found | 1 << last_way;
                let moving = place ^ place.wrapping_sub(1);
                let moved_low = _mm512_mask_alignr_epi32::<15>(low, moving as u16, low, low);
                let moved_high = _mm512_mask_alignr_epi32::<15>(high, (moving >> 16) as u16, high, low);
                let new = word | u32::from(found & dirty != 0);
                _mm512_store_si512(at, _mm512_mask_set1_epi32(moved_low, 1, new as i32));
                _mm512_store_si512(at.add(1), moved_high);
                Touch { hit: found != 0, word: last }
            }
        }

        #[inline(always)]
        fn lanes_of(self, lanes: &Lanes, word: u64) -> u32 {
            // SAFETY: an `Avx512` is only made by `run_avx512`; the load is of 64 aligned bytes.
            unsafe {
                let lines = _mm512_load_si512(lanes.0.as_ptr().cast());
                let differing = _mm512_xor_si512(lines, _mm512_set1_epi64(word as i64));
                _mm512_testn_epi64_mask(differing, _mm512_set1_epi64(!LANE_FLAGS as i64)).into()
            }
        }

        #[inline(always)]
        fn push_front(self, lanes: &mut Lanes, last: u32, word: u64) -> u64 {
            let last = last & 7;
            let old = lanes.0[last as usize];
            // SAFETY: an `Avx512` is only made by `run_avx512`; load and store are of 64 aligned bytes.
            unsafe {
                let at = lanes.0.as_mut_ptr().cast::<__m512i>();
                let words = _mm512_load_si512(at);
                // [word, lane 0 … lane 6], of which lanes 0 to `last` are taken.
                let one_back = _mm512_alignr_epi64::<7>(words, _mm512_set1_epi64(word as i64));
                let moving = ((2u32 << last) - 1) as u8;
                _mm512_store_si512(at, _mm512_mask_mov_epi64(words, moving, one_back));
            }
            old
        }

        #[inline(always)]
        fn close_gap(self, lanes: &mut Lanes, lane: u32, next: u64) {
            // SAFETY: an `Avx512` is only made by `run_avx512`; load and store are of 64 aligned bytes.
            unsafe {
                let at = lanes.0.as_mut_ptr().cast::<__m512i>();
                let words = _mm512_load_si512(at);
                // [lane 1 … lane 7, next], of which lanes from `lane` on are taken.
                let one_on = _mm512_alignr_epi64::<1>(_mm512_set1_epi64(next as i64), words);
                let moving = (0xffu32 << (lane & 7)) as u8;
                _mm512_store_si512(at, _mm512_mask_mov_epi64(words, moving, one_on));
            }
        }
    }
}

/// A leaf of CPUID.
#[cfg(all(feature = "std", target_arch = "x86_64"))]
pub(crate) fn cpuid(leaf: u32, subleaf: u32) -> core::arch::x86_64::CpuidResult {
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 CPU has the instruction, and it touches no memory.
    unsafe {
        core::arch::x86_64::__cpuid_count(leaf, subleaf)
    }
}

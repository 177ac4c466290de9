//! References in groups of eight, and the one comparison that the hot loop makes for a whole group.

use crate::block_table::Ending;
use memlens_types::AccessAttr;

/// References that are compared at a time.
pub const LANES: usize = 8;

/// Up to eight references of a block, with all that running the block takes: three cache lines.
///
/// The first group of a block has its number; further ones are chained behind it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Group {
    /// First address of each range, minus the frame address where `frames` or `callers` says so.
    pub bases: [u64; LANES],
    /// Bytes of each range; 0 = no range, look every access up. Longer ranges are cut around the access.
    pub lens: [u32; LANES],
    /// The cell of each reference and the object that it found last.
    pub cells: [u32; LANES],
    /// Kinds and sizes.
    pub attrs: [AccessAttr; LANES],
    /// How often the block ran while accesses were collected (first groups).
    pub executions: u64,
    /// The call for which the ranges in `callers` hold: [`Frames::call`].
    pub call: u64,
    /// Number of the first reference.
    pub first_reference: u32,
    /// The group with the next references; 0 = none.
    pub next: u32,
    /// Instructions of the block.
    pub instructions: u16,
    /// References of this group.
    pub accesses: u8,
    /// A bit for each range that is relative to the frame.
    pub frames: u8,
    /// A bit for each range that is relative to the caller's frame.
    pub callers: u8,
    /// What the block ends with.
    pub ending: Ending,
}

const _: () = assert!(size_of::<Group>() == 192);

impl Group {
    /// What a lane's range is relative to.
    #[inline(always)]
    pub fn origin(&self, lane: usize, frames: Frames) -> u64 {
        let all = |bits: u8| u64::from(bits >> lane & 1).wrapping_neg();
        (frames.cfa & all(self.frames)) | (frames.caller_cfa & all(self.callers))
    }

    /// A bit for each range that holds for another call only.
    #[inline(always)]
    pub fn of_another_call(&self, frames: Frames) -> u32 {
        if self.call == frames.call { 0 } else { self.callers.into() }
    }
}

/// The innermost frames of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// Frame address of the innermost call.
    pub cfa: u64,
    /// Frame address of its caller; 0 = unknown.
    pub caller_cfa: u64,
    /// The innermost call: its return address as a frame key; 0 = its caller is unknown.
    pub call: u64,
}

/// Which of eight accesses fall outside their references' ranges.
pub trait Kernel: Copy {
    /// Bit i is set if `addrs[i]`, less the frame address where the group says so, is not one of the group's
    /// `lens[i]` addresses from `bases[i]` on, or the range belongs to another call.
    fn outside(self, addrs: &[u64; LANES], group: &Group, frames: Frames) -> u32;
}

/// Work that is compiled once for each kernel.
pub trait Task {
    /// What comes out.
    type Output;

    /// Does it.
    fn run<K: Kernel>(self, kernel: K) -> Self::Output;
}

/// Runs a task with the best kernel that this processor has.
#[inline]
pub fn dispatch<T: Task>(has_avx512: bool, task: T) -> T::Output {
    #[cfg(target_arch = "x86_64")]
    if has_avx512 {
        // SAFETY: callers pass on what the function `has_avx512` found out.
        return unsafe { x86::run(task) };
    }
    let _ = has_avx512;
    task.run(Portable)
}

/// Whether the processor has what [`dispatch`] can use.
pub fn has_avx512() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512vl")
        && std::arch::is_x86_feature_detected!("bmi2");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[derive(Clone, Copy)]
struct Portable;

impl Kernel for Portable {
    #[inline(always)]
    fn outside(self, addrs: &[u64; LANES], group: &Group, frames: Frames) -> u32 {
        let mut outside = group.of_another_call(frames);
        for lane in 0..LANES {
            let offset = addrs[lane].wrapping_sub(group.origin(lane, frames)).wrapping_sub(group.bases[lane]);
            outside |= u32::from(offset >= u64::from(group.lens[lane])) << lane;
        }
        outside
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Frames, Group, Kernel, LANES, Task};
    use std::arch::x86_64::*;

    #[derive(Clone, Copy)]
    struct Avx512(());

    /// # Safety
    ///
    /// The processor has AVX-512 F and VL, and BMI2.
    #[target_feature(enable = "avx512f,avx512vl,bmi2")]
    pub(super) unsafe fn run<T: Task>(task: T) -> T::Output {
        task.run(Avx512(()))
    }

    impl Kernel for Avx512 {
        #[inline(always)]
        fn outside(self, addrs: &[u64; LANES], group: &Group, frames: Frames) -> u32 {
            // SAFETY: an `Avx512` is only made by `run`; the loads take the 64 bytes of `addrs` and of
            // `bases` and the 32 of `lens`.
            unsafe {
                let addrs = _mm512_loadu_si512(addrs.as_ptr().cast());
                let bases = _mm512_loadu_si512(group.bases.as_ptr().cast());
                let lens = _mm512_cvtepu32_epi64(_mm256_loadu_si256(group.lens.as_ptr().cast()));
                let cfa = _mm512_set1_epi64(frames.cfa as i64);
                let caller = _mm512_set1_epi64(frames.caller_cfa as i64);
                let relative = _mm512_mask_sub_epi64(addrs, group.frames, addrs, cfa);
                let relative = _mm512_mask_sub_epi64(relative, group.callers, relative, caller);
                let outside = _mm512_cmpge_epu64_mask(_mm512_sub_epi64(relative, bases), lens);
                u32::from(outside) | group.of_another_call(frames)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Outside([u64; LANES], Group);

    impl Task for Outside {
        type Output = u32;

        fn run<K: Kernel>(self, kernel: K) -> u32 {
            kernel.outside(&self.0, &self.1, Frames { cfa: 0x7000, caller_cfa: 0x8000, call: 3 })
        }
    }

    #[test]
    fn borders_wrap_and_frames_move() {
        let group = Group {
            bases: [
                100,
                8_u64.wrapping_neg(),
                100,
                100,
                8_u64.wrapping_neg(),
                8_u64.wrapping_neg(),
                u64::MAX,
                5,
            ],
            lens: [10, 8, 10, 10, 8, 8, 1, 0],
            frames: 0b0011_0000,
            callers: 0b0000_0010,
            call: 3,
            ..Group::default()
        };
        let addrs = [99, 0x8000 - 1, 109, 110, 0x7000 - 8, 0x7000, u64::MAX, 5];
        for has_avx512 in [false, has_avx512()] {
            assert_eq!(dispatch(has_avx512, Outside(addrs, group)), 0b1010_1001);
            assert_eq!(dispatch(has_avx512, Outside(addrs, Group { call: 4, ..group })), 0b1010_1011);
        }
    }
}

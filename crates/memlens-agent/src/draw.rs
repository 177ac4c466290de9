//! Which blocks are watched.
//!
//! # Model
//! Bytes are drawn, as a Poisson process draws points: the gaps between drawn bytes of a thread's allocations are
//! exponential with mean R. A block is watched if one of its bytes is drawn, so a block of s bytes is watched with
//! probability p = 1 - exp(-s / R), whatever else is allocated; what is counted on it has the weight 1 / p
//! (D. G. Horvitz and D. J. Thompson, A Generalization of Sampling Without Replacement From a Finite Universe,
//! JASA 47, 1952). The exponential distribution has no memory: after a drawn block the rest of its gap is thrown
//! away and a new one begins.
//!
//! R is a power of two in the segment. If more blocks are drawn between two looks of memlens than the window
//! allows, the agent doubles R at once, and again after each quarter as many more; memlens halves it again when there is room, down to so
//! little that practically every block is watched: so it begins, and comes back to that in a program that allocates seldom. How many that
//! are follows from what reports take. A gap keeps the R that it was drawn with, and the record says which.
//!
//! Long gaps are cut: after a sixteenth of R bytes, or [`UNCUT_BYTES`], and the block in which that ends, the rest is thrown away, too,
//! and a new gap begins with the R of then. A thread that was in a gap of megabytes when the program stopped allocating would miss what
//! comes next.
//!
//! Blocks from [`ALWAYS_FROM_BYTES`] on are watched in any case where some are.
//!
//! The others are counted, for what bursts stand for (`memlens-sample/src/bursts/allocations.rs`).
//!
//! # Signal safety
//! Reads and writes the thread's area and atomics only.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use memlens_events::agent::{Control, MOST_GAP_SHIFT, NO_GAP};

/// [`Control::always_from_bytes`] where the entry points find it; [`MOST_COUNTED_BYTES`] until the agent is started.
pub static ALWAYS_FROM_BYTES: AtomicU64 = AtomicU64::new(MOST_COUNTED_BYTES);

/// The budget where nothing is drawn: after so many bytes a thread looks again, because memlens may have come back.
pub const ENDLESS: i64 = 1 << 20;

/// Gaps up to here are not cut.
const UNCUT_BYTES: i64 = 1 << 14;

/// Blocks from this size on are watched if any are: [`Budget`] has no room for them.
pub const MOST_COUNTED_BYTES: u64 = 1 << 40;

/// The low bits of a budget, which count calls.
pub const CALL_BITS: u32 = 22;
/// What a budget has room for, in bytes: far more than gaps of mean 2^[`MOST_GAP_SHIFT`] need.
const MOST_LEFT: i64 = (1 << (63 - CALL_BITS)) - 1;

/// What a thread may allocate until the next drawn byte, in bytes, and how often it has allocated: in one word, so that the entry
/// points do both with one subtraction, of the size times 2^[`CALL_BITS`], less 1. Calls are moved from it at each tick and where something is drawn; if there
/// are too many for its bits meanwhile, as many are not counted, and a byte is left more.
#[repr(C)]
#[derive(Debug)]
pub struct Budget {
    word: Cell<i64>,
    /// Calls that were moved from it.
    calls: Cell<u64>,
}

impl Budget {
    const CALLS: i64 = (1 << CALL_BITS) - 1;

    /// Bytes left; below 0: one has been drawn.
    pub fn left(&self) -> i64 {
        self.word.get() >> CALL_BITS
    }

    /// Changes that.
    pub fn set(&self, left: i64) {
        self.calls.set(self.calls());
        self.word.set(left.clamp(-MOST_LEFT, MOST_LEFT) << CALL_BITS);
    }

    /// A call for so many bytes, as the entry points count it.
    pub fn count(&self, bytes: u64) {
        self.word.set(self.word.get().wrapping_sub((bytes << CALL_BITS).wrapping_sub(1) as i64));
    }

    /// Calls so far, but for blocks that are watched for their size alone.
    pub fn calls(&self) -> u64 {
        self.calls.get().wrapping_add((self.word.get() & Self::CALLS) as u64)
    }

    /// Makes room for more calls.
    pub fn move_calls(&self) {
        self.set(self.left());
    }
}

/// A thread's random numbers and the gap that it is in.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadDraw {
    /// xorshift64* (S. Vigna, An experimental exploration of Marsaglia's xorshift generators, scrambled, ACM TOMS
    /// 42, 2016); 0: not yet seeded.
    state: u64,
    /// What the gap has behind the place where it is cut, in bytes; 0: it is not.
    rest: i64,
    /// The gap's mean is 2 to this power; 0: no gap yet.
    shift: u32,
}

impl ThreadDraw {
    fn next(&mut self, seed: u64) -> u64 {
        if self.state == 0 {
            // Weyl's constant keeps small seeds apart; never 0.
            self.state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        }
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A new gap of mean 2^`shift`: the bytes that pass before the drawn one. `seed` counts once, at the
    /// thread's first gap.
    fn gap(&mut self, shift: u32, seed: u64) -> i64 {
        self.shift = shift;
        // Uniform in (0, 1]: 53 bits, the precision of the type.
        let uniform = ((self.next(seed) >> 11) + 1) as f64 / (1u64 << 53) as f64;
        // At most 53 ln 2 = 37 means: far inside i64.
        (-libm::log(uniform) * (1u64 << shift) as f64) as i64
    }

    /// The part of what is left of a gap that goes into the budget.
    fn cut(&mut self, left: i64) -> i64 {
        let longest = UNCUT_BYTES.max((1 << self.shift) >> 4);
        self.rest = (left - longest).max(0);
        left - self.rest
    }

    /// What becomes of a block of `size_bytes`, after which `budget` is left: the mean of the gap that ended in
    /// it, if one did. `budget` is set for what comes next.
    ///
    /// Called when the budget is below 0, and at a thread's first allocation, when there is no gap yet.
    pub fn decide(&mut self, size_bytes: u64, budget: &mut i64, shift: u32, seed: u64) -> Option<u64> {
        if shift >= NO_GAP {
            *self = Self { state: self.state, ..Self::default() };
            *budget = ENDLESS;
            return None;
        }
        let was_cut = self.rest > 0;
        let mut left = budget.saturating_add(self.rest);
        if self.shift == 0 {
            let size = i64::try_from(size_bytes).unwrap_or(i64::MAX);
            left = self.gap(shift, seed).saturating_sub(size);
        }
        // The whole block is judged by one gap, so that its chance has one mean.
        let gap_bytes = (left < 0).then_some(1 << self.shift);
        if was_cut || gap_bytes.is_some() {
            left = self.gap(shift, seed);
        }
        *budget = self.cut(left);
        gap_bytes
    }

    /// In a forked child: the gap goes on, later ones are the child's own.
    pub fn reseed(&mut self) {
        self.state = 0;
    }
}

/// Counts a drawn block, whose report took so long, and doubles the mean gap when there were too many since memlens looked.
pub fn count_drawn(control: &Control, took_ns: u64) {
    control.drawing_ns.fetch_add(took_ns, Ordering::Relaxed);
    control.drawn_blocks.fetch_add(1, Ordering::Relaxed);
    let drawn = control.window_blocks.fetch_add(1, Ordering::Relaxed) + 1;
    let limit = control.window_limit.load(Ordering::Relaxed).max(1);
    if drawn >= limit {
        let shift = control.gap_shift.load(Ordering::Relaxed);
        if shift < MOST_GAP_SHIFT
            && control
                .gap_shift
                .compare_exchange(shift, shift + 1, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            control.window_blocks.store(limit - limit / 4, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the entry points and the slow path do it.
    struct Thread {
        budget: i64,
        draw: ThreadDraw,
        seed: u64,
    }

    impl Thread {
        fn new(seed: u64) -> Self {
            Self { budget: 0, draw: ThreadDraw::default(), seed }
        }

        /// The block's weight, if it is watched.
        fn allocate(&mut self, size_bytes: u64, shift: u32) -> Option<f64> {
            self.budget = self.budget.wrapping_sub(size_bytes as i64);
            if self.budget >= 0 {
                return None;
            }
            let gap = self.draw.decide(size_bytes, &mut self.budget, shift, self.seed)?;
            Some(1.0 / (1.0 - (-(size_bytes as f64) / gap as f64).exp()))
        }
    }

    #[test]
    fn weights_add_up_to_what_was_allocated_over_many_seeds() {
        // Sizes far below, around and above the mean gap of 16 KiB, mixed in one stream of allocations.
        let sizes = [16u64, 200, 4096, 16_384, 100_000, 3 << 20];
        let (rounds, seeds) = (200, 400u64);
        let mut estimates = [[0.0f64; 2]; 6];
        for seed in 1..=seeds {
            let mut thread = Thread::new(seed);
            let mut counted = [0.0; 6];
            for round in 0..rounds {
                // The gap changes while the program runs; those of mean 1 MiB are cut.
                let shift = [14, 20, 15, 10][round as usize / 10 % 4];
                for (at, &size) in sizes.iter().enumerate() {
                    counted[at] += thread.allocate(size, shift).unwrap_or(0.0);
                }
            }
            for (estimate, counted) in estimates.iter_mut().zip(counted) {
                estimate[0] += counted;
                estimate[1] += counted * counted;
            }
        }
        for (size, [sum, squares]) in sizes.iter().zip(estimates) {
            let mean = sum / seeds as f64;
            let variance = squares / seeds as f64 - mean * mean;
            let error = (variance / seeds as f64).sqrt();
            let truth = f64::from(rounds);
            // Five standard errors of the mean: seeds are fixed, so the outcome is, too.
            assert!((mean - truth).abs() <= 5.0 * error.max(1e-9), "{size}: {mean} ± {error}, not {truth}");
            assert!(*size > 50_000 || error > 0.0, "{size}: nothing was drawn at random");
        }
    }

    /// As the entry points subtract.
    #[test]
    fn a_budget_counts_bytes_and_calls() {
        let budget = Budget { word: Cell::new(0), calls: Cell::new(0) };
        budget.set(1000);
        for (bytes, left, calls) in
            [(0, 1000, 1), (999, 1, 2), (1, 0, 3), (1, -1, 4), (1 << 39, -1 - (1 << 39), 5)]
        {
            budget.count(bytes);
            assert_eq!((budget.left(), budget.calls()), (left, calls));
            assert_eq!(budget.word.get() < 0, left < 0, "the sign is that of the bytes");
        }
        budget.set(i64::MAX);
        assert_eq!((budget.left(), budget.calls()), (MOST_LEFT, 5));
        for _ in 0..3 {
            (0..1 << (CALL_BITS - 1)).for_each(|_| budget.count(16));
            budget.move_calls();
        }
        assert_eq!(budget.calls(), 5 + (3 << (CALL_BITS - 1)));
        assert_eq!(budget.left(), MOST_LEFT - (3 << (CALL_BITS + 3)));
    }

    #[test]
    fn a_thread_in_a_long_gap_notices_that_gaps_are_short_now() {
        let mut watched = 0;
        for seed in 1..1000 {
            let mut thread = Thread::new(seed);
            thread.allocate(64, 20);
            // A sixteenth of the gap, and blocks of twice the new mean: 1 - 1/e² of them are watched.
            for _ in 0..1100 {
                thread.allocate(64, 5);
            }
            watched += (0..10).filter(|_| thread.allocate(64, 5).is_some()).count();
        }
        let expected = 9990.0 * (1.0 - (-2.0f64).exp());
        assert!(
            (watched as f64 - expected).abs() < 5.0 * (expected * 0.135).sqrt(),
            "{watched}, not {expected}"
        );
    }

    #[test]
    fn a_block_much_larger_than_the_gap_is_always_watched() {
        for seed in 1..1000 {
            assert!(Thread::new(seed).allocate(1 << 20, 14).is_some(), "{seed}");
        }
    }

    #[test]
    fn without_gaps_nothing_is_drawn() {
        let mut thread = Thread::new(1);
        for _ in 0..1000 {
            assert_eq!(thread.allocate(1 << 30, NO_GAP), None);
        }
    }
}

//! How many core cycles something takes.
//!
//! Its time is divided by that of one of many additions that wait for each other. Both are measured in short turns one after the other, so
//! that a changing frequency falls out, and the least of many turns counts: whatever else runs can only slow a turn down. All is measured
//! [`PASSES`] times over, because what shares the core or the last level stays for longer than a turn; the least pass counts, of page walks
//! the middle one. How far the middle one lies above the least, of turns or of passes, whichever is more, is the *spread*.

use std::time::Instant;

/// Times that everything is measured.
pub(crate) const PASSES: usize = 3;
/// Turns that a time is the least of, in each pass.
pub(crate) const TURNS: usize = 24;
/// How long a turn takes, in nanoseconds, about.
const TURN_NS: f64 = 250_000.0;
/// Additions in a turn that measures a cycle.
const ADDITIONS: u32 = 1 << 16;

/// A time in cycles, and how certain it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Latency {
    /// Of the fastest turn.
    pub cycles: f64,
    /// How far the middle turn lies above it, as a part of it.
    pub spread: f64,
}

impl Latency {
    /// The least of several passes, and what they differ by; `None` of none.
    pub(crate) fn least(passes: impl Iterator<Item = Self>) -> Option<Self> {
        let mut all: Vec<Self> = passes.collect();
        all.sort_by(|a, b| a.cycles.total_cmp(&b.cycles));
        let (first, middle) = (*all.first()?, all.get(all.len() / 2)?);
        let between = if first.cycles > 0.0 { middle.cycles / first.cycles - 1.0 } else { 0.0 };
        Some(Self { spread: first.spread.max(between), ..first })
    }

    /// The middle of several, of an even number the larger one, and how far it lies above the least; `None` of none.
    pub(crate) fn middle(all: impl Iterator<Item = Self>) -> Option<Self> {
        let mut all: Vec<Self> = all.collect();
        all.sort_by(|a, b| a.cycles.total_cmp(&b.cycles));
        let (first, middle) = (*all.first()?, *all.get(all.len() / 2)?);
        let between = if first.cycles > 0.0 { middle.cycles / first.cycles - 1.0 } else { 0.0 };
        Some(Self { spread: middle.spread.max(between), ..middle })
    }

    /// Of each of the steps that `walk` does `steps_at_once` of as often as it is told.
    pub(crate) fn of_a_step(turns: usize, steps_at_once: usize, mut walk: impl FnMut(usize)) -> Self {
        // Faults, caches and predictors first; and how many make a turn.
        let start = Instant::now();
        walk(64);
        let once_ns = (start.elapsed().as_nanos() as f64 / 64.0).max(16.0);
        let times = ((TURN_NS / once_ns) as usize).max(64);
        walk(times);
        Self::of_turns(turns, times * steps_at_once, || (), || walk(times))
    }

    /// Of each of the `steps` that `walk` does at a time, of which there are `turns`; `before` each something is done that does not count.
    pub(crate) fn of_turns(
        turns: usize,
        steps: usize,
        mut before: impl FnMut(),
        mut walk: impl FnMut(),
    ) -> Self {
        let mut all: Vec<f64> = (0..turns)
            .map(|_| {
                before();
                let cycle_before = cycle_ns();
                let start = Instant::now();
                walk();
                let step_ns = start.elapsed().as_nanos() as f64 / steps as f64;
                // A cycle measured while something else ran is too long.
                step_ns / cycle_ns().min(cycle_before)
            })
            .collect();
        let (cycles, spread) = least_and_spread(&mut all);
        Self { cycles, spread }
    }
}

/// The value that a tenth lies below, and how far the middle one is above it.
pub(crate) fn least_and_spread(values: &mut [f64]) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let (least, middle) = (values[values.len() / 10], values[values.len() / 2]);
    (least, if least > 0.0 { middle / least - 1.0 } else { 0.0 })
}

/// Nanoseconds of one cycle: of an addition that waits for the one before. Of two registers: Golden Cove adds up small constants
/// when it renames registers, several of them a cycle (A. Abel, J. Reineke, uops.info, `ADD_R64_I8` on Alder Lake P).
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[allow(unsafe_code)]
pub(crate) fn cycle_ns() -> f64 {
    let start = Instant::now();
    // SAFETY: the code changes only the two registers that it declares, and the flags.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "2:",
            ".rept 32",
            "add {sum}, {one}",
            ".endr",
            "sub {left:e}, 32",
            "jnz 2b",
            sum = inout(reg) 0u64 => _,
            one = in(reg) 1u64,
            left = inout(reg) ADDITIONS => _,
            options(nomem, nostack),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "2:",
            ".rept 32",
            "add {sum}, {sum}, {one}",
            ".endr",
            "subs {left:w}, {left:w}, #32",
            "b.ne 2b",
            sum = inout(reg) 0u64 => _,
            one = in(reg) 1u64,
            left = inout(reg) ADDITIONS => _,
            options(nomem, nostack),
        );
    }
    start.elapsed().as_nanos() as f64 / f64::from(ADDITIONS)
}

/// The same by a multiplication, of three cycles on present processors.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn cycle_ns() -> f64 {
    let start = Instant::now();
    let mut value = 1u64;
    for _ in 0..ADDITIONS / 4 {
        value = std::hint::black_box(value).wrapping_mul(3);
    }
    std::hint::black_box(value);
    start.elapsed().as_nanos() as f64 / f64::from(ADDITIONS / 4) / 3.0
}

/// Nanoseconds of a cycle of the core that it runs on, now: of the fastest of some turns, half a millisecond in all.
pub fn core_cycle_ns() -> f64 {
    let mut all: Vec<f64> = (0..TURNS).map(|_| cycle_ns()).collect();
    least_and_spread(&mut all).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_that_of_the_middle() {
        // Ten values: a tenth lies below 2, half below 6: 6 ÷ 2 − 1.
        let mut values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0];
        assert_eq!(least_and_spread(&mut values), (2.0, 2.0));
    }

    #[test]
    fn passes_have_a_least_and_a_middle() {
        let passes = || [90.0, 60.0, 75.0].into_iter().map(|cycles| Latency { cycles, spread: 0.1 });
        assert_eq!(Latency::least(passes()), Some(Latency { cycles: 60.0, spread: 0.25 }));
        assert_eq!(Latency::middle(passes()), Some(Latency { cycles: 75.0, spread: 0.25 }));
        assert_eq!(
            Latency::middle(passes().skip(1)).map(|middle| middle.cycles),
            Some(75.0),
            "of two the larger"
        );
        assert_eq!(Latency::middle(std::iter::empty()), None);
    }
}

//! How far the misses of instructions and owners lean on what the program as one has.
//!
//! An instruction that few bursts saw has its longest reuse times from the few blocks that none of these found again; a thousand such
//! instructions together have several times the program's misses in large caches. The program as one has too few where some
//! instructions go over much more data than the others. So where it has fewer than all its instructions together, theirs are lowered
//! towards it, the more the fewer bursts tell of them.
//!
//! Where it is known how much data there is, the program's row gives way (`tilt.rs`) with what is fitted to instructions, and has up to a hundred times
//! too few misses, so that [`LEAST`] is what rows are lowered to. On traces, whose bursts all stand for as much, that is too low; in live runs, where
//! a few bursts stand for most of the time, leaving it out is worse (`docs/accuracy-bursts.md`).

use crate::summary::{Estimate, Row};

/// With less than this part of the misses that its instructions say the program's distribution ends too early.
const LEAST: f64 = 0.1;
/// From so many bursts on it is mostly a row itself that tells. Chosen, with the square, on traces of programs: misses of a last level were
/// off by a factor of 2.27 instead of 2.56 (8 programs, 37 bursts each), 1.82 instead of 1.85 (19, 30) and 1.52 instead of 1.65 (100).
const BURSTS: f64 = 4.0;

/// Lowers what rows say. `program`: its estimates as one, by level.
pub(crate) fn lean(program: &[Estimate], instructions: &mut [(u32, Row)], owners: &mut [(u32, Row)]) {
    for (level, program) in program.iter().enumerate() {
        let accesses = instructions.iter().filter(|(_, row)| !row.is_prefetch);
        let sum: f64 = accesses.map(|(_, row)| row.levels[level].misses).sum();
        if program.misses < sum {
            let part = (program.misses / sum).max(LEAST);
            for (_, row) in instructions.iter_mut().chain(&mut *owners) {
                let kept = part.powf((BURSTS / (BURSTS + row.bursts as f64)).powi(2));
                let estimate = &mut row.levels[level];
                estimate.misses = (kept * estimate.misses).max(estimate.low.min(estimate.misses));
            }
        }
    }
}

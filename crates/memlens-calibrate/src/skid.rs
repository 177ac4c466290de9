//! How far samples land from the instruction that waits.
//!
//! Loops whose code is known run under the event that sample mode uses. In each exactly one
//! instruction waits, and everything else takes a few cycles:
//!
//! | loop | what waits |
//! |---|---|
//! | load | a move from memory that no cache holds |
//! | operand | an exclusive or with such memory (x86-64) |
//! | store | a store to such memory, at random places |
//! | divide | a division, whose operands are at hand: computation |
//!
//! A sample at the waiting instruction has displacement 0, at the one that executes after it 1, and so
//! on, around the loop.
#![allow(unsafe_code)]

use std::io;

use memlens_sample::{EventChoice, SampleError, SampleEvent, sample_own_thread};

use crate::chain::Chain;
use crate::kernel_clock;
use crate::known_loops::{KnownLoop, LOOPS};
use crate::mapping::Pages;

/// Samples a second: enough for a histogram in a quarter of a second.
const FREQUENCY_HZ: u64 = 8_000;
/// Memory that no cache holds.
const FAR_BYTES: usize = 64 << 20;
/// Rounds of a loop between two looks at the clock.
const ROUNDS: u64 = 20_000;
/// How long each loop is sampled, in seconds.
const SECONDS: f64 = 0.5;

/// Where the samples of one loop landed.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LoopSkid {
    /// `load`, `operand`, `store` or `divide`.
    pub name: String,
    /// Instructions of the loop.
    pub instructions: usize,
    /// Samples by displacement from the instruction that waits, 0 to `instructions` − 1.
    pub samples: Vec<u64>,
    /// Samples outside of the loop.
    pub elsewhere: u64,
}

impl LoopSkid {
    /// The part of the loop's samples that landed so many instructions on.
    pub fn share(&self, displacement: usize) -> f64 {
        // Of a file, they may be any numbers.
        let all: u128 = self.samples.iter().copied().map(u128::from).sum();
        self.samples.get(displacement).map_or(0.0, |&samples| samples as f64 / all.max(1) as f64)
    }

    /// Where most samples landed; `None` without samples.
    pub fn usual(&self) -> Option<usize> {
        let most = self.samples.iter().max().filter(|&&most| most > 0)?;
        self.samples.iter().position(|samples| samples == most)
    }

    /// The shares in units of lines of `per_line` instructions, if the instruction that waits stands at
    /// any place of its line alike.
    pub fn by_lines(&self, per_line: usize) -> Vec<f64> {
        let per_line = per_line.max(1);
        let mut lines = vec![0.0; self.samples.len() / per_line + 2];
        for displacement in 0..self.samples.len() {
            for place in 0..per_line {
                lines[(place + displacement) / per_line] += self.share(displacement) / per_line as f64;
            }
        }
        lines
    }
}

/// Why the skid could not be measured. Reads after "failed to".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SkidError {
    /// No event can be sampled.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// There is no memory to wait for.
    #[error("allocate memory: {0}")]
    Memory(#[from] io::Error),
}

/// Samples each loop for half a second.
///
/// # Errors
/// If the kernel allows no event, or there is no memory.
pub fn measure(choice: EventChoice) -> Result<(SampleEvent, Vec<LoopSkid>), SkidError> {
    let chain = Chain::over(FAR_BYTES, Pages::Small)?;
    let mut result = Vec::new();
    let mut used = None;
    for known in &LOOPS {
        let (event, addresses) = sample_own_thread(choice, FREQUENCY_HZ, || {
            let start = kernel_clock::now();
            let mut at = if known.name == "store" { chain.first() } else { chain.here() };
            while (kernel_clock::now() - start).as_secs_f64() < SECONDS {
                // SAFETY: the loops follow a chain that lives on, or write to the second word of each of
                // its 2^20 lines, or do not touch memory; they change only registers that a call may
                // change.
                at = unsafe { (known.code)(at, ROUNDS) };
            }
            std::hint::black_box(at);
        })?;
        used = Some(event);
        result.push(known.histogram(&addresses));
    }
    let event = used.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok((event, result))
}

impl KnownLoop {
    fn histogram(&self, addresses: &[u64]) -> LoopSkid {
        let all = self.instructions();
        let body = &all[self.first..];
        let mut samples = vec![0; body.len()];
        let mut elsewhere = 0;
        for address in addresses {
            match body.iter().position(|pc| pc == address) {
                Some(at) => {
                    samples[(at + body.len() - (self.waits - self.first)) % body.len()] += 1;
                }
                None => elsewhere += 1,
            }
        }
        LoopSkid { name: self.name.to_owned(), instructions: body.len(), samples, elsewhere }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loops_are_what_they_say() {
        let lengths: Vec<usize> = LOOPS.iter().map(|known| known.instructions().len()).collect();
        // One load, 16 additions, two that count; xor, 2, xor, mov, 12, 2; 2 before, 6, 9, 2; 3, 3, 12, 2.
        #[cfg(target_arch = "x86_64")]
        assert_eq!(lengths, [19, 19, 19, 20]);
        // One load, 16, 2; 7 before, 4, 9, 2; 2, 2, 12, 2.
        #[cfg(target_arch = "aarch64")]
        assert_eq!(lengths, [19, 22, 18]);
        for known in &LOOPS {
            let all = known.instructions();
            let landed = |at: usize| known.histogram(&[all[at]]).samples;
            // At the waiting one, behind it, and around the loop at the one before it.
            assert_eq!(landed(known.waits)[0], 1, "{}", known.name);
            assert_eq!(landed(known.waits + 1)[1], 1, "{}", known.name);
            let before = if known.waits == known.first { all.len() - 1 } else { known.waits - 1 };
            assert_eq!(landed(before).last(), Some(&1), "{}", known.name);
            let outside = known.first.checked_sub(1).map_or(0, |at| all[at]);
            assert_eq!(known.histogram(&[outside, 0]).elsewhere, 2, "{}", known.name);
        }
    }

    #[test]
    fn lines_follow_from_instructions() {
        // All one instruction on: the first three of a line of four stay on it, the fourth leaves it.
        let skid = LoopSkid { samples: vec![0, 8, 0], ..LoopSkid::default() };
        assert_eq!(skid.by_lines(4)[..2], [0.75, 0.25]);
        assert_eq!((skid.usual(), LoopSkid::default().usual()), (Some(1), None));
    }
}

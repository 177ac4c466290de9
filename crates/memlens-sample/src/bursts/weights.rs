//! How many accesses of the program a burst stands for: those since the last one, which nobody counted.
//!
//! They are the processor time in between over the time of an access. That time is measured behind each burst, where the
//! thread goes on in copies of its code that only count the words they would have stored (`memlens-burst`): the same
//! code, the same misses, the same page faults, and none of recording's own work. A burst that ended early has no such
//! stretch; then its own time is taken, less the part that recording took in the bursts that have one, or if it is too
//! short for that, their mean time of an access.

use memlens_events::agent::BurstHead;
use memlens_events::burst::block_of;

/// Shorter stretches say nothing, in words.
const FEWEST_WORDS: u64 = 2000;
/// What counting costs at a block in ns: a comparison, an addition and a jump that the native code does not have. Chosen,
/// not calibrated: the same instructions added to a loop by hand took 0.1 to 0.6 on a Zen 3, and blocks that do not keep
/// their registers take several.
const BLOCK_NS: f64 = 1.0;
/// Counting does not more than multiply the time of an access by this.
const MOST_SLOWER: f64 = 2.5;
/// Bursts are weighed otherwise where repeated string instructions have more than this part of the accesses.
const REPEATED_PART: f64 = 0.05;
/// Bursts with fewer accesses say nothing of an access's time.
const FEWEST_ACCESSES: f64 = 10_000.0;
/// An access's time before any was measured, in ns.
const USUAL_NS: f64 = 2.0;
/// The part of its time in a burst that an access takes natively, before any was measured.
const NATIVE_PART: f64 = 0.5;
/// Shorter times of an access are faults of the measurement, in ns.
const LEAST_NS: f64 = 0.02;

/// What the bursts so far told of recording's cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weights {
    /// Of bursts with a stretch: time that their accesses took, in ns …
    in_bursts_ns: f64,
    /// … and would have taken natively.
    native_ns: f64,
    /// Those accesses.
    accesses: f64,
}

/// What a burst says of the accesses around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight {
    /// Accesses since the last burst.
    pub unseen: f64,
    /// Accesses in the stretches behind it.
    pub counted: f64,
    /// Native time of an access in ns.
    pub access_ns: f64,
    /// Whether that was measured, and not taken from other bursts.
    pub is_measured: bool,
}

impl Weights {
    /// Of a burst with these words and so many accesses; `repeated` of them are those of repeated string instructions
    /// behind their first.
    pub fn weight(&mut self, head: &BurstHead, words: &[u64], accesses: f64, repeated: f64) -> Weight {
        let accesses_a_word = accesses / words.len().max(1) as f64;
        let blocks = words.iter().filter(|&&word| block_of(word).is_some()).count() as f64;
        let counted_words = (head.counted_words + head.words_between) as f64;
        let in_burst = recorded_ns(head);
        let measured = (head.counted_words >= FEWEST_WORDS).then(|| {
            let own = own_part(head.counted_cycles, head.counted_runtime_cycles) * head.counted_ns as f64;
            let counted = own / (head.counted_words as f64 * accesses_a_word);
            (counted - BLOCK_NS * blocks / accesses).max(counted / MOST_SLOWER)
        });
        if let Some(measured) = measured
            && repeated > REPEATED_PART * accesses
        {
            // They run as fast as natively, and the stretch may have none: what the rest does not explain is theirs.
            let rest = measured * accesses;
            let theirs = (in_burst - rest / self.native_part()).max(0.0);
            let access_ns = ((rest + theirs).min(in_burst.max(rest)) / accesses).max(LEAST_NS);
            return Weight {
                unseen: head.period_ns as f64 / access_ns,
                counted: counted_words,
                access_ns,
                is_measured: true,
            };
        }
        let access_ns = match measured {
            Some(measured) => {
                self.in_bursts_ns += in_burst;
                self.native_ns += measured * accesses;
                self.accesses += accesses;
                measured
            }
            None if accesses >= FEWEST_ACCESSES => in_burst / accesses * self.native_part(),
            None if self.accesses > 0.0 => self.native_ns / self.accesses,
            None => USUAL_NS,
        };
        let access_ns = access_ns.max(LEAST_NS);
        Weight {
            unseen: head.period_ns as f64 / access_ns,
            counted: counted_words * accesses_a_word,
            access_ns,
            is_measured: measured.is_some(),
        }
    }

    fn native_part(&self) -> f64 {
        if self.in_bursts_ns > 0.0 { (self.native_ns / self.in_bursts_ns).min(1.0) } else { NATIVE_PART }
    }
}

/// The part of some cycles that was the thread's own code.
fn own_part(cycles: u64, runtime_cycles: u64) -> f64 {
    if cycles == 0 { 1.0 } else { 1.0 - runtime_cycles.min(cycles) as f64 / cycles as f64 }
}

/// Time of the thread's own code while it was recorded, in ns.
fn recorded_ns(head: &BurstHead) -> f64 {
    own_part(head.cycles, head.runtime_cycles) * head.recorded_ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_events::burst::block_word;

    /// A burst of 20,000 words, one block each five, with 2 accesses a block's address.
    fn words() -> Vec<u64> {
        (0..20_000).map(|at| if at % 5 == 0 { block_word(1) } else { 0x1000 }).collect()
    }

    fn head(counted_ns: u64) -> BurstHead {
        BurstHead {
            period_ns: 10_000_000,
            recorded_ns: 200_000,
            cycles: 100,
            runtime_cycles: 50,
            counted_words: 40_000,
            counted_ns,
            counted_cycles: 100,
            counted_runtime_cycles: 20,
            words_between: 10_000,
            ..BurstHead::default()
        }
    }

    #[test]
    fn the_stretch_behind_a_burst_tells_the_native_speed() {
        let weight = Weights::default().weight(&head(200_000), &words(), 20_000.0, 0.0);
        // 160 µs of it were the program's own: 4 ns an access, less a nanosecond a block.
        assert!(weight.is_measured && (weight.access_ns - 3.8).abs() < 1e-9, "{weight:?}");
        assert!((weight.unseen - 10_000_000.0 / 3.8).abs() < 1.0 && weight.counted == 50_000.0, "{weight:?}");
        // However much the blocks cost, something is left.
        let weight = Weights::default().weight(&head(2_000), &words(), 20_000.0, 0.0);
        assert!((weight.access_ns - 0.04 / MOST_SLOWER).abs() < 0.02, "{weight:?}");
    }

    #[test]
    fn a_long_copy_takes_the_time_that_it_took() {
        // 20,000 words of 5 µs in all, and a copy of 500,000 lines in the 5 ms that are left.
        let head = BurstHead { recorded_ns: 5_000_000, runtime_cycles: 0, ..head(12_500) };
        let weight = Weights::default().weight(&head, &words(), 520_000.0, 500_000.0);
        assert!((weight.access_ns - 5_000_000.0 / 520_000.0).abs() < 0.1, "{weight:?}");
    }

    #[test]
    fn bursts_without_a_stretch_take_what_others_told() {
        let mut weights = Weights::default();
        let unmeasured = BurstHead { counted_words: 0, ..head(0) };
        // Nobody told anything: half of 100 µs.
        assert!((weights.weight(&unmeasured, &words(), 20_000.0, 0.0).access_ns - 2.5).abs() < 1e-9);
        assert_eq!(weights.weight(&unmeasured, &words()[..100], 100.0, 0.0).access_ns, USUAL_NS);
        // 100 µs in the burst for 76 µs natively.
        weights.weight(&head(200_000), &words(), 20_000.0, 0.0);
        let weight = weights.weight(&unmeasured, &words(), 20_000.0, 0.0);
        assert!(!weight.is_measured && (weight.access_ns - 5.0 * 0.76).abs() < 1e-9, "{weight:?}");
        assert!((weights.weight(&unmeasured, &words()[..100], 100.0, 0.0).access_ns - 3.8).abs() < 1e-9);
    }
}

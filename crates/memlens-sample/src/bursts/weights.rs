//! How many accesses of the program a burst stands for: those since the last one, which nobody counted.
//!
//! They are the processor time in between over the time of an access. That time is measured behind each burst, where the
//! thread goes on in copies of its code that only count the words they would have stored (`memlens-burst`): the same
//! code, the same misses, the same page faults, and none of recording's own work. A burst that ended early has no such
//! stretch; then its own time is taken, less the part that recording took in the bursts that have one, or if it is too
//! short for that, their mean time of an access.

use memlens_events::agent::BurstHead;

/// Shorter stretches say nothing, in words.
const FEWEST_WORDS: u64 = 2000;
/// What counting costs at a block in ns: a comparison, an addition and a jump that the native code does not have. With
/// [`INDIRECT_NS`] and [`MOST_SLOWER`] chosen by the totals of 30 recordings of 11 programs of `bench/bursts.py` on a Zen 3,
/// three of them at real-time priority: with 1, 0 and 2.5 the mean square of the logarithm of estimated over exact accesses
/// was 0.86, with these 0.66. Loops that wait for memory, and so hide some of it, are taken to be too slow all the same.
const BLOCK_NS: f64 = 0.4;
/// What it costs in ns where a block ends with a return or an indirect jump or call, whose target is looked for in a table.
const INDIRECT_NS: f64 = 5.0;
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
/// A stretch of which less than this part was the thread's own code tells nothing: the rest is not known well enough.
const LEAST_OWN_PART: f64 = 0.25;
/// Stretches of at least this processor time tell the speed of the time-stamp counter, in ns.
const LONG_NS: u64 = 50_000;
/// Shorter times of an access are faults of the measurement, in ns.
const LEAST_NS: f64 = 0.02;

/// What a burst holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Content {
    /// Words.
    pub words: f64,
    /// Executions of blocks …
    pub blocks: f64,
    /// … and of such as end with a return or an indirect jump or call.
    pub indirect: f64,
    /// Accesses.
    pub accesses: f64,
    /// Those of them that are repeated string instructions' behind their first.
    pub repeated: f64,
}

impl Content {
    /// What counting adds to the time of an access, in ns.
    fn counting_ns(&self) -> f64 {
        (BLOCK_NS * self.blocks + INDIRECT_NS * self.indirect) / self.accesses
    }
}

/// What the bursts so far told of recording's cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weights {
    /// Of bursts with a stretch: time that their accesses took, in ns …
    in_bursts_ns: f64,
    /// … and would have taken natively.
    native_ns: f64,
    /// Those accesses.
    accesses: f64,
    /// The time-stamp counter's cycles a ns: the fewest that were seen, since a thread's processor time stands still while
    /// others run.
    cycles_a_ns: Option<f64>,
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
    /// Of a burst.
    pub fn weight(&mut self, head: &BurstHead, content: &Content) -> Weight {
        let accesses = content.accesses;
        let accesses_a_word = accesses / content.words.max(1.0);
        let counted_words = (head.counted_words + head.words_between) as f64;
        let in_burst = self.own_ns(head.recorded_ns, head.cycles, head.runtime_cycles);
        let counted_ns = self.own_ns(head.counted_ns, head.counted_cycles, head.counted_runtime_cycles);
        let is_clear = counted_ns >= LEAST_OWN_PART * head.counted_ns as f64;
        let measured = (head.counted_words >= FEWEST_WORDS && is_clear).then(|| {
            let counted = counted_ns / (head.counted_words as f64 * accesses_a_word);
            (counted - content.counting_ns()).max(counted / MOST_SLOWER)
        });
        if let Some(measured) = measured
            && content.repeated > REPEATED_PART * accesses
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

    /// Time of the thread's own code in a stretch, in ns: its processor time without the runtime's cycles.
    fn own_ns(&mut self, ns: u64, cycles: u64, runtime_cycles: u64) -> f64 {
        if ns >= LONG_NS {
            let found = cycles as f64 / ns as f64;
            self.cycles_a_ns = Some(self.cycles_a_ns.map_or(found, |fewest| fewest.min(found)));
        }
        let a_ns = self.cycles_a_ns.unwrap_or(cycles as f64 / ns.max(1) as f64);
        if a_ns <= 0.0 {
            return ns as f64;
        }
        (ns as f64 - runtime_cycles as f64 / a_ns).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A burst of 20,000 words, one block each five, and as many accesses.
    const CONTENT: Content =
        Content { words: 20_000.0, blocks: 4_000.0, indirect: 0.0, accesses: 20_000.0, repeated: 0.0 };
    /// One that ended early.
    const SHORT: Content = Content { words: 100.0, blocks: 20.0, accesses: 100.0, ..CONTENT };

    fn head(counted_ns: u64) -> BurstHead {
        BurstHead {
            period_ns: 10_000_000,
            recorded_ns: 200_000,
            cycles: 400_000,
            runtime_cycles: 200_000,
            counted_words: 40_000,
            counted_ns,
            counted_cycles: 2 * counted_ns,
            counted_runtime_cycles: 2 * counted_ns / 5,
            words_between: 10_000,
            ..BurstHead::default()
        }
    }

    #[test]
    fn the_stretch_behind_a_burst_tells_the_native_speed() {
        let weight = Weights::default().weight(&head(200_000), &CONTENT);
        // 160 µs of it were the program's own: 4 ns an access, less what its block costs.
        assert!(weight.is_measured && (weight.access_ns - 3.92).abs() < 1e-9, "{weight:?}");
        assert!(
            (weight.unseen - 10_000_000.0 / 3.92).abs() < 1.0 && weight.counted == 50_000.0,
            "{weight:?}"
        );
        // However much the blocks cost, something is left.
        let weight = Weights::default().weight(&head(2_000), &CONTENT);
        assert!((weight.access_ns - 0.04 / MOST_SLOWER).abs() < 0.02, "{weight:?}");
    }

    #[test]
    fn returns_and_indirect_jumps_cost_more_than_other_ends() {
        let content = Content { indirect: 2_000.0, ..CONTENT };
        let weight = Weights::default().weight(&head(200_000), &content);
        assert!((weight.access_ns - (3.92 - 0.5)).abs() < 1e-9, "{weight:?}");
    }

    #[test]
    fn what_other_threads_took_is_not_the_programs() {
        let mut weights = Weights::default();
        let alone = weights.weight(&head(200_000), &CONTENT);
        // Another thread ran in the middle of the stretch: the time-stamp counter went on, the processor time did not.
        let taken = BurstHead { counted_cycles: 9_000_000, ..head(200_000) };
        assert_eq!(weights.weight(&taken, &CONTENT).access_ns, alone.access_ns);
        // All of it was translation, as far as that can be told: the bursts before know better.
        let unclear = BurstHead { counted_runtime_cycles: 2 * 190_000, ..head(200_000) };
        let weight = weights.weight(&unclear, &CONTENT);
        assert!(!weight.is_measured && (weight.access_ns - alone.access_ns).abs() < 1e-9, "{weight:?}");
    }

    #[test]
    fn a_long_copy_takes_the_time_that_it_took() {
        // 20,000 words of 5 µs in all, and a copy of 500,000 lines in the 5 ms that are left.
        let head =
            BurstHead { recorded_ns: 5_000_000, cycles: 10_000_000, runtime_cycles: 0, ..head(12_500) };
        let content = Content { accesses: 520_000.0, repeated: 500_000.0, ..CONTENT };
        let weight = Weights::default().weight(&head, &content);
        assert!((weight.access_ns - 5_000_000.0 / 520_000.0).abs() < 0.1, "{weight:?}");
    }

    #[test]
    fn bursts_without_a_stretch_take_what_others_told() {
        let mut weights = Weights::default();
        let unmeasured = BurstHead { counted_words: 0, ..head(0) };
        // Nobody told anything: half of 100 µs.
        assert!((weights.weight(&unmeasured, &CONTENT).access_ns - 2.5).abs() < 1e-9);
        assert_eq!(weights.weight(&unmeasured, &SHORT).access_ns, USUAL_NS);
        // 100 µs in the burst for 78.4 µs natively.
        weights.weight(&head(200_000), &CONTENT);
        let weight = weights.weight(&unmeasured, &CONTENT);
        assert!(!weight.is_measured && (weight.access_ns - 5.0 * 0.784).abs() < 1e-9, "{weight:?}");
        assert!((weights.weight(&unmeasured, &SHORT).access_ns - 3.92).abs() < 1e-9);
    }
}

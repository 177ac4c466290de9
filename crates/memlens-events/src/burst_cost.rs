//! What a burst costs the program.

use crate::agent::BurstHead;

/// Of the time that counting takes, what the program would take natively: so many percent, or all but so many ns a word if
/// that is more. Copies jump more often, which matters where nothing waits for memory.
const NATIVE_PERCENT: u128 = 75;
const COUNTING_NS: u128 = 1;
/// Shorter counted stretches say nothing, in words.
const FEWEST_COUNTED: u64 = 2000;
/// What a word costs at most, and the burst's begin and end, in ns. A single repeated instruction (`rep stosb`) that fills fresh memory
/// takes tens of ms, of which nearly all is the program's own, and which the stretch behind it says nothing of.
const WORD_NS: u64 = 15;
const ENDS_NS: u64 = 20_000;

impl BurstHead {
    /// What a burst of so many words cost the program, of its processor time in ns: its own time, less what the program would
    /// have taken for the same natively, at the speed of the stretch behind it that only counts. No more than what so many words cost at
    /// most.
    pub fn cost_ns(&self, recorded_words: u64) -> u64 {
        let words = recorded_words + self.words_besides + self.counted_words;
        let native_ns = match self.counted_words {
            ..FEWEST_COUNTED => 0,
            counted_words => {
                let counted_ns = u128::from(self.counted_ns) * u128::from(words) / u128::from(counted_words);
                (counted_ns * NATIVE_PERCENT / 100)
                    .max(counted_ns.saturating_sub(COUNTING_NS * u128::from(words)))
            }
        };
        self.own_ns.saturating_sub(native_ns as u64).min(self.most_cost_ns(recorded_words))
    }

    /// What so many words cost at most, whatever the program did by itself meanwhile.
    pub fn most_cost_ns(&self, recorded_words: u64) -> u64 {
        let words = recorded_words + self.words_besides + self.counted_words;
        let runtime =
            u128::from(self.recorded_ns) * u128::from(self.runtime_cycles) / u128::from(self.cycles.max(1));
        (runtime as u64).saturating_add(ENDS_NS + WORD_NS.saturating_mul(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_did_by_itself_costs_it_nothing() {
        let head = |own_ns, counted_ns| BurstHead {
            own_ns,
            counted_words: 10_000,
            counted_ns,
            words_besides: 10_000,
            ..BurstHead::default()
        };
        // 30,000 words at 100 ns, less one for each.
        assert_eq!(head(3_400_000, 1_000_000).cost_ns(10_000), 430_000);
        // At 2 ns: three quarters.
        assert_eq!(head(100_000, 20_000).cost_ns(10_000), 55_000);
        let nothing = BurstHead { counted_words: 100, ..head(100_000, 1000) };
        assert_eq!(nothing.cost_ns(10_000), 100_000, "too short to tell");
        // One instruction, and 5 % of translation.
        let repeated = BurstHead {
            own_ns: 20_000_000,
            recorded_ns: 20_000_000,
            cycles: 40_000_000,
            runtime_cycles: 2_000_000,
            ..BurstHead::default()
        };
        assert_eq!(repeated.cost_ns(139), 1_000_000 + 20_000 + 15 * 139);
        // The stretch behind it has no such instruction.
        let behind = BurstHead { counted_words: 4000, counted_ns: 8000, ..repeated };
        assert_eq!(behind.cost_ns(139), 1_000_000 + 20_000 + 15 * 4139);
        assert_eq!(head(1000, 1_000_000).cost_ns(10_000), 0);
    }
}

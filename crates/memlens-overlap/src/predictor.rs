//! Whether a core would have guessed where a conditional branch leads.

use rustc_hash::FxHashMap;

/// Of how many branches the last directions go into a guess, at most and at least.
const HISTORIES: [u32; 5] = [60, 24, 10, 4, 0];

/// Guesses from what the branch did after the same last directions of all branches: those of the longest history that is known
/// (two-level adaptive prediction: T.-Y. Yeh, Y. N. Patt, MICRO 1991; histories of several lengths: A. Seznec, P.
/// Michaud, A Case for (Partially) Tagged Geometric History Length Branch Prediction, Journal of Instruction-Level
/// Parallelism 8, 2006). Tables have no size here, so nothing is pushed out of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Predictor {
    history: u64,
    /// Two bits, from 0, taken from 2 on. There are hundreds of thousands: with their keys in three words each takes 16 bytes, else 24.
    counters: FxHashMap<Key, u8>,
}

/// A branch, and what went before: which of the lengths, and that much of the history.
type Key = [u32; 3];

fn key(branch: u32, length: u32, history: u64) -> Key {
    // A 1 above the last directions tells lengths apart.
    let before = history & ((1 << length) - 1) | 1 << length;
    [branch, before as u32, (before >> 32) as u32]
}

impl Predictor {
    /// The branch with this number went there. Whether that was guessed.
    pub(crate) fn guesses(&mut self, branch: u32, is_taken: bool) -> bool {
        let keys = HISTORIES.map(|length| key(branch, length, self.history));
        let known = keys.iter().find_map(|key| self.counters.get(key));
        let guess = known.is_some_and(|&counter| counter >= 2);
        for key in keys {
            let counter = self.counters.entry(key).or_insert(if is_taken { 1 } else { 2 });
            *counter = if is_taken { (*counter + 1).min(3) } else { counter.saturating_sub(1) };
        }
        self.history = self.history << 1 | u64::from(is_taken);
        guess == is_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_guessed(directions: impl Iterator<Item = bool>) -> f64 {
        let mut predictor = Predictor::default();
        let guessed: Vec<bool> = directions.map(|it| predictor.guesses(7, it)).collect();
        guessed.iter().filter(|it| **it).count() as f64 / guessed.len() as f64
    }

    #[test]
    fn loops_and_alternation_are_guessed_and_chance_is_not() {
        assert!(share_guessed((0..1000).map(|n| n % 100 != 99)) > 0.98);
        assert!(share_guessed((0..1000).map(|n| n % 3 == 0)) > 0.98);
        let mut random = 1_u64;
        let chance = (0..20_000).map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random >> 63 == 1
        });
        let share = share_guessed(chance);
        assert!((0.45..0.55).contains(&share), "{share}");
    }
}

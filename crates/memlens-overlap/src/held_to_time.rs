//! Stalls held against the time that the code took.
//!
//! How often accesses miss is estimated where bursts see a part of a run only, and what a miss costs, and what of it is hidden, is
//! modelled. How long the code takes is measured. What it takes without its misses is modelled best of all: the rest of the time is what
//! they can have cost, branches and everything else that is not modelled among it. So the stalls are at most that.
//!
//! A stretch, which is tens of thousands of accesses long, has one time, and many operands: whose stalls there is no room for tell all
//! stretches together. Each operand's are multiplied again and again by how many times there is room for what stretches have, in the mean of those where it stalls
//! (W. H. Richardson, Bayesian-Based Iterative Method of Image Restoration, JOSA 62, 1972: what makes sums as likely as can be).

use rustc_hash::FxHashMap;

use crate::windows::Stretch;

/// Fewer stretches say nothing.
const FEWEST: usize = 4;
/// Of the time at least so much is room: how long the code takes without its misses is not known better.
const LEAST_ROOM: f64 = 0.1;
/// What a stretch has room for besides may be anything else: of how many times its stalls there is room counts no more than this.
const MOST_TIMES: f64 = 2.0;
/// Rounds. More of them fit noise.
const ROUNDS: usize = 12;
/// What all operands have in common counts like so many stretches.
const PRIOR: f64 = 1.0;

/// What an access of an operand takes as modelled, in cycles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// Waiting.
    pub(crate) waited: f64,
    /// The code around it, if no access took time.
    pub(crate) instant: f64,
}

/// What there is room for.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// By operand: the part of its modelled stalls.
    pub(crate) parts: FxHashMap<u32, f64>,
    /// That of all others.
    pub(crate) usual: f64,
    /// The part of their time that stretches have room for in the mean.
    pub(crate) room: f64,
}

/// Holds what is expected of operands against what stretches took. None: too few were measured. Cost: some nanoseconds for each operand of
/// each stretch and round.
pub(crate) fn held<'s>(
    stretches: impl Iterator<Item = &'s Stretch>,
    expected: impl Fn(u32) -> Option<Expected>,
) -> Option<Held> {
    let stalled = stretches.map(|stretch| Stalled::of(stretch, &expected));
    let mut stalled: Vec<Stalled> = stalled.filter(|stretch| stretch.took > 0.0).collect();
    if stalled.len() < FEWEST {
        return None;
    }
    let room_of_time =
        stalled.iter().map(|stretch| stretch.room / stretch.took).sum::<f64>() / stalled.len() as f64;
    stalled.retain(|stretch| stretch.modelled() > 0.0);
    let modelled: f64 = stalled.iter().map(Stalled::modelled).sum();
    let room: f64 = stalled.iter().map(|stretch| stretch.room.min(MOST_TIMES * stretch.modelled())).sum();
    let usual = if modelled > 0.0 { (room / modelled).min(1.0) } else { 1.0 };
    // By operand: its stalls in all stretches, and how many of them have it.
    let mut all: FxHashMap<u32, (f64, f64)> = FxHashMap::default();
    for &(operand, cycles) in stalled.iter().flat_map(|stretch| &stretch.operands) {
        let (sum, count) = all.entry(operand).or_default();
        *sum += cycles;
        *count += 1.0;
    }
    let mut parts: FxHashMap<u32, f64> = all.keys().map(|&operand| (operand, 1.0)).collect();
    for _ in 0..ROUNDS {
        let mut times: FxHashMap<u32, f64> = FxHashMap::default();
        for stretch in &stalled {
            let times_room = stretch.times_room(&parts);
            for &(operand, cycles) in &stretch.operands {
                *times.entry(operand).or_default() += cycles * times_room;
            }
        }
        for (operand, part) in &mut parts {
            let (sum, count) = all[operand];
            let prior = PRIOR * sum / count;
            // The prior's is such that it would be at what is usual.
            let found = times[operand] + prior * usual / *part;
            *part = (*part * found / (sum + prior)).min(1.0);
        }
    }
    Some(Held { parts, usual, room: room_of_time })
}

/// A stretch's stalls, in cycles.
struct Stalled {
    /// By operand, as modelled.
    operands: Vec<(u32, f64)>,
    /// What its time has room for …
    room: f64,
    /// … and the time.
    took: f64,
}

impl Stalled {
    fn of(stretch: &Stretch, expected: &impl Fn(u32) -> Option<Expected>) -> Self {
        let (mut operands, mut accesses, mut known, mut instant) = (Vec::new(), 0.0, 0.0, 0.0);
        for &(operand, count) in &stretch.operands {
            let count = f64::from(count);
            accesses += count;
            if let Some(expected) = expected(operand) {
                known += count;
                instant += count * expected.instant;
                if expected.waited > 0.0 {
                    operands.push((operand, count * expected.waited));
                }
            }
        }
        // The rest takes as long as what is known.
        let instant = if known > 0.0 { instant * accesses / known } else { 0.0 };
        let took = accesses * stretch.access_cycles;
        Self { operands, room: (took - instant).max(LEAST_ROOM * took), took }
    }

    fn modelled(&self) -> f64 {
        self.operands.iter().map(|(_, cycles)| cycles).sum()
    }

    /// How many times what its operands have left there is room for.
    fn times_room(&self, parts: &FxHashMap<u32, f64>) -> f64 {
        let left: f64 = self.operands.iter().map(|(operand, cycles)| cycles * parts[operand]).sum();
        (self.room / left).min(MOST_TIMES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accesses of each of three operands, of which the first never waits, and cycles that each takes.
    fn stretch(counts: [u32; 3], cycles: f64) -> Stretch {
        let accesses: u32 = counts.iter().sum();
        let operands = (0..).zip(counts).filter(|&(_, count)| count > 0).collect();
        Stretch { access_cycles: cycles / f64::from(accesses), operands }
    }

    fn expected(operand: u32) -> Option<Expected> {
        let waited = [0.0, 10.0, 4.0][operand as usize];
        Some(Expected { waited, instant: 0.5 })
    }

    #[test]
    fn stalls_that_no_stretch_has_room_for_go() {
        // The second operand really waits 2 cycles, the third 4, as modelled.
        let took = |[a, b, c]: [u32; 3]| {
            let [a, b, c] = [a, b, c].map(f64::from);
            0.5 * (a + b + c) + 2.0 * b + 4.0 * c
        };
        let counts = [[900, 100, 0], [900, 0, 100], [800, 100, 100], [500, 300, 200], [700, 0, 300]];
        let all: Vec<Stretch> =
            (0..50).map(|n| counts[n % counts.len()]).map(|it| stretch(it, took(it))).collect();
        let held = held(all.iter(), expected).expect("enough");
        assert!((held.parts[&1] - 0.2).abs() < 0.05, "{held:?}");
        assert!((held.parts[&2] - 1.0).abs() < 0.05, "{held:?}");
        assert!(!held.parts.contains_key(&0), "it has no stalls");
        assert!(held.usual > 0.3 && held.usual < 1.0, "{held:?}");
    }

    #[test]
    fn stalls_that_there_is_room_for_stay() {
        // Everything takes three times as long as modelled, for other reasons.
        let all = vec![stretch([900, 100, 0], 3.0 * (500.0 + 1000.0)); 8];
        let found = held(all.iter(), expected).expect("enough");
        assert_eq!((found.parts[&1], found.usual), (1.0, 1.0));
        assert!(held(all.iter().take(FEWEST - 1), expected).is_none(), "too few");
        // Nor is anything said where nothing waits.
        let hits = vec![stretch([1000, 0, 0], 400.0); 8];
        assert_eq!(held(hits.iter(), expected).map(|held| (held.parts.len(), held.usual)), Some((0, 1.0)));
    }

    #[test]
    fn code_that_is_faster_than_modelled_keeps_a_little() {
        // It takes less than it would without its misses.
        let all = vec![stretch([900, 100, 0], 400.0); 8];
        let held = held(all.iter(), expected).expect("enough");
        assert!((held.parts[&1] - LEAST_ROOM * 400.0 / 1000.0).abs() < 0.02, "{held:?}");
    }
}

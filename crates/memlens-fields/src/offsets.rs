//! Offsets at which operands touched objects, a few of each pair.

use rustc_hash::FxHashMap;

/// Offsets kept of each pair: a random sample of those seen.
const KEPT: usize = 12;
/// Bits of a random number.
const DRAWN_BITS: u32 = 33;

/// Runs kept of each pair, in the same way.
const KEPT_RUNS: usize = 4;
/// Places that a run is shown as at most: a structure of more elements is divided roughly.
const MOST_PLACES: u64 = 64;

/// The elements of a string instruction.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    offset: u32,
    element_bytes: u32,
    elements: u64,
}

/// Those of one operand and one object.
#[derive(Clone, Debug, Default)]
struct Runs {
    seen: u64,
    kept: [Run; KEPT_RUNS],
}

/// What was seen of one operand and one object.
#[derive(Clone, Debug)]
struct Pair {
    seen: u64,
    offsets: [u32; KEPT],
}

/// Offsets in objects, by operand and object, in whatever numbers the collector has for them.
///
/// Memory: some 70 bytes a pair, or 90 of an operand of a string instruction.
#[derive(Clone, Debug)]
pub struct Offsets {
    pairs: FxHashMap<(u32, u32), Pair>,
    /// Of string instructions, whose elements follow one another.
    runs: FxHashMap<(u32, u32), Runs>,
    most_pairs: usize,
    random: u64,
}

/// An offset that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// The operand's number.
    pub operand: u32,
    /// The object's number.
    pub object: u32,
    /// Bytes from the beginning of the block or variable.
    pub bytes: u64,
    /// How many of the accesses looked at it stands for.
    pub times: u64,
    /// Whether it is one of a run ([`Offsets::ran`]).
    pub is_run: bool,
}

/// Pairs kept if nothing else is said: some 5 MB.
const MOST_PAIRS: usize = 1 << 16;

impl Default for Offsets {
    fn default() -> Self {
        Self::new(MOST_PAIRS)
    }
}

impl Offsets {
    /// None yet. Of pairs beyond `most_pairs` nothing is kept.
    pub fn new(most_pairs: usize) -> Self {
        Self { pairs: FxHashMap::default(), runs: FxHashMap::default(), most_pairs, random: 0 }
    }

    /// For [`Self::is_due`]: every fourth access.
    pub const OFTEN: u32 = 2;
    /// For [`Self::is_due`]: every sixteenth.
    pub const SELDOM: u32 = 4;

    /// Whether the next access is one of those to look at: one in 2^`bits`, by chance, so that no loop keeps step.
    #[inline]
    pub fn is_due(&mut self, bits: u32) -> bool {
        self.draw() >> (DRAWN_BITS - bits) == 0
    }

    /// A random number of so many bits: the high ones of a linear congruential generator (Knuth's MMIX).
    fn draw(&mut self) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> (u64::BITS - DRAWN_BITS)
    }

    /// An operand touched an object so many bytes from its beginning. Offsets beyond 4 GiB are left out.
    pub fn saw(&mut self, operand: u32, object: u32, offset_bytes: u64) {
        let Ok(offset) = u32::try_from(offset_bytes) else { return };
        let has_room = self.pairs.len() < self.most_pairs;
        let pair = match self.pairs.entry((operand, object)) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) if has_room => {
                new.insert(Pair { seen: 0, offsets: [0; KEPT] })
            }
            std::collections::hash_map::Entry::Vacant(_) => return,
        };
        // Reservoir sampling: each offset stays with the same probability (Vitter: Random sampling with a reservoir,
        // ACM TOMS 11, 1985, algorithm R).
        let seen = pair.seen;
        pair.seen += 1;
        let drawn = if seen < KEPT as u64 { seen } else { self.draw() % (seen + 1) };
        if let (Ok(at), Some(pair)) = (usize::try_from(drawn), self.pairs.get_mut(&(operand, object)))
            && let Some(place) = pair.offsets.get_mut(at)
        {
            *place = offset;
        }
    }

    /// A string instruction's operand went through an object's elements, of which the lowest is so many bytes from its beginning. Of a pair that has
    /// runs each run counts for all of its elements.
    pub fn ran(
        &mut self,
        (operand, object): (u32, u32),
        offset_bytes: u64,
        element_bytes: u32,
        elements: u64,
    ) {
        let Ok(offset) = u32::try_from(offset_bytes) else { return };
        if elements == 0 || self.runs.len() >= self.most_pairs && !self.runs.contains_key(&(operand, object))
        {
            return;
        }
        let drawn = self.draw();
        let runs = self.runs.entry((operand, object)).or_default();
        let seen = runs.seen;
        runs.seen += 1;
        // As in `saw`.
        let at = if seen < KEPT_RUNS as u64 { seen } else { drawn % (seen + 1) };
        if let Some(place) = usize::try_from(at).ok().and_then(|at| runs.kept.get_mut(at)) {
            *place = Run { offset, element_bytes, elements };
        }
    }

    /// Whether something was seen of an operand and an object.
    pub fn knows(&self, operand: u32, object: u32) -> bool {
        self.pairs.contains_key(&(operand, object)) || self.runs.contains_key(&(operand, object))
    }

    /// What was seen; equal offsets may come more than once.
    pub fn iter(&self) -> impl Iterator<Item = Offset> + '_ {
        let of_runs = self.runs.iter().flat_map(|(&(operand, object), runs)| {
            let kept = runs.seen.min(KEPT_RUNS as u64);
            let times = runs.seen.div_ceil(kept.max(1));
            let places = runs.kept.iter().take(kept as usize).flat_map(Run::places);
            places.map(move |(bytes, of_run)| Offset {
                operand,
                object,
                bytes,
                times: times.saturating_mul(of_run),
                is_run: true,
            })
        });
        let of_pairs = self.pairs.iter().flat_map(|(&(operand, object), pair)| {
            let kept = pair.seen.min(KEPT as u64);
            // Rounded up: nothing that was seen counts for nothing.
            let times = pair.seen.div_ceil(kept.max(1));
            let offsets = pair.offsets.iter().take(kept as usize);
            offsets.map(move |&bytes| Offset { operand, object, bytes: bytes.into(), times, is_run: false })
        });
        of_pairs.chain(of_runs)
    }
}

impl Run {
    /// Where its elements are, and for how many each place stands.
    fn places(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let Self { offset, element_bytes, elements } = *self;
        let shown = elements.min(MOST_PLACES);
        (0..shown).map(move |at| {
            let starts_at = |part: u64| (u128::from(part) * u128::from(elements) / u128::from(shown)) as u64;
            let (first, end) = (starts_at(at), starts_at(at + 1));
            // Anywhere in its part: even steps would meet the same field of each structure.
            let within = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - DRAWN_BITS);
            let element = first + within % (end - first);
            (u64::from(offset) + element * u64::from(element_bytes), end - first)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_offsets_are_kept_as_they_are_and_many_by_chance() {
        let mut offsets = Offsets::new(2);
        for offset in [8, 16, 8] {
            offsets.saw(1, 7, offset);
        }
        let all: Vec<(u64, u64)> = offsets.iter().map(|it| (it.bytes, it.times)).collect();
        assert_eq!(all, [(8, 1), (16, 1), (8, 1)]);
        // A third at 0, two thirds at 4: 12 offsets of each of 2,000 pairs. The mean share's standard deviation is
        // 0.3 %.
        let mut many = Offsets::new(2000);
        for operand in 0..2000 {
            (0..300).for_each(|at: u64| many.saw(operand, 1, if at.is_multiple_of(3) { 0 } else { 4 }));
        }
        let first = many.iter().filter(|it| it.bytes == 0).count() as f64 / many.iter().count() as f64;
        assert!((0.32..0.347).contains(&first), "{first}");
        assert!(many.iter().all(|it| it.times == 25), "of 300 seen 12 are kept");
    }

    #[test]
    fn a_run_is_all_of_its_elements() {
        let mut offsets = Offsets::new(1);
        // Ten clear three words each, from the second on.
        (0..10).for_each(|_| offsets.ran((1, 7), 8, 8, 3));
        offsets.ran((1, 8), 0, 8, 3);
        let mut all: Vec<(u64, u64)> = offsets.iter().map(|it| (it.bytes, it.times)).collect();
        all.sort_unstable();
        assert_eq!(all, [8, 8, 8, 8, 16, 16, 16, 16, 24, 24, 24, 24].map(|bytes| (bytes, 3)));
        assert!(offsets.knows(1, 7) && !offsets.knows(1, 8));
        // A copy of 1,000 structures by bytes: each of their eight has an eighth, roughly.
        let mut copy = Offsets::new(1);
        copy.ran((1, 7), 0, 1, 8000);
        let sum: u64 = copy.iter().map(|it| it.times).sum();
        let first: u64 = copy.iter().filter(|it| it.bytes % 8 < 4).map(|it| it.times).sum();
        assert_eq!(sum, 8000);
        assert!((2500..5500).contains(&first), "{first}");
    }

    #[test]
    fn what_finds_no_room_is_left_out() {
        let mut offsets = Offsets::new(1);
        offsets.saw(1, 7, 8);
        offsets.saw(2, 7, 8);
        offsets.saw(1, 7, 1 << 32);
        assert!(offsets.knows(1, 7) && !offsets.knows(2, 7));
        assert_eq!(offsets.iter().map(|it| (it.operand, it.times)).collect::<Vec<_>>(), [(1, 1)]);
    }
}

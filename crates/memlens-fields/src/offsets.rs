//! Offsets at which operands touched objects, a few of each pair.

use rustc_hash::FxHashMap;

/// Offsets kept of each pair: a random sample of those seen.
const KEPT: usize = 12;
/// Bits of a random number.
const DRAWN_BITS: u32 = 33;

/// What was seen of one operand and one object.
#[derive(Clone, Debug)]
struct Pair {
    seen: u64,
    offsets: [u32; KEPT],
}

/// Offsets in objects, by operand and object, in whatever numbers the collector has for them.
///
/// Memory: some 70 bytes a pair.
#[derive(Clone, Debug)]
pub struct Offsets {
    pairs: FxHashMap<(u32, u32), Pair>,
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
        Self { pairs: FxHashMap::default(), most_pairs, random: 0 }
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

    /// Whether something was seen of an operand and an object.
    pub fn knows(&self, operand: u32, object: u32) -> bool {
        self.pairs.contains_key(&(operand, object))
    }

    /// What was seen; equal offsets may come more than once.
    pub fn iter(&self) -> impl Iterator<Item = Offset> + '_ {
        self.pairs.iter().flat_map(|(&(operand, object), pair)| {
            let kept = pair.seen.min(KEPT as u64);
            // Rounded up: nothing that was seen counts for nothing.
            let times = pair.seen.div_ceil(kept.max(1));
            let offsets = pair.offsets.iter().take(kept as usize);
            offsets.map(move |&bytes| Offset { operand, object, bytes: bytes.into(), times })
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
    fn what_finds_no_room_is_left_out() {
        let mut offsets = Offsets::new(1);
        offsets.saw(1, 7, 8);
        offsets.saw(2, 7, 8);
        offsets.saw(1, 7, 1 << 32);
        assert!(offsets.knows(1, 7) && !offsets.knows(2, 7));
        assert_eq!(offsets.iter().map(|it| (it.operand, it.times)).collect::<Vec<_>>(), [(1, 1)]);
    }
}

//! What is seen of call paths while a profile is made: for how much each stands, in a table that does not grow for ever.

use std::hash::Hash;
use std::ops::{AddAssign, Mul};

use rustc_hash::FxHashMap;

/// Misses of the three levels of caches and the two of TLBs.
pub type LevelMisses = [f64; 5];

/// For how much something that was seen stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathAmount {
    /// Accesses.
    pub accesses: f64,
    /// Those that seem to miss in each level; of others a little.
    pub misses: LevelMisses,
}

impl AddAssign for PathAmount {
    #[inline]
    fn add_assign(&mut self, more: Self) {
        self.accesses += more.accesses;
        self.misses.iter_mut().zip(more.misses).for_each(|(sum, misses)| *sum += misses);
    }
}

impl Mul<f64> for PathAmount {
    type Output = Self;

    #[inline]
    fn mul(self, factor: f64) -> Self {
        Self { accesses: self.accesses * factor, misses: self.misses.map(|misses| misses * factor) }
    }
}

/// Amounts by what they are of: instructions, objects and paths in some numbering. When it is full, the lighter half makes room for others.
///
/// The amounts lie beside the hash table, half of which is room: they are three quarters of an entry.
#[derive(Clone, Debug)]
pub struct PathAmounts<K> {
    /// Where in `amounts` each is.
    places: FxHashMap<K, u32>,
    amounts: Vec<PathAmount>,
    /// Places that are nobody's.
    free: Vec<u32>,
    most: usize,
    dropped: u64,
}

impl<K: Copy + Eq + Hash> PathAmounts<K> {
    /// None yet, and so many at most.
    pub fn with_room(most: usize) -> Self {
        Self { places: FxHashMap::default(), amounts: Vec::new(), free: Vec::new(), most, dropped: 0 }
    }

    /// So much more of this.
    pub fn add(&mut self, key: K, more: PathAmount) {
        if self.places.len() >= self.most && !self.places.contains_key(&key) {
            self.drop_lighter_half();
        }
        let place = self.place(key);
        self.amounts[place] += more;
    }

    /// As [`Self::add`] of one after the other. Each is waited for a few times, for memory: where nothing has to make room, many at a time,
    /// first for all places, then for all amounts.
    pub fn add_all<M>(&mut self, all: &[(K, M)], amount: impl Fn(&M) -> PathAmount) {
        if self.places.len() + all.len() > self.most {
            return all.iter().for_each(|(key, more)| self.add(*key, amount(more)));
        }
        let places: Vec<usize> = all.iter().map(|(key, _)| self.place(*key)).collect();
        for (place, (_, more)) in places.into_iter().zip(all) {
            self.amounts[place] += amount(more);
        }
    }

    /// Where the amount of a key is, which there is room for.
    fn place(&mut self, key: K) -> usize {
        let Self { places, amounts, free, .. } = self;
        let place = *places.entry(key).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                amounts.push(PathAmount::default());
                (amounts.len() - 1) as u32
            })
        });
        place as usize
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (K, PathAmount)> {
        self.places.iter().map(|(&key, &place)| (key, self.amounts[place as usize]))
    }

    /// What made room for others, in a sentence; None: nothing did.
    pub fn note(&self) -> Option<String> {
        let Self { most, dropped, .. } = self;
        (*dropped > 0).then(|| {
            format!(
                "Of call paths to objects {dropped} that little came through are not known: there are {most} of instructions, objects and paths at most."
            )
        })
    }

    /// Linear.
    fn drop_lighter_half(&mut self) {
        let Self { places, amounts, free, .. } = self;
        let mut weights: Vec<f64> = places.values().map(|&place| amounts[place as usize].accesses).collect();
        let before = weights.len();
        if before == 0 {
            return;
        }
        let (_, &mut middle, heavier) = weights.select_nth_unstable_by(before / 2, f64::total_cmp);
        // Of those that weigh as much as the middle one some stay.
        let mut room = heavier.iter().filter(|&&weight| weight == middle).count();
        places.retain(|_, place| {
            let amount = &mut amounts[*place as usize];
            let weight = amount.accesses;
            let is_kept = weight > middle || weight == middle && room > 0;
            room -= usize::from(is_kept && weight == middle);
            if !is_kept {
                *amount = PathAmount::default();
                free.push(*place);
            }
            is_kept
        });
        self.dropped += (before - places.len()) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(weight: impl Fn(u32) -> f64) -> PathAmounts<u32> {
        let mut all = PathAmounts::with_room(1000);
        for at in 0..1000 {
            all.add(at, PathAmount { accesses: weight(at), ..PathAmount::default() });
        }
        assert_eq!(all.note(), None);
        all
    }

    #[test]
    fn the_lighter_half_makes_room() {
        let one = PathAmount { accesses: 1.0, misses: [0.5; 5] };
        let mut all = full(f64::from);
        // A known one needs no room.
        all.add(999, one);
        assert_eq!((all.places.len(), all.dropped), (1000, 0));
        all.add(5000, one);
        assert_eq!((all.places.len(), all.dropped), (500, 501));
        assert!(all.iter().all(|(key, amount)| key == 5000 || amount.accesses > 500.0));
        let of_last = all.iter().find(|(key, _)| *key == 999).map(|(_, amount)| amount);
        assert_eq!(of_last, Some(PathAmount { accesses: 1000.0, misses: [0.5; 5] }));
        assert!(all.note().is_some_and(|note| note.contains(" 501 ") && note.contains(" 1000 of ")));
        // What comes in the place of another has nothing of it.
        for at in 6000..6500 {
            all.add(at, one);
        }
        assert_eq!((all.places.len(), all.amounts.len()), (1000, 1000));
        assert!(all.iter().all(|(key, amount)| key < 5000 || amount == one));
        // All alike.
        let mut all = full(|_| 1.0);
        all.add(5000, one);
        assert_eq!((all.places.len(), all.dropped), (500, 501));
        // No room at all is room for one.
        let mut none = PathAmounts::with_room(0);
        none.add(1, one * 2.0);
        assert_eq!(none.iter().collect::<Vec<_>>(), [(1, PathAmount { accesses: 2.0, misses: [1.0; 5] })]);
    }

    #[test]
    fn many_at_a_time_are_as_one_after_the_other() {
        let (mut one_by_one, mut together) = (PathAmounts::with_room(100), PathAmounts::with_room(100));
        // Windows of up to 40, each with some keys again and again and others for the first time, until there has to be made room.
        let mut random = 1_u64;
        for window in 0..60 {
            let mut all = Vec::new();
            for _ in 0..window % 41 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let key = (random >> 33) % 7 * (random >> 50) % (10 + 4 * window);
                all.push((key, (random >> 40) as f64 / 3.0));
            }
            let amount = |&accesses: &f64| PathAmount { accesses, misses: [accesses / 7.0; 5] } * 0.3;
            all.iter().for_each(|(key, more)| one_by_one.add(*key, amount(more)));
            together.add_all(&all, amount);
            assert_eq!(one_by_one.places, together.places);
            assert_eq!((&one_by_one.amounts, &one_by_one.free), (&together.amounts, &together.free));
        }
        assert!(one_by_one.dropped > 0 && one_by_one.dropped == together.dropped);
    }
}

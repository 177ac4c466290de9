//! The counts of a cell in less than half the space: there are hundreds of thousands of cells, and most of their counts
//! are small.

use memlens_types::{Counts, Fetched, Sampled, Shared};

/// The counts of data accesses: all but [`Counts::shared`], [`Counts::fetched`] and [`Counts::sampled`].
const COUNTED: usize = 19;

/// Some [`Counts`], to be kept. Reading and changing them cost some nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedCounts(Packed);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Packed {
    /// Nothing shared, fetched or sampled, and no count above 2^32 - 1. Equal counts are packed in the same way.
    Small([u32; COUNTED]),
    Large(Box<Counts>),
}

const _: () = assert!(size_of::<PackedCounts>() <= 80 && size_of::<Counts>() >= 176);

impl PackedCounts {
    /// The counts.
    pub fn get(&self) -> Counts {
        match &self.0 {
            Packed::Small(small) => counted(small.map(u64::from)),
            Packed::Large(counts) => **counts,
        }
    }

    /// Changes the counts.
    pub fn change(&mut self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.get();
        change(&mut counts);
        *self = counts.into();
    }
}

impl From<Counts> for PackedCounts {
    fn from(counts: Counts) -> Self {
        let mut small = [0; COUNTED];
        let is_small = small.iter_mut().zip(values(&counts)).all(|(small, value)| {
            *small = value as u32;
            u64::from(*small) == value
        });
        let Counts { shared, fetched, sampled, .. } = &counts;
        let is_usual =
            *shared == Shared::default() && *fetched == Fetched::default() && *sampled == Sampled::default();
        Self(match is_small && is_usual {
            true => Packed::Small(small),
            false => Packed::Large(Box::new(counts)),
        })
    }
}

impl Default for PackedCounts {
    fn default() -> Self {
        Counts::default().into()
    }
}

/// The counts of data accesses, by name, to an array and back. A count that is missing here does not compile.
macro_rules! in_order {
    ($($count:ident),* $(,)?) => {
        /// All of data accesses, each count once.
        pub(crate) fn values(counts: &Counts) -> [u64; COUNTED] {
            let Counts { $($count,)* shared: _, fetched: _, sampled: _ } = *counts;
            [$($count),*]
        }

        /// The reverse of [`values`].
        fn counted([$($count),*]: [u64; COUNTED]) -> Counts {
            Counts { $($count,)* ..Counts::default() }
        }
    };
}

in_order!(
    loads,
    stores,
    modifies,
    load_bytes,
    store_bytes,
    l1_load_misses,
    l1_store_misses,
    l2_load_misses,
    l2_store_misses,
    llc_load_misses,
    llc_store_misses,
    l2_prefetched,
    llc_prefetched,
    dram_reads,
    dram_writes,
    dtlb_misses,
    stlb_misses,
    page_walk_accesses,
    invalidations,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_any_size_come_back() {
        for value in [0, 1, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX] {
            for at in 0..COUNTED {
                let mut all = std::array::from_fn(|place| place as u64);
                all[at] = value;
                let counts = counted(all);
                assert_eq!(values(&counts), all);
                let packed = PackedCounts::from(counts);
                assert_eq!(packed.get(), counts);
                assert_eq!(matches!(packed.0, Packed::Small(_)), value <= u64::from(u32::MAX));
            }
        }
        let sampled = Sampled { samples: 3, ..Sampled::default() };
        let counts = Counts { loads: 7, sampled, ..Counts::default() };
        assert_eq!(PackedCounts::from(counts).get(), counts);
        let fetched = Fetched { fetches: 3, ..Fetched::default() };
        let counts = Counts { fetched, ..Counts::default() };
        assert_eq!(PackedCounts::from(counts).get(), counts);
        let shared = Shared { coherence_misses: 3, false_sharing: 1 };
        let counts = Counts { shared, ..Counts::default() };
        assert_eq!(PackedCounts::from(counts).get(), counts);
    }

    #[test]
    fn equal_counts_are_equal_whatever_they_were_before() {
        let mut packed = PackedCounts::from(Counts { loads: 1 << 40, ..Counts::default() });
        packed.change(|counts| counts.loads = 5);
        assert_eq!(packed, PackedCounts::from(Counts { loads: 5, ..Counts::default() }));
    }
}

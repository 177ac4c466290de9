//! Counts in a fifteenth of the space: there are hundreds of thousands of cells, and of most of them a few small counts
//! are not 0.

use std::ops::AddAssign;

use memlens_types::{Counts, Fetched, Sampled, Shared};

/// All [`Counts`].
const COUNTED: usize = 34;
/// Bytes of counts that are kept in place: in CPython's profile there is room for all but one cell in a hundred.
const IN_PLACE: usize = 15;
/// How many of them say which counts are not 0.
const MASK: usize = 5;

/// Some [`Counts`], to be kept. Reading and changing them cost some tens of nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedCounts(Packed);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Packed {
    /// A bit for each count that is not 0, then these counts: seven bits a byte, the lowest first, the eighth bit where
    /// more follow. All others are 0. Equal counts are packed in the same way.
    Small([u8; IN_PLACE]),
    /// Those for which that is too little.
    Large(Box<Counts>),
}

const _: () = assert!(size_of::<PackedCounts>() == 16 && COUNTED <= 8 * MASK);

impl PackedCounts {
    /// The counts.
    pub fn get(&self) -> Counts {
        match &self.0 {
            Packed::Small(bytes) => counted(unpacked(bytes)),
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
        Self(match packed(&values(&counts)) {
            Some(bytes) => Packed::Small(bytes),
            None => Packed::Large(Box::new(counts)),
        })
    }
}

impl AddAssign<&Counts> for PackedCounts {
    fn add_assign(&mut self, more: &Counts) {
        self.change(|counts| *counts += more);
    }
}

impl Default for PackedCounts {
    fn default() -> Self {
        Counts::default().into()
    }
}

/// `None` if there is not room enough.
fn packed(values: &[u64; COUNTED]) -> Option<[u8; IN_PLACE]> {
    let mut bytes = [0; IN_PLACE];
    let (mask, mut room) = bytes.split_first_chunk_mut::<MASK>()?;
    let mut present = 0_u64;
    for (count, &value) in values.iter().enumerate().filter(|&(_, &value)| value > 0) {
        present |= 1 << count;
        let mut rest = value;
        while rest > 0 {
            let (byte, behind) = room.split_first_mut()?;
            let more = u8::from(rest >> 7 > 0) << 7;
            *byte = (rest & 0x7f) as u8 | more;
            (room, rest) = (behind, rest >> 7);
        }
    }
    mask.copy_from_slice(&present.to_le_bytes()[..MASK]);
    Some(bytes)
}

/// The reverse of [`packed`].
fn unpacked(bytes: &[u8; IN_PLACE]) -> [u64; COUNTED] {
    let mut values = [0; COUNTED];
    let [a, b, c, d, e, bytes @ ..] = bytes;
    let mut present = u64::from_le_bytes([*a, *b, *c, *d, *e, 0, 0, 0]);
    let mut bytes = bytes.iter();
    while present != 0 {
        let value = &mut values[present.trailing_zeros() as usize % COUNTED];
        present &= present - 1;
        let mut shift = 0;
        for byte in bytes.by_ref() {
            *value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte >> 7 == 0 {
                break;
            }
        }
    }
    values
}

/// The counts, by name, to an array and back. A count that is missing here does not compile.
macro_rules! in_order {
    (
        $($count:ident),*;
        shared: $($shared:ident),*;
        fetched: $($fetched:ident),*;
        sampled: $($sampled:ident),* $(;)?
    ) => {
        /// Each count once.
        pub(crate) fn values(counts: &Counts) -> [u64; COUNTED] {
            let Counts { $($count,)* shared, fetched, sampled } = *counts;
            let Shared { $($shared),* } = shared;
            let Fetched { $($fetched),* } = fetched;
            let Sampled { $($sampled),* } = sampled;
            [$($count,)* $($shared,)* $($fetched,)* $($sampled),*]
        }

        /// The reverse of [`values`].
        fn counted([$($count,)* $($shared,)* $($fetched,)* $($sampled),*]: [u64; COUNTED]) -> Counts {
            let (shared, fetched) = (Shared { $($shared),* }, Fetched { $($fetched),* });
            Counts { $($count,)* shared, fetched, sampled: Sampled { $($sampled),* } }
        }
    };
}

in_order!(
    loads,
    stores,
    modifies,
    followers,
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
    stall_cycles,
    translation_stall_cycles,
    dram_reads,
    dram_writes,
    dtlb_misses,
    stlb_misses,
    page_walk_accesses,
    walk_cycles,
    invalidations;
    shared: coherence_misses, false_sharing;
    fetched: fetches, l1i_misses, l2i_misses, llci_misses;
    sampled: samples, cost, by_hardware, by_registers, by_code;
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_in_place(counts: &PackedCounts) -> bool {
        matches!(counts.0, Packed::Small(_))
    }

    #[test]
    fn counts_of_any_size_come_back() {
        for value in [0, 1, 0x7f, 0x80, u64::from(u32::MAX), u64::MAX >> 1, u64::MAX] {
            for at in 0..COUNTED {
                let mut all = [0; COUNTED];
                (all[at], all[COUNTED - 1 - at]) = (value, 1);
                let counts = counted(all);
                assert_eq!(values(&counts), all);
                let packed = PackedCounts::from(counts);
                assert_eq!(packed.get(), counts);
                assert_eq!(
                    is_in_place(&packed),
                    value < u64::MAX,
                    "9 bytes and 1, or 10 and 1, of {value:#x}"
                );
            }
        }
    }

    #[test]
    fn what_is_too_much_for_the_place_is_kept_elsewhere() {
        let counts = |loads| Counts { loads, stores: u64::MAX >> 1, ..Counts::default() };
        assert!(is_in_place(&counts(0x7f).into()));
        let large = PackedCounts::from(counts(0x80));
        assert!(!is_in_place(&large));
        assert_eq!(large.get(), counts(0x80));
    }

    #[test]
    fn equal_counts_are_equal_whatever_they_were_before() {
        let mut packed = PackedCounts::from(counted([u64::MAX; COUNTED]));
        packed.change(|counts| *counts = Counts { loads: 5, ..Counts::default() });
        assert_eq!(packed, PackedCounts::from(Counts { loads: 5, ..Counts::default() }));
    }

    proptest! {
        #[test]
        fn packing_loses_nothing(bits in proptest::collection::vec((0..COUNTED, 0..64_u32, any::<u64>()), 0..8)) {
            let mut all = [0; COUNTED];
            bits.into_iter().for_each(|(count, shift, value)| all[count] = value >> shift);
            let counts = counted(all);
            prop_assert_eq!(PackedCounts::from(counts).get(), counts);
        }
    }
}

//! Counts in a fifteenth of the space: there are hundreds of thousands of cells, and of most of them a few small counts
//! are not 0.

use std::ops::AddAssign;

use memlens_types::{Counts, Fetched, Numa, Sampled, Shared};

/// All [`Counts`].
const COUNTED: usize = 38;
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

/// Bits of the room behind the mask.
const ROOM_BITS: u32 = 8 * (IN_PLACE - MASK) as u32;
/// The bit of each byte that says whether more follow.
const MORE: u128 = u128::from_ne_bytes([0x80; 16]);
/// Bits of a number in eight bytes.
const LOW_BITS: u32 = 7 * 8;

/// `None` if there is not room enough.
fn packed(values: &[u64; COUNTED]) -> Option<[u8; IN_PLACE]> {
    let mut present = 0_u64;
    for (count, &value) in values.iter().enumerate() {
        present |= u64::from(value > 0) << count;
    }
    let (mut room, mut used, mut left) = (0_u128, 0, present);
    while left != 0 {
        let value = values[left.trailing_zeros() as usize % COUNTED];
        left &= left - 1;
        let bits = 8 * (u64::BITS - value.leading_zeros()).div_ceil(7);
        if used + bits > ROOM_BITS {
            return None;
        }
        let bytes = u128::from(apart(value)) | u128::from(apart(value >> LOW_BITS)) << 64;
        // All but the last have more behind them.
        room |= (bytes | MORE & ((1 << (bits - 8)) - 1)) << used;
        used += bits;
    }
    let mut bytes = [0; IN_PLACE];
    let (mask, behind) = bytes.split_at_mut(MASK);
    mask.copy_from_slice(&present.to_le_bytes()[..MASK]);
    behind.copy_from_slice(&room.to_le_bytes()[..IN_PLACE - MASK]);
    Some(bytes)
}

/// The reverse of [`packed`].
fn unpacked(bytes: &[u8; IN_PLACE]) -> [u64; COUNTED] {
    let mut values = [0; COUNTED];
    let [a, b, c, d, e, behind @ ..] = *bytes;
    let mut present = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
    let [f, g, h, i, j, k, l, m, n, o] = behind;
    let mut room = u128::from_le_bytes([f, g, h, i, j, k, l, m, n, o, 0, 0, 0, 0, 0, 0]);
    while present != 0 {
        let value = &mut values[present.trailing_zeros() as usize % COUNTED];
        present &= present - 1;
        // Its last byte is the first behind which there are no more.
        let bits = (!room & MORE).trailing_zeros() + 1;
        let bytes = room & ((1 << bits) - 1);
        room >>= bits;
        *value = together(bytes as u64) | together((bytes >> 64) as u64) << LOW_BITS;
    }
    values
}

/// The lowest 56 bits of a number, seven in each byte.
fn apart(value: u64) -> u64 {
    let value = value & 0x0fff_ffff | value << 4 & 0x0fff_ffff << 32;
    let value = value & 0x3fff_0000_3fff | value << 2 & 0x3fff_0000_3fff << 16;
    value & 0x007f_007f_007f_007f | value << 1 & 0x7f00_7f00_7f00_7f00
}

/// The reverse of [`apart`], whatever the eighth bits are.
fn together(bytes: u64) -> u64 {
    let value = bytes & 0x007f_007f_007f_007f | bytes >> 1 & 0x3f80_3f80_3f80_3f80;
    let value = value & 0x3fff_0000_3fff | value >> 2 & 0x3fff_0000_3fff << 14;
    value & 0x0fff_ffff | value >> 4 & 0x0fff_ffff << 28
}

/// The counts, by name, to an array and back. A count that is missing here does not compile.
macro_rules! in_order {
    (
        $($count:ident),*;
        shared: $($shared:ident),*;
        numa: $($numa:ident),*;
        fetched: $($fetched:ident),*;
        sampled: $($sampled:ident),* $(;)?
    ) => {
        /// Each count once.
        pub(crate) fn values(counts: &Counts) -> [u64; COUNTED] {
            let Counts { $($count,)* shared, numa, fetched, sampled } = *counts;
            let Shared { $($shared),* } = shared;
            let Numa { $($numa),* } = numa;
            let Fetched { $($fetched),* } = fetched;
            let Sampled { $($sampled),* } = sampled;
            [$($count,)* $($shared,)* $($numa,)* $($fetched,)* $($sampled),*]
        }

        /// The reverse of [`values`].
        fn counted(
            [$($count,)* $($shared,)* $($numa,)* $($fetched,)* $($sampled),*]: [u64; COUNTED],
        ) -> Counts {
            let (shared, numa) = (Shared { $($shared),* }, Numa { $($numa),* });
            let (fetched, sampled) = (Fetched { $($fetched),* }, Sampled { $($sampled),* });
            Counts { $($count,)* shared, numa, fetched, sampled }
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
    numa: remote_misses, remote_prefetched, misplaced, first_touches;
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

//! About how many different pages some addresses are in.

use std::ops::BitOrAssign;

/// Bytes of what is counted.
pub const PAGE_BYTES: u64 = 4096;
/// Words of the map: with 1024 bits the error is some percent up to a few thousand pages, and more are not needed.
const WORDS: usize = 16;
const BITS: u64 = WORDS as u64 * 64;

/// A set of pages that is only asked how large it is: linear counting (Whang, Vander-Zanden and Taylor, A linear-time probabilistic
/// counting algorithm for database applications, ACM TODS 15(2), 1990).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DistinctPages {
    words: [u64; WORDS],
}

impl DistinctPages {
    /// The page of this address belongs to it.
    pub fn add(&mut self, address: u64) {
        let bit = mixed(address / PAGE_BYTES) % BITS;
        self.words[(bit / 64) as usize] |= 1 << (bit % 64);
    }

    /// How many there are, as estimated; at most about 7000.
    pub fn count(&self) -> f64 {
        let used: u32 = self.words.iter().map(|word| word.count_ones()).sum();
        let free = (BITS as f64 - f64::from(used)).max(1.0);
        BITS as f64 * (BITS as f64 / free).ln()
    }
}

impl BitOrAssign<&DistinctPages> for DistinctPages {
    fn bitor_assign(&mut self, other: &DistinctPages) {
        self.words.iter_mut().zip(other.words).for_each(|(own, others)| *own |= others);
    }
}

/// A number of which every bit depends on all of this one, as neighbours would else take each their own bit: the finalizer of
/// SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014, section 4, variant 13).
fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many pages from here on, each at a hundred places.
    fn pages(from: u64, count: u64) -> DistinctPages {
        let mut pages = DistinctPages::default();
        (0..count * 100).for_each(|at| pages.add((from + at / 100) * PAGE_BYTES + at % 100 * 40));
        pages
    }

    #[test]
    fn places_in_a_page_are_one_and_pages_are_counted() {
        assert_eq!(DistinctPages::default().count(), 0.0);
        for count in [1, 10, 100, 1000, 3000] {
            let found = pages(0x7_f123_4567, count).count();
            assert!((found / count as f64 - 1.0).abs() < 0.1, "{count}: {found}");
        }
        assert!(pages(1 << 30, 100_000).count() > 4000.0);
    }

    #[test]
    fn what_both_have_counts_once() {
        let mut both = pages(5000, 300);
        both |= &pages(5200, 300);
        assert!((both.count() / 500.0 - 1.0).abs() < 0.1, "{}", both.count());
    }
}

//! Which misses a hardware prefetcher spares the program: a stream prefetcher that looks at first-level misses.
//!
//! It changes nothing in the caches. A demand access that misses is counted as the miss that it is; if the
//! prefetcher would have asked for the line before, it stands in a list of its own besides, because the processor
//! does not wait for memory then.
//!
//! ```text
//! first-level misses of a page       line 3   4   5   7   8
//! step                                        1   1   2   1
//! covered                                 –   –   yes yes yes
//! ```
//!
//! # Rule
//! Misses of data accesses and prefetch instructions train it, by page of 4 KiB. From the second step on that
//! continues the one before, the line counts as asked for: steps of the same length (strides), or steps of at most
//! [`NEAR`] lines in the same direction (streams with gaps), or two that repeat the two before and get on (two places of each structure, in
//! whatever order: 2 1 4 3 6 5 …). A stream ends at its page's end. As many
//! streams are followed as the machine says, the least recent goes for another one; as many new pages are remembered
//! besides, so that pages touched here and there do not drive out streams that go on.
//!
//! That is what manuals have in common: Intel's streamer trains on first-level misses, follows one ascending or
//! descending stream a page, keeps 32 pages, and stays inside of them (Intel 64 and IA-32 Architectures Optimization
//! Reference Manual, order number 248966, "Data Prefetching"); AMD's cores have stream, stride and region prefetchers
//! of the first level and a stream prefetcher of the second (Software Optimization Guide for the AMD Zen4
//! Microarchitecture, publication 57647, "Prefetchers").
//!
//! # Not modelled
//! Whether a line comes in time, lines that nobody wanted, which take room and bandwidth, strides over pages,
//! neighbouring lines fetched in pairs, prefetchers of instructions and of page-table entries.

use crate::batch::{Batch, Outcome};
use alloc::vec;
use alloc::vec::Vec;

/// Streams of a set that are followed, and as many new pages.
const FOLLOWED: usize = 4;
const WAYS: usize = 2 * FOLLOWED;
/// Of at most so many lines are a stream's steps while their lengths differ.
const NEAR: u16 = 2;
const PAGE_SHIFT: u32 = 12;
/// No address has this page number.
const NO_PAGE: u64 = u64::MAX;

/// The stream of a page.
#[derive(Clone, Copy, Debug)]
struct Stream {
    page: u64,
    /// Where in the page it is, in lines.
    line: i16,
    /// Its last step; 0: none yet.
    step: i16,
    /// The two before, the last first.
    before: [i16; 2],
}

impl Stream {
    const NONE: Self = Self { page: NO_PAGE, line: 0, step: 0, before: [0; 2] };

    /// Goes on to a line of the page. Whether it has been asked for.
    #[inline(always)]
    fn go_on(&mut self, line: i16) -> bool {
        let (before, step) = (self.step, line - self.line);
        if step == 0 {
            return false;
        }
        let is_repeated = [step, before] == self.before && step + before != 0;
        (self.line, self.step, self.before) = (line, step, [before, self.before[0]]);
        let is_near = before.unsigned_abs() <= NEAR && step.unsigned_abs() <= NEAR;
        step == before || is_near && before.signum() == step.signum() || is_repeated
    }
}

/// The streams that a core's prefetcher follows.
///
/// [`crate::Model`] has one for each core of a machine that has prefetchers. By itself it serves those who know misses
/// from elsewhere:
///
/// ```
/// let mut prefetcher = memlens_sim::Prefetcher::new(32, 64);
/// let covered: Vec<bool> = (0..5).map(|line| prefetcher.miss(0x7000 + 64 * line)).collect();
/// assert_eq!(covered, [false, false, true, true, true]);
/// ```
#[derive(Clone, Debug)]
pub struct Prefetcher {
    /// Of a set first the streams that were followed last, then new pages, the most recent first.
    sets: Vec<[Stream; WAYS]>,
    line_shift: u32,
    /// Positions of the first-level misses whose lines were asked for.
    covered: Vec<u32>,
}

/// How long the lists of an outcome are that the prefetcher reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    l1: usize,
    l2: usize,
    llc: usize,
}

impl Lengths {
    pub(crate) fn of(outcome: &Outcome) -> Self {
        Self { l1: outcome.l1_misses.len(), l2: outcome.l2_misses.len(), llc: outcome.llc_misses.len() }
    }
}

impl Prefetcher {
    /// One for lines of `line_bytes`, a power of two, that follows so many streams, rounded up to whole sets whose number is a power of two.
    pub fn new(streams: u32, line_bytes: u32) -> Self {
        let sets = (streams as usize).div_ceil(FOLLOWED).next_power_of_two();
        Self {
            sets: vec![[Stream::NONE; WAYS]; sets],
            line_shift: line_bytes.trailing_zeros(),
            covered: Vec::new(),
        }
    }

    /// Forgets all streams.
    pub fn clear(&mut self) {
        self.sets.fill([Stream::NONE; WAYS]);
    }

    /// Follows the misses of a batch, which are in `out` behind `before`, and appends those to the lists of prefetched
    /// lines whose lines were asked for.
    pub(crate) fn follow(&mut self, batch: Batch<'_>, before: Lengths, out: &mut Outcome) {
        self.covered.clear();
        let mut last = None;
        for &index in &out.l1_misses[before.l1..] {
            let (addr, attr) = (batch.addrs[index as usize], batch.attrs[index as usize]);
            // The second line of an access over two.
            let addr = match last == Some(index) {
                true => addr.wrapping_add(u64::from(attr.size_bytes().max(1) - 1)),
                false => addr,
            };
            last = Some(index);
            if self.miss(addr) {
                self.covered.push(index);
            }
        }
        if self.covered.is_empty() {
            return;
        }
        let Outcome { l2_misses, llc_misses, l2_prefetched, llc_prefetched, .. } = out;
        intersect(&self.covered, &l2_misses[before.l2..], l2_prefetched);
        intersect(&self.covered, &llc_misses[before.llc..], llc_prefetched);
    }

    /// A first-level miss of an access to this address. Whether its line was asked for before. Cost: 1 to 2 ns.
    #[inline]
    pub fn miss(&mut self, addr: u64) -> bool {
        let page = addr >> PAGE_SHIFT;
        let line = ((addr & ((1 << PAGE_SHIFT) - 1)) >> self.line_shift) as i16;
        // Arrays often begin at multiples of large powers of two: Fibonacci hashing spreads them (Knuth, The Art of
        // Computer Programming volume 3, section 6.4).
        let at = (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (self.sets.len() - 1);
        let set = &mut self.sets[at];
        if let Some(way) = set.iter().position(|stream| stream.page == page) {
            let is_covered = set[way].go_on(line);
            if is_covered {
                set[..=way].rotate_right(1);
            }
            return is_covered;
        }
        set[FOLLOWED..].rotate_right(1);
        set[FOLLOWED] = Stream { page, line, step: 0, before: [0; 2] };
        false
    }
}

/// Appends what stands in both lists, which ascend, as often as it stands in both.
fn intersect(covered: &[u32], misses: &[u32], both: &mut Vec<u32>) {
    let mut covered = covered.iter().peekable();
    for &index in misses {
        while covered.next_if(|&&other| other < index).is_some() {}
        if covered.next_if(|&&other| other == index).is_some() {
            both.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_types::{AccessAttr, AccessKind};

    /// Which of these addresses, all of which miss everywhere, are covered.
    fn covered(addrs: &[u64]) -> Vec<u32> {
        let attrs = vec![AccessAttr::new(AccessKind::Load, 8); addrs.len()];
        let all: Vec<u32> = (0..addrs.len() as u32).collect();
        let mut out = Outcome {
            l1_misses: all.clone(),
            l2_misses: all.clone(),
            llc_misses: all.iter().copied().filter(|index| index % 2 == 0).collect(),
            ..Outcome::default()
        };
        let before = Lengths { l1: 0, l2: 0, llc: 0 };
        Prefetcher::new(32, 64).follow(Batch { addrs, attrs: &attrs }, before, &mut out);
        let even: Vec<u32> = out.l2_prefetched.iter().copied().filter(|index| index % 2 == 0).collect();
        assert_eq!(out.llc_prefetched, even);
        out.l2_prefetched
    }

    fn lines(lines: &[u64]) -> Vec<u32> {
        covered(&lines.iter().map(|line| 0x7000 + 64 * line).collect::<Vec<_>>())
    }

    #[test]
    fn streams_and_strides_are_covered_from_their_third_miss_on() {
        assert_eq!(lines(&[3, 4, 5, 6]), [2, 3], "upwards");
        assert_eq!(lines(&[9, 8, 7, 6]), [2, 3], "downwards");
        assert_eq!(lines(&[0, 10, 20, 30]), [2, 3], "a stride");
        assert_eq!(lines(&[0, 1, 3, 4, 6]), [2, 3, 4], "with gaps");
        assert_eq!(lines(&[0, 1, 4, 5, 8, 9]), [4, 5], "two places of structures of four lines");
        assert_eq!(lines(&[2, 1, 4, 3, 6, 5]), [4, 5], "the later place first");
        assert_eq!(lines(&[0, 1, 4, 5, 11, 12]), [], "two lines here and there");
        assert_eq!(lines(&[5, 5, 6, 6, 7]), [4], "the same line again tells nothing");
        assert_eq!(lines(&[5, 6, 5, 6, 5]), [], "to and fro");
        assert_eq!(lines(&[5, 40, 2, 33, 12, 60]), [], "at random");
    }

    #[test]
    fn a_stream_begins_anew_on_each_page() {
        let addrs: Vec<u64> = (60..70).map(|line| 64 * line).collect();
        assert_eq!(covered(&addrs), [2, 3, 6, 7, 8, 9]);
    }

    #[test]
    fn as_many_streams_are_followed_as_there_is_room_for() {
        let interleaved = |streams: u64| {
            let addr = |at: u64| ((at % streams) << 30) + 64 * (at / streams);
            covered(&(0..8 * streams).map(addr).collect::<Vec<_>>()).len() as u64
        };
        assert_eq!(interleaved(8), 6 * 8);
        assert_eq!(interleaved(1000), 0);
    }

    #[test]
    fn leaps_do_not_drive_a_stream_out() {
        // A stream of 4 pages, and 15 leaps to pages anywhere between two of its steps.
        let leap = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        let addr = |at: u64| if at.is_multiple_of(16) { 0x7000 + at / 16 * 64 } else { leap(at) };
        let covered = covered(&(0..16 * 256).map(addr).collect::<Vec<_>>());
        let of_stream = covered.iter().filter(|&&index| index.is_multiple_of(16)).count();
        // Where a page's first lines are far apart in time, others come between them.
        assert!(of_stream > 150 && covered.len() < of_stream + 20, "{of_stream} of {}", covered.len());
    }

    #[test]
    fn both_lines_of_an_access_are_followed() {
        // Each access ends in the next line; both miss.
        let addrs: Vec<u64> = (0..3).map(|at| 0x7000 + 128 * at + 60).collect();
        let attrs = vec![AccessAttr::new(AccessKind::Load, 8); addrs.len()];
        let mut out = Outcome { l1_misses: vec![0, 0, 1, 1, 2, 2], ..Outcome::default() };
        out.l2_misses.clone_from(&out.l1_misses);
        let before = Lengths { l1: 0, l2: 0, llc: 0 };
        Prefetcher::new(32, 64).follow(Batch { addrs: &addrs, attrs: &attrs }, before, &mut out);
        assert_eq!(out.l2_prefetched, [1, 1, 2, 2]);
        assert!(out.llc_prefetched.is_empty());
    }
}

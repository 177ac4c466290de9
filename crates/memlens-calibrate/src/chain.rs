//! Memory in which each line names the next: what a load-to-use latency is measured on.
//!
//! All lines of a chain make one cycle in random order, so neither the processor's prefetchers nor its
//! prediction of addresses can run ahead, and each step waits for the one before.
#![allow(unsafe_code)]

use std::hint;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::mapping::{LINE, Mapping, PAGE, Pages};

/// A chain of lines.
#[derive(Debug)]
pub struct Chain {
    memory: Mapping,
    /// The offset of the line that is next.
    at: *const usize,
}

// SAFETY: the memory is the chain's own, nothing of it is bound to a thread, and what `&self` offers goes by atomics.
unsafe impl Sync for Chain {}

impl Chain {
    /// Lines of a chain through some of each page's, if it has so many pages: 64 MB.
    const LINES_OF_PAGES: usize = 1 << 20;

    /// Lines of a step.
    pub const LINES_A_STEP: usize = 16;

    /// A chain over lines at the given offsets from the start of a mapping of `bytes`. Offsets are
    /// multiples of 8 below `bytes`, each once.
    ///
    /// # Errors
    /// If there is no memory, or ([`Pages::Huge`]) the kernel gives no huge pages.
    pub fn new(bytes: usize, offsets: &[usize], pages: Pages) -> io::Result<Self> {
        let fits = |offset: &usize| offset.is_multiple_of(8) && *offset + 8 <= bytes;
        if offsets.is_empty() || !offsets.iter().all(fits) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let memory = Mapping::new(bytes, pages)?;
        let base = memory.base();
        let mut order: Vec<usize> = offsets.to_vec();
        shuffle(&mut order);
        for (index, &offset) in order.iter().enumerate() {
            let next = order[(index + 1) % order.len()];
            // SAFETY: both offsets are inside of the mapping and aligned, as was checked above.
            unsafe { base.add(offset).cast::<usize>().write(base.add(next) as usize) };
        }
        if pages == Pages::Huge {
            memory.check_huge()?;
        }
        // SAFETY: as above.
        let at = unsafe { base.add(order[0]).cast_const().cast() };
        Ok(Self { memory, at })
    }

    /// A chain over all lines of `bytes`.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub fn over(bytes: usize, pages: Pages) -> io::Result<Self> {
        let offsets: Vec<usize> = (0..bytes / LINE).map(|line| line * LINE).collect();
        Self::new(bytes, &offsets, pages)
    }

    /// A chain with one line in each of `count` ordinary pages, so that a cache has no more of them in one set than in others, also where
    /// pages lie side by side in physical memory.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub fn over_pages(count: usize, pages: Pages) -> io::Result<Self> {
        let offsets: Vec<usize> = (0..count).map(in_page).collect();
        Self::new(count * PAGE, &offsets, pages)
    }

    /// A chain with as many lines of each of `count` pages as make a million (64 MB) of them all together: more than caches hold, so
    /// that each line comes from memory.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub fn over_lines_of_pages(count: usize, pages: Pages) -> io::Result<Self> {
        const IN_PAGE: usize = PAGE / LINE;
        let of_each = (Self::LINES_OF_PAGES / count.max(1)).clamp(1, IN_PAGE);
        let lines = |page: usize| {
            (0..of_each)
                .map(move |line| page * PAGE + (page * 37 + line * (IN_PAGE / of_each)) % IN_PAGE * LINE)
        };
        let offsets: Vec<usize> = (0..count).flat_map(lines).collect();
        Self::new(count * PAGE, &offsets, pages)
    }

    /// Follows the chain for so many steps, of [`Self::LINES_A_STEP`] lines each.
    pub fn walk(&mut self, steps: usize) {
        let mut at = self.at;
        for _ in 0..steps {
            for _ in 0..Self::LINES_A_STEP {
                // SAFETY: every line of the chain holds the address of a line of the chain, in the
                // mapping that lives as long as `self`.
                at = unsafe { at.read_volatile() } as *const usize;
            }
        }
        self.at = at;
    }

    /// Follows so many lines of it from where it is, and stays there.
    pub(crate) fn read(&self, lines: usize) {
        let last = (0..lines).fold(self.at, |at, _| {
            // SAFETY: `at` is a line of the chain, and each holds the address of one.
            let line = unsafe { self.line(at) };
            line.load(Ordering::Relaxed) as *const usize
        });
        hint::black_box(last);
    }

    /// Writes every line again, as it was: then this core's cache alone has them.
    pub(crate) fn write(&self) {
        let mut at = self.at;
        loop {
            // SAFETY: as above.
            let line = unsafe { self.line(at) };
            let next = line.load(Ordering::Relaxed);
            line.store(next, Ordering::Relaxed);
            at = next as *const usize;
            if at == self.at {
                return;
            }
        }
    }

    /// Takes its lines, which lie at these offsets, out of all caches: see [`Mapping::flush`].
    pub(crate) fn flush(&self, offsets: &[usize]) -> bool {
        self.memory.flush(offsets.iter().copied())
    }

    /// What a line holds.
    ///
    /// # Safety
    /// It is one of the chain.
    unsafe fn line(&self, at: *const usize) -> &AtomicUsize {
        // SAFETY: aligned, and in the mapping that lives as long as `self`; who shares it goes by such references only.
        unsafe { AtomicUsize::from_ptr(at.cast_mut()) }
    }

    /// The first address that the chain may use.
    pub fn first(&self) -> *const usize {
        self.memory.base().cast_const().cast()
    }

    /// The address of the line that is next: for code that follows the chain itself.
    pub fn here(&self) -> *const usize {
        self.at
    }
}

/// Where a page's line lies: each page of 64 has another, and the next 64 begin one later.
fn in_page(page: usize) -> usize {
    page * PAGE + (page + page / (PAGE / LINE)) * LINE % PAGE
}

/// Into an order that looks random and is the same every time (R. A. Fisher and F. Yates; G. Marsaglia's
/// xorshift).
fn shuffle(order: &mut [usize]) {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for last in (1..order.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(last, (state % (last as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_passes_every_line_once_before_it_comes_back() {
        let mut chain = Chain::over(64 * LINE, Pages::Small).expect("memory");
        let first = chain.here();
        let mut seen = std::collections::BTreeSet::new();
        // 4 × 16 = 64 lines.
        for step in 1..=4 {
            assert!(seen.insert(chain.here()), "back after {step} steps");
            chain.walk(1);
        }
        assert_eq!(chain.here(), first);
    }

    #[test]
    fn offsets_outside_are_refused() {
        assert!(Chain::new(64, &[64], Pages::Small).is_err());
        assert!(Chain::new(64, &[4], Pages::Small).is_err());
        assert!(Chain::new(64, &[], Pages::Small).is_err());
    }

    #[test]
    fn pages_have_a_line_each_spread_over_sets() {
        let mut per_set = std::collections::BTreeMap::new();
        (0..8192).map(in_page).for_each(|offset| *per_set.entry(offset / LINE % 2048).or_insert(0) += 1);
        assert!(per_set.len() == 2048 && per_set.values().all(|&lines| lines == 4));
        let chain = Chain::over_pages(128, Pages::Small).expect("memory");
        assert_eq!(chain.here() as usize % 8, 0);
    }
}

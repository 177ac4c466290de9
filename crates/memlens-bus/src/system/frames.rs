//! Physical frames, handed out by a binary buddy allocator (Knowlton: A fast storage allocator, CACM 8(10),
//! 1965), as kernels do.

use std::collections::BTreeSet;

/// Largest block: 1 GiB.
const MAX_ORDER: usize = 18;

/// Hands out blocks of 2ⁿ frames of 4 KiB, the lowest free one first.
#[derive(Clone, Debug)]
pub struct Frames {
    free: [BTreeSet<u64>; MAX_ORDER + 1],
    /// Frames in use.
    pub used: u64,
}

impl Frames {
    /// All frames in the range are free.
    pub fn new(range: std::ops::Range<u64>) -> Self {
        let mut frames = Self { free: Default::default(), used: 0 };
        let mut at = range.start;
        while at < range.end {
            let aligned = (at.trailing_zeros() as usize).min(MAX_ORDER);
            let fitting = (range.end - at).ilog2() as usize;
            let order = aligned.min(fitting);
            frames.free[order].insert(at);
            at += 1 << order;
        }
        frames
    }

    /// A block of 2^order frames; `None` if memory is full or too scattered.
    pub fn allocate(&mut self, order: usize) -> Option<u64> {
        let from = (order..=MAX_ORDER).find(|&order| !self.free[order].is_empty())?;
        let block = self.free[from].pop_first()?;
        for half in (order..from).rev() {
            self.free[half].insert(block + (1 << half));
        }
        self.used += 1 << order;
        Some(block)
    }

    /// Gives a block back, whole or in parts of a larger one that was handed out.
    pub fn release(&mut self, frame: u64, order: usize) {
        self.used -= 1 << order;
        let (mut block, mut order) = (frame, order);
        while order < MAX_ORDER && self.free[order].remove(&(block ^ (1 << order))) {
            block &= !(1 << order);
            order += 1;
        }
        self.free[order].insert(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_split_and_merge() {
        let mut frames = Frames::new(0..1024);
        assert_eq!(frames.allocate(0), Some(0));
        // The lowest aligned 512 frames that are whole.
        assert_eq!(frames.allocate(9), Some(512));
        assert_eq!(frames.allocate(9), None);
        assert_eq!(frames.allocate(1), Some(2));
        frames.release(0, 0);
        frames.release(2, 1);
        assert_eq!(frames.allocate(9), Some(0));
        // A large block may come back in pieces.
        (512..1024).for_each(|frame| frames.release(frame, 0));
        frames.release(0, 9);
        assert_eq!((frames.allocate(10), frames.used), (Some(0), 1024));
    }

    #[test]
    fn odd_ranges_are_used_whole() {
        let mut frames = Frames::new(3..18);
        let mut all: Vec<u64> = std::iter::from_fn(|| frames.allocate(0)).collect();
        all.sort_unstable();
        assert_eq!(all, (3..18).collect::<Vec<_>>());
    }
}

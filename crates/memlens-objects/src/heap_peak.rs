//! What of the heap was live when most of it was.

use crate::{ObjectId, ObjectTable};

/// What the sites have is noted anew when so much more is live than when it was noted last: one part in so many. Massif's
/// `--peak-inaccuracy` is as much.
const INACCURACY: u64 = 100;

/// Bytes that are live, the most that were, and which sites had them then.
///
/// Heaps grow by a block at a time, so that each block would be a new peak: what is live is looked at when it is about to become less.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeapPeak {
    live_bytes: u64,
    most_bytes: u64,
    /// How much was live when it was noted whose that is.
    noted_bytes: u64,
    /// Whose it was, as far as sites are objects.
    noted: Vec<(ObjectId, u64)>,
}

impl HeapPeak {
    /// More is live.
    #[inline]
    pub(crate) fn grew(&mut self, bytes: u64) {
        self.live_bytes = self.live_bytes.saturating_add(bytes);
    }

    /// Less is to be live than now, when `objects` have what they have.
    #[inline]
    pub(crate) fn will_shrink(&mut self, bytes: u64, objects: &ObjectTable) {
        if self.live_bytes > self.most_bytes {
            self.is_largest(objects);
        }
        self.live_bytes = self.live_bytes.saturating_sub(bytes);
    }

    #[cold]
    fn is_largest(&mut self, objects: &ObjectTable) {
        self.most_bytes = self.live_bytes;
        if self.live_bytes - self.noted_bytes > self.noted_bytes / INACCURACY {
            self.noted_bytes = self.live_bytes;
            self.noted = objects.live_of_sites().collect();
        }
    }

    /// What was live before is none of this process's peak.
    pub(crate) fn forget(&mut self) {
        *self = Self { live_bytes: self.live_bytes, ..Self::default() };
    }

    /// The most bytes that were live, and what the sites had of them.
    pub(crate) fn most(&self, objects: &ObjectTable) -> (u64, Vec<(ObjectId, u64)>) {
        match self.live_bytes > self.most_bytes {
            true => (self.live_bytes, objects.live_of_sites().collect()),
            false => (self.most_bytes, self.noted.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{HeapObjects, Layer, Merge};

    #[test]
    fn the_peak_is_when_most_is_live_at_one_time() {
        let mut heap = HeapObjects::new(Merge::BySite);
        let allocated = |heap: &mut HeapObjects, start: u64, len_bytes: u64, stack: u64| {
            heap.allocated(start, len_bytes, Layer::HEAP, &[stack], 0).expect("room")
        };
        let first = allocated(&mut heap, 0x10_0000, 6000, 1);
        let second = allocated(&mut heap, 0x20_0000, 3000, 2);
        assert_eq!(heap.peak(), (9000, vec![(first, 6000), (second, 3000)]));
        heap.freed(0x10_0000, Layer::HEAP);
        // Less than then, though the second site has more.
        allocated(&mut heap, 0x30_0000, 5000, 2);
        assert_eq!(heap.peak(), (9000, vec![(first, 6000), (second, 3000)]));
        // It grows by a realloc, and what is put over another block ends that.
        heap.reallocated(0x30_0000, 0x40_0000, 7000, Layer::HEAP, &[2], 0).expect("room");
        heap.freed(0x40_0000, Layer::HEAP);
        assert_eq!(heap.peak(), (10_000, vec![(second, 10_000)]));
        let third = allocated(&mut heap, 0x20_0000, 50, 3);
        heap.freed(0x20_0000, Layer::HEAP);
        assert_eq!(heap.peak().0, 10_000);
        // What lies in a block is in its bytes.
        heap.allocated(0x60_0000, 9000, Layer::HEAP, &[4], 0).expect("room");
        let nested = heap.allocated(0x60_0000, 5000, Layer::POOL, &[5], 0).expect("room");
        assert_eq!((heap.peak().0, heap.objects().stats(nested).live_bytes), (10_000, 5000));
        assert!(heap.objects().live_of_sites().all(|(object, _)| object != nested));
        heap.freed(0x60_0000, Layer::POOL);
        heap.freed(0x60_0000, Layer::HEAP);
        // A process that is forked off has none yet.
        allocated(&mut heap, 0x50_0000, 70, 3);
        heap.forget_history();
        assert_eq!(heap.peak(), (70, vec![(third, 70)]));
    }

    #[test]
    fn little_more_is_no_reason_to_look_again() {
        let mut heap = HeapObjects::new(Merge::BySite);
        heap.allocated(0x10_0000, 100_000, Layer::HEAP, &[1], 0).expect("room");
        for round in 0..100 {
            let (start, len_bytes) = (0x100_0000 + round * 0x1000, 10 + round);
            heap.allocated(start, len_bytes, Layer::HEAP, &[2], 0).expect("room");
            heap.freed(start, Layer::HEAP);
        }
        // The most is known to the byte, whose it is to a hundredth.
        let (most, sites) = heap.peak();
        assert_eq!(most, 100_109);
        assert_eq!(sites.iter().map(|(_, bytes)| bytes).sum::<u64>(), 100_010);
    }
}

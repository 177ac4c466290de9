//! Labelled ranges below the heap.

use std::collections::BTreeMap;
use std::ops::Range;

/// Non-overlapping labelled address ranges: module segments, thread stacks, TLS blocks, mappings,
/// vDSO, the brk heap. They answer for addresses that no live heap block covers.
///
/// A later range wins over what it overlaps, as `MAP_FIXED` does: the older ranges are cut, split
/// or replaced. Neighbours with one label are not joined, because they came separately. Labels are
/// the caller's; this map gives them no meaning.
///
/// Ranges are half-open, in bytes. Cost: logarithmic in the number of ranges; callers keep the
/// range they were given until [`generation`](Self::generation) changes.
#[derive(Debug, Default, Clone)]
pub struct Regions {
    /// Start → (end, label).
    ranges: BTreeMap<u64, (u64, u32)>,
    generation: u64,
}

impl Regions {
    /// A map without ranges.
    pub fn new() -> Self {
        Self::default()
    }

    /// Labels `range`, whatever it was before. An empty range does nothing.
    pub fn insert(&mut self, range: Range<u64>, label: u32) {
        if range.is_empty() {
            return;
        }
        self.cut(&range);
        self.ranges.insert(range.start, (range.end, label));
    }

    /// Takes the labels off `range`; what overlaps it only partly keeps its other parts.
    pub fn remove(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            self.cut(&range);
        }
    }

    /// The labels of `old` move to `new_start` (`mremap`): pieces keep their distances, the new
    /// place is overridden, and `new_len` beyond the old length extends the last piece when that
    /// piece ended the old range. A shorter `new_len` drops the rest. Returns how many pieces moved.
    ///
    /// A `new_start` so high that pieces would pass the end of the address space loses those.
    pub fn moved(&mut self, old: Range<u64>, new_start: u64, new_len: u64) -> usize {
        let pieces: Vec<_> = self.pieces(&old).collect();
        self.remove(old.clone());
        self.remove(new_start..new_start.saturating_add(new_len));
        let mut moved = 0;
        for (piece, label) in pieces {
            let from = piece.start - old.start;
            let to = if piece.end == old.end { new_len } else { (piece.end - old.start).min(new_len) };
            if from < to
                && let (Some(from), Some(to)) = (new_start.checked_add(from), new_start.checked_add(to))
            {
                self.insert(from..to, label);
                moved += 1;
            }
        }
        moved
    }

    /// The labelled range that covers `addr`, with its label.
    #[inline]
    pub fn get(&self, addr: u64) -> Option<(Range<u64>, u32)> {
        let (&start, &(end, label)) = self.ranges.range(..=addr).next_back()?;
        (addr < end).then_some((start..end, label))
    }

    /// Like [`get`](Self::get), but an unlabelled address yields the whole unlabelled gap around
    /// it and `None`, so that a caller can cache this answer too. The gap above the last range ends
    /// at `u64::MAX`.
    pub fn get_or_gap(&self, addr: u64) -> (Range<u64>, Option<u32>) {
        let below = self.ranges.range(..=addr).next_back();
        let gap_start = match below {
            Some((&start, &(end, label))) if addr < end => return (start..end, Some(label)),
            Some((_, &(end, _))) => end,
            None => 0,
        };
        let gap_end = self.ranges.range(addr..).next().map_or(u64::MAX, |(&start, _)| start);
        (gap_start..gap_end, None)
    }

    /// All ranges with their labels, in address order.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, u32)> + '_ {
        self.ranges.iter().map(|(&start, &(end, label))| (start..end, label))
    }

    /// Changes whenever a range does: what was cached under another generation may be wrong.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The parts of ranges that lie inside `range`, in address order.
    fn pieces<'a>(&'a self, range: &Range<u64>) -> impl Iterator<Item = (Range<u64>, u32)> + 'a {
        let Range { start, end } = *range;
        let first = self.get(start).map_or(start, |(covering, _)| covering.start);
        // An inverted range has no pieces; BTreeMap::range would panic on it.
        let last = end.max(first);
        self.ranges
            .range(first..last)
            .map(move |(&s, &(e, label))| (s.max(start)..e.min(end), label))
            .filter(|(piece, _)| !piece.is_empty())
    }

    /// Leaves nothing labelled in a non-empty `range`.
    fn cut(&mut self, range: &Range<u64>) {
        self.generation += 1;
        if let Some((covering, label)) = self.get(range.start) {
            if covering.start < range.start {
                self.ranges.insert(covering.start, (range.start, label));
            } else {
                self.ranges.remove(&covering.start);
            }
            if covering.end > range.end {
                self.ranges.insert(range.end, (covering.end, label));
                return;
            }
        }
        while let Some((&start, &(end, label))) = self.ranges.range(range.clone()).next() {
            self.ranges.remove(&start);
            if end > range.end {
                self.ranges.insert(range.end, (end, label));
            }
        }
    }
}

//! The header of a record.

/// Block ids are smaller than this (23 bits).
pub const BLOCK_ID_LIMIT: u32 = 1 << 23;

/// A block's record has at most this many words after its header.
pub const MAX_BLOCK_WORDS: usize = 255;

/// The first word of a record; `words` more follow.
///
/// ```text
///  63            32 31 30          8 7        0
/// ┌────────────────┬──┬─────────────┬─────────┐
/// │ epoch          │0 │ block id    │ words   │
/// └────────────────┴──┴─────────────┴─────────┘
/// ```
///
/// Block id 0 means an event; its first word is the [`EventKind`](crate::EventKind). Bit 31 is zero
/// so that the low half can be stored as a sign-extended immediate, which clears the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct RecordHeader(pub u64);

impl RecordHeader {
    /// The low half: what instrumentation stores as an immediate.
    pub const fn low_half(block_id: u32, words: usize) -> u32 {
        (block_id << 8) | words as u32
    }

    /// Builds a header.
    pub const fn new(block_id: u32, words: usize, epoch: u32) -> Self {
        Self(((epoch as u64) << 32) | Self::low_half(block_id, words) as u64)
    }

    /// Which block ran; 0 is an event.
    #[inline(always)]
    pub const fn block_id(self) -> u32 {
        (self.0 as u32) >> 8
    }

    /// How many words follow.
    #[inline(always)]
    pub const fn words(self) -> usize {
        (self.0 & 0xff) as usize
    }

    /// The stamp; 0 in programs with one thread.
    #[inline(always)]
    pub const fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trips_at_the_limits() {
        for (id, words, epoch) in [(0, 0, 0), (1, 3, 7), (BLOCK_ID_LIMIT - 1, MAX_BLOCK_WORDS, u32::MAX)] {
            let header = RecordHeader::new(id, words, epoch);
            assert_eq!((header.block_id(), header.words(), header.epoch()), (id, words, epoch));
            assert_eq!(RecordHeader::low_half(id, words) >> 31, 0, "must not sign-extend");
        }
    }
}

//! What the live-block index met.

/// Events of [`crate::LiveBlocks`], irregular ones above all: none of them is an error of the
/// index, each says something about the target or about events that were missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Blocks inserted, those of zero bytes and sub-blocks included; moves not.
    pub inserts: u64,
    /// Blocks removed by a free of their start.
    pub removes: u64,
    /// Blocks moved or resized by realloc.
    pub moves: u64,
    /// Blocks of zero bytes inserted.
    pub zero_size: u64,
    /// Blocks put inside (over) live blocks of lower layers.
    pub nested: u64,
    /// Live blocks ended because a block of the same or a lower layer was put over them: their
    /// free was missed.
    pub missed_frees: u64,
    /// Live sub-blocks ended with the block under them: pools dropped whole.
    pub dropped_with_outer: u64,
    /// Frees and moves of an address at which no block of that layer starts, and inside none.
    pub unknown_frees: u64,
    /// Frees and moves of an address inside a block of that layer, but not at its start.
    pub interior_frees: u64,
    /// Blocks refused because their end lies past the address space.
    pub rejected_wraparound: u64,
    /// Blocks refused because they are larger than [`crate::LiveBlocks::MAX_LEN_BYTES`].
    pub rejected_too_long: u64,
    /// Blocks refused because no more block numbers were left.
    pub rejected_capacity: u64,
}

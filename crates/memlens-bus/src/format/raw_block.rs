//! Blocks of bus records as they stand in a file, and how they become a trace.
//!
//! ```text
//! reader ── next_raw ──► RawBlock ── unpack ──► BusBlock ── number ──► BusBlock with its place in the trace
//!           in order               in any order,            in order
//!                                  by any thread
//! ```

use super::blocks::{BlockPosition, Damage, PackedBlock};
use super::bus::{BusPosition, PlainPosition};
use super::{BusBlock, Gap, bus_columns};

/// No block has more.
const MAX_BLOCK_RECORDS: u32 = 1 << 20;

/// Where a file stands behind a block, apart from numbers and cycles.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RawPlace {
    pub blocks: BlockPosition,
    pub plain: PlainPosition,
}

/// Records as they stand in the file.
#[derive(Debug, Default)]
pub(super) struct RawBlock {
    packed: PackedBlock,
    /// Records of packings in which nothing is left to unpack, without numbers and cycles; used if `is_unpacked`.
    records: BusBlock,
    is_unpacked: bool,
    pub place: RawPlace,
}

impl RawBlock {
    /// To be filled with a packed block.
    pub fn packed(&mut self) -> &mut PackedBlock {
        self.is_unpacked = false;
        &mut self.packed
    }

    /// To be filled with records; empty.
    pub fn records(&mut self) -> &mut BusBlock {
        self.is_unpacked = true;
        self.records.restart(0, 0);
        &mut self.records
    }

    /// Unpacks it into `block`; `None`: it is damaged.
    pub fn unpack(&mut self, scratch: &mut Vec<u8>, block: &mut BusBlock) -> Option<HasNumbers> {
        if self.is_unpacked {
            std::mem::swap(&mut self.records, block);
            return Some(HasNumbers(false));
        }
        let info = self.packed.info;
        let is_sound = info.records <= MAX_BLOCK_RECORDS && self.packed.unpack(scratch);
        let decoded = is_sound.then(|| bus_columns::decode(scratch, info.first, info.records, block));
        decoded.flatten().map(|()| HasNumbers(true))
    }
}

/// Whether a block says which records it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct HasNumbers(bool);

/// Puts blocks behind each other.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbering {
    /// Number of the record expected next, and the cycles before it.
    next: u64,
    cycles: u64,
    /// Blocks left out.
    damaged: u64,
}

impl From<&BusPosition> for Numbering {
    fn from(position: &BusPosition) -> Self {
        Self { next: position.next, cycles: position.cycles, damaged: 0 }
    }
}

impl Numbering {
    /// Gives an unpacked block its place; `false` if it is left out.
    pub fn number(&mut self, unpacked: Option<HasNumbers>, block: &mut BusBlock) -> bool {
        match unpacked {
            Some(HasNumbers(true)) if block.first >= self.next => {
                // A block that is missing altogether.
                let missing = block.first - self.next;
                if missing > 0 {
                    block.first = self.next;
                    block.gaps.insert(0, Gap { position: 0, lost: missing });
                }
            }
            Some(HasNumbers(false)) => (block.first, block.start_cycles) = (self.next, self.cycles),
            _ => {
                self.damaged += 1;
                return false;
            }
        }
        (self.next, self.cycles) = (block.next(), block.end_cycles());
        true
    }

    /// An empty block here.
    pub fn restart(&self, block: &mut BusBlock) {
        block.restart(self.next, self.cycles);
    }

    /// The damage of a file, with the blocks that were left out here.
    pub fn with_damaged(&self, damage: Damage) -> Damage {
        Damage { blocks: damage.blocks + self.damaged, ..damage }
    }

    /// The place in the trace that belongs to one in the file.
    pub fn position(&self, place: &RawPlace) -> BusPosition {
        let mut blocks = place.blocks;
        blocks.damage = self.with_damaged(blocks.damage);
        BusPosition { next: self.next, cycles: self.cycles, blocks, plain: place.plain }
    }
}

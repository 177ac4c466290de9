//! The live heap blocks of one process.

use crate::address_space::Area;
use std::collections::BTreeMap;
use std::ops::Range;

use memlens_objects::SiteId;
use rustc_hash::FxHashMap;

/// What blocks lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockArea {
    /// The break: small blocks of the first thread, with most allocators.
    Break,
    /// Anonymous mappings: large blocks, and those of other threads.
    Mapping,
}

impl BlockArea {
    /// Which of them an area is.
    pub fn of(area: &Area) -> Self {
        if *area == Area::Break { Self::Break } else { Self::Mapping }
    }
}

/// A block that is watched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeapBlock {
    /// Who allocated it.
    pub site: SiteId,
    /// Its size as it was asked for.
    pub len_bytes: u64,
    /// What it lies in.
    pub area: BlockArea,
    /// In the mean, how often it was drawn so far, at its allocation and each time that it was moved; infinite: watched for
    /// its size alone.
    pub draws: f64,
    /// Bytes that it was allocated with and grew by.
    pub total_bytes: u64,
    /// Whether it came by moving a block that was not watched.
    pub was_moved: bool,
}

impl HeapBlock {
    /// How probable it was that it is watched.
    pub fn probability(&self) -> f64 {
        // That it was drawn at least once.
        -(-self.draws).exp_m1()
    }

    /// Bytes of all blocks that are as likely to be watched as this one.
    fn stands_for_bytes(&self) -> f64 {
        if self.draws > 0.0 { self.len_bytes as f64 / self.probability() } else { 0.0 }
    }
}

/// Which block owns an address.
///
/// # Model
/// An allocator hands out no memory twice, so live blocks do not overlap: one that is put over others proves that
/// their ends were missed, and ends them. Blocks of zero bytes own nothing, and are not kept.
///
/// # Cost
/// A search among the live blocks for each operation, whatever the blocks' sizes: blocks come and go by the million,
/// and addresses are asked for by the thousand. ([`memlens_objects::LiveBlocks`], made for asking with every access,
/// writes a word per 16 bytes of each block.)
#[derive(Clone, Debug, Default)]
pub struct HeapBlocks {
    by_start: BTreeMap<u64, HeapBlock>,
    /// Bytes of each site's blocks, with those that these stand for.
    live_bytes: FxHashMap<SiteId, f64>,
}

impl HeapBlocks {
    fn put(&mut self, start: u64, block: HeapBlock) {
        *self.live_bytes.entry(block.site).or_default() += block.stands_for_bytes();
        self.by_start.insert(start, block);
    }

    fn take(&mut self, start: u64) -> Option<HeapBlock> {
        let block = self.by_start.remove(&start)?;
        if let Some(bytes) = self.live_bytes.get_mut(&block.site) {
            *bytes -= block.stands_for_bytes();
        }
        Some(block)
    }

    /// Bytes of a site's live blocks, as estimated from those that are watched.
    pub fn live_bytes(&self, site: SiteId) -> f64 {
        self.live_bytes.get(&site).copied().unwrap_or(0.0)
    }

    /// The same of all sites that have any.
    pub fn live_of_sites(&self) -> impl Iterator<Item = (SiteId, f64)> {
        // What was taken away again may leave a rest of rounding.
        self.live_bytes.iter().map(|(&site, &bytes)| (site, bytes)).filter(|&(_, bytes)| bytes >= 0.5)
    }

    /// A block came into being at `start`. One that would reach beyond the last address is not kept.
    pub fn insert(&mut self, start: u64, block: HeapBlock) {
        let Some(end) = start.checked_add(block.len_bytes) else { return };
        // What was there has ended, or it would not be given out again.
        self.take(start);
        if block.len_bytes == 0 {
            return;
        }
        let last_before = self.by_start.range(..start).next_back();
        if let Some((&covered, _)) = last_before.filter(|&(&at, before)| at + before.len_bytes > start) {
            self.take(covered);
        }
        while let Some((&covered, _)) = self.by_start.range(start..end).next() {
            self.take(covered);
        }
        self.put(start, block);
    }

    /// The block that begins at `start` ends.
    pub fn remove(&mut self, start: u64) -> Option<HeapBlock> {
        self.take(start)
    }

    /// What lies in `range` ends: of blocks that it has a part of, the rest stays, at most two pieces. What ended.
    pub fn cut(&mut self, range: Range<u64>) -> Vec<(u64, HeapBlock)> {
        let end_of = |start: u64, block: &HeapBlock| start.saturating_add(block.len_bytes);
        let touched = self.by_start.range(..range.end).rev();
        // They do not overlap: the first that ends before the range is the last to look at.
        let touched = touched.take_while(|(start, block)| end_of(**start, block) > range.start);
        let touched: Vec<(u64, HeapBlock)> = touched.map(|(&start, &block)| (start, block)).collect();
        let piece =
            |block: HeapBlock, piece: &Range<u64>| HeapBlock { len_bytes: piece.end - piece.start, ..block };
        let mut ended = Vec::new();
        for (start, block) in touched {
            self.take(start);
            let end = end_of(start, &block);
            let gone = start.max(range.start)..end.min(range.end);
            for left in [start..gone.start, gone.end..end].iter().filter(|left| !left.is_empty()) {
                self.put(left.start, piece(block, left));
            }
            ended.push((gone.start, piece(block, &gone)));
        }
        ended
    }

    /// The block that `address` lies in, with its start.
    pub fn at(&self, address: u64) -> Option<(u64, HeapBlock)> {
        let (&start, &block) = self.by_start.range(..=address).next_back()?;
        (address - start < block.len_bytes).then_some((start, block))
    }

    /// Of `within`, the addresses around `address` that no block owns; `address` is one of them.
    pub fn gap(&self, address: u64, within: Range<u64>) -> Range<u64> {
        let before = self.by_start.range(..=address).next_back();
        let end_before = before.map_or(0, |(start, block)| start + block.len_bytes);
        let next = self.by_start.range(address..).next().map_or(u64::MAX, |(&start, _)| start);
        within.start.max(end_before)..within.end.min(next)
    }

    /// Those of at least `least_bytes` bytes: place and site. Linear in all.
    pub fn at_least(&self, least_bytes: u64) -> impl Iterator<Item = (Range<u64>, SiteId)> + '_ {
        let large = self.by_start.iter().filter(move |(_, block)| block.len_bytes >= least_bytes);
        large.map(|(&start, block)| (start..start + block.len_bytes, block.site))
    }
}

#[cfg(test)]
mod tests {
    use memlens_objects::{Block, Layer, LiveBlocks, ObjectId};

    use super::*;

    /// The index of exact mode says the same of blocks of one layer, whatever is missed and doubled.
    #[test]
    fn any_sequence_leaves_the_owners_that_the_index_of_exact_mode_has() {
        const PLACES: u64 = 2048;
        let (mut blocks, mut index) = (HeapBlocks::default(), LiveBlocks::new());
        let mut state = 1_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut owned = 0;
        for step in 0..4000_u64 {
            let start = 0x7f00_0000_0000 + draw(PLACES);
            if draw(3) == 0 {
                // Every second one is the end of a block that is there.
                let start = match (draw(2), blocks.at(start)) {
                    (0, Some((known, _))) => known,
                    _ => start,
                };
                let (found, expected) = (blocks.remove(start), index.remove(start, Layer::HEAP, &mut |_| {}));
                let expected = expected.filter(|block| block.len_bytes > 0);
                assert_eq!(found.map(|it| it.len_bytes), expected.map(|it| it.len_bytes), "step {step}");
            } else {
                let largest = [1, 24, 300][draw(3) as usize];
                let len_bytes = draw(largest);
                let site = SiteId::new(1 + draw(5) as u32).expect("not 0");
                let object = ObjectId::new(site.get()).expect("not 0");
                blocks.insert(
                    start,
                    HeapBlock {
                        site,
                        len_bytes,
                        area: BlockArea::Mapping,
                        draws: f64::INFINITY,
                        total_bytes: len_bytes,
                        was_moved: false,
                    },
                );
                let block = Block { start, len_bytes, object, layer: Layer::HEAP, serial: step };
                index.insert(block, &mut |_| {}).expect("room");
            }
            for address in (0..PLACES + 300).step_by(7).map(|at| 0x7f00_0000_0000 + at) {
                let found = blocks.at(address).map(|(start, it)| (start, it.len_bytes, it.site.get()));
                let expected = index.block_at(address);
                let expected = expected.map(|it| (it.start, it.len_bytes, it.object.get()));
                assert_eq!(found, expected, "step {step}, {address:#x}");
                owned += usize::from(found.is_some());
            }
        }
        assert!(owned > 10_000, "{owned}");
        let (found, expected) = (blocks.at_least(20).count(), index.at_least(20).count());
        assert!(found == expected && found > 0, "{found} {expected}");
    }

    fn block(site: u32, len_bytes: u64) -> HeapBlock {
        HeapBlock {
            site: SiteId::new(site).expect("not 0"),
            len_bytes,
            area: BlockArea::Mapping,
            draws: f64::INFINITY,
            total_bytes: len_bytes,
            was_moved: false,
        }
    }

    /// Byte by byte, as an array would have it.
    #[test]
    fn what_is_cut_out_ends_and_the_rest_stays() {
        let mut blocks = HeapBlocks::default();
        let mut owners = [0_u32; 256];
        let mut state = 1_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for step in 1..2000 {
            let start = draw(250);
            let range = start..start + 1 + draw(250 - start + 5).min(60);
            let places = || owners[range.start as usize..range.end as usize].iter();
            let expected = places().filter(|&&owner| owner != 0).count() as u64;
            let ended = blocks.cut(range.clone());
            assert_eq!(ended.iter().map(|(_, block)| block.len_bytes).sum::<u64>(), expected);
            assert!(ended.iter().all(|(start, block)| {
                range.contains(start) && owners[*start as usize] == block.site.get()
            }));
            let is_new = draw(2) == 0;
            if is_new {
                blocks.insert(range.start, block(step, range.end - range.start));
            }
            owners[range.start as usize..range.end as usize].fill(if is_new { step } else { 0 });
            for (address, &owner) in owners.iter().enumerate() {
                let found = blocks.at(address as u64).map_or(0, |(_, block)| block.site.get());
                assert_eq!(found, owner, "step {step}, {address}");
            }
        }
    }

    #[test]
    fn a_block_at_the_end_of_all_addresses_is_not_kept() {
        let mut blocks = HeapBlocks::default();
        let block = block(1, 4096);
        blocks.insert(u64::MAX - 100, block);
        assert_eq!(blocks.at(u64::MAX - 50), None);
    }
}

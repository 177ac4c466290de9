//! [`LiveBlocks`] against a plain list of blocks and its documented rules.

use memlens_objects::{Block, InsertError, Layer, LiveBlocks, ObjectId};
use proptest::prelude::*;

/// The slow twin: the rules of the type's documentation, word by word, on a list.
#[derive(Default)]
struct List(Vec<Block>);

fn overlaps(block: &Block, start: u64, end: u64) -> bool {
    // An empty range lies in no block, also when its place does.
    start < end && block.start < end && start < block.start + block.len_bytes
}

impl List {
    /// Ends the block at `index` and, with it, blocks of higher layers over it.
    fn end(&mut self, index: usize, ended: &mut Vec<Block>) {
        let block = self.0.remove(index);
        ended.push(block);
        if block.len_bytes != 0 {
            self.end_overlapping(block.start, block.start + block.len_bytes, block.layer.depth() + 1, ended);
        }
    }

    fn end_overlapping(&mut self, start: u64, end: u64, min_depth: u8, ended: &mut Vec<Block>) {
        while let Some(index) = self
            .0
            .iter()
            .position(|b| b.len_bytes != 0 && overlaps(b, start, end) && b.layer.depth() >= min_depth)
        {
            self.end(index, ended);
        }
    }

    fn starting_at(&self, start: u64, layer: Layer) -> Option<usize> {
        self.0.iter().position(|b| b.start == start && b.layer == layer)
    }

    fn insert(&mut self, block: Block) -> Vec<Block> {
        let mut ended = Vec::new();
        if let Some(index) = self.starting_at(block.start, block.layer) {
            self.end(index, &mut ended);
        }
        if block.len_bytes != 0 {
            let end = block.start + block.len_bytes;
            self.end_overlapping(block.start, end, block.layer.depth(), &mut ended);
        }
        self.0.push(block);
        ended
    }

    fn remove(&mut self, start: u64, layer: Layer) -> Vec<Block> {
        let mut ended = Vec::new();
        if let Some(index) = self.starting_at(start, layer) {
            self.end(index, &mut ended);
        }
        ended
    }

    /// Blocks that ended, without the moved one.
    fn moved(&mut self, old: u64, new: u64, len: u64, layer: Layer) -> Vec<Block> {
        let mut ended = Vec::new();
        let Some(index) = self.starting_at(old, layer) else { return ended };
        let block = self.0[index];
        if old == new && len != 0 && block.len_bytes != 0 {
            let (old_end, end) = (old + block.len_bytes, old + len);
            if end < old_end {
                self.end_overlapping(end, old_end, layer.depth() + 1, &mut ended);
            } else {
                self.end_overlapping(old_end, end, layer.depth(), &mut ended);
            }
            let index = self.starting_at(old, layer).unwrap();
            self.0[index].len_bytes = len;
        } else {
            self.end(index, &mut ended);
            ended.retain(|b| *b != block);
            ended.extend(self.insert(Block { start: new, len_bytes: len, ..block }));
        }
        ended
    }

    fn owner(&self, addr: u64) -> Option<Block> {
        self.0.iter().filter(|b| overlaps(b, addr, addr + 1)).max_by_key(|b| b.layer).copied()
    }
}

#[derive(Debug, Clone)]
enum Op {
    Insert {
        start: u64,
        len: u64,
        object: u32,
        layer: u8,
    },
    /// Of the n-th live block, or of an address.
    Remove {
        pick: usize,
    },
    RemoveAt {
        start: u64,
        layer: u8,
    },
    Move {
        pick: usize,
        to: Option<u64>,
        len: u64,
    },
}

/// All blocks lie near the boundary of two chunks, so that they meet each other and it.
const WINDOW: std::ops::Range<u64> = 0x4000_0000 - 300..0x4000_0000 + 300;

fn op() -> impl Strategy<Value = Op> {
    let start = prop_oneof![3 => (0u64..37).prop_map(|g| (WINDOW.start & !15) + 16 * g), 1 => WINDOW];
    let len = prop_oneof![6 => 0u64..100, 2 => 0u64..500, 1 => 60_000u64..300_000, 1 => 1u64 << 31..6 << 30];
    prop_oneof![
        6 => (start.clone(), len.clone(), 1u32..5, 0u8..4)
            .prop_map(|(start, len, object, layer)| Op::Insert { start, len, object, layer }),
        3 => any::<usize>().prop_map(|pick| Op::Remove { pick }),
        1 => (start.clone(), 0u8..4).prop_map(|(start, layer)| Op::RemoveAt { start, layer }),
        2 => (any::<usize>(), prop::option::of(start), len)
            .prop_map(|(pick, to, len)| Op::Move { pick, to, len }),
    ]
}

fn sorted(mut blocks: Vec<Block>) -> Vec<Block> {
    blocks.sort_by_key(|b| (b.start, b.layer, b.serial));
    blocks
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn agrees_with_a_list(ops in prop::collection::vec(op(), 1..80)) {
        let mut index = LiveBlocks::with_lending(64, 5);
        let mut twin = List::default();
        let mut cached: Vec<(u64, Block)> = Vec::new();
        for (serial, op) in ops.into_iter().enumerate() {
            let mut ended = Vec::new();
            let expected = match op {
                Op::Insert { start, len, object, layer } => {
                    let block = Block {
                        start,
                        len_bytes: len,
                        object: ObjectId::new(object).unwrap(),
                        layer: Layer::new(layer).unwrap(),
                        serial: serial as u64,
                    };
                    index.insert(block, &mut |b| ended.push(b)).unwrap();
                    twin.insert(block)
                }
                Op::Remove { pick } if !twin.0.is_empty() => {
                    let block = twin.0[pick % twin.0.len()];
                    ended.extend(index.remove(block.start, block.layer, &mut |_| {}));
                    prop_assert_eq!(&ended, &vec![block]);
                    twin.remove(block.start, block.layer);
                    ended.clear();
                    Vec::new()
                }
                Op::RemoveAt { start, layer } => {
                    let layer = Layer::new(layer).unwrap();
                    let removed = index.remove(start, layer, &mut |b| ended.push(b));
                    ended.extend(removed);
                    twin.remove(start, layer)
                }
                Op::Move { pick, to, len } if !twin.0.is_empty() => {
                    let block = twin.0[pick % twin.0.len()];
                    let to = to.unwrap_or(block.start);
                    let old = index.moved(block.start, to, len, block.layer, &mut |b| ended.push(b)).unwrap();
                    prop_assert_eq!(old, Some(block));
                    twin.moved(block.start, to, len, block.layer)
                }
                Op::Remove { .. } | Op::Move { .. } => Vec::new(),
            };
            prop_assert_eq!(sorted(ended), sorted(expected));
            prop_assert_eq!(index.len(), twin.0.len());
            let far = twin.0.iter().flat_map(|b| {
                let end = b.start + b.len_bytes;
                [end - 1, end, b.start + b.len_bytes / 2]
            });
            for addr in WINDOW.step_by(1).chain(far) {
                let owner = twin.owner(addr);
                prop_assert_eq!(index.block_at(addr), owner, "at {:#x}", addr);
                prop_assert_eq!(index.object_at(addr), owner.map(|b| b.object));
            }
            for block in &twin.0 {
                prop_assert_eq!(index.block_starting_at(block.start, block.layer), Some(*block));
            }
            // Ranges that a caller kept are right for as long as the generation stands.
            let now = index.range_generation();
            cached.retain(|(generation, _)| *generation == now);
            cached.extend(WINDOW.step_by(16).filter_map(|a| Some((now, index.lend_range(a, serial as u64)?))));
            cached.dedup();
            for (_, block) in &cached {
                for addr in block.range().step_by(1 + block.len_bytes as usize / 40) {
                    prop_assert_eq!(twin.owner(addr), Some(*block));
                }
            }
        }
    }
}

fn block(start: u64, len_bytes: u64, object: u32, layer: Layer) -> Block {
    Block { start, len_bytes, object: ObjectId::new(object).unwrap(), layer, serial: 0 }
}

fn none(_: Block) {}

#[test]
fn a_sub_block_wins_while_it_lives() {
    let mut index = LiveBlocks::new();
    index.insert(block(0x1000, 4096, 1, Layer::HEAP), &mut none).unwrap();
    // Carved from the pool's very start: both blocks start at 0x1000.
    index.insert(block(0x1000, 32, 2, Layer::POOL), &mut none).unwrap();
    let owners = |index: &LiveBlocks| [0x1000, 0x101f, 0x1020].map(|a| index.object_at(a).map(ObjectId::get));
    assert_eq!(owners(&index), [Some(2), Some(2), Some(1)]);
    index.remove(0x1000, Layer::POOL, &mut none).unwrap();
    assert_eq!(owners(&index), [Some(1), Some(1), Some(1)]);
    assert_eq!((index.stats().nested, index.stats().missed_frees), (1, 0));
}

#[test]
fn large_blocks_are_listed_as_long_as_they_live() {
    let mut index = LiveBlocks::new();
    for (at, len_bytes) in [(1_u64, 100), (2, 4096), (3, 8192), (4, 4095), (5, 0), (6, 5 << 32)] {
        index.insert(block(at << 36, len_bytes, at as u32, Layer::HEAP), &mut none).unwrap();
    }
    // A pool's block at the very start of an outer one.
    index.insert(block(3 << 36, 4096, 7, Layer::POOL), &mut none).unwrap();
    let large = |index: &LiveBlocks| {
        let mut found: Vec<_> =
            index.at_least(4096).map(|block| (block.object.get(), block.len_bytes)).collect();
        found.sort_unstable();
        found
    };
    assert_eq!(large(&index), [(2, 4096), (3, 8192), (6, 5 << 32), (7, 4096)]);
    index.remove(2 << 36, Layer::HEAP, &mut none).unwrap();
    index.remove(3 << 36, Layer::HEAP, &mut none).unwrap();
    assert_eq!(large(&index), [(6, 5 << 32)], "a pool's blocks end with it");
    assert_eq!(index.at_least(0).count(), 3, "those of no bytes are not listed");
}

#[test]
fn freeing_a_pool_ends_its_sub_blocks() {
    let mut index = LiveBlocks::new();
    index.insert(block(0x1000, 4096, 1, Layer::HEAP), &mut none).unwrap();
    for at in 0..10 {
        index.insert(block(0x1000 + at * 64, 64, 2, Layer::POOL), &mut none).unwrap();
    }
    let mut ended = 0;
    assert!(index.remove(0x1000, Layer::HEAP, &mut |_| ended += 1).is_some());
    assert_eq!((ended, index.stats().dropped_with_outer, index.len()), (10, 10, 0));
}

#[test]
fn a_missed_free_ends_the_older_block() {
    let mut index = LiveBlocks::new();
    let first = block(0x1000, 64, 1, Layer::HEAP);
    index.insert(first, &mut none).unwrap();
    let mut ended = Vec::new();
    index.insert(block(0x1020, 64, 2, Layer::HEAP), &mut |b| ended.push(b)).unwrap();
    assert_eq!(ended, [first]);
    assert_eq!(index.object_at(0x1000), None);
    assert_eq!(index.stats().missed_frees, 1);
}

#[test]
fn frees_that_fit_nothing_are_counted_and_change_nothing() {
    let mut index = LiveBlocks::new();
    index.insert(block(0x1000, 64, 1, Layer::HEAP), &mut none).unwrap();
    assert_eq!(index.remove(0x1010, Layer::HEAP, &mut none), None);
    assert_eq!(index.remove(0x2000, Layer::HEAP, &mut none), None);
    assert_eq!(index.remove(0x1000, Layer::POOL, &mut none), None);
    assert_eq!((index.stats().interior_frees, index.stats().unknown_frees), (1, 2));
    assert_eq!(index.moved(0x3000, 0x4000, 8, Layer::HEAP, &mut none), Ok(None));
    assert_eq!(index.len(), 1);
}

#[test]
fn blocks_of_zero_bytes_own_nothing_and_can_be_freed() {
    let mut index = LiveBlocks::new();
    index.insert(block(0x1000, 0, 1, Layer::HEAP), &mut none).unwrap();
    assert_eq!((index.object_at(0x1000), index.len()), (None, 1));
    assert!(index.remove(0x1000, Layer::HEAP, &mut none).is_some());
    assert!(index.is_empty());
    // realloc(p, 24) of such a block.
    index.insert(block(0x1000, 0, 1, Layer::HEAP), &mut none).unwrap();
    assert!(index.moved(0x1000, 0x1000, 24, Layer::HEAP, &mut none).unwrap().is_some());
    assert_eq!(index.object_at(0x1017).map(ObjectId::get), Some(1));
}

#[test]
fn a_block_past_the_address_space_is_refused() {
    let mut index = LiveBlocks::new();
    let wrapping = block(u64::MAX - 7, 16, 1, Layer::HEAP);
    let error = InsertError::Wraparound { start: u64::MAX - 7, len_bytes: 16 };
    assert_eq!(index.insert(wrapping, &mut none), Err(error));
    // The last block that fits: its end is the largest u64.
    index.insert(block(u64::MAX - 8, 8, 1, Layer::HEAP), &mut none).unwrap();
    assert_eq!(index.moved(u64::MAX - 8, u64::MAX - 8, 9, Layer::HEAP, &mut none).unwrap_err(), {
        InsertError::Wraparound { start: u64::MAX - 8, len_bytes: 9 }
    });
    assert_eq!((index.len(), index.stats().rejected_wraparound), (1, 2));
}

#[test]
fn realloc_in_place_to_the_same_size_changes_nothing() {
    let mut index = LiveBlocks::new();
    index.insert(block(0x1010, 48, 1, Layer::HEAP), &mut none).unwrap();
    // A block of a higher layer over the first one's end (0x1040): it would end if that end moved.
    index.insert(block(0x1030, 32, 2, Layer::POOL), &mut none).unwrap();
    let mut ended = 0;
    index.moved(0x1010, 0x1010, 48, Layer::HEAP, &mut |_| ended += 1).unwrap().unwrap();
    assert_eq!((ended, index.len()), (0, 2));
    // One byte less gives up 0x103f, which the other block covers: it ends.
    index.moved(0x1010, 0x1010, 47, Layer::HEAP, &mut |_| ended += 1).unwrap().unwrap();
    assert_eq!((ended, index.len()), (1, 1));
}

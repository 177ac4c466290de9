//! The live heap blocks.

use std::collections::BTreeMap;
use std::ops::Range;

use thiserror::Error;

use crate::slot_slab::SlotSlab;
use crate::{IndexStats, MAX_ID, ObjectId, ObjectPages};

/// How deep an allocator stands on others, 0 to 7. Blocks of a higher layer are carved from blocks
/// of lower ones and win over them while they live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Layer(u8);

impl Layer {
    /// Memory mapped from the kernel that serves as one object.
    pub const MAPPING: Self = Self(0);
    /// `malloc` and its kin, `operator new`.
    pub const HEAP: Self = Self(1);
    /// Pools carved from heap blocks or mappings.
    pub const POOL: Self = Self(2);
    /// The highest layer.
    pub const MAX: Self = Self(7);

    /// The layer of this depth, `None` above [`Layer::MAX`].
    pub fn new(depth: u8) -> Option<Self> {
        (depth <= Self::MAX.0).then_some(Self(depth))
    }

    /// Its depth.
    pub fn depth(self) -> u8 {
        self.0
    }
}

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// First byte.
    pub start: u64,
    /// Size in bytes as requested.
    pub len_bytes: u64,
    /// What it is counted as.
    pub object: ObjectId,
    /// Which allocator made it.
    pub layer: Layer,
    /// When it was allocated, in the caller's count (event or instruction number), modulo 2^56. A
    /// realloc keeps it. With `start` it identifies the block.
    pub serial: u64,
}

impl Block {
    /// The bytes it covers.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + self.len_bytes
    }
}

/// Why a block was not taken into the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InsertError {
    /// Its end lies past the address space.
    #[error("block at {start:#x} of {len_bytes} bytes wraps around the address space")]
    Wraparound {
        /// First byte.
        start: u64,
        /// Size.
        len_bytes: u64,
    },
    /// It is larger than a four-level address space.
    #[error("block at {start:#x} of {len_bytes} bytes is larger than {} bytes", LiveBlocks::MAX_LEN_BYTES)]
    TooLong {
        /// First byte.
        start: u64,
        /// Size.
        len_bytes: u64,
    },
    /// There are 2^27 live blocks already.
    #[error("no more than {MAX_ID} blocks can be live at one time")]
    Capacity,
}

/// All live blocks: which block, or object, owns an address now.
///
/// # Model
///
/// Every block belongs to a [`Layer`]; within one layer blocks never overlap, because no allocator
/// hands out memory twice. Hence:
///
/// - a block put over live blocks of its own **or a higher** layer proves that their frees were
///   missed: they end;
/// - a block put over blocks of **lower** layers is carved from them: it owns its bytes while it
///   lives, and they are the outer blocks' again when it ends;
/// - when a block ends, so do the blocks of higher layers over it (a pool dropped whole);
/// - blocks of zero bytes own no address, but a free finds them.
///
/// ```text
///  layer 2:        ┌──a──┐ ┌─b─┐
///  layer 1:   ┌─────────pool────────┐   ┌─c─┐
///  owner:     ·pool·aaaaaaapbbbbbp··pool····ccccc
/// ```
///
/// Whatever ends a block other than its own free is reported through the `ended` callback, and
/// everything irregular is counted in [`IndexStats`].
///
/// # Cost
///
/// Insert and remove write one word per 16 bytes of the block, one per 64 KB in the middle of large
/// ones; no hashing. Memory: 24 bytes a block plus [`ObjectPages`].
#[derive(Clone, Debug)]
pub struct LiveBlocks {
    /// Address → slot in `records`.
    pages: ObjectPages,
    slots: SlotSlab,
    records: Vec<Record>,
    /// Lengths that do not fit a record, by slot.
    long: BTreeMap<u32, u64>,
    /// Per layer: blocks some bytes of which a higher layer owns or owned, by start.
    outer: [BTreeMap<u64, u32>; Layer::MAX.0 as usize + 1],
    /// Blocks of zero bytes.
    empty: BTreeMap<(u64, Layer), Block>,
    live: usize,
    stats: IndexStats,
    lending: Lending,
    range_generation: u64,
}

/// Which blocks' ranges are given out.
///
/// When such a block ends, all ranges given out become invalid. A small block is therefore given out only when
/// it has lived for long, which promises that it will go on; how long grows with every promise broken.
#[derive(Clone, Copy, Debug)]
struct Lending {
    /// Blocks of this size are always given out.
    min_bytes: u64,
    /// Others at this age, in the caller's count, times one more than there were broken promises.
    min_age: u64,
    /// Small blocks that ended after they had been given out.
    broken: u64,
}

impl Lending {
    fn allows(&self, block: &Block, now: u64) -> bool {
        let age = now.saturating_sub(block.serial);
        block.len_bytes >= self.min_bytes || age >= self.min_age.saturating_mul(self.broken + 1)
    }
}

/// A block in 24 bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Record {
    start: u64,
    /// [`Record::LONG`]: look in `LiveBlocks::long`.
    len: u32,
    object: u32,
    /// Serial in the upper 56 bits, then layer (from bit 2) and the flags.
    meta: u64,
}

impl Record {
    const LONG: u32 = u32::MAX;
    /// In `outer`: a higher layer lies or lay over it.
    const OUTER: u64 = 1;
    /// It lies over blocks of lower layers.
    const INNER: u64 = 2;
    /// Its range was given out in this range generation.
    const LENT: u64 = 1 << 5;

    #[inline(always)]
    fn layer(&self) -> Layer {
        Layer((self.meta >> 2) as u8 & 7)
    }
}

impl Default for LiveBlocks {
    fn default() -> Self {
        Self::new()
    }
}

impl LiveBlocks {
    /// The largest block that is taken: 128 TB, the user half of a four-level address space.
    pub const MAX_LEN_BYTES: u64 = 1 << 47;

    /// An index without blocks, in which [`lend_range`](Self::lend_range) answers for blocks of at least 4096
    /// bytes, and for others when they are 100,000 old.
    pub fn new() -> Self {
        Self::with_lending(4096, 100_000)
    }

    /// An index without blocks. Ranges of blocks of at least `min_bytes` can be kept by the caller, and of
    /// others from the age of `min_age` on (by their serials): the smaller and younger, the more ranges, and the
    /// more often they all become invalid.
    pub fn with_lending(min_bytes: u64, min_age: u64) -> Self {
        Self {
            pages: ObjectPages::new(),
            slots: SlotSlab::default(),
            records: Vec::new(),
            long: BTreeMap::new(),
            outer: Default::default(),
            empty: BTreeMap::new(),
            live: 0,
            stats: IndexStats::default(),
            lending: Lending { min_bytes, min_age, broken: 0 },
            range_generation: 0,
        }
    }

    /// The object that owns `addr`.
    #[inline(always)]
    pub fn object_at(&self, addr: u64) -> Option<ObjectId> {
        let slot = self.pages.get(addr);
        if slot == 0 {
            return None;
        }
        match self.slots.object_of(slot) {
            Some(object) => Some(object),
            None => ObjectId::new(self.records[slot as usize].object),
        }
    }

    /// The innermost live block that covers `addr`.
    #[inline]
    pub fn block_at(&self, addr: u64) -> Option<Block> {
        match self.pages.get(addr) {
            0 => None,
            slot => self.block(slot),
        }
    }

    /// The block of `layer` that starts at `start`, those of zero bytes included.
    pub fn block_starting_at(&self, start: u64, layer: Layer) -> Option<Block> {
        match self.slot_at(start, layer) {
            Found::At(slot) => self.block(slot),
            Found::Interior | Found::Nothing => self.empty.get(&(start, layer)).copied(),
        }
    }

    /// The block that covers `addr` if it is large or has lived for long at `now`, a serial (see
    /// [`with_lending`](Self::with_lending)), and owns all of its bytes. The caller may answer for this range by
    /// itself until [`range_generation`](Self::range_generation) changes.
    pub fn lend_range(&mut self, addr: u64, now: u64) -> Option<Block> {
        let slot = self.pages.get(addr);
        if slot == 0 {
            return None;
        }
        let block = self.block(slot)?;
        let record = self.records.get_mut(slot as usize)?;
        if record.meta & Record::OUTER != 0 || !self.lending.allows(&block, now) {
            return None;
        }
        record.meta |= Record::LENT;
        Some(block)
    }

    /// Changes when a block whose range was given out ends, moves, changes its size or gets a block inside.
    #[inline(always)]
    pub fn range_generation(&self) -> u64 {
        self.range_generation
    }

    /// Adds a block. `ended` gets the blocks that cannot be live any more.
    ///
    /// # Errors
    ///
    /// [`InsertError`] when the block cannot be represented; the index is as before then, but for
    /// [`Capacity`](InsertError::Capacity), where blocks it would have displaced have ended.
    #[inline]
    pub fn insert(&mut self, block: Block, ended: &mut dyn FnMut(Block)) -> Result<(), InsertError> {
        self.stats.inserts += 1;
        self.place(block, ended)
    }

    #[inline]
    fn place(&mut self, block: Block, ended: &mut dyn FnMut(Block)) -> Result<(), InsertError> {
        let Block { start, len_bytes, object, layer, serial } = block;
        let Some(end) = start.checked_add(len_bytes) else {
            self.stats.rejected_wraparound += 1;
            return Err(InsertError::Wraparound { start, len_bytes });
        };
        if len_bytes > Self::MAX_LEN_BYTES {
            self.stats.rejected_too_long += 1;
            return Err(InsertError::TooLong { start, len_bytes });
        }
        if !self.empty.is_empty() || len_bytes == 0 {
            self.end_same_start(start, layer, ended);
        }
        if len_bytes == 0 {
            self.stats.zero_size += 1;
            self.empty.insert((start, layer), block);
            return Ok(());
        }
        let inner = !self.pages.is_clear(start, end) && self.make_room(start..end, layer, ended);
        let Some(slot) = self.slots.take(object, MAX_ID) else {
            self.stats.rejected_capacity += 1;
            return Err(InsertError::Capacity);
        };
        if slot as usize >= self.records.len() {
            self.records.resize(self.slots.capacity(), Record::default());
        }
        let mut meta = (serial << 8) | (u64::from(layer.0) << 2);
        if inner {
            meta |= Record::INNER;
            self.stats.nested += 1;
        }
        self.records[slot as usize] = Record { start, len: 0, object: object.get(), meta };
        self.set_len(slot, len_bytes);
        self.live += 1;
        self.pages.fill(start, end, slot);
        Ok(())
    }

    /// Ends the block of `layer` that starts at `start` (a free) and returns it; `ended` gets the
    /// blocks of higher layers that lay over it. `None`, counted, when no such block is live.
    #[inline]
    pub fn remove(&mut self, start: u64, layer: Layer, ended: &mut dyn FnMut(Block)) -> Option<Block> {
        let block = match self.slot_at(start, layer) {
            Found::At(slot) => self.end(slot, ended),
            Found::Interior => self.count_unknown(start, layer, true),
            Found::Nothing => self.count_unknown(start, layer, false),
        }?;
        self.stats.removes += 1;
        Some(block)
    }

    /// A block keeps its identity and gets a new place and size (realloc, `mremap`). Returns the
    /// block as it was; `None`, counted, when no block of `layer` starts at `old_start`: then
    /// nothing is changed, and the caller inserts a new one. In place, sub-blocks in the part that
    /// stays live on; otherwise they end.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert). The old block has ended after
    /// [`Capacity`](InsertError::Capacity) and is live still after the others.
    pub fn moved(
        &mut self,
        old_start: u64,
        new_start: u64,
        new_len_bytes: u64,
        layer: Layer,
        ended: &mut dyn FnMut(Block),
    ) -> Result<Option<Block>, InsertError> {
        if new_start.checked_add(new_len_bytes).is_none() {
            self.stats.rejected_wraparound += 1;
            return Err(InsertError::Wraparound { start: new_start, len_bytes: new_len_bytes });
        }
        if new_len_bytes > Self::MAX_LEN_BYTES {
            self.stats.rejected_too_long += 1;
            return Err(InsertError::TooLong { start: new_start, len_bytes: new_len_bytes });
        }
        let found = self.slot_at(old_start, layer);
        if let Found::At(slot) = found
            && new_start == old_start
            && new_len_bytes != 0
        {
            self.stats.moves += 1;
            return Ok(self.resize(slot, new_len_bytes, ended));
        }
        let old = match found {
            Found::At(slot) => self.end(slot, ended),
            Found::Interior => self.count_unknown(old_start, layer, true),
            Found::Nothing => self.count_unknown(old_start, layer, false),
        };
        let Some(old) = old else { return Ok(None) };
        self.stats.moves += 1;
        self.place(Block { start: new_start, len_bytes: new_len_bytes, ..old }, ended)?;
        Ok(Some(old))
    }

    /// Live blocks, those of zero bytes included.
    pub fn len(&self) -> usize {
        self.live + self.empty.len()
    }

    /// Whether no block is live.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The live blocks of at least `least_bytes` bytes (more than 0), in no order. Linear in all blocks.
    pub fn at_least(&self, least_bytes: u64) -> impl Iterator<Item = Block> + '_ {
        let slots = 1..self.records.len() as u32;
        slots.filter_map(move |slot| {
            let record = &self.records[slot as usize];
            let is_large = self.len_of(slot, record) >= least_bytes.max(1);
            // A slot that is free keeps what it had.
            let is_live =
                is_large && matches!(self.slot_at(record.start, record.layer()), Found::At(at) if at == slot);
            is_live.then(|| self.block(slot)).flatten()
        })
    }

    /// What was irregular so far.
    pub fn stats(&self) -> &IndexStats {
        &self.stats
    }

    /// Bytes the index has taken from the allocator (capacity, not resident memory).
    pub fn memory_bytes(&self) -> usize {
        self.pages.memory_bytes() + self.slots.memory_bytes() + self.records.capacity() * size_of::<Record>()
    }

    #[inline]
    fn block(&self, slot: u32) -> Option<Block> {
        let record = self.records.get(slot as usize)?;
        Some(Block {
            start: record.start,
            len_bytes: self.len_of(slot, record),
            object: ObjectId::new(record.object)?,
            layer: record.layer(),
            serial: record.meta >> 8,
        })
    }

    #[inline]
    fn len_of(&self, slot: u32, record: &Record) -> u64 {
        if record.len == Record::LONG {
            self.long.get(&slot).copied().unwrap_or(u64::from(Record::LONG))
        } else {
            u64::from(record.len)
        }
    }

    fn set_len(&mut self, slot: u32, len_bytes: u64) {
        let record = &mut self.records[slot as usize];
        let was_long = record.len == Record::LONG;
        record.len = u32::try_from(len_bytes).unwrap_or(Record::LONG);
        if record.len == Record::LONG {
            self.long.insert(slot, len_bytes);
        } else if was_long {
            self.long.remove(&slot);
        }
    }

    #[inline]
    fn slot_at(&self, start: u64, layer: Layer) -> Found {
        let slot = self.pages.get(start);
        if slot == 0 {
            return Found::Nothing;
        }
        let record = &self.records[slot as usize];
        if record.layer() > layer {
            return self.outer_slot_at(start, layer);
        }
        if record.layer() < layer {
            Found::Nothing
        } else if record.start == start {
            Found::At(slot)
        } else {
            Found::Interior
        }
    }

    /// `start` lies under a block of a higher layer, so its block of `layer` is in `outer`.
    #[cold]
    fn outer_slot_at(&self, start: u64, layer: Layer) -> Found {
        match self.outer[usize::from(layer.0)].range(..=start).next_back() {
            Some((&at, &slot)) if at == start => Found::At(slot),
            Some((&at, &slot)) if start - at < self.len_of(slot, &self.records[slot as usize]) => {
                Found::Interior
            }
            _ => Found::Nothing,
        }
    }

    /// A free that found no block that owns bytes: perhaps one of zero bytes.
    #[cold]
    fn count_unknown(&mut self, start: u64, layer: Layer, interior: bool) -> Option<Block> {
        let empty = self.empty.remove(&(start, layer));
        if empty.is_none() {
            if interior {
                self.stats.interior_frees += 1;
            } else {
                self.stats.unknown_frees += 1;
            }
        }
        empty
    }

    /// One layer has at most one block of a start, also when one of the two is of zero bytes.
    #[cold]
    fn end_same_start(&mut self, start: u64, layer: Layer, ended: &mut dyn FnMut(Block)) {
        let empty = self.empty.remove(&(start, layer));
        let other = match self.slot_at(start, layer) {
            Found::At(slot) => self.end(slot, ended),
            Found::Interior | Found::Nothing => None,
        };
        for block in [empty, other].into_iter().flatten() {
            self.stats.missed_frees += 1;
            ended(block);
        }
    }

    /// Ends blocks of `layer` and above in `range` and marks those below as outer. Says whether
    /// there were any below.
    #[cold]
    fn make_room(&mut self, range: Range<u64>, layer: Layer, ended: &mut dyn FnMut(Block)) -> bool {
        self.end_from_layer(range.clone(), layer, ended, |stats| stats.missed_frees += 1);
        let mut outers = Vec::new();
        self.pages.owned_runs(range.start, range.end, |_, _, slot| {
            outers.push(slot);
            true
        });
        for &slot in &outers {
            let record = &mut self.records[slot as usize];
            if record.meta & Record::OUTER == 0 {
                record.meta |= Record::OUTER;
                let (start, layer) = (record.start, record.layer());
                self.outer[usize::from(layer.0)].insert(start, slot);
                self.note_range_change(slot);
            }
        }
        !outers.is_empty()
    }

    /// Ends every block of `layer` and above that owns bytes of `range`.
    fn end_from_layer(
        &mut self,
        range: Range<u64>,
        layer: Layer,
        ended: &mut dyn FnMut(Block),
        count: impl Fn(&mut IndexStats),
    ) {
        let mut at = range.start;
        loop {
            let mut found = None;
            self.pages.owned_runs(at, range.end, |from, _, slot| {
                let hit = self.records[slot as usize].layer() >= layer;
                if hit {
                    found = Some((from, slot));
                }
                !hit
            });
            let Some((from, slot)) = found else { return };
            // What lay under the ended block may be of this layer too: look from here again.
            at = from;
            if let Some(block) = self.end(slot, ended) {
                count(&mut self.stats);
                ended(block);
            }
        }
    }

    /// Takes a block out of every structure and uncovers what lay under it.
    #[inline]
    fn end(&mut self, slot: u32, ended: &mut dyn FnMut(Block)) -> Option<Block> {
        let block = self.block(slot)?;
        self.note_range_change(slot);
        self.uncover(slot, block.range(), ended);
        let record = &mut self.records[slot as usize];
        if record.meta & Record::OUTER != 0 {
            self.outer[usize::from(block.layer.0)].remove(&block.start);
        }
        if record.len == Record::LONG {
            self.long.remove(&slot);
        }
        *record = Record::default();
        self.slots.give_back(slot);
        self.live -= 1;
        Some(block)
    }

    /// `range`, which is the block's, goes to whatever lies under the block.
    #[inline]
    fn uncover(&mut self, slot: u32, range: Range<u64>, ended: &mut dyn FnMut(Block)) {
        let meta = self.records[slot as usize].meta;
        let layer = self.records[slot as usize].layer();
        if meta & Record::OUTER != 0
            && let Some(above) = Layer::new(layer.0 + 1)
        {
            self.end_from_layer(range.clone(), above, ended, |stats| stats.dropped_with_outer += 1);
        }
        self.pages.fill(range.start, range.end, 0);
        if meta & Record::INNER != 0 {
            self.fill_from_below(range, layer);
        }
    }

    #[cold]
    fn fill_from_below(&mut self, range: Range<u64>, layer: Layer) {
        for outer in &self.outer[..usize::from(layer.0)] {
            let first = outer.range(..range.start).next_back();
            for (&start, &slot) in first.into_iter().chain(outer.range(range.clone())) {
                let record = &self.records[slot as usize];
                let end = start
                    + if record.len == Record::LONG {
                        self.long.get(&slot).copied().unwrap_or(0)
                    } else {
                        u64::from(record.len)
                    };
                self.pages.fill(start.max(range.start), end.min(range.end), slot);
            }
        }
    }

    /// In place, to a size that is not 0. Returns the block as it was.
    fn resize(&mut self, slot: u32, len_bytes: u64, ended: &mut dyn FnMut(Block)) -> Option<Block> {
        let old = self.block(slot)?;
        self.note_range_change(slot);
        let (old_end, end) = (old.start + old.len_bytes, old.start + len_bytes);
        if end < old_end {
            self.uncover(slot, end..old_end, ended);
        } else if end > old_end {
            let grown = old_end..end;
            if !self.pages.is_clear(old_end, end) && self.make_room(grown, old.layer, ended) {
                self.records[slot as usize].meta |= Record::INNER;
            }
            self.pages.fill(old_end, end, slot);
        }
        self.set_len(slot, len_bytes);
        Some(old)
    }

    #[inline]
    fn note_range_change(&mut self, slot: u32) {
        if self.records[slot as usize].meta & Record::LENT != 0 {
            self.end_loans(slot);
        }
    }

    /// All ranges given out become invalid, because of this block.
    fn end_loans(&mut self, slot: u32) {
        self.range_generation += 1;
        let record = &mut self.records[slot as usize];
        record.meta &= !Record::LENT;
        if u64::from(record.len) < self.lending.min_bytes.min(u64::from(Record::LONG)) {
            self.lending.broken += 1;
        }
    }
}

/// What starts at an address.
#[derive(Clone, Copy)]
enum Found {
    /// The block of this slot.
    At(u32),
    /// Nothing, but a block of the layer covers it.
    Interior,
    /// Nothing, and no block of the layer covers it.
    Nothing,
}

//! Heap events in, objects out.

use crate::heap_peak::HeapPeak;
use crate::{Block, InsertError, Layer, LiveBlocks, Merge, ObjectId, ObjectTable, SiteId, Sites};

/// Sites, objects and live blocks kept in step: what the pipeline feeds heap events to.
///
/// Events come in the order in which they happened. [`objects`](Self::objects) also takes the
/// objects of other kinds, so that all ids are from one space.
#[derive(Clone, Debug)]
pub struct HeapObjects {
    sites: Sites,
    objects: ObjectTable,
    blocks: LiveBlocks,
    peak: HeapPeak,
}

impl HeapObjects {
    /// Nothing allocated yet.
    pub fn new(merge: Merge) -> Self {
        let (objects, blocks) = (ObjectTable::new(merge), LiveBlocks::new());
        Self { sites: Sites::new(), objects, blocks, peak: HeapPeak::default() }
    }

    /// A block was allocated by this call stack. Returns the object it belongs to.
    ///
    /// # Errors
    ///
    /// As for [`LiveBlocks::insert`]; the object exists then, but the block is not counted.
    #[inline]
    pub fn allocated(
        &mut self,
        start: u64,
        len_bytes: u64,
        layer: Layer,
        stack: &[u64],
        serial: u64,
    ) -> Result<ObjectId, InsertError> {
        let site = self.sites.intern(stack);
        self.allocated_at_site(start, len_bytes, layer, site, serial)
    }

    /// The same for a stack that was interned before.
    ///
    /// # Errors
    ///
    /// As for [`allocated`](Self::allocated).
    #[inline]
    pub fn allocated_at_site(
        &mut self,
        start: u64,
        len_bytes: u64,
        layer: Layer,
        site: SiteId,
        serial: u64,
    ) -> Result<ObjectId, InsertError> {
        let Self { objects, blocks, peak, .. } = self;
        let object = objects.heap_object(site);
        blocks.insert(Block { start, len_bytes, object, layer, serial }, &mut |b| end(objects, peak, &b))?;
        if is_counted(layer) {
            peak.grew(len_bytes);
        }
        if let Some(stats) = objects.stats_mut(object) {
            stats.allocated(len_bytes, serial);
            stats.is_nested |= !is_counted(layer);
        }
        Ok(object)
    }

    /// A block was freed. Address 0 is legal and does nothing. `None` when it was not known.
    #[inline]
    pub fn freed(&mut self, start: u64, layer: Layer) -> Option<Block> {
        if start == 0 {
            return None;
        }
        let Self { objects, blocks, peak, .. } = self;
        let block = blocks.remove(start, layer, &mut |b| end(objects, peak, &b))?;
        end(objects, peak, &block);
        Some(block)
    }

    /// A block was reallocated, in place or not: it stays the same block of the same object, unless
    /// the old one is not known (or 0); then a new block of this call stack begins.
    ///
    /// # Errors
    ///
    /// As for [`LiveBlocks::moved`].
    pub fn reallocated(
        &mut self,
        old_start: u64,
        new_start: u64,
        new_len_bytes: u64,
        layer: Layer,
        stack: &[u64],
        serial: u64,
    ) -> Result<ObjectId, InsertError> {
        if old_start == 0 {
            return self.allocated(new_start, new_len_bytes, layer, stack, serial);
        }
        let Self { objects, blocks, peak, .. } = self;
        let old = blocks.block_starting_at(old_start, layer);
        match blocks.moved(old_start, new_start, new_len_bytes, layer, &mut |b| end(objects, peak, &b)) {
            Ok(Some(old)) => {
                match new_len_bytes.checked_sub(old.len_bytes) {
                    _ if !is_counted(layer) => {}
                    Some(more) => peak.grew(more),
                    None => peak.will_shrink(old.len_bytes - new_len_bytes, objects),
                }
                if let Some(stats) = objects.stats_mut(old.object) {
                    stats.resized(old.len_bytes, new_len_bytes);
                }
                Ok(old.object)
            }
            Ok(None) => self.allocated(new_start, new_len_bytes, layer, stack, serial),
            Err(error) => {
                if let (InsertError::Capacity, Some(old)) = (error, old) {
                    end(objects, peak, &old);
                }
                Err(error)
            }
        }
    }

    /// The live blocks.
    #[inline(always)]
    pub fn blocks(&self) -> &LiveBlocks {
        &self.blocks
    }

    /// As [`LiveBlocks::lend_range`].
    pub fn lend_range(&mut self, addr: u64, now: u64) -> Option<Block> {
        self.blocks.lend_range(addr, now)
    }

    /// The most bytes of blocks that were live at one time, and what the sites' objects had of them, to the hundredth of it; with
    /// [`Merge::Off`] nothing is known of these.
    pub fn peak(&self) -> (u64, Vec<(ObjectId, u64)>) {
        self.peak.most(&self.objects)
    }

    /// Forgets what was allocated so far, but not what is live: what a forked process starts from.
    pub fn forget_history(&mut self) {
        self.objects.forget_history();
        self.peak.forget();
    }

    /// All objects.
    pub fn objects(&self) -> &ObjectTable {
        &self.objects
    }

    /// All objects, to add those of other kinds.
    pub fn objects_mut(&mut self) -> &mut ObjectTable {
        &mut self.objects
    }

    /// All allocation sites.
    pub fn sites(&self) -> &Sites {
        &self.sites
    }

    /// All allocation sites, to intern stacks ahead of their events.
    pub fn sites_mut(&mut self) -> &mut Sites {
        &mut self.sites
    }
}

/// Whether blocks of a layer are of the heap's size. What lies in them is not, once more.
fn is_counted(layer: Layer) -> bool {
    layer <= Layer::HEAP
}

fn end(objects: &mut ObjectTable, peak: &mut HeapPeak, block: &Block) {
    if is_counted(block.layer) {
        peak.will_shrink(block.len_bytes, objects);
    }
    if let Some(stats) = objects.stats_mut(block.object) {
        stats.freed(block.len_bytes);
    }
}

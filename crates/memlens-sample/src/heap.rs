//! Which watched heap block is live at an address, and which allocation made it.
//!
//! The agent reports the begin and end of the blocks that it watches; other heap memory is not known here. A block
//! of s bytes that was drawn from gaps of mean R is watched with probability p = 1 - exp(-s / R); see the agent's
//! `draw.rs`. Sums over watched blocks therefore count each 1 / p times.
//!
//! Anonymous memory that the program maps by itself is known in the same way: a block of the site that mapped it. Blocks of the heap
//! may lie in it, or an allocation function have mapped it that the agent does not watch: then it is an allocator's, and as long as no watched
//! block owns an address there nothing is known of it.
//!
//! Sites are the same for all processes; live blocks are a process's own. A forked child starts with its parent's.

use memlens_events::agent::{Allocation, Extent};
use memlens_objects::{SiteId, Sites};
use memlens_profile::ObjectBacking;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::ops::Range;

use crate::heap_blocks::{BlockArea, HeapBlock, HeapBlocks};
use crate::spot::Spot;

/// What became of a watched block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeapEvent {
    /// It came into being, with this copy of the caller's stack.
    Allocated(Allocation, Vec<u8>),
    /// The program mapped anonymous memory, with this copy of the caller's stack.
    NewMapping(Allocation, Vec<u8>),
    /// It unmapped memory.
    MappingEnded(Extent),
    /// A mapping's size changed, and perhaps its place.
    MappingMoved {
        /// Before.
        from: Extent,
        /// Now.
        to: Extent,
    },
    /// It ended.
    Freed(u64),
    /// It ends, unless an allocation that names it, or `Kept`, follows from the same thread.
    Moving(u64),
    /// It stays where it was.
    Kept(u64),
}

/// Where an allocation function stored its result, if it did not return it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// In the caller's frame, so many bytes from its canonical frame address.
    Frame(i64),
    /// In the data of a file, at this svma.
    Image {
        /// The file's number.
        file: u32,
        /// The address.
        svma: u64,
    },
}

/// Bytes of blocks, all there were in the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WatchedBytes {
    /// Of those that were watched.
    pub watched: f64,
    /// Of others, as estimated.
    pub others: f64,
}

/// An allocation site. Units: blocks and bytes that its watched blocks stand for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeapSite {
    /// Where the block's address went, if it was stored.
    pub stored: Option<Stored>,
    /// Blocks that were allocated.
    pub blocks: f64,
    /// Their bytes.
    pub bytes: f64,
    /// Those blocks that came by moving a block that was not watched: it was allocated elsewhere.
    pub moved_blocks: f64,
    /// Bytes that were watched themselves, and those that these stand for besides, by [`BlockArea`].
    pub by_area: [WatchedBytes; 2],
    /// How the kernel backed its blocks, where somebody looked.
    pub backing: Option<ObjectBacking>,
    /// Whether its blocks are mappings that the program made.
    pub is_mapping: bool,
    /// Whether blocks of the heap were seen to lie in them, or an allocation function made them.
    pub is_allocators: bool,
}

impl HeapSite {
    /// Counts a block, and those for which it stands: all that are as likely to be watched.
    fn count(&mut self, block: &HeapBlock, times: f64) {
        if block.draws > 0.0 {
            let weight = times / block.probability();
            self.blocks += weight;
            if block.was_moved {
                self.moved_blocks += weight;
            }
            self.bytes += weight * block.total_bytes as f64;
            let of_area = &mut self.by_area[block.area as usize];
            of_area.watched += times * block.total_bytes as f64;
            of_area.others += (weight - times) * block.total_bytes as f64;
        }
    }

    /// This and another one as one.
    pub fn with(mut self, other: Self) -> Self {
        self.stored = self.stored.or(other.stored);
        self.blocks += other.blocks;
        self.bytes += other.bytes;
        self.moved_blocks += other.moved_blocks;
        self.is_mapping |= other.is_mapping;
        self.is_allocators |= other.is_allocators;
        for (own, other) in self.by_area.iter_mut().zip(other.by_area) {
            own.watched += other.watched;
            own.others += other.others;
        }
        if let Some(seen) = other.backing {
            *self.backing.get_or_insert_default() += seen;
        }
        self
    }
}

/// A watched block that owns an address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OwnedBy {
    /// Who allocated it.
    pub site: SiteId,
    /// How probable it was that it is watched: above 0, at most 1.
    pub probability: f64,
    /// Its first address, and the one behind its last.
    pub range: (u64, u64),
}

/// A watched block that ended.
#[derive(Clone, Copy, Debug)]
struct Ended {
    time_ns: u64,
    start: u64,
    block: HeapBlock,
}

/// So many of the blocks that ended last are remembered.
const ENDED: usize = 64;

#[derive(Clone, Debug, Default)]
struct ProcessHeap {
    blocks: HeapBlocks,
    mappings: HeapBlocks,
    /// The oldest first.
    ended: VecDeque<Ended>,
    /// By thread: the block that it is moving, with its start.
    moving: FxHashMap<u32, (u64, HeapBlock)>,
}

/// The watched blocks of all processes.
#[derive(Debug, Default)]
pub struct Heap {
    sites: Sites,
    details: Vec<HeapSite>,
    processes: FxHashMap<u32, ProcessHeap>,
}

/// How often a block of `size_bytes` is drawn from gaps of mean `gap_bytes`, in the mean; 0: watched for certain.
fn mean_draws(size_bytes: u64, gap_bytes: u64) -> f64 {
    match gap_bytes {
        0 => f64::INFINITY,
        gap => size_bytes as f64 / gap as f64,
    }
}

impl OwnedBy {
    fn of(start: u64, block: HeapBlock) -> Self {
        Self { site: block.site, probability: block.probability(), range: (start, start + block.len_bytes) }
    }
}

impl ProcessHeap {
    fn has_ended(&mut self, ended: Ended) {
        if self.ended.len() == ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(ended);
    }
}

impl Heap {
    /// The site of a call stack: frame keys of return addresses, innermost first.
    pub fn site(&mut self, keys: &[u64], stored: Option<Stored>) -> SiteId {
        let site = self.sites.intern(keys);
        if site.index() >= self.details.len() {
            self.details.resize(site.index() + 1, HeapSite::default());
        }
        let known = &mut self.details[site.index()].stored;
        *known = known.or(stored);
        site
    }

    /// A block was allocated at a site. One that was moved, and was watched before, stays its first site's, which has what it
    /// grew by.
    pub fn allocated(&mut self, pid: u32, tid: u32, allocation: &Allocation, area: BlockArea, site: SiteId) {
        let process = self.processes.entry(pid).or_default();
        let moved = process.moving.remove(&tid).filter(|(start, _)| *start == allocation.old_address);
        let moved = moved.map(|(_, block)| block);
        let site = moved.map_or(site, |block| block.site);
        let draws = mean_draws(allocation.size_bytes, allocation.gap_bytes);
        let len_bytes = allocation.size_bytes;
        let block = match moved {
            Some(block) => HeapBlock {
                len_bytes,
                area,
                draws: block.draws + draws,
                total_bytes: block.total_bytes + len_bytes.saturating_sub(block.len_bytes),
                ..block
            },
            None => {
                // It was moved unseen, and was all the smaller the earlier: of sizes that double these are once more as many.
                let was_moved = allocation.old_address != 0;
                let draws = if was_moved { 2.0 * draws } else { draws };
                HeapBlock { site, len_bytes, area, draws, total_bytes: len_bytes, was_moved }
            }
        };
        if let Some(detail) = self.details.get_mut(site.index()) {
            detail.count(&block, 1.0);
            if let Some(before) = moved {
                detail.count(&before, -1.0);
            }
        }
        process.blocks.insert(allocation.address, block);
        if let Some((_, around)) = process.mappings.at(allocation.address)
            && let Some(detail) = self.details.get_mut(around.site.index())
        {
            detail.is_allocators = true;
        }
    }

    /// The program mapped anonymous memory, perhaps over what was there.
    pub fn mapped(&mut self, pid: u32, mapping: &Allocation, site: SiteId, time_ns: u64) {
        let Allocation { address, size_bytes, gap_bytes, .. } = *mapping;
        self.unmapped(pid, Extent { address, size_bytes }, time_ns);
        let block = HeapBlock {
            site,
            len_bytes: size_bytes,
            area: BlockArea::Mapping,
            draws: mean_draws(size_bytes, gap_bytes),
            total_bytes: size_bytes,
            was_moved: false,
        };
        if let Some(detail) = self.details.get_mut(site.index()) {
            detail.is_mapping = true;
            detail.count(&block, 1.0);
        }
        self.processes.entry(pid).or_default().mappings.insert(address, block);
    }

    /// The program unmapped memory.
    pub fn unmapped(&mut self, pid: u32, extent: Extent, time_ns: u64) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let Extent { address, size_bytes } = extent;
        for (start, block) in process.mappings.cut(address..address.saturating_add(size_bytes)) {
            process.has_ended(Ended { time_ns, start, block });
        }
    }

    /// A mapping has another size, and perhaps another place.
    pub fn remapped(&mut self, pid: u32, from: Extent, to: Extent, time_ns: u64) {
        let known = self.processes.get(&pid).and_then(|process| process.mappings.at(from.address));
        self.unmapped(pid, from, time_ns);
        self.unmapped(pid, to, time_ns);
        let (Some((_, known)), Some(process)) = (known, self.processes.get_mut(&pid)) else { return };
        let grown = to.size_bytes.saturating_sub(from.size_bytes);
        let block = HeapBlock { len_bytes: to.size_bytes, total_bytes: known.total_bytes + grown, ..known };
        if let Some(detail) = self.details.get_mut(block.site.index()) {
            detail.count(&block, 1.0);
            detail.count(&known, -1.0);
        }
        process.mappings.insert(to.address, block);
    }

    /// A block ended.
    pub fn freed(&mut self, pid: u32, address: u64, time_ns: u64) {
        if let Some(process) = self.processes.get_mut(&pid)
            && let Some(block) = process.blocks.remove(address)
        {
            process.has_ended(Ended { time_ns, start: address, block });
        }
    }

    /// A block is being moved.
    pub fn moving(&mut self, pid: u32, tid: u32, address: u64, time_ns: u64) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        match process.blocks.remove(address) {
            Some(block) => {
                process.has_ended(Ended { time_ns, start: address, block });
                process.moving.insert(tid, (address, block))
            }
            None => process.moving.remove(&tid),
        };
    }

    /// It was not moved after all.
    pub fn kept(&mut self, pid: u32, tid: u32, address: u64) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if let Some((_, block)) = process.moving.remove(&tid).filter(|(start, _)| *start == address) {
            process.blocks.insert(address, block);
        }
    }

    /// The watched block that owns an address.
    pub fn owner(&self, pid: u32, address: u64) -> Option<OwnedBy> {
        let process = self.processes.get(&pid)?;
        let found = process.blocks.at(address);
        let mapped =
            || process.mappings.at(address).filter(|(_, mapping)| !self.detail(mapping.site).is_allocators);
        found.or_else(mapped).map(|(start, block)| OwnedBy::of(start, block))
    }

    /// Bytes of a site's live blocks and mappings in a process, as estimated from those that are watched.
    pub fn live_bytes(&self, pid: u32, site: SiteId) -> f64 {
        let Some(process) = self.processes.get(&pid) else { return 0.0 };
        process.blocks.live_bytes(site) + process.mappings.live_bytes(site)
    }

    /// Whether nothing is known of any process.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// The same of all sites' blocks, in all processes.
    pub fn live_of_sites(&self) -> FxHashMap<SiteId, f64> {
        let mut live = FxHashMap::default();
        for (site, bytes) in self.processes.values().flat_map(|process| process.blocks.live_of_sites()) {
            *live.entry(site).or_default() += bytes;
        }
        live
    }

    /// The watched block that owns an address, or owned it at some time since then.
    pub fn owner_since(&self, pid: u32, address: u64, since_ns: u64) -> Option<OwnedBy> {
        self.owner(pid, address).or_else(|| {
            let ended = self.processes.get(&pid)?.ended.iter().rev();
            let mut late = ended.take_while(|ended| ended.time_ns >= since_ns);
            let owns = |ended: &&Ended| address.wrapping_sub(ended.start) < ended.block.len_bytes;
            late.find(owns).map(|ended| OwnedBy::of(ended.start, ended.block))
        })
    }

    /// Of `within`, addresses around `address` of which [`Self::owner_since`] knows no more than of that, which nobody owns.
    pub fn gap_since(&self, pid: u32, address: u64, since_ns: u64, within: Range<u64>) -> Range<u64> {
        let Some(heap) = self.processes.get(&pid) else { return within };
        let mut gap = heap.blocks.gap(address, within);
        for ended in heap.ended.iter().rev().take_while(|ended| ended.time_ns >= since_ns) {
            let end = ended.start.saturating_add(ended.block.len_bytes);
            if end <= address {
                gap.start = gap.start.max(end);
            } else {
                gap.end = gap.end.min(ended.start);
            }
        }
        gap
    }

    /// A process made a copy of itself.
    pub fn forked(&mut self, parent: u32, child: u32) {
        if let Some(heap) = self.processes.get(&parent).cloned() {
            self.processes.insert(child, heap);
        }
    }

    /// A process executed another program, or what is known of it no longer holds.
    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// Of all processes: what is known no longer holds.
    pub fn forget_all(&mut self) {
        self.processes.clear();
    }

    /// A site's call stack.
    pub fn stack(&self, site: SiteId) -> &[u64] {
        self.sites.stack(site)
    }

    /// A spot by what is known now: in memory of an allocator no mapping owns anything.
    pub fn resolved(&self, spot: Spot) -> Spot {
        match spot {
            Spot::Block { site, memory } if self.detail(site).is_allocators => Spot::Heap(memory),
            spot => spot,
        }
    }

    /// Watched blocks and mappings of at least `least_bytes` bytes: process, place, number of the site. Linear in all blocks.
    pub fn live_blocks(&self, least_bytes: u64) -> Vec<(u32, Range<u64>, u32)> {
        let of_process = |(&pid, heap): (&u32, &ProcessHeap)| {
            let blocks = heap.blocks.at_least(least_bytes).chain(heap.mappings.at_least(least_bytes));
            blocks.map(|(range, site)| (pid, range, site.get())).collect::<Vec<_>>()
        };
        self.processes.iter().flat_map(of_process).collect()
    }

    /// The blocks of a site, by its number, were backed like this; see [`ObjectBacking::keep_larger`].
    pub fn note_backing(&mut self, site: u32, backing: ObjectBacking) {
        let detail = SiteId::new(site).and_then(|site| self.details.get_mut(site.index()));
        if let Some(detail) = detail {
            detail.backing.get_or_insert_default().keep_larger(backing);
        }
    }

    /// The sites of the heap whose blocks have most bytes, the largest first, at most so many.
    pub fn largest_sites(&self, most: usize) -> Vec<SiteId> {
        let bytes = |site: &SiteId| self.detail(*site).bytes;
        let is_block = |site: &SiteId| !self.detail(*site).is_mapping && bytes(site) > 0.0;
        let mut sites: Vec<SiteId> = self.sites.iter().map(|(site, _)| site).filter(is_block).collect();
        sites.sort_by(|one, other| bytes(other).total_cmp(&bytes(one)));
        sites.truncate(most);
        sites
    }

    /// Sites of mappings that are not known to be an allocator's.
    pub fn mapping_sites(&self) -> impl Iterator<Item = SiteId> + '_ {
        let is_one = |site: &SiteId| {
            let detail = self.detail(*site);
            detail.is_mapping && !detail.is_allocators
        };
        self.sites.iter().map(|(site, _)| site).filter(is_one)
    }

    /// What a site maps is an allocator's.
    pub fn note_allocators(&mut self, site: SiteId) {
        if let Some(detail) = self.details.get_mut(site.index()) {
            detail.is_allocators = true;
        }
    }

    /// A site's figures.
    pub fn detail(&self, site: SiteId) -> HeapSite {
        self.details.get(site.index()).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_space::Area;
    use crate::spot::HeapMemory;

    fn allocation(address: u64, size_bytes: u64, gap_bytes: u64, old_address: u64) -> Allocation {
        Allocation { address, size_bytes, gap_bytes, old_address, ..Allocation::default() }
    }

    #[test]
    fn an_address_belongs_to_the_block_that_is_live() {
        let mut heap = Heap::default();
        let (rows, columns) = (heap.site(&[1, 2], None), heap.site(&[3, 2], None));
        heap.allocated(7, 7, &allocation(0x1000, 100, 0, 0), BlockArea::Break, rows);
        assert_eq!(
            heap.owner(7, 0x1063),
            Some(OwnedBy { site: rows, probability: 1.0, range: (0x1000, 0x1064) })
        );
        assert_eq!(heap.owner(7, 0x1064), None);
        assert_eq!(heap.owner(8, 0x1000), None, "of another process");
        heap.freed(7, 0x1000, 0);
        assert_eq!(heap.owner(7, 0x1000), None);
        heap.allocated(7, 9, &allocation(0x1000, 50, 0, 0), BlockArea::Break, columns);
        assert_eq!(heap.owner(7, 0x1000).map(|owner| owner.site), Some(columns));
        assert_eq!((heap.detail(rows).blocks, heap.detail(rows).bytes), (1.0, 100.0));
    }

    #[test]
    fn a_moved_block_keeps_its_site_and_a_failed_move_changes_nothing() {
        let mut heap = Heap::default();
        let (first, second) = (heap.site(&[1], None), heap.site(&[2], None));
        heap.allocated(7, 7, &allocation(0x1000, 100, 0, 0), BlockArea::Break, first);
        heap.moving(7, 7, 0x1000, 0);
        assert_eq!(heap.owner(7, 0x1000), None);
        heap.kept(7, 7, 0x1000);
        assert_eq!(heap.owner(7, 0x1000).map(|owner| owner.site), Some(first));
        heap.moving(7, 7, 0x1000, 0);
        // Another thread gets the address meanwhile.
        heap.allocated(7, 8, &allocation(0x1000, 10, 0, 0), BlockArea::Break, second);
        heap.allocated(7, 7, &allocation(0x2000, 200, 0, 0x1000), BlockArea::Break, second);
        assert_eq!(heap.owner(7, 0x20c7).map(|owner| owner.site), Some(first));
        assert_eq!(heap.owner(7, 0x1000).map(|owner| owner.site), Some(second));
        assert_eq!(heap.detail(first).blocks, 1.0, "a moved block is no new one");
        // Of one that was not watched nobody knows whose it was.
        heap.allocated(7, 7, &allocation(0x9000, 10, 0, 0x8000), BlockArea::Break, second);
        assert_eq!((heap.detail(second).blocks, heap.detail(second).moved_blocks), (2.0, 1.0));
    }

    #[test]
    fn a_drawn_block_counts_for_those_that_were_not() {
        let mut heap = Heap::default();
        let site = heap.site(&[1], None);
        // 16 KiB from gaps of 16 KiB: p = 1 - 1/e.
        heap.allocated(7, 7, &allocation(0x4000, 1 << 14, 1 << 14, 0), BlockArea::Break, site);
        let expected = 1.0 - (-1.0f64).exp();
        let owner = heap.owner(7, 0x4000).expect("live");
        assert!((owner.probability - expected).abs() < 1e-12);
        assert!((heap.detail(site).blocks - 1.0 / expected).abs() < 1e-12);
    }

    /// As vectors grow: doubled 14 times, from 64 bytes to 1 MiB, by a hundred programs that are watched from another size on.
    #[test]
    fn what_a_block_grows_by_is_its_sites() {
        let mut heap = Heap::default();
        let site = heap.site(&[1], None);
        heap.allocated(7, 7, &allocation(0x1000, 64, 0, 0), BlockArea::Break, site);
        heap.moving(7, 7, 0x1000, 0);
        heap.allocated(7, 7, &allocation(0x9000, 1 << 20, 0, 0x1000), BlockArea::Break, site);
        heap.moving(7, 7, 0x9000, 0);
        heap.allocated(7, 7, &allocation(0x2000, 1 << 10, 0, 0x9000), BlockArea::Break, site);
        assert_eq!((heap.detail(site).blocks, heap.detail(site).bytes), (1.0, f64::from(1 << 20)));
        // Drawn from gaps of 16 KiB by chance, which a generator of its own gives here.
        let mut state = 1_u64;
        let mut chance = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut heap = Heap::default();
        let site = heap.site(&[1], None);
        for program in 0..200 {
            let (mut address, mut is_watched) = (0, false);
            for step in 0..15 {
                let grown = allocation(0x10_0000 * (step + 1), 64 << step, 1 << 14, address);
                if is_watched {
                    heap.moving(program, 7, address, 0);
                }
                is_watched |= chance() < -(-mean_draws(grown.size_bytes, grown.gap_bytes)).exp_m1();
                if is_watched {
                    heap.allocated(program, 7, &grown, BlockArea::Break, site);
                }
                address = grown.address;
            }
        }
        let detail = heap.detail(site);
        let (bytes, blocks) = (detail.bytes / f64::from(200 << 20), detail.blocks / 200.0);
        assert!((0.9..1.1).contains(&bytes), "{bytes}");
        assert!((0.5..1.5).contains(&blocks), "{blocks}");
    }

    #[test]
    fn a_mapping_belongs_to_its_site_until_it_is_an_allocators() {
        let mut heap = Heap::default();
        let (first, second, block) = (heap.site(&[1], None), heap.site(&[2], None), heap.site(&[3], None));
        let extent = |address, size_bytes| Extent { address, size_bytes };
        let owner = |heap: &Heap, address| heap.owner(7, address).map(|owner| (owner.site, owner.range.0));
        heap.mapped(7, &allocation(0x10_0000, 0x8000, 0, 0), first, 0);
        // Over its middle.
        heap.mapped(7, &allocation(0x10_2000, 0x1000, 0, 0), second, 0);
        let places = [0x10_1fff, 0x10_2fff, 0x10_3000].map(|address| owner(&heap, address));
        assert_eq!(places, [Some((first, 0x10_0000)), Some((second, 0x10_2000)), Some((first, 0x10_3000))]);
        heap.remapped(7, extent(0x10_3000, 0x5000), extent(0x20_0000, 0xa000), 0);
        assert_eq!((owner(&heap, 0x10_3000), owner(&heap, 0x20_9fff)), (None, Some((first, 0x20_0000))));
        assert_eq!((heap.detail(first).blocks, heap.detail(first).bytes), (1.0, f64::from(0x8000 + 0x5000)));
        heap.unmapped(7, extent(0x10_0000, 0x10_1000), 5);
        assert_eq!((owner(&heap, 0x10_1000), owner(&heap, 0x20_0fff)), (None, None));
        assert_eq!(owner(&heap, 0x20_1000), Some((first, 0x20_1000)));
        assert!(heap.owner_since(7, 0x10_1000, 5).is_some_and(|owner| owner.site == first));
        // What is known of no mapping, or of another process, changes nothing.
        heap.remapped(7, extent(0x90_0000, 0x1000), extent(0x91_0000, 0x1000), 0);
        heap.unmapped(8, extent(0x20_0000, 0xa000), 0);
        assert_eq!((owner(&heap, 0x91_0000), owner(&heap, 0x20_1000)), (None, Some((first, 0x20_1000))));
        let memory = HeapMemory { area: Area::Anonymous, user: None };
        let spot = Spot::Block { site: first, memory: memory.clone() };
        assert_eq!(heap.resolved(spot.clone()), spot);
        heap.allocated(7, 7, &allocation(0x20_2000, 100, 0, 0), BlockArea::Mapping, block);
        assert_eq!((owner(&heap, 0x20_2063), owner(&heap, 0x20_2064)), (Some((block, 0x20_2000)), None));
        assert_eq!(heap.resolved(spot), Spot::Heap(memory));
        assert_eq!(heap.largest_sites(5), [block]);
    }

    #[test]
    fn a_child_has_its_parents_blocks_and_frees_only_its_own() {
        let mut heap = Heap::default();
        let site = heap.site(&[1], None);
        heap.allocated(7, 7, &allocation(0x1000, 100, 0, 0), BlockArea::Break, site);
        heap.forked(7, 8);
        heap.freed(8, 0x1000, 0);
        assert_eq!(heap.owner(8, 0x1000), None);
        assert!(heap.owner(7, 0x1000).is_some());
        heap.forget(7);
        assert_eq!(heap.owner(7, 0x1000), None);
    }

    #[test]
    fn a_gap_is_what_nobody_owns() {
        const PLACES: Range<u64> = 0x1000..0x2000;
        let mut heap = Heap::default();
        let site = heap.site(&[1], None);
        assert_eq!(heap.gap_since(7, 0x1100, 0, PLACES), PLACES, "nothing is known");
        let mut state = 1_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let (mut whole_gaps, mut gaps) = (0, 0);
        for step in 0..500 {
            let start = PLACES.start - 0x100 + draw(0x1200);
            match draw(3) {
                0 => heap.freed(7, heap.owner(7, start).map_or(start, |owner| owner.range.0), step),
                _ => heap.allocated(7, 7, &allocation(start, draw(40), 0, 0), BlockArea::Break, site),
            }
            let since_ns = step.saturating_sub(20);
            let is_free = |address: &u64| heap.owner_since(7, *address, since_ns).is_none();
            for address in PLACES.step_by(97).filter(is_free) {
                let gap = heap.gap_since(7, address, since_ns, PLACES);
                let whole = (PLACES.start..=address).rev().take_while(is_free).last()
                    ..(address..PLACES.end).take_while(is_free).last();
                let whole = whole.start.unwrap_or(address)..whole.end.unwrap_or(address) + 1;
                assert!(
                    gap.contains(&address) && gap.clone().all(|it| is_free(&it)),
                    "{gap:x?} {address:#x}"
                );
                assert!(whole.start <= gap.start && gap.end <= whole.end);
                gaps += 1;
                whole_gaps += usize::from(gap == whole);
            }
        }
        assert!(
            gaps > 10_000 && whole_gaps > gaps / 10 * 9,
            "{whole_gaps} of {gaps} are as large as they can be"
        );
    }

    #[test]
    fn blocks_that_ended_late_are_remembered() {
        let mut heap = Heap::default();
        let (first, second) = (heap.site(&[1], None), heap.site(&[2], None));
        heap.allocated(7, 7, &allocation(0x1000, 100, 0, 0), BlockArea::Break, first);
        heap.freed(7, 0x1000, 50);
        let owner = |heap: &Heap, since_ns| heap.owner_since(7, 0x1063, since_ns).map(|owner| owner.site);
        assert_eq!((owner(&heap, 50), owner(&heap, 51)), (Some(first), None));
        assert_eq!(heap.owner_since(7, 0x1064, 0), None);
        // What took its place goes first.
        heap.allocated(7, 7, &allocation(0x1000, 100, 0, 0), BlockArea::Break, second);
        assert_eq!(owner(&heap, 0), Some(second));
        // A block that is moved is gone from its old place.
        heap.moving(7, 7, 0x1000, 90);
        heap.allocated(7, 7, &allocation(0x9000, 200, 0, 0x1000), BlockArea::Break, second);
        assert_eq!((owner(&heap, 90), owner(&heap, 91)), (Some(second), None));
        for place in 0..ENDED as u64 {
            heap.allocated(7, 7, &allocation(0x10_0000 + place * 64, 64, 0, 0), BlockArea::Break, first);
            heap.freed(7, 0x10_0000 + place * 64, 100);
        }
        assert_eq!(
            (owner(&heap, 0), heap.owner_since(7, 0x10_0000, 100).map(|owner| owner.site)),
            (None, Some(first))
        );
    }
}

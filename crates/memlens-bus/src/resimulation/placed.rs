//! Memory that trials put into huge pages: where it would lie then, and what that costs.

use super::trials::Groups;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Bytes of a huge page.
pub(super) const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Where moved memory begins: between the heap of position-independent programs and the top of the address space
/// programs have nothing there.
const MOVED_FROM: u64 = 0x2000_0000_0000;

/// Blocks lie in regions: a block is asked for first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    Region,
    Block,
}

/// A piece of memory.
#[derive(Clone, Debug)]
struct Piece {
    end: u64,
    /// Trials with one of these groups have it in huge pages.
    groups: Groups,
    /// Where its first byte lies in huge pages.
    moved: u64,
    /// By 4-KiB page of the moved memory, from its first huge page on: whether it was touched.
    touched: Vec<u64>,
}

/// An address in huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlacedAddr {
    pub groups: Groups,
    pub addr: u64,
}

/// A trial's memory that was touched, in pages.
#[derive(Clone, Copy, Debug, Default)]
struct Touched {
    groups: Groups,
    small: u64,
    huge: u64,
    /// The most of each at a time.
    most_small: u64,
    most_huge: u64,
}

type Space = [BTreeMap<u64, Piece>; 2];

/// The pieces of all address spaces.
pub(super) struct PlacedMemory {
    spaces: HashMap<u32, Space>,
    /// Where new moved memory goes, and places that are free again, by their huge pages.
    next: u64,
    free: HashMap<u64, Vec<u64>>,
    touched: Vec<Touched>,
}

impl PlacedMemory {
    /// For trials of these groups.
    pub fn new(groups: &[Groups]) -> Self {
        let touched = groups.iter().map(|&groups| Touched { groups, ..Touched::default() }).collect();
        Self { spaces: HashMap::new(), next: MOVED_FROM, free: HashMap::new(), touched }
    }

    /// Memory begins, in place of what it overlaps. `moves`: to the start of a huge page, as blocks are; else it lies
    /// in huge pages around where it is.
    pub fn begin(&mut self, layer: Layer, space: u32, range: Range<u64>, groups: Groups, moves: bool) {
        if range.is_empty() {
            return;
        }
        self.clear(layer, space, &range);
        let moved = match moves {
            true => self.place(range.end - range.start),
            false => range.start,
        };
        let pages = (moved % HUGE_PAGE_BYTES + (range.end - range.start)).div_ceil(HUGE_PAGE_BYTES) * 8;
        let piece = Piece { end: range.end, groups, moved, touched: vec![0; pages as usize] };
        self.pieces(layer, space).insert(range.start, piece);
    }

    /// The memory that ends in the page at `end` grows, as the heap does.
    pub fn grow(&mut self, space: u32, end: u64, new_end: u64, groups: Groups) {
        let pieces = self.pieces(Layer::Region, space);
        match pieces
            .range_mut(..end)
            .next_back()
            .filter(|(_, piece)| end <= piece.end && piece.end < end + 4096)
        {
            Some((&start, piece)) => {
                piece.end = new_end.max(end);
                let pages =
                    (piece.moved % HUGE_PAGE_BYTES + (piece.end - start)).div_ceil(HUGE_PAGE_BYTES) * 8;
                piece.touched.resize(pages as usize, 0);
            }
            None => self.begin(Layer::Region, space, end..new_end, groups, false),
        }
    }

    /// The memory that begins at `start` ends.
    pub fn end(&mut self, layer: Layer, space: u32, start: u64) {
        if let Some(piece) = self.pieces(layer, space).remove(&start) {
            self.leave(start, &piece);
        }
    }

    /// Whether a block begins at `start`.
    pub fn has_block(&self, space: u32, start: u64) -> bool {
        self.spaces.get(&space).is_some_and(|layers| layers[Layer::Block as usize].contains_key(&start))
    }

    /// Nothing is in this range any more. A piece that is cut stays up to there.
    pub fn clear(&mut self, layer: Layer, space: u32, range: &Range<u64>) {
        let pieces = self.pieces(layer, space);
        if let Some((_, piece)) = pieces.range_mut(..range.start).next_back()
            && piece.end > range.start
        {
            piece.end = range.start;
        }
        let starts: Vec<u64> = pieces.range(range.clone()).map(|(&start, _)| start).collect();
        starts.into_iter().for_each(|start| self.end(layer, space, start));
    }

    /// A space is copied: its pages are shared, and cost nothing yet.
    pub fn fork(&mut self, parent: u32, child: u32) {
        let mut copy = self.spaces.get(&parent).cloned().unwrap_or_default();
        for piece in copy.iter_mut().flat_map(BTreeMap::values_mut) {
            piece.touched.fill(0);
        }
        self.forget(child);
        self.spaces.insert(child, copy);
    }

    /// A space ends. Where its memory was moved to is not used again: a forked space may lie there, too.
    pub fn forget(&mut self, space: u32) {
        for piece in self.spaces.remove(&space).iter().flatten().flat_map(BTreeMap::values) {
            self.untouch(piece);
        }
    }

    /// Where a byte that is touched lies in huge pages, if it can; and the addresses around it for which that is so.
    pub fn touch(&mut self, space: u32, vaddr: u64) -> (Option<PlacedAddr>, Range<u64>) {
        let mut bounds = 0..u64::MAX;
        let Some(layers) = self.spaces.get_mut(&space) else { return (None, bounds) };
        for layer in [Layer::Block, Layer::Region] {
            let pieces = &mut layers[layer as usize];
            if let Some((&after, _)) = pieces.range(vaddr.saturating_add(1)..).next() {
                bounds.end = bounds.end.min(after);
            }
            let Some((&start, piece)) = pieces.range_mut(..=vaddr).next_back() else { continue };
            if vaddr >= piece.end {
                bounds.start = bounds.start.max(piece.end);
                continue;
            }
            bounds = bounds.start.max(start)..bounds.end.min(piece.end);
            let addr = piece.moved + (vaddr - start);
            let page = (addr - piece.moved / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES) / 4096;
            let (huge, bit) = ((page / 512 * 8) as usize, 1_u64 << (page % 64));
            let is_new_huge = piece.touched[huge..huge + 8].iter().all(|&word| word == 0);
            let word = &mut piece.touched[(page / 64) as usize];
            let is_new = *word & bit == 0;
            *word |= bit;
            let groups = piece.groups;
            if is_new {
                for trial in self.touched.iter_mut().filter(|trial| trial.groups & groups != 0) {
                    trial.small += 1;
                    trial.huge += u64::from(is_new_huge);
                    trial.most_small = trial.most_small.max(trial.small);
                    trial.most_huge = trial.most_huge.max(trial.huge);
                }
            }
            return (Some(PlacedAddr { groups, addr }), bounds);
        }
        (None, bounds)
    }

    /// For each trial how many bytes more its huge pages take at their most than small pages at theirs.
    pub fn costs(&self) -> Vec<u64> {
        let cost =
            |trial: &Touched| (trial.most_huge * HUGE_PAGE_BYTES).saturating_sub(trial.most_small * 4096);
        self.touched.iter().map(cost).collect()
    }

    fn pieces(&mut self, layer: Layer, space: u32) -> &mut BTreeMap<u64, Piece> {
        &mut self.spaces.entry(space).or_default()[layer as usize]
    }

    /// Huge pages for so many bytes.
    fn place(&mut self, bytes: u64) -> u64 {
        let pages = bytes.div_ceil(HUGE_PAGE_BYTES);
        if let Some(place) = self.free.get_mut(&pages).and_then(Vec::pop) {
            return place;
        }
        self.next += pages * HUGE_PAGE_BYTES;
        self.next - pages * HUGE_PAGE_BYTES
    }

    fn leave(&mut self, start: u64, piece: &Piece) {
        self.untouch(piece);
        if piece.moved != start {
            let pages = piece.touched.len() as u64 / 8;
            self.free.entry(pages).or_default().push(piece.moved);
        }
    }

    /// A piece's touched pages are gone.
    fn untouch(&mut self, piece: &Piece) {
        let small: u64 = piece.touched.iter().map(|word| u64::from(word.count_ones())).sum();
        let huge = piece.touched.chunks(8).filter(|words| words.iter().any(|&word| word != 0)).count() as u64;
        for trial in self.touched.iter_mut().filter(|trial| trial.groups & piece.groups != 0) {
            trial.small -= small;
            trial.huge -= huge;
        }
    }
}

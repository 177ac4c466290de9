//! Where each memory operand of the code went last, and what it is counted for.
//!
//! A reference keeps the range of addresses for which the answer of its last look-up holds, and the cell
//! that its accesses count for. As long as accesses fall into that range nothing is counted for the single
//! reference: its block's executions say how often it ran, and what its cell is due since it took over is
//! booked when the cell changes or somebody asks.

use crate::address_space::{AddressSpace, CacheRange};
use crate::block_table::{BlockTable, Reference};
use crate::cells::{Cells, DISCARD};
use crate::lanes::{Group, LANES, NO_RANGE};
use crate::shadow_stack::ShadowStack;
use memlens_events::BLOCK_ID_LIMIT;

/// One look-up in so many makes the address's range the reference's. The others, where it is known whose the
/// address is, leave the range alone and only book the access.
const RANGE_ATTEMPT_INTERVAL: u32 = 16;

/// What else is kept of a reference.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Executions of its block that its cells know.
    booked: u64,
    /// The object found last; 0 = none yet.
    object: u32,
}

/// A thread's references.
#[derive(Debug)]
pub struct References {
    groups: Groups,
    /// By reference number.
    states: Vec<State>,
    cells: Cells,
    /// Groups with volatile ranges.
    volatile: Vec<u32>,
    lookups: u32,
}

/// Groups by number: those below [`BLOCK_ID_LIMIT`] are the first groups of blocks, by block id.
///
/// In small pieces, made when the thread first runs one of their blocks: programs have many blocks, and
/// many threads that run few of them.
#[derive(Debug, Default)]
struct Groups {
    pieces: Vec<Option<Box<[Group; PIECE]>>>,
    further: Vec<Group>,
}

const PIECE: usize = 64;

impl Groups {
    /// The first group of a block, if the thread has run a block near it.
    #[inline(always)]
    fn first(&mut self, id: u32) -> Option<&mut Group> {
        let piece = self.pieces.get_mut(id as usize / PIECE)?.as_mut()?;
        Some(&mut piece[id as usize % PIECE])
    }

    /// As [`Self::first`], to look at.
    #[inline(always)]
    fn peek(&self, id: u32) -> Option<&Group> {
        let piece = self.pieces.get(id as usize / PIECE)?.as_ref()?;
        Some(&piece[id as usize % PIECE])
    }

    #[inline]
    fn get(&mut self, number: u32) -> Option<&mut Group> {
        match number.checked_sub(BLOCK_ID_LIMIT) {
            None => self.first(number),
            Some(index) => self.further.get_mut(index as usize),
        }
    }

    /// Puts a block's references into groups.
    fn add(&mut self, blocks: &BlockTable, id: u32) {
        let piece = id as usize / PIECE;
        if self.pieces.len() <= piece {
            self.pieces.resize(piece + 1, None);
        }
        let piece = self.pieces[piece].get_or_insert_with(|| Box::new([Group::default(); PIECE]));
        let block = blocks.block(id);
        let references = blocks.references_of(id);
        let own = &mut piece[id as usize % PIECE];
        *own = Group::of(blocks, references.start, references.end);
        (own.instructions, own.ending) = (block.instructions.max(1), block.ending);
        own.slot_word = block.slot_word;
        // From the last to the first, so that each knows the number of the next.
        let mut next = 0;
        for first in references.clone().step_by(LANES).skip(1).rev() {
            let group = Group { next, ..Group::of(blocks, first, references.end) };
            next = BLOCK_ID_LIMIT + self.further.len() as u32;
            self.further.push(group);
        }
        own.next = next;
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Group> {
        self.pieces.iter_mut().flatten().flat_map(|piece| piece.iter_mut()).chain(&mut self.further)
    }
}

impl Group {
    /// The ranges of these lanes hold no more.
    fn end_ranges(&mut self, lanes: u8) {
        for (lane, last) in self.lasts.iter_mut().enumerate() {
            if lanes >> lane & 1 == 1 {
                *last = NO_RANGE;
            }
        }
    }

    /// A group of the references from `first` on, before `end`.
    fn of(blocks: &BlockTable, first: u32, end: u32) -> Self {
        let mut group = Self { first_reference: first, ..Self::default() };
        let references = &blocks.references()[first as usize..end as usize];
        for (attr, reference) in group.attrs.iter_mut().zip(references) {
            *attr = reference.attr;
            group.lanes |= 1 << group.accesses;
            group.accesses += 1;
        }
        group
    }
}

/// An access to look up.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Number of the reference.
    pub reference: u32,
    /// Number of its group.
    pub group: u32,
    /// Its lane there.
    pub lane: usize,
    /// Address accessed.
    pub addr: u64,
    /// How often the block ran before.
    pub executed: u64,
}

impl References {
    /// None yet.
    pub fn new() -> Self {
        Self {
            groups: Groups::default(),
            states: Vec::new(),
            cells: Cells::new(),
            volatile: Vec::new(),
            lookups: 0,
        }
    }

    /// Makes room for the states of all references of `blocks`.
    #[inline]
    pub fn reserve(&mut self, blocks: &BlockTable) {
        let references = blocks.references().len();
        if self.states.len() < references {
            enlarge(&mut self.states, references.next_power_of_two());
        }
    }

    /// The first group of a block that has run before; others' groups end with [`Ending::Other`], if they
    /// are there.
    #[inline(always)]
    pub fn first_group(&mut self, id: u32) -> Option<&mut Group> {
        self.groups.first(id)
    }

    /// As [`Self::first_group`], to look at.
    #[inline(always)]
    pub fn peek(&self, id: u32) -> Option<&Group> {
        self.groups.peek(id)
    }

    /// The group with this number.
    #[inline]
    pub fn group(&mut self, number: u32) -> Option<&mut Group> {
        self.groups.get(number)
    }

    /// Makes the groups of a block, if it has none.
    #[inline]
    pub fn prepare(&mut self, blocks: &BlockTable, id: u32) {
        let is_new = self.groups.first(id).is_none_or(|group| group.instructions == 0);
        if is_new {
            self.groups.add(blocks, id);
        }
    }

    /// The cell of an access outside its reference's range, whose block ran `executed` times before and has
    /// been counted once more; `None` if it is that of the range all the same.
    #[inline(always)]
    pub fn outside(
        &mut self,
        space: &mut AddressSpace,
        stack: &ShadowStack,
        blocks: &BlockTable,
        access: Access,
    ) -> Option<u32> {
        let (cell, is_own) = self.look_up(space, stack, blocks, access);
        if is_own {
            return cell;
        }
        // This execution is the other cell's.
        self.cells.add(cell?, 1);
        self.states[access.reference as usize].booked += 1;
        cell
    }

    /// Counts `accesses` accesses at one address, apart from any execution; returns their cell.
    pub fn count(
        &mut self,
        space: &mut AddressSpace,
        stack: &ShadowStack,
        blocks: &BlockTable,
        (reference, addr): (u32, u64),
        accesses: u64,
    ) -> Option<u32> {
        let &Reference { block, .. } = blocks.references().get(reference as usize)?;
        self.prepare(blocks, block);
        let mut number = block;
        let first = self.groups.first(block)?;
        let executed = first.executions;
        let mut lane = (reference - first.first_reference) as usize;
        while lane >= LANES {
            number = self.groups.get(number)?.next;
            lane -= LANES;
        }
        let group = self.groups.get(number)?;
        let frames = stack.innermost();
        let own = group.cells[lane];
        let cell = if group.has(lane, addr, frames) {
            own
        } else {
            let access = Access { reference, group: number, lane, addr, executed };
            self.look_up(space, stack, blocks, access).0.unwrap_or(own)
        };
        self.cells.add(cell, accesses);
        Some(cell)
    }

    /// Books all accesses counted so far in the cells.
    pub fn settle(&mut self) -> &mut Cells {
        let Self { groups, states, cells, .. } = self;
        let Groups { pieces, further } = groups;
        for first in pieces.iter().flatten().flat_map(|piece| piece.iter()) {
            let mut group = first;
            loop {
                for lane in 0..usize::from(group.accesses) {
                    let state = &mut states[group.first_reference as usize + lane];
                    let due = first.executions - std::mem::replace(&mut state.booked, first.executions);
                    cells.add(group.cells[lane], due);
                }
                let next = group.next.checked_sub(BLOCK_ID_LIMIT);
                let Some(next) = next.and_then(|next| further.get(next as usize)) else { break };
                group = next;
            }
        }
        &mut self.cells
    }

    /// The cells; their counts are complete after [`Self::settle`] only.
    pub fn cells(&self) -> &Cells {
        &self.cells
    }

    /// The cells alone, to be read once more.
    pub fn into_cells(self) -> Cells {
        self.cells.without_index()
    }

    /// The cells, to book misses and bytes in.
    #[inline(always)]
    pub fn cells_mut(&mut self) -> &mut Cells {
        &mut self.cells
    }

    /// Forgets ranges that may no longer hold.
    pub fn forget_volatile(&mut self) {
        for group in self.volatile.drain(..) {
            if let Some(group) = self.groups.get(group) {
                let volatile = std::mem::take(&mut group.volatile);
                group.end_ranges(volatile);
            }
        }
    }

    /// Forgets all ranges.
    pub fn forget_all(&mut self) {
        self.volatile.clear();
        for group in self.groups.all() {
            group.lasts = [NO_RANGE; LANES];
            group.volatile = 0;
        }
    }

    /// The cell of an access outside its reference's range (`None`: that of the range), and whether the
    /// reference has it as its own now.
    ///
    /// Code that goes through many objects comes here with every access. Whose address it is costs a few
    /// loads; to make that the reference's new range costs more, and is tried once in a while only.
    #[inline(always)]
    fn look_up(
        &mut self,
        space: &mut AddressSpace,
        stack: &ShadowStack,
        blocks: &BlockTable,
        access: Access,
    ) -> (Option<u32>, bool) {
        self.lookups = self.lookups.wrapping_add(1);
        if !self.lookups.is_multiple_of(RANGE_ATTEMPT_INTERVAL)
            && let Some(object) = space.known_at(access.addr)
        {
            let own = self.states[access.reference as usize].object;
            if own == object.get() {
                return (None, true);
            }
            if own != 0 {
                let offset = || space.offset_at(access.addr);
                return (Some(self.cells.of(access.reference, object.get(), offset)), false);
            }
        }
        (Some(self.find(space, stack, blocks, access)), true)
    }

    /// As [`Self::look_up`]; the range is kept for the next access.
    #[inline(never)]
    fn find(
        &mut self,
        space: &mut AddressSpace,
        stack: &ShadowStack,
        blocks: &BlockTable,
        access: Access,
    ) -> u32 {
        let Access { reference, group: number, lane, addr, executed } = access;
        let pc = blocks.references().get(reference as usize).map_or(0, |reference| reference.pc);
        let resolved = space.resolve(addr, pc, stack);
        let object = resolved.object.get();
        let Some(group) = self.groups.get(number) else { return DISCARD };
        let lane = lane % LANES;
        let state = &mut self.states[reference as usize];
        if state.object != object {
            self.cells.add(group.cells[lane], executed - state.booked);
            *state = State { booked: executed, object };
            let offset = || space.offset_of(addr, resolved.range, stack);
            group.cells[lane] = self.cells.of(reference, object, offset);
        }
        let bit = 1 << lane;
        group.frames &= !bit;
        group.callers &= !bit;
        let (start, len) = match resolved.range {
            // What held for the last object need not for this one.
            CacheRange::Nothing => (0, 0),
            CacheRange::Fixed { start, len } => (start, len),
            CacheRange::Volatile { start, len } => {
                if group.volatile == 0 {
                    self.volatile.push(number);
                }
                group.volatile |= bit;
                (start, len)
            }
            CacheRange::Frame { start, len } => {
                group.frames |= bit;
                (start as u64, len)
            }
            CacheRange::Caller { start, len } => {
                let call = stack.innermost().call;
                // One call a group: ranges of another one do not hold any more.
                let others = if group.call == call { 0 } else { std::mem::take(&mut group.callers) };
                group.end_ranges(others);
                group.call = call;
                group.callers |= bit;
                // The callee's frame is below the caller's.
                let lowest = start.max(-i64::from(call.bytes));
                (lowest as u64, len.saturating_sub(lowest.abs_diff(start)))
            }
        };
        // Ranges of more than 2 GiB: the part from the access's own 1 GiB on.
        let is_long = len > i32::MAX as u64;
        let skipped = if is_long { addr.wrapping_sub(start) & !0x3fff_ffff } else { 0 };
        group.bases[lane] = start.wrapping_add(skipped);
        group.lasts[lane] = i32::try_from(len - skipped).map_or(i32::MAX, |len| len - 1);
        group.cells[lane]
    }
}

/// Zeroed pages cost nothing until they are touched.
fn enlarge<T: Clone + Copy + Default>(column: &mut Vec<T>, room: usize) {
    let mut larger = vec![T::default(); room];
    larger[..column.len()].copy_from_slice(column);
    *column = larger;
}

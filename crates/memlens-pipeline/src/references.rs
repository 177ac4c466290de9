//! Where each memory operand of the code went last, and what it is counted for.
//!
//! A reference keeps the range of addresses for which the answer of its last look-up holds, and the cell
//! that its accesses count for. As long as accesses fall into that range nothing is counted for the single
//! reference: its block's executions say how often it ran, and what its cell is due since it took over is
//! booked when the cell changes or somebody asks.

use crate::address_space::{AddressSpace, CacheRange};
use crate::block_table::{BlockTable, Ending, Reference};
use crate::cells::Cells;
use crate::lanes::{Group, LANES};
use crate::stacks::Stacks;

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
    /// Where groups with volatile ranges are.
    volatile: Vec<u32>,
    lookups: u32,
}

/// The groups of the blocks that a thread has run, in the order in which it first did.
#[derive(Debug)]
struct Groups {
    /// By block id. Programs have many blocks, and many threads that run few of them.
    places: Vec<Place>,
    /// A block's groups stand together. The first of all is nobody's.
    all: Vec<Group>,
}

/// Where a block's groups begin; 0 = the thread has not run it. Of blocks that access nothing, and do nothing else that
/// matters, the hot loop needs only how many instructions they have.
///
/// ```text
///  31   30                          0
/// ┌────┬──────────────────────────────┐
/// │ 0  │ first group                  │
/// │ 1  │ instructions                 │
/// └────┴──────────────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(u32);

impl Place {
    const COUNTED: u32 = 1 << 31;

    /// Of a block that need only be counted: its instructions, else 0.
    #[inline(always)]
    pub fn counted(self) -> u32 {
        let is_counted = ((self.0 as i32) >> 31) as u32;
        self.0 & is_counted & !Self::COUNTED
    }

    /// Of any other block: where its groups begin, or 0.
    #[inline(always)]
    pub fn group(self) -> usize {
        let is_counted = ((self.0 as i32) >> 31) as u32;
        (self.0 & !is_counted) as usize
    }
}

impl Groups {
    /// Puts a block's references into groups.
    fn add(&mut self, blocks: &BlockTable, id: u32) {
        if self.places.len() <= id as usize {
            enlarge(&mut self.places, blocks.count().max(id as usize + 1).next_power_of_two());
        }
        let block = blocks.block(id);
        let references = blocks.references_of(id);
        let instructions = block.instructions.max(1);
        if references.is_empty() && block.ending == Ending::Falls && blocks.fetch_rule().is_none() {
            self.places[id as usize] = Place(Place::COUNTED | u32::from(instructions));
            return;
        }
        let begin = self.all.len();
        self.places[id as usize] = Place(begin as u32);
        let mut first = references.start;
        loop {
            let group = Group::of(blocks, first, references.end);
            first += LANES as u32;
            let has_more = first < references.end;
            self.all.push(Group { has_more, ..group });
            if !has_more {
                break;
            }
        }
        let own = &mut self.all[begin];
        (own.instructions, own.ending) = (instructions, block.ending);
        own.slot_word = block.slot_word;
    }
}

impl Group {
    /// The ranges of these lanes hold no more.
    fn end_ranges(&mut self, lanes: u8) {
        for (lane, len) in self.lens.iter_mut().enumerate() {
            if lanes >> lane & 1 == 1 {
                *len = 0;
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
    /// Where its group is.
    pub group: usize,
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
            groups: Groups { places: Vec::new(), all: vec![Group::default()] },
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

    /// Where the groups of a block are.
    #[inline(always)]
    pub fn place(&self, id: u32) -> Place {
        self.groups.places.get(id as usize).copied().unwrap_or_default()
    }

    /// The group at this position. At 0 there is one that ends with [`Ending::Other`].
    #[inline(always)]
    pub fn group(&mut self, position: usize) -> &mut Group {
        &mut self.groups.all[position]
    }

    /// As [`Self::group`], to look at.
    #[inline(always)]
    pub fn peek(&self, position: usize) -> &Group {
        &self.groups.all[position]
    }

    /// Makes the groups of a block, if it has none. Returns where they begin; 0 if it has no references.
    #[inline]
    pub fn prepare(&mut self, blocks: &BlockTable, id: u32) -> usize {
        if self.place(id) == Place::default() {
            self.groups.add(blocks, id);
        }
        self.place(id).group()
    }

    /// The cell of an access outside its reference's range, whose block ran `executed` times before and has
    /// been counted once more; `None` if it is that of the range all the same.
    #[inline(always)]
    pub fn outside(
        &mut self,
        space: &mut AddressSpace,
        stacks: Stacks<'_>,
        blocks: &BlockTable,
        access: Access,
    ) -> Option<u32> {
        let (cell, is_own) = self.look_up(space, stacks, blocks, access);
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
        stacks: Stacks<'_>,
        blocks: &BlockTable,
        (reference, addr): (u32, u64),
        accesses: u64,
    ) -> Option<u32> {
        let &Reference { block, .. } = blocks.references().get(reference as usize)?;
        let first = self.prepare(blocks, block);
        let Group { executions: executed, first_reference, .. } = *self.group(first);
        let place = (reference - first_reference) as usize;
        let (position, lane) = (first + place / LANES, place % LANES);
        let group = self.group(position);
        let frames = stacks.own.innermost();
        let own = group.cells[lane];
        let cell = if group.has(lane, addr, frames) {
            own
        } else {
            let access = Access { reference, group: position, lane, addr, executed };
            self.look_up(space, stacks, blocks, access).0.unwrap_or(own)
        };
        self.cells.add(cell, accesses);
        Some(cell)
    }

    /// Books all accesses counted so far in the cells.
    pub fn settle(&mut self) -> &mut Cells {
        let Self { groups, states, cells, .. } = self;
        let (mut executions, mut is_first) = (0, true);
        for group in &groups.all {
            if is_first {
                executions = group.executions;
            }
            is_first = !group.has_more;
            for lane in 0..usize::from(group.accesses) {
                let state = &mut states[group.first_reference as usize + lane];
                let due = executions - std::mem::replace(&mut state.booked, executions);
                cells.add(group.cells[lane], due);
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
        for position in self.volatile.drain(..) {
            let group = &mut self.groups.all[position as usize];
            let volatile = std::mem::take(&mut group.volatile);
            group.end_ranges(volatile);
        }
    }

    /// Forgets all ranges.
    pub fn forget_all(&mut self) {
        self.volatile.clear();
        for group in &mut self.groups.all {
            group.lens = [0; LANES];
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
        stacks: Stacks<'_>,
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
        (Some(self.find(space, stacks, blocks, access)), true)
    }

    /// As [`Self::look_up`]; the range is kept for the next access.
    #[inline(never)]
    fn find(
        &mut self,
        space: &mut AddressSpace,
        stacks: Stacks<'_>,
        blocks: &BlockTable,
        access: Access,
    ) -> u32 {
        let Access { reference, group: position, lane, addr, executed } = access;
        let pc = blocks.references().get(reference as usize).map_or(0, |reference| reference.pc);
        let resolved = space.resolve(addr, pc, stacks);
        let object = resolved.object.get();
        let group = &mut self.groups.all[position];
        let lane = lane % LANES;
        let state = &mut self.states[reference as usize];
        if state.object != object {
            self.cells.add(group.cells[lane], executed - state.booked);
            *state = State { booked: executed, object };
            let offset = || space.offset_of(addr, resolved.range, stacks);
            group.cells[lane] = self.cells.of(reference, object, offset);
        }
        let bit = 1 << lane;
        group.frames &= !bit;
        group.callers &= !bit;
        let (start, len) = match resolved.range {
            // What held for the last object need not for this one.
            CacheRange::Nothing | CacheRange::OtherFrame { .. } => (0, 0),
            CacheRange::Fixed { start, len } => (start, len),
            CacheRange::Volatile { start, len } => {
                if group.volatile == 0 {
                    self.volatile.push(position as u32);
                }
                group.volatile |= bit;
                (start, len)
            }
            CacheRange::Frame { start, len } => {
                group.frames |= bit;
                (start as u64, len)
            }
            CacheRange::Caller { start, len } => {
                let call = stacks.own.innermost().call;
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
        let is_long = len > 2 << 30;
        let skipped = if is_long { addr.wrapping_sub(start) & !0x3fff_ffff } else { 0 };
        group.bases[lane] = start.wrapping_add(skipped);
        group.lens[lane] = (len - skipped).min(2 << 30) as u32;
        group.cells[lane]
    }
}

/// Zeroed pages cost nothing until they are touched.
fn enlarge<T: Clone + Copy + Default>(column: &mut Vec<T>, room: usize) {
    let mut larger = vec![T::default(); room];
    larger[..column.len()].copy_from_slice(column);
    *column = larger;
}

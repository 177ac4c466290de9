//! Where each memory operand of the code went last, and what it is counted for.

use crate::address_space::{AddressSpace, CacheRange};
use crate::cells::Cells;
use crate::shadow_stack::ShadowStack;

/// Where a reference's last access fell: see the crate's docs. Half a cache line.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceState {
    /// First address of the range, minus the frame address if `frame_mask` is −1.
    base: u64,
    /// Accesses of `cell` that [`Cells`] does not know yet.
    hits: u64,
    /// Bytes; 0 = no range, look every access up. Longer ranges are cut around the access.
    len: u32,
    /// −1 for ranges relative to the frame, else 0.
    frame_mask: i32,
    /// The cell of the reference and `object`.
    cell: u32,
    /// The object found last; 0 = none yet.
    object: u32,
}

/// So often a look-up that found a small block asks whether the block is large.
const RANGE_ATTEMPT_INTERVAL: u32 = 16;

/// Where a reference's last access to the frame of the innermost function's caller fell.
#[derive(Clone, Copy, Debug, Default)]
struct CallerRange {
    /// The call: its return address as a frame key.
    call: u64,
    /// First address minus the caller's frame address.
    start: i64,
    /// Bytes.
    len: u64,
    cell: u32,
}

/// A thread's references.
#[derive(Debug)]
pub struct References {
    states: Vec<ReferenceState>,
    lookups: Lookups,
}

/// What look-ups need besides the state of the one reference.
#[derive(Debug)]
struct Lookups {
    cells: Cells,
    /// By reference number, for those that touch their callers' frames.
    callers: Vec<CallerRange>,
    /// References whose state holds a volatile range.
    volatile: Vec<u32>,
    count: u32,
}

/// An access to look up.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Number of the reference.
    pub reference: u32,
    /// Address of the instruction.
    pub pc: u64,
    /// Address accessed.
    pub addr: u64,
}

impl References {
    /// None yet.
    pub fn new() -> Self {
        let lookups = Lookups { cells: Cells::new(), callers: Vec::new(), volatile: Vec::new(), count: 0 };
        Self { states: Vec::new(), lookups }
    }

    /// Makes room for the states of `count` references.
    #[inline]
    pub fn reserve(&mut self, count: usize) {
        if self.states.len() < count {
            // Zeroed pages cost nothing until they are touched.
            let mut larger = vec![ReferenceState::default(); count.next_power_of_two()];
            larger[..self.states.len()].copy_from_slice(&self.states);
            self.states = larger;
            let mut larger = vec![CallerRange::default(); self.states.len()];
            larger[..self.lookups.callers.len()].copy_from_slice(&self.lookups.callers);
            self.lookups.callers = larger;
        }
    }

    /// Counts one access each of the references from `first` on, whose addresses are `addrs`, and puts
    /// each access's cell into `cells`.
    #[inline(always)]
    pub fn count_block(
        &mut self,
        space: &mut AddressSpace,
        stack: &ShadowStack,
        (first, addrs): (u32, &[u64]),
        pc_of: impl Fn(u32) -> u64,
        cells: &mut [u32],
    ) {
        let Some(states) = self.states.get_mut(first as usize..first as usize + addrs.len()) else { return };
        let cfa = stack.cfa();
        for (index, ((&addr, state), place)) in addrs.iter().zip(states).zip(cells).enumerate() {
            let frame = cfa & i64::from(state.frame_mask) as u64;
            let offset = addr.wrapping_sub(frame).wrapping_sub(state.base);
            *place = if offset < u64::from(state.len) {
                state.hits += 1;
                state.cell
            } else {
                let reference = first + index as u32;
                let access = Access { reference, pc: pc_of(reference), addr };
                self.lookups.look_up(space, stack, state, access, 1)
            };
        }
    }

    /// Counts `accesses` accesses at one address; returns their cell.
    pub fn count(
        &mut self,
        space: &mut AddressSpace,
        stack: &ShadowStack,
        access: Access,
        accesses: u64,
    ) -> Option<u32> {
        let state = self.states.get_mut(access.reference as usize)?;
        let frame = stack.cfa() & i64::from(state.frame_mask) as u64;
        let offset = access.addr.wrapping_sub(frame).wrapping_sub(state.base);
        if offset < u64::from(state.len) {
            state.hits += accesses;
            return Some(state.cell);
        }
        Some(self.lookups.look_up(space, stack, state, access, accesses))
    }

    /// Books all accesses counted so far in the cells.
    pub fn settle(&mut self) -> &mut Cells {
        for state in self.states.iter_mut().filter(|state| state.hits > 0) {
            self.lookups.cells.add(state.cell, std::mem::take(&mut state.hits));
        }
        &mut self.lookups.cells
    }

    /// The cells; their counts are complete after [`Self::settle`] only.
    pub fn cells(&self) -> &Cells {
        &self.lookups.cells
    }

    /// The cells, to book misses and bytes in.
    #[inline(always)]
    pub fn cells_mut(&mut self) -> &mut Cells {
        &mut self.lookups.cells
    }

    /// Forgets ranges that may no longer hold.
    pub fn forget_volatile(&mut self) {
        for reference in self.lookups.volatile.drain(..) {
            self.states[reference as usize].len = 0;
        }
    }

    /// Forgets all ranges.
    pub fn forget_all(&mut self) {
        self.lookups.volatile.clear();
        self.lookups.callers.fill(CallerRange::default());
        for state in &mut self.states {
            state.len = 0;
        }
    }
}

impl Lookups {
    /// The cell of an access outside its reference's range, counted.
    ///
    /// Code that walks many small blocks comes here with every access: whose block it is costs two
    /// loads; whether the block is large enough to keep its range costs a third, which is paid once
    /// in a while only.
    #[inline]
    fn look_up(
        &mut self,
        space: &mut AddressSpace,
        stack: &ShadowStack,
        state: &mut ReferenceState,
        access: Access,
        accesses: u64,
    ) -> u32 {
        if access.addr >= stack.cfa()
            && let [.., caller, inner] = stack.frames()
        {
            let offset = access.addr.wrapping_sub(caller.slot.wrapping_add(8)) as i64;
            if offset < 0 {
                let cell = self.in_caller(space, stack, access, (inner.return_key, offset));
                self.cells.add(cell, accesses);
                return cell;
            }
        }
        self.count = self.count.wrapping_add(1);
        if !self.count.is_multiple_of(RANGE_ATTEMPT_INTERVAL)
            && let Some(object) = space.heap.blocks().object_at(access.addr)
            && state.object == object.get()
        {
            state.hits += accesses;
            return state.cell;
        }
        self.find(space, stack, state, access, accesses)
    }

    /// As [`Self::look_up`]; the range is kept for the next access.
    #[inline(never)]
    fn find(
        &mut self,
        space: &mut AddressSpace,
        stack: &ShadowStack,
        state: &mut ReferenceState,
        access: Access,
        accesses: u64,
    ) -> u32 {
        let Access { reference, pc, addr } = access;
        let resolved = space.resolve(addr, pc, stack);
        let object = resolved.object.get();
        if state.object != object {
            self.cells.add(state.cell, std::mem::take(&mut state.hits));
            state.object = object;
            state.cell = self.cells.of(reference, object);
        }
        state.hits += accesses;
        let (start, len, frame_mask) = match resolved.range {
            // What held for the last object need not for this one.
            CacheRange::Nothing | CacheRange::Caller { .. } => (0, 0, 0),
            CacheRange::Fixed { start, len } => (start, len, 0),
            CacheRange::Volatile { start, len } => {
                self.volatile.push(reference);
                (start, len, 0)
            }
            CacheRange::Frame { start, len } => (start as u64, len, -1),
        };
        // Ranges longer than 4 GiB: the part from the access's own 1 GiB on.
        let skipped = match len > u64::from(u32::MAX) {
            true => addr.wrapping_sub(start) & !0x3fff_ffff,
            false => 0,
        };
        state.base = start.wrapping_add(skipped);
        state.len = u32::try_from(len - skipped).unwrap_or(u32::MAX);
        state.frame_mask = frame_mask;
        state.cell
    }

    /// The cell of an access to the caller's frame, at this offset from its frame address. Through
    /// pointers to a caller's variables such accesses are as frequent as those to one's own.
    #[inline]
    fn in_caller(
        &mut self,
        space: &mut AddressSpace,
        stack: &ShadowStack,
        Access { reference, pc, addr }: Access,
        (call, offset): (u64, i64),
    ) -> u32 {
        if let Some(known) = self.callers.get(reference as usize)
            && known.call == call
            && (offset.wrapping_sub(known.start) as u64) < known.len
        {
            return known.cell;
        }
        self.find_in_caller(space, stack, Access { reference, pc, addr }, call)
    }

    #[inline(never)]
    fn find_in_caller(
        &mut self,
        space: &mut AddressSpace,
        stack: &ShadowStack,
        Access { reference, pc, addr }: Access,
        call: u64,
    ) -> u32 {
        let resolved = space.resolve(addr, pc, stack);
        let cell = self.cells.of(reference, resolved.object.get());
        if let CacheRange::Caller { start, len } = resolved.range {
            self.callers[reference as usize] = CallerRange { call, start, len, cell };
        }
        cell
    }
}

const _: () = assert!(size_of::<ReferenceState>() == 32);

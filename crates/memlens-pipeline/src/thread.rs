//! A thread of the target, as the pipeline sees it.

use crate::address_space::{AddressSpace, CacheRange};
use crate::cells::Cells;
use crate::shadow_stack::ShadowStack;
use rustc_hash::FxHashMap;

/// Where a reference's last access fell: see the crate's docs.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceState {
    /// First address of the range, minus the frame address if `frame_mask` is all ones.
    pub base: u64,
    /// Bytes; 0 = no range, look every access up.
    pub len: u64,
    /// All ones for ranges relative to the frame, else zero.
    pub frame_mask: u64,
    /// The cell of the reference and `object`.
    pub cell: u32,
    /// The object found last; 0 = none yet.
    pub object: u32,
}

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

/// A call of an allocation function that has not returned.
#[derive(Clone, Copy, Debug)]
pub struct PendingAllocation {
    /// Where its return address lies.
    pub slot: u64,
    /// Index in the table of allocation functions.
    pub function: u16,
    /// Its first four integer arguments.
    pub arguments: [u64; 4],
}

/// A thread.
pub struct Thread {
    /// The kernel's id.
    pub tid: u32,
    /// Instructions executed.
    pub instructions: u64,
    /// Calls under way.
    pub stack: ShadowStack,
    /// What its references did.
    pub cells: Cells,
    /// States of all references, by number.
    pub states: Vec<ReferenceState>,
    /// By reference number, for those that touch their callers' frames.
    callers: FxHashMap<u32, CallerRange>,
    /// References whose state holds a volatile range.
    volatile: Vec<u32>,
    /// Allocation calls under way, outermost first.
    pub pending: Vec<PendingAllocation>,
    /// A finished call whose block's address follows in an event.
    pub awaiting_pointer: Option<PendingAllocation>,
}

impl Thread {
    /// A thread about to run.
    pub fn new(tid: u32, stack: ShadowStack) -> Self {
        Self {
            tid,
            instructions: 0,
            stack,
            cells: Cells::new(),
            states: Vec::new(),
            callers: FxHashMap::default(),
            volatile: Vec::new(),
            pending: Vec::new(),
            awaiting_pointer: None,
        }
    }

    /// Makes room for the states of `count` references.
    #[inline]
    pub fn reserve_states(&mut self, count: usize) {
        if self.states.len() < count {
            // Zeroed pages cost nothing until they are touched.
            let mut larger = vec![ReferenceState::default(); count.next_power_of_two()];
            larger[..self.states.len()].copy_from_slice(&self.states);
            self.states = larger;
        }
    }

    /// Forgets ranges that may no longer hold.
    pub fn forget_volatile(&mut self) {
        for reference in self.volatile.drain(..) {
            self.states[reference as usize].len = 0;
        }
    }

    /// Forgets all ranges.
    pub fn forget_all(&mut self) {
        self.volatile.clear();
        self.callers.clear();
        for state in &mut self.states {
            state.len = 0;
        }
    }

    /// The cell of an access to the caller's frame, at this offset from its frame address. Through
    /// pointers to a caller's variables such accesses are as frequent as those to one's own.
    fn look_up_in_caller(
        &mut self,
        space: &mut AddressSpace,
        reference: u32,
        pc: u64,
        addr: u64,
        (call, offset): (u64, i64),
    ) -> u32 {
        if let Some(known) = self.callers.get(&reference)
            && known.call == call
            && (offset.wrapping_sub(known.start) as u64) < known.len
        {
            return known.cell;
        }
        let resolved = space.resolve(addr, pc, &self.stack);
        let cell = self.cells.of(reference, resolved.object.get());
        if let CacheRange::Caller { start, len } = resolved.range {
            self.callers.insert(reference, CallerRange { call, start, len, cell });
        }
        cell
    }

    /// The cell of an access, looked up; its range is kept for the next one.
    pub fn look_up(&mut self, space: &mut AddressSpace, reference: u32, pc: u64, addr: u64) -> u32 {
        if addr >= self.stack.cfa()
            && let [.., caller, inner] = self.stack.frames()
        {
            let offset = addr.wrapping_sub(caller.slot.wrapping_add(8)) as i64;
            if offset < 0 {
                let call = inner.return_key;
                return self.look_up_in_caller(space, reference, pc, addr, (call, offset));
            }
        }
        let resolved = space.resolve(addr, pc, &self.stack);
        let object = resolved.object.get();
        let state = &mut self.states[reference as usize];
        if state.object != object {
            state.object = object;
            state.cell = self.cells.of(reference, object);
        }
        let (base, len, frame_mask) = match resolved.range {
            CacheRange::Nothing | CacheRange::Caller { .. } => return state.cell,
            CacheRange::Fixed { start, len } => (start, len, 0),
            CacheRange::Volatile { start, len } => {
                self.volatile.push(reference);
                (start, len, 0)
            }
            CacheRange::Frame { start, len } => (start as u64, len, u64::MAX),
        };
        *state = ReferenceState { base, len, frame_mask, ..*state };
        state.cell
    }
}

//! The calls under way in a thread, rebuilt from its records.
//!
//! A call pushes its return address: the address of that push (the *slot*) is in the record, and the
//! callee's canonical frame address (CFA) is the slot + 8. A return pops the frame with its slot. When
//! frames are left otherwise (longjmp, exceptions), the next call or return from further up discards
//! those below it: a live frame's slot is always above the slots of the frames it called.
//!
//! ```text
//!  high addresses    slot(main) ── CFA of main = slot + 8
//!                    locals of main
//!                    slot(f)
//!                    locals of f              an address belongs to the innermost frame
//!                    slot(g)                  whose CFA is above it
//!  low addresses     locals of g
//! ```
//!
//! Programs have other stacks, too: signal stacks, coroutines. A slot outside the current stack's
//! range switches to the stack that it lies in.

use crate::lanes::{Call, Frames};
use std::ops::Range;

/// A call under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Where the return address lies.
    pub slot: u64,
    /// The return address.
    pub return_pc: u64,
    /// The return address as [`memlens_objects::frame_key`].
    pub return_key: u64,
}

/// A thread's calls.
#[derive(Clone, Debug)]
pub struct ShadowStack {
    frames: Vec<Frame>,
    innermost: Frames,
    range: Range<u64>,
    is_region: bool,
    base_cfa: u64,
    resumed_pc: u64,
    parked: Vec<Parked>,
}

#[derive(Clone, Debug)]
struct Parked {
    range: Range<u64>,
    is_region: bool,
    base_cfa: u64,
    resumed_pc: u64,
    frames: Vec<Frame>,
}

/// The calls under way on one of a thread's stacks.
#[derive(Clone, Copy, Debug)]
pub struct Calls<'a> {
    /// Outermost first.
    frames: &'a [Frame],
    /// Where the innermost function went on after the last call that it made; 0: it has made none.
    resumed_pc: u64,
    /// Frame address of the outermost function.
    base_cfa: u64,
}

/// A frame that an address lies in, as another thread sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenFrame {
    /// Where its function goes on, or went on last.
    pub pc: u64,
    /// Its canonical frame address.
    pub cfa: u64,
    /// Whether it is the innermost one. Then it is not known how far down it goes.
    pub is_innermost: bool,
}

impl Calls<'_> {
    /// The frame that `addr` lies in, if its function is known.
    pub fn frame_at(&self, addr: u64) -> Option<SeenFrame> {
        let cfa_of = |frame: &Frame| frame.slot.wrapping_add(8);
        let innermost = self.frames.last().map_or(self.base_cfa, cfa_of);
        let seen = if addr < innermost {
            SeenFrame { pc: self.resumed_pc, cfa: innermost, is_innermost: true }
        } else {
            let index = self.frames.iter().rposition(|frame| addr < cfa_of(frame))?;
            let pc = self.frames.get(index + 1)?.return_pc;
            SeenFrame { pc, cfa: cfa_of(&self.frames[index]), is_innermost: false }
        };
        (seen.pc != 0).then_some(seen)
    }
}

/// What [`Call::bytes`] can tell apart.
const MAX_FRAME_BYTES: u64 = u32::MAX as u64;

/// So many stacks are remembered besides the current one; the one left longest ago goes first.
const MAX_PARKED: usize = 256;

impl ShadowStack {
    /// A thread that begins with this stack pointer, on a stack of this range.
    pub fn new(stack_pointer: u64, range: Range<u64>) -> Self {
        Self {
            frames: Vec::new(),
            innermost: Frames { cfa: stack_pointer, ..Frames::default() },
            range,
            is_region: true,
            base_cfa: stack_pointer,
            resumed_pc: 0,
            parked: Vec::new(),
        }
    }

    /// Frame address of the innermost call.
    #[inline(always)]
    pub fn cfa(&self) -> u64 {
        self.innermost.cfa
    }

    /// The innermost frames.
    #[inline(always)]
    pub fn innermost(&self) -> Frames {
        self.innermost
    }

    /// The current stack.
    pub fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// Whether the current stack is a region of its own, not part of a heap block or mapping.
    #[inline(always)]
    pub fn is_region(&self) -> bool {
        self.is_region
    }

    /// Calls under way on the current stack, outermost first.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// The calls on the stack that `addr` lies on, the current one or one that the thread has left.
    pub fn calls_around(&self, addr: u64) -> Option<Calls<'_>> {
        if self.range.contains(&addr) {
            let Self { frames, resumed_pc, base_cfa, .. } = self;
            return Some(Calls { frames, resumed_pc: *resumed_pc, base_cfa: *base_cfa });
        }
        let left = self.parked.iter().rev().find(|parked| parked.range.contains(&addr))?;
        let Parked { frames, resumed_pc, base_cfa, .. } = left;
        Some(Calls { frames, resumed_pc: *resumed_pc, base_cfa: *base_cfa })
    }

    /// Whether a slot lies outside the current stack.
    #[inline(always)]
    pub fn is_elsewhere(&self, slot: u64) -> bool {
        !self.range.contains(&slot)
    }

    /// Continues on the stack of range `range`.
    pub fn switch(&mut self, (range, is_region): (Range<u64>, bool), stack_pointer: u64) {
        let entered = self.parked.iter().position(|parked| parked.range == range);
        let entered = match entered {
            Some(at) => self.parked.remove(at),
            None => Parked { range, is_region, base_cfa: stack_pointer, resumed_pc: 0, frames: Vec::new() },
        };
        let left = Parked {
            range: std::mem::replace(&mut self.range, entered.range),
            is_region: std::mem::replace(&mut self.is_region, entered.is_region),
            base_cfa: std::mem::replace(&mut self.base_cfa, entered.base_cfa),
            resumed_pc: std::mem::replace(&mut self.resumed_pc, entered.resumed_pc),
            frames: std::mem::replace(&mut self.frames, entered.frames),
        };
        if self.parked.len() == MAX_PARKED {
            self.parked.remove(0);
        }
        self.parked.push(left);
        self.set_innermost();
    }

    /// A call whose return address went to `slot`.
    #[inline]
    pub fn call(&mut self, slot: u64, return_pc: u64, return_key: u64) {
        self.leave_up_to(slot);
        self.frames.push(Frame { slot, return_pc, return_key });
        self.resumed_pc = 0;
        self.set_innermost();
    }

    /// A return through the return address at `slot`.
    #[inline]
    pub fn ret(&mut self, slot: u64) {
        self.leave_up_to(slot);
        self.set_innermost();
    }

    /// The kernel built a frame for a signal handler, which begins with this stack pointer.
    pub fn signal(&mut self, stack_pointer: u64, interrupted_key: u64) {
        self.call(stack_pointer, 0, interrupted_key);
    }

    #[inline]
    fn leave_up_to(&mut self, slot: u64) {
        let mut resumed_pc = 0;
        while let Some(frame) = self.frames.last()
            && frame.slot <= slot
        {
            resumed_pc = if frame.slot == slot { frame.return_pc } else { 0 };
            self.frames.pop();
        }
        self.resumed_pc = resumed_pc;
    }

    #[inline]
    fn set_innermost(&mut self) {
        self.innermost = match self.frames.as_slice() {
            [.., caller, inner] => Frames {
                cfa: inner.slot.wrapping_add(8),
                caller_cfa: caller.slot.wrapping_add(8),
                call: Call {
                    key: inner.return_key,
                    bytes: (caller.slot - inner.slot).min(MAX_FRAME_BYTES) as u32,
                },
            },
            [only] => Frames { cfa: only.slot.wrapping_add(8), ..Frames::default() },
            [] => Frames { cfa: self.base_cfa, ..Frames::default() },
        };
    }

    /// The frame that `addr` belongs to, if it lies in the stack's used part: the index of the frame
    /// counted from the outermost (`frames().len()` stands for the innermost function's own frame is
    /// `len - 1`), or `None` above the outermost known frame.
    pub fn frame_of(&self, addr: u64) -> Option<usize> {
        // From the innermost outwards: the first CFA above the address.
        self.frames.iter().rposition(|frame| addr < frame.slot.wrapping_add(8))
    }

    /// Keys of the return addresses from `slot` outwards, innermost first: the call stack of the call
    /// whose return address lies at `slot`. Direct recursion is folded.
    pub fn call_stack(&self, slot: u64, keys: &mut Vec<u64>, max_frames: usize) -> bool {
        keys.clear();
        for frame in self.frames.iter().rev().filter(|frame| frame.slot >= slot) {
            if keys.last() == Some(&frame.return_key) {
                continue;
            }
            if keys.len() == max_frames {
                return false;
            }
            keys.push(frame.return_key);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack() -> ShadowStack {
        ShadowStack::new(0x1000, 0..0x2000)
    }

    #[test]
    fn calls_and_returns_move_the_frame() {
        let mut stack = stack();
        assert_eq!(stack.cfa(), 0x1000);
        stack.call(0xff0, 10, 10); // main
        stack.call(0xf80, 20, 20); // f
        assert_eq!(stack.cfa(), 0xf88);
        // f's frame: below 0xf88. main's: from there up to 0xff8. Above: before main.
        assert_eq!(stack.frame_of(0xf00), Some(1));
        assert_eq!(stack.frame_of(0xf87), Some(1));
        assert_eq!(stack.frame_of(0xf88), Some(0));
        assert_eq!(stack.frame_of(0xff8), None);
        stack.ret(0xf80);
        assert_eq!(stack.cfa(), 0xff8);
    }

    #[test]
    fn frames_left_by_longjmp_are_discarded() {
        let mut stack = stack();
        for (slot, pc) in [(0xff0, 1), (0xf80, 2), (0xf00, 3), (0xe80, 4)] {
            stack.call(slot, pc, pc);
        }
        // longjmp into the function called at 0xf80, which then calls from 0xf40.
        stack.call(0xf40, 5, 5);
        let pcs: Vec<u64> = stack.frames().iter().map(|frame| frame.return_pc).collect();
        assert_eq!(pcs, [1, 2, 5]);
    }

    #[test]
    fn recursion_is_folded_in_call_stacks() {
        let mut stack = stack();
        for (slot, key) in [(0xff0, 1), (0xf80, 2), (0xf40, 2), (0xf00, 2), (0xec0, 3)] {
            stack.call(slot, key, key);
        }
        let mut keys = Vec::new();
        assert!(stack.call_stack(0xec0, &mut keys, 100));
        assert_eq!(keys, [3, 2, 1]);
        assert!(stack.call_stack(0xf00, &mut keys, 100));
        assert_eq!(keys, [2, 1]);
        assert!(!stack.call_stack(0xec0, &mut keys, 2));
        assert_eq!(keys, [3, 2]);
    }

    #[test]
    fn other_threads_see_the_frames_of_functions_that_have_made_a_call() {
        let mut stack = stack();
        stack.call(0xff0, 10, 10); // main
        stack.call(0xf80, 20, 20); // f
        let at = |stack: &ShadowStack, addr| {
            let seen = stack.calls_around(addr).and_then(|calls| calls.frame_at(addr))?;
            Some((seen.pc, seen.cfa, seen.is_innermost))
        };
        // main goes on at 20. What is below f's CFA is f's, which has not made a call.
        assert_eq!(at(&stack, 0xf90), Some((20, 0xff8, false)));
        assert_eq!(at(&stack, 0xf00), None);
        assert_eq!(at(&stack, 0xff8), None, "above main");
        assert_eq!(at(&stack, 0x2000), None, "no stack");
        stack.call(0xf00, 30, 30); // g
        assert_eq!(at(&stack, 0xf10), Some((30, 0xf88, false)));
        stack.ret(0xf00);
        // f is the innermost one, and went on at 30.
        assert_eq!(at(&stack, 0xf00), Some((30, 0xf88, true)));
        stack.switch((0x4000..0x6000, true), 0x5008);
        assert_eq!(at(&stack, 0xf00), Some((30, 0xf88, true)), "left, and not ended");
        stack.switch((0..0x2000, true), 0xf00);
        // A return that belongs to no call is out of whatever there was.
        stack.ret(0xf88);
        assert_eq!(at(&stack, 0xf90), None);
    }

    #[test]
    fn stacks_are_parked_and_found_again() {
        let mut stack = stack();
        stack.call(0xff0, 1, 1);
        assert!(stack.is_elsewhere(0x5000));
        stack.switch((0x4000..0x6000, true), 0x5008);
        stack.call(0x5000, 2, 2);
        assert_eq!(stack.frames().len(), 1);
        stack.switch((0..0x2000, true), 0xf00);
        assert_eq!(stack.cfa(), 0xff8);
        stack.switch((0x4000..0x6000, true), 0x4f00);
        assert_eq!(stack.cfa(), 0x5008);
    }
}

//! Which function's frame an address of the stack belongs to, while a burst goes on.
//!
//! The frames at its begin are unwound from the tick. From then on accesses tell: what touches the stack below all frames
//! known has been called, and what touches its own frame has been returned to. A call stores its return address
//! last, so the canonical frame address of what was called is one word above the caller's last access.
//!
//! ```text
//!   main │ frame …………… low │ f │ frame …… low │            a function touches
//!        ▲ outermost                  ▲ innermost  ▲        below all: it is a new frame
//!                                                           its own frame: those below it are gone
//!                                                           another's: an argument, nothing changes
//! ```
//!
//! Where accesses by the registers of the stack were left out, nothing tells of calls: the frames of the tick stand for the whole
//! burst, the innermost for its own function only, and what is nobody's is not known.
//!
//! A function that calls itself touches what is below all frames in its own frame, too, as if that grew. There the begin of the
//! function behind its last access tells of the call, and the load of the return address of the return. A tick copies a part of a deep
//! stack: above it, frames are taken to be as large as they were where the function called itself before.
//!
//! A function that calls itself through others may stand there once for several times; functions that never touch their
//! frames do not stand there. What runs on another stack than the tick's seems to be called from where that was left; above the outermost frame that
//! was found, a function that goes on seems to be called by the one that returned to it.

use std::ops::Range;

use memlens_profile::{CallPaths, MAX_PATH_FRAMES, PathId};
use rustc_hash::FxHashMap;

use crate::address_space::Code;
use crate::unwinder::RED_ZONE;

/// How far below the stack pointer of its tick a burst's frames are looked for, in bytes.
const BELOW_STACK_POINTER: u64 = 1 << 20;
const WORD: u64 = 8;
/// How large the last frame that was found is taken to be, if that is not known: it may hold more than a tick copies of the
/// stack.
const UNKNOWN_BYTES: u64 = 1 << 20;
/// Deeper calls are their callers'.
const MOST_FRAMES: usize = 4096;

/// Where an access is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessor {
    /// The instruction.
    pub code: Code,
    /// Where its function begins.
    pub function: Code,
}

/// A frame that is in use.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Its function, and the instruction of it that was executed last, as far as is known.
    at: Accessor,
    /// The canonical frame address.
    cfa: u64,
    /// The lowest address that it has.
    low: u64,
    /// Where the function touched it last.
    last: u64,
    /// Through which calls the function was reached, if that was asked for.
    callers: Option<PathId>,
}

impl Frame {
    /// Of a function that has touched as much of it.
    fn new(at: Accessor, cfa: u64, low: u64) -> Self {
        Self { at, cfa, low, last: low, callers: None }
    }
}

/// The frames of a burst's thread, outermost first.
#[derive(Debug)]
pub struct Calls {
    frames: Vec<Frame>,
    lowest: u64,
    /// From here on addresses are only thought to be in the outermost frame: where that ends is not known.
    supposed_from: u64,
    /// Whether accesses tell of calls.
    are_followed: bool,
    /// The lowest address of the frame that is innermost at the begin, its red zone included, and how far down it is known to reach.
    first_low: (u64, u64),
    /// Whether the last access was the innermost function's to its frame, at its lowest address.
    is_lowest: bool,
    /// Where a frame begins whose end is not known, while nothing of it is in use but the outermost frame.
    base: Option<u64>,
    /// The bytes from one frame to the next of functions that called themselves.
    bytes: FxHashMap<Code, u64>,
}

impl Calls {
    /// Without frames.
    pub fn new(are_followed: bool) -> Self {
        Self {
            frames: Vec::new(),
            lowest: 0,
            supposed_from: u64::MAX,
            are_followed,
            first_low: (0, 0),
            is_lowest: false,
            base: None,
            bytes: FxHashMap::default(),
        }
    }

    /// Nothing is known of the stack.
    pub fn forget(&mut self) {
        self.frames.clear();
    }

    /// Begins with what was unwound: the stack pointer, and the frames with their addresses, innermost first. The last
    /// one's address may be unknown; nothing of the stack lies from `end` on.
    pub fn begin(&mut self, pointer: u64, end: u64, unwound: impl Iterator<Item = (Accessor, Option<u64>)>) {
        self.frames.clear();
        self.lowest = pointer.saturating_sub(BELOW_STACK_POINTER);
        self.supposed_from = u64::MAX;
        let mut low = pointer.saturating_sub(RED_ZONE);
        (self.first_low, self.is_lowest, self.base) = ((low, pointer), false, None);
        for (at, cfa) in unwound {
            let called = self.frames.last().map(|called| called.at.function);
            if let Some(cfa) = cfa
                && called == Some(at.function)
            {
                self.bytes.insert(at.function, cfa.saturating_sub(low));
            }
            let cfa = cfa.unwrap_or_else(|| {
                self.supposed_from = low;
                self.base = called.map(|_| low);
                low.saturating_add(UNKNOWN_BYTES).min(end)
            });
            self.frames.push(Frame::new(at, cfa, low));
            low = cfa;
        }
        self.frames.reverse();
    }

    /// Whether an address that [`Self::touch`] would find in a frame may be of something else beside the stack.
    pub fn is_supposed(&self, address: u64) -> bool {
        self.frames.first().is_some_and(|outermost| (self.supposed_from..outermost.cfa).contains(&address))
    }

    /// Where [`Self::touch`] may find frames during the present burst.
    pub fn stack(&self) -> Range<u64> {
        self.frames.first().map_or(0..0, |outermost| self.lowest..outermost.cfa)
    }

    /// The instruction that called the function of an access just made, as far as is known.
    pub fn caller_of(&self, by: Accessor) -> Option<Code> {
        let mut callers = self.frames.iter().rev().skip_while(|frame| frame.at.function == by.function);
        callers.next().filter(|_| self.are_followed).map(|frame| frame.at.code)
    }

    /// Through which calls the function of an access just made was reached. None: not known, or there is no room for it. Calls stand there by an
    /// address in them and one byte more, as return addresses do.
    pub fn callers_of(&mut self, by: Accessor, paths: &mut CallPaths<Code>) -> Option<PathId> {
        if !self.are_followed || self.frames.is_empty() {
            return None;
        }
        let call = |frame: &Frame| (frame.at.code.0, frame.at.code.1.wrapping_add(1));
        // A function that keeps nothing on the stack has no frame.
        let own = self.frames.iter().rposition(|frame| frame.at.function == by.function);
        let callers = own.unwrap_or(self.frames.len());
        if callers > MAX_PATH_FRAMES {
            let known = self.frames.get(callers).and_then(|frame| frame.callers);
            let path = known.or_else(|| paths.intern(self.frames[..callers].iter().rev().map(call)));
            self.frames.iter_mut().skip(callers).take(1).for_each(|frame| frame.callers = path);
            return path;
        }
        // While a frame has others below it, the call that it waits for is the same.
        let known = self.frames.iter().take(callers + 1).enumerate().rev();
        let known = known.filter_map(|(at, frame)| Some((at, frame.callers?))).next();
        let (first, mut path) = known.unwrap_or((0, PathId::ROOT));
        for at in first..callers {
            path = paths.child(path, call(&self.frames[at]))?;
            if let Some(called) = self.frames.get_mut(at + 1) {
                called.callers = Some(path);
            }
        }
        Some(path)
    }

    /// An access: the instruction in whose function's frame it is, and its distance from that frame's address. None: it is
    /// not on the stack as far as that is known.
    pub fn touch(&mut self, address: u64, by: Accessor) -> Option<(Code, i64)> {
        if !self.stack().contains(&address) {
            return None;
        }
        self.is_lowest = false;
        let innermost = *self.frames.last()?;
        if !self.are_followed {
            let owner = self.frames.iter().rev().find(|frame| (frame.low..frame.cfa).contains(&address))?;
            let may_be_gone = owner.cfa == innermost.cfa && owner.at.function != by.function;
            return (!may_be_gone).then(|| (owner.at.code, address.wrapping_sub(owner.cfa) as i64));
        }
        if address < innermost.low && innermost.at.function != by.function {
            let cfa = innermost.last.max(address) + WORD;
            if self.frames.len() < MOST_FRAMES {
                self.frames.push(Frame::new(by, cfa, address));
            }
        } else if let Some(own) = self.frames.iter().rposition(|frame| frame.at.function == by.function) {
            self.frames.truncate(own + 1);
        }
        self.take_usual(by);
        let innermost = self.frames.last_mut()?;
        let mut returns = false;
        if innermost.at.function == by.function && address < innermost.cfa {
            let is_first = innermost.low == self.first_low.0;
            self.is_lowest = address <= if is_first { self.first_low.1 } else { innermost.low };
            if is_first {
                self.first_low.1 = self.first_low.1.min(address);
            }
            innermost.low = innermost.low.min(address);
            (innermost.at, innermost.last) = (by, address);
            returns = address + WORD == innermost.cfa;
        }
        let owner = self.frames.iter().rev().find(|frame| address < frame.cfa)?;
        let found = (owner.at.code, address.wrapping_sub(owner.cfa) as i64);
        if returns {
            self.leave();
        }
        Some(found)
    }

    /// Whether a block that begins now may have been called by the function that made the last access: see [`Self::block`].
    #[inline]
    pub fn may_be_called(&self) -> bool {
        self.is_lowest
    }

    /// A block begins at this instruction, behind an access to the lowest address of the innermost frame. If it is the begin of that
    /// frame's function, the function has called itself: the access stored the return address.
    pub fn block(&mut self, at: Accessor) {
        let is_supposed = self.is_outermost_supposed();
        let Some(caller) = self.frames.last() else { return };
        if at.code != at.function || at.function != caller.at.function || self.frames.len() >= MOST_FRAMES {
            return;
        }
        let low = caller.last;
        let cfa = low + WORD;
        if !is_supposed {
            self.bytes.insert(at.function, caller.cfa.saturating_sub(cfa));
        }
        self.frames.push(Frame::new(at, cfa, low));
        self.is_lowest = false;
    }

    /// The innermost function has loaded its return address: if it called itself, it goes on in the frame of that call.
    fn leave(&mut self) {
        if let [.., caller, own] = self.frames[..]
            && caller.at.function == own.at.function
        {
            self.frames.pop();
            self.base = self.is_outermost_supposed().then_some(own.cfa);
        }
    }

    /// Whether nothing is in use but the outermost frame, whose end is not known.
    fn is_outermost_supposed(&self) -> bool {
        self.frames.len() == 1 && self.supposed_from != u64::MAX
    }

    /// A function that goes on in a frame whose end is not known has one as large as where it called itself before.
    fn take_usual(&mut self, by: Accessor) {
        let Some(base) = self.base else { return };
        let [outermost] = self.frames[..] else { return };
        if outermost.at.function != by.function {
            return;
        }
        self.base = None;
        let cfa = self.bytes.get(&by.function).map(|bytes| base.saturating_add(*bytes));
        if let Some(cfa) = cfa.filter(|cfa| (base.saturating_add(WORD)..outermost.cfa).contains(cfa)) {
            self.frames.push(Frame::new(by, cfa, base));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An instruction of the function that begins at this address.
    fn at(function: u64, offset: u64) -> Accessor {
        Accessor { code: (Some(0), function + offset), function: (Some(0), function) }
    }

    const MAIN: u64 = 0x1000;
    const F: u64 = 0x2000;
    const G: u64 = 0x3000;

    /// `main` with a frame of 0x40 bytes below 0x8000, and `f`, which it called, with one of 0x20.
    fn calls() -> Calls {
        let mut calls = Calls::new(true);
        calls.begin(0x7fa0, u64::MAX, [(at(F, 4), Some(0x7fc0)), (at(MAIN, 9), Some(0x8000))].into_iter());
        calls
    }

    #[test]
    fn frames_at_the_begin_are_those_that_were_unwound() {
        let mut calls = calls();
        assert_eq!(calls.touch(0x7fa8, at(F, 8)), Some(((Some(0), F + 8), -0x18)));
        assert_eq!(calls.touch(0x7f90, at(F, 12)), Some(((Some(0), F + 12), -0x30)), "the red zone");
        // A pointer to the caller's local.
        assert_eq!(calls.touch(0x7fd0, at(F, 16)), Some(((Some(0), MAIN + 9), -0x30)));
        assert_eq!(calls.touch(0x8000, at(F, 20)), None);
    }

    #[test]
    fn the_last_frame_found_may_reach_further_than_was_copied() {
        let mut calls = Calls::new(true);
        let mut begin = |end| {
            calls.begin(0x7fa0, end, [(at(F, 4), Some(0x7fc0)), (at(MAIN, 9), None)].into_iter());
            let of_main = calls.touch(0x9000, at(MAIN, 12)).map(|(code, _)| code);
            (of_main, calls.is_supposed(0x7fb8), calls.is_supposed(0x9000))
        };
        assert_eq!(begin(u64::MAX), (Some((Some(0), MAIN + 12)), false, true));
        // A thread's control block is at 0x8800.
        assert_eq!(begin(0x8800), (None, false, false));
        calls.begin(0x7fa0, u64::MAX, [(at(F, 4), Some(0x7fc0)), (at(MAIN, 9), None)].into_iter());
        assert_eq!(calls.touch(0x7fc0 + UNKNOWN_BYTES, at(MAIN, 12)), None);
    }

    #[test]
    fn functions_called_get_frames_and_lose_them() {
        let mut calls = calls();
        // f calls g: its return address lies where g's frame begins.
        assert_eq!(calls.touch(0x7f18, at(F, 8)), Some(((Some(0), F + 8), -0xa8)));
        assert_eq!(calls.touch(0x7f10, at(G, 0)), Some(((Some(0), G), -0x10)));
        assert_eq!(calls.touch(0x7f00, at(G, 4)), Some(((Some(0), G + 4), -0x20)));
        assert_eq!(calls.touch(0x7fb0, at(G, 8)), Some(((Some(0), F + 8), -0x10)), "f's local");
        // g and f are left: main calls g itself, at the place where f's frame was.
        assert_eq!(calls.touch(0x7fb8, at(MAIN, 20)), Some(((Some(0), MAIN + 20), -0x48)));
        assert_eq!(calls.touch(0x7fb0, at(G, 0)), Some(((Some(0), G), -0x10)));
        assert_eq!(calls.touch(0x7fc8, at(MAIN, 24)), Some(((Some(0), MAIN + 24), -0x38)));
    }

    #[test]
    fn who_called_is_known_of_functions_with_and_without_frames() {
        let mut calls = calls();
        // f pushes the return address for g, which touches nothing of the stack.
        calls.touch(0x7f98, at(F, 8));
        assert_eq!(calls.caller_of(at(G, 4)), Some((Some(0), F + 8)));
        calls.touch(0x7f90, at(G, 6));
        assert_eq!(calls.caller_of(at(G, 8)), Some((Some(0), F + 8)));
        calls.forget();
        assert_eq!(calls.caller_of(at(G, 8)), None);
    }

    #[test]
    fn calls_that_nothing_tells_of_are_not_guessed() {
        let mut calls = Calls { are_followed: false, ..calls() };
        assert_eq!(calls.touch(0x7fa8, at(F, 8)), Some(((Some(0), F + 4), -0x18)));
        assert_eq!(calls.touch(0x7fd0, at(G, 4)), Some(((Some(0), MAIN + 9), -0x30)), "the caller waits");
        assert_eq!(calls.touch(0x7fa8, at(G, 8)), None, "f may have been left, and g have its place");
        assert_eq!(calls.touch(0x7e00, at(G, 12)), None, "below all that is known");
    }

    #[test]
    fn callers_are_the_frames_above_ones_own() {
        let (mut calls, mut paths) = (calls(), CallPaths::default());
        let mut path = |calls: &mut Calls, by: Accessor| {
            let mut codes = Vec::new();
            let mut at = calls.callers_of(by, &mut paths).expect("it is known");
            while let Some((parent, (_, code))) = paths.node(at) {
                codes.push(code);
                at = parent;
            }
            codes
        };
        // The call in main came before the address that was unwound.
        assert_eq!(path(&mut calls, at(F, 8)), [MAIN + 10]);
        assert_eq!(path(&mut calls, at(MAIN, 8)), [0_u64; 0]);
        // f calls g, by an instruction at 12; g calls a function that touches nothing of the stack.
        calls.touch(0x7f18, at(F, 12));
        calls.touch(0x7f10, at(G, 0));
        assert_eq!(path(&mut calls, at(G, 4)), [F + 13, MAIN + 10]);
        calls.touch(0x7f08, at(G, 6));
        assert_eq!(path(&mut calls, at(0x4000, 0)), [G + 7, F + 13, MAIN + 10]);
        // Once more from elsewhere in f.
        calls.touch(0x7f18, at(F, 40));
        calls.touch(0x7f10, at(G, 0));
        assert_eq!(path(&mut calls, at(G, 4)), [F + 41, MAIN + 10]);
        // f has returned, and main calls g.
        calls.touch(0x7fb8, at(MAIN, 20));
        calls.touch(0x7fb0, at(G, 0));
        assert_eq!(path(&mut calls, at(G, 4)), [MAIN + 21]);
        calls.forget();
        assert_eq!(calls.callers_of(at(G, 4), &mut CallPaths::default()), None);
    }

    /// What `f` does in a frame of 0x70 bytes: calls itself, by which the frame's last word is written.
    fn call(calls: &mut Calls, cfa: u64) {
        assert_eq!(calls.touch(cfa - 0x10, at(F, 0)), Some(((Some(0), F), -0x10)), "a register is saved");
        assert_eq!(calls.touch(cfa - 0x60, at(F, 4)), Some(((Some(0), F + 4), -0x60)), "a local");
        assert_eq!(calls.touch(cfa - 0x58, at(F, 6)), Some(((Some(0), F + 6), -0x58)));
        assert!(!calls.may_be_called());
        assert_eq!(calls.touch(cfa - 0x78, at(F, 8)), Some(((Some(0), F + 8), -0x78)));
        assert!(calls.may_be_called());
        calls.block(at(F, 0));
    }

    /// What it does when that has returned.
    fn go_back(calls: &mut Calls, cfa: u64) {
        assert_eq!(calls.touch(cfa - 0x60, at(F, 13)), Some(((Some(0), F + 13), -0x60)), "the local");
        assert_eq!(calls.touch(cfa - 0x10, at(F, 17)), Some(((Some(0), F + 17), -0x10)));
        assert_eq!(calls.touch(cfa - 8, at(F, 18)), Some(((Some(0), F + 18), -8)), "the return address");
    }

    #[test]
    fn a_function_that_calls_itself_has_a_frame_for_each_call() {
        let mut calls = Calls::new(true);
        let main = (at(MAIN, 9), Some(0x8000));
        calls.begin(0x7f90, u64::MAX, [(at(F, 0), Some(0x7f98)), main].into_iter());
        let frames: Vec<u64> =
            (0..1000).map(|depth| 0x7f98 - 0x70 * depth).take_while(|&cfa| cfa > 0x100).collect();
        frames.iter().for_each(|&cfa| call(&mut calls, cfa));
        // The last one calls nothing.
        let last = frames[frames.len() - 1] - 0x70;
        assert_eq!(calls.touch(last - 0x10, at(F, 0)), Some(((Some(0), F), -0x10)));
        go_back(&mut calls, last);
        // Twice, as where a tree is gone through.
        go_back(&mut calls, last + 0x70);
        call(&mut calls, last + 0xe0);
        go_back(&mut calls, last + 0x70);
        frames.iter().rev().skip(1).for_each(|&cfa| go_back(&mut calls, cfa));
        assert_eq!(calls.touch(0x7fc8, at(MAIN, 24)), Some(((Some(0), MAIN + 24), -0x38)));
        // A loop whose begin is that of the function calls nothing.
        let mut calls = self::calls();
        calls.touch(0x7fa8, at(F, 8));
        assert!(!calls.may_be_called());
    }

    #[test]
    fn a_deep_stack_has_frames_beyond_what_was_copied() {
        let mut calls = Calls::new(true);
        let f = |cfa| (at(F, 12), cfa);
        // The tick comes at the return; two frames are known, and the begin of a third.
        let unwound = [(at(F, 18), Some(0x8000)), f(Some(0x8070)), f(None)];
        calls.begin(0x7ff8, u64::MAX, unwound.into_iter());
        assert_eq!(calls.touch(0x7ff8, at(F, 18)), Some(((Some(0), F + 18), -8)));
        for cfa in (0x8070..0x10000).step_by(0x70) {
            go_back(&mut calls, cfa);
        }
    }

    #[test]
    fn a_function_that_calls_itself_keeps_its_callers() {
        let mut calls = calls();
        for address in [0x7f10, 0x7e10, 0x7d10] {
            assert_eq!(calls.touch(address, at(G, 0)).map(|(code, _)| code), Some((Some(0), G)));
            let below = calls.touch(address - 0x80, at(F, 0)).map(|(code, _)| code);
            assert_eq!(below, Some((Some(0), F)), "one more f, below");
        }
        assert_eq!(calls.touch(0x7fc8, at(MAIN, 24)), Some(((Some(0), MAIN + 24), -0x38)));
    }
}

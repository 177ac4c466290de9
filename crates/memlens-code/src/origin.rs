//! Where the pointer in a register came from, followed backwards through a function.
//!
//! All ways back are walked, each instruction once for each register, at most [`MAX_VISITS`]; the
//! first answer found wins, nearest instructions first. Constants added on the way (a loop that
//! advances its pointer) do not change where a pointer comes from.
//!
//! What a pointer was computed *from* is another question: `&position[i]` and `p = position + 1` point into what
//! `position` points to ([`FunctionCode::root`]).

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use crate::destination::Register;
use crate::function_code::{AddressExpression, FunctionCode};
use crate::instructions::{Known, Made, Transfer, Width};

/// Steps back in all, over all ways.
pub const MAX_VISITS: usize = 600;
/// Steps back in all that [`FunctionCode::root`] takes, as it walks all ways to their end.
pub const MAX_ROOT_VISITS: usize = 2000;
/// Pointers that point to pointers: how deep.
const MAX_DEPTH: usize = 4;

/// Where a pointer came from. `T` is what the caller knows of registers: mostly a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin<T> {
    /// The caller knows what the register held.
    Known(T),
    /// It was loaded from memory.
    Loaded {
        /// Address (svma) of the load.
        pc: u64,
        /// From where.
        address: AddressExpression,
        /// Where that address's base came from, if it is neither fixed nor the frame.
        base: Option<Box<Origin<T>>>,
    },
    /// It is a fixed address (svma): of a global array.
    Fixed(u64),
    /// It is an address in the frame: the expression, and where it was made.
    Frame {
        /// Address (svma) of the instruction.
        pc: u64,
        /// From rsp or rbp, or sp or x29.
        address: AddressExpression,
    },
    /// A call returned it.
    Returned {
        /// Address (svma) that the call returns to.
        pc: u64,
    },
}

impl FunctionCode {
    /// Where the pointer came from that `register` holds before the instruction at `pc`. `known` is
    /// asked what a register holds before an instruction.
    pub fn origin<T>(
        &self,
        pc: u64,
        register: Register,
        known: &mut dyn FnMut(u64, Register) -> Option<T>,
    ) -> Option<Origin<T>> {
        let mut visits = MAX_VISITS;
        self.origin_at(self.position(pc)?, register, known, MAX_DEPTH, &mut visits)
    }

    /// The pointer from which the one in `register` before `pc` was computed by copies and additions, past all
    /// variables on the way: what is added to a pointer does not lead out of its object (ISO C23, 6.5.7, paragraph
    /// 10). `known` says what a register holds, `named` what the end of a way is; a member of something else is asked
    /// for only where no variable holds its pointer.
    ///
    /// None unless all ways back whose end has a name lead to one pointer, in `MAX_ROOT_VISITS` steps; a loop that only advances its
    /// pointer is no way of its own.
    pub fn root<T: Clone + PartialEq>(
        &self,
        pc: u64,
        register: Register,
        known: &mut dyn FnMut(u64, Register) -> Option<T>,
        named: &mut dyn FnMut(&Origin<T>) -> Option<T>,
    ) -> Option<T> {
        let mut queue = VecDeque::from([(self.position(pc)?, register, None::<T>)]);
        let mut seen = FxHashSet::default();
        let mut root: Option<T> = None;
        // Whether the end of a way agrees with those before it.
        let mut agrees = |end: Option<T>| match (end, &root) {
            (Some(end), Some(root)) => end == *root,
            (end @ Some(_), None) => {
                root = end;
                true
            }
            (None, _) => true,
        };
        while let Some((at, register, last)) = queue.pop_front() {
            if !seen.insert((at, register)) {
                continue;
            }
            if seen.len() > MAX_ROOT_VISITS {
                return None;
            }
            let last = known(self.place(at)?.pc, register).or(last);
            let before = self.predecessors(at);
            // Callers give arguments to the function's start, and jumps through tables lead to unknown places, but none
            // to the padding behind a jump.
            let is_entry = at == 0 || before.is_empty() && !self.instructions().is_padding(at);
            if is_entry && !agrees(last.clone()) {
                return None;
            }
            for before in before {
                let mut visits = MAX_VISITS;
                let end = match self.step_back(before, register, known, MAX_DEPTH, &mut visits) {
                    Step::Same(register) => {
                        queue.push_back((before, register, last.clone()));
                        continue;
                    }
                    Step::Either(first, second) => {
                        // Neither part of a sum is the variable that the sum is.
                        queue.push_back((before, first, None));
                        queue.push_back((before, second, None));
                        continue;
                    }
                    // A member of something else: it has no better name than the variable that holds it.
                    Step::Found(Origin::Loaded { base: Some(_), .. }) if last.is_some() => last.clone(),
                    Step::Found(origin) => named(&origin).or_else(|| last.clone()),
                    Step::Lost => last.clone(),
                };
                if !agrees(end) {
                    return None;
                }
            }
        }
        root
    }

    fn origin_at<T>(
        &self,
        at: usize,
        register: Register,
        known: &mut dyn FnMut(u64, Register) -> Option<T>,
        depth: usize,
        visits: &mut usize,
    ) -> Option<Origin<T>> {
        let mut queue = VecDeque::from([(at, register)]);
        let mut seen = FxHashSet::default();
        while let Some((at, register)) = queue.pop_front() {
            if !seen.insert((at, register)) {
                continue;
            }
            *visits = visits.checked_sub(1)?;
            let pc = self.place(at)?.pc;
            if let Some(found) = known(pc, register) {
                return Some(Origin::Known(found));
            }
            for before in self.predecessors(at) {
                match self.step_back(before, register, known, depth, visits) {
                    Step::Same(register) => queue.push_back((before, register)),
                    Step::Either(first, second) => {
                        queue.push_back((before, first));
                        queue.push_back((before, second));
                    }
                    Step::Found(origin) => return Some(origin),
                    Step::Lost => {}
                }
            }
        }
        None
    }

    fn step_back<T>(
        &self,
        position: usize,
        register: Register,
        known: &mut dyn FnMut(u64, Register) -> Option<T>,
        depth: usize,
        visits: &mut usize,
    ) -> Step<T> {
        let Some(place) = self.place(position) else { return Step::Lost };
        let instructions = self.instructions();
        if place.transfer.is_call() {
            return match register {
                _ if register == self.architecture().result() => {
                    Step::Found(Origin::Returned { pc: place.next })
                }
                _ if self.architecture().is_callee_saved(register) => Step::Same(register),
                _ => Step::Lost,
            };
        }
        if !instructions.writes(position, register) {
            return Step::Same(register);
        }
        if let Some(Known::Fixed(svma)) = self.known_after(position, register) {
            return Step::Found(Origin::Fixed(svma));
        }
        if instructions.constant_change(position, register, Width::Whole).is_some() {
            return Step::Same(register);
        }
        match instructions.made(position, register) {
            Made::From(register) => Step::Same(register),
            Made::Either(first, second) => Step::Either(first, second),
            Made::Fixed(svma) => Step::Found(Origin::Fixed(svma)),
            Made::Frame(address) => Step::Found(Origin::Frame { pc: place.pc, address }),
            Made::Loaded(behind) => {
                let operands = self.operands_at(position);
                let Some(mut address) = operands.first().map(|operand| operand.address) else {
                    return Step::Lost;
                };
                address.disp = address.disp.wrapping_add(behind);
                let is_frame = address.base.is_some_and(|base| self.architecture().is_frame_base(base));
                let base = match address.base {
                    // A frame pointer or an ordinary one: the caller decides, so tell both.
                    Some(base) if base != self.architecture().stack_pointer() && depth > 0 => {
                        self.origin_at(position, base, known, depth - 1, visits).map(Box::new)
                    }
                    _ => None,
                };
                if address.is_svma() || is_frame || base.is_some() {
                    Step::Found(Origin::Loaded { pc: place.pc, address, base })
                } else {
                    Step::Lost
                }
            }
            Made::Lost => Step::Lost,
        }
    }

    /// All instructions that may be executed before, the one above first.
    pub(crate) fn predecessors(&self, at: usize) -> Vec<usize> {
        let Some(pc) = self.place(at).map(|place| place.pc) else { return Vec::new() };
        let above = at.checked_sub(1).filter(|&before| {
            self.place(before).is_some_and(|place| {
                place.next == pc
                    && !matches!(
                        place.transfer,
                        Transfer::Jump(_)
                            | Transfer::IndirectJump
                            | Transfer::Leave
                            | Transfer::Return
                            | Transfer::Interrupt
                            | Transfer::Breakpoint
                    )
            })
        });
        above.into_iter().chain(self.jumps_to(pc).iter().copied()).collect()
    }
}

enum Step<T> {
    /// It was in this register before.
    Same(Register),
    /// One of two: the other is an index.
    Either(Register, Register),
    Found(Origin<T>),
    Lost,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::Architecture;

    fn origin(bytes: &[u8], pc: u64, register: u16) -> Option<Origin<&'static str>> {
        // The caller knows that rdi is ‘graph’ at the function's first instruction.
        let mut known = |pc: u64, register: Register| (pc == 0x1000 && register.0 == 5).then_some("graph");
        FunctionCode::new(Architecture::X86_64, bytes, 0x1000).origin(pc, Register(register), &mut known)
    }

    #[test]
    fn a_field_of_an_argument_through_a_loop() {
        // 1000 mov 0x10(%rdi),%rax   1004 mov (%rax),%ecx   1006 add $4,%rax   100a jmp 1004
        let bytes = [0x48, 0x8b, 0x47, 0x10, 0x8b, 0x08, 0x48, 0x83, 0xc0, 0x04, 0xeb, 0xf8];
        let found = origin(&bytes, 0x1004, 0);
        let Some(Origin::Loaded { pc: 0x1000, address, base: Some(base) }) = found else {
            panic!("{found:?}");
        };
        assert_eq!((address.base, address.disp, *base), (Some(Register(5)), 16, Origin::Known("graph")));
    }

    #[test]
    fn results_and_fixed_addresses() {
        // 1000 call +0   1005 mov %rax,%rbx   1008 lea 0x100(%rip),%rcx   100f nop
        let bytes = [0xe8, 0, 0, 0, 0, 0x48, 0x89, 0xc3, 0x48, 0x8d, 0x0d, 0x00, 0x01, 0x00, 0x00, 0x90];
        assert_eq!(origin(&bytes, 0x100f, 3), Some(Origin::Returned { pc: 0x1005 }));
        assert_eq!(origin(&bytes, 0x100f, 2), Some(Origin::Fixed(0x110f)));
        // rsi does not survive the call.
        assert_eq!(origin(&bytes, 0x100f, 4), None);
    }

    #[test]
    fn an_index_is_not_the_pointer() {
        // 1000 lea (%rdi,%rcx,8),%rax   1004 nop: scaled rcx is the index.
        let bytes = [0x48, 0x8d, 0x04, 0xcf, 0x90];
        assert_eq!(origin(&bytes, 0x1004, 0), Some(Origin::Known("graph")));
    }

    /// As in a program whose rdi is ‘position’ at its start, and whose rax is ‘there’ wherever `named_at` says.
    fn root(bytes: &[u8], pc: u64, named_at: &[u64]) -> Option<&'static str> {
        let mut known = |pc: u64, register: Register| match register.0 {
            5 if pc == 0x1000 => Some("position"),
            0 if named_at.contains(&pc) => Some("there"),
            _ => None,
        };
        let mut named = |origin: &Origin<&'static str>| match origin {
            Origin::Fixed(_) => Some("global"),
            Origin::Loaded { .. } => Some("member"),
            _ => None,
        };
        FunctionCode::new(Architecture::X86_64, bytes, 0x1000).root(pc, Register(0), &mut known, &mut named)
    }

    #[test]
    fn a_reference_into_an_array_leads_to_the_array() {
        // 1000 mov %esi,%eax   1002 shl $5,%rax   1006 add %rdi,%rax   1009 add $8,%rax   100d jmp 1009
        let bytes =
            [0x89, 0xf0, 0x48, 0xc1, 0xe0, 0x05, 0x48, 0x01, 0xf8, 0x48, 0x83, 0xc0, 0x08, 0xeb, 0xfa];
        assert_eq!(root(&bytes, 0x100d, &[0x1009, 0x100d]), Some("position"));
        // The nearest variable is another question.
        let mut known = |pc: u64, _: Register| (pc == 0x100d).then_some("there");
        let near =
            FunctionCode::new(Architecture::X86_64, &bytes, 0x1000).origin(0x100d, Register(0), &mut known);
        assert_eq!(near, Some(Origin::Known("there")));
    }

    #[test]
    fn padding_behind_a_jump_is_no_way_to_a_pointer() {
        // 1000 lea (%rdi,%rcx,8),%rax   1004 jmp 1007   1006 nop   1007 nop
        let bytes = [0x48, 0x8d, 0x04, 0xcf, 0xeb, 0x01, 0x90, 0x90];
        assert_eq!(root(&bytes, 0x1007, &[0x1004, 0x1006, 0x1007]), Some("position"));
    }

    #[test]
    fn pointers_to_several_objects_and_members_have_no_other_root() {
        // 1000 mov %rdi,%rax   1003 test %esi,%esi   1005 je 100e   1007 lea 0x100(%rip),%rax   100e nop
        let bytes =
            [0x48, 0x89, 0xf8, 0x85, 0xf6, 0x74, 0x07, 0x48, 0x8d, 0x05, 0x00, 0x01, 0x00, 0x00, 0x90];
        assert_eq!(root(&bytes, 0x100e, &[0x100e]), None);
        // 1000 mov 0x10(%rdi),%rax   1004 nop: a member keeps the name of the variable that holds it, and
        // without one has its own.
        let bytes = [0x48, 0x8b, 0x47, 0x10, 0x90];
        assert_eq!(root(&bytes, 0x1004, &[0x1004]), Some("there"));
        assert_eq!(root(&bytes, 0x1004, &[]), Some("member"));
    }
}

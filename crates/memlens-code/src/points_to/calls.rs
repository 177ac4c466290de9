//! Calls and returns: what goes to callees, what comes back, and which registers survive.

use std::rc::Rc;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, OpKind};

use super::instruction_kinds::{caller_saved, slot};
use super::{
    ARGUMENTS, Analysis, CHAIN, Callee, MAX_CALLS, RAX, RDX, RSP, Registers, SAVED, STACK_ARGUMENT_BYTES,
    Walk,
};
use crate::control_flow::ControlFlow;
use crate::memory_object::{NONE, Object, Pointer, SetIx};

/// Where a call or jump goes.
#[derive(Clone, Copy)]
pub(super) enum Target {
    Address(u64),
    Set(SetIx),
    Known(Callee),
}

impl Analysis<'_> {
    pub(super) fn indirect_target(&mut self, start: u64, instruction: &Instruction, r: &Registers) -> Target {
        if instruction.op0_kind() == OpKind::Register {
            return Target::Set(slot(instruction.op0_register()).map_or(NONE, |slot| r[slot]));
        }
        if instruction.is_ip_rel_memory_operand()
            && let Some(callee) = self.surroundings.imported(instruction.ip_rel_memory_address())
        {
            return Target::Known(callee);
        }
        let mut walk = Walk { start, info: InstructionInfoFactory::new(), seen: None };
        let address = self.operand_address(&mut walk, instruction, r);
        Target::Set(self.load(start, address, false))
    }

    pub(super) fn callees(&mut self, target: Target) -> Vec<Callee> {
        match target {
            Target::Known(callee) => vec![callee],
            Target::Address(address) if self.functions.contains_key(&address) => {
                vec![Callee::Function(address)]
            }
            Target::Address(address) => vec![self.surroundings.callee(address)],
            Target::Set(set) => self.functions_in(set).into_iter().map(Callee::Function).collect(),
        }
    }

    pub(super) fn functions_in(&self, set: SetIx) -> Vec<u64> {
        let start = |pointer: &Pointer| match &self.objects[pointer.object.0 as usize] {
            Object::Global { svma } if pointer.offset == Some(0) => Some(*svma),
            _ => None,
        };
        let pointers = self.sets.pointers(set).iter();
        pointers.filter_map(start).filter(|svma| self.functions.contains_key(svma)).collect()
    }

    /// A call; false if it does not return.
    pub(super) fn call(&mut self, walk: &mut Walk, instruction: &Instruction, r: &mut Registers) -> bool {
        let next = instruction.next_ip();
        let target = match instruction.flow_control() {
            FlowControl::Call => Target::Address(instruction.near_branch_target()),
            _ => self.indirect_target(walk.start, instruction, r),
        };
        // Position-independent code finds its address by calling what follows.
        if matches!(target, Target::Address(address) if address == next) {
            r[RSP] = self.sets.shifted(r[RSP], -8);
            return true;
        }
        let callees = self.callees(target);
        let mut ends = callees.is_empty();
        let mut results = [NONE; 2];
        let mut clobbers = if callees.is_empty() { caller_saved() } else { 0 };
        for callee in callees {
            let (returned, changed) = self.apply(walk.start, callee, next, r);
            ends |= match callee {
                Callee::Function(callee) => self.functions.get(&callee).is_none_or(|callee| callee.ends),
                callee => callee != Callee::Never,
            };
            for (result, returned) in results.iter_mut().zip(returned) {
                *result = self.sets.union(*result, returned);
            }
            clobbers |= changed;
        }
        for (register, value) in r.iter_mut().enumerate() {
            if clobbers & (1 << register) != 0 && !SAVED.contains(&register) {
                *value = NONE;
            }
        }
        (r[RAX], r[RDX]) = (results[0], if clobbers & (1 << RDX) != 0 { results[1] } else { r[RDX] });
        if let Some(summary) = self.functions.get_mut(&walk.start) {
            let before = summary.clobbers;
            summary.clobbers |= clobbers;
            if summary.clobbers != before {
                self.clock += 1;
                summary.result_changed = self.clock;
            }
        }
        ends
    }

    /// A jump to another function: it returns to our caller.
    pub(super) fn tail_call(&mut self, start: u64, target: Target, r: &Registers) {
        let callees = self.callees(target);
        if callees.is_empty() {
            self.give_back(start, [NONE; 2]);
        }
        for callee in callees {
            // The call is our caller's; its return address is not known here.
            let (returned, clobbers) = self.apply(start, callee, start, r);
            let ends = match callee {
                Callee::Function(callee) => self.functions.get(&callee).is_none_or(|callee| callee.ends),
                callee => callee != Callee::Never,
            };
            if ends {
                self.give_back(start, returned);
            }
            if let Some(summary) = self.functions.get_mut(&start) {
                let before = summary.clobbers;
                summary.clobbers |= clobbers;
                if summary.clobbers != before {
                    self.clock += 1;
                    summary.result_changed = self.clock;
                }
            }
        }
    }

    pub(super) fn give_back(&mut self, start: u64, returned: [SetIx; 2]) {
        let Some(summary) = self.functions.get_mut(&start) else { return };
        if !summary.ends {
            summary.ends = true;
            self.clock += 1;
            summary.result_changed = self.clock;
        }
        for (known, new) in summary.returns.iter_mut().zip(returned) {
            let joined = self.sets.union(*known, new);
            if joined != *known {
                *known = joined;
                self.clock += 1;
                summary.result_changed = self.clock;
            }
        }
    }

    /// What a call does: its results and the registers that it changes.
    pub(super) fn apply(
        &mut self,
        start: u64,
        callee: Callee,
        next: u64,
        r: &Registers,
    ) -> ([SetIx; 2], u64) {
        let argument = |position: u8| ARGUMENTS.get(usize::from(position)).map_or(NONE, |&at| r[at]);
        let result = match callee {
            Callee::Function(callee) => return self.enter(start, callee, next, r),
            Callee::Allocates => {
                let object = self.object(Object::Heap { calls: vec![next] });
                self.sets.one(object, Some(0))
            }
            Callee::AllocatesThroughPointer => {
                let object = self.object(Object::Heap { calls: vec![next] });
                let block = self.sets.one(object, Some(0));
                self.store(argument(0), block);
                NONE
            }
            Callee::ReturnsFirst => argument(0),
            Callee::Copies => {
                self.copy(start, argument(1), argument(0));
                argument(0)
            }
            Callee::Calls { function, first, second } => {
                for callee in self.functions_in(argument(function)) {
                    self.pass(callee, ARGUMENTS[0], argument(first));
                    if let Some(second) = second {
                        self.pass(callee, ARGUMENTS[1], argument(second));
                    }
                }
                NONE
            }
            Callee::Unknown if self.name_pointees => {
                let object = self.object(Object::Returned { call: next });
                self.sets.one(object, Some(0))
            }
            Callee::Unknown | Callee::Never => NONE,
        };
        ([result, NONE], caller_saved())
    }

    /// A call of an analysed function.
    pub(super) fn enter(&mut self, start: u64, callee: u64, next: u64, r: &Registers) -> ([SetIx; 2], u64) {
        for register in ARGUMENTS.into_iter().chain([CHAIN]) {
            self.pass(callee, register, r[register]);
        }
        // Arguments on the stack: the callee finds them from its frame address on. (A tail call's
        // are its caller's own.)
        if next != start {
            let frame = self.object(Object::Frame { function: callee });
            for offset in (0..STACK_ARGUMENT_BYTES).step_by(8) {
                let from = self.sets.shifted(r[RSP], offset);
                let known = self.sets.pointers(from).iter().all(|pointer| pointer.offset.is_some());
                let value = if known { self.load(start, from, false) } else { NONE };
                self.store_to(frame, Some(offset), value);
            }
        }
        let Some(summary) = self.functions.get(&callee) else { return ([NONE; 2], caller_saved()) };
        let (returns, clobbers) = (summary.returns, summary.clobbers);
        let code = Rc::clone(&summary.code);
        if let Some(summary) = self.functions.get_mut(&start) {
            summary.callees.insert(callee);
        }
        if next == start {
            return (returns, clobbers);
        }
        (returns.map(|set| self.handed_on(set, &code.0, next)), clobbers)
    }

    /// Blocks that the callee itself got from an allocation are told apart by its calls.
    pub(super) fn handed_on(&mut self, set: SetIx, callee: &ControlFlow, next: u64) -> SetIx {
        let mut result = NONE;
        for pointer in self.sets.pointers(set).to_vec() {
            let fresh = match &self.objects[pointer.object.0 as usize] {
                Object::Heap { calls } if calls.len() < MAX_CALLS => {
                    let last = calls.last().copied().unwrap_or(0);
                    let here =
                        callee.blocks.iter().any(|block| (block.start + 1..=block.end).contains(&last));
                    here.then(|| calls.iter().copied().chain([next]).collect::<Vec<_>>())
                }
                _ => None,
            };
            let object = match fresh {
                Some(calls) => self.object(Object::Heap { calls }),
                None => pointer.object,
            };
            let one = self.sets.one(object, pointer.offset);
            result = self.sets.union(result, one);
        }
        result
    }
}

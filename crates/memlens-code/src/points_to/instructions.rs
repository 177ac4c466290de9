//! What each instruction does to registers and memory.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register as Reg};

use super::calls::Target;
use super::instruction_kinds::{
    is_conditional_move, is_move, moves_from_vector, rearranges, slot, writes, writes_rax,
};
use super::{Analysis, RAX, RBP, RCX, RDX, RSP, Registers, Walk};
use crate::control_flow::{ControlFlow, direct_target};
use crate::memory_object::{NONE, SetIx};

impl Analysis<'_> {
    /// One instruction; false if execution does not go on behind it.
    pub(super) fn step(
        &mut self,
        walk: &mut Walk,
        flow: &ControlFlow,
        instruction: &Instruction,
        r: &mut Registers,
    ) -> bool {
        if walk.seen.is_some() {
            self.note(walk, instruction, r);
        }
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => return self.call(walk, instruction, r),
            FlowControl::Return => {
                self.give_back(walk.start, [r[RAX], r[RDX]]);
                return true;
            }
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                if let Some(target) = direct_target(instruction)
                    && flow.instruction_at(target).is_none()
                {
                    self.tail_call(walk.start, Target::Address(target), r);
                }
                return true;
            }
            FlowControl::IndirectBranch => {
                let target = self.indirect_target(walk.start, instruction, r);
                self.tail_call(walk.start, target, r);
                return true;
            }
            FlowControl::Interrupt => return true,
            _ => self.compute(walk, instruction, r),
        }
        true
    }

    /// An instruction that neither calls nor jumps.
    pub(super) fn compute(&mut self, walk: &mut Walk, instruction: &Instruction, r: &mut Registers) {
        let op0 = instruction.op0_register();
        let to = (instruction.op0_kind() == OpKind::Register).then(|| slot(op0)).flatten();
        let whole = |register: Reg| register.is_gpr64() || register.is_vector_register();
        match instruction.mnemonic() {
            Mnemonic::Mov if to.is_some() && op0.is_gpr64() => {
                let value = self.source(walk, instruction, 1, r);
                self.set(r, to, value);
            }
            // A fixed address in a program that is not relocated.
            Mnemonic::Mov
                if to.is_some() && op0.is_gpr32() && instruction.op1_kind() == OpKind::Immediate32 =>
            {
                let value = self.fixed(u64::from(instruction.immediate32()));
                self.set(r, to, value);
            }
            Mnemonic::Lea if op0.is_gpr64() => {
                let value = self.effective_address(instruction, r);
                self.set(r, to, value);
            }
            Mnemonic::Add | Mnemonic::Sub if to.is_some() && op0.is_gpr64() => {
                let old = to.map_or(NONE, |to| r[to]);
                let add = instruction.mnemonic() == Mnemonic::Add;
                let value = match instruction.op1_kind() {
                    OpKind::Immediate8to64 | OpKind::Immediate32to64 => {
                        let by = instruction.immediate(1) as i64;
                        let best = self.best(old);
                        self.sets.shifted(best, if add { by } else { by.wrapping_neg() })
                    }
                    _ if add => {
                        let other = self.source(walk, instruction, 1, r);
                        self.sum(old, other)
                    }
                    // A difference of two pointers is a number.
                    _ => {
                        let other = self.source(walk, instruction, 1, r);
                        let (old, other) = (self.best(old), self.best(other));
                        let same = !self.sets.pointers(old).is_empty()
                            && self.sets.pointers(old).iter().all(|pointer| {
                                self.sets.pointers(other).iter().any(|o| o.object == pointer.object)
                            });
                        if same { NONE } else { self.sets.blurred(old) }
                    }
                };
                self.set(r, to, value);
            }
            // Alignment of a pointer; of the stack pointer too, whose slots are then not known.
            Mnemonic::And | Mnemonic::Or if to.is_some() && op0.is_gpr64() => {
                let value = self.sets.blurred(to.map_or(NONE, |to| r[to]));
                let mask = !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory);
                self.set(r, to, if mask { value } else { NONE });
            }
            Mnemonic::Xchg => {
                let a = self.source(walk, instruction, 0, r);
                let b = self.source(walk, instruction, 1, r);
                self.put(walk, instruction, 0, b, r);
                self.put(walk, instruction, 1, a, r);
            }
            Mnemonic::Cmpxchg => {
                let old = self.source(walk, instruction, 0, r);
                let new = self.source(walk, instruction, 1, r);
                self.put(walk, instruction, 0, new, r);
                r[RAX] = self.sets.union(r[RAX], old);
            }
            Mnemonic::Xadd => {
                let old = self.source(walk, instruction, 0, r);
                self.put(walk, instruction, 1, old, r);
            }
            Mnemonic::Push => {
                let value = self.source(walk, instruction, 0, r);
                r[RSP] = self.sets.shifted(r[RSP], -8);
                self.store(r[RSP], value);
            }
            Mnemonic::Pop => {
                let value = self.load(walk.start, r[RSP], false);
                r[RSP] = self.sets.shifted(r[RSP], 8);
                self.put(walk, instruction, 0, value, r);
            }
            Mnemonic::Leave => {
                let value = self.load(walk.start, r[RBP], false);
                r[RSP] = self.sets.shifted(r[RBP], 8);
                r[RBP] = value;
            }
            Mnemonic::Movsq | Mnemonic::Movsb | Mnemonic::Movsd if instruction.is_string_instruction() => {
                let (from, into) = (self.sets.blurred(r[6]), self.sets.blurred(r[7]));
                self.copy(walk.start, from, into);
                (r[6], r[7]) = (from, into);
                if instruction.has_rep_prefix() {
                    r[RCX] = NONE;
                }
            }
            _ if instruction.is_string_instruction() => {
                (r[6], r[7]) = (self.sets.blurred(r[6]), self.sets.blurred(r[7]));
                r[RAX] = if writes_rax(instruction) { NONE } else { r[RAX] };
            }
            // A store of whole registers.
            _ if instruction.op0_kind() == OpKind::Memory
                && instruction.op_count() >= 2
                && instruction.op1_kind() == OpKind::Register
                && whole(instruction.op1_register())
                && is_move(instruction) =>
            {
                let value = self.source(walk, instruction, 1, r);
                self.put(walk, instruction, 0, value, r);
            }
            // A fixed address stored by a program that is not relocated.
            Mnemonic::Mov
                if instruction.op0_kind() == OpKind::Memory
                    && instruction.op1_kind() == OpKind::Immediate32to64 =>
            {
                let value = self.fixed(instruction.immediate(1));
                self.put(walk, instruction, 0, value, r);
            }
            // Either of two.
            _ if to.is_some() && op0.is_gpr64() && is_conditional_move(instruction) => {
                let (old, new) = (to.map_or(NONE, |to| r[to]), self.source(walk, instruction, 1, r));
                let value = self.sets.union(old, new);
                self.set(r, to, value);
            }
            // Vectors of pointers stay pointers to the same when they are moved, rearranged or added to.
            _ if to.is_some()
                && (is_move(instruction) || rearranges(instruction))
                && (op0.is_vector_register() || moves_from_vector(instruction)) =>
            {
                let mut value = NONE;
                for operand in 0..instruction.op_count() {
                    if operand > 0 || !is_move(instruction) {
                        let more = self.source(walk, instruction, operand, r);
                        value = self.sets.union(value, more);
                    }
                }
                let value = if is_move(instruction) { value } else { self.sets.blurred(value) };
                self.set(r, to, value);
            }
            _ => self.forget(walk, instruction, r),
        }
    }

    /// Whatever is written holds no pointer that is known.
    pub(super) fn forget(&mut self, walk: &mut Walk, instruction: &Instruction, r: &mut Registers) {
        let used = walk.info.info(instruction);
        for register in used.used_registers() {
            if writes(register.access())
                && let Some(slot) = slot(register.register().full_register())
                && slot != RSP
            {
                r[slot] = NONE;
            }
        }
    }

    pub(super) fn set(&mut self, r: &mut Registers, to: Option<usize>, value: SetIx) {
        if let Some(to) = to {
            r[to] = value;
        }
    }
}

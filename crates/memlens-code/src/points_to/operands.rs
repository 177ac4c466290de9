//! What an operand holds, and the addresses that memory operands name.

use iced_x86::{Instruction, MemorySize, Mnemonic, OpKind, Register as Reg, UsedMemory};

use super::instruction_kinds::{general, reads, slot, writes};
use super::{Analysis, Registers, Touched, Walk};
use crate::memory_object::{NONE, Object, SetIx};

impl Analysis<'_> {
    /// The address of a memory operand.
    pub(super) fn address(&mut self, registers: &Registers, used: &UsedMemory) -> SetIx {
        let displacement = used.displacement() as i64;
        if used.segment() == Reg::FS {
            let thread = self.object(Object::Thread);
            let plain = used.base() == Reg::None && used.index() == Reg::None;
            return self.sets.one(thread, plain.then_some(displacement));
        }
        let of = |register: Reg| general(register).map_or(NONE, |number| registers[number]);
        let scaled = used.scale() > 1;
        if used.base() == Reg::RIP || (used.base() == Reg::None && used.index() == Reg::None) {
            return self.fixed(used.displacement());
        }
        let base = of(used.base());
        if used.index() == Reg::None {
            return self.sets.shifted(base, displacement);
        }
        if used.base() == Reg::None && scaled {
            let fixed = self.fixed(used.displacement());
            return self.sets.blurred(fixed);
        }
        let index = if scaled { NONE } else { of(used.index()) };
        let mut sum = self.sum(base, index);
        if sum == NONE {
            sum = self.fixed(used.displacement());
        }
        self.sets.blurred(sum)
    }

    /// Pointer plus something: of two candidates the one that is known to be a pointer.
    pub(super) fn sum(&mut self, a: SetIx, b: SetIx) -> SetIx {
        let both = self.sets.union(a, b);
        let best = self.best(both);
        self.sets.blurred(best)
    }

    pub(super) fn note(&mut self, walk: &mut Walk, instruction: &Instruction, registers: &Registers) {
        let mut uses: Vec<UsedMemory> = walk.info.info(instruction).used_memory().to_vec();
        if instruction.mnemonic() == Mnemonic::Lea {
            uses.clear();
        }
        for used in uses {
            let (reads, writes) = (reads(used.access()), writes(used.access()));
            if !reads && !writes {
                continue;
            }
            // What push and call write lies below the stack pointer as it is before them; iced
            // states the displacement.
            let address = self.address(registers, &used);
            let best = self.best(address);
            let pointers = self.sets.pointers(best).to_vec();
            if let Some(seen) = &mut walk.seen {
                seen.push(Touched {
                    pc: instruction.ip(),
                    reads,
                    writes,
                    pointers,
                    registers: [used.base(), used.index()],
                    displacement: used.displacement() as i64,
                });
            }
        }
    }

    /// The pointers that an operand holds.
    pub(super) fn source(
        &mut self,
        walk: &mut Walk,
        instruction: &Instruction,
        operand: u32,
        r: &Registers,
    ) -> SetIx {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                let wide = register.is_gpr64() || register.is_vector_register();
                slot(register).filter(|_| wide).map_or(NONE, |slot| r[slot])
            }
            OpKind::Memory => {
                let size = instruction.memory_size().size();
                if size < 8 || instruction.memory_size() == MemorySize::Float80 {
                    return NONE;
                }
                let address = self.operand_address(walk, instruction, r);
                let plain = size == 8
                    && instruction.op0_kind() == OpKind::Register
                    && instruction.op0_register().is_gpr64();
                let mut loaded = self.load(walk.start, address, plain);
                for part in 1..(size / 8).min(8) {
                    let next = self.sets.shifted(address, 8 * part as i64);
                    let more = self.load(walk.start, next, false);
                    loaded = self.sets.union(loaded, more);
                }
                loaded
            }
            _ => NONE,
        }
    }

    /// Writes pointers to an operand.
    pub(super) fn put(
        &mut self,
        walk: &mut Walk,
        instruction: &Instruction,
        operand: u32,
        value: SetIx,
        r: &mut Registers,
    ) {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                if let Some(slot) = slot(instruction.op_register(operand)) {
                    r[slot] = value;
                }
            }
            OpKind::Memory => {
                let size = instruction.memory_size().size();
                if size < 8 {
                    return;
                }
                let address = self.operand_address(walk, instruction, r);
                for part in 0..(size / 8).min(8) {
                    let next = self.sets.shifted(address, 8 * part as i64);
                    self.store(next, value);
                }
            }
            _ => {}
        }
    }

    pub(super) fn operand_address(
        &mut self,
        walk: &mut Walk,
        instruction: &Instruction,
        r: &Registers,
    ) -> SetIx {
        let used = walk.info.info(instruction).used_memory().first().copied();
        let set = used.map_or(NONE, |used| self.address(r, &used));
        self.best(set)
    }

    pub(super) fn effective_address(&mut self, instruction: &Instruction, r: &Registers) -> SetIx {
        if instruction.is_ip_rel_memory_operand() {
            return self.fixed(instruction.ip_rel_memory_address());
        }
        let displacement = instruction.memory_displacement64() as i64;
        let of = |register: Reg| slot(register).map_or(NONE, |slot| r[slot]);
        let base = of(instruction.memory_base());
        if instruction.memory_index() == Reg::None {
            let base = self.best(base);
            return self.sets.shifted(base, displacement);
        }
        let index = if instruction.memory_index_scale() > 1 { NONE } else { of(instruction.memory_index()) };
        let sum = self.sum(base, index);
        if sum == NONE && displacement > 0xfff {
            let fixed = self.fixed(displacement as u64);
            return self.sets.blurred(fixed);
        }
        sum
    }

    pub(super) fn copy(&mut self, start: u64, from: SetIx, to: SetIx) {
        let (from, to) = (self.sets.blurred(from), self.sets.blurred(to));
        let content = self.load(start, from, false);
        self.store(to, content);
    }
}

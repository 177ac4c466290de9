//! x86-64: what its instructions do to addresses.

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::{Effects, LoopCode, Registers};
use crate::control_flow::ControlFlow;
use crate::loops::Loops;

/// The bit of the first vector register: the general ones come before.
const FIRST_VECTOR: usize = 16;
/// Registers that calls keep (System V ABI AMD64 1.0, section 3.2.1): rbx, rsp, rbp, r12 to r15.
const KEPT_IN_CALLS: Registers = Registers(1 << 3 | 1 << 4 | 1 << 5 | 0xf << 12);

impl Registers {
    fn insert(&mut self, register: Register) {
        let register = register.full_register();
        if register.is_gpr64() {
            self.0 |= 1 << register.number();
        } else if register.is_vector_register() {
            self.0 |= 1 << (FIRST_VECTOR + register.number());
        }
    }
}

/// A function whose pieces these are.
pub(super) fn loop_code(parts: &[(u64, &[u8])]) -> LoopCode {
    let flow = ControlFlow::new(parts);
    let loops = Loops::new(&flow);
    let mut factory = InstructionInfoFactory::new();
    let all = &flow.instructions;
    // A piece without the function's begin may have one that it does not show.
    let has_frame_pointer = all.iter().any(sets_frame_pointer) || !all.iter().any(sets_rbp);
    let effect = |it| Effects::of_x86_64(it, has_frame_pointer, &mut factory);
    let effects = flow.instructions.iter().map(effect).collect();
    LoopCode { flow: flow.places(), loops, effects, kept_in_calls: KEPT_IN_CALLS }
}

impl Effects {
    /// `has_frame_pointer`: the function's rbp is one.
    fn of_x86_64(
        instruction: &Instruction,
        has_frame_pointer: bool,
        factory: &mut InstructionInfoFactory,
    ) -> Self {
        let info = factory.info(instruction);
        let mut effects = Self {
            is_call: matches!(
                instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall | FlowControl::Interrupt
            ),
            ..Self::default()
        };
        let has_memory = (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory);
        let is_load = info.used_memory().iter().any(|memory| {
            matches!(memory.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite)
        });
        effects.has_memory = !info.used_memory().is_empty();
        if has_memory {
            let registers = [instruction.memory_base(), instruction.memory_index()];
            let [base, index] = registers;
            let [mut of_base, mut of_index] = [Registers::default(); 2];
            of_base.insert(base);
            of_index.insert(index);
            (effects.base, effects.index) = (of_base, of_index);
            effects.displacement = instruction.memory_displacement64();
            let is_of_frame = base == Register::RSP || base == Register::RBP && has_frame_pointer;
            // With an index it is an element of an array there.
            effects.is_frame =
                is_of_frame && index == Register::None || instruction.is_ip_rel_memory_operand();
            let of_address = registers.into_iter().filter(|one| one.is_gpr64() || one.is_gpr32());
            // `lea` computes an address and loads nothing: its registers are read as any other's.
            if effects.has_memory {
                let mut address = Registers::default();
                of_address.for_each(|one| address.insert(one));
                effects.address = Some(address);
            }
        }
        for used in info.used_registers() {
            let register = used.register();
            let (reads, writes) = match used.access() {
                OpAccess::Read | OpAccess::CondRead => (true, false),
                OpAccess::Write | OpAccess::CondWrite => (used.access() == OpAccess::CondWrite, true),
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
                OpAccess::None | OpAccess::NoMemAccess => (false, false),
            };
            if writes {
                effects.writes.insert(register);
            }
            if reads {
                effects.reads.insert(register);
            }
        }
        if !is_load {
            // A store's address registers are no source of what it writes: it writes no register.
            effects.is_frame = true;
        }
        effects
    }
}

/// Whether an instruction gives rbp another value than the caller's.
fn sets_rbp(instruction: &Instruction) -> bool {
    const KEEPING: [Mnemonic; 4] = [Mnemonic::Pop, Mnemonic::Push, Mnemonic::Cmp, Mnemonic::Test];
    instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().full_register() == Register::RBP
        && !KEEPING.contains(&instruction.mnemonic())
}

/// Whether an instruction makes rbp the function's frame pointer (System V ABI AMD64 1.0, section 3.2.2).
fn sets_frame_pointer(instruction: &Instruction) -> bool {
    let is_of_rbp = instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RBP;
    match instruction.mnemonic() {
        Mnemonic::Enter => true,
        Mnemonic::Mov => is_of_rbp && instruction.op1_register() == Register::RSP,
        Mnemonic::Lea => is_of_rbp && instruction.memory_base() == Register::RSP,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_have_a_bit_each() {
        use Register::{EAX, EBX, R12D, R13, R14, R15, RBP, RSP, XMM0, ZMM31};
        let set = |registers: &[Register]| {
            let mut set = Registers::default();
            registers.iter().for_each(|&one| set.insert(one));
            set
        };
        assert_eq!(set(&[EBX, RSP, RBP, R12D, R13, R14, R15]), KEPT_IN_CALLS);
        assert_eq!(set(&[EAX, XMM0, ZMM31, Register::RIP]).bits().collect::<Vec<_>>(), [0, 16, 47]);
    }
}

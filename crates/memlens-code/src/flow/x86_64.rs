//! A result's way through x86-64 code.

use iced_x86::{
    Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register as Reg,
};

use super::{Flow, Machine, Memory, Target, Value, plus_constant};
use crate::architecture::Architecture;
use crate::destination::{Destination, Register};
use crate::function_code::AddressExpression;
use crate::instructions::Place;
use crate::x86_64::{register_of, transfer};

/// x86-64, with what is in vector registers.
pub(super) struct X86_64 {
    factory: InstructionInfoFactory,
    vectors: [[Value; 2]; 32],
}

impl X86_64 {
    pub(super) fn new() -> Self {
        Self { factory: InstructionInfoFactory::new(), vectors: [[Value::Unknown; 2]; 32] }
    }

    fn move_quad(&mut self, flow: &mut Flow<'_>, instruction: &Instruction) {
        let (op0, op1) = (instruction.op0_register(), instruction.op1_register());
        let value = match instruction.op1_kind() {
            OpKind::Register => vector(op1).map_or_else(|| flow.held(op1), |v| self.vectors[v][0]),
            OpKind::Memory => flow.load(&operand(instruction), instruction.ip()),
            _ => Value::Unknown,
        };
        if instruction.op0_kind() == OpKind::Memory {
            flow.store(&operand(instruction), instruction.ip(), value);
        } else if let Some(to) = vector(op0) {
            self.vectors[to] = [value, Value::Unknown];
        } else {
            flow.assign(op0, value, instruction.ip(), instruction.next_ip());
        }
    }

    fn move_vector(&mut self, flow: &mut Flow<'_>, instruction: &Instruction) {
        let op1 = instruction.op1_register();
        if instruction.op0_kind() == OpKind::Memory {
            let Some(from) = vector(op1) else { return };
            let [low, high] = self.vectors[from];
            flow.store(&operand(instruction), instruction.ip(), low);
            if let Value::Result(_) = high {
                let memory = flow.memory_of(&operand(instruction));
                if let Some(mut destination) =
                    flow.destination(&operand(instruction), instruction.ip(), memory)
                {
                    match &mut destination {
                        Destination::Global { svma, .. } | Destination::Element { svma, .. } => {
                            *svma = svma.wrapping_add(8);
                        }
                        Destination::FrameSlot { disp, .. } | Destination::Field { disp, .. } => {
                            *disp = disp.wrapping_add(8);
                        }
                        _ => {}
                    }
                    flow.found.push(destination);
                }
            }
            return;
        }
        if let Some(to) = vector(instruction.op0_register()) {
            self.vectors[to] = vector(op1)
                .filter(|_| instruction.op1_kind() == OpKind::Register)
                .map_or([Value::Unknown; 2], |from| self.vectors[from]);
        }
    }

    /// Whatever the instruction writes holds something unknown afterwards.
    fn forget_written(&mut self, flow: &mut Flow<'_>, instruction: &Instruction) {
        let (ip, next) = (instruction.ip(), instruction.next_ip());
        let info = self.factory.info(instruction);
        let writes = |access| {
            matches!(
                access,
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        for used in info.used_registers() {
            if !writes(used.access()) {
                continue;
            }
            let full = used.register().full_register();
            if let Some(number) = number(full) {
                flow.set(number, Value::Unknown, ip, next);
            } else if let Some(to) = vector(used.register()) {
                self.vectors[to] = [Value::Unknown; 2];
            }
        }
        if info.used_memory().iter().any(|used| writes(used.access()))
            && let Some(memory) = flow.memory_of(&operand(instruction))
        {
            flow.memory.insert(memory, Value::Unknown);
        }
    }
}

impl Machine for X86_64 {
    type Instruction = Instruction;
    const ARCHITECTURE: Architecture = Architecture::X86_64;

    fn decode(&self, code: &[u8], at: u64) -> Option<(Instruction, Place)> {
        let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
        let instruction = decoder.decode();
        let place = Place { pc: at, next: instruction.next_ip(), transfer: transfer(&instruction) };
        (!instruction.is_invalid()).then_some((instruction, place))
    }

    fn jumps_if_not_null(&self, flow: &mut Flow<'_>, instruction: &Instruction) -> bool {
        instruction.mnemonic() == Mnemonic::Jne && std::mem::take(&mut flow.null_test)
    }

    fn target(&self, _flow: &Flow<'_>, instruction: &Instruction) -> Option<Target> {
        match instruction.op0_kind() {
            OpKind::NearBranch64 => Some(Target::Code(instruction.near_branch_target())),
            OpKind::Memory if instruction.is_ip_rel_memory_operand() => {
                Some(Target::Cell(instruction.ip_rel_memory_address()))
            }
            _ => None,
        }
    }

    fn forget_unsaved(&mut self) {
        self.vectors = [[Value::Unknown; 2]; 32];
    }

    fn step(&mut self, flow: &mut Flow<'_>, instruction: &Instruction) {
        let (ip, next) = (instruction.ip(), instruction.next_ip());
        let destination = instruction.op0_kind();
        let source = instruction.op1_kind();
        let op0 = instruction.op0_register();
        let mut handled = true;
        let mut keeps_null_test =
            matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Lea | Mnemonic::Nop);
        match instruction.mnemonic() {
            Mnemonic::Mov if destination == OpKind::Register && op0.is_gpr64() => {
                let value = match source {
                    OpKind::Register if instruction.op1_register().is_gpr64() => {
                        flow.held(instruction.op1_register())
                    }
                    OpKind::Memory => flow.load(&operand(instruction), instruction.ip()),
                    _ => Value::Unknown,
                };
                flow.assign(op0, value, ip, next);
            }
            Mnemonic::Mov if destination == OpKind::Memory => {
                let register = instruction.op1_register();
                let whole = source == OpKind::Register && register.is_gpr64();
                let value = if whole { flow.held(register) } else { Value::Unknown };
                flow.store(&operand(instruction), instruction.ip(), value);
            }
            Mnemonic::Lea if op0.is_gpr64() => {
                let value = flow.lea(instruction);
                flow.assign(op0, value, ip, next);
            }
            Mnemonic::Add | Mnemonic::Sub if destination == OpKind::Register && op0.is_gpr64() => {
                let value = flow.sum(instruction, op0);
                flow.assign(op0, value, ip, next);
            }
            Mnemonic::Push => {
                let value = if source_is_gpr(instruction) { flow.held(op0) } else { Value::Unknown };
                flow.move_stack(-8);
                if let Value::Entry { register: 7, plus } = flow.registers[7] {
                    flow.memory.insert(Memory::Slot { register: 7, disp: plus }, value);
                }
            }
            Mnemonic::Pop if destination == OpKind::Register && op0.is_gpr64() => {
                let value = match flow.registers[7] {
                    Value::Entry { register: 7, plus } => flow
                        .memory
                        .get(&Memory::Slot { register: 7, disp: plus })
                        .copied()
                        .unwrap_or(Value::Unknown),
                    _ => Value::Unknown,
                };
                flow.move_stack(8);
                flow.assign(op0, value, ip, next);
            }
            // Sign extension of a result that was declared as `int`.
            Mnemonic::Cdqe if matches!(flow.registers[0], Value::Result(_)) => {}
            Mnemonic::Test if source == OpKind::Register && op0 == instruction.op1_register() => {
                flow.null_test = matches!(flow.held(op0), Value::Result(_));
                keeps_null_test = true;
            }
            Mnemonic::Cmp if is_zero(instruction) => {
                let value = match destination {
                    OpKind::Register => flow.held(op0),
                    OpKind::Memory => flow.load(&operand(instruction), instruction.ip()),
                    _ => Value::Unknown,
                };
                flow.null_test = matches!(value, Value::Result(_));
                keeps_null_test = true;
            }
            Mnemonic::Movq | Mnemonic::Vmovq => self.move_quad(flow, instruction),
            Mnemonic::Punpcklqdq | Mnemonic::Movlhps => {
                if let (Some(to), Some(from)) = (vector(op0), vector(instruction.op1_register())) {
                    self.vectors[to][1] = self.vectors[from][0];
                } else if let Some(to) = vector(op0) {
                    self.vectors[to][1] = Value::Unknown;
                }
            }
            Mnemonic::Vpunpcklqdq => {
                if let Some(to) = vector(op0) {
                    let low =
                        vector(instruction.op1_register()).map_or(Value::Unknown, |v| self.vectors[v][0]);
                    let high =
                        vector(instruction.op2_register()).map_or(Value::Unknown, |v| self.vectors[v][0]);
                    self.vectors[to] = [low, high];
                }
            }
            Mnemonic::Pinsrq if vector(op0).is_some() => {
                let lane = usize::from(instruction.immediate8() & 1);
                let value = if source == OpKind::Register {
                    flow.held(instruction.op1_register())
                } else {
                    Value::Unknown
                };
                if let Some(to) = vector(op0) {
                    self.vectors[to][lane] = value;
                }
            }
            Mnemonic::Movhps if destination == OpKind::Register => {
                if let Some(to) = vector(op0) {
                    self.vectors[to][1] = Value::Unknown;
                }
            }
            Mnemonic::Movaps
            | Mnemonic::Movups
            | Mnemonic::Movdqa
            | Mnemonic::Movdqu
            | Mnemonic::Movapd
            | Mnemonic::Movupd
            | Mnemonic::Vmovaps
            | Mnemonic::Vmovups
            | Mnemonic::Vmovdqa
            | Mnemonic::Vmovdqu => self.move_vector(flow, instruction),
            _ => handled = false,
        }
        if !keeps_null_test {
            flow.null_test = false;
        }
        if !handled {
            self.forget_written(flow, instruction);
        }
    }

    fn fixed_address(&self, code: &[u8], start: u64, register: Register) -> Option<u64> {
        only_address(code, start, register)
    }
}

impl Flow<'_> {
    fn assign(&mut self, register: Reg, value: Value, ip: u64, next: u64) {
        if let Some(number) = number(register) {
            self.set(number, value, ip, next);
        }
    }

    fn held(&self, register: Reg) -> Value {
        number(register).map_or(Value::Unknown, |number| self.get(number))
    }

    fn move_stack(&mut self, by: i64) {
        self.registers[7] = match self.registers[7] {
            Value::Entry { register, plus } => Value::Entry { register, plus: plus.wrapping_add(by) },
            _ => Value::Unknown,
        };
    }

    /// What `lea` computes.
    fn lea(&self, instruction: &Instruction) -> Value {
        let disp = instruction.memory_displacement64() as i64;
        if instruction.is_ip_rel_memory_operand() {
            return Value::Fixed(instruction.ip_rel_memory_address());
        }
        let base = self.held(instruction.memory_base());
        if instruction.memory_index() == Reg::None {
            return plus_constant(base, disp);
        }
        let index = self.held(instruction.memory_index());
        match (base, index) {
            (Value::Loaded { base, plus, .. }, _) => {
                Value::Loaded { base, plus: plus.wrapping_add(disp), indexed: true }
            }
            (_, Value::Loaded { base, plus, .. }) if instruction.memory_index_scale() == 1 => {
                Value::Loaded { base, plus: plus.wrapping_add(disp), indexed: true }
            }
            _ => Value::Unknown,
        }
    }

    /// What `add` and `sub` leave in their first operand.
    fn sum(&self, instruction: &Instruction, op0: Reg) -> Value {
        let value = self.held(op0);
        match instruction.op1_kind() {
            OpKind::Immediate8to64 | OpKind::Immediate32to64 => {
                let by = instruction.immediate(1) as i64;
                let by = if instruction.mnemonic() == Mnemonic::Sub { by.wrapping_neg() } else { by };
                plus_constant(value, by)
            }
            OpKind::Register if instruction.mnemonic() == Mnemonic::Add => {
                match (value, self.held(instruction.op1_register())) {
                    (Value::Loaded { base, plus, .. }, Value::Unknown)
                    | (Value::Unknown, Value::Loaded { base, plus, .. }) => {
                        Value::Loaded { base, plus, indexed: true }
                    }
                    // Of two loaded values nothing tells which is the pointer.
                    _ => Value::Unknown,
                }
            }
            _ => Value::Unknown,
        }
    }
}

/// The memory operand as an address. Of a segment other than fs nothing is known, as if there were none.
fn operand(instruction: &Instruction) -> AddressExpression {
    let disp = instruction.memory_displacement64() as i64;
    let is_thread_local = instruction.segment_prefix() == Reg::FS || instruction.memory_segment() == Reg::FS;
    if instruction.is_ip_rel_memory_operand() && !is_thread_local {
        let disp = instruction.ip_rel_memory_address() as i64;
        return AddressExpression { disp, ..AddressExpression::NOTHING };
    }
    // A part of a register, or a vector, is one that nothing is known of.
    let whole =
        |register: Reg| (register != Reg::None).then(|| Register(number(register).unwrap_or(u16::MAX)));
    AddressExpression {
        base: whole(instruction.memory_base()),
        index: whole(instruction.memory_index()),
        scale: instruction.memory_index_scale() as u8,
        disp,
        is_partial: is_thread_local,
        is_thread_local,
        ..AddressExpression::NOTHING
    }
}

/// The fixed address that `register` holds all through a function, if one instruction puts one there and
/// nothing else writes to it but restoring the caller's value. Cost: the whole function is decoded.
fn only_address(code: &[u8], start: u64, register: Register) -> Option<u64> {
    let mut factory = InstructionInfoFactory::new();
    let mut found = None;
    for instruction in Decoder::with_ip(64, code, start, DecoderOptions::NONE).iter() {
        let is_register = |used: Reg| number(used.full_register()) == Some(register.0);
        let writes = |access| !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
        let info = factory.info(&instruction);
        if !info.used_registers().iter().any(|used| is_register(used.register()) && writes(used.access())) {
            continue;
        }
        let address = match instruction.mnemonic() {
            Mnemonic::Pop => continue,
            Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => instruction.ip_rel_memory_address(),
            // Code at fixed addresses: the upper half of the register becomes zero.
            Mnemonic::Mov if matches!(instruction.op1_kind(), OpKind::Immediate32 | OpKind::Immediate64) => {
                instruction.immediate(1)
            }
            _ => return None,
        };
        if found.replace(address).is_some_and(|before| before != address) {
            return None;
        }
    }
    found
}

fn source_is_gpr(instruction: &Instruction) -> bool {
    instruction.op0_kind() == OpKind::Register && instruction.op0_register().is_gpr64()
}

fn is_zero(instruction: &Instruction) -> bool {
    !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory)
        && instruction.code() != Code::INVALID
        && instruction.immediate(1) == 0
}

/// The DWARF number of a 64-bit general-purpose register.
fn number(register: Reg) -> Option<u16> {
    if register.is_gpr64() { register_of(register).map(|register| register.0) } else { None }
}

/// The number of a vector register of 16 bytes or more.
fn vector(register: Reg) -> Option<usize> {
    if register.is_vector_register() { Some(register.number()) } else { None }.filter(|&n| n < 32)
}

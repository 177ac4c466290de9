//! Following a result along one path.

use std::collections::HashMap;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register as Reg,
};

use crate::destination::{Base, Destination, Register};
use crate::x86_64::register_of;

/// The longest path that is followed.
pub const MAX_INSTRUCTIONS: usize = 128;

/// Memory with a name: a slot of the frame or a fixed address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Memory {
    /// `entry value of register + disp`.
    Slot {
        register: u16,
        disp: i64,
    },
    Global(u64),
    Thread(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Unknown,
    Result(i64),
    /// The register's value at the return address plus a constant.
    Entry {
        register: u16,
        plus: i64,
    },
    /// Loaded from memory; how the load spelled it. `indexed`: something was added since.
    Loaded {
        base: Base,
        plus: i64,
        indexed: bool,
    },
    Fixed(u64),
}

/// What a call, or a jump out of the function, goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Code at this address (svma): a function, or a linkage stub.
    Code(u64),
    /// What a cell of memory at this address (svma) points to, as of a linkage table.
    Cell(u64),
}

/// Whether a function is known to return its first argument, as `memset` and `strcpy` do.
pub type ReturnsArgument<'a> = &'a dyn Fn(Target) -> bool;

struct Flow<'a> {
    returns_argument: ReturnsArgument<'a>,
    registers: [Value; 16],
    since: [u64; 16],
    vectors: [[Value; 2]; 32],
    memory: HashMap<Memory, Value>,
    found: Vec<Destination>,
    /// Whether the flags say if the result is null.
    null_test: bool,
    /// The return address.
    start: u64,
}

/// Where the result (rax) of the call that returns to `pc` goes, in the order of the path.
///
/// `code` is the function's machine code, its first byte at address `start`; nothing outside of it
/// is looked at. Through functions of which `returns_argument` says so it goes on. Cost: at most [`MAX_INSTRUCTIONS`]
/// instructions are decoded.
pub fn result_destinations(
    code: &[u8],
    start: u64,
    pc: u64,
    returns_argument: ReturnsArgument<'_>,
) -> Vec<Destination> {
    let mut flow = Flow::new(pc, returns_argument);
    flow.registers[0] = Value::Result(0);
    flow.destinations(code, start)
}

/// As [`result_destinations`] for a call that stored its result in a slot of the caller's frame, as
/// `posix_memalign` does: where it goes from there. The slot is at `base + disp`, where `base` is rsp or
/// rbp as it stands at `pc`; the slot itself is not among the destinations.
pub fn slot_destinations(
    code: &[u8],
    start: u64,
    pc: u64,
    (base, disp): (Register, i64),
    returns_argument: ReturnsArgument<'_>,
) -> Vec<Destination> {
    let mut flow = Flow::new(pc, returns_argument);
    flow.memory.insert(Memory::Slot { register: base.0, disp }, Value::Result(0));
    flow.destinations(code, start)
}

/// Whether a function returns its first argument, on the path that [`result_destinations`] follows: of a constructor, `this`.
/// Arguments are as there. Cost: the same.
pub fn returns_first_argument(code: &[u8], start: u64, returns_argument: ReturnsArgument<'_>) -> bool {
    let mut flow = Flow::new(start, returns_argument);
    flow.registers[usize::from(RDI)] = Value::Result(0);
    let found = flow.destinations(code, start);
    found.iter().any(|destination| matches!(destination, Destination::Returned { .. }))
}

const RAX: u16 = 0;
const RDI: u16 = 5;
/// rbx, rbp, rsp, r12–r15.
const CALLEE_SAVED: [u16; 7] = [3, 6, 7, 12, 13, 14, 15];

impl<'a> Flow<'a> {
    /// The state at the return address `pc`, with the result nowhere.
    fn new(pc: u64, returns_argument: ReturnsArgument<'a>) -> Self {
        let mut flow = Self {
            returns_argument,
            registers: [Value::Unknown; 16],
            since: [pc; 16],
            vectors: [[Value::Unknown; 2]; 32],
            memory: HashMap::new(),
            found: Vec::new(),
            null_test: false,
            start: pc,
        };
        for register in CALLEE_SAVED {
            flow.registers[usize::from(register)] = Value::Entry { register, plus: 0 };
        }
        flow
    }

    /// Follows the path and returns what the result reached.
    fn destinations(mut self, code: &[u8], start: u64) -> Vec<Destination> {
        let end = self.follow(code, start, self.start);
        for register in 0..16 {
            self.close(register, end);
        }
        self.elements(code, start);
        self.found
    }

    /// Says of each store through a register that held a pointer before the call whether that is the
    /// address of an array, as a loop keeps it.
    fn elements(&mut self, code: &[u8], start: u64) {
        let mut at = 0;
        while at < self.found.len() {
            if let Destination::Field { base: Base::Register { register }, disp, indexed: true, pc } =
                self.found[at]
                && let Some(address) = only_address(code, start, register)
            {
                at += 1;
                let svma = address.wrapping_add_signed(disp);
                self.found.insert(at, Destination::Element { svma, pc });
            }
            at += 1;
        }
    }

    /// Follows the path and returns the address where it ended.
    fn follow(&mut self, code: &[u8], start: u64, pc: u64) -> u64 {
        let mut visited = Vec::new();
        let mut factory = InstructionInfoFactory::new();
        let mut at = pc;
        let inside = |address: u64| {
            address.checked_sub(start).and_then(|o| usize::try_from(o).ok()).filter(|&o| o < code.len())
        };
        for _ in 0..MAX_INSTRUCTIONS {
            let Some(offset) = inside(at) else { return at };
            if visited.contains(&at) {
                return at;
            }
            visited.push(at);
            let mut decoder = Decoder::with_ip(64, &code[offset..], at, DecoderOptions::NONE);
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                return at;
            }
            let next = instruction.next_ip();
            match instruction.flow_control() {
                FlowControl::Next => self.step(&instruction, &mut factory),
                FlowControl::ConditionalBranch => {
                    let not_null_jumps = matches!(instruction.mnemonic(), Mnemonic::Jne)
                        && std::mem::take(&mut self.null_test);
                    let target = instruction.near_branch_target();
                    if not_null_jumps && inside(target).is_some() {
                        self.jump(next, target);
                        at = target;
                        continue;
                    }
                }
                FlowControl::UnconditionalBranch => {
                    let target = instruction.near_branch_target();
                    if inside(target).is_none() {
                        self.leave(&instruction);
                        return at;
                    }
                    self.jump(next, target);
                    at = target;
                    continue;
                }
                FlowControl::IndirectBranch => {
                    self.leave(&instruction);
                    return at;
                }
                FlowControl::Call | FlowControl::IndirectCall => {
                    let result = self.returned(&instruction);
                    for register in 0..16u16 {
                        if !CALLEE_SAVED.contains(&register) {
                            self.set(register, Value::Unknown, at, next);
                        }
                    }
                    self.set(RAX, result, at, next);
                    self.vectors = [[Value::Unknown; 2]; 32];
                    self.null_test = false;
                }
                FlowControl::Return => {
                    if matches!(self.registers[0], Value::Result(_)) {
                        self.found.push(Destination::Returned { pc: at });
                    }
                    return next;
                }
                _ => return at,
            }
            at = next;
        }
        at
    }

    /// What a call returns, as far as it is known.
    fn returned(&self, call: &Instruction) -> Value {
        let target = match call.op0_kind() {
            OpKind::NearBranch64 => Target::Code(call.near_branch_target()),
            OpKind::Memory if call.is_ip_rel_memory_operand() => Target::Cell(call.ip_rel_memory_address()),
            _ => return Value::Unknown,
        };
        let first = self.registers[usize::from(RDI)];
        if first != Value::Unknown && (self.returns_argument)(target) { first } else { Value::Unknown }
    }

    /// A jump to another function, which returns to this one's caller.
    fn leave(&mut self, jump: &Instruction) {
        if matches!(self.returned(jump), Value::Result(_)) {
            self.found.push(Destination::Returned { pc: jump.ip() });
        }
    }

    /// Ends the interval in which `register` holds the result.
    fn close(&mut self, register: u16, end: u64) {
        let index = usize::from(register);
        if let Value::Result(0) = self.registers[index] {
            let start = self.since[index];
            self.found.push(Destination::Register {
                register: Register(register),
                start,
                end: end.max(start),
            });
        }
    }

    /// The path goes on at `target`: what lies between is not on it, and what a register holds there is not known.
    fn jump(&mut self, next: u64, target: u64) {
        for register in 0..16 {
            self.close(register, next);
            self.since[usize::from(register)] = target;
        }
    }

    fn set(&mut self, register: u16, value: Value, end: u64, since: u64) {
        let index = usize::from(register);
        if self.registers[index] != value {
            // The value is there until after the instruction that replaces it began.
            self.close(register, end.saturating_add(1));
            self.registers[index] = value;
            self.since[index] = since;
        }
    }

    fn get(&self, register: Reg) -> Value {
        number(register).map_or(Value::Unknown, |n| self.registers[usize::from(n)])
    }

    /// The named memory that an operand means, if any.
    fn memory_of(&self, instruction: &Instruction) -> Option<Memory> {
        let disp = instruction.memory_displacement64();
        if instruction.segment_prefix() == Reg::FS || instruction.memory_segment() == Reg::FS {
            let plain = instruction.memory_base() == Reg::None && instruction.memory_index() == Reg::None;
            return plain.then_some(Memory::Thread(disp as i64));
        }
        if instruction.is_ip_rel_memory_operand() {
            return Some(Memory::Global(instruction.ip_rel_memory_address()));
        }
        if instruction.memory_index() != Reg::None {
            return None;
        }
        if instruction.memory_base() == Reg::None {
            return Some(Memory::Global(disp));
        }
        match self.get(instruction.memory_base()) {
            Value::Entry { register, plus } => {
                Some(Memory::Slot { register, disp: plus.wrapping_add(disp as i64) })
            }
            Value::Fixed(address) => Some(Memory::Global(address.wrapping_add(disp))),
            _ => None,
        }
    }

    /// What a load from the operand gives.
    fn load(&self, instruction: &Instruction) -> Value {
        let Some(memory) = self.memory_of(instruction) else { return Value::Unknown };
        if let Some(&value) = self.memory.get(&memory) {
            return value;
        }
        let base = match memory {
            Memory::Global(svma) => Base::Global { svma },
            Memory::Slot { .. } if is_frame(instruction.memory_base()) => Base::FrameSlot {
                base: Register(number(instruction.memory_base()).unwrap_or(7)),
                disp: instruction.memory_displacement64() as i64,
                pc: instruction.ip(),
            },
            _ => return Value::Unknown,
        };
        Value::Loaded { base, plus: 0, indexed: false }
    }

    /// `value` is stored to the operand.
    fn store(&mut self, instruction: &Instruction, value: Value) {
        let memory = self.memory_of(instruction);
        if let Value::Result(_) = value
            && let Some(destination) = self.destination(instruction, memory)
        {
            self.found.push(destination);
        }
        if let Some(memory) = memory {
            self.memory.insert(memory, value);
        }
    }

    fn destination(&self, instruction: &Instruction, memory: Option<Memory>) -> Option<Destination> {
        let pc = instruction.ip();
        let disp = instruction.memory_displacement64() as i64;
        let base = instruction.memory_base();
        match memory {
            Some(Memory::Global(svma)) => return Some(Destination::Global { svma, pc }),
            Some(Memory::Thread(offset)) => return Some(Destination::ThreadLocal { offset, pc }),
            Some(Memory::Slot { .. }) if is_frame(base) => {
                return Some(Destination::FrameSlot { base: Register(number(base)?), disp, pc });
            }
            _ => {}
        }
        let index = instruction.memory_index();
        let field = |value: Value, more: bool| match value {
            Value::Entry { register, plus } if register != 7 => Some(Destination::Field {
                base: Base::Register { register: Register(register) },
                disp: plus.wrapping_add(disp),
                indexed: more,
                pc,
            }),
            Value::Loaded { base, plus, indexed } => {
                Some(Destination::Field { base, disp: plus.wrapping_add(disp), indexed: indexed || more, pc })
            }
            // A slot of the frame through its address: the offset counts from rsp as it was at
            // the return address.
            Value::Entry { register, plus } => Some(Destination::FrameSlot {
                base: Register(register),
                disp: plus.wrapping_add(disp),
                pc: self.start,
            }),
            _ => None,
        };
        if index == Reg::None {
            return field(self.get(base), false);
        }
        let scaled = instruction.memory_index_scale() > 1;
        // An array at a fixed address, either in a register or in the instruction itself.
        let array = match self.get(base) {
            Value::Fixed(address) => Some(address),
            _ => (base == Reg::None && scaled).then_some(0),
        };
        if let Some(address) = array {
            return Some(Destination::Element { svma: address.wrapping_add_signed(disp), pc });
        }
        // Either of the two may be the pointer; the scaled one is not.
        field(self.get(base), true).or_else(|| if scaled { None } else { field(self.get(index), true) })
    }

    fn step(&mut self, instruction: &Instruction, factory: &mut InstructionInfoFactory) {
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
                        self.get(instruction.op1_register())
                    }
                    OpKind::Memory => self.load(instruction),
                    _ => Value::Unknown,
                };
                self.assign(op0, value, ip, next);
            }
            Mnemonic::Mov if destination == OpKind::Memory => {
                let register = instruction.op1_register();
                let whole = source == OpKind::Register && register.is_gpr64();
                let value = if whole { self.get(register) } else { Value::Unknown };
                self.store(instruction, value);
            }
            Mnemonic::Lea if op0.is_gpr64() => {
                let value = self.address(instruction);
                self.assign(op0, value, ip, next);
            }
            Mnemonic::Add | Mnemonic::Sub if destination == OpKind::Register && op0.is_gpr64() => {
                let value = self.sum(instruction, op0);
                self.assign(op0, value, ip, next);
            }
            Mnemonic::Push => {
                let value = if source_is_gpr(instruction) { self.get(op0) } else { Value::Unknown };
                self.move_stack(-8);
                if let Value::Entry { register: 7, plus } = self.registers[7] {
                    self.memory.insert(Memory::Slot { register: 7, disp: plus }, value);
                }
            }
            Mnemonic::Pop if destination == OpKind::Register && op0.is_gpr64() => {
                let value = match self.registers[7] {
                    Value::Entry { register: 7, plus } => self
                        .memory
                        .get(&Memory::Slot { register: 7, disp: plus })
                        .copied()
                        .unwrap_or(Value::Unknown),
                    _ => Value::Unknown,
                };
                self.move_stack(8);
                self.assign(op0, value, ip, next);
            }
            // Sign extension of a result that was declared as `int`.
            Mnemonic::Cdqe if matches!(self.registers[0], Value::Result(_)) => {}
            Mnemonic::Test if source == OpKind::Register && op0 == instruction.op1_register() => {
                self.null_test = matches!(self.get(op0), Value::Result(_));
                keeps_null_test = true;
            }
            Mnemonic::Cmp if is_zero(instruction) => {
                let value = match destination {
                    OpKind::Register => self.get(op0),
                    OpKind::Memory => self.load(instruction),
                    _ => Value::Unknown,
                };
                self.null_test = matches!(value, Value::Result(_));
                keeps_null_test = true;
            }
            Mnemonic::Movq | Mnemonic::Vmovq => self.move_quad(instruction),
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
                    self.get(instruction.op1_register())
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
            | Mnemonic::Vmovdqu => self.move_vector(instruction),
            _ => handled = false,
        }
        if !keeps_null_test {
            self.null_test = false;
        }
        if !handled {
            self.forget_written(instruction, factory);
        }
    }

    fn assign(&mut self, register: Reg, value: Value, ip: u64, next: u64) {
        if let Some(number) = number(register) {
            self.set(number, value, ip, next);
        }
    }

    fn move_stack(&mut self, by: i64) {
        self.registers[7] = match self.registers[7] {
            Value::Entry { register, plus } => Value::Entry { register, plus: plus.wrapping_add(by) },
            _ => Value::Unknown,
        };
    }

    /// What `lea` computes.
    fn address(&self, instruction: &Instruction) -> Value {
        let disp = instruction.memory_displacement64() as i64;
        if instruction.is_ip_rel_memory_operand() {
            return Value::Fixed(instruction.ip_rel_memory_address());
        }
        let base = self.get(instruction.memory_base());
        if instruction.memory_index() == Reg::None {
            return plus_constant(base, disp);
        }
        let index = self.get(instruction.memory_index());
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
        let value = self.get(op0);
        match instruction.op1_kind() {
            OpKind::Immediate8to64 | OpKind::Immediate32to64 => {
                let by = instruction.immediate(1) as i64;
                let by = if instruction.mnemonic() == Mnemonic::Sub { by.wrapping_neg() } else { by };
                plus_constant(value, by)
            }
            OpKind::Register if instruction.mnemonic() == Mnemonic::Add => {
                match (value, self.get(instruction.op1_register())) {
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

    fn move_quad(&mut self, instruction: &Instruction) {
        let (op0, op1) = (instruction.op0_register(), instruction.op1_register());
        let value = match instruction.op1_kind() {
            OpKind::Register => vector(op1).map_or_else(|| self.get(op1), |v| self.vectors[v][0]),
            OpKind::Memory => self.load(instruction),
            _ => Value::Unknown,
        };
        if instruction.op0_kind() == OpKind::Memory {
            self.store(instruction, value);
        } else if let Some(to) = vector(op0) {
            self.vectors[to] = [value, Value::Unknown];
        } else {
            self.assign(op0, value, instruction.ip(), instruction.next_ip());
        }
    }

    fn move_vector(&mut self, instruction: &Instruction) {
        let op1 = instruction.op1_register();
        if instruction.op0_kind() == OpKind::Memory {
            let Some(from) = vector(op1) else { return };
            let [low, high] = self.vectors[from];
            self.store(instruction, low);
            if let Value::Result(_) = high {
                let memory = self.memory_of(instruction);
                if let Some(mut destination) = self.destination(instruction, memory) {
                    match &mut destination {
                        Destination::Global { svma, .. } | Destination::Element { svma, .. } => {
                            *svma = svma.wrapping_add(8);
                        }
                        Destination::FrameSlot { disp, .. } | Destination::Field { disp, .. } => {
                            *disp = disp.wrapping_add(8);
                        }
                        _ => {}
                    }
                    self.found.push(destination);
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
    fn forget_written(&mut self, instruction: &Instruction, factory: &mut InstructionInfoFactory) {
        let (ip, next) = (instruction.ip(), instruction.next_ip());
        let info = factory.info(instruction);
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
                self.set(number, Value::Unknown, ip, next);
            } else if let Some(to) = vector(used.register()) {
                self.vectors[to] = [Value::Unknown; 2];
            }
        }
        if info.used_memory().iter().any(|used| writes(used.access()))
            && let Some(memory) = self.memory_of(instruction)
        {
            self.memory.insert(memory, Value::Unknown);
        }
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

fn plus_constant(value: Value, by: i64) -> Value {
    match value {
        Value::Result(offset) => Value::Result(offset.wrapping_add(by)),
        Value::Entry { register, plus } => Value::Entry { register, plus: plus.wrapping_add(by) },
        Value::Loaded { base, plus, indexed } => Value::Loaded { base, plus: plus.wrapping_add(by), indexed },
        Value::Fixed(address) => Value::Fixed(address.wrapping_add_signed(by)),
        Value::Unknown => Value::Unknown,
    }
}

fn source_is_gpr(instruction: &Instruction) -> bool {
    instruction.op0_kind() == OpKind::Register && instruction.op0_register().is_gpr64()
}

fn is_zero(instruction: &Instruction) -> bool {
    !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory)
        && instruction.code() != Code::INVALID
        && instruction.immediate(1) == 0
}

fn is_frame(register: Reg) -> bool {
    matches!(register, Reg::RSP | Reg::RBP)
}

/// The DWARF number of a 64-bit general-purpose register.
fn number(register: Reg) -> Option<u16> {
    if register.is_gpr64() { register_of(register).map(|register| register.0) } else { None }
}

/// The number of a vector register of 16 bytes or more.
fn vector(register: Reg) -> Option<usize> {
    if register.is_vector_register() { Some(register.number()) } else { None }.filter(|&n| n < 32)
}

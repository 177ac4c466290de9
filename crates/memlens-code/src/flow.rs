//! Following a result along one path.

mod aarch64;
mod x86_64;

use std::collections::HashMap;

use crate::architecture::Architecture;
use crate::destination::{Base, Destination, Register};
use crate::function_code::{AddressExpression, IndexExtension};
use crate::instructions::{Place, Transfer};
use aarch64::AArch64;
use x86_64::X86_64;

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
    /// The thread pointer plus a constant.
    Thread(i64),
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

/// What the way of a result asks of an architecture's instructions.
trait Machine {
    type Instruction;
    const ARCHITECTURE: Architecture;

    /// The instruction at `at`, where `code` begins; None: it is none.
    fn decode(&self, code: &[u8], at: u64) -> Option<(Self::Instruction, Place)>;

    /// Whether a conditional jump is taken if the result is not null. Ends the test's validity.
    fn jumps_if_not_null(&self, flow: &mut Flow<'_>, instruction: &Self::Instruction) -> bool;

    /// Where a call or jump goes.
    fn target(&self, flow: &Flow<'_>, instruction: &Self::Instruction) -> Option<Target>;

    /// A call changes what it may.
    fn forget_unsaved(&mut self) {}

    /// What an instruction that leads to the next does to registers and memory.
    fn step(&mut self, flow: &mut Flow<'_>, instruction: &Self::Instruction);

    /// Says what registers that functions leave alone hold where the way begins, as far as that is the same in every run.
    fn begin(&self, _flow: &mut Flow<'_>, _code: &[u8], _start: u64) {}

    /// The fixed address that `register` holds all through a function, for what [`Self::begin`] does not say.
    fn fixed_address(&self, _code: &[u8], _start: u64, _register: Register) -> Option<u64> {
        None
    }
}

/// At most as many general-purpose registers has an architecture.
const MOST_REGISTERS: usize = 32;

struct Flow<'a> {
    architecture: Architecture,
    returns_argument: ReturnsArgument<'a>,
    registers: [Value; MOST_REGISTERS],
    since: [u64; MOST_REGISTERS],
    memory: HashMap<Memory, Value>,
    found: Vec<Destination>,
    /// Whether the flags say if the result is null.
    null_test: bool,
    /// The return address.
    start: u64,
}

/// Where the result (rax, x0) of the call that returns to `pc` goes, in the order of the path.
///
/// `code` is the function's machine code, its first byte at address `start`; nothing outside of it
/// is looked at. Through functions of which `returns_argument` says so it goes on. Cost: at most [`MAX_INSTRUCTIONS`]
/// instructions are decoded.
pub fn result_destinations(
    architecture: Architecture,
    code: &[u8],
    start: u64,
    pc: u64,
    returns_argument: ReturnsArgument<'_>,
) -> Vec<Destination> {
    let mut flow = Flow::new(architecture, pc, returns_argument);
    flow.registers[usize::from(architecture.result().0)] = Value::Result(0);
    flow.destinations(code, start)
}

/// As [`result_destinations`] for a call that stored its result in a slot of the caller's frame, as
/// `posix_memalign` does: where it goes from there. The slot is at `base + disp`, where `base` is rsp or
/// rbp, or sp or x29, as it stands at `pc`; the slot itself is not among the destinations.
pub fn slot_destinations(
    architecture: Architecture,
    code: &[u8],
    start: u64,
    pc: u64,
    (base, disp): (Register, i64),
    returns_argument: ReturnsArgument<'_>,
) -> Vec<Destination> {
    let mut flow = Flow::new(architecture, pc, returns_argument);
    flow.memory.insert(Memory::Slot { register: base.0, disp }, Value::Result(0));
    flow.destinations(code, start)
}

/// Whether a function returns its first argument, on the path that [`result_destinations`] follows: of a constructor, `this`.
/// Arguments are as there. Cost: the same.
pub fn returns_first_argument(
    architecture: Architecture,
    code: &[u8],
    start: u64,
    returns_argument: ReturnsArgument<'_>,
) -> bool {
    let mut flow = Flow::new(architecture, start, returns_argument);
    flow.registers[usize::from(architecture.arguments()[0].0)] = Value::Result(0);
    let found = flow.destinations(code, start);
    found.iter().any(|destination| matches!(destination, Destination::Returned { .. }))
}

impl<'a> Flow<'a> {
    /// The state at the return address `pc`, with the result nowhere.
    fn new(architecture: Architecture, pc: u64, returns_argument: ReturnsArgument<'a>) -> Self {
        let mut flow = Self {
            architecture,
            returns_argument,
            registers: [Value::Unknown; MOST_REGISTERS],
            since: [pc; MOST_REGISTERS],
            memory: HashMap::new(),
            found: Vec::new(),
            null_test: false,
            start: pc,
        };
        for register in 0..architecture.register_count() {
            if architecture.is_callee_saved(Register(register)) {
                flow.registers[usize::from(register)] = Value::Entry { register, plus: 0 };
            }
        }
        flow
    }

    /// Follows the path and returns what the result reached.
    fn destinations(self, code: &[u8], start: u64) -> Vec<Destination> {
        match self.architecture {
            Architecture::X86_64 => self.destinations_on(&mut X86_64::new(), code, start),
            Architecture::AArch64 => self.destinations_on(&mut AArch64, code, start),
        }
    }

    fn destinations_on<M: Machine>(mut self, machine: &mut M, code: &[u8], start: u64) -> Vec<Destination> {
        debug_assert_eq!(self.architecture, M::ARCHITECTURE);
        machine.begin(&mut self, code, start);
        let end = self.follow(machine, code, start, self.start);
        for register in 0..self.architecture.register_count() {
            self.close(register, end);
        }
        self.elements(machine, code, start);
        self.found
    }

    /// Says of each store through a register that held a pointer before the call whether that is the
    /// address of an array, as a loop keeps it.
    fn elements<M: Machine>(&mut self, machine: &M, code: &[u8], start: u64) {
        let mut at = 0;
        while at < self.found.len() {
            if let Destination::Field { base: Base::Register { register }, disp, indexed: true, pc } =
                self.found[at]
                && let Some(address) = machine.fixed_address(code, start, register)
            {
                at += 1;
                let svma = address.wrapping_add_signed(disp);
                self.found.insert(at, Destination::Element { svma, pc });
            }
            at += 1;
        }
    }

    /// Follows the path and returns the address where it ended.
    fn follow<M: Machine>(&mut self, machine: &mut M, code: &[u8], start: u64, pc: u64) -> u64 {
        let mut visited = Vec::new();
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
            let Some((instruction, Place { next, transfer, .. })) = machine.decode(&code[offset..], at)
            else {
                return at;
            };
            match transfer {
                Transfer::Next => machine.step(self, &instruction),
                Transfer::Branch(target) => {
                    if machine.jumps_if_not_null(self, &instruction) && inside(target).is_some() {
                        self.jump(next, target);
                        at = target;
                        continue;
                    }
                }
                Transfer::Jump(target) => {
                    if inside(target).is_none() {
                        self.leave(machine.target(self, &instruction), at);
                        return at;
                    }
                    self.jump(next, target);
                    at = target;
                    continue;
                }
                Transfer::IndirectJump | Transfer::Leave => {
                    self.leave(machine.target(self, &instruction), at);
                    return at;
                }
                Transfer::Call(_) => {
                    let result = self.returned(machine.target(self, &instruction));
                    for register in 0..self.architecture.register_count() {
                        if !self.architecture.is_callee_saved(Register(register)) {
                            self.set(register, Value::Unknown, at, next);
                        }
                    }
                    self.set(self.architecture.result().0, result, at, next);
                    machine.forget_unsaved();
                    self.null_test = false;
                }
                Transfer::Return => {
                    if matches!(self.get(self.architecture.result().0), Value::Result(_)) {
                        self.found.push(Destination::Returned { pc: at });
                    }
                    return next;
                }
                Transfer::Interrupt | Transfer::Breakpoint | Transfer::Transaction | Transfer::Undefined => {
                    return at;
                }
            }
            at = next;
        }
        at
    }

    /// What a call of `target` returns, as far as it is known.
    fn returned(&self, target: Option<Target>) -> Value {
        let first = self.get(self.architecture.arguments()[0].0);
        match target {
            Some(target) if first != Value::Unknown && (self.returns_argument)(target) => first,
            _ => Value::Unknown,
        }
    }

    /// A jump at `pc` to another function, which returns to this one's caller.
    fn leave(&mut self, target: Option<Target>, pc: u64) {
        if matches!(self.returned(target), Value::Result(_)) {
            self.found.push(Destination::Returned { pc });
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
        for register in 0..self.architecture.register_count() {
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

    fn get(&self, register: u16) -> Value {
        self.registers.get(usize::from(register)).copied().unwrap_or(Value::Unknown)
    }

    /// What a part of an address holds; unknown, where there is none.
    fn part(&self, register: Option<Register>) -> Value {
        register.map_or(Value::Unknown, |register| self.get(register.0))
    }

    /// The named memory that an address means, if any.
    fn memory_of(&self, address: &AddressExpression) -> Option<Memory> {
        if address.is_thread_local {
            return (!address.has_registers()).then_some(Memory::Thread(address.disp));
        }
        if address.index.is_some() || address.is_partial {
            return None;
        }
        let Some(base) = address.base else { return Some(Memory::Global(address.disp as u64)) };
        match self.get(base.0) {
            Value::Entry { register, plus } => {
                Some(Memory::Slot { register, disp: plus.wrapping_add(address.disp) })
            }
            Value::Fixed(svma) => Some(Memory::Global(svma.wrapping_add_signed(address.disp))),
            Value::Thread(offset) => Some(Memory::Thread(offset.wrapping_add(address.disp))),
            _ => None,
        }
    }

    /// What a load from the address by the instruction at `pc` gives.
    fn load(&self, address: &AddressExpression, pc: u64) -> Value {
        let Some(memory) = self.memory_of(address) else { return Value::Unknown };
        if let Some(&value) = self.memory.get(&memory) {
            return value;
        }
        let base = match (memory, address.base) {
            (Memory::Global(svma), _) => Base::Global { svma },
            (Memory::Slot { .. }, Some(base)) if self.architecture.is_frame_base(base) => {
                Base::FrameSlot { base, disp: address.disp, pc }
            }
            _ => return Value::Unknown,
        };
        Value::Loaded { base, plus: 0, indexed: false }
    }

    /// The instruction at `pc` stores `value` to the address.
    fn store(&mut self, address: &AddressExpression, pc: u64, value: Value) {
        let memory = self.memory_of(address);
        if let Value::Result(_) = value
            && let Some(destination) = self.destination(address, pc, memory)
        {
            self.found.push(destination);
        }
        if let Some(memory) = memory {
            self.memory.insert(memory, value);
        }
    }

    fn destination(
        &self,
        address: &AddressExpression,
        pc: u64,
        memory: Option<Memory>,
    ) -> Option<Destination> {
        let AddressExpression { base, index, scale, disp, index_extension, .. } = *address;
        match (memory, base) {
            (Some(Memory::Global(svma)), _) => return Some(Destination::Global { svma, pc }),
            (Some(Memory::Thread(offset)), _) => return Some(Destination::ThreadLocal { offset, pc }),
            (Some(Memory::Slot { .. }), Some(base)) if self.architecture.is_frame_base(base) => {
                return Some(Destination::FrameSlot { base, disp, pc });
            }
            _ => {}
        }
        let field = |value: Value, more: bool| match value {
            Value::Entry { register, plus } if Register(register) != self.architecture.stack_pointer() => {
                Some(Destination::Field {
                    base: Base::Register { register: Register(register) },
                    disp: plus.wrapping_add(disp),
                    indexed: more,
                    pc,
                })
            }
            Value::Loaded { base, plus, indexed } => {
                Some(Destination::Field { base, disp: plus.wrapping_add(disp), indexed: indexed || more, pc })
            }
            // A slot of the frame through its address: the offset counts from the stack pointer as it was at
            // the return address.
            Value::Entry { register, plus } => Some(Destination::FrameSlot {
                base: Register(register),
                disp: plus.wrapping_add(disp),
                pc: self.start,
            }),
            _ => None,
        };
        if index.is_none() {
            return field(self.part(base), false);
        }
        let scaled = scale > 1 || index_extension != IndexExtension::None;
        // An array at a fixed address, either in a register or in the instruction itself.
        let array = match self.part(base) {
            Value::Fixed(address) => Some(address),
            _ => (base.is_none() && scaled).then_some(0),
        };
        if let Some(address) = array {
            return Some(Destination::Element { svma: address.wrapping_add_signed(disp), pc });
        }
        // Either of the two may be the pointer; the scaled one is not.
        field(self.part(base), true).or_else(|| if scaled { None } else { field(self.part(index), true) })
    }
}

fn plus_constant(value: Value, by: i64) -> Value {
    match value {
        Value::Result(offset) => Value::Result(offset.wrapping_add(by)),
        Value::Entry { register, plus } => Value::Entry { register, plus: plus.wrapping_add(by) },
        Value::Loaded { base, plus, indexed } => Value::Loaded { base, plus: plus.wrapping_add(by), indexed },
        Value::Fixed(address) => Value::Fixed(address.wrapping_add_signed(by)),
        Value::Thread(offset) => Value::Thread(offset.wrapping_add(by)),
        Value::Unknown => Value::Unknown,
    }
}

//! What the questions of this crate need to know of a function's instructions, whatever their architecture.

use crate::destination::Register;
use crate::function_code::{AddressExpression, MemoryOperand};

/// Where execution goes behind an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// To the next one.
    Next,
    /// There, or to the next one.
    Branch(u64),
    /// There.
    Jump(u64),
    /// To where a register or memory says.
    IndirectJump,
    /// To where a cell at a fixed place says, which is none of the function: see [`crate::ControlFlow`].
    Leave,
    /// To a function (None: a register or memory says which), and then to the next one. A system call, too.
    Call(Option<u64>),
    /// To the caller.
    Return,
    /// To a handler, and then on: `int` of x86-64.
    Interrupt,
    /// To a handler, which seldom returns: `int3`, `brk`.
    Breakpoint,
    /// To the next one, and to a handler if the transaction that it begins fails: `xbegin` and its like.
    Transaction,
    /// To a handler, which does not return: what is undefined, on purpose.
    Undefined,
}

impl Transfer {
    /// Whether it is a jump inside code with a known target, conditional or not: where to.
    pub fn target(self) -> Option<u64> {
        match self {
            Self::Branch(target) | Self::Jump(target) => Some(target),
            _ => None,
        }
    }

    /// Whether it is a call.
    pub fn is_call(self) -> bool {
        matches!(self, Self::Call(_))
    }
}

/// Where an instruction is and where it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its address.
    pub(crate) pc: u64,
    /// The address behind it.
    pub(crate) next: u64,
    pub(crate) transfer: Transfer,
}

/// How much of a register a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Whole,
    /// Its low 32 bits.
    Low,
}

/// How an instruction made what it left in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// From what another register, or this one, held: a copy, or a constant or an index was added.
    From(Register),
    /// From two, one of which is an index or another way's value.
    Either(Register, Register),
    /// It is a fixed address.
    Fixed(u64),
    /// It is an address in the frame.
    Frame(AddressExpression),
    /// It was loaded from the instruction's first memory operand, so many bytes behind its begin.
    Loaded(i64),
    /// Otherwise.
    Lost,
}

/// How an instruction made a register's value from a constant, where an architecture takes several instructions for
/// an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Constant {
    /// It is one.
    Is(Known),
    /// Another register's value and so much.
    Plus(Register, i64),
}

/// What a register holds in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// An address (svma).
    Fixed(u64),
    /// The thread pointer and so much.
    ThreadPointer(i64),
}

impl Known {
    pub(crate) fn plus(self, by: i64) -> Self {
        match self {
            Self::Fixed(address) => Self::Fixed(address.wrapping_add_signed(by)),
            Self::ThreadPointer(offset) => Self::ThreadPointer(offset.wrapping_add(by)),
        }
    }
}

/// The decoded instructions of a function by position, the first of which is 0. Promises:
///
/// 1. Of a position behind the end every answer is the one for an instruction that nothing is known of.
/// 2. What is said of a register is about its 64 bits, where nothing else is said.
/// 3. Where an instruction is not understood, it writes to all registers.
pub(crate) trait Instructions: Send {
    /// The memory operands, those of its own stack use included; of a prefetch none.
    fn operands(&self, position: usize) -> Vec<MemoryOperand>;

    /// Whether it writes to a register, or may.
    fn writes(&self, position: usize, register: Register) -> bool;

    /// What it adds to a register: 0 if it leaves it alone, None if it does something else to it.
    fn constant_change(&self, position: usize, register: Register, width: Width) -> Option<i64>;

    /// The sum that it computes a register from.
    fn computed(&self, position: usize, register: Register) -> Option<AddressExpression>;

    /// The 64-bit registers that a plain load fills.
    fn loaded(&self, position: usize) -> [Option<Register>; 2];

    /// How it makes what it leaves in a register that it writes to.
    fn made(&self, position: usize, register: Register) -> Made;

    /// Whether addresses are made by several instructions, of which [`Self::constant`] tells.
    fn makes_constants(&self) -> bool {
        false
    }

    /// How it makes a constant in a register that it writes to.
    fn constant(&self, _position: usize, _register: Register) -> Option<Constant> {
        None
    }

    /// Whether `jump` is one operation with the instruction at `before`.
    fn is_fused(&self, before: usize, jump: usize) -> bool;

    /// Whether it is interrupted between its rounds, with registers that say how far it is.
    fn is_repeated(&self, position: usize) -> bool;

    /// Whether it is what assemblers fill gaps with.
    fn is_padding(&self, position: usize) -> bool;
}

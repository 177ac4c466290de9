//! What each instruction reads and writes, how long it takes and where it leads: what an out-of-order core goes by.
//!
//! What is asked is said here; `effects/x86_64.rs` and `effects/aarch64.rs` answer.

mod aarch64;
#[cfg(test)]
mod aarch64_tests;
mod x86_64;

use crate::architecture::Architecture;

/// Registers of a core, a bit each, of one architecture:
///
/// | bits | x86-64 | AArch64 |
/// |---|---|---|
/// | from 0 | 16 general ones | x0–x30 |
/// | from 16, of AArch64 from 32 | 32 vector ones | 32 vector ones |
/// | 48, of AArch64 31 | the flags | the flags, and the predicates of SVE, which are made with them |
/// | from 49 | 8 masks | |
///
/// sp of AArch64 is none of them: it is moved by constants, known early, and 64 bits are full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisterSet(u64);

impl RegisterSet {
    /// How many there are at most: bits are below that.
    pub const COUNT: usize = 64;

    /// The numbers of its registers, rising.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(bit)
        })
    }

    fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl std::ops::BitOrAssign for RegisterSet {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// Where execution goes behind an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leads {
    /// To the next one.
    On,
    /// There.
    To(u64),
    /// There or to the next one.
    Either(u64),
    /// Where the code does not say: a return, an indirect jump or call.
    Away,
}

/// What an instruction waits for its operands in front of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Arithmetic of general registers, branches.
    Integer,
    /// Multiplications of general registers.
    Multiply,
    /// Whatever computes with vector registers or masks.
    Vector,
    /// Loads and stores that do nothing else.
    Address,
}

impl Unit {
    /// How many there are.
    pub const COUNT: usize = 4;
}

/// What comes behind an instruction waits for that does not need its result. Of x86-64 nothing is told.
///
/// Releases (`STLR`, atomics with L in their names) and `DMB ST` are [`Self::Free`]: a store is written behind all that was there before it
/// in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Nothing does.
    #[default]
    Free,
    /// Accesses, for it: loads that acquire.
    Acquire,
    /// Accesses, for the loads in front of it: `DMB LD`.
    AfterLoads,
    /// Accesses, for all accesses in front of it: `DMB`, `DSB`.
    AfterAccesses,
    /// All, for all in front of it: `ISB`.
    AfterAll,
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effects {
    /// Its address (svma).
    pub at: u64,
    /// The next one's.
    pub next: u64,
    /// Where execution goes.
    pub leads: Leads,
    /// Registers of its memory operands' addresses. Stack pointers that pushes and pops of x86-64 move by themselves are not among
    /// them: cores count these apart.
    pub address: RegisterSet,
    /// Other registers that it reads.
    pub reads: RegisterSet,
    /// Registers that it writes, but for `moves`, and for the pointers and the counter of string instructions that compare nothing: these do
    /// not wait for what is loaded.
    pub writes: RegisterSet,
    /// Registers of its address that it moves besides, by an operation of their own: write-back of AArch64. They are there
    /// [`Self::MOVE_CYCLES`] behind the address, whatever is loaded.
    pub moves: RegisterSet,
    /// Cycles from its operands to its result, but for those that a load takes.
    pub latency_cycles: u8,
    /// What executes it.
    pub unit: Unit,
    /// What it keeps in order.
    pub order: Order,
    /// Whether it has a memory operand.
    pub touches_memory: bool,
    /// Whether it is a string instruction that repeats itself.
    pub repeats: bool,
}

impl Effects {
    /// Cycles that write-back of an address takes.
    pub const MOVE_CYCLES: u8 = 1;
}

/// The instructions of a function, by rising address. What is no instruction is passed over; of AArch64 it is one that does nothing
/// that is known.
///
/// Cost: some hundred nanoseconds an instruction.
pub fn effects(architecture: Architecture, code: &[u8], start: u64) -> Vec<Effects> {
    match architecture {
        Architecture::X86_64 => x86_64::effects(code, start),
        Architecture::AArch64 => aarch64::effects(code, start),
    }
}

//! What machine code says of data: where a call's result goes, which access a sampled
//! instruction waits for, where the pointer in a register came from. Facts from bytes.
//!
//! This crate deliberately knows neither files, symbols nor debug information: bytes of functions go
//! in, facts in terms of addresses come out. `memlens-symbols` and `memlens-static` turn them into
//! names. The code is that of an [`Architecture`], which need not be the host's.
//!
//! | question | answer | of |
//! |---|---|---|
//! | what does an instruction touch, what does a sample wait for, where does a pointer come from? | [`FunctionCode`] | x86-64, AArch64 |
//! | where does the result of a call go? | [`result_destinations`], below | x86-64, AArch64 |
//! | which blocks, edges, dominators, loops has a function? | [`ControlFlow`], [`immediate_dominators`], [`Loops`] | x86-64, AArch64 |
//! | does an operand's address come from another load of its loop, or from itself? | [`LoopCode::address_source`] | x86-64, AArch64 |
//! | which objects can each memory operand of a module touch? | [`points_to`] | x86-64 |
//! | what does each instruction read, write and take? | [`effects()`] | x86-64, AArch64 |
//!
//! What is not of AArch64 takes all code for x86-64: callers ask it of that only. What [`FunctionCode`] asks of instructions,
//! `instructions.rs` says as a trait; `x86_64.rs` and `aarch64.rs` answer. Other questions have a file, with the answers of each architecture
//! in a folder of its name. A64 is decoded in `aarch64/decode.rs`, which registers its instructions read and write is in
//! `aarch64/operands.rs`; x86-64 is decoded by `iced-x86`.
//!
//! # Model of results
//!
//! One path is followed from the return address, at most [`MAX_INSTRUCTIONS`] instructions long:
//! null checks of the result are passed on the side where it is not null, other conditional
//! branches fall through, direct jumps inside the function are taken. Along the path each register
//! (and each half of a vector register, and each stack slot or global written) holds one of
//!
//! ```text
//!  result+n      the call's result plus a constant
//!  entry r       what register r held at the return address
//!  value of m    loaded from memory m (a slot of the frame or a fixed address)
//!  address of m  the address of m
//!  unknown       anything else
//! ```
//!
//! A store of the result, a register that holds it, and a return of it are destinations. Calls
//! keep callee-saved registers ([`Architecture::is_callee_saved`]). A callee-saved register that the
//! whole function loads only one fixed address into is the base of an array there; of AArch64 one that holds the same fixed address
//! on all ways to the call, is that address.
//!
//! Not modelled: paths not followed, stores through pointers that alias tracked memory; of AArch64, vector registers.
//!
//! # Example
//!
//! ```
//! use memlens_code::{Architecture, Destination, result_destinations};
//!
//! // mov [rip+0x2000], rax ; ret
//! let code = [0x48, 0x89, 0x05, 0x00, 0x20, 0x00, 0x00, 0xc3];
//! let found = result_destinations(Architecture::X86_64, &code, 0x1000, 0x1000, &|_| false);
//! assert_eq!(found[0], Destination::Global { svma: 0x3007, pc: 0x1000 });
//! ```
#![forbid(unsafe_code)]

mod aarch64;
mod address_source;
mod architecture;
mod control_flow;
mod destination;
mod effects;
mod flow;
mod function_code;
mod instructions;
mod loops;
mod memory_object;
mod origin;
mod points_to;
#[cfg(test)]
mod points_to_tests;
#[cfg(test)]
mod tests;
mod waiting;
mod x86_64;

pub use aarch64::A64Instruction;
pub use address_source::{AddressSource, LoopCode, LoopPlaces};
pub use architecture::Architecture;
pub use control_flow::{
    Block, ControlFlow, LINKAGE_STUB_BYTES, Step, call_target, calls_alike, functions_called, is_fused,
    is_return, jump_target, linkage_cell,
};
pub use destination::{Base, Destination, Register};
pub use effects::{Effects, Leads, Order, RegisterSet, Unit, effects};
pub use flow::{
    MAX_INSTRUCTIONS, ReturnsArgument, Target, result_destinations, returns_first_argument, slot_destinations,
};
pub use function_code::{AddressExpression, FunctionCode, IndexExtension, MemoryOperand};
pub use instructions::Transfer;
pub use loops::{Loops, NaturalLoop, immediate_dominators};
pub use memory_object::{Object, ObjectIx, Pointer};
pub use origin::{MAX_VISITS, Origin};
pub use points_to::{Callee, FunctionParts, MAX_CALLS, PointsTo, Surroundings, Touched, points_to};
pub use waiting::{MAX_STEPS, SampleSkid, WaitingAccess, Waits};

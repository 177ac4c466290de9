//! Plans software prefetches for loads that miss: in which loop a load is, how its address comes about, and a detour
//! that computes the address of some iterations later and prefetches it.
//!
//! It knows machine code as bytes. It deliberately knows neither files, processes nor profiles: functions and places in
//! them go in, detours come out, to be put into a program by somebody else.
//!
//! ```text
//!  bytes, loads ──► function.rs   blocks, loops, who defines which register, what is live
//!                     │
//!                     ▼
//!                  slice.rs       a[i]: strided · a[b[i]], a[hash(b[i])]: indirect · anything else: refused, and why
//!                     │
//!                     ▼
//!                  window.rs      where a jump of five bytes can go
//!                     │
//!                     ▼
//!                  detour.rs      jump, prefetch code, the instructions that the jump displaced, jump back
//! ```
//!
//! # What holds by construction
//!
//! 1. **No fault is added.** A prefetch never faults (Intel SDM vol. 2, "PREFETCHh"; AMD64 APM vol. 3, "PREFETCHlevel").
//!    The values of later iterations are loaded from the same 4-KiB page that the program has read itself, in the same
//!    iteration and before, without a call between: offsets are taken modulo the page, and rounded down to the size of
//!    what is loaded, so that no load crosses the page's end. At a page's end some prefetches are for nothing. Other
//!    loads are repeated only where the program has made the same one just before, or from the stack frame, or from a
//!    constant address.
//! 2. **Nothing is stored** but registers that are saved below the red zone (System V ABI AMD64 1.0, section 3.2.2).
//! 3. **Registers and flags are kept** unless nothing reads them before they are written again. Registers that the
//!    function never writes are always kept: callers compiled with inter-procedural register allocation rely on it.
//! 4. **A jump displaces whole instructions of one block**, into whose middle no direct jump of the module goes. Functions
//!    with indirect jumps, with bytes that are no code, or entered from elsewhere than their start, are refused.
//!
//! # What is not done
//!
//! Pointer chases and addresses with two dependent loads; steps that are not constant; addresses from vector registers;
//! iterations counted down by `loop`. Prefetches go past the end of an array by the distance.
//!
//! # Sources
//!
//! T. C. Mowry, M. S. Lam, A. Gupta: Design and Evaluation of a Compiler Algorithm for Prefetching, ASPLOS 1992. S. Ainsworth,
//! T. M. Jones: Software Prefetching for Indirect Memory Accesses, CGO 2017 (the slice, and its look-ahead loads; they
//! clamp to the array's bounds, which machine code does not have: we stay in the page). Q. Zhao et al.: Ubiquitous Memory
//! Introspection, CGO 2007, section 8 (strides only).
#![forbid(unsafe_code)]

mod detour;
mod function;
mod slice;
#[cfg(test)]
mod tests;
mod window;

pub use detour::{COUNTERS, Detour, EncodeError, MAX_DISTANCE, Moved, TRAMPOLINE_GAP, Task};
pub use function::Function;
pub use slice::{Pattern, Refusal};
pub use window::{Jump, Plan, Prefetch, jumps, plan};

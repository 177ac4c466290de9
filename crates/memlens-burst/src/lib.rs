//! Bursts: a thread's own code, run for a while from a copy that stores the address of every memory access.
//!
//! ```text
//!  runtime.rs    begin (from a signal handler) … next_code (when the copy does not know the way) … end
//!  code_map.rs   which code may be copied, and which of it may change
//!  counting.rs   how fast the thread is in copies that only count
//!  cache.rs      blocks, exits, what is found how; hashes.rs: blocks by address
//!  x86_64/, aarch64/   all that depends on the architecture: decoding, translation, the way between copy and runtime
//!  filter.rs     whether operands that seldom miss are left out
//!  sys.rs, table.rs, heap.rs   memory of our own
//! ```
//!
//! # Promises
//! * The program's registers, flags, memory and stack are at each native instruction what they would have been;
//!   return addresses on the stack are native.
//! * A burst can end at any exit of a block; whatever is not understood ends it.
//! * No function of libc, no memory of the target's heap, no lock that is waited for without bound by a thread that
//!   could hold it.
//!
//! What it does not do: decide when bursts begin, send them anywhere, or know what the addresses mean.
#![cfg_attr(not(test), no_std)]
#![warn(clippy::std_instead_of_core)]

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("bursts exist for x86-64 and AArch64 only: see src/x86_64");

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod cache;
mod code_map;
mod counting;
mod filter;
mod hashes;
pub mod heap;
mod runtime;
mod sys;
mod table;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as arch;
#[cfg(target_arch = "x86_64")]
use x86_64 as arch;

pub use arch::{AROUND as WAITING_AROUND, Area, code_waits};
pub use counting::Counted;
pub use filter::filter_operations;
pub use runtime::{
    Burst, Hooks, Limits, MOST_WORDS, Missing, NewBlock, active, begin, check_support, code_has_changed,
    forget_after_fork, is_interrupted, is_waiting, leave_at_fault,
};

//! Loops in each of which exactly one instruction waits; see [`crate::skid`].
#![allow(unsafe_code)]

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as arch;
#[cfg(target_arch = "x86_64")]
use x86_64 as arch;

pub use arch::LOOPS;

type Code = unsafe extern "C" fn(*const usize, u64) -> *const usize;

/// A loop of known code.
pub struct KnownLoop {
    /// Its name in the table.
    pub name: &'static str,
    /// Follows a chain of pointers, or writes to lines from an address on, for so many rounds.
    pub code: Code,
    /// Behind its last instruction.
    end: unsafe extern "C" fn(),
    /// The first instruction of the loop: a position in the code.
    pub first: usize,
    /// The one that waits.
    pub waits: usize,
}

impl KnownLoop {
    /// The addresses of the loop's instructions, in the order of code, those before the loop included.
    pub fn instructions(&self) -> Vec<u64> {
        let (start, end) = (self.code as usize, self.end as usize);
        // SAFETY: both labels are in one piece of code, the end behind the start.
        let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, end - start) };
        arch::instructions(bytes, start as u64)
    }
}

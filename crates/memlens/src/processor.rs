//! What needs a processor whose code memlens understands whole: to translate all of it, as exact mode's engine and `memlens apply` do, or
//! to follow all of its pointers, as static attribution does. That is x86-64. Bursts are AArch64's, too.

use crate::failure::{Failure, FailureKind};

/// Whether this processor is one.
pub const IS_X86_64: bool = cfg!(target_arch = "x86_64");

/// Whether code that this processor has vectors of any length for (SVE) is common here: a burst ends before it, and begins nowhere
/// as long as such vectors are live (`memlens-burst/src/aarch64/context.rs`).
pub fn has_scalable_vectors() -> bool {
    #[cfg(target_arch = "aarch64")]
    let has = std::arch::is_aarch64_feature_detected!("sve");
    #[cfg(not(target_arch = "aarch64"))]
    let has = false;
    has
}

/// That something (a mode, a command) is not there, unless this processor is one; `instead`: what to do.
///
/// # Errors
/// It is not.
pub fn needs_x86_64(what: &str, instead: &str) -> Result<(), Failure> {
    if IS_X86_64 {
        return Ok(());
    }
    let message =
        format!("{what} needs an x86-64 processor, and this one is {}; {instead}", std::env::consts::ARCH);
    Err(Failure::new(FailureKind::Unavailable, message))
}

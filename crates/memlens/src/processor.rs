//! What needs a processor whose code memlens understands whole: to translate it, as bursts, exact mode's engine and `memlens apply` do, or
//! to follow all of its pointers, as static attribution does. That is x86-64.

use crate::failure::{Failure, FailureKind};

/// Whether this processor is one.
pub const IS_X86_64: bool = cfg!(target_arch = "x86_64");

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

//! What needs a processor that memlens can translate code for. Translated code is x86-64's: that of bursts, of exact mode's engine, and
//! of what `memlens apply` changes in a program.

use crate::failure::{Failure, FailureKind};

/// Whether this processor is one.
pub const TRANSLATES: bool = memlens_exact::HAS_ENGINE;

/// That something (a mode, a command) is not there, unless this processor is one; `instead`: what to do.
///
/// # Errors
/// It is not.
pub fn needs_translation(what: &str, instead: &str) -> Result<(), Failure> {
    if TRANSLATES {
        return Ok(());
    }
    let message =
        format!("{what} needs an x86-64 processor, and this one is {}; {instead}", std::env::consts::ARCH);
    Err(Failure::new(FailureKind::Unavailable, message))
}

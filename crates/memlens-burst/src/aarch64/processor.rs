//! What is asked of the processor: its clock, the thread pointer, what it needs of returns.

use core::arch::asm;

use crate::runtime::Missing;

/// Whether this processor and thread can have bursts.
///
/// # Errors
/// What is missing.
pub fn check_support() -> Result<(), Missing> {
    if has_guarded_stack() { Err(Missing::PlainReturns) } else { Ok(()) }
}

/// Time in cycles of a clock of some 3 GHz, whatever the frequency of the counter that is read, so that limits mean the same everywhere.
pub fn cycles() -> u64 {
    const HERTZ: u64 = 3_000_000_000;
    let (count, frequency): (u64, u64);
    // SAFETY: Linux lets programs read both (Arm Architecture Reference Manual for A-profile, D24.10.2 and D24.10.24).
    unsafe {
        asm!(
            "mrs {}, cntvct_el0", "mrs {}, cntfrq_el0", out(reg) count, out(reg) frequency,
            options(nomem, nostack, preserves_flags),
        );
    }
    count.wrapping_mul((HERTZ / frequency.max(1)).max(1))
}

/// How much of its core the thread has is not measured: few processors of the architecture let threads share one, and the counter is too
/// coarse. 0: not known.
pub fn sum_cycles() -> u64 {
    0
}

/// The thread pointer.
pub fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: only asks.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) pointer, options(pure, nomem, nostack, preserves_flags)) };
    pointer
}

/// Bytes of the block that `DC ZVA` clears (the same, D24.2.42).
pub fn zeroed_bytes() -> u16 {
    let features: u64;
    // SAFETY: only asks.
    unsafe { asm!("mrs {}, dczid_el0", out(reg) features, options(pure, nomem, nostack, preserves_flags)) };
    4 << (features & 15)
}

/// Whether the thread has a guarded control stack: then returns must come from calls. `CHKFEAT` clears the bits of what is enabled, and does nothing
/// where it is not known (the same, C6.2.73).
fn has_guarded_stack() -> bool {
    let features: u64;
    // SAFETY: a hint that changes x16 alone.
    unsafe { asm!("hint #40", inout("x16") 1u64 => features, options(nomem, nostack, preserves_flags)) };
    features & 1 == 0
}

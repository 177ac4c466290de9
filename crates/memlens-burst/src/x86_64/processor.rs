//! What is asked of the processor: its clock, the thread pointer, what it needs of returns.

use core::arch::asm;

use super::context::VECTORS_BYTES;
use super::trace::find_announcement;
use crate::runtime::Missing;

/// Whether this processor and thread can have bursts.
///
/// # Errors
/// What is missing.
pub fn check_support() -> Result<(), Missing> {
    // SAFETY: every x86-64 processor has the instruction.
    let features = core::arch::x86_64::__cpuid(1).ecx;
    const SSE_4_2: u32 = 1 << 20;
    const OS_XSAVE: u32 = 1 << 27;
    if features & SSE_4_2 == 0 || features & OS_XSAVE == 0 {
        return Err(Missing::Instructions);
    }
    let bytes = core::arch::x86_64::__cpuid_count(0xd, 0).ebx;
    if bytes as usize > VECTORS_BYTES - 64 {
        return Err(Missing::KnownVectors);
    }
    if has_shadow_stack() {
        return Err(Missing::PlainReturns);
    }
    find_announcement();
    Ok(())
}

/// The time-stamp counter.
pub fn cycles() -> u64 {
    // SAFETY: an instruction of every x86-64 processor; where it is forbidden (prctl(2), PR_SET_TSC) bursts are not
    // begun.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Cycles that 3,000 additions take which do not wait for each other: how much of its core the thread has at the moment. Where
/// another one runs on the same core, they take nearly twice as long. The fewest of three tries.
pub fn sum_cycles() -> u64 {
    let round = || {
        let began = cycles();
        // SAFETY: changes nothing but the registers that it names, and flags.
        unsafe {
            asm!(
                "2:",
                "add {a}, 1",
                "add {b}, 1",
                "add {c}, 1",
                "add {d}, 1",
                "add {e}, 1",
                "dec {left}",
                "jnz 2b",
                a = inout(reg) 0u64 => _,
                b = inout(reg) 0u64 => _,
                c = inout(reg) 0u64 => _,
                d = inout(reg) 0u64 => _,
                e = inout(reg) 0u64 => _,
                left = inout(reg) 600u64 => _,
                options(nomem, nostack),
            );
        }
        cycles().saturating_sub(began)
    };
    round().min(round()).min(round())
}

/// The address at which the thread's `fs` register points: System V keeps it in the first word there.
pub fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: reads the word that the ABI keeps there (System V ABI AMD64, section 3.4.2 of the TLS supplement).
    unsafe { asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(pure, readonly, nostack)) };
    pointer
}

/// Whether the thread has a shadow stack of its own (CET): then returns must come from calls.
fn has_shadow_stack() -> bool {
    let pointer: u64;
    // SAFETY: `rdsspq` is a no-operation where there is none (Intel SDM volume 2, RDSSPD/RDSSPQ).
    unsafe { asm!("xor eax, eax", "rdsspq rax", out("rax") pointer, options(nomem, nostack)) };
    pointer != 0
}

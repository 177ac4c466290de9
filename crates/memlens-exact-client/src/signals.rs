//! Signals across `execve`.
//!
//! DynamoRIO catches every signal itself and keeps what the target ignores and blocks in tables of its
//! own: a program executed by the target would find nothing ignored and nothing blocked, contrary to
//! POSIX.1-2024 (`exec`). So the client keeps both sets too, tells the kernel just before an `execve`,
//! and takes it back when the call fails. Masks while a handler runs are not followed.
//!
//! A process of the background that changes its terminal (a shell that gives it to a pipeline) is stopped by SIGTTOU, unless it ignores
//! or blocks that: the kernel is told that, too, for the time of the call.
//!
//! Signals that come while a thread is in the client: DynamoRIO keeps them until the thread leaves the code cache the next
//! time, and does nothing to make it leave, as it does where a signal comes in the cache's own code. A loop without
//! system calls never leaves, and in one that makes more accesses than memlens takes, the thread is in the
//! client most of the time. So the client makes it leave, by taking away the block that it is about to return to
//! ([`deliver`]).

use crate::blocks::BLOCKS;
use crate::sys::{self, KernelAction};
use core::sync::atomic::{AtomicU64, Ordering};
use dynamorio_sys::{app_pc, dr_unlink_flush_region};

const SIG_IGN: u64 = 1;

/// Has the calling thread, which is in a call from the code cache, leave that at the end of this block.
pub fn deliver(block: u32) {
    let Some(pc) = BLOCKS.pc_of(block) else { return };
    // SAFETY: a call from the cache, no lock held. The block is built again when it is next executed.
    unsafe { dr_unlink_flush_region(pc as app_pc, 1) };
}

/// Signals that the target ignores: bit *n* - 1 for signal *n*, as in the kernel's sets.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// What the next thread or process inherits as blocked: the mask of whoever makes it.
static BLOCKED_BY_MAKER: AtomicU64 = AtomicU64::new(0);

/// Sets what memlens says the target inherits.
pub fn start(ignored: u64, blocked: u64) {
    IGNORED.store(ignored, Ordering::Relaxed);
    thread_is_made(blocked);
}

/// A thread that blocks these signals is about to make another one, or a process.
pub fn thread_is_made(blocked: u64) {
    BLOCKED_BY_MAKER.store(blocked, Ordering::Relaxed);
}

/// What a thread blocks before its first `rt_sigprocmask`.
pub fn blocked_at_start() -> u64 {
    BLOCKED_BY_MAKER.load(Ordering::Relaxed)
}

/// The signals that the target ignores.
pub fn ignored() -> u64 {
    IGNORED.load(Ordering::Relaxed)
}

/// Forgets what a child that shared our memory (vfork) has ignored: dispositions are its own.
pub fn vfork_returned(ignored_before: u64) {
    IGNORED.store(ignored_before, Ordering::Relaxed);
}

fn bit(signal: u64) -> u64 {
    if (1..=64).contains(&signal) { 1 << (signal - 1) } else { 0 }
}

/// The target gave `signal` the disposition `handler`.
pub fn disposition_set(signal: u64, handler: u64) {
    if handler == SIG_IGN {
        IGNORED.fetch_or(bit(signal), Ordering::Relaxed);
    } else {
        IGNORED.fetch_and(!bit(signal), Ordering::Relaxed);
    }
}

/// The mask after `rt_sigprocmask(how, set)`.
pub fn changed_mask(before: u64, how: u64, set: u64) -> u64 {
    match how {
        0 => before | set,
        1 => before & !set,
        2 => set,
        _ => before,
    }
}

/// What to put back when `execve` fails.
pub struct Saved {
    mask: u64,
    actions: [Option<KernelAction>; 64],
}

/// Makes the kernel's view that of the target.
pub fn before_exec(blocked: u64) -> Saved {
    let ignored = IGNORED.load(Ordering::Relaxed);
    // Blocked first: what arrives from here on waits for the new program.
    let mask = sys::set_signal_mask(blocked);
    let actions = core::array::from_fn(|index| {
        (ignored >> index & 1 != 0).then(|| sys::ignore_signal(index as u32 + 1)).flatten()
    });
    Saved { mask, actions }
}

const SIGTTOU: u64 = 22;

/// Whether `ioctl` with this request stops a process of the background (tcsetpgrp(3), tcsetattr(3); asm-generic/ioctls.h).
pub fn may_stop_for_terminal(request: u64) -> bool {
    const TCSETS_TO_TCSETAF: core::ops::RangeInclusive<u32> = 0x5402..=0x5408;
    const TIOCSPGRP: u32 = 0x5410;
    const TCSETS2_TO_TCSETSF2: core::ops::RangeInclusive<u32> = 0x402c_542b..=0x402c_542d;
    // The kernel takes 32 bits.
    let request = request as u32;
    request == TIOCSPGRP || TCSETS_TO_TCSETAF.contains(&request) || TCSETS2_TO_TCSETSF2.contains(&request)
}

/// Lets the kernel know that the target is not to be stopped, if that is so. Returns the mask to put back.
pub fn before_terminal_change(blocked: u64) -> Option<u64> {
    ((blocked | ignored()) & bit(SIGTTOU) != 0).then(|| {
        let mask = sys::set_signal_mask(bit(SIGTTOU));
        sys::set_signal_mask(mask | bit(SIGTTOU));
        mask
    })
}

/// Undoes [`before_exec`].
pub fn exec_failed(saved: &Saved) {
    for (signal, action) in (1..).zip(&saved.actions) {
        if let Some(action) = action {
            sys::set_signal_action(signal, action);
        }
    }
    sys::set_signal_mask(saved.mask);
}

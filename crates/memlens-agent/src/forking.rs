//! fork(3) of the program: a child begins at once, not only when it allocates something, and says whose copy it is.
//!
//! A child has its parent's mappings and blocks. What it knows of them are addresses; memlens knows the rest, of the
//! parent, and many a child has ended before its /proc/PID/maps could be read.
//!
//! # Signal safety
//! As fork(3) itself: in the child system calls and a record.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use memlens_events::agent::Kind;

use crate::real::{self, call};
use crate::ring::{Segment, now_ns};
use crate::session::{here, segment, visit};
use crate::thread_area::ThreadArea;

/// When fork was last called here.
static CALLED_NS: AtomicU64 = AtomicU64::new(0);
/// A call that lies longer back may be another one. It is also less than memlens waits for late records.
const RECENT_NS: u64 = 20_000_000;

/// Says that the process is a new one. What its parent does after the fork concerns it no more: the record bears the
/// time of the call, where it is known.
pub fn report(segment: Segment, area: &ThreadArea, parent: u32) {
    let now_ns = now_ns();
    let called_ns = CALLED_NS.load(Ordering::Relaxed);
    let time_ns = if now_ns.saturating_sub(called_ns) < RECENT_NS { called_ns } else { now_ns };
    segment.write(Kind::Forked, time_ns, area, &[u64::from(parent)], None);
}

fn before() {
    let visit = visit();
    if segment().is_some() {
        CALLED_NS.store(now_ns(), Ordering::Relaxed);
    }
    drop(visit);
}

fn after(child: c_int) -> c_int {
    if child == 0 {
        let visit = visit();
        here();
        drop(visit);
    }
    child
}

/// `pid_t fork(void)`
///
/// # Safety
/// As the C function.
pub unsafe extern "C" fn fork() -> c_int {
    const ERROR: c_int = -1;
    if !real::ready() || real::FORK.load(Ordering::Acquire).is_null() {
        return ERROR;
    }
    before();
    // SAFETY: the program's own call, handed on.
    after(unsafe { call!(real::FORK, () -> c_int) })
}

/// `pid_t _Fork(void)`
///
/// # Safety
/// As the C function.
pub unsafe extern "C" fn plain_fork() -> c_int {
    // glibc has it since 2.34; before, what handlers of pthread_atfork(3) do is done besides.
    if !real::ready() || real::PLAIN_FORK.load(Ordering::Acquire).is_null() {
        // SAFETY: the caller's promise.
        return unsafe { fork() };
    }
    before();
    // SAFETY: the program's own call, handed on.
    after(unsafe { call!(real::PLAIN_FORK, () -> c_int) })
}

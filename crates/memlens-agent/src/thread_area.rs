//! What the agent keeps of a thread, in its thread-local storage. The code that finds it is the architecture's (`arch::thread`).

use core::arch::global_asm;
use core::cell::Cell;

use crate::bursts;
use crate::draw::{Budget, ThreadDraw};

/// What the agent keeps of a thread. All zero at a thread's start.
///
/// A library that comes late gets no thread-local storage aligned beyond that of the libraries before it and of libc's own descriptor of a
/// thread (glibc's elf/dl-reloc.c, `_dl_try_allocate_static_tls`): on AArch64 that has 16 bytes in glibc 2.36.
#[cfg_attr(target_arch = "x86_64", repr(C, align(64)))]
#[cfg_attr(target_arch = "aarch64", repr(C, align(16)))]
pub struct ThreadArea {
    /// What is left until the next drawn byte, and calls. First: the entry points count by it.
    pub budget: Budget,
    /// How the next drawn byte is chosen.
    pub draw: Cell<ThreadDraw>,
    /// Processor time of the thread at its last tick, in ns.
    pub last_cpu_ns: Cell<u64>,
    /// The stack pointer at the thread's start; 0: not known.
    pub stack_start: Cell<usize>,
    /// How far below that the thread's stack reaches for certain, in bytes.
    pub stack_bytes: Cell<usize>,
    /// The stack pointer at which an allocation function was called that the agent is inside of; else 0.
    pub inside: Cell<usize>,
    /// The process's number when what follows was set; see `session.rs`.
    pub epoch: Cell<u32>,
    /// Kernel thread id.
    pub tid: Cell<u32>,
    /// Process id.
    pub pid: Cell<u32>,
    /// The kernel's number of the thread's timer, plus 1; 0: none.
    pub timer: Cell<u32>,
    /// Processor time that the burst in progress stands for, in ns; outside of one, what is left of those that could not be reported.
    pub burst_period_ns: Cell<u64>,
    /// Processor time of the thread, in ns, before which no burst begins: ticks only look where it is.
    pub burst_due_ns: Cell<u64>,
    /// How much sooner than that a burst began, in ns: the next one comes later by as much.
    pub burst_borrowed_ns: Cell<u64>,
    /// The thread's name that was told last, zeros behind it; all zeros: none was.
    pub name: Cell<[u64; 2]>,
    /// Calls of allocation functions up to the present or last burst's begin …
    pub calls_at_begin: Cell<u64>,
    /// … and up to the end of the last one that was reported.
    pub calls_at_report: Cell<u64>,
    /// Whether the agent asks the thread's libc for the time.
    pub asks_clock: Cell<bool>,
    /// What bursts need of the thread.
    pub burst: bursts::Area,
}

const THREAD_AREA_BYTES: usize = size_of::<ThreadArea>();

// Initial-exec thread-local storage: found by one load, without a call that might allocate.
global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign {alignment}",
    ".globl memlens_agent_thread",
    ".hidden memlens_agent_thread",
    ".type memlens_agent_thread, @tls_object",
    ".size memlens_agent_thread, {bytes}",
    "memlens_agent_thread:",
    ".zero {bytes}",
    ".popsection",
    alignment = const align_of::<ThreadArea>(),
    bytes = const THREAD_AREA_BYTES,
);

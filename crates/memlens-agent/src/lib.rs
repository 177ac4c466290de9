//! The agent: a library inside the target that reports watched allocations and, where the kernel allows no
//! performance events, timer ticks; and that lets threads run for bursts from a copy of their code which records
//! every access (`memlens-burst`).
//!
//! It knows the allocation functions of C, its own thread areas and the shared segment
//! ([`memlens_events::agent`]). It deliberately knows nothing of objects, symbols or unwinding, and of files only whether a
//! program about to be executed would load it: a record carries registers and stack bytes, and memlens makes sense of them
//! in another process.
//!
//! ```text
//!  program: malloc(n) ──► x86_64/entry.rs   thread-local budget -= n       ── budget left: jump to the real one
//!                              │ used up, or a large block
//!                              ▼
//!                         allocations.rs    the real one, then a record    ring.rs ──► segment ──► memlens
//!                              │
//!           free(p)  ──► filter byte ── 0: jump to the real one
//!                              │ perhaps watched
//!                              ▼
//!                         watched.rs        the table of watched blocks
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `x86_64/`, `aarch64/` | all that depends on the architecture: entry points, where the thread area is, registers |
//! | `thread_area.rs` | what is kept of a thread |
//! | `draw.rs` | which blocks are watched |
//! | `watched.rs` | the watched blocks' addresses |
//! | `allocations.rs` | the slow paths of the allocation functions |
//! | `own_entries.rs` | the functions that it calls here, by names of their own |
//! | `real.rs` | the functions that the program would have called |
//! | `libraries.rs` | the process's libraries, and what functions they have |
//! | `session.rs` | start, environment, fork, memlens's coming and its end |
//! | `handing_on.rs` | the agent in programs that the target executes |
//! | `executable.rs` | whether such a program would load it |
//! | `hooks.rs` | in a process that ran before: the libraries' tables lead to the agent |
//! | `ring.rs` | the writer's side of a ring |
//! | `ticks.rs` | timers of threads, and what their signal does |
//! | `signal_action.rs` | what the kernel does about a signal |
//! | `forking.rs` | forked children begin at once |
//! | `restriction.rs` | programs that restrict their system calls: the agent leaves first |
//! | `mappings.rs` | anonymous memory that the program maps by itself |
//! | `bursts/mod.rs` | which ticks begin bursts, how long they are, what is reported of them |
//! | `bursts/met_code.rs` | which code they have met |
//! | `bursts/prompts.rs` | the signal by which memlens prompts a process to begin one |
//! | `bursts/faults.rs` | signals that instructions raise in a burst |
//!
//! # Signal safety
//! Everything here may run in a signal handler, in a forked child and inside the dynamic linker: it allocates
//! nothing from the target's heap, waits for no lock but another thread's translation in a burst, calls of libc only
//! `clock_gettime`, what the program itself has called through it, and, at the start, `dl_iterate_phdr`, `dlsym` and `getauxval`, and makes its other system
//! calls itself; on AArch64 the compiler's part of it asks `getauxval`, once, how atomic operations are made there. Before a program is executed it takes some 2 to 90 KiB of the caller's stack, by the environment's size. There is no Rust runtime: where it is built to be carried, the crate
//! is `no_std`, with panics that stop.
#![cfg_attr(all(panic = "abort", not(test)), no_std)]
#![cfg_attr(test, allow(dead_code, reason = "entry points are not linked"))]
#![warn(clippy::std_instead_of_core)]

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the agent's architecture-dependent part exists for x86-64 and AArch64 only: see src/x86_64");

mod allocations;
mod bursts;
mod draw;
mod executable;
mod forking;
mod handing_on;
mod hooks;
mod libraries;
mod mappings;
#[cfg(not(test))]
mod own_entries;
mod real;
mod restriction;
mod ring;
mod session;
mod signal_action;
mod thread_area;
mod ticks;
mod watched;

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
use x86_64 as arch;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
use aarch64 as arch;

#[cfg(all(panic = "abort", not(test)))]
memlens_inside::no_runtime!();

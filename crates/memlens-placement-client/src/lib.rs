//! Inside the target: puts large blocks, mappings and variables that a plan names into huge pages, and detours into
//! code.
//!
//! It knows the allocation functions of C and the plan ([`memlens_placement`]). It deliberately knows nothing of
//! objects, symbols or unwinding, keeps no memory of its own, and hooks nothing that ends a block: a block comes from
//! the program's own allocator, on a boundary of huge pages, and the kernel is told to use huge pages for it
//! (`MADV_HUGEPAGE`). So whoever frees it, however, frees an ordinary block.
//!
//! ```text
//!  program: malloc(n) ──► entry.rs   n < least: jump to the real one
//!                            │ else
//!                            ▼
//!                         place.rs    on the stack: a site of the plan? ── no: the real one
//!                            │ yes
//!                            ▼
//!                 the real memalign, madvise, a note in the plan
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `entry.rs` | the functions that the program calls |
//! | `place.rs` | what happens with a large block |
//! | `modules.rs` | where the plan's modules lie |
//! | `patch.rs` | jumps to detours, in code before it runs |
//! | `real.rs` | the functions that the program would have called |
//! | `session.rs` | start, environment, variables |
//!
//! # Signal safety
//! It allocates nothing, takes no lock, and calls no function of libc but the allocation functions that the program
//! called and, at the start, `dlsym`. `errno` is as the real function left it: other system calls are made
//! directly.
#![cfg_attr(all(panic = "abort", not(test)), no_std)]
#![cfg_attr(test, allow(dead_code))]
#![warn(clippy::std_instead_of_core)]

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the placement library exists for x86-64 only: see src/entry.rs");

#[cfg(not(test))]
mod entry;
mod modules;
mod patch;
mod place;
mod real;
mod reserved;
mod session;

#[cfg(all(panic = "abort", not(test)))]
memlens_inside::no_runtime!();

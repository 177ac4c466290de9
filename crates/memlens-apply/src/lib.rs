//! Acts on a profile: chooses the objects that cause the page walks, has their memory put into huge pages in an
//! unmodified program, looks at how the kernel really backs them, and measures what that gains.
//!
//! It knows profiles, ELF files as far as places in them go, processes and the kernel's page maps. It deliberately
//! knows nothing of how a profile was made, nor of words and tables for people.
//!
//! ```text
//! Profile ── choice.rs ──► Choice ── placement.rs ──► Placement ── trial.rs ──► Trial
//!             │ elf.rs                  │ the plan, the library                    │ time, output
//!             ▼                         ▼                                          ▼
//!          what stays out, why       memlens-backing: pages of each object     statistics.rs
//! ```
//!
//! In a process that runs already: `online/`.
//!
//! `trial.rs` and `statistics.rs` know nothing of huge pages: any change to a program's environment can be measured
//! with them.
//!
//! # Unsafe code
//!
//! The shared plan, memory shared with a running process and its clock, `wait4` and `perf_event_open`. What the crate offers
//! is safe.

mod choice;
mod elf;
mod huge_pages;
mod library;
mod online;
mod pairs;
mod placement;
mod prefetch_choice;
mod prefetching;
mod statistics;
mod trial;
mod walk_counter;

pub use memlens_agent_host::{NotPreloadable, WalkStack, check_attachable, check_preloadable};

pub use choice::{Basis, Choice, Chosen, Method, Rejected, choose};
pub use huge_pages::{HugePages, ReservedPages, Setting};
pub use library::PlacementError;
pub use memlens_backing::Backing;
pub use memlens_prefetch::Pattern;
pub use online::{Left, Online, OnlineError, Stops, Trying, program_of, withdraw_all};
pub use pairs::{Pairs, cpu, walks, wall};
pub use placement::{Placed, Placement};
pub use prefetch_choice::{ChosenLoad, Group, PrefetchChoice, RefusedLoad, choose_prefetches};
pub use prefetching::{Applied, Prefetching};
pub use statistics::{Estimate, median, ratio_of_medians};
pub use trial::{Command, End, Output, Trial, Variant, run};

//! A program as a child process: started as memlens itself was, held at a gate until all is ready, and
//! waited for, while the signals that memlens gets are passed on to it.
//!
//! The crate knows processes, descriptors and signals. It deliberately does not know what is recorded of
//! the program, nor how, nor which file a command means.
//!
//! ```text
//!  Image ──start──► Held ──release──► Child ──try_wait──► ExitOutcome
//!                    │ (the process exists,        ▲
//!                    ▼  its program does not)      │ signals: forwarding.rs
//!              dropped: ends, leaves nothing
//! ```
//!
//! `std::process::Command` would not do: it resets SIGPIPE and the signal mask, opens what memlens found
//! closed, and leaves no time between the process's beginning and its program's.
//!
//! # Unsafe code
//!
//! System calls between fork(2) and execve(2), about signals, and a constructor of the ELF image. What the
//! crate offers is safe.

mod child;
mod exit_outcome;
mod forwarding;
mod handlers;
mod image;
pub mod inherited;
mod stop_request;

pub use child::{Child, Held};
pub use exit_outcome::{ExitOutcome, process_runs, wait_for_end};
pub use image::Image;
pub use stop_request::StopRequest;

//! How much of its accesses' latency a core waits for.
//!
//! An access that memory serves takes hundreds of cycles, but an out-of-order core goes on behind it: with what does
//! not need the data, up to as many instructions as it has room for. Where misses are independent of each other it has
//! many under way, and waits for each a fraction of its latency; along a list it waits for each one whole. Adding up
//! latencies says that both cost the same.
//!
//! ```text
//!  windows of a thread's accesses ─► Windows: some hundred of them ─┐
//!                                                                   ├─► Paths: the instructions between two accesses
//!  machine code ────────────────────────────────────────────────────┘        │
//!                                                                            ▼
//!  how often each level serves each operand ─► Served ───────────────► Core: when each retires, and what that waited for
//! ```
//!
//! Every access of a thread is in its windows, so the instructions between two of them touch no memory, and are found
//! in the code: the shortest way from the one to the other. They go through a model of a core (`out_of_order.rs`): so many
//! instructions a cycle enter a window of so many, each starts when its operands are there, and they retire in order. An
//! instruction that holds up retirement because of its access is what the core waits for, and that is where samples of time
//! fall, too (`memlens-code`'s `waiting.rs`). Behind stores that fill their buffer it is the store that is waited for, whatever
//! loads took in the meantime.
//!
//! Each window goes through it twice (`script.rs`), as it is and as if no access took time: the difference is what memory costs, and is
//! divided among what retirement waited for. An instruction whose operands come late retires late, though nothing would be faster if it did not.
//!
//! However many lines are under way, each level delivers one after the other, and so does each set of the first level take them
//! ([`LineRates`]): a walk whose steps are as long as a way falls into one set, and waits for it longer than for the levels behind.
//! A load whose line comes late for that waits for those whose turns were before its own (`queue.rs`), stores and prefetches among them: nobody
//! waits for a store, but without it the load's line would have come sooner.
//!
//! Behind a branch whose guess was wrong nothing counts until it is known, but what is executed whichever way it leads, and depends on neither,
//! asks for its lines in the meantime: gathers behind an unpredictable `if` overlap, steps of a binary search do not (`Astray` in
//! `out_of_order.rs`; where the ways meet: `paths.rs`).
//!
//! Loads that acquire and barriers hold back what is behind them, as AArch64 has it; its stores that release do so in any case, because stores are
//! written in order here, as on x86-64.
//!
//! Where it was measured how long a window's code took natively, the stalls are held against that: `held_to_time.rs`.
//!
//! Which accesses of a window miss is drawn: as often as the counts of the whole run say, those first that touch a line
//! for the first time in the window.
//!
//! # Sources
//!
//! The view of a core as a window that fills behind a long miss, and of misses in it as one: T. S. Karkhanis, J. E. Smith, A
//! First-Order Superscalar Processor Model, ISCA 2004, section 3; Y. Chou, B. Fahs, S. Abraham, Microarchitecture Optimizations for
//! Exploiting Memory-Level Parallelism, ISCA 2004. What holds up retirement as what is waited for: S. Eyerman, L. Eeckhout, T.
//! Karkhanis, J. E. Smith, A Performance Counter Architecture for Computing Accurate CPI Components, ASPLOS 2006. Lines that are asked for
//! behind wrong guesses: O. Mutlu, H. Kim, D. N. Armstrong, Y. N. Patt, An Analysis of the Performance Impact of Wrong-Path Memory
//! References on Out-of-Order and Runahead Execution Processors, IEEE Transactions on Computers 54(12), 2005.
//!
//! # Not modelled
//!
//! Execution ports, instruction fetch, what wrong guesses lead to that is not executed, cores that share what this one has for itself, stores that are written in
//! another order than the program's, loads that guess what a barrier in front of them will show, and addresses that are guessed before stores
//! in front of them are known: all loads go before all stores whose bytes they do not read.
#![forbid(unsafe_code)]

mod held_to_time;
mod out_of_order;
mod paths;
mod predictor;
mod queue;
mod script;
mod served;
mod waits;
mod windows;

pub use out_of_order::{CoreLimits, LineRates, Schedulers};
pub use paths::{Code, CodeOf, Place};
pub use served::{Served, Service, Source};
pub use waits::{HeldToTime, Operand, Waited, Waits, waits};
pub use windows::Windows;

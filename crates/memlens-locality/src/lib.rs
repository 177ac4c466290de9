//! From bursts of memory references to miss ratios, patterns and delinquent loads.
//!
//! A recorder that runs now and then sees *bursts*: contiguous windows of one thread's references, tens of
//! thousands to a million long, with many more unseen ones between. This crate estimates from them what a full
//! simulation would have counted, says how far that can be trusted, and knows nothing of where bursts come
//! from, of objects' names or files: instructions, owners, threads and processes are numbers.
//!
//! ```text
//!            ┌─► Locality ── reuse times ─► survival ─► footprint ─► misses by level, instruction, owner
//!  Burst ────┼─► Patterns ── strides, streams, chains, entropy
//!            └─► Umi ─────── the published mini-simulation ─► delinquent loads
//! ```
//!
//! | room | does |
//! |---|---|
//! | `burst.rs` | [`Burst`], [`Reference`]: what a caller hands over, and promises |
//! | `geometry.rs` | [`Geometry`]: a cache or TLB; sets |
//! | `locality.rs` | [`Locality`]: takes bursts in, answers |
//! | `last_use.rs` | when each block was used last, in bounded memory |
//! | `clock.rs` | how long ago something was, where some code is seen more often than other code |
//! | `bins.rs`, `reuse.rs` | reuse times, their distribution from censored counts, footprints |
//! | `tilt.rs` | reuse times that agree with how much data there is |
//! | `regions.rs`, `runs.rs` | since when there has been data at a place, and code at work |
//! | `model.rs` | reuse times → probability of a miss |
//! | `groups.rs` | how evenly blocks fall into sets |
//! | `sets.rs` | what sets have lost by the next use of it, inside bursts |
//! | `phases.rs` | stretches of the program with different footprints, and how long they last |
//! | `held.rs` | how often data of known size can miss in a cache that holds it |
//! | `lately.rs` | [`StandIns`]: which lines and pages were used last |
//! | `lean.rs` | how far rows that few bursts saw lean on the program |
//! | `scopes.rs`, `spread.rs` | sums of instructions and owners; standard errors over bursts |
//! | `cost.rs` | [`Cost`], [`CostSpread`]: what references cost; errors of shares that can be added up |
//! | `summary.rs` | [`Summary`], [`Row`], [`Estimate`], [`CurvePoint`]: the answers |
//! | `sharing.rs` | [`Sharing`], [`Timing`], [`Shared`] |
//! | `pattern.rs` | [`Patterns`] |
//! | `umi.rs` | [`Umi`] |
//! | `delinquent.rs` | smallest covering sets; predicted sets held against exact ones |
//!
//! # The estimate
//!
//! 1. Each reference's **reuse time**: references of the thread since its block was last used. Known if that was
//!    in the same burst; longer than the position in the burst if not. For each instruction, owner and the program
//!    the distribution of reuse times comes from these censored counts by the product-limit estimate (Kaplan and
//!    Meier 1958).
//! 2. **Longer than a burst.** A block that is new in its burst may have been used in an earlier one. Its reuse time
//!    is then counted in *seen* references, leaving the unseen ones out; one that no burst had is longer than
//!    all seen, or, if an earlier burst had blocks around it, than all seen since then: it is taken to be as old
//!    as these. That is unbiased if what happens between bursts is like what happens in them, so that a block's
//!    chance of being used does not depend on when it was used last. Bursts at ticks of a clock see slow code more often than quick
//!    code: seen references are therefore counted by what they stand for, in the time of the phase that used the block.
//!    Blocks that are found again in the order in
//!    which they were used before, over hundreds of references, belong to a sweep, whose reuse times are all
//!    alike: the period is estimated and that part of the distribution ends there. A block that is used several times before the
//!    sweep goes on is met by bursts the more often, the longer that takes; the period is that much longer. Where times are longer than
//!    everything seen, blocks go on being found at the last rate known, or one that goes on falling as it fell; if none
//!    was ever found, they never are.
//!    Blocks that are used for a while and then no more are not found across bursts. Each octave of time up to
//!    the next burst is therefore taken to find at least the part
//!    of the blocks that the last two octaves inside of bursts found.
//!    What code uses for the first time in a *run* of it was last used before the run, however often that was: in the
//!    run's own time blocks are found at the rate at which the run finds its own again, and behind its begin at the
//!    rate at which it finds earlier ones. A program that frees what it worked with finds none of its own.
//!    Who knows how much data there is ([`Locality::has_data`]) bounds all times that no burst has seen: no more uses are the first of their
//!    block than there are blocks, the times of the others add up to no more than references times the blocks that there were by then, and none
//!    is longer than the run. Distributions that disagree are changed to the nearest ones that do not (`tilt.rs`).
//! 3. **Footprint**: how many blocks a window of a given length touches, the sum of the survival function
//!    (StatStack: Eklov and Hagersten 2010), for each phase of the program by itself (bursts in like code that touch new blocks
//!    at like rates). A window that reaches back before the phase has, in that part, the program's. A
//!    reference misses an LRU cache if the footprint of its reuse time is as large as the cache; sets by Smith's
//!    rule, among those that the lowest bits of the blocks' numbers lead to, and for reuses inside of bursts by what fell into the set in
//!    the meantime.
//! 4. **Misses** of a scope: its own distribution of reuse times against the footprints of its phases. Scopes
//!    that were seen seldom lean on the program's distribution, and where that says fewer misses than all instructions together,
//!    theirs are lowered towards it, the more the fewer bursts saw them. The program's misses are the sum over its instructions.
//!    Who knows of objects how large they are ([`Locality::feed_with`]) bounds how often they miss in a cache that holds them with all
//!    others of their time (`held.rs`).
//!
//! # What can be wrong with it
//!
//! - **Time between bursts.** [`Estimate::low`] and [`Estimate::high`] hold whatever happened there; where they
//!   are far apart, the estimate rests on the assumptions of step 2. It is too high for data that is used again
//!   soon after, but beyond the burst's end, and never later; too low for sweeps of one instruction over several
//!   arrays in turn, whose order does not show.
//! - **Blocks never seen before** count as missing where none of the scope's blocks was ever found: compulsory
//!   misses and uses before the first burst look alike. With a bound on the data, sweeps over more than a cache holds of which bursts
//!   see too little to find anything again miss too seldom.
//! - **Phases** are told apart by how fast bursts touch new blocks and by their instructions. Two that do so alike in the same
//!   code share a footprint. How long phases last is told by pairs of successive bursts: those that end and come again between
//!   two bursts are taken to be mixed at random.
//! - **Data of known size** is held as long as bursts in a row meet nothing else of known size that is too much: what came between them, and
//!   how much that brought, is guessed. Objects of several threads are added up there. [`Estimate::high`], standard errors and curves
//!   know nothing of it, nor does an instruction of what each of its owners misses, so that the sums over both differ. Curves know nothing of
//!   what is lowered towards the program's misses either.
//! - **How much data there is** bounds all instructions together, and how far each has to give way for that is a guess: most where nothing was
//!   found again, and with times that are long already. Owners' distributions, and the program's as one, give way by what the instructions' have
//!   to: what they find again displaces what they do not, so that the sums differ, the program's being too small. Sums less than twice too large
//!   are left, and those more than four times too large are not, so that more finds of long times can mean shorter ones. Of several threads
//!   each may use all data for the first time; of several processes each has at most what the largest has.
//! - **Data that grows**: an instruction has one distribution for all of the time in which its data grows.
//! - **Sets**: addresses that fall into few sets miss more than the rule says, arrays that fill them evenly less; where the uses are
//!   further apart than a burst is long, only the lowest six bits of a block's number are looked at, in which all blocks of a phase are alike.
//! - **Prefetches** are uses of their blocks, at the time of the instruction: data is there at once.
//! - **Levels do not filter each other**: the second level is asked as if it saw all references.
//! - **Threads**: each as if it had all caches for itself, in [`Locality`]. What they take from each other [`Sharing`] adds: an
//!   upper bound from how often they use the same lines at about the same time and how long that takes.
//! - **Replacement**: LRU.
//! - **Weights**: bursts that begin at ticks of a clock stand for processor time; see [`Burst::weight`].
//! - Standard errors are those of choosing bursts; they know nothing of the biases above, and too little of what
//!   no burst met.
//!
//! # Cost and memory
//!
//! `cargo run --release -p memlens-locality --example held_against_exact` tells nanoseconds a reference on real traces.
//! Memory: 16 bytes × [`LocalityConfig::remembered_blocks`] for each size of block, what
//! [`LocalityConfig::scopes`] says, and for each level some 5 MB at most for data of known size, and 24 bytes for each instruction and owner that has it.
//!
//! # Example
//!
//! ```
//! use memlens_locality::{Burst, Geometry, Locality, LocalityConfig, Reference};
//! use memlens_types::AccessKind;
//!
//! // A cache of 32 KB, and a program that goes through 64 KB again and again, 8 bytes at a time.
//! let mut locality = Locality::new(&LocalityConfig::new(vec![Geometry::cache(32 << 10, 8, 64)]))?;
//! for burst in 0..10u64 {
//!     let address = |at: u64| 0x10000 + (burst * 1_000_000 + at) * 8 % 65536;
//!     let references: Vec<Reference> = (0..40_000)
//!         .map(|at| Reference { address: address(at), instruction: 0, owner: 0, size: 8, kind: AccessKind::Load })
//!         .collect();
//!     let unseen_before = Some(960_000.into());
//!     locality.feed(&Burst { thread: 1, start: burst, weight: 1e6, unseen_before, references: &references });
//! }
//! let summary = locality.summary();
//! // Every eighth reference is the first to its line, and the line is gone: 0.125, less what the rule for sets softens.
//! let ratio = summary.total.miss_ratio(0).unwrap_or_default();
//! assert!((ratio - 0.125).abs() < 0.005, "{ratio}");
//! # Ok::<(), memlens_locality::ConfigError>(())
//! ```
#![forbid(unsafe_code)]

mod bins;
mod burst;
mod clock;
mod cost;
mod delinquent;
mod geometry;
mod groups;
mod held;
mod interval;
mod last_use;
mod lately;
mod lean;
mod locality;
mod model;
mod pattern;
mod phases;
mod regions;
mod reuse;
mod runs;
mod scopes;
mod sets;
mod sharing;
mod spread;
mod summary;
mod tilt;
mod umi;

pub use burst::{Burst, Extent, Reference, Unseen};
pub use cost::{Cost, CostSpread};
pub use delinquent::{DelinquentComparison, smallest_covering};
pub use geometry::Geometry;
pub use lately::{Lately, STAND_INS, StandInSizes, StandIns};
pub use locality::{ConfigError, Locality, LocalityConfig, Who};
pub use memlens_types::PatternKind;
pub use pattern::{AddressSource, FoundPattern, Pattern, Patterns, Stride};
pub use scopes::OTHER;
pub use sharing::{Shared, Sharing, Timing};
pub use summary::{CurvePoint, Estimate, Row, Summary};
pub use umi::{Umi, UmiConfig, UmiCount};

//! The coherent engine: LRU at all levels, any inclusion, any number of cores.
//!
//! It takes the same steps in the same order as the obvious model and differs in what a step costs:
//!
//! ```text
//!           a reference of core c
//!                   │ most recent page? dTLB, STLB, walker        (tlbs.rs)
//!                   │ most recent line of its set, and nothing    ── most references end here
//!                   ▼ to make dirty?
//!             L1 sets of c ──hit, a load or dirty already──► done
//!                   │ miss, or the first write
//!                   ▼
//!             directory: which cores may have the line?           (directory.rs)
//!                   │ only those are looked at
//!                   ▼
//!             L2 sets of c ──► LLC sets ──► memory                (sets.rs)
//! ```
//!
//! A line keeps one bit of state, dirty. The others of MESI need not be kept: a line that is dirty
//! in L1D is in no other core, as only the core's own write makes it so, and that write took it from
//! all others; for a clean one the directory says who else has it. Staging the levels over queues, as
//! the engine for one core does, is not possible here: what a level finds changes the upper levels of
//! other cores.

mod directory;
mod model;
mod sets;
mod tlbs;

pub(crate) use model::CoherentModel;

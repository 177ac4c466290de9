//! Samples a running program through perf_event_open(2), or lets the agent in it take samples and bursts, and finds
//! the data object behind each sample and each access of a burst.
//!
//! The crate deliberately does not know how profiles are shown or stored, nor the command line, nor
//! how exact mode works. It knows processes, mappings and samples; names come from
//! `memlens-symbols`, facts about machine code from `memlens-code`.
//!
//! ```text
//!  kernel ──► ring of each cpu ──► Collector ──► Recording ──► ProfileBuilder ──► Profile
//!             registers, stack     in order      which access,  names, sums
//!                                  of time       which address
//!  perf.data ──────────────────────────────────►
//! ```
//!
//! # How a sample's object is found
//!
//! 1. The processor reports the data address (PEBS, IBS, SPE).
//! 2. The access that the sample waits for is found in the code, and its address computed from the
//!    sampled registers; see [`memlens_code::FunctionCode::waits_for`].
//! 3. The address is lost, but the code says which variable its pointer came from.
//! 4. The sample waits for no access: it is computation, no data's cost.
//! 5. Nothing is known. Such samples count as unknown, with the reason.
//!
//! Heap blocks whose allocation the agent reported ([`memlens_agent_host`]) are the objects of their allocation
//! sites, as in exact mode. Other heap memory is named by the pointer through which it was reached; how its samples
//! become those of allocation sites says `unseen.rs`.
//!
//! A burst ([`memlens_events::burst`]) is every access of a thread for a moment. `bursts/` finds their objects in the
//! same way; their misses come from `memlens-locality`, and the profile has exact mode's columns, as estimates.
//!
//! When an object cost what, and how much of the heap was live, is kept besides (`when.rs`, `live_course.rs`), and cut into slices of the
//! recording's time when a profile is made (`slices.rs`).
//!
//! # Units
//!
//! A sample of the processor clock stands for nanoseconds, of any other event for events. They are
//! never added.
#![deny(unsafe_code)]

mod address_space;
mod allocations;
mod builder;
mod burst_pacing;
mod bursts;
mod collector;
mod contention;
mod coverage;
mod distinct_pages;
mod error;
mod event;
mod frame_rows;
mod glances;
mod heap;
mod heap_blocks;
mod imported;
mod kin;
mod live_course;
mod modules;
mod naming;
mod on_behalf;
mod overhead_budget;
mod own_thread;
mod pacing;
mod part_places;
mod perf_data;
mod perf_data_sizes;
mod perf_script;
mod process;
mod prompts;
mod record;
mod recording;
mod registers;
mod ring;
mod run_meter;
mod sample_cost;
mod session;
mod site_naming;
mod slices;
mod spe;
mod spin_waits;
mod spot;
mod stack_walk;
mod static_attribution;
mod switch_cost;
mod unseen;
mod unwinder;
mod waiting_stack;
mod when;

pub use address_space::mappings_of;
pub use allocations::Watch;
pub use bursts::{BurstCounts, BurstModel};
pub use error::{SampleError, paranoid_level, permission_advice};
pub use event::{EventChoice, Refusal, SampleEvent, first_that_opens};
pub use memlens_agent_host::{AgentError, InjectError};
pub use memlens_child::ExitOutcome;
pub use memlens_code::SampleSkid;
pub use own_thread::sample_own_thread;
pub use perf_data::{PerfDataError, import_perf_data};
pub use perf_script::{PerfScriptError, ScriptFrame, ScriptLine, ScriptSample, import_perf_script};
pub use record::{AuxRecord, Layout, NewMapping, Record, RecordError, Sample, TimedRecord};
pub use recording::AttributionWay;
pub use registers::Registers;
pub use session::{BurstSettings, SampleOptions, SampleOutcome, SampleSession, Target, why_not_preloadable};
pub use spe::{SpeInstruction, SpeRecord, SpeRecords};
pub use stack_walk::stack_walk;
pub use unwinder::{StackFrame, StackUnwinder, UnwindCache, UnwindSections};

//! The agent's counterpart in memlens: carries the agent, says whether a program can be preloaded, lets a running
//! process load it (`memlens-inject`), makes the shared segment, and reads what the agent reports.
//!
//! It deliberately knows nothing of objects, symbols or samples: records go to the caller, in the order of each
//! ring. The segment's layout is [`memlens_events::agent`].
//!
//! ```text
//! agent.rs     what to watch; the environment of the program; the window of draws; losses
//! drawing_budget.rs  how many blocks may be drawn
//! segment.rs   the mapped segment, reader's side of its rings
//! address_room.rs  whether a process with a limit of its address space has room for it
//! program.rs   whether an ELF file's dynamic linker would preload the agent
//! ```

mod address_room;
mod agent;
mod drawing_budget;
mod program;
mod segment;

pub use address_room::TooLittle;
pub use agent::{Agent, AgentError, AgentLosses, AgentOptions, Attached, BurstOptions, Watch, map_code};
pub use memlens_events::agent::{AgentRecord, Allocation, BurstHead, Caller, Event};
pub use memlens_inject::{
    Changed, CodeChange, InjectError, Made, Registers, WalkStack, change_code, check as check_attachable,
    permission_advice, proc_folder,
};
pub use program::{NotPreloadable, check_preloadable};

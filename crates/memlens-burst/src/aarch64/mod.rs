//! What is AArch64: its instructions, what is written in their place, and the signal contexts of its kernel.
//!
//! ```text
//!  decode.rs     an instruction: its registers, its operand, where it leads
//!  trace.rs      native code ─► a straight path of instructions
//!  translate.rs  path ─► block, by assembler.rs; known.rs: which addresses follow from others,
//!                 filter.rs: which are left out
//!  check.rs      where indirect transfers arrive; which words make branches; where code lies
//!  waiting.rs    loops that wait for another thread
//!  entry.rs      the few instructions between copy and runtime
//!  area.rs       a thread's words that the copy reaches through x28
//!  context.rs    signal contexts
//!  processor.rs  what the processor has, and its clock
//! ```

mod area;
mod assembler;
mod check;
mod context;
mod decode;
mod entry;
mod filter;
mod known;
mod processor;
mod trace;
mod translate;
mod waiting;

pub use area::{Area, Offsets};
pub use assembler::{Assembler, Gpr};
pub use check::{
    FIRST_PAIR, OfBlock, is_near, jump_word, memory_for, publish, target_hash, write_check,
    write_way_to_entry,
};
pub use context::{Context, Saved};
pub use entry::first_entry;
pub use filter::Filter;
pub use processor::{check_support, cycles, sum_cycles, thread_pointer};
pub use trace::{Decoding, Trace, WINDOW_BYTES};
pub use translate::translate;
pub use waiting::{AROUND, code_waits, waits_at};

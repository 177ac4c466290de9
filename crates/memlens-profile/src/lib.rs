//! What a run leaves behind: objects, code, the counts that join them — in memory and on disk.
//!
//! The crate deliberately does not know who made a profile (collectors, models, debug information)
//! nor how it is shown (terminals, exports).
//!
//! A [`Profile`] is a set of plain tables. [`ProfileWriter`] stores it as a folder of Parquet files
//! that stays readable whenever the writer dies; [`Profile::open`] reads it back.
//! [`Profile::merge`] joins the profiles of several processes.
#![forbid(unsafe_code)]

mod beside;
mod call_paths;
mod field;
mod huge_pages;
mod index;
mod known;
mod machine_info;
mod merge;
mod merged_slices;
mod namesakes;
mod packed_counts;
mod path_amounts;
mod path_rows;
mod path_uses;
mod pattern_index;
pub mod place;
mod prediction;
mod profile;
mod run_info;
mod store;
mod texts;
mod timeline;
mod validate;

pub use beside::beside;
pub use call_paths::{CallPaths, MAX_PATH_FRAMES, PathId};
pub use field::{Element, Field, FieldShares, FieldUse};
pub use index::{CodeIx, FieldIx, FrameIx, ModuleIx, ObjectIx, PathIx, SliceIx, StackIx, ThreadIx};
pub use known::sum_of_known;
pub use machine_info::{CacheInfo, CoreInfo, Latencies, Level, MachineInfo, TlbInfo, WalkTier};
pub use merge::{MERGED_FROM, MergeError, Merger, NO_STALLS};
pub use packed_counts::PackedCounts;
pub use path_amounts::{LevelMisses, PathAmount, PathAmounts};
pub use path_rows::{FramesOfCalls, PathRows};
pub use path_uses::{PathUse, PathUses};
pub use pattern_index::PatternIndex;
pub use prediction::{PredictedCause, PredictedPlacement, PredictedWalks, Prediction};
pub use profile::{
    ALLOCATOR_DATA, AccessPattern, CallPath, Cell, CodeLocation, Frame, HEAP_THROUGH, HEAP_USED_BY,
    IN_KERNEL, Mark, Module, Object, ObjectBacking, ObjectPattern, PathCell, Profile, SourceLine, Stack,
    Thread,
};
pub use run_info::{Attribution, BurstInfo, RunInfo, SampleUnit, SamplingInfo, SpinWait};
pub use store::{
    Existing, FORMAT_VERSION, OpenError, ProcessFolder, ProfileWriter, WriteError, keep_prediction,
    schema_markdown,
};
pub use texts::Texts;
pub use timeline::{
    Clock, MOST_SLICES, Slice, SliceSums, SliceUse, Timeline, join_small, join_small_live, shares,
};
pub use validate::Inconsistency;

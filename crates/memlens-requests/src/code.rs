//! Request codes, memlens's and callgrind's: see the tables in the [crate's docs](crate).

/// Codes of one tool lie in the 65,536 numbers from here: two letters, as in valgrind's
/// `VG_USERREQ_TOOL_BASE`.
pub const fn tool_base(first: u8, second: u8) -> u64 {
    (first as u64) << 24 | (second as u64) << 16
}

/// memlens's codes start here.
pub const MEMLENS_BASE: u64 = tool_base(b'M', b'L');
/// Asks who listens.
pub const PROTOCOL: u64 = MEMLENS_BASE;
/// Starts collection.
pub const START_COLLECTION: u64 = MEMLENS_BASE + 1;
/// Stops collection.
pub const STOP_COLLECTION: u64 = MEMLENS_BASE + 2;
/// Names a moment.
pub const MARK: u64 = MEMLENS_BASE + 3;
/// Makes a region an object with a name.
pub const REGION_IS: u64 = MEMLENS_BASE + 4;
/// Ends what [`REGION_IS`] began.
pub const REGION_FREED: u64 = MEMLENS_BASE + 5;

/// callgrind's codes start here.
pub const CALLGRIND_BASE: u64 = tool_base(b'C', b'T');
/// `CALLGRIND_DUMP_STATS`.
pub const CALLGRIND_DUMP_STATS: u64 = CALLGRIND_BASE;
/// `CALLGRIND_ZERO_STATS`.
pub const CALLGRIND_ZERO_STATS: u64 = CALLGRIND_BASE + 1;
/// `CALLGRIND_TOGGLE_COLLECT`.
pub const CALLGRIND_TOGGLE_COLLECT: u64 = CALLGRIND_BASE + 2;
/// `CALLGRIND_DUMP_STATS_AT`.
pub const CALLGRIND_DUMP_STATS_AT: u64 = CALLGRIND_BASE + 3;
/// `CALLGRIND_START_INSTRUMENTATION`.
pub const CALLGRIND_START_INSTRUMENTATION: u64 = CALLGRIND_BASE + 4;
/// `CALLGRIND_STOP_INSTRUMENTATION`.
pub const CALLGRIND_STOP_INSTRUMENTATION: u64 = CALLGRIND_BASE + 5;

/// `RUNNING_ON_VALGRIND` of valgrind's core: how many valgrinds the program runs under. memlens
/// leaves the default, 0, because programs change their behaviour when it is not.
pub const VALGRIND_RUNNING_ON: u64 = 0x1001;

//! The listener's side: what the six words of a request mean.

use crate::code;

/// A request as a profiler reads it. Names are ranges of the program's memory, not yet read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Request {
    /// Answer with [`crate::PROTOCOL_VERSION`].
    Protocol,
    /// Start collecting (memlens's start, callgrind's start of instrumentation).
    Start,
    /// Stop collecting (memlens's stop, callgrind's stop of instrumentation).
    Stop,
    /// Stop if collecting, else start.
    Toggle,
    /// Set every count to zero.
    Zero,
    /// Write out the counts so far and set them to zero; with callgrind's NUL-terminated name, or
    /// 0 where it gave none.
    Dump {
        /// Address of the name, or 0.
        c_name: u64,
    },
    /// This moment has a name.
    Mark {
        /// Address of the name.
        name: u64,
        /// Its length in bytes.
        name_bytes: u64,
    },
    /// A region becomes an object.
    RegionIs {
        /// First address.
        start: u64,
        /// Length in bytes.
        size_bytes: u64,
        /// Address of the name.
        name: u64,
        /// The name's length in bytes.
        name_bytes: u64,
    },
    /// The object of the region that starts here ends.
    RegionFreed {
        /// First address.
        start: u64,
    },
}

impl Request {
    /// Reads the six words at `rax`. `None`: some other tool's request, to be answered with the
    /// default, as the processor itself does.
    pub fn from_args(args: &[u64; 6]) -> Option<Self> {
        let [code, a, b, c, d, _] = *args;
        Some(match code {
            code::PROTOCOL => Self::Protocol,
            code::START_COLLECTION | code::CALLGRIND_START_INSTRUMENTATION => Self::Start,
            code::STOP_COLLECTION | code::CALLGRIND_STOP_INSTRUMENTATION => Self::Stop,
            code::CALLGRIND_TOGGLE_COLLECT => Self::Toggle,
            code::CALLGRIND_ZERO_STATS => Self::Zero,
            code::CALLGRIND_DUMP_STATS => Self::Dump { c_name: 0 },
            code::CALLGRIND_DUMP_STATS_AT => Self::Dump { c_name: a },
            code::MARK => Self::Mark { name: a, name_bytes: b },
            code::REGION_IS => Self::RegionIs { start: a, size_bytes: b, name: c, name_bytes: d },
            code::REGION_FREED => Self::RegionFreed { start: a },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_follow_the_table() {
        let args = |code| [code, 1, 2, 3, 4, 5];
        assert_eq!(
            Request::from_args(&args(code::REGION_IS)),
            Some(Request::RegionIs { start: 1, size_bytes: 2, name: 3, name_bytes: 4 })
        );
        assert_eq!(Request::from_args(&args(code::MARK)), Some(Request::Mark { name: 1, name_bytes: 2 }));
        assert_eq!(
            Request::from_args(&args(code::CALLGRIND_DUMP_STATS_AT)),
            Some(Request::Dump { c_name: 1 })
        );
        assert_eq!(Request::from_args(&args(code::CALLGRIND_DUMP_STATS)), Some(Request::Dump { c_name: 0 }));
        // The two neighbours of each tool's range, and valgrind's core, are not ours to answer.
        for foreign in [
            code::MEMLENS_BASE - 1,
            code::REGION_FREED + 1,
            code::CALLGRIND_BASE - 1,
            code::CALLGRIND_STOP_INSTRUMENTATION + 1,
            code::VALGRIND_RUNNING_ON,
        ] {
            assert_eq!(Request::from_args(&args(foreign)), None, "{foreign:#x}");
        }
    }
}

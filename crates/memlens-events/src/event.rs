//! Things that happen besides accesses.

/// The first payload word of an event record (low 16 bits).
///
/// | kind | further words |
/// |---|---|
/// | `ThreadStart` | tid, stack pointer, thread pointer (fs base) |
/// | `ThreadExit` | tid |
/// | `MapAdd` | start, length, protection, flags (Linux `mmap` values), old start (`mremap`, else 0); of System V shared memory also its identifier plus one, and its key |
/// | `MapRemove` | start, length |
/// | `Break` | the end of the `brk` heap that was asked for, and the one that it has now |
/// | `ModuleLoad`, `ModuleUnload` | module id |
/// | `SignalFrame` | stack pointer at the handler's entry, handler pc |
/// | `Request` | code, five arguments (client request), pc behind it; for named ones: bytes of the name, the name |
/// | `PartialBlock` | block id, pc at which the block was left, then the words recorded so far |
/// | `Fork` | token; afterwards token, pid of the child (0: it failed) |
/// | `Exec` | how the process image is about to be replaced: see [`ExecHow`]; bytes of the program's name, the name |
/// | `ProcessExit` | what the process gives `exit_group` |
/// | `MapAdvice` | start, length, advice (Linux `madvise` values) |
/// | `Waits` | 1: the thread begins to wait for others, or for time to pass (`futex`, `poll`, `nanosleep` …); 0: it goes on |
/// | `ThreadName` | the name that the thread has given itself, in two words: bytes in the order of memory, zeros behind it |
/// | `AllocatedPointer` | what an allocation function stored through its first argument |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
#[allow(missing_docs)]
pub enum EventKind {
    ThreadStart = 1,
    ThreadExit = 2,
    MapAdd = 3,
    MapRemove = 4,
    Break = 5,
    ModuleLoad = 6,
    ModuleUnload = 7,
    SignalFrame = 8,
    Request = 9,
    PartialBlock = 10,
    Fork = 11,
    Exec = 12,
    ProcessExit = 13,
    AllocatedPointer = 14,
    MapAdvice = 15,
    Waits = 16,
    ThreadName = 17,
}

/// The first word of an `Exec` event: what becomes of the program about to be executed.
///
/// | word | meaning |
/// |---|---|
/// | 0 | not followed, or the kernel will refuse it |
/// | 1 | it will ask for a segment of its own |
/// | 2 | runs natively: it would lose the rights of its setuid or setgid bits or capabilities |
/// | 3 | runs natively: its file cannot be read |
/// | 4 | runs natively: it is for another processor |
/// | 5 | runs natively, if at all: it is neither ELF nor a script |
/// | 6 | runs natively: its file has no name any more |
/// | 7 | runs natively: the engine's files are gone |
/// | `u64::MAX` | the execution announced last by the thread failed |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
#[allow(missing_docs)]
pub enum ExecHow {
    Plain = 0,
    Recorded = 1,
    Privileged = 2,
    Unreadable = 3,
    OtherArchitecture = 4,
    NoProgram = 5,
    Deleted = 6,
    NoEngine = 7,
    Failed = u64::MAX,
}

impl ExecHow {
    /// What the word means; unknown words read as `Plain`.
    pub fn from_word(word: u64) -> Self {
        const ALL: [ExecHow; 8] = [
            ExecHow::Recorded,
            ExecHow::Privileged,
            ExecHow::Unreadable,
            ExecHow::OtherArchitecture,
            ExecHow::NoProgram,
            ExecHow::Deleted,
            ExecHow::NoEngine,
            ExecHow::Failed,
        ];
        ALL.into_iter().find(|&how| how as u64 == word).unwrap_or(Self::Plain)
    }
}

impl EventKind {
    const ALL: [Self; 17] = [
        Self::ThreadStart,
        Self::ThreadExit,
        Self::MapAdd,
        Self::MapRemove,
        Self::Break,
        Self::ModuleLoad,
        Self::ModuleUnload,
        Self::SignalFrame,
        Self::Request,
        Self::PartialBlock,
        Self::Fork,
        Self::Exec,
        Self::ProcessExit,
        Self::AllocatedPointer,
        Self::MapAdvice,
        Self::Waits,
        Self::ThreadName,
    ];

    /// The kind with this code.
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// What the collector must do at an address that memlens names when a module is loaded.
///
/// The role's number travels with the address; `Alloc(n)` is an index that only memlens
/// understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialRole {
    /// Entry of allocation function `n`: record the first four integer arguments.
    AllocEntry(u16),
    /// The same for a function that stores the block's address where its first argument points: the
    /// collector remembers the argument.
    PointerAllocEntry(u16),
    /// The half-open range of an allocation function's code: returns inside it record their value.
    /// The second address is the end.
    AllocReturns,
    /// The half-open range of a function entered as `PointerAllocEntry`: after returns inside it an
    /// `AllocatedPointer` event follows.
    PointerAllocReturns,
    /// The half-open range of code into which allocation functions may jump to end (`calloc` into
    /// `memset`): returns inside it record their value, too, without an epoch of their own.
    ValueReturns,
}

impl SpecialRole {
    /// The number that travels.
    pub fn code(self) -> u64 {
        match self {
            Self::AllocEntry(n) => 0x1_0000 | u64::from(n),
            Self::AllocReturns => 0x2_0000,
            Self::PointerAllocEntry(n) => 0x3_0000 | u64::from(n),
            Self::PointerAllocReturns => 0x4_0000,
            Self::ValueReturns => 0x5_0000,
        }
    }

    /// The role with this number.
    pub fn from_code(code: u64) -> Option<Self> {
        match code >> 16 {
            1 => Some(Self::AllocEntry(code as u16)),
            2 => Some(Self::AllocReturns),
            3 => Some(Self::PointerAllocEntry(code as u16)),
            4 => Some(Self::PointerAllocReturns),
            5 => Some(Self::ValueReturns),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_ways_of_execution_are_plain() {
        assert_eq!(ExecHow::from_word(2), ExecHow::Privileged);
        assert_eq!(ExecHow::from_word(u64::MAX), ExecHow::Failed);
        assert_eq!(ExecHow::from_word(8), ExecHow::Plain);
    }

    #[test]
    fn codes_round_trip() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::from_code(kind as u16), Some(kind));
        }
        assert_eq!(EventKind::from_code(0), None);
        assert_eq!(EventKind::from_code(18), None);
        let roles = [
            SpecialRole::AllocEntry(0),
            SpecialRole::AllocEntry(77),
            SpecialRole::AllocReturns,
            SpecialRole::PointerAllocEntry(9),
            SpecialRole::PointerAllocReturns,
            SpecialRole::ValueReturns,
        ];
        for role in roles {
            assert_eq!(SpecialRole::from_code(role.code()), Some(role));
        }
    }
}

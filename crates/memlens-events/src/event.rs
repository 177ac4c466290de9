//! Things that happen besides accesses.

/// The first payload word of an event record (low 16 bits).
///
/// | kind | further words |
/// |---|---|
/// | `ThreadStart` | tid, stack pointer, thread pointer (fs base) |
/// | `ThreadExit` | tid |
/// | `MapAdd` | start, length, protection, flags (Linux `mmap` values), old start (`mremap`, else 0) |
/// | `MapRemove` | start, length |
/// | `Break` | old end, new end of the `brk` heap |
/// | `ModuleLoad`, `ModuleUnload` | module id |
/// | `SignalFrame` | stack pointer at the handler's entry, handler pc |
/// | `Request` | code, five arguments (client request); for named ones: bytes of the name, the name |
/// | `PartialBlock` | block id, pc at which the block was left, then the words recorded so far |
/// | `Fork` | pid of the child |
/// | `Exec` | none: the process image is about to be replaced |
/// | `ProcessExit` | exit status if known |
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
}

impl EventKind {
    const ALL: [Self; 14] = [
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
    fn codes_round_trip() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::from_code(kind as u16), Some(kind));
        }
        assert_eq!(EventKind::from_code(0), None);
        assert_eq!(EventKind::from_code(15), None);
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

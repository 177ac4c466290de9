//! Where a result goes.

/// A general-purpose register by its DWARF number (System V ABI AMD64 1.0, figure 3.36; DWARF for the Arm 64-bit
/// Architecture, 2023Q3, section 4.1: x0–x30 are 0–30, sp is 31).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Register(pub u16);

impl Register {
    /// rax, the first result register.
    pub const RAX: Self = Self(0);
    /// rbp.
    pub const RBP: Self = Self(6);
    /// rsp.
    pub const RSP: Self = Self(7);
    /// x0, the first result register of AArch64.
    pub const X0: Self = Self(0);
    /// x29.
    pub const X29: Self = Self(29);
    /// sp of AArch64.
    pub const SP: Self = Self(31);
}

/// What a pointer was, through which the result was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base {
    /// The value that a register has held since the return address.
    Register {
        /// The register.
        register: Register,
    },
    /// A value loaded from `base + disp`; see [`Destination::FrameSlot`] for rbp and x29.
    FrameSlot {
        /// rsp or rbp; sp or x29.
        base: Register,
        /// Offset in bytes, as of `pc`.
        disp: i64,
        /// Address of the load.
        pc: u64,
    },
    /// A value loaded from a fixed address (svma).
    Global {
        /// The address.
        svma: u64,
    },
}

/// One place that the result reaches, in the order of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Destination {
    /// It is in a register from `start` until before `end` (svma of instructions on the path; a
    /// jump on the path may make `end` smaller than `start`, then it is 0-sized).
    Register {
        /// The register.
        register: Register,
        /// First instruction before which it is there.
        start: u64,
        /// Instruction after which it is there no more, exclusive.
        end: u64,
    },
    /// It is stored at a fixed address.
    Global {
        /// The address (svma).
        svma: u64,
        /// Address of the store.
        pc: u64,
    },
    /// It is stored at an offset from the thread pointer (`fs:`, `tpidr_el0`).
    ThreadLocal {
        /// Offset in bytes from the thread pointer, mostly negative.
        offset: i64,
        /// Address of the store.
        pc: u64,
    },
    /// It is stored at `base + disp` where base is rsp or rbp, or sp or x29. Whether rbp (x29) is a frame pointer here
    /// or an ordinary pointer only unwind information tells.
    FrameSlot {
        /// rsp or rbp; sp or x29.
        base: Register,
        /// Offset in bytes, as of `pc`.
        disp: i64,
        /// Address of the store.
        pc: u64,
    },
    /// It is stored through a pointer.
    Field {
        /// What the pointer was.
        base: Base,
        /// Offset in bytes from the pointer.
        disp: i64,
        /// Whether an index was added as well: an element of an array.
        indexed: bool,
        /// Address of the store.
        pc: u64,
    },
    /// It is stored in an array at a fixed address, at an index that is not known.
    Element {
        /// The array's address (svma), or that of a member of its first element.
        svma: u64,
        /// Address of the store.
        pc: u64,
    },
    /// The function returns it.
    Returned {
        /// Address of the return instruction.
        pc: u64,
    },
}

impl Destination {
    /// Whether it outlives the function's frame, as far as the code tells.
    pub fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::Global { .. } | Self::ThreadLocal { .. } | Self::Field { .. } | Self::Element { .. }
        )
    }
}

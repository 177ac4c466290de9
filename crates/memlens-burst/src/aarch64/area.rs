//! What translated code and the runtime keep of a thread: x28 holds its address during a burst.

use core::cell::Cell;
use core::mem::offset_of;

/// Part of a thread's thread-local memory. All zero at first.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Area {
    /// The program's registers, by number, while the runtime works; 31: sp. That of x28 is valid during the whole burst.
    pub registers: Cell<[u64; 32]>,
    /// Where the next word of the burst goes.
    pub next: Cell<u64>,
    /// A block that begins here or later ends the burst.
    pub limit: Cell<u64>,
    /// The program's values of the two registers that a block uses: neighbours, for `ldp`.
    pub first: Cell<u64>,
    /// See [`Area::first`].
    pub second: Cell<u64>,
    /// The program's x0 and x1, on the way to the runtime and back: neighbours.
    pub third: Cell<u64>,
    /// See [`Area::third`].
    pub fourth: Cell<u64>,
    /// Native address that is to be executed next, and the code to jump to: neighbours.
    pub target: Cell<u64>,
    /// See [`Area::target`].
    pub jump: Cell<u64>,
    /// The program's value of the register that stands for x28 in a block.
    pub renamed: Cell<u64>,
    /// Number of the exit that was taken; 0: an indirect one, see [`Area::target`].
    pub exit: Cell<u64>,
    /// The program's flags (NZCV), while the runtime works.
    pub flags: Cell<u64>,
    /// The entry into the runtime.
    pub entry: Cell<u64>,
    /// Top of the runtime's stack.
    pub stack: Cell<u64>,
    /// Where the vector registers wait while the runtime works.
    pub vectors: Cell<u64>,
    /// The signal frame through which the burst ends.
    pub frame: Cell<u64>,
    /// 1 from a burst's begin to its end.
    pub is_bursting: Cell<u64>,
    /// What the runtime keeps of the thread (`runtime.rs`); 0: nothing yet.
    pub lane: Cell<u64>,
}

impl Area {
    /// As it must be before the first burst.
    pub const fn new() -> Self {
        const fn zero() -> Cell<u64> {
            Cell::new(0)
        }
        Self {
            registers: Cell::new([0; 32]),
            next: zero(),
            limit: zero(),
            first: zero(),
            second: zero(),
            third: zero(),
            fourth: zero(),
            target: zero(),
            jump: zero(),
            renamed: zero(),
            exit: zero(),
            flags: zero(),
            entry: zero(),
            stack: zero(),
            vectors: zero(),
            frame: zero(),
            is_bursting: zero(),
            lane: zero(),
        }
    }

    /// Code that may change is not translated: nothing is to be compared anew.
    pub fn begin_epoch(&self, _: u32) {}

    /// See [`Self::begin_epoch`].
    pub fn renew_epoch(&self) {}

    /// The program's value of a register, as long as that waits in the area.
    pub fn set_register(&self, number: usize, value: u64) {
        let mut registers = self.registers.get();
        registers[number] = value;
        self.registers.set(registers);
    }
}

/// Offsets of an [`Area`]'s fields from its begin.
#[derive(Clone, Copy, Debug)]
pub struct Offsets;

impl Offsets {
    /// Of any area: x28 has its address.
    pub fn of(_: &Area, _: u64) -> Option<Self> {
        Some(Self)
    }
}

pub const REGISTERS: u32 = offset_of!(Area, registers) as u32;
pub const X28: u32 = REGISTERS + 8 * 28;
pub const SP_REGISTER: u32 = REGISTERS + 8 * 31;
pub const NEXT: u32 = offset_of!(Area, next) as u32;
pub const LIMIT: u32 = offset_of!(Area, limit) as u32;
pub const FIRST: u32 = offset_of!(Area, first) as u32;
pub const THIRD: u32 = offset_of!(Area, third) as u32;
pub const TARGET: u32 = offset_of!(Area, target) as u32;
pub const JUMP: u32 = offset_of!(Area, jump) as u32;
pub const RENAMED: u32 = offset_of!(Area, renamed) as u32;
pub const EXIT: u32 = offset_of!(Area, exit) as u32;
pub const FLAGS: u32 = offset_of!(Area, flags) as u32;
pub const ENTRY: u32 = offset_of!(Area, entry) as u32;
pub const STACK: u32 = offset_of!(Area, stack) as u32;
pub const VECTORS: u32 = offset_of!(Area, vectors) as u32;
pub const FRAME: u32 = offset_of!(Area, frame) as u32;

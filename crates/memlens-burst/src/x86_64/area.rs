//! What translated code and the runtime keep of a thread, beside its `fs` base.

use core::cell::Cell;
use core::mem::offset_of;

use super::processor::cycles;

/// Part of a thread's thread-local memory: translated code reaches it through `fs`. All zero at first.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Area {
    /// Where the next word of the burst goes.
    pub next: Cell<u64>,
    /// A block that begins here or later ends the burst.
    pub limit: Cell<u64>,
    /// The program's values of the two registers that a block uses.
    pub first: Cell<u64>,
    /// See [`Area::first`].
    pub second: Cell<u64>,
    /// The program's rcx or rax, while it serves us.
    pub third: Cell<u64>,
    /// The program's rdx, for a moment.
    pub fourth: Cell<u64>,
    /// Since when generated code counts as it was when it was compared: a number that no other thread has, and that changes
    /// whenever such code is entered by a return or an indirect jump or call.
    pub epoch: Cell<u64>,
    /// Native address that is to be executed next.
    pub target: Cell<u64>,
    /// Code to jump to.
    pub jump: Cell<u64>,
    /// Number of the exit that was taken; 0: an indirect one, see [`Area::target`].
    pub exit: Cell<u64>,
    /// The program's registers, by number, while the runtime works.
    pub registers: Cell<[u64; 16]>,
    /// Top of the runtime's stack.
    pub stack: Cell<u64>,
    /// This area's address.
    pub own: Cell<u64>,
    /// Where XSAVE puts the vector registers when the burst ends.
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
            next: zero(),
            limit: zero(),
            first: zero(),
            second: zero(),
            third: zero(),
            fourth: zero(),
            epoch: zero(),
            target: zero(),
            jump: zero(),
            exit: zero(),
            registers: Cell::new([0; 16]),
            stack: zero(),
            own: zero(),
            vectors: zero(),
            frame: zero(),
            is_bursting: zero(),
            lane: zero(),
        }
    }

    /// With a burst an epoch begins. `owner`: a number of the thread's own.
    pub fn begin_epoch(&self, owner: u32) {
        self.epoch.set(cycles().wrapping_mul(NEXT_EPOCH) | (u64::from(owner) % NEXT_EPOCH));
    }

    /// The next epoch.
    pub fn renew_epoch(&self) {
        self.epoch.set(self.epoch.get().wrapping_add(NEXT_EPOCH));
    }
}

/// What a thread's epochs differ by; in the rest are bits of its number.
pub const NEXT_EPOCH: u64 = 1 << 16;

/// Offsets of an [`Area`]'s fields from the `fs` base: the same for all threads of a process.
#[derive(Clone, Copy, Debug)]
pub struct Offsets(i32);

macro_rules! offsets {
    ($($name:ident),*) => {
        $(
            #[doc = concat!("Of [`Area::", stringify!($name), "`].")]
            pub fn $name(self) -> i32 {
                self.0 + offset_of!(Area, $name) as i32
            }
        )*
    };
}

impl Offsets {
    /// Of an area of the calling thread. None: it is not near the `fs` base.
    pub fn of(area: &Area, thread_pointer: u64) -> Option<Self> {
        let distance = (core::ptr::from_ref(area) as u64).wrapping_sub(thread_pointer) as i64;
        // Room for the fields' own offsets.
        i32::try_from(distance).ok().filter(|distance| distance.unsigned_abs() < 1 << 30).map(Self)
    }

    offsets!(
        next, limit, first, second, third, fourth, epoch, target, jump, exit, registers, stack, own, vectors,
        frame
    );
}

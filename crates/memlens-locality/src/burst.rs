//! What a recorder hands over: bursts of references.

use memlens_types::AccessKind;

/// One access by one memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The first byte touched, in the process's address space.
    pub address: u64,
    /// The memory operand that made it: a number the caller gives out, from 0 and without large holes.
    pub instruction: u32,
    /// What the address belongs to (an object, a cell …): a number the caller gives out in the same way. The
    /// crate only adds up by it.
    pub owner: u32,
    /// Bytes touched; 0 counts as 1.
    pub size: u32,
    /// What the operand does. [`AccessKind::Fetch`] is passed over. [`AccessKind::Prefetch`] uses its block and is no
    /// access of the program: [`crate::Row::is_prefetch`]. It takes an owner of its own.
    pub kind: AccessKind,
}

/// A contiguous window of one thread's references, in program order, with nothing left out between them.
///
/// # Promises of the caller
///
/// 1. Bursts of one thread come in the order of their execution; bursts of different threads in any order.
/// 2. `instruction` and `owner` mean the same thing in all bursts.
/// 3. Where a burst begins does not depend on the references in it: a tick of a clock, not a cache miss.
#[derive(Clone, Copy, Debug)]
pub struct Burst<'a> {
    /// The thread, by any number.
    pub thread: u32,
    /// When it began, by a clock that all threads share: that of [`crate::UmiConfig::flush_after`]. Only [`crate::Umi`] asks.
    pub start: u64,
    /// How much of the run it stands for, in whatever unit the caller likes, the same for all bursts: each of its
    /// references counts `weight / references.len()`. With the number of references that passed since the
    /// burst before, results are totals of the run; with processor time, miss ratios are averages over time.
    pub weight: f64,
    /// What this thread did since the end of its burst before, where the caller knows or estimates that.
    pub unseen_before: Option<Unseen>,
    /// The references.
    pub references: &'a [Reference],
}

impl Burst<'_> {
    /// Whether it goes on where the one before ended.
    pub(crate) fn goes_on(&self) -> bool {
        self.unseen_before.is_some_and(|unseen| unseen.references == 0)
    }
}

/// What a thread did between two bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unseen {
    /// References made. 0 says that the burst goes on where the one before ended.
    pub references: u64,
    /// Whether it was in code that is of neither burst, if that was looked at.
    pub was_elsewhere: Option<bool>,
}

impl From<u64> for Unseen {
    /// So many references; nobody looked at the code.
    fn from(references: u64) -> Self {
        Self { references, was_elsewhere: None }
    }
}

/// Addresses of an object of which it is known how large it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// The first address.
    pub start: u64,
    /// The one behind the last.
    pub end: u64,
    /// The object, by any number.
    pub object: u64,
    /// How much it has in all, in bytes: of an object of many pieces more than this one.
    pub bytes: u64,
}

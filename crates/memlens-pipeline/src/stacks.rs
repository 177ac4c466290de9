//! The stacks of all threads, for an access of one of them: threads use each other's locals.

use crate::shadow_stack::{Calls, ShadowStack};
use crate::thread::Thread;

/// The calls under way in the thread that accesses memory, and in the others as far as their records have been read.
#[derive(Clone, Copy)]
pub struct Stacks<'a> {
    /// The thread's own.
    pub own: &'a ShadowStack,
    /// All threads, by number; empty where one is in hand.
    others: &'a [Option<Box<Thread>>],
}

impl<'a> Stacks<'a> {
    /// Those of a thread in hand, and of all others.
    pub fn new(own: &'a ShadowStack, others: &'a [Option<Box<Thread>>]) -> Self {
        Self { own, others }
    }

    /// The calls on the stack that `addr` lies on, one that the thread itself has left, or one of thread number
    /// `owner`.
    pub fn around(self, addr: u64, owner: u32) -> Option<Calls<'a>> {
        self.own.calls_around(addr).or_else(|| {
            let owner = self.others.get(owner as usize)?.as_ref()?;
            owner.stack.calls_around(addr)
        })
    }
}

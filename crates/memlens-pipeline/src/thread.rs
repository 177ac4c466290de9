//! A thread of the target, as the pipeline sees it.

use crate::block_table::BlockTable;
use crate::cells::Cells;
use crate::fetches::Fetches;
use crate::references::References;
use crate::shadow_stack::ShadowStack;
use memlens_objects::SiteId;

/// A call of an allocation function that has not returned.
#[derive(Clone, Copy, Debug)]
pub struct PendingAllocation {
    /// Where its return address lies.
    pub slot: u64,
    /// Index in the table of allocation functions.
    pub function: u16,
    /// Its first four integer arguments.
    pub arguments: [u64; 4],
}

/// A thread.
pub struct Thread {
    /// The kernel's id.
    pub tid: u32,
    /// The name that it has given itself.
    pub name: Option<String>,
    /// Instructions executed.
    pub instructions: u64,
    /// Calls under way.
    pub stack: ShadowStack,
    /// What its code touched.
    pub references: References,
    /// What it executed, where fetches are modelled.
    pub fetches: Fetches,
    /// Allocation calls under way, outermost first.
    pub pending: Vec<PendingAllocation>,
    /// A finished call whose block's address follows in an event, and where it was made from.
    pub awaiting_pointer: Option<(PendingAllocation, SiteId)>,
}

impl Thread {
    /// A thread about to run.
    pub fn new(tid: u32, stack: ShadowStack) -> Self {
        Self {
            tid,
            name: None,
            instructions: 0,
            stack,
            references: References::new(),
            fetches: Fetches::new(),
            pending: Vec::new(),
            awaiting_pointer: None,
        }
    }

    /// Books all that was counted so far in the cells.
    pub fn settle(&mut self, blocks: &BlockTable) -> &mut Cells {
        self.fetches.settle(blocks, self.references.cells_mut());
        self.references.settle()
    }
}

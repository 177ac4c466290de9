//! The loop that most records go through: blocks with plain addresses, calls and returns.
//!
//! ```text
//! record      header ┐ a0   a1   a2   a3       four words, whatever lies behind the last
//!                    │
//! group of           └ base base base base     in range? (one vector test)
//! references           kind kind kind kind ──► batch: address, kind, cell of each access
//!                      cell cell cell cell
//! ```
//!
//! Nothing in it depends on the number of words but the position of the next record, so blocks of all
//! sizes run without a mispredicted branch. What does not belong here ends the loop.
//!
//! Large programs have more groups than the second-level cache holds. Which come next stands in the records, so they
//! are asked for in time ([`Lookahead`]): of SQLite's and CPython's time in this loop, half was waiting for them.

use crate::address_space::AddressSpace;
use crate::batch::{Batch, Columns};
use crate::block_table::{BlockTable, Ending};
use crate::fetches::Attribution;
use crate::lanes::{Kernel, LANES, Task};
use crate::references::{Access, References};
use crate::shadow_stack::ShadowStack;
use crate::thread::Thread;
use memlens_events::RecordHeader;

/// Records between the one at hand and the one whose group is asked for.
const AHEAD: usize = 8;

/// How far the records have been looked at ahead of the one at hand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lookahead {
    records: usize,
    /// The words of those records.
    words: usize,
}

impl Lookahead {
    /// Looks one record further in `words`, which begin with the record at hand; at the end of them nothing happens.
    #[inline(always)]
    fn advance<K: Kernel>(&mut self, kernel: K, references: &References, words: &[u64]) {
        let Some(&header) = words.get(self.words) else { return };
        let header = RecordHeader(header);
        if let Some(group) = references.peek(header.block_id()) {
            kernel.fetch(group);
        }
        self.records += 1;
        self.words += 1 + header.words();
    }

    /// The record at hand, of so many words, is done.
    #[inline(always)]
    pub fn pass(&mut self, words: usize) {
        self.records = self.records.saturating_sub(1);
        self.words = self.words.saturating_sub(words);
    }
}

/// What the loop works on.
pub struct HotLoop<'a> {
    /// The code.
    pub blocks: &'a BlockTable,
    /// Where the accesses go.
    pub batch: &'a mut Batch,
    /// What lies at an address.
    pub space: &'a mut AddressSpace,
    /// Whose records they are.
    pub thread: &'a mut Thread,
    /// Records: headers and words.
    pub words: &'a [u64],
    /// How far they have been looked at.
    pub lookahead: &'a mut Lookahead,
    /// Number of accesses seen.
    pub serial: &'a mut u64,
}

impl Task for HotLoop<'_> {
    /// Words read. The loop ended because all are, or nearly, or the batch is full, or the next record is
    /// of another kind.
    type Output = usize;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> usize {
        self.records::<_, false>(kernel)
    }
}

/// The loop with instruction fetches, as a loop of its own: the other one has no work for them.
pub struct WithFetches<'a>(pub HotLoop<'a>);

impl Task for WithFetches<'_> {
    /// As [`HotLoop`]'s.
    type Output = usize;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> usize {
        self.0.records::<_, true>(kernel)
    }
}

impl HotLoop<'_> {
    /// Works on the records. `FETCHES`: a block's instructions are fetched before its data is accessed.
    #[inline(always)]
    fn records<K: Kernel, const FETCHES: bool>(self, kernel: K) -> usize {
        let Self { blocks, batch, space, thread, words, lookahead, serial } = self;
        let Thread { stack, references, pending, fetches, .. } = thread;
        space.set_now(*serial);
        let (mut columns, used) = batch.columns();
        // While an allocation is under way, returned values are of interest.
        let last = if pending.is_empty() { Ending::ReturnsValue } else { Ending::Returns };
        let (mut at, mut len, mut instructions, mut fetched) = (0, *used, 0, 0);
        let mut frames = stack.innermost();
        let mut ahead = *lookahead;
        // A group's words can be read behind the header, and the record's end can be told.
        while len < Columns::FULL
            && let Some((header, rest)) = words[at..].split_first()
            && let Some(addrs) = rest.first_chunk::<LANES>()
        {
            let header = RecordHeader(*header);
            let id = header.block_id();
            ahead.advance(kernel, references, &words[at..]);
            if ahead.records <= AHEAD {
                ahead.advance(kernel, references, &words[at..]);
            }
            let Some(group) = references.first_group(id) else { break };
            if group.ending > last || header.words() > rest.len() {
                break;
            }
            let group = if FETCHES {
                let attribution = Attribution { blocks, space, stack, references };
                fetches.count(attribution, id, |addr, attr, cell| {
                    columns.put_fetch(len, addr, attr, cell);
                    (len, fetched) = (len + 1, fetched + 1);
                });
                let Some(group) = references.first_group(id) else { break };
                group
            } else {
                group
            };
            at += 1 + header.words();
            ahead.pass(1 + header.words());
            group.executions += 1;
            instructions += u64::from(group.instructions);
            let count = usize::from(group.accesses);
            let outside = kernel.outside(addrs, group, frames);
            columns.put(len, addrs, &group.attrs, &group.cells);
            let (ending, next, executions) = (group.ending, group.next, group.executions);
            let slot_word = usize::from(group.slot_word);
            if outside != 0 {
                let cells = columns.cells[len..].first_chunk_mut();
                let group = (id, group.first_reference, group.executions - 1);
                book_outside(references, space, stack, blocks, group, (addrs, outside), cells);
            }
            len += count;
            if next != 0 {
                let accesses = (&rest[LANES..], columns.reborrow(), len);
                let executed = executions - 1;
                len = further(kernel, references, space, stack, blocks, (next, executed), accesses);
            }
            if ending != Ending::Falls {
                let slot = rest.get(slot_word).copied().unwrap_or(0);
                if stack.is_elsewhere(slot) {
                    let range = space.stack_around(slot);
                    stack.switch(range, slot);
                }
                match ending {
                    Ending::Calls => {
                        let block = blocks.block(id);
                        stack.call(slot, block.end_pc, block.return_key);
                    }
                    _ => stack.ret(slot),
                }
                frames = stack.innermost();
            }
        }
        thread.instructions += instructions;
        *serial += (len - *used - fetched) as u64;
        *used = len;
        *lookahead = ahead;
        at
    }
}

/// One execution of a block with plain addresses.
pub struct OneBlock<'a> {
    /// The code.
    pub blocks: &'a BlockTable,
    /// Where the accesses go.
    pub batch: &'a mut Batch,
    /// What lies at an address.
    pub space: &'a mut AddressSpace,
    /// Who ran it.
    pub thread: &'a mut Thread,
    /// Which block.
    pub id: u32,
    /// Addresses, one for each reference.
    pub words: &'a [u64],
}

impl Task for OneBlock<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let Self { blocks, batch, space, thread, id, words } = self;
        let Thread { stack, references, .. } = thread;
        let (columns, used) = batch.columns();
        references.prepare(blocks, id);
        if let Some(group) = references.first_group(id) {
            group.executions += 1;
            let executed = group.executions - 1;
            *used =
                further(kernel, references, space, stack, blocks, (id, executed), (words, columns, *used));
        }
    }
}

/// The accesses of a block that ran `executed` times before, from group `number` on: their addresses are the
/// first of `words`, and they go to the columns from position `len` on. Returns the position behind them.
#[inline(always)]
fn further<K: Kernel>(
    kernel: K,
    references: &mut References,
    space: &mut AddressSpace,
    stack: &ShadowStack,
    blocks: &BlockTable,
    (mut number, executed): (u32, u64),
    (mut words, mut columns, mut len): (&[u64], Columns<'_>, usize),
) -> usize {
    loop {
        let Some(group) = references.group(number) else { return len };
        let count = usize::from(group.accesses).min(words.len());
        let addrs = words.first_chunk().copied().unwrap_or_else(|| {
            let mut addrs = [0; LANES];
            addrs[..count].copy_from_slice(&words[..count]);
            addrs
        });
        words = &words[count..];
        let outside = kernel.outside(&addrs, group, stack.innermost());
        columns.put(len, &addrs, &group.attrs, &group.cells);
        let next = group.next;
        if outside != 0 {
            let cells = columns.cells[len..].first_chunk_mut();
            let group = (number, group.first_reference, executed);
            book_outside(references, space, stack, blocks, group, (&addrs, outside), cells);
        }
        len += count;
        if next == 0 {
            return len;
        }
        number = next;
    }
}

/// Finds the cells of those accesses of a group (its number, first reference, and how often the block ran
/// before) that are outside their references' ranges.
#[inline(never)]
fn book_outside(
    references: &mut References,
    space: &mut AddressSpace,
    stack: &ShadowStack,
    blocks: &BlockTable,
    (group, first, executed): (u32, u32, u64),
    (addrs, mut outside): (&[u64; LANES], u32),
    cells: Option<&mut [u32; LANES]>,
) {
    let Some(cells) = cells else { return };
    while outside != 0 {
        let lane = outside.trailing_zeros() as usize % LANES;
        outside &= outside - 1;
        let access = Access { reference: first + lane as u32, group, lane, addr: addrs[lane], executed };
        if let Some(cell) = references.outside(space, stack, blocks, access) {
            cells[lane] = cell;
        }
    }
}

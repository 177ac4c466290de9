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
//! Large programs have more groups than the second-level cache holds. Which come next stands in the records, so some
//! records are looked at together ([`scan`]), and their groups asked for, before they are worked on: of SQLite's and
//! CPython's time in this loop, half was waiting for them.

use crate::address_space::AddressSpace;
use crate::batch::{Batch, Columns};
use crate::block_table::{BlockTable, Ending};
use crate::fetches::Attribution;
use crate::lanes::{Kernel, LANES, Task};
use crate::references::{Access, References};
use crate::shadow_stack::ShadowStack;
use crate::stacks::Stacks;
use crate::thread::Thread;
use memlens_events::RecordHeader;

/// Records that are looked at before they are worked on.
const SCANNED: usize = 16;
/// How far ahead of its use a word is asked for, which another processor has just written.
const WORDS_AHEAD: usize = 192;
/// A header and what a group takes of the words behind it.
const FIRST_WORDS: usize = 1 + LANES;

/// A record that will be worked on.
#[derive(Clone, Copy)]
struct Scanned<'a> {
    /// The header, and the words that the block's first group takes, whatever lies behind the last.
    first_words: &'a [u64; FIRST_WORDS],
    /// Where it begins.
    start: usize,
    /// Where its block's groups begin.
    group: usize,
    /// Instructions before it of blocks that are only counted.
    counted: u64,
}

impl Scanned<'_> {
    const NONE: Self = Self { first_words: &[0; FIRST_WORDS], start: 0, group: 0, counted: 0 };
}

/// What [`scan`] found.
struct Scan {
    /// Records to work on.
    found: usize,
    /// Where the last one ends, with those that are only counted.
    end: usize,
    /// Instructions of those that are only counted.
    instructions: u64,
    /// Whether it ended because no further record can be worked on here.
    is_last: bool,
}

/// Finds records in `words` from `at` on, and asks for their groups.
#[inline(always)]
fn scan<'a, K: Kernel>(
    kernel: K,
    references: &References,
    words: &'a [u64],
    at: usize,
    scanned: &mut [Scanned<'a>; SCANNED],
) -> Scan {
    let mut scan = Scan { found: 0, end: at, instructions: 0, is_last: true };
    while let Some(first_words) = words.get(scan.end..).and_then(|words| words.first_chunk()) {
        let header = RecordHeader(first_words[0]);
        let end = scan.end + 1 + header.words();
        if end > words.len() {
            return scan;
        }
        if let Some(word) = words.get(scan.end + WORDS_AHEAD) {
            kernel.fetch_word(word);
        }
        let place = references.place(header.block_id());
        let group = place.group();
        kernel.fetch(references.peek(group));
        scanned[scan.found % SCANNED] =
            Scanned { first_words, start: scan.end, group, counted: scan.instructions };
        let counted = place.counted();
        scan.instructions += u64::from(counted);
        scan.found += usize::from(counted == 0);
        scan.end = end;
        if scan.found == SCANNED {
            scan.is_last = false;
            return scan;
        }
    }
    scan
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
    /// All other threads.
    pub others: &'a [Option<Box<Thread>>],
    /// Records: headers and words.
    pub words: &'a [u64],
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
        let Self { blocks, batch, space, thread, others, words, serial } = self;
        let Thread { stack, references, pending, fetches, .. } = thread;
        space.set_now(*serial);
        let (mut columns, used) = batch.columns();
        // While an allocation is under way, returned values are of interest.
        let last = if pending.is_empty() { Ending::ReturnsValue } else { Ending::Returns };
        let (mut at, mut len, mut instructions, mut fetched) = (0, *used, 0, 0);
        let mut scanned = [Scanned::NONE; SCANNED];
        // The batch has room for what so many blocks access.
        'all: while len < Columns::FULL {
            let found = scan(kernel, references, words, at, &mut scanned);
            for record in &scanned[..found.found] {
                let &Scanned { first_words: [header, addrs @ ..], start, group: position, .. } = record;
                let group = references.group(position);
                let ending = group.ending;
                if ending > last {
                    (at, instructions) = (start, instructions + record.counted);
                    break 'all;
                }
                let executed = group.executions;
                group.executions = executed + 1;
                instructions += u64::from(group.instructions);
                let header = RecordHeader(*header);
                let group = if FETCHES {
                    let stacks = Stacks::new(stack, others);
                    let attribution = Attribution { blocks, space, stacks, references };
                    fetches.count(attribution, header.block_id(), |addr, attr, cell| {
                        columns.put_fetch(len, addr, attr, cell);
                        (len, fetched) = (len + 1, fetched + 1);
                    });
                    references.group(position)
                } else {
                    group
                };
                let count = usize::from(group.accesses);
                let outside = kernel.outside(addrs, group, stack.innermost());
                columns.put(len, addrs, &group.attrs, &group.cells);
                let (has_more, slot_word) = (group.has_more, usize::from(group.slot_word));
                if outside != 0 {
                    let cells = columns.cells[len..].first_chunk_mut();
                    book_outside(
                        references,
                        space,
                        Stacks::new(stack, others),
                        blocks,
                        (position, executed),
                        (addrs, outside),
                        cells,
                    );
                }
                len += count;
                if has_more {
                    let words = &words[start + 1 + count..];
                    let columns = columns.reborrow();
                    let first = position + 1;
                    let stacks = Stacks::new(stack, others);
                    let further =
                        Further { blocks, columns, len, space, stacks, references, first, executed, words };
                    len = kernel.apart(further);
                }
                if ending != Ending::Falls {
                    let slot = words[start + 1..][..header.words()].get(slot_word).copied().unwrap_or(0);
                    let block = (header.block_id(), ending == Ending::Calls);
                    enter_or_leave(blocks, space, stack, block, slot);
                }
            }
            (at, instructions) = (found.end, instructions + found.instructions);
            if found.is_last {
                break;
            }
        }
        thread.instructions += instructions;
        *serial += (len - *used - fetched) as u64;
        *used = len;
        at
    }
}

/// A block ended with a call, or with a return, whose return address is at `slot`.
#[inline(always)]
pub fn enter_or_leave(
    blocks: &BlockTable,
    space: &mut AddressSpace,
    stack: &mut ShadowStack,
    (id, is_call): (u32, bool),
    slot: u64,
) {
    if stack.is_elsewhere(slot) {
        let range = space.stack_around(slot);
        stack.switch(range, slot);
    }
    if is_call {
        let block = blocks.block(id);
        stack.call(slot, block.end_pc, block.return_key);
    } else {
        stack.ret(slot);
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
    /// All other threads.
    pub others: &'a [Option<Box<Thread>>],
    /// Which block.
    pub id: u32,
    /// Addresses, one for each reference.
    pub words: &'a [u64],
}

impl Task for OneBlock<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let Self { blocks, batch, space, thread, others, id, words } = self;
        let Thread { stack, references, .. } = thread;
        let (columns, used) = batch.columns();
        let first = references.prepare(blocks, id);
        let group = references.group(first);
        let executed = group.executions;
        group.executions = executed + 1;
        let (len, stacks) = (*used, Stacks::new(stack, others));
        *used =
            Further { blocks, columns, len, space, stacks, references, first, executed, words }.run(kernel);
    }
}

/// The accesses of groups of a block that stand together.
struct Further<'a> {
    blocks: &'a BlockTable,
    columns: Columns<'a>,
    /// Where in the columns the first one goes.
    len: usize,
    space: &'a mut AddressSpace,
    stacks: Stacks<'a>,
    references: &'a mut References,
    /// The first group.
    first: usize,
    /// How often the block ran before.
    executed: u64,
    /// The addresses, and whatever lies behind them.
    words: &'a [u64],
}

impl Task for Further<'_> {
    /// The position in the columns behind the last access.
    type Output = usize;

    #[inline(always)]
    fn run<K: Kernel>(mut self, kernel: K) -> usize {
        let mut words = self.words;
        for position in self.first.. {
            let (count, has_more) = match words.first_chunk() {
                Some(addrs) => self.group(kernel, position, addrs),
                None => self.group(kernel, position, &filled_up(words)),
            };
            self.len += count.min(words.len());
            if !has_more {
                break;
            }
            // A damaged record may be shorter than its block's groups.
            words = words.get(count..).unwrap_or_default();
        }
        self.len
    }
}

impl Further<'_> {
    /// The accesses of one group. Returns how many they are, and whether the next group is of the block, too.
    #[inline(always)]
    fn group<K: Kernel>(&mut self, kernel: K, position: usize, addrs: &[u64; LANES]) -> (usize, bool) {
        let Self { blocks, columns, len, space, stacks, references, executed, .. } = self;
        let group = references.group(position);
        let outside = kernel.outside(addrs, group, stacks.own.innermost());
        columns.put(*len, addrs, &group.attrs, &group.cells);
        let found = (usize::from(group.accesses), group.has_more);
        if outside != 0 {
            let cells = columns.cells[*len..].first_chunk_mut();
            book_outside(references, space, *stacks, blocks, (position, *executed), (addrs, outside), cells);
        }
        found
    }
}

/// The last words, fewer than a group takes.
#[cold]
#[inline(never)]
fn filled_up(words: &[u64]) -> [u64; LANES] {
    let mut addrs = [0; LANES];
    addrs[..words.len()].copy_from_slice(words);
    addrs
}

/// Finds the cells of those accesses of a group, whose block ran `executed` times before, that are outside their
/// references' ranges.
#[inline(never)]
fn book_outside(
    references: &mut References,
    space: &mut AddressSpace,
    stacks: Stacks<'_>,
    blocks: &BlockTable,
    (group, executed): (usize, u64),
    (addrs, mut outside): (&[u64; LANES], u32),
    cells: Option<&mut [u32; LANES]>,
) {
    let Some(cells) = cells else { return };
    let first = references.group(group).first_reference;
    while outside != 0 {
        let lane = outside.trailing_zeros() as usize % LANES;
        outside &= outside - 1;
        let access = Access { reference: first + lane as u32, group, lane, addr: addrs[lane], executed };
        if let Some(cell) = references.outside(space, stacks, blocks, access) {
            cells[lane] = cell;
        }
    }
}

//! Short windows of the accesses, for how operands go through memory, where in objects they are, and through which calls they were reached.
//!
//! Every [`INTERVAL`] accesses the records that come next are read once more, apart from the loop that counts: a
//! window of at most [`WINDOW`] accesses of one thread. A program that ends before there are [`FEWEST`] of them is judged by more
//! frequent ones ([`EARLY_INTERVAL`]), and what is only done at the begin of a longer one is, too. Blocks whose words are not plain addresses are left out of
//! it. Cost: some hundredths of a recording's processor time, mostly waiting for what is kept of each operand.

use memlens_events::{BlockFlags, RecordHeader, WordRole};
use memlens_locality::{Burst, Patterns, Reference};
use rustc_hash::FxHashMap;

use memlens_fields::Offsets;
use memlens_objects::split_frame_key;
use memlens_overlap::{Place, Windows as KeptWindows};
use memlens_sim::MachineDescription;

use crate::address_space::AddressSpace;
use crate::block_table::{BlockInfo, BlockTable, OperandKey};
use crate::paths::Paths;
use crate::shadow_stack::ShadowStack;

/// Accesses from one window to the next. Prime, so that no loop keeps step with it.
const INTERVAL: u64 = 100_003;
/// The same among the first [`EARLY_ACCESSES`].
const EARLY_INTERVAL: u64 = 10_007;
/// So many that [`FEWEST`] windows follow.
const EARLY_ACCESSES: u64 = INTERVAL * FEWEST as u64;
/// From so many windows on those among the first accesses count only for what is in no others.
const FEWEST: usize = 10;
/// Accesses of a window.
const WINDOW: usize = 1024;
/// Accesses of which it is looked at who calls, behind the first [`EARLY_ACCESSES`]: neighbours have the same callers, so that more of them
/// would tell little more, at 90 ns each (CPython: 6 % of all processor time with 1024).
const PATH_WINDOW: usize = 256;
/// Operands looked at: 250 to 500 bytes each.
const MOST_OPERANDS: usize = 1 << 16;
/// Windows kept whole: see [`memlens_overlap`]. 12 KB each.
const KEPT: usize = 256;

/// No object's number: what is accessed is not known at once …
const UNKNOWN: u32 = 0;
/// … or is in some frame of some stack.
const STACK: u32 = u32::MAX;

/// The windows seen.
#[derive(Debug)]
pub struct Windows {
    patterns: Patterns,
    /// Number of each operand.
    numbers: FxHashMap<OperandKey, u32>,
    /// The same by reference, plus 1; 0: not met yet.
    of_references: Vec<u32>,
    /// Accesses seen when the next window begins, …
    due: u64,
    /// … and the next of the frequent ones.
    early_due: u64,
    window: Vec<Reference>,
    /// Where blocks begin in it, and their first instructions.
    begun: Vec<(u32, u64)>,
    offsets: Offsets,
    paths: Paths,
    /// Words of records up to now …
    words: u64,
    /// … when it is looked at who calls …
    paths_due: u64,
    /// … and for how many of them what was seen stands.
    seen_until: u64,
    kept: KeptWindows,
    early: KeptWindows,
}

impl Windows {
    /// None yet, on a machine.
    pub fn new(machine: &MachineDescription) -> Self {
        Self {
            patterns: Patterns::new(MOST_OPERANDS),
            numbers: FxHashMap::default(),
            of_references: Vec::new(),
            // The first accesses are the dynamic linker's.
            due: INTERVAL,
            early_due: EARLY_INTERVAL,
            window: Vec::new(),
            begun: Vec::new(),
            offsets: Offsets::default(),
            paths: Paths::new(machine),
            words: 0,
            paths_due: EARLY_INTERVAL,
            seen_until: 0,
            kept: KeptWindows::new(KEPT),
            early: KeptWindows::new((EARLY_ACCESSES / EARLY_INTERVAL) as usize),
        }
    }

    /// Whether a window begins after so many accesses.
    #[inline]
    pub fn is_due(&self, accesses: u64) -> bool {
        accesses >= self.due.min(self.early_due)
    }

    /// Looks at the records in `words`, which come after so many accesses.
    #[cold]
    pub fn look(
        &mut self,
        blocks: &BlockTable,
        space: &AddressSpace,
        (thread, accesses): (usize, u64),
        words: &[u64],
    ) {
        let (is_regular, is_early) = (accesses >= self.due, accesses < EARLY_ACCESSES);
        if is_regular {
            self.due = accesses + INTERVAL;
        }
        self.early_due = if is_early { accesses + EARLY_INTERVAL } else { u64::MAX };
        self.window.clear();
        self.begun.clear();
        let mut at = 0;
        // Memory is as it is now until the records say otherwise.
        let mut is_as_known = true;
        while self.window.len() < WINDOW
            && let Some(&header) = words.get(at)
        {
            let header = RecordHeader(header);
            let payload = words.get(at + 1..at + 1 + header.words());
            at += 1 + header.words();
            let block = blocks.block(header.block_id());
            let Some(addresses) = payload else { break };
            let allocates = block.flags.0 & (BlockFlags::ALLOC_ENTRY.0 | BlockFlags::RETURNS_VALUE.0) != 0;
            is_as_known &= header.block_id() != 0 && !allocates;
            if header.block_id() != 0 {
                self.begun.push((self.window.len() as u32, block.pc));
            }
            if header.block_id() == 0 || block.flags.contains(BlockFlags::IRREGULAR) {
                continue;
            }
            for (reference, &address) in blocks.references_of(header.block_id()).zip(addresses) {
                let number = self.number(blocks, reference as usize);
                let reference = blocks.references()[reference as usize];
                let (kind, size) = (reference.attr.kind(), reference.attr.size_bytes());
                let place = space.place_at(address).filter(|_| is_as_known);
                if let Some((object, offset)) = place
                    && self.offsets.is_due(Offsets::OFTEN)
                {
                    self.offsets.saw(number, object.get(), offset);
                }
                let owner = match place {
                    Some((object, _)) => object.get(),
                    None if space.is_on_stack(address) => STACK,
                    None => UNKNOWN,
                };
                self.window.push(Reference { address, instruction: number, owner, size, kind });
            }
        }
        let place_of = |pc| {
            let (number, svma) = split_frame_key(space.frame_key(pc));
            // As rows of modules are numbered.
            Place { module: u32::from(number).checked_sub(1).unwrap_or(Place::NO_MODULE), svma }
        };
        if is_early {
            self.early.feed(&self.window, &self.begun, None, place_of);
        }
        if !is_regular {
            return;
        }
        self.kept.feed(&self.window, &self.begun, None, place_of);
        let length = self.window.len() as f64;
        let burst = Burst {
            thread: thread as u32,
            start: accesses,
            weight: length,
            unseen_before: None,
            references: &self.window,
        };
        self.patterns.feed(&burst, |it| (it.owner != UNKNOWN).then_some(it.owner));
    }

    /// Whether it is to be looked at who calls, before so many words of records.
    #[inline]
    pub fn are_paths_due(&mut self, words: usize) -> bool {
        let is_due = self.words >= self.paths_due;
        self.words += words as u64;
        is_due
    }

    /// Looks at who calls in the records in `words`, while the thread has these calls under way. How often goes by words and not by accesses: string
    /// instructions make a million of these at once, and what comes beside them would be passed over.
    #[cold]
    pub fn look_for_paths(
        &mut self,
        blocks: &BlockTable,
        space: &AddressSpace,
        stack: &ShadowStack,
        words: &[u64],
    ) {
        let (interval, most) = match self.words < EARLY_ACCESSES {
            true => (EARLY_INTERVAL, WINDOW),
            false => (INTERVAL, PATH_WINDOW),
        };
        self.paths_due = self.words + interval;
        self.paths.begin(stack);
        let (mut at, mut seen) = (0, 0);
        // Memory is as it is now until the records say otherwise.
        let mut is_as_known = true;
        while seen < most
            && let Some(&header) = words.get(at)
        {
            let header = RecordHeader(header);
            let id = header.block_id();
            let Some(addresses) = words.get(at + 1..at + 1 + header.words()) else { break };
            at += 1 + header.words();
            let block = blocks.block(id);
            let allocates = block.flags.0 & (BlockFlags::ALLOC_ENTRY.0 | BlockFlags::RETURNS_VALUE.0) != 0;
            is_as_known &= id != 0 && !allocates;
            if id == 0 {
                continue;
            }
            if block.flags.contains(BlockFlags::IRREGULAR) {
                self.masked(blocks, id, addresses);
            } else {
                for (reference, &address) in blocks.references_of(id).zip(addresses) {
                    let number = self.number(blocks, reference as usize);
                    let owner = match space.place_at(address).filter(|_| is_as_known) {
                        Some((object, _)) => object.get(),
                        None if space.is_on_stack(address) => STACK,
                        None => UNKNOWN,
                    };
                    self.paths.saw((number, owner), address);
                }
            }
            seen += addresses.len();
            self.follow(&block, addresses);
        }
        self.paths.end(self.words - std::mem::replace(&mut self.seen_until, self.words));
    }

    /// Accesses under masks, which are in no window: their call paths.
    fn masked(&mut self, blocks: &BlockTable, id: u32, words: &[u64]) {
        let roles = blocks.words(id);
        if roles.iter().any(|word| word.role == WordRole::RepStart) {
            // Those of string instructions are seen apart: few instructions do very much.
            return;
        }
        let addresses = roles.iter().zip(words).filter(|(word, _)| word.role == WordRole::Address);
        for (reference, (_, &address)) in blocks.references_of(id).zip(addresses) {
            let number = self.number(blocks, reference as usize);
            self.paths.saw((number, UNKNOWN), address);
        }
    }

    /// A block has ended, perhaps with a call or a return.
    fn follow(&mut self, block: &BlockInfo, words: &[u64]) {
        let (is_call, is_return) =
            (block.flags.contains(BlockFlags::CALL), block.flags.contains(BlockFlags::RETURN));
        if (is_call || is_return)
            && let Some(&slot) = words.get(usize::from(block.slot_word))
        {
            self.paths.enter_or_leave(is_call, slot, block.return_key);
        }
    }

    /// Through which calls operands' accesses came, by the operands' numbers, and these numbers.
    pub fn paths(&self) -> (&Paths, &FxHashMap<OperandKey, u32>) {
        (&self.paths, &self.numbers)
    }

    /// A string instruction has gone through so many elements of its operands, while these calls are under way: who called for them.
    pub fn ran_for(
        &mut self,
        blocks: &BlockTable,
        stack: &ShadowStack,
        references: impl Iterator<Item = u32>,
        elements: u64,
    ) {
        if self.paths.is_due(elements) {
            let numbers: Vec<u32> = references.map(|it| self.number(blocks, it as usize)).collect();
            self.paths.ran(numbers.into_iter(), UNKNOWN, stack);
        }
    }

    /// A string instruction's operand has gone through so many elements, of which the lowest is at `address`: windows leave its block out, so
    /// where that was is kept apart from them.
    pub fn ran(
        &mut self,
        (blocks, space): (&BlockTable, &AddressSpace),
        reference: u32,
        (address, element_bytes, elements): (u64, u32, u64),
    ) {
        let Some((object, offset)) = space.place_at(address) else { return };
        let bytes_to_last = elements.saturating_sub(1).saturating_mul(element_bytes.into());
        let last = space.place_at(address.wrapping_add(bytes_to_last));
        // One that leaves its object is divided by the first access.
        if last.is_some_and(|(other, _)| other == object) {
            let number = self.number(blocks, reference as usize);
            self.offsets.ran((number, object.get()), offset, element_bytes, elements);
        }
    }

    /// The number of a reference's operand: blocks that begin at different places share instructions.
    fn number(&mut self, blocks: &BlockTable, reference: usize) -> u32 {
        if self.of_references.len() <= reference {
            self.of_references.resize(blocks.references().len().max(reference + 1), 0);
        }
        if let Some(number) = self.of_references[reference].checked_sub(1) {
            return number;
        }
        let known = blocks.references()[reference];
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(known.operand_key()).or_insert(next);
        self.of_references[reference] = number + 1;
        number
    }

    /// Where in objects operands were seen, by the operands' numbers, and these numbers.
    pub fn offsets(&self) -> (&Offsets, &FxHashMap<OperandKey, u32>) {
        (&self.offsets, &self.numbers)
    }

    /// The patterns, whole windows, those that tell of what is in no others, and the number in them of the operand of an instruction.
    pub fn patterns(
        &mut self,
    ) -> (&mut Patterns, &KeptWindows, Option<&KeptWindows>, &FxHashMap<OperandKey, u32>) {
        let Self { patterns, kept, early, numbers, .. } = self;
        let (kept, others) = if kept.count() < FEWEST { (&*early, None) } else { (&*kept, Some(&*early)) };
        (patterns, kept, others, numbers)
    }
}

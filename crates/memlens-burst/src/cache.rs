//! What has been translated: code, blocks, exits, and how they are found.
//!
//! Code lies in *arenas*, each near the native code it was made from, so that operands relative to the instruction
//! pointer reach.
//!
//! ```text
//!  arena   ┌ entry into the runtime (entry.rs)
//!          ├ two tables of indirect targets, one for each variant of blocks:
//!          │   hash of the native address ─► distance of a check from the arena's start
//!          ├ of blocks of generated code: the epoch in which a thread has compared it last
//!          └ blocks and checks …
//! ```
//!
//! A *check* compares the address that is wanted with the one it was made for, and goes on to that block or, if it is
//! another, to the runtime. So an element of the table is one number, which any thread may read while another one
//! changes it. Distance 0 is the arena's start: the runtime.
#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "code that may change is not translated there")
)]

use core::sync::atomic::{AtomicU32, Ordering};

use memlens_events::burst::{End, Reference};

use crate::arch::{
    Assembler, Gpr, OfBlock, Offsets, first_entry, is_near, jump_word, memory_for, publish, target_hash,
    write_check, write_way_to_entry,
};
use crate::hashes::Hashes;
use crate::sys::{CodeMemory, Populated, populate};
use crate::table::Table;

/// Bytes of an arena.
pub const ARENA_BYTES: usize = 64 << 20;
/// The most arenas.
pub const ARENAS: usize = 6;
/// Elements of a table of indirect targets: as many as hashes.
const TARGETS: usize = 1 << 16;
/// Where blocks begin in an arena: the entry has a page, the table follows.
const CODE_OFFSET: usize = EPOCHS_OFFSET + EPOCHS * size_of::<u64>();
const EPOCHS_OFFSET: usize = 4096 + 2 * TARGET_BYTES;
const TARGET_BYTES: usize = TARGETS * size_of::<u32>();
/// The most blocks of generated code in an arena.
const EPOCHS: usize = 1 << 15;
/// Room that a block may need.
pub const MOST_BLOCK_BYTES: usize = 8192;

const MOST_BLOCKS: usize = 1 << 17;
const MOST_EXITS: usize = 1 << 19;
const MOST_REFERENCES: usize = 1 << 21;
const MOST_PLACES: usize = 1 << 22;

/// What a block does besides the program's own work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// It stores the addresses of its accesses.
    #[default]
    Recording,
    /// It only counts the words that it would have stored.
    Counting,
}

/// A translated trace.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Native address of its first instruction.
    pub pc: u64,
    /// What it does.
    pub variant: Variant,
    /// Where it is entered with all registers the program's.
    pub cold: u64,
    /// Where it is entered with its two registers saved and the first pointing to the next word.
    pub warm: u64,
    /// Behind its code.
    pub end: u64,
    /// Its two registers.
    pub pair: (Gpr, Gpr),
    /// Its first reference.
    pub first_reference: u32,
    /// Its first [`Place`].
    pub first_place: u32,
    /// How many it has.
    pub places: u32,
    /// What the architecture's translation notes of it.
    pub own: OfBlock,
    /// The block that this one replaces, as its code has changed; 0: none.
    replaces: u32,
    /// In each arena, the distance of its check from the start; 0: none.
    checks: [u32; ARENAS],
}

impl Block {
    /// Without checks yet.
    pub fn new(pc: u64, variant: Variant, cold: u64, pair: (Gpr, Gpr)) -> Self {
        Self {
            pc,
            variant,
            cold,
            warm: 0,
            end: 0,
            pair,
            first_reference: 0,
            first_place: 0,
            places: 0,
            own: OfBlock::default(),
            replaces: 0,
            checks: [0; ARENAS],
        }
    }
}

/// Where a block goes on.
#[derive(Clone, Copy, Debug)]
pub enum Exit {
    /// To another block; then these jumps lead there.
    Link {
        /// Native address.
        target: u64,
        /// The two registers of the block that is left.
        pair: (Gpr, Gpr),
        /// Address of the distance of a jump taken with the two registers still ours; 0: there is none.
        warm: u64,
        /// The same, of a jump taken with all registers the program's.
        cold: u64,
    },
    /// To the block for the same code as it is now: the code has changed.
    Changed {
        /// The block's number.
        block: u32,
        /// As of a link.
        warm: u64,
        /// As of a link.
        cold: u64,
    },
    /// To native code.
    Native {
        /// Native address.
        target: u64,
        /// Why.
        end: End,
    },
}

/// Where a native instruction's copy lies.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Where the copy is executed.
    pub code: u64,
    /// The native instruction.
    pub pc: u64,
}

/// Memory for code.
#[derive(Clone, Copy, Debug)]
pub struct Arena {
    /// All of it.
    pub memory: CodeMemory,
    /// Where the next code goes.
    next: u64,
    /// How many epochs blocks have been given.
    epochs: usize,
    /// Of the room for code.
    populated: Populated,
}

impl Arena {
    /// The entry into the runtime.
    pub fn entry(&self) -> u64 {
        self.memory.execute
    }

    /// The table of indirect targets for blocks of a variant.
    pub fn targets(&self, variant: Variant) -> u64 {
        self.memory.execute + 4096 + variant as u64 * TARGET_BYTES as u64
    }

    /// A new block's epoch: where translated code reads it. None: there are no more.
    pub fn new_epoch(&mut self) -> Option<u64> {
        let number = self.epochs;
        (number < EPOCHS).then(|| {
            self.epochs += 1;
            self.memory.execute + (EPOCHS_OFFSET + number * size_of::<u64>()) as u64
        })
    }

    fn end(&self) -> u64 {
        self.memory.execute + self.memory.bytes as u64
    }

    /// Whether all of it is in reach of an address.
    fn is_near(&self, pc: u64) -> bool {
        is_near(pc, self.entry()) && is_near(pc, self.end())
    }

    /// An assembler for what is free.
    pub fn assembler(&mut self) -> Assembler<'static> {
        // Aligned: a block's first instructions then lie in one line.
        let start = self.next.next_multiple_of(16).min(self.end());
        let length = (self.end() - start) as usize;
        let code = self.memory.execute + CODE_OFFSET as u64;
        // The entry is there before the code begins.
        if let Some(used) = start.checked_sub(code)
            && let Some(new) = self
                .populated
                .reach(used as usize + length.min(MOST_BLOCK_BYTES), self.memory.bytes - CODE_OFFSET)
        {
            let address = code + new.start as u64;
            populate(self.memory.write_at(address), new.len(), true);
            populate(address as *const u8, new.len(), false);
        }
        // SAFETY: the rest of the arena's writable side: whoever holds the cache writes there, and nobody else knows it.
        let code = unsafe { core::slice::from_raw_parts_mut(self.memory.write_at(start), length) };
        Assembler::new(code, start)
    }

    /// What was assembled up to `end` stays, and may be executed.
    pub fn keep(&mut self, end: u64) {
        publish(self.memory.write_at(self.next), self.next, (end - self.next) as usize);
        self.next = end;
    }
}

/// All translations of a process.
#[derive(Debug)]
pub struct Cache {
    arenas: [Option<Arena>; ARENAS],
    blocks: Table<Block>,
    exits: Table<Exit>,
    /// The references of all blocks.
    pub references: Table<Reference>,
    /// The instructions of all blocks.
    pub places: Table<Place>,
    hashes: Hashes,
    offsets: Offsets,
}

// SAFETY: its pointers are to memory of its own.
unsafe impl Send for Cache {}

impl Cache {
    /// Empty. None: the kernel has no memory.
    pub fn new(offsets: Offsets) -> Option<Self> {
        let mut cache = Self {
            arenas: [None; ARENAS],
            blocks: Table::with_capacity(MOST_BLOCKS)?,
            exits: Table::with_capacity(MOST_EXITS)?,
            references: Table::with_capacity(MOST_REFERENCES)?,
            places: Table::with_capacity(MOST_PLACES)?,
            hashes: Hashes::new()?,
            offsets,
        };
        // Number 0 means none.
        cache.blocks.push(Block::new(0, Variant::Recording, 0, (0, 0)));
        cache.exits.push(Exit::Native { target: 0, end: End::Code });
        Some(cache)
    }

    /// Offsets of the thread areas' fields.
    pub fn offsets(&self) -> Offsets {
        self.offsets
    }

    /// The blocks, from number 1 on.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// An exit, by number.
    pub fn exit(&self, number: usize) -> Exit {
        self.exits[number]
    }

    /// Notes an exit; its number.
    pub fn add_exit(&mut self, exit: Exit) -> usize {
        self.exits.push(exit)
    }

    /// Whether another block fits.
    pub fn has_room(&self) -> bool {
        self.blocks.room() > 1
            && self.hashes.have_room(&self.blocks)
            && self.exits.room() > 64
            && self.references.room() > 256
            && self.places.room() > 256
    }

    /// How many exits, references and places there are, and back to that: what a translation that did not fit left.
    pub fn marks(&self) -> (usize, usize, usize) {
        (self.exits.len(), self.references.len(), self.places.len())
    }

    /// See [`Self::marks`].
    pub fn back_to(&mut self, (exits, references, places): (usize, usize, usize)) {
        self.exits.truncate(exits);
        self.references.truncate(references);
        self.places.truncate(places);
    }

    /// The number that the next block will have.
    pub fn next_block(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// The block that begins at a native address.
    pub fn find(&self, pc: u64, variant: Variant) -> Option<usize> {
        self.hashes.find(&self.blocks, pc, variant)
    }

    /// Takes a block in; its number. From now on it is found instead of an earlier one of the same address.
    pub fn add_block(&mut self, block: Block) -> usize {
        let number = self.blocks.push(block);
        self.blocks[number].replaces = self.hashes.add(&self.blocks, number);
        number
    }

    /// Takes the last block back, to which nothing leads yet.
    pub fn forget_last_block(&mut self) {
        let number = self.blocks.len() - 1;
        let block = self.blocks[number];
        self.hashes.replace(&self.blocks, number, block.replaces);
        self.blocks.truncate(number);
        self.references.truncate(block.first_reference as usize);
        self.places.truncate(block.first_place as usize);
    }

    /// Gives all memory back.
    ///
    /// # Safety
    /// No thread executes in it.
    pub unsafe fn discard(self) {
        // SAFETY: the caller's promise; the tables are this cache's.
        unsafe {
            for arena in self.arenas.iter().flatten() {
                arena.memory.unmap();
            }
            self.blocks.discard();
            self.exits.discard();
            self.references.discard();
            self.places.discard();
            self.hashes.discard();
        }
    }

    /// The arena, by number.
    pub fn arena(&mut self, number: usize) -> &mut Arena {
        self.arenas[number].as_mut().expect("numbers of arenas come from here")
    }

    /// The arena that translations of the code around `pc`, which begins at `module`, go to, and whether it is new.
    pub fn arena_for(&mut self, pc: u64, module: u64) -> Result<(usize, bool), End> {
        for (number, arena) in self.arenas.iter().enumerate() {
            if let Some(arena) = arena
                && arena.is_near(pc)
            {
                let has_room = arena.end() - arena.next > 2 * MOST_BLOCK_BYTES as u64;
                return if has_room { Ok((number, false)) } else { Err(End::Full) };
            }
        }
        let free = self.arenas.iter().position(Option::is_none).ok_or(End::Full)?;
        let memory = memory_for(module).ok_or(End::Code)?;
        let mut arena = Arena { memory, next: memory.execute, epochs: 0, populated: Populated::default() };
        let mut assembler = arena.assembler();
        let first = first_entry(self.offsets).ok_or(End::Full)?;
        write_way_to_entry(&mut assembler, self.offsets, first);
        assert!(
            !assembler.is_full() && assembler.here() <= arena.targets(Variant::Recording),
            "the entry has a page"
        );
        arena.keep(assembler.here());
        arena.next = memory.execute + CODE_OFFSET as u64;
        self.arenas[free] = Some(arena);
        Ok((free, true))
    }

    /// The arena that holds an address of translated code.
    pub fn arena_of(&self, code: u64) -> Option<usize> {
        self.arenas
            .iter()
            .position(|arena| arena.is_some_and(|arena| (arena.entry()..arena.end()).contains(&code)))
    }

    /// From now on indirect transfers from an arena to the block's address find it.
    pub fn add_target(&mut self, arena_number: usize, block_number: usize) {
        let block = self.blocks[block_number];
        let mut distance = block.checks[arena_number];
        if distance == 0 {
            let offsets = self.offsets;
            let arena = self.arena(arena_number);
            let mut assembler = arena.assembler();
            let start = assembler.here();
            write_check(&mut assembler, offsets, &block, arena.entry());
            if assembler.is_full() {
                return;
            }
            arena.keep(assembler.here());
            distance = (start - arena.entry()) as u32;
            self.blocks[block_number].checks[arena_number] = distance;
        }
        let arena = self.arena(arena_number);
        let index = target_hash(block.pc) % TARGETS;
        let place = arena.memory.write_at(arena.targets(block.variant) + 4 * index as u64).cast::<u32>();
        // SAFETY: aligned, inside the arena's table, shared with translated code, which reads it at once.
        unsafe { AtomicU32::from_ptr(place) }.store(distance, Ordering::Release);
    }

    /// From now on a jump leads to `target`, if that is in reach.
    pub fn link(&mut self, gap: u64, target: u64) {
        let Some(number) = self.arena_of(gap) else { return };
        let Some(word) = jump_word(gap, target) else { return };
        let place = self.arena(number).memory.write_at(gap).cast::<u32>();
        // SAFETY: a word of a jump that was written aligned: one store, which threads that execute the jump see whole, as
        // `jump_word` says.
        unsafe { AtomicU32::from_ptr(place) }.store(word, Ordering::Release);
        publish(place.cast(), gap, size_of::<u32>());
    }

    /// The native state behind an address of translated code: the block and the native instruction whose copy is
    /// executed there.
    pub fn native_of(&self, code: u64) -> Option<(&Block, u64)> {
        let block = self.blocks.iter().find(|block| (block.cold..block.end).contains(&code))?;
        let places = &self.places[block.first_place as usize..][..block.places as usize];
        let at = places.partition_point(|place| place.code <= code);
        Some((block, places.get(at.checked_sub(1)?)?.pc))
    }
}

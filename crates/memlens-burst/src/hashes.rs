//! Blocks by native address: a hash table of their numbers, with linear probing, which grows with them.

use crate::cache::{Block, Variant};
use crate::sys::{give_back, own_array};

/// At first: four pages.
const FIRST: usize = 1 << 12;

/// The newest block of each address and variant.
#[derive(Debug)]
pub struct Hashes {
    /// Numbers of blocks; 0: none.
    start: *mut u32,
    /// A power of two, at least twice the number of blocks if the kernel had memory.
    length: usize,
}

impl Hashes {
    /// Empty. None: the kernel has no memory.
    pub fn new() -> Option<Self> {
        Some(Self { start: own_array(FIRST)?, length: FIRST })
    }

    /// The number of the block of an address.
    pub fn find(&self, blocks: &[Block], pc: u64, variant: Variant) -> Option<usize> {
        let number = self.get(self.place(blocks, pc, variant));
        (number != 0).then_some(number as usize)
    }

    /// Whether another block fits, even if the kernel has no memory for a larger table.
    pub fn have_room(&self, blocks: &[Block]) -> bool {
        blocks.len() < self.length / 8 * 7
    }

    /// Takes in the last block, instead of an earlier one of the same address: that one's number, or 0.
    pub fn add(&mut self, blocks: &[Block], number: usize) -> u32 {
        if 2 * blocks.len() > self.length {
            self.grow(blocks);
        }
        self.replace(blocks, number, number as u32)
    }

    /// Another number for the address of a block; 0 only if that is the last that came in: then nothing lies behind it in its
    /// run. What stood there.
    pub fn replace(&mut self, blocks: &[Block], block: usize, number: u32) -> u32 {
        let Block { pc, variant, .. } = blocks[block];
        let at = self.place(blocks, pc, variant);
        let before = self.get(at);
        self.set(at, number);
        before
    }

    /// Gives the memory back.
    pub fn discard(self) {
        // SAFETY: its own array, which nobody can use any more.
        unsafe { give_back(self.start, self.length) };
    }

    /// Where the address stands or would stand.
    fn place(&self, blocks: &[Block], pc: u64, variant: Variant) -> usize {
        let hash = pc.wrapping_add(variant as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let mut at = hash as usize;
        loop {
            let number = self.get(at);
            let is_here = number == 0 || {
                let block = &blocks[number as usize];
                block.pc == pc && block.variant == variant
            };
            if is_here {
                return at;
            }
            at += 1;
        }
    }

    fn grow(&mut self, blocks: &[Block]) {
        // Without memory it serves on as it is, as long as it has room.
        let Some(start) = own_array(2 * self.length) else { return };
        let old = core::mem::replace(self, Self { start, length: 2 * self.length });
        for at in 0..old.length {
            let number = old.get(at);
            if number != 0 {
                self.replace(blocks, number as usize, number);
            }
        }
        old.discard();
    }

    fn get(&self, at: usize) -> u32 {
        // SAFETY: below the array's length; its memory is this table's.
        unsafe { self.start.add(at % self.length).read() }
    }

    fn set(&mut self, at: usize, number: u32) {
        // SAFETY: as above, and the table is borrowed for writing.
        unsafe { self.start.add(at % self.length).write(number) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn the_newest_block_of_an_address_is_found_however_many_there_are() {
        let mut hashes = Hashes::new().expect("memory");
        let mut blocks = vec![Block::new(0, Variant::Recording, 0, (0, 0))];
        let mut truth = HashMap::new();
        let mut state = 1u64;
        for _ in 0..40_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (pc, variant) =
                (state >> 49, if state >> 48 & 1 == 0 { Variant::Recording } else { Variant::Counting });
            let number = blocks.len();
            blocks.push(Block::new(pc, variant, 0, (0, 0)));
            assert!(hashes.have_room(&blocks));
            let before = hashes.add(&blocks, number);
            assert_eq!(before, truth.get(&(pc, variant as u8)).copied().unwrap_or(0) as u32);
            if state >> 40 & 3 == 0 {
                assert_eq!(hashes.replace(&blocks, number, before), number as u32);
                blocks.pop();
            } else {
                truth.insert((pc, variant as u8), number);
            }
        }
        assert!(truth.len() > 20_000 && hashes.length >= 2 * FIRST, "it has grown");
        for pc in 0..1 << 15 {
            for variant in [Variant::Recording, Variant::Counting] {
                let known = truth.get(&(pc, variant as u8)).copied();
                assert_eq!(hashes.find(&blocks, pc, variant), known);
            }
        }
        hashes.discard();
    }
}

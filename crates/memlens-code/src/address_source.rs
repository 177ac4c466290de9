//! Where the address of a memory operand in a loop comes from: computed, loaded by another operand, or loaded by
//! itself.
//!
//! What is asked of instructions is said here (`Effects`); `address_source/x86_64.rs` and `address_source/aarch64.rs` answer.

mod aarch64;
#[cfg(test)]
mod aarch64_tests;
#[cfg(test)]
mod tests;
mod x86_64;

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use crate::architecture::Architecture;
use crate::control_flow::ControlFlow;
use crate::instructions::{Place, Transfer};
use crate::loops::{Loops, NaturalLoop};

/// Loads that are told of one operand's address.
const MOST_LOADERS: usize = 4;
/// Steps back for one operand, over all ways.
const MOST_VISITS: usize = 4000;
/// Loads whose addresses are loaded, one behind the other.
const MOST_LOADS: usize = 8;

/// Where the address of a memory operand comes from, within the innermost loop around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSource {
    /// What is loaded there becomes, with constants added, the next address: a list, a tree.
    Chain,
    /// The value that the load at this address (svma) brings is an index or a pointer in it: `A[B[i]]`.
    LoadedBy(u64),
    /// From what the loop does not load: induction variables, invariant bases.
    Computed,
}

/// Where the iterations of a loop, and the times that it is come to, are to be counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopPlaces {
    /// The memory operands of the loop (svma), those of inner loops apart: what is met most is met once an iteration.
    pub inside: Vec<u64>,
    /// Memory operands (svma) that are met whenever the loop is come to, the nearest first. They may also be met where the loop then has
    /// nothing to do. Where the loop around it has none besides, those before that one: it only repeats this one.
    pub before: Vec<u64>,
    /// Where none of `before` is in the loop right around this one, the memory operands (svma) of that loop's own code: the one that is met most is met
    /// about as often as this one is come to, and those of `before` may be met once for all.
    pub beside: Vec<u64>,
    /// The function's returns (svma), if the loop is in no other: together they are met as often, if there is nothing in `before`.
    pub returns: Vec<u64>,
    /// Blocks from which the loop is left: a search has one where it has found something, and one where there is nothing more.
    pub exits: usize,
}

/// A function's loops, for questions about its operands. Cost: linear in the function, but for dominators.
#[derive(Debug)]
pub struct LoopCode {
    flow: ControlFlow<Place>,
    loops: Loops,
    /// By instruction.
    effects: Vec<Effects>,
    /// Registers that calls keep.
    kept_in_calls: Registers,
}

/// What an instruction does, as far as addresses go.
#[derive(Clone, Copy, Debug, Default)]
struct Effects {
    /// Registers read; of AArch64 those of address operands are not among them.
    reads: Registers,
    writes: Registers,
    /// Those of them that it makes of the registers of its address, whatever it loads: write-back.
    moves: Registers,
    /// Those of them that it loads from behind the first of two.
    second: Registers,
    /// How many bytes behind it.
    second_offset: u64,
    /// Base and index of what it loads from or stores to.
    address: Option<Registers>,
    /// The same by themselves, and what is added; of AArch64, where they were added by another instruction, those of that.
    base: Registers,
    index: Registers,
    displacement: u64,
    /// What it loads, if anything, are variables of the frame or of fixed addresses.
    is_frame: bool,
    is_call: bool,
    has_memory: bool,
}

/// Full general and vector registers, a bit each: of x86-64 general ones from 0 on and vector registers from 16, of AArch64 from 0 (31 is
/// sp) and from 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Registers(u64);

impl Registers {
    fn contains(self, bit: u32) -> bool {
        self.0 >> bit & 1 == 1
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The bits of its registers.
    fn bits(self) -> impl Iterator<Item = u32> {
        (0..u64::BITS).filter(move |&bit| self.contains(bit))
    }
}

impl LoopCode {
    /// The function whose pieces these are; see [`ControlFlow::new`].
    pub fn new(architecture: Architecture, parts: &[(u64, &[u8])]) -> Self {
        match architecture {
            Architecture::X86_64 => x86_64::loop_code(parts),
            Architecture::AArch64 => aarch64::loop_code(parts),
        }
    }

    /// Where the address of the memory operand of the instruction at `pc` comes from; None: it is in no loop, there is
    /// no such instruction, or its operand has no registers.
    pub fn address_source(&self, pc: u64) -> Option<AddressSource> {
        let (at, around, first) = self.operand(pc)?;
        let Some(loader) = self.loader(at, around, first) else { return Some(AddressSource::Computed) };
        // A chain is closed where a load's address comes from itself.
        let (mut load, mut seen) = (loader, FxHashSet::default());
        for _ in 0..MOST_LOADS {
            if load == at || !seen.insert(load) {
                return Some(AddressSource::Chain);
            }
            let Some(registers) = self.effects[load].address else { break };
            match self.loader(load, around, registers) {
                Some(next) => load = next,
                None => break,
            }
        }
        Some(AddressSource::LoadedBy(self.flow.instructions[loader].pc))
    }

    /// The loads in the loop that bring parts of the address of the memory operand of the instruction at `pc`, the nearest first: the one
    /// of [`AddressSource::LoadedBy`], and others beside it. A base that is loaded again in each iteration may be nearer than the index.
    pub fn loaders(&self, pc: u64) -> Vec<u64> {
        let Some((at, around, registers)) = self.operand(pc) else { return Vec::new() };
        let mut found: Vec<u64> = Vec::new();
        for (load, _) in self.nearest_loads(at, around, registers, MOST_LOADERS) {
            let place = self.flow.instructions[load].pc;
            // Two values of one load.
            if !found.contains(&place) {
                found.push(place);
            }
        }
        found
    }

    /// How many links of a node lead on, of an operand of an [`AddressSource::Chain`]: one of a list or of a hash table's bucket, two and
    /// more of a tree or of a skip list; 0 of others.
    pub fn links(&self, pc: u64) -> usize {
        self.operand(pc).map_or(0, |operand| self.way(operand).0)
    }

    /// How many links lead on from a node that an operand touches, and the loop in which the way along them goes on: that around the operand, or the
    /// next, where that one chooses the links that the inner one follows, as for the levels of a skip list.
    fn way(&self, (at, around, registers): (usize, usize, Registers)) -> (usize, usize) {
        // The registers that links come in: another one is the base of an array that the nodes are in.
        let is_linked = |&one: &u32| self.loader(at, around, Registers(1 << one)).is_some();
        let linked = registers.bits().filter(is_linked).fold(0, |all, one| all | 1 << one);
        let loads = self.nearest_loads(at, around, Registers(linked), MOST_LOADERS);
        // Of `child[side]` both change, the node and the side.
        let chooses = |looped: &usize| {
            let is_choice = |&(load, _): &(usize, u64)| {
                let Effects { base, index, .. } = self.effects[load];
                self.changes(around, base) && self.changes(*looped, index)
            };
            loads.iter().any(is_choice)
        };
        let offsets: FxHashSet<u64> = loads.iter().map(|&(_, offset)| offset).collect();
        let chooser = [Some(around), self.loops.loops[around].parent].into_iter().flatten().find(chooses);
        (offsets.len().max(if chooser.is_some() { 2 } else { 0 }), chooser.unwrap_or(around))
    }

    /// The address (svma) at which the innermost loop around the instruction at `pc` begins, or the next one, in which the way along links goes on that
    /// it follows; None: it is in none.
    pub fn loop_at(&self, pc: u64) -> Option<u64> {
        let around = match self.operand(pc) {
            Some(operand) => self.way(operand).1,
            None => self.loops.innermost[self.flow.block_of(self.flow.instruction_at(pc)?)]?,
        };
        Some(self.flow.blocks[self.loops.loops[around].header].start)
    }

    /// Of the loop that begins at `start` (svma).
    pub fn loop_places(&self, start: u64) -> Option<LoopPlaces> {
        let header = self.flow.block_of(self.flow.instruction_at(start)?);
        let around = self.loops.loops.iter().position(|one| one.header == header)?;
        let NaturalLoop { blocks, parent, .. } = &self.loops.loops[around];
        let innermost = |block: usize| self.loops.innermost[block];
        let place = |at: usize| self.flow.instructions[at].pc;
        let operands = |block: usize| {
            let has_memory = |at: &usize| self.effects[*at].has_memory;
            self.flow.blocks[block].instructions.clone().filter(has_memory).map(place)
        };
        let own = blocks.iter().copied().filter(|&block| innermost(block) == Some(around));
        // Loops around this one; another loop that comes before is gone through more often than once.
        let is_around = |mut one: Option<usize>, inner: Option<usize>| loop {
            match one {
                _ if one == inner => return true,
                Some(outer) => one = self.loops.loops[outer].parent,
                None => return false,
            }
        };
        let around_it = parent.map(|parent| self.loops.loops[parent].header);
        let (mut before, mut block) = (Vec::new(), header);
        let mut is_near = false;
        // A loop around it that touches nothing else only repeats it: then what comes before that one is asked.
        while (before.is_empty() || Some(block) != around_it)
            && let Some(dominator) = self.loops.dominators[block].filter(|&dominator| dominator != block)
        {
            block = dominator;
            if is_around(*parent, innermost(block)) {
                before.extend(operands(block).rev());
                is_near |= !before.is_empty() && innermost(block) == *parent;
            }
        }
        // What comes before an outer loop that does more than repeat this one says nothing of how often this one is come to.
        let others = parent.filter(|_| !is_near).map(|outer| (outer, &self.loops.loops[outer].blocks));
        let beside = others.map_or_else(Vec::new, |(outer, blocks)| {
            blocks
                .iter()
                .filter(|&&block| innermost(block) == Some(outer))
                .flat_map(|&block| operands(block))
                .collect()
        });
        let is_inside = |block: &usize| blocks.binary_search(block).is_ok();
        let leaves = |&block: &usize| self.flow.blocks[block].successors.iter().any(|next| !is_inside(next));
        let exits = blocks.iter().filter(|block| leaves(block)).count();
        let is_return = |at: &usize| self.flow.instructions[*at].transfer == Transfer::Return;
        let returns = match parent {
            None => (0..self.flow.instructions.len()).filter(is_return).map(place).collect(),
            Some(_) => Vec::new(),
        };
        Some(LoopPlaces { inside: own.flat_map(operands).collect(), before, beside, returns, exits })
    }

    /// Whether a loop gives one of these registers other values.
    fn changes(&self, around: usize, registers: Registers) -> bool {
        let blocks = self.loops.loops[around].blocks.iter();
        let mut all = blocks.flat_map(|&block| self.flow.blocks[block].instructions.clone());
        !registers.is_empty() && all.any(|it| self.effects[it].writes.intersects(registers))
    }

    /// An instruction in a loop, the loop, and the registers of its address.
    fn operand(&self, pc: u64) -> Option<(usize, usize, Registers)> {
        let at = self.flow.instruction_at(pc)?;
        let around = self.loops.innermost[self.flow.block_of(at)]?;
        let registers = self.effects[at].address.filter(|registers| !registers.is_empty())?;
        Some((at, around, registers))
    }

    /// The nearest load in the loop whose value reaches one of `registers` before instruction `at`.
    fn loader(&self, at: usize, around: usize, registers: Registers) -> Option<usize> {
        self.nearest_loads(at, around, registers, 1).pop().map(|(load, _)| load)
    }

    /// Loads in the loop whose values reach some of `registers` before instruction `at`, each with the offset that the value has in what
    /// its address leads to. Loads from the frame and from fixed addresses are variables that were spilled: none.
    fn nearest_loads(
        &self,
        at: usize,
        around: usize,
        registers: Registers,
        most: usize,
    ) -> Vec<(usize, u64)> {
        let mut found = Vec::new();
        let mut queue: VecDeque<(usize, u32)> = registers.bits().map(|one| (at, one)).collect();
        let mut seen: FxHashSet<(usize, u32)> = FxHashSet::default();
        let mut visits = 0;
        while let Some((at, register)) = queue.pop_front() {
            if !seen.insert((at, register)) {
                continue;
            }
            visits += 1;
            if visits > MOST_VISITS {
                break;
            }
            for before in self.before(at, around) {
                let effects = &self.effects[before];
                if effects.is_call {
                    // What a call loads is where it goes, not a register: not the stack pointer, which it moves.
                    queue.extend(self.kept_in_calls.contains(register).then_some((before, register)));
                    continue;
                }
                if !effects.writes.contains(register) {
                    queue.push_back((before, register));
                    continue;
                }
                match effects.address {
                    Some(address) if effects.moves.contains(register) => {
                        queue.extend(address.bits().map(|one| (before, one)));
                    }
                    Some(address) if !effects.is_frame && !address.is_empty() => {
                        let load = (before, effects.offset_of(register));
                        if !found.contains(&load) {
                            found.push(load);
                        }
                        if found.len() == most {
                            return found;
                        }
                    }
                    _ => queue.extend(effects.reads.bits().map(|one| (before, one))),
                }
            }
        }
        found
    }

    /// The instructions of the loop that may come just before one.
    fn before(&self, at: usize, around: usize) -> Vec<usize> {
        let block = self.flow.block_of(at);
        let known = &self.flow.blocks[block];
        if at > known.instructions.start {
            return vec![at - 1];
        }
        let members = &self.loops.loops[around].blocks;
        let inside = known.predecessors.iter().filter(|block| members.binary_search(block).is_ok());
        inside.filter_map(|&block| self.flow.blocks[block].instructions.end.checked_sub(1)).collect()
    }
}

impl Effects {
    /// What is added to base and index to get to the value that a register is loaded with.
    fn offset_of(&self, register: u32) -> u64 {
        let second = if self.second.contains(register) { self.second_offset } else { 0 };
        self.displacement.wrapping_add(second)
    }
}

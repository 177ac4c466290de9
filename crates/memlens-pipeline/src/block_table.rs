//! What is known of the code that runs: blocks, and the memory operands in them.

use crate::fetches::{FetchRule, Run};
use memlens_events::{BlockDefinition, BlockFlags, Word, WordRole};
use memlens_types::{AccessAttr, AccessKind};
use std::ops::Range;
use std::sync::Arc;

/// A block, as the records' loop needs it.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockInfo {
    /// Number of the first of its references.
    pub first_reference: u32,
    /// References (recorded memory operands).
    pub references: u16,
    /// Instructions.
    pub instructions: u16,
    /// What the block needs beyond counting its accesses.
    pub flags: BlockFlags,
    /// Which word of a call or return holds the slot's address.
    pub slot_word: u8,
    /// What the block's beginning means for collection.
    pub switch: Switch,
    /// What the hot loop must know of it.
    pub ending: Ending,
    /// Which allocation function begins here.
    pub alloc_function: u16,
    /// First address.
    pub pc: u64,
    /// One past the last byte: where a call returns to.
    pub end_pc: u64,
    /// `end_pc` as a frame key.
    pub return_key: u64,
}

/// What the hot loop must know of a block besides its accesses; the less, the smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Ending {
    /// Nothing.
    Falls,
    /// It ends with a call.
    Calls,
    /// It ends with a return.
    Returns,
    /// It ends with a return whose value is the record's last word: of interest while an allocation is under
    /// way.
    ReturnsValue,
    /// More than that, or it was never defined.
    #[default]
    Other,
}

impl Ending {
    fn of(definition: &BlockDefinition, switch: Switch) -> Self {
        let (call, ret, value) = (BlockFlags::CALL.0, BlockFlags::RETURN.0, BlockFlags::RETURNS_VALUE.0);
        let flags = definition.flags.0 & !BlockFlags::INCOMPLETE.0;
        match flags {
            _ if switch != Switch::None => Self::Other,
            0 => Self::Falls,
            _ if flags == call => Self::Calls,
            _ if flags == ret => Self::Returns,
            _ if flags == ret | value => Self::ReturnsValue,
            _ => Self::Other,
        }
    }
}

/// Whether entering a block changes collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switch {
    /// No.
    #[default]
    None,
    /// Begins collection.
    Start,
    /// Ends collection.
    Stop,
    /// Begins it if it is off, and the other way round.
    Toggle,
}

/// A memory operand of the code, or the fetch of a run of its instructions.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    /// Address of the instruction.
    pub pc: u64,
    /// The module that was mapped there when the block was defined, as in frame keys; 0: none.
    pub module: u16,
    /// Its block.
    pub block: u32,
    /// Which of the instruction's operands it is, from 0.
    pub operand: u8,
    /// Which of its block's instructions it is, from 0.
    pub instruction: u8,
    /// Kind and size of the access; string instructions: of one element.
    pub attr: AccessAttr,
}

/// What stands for an operand in all blocks that have its instruction: module, address, which operand.
pub type OperandKey = (u16, u64, u8);

impl Reference {
    /// What this reference has in common with those of other blocks to the same operand.
    pub fn operand_key(&self) -> OperandKey {
        (self.module, self.pc, self.operand)
    }
}

/// All blocks and references.
#[derive(Clone, Debug, Default)]
pub struct BlockTable {
    blocks: Vec<BlockInfo>,
    references: Vec<Reference>,
    /// How fetches are modelled, if they are.
    fetch_rule: Option<FetchRule>,
    runs: Vec<Run>,
    /// Numbers of a block's runs, by block id.
    runs_of: Vec<Range<u32>>,
    /// Words of irregular blocks, by block id.
    irregular: rustc_hash::FxHashMap<u32, Arc<[Word]>>,
}

impl BlockTable {
    /// An empty one; with a rule, fetches of the blocks are modelled.
    pub fn new(fetch_rule: Option<FetchRule>) -> Self {
        Self { fetch_rule, ..Self::default() }
    }

    /// How fetches are modelled, if they are.
    #[inline(always)]
    pub fn fetch_rule(&self) -> Option<FetchRule> {
        self.fetch_rule
    }

    /// How many ids there are.
    pub fn count(&self) -> usize {
        self.blocks.len()
    }

    /// All runs of instructions; none if fetches are not modelled.
    #[inline(always)]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Numbers of a block's runs.
    #[inline(always)]
    pub fn runs_of(&self, id: u32) -> Range<u32> {
        self.runs_of.get(id as usize).cloned().unwrap_or_default()
    }

    /// The reference that stands for the fetches of a block's run.
    pub fn reference_of_run(&self, id: u32, run: u32) -> u32 {
        // Behind those of its operands.
        self.references_of(id).end + (run - self.runs_of(id).start)
    }

    /// The block with this id; a default one (no references) if it was never defined.
    #[inline(always)]
    pub fn block(&self, id: u32) -> BlockInfo {
        self.blocks.get(id as usize).copied().unwrap_or_default()
    }

    /// Numbers of the references of a block's operands.
    pub fn references_of(&self, id: u32) -> Range<u32> {
        let block = self.block(id);
        block.first_reference..block.first_reference + u32::from(block.references)
    }

    /// All references.
    pub fn references(&self) -> &[Reference] {
        &self.references
    }

    /// Kind and size of a reference's accesses.
    pub fn attr_of(&self, reference: u32) -> (AccessKind, u32) {
        let attr = self.references[reference as usize].attr;
        (attr.kind(), attr.size_bytes())
    }

    /// The words of an irregular block.
    pub fn words(&self, id: u32) -> Arc<[Word]> {
        self.irregular.get(&id).cloned().unwrap_or_else(|| Arc::from([]))
    }

    /// Adds a block of the code of a module; 0: of code outside modules.
    pub fn define(&mut self, definition: &BlockDefinition, module: u16, return_key: u64, switch: Switch) {
        let id = definition.id as usize;
        if self.blocks.len() <= id {
            self.blocks.resize(id + 1, BlockInfo::default());
        }
        let first = self.references.len();
        let mut last_pc = u64::MAX;
        let mut operand = 0;
        for word in &definition.words {
            if !matches!(word.role, WordRole::Address | WordRole::RepStart) {
                continue;
            }
            let pc = definition.pc + u64::from(word.pc_offset);
            operand = if pc == last_pc { operand + 1 } else { 0 };
            last_pc = pc;
            let (block, instruction) = (definition.id, word.instruction);
            self.references.push(Reference { pc, module, block, operand, instruction, attr: word.attr });
        }
        let references = (self.references.len() - first) as u16;
        self.define_runs(definition, module);
        if definition.flags.contains(BlockFlags::IRREGULAR) {
            self.irregular.insert(definition.id, definition.words.clone().into());
        }
        let end_pc = definition.pc + u64::from(definition.code_bytes);
        self.blocks[id] = BlockInfo {
            first_reference: first as u32,
            references,
            instructions: definition.instructions,
            flags: definition.flags,
            slot_word: definition.slot_word,
            switch,
            ending: Ending::of(definition, switch),
            alloc_function: definition.alloc_function,
            pc: definition.pc,
            end_pc,
            return_key,
        };
    }

    fn define_runs(&mut self, definition: &BlockDefinition, module: u16) {
        let Some(rule) = self.fetch_rule else { return };
        let (id, first) = (definition.id as usize, self.runs.len() as u32);
        for run in rule.runs(definition.pc, &definition.lengths) {
            self.references.push(Reference {
                pc: run.addr,
                module,
                block: definition.id,
                operand: 0,
                instruction: run.position.min(0xff) as u8,
                attr: AccessAttr::new(AccessKind::Fetch, run.bytes.into()),
            });
            self.runs.push(run);
        }
        if self.runs_of.len() <= id {
            self.runs_of.resize(id + 1, 0..0);
        }
        self.runs_of[id] = first..self.runs.len() as u32;
    }
}

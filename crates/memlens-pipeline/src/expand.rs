//! Records as plain accesses, for whoever has a memory of its own to model.

use crate::mask::active_bytes;
use memlens_events::{BlockDefinition, BlockFlags, Word, WordRole};
use memlens_types::AccessAttr;

/// Knows the blocks of a process and makes accesses of their records: what the pipeline counts, in the same
/// order, without objects.
#[derive(Clone, Debug, Default)]
pub struct AccessExpander {
    blocks: Vec<Option<BlockDefinition>>,
}

impl AccessExpander {
    /// A block that records will name.
    pub fn define(&mut self, block: &BlockDefinition) {
        let index = block.id as usize;
        if self.blocks.len() <= index {
            self.blocks.resize((index + 1).next_power_of_two(), None);
        }
        self.blocks[index] = Some(block.clone());
    }

    /// The block with this id.
    pub fn block(&self, id: u32) -> Option<&BlockDefinition> {
        self.blocks.get(id as usize)?.as_ref()
    }

    /// All accesses of a record of a block, by its instructions before the address `end_pc`. Accesses of a
    /// string instruction to one line come as one, as long as its operands advance together.
    pub fn accesses(
        block: &BlockDefinition,
        words: &[u64],
        end_pc: u64,
        line_bytes: u64,
        mut access: impl FnMut(u64, AccessAttr),
    ) {
        if !block.flags.contains(BlockFlags::IRREGULAR) && end_pc == u64::MAX {
            for (word, &addr) in block.words.iter().zip(words) {
                if word.role == WordRole::Address {
                    access(addr, word.attr);
                }
            }
            return;
        }
        let is_before = |word: &&Word| block.pc + u64::from(word.pc_offset) < end_pc;
        let count = block.words.iter().take_while(is_before).count().min(words.len());
        let roles = &block.words[..count];
        let mut repeated: Vec<(AccessAttr, u64)> = Vec::new();
        for (index, (word, &value)) in roles.iter().zip(words).enumerate() {
            match word.role {
                WordRole::Address => {
                    let mask = roles.get(index + 1).filter(|next| next.role == WordRole::Mask);
                    match mask {
                        None => access(value, word.attr),
                        Some(mask) => {
                            let active = active_bytes(word.attr, mask.attr.size_bytes(), words[index + 1]);
                            // The caches see the whole operand, as in the pipeline, if any lane is active.
                            if active.is_some() {
                                access(value, word.attr);
                            }
                        }
                    }
                }
                WordRole::RepStart => repeated.push((word.attr, value)),
                WordRole::RepEnd => {
                    repeat(&repeated, value, line_bytes.max(1), &mut access);
                    repeated.clear();
                }
                WordRole::Mask | WordRole::Argument | WordRole::ReturnValue => {}
            }
        }
    }
}

/// A string instruction: as many elements at a time as fit the line of its first operand.
fn repeat(
    operands: &[(AccessAttr, u64)],
    end: u64,
    line_bytes: u64,
    access: &mut impl FnMut(u64, AccessAttr),
) {
    let Some(&(last_attr, last_start)) = operands.last() else { return };
    let element = u64::from(last_attr.size_bytes().max(1));
    let distance = end.wrapping_sub(last_start) as i64;
    let elements = distance.unsigned_abs() / element;
    let at = |start: u64, index: u64| start.wrapping_add_signed((index * element) as i64 * distance.signum());
    let mut done = 0;
    while done < elements {
        let first = at(operands[0].1, done);
        let in_line = match distance > 0 {
            true => (line_bytes - first % line_bytes).div_ceil(element),
            false => (first % line_bytes) / element + 1,
        };
        let now = in_line.clamp(1, elements - done);
        for &(attr, start) in operands {
            let low = at(start, done).min(at(start, done + now - 1));
            access(low, AccessAttr::new(attr.kind(), (now * element) as u32));
        }
        done += now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_types::AccessKind;

    fn block(words: Vec<Word>, flags: BlockFlags) -> BlockDefinition {
        BlockDefinition {
            id: 1,
            pc: 0x100,
            code_bytes: 40,
            instructions: 5,
            flags,
            slot_word: 0,
            alloc_function: 0,
            words,
            module: 0,
            lengths: Vec::new(),
        }
    }

    fn word(role: WordRole, kind: AccessKind, size: u32, pc_offset: u16) -> Word {
        Word { role, pc_offset, instruction: 0, attr: AccessAttr::new(kind, size) }
    }

    fn expanded(block: &BlockDefinition, words: &[u64], end_pc: u64) -> Vec<(u64, AccessKind, u32)> {
        let mut all = Vec::new();
        AccessExpander::accesses(block, words, end_pc, 64, |addr, attr| {
            all.push((addr, attr.kind(), attr.size_bytes()));
        });
        all
    }

    #[test]
    fn plain_blocks_are_their_words_up_to_a_fault() {
        let words = vec![
            word(WordRole::Address, AccessKind::Load, 4, 0),
            word(WordRole::Address, AccessKind::Store, 8, 6),
        ];
        let block = block(words, BlockFlags::default());
        let both = [(0x1000, AccessKind::Load, 4), (0x2000, AccessKind::Store, 8)];
        assert_eq!(expanded(&block, &[0x1000, 0x2000], u64::MAX), both);
        assert_eq!(expanded(&block, &[0x1000, 0x2000], 0x106), both[..1]);
    }

    #[test]
    fn a_string_instruction_goes_line_by_line() {
        let words = vec![
            word(WordRole::RepStart, AccessKind::Load, 8, 0),
            word(WordRole::RepStart, AccessKind::Store, 8, 0),
            word(WordRole::RepEnd, AccessKind::Store, 8, 0),
        ];
        let block = block(words, BlockFlags::IRREGULAR);
        // 10 elements of 8 bytes from 0x1030 (2 in its line, then 8) to 0x8000.
        assert_eq!(
            expanded(&block, &[0x1030, 0x8000, 0x8050], u64::MAX),
            [
                (0x1030, AccessKind::Load, 16),
                (0x8000, AccessKind::Store, 16),
                (0x1040, AccessKind::Load, 64),
                (0x8010, AccessKind::Store, 64),
            ]
        );
    }

    #[test]
    fn a_mask_without_an_active_lane_is_no_access() {
        let words = vec![
            word(WordRole::Address, AccessKind::Load, 32, 0),
            word(WordRole::Mask, AccessKind::Load, 4, 0),
        ];
        let block = block(words, BlockFlags::IRREGULAR);
        assert_eq!(expanded(&block, &[0x1000, 0], u64::MAX), []);
        assert_eq!(expanded(&block, &[0x1000, 4], u64::MAX), [(0x1000, AccessKind::Load, 32)]);
    }
}

//! Blocks of translated code, and what their words say: see [`memlens_events::burst`].

use memlens_events::burst::{Reference, Source, Use, block_of};
use memlens_types::AccessKind;
use rustc_hash::FxHashMap;

use super::calls::Accessor;
use super::places::Memo;

/// A reference of a block, with what is known of it.
#[derive(Clone, Debug)]
pub struct Known {
    /// What the agent said.
    pub reference: Reference,
    /// Load, store or both.
    pub kind: AccessKind,
    /// The number of its instruction and operand, once asked for.
    pub instruction: Option<u32>,
    /// Where that is, once asked for.
    pub accessor: Option<Accessor>,
    /// Whether it is the agent's own code, once asked for.
    pub is_agents: Option<bool>,
    /// Whose its last address was.
    pub memo: Memo,
    /// Whether the word behind its instruction's addresses counts elements.
    is_repeated: bool,
}

/// A block.
#[derive(Clone, Debug, Default)]
struct Block {
    references: Vec<Known>,
    ends_indirectly: bool,
}

/// What [`Blocks::decode`] went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Executions of blocks …
    pub blocks: u64,
    /// … and of those that got to their end, as far as their addresses tell, where that is a return or an indirect jump or call.
    pub indirect: u64,
    /// Whether all blocks were known.
    pub is_whole: bool,
}

/// The blocks of all processes.
#[derive(Debug, Default)]
pub struct Blocks(FxHashMap<(u32, u64), Vec<Block>>);

impl Blocks {
    /// A process has none any more.
    pub fn forget(&mut self, pid: u32) {
        self.0.retain(|&(process, _), _| process != pid);
    }

    /// A block has been made.
    pub fn add(
        &mut self,
        numbering: (u32, u64),
        number: u32,
        ends_indirectly: bool,
        references: Vec<Reference>,
    ) {
        /// As many as the agent makes before it begins anew.
        const MOST: usize = 1 << 18;
        let list = self.0.entry(numbering).or_default();
        let index = number as usize;
        if index >= MOST {
            return;
        }
        if list.len() <= index {
            list.resize_with(index + 1, Block::default);
        }
        let repeated: Vec<u64> = references
            .iter()
            .filter(|reference| reference.used == Use::Count)
            .map(|reference| reference.pc)
            .collect();
        let references = references
            .into_iter()
            .map(|reference| Known {
                reference,
                kind: match reference.used {
                    Use::Write => AccessKind::Store,
                    Use::Both => AccessKind::Modify,
                    Use::Prefetch => AccessKind::Prefetch,
                    Use::Read | Use::Count => AccessKind::Load,
                },
                instruction: None,
                accessor: None,
                is_agents: None,
                memo: Memo::default(),
                is_repeated: repeated.contains(&reference.pc),
            })
            .collect();
        list[index] = Block { references, ends_indirectly };
    }

    /// Hands each access of a burst to `each`, in program order: what is known of its reference, its address (None:
    /// not known), and how many elements follow each other there.
    pub fn decode(
        &mut self,
        numbering: (u32, u64),
        words: &[u64],
        thread_pointer: u64,
        mut each: impl FnMut(&mut Known, Option<u64>, u64),
    ) -> Decoded {
        let Some(blocks) = self.0.get_mut(&numbering) else {
            return Decoded { is_whole: words.is_empty(), ..Decoded::default() };
        };
        let mut decoded = Decoded { is_whole: true, ..Decoded::default() };
        let mut at = 0;
        while at < words.len() {
            let Some(block) = block_of(words[at]) else {
                // Words without a block: damage.
                decoded.is_whole = false;
                at += 1;
                continue;
            };
            at += 1;
            let length = words[at..].iter().take_while(|&&word| block_of(word).is_none()).count();
            let stored = &words[at..at + length];
            at += length;
            decoded.blocks += 1;
            let Some(block) = blocks.get_mut(block as usize) else {
                decoded.is_whole &= stored.is_empty();
                continue;
            };
            decoded.is_whole &= stored.is_empty() || !block.references.is_empty();
            let is_complete = execution(&mut block.references, stored, thread_pointer, &mut each);
            decoded.indirect += u64::from(is_complete && block.ends_indirectly);
        }
        decoded
    }
}

/// One execution of a block, as far as it got; whether it got to its last access.
fn execution(
    block: &mut [Known],
    stored: &[u64],
    thread_pointer: u64,
    each: &mut impl FnMut(&mut Known, Option<u64>, u64),
) -> bool {
    let mut taken = 0;
    for at in 0..block.len() {
        let known = &mut block[at];
        let address = match known.reference.source {
            Source::Word => {
                let Some(&word) = stored.get(taken) else { return false };
                taken += 1;
                Some(word)
            }
            Source::Near { word, distance } => {
                stored.get(usize::from(word)).map(|address| address.wrapping_add_signed(distance))
            }
            Source::Fixed(address) => Some(address),
            Source::Thread(distance) => Some(thread_pointer.wrapping_add_signed(distance)),
            Source::Unknown => None,
        };
        if known.reference.used == Use::Count {
            continue;
        }
        let elements = match known.is_repeated {
            true => elements(block, at, &stored[taken..]),
            false => 1,
        };
        if elements > 0 {
            each(&mut block[at], address, elements);
        }
    }
    true
}

/// How many elements a repeated instruction has: the word behind those of its other references.
fn elements(block: &[Known], at: usize, rest: &[u64]) -> u64 {
    let others = block[at + 1..].iter().take_while(|known| known.reference.used != Use::Count).count();
    rest.get(others).copied().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlens_events::burst::block_word;

    fn reference(pc: u64, used: Use, source: Source) -> Reference {
        Reference { pc, operand: 0, used, size_bytes: 8, source }
    }

    fn decoded(blocks: &mut Blocks, words: &[u64]) -> (Vec<(u64, u64, u64)>, bool) {
        let mut list = Vec::new();
        let decoded = blocks.decode((1, 2), words, 0x7000, |known, address, elements| {
            list.push((known.reference.pc, address.unwrap_or(0), elements));
        });
        (list, decoded.is_whole)
    }

    #[test]
    fn addresses_come_from_words_and_from_what_follows_of_them() {
        let mut blocks = Blocks::default();
        let references = vec![
            reference(10, Use::Read, Source::Word),
            reference(11, Use::Write, Source::Near { word: 0, distance: -8 }),
            reference(12, Use::Read, Source::Fixed(0x55)),
            // Behind a side exit.
            reference(13, Use::Read, Source::Word),
            reference(14, Use::Read, Source::Thread(16)),
        ];
        blocks.add((1, 2), 5, false, references);
        let words = [block_word(5), 0x1000, 0x2000, block_word(5), 0x3000];
        let (list, is_whole) = decoded(&mut blocks, &words);
        assert!(is_whole);
        let expected = [
            (10, 0x1000, 1),
            (11, 0xff8, 1),
            (12, 0x55, 1),
            (13, 0x2000, 1),
            (14, 0x7010, 1),
            (10, 0x3000, 1),
            (11, 0x2ff8, 1),
            (12, 0x55, 1),
        ];
        assert_eq!(list, expected);
    }

    #[test]
    fn repeated_instructions_say_how_often() {
        let mut blocks = Blocks::default();
        let references = vec![
            reference(10, Use::Write, Source::Word),
            reference(10, Use::Read, Source::Word),
            reference(10, Use::Count, Source::Word),
        ];
        blocks.add((1, 2), 5, false, references);
        let (list, _) =
            decoded(&mut blocks, &[block_word(5), 0x1000, 0x2000, 7, block_word(5), 0x1000, 0x2000, 0]);
        assert_eq!(list, [(10, 0x1000, 7), (10, 0x2000, 7)], "none are none");
    }

    #[test]
    fn executions_are_counted_and_those_that_end_indirectly() {
        let mut blocks = Blocks::default();
        blocks.add((1, 2), 5, true, vec![reference(10, Use::Read, Source::Word)]);
        blocks.add((1, 2), 6, false, Vec::new());
        blocks.add((1, 2), 7, true, Vec::new());
        // A way out of block 5 was taken before its return: no address was stored.
        let words = [block_word(5), 0x1000, block_word(6), block_word(6), block_word(7), block_word(5)];
        let decoded = blocks.decode((1, 2), &words, 0x7000, |_, _, _| {});
        assert_eq!(decoded, Decoded { blocks: 5, indirect: 2, is_whole: true });
    }

    #[test]
    fn blocks_that_were_not_reported_are_noticed() {
        let mut blocks = Blocks::default();
        blocks.add((1, 2), 5, false, vec![reference(10, Use::Read, Source::Word)]);
        assert!(!decoded(&mut blocks, &[block_word(6), 0x1000]).1);
        assert!(!decoded(&mut blocks, &[0x1000]).1);
    }
}

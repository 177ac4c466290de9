//! Blocks of translated code, and what their words say: see [`memlens_events::burst`].

use std::cmp::Reverse;

use memlens_events::agent::BlockHead;
use memlens_events::burst::{Reference, Source, Use, block_of, without_tag};
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
    /// Whose its last address was.
    pub memo: Memo,
    /// Whether the word behind its instruction's addresses counts elements.
    is_repeated: bool,
    /// Which element of a gather or scatter it is.
    element: Option<u8>,
}

/// What is known of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It was recorded.
    Recorded {
        /// Its address.
        address: u64,
        /// How many elements follow each other there.
        elements: u64,
    },
    /// Its address is not known.
    Unknown,
    /// It was left out of the record …
    LeftOut,
    /// … and it is not known whether it happened.
    PerhapsLeftOut,
}

/// What a burst did, in program order.
#[derive(Debug)]
pub enum Event<'a> {
    /// A block began, with the instruction at this address. Where that is, once asked for.
    Block(u64, &'a mut Option<Accessor>),
    /// An access: what is known of its reference, and of it.
    Access(&'a mut Known, Access),
}

/// A block.
#[derive(Clone, Debug, Default)]
struct Block {
    references: Vec<Known>,
    ends_indirectly: bool,
    /// Whether references were left out, so that ways out are told.
    is_filtered: bool,
    /// Native address of its first instruction.
    pc: u64,
    /// Where that is, once asked for.
    accessor: Option<Accessor>,
    /// The last burst that executed it, by [`Blocks::bursts`].
    burst: u64,
    /// How often that did.
    executions: u32,
}

/// What [`Blocks::decode`] went through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Executions of blocks …
    pub blocks: u64,
    /// … and of those that got to their end, as far as their addresses tell, where that is a return or an indirect jump or call.
    pub indirect: u64,
    /// Accesses of locked instructions.
    pub locked: u64,
    /// Whether all blocks were known.
    pub is_whole: bool,
    /// Where its code is: instructions with references, and first instructions of blocks, by rising address, and how often their
    /// blocks were executed.
    pub code: Vec<(u64, u32)>,
}

/// The blocks of all processes.
#[derive(Debug, Default)]
pub struct Blocks {
    of_numberings: FxHashMap<(u32, u64), Vec<Block>>,
    /// Bursts that were decoded.
    bursts: u64,
}

impl Blocks {
    /// A process has none any more.
    pub fn forget(&mut self, pid: u32) {
        self.of_numberings.retain(|&(process, _), _| process != pid);
    }

    /// A block has been made.
    pub fn add(&mut self, pid: u32, head: &BlockHead, references: Vec<Reference>) {
        /// As many as the agent makes before it begins anew.
        const MOST: usize = 1 << 18;
        let list = self.of_numberings.entry((pid, head.generation)).or_default();
        let index = head.number as usize;
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
        // The instruction that began with a mask, and how many of its elements there were.
        let mut masked = (0, 0);
        let references: Vec<Known> = references
            .into_iter()
            .map(|reference| Known {
                reference,
                kind: match reference.used {
                    Use::Write => AccessKind::Store,
                    Use::Both | Use::Locked => AccessKind::Modify,
                    Use::Prefetch => AccessKind::Prefetch,
                    Use::Read | Use::Count | Use::WayOut | Use::Mask => AccessKind::Load,
                },
                instruction: None,
                accessor: None,
                memo: Memo::default(),
                is_repeated: repeated.contains(&reference.pc),
                element: element(&reference, &mut masked),
            })
            .collect();
        let is_filtered =
            |known: &Known| known.reference.used == Use::WayOut || known.reference.source == Source::LeftOut;
        list[index] = Block {
            ends_indirectly: head.ends_indirectly,
            is_filtered: references.iter().any(is_filtered),
            pc: head.pc,
            accessor: None,
            burst: 0,
            executions: 0,
            references,
        };
    }

    /// Hands each block and access of a burst to `each`, in program order, also those accesses that were left out.
    pub fn decode(
        &mut self,
        numbering: (u32, u64),
        words: &[u64],
        thread_pointer: u64,
        mut each: impl FnMut(Event<'_>),
    ) -> Decoded {
        self.bursts += 1;
        let Some(blocks) = self.of_numberings.get_mut(&numbering) else {
            return Decoded { is_whole: words.is_empty(), ..Decoded::default() };
        };
        let mut decoded = Decoded { is_whole: true, ..Decoded::default() };
        let mut executed = Vec::new();
        let mut at = 0;
        while at < words.len() {
            let Some(number) = block_of(words[at]) else {
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
            let next = match blocks.get(number as usize) {
                Some(block) if block.is_filtered => {
                    words.get(at).and_then(|&word| blocks.get(block_of(word)? as usize)).map(|next| next.pc)
                }
                _ => None,
            };
            let Some(block) = blocks.get_mut(number as usize) else {
                decoded.is_whole &= stored.is_empty();
                continue;
            };
            if block.burst != self.bursts {
                (block.burst, block.executions) = (self.bursts, 0);
                executed.push(number as usize);
            }
            block.executions += 1;
            decoded.is_whole &= stored.is_empty() || !block.references.is_empty();
            each(Event::Block(block.pc, &mut block.accessor));
            let mut accesses = |known: &mut Known, access| {
                decoded.locked += u64::from(known.reference.used == Use::Locked);
                each(Event::Access(known, access));
            };
            let is_complete = execution(block, stored, (thread_pointer, next), &mut accesses);
            decoded.indirect += u64::from(is_complete && block.ends_indirectly);
        }
        for block in executed.iter().filter_map(|&number: &usize| blocks.get(number)) {
            let addresses = block.references.iter().map(|known| known.reference.pc);
            decoded.code.extend(addresses.chain([block.pc]).map(|address| (address, block.executions)));
        }
        // An instruction may have several references, and be in several blocks: the most of them tells enough.
        decoded.code.sort_unstable_by_key(|&(address, executions)| (address, Reverse(executions)));
        decoded.code.dedup_by_key(|&mut (address, _)| address);
        decoded
    }
}

/// Which element of a gather or scatter a reference is. `masked`: see [`Blocks::add`].
fn element(reference: &Reference, masked: &mut (u64, u8)) -> Option<u8> {
    if reference.used == Use::Mask {
        *masked = (reference.pc, 0);
        return None;
    }
    let (pc, count) = masked;
    (reference.pc == *pc).then(|| {
        *count += 1;
        *count - 1
    })
}

/// One execution of a block, as far as it got; whether it got to its end, as far as words and the next block's begin tell.
fn execution(
    block: &mut Block,
    stored: &[u64],
    (thread_pointer, next): (u64, Option<u64>),
    each: &mut impl FnMut(&mut Known, Access),
) -> bool {
    let Block { references: block, is_filtered, .. } = block;
    let is_filtered = *is_filtered;
    let mut taken = 0;
    // Behind the last word's reference.
    let mut last = 0;
    let mut mask = 0;
    for at in 0..block.len() {
        let address = match block[at].reference.source {
            Source::Word => {
                let Some(&word) = stored.get(taken) else {
                    if is_filtered {
                        left_out(&mut block[last..at], next, each);
                    }
                    return false;
                };
                if is_filtered {
                    // Another word: no way out was taken before it.
                    all_left_out(&mut block[last..at], Access::LeftOut, each);
                }
                (taken, last) = (taken + 1, at + 1);
                Some(word)
            }
            Source::Near { word, distance } => {
                stored.get(usize::from(word)).map(|address| address.wrapping_add_signed(distance))
            }
            Source::Fixed(address) => Some(address),
            Source::Thread(distance) => Some(thread_pointer.wrapping_add_signed(distance)),
            Source::Unknown => None,
            Source::LeftOut => continue,
        };
        match block[at].reference.used {
            Use::Count | Use::WayOut => continue,
            Use::Mask => {
                mask = address.unwrap_or(0);
                continue;
            }
            Use::Read | Use::Write | Use::Both | Use::Locked | Use::Prefetch => {}
        }
        if block[at].element.is_some_and(|element| mask >> element & 1 == 0) {
            continue;
        }
        let elements = match block[at].is_repeated {
            true => elements(block, at, &stored[taken..]),
            false => 1,
        };
        if elements > 0 {
            let recorded = |address| Access::Recorded { address: without_tag(address), elements };
            let access = address.map_or(Access::Unknown, recorded);
            each(&mut block[at], access);
        }
    }
    !is_filtered || left_out(&mut block[last..], next, each)
}

/// Tells of those of the references behind the last word that were left out, where execution went on at `next`, if that is
/// known; whether it got to their end. A way out that leads to where the block itself ends is taken to have been taken.
fn left_out(references: &mut [Known], next: Option<u64>, each: &mut impl FnMut(&mut Known, Access)) -> bool {
    let is_way_out = |known: &Known| {
        known.reference.used == Use::WayOut && next.is_none_or(|next| next == known.reference.pc)
    };
    let end = references.len();
    let first = references.iter().position(is_way_out);
    let last = match next {
        Some(_) => references.iter().rposition(is_way_out),
        // The burst's last block: it may have come to its end.
        None => None,
    };
    let (certain, perhaps) = references.split_at_mut(first.unwrap_or(end));
    all_left_out(certain, Access::LeftOut, each);
    let perhaps_until = last.unwrap_or(end) - certain.len();
    all_left_out(&mut perhaps[..perhaps_until], Access::PerhapsLeftOut, each);
    first.is_none()
}

fn all_left_out(references: &mut [Known], access: Access, each: &mut impl FnMut(&mut Known, Access)) {
    let is_left_out = |known: &&mut Known| known.reference.source == Source::LeftOut;
    references.iter_mut().filter(is_left_out).for_each(|known| each(known, access));
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

    /// Blocks begin at a hundred times their number.
    fn head(number: u32, ends_indirectly: bool) -> BlockHead {
        BlockHead { generation: 2, number, ends_indirectly, pc: 100 * u64::from(number) }
    }

    fn decoded(blocks: &mut Blocks, words: &[u64]) -> (Vec<(u64, u64, u64)>, bool) {
        let mut list = Vec::new();
        let decoded = blocks.decode((1, 2), words, 0x7000, |event| {
            let Event::Access(known, access) = event else { return };
            let Access::Recorded { address, elements } = access else { panic!("all were recorded") };
            list.push((known.reference.pc, address, elements));
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
        blocks.add(1, &head(5, false), references);
        // The highest byte of an address is none of it.
        let words = [block_word(5), 0x80 << 56 | 0x1000, 0x2000, block_word(5), 0x3000];
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
        blocks.add(1, &head(5, false), references);
        let (list, _) =
            decoded(&mut blocks, &[block_word(5), 0x1000, 0x2000, 7, block_word(5), 0x1000, 0x2000, 0]);
        assert_eq!(list, [(10, 0x1000, 7), (10, 0x2000, 7)], "none are none");
    }

    #[test]
    fn elements_happen_whose_mask_is_set() {
        let mut blocks = Blocks::default();
        let element = reference(10, Use::Read, Source::Word);
        let gather = [reference(10, Use::Mask, Source::Word), element, element, element];
        // Two rounds of a loop, and something else.
        let references = [&gather[..], &gather, &[reference(11, Use::Write, Source::Word)]].concat();
        blocks.add(1, &head(5, false), references);
        let words = [block_word(5), 0b101, 0x1000, 0x2000, 0x3000, 0b010, 0x4000, 0x5000, 0x6000, 0x7000];
        let expected = [(10, 0x1000, 1), (10, 0x3000, 1), (10, 0x5000, 1), (11, 0x7000, 1)];
        assert_eq!(decoded(&mut blocks, &words), (expected.to_vec(), true));
    }

    #[test]
    fn executions_are_counted_and_those_that_end_indirectly() {
        let mut blocks = Blocks::default();
        blocks.add(1, &head(5, true), vec![reference(10, Use::Read, Source::Word)]);
        blocks.add(1, &head(6, false), Vec::new());
        blocks.add(1, &head(7, true), Vec::new());
        // A way out of block 5 was taken before its return: no address was stored.
        let words = [block_word(5), 0x1000, block_word(6), block_word(6), block_word(7), block_word(5)];
        let mut begun = Vec::new();
        let decoded = blocks.decode((1, 2), &words, 0x7000, |event| {
            if let Event::Block(pc, _) = event {
                begun.push(pc)
            }
        });
        assert_eq!((decoded.blocks, decoded.indirect, decoded.is_whole), (5, 2, true));
        assert_eq!(begun, [500, 600, 600, 700, 500]);
        assert_eq!(decoded.code, [(10, 2), (500, 2), (600, 2), (700, 1)]);
    }

    #[test]
    fn what_was_left_out_is_told_as_far_as_execution_got() {
        let left_out = |pc| reference(pc, Use::Read, Source::LeftOut);
        let way_out = |to| reference(to, Use::WayOut, Source::Unknown);
        let mut blocks = Blocks::default();
        let references = vec![
            left_out(10),
            way_out(600),
            left_out(11),
            reference(12, Use::Read, Source::Word),
            left_out(13),
            way_out(600),
            left_out(14),
            way_out(700),
            left_out(15),
            way_out(700),
            left_out(16),
        ];
        blocks.add(1, &head(5, true), references);
        [6, 7, 8].into_iter().for_each(|number| blocks.add(1, &head(number, false), Vec::new()));
        let mut told = |words: &[u64]| {
            let (mut certain, mut perhaps) = (Vec::new(), Vec::new());
            let decoded = blocks.decode((1, 2), words, 0x7000, |event| match event {
                Event::Block(..) => {}
                Event::Access(known, Access::LeftOut) => certain.push(known.reference.pc),
                Event::Access(known, Access::PerhapsLeftOut) => perhaps.push(known.reference.pc),
                Event::Access(_, access) => {
                    assert_eq!(access, Access::Recorded { address: 0x1000, elements: 1 });
                }
            });
            (certain, perhaps, decoded.indirect)
        };
        let (this, address) = (block_word(5), 0x1000);
        assert_eq!(told(&[this, block_word(6)]), (vec![10], vec![], 0));
        assert_eq!(told(&[this, address, block_word(6)]), (vec![10, 11, 13], vec![], 0));
        // Two ways out lead to the same place.
        assert_eq!(told(&[this, address, block_word(7)]), (vec![10, 11, 13, 14], vec![15], 0));
        assert_eq!(told(&[this, address, block_word(8)]), (vec![10, 11, 13, 14, 15, 16], vec![], 1));
        // The burst's end.
        assert_eq!(told(&[this, address]), (vec![10, 11, 13], vec![14, 15, 16], 0));
        assert_eq!(told(&[this]), (vec![10], vec![11], 0));
    }

    #[test]
    fn blocks_that_were_not_reported_are_noticed() {
        let mut blocks = Blocks::default();
        blocks.add(1, &head(5, false), vec![reference(10, Use::Read, Source::Word)]);
        assert!(!decoded(&mut blocks, &[block_word(6), 0x1000]).1);
        assert!(!decoded(&mut blocks, &[0x1000]).1);
    }
}

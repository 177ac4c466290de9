//! The agent's records, one behind the other as in a ring.

use memlens_events::agent::{
    ALLOCATED_WORDS, Activity, AgentRecord, Allocation, BLOCK_HEAD_WORDS, BURST_HEAD_WORDS, BlockHead,
    BurstHead, Caller, END_WORDS, Event, Extent, Head, Kind, RING_BYTES, TICK_WORDS,
};
use memlens_events::burst::{REFERENCE_WORDS, Reference, Source, Use};

/// Of the record's words, those that all have.
const COMMON_WORDS: usize = 3;

fn record(kind: Kind, rest: &[u64]) -> Vec<u8> {
    let length = 8 * (COMMON_WORDS + rest.len()) as u32;
    let words = [Head { kind, length }.word(), 1_000_000, (12 << 32) | 34];
    words.iter().chain(rest).flat_map(|word| word.to_ne_bytes()).collect()
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let caller = Caller { ip: 0x40_1234, sp: 0x7fff_0010, bp: 0x7fff_0040 };
    let address = 0x7f00_0000_1000;
    let (size_bytes, gap_bytes) = (4096, 1 << 20);
    let allocation =
        Allocation { address, size_bytes, gap_bytes, old_address: 0, stored_at: 0x7fff_0018, caller };
    // 13 bytes of stack, padded.
    let stack = [13, 0x1111, 0x22_2222_2222];
    let allocated = record(Kind::Allocated, &[&allocation.words()[..], &stack].concat());
    let mapping = record(Kind::NewMapping, &[&allocation.words()[..], &stack].concat());
    let tick = record(Kind::Tick, &[&[10_000_000][..], &[7; 16], &[0x40_2000, 1], &stack].concat());
    let head = BlockHead { generation: 1, number: 5, ends_indirectly: true, pc: 0x40_3000 };
    let reference = Reference {
        pc: 0x40_3004,
        operand: 1,
        used: Use::Both,
        size_bytes: 8,
        source: Source::Near { word: 2, distance: -16 },
    };
    let block = record(Kind::Block, &[&head.words()[..], &reference.words()].concat());
    let head = BurstHead { generation: 1, period_ns: 9, cycles: 99, end: 2, ..BurstHead::default() };
    let burst = record(Kind::Burst, &[&head.words()[..], &[u64::MAX - 5, address]].concat());
    let maps = [u64::from_ne_bytes(*b"0-8 r-xp"), u64::from_ne_bytes(*b" /x\n\0\0\0\0")];
    let mappings = [Kind::Started, Kind::Mapped].map(|kind| record(kind, &maps));
    let ends = [Kind::Freed, Kind::Moving, Kind::Kept].map(|kind| record(kind, &[address]));
    let others = [
        record(Kind::Padding, &[0; 5]),
        record(Kind::Look, &[5000, 0x40_4000, 0]),
        record(Kind::Forked, &[77]),
        record(Kind::Named, &[u64::from_ne_bytes(*b"worker-1"), 0]),
        record(Kind::MappingEnded, &[address, 4096]),
        record(Kind::MappingMoved, &[address, 4096, address + (1 << 20), 8192]),
    ];
    let mut seeds =
        vec![allocated, mapping, tick, block, burst, mappings.concat(), ends.concat(), others.concat()];
    seeds.push(seeds.concat());
    seeds
}

pub(crate) fn check(bytes: &[u8]) {
    let mut rest = bytes;
    while let Some(word) = rest.first_chunk::<8>() {
        let length = check_head(u64::from_ne_bytes(*word)).unwrap_or(rest.len());
        let (record, behind) = rest.split_at(length.min(rest.len()));
        check_record(record);
        rest = behind;
    }
}

/// A head's length.
fn check_head(word: u64) -> Option<usize> {
    let (length, kind) = (word % (1 << 32), word >> 32);
    let is_head = (1..=16).contains(&kind) && length % 8 == 0 && (8..=RING_BYTES as u64).contains(&length);
    let head = Head::of(word);
    assert_eq!(head.is_some(), is_head, "{word:#x}");
    let head = head?;
    assert_eq!((head.word(), u64::from(head.length), head.kind as u64), (word, length, kind));
    Some(length as usize)
}

/// A record against the table of [`memlens_events::agent`].
fn check_record(bytes: &[u8]) {
    let (words, odd) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let kind = words[0] >> 32;
    let least = match kind {
        2 | 13 => ALLOCATED_WORDS,
        3..=5 => END_WORDS,
        6 => TICK_WORDS,
        7 => COMMON_WORDS + BLOCK_HEAD_WORDS,
        8 => COMMON_WORDS + BURST_HEAD_WORDS,
        10 => COMMON_WORDS + 3,
        11 => COMMON_WORDS + 1,
        14 => COMMON_WORDS + 2,
        15 => COMMON_WORDS + 4,
        _ => COMMON_WORDS,
    };
    let is_whole = odd.is_empty() && words[0] % (1 << 32) == bytes.len() as u64 && words.len() >= least;
    // Padding is none; the stack's length, the last of the words that are always there, is of what follows.
    let has_stack = matches!(kind, 2 | 6 | 13);
    let fits = !has_stack || is_whole && words[least - 1] <= 8 * (words.len() - least) as u64;
    let record = AgentRecord::decode(bytes);
    assert_eq!(record.is_some(), is_whole && fits && (2..=16).contains(&kind), "{words:x?}");
    let Some(AgentRecord { time_ns, pid, tid, event }) = record else { return };
    assert_eq!((time_ns, u64::from(pid) << 32 | u64::from(tid)), (words[1], words[2]));
    let behind = &bytes[8 * least..];
    let with_stack = |stack: &[u8]| {
        assert_eq!((stack.len() as u64, Some(stack)), (words[least - 1], behind.get(..stack.len())));
    };
    let with_text = |text: &[u8]| {
        assert_eq!(behind.get(..text.len()), Some(text));
        assert!(text.last() != Some(&0) && behind[text.len()..].iter().all(|&byte| byte == 0));
    };
    match event {
        Event::Allocated(allocation, stack) => {
            assert_eq!((kind, &allocation.words()[..]), (2, &words[3..11]));
            with_stack(stack);
        }
        Event::NewMapping(allocation, stack) => {
            assert_eq!((kind, &allocation.words()[..]), (13, &words[3..11]));
            with_stack(stack);
        }
        Event::MappingEnded(Extent { address, size_bytes }) => {
            assert_eq!((kind, address, size_bytes), (14, words[3], words[4]));
        }
        Event::MappingMoved { from, to } => {
            let told = [from.address, from.size_bytes, to.address, to.size_bytes];
            assert_eq!((kind, &told[..]), (15, &words[3..7]));
        }
        Event::Freed(address) => assert_eq!((kind, address), (3, words[3])),
        Event::Moving(address) => assert_eq!((kind, address), (4, words[3])),
        Event::Kept(address) => assert_eq!((kind, address), (5, words[3])),
        Event::Tick { period_ns, registers, ip, activity, stack } => {
            assert_eq!((kind, period_ns, &registers[..], ip), (6, words[3], &words[4..20], words[20]));
            assert_eq!(activity == Activity::Code, words[21] == 0);
            with_stack(stack);
        }
        Event::Block { head, references } => {
            assert_eq!((kind, head.generation, head.pc, references), (7, words[3], words[5], behind));
            assert_eq!(u64::from(head.number), words[4] % (1 << 32));
            assert_eq!(u64::from(head.ends_indirectly), words[4] >> 32 & 1);
            words[least..].as_chunks().0.iter().copied().for_each(check_reference);
        }
        Event::Burst { head, words: stored } => {
            assert_eq!((kind, &head.words()[..], stored), (8, &words[3..least], behind));
        }
        Event::Started { mappings } => {
            assert_eq!(kind, 9);
            with_text(mappings);
        }
        Event::Mapped { mappings } => {
            assert_eq!(kind, 12);
            with_text(mappings);
        }
        Event::Look { period_ns, ip, activity } => {
            assert_eq!(
                (kind, period_ns, ip, activity == Activity::Code),
                (10, words[3], words[4], words[5] == 0)
            );
        }
        Event::Named { name } => {
            assert_eq!(kind, 16);
            let text: Vec<u8> = words[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
            assert!(text.starts_with(name) && text.get(name.len()).is_none_or(|&byte| byte == 0));
        }
        Event::Forked { parent_pid } => assert_eq!((kind, parent_pid), (11, words[3] as u32)),
    }
}

/// A reference's numbers stand where they did when it is written again; none of them is made up.
fn check_reference(words: [u64; REFERENCE_WORDS]) {
    let [pc, what, value] = words;
    let (used, source) = (what >> 16 & 15, what >> 20 & 15);
    let reference = Reference::of(words);
    assert_eq!(reference.is_some(), used <= 7 && source <= 5, "{what:#x}");
    let Some(reference) = reference else { return };
    let near = if source == 1 { what >> 32 & 0xffff } else { 0 };
    let value = if matches!(source, 1..=3) { value } else { 0 };
    assert_eq!(reference.words(), [pc, (what % (1 << 32)) | (near << 32), value]);
}

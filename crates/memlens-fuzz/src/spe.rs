//! What the Statistical Profiling Extension writes: records of packets.
//!
//! The checker has its own table of the packets' sizes (DDI 0487J.a, section D17.2), and its own look at those that samples
//! are made of.

use memlens_sample::{SpeRecord, SpeRecords};

const PADDING: u8 = 0;
const END: u8 = 1;
const TIMESTAMP: u8 = 0x71;

fn address(index: u8, value: u64) -> Vec<u8> {
    [&[0xb0 | index][..], &value.to_le_bytes()].concat()
}

fn timestamp(counter: u64) -> Vec<u8> {
    [&[TIMESTAMP][..], &counter.to_le_bytes()].concat()
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let load = [
        address(0, 0x8000_0000_0040_1000),
        vec![0x64, 7, 0, 0, 0, 0x49, 0, 0x52, 0x16, 3, 0x99, 4, 0, 0x98, 12, 0],
        address(2, 0x5a00_7f00_0000_0010),
        vec![0x9a, 1, 0, 0x43, 8],
        timestamp(1000),
    ]
    .concat();
    let branch = [address(0, 0x40_2000), vec![0x4a, 1, 0x42, 2], address(1, 0x40_3000), vec![END]].concat();
    // Longer headers, padding to a multiple, and what no source writes so.
    let long = [
        vec![0x20],
        address(0, 0x40_1000),
        vec![0x49, 1, 0x21],
        address(2, 9),
        vec![0x20],
        address(2, 0x7fff_0000),
        vec![0x23, 0],
        vec![0; 20],
        vec![0x62, 1, 2, 3, 4, 0x72, 1, 2, 3, 4, 5, 6, 7, 8, 0x53, 1, 2, END],
    ]
    .concat();
    vec![
        load.clone(),
        branch.clone(),
        long.clone(),
        [load.clone(), vec![0; 7], branch, long, load.clone()].concat(),
        [load[..20].to_vec(), load].concat(),
    ]
}

/// Bytes of the packet that begins here; None: it is none, or not whole.
fn size_of_packet(bytes: &[u8], position: u64) -> Option<usize> {
    let of = |header: u8| match header {
        0x98..=0x9f => Some(2),
        0xb0..=0xb7 => Some(8),
        _ => None,
    };
    let size = match *bytes.first()? {
        PADDING | END => 1,
        0x42 | 0x43 | 0x48..=0x4b => 2,
        0x52 | 0x53 => 3,
        0x62..=0x67 => 5,
        TIMESTAMP | 0x72 | 0x73 => 9,
        first @ 0x20..=0x2f => match *bytes.get(1)? {
            0 => {
                // The first multiple that leaves room for the header.
                let unit = 1u64 << ((first & 15) + 1);
                let target = (position..).step_by(1).skip(2).find(|at| at % unit == 0)?;
                (target - position) as usize
            }
            second if first < 0x24 => 2 + of(second)?,
            _ => return None,
        },
        first => 1 + of(first)?,
    };
    (size <= bytes.len()).then_some(size)
}

/// The packets of a record, each by its header and payload, if the bytes are one.
fn packets(mut bytes: &[u8], mut position: u64) -> Option<Vec<&[u8]>> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        let size = size_of_packet(bytes, position)?;
        list.push(&bytes[..size]);
        (bytes, position) = (&bytes[size..], position + size as u64);
        if matches!(list.last()?[0], END | TIMESTAMP) {
            return Some(list);
        }
    }
    None
}

/// The payload of the last packet with this header, short or long.
fn last<'a>(list: &[&'a [u8]], header: u8) -> Option<&'a [u8]> {
    list.iter()
        .rev()
        .find_map(|packet| packet.strip_prefix(&[header]).or_else(|| packet.strip_prefix(&[0x20, header])))
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Whether a record says what its packets do.
fn agrees(record: &SpeRecord, list: &[&[u8]]) {
    let low = |value: u64| value & 0x00ff_ffff_ffff_ffff;
    let found = record.instruction.map(|instruction| (low(instruction.address), instruction.level));
    let expected = last(list, 0xb0).map(word);
    assert_eq!(found, expected.map(|value| (low(value), (value >> 61 & 3) as u8)));
    assert_eq!(record.data_address.map(low), last(list, 0xb2).map(word).map(low));
    assert_eq!(record.physical_address, last(list, 0xb3).map(word).map(low));
    for address in record.data_address.into_iter().chain(record.instruction.map(|found| found.address)) {
        assert!([0, 0x1ff].contains(&(address >> 55)), "{address:#x} is an address");
    }
    assert_eq!(record.total_latency.map(u64::from), last(list, 0x98).map(word));
    assert_eq!(record.timestamp, last(list, TIMESTAMP).map(word));
    let mut operations = list.iter().rev().filter(|packet| packet[0] & 0xfc == 0x48);
    let access = operations.next().filter(|packet| packet[0] == 0x49).map(|packet| packet[1]);
    assert_eq!(record.access, access);
    let Some(sample) = record.sample(77) else { return };
    assert_eq!(record.instruction.map(|instruction| instruction.level), Some(0));
    assert!(record.access.is_some() && sample.is_user && sample.is_exact && sample.period == 77);
    assert_eq!(Some(sample.data_address), record.data_address);
    assert_ne!(sample.data_address, 0);
}

pub(crate) fn check(bytes: &[u8]) {
    const START: u64 = 0x1000;
    let mut records = SpeRecords::new(bytes, START);
    let mut before = START;
    let mut found = 0u64;
    while let Some(record) = records.next() {
        found += 1;
        assert!(before <= record.position && record.position < records.here(), "records follow each other");
        before = records.here();
        let range = (record.position - START) as usize..(before - START) as usize;
        let list = packets(&bytes[range.clone()], record.position).expect("a record is whole packets");
        assert_eq!(list.concat(), bytes[range.clone()], "and nothing besides");
        agrees(&record, &list);
        // It is the same without what surrounds it.
        let mut alone = SpeRecords::new(&bytes[range], record.position);
        assert_eq!((alone.next(), alone.next(), alone.damaged()), (Some(record), None, 0));
    }
    assert_eq!(records.here(), START + bytes.len() as u64, "all was looked at");
    assert!(found + records.damaged() <= bytes.len() as u64);
    // Twice the same, where nothing hangs on the position.
    if records.damaged() == 0 && !bytes.iter().any(|byte| (0x20..=0x2f).contains(byte)) {
        assert_eq!(SpeRecords::new(&bytes.repeat(2), START).count() as u64, 2 * found);
    }
}

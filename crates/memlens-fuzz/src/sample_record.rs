//! Records of perf_event_open's ring.

use memlens_code::Architecture;
use memlens_sample::{Layout, Record};

/// Words of the input that decide the layout, before the record's type, `misc` and body.
const LAYOUT_WORDS: usize = 6;

// perf_event_open(2), PERF_SAMPLE_*.
const IP: u64 = 1 << 0;
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const ADDR: u64 = 1 << 3;
const READ: u64 = 1 << 4;
const CALLCHAIN: u64 = 1 << 5;
const ID: u64 = 1 << 6;
const CPU: u64 = 1 << 7;
const PERIOD: u64 = 1 << 8;
const STREAM_ID: u64 = 1 << 9;
const RAW: u64 = 1 << 10;
const BRANCH_STACK: u64 = 1 << 11;
const REGS_USER: u64 = 1 << 12;
const STACK_USER: u64 = 1 << 13;
const IDENTIFIER: u64 = 1 << 16;

const SAMPLE: u32 = 9;

fn input(words: &[u64], record_type: u32, misc: u16, body: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize(8 * LAYOUT_WORDS, 0);
    bytes.extend(record_type.to_le_bytes());
    bytes.extend(misc.to_le_bytes());
    bytes.extend(body.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let ours = IDENTIFIER | IP | TID | TIME | PERIOD | REGS_USER | STACK_USER;
    let registers = 0x00ff_01ff;
    let mut body = vec![7, 0x401000, (12 << 32) | 11, 99, 1000, 2];
    body.extend(100..117);
    body.extend([16, 0xaaaa, 0xbbbb, 16]);
    let text = u64::from_le_bytes(*b"/opt/t\0\0");
    let mapping = [(8 << 32) | 7, 0x1000, 0x2000, 0, 0, 28, 0, 5, text, (8 << 32) | 7, 99, 7];
    let other = IP | TID | ADDR | ID | STREAM_ID | CPU | READ | CALLCHAIN | RAW | BRANCH_STACK;
    // A count of one value, a chain of two, four raw bytes, a branch.
    let chain = [1, (2 << 32) | 1, 5, 6, 7, 0, 44, 2, 0x10, 0x20, (9 << 32) | 4, 1, 1, 2, 3];
    vec![
        input(&[ours, 0, registers, 0, 0, 1], SAMPLE, 2, &body),
        input(&[ours, 0, registers, 0, 0, 1], 10, 2, &mapping),
        input(&[other, 0, 0, 0, 0, 0], SAMPLE, 2, &chain),
        input(&[TID | TIME, 0, 0, 0, 0, 1], 2, 0, &[3, 1234, 7, 9]),
    ]
}

pub(crate) fn check(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_at_checked(8 * LAYOUT_WORDS) else { return };
    let Some((kind, body)) = rest.split_at_checked(6) else { return };
    let words: Vec<u64> = words_of(head);
    let layout = Layout {
        architecture: Some(Architecture::X86_64),
        sample_type: words[0],
        read_format: words[1],
        user_registers: words[2],
        interrupt_registers: words[3],
        branch_sample_type: words[4],
        has_sample_id: words[5] & 1 == 1,
        fixed_period: 77,
    };
    let record_type = u32::from_le_bytes([kind[0], kind[1], kind[2], kind[3]]);
    let misc = u16::from_le_bytes([kind[4], kind[5]]);
    let parsed = layout.parse(record_type, misc, body);
    // What is longer is read as well: the parser asks for no more than the fields say.
    if parsed.is_ok() && record_type == SAMPLE {
        let longer = [body, &[0xff; 8]].concat();
        assert_eq!(layout.parse(record_type, misc, &longer), parsed, "bytes behind the fields changed them");
    }
    let Ok(parsed) = parsed else { return };
    let Record::Sample(sample) = parsed.record else {
        assert_ne!(record_type, SAMPLE, "a sample became {:?}", parsed.record);
        return;
    };
    assert_eq!(record_type, SAMPLE);
    assert_eq!(u64::from(sample.is_user), u64::from(misc & 7 == 2));
    // The fields of one word that stand before all others of varying length, in the manual's order.
    let fixed = [IDENTIFIER, IP, TID, TIME, ADDR, ID, STREAM_ID, CPU, PERIOD];
    let body = words_of(body);
    let present = fixed.into_iter().filter(|field| layout.sample_type & field != 0);
    for (field, &word) in present.zip(&body) {
        let (found, expected) = match field {
            IP => (sample.ip, word),
            TID => (u64::from(sample.pid) | (u64::from(sample.tid) << 32), word),
            TIME => (parsed.time_ns, word),
            ADDR => (sample.data_address, word),
            PERIOD => (sample.period, word),
            IDENTIFIER => (sample.id, word),
            ID if layout.sample_type & IDENTIFIER == 0 => (sample.id, word),
            _ => continue,
        };
        assert_eq!(found, expected, "field {field:#x}");
    }
    assert!(layout.sample_type & PERIOD != 0 || sample.period == 77);
    // No more of the stack than the record holds.
    assert!(sample.stack.len() <= 8 * body.len());
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

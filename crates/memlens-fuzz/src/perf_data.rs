//! `perf.data`.

use std::io::Cursor;

use memlens_sample::import_perf_data;

// Offsets of `struct perf_file_header` (tools/perf/util/header.h) and sizes of what follows it here.
const HEADER_BYTES: u64 = 104;
const ATTRIBUTE_BYTES: u64 = 136;
/// An attribute and where its ids are.
const ENTRY_BYTES: u64 = ATTRIBUTE_BYTES + 16;

fn words(list: &[u64]) -> Vec<u8> {
    list.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A record: its type, `misc`, and what follows the header.
fn record(record_type: u32, misc: u16, body: &[u64]) -> Vec<u8> {
    let size = 8 + 8 * body.len() as u64;
    let header = u64::from(record_type) | (u64::from(misc) << 32) | (size << 48);
    [words(&[header]), words(body)].concat()
}

/// A file with one event of the processor clock, and these records.
fn file(records: &[Vec<u8>]) -> Vec<u8> {
    let data = records.concat();
    let magic = u64::from_le_bytes(*b"PERFILE2");
    let data_at = HEADER_BYTES + ENTRY_BYTES;
    let mut bytes = words(&[
        magic,
        HEADER_BYTES,
        ENTRY_BYTES,
        HEADER_BYTES,
        ENTRY_BYTES,
        data_at,
        data.len() as u64,
        0,
        0,
        0,
        0,
        0,
        0,
    ]);
    // type 1 (software) and size; config 0 (the processor clock); period; IP | TID | TIME | PERIOD.
    let mut attribute = words(&[1 | (ATTRIBUTE_BYTES << 32), 0, 1_000_000, 0x107, 0, 1 << 18]);
    attribute.resize(ENTRY_BYTES as usize, 0);
    bytes.extend(attribute);
    bytes.extend(data);
    bytes
}

/// What `perf record -o -` writes of the same event: its attribute as a record, then these.
fn pipe(records: &[Vec<u8>]) -> Vec<u8> {
    let mut attribute = vec![1 | (ATTRIBUTE_BYTES << 32), 0, 1_000_000, 0x107, 0, 1 << 18];
    attribute.resize(ATTRIBUTE_BYTES as usize / 8, 0);
    // PERF_RECORD_HEADER_ATTR, and PERF_RECORD_HEADER_FEATURE with HEADER_CMDLINE: one word.
    let attribute = record(64, 0, &attribute);
    let words_of_command = record(80, 0, &[11, 1 | (8 << 32), u64::from_le_bytes(*b"perf\0\0\0\0")]);
    let header = words(&[u64::from_le_bytes(*b"PERFILE2"), 16]);
    [header, attribute, words_of_command, records.concat()].concat()
}

/// What perf writes of Arm's Statistical Profiling Extension: what the trace is, its clock, two loads of a thread, and what the
/// kernel says of them.
fn traced() -> Vec<Vec<u8>> {
    let load = [
        &[0xb0, 0, 0x10, 0x40, 0, 0, 0, 0, 0x80, 0x49, 0, 0x52, 0x16, 0, 0x98, 12, 0][..],
        &[0xb2, 0x10, 0, 0, 0, 0, 0x7f, 0, 0, 0x71, 10, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    let trace = [&load[..], &load].concat();
    let id = (7 << 32) | 7;
    let size = trace.len() as u64;
    let head = record(71, 0, &[size, 0, 0, 7 << 32, u64::from(u32::MAX)]);
    vec![
        record(70, 0, &[4, 2, 4, 9, 1]),
        record(79, 0, &[1, 4, 0, 0, 0, 1]),
        [head, trace].concat(),
        record(1, 2, &[id, 0x40_1000, 0x1000, 0x1000, u64::from_le_bytes(*b"/opt/t\0\0"), id, 5]),
        record(11, 0, &[0, size, 1, id, 40]),
    ]
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let id = (7 << 32) | 7;
    let name = u64::from_le_bytes(*b"/opt/t\0\0");
    let sample = |ip: u64, time: u64| record(9, 2, &[ip, id, time, 1_000_000]);
    let mapping = record(1, 2, &[id, 0x40_1000, 0x1000, 0x1000, name, id, 5]);
    let called = record(3, 0, &[id, u64::from_le_bytes(*b"t\0\0\0\0\0\0\0"), id, 4]);
    let lost = record(2, 0, &[1, 12, id, 30]);
    vec![
        file(&[called.clone(), mapping.clone(), sample(0x40_1010, 10), sample(0x40_1020, 20), lost.clone()]),
        pipe(&[called, mapping, sample(0x40_1010, 10), sample(0x40_1020, 20), lost]),
        file(&[sample(1, 1)]),
        file(&traced()),
        pipe(&traced()),
        file(&[]),
    ]
}

pub(crate) fn check(bytes: &[u8]) {
    let Ok(profile) = import_perf_data(Cursor::new(bytes), None) else { return };
    profile.validate().expect("what was imported is consistent");
    let sampling = profile.run.sampling.as_ref().expect("samples were imported");
    let totals = profile.totals().sampled;
    assert_eq!(sampling.samples, totals.samples, "each sample is in one object");
    assert!(sampling.samples > 0 && sampling.samples <= bytes.len() as u64 / 8);
    // The same again: nothing hangs on the order of a hash.
    let again = import_perf_data(Cursor::new(bytes), None).expect("it could be read before");
    assert_eq!(again.totals(), profile.totals());
}

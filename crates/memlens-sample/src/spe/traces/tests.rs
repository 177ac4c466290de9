//! Files as perf writes them on a machine with SPE, put together after its description of the format.

use std::io::Cursor;

use memlens_profile::{Profile, SampleUnit};

use super::super::tests::{Encoded, load};
use super::SpeTraces;
use crate::perf_data::{PerfDataError, import_perf_data};
use crate::record::{AuxRecord, Record, TimedRecord};

/// `perf_event_attr.type` of the source in these files, and the operations between two samples.
const EVENT_TYPE: u64 = 11;
const PERIOD: u64 = 4096;

/// The program's process, and another thread of it.
const PID: u64 = 70;
const TID: u64 = 71;

fn words(list: &[u64]) -> Vec<u8> {
    list.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn record(record_type: u64, body: &[u8]) -> Vec<u8> {
    let size = 8 + body.len() as u64;
    [words(&[record_type | (2 << 32) | (size << 48)]), body.to_vec()].concat()
}

/// A file with these records of one event, with `struct sample_id` of thread, time and processor.
fn file(records: &[Vec<u8>]) -> Vec<u8> {
    const HEADER_BYTES: u64 = 104;
    const ATTRIBUTE_BYTES: u64 = 136;
    const ENTRY_BYTES: u64 = ATTRIBUTE_BYTES + 16;
    let data = records.concat();
    let magic = u64::from_le_bytes(*b"PERFILE2");
    let data_at = HEADER_BYTES + ENTRY_BYTES;
    let mut bytes = words(&[magic, HEADER_BYTES, ENTRY_BYTES, HEADER_BYTES, ENTRY_BYTES, data_at]);
    bytes.extend(words(&[data.len() as u64, 0, 0, 0, 0, 0, 0]));
    // IP | TID | TIME | CPU; sample_id_all.
    let mut attribute =
        words(&[EVENT_TYPE | (ATTRIBUTE_BYTES << 32), 0x6_0000_0001, PERIOD, 0x87, 0, 1 << 18]);
    attribute.resize(ENTRY_BYTES as usize, 0);
    bytes.extend(attribute);
    bytes.extend(data);
    bytes
}

fn sample_id(tid: u64, time: u64, cpu: u64) -> Vec<u8> {
    words(&[PID | (tid << 32), time, cpu])
}

/// `PERF_RECORD_AUXTRACE_INFO`, of the version with a header, and of no other.
fn announcement() -> Vec<u8> {
    record(70, &words(&[4, 2, 4, EVENT_TYPE, 1]))
}

/// `PERF_RECORD_TIME_CONV`: a tick of 40 ns.
fn conversion() -> Vec<u8> {
    record(79, &words(&[0, 40, 0, 0, 0, 1]))
}

/// `PERF_RECORD_MMAP` of 64 KiB of anonymous memory.
fn mapping(start: u64, time: u64) -> Vec<u8> {
    let body = [words(&[PID | (PID << 32), start, 1 << 16, 0]), b"//anon\0\0".to_vec()].concat();
    record(1, &[body, sample_id(PID, time, 0)].concat())
}

/// `PERF_RECORD_FORK`: the other thread begins.
fn other_thread(time: u64) -> Vec<u8> {
    let body = words(&[PID | (PID << 32), TID | (PID << 32), time]);
    record(7, &[body, sample_id(PID, time, 0)].concat())
}

/// `PERF_RECORD_AUX`.
fn written(offset: u64, size: usize, flags: u64, tid: u64, time: u64, cpu: u64) -> Vec<u8> {
    record(11, &[words(&[offset, size as u64, flags]), sample_id(tid, time, cpu)].concat())
}

/// `PERF_RECORD_AUXTRACE`.
fn trace(offset: u64, area: u32, tid: u32, cpu: u32, bytes: &[u8]) -> Vec<u8> {
    let head = words(&[bytes.len() as u64, offset, 0]);
    let numbers: Vec<u8> = [area, tid, cpu, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    [record(71, &[head, numbers].concat()), bytes.to_vec()].concat()
}

fn imported(records: &[Vec<u8>]) -> Profile {
    let profile = import_perf_data(Cursor::new(file(records)), None).expect("imported");
    profile.validate().expect("consistent");
    profile
}

/// Thread and samples, in order of threads.
fn by_thread(profile: &Profile) -> Vec<(u32, u64)> {
    let mut list: Vec<_> =
        profile.threads.iter().map(|thread| (thread.tid, thread.counts.sampled.samples)).collect();
    list.sort_unstable();
    list
}

#[test]
fn samples_have_objects_by_their_addresses() {
    const HEAP: u64 = 0x7f00_0000_0000;
    let first = load(0x40_1000, HEAP + 0x10, 100);
    let second = load(0x40_1004, HEAP + 0x20, 101);
    let bytes = [first, second].concat();
    let profile = imported(&[
        announcement(),
        conversion(),
        trace(0, 0, PID as u32, 0, &bytes),
        mapping(HEAP, 1000),
        written(0, bytes.len(), 0, PID, 5000, 0),
    ]);
    let sampling = profile.run.sampling.as_ref().expect("sampled");
    assert_eq!((sampling.unit, sampling.samples), (SampleUnit::Events, 2));
    let totals = profile.totals().sampled;
    assert_eq!((totals.samples, totals.by_hardware, totals.cost), (2, 2, 2 * PERIOD));
    assert_eq!((sampling.lost, profile.attribution.lost_events), (0, 0));
    // There are none.
    assert_eq!(profile.attribution.truncated_stacks, 0);
}

#[test]
fn a_sample_is_of_the_thread_that_was_there_when_its_bytes_were_written() {
    let own = load(0x40_1000, 0x7f00_0000_0010, 100);
    let other = load(0x40_1000, 0x7f00_0000_0010, 110);
    let size = own.len();
    // The first thread wrote a record, the other two; and one on another processor, whose area has the same positions.
    let bytes = [own.clone(), other.clone(), other].concat();
    let profile = imported(&[
        announcement(),
        conversion(),
        trace(0, 0, PID as u32, 0, &bytes[..size + 10]),
        trace(size as u64 + 10, 0, PID as u32, 0, &bytes[size + 10..]),
        trace(0, 1, PID as u32, 1, &own),
        other_thread(10),
        written(0, size, 0, PID, 4100, 0),
        written(size as u64, 2 * size, 0, TID, 4500, 0),
        written(0, size, 0, TID, 4700, 1),
    ]);
    // A record that lies in two of perf's is two halves, both damaged.
    assert_eq!(by_thread(&profile), [(PID as u32, 1), (TID as u32, 2)]);
}

#[test]
fn the_context_says_more_than_who_was_there_at_the_end() {
    let of = |context: Option<u32>| {
        let packets = Encoded::default().address(0, 0x40_1000);
        let packets = match context {
            Some(id) => packets.context(1, id),
            None => packets,
        };
        packets.operation(1, 1).address(2, 0x7f00_0000_0010).timestamp(100).bytes()
    };
    let all = u32::MAX;
    let of_program = |bytes: &[u8], tid: u32| {
        vec![
            announcement(),
            conversion(),
            trace(0, 0, tid, 0, bytes),
            other_thread(10),
            written(0, bytes.len(), 0, PID, 5000, 0),
        ]
    };
    let said = of(Some(TID as u32));
    assert_eq!(by_thread(&imported(&of_program(&said, PID as u32))), [(TID as u32, 1)]);
    // Of whole processors nothing else is good.
    let mixed = [said.clone(), of(None), of(None)].concat();
    let profile = imported(&of_program(&mixed, all));
    assert_eq!(by_thread(&profile), [(TID as u32, 1)]);
    assert_eq!(profile.attribution.lost_events, 2);
    assert!(profile.run.notes.iter().any(|note| note.starts_with("2 samples are missing")), "{profile:?}");
    // An area of one thread needs no processor.
    let bytes = of(None);
    let alone = [announcement(), trace(0, 0, TID as u32, all, &bytes), other_thread(10)];
    assert_eq!(by_thread(&imported(&alone)), [(TID as u32, 1)]);
}

#[test]
fn a_sample_finds_what_was_mapped_at_its_time() {
    const HEAP: u64 = 0x7f00_0000_0000;
    // perf hands traces on before what was recorded with them: 100 ticks are 4,000 ns.
    let bytes = load(0x40_1000, HEAP + 0x10, 100);
    let objects = |mapped_ns: u64, records: &[Vec<u8>]| {
        let traced = [
            announcement(),
            trace(0, 0, PID as u32, 0, &bytes),
            mapping(HEAP, mapped_ns),
            written(0, bytes.len(), 0, PID, 9000, 0),
        ];
        let profile = imported(&[records, &traced[..]].concat());
        profile.objects.iter().map(|object| format!("{:?}", object.kind)).collect::<Vec<_>>()
    };
    let before = objects(3999, &[]);
    assert_eq!(objects(3999, &[conversion()]), before);
    // Nothing was there; without the clock's description it is not known to have been earlier.
    assert_ne!(objects(4001, &[announcement(), conversion()]), before);
    assert_eq!(objects(4001, &[]), before);
}

#[test]
fn what_was_lost_and_damaged_is_counted() {
    let whole = load(0x40_1000, 0x7f00_0000_0010, 100);
    let mut damaged = whole.clone();
    damaged[9] = 0xff;
    let bytes = [whole.clone(), damaged, whole].concat();
    let records = |flags| {
        vec![
            announcement(),
            conversion(),
            trace(0, 0, PID as u32, 0, &bytes),
            written(0, bytes.len(), flags, PID, 5000, 0),
        ]
    };
    // Flags: truncated; partial; collision; and one that says of nothing that it is missing.
    for (flags, lost) in [(1, 1), (4, 1), (8, 1), (2, 0)] {
        let profile = imported(&records(flags));
        assert_eq!(profile.run.sampling.as_ref().expect("sampled").lost, lost, "{flags}");
    }
    let profile = imported(&records(1));
    let sampling = profile.run.sampling.as_ref().expect("sampled");
    assert_eq!((sampling.samples, sampling.lost), (2, 1));
    assert_eq!(profile.attribution.lost_events, 2);
    // Traces of other sources are none of ours, and announce no samples.
    let mut other = records(0);
    other[0] = record(70, &words(&[1, 2, 4, EVENT_TYPE, 1]));
    let other = import_perf_data(Cursor::new(file(&other)), None);
    assert!(matches!(other, Err(PerfDataError::NoSamples(1))), "{other:?}");
}

#[test]
fn one_timestamp_that_cannot_be_spoils_no_other() {
    // A tick is 40 ns. The second timestamp is of long after the file's end.
    let bytes = [100, u64::MAX >> 20, 300, 400].map(|at| load(0x40_1000, 0x7f00_0000_0010, at));
    let half = 2 * bytes[0].len() as u64;
    let times = |written: &[(u64, AuxRecord)]| {
        let mut traces = SpeTraces::announced(&words(&[4])).expect("of this source");
        traces.note_conversion(&words(&[0, 40, 0, 0, 0, 1]));
        // Of a thread, whatever the processor.
        let head = words(&[2 * half, 0, 0, TID << 32, u64::from(u32::MAX)]);
        traces.add_trace(&[head, bytes.concat()].concat()).expect("whole");
        for &(time_ns, of) in written {
            traces.hold(TimedRecord { time_ns, record: Record::Aux(of) });
        }
        traces.hold(TimedRecord { time_ns: 50_000, record: Record::Other });
        let mut times = Vec::new();
        traces.deliver(PERIOD, |record| {
            if let Record::Sample(sample) = record.record {
                assert_eq!(sample.tid, TID as u32);
                times.push(record.time_ns);
            }
        });
        times
    };
    let of = |offset| AuxRecord { tid: TID as u32, offset, size: half, ..AuxRecord::default() };
    // It cannot have been later than when it was handed over.
    assert_eq!(times(&[(9_000, of(0)), (19_000, of(half))]), [4_000, 9_000, 12_000, 16_000]);
    // When that was no record says: not after the file's last one.
    assert_eq!(times(&[]), [4_000, 50_000, 50_000, 50_000]);
}

#[test]
fn types_are_read_where_each_version_has_them() {
    let announced = |list: &[u64]| {
        let traces = SpeTraces::announced(&words(&[&[4], list].concat())).expect("of this source");
        (0..40).filter(|&event_type| traces.are_of(event_type)).collect::<Vec<_>>()
    };
    // Version 2: size of the header, type, processors; then magic, processor, words, model, type, least interval.
    assert_eq!(announced(&[2, 4, 11, 1, 0x1010, 9, 3, 33, 12, 34]), [11]);
    // Before there were versions: type, and whether each processor has an area.
    assert_eq!(announced(&[11, 9]), [11]);
    assert_eq!((announced(&[2]), announced(&[])), (vec![], vec![]));
}

/// Areas and records of what was written there, so many of both that all pairs of them would be gibibytes.
#[test]
fn a_damaged_file_takes_no_more_than_its_own_size() {
    const MANY: u32 = 20_000;
    let one = load(0x40_1000, 0x7f00_0000_0010, 100);
    let import = |written_bytes: fn(u64) -> (u64, usize)| {
        let mut records = vec![announcement(), conversion()];
        records.extend((0..MANY).map(|area| trace(0, area, PID as u32, 0, &one)));
        records.extend((0..u64::from(MANY)).map(|number| {
            let (offset, bytes) = written_bytes(number);
            written(offset, bytes, 0, PID, 5000, 0)
        }));
        match import_perf_data(Cursor::new(file(&records)), None) {
            Ok(profile) => profile.totals().sampled.samples,
            Err(PerfDataError::NoSamples(_)) => 0,
            Err(error) => panic!("{error}"),
        }
    };
    // All of them of the same bytes; of none, so that nothing says whose they are; each of one byte, in which there is no record.
    assert_eq!(import(|_| (0, 1000)), u64::from(MANY));
    assert_eq!(import(|number| (number, 0)), 0);
    assert_eq!(import(|number| (number, 1)), 0);
}

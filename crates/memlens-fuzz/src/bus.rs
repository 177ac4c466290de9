//! Bus traces: every stream in every packing.

use memlens_bus::analysis::analyze;
use memlens_bus::format::{
    BusBlock, BusReader, BusWriter, FormatError, Header, HugeKind, MergedBus, ObjectEvent, ObjectReader,
    ObjectWriter, Packing, PageEvent, PageReader, PageRecord, PageWriter, Stream, TagRegion, TruthKind,
    TruthReader, TruthRecord, TruthWriter,
};
use std::num::NonZeroUsize;

fn header(stream: Stream, packing: Packing) -> Header {
    Header {
        sequence_bits: 8,
        duration_bits: 12,
        address_bits: 30,
        records_per_packet: 2,
        frame_bytes: 3,
        tags: Some(TagRegion { start: 1 << 30, bytes: 1 << 20, sequence_bits: 8 }),
        ..Header::new(stream, packing)
    }
}

fn pages() -> [PageRecord; 4] {
    [
        PageRecord::new(PageEvent::Table, 4, 1, 9, 0, 0),
        PageRecord { more: true, ..PageRecord::new(PageEvent::Map, 1, 1, 5, 77, 0x8008) },
        PageRecord {
            huge: Some(HugeKind::Hugetlb),
            ..PageRecord::new(PageEvent::Map, 2, 1, 512, 1024, 0xa010)
        },
        PageRecord::new(PageEvent::Unmap, 1, 1, 5, 77, 0),
    ]
}

/// Bus records: data, walks, tags, what nothing maps.
fn lines() -> [u64; 8] {
    [0x140, 0x200, (1 << 30) / 64, (1 << 30) / 64 + 1, 0x8000, 7, (1 << 30) / 64 + 256, 0x141]
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for packing in [Packing::Blocks, Packing::Fixed, Packing::Text] {
        let mut writer = BusWriter::new(Vec::new(), header(Stream::Bus, packing)).expect("written");
        for (at, line) in lines().into_iter().enumerate() {
            writer.record(line, at as u64 * 70, at % 3 == 0, u64::from(at == 5)).expect("written");
        }
        seeds.push(writer.finish().expect("written"));
    }
    for packing in [Packing::Blocks, Packing::Ptat] {
        let mut writer = PageWriter::new(Vec::new(), header(Stream::Pages, packing)).expect("written");
        pages().iter().for_each(|record| writer.record(record).expect("written"));
        seeds.push(writer.finish().expect("written"));
    }
    // Numbers that go back: each time nearly all numbers that there are seem lost.
    let mut back = header(Stream::Bus, Packing::Text).to_line().into_bytes();
    back.extend(b"seq,duration,rw,paddr\n9,1,r,0x5000\n7,1,w,0x8000\n5,1,r,0x40\n3,1,r,0x80\n");
    seeds.push(back);
    let mut objects =
        ObjectWriter::new(Vec::new(), &header(Stream::Objects, Packing::Text)).expect("written");
    for line in [
        "object 1 1 heap a",
        "region 1 0x4d000 4096 1",
        "block 1 1 0x4d010 100 1",
        "tag",
        "fork 1 2",
        "exit 1",
    ] {
        objects.event(&ObjectEvent::parse(line).expect("an event")).expect("written");
    }
    seeds.push(objects.finish().expect("written"));
    let mut truth = TruthWriter::new(Vec::new(), &header(Stream::Truth, Packing::Blocks)).expect("written");
    let record = TruthRecord { kind: TruthKind::Walk, level: 1, pid: 1, object: 1, vaddr: 0x4d000 };
    truth.record(record).expect("written");
    seeds.push(truth.finish().expect("written"));
    seeds
}

/// Lets a reader go on behind lines that make no sense; each of them is passed over.
fn all<T>(bytes: &[u8], mut next: impl FnMut() -> Result<Option<T>, FormatError>) -> Vec<T> {
    let mut found = Vec::new();
    let mut bad = 0;
    loop {
        match next() {
            Ok(Some(item)) => found.push(item),
            Ok(None) => return found,
            Err(FormatError::Line { line, .. }) => {
                bad += 1;
                assert!(line <= bytes.len() as u64 + 1 && bad <= bytes.len(), "it does not get on");
            }
            Err(error) => panic!("memory can be read: {error}"),
        }
    }
}

pub(crate) fn check(bytes: &[u8]) {
    let Ok(header) = Header::read(&mut &bytes[..]) else { return };
    let again = Header::read(&mut header.to_line().as_bytes()).expect("what was read can be read again");
    assert_eq!(again, header);
    match header.stream {
        Stream::Bus => check_bus(bytes, &header),
        Stream::Pages => check_pages(bytes, &header),
        Stream::Objects => {
            let Ok(mut reader) = ObjectReader::new(bytes) else { return };
            for event in all(bytes, || reader.next_event()) {
                assert_eq!(
                    ObjectEvent::parse(&event.to_line()).as_ref().map(ObjectEvent::to_line),
                    Ok(event.to_line())
                );
            }
        }
        Stream::Truth => {
            let Ok(mut reader) = TruthReader::new(bytes) else { return };
            for number in 0..4 {
                reader.record(number).expect("memory can be read");
            }
        }
    }
}

fn check_bus(bytes: &[u8], header: &Header) {
    let Ok(mut reader) = BusReader::new(bytes) else { return };
    let mut expected = 0;
    let blocks = all(bytes, || {
        let mut block = BusBlock::default();
        Ok(reader.next_block(&mut block)?.then_some(block))
    });
    let mut records = 0;
    for block in &blocks {
        assert_eq!(block.first, expected, "no record is without number");
        assert_eq!((block.durations.len(), block.writes.len()), (block.len(), block.len()));
        assert_eq!(block.iter().count(), block.len());
        expected = block.next();
        records += block.len() as u64;
    }
    // Its analysis under sound events ends, and counts every record once.
    let make = |stream, packing| Header { packing, stream, ..header.clone() };
    let mut pages_out = PageWriter::new(Vec::new(), make(Stream::Pages, Packing::Blocks)).expect("written");
    pages().iter().for_each(|record| pages_out.record(record).expect("written"));
    let pages = pages_out.finish().expect("written");
    let bus = MergedBus::new(vec![BusReader::new(bytes).expect("read before")]).expect("one card");
    let pages = PageReader::new(&pages[..]).ok();
    let found = analyze(bus, pages, None::<ObjectReader<&[u8]>>, NonZeroUsize::MIN);
    let totals = found.expect("memory can be read").totals;
    let by_kind = [
        totals.data_reads,
        totals.data_writes,
        totals.walk_reads.iter().sum(),
        totals.table_writes,
        totals.tags,
        totals.kernel,
        totals.page_cache,
        totals.device,
        totals.unknown,
        totals.out_of_range,
    ];
    assert_eq!((totals.records, by_kind.iter().sum::<u64>()), (records, records), "{totals:?}");
}

fn check_pages(bytes: &[u8], header: &Header) {
    let Ok(mut reader) = PageReader::new(bytes) else { return };
    let records = all(bytes, || reader.next_record());
    if header.packing == Packing::Blocks {
        for record in &records {
            assert_eq!(PageRecord::from_bytes(&record.to_bytes()), Some(*record));
        }
    }
    // Whatever the events are, sound bus records can be analysed under them.
    let mut bus = BusWriter::new(
        Vec::new(),
        Header { packing: Packing::Blocks, stream: Stream::Bus, ..header.clone() },
    )
    .expect("written");
    lines().into_iter().for_each(|line| bus.record(line, 1, false, 0).expect("written"));
    let bus = bus.finish().expect("written");
    let bus = MergedBus::new(vec![BusReader::new(&bus[..]).expect("sound")]).expect("one card");
    analyze(bus, PageReader::new(bytes).ok(), None::<ObjectReader<&[u8]>>, NonZeroUsize::MIN)
        .expect("memory can be read");
}

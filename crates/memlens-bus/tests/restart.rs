//! An analysis that was stopped anywhere goes on from its checkpoint to the result of one that was not.

use memlens_bus::analysis::{Analysis, Checkpoints, analyze, analyze_restartable};
use memlens_bus::format::{
    BusReader, BusWriter, FormatError, Header, MergedBus, ObjectEvent, ObjectReader, ObjectWriter, Packing,
    PageEvent, PageReader, PageRecord, PageWriter, Stream, TagRegion,
};
use std::io::{self, BufRead, Cursor, Read, Seek, SeekFrom};
use std::num::NonZeroUsize;

/// Records in the trace: more than four blocks.
const RECORDS: u64 = 300_000;
/// A tag for each.
const EVERY: u64 = 512;

/// The files of a trace, in memory.
struct Trace {
    bus: Vec<Vec<u8>>,
    pages: Vec<u8>,
    objects: Vec<u8>,
}

/// A file that breaks off: what is left to be read before it fails.
struct Breaking {
    file: Cursor<Vec<u8>>,
    left: usize,
}

impl Read for Breaking {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let ready = self.fill_buf()?;
        let count = ready.len().min(into.len());
        into[..count].copy_from_slice(&ready[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Breaking {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.left == 0 {
            return Err(io::Error::other("the disk is gone"));
        }
        let (ready, left) = (self.file.fill_buf()?, self.left);
        Ok(&ready[..ready.len().min(left)])
    }

    fn consume(&mut self, count: usize) {
        self.left -= count;
        self.file.consume(count);
    }
}

impl Seek for Breaking {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Records of some arrays and their page tables on two cards, with mappings and objects that change throughout,
/// lost records, missing tags, and lines that make no sense.
fn trace(packing: Packing, page_packing: Packing) -> Trace {
    let tags = TagRegion { start: 1 << 33, bytes: 32 << 20, sequence_bits: 18 };
    let widths = Header {
        sequence_bits: 20,
        duration_bits: 10,
        address_bits: 33,
        frame_bytes: 4,
        ..Header::new(Stream::Bus, packing)
    };
    let header = Header { tags: Some(tags), dump: true, capture: "restart".into(), ..widths };
    let text_header = header.of(Stream::Objects, Packing::Text);
    let mut cards = [0, 1].map(|channel| {
        let header = Header { channel, dump: false, ..header.clone() };
        BusWriter::new(Vec::new(), header).expect("written")
    });
    let mut pages = PageWriter::new(Vec::new(), header.of(Stream::Pages, page_packing)).expect("written");
    let mut objects = ObjectWriter::new(Vec::new(), &text_header).expect("written");
    let map = |page: u64, frame: u64| {
        PageRecord::new(PageEvent::Map, 1, 1 + (page % 3) as u32, frame, page, (1 << 30) + page % 4096 * 8)
    };
    for page in 0..1024 {
        pages.record(&map(page, page)).expect("written");
    }
    pages.record(&PageRecord::new(PageEvent::DumpEnd, 0, 0, 0, 0, 0)).expect("written");
    let mut event =
        |line: String| objects.event(&ObjectEvent::parse(&line).expect("an event")).expect("written");
    for pid in 1..4 {
        event(format!("object {pid} 1 heap a{pid}"));
        event(format!("object {pid} 2 mmap b{pid}"));
        event(format!("region {pid} 0 0x400000 2"));
    }
    event("started".into());
    let (mut random, mut page_tag, mut object_tag) = (1_u64, 0_u64, 0_u64);
    // Cycles of each card's last record, and records that it lost since.
    let mut last = [(0_u64, 0_u64); 2];
    for at in 0..RECORDS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = random >> 33;
        let line = match at % EVERY {
            100 => {
                pages.record(&map(draw % 1024, draw % 2048)).expect("written");
                page_tag += 1;
                (tags.start >> 6) + page_tag - 1
            }
            300 => {
                let (pid, start) = (1 + draw % 3, draw % 1000 * 4096 + 40);
                event(format!("block {pid} 1 {start} 5000 1"));
                event("tag".into());
                object_tag += 1;
                (tags.start >> 6) + (1 << 18) + object_tag - 1
            }
            _ if at % 9 == 0 => (1 << 24) + draw % 128,
            _ => draw % (2048 * 64),
        };
        let card = (line % 2) as usize;
        if draw % 97 == 0 {
            last[card].1 += 1;
            continue;
        }
        let (before, lost) = last[card];
        cards[card].record(line, at - before, draw % 5 == 0, lost).expect("written");
        last[card] = (at, 0);
    }
    let mut objects = objects.finish().expect("written");
    let middle = objects.len() / 2;
    let line = middle + objects[middle..].iter().position(|&byte| byte == b'\n').expect("lines") + 1;
    objects.splice(line..line, *b"nonsense\n");
    let mut bus = cards.map(|card| card.finish().expect("written"));
    if packing == Packing::Text {
        let middle = bus[1].len() / 2;
        let line = middle + bus[1][middle..].iter().position(|&byte| byte == b'\n').expect("lines") + 1;
        bus[1].splice(line..line, *b"1,2,x,3\n");
    }
    Trace { bus: bus.into(), pages: pages.finish().expect("written"), objects }
}

type Streams =
    (MergedBus<Breaking>, Option<PageReader<Cursor<Vec<u8>>>>, Option<ObjectReader<Cursor<Vec<u8>>>>);

/// The streams, of which each card's can be read up to so many bytes.
fn open(trace: &Trace, left: usize) -> Result<Streams, FormatError> {
    let reader = |bytes: &Vec<u8>| BusReader::new(Breaking { file: Cursor::new(bytes.clone()), left });
    let bus = MergedBus::new(trace.bus.iter().map(reader).collect::<Result<_, _>>()?)?;
    let pages = PageReader::new(Cursor::new(trace.pages.clone()))?;
    let objects = ObjectReader::new(Cursor::new(trace.objects.clone()))?;
    Ok((bus, Some(pages), Some(objects)))
}

fn threads(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).expect("not 0")
}

fn text(analysis: &Analysis) -> String {
    format!("{}{:?}", serde_json::to_string(analysis).expect("numbers and texts"), analysis.points)
}

#[test]
fn an_analysis_goes_on_where_it_was_stopped() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let path = place.path().join("checkpoint");
    for (packing, page_packing) in [
        (Packing::Blocks, Packing::Blocks),
        (Packing::Fixed, Packing::Ptat),
        (Packing::Text, Packing::Blocks),
    ] {
        let trace = trace(packing, page_packing);
        let whole = trace.bus[0].len();
        let (bus, pages, objects) = open(&trace, usize::MAX).expect("sound");
        let expected = analyze(bus, pages, objects, threads(1)).expect("readable");
        assert!(
            expected.losses.gaps > 100 && expected.totals.leaf_reads[0] > 10_000,
            "{:?}",
            expected.totals
        );
        assert!(expected.losses.bad_lines > 0 && expected.losses.page_tags.missing > 0);
        // Stopped further and further on, each time going on from the last checkpoint.
        let mut checkpoints = 0;
        for part in 1..8 {
            let (bus, pages, objects) = open(&trace, whole * part / 8).expect("sound");
            // What is read on from a checkpoint counts from there.
            let mut keeper = Checkpoints::new(&path, 1);
            let stopped = analyze_restartable(bus, pages, objects, threads(1), &mut keeper);
            assert!(
                matches!(stopped, Err(FormatError::Io { .. })) || part > 4,
                "{packing:?} {part}: {stopped:?}"
            );
            if stopped.is_ok() {
                break;
            }
            checkpoints += usize::from(path.exists());
        }
        assert!(checkpoints >= 2, "{packing:?}: {checkpoints}");
        let (bus, pages, objects) = open(&trace, usize::MAX).expect("sound");
        // On another number of threads than before.
        let mut keeper = Checkpoints::new(&path, 1);
        let found = analyze_restartable(bus, pages, objects, threads(2), &mut keeper).expect("readable");
        assert!(!path.exists(), "it is removed at the end");
        assert!(text(&found) == text(&expected), "{packing:?}: {found:?}\n{expected:?}");
    }
}

/// One card's records with so few events that what lies between two of them is for all threads: a frame in three is never
/// mapped, objects share lines, each second event is needed before its tag, and one block is damaged.
fn trace_with_long_stretches() -> Trace {
    const EVERY: u64 = 40_000;
    let tags = TagRegion { start: 1 << 33, bytes: 32 << 20, sequence_bits: 18 };
    let header = Header { tags: Some(tags), dump: true, ..Header::new(Stream::Bus, Packing::Blocks) };
    let mut bus = BusWriter::new(Vec::new(), header.clone()).expect("written");
    let mut pages = PageWriter::new(Vec::new(), header.of(Stream::Pages, Packing::Blocks)).expect("written");
    let mut objects =
        ObjectWriter::new(Vec::new(), &header.of(Stream::Objects, Packing::Text)).expect("written");
    let map = |page: u64| PageRecord::new(PageEvent::Map, 1, 1, page, page, (1 << 30) + page * 8);
    for page in 0..1024 {
        pages.record(&map(page)).expect("written");
    }
    pages.record(&PageRecord::new(PageEvent::DumpEnd, 0, 0, 0, 0, 0)).expect("written");
    for id in 1..60 {
        for line in [format!("object 1 {id} heap a{id}"), format!("block 1 1 {} 70000 {id}", id * 70_000)] {
            objects.event(&ObjectEvent::parse(&line).expect("an event")).expect("written");
        }
    }
    objects.event(&ObjectEvent::Started).expect("written");
    let (mut random, mut tag) = (1_u64, 0_u64);
    for at in 0..400_000_u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = random >> 33;
        let line = match at % EVERY {
            9000 => {
                pages.record(&map(2000 + tag)).expect("written");
                tag += 1;
                (tags.start >> 6) + tag - 1
            }
            // The frame of the tag that comes next, or of the one that came last.
            8000 if tag % 2 == 1 => (2000 + tag) * 64,
            30_000 => (2000 + tag - 1) * 64,
            _ if at % 7 == 0 => (1 << 24) + draw % 128,
            _ => draw % (1536 * 64),
        };
        bus.record(line, draw % 90, draw % 5 == 0, u64::from(draw % 50_000 == 0)).expect("written");
    }
    let mut bus = bus.finish().expect("written");
    // Somewhere in the third block.
    let third = bus.windows(4).enumerate().filter(|(_, four)| four == b"MLBK").map(|(at, _)| at).nth(2);
    bus[third.expect("several blocks") + 200] ^= 1;
    Trace {
        bus: vec![bus],
        pages: pages.finish().expect("written"),
        objects: objects.finish().expect("written"),
    }
}

#[test]
fn any_number_of_threads_finds_the_same() {
    let many = trace(Packing::Fixed, Packing::Blocks);
    for (what, trace) in [("many events", many), ("few events", trace_with_long_stretches())] {
        let found = |count| {
            let (bus, pages, objects) = open(&trace, usize::MAX).expect("sound");
            analyze(bus, pages, objects, threads(count)).expect("readable")
        };
        let one = found(1);
        let (early, unknown) = (one.losses.page_tags.early, one.totals.unknown);
        assert!(early >= 4 && unknown > 1000 && one.losses.gaps > 3, "{what}: {:?} {unknown}", one.losses);
        for count in [2, 3, 8] {
            assert!(text(&found(count)) == text(&one), "{what} on {count} threads");
        }
    }
}

#[test]
fn a_damaged_or_foreign_checkpoint_is_refused() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let path = place.path().join("checkpoint");
    let first = trace(Packing::Blocks, Packing::Blocks);
    let (bus, pages, objects) = open(&first, first.bus[0].len() * 3 / 4).expect("sound");
    assert!(analyze_restartable(bus, pages, objects, threads(1), &mut Checkpoints::new(&path, 1)).is_err());
    let sound = std::fs::read(&path).expect("written");
    let refused = |bytes: &[u8], trace: &Trace| {
        std::fs::write(&path, bytes).expect("written");
        let (bus, pages, objects) = open(trace, usize::MAX).expect("sound");
        match analyze_restartable(bus, pages, objects, threads(1), &mut Checkpoints::new(&path, 1)) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("accepted"),
        }
    };
    let mut flipped = sound.clone();
    *flipped.last_mut().expect("not empty") ^= 1;
    assert!(refused(&flipped, &first).contains("damaged"));
    assert!(refused(&sound[..sound.len() / 2], &first).contains("damaged"));
    assert!(refused(b"", &first).contains("is none"));
    assert!(refused(b"memlens-bus-checkpoint 9 1\n", &first).contains("version 9"));
    let other = trace(Packing::Fixed, Packing::Blocks);
    assert!(refused(&sound, &other).contains("of another trace"));
}

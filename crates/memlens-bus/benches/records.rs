//! Records a second that an analysis takes, by processor time and by the clock: decoding, reverse table, objects; on one
//! thread, and on as many as are given or as there are processors.
//!
//!     cargo bench -p memlens-bus --bench records [-- MILLIONS [EVENT_every]]
//!
//! The trace has a gigabyte of small pages in eight arrays, half of the records in order, half at random, a
//! sixteenth of them page walks, with an event for each 4,096 records, or for as many as are given.

use memlens_bus::analysis::analyze;
use memlens_bus::format::{
    BusReader, BusWriter, Header, MergedBus, ObjectEvent, ObjectReader, ObjectWriter, Packing, PageEvent,
    PageReader, PageRecord, PageWriter, Stream, TagRegion,
};
use std::num::NonZeroUsize;
use std::time::Instant;

const PAGES: u64 = 1 << 18;
const ARRAYS: u64 = 8;
const TABLES: u64 = 1 << 20;

/// Processor seconds of this process so far, in steps of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

fn main() {
    let mut numbers = std::env::args().filter_map(|word| word.parse::<u64>().ok());
    let (millions, every) = (numbers.next().unwrap_or(16), numbers.next().unwrap_or(4096));
    let given = numbers.next().and_then(|threads| NonZeroUsize::new(threads as usize));
    let all = given.or(std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let records = millions * 1_000_000;
    let tags = TagRegion { start: 1 << 36, bytes: 32 << 20, sequence_bits: 18 };
    let header = Header { tags: Some(tags), dump: true, ..Header::new(Stream::Bus, Packing::Blocks) };
    let mut bus = BusWriter::new(Vec::new(), header.clone()).expect("written");
    let mut pages = PageWriter::new(Vec::new(), header.of(Stream::Pages, Packing::Blocks)).expect("written");
    let mut objects = ObjectWriter::new(Vec::new(), &header).expect("written");
    let entry = |page: u64| (TABLES << 12) + page * 8;
    let map = |page: u64| PageRecord::new(PageEvent::Map, 1, 1, page, page, entry(page));
    for page in 0..PAGES {
        pages.record(&PageRecord { more: true, ..map(page) }).expect("written");
    }
    pages.record(&PageRecord::new(PageEvent::DumpEnd, 0, 0, 0, 0, 0)).expect("written");
    for array in 0..ARRAYS {
        let (id, bytes) = (array as u32 + 1, (PAGES / ARRAYS) << 12);
        for line in
            [format!("object 1 {id} heap a{array}"), format!("block 1 1 {:#x} {bytes} {id}", array * bytes)]
        {
            objects.event(&ObjectEvent::parse(&line).expect("an event")).expect("written");
        }
    }
    objects.event(&ObjectEvent::Started).expect("written");
    let (mut random, mut tag) = (1_u64, 0);
    for at in 0..records {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let line = match at % 16 {
            _ if at % every == every - 1 => {
                pages.record(&map(tag % PAGES)).expect("written");
                tag += 1;
                (tags.start >> 6) + (tag - 1) % (1 << 18)
            }
            0 => entry((random >> 33) % PAGES) >> 6,
            odd if odd % 2 == 1 => (random >> 33) % (PAGES * 64),
            _ => at * 3 % (PAGES * 64),
        };
        bus.record(line, 7 + at % 3, at % 4 == 0 && at % 16 != 0, 0).expect("written");
    }
    let (bus, pages) = (bus.finish().expect("written"), pages.finish().expect("written"));
    let objects = objects.finish().expect("written");
    println!("{millions} million records, {:.2} bytes each", bus.len() as f64 / records as f64);
    for threads in [NonZeroUsize::MIN, all, NonZeroUsize::MIN, all, NonZeroUsize::MIN, all] {
        let (start, cpu) = (Instant::now(), cpu_seconds());
        let source = MergedBus::new(vec![BusReader::new(&bus[..]).expect("sound")]).expect("one card");
        let found = analyze(
            source,
            Some(PageReader::new(&pages[..]).expect("sound")),
            Some(ObjectReader::new(&objects[..]).expect("sound")),
            threads,
        );
        let totals = found.expect("readable").totals;
        assert_eq!((totals.records, totals.unknown, totals.tags), (records, 0, records / every));
        let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        let rate = |seconds: f64| records as f64 / seconds / 1e6;
        println!(
            "{threads} threads: {:.1} million a second of processor time, {:.1} of wall time",
            rate(cpu),
            rate(wall)
        );
    }
}

//! Nanoseconds a reference of the obvious and the staged model, on generated streams.
//!
//! `cargo bench -p memlens-sim --bench ns_per_reference [-- MACHINE [STREAM | FILE...]]` prints one
//! row a stream; misses of all engines are compared on the way. STREAM is a part of a generated
//! stream's name. A FILE holds recorded accesses, 16 bytes each, little-endian: address (8), kind
//! as the code of [`AccessKind`] (4), size in bytes (4).

use memlens_sim::{Batch, CoreId, MachineDescription, Model, Outcome, PlainModel, SimdLevel, Width};
use memlens_types::{AccessAttr, AccessKind};
use std::sync::OnceLock;
use std::time::Instant;

/// Addresses and attributes of a stream.
type Stream = (Vec<u64>, Vec<AccessAttr>);
/// A model's `access` on one core.
type Access = Box<dyn FnMut(Batch<'_>, &mut Outcome)>;

const REFERENCES: usize = 2 << 20;
const BATCH: usize = 16 << 10;

/// Nanoseconds this thread has run, so that neighbours on a shared machine do not count; wall time
/// where the system does not tell.
fn thread_time_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let running = stat.and_then(|stat| stat.split(' ').next()?.parse().ok());
    running.unwrap_or_else(|| START.get_or_init(Instant::now).elapsed().as_nanos() as u64)
}

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A stream made by a function of position and generator: address, and whether it is a store.
fn stream(mut address: impl FnMut(u64, &mut Rng) -> u64) -> Stream {
    let mut rng = Rng(88172645463325252);
    let mut addrs = Vec::with_capacity(REFERENCES);
    let mut attrs = Vec::with_capacity(REFERENCES);
    for at in 0..REFERENCES as u64 {
        addrs.push(address(at, &mut rng) & !7);
        let kind = if rng.next() % 10 < 3 { AccessKind::Store } else { AccessKind::Load };
        attrs.push(AccessAttr::new(kind, 8));
    }
    (addrs, attrs)
}

const STACK: u64 = 0x7ffd_1234_0000;
const HEAP: u64 = 0x5555_5556_0000;
const BIG: u64 = 0x7f00_0000_0000;

/// Recorded accesses, as many as the other streams have at most.
fn recorded(path: &str) -> Stream {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let records = bytes.chunks_exact(16).take(REFERENCES);
    let word = |record: &[u8], at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("4 bytes"));
    let attr = |record: &[u8]| {
        let kind = AccessKind::from_code(word(record, 8) as u8).expect("a kind");
        AccessAttr::new(kind, word(record, 12))
    };
    records.map(|record| (u64::from_le_bytes(record[..8].try_into().expect("8 bytes")), attr(record))).unzip()
}

/// Skewed to the front of a region: line i about as often as 1 / i.
fn zipf(rng: &mut Rng, bits: u64) -> u64 {
    let draw = rng.next();
    (draw >> 16) % (1 << (6 + draw % (bits - 5)))
}

fn main() {
    // cargo passes `--bench`.
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with('-'));
    let name = args.next().unwrap_or_else(|| "host".into());
    let rest: Vec<String> = args.collect();
    let files = !rest.is_empty() && rest.iter().all(|arg| std::path::Path::new(arg).is_file());
    let wanted = rest.first().filter(|_| !files).cloned().unwrap_or_default();
    let machine = MachineDescription::named(&name).unwrap_or_else(|error| panic!("{error}"));
    println!("machine {name}: batches of {BATCH}");
    println!(
        "{:28} {:>7} {:>7} {:>7} {:>7} | {:>7} {:>7} {:>7} {:>7}   ns a reference",
        "stream", "L1 %", "L2 %", "LLC %", "dTLB %", "plain", "scalar", "avx2", "avx512"
    );
    let streams: Vec<(&str, Stream)> = if files {
        rest.iter().map(|path| (path.rsplit('/').next().unwrap_or(path), recorded(path))).collect()
    } else {
        generated()
    };
    for (name, (addrs, attrs)) in streams.iter().filter(|(name, _)| name.contains(&wanted)) {
        run(&machine, name, addrs, attrs);
    }
}

fn generated() -> Vec<(&'static str, Stream)> {
    vec![
        ("sequential 8 B over 64 MB", stream(|at, _| BIG + at * 8 % (64 << 20))),
        (
            "stack and heap, warm",
            stream(
                |_, rng| if rng.next() % 2 == 0 { STACK + rng.next() % 512 } else { HEAP + zipf(rng, 14) },
            ),
        ),
        (
            // As compiled code: spills and locals, walks through three arrays, some pointer chasing.
            "stack, 3 walks, zipf (98 %)",
            stream(|at, rng| match rng.next() % 20 {
                0..8 => STACK + rng.next() % 192,
                8..11 => BIG + at / 4 % (1 << 20),
                11..14 => BIG + (1 << 32) + at / 4 % (1 << 20),
                14..18 => HEAP + (1 << 20) + at / 4 % (1 << 16),
                _ => HEAP + zipf(rng, 15),
            }),
        ),
        (
            "the same with 1 GB of zipf",
            stream(|at, rng| match rng.next() % 20 {
                0..8 => STACK + rng.next() % 192,
                8..11 => BIG + at / 4 % (1 << 20),
                11..14 => BIG + (1 << 32) + at / 4 % (1 << 20),
                14..18 => HEAP + (1 << 20) + at / 4 % (1 << 16),
                18 => HEAP + zipf(rng, 15),
                _ => BIG + (2 << 32) + zipf(rng, 30),
            }),
        ),
        ("zipf over 1 MB", stream(|_, rng| HEAP + zipf(rng, 20))),
        ("zipf over 1 GB", stream(|_, rng| BIG + zipf(rng, 30))),
        ("random in 32 KB", stream(|_, rng| HEAP + rng.next() % (32 << 10))),
        ("random in 16 MB", stream(|_, rng| BIG + rng.next() % (16 << 20))),
        ("random in 4 GB", stream(|_, rng| BIG + rng.next() % (4 << 30))),
    ]
}

/// Runs all engines over a stream and prints its row.
fn run(machine: &MachineDescription, name: &str, addrs: &[u64], attrs: &[AccessAttr]) {
    let mut reference = None;
    let mut row = String::new();
    let mut time = |label: &str, make: &dyn Fn() -> Access| {
        let mut sums = [0; 6];
        // The system counts in ticks of some milliseconds: time enough passes of the stream.
        let passes = if label == "plain" { 2 } else { 16 };
        let mut access = make();
        let mut out = Outcome::default();
        let start = thread_time_ns();
        for pass in 0..passes {
            for (addrs, attrs) in addrs.chunks(BATCH).zip(attrs.chunks(BATCH)) {
                out.clear();
                access(Batch { addrs, attrs }, &mut out);
                if pass == 0 {
                    let lists =
                        [&out.l1_misses, &out.l2_misses, &out.llc_misses, &out.dtlb_misses, &out.stlb_misses];
                    for (sum, list) in sums.iter_mut().zip(lists) {
                        *sum += list.len();
                    }
                    sums[5] += out.dram_writes.len();
                }
            }
        }
        let ns = (thread_time_ns() - start) as f64 / (passes * addrs.len()) as f64;
        assert_eq!(*reference.get_or_insert(sums), sums, "{name}: {label} disagrees");
        row += &format!(" {ns:7.2}");
        sums
    };
    time("plain", &|| {
        let mut model = PlainModel::new(machine).expect("valid");
        Box::new(move |batch, out| model.access(CoreId(0), batch, out))
    });
    let mut sums = [0; 6];
    for width in [Width::Scalar, Width::Avx2, Width::Avx512] {
        sums = time("staged", &|| {
            let mut model = Model::new(machine, SimdLevel::detect_up_to(width)).expect("valid");
            Box::new(move |batch, out| model.access(CoreId(0), batch, out))
        });
    }
    let percent = |count: usize| 100.0 * count as f64 / addrs.len() as f64;
    println!(
        "{name:28} {:7.2} {:7.2} {:7.2} {:7.2} |{row}",
        percent(sums[0]),
        percent(sums[1]),
        percent(sums[2]),
        percent(sums[3])
    );
}

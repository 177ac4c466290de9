//! Nanoseconds a reference of the obvious model and of the engines in its place, on generated streams.
//! Streams of one core run on the staged engine, those of several on the coherent one.
//!
//! `cargo bench -p memlens-sim --bench ns_per_reference [-- MACHINE [STREAM | FILE...]]` prints one
//! row a stream; misses of all engines are compared on the way. STREAM is a part of a generated
//! stream's name. A FILE holds recorded accesses, 16 bytes each, little-endian: address (8), kind
//! as the code of [`AccessKind`] (4), size in bytes (4).

use memlens_sim::{Batch, CoreId, MachineDescription, Model, Outcome, PlainModel, SimdLevel, Width};
use memlens_types::{AccessAttr, AccessKind};
use std::sync::OnceLock;
use std::time::Instant;

/// Addresses and attributes of a stream, and how many cores take turns in it.
struct Stream {
    addrs: Vec<u64>,
    attrs: Vec<AccessAttr>,
    cores: u16,
}

/// A model's `access`.
type Access = Box<dyn FnMut(CoreId, Batch<'_>, &mut Outcome)>;

const REFERENCES: usize = 2 << 20;
const BATCH: usize = 16 << 10;
/// Accesses that a core makes in a row where there are several.
const TURN: usize = 400;

impl Stream {
    /// What the cores run, in order.
    fn turns(&self) -> impl Iterator<Item = (CoreId, Batch<'_>)> {
        let length = if self.cores == 1 { BATCH } else { TURN };
        let pieces = self.addrs.chunks(length).zip(self.attrs.chunks(length)).enumerate();
        pieces.map(|(turn, (addrs, attrs))| (self.core_of(turn), Batch { addrs, attrs }))
    }

    fn core_of(&self, turn: usize) -> CoreId {
        CoreId((turn % usize::from(self.cores)) as u16)
    }
}

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

/// A stream made by a function of position and generator; three of ten accesses are stores.
fn stream(mut address: impl FnMut(u64, &mut Rng) -> u64) -> Stream {
    several(1, 3, |_, at, rng| address(at, rng))
}

/// A stream of several cores made by a function of core, its position and generator; `stores` of ten
/// accesses are stores.
fn several(cores: u16, stores: u64, mut address: impl FnMut(u64, u64, &mut Rng) -> u64) -> Stream {
    let mut rng = Rng(88172645463325252);
    let mut addrs = Vec::with_capacity(REFERENCES);
    let mut attrs = Vec::with_capacity(REFERENCES);
    for at in 0..REFERENCES as u64 {
        let (turn, within) = (at / TURN as u64, at % TURN as u64);
        let (round, core) = (turn / u64::from(cores), turn % u64::from(cores));
        let own = if cores == 1 { at } else { round * TURN as u64 + within };
        addrs.push(address(core, own, &mut rng) & !7);
        let kind = if rng.next() % 10 < stores { AccessKind::Store } else { AccessKind::Load };
        attrs.push(AccessAttr::new(kind, 8));
    }
    Stream { addrs, attrs, cores }
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
    let (addrs, attrs) = records
        .map(|record| (u64::from_le_bytes(record[..8].try_into().expect("8 bytes")), attr(record)))
        .unzip();
    Stream { addrs, attrs, cores: 1 }
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
    for (name, stream) in streams.iter().filter(|(name, _)| name.contains(&wanted)) {
        run(&machine, name, stream);
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
        ("2 cores, private (98 %)", several(2, 3, private)),
        ("8 cores, private (98 %)", several(8, 3, private)),
        ("8 cores, private 1 MB", several(8, 3, |core, _, rng| BIG + (core << 32) + zipf(rng, 20))),
        ("8 cores, walks over 64 MB", several(8, 3, |core, at, _| BIG + (core << 26) + at * 8 % (64 << 20))),
        (
            // A table that all read, besides what is their own.
            "8 cores, reading 1 MB",
            several(
                8,
                3,
                |core, at, rng| {
                    if rng.next() % 4 == 0 { BIG + zipf(rng, 20) } else { private(core, at, rng) }
                },
            ),
        ),
        ("8 cores, sharing 16 KB", several(8, 3, |_, _, rng| HEAP + zipf(rng, 14))),
        ("8 cores, sharing 1 MB", several(8, 3, |_, _, rng| HEAP + zipf(rng, 20))),
        ("8 cores, false sharing", several(8, 5, |core, _, rng| HEAP + rng.next() % 64 * 64 + core * 8)),
    ]
}

/// Each core its own stack, a walk through an array of its own and some pointer chasing.
fn private(core: u64, at: u64, rng: &mut Rng) -> u64 {
    let own = core << 32;
    match rng.next() % 20 {
        0..8 => STACK + (core << 23) + rng.next() % 192,
        8..14 => BIG + own + at / 4 % (1 << 20),
        14..18 => HEAP + own + at / 4 % (1 << 16),
        _ => HEAP + own + zipf(rng, 15),
    }
}

/// Runs all engines over a stream and prints its row.
fn run(machine: &MachineDescription, name: &str, stream: &Stream) {
    let references = stream.addrs.len();
    let mut reference = None;
    let mut row = String::new();
    let mut time = |label: &str, make: &dyn Fn() -> Access| {
        let mut sums = [0; 7];
        // The system counts in ticks of some milliseconds: time enough passes of the stream.
        let passes = match (label, stream.cores) {
            ("plain", 1) => 2,
            (_, 1) => 16,
            ("plain", _) => 1,
            _ => 4,
        };
        let mut access = make();
        let mut out = Outcome::default();
        let start = thread_time_ns();
        for pass in 0..passes {
            for (core, batch) in stream.turns() {
                out.clear();
                access(core, batch, &mut out);
                if pass == 0 {
                    let lists =
                        [&out.l1_misses, &out.l2_misses, &out.llc_misses, &out.dtlb_misses, &out.stlb_misses];
                    for (sum, list) in sums.iter_mut().zip(lists) {
                        *sum += list.len();
                    }
                    sums[5] += out.dram_writes.len();
                    sums[6] += out.invalidations.len();
                }
            }
        }
        let ns = (thread_time_ns() - start) as f64 / (passes * references) as f64;
        assert_eq!(*reference.get_or_insert(sums), sums, "{name}: {label} disagrees");
        row += &format!(" {ns:7.2}");
        sums
    };
    time("plain", &|| {
        let mut model = PlainModel::new(machine).expect("valid");
        Box::new(move |core, batch, out| model.access(core, batch, out))
    });
    let mut sums = [0; 7];
    for width in [Width::Scalar, Width::Avx2, Width::Avx512] {
        sums = time("fast", &|| {
            let mut model = Model::new(machine, SimdLevel::detect_up_to(width)).expect("valid");
            Box::new(move |core, batch, out| model.access(core, batch, out))
        });
    }
    let percent = |count: usize| 100.0 * count as f64 / references as f64;
    println!(
        "{name:28} {:7.2} {:7.2} {:7.2} {:7.2} |{row}",
        percent(sums[0]),
        percent(sums[1]),
        percent(sums[2]),
        percent(sums[3])
    );
}

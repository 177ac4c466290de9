//! Bursts cut out of exact traces, and what is estimated from them, held against full simulation of the same
//! accesses.
//!
//! `held_against_exact MACHINE TRACE [LENGTH/EVERY[/SEED]...]` reads a trace folder of `memlens record --trace parquet`, and
//! prints a line of JSON for each sampling: bursts of LENGTH references, one in each EVERY, at a random place
//! there, another one with each SEED. Besides, how much data the program has touched by then is told. `bench/locality.py` makes
//! tables of them.

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Instant;

use memlens_locality::{
    Burst, DelinquentComparison, Geometry, Locality, LocalityConfig, Patterns, Reference, Summary, Umi,
    UmiConfig, smallest_covering,
};
use memlens_sim::{
    Batch, CacheDescription, CoreId, MachineDescription, Model, Outcome, SimdLevel, TlbDescription,
};
use memlens_types::{AccessAttr, AccessKind};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use rustc_hash::FxHashSet;

/// Levels in the order in which they are reported.
const LEVELS: [&str; 5] = ["l1", "l2", "llc", "dtlb", "stlb"];
/// What a program's data is counted in, as the kernel does.
const PAGE_BYTES: u64 = 4096;
/// Share of the misses that delinquent loads have.
const SHARE: f64 = 0.9;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Exact misses of one instruction, by level.
#[derive(Clone, Copy, Default)]
struct Exact {
    references: u64,
    reads: u64,
    misses: [u64; LEVELS.len()],
}

/// Cuts bursts out of a stream and feeds them.
struct Sampling {
    thread: Option<u32>,
    length: usize,
    every: u64,
    seed: u64,
    /// References passed of the present stretch, and where its burst begins.
    passed: u64,
    begins: u64,
    random: u64,
    unseen: u64,
    taken: Vec<Reference>,
    locality: Locality,
    patterns: Patterns,
    umi: Umi,
    /// Nanoseconds of this thread spent in the estimator, in patterns, and in the mini-simulation.
    feeding: [u64; 3],
    fed: u64,
}

impl Sampling {
    fn new(length: usize, every: u64, seed: u64, levels: &[Geometry]) -> Result<Self> {
        let mut sampling = Self {
            thread: None,
            length,
            every,
            seed,
            passed: 0,
            begins: 0,
            random: 0x9e37_79b9_7f4a_7c15 ^ seed.wrapping_mul(0xff51_afd7_ed55_8ccd),
            unseen: 0,
            taken: Vec::with_capacity(length),
            locality: Locality::new(&LocalityConfig {
                scopes: 1 << 20,
                ..LocalityConfig::new(levels.to_vec())
            })?,
            patterns: Patterns::new(1 << 20),
            umi: Umi::new(UmiConfig::new(levels[2])),
            feeding: [0; 3],
            fed: 0,
        };
        sampling.begins = sampling.place();
        Ok(sampling)
    }

    /// Where in a stretch the next burst begins.
    fn place(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % (self.every - self.length as u64 + 1)
    }

    fn take(&mut self, thread: u32, mut references: &[Reference], now: u64) {
        // Bursts are of one thread; these programs do nearly all in their first.
        if *self.thread.get_or_insert(thread) != thread {
            return;
        }
        while !references.is_empty() {
            let ends = self.begins + self.length as u64;
            let until = if self.passed < self.begins {
                self.begins
            } else if self.passed < ends {
                ends
            } else {
                self.every
            };
            let (part, rest) = references.split_at(references.len().min((until - self.passed) as usize));
            if (self.begins..ends).contains(&self.passed) {
                self.taken.extend_from_slice(part);
            } else {
                self.unseen += part.len() as u64;
            }
            self.passed += part.len() as u64;
            if self.taken.len() == self.length {
                self.feed(now);
            }
            if self.passed == self.every {
                self.passed = 0;
                self.begins = self.place();
            }
            references = rest;
        }
    }

    fn feed(&mut self, now: u64) {
        let unseen = std::mem::take(&mut self.unseen);
        let references = &self.taken[..];
        let burst = Burst {
            thread: 0,
            start: now,
            weight: self.every as f64,
            unseen_before: Some(unseen.into()),
            references,
        };
        let began = thread_time_ns();
        self.locality.feed(&burst);
        let estimated = thread_time_ns();
        self.patterns.feed(&burst, |reference| Some(reference.owner));
        let looked_at = thread_time_ns();
        // The region that a burst belongs to: the code that it begins in.
        self.umi.analyze(references[0].instruction, &burst);
        let simulated = thread_time_ns();
        for (sum, time) in
            self.feeding.iter_mut().zip([estimated - began, looked_at - estimated, simulated - looked_at])
        {
            *sum += time;
        }
        self.fed += references.len() as u64;
        self.taken.clear();
    }
}

/// Nanoseconds this thread has run, so that neighbours on a shared machine do not count; wall time where the system
/// does not tell.
fn thread_time_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let running = stat.and_then(|stat| stat.split(' ').next()?.parse().ok());
    running.unwrap_or_else(|| START.get_or_init(Instant::now).elapsed().as_nanos() as u64)
}

/// The files of a table, in order.
fn parts(folder: &Path) -> Result<Vec<PathBuf>> {
    let files = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let mut files: Vec<PathBuf> =
        files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "parquet")).collect();
    files.sort();
    Ok(files)
}

/// A column of a row group.
fn column<T: DataType>(group: &dyn RowGroupReader, name: &str) -> Result<Vec<T::T>> {
    let columns = group.metadata().columns();
    let at = columns
        .iter()
        .position(|column| column.column_path().string() == name)
        .ok_or_else(|| format!("no column {name}"))?;
    let rows = group.metadata().num_rows() as usize;
    let mut values = Vec::with_capacity(rows);
    get_typed_column_reader::<T>(group.get_column_reader(at)?).read_records(rows, None, None, &mut values)?;
    Ok(values)
}

/// The rows of a group, with their threads.
fn references(group: &dyn RowGroupReader) -> Result<Vec<(u32, Reference)>> {
    let addresses = column::<Int64Type>(group, "address")?;
    let number = |name| column::<Int32Type>(group, name);
    let (sizes, codes, objects, threads) =
        (number("size")?, number("code")?, number("object")?, number("thread")?);
    let kinds = column::<ByteArrayType>(group, "kind")?;
    let kind = |text: &[u8]| match text {
        b"load" => AccessKind::Load,
        b"store" => AccessKind::Store,
        b"modify" => AccessKind::Modify,
        _ => AccessKind::Prefetch,
    };
    let reference = |row: usize| Reference {
        address: addresses[row] as u64,
        instruction: codes[row] as u32,
        owner: objects[row] as u32,
        size: sizes[row] as u32,
        kind: kind(kinds[row].data()),
    };
    Ok((0..addresses.len()).map(|row| (threads[row] as u32, reference(row))).collect())
}

fn levels(machine: &MachineDescription) -> Result<Vec<Geometry>> {
    let cache = |cache: &CacheDescription| Geometry::cache(cache.bytes, cache.ways, cache.line);
    let tlb = |tlb: &Option<TlbDescription>| {
        let entries = tlb.as_ref().and_then(|tlb| tlb.size_4k).ok_or("the machine lacks a TLB")?;
        Ok::<_, Box<dyn Error>>(Geometry::tlb(entries.entries, entries.ways, 4096))
    };
    let l2 = machine.l2.as_ref().ok_or("the machine has no L2")?;
    Ok(vec![cache(&machine.l1d), cache(l2), cache(&machine.llc), tlb(&machine.dtlb)?, tlb(&machine.stlb)?])
}

/// A machine that ships, and changes to it, as in `e5504+llc=2M,16,64`.
fn machine(text: &str) -> Result<MachineDescription> {
    let mut words = text.split('+');
    let mut machine = MachineDescription::named(words.next().unwrap_or_default())?;
    for change in words {
        machine.apply_override(change)?;
    }
    Ok(machine)
}

/// Simulates everything.
struct Full {
    model: Model,
    outcome: Outcome,
    instructions: Vec<Exact>,
    owners: Vec<Exact>,
    cores: HashMap<u32, u16>,
    most: u16,
}

impl Full {
    fn new(machine: &MachineDescription) -> Result<Self> {
        Ok(Self {
            model: Model::new(machine, SimdLevel::detect())?,
            outcome: Outcome::default(),
            instructions: Vec::new(),
            owners: Vec::new(),
            cores: HashMap::new(),
            most: machine.cores.max(1),
        })
    }

    /// References of one thread in a row.
    fn run(&mut self, thread: u32, references: &[Reference]) {
        let next = self.cores.len() as u16 % self.most;
        let core = *self.cores.entry(thread).or_insert(next);
        let addrs: Vec<u64> = references.iter().map(|reference| reference.address).collect();
        let attrs: Vec<AccessAttr> =
            references.iter().map(|reference| AccessAttr::new(reference.kind, reference.size)).collect();
        self.outcome.clear();
        self.model.access(CoreId(core), Batch { addrs: &addrs, attrs: &attrs }, &mut self.outcome);
        for reference in references.iter().filter(|reference| reference.kind != AccessKind::Prefetch) {
            for exact in
                [row(&mut self.instructions, reference.instruction), row(&mut self.owners, reference.owner)]
            {
                exact.references += 1;
                exact.reads += u64::from(reference.kind.reads());
            }
        }
        let out = &self.outcome;
        let lists = [&out.l1_misses, &out.l2_misses, &out.llc_misses, &out.dtlb_misses, &out.stlb_misses];
        for (level, list) in lists.into_iter().enumerate() {
            for &index in list {
                let reference = &references[index as usize];
                if reference.kind != AccessKind::Prefetch {
                    row(&mut self.instructions, reference.instruction).misses[level] += 1;
                    row(&mut self.owners, reference.owner).misses[level] += 1;
                }
            }
        }
    }
}

fn row(rows: &mut Vec<Exact>, at: u32) -> &mut Exact {
    let at = at as usize;
    if at >= rows.len() {
        rows.resize(at + 1, Exact::default());
    }
    &mut rows[at]
}

fn numbers(values: impl IntoIterator<Item = f64>) -> String {
    let words: Vec<String> = values
        .into_iter()
        .map(|value| if value.is_finite() { format!("{value:.6}") } else { "null".into() })
        .collect();
    format!("[{}]", words.join(","))
}

fn comparison(found: &DelinquentComparison) -> String {
    let optional = |value: Option<f64>| value.map_or("null".to_string(), |value| format!("{value:.4}"));
    format!(
        r#"{{"predicted":{},"exact":{},"common":{},"predicted_coverage":{:.4},"common_coverage":{:.4},"recall":{},"false_positives":{}}}"#,
        found.predicted,
        found.exact,
        found.common,
        found.predicted_coverage,
        found.common_coverage,
        optional(found.recall()),
        optional(found.false_positives()),
    )
}

/// A line of results.
fn report(trace: &str, sampling: &Sampling, full: &Full) -> String {
    let summary = sampling.locality.summary();
    let references: u64 = full.instructions.iter().map(|exact| exact.references).sum();
    let misses = |level: usize| full.instructions.iter().map(|exact| exact.misses[level]).sum::<u64>() as f64;
    let exact = (0..LEVELS.len()).map(|level| misses(level) / references as f64);
    let total = &summary.total;
    let of_total = |value: &dyn Fn(&memlens_locality::Estimate) -> f64| {
        numbers(total.levels.iter().map(|level| value(level) / total.references))
    };
    let fed_misses = |level: usize| -> Vec<(u32, f64)> {
        let rows = (0..).zip(&full.instructions);
        rows.filter(|(_, exact)| exact.reads > 0)
            .map(|(id, exact)| (id, exact.misses[level] as f64))
            .collect()
    };
    let ours = |level: usize| {
        let rows = summary.instructions.iter().filter(|(_, row)| row.reads > 0.0);
        let predicted = smallest_covering(rows.map(|(id, row)| (*id, row.levels[level].misses)), SHARE);
        comparison(&DelinquentComparison::new(&predicted, fed_misses(level), SHARE))
    };
    let umi = comparison(&DelinquentComparison::new(&sampling.umi.delinquent_loads(), fed_misses(2), SHARE));
    // Owners: how many of those with 1 % of the misses or more have the exact share within two standard errors.
    let owners = owners(&summary, full);
    format!(
        concat!(
            r#"{{"trace":"{}","length":{},"every":{},"seed":{},"references":{},"bursts":{},"seen":{},"exact":{},"ours":{},"low":{},"high":{},"error":{},"#,
            r#""umi":{},"delinquent_l1":{},"delinquent_l2":{},"delinquent_llc":{},"delinquent_umi":{},"owners":{},"ns_per_reference":{},"patterns":{}}}"#
        ),
        trace,
        sampling.length,
        sampling.every,
        sampling.seed,
        references,
        summary.bursts,
        sampling.fed,
        numbers(exact),
        of_total(&|level| level.misses),
        of_total(&|level| level.low),
        of_total(&|level| level.high),
        of_total(&|level| level.standard_error),
        sampling.umi.miss_ratio().map_or("null".into(), |ratio| format!("{ratio:.6}")),
        ours(0),
        ours(1),
        ours(2),
        umi,
        owners,
        numbers(sampling.feeding.map(|time| time as f64 / sampling.fed.max(1) as f64)),
        sampling.patterns.all().count(),
    )
}

/// By level: owners whose estimated share of the misses is within 1.96 standard errors of the exact one, of how many.
fn owners(summary: &Summary, full: &Full) -> String {
    let level_text = |level: usize| {
        let all = full.owners.iter().map(|exact| exact.misses[level]).sum::<u64>() as f64;
        let estimated: f64 = summary.owners.iter().map(|(_, row)| row.levels[level].misses).sum();
        let (mut inside, mut of, mut off) = (0, 0, 0.0);
        for (id, row) in &summary.owners {
            let Some(exact) = full.owners.get(*id as usize) else { continue };
            let (truth, found) = (exact.misses[level] as f64 / all, row.levels[level].misses / estimated);
            off += (truth - found).abs() / 2.0;
            if truth >= 0.01 {
                of += 1;
                inside +=
                    u32::from((truth - found).abs() <= 1.96 * row.levels[level].standard_error / estimated);
            }
        }
        format!("[{inside},{of},{off:.4}]").replace("NaN", "null")
    };
    format!("[{}]", (0..LEVELS.len()).map(level_text).collect::<Vec<_>>().join(","))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [machine_name, trace, samplings @ ..] = &arguments[..] else {
        return Err("usage: held_against_exact MACHINE TRACE [LENGTH/EVERY[/SEED]...]".into());
    };
    let machine = machine(machine_name)?;
    let levels = levels(&machine)?;
    let mut samplings = samplings
        .iter()
        .map(|text| {
            let (length, every, seed) = match text.split('/').collect::<Vec<_>>()[..] {
                [length, every] => (length, every, "0"),
                [length, every, seed] => (length, every, seed),
                _ => return Err("a sampling is LENGTH/EVERY or LENGTH/EVERY/SEED".into()),
            };
            Sampling::new(length.parse()?, every.parse()?, seed.parse()?, &levels)
        })
        .collect::<Result<Vec<_>>>()?;
    let mut full = Full::new(&machine)?;
    let mut run: Vec<Reference> = Vec::new();
    let mut now = 0u64;
    let mut pages = FxHashSet::default();
    for path in parts(&Path::new(trace).join("accesses"))? {
        let file = SerializedFileReader::new(File::open(path)?)?;
        for group in 0..file.num_row_groups() {
            let rows = references(file.get_row_group(group)?.as_ref())?;
            for piece in rows.chunk_by(|one, other| one.0 == other.0) {
                run.clear();
                run.extend(piece.iter().map(|(_, reference)| *reference));
                full.run(piece[0].0, &run);
                pages.extend(run.iter().map(|reference| reference.address / PAGE_BYTES));
                for sampling in &mut samplings {
                    sampling.locality.has_data(Some(pages.len() as u64 * PAGE_BYTES));
                    sampling.take(piece[0].0, &run, now);
                }
                now += run.len() as u64;
            }
        }
    }
    let name = Path::new(trace).file_name().map_or(trace.clone(), |name| name.to_string_lossy().into_owned());
    for sampling in &samplings {
        println!("{}", report(&name, sampling, &full));
    }
    Ok(())
}

//! `memlens bus analyze`.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::num::NonZeroUsize;

use memlens_bus::analysis::{self, Analysis, Checkpoints, Observer, PageSizes};
use memlens_bus::format::{FormatError, TraceFolder};
use memlens_profile::{
    Attribution, Cell, CodeIx, CodeLocation, Existing, Frame, FrameIx, MachineInfo, Module, ModuleIx, Object,
    ObjectBacking, ObjectIx, PackedCounts, Profile, ProfileWriter, RunInfo, Stack, StackIx, Thread, ThreadIx,
};
use memlens_types::{AccessKind, Counts};

use crate::bus::{self, AnalysisFormat, AnalyzeArgs};
use crate::bus_table;
use crate::failure::{Failure, FailureKind};
use crate::streams;

/// Analyses a trace; `observer` sees every record.
pub fn observe(folder: &TraceFolder, observer: &mut dyn Observer) -> Result<Analysis, FormatError> {
    analysis::observe(folder.bus()?, folder.pages()?, folder.objects()?, observer)
}

/// Analyses a trace on so many threads.
pub fn run(folder: &TraceFolder, threads: NonZeroUsize) -> Result<Analysis, FormatError> {
    analysis::analyze(folder.bus()?, folder.pages()?, folder.objects()?, threads)
}

fn run_restartable(
    folder: &TraceFolder,
    threads: NonZeroUsize,
    checkpoints: &mut Checkpoints,
) -> Result<Analysis, FormatError> {
    analysis::analyze_restartable(folder.bus()?, folder.pages()?, folder.objects()?, threads, checkpoints)
}

/// As many threads as the machine runs at once.
pub fn all_processors() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Shows what a trace says.
pub fn analyze(args: &AnalyzeArgs) -> Result<u8, Failure> {
    let folder = bus::open(&args.trace)?;
    let existing = if args.force { Existing::Replace } else { Existing::Refuse };
    // What can be known to fail must fail before the work.
    let writer = args.out.as_ref().map(|out| ProfileWriter::create(out, existing)).transpose()?;
    let threads = args.threads.unwrap_or_else(all_processors);
    let found = match &args.checkpoint {
        Some(path) => run_restartable(&folder, threads, &mut Checkpoints::new(path, args.checkpoint_every)),
        None => run(&folder, threads),
    };
    let found = found.map_err(|error| bus::failure(&args.trace, &error))?;
    if let Some(mut writer) = writer {
        writer.flush(&profile(&found), true)?;
    }
    streams::write_result(|out| match args.format {
        AnalysisFormat::Table => write!(out, "{}", bus_table::table(&found, args.top)),
        AnalysisFormat::Json => {
            serde_json::to_writer_pretty(&mut *out, &Document { schema: ANALYSIS_SCHEMA, analysis: &found })?;
            writeln!(out)
        }
        AnalysisFormat::Csv => objects_csv(&found, out),
        AnalysisFormat::Points => points_csv(&found, out),
        AnalysisFormat::Bandwidth => bandwidth_csv(&found, out),
        AnalysisFormat::Pages => pages_csv(&found, out),
    })?;
    Ok(0)
}

/// What the JSON says first: `docs/bus.md`.
const ANALYSIS_SCHEMA: &str = "memlens-bus-analysis/1";

/// An analysis as JSON.
#[derive(serde::Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    analysis: &'a memlens_bus::analysis::Analysis,
}

/// A text as a CSV field (RFC 4180).
pub fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn objects_csv(found: &Analysis, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(
        out,
        "number,pid,kind,name,bytes,reads,writes,shared,late,walk_reads_1,walk_reads_2,walk_reads_3,\
         walk_reads_4,tlb_misses,site"
    )?;
    for row in &found.objects {
        let counts = &row.counts;
        let [first, second, third, fourth] = counts.walks;
        writeln!(
            out,
            "{},{},{},{},{},{},{},{},{},{first:.3},{second:.3},{third:.3},{fourth:.3},{:.3},{}",
            row.number,
            row.pid,
            row.kind,
            field(&row.name),
            row.bytes,
            counts.reads,
            counts.writes,
            counts.shared,
            counts.late,
            counts.tlb_misses,
            field(&row.site),
        )?;
    }
    Ok(())
}

fn points_csv(found: &Analysis, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "seconds,vaddr,rw,number,name")?;
    for &(cycles, vaddr, object, write) in &found.points.points {
        let name = found.objects.iter().find(|row| row.number == object).map_or("", |row| row.name.as_str());
        let direction = if write { 'w' } else { 'r' };
        let seconds = cycles as f64 / found.header.clock_hz as f64;
        writeln!(out, "{seconds:.9},{vaddr:#x},{direction},{object},{}", field(name))?;
    }
    Ok(())
}

fn bandwidth_csv(found: &Analysis, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "seconds,read_bytes_per_second,written_bytes_per_second")?;
    let width = found.bins.width_cycles as f64 / found.header.clock_hz as f64;
    let rate = |lines: u64| lines as f64 * f64::from(found.header.line_bytes) / width;
    for (bin, &[reads, writes]) in found.bins.bins.iter().enumerate() {
        writeln!(out, "{:.9},{:.0},{:.0}", bin as f64 * width, rate(reads), rate(writes))?;
    }
    Ok(())
}

/// TLB misses by page, averaged over the entries of a line of memory; most first.
fn pages_csv(found: &Analysis, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "pid,vaddr,page_bytes,entries,reads,reads_per_entry")?;
    for line in &found.walked_lines {
        let each = f64::from(line.reads) / line.entries as f64;
        let analysis::WalkedLine { pid, vaddr, page_bytes, entries, reads } = *line;
        writeln!(out, "{pid},{vaddr:#x},{page_bytes},{entries},{reads},{each:.3}")?;
    }
    Ok(())
}

/// The analysis as a profile: one row of code, because a bus does not tell whose access a line was.
fn profile(found: &Analysis) -> Profile {
    let whole = |share: f64| share.round() as u64;
    let counts = |row: &analysis::ObjectRow| Counts {
        dram_reads: row.counts.reads,
        dram_writes: row.counts.writes,
        page_walk_accesses: whole(row.counts.walk_reads()),
        stlb_misses: whole(row.counts.tlb_misses),
        ..Counts::default()
    };
    let mut all = Counts::default();
    let (mut objects, mut cells) = (Vec::new(), Vec::new());
    let mut places = Places::default();
    for (at, row) in found.objects.iter().enumerate() {
        let known = counts(row);
        // Write-backs belong to objects only.
        let in_code = Counts { dram_writes: 0, ..known };
        all += &in_code;
        cells.push(Cell {
            code: CodeIx(0),
            object: ObjectIx::from_index(at),
            thread: ThreadIx(0),
            counts: in_code.into(),
        });
        let kind = row.kind.parse().unwrap_or(memlens_types::ObjectKind::Unknown);
        let is_unknown = kind == memlens_types::ObjectKind::Unknown;
        objects.push(Object {
            id: at as u32 + 1,
            kind,
            name: row.name.clone(),
            site: places.site(&row.site),
            bytes: (row.bytes > 0).then_some(row.bytes),
            blocks: row.blocks.max(1),
            backing: backing(&row.mapped),
            unknown_reason: is_unknown.then(|| "no object event covers the address".to_owned()),
            counts: known,
            ..Object::default()
        });
    }
    cells.retain(|cell| cell.counts != PackedCounts::default());
    let (attributed_accesses, unknown_reasons) = attributed(found);
    let mut notes = bus_table::losses(&found.losses);
    notes.push("From a bus trace: counts are lines on the memory bus, code is not known.".to_owned());
    Profile {
        run: RunInfo {
            command: found.header.command.clone(),
            mode: "bus".into(),
            threads: 1,
            memlens_version: env!("CARGO_PKG_VERSION").to_owned(),
            primary_cost: "dram_reads".into(),
            ..RunInfo::default()
        },
        machine: MachineInfo {
            name: found.header.machine.clone(),
            line_bytes: found.header.line_bytes,
            page_bytes: 4096,
            ..MachineInfo::default()
        },
        modules: places.modules,
        frames: places.frames,
        stacks: places.stacks,
        objects,
        code: vec![CodeLocation {
            id: 1,
            kind: AccessKind::Load,
            counts: all.into(),
            ..CodeLocation::default()
        }],
        cells,
        threads: vec![Thread { counts: all, ..Thread::default() }],
        attribution: Attribution {
            attributed_accesses,
            unknown_accesses: unknown_reasons.values().sum(),
            unknown_reasons,
            lost_events: found.losses.lost_records,
            truncated: found.losses.bus_damage.is_cut,
            notes,
            ..Attribution::default()
        },
        ..Profile::default()
    }
}

/// Lines read and written that belong to objects; those that do not, by reason.
fn attributed(found: &Analysis) -> (u64, BTreeMap<String, u64>) {
    let is_known = |row: &&analysis::ObjectRow| row.number != 0;
    let lines = |row: &analysis::ObjectRow| row.counts.reads + row.counts.writes;
    let known = found.objects.iter().filter(is_known).map(lines).sum();
    let without_object = found.objects.iter().filter(|row| row.number == 0).map(lines).sum();
    let totals = &found.totals;
    let reasons = [
        (without_object, "in pages of no object"),
        (totals.kernel, "of the kernel"),
        (totals.page_cache, "of the page cache"),
        (totals.device, "of devices"),
        (totals.unknown, "in frames that the page-table trace does not mention"),
        (totals.out_of_range, "beyond the memory"),
    ];
    let reasons = reasons.into_iter().filter(|(lines, _)| *lines > 0);
    (known, reasons.map(|(lines, reason)| (reason.to_owned(), lines)).collect())
}

/// How an object was backed; None: no page-table record tells.
fn backing(mapped: &PageSizes) -> Option<ObjectBacking> {
    let PageSizes { bytes_in_4k_pages, bytes_in_1g_pages, .. } = *mapped;
    let told = mapped.bytes_in_transparent_pages.zip(mapped.bytes_in_hugetlb_pages);
    let (transparent_bytes, hugetlb_bytes) = told.unwrap_or_default();
    (mapped.total() > 0).then_some(ObjectBacking {
        small_bytes: bytes_in_4k_pages,
        transparent_bytes,
        hugetlb_bytes,
        untold_huge_bytes: mapped.huge() - transparent_bytes - hugetlb_bytes,
        gigantic_bytes: Some(bytes_in_1g_pages),
        // A card does not tell it from other pages that are shared.
        zero_bytes: 0,
        swapped_bytes: 0,
        node_bytes: Vec::new(),
    })
}

/// Modules, frames and stacks of a profile, from the call stacks of a trace.
#[derive(Default)]
struct Places {
    modules: Vec<Module>,
    frames: Vec<Frame>,
    stacks: Vec<Stack>,
    known: HashMap<String, u32>,
}

impl Places {
    /// The stack that a text like `/bin/a+0x12 /lib/b+0x34` means, as the virtual card writes it; None: something else.
    fn site(&mut self, text: &str) -> Option<StackIx> {
        let mut stack = Vec::new();
        // A path may have spaces in it: a word belongs to the frame that ends next.
        let mut path = String::new();
        for word in text.split(' ') {
            path += if path.is_empty() { "" } else { " " };
            path += word;
            let Some((name, digits)) = path.rsplit_once("+0x") else { continue };
            let Ok(offset) = u64::from_str_radix(digits, 16) else { continue };
            let module = (name != "?").then(|| self.module(name));
            stack.push(FrameIx::from_index(self.frames.len()));
            self.frames.push(Frame { module, offset, ..Frame::default() });
            path.clear();
        }
        if stack.is_empty() || !path.is_empty() {
            return None;
        }
        self.stacks.push(Stack(stack));
        Some(StackIx::from_index(self.stacks.len() - 1))
    }

    fn module(&mut self, path: &str) -> ModuleIx {
        let next = self.modules.len() as u32;
        let index = *self.known.entry(path.to_owned()).or_insert(next);
        if index == next {
            self.modules.push(Module { path: path.to_owned(), ..Module::default() });
        }
        ModuleIx(index)
    }
}

/// Says that a trace lacks a file that the command needs.
pub fn lacks(place: &std::path::Path, what: &str) -> Failure {
    Failure::new(FailureKind::NoInput, format!("{} has no {what}", place.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_stacks_come_back() {
        let mut places = Places::default();
        assert_eq!(places.site("/a b/c+0x12 /lib/d+0x3 /a b/c+0x40"), Some(StackIx(0)));
        assert_eq!(
            places.modules.iter().map(|module| module.path.as_str()).collect::<Vec<_>>(),
            ["/a b/c", "/lib/d"]
        );
        let frames: Vec<_> = places.frames.iter().map(|frame| (frame.module, frame.offset)).collect();
        let module = |index| Some(ModuleIx(index));
        assert_eq!(frames, [(module(0), 0x12), (module(1), 3), (module(0), 0x40)]);
        assert_eq!([places.site("main < start"), places.site("")], [None, None]);
    }

    #[test]
    fn large_pages_of_unknown_kind_stay_unknown() {
        let sizes = |told| PageSizes {
            bytes_in_4k_pages: 1,
            bytes_in_2m_pages: 20,
            bytes_in_1g_pages: 300,
            bytes_in_transparent_pages: told,
            bytes_in_hugetlb_pages: told.map(|bytes| 320 - bytes),
        };
        let kinds = |told| {
            let found = backing(&sizes(told)).expect("mapped");
            assert_eq!((found.resident_bytes(), found.gigantic_bytes), (321, Some(300)));
            [found.transparent_bytes, found.hugetlb_bytes, found.untold_huge_bytes]
        };
        assert_eq!([kinds(Some(20)), kinds(None)], [[20, 300, 0], [0, 0, 320]]);
        assert_eq!(backing(&PageSizes::default()), None);
    }

    #[test]
    fn fields_are_quoted_where_they_must() {
        assert_eq!([field("a b"), field("a,\"b\"")], ["a b", "\"a,\"\"b\"\"\""]);
    }
}
